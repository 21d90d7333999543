/* ckpt.h - checkpoint folders, and turning one into another.
 *
 * Two forms of folder, both of safetensors files:
 *   hf      model.safetensors, or model-0000i-of-0000n.safetensors with an index: whole tensors;
 *   ranks   rank-0000i-of-0000n.safetensors, a file per rank, and ferry.json (docs/formats/folder.md): each rank's
 *           shards, under a parallel spec and a naming form (rules.h).
 *
 * A folder is a set of tensors with layouts (what a plan is made of), and for each rank the places in files
 * where its shards lie. Converting is a plan between two such sets, run by workers that read the source files
 * where they are mapped, copy (and cast) into a buffer, and write: nobody holds more than its buffer.
 *
 * Writing goes to a folder beside the target, which is synced and renamed when all is there; a run that ends
 * early leaves the source as it was and no target.
 *
 * Ownership: a folder owns its files and what it returns. What is passed in is copied or borrowed during the call.
 * Thread safety: an open folder is immutable. */
#ifndef FERRY_CKPT_H
#define FERRY_CKPT_H

#include <ferry/digest.h>
#include <ferry/rules.h>
#include <ferry/safetensors.h>

FERRY_BEGIN_DECLS

typedef struct ferry_folder ferry_folder_t;

typedef enum ferry_folder_kind {
    FERRY_FOLDER_HF = 1,
    FERRY_FOLDER_RANKS = 2,
} ferry_folder_kind_t;

typedef struct ferry_folder_params {
    size_t size;       /* sizeof(ferry_folder_params_t) */
    const char *rules; /* name of built-in rules; NULL: by config.json, or as ferry.json says */
    const char *rules_text; /* rules of one's own instead; `rules` is then their name */
    const char *form;       /* that the names must have; NULL: any. Files of others: "hf" */
    const ferry_parallel_t *parallel; /* of rank files without a ferry.json */
    uint32_t flags;                   /* FERRY_RULES_REPLICATE */
} ferry_folder_params_t;

#define FERRY_FOLDER_PARAMS_INIT                                                                   \
    { sizeof(ferry_folder_params_t), NULL, NULL, NULL, NULL, 0 }

/* Reads the headers of all files. params may be NULL. Errors name the file and the tensor. */
FERRY_API ferry_status_t ferry_folder_open(const char *path, const ferry_folder_params_t *params,
                                           ferry_folder_t **folder_p, ferry_error_t *err);
FERRY_API void ferry_folder_close(ferry_folder_t *folder); /* NULL is fine */

FERRY_API const char *ferry_folder_path(const ferry_folder_t *folder);
FERRY_API ferry_folder_kind_t ferry_folder_kind(const ferry_folder_t *folder);
FERRY_API const char *ferry_folder_form(const ferry_folder_t *folder);
FERRY_API const char *ferry_folder_rules(const ferry_folder_t *folder); /* their name, or "" */
FERRY_API const ferry_parallel_t *ferry_folder_parallel(const ferry_folder_t *folder);
FERRY_API uint32_t ferry_folder_nranks(const ferry_folder_t *folder); /* 1 for hf */
FERRY_API size_t ferry_folder_nfiles(const ferry_folder_t *folder);
FERRY_API const ferry_safetensors_t *ferry_folder_file(const ferry_folder_t *folder, size_t index);
/* The tensors, with Hugging Face's names and whole shapes, on ranks 0, 1, ..., in the order of names. */
FERRY_API const ferry_tensor_t *ferry_folder_tensors(const ferry_folder_t *folder, size_t *count_p);

/* The same tensors as another spec would place them, on ranks 0, 1, ...: what a conversion will make. Floats become `dtype`
 * (FERRY_DTYPE_NONE: stay). */
FERRY_API ferry_status_t ferry_folder_place(ferry_folder_t *folder,
                                            const ferry_parallel_t *parallel, ferry_dtype_t dtype,
                                            ferry_tensor_set_t **set_p, ferry_error_t *err);

/* --- converting -------------------------------------------------------------------------------- */

/* Of a worker, where no row is larger: it stays in the cache between being filled and written. */
#define FERRY_CONVERT_BUFFER_BYTES (UINT64_C(1) << 20)

typedef struct ferry_convert_progress {
    uint64_t bytes_done; /* written */
    uint64_t bytes_total;
} ferry_convert_progress_t;

typedef struct ferry_convert_params {
    size_t size;               /* sizeof(ferry_convert_params_t) */
    ferry_folder_kind_t kind;  /* of the target */
    const char *form;          /* NULL: "hf" */
    ferry_parallel_t parallel; /* kind RANKS */
    ferry_dtype_t dtype;   /* that floats of other widths become; FERRY_DTYPE_NONE: as they are */
    uint64_t file_bytes;   /* hf: the most that a file holds; 0: 5 GB */
    uint64_t memory_bytes; /* of all buffers of all workers; 0: as above, for each */
    uint32_t workers;      /* processes; 0: one per core */
    bool force;            /* replace a target that is there */
    bool verify;           /* read the target again and compare digests */
    void *context;
    void (*progress)(void *context, const ferry_convert_progress_t *progress); /* may be NULL */
} ferry_convert_params_t;

typedef struct ferry_convert_result {
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t tensors;
    uint64_t files;
    double read_seconds; /* opening and planning */
    double copy_seconds;
    double sync_seconds;
    double verify_seconds;
    double total_seconds;
    uint64_t memory_bytes; /* buffers */
    ferry_digest_t digest; /* of all tensors together */
} ferry_convert_result_t;

#define FERRY_CONVERT_PARAMS_INIT                                                                  \
    {                                                                                              \
        sizeof(ferry_convert_params_t), FERRY_FOLDER_HF, NULL, FERRY_PARALLEL_INIT,                \
            FERRY_DTYPE_NONE, 0, 0, 0, false, false, NULL, NULL                                    \
    }

/* Writes `source` as a new folder at `path`. With `verify` the target is read again and compared: with the source, or, where
 * dtypes change, with what was written. */
FERRY_API ferry_status_t ferry_convert(ferry_folder_t *source, const char *path,
                                       const ferry_convert_params_t *params,
                                       ferry_convert_result_t *result_p, ferry_error_t *err);

/* --- comparing --------------------------------------------------------------------------------- */

typedef struct ferry_verify_params {
    size_t size;      /* sizeof(ferry_verify_params_t) */
    uint32_t workers; /* processes; 0: one per core */
    void *context;
    void (*progress)(void *context, const ferry_convert_progress_t *progress); /* may be NULL */
} ferry_verify_params_t;

#define FERRY_VERIFY_PARAMS_INIT                                                                   \
    { sizeof(ferry_verify_params_t), 0, NULL, NULL }

typedef struct ferry_verify_result {
    uint64_t tensors;
    uint64_t bytes; /* read */
    double seconds;
    ferry_digest_t digest; /* of all tensors of the first folder */
} ferry_verify_result_t;

/* Do two folders hold the same tensors, whatever their sharding and naming form? Reads each byte of both once; copies of a
 * shard on several ranks must agree, too. FERRY_MISMATCH names the first tensor that is missing, has another dtype
 * or shape, or differs, and then the index of its first differing element. */
FERRY_API ferry_status_t ferry_verify(ferry_folder_t *a, ferry_folder_t *b,
                                      const ferry_verify_params_t *params,
                                      ferry_verify_result_t *result_p, ferry_error_t *err);
/* The sealed digest of every tensor, in the order of ferry_folder_tensors. */
FERRY_API ferry_status_t ferry_folder_digests(ferry_folder_t *folder,
                                              const ferry_verify_params_t *params,
                                              ferry_digest_t *digests, ferry_error_t *err);

FERRY_END_DECLS

#endif
