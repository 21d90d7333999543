/* bench_reshard_session.c - a rank's memory and session of a case.
 *
 * Invariant: tensors that arrive quantised are the transform's, and are not among the session's targets. */
#include "bench_reshard_session.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/mem.h>

#include "error.h"

static uint32_t copies_of(const reshard_mine_t *mine) {
    return mine->job->asked->commit == FERRY_COMMIT_FLIP ? RESHARD_COPIES : 1;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static ferry_status_t take(reshard_mine_t *mine, bench_side_t side, void **memory_p,
                           ferry_error_t *err) {
    uint64_t bytes = mine->shards[side].bytes;
    return bytes > 0 ? ferry_mem_alloc(mine->world, bytes, memory_p, err) : FERRY_OK;
}

ferry_status_t reshard_mine_fill(reshard_mine_t *mine, ferry_error_t *err) {
    const reshard_job_t *job = mine->job;
    ferry_status_t status = reshard_pattern_create(&mine->pattern, err);
    for (int side = 0; status == FERRY_OK && side < BENCH_SIDES; side++) {
        status = reshard_shards_init(job->asked, job->model, (bench_side_t)side, mine->rank,
                                     &mine->shards[side], err);
    }
    if (status == FERRY_OK) {
        status = take(mine, BENCH_SOURCE, &mine->source, err);
    }
    for (uint32_t copy = 0; status == FERRY_OK && copy < copies_of(mine); copy++) {
        status = take(mine, BENCH_TARGET, &mine->targets[copy], err);
    }
    if (status == FERRY_OK) {
        status = reshard_fill(mine->pattern, job->model->tensors[BENCH_SOURCE],
                              &mine->shards[BENCH_SOURCE], mine->rank, mine->source, err);
    }
    return status;
}

void reshard_mine_clear(const reshard_mine_t *mine) {
    for (uint32_t copy = 0; copy < RESHARD_COPIES; copy++) {
        if (mine->targets[copy] != NULL) {
            memset(mine->targets[copy], 0, mine->shards[BENCH_TARGET].bytes);
        }
    }
}

ferry_status_t reshard_mine_verify(const reshard_mine_t *mine, ferry_error_t *err) {
    const reshard_job_t *job = mine->job;
    ferry_hold_t hold = {0};
    if (mine->commit != NULL) {
        ferry_status_t status = ferry_commit_acquire(mine->commit, &hold, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    ferry_status_t status = reshard_verify(mine->pattern, job->model->tensors[BENCH_TARGET],
                                           &mine->shards[BENCH_TARGET], job->asked->mx_layout,
                                           mine->rank, mine->targets[hold.copy], err);
    if (mine->commit != NULL) {
        ferry_commit_release(mine->commit, &hold);
    }
    return status;
}

/* ---- the session's tensors --------------------------------------------------------------------- */

/* The tensors of a side in memory from `base` on. *list_p is the caller's to free. */
static ferry_status_t bind_side(const reshard_mine_t *mine, bench_side_t side, void *base,
                                ferry_bound_t **list_p, size_t *count_p, ferry_error_t *err) {
    const reshard_shards_t *shards = &mine->shards[side];
    ferry_bound_t *list = calloc(shards->count + 1, sizeof *list);
    size_t count = 0;
    if (list == NULL) {
        return cli_fail_nomem(err);
    }
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; status == FERRY_OK && i < shards->count; i++) {
        const reshard_shard_t *shard = &shards->list[i];
        if (shard->held && !shard->mx) {
            list[count].name = mine->job->model->tensors[side][i].name;
            status = reshard_shard_view(shard, base, &list[count++].view, err);
        }
    }
    *list_p = list;
    *count_p = count;
    return status;
}

/* ---- MXFP8 ------------------------------------------------------------------------------------- */

static ferry_status_t make_target(const reshard_mine_t *mine, size_t ordinal,
                                  ferry_mx_target_t *target, ferry_error_t *err) {
    ferry_mx_layout_t layout = mine->job->asked->mx_layout;
    const reshard_shard_t *shard = &mine->shards[BENCH_TARGET].list[ordinal];
    target->name = mine->job->model->tensors[BENCH_TARGET][ordinal].name;
    target->layout = layout;
    ferry_status_t status = FERRY_OK;
    for (uint32_t copy = 0; status == FERRY_OK && copy < copies_of(mine); copy++) {
        status = reshard_shard_view(shard, mine->targets[copy], &target->data[copy], err);
        if (status == FERRY_OK) {
            status =
                reshard_scales_view(shard, layout, mine->targets[copy], &target->scales[copy], err);
        }
    }
    return status;
}

static ferry_status_t make_mxfp8(reshard_mine_t *mine, const char **names,
                                 ferry_mx_target_t *targets, ferry_error_t *err) {
    const reshard_case_t *asked = mine->job->asked;
    const reshard_model_t *model = mine->job->model;
    size_t nnames = 0;
    size_t ntargets = 0;
    for (size_t i = 0; i < model->count; i++) {
        const reshard_shard_t *shard = &mine->shards[BENCH_TARGET].list[i];
        if (!shard->mx) {
            continue;
        }
        names[nnames++] = model->tensors[BENCH_TARGET][i].name;
        if (shard->elements > 0) {
            ferry_status_t status = make_target(mine, i, &targets[ntargets++], err);
            if (status != FERRY_OK) {
                return status;
            }
        }
    }
    ferry_mx_convert_t convert =
        asked->mx == RESHARD_MX_SENDER ? FERRY_MX_ON_SENDER : FERRY_MX_ON_RECEIVER;
    return ferry_mxfp8_create(names, nnames, targets, ntargets, convert, &mine->mxfp8, err);
}

static ferry_status_t add_mxfp8(reshard_mine_t *mine, ferry_error_t *err) {
    if (mine->job->asked->mx == RESHARD_MX_NONE) {
        return FERRY_OK;
    }
    size_t count = mine->job->model->count;
    const char **names = calloc(count + 1, sizeof *names);
    ferry_mx_target_t *targets = calloc(count + 1, sizeof *targets);
    ferry_status_t status = names != NULL && targets != NULL ? make_mxfp8(mine, names, targets, err)
                                                             : cli_fail_nomem(err);
    free(names);
    free(targets);
    return status;
}

/* ---- preparing --------------------------------------------------------------------------------- */

static ferry_status_t add_service(reshard_mine_t *mine, ferry_error_t *err) {
    ferry_group_t *group = ferry_world_group(mine->world);
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.sharing = (uint32_t)mine->job->sharing;
    ferry_status_t status = ferry_copy_service_create(group, &params, &mine->service, err);
    if (status == FERRY_OK && mine->job->asked->commit != 0) {
        status = ferry_commit_create(group, mine->job->asked->commit, &mine->commit, err);
    }
    return status;
}

static ferry_status_t add_session(reshard_mine_t *mine, ferry_error_t *err) {
    const reshard_case_t *asked = mine->job->asked;
    ferry_bound_t *lists[3] = {NULL, NULL, NULL}; /* sources, targets, their second copy */
    size_t counts[3] = {0, 0, 0};
    ferry_status_t status = bind_side(mine, BENCH_SOURCE, mine->source, &lists[0], &counts[0], err);
    for (uint32_t copy = 0; status == FERRY_OK && copy < copies_of(mine); copy++) {
        status = bind_side(mine, BENCH_TARGET, mine->targets[copy], &lists[1 + copy],
                           &counts[1 + copy], err);
    }
    if (status == FERRY_OK) {
        ferry_reshard_options_t options = FERRY_RESHARD_OPTIONS_INIT;
        options.budget_bytes = asked->budget_bytes;
        options.check = asked->check;
        options.commit = mine->commit;
        options.other_targets = (ferry_tensors_t){lists[2], counts[2]};
        status =
            ferry_session_create(mine->plan, (ferry_tensors_t){lists[0], counts[0]},
                                 (ferry_tensors_t){lists[1], counts[1]}, mine->service,
                                 mine->mxfp8 != NULL ? ferry_mxfp8_transform(mine->mxfp8) : NULL,
                                 &options, &mine->session, err);
    }
    for (int i = 0; i < 3; i++) {
        free(lists[i]);
    }
    return status;
}

ferry_status_t reshard_mine_prepare(reshard_mine_t *mine, ferry_error_t *err) {
    ferry_status_t status = add_service(mine, err);
    if (status == FERRY_OK) {
        status = add_mxfp8(mine, err);
    }
    return status == FERRY_OK ? add_session(mine, err) : status;
}

void reshard_mine_fini(reshard_mine_t *mine) {
    ferry_session_close(mine->session);
    ferry_mxfp8_destroy(mine->mxfp8);
    ferry_commit_destroy(mine->commit);
    ferry_copy_service_close(mine->service);
    ferry_plan_destroy(mine->plan);
    for (int side = 0; side < BENCH_SIDES; side++) {
        reshard_shards_fini(&mine->shards[side]);
    }
    reshard_pattern_destroy(mine->pattern);
}
