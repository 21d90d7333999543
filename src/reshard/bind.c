/* bind.c - names become views.
 *
 * The plan says what each rank holds of each tensor; the caller says where it lies. Whatever the two
 * disagree on is found here, with the name of the tensor in the record. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "reshard/session.h"

static uint64_t count_of(uint32_t ndim, const uint64_t *shape) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        elements *= shape[i];
    }
    return elements;
}

/* The plan's ordinal of a name (tensors are in name order), or FERRY_INDEX_NONE. */
static uint32_t find(const fy_session_t *session, const char *name) {
    uint32_t lo = 0;
    uint32_t hi = session->ntensors;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        int order = strcmp(session->bindings[middle].tensor.name, name);
        if (order == 0) {
            return middle;
        }
        if (order < 0) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return FERRY_INDEX_NONE;
}

/* Only floats change into each other. */
static ferry_status_t check_cast(const fy_binding_t *b, ferry_error_t *err) {
    ferry_dtype_t from = b->tensor.source_dtype;
    ferry_dtype_t to = b->tensor.target_dtype;
    if (from == to || b->transformed || (ferry_dtype_is_float(from) && ferry_dtype_is_float(to))) {
        return FERRY_OK;
    }
    ferry_status_t status = fy_fail(err, FERRY_MISMATCH, "%s does not convert to %s",
                                    ferry_dtype_name(from), ferry_dtype_name(to));
    fy_error_tensor(err, b->tensor.name);
    return status;
}

static ferry_status_t describe(fy_session_t *session, ferry_error_t *err) {
    session->ntensors = ferry_plan_ntensors(session->plan);
    session->bindings =
        fy_arena_alloc(&session->arena, session->ntensors, sizeof *session->bindings);
    if (session->bindings == NULL) {
        return fy_fail_nomem(err, "the tensors of a session");
    }
    memset(session->bindings, 0, session->ntensors * sizeof *session->bindings);
    const ferry_transform_t *transform = session->transform;
    for (uint32_t i = 0; i < session->ntensors; i++) {
        fy_binding_t *b = &session->bindings[i];
        const ferry_plan_tensor_t *t = &b->tensor;
        ferry_plan_tensor(session->plan, i, &b->tensor);
        FY_TRY(ferry_layout_local_shape(t->source_layout, t->ndim, t->shape, session->me,
                                        b->source_shape, err));
        FY_TRY(ferry_layout_local_shape(t->target_layout, t->ndim, t->shape, session->me,
                                        b->target_shape, err));
        b->has_source = ferry_layout_find(t->source_layout, session->me, NULL) &&
                        count_of(t->ndim, b->source_shape) > 0;
        b->has_target = ferry_layout_find(t->target_layout, session->me, NULL) &&
                        count_of(t->ndim, b->target_shape) > 0;
        b->transformed =
            transform != NULL && transform->should_transform(transform->context, t->name);
        session->transforms = session->transforms || b->transformed;
        FY_TRY(check_cast(b, err));
    }
    return FERRY_OK;
}

/* One of a binding's views. */
typedef struct end {
    const char *what; /* for messages */
    bool has;
    const uint64_t *shape;
    ferry_dtype_t dtype;
    ferry_view_t *view;
} end_t;

static ferry_status_t wrong_shape(const ferry_bound_t *bound, const end_t *end, uint32_t ndim,
                                  ferry_error_t *err) {
    char given[80];
    char wanted[80];
    fy_text_t text;
    fy_text_init(&text, given, sizeof given);
    fy_text_shape(&text, bound->view.ndim, bound->view.shape);
    fy_text_init(&text, wanted, sizeof wanted);
    fy_text_shape(&text, ndim, end->shape);
    return fy_fail(err, FERRY_MISMATCH, "the %s is %s; the layout gives this rank %s", end->what,
                   given, wanted);
}

static ferry_status_t check_view(const ferry_bound_t *bound, const end_t *end, uint32_t ndim,
                                 ferry_error_t *err) {
    const ferry_view_t *view = &bound->view;
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    if (view->ndim != ndim || memcmp(view->shape, end->shape, ndim * sizeof *view->shape) != 0) {
        return wrong_shape(bound, end, ndim, err);
    }
    if (view->dtype != end->dtype) {
        return fy_fail(err, FERRY_MISMATCH, "the %s is %s; the plan has %s", end->what,
                       ferry_dtype_name(view->dtype), ferry_dtype_name(end->dtype));
    }
    if (view->kind == FERRY_MEM_CUDA) {
        return fy_fail(err, FERRY_UNSUPPORTED, "the %s lies in the memory of a GPU", end->what);
    }
    return FERRY_OK;
}

static ferry_status_t bind_one(const ferry_bound_t *bound, const end_t *end, uint32_t ndim,
                               bool target, ferry_error_t *err) {
    if (end->view->data != NULL) {
        return fy_fail(err, FERRY_INVALID, "the %s is given twice", end->what);
    }
    FY_TRY(check_view(bound, end, ndim, err));
    bool overlaps = false;
    if (target) {
        FY_TRY(ferry_view_overlaps(&bound->view, &overlaps, err));
    }
    if (overlaps) {
        return fy_fail(err, FERRY_INVALID, "the %s has two elements at one address", end->what);
    }
    *end->view = bound->view;
    return FERRY_OK;
}

typedef enum side {
    SOURCES,
    TARGETS,
    OTHER_TARGETS,
} side_t;

static end_t end_of(fy_binding_t *b, side_t side) {
    if (side == SOURCES) {
        return (end_t){"source", b->has_source, b->source_shape, b->tensor.source_dtype,
                       &b->source};
    }
    return (end_t){side == TARGETS ? "target" : "second copy of the target", b->has_target,
                   b->target_shape, b->tensor.target_dtype, &b->target[side == TARGETS ? 0 : 1]};
}

static ferry_status_t bind_list(fy_session_t *session, ferry_tensors_t tensors, side_t side,
                                ferry_error_t *err) {
    for (size_t i = 0; i < tensors.count; i++) {
        const ferry_bound_t *bound = &tensors.list[i];
        if (bound->name == NULL) {
            return fy_fail(err, FERRY_INVALID, "tensor %zu of the %s has no name", i,
                           side == SOURCES ? "sources" : "targets");
        }
        uint32_t ordinal = find(session, bound->name);
        if (ordinal == FERRY_INDEX_NONE) {
            continue; /* the plan does not move it */
        }
        fy_binding_t *b = &session->bindings[ordinal];
        end_t end = end_of(b, side);
        if (side != SOURCES && b->transformed) {
            continue; /* the transform knows where it lies */
        }
        ferry_status_t status =
            end.has ? bind_one(bound, &end, b->tensor.ndim, side != SOURCES, err) : FERRY_OK;
        if (status != FERRY_OK) {
            fy_error_tensor(err, bound->name);
            return status;
        }
        if (side == SOURCES) {
            b->ready = bound->ready;
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_missing(fy_session_t *session, side_t side, ferry_error_t *err) {
    for (uint32_t i = 0; i < session->ntensors; i++) {
        fy_binding_t *b = &session->bindings[i];
        end_t end = end_of(b, side);
        bool wanted = end.has && !(side != SOURCES && b->transformed);
        if (wanted && end.view->data == NULL) {
            ferry_status_t status =
                fy_fail(err, FERRY_MISMATCH, "the plan has a %s here and none is given", end.what);
            fy_error_tensor(err, b->tensor.name);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t bind_side(fy_session_t *session, ferry_tensors_t tensors, side_t side,
                                ferry_error_t *err) {
    if (tensors.count > 0 && tensors.list == NULL) {
        return fy_fail(err, FERRY_INVALID, "%zu tensors and no list", tensors.count);
    }
    FY_TRY(bind_list(session, tensors, side, err));
    return check_missing(session, side, err);
}

ferry_status_t fy_bind(fy_session_t *session, ferry_tensors_t sources, ferry_tensors_t targets,
                       ferry_error_t *err) {
    FY_TRY(describe(session, err));
    FY_TRY(bind_side(session, sources, SOURCES, err));
    FY_TRY(bind_side(session, targets, TARGETS, err));
    if (session->flip) {
        FY_TRY(bind_side(session, session->options.other_targets, OTHER_TARGETS, err));
    }
    return FERRY_OK;
}

/* --- are they still the same? ------------------------------------------------------------------ */

static ferry_status_t compare_list(const fy_session_t *session, ferry_tensors_t tensors,
                                   side_t side, ferry_error_t *err) {
    if (tensors.count > 0 && tensors.list == NULL) {
        return fy_fail(err, FERRY_INVALID, "%zu tensors and no list", tensors.count);
    }
    for (size_t i = 0; i < tensors.count; i++) {
        const ferry_bound_t *bound = &tensors.list[i];
        uint32_t ordinal = bound->name != NULL ? find(session, bound->name) : FERRY_INDEX_NONE;
        if (ordinal == FERRY_INDEX_NONE) {
            continue;
        }
        fy_binding_t *b = &session->bindings[ordinal];
        end_t end = end_of(b, side);
        bool looked_at = end.has && !(side != SOURCES && b->transformed);
        if (looked_at && !fy_same_view(&bound->view, end.view)) {
            ferry_status_t status =
                fy_fail(err, FERRY_MISMATCH, "the %s is not where it was when prepared", end.what);
            fy_error_tensor(err, bound->name);
            return status;
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_session_compare(const ferry_session_t *session, ferry_tensors_t sources,
                                     ferry_tensors_t targets, ferry_error_t *err) {
    FY_NEED(session, err);
    FY_TRY(compare_list(session, sources, SOURCES, err));
    return compare_list(session, targets, TARGETS, err);
}
