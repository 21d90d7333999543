/* pipeline.h - pack, put, unpack, through two slots per rank.
 *
 * For pairs of ranks that cannot reach each other's tensors. Every rank has two receive slots. A
 * schedule gives each rank a list of rounds; in a round it sends at most one batch and receives at most
 * one. While a batch is under way, the one before it is unpacked and the next one is packed. A rank
 * works off its own list and waits for nobody but the peer of a batch: for the slot it is about to
 * write to have been unpacked (ready), and for the batch it is about to unpack to have been put (done).
 * There is no barrier; a rank with nothing to do in a round, or no rounds left, is not missed.
 *
 * Batches are numbered per receiver: the n-th batch that a rank receives goes to its slot n % 2, and n
 * is what both ends count with. Numbers go on from run to run of the same slots.
 *
 * Where the sender can address the receiver's slots (always, on one machine) it packs straight into
 * them; with a put of one's own it packs into its send slot and put carries it over.
 *
 * Ownership: slots belong to their creator and borrow the group. Everything in the parameters of a run is
 * borrowed until the run has ended.
 * Thread safety: one run of the same slots at a time; everything else may run at once. */
#ifndef FERRY_PIPELINE_H
#define FERRY_PIPELINE_H

#include <stdbool.h>

#include <ferry/view.h>
#include <ferry/world.h>

FERRY_BEGIN_DECLS

#define FERRY_PIPELINE_SLOT_BYTES (UINT64_C(1) << 20) /* two of them fit the cache of a core */
#define FERRY_PIPELINE_ALIGN 64 /* of segments in a slot; also the least slot */

/* --- slots ------------------------------------------------------------------------------------- */

typedef struct ferry_slots ferry_slots_t;

typedef struct ferry_slots_params {
    size_t size;           /* sizeof(ferry_slots_params_t) */
    uint64_t slot_bytes;   /* 0: FERRY_PIPELINE_SLOT_BYTES; rounded down to FERRY_PIPELINE_ALIGN */
    uint64_t budget_bytes; /* hard limit of all slots of this rank; 0: none. Slots shrink to fit */
    bool send_slots;       /* two more, for a put of one's own */
} ferry_slots_params_t;

#define FERRY_SLOTS_PARAMS_INIT                                                                    \
    { sizeof(ferry_slots_params_t), 0, 0, false }

/* Collective over the group; all ranks get slots of one size, the smallest that any asks for. Either
 * all ranks succeed or all get one error. */
FERRY_API ferry_status_t ferry_slots_create(ferry_group_t *group,
                                            const ferry_slots_params_t *params,
                                            ferry_slots_t **slots_p, ferry_error_t *err);
/* Peers must be done. NULL is fine. */
FERRY_API void ferry_slots_destroy(ferry_slots_t *slots);
FERRY_API uint64_t ferry_slots_bytes(const ferry_slots_t *slots);   /* of one */
FERRY_API uint64_t ferry_slots_staging(const ferry_slots_t *slots); /* of all this rank's */
/* Collective, after ferry_world_recover: forgets half-done runs. ferry_pipeline_execute calls it where
 * the world has recovered since the last run. */
FERRY_API ferry_status_t ferry_slots_reset(ferry_slots_t *slots, ferry_error_t *err);

/* --- rounds ------------------------------------------------------------------------------------ */

/* A stretch of a view's elements in row-major order, and its place in the slot. */
typedef struct ferry_pipeline_segment {
    const ferry_view_t *view; /* source or target */
    ferry_dtype_t wire;       /* dtype in the slot */
    uint64_t first;           /* element */
    uint64_t count;
    uint64_t at;    /* byte in the slot, a multiple of FERRY_PIPELINE_ALIGN */
    uint32_t flags; /* ferry_copy_flags_t, for the copy into the target */
} ferry_pipeline_segment_t;

typedef struct ferry_pipeline_batch {
    uint32_t peer;     /* member of the group; FERRY_RANK_NONE: nothing this round */
    uint32_t sequence; /* how many batches the receiver gets before this one, in this run */
    const ferry_pipeline_segment_t *segments;
    size_t nsegments;
    uint64_t bytes; /* of the slot that are used */
} ferry_pipeline_batch_t;

#define FERRY_PIPELINE_BATCH_NONE                                                                  \
    { FERRY_RANK_NONE, 0, NULL, 0, 0 }

typedef struct ferry_pipeline_round {
    ferry_pipeline_batch_t send;
    ferry_pipeline_batch_t recv;
} ferry_pipeline_round_t;

/* A move within this rank. */
typedef struct ferry_self_move {
    ferry_view_t target;
    ferry_view_t source;
} ferry_self_move_t;

/* Copies the segments of a batch into the slot, or out of it: what a run does unless told otherwise. */
FERRY_API ferry_status_t ferry_pipeline_pack(const ferry_pipeline_batch_t *batch, void *slot,
                                             ferry_error_t *err);
FERRY_API ferry_status_t ferry_pipeline_unpack(const ferry_pipeline_batch_t *batch,
                                               const void *slot, ferry_error_t *err);

/* --- a run ------------------------------------------------------------------------------------- */

typedef enum ferry_pipeline_step {
    FERRY_STEP_PACK = 0,
    FERRY_STEP_PUT = 1,
    FERRY_STEP_UNPACK = 2,
    FERRY_STEP_SELF = 3,
    FERRY_STEP_COPY = 4, /* from here on: of copy services (service.h) */
    FERRY_STEP_HELP = 5, /* a copy that was another rank's to do */
    FERRY_STEP_READ = 6,
    FERRY_STEP_WAIT = 7, /* of the pipeline, too */
} ferry_pipeline_step_t;

#define FERRY_TRACE_WAIT_NS UINT64_C(5000) /* shorter waits are not told */

/* A step that has ended. A put lasts from the first byte that is written to the peer's slot until the
 * peer is told; where a batch is packed straight into that slot, the pack lies within its put. */
typedef struct ferry_pipeline_event {
    ferry_pipeline_step_t step;
    uint32_t rank;  /* of the world */
    uint32_t peer;  /* of the world; whom a helper helps; FERRY_RANK_NONE: a wait for no one rank */
    uint32_t round; /* of the pipeline; of copies and reads: how many of the list came before */
    uint32_t slot;  /* 0 or 1: of the receiver; of the sender where it packs into a send slot */
    uint64_t bytes;
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;
} ferry_pipeline_event_t;

/* "pack" and so on; NULL when there is no such step. */
FERRY_API const char *ferry_pipeline_step_name(uint32_t step);

/* Writes the event as one JSON object of a Chrome trace (Perfetto reads it too) into buf, always
 * terminated when cap > 0; the rank is the process of the trace, the step its thread. Returns the
 * length that the whole text has. */
FERRY_API size_t ferry_pipeline_event_json(const ferry_pipeline_event_t *event, char *buf,
                                           size_t cap);

/* Who does the work. NULL: the CPU, at once. A launcher gets its queue and an event to record; when
 * it returns before its work is done, `sync` waits for the event. Nothing of this is used on a CPU. */
typedef struct ferry_pipeline_hooks {
    void *context;
    ferry_status_t (*pack)(void *context, const ferry_pipeline_batch_t *batch, void *slot,
                           void *queue, void *event, ferry_error_t *err);
    ferry_status_t (*unpack)(void *context, const ferry_pipeline_batch_t *batch, const void *slot,
                             void *queue, void *event, ferry_error_t *err);
    /* Carries a send slot to the peer's receive slot. Needs slots with send_slots. */
    ferry_status_t (*put)(void *context, uint32_t peer, void *peer_slot, const void *send_slot,
                          uint64_t bytes, void *queue, ferry_error_t *err);
    ferry_status_t (*copy)(void *context, const ferry_self_move_t *move, void *queue,
                           ferry_error_t *err);
    ferry_status_t (*sync)(void *context, void *event, ferry_error_t *err);
    void *pack_queue;
    void *unpack_queue;
    void *send_queue;
    void *copy_queue;
    void *pack_events[2];
    void *unpack_events[2];
    /* What a launcher does later on its queue is not in its step. */
    void (*trace)(void *context, const ferry_pipeline_event_t *event);
} ferry_pipeline_hooks_t;

typedef struct ferry_pipeline_params {
    size_t size; /* sizeof(ferry_pipeline_params_t) */
    const ferry_pipeline_round_t *rounds;
    size_t nrounds; /* of this rank; others may have more or fewer */
    const ferry_self_move_t *moves;
    size_t nmoves;
    const uint32_t *received;            /* per member: how many batches it receives in this run */
    const ferry_pipeline_hooks_t *hooks; /* may be NULL */
} ferry_pipeline_params_t;

#define FERRY_PIPELINE_PARAMS_INIT                                                                 \
    { sizeof(ferry_pipeline_params_t), NULL, 0, NULL, 0, NULL, NULL }

/* Runs the rounds. All ranks that have batches for each other call it; every rank of the group that
 * uses the slots later passes the same `received`. Returns when this rank's batches are put and
 * unpacked. A failure is the world's agreed one; its record has the round. */
FERRY_API ferry_status_t ferry_pipeline_execute(ferry_slots_t *slots,
                                                const ferry_pipeline_params_t *params,
                                                ferry_error_t *err);

FERRY_END_DECLS

#endif
