/* floats.h - one element of one float type to another, by integer arithmetic.
 *
 * All narrow types meet in f32, which holds each of their values; f64 is brought there rounded to odd
 * (cut off, the last bit set when anything was lost), after which a second rounding to a type of at
 * most 22 bits gives what one rounding would have given. So there are n ways in and n ways out, not n*n.
 *
 * Everything is free of branches: the loops over these functions become vector code, and the same
 * text gives the same bits on every instruction set. The subnormals of narrow types are made by adding
 * a number whose last bit weighs what theirs does, so the rounding mode must be to nearest. */
#ifndef FERRY_KERNEL_FLOATS_H
#define FERRY_KERNEL_FLOATS_H

#include <stdint.h>
#include <string.h>

/* Elements wherever they lie: views need not be aligned to their dtype. */
typedef uint16_t fy_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t fy_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t fy_u64 __attribute__((aligned(1), may_alias));
typedef int16_t fy_i16 __attribute__((aligned(1), may_alias));
typedef int32_t fy_i32 __attribute__((aligned(1), may_alias));
typedef int64_t fy_i64 __attribute__((aligned(1), may_alias));
typedef float fy_f32 __attribute__((aligned(1), may_alias));
typedef double fy_f64 __attribute__((aligned(1), may_alias));

#define FY_INLINE static inline __attribute__((always_inline))

#define FY_F32_INF UINT32_C(0x7f800000)
#define FY_F32_QUIET UINT32_C(0x00400000)

FY_INLINE uint32_t fy_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

FY_INLINE float fy_f32_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Magnitudes are below 2^31; compared as signed numbers, which is what AVX2 can do. */
FY_INLINE int fy_less(uint32_t a, uint32_t b) {
    return (int32_t)a < (int32_t)b;
}

/* yes ? a : b. As a mask: gcc turns chains of ?: into shapes that it cannot make vectors of. */
FY_INLINE uint32_t fy_pick(int yes, uint32_t a, uint32_t b) {
    uint32_t mask = UINT32_C(0) - (uint32_t)yes;
    return (a & mask) | (b & ~mask);
}

/* ---- into f32, as bits ---- */

FY_INLINE uint32_t fy_from_f32(uint32_t bits) {
    return bits;
}

FY_INLINE uint32_t fy_from_bf16(uint16_t raw) {
    uint32_t bits = (uint32_t)raw << 16;
    return bits | fy_pick(fy_less(FY_F32_INF, bits & 0x7fffffff), FY_F32_QUIET, 0);
}

/* A type with the exponent bias `bias`, magnitude bits already shifted up to f32's places. */
FY_INLINE uint32_t fy_rebias(uint32_t magnitude, uint32_t bias) {
    uint32_t least = (128 - bias) << 23; /* the smallest normal number */
    uint32_t normal = magnitude + ((127 - bias) << 23);
    uint32_t tiny = fy_f32_bits(fy_f32_of(least | magnitude) - fy_f32_of(least));
    return fy_pick(fy_less(magnitude, UINT32_C(1) << 23), tiny, normal);
}

FY_INLINE uint32_t fy_from_ieee(uint32_t magnitude, uint32_t sign, uint32_t special) {
    uint32_t finite = fy_rebias(magnitude, 15);
    uint32_t other = FY_F32_INF | (magnitude & 0x7fffff);
    other |= magnitude > special ? FY_F32_QUIET : 0;
    return sign | fy_pick(!fy_less(magnitude, special), other, finite);
}

FY_INLINE uint32_t fy_from_f16(uint16_t raw) {
    return fy_from_ieee((uint32_t)(raw & 0x7fff) << 13, (uint32_t)(raw & 0x8000) << 16,
                        UINT32_C(0x7c00) << 13);
}

FY_INLINE uint32_t fy_from_f8e5m2(uint8_t raw) {
    return fy_from_ieee((uint32_t)(raw & 0x7f) << 21, (uint32_t)(raw & 0x80) << 24,
                        UINT32_C(0x7c) << 21);
}

FY_INLINE uint32_t fy_from_f8e4m3(uint8_t raw) {
    uint32_t finite = fy_rebias((uint32_t)(raw & 0x7f) << 20, 7);
    uint32_t nan = FY_F32_INF | FY_F32_QUIET;
    return (uint32_t)(raw & 0x80) << 24 | fy_pick((raw & 0x7f) == 0x7f, nan, finite);
}

/* Rounded to odd. */
FY_INLINE uint32_t fy_from_f64(double value) {
    float near = (float)value;
    double back = (double)near;
    double size = value < 0 ? -value : value;
    double back_size = back < 0 ? -back : back;
    uint32_t bits = fy_f32_bits(near);
    bits -= back_size > size ? 1 : 0;
    return bits | (uint32_t)((back_size > size) | (back_size < size));
}

/* ---- out of f32 ---- */

/* Drops `shift` bits, to nearest even. */
FY_INLINE uint32_t fy_drop(uint32_t bits, uint32_t shift) {
    return (bits + ((UINT32_C(1) << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift;
}

/* The magnitude in a type of exponent bias `bias` with 23 - shift bits of mantissa, as if it had no end
 * at the top. */
FY_INLINE uint32_t fy_squeeze(uint32_t magnitude, uint32_t bias, uint32_t shift) {
    uint32_t least = (128 - bias) << 23;
    uint32_t weigh = (128 - bias + shift) << 23; /* its last bit is their last bit */
    uint32_t normal = fy_drop(magnitude - ((127 - bias) << 23), shift);
    uint32_t tiny = fy_f32_bits(fy_f32_of(magnitude) + fy_f32_of(weigh)) - weigh;
    return fy_pick(fy_less(magnitude, least), tiny, normal);
}

FY_INLINE uint32_t fy_to_f32(uint32_t bits) {
    return bits | fy_pick(fy_less(FY_F32_INF, bits & 0x7fffffff), FY_F32_QUIET, 0);
}

FY_INLINE uint16_t fy_to_bf16(uint32_t bits) {
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)fy_pick(fy_less(FY_F32_INF, bits & 0x7fffffff), nan, fy_drop(bits, 16));
}

FY_INLINE uint16_t fy_to_f16(uint32_t bits) {
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t finite = fy_squeeze(magnitude, 15, 13);
    uint32_t inf = 0x7c00;
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    uint32_t out = fy_pick(fy_less(inf, finite), inf, finite);
    out = fy_pick(fy_less(FY_F32_INF, magnitude), nan, out);
    return (uint16_t)(out | (bits >> 16 & 0x8000));
}

FY_INLINE uint8_t fy_to_f8e5m2(uint32_t bits) {
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t finite = fy_squeeze(magnitude, 15, 21);
    uint32_t inf = 0x7c;
    uint32_t nan = 0x7e | (magnitude >> 21 & 3);
    uint32_t out = fy_pick(fy_less(inf, finite), inf, finite);
    out = fy_pick(fy_less(FY_F32_INF, magnitude), nan, out);
    return (uint8_t)(out | (bits >> 24 & 0x80));
}

/* `most` is what too large a value becomes: 0x7f (NaN) or 0x7e (448). */
FY_INLINE uint8_t fy_squeeze_f8e4m3(uint32_t bits, uint32_t most) {
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t finite = fy_squeeze(magnitude, 7, 20);
    uint32_t out = fy_pick(fy_less(most, finite), most, finite);
    out = fy_pick(fy_less(FY_F32_INF, magnitude), 0x7f, out);
    return (uint8_t)(out | (bits >> 24 & 0x80));
}

FY_INLINE uint8_t fy_to_f8e4m3(uint32_t bits) {
    return fy_squeeze_f8e4m3(bits, 0x7f);
}

FY_INLINE uint8_t fy_to_f8e4m3_sat(uint32_t bits) {
    return fy_squeeze_f8e4m3(bits, 0x7e);
}

FY_INLINE double fy_to_f64(uint32_t bits) {
    return (double)fy_f32_of(bits);
}

#endif
