/* test_check.c - plans spoilt from inside: ferry_plan_check must find each of the ways.
 *
 * Unlike the other tests of plans, this one knows src/plan/plan.h: no planner makes such plans, and
 * most of them cannot be written to a file either. */
#include <stdlib.h>

#include "oracle/unit.h"
#include "plan/plan.h"

/* Two tensors of 4 x 6, rows on ranks 0, 1 (twice), columns wanted by 2, 3: eight moves in all. */
static ferry_plan_t *make(uint32_t part_of) {
    ferry_layout_t *from = NULL;
    ferry_layout_t *to = NULL;
    uint64_t shape[] = {4, 6};
    assert_ok(ferry_layout_parse("2x2:R,S0/stride(2)@0,1,4,5", &from, &err));
    assert_ok(ferry_layout_parse("2:S1@2-3", &to, &err));
    ferry_tensor_t sources[] = {{"v", FERRY_F32, 2, shape, from}, {"w", FERRY_F32, 2, shape, from}};
    ferry_tensor_t targets[] = {{"v", FERRY_F32, 2, shape, to}, {"w", FERRY_F32, 2, shape, to}};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = sources;
    params.nsources = 2;
    params.targets = targets;
    params.ntargets = 2;
    params.flags = part_of == FERRY_RANK_NONE ? 0 : FERRY_PLAN_PART;
    params.rank = part_of == FERRY_RANK_NONE ? 0 : part_of;
    ferry_plan_t *plan = NULL;
    assert_ok(ferry_plan_create(&params, &plan, &err));
    assert_ok(ferry_plan_check(plan, &err));
    ferry_layout_destroy(from);
    ferry_layout_destroy(to);
    return plan;
}

/* Changes a field, expects the check to fail with `part` in its line, and puts it back. */
#define SPOILT(plan, field, value, part)                                                           \
    do {                                                                                           \
        unsigned char was_[sizeof(field)];                                                         \
        memcpy(was_, &(field), sizeof was_);                                                       \
        (field) = (value);                                                                         \
        assert_memory_not_equal(was_, &(field), sizeof was_);                                      \
        assert_fails(ferry_plan_check(plan, &err), CHECK, part);                                   \
        memcpy(&(field), was_, sizeof was_);                                                       \
        assert_ok(ferry_plan_check(plan, &err));                                                   \
    } while (0)

static void spoilt_moves_are_found(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    assert_int_equal(plan->nmoves, 8);
    for (size_t i = 0; i < plan->nmoves; i++) {
        fy_move_t *m = &plan->moves[i];
        const char *name = i < 4 ? "tensor v" : "tensor w";
        uint64_t ngeoms = fy_plan_pattern_of(plan, m->tensor)->ngeoms;
        SPOILT(plan, m->source, 9, name);             /* no source */
        SPOILT(plan, m->source, 2, name);             /* a target only */
        SPOILT(plan, m->source, m->source ^ 1, name); /* holds other rows */
        SPOILT(plan, m->target, 9, "");               /* no target */
        SPOILT(plan, m->target, m->target ^ 1, "");   /* wants other columns */
        SPOILT(plan, m->geom, (m->geom + 1) % ngeoms, name);
        SPOILT(plan, m->geom, ngeoms, name);
        SPOILT(plan, m->geom, UINT64_MAX, name);
        SPOILT(plan, m->piece, m->piece + 1, name);
        SPOILT(plan, m->tensor, 1 - m->tensor, "");
    }
    ferry_plan_destroy(plan);
}

/* Another holder is as good. */
static void any_holder_may_send(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    for (size_t i = 0; i < plan->nmoves; i++) {
        plan->moves[i].source ^= 4;
        assert_ok(ferry_plan_check(plan, &err));
    }
    ferry_plan_destroy(plan);
}

static void missing_and_extra_moves_are_found(void **state) {
    (void)state;
    for (size_t gone = 0; gone < 8; gone++) {
        for (size_t count = 1; gone + count <= 8; count++) {
            ferry_plan_t *plan = make(FERRY_RANK_NONE);
            memmove(plan->moves + gone, plan->moves + gone + count,
                    (8 - gone - count) * sizeof *plan->moves);
            plan->nmoves -= count;
            assert_fails(ferry_plan_check(plan, &err), CHECK, "tensor");
            ferry_plan_destroy(plan);
        }
    }
    for (size_t i = 0; i < 8; i++) {
        ferry_plan_t *plan = make(FERRY_RANK_NONE);
        fy_move_t nine[9];
        fy_move_t *own = plan->moves;
        memcpy(nine, own, (i + 1) * sizeof *nine);
        memcpy(nine + i + 1, own + i, (8 - i) * sizeof *nine); /* move i twice */
        plan->moves = nine;
        plan->nmoves = 9;
        assert_fails(ferry_plan_check(plan, &err), CHECK, "tensor");
        plan->moves = own;
        plan->nmoves = 8;
        ferry_plan_destroy(plan);
    }
}

static void disorder_is_found(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    for (size_t i = 0; i < 8; i++) {
        for (size_t j = 0; j < i; j++) {
            fy_move_t a = plan->moves[i];
            fy_move_t b = plan->moves[j];
            plan->moves[i] = b;
            plan->moves[j] = a;
            assert_fails(ferry_plan_check(plan, &err), CHECK, "");
            plan->moves[i] = a;
            plan->moves[j] = b;
        }
    }
    assert_ok(ferry_plan_check(plan, &err));
    fy_move_t own[8];
    memcpy(own, plan->moves, sizeof own);
    memcpy(plan->moves, own + 2, 2 * sizeof *own); /* target 3 before target 2 */
    memcpy(plan->moves + 2, own, 2 * sizeof *own);
    assert_fails(ferry_plan_check(plan, &err), CHECK, "tensor v");
    memcpy(plan->moves, own, sizeof own);
    assert_ok(ferry_plan_check(plan, &err));
    ferry_plan_destroy(plan);
}

/* Whole tensors whose moves stand at the wrong place. */
static void strays_are_found(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    fy_move_t *own = plan->moves;
    fy_move_t twelve[12];
    memcpy(twelve, own, 8 * sizeof *own);
    memcpy(twelve + 8, own, 4 * sizeof *own);
    plan->moves = twelve;
    plan->nmoves = 12;
    assert_fails(ferry_plan_check(plan, &err), CHECK, ""); /* tensor v once more behind w */
    for (size_t i = 8; i < 12; i++) {
        twelve[i].tensor = 2; /* a tensor that is not there */
    }
    assert_fails(ferry_plan_check(plan, &err), CHECK, "");
    plan->moves = own;
    plan->nmoves = 8;
    ferry_plan_destroy(plan);
}

static void spoilt_geometry_is_found(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    for (uint32_t d = 0; d < 2; d++) {
        fy_cross_t *c = &plan->patterns[0].cross[d];
        for (size_t i = 0; i < c->first_segment[c->npairs]; i++) {
            fy_segment_t *s = &c->segments[i];
            SPOILT(plan, s->source_lo, s->source_lo + 1, "dim");
            SPOILT(plan, s->target_lo, s->target_lo + 1, "dim");
            SPOILT(plan, s->source_lo, UINT64_MAX, "dim");
            SPOILT(plan, s->target_lo, UINT64_MAX, "dim");
            SPOILT(plan, s->extent, s->extent + 1, "dim");
            SPOILT(plan, s->extent, s->extent - 1, "dim");
            SPOILT(plan, s->extent, UINT64_MAX, "dim");
        }
        for (uint32_t p = 0; p < c->npairs; p++) {
            SPOILT(plan, c->source_part[p], (c->source_part[p] + 1) % (c->nsource + 1), "dim");
            SPOILT(plan, c->target_part[p], (c->target_part[p] + 1) % (c->ntarget + 1), "dim");
            SPOILT(plan, c->extent[p], c->extent[p] + 1, "dim");
        }
    }
    ferry_plan_destroy(plan);
}

/* Both ends of a segment moved alike: sizes agree, elements agree, but the target is not covered. */
static void overlaps_are_found(void **state) {
    (void)state;
    ferry_plan_t *plan = make(FERRY_RANK_NONE);
    fy_cross_t *c = &plan->patterns[0].cross[1]; /* whole rows to half rows */
    fy_segment_t *s = &c->segments[0];
    assert_int_equal(s->extent, 3);
    s->source_lo++;
    s->target_lo++;
    s->extent--;
    c->extent[0]--;
    assert_fails(ferry_plan_check(plan, &err), CHECK, "dim 1");
    ferry_plan_destroy(plan);
}

static void parts_answer_for_their_rank(void **state) {
    (void)state;
    ferry_plan_t *part = make(2);
    assert_int_equal(part->nmoves, 4);
    SPOILT(part, part->rank, 3, ""); /* nothing comes for rank 3, and rank 2 is a stranger */
    SPOILT(part, part->rank, 9, "");
    SPOILT(part, part->nmoves, 3, "tensor w");
    SPOILT(part, part->nmoves, 2, "tensor w");
    SPOILT(part, part->moves[1].source, part->moves[1].source ^ 1, "tensor v");
    ferry_plan_destroy(part);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spoilt_moves_are_found),
        cmocka_unit_test(any_holder_may_send),
        cmocka_unit_test(missing_and_extra_moves_are_found),
        cmocka_unit_test(disorder_is_found),
        cmocka_unit_test(strays_are_found),
        cmocka_unit_test(spoilt_geometry_is_found),
        cmocka_unit_test(overlaps_are_found),
        cmocka_unit_test(parts_answer_for_their_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
