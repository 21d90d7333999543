/* bench_rank.c - what a rank of a case does: fill, submit, keep, run, check.
 *
 * Invariants: a round of ours begins and ends with all ranks at a barrier, and the limit runs between
 * two barriers while the others sleep. Before the last run, which is the one that is checked, targets
 * are cleared, for the limit has written the right values there, too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <ferry/mem.h>

#include "bench_meter.h"
#include "bench_run.h"
#include "error.h"

typedef struct bench_rank {
    const bench_job_t *job;
    const bench_case_t *bench;
    ferry_world_t *world;
    ferry_group_t *group;
    uint32_t rank;
    bench_lane_t *lane;
    void *memory[BENCH_SIDES];
    ferry_copy_service_t *service;
    ferry_kept_batch_t *batch;
    bench_meter_t *meter; /* on rank 0 */
} bench_rank_t;

static ferry_status_t barrier(bench_rank_t *me, ferry_error_t *err) {
    return ferry_group_barrier(me->group, err);
}

static void show(const bench_rank_t *me, uint32_t step, const char *what) {
    if (me->rank == 0) {
        bench_progress_step(me->job->progress, step, me->job->rounds + BENCH_STEPS, what);
    }
}

/* ---- memory ------------------------------------------------------------------------------------ */

static size_t shard_bytes(const bench_rank_t *me, bench_side_t side) {
    return (size_t)bench_shard_bytes(me->bench, side, me->rank);
}

static ferry_status_t take_memory(bench_rank_t *me, bench_side_t side, ferry_error_t *err) {
    size_t bytes = shard_bytes(me, side);
    if (bytes == 0) {
        return FERRY_OK;
    }
    if (!me->bench->heap) {
        return ferry_mem_alloc(me->world, bytes, &me->memory[side], err);
    }
    /* What malloc does for large sizes, and the same pages that the limit gets. */
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return cli_fail_errno(err, errno, "no memory for a shard of %zu bytes", bytes);
    }
    me->memory[side] = memory;
    return FERRY_OK;
}

static ferry_status_t fill(bench_rank_t *me, ferry_error_t *err) {
    bench_begin(&me->lane->steps[BENCH_FILL]);
    for (int side = 0; side < BENCH_SIDES; side++) {
        ferry_status_t status = take_memory(me, (bench_side_t)side, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    if (me->memory[BENCH_SOURCE] != NULL) {
        bench_shard_fill(me->bench, BENCH_SOURCE, me->rank, me->memory[BENCH_SOURCE]);
    }
    bench_end(&me->lane->steps[BENCH_FILL]);
    return FERRY_OK;
}

/* The ends of a heap case die with the process; the world frees the rest. */
static void release(bench_rank_t *me) {
    ferry_kept_batch_destroy(me->batch);
    ferry_copy_service_close(me->service);
    bench_meter_destroy(me->meter);
}

/* ---- submitting -------------------------------------------------------------------------------- */

/* This rank's end of a region of a tensor. */
static ferry_status_t view_region(const bench_rank_t *me, bench_side_t side,
                                  const bench_region_t *region, uint32_t tensor,
                                  ferry_view_t *view_p, ferry_error_t *err) {
    bool source = side == BENCH_SOURCE;
    uint64_t shape[2];
    bench_shard_shape(me->bench, side, me->rank, &shape[0], &shape[1]);
    uint8_t *base = (uint8_t *)me->memory[side] +
                    (size_t)(tensor * shape[0] * shape[1] * me->bench->element_bytes);
    ferry_dtype_t dtype = me->bench->element_bytes == 8 ? FERRY_F64 : FERRY_F32;
    ferry_view_t shard;
    ferry_status_t status = ferry_view_contiguous(base, dtype, 2, shape, &shard, err);
    if (status != FERRY_OK) {
        return status;
    }
    shard.kind = me->bench->heap ? FERRY_MEM_HOST : FERRY_MEM_SHARED;
    uint64_t lo[] = {source ? region->source_row : region->target_row,
                     source ? region->source_col : region->target_col};
    uint64_t extent[] = {region->rows, region->cols};
    return ferry_view_slice(&shard, lo, extent, view_p, err);
}

static ferry_status_t submit_region(bench_rank_t *me, const bench_region_t *region, uint32_t tensor,
                                    uint64_t task, ferry_error_t *err) {
    ferry_view_t view;
    ferry_status_t status = FERRY_OK;
    if (region->source_rank == me->rank) {
        status = view_region(me, BENCH_SOURCE, region, tensor, &view, err);
        if (status == FERRY_OK) {
            status = ferry_copy_submit_send(me->service, &view, FERRY_DTYPE_NONE,
                                            region->target_rank, task, err);
        }
    }
    if (status == FERRY_OK && region->target_rank == me->rank) {
        status = view_region(me, BENCH_TARGET, region, tensor, &view, err);
        if (status == FERRY_OK) {
            status = ferry_copy_submit_recv(me->service, &view, region->source_rank, task, err);
        }
    }
    return status;
}

static ferry_status_t submit(bench_rank_t *me, ferry_error_t *err) {
    bench_region_t *regions = NULL;
    size_t count = 0;
    if (!bench_case_regions(me->bench, &regions, &count)) {
        return cli_fail_nomem(err);
    }
    ferry_status_t status = FERRY_OK;
    for (uint32_t tensor = 0; status == FERRY_OK && tensor < me->bench->tensors; tensor++) {
        for (size_t i = 0; status == FERRY_OK && i < count; i++) {
            status = submit_region(me, &regions[i], tensor, tensor * (uint64_t)count + i, err);
        }
    }
    free(regions);
    return status;
}

static ferry_status_t keep(bench_rank_t *me, ferry_error_t *err) {
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.sharing = (uint32_t)me->job->sharing;
    params.paths = me->bench->pipeline ? FERRY_PATH_PIPELINE : 0;
    bench_log_attach(me->job->logs, me->rank, &params);
    bench_begin(&me->lane->steps[BENCH_KEEP]);
    ferry_status_t status = ferry_copy_service_create(me->group, &params, &me->service, err);
    if (status == FERRY_OK) {
        status = submit(me, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_keep(me->service, &me->batch, err);
    }
    bench_end(&me->lane->steps[BENCH_KEEP]);
    return status;
}

/* ---- rounds ------------------------------------------------------------------------------------ */

static ferry_status_t run_batch(bench_rank_t *me, bench_stamp_t *stamp, ferry_error_t *err) {
    ferry_status_t status = barrier(me, err);
    if (status == FERRY_OK) {
        bench_begin(stamp);
        status = ferry_kept_batch_run(me->batch, &me->lane->moved, err);
        bench_end(stamp);
    }
    return status == FERRY_OK ? barrier(me, err) : status;
}

/* Rank 0 measures what the machine can do; the others come to the next barrier and sleep. */
static ferry_status_t set_up_meter(bench_rank_t *me, ferry_error_t *err) {
    bench_keys_t mine = {0};
    ferry_status_t status = FERRY_OK;
    for (int side = 0; status == FERRY_OK && side < BENCH_SIDES; side++) {
        size_t bytes = shard_bytes(me, (bench_side_t)side);
        if (bytes > 0) {
            status = ferry_mem_register(me->world, me->memory[side], bytes, &mine.key[side], err);
        }
    }
    bench_keys_t all[BENCH_RANKS_MAX];
    if (status == FERRY_OK) {
        status = ferry_group_allgather(me->group, &mine, sizeof mine, all, err);
    }
    if (status == FERRY_OK && me->rank == 0) {
        bench_begin(&me->lane->steps[BENCH_TUNE]);
        status = bench_meter_create(me->world, me->bench, all, &me->meter, err);
        if (status == FERRY_OK) {
            bench_meter_describe(me->meter, me->job->board->limit_name);
        }
        bench_end(&me->lane->steps[BENCH_TUNE]);
    }
    return status;
}

static ferry_status_t run_rounds(bench_rank_t *me, ferry_error_t *err) {
    bench_board_t *board = me->job->board;
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; status == FERRY_OK && i < me->job->rounds; i++) {
        show(me, BENCH_CHECK + i, "rounds");
        status = run_batch(me, &me->lane->rounds[i], err);
        if (status == FERRY_OK && me->rank == 0) {
            status =
                bench_meter_round(me->meter, &board->limit.rounds[i], &board->readv.rounds[i], err);
        }
    }
    return status;
}

static ferry_status_t check(bench_rank_t *me, ferry_error_t *err) {
    show(me, BENCH_CHECK + me->job->rounds, "check");
    ferry_status_t status = barrier(me, err);
    if (me->memory[BENCH_TARGET] != NULL) {
        memset(me->memory[BENCH_TARGET], 0, shard_bytes(me, BENCH_TARGET));
    }
    bench_stamp_t untimed;
    if (status == FERRY_OK) {
        status = run_batch(me, &untimed, err);
    }
    if (status != FERRY_OK || me->memory[BENCH_TARGET] == NULL) {
        return status;
    }
    bench_begin(&me->lane->steps[BENCH_CHECK]);
    uint64_t wrong = bench_shard_wrong(me->bench, BENCH_TARGET, me->rank, me->memory[BENCH_TARGET]);
    bench_end(&me->lane->steps[BENCH_CHECK]);
    if (wrong > 0) {
        return cli_fail(err, FERRY_CORRUPT, "%llu elements of the target arrived wrong",
                        (unsigned long long)wrong);
    }
    return FERRY_OK;
}

static ferry_status_t run_all(bench_rank_t *me, ferry_error_t *err) {
    show(me, BENCH_FILL, "fill");
    ferry_status_t status = fill(me, err);
    show(me, BENCH_KEEP, "keep");
    if (status == FERRY_OK) {
        status = keep(me, err);
    }
    show(me, BENCH_COLD, "cold run");
    if (status == FERRY_OK) {
        status = run_batch(me, &me->lane->steps[BENCH_COLD], err);
    }
    show(me, BENCH_TUNE, "find the limit");
    if (status == FERRY_OK) {
        status = set_up_meter(me, err);
    }
    show(me, BENCH_WARM, "warm-up");
    if (status == FERRY_OK) {
        status = run_batch(me, &me->lane->steps[BENCH_WARM], err);
    }
    if (status == FERRY_OK) {
        status = run_rounds(me, err);
    }
    return status == FERRY_OK ? check(me, err) : status;
}

ferry_status_t bench_case_rank(ferry_world_t *world, const bench_job_t *job, ferry_error_t *err) {
    bench_rank_t me = {.job = job,
                       .bench = &job->bench,
                       .world = world,
                       .group = ferry_world_group(world),
                       .rank = ferry_world_rank(world)};
    me.lane = &job->board->ranks[me.rank];
    ferry_status_t status = run_all(&me, err);
    release(&me);
    return status;
}
