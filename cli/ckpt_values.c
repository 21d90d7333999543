/* ckpt_values.c - made-up weights that anyone can make again.
 *
 * Invariant: only whole numbers and one float multiplication and addition a value, each of them exact or rounded once,
 * so that every machine makes the same bits. */
#include "ckpt_values.h"

#include <string.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 by the golden ratio: steps spread evenly */
#define WIDTH 0.02F
#define ROOT_3 1.7320508F /* the sum of four even draws from 0 to 1 has this over 3 as its width */

/* Mixes all bits with all bits; one to one. */
static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

ckpt_values_t ckpt_values_of(uint64_t seed, const char *tensor) {
    uint64_t key = mix(seed + GOLDEN);
    for (const char *c = tensor; *c != '\0'; c++) {
        key = mix(key ^ (unsigned char)*c) + GOLDEN;
    }
    return (ckpt_values_t){key, strstr(tensor, "norm.weight") != NULL ? 1.0F : 0.0F};
}

void ckpt_values_make(const ckpt_values_t *values, uint64_t first, float *target, size_t count) {
    const float step = WIDTH * ROOT_3 / 65536.0F;
    for (size_t i = 0; i < count; i++) {
        uint64_t draw = mix(values->key + (first + i) * GOLDEN);
        int32_t sum = (int32_t)((draw & 0xffff) + (draw >> 16 & 0xffff) + (draw >> 32 & 0xffff) +
                                (draw >> 48));
        float bell =
            (float)(sum - 2 * 0xffff) * step; /* a variable: it is rounded before the sum */
        target[i] = values->centre + bell;
    }
}
