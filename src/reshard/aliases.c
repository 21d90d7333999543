/* aliases.c - sources and targets in one memory.
 *
 * Two tensors of a rank that share bytes, one of them written, are fine in two cases: the session stages
 * everything before it writes (a gate), or both are the very same view of the same tensor and what this rank
 * gets from others is nothing that it sends. The service looks at the views of one batch; this looks
 * at all of them, since passes and buckets come one after the other. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "reshard/session.h"
#include "service/builtin.h"

/* The bytes that a tensor touches. */
typedef struct span {
    uintptr_t lo;
    uintptr_t hi;
    const ferry_view_t *view;
    const fy_binding_t *binding;
    bool written;
} span_t;

static int by_address(const void *left, const void *right) {
    const span_t *a = left;
    const span_t *b = right;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

static ferry_status_t add(span_t *spans, size_t *count, const fy_binding_t *binding,
                          const ferry_view_t *view, bool written, ferry_error_t *err) {
    int64_t low = 0;
    int64_t high = 0;
    if (view->data == NULL) {
        return FERRY_OK;
    }
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    uintptr_t at = (uintptr_t)view->data;
    spans[(*count)++] = (span_t){at + (uintptr_t)low, at + (uintptr_t)high, view, binding, written};
    return FERRY_OK;
}

/* Do boxes a and b meet? */
static bool boxes_meet(const ferry_chunk_t *sent, const ferry_chunk_t *received) {
    bool meet = true;
    for (uint32_t i = 0; i < sent->ndim && meet; i++) {
        meet = sent->source_lo[i] < received->target_lo[i] + received->extent[i] &&
               received->target_lo[i] < sent->source_lo[i] + sent->extent[i];
    }
    return meet;
}

/* One tensor, source and target the same view: nothing that is sent away may be overwritten, and what
 * stays must stay in place. */
static ferry_status_t check_same(const fy_session_t *session, const fy_binding_t *binding,
                                 ferry_error_t *err) {
    for (size_t i = 0; i < session->ncargo; i++) {
        const fy_cargo_t *sent = &session->cargo[i];
        if (sent->binding != binding || !sent->sends) {
            continue;
        }
        for (size_t k = 0; k < session->ncargo; k++) {
            const fy_cargo_t *got = &session->cargo[k];
            bool lands = got->binding == binding && got->writeback != FY_WRITEBACK_NONE;
            bool itself = i == k && fy_same_view(&sent->source, &got->target[0]);
            if (lands && !itself && boxes_meet(sent->chunk, got->chunk)) {
                ferry_status_t status =
                    fy_fail(err, FERRY_INVALID,
                            "source and target are one memory, and what rank %" PRIu32
                            " sends overlaps what it receives; use a gate, or other memory",
                            ferry_world_rank(session->world));
                fy_error_tensor(err, binding->tensor.name);
                fy_error_region(err, got->chunk->ndim, got->chunk->target_lo, got->chunk->extent);
                return status;
            }
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_pair(const fy_session_t *session, const span_t *a, const span_t *b,
                                 ferry_error_t *err) {
    if (!a->written && !b->written) {
        return FERRY_OK;
    }
    bool overlap = false;
    FY_TRY(fy_views_overlap(a->view, b->view, &overlap, err));
    if (!overlap || (session->gate && a->written != b->written)) {
        return FERRY_OK;
    }
    if (a->written != b->written && a->binding == b->binding && fy_same_view(a->view, b->view)) {
        return check_same(session, a->binding, err);
    }
    const span_t *target = b->written ? b : a;
    const span_t *other = b->written ? a : b;
    ferry_status_t status =
        fy_fail(err, FERRY_INVALID, "the target overlaps the memory of the %s %s",
                other->written ? "target" : "source", other->binding->tensor.name);
    fy_error_tensor(err, target->binding->tensor.name);
    return status;
}

static ferry_status_t check_spans(const fy_session_t *session, span_t *spans, size_t count,
                                  ferry_error_t *err) {
    qsort(spans, count, sizeof *spans, by_address);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count && spans[k].lo < spans[i].hi; k++) {
            FY_TRY(check_pair(session, &spans[i], &spans[k], err));
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_check_aliases(const fy_session_t *session, ferry_error_t *err) {
    span_t *spans = fy_alloc(3 * (size_t)session->ntensors, sizeof *spans);
    if (spans == NULL) {
        return fy_fail_nomem(err, "the tensors of a session");
    }
    size_t count = 0;
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; i < session->ntensors && status == FERRY_OK; i++) {
        const fy_binding_t *b = &session->bindings[i];
        status = add(spans, &count, b, &b->source, false, err);
        for (uint32_t copy = 0; copy < session->ncopies && status == FERRY_OK; copy++) {
            status = add(spans, &count, b, &b->target[copy], true, err);
        }
    }
    if (status == FERRY_OK) {
        status = check_spans(session, spans, count, err);
    }
    fy_free(spans);
    return status;
}
