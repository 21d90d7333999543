/* folder.h - a checkpoint folder, as the files of this floor see it.
 *
 *   config.c    config.json, the index, ferry.json
 *   folder.c    opening: files, tensors, layouts, and where each rank's shards lie
 *   shards.c    rank files that others wrote
 *   boxes.c     boxes of shards: clipping, meeting, their global places
 *   target.c    a folder that is being written
 *   convert.c   one folder into another
 */
#ifndef FERRY_CKPT_FOLDER_H
#define FERRY_CKPT_FOLDER_H

#include <ferry/ckpt.h>
#include <ferry/view.h>

#include "base/bytes.h"
#include "base/memory.h"

#define FY_FOLDER_VERSION 1
#define FY_FERRY_JSON "ferry.json"
#define FY_CONFIG_JSON "config.json"
#define FY_INDEX_JSON "model.safetensors.index.json"
#define FY_ONE_FILE "model.safetensors"

/* --- tensors ----------------------------------------------------------------------------------- */

/* A whole tensor. One whose dtype ferry does not know moves as bytes, and keeps what the file said. */
typedef struct fy_whole {
    const char *name;
    ferry_dtype_t dtype; /* U8 for an unknown one */
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    const char *dtype_text; /* of an unknown dtype; else NULL */
    uint32_t file_ndim;     /* then: its shape in the file */
    uint64_t file_shape[FERRY_MAX_DIMS];
    size_t order; /* in the files */
    /* hf only: where it lies */
    uint32_t file;
    uint64_t offset;
} fy_whole_t;

/* In the order of names, as a plan has them, once all are there. */
typedef struct fy_wholes {
    fy_whole_t *list;
    size_t count;
    size_t cap;
} fy_wholes_t;

/* A box of a rank's shard, and where it lies in a tensor of a file. */
typedef struct fy_place {
    uint32_t tensor;
    uint32_t file;
    uint64_t offset; /* of the box's first element, in bytes from the beginning of the file */
    uint64_t lo[FERRY_MAX_DIMS];
    uint64_t extent[FERRY_MAX_DIMS];
    int64_t strides[FERRY_MAX_DIMS]; /* in elements */
} fy_place_t;

/* All places of one rank, by tensor. */
typedef struct fy_places_of {
    fy_place_t *list;
    size_t *first; /* per tensor, and one more */
} fy_places_of_t;

/* What config.json, or ferry.json, says. */
typedef struct fy_config {
    char *model_type; /* "" when there is none */
    ferry_config_number_t *numbers;
    size_t count;
    size_t cap;
} fy_config_t;

struct ferry_folder {
    fy_arena_t arena;
    const char *path;
    ferry_folder_kind_t kind;
    const char *form;
    const char *rules_name; /* "" when none are known */
    const char *rules_text;
    ferry_rules_t *rules;
    uint32_t flags;
    ferry_parallel_t parallel;
    uint32_t nranks;
    fy_config_t config;
    ferry_safetensors_t **files;
    size_t nfiles;
    fy_wholes_t wholes;
    ferry_layout_t *one;     /* hf: everything on rank 0 */
    ferry_tensor_set_t *set; /* ranks: from the rules */
    ferry_tensor_t *tensors; /* as many as wholes */
    fy_places_of_t *places;  /* per rank */
};

/* For the `data` of a view that is only read. */
static inline void *fy_readable(const uint8_t *bytes) {
    union {
        const uint8_t *in;
        void *out;
    } both = {bytes};
    return both.out;
}

/* config.c */
ferry_status_t fy_read_config(ferry_folder_t *folder, ferry_error_t *err);
/* The names of the files of the index, each once, in the order of the first mention; names[i] and in[i] are the tensors
 * and the file of each. */
typedef struct fy_index_map {
    const char **files;
    size_t nfiles;
    const char **names;
    uint32_t *in;
    size_t count;
} fy_index_map_t;
ferry_status_t fy_read_index(ferry_folder_t *folder, fy_index_map_t *map_p, ferry_error_t *err);
/* ferry.json: form, rules, parallel, config, wholes; *nfiles_p rank files. */
ferry_status_t fy_read_ferry_json(ferry_folder_t *folder, uint32_t *nfiles_p, ferry_error_t *err);
/* The whole of a file below the folder, in the arena. FERRY_OK and NULL when there is none. */
ferry_status_t fy_read_text(ferry_folder_t *folder, const char *name, char **text_p,
                            size_t *length_p, ferry_error_t *err);
const char *fy_path_join(fy_arena_t *arena, const char *folder, const char *name);
void fy_parallel_text(const ferry_parallel_t *parallel, char *buf, size_t cap);

/* folder.c */
ferry_status_t fy_add_whole(fy_wholes_t *wholes, fy_arena_t *arena, const char *name,
                            const char *dtype_text, uint32_t ndim, const uint64_t *shape,
                            uint64_t bytes, ferry_error_t *err);
/* A way of spreading wholes over ranks. */
typedef struct fy_spread {
    const fy_wholes_t *wholes;
    const ferry_rules_t *rules;
    const fy_config_t *config;
    const ferry_parallel_t *parallel;
    uint32_t first_rank;
    uint32_t flags;
    ferry_dtype_t dtype; /* that floats become */
} fy_spread_t;

ferry_status_t fy_place_wholes(const fy_spread_t *spread, ferry_tensor_set_t **set_p,
                               ferry_error_t *err);
/* What the file of a rank (of the set's numbering) holds. */
ferry_status_t fy_store_of(const fy_spread_t *spread, const char *form,
                           const ferry_tensor_set_t *set, uint32_t rank, ferry_store_t **store_p,
                           ferry_error_t *err);
/* Opens files of the folder, in this order. */
ferry_status_t fy_open_files(ferry_folder_t *folder, const char *const *names, size_t count,
                             ferry_error_t *err);
/* shards.c: rank files without a ferry.json; fills in files and wholes. */
ferry_status_t fy_open_shards(ferry_folder_t *folder, const ferry_parallel_t *parallel,
                              ferry_error_t *err);
/* What a tensor becomes where floats become `dtype`; FERRY_DTYPE_NONE: as it is. */
ferry_dtype_t fy_target_dtype(const fy_whole_t *whole, ferry_dtype_t dtype);
void fy_rank_file(char *buf, size_t cap, uint32_t rank, uint32_t nranks);
/* Finds the folder's rules when it was opened without. */
ferry_status_t fy_need_rules(ferry_folder_t *folder, ferry_error_t *err);

/* boxes.c */
typedef struct fy_box {
    uint64_t lo[FERRY_MAX_DIMS];
    uint64_t extent[FERRY_MAX_DIMS];
} fy_box_t;

/* False when they do not meet. */
bool fy_box_meet(uint32_t ndim, const fy_box_t *a, const fy_box_t *b, fy_box_t *both_p);

typedef ferry_status_t (*fy_box_fn_t)(void *context, const fy_box_t *box, ferry_error_t *err);

/* The parts of a box whose elements lie at [from, to) in what they are stored in, where element (lo) of the box
 * is at `first` and the strides are positive. */
ferry_status_t fy_box_clip(uint32_t ndim, const fy_box_t *box, uint64_t first,
                           const int64_t *strides, uint64_t from, uint64_t to, fy_box_fn_t fn,
                           void *context, ferry_error_t *err);
/* The global boxes of a box of a rank's shard: `fn` gets the box in the shard; *global_p, set before each call, is where it
 * begins in the whole. */
ferry_status_t fy_box_globals(const ferry_tensor_t *tensor, uint32_t rank, const fy_box_t *box,
                              uint64_t *global_p, fy_box_fn_t fn, void *context,
                              ferry_error_t *err);
/* Which copy of its shard a rank holds: 0 for the first holder. */
uint32_t fy_replica_of(const ferry_layout_t *layout, uint32_t rank);

#endif
