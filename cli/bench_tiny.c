/* bench_tiny.c - the latency case: one 4 KiB tensor from rank 0 to rank 1, a kept batch run after run.
 *
 * Invariant: runs follow each other without a barrier, so the time of a run is what a loop pays for it.
 */
#include <stdlib.h>
#include <string.h>

#include <ferry/mem.h>

#include "bench_run.h"
#include "error.h"

enum {
    TINY_EDGE = 32, /* 32 x 32 f32 is 4 KiB */
    TINY_RUNS = 1000,
    TINY_WARM_RUNS = 200,
};

typedef struct tiny {
    const bench_job_t *job;
    bench_lane_t *lane;
    uint32_t rank;
    uint32_t *memory;
    ferry_copy_service_t *service;
    ferry_kept_batch_t *batch;
    double times[TINY_RUNS];
} tiny_t;

static ferry_status_t keep(tiny_t *tiny, ferry_error_t *err) {
    static const uint64_t shape[] = {TINY_EDGE, TINY_EDGE};
    ferry_view_t view;
    ferry_status_t status = ferry_view_contiguous(tiny->memory, FERRY_F32, 2, shape, &view, err);
    if (status != FERRY_OK) {
        return status;
    }
    view.kind = FERRY_MEM_SHARED;
    status = tiny->rank == 0
                 ? ferry_copy_submit_send(tiny->service, &view, FERRY_DTYPE_NONE, 1, 0, err)
                 : ferry_copy_submit_recv(tiny->service, &view, 0, 0, err);
    return status == FERRY_OK ? ferry_copy_service_keep(tiny->service, &tiny->batch, err) : status;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs the batch `count` times; the median of the times is *median_p. */
static ferry_status_t run_many(tiny_t *tiny, size_t count, double *median_p, ferry_error_t *err) {
    for (size_t i = 0; i < count; i++) {
        uint64_t begin = bench_now_ns();
        ferry_status_t status = ferry_kept_batch_run(tiny->batch, &tiny->lane->moved, err);
        if (status != FERRY_OK) {
            return status;
        }
        tiny->times[i] = (double)(bench_now_ns() - begin) * 1e-9;
    }
    qsort(tiny->times, count, sizeof tiny->times[0], compare);
    *median_p = tiny->times[count / 2];
    return FERRY_OK;
}

static ferry_status_t measure(tiny_t *tiny, ferry_error_t *err) {
    double ignored = 0;
    bench_begin(&tiny->lane->steps[BENCH_COLD]);
    ferry_status_t status = run_many(tiny, 1, &ignored, err);
    bench_end(&tiny->lane->steps[BENCH_COLD]);
    if (status == FERRY_OK) {
        status = run_many(tiny, TINY_WARM_RUNS, &ignored, err);
    }
    for (uint32_t i = 0; status == FERRY_OK && i < tiny->job->rounds; i++) {
        bench_begin(&tiny->lane->rounds[i]);
        status = run_many(tiny, TINY_RUNS, &tiny->lane->latency_s[i], err);
        bench_end(&tiny->lane->rounds[i]);
    }
    return status;
}

static ferry_status_t check(const tiny_t *tiny, ferry_error_t *err) {
    for (uint32_t i = 0; i < TINY_EDGE * TINY_EDGE; i++) {
        if (tiny->memory[i] != i + 1) {
            return cli_fail(err, FERRY_CORRUPT, "%s: element %u arrived wrong", BENCH_TINY, i);
        }
    }
    return FERRY_OK;
}

static ferry_status_t run(tiny_t *tiny, ferry_world_t *world, ferry_error_t *err) {
    void *memory = NULL;
    ferry_status_t status =
        ferry_mem_alloc(world, (size_t)TINY_EDGE * TINY_EDGE * sizeof(uint32_t), &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    tiny->memory = memory;
    for (uint32_t i = 0; i < TINY_EDGE * TINY_EDGE; i++) {
        tiny->memory[i] = tiny->rank == 0 ? i + 1 : 0;
    }
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.sharing = tiny->job->sharing;
    bench_log_attach(tiny->job->logs, tiny->rank, &params);
    bench_begin(&tiny->lane->steps[BENCH_KEEP]);
    status = ferry_copy_service_create(ferry_world_group(world), &params, &tiny->service, err);
    if (status == FERRY_OK) {
        status = keep(tiny, err);
    }
    bench_end(&tiny->lane->steps[BENCH_KEEP]);
    if (status == FERRY_OK) {
        status = measure(tiny, err);
    }
    return status == FERRY_OK ? check(tiny, err) : status;
}

ferry_status_t bench_tiny_rank(ferry_world_t *world, const bench_job_t *job, ferry_error_t *err) {
    tiny_t *tiny = calloc(1, sizeof *tiny);
    if (tiny == NULL) {
        return cli_fail_nomem(err);
    }
    tiny->job = job;
    tiny->rank = ferry_world_rank(world);
    tiny->lane = &job->board->ranks[tiny->rank];
    ferry_status_t status = run(tiny, world, err);
    ferry_kept_batch_destroy(tiny->batch);
    ferry_copy_service_close(tiny->service);
    free(tiny);
    return status;
}
