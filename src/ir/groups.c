/* groups.c - the reduce groups of Partial sources, as far as they concern one rank.
 *
 * Asking the plan for a group costs as much as the group is large, and each source has thousands of
 * transfers; so the answer is kept per source layout and source. Groups of the same ranks and ops are one
 * partial, whichever tensors they come from.
 *
 * Invariant: a partial is numbered only when a transfer that concerns the rank needs it. So a whole plan,
 * which shows other ranks' groups as well, gives the same numbers as the rank's part. */
#include <string.h>

#include "base/fail.h"
#include "ir/ir.h"

void fy_groups_init(fy_groups_t *groups, uint32_t rank, fy_arena_t *arena) {
    *groups = (fy_groups_t){.rank = rank, .arena = arena};
}

void fy_groups_fini(fy_groups_t *groups) {
    fy_free(groups->partials);
    fy_free(groups->known);
    fy_free(groups->ranks);
    fy_index_fini(&groups->partial_index);
    fy_index_fini(&groups->known_index);
}

static ferry_status_t read_group(fy_groups_t *groups, const ferry_plan_t *plan, uint32_t tensor,
                                 uint32_t source, ferry_error_t *err) {
    ferry_reduce_t *reduce = &groups->read.reduce;
    FY_TRY(ferry_plan_reduce(plan, tensor, source, reduce, groups->ranks, groups->ranks_cap, err));
    if (reduce->nranks > groups->ranks_cap) {
        if (!fy_reserve(&groups->ranks, &groups->ranks_cap, reduce->nranks,
                        sizeof *groups->ranks)) {
            return fy_fail_nomem(err, "the ranks of a reduce group");
        }
        FY_TRY(
            ferry_plan_reduce(plan, tensor, source, reduce, groups->ranks, groups->ranks_cap, err));
    }
    groups->read.ranks = groups->ranks;
    return FERRY_OK;
}

static bool has_rank(const ferry_partial_t *group, uint32_t rank) {
    for (uint32_t i = 0; i < group->reduce.nranks; i++) {
        if (group->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* ---- partials ----------------------------------------------------------------------------------- */

static bool same_partial(const void *context, uint32_t id) {
    const fy_groups_t *groups = context;
    const ferry_partial_t *a = &groups->read;
    const ferry_partial_t *b = &groups->partials[id];
    if (a->reduce.naxes != b->reduce.naxes || a->reduce.nranks != b->reduce.nranks) {
        return false;
    }
    for (uint32_t i = 0; i < a->reduce.naxes; i++) {
        if (a->reduce.sizes[i] != b->reduce.sizes[i] || a->reduce.ops[i] != b->reduce.ops[i]) {
            return false;
        }
    }
    return memcmp(a->ranks, b->ranks, a->reduce.nranks * sizeof *a->ranks) == 0;
}

/* Gives the group that was read last its number. */
static ferry_status_t number(fy_groups_t *groups, uint32_t *partial_p, ferry_error_t *err) {
    const ferry_partial_t *read = &groups->read;
    uint64_t hash = fy_hash_list_u32(read->reduce.naxes, read->ranks, read->reduce.nranks);
    uint32_t id = fy_index_find(&groups->partial_index, hash, same_partial, groups);
    if (id == FY_INDEX_NONE) {
        uint32_t *ranks =
            fy_arena_copy(groups->arena, read->ranks, read->reduce.nranks, sizeof *ranks);
        if (ranks == NULL ||
            !fy_reserve(&groups->partials, &groups->partials_cap, groups->npartials + 1,
                        sizeof *groups->partials) ||
            !fy_index_add(&groups->partial_index, hash, (uint32_t)groups->npartials)) {
            return fy_fail_nomem(err, "a reduce group");
        }
        id = (uint32_t)groups->npartials++;
        groups->partials[id] = (ferry_partial_t){read->reduce, ranks};
    }
    *partial_p = id;
    return FERRY_OK;
}

/* ---- what is known of a source ---------------------------------------------------------------- */

typedef struct wanted {
    const fy_groups_t *groups;
    const ferry_layout_t *layout;
    uint32_t source;
} wanted_t;

static bool same_known(const void *context, uint32_t id) {
    const wanted_t *wanted = context;
    const fy_known_t *known = &wanted->groups->known[id];
    return known->layout == wanted->layout && known->source == wanted->source;
}

/* Finds what is known of the transfer's source, or asks the plan. */
static ferry_status_t look_up(fy_groups_t *groups, const ferry_plan_t *plan,
                              const ferry_layout_t *layout, const ferry_transfer_t *transfer,
                              fy_known_t **known_p, ferry_error_t *err) {
    wanted_t wanted = {groups, layout, transfer->source};
    uint64_t hash = fy_hash_u64((uintptr_t)layout, transfer->source);
    uint32_t id = fy_index_find(&groups->known_index, hash, same_known, &wanted);
    if (id == FY_INDEX_NONE) {
        FY_TRY(read_group(groups, plan, transfer->tensor, transfer->source, err));
        if (!fy_reserve(&groups->known, &groups->known_cap, groups->nknown + 1,
                        sizeof *groups->known) ||
            !fy_index_add(&groups->known_index, hash, (uint32_t)groups->nknown)) {
            return fy_fail_nomem(err, "a reduce group");
        }
        id = (uint32_t)groups->nknown++;
        groups->known[id] = (fy_known_t){layout, transfer->source,
                                         has_rank(&groups->read, groups->rank), FERRY_INDEX_NONE};
    }
    *known_p = &groups->known[id];
    return FERRY_OK;
}

ferry_status_t fy_groups_find(fy_groups_t *groups, const ferry_plan_t *plan,
                              const ferry_layout_t *layout, const ferry_transfer_t *transfer,
                              fy_known_t *known_p, ferry_error_t *err) {
    fy_known_t *known = NULL;
    FY_TRY(look_up(groups, plan, layout, transfer, &known, err));
    bool concerned = known->is_member || transfer->target == groups->rank;
    if (concerned && known->partial == FERRY_INDEX_NONE) {
        FY_TRY(read_group(groups, plan, transfer->tensor, transfer->source, err));
        FY_TRY(number(groups, &known->partial, err));
    }
    *known_p = *known;
    return FERRY_OK;
}
