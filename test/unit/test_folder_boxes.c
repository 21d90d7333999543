/* test_folder_boxes.c - boxes of shards against counting every element. */
#include <stdlib.h>

#include "ckpt/folder.h"
#include "oracle/unit.h"
#include "support/ckpt_draw.h"

enum { DIMS = 4, ROOM = 4096, CASES = 3000 };

/* How often each element of the stored tensor was given, and by a box that began where it should. */
typedef struct tally {
    uint32_t ndim;
    fy_box_t whole;
    uint64_t first;
    int64_t strides[DIMS];
    uint8_t seen[ROOM];
    size_t calls;
    const uint64_t *global; /* of fy_box_globals */
    const ferry_tensor_t *tensor;
    uint64_t map[DIMS][ROOM]; /* local index -> global index */
} tally_t;

/* Steps through the indices of a box: false after the last. */
static bool step(uint32_t ndim, const fy_box_t *box, uint64_t *index) {
    for (uint32_t i = ndim; i-- > 0;) {
        if (++index[i] < box->lo[i] + box->extent[i]) {
            return true;
        }
        index[i] = box->lo[i];
    }
    return false;
}

static uint64_t place_of(const tally_t *t, const uint64_t *index) {
    uint64_t at = t->first;
    for (uint32_t i = 0; i < t->ndim; i++) {
        at += (index[i] - t->whole.lo[i]) * (uint64_t)t->strides[i];
    }
    return at;
}

static ferry_status_t count_places(void *context, const fy_box_t *box, ferry_error_t *err) {
    (void)err;
    tally_t *t = context;
    uint64_t index[DIMS];
    memcpy(index, box->lo, sizeof index);
    for (uint32_t i = 0; i < t->ndim; i++) {
        assert_true(box->extent[i] > 0 && box->lo[i] >= t->whole.lo[i]);
        assert_true(box->lo[i] + box->extent[i] <= t->whole.lo[i] + t->whole.extent[i]);
    }
    do {
        uint64_t at = place_of(t, index);
        assert_true(at < ROOM);
        t->seen[at]++;
    } while (step(t->ndim, box, index));
    t->calls++;
    return FERRY_OK;
}

/* A box of a larger tensor whose dims are stored in any order, with gaps. */
static void draw_box(uint64_t *rng, tally_t *t) {
    memset(t, 0, sizeof *t);
    t->ndim = (uint32_t)ckpt_below(rng, DIMS + 1);
    uint32_t order[DIMS] = {0, 1, 2, 3};
    for (uint32_t i = 0; i < t->ndim; i++) {
        uint32_t k = i + (uint32_t)ckpt_below(rng, t->ndim - i);
        uint32_t kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    uint64_t stride = 1 + ckpt_below(rng, 3);
    for (uint32_t i = 0; i < t->ndim; i++) {
        uint32_t dim = order[i];
        t->whole.lo[dim] = ckpt_below(rng, 5);
        t->whole.extent[dim] = 1 + ckpt_below(rng, 5);
        t->strides[dim] = (int64_t)stride;
        stride *= t->whole.extent[dim] + ckpt_below(rng, 2);
    }
    t->first = ckpt_below(rng, 20);
}

static void clips_hold_what_lies_in_the_range(void **state) {
    (void)state;
    static tally_t t;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t rng = seed;
        draw_box(&rng, &t);
        uint64_t from = ckpt_below(&rng, 300);
        uint64_t to = from + ckpt_below(&rng, ckpt_below(&rng, 2) == 0 ? 20 : ROOM);
        assert_ok(
            fy_box_clip(t.ndim, &t.whole, t.first, t.strides, from, to, count_places, &t, &err));
        uint8_t expected[ROOM] = {0};
        uint64_t index[DIMS];
        memcpy(index, t.whole.lo, sizeof index);
        size_t inside = 0;
        do {
            uint64_t at = place_of(&t, index);
            expected[at] = at >= from && at < to;
            inside += expected[at];
        } while (step(t.ndim, &t.whole, index));
        if (memcmp(expected, t.seen, ROOM) != 0) {
            fail_msg("seed %llu: %u dims, [%llu, %llu)", (unsigned long long)seed, t.ndim,
                     (unsigned long long)from, (unsigned long long)to);
        }
        assert_true(t.calls <= inside);
    }
}

static ferry_status_t stop(void *context, const fy_box_t *box, ferry_error_t *err) {
    (void)context;
    (void)box;
    if (err != NULL) {
        err->status = FERRY_STOPPED;
    }
    return FERRY_STOPPED;
}

static void an_error_ends_it(void **state) {
    (void)state;
    fy_box_t box = {{0}, {3, 4}};
    int64_t strides[] = {4, 1};
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(fy_box_clip(2, &box, 0, strides, 0, 12, stop, NULL, &err), FERRY_STOPPED);
    assert_int_equal(fy_box_clip(2, &box, 0, strides, 2, 7, stop, NULL, &err), FERRY_STOPPED);
    assert_int_equal(fy_box_clip(2, &box, 0, strides, 12, 20, stop, NULL, NULL), FERRY_OK);
}

static void boxes_meet(void **state) {
    (void)state;
    fy_box_t a = {{0, 2}, {4, 3}};
    fy_box_t b = {{3, 0}, {9, 4}};
    fy_box_t both;
    assert_true(fy_box_meet(2, &a, &b, &both));
    assert_true(both.lo[0] == 3 && both.extent[0] == 1 && both.lo[1] == 2 && both.extent[1] == 2);
    b.lo[0] = 4;
    assert_false(fy_box_meet(2, &a, &b, &both));
    assert_true(fy_box_meet(0, &a, &b, &both));
}

/* --- global places ----------------------------------------------------------------------------- */

static ferry_status_t check_globals(void *context, const fy_box_t *box, ferry_error_t *err) {
    (void)err;
    tally_t *t = context;
    uint64_t index[DIMS];
    memcpy(index, box->lo, sizeof index);
    do {
        uint64_t at = 0;
        for (uint32_t i = 0; i < t->ndim; i++) {
            uint64_t begins = t->global[i] + (index[i] - box->lo[i]);
            assert_true(begins == t->map[i][index[i]]);
            at = at * t->whole.extent[i] + (index[i] - t->whole.lo[i]);
        }
        t->seen[at]++;
    } while (step(t->ndim, box, index));
    return FERRY_OK;
}

/* The box of a rank's shard that `t->whole` is; every element of it is given once, at its place. */
static void try_globals(tally_t *t, uint32_t rank) {
    uint64_t global[FERRY_MAX_DIMS] = {0};
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        elements *= t->whole.extent[i];
    }
    t->global = global;
    memset(t->seen, 0, sizeof t->seen);
    assert_ok(fy_box_globals(t->tensor, rank, &t->whole, global, check_globals, t, &err));
    for (uint64_t i = 0; i < elements; i++) {
        assert_int_equal(t->seen[i], 1);
    }
}

/* What the layout says of each dim, element by element; false when the shard is empty. */
static bool draw_map(uint64_t *rng, tally_t *t, uint32_t rank) {
    for (uint32_t dim = 0; dim < t->ndim; dim++) {
        ferry_interval_t list[64];
        size_t count = 0;
        uint64_t length = 0;
        assert_ok(ferry_layout_intervals(t->tensor->layout, t->ndim, t->tensor->shape, rank, dim,
                                         list, 64, &count, &err));
        for (size_t i = 0; i < count; i++) {
            for (uint64_t at = list[i].lo; at < list[i].hi; at++) {
                t->map[dim][length++] = at;
            }
        }
        if (length == 0) {
            return false;
        }
        t->whole.lo[dim] = ckpt_below(rng, length);
        t->whole.extent[dim] = 1 + ckpt_below(rng, length - t->whole.lo[dim]);
    }
    return true;
}

static void globals_are_those_of_the_layout(void **state) {
    (void)state;
    static const char *const texts[] = {
        "1:R",
        "2x3:R,S0",
        "3:S1",
        "2x2:S0,S1",
        "4:S0/unit(3)",
        "3:S0/cyclic(2)",
        "2x3:S0,S0/cyclic(1)",
        "3:S0/stride(2)",
        "2x3:R,S2",
        "2x2:S1/cyclic(1),S1",
    };
    static tally_t t;
    uint64_t rng = 1;
    size_t tried = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ferry_layout_t *layout = NULL;
        assert_ok(ferry_layout_parse(texts[i], &layout, &err));
        for (int draws = 0; draws < 40; draws++) {
            uint64_t shape[] = {1 + ckpt_below(&rng, 13), 1 + ckpt_below(&rng, 11),
                                1 + ckpt_below(&rng, 5)};
            ferry_tensor_t tensor = {"t", FERRY_U8, 3, shape, layout};
            memset(&t, 0, sizeof t);
            t.ndim = 3;
            t.tensor = &tensor;
            for (uint32_t rank = 0; rank < ferry_layout_nranks(layout); rank++) {
                if (draw_map(&rng, &t, rank)) {
                    try_globals(&t, rank);
                    tried++;
                }
            }
        }
        ferry_layout_destroy(layout);
    }
    assert_true(tried > 800); /* few shards are empty */
}

/* --- copies -------------------------------------------------------------------------------------- */

/* Ranks of one replica hold every element once: so of each axis that does not cut, one index. */
static void replicas_are_counted(void **state) {
    (void)state;
    ferry_layout_t *layout = NULL;
    assert_ok(ferry_layout_parse("2x3x2:R,S0,R", &layout, &err));
    static const uint32_t expected[] = {0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3};
    for (uint32_t rank = 0; rank < 12; rank++) {
        assert_int_equal(fy_replica_of(layout, rank), expected[rank]);
    }
    assert_int_equal(fy_replica_of(layout, 12), 0); /* holds nothing */
    ferry_layout_t *shifted = NULL;
    assert_ok(ferry_layout_shift(layout, 5, &shifted, &err));
    for (uint32_t rank = 0; rank < 12; rank++) {
        assert_int_equal(fy_replica_of(shifted, 5 + rank), expected[rank]);
    }
    ferry_layout_destroy(shifted);
    ferry_layout_destroy(layout);
    assert_ok(ferry_layout_parse("4:S0", &layout, &err));
    assert_int_equal(fy_replica_of(layout, 3), 0);
    ferry_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_hold_what_lies_in_the_range),
        cmocka_unit_test(an_error_ends_it),
        cmocka_unit_test(boxes_meet),
        cmocka_unit_test(globals_are_those_of_the_layout),
        cmocka_unit_test(replicas_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
