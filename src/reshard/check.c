/* check.c - hashes that travel with buckets.
 *
 * The sender hashes the values of a bucket as they will land (cast to the target's dtype, in row-major
 * order, block by block), the receiver hashes what has landed. All hashes of a pair and pass travel as one
 * small operation beside the data. A transform's payloads are hashed in the receiver's dtype. */
#include <inttypes.h>
#include <string.h>

#include <ferry/pipeline.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/hash.h"
#include "reshard/unit.h"

enum { SCRATCH_BYTES = 16384 };

/* The hashes of one direction of one pair: those of its buckets, in order. */
typedef struct pair {
    uint32_t peer;
    uint32_t count;
    uint64_t task_id; /* of the first bucket */
    uint64_t *hashes;
} pair_t;

struct fy_check {
    uint32_t copy_flags;
    pair_t *sends; /* per member */
    pair_t *recvs;
    uint64_t *scratch[2];
};

static bool travels(const ferry_bucket_t *bucket) {
    return bucket->target != FERRY_RANK_NONE;
}

/* --- when the session is built ----------------------------------------------------------------- */

ferry_status_t fy_check_make(fy_session_t *session, fy_pass_t *pass, ferry_error_t *err) {
    fy_check_t *check = fy_arena_alloc(&session->cut, 1, sizeof *check);
    size_t bytes = session->size * sizeof(pair_t);
    pair_t *pairs = fy_arena_alloc(&session->cut, 2 * (size_t)session->size, sizeof *pairs);
    uint64_t *scratch = fy_arena_alloc(&session->cut, 2, SCRATCH_BYTES);
    if (check == NULL || pairs == NULL || scratch == NULL) {
        return fy_fail_nomem(err, "the hashes of a session");
    }
    memset(pairs, 0, 2 * bytes);
    *check = (fy_check_t){session->copy_flags,
                          pairs,
                          pairs + session->size,
                          {scratch, scratch + SCRATCH_BYTES / sizeof *scratch}};
    size_t count = 0;
    const ferry_bucket_t *buckets = ferry_buckets_list(pass->buckets, &count);
    for (size_t i = 0; i < count; i++) {
        if (travels(&buckets[i]) && buckets[i].source == session->me) {
            pair_t *pair = &check->sends[buckets[i].target];
            pair->task_id = pair->count++ == 0 ? buckets[i].task_id : pair->task_id;
        }
        if (travels(&buckets[i]) && buckets[i].target == session->me) {
            pair_t *pair = &check->recvs[buckets[i].source];
            pair->task_id = pair->count++ == 0 ? buckets[i].task_id : pair->task_id;
        }
    }
    pass->check = check;
    return FERRY_OK;
}

void fy_check_place(const fy_session_t *session, const fy_pass_t *pass, fy_places_t *places) {
    for (uint32_t member = 0; member < session->size; member++) {
        pair_t *sends = &pass->check->sends[member];
        pair_t *recvs = &pass->check->recvs[member];
        sends->hashes = fy_place(places, sends->count * sizeof(uint64_t));
        recvs->hashes = fy_place(places, recvs->count * sizeof(uint64_t));
    }
}

ferry_status_t fy_check_submit(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err) {
    for (uint32_t member = 0; member < session->size; member++) {
        const pair_t *sends = &pass->check->sends[member];
        const pair_t *recvs = &pass->check->recvs[member];
        uint64_t nsends = sends->count;
        uint64_t nrecvs = recvs->count;
        ferry_view_t view;
        if (nsends > 0) {
            FY_TRY(ferry_view_contiguous(sends->hashes, FERRY_U64, 1, &nsends, &view, err));
            FY_TRY(ferry_copy_submit_send(session->service, &view, FERRY_DTYPE_NONE, member,
                                          FERRY_TASK_PAYLOAD(sends->task_id, FY_CHECK_PAYLOAD),
                                          err));
        }
        if (nrecvs > 0) {
            FY_TRY(ferry_view_contiguous(recvs->hashes, FERRY_U64, 1, &nrecvs, &view, err));
            FY_TRY(ferry_copy_submit_recv(session->service, &view, member,
                                          FERRY_TASK_PAYLOAD(recvs->task_id, FY_CHECK_PAYLOAD),
                                          err));
        }
    }
    return FERRY_OK;
}

/* --- hashing ----------------------------------------------------------------------------------- */

/* Values of a view, cast by way of `wire` to `lands`. */
typedef struct values {
    const ferry_view_t *view;
    ferry_dtype_t wire;
    ferry_dtype_t lands;
} values_t;

static ferry_status_t hash_values(const fy_check_t *check, const values_t *values, uint64_t *hash,
                                  ferry_error_t *err) {
    uint64_t elements = 0;
    FY_TRY(ferry_view_elements(values->view, &elements, err));
    uint64_t step = SCRATCH_BYTES / sizeof(uint64_t); /* of the widest dtype */
    for (uint64_t first = 0; first < elements; first += step) {
        uint64_t count = fy_min_u64(step, elements - first);
        ferry_pipeline_segment_t segment = {.view = values->view,
                                            .wire = values->wire,
                                            .first = first,
                                            .count = count,
                                            .flags = check->copy_flags};
        ferry_pipeline_batch_t batch = {.segments = &segment,
                                        .nsegments = 1,
                                        .bytes = count * ferry_dtype_bits(values->wire) / 8};
        FY_TRY(ferry_pipeline_pack(&batch, check->scratch[0], err));
        const uint64_t *block = check->scratch[0];
        if (values->lands != values->wire) {
            ferry_view_t from;
            ferry_view_t to;
            FY_TRY(ferry_view_contiguous(check->scratch[0], values->wire, 1, &count, &from, err));
            FY_TRY(ferry_view_contiguous(check->scratch[1], values->lands, 1, &count, &to, err));
            FY_TRY(ferry_view_copy(&to, &from, check->copy_flags, err));
            block = check->scratch[1];
        }
        size_t bytes = (size_t)(count * ferry_dtype_bits(values->lands) / 8);
        *hash = fy_hash_u64(*hash, fy_hash_bytes(block, bytes));
    }
    return FERRY_OK;
}

static ferry_status_t hash_sent(const fy_check_t *check, const fy_cargo_t *cargo, uint64_t *hash,
                                ferry_error_t *err) {
    if (!cargo->binding->transformed) {
        values_t values = {&cargo->source, cargo->chunk->wire, cargo->binding->tensor.target_dtype};
        return hash_values(check, &values, hash, err);
    }
    for (uint32_t i = 0; i < cargo->nsend; i++) {
        values_t values = {&cargo->send[i], cargo->lands_as[i], cargo->lands_as[i]};
        FY_TRY(hash_values(check, &values, hash, err));
    }
    return FERRY_OK;
}

static ferry_status_t hash_landed(const fy_session_t *session, const fy_check_t *check,
                                  const fy_cargo_t *cargo, uint64_t *hash, ferry_error_t *err) {
    uint32_t copy = session->turn.copy;
    for (uint32_t i = 0; i < cargo->nrecv; i++) {
        const ferry_view_t *view = &cargo->recv[copy][i];
        values_t values = {view, view->dtype, view->dtype};
        FY_TRY(hash_values(check, &values, hash, err));
    }
    if (cargo->stays) {
        values_t values = {&cargo->target[copy], cargo->target[copy].dtype,
                           cargo->target[copy].dtype};
        FY_TRY(hash_values(check, &values, hash, err));
    }
    return FERRY_OK;
}

/* A bucket's chunks where they are staged, or the tensors where they are not. */
static ferry_status_t hash_landed_packed(const fy_session_t *session, const fy_check_t *check,
                                         const fy_cargo_t *cargo, const fy_unit_t *unit,
                                         uint64_t offset, uint64_t *hash, ferry_error_t *err) {
    uint32_t copy = session->turn.copy;
    const ferry_chunk_t *chunk = cargo->chunk;
    ferry_dtype_t lands = cargo->binding->tensor.target_dtype;
    ferry_view_t view = cargo->target[copy];
    if (unit->staged) {
        FY_TRY(ferry_view_contiguous((uint8_t *)unit->recv[copy].data + offset, chunk->wire,
                                     chunk->ndim, chunk->extent, &view, err));
    }
    values_t values = {&view, view.dtype, lands};
    return hash_values(check, &values, hash, err);
}

/* --- in a run ---------------------------------------------------------------------------------- */

static ferry_status_t hash_bucket(fy_session_t *session, const fy_pass_t *pass, size_t index,
                                  bool sent, uint64_t *hash_p, ferry_error_t *err) {
    size_t count = 0;
    const ferry_bucket_t *bucket = &ferry_buckets_list(pass->buckets, &count)[index];
    const ferry_bucket_entry_t *entries =
        ferry_buckets_entries(pass->buckets, &count) + bucket->first_entry;
    const fy_unit_t *unit = session->bucketed && !sent ? pass->bucket_units[index] : NULL;
    uint64_t hash = 0;
    for (uint32_t i = 0; i < bucket->nentries; i++) {
        const fy_cargo_t *cargo = &session->cargo[entries[i].chunk];
        ferry_status_t status = sent ? hash_sent(pass->check, cargo, &hash, err)
                                : unit != NULL
                                    ? hash_landed_packed(session, pass->check, cargo, unit,
                                                         entries[i].offset, &hash, err)
                                    : hash_landed(session, pass->check, cargo, &hash, err);
        if (status != FERRY_OK) {
            fy_cargo_blame(session, cargo, err);
            return status;
        }
    }
    *hash_p = hash;
    return FERRY_OK;
}

ferry_status_t fy_check_fill(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err) {
    size_t count = 0;
    const ferry_bucket_t *buckets = ferry_buckets_list(pass->buckets, &count);
    for (uint32_t member = 0; member < session->size; member++) {
        pass->check->sends[member].count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (travels(&buckets[i]) && buckets[i].source == session->me) {
            pair_t *pair = &pass->check->sends[buckets[i].target];
            FY_TRY(hash_bucket(session, pass, i, true, &pair->hashes[pair->count++], err));
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_check_compare(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err) {
    size_t count = 0;
    const ferry_bucket_t *buckets = ferry_buckets_list(pass->buckets, &count);
    for (uint32_t member = 0; member < session->size; member++) {
        pass->check->recvs[member].count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!travels(&buckets[i]) || buckets[i].target != session->me) {
            continue;
        }
        pair_t *pair = &pass->check->recvs[buckets[i].source];
        uint64_t hash = 0;
        FY_TRY(hash_bucket(session, pass, i, false, &hash, err));
        session->result.buckets_checked++;
        if (hash != pair->hashes[pair->count++]) {
            size_t n = 0;
            const ferry_bucket_entry_t *entries = ferry_buckets_entries(pass->buckets, &n);
            const fy_cargo_t *cargo = &session->cargo[entries[buckets[i].first_entry].chunk];
            ferry_status_t status =
                fy_fail(err, FERRY_CORRUPT,
                        "a bucket of %" PRIu32 " chunks, of which this is the first, did not land "
                        "as it was sent",
                        buckets[i].nentries);
            fy_cargo_blame(session, cargo, err);
            return status;
        }
    }
    return FERRY_OK;
}
