/* moves.c - all moves of a plan, or those of one rank.
 *
 * Tensors of one pattern have the same moves but for the turns they take, so the moves of a pattern
 * are worked out once, as a template, and stamped for every tensor. A part keeps what its rank sends,
 * receives, or helps to reduce.
 *
 * Invariant: a template is ordered by target rank, then geom, and numbers pieces as the whole plan
 * does, also where it holds only some of them. */
#include "base/fail.h"
#include "plan/plan.h"

/* One geom into one target. The tensor's turn picks the source. */
typedef struct entry {
    uint32_t target;
    uint32_t piece;
    uint64_t geom;
    uint64_t boxes;
    size_t sources; /* place of the first turn's in the template's list */
    uint32_t turns;
} entry_t;

typedef struct template {
    entry_t *entries;
    size_t count;
    size_t cap;
    uint32_t *sources; /* FERRY_RANK_NONE where the move does not concern the part's rank */
    size_t nsources;
    size_t sources_cap;
    bool made;
}
template_t;

/* Does this move concern the rank of the part? */
static bool concerns(const ferry_plan_t *plan, const fy_pattern_t *pattern, uint32_t source,
                     uint32_t target) {
    return plan->rank == FERRY_RANK_NONE || plan->rank == target || plan->rank == source ||
           fy_side_reduces(&plan->sides[pattern->source], plan->rank, source);
}

static ferry_status_t push_entry(const ferry_plan_t *plan, const fy_pattern_t *pattern,
                                 template_t *tmpl, uint32_t target, uint64_t geom, uint64_t piece,
                                 uint64_t boxes, ferry_error_t *err) {
    fy_choice_t choice;
    fy_choose(plan, pattern, geom, target, &choice);
    if (!fy_reserve(&tmpl->entries, &tmpl->cap, tmpl->count + 1, sizeof *tmpl->entries) ||
        !fy_reserve(&tmpl->sources, &tmpl->sources_cap, tmpl->nsources + choice.turns,
                    sizeof *tmpl->sources)) {
        return fy_fail_nomem(err, "the moves of a plan");
    }
    bool wanted = false;
    for (uint32_t turn = 0; turn < choice.turns; turn++) {
        uint32_t source = fy_choice_rank(plan, &choice, turn);
        bool ours = concerns(plan, pattern, source, target);
        tmpl->sources[tmpl->nsources + turn] = ours ? source : FERRY_RANK_NONE;
        wanted = wanted || ours;
    }
    if (wanted) {
        tmpl->entries[tmpl->count++] =
            (entry_t){target, (uint32_t)piece, geom, boxes, tmpl->nsources, choice.turns};
        tmpl->nsources += choice.turns;
    }
    return FERRY_OK;
}

/* Walks what the target at mesh index `index` receives, geom after geom. */
static ferry_status_t add_target(const ferry_plan_t *plan, const fy_pattern_t *pattern,
                                 template_t *tmpl, uint32_t index, ferry_error_t *err) {
    const ferry_layout_t *layout = plan->sides[pattern->target].layout;
    uint32_t pairs[FERRY_MAX_DIMS];
    uint32_t first[FERRY_MAX_DIMS];
    uint32_t end[FERRY_MAX_DIMS];
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        uint32_t part = fy_layout_part(layout, index, d);
        first[d] = pairs[d] = pattern->cross[d].first_pair[part];
        end[d] = pattern->cross[d].first_pair[part + 1];
        if (first[d] == end[d]) {
            return FERRY_OK; /* it holds nothing */
        }
    }
    uint64_t piece = 0;
    for (;;) {
        uint64_t geom = fy_geom_join(pattern, pairs);
        uint64_t boxes = fy_geom_boxes(pattern, geom);
        FY_TRY(push_entry(plan, pattern, tmpl, layout->ranks[index], geom, piece, boxes, err));
        piece += boxes;
        uint32_t d = pattern->ndim;
        while (d > 0 && ++pairs[d - 1] == end[d - 1]) {
            pairs[d - 1] = first[d - 1];
            d--;
        }
        if (d == 0) {
            return FERRY_OK;
        }
    }
}

/* Adds what the part's rank, as a holder of parts `held`, may have to send to the target at `index`. */
static ferry_status_t add_from_holder(const ferry_plan_t *plan, const fy_pattern_t *pattern,
                                      template_t *tmpl, uint32_t index, const uint32_t *held,
                                      ferry_error_t *err) {
    const ferry_layout_t *layout = plan->sides[pattern->target].layout;
    uint32_t pairs[FERRY_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        const fy_cross_t *c = &pattern->cross[d];
        pairs[d] = fy_cross_find(c, held[d], fy_layout_part(layout, index, d));
        if (pairs[d] == c->npairs) {
            return FERRY_OK;
        }
    }
    uint64_t geom = fy_geom_join(pattern, pairs);
    return push_entry(plan, pattern, tmpl, layout->ranks[index], geom, fy_geom_piece(pattern, geom),
                      fy_geom_boxes(pattern, geom), err);
}

static ferry_status_t template_make(const ferry_plan_t *plan, const fy_pattern_t *pattern,
                                    template_t *tmpl, ferry_error_t *err) {
    const ferry_layout_t *source = plan->sides[pattern->source].layout;
    const ferry_layout_t *target = plan->sides[pattern->target].layout;
    bool whole = plan->rank == FERRY_RANK_NONE;
    uint32_t index = 0;
    bool holds = !whole && ferry_layout_find(source, plan->rank, &index);
    uint32_t held[FERRY_MAX_DIMS] = {0};
    for (uint32_t d = 0; holds && d < pattern->ndim; d++) {
        held[d] = fy_layout_part(source, index, d);
    }
    tmpl->made = true;
    if (pattern->elements == 0 ||
        (!whole && !holds && !ferry_layout_find(target, plan->rank, NULL))) {
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < target->nranks; i++) {
        uint32_t at = target->by_rank[i];
        if (whole || target->ranks[at] == plan->rank) {
            FY_TRY(add_target(plan, pattern, tmpl, at, err));
        } else if (holds) {
            FY_TRY(add_from_holder(plan, pattern, tmpl, at, held, err));
        }
    }
    return FERRY_OK;
}

/* Appends the moves of one tensor. */
static ferry_status_t stamp(ferry_plan_t *plan, uint32_t tensor, const template_t *tmpl,
                            ferry_error_t *err) {
    if (!fy_reserve(&plan->moves, &plan->moves_cap, plan->nmoves + tmpl->count,
                    sizeof *plan->moves)) {
        return fy_fail_nomem(err, "the moves of a plan");
    }
    for (size_t i = 0; i < tmpl->count; i++) {
        const entry_t *e = &tmpl->entries[i];
        uint32_t source = tmpl->sources[e->sources + fy_turn_of(tensor, e->turns)];
        if (source == FERRY_RANK_NONE) {
            continue;
        }
        plan->moves[plan->nmoves++] = (fy_move_t){tensor, source, e->target, e->piece, e->geom};
        plan->ntransfers += e->boxes; /* fits: below 2^20 for each of fewer than 2^44 moves */
    }
    return FERRY_OK;
}

ferry_status_t fy_plan_make_moves(ferry_plan_t *plan, ferry_error_t *err) {
    template_t *templates = fy_alloc_zero(plan->npatterns, sizeof *templates);
    if (templates == NULL) {
        return fy_fail_nomem(err, "the moves of a plan");
    }
    ferry_status_t status = FERRY_OK;
    for (uint32_t t = 0; t < plan->ntensors && status == FERRY_OK; t++) {
        template_t *tmpl = &templates[plan->tensors[t].pattern];
        if (!tmpl->made) {
            status = template_make(plan, fy_plan_pattern_of(plan, t), tmpl, err);
        }
        if (status == FERRY_OK) {
            status = stamp(plan, t, tmpl, err);
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, plan->tensors[t].name);
        }
    }
    for (size_t p = 0; p < plan->npatterns; p++) {
        fy_free(templates[p].entries);
        fy_free(templates[p].sources);
    }
    fy_free(templates);
    return status;
}
