/* ckpt_values.h - made-up weights that anyone can make again.
 *
 * A value depends on the seed, the tensor's name and the element's number alone: in whatever order and by however
 * many threads elements are made, they are the same. They look like weights: a bell of width 0.02 around 0, or
 * around 1 for norms. */
#ifndef CLI_CKPT_VALUES_H
#define CLI_CKPT_VALUES_H

#include <stddef.h>
#include <stdint.h>

typedef struct ckpt_values {
    uint64_t key;
    float centre;
} ckpt_values_t;

ckpt_values_t ckpt_values_of(uint64_t seed, const char *tensor);
/* Elements first, first + 1, ... of the tensor. */
void ckpt_values_make(const ckpt_values_t *values, uint64_t first, float *target, size_t count);

#endif
