/* judge.c - a plan that came from outside: is it right by what it says of itself? */
#include "oracle/oracle.h"

#include <stdlib.h>

enum { ELEMENTS = 4096 };

static bool can_describe(const ferry_layout_t *layout) {
    bool can = ferry_layout_nranks(layout) <= ORC_RANKS;
    for (uint32_t a = 0; can && a < ferry_layout_naxes(layout); a++) {
        const ferry_placement_t *p = ferry_layout_placement(layout, a);
        can = p->nsizes <= ORC_PARTS && p->nlengths <= ORC_PARTS &&
              (p->kind != FERRY_SHARD || (p->arg <= UINT32_MAX && p->unit <= UINT32_MAX));
    }
    return can;
}

/* False when the tensor is too large for the oracle. */
static bool describe(const ferry_plan_t *plan, uint32_t ordinal, orc_tensor_t *tensor) {
    ferry_plan_tensor_t have;
    ferry_plan_tensor(plan, ordinal, &have);
    uint64_t elements = 1;
    bool can = have.ndim <= ORC_DIMS && can_describe(have.source_layout) &&
               can_describe(have.target_layout);
    for (uint32_t d = 0; can && d < have.ndim; d++) {
        tensor->shape[d] = have.shape[d];
        elements *= have.shape[d] > 0 && have.shape[d] <= ELEMENTS ? have.shape[d] : 1;
        can = have.shape[d] <= ELEMENTS && elements <= ELEMENTS;
    }
    if (can) {
        tensor->ndim = have.ndim;
        orc_from_ferry(have.source_layout, &tensor->source);
        orc_from_ferry(have.target_layout, &tensor->target);
    }
    return can;
}

bool orc_judge(const ferry_plan_t *plan) {
    uint32_t count = ferry_plan_ntensors(plan);
    bool small = count <= ORC_TENSORS && ferry_plan_rank(plan) == FERRY_RANK_NONE;
    orc_case_t *c = orc_alloc(1, sizeof *c);
    for (uint32_t t = 0; small && t < count; t++) {
        small = describe(plan, t, &c->tensors[t]);
    }
    bool ok = true;
    if (small) {
        c->ntensors = count;
        ok = orc_case_open(c);
        orc_transfers_t all = orc_collect(c, plan);
        ok = ok && orc_execute(c, &all);
        free(all.at);
        orc_case_close(c);
    }
    free(c);
    return ok;
}
