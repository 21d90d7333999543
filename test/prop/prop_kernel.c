/* prop_kernel.c - random views, copied, cast, reduced and quantised, on every instruction set, against the
 * oracle; every byte of the target's memory is compared, those between and around its elements too.
 *
 *   FERRY_CASES=n   how many (default 1,500; with FERRY_SOAK=1 30,000)
 *   FERRY_SEED=s    only this one
 *
 * A failure prints the seed and what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/soak.h"
#include "unit/kernel_oracle.h"

enum { CASES = 1500, SOAK_CASES = 30000, DIMS = 6, GUARD = 256, SOURCES = 4 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- drawing ---- */

/* A view and the memory around it. */
typedef struct tensor {
    ferry_view_t view;
    uint8_t *memory;
    size_t bytes;
} tensor_t;

typedef struct shape {
    uint32_t ndim;
    uint64_t shape[DIMS];
    uint64_t elements;
} shape_t;

static shape_t draw_shape(uint64_t *rng) {
    shape_t drawn = {.ndim = (uint32_t)oracle_below(rng, DIMS + 1), .elements = 1};
    uint64_t budget = oracle_below(rng, 8) == 0 ? 40000 : 1500;
    for (uint32_t i = 0; i < drawn.ndim; i++) {
        uint64_t left = budget / drawn.elements;
        uint64_t most = oracle_below(rng, 3) == 0 ? left : 12;
        most = most > left ? left : most;
        drawn.shape[i] = 1 + oracle_below(rng, most < 1 ? 1 : most);
        if (oracle_below(rng, 60) == 0) {
            drawn.shape[i] = 0;
        }
        drawn.elements *= drawn.shape[i] == 0 ? 1 : drawn.shape[i];
    }
    for (uint32_t i = 0; i < drawn.ndim; i++) {
        drawn.elements *= drawn.shape[i] == 0 ? 0 : 1;
    }
    return drawn;
}

/* Any order of dims, gaps, signs; zeros where the view is only read. */
static tensor_t draw_tensor(uint64_t *rng, const shape_t *shape, ferry_dtype_t dtype, bool read) {
    tensor_t tensor = {.view = {.dtype = dtype, .ndim = shape->ndim}};
    uint32_t order[DIMS];
    bool plain = oracle_below(rng, 3) == 0;
    bool tight = oracle_below(rng, 2) == 0;
    for (uint32_t i = 0; i < shape->ndim; i++) {
        uint32_t at = plain ? i : (uint32_t)oracle_below(rng, i + 1);
        order[i] = order[at];
        order[at] = i;
        tensor.view.shape[i] = shape->shape[i];
    }
    int64_t stride = oracle_below(rng, 6) == 0 ? 2 : 1;
    int64_t low = 0;
    int64_t high = 0;
    for (uint32_t i = shape->ndim; i-- > 0;) {
        uint32_t dim = order[i];
        int64_t extent = (int64_t)(shape->shape[dim] > 0 ? shape->shape[dim] : 1);
        int64_t signed_stride = !plain && oracle_below(rng, 5) == 0 ? -stride : stride;
        if (read && oracle_below(rng, 12) == 0) {
            tensor.view.strides[dim] = 0;
            continue;
        }
        tensor.view.strides[dim] = signed_stride;
        *(signed_stride < 0 ? &low : &high) += (extent - 1) * signed_stride;
        stride = stride * extent + (tight ? 0 : (int64_t)oracle_below(rng, 20));
    }
    size_t width = ferry_dtype_bits(dtype) / 8;
    size_t odd = oracle_below(rng, 2) == 0 ? 0 : oracle_below(rng, 64);
    tensor.bytes = (size_t)(high - low + 1) * width + 2 * GUARD + odd;
    tensor.memory = malloc(tensor.bytes);
    assert_non_null(tensor.memory);
    for (size_t i = 0; i < tensor.bytes; i++) {
        tensor.memory[i] = (uint8_t)oracle_draw(rng);
    }
    tensor.view.data = tensor.memory + GUARD + odd + (size_t)-low * width;
    return tensor;
}

static ferry_dtype_t draw_dtype(uint64_t *rng) {
    return (ferry_dtype_t)(1 + oracle_below(rng, 16));
}

static ferry_dtype_t draw_float(uint64_t *rng) {
    return oracle_formats[oracle_below(rng, ORACLE_FORMATS)].dtype;
}

/* ---- copies ---- */

static const char *check_copy(uint64_t *rng) {
    shape_t shape = draw_shape(rng);
    bool cast = oracle_below(rng, 2) == 0;
    ferry_dtype_t from = cast ? draw_float(rng) : draw_dtype(rng);
    ferry_dtype_t to = cast ? draw_float(rng) : from;
    tensor_t source = draw_tensor(rng, &shape, from, true);
    tensor_t target = draw_tensor(rng, &shape, to, false);
    uint32_t flags = (uint32_t)oracle_below(rng, 3) * 2;
    flags |= oracle_below(rng, 2) == 0 ? FERRY_COPY_SATURATE : 0;
    uint8_t *before = malloc(target.bytes);
    uint8_t *expected = malloc(target.bytes);
    assert_non_null(before);
    assert_non_null(expected);
    memcpy(before, target.memory, target.bytes);
    for (uint64_t i = 0; i < shape.elements; i++) {
        oracle_cast(oracle_at(&target.view, i), to, oracle_at(&source.view, i), from,
                    (flags & FERRY_COPY_SATURATE) != 0);
    }
    memcpy(expected, target.memory, target.bytes);
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        if (!fy_isa_runs((fy_isa_t)isa)) {
            continue;
        }
        fy_isa_force((fy_isa_t)isa);
        memcpy(target.memory, before, target.bytes);
        REQUIRE(ferry_view_copy(&target.view, &source.view, flags, NULL) == FERRY_OK);
        REQUIRE(memcmp(target.memory, expected, target.bytes) == 0);
        ferry_copy_batch_t *batch = NULL;
        REQUIRE(ferry_copy_batch_create(&target.view, &source.view, 1, flags, &batch, NULL) ==
                FERRY_OK);
        memcpy(target.memory, before, target.bytes);
        uint32_t nparts = 1 + (uint32_t)oracle_below(rng, 9);
        for (uint32_t part = nparts; part-- > 0;) {
            REQUIRE(ferry_copy_batch_run(batch, part, nparts, NULL) == FERRY_OK);
        }
        REQUIRE(memcmp(target.memory, expected, target.bytes) == 0);
        ferry_copy_batch_destroy(batch);
    }
    free(before);
    free(expected);
    free(source.memory);
    free(target.memory);
    return NULL;
}

/* Many copies in one batch: parts fall on and between them. */
static const char *check_batch(uint64_t *rng) {
    enum { MOST = 12 };
    tensor_t sources[MOST];
    tensor_t targets[MOST];
    ferry_view_t from[MOST];
    ferry_view_t to[MOST];
    uint8_t *expected[MOST];
    size_t count = oracle_below(rng, MOST + 1);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        shape_t shape = draw_shape(rng);
        ferry_dtype_t dtype = draw_dtype(rng);
        sources[i] = draw_tensor(rng, &shape, dtype, true);
        targets[i] = draw_tensor(rng, &shape, dtype, false);
        from[i] = sources[i].view;
        to[i] = targets[i].view;
        expected[i] = malloc(targets[i].bytes);
        assert_non_null(expected[i]);
        memcpy(expected[i], targets[i].memory, targets[i].bytes);
        ferry_view_t wanted = to[i];
        wanted.data = expected[i] + ((uint8_t *)to[i].data - targets[i].memory);
        for (uint64_t k = 0; k < shape.elements; k++) {
            oracle_cast(oracle_at(&wanted, k), dtype, oracle_at(&from[i], k), dtype, false);
        }
        bytes += shape.elements * (ferry_dtype_bits(dtype) / 8);
    }
    ferry_copy_batch_t *batch = NULL;
    uint32_t flags = (uint32_t)oracle_below(rng, 3) * 2;
    REQUIRE(ferry_copy_batch_create(to, from, count, flags, &batch, NULL) == FERRY_OK);
    REQUIRE(ferry_copy_batch_bytes(batch) == bytes);
    uint32_t nparts = 1 + (uint32_t)oracle_below(rng, 40);
    for (uint32_t part = 0; part < nparts; part++) {
        REQUIRE(ferry_copy_batch_run(batch, part, nparts, NULL) == FERRY_OK);
    }
    ferry_copy_batch_destroy(batch);
    for (size_t i = 0; i < count; i++) {
        REQUIRE(memcmp(targets[i].memory, expected[i], targets[i].bytes) == 0);
        free(expected[i]);
        free(sources[i].memory);
        free(targets[i].memory);
    }
    return NULL;
}

/* ---- reductions ---- */

static double fold_float(ferry_reduce_op_t op, double a, double b, bool single) {
    switch (op) {
    case FERRY_REDUCE_MAX:
        return a > b || a != a ? a : b;
    case FERRY_REDUCE_MIN:
        return a < b || a != a ? a : b;
    case FERRY_REDUCE_PRODUCT:
        return single ? (double)((float)a * (float)b) : a * b;
    default:
        return single ? (double)((float)a + (float)b) : a + b;
    }
}

static double load_float(const void *from, ferry_dtype_t dtype) {
    double value = 0;
    oracle_cast(&value, FERRY_F64, from, dtype, false);
    return value;
}

static void reduce_float(void *to, const tensor_t *sources, size_t n, ferry_reduce_op_t op,
                         uint64_t index) {
    ferry_dtype_t dtype = sources[0].view.dtype;
    bool single = dtype != FERRY_F64;
    double acc = load_float(oracle_at(&sources[0].view, index), dtype);
    for (size_t s = 1; s < n; s++) {
        acc = fold_float(op, acc, load_float(oracle_at(&sources[s].view, index), dtype), single);
    }
    if (op == FERRY_REDUCE_AVG) {
        acc = single ? (double)((float)acc / (float)n) : acc / (double)n;
    }
    if (acc != acc) {
        uint64_t bits = UINT64_C(0x7ff8000000000000);
        memcpy(&acc, &bits, sizeof acc);
    }
    oracle_cast(to, dtype, &acc, FERRY_F64, false);
}

static bool is_signed(ferry_dtype_t dtype) {
    return dtype >= FERRY_I64 && dtype <= FERRY_I8;
}

/* Bits of a number extended to 64. */
static uint64_t load_int(const void *from, ferry_dtype_t dtype) {
    int bits = (int)ferry_dtype_bits(dtype);
    uint64_t raw = oracle_load(from, bits);
    bool negative = is_signed(dtype) && (raw >> (bits - 1) & 1) != 0;
    return negative && bits < 64 ? raw | ~oracle_ones(bits) : raw;
}

static void reduce_int(void *to, const tensor_t *sources, size_t n, ferry_reduce_op_t op,
                       uint64_t index) {
    ferry_dtype_t dtype = sources[0].view.dtype;
    uint64_t acc = load_int(oracle_at(&sources[0].view, index), dtype);
    for (size_t s = 1; s < n; s++) {
        uint64_t next = load_int(oracle_at(&sources[s].view, index), dtype);
        bool less = is_signed(dtype) ? (int64_t)acc < (int64_t)next : acc < next;
        switch (op) {
        case FERRY_REDUCE_MAX:
            acc = less ? next : acc;
            break;
        case FERRY_REDUCE_MIN:
            acc = less ? acc : next;
            break;
        case FERRY_REDUCE_PRODUCT:
            acc *= next;
            break;
        default:
            acc += next;
            break;
        }
    }
    if (op == FERRY_REDUCE_AVG) {
        acc = is_signed(dtype) ? (uint64_t)((int64_t)acc / (int64_t)n) : acc / n;
    }
    memcpy(to, &acc, ferry_dtype_bits(dtype) / 8);
}

static const char *check_reduce(uint64_t *rng) {
    static const ferry_dtype_t dtypes[] = {FERRY_F64, FERRY_F32, FERRY_F16, FERRY_BF16,
                                           FERRY_I64, FERRY_I32, FERRY_I16, FERRY_I8,
                                           FERRY_U64, FERRY_U32, FERRY_U16, FERRY_U8};
    shape_t shape = draw_shape(rng);
    ferry_dtype_t dtype = dtypes[oracle_below(rng, sizeof dtypes / sizeof dtypes[0])];
    ferry_reduce_op_t op = (ferry_reduce_op_t)oracle_below(rng, FY_REDUCE_OPS);
    size_t n = 1 + oracle_below(rng, SOURCES);
    tensor_t sources[SOURCES];
    ferry_view_t views[SOURCES];
    for (size_t s = 0; s < n; s++) {
        sources[s] = draw_tensor(rng, &shape, dtype, true);
        views[s] = sources[s].view;
    }
    tensor_t target = draw_tensor(rng, &shape, dtype, false);
    uint8_t *before = malloc(target.bytes);
    uint8_t *expected = malloc(target.bytes);
    assert_non_null(before);
    assert_non_null(expected);
    memcpy(before, target.memory, target.bytes);
    bool in_place = oracle_below(rng, 3) == 0;
    size_t self = oracle_below(rng, n);
    if (in_place) {
        free(sources[self].memory);
        sources[self] = target;
        sources[self].memory = NULL;
        views[self] = target.view;
    }
    for (uint64_t i = 0; i < shape.elements; i++) {
        void (*reduce)(void *, const tensor_t *, size_t, ferry_reduce_op_t, uint64_t) =
            oracle_format(dtype) != NULL ? reduce_float : reduce_int;
        reduce(oracle_at(&target.view, i), sources, n, op, i);
    }
    memcpy(expected, target.memory, target.bytes);
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        if (!fy_isa_runs((fy_isa_t)isa)) {
            continue;
        }
        fy_isa_force((fy_isa_t)isa);
        memcpy(target.memory, before, target.bytes);
        if (in_place && n == 2 && self == 0 && op != FERRY_REDUCE_AVG) {
            REQUIRE(ferry_accumulate(&target.view, &views[1], op, NULL) == FERRY_OK);
        } else {
            REQUIRE(ferry_reduce(&target.view, views, n, op, NULL) == FERRY_OK);
        }
        REQUIRE(memcmp(target.memory, expected, target.bytes) == 0);
    }
    for (size_t s = 0; s < n; s++) {
        free(sources[s].memory);
    }
    free(before);
    free(expected);
    free(target.memory);
    return NULL;
}

/* ---- MXFP8 ---- */

/* Floats of all sizes, now and then none, infinite or subnormal ones. */
static void fill_floats(uint64_t *rng, const tensor_t *tensor, uint64_t elements) {
    int around = (int)oracle_below(rng, 300) - 150;
    for (uint64_t i = 0; i < elements; i++) {
        double value = ldexp((double)(int64_t)oracle_draw(rng), -63 + around - (int)(i % 11));
        switch (oracle_below(rng, 200)) {
        case 0:
            value = NAN;
            break;
        case 1:
            value = 0;
            break;
        default:
            break;
        }
        if (oracle_below(rng, 2000) == 0) {
            value = -INFINITY;
        }
        oracle_cast(oracle_at(&tensor->view, i), tensor->view.dtype, &value, FERRY_F64, false);
    }
}

static int block_exponent(const double *block) {
    double amax = 0;
    for (int i = 0; i < 32; i++) {
        double size = block[i] < 0 ? -block[i] : block[i];
        amax = size > amax ? size : amax; /* a NaN is not greater */
    }
    int exponent = 0;
    if (amax == 0) {
        return -127;
    }
    if (isinf(amax)) {
        return 120;
    }
    (void)frexp(amax, &exponent);
    exponent -= 9;
    return exponent < -127 ? -127 : exponent;
}

static uint64_t swizzle(uint64_t row, uint64_t block, uint64_t blocks) {
    uint64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

static const char *check_mx(uint64_t *rng) {
    static const ferry_dtype_t dtypes[] = {FERRY_F32, FERRY_F16, FERRY_BF16};
    ferry_dtype_t dtype = dtypes[oracle_below(rng, 3)];
    shape_t shape = {.ndim = 1 + (uint32_t)oracle_below(rng, 3), .elements = 1};
    for (uint32_t i = 0; i < shape.ndim; i++) {
        shape.shape[i] = 1 + oracle_below(rng, i + 1 == shape.ndim ? 7 : 14);
        if (oracle_below(rng, 20) == 0) {
            shape.shape[i] += i + 1 == shape.ndim ? 70 : 120;
        }
        shape.shape[i] *= i + 1 == shape.ndim ? 32 : 1;
        shape.elements *= shape.shape[i];
    }
    uint64_t columns = shape.shape[shape.ndim - 1];
    uint64_t blocks = columns / 32;
    uint64_t rows = shape.elements / columns;
    shape_t scale_shape = shape;
    scale_shape.shape[shape.ndim - 1] = blocks;
    tensor_t source = draw_tensor(rng, &shape, dtype, true);
    tensor_t data = draw_tensor(rng, &shape, FERRY_F8E4M3, false);
    tensor_t scales = draw_tensor(rng, &scale_shape, FERRY_E8M0, false);
    tensor_t back = draw_tensor(rng, &shape, dtypes[oracle_below(rng, 3)], false);
    fill_floats(rng, &source, shape.elements);
    uint64_t swizzled_bytes = 0;
    REQUIRE(ferry_mx_swizzled_bytes(rows, columns, &swizzled_bytes, NULL) == FERRY_OK);
    uint8_t *swizzled = malloc(swizzled_bytes);
    uint8_t *wanted_swizzled = calloc(1, swizzled_bytes);
    uint8_t *wanted = malloc(data.bytes);
    uint8_t *wanted_back = malloc(back.bytes);
    uint8_t *wanted_scales = malloc(scales.bytes);
    assert_true(swizzled != NULL && wanted_swizzled != NULL && wanted != NULL);
    assert_true(wanted_back != NULL && wanted_scales != NULL);
    uint8_t *before = malloc(data.bytes);
    uint8_t *before_back = malloc(back.bytes);
    assert_true(before != NULL && before_back != NULL);
    memcpy(before, data.memory, data.bytes);
    memcpy(before_back, back.memory, back.bytes);
    for (uint64_t b = 0; b < rows * blocks; b++) {
        double block[32];
        for (uint64_t i = 0; i < 32; i++) {
            block[i] = load_float(oracle_at(&source.view, b * 32 + i), dtype);
        }
        int exponent = block_exponent(block);
        *oracle_at(&scales.view, b) = (uint8_t)(exponent + 127);
        wanted_swizzled[swizzle(b / blocks, b % blocks, blocks)] = (uint8_t)(exponent + 127);
        for (uint64_t i = 0; i < 32; i++) {
            double scaled = ldexp(block[i], -exponent);
            uint8_t *at = oracle_at(&data.view, b * 32 + i);
            oracle_cast(at, FERRY_F8E4M3, &scaled, FERRY_F64, true);
            double value = ldexp(load_float(at, FERRY_F8E4M3), exponent);
            oracle_cast(oracle_at(&back.view, b * 32 + i), back.view.dtype, &value, FERRY_F64,
                        false);
        }
    }
    memcpy(wanted, data.memory, data.bytes);
    memcpy(wanted_back, back.memory, back.bytes);
    memcpy(wanted_scales, scales.memory, scales.bytes);
    ferry_view_t flat;
    REQUIRE(ferry_view_contiguous(swizzled, FERRY_E8M0, 1, &swizzled_bytes, &flat, NULL) ==
            FERRY_OK);
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        for (int layout = 0; layout < 2 && fy_isa_runs((fy_isa_t)isa); layout++) {
            fy_isa_force((fy_isa_t)isa);
            const ferry_view_t *codes = layout == 0 ? &scales.view : &flat;
            memcpy(data.memory, before, data.bytes);
            memcpy(back.memory, before_back, back.bytes);
            memset(swizzled, 0xee, swizzled_bytes);
            for (uint64_t b = 0; b < rows * blocks; b++) {
                *oracle_at(&scales.view, b) = 0xee;
            }
            uint32_t nparts = 1 + (uint32_t)oracle_below(rng, 4);
            for (uint32_t part = 0; part < nparts; part++) {
                REQUIRE(ferry_mx_quantise(&data.view, codes, &source.view,
                                          (ferry_mx_layout_t)layout, part, nparts,
                                          NULL) == FERRY_OK);
            }
            for (uint32_t part = 0; part < nparts; part++) {
                REQUIRE(ferry_mx_dequantise(&back.view, &data.view, codes,
                                            (ferry_mx_layout_t)layout, part, nparts,
                                            NULL) == FERRY_OK);
            }
            REQUIRE(memcmp(data.memory, wanted, data.bytes) == 0);
            REQUIRE(memcmp(back.memory, wanted_back, back.bytes) == 0);
            REQUIRE(layout == 1 || memcmp(scales.memory, wanted_scales, scales.bytes) == 0);
            REQUIRE(layout == 0 || memcmp(swizzled, wanted_swizzled, swizzled_bytes) == 0);
        }
    }
    free(swizzled);
    free(wanted_swizzled);
    free(wanted);
    free(wanted_back);
    free(wanted_scales);
    free(before);
    free(before_back);
    free(source.memory);
    free(data.memory);
    free(scales.memory);
    free(back.memory);
    return NULL;
}

/* ---- views ---- */

/* Small views with any strides at all: overlap and extent counted out. */
static const char *check_overlap(uint64_t *rng) {
    ferry_view_t view = {.dtype = FERRY_U8, .ndim = (uint32_t)oracle_below(rng, 5)};
    static uint8_t hits[8192];
    memset(hits, 0, sizeof hits);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < view.ndim; i++) {
        view.shape[i] = 1 + oracle_below(rng, 5);
        view.strides[i] = (int64_t)oracle_below(rng, 60) - 20;
        elements *= view.shape[i];
    }
    view.data = hits + sizeof hits / 2;
    bool repeated = false;
    int64_t low = 0;
    int64_t high = 0;
    for (uint64_t k = 0; k < elements; k++) {
        uint8_t *at = oracle_at(&view, k);
        repeated = repeated || *at != 0;
        *at = 1;
        int64_t offset = at - (uint8_t *)view.data;
        low = offset < low ? offset : low;
        high = offset + 1 > high ? offset + 1 : high;
    }
    bool overlaps = false;
    int64_t got_low = 0;
    int64_t got_high = 0;
    REQUIRE(ferry_view_overlaps(&view, &overlaps, NULL) == FERRY_OK);
    REQUIRE(overlaps == repeated);
    REQUIRE(ferry_view_extent(&view, &got_low, &got_high, NULL) == FERRY_OK);
    REQUIRE(got_low == low && got_high == high);
    return NULL;
}

/* ---- all cases ---- */

static const char *check_case(uint64_t seed) {
    uint64_t rng = seed * UINT64_C(0x2545f4914f6cdd1d);
    const char *wrong = check_copy(&rng);
    wrong = wrong != NULL ? wrong : check_overlap(&rng);
    if (wrong == NULL && seed % 2 == 0) {
        wrong = check_reduce(&rng);
    }
    if (wrong == NULL && seed % 4 == 0) {
        wrong = check_mx(&rng);
    }
    if (wrong == NULL && seed % 8 == 0) {
        wrong = check_batch(&rng);
    }
    return wrong;
}

static void test_random_views(void **state) {
    (void)state;
    const char *only = getenv("FERRY_SEED");
    const char *cases = getenv("FERRY_CASES");
    uint64_t first = only != NULL ? strtoull(only, NULL, 0) : 1;
    uint64_t count =
        cases != NULL ? strtoull(cases, NULL, 0) : (uint64_t)soak_count(CASES, SOAK_CASES);
    for (uint64_t seed = first; seed < first + (only != NULL ? 1 : count); seed++) {
        const char *wrong = check_case(seed);
        if (wrong != NULL) {
            fail_msg("FERRY_SEED=%llu: not so: %s", (unsigned long long)seed, wrong);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_views)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
