/* shards.c - rank files that others wrote: no ferry.json, but a parallel spec from the caller.
 *
 * The files of the folder, in the order of their names, are the ranks. What the whole tensors are follows from
 * the rules and from the shards' shapes. Names are Hugging Face's: in fused forms the files do not say enough. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/files.h"
#include "ckpt/folder.h"

static int by_text(const void *left, const void *right) {
    const char *const *a = left;
    const char *const *b = right;
    return strcmp(*a, *b);
}

static bool is_tensors(const char *name) {
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name);
    return length > sizeof suffix - 1 && strcmp(name + length - (sizeof suffix - 1), suffix) == 0;
}

/* Names of all files of tensors, sorted. */
static ferry_status_t list_files(ferry_folder_t *folder, const char ***names_p, size_t *count_p,
                                 ferry_error_t *err) {
    DIR *dir = opendir(folder->path);
    if (dir == NULL) {
        return fy_fail_file(err, FERRY_IO, errno, folder->path, "cannot be read");
    }
    size_t cap = 0;
    ferry_status_t status = FERRY_OK;
    struct dirent *entry = NULL;
    while (status == FERRY_OK && (entry = readdir(dir)) != NULL) {
        if (!is_tensors(entry->d_name)) {
            continue;
        }
        char *kept = fy_arena_string(&folder->arena, entry->d_name);
        if (kept == NULL || !fy_reserve(names_p, &cap, *count_p + 1, sizeof **names_p)) {
            status = fy_fail_nomem(err, "the files of a folder");
        } else {
            (*names_p)[(*count_p)++] = kept;
        }
    }
    (void)closedir(dir);
    if (*count_p > 0) {
        qsort(*names_p, *count_p, sizeof **names_p, by_text);
    }
    return status;
}

/* What each file holds, as the rules want it. */
static ferry_status_t list_tensors(const ferry_folder_t *folder, fy_arena_t *arena,
                                   ferry_rank_tensors_t *ranks, ferry_error_t *err) {
    for (uint32_t rank = 0; rank < folder->nranks; rank++) {
        size_t count = 0;
        const ferry_file_tensor_t *in = ferry_safetensors_tensors(folder->files[rank], &count);
        ferry_whole_t *list = fy_arena_alloc(arena, count, sizeof *list);
        if (list == NULL) {
            return fy_fail_nomem(err, "the tensors of a folder");
        }
        for (size_t i = 0; i < count; i++) {
            if (in[i].dtype == FERRY_DTYPE_NONE) {
                ferry_status_t status = fy_fail_file(
                    err, FERRY_UNSUPPORTED, 0, ferry_safetensors_path(folder->files[rank]),
                    "dtype %s is unknown, so shards of it cannot be put together",
                    in[i].dtype_text);
                fy_error_tensor(err, in[i].name);
                return status;
            }
            list[i] = (ferry_whole_t){in[i].name, in[i].dtype, in[i].ndim, in[i].shape};
        }
        ranks[rank] = (ferry_rank_tensors_t){list, count};
    }
    return FERRY_OK;
}

static ferry_status_t gather(ferry_folder_t *folder, fy_arena_t *arena, ferry_error_t *err) {
    ferry_rank_tensors_t *ranks = fy_arena_alloc(arena, folder->nranks, sizeof *ranks);
    if (ranks == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    FY_TRY(list_tensors(folder, arena, ranks, err));
    ferry_place_params_t params = FERRY_PLACE_PARAMS_INIT;
    params.config = folder->config.numbers;
    params.nconfig = folder->config.count;
    params.parallel = &folder->parallel;
    params.flags = folder->flags;
    ferry_tensor_set_t *set = NULL;
    FY_TRY(ferry_rules_gather(folder->rules, &params, ranks, folder->nranks, &set, err));
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        status = fy_add_whole(&folder->wholes, &folder->arena, tensors[i].name,
                              ferry_safetensors_dtype_text(tensors[i].dtype), tensors[i].ndim,
                              tensors[i].shape, 0, err);
    }
    ferry_tensor_set_destroy(set);
    return status;
}

ferry_status_t fy_open_shards(ferry_folder_t *folder, const ferry_parallel_t *parallel,
                              ferry_error_t *err) {
    folder->parallel = *parallel;
    folder->form = "hf";
    FY_TRY(ferry_parallel_world(parallel, &folder->nranks, err));
    FY_TRY(fy_need_rules(folder, err));
    const char **names = NULL;
    size_t count = 0;
    ferry_status_t status = list_files(folder, &names, &count, err);
    if (status == FERRY_OK && count != folder->nranks) {
        status = fy_fail_file(err, FERRY_MISMATCH, 0, folder->path,
                              "%zu files of tensors, and the spec makes %" PRIu32 " ranks", count,
                              folder->nranks);
    }
    if (status == FERRY_OK) {
        status = fy_open_files(folder, names, count, err);
    }
    fy_free(names);
    FY_TRY(status);
    fy_arena_t arena = FY_ARENA_INIT;
    status = gather(folder, &arena, err);
    fy_arena_fini(&arena);
    return status;
}
