/* avx512.c - the table for x86 with AVX-512 (F, BW, DQ, VL).
 *
 * As avx2.c, with a whole line in one register. Transposes are AVX2's: they are bound by shuffles, and
 * wider ones cross lanes. AVX512_BF16 is not used: it flushes subnormals. */
#include "kernel/loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernel/x86.h"

FY_DEFINE_CASTS(FY_AVX512)
FY_DEFINE_FOLDS(FY_AVX512)
FY_DEFINE_DEQUANTISE(FY_AVX512)

/* ---- MXFP8: fy_quantise_loop, sixteen elements at a time ---- */

FY_AVX512 FY_INLINE __m512i all(uint32_t value) {
    return _mm512_set1_epi32((int)value);
}

/* Magnitudes, NaN as 0. */
FY_AVX512 FY_INLINE __m512i sizes(__m512i bits) {
    __m512i size = _mm512_and_si512(bits, all(0x7fffffff));
    return _mm512_maskz_mov_epi32(_mm512_cmple_epi32_mask(size, all(FY_F32_INF)), size);
}

/* fy_to_f8e4m3_sat. */
FY_AVX512 FY_INLINE __m128i squeeze(__m512i bits) {
    const __m512i least = all(UINT32_C(121) << 23);
    const __m512i weigh = all(UINT32_C(141) << 23);
    __m512i size = _mm512_and_si512(bits, all(0x7fffffff));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(size, 20), all(1));
    __m512i normal = _mm512_add_epi32(size, all(0x7ffff - (UINT32_C(120) << 23)));
    normal = _mm512_srli_epi32(_mm512_add_epi32(normal, odd), 20);
    __m512i tiny =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(weigh)));
    tiny = _mm512_sub_epi32(tiny, weigh);
    __m512i out = _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(size, least), tiny);
    out = _mm512_min_epi32(out, all(0x7e));
    out = _mm512_mask_mov_epi32(out, _mm512_cmpgt_epi32_mask(size, all(FY_F32_INF)), all(0x7f));
    out = _mm512_or_si512(out, _mm512_and_si512(_mm512_srli_epi32(bits, 24), all(0x80)));
    return _mm512_cvtepi32_epi8(out);
}

FY_AVX512 static void quantise(uint8_t *restrict data, uint8_t *restrict scales,
                               const void *restrict source, size_t blocks, bool stream) {
    const uint8_t *s = source;
    for (size_t b = 0; b < blocks;
         b++, s += sizeof(float) * FERRY_MX_BLOCK, data += FERRY_MX_BLOCK) {
        FY_PREFETCH_PAST(s, FY_PREFETCH_BYTES);
        FY_PREFETCH_PAST(s, FY_PREFETCH_BYTES + FY_LINE);
        __m512i low = _mm512_loadu_si512(s);
        __m512i high = _mm512_loadu_si512(s + 64);
        __m512i most = _mm512_max_epi32(sizes(low), sizes(high));
        uint8_t code = fy_mx_code((uint32_t)_mm512_reduce_max_epi32(most));
        __m512 by = _mm512_set1_ps(fy_mx_inverse(code));
        scales[b] = code;
        low = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(low), by));
        high = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(high), by));
        fy_x86_put(data, _mm256_set_m128i(squeeze(high), squeeze(low)), stream);
    }
}

/* bf16 has all its bits in the upper half of f32, so a block whose elements all come out normal or zero is
 * done in 16-bit lanes: dividing by the scale moves the exponent, and four bits of mantissa are dropped.
 * The rest (subnormal results, infinities, NaN, scales so small that subnormal sources count) is rare
 * and goes by way of f32. */
FY_AVX512 FY_INLINE bool quantise_normal(uint8_t *data, uint8_t *scale, const uint8_t *source,
                                         bool stream) {
    __m512i x = _mm512_loadu_si512(source);
    __m512i size = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
    __m256i most =
        _mm256_max_epu16(_mm512_castsi512_si256(size), _mm512_extracti64x4_epi64(size, 1));
    __m128i amax = fy_x86_largest(most);
    uint32_t largest = (uint32_t)_mm_cvtsi128_si32(amax) & 0xffff;
    __m512i by = _mm512_broadcastw_epi16(fy_x86_shift(amax));
    __m512i below = _mm512_sub_epi16(size, _mm512_set1_epi16(1)); /* zero wraps to the top */
    __m512i enough = _mm512_add_epi16(by, _mm512_set1_epi16(127));
    if (largest < FY_MX_EASY_LEAST || largest > FY_MX_EASY_MOST ||
        _mm512_cmplt_epu16_mask(below, enough) != 0) {
        return false;
    }
    __m512i moved = _mm512_subs_epu16(size, by); /* zero stays zero */
    __m512i odd = _mm512_and_si512(_mm512_srli_epi16(moved, 4), _mm512_set1_epi16(1));
    __m512i out = _mm512_add_epi16(_mm512_add_epi16(moved, _mm512_set1_epi16(7)), odd);
    __m256i bytes = _mm512_cvtepi16_epi8(_mm512_srli_epi16(out, 4));
    __m256i sign = _mm512_cvtepi16_epi8(_mm512_srli_epi16(x, 8));
    bytes = _mm256_min_epu8(bytes, _mm256_set1_epi8(0x7e));
    sign = _mm256_and_si256(sign, _mm256_set1_epi8(-128));
    fy_x86_put(data, _mm256_or_si256(bytes, sign), stream);
    *scale = (uint8_t)((largest >> 7) - 8);
    return true;
}

FY_AVX512 static void quantise_bf16(uint8_t *restrict data, uint8_t *restrict scales,
                                    const void *restrict source, size_t blocks, bool stream) {
    const uint8_t *s = source;
    for (size_t b = 0; b < blocks;
         b++, s += sizeof(uint16_t) * FERRY_MX_BLOCK, data += FERRY_MX_BLOCK) {
        FY_PREFETCH_PAST(s, FY_PREFETCH_BYTES);
        if (!quantise_normal(data, scales + b, s, stream)) {
            FY_QUANTISE_WIDENED(data, scales + b, s);
        }
    }
}

/* ---- f32 to bf16, the cast that weights go through ---- */

/* fy_drop(bits, 16) of sixteen, before the shift. */
FY_AVX512 FY_INLINE __m512i round_16(__m512i bits) {
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), all(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, all(0x7fff)), odd);
}

/* One line of the target. */
FY_AVX512 FY_INLINE void stream_bf16(uint8_t *target, const uint8_t *source) {
    /* The upper halves of 16 + 16 elements, in order. */
    const __m512i upper = _mm512_add_epi16(
        _mm512_set1_epi16(1),
        _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_setr_epi8(
                              0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                              20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)),
                          1));
    __m512i low = _mm512_loadu_si512(source);
    __m512i high = _mm512_loadu_si512(source + 64);
    if (_mm512_cmp_ps_mask(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high), _CMP_UNORD_Q) !=
        0) {
        cast_f32_bf16(target, source, 32); /* a NaN among them */
        return;
    }
    __m512i both = _mm512_permutex2var_epi16(round_16(low), upper, round_16(high));
    _mm512_stream_si512((__m512i *)(void *)target, both);
    FY_IN_ORDER;
}

FY_DEFINE_CAST_STREAM_BF16(FY_AVX512)

/* ---- runs ---- */

FY_AVX512 FY_INLINE void put_line(uint8_t *target, const uint8_t *source, bool stream) {
    __m512i line = _mm512_loadu_si512(source);
    if (stream) {
        _mm512_stream_si512((__m512i *)(void *)target, line);
        FY_IN_ORDER;
    } else {
        _mm512_storeu_si512(target, line);
    }
}

FY_DEFINE_ROWS(FY_AVX512)

const fy_kernels_t fy_kernels_avx512 = {
    .name = "avx512",
    .rows = rows,
    .rows_stream = rows_stream,
    .fence = fy_x86_fence,
    .turn = {fy_x86_turn_1, fy_x86_turn_2, fy_x86_turn_4, fy_x86_turn_8},
    .cast = FY_CAST_TABLE,
    .cast_stream[FY_FLOAT_F32][FY_FLOAT_BF16] = cast_stream_f32_bf16,
    .fold = FY_FOLD_TABLE,
    .finish = FY_FINISH_TABLE,
    .quantise = quantise,
    .quantise_bf16 = quantise_bf16,
    .dequantise = dequantise,
};

#endif
