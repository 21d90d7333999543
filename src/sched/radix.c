/* radix.c - a stable radix sort, least digit first.
 *
 * A digit that is the same in all keys costs no pass, so ranks and sizes, which are small numbers in
 * wide fields, take three or four passes instead of eight.
 *
 * Invariant: before pass d the entries in `from` are sorted by the digits below d. */
#include "sched/radix.h"

#include <string.h>

enum { DIGITS = 8, DIGIT_BITS = 8, DIGIT_VALUES = 1 << DIGIT_BITS, INSERTION_MAX = 32 };

static unsigned digit_of(uint64_t key, unsigned digit) {
    return (unsigned)(key >> (digit * DIGIT_BITS)) & (DIGIT_VALUES - 1U);
}

static void insertion_sort(fy_keyed_t *entries, size_t n) {
    for (size_t i = 1; i < n; i++) {
        fy_keyed_t entry = entries[i];
        size_t at = i;
        for (; at > 0 && entries[at - 1].key > entry.key; at--) {
            entries[at] = entries[at - 1];
        }
        entries[at] = entry;
    }
}

/* Moves the entries to `to`, ordered by one digit. */
static void scatter(const fy_keyed_t *from, fy_keyed_t *to, size_t n, unsigned digit) {
    size_t next[DIGIT_VALUES] = {0};
    for (size_t i = 0; i < n; i++) {
        next[digit_of(from[i].key, digit)]++;
    }
    size_t sum = 0;
    for (unsigned v = 0; v < DIGIT_VALUES; v++) {
        size_t count = next[v];
        next[v] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) {
        to[next[digit_of(from[i].key, digit)]++] = from[i];
    }
}

void fy_radix_sort(fy_keyed_t *entries, fy_keyed_t *scratch, size_t n) {
    if (n <= INSERTION_MAX) {
        insertion_sort(entries, n);
        return;
    }
    uint64_t varies = 0;
    for (size_t i = 1; i < n; i++) {
        varies |= entries[i].key ^ entries[0].key;
    }
    fy_keyed_t *from = entries;
    fy_keyed_t *to = scratch;
    for (unsigned d = 0; d < DIGITS; d++) {
        if (digit_of(varies, d) == 0) {
            continue;
        }
        scatter(from, to, n, d);
        fy_keyed_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != entries) {
        memcpy(entries, from, n * sizeof *entries);
    }
}
