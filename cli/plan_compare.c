/* plan_compare.c - what two plans differ in.
 *
 * Ordinals mean nothing across plans that hold other tensors, so both are first merged by name. Task
 * ids ascend by (tensor, target, piece) and ordinals by name: in merged numbers both walks ascend
 * alike, and one pass over each finds every difference. */
#include "plan_compare.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

void plan_compare_fini(plan_compare_t *compare) {
    free(compare->tensors);
    *compare = (plan_compare_t){0};
}

bool plan_compare_equal(const plan_compare_t *compare) {
    return !compare->ranks_differ && !compare->flags_differ && !compare->hashes_differ &&
           compare->hosts_differ == 0 && compare->ntensor_samples == 0 && compare->nsamples == 0;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

const char *plan_tensor_difference(const ferry_plan_tensor_t *a, const ferry_plan_tensor_t *b) {
    if (a->ndim != b->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) != 0) {
        return "shape";
    }
    if (a->source_dtype != b->source_dtype || a->target_dtype != b->target_dtype) {
        return "dtype";
    }
    if (!ferry_layout_equal(a->source_layout, b->source_layout)) {
        return "source layout";
    }
    if (!ferry_layout_equal(a->target_layout, b->target_layout)) {
        return "target layout";
    }
    return NULL;
}

static void note_tensor(plan_compare_t *compare, plan_tensor_pair_t pair) {
    if (compare->ntensor_samples < PLAN_COMPARE_SAMPLES) {
        compare->tensor_samples[compare->ntensor_samples++] = pair;
    }
}

/* Adds the next tensor in name order and moves the ordinals past it. */
static void merge_one(plan_compare_t *compare, uint32_t *i_p, uint32_t *j_p) {
    ferry_plan_tensor_t a = {0};
    ferry_plan_tensor_t b = {0};
    int order = 0;
    if (*i_p == ferry_plan_ntensors(compare->a)) {
        order = 1;
    } else if (*j_p == ferry_plan_ntensors(compare->b)) {
        order = -1;
    } else {
        ferry_plan_tensor(compare->a, *i_p, &a);
        ferry_plan_tensor(compare->b, *j_p, &b);
        order = strcmp(a.name, b.name);
    }
    plan_tensor_pair_t pair = {UINT32_MAX, UINT32_MAX};
    if (order <= 0) {
        pair.a = (*i_p)++;
    }
    if (order >= 0) {
        pair.b = (*j_p)++;
    }
    compare->tensors[compare->ntensors++] = pair;
    bool changed = order == 0 && plan_tensor_difference(&a, &b) != NULL;
    compare->tensors_only_a += order < 0 ? 1U : 0U;
    compare->tensors_only_b += order > 0 ? 1U : 0U;
    compare->tensors_changed += changed ? 1U : 0U;
    if (order != 0 || changed) {
        note_tensor(compare, pair);
    }
}

static ferry_status_t merge_tensors(plan_compare_t *compare, ferry_error_t *err) {
    uint32_t na = ferry_plan_ntensors(compare->a);
    uint32_t nb = ferry_plan_ntensors(compare->b);
    compare->tensors = calloc((size_t)na + nb + 1, sizeof *compare->tensors);
    if (compare->tensors == NULL) {
        return cli_fail_nomem(err);
    }
    for (uint32_t i = 0, j = 0; i < na || j < nb;) {
        merge_one(compare, &i, &j);
    }
    return FERRY_OK;
}

/* ---- hosts ------------------------------------------------------------------------------------- */

/* A rank that one of the maps leaves out differs from any host. */
static void compare_hosts(plan_compare_t *compare) {
    size_t na = 0;
    size_t nb = 0;
    const uint32_t *a = ferry_plan_hosts(compare->a, &na);
    const uint32_t *b = ferry_plan_hosts(compare->b, &nb);
    for (size_t i = 0; i < na || i < nb; i++) {
        compare->hosts_differ += i >= na || i >= nb || a[i] != b[i] ? 1U : 0U;
    }
}

/* ---- transfers --------------------------------------------------------------------------------- */

/* A walk through one plan in merged numbers. */
typedef struct walk {
    const ferry_plan_t *plan;
    const plan_tensor_pair_t *tensors;
    bool is_b;
    bool more;
    ferry_plan_cursor_t cursor;
    ferry_transfer_t transfer;
    size_t merged; /* place of the transfer's tensor among both plans' */
} walk_t;

static void walk_next(walk_t *walk) {
    walk->more = ferry_plan_next(walk->plan, &walk->cursor, &walk->transfer);
    if (walk->more) {
        const plan_tensor_pair_t *pair = &walk->tensors[walk->merged];
        while ((walk->is_b ? pair->b : pair->a) != walk->transfer.tensor) {
            pair++;
            walk->merged++;
        }
    }
}

static int order_u64(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int order_walks(const walk_t *a, const walk_t *b) {
    if (!a->more || !b->more) {
        return a->more ? -1 : 1;
    }
    int order = order_u64(a->merged, b->merged);
    if (order == 0) {
        order = order_u64(a->transfer.target, b->transfer.target);
    }
    return order != 0 ? order : order_u64(a->transfer.piece, b->transfer.piece);
}

static bool same_transfer(const ferry_transfer_t *a, const ferry_transfer_t *b) {
    size_t length = a->ndim * sizeof a->extent[0];
    return a->source == b->source && a->stage == b->stage && a->after == b->after &&
           a->elements == b->elements && a->bytes == b->bytes && a->ndim == b->ndim &&
           memcmp(a->source_lo, b->source_lo, length) == 0 &&
           memcmp(a->target_lo, b->target_lo, length) == 0 &&
           memcmp(a->extent, b->extent, length) == 0;
}

static void note_transfer(plan_compare_t *compare, const walk_t *a, const walk_t *b) {
    if (compare->nsamples < PLAN_COMPARE_SAMPLES) {
        plan_transfer_pair_t *sample = &compare->samples[compare->nsamples++];
        sample->in_a = a != NULL;
        sample->in_b = b != NULL;
        if (a != NULL) {
            sample->a = a->transfer;
        }
        if (b != NULL) {
            sample->b = b->transfer;
        }
    }
}

static void compare_transfers(plan_compare_t *compare) {
    walk_t a = {.plan = compare->a, .tensors = compare->tensors};
    walk_t b = {.plan = compare->b, .tensors = compare->tensors, .is_b = true};
    walk_next(&a);
    walk_next(&b);
    while (a.more || b.more) {
        int order = order_walks(&a, &b);
        if (order < 0) {
            compare->removed++;
            note_transfer(compare, &a, NULL);
        } else if (order > 0) {
            compare->added++;
            note_transfer(compare, NULL, &b);
        } else if (same_transfer(&a.transfer, &b.transfer)) {
            compare->same++;
        } else {
            compare->changed++;
            note_transfer(compare, &a, &b);
        }
        if (order <= 0) {
            walk_next(&a);
        }
        if (order >= 0) {
            walk_next(&b);
        }
    }
}

ferry_status_t plan_compare_init(plan_compare_t *compare, const ferry_plan_t *a,
                                 const ferry_plan_t *b, ferry_error_t *err) {
    *compare = (plan_compare_t){.a = a, .b = b};
    compare->ranks_differ = ferry_plan_rank(a) != ferry_plan_rank(b);
    compare->flags_differ = ferry_plan_flags(a) != ferry_plan_flags(b);
    compare->hashes_differ = ferry_plan_hash(a) != ferry_plan_hash(b);
    ferry_status_t status = merge_tensors(compare, err);
    if (status == FERRY_OK) {
        compare_hosts(compare);
        compare_transfers(compare);
    }
    return status;
}
