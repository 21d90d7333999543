/* plan.h - who sends which region to whom.
 *
 * A plan joins two sets of tensors, matched by name: for every target rank and tensor it names, piece
 * by piece, the source rank that sends it. It is made from the two layouts alone: any rank can make
 * its own part (FERRY_PLAN_PART) without talking to others, and the parts agree, because
 *   - a task id is composed of tensor ordinal (in name order), target rank and piece;
 *   - the choice among the holders of a region is this rank itself, then one on the same host, then
 *     spread so that no source is much busier than the mean. It depends on the sources, the host map
 *     and what the target rank itself holds: adding target ranks changes nothing for the others.
 *
 * A transfer is a box in the local coordinates of one source and of one target rank. Pieces that are
 * contiguous on both ends are one transfer. A source that is Partial is reduced first: the group and
 * the order come from ferry_plan_reduce, and all its members are part of the plan.
 *
 * Ownership: a plan copies all it needs from its parameters. Strings and arrays that it returns are
 * borrowed until ferry_plan_destroy.
 * Thread safety: a plan is immutable; any number of threads may read it. */
#ifndef FERRY_PLAN_H
#define FERRY_PLAN_H

#include <ferry/dtype.h>
#include <ferry/layout.h>

FERRY_BEGIN_DECLS

/* Part of the input hash: plans of different planners are never mixed. */
#define FERRY_PLANNER_VERSION 2
/* Version of the binary form; another one is refused with FERRY_VERSION. */
#define FERRY_PLAN_FORMAT_VERSION 1

/* Fields of a task id, from the top: tensor, target rank, piece, payload. A plan's ids have payload 0;
 * a transfer that carries several payloads gives each an id of its own with FERRY_TASK_PAYLOAD. */
#define FERRY_TASK_TENSOR_BITS 20
#define FERRY_TASK_RANK_BITS 20
#define FERRY_TASK_PIECE_BITS 20
#define FERRY_TASK_PAYLOAD_BITS 4

#define FERRY_TASK_PAYLOAD(task_id, payload) ((task_id) | (uint64_t)(payload))

typedef struct ferry_plan ferry_plan_t;

typedef struct ferry_tensor {
    const char *name;
    ferry_dtype_t dtype;
    uint32_t ndim;
    const uint64_t *shape; /* global; ndim entries */
    const ferry_layout_t *layout;
} ferry_tensor_t;

enum {
    FERRY_PLAN_STRICT = 1 << 0,     /* a source tensor without a target is an error */
    FERRY_PLAN_ALLOW_CAST = 1 << 1, /* dtypes may differ */
    FERRY_PLAN_PART = 1 << 2,       /* only what concerns `rank` */
};

typedef struct ferry_plan_params {
    size_t size; /* sizeof(ferry_plan_params_t) */
    uint32_t flags;
    uint32_t rank; /* with FERRY_PLAN_PART */
    const ferry_tensor_t *sources;
    size_t nsources;
    const ferry_tensor_t *targets;
    size_t ntargets;
    const uint32_t *hosts; /* hosts[r] is the host of rank r; NULL: nothing is known */
    size_t nhosts;         /* entries of hosts; ranks beyond it are each on a host of their own */
} ferry_plan_params_t;

#define FERRY_PLAN_PARAMS_INIT                                                                     \
    { sizeof(ferry_plan_params_t), 0, 0, NULL, 0, NULL, 0, NULL, 0 }

FERRY_API ferry_status_t ferry_plan_create(const ferry_plan_params_t *params, ferry_plan_t **plan_p,
                                           ferry_error_t *err);
FERRY_API void ferry_plan_destroy(ferry_plan_t *plan); /* NULL is fine */

/* ---- what it holds ---------------------------------------------------------------------------- */

/* A planned tensor, both sides of it. Ordinals count in name order. */
typedef struct ferry_plan_tensor {
    const char *name;
    uint32_t ndim;
    const uint64_t *shape;
    ferry_dtype_t source_dtype;
    ferry_dtype_t target_dtype;
    ferry_dtype_t wire_dtype;
    const ferry_layout_t *source_layout;
    const ferry_layout_t *target_layout;
} ferry_plan_tensor_t;

FERRY_API uint32_t ferry_plan_ntensors(const ferry_plan_t *plan);
/* ordinal < ntensors */
FERRY_API void ferry_plan_tensor(const ferry_plan_t *plan, uint32_t ordinal,
                                 ferry_plan_tensor_t *tensor_p);

/* The rank of a part, or FERRY_RANK_NONE for a whole plan. */
FERRY_API uint32_t ferry_plan_rank(const ferry_plan_t *plan);
/* FERRY_PLAN_STRICT and FERRY_PLAN_ALLOW_CAST as given. */
FERRY_API uint32_t ferry_plan_flags(const ferry_plan_t *plan);

/* The host map as given, borrowed; *count_p is 0 when nothing is known. */
FERRY_API const uint32_t *ferry_plan_hosts(const ferry_plan_t *plan, size_t *count_p);

typedef struct ferry_transfer {
    uint64_t task_id;
    uint32_t tensor; /* ordinal */
    uint32_t source; /* rank */
    uint32_t target; /* rank; equal to source: a local copy */
    uint32_t piece;
    uint32_t stage; /* always 0 today; a later planner may relay regions in stages */
    uint64_t after; /* task that must be done before this one, or FERRY_TASK_NONE */
    uint64_t elements;
    uint64_t bytes; /* in the wire dtype */
    uint32_t ndim;
    uint64_t source_lo[FERRY_MAX_DIMS]; /* in the source rank's local tensor */
    uint64_t target_lo[FERRY_MAX_DIMS]; /* in the target rank's local tensor */
    uint64_t extent[FERRY_MAX_DIMS];
} ferry_transfer_t;

/* Walks all transfers in the order of their task ids. Start from FERRY_PLAN_CURSOR_INIT. */
typedef struct ferry_plan_cursor {
    uint64_t move; /* private */
    uint64_t box;  /* private */
} ferry_plan_cursor_t;

#define FERRY_PLAN_CURSOR_INIT                                                                     \
    { 0, 0 }

/* False when there are no more. */
FERRY_API bool ferry_plan_next(const ferry_plan_t *plan, ferry_plan_cursor_t *cursor,
                               ferry_transfer_t *transfer_p);

/* How many ferry_plan_next will give. */
FERRY_API uint64_t ferry_plan_ntransfers(const ferry_plan_t *plan);

/* The ranks whose values make up a Partial source: a grid, row-major, outermost axis first. The
 * value of a region is op[0] over i0 of (op[1] over i1 of (...)): inner axes first, each folded from
 * index 0 upwards, in the source dtype. naxes is 0 (and nranks 1) when nothing is reduced. */
typedef struct ferry_reduce {
    uint32_t naxes;
    uint32_t nranks;
    uint32_t sizes[FERRY_MAX_AXES];
    ferry_reduce_op_t ops[FERRY_MAX_AXES];
} ferry_reduce_t;

/* For transfers of `tensor` out of `source`. Writes up to cap ranks of the grid. */
FERRY_API ferry_status_t ferry_plan_reduce(const ferry_plan_t *plan, uint32_t tensor,
                                           uint32_t source, ferry_reduce_t *reduce_p,
                                           uint32_t *ranks, size_t cap, ferry_error_t *err);

/* ---- hashes ----------------------------------------------------------------------------------- */

/* Of the input: layouts, tensors, options, planner version. Equal on all ranks, parts included. */
FERRY_API uint64_t ferry_plan_hash(const ferry_plan_t *plan);
/* Of the transfers source -> target. Equal in the parts of both ends and in the whole plan; 0 when
 * there are none. */
FERRY_API uint64_t ferry_plan_pair_hash(const ferry_plan_t *plan, uint32_t source, uint32_t target);

/* ---- proof and figures ------------------------------------------------------------------------ */

/* Every element of every target exactly once, both ends of every transfer where they must be, no box
 * outside its tensor, regions equal on both ends. A part is checked for its own targets. FERRY_CHECK
 * with the tensor and region when something is wrong. Shares no merging code with the planner. */
FERRY_API ferry_status_t ferry_plan_check(const ferry_plan_t *plan, ferry_error_t *err);

/* What one rank sends and receives. */
typedef struct ferry_port {
    uint32_t rank;
    uint32_t host; /* from the host map, or the rank itself when nothing is known */
    bool is_source;
    bool is_target;
    uint64_t send_bytes;  /* to other ranks */
    uint64_t recv_bytes;  /* from other ranks */
    uint64_t local_bytes; /* from itself to itself */
} ferry_port_t;

typedef struct ferry_plan_stats {
    size_t size; /* sizeof(ferry_plan_stats_t), set by the caller */
    uint64_t tensors;
    uint64_t transfers;
    uint64_t bytes_total; /* local + wire */
    uint64_t bytes_local; /* source and target are one rank */
    uint64_t bytes_wire;  /* between ranks */
    uint64_t bytes_host;  /* that part of bytes_wire which stays on one host of the host map */
    uint64_t
        bytes_reduce; /* what members of reduce groups hand to the owner of each distinct box */
    uint64_t max_send_bytes;
    uint64_t max_recv_bytes;
    double mean_send_bytes; /* over ranks that hold sources */
    uint32_t max_send_rank;
    uint32_t max_recv_rank;
    /* No way of moving the bytes can load its busiest port less: what a target lacks must come in,
     * and what anybody lacks must leave its holders once. Whole plans only; 0 in a part. */
    uint64_t lower_bound_bytes;
    uint32_t bound_rank;    /* a rank whose port sets the bound */
    bool bound_is_send;     /* it is a sending port */
    uint32_t bound_holders; /* how many holders share that load (1: it is this rank's alone) */
} ferry_plan_stats_t;

FERRY_API ferry_status_t ferry_plan_stats(const ferry_plan_t *plan, ferry_plan_stats_t *stats_p,
                                          ferry_error_t *err);

/* All ranks of both sides, ascending. Writes up to cap ports and sets *count_p to how many there
 * are. A part counts only its own transfers. */
FERRY_API ferry_status_t ferry_plan_ports(const ferry_plan_t *plan, ferry_port_t *ports, size_t cap,
                                          size_t *count_p, ferry_error_t *err);

/* ---- outside forms ---------------------------------------------------------------------------- */

/* Compact binary form (docs/formats/plan.md): inputs, transfers and a hash of the file. The bytes
 * are owned by the caller and freed with ferry_free. Equal plans give equal bytes. */
FERRY_API ferry_status_t ferry_plan_encode(const ferry_plan_t *plan, uint8_t **bytes_p,
                                           size_t *length_p, ferry_error_t *err);
/* Nothing in the bytes is trusted: what is accepted passes ferry_plan_check. */
FERRY_API ferry_status_t ferry_plan_decode(const uint8_t *bytes, size_t length,
                                           ferry_plan_t **plan_p, ferry_error_t *err);

/* Receives text; anything but FERRY_OK stops the writing and is handed back to its caller. */
typedef ferry_status_t (*ferry_text_sink_t)(void *context, const char *text, size_t length);

/* The readable form: a header, then tensors, then one line per transfer. */
FERRY_API ferry_status_t ferry_plan_print(const ferry_plan_t *plan, ferry_text_sink_t sink,
                                          void *context, ferry_error_t *err);

/* Frees what ferry hands over as plain memory. */
FERRY_API void ferry_free(void *memory);

FERRY_END_DECLS

#endif
