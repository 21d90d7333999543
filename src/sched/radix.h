/* radix.h - sorting (key, value) entries by key, in linear time and always the same way. */
#ifndef FERRY_SCHED_RADIX_H
#define FERRY_SCHED_RADIX_H

#include <stddef.h>
#include <stdint.h>

typedef struct fy_keyed {
    uint64_t key;
    uint64_t value;
} fy_keyed_t;

/* Sorts by key, ascending; entries of equal key keep their order. scratch has room for n more and
 * holds nothing of use afterwards. */
void fy_radix_sort(fy_keyed_t *entries, fy_keyed_t *scratch, size_t n);

#endif
