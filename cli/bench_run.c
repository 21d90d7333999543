/* bench_run.c - starts the ranks of a case, and what the files of its ranks share.
 *
 * Invariant: ranks tell what they measured through the board alone; it is zero until they do. */
#include "bench_run.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "error.h"

enum { TIMEOUT_MS = 120000 }; /* finding the limit of a slow machine takes a while */

uint64_t bench_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void bench_begin(bench_stamp_t *stamp) {
    stamp->begin_ns = bench_now_ns();
}

void bench_end(bench_stamp_t *stamp) {
    stamp->end_ns = bench_now_ns();
}

const char *bench_name(size_t index) {
    size_t known = 0;
    while (bench_case_name(known) != NULL) {
        known++;
    }
    return index < known ? bench_case_name(index) : index == known ? BENCH_TINY : NULL;
}

static ferry_status_t fail_unknown(const char *name, ferry_error_t *err) {
    cli_nearest_t nearest = {.word = name};
    for (size_t i = 0; bench_name(i) != NULL; i++) {
        cli_nearest_offer(&nearest, bench_name(i));
    }
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "unknown case '%s' (did you mean %s?)", name,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID, "unknown case '%s' (see ferry help bench)", name);
}

ferry_status_t bench_job_init(const char *name, double scale, bench_job_t *job_p,
                              ferry_error_t *err) {
    *job_p = (bench_job_t){0};
    if (strcmp(name, BENCH_TINY) == 0) {
        job_p->tiny = true;
        job_p->bench = (bench_case_t){.name = BENCH_TINY,
                                      .ranks = 2,
                                      .tensors = 1,
                                      .element_bytes = 4,
                                      .rows = 32,
                                      .cols = 32};
        return FERRY_OK;
    }
    if (!bench_case_init(name, 0, scale, &job_p->bench) || job_p->bench.ranks > BENCH_RANKS_MAX) {
        return fail_unknown(name, err);
    }
    return FERRY_OK;
}

ferry_status_t bench_shared_take(size_t bytes, void **memory_p, ferry_error_t *err) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return cli_fail_errno(err, errno, "no shared memory for the ranks");
    }
    *memory_p = memory;
    return FERRY_OK;
}

ferry_status_t bench_board_create(bench_board_t **board_p, ferry_error_t *err) {
    void *board = NULL;
    ferry_status_t status = bench_shared_take(sizeof **board_p, &board, err);
    *board_p = board;
    return status;
}

void bench_board_destroy(bench_board_t *board) {
    if (board != NULL) {
        (void)munmap(board, sizeof *board);
    }
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    const bench_job_t *const *job = context;
    return (*job)->tiny ? bench_tiny_rank(world, *job, err) : bench_case_rank(world, *job, err);
}

ferry_status_t bench_run(const bench_job_t *job, ferry_error_t *err) {
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = TIMEOUT_MS;
    bench_progress_begin(job->progress, bench_case_bytes(&job->bench), job->bench.ranks);
    ferry_status_t status =
        ferry_world_run_processes(job->bench.ranks, rank_main, &job, &params, NULL, err);
    bench_progress_end(job->progress);
    if (status != FERRY_OK) {
        cli_error_place(err, job->bench.name);
    }
    return status;
}
