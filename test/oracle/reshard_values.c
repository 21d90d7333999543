/* reshard_values.c - floats taken apart and put together bit by bit; folds; MXFP8 blocks. */
#include "oracle/reshard_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- floats ---- */

typedef struct format {
    ferry_dtype_t dtype;
    int bits;
    int fraction; /* bits of it */
    int bias;
    bool infinite; /* has infinities; else the largest code is NaN */
} format_t;

static const format_t formats[] = {
    {FERRY_F64, 64, 52, 1023, true}, {FERRY_F32, 32, 23, 127, true}, {FERRY_F16, 16, 10, 15, true},
    {FERRY_BF16, 16, 7, 127, true},  {FERRY_F8E4M3, 8, 3, 7, false}, {FERRY_F8E5M2, 8, 2, 15, true},
};

static const format_t *format_of(ferry_dtype_t dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].dtype == dtype) {
            return &formats[i];
        }
    }
    return NULL;
}

bool rso_is_float(ferry_dtype_t dtype) {
    return format_of(dtype) != NULL;
}

typedef enum kind { FINITE, INFINITE, NOT_A_NUMBER } kind_t;

/* A finite number is whole * 2^exponent; a NaN has its fraction at the top of `whole`. */
typedef struct number {
    kind_t kind;
    bool negative;
    uint64_t whole;
    int exponent;
} number_t;

static uint64_t ones(int count) {
    return count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

static number_t take_apart(const format_t *f, uint64_t bits) {
    number_t n = {FINITE, (bits >> (f->bits - 1) & 1) != 0, bits & ones(f->fraction), 0};
    int width = f->bits - 1 - f->fraction;
    int field = (int)(bits >> f->fraction & ones(width));
    bool last = field == (int)ones(width);
    if (last && f->infinite) {
        n.kind = n.whole == 0 ? INFINITE : NOT_A_NUMBER;
        n.whole <<= 64 - f->fraction;
        return n;
    }
    if (last && n.whole == ones(f->fraction)) {
        n.kind = NOT_A_NUMBER;
        n.whole = 0;
        return n;
    }
    if (field == 0) {
        n.exponent = 1 - f->bias - f->fraction;
    } else {
        n.whole += UINT64_C(1) << f->fraction;
        n.exponent = field - f->bias - f->fraction;
    }
    return n;
}

/* The place of the highest one; `whole` is not 0. */
static int top_bit(uint64_t whole) {
    return 63 - __builtin_clzll(whole);
}

/* whole / 2^shift to the nearest, ties to even; a negative shift multiplies. */
static uint64_t shift_nearest(uint64_t whole, int shift) {
    if (shift <= 0) {
        return whole << -shift;
    }
    if (shift > 64) {
        return 0;
    }
    uint64_t kept = shift == 64 ? 0 : whole >> shift;
    uint64_t half = UINT64_C(1) << (shift - 1);
    uint64_t rest = whole & ones(shift);
    if (rest > half || (rest == half && kept % 2 == 1)) {
        kept++;
    }
    return kept;
}

static uint64_t put_together(const format_t *f, number_t n, bool saturate) {
    uint64_t sign = n.negative ? UINT64_C(1) << (f->bits - 1) : 0;
    uint64_t largest = ones(f->bits - 1);            /* all ones but the sign */
    uint64_t infinity = largest - ones(f->fraction); /* where there is one */
    uint64_t past = f->infinite ? infinity : saturate ? largest - 1 : largest;
    if (n.kind == NOT_A_NUMBER) {
        uint64_t quiet = UINT64_C(1) << (f->fraction - 1);
        return sign | (f->infinite ? infinity | quiet | n.whole >> (64 - f->fraction) : largest);
    }
    if (n.kind == INFINITE) {
        return sign | past;
    }
    if (n.whole == 0) {
        return sign;
    }
    int least = 1 - f->bias; /* exponent of the smallest normal number */
    int exponent = top_bit(n.whole) + n.exponent;
    exponent = exponent < least ? least : exponent;
    if (exponent > f->bias + 1) {
        return sign | past; /* far past; keeps the shift below small */
    }
    uint64_t steps = shift_nearest(n.whole, exponent - f->fraction - n.exponent);
    /* A carry out of the fraction moves into the exponent by itself. */
    uint64_t code = steps + ((uint64_t)(exponent - least) << f->fraction);
    uint64_t end = f->infinite ? infinity : largest;
    return sign | (code >= end ? past : code);
}

uint64_t rso_cast(ferry_dtype_t to, ferry_dtype_t from, uint64_t bits, bool saturate) {
    if (to == from) {
        return bits;
    }
    return put_together(format_of(to), take_apart(format_of(from), bits), saturate);
}

/* ---- folds ---- */

static double as_double(ferry_dtype_t dtype, uint64_t bits) {
    uint64_t wide = rso_cast(FERRY_F64, dtype, bits, false);
    double value = 0;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* A double that is the result of one step on two f32 rounds to what f32 arithmetic gives: 53 bits are
 * more than twice 24 and two. */
static double to_f32(double value) {
    uint64_t wide = 0;
    memcpy(&wide, &value, sizeof wide);
    return as_double(FERRY_F32, rso_cast(FERRY_F32, FERRY_F64, wide, false));
}

static double step(ferry_reduce_op_t op, double a, double b) {
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    switch (op) {
    case FERRY_REDUCE_SUM:
    case FERRY_REDUCE_AVG:
        return a + b;
    case FERRY_REDUCE_MAX:
        return a > b ? a : b;
    case FERRY_REDUCE_MIN:
        return a < b ? a : b;
    case FERRY_REDUCE_PRODUCT:
        return a * b;
    }
    abort();
}

static uint64_t fold_floats(ferry_dtype_t dtype, ferry_reduce_op_t op, const uint64_t *values,
                            uint32_t count) {
    const format_t *f = format_of(dtype);
    bool wide = dtype == FERRY_F64;
    double result = as_double(dtype, values[0]);
    for (uint32_t i = 1; i < count; i++) {
        result = step(op, result, as_double(dtype, values[i]));
        result = wide ? result : to_f32(result);
    }
    if (op == FERRY_REDUCE_AVG) {
        result = wide ? result / count : to_f32(result / count);
    }
    if (isnan(result)) {
        return put_together(f, (number_t){NOT_A_NUMBER, false, 0, 0}, false);
    }
    uint64_t bits = 0;
    memcpy(&bits, &result, sizeof bits);
    return rso_cast(dtype, FERRY_F64, bits, false);
}

static bool is_signed(ferry_dtype_t dtype) {
    return dtype == FERRY_I64 || dtype == FERRY_I32 || dtype == FERRY_I16 || dtype == FERRY_I8;
}

/* In 64 bits, of the dtype's value. */
static uint64_t widen(ferry_dtype_t dtype, uint64_t bits) {
    int width = (int)rso_width(dtype) * 8;
    bool negative = is_signed(dtype) && (bits >> (width - 1) & 1) != 0;
    return negative ? bits | ~ones(width) : bits;
}

static uint64_t fold_integers(ferry_dtype_t dtype, ferry_reduce_op_t op, const uint64_t *values,
                              uint32_t count) {
    uint64_t flip =
        is_signed(dtype) ? UINT64_C(1) << 63 : 0; /* so that signed compares as unsigned */
    uint64_t result = widen(dtype, values[0]);
    for (uint32_t i = 1; i < count; i++) {
        uint64_t value = widen(dtype, values[i]);
        bool greater = (value ^ flip) > (result ^ flip);
        if (op == FERRY_REDUCE_MAX || op == FERRY_REDUCE_MIN) {
            result = (op == FERRY_REDUCE_MAX) == greater ? value : result;
        } else {
            result = op == FERRY_REDUCE_PRODUCT ? result * value : result + value;
        }
    }
    if (op == FERRY_REDUCE_AVG) {
        bool negative = flip != 0 && result >> 63 == 1;
        uint64_t size = (negative ? -result : result) / count;
        result = negative ? -size : size;
    }
    return result & ones((int)rso_width(dtype) * 8);
}

uint64_t rso_fold(ferry_dtype_t dtype, ferry_reduce_op_t op, const uint64_t *values,
                  uint32_t count) {
    return rso_is_float(dtype) ? fold_floats(dtype, op, values, count)
                               : fold_integers(dtype, op, values, count);
}

/* ---- MXFP8 ---- */

void rso_quantise(ferry_dtype_t dtype, const uint64_t *values, uint8_t *data_p, uint8_t *scale_p) {
    const format_t *f = format_of(dtype);
    int scale = -127;
    for (int i = 0; i < RSO_MX_BLOCK; i++) {
        number_t n = take_apart(f, values[i]);
        int log2 = n.kind == INFINITE ? 128 : -1000;
        if (n.kind == FINITE && n.whole != 0) {
            log2 = top_bit(n.whole) + n.exponent;
        }
        scale = log2 - 8 > scale ? log2 - 8 : scale;
    }
    *scale_p = (uint8_t)(scale + 127);
    for (int i = 0; i < RSO_MX_BLOCK; i++) {
        number_t n = take_apart(f, values[i]);
        n.exponent -= scale;
        data_p[i] = (uint8_t)put_together(format_of(FERRY_F8E4M3), n, true);
    }
}

uint64_t rso_swizzled_at(uint64_t row, uint64_t block, uint64_t blocks) {
    uint64_t tiles_a_row = (blocks + 3) / 4;
    uint64_t tile = row / 128 * tiles_a_row + block / 4;
    uint64_t r = row % 128;
    return tile * 512 + r % 32 * 16 + r / 32 * 4 + block % 4;
}

uint64_t rso_swizzled_bytes(uint64_t rows, uint64_t blocks) {
    return (rows + 127) / 128 * ((blocks + 3) / 4) * 512;
}
