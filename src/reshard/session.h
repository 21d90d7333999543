/* session.h - a plan bound to memory: what the files of this floor share.
 *
 *   bind.c      names become views; every mistake in them
 *   agree.c     one answer on all ranks
 *   aliases.c   sources and targets in one memory
 *   cargo.c     chunks become cargo: what is sent, where it lands, what must be staged
 *   payloads.c  do both ends of a transform agree?
 *   passes.c    cutting and passes within the budget
 *   staging.c   memory inside the budget
 *   build.c     passes become units and kept batches
 *   cells.c     Partial sources: handing parts over, folding them
 *   unit.h      the life of a chunk and of a bucket: chunk.c, bucket.c
 *   check.c     hashes that travel with buckets
 *   run.c       the machine that runs the passes
 *   session.c   the front
 *
 * Ranks are members of the service's group everywhere but in error records. One arena holds all that is
 * made when a session is prepared; a run takes no memory. */
#ifndef FERRY_RESHARD_SESSION_H
#define FERRY_RESHARD_SESSION_H

#include <stdatomic.h>

#include <ferry/mem.h>
#include <ferry/reshard.h>

#include "base/memory.h"
#include "reshard/commit.h"
#include "world/common.h"
#include "world/wait.h"

#define FY_STAGING_ALIGN 64
#define FY_CHECK_PAYLOAD 15 /* the payload number of a bucket's hash */

typedef struct ferry_session fy_session_t;

/* --- tensors ----------------------------------------------------------------------------------- */

/* A tensor of the plan, as this rank has it. */
typedef struct fy_binding {
    ferry_plan_tensor_t tensor;
    uint64_t source_shape[FERRY_MAX_DIMS]; /* local */
    uint64_t target_shape[FERRY_MAX_DIMS];
    bool has_source; /* the layout gives this rank elements of it */
    bool has_target;
    bool transformed;
    ferry_view_t source;
    ferry_view_t target[2]; /* the second under a flip only */
    void *ready;
} fy_binding_t;

/* --- staging ----------------------------------------------------------------------------------- */

struct ferry_staging {
    ferry_world_t *world;
    uint64_t budget; /* UINT64_MAX: none */
    uint64_t taken;
    struct fy_block {
        uint8_t *memory;
        uint64_t bytes;
    } * blocks;
    size_t nblocks;
    size_t cap;
};

/* Hands out places in a block, or, without a block, counts what it would take. */
typedef struct fy_places {
    uint8_t *base; /* NULL: only count */
    uint64_t used;
} fy_places_t;

void *fy_place(fy_places_t *places, uint64_t bytes);
/* A view without gaps in staging memory; its `data` is NULL when only counting. */
ferry_status_t fy_place_view(fy_places_t *places, ferry_dtype_t dtype, uint32_t ndim,
                             const uint64_t *shape, ferry_view_t *view_p, ferry_error_t *err);
uint64_t fy_view_bytes(const ferry_view_t *view);   /* of its elements, without gaps */
uint64_t fy_staged_bytes(const ferry_view_t *view); /* in staging, aligned */
bool fy_is_staging(const ferry_staging_t *staging, const void *memory);
void fy_staging_fini(ferry_staging_t *staging, bool forget);

/* --- cargo ------------------------------------------------------------------------------------- */

typedef enum fy_writeback {
    FY_WRITEBACK_NONE, /* nothing lands here */
    FY_WRITEBACK_DIRECT,
    FY_WRITEBACK_COPY,
    FY_WRITEBACK_TRANSFORM,
} fy_writeback_t;

/* A chunk with memory. */
typedef struct fy_cargo {
    const ferry_chunk_t *chunk;
    const fy_binding_t *binding;
    fy_writeback_t writeback;
    bool sends;      /* this rank holds the source (reduced or not) */
    bool stays;      /* a move onto itself: nothing to do */
    bool cast_first; /* the wire is narrower than both ends: cast into staging before sending */
    uint32_t nsend;  /* payloads; without a transform 1, or 0 where this rank has not that end */
    uint32_t nrecv;
    ferry_view_t source; /* the slice; of a Partial source, the folded cell */
    ferry_view_t target[2];
    ferry_view_t *send; /* what the service sends */
    ferry_view_t *recv[2];
    uint8_t *staged_send; /* per payload: its memory is staging */
    uint8_t *staged_recv;
    /* Of a transform. */
    ferry_dtype_t lands_as[FERRY_MAX_PAYLOADS]; /* the receiver's dtypes */
    bool lent[FERRY_MAX_PAYLOADS]; /* not sent: the receiver looks into the sender's memory */
    ferry_view_t
        *into;     /* under a gate: where a payload goes after the decision; no data: nowhere */
    uint64_t cost; /* staging bytes */
} fy_cargo_t;

/* A box of a Partial source, in which this rank has a part. */
typedef struct fy_fold {
    const ferry_cell_t *cell;
    const ferry_partial_t *partial;
    const fy_binding_t *binding;
    ferry_view_t mine;   /* this rank's part */
    ferry_view_t *parts; /* owner: per rank of the grid; folded in place, but for `mine` */
    ferry_view_t result; /* owner: what parts come to */
} fy_fold_t;

/* unit.h */
typedef struct fy_unit fy_unit_t;
typedef struct fy_unit_ops fy_unit_ops_t;

/* --- passes ------------------------------------------------------------------------------------ */

typedef struct fy_check fy_check_t;

typedef struct fy_pass {
    size_t first; /* cargo first .. first + count - 1 */
    size_t count;
    size_t first_fold;
    size_t nfolds;
    bool reduces; /* some rank folds in this pass */
    ferry_buckets_t *buckets;
    fy_unit_t *units;
    size_t nunits;
    fy_unit_t **bucket_units;   /* per bucket, where buckets are what travels; NULL: chunks do */
    fy_check_t *check;          /* NULL: no hashes */
    ferry_kept_batch_t *reduce; /* hands parts to owners */
    ferry_kept_batch_t *move[2];
} fy_pass_t;

/* --- a run ------------------------------------------------------------------------------------- */

typedef enum fy_state {
    FY_IDLE,
    FY_OPENING,  /* the commit's try */
    FY_READYING, /* the sources of sums */
    FY_REDUCING,
    FY_FOLDING,
    FY_PACKING,
    FY_LENDING, /* until all have packed */
    FY_MOVING,
    FY_UNPACKING,
    FY_RETURNING, /* until all have unpacked what was lent */
    FY_VOTING,
    FY_COPYING_IN,
    FY_FINISHING,
    FY_REFRESHING,
    FY_MEETING,
    FY_OVER,
} fy_state_t;

typedef struct fy_turn {
    fy_state_t state;
    uint32_t pass;
    size_t at;     /* unit or fold that is next */
    bool launched; /* the kept batch of this state was started */
    bool open;     /* the commit's try was begun and not finished or settled */
    uint32_t copy; /* of the targets, that is written */
    uint64_t begin_ns;
    uint64_t mark_ns;     /* since when the current phase counts */
    uint64_t deadline_ns; /* of a wait for a ready event */
    uint64_t bytes_done;
} fy_turn_t;

/* In each rank's shared memory: who has come, told by each member itself. */
typedef struct fy_meeting {
    fy_common_t common;
    fy_counter_t came[]; /* per member: meetings */
} fy_meeting_t;

struct ferry_session {
    ferry_copy_service_t *service;
    ferry_group_t *group;
    ferry_world_t *world;
    uint32_t me;
    uint32_t size;
    const ferry_plan_t *plan;
    const ferry_transform_t *transform; /* NULL: none */
    ferry_reshard_options_t options;
    bool gate;
    bool flip;
    uint32_t ncopies; /* of the targets: 2 under a flip */
    bool bucketed;
    uint32_t copy_flags; /* how values are cast, as the service does it */
    bool transforms;     /* some tensor is transformed */
    bool
        may_lend; /* the service lets ranks look at the memory of others, and no gate stands in the way */
    bool lends; /* some rank reads payloads where they lie in the memory of another */
    bool meets; /* a run ends with a meeting, since ranks may fail after the last batch */
    fy_arena_t arena;
    fy_binding_t *bindings; /* per ordinal */
    uint32_t ntensors;
    fy_arena_t cut; /* all below, until `nfolds`: made anew for every way of cutting */
    ferry_chunks_t *chunks;
    fy_cargo_t *cargo;
    size_t ncargo;
    fy_fold_t *folds;
    size_t nfolds;
    fy_pass_t *passes;
    uint32_t npasses;
    uint64_t slots_bytes; /* of the service */
    ferry_staging_t staging;
    void *block; /* the staging of a pass */
    uint64_t block_bytes;
    bool whole;              /* prepared, on all ranks */
    fy_meeting_t *meeting;   /* of this rank */
    fy_meeting_t **meetings; /* of all members */
    uint32_t nmet;           /* meetings, since the world last recovered */
    uint32_t generation;     /* of the world, then */
    fy_turn_t turn;
    _Atomic bool running;
    uint64_t bytes_total;         /* that land here in a run */
    ferry_reshard_result_t fixed; /* what is the same in every run */
    ferry_reshard_result_t result;
};

/* agree.c */
typedef struct fy_letter {
    uint64_t numbers[6];
    ferry_error_t error; /* status FERRY_OK: none */
} fy_letter_t;

/* Collective: every rank says how it fares and a few numbers. The error of the first member that has
 * one comes back on all. `all` has room for a letter of each member. */
ferry_status_t fy_agree(ferry_group_t *group, const fy_letter_t *mine, fy_letter_t *all,
                        ferry_error_t *err);
/* Puts a failure into a letter; the status goes in even when nobody filled the record. */
void fy_letter_fail(fy_letter_t *letter, ferry_status_t status, uint32_t world_rank);
/* Compares plans, options and what is transformed; sets `meets` and the smallest budget. */
ferry_status_t fy_agree_on_inputs(fy_session_t *session, ferry_status_t status,
                                  const ferry_error_t *mine, ferry_error_t *err);

/* bind.c */
ferry_status_t fy_bind(fy_session_t *session, ferry_tensors_t sources, ferry_tensors_t targets,
                       ferry_error_t *err);

/* aliases.c */
ferry_status_t fy_check_aliases(const fy_session_t *session, ferry_error_t *err);

/* cargo.c: all cargo and folds, with their costs but without staging addresses. */
ferry_status_t fy_load(fy_session_t *session, uint64_t slab_bytes, ferry_error_t *err);
void fy_unload(fy_session_t *session);
void fy_slice_of(const fy_cargo_t *cargo, bool sending, uint32_t copy, ferry_slice_t *slice_p);
bool fy_same_view(const ferry_view_t *a, const ferry_view_t *b);

/* cells.c */
bool fy_is_partial(const ferry_layout_t *layout);
uint64_t fy_fold_cost(const fy_session_t *session, const fy_fold_t *fold);
ferry_status_t fy_fold_place(const fy_session_t *session, fy_fold_t *fold, fy_places_t *places,
                             ferry_error_t *err);
ferry_status_t fy_folds_submit(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err);
ferry_status_t fy_fold_run(const fy_fold_t *fold, ferry_error_t *err);
ferry_status_t fy_fold_make(fy_session_t *session, const ferry_cell_t *cell, fy_fold_t *fold_p,
                            ferry_error_t *err);

/* payloads.c: collective. The first before passes are made, the second when all have addresses. */
ferry_status_t fy_agree_on_payloads(fy_session_t *session, ferry_error_t *err);
ferry_status_t fy_borrow_payloads(fy_session_t *session, ferry_error_t *err);

/* passes.c: collective; cargo within the budget, and the passes. */
ferry_status_t fy_make_passes(fy_session_t *session, ferry_error_t *err);

/* build.c: collective; memory, units, kept batches. */
ferry_status_t fy_build(fy_session_t *session, ferry_error_t *err);
void fy_build_undo(fy_session_t *session);

/* check.c */
ferry_status_t fy_check_make(fy_session_t *session, fy_pass_t *pass, ferry_error_t *err);
void fy_check_place(const fy_session_t *session, const fy_pass_t *pass, fy_places_t *places);
ferry_status_t fy_check_submit(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err);
/* Hashes what this rank sends, or compares what it got. */
ferry_status_t fy_check_fill(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err);
ferry_status_t fy_check_compare(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err);

/* run.c */
void fy_run_open(fy_session_t *session);
/* Does what can be done; with `wait` until the run is over. */
ferry_status_t fy_session_step(fy_session_t *session, bool wait, bool *done_p, ferry_error_t *err);

#endif
