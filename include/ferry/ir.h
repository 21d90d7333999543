/* ir.h - chunks and buckets: a plan as one rank sees it, cut to size and grouped.
 *
 * A chunk is a transfer, or a slab of one, in which this rank has a part: it holds the source, the
 * target, both, or only a part of the sum that the source is (reduce-only). A bucket is a list of
 * chunks that travel together, laid out one after the other in the wire dtype. Both are descriptions;
 * they hold no tensor bytes. Both ends of a bucket form the same one from the plan alone, because
 *   - transfers are cut into slabs by their box, the dtypes and one number (slab_bytes) only;
 *   - chunks are taken in the order (tensor, slab, task id), and those of one key fill a bucket until
 *     the next would take it past the threshold. A chunk above the threshold is alone.
 * The key: source, target, partial, the cell for reduce-only chunks, and `lane`, a number that the
 * caller gives to each tensor to keep what must travel apart (transports, payloads) in buckets of its own.
 *
 * Partial sources. The chunks that an owner sends out of one box of one tensor share a cell: it is
 * reduced once, whoever gets it. Every member of the reduce group sees every cell of the owner, in the
 * same order, so that the two can count the cells that they share alike. A member that is also the target
 * has the cell and receives the result. A group of one rank sums nothing up: its source is a plain one.
 *
 * Wire dtype, one rule for both ends: ferry_dtype_wire of the two tensors' dtypes (the narrower of the
 * two, the source's when they are equally wide), unless the caller asks for a narrower one
 * (ferry_wire_dtype).
 *
 * Ownership: chunks and buckets copy all they need; what they return is borrowed from them.
 * Thread safety: immutable; any number of threads may read. */
#ifndef FERRY_IR_H
#define FERRY_IR_H

#include <ferry/plan.h>

FERRY_BEGIN_DECLS

#define FERRY_BUCKET_BYTES_DEFAULT (UINT64_C(8) << 20)
#define FERRY_INDEX_NONE UINT32_MAX

typedef struct ferry_chunks ferry_chunks_t;
typedef struct ferry_buckets ferry_buckets_t;

/* What this rank is in a chunk. */
typedef enum ferry_chunk_role {
    FERRY_CHUNK_SOURCE = 1,
    FERRY_CHUNK_TARGET = 2,
    FERRY_CHUNK_BOTH = 3,
    FERRY_CHUNK_REDUCE = 4, /* holds a part of the sum, ships nothing to a target */
} ferry_chunk_role_t;

typedef struct ferry_chunk {
    uint64_t task_id; /* of the transfer */
    uint32_t tensor;  /* ordinal */
    uint32_t slab;    /* counted from 0 within the transfer */
    uint32_t nslabs;  /* of the transfer */
    bool divisible; /* a smaller slab_bytes would cut it: it may be cut and is more than one row */
    uint32_t source;
    uint32_t target;
    ferry_chunk_role_t role;
    ferry_dtype_t wire;
    uint32_t partial; /* index of ferry_chunks_partial, or FERRY_INDEX_NONE */
    uint32_t cell;    /* index among this rank's cells; FERRY_INDEX_NONE: it is no member */
    uint64_t elements;
    uint64_t bytes; /* in the wire dtype */
    uint32_t ndim;
    uint64_t source_lo[FERRY_MAX_DIMS]; /* in the source rank's local tensor */
    uint64_t target_lo[FERRY_MAX_DIMS]; /* in the target rank's local tensor */
    uint64_t extent[FERRY_MAX_DIMS];
} ferry_chunk_t;

/* A reduce group, as in ferry_reduce_t; `ranks` is the grid, row-major, of nranks entries. */
typedef struct ferry_partial {
    ferry_reduce_t reduce;
    const uint32_t *ranks;
} ferry_partial_t;

/* A box of a Partial source that is reduced once, on its owner. */
typedef struct ferry_cell {
    uint32_t tensor;
    uint32_t slab;
    uint32_t owner;
    uint32_t partial;
    uint64_t elements;
    uint32_t ndim;
    uint64_t lo[FERRY_MAX_DIMS]; /* in the owner's local tensor; members have the same box */
    uint64_t extent[FERRY_MAX_DIMS];
} ferry_cell_t;

typedef struct ferry_chunks_params {
    size_t size;   /* sizeof(ferry_chunks_params_t) */
    uint32_t rank; /* whose chunks; with a part plan, its rank */
    uint64_t
        slab_bytes; /* transfers of tensors that `cut` marks are cut into slabs of at most so many
                            bytes in the wire dtype; 0: none is cut */
    const uint8_t *cut; /* per tensor ordinal: non-zero: may be cut; NULL: all may */
    ferry_dtype_t wire; /* FERRY_DTYPE_NONE: by the rule */
} ferry_chunks_params_t;

#define FERRY_CHUNKS_PARAMS_INIT                                                                   \
    { sizeof(ferry_chunks_params_t), 0, 0, NULL, FERRY_DTYPE_NONE }

/* The wire dtype of a tensor under a wish (FERRY_DTYPE_NONE: none): the wish where source, target and
 * wish are floats (e8m0 is none) and it is narrower than both, else the rule. */
FERRY_API ferry_dtype_t ferry_wire_dtype(ferry_dtype_t source, ferry_dtype_t target,
                                         ferry_dtype_t wish);

/* Slabs are whole rows, one at least however large it is: stretches along the first dim of the box that
 * is longer than 1. A box with only one such dim is cut at whole multiples of 32 elements. */
FERRY_API ferry_status_t ferry_chunks_create(const ferry_plan_t *plan,
                                             const ferry_chunks_params_t *params,
                                             ferry_chunks_t **chunks_p, ferry_error_t *err);
FERRY_API void ferry_chunks_destroy(ferry_chunks_t *chunks); /* NULL is fine */

/* In the order (tensor, slab, task id). A reduce-only chunk stands for one transfer of its owner. */
FERRY_API const ferry_chunk_t *ferry_chunks_list(const ferry_chunks_t *chunks, size_t *count_p);
/* In the order (tensor, slab, first task id). */
FERRY_API const ferry_cell_t *ferry_chunks_cells(const ferry_chunks_t *chunks, size_t *count_p);
/* index as in ferry_chunk_t; the same ranks and ops have the same index. NULL when there is none. */
FERRY_API const ferry_partial_t *ferry_chunks_partial(const ferry_chunks_t *chunks, uint32_t index);

/* ---- buckets ---------------------------------------------------------------------------------- */

typedef struct ferry_bucket_entry {
    uint32_t chunk;  /* index in ferry_chunks_list */
    uint64_t offset; /* byte in the bucket: the sum of the sizes before it */
    uint64_t bytes;
} ferry_bucket_entry_t;

typedef struct ferry_bucket {
    uint64_t task_id; /* of its first chunk: names the bucket on both ends */
    uint32_t source;
    uint32_t target; /* FERRY_RANK_NONE when it is reduce-only */
    uint32_t partial;
    uint32_t cell; /* reduce-only: its cell; else FERRY_INDEX_NONE */
    uint32_t lane;
    uint32_t nentries;
    size_t first_entry;
    uint64_t bytes;
} ferry_bucket_t;

typedef struct ferry_buckets_params {
    size_t size;  /* sizeof(ferry_buckets_params_t) */
    size_t first; /* the chunks first .. first + count - 1 of the list */
    size_t count;
    uint64_t threshold;    /* bytes; 0: FERRY_BUCKET_BYTES_DEFAULT */
    const uint32_t *lanes; /* per tensor ordinal; NULL: all 0 */
} ferry_buckets_params_t;

#define FERRY_BUCKETS_PARAMS_INIT                                                                  \
    { sizeof(ferry_buckets_params_t), 0, 0, 0, NULL }

FERRY_API ferry_status_t ferry_buckets_create(const ferry_chunks_t *chunks,
                                              const ferry_buckets_params_t *params,
                                              ferry_buckets_t **buckets_p, ferry_error_t *err);
FERRY_API void ferry_buckets_destroy(ferry_buckets_t *buckets); /* NULL is fine */

/* In the order of their first chunks; and the entries that they point into. */
FERRY_API const ferry_bucket_t *ferry_buckets_list(const ferry_buckets_t *buckets, size_t *count_p);
FERRY_API const ferry_bucket_entry_t *ferry_buckets_entries(const ferry_buckets_t *buckets,
                                                            size_t *count_p);

FERRY_END_DECLS

#endif
