/* test_kernel.c - views, the doors of the kernels, batches, MXFP8 by hand. Random input is in
 * prop/prop_kernel.c, casts in test_kernel_cast.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/kernel_oracle.h"

static ferry_view_t make(void *data, ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape) {
    ferry_view_t view;
    assert_int_equal(ferry_view_contiguous(data, dtype, ndim, shape, &view, NULL), FERRY_OK);
    return view;
}

#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})

/* The status, and that the record has it too. */
#define assert_fails(expected, call)                                                               \
    do {                                                                                           \
        ferry_error_t err = FERRY_ERROR_INIT;                                                      \
        assert_int_equal((call), (expected));                                                      \
        assert_int_equal(err.status, (expected));                                                  \
        assert_true(err.text[0] != '\0');                                                          \
    } while (0)

/* ---- views ---- */

static void test_view_making(void **state) {
    (void)state;
    float memory[24];
    ferry_view_t view = make(memory, FERRY_F32, 3, SHAPE(2, 3, 4));
    assert_int_equal(view.strides[0], 12);
    assert_int_equal(view.strides[1], 4);
    assert_int_equal(view.strides[2], 1);
    assert_int_equal(view.kind, FERRY_MEM_HOST);
    ferry_view_t slice;
    assert_int_equal(ferry_view_slice(&view, SHAPE(1, 1, 2), SHAPE(1, 2, 2), &slice, NULL),
                     FERRY_OK);
    assert_ptr_equal(slice.data, memory + 18);
    assert_int_equal(slice.shape[1], 2);
    ferry_view_t turned;
    assert_int_equal(ferry_view_transpose(&view, (const uint32_t[]){2, 0, 1}, &turned, NULL),
                     FERRY_OK);
    assert_int_equal(turned.shape[0], 4);
    assert_int_equal(turned.strides[1], 12);
    int64_t low = 1;
    int64_t high = 1;
    turned.strides[0] = -1;
    turned.data = memory + 3;
    assert_int_equal(ferry_view_extent(&turned, &low, &high, NULL), FERRY_OK);
    assert_int_equal(low, -12);
    assert_int_equal(high, 84);
    /* At the end of a dim a slice may begin where nothing is. */
    assert_int_equal(ferry_view_slice(&view, SHAPE(2, 0, 0), SHAPE(0, 3, 4), &slice, NULL),
                     FERRY_OK);
    assert_int_equal(ferry_view_extent(&slice, &low, &high, NULL), FERRY_OK);
    assert_true(low == 0 && high == 0);
}

static void test_view_refusals(void **state) {
    (void)state;
    uint8_t memory[64];
    ferry_view_t view = make(memory, FERRY_U8, 2, SHAPE(8, 8));
    ferry_view_t out;
    int64_t low = 0;
    int64_t high = 0;
    bool overlaps = false;
    uint64_t count = 0;
    assert_fails(FERRY_INVALID, ferry_view_contiguous(memory, FERRY_U8, 2, NULL, &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_contiguous(memory, FERRY_U8, 0, NULL, NULL, &err));
    assert_fails(FERRY_INVALID,
                 ferry_view_contiguous(memory, (ferry_dtype_t)99, 0, NULL, &out, &err));
    const uint64_t many[17] = {0};
    assert_fails(FERRY_INVALID, ferry_view_contiguous(memory, FERRY_U8, 17, many, &out, &err));
    assert_fails(FERRY_OVERFLOW,
                 ferry_view_contiguous(memory, FERRY_U8, 2,
                                       SHAPE(UINT64_C(1) << 40, UINT64_C(1) << 40), &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_slice(&view, SHAPE(0, 1), SHAPE(8, 8), &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_slice(&view, SHAPE(9, 0), SHAPE(0, 8), &out, &err));
    assert_fails(FERRY_INVALID,
                 ferry_view_slice(&view, SHAPE(1, UINT64_MAX), SHAPE(1, 2), &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_slice(&view, NULL, SHAPE(1, 1), &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_slice(NULL, SHAPE(1), SHAPE(1), &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_transpose(&view, (const uint32_t[]){0, 0}, &out, &err));
    assert_fails(FERRY_INVALID, ferry_view_transpose(&view, (const uint32_t[]){0, 2}, &out, &err));
    ferry_view_t bad = view;
    bad.data = NULL;
    assert_fails(FERRY_INVALID, ferry_view_extent(&bad, &low, &high, &err));
    bad = view;
    bad.strides[0] = INT64_MAX / 4;
    assert_fails(FERRY_OVERFLOW, ferry_view_extent(&bad, &low, &high, &err));
    bad.strides[0] = -(int64_t)(uintptr_t)memory;
    assert_fails(FERRY_OVERFLOW, ferry_view_extent(&bad, &low, &high, &err));
    bad.strides[0] = INT64_MIN;
    bad.shape[0] = 2;
    assert_fails(FERRY_OVERFLOW, ferry_view_overlaps(&bad, &overlaps, &err));
    bad = view;
    bad.shape[0] = bad.shape[1] = UINT64_C(1) << 40;
    assert_fails(FERRY_OVERFLOW, ferry_view_elements(&bad, &count, &err));
    bad.shape[0] = UINT64_MAX;
    bad.shape[1] = 1;
    bad.strides[0] = 0;
    assert_fails(FERRY_OVERFLOW, ferry_view_elements(&bad, &count, &err));
    bad.ndim = 17;
    assert_fails(FERRY_INVALID, ferry_view_elements(&bad, &count, &err));
}

/* Strides made so that a collision is far to seek: found out with ten dims, given up with sixteen. */
static void test_view_overlap_gives_up(void **state) {
    (void)state;
    static uint8_t byte;
    ferry_view_t view = {.data = &byte, .dtype = FERRY_U8, .ndim = 10};
    for (uint32_t i = 0; i < 16; i++) {
        view.shape[i] = 2;
        view.strides[i] = (INT64_C(1) << 20) + (INT64_C(1) << i);
    }
    bool overlaps = true;
    assert_int_equal(ferry_view_overlaps(&view, &overlaps, NULL), FERRY_OK);
    assert_false(overlaps);
    view.ndim = 16;
    assert_fails(FERRY_UNSUPPORTED, ferry_view_overlaps(&view, &overlaps, &err));
    view.strides[3] = 0;
    assert_int_equal(ferry_view_overlaps(&view, &overlaps, NULL), FERRY_OK);
    assert_true(overlaps);
}

/* ---- instruction sets ---- */

static void test_isa(void **state) {
    (void)state;
    fy_isa_t isa = FY_ISA_COUNT;
    assert_int_equal(fy_isa_choose("plain", &isa, NULL), FERRY_OK);
    assert_int_equal(isa, FY_ISA_PLAIN);
    assert_int_equal(fy_isa_choose(NULL, &isa, NULL), FERRY_OK);
    assert_true(fy_isa_runs(isa));
    assert_fails(FERRY_INVALID, fy_isa_choose("sse9", &isa, &err));
    assert_fails(FERRY_INVALID, fy_isa_choose("", &isa, &err));
    assert_false(fy_isa_runs(FY_ISA_COUNT));
    if (fy_isa_runs(FY_ISA_AVX512)) {
        assert_int_equal(fy_isa_choose("avx512", &isa, NULL), FERRY_OK);
        assert_int_equal(isa, FY_ISA_AVX512);
    } else {
        assert_fails(FERRY_UNSUPPORTED, fy_isa_choose("avx512", &isa, &err));
    }
    const char *name = NULL;
    assert_int_equal(ferry_kernel_isa(&name, NULL), FERRY_OK);
    assert_non_null(name);
    fy_isa_force(FY_ISA_PLAIN);
    assert_int_equal(ferry_kernel_isa(&name, NULL), FERRY_OK);
    assert_string_equal(name, "plain");
    assert_fails(FERRY_INVALID, ferry_kernel_isa(NULL, &err));
}

/* ---- copies ---- */

static void test_copy_refusals(void **state) {
    (void)state;
    float from[16] = {0};
    float to[16] = {0};
    ferry_view_t source = make(from, FERRY_F32, 2, SHAPE(4, 4));
    ferry_view_t target = make(to, FERRY_F32, 2, SHAPE(4, 4));
    assert_fails(FERRY_INVALID, ferry_view_copy(NULL, &source, 0, &err));
    assert_fails(FERRY_INVALID, ferry_view_copy(&target, NULL, 0, &err));
    assert_fails(FERRY_INVALID, ferry_view_copy(&target, &source, 64, &err));
    assert_fails(FERRY_INVALID,
                 ferry_view_copy(&target, &source, FERRY_COPY_STREAM | FERRY_COPY_CACHED, &err));
    ferry_view_t other = make(from, FERRY_F32, 2, SHAPE(4, 3));
    assert_fails(FERRY_MISMATCH, ferry_view_copy(&target, &other, 0, &err));
    other = make(from, FERRY_F32, 1, SHAPE(4));
    assert_fails(FERRY_MISMATCH, ferry_view_copy(&target, &other, 0, &err));
    static const ferry_dtype_t strangers[] = {FERRY_I32, FERRY_U32, FERRY_BOOL, FERRY_E8M0};
    for (size_t i = 0; i < 4; i++) {
        other = source;
        other.dtype = strangers[i];
        assert_fails(FERRY_MISMATCH, ferry_view_copy(&target, &other, 0, &err));
        ferry_view_t narrow = target;
        narrow.dtype = strangers[i];
        assert_fails(FERRY_MISMATCH, ferry_view_copy(&narrow, &source, 0, &err));
    }
    other = target;
    other.strides[0] = 3;
    assert_fails(FERRY_INVALID, ferry_view_copy(&other, &source, 0, &err));
    other.strides[0] = 0;
    assert_fails(FERRY_INVALID, ferry_view_copy(&other, &source, 0, &err));
    other = source;
    other.kind = FERRY_MEM_CUDA;
    assert_fails(FERRY_UNSUPPORTED, ferry_view_copy(&target, &other, 0, &err));
    other = source;
    other.data = NULL;
    assert_fails(FERRY_INVALID, ferry_view_copy(&target, &other, 0, &err));
    other = source;
    other.strides[1] = INT64_MAX / 2;
    assert_fails(FERRY_OVERFLOW, ferry_view_copy(&target, &other, 0, &err));
}

/* Large enough for every path: cut runs, tiles, transposes and casts that are streamed. */
static void test_copy_large(void **state) {
    (void)state;
    enum { ROWS = 1537, COLUMNS = 2051 };
    uint16_t *from = malloc(sizeof *from * ROWS * COLUMNS);
    uint16_t *to = malloc(sizeof *to * ROWS * COLUMNS);
    uint32_t *wide = malloc(sizeof *wide * ROWS * COLUMNS);
    assert_true(from != NULL && to != NULL && wide != NULL);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        from[i] = (uint16_t)(i * 40503);
    }
    ferry_view_t source = make(from, FERRY_BF16, 2, SHAPE(ROWS, COLUMNS));
    ferry_view_t turned;
    assert_int_equal(ferry_view_transpose(&source, (const uint32_t[]){1, 0}, &turned, NULL),
                     FERRY_OK);
    ferry_view_t straight = make(to, FERRY_BF16, 2, SHAPE(ROWS, COLUMNS));
    ferry_view_t target = make(to, FERRY_BF16, 2, SHAPE(COLUMNS, ROWS));
    ferry_view_t cast = make(wide, FERRY_F32, 2, SHAPE(COLUMNS, ROWS));
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        if (!fy_isa_runs((fy_isa_t)isa)) {
            continue;
        }
        fy_isa_force((fy_isa_t)isa);
        memset(to, 0, sizeof *to * ROWS * COLUMNS);
        assert_int_equal(ferry_view_copy(&straight, &source, 0, NULL), FERRY_OK);
        assert_memory_equal(to, from, sizeof *to * ROWS * COLUMNS);
        assert_int_equal(ferry_view_copy(&target, &turned, 0, NULL), FERRY_OK);
        assert_int_equal(ferry_view_copy(&cast, &turned, FERRY_COPY_STREAM, NULL), FERRY_OK);
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t j = 0; j < COLUMNS; j++) {
                uint16_t expected = from[i * COLUMNS + j];
                assert_int_equal(to[j * ROWS + i], expected);
                uint32_t bits = (uint32_t)expected << 16;
                bits |= (bits & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0;
                assert_int_equal(wide[j * ROWS + i], bits);
            }
        }
    }
    free(from);
    free(to);
    free(wide);
}

/* ---- batches ---- */

static void test_batch(void **state) {
    (void)state;
    uint8_t from[300];
    uint8_t to[300];
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (uint8_t)i;
    }
    ferry_view_t sources[3] = {make(from, FERRY_U8, 1, SHAPE(100)),
                               make(from + 100, FERRY_U8, 1, SHAPE(0)),
                               make(from + 100, FERRY_U8, 1, SHAPE(200))};
    ferry_view_t targets[3] = {make(to + 200, FERRY_U8, 1, SHAPE(100)),
                               make(NULL, FERRY_U8, 1, SHAPE(0)),
                               make(to, FERRY_U8, 1, SHAPE(200))};
    ferry_copy_batch_t *batch = NULL;
    assert_int_equal(ferry_copy_batch_create(targets, sources, 3, 0, &batch, NULL), FERRY_OK);
    assert_int_equal(ferry_copy_batch_bytes(batch), 300);
    for (uint32_t nparts = 1; nparts < 20; nparts++) {
        memset(to, 0, sizeof to);
        for (uint32_t part = 0; part < nparts; part++) {
            assert_int_equal(ferry_copy_batch_run(batch, part, nparts, NULL), FERRY_OK);
        }
        assert_memory_equal(to, from + 100, 200);
        assert_memory_equal(to + 200, from, 100);
    }
    assert_fails(FERRY_INVALID, ferry_copy_batch_run(batch, 2, 2, &err));
    assert_fails(FERRY_INVALID, ferry_copy_batch_run(batch, 0, 0, &err));
    assert_fails(FERRY_INVALID, ferry_copy_batch_run(NULL, 0, 1, &err));
    ferry_copy_batch_destroy(batch);
    ferry_copy_batch_destroy(NULL);
    assert_int_equal(ferry_copy_batch_bytes(NULL), 0);

    batch = NULL;
    assert_int_equal(ferry_copy_batch_create(NULL, NULL, 0, 0, &batch, NULL), FERRY_OK);
    assert_int_equal(ferry_copy_batch_run(batch, 0, 1, NULL), FERRY_OK);
    ferry_copy_batch_destroy(batch);

    assert_fails(FERRY_INVALID, ferry_copy_batch_create(NULL, sources, 1, 0, &batch, &err));
    assert_fails(FERRY_INVALID, ferry_copy_batch_create(targets, sources, 3, 0, NULL, &err));
    ferry_error_t err = FERRY_ERROR_INIT;
    targets[2].shape[0] = 199;
    assert_int_equal(ferry_copy_batch_create(targets, sources, 3, 0, &batch, &err), FERRY_MISMATCH);
    assert_non_null(strstr(err.text, "copy 2"));
    assert_int_equal(ferry_copy_batch_create(targets, sources, 3, 0, &batch, NULL), FERRY_MISMATCH);
}

/* Parts are about the same number of bytes: two halves of one large copy meet in the middle. */
static void test_batch_is_even(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    uint8_t *from = malloc(BYTES);
    uint8_t *to = calloc(1, BYTES);
    assert_true(from != NULL && to != NULL);
    memset(from, 1, BYTES);
    ferry_view_t source = make(from, FERRY_U8, 1, SHAPE(BYTES));
    ferry_view_t target = make(to, FERRY_U8, 1, SHAPE(BYTES));
    ferry_copy_batch_t *batch = NULL;
    assert_int_equal(ferry_copy_batch_create(&target, &source, 1, 0, &batch, NULL), FERRY_OK);
    for (uint32_t part = 0; part < 4; part++) {
        memset(to, 0, BYTES);
        assert_int_equal(ferry_copy_batch_run(batch, part, 4, NULL), FERRY_OK);
        size_t written = 0;
        size_t first = BYTES;
        for (size_t i = 0; i < BYTES; i++) {
            written += to[i];
            first = to[i] != 0 && i < first ? i : first;
        }
        assert_in_range(written, BYTES / 4 - 65536, BYTES / 4 + 65536);
        assert_true(first == 0 || (uintptr_t)(to + first) % 64 == 0); /* lines are not shared */
    }
    ferry_copy_batch_destroy(batch);
    free(from);
    free(to);
}

/* ---- reductions ---- */

static void test_reduce(void **state) {
    (void)state;
    float a[2] = {1.0f, NAN};
    float b[2] = {0x1p-24f, 1.0f};
    float c[2] = {0x1p-24f, 2.0f};
    float out[2];
    ferry_view_t sources[3] = {make(a, FERRY_F32, 1, SHAPE(2)), make(b, FERRY_F32, 1, SHAPE(2)),
                               make(c, FERRY_F32, 1, SHAPE(2))};
    ferry_view_t target = make(out, FERRY_F32, 1, SHAPE(2));
    /* From the left each small one is lost; from the right they would add up to 2^-23. */
    assert_int_equal(ferry_reduce(&target, sources, 3, FERRY_REDUCE_SUM, NULL), FERRY_OK);
    assert_true(out[0] == 1.0f);
    uint32_t bits = 0;
    memcpy(&bits, &out[1], sizeof bits);
    assert_int_equal(bits, 0x7fc00000);
    assert_int_equal(ferry_accumulate(&target, &sources[2], FERRY_REDUCE_MAX, NULL), FERRY_OK);
    assert_true(out[0] == 1.0f && out[1] != out[1]);

    /* bf16 is rounded once, at the end: 256 + 1 + 1 = 258; step by step it stays at 256. */
    uint16_t big = 0x4380;
    uint16_t one = 0x3f80;
    uint16_t sum = 0;
    ferry_view_t halves[3] = {make(&big, FERRY_BF16, 0, NULL), make(&one, FERRY_BF16, 0, NULL),
                              make(&one, FERRY_BF16, 0, NULL)};
    ferry_view_t half = make(&sum, FERRY_BF16, 0, NULL);
    assert_int_equal(ferry_reduce(&half, halves, 3, FERRY_REDUCE_SUM, NULL), FERRY_OK);
    assert_int_equal(sum, 0x4381);
    sum = big;
    assert_int_equal(ferry_accumulate(&half, &halves[1], FERRY_REDUCE_SUM, NULL), FERRY_OK);
    assert_int_equal(ferry_accumulate(&half, &halves[2], FERRY_REDUCE_SUM, NULL), FERRY_OK);
    assert_int_equal(sum, 0x4380);

    int8_t x = 100;
    int8_t y = 101;
    int8_t mean = 0;
    ferry_view_t bytes[2] = {make(&x, FERRY_I8, 0, NULL), make(&y, FERRY_I8, 0, NULL)};
    ferry_view_t byte = make(&mean, FERRY_I8, 0, NULL);
    assert_int_equal(ferry_reduce(&byte, bytes, 2, FERRY_REDUCE_AVG, NULL), FERRY_OK);
    assert_int_equal(mean, 100);
}

static void test_reduce_refusals(void **state) {
    (void)state;
    float a[4] = {0};
    float out[4] = {0};
    ferry_view_t source = make(a, FERRY_F32, 1, SHAPE(4));
    ferry_view_t target = make(out, FERRY_F32, 1, SHAPE(4));
    assert_fails(FERRY_INVALID, ferry_reduce(NULL, &source, 1, FERRY_REDUCE_SUM, &err));
    assert_fails(FERRY_INVALID, ferry_reduce(&target, NULL, 1, FERRY_REDUCE_SUM, &err));
    assert_fails(FERRY_INVALID, ferry_reduce(&target, &source, 0, FERRY_REDUCE_SUM, &err));
    assert_fails(FERRY_INVALID, ferry_reduce(&target, &source, 1, (ferry_reduce_op_t)9, &err));
    assert_fails(FERRY_INVALID, ferry_accumulate(&target, &source, FERRY_REDUCE_AVG, &err));
    assert_fails(FERRY_INVALID, ferry_accumulate(NULL, &source, FERRY_REDUCE_SUM, &err));
    assert_fails(FERRY_INVALID, ferry_accumulate(&target, NULL, FERRY_REDUCE_SUM, &err));
    ferry_view_t other = source;
    other.dtype = FERRY_I32;
    assert_fails(FERRY_MISMATCH, ferry_reduce(&target, &other, 1, FERRY_REDUCE_SUM, &err));
    other = source;
    other.shape[0] = 3;
    assert_fails(FERRY_MISMATCH, ferry_reduce(&target, &other, 1, FERRY_REDUCE_SUM, &err));
    other = target;
    other.strides[0] = 0;
    assert_fails(FERRY_INVALID, ferry_reduce(&other, &source, 1, FERRY_REDUCE_SUM, &err));
    other = source;
    other.kind = FERRY_MEM_CUDA;
    assert_fails(FERRY_UNSUPPORTED, ferry_reduce(&target, &other, 1, FERRY_REDUCE_SUM, &err));
    static const ferry_dtype_t unsummed[] = {FERRY_F8E4M3, FERRY_F8E5M2, FERRY_E8M0, FERRY_BOOL};
    for (size_t i = 0; i < 4; i++) {
        ferry_view_t from = make(a, unsummed[i], 1, SHAPE(4));
        ferry_view_t to = make(out, unsummed[i], 1, SHAPE(4));
        assert_fails(FERRY_UNSUPPORTED, ferry_reduce(&to, &from, 1, FERRY_REDUCE_SUM, &err));
    }
}

/* ---- MXFP8 ---- */

static void test_mx_by_hand(void **state) {
    (void)state;
    float from[64] = {[0] = 1.0f, [1] = -0.75f, [2] = 500.0f, [3] = NAN, [32] = 0.0f};
    uint8_t data[64];
    uint8_t scales[2];
    float back[64];
    ferry_view_t source = make(from, FERRY_F32, 1, SHAPE(64));
    ferry_view_t target = make(data, FERRY_F8E4M3, 1, SHAPE(64));
    ferry_view_t codes = make(scales, FERRY_E8M0, 1, SHAPE(2));
    ferry_view_t wide = make(back, FERRY_F32, 1, SHAPE(64));
    assert_int_equal(ferry_mx_quantise(&target, &codes, &source, FERRY_MX_ROWS, 0, 1, NULL),
                     FERRY_OK);
    assert_int_equal(scales[0], 127); /* floor(log2(500)) = 8: scale 1 */
    assert_int_equal(scales[1], 0);
    assert_int_equal(data[0], 0x38);
    assert_int_equal(data[1], 0xb4);
    assert_int_equal(data[2], 0x7e); /* 500 saturates at 448 */
    assert_int_equal(data[3], 0x7f);
    assert_int_equal(data[32], 0);
    scales[1] = 0xff;
    assert_int_equal(ferry_mx_dequantise(&wide, &target, &codes, FERRY_MX_ROWS, 0, 1, NULL),
                     FERRY_OK);
    assert_true(back[0] == 1.0f && back[1] == -0.75f && back[2] == 448.0f);
    assert_true(back[3] != back[3] && back[32] != back[32]);
}

/* Rows of a slice quantised at once are the rows of the whole. */
static void test_mx_slices(void **state) {
    (void)state;
    enum { ROWS = 128, COLUMNS = 256 };
    static uint16_t from[ROWS * COLUMNS];
    static uint8_t whole[ROWS * COLUMNS];
    static uint8_t pieces[ROWS * COLUMNS];
    static uint8_t whole_scales[ROWS * COLUMNS / 32];
    static uint8_t piece_scales[ROWS * COLUMNS / 32];
    uint64_t rng = 3;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        from[i] = (uint16_t)((oracle_draw(&rng) & 0x83ff) | 0x3c00);
    }
    ferry_view_t source = make(from, FERRY_BF16, 2, SHAPE(ROWS, COLUMNS));
    ferry_view_t data = make(whole, FERRY_F8E4M3, 2, SHAPE(ROWS, COLUMNS));
    ferry_view_t scales = make(whole_scales, FERRY_E8M0, 2, SHAPE(ROWS, COLUMNS / 32));
    assert_int_equal(ferry_mx_quantise(&data, &scales, &source, FERRY_MX_ROWS, 0, 1, NULL),
                     FERRY_OK);
    data.data = pieces;
    scales.data = piece_scales;
    for (uint64_t r = 0; r < ROWS; r += 32) {
        for (uint64_t c = 0; c < COLUMNS; c += 64) {
            ferry_view_t part[3];
            const uint64_t *extent = SHAPE(32, 64);
            assert_int_equal(ferry_view_slice(&data, SHAPE(r, c), extent, &part[0], NULL), 0);
            assert_int_equal(
                ferry_view_slice(&scales, SHAPE(r, c / 32), SHAPE(32, 2), &part[1], NULL), 0);
            assert_int_equal(ferry_view_slice(&source, SHAPE(r, c), extent, &part[2], NULL), 0);
            assert_int_equal(
                ferry_mx_quantise(&part[0], &part[1], &part[2], FERRY_MX_ROWS, 0, 1, NULL), 0);
        }
    }
    assert_memory_equal(pieces, whole, sizeof whole);
    assert_memory_equal(piece_scales, whole_scales, sizeof whole_scales);
}

static void test_mx_refusals(void **state) {
    (void)state;
    static float from[4 * 64];
    static uint8_t bytes[4 * 64];
    static uint8_t codes[512];
    ferry_view_t source = make(from, FERRY_F32, 2, SHAPE(4, 64));
    ferry_view_t data = make(bytes, FERRY_F8E4M3, 2, SHAPE(4, 64));
    ferry_view_t rows = make(codes, FERRY_E8M0, 2, SHAPE(4, 2));
    ferry_view_t flat = make(codes, FERRY_E8M0, 1, SHAPE(512));
    uint64_t size = 0;
    assert_int_equal(ferry_mx_swizzled_bytes(129, 160, &size, NULL), FERRY_OK);
    assert_int_equal(size, 4 * 512);
    assert_fails(FERRY_INVALID, ferry_mx_swizzled_bytes(1, 33, &size, &err));
    assert_fails(FERRY_INVALID, ferry_mx_swizzled_bytes(1, 32, NULL, &err));
    assert_fails(FERRY_OVERFLOW,
                 ferry_mx_swizzled_bytes(UINT64_C(1) << 60, UINT64_C(1) << 60, &size, &err));
#define QUANTISE(a, b, c, layout, part, nparts)                                                    \
    ferry_mx_quantise(a, b, c, layout, part, nparts, &err)
    assert_fails(FERRY_INVALID, QUANTISE(NULL, &rows, &source, FERRY_MX_ROWS, 0, 1));
    assert_fails(FERRY_INVALID, QUANTISE(&data, NULL, &source, FERRY_MX_ROWS, 0, 1));
    assert_fails(FERRY_INVALID, QUANTISE(&data, &rows, NULL, FERRY_MX_ROWS, 0, 1));
    assert_fails(FERRY_INVALID, QUANTISE(&data, &rows, &source, FERRY_MX_ROWS, 1, 1));
    assert_fails(FERRY_INVALID, QUANTISE(&data, &rows, &source, (ferry_mx_layout_t)5, 0, 1));
    assert_fails(FERRY_MISMATCH, QUANTISE(&data, &flat, &source, FERRY_MX_ROWS, 0, 1));
    assert_fails(FERRY_MISMATCH, QUANTISE(&data, &rows, &source, FERRY_MX_SWIZZLED, 0, 1));
    ferry_view_t other = flat;
    other.shape[0] = 511;
    assert_fails(FERRY_MISMATCH, QUANTISE(&data, &other, &source, FERRY_MX_SWIZZLED, 0, 1));
    other = rows;
    other.dtype = FERRY_U8;
    assert_fails(FERRY_MISMATCH, QUANTISE(&data, &other, &source, FERRY_MX_ROWS, 0, 1));
    other = data;
    other.dtype = FERRY_F8E5M2;
    assert_fails(FERRY_MISMATCH, QUANTISE(&other, &rows, &source, FERRY_MX_ROWS, 0, 1));
    other = data;
    other.shape[0] = 3;
    assert_fails(FERRY_MISMATCH, QUANTISE(&other, &rows, &source, FERRY_MX_ROWS, 0, 1));
    other = data;
    other.strides[0] = 0;
    assert_fails(FERRY_INVALID, QUANTISE(&other, &rows, &source, FERRY_MX_ROWS, 0, 1));
    other = source;
    other.dtype = FERRY_I32;
    assert_fails(FERRY_MISMATCH, QUANTISE(&data, &rows, &other, FERRY_MX_ROWS, 0, 1));
    ferry_view_t odd_source = make(from, FERRY_F32, 1, SHAPE(33));
    ferry_view_t odd_data = make(bytes, FERRY_F8E4M3, 1, SHAPE(33));
    assert_fails(FERRY_INVALID, QUANTISE(&odd_data, &flat, &odd_source, FERRY_MX_ROWS, 0, 1));
    odd_source = make(from, FERRY_F32, 0, NULL);
    odd_data = make(bytes, FERRY_F8E4M3, 0, NULL);
    assert_fails(FERRY_INVALID, QUANTISE(&odd_data, &flat, &odd_source, FERRY_MX_ROWS, 0, 1));
#undef QUANTISE
    assert_fails(FERRY_INVALID, ferry_mx_dequantise(NULL, &data, &rows, FERRY_MX_ROWS, 0, 1, &err));
    assert_fails(FERRY_INVALID,
                 ferry_mx_dequantise(&source, NULL, &rows, FERRY_MX_ROWS, 0, 1, &err));
    assert_fails(FERRY_INVALID,
                 ferry_mx_dequantise(&source, &data, NULL, FERRY_MX_ROWS, 0, 1, &err));
    other = source;
    other.strides[1] = 0;
    assert_fails(FERRY_INVALID,
                 ferry_mx_dequantise(&other, &data, &rows, FERRY_MX_ROWS, 0, 1, &err));
    /* Nothing to do is fine. */
    ferry_view_t no_source = make(NULL, FERRY_F32, 2, SHAPE(4, 0));
    ferry_view_t no_data = make(NULL, FERRY_F8E4M3, 2, SHAPE(4, 0));
    ferry_view_t no_scales = make(NULL, FERRY_E8M0, 2, SHAPE(4, 0));
    assert_int_equal(ferry_mx_quantise(&no_data, &no_scales, &no_source, FERRY_MX_ROWS, 0, 1, NULL),
                     FERRY_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view_making),
        cmocka_unit_test(test_view_refusals),
        cmocka_unit_test(test_view_overlap_gives_up),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_copy_refusals),
        cmocka_unit_test(test_copy_large),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_batch_is_even),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_refusals),
        cmocka_unit_test(test_mx_by_hand),
        cmocka_unit_test(test_mx_slices),
        cmocka_unit_test(test_mx_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
