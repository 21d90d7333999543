/* loops.h - loops over elements, written once and compiled once per instruction set.
 *
 * A table's file says FY_DEFINE_CASTS(target attribute) and so on; the bodies are inlined into functions
 * that carry the attribute, and the compiler makes vectors of them. Elementwise arithmetic has the same
 * result in a vector as alone, so all instruction sets agree to the bit. */
#ifndef FERRY_KERNEL_LOOPS_H
#define FERRY_KERNEL_LOOPS_H

#include "kernel/kernels.h"

/* Types and attributes as macro arguments cannot stand in parentheses. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ---- casts ---- */

#define FY_CAST(attribute, from, source_t, to, target_t)                                           \
    attribute static void cast_##from##_##to(void *restrict target, const void *restrict source,   \
                                             size_t count) {                                       \
        const source_t *restrict s = source;                                                       \
        target_t *restrict t = target;                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            t[i] = fy_to_##to(fy_from_##from(s[i]));                                               \
        }                                                                                          \
    }

/* f64 and f32 convert in hardware, rounding once; through "round to odd" they would not. */
#define FY_CAST_DIRECT(attribute, from, source_t, to, target_t, value_t)                           \
    attribute static void cast_##from##_##to(void *restrict target, const void *restrict source,   \
                                             size_t count) {                                       \
        const source_t *restrict s = source;                                                       \
        target_t *restrict t = target;                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            t[i] = (value_t)s[i];                                                                  \
        }                                                                                          \
    }

#define FY_CASTS_NARROW(attribute, from, source_t)                                                 \
    FY_CAST(attribute, from, source_t, f8e4m3, uint8_t)                                            \
    FY_CAST(attribute, from, source_t, f8e4m3_sat, uint8_t)                                        \
    FY_CAST(attribute, from, source_t, f8e5m2, uint8_t)

#define FY_DEFINE_CASTS(attribute)                                                                 \
    FY_CAST_DIRECT(attribute, f64, fy_f64, f32, fy_f32, float)                                     \
    FY_CAST(attribute, f64, fy_f64, f16, fy_u16)                                                   \
    FY_CAST(attribute, f64, fy_f64, bf16, fy_u16)                                                  \
    FY_CASTS_NARROW(attribute, f64, fy_f64)                                                        \
    FY_CAST_DIRECT(attribute, f32, fy_f32, f64, fy_f64, double)                                    \
    FY_CAST(attribute, f32, fy_u32, f16, fy_u16)                                                   \
    FY_CAST(attribute, f32, fy_u32, bf16, fy_u16)                                                  \
    FY_CASTS_NARROW(attribute, f32, fy_u32)                                                        \
    FY_CAST(attribute, f16, fy_u16, f64, fy_f64)                                                   \
    FY_CAST(attribute, f16, fy_u16, f32, fy_u32)                                                   \
    FY_CAST(attribute, f16, fy_u16, bf16, fy_u16)                                                  \
    FY_CASTS_NARROW(attribute, f16, fy_u16)                                                        \
    FY_CAST(attribute, bf16, fy_u16, f64, fy_f64)                                                  \
    FY_CAST(attribute, bf16, fy_u16, f32, fy_u32)                                                  \
    FY_CAST(attribute, bf16, fy_u16, f16, fy_u16)                                                  \
    FY_CASTS_NARROW(attribute, bf16, fy_u16)                                                       \
    FY_CAST(attribute, f8e4m3, uint8_t, f64, fy_f64)                                               \
    FY_CAST(attribute, f8e4m3, uint8_t, f32, fy_u32)                                               \
    FY_CAST(attribute, f8e4m3, uint8_t, f16, fy_u16)                                               \
    FY_CAST(attribute, f8e4m3, uint8_t, bf16, fy_u16)                                              \
    FY_CAST(attribute, f8e4m3, uint8_t, f8e5m2, uint8_t)                                           \
    FY_CAST(attribute, f8e5m2, uint8_t, f64, fy_f64)                                               \
    FY_CAST(attribute, f8e5m2, uint8_t, f32, fy_u32)                                               \
    FY_CAST(attribute, f8e5m2, uint8_t, f16, fy_u16)                                               \
    FY_CAST(attribute, f8e5m2, uint8_t, bf16, fy_u16)                                              \
    FY_CAST(attribute, f8e5m2, uint8_t, f8e4m3, uint8_t)                                           \
    FY_CAST(attribute, f8e5m2, uint8_t, f8e4m3_sat, uint8_t)

#define FY_CAST_TABLE                                                                              \
    {                                                                                              \
        {NULL,                                                                                     \
         cast_f64_f32,                                                                             \
         cast_f64_f16,                                                                             \
         cast_f64_bf16,                                                                            \
         cast_f64_f8e4m3,                                                                          \
         cast_f64_f8e5m2,                                                                          \
         cast_f64_f8e4m3_sat},                                                                     \
            {cast_f32_f64,       NULL,                                                             \
             cast_f32_f16,       cast_f32_bf16,                                                    \
             cast_f32_f8e4m3,    cast_f32_f8e5m2,                                                  \
             cast_f32_f8e4m3_sat},                                                                 \
            {cast_f16_f64,    cast_f16_f32,       NULL, cast_f16_bf16, cast_f16_f8e4m3,            \
             cast_f16_f8e5m2, cast_f16_f8e4m3_sat},                                                \
            {cast_bf16_f64,    cast_bf16_f32,    cast_bf16_f16,       NULL,                        \
             cast_bf16_f8e4m3, cast_bf16_f8e5m2, cast_bf16_f8e4m3_sat},                            \
            {cast_f8e4m3_f64,                                                                      \
             cast_f8e4m3_f32,                                                                      \
             cast_f8e4m3_f16,                                                                      \
             cast_f8e4m3_bf16,                                                                     \
             NULL,                                                                                 \
             cast_f8e4m3_f8e5m2,                                                                   \
             NULL},                                                                                \
        {                                                                                          \
            cast_f8e5m2_f64, cast_f8e5m2_f32, cast_f8e5m2_f16, cast_f8e5m2_bf16,                   \
                cast_f8e5m2_f8e4m3, NULL, cast_f8e5m2_f8e4m3_sat                                   \
        }                                                                                          \
    }

/* ---- reductions ---- */

#define FY_OP_SUM(a, b) ((a) + (b))
#define FY_OP_PRODUCT(a, b) ((a) * (b))
/* A NaN on either side stays; equal values give the later one. */
#define FY_OP_MAX(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define FY_OP_MIN(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))

/* compute_t: unsigned for integer sums and products, which wrap around. */
#define FY_FOLD(attribute, acc, value_t, op, OP, compute_t)                                        \
    attribute static void fold_##acc##_##op(void *restrict acc_p, const void *restrict source,     \
                                            size_t count) {                                        \
        value_t *restrict a = acc_p;                                                               \
        const value_t *restrict s = source;                                                        \
        for (size_t i = 0; i < count; i++) {                                                       \
            compute_t x = (compute_t)a[i];                                                         \
            compute_t y = (compute_t)s[i];                                                         \
            a[i] = (value_t)OP(x, y);                                                              \
        }                                                                                          \
    }

#define FY_FOLDS(attribute, acc, value_t, compare_t, compute_t)                                    \
    FY_FOLD(attribute, acc, value_t, sum, FY_OP_SUM, compute_t)                                    \
    FY_FOLD(attribute, acc, value_t, max, FY_OP_MAX, compare_t)                                    \
    FY_FOLD(attribute, acc, value_t, min, FY_OP_MIN, compare_t)                                    \
    FY_FOLD(attribute, acc, value_t, product, FY_OP_PRODUCT, compute_t)

#define FY_FINISH_FLOAT(attribute, acc, value_t, scalar_t)                                         \
    attribute static void finish_##acc(void *acc_p, size_t count, uint64_t divisor) {              \
        value_t *a = acc_p;                                                                        \
        scalar_t by = (scalar_t)divisor;                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            scalar_t x = divisor == 1 ? a[i] : a[i] / by;                                          \
            a[i] = x != x ? (scalar_t)__builtin_nan("") : x;                                       \
        }                                                                                          \
    }

#define FY_FINISH_INT(attribute, acc, value_t, scalar_t)                                           \
    attribute static void finish_##acc(void *acc_p, size_t count, uint64_t divisor) {              \
        value_t *a = acc_p;                                                                        \
        for (size_t i = 0; i < count && divisor != 1; i++) {                                       \
            a[i] = a[i] / (scalar_t)divisor;                                                       \
        }                                                                                          \
    }

#define FY_DEFINE_FOLDS(attribute)                                                                 \
    FY_FOLDS(attribute, f64, fy_f64, double, double)                                               \
    FY_FOLDS(attribute, f32, fy_f32, float, float)                                                 \
    FY_FOLDS(attribute, i64, fy_i64, int64_t, uint64_t)                                            \
    FY_FOLDS(attribute, u64, fy_u64, uint64_t, uint64_t)                                           \
    FY_FINISH_FLOAT(attribute, f64, fy_f64, double)                                                \
    FY_FINISH_FLOAT(attribute, f32, fy_f32, float)                                                 \
    FY_FINISH_INT(attribute, i64, fy_i64, int64_t)                                                 \
    FY_FINISH_INT(attribute, u64, fy_u64, uint64_t)

/* In the order of ferry_reduce_op_t; avg folds as sum does. */
#define FY_FOLD_ROW(acc)                                                                           \
    { fold_##acc##_sum, fold_##acc##_sum, fold_##acc##_max, fold_##acc##_min, fold_##acc##_product }
#define FY_FOLD_TABLE                                                                              \
    { FY_FOLD_ROW(f64), FY_FOLD_ROW(f32), FY_FOLD_ROW(i64), FY_FOLD_ROW(u64) }
#define FY_FINISH_TABLE                                                                            \
    { finish_f64, finish_f32, finish_i64, finish_u64 }

/* ---- MXFP8 ---- */

/* E8M0 code of the block's scale, from the bits of its largest magnitude: f32's exponent less 8, and no
 * less than 0, which subnormals and zero come to as well. */
FY_INLINE uint8_t fy_mx_code(uint32_t amax) {
    uint32_t exponent = amax >> 23;
    return (uint8_t)(exponent > 8 ? exponent - 8 : 0);
}

/* 1 / scale, exact: 2^(127 - code), the code being at most 247. */
FY_INLINE float fy_mx_inverse(uint8_t code) {
    return fy_f32_of((254 - (uint32_t)code) << 23);
}

/* 2^(code - 127); code 0 is subnormal in f32. */
FY_INLINE float fy_mx_scale(uint8_t code) {
    uint32_t bits = code == 0 ? UINT32_C(0x00400000) : (uint32_t)code << 23;
    return fy_f32_of(code == 0xff ? FY_F32_INF | FY_F32_QUIET : bits);
}

FY_INLINE void fy_quantise_loop(uint8_t *restrict data, uint8_t *restrict scales,
                                const void *restrict source, size_t blocks) {
    const fy_u32 *restrict s = source;
    for (size_t b = 0; b < blocks; b++, s += FERRY_MX_BLOCK, data += FERRY_MX_BLOCK) {
        uint32_t amax = 0;
        for (size_t i = 0; i < FERRY_MX_BLOCK; i++) {
            uint32_t size = s[i] & 0x7fffffff;
            size = size > FY_F32_INF ? 0 : size;
            amax = size > amax ? size : amax;
        }
        uint8_t code = fy_mx_code(amax);
        float inverse = fy_mx_inverse(code);
        scales[b] = code;
        for (size_t i = 0; i < FERRY_MX_BLOCK; i++) {
            data[i] = fy_to_f8e4m3_sat(fy_f32_bits(fy_f32_of(s[i]) * inverse));
        }
    }
}

FY_INLINE void fy_dequantise_loop(void *restrict target, const uint8_t *restrict data,
                                  const uint8_t *restrict scales, size_t blocks) {
    fy_u32 *restrict t = target;
    for (size_t b = 0; b < blocks; b++, t += FERRY_MX_BLOCK, data += FERRY_MX_BLOCK) {
        float scale = fy_mx_scale(scales[b]);
        for (size_t i = 0; i < FERRY_MX_BLOCK; i++) {
            uint32_t bits = fy_f32_bits(fy_f32_of(fy_from_f8e4m3(data[i])) * scale);
            /* A NaN has the sign of the data, whichever factor it came from. */
            uint32_t nan = FY_F32_INF | FY_F32_QUIET | (uint32_t)(data[i] & 0x80) << 24;
            t[i] = (bits & 0x7fffffff) > FY_F32_INF ? nan : bits;
        }
    }
}

/* Blocks of bf16 by way of f32, one at a time, with the `quantise` of the file. */
#define FY_QUANTISE_WIDENED(data, scale, source)                                                   \
    do {                                                                                           \
        _Alignas(FY_LINE) float wide[FERRY_MX_BLOCK];                                              \
        cast_bf16_f32(wide, source, FERRY_MX_BLOCK);                                               \
        quantise(data, scale, wide, 1, false);                                                     \
    } while (0)

#define FY_DEFINE_DEQUANTISE(attribute)                                                            \
    attribute static void dequantise(void *restrict target, const uint8_t *restrict data,          \
                                     const uint8_t *restrict scales, size_t blocks) {              \
        fy_dequantise_loop(target, data, scales, blocks);                                          \
    }

/* ---- runs of bytes ---- */

#define FY_ROWS_OF(bytes)                                                                          \
    case bytes:                                                                                    \
        for (size_t i = 0; i < count; i++, target += target_stride, source += source_stride) {     \
            memcpy(target, source, bytes);                                                         \
        }                                                                                          \
        return;

/* Short runs of a known length are a load and a store. */
FY_INLINE void fy_rows_loop(uint8_t *target, int64_t target_stride, const uint8_t *source,
                            int64_t source_stride, size_t run, size_t count) {
    switch (run) {
        FY_ROWS_OF(1)
        FY_ROWS_OF(2)
        FY_ROWS_OF(4)
        FY_ROWS_OF(8)
        FY_ROWS_OF(16)
        FY_ROWS_OF(32)
        FY_ROWS_OF(64)
    default:
        for (size_t i = 0; i < count; i++, target += target_stride, source += source_stride) {
            memcpy(target, source, run);
        }
    }
}

/* The part [i0, ni) x [j0, nj) of a transpose that whole tiles left over, or all of it. */
#define FY_TURN_LOOP(value_t)                                                                      \
    for (size_t j = j0; j < nj; j++) {                                                             \
        value_t *t = (value_t *)(void *)(target + j * target_pitch);                               \
        for (size_t i = i0; i < ni; i++) {                                                         \
            t[i] =                                                                                 \
                *(const value_t *)(const void *)(source + i * source_pitch + j * sizeof(value_t)); \
        }                                                                                          \
    }

/* NOLINTEND(bugprone-macro-parentheses) */

#endif
