/* avx2.c - the table for x86 with AVX2.
 *
 * Casts, folds and MXFP8 are the common loops, compiled for AVX2. Here are the streaming stores and the
 * transposes in registers. A streamed run begins and ends with plain stores up to whole lines: a line
 * that is streamed in parts costs more than reading it first. */
#include "kernel/loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernel/x86.h"

FY_DEFINE_CASTS(FY_AVX2)
FY_DEFINE_FOLDS(FY_AVX2)
FY_DEFINE_DEQUANTISE(FY_AVX2)

/* ---- MXFP8: fy_quantise_loop, eight elements at a time ---- */

FY_AVX2 FY_INLINE __m256i all(uint32_t value) {
    return _mm256_set1_epi32((int)value);
}

/* Magnitudes, NaN as 0. */
FY_AVX2 FY_INLINE __m256i sizes(__m256i bits) {
    __m256i size = _mm256_and_si256(bits, all(0x7fffffff));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(size, all(FY_F32_INF)), size);
}

FY_AVX2 FY_INLINE uint32_t largest(__m256i sizes_of_block) {
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(sizes_of_block),
                                 _mm256_extracti128_si256(sizes_of_block, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

/* fy_to_f8e4m3_sat of eight, each in 32 bits. */
FY_AVX2 FY_INLINE __m256i squeeze(__m256i bits, __m256 by) {
    const __m256i least = all(UINT32_C(121) << 23);
    const __m256i weigh = all(UINT32_C(141) << 23);
    bits = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(bits), by));
    __m256i size = _mm256_and_si256(bits, all(0x7fffffff));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, 20), all(1));
    __m256i normal = _mm256_add_epi32(size, all(0x7ffff - (UINT32_C(120) << 23)));
    normal = _mm256_srli_epi32(_mm256_add_epi32(normal, odd), 20);
    __m256i tiny =
        _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(weigh)));
    tiny = _mm256_sub_epi32(tiny, weigh);
    __m256i out = _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(least, size));
    out = _mm256_min_epi32(out, all(0x7e));
    out = _mm256_or_si256(out,
                          _mm256_and_si256(_mm256_cmpgt_epi32(size, all(FY_F32_INF)), all(0x7f)));
    return _mm256_or_si256(out, _mm256_and_si256(_mm256_srli_epi32(bits, 24), all(0x80)));
}

FY_AVX2 static void quantise(uint8_t *restrict data, uint8_t *restrict scales,
                             const void *restrict source, size_t blocks, bool stream) {
    /* Packing works within lanes; this puts fours of bytes back in order. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const uint8_t *s = source;
    for (size_t b = 0; b < blocks;
         b++, s += sizeof(float) * FERRY_MX_BLOCK, data += FERRY_MX_BLOCK) {
        FY_PREFETCH_PAST(s, FY_PREFETCH_BYTES);
        FY_PREFETCH_PAST(s, FY_PREFETCH_BYTES + FY_LINE);
        __m256i x[4];
        for (size_t i = 0; i < 4; i++) {
            x[i] = _mm256_loadu_si256((const __m256i *)(const void *)(s + 32 * i));
        }
        __m256i most = _mm256_max_epi32(_mm256_max_epi32(sizes(x[0]), sizes(x[1])),
                                        _mm256_max_epi32(sizes(x[2]), sizes(x[3])));
        uint8_t code = fy_mx_code(largest(most));
        __m256 by = _mm256_set1_ps(fy_mx_inverse(code));
        scales[b] = code;
        __m256i low = _mm256_packus_epi32(squeeze(x[0], by), squeeze(x[1], by));
        __m256i high = _mm256_packus_epi32(squeeze(x[2], by), squeeze(x[3], by));
        __m256i bytes = _mm256_packus_epi16(low, high);
        fy_x86_put(data, _mm256_permutevar8x32_epi32(bytes, order), stream);
    }
}

/* bf16 has all its bits in the upper half of f32, so a block whose elements all come out normal or zero is
 * done in 16-bit lanes: dividing by the scale moves the exponent, and four bits of mantissa are dropped.
 * The rest (subnormal results, infinities, NaN, scales so small that subnormal sources count) is rare
 * and goes by way of f32. */
FY_AVX2 FY_INLINE __m256i narrow_normal(__m256i size, __m256i by) {
    __m256i moved = _mm256_subs_epu16(size, by); /* zero stays zero */
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(moved, 4), _mm256_set1_epi16(1));
    moved = _mm256_add_epi16(_mm256_add_epi16(moved, _mm256_set1_epi16(7)), odd);
    return _mm256_srli_epi16(moved, 4);
}

FY_AVX2 FY_INLINE bool quantise_normal(uint8_t *data, uint8_t *scale, const uint8_t *source,
                                       bool stream) {
    const __m256i magnitude = _mm256_set1_epi16(0x7fff);
    const __m256i one = _mm256_set1_epi16(1);
    __m256i x0 = _mm256_loadu_si256((const __m256i *)(const void *)source);
    __m256i x1 = _mm256_loadu_si256((const __m256i *)(const void *)(source + 32));
    __m256i size0 = _mm256_and_si256(x0, magnitude);
    __m256i size1 = _mm256_and_si256(x1, magnitude);
    __m128i amax = fy_x86_largest(_mm256_max_epu16(size0, size1));
    uint32_t largest = (uint32_t)_mm_cvtsi128_si32(amax) & 0xffff;
    __m256i by = _mm256_broadcastw_epi16(fy_x86_shift(amax));
    /* Less one, zero wraps to the top, so one comparison passes what is zero or large enough. */
    __m256i below = _mm256_min_epu16(_mm256_sub_epi16(size0, one), _mm256_sub_epi16(size1, one));
    __m256i enough = _mm256_add_epi16(by, _mm256_set1_epi16(127));
    __m256i good = _mm256_cmpeq_epi16(_mm256_max_epu16(below, enough), below);
    if (largest < FY_MX_EASY_LEAST || largest > FY_MX_EASY_MOST ||
        _mm256_movemask_epi8(good) != -1) {
        return false;
    }
    __m256i out = _mm256_packus_epi16(narrow_normal(size0, by), narrow_normal(size1, by));
    out = _mm256_min_epu8(out, _mm256_set1_epi8(0x7e));
    /* Signed saturation keeps the sign bit. */
    __m256i sign = _mm256_and_si256(_mm256_packs_epi16(x0, x1), _mm256_set1_epi8(-128));
    fy_x86_put(data, _mm256_permute4x64_epi64(_mm256_or_si256(out, sign), 0xd8), stream);
    *scale = (uint8_t)((largest >> 7) - 8);
    return true;
}

FY_AVX2 static void quantise_bf16(uint8_t *restrict data, uint8_t *restrict scales,
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

/* fy_drop(bits, 16) of eight, each in 32 bits. */
FY_AVX2 FY_INLINE __m256i drop_16(__m256i bits) {
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), all(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, all(0x7fff)), odd), 16);
}

/* Sixteen; packing works within lanes, so the halves are put back in order. */
FY_AVX2 FY_INLINE __m256i pack_bf16(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(drop_16(low), drop_16(high)), 0xd8);
}

FY_AVX2 FY_INLINE __m256 unordered(__m256i a, __m256i b) {
    return _mm256_cmp_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _CMP_UNORD_Q);
}

/* One line of the target. */
FY_AVX2 FY_INLINE void stream_bf16(uint8_t *target, const uint8_t *source) {
    __m256i x[4];
    for (size_t k = 0; k < 4; k++) {
        x[k] = _mm256_loadu_si256((const __m256i *)(const void *)(source + 32 * k));
    }
    __m256 nan = _mm256_or_ps(unordered(x[0], x[1]), unordered(x[2], x[3]));
    if (_mm256_movemask_ps(nan) != 0) {
        cast_f32_bf16(target, source, 32);
        return;
    }
    fy_x86_put(target, pack_bf16(x[0], x[1]), true);
    FY_IN_ORDER;
    fy_x86_put(target + 32, pack_bf16(x[2], x[3]), true);
    FY_IN_ORDER;
}

FY_DEFINE_CAST_STREAM_BF16(FY_AVX2)

/* ---- runs ---- */

FY_AVX2 FY_INLINE void put_line(uint8_t *target, const uint8_t *source, bool stream) {
    __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)source);
    __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(source + 32));
    fy_x86_put(target, low, stream);
    FY_IN_ORDER;
    fy_x86_put(target + 32, high, stream);
    FY_IN_ORDER;
}

FY_DEFINE_ROWS(FY_AVX2)

const fy_kernels_t fy_kernels_avx2 = {
    .name = "avx2",
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
