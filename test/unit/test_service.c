/* test_service.c - what a service does alone: pairing by task id, and telling whether targets overlap. */
#include <stdbool.h>
#include <stdlib.h>

#include "oracle/unit.h"

#include <ferry/service.h>

#include "service/builtin.h"

/* --- pairing ----------------------------------------------------------------------------------- */

#define NONE FERRY_TASK_NONE

static void test_match_any_order(void **state) {
    (void)state;
    uint64_t sends[] = {7, 3, UINT64_MAX - 1, 0};
    uint64_t recvs[] = {0, 7, UINT64_MAX - 1, 3};
    ferry_op_pair_t pairs[4];
    assert_ok(ferry_match_local_ops(sends, 4, recvs, 4, "mine", 2, pairs, &err));
    size_t expected[] = {3, 0, 2, 1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pairs[i].recv, i);
        assert_int_equal(pairs[i].send, expected[i]);
    }
}

static void test_match_nothing(void **state) {
    (void)state;
    assert_ok(ferry_match_local_ops(NULL, 0, NULL, 0, "mine", 0, NULL, &err));
}

static void test_match_errors(void **state) {
    (void)state;
    uint64_t good[] = {1, 2};
    uint64_t absent[] = {1, NONE};
    uint64_t twice[] = {2, 2};
    uint64_t other[] = {1, 3};
    ferry_op_pair_t pairs[2];
#define MATCH(s, ns, r, nr) ferry_match_local_ops(s, ns, r, nr, "my service", 5, pairs, &err)
    assert_fails(MATCH(absent, 2, good, 2), MISMATCH,
                 "my service: rank 5: local send 1 has no task id");
    assert_fails(MATCH(good, 2, absent, 2), MISMATCH, "local receive 1 has no task id");
    assert_fails(MATCH(good, 2, good, 1), MISMATCH, "2 local sends, but 1 local receives");
    assert_fails(MATCH(good, 1, good, 2), MISMATCH, "my service: rank 5: 1 local sends");
    assert_fails(MATCH(twice, 2, good, 2), MISMATCH,
                 "task id 2 repeats among the local sends (send 1)");
    assert_fails(MATCH(good, 2, twice, 2), MISMATCH, "task id 2 repeats among the local receives");
    assert_fails(MATCH(good, 2, other, 2), MISMATCH, "local receive 1, task id 3, has no send");
    assert_fails(MATCH(NULL, 2, good, 2), INVALID, "send_ids");
#undef MATCH
    ferry_error_t err = FERRY_ERROR_INIT;
    (void)ferry_match_local_ops(good, 2, other, 2, NULL, 5, pairs, &err);
    assert_int_equal(err.rank, 5);
    assert_non_null(strstr(err.text, "copy service: rank 5"));
}

static void test_match_many(void **state) {
    (void)state;
    enum { MANY = 20000 };
    uint64_t *ids = malloc(2 * MANY * sizeof *ids);
    ferry_op_pair_t *pairs = malloc(MANY * sizeof *pairs);
    for (uint64_t i = 0; i < MANY; i++) {
        ids[i] = i * 48271 % 2147483647;
        ids[2 * MANY - 1 - i] = ids[i];
    }
    assert_ok(ferry_match_local_ops(ids, MANY, ids + MANY, MANY, "many", 0, pairs, &err));
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(ids[pairs[i].send], ids[MANY + i]);
    }
    free(ids);
    free(pairs);
}

/* --- overlap ----------------------------------------------------------------------------------- */

enum { ROOM = 512 };

static uint64_t next(uint64_t *state, uint64_t limit) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % limit;
}

/* Marks the bytes of the view; false when it leaves the room. */
static bool mark(const ferry_view_t *view, uint8_t *room, uint8_t *marks) {
    int64_t low = 0;
    int64_t high = 0;
    if (ferry_view_extent(view, &low, &high, NULL) != FERRY_OK) {
        return false;
    }
    int64_t at = (uint8_t *)view->data - room;
    if (at + low < 0 || at + high > ROOM) {
        return false;
    }
    uint64_t elements = 0;
    (void)ferry_view_elements(view, &elements, NULL);
    for (uint64_t e = 0; e < elements; e++) {
        int64_t byte = 0;
        uint64_t rest = e;
        for (uint32_t i = 0; i < view->ndim; i++) {
            byte += (int64_t)(rest % view->shape[i]) * view->strides[i];
            rest /= view->shape[i];
        }
        size_t width = ferry_dtype_bits(view->dtype) / 8;
        memset(marks + at + byte * (int64_t)width, 1, width);
    }
    return true;
}

static ferry_view_t random_view(uint64_t *state, uint8_t *room) {
    static const ferry_dtype_t dtypes[] = {FERRY_U8, FERRY_BF16, FERRY_F32, FERRY_F64};
    ferry_view_t view;
    memset(&view, 0, sizeof view);
    view.dtype = dtypes[next(state, 4)];
    view.ndim = (uint32_t)next(state, 4);
    view.data = room + next(state, ROOM);
    for (uint32_t i = 0; i < view.ndim; i++) {
        view.shape[i] = 1 + next(state, 5);
        view.strides[i] = (int64_t)next(state, 40) - 8;
    }
    return view;
}

static void test_overlap_against_bytes(void **state) {
    (void)state;
    uint8_t room[ROOM];
    uint64_t random = 1;
    int seen[2] = {0, 0};
    for (int round = 0; round < 60000; round++) {
        uint8_t marks[2][ROOM] = {{0}};
        ferry_view_t a = random_view(&random, room);
        ferry_view_t b = random_view(&random, room);
        if (!mark(&a, room, marks[0]) || !mark(&b, room, marks[1])) {
            continue;
        }
        bool expected = false;
        for (int i = 0; i < ROOM; i++) {
            expected = expected || (marks[0][i] && marks[1][i]);
        }
        bool overlap = !expected;
        assert_ok(fy_views_overlap(&a, &b, &overlap, &err));
        assert_int_equal(overlap, expected);
        seen[expected]++;
    }
    assert_true(seen[0] > 500 && seen[1] > 500);
}

/* Columns of one large matrix, and a box that touches them by one element. */
static void test_overlap_of_columns(void **state) {
    (void)state;
    uint8_t *base = (uint8_t *)(uintptr_t)0x10000000; // NOLINT(performance-no-int-to-ptr)
    ferry_view_t left = {
        .data = base, .dtype = FERRY_F32, .ndim = 2, .shape = {16384, 4096}, .strides = {16384, 1}};
    ferry_view_t right = left;
    right.data = base + 4096 * 4;
    bool overlap = true;
    assert_ok(fy_views_overlap(&left, &right, &overlap, &err));
    assert_false(overlap);
    right.data = base + 4095 * 4 + 16384 * 4 * 16000;
    assert_ok(fy_views_overlap(&left, &right, &overlap, &err));
    assert_true(overlap);
}

/* --- stretches --------------------------------------------------------------------------------- */

static void test_stretches(void **state) {
    (void)state;
    fy_stretches_t s;
    uint64_t shape[] = {4, 1, 8, 16};
    int64_t target[] = {128, 77, 16, 1};
    int64_t padded[] = {999, 5, 16, 1};
    fy_stretches(4, shape, target, target, 4, &s);
    assert_int_equal(s.run_bytes, 4 * 8 * 16 * 4);
    assert_int_equal(s.count, 1);
    fy_stretches(4, shape, target, padded, 4, &s);
    assert_int_equal(s.run_bytes, 8 * 16 * 4);
    assert_int_equal(s.count, 4);
    int64_t turned[] = {1, 3, 4, 32}; /* column-major on both sides is one stretch, too */
    fy_stretches(4, shape, turned, turned, 2, &s);
    assert_int_equal(s.run_bytes, 4 * 8 * 16 * 2);
    fy_stretches(4, shape, target, turned, 2, &s);
    assert_int_equal(s.run_bytes, 2);
    assert_int_equal(s.count, 4 * 8 * 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_any_order),
        cmocka_unit_test(test_match_nothing),
        cmocka_unit_test(test_match_errors),
        cmocka_unit_test(test_match_many),
        cmocka_unit_test(test_overlap_against_bytes),
        cmocka_unit_test(test_overlap_of_columns),
        cmocka_unit_test(test_stretches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
