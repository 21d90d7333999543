/* reshard.h - runs a plan: the tensors of each rank's source layout become those of its target layout.
 *
 * A session binds a plan to memory: each rank names the tensors that it holds, as source, as target, as
 * both, or not at all (then it may still take part in a sum, or be idle). Preparing it is collective and
 * finds every mistake before a byte moves; running it is collective, may be repeated as often as
 * weights change, and allocates nothing.
 *
 *   plan --> chunks (ir.h) --> passes within the byte budget
 *        each pass:  reduce   members of Partial groups hand their parts to the owner, which folds them
 *                             in the source dtype and in the plan's order
 *                    pack     transforms fill their payloads; values are cast to the wire; hashes taken
 *                    move     the copy service runs one kept batch
 *                    unpack   staged chunks are written back, transforms take theirs in, hashes compared
 *        at the end: commit   (commit.h), then the caller's refresh
 *
 * Writebacks, chosen per chunk and counted in the result: direct (received in place, cast on the way),
 * copy (staged, then copied to the target: under a gate, and in buckets), transform.
 *
 * Tensors are views: a target inside a fused parameter, transposed or padded is written where it lies,
 * and bytes outside the view stay as they are. Sources and targets may share memory where a rank's bytes
 * stay in place (a move onto itself), or under a gate, where everything is staged first; otherwise an
 * overlap is an error. One memory under two source names feeds tied tensors.
 *
 * Failure. A mistake at prepare is one error on all ranks, and no session. A failure in a run is the
 * world's agreed error on all ranks. Under a commit the targets hold the old or the new version
 * everywhere, and the result says which; without one they are unknown. After ferry_world_recover the
 * session runs again; ferry_session_check says whether it does, and why not.
 *
 * Ownership: a session borrows plan, service, transform, commit and all tensor memory until it is closed;
 * names and views are copied.
 * Thread safety: one thread at a time per session; several sessions may exist, on one service in turn, or
 * each on a service of its own. ferry_session_cancel may come from any thread. */
#ifndef FERRY_RESHARD_H
#define FERRY_RESHARD_H

#include <ferry/commit.h>
#include <ferry/ir.h>
#include <ferry/service.h>
#include <ferry/transform.h>

FERRY_BEGIN_DECLS

typedef struct ferry_session ferry_session_t;

/* A local tensor: the shard that the plan's layout gives this rank. */
typedef struct ferry_bound {
    const char *name;
    ferry_view_t view;
    void
        *ready; /* event after which a source may be read; NULL: now. See ferry_reshard_options_t */
} ferry_bound_t;

typedef struct ferry_tensors {
    const ferry_bound_t *list;
    size_t count;
} ferry_tensors_t;

typedef enum ferry_reshard_phase {
    FERRY_PHASE_PREPARE = 0,
    FERRY_PHASE_REDUCE = 1,
    FERRY_PHASE_PACK = 2,
    FERRY_PHASE_MOVE = 3,
    FERRY_PHASE_UNPACK = 4,
    FERRY_PHASE_COMMIT = 5,
    FERRY_PHASE_REFRESH = 6,
    FERRY_PHASE_MEET = 7, /* waiting for ranks that are not so far */
} ferry_reshard_phase_t;
#define FERRY_PHASE_COUNT 8

/* "reduce". Static. */
FERRY_API const char *ferry_reshard_phase_name(ferry_reshard_phase_t phase);

typedef struct ferry_reshard_progress {
    ferry_reshard_phase_t phase;
    uint32_t pass; /* from 0 */
    uint32_t passes;
    uint64_t bytes_done; /* that have landed here, in the target dtypes */
    uint64_t bytes_total;
} ferry_reshard_progress_t;

typedef enum ferry_bucketing {
    FERRY_BUCKETS_AUTO = 0,   /* when the service asks for views without gaps */
    FERRY_BUCKETS_ALWAYS = 1, /* chunks of one pair are packed and travel as one */
    FERRY_BUCKETS_NEVER = 2,
} ferry_bucketing_t;

/* Equal on all ranks, but for hooks and their context. */
typedef struct ferry_reshard_options {
    size_t size; /* sizeof(ferry_reshard_options_t) */
    uint64_t
        budget_bytes; /* of all staging of this rank, the service's slots included; 0: none. The
                              smallest of all ranks decides the passes */
    uint64_t bucket_bytes; /* threshold of a bucket; 0: FERRY_BUCKET_BYTES_DEFAULT */
    uint32_t buckets;      /* ferry_bucketing_t */
    ferry_dtype_t
        wire;   /* what floats travel as, where narrower than both ends; NONE: by the rule */
    bool check; /* XXH3 of every bucket travels with it and is compared where it lands */
    ferry_commit_t *commit;        /* NULL: targets are written as bytes come */
    ferry_tensors_t other_targets; /* flip: the second copy; the same names, shapes and dtypes */
    void *context;                 /* of the hooks; each may be NULL */
    bool (*is_ready)(void *context, void *event); /* has the event of a bound tensor happened? */
    /* After the commit, once per run: refresh what derives from weights. */
    ferry_status_t (*refresh)(void *context, uint64_t version, ferry_error_t *err);
    void (*progress)(void *context, const ferry_reshard_progress_t *progress);
} ferry_reshard_options_t;

#define FERRY_RESHARD_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(ferry_reshard_options_t), 0, 0, 0, FERRY_DTYPE_NONE, false, NULL, {NULL, 0}, NULL,  \
            NULL, NULL, NULL                                                                       \
    }

/* What a run did, as this rank sees it. */
typedef struct ferry_reshard_result {
    uint64_t bytes_received; /* into targets here, in the wire's or payload's dtype */
    uint64_t bytes_direct;   /* of these, by path of the service */
    uint64_t bytes_read;
    uint64_t bytes_pipeline;
    uint64_t chunks_direct; /* by writeback */
    uint64_t chunks_copy;
    uint64_t chunks_transform;
    uint64_t writeback_direct_bytes;
    uint64_t writeback_copy_bytes;
    uint64_t writeback_transform_bytes;
    uint64_t bytes_reduced; /* parts of sums that came in here */
    uint64_t buckets;       /* that this rank sent or received */
    uint64_t buckets_checked;
    uint32_t passes;
    uint32_t rounds;        /* of the pipeline, all passes together */
    uint64_t staging_bytes; /* peak, the service's slots included */
    uint64_t commit_bytes;  /* what the commit costs in memory here: a second copy, or staging */
    uint64_t version;       /* held after the run; 0 without a commit */
    bool committed;         /* this run's version is the one that is held */
    double seconds[FERRY_PHASE_COUNT]; /* by phase; [FERRY_PHASE_PREPARE] is of the session */
    double total_seconds;              /* of the run */
} ferry_reshard_result_t;

/* The record as one JSON object into buf, always terminated when cap > 0. Returns the length that the
 * whole text has. */
FERRY_API size_t ferry_reshard_result_json(const ferry_reshard_result_t *result, char *buf,
                                           size_t cap);

/* --- sessions ---------------------------------------------------------------------------------- */

/* Collective over the service's group; the plan's ranks are its members. `plan` is the whole plan or this
 * rank's part; transform and options may be NULL. Errors on all ranks: plans that differ; a tensor
 * that the plan has on this rank is missing, twice, or has another shape or dtype; payloads that differ
 * between the ends; a budget that is too small; what the service finds (service.h). */
FERRY_API ferry_status_t ferry_session_create(const ferry_plan_t *plan, ferry_tensors_t sources,
                                              ferry_tensors_t targets,
                                              ferry_copy_service_t *service,
                                              const ferry_transform_t *transform,
                                              const ferry_reshard_options_t *options,
                                              ferry_session_t **session_p, ferry_error_t *err);
/* Waits for no other rank; a run that was started is cancelled. NULL is fine. */
FERRY_API void ferry_session_close(ferry_session_t *session);

/* Collective. result_p may be NULL; it is written after a failure, too. */
FERRY_API ferry_status_t ferry_session_run(ferry_session_t *session,
                                           ferry_reshard_result_t *result_p, ferry_error_t *err);
/* The same without waiting (but for all ranks, once after the world has recovered); drive it with test or
 * wait. Other ranks may use run. */
FERRY_API ferry_status_t ferry_session_start(ferry_session_t *session, ferry_error_t *err);
FERRY_API ferry_status_t ferry_session_test(ferry_session_t *session, bool *done_p,
                                            ferry_error_t *err);
FERRY_API ferry_status_t ferry_session_wait(ferry_session_t *session,
                                            ferry_reshard_result_t *result_p, ferry_error_t *err);
/* Stops a run that was started, on all ranks: FERRY_STOPPED. FERRY_INVALID when none is under way. */
FERRY_API ferry_status_t ferry_session_cancel(ferry_session_t *session, ferry_error_t *err);

/* Of the last run, good or bad. */
FERRY_API void ferry_session_result(const ferry_session_t *session,
                                    ferry_reshard_result_t *result_p);
/* FERRY_OK, or why the session cannot run now. */
FERRY_API ferry_status_t ferry_session_check(ferry_session_t *session, ferry_error_t *err);
/* Are these still the tensors that the session was prepared for? Local. FERRY_MISMATCH names the first
 * whose address, shape, strides or dtype is another: prepare a new session then. */
FERRY_API ferry_status_t ferry_session_compare(const ferry_session_t *session,
                                               ferry_tensors_t sources, ferry_tensors_t targets,
                                               ferry_error_t *err);

/* --- once -------------------------------------------------------------------------------------- */

/* Prepares, runs once and closes. */
FERRY_API ferry_status_t ferry_reshard_execute(
    const ferry_plan_t *plan, ferry_tensors_t sources, ferry_tensors_t targets,
    ferry_copy_service_t *service, const ferry_transform_t *transform,
    const ferry_reshard_options_t *options, ferry_reshard_result_t *result_p, ferry_error_t *err);

FERRY_END_DECLS

#endif
