/* digest_x86.c - the digest's arithmetic with carry-less multiplication: PCLMULQDQ on 16 bytes at a time,
 * and VPCLMULQDQ on 64.
 *
 * Sums are not reduced while folding. Sixteen bytes are a + b x^64; times c they are
 * a (c mod P) + b (c x^64 mod P), two products of fewer than 128 bits. Two moduli make it four
 * multiplications for 16 bytes, and the CPU does one a cycle (of the wide ones, one in two cycles). */
#include "ckpt/digest.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define NARROW __attribute__((target("avx,pclmul")))
#define WIDE __attribute__((target("avx,pclmul,vpclmulqdq,avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE static inline __attribute__((always_inline))

enum { LANE = 16, NARROW_CELL = 64, NARROW_LANES = NARROW_CELL / LANE, WIDE_LANE = 64, LINE = 64 };

/* How many cells ahead memory is asked for. */
enum { NARROW_AHEAD = 32, WIDE_AHEAD = 16 };

/* ---- single values ---- */

NARROW INLINE __m128i pair_of(uint64_t low, uint64_t high) {
    return _mm_set_epi64x((int64_t)high, (int64_t)low);
}

/* 128 bits modulo a modulus: the quotient is that of the upper half alone, and the product of that half
 * with x^128 / P has it, exactly, in its own upper half. */
NARROW INLINE uint64_t reduce(__m128i value, uint64_t modulus, uint64_t inverse) {
    const __m128i constants = pair_of(modulus, inverse);
    __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
    __m128i quotient = _mm_xor_si128(high, value); /* in the upper half */
    __m128i product = _mm_clmulepi64_si128(quotient, constants, 0x01);
    return (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(value, product));
}

NARROW INLINE fy_pair_t reduce_pair(__m128i a, __m128i b) {
    return (fy_pair_t){{reduce(a, FY_DIGEST_MODULUS_0, FY_DIGEST_INVERSE_0),
                        reduce(b, FY_DIGEST_MODULUS_1, FY_DIGEST_INVERSE_1)}};
}

NARROW static fy_pair_t multiply(fy_pair_t a, fy_pair_t b) {
    __m128i low = _mm_clmulepi64_si128(pair_of(a.of[0], 0), pair_of(b.of[0], 0), 0);
    __m128i high = _mm_clmulepi64_si128(pair_of(a.of[1], 0), pair_of(b.of[1], 0), 0);
    return reduce_pair(low, high);
}

/* sum * factor + value, not reduced. */
NARROW INLINE __m128i narrow_step(__m128i sum, __m128i factor, __m128i value) {
    __m128i low = _mm_clmulepi64_si128(sum, factor, 0x00);
    __m128i high = _mm_clmulepi64_si128(sum, factor, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), value);
}

NARROW INLINE __m128i factor_of(const uint64_t words[2]) {
    return _mm_loadu_si128((const __m128i *)(const void *)words);
}

NARROW static fy_pair_t finish(const fy_sums_t *sums, size_t width) {
    /* x^128 and x^192; x^64 is the modulus without its x^64. */
    fy_pair_t x64 = {{FY_DIGEST_MODULUS_0, FY_DIGEST_MODULUS_1}};
    fy_pair_t x128 = multiply(x64, x64);
    fy_pair_t x192 = multiply(x128, x64);
    __m128i factors[2] = {pair_of(x128.of[0], x192.of[0]), pair_of(x128.of[1], x192.of[1])};
    __m128i sum[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    for (size_t lane = (width + LANE - 1) / LANE; lane-- > 0;) {
        for (int m = 0; m < FY_DIGEST_MODULI; m++) {
            sum[m] = narrow_step(sum[m], factors[m], factor_of(sums->of[m] + 2 * lane));
        }
    }
    return reduce_pair(sum[0], sum[1]);
}

/* ---- 16 bytes at a time ---- */

static bool narrow_runs(void) {
    return __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("pclmul") != 0;
}

/* Asks for memory some cells ahead, past the end too: there is most often more, and asking for memory
 * that does not exist does no harm. */
INLINE void ask_ahead(const uint8_t *data, ptrdiff_t ahead, size_t width) {
    for (size_t i = 0; i < width; i += LINE) {
        __builtin_prefetch(data + ahead + i, 0, 3);
    }
}

INLINE uint64_t load_bytes(const uint8_t *data, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, data, bytes);
    return word;
}

/* Fewer than 16 bytes and nothing around them, the rest zeros. From both ends, so that the size of each
 * load is known when compiled. */
NARROW INLINE __m128i load_short(const uint8_t *data, size_t bytes) {
    const uint8_t *end = data + bytes;
    if (bytes > 8) {
        return pair_of(load_bytes(data, 8), load_bytes(end - 8, 8) >> (8 * (16 - bytes)));
    }
    if (bytes == 8) {
        return pair_of(load_bytes(data, 8), 0);
    }
    if (bytes >= 4) {
        return pair_of(load_bytes(data, 4) | load_bytes(end - 4, 4) << (8 * (bytes - 4)), 0);
    }
    if (bytes >= 2) {
        return pair_of(load_bytes(data, 2) | load_bytes(end - 2, 2) << (8 * (bytes - 2)), 0);
    }
    return pair_of(data[0], 0);
}

/* Fewer than 16 bytes at the end of a cell of `width` bytes. */
NARROW INLINE __m128i load_end(const uint8_t *cell, size_t width, size_t bytes) {
    static const uint8_t shift[2 * LANE] = {0,    1,    2,    3,    4,    5,    6,    7,
                                            8,    9,    10,   11,   12,   13,   14,   15,
                                            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                            0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    if (width < LANE) {
        return load_short(cell, bytes);
    }
    const uint8_t *last = cell + width - LANE;
    const uint8_t *order = shift + LANE - bytes;
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)last),
                            _mm_loadu_si128((const __m128i *)(const void *)order));
}

/* `whole` lanes of 16 bytes and `rest` bytes: constants wherever this is compiled in, so that the sums
 * stay in registers. */
NARROW INLINE void narrow_fold_n(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                                 const fy_factor_t *first, size_t whole, bool more) {
    __m128i sum[FY_DIGEST_MODULI][NARROW_LANES];
    __m128i factor[FY_DIGEST_MODULI];
    size_t lanes = whole + (more ? 1 : 0);
    size_t rest = cells->width - whole * LANE;
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        factor[m] = factor_of(first->of[m]);
        for (size_t i = 0; i < lanes; i++) {
            sum[m][i] = factor_of(sums->of[m] + 2 * i);
        }
    }
    for (size_t left = cells->count; left > 0; left--, data += cells->pitch) {
        ask_ahead(data, NARROW_AHEAD * cells->pitch, lanes * LANE);
        for (size_t i = 0; i < lanes; i++) {
            __m128i value = i < whole
                                ? _mm_loadu_si128((const __m128i *)(const void *)(data + i * LANE))
                                : load_end(data, cells->width, rest);
            sum[0][i] = narrow_step(sum[0][i], factor[0], value);
            sum[1][i] = narrow_step(sum[1][i], factor[1], value);
        }
        factor[0] = factor_of(cells->step.of[0]);
        factor[1] = factor_of(cells->step.of[1]);
    }
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        for (size_t i = 0; i < lanes; i++) {
            _mm_storeu_si128((__m128i *)(void *)(sums->of[m] + 2 * i), sum[m][i]);
        }
    }
}

NARROW static void narrow_fold(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                               const fy_factor_t *first) {
    bool more = cells->width % LANE != 0;
    switch (cells->width / LANE) {
    case 0:
        narrow_fold_n(sums, cells, data, first, 0, true);
        break;
    case 1:
        narrow_fold_n(sums, cells, data, first, 1, more);
        break;
    case 2:
        narrow_fold_n(sums, cells, data, first, 2, more);
        break;
    case 3:
        narrow_fold_n(sums, cells, data, first, 3, more);
        break;
    default:
        narrow_fold_n(sums, cells, data, first, 4, false);
        break;
    }
}

const fy_digest_way_t fy_digest_pclmul = {"pclmul",    NARROW_CELL, narrow_runs, NULL,
                                          narrow_fold, finish,      multiply};

/* ---- 64 bytes at a time ---- */

static bool wide_runs(void) {
    return narrow_runs() && __builtin_cpu_supports("vpclmulqdq") != 0 &&
           __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

WIDE INLINE __m512i wide_step(__m512i sum, __m512i factor, __m512i value) {
    __m512i low = _mm512_clmulepi64_epi128(sum, factor, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(sum, factor, 0x11);
    return _mm512_ternarylogic_epi64(low, high, value, 0x96);
}

WIDE INLINE __m512i wide_factor(const uint64_t words[2]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)words));
}

/* `lanes` of 64 bytes, a constant where this is compiled in; the last may be short. */
WIDE INLINE void wide_fold_n(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                             const fy_factor_t *first, size_t lanes) {
    __m512i sum[FY_DIGEST_MODULI][FY_DIGEST_CELL / WIDE_LANE];
    __m512i factor[FY_DIGEST_MODULI];
    __mmask64 mask = ~UINT64_C(0) >> (lanes * WIDE_LANE - cells->width);
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        factor[m] = wide_factor(first->of[m]);
        for (size_t i = 0; i < lanes; i++) {
            sum[m][i] = _mm512_load_si512(sums->of[m] + 8 * i);
        }
    }
    for (size_t left = cells->count; left > 0; left--, data += cells->pitch) {
        ask_ahead(data, WIDE_AHEAD * cells->pitch, lanes * WIDE_LANE);
        for (size_t i = 0; i < lanes; i++) {
            __m512i value = i + 1 < lanes ? _mm512_loadu_si512(data + i * WIDE_LANE)
                                          : _mm512_maskz_loadu_epi8(mask, data + i * WIDE_LANE);
            sum[0][i] = wide_step(sum[0][i], factor[0], value);
            sum[1][i] = wide_step(sum[1][i], factor[1], value);
        }
        factor[0] = wide_factor(cells->step.of[0]);
        factor[1] = wide_factor(cells->step.of[1]);
    }
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        for (size_t i = 0; i < lanes; i++) {
            _mm512_store_si512(sums->of[m] + 8 * i, sum[m][i]);
        }
    }
}

WIDE static void wide_fold(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                           const fy_factor_t *first) {
    if (cells->width <= LANE) {
        narrow_fold(sums, cells, data, first);
    } else if (cells->width <= WIDE_LANE) {
        wide_fold_n(sums, cells, data, first, 1);
    } else if (cells->width <= (size_t)2 * WIDE_LANE) {
        wide_fold_n(sums, cells, data, first, 2);
    } else if (cells->width <= (size_t)3 * WIDE_LANE) {
        wide_fold_n(sums, cells, data, first, 3);
    } else {
        wide_fold_n(sums, cells, data, first, 4);
    }
}

const fy_digest_way_t fy_digest_vpclmul = {"vpclmul", FY_DIGEST_CELL, wide_runs, NULL,
                                           wide_fold, finish,         multiply};

#endif
