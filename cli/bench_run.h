/* bench_run.h - one case of `ferry bench`, run on ranks that are processes.
 *
 * Every rank fills its shards, submits its ends of all regions, keeps the batch and runs it round after
 * round. Between the rounds rank 0 carries out the same copies in the best way that this machine knows
 * (bench/limit.h), over the same memory, so that both figures come from the same minutes.
 *
 * Ownership: a board is made before the ranks are and shared with them; bench_board_destroy frees it. */
#ifndef CLI_BENCH_RUN_H
#define CLI_BENCH_RUN_H

#include "../bench/cases.h"
#include "bench_log.h"
#include "bench_progress.h"

enum {
    BENCH_ROUNDS_MAX = 1000,
    BENCH_LIMIT_NAME_MAX = 48,
};

/* What happens once, in this order; rounds come between WARM and CHECK. */
#define BENCH_STEP_MAP(X)                                                                          \
    X(FILL, "fill")                                                                                \
    X(KEEP, "keep")                                                                                \
    X(COLD, "cold run")                                                                            \
    X(TUNE, "find the limit")                                                                      \
    X(WARM, "warm-up")                                                                             \
    X(CHECK, "check")

typedef enum bench_step {
#define BENCH_STEP_ENUM(name, text) BENCH_##name,
    BENCH_STEP_MAP(BENCH_STEP_ENUM)
#undef BENCH_STEP_ENUM
        BENCH_STEPS
} bench_step_t;

typedef struct bench_stamp {
    uint64_t begin_ns; /* CLOCK_MONOTONIC; 0: did not happen */
    uint64_t end_ns;
} bench_stamp_t;

typedef struct bench_lane {
    bench_stamp_t steps[BENCH_STEPS];
    bench_stamp_t rounds[BENCH_ROUNDS_MAX];
    double latency_s[BENCH_ROUNDS_MAX]; /* `tiny`: the median run of each round */
    ferry_copy_result_t moved;          /* in the last round */
} bench_lane_t;

typedef struct bench_board {
    bench_lane_t ranks[BENCH_RANKS_MAX];
    bench_lane_t limit; /* rank 0 measures these two */
    bench_lane_t readv;
    char limit_name[BENCH_LIMIT_NAME_MAX]; /* how the limit was reached */
} bench_board_t;

typedef struct bench_job {
    bench_case_t bench;
    bool tiny;
    uint32_t rounds;
    ferry_work_sharing_t sharing;
    const bench_progress_t *progress; /* told by rank 0 */
    bench_board_t *board;
    bench_log_t *logs; /* NULL: nobody asks for single steps */
} bench_job_t;

/* The latency case: one 4 KiB tensor from rank 0 to rank 1. */
#define BENCH_TINY "tiny"

/* The name of the index-th case, `tiny` included; NULL after the last. */
const char *bench_name(size_t index);

/* Describes a case; `scale` is above 0 and at most 1. FERRY_INVALID for an unknown name. */
ferry_status_t bench_job_init(const char *name, double scale, bench_job_t *job_p,
                              ferry_error_t *err);

/* Runs the case; its board, which must be there, then has the stamps. A wrong result is FERRY_CORRUPT. */
ferry_status_t bench_run(const bench_job_t *job, ferry_error_t *err);

/* Zeroed memory that ranks share with whoever starts them; ended by munmap. */
ferry_status_t bench_shared_take(size_t bytes, void **memory_p, ferry_error_t *err);

ferry_status_t bench_board_create(bench_board_t **board_p, ferry_error_t *err);
void bench_board_destroy(bench_board_t *board); /* NULL is fine */

/* Parts of a rank's work that bench_run.c and bench_tiny.c share. */
uint64_t bench_now_ns(void);
void bench_begin(bench_stamp_t *stamp);
void bench_end(bench_stamp_t *stamp);
ferry_status_t bench_tiny_rank(ferry_world_t *world, const bench_job_t *job, ferry_error_t *err);
ferry_status_t bench_case_rank(ferry_world_t *world, const bench_job_t *job, ferry_error_t *err);

#endif
