/* test_sched.c - schedules: the cases of the reference, the limits, bad input, memory that runs out.
 *
 * The allocator is compiled into this program a second time, with a count of what is alive and a fault
 * point; the linker then leaves the library's own out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/sched.h>

static long alive;           /* allocations not freed yet */
static long fail_after = -1; /* so many more succeed, then none does; -1: all do */

static bool fails(void) {
    if (fail_after == 0) {
        return true;
    }
    fail_after -= fail_after > 0 ? 1 : 0;
    return false;
}

static void *test_malloc_at_most(size_t size) {
    void *memory = fails() ? NULL : malloc(size);
    alive += memory != NULL ? 1 : 0;
    return memory;
}

static void *test_calloc_at_most(size_t count, size_t size) {
    void *memory = fails() ? NULL : calloc(count, size);
    alive += memory != NULL ? 1 : 0;
    return memory;
}

static void *test_realloc_at_most(void *old, size_t size) {
    void *memory = fails() ? NULL : realloc(old, size);
    alive += memory != NULL && old == NULL ? 1 : 0;
    return memory;
}

static void test_free_counted(void *memory) {
    alive -= memory != NULL ? 1 : 0;
    free(memory);
}

#define malloc test_malloc_at_most
#define calloc test_calloc_at_most
#define realloc test_realloc_at_most
#define free test_free_counted
#include "../../src/base/memory.c" // NOLINT(bugprone-suspicious-include)
#undef malloc
#undef calloc
#undef realloc
#undef free

#include "sched/colour.h"
#include "sched/radix.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* ---- helpers ---- */

typedef struct view {
    ferry_schedule_t *schedule;
    const ferry_batch_t *batches;
    size_t nbatches;
    const ferry_segment_t *segments;
    size_t nsegments;
} view_t;

static view_t make(const ferry_item_t *items, size_t n, uint64_t slot_bytes,
                   uint32_t max_segments) {
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    params.slot_bytes = slot_bytes;
    params.max_segments = max_segments;
    ferry_error_t err = FERRY_ERROR_INIT;
    view_t view = {0};
    ferry_status_t status = ferry_schedule_create(items, n, &params, &view.schedule, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(status, FERRY_OK);
    view.batches = ferry_schedule_batches(view.schedule, &view.nbatches);
    view.segments = ferry_schedule_segments(view.schedule, &view.nsegments);
    return view;
}

static void assert_segment(const ferry_segment_t *segment, uint64_t item, uint64_t offset,
                           uint64_t bytes) {
    assert_int_equal(segment->item, item);
    assert_int_equal(segment->offset, offset);
    assert_int_equal(segment->bytes, bytes);
}

/* No rank below `nranks` sends or receives twice in a round; the rounds are what the accessor says. */
static void assert_rounds(const view_t *view, uint32_t nranks, uint32_t nrounds) {
    assert_int_equal(ferry_schedule_nrounds(view->schedule), nrounds);
    assert_int_equal(ferry_schedule_max_degree(view->schedule), nrounds);
    uint32_t *sent = calloc(nranks, sizeof *sent);
    uint32_t *received = calloc(nranks, sizeof *received);
    assert_non_null(sent);
    assert_non_null(received);
    const ferry_batch_t *next = view->batches;
    for (uint32_t round = 0; round < nrounds; round++) {
        size_t count = 0;
        const ferry_batch_t *batches = ferry_schedule_round(view->schedule, round, &count);
        assert_ptr_equal(batches, next);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(batches[i].round, round);
            assert_true(i == 0 || batches[i].source > batches[i - 1].source);
            assert_true(sent[batches[i].source] <= round);
            assert_true(received[batches[i].target] <= round);
            sent[batches[i].source] = round + 1;
            received[batches[i].target] = round + 1;
        }
        next += count;
    }
    assert_ptr_equal(next, view->batches + view->nbatches);
    free(sent);
    free(received);
}

static ferry_item_t *all_to_all(uint32_t nranks, size_t *count_p) {
    ferry_item_t *items = calloc((size_t)nranks * nranks, sizeof *items);
    assert_non_null(items);
    size_t n = 0;
    for (uint32_t source = 0; source < nranks; source++) {
        for (uint32_t target = 0; target < nranks; target++) {
            if (source != target) {
                items[n++] = (ferry_item_t){.bytes = 4096, .source = source, .target = target};
            }
        }
    }
    *count_p = n;
    return items;
}

/* ---- splitting and packing ---- */

static void large_items_are_split_in_offset_order(void **state) {
    (void)state;
    const ferry_item_t items[] = {
        {.id = 70, .bytes = 0, .source = 0, .target = 1},
        {.id = 71, .bytes = 500 * KIB, .source = 0, .target = 2},
        {.id = 72, .bytes = 256 * MIB, .source = 0, .target = 3},
        {.id = 73, .bytes = 640 * MIB, .source = 0, .target = 4},
    };
    view_t view = make(items, 4, 0, 0);
    assert_int_equal(view.nsegments, 5);
    assert_segment(&view.segments[0], 1, 0, 500 * KIB);
    assert_segment(&view.segments[1], 2, 0, 256 * MIB);
    assert_segment(&view.segments[2], 3, 0, 256 * MIB);
    assert_segment(&view.segments[3], 3, 256 * MIB, 256 * MIB);
    assert_segment(&view.segments[4], 3, 512 * MIB, 128 * MIB);
    assert_int_equal(view.nbatches, 5);
    assert_rounds(&view, 5, 5);
    ferry_schedule_destroy(view.schedule);
}

static void pieces_of_a_pair_are_packed(void **state) {
    (void)state;
    const ferry_item_t items[] = {
        {.bytes = 2000, .source = 6, .target = 2},
        {.bytes = 256 * MIB - 1000, .source = 6, .target = 2},
        {.bytes = 5000, .source = 6, .target = 2},
    };
    view_t view = make(items, 3, 0, 0);
    assert_int_equal(view.nbatches, 2);
    assert_rounds(&view, 7, 2);
    for (size_t i = 0; i < 2; i++) {
        const ferry_batch_t *batch = &view.batches[i];
        const ferry_segment_t *segments = view.segments + batch->first_segment;
        assert_int_equal(batch->source, 6);
        assert_int_equal(batch->target, 2);
        if (batch->nsegments == 1) {
            assert_int_equal(batch->bytes, 256 * MIB - 1000);
            assert_segment(&segments[0], 1, 0, 256 * MIB - 1000);
        } else {
            assert_int_equal(batch->nsegments, 2);
            assert_int_equal(batch->bytes, 7000);
            assert_segment(&segments[0], 0, 0, 2000);
            assert_segment(&segments[1], 2, 0, 5000);
        }
    }
    ferry_schedule_destroy(view.schedule);
}

/* What does not fill a slot, the rest of a split item included, shares one. */
static void rests_are_packed_with_small_items(void **state) {
    (void)state;
    const ferry_item_t items[] = {
        {.bytes = 25, .source = 0, .target = 1},
        {.bytes = 5, .source = 0, .target = 1},
        {.bytes = 1, .source = 0, .target = 1},
    };
    view_t view = make(items, 3, 10, 0);
    /* 10 | 10 | 5 + 5 | 1 */
    assert_int_equal(view.nbatches, 4);
    assert_int_equal(view.nsegments, 5);
    uint64_t full = 0;
    for (size_t i = 0; i < 4; i++) {
        full += view.batches[i].bytes == 10 ? 1 : 0;
    }
    assert_int_equal(full, 3);
    assert_segment(&view.segments[0], 0, 0, 10);
    assert_segment(&view.segments[1], 0, 10, 10);
    assert_segment(&view.segments[2], 0, 20, 5);
    assert_segment(&view.segments[3], 1, 0, 5);
    assert_segment(&view.segments[4], 2, 0, 1);
    ferry_schedule_destroy(view.schedule);
}

static void batches_hold_at_most_max_segments(void **state) {
    (void)state;
    enum { N = 25001 };
    ferry_item_t *items = calloc(N, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < N; i++) {
        items[i] = (ferry_item_t){.bytes = 16, .source = 1, .target = 0};
    }
    view_t view = make(items, N, 0, 0);
    assert_int_equal(view.nbatches, 3);
    uint64_t tens = 0;
    uint64_t rest = 0;
    for (size_t i = 0; i < 3; i++) {
        tens += view.batches[i].nsegments == FERRY_BATCH_SEGMENTS_DEFAULT ? 1 : 0;
        rest += view.batches[i].nsegments == 5001 ? 1 : 0;
    }
    assert_int_equal(tens, 2);
    assert_int_equal(rest, 1);
    for (size_t i = 0; i < N; i++) {
        assert_segment(&view.segments[i], i, 0, 16);
    }
    ferry_schedule_destroy(view.schedule);
    view = make(items, N, 0, 1);
    assert_int_equal(view.nbatches, N);
    assert_rounds(&view, 2, N);
    ferry_schedule_destroy(view.schedule);
    free(items);
}

static void what_does_not_move_is_left_out(void **state) {
    (void)state;
    const ferry_item_t items[] = {
        {.bytes = 100, .source = 3, .target = 3},
        {.bytes = 0, .source = 3, .target = 4},
    };
    for (size_t n = 0; n <= 2; n++) {
        view_t view = make(n > 0 ? items : NULL, n, 0, 0);
        assert_int_equal(view.nbatches, 0);
        assert_int_equal(view.nsegments, 0);
        assert_int_equal(ferry_schedule_nrounds(view.schedule), 0);
        assert_int_equal(ferry_schedule_max_degree(view.schedule), 0);
        ferry_schedule_destroy(view.schedule);
    }
    ferry_schedule_destroy(NULL);
}

static void parameters_may_be_left_out(void **state) {
    (void)state;
    const ferry_item_t item = {.bytes = 256 * MIB + 1, .source = 0, .target = 1};
    ferry_schedule_t *schedule = NULL;
    assert_int_equal(ferry_schedule_create(&item, 1, NULL, &schedule, NULL), FERRY_OK);
    size_t n = 0;
    const ferry_segment_t *segments = ferry_schedule_segments(schedule, &n);
    assert_int_equal(n, 2);
    assert_segment(&segments[1], 0, 256 * MIB, 1);
    ferry_schedule_destroy(schedule);
}

/* ---- rounds ---- */

static void all_to_all_takes_one_round_less_than_ranks(void **state) {
    (void)state;
    /* 2 to 128 are coloured by matchings alone, 300 and 513 are halved first. */
    const uint32_t sizes[] = {2, 3, 96, 128, 300, 513};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = 0;
        ferry_item_t *items = all_to_all(sizes[i], &n);
        view_t view = make(items, n, 0, 0);
        assert_int_equal(view.nbatches, n);
        assert_rounds(&view, sizes[i], sizes[i] - 1);
        ferry_schedule_destroy(view.schedule);
        free(items);
    }
}

static void links_are_full_duplex(void **state) {
    (void)state;
    const ferry_item_t ring[] = {
        {.bytes = 1, .source = 0, .target = 1},
        {.bytes = 1, .source = 1, .target = 2},
        {.bytes = 1, .source = 2, .target = 0},
    };
    view_t view = make(ring, 3, 0, 0);
    assert_rounds(&view, 3, 1);
    ferry_schedule_destroy(view.schedule);
}

/* A hub of many batches, parallel batches, and light ranks that are folded together. */
static void skewed_loads_reach_the_bound(void **state) {
    (void)state;
    enum { LIGHT = 3000, HEAVY = 500 };
    ferry_item_t *items = calloc(2 * LIGHT + HEAVY, sizeof *items);
    assert_non_null(items);
    size_t n = 0;
    for (uint32_t i = 1; i <= LIGHT; i++) {
        items[n++] = (ferry_item_t){.bytes = 7, .source = 0, .target = i};
        items[n++] = (ferry_item_t){.bytes = 7, .source = i, .target = i % LIGHT + 1};
    }
    items[n++] = (ferry_item_t){.bytes = (uint64_t)7 * HEAVY, .source = 5, .target = 0};
    view_t view = make(items, n, 7, 0);
    assert_int_equal(view.nbatches, 2 * LIGHT + HEAVY);
    assert_rounds(&view, LIGHT + 1, LIGHT);
    ferry_schedule_destroy(view.schedule);
    free(items);
}

static void ranks_may_be_any_numbers(void **state) {
    (void)state;
    const ferry_item_t items[] = {
        {.bytes = 1, .source = UINT32_MAX - 1, .target = 0},
        {.bytes = 1, .source = 0, .target = UINT32_MAX - 1},
        {.bytes = 1, .source = 1U << 31, .target = UINT32_MAX - 1},
    };
    view_t view = make(items, 3, 0, 0);
    assert_int_equal(view.nbatches, 3);
    assert_int_equal(ferry_schedule_nrounds(view.schedule), 2);
    for (size_t i = 0; i < 3; i++) {
        const ferry_item_t *item = &items[view.segments[view.batches[i].first_segment].item];
        assert_int_equal(view.batches[i].source, item->source);
        assert_int_equal(view.batches[i].target, item->target);
    }
    ferry_schedule_destroy(view.schedule);
}

/* ---- the parts ---- */

static void sorting_is_stable_over_all_digits(void **state) {
    (void)state;
    enum { N = 1000 };
    fy_keyed_t entries[N];
    fy_keyed_t scratch[N];
    const size_t counts[] = {0, 1, 2, 31, 32, 33, N};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t n = counts[c];
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            /* Few keys, so that there are ties, which differ in all bytes. */
            uint64_t key = (i * 7919 % 97) * UINT64_C(0x9e3779b97f4a7c15);
            entries[i] = (fy_keyed_t){.key = key, .value = i};
            sum += key ^ i;
        }
        fy_radix_sort(entries, scratch, n);
        for (size_t i = 0; i < n; i++) {
            sum -= entries[i].key ^ entries[i].value;
            assert_int_equal(entries[i].key,
                             (entries[i].value * 7919 % 97) * UINT64_C(0x9e3779b97f4a7c15));
            assert_true(
                i == 0 || entries[i - 1].key < entries[i].key ||
                (entries[i - 1].key == entries[i].key && entries[i - 1].value < entries[i].value));
        }
        assert_int_equal(sum, 0);
    }
}

static void a_graph_without_edges_has_no_colours(void **state) {
    (void)state;
    uint32_t degree = 7;
    assert_true(fy_colour_edges(NULL, 0, 0, 0, NULL, &degree));
    assert_int_equal(degree, 0);
}

/* ---- bad input ---- */

static void assert_refused(const ferry_item_t *items, size_t n,
                           const ferry_schedule_params_t *params, ferry_status_t status,
                           const char *text) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_schedule_t *schedule = NULL;
    long before = alive;
    assert_int_equal(ferry_schedule_create(items, n, params, &schedule, &err), status);
    assert_null(schedule);
    assert_int_equal(err.status, status);
    assert_string_equal(err.text, text);
    assert_int_equal(alive, before);
    assert_int_equal(ferry_schedule_create(items, n, params, &schedule, NULL), status);
}

static void bad_input_is_named(void **state) {
    (void)state;
    ferry_item_t items[] = {
        {.bytes = 1, .source = 0, .target = 1},
        {.bytes = 0, .source = FERRY_RANK_NONE, .target = 1},
    };
    assert_refused(NULL, 4, NULL, FERRY_INVALID, "4 items, but no pointer to them");
    assert_refused(items, 2, NULL, FERRY_INVALID, "item 1 has no source rank");
    items[1] = (ferry_item_t){.bytes = 1, .source = 1, .target = FERRY_RANK_NONE};
    assert_refused(items, 2, NULL, FERRY_INVALID, "item 1 has no target rank");
    ferry_schedule_params_t params = {.size = 8};
    assert_refused(items, 1, &params, FERRY_INVALID,
                   "schedule parameters of 8 bytes; this version's have 24");
}

static void what_is_too_large_is_refused(void **state) {
    (void)state;
    ferry_item_t items[] = {
        {.bytes = 1, .source = 0, .target = 1},
        {.bytes = UINT64_MAX, .source = 2, .target = 2},
    };
    assert_refused(items, 2, NULL, FERRY_OVERFLOW,
                   "items 0 to 1 have more bytes together than 64 bits count");
    items[0].bytes = UINT64_C(1) << 40;
    ferry_schedule_params_t params = {.size = sizeof params, .slot_bytes = 1};
    assert_refused(items, 1, &params, FERRY_OVERFLOW,
                   "slots of 1 bytes are too small: the items fill 1099511627776 of them, and "
                   "1073741824 batches are the most");
    /* The most that one item can have. */
    items[0].bytes = UINT64_MAX;
    params.slot_bytes = UINT64_MAX;
    view_t view = make(items, 1, UINT64_MAX, 0);
    assert_int_equal(view.nsegments, 1);
    assert_segment(&view.segments[0], 0, 0, UINT64_MAX);
    ferry_schedule_destroy(view.schedule);
}

/* Fails the n-th allocation and all after it, until the call gets by without a fault. */
static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    size_t n = 0;
    ferry_item_t *items = all_to_all(190, &n); /* enough to be halved */
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    items[0].bytes = 3 * 4096 + 3000; /* two rests that need two bins, and with them the tree */
    items[n - 1] = items[0];
    params.slot_bytes = 4096;
    long faults = 0;
    for (;; faults++) {
        ferry_schedule_t *schedule = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        fail_after = faults;
        ferry_status_t status = ferry_schedule_create(items, n, &params, &schedule, &err);
        fail_after = -1;
        if (status == FERRY_OK) {
            assert_true(alive > 0);
            ferry_schedule_destroy(schedule);
            assert_int_equal(alive, 0);
            break;
        }
        assert_int_equal(status, FERRY_NOMEM);
        assert_int_equal(err.status, FERRY_NOMEM);
        assert_memory_equal(err.text, "out of memory for ", strlen("out of memory for "));
        assert_null(schedule);
        assert_int_equal(alive, 0);
    }
    assert_true(faults > 20);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_items_are_split_in_offset_order),
        cmocka_unit_test(pieces_of_a_pair_are_packed),
        cmocka_unit_test(rests_are_packed_with_small_items),
        cmocka_unit_test(batches_hold_at_most_max_segments),
        cmocka_unit_test(what_does_not_move_is_left_out),
        cmocka_unit_test(parameters_may_be_left_out),
        cmocka_unit_test(all_to_all_takes_one_round_less_than_ranks),
        cmocka_unit_test(links_are_full_duplex),
        cmocka_unit_test(skewed_loads_reach_the_bound),
        cmocka_unit_test(ranks_may_be_any_numbers),
        cmocka_unit_test(sorting_is_stable_over_all_digits),
        cmocka_unit_test(a_graph_without_edges_has_no_colours),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
