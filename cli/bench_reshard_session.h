/* bench_reshard_session.h - a rank's memory and session of a case.
 *
 * Ownership: reshard_mine_fini frees all but the shared memory, which ends with the world. */
#ifndef CLI_BENCH_RESHARD_SESSION_H
#define CLI_BENCH_RESHARD_SESSION_H

#include "bench_reshard.h"
#include "bench_reshard_shards.h"

enum { RESHARD_COPIES = 2 };

typedef struct reshard_mine {
    const reshard_job_t *job;
    ferry_world_t *world;
    uint32_t rank;
    reshard_pattern_t *pattern;
    reshard_shards_t shards[BENCH_SIDES];
    void *source;                  /* NULL: nothing is held */
    void *targets[RESHARD_COPIES]; /* the second under a flip only */
    ferry_plan_t *plan;
    ferry_copy_service_t *service;
    ferry_commit_t *commit;
    ferry_mxfp8_t *mxfp8;
    ferry_session_t *session;
} reshard_mine_t;

/* Takes and fills the memory. */
ferry_status_t reshard_mine_fill(reshard_mine_t *mine, ferry_error_t *err);

/* Service, commit, transform and session for `mine->plan`. Collective. */
ferry_status_t reshard_mine_prepare(reshard_mine_t *mine, ferry_error_t *err);

/* Clears the targets; looks whether they hold what they should. */
void reshard_mine_clear(const reshard_mine_t *mine);
ferry_status_t reshard_mine_verify(const reshard_mine_t *mine, ferry_error_t *err);

void reshard_mine_fini(reshard_mine_t *mine);

#endif
