/* pack.c - between a slot and stretches of views.
 *
 * A stretch of elements in row-major order is cut into boxes: a part of a row, whole rows, a part of a
 * row, in each dim, so at most two per dim and one more. Each box is one strided copy; in the slot the
 * boxes follow each other without gaps. */
#include <inttypes.h>

#include <ferry/kernel.h>

#include "base/fail.h"
#include "pipeline/pipeline.h"

/* The walk over one segment. */
typedef struct walk {
    const ferry_pipeline_segment_t *segment;
    uint8_t *slot; /* where the next box goes */
    size_t wire_bytes;
    size_t view_bytes; /* of an element */
    bool pack;
} walk_t;

/* Rows [lo, hi) of dim `dim`, at `data`, all of the dims inside. */
static ferry_status_t copy_box(walk_t *walk, uint8_t *data, uint32_t dim, uint64_t rows,
                               ferry_error_t *err) {
    const ferry_view_t *whole = walk->segment->view;
    ferry_view_t box = *whole;
    box.data = data;
    box.ndim = whole->ndim - dim;
    for (uint32_t i = 0; i < box.ndim; i++) {
        box.shape[i] = whole->shape[dim + i];
        box.strides[i] = whole->strides[dim + i];
    }
    uint64_t elements = 1;
    if (box.ndim > 0) {
        box.shape[0] = rows;
    }
    ferry_view_t flat;
    FY_TRY(ferry_view_contiguous(walk->slot, walk->segment->wire, box.ndim, box.shape, &flat, err));
    FY_TRY(ferry_view_elements(&box, &elements, err));
    walk->slot += elements * walk->wire_bytes;
    uint32_t flags = walk->segment->flags;
    if (walk->pack) {
        /* Read again at once, by another core: past the caches would be the wrong way. */
        flags = (flags & ~(uint32_t)FERRY_COPY_STREAM) | FERRY_COPY_CACHED;
        return ferry_view_copy(&flat, &box, flags, err);
    }
    return ferry_view_copy(&box, &flat, flags, err);
}

/* Elements [lo, hi), lo < hi, of the dims from `dim` inwards. */
static ferry_status_t copy_range(walk_t *walk, uint8_t *data, uint32_t dim, uint64_t lo,
                                 uint64_t hi, ferry_error_t *err) {
    const ferry_view_t *view = walk->segment->view;
    if (dim == view->ndim) {
        return copy_box(walk, data, dim, 1, err);
    }
    uint64_t inner = 1;
    for (uint32_t i = dim + 1; i < view->ndim; i++) {
        inner *= view->shape[i];
    }
    int64_t stride = view->strides[dim] * (int64_t)walk->view_bytes;
    uint64_t row = lo / inner;
    uint64_t last = hi / inner;
    if (lo % inner != 0) {
        uint64_t end = row == last ? hi % inner : inner;
        FY_TRY(copy_range(walk, data + (int64_t)row * stride, dim + 1, lo % inner, end, err));
        row++;
    }
    if (row < last) {
        FY_TRY(copy_box(walk, data + (int64_t)row * stride, dim, last - row, err));
        row = last;
    }
    if (row == last && hi % inner != 0) {
        FY_TRY(copy_range(walk, data + (int64_t)row * stride, dim + 1, 0, hi % inner, err));
    }
    return FERRY_OK;
}

static ferry_status_t copy_segments(const ferry_pipeline_batch_t *batch, void *slot, bool pack,
                                    ferry_error_t *err) {
    for (size_t i = 0; i < batch->nsegments; i++) {
        const ferry_pipeline_segment_t *segment = &batch->segments[i];
        walk_t walk = {.segment = segment,
                       .slot = (uint8_t *)slot + segment->at,
                       .wire_bytes = ferry_dtype_bits(segment->wire) / 8,
                       .view_bytes = ferry_dtype_bits(segment->view->dtype) / 8,
                       .pack = pack};
        uint64_t elements = 0;
        FY_TRY(ferry_view_elements(segment->view, &elements, err));
        if (walk.wire_bytes == 0 || segment->first > elements ||
            segment->count > elements - segment->first || segment->at > batch->bytes ||
            segment->count > (batch->bytes - segment->at) / walk.wire_bytes) {
            return fy_fail(err, FERRY_INVALID,
                           "segment %zu: %" PRIu64 " elements from %" PRIu64 " of %" PRIu64
                           " at byte %" PRIu64 " of a batch of %" PRIu64 " bytes",
                           i, segment->count, segment->first, elements, segment->at, batch->bytes);
        }
        if (segment->count > 0) {
            FY_TRY(copy_range(&walk, segment->view->data, 0, segment->first,
                              segment->first + segment->count, err));
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_pipeline_pack(const ferry_pipeline_batch_t *batch, void *slot,
                                   ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_NEED(slot, err);
    return copy_segments(batch, slot, true, err);
}

ferry_status_t ferry_pipeline_unpack(const ferry_pipeline_batch_t *batch, const void *slot,
                                     ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_NEED(slot, err);
    union {
        const void *given;
        void *slot; /* as a view has it; only read from */
    } both = {.given = slot};
    return copy_segments(batch, both.slot, false, err);
}
