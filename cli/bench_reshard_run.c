/* bench_reshard_run.c - what the ranks of a case do: fill, plan, prepare, run, check.
 *
 * Invariants: a round of ours begins and ends with all ranks at a barrier, and the limit runs between two
 * barriers while the others sleep. Before the last run, which is the one that is checked, targets are
 * cleared, for the limit has written into them, too. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <ferry/mem.h>

#include "bench_reshard_meter.h"
#include "bench_reshard_session.h"
#include "error.h"

enum {
    TIMEOUT_MS = 240000, /* finding the limit of a slow machine takes a while */
    SMALL_RUNS = 200,    /* of small tensors, in a round */
};

typedef struct rank {
    reshard_mine_t mine;
    ferry_group_t *group;
    reshard_lane_t *lane;
    reshard_meter_t *meter; /* on rank 0 */
    ferry_reshard_result_t result;
} rank_t;

static bool is_small(const reshard_job_t *job) {
    return job->asked->model == NULL;
}

static void show(const rank_t *me, uint32_t step, const char *what) {
    const reshard_job_t *job = me->mine.job;
    if (me->mine.rank == 0) {
        bench_progress_step(job->progress, step, job->rounds + RESHARD_STEPS, what);
    }
}

/* ---- rounds ------------------------------------------------------------------------------------ */

static ferry_status_t run_once(rank_t *me, bench_stamp_t *stamp, ferry_error_t *err) {
    ferry_status_t status = ferry_group_barrier(me->group, err);
    if (status == FERRY_OK) {
        bench_begin(stamp);
        status = ferry_session_run(me->mine.session, &me->result, err);
        bench_end(stamp);
    }
    return status == FERRY_OK ? ferry_group_barrier(me->group, err) : status;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Many runs, one after the other without a barrier: what a loop pays for one. */
static ferry_status_t run_many(rank_t *me, bench_stamp_t *stamp, double *median_p,
                               ferry_error_t *err) {
    double times[SMALL_RUNS];
    ferry_status_t status = ferry_group_barrier(me->group, err);
    bench_begin(stamp);
    for (size_t i = 0; status == FERRY_OK && i < SMALL_RUNS; i++) {
        uint64_t begin_ns = bench_now_ns();
        status = ferry_session_run(me->mine.session, &me->result, err);
        times[i] = (double)(bench_now_ns() - begin_ns) * 1e-9;
    }
    bench_end(stamp);
    if (status == FERRY_OK) {
        qsort(times, SMALL_RUNS, sizeof times[0], compare);
        *median_p = times[SMALL_RUNS / 2];
    }
    return status;
}

static ferry_status_t run_rounds(rank_t *me, ferry_error_t *err) {
    const reshard_job_t *job = me->mine.job;
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; status == FERRY_OK && i < job->rounds; i++) {
        show(me, RESHARD_CHECK + i, "rounds");
        status = is_small(job) ? run_many(me, &me->lane->rounds[i], &me->lane->latency_s[i], err)
                               : run_once(me, &me->lane->rounds[i], err);
        me->lane->result = me->result;
        memcpy(me->lane->phases[i], me->result.seconds, sizeof me->lane->phases[i]);
        if (status == FERRY_OK && me->meter != NULL) {
            reshard_meter_round(me->meter, &job->board->limit[i]);
        }
    }
    return status;
}

/* ---- once -------------------------------------------------------------------------------------- */

static ferry_status_t fill(rank_t *me, ferry_error_t *err) {
    return reshard_mine_fill(&me->mine, err);
}

static ferry_status_t plan(rank_t *me, ferry_error_t *err) {
    return reshard_plan(me->mine.job->model, me->mine.rank, &me->mine.plan, err);
}

static ferry_status_t prepare(rank_t *me, ferry_error_t *err) {
    return reshard_mine_prepare(&me->mine, err);
}

static ferry_status_t run_untimed(rank_t *me, ferry_error_t *err) {
    bench_stamp_t untimed;
    return run_once(me, &untimed, err);
}

/* Rank 0 measures what the machine can do; the others come to the next barrier and sleep. */
static ferry_status_t tune(rank_t *me, ferry_error_t *err) {
    reshard_mine_t *mine = &me->mine;
    if (is_small(mine->job)) {
        return FERRY_OK;
    }
    bench_keys_t keys = {0};
    bench_keys_t all[BENCH_RANKS_MAX];
    void *const memory[BENCH_SIDES] = {mine->source, mine->targets[0]};
    ferry_status_t status = FERRY_OK;
    for (int side = 0; status == FERRY_OK && side < BENCH_SIDES; side++) {
        if (memory[side] != NULL) {
            status = ferry_mem_register(mine->world, memory[side], mine->shards[side].bytes,
                                        &keys.key[side], err);
        }
    }
    if (status == FERRY_OK) {
        status = ferry_group_allgather(me->group, &keys, sizeof keys, all, err);
    }
    if (status == FERRY_OK && mine->rank == 0) {
        status = reshard_meter_create(mine->world, mine->job, all, &me->meter, err);
    }
    return status;
}

static ferry_status_t check(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = ferry_group_barrier(me->group, err);
    if (status == FERRY_OK) {
        reshard_mine_clear(&me->mine);
        status = run_untimed(me, err);
    }
    return status == FERRY_OK ? reshard_mine_verify(&me->mine, err) : status;
}

typedef struct step {
    const char *name;
    ferry_status_t (*run)(rank_t *me, ferry_error_t *err);
} step_t;

static const step_t steps[RESHARD_STEPS] = {
    [RESHARD_FILL] = {"fill", fill},           [RESHARD_PLAN] = {"plan", plan},
    [RESHARD_PREPARE] = {"prepare", prepare},  [RESHARD_COLD] = {"cold run", run_untimed},
    [RESHARD_TUNE] = {"find the limit", tune}, [RESHARD_WARM] = {"warm-up", run_untimed},
    [RESHARD_CHECK] = {"check", check},
};

static ferry_status_t run_all(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; status == FERRY_OK && i < RESHARD_STEPS; i++) {
        if (i == RESHARD_CHECK) {
            status = run_rounds(me, err);
        }
        if (status == FERRY_OK) {
            show(me, i < RESHARD_CHECK ? i : i + me->mine.job->rounds, steps[i].name);
            bench_begin(&me->lane->steps[i]);
            status = steps[i].run(me, err);
            bench_end(&me->lane->steps[i]);
        }
    }
    return status;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    const reshard_job_t *const *job = context;
    rank_t me = {
        .mine = {.job = *job, .world = world, .rank = ferry_world_rank(world)},
        .group = ferry_world_group(world),
        .lane = &(*job)->board->ranks[ferry_world_rank(world)],
    };
    ferry_status_t status = run_all(&me, err);
    reshard_meter_destroy(me.meter);
    reshard_mine_fini(&me.mine);
    return status;
}

/* ---- the ranks --------------------------------------------------------------------------------- */

ferry_status_t reshard_board_create(reshard_board_t **board_p, ferry_error_t *err) {
    void *board = NULL;
    ferry_status_t status = bench_shared_take(sizeof **board_p, &board, err);
    *board_p = board;
    return status;
}

void reshard_board_destroy(reshard_board_t *board) {
    if (board != NULL) {
        (void)munmap(board, sizeof *board);
    }
}

ferry_status_t reshard_run(const reshard_job_t *job, ferry_error_t *err) {
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = TIMEOUT_MS;
    const reshard_model_t *model = job->model;
    bench_progress_begin(job->progress, (model->bytes_read + model->bytes_written) / 2,
                         model->ranks);
    ferry_status_t status =
        ferry_world_run_processes(model->ranks, rank_main, &job, &params, NULL, err);
    bench_progress_end(job->progress);
    if (status != FERRY_OK) {
        cli_error_place(err, job->asked->name);
    }
    return status;
}
