/* world.h - who takes part: ranks, groups, small exchanges, liveness, one error for all.
 *
 * A world is a fixed set of ranks 0 .. size-1 on one machine. It starts in one of three ways: as
 * threads of this process, as processes that this one forks, or as processes that meet at a unix
 * socket. After that all are the same: each rank has a handle of its own, can gather small blobs and
 * meet in barriers (over everyone or over groups), and can reach the others' memory (mem.h).
 *
 * Failure. Every wait has a deadline. A rank that dies, stays stopped or does not come in time fails
 * the world; so does ferry_world_fail. The first error wins, and every rank gets that very record: its
 * `rank` is where it was noticed and `peer` whom it blames, if anyone. A rank that has died, or
 * has left though others wait for it, is FERRY_DEAD; a missed deadline and a stopped rank are
 * FERRY_TIMEOUT. After an agreed failure all ranks may call ferry_world_recover and go on.
 *
 * fork: a child that was forked by a rank has no part in the world. Every call says so.
 *
 * Ownership: ferry_world_join gives a world to its caller, who leaves it; the run functions lend one to
 * the function that they run, for the length of the call. A group belongs to its creator and dies
 * before its world. What is passed in is copied or borrowed during the call only.
 * Thread safety: ferry_world_check, ferry_world_fail, ferry_world_rank_life and everything that only
 * asks may be called by any thread of a rank at any time. Collective calls (barrier, all-gather,
 * recover) and leaving: one thread of a rank at a time. */
#ifndef FERRY_WORLD_H
#define FERRY_WORLD_H

#include <stdbool.h>

#include <ferry/status.h>

FERRY_BEGIN_DECLS

#define FERRY_WORLD_MAX_RANKS 512     /* of one machine; 128 bytes of memory per pair */
#define FERRY_WORLD_TIMEOUT_MS 30000  /* the deadline of a wait, unless told otherwise */
#define FERRY_WORLD_GRACE_MS 5000     /* what a failed world leaves its processes to finish */
#define FERRY_TIMEOUT_NONE UINT32_MAX /* wait for ever */
#define FERRY_WORLD_PATH_MAX 107      /* longest path of a unix socket */

typedef struct ferry_world ferry_world_t;
typedef struct ferry_group ferry_group_t;

typedef struct ferry_world_params {
    size_t size; /* sizeof(ferry_world_params_t) */
    /* Address space for the shared memory of each rank, equal on all of them; pages are taken only as
     * they are allocated. 0: as much as the machine has memory. */
    uint64_t arena_bytes;
    /* Of every wait. 0: FERRY_WORLD_TIMEOUT_MS; FERRY_TIMEOUT_NONE: for ever. */
    uint32_t timeout_ms;
    /* Forked processes: once the world has failed and the first rank has ended, the others get so long
     * before they are killed. 0: FERRY_WORLD_GRACE_MS; FERRY_TIMEOUT_NONE: for ever. */
    uint32_t grace_ms;
    /* The host id of each rank, as many as the world has ranks; NULL: all 0. */
    const uint32_t *hosts;
} ferry_world_params_t;

#define FERRY_WORLD_PARAMS_INIT                                                                    \
    { sizeof(ferry_world_params_t), 0, 0, 0, NULL }

/* --- starting ---------------------------------------------------------------------------------- */

/* What each rank runs. A failure that it returns (with its record in *err) fails the world. */
typedef ferry_status_t (*ferry_rank_fn_t)(ferry_world_t *world, void *context, ferry_error_t *err);

/* How a rank ended. */
typedef struct ferry_rank_result {
    ferry_status_t status; /* what its function returned; FERRY_DEAD when the process died */
    int32_t exit_code;     /* processes: as exited, else -1 */
    int32_t signal;        /* processes: the signal that killed it, or 0 */
    ferry_error_t error;   /* its record, when status is not FERRY_OK */
} ferry_rank_result_t;

/* Runs fn on `size` ranks, each a thread, and returns when all have ended. FERRY_OK when all returned
 * FERRY_OK, else the world's first error. `results` (one entry per rank) may be NULL; it is written
 * whenever the ranks were started at all. */
FERRY_API ferry_status_t ferry_world_run_threads(uint32_t size, ferry_rank_fn_t fn, void *context,
                                                 const ferry_world_params_t *params,
                                                 ferry_rank_result_t *results, ferry_error_t *err);

/* The same with processes, forked from this one. They are gone when this returns, and they die with
 * the caller. The child leaves with _exit: 0 after FERRY_OK, else 1. The program should have no other
 * threads that hold locks which fn needs. */
FERRY_API ferry_status_t ferry_world_run_processes(uint32_t size, ferry_rank_fn_t fn, void *context,
                                                   const ferry_world_params_t *params,
                                                   ferry_rank_result_t *results,
                                                   ferry_error_t *err);

/* Processes of one user meet at a unix socket: rank 0 listens there, the others come within the
 * deadline (in any order), and the socket's file is removed. Another version of ferry, another size, a
 * rank that comes twice or never: one error on all ranks that came. */
FERRY_API ferry_status_t ferry_world_join(const char *path, uint32_t rank, uint32_t size,
                                          const ferry_world_params_t *params,
                                          ferry_world_t **world_p, ferry_error_t *err);
/* Leaves a joined world: others that wait for this rank are told. NULL is fine. Not for worlds that
 * the run functions lend. */
FERRY_API void ferry_world_leave(ferry_world_t *world);

/* --- asking ------------------------------------------------------------------------------------ */

FERRY_API uint32_t ferry_world_rank(const ferry_world_t *world);
FERRY_API uint32_t ferry_world_size(const ferry_world_t *world);
/* "threads", "processes" or "socket". Static. */
FERRY_API const char *ferry_world_kind(const ferry_world_t *world);
FERRY_API uint32_t ferry_world_timeout_ms(const ferry_world_t *world);
/* The host id of a rank (rank < size). */
FERRY_API uint32_t ferry_world_host(const ferry_world_t *world, uint32_t rank);
/* The cores that the ranks may use, counted once (the union of their affinities). */
FERRY_API uint32_t ferry_world_cores(const ferry_world_t *world);
/* True when both ranks are threads of one process. */
FERRY_API bool ferry_world_same_process(const ferry_world_t *world, uint32_t peer);
/* True when this rank may read the peer's own (registered, not shared) memory. Asks the system once
 * and remembers. */
FERRY_API bool ferry_world_can_read(ferry_world_t *world, uint32_t peer);

typedef enum ferry_rank_life {
    FERRY_RANK_ABSENT = 0, /* not started yet */
    FERRY_RANK_ALIVE = 1,
    FERRY_RANK_STOPPED = 2, /* by SIGSTOP and its like */
    FERRY_RANK_DEAD = 3,
    FERRY_RANK_LEFT = 4, /* ended in order */
} ferry_rank_life_t;

/* Looks now. */
FERRY_API ferry_rank_life_t ferry_world_rank_life(ferry_world_t *world, uint32_t rank);

/* --- one error for all ------------------------------------------------------------------------- */

/* Tells all ranks of this one's error (`mine->status` not FERRY_OK; `mine->rank` is filled in when it
 * is empty). The first wins: *err and the status are the agreed ones, which need not be `mine`. */
FERRY_API ferry_status_t ferry_world_fail(ferry_world_t *world, const ferry_error_t *mine,
                                          ferry_error_t *err);
/* FERRY_OK, or the agreed error. One load when all is well. */
FERRY_API ferry_status_t ferry_world_check(ferry_world_t *world, ferry_error_t *err);
/* Collective, after a failure that all have seen: waits for all ranks, forgets the error and every
 * half-done exchange. FERRY_OK: the world works again. Otherwise (a rank is dead, has left or does not
 * come) the world is broken for good, and the error says by whom; every later call repeats it. */
FERRY_API ferry_status_t ferry_world_recover(ferry_world_t *world, ferry_error_t *err);

/* --- groups ------------------------------------------------------------------------------------ */

/* A group numbers some ranks of the world anew: member i is ranks[i]. Local; costs no communication.
 * Ranks must be different. This rank need not be a member; then the group only translates. */
FERRY_API ferry_status_t ferry_group_create(ferry_world_t *world, const uint32_t *ranks,
                                            uint32_t count, ferry_group_t **group_p,
                                            ferry_error_t *err);
FERRY_API void ferry_group_destroy(ferry_group_t *group); /* NULL is fine */
/* All ranks, member i being rank i. Borrowed from the world. */
FERRY_API ferry_group_t *ferry_world_group(ferry_world_t *world);

FERRY_API ferry_world_t *ferry_group_world(const ferry_group_t *group); /* borrowed */
FERRY_API uint32_t ferry_group_size(const ferry_group_t *group);
/* This rank's number in the group, or FERRY_RANK_NONE. */
FERRY_API uint32_t ferry_group_rank(const ferry_group_t *group);
/* The world's number of a member (member < size), and back: FERRY_RANK_NONE for one that is not in. */
FERRY_API uint32_t ferry_group_world_rank(const ferry_group_t *group, uint32_t member);
FERRY_API uint32_t ferry_group_member(const ferry_group_t *group, uint32_t world_rank);

/* Collective calls. Any number of groups may be in use, overlapping too, as long as ranks that share
 * several groups make their calls in the same order. Calls that do not fit together (a barrier here,
 * an all-gather there; sizes that differ) are FERRY_MISMATCH on all, not a hang. */

FERRY_API ferry_status_t ferry_group_barrier(ferry_group_t *group, ferry_error_t *err);

/* Each member gives `bytes` bytes, the same number on all; all_p gets size * bytes, in member order. */
FERRY_API ferry_status_t ferry_group_allgather(ferry_group_t *group, const void *mine, size_t bytes,
                                               void *all_p, ferry_error_t *err);

/* Blobs of different sizes. blobs_p gets all of them, in one piece of memory that the caller destroys. */
typedef struct ferry_blobs ferry_blobs_t;

FERRY_API ferry_status_t ferry_group_gather_blobs(ferry_group_t *group, const void *mine,
                                                  size_t bytes, ferry_blobs_t **blobs_p,
                                                  ferry_error_t *err);
/* A member's blob; borrowed. *bytes_p (may be NULL) is its size. Aligned for any type. */
FERRY_API const void *ferry_blobs_get(const ferry_blobs_t *blobs, uint32_t member, size_t *bytes_p);
FERRY_API void ferry_blobs_destroy(ferry_blobs_t *blobs); /* NULL is fine */

FERRY_END_DECLS

#endif
