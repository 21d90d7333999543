/* test_bench_cases.c - the yardsticks of bench/: regions cover every element once, every way of copying
 * copies right, and a mistake would be seen. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "bench/cases.h"

static const double small = 0.002; /* 4 of the small tensors */

/* Counts how often each element of a shard is named by the regions of a side. */
static void count_region(const bench_case_t *bench, const bench_region_t *region, bench_side_t side,
                         uint8_t **seen) {
    uint32_t rank = side == BENCH_SOURCE ? region->source_rank : region->target_rank;
    uint64_t row = side == BENCH_SOURCE ? region->source_row : region->target_row;
    uint64_t col = side == BENCH_SOURCE ? region->source_col : region->target_col;
    uint64_t rows, cols;
    assert_true(rank < bench->ranks);
    bench_shard_shape(bench, side, rank, &rows, &cols);
    assert_true(row + region->rows <= rows && col + region->cols <= cols);
    for (uint64_t i = 0; i < region->rows; i++) {
        for (uint64_t j = 0; j < region->cols; j++) {
            seen[rank][(row + i) * cols + col + j]++;
        }
    }
}

static void assert_covered_once(const bench_case_t *bench, bench_side_t side) {
    bench_region_t *regions;
    size_t count;
    uint64_t total = 0;
    uint8_t **seen = calloc(bench->ranks, sizeof *seen);
    assert_non_null(seen);
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        seen[rank] = calloc(bench_shard_bytes(bench, side, rank), 1);
        assert_non_null(seen[rank]);
    }
    assert_true(bench_case_regions(bench, &regions, &count));
    for (size_t i = 0; i < count; i++) {
        count_region(bench, &regions[i], side, seen);
    }
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        uint64_t rows, cols;
        bench_shard_shape(bench, side, rank, &rows, &cols);
        for (uint64_t i = 0; i < rows * cols; i++) {
            assert_int_equal(seen[rank][i], 1);
        }
        total += rows * cols;
        free(seen[rank]);
    }
    assert_int_equal(total, bench->rows * bench->cols);
    free(regions);
    free(seen);
}

static void regions_cover_every_element_once(void **state) {
    static const uint32_t ranks[] = {0, 2, 4, 8};
    (void)state;
    for (size_t i = 0; bench_case_name(i); i++) {
        for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
            bench_case_t bench;
            assert_true(bench_case_init(bench_case_name(i), ranks[n], small, &bench));
            assert_covered_once(&bench, BENCH_SOURCE);
            assert_covered_once(&bench, BENCH_TARGET);
        }
    }
}

/* Lengths that are no multiple of the blocks, and grids that differ between the sides. */
static void uneven_cuts_are_covered_once(void **state) {
    (void)state;
    bench_case_t bench = {.name = "uneven",
                          .ranks = 6,
                          .tensors = 1,
                          .element_bytes = 8,
                          .rows = 101,
                          .cols = 67,
                          .cut = {{2, 3, 7, 5}, {3, 2, 4, 9}}};
    assert_covered_once(&bench, BENCH_SOURCE);
    assert_covered_once(&bench, BENCH_TARGET);
}

static void sizes_are_those_of_the_names(void **state) {
    (void)state;
    bench_case_t bench;
    assert_true(bench_case_init("row-col-8", 0, 1, &bench));
    assert_int_equal(bench.ranks, 8);
    assert_int_equal(bench_case_bytes(&bench), 1u << 30);
    assert_true(bench_case_init("small-tensors", 0, 1, &bench));
    assert_int_equal(bench_case_bytes(&bench), 2000u * 256 * 1024);
    assert_int_equal(bench_shard_bytes(&bench, BENCH_TARGET, 3), 500u * 256 * 1024);
    assert_true(bench_case_init("block-cyclic", 0, 1, &bench));
    assert_int_equal(bench_case_bytes(&bench), 11520ull * 11520 * 8);
    assert_true(bench_case_init("small-tensors", 0, small, &bench));
    assert_int_equal(bench.tensors, 4);
    assert_false(bench_case_init("no-such-case", 0, 1, &bench));
    assert_false(bench_case_init("row-col-4", 3, 1, &bench));
    assert_false(bench_case_init("row-col-4", 0, 0, &bench));
    assert_false(bench_case_init("row-col-4", 0, 2, &bench));
    assert_false(bench_case_init("block-cyclic", 3, 1, &bench));
}

static void clear_targets(const bench_buffers_t *buffers) {
    for (uint32_t rank = 0; rank < buffers->ranks; rank++) {
        memset(buffers->base[BENCH_TARGET][rank], 0, buffers->bytes[BENCH_TARGET][rank]);
    }
}

static void every_method_copies_right_in_every_order(void **state) {
    (void)state;
    for (size_t i = 0; bench_case_name(i); i++) {
        bench_case_t bench;
        bench_buffers_t buffers;
        bench_copy_t *copies;
        size_t count;
        assert_true(bench_case_init(bench_case_name(i), 0, small, &bench));
        assert_true(bench_buffers_init(&bench, BENCH_MEMORY_SHARED, &buffers));
        assert_true(bench_case_copies(&bench, &buffers, &copies, &count));
        limit_t *limit = limit_create(copies, count);
        assert_non_null(limit);
        for (int v = 0; v < LIMIT_METHODS * LIMIT_ORDERS; v++) {
            limit_method_t method = (limit_method_t)(v / LIMIT_ORDERS);
            if (limit_has(method)) {
                clear_targets(&buffers);
                assert_true(limit_round_in(limit, method, (limit_order_t)(v % LIMIT_ORDERS)) > 0);
                assert_int_equal(bench_buffers_wrong(&bench, &buffers), 0);
            }
        }
        assert_true(limit_round(limit, LIMIT_BEST) > 0);
        clear_targets(&buffers);
        assert_true(limit_round(limit, LIMIT_BEST) > 0);
        assert_int_equal(bench_buffers_wrong(&bench, &buffers), 0);
        assert_true(strlen(limit_describe(limit, LIMIT_BEST)) > 0);
        limit_destroy(limit);
        free(copies);
        bench_buffers_fini(&buffers);
    }
}

/* Starts and lengths that no vector likes; bytes around the target rows must stay. */
static void odd_rows_are_copied_right(void **state) {
    enum { BYTES = 64 * 1024, ROWS = 7, STRIDE = 700 };
    (void)state;
    uint8_t *source = malloc(BYTES), *target = malloc(BYTES), *want = malloc(BYTES);
    assert_true(source && target && want);
    for (size_t i = 0; i < BYTES; i++) {
        source[i] = (uint8_t)(i * 31 + i / 256 + 1);
    }
    for (size_t bytes = 0; bytes <= 600; bytes += bytes < 80 ? 1 : 37) {
        bench_copy_t copy = {
            source + bytes % 61, target + bytes % 67, ROWS, bytes, STRIDE + 3, STRIDE};
        memset(want, 0xee, BYTES);
        for (size_t row = 0; row < ROWS; row++) {
            memcpy(want + bytes % 67 + row * STRIDE, source + bytes % 61 + row * (STRIDE + 3),
                   bytes);
        }
        limit_t *limit = limit_create(&copy, 1);
        assert_non_null(limit);
        for (int m = 0; m < LIMIT_METHODS; m++) {
            if (limit_has((limit_method_t)m)) {
                memset(target, 0xee, BYTES);
                limit_round_in(limit, (limit_method_t)m, LIMIT_TARGET_ROWS);
                assert_memory_equal(target, want, BYTES);
            }
        }
        limit_destroy(limit);
    }
    free(source);
    free(target);
    free(want);
}

static void a_wrong_element_is_counted(void **state) {
    (void)state;
    bench_case_t bench;
    bench_buffers_t buffers;
    assert_true(bench_case_init("block-cyclic", 0, small, &bench));
    assert_true(bench_buffers_init(&bench, BENCH_MEMORY_HEAP, &buffers));
    assert_int_equal(bench_buffers_wrong(&bench, &buffers), bench.rows * bench.cols);
    for (uint32_t rank = 0; rank < bench.ranks; rank++) {
        bench_shard_fill(&bench, BENCH_TARGET, rank, buffers.base[BENCH_TARGET][rank]);
    }
    assert_int_equal(bench_buffers_wrong(&bench, &buffers), 0);
    ((uint8_t *)buffers.base[BENCH_TARGET][3])[12345] ^= 1;
    assert_int_equal(bench_buffers_wrong(&bench, &buffers), 1);
    bench_buffers_fini(&buffers);
}

static void reads_across_processes_copy_right(void **state) {
    static const char *const names[] = {"row-col-4-heap", "small-tensors", "block-cyclic"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bench_case_t bench;
        bench_buffers_t buffers;
        bench_copy_t *copies;
        size_t count;
        assert_true(bench_case_init(names[i], 0, small, &bench));
        assert_true(bench_buffers_init(&bench, BENCH_MEMORY_HEAP, &buffers));
        assert_true(bench_case_copies(&bench, &buffers, &copies, &count));
        limit_readv_t *readv = limit_readv_create(copies, count);
        assert_non_null(readv);
        /* The child has its own pages: what happens to ours must not show. */
        ((uint8_t *)buffers.base[BENCH_SOURCE][0])[0] ^= 0xff;
        double seconds = limit_readv_round(readv);
        int error = errno;
        limit_readv_destroy(readv);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        if (seconds < 0) {
            assert_true(error == EPERM || error == ENOSYS);
        } else {
            assert_int_equal(bench_buffers_wrong(&bench, &buffers), 0);
        }
        free(copies);
        bench_buffers_fini(&buffers);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_cover_every_element_once),
        cmocka_unit_test(uneven_cuts_are_covered_once),
        cmocka_unit_test(sizes_are_those_of_the_names),
        cmocka_unit_test(every_method_copies_right_in_every_order),
        cmocka_unit_test(odd_rows_are_copied_right),
        cmocka_unit_test(a_wrong_element_is_counted),
        cmocka_unit_test(reads_across_processes_copy_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
