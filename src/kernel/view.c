/* view.c - making and checking views.
 *
 * What a view touches is computed here once, with every step checked, so that those who walk a view
 * later may add offsets without asking again: all of them lie between `low` and `high`. */
#include <ferry/view.h>

#include "base/checked.h"
#include "base/fail.h"

/* Steps of the search for overlaps before it gives up. */
#define OVERLAP_STEPS 1000000

static ferry_status_t check_head(const ferry_view_t *view, ferry_error_t *err) {
    if (ferry_dtype_bits(view->dtype) == 0) {
        return fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)view->dtype);
    }
    if (view->ndim > FERRY_MAX_DIMS) {
        return fy_fail(err, FERRY_INVALID, "a view has %u dims, at most %d", view->ndim,
                       FERRY_MAX_DIMS);
    }
    return FERRY_OK;
}

/* Every dtype takes whole bytes today; ferry_view_extent is where that is checked. */
static int64_t width_of(ferry_dtype_t dtype) {
    return (int64_t)(ferry_dtype_bits(dtype) / 8);
}

ferry_status_t ferry_view_elements(const ferry_view_t *view, uint64_t *elements_p,
                                   ferry_error_t *err) {
    FY_NEED(view, err);
    FY_NEED(elements_p, err);
    FY_TRY(check_head(view, err));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 0) {
            *elements_p = 0;
            return FERRY_OK;
        }
    }
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (!fy_mul_u64(elements, view->shape[i], &elements) || elements > INT64_MAX) {
            return fy_fail(err, FERRY_OVERFLOW, "the elements of a view pass 63 bits");
        }
    }
    *elements_p = elements;
    return FERRY_OK;
}

ferry_status_t ferry_view_contiguous(void *data, ferry_dtype_t dtype, uint32_t ndim,
                                     const uint64_t *shape, ferry_view_t *view_p,
                                     ferry_error_t *err) {
    FY_NEED_ARRAY(shape, ndim, err);
    FY_NEED(view_p, err);
    ferry_view_t view = {.data = data, .dtype = dtype, .ndim = ndim};
    FY_TRY(check_head(&view, err));
    for (uint32_t i = 0; i < ndim; i++) {
        view.shape[i] = shape[i];
    }
    uint64_t stride = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        view.strides[i] = (int64_t)stride;
        uint64_t extent = fy_max_u64(shape[i], 1); /* an empty dim gives the others no gaps */
        if (!fy_mul_u64(stride, extent, &stride) || stride > (uint64_t)(INT64_MAX / 8)) {
            return fy_fail(err, FERRY_OVERFLOW, "the bytes of a view pass 63 bits");
        }
    }
    *view_p = view;
    return FERRY_OK;
}

ferry_status_t ferry_view_slice(const ferry_view_t *view, const uint64_t *lo,
                                const uint64_t *extent, ferry_view_t *view_p, ferry_error_t *err) {
    FY_NEED(view, err);
    FY_NEED(view_p, err);
    FY_NEED_ARRAY(lo, view->ndim, err);
    FY_NEED_ARRAY(extent, view->ndim, err);
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    ferry_view_t slice = *view;
    int64_t offset = 0;
    bool empty = low == high;
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (lo[i] > view->shape[i] || extent[i] > view->shape[i] - lo[i]) {
            ferry_status_t status =
                fy_fail(err, FERRY_INVALID, "a slice leaves its view in dim %u", i);
            fy_error_region(err, view->ndim, lo, extent);
            return status;
        }
        slice.shape[i] = extent[i];
        empty = empty || extent[i] == 0;
    }
    /* The first element of a slice that has one lies in the view, so nothing here can overflow. */
    for (uint32_t i = 0; i < view->ndim && !empty; i++) {
        offset += (int64_t)lo[i] * view->strides[i];
    }
    if (offset != 0) {
        slice.data = (uint8_t *)view->data + offset * width_of(view->dtype);
    }
    *view_p = slice;
    return FERRY_OK;
}

ferry_status_t ferry_view_transpose(const ferry_view_t *view, const uint32_t *perm,
                                    ferry_view_t *view_p, ferry_error_t *err) {
    FY_NEED(view, err);
    FY_NEED(view_p, err);
    FY_NEED_ARRAY(perm, view->ndim, err);
    FY_TRY(check_head(view, err));
    ferry_view_t turned = *view;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (perm[i] >= view->ndim || (seen >> perm[i] & 1) != 0) {
            return fy_fail(err, FERRY_INVALID, "perm is no permutation of %u dims", view->ndim);
        }
        seen |= UINT32_C(1) << perm[i];
        turned.shape[i] = view->shape[perm[i]];
        turned.strides[i] = view->strides[perm[i]];
    }
    *view_p = turned;
    return FERRY_OK;
}

/* Adds (extent - 1) * stride to the end that it moves. */
static bool stretch(uint64_t extent, int64_t stride, int64_t *low, int64_t *high) {
    int64_t reach = 0;
    if (extent - 1 > INT64_MAX || __builtin_mul_overflow((int64_t)(extent - 1), stride, &reach)) {
        return extent == 1 || stride == 0;
    }
    int64_t *end = reach < 0 ? low : high;
    return !__builtin_add_overflow(*end, reach, end);
}

ferry_status_t ferry_view_extent(const ferry_view_t *view, int64_t *low_p, int64_t *high_p,
                                 ferry_error_t *err) {
    FY_NEED(view, err);
    FY_NEED(low_p, err);
    FY_NEED(high_p, err);
    uint64_t elements = 0;
    FY_TRY(ferry_view_elements(view, &elements, err));
    int64_t low = 0;
    int64_t high = 0;
    if (elements == 0) {
        *low_p = 0;
        *high_p = 0;
        return FERRY_OK;
    }
    if (view->data == NULL) {
        return fy_fail(err, FERRY_INVALID, "a view with elements has no memory");
    }
    bool fits = true;
    for (uint32_t i = 0; i < view->ndim && fits; i++) {
        fits = stretch(view->shape[i], view->strides[i], &low, &high);
    }
    int64_t width = width_of(view->dtype);
    fits = fits && !__builtin_mul_overflow(low, width, &low) &&
           !__builtin_mul_overflow(high, width, &high) &&
           !__builtin_add_overflow(high, width, &high);
    uintptr_t at = (uintptr_t)view->data;
    if (!fits || at < UINT64_C(0) - (uint64_t)low || UINTPTR_MAX - at < (uint64_t)high) {
        return fy_fail(err, FERRY_OVERFLOW, "a view leaves the address space");
    }
    *low_p = low;
    *high_p = high;
    return FERRY_OK;
}

/* ---- overlaps ---- */

typedef struct span {
    uint64_t extent; /* at least 2 */
    uint64_t stride; /* its magnitude; a sign only mirrors the dim */
} span_t;

/* Whether some d_i with |d_i| < extent_i, from span `at` on, have sum d_i * stride_i = want. Spans are
 * sorted by falling stride; reach[i] is the most that the spans from i on can give. With `any` false,
 * all d_i = 0 does not count, and by symmetry the first other one may be taken as positive. */
static bool hits(const span_t *spans, const uint64_t *reach, uint32_t at, uint32_t count,
                 int64_t want, bool any, uint32_t *steps) {
    if (at == count) {
        return any && want == 0;
    }
    uint64_t size = want < 0 ? UINT64_C(0) - (uint64_t)want : (uint64_t)want;
    if (*steps == 0 || size > reach[at]) {
        return false;
    }
    (*steps)--;
    uint64_t rest = reach[at + 1];
    int64_t stride = (int64_t)spans[at].stride;
    int64_t most = (int64_t)spans[at].extent - 1;
    /* d must bring want within what the later spans can give. */
    int64_t first = (int64_t)((size > rest ? size - rest : 0) / spans[at].stride);
    int64_t last = (int64_t)((size + rest) / spans[at].stride);
    int64_t sign = want < 0 ? -1 : 1;
    if (any && size <= rest) {
        first = -(int64_t)((rest - size) / spans[at].stride);
        first = first < -most ? -most : first;
    }
    last = last > most ? most : last;
    for (int64_t d = first; d <= last && *steps > 0; d++) {
        if (hits(spans, reach, at + 1, count, want - sign * d * stride, any || d != 0, steps)) {
            return true;
        }
    }
    return false;
}

ferry_status_t ferry_view_overlaps(const ferry_view_t *view, bool *overlaps_p, ferry_error_t *err) {
    FY_NEED(overlaps_p, err);
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    span_t spans[FERRY_MAX_DIMS];
    uint64_t reach[FERRY_MAX_DIMS + 1];
    uint32_t count = 0;
    *overlaps_p = false;
    for (uint32_t i = 0; i < view->ndim && low != high; i++) {
        if (view->shape[i] == 1) {
            continue;
        }
        int64_t stride = view->strides[i];
        if (stride == 0) {
            *overlaps_p = true;
            return FERRY_OK;
        }
        span_t span = {view->shape[i],
                       stride < 0 ? UINT64_C(0) - (uint64_t)stride : (uint64_t)stride};
        uint32_t at = count++;
        for (; at > 0 && spans[at - 1].stride < span.stride; at--) {
            spans[at] = spans[at - 1];
        }
        spans[at] = span;
    }
    reach[count] = 0;
    for (uint32_t i = count; i-- > 0;) {
        reach[i] = reach[i + 1] + (spans[i].extent - 1) * spans[i].stride;
    }
    uint32_t steps = OVERLAP_STEPS;
    *overlaps_p = hits(spans, reach, 0, count, 0, false, &steps);
    if (steps == 0 && !*overlaps_p) {
        return fy_fail(err, FERRY_UNSUPPORTED, "cannot tell whether elements of a view overlap");
    }
    return FERRY_OK;
}
