/* digest_oracle.h - digests the slow way, after docs/formats/digest.md: bit by bit, one byte at its place at a
 * time. Shares no code with src/ckpt. */
#ifndef FERRY_TEST_DIGEST_ORACLE_H
#define FERRY_TEST_DIGEST_ORACLE_H

#include <string.h>

#include <ferry/digest.h>

#include "ckpt/digest.h"

static const uint64_t digest_oracle_moduli[2] = {UINT64_C(0x6a09e667f3bcc96d),
                                                 UINT64_C(0xbb67ae8584caa753)};

/* Times x, times 1 / x. */
static inline uint64_t digest_oracle_up(uint64_t a, int m) {
    return (a & UINT64_C(1) << 63) != 0 ? a << 1 ^ digest_oracle_moduli[m] : a << 1;
}

static inline uint64_t digest_oracle_down(uint64_t a, int m) {
    return (a & 1) != 0 ? (a ^ digest_oracle_moduli[m]) >> 1 | UINT64_C(1) << 63 : a >> 1;
}

static inline uint64_t digest_oracle_times(uint64_t a, uint64_t b, int m) {
    uint64_t product = 0;
    for (; b != 0; b >>= 1) {
        product ^= (b & 1) != 0 ? a : 0;
        a = digest_oracle_up(a, m);
    }
    return product;
}

/* x^exponent. */
static inline uint64_t digest_oracle_power(uint64_t exponent, int m) {
    uint64_t power = 1;
    for (int i = 63; i >= 0; i--) {
        power = digest_oracle_times(power, power, m);
        power = (exponent >> i & 1) != 0 ? digest_oracle_up(power, m) : power;
    }
    return power;
}

/* The bytes from place 0 on. */
static inline ferry_digest_t digest_oracle_bytes(const uint8_t *bytes, size_t length) {
    uint64_t sum[2] = {0, 0};
    for (size_t i = length; i-- > 0;) {
        for (int bit = 7; bit >= 0; bit--) {
            for (int m = 0; m < 2; m++) {
                sum[m] = digest_oracle_up(sum[m], m) ^ (uint64_t)(bytes[i] >> bit & 1);
            }
        }
    }
    return (ferry_digest_t){sum[0], sum[1]};
}

/* Runs the body once for every way that this CPU has, named `way`. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared stands in no parentheses */
#define FOR_EACH_WAY(way)                                                                          \
    for (const fy_digest_way_t *const *way##_at = fy_digest_ways, *way = *way##_at;                \
         way != NULL && (fy_digest_force(way->runs() ? way : NULL), true); way = *++way##_at)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline uint64_t digest_draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t digest_below(uint64_t *state, uint64_t most) {
    return digest_draw(state) % most;
}

#endif
