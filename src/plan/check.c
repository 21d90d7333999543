/* check.c - proof that a plan does what it says.
 *
 * Works from the layouts' interval lists and the moves, and uses none of the merging in cross.c: every
 * segment is walked through the interval lists of both ends and must name the same global elements;
 * the segments of every target part must tile it; and every target must be sent each of its geoms
 * exactly once, by a rank that holds them. As geoms are products of per-dim segments, those three
 * together say: every element of every target exactly once.
 *
 * Geometry is checked once per pattern, moves one by one, so a check costs less than planning. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "plan/plan.h"

/* ---- geometry --------------------------------------------------------------------------------- */

/* The interval of part p in which local place `at` lies. */
static size_t locate(const fy_axis_map_t *map, uint32_t p, uint64_t at) {
    size_t lo = map->first[p];
    size_t hi = map->first[p + 1];
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (map->offsets[mid] <= at) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Do local stretches [a, a+n) of one part and [b, b+n) of another name the same global elements? */
static bool same_elements(const fy_axis_map_t *source, uint32_t sp, uint64_t a,
                          const fy_axis_map_t *target, uint32_t tp, uint64_t b, uint64_t n) {
    size_t i = locate(source, sp, a);
    size_t j = locate(target, tp, b);
    while (n > 0) {
        uint64_t in_i = a - source->offsets[i];
        uint64_t in_j = b - target->offsets[j];
        uint64_t left_i = source->intervals[i].hi - source->intervals[i].lo - in_i;
        uint64_t left_j = target->intervals[j].hi - target->intervals[j].lo - in_j;
        uint64_t step = left_i < left_j ? left_i : left_j;
        step = step < n ? step : n;
        if (source->intervals[i].lo + in_i != target->intervals[j].lo + in_j) {
            return false;
        }
        a += step;
        b += step;
        n -= step;
        i += step == left_i;
        j += step == left_j;
    }
    return true;
}

static ferry_status_t check_pairs(const fy_cross_t *c, const fy_axis_map_t *source,
                                  const fy_axis_map_t *target, uint32_t dim, ferry_error_t *err) {
    for (uint32_t p = 0; p < c->npairs; p++) {
        uint32_t sp = c->source_part[p];
        uint32_t tp = c->target_part[p];
        uint64_t extent = 0;
        for (size_t i = c->first_segment[p]; i < c->first_segment[p + 1]; i++) {
            const fy_segment_t *s = &c->segments[i];
            if (s->extent == 0 || s->source_lo >= source->lengths[sp] ||
                s->extent > source->lengths[sp] - s->source_lo ||
                s->target_lo >= target->lengths[tp] ||
                s->extent > target->lengths[tp] - s->target_lo) {
                return fy_fail(err, FERRY_CHECK, "a box lies outside its tensor in dim %" PRIu32,
                               dim);
            }
            if (!same_elements(source, sp, s->source_lo, target, tp, s->target_lo, s->extent)) {
                return fy_fail(err, FERRY_CHECK,
                               "the two ends of a box name different elements in dim %" PRIu32,
                               dim);
            }
            extent += s->extent;
        }
        if (extent == 0 || extent != c->extent[p]) {
            return fy_fail(err, FERRY_CHECK, "sizes differ between the ends in dim %" PRIu32, dim);
        }
    }
    return FERRY_OK;
}

static int segment_compare(const void *a, const void *b) {
    uint64_t x = ((const fy_segment_t *)a)->target_lo;
    uint64_t y = ((const fy_segment_t *)b)->target_lo;
    return x < y ? -1 : x > y;
}

/* The segments of each target part, over all its pairs, tile it. */
static ferry_status_t check_tiles(const fy_cross_t *c, const fy_axis_map_t *target, uint32_t dim,
                                  ferry_error_t *err) {
    size_t total = c->first_segment[c->npairs];
    fy_segment_t *sorted = fy_alloc(total, sizeof *sorted);
    if (sorted == NULL) {
        return fy_fail_nomem(err, "checking a plan");
    }
    ferry_status_t status = FERRY_OK;
    for (uint32_t t = 0; t < c->ntarget && status == FERRY_OK; t++) {
        size_t first = c->first_segment[c->first_pair[t]];
        size_t count = c->first_segment[c->first_pair[t + 1]] - first;
        memcpy(sorted, c->segments + first, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, segment_compare);
        uint64_t at = 0;
        for (size_t i = 0; i < count && sorted[i].target_lo == at; i++) {
            at += sorted[i].extent;
        }
        if (at != target->lengths[t]) {
            status = fy_fail(err, FERRY_CHECK,
                             "dim %" PRIu32 " of a target is not covered exactly once at %" PRIu64,
                             dim, at);
        }
    }
    fy_free(sorted);
    return status;
}

/* Part numbers, mesh offsets and the order of pairs, against the layout itself. */
static ferry_status_t check_tables(const ferry_plan_t *plan, const fy_pattern_t *p, uint32_t d,
                                   const fy_axis_map_t *source, const fy_axis_map_t *target,
                                   ferry_error_t *err) {
    const fy_cross_t *c = &p->cross[d];
    bool fine = c->nsource == source->nparts && c->ntarget == target->nparts &&
                c->first_pair[0] == 0 && c->first_pair[c->ntarget] == c->npairs;
    for (uint32_t i = 0; fine && i < c->nsource; i++) {
        fine = fy_layout_part(plan->sides[p->source].layout, c->source_base[i], d) == i;
    }
    for (uint32_t i = 0; fine && i < c->ntarget; i++) {
        fine = fy_layout_part(plan->sides[p->target].layout, c->target_base[i], d) == i &&
               c->first_pair[i] <= c->first_pair[i + 1];
    }
    for (uint32_t i = 0; fine && i < c->npairs; i++) {
        uint32_t tp = c->target_part[i];
        fine = c->source_part[i] < c->nsource && tp < c->ntarget && i >= c->first_pair[tp] &&
               i < c->first_pair[tp + 1] && c->first_segment[i] < c->first_segment[i + 1] &&
               (i == 0 || c->target_part[i - 1] != tp || c->source_part[i - 1] < c->source_part[i]);
    }
    return fine ? FERRY_OK
                : fy_fail(err, FERRY_CHECK, "the parts of dim %" PRIu32 " are in disorder", d);
}

static ferry_status_t check_dim(const ferry_plan_t *plan, const fy_pattern_t *p, uint32_t d,
                                ferry_error_t *err) {
    fy_axis_map_t source;
    fy_axis_map_t target;
    FY_TRY(fy_axis_map_init(&source, plan->sides[p->source].layout, d, p->shape[d], err));
    ferry_status_t status =
        fy_axis_map_init(&target, plan->sides[p->target].layout, d, p->shape[d], err);
    if (status == FERRY_OK) {
        status = check_tables(plan, p, d, &source, &target, err);
        if (status == FERRY_OK) {
            status = check_pairs(&p->cross[d], &source, &target, d, err);
        }
        if (status == FERRY_OK) {
            status = check_tiles(&p->cross[d], &target, d, err);
        }
        fy_axis_map_fini(&target);
    }
    fy_axis_map_fini(&source);
    return status;
}

/* ---- moves ------------------------------------------------------------------------------------ */

/* What one target rank must receive of a tensor: a range of pairs per dim. */
typedef struct due {
    uint32_t first[FERRY_MAX_DIMS];
    uint32_t end[FERRY_MAX_DIMS];
    uint64_t geoms;
} due_t;

static due_t due_of(const ferry_plan_t *plan, const fy_pattern_t *p, uint32_t index) {
    due_t due = {.geoms = 1};
    for (uint32_t d = 0; d < p->ndim; d++) {
        uint32_t part = fy_layout_part(plan->sides[p->target].layout, index, d);
        due.first[d] = p->cross[d].first_pair[part];
        due.end[d] = p->cross[d].first_pair[part + 1];
        due.geoms *= due.end[d] - due.first[d];
    }
    return due;
}

static ferry_status_t wrong(const ferry_plan_t *plan, const fy_move_t *m, const char *text,
                            ferry_error_t *err) {
    ferry_status_t status = fy_fail(err, FERRY_CHECK, "%s", text);
    fy_error_ranks(err, m->target, m->source);
    fy_error_tensor(err, plan->tensors[m->tensor].name);
    return status;
}

/* One move on its own: both ends are there and hold what the geom names. */
static ferry_status_t check_move(const ferry_plan_t *plan, const fy_pattern_t *p, const due_t *due,
                                 const fy_move_t *m, ferry_error_t *err) {
    const ferry_layout_t *source = plan->sides[p->source].layout;
    uint32_t pairs[FERRY_MAX_DIMS];
    uint32_t index = 0;
    if (!ferry_layout_find(source, m->source, &index)) {
        return wrong(plan, m, "the source rank is not in the source layout", err);
    }
    if (m->geom >= p->ngeoms) {
        return wrong(plan, m, "no such region", err);
    }
    fy_geom_split(p, m->geom, pairs);
    for (uint32_t d = 0; d < p->ndim; d++) {
        if (pairs[d] < due->first[d] || pairs[d] >= due->end[d]) {
            return wrong(plan, m, "the target does not hold the region it is sent", err);
        }
        if (p->cross[d].source_part[pairs[d]] != fy_layout_part(source, index, d)) {
            return wrong(plan, m, "the source does not hold the region it sends", err);
        }
    }
    if (m->piece != fy_geom_piece(p, m->geom)) {
        return wrong(plan, m, "a piece has the wrong number", err);
    }
    if (plan->rank != FERRY_RANK_NONE && plan->rank != m->source && plan->rank != m->target &&
        !fy_side_reduces(&plan->sides[p->source], plan->rank, m->source)) {
        return wrong(plan, m, "the move does not concern the rank of this part", err);
    }
    return FERRY_OK;
}

/* All moves of one tensor into one target, at [first, end). */
static ferry_status_t check_target(const ferry_plan_t *plan, size_t first, size_t end,
                                   ferry_error_t *err) {
    const fy_move_t *m = &plan->moves[first];
    const fy_pattern_t *p = fy_plan_pattern_of(plan, m->tensor);
    uint32_t index = 0;
    if (!ferry_layout_find(plan->sides[p->target].layout, m->target, &index)) {
        return wrong(plan, m, "the target rank is not in the target layout", err);
    }
    due_t due = due_of(plan, p, index);
    for (size_t i = first; i < end; i++) {
        FY_TRY(check_move(plan, p, &due, &plan->moves[i], err));
        if (i > first && plan->moves[i].geom <= plan->moves[i - 1].geom) {
            return wrong(plan, &plan->moves[i], "a region is sent twice or out of order", err);
        }
    }
    bool own = plan->rank == FERRY_RANK_NONE || plan->rank == m->target;
    if (own && end - first != due.geoms) {
        return wrong(plan, m, "regions of the target are missing", err);
    }
    return FERRY_OK;
}

/* How many target ranks must receive something (of those that this plan answers for). */
static uint64_t targets_due(const ferry_plan_t *plan, const fy_pattern_t *p) {
    const ferry_layout_t *layout = plan->sides[p->target].layout;
    uint32_t index = 0;
    if (plan->rank != FERRY_RANK_NONE) {
        return ferry_layout_find(layout, plan->rank, &index) && due_of(plan, p, index).geoms > 0;
    }
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->nranks; i++) {
        count += due_of(plan, p, i).geoms > 0;
    }
    return count;
}

/* Checks moves [first, end), all those of one tensor. */
static ferry_status_t check_tensor(const ferry_plan_t *plan, uint32_t tensor, size_t first,
                                   size_t end, uint64_t targets, ferry_error_t *err) {
    uint64_t seen = 0;
    for (size_t begin = first; begin < end;) {
        size_t stop = begin;
        uint32_t target = plan->moves[begin].target;
        while (stop < end && plan->moves[stop].target == target) {
            stop++;
        }
        if (begin > first && plan->moves[begin - 1].target >= target) {
            return wrong(plan, &plan->moves[begin], "targets are out of order", err);
        }
        FY_TRY(check_target(plan, begin, stop, err));
        seen += plan->rank == FERRY_RANK_NONE || plan->rank == target;
        begin = stop;
    }
    if (seen != targets) {
        ferry_status_t status = fy_fail(
            err, FERRY_CHECK, "%" PRIu64 " of %" PRIu64 " targets receive it", seen, targets);
        fy_error_tensor(err, plan->tensors[tensor].name);
        return status;
    }
    return FERRY_OK;
}

/* ---- a plan ----------------------------------------------------------------------------------- */

/* What was proven of a pattern. Tensors of one pattern mostly move alike: what equals a tensor that
 * passed needs no second look. */
enum { MAX_PROVEN = 16 };

typedef struct proof {
    uint64_t targets; /* that must receive something */
    uint32_t count;
    size_t first[MAX_PROVEN]; /* moves of tensors that passed */
    size_t length[MAX_PROVEN];
} proof_t;

static bool moves_alike(const fy_move_t *a, const fy_move_t *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (a[i].geom != b[i].geom || a[i].source != b[i].source || a[i].target != b[i].target ||
            a[i].piece != b[i].piece) {
            return false;
        }
    }
    return true;
}

static bool proven(const ferry_plan_t *plan, const proof_t *proof, size_t first, size_t end) {
    for (uint32_t i = 0; i < proof->count; i++) {
        if (proof->length[i] == end - first &&
            moves_alike(plan->moves + proof->first[i], plan->moves + first, end - first)) {
            return true;
        }
    }
    return false;
}

static ferry_status_t check_patterns(const ferry_plan_t *plan, proof_t *proofs,
                                     ferry_error_t *err) {
    for (size_t i = 0; i < plan->npatterns; i++) {
        const fy_pattern_t *p = &plan->patterns[i];
        for (uint32_t d = 0; d < p->ndim; d++) {
            FY_TRY(check_dim(plan, p, d, err));
        }
        proofs[i].targets = targets_due(plan, p);
    }
    return FERRY_OK;
}

static ferry_status_t check_moves(const ferry_plan_t *plan, proof_t *proofs, ferry_error_t *err) {
    size_t first = 0;
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        proof_t *proof = &proofs[plan->tensors[t].pattern];
        size_t end = first;
        while (end < plan->nmoves && plan->moves[end].tensor == t) {
            end++;
        }
        if (!proven(plan, proof, first, end)) {
            FY_TRY(check_tensor(plan, t, first, end, proof->targets, err));
            if (proof->count < MAX_PROVEN) {
                proof->first[proof->count] = first;
                proof->length[proof->count++] = end - first;
            }
        }
        first = end;
    }
    return first == plan->nmoves ? FERRY_OK : fy_fail(err, FERRY_CHECK, "moves are out of order");
}

ferry_status_t ferry_plan_check(const ferry_plan_t *plan, ferry_error_t *err) {
    FY_NEED(plan, err);
    proof_t *proofs = fy_alloc_zero(plan->npatterns, sizeof *proofs);
    if (proofs == NULL) {
        return fy_fail_nomem(err, "checking a plan");
    }
    ferry_status_t status = check_patterns(plan, proofs, err);
    if (status == FERRY_OK) {
        status = check_moves(plan, proofs, err);
    }
    fy_free(proofs);
    return status;
}
