/* plan.c - creating a plan and walking it. */
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"

static ferry_status_t check_params(const ferry_plan_params_t *params, ferry_error_t *err) {
    const uint32_t known = FERRY_PLAN_STRICT | FERRY_PLAN_ALLOW_CAST | FERRY_PLAN_PART;
    if (params == NULL || params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "plan parameters of size %zu, expected %zu (FERRY_PLAN_PARAMS_INIT)",
                       params == NULL ? (size_t)0 : params->size, sizeof *params);
    }
    if ((params->flags & ~known) != 0) {
        return fy_fail(err, FERRY_INVALID, "unknown plan flags 0x%" PRIx32, params->flags & ~known);
    }
    if ((params->flags & FERRY_PLAN_PART) != 0 && params->rank > FERRY_MAX_RANK) {
        return fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " is above the largest, %d",
                       params->rank, FERRY_MAX_RANK);
    }
    FY_NEED_ARRAY(params->sources, params->nsources, err);
    FY_NEED_ARRAY(params->targets, params->ntargets, err);
    FY_NEED_ARRAY(params->hosts, params->nhosts, err);
    if (params->nhosts > (size_t)FERRY_MAX_RANK + 1) {
        return fy_fail(err, FERRY_OVERFLOW, "a host map of %zu ranks, at most %d are possible",
                       params->nhosts, FERRY_MAX_RANK + 1);
    }
    return FERRY_OK;
}

static ferry_status_t plan_build(ferry_plan_t *plan, const ferry_plan_params_t *params,
                                 ferry_error_t *err) {
    plan->flags = params->flags & ~(uint32_t)FERRY_PLAN_PART;
    plan->rank = (params->flags & FERRY_PLAN_PART) != 0 ? params->rank : FERRY_RANK_NONE;
    plan->hosts = fy_arena_copy(&plan->arena, params->hosts, params->nhosts, sizeof *plan->hosts);
    plan->nhosts = params->nhosts;
    if (plan->hosts == NULL) {
        return fy_fail_nomem(err, "the host map of a plan");
    }
    FY_TRY(fy_plan_match(plan, params, err));
    FY_TRY(fy_plan_hash_input(plan, &plan->hash, err));
    FY_TRY(fy_spread_assign(plan, err));
    return fy_plan_make_moves(plan, err);
}

ferry_status_t ferry_plan_create(const ferry_plan_params_t *params, ferry_plan_t **plan_p,
                                 ferry_error_t *err) {
    FY_NEED(plan_p, err);
    FY_TRY(check_params(params, err));
    ferry_plan_t *plan = fy_alloc_zero(1, sizeof *plan);
    if (plan == NULL) {
        return fy_fail_nomem(err, "a plan");
    }
    ferry_status_t status = plan_build(plan, params, err);
    if (status != FERRY_OK) {
        ferry_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return FERRY_OK;
}

void ferry_plan_destroy(ferry_plan_t *plan) {
    if (plan == NULL) {
        return;
    }
    for (size_t s = 0; s < plan->nsides; s++) {
        ferry_layout_destroy(plan->sides[s].layout);
    }
    fy_free(plan->sides);
    fy_free(plan->patterns);
    fy_free(plan->spreads);
    fy_free(plan->moves);
    fy_index_fini(&plan->side_index);
    fy_index_fini(&plan->pattern_index);
    fy_arena_fini(&plan->arena);
    fy_free(plan);
}

uint32_t ferry_plan_ntensors(const ferry_plan_t *plan) {
    return plan->ntensors;
}

void ferry_plan_tensor(const ferry_plan_t *plan, uint32_t ordinal, ferry_plan_tensor_t *tensor_p) {
    const fy_pattern_t *p = fy_plan_pattern_of(plan, ordinal);
    *tensor_p = (ferry_plan_tensor_t){
        plan->tensors[ordinal].name,
        p->ndim,
        p->shape,
        p->source_dtype,
        p->target_dtype,
        p->wire_dtype,
        plan->sides[p->source].layout,
        plan->sides[p->target].layout,
    };
}

uint32_t ferry_plan_rank(const ferry_plan_t *plan) {
    return plan->rank;
}

uint32_t ferry_plan_flags(const ferry_plan_t *plan) {
    return plan->flags;
}

const uint32_t *ferry_plan_hosts(const ferry_plan_t *plan, size_t *count_p) {
    *count_p = plan->nhosts;
    return plan->hosts;
}

uint64_t ferry_plan_hash(const ferry_plan_t *plan) {
    return plan->hash;
}

uint64_t ferry_plan_ntransfers(const ferry_plan_t *plan) {
    return plan->ntransfers;
}

/* Fills in the box-th box of a move: one segment per dim, last dim fastest. */
static void box_of(const fy_pattern_t *pattern, const fy_move_t *move, const uint32_t *pairs,
                   uint64_t box, ferry_transfer_t *out) {
    out->task_id =
        (((uint64_t)move->tensor << FERRY_TASK_RANK_BITS | move->target) << FERRY_TASK_PIECE_BITS |
         (move->piece + box))
        << FERRY_TASK_PAYLOAD_BITS;
    out->tensor = move->tensor;
    out->source = move->source;
    out->target = move->target;
    out->piece = move->piece + (uint32_t)box;
    out->stage = 0;
    out->after = FERRY_TASK_NONE;
    out->elements = 1;
    out->ndim = pattern->ndim;
    for (uint32_t d = pattern->ndim; d-- > 0;) {
        const fy_cross_t *c = &pattern->cross[d];
        size_t first = c->first_segment[pairs[d]];
        size_t count = c->first_segment[pairs[d] + 1] - first;
        const fy_segment_t *s = &c->segments[first + (count > 1 ? box % count : 0)];
        box = count > 1 ? box / count : box;
        out->source_lo[d] = s->source_lo;
        out->target_lo[d] = s->target_lo;
        out->extent[d] = s->extent;
        out->elements *= s->extent;
    }
    out->bytes = fy_wire_bytes(pattern, out->elements);
}

bool ferry_plan_next(const ferry_plan_t *plan, ferry_plan_cursor_t *cursor,
                     ferry_transfer_t *transfer_p) {
    if (cursor->move >= plan->nmoves) {
        return false;
    }
    const fy_move_t *move = &plan->moves[cursor->move];
    const fy_pattern_t *pattern = fy_plan_pattern_of(plan, move->tensor);
    uint32_t pairs[FERRY_MAX_DIMS];
    uint64_t boxes = 1;
    fy_geom_split(pattern, move->geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        const fy_cross_t *c = &pattern->cross[d];
        boxes *= c->first_segment[pairs[d] + 1] - c->first_segment[pairs[d]];
    }
    box_of(pattern, move, pairs, cursor->box, transfer_p);
    if (++cursor->box == boxes) {
        cursor->box = 0;
        cursor->move++;
    }
    return true;
}

ferry_status_t ferry_plan_reduce(const ferry_plan_t *plan, uint32_t tensor, uint32_t source,
                                 ferry_reduce_t *reduce_p, uint32_t *ranks, size_t cap,
                                 ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(reduce_p, err);
    FY_NEED_ARRAY(ranks, cap, err);
    if (tensor >= plan->ntensors) {
        return fy_fail(err, FERRY_INVALID, "tensor %" PRIu32 " of a plan of %" PRIu32, tensor,
                       plan->ntensors);
    }
    const ferry_layout_t *layout = plan->sides[fy_plan_pattern_of(plan, tensor)->source].layout;
    uint32_t index = 0;
    if (!ferry_layout_find(layout, source, &index)) {
        ferry_status_t status =
            fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " holds no part of the source", source);
        fy_error_tensor(err, plan->tensors[tensor].name);
        return status;
    }
    ferry_reduce_t reduce = {0, 1, {0}, {FERRY_REDUCE_SUM}};
    uint32_t axes[FERRY_MAX_AXES] = {0};
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (layout->placements[a].kind == FERRY_PARTIAL) {
            axes[reduce.naxes] = a;
            reduce.sizes[reduce.naxes] = layout->axes[a].size;
            reduce.ops[reduce.naxes] = layout->placements[a].op;
            reduce.nranks *= layout->axes[a].size;
            reduce.naxes++;
            index -= fy_layout_coordinate(layout, index, a) * layout->strides[a];
        }
    }
    for (uint32_t i = 0; i < reduce.nranks && i < cap; i++) {
        uint32_t rest = i;
        uint32_t at = index;
        for (uint32_t k = reduce.naxes; k-- > 0;) {
            at += rest % reduce.sizes[k] * layout->strides[axes[k]];
            rest /= reduce.sizes[k];
        }
        ranks[i] = layout->ranks[at];
    }
    *reduce_p = reduce;
    return FERRY_OK;
}

uint64_t ferry_plan_pair_hash(const ferry_plan_t *plan, uint32_t source, uint32_t target) {
    uint64_t hash = 0;
    for (size_t i = 0; i < plan->nmoves; i++) {
        if (plan->moves[i].source != source || plan->moves[i].target != target) {
            continue;
        }
        ferry_plan_cursor_t cursor = {i, 0};
        ferry_transfer_t t;
        while (cursor.move == i && ferry_plan_next(plan, &cursor, &t)) {
            hash = fy_hash_u64(hash, source);
            hash = fy_hash_u64(hash, t.task_id);
            hash = fy_hash_u64(hash, t.bytes);
            hash = fy_hash_list_u64(hash, t.source_lo, t.ndim);
            hash = fy_hash_list_u64(hash, t.target_lo, t.ndim);
            hash = fy_hash_list_u64(hash, t.extent, t.ndim);
        }
    }
    return hash;
}
