/* kernel_oracle.h - what kernels should give, computed the slow way: values as doubles, one at a time.
 *
 * Shares no code with src/kernel: a float is taken apart and put together with ldexp and frexp, which
 * the C library has without its mathematical part. */
#ifndef FERRY_TEST_KERNEL_ORACLE_H
#define FERRY_TEST_KERNEL_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <ferry/kernel.h>

#include "kernel/kernels.h"

typedef struct oracle_format {
    ferry_dtype_t dtype;
    int bits;
    int mantissa;
    int bias;
    bool has_inf;
} oracle_format_t;

static const oracle_format_t oracle_formats[] = {
    {FERRY_F64, 64, 52, 1023, true}, {FERRY_F32, 32, 23, 127, true}, {FERRY_F16, 16, 10, 15, true},
    {FERRY_BF16, 16, 7, 127, true},  {FERRY_F8E4M3, 8, 3, 7, false}, {FERRY_F8E5M2, 8, 2, 15, true},
};

enum { ORACLE_FORMATS = 6 };

static inline const oracle_format_t *oracle_format(ferry_dtype_t dtype) {
    for (int i = 0; i < ORACLE_FORMATS; i++) {
        if (oracle_formats[i].dtype == dtype) {
            return &oracle_formats[i];
        }
    }
    return NULL;
}

static inline uint64_t oracle_ones(int count) {
    return (UINT64_C(1) << count) - 1;
}

typedef struct oracle_number {
    bool negative;
    bool nan;
    uint64_t payload; /* of a NaN: mantissa at the top of 64 bits */
    double size;
} oracle_number_t;

static inline oracle_number_t oracle_decode(const oracle_format_t *format, uint64_t bits) {
    oracle_number_t number = {0};
    uint64_t mantissa = bits & oracle_ones(format->mantissa);
    int field = (int)(bits >> format->mantissa & oracle_ones(format->bits - 1 - format->mantissa));
    int top = (int)oracle_ones(format->bits - 1 - format->mantissa);
    number.negative = (bits >> (format->bits - 1) & 1) != 0;
    if (format->has_inf ? field == top : (field == top && mantissa == 7)) {
        number.nan = mantissa != 0;
        number.payload = format->has_inf ? mantissa << (64 - format->mantissa) : 0;
        number.size = INFINITY;
        return number;
    }
    double fraction = (double)mantissa + (field > 0 ? ldexp(1, format->mantissa) : 0);
    number.size = ldexp(fraction, (field > 0 ? field : 1) - format->bias - format->mantissa);
    return number;
}

/* To nearest even, of a number that is not negative: past 2^52 every double is whole. */
static inline double oracle_nearest(double number) {
    volatile double moved = number + 4503599627370496.0;
    return number < 4503599627370496.0 ? moved - 4503599627370496.0 : number;
}

static inline uint64_t oracle_encode(const oracle_format_t *format, oracle_number_t number,
                                     bool saturate) {
    uint64_t sign = (uint64_t)number.negative << (format->bits - 1);
    uint64_t top = oracle_ones(format->bits - 1) - oracle_ones(format->mantissa); /* infinity */
    if (!format->has_inf) {
        uint64_t over = saturate && !number.nan ? 0x7e : 0x7f;
        if (number.nan || number.size > 464) {
            return sign | over;
        }
    }
    if (number.nan) {
        uint64_t quiet = UINT64_C(1) << (format->mantissa - 1);
        return sign | top | quiet | number.payload >> (64 - format->mantissa);
    }
    if (number.size == 0) {
        return sign;
    }
    if (isinf(number.size)) {
        return sign | top;
    }
    int exponent = 0;
    (void)frexp(number.size, &exponent);
    exponent--;
    int least = 1 - format->bias;
    exponent = exponent < least ? least : exponent;
    /* Whole steps of the last bit, to nearest even; a carry moves into the exponent by itself. */
    double steps = oracle_nearest(ldexp(number.size, format->mantissa - exponent));
    uint64_t code = (uint64_t)steps + ((uint64_t)(exponent - least) << format->mantissa);
    return sign | (code > top && format->has_inf ? top : code);
}

static inline uint64_t oracle_load(const void *from, int bits) {
    uint64_t raw = 0;
    memcpy(&raw, from, (size_t)bits / 8);
    return raw;
}

/* One element from one dtype to another; equal dtypes keep their bits. */
static inline void oracle_cast(void *to, ferry_dtype_t to_dtype, const void *from,
                               ferry_dtype_t from_dtype, bool saturate) {
    size_t width = ferry_dtype_bits(to_dtype) / 8;
    if (to_dtype == from_dtype) {
        memcpy(to, from, width);
        return;
    }
    const oracle_format_t *source = oracle_format(from_dtype);
    const oracle_format_t *target = oracle_format(to_dtype);
    uint64_t bits =
        oracle_encode(target, oracle_decode(source, oracle_load(from, source->bits)), saturate);
    memcpy(to, &bits, width);
}

static inline uint64_t oracle_draw(uint64_t *rng) {
    *rng += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *rng;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t oracle_below(uint64_t *rng, uint64_t bound) {
    return oracle_draw(rng) % bound;
}

/* The address of an element; index counts the elements of the shape in row-major order. */
static inline uint8_t *oracle_at(const ferry_view_t *view, uint64_t index) {
    int64_t offset = 0;
    for (uint32_t i = view->ndim; i-- > 0;) {
        offset += (int64_t)(index % view->shape[i]) * view->strides[i];
        index /= view->shape[i];
    }
    return (uint8_t *)view->data + offset * (int64_t)(ferry_dtype_bits(view->dtype) / 8);
}

#endif
