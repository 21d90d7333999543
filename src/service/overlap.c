/* overlap.c - do two views share a byte?
 *
 * They do when sum(stride_k * x_k) = distance has a solution with each x_k in its range, where the x_k
 * are the indices of both views (those of one stride taken together) and the place inside an element.
 * Strides are walked from large to small; what the smaller ones can add up to leaves one or two values
 * for each x_k in every view that people make. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/builtin.h"

typedef struct term {
    int64_t stride; /* positive */
    int64_t lo;
    int64_t hi;
} term_t;

enum { MAX_TERMS = 2 * FERRY_MAX_DIMS + 1 };

typedef struct search {
    term_t terms[MAX_TERMS];
    uint32_t count;
    int64_t least[MAX_TERMS + 1]; /* what the terms from k on add up to */
    int64_t most[MAX_TERMS + 1];
    uint64_t steps;
} search_t;

static void add_term(search_t *search, int64_t stride, int64_t lo, int64_t hi) {
    if (stride == 0 || (lo == 0 && hi == 0)) {
        return;
    }
    if (stride < 0) {
        stride = -stride;
        int64_t swap = lo;
        lo = -hi;
        hi = -swap;
    }
    for (uint32_t i = 0; i < search->count; i++) {
        if (search->terms[i].stride == stride) {
            search->terms[i].lo += lo;
            search->terms[i].hi += hi;
            return;
        }
    }
    search->terms[search->count++] = (term_t){stride, lo, hi};
}

static int by_stride(const void *left, const void *right) {
    const term_t *a = left;
    const term_t *b = right;
    return (a->stride < b->stride) - (a->stride > b->stride);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

/* 1: there is a solution; 0: none; -1: given up. */
static int solve(search_t *search, uint32_t k, int64_t distance) {
    if (distance < search->least[k] || distance > search->most[k]) {
        return 0;
    }
    if (k == search->count) {
        return 1; /* least and most are 0 here */
    }
    if (++search->steps > FY_OVERLAP_STEPS) {
        return -1;
    }
    const term_t *term = &search->terms[k];
    int64_t from = -floor_div(-(distance - search->most[k + 1]), term->stride);
    int64_t to = floor_div(distance - search->least[k + 1], term->stride);
    from = from < term->lo ? term->lo : from;
    to = to > term->hi ? term->hi : to;
    for (int64_t x = from; x <= to; x++) {
        int answer = solve(search, k + 1, distance - x * term->stride);
        if (answer != 0) {
            return answer;
        }
    }
    return 0;
}

static void add_view(search_t *search, const ferry_view_t *view, int64_t sign) {
    int64_t width = (int64_t)(ferry_dtype_bits(view->dtype) / 8);
    for (uint32_t i = 0; i < view->ndim; i++) {
        add_term(search, sign * view->strides[i] * width, 0, (int64_t)view->shape[i] - 1);
    }
}

ferry_status_t fy_views_overlap(const ferry_view_t *a, const ferry_view_t *b, bool *overlap_p,
                                ferry_error_t *err) {
    search_t search = {.count = 0};
    add_view(&search, a, 1);
    add_view(&search, b, -1);
    add_term(&search, 1, 1 - (int64_t)(ferry_dtype_bits(b->dtype) / 8),
             (int64_t)(ferry_dtype_bits(a->dtype) / 8) - 1);
    qsort(search.terms, search.count, sizeof *search.terms, by_stride);
    for (uint32_t k = search.count; k-- > 0;) {
        const term_t *term = &search.terms[k];
        search.least[k] = search.least[k + 1] + term->stride * term->lo;
        search.most[k] = search.most[k + 1] + term->stride * term->hi;
    }
    int64_t distance = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
    int answer = solve(&search, 0, distance);
    if (answer < 0) {
        return fy_fail(err, FERRY_UNSUPPORTED,
                       "cannot tell whether two views overlap: their strides are too odd");
    }
    *overlap_p = answer == 1;
    return FERRY_OK;
}

/* --- the targets of a batch -------------------------------------------------------------------- */

typedef struct span {
    uintptr_t low;
    uintptr_t high;
    uintptr_t reach; /* the highest end of this span and those before it, once they are sorted */
    size_t index;
} span_t;

static int by_low(const void *left, const void *right) {
    const span_t *a = left;
    const span_t *b = right;
    if (a->low != b->low) {
        return a->low < b->low ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static ferry_status_t check_own(const ferry_copy_op_t *op, size_t index, uint32_t rank,
                                ferry_error_t *err) {
    bool overlaps = false;
    FY_TRY(ferry_view_overlaps(&op->view, &overlaps, err));
    if (overlaps) {
        return fy_fail(err, FERRY_MISMATCH,
                       "%s: rank %" PRIu32 ": the target of receive %zu, task id %" PRIu64
                       ", has two elements at one address",
                       FY_SERVICE_NAME, rank, index, op->task_id);
    }
    return FERRY_OK;
}

static ferry_status_t check_spans(const ferry_copy_list_t *list, const span_t *spans, size_t count,
                                  uint32_t rank, ferry_error_t *err) {
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count && spans[j].low < spans[i].high; j++) {
            const ferry_copy_op_t *a = &list->recvs[spans[i].index];
            const ferry_copy_op_t *b = &list->recvs[spans[j].index];
            bool overlap = false;
            FY_TRY(fy_views_overlap(&a->view, &b->view, &overlap, err));
            if (overlap) {
                return fy_fail(err, FERRY_MISMATCH,
                               "%s: rank %" PRIu32 ": the targets of task ids %" PRIu64
                               " and %" PRIu64 " overlap",
                               FY_SERVICE_NAME, rank, a->task_id, b->task_id);
            }
        }
    }
    return FERRY_OK;
}

/* *any_p: the view has bytes. */
static ferry_status_t span_of(const ferry_view_t *view, size_t index, span_t *span_p, bool *any_p,
                              ferry_error_t *err) {
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    uintptr_t data = (uintptr_t)view->data;
    *span_p = (span_t){data + (uintptr_t)low, data + (uintptr_t)high, 0, index};
    *any_p = high > low;
    return FERRY_OK;
}

static void sort_spans(span_t *spans, size_t count) {
    if (count > 0) {
        qsort(spans, count, sizeof *spans, by_low);
    }
    uintptr_t reach = 0;
    for (size_t i = 0; i < count; i++) {
        reach = spans[i].high > reach ? spans[i].high : reach;
        spans[i].reach = reach;
    }
}

static bool same_view(const ferry_view_t *a, const ferry_view_t *b) {
    return a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0 &&
           memcmp(a->strides, b->strides, a->ndim * sizeof *a->strides) == 0;
}

static ferry_status_t check_pair(const ferry_copy_op_t *send, const ferry_copy_op_t *recv,
                                 uint32_t rank, ferry_error_t *err) {
    /* Both ends of a transfer on one rank: it moves within the rank, here onto itself. */
    if (send->task_id == recv->task_id && same_view(&send->view, &recv->view)) {
        return FERRY_OK;
    }
    bool overlap = false;
    FY_TRY(fy_views_overlap(&send->view, &recv->view, &overlap, err));
    if (overlap) {
        return fy_fail(err, FERRY_MISMATCH,
                       "%s: rank %" PRIu32 ": the target of task id %" PRIu64
                       " overlaps the source of task id %" PRIu64,
                       FY_SERVICE_NAME, rank, recv->task_id, send->task_id);
    }
    return FERRY_OK;
}

/* The targets that end behind the source's begin and begin before its end; the last of these first. */
static ferry_status_t check_source(const ferry_copy_list_t *list, const span_t *spans, size_t count,
                                   size_t index, uint32_t rank, ferry_error_t *err) {
    const ferry_copy_op_t *send = &list->sends[index];
    span_t source;
    bool any = false;
    FY_TRY(span_of(&send->view, index, &source, &any, err));
    size_t low = 0;
    size_t high = any ? count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans[middle].low < source.high) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t i = low; i > 0 && spans[i - 1].reach > source.low; i--) {
        if (spans[i - 1].high > source.low) {
            FY_TRY(check_pair(send, &list->recvs[spans[i - 1].index], rank, err));
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_all(const ferry_copy_list_t *list, span_t *spans, uint32_t rank,
                                ferry_error_t *err) {
    size_t count = 0;
    for (size_t i = 0; i < list->nrecvs; i++) {
        bool any = false;
        FY_TRY(check_own(&list->recvs[i], i, rank, err));
        FY_TRY(span_of(&list->recvs[i].view, i, &spans[count], &any, err));
        count += any ? 1 : 0;
    }
    sort_spans(spans, count);
    FY_TRY(check_spans(list, spans, count, rank, err));
    for (size_t i = 0; i < list->nsends; i++) {
        FY_TRY(check_source(list, spans, count, i, rank, err));
    }
    return FERRY_OK;
}

ferry_status_t fy_check_targets(const ferry_copy_list_t *list, uint32_t rank, ferry_error_t *err) {
    span_t *spans = fy_alloc(list->nrecvs, sizeof *spans);
    if (spans == NULL) {
        return fy_fail_nomem(err, "looking at targets");
    }
    ferry_status_t status = check_all(list, spans, rank, err);
    fy_free(spans);
    return status;
}
