/* input.c - the tensors of both sides become the plan's.
 *
 * Tensors are matched by name, whatever order they come in. Every way in which the two sides may not
 * fit is found here, with the tensor's name in the record. Invariant: planned tensors are the
 * targets, in name order; that order is their ordinal on every rank. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "plan/plan.h"

/* A pointer that was seen before need not be compared by content again: models share layouts. */
typedef struct seen {
    const ferry_layout_t *layout;
    uint32_t side;
} seen_t;

typedef struct matcher {
    ferry_plan_t *plan;
    const ferry_tensor_t **sources; /* in name order */
    const ferry_tensor_t **targets;
    seen_t *seen;
    size_t nseen;
    size_t seen_cap;
    fy_index_t seen_index;
} matcher_t;

static int by_name(const void *a, const void *b) {
    const ferry_tensor_t *x = *(const ferry_tensor_t *const *)a;
    const ferry_tensor_t *y = *(const ferry_tensor_t *const *)b;
    return strcmp(x->name, y->name);
}

/* One tensor on its own. */
static ferry_status_t check_tensor(const ferry_tensor_t *t, size_t place, const char *side,
                                   ferry_error_t *err) {
    if (t->name == NULL || t->name[0] == '\0') {
        return fy_fail(err, FERRY_INVALID, "%s tensor %zu has no name", side, place);
    }
    ferry_status_t status = FERRY_OK;
    if (t->layout == NULL) {
        status = fy_fail(err, FERRY_INVALID, "has no layout at the %s", side);
    } else if (ferry_dtype_bits(t->dtype) == 0) {
        status = fy_fail(err, FERRY_INVALID, "%d at the %s is no dtype", (int)t->dtype, side);
    } else if (t->ndim > FERRY_MAX_DIMS || (t->ndim > 0 && t->shape == NULL)) {
        status = fy_fail(err, FERRY_INVALID, "%" PRIu32 " dims at the %s, at most %d are possible",
                         t->ndim, side, FERRY_MAX_DIMS);
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, t->name);
    }
    return status;
}

/* Pointers to the tensors in name order, each name once. */
static ferry_status_t sort_tensors(const ferry_tensor_t *tensors, size_t count, const char *side,
                                   const ferry_tensor_t ***sorted_p, ferry_error_t *err) {
    if (count > (size_t)1 << FERRY_TASK_TENSOR_BITS) {
        return fy_fail(err, FERRY_OVERFLOW,
                       "%zu %s tensors, and a task id counts at most %d of them", count, side,
                       1 << FERRY_TASK_TENSOR_BITS);
    }
    const ferry_tensor_t **sorted = fy_alloc(count, sizeof *sorted);
    if (sorted == NULL) {
        return fy_fail_nomem(err, "the tensors of a plan");
    }
    *sorted_p = sorted; /* freed by the matcher, whatever comes */
    bool in_order = true;
    for (size_t i = 0; i < count; i++) {
        FY_TRY(check_tensor(&tensors[i], i, side, err));
        sorted[i] = &tensors[i];
        in_order = in_order && (i == 0 || strcmp(tensors[i - 1].name, tensors[i].name) < 0);
    }
    if (!in_order) {
        qsort(sorted, count, sizeof *sorted, by_name);
    }
    for (size_t i = 1; i < count && !in_order; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) {
            ferry_status_t status =
                fy_fail(err, FERRY_INVALID, "is named twice among the %s tensors", side);
            fy_error_tensor(err, sorted[i]->name);
            return status;
        }
    }
    return FERRY_OK;
}

typedef struct seen_key {
    const matcher_t *matcher;
    const ferry_layout_t *layout;
} seen_key_t;

static bool seen_same(const void *context, uint32_t id) {
    const seen_key_t *key = context;
    return key->matcher->seen[id].layout == key->layout;
}

/* The side of a layout, by pointer where it was met before. */
static ferry_status_t side_of(matcher_t *m, const ferry_layout_t *layout, uint32_t *side_p,
                              ferry_error_t *err) {
    uint64_t hash = fy_hash_u64(0, (uint64_t)(uintptr_t)layout);
    seen_key_t key = {m, layout};
    uint32_t found = fy_index_find(&m->seen_index, hash, seen_same, &key);
    if (found == FY_INDEX_NONE) {
        uint32_t side = 0;
        FY_TRY(fy_plan_side(m->plan, layout, &side, err));
        found = (uint32_t)m->nseen;
        if (!fy_reserve(&m->seen, &m->seen_cap, m->nseen + 1, sizeof *m->seen) ||
            !fy_index_add(&m->seen_index, hash, found)) {
            return fy_fail_nomem(err, "the layouts of a plan");
        }
        m->seen[m->nseen++] = (seen_t){layout, side};
    }
    *side_p = m->seen[found].side;
    return FERRY_OK;
}

static ferry_status_t shapes_differ(const ferry_tensor_t *s, const ferry_tensor_t *t,
                                    ferry_error_t *err) {
    char source[160];
    char target[160];
    fy_text_t text;
    fy_text_init(&text, source, sizeof source);
    fy_text_shape(&text, s->ndim, s->shape);
    fy_text_init(&text, target, sizeof target);
    fy_text_shape(&text, t->ndim, t->shape);
    return fy_fail(err, FERRY_MISMATCH, "shape %s at the source, %s at the target", source, target);
}

static ferry_status_t check_dims(const ferry_layout_t *layout, const ferry_tensor_t *t,
                                 const char *side, ferry_error_t *err) {
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const ferry_placement_t *p = &layout->placements[a];
        if (p->kind == FERRY_SHARD && p->dim >= t->ndim) {
            return fy_fail(err, FERRY_INVALID,
                           "%s layout: axis %" PRIu32 " cuts dim %" PRIu32
                           ", but the tensor has %" PRIu32 " dims",
                           side, a, p->dim, t->ndim);
        }
    }
    return FERRY_OK;
}

/* Both sides of one tensor. */
static ferry_status_t check_pair(uint32_t flags, const ferry_tensor_t *s, const ferry_tensor_t *t,
                                 ferry_error_t *err) {
    if (s->ndim != t->ndim ||
        (s->ndim > 0 && memcmp(s->shape, t->shape, s->ndim * sizeof *s->shape) != 0)) {
        return shapes_differ(s, t, err);
    }
    if (s->dtype != t->dtype && (flags & FERRY_PLAN_ALLOW_CAST) == 0) {
        return fy_fail(err, FERRY_MISMATCH,
                       "dtype %s at the source, %s at the target, and conversion is not allowed",
                       ferry_dtype_name(s->dtype), ferry_dtype_name(t->dtype));
    }
    for (uint32_t a = 0; a < t->layout->naxes; a++) {
        if (t->layout->placements[a].kind == FERRY_PARTIAL) {
            return fy_fail(err, FERRY_UNSUPPORTED,
                           "the target is Partial on axis %" PRIu32 "; only a source can be", a);
        }
    }
    FY_TRY(check_dims(s->layout, s, "source", err));
    return check_dims(t->layout, t, "target", err);
}

static ferry_status_t add_pair(matcher_t *m, const ferry_tensor_t *s, const ferry_tensor_t *t,
                               ferry_error_t *err) {
    ferry_plan_t *plan = m->plan;
    fy_pattern_t key = {0};
    FY_TRY(check_pair(plan->flags, s, t, err));
    FY_TRY(side_of(m, s->layout, &key.source, err));
    FY_TRY(side_of(m, t->layout, &key.target, err));
    key.ndim = t->ndim;
    key.shape = t->shape;
    key.source_dtype = s->dtype;
    key.target_dtype = t->dtype;
    fy_tensor_t *tensor = &plan->tensors[plan->ntensors];
    FY_TRY(fy_plan_pattern(plan, &key, &tensor->pattern, err));
    tensor->name = fy_arena_string(&plan->arena, t->name);
    if (tensor->name == NULL) {
        return fy_fail_nomem(err, "the tensors of a plan");
    }
    plan->ntensors++;
    return FERRY_OK;
}

/* Walks both sorted lists. */
static ferry_status_t match(matcher_t *m, size_t nsources, size_t ntargets, ferry_error_t *err) {
    size_t s = 0;
    for (size_t t = 0; t <= ntargets; t++) {
        const ferry_tensor_t *target = t < ntargets ? m->targets[t] : NULL;
        int order = -1;
        while (s < nsources &&
               (target == NULL || (order = strcmp(m->sources[s]->name, target->name)) < 0)) {
            if ((m->plan->flags & FERRY_PLAN_STRICT) != 0) {
                ferry_status_t status = fy_fail(err, FERRY_MISMATCH, "has a source but no target");
                fy_error_tensor(err, m->sources[s]->name);
                return status;
            }
            s++;
        }
        if (target == NULL) {
            return FERRY_OK;
        }
        ferry_status_t status = FERRY_OK;
        if (s == nsources || order != 0) {
            status = fy_fail(err, FERRY_MISMATCH, "has a target but no source");
        } else {
            status = add_pair(m, m->sources[s++], target, err);
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, target->name);
            return status;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_plan_match(ferry_plan_t *plan, const ferry_plan_params_t *params,
                             ferry_error_t *err) {
    matcher_t m = {0};
    m.plan = plan;
    ferry_status_t status =
        sort_tensors(params->sources, params->nsources, "source", &m.sources, err);
    if (status == FERRY_OK) {
        status = sort_tensors(params->targets, params->ntargets, "target", &m.targets, err);
    }
    if (status == FERRY_OK) {
        plan->tensors = fy_arena_alloc(&plan->arena, params->ntargets, sizeof *plan->tensors);
        status = plan->tensors != NULL ? match(&m, params->nsources, params->ntargets, err)
                                       : fy_fail_nomem(err, "the tensors of a plan");
    }
    fy_free(m.sources);
    fy_free(m.targets);
    fy_free(m.seen);
    fy_index_fini(&m.seen_index);
    return status;
}
