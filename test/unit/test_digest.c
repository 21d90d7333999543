/* test_digest.c - the moduli and the powers, known digests, what digests always notice, the doors. Random
 * cuts and views are in prop/prop_digest.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/digest_oracle.h"

#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})

#define assert_same(a, b)                                                                          \
    do {                                                                                           \
        assert_int_equal((a).low, (b).low);                                                        \
        assert_int_equal((a).high, (b).high);                                                      \
    } while (0)

static ferry_digest_t of_bytes(const void *bytes, size_t length) {
    ferry_digest_t digest = {0, 0};
    ferry_digest_add_bytes(&digest, bytes, length, 0);
    return digest;
}

static ferry_view_t make(void *data, ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape) {
    ferry_view_t view;
    assert_int_equal(ferry_view_contiguous(data, dtype, ndim, shape, &view, NULL), FERRY_OK);
    return view;
}

/* ---- the arithmetic ---- */

/* x has order 2^64 - 1 modulo both: the powers of x are all different, which is what swaps and pairs of
 * flipped bits are noticed by. It makes the moduli irreducible, too: modulo a product of two of degrees a
 * and b no order passes (2^a - 1)(2^b - 1), and modulo a square x^(2^64 - 1) cannot be 1. */
static void test_moduli(void **state) {
    (void)state;
    static const uint64_t factors[] = {3, 5, 17, 257, 641, 65537, 6700417};
    uint64_t product = 1;
    for (size_t i = 0; i < 7; i++) {
        product *= factors[i];
    }
    assert_int_equal(product, UINT64_MAX);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(digest_oracle_power(UINT64_MAX, m), 1);
        for (size_t i = 0; i < 7; i++) {
            assert_int_not_equal(digest_oracle_power(UINT64_MAX / factors[i], m), 1);
        }
    }
}

static void test_powers(void **state) {
    (void)state;
    FOR_EACH_WAY(way) {
        for (int i = 0; i < 64; i++) {
            fy_pair_t power = fy_digest_power(fy_digest_way(), UINT64_C(1) << i, false);
            fy_pair_t back = fy_digest_power(fy_digest_way(), UINT64_C(1) << i, true);
            for (int m = 0; m < 2; m++) {
                uint64_t want = digest_oracle_power(8, m);
                for (int square = 0; square < i; square++) {
                    want = digest_oracle_times(want, want, m);
                }
                assert_int_equal(power.of[m], want);
                assert_int_equal(digest_oracle_times(back.of[m], want, m), 1);
            }
        }
        fy_pair_t power = fy_digest_power(fy_digest_way(), 123456789, false);
        assert_int_equal(power.of[1], digest_oracle_power(UINT64_C(8) * 123456789, 1));
        assert_int_equal(fy_digest_power(fy_digest_way(), 0, true).of[0], 1);
    }
}

static void test_multiply(void **state) {
    (void)state;
    uint64_t rng = 7;
    for (int round = 0; round < 2000; round++) {
        fy_pair_t a = {{digest_draw(&rng), digest_draw(&rng)}};
        fy_pair_t b = {{digest_draw(&rng), digest_draw(&rng) >> round % 64}};
        FOR_EACH_WAY(way) {
            fy_pair_t product = fy_digest_way()->multiply(a, b);
            assert_int_equal(product.of[0], digest_oracle_times(a.of[0], b.of[0], 0));
            assert_int_equal(product.of[1], digest_oracle_times(a.of[1], b.of[1], 1));
        }
    }
}

/* ---- values ---- */

static void check_text(const char *want, const char *dtype, uint32_t ndim, const uint64_t *shape,
                       const void *bytes, size_t length) {
    FOR_EACH_WAY(way) {
        ferry_digest_t digest = of_bytes(bytes, length);
        ferry_digest_t sealed = ferry_digest_seal(&digest, dtype, ndim, shape);
        char text[FERRY_DIGEST_TEXT_MAX];
        ferry_digest_text(&sealed, text);
        assert_string_equal(text, want);
    }
}

/* From the program in docs/formats/digest.md. */
static void test_known(void **state) {
    (void)state;
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 7);
    }
    const uint8_t count[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const float one = 1;
    check_text("1f1e8b033c604f40c33d6b3737af966f", "u8", 1, SHAPE(0), NULL, 0);
    check_text("1623a0e74995e3f059df7fcbeb39f017", "f32", 0, NULL, &one, 4);
    check_text("987cad3554d8a465fb3234532b403a90", "bf16", 2, SHAPE(2, 3), count, 12);
    check_text("2439239f57513c7351c5ea14f0256e3e", "u8", 1, SHAPE(1000), bytes, 1000);
    check_text("cb25164202b78c9c6d263a366996acc5", "a name of sixteen bytes and more", 1, SHAPE(1),
               "\1", 1);
}

/* Every length up to several cells, right up to memory that must not be read, and at odd addresses. */
static void test_lengths(void **state) {
    (void)state;
    enum { MOST = 1100 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED && page > MOST);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    uint64_t rng = 3;
    for (size_t i = 0; i < page; i++) {
        pages[page + i] = (uint8_t)digest_draw(&rng);
    }
    for (size_t length = 0; length <= MOST; length++) {
        const uint8_t *ends[2] = {pages + page, pages + 2 * page - length};
        for (int end = 0; end < 2; end++) {
            ferry_digest_t want = digest_oracle_bytes(ends[end], length);
            FOR_EACH_WAY(way) {
                ferry_digest_t digest = of_bytes(ends[end], length);
                assert_same(digest, want);
            }
        }
    }
    munmap(pages, 3 * page);
}

/* Runs of every short length at a constant step, the last one before memory that must not be read. */
static void test_short_runs(void **state) {
    (void)state;
    enum { ROWS = 9, MOST = 300 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    static uint8_t whole[ROWS * (MOST + 5)];
    for (uint64_t run = 1; run <= MOST; run++) {
        uint64_t rng = run;
        uint8_t *data = pages + page - ROWS * run;
        memset(whole, 0, sizeof whole);
        for (size_t i = 0; i < ROWS * run; i++) {
            data[i] = (uint8_t)digest_draw(&rng);
            whole[i / run * (run + 5) + 2 + i % run] = data[i];
        }
        ferry_digest_t want = digest_oracle_bytes(whole, ROWS * (run + 5));
        FOR_EACH_WAY(way) {
            ferry_digest_t digest = {0, 0};
            ferry_view_t view = make(data, FERRY_U8, 2, SHAPE(ROWS, run));
            assert_int_equal(
                ferry_digest_add(&digest, &view, SHAPE(ROWS, run + 5), SHAPE(0, 2), NULL),
                FERRY_OK);
            assert_same(digest, want);
        }
    }
    munmap(pages, 2 * page);
}

/* Bytes far out: as if moved there bit by bit. */
static void test_far_places(void **state) {
    (void)state;
    uint64_t rng = 5;
    uint8_t bytes[40];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)digest_draw(&rng);
    }
    ferry_digest_t near = digest_oracle_bytes(bytes, sizeof bytes);
    for (int round = 0; round < 200; round++) {
        uint64_t at = digest_draw(&rng) >> (3 + round % 60); /* 8 * at fits */
        FOR_EACH_WAY(way) {
            ferry_digest_t digest = {0, 0};
            ferry_digest_add_bytes(&digest, bytes, sizeof bytes, at);
            assert_int_equal(digest.low,
                             digest_oracle_times(near.low, digest_oracle_power(8 * at, 0), 0));
            assert_int_equal(digest.high,
                             digest_oracle_times(near.high, digest_oracle_power(8 * at, 1), 1));
        }
    }
}

/* ---- what is noticed ---- */

static void test_flipped_bits(void **state) {
    (void)state;
    enum { SMALL = 96, LARGE = 1 << 20 };
    uint64_t rng = 11;
    uint8_t *bytes = malloc(LARGE);
    assert_non_null(bytes);
    for (size_t i = 0; i < LARGE; i++) {
        bytes[i] = (uint8_t)digest_draw(&rng);
    }
    ferry_digest_t before = of_bytes(bytes, SMALL);
    for (size_t one = 0; one < SMALL * 8; one++) {
        bytes[one / 8] ^= (uint8_t)(1 << one % 8);
        ferry_digest_t after = of_bytes(bytes, SMALL);
        assert_false(ferry_digest_equal(&before, &after));
        /* and either half alone notices it */
        assert_true(before.low != after.low && before.high != after.high);
        bytes[one / 8] ^= (uint8_t)(1 << one % 8);
    }
    before = of_bytes(bytes, LARGE);
    for (int round = 0; round < 200; round++) {
        uint64_t one = digest_below(&rng, LARGE * 8);
        bytes[one / 8] ^= (uint8_t)(1 << one % 8);
        ferry_digest_t after = of_bytes(bytes, LARGE);
        assert_false(ferry_digest_equal(&before, &after));
        bytes[one / 8] ^= (uint8_t)(1 << one % 8);
    }
    free(bytes);
}

static void test_swapped_elements(void **state) {
    (void)state;
    enum { COUNT = 64 };
    uint16_t values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = (uint16_t)(i * 257 + 3);
    }
    ferry_digest_t before = of_bytes(values, sizeof values);
    for (size_t a = 0; a < COUNT; a++) {
        for (size_t b = a + 1; b < COUNT; b++) {
            uint16_t kept = values[a];
            values[a] = values[b];
            values[b] = kept;
            ferry_digest_t after = of_bytes(values, sizeof values);
            assert_false(ferry_digest_equal(&before, &after));
            values[b] = values[a];
            values[a] = kept;
        }
    }
}

/* The same bytes as something else, a field of zeros of another length included. */
static void test_seal_tells_apart(void **state) {
    (void)state;
    static const struct {
        const char *dtype;
        uint32_t ndim;
        uint64_t shape[3];
    } kinds[] = {
        {"f32", 1, {6, 0, 0}},
        {"i32", 1, {6, 0, 0}},
        {"f32", 2, {2, 3, 0}},
        {"f32", 2, {3, 2, 0}},
        {"f32", 2, {6, 1, 0}},
        {"f32", 2, {1, 6, 0}},
        {"f32", 3, {1, 2, 3}},
        {"bf16", 1, {12, 0, 0}},
        {"u8", 1, {24, 0, 0}},
        {"f8e4m3", 1, {24, 0, 0}},
        {"f32", 0, {0, 0, 0}},
        {"f32", 1, {0, 0, 0}},
        {"f32", 1, {1, 0, 0}},
        {"f32", 2, {0, 0, 0}},
        {"", 1, {6, 0, 0}},
        {"0123456789abcdef", 1, {6, 0, 0}},
        {"0123456789abcde", 1, {6, 0, 0}},
    };
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    static const ferry_digest_t digests[2] = {{0, 0}, {1234, 5678}};
    for (int d = 0; d < 2; d++) {
        ferry_digest_t sealed[KINDS];
        for (size_t i = 0; i < KINDS; i++) {
            sealed[i] =
                ferry_digest_seal(&digests[d], kinds[i].dtype, kinds[i].ndim, kinds[i].shape);
            for (size_t j = 0; j < i; j++) {
                assert_false(ferry_digest_equal(&sealed[i], &sealed[j]));
            }
        }
    }
    ferry_digest_t none = ferry_digest_seal(&digests[0], NULL, 1, SHAPE(6));
    ferry_digest_t empty = ferry_digest_seal(&digests[0], "", 1, SHAPE(6));
    assert_same(none, empty);
}

/* ---- the doors ---- */

#define assert_fails(expected, call)                                                               \
    do {                                                                                           \
        ferry_error_t err = FERRY_ERROR_INIT;                                                      \
        assert_int_equal((call), (expected));                                                      \
        assert_int_equal(err.status, (expected));                                                  \
        assert_true(err.text[0] != '\0');                                                          \
        assert_true(digest.low == 1 && digest.high == 2);                                          \
    } while (0)

static void test_bad_input(void **state) {
    (void)state;
    float memory[6] = {0};
    ferry_digest_t digest = {1, 2};
    ferry_view_t view = make(memory, FERRY_F32, 2, SHAPE(2, 3));
    assert_fails(FERRY_INVALID, ferry_digest_add(NULL, &view, SHAPE(2, 3), SHAPE(0, 0), &err));
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, NULL, SHAPE(2, 3), SHAPE(0, 0), &err));
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, &view, NULL, SHAPE(0, 0), &err));
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, &view, SHAPE(2, 3), NULL, &err));
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, &view, SHAPE(2, 3), SHAPE(0, 1), &err));
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, &view, SHAPE(1, 9), SHAPE(0, 0), &err));
    assert_fails(FERRY_INVALID,
                 ferry_digest_add(&digest, &view, SHAPE(2, 3), SHAPE(UINT64_MAX, 0), &err));
    assert_fails(FERRY_OVERFLOW,
                 ferry_digest_add(&digest, &view, SHAPE(UINT64_C(1) << 32, UINT64_C(1) << 30),
                                  SHAPE(0, 0), &err));
    view.kind = FERRY_MEM_CUDA;
    assert_fails(FERRY_UNSUPPORTED,
                 ferry_digest_add(&digest, &view, SHAPE(2, 3), SHAPE(0, 0), &err));
    view.kind = FERRY_MEM_HOST;
    view.data = NULL;
    assert_fails(FERRY_INVALID, ferry_digest_add(&digest, &view, SHAPE(2, 3), SHAPE(0, 0), &err));
    /* nothing adds nothing, wherever */
    view.shape[0] = 0;
    assert_int_equal(ferry_digest_add(&digest, &view, SHAPE(2, 3), SHAPE(2, 0), NULL), FERRY_OK);
    ferry_digest_add_bytes(&digest, NULL, 0, 17);
    assert_true(digest.low == 1 && digest.high == 2);
}

/* The stride of a dim of extent 1 means nothing and may be anything. */
static void test_odd_strides(void **state) {
    (void)state;
    uint64_t value = 77;
    ferry_view_t view = make(&value, FERRY_U64, 2, SHAPE(1, 1));
    view.strides[0] = INT64_MAX;
    view.strides[1] = INT64_MIN;
    ferry_digest_t digest = {0, 0};
    assert_int_equal(ferry_digest_add(&digest, &view, SHAPE(1, 1), SHAPE(0, 0), NULL), FERRY_OK);
    assert_true(digest.low == 77 && digest.high == 77);
}

/* Transposes large enough for several tiles each way, whole and without their edges. */
static void test_transposes(void **state) {
    (void)state;
    enum { PLANES = 2, ROWS = 300, COLUMNS = 150, COUNT = PLANES * ROWS * COLUMNS };
    static const ferry_dtype_t dtypes[] = {FERRY_U8, FERRY_U16, FERRY_U32, FERRY_U64};
    static uint8_t memory[COUNT * 8];
    static uint8_t whole[COUNT * 8];
    for (int d = 0; d < 4; d++) {
        uint64_t rng = (uint64_t)d + 21;
        size_t width = (size_t)1 << d;
        uint64_t edge = (uint64_t)d % 2;
        memset(whole, 0, sizeof whole);
        for (size_t i = 0; i < COUNT * width; i++) {
            memory[i] = (uint8_t)digest_draw(&rng);
        }
        for (size_t n = 0; n < COUNT; n++) { /* memory is [plane][row][column] */
            size_t plane = n / (ROWS * COLUMNS);
            size_t row = n / COLUMNS % ROWS;
            size_t column = n % COLUMNS;
            if (row >= edge && column >= edge) {
                memcpy(whole + ((plane * COLUMNS + column) * ROWS + row) * width,
                       memory + n * width, width);
            }
        }
        ferry_view_t view = make(memory, dtypes[d], 3, SHAPE(PLANES, ROWS, COLUMNS));
        ferry_view_t part;
        ferry_view_t turned;
        assert_int_equal(ferry_view_slice(&view, SHAPE(0, edge, edge),
                                          SHAPE(PLANES, ROWS - edge, COLUMNS - edge), &part, NULL),
                         FERRY_OK);
        assert_int_equal(ferry_view_transpose(&part, (const uint32_t[]){0, 2, 1}, &turned, NULL),
                         FERRY_OK);
        ferry_digest_t want = digest_oracle_bytes(whole, COUNT * width);
        FOR_EACH_WAY(way) {
            ferry_digest_t digest = {0, 0};
            assert_int_equal(ferry_digest_add(&digest, &turned, SHAPE(PLANES, COLUMNS, ROWS),
                                              SHAPE(0, edge, edge), NULL),
                             FERRY_OK);
            assert_same(digest, want);
        }
    }
}

/* A view may show one element many times. */
static void test_broadcast(void **state) {
    (void)state;
    enum { ROWS = 40, COLUMNS = 30 };
    uint16_t values[COLUMNS];
    static uint16_t whole[ROWS * COLUMNS];
    static uint16_t turned[ROWS * COLUMNS];
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        values[i % COLUMNS] = (uint16_t)(i % COLUMNS * 771 + 1);
        whole[i] = values[i % COLUMNS];
        turned[i % COLUMNS * ROWS + i / COLUMNS] = whole[i];
    }
    ferry_view_t view = make(values, FERRY_U16, 2, SHAPE(ROWS, COLUMNS));
    view.strides[0] = 0;
    ferry_view_t other;
    assert_int_equal(ferry_view_transpose(&view, (const uint32_t[]){1, 0}, &other, NULL), FERRY_OK);
    FOR_EACH_WAY(way) {
        ferry_digest_t digest = {0, 0};
        assert_int_equal(ferry_digest_add(&digest, &view, view.shape, SHAPE(0, 0), NULL), FERRY_OK);
        assert_same(digest, digest_oracle_bytes((const uint8_t *)whole, sizeof whole));
        digest = (ferry_digest_t){0, 0};
        assert_int_equal(ferry_digest_add(&digest, &other, other.shape, SHAPE(0, 0), NULL),
                         FERRY_OK);
        assert_same(digest, digest_oracle_bytes((const uint8_t *)turned, sizeof turned));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moduli),           cmocka_unit_test(test_powers),
        cmocka_unit_test(test_multiply),         cmocka_unit_test(test_known),
        cmocka_unit_test(test_lengths),          cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_far_places),       cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_swapped_elements), cmocka_unit_test(test_seal_tells_apart),
        cmocka_unit_test(test_bad_input),        cmocka_unit_test(test_odd_strides),
        cmocka_unit_test(test_broadcast),        cmocka_unit_test(test_transposes),
    };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
