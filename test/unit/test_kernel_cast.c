/* test_kernel_cast.c - every cast, on every instruction set, against the oracle.
 *
 * All patterns of the 8- and 16-bit types; f32 and f64 at and next to every rounding tie of every
 * narrower type, and at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/kernel_oracle.h"

/* Casts `count` source elements and compares each with the oracle. */
static void check_cast(ferry_dtype_t from, ferry_dtype_t to, const void *source, size_t count,
                       uint32_t flags) {
    size_t from_width = ferry_dtype_bits(from) / 8;
    size_t to_width = ferry_dtype_bits(to) / 8;
    uint8_t *input = malloc(count * from_width);
    uint8_t *got = malloc(count * to_width);
    assert_non_null(input);
    assert_non_null(got);
    memcpy(input, source, count * from_width);
    uint64_t shape[1] = {count};
    ferry_view_t source_view;
    ferry_view_t target_view;
    assert_int_equal(ferry_view_contiguous(input, from, 1, shape, &source_view, NULL), FERRY_OK);
    assert_int_equal(ferry_view_contiguous(got, to, 1, shape, &target_view, NULL), FERRY_OK);
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        if (!fy_isa_runs((fy_isa_t)isa)) {
            continue;
        }
        fy_isa_force((fy_isa_t)isa);
        memset(got, 0xa5, count * to_width);
        assert_int_equal(ferry_view_copy(&target_view, &source_view, flags, NULL), FERRY_OK);
        for (size_t i = 0; i < count; i++) {
            uint64_t expected = 0;
            oracle_cast(&expected, to, input + i * from_width, from,
                        (flags & FERRY_COPY_SATURATE) != 0);
            uint64_t found = oracle_load(got + i * to_width, (int)to_width * 8);
            if (found != expected) {
                fail_msg(
                    "isa %d: %s 0x%llx -> %s: 0x%llx, expected 0x%llx", isa, ferry_dtype_name(from),
                    (unsigned long long)oracle_load(input + i * from_width, (int)from_width * 8),
                    ferry_dtype_name(to), (unsigned long long)found, (unsigned long long)expected);
            }
        }
    }
    free(got);
    free(input);
}

static void check_to_all(ferry_dtype_t from, const void *source, size_t count) {
    for (int t = 0; t < ORACLE_FORMATS; t++) {
        check_cast(from, oracle_formats[t].dtype, source, count, 0);
        check_cast(from, oracle_formats[t].dtype, source, count, FERRY_COPY_SATURATE);
    }
}

static void test_all_narrow_patterns(void **state) {
    (void)state;
    static uint16_t two[65536];
    static uint8_t one[256];
    for (size_t i = 0; i < 65536; i++) {
        two[i] = (uint16_t)i;
    }
    for (size_t i = 0; i < 256; i++) {
        one[i] = (uint8_t)i;
    }
    check_to_all(FERRY_F16, two, 65536);
    check_to_all(FERRY_BF16, two, 65536);
    check_to_all(FERRY_F8E4M3, one, 256);
    check_to_all(FERRY_F8E5M2, one, 256);
}

/* Values at the middle between neighbours of a narrow type, and a hair to either side. */
static void test_ties(void **state) {
    (void)state;
    static double wide[9 * 32768];
    static float single[9 * 32768];
    for (int f = 2; f < ORACLE_FORMATS; f++) {
        const oracle_format_t *format = &oracle_formats[f];
        uint64_t codes = UINT64_C(1) << (format->bits - 1);
        size_t count = 0;
        for (uint64_t code = 0; code + 1 < codes; code++) {
            double low = oracle_decode(format, code).size;
            double high = oracle_decode(format, code + 1).size;
            if (isinf(low)) {
                continue;
            }
            double middle = isinf(high) ? low * 1.0625 : (low + high) / 2;
            double sign = code % 2 == 0 ? 1 : -1;
            /* 2^-24: a neighbour in f32; 2^-40: rounds to the tie in f32, so that a second rounding
             * would show; 2^-52: a neighbour in f64 */
            double near[9] = {middle,
                              middle * (1 - ldexp(1, -52)),
                              middle * (1 + ldexp(1, -52)),
                              low,
                              low * (1 - ldexp(1, -52)),
                              low * (1 + ldexp(1, -52)),
                              middle * (1 - ldexp(1, -24)),
                              middle * (1 + ldexp(1, -23)),
                              middle * (1 + ldexp(1, -40))};
            for (int i = 0; i < 9; i++) {
                wide[count] = sign * near[i];
                single[count++] = (float)(sign * near[i]);
            }
        }
        check_to_all(FERRY_F64, wide, count);
        check_to_all(FERRY_F32, single, count);
    }
}

static void test_random_and_special(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static uint64_t wide[COUNT];
    static uint32_t single[COUNT];
    uint64_t rng = 7;
    for (size_t i = 0; i < COUNT; i++) {
        wide[i] = oracle_draw(&rng);
        single[i] = (uint32_t)oracle_draw(&rng);
        if (i % 2 == 0) { /* exponents that narrow types know */
            wide[i] = (wide[i] & UINT64_C(0x800fffffffffffff)) | (896 + oracle_below(&rng, 256))
                                                                     << 52;
            single[i] = (single[i] & 0x807fffff) | (uint32_t)(96 + oracle_below(&rng, 64)) << 23;
        }
    }
    static const uint64_t special[] = {
        0,
        UINT64_C(0x8000000000000000),
        UINT64_C(0x7ff0000000000000),
        UINT64_C(0xfff0000000000000),
        UINT64_C(0x7ff0000000000001),
        UINT64_C(0xfff8000000000000),
        UINT64_C(0x7ff7ffffffffffff),
        1,
        UINT64_C(0x47efffffffffffff),
        UINT64_C(0x47efffffe0000000),
        UINT64_C(0x47efffffefffffff),
        UINT64_C(0x47effffff0000000),
        UINT64_C(0x36a0000000000000),
        UINT64_C(0x3690000000000000),
        UINT64_C(0x3690000000000001),
    };
    memcpy(wide, special, sizeof special);
    static const uint32_t special_single[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                              0x7f800001, 0xffc00000, 0x7fbfffff, 1,
                                              0x7f7fffff, 0x43e80000, 0x43e80001, 0x43e00000};
    memcpy(single, special_single, sizeof special_single);
    check_to_all(FERRY_F64, wide, COUNT);
    check_to_all(FERRY_F32, single, COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_narrow_patterns),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_random_and_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
