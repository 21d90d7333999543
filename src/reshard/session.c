/* session.c - the front: preparing, running, closing. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "reshard/session.h"
#include "reshard/unit.h"
#include "world/world.h"

/* --- preparing --------------------------------------------------------------------------------- */

static ferry_status_t check_transform(const ferry_transform_t *transform, ferry_error_t *err) {
    if (transform == NULL) {
        return FERRY_OK;
    }
    if (transform->size != sizeof *transform) {
        return fy_fail(err, FERRY_INVALID, "ferry_transform_t of %zu bytes, not %zu",
                       transform->size, sizeof *transform);
    }
    if (transform->should_transform == NULL || transform->prepare_send == NULL ||
        transform->prepare_recv == NULL || transform->finalize_recv == NULL) {
        return fy_fail(err, FERRY_INVALID, "the transform %s lacks a function",
                       transform->name != NULL ? transform->name : "");
    }
    return FERRY_OK;
}

static ferry_status_t check_options(const fy_session_t *session, ferry_error_t *err) {
    const ferry_reshard_options_t *options = &session->options;
    if (options->size != sizeof *options) {
        return fy_fail(err, FERRY_INVALID, "ferry_reshard_options_t of %zu bytes, not %zu",
                       options->size, sizeof *options);
    }
    if (options->buckets > FERRY_BUCKETS_NEVER) {
        return fy_fail(err, FERRY_INVALID, "%" PRIu32 " is no way of bucketing", options->buckets);
    }
    if (options->wire != FERRY_DTYPE_NONE && ferry_dtype_bits(options->wire) == 0) {
        return fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)options->wire);
    }
    for (uint32_t i = 0; i < ferry_plan_ntensors(session->plan); i++) {
        ferry_plan_tensor_t t;
        ferry_plan_tensor(session->plan, i, &t);
        for (uint32_t k = 0; k < 2; k++) {
            const ferry_layout_t *layout = k == 0 ? t.source_layout : t.target_layout;
            const uint32_t *ranks = ferry_layout_ranks(layout);
            for (uint32_t n = 0; n < ferry_layout_nranks(layout); n++) {
                if (ranks[n] >= session->size) {
                    ferry_status_t status =
                        fy_fail(err, FERRY_MISMATCH,
                                "the plan has rank %" PRIu32 " and the group %" PRIu32 " members",
                                ranks[n], session->size);
                    fy_error_tensor(err, t.name);
                    return status;
                }
            }
        }
    }
    uint32_t part = ferry_plan_rank(session->plan);
    if (part != FERRY_RANK_NONE && part != session->me) {
        return fy_fail(err, FERRY_MISMATCH,
                       "the plan is the part of rank %" PRIu32 ", this is member %" PRIu32, part,
                       session->me);
    }
    return check_transform(session->transform, err);
}

static void take_options(fy_session_t *session, const ferry_reshard_options_t *options) {
    ferry_reshard_options_t defaults = FERRY_RESHARD_OPTIONS_INIT;
    session->options = options != NULL ? *options : defaults;
    ferry_copy_traits_t traits;
    ferry_copy_service_traits(session->service, &traits);
    const ferry_commit_t *commit = session->options.commit;
    session->flip = commit != NULL && ferry_commit_mode(commit) == FERRY_COMMIT_FLIP;
    session->gate = commit != NULL && ferry_commit_mode(commit) == FERRY_COMMIT_GATE;
    session->ncopies = session->flip ? 2 : 1;
    session->copy_flags = traits.copy_flags;
    session->may_lend = traits.direct && !session->gate;
    session->bucketed = session->options.buckets == FERRY_BUCKETS_ALWAYS ||
                        (session->options.buckets == FERRY_BUCKETS_AUTO && traits.contiguous);
}

/* The counters at which runs end: each rank has one per member, which that member sets. */
static ferry_status_t make_meeting(fy_session_t *session, ferry_error_t *err) {
    typedef struct note {
        ferry_mem_key_t key;
        fy_letter_t letter;
    } note_t;
    note_t mine = {.letter = {{0}, FERRY_ERROR_INIT}};
    size_t bytes = sizeof(fy_meeting_t) + session->size * sizeof(fy_counter_t);
    void *memory = NULL;
    fy_common_sweep(session->world);
    ferry_status_t status = ferry_mem_alloc(session->world, bytes, &memory, &mine.letter.error);
    session->meeting = memory;
    if (status == FERRY_OK) {
        status = ferry_mem_register(session->world, memory, bytes, &mine.key, &mine.letter.error);
    }
    session->meetings = fy_arena_alloc(&session->arena, session->size, sizeof *session->meetings);
    note_t *all = fy_alloc(session->size, sizeof *all);
    if (all == NULL) {
        return fy_fail_nomem(err, "the letters of a session");
    }
    if (status != FERRY_OK || session->meetings == NULL) {
        fy_letter_fail(&mine.letter, status != FERRY_OK ? status : FERRY_NOMEM,
                       ferry_world_rank(session->world));
    }
    status = ferry_group_allgather(session->group, &mine, sizeof mine, all, err);
    for (uint32_t member = 0; member < session->size && status == FERRY_OK; member++) {
        if (all[member].letter.error.status != FERRY_OK) {
            status = all[member].letter.error.status;
            if (err != NULL) {
                *err = all[member].letter.error;
            }
        }
    }
    for (uint32_t member = 0;
         member < session->size && session->meetings != NULL && status == FERRY_OK; member++) {
        void *theirs = NULL;
        status = ferry_mem_map(session->world, &all[member].key, &theirs, err);
        session->meetings[member] = theirs;
    }
    fy_free(all);
    return status;
}

/* What a run will do, known beforehand. */
static void foresee(fy_session_t *session) {
    ferry_reshard_result_t *r = &session->fixed;
    for (size_t i = 0; i < session->ncargo; i++) {
        const fy_cargo_t *cargo = &session->cargo[i];
        uint64_t bytes =
            cargo->chunk->elements * ferry_dtype_bits(cargo->binding->tensor.target_dtype) / 8;
        if (cargo->writeback == FY_WRITEBACK_DIRECT) {
            r->chunks_direct++;
            r->writeback_direct_bytes += bytes;
        } else if (cargo->writeback == FY_WRITEBACK_COPY) {
            r->chunks_copy++;
            r->writeback_copy_bytes += bytes;
        } else if (cargo->writeback == FY_WRITEBACK_TRANSFORM) {
            r->chunks_transform++;
            r->writeback_transform_bytes += bytes;
        }
        session->bytes_total += cargo->writeback != FY_WRITEBACK_NONE ? bytes : 0;
    }
    for (uint32_t p = 0; p < session->npasses; p++) {
        size_t count = 0;
        if (session->passes[p].buckets != NULL) {
            (void)ferry_buckets_list(session->passes[p].buckets, &count);
        }
        r->buckets += count;
    }
    ferry_copy_traits_t traits;
    ferry_copy_service_traits(session->service, &traits);
    r->passes = session->npasses;
    r->staging_bytes = session->block_bytes + session->staging.taken + traits.staging_bytes;
    for (uint32_t i = 0; i < session->ntensors && session->flip; i++) {
        const fy_binding_t *b = &session->bindings[i];
        if (b->has_target) {
            ferry_view_t shard = {.dtype = b->tensor.target_dtype, .ndim = b->tensor.ndim};
            memcpy(shard.shape, b->target_shape, sizeof shard.shape);
            r->commit_bytes += fy_staged_bytes(&shard);
        }
    }
    r->commit_bytes += session->gate ? session->block_bytes : 0;
    r->version =
        session->options.commit != NULL ? ferry_commit_version(session->options.commit) : 0;
}

/* Within what the service's slots leave of the budget. */
static ferry_status_t make(fy_session_t *session, uint64_t slots, ferry_error_t *err) {
    uint64_t budget = session->options.budget_bytes;
    session->staging.world = session->world;
    session->staging.budget = budget == 0 ? UINT64_MAX : budget > slots ? budget - slots : 0;
    session->slots_bytes = slots;
    FY_TRY(fy_make_passes(session, err));
    return fy_build(session, err);
}

/* Slots appear when the first batch that needs them is kept: then what was made may be too large, on all
 * ranks alike, since all have the same slots. */
static ferry_status_t make_within_budget(fy_session_t *session, ferry_error_t *err) {
    ferry_copy_traits_t before;
    ferry_copy_traits_t after;
    ferry_copy_service_traits(session->service, &before);
    FY_TRY(make(session, before.staging_bytes, err));
    ferry_copy_service_traits(session->service, &after);
    if (session->options.budget_bytes == 0 || after.staging_bytes == before.staging_bytes) {
        return FERRY_OK;
    }
    fy_build_undo(session);
    fy_unload(session);
    return make(session, after.staging_bytes, err);
}

static ferry_status_t prepare(fy_session_t *session, ferry_tensors_t sources,
                              ferry_tensors_t targets, ferry_error_t *err) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status = check_options(session, &mine);
    if (status == FERRY_OK) {
        status = fy_bind(session, sources, targets, &mine);
    }
    FY_TRY(fy_agree_on_inputs(session, status, &mine, err));
    FY_TRY(make_meeting(session, err));
    return make_within_budget(session, err);
}

ferry_status_t ferry_session_create(const ferry_plan_t *plan, ferry_tensors_t sources,
                                    ferry_tensors_t targets, ferry_copy_service_t *service,
                                    const ferry_transform_t *transform,
                                    const ferry_reshard_options_t *options,
                                    ferry_session_t **session_p, ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(service, err);
    FY_NEED(session_p, err);
    fy_session_t *session = fy_alloc_zero(1, sizeof *session);
    if (session == NULL) {
        return fy_fail_nomem(err, "a session");
    }
    uint64_t begin_ns = fy_clock_ns();
    session->service = service;
    session->group = ferry_copy_service_group(service);
    session->world = ferry_group_world(session->group);
    session->me = ferry_group_rank(session->group);
    session->size = ferry_group_size(session->group);
    session->generation = fy_world_generation(session->world);
    session->plan = plan;
    session->transform = transform;
    take_options(session, options);
    ferry_status_t status = prepare(session, sources, targets, err);
    if (status != FERRY_OK) {
        ferry_session_close(session);
        return status;
    }
    session->whole = true;
    foresee(session);
    session->fixed.seconds[FERRY_PHASE_PREPARE] = (double)(fy_clock_ns() - begin_ns) * 1e-9;
    session->result = session->fixed;
    *session_p = session;
    return FERRY_OK;
}

/* A session that was never whole is so on all ranks: nobody looks. */
static void leave_meeting(const fy_session_t *session) {
    fy_meeting_t *mine = session->meeting;
    if (mine == NULL || fy_world_usable(session->world, NULL) != FERRY_OK) {
        return;
    }
    if (!session->whole) {
        (void)ferry_mem_free(session->world, mine, NULL);
        return;
    }
    bool current = session->generation == fy_world_generation(session->world);
    for (uint32_t member = 0; member < session->size && current; member++) {
        fy_common_leave(&session->meetings[member]->common);
    }
    fy_common_retire(session->world, &mine->common, mine, session->size, session->generation);
}

void ferry_session_close(ferry_session_t *session) {
    if (session == NULL) {
        return;
    }
    if (atomic_load(&session->running)) {
        (void)ferry_session_cancel(session, NULL);
        (void)ferry_session_wait(session, NULL, NULL);
    }
    fy_build_undo(session);
    fy_unload(session);
    leave_meeting(session);
    fy_arena_fini(&session->arena);
    fy_free(session);
}

/* --- running ----------------------------------------------------------------------------------- */

ferry_status_t ferry_session_check(ferry_session_t *session, ferry_error_t *err) {
    FY_NEED(session, err);
    FY_TRY(ferry_world_check(session->world, err));
    return ferry_copy_service_check(session->service, err);
}

/* The world has recovered: ranks may have counted different numbers of runs. Waits for all. */
static ferry_status_t start_over(ferry_session_t *session, ferry_error_t *err) {
    memset(session->meeting->came, 0, session->size * sizeof *session->meeting->came);
    session->nmet = 0;
    session->generation = fy_world_generation(session->world);
    return ferry_group_barrier(session->group, err);
}

ferry_status_t ferry_session_start(ferry_session_t *session, ferry_error_t *err) {
    FY_NEED(session, err);
    if (atomic_load(&session->running)) {
        return fy_fail(err, FERRY_INVALID, "a run of the session is under way");
    }
    session->result = session->fixed;
    if (session->options.commit != NULL) {
        session->result.version = ferry_commit_version(session->options.commit);
    }
    FY_TRY(ferry_session_check(session, err));
    if (session->generation != fy_world_generation(session->world)) {
        FY_TRY(start_over(session, err));
    }
    fy_run_open(session);
    return FERRY_OK;
}

static ferry_status_t under_way(const ferry_session_t *session, ferry_error_t *err) {
    return atomic_load(&session->running)
               ? FERRY_OK
               : fy_fail(err, FERRY_INVALID, "no run of the session was started");
}

ferry_status_t ferry_session_test(ferry_session_t *session, bool *done_p, ferry_error_t *err) {
    FY_NEED(session, err);
    FY_NEED(done_p, err);
    FY_TRY(under_way(session, err));
    return fy_session_step(session, false, done_p, err);
}

ferry_status_t ferry_session_wait(ferry_session_t *session, ferry_reshard_result_t *result_p,
                                  ferry_error_t *err) {
    FY_NEED(session, err);
    FY_TRY(under_way(session, err));
    bool done = false;
    ferry_status_t status = FERRY_OK;
    while (status == FERRY_OK && !done) {
        status = fy_session_step(session, true, &done, err);
    }
    if (result_p != NULL) {
        *result_p = session->result;
    }
    return status;
}

ferry_status_t ferry_session_run(ferry_session_t *session, ferry_reshard_result_t *result_p,
                                 ferry_error_t *err) {
    ferry_status_t status = ferry_session_start(session, err);
    if (status == FERRY_OK) {
        return ferry_session_wait(session, result_p, err);
    }
    if (session != NULL && result_p != NULL) {
        *result_p = session->result;
    }
    return status;
}

ferry_status_t ferry_session_cancel(ferry_session_t *session, ferry_error_t *err) {
    FY_NEED(session, err);
    FY_TRY(under_way(session, err));
    uint32_t rank = ferry_world_rank(session->world);
    ferry_error_t mine = FERRY_ERROR_INIT;
    (void)fy_fail(&mine, FERRY_STOPPED, "rank %" PRIu32 " cancelled the run", rank);
    mine.rank = rank;
    ferry_error_t agreed = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_fail(session->world, &mine, &agreed);
    if (status != FERRY_STOPPED && err != NULL) {
        *err = agreed;
    }
    return status == FERRY_STOPPED ? FERRY_OK : status;
}

void ferry_session_result(const ferry_session_t *session, ferry_reshard_result_t *result_p) {
    *result_p = session->result;
}

/* --- once -------------------------------------------------------------------------------------- */

ferry_status_t ferry_reshard_execute(const ferry_plan_t *plan, ferry_tensors_t sources,
                                     ferry_tensors_t targets, ferry_copy_service_t *service,
                                     const ferry_transform_t *transform,
                                     const ferry_reshard_options_t *options,
                                     ferry_reshard_result_t *result_p, ferry_error_t *err) {
    ferry_session_t *session = NULL;
    FY_TRY(
        ferry_session_create(plan, sources, targets, service, transform, options, &session, err));
    ferry_status_t status = ferry_session_run(session, result_p, err);
    ferry_session_close(session);
    return status;
}
