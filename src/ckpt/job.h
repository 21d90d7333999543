/* job.h - folders being read and written by workers.
 *
 * A job is a source folder and what its tensors become: stored tensors, each made of parts (boxes of shards). It
 * is cut into units, rows of one stored tensor, that workers take in turn. A worker fills a unit in its buffer
 * from the mapped source files, by the plan of the target's rank, and hands it on.
 *
 *   job.c       what is to be made, and its units
 *   fill.c      one unit: from the source files into a buffer
 *   pool.c      workers: processes that take units in turn
 *   target.c    the folder that is written
 *   convert.c   the whole way
 *   verify.c    are two folders the same? */
#ifndef FERRY_CKPT_JOB_H
#define FERRY_CKPT_JOB_H

#include <stdatomic.h>

#include <ferry/plan.h>

#include "ckpt/folder.h"

/* A box of a target rank's shard in a stored tensor. */
typedef struct fy_part {
    uint32_t tensor;
    fy_box_t box;   /* of the shard */
    uint64_t first; /* element of the stored tensor where it begins */
    int64_t strides[FERRY_MAX_DIMS];
} fy_part_t;

/* A tensor of a target file. */
typedef struct fy_made {
    const char *name;
    ferry_dtype_t dtype;
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    const fy_whole_t *opaque; /* of unknown dtype: written as the file had it */
    uint32_t rank;            /* of the plan */
    uint32_t file;
    uint32_t index; /* in the file */
    uint64_t row_elements;
    uint64_t rows;
    size_t first_part;
    size_t nparts;
} fy_made_t;

typedef struct fy_work_unit {
    uint32_t made;
    uint64_t row;
    uint64_t rows;
} fy_work_unit_t;

typedef struct fy_job {
    fy_arena_t arena;
    ferry_folder_t *source;
    uint32_t first_rank; /* of the target in the plan */
    uint32_t nranks;
    ferry_layout_t *one;
    ferry_tensor_set_t *set;
    ferry_tensor_t *targets; /* per tensor of the source, in the same order */
    fy_made_t *made;
    size_t nmade;
    fy_part_t *parts;
    size_t nparts;
    fy_work_unit_t *units;
    size_t nunits;
    size_t *
        lanes; /* per file: its first unit; and one more. Made when tensors have been dealt out to files */
    size_t nlanes;
    uint64_t unit_bytes; /* the largest */
    uint64_t bytes_total;
} fy_job_t;

typedef struct fy_job_params {
    ferry_folder_kind_t kind;
    const char *form;
    const ferry_parallel_t *parallel;
    ferry_dtype_t dtype;
    uint64_t unit_bytes; /* at most, where a row is not larger */
} fy_job_params_t;

ferry_status_t fy_job_init(fy_job_t *job, ferry_folder_t *source, const fy_job_params_t *params,
                           ferry_error_t *err);
/* Once the made tensors know their files. */
ferry_status_t fy_job_lanes(fy_job_t *job, size_t nfiles, ferry_error_t *err);
void fy_job_fini(fy_job_t *job);

/* fill.c: a worker's own things. */
typedef struct fy_filler {
    const fy_job_t *job;
    uint32_t rank; /* whose plan it has; FERRY_RANK_NONE: none yet */
    ferry_plan_t *plan;
    ferry_transfer_t *transfers; /* to that rank, by tensor */
    size_t ntransfers;
    size_t cap;
    uint8_t *buffer;
    uint64_t bytes_read;
} fy_filler_t;

ferry_status_t fy_filler_init(fy_filler_t *filler, const fy_job_t *job, ferry_error_t *err);
void fy_filler_fini(fy_filler_t *filler);
ferry_status_t fy_fill(fy_filler_t *filler, const fy_work_unit_t *unit, ferry_error_t *err);
/* Adds what a filled unit holds of each tensor to digests[tensor], where this rank is the first holder. */
ferry_status_t fy_digest_unit(fy_filler_t *filler, const fy_work_unit_t *unit,
                              ferry_digest_t *digests, ferry_error_t *err);

/* pool.c */
typedef struct fy_pool {
    uint32_t workers;
    size_t nunits;
    /* Units of one lane (a file) follow each other: lane i has those from lanes[i] to lanes[i + 1]. A lane is
     * one worker's: two that write to one file spend their time waiting for each other in the kernel. NULL: any worker
     * takes any unit. */
    const size_t *lanes;
    size_t nlanes;
    /* Makes a worker's things; does one unit; lets them go. */
    ferry_status_t (*begin)(void *context, uint32_t worker, void **own_p, ferry_error_t *err);
    ferry_status_t (*unit)(void *context, uint32_t worker, void *own, size_t unit,
                           uint64_t *bytes_p, ferry_error_t *err);
    void (*end)(void *context, uint32_t worker, void *own);
    void *context;
    void *progress_context;
    void (*progress)(void *context, const ferry_convert_progress_t *progress);
    uint64_t bytes_total;
} fy_pool_t;

ferry_status_t fy_pool_run(const fy_pool_t *pool, ferry_error_t *err);
/* Memory that workers share with their parent; zeroed. */
void *fy_shared_alloc(size_t bytes);
void fy_shared_free(void *memory, size_t bytes);
uint32_t fy_default_workers(void);

/* verify.c: of all tensors together. */
ferry_digest_t fy_digest_all(const fy_wholes_t *wholes, const ferry_digest_t *digests);

/* target.c */
typedef struct fy_target {
    const char *path;
    char *part; /* the folder that is written: path and a suffix */
    bool force;
    ferry_safetensors_writer_t **writers;
    size_t nwriters;
} fy_target_t;

ferry_status_t fy_target_open(fy_target_t *target, const fy_job_t *job, const char *path,
                              const ferry_convert_params_t *params, ferry_error_t *err);
/* Writes what goes beside the tensors and syncs all: the folder `part` is whole. */
ferry_status_t fy_target_seal(fy_target_t *target, const fy_job_t *job,
                              const ferry_convert_params_t *params, const ferry_digest_t *digests,
                              ferry_error_t *err);
/* Gives the folder its name. */
ferry_status_t fy_target_commit(fy_target_t *target, ferry_error_t *err);
/* Removes what is there of it. */
void fy_target_abandon(fy_target_t *target);

#endif
