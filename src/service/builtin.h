/* builtin.h - the built-in service: what its files share.
 *
 *   publish.c   what each rank says of its ends, and reading it
 *   overlap.c   do two views share a byte?
 *   pairs.c     ends become pairs; mistakes are found; a way is chosen
 *   prepare.c   pairs become kernel batches, reads and rounds
 *   run.c       moves the bytes
 *   read.c      reads across processes
 *   builtin.c   the table, and the exchange between ranks
 *
 * Ranks are told as members of the group everywhere but in error records. */
#ifndef FERRY_SERVICE_BUILTIN_H
#define FERRY_SERVICE_BUILTIN_H

#include <stdalign.h>
#include <stdatomic.h>

#include <ferry/kernel.h>
#include <ferry/mem.h>
#include <ferry/sys/service.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "pipeline/pipeline.h"
#include "world/common.h"
#include "world/wait.h"

#define FY_SERVICE_NAME "ferry copy service"
#define FY_PART_BYTES (UINT64_C(1) << 18)   /* what is copied before turning to another rank */
#define FY_STREAM_TOTAL (UINT64_C(4) << 20) /* a rank that moves more writes past the caches */
#define FY_OVERLAP_STEPS 200000             /* of a search, before it gives up */

/* --- shared between ranks ---------------------------------------------------------------------- */

/* In each rank's shared memory. Runs are counted from 1 and may wrap. */
typedef struct fy_rank_flags {
    alignas(64) fy_counter_t begun; /* the rank is in run n: its memory may be read and written */
    alignas(64) fy_counter_t done;  /* it will touch no memory of others in run n any more */
    alignas(64) fy_counter_t parts; /* of its shared batches, done by whomever */
    alignas(64) _Atomic uint64_t claim; /* run << 32 | the next part that nobody has taken */
    _Atomic uint64_t open;              /* run << 32 | parts whose sources have begun */
    fy_common_t common;
} fy_rank_flags_t;

/* --- what is said ------------------------------------------------------------------------------ */

/* One end of a transfer, as published. */
typedef struct fy_end {
    uint64_t task_id;
    uint32_t owner;
    uint32_t peer;
    uint32_t index; /* in the owner's list */
    uint32_t ndim;
    ferry_dtype_t dtype;
    ferry_dtype_t wire; /* of a send; NONE: by the rule */
    uint64_t elements;
    uint64_t bytes;      /* elements in the end's dtype */
    ferry_mem_key_t key; /* of the bytes that it touches; reach NONE when there are none */
    uint64_t offset;     /* of the element 0 in them */
    const uint64_t *shape;
    const int64_t *strides;
} fy_end_t;

/* What all members said. */
typedef struct fy_said {
    fy_end_t *sends;
    size_t nsends;
    fy_end_t *recvs;
    size_t nrecvs;
    uint8_t *can_read; /* [reader * size + owner] */
} fy_said_t;

/* --- what is prepared -------------------------------------------------------------------------- */

typedef struct fy_pair {
    const fy_end_t *send;
    const fy_end_t *recv;
    uint32_t path; /* ferry_copy_path_t; 0: no bytes */
    uint32_t doer; /* member that copies */
} fy_pair_t;

/* A doer's copies with one other rank. */
typedef struct fy_work {
    uint32_t other; /* must have begun */
    uint32_t nparts;
    ferry_copy_batch_t *copies;
    uint64_t bytes;
} fy_work_t;

/* One part of one work. */
typedef struct fy_step {
    uint32_t work;
    uint32_t part;
} fy_step_t;

/* All copies of one rank. The steps go round the works, so that what lies close together in the
 * sender's memory is read close together in time. */
typedef struct fy_share {
    fy_work_t *works;
    uint32_t nworks;
    fy_step_t *steps;
    uint32_t nparts; /* of all works; as many steps */
    bool shared;     /* others may claim parts */
} fy_share_t;

typedef struct fy_batch {
    fy_arena_t arena;
    uint32_t size;      /* of the group */
    fy_share_t *shares; /* per member; those of others only where this rank may help */
    ferry_view_t *read_targets;
    const fy_end_t **read_sources;
    size_t nreads;
    uint32_t *waits; /* members that read or write this rank's memory */
    uint32_t nwaits;
    bool piped; /* somebody's bytes go through the pipeline */
    ferry_pipeline_params_t pipeline;
    ferry_copy_result_t result; /* of every run, but for bytes_helped */
} fy_batch_t;

/* --- a run ------------------------------------------------------------------------------------- */

typedef enum fy_phase {
    FY_COPYING,
    FY_AWAITING_PARTS, /* that others have claimed */
    FY_AWAITING_OTHERS,
    FY_RUN_OVER,
} fy_phase_t;

typedef struct fy_run {
    fy_batch_t *batch;
    fy_phase_t phase;
    uint32_t step; /* of this rank's share: the next to do, or to open when it is shared */
    size_t read;
    uint32_t wait;
    fy_pipeline_t pipe;
    bool pipe_done;
    uint64_t begin_ns;
    uint64_t looked_ns; /* when liveness was last looked at */
    uint64_t helped_bytes;
} fy_run_t;

typedef struct fy_builtin {
    ferry_group_t *group;
    ferry_world_t *world;
    ferry_copy_service_params_t params;
    uint32_t me;
    uint32_t size;
    bool one_process;
    uint32_t generation;
    uint32_t number;     /* of the last run */
    uint32_t parts_done; /* of this rank's shared batches, in all runs */
    fy_rank_flags_t **flags;
    ferry_slots_t *slots;
    fy_run_t run;
} fy_builtin_t;

/* publish.c */
ferry_status_t fy_publish(fy_builtin_t *service, const ferry_copy_list_t *list, fy_writer_t *blob,
                          ferry_error_t *err);
/* The blob of a rank that has nothing but an error to say. */
void fy_publish_error(fy_writer_t *blob, const ferry_error_t *error, uint8_t *memory, size_t cap);
#define FY_ERROR_BLOB_BYTES (sizeof(ferry_error_t) + 1)
/* Reads everybody's blobs. The first error that any of them holds is this one's. */
ferry_status_t fy_publish_read(fy_builtin_t *service, const ferry_blobs_t *blobs, fy_arena_t *arena,
                               fy_said_t *said_p, ferry_error_t *err);

/* overlap.c */
ferry_status_t fy_views_overlap(const ferry_view_t *a, const ferry_view_t *b, bool *overlap_p,
                                ferry_error_t *err);
/* No two of this rank's receives touch one byte, nor a receive and a send, but for a move of a view
 * onto itself. */
ferry_status_t fy_check_targets(const ferry_copy_list_t *list, uint32_t rank, ferry_error_t *err);

/* pairs.c: pairs in the order of their task ids; the same on all ranks. */
ferry_status_t fy_make_pairs(fy_builtin_t *service, const fy_said_t *said, fy_arena_t *arena,
                             fy_pair_t **pairs_p, ferry_error_t *err);

/* prepare.c */
ferry_status_t fy_batch_build(fy_builtin_t *service, const ferry_copy_list_t *list,
                              const fy_pair_t *pairs, size_t npairs, fy_batch_t *batch,
                              ferry_error_t *err);
void fy_batch_destroy(fy_batch_t *batch);
ferry_status_t fy_builtin_slot_bytes(const fy_builtin_t *service, uint64_t *bytes_p,
                                     ferry_error_t *err);

/* read.c: stretches that are without gaps in both, walked together. */
typedef struct fy_stretches {
    uint64_t run_bytes;
    uint64_t count; /* of stretches */
    uint32_t ndim;
    uint64_t extent[FERRY_MAX_DIMS];
    int64_t target[FERRY_MAX_DIMS]; /* strides in bytes */
    int64_t source[FERRY_MAX_DIMS];
} fy_stretches_t;

void fy_stretches(uint32_t ndim, const uint64_t *shape, const int64_t *target,
                  const int64_t *source, size_t width, fy_stretches_t *stretches_p);
ferry_status_t fy_read_view(ferry_world_t *world, const ferry_view_t *target,
                            const fy_end_t *source, ferry_error_t *err);

/* run.c */
ferry_status_t fy_run_begin(fy_builtin_t *service, fy_batch_t *batch, ferry_error_t *err);
/* Does all that can be done; with `wait`, until the run is over. */
ferry_status_t fy_run_step(fy_builtin_t *service, bool wait, bool *done_p, ferry_error_t *err);

#endif
