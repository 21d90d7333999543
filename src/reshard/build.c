/* build.c - passes become units and kept batches.
 *
 * Every pass is laid out twice: once to count, once with addresses in the block that all passes use in
 * turn. Then its operations are queued and kept; that is collective, so the ranks agree that all have
 * queued before any of them goes on. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "reshard/session.h"
#include "reshard/unit.h"
#include "service/service.h"

enum { PLAIN_LANE = 0, TRANSFORM_LANE = 1 };

/* --- units ------------------------------------------------------------------------------------- */

static ferry_status_t make_buckets(fy_session_t *session, fy_pass_t *pass, ferry_error_t *err) {
    uint32_t *lanes = fy_alloc_zero(session->ntensors, sizeof *lanes);
    if (lanes == NULL) {
        return fy_fail_nomem(err, "the buckets of a session");
    }
    for (uint32_t i = 0; i < session->ntensors; i++) {
        lanes[i] = session->bindings[i].transformed ? TRANSFORM_LANE : PLAIN_LANE;
    }
    ferry_buckets_params_t params = FERRY_BUCKETS_PARAMS_INIT;
    params.first = pass->first;
    params.count = pass->count;
    params.threshold = session->options.bucket_bytes;
    params.lanes = lanes;
    ferry_status_t status = ferry_buckets_create(session->chunks, &params, &pass->buckets, err);
    fy_free(lanes);
    return status;
}

static void count_unit(fy_unit_t *unit, const fy_cargo_t *cargo) {
    if ((cargo->chunk->role & FERRY_CHUNK_TARGET) != 0) {
        unit->bytes +=
            cargo->chunk->elements * ferry_dtype_bits(cargo->binding->tensor.target_dtype) / 8;
    }
}

static void add_chunk_units(fy_session_t *session, fy_pass_t *pass, bool transformed_only) {
    for (size_t i = 0; i < pass->count; i++) {
        fy_cargo_t *cargo = &session->cargo[pass->first + i];
        bool wanted = !transformed_only || cargo->binding->transformed;
        if (wanted && cargo->chunk->role != FERRY_CHUNK_REDUCE) {
            fy_unit_t *unit = &pass->units[pass->nunits++];
            unit->ops = &fy_chunk_ops;
            unit->device = cargo->binding->source.device;
            unit->cargo = cargo;
            count_unit(unit, cargo);
        }
    }
}

static void add_bucket_units(fy_session_t *session, fy_pass_t *pass) {
    size_t count = 0;
    size_t nentries = 0;
    const ferry_bucket_t *buckets = ferry_buckets_list(pass->buckets, &count);
    const ferry_bucket_entry_t *entries = ferry_buckets_entries(pass->buckets, &nentries);
    for (size_t i = 0; i < count; i++) {
        const ferry_bucket_t *bucket = &buckets[i];
        pass->bucket_units[i] = NULL;
        if (bucket->target == FERRY_RANK_NONE || bucket->lane != PLAIN_LANE) {
            continue;
        }
        fy_unit_t *unit = &pass->units[pass->nunits++];
        pass->bucket_units[i] = unit;
        unit->ops = &fy_bucket_ops;
        unit->bucket = bucket;
        unit->entries = entries + bucket->first_entry;
        unit->all = session->cargo;
        for (uint32_t k = 0; k < bucket->nentries; k++) {
            count_unit(unit, &session->cargo[unit->entries[k].chunk]);
        }
    }
}

static ferry_status_t make_units(fy_session_t *session, fy_pass_t *pass, ferry_error_t *err) {
    size_t nbuckets = 0;
    if (session->bucketed || session->options.check) {
        FY_TRY(make_buckets(session, pass, err));
        (void)ferry_buckets_list(pass->buckets, &nbuckets);
    }
    pass->units = fy_arena_alloc(&session->cut, pass->count, sizeof *pass->units);
    pass->bucket_units = fy_arena_alloc(&session->cut, nbuckets, sizeof *pass->bucket_units);
    if (pass->units == NULL || pass->bucket_units == NULL) {
        return fy_fail_nomem(err, "the units of a session");
    }
    memset(pass->units, 0, pass->count * sizeof *pass->units);
    if (session->bucketed) {
        add_bucket_units(session, pass);
    }
    add_chunk_units(session, pass, session->bucketed);
    return session->options.check ? fy_check_make(session, pass, err) : FERRY_OK;
}

/* --- laying out -------------------------------------------------------------------------------- */

/* Cargo of folded cells are sent from where the fold ends. */
static void take_results(fy_session_t *session, const fy_pass_t *pass) {
    for (size_t i = 0; i < pass->count; i++) {
        fy_cargo_t *cargo = &session->cargo[pass->first + i];
        bool folded = cargo->sends && cargo->chunk->partial != FERRY_INDEX_NONE;
        if (folded && !cargo->binding->transformed) {
            cargo->source = session->folds[cargo->chunk->cell].result;
            if (!cargo->cast_first && !session->bucketed) {
                cargo->send[0] = cargo->source;
            }
        }
    }
}

static ferry_status_t lay_out(fy_session_t *session, fy_pass_t *pass, fy_places_t *places,
                              ferry_error_t *err) {
    for (size_t i = 0; i < pass->nfolds; i++) {
        fy_fold_t *fold = &session->folds[pass->first_fold + i];
        if (!fold->binding->transformed) {
            FY_TRY(fy_fold_place(session, fold, places, err));
        }
    }
    take_results(session, pass);
    for (size_t i = 0; i < pass->nunits; i++) {
        fy_unit_t *unit = &pass->units[i];
        FY_TRY(unit->bucket != NULL ? fy_bucket_place(session, unit, places, err)
                                    : fy_chunk_place(unit->cargo, session->ncopies, places, err));
    }
    if (pass->check != NULL) {
        fy_check_place(session, pass, places);
    }
    return FERRY_OK;
}

static ferry_status_t lay_out_all(fy_session_t *session, ferry_error_t *err) {
    for (uint32_t p = 0; p < session->npasses; p++) {
        fy_places_t places = {NULL, 0};
        FY_TRY(make_units(session, &session->passes[p], err));
        FY_TRY(lay_out(session, &session->passes[p], &places, err));
        session->block_bytes = fy_max_u64(session->block_bytes, places.used);
    }
    if (session->block_bytes > 0) {
        FY_TRY(ferry_mem_alloc(session->world, session->block_bytes, &session->block, err));
    }
    for (uint32_t p = 0; p < session->npasses; p++) {
        fy_places_t places = {session->block, 0};
        FY_TRY(lay_out(session, &session->passes[p], &places, err));
    }
    return FERRY_OK;
}

/* --- keeping ----------------------------------------------------------------------------------- */

static ferry_status_t submit_units(fy_session_t *session, const fy_pass_t *pass, uint32_t copy,
                                   ferry_error_t *err) {
    for (size_t i = 0; i < pass->nunits; i++) {
        const fy_unit_t *unit = &pass->units[i];
        ferry_status_t status = unit->ops->submit(session, unit, copy, err);
        if (status != FERRY_OK) {
            fy_cargo_blame(session,
                           unit->cargo != NULL ? unit->cargo : &unit->all[unit->entries[0].chunk],
                           err);
            return status;
        }
    }
    return pass->check != NULL ? fy_check_submit(session, pass, err) : FERRY_OK;
}

/* All have queued, or nobody keeps. */
static ferry_status_t keep(fy_session_t *session, ferry_status_t queued, fy_letter_t *mine,
                           fy_letter_t *all, ferry_kept_batch_t **batch_p, ferry_error_t *err) {
    if (queued != FERRY_OK) {
        fy_letter_fail(mine, queued, ferry_world_rank(session->world));
    }
    ferry_status_t status = fy_agree(session->group, mine, all, err);
    if (status != FERRY_OK) {
        fy_service_drop(session->service);
        return status;
    }
    return ferry_copy_service_keep(session->service, batch_p, err);
}

static ferry_status_t keep_pass(fy_session_t *session, fy_pass_t *pass, fy_letter_t *all,
                                ferry_error_t *err) {
    fy_letter_t mine = {{0}, FERRY_ERROR_INIT};
    if (pass->reduces) {
        ferry_status_t queued = fy_folds_submit(session, pass, &mine.error);
        FY_TRY(keep(session, queued, &mine, all, &pass->reduce, err));
    }
    for (uint32_t copy = 0; copy < session->ncopies; copy++) {
        ferry_status_t queued = submit_units(session, pass, copy, &mine.error);
        FY_TRY(keep(session, queued, &mine, all, &pass->move[copy], err));
    }
    return FERRY_OK;
}

ferry_status_t fy_build(fy_session_t *session, ferry_error_t *err) {
    fy_letter_t *all = fy_alloc(session->size, sizeof *all);
    if (all == NULL) {
        return fy_fail_nomem(err, "the letters of a session");
    }
    fy_letter_t mine = {{0}, FERRY_ERROR_INIT};
    ferry_status_t status = lay_out_all(session, &mine.error);
    if (status == FERRY_OK) {
        status = fy_check_aliases(session, &mine.error);
    }
    if (status != FERRY_OK) {
        fy_letter_fail(&mine, status, ferry_world_rank(session->world));
    }
    status = fy_agree(session->group, &mine, all, err);
    if (status == FERRY_OK && session->transforms) {
        status = fy_borrow_payloads(session, err);
    }
    for (uint32_t p = 0; p < session->npasses && status == FERRY_OK; p++) {
        status = keep_pass(session, &session->passes[p], all, err);
    }
    fy_free(all);
    return status;
}

void fy_build_undo(fy_session_t *session) {
    for (uint32_t p = 0; p < session->npasses; p++) {
        fy_pass_t *pass = &session->passes[p];
        ferry_kept_batch_destroy(pass->reduce);
        ferry_kept_batch_destroy(pass->move[0]);
        ferry_kept_batch_destroy(pass->move[1]);
        ferry_buckets_destroy(pass->buckets);
    }
    session->npasses = 0;
    if (session->block != NULL && ferry_world_check(session->world, NULL) == FERRY_OK) {
        (void)ferry_mem_free(session->world, session->block, NULL);
    }
    session->block = NULL;
    session->block_bytes = 0;
}
