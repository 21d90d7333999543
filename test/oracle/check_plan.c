/* check_plan.c - every transfer of a whole plan: its fields, its source, its merging, its group. */
#include "oracle/oracle.h"

#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

static bool check_tensor(const orc_tensor_t *want, const ferry_plan_t *plan, uint32_t ordinal) {
    ferry_plan_tensor_t have;
    ferry_plan_tensor(plan, ordinal, &have);
    uint32_t narrower = ferry_dtype_bits(want->target_dtype) < ferry_dtype_bits(want->source_dtype);
    ferry_dtype_t wire = narrower ? want->target_dtype : want->source_dtype;
    bool ok = strcmp(have.name, want->name) == 0 && have.ndim == want->ndim &&
              have.source_dtype == want->source_dtype && have.target_dtype == want->target_dtype &&
              have.wire_dtype == wire &&
              ferry_layout_equal(have.source_layout, want->source_layout) &&
              ferry_layout_equal(have.target_layout, want->target_layout);
    for (uint32_t d = 0; ok && d < want->ndim; d++) {
        ok = have.shape[d] == want->shape[d] * orc_scale(want, d);
    }
    return ok || orc_fail("tensor %u is not %s as it was given", ordinal, want->name);
}

static bool check_transfer(const orc_case_t *c, const ferry_transfer_t *x) {
    if (x->tensor >= c->ntensors) {
        return orc_fail("task %llx: tensor %u of %u", (unsigned long long)x->task_id, x->tensor,
                        c->ntensors);
    }
    const orc_tensor_t *tensor = &c->tensors[x->tensor];
    uint64_t id = (uint64_t)x->tensor << 44 | (uint64_t)x->target << 24 | (uint64_t)x->piece << 4;
    uint64_t elements = orc_tensor_scale(tensor);
    for (uint32_t d = 0; d < x->ndim; d++) {
        elements *= x->extent[d];
    }
    uint32_t bits = ferry_dtype_bits(ferry_dtype_wire(tensor->source_dtype, tensor->target_dtype));
    if (x->ndim != tensor->ndim || x->task_id != id || x->piece >> FERRY_TASK_PIECE_BITS != 0 ||
        elements == 0 || x->elements != elements || x->bytes != (elements * bits + 7) / 8 ||
        x->stage != 0 || x->after != FERRY_TASK_NONE) {
        return orc_fail("task %llx: a field is wrong (piece %u, %llu elements, %llu bytes)",
                        (unsigned long long)x->task_id, x->piece, (unsigned long long)x->elements,
                        (unsigned long long)x->bytes);
    }
    return true;
}

bool orc_check_fields(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all) {
    if (ferry_plan_ntensors(plan) != c->ntensors || ferry_plan_rank(plan) != FERRY_RANK_NONE ||
        ferry_plan_flags(plan) != c->flags || ferry_plan_ntransfers(plan) != all->count) {
        return orc_fail("plan has %u tensors, rank %u, flags %x, %llu transfers (%zu given)",
                        ferry_plan_ntensors(plan), ferry_plan_rank(plan), ferry_plan_flags(plan),
                        (unsigned long long)ferry_plan_ntransfers(plan), all->count);
    }
    for (uint32_t t = 0; t < c->ntensors; t++) {
        if (!check_tensor(&c->tensors[t], plan, t)) {
            return false;
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        if (!check_transfer(c, &all->at[i])) {
            return false;
        }
        if (i > 0 && all->at[i].task_id <= all->at[i - 1].task_id) {
            return orc_fail("task %llx comes after %llx", (unsigned long long)all->at[i].task_id,
                            (unsigned long long)all->at[i - 1].task_id);
        }
    }
    return true;
}

/* ---- the choice of the source ---- */

/* All holders of one element hold the same region, so the first corner of the box is enough. */
static bool check_source(const orc_case_t *c, const ferry_transfer_t *x) {
    const orc_tensor_t *tensor = &c->tensors[x->tensor];
    uint32_t t = orc_place(&tensor->target, x->target);
    uint64_t corner[ORC_DIMS] = {0};
    for (uint32_t d = 0; d < x->ndim; d++) {
        corner[d] = tensor->to->lists[t][d].at[x->target_lo[d]];
    }
    bool target_known;
    bool source_known;
    bool known;
    uint32_t target_host = orc_case_host(c, x->target, &target_known);
    uint32_t source_host = orc_case_host(c, x->source, &source_known);
    bool near = target_known && source_known && target_host == source_host;
    if (x->source == x->target) {
        return true;
    }
    for (uint32_t s = 0; s < tensor->source.nranks; s++) {
        uint32_t rank = tensor->source.ranks[s];
        bool better = rank == x->target || (!near && target_known &&
                                            orc_case_host(c, rank, &known) == target_host && known);
        if (better && orc_side_holds(tensor->from, s, corner)) {
            return orc_fail("task %llx: rank %u sends to %u what is held by %u, which is nearer",
                            (unsigned long long)x->task_id, x->source, x->target, rank);
        }
    }
    return true;
}

bool orc_check_choice(const orc_case_t *c, const orc_transfers_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        if (!check_source(c, &all->at[i])) {
            return false;
        }
    }
    return true;
}

/* ---- merging ---- */

static uint64_t position(const orc_list_t *list, uint64_t global) {
    uint64_t i = 0;
    while (i < list->count && list->at[i] != global) {
        i++;
    }
    return i;
}

/* What one source sends to one target of a tensor, dim by dim. */
typedef struct pair {
    const orc_list_t *from;
    const orc_list_t *to;
    bool *sent[ORC_DIMS]; /* by place in the target */
    uint64_t transfers;
    uint64_t elements;
} pair_t;

/* Runs of indices that lie side by side on both ends; *count_p is how many indices there are. */
static uint64_t runs_of(const pair_t *pair, uint32_t dim, uint64_t *count_p) {
    uint64_t runs = 0;
    uint64_t last_i = 0;
    uint64_t last_j = 0;
    *count_p = 0;
    for (uint64_t j = 0; j < pair->to[dim].count; j++) {
        if (pair->sent[dim][j]) {
            uint64_t i = position(&pair->from[dim], pair->to[dim].at[j]);
            runs += *count_p == 0 || i != last_i + 1 || j != last_j + 1;
            (*count_p)++;
            last_i = i;
            last_j = j;
        }
    }
    return runs;
}

static bool check_pair(const orc_tensor_t *tensor, const ferry_transfer_t *first,
                       const orc_transfers_t *all) {
    uint32_t t = orc_place(&tensor->target, first->target);
    pair_t pair = {tensor->from->lists[orc_place(&tensor->source, first->source)],
                   tensor->to->lists[t],
                   {NULL},
                   0,
                   0};
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        pair.sent[d] = orc_alloc(pair.to[d].count, sizeof(bool));
    }
    for (const ferry_transfer_t *x = first; x < all->at + all->count; x++) {
        if (x->tensor != first->tensor || x->source != first->source ||
            x->target != first->target) {
            continue;
        }
        pair.transfers++;
        pair.elements += x->elements;
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            memset(pair.sent[d] + x->target_lo[d], 1, x->extent[d]);
        }
    }
    uint64_t least = 1;
    uint64_t elements = orc_tensor_scale(tensor);
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        uint64_t count;
        least *= runs_of(&pair, d, &count);
        elements *= count;
        free(pair.sent[d]);
    }
    if (elements != pair.elements || least != pair.transfers) {
        return orc_fail("tensor %s, %u -> %u: %llu transfers of %llu elements, not %llu of %llu",
                        tensor->name, first->source, first->target,
                        (unsigned long long)pair.transfers, (unsigned long long)pair.elements,
                        (unsigned long long)least, (unsigned long long)elements);
    }
    return true;
}

bool orc_check_merged(const orc_case_t *c, const orc_transfers_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        bool seen = false;
        for (size_t j = i; j-- > 0 && !seen;) {
            const ferry_transfer_t *y = &all->at[j];
            if (y->tensor != x->tensor || y->target != x->target) {
                break; /* ordered by task id: the others are further away still */
            }
            seen = y->source == x->source;
        }
        if (!seen && !check_pair(&c->tensors[x->tensor], x, all)) {
            return false;
        }
    }
    return true;
}

/* ---- reduce groups ---- */

/* Axes of one rank reduce nothing; whether they are listed is left open. */
static void drop_ones(ferry_reduce_t *reduce) {
    uint32_t kept = 0;
    for (uint32_t a = 0; a < reduce->naxes; a++) {
        if (reduce->sizes[a] != 1) {
            reduce->sizes[kept] = reduce->sizes[a];
            reduce->ops[kept++] = reduce->ops[a];
        }
    }
    reduce->naxes = kept;
}

/* The grid as it must be: the places that differ from `place` on Partial axes only, row-major. */
static ferry_reduce_t grid_of(const orc_layout_t *layout, uint32_t place, uint32_t *ranks) {
    ferry_reduce_t reduce;
    memset(&reduce, 0, sizeof reduce);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (layout->axes[a].kind == FERRY_PARTIAL) {
            reduce.sizes[reduce.naxes] = layout->axes[a].size;
            reduce.ops[reduce.naxes++] = layout->axes[a].op;
        }
    }
    for (uint32_t i = 0; i < layout->nranks; i++) {
        bool member = true;
        for (uint32_t a = 0; a < layout->naxes; a++) {
            member = member && (layout->axes[a].kind == FERRY_PARTIAL ||
                                orc_coord(layout, i, a) == orc_coord(layout, place, a));
        }
        if (member) {
            ranks[reduce.nranks++] = layout->ranks[i];
        }
    }
    drop_ones(&reduce);
    return reduce;
}

static bool check_group(const orc_tensor_t *tensor, uint32_t ordinal, const ferry_plan_t *plan,
                        uint32_t place) {
    uint32_t want_ranks[ORC_RANKS];
    uint32_t ranks[ORC_RANKS];
    uint32_t source = tensor->source.ranks[place];
    ferry_reduce_t want = grid_of(&tensor->source, place, want_ranks);
    ferry_reduce_t have;
    memset(&have, 0xff, sizeof have);
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_plan_reduce(plan, ordinal, source, &have, ranks, ORC_RANKS, &err) != FERRY_OK) {
        return orc_fail("group of tensor %u, rank %u: %s", ordinal, source, err.text);
    }
    if (have.naxes > FERRY_MAX_AXES) {
        return orc_fail("group of tensor %u, rank %u: %u axes", ordinal, source, have.naxes);
    }
    drop_ones(&have);
    bool ok = have.naxes == want.naxes && have.nranks == want.nranks &&
              memcmp(ranks, want_ranks, want.nranks * sizeof *ranks) == 0;
    for (uint32_t a = 0; ok && a < want.naxes; a++) {
        ok = have.sizes[a] == want.sizes[a] && have.ops[a] == want.ops[a];
    }
    for (uint32_t i = 0; ok && i < want.nranks; i++) {
        uint32_t member = orc_place(&tensor->source, ranks[i]);
        ok = orc_side_elements(tensor->from, place) == 0 ||
             orc_side_same(tensor->from, place, member);
    }
    return ok || orc_fail("group of tensor %u, rank %u is wrong", ordinal, source);
}

bool orc_check_reduce(const orc_case_t *c, const ferry_plan_t *plan) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        for (uint32_t i = 0; i < c->tensors[t].source.nranks; i++) {
            if (!check_group(&c->tensors[t], t, plan, i)) {
                return false;
            }
        }
    }
    return true;
}
