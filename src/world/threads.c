/* threads.c - a world of threads of one process.
 *
 * All handles are made before the first thread starts and destroyed after the last was joined, so what
 * they share (the space and its count of references) is touched by one thread only. */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "world/launch.h"

typedef struct thread {
    pthread_t id;
    bool started;
    const fy_launch_t *launch;
    ferry_world_t *world;
    ferry_rank_result_t result;
} thread_t;

static void *thread_main(void *argument) {
    thread_t *thread = argument;
    const fy_launch_t *launch = thread->launch;
    fy_world_enter(thread->world);
    thread->result.status =
        fy_world_live(thread->world, launch->fn, launch->context, &thread->result.error);
    return NULL;
}

/* A thread that cannot start fails the world; those before it then end. */
static void start(const fy_launch_t *launch, thread_t *threads) {
    for (uint32_t rank = 0; rank < launch->size; rank++) {
        thread_t *thread = &threads[rank];
        int number = pthread_create(&thread->id, NULL, thread_main, thread);
        thread->started = number == 0;
        if (number != 0) {
            ferry_error_t *mine = &thread->result.error;
            thread->result.status =
                fy_fail(mine, FERRY_NOMEM, "cannot start the thread of rank %u", rank);
            mine->rank = rank;
            mine->sys_errno = number;
            (void)ferry_world_fail(launch->watcher, mine, NULL);
            fy_world_close(thread->world);
            /* Those after it are not started either. */
            for (uint32_t other = rank + 1; other < launch->size; other++) {
                threads[other].result = thread->result;
                fy_world_close(threads[other].world);
            }
            return;
        }
    }
}

static ferry_status_t run(const fy_launch_t *launch, thread_t *threads,
                          ferry_rank_result_t *results, ferry_error_t *err) {
    for (uint32_t rank = 0; rank < launch->size; rank++) {
        thread_t *thread = &threads[rank];
        thread->launch = launch;
        thread->result.exit_code = -1;
        FY_TRY(fy_world_create(launch->space, &fy_kind_threads, rank, launch->params.timeout_ms,
                               &thread->world, err));
        fy_world_count_cores(thread->world);
    }
    start(launch, threads);
    for (uint32_t rank = 0; rank < launch->size; rank++) {
        if (threads[rank].started) {
            (void)pthread_join(threads[rank].id, NULL);
        }
        results[rank] = threads[rank].result;
    }
    return fy_launch_outcome(launch, results, err);
}

ferry_status_t ferry_world_run_threads(uint32_t size, ferry_rank_fn_t fn, void *context,
                                       const ferry_world_params_t *params,
                                       ferry_rank_result_t *results, ferry_error_t *err) {
    fy_launch_t launch;
    FY_TRY(fy_launch_init(&launch, &fy_kind_threads, size, fn, context, params, err));
    thread_t *threads = fy_alloc_zero(size, sizeof *threads);
    ferry_rank_result_t *all = fy_alloc_zero(size, sizeof *all);
    ferry_status_t status = FERRY_NOMEM;
    if (threads == NULL || all == NULL) {
        status = fy_fail_nomem(err, "threads");
    } else {
        status = run(&launch, threads, all, err);
        if (results != NULL) {
            memcpy(results, all, size * sizeof *all);
        }
        for (uint32_t rank = 0; rank < size; rank++) {
            fy_world_destroy(threads[rank].world);
        }
    }
    fy_free(threads);
    fy_free(all);
    fy_launch_fini(&launch);
    return status;
}
