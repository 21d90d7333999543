/* bucket.c - the life of a bucket: chunks of one pair, packed in the wire dtype, sent as one.
 *
 * A chunk that is alone in its bucket is not copied where it lies without gaps and in the wire dtype: it
 * is sent from the tensor and received in the tensor. */
#include <inttypes.h>

#include <ferry/kernel.h>

#include "base/fail.h"
#include "reshard/unit.h"

static fy_cargo_t *cargo_of(const fy_unit_t *unit, uint32_t entry) {
    return &unit->all[unit->entries[entry].chunk];
}

static bool has_gaps(const ferry_view_t *view) {
    int64_t stride = 1;
    for (uint32_t i = view->ndim; i-- > 0;) {
        if (view->shape[i] > 1 && view->strides[i] != stride) {
            return true;
        }
        stride *= (int64_t)view->shape[i];
    }
    return false;
}

/* --- when the session is built ----------------------------------------------------------------- */

static ferry_status_t as_bytes(void *memory, uint64_t bytes, ferry_view_t *view_p,
                               ferry_error_t *err) {
    return ferry_view_contiguous(memory, FERRY_U8, 1, &bytes, view_p, err);
}

static bool travels_as_it_is(const fy_unit_t *unit, const ferry_view_t *view) {
    return unit->bucket->nentries == 1 && view->dtype == cargo_of(unit, 0)->chunk->wire &&
           !has_gaps(view);
}

ferry_status_t fy_bucket_place(fy_session_t *session, fy_unit_t *unit, fy_places_t *places,
                               ferry_error_t *err) {
    const ferry_bucket_t *bucket = unit->bucket;
    const fy_cargo_t *first = cargo_of(unit, 0);
    if (bucket->source == session->me) {
        unit->packed = !travels_as_it_is(unit, &first->source);
        void *memory = unit->packed ? fy_place(places, bucket->bytes) : first->source.data;
        FY_TRY(as_bytes(memory, bucket->bytes, &unit->send, err));
    }
    if (bucket->target != session->me) {
        return FERRY_OK;
    }
    unit->staged = session->gate || !travels_as_it_is(unit, &first->target[0]);
    if (session->ncopies == 2) {
        unit->staged = unit->staged || !travels_as_it_is(unit, &first->target[1]);
    }
    void *memory = unit->staged ? fy_place(places, bucket->bytes) : NULL;
    for (uint32_t copy = 0; copy < session->ncopies; copy++) {
        FY_TRY(as_bytes(unit->staged ? memory : first->target[copy].data, bucket->bytes,
                        &unit->recv[copy], err));
    }
    for (uint32_t i = 0; i < bucket->nentries; i++) {
        cargo_of(unit, i)->writeback = unit->staged ? FY_WRITEBACK_COPY : FY_WRITEBACK_DIRECT;
    }
    return FERRY_OK;
}

static ferry_status_t submit(fy_session_t *session, const fy_unit_t *unit, uint32_t copy,
                             ferry_error_t *err) {
    const ferry_bucket_t *bucket = unit->bucket;
    if (bucket->source == session->me) {
        FY_TRY(ferry_copy_submit_send(session->service, &unit->send, FERRY_DTYPE_NONE,
                                      bucket->target, bucket->task_id, err));
    }
    if (bucket->target == session->me) {
        FY_TRY(ferry_copy_submit_recv(session->service, &unit->recv[copy], bucket->source,
                                      bucket->task_id, err));
    }
    return FERRY_OK;
}

/* --- in a run ---------------------------------------------------------------------------------- */

static void prepare(fy_unit_t *unit) {
    unit->state = FY_UNIT_PREPARED;
}

/* The place of an entry in the bucket, as the chunk's box in the wire dtype. */
static ferry_status_t entry_view(const fy_unit_t *unit, const ferry_view_t *bytes, uint32_t entry,
                                 ferry_view_t *view_p, ferry_error_t *err) {
    const ferry_chunk_t *chunk = cargo_of(unit, entry)->chunk;
    return ferry_view_contiguous((uint8_t *)bytes->data + unit->entries[entry].offset, chunk->wire,
                                 chunk->ndim, chunk->extent, view_p, err);
}

static ferry_status_t launch(fy_session_t *session, fy_unit_t *unit, bool *launched_p,
                             ferry_error_t *err) {
    const ferry_bucket_t *bucket = unit->bucket;
    *launched_p = true;
    if (bucket->source != session->me) {
        unit->state = FY_UNIT_LAUNCHED;
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < bucket->nentries && *launched_p; i++) {
        *launched_p = fy_cargo_ready(session, cargo_of(unit, i));
    }
    for (uint32_t i = 0; i < bucket->nentries && *launched_p && unit->packed; i++) {
        ferry_view_t entry;
        FY_TRY(entry_view(unit, &unit->send, i, &entry, err));
        FY_TRY(ferry_view_copy(&entry, &cargo_of(unit, i)->source, session->copy_flags, err));
    }
    if (*launched_p) {
        unit->state = FY_UNIT_LAUNCHED;
    }
    return FERRY_OK;
}

static bool is_complete(const fy_unit_t *unit) {
    return unit->state >= FY_UNIT_LANDED;
}

static ferry_status_t finalize(fy_session_t *session, fy_unit_t *unit, uint32_t copy,
                               ferry_error_t *err) {
    unit->state = FY_UNIT_FINAL;
    if (unit->bucket->target != session->me || !unit->staged) {
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < unit->bucket->nentries; i++) {
        ferry_view_t entry;
        FY_TRY(entry_view(unit, &unit->recv[copy], i, &entry, err));
        FY_TRY(ferry_view_copy(&cargo_of(unit, i)->target[copy], &entry, session->copy_flags, err));
    }
    return FERRY_OK;
}

const fy_unit_ops_t fy_bucket_ops = {prepare, launch, is_complete, finalize, submit};
