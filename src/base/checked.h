/* checked.h - arithmetic that says when it does not fit.
 *
 * Each returns false on overflow and then leaves *out alone in meaning: do not use it. */
#ifndef FERRY_BASE_CHECKED_H
#define FERRY_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool fy_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline bool fy_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool fy_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* b > 0; cannot overflow. */
static inline uint64_t fy_ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

static inline uint64_t fy_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t fy_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

#endif
