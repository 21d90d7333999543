/* chunk.c - the life of a chunk that travels alone. */
#include <inttypes.h>

#include <ferry/kernel.h>

#include "base/fail.h"
#include "reshard/unit.h"

bool fy_cargo_ready(const fy_session_t *session, const fy_cargo_t *cargo) {
    const ferry_reshard_options_t *options = &session->options;
    void *event = cargo->binding->ready;
    return event == NULL || options->is_ready == NULL || options->is_ready(options->context, event);
}

void fy_cargo_blame(const fy_session_t *session, const fy_cargo_t *cargo, ferry_error_t *err) {
    const ferry_chunk_t *chunk = cargo->chunk;
    bool sends = chunk->source == session->me;
    uint32_t peer = sends ? chunk->target : chunk->source;
    fy_error_tensor(err, cargo->binding->tensor.name);
    fy_error_region(err, chunk->ndim, sends ? chunk->source_lo : chunk->target_lo, chunk->extent);
    fy_error_ranks(err, ferry_world_rank(session->world),
                   ferry_group_world_rank(session->group, peer));
}

/* --- when the session is built ----------------------------------------------------------------- */

static ferry_status_t place_staged(ferry_view_t *views, const uint8_t *staged, const bool *borrowed,
                                   uint32_t count, fy_places_t *places, ferry_error_t *err) {
    for (uint32_t i = 0; i < count; i++) {
        if (staged[i] != 0 && (borrowed == NULL || !borrowed[i])) {
            FY_TRY(fy_place_view(places, views[i].dtype, views[i].ndim, views[i].shape, &views[i],
                                 err));
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_chunk_place(fy_cargo_t *cargo, uint32_t ncopies, fy_places_t *places,
                              ferry_error_t *err) {
    if (cargo->stays) {
        return FERRY_OK;
    }
    if (cargo->nsend > 0) {
        FY_TRY(place_staged(cargo->send, cargo->staged_send, NULL, cargo->nsend, places, err));
    }
    fy_places_t start = *places;
    for (uint32_t copy = 0; copy < ncopies && cargo->nrecv > 0; copy++) {
        *places = start; /* one run writes one copy, and both stage in the same place */
        FY_TRY(place_staged(cargo->recv[copy], cargo->staged_recv, cargo->lent, cargo->nrecv,
                            places, err));
    }
    return FERRY_OK;
}

static ferry_status_t submit(fy_session_t *session, const fy_unit_t *unit, uint32_t copy,
                             ferry_error_t *err) {
    const fy_cargo_t *cargo = unit->cargo;
    const ferry_chunk_t *chunk = cargo->chunk;
    if (cargo->stays) {
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < cargo->nsend; i++) {
        if (cargo->lent[i]) {
            continue;
        }
        bool plain = !cargo->binding->transformed && !cargo->cast_first;
        FY_TRY(ferry_copy_submit_send(session->service, &cargo->send[i],
                                      plain ? chunk->wire : FERRY_DTYPE_NONE, chunk->target,
                                      FERRY_TASK_PAYLOAD(chunk->task_id, i), err));
    }
    for (uint32_t i = 0; i < cargo->nrecv; i++) {
        if (cargo->lent[i]) {
            continue;
        }
        FY_TRY(ferry_copy_submit_recv(session->service, &cargo->recv[copy][i], chunk->source,
                                      FERRY_TASK_PAYLOAD(chunk->task_id, i), err));
    }
    return FERRY_OK;
}

/* --- in a run ---------------------------------------------------------------------------------- */

static void prepare(fy_unit_t *unit) {
    unit->state = FY_UNIT_PREPARED;
}

static ferry_status_t fill_transform(const fy_session_t *session, const fy_cargo_t *cargo,
                                     ferry_error_t *err) {
    const ferry_transform_t *transform = session->transform;
    if (transform->fill_send == NULL) {
        return FERRY_OK;
    }
    ferry_slice_t slice;
    fy_slice_of(cargo, true, 0, &slice);
    return transform->fill_send(transform->context, &slice, &cargo->source, cargo->send,
                                cargo->nsend, err);
}

static ferry_status_t launch(fy_session_t *session, fy_unit_t *unit, bool *launched_p,
                             ferry_error_t *err) {
    const fy_cargo_t *cargo = unit->cargo;
    *launched_p = !cargo->sends || fy_cargo_ready(session, cargo);
    if (!*launched_p) {
        return FERRY_OK;
    }
    ferry_status_t status = FERRY_OK;
    if (cargo->sends && cargo->binding->transformed) {
        status = fill_transform(session, cargo, err);
    } else if (cargo->cast_first) {
        status = ferry_view_copy(&cargo->send[0], &cargo->source, session->copy_flags, err);
    }
    unit->state = FY_UNIT_LAUNCHED;
    return status;
}

static bool is_complete(const fy_unit_t *unit) {
    return unit->state >= FY_UNIT_LANDED;
}

static ferry_status_t take_in(const fy_session_t *session, const fy_cargo_t *cargo, uint32_t copy,
                              ferry_error_t *err) {
    const ferry_transform_t *transform = session->transform;
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    for (uint32_t i = 0; i < cargo->nrecv; i++) {
        payloads[i] = cargo->recv[copy][i];
        if (cargo->into != NULL && cargo->into[i].data != NULL) { /* it was held back */
            FY_TRY(ferry_view_copy(&cargo->into[i], &payloads[i], 0, err));
            payloads[i] = cargo->into[i];
        }
    }
    ferry_slice_t slice;
    fy_slice_of(cargo, false, copy, &slice);
    return transform->finalize_recv(transform->context, &slice, payloads, cargo->nrecv, err);
}

static ferry_status_t finalize(fy_session_t *session, fy_unit_t *unit, uint32_t copy,
                               ferry_error_t *err) {
    const fy_cargo_t *cargo = unit->cargo;
    unit->state = FY_UNIT_FINAL;
    if (cargo->writeback == FY_WRITEBACK_COPY) {
        return ferry_view_copy(&cargo->target[copy], &cargo->recv[copy][0], session->copy_flags,
                               err);
    }
    return cargo->writeback == FY_WRITEBACK_TRANSFORM ? take_in(session, cargo, copy, err)
                                                      : FERRY_OK;
}

const fy_unit_ops_t fy_chunk_ops = {prepare, launch, is_complete, finalize, submit};
