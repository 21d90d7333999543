/* safetensors.h - files of named tensors.
 *
 * The public format: eight bytes little-endian, the length of a JSON header; the header, which gives each
 * tensor's dtype, shape and place; the data, without gaps. A reader trusts nothing in it: lengths, offsets,
 * shapes, names and nesting are checked before anything is used, and every complaint names the file and the
 * tensor. A dtype that ferry does not know is carried as bytes.
 *
 * A writer lays a file out from names, dtypes and shapes, and writes it under a temporary name; data may be
 * put in any order, by several threads or processes; commit syncs it and gives it its name.
 *
 * Ownership: what a file returns is borrowed until it is closed. What is passed in is copied.
 * Thread safety: an open file is immutable; any number of threads may read. A writer: puts may come from
 * any thread at any time, the rest from one. */
#ifndef FERRY_SAFETENSORS_H
#define FERRY_SAFETENSORS_H

#include <stdbool.h>

#include <ferry/dtype.h>
#include <ferry/layout.h>

FERRY_BEGIN_DECLS

#define FERRY_SAFETENSORS_HEADER_MAX (UINT64_C(100) << 20) /* bytes; the format's own limit */

typedef struct ferry_safetensors ferry_safetensors_t;
typedef struct ferry_safetensors_writer ferry_safetensors_writer_t;

typedef struct ferry_file_tensor {
    const char *name;
    ferry_dtype_t dtype; /* FERRY_DTYPE_NONE: unknown to ferry; then it can only be copied whole */
    const char *dtype_text; /* as in the file: "BF16" */
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    uint64_t offset; /* of its first byte in the file */
    uint64_t bytes;
} ferry_file_tensor_t;

/* A line of __metadata__. */
typedef struct ferry_file_note {
    const char *key;
    const char *value;
} ferry_file_note_t;

/* Reads and checks the header; keys of a tensor that the format does not have are skipped. FERRY_IO, FERRY_CORRUPT
 * (truncated, out of range, overlapping, gaps), FERRY_PARSE (no JSON, or not of this form), FERRY_UNSUPPORTED (more than
 * FERRY_MAX_DIMS dims). */
FERRY_API ferry_status_t ferry_safetensors_open(const char *path, ferry_safetensors_t **file_p,
                                                ferry_error_t *err);
FERRY_API void ferry_safetensors_close(ferry_safetensors_t *file); /* NULL is fine */
FERRY_API const char *ferry_safetensors_path(const ferry_safetensors_t *file);

/* In the order of their offsets. */
FERRY_API const ferry_file_tensor_t *ferry_safetensors_tensors(const ferry_safetensors_t *file,
                                                               size_t *count_p);
/* NULL when there is none of that name. */
FERRY_API const ferry_file_tensor_t *ferry_safetensors_find(const ferry_safetensors_t *file,
                                                            const char *name);
FERRY_API const ferry_file_note_t *ferry_safetensors_notes(const ferry_safetensors_t *file,
                                                           size_t *count_p);
/* The value of a key, or NULL. */
FERRY_API const char *ferry_safetensors_note(const ferry_safetensors_t *file, const char *key);

/* Reads bytes of the file: whole, or a failure. */
FERRY_API ferry_status_t ferry_safetensors_read(const ferry_safetensors_t *file, uint64_t offset,
                                                void *target, size_t bytes, ferry_error_t *err);
/* The whole file, mapped for reading (once, on first use; any thread). A file that is cut short by others while it
 * is mapped kills the reader with SIGBUS, as any mapping does; ferry_safetensors_read does not. */
FERRY_API ferry_status_t ferry_safetensors_map(ferry_safetensors_t *file, const uint8_t **bytes_p,
                                               ferry_error_t *err);

/* --- writing ----------------------------------------------------------------------------------- */

/* A tensor to be written. Where dtype is FERRY_DTYPE_NONE, dtype_text and bytes say what it is; else ferry knows. */
typedef struct ferry_new_tensor {
    const char *name;
    ferry_dtype_t dtype;
    const char *dtype_text;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;
} ferry_new_tensor_t;

/* Lays the tensors out in the order given (data starts on a multiple of 64 bytes: the header is padded with
 * blanks), makes path + ".part" with all its space reserved, and writes the header. FERRY_IO (with errno; a full
 * disk is found here) leaves nothing behind. Names must differ. */
FERRY_API ferry_status_t ferry_safetensors_create(const char *path,
                                                  const ferry_new_tensor_t *tensors, size_t count,
                                                  const ferry_file_note_t *notes, size_t nnotes,
                                                  ferry_safetensors_writer_t **writer_p,
                                                  ferry_error_t *err);
/* Where tensor `index` lies in the file; for `count`, where the file ends. */
FERRY_API uint64_t ferry_safetensors_offset(const ferry_safetensors_writer_t *writer, size_t index);
/* Writes bytes of tensor `index`, from `at` in it. */
FERRY_API ferry_status_t ferry_safetensors_put(ferry_safetensors_writer_t *writer, size_t index,
                                               uint64_t at, const void *bytes, size_t length,
                                               ferry_error_t *err);
/* Syncs the file, renames it to `path` and syncs the folder. The writer is gone, whatever comes of it; after a failure
 * so is what was written, except when only the folder could not be synced: then the file has its name. What was never
 * put is zero. */
FERRY_API ferry_status_t ferry_safetensors_commit(ferry_safetensors_writer_t *writer,
                                                  ferry_error_t *err);
/* Removes what was written. NULL is fine. */
FERRY_API void ferry_safetensors_abandon(ferry_safetensors_writer_t *writer);

/* "BF16" and back; FERRY_DTYPE_NONE and NULL where there is no such thing. */
FERRY_API ferry_dtype_t ferry_safetensors_dtype(const char *text);
FERRY_API const char *ferry_safetensors_dtype_text(ferry_dtype_t dtype);

FERRY_END_DECLS

#endif
