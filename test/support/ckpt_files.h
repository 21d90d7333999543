/* ckpt_files.h - checkpoint folders for tests: small models written and read with nothing of the library, so that what
 * it makes is held against another reading of the format.
 *
 * Names are plain (no escapes), and a file's header is searched, not parsed. Everything aborts on trouble that is not
 * the library's. */
#ifndef FERRY_TEST_CKPT_FILES_H
#define FERRY_TEST_CKPT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CKPT_DIMS = 4, CKPT_NAME = 96 };

typedef struct ckpt_tensor {
    char name[CKPT_NAME];
    char dtype[12]; /* as the format has it: "BF16" */
    uint32_t ndim;
    uint64_t shape[CKPT_DIMS];
    uint64_t bytes;
    uint8_t *data;
    uint64_t offset; /* of a tensor that was read: in its file */
    char file[CKPT_NAME];
} ckpt_tensor_t;

typedef struct ckpt_model {
    ckpt_tensor_t *list;
    size_t count;
    size_t cap;
    char config[1024]; /* config.json; "": there is none */
} ckpt_model_t;

void ckpt_model_fini(ckpt_model_t *model);
/* A tensor of zero bytes, to be filled; valid until the next one is added. `dims` are `ndim` lengths. The width is the dtype's;
 * an unknown dtype is three bytes wide. */
ckpt_tensor_t *ckpt_add(ckpt_model_t *model, const char *name, const char *dtype, uint32_t ndim,
                        const uint64_t *dims);
uint64_t ckpt_width(const char *dtype);
const ckpt_tensor_t *ckpt_find(const ckpt_model_t *model, const char *name);

/* One safetensors file of the tensors first, first + 1, ... */
void ckpt_write_file(const ckpt_model_t *model, size_t first, size_t count, const char *path);
/* A Hugging Face folder of so many files (one: no index), and its config. */
void ckpt_write_folder(const ckpt_model_t *model, const char *path, size_t files);
/* Every tensor of a file, or of every *.safetensors in a folder. */
void ckpt_read_file(ckpt_model_t *model, const char *folder, const char *file);
void ckpt_read_folder(ckpt_model_t *model, const char *path);
/* NULL when both hold the same tensors, bit for bit; else the name of one that differs. */
const char *ckpt_difference(const ckpt_model_t *a, const ckpt_model_t *b);

/* A llama of one layer: 8 heads, 4 of K and V, of so many elements a head; vocabulary 40. Values count up. */
void ckpt_small_llama(ckpt_model_t *model, uint64_t head_dim);

/* --- files ------------------------------------------------------------------------------------- */

/* A new folder in memory, or in /tmp; `path` has room for 64. */
void ckpt_temp(char *path);
void ckpt_remove(const char *path); /* with all that is in it; none there is fine */
void ckpt_text(const char *folder, const char *name, const char *text);
bool ckpt_exists(const char *path);
/* Entries of a folder whose names have `part` in them ("": all). */
size_t ckpt_entries(const char *folder, const char *part);

#endif
