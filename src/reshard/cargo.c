/* cargo.c - chunks become cargo: what is sent, where it lands, what must be staged.
 *
 * Nothing has a staging address yet: a staged view has no data until its pass is laid out. The
 * exception are folds that a transform sends from, which it must see when it prepares: they lie in
 * memory of their own. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "reshard/session.h"
#include "reshard/unit.h"

bool fy_same_view(const ferry_view_t *a, const ferry_view_t *b) {
    bool same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t i = 0; same && i < a->ndim; i++) {
        same = a->shape[i] == b->shape[i] && (a->shape[i] <= 1 || a->strides[i] == b->strides[i]);
    }
    return same;
}

void fy_slice_of(const fy_cargo_t *cargo, bool sending, uint32_t copy, ferry_slice_t *slice_p) {
    const ferry_chunk_t *chunk = cargo->chunk;
    const fy_binding_t *b = cargo->binding;
    *slice_p = (ferry_slice_t){
        .name = b->tensor.name,
        .task_id = chunk->task_id,
        .peer = sending ? chunk->target : chunk->source,
        .dtype = sending ? b->tensor.source_dtype : b->tensor.target_dtype,
        .ndim = chunk->ndim,
        .local_shape = sending ? b->source_shape : b->target_shape,
        .lo = sending ? chunk->source_lo : chunk->target_lo,
        .extent = chunk->extent,
        .copy = copy,
    };
}

/* --- transforms -------------------------------------------------------------------------------- */

static ferry_status_t check_payloads(const fy_cargo_t *cargo, const ferry_view_t *payloads,
                                     size_t count, ferry_error_t *err) {
    if (count == 0 || count > FERRY_MAX_PAYLOADS) {
        return fy_fail(err, FERRY_INVALID, "the transform gives %zu payloads; 1 to %d can travel",
                       count, FERRY_MAX_PAYLOADS);
    }
    for (size_t i = 0; i < count; i++) {
        if (payloads[i].ndim > FERRY_MAX_DIMS || ferry_dtype_bits(payloads[i].dtype) == 0) {
            return fy_fail(err, FERRY_INVALID, "payload %zu of task %" PRIu64 " is no view", i,
                           cargo->chunk->task_id);
        }
    }
    return FERRY_OK;
}

/* Keeps the payloads; those without memory will be staged. */
static ferry_status_t keep_payloads(fy_session_t *session, const ferry_view_t *payloads,
                                    uint32_t count, ferry_view_t **views_p, uint8_t **staged_p,
                                    uint64_t *cost, ferry_error_t *err) {
    *views_p = fy_arena_copy(&session->cut, payloads, count, sizeof *payloads);
    *staged_p = fy_arena_alloc(&session->cut, count, 1);
    if (*views_p == NULL || *staged_p == NULL) {
        return fy_fail_nomem(err, "the payloads of a session");
    }
    for (uint32_t i = 0; i < count; i++) {
        (*staged_p)[i] = payloads[i].data == NULL ? 1 : 0;
        if ((*staged_p)[i] != 0) {
            FY_TRY(ferry_view_contiguous(NULL, payloads[i].dtype, payloads[i].ndim,
                                         payloads[i].shape, &(*views_p)[i], err));
            *cost += fy_staged_bytes(&(*views_p)[i]);
        }
    }
    return FERRY_OK;
}

static ferry_status_t transform_send(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    memset(payloads, 0, sizeof payloads);
    size_t count = 0;
    ferry_slice_t slice;
    fy_slice_of(cargo, true, 0, &slice);
    FY_TRY(session->transform->prepare_send(session->transform->context, &slice, &cargo->source,
                                            payloads, &count, err));
    FY_TRY(check_payloads(cargo, payloads, count, err));
    cargo->nsend = (uint32_t)count;
    return keep_payloads(session, payloads, cargo->nsend, &cargo->send, &cargo->staged_send,
                         &cargo->cost, err);
}

/* Under a gate nothing may be written before the decision: what would land in memory of the transform's
 * is staged and goes there later. What lies in staging anyway (an accumulator) need not be. */
static ferry_status_t hold_back(fy_session_t *session, fy_cargo_t *cargo, ferry_view_t *payloads,
                                ferry_error_t *err) {
    cargo->into = fy_arena_alloc(&session->cut, cargo->nrecv, sizeof *cargo->into);
    if (cargo->into == NULL) {
        return fy_fail_nomem(err, "the payloads of a session");
    }
    for (uint32_t i = 0; i < cargo->nrecv; i++) {
        bool held = payloads[i].data != NULL && !fy_is_staging(&session->staging, payloads[i].data);
        cargo->into[i] = payloads[i];
        if (held) {
            payloads[i].data = NULL;
        } else {
            cargo->into[i].data = NULL;
        }
    }
    return FERRY_OK;
}

/* Both copies have the same payloads, staged ones in the same place. */
static ferry_status_t keep_copy(fy_session_t *session, fy_cargo_t *cargo, uint32_t copy,
                                const ferry_view_t *payloads, uint32_t count, ferry_error_t *err) {
    uint8_t *staged = cargo->staged_recv;
    uint64_t again = 0;
    bool first = copy == 0;
    FY_TRY(keep_payloads(session, payloads, count, &cargo->recv[copy],
                         first ? &cargo->staged_recv : &staged, first ? &cargo->cost : &again,
                         err));
    bool same = first || (count == cargo->nrecv && memcmp(staged, cargo->staged_recv, count) == 0);
    cargo->nrecv = count;
    return same ? FERRY_OK
                : fy_fail(err, FERRY_INVALID, "the transform gives other payloads for each copy");
}

static ferry_status_t transform_recv(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    cargo->writeback = FY_WRITEBACK_TRANSFORM;
    for (uint32_t copy = 0; copy < session->ncopies; copy++) {
        ferry_view_t payloads[FERRY_MAX_PAYLOADS];
        memset(payloads, 0, sizeof payloads);
        size_t count = 0;
        ferry_slice_t slice;
        fy_slice_of(cargo, false, copy, &slice);
        FY_TRY(session->transform->prepare_recv(session->transform->context, &slice, payloads,
                                                &count, err));
        FY_TRY(check_payloads(cargo, payloads, count, err));
        cargo->nrecv = copy == 0 ? (uint32_t)count : cargo->nrecv;
        if (session->gate) {
            FY_TRY(hold_back(session, cargo, payloads, err));
        }
        FY_TRY(keep_copy(session, cargo, copy, payloads, (uint32_t)count, err));
    }
    return FERRY_OK;
}

/* --- plain ------------------------------------------------------------------------------------- */

static ferry_status_t one_view(fy_session_t *session, const ferry_view_t *view, bool staged,
                               ferry_view_t **views_p, uint8_t **staged_p, ferry_error_t *err) {
    uint8_t flag = staged ? 1 : 0;
    *views_p = fy_arena_copy(&session->cut, view, 1, sizeof *view);
    *staged_p = fy_arena_copy(&session->cut, &flag, 1, 1);
    return *views_p == NULL || *staged_p == NULL ? fy_fail_nomem(err, "the cargo of a session")
                                                 : FERRY_OK;
}

/* In buckets the bucket is what travels; only its bytes are staged. */
static ferry_status_t plain_send(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    const ferry_chunk_t *chunk = cargo->chunk;
    const ferry_plan_tensor_t *t = &cargo->binding->tensor;
    cargo->nsend = 1;
    if (session->bucketed) {
        cargo->cost += chunk->bytes + FY_STAGING_ALIGN;
        return FERRY_OK;
    }
    ferry_view_t send = cargo->source;
    cargo->cast_first = chunk->wire != t->source_dtype && chunk->wire != t->target_dtype;
    if (cargo->cast_first) {
        FY_TRY(ferry_view_contiguous(NULL, chunk->wire, chunk->ndim, chunk->extent, &send, err));
        cargo->cost += fy_staged_bytes(&send);
    }
    return one_view(session, &send, cargo->cast_first, &cargo->send, &cargo->staged_send, err);
}

static ferry_status_t plain_recv(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    const ferry_chunk_t *chunk = cargo->chunk;
    const fy_binding_t *b = cargo->binding;
    cargo->nrecv = 1;
    cargo->writeback = session->gate ? FY_WRITEBACK_COPY : FY_WRITEBACK_DIRECT;
    if (session->bucketed) {
        cargo->cost += chunk->bytes + FY_STAGING_ALIGN;
        return FERRY_OK;
    }
    for (uint32_t copy = 0; copy < session->ncopies; copy++) {
        ferry_view_t recv = cargo->target[copy];
        if (session->gate) {
            FY_TRY(ferry_view_contiguous(NULL, b->tensor.target_dtype, chunk->ndim, chunk->extent,
                                         &recv, err));
            cargo->cost += fy_staged_bytes(&recv);
        }
        FY_TRY(
            one_view(session, &recv, session->gate, &cargo->recv[copy], &cargo->staged_recv, err));
    }
    return FERRY_OK;
}

static ferry_status_t slice_tensors(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    const ferry_chunk_t *chunk = cargo->chunk;
    const fy_binding_t *b = cargo->binding;
    if (cargo->sends && chunk->partial != FERRY_INDEX_NONE) {
        cargo->source = session->folds[chunk->cell].result;
    } else if (cargo->sends) {
        FY_TRY(ferry_view_slice(&b->source, chunk->source_lo, chunk->extent, &cargo->source, err));
    }
    if ((chunk->role & FERRY_CHUNK_TARGET) != 0 && !b->transformed) {
        for (uint32_t copy = 0; copy < session->ncopies; copy++) {
            FY_TRY(ferry_view_slice(&b->target[copy], chunk->target_lo, chunk->extent,
                                    &cargo->target[copy], err));
        }
    }
    return FERRY_OK;
}

static ferry_status_t fill(fy_session_t *session, fy_cargo_t *cargo, ferry_error_t *err) {
    bool transformed = cargo->binding->transformed;
    bool receives = (cargo->chunk->role & FERRY_CHUNK_TARGET) != 0;
    FY_TRY(slice_tensors(session, cargo, err));
    cargo->stays = cargo->sends && receives && !transformed && session->ncopies == 1 &&
                   !session->bucketed && cargo->chunk->partial == FERRY_INDEX_NONE &&
                   fy_same_view(&cargo->source, &cargo->target[0]);
    if (cargo->stays) {
        cargo->writeback = FY_WRITEBACK_DIRECT;
        return FERRY_OK;
    }
    if (session->options.check) {
        cargo->cost += 2 * sizeof(uint64_t); /* of its bucket's hash, on both ends */
    }
    if (cargo->sends) {
        FY_TRY(transformed ? transform_send(session, cargo, err) : plain_send(session, cargo, err));
    }
    if (receives) {
        FY_TRY(transformed ? transform_recv(session, cargo, err) : plain_recv(session, cargo, err));
    }
    return FERRY_OK;
}

/* --- all of them ------------------------------------------------------------------------------- */

static ferry_status_t make_folds(fy_session_t *session, ferry_error_t *err) {
    const ferry_cell_t *cells = ferry_chunks_cells(session->chunks, &session->nfolds);
    session->folds = fy_arena_alloc(&session->cut, session->nfolds, sizeof *session->folds);
    if (session->folds == NULL) {
        return fy_fail_nomem(err, "the sums of a session");
    }
    for (size_t i = 0; i < session->nfolds; i++) {
        FY_TRY(fy_fold_make(session, &cells[i], &session->folds[i], err));
    }
    return FERRY_OK;
}

static ferry_status_t reserve(fy_session_t *session, ferry_error_t *err) {
    const ferry_transform_t *transform = session->transform;
    for (uint32_t i = 0; i < session->ntensors; i++) {
        const fy_binding_t *b = &session->bindings[i];
        if (!b->transformed || !b->has_target || transform->reserve == NULL) {
            continue;
        }
        ferry_status_t status = transform->reserve(
            transform->context, b->tensor.name, b->tensor.target_dtype, b->tensor.ndim,
            b->target_shape, session->ncopies, &session->staging, err);
        if (status != FERRY_OK) {
            fy_error_tensor(err, b->tensor.name);
            return status;
        }
    }
    return FERRY_OK;
}

/* Tensors of which something is staged somewhere: told from the plan, alike on all ranks. */
static uint8_t *staged_tensors(const fy_session_t *session) {
    uint8_t *staged = fy_alloc_zero(session->ntensors, 1);
    for (uint32_t i = 0; i < session->ntensors && staged != NULL; i++) {
        const fy_binding_t *b = &session->bindings[i];
        const ferry_plan_tensor_t *t = &b->tensor;
        ferry_dtype_t wire =
            ferry_wire_dtype(t->source_dtype, t->target_dtype, session->options.wire);
        bool cast_first = wire != t->source_dtype && wire != t->target_dtype;
        bool is = session->bucketed || session->gate || b->transformed || cast_first ||
                  fy_is_partial(t->source_layout);
        staged[i] = is ? 1 : 0;
    }
    return staged;
}

static ferry_status_t make_chunks(fy_session_t *session, uint64_t slab_bytes, ferry_error_t *err) {
    uint8_t *staged = staged_tensors(session);
    if (staged == NULL) {
        return fy_fail_nomem(err, "the tensors of a session");
    }
    ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
    params.cut = staged;
    params.rank = session->me;
    params.slab_bytes = slab_bytes;
    params.wire = session->options.wire;
    ferry_status_t status = ferry_chunks_create(session->plan, &params, &session->chunks, err);
    fy_free(staged);
    return status;
}

ferry_status_t fy_load(fy_session_t *session, uint64_t slab_bytes, ferry_error_t *err) {
    FY_TRY(reserve(session, err));
    FY_TRY(make_chunks(session, slab_bytes, err));
    FY_TRY(make_folds(session, err));
    const ferry_chunk_t *chunks = ferry_chunks_list(session->chunks, &session->ncargo);
    session->cargo = fy_arena_alloc(&session->cut, session->ncargo, sizeof *session->cargo);
    if (session->cargo == NULL) {
        return fy_fail_nomem(err, "the cargo of a session");
    }
    memset(session->cargo, 0, session->ncargo * sizeof *session->cargo);
    for (size_t i = 0; i < session->ncargo; i++) {
        fy_cargo_t *cargo = &session->cargo[i];
        cargo->chunk = &chunks[i];
        cargo->binding = &session->bindings[chunks[i].tensor];
        cargo->sends = (chunks[i].role & FERRY_CHUNK_SOURCE) != 0;
        ferry_status_t status = fill(session, cargo, err);
        if (status != FERRY_OK) {
            fy_cargo_blame(session, cargo, err);
            return status;
        }
    }
    return FERRY_OK;
}

void fy_unload(fy_session_t *session) {
    const ferry_transform_t *transform = session->transform;
    if (transform != NULL && transform->release != NULL) {
        transform->release(transform->context);
    }
    ferry_chunks_destroy(session->chunks);
    session->chunks = NULL;
    session->cargo = NULL;
    session->ncargo = 0;
    session->folds = NULL;
    session->nfolds = 0;
    session->passes = NULL;
    session->npasses = 0;
    fy_arena_fini(&session->cut);
    session->cut = (fy_arena_t)FY_ARENA_INIT;
    fy_staging_fini(&session->staging, ferry_world_check(session->world, NULL) != FERRY_OK);
}
