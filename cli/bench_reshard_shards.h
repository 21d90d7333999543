/* bench_reshard_shards.h - where a rank's tensors lie, what stands in them, and whether it arrived.
 *
 * A rank keeps all its shards of one side in one piece of memory. Where each lies follows from the case
 * alone, so that any rank can tell it of any other.
 *
 * What stands there: every element of a model is one of sixteen small integers, chosen by its tensor, row
 * and column in the whole tensor. All float dtypes hold them exactly, and so do blocks of MXFP8, so a
 * target has one right answer whatever was cast on the way.
 *
 * Ownership: reshard_shards_fini and reshard_pattern_destroy free what was made. */
#ifndef CLI_BENCH_RESHARD_SHARDS_H
#define CLI_BENCH_RESHARD_SHARDS_H

#include "bench_reshard.h"

/* A rank's shard of a tensor, the same number in the list as the tensor's in the model. */
typedef struct reshard_shard {
    bool held;           /* the rank is in the layout */
    bool mx;             /* data and scales instead of values */
    ferry_dtype_t dtype; /* of what lies at `at` */
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS]; /* local */
    uint64_t elements;
    uint64_t at;     /* bytes from the beginning of the side's memory */
    uint64_t scales; /* the same of the scales */
    uint64_t scale_bytes;
} reshard_shard_t;

typedef struct reshard_shards {
    reshard_shard_t *list;
    size_t count;
    uint64_t bytes; /* of the side's memory; 0: nothing is held */
} reshard_shards_t;

ferry_status_t reshard_shards_init(const reshard_case_t *asked, const reshard_model_t *model,
                                   bench_side_t side, uint32_t rank, reshard_shards_t *shards_p,
                                   ferry_error_t *err);
void reshard_shards_fini(reshard_shards_t *shards);

/* The values, or the data, of a shard in memory that begins at `base`. */
ferry_status_t reshard_shard_view(const reshard_shard_t *shard, void *base, ferry_view_t *view_p,
                                  ferry_error_t *err);
ferry_status_t reshard_scales_view(const reshard_shard_t *shard, ferry_mx_layout_t layout,
                                   void *base, ferry_view_t *view_p, ferry_error_t *err);

typedef struct reshard_pattern reshard_pattern_t;

ferry_status_t reshard_pattern_create(reshard_pattern_t **pattern_p, ferry_error_t *err);
void reshard_pattern_destroy(reshard_pattern_t *pattern); /* NULL is fine */

/* Writes what stands in the shards of `rank`. */
ferry_status_t reshard_fill(reshard_pattern_t *pattern, const ferry_tensor_t *tensors,
                            const reshard_shards_t *shards, uint32_t rank, void *base,
                            ferry_error_t *err);

/* Looks at every element. FERRY_CORRUPT names the first tensor that has a wrong one. */
ferry_status_t reshard_verify(reshard_pattern_t *pattern, const ferry_tensor_t *tensors,
                              const reshard_shards_t *shards, ferry_mx_layout_t layout,
                              uint32_t rank, const void *base, ferry_error_t *err);

#endif
