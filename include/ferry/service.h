/* service.h - copy services: submit what to send and to receive, then run it as one batch.
 *
 * Each rank of a group submits its sends and its receives; the two ends of a transfer share a task id,
 * which no other transfer of the batch has. ferry_copy_service_run is collective over the group and
 * moves everything. Ends match by shape; where dtypes differ, the values are cast on the way.
 *
 * The built-in service looks at each pair of ends and takes the cheapest way: one strided copy straight
 * from source to target where one of the two ranks can address both (direct), a read across
 * processes where the stretches are long enough (read), or staging through slots (pipeline.h). Both
 * ends say what they have before a byte moves, and every mistake in that (an id without its other end,
 * or twice; shapes or dtypes that do not fit; a view outside its memory; a target that overlaps another
 * or a source of its rank) is one error, the same on all ranks; the next run works as if nothing had
 * been. A move within a rank onto the very same view is allowed. Each rank looks at its own views only:
 * memory that ranks share as threads of one process is theirs to keep apart.
 *
 * A failure while bytes move (a dead or late rank, ferry_copy_cancel) is a failure of the world: all
 * ranks get the same record. What targets hold is unknown then, and others may still be reading or
 * writing what was submitted until ferry_world_recover has returned on this rank. After that the
 * service works again; ferry_copy_service_check says whether it does, and why not.
 *
 * A batch may be kept: published and prepared once, run any number of times. Its views must stay valid
 * and mean the same memory. On the direct path a run of a kept batch allocates nothing and makes no
 * system call but futex.
 *
 * Other services stand behind the same calls: see <ferry/sys/service.h>.
 *
 * Ownership: a service borrows its group; it belongs to its creator and is closed before the group is
 * destroyed. Views are copied, their memory is borrowed until the run has ended. A kept batch belongs to
 * whoever kept it and is destroyed before its service is closed.
 * Thread safety: one thread at a time per service; ferry_copy_cancel may come from any thread. Services
 * of one rank on different threads must not make collective calls (create, keep, run of what is not
 * kept) at the same time. */
#ifndef FERRY_SERVICE_H
#define FERRY_SERVICE_H

#include <stdbool.h>

#include <ferry/pipeline.h>
#include <ferry/view.h>
#include <ferry/world.h>

FERRY_BEGIN_DECLS

typedef struct ferry_copy_service ferry_copy_service_t;
typedef struct ferry_kept_batch ferry_kept_batch_t;

/* --- the built-in service ---------------------------------------------------------------------- */

/* The ways that a pair may go; a sum of them is a set. */
typedef enum ferry_copy_path {
    FERRY_PATH_DIRECT = 1,
    FERRY_PATH_READ = 2,
    FERRY_PATH_PIPELINE = 4,
} ferry_copy_path_t;

typedef enum ferry_work_sharing {
    FERRY_SHARE_THREADS = 0, /* ranks that are threads of one process help each other */
    FERRY_SHARE_NONE = 1,    /* every rank does its own copies only */
    FERRY_SHARE_PROCESSES =
        2, /* ranks of other processes, too: they write into this rank's targets */
} ferry_work_sharing_t;

/* Equal on all ranks of the group, but for the thread and the trace; ferry_copy_service_create
 * compares. */
typedef struct ferry_copy_service_params {
    size_t size;      /* sizeof(ferry_copy_service_params_t) */
    uint32_t paths;   /* ways that may be taken between ranks; 0: all. The pipeline is always
                                there for pairs that no allowed way reaches; copies within a rank are
                                direct */
    uint32_t sharing; /* ferry_work_sharing_t */
    uint64_t
        read_run_bytes;  /* shortest stretch worth a cross-process read; 0: FERRY_READ_RUN_BYTES */
    uint64_t slot_bytes; /* of the pipeline; 0: its default */
    uint64_t staging_bytes; /* hard limit of this rank's slots; 0: none */
    uint32_t copy_flags;    /* of kernel.h: FERRY_COPY_SATURATE and the like */
    bool progress_thread;   /* a thread of the service drives what is started */
    /* Told of every step of this rank when it has ended (pack, put, unpack, each part of a copy, each
     * read, waits of FERRY_TRACE_WAIT_NS and more), by the thread that drives the run. It must make no
     * call to the service. NULL: nobody looks at the clock. */
    void (*trace)(void *context, const ferry_pipeline_event_t *event);
    void *trace_context;
} ferry_copy_service_params_t;

#define FERRY_COPY_SERVICE_PARAMS_INIT                                                             \
    { sizeof(ferry_copy_service_params_t), 0, 0, 0, 0, 0, 0, false, NULL, NULL }

#define FERRY_READ_RUN_BYTES 8192

/* Collective over the group, whose member this rank must be. params may be NULL for the defaults. */
FERRY_API ferry_status_t ferry_copy_service_create(ferry_group_t *group,
                                                   const ferry_copy_service_params_t *params,
                                                   ferry_copy_service_t **service_p,
                                                   ferry_error_t *err);

/* --- every service ----------------------------------------------------------------------------- */

/* What a run moved, as this rank sees it. */
typedef struct ferry_copy_result {
    uint64_t bytes_received; /* into this rank's targets, in their dtype; own copies included */
    uint64_t bytes_direct;   /* of these, by way */
    uint64_t bytes_read;
    uint64_t bytes_pipeline;
    uint64_t bytes_helped;  /* that this rank copied for others */
    uint64_t staging_bytes; /* slots of this rank */
    uint32_t rounds;        /* of the pipeline */
} ferry_copy_result_t;

/* What a service is like. */
typedef struct ferry_copy_traits {
    bool needs_barrier;     /* run returns before all others are done with this rank's memory */
    bool contiguous;        /* few views without gaps, of one dtype at both ends, suit it best */
    uint32_t copy_flags;    /* how it casts: FERRY_COPY_SATURATE or 0 */
    uint64_t staging_bytes; /* that it holds now */
    bool direct;            /* ranks may look at each other's memory where they can address it */
} ferry_copy_traits_t;

/* Waits for no other rank; a kept batch that still runs is cancelled. One page of shared memory stays,
 * since others may be looking there; it is freed with the next service that this rank makes or closes
 * after all others have closed this one, or when the world ends. NULL is fine. */
FERRY_API void ferry_copy_service_close(ferry_copy_service_t *service);

FERRY_API const char *ferry_copy_service_name(const ferry_copy_service_t *service);
/* True when run returns before all other ranks are done with this rank's memory, so that the caller
 * has to add a barrier. False for the built-in service. */
FERRY_API bool ferry_copy_service_needs_barrier(const ferry_copy_service_t *service);
FERRY_API void ferry_copy_service_traits(const ferry_copy_service_t *service,
                                         ferry_copy_traits_t *traits_p);
FERRY_API ferry_group_t *
ferry_copy_service_group(const ferry_copy_service_t *service); /* borrowed */
/* FERRY_OK, or why the service cannot run now. */
FERRY_API ferry_status_t ferry_copy_service_check(ferry_copy_service_t *service,
                                                  ferry_error_t *err);

/* Queues this rank's end of a transfer. `peer` is a member of the group, this rank included. `wire` is
 * the dtype that travels: the source's or the target's; FERRY_DTYPE_NONE leaves it to the rule of
 * ferry_dtype_wire. FERRY_INVALID: no such member, a view that is none, no task id though the peer is
 * another rank. Nothing is queued then. */
FERRY_API ferry_status_t ferry_copy_submit_send(ferry_copy_service_t *service,
                                                const ferry_view_t *source, ferry_dtype_t wire,
                                                uint32_t peer, uint64_t task_id,
                                                ferry_error_t *err);
FERRY_API ferry_status_t ferry_copy_submit_recv(ferry_copy_service_t *service,
                                                const ferry_view_t *target, uint32_t peer,
                                                uint64_t task_id, ferry_error_t *err);

/* Collective: runs what is queued (nothing is fine) and empties the queues, whether it succeeds or
 * not. When it returns FERRY_OK, this rank's targets are written and its sources may change. result_p
 * may be NULL. */
FERRY_API ferry_status_t ferry_copy_service_run(ferry_copy_service_t *service,
                                                ferry_copy_result_t *result_p, ferry_error_t *err);

/* --- kept batches ------------------------------------------------------------------------------ */

/* Collective: takes what is queued, publishes and prepares it, moves nothing. The queues are empty
 * afterwards, whether it succeeds or not. */
FERRY_API ferry_status_t ferry_copy_service_keep(ferry_copy_service_t *service,
                                                 ferry_kept_batch_t **batch_p, ferry_error_t *err);
FERRY_API void ferry_kept_batch_destroy(ferry_kept_batch_t *batch); /* NULL is fine */

/* All ranks that keep the batch run it, in the same order as their other batches. */
FERRY_API ferry_status_t ferry_kept_batch_run(ferry_kept_batch_t *batch,
                                              ferry_copy_result_t *result_p, ferry_error_t *err);

/* The same without waiting: between start and the end of the run neither sources nor targets may be
 * touched. One batch of a service at a time. Other ranks may use run instead. Something has to drive
 * it: test, wait, ferry_copy_service_progress, or the service's thread. */
FERRY_API ferry_status_t ferry_kept_batch_start(ferry_kept_batch_t *batch, ferry_error_t *err);
/* Does what can be done without waiting. *done_p: the run has ended well. A failure ends it, too. */
FERRY_API ferry_status_t ferry_kept_batch_test(ferry_kept_batch_t *batch, bool *done_p,
                                               ferry_error_t *err);
FERRY_API ferry_status_t ferry_kept_batch_wait(ferry_kept_batch_t *batch,
                                               ferry_copy_result_t *result_p, ferry_error_t *err);
/* Drives the batch that was started, if any. */
FERRY_API ferry_status_t ferry_copy_service_progress(ferry_copy_service_t *service,
                                                     ferry_error_t *err);
/* Stops a run that was started, on all ranks: they get FERRY_STOPPED, with this rank as its origin.
 * FERRY_INVALID when none is under way. */
FERRY_API ferry_status_t ferry_copy_cancel(ferry_kept_batch_t *batch, ferry_error_t *err);

/* --- pairing by task id ------------------------------------------------------------------------ */

typedef struct ferry_op_pair {
    size_t send; /* index in the list of sends */
    size_t recv; /* index in the list of receives */
} ferry_op_pair_t;

/* Pairs the sends and receives of one rank to itself by their task ids, in any order; for services of
 * one's own, too, whose operations are whatever they are. pairs_p has room for nrecvs pairs and gets
 * them in the order of the receives. FERRY_MISMATCH, with the service's name and the rank in the text:
 * an id is absent (FERRY_TASK_NONE), the counts differ, an id repeats on either side, a receive has no
 * send. FERRY_NOMEM. */
FERRY_API ferry_status_t ferry_match_local_ops(const uint64_t *send_ids, size_t nsends,
                                               const uint64_t *recv_ids, size_t nrecvs,
                                               const char *service_name, uint32_t rank,
                                               ferry_op_pair_t *pairs_p, ferry_error_t *err);

FERRY_END_DECLS

#endif
