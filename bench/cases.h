/* cases.h - the cases of `ferry bench`, as plain descriptions.
 *
 * A case is a number of equal 2-D tensors, each cut over a grid of ranks before and after. Both cuts
 * are block-cyclic; row shards are the grid ranks x 1 with one block a rank, column shards the grid
 * 1 x ranks. Rank numbers go along the rows of a grid: rank = grid_row * grid_cols + grid_col. A rank
 * keeps its shards of all tensors of one side back to back in one piece of memory, row-major.
 *
 * Nothing here uses the library: the regions are an independent statement of what has to move, for the
 * limit of the machine, for the peers, and to check results.
 *
 * Ownership: what a call hands out in a `_p` is the caller's; free() it, or use the matching destroy.
 * Thread safety: no shared state; different threads may use different objects.
 */
#ifndef FERRY_BENCH_CASES_H
#define FERRY_BENCH_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limit.h"

typedef struct bench_cut {
    uint32_t grid_rows, grid_cols;
    uint64_t block_rows, block_cols; /* elements */
} bench_cut_t;

typedef enum bench_side { BENCH_SOURCE, BENCH_TARGET, BENCH_SIDES } bench_side_t;

typedef struct bench_case {
    const char *name;
    uint32_t ranks;
    uint32_t tensors;
    uint32_t element_bytes; /* 4: f32, 8: f64 */
    uint64_t rows, cols;    /* of each tensor */
    bench_cut_t cut[BENCH_SIDES];
    bool heap;     /* the source is ordinary private memory, and is read across processes */
    bool pipeline; /* by way of slots, although direct copies would be possible */
} bench_case_t;

/* A rectangle of one tensor that source_rank holds before and target_rank after. Positions are elements
 * in the local shards. Every tensor of a case has the same regions. */
typedef struct bench_region {
    uint32_t source_rank, target_rank;
    uint64_t rows, cols;
    uint64_t source_row, source_col;
    uint64_t target_row, target_col;
} bench_region_t;

/* The name of the index-th case, NULL after the last. */
const char *bench_case_name(size_t index);

/* Describes a case. ranks 0 means those in its name. scale, above 0 and at most 1, is the part of its
 * bytes to keep, rounded to whole blocks. False when there is no such case or it cannot have so many
 * ranks. */
bool bench_case_init(const char *name, uint32_t ranks, double scale, bench_case_t *case_p);

/* Bytes that arrive in all targets together. */
uint64_t bench_case_bytes(const bench_case_t *bench);

/* The regions of one tensor, in ascending global position. False when there is no memory. */
bool bench_case_regions(const bench_case_t *bench, bench_region_t **regions_p, size_t *count_p);

/* The shape of a rank's shard of one tensor, and the bytes of its shards of all tensors. */
void bench_shard_shape(const bench_case_t *bench, bench_side_t side, uint32_t rank,
                       uint64_t *rows_p, uint64_t *cols_p);
uint64_t bench_shard_bytes(const bench_case_t *bench, bench_side_t side, uint32_t rank);

/* Writes into a rank's memory what the case says stands there; counts the elements that differ from
 * it. No element is zero. */
void bench_shard_fill(const bench_case_t *bench, bench_side_t side, uint32_t rank, void *base);
uint64_t bench_shard_wrong(const bench_case_t *bench, bench_side_t side, uint32_t rank,
                           const void *base);

/* --- memory for a case in one process --------------------------------------------------------------- */

typedef enum bench_memory {
    BENCH_MEMORY_SHARED, /* a memfd for each rank and side, as ranks that are processes have it */
    BENCH_MEMORY_HEAP,   /* private, ordinary pages */
    BENCH_MEMORY_HUGE,   /* private, huge pages where the kernel gives them */
} bench_memory_t;

typedef struct bench_buffers {
    uint32_t ranks;
    size_t *bytes[BENCH_SIDES];
    void **base[BENCH_SIDES];
} bench_buffers_t;

/* Maps the memory of all ranks, fills the sources and zeroes the targets, so that all pages are there.
 * False, with errno, when that fails. */
bool bench_buffers_init(const bench_case_t *bench, bench_memory_t memory,
                        bench_buffers_t *buffers_p);
void bench_buffers_fini(bench_buffers_t *buffers);

/* The copies that carry out the case, for limit.h. False when there is no memory. */
bool bench_case_copies(const bench_case_t *bench, const bench_buffers_t *buffers,
                       bench_copy_t **copies_p, size_t *count_p);

/* Wrong elements in all targets. */
uint64_t bench_buffers_wrong(const bench_case_t *bench, const bench_buffers_t *buffers);

#endif
