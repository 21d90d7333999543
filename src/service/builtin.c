/* builtin.c - the table of the built-in service, and what its ranks tell each other.
 *
 * Preparing a batch is two exchanges. In the first everyone says what ends it has, or that it cannot
 * take part; in the second how the making of the batch went, and where its slots are. A mistake or a
 * full memory on one rank thus becomes one error on all, and the world stays whole. */
#include "service/builtin.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "service/service.h"
#include "world/world.h"

/* What ranks tell each other when something was made. */
typedef struct made {
    ferry_error_t error;
    ferry_mem_key_t key;
    ferry_copy_service_params_t params;
} made_t;

static ferry_status_t first_error(const made_t *all, uint32_t size, ferry_error_t *err) {
    for (uint32_t member = 0; member < size; member++) {
        if (all[member].error.status != FERRY_OK) {
            if (err != NULL) {
                *err = all[member].error;
            }
            return all[member].error.status;
        }
    }
    return FERRY_OK;
}

/* --- create and close -------------------------------------------------------------------------- */

static ferry_status_t check_params(const ferry_copy_service_params_t *params, ferry_error_t *err) {
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID, "ferry_copy_service_params_t of %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    uint32_t all = FERRY_PATH_DIRECT | FERRY_PATH_READ | FERRY_PATH_PIPELINE;
    if ((params->paths & ~all) != 0 || params->sharing > FERRY_SHARE_PROCESSES) {
        return fy_fail(err, FERRY_INVALID, "%s: paths %" PRIu32 ", sharing %" PRIu32 ": unknown",
                       FY_SERVICE_NAME, params->paths, params->sharing);
    }
    return FERRY_OK;
}

static bool same_params(const ferry_copy_service_params_t *a,
                        const ferry_copy_service_params_t *b) {
    return a->paths == b->paths && a->sharing == b->sharing &&
           a->read_run_bytes == b->read_run_bytes && a->slot_bytes == b->slot_bytes &&
           a->staging_bytes == b->staging_bytes && a->copy_flags == b->copy_flags;
}

static ferry_status_t make_flags(fy_builtin_t *service, void **memory_p, made_t *mine) {
    ferry_status_t status = check_params(&service->params, &mine->error);
    if (status == FERRY_OK) {
        status = ferry_mem_alloc(service->world, sizeof(fy_rank_flags_t), memory_p, &mine->error);
    }
    if (status == FERRY_OK) {
        status = ferry_mem_register(service->world, *memory_p, sizeof(fy_rank_flags_t), &mine->key,
                                    &mine->error);
    }
    fy_error_ranks(&mine->error, ferry_world_rank(service->world), FERRY_RANK_NONE);
    return status;
}

static ferry_status_t connect(fy_builtin_t *service, const made_t *all, ferry_error_t *err) {
    FY_TRY(first_error(all, service->size, err));
    for (uint32_t member = 0; member < service->size; member++) {
        if (!same_params(&all[member].params, &all[0].params)) {
            (void)fy_fail(err, FERRY_MISMATCH, "%s: the parameters differ from those of member 0",
                          FY_SERVICE_NAME);
            fy_error_ranks(err, ferry_group_world_rank(service->group, member),
                           ferry_group_world_rank(service->group, 0));
            return FERRY_MISMATCH;
        }
    }
    for (uint32_t member = 0; member < service->size; member++) {
        void *memory = NULL;
        FY_TRY(ferry_mem_map(service->world, &all[member].key, &memory, err));
        service->flags[member] = memory;
    }
    return FERRY_OK;
}

static void set_defaults(fy_builtin_t *service) {
    ferry_copy_service_params_t *params = &service->params;
    if (params->paths == 0) {
        params->paths = FERRY_PATH_DIRECT | FERRY_PATH_READ | FERRY_PATH_PIPELINE;
    }
    if (params->read_run_bytes == 0) {
        params->read_run_bytes = FERRY_READ_RUN_BYTES;
    }
    service->world = ferry_group_world(service->group);
    service->me = ferry_group_rank(service->group);
    service->size = ferry_group_size(service->group);
    service->generation = fy_world_generation(service->world);
    uint32_t other = ferry_group_world_rank(service->group, (service->me + 1) % service->size);
    service->one_process = ferry_world_same_process(service->world, other);
}

/* Others may still look whether this rank is done. */
static void leave_flags(const fy_builtin_t *service) {
    if (fy_world_usable(service->world, NULL) != FERRY_OK) {
        return; /* a child that was forked by a rank closes for itself alone */
    }
    bool current = service->generation == fy_world_generation(service->world);
    for (uint32_t member = 0; member < service->size && current; member++) {
        fy_common_leave(&service->flags[member]->common);
    }
    fy_rank_flags_t *mine = service->flags[service->me];
    fy_common_retire(service->world, &mine->common, mine, service->size, service->generation);
}

static void builtin_close(void *state) {
    fy_builtin_t *service = state;
    if (service->flags[service->me] != NULL) {
        leave_flags(service);
    }
    ferry_slots_destroy(service->slots);
    fy_free(service->flags);
    fy_free(service);
}

static ferry_status_t exchange_flags(fy_builtin_t *service, ferry_error_t *err) {
    made_t mine;
    memset(&mine, 0, sizeof mine);
    mine.error = (ferry_error_t)FERRY_ERROR_INIT;
    mine.params = service->params;
    void *memory = NULL;
    fy_common_sweep(service->world);
    (void)make_flags(service, &memory, &mine);
    made_t *all = fy_alloc(service->size, sizeof *all);
    if (all == NULL) {
        (void)ferry_mem_free(service->world, memory, NULL);
        (void)fy_fail_nomem(&mine.error, "a copy service");
        return ferry_world_fail(service->world, &mine.error, err);
    }
    ferry_status_t status = ferry_group_allgather(service->group, &mine, sizeof mine, all, err);
    if (status == FERRY_OK) {
        status = connect(service, all, err);
    }
    fy_free(all);
    if (status != FERRY_OK) {
        service->flags[service->me] = NULL; /* nothing to leave */
        (void)ferry_mem_free(service->world, memory, NULL);
    }
    return status;
}

static ferry_status_t builtin_create(ferry_group_t *group, const void *config, void **state_p,
                                     ferry_error_t *err) {
    fy_builtin_t *service = fy_alloc_zero(1, sizeof *service);
    fy_rank_flags_t **flags = fy_alloc_zero(ferry_group_size(group), sizeof(void *));
    if (service == NULL || flags == NULL) {
        fy_free(service);
        fy_free(flags);
        ferry_error_t mine = FERRY_ERROR_INIT;
        (void)fy_fail_nomem(&mine, "a copy service");
        return ferry_world_fail(ferry_group_world(group), &mine, err);
    }
    service->group = group;
    service->flags = flags;
    service->params = *(const ferry_copy_service_params_t *)config;
    set_defaults(service);
    ferry_status_t status = exchange_flags(service, err);
    if (status != FERRY_OK) {
        builtin_close(service);
        return status;
    }
    *state_p = service;
    return FERRY_OK;
}

/* --- preparing --------------------------------------------------------------------------------- */

/* After a recovery of the world all counters start anew, on all ranks. */
static ferry_status_t catch_up(fy_builtin_t *service, ferry_error_t *err) {
    FY_TRY(ferry_world_check(service->world, err));
    if (service->generation == fy_world_generation(service->world)) {
        return FERRY_OK;
    }
    fy_rank_flags_t *flags = service->flags[service->me];
    atomic_store(&flags->begun.value, 0);
    atomic_store(&flags->done.value, 0);
    atomic_store(&flags->parts.value, 0);
    atomic_store(&flags->claim, 0);
    atomic_store(&flags->open, 0);
    service->number = 0;
    service->parts_done = 0;
    if (service->slots != NULL) {
        fy_slots_clear(service->slots);
    }
    FY_TRY(ferry_group_barrier(service->group, err));
    service->generation = fy_world_generation(service->world);
    return FERRY_OK;
}

/* Pairs of this rank with itself, as every service matches them. */
static ferry_status_t check_local(fy_builtin_t *service, const ferry_copy_list_t *list,
                                  ferry_error_t *err) {
    uint64_t *ids = fy_alloc(list->nsends + list->nrecvs, sizeof *ids);
    ferry_op_pair_t *pairs = fy_alloc(list->nrecvs, sizeof *pairs);
    if (ids == NULL || pairs == NULL) {
        fy_free(ids);
        fy_free(pairs);
        return fy_fail_nomem(err, "matching a batch");
    }
    size_t nsends = 0;
    for (size_t i = 0; i < list->nsends; i++) {
        if (list->sends[i].peer == service->me) {
            ids[nsends++] = list->sends[i].task_id;
        }
    }
    size_t nrecvs = 0;
    for (size_t i = 0; i < list->nrecvs; i++) {
        if (list->recvs[i].peer == service->me) {
            ids[nsends + nrecvs++] = list->recvs[i].task_id;
        }
    }
    ferry_status_t status =
        ferry_match_local_ops(ids, nsends, ids + nsends, nrecvs, FY_SERVICE_NAME,
                              ferry_world_rank(service->world), pairs, err);
    fy_free(ids);
    fy_free(pairs);
    return status;
}

/* What this rank says; where it finds a mistake of its own, it says that. */
static ferry_status_t exchange_ends(fy_builtin_t *service, const ferry_copy_list_t *list,
                                    ferry_blobs_t **blobs_p, ferry_error_t *err) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    uint8_t complaint[FY_ERROR_BLOB_BYTES];
    fy_writer_t blob = {0};
    uint32_t rank = ferry_world_rank(service->world);
    ferry_status_t status = check_local(service, list, &mine);
    if (status == FERRY_OK) {
        status = fy_check_targets(list, rank, &mine);
    }
    if (status == FERRY_OK) {
        status = fy_publish(service, list, &blob, &mine);
    }
    uint8_t *written = blob.bytes;
    if (status != FERRY_OK) {
        fy_error_ranks(&mine, rank, FERRY_RANK_NONE);
        fy_publish_error(&blob, &mine, complaint, sizeof complaint);
    }
    mine = (ferry_error_t)FERRY_ERROR_INIT;
    status = ferry_group_gather_blobs(service->group, blob.bytes, blob.length, blobs_p, &mine);
    fy_free(written);
    /* The others are in the exchange: they must hear of a failure that is only ours. */
    return status == FERRY_OK ? FERRY_OK : ferry_world_fail(service->world, &mine, err);
}

/* The batch of this rank, and its slots where they are needed for the first time. */
static ferry_status_t build(fy_builtin_t *service, const ferry_copy_list_t *list,
                            const ferry_blobs_t *blobs, fy_batch_t **batch_p,
                            ferry_slots_t **slots_p, made_t *mine) {
    ferry_error_t *err = &mine->error;
    fy_batch_t *batch = fy_alloc_zero(1, sizeof *batch);
    if (batch == NULL) {
        return fy_fail_nomem(err, "a batch");
    }
    *batch_p = batch;
    fy_said_t said;
    fy_pair_t *pairs = NULL;
    FY_TRY(fy_publish_read(service, blobs, &batch->arena, &said, err));
    FY_TRY(fy_make_pairs(service, &said, &batch->arena, &pairs, err));
    FY_TRY(fy_batch_build(service, list, pairs, said.nsends, batch, err));
    if (batch->piped && service->slots == NULL) {
        uint64_t bytes = 0;
        FY_TRY(fy_builtin_slot_bytes(service, &bytes, err));
        FY_TRY(fy_slots_open(service->group, bytes, false, slots_p, &mine->key, err));
    }
    return FERRY_OK;
}

/* Everyone has built its part, or says why not. */
static ferry_status_t settle(fy_builtin_t *service, fy_batch_t *batch, ferry_slots_t *slots,
                             const made_t *mine, ferry_error_t *err) {
    made_t *all = fy_alloc(service->size, sizeof *all);
    if (all == NULL) {
        ferry_error_t out = FERRY_ERROR_INIT;
        (void)fy_fail_nomem(&out, "a batch");
        return ferry_world_fail(service->world, &out, err);
    }
    ferry_status_t status = ferry_group_allgather(service->group, mine, sizeof *mine, all, err);
    if (status == FERRY_OK) {
        status = first_error(all, service->size, err);
    }
    for (uint32_t member = 0; member < service->size && status == FERRY_OK && slots != NULL;
         member++) {
        status = fy_slots_connect(slots, member, &all[member].key, err);
    }
    fy_free(all);
    if (status == FERRY_OK && slots != NULL) {
        service->slots = slots;
    }
    if (status == FERRY_OK && batch != NULL && batch->piped) {
        batch->result.staging_bytes = ferry_slots_staging(service->slots);
    }
    return status;
}

static ferry_status_t builtin_prepare(void *state, const ferry_copy_list_t *list, void **batch_p,
                                      ferry_error_t *err) {
    fy_builtin_t *service = state;
    FY_TRY(catch_up(service, err));
    ferry_blobs_t *blobs = NULL;
    FY_TRY(exchange_ends(service, list, &blobs, err));
    made_t mine;
    memset(&mine, 0, sizeof mine);
    mine.error = (ferry_error_t)FERRY_ERROR_INIT;
    fy_batch_t *batch = NULL;
    ferry_slots_t *slots = NULL;
    if (build(service, list, blobs, &batch, &slots, &mine) != FERRY_OK) {
        fy_error_ranks(&mine.error, ferry_world_rank(service->world), FERRY_RANK_NONE);
    }
    ferry_blobs_destroy(blobs);
    ferry_status_t status = settle(service, batch, slots, &mine, err);
    if (status != FERRY_OK) {
        ferry_slots_destroy(slots);
        fy_batch_destroy(batch);
        return status;
    }
    *batch_p = batch;
    return FERRY_OK;
}

static void builtin_release(void *state, void *batch) {
    (void)state;
    fy_batch_destroy(batch);
}

/* --- submitting and running -------------------------------------------------------------------- */

static ferry_status_t builtin_submit(void *state, bool is_send, const ferry_copy_op_t *op,
                                     ferry_error_t *err) {
    const fy_builtin_t *service = state;
    if (op->view.kind == FERRY_MEM_CUDA) {
        return fy_fail(err, FERRY_UNSUPPORTED,
                       "%s: rank %" PRIu32 ": a %s of memory on a GPU, task id %" PRIu64,
                       FY_SERVICE_NAME, ferry_world_rank(service->world),
                       is_send ? "send" : "receive", op->task_id);
    }
    return FERRY_OK;
}

static ferry_status_t builtin_step(void *state, void *batch, bool begin, bool wait, bool *done_p,
                                   ferry_copy_result_t *result_p, ferry_error_t *err) {
    fy_builtin_t *service = state;
    if (begin) {
        FY_TRY(catch_up(service, err));
        FY_TRY(fy_run_begin(service, batch, err));
    }
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (fy_run_step(service, wait, done_p, &mine) != FERRY_OK) {
        return ferry_world_fail(service->world, &mine, err); /* what only this rank met, too */
    }
    if (*done_p) {
        *result_p = ((const fy_batch_t *)batch)->result;
        result_p->bytes_helped = service->run.helped_bytes;
    }
    return FERRY_OK;
}

static ferry_status_t builtin_run(void *state, const ferry_copy_list_t *list, void *batch,
                                  ferry_copy_result_t *result_p, ferry_error_t *err) {
    (void)list;
    bool done = false;
    return builtin_step(state, batch, true, true, &done, result_p, err);
}

static void builtin_traits(const void *state, ferry_copy_traits_t *traits_p) {
    const fy_builtin_t *service = state;
    traits_p->copy_flags = service->params.copy_flags & FERRY_COPY_SATURATE;
    traits_p->direct = (service->params.paths & FERRY_PATH_DIRECT) != 0;
    traits_p->staging_bytes = service->slots != NULL ? ferry_slots_staging(service->slots) : 0;
}

static const ferry_copy_service_ops_t builtin_ops = {
    .size = sizeof(ferry_copy_service_ops_t),
    .name = FY_SERVICE_NAME,
    .needs_barrier = false,
    .create = builtin_create,
    .close = builtin_close,
    .submit = builtin_submit,
    .prepare = builtin_prepare,
    .release = builtin_release,
    .run = builtin_run,
    .step = builtin_step,
    .traits = builtin_traits,
};

ferry_status_t ferry_copy_service_create(ferry_group_t *group,
                                         const ferry_copy_service_params_t *params,
                                         ferry_copy_service_t **service_p, ferry_error_t *err) {
    FY_NEED(group, err);
    FY_NEED(service_p, err);
    ferry_copy_service_params_t defaults = FERRY_COPY_SERVICE_PARAMS_INIT;
    params = params != NULL ? params : &defaults;
    bool thread = params->size == sizeof *params && params->progress_thread;
    return fy_service_create(&builtin_ops, group, params, thread, service_p, err);
}
