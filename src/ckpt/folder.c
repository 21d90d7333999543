/* folder.c - opening a folder: its files, its tensors, their layouts, and where each rank's shards lie. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/files.h"
#include "ckpt/folder.h"

/* --- tensors ----------------------------------------------------------------------------------- */

ferry_status_t fy_add_whole(fy_wholes_t *wholes, fy_arena_t *arena, const char *name,
                            const char *dtype_text, uint32_t ndim, const uint64_t *shape,
                            uint64_t bytes, ferry_error_t *err) {
    if (!fy_reserve(&wholes->list, &wholes->cap, wholes->count + 1, sizeof *wholes->list)) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    fy_whole_t *whole = &wholes->list[wholes->count];
    *whole = (fy_whole_t){.name = fy_arena_string(arena, name),
                          .dtype = ferry_safetensors_dtype(dtype_text),
                          .ndim = ndim,
                          .order = wholes->count};
    memcpy(whole->shape, shape, ndim * sizeof *shape);
    if (whole->dtype == FERRY_DTYPE_NONE) {
        whole->dtype_text = fy_arena_string(arena, dtype_text);
        whole->file_ndim = ndim;
        memcpy(whole->file_shape, shape, ndim * sizeof *shape);
        whole->dtype = FERRY_U8;
        whole->ndim = 1;
        whole->shape[0] = bytes;
    }
    bool known = ferry_safetensors_dtype(dtype_text) != FERRY_DTYPE_NONE;
    bool good = whole->name != NULL && (known || whole->dtype_text != NULL);
    wholes->count++;
    return good ? FERRY_OK : fy_fail_nomem(err, "the tensors of a folder");
}

ferry_dtype_t fy_target_dtype(const fy_whole_t *whole, ferry_dtype_t dtype) {
    return dtype != FERRY_DTYPE_NONE && ferry_dtype_is_float(whole->dtype) ? dtype : whole->dtype;
}

/* The wholes as the rules want them; floats become `dtype` when there is one. */
static ferry_whole_t *for_rules(const fy_wholes_t *wholes, ferry_dtype_t dtype) {
    ferry_whole_t *list = fy_alloc(wholes->count, sizeof *list);
    for (size_t i = 0; i < wholes->count && list != NULL; i++) {
        const fy_whole_t *whole = &wholes->list[i];
        list[i] =
            (ferry_whole_t){whole->name, fy_target_dtype(whole, dtype), whole->ndim, whole->shape};
    }
    return list;
}

static ferry_place_params_t params_of(const fy_spread_t *spread, const ferry_whole_t *list) {
    ferry_place_params_t params = FERRY_PLACE_PARAMS_INIT;
    params.config = spread->config->numbers;
    params.nconfig = spread->config->count;
    params.tensors = list;
    params.ntensors = spread->wholes->count;
    params.parallel = spread->parallel;
    params.first_rank = spread->first_rank;
    params.flags = spread->flags;
    return params;
}

ferry_status_t fy_place_wholes(const fy_spread_t *spread, ferry_tensor_set_t **set_p,
                               ferry_error_t *err) {
    ferry_whole_t *list = for_rules(spread->wholes, spread->dtype);
    if (list == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    ferry_place_params_t params = params_of(spread, list);
    ferry_status_t status = ferry_rules_place(spread->rules, &params, set_p, err);
    fy_free(list);
    return status;
}

ferry_status_t fy_store_of(const fy_spread_t *spread, const char *form,
                           const ferry_tensor_set_t *set, uint32_t rank, ferry_store_t **store_p,
                           ferry_error_t *err) {
    ferry_whole_t *list = for_rules(spread->wholes, spread->dtype);
    if (list == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    ferry_place_params_t params = params_of(spread, list);
    ferry_status_t status =
        ferry_rules_store(spread->rules, form, &params, set, rank, store_p, err);
    fy_free(list);
    return status;
}

/* --- files ------------------------------------------------------------------------------------- */

static ferry_status_t open_file(ferry_folder_t *folder, const char *name, ferry_error_t *err) {
    const char *path = fy_path_join(&folder->arena, folder->path, name);
    if (path == NULL) {
        return fy_fail_nomem(err, "the path of a file");
    }
    return ferry_safetensors_open(path, &folder->files[folder->nfiles++], err);
}

static ferry_status_t room_for_files(ferry_folder_t *folder, size_t count, ferry_error_t *err) {
    folder->files = fy_arena_alloc(&folder->arena, count, sizeof *folder->files);
    if (folder->files == NULL) {
        return fy_fail_nomem(err, "the files of a folder");
    }
    memset(folder->files, 0, count * sizeof *folder->files);
    return FERRY_OK;
}

ferry_status_t fy_open_files(ferry_folder_t *folder, const char *const *names, size_t count,
                             ferry_error_t *err) {
    FY_TRY(room_for_files(folder, count, err));
    for (size_t i = 0; i < count; i++) {
        FY_TRY(open_file(folder, names[i], err));
    }
    return FERRY_OK;
}

/* --- Hugging Face ------------------------------------------------------------------------------ */

static ferry_status_t take_place(ferry_folder_t *folder, size_t tensor, ferry_error_t *err) {
    const fy_whole_t *whole = &folder->wholes.list[tensor];
    fy_place_t *place = &folder->places[0].list[tensor];
    ferry_view_t view;
    FY_TRY(ferry_view_contiguous(NULL, whole->dtype, whole->ndim, whole->shape, &view, err));
    *place = (fy_place_t){.tensor = (uint32_t)tensor, .file = whole->file, .offset = whole->offset};
    memcpy(place->extent, whole->shape, sizeof place->extent);
    memcpy(place->strides, view.strides, sizeof place->strides);
    folder->places[0].first[tensor + 1] = tensor + 1;
    return FERRY_OK;
}

static int by_name(const void *left, const void *right) {
    const fy_whole_t *a = left;
    const fy_whole_t *b = right;
    return strcmp(a->name, b->name);
}

static ferry_status_t sort_wholes(ferry_folder_t *folder, ferry_error_t *err) {
    fy_wholes_t *wholes = &folder->wholes;
    if (wholes->count > 0) {
        qsort(wholes->list, wholes->count, sizeof *wholes->list, by_name);
    }
    for (size_t i = 1; i < wholes->count; i++) {
        if (strcmp(wholes->list[i].name, wholes->list[i - 1].name) == 0) {
            uint64_t file = fy_max_u64(wholes->list[i].file, wholes->list[i - 1].file);
            const char *path = folder->kind == FERRY_FOLDER_RANKS
                                   ? folder->path
                                   : ferry_safetensors_path(folder->files[file]);
            ferry_status_t status =
                fy_fail_file(err, FERRY_CORRUPT, 0, path, "this tensor is there twice");
            fy_error_tensor(err, wholes->list[i].name);
            return status;
        }
    }
    return FERRY_OK;
}

/* Every tensor of every file, whole, on one rank. */
static ferry_status_t take_whole_files(ferry_folder_t *folder, ferry_error_t *err) {
    fy_wholes_t *wholes = &folder->wholes;
    for (size_t f = 0; f < folder->nfiles; f++) {
        size_t count = 0;
        const ferry_file_tensor_t *in = ferry_safetensors_tensors(folder->files[f], &count);
        for (size_t i = 0; i < count; i++) {
            FY_TRY(fy_add_whole(wholes, &folder->arena, in[i].name, in[i].dtype_text, in[i].ndim,
                                in[i].shape, in[i].bytes, err));
            wholes->list[wholes->count - 1].file = (uint32_t)f;
            wholes->list[wholes->count - 1].offset = in[i].offset;
        }
    }
    FY_TRY(sort_wholes(folder, err));
    fy_places_of_t *places = fy_arena_alloc(&folder->arena, 1, sizeof *places);
    folder->places = places;
    if (places == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    places->list = fy_arena_alloc(&folder->arena, wholes->count, sizeof *places->list);
    places->first = fy_arena_alloc(&folder->arena, wholes->count + 1, sizeof *places->first);
    if (places->list == NULL || places->first == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    places->first[0] = 0;
    for (size_t tensor = 0; tensor < wholes->count; tensor++) {
        FY_TRY(take_place(folder, tensor, err));
    }
    return FERRY_OK;
}

static int by_text(const void *left, const void *right) {
    const char *const *a = left;
    const char *const *b = right;
    return strcmp(*a, *b);
}

/* The index and the files say the same? Sorts the names of the index. */
static ferry_status_t check_index(const ferry_folder_t *folder, const fy_index_map_t *map,
                                  ferry_error_t *err) {
    for (size_t i = 0; i < map->count; i++) {
        const ferry_safetensors_t *file = folder->files[map->in[i]];
        if (ferry_safetensors_find(file, map->names[i]) == NULL) {
            ferry_status_t status =
                fy_fail_file(err, FERRY_CORRUPT, 0, ferry_safetensors_path(file),
                             "the index says that this tensor is here, and it is not");
            fy_error_tensor(err, map->names[i]);
            return status;
        }
    }
    qsort(map->names, map->count, sizeof *map->names, by_text);
    for (size_t i = 0; i < folder->wholes.count; i++) {
        const fy_whole_t *whole = &folder->wholes.list[i];
        if (i == map->count || strcmp(map->names[i], whole->name) != 0) {
            ferry_status_t status = fy_fail_file(err, FERRY_CORRUPT, 0,
                                                 ferry_safetensors_path(folder->files[whole->file]),
                                                 "this tensor is not in the index");
            fy_error_tensor(err, whole->name);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t open_hf(ferry_folder_t *folder, ferry_error_t *err) {
    fy_index_map_t map = {0};
    ferry_status_t status = fy_read_index(folder, &map, err);
    if (status == FERRY_OK) {
        status = room_for_files(folder, map.nfiles + 1, err);
    }
    for (size_t i = 0; i < map.nfiles && status == FERRY_OK; i++) {
        status = open_file(folder, map.files[i], err);
    }
    if (status == FERRY_OK && map.nfiles == 0) {
        status = open_file(folder, FY_ONE_FILE, err);
    }
    if (status == FERRY_OK) {
        status = take_whole_files(folder, err);
    }
    if (status == FERRY_OK && map.nfiles > 0) {
        status = check_index(folder, &map, err);
    }
    fy_free(map.files);
    fy_free(map.names);
    fy_free(map.in);
    FY_TRY(status);
    folder->kind = FERRY_FOLDER_HF;
    folder->form = "hf";
    folder->nranks = 1;
    FY_TRY(ferry_layout_parse("1:R", &folder->one, err));
    folder->tensors = fy_arena_alloc(&folder->arena, folder->wholes.count, sizeof *folder->tensors);
    if (folder->tensors == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    for (size_t i = 0; i < folder->wholes.count; i++) {
        const fy_whole_t *whole = &folder->wholes.list[i];
        folder->tensors[i] =
            (ferry_tensor_t){whole->name, whole->dtype, whole->ndim, whole->shape, folder->one};
    }
    return FERRY_OK;
}

/* --- rank files -------------------------------------------------------------------------------- */

/* A stored tensor as it was found in the file. */
typedef struct found {
    uint64_t offset;
    const fy_whole_t *opaque; /* what it holds, when that is of unknown dtype */
} found_t;

/* Whether the file has what the layout gives the rank. Bytes of unknown meaning are one whole tensor. */
static bool fits(const ferry_stored_t *stored, const fy_whole_t *opaque,
                 const ferry_file_tensor_t *in) {
    if (opaque == NULL) {
        return in->dtype == stored->dtype && in->ndim == stored->ndim &&
               memcmp(in->shape, stored->shape, in->ndim * sizeof *in->shape) == 0;
    }
    return in->dtype == FERRY_DTYPE_NONE && strcmp(in->dtype_text, opaque->dtype_text) == 0 &&
           in->ndim == opaque->file_ndim &&
           memcmp(in->shape, opaque->file_shape, in->ndim * sizeof *in->shape) == 0 &&
           stored->ndim == 1 && stored->shape[0] == in->bytes;
}

static ferry_status_t check_stored(const ferry_safetensors_t *file, const ferry_stored_t *stored,
                                   found_t *found, ferry_error_t *err) {
    const ferry_file_tensor_t *in = ferry_safetensors_find(file, stored->name);
    ferry_status_t status = FERRY_OK;
    const char *path = ferry_safetensors_path(file);
    if (in == NULL) {
        status = fy_fail_file(err, FERRY_CORRUPT, 0, path, "this tensor is not there");
    } else if (!fits(stored, found->opaque, in)) {
        status = fy_fail_file(err, FERRY_MISMATCH, 0, path,
                              "the shape or dtype is not what the layout gives this rank");
    } else {
        found->offset = in->offset;
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, stored->name);
    }
    return status;
}

static ferry_status_t take_parts(ferry_folder_t *folder, uint32_t rank, const ferry_store_t *store,
                                 const found_t *found, ferry_error_t *err) {
    size_t count = 0;
    const ferry_stored_part_t *parts = ferry_store_parts(store, &count);
    size_t nstored = 0;
    const ferry_stored_t *stored = ferry_store_tensors(store, &nstored);
    fy_places_of_t *places = &folder->places[rank];
    places->list = fy_arena_alloc(&folder->arena, count, sizeof *places->list);
    places->first = fy_arena_alloc(&folder->arena, folder->wholes.count + 1, sizeof *places->first);
    if (places->list == NULL || places->first == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    size_t at = 0;
    for (size_t tensor = 0; tensor <= folder->wholes.count; tensor++) {
        places->first[tensor] = at;
        for (; at < count && parts[at].tensor == tensor; at++) {
            const ferry_stored_part_t *part = &parts[at];
            uint64_t width = ferry_dtype_bits(stored[part->stored].dtype) / 8;
            fy_place_t *place = &places->list[at];
            *place = (fy_place_t){.tensor = part->tensor,
                                  .file = rank,
                                  .offset = found[part->stored].offset + part->first * width};
            memcpy(place->lo, part->lo, sizeof place->lo);
            memcpy(place->extent, part->extent, sizeof place->extent);
            memcpy(place->strides, part->strides, sizeof place->strides);
        }
    }
    return FERRY_OK;
}

static fy_spread_t spread_of(const ferry_folder_t *folder) {
    return (fy_spread_t){.wholes = &folder->wholes,
                         .rules = folder->rules,
                         .config = &folder->config,
                         .parallel = &folder->parallel,
                         .flags = folder->flags};
}

/* Rules do not know which folder they are asked about. */
static ferry_status_t blame(const ferry_folder_t *folder, ferry_status_t status,
                            ferry_error_t *err) {
    if (status != FERRY_OK && status != FERRY_NOMEM && err != NULL) {
        ferry_error_t why = *err;
        (void)fy_fail_file(err, status, 0, folder->path, "%s", why.text);
        fy_error_tensor(err, why.tensor);
    }
    return status;
}

static ferry_status_t take_rank(ferry_folder_t *folder, uint32_t rank, ferry_error_t *err) {
    ferry_store_t *store = NULL;
    fy_spread_t spread = spread_of(folder);
    ferry_status_t made = fy_store_of(&spread, folder->form, folder->set, rank, &store, err);
    FY_TRY(blame(folder, made, err));
    size_t count = 0;
    const ferry_stored_t *stored = ferry_store_tensors(store, &count);
    size_t nparts = 0;
    const ferry_stored_part_t *parts = ferry_store_parts(store, &nparts);
    found_t *found = fy_alloc_zero(count, sizeof *found);
    ferry_status_t status =
        found == NULL ? fy_fail_nomem(err, "the tensors of a folder") : FERRY_OK;
    for (size_t i = 0; i < nparts && status == FERRY_OK; i++) {
        const fy_whole_t *whole = &folder->wholes.list[parts[i].tensor];
        found[parts[i].stored].opaque = whole->dtype_text != NULL ? whole : NULL;
    }
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        status = check_stored(folder->files[rank], &stored[i], &found[i], err);
    }
    if (status == FERRY_OK) {
        status = take_parts(folder, rank, store, found, err);
    }
    fy_free(found);
    ferry_store_destroy(store);
    return status;
}

static ferry_status_t open_ranks(ferry_folder_t *folder, ferry_error_t *err) {
    folder->kind = FERRY_FOLDER_RANKS;
    FY_TRY(blame(folder, fy_need_rules(folder, err), err));
    if (folder->nfiles == 0) {
        FY_TRY(room_for_files(folder, folder->nranks, err));
        for (uint32_t rank = 0; rank < folder->nranks; rank++) {
            char name[64];
            fy_rank_file(name, sizeof name, rank, folder->nranks);
            FY_TRY(open_file(folder, name, err));
        }
    }
    FY_TRY(sort_wholes(folder, err));
    fy_spread_t spread = spread_of(folder);
    FY_TRY(blame(folder, fy_place_wholes(&spread, &folder->set, err), err));
    size_t count = 0;
    const ferry_tensor_t *placed = ferry_tensor_set_tensors(folder->set, &count);
    folder->tensors = fy_arena_copy(&folder->arena, placed, count, sizeof *placed);
    folder->places = fy_arena_alloc(&folder->arena, folder->nranks, sizeof *folder->places);
    if (folder->tensors == NULL || folder->places == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    for (uint32_t rank = 0; rank < folder->nranks; rank++) {
        FY_TRY(take_rank(folder, rank, err));
    }
    return FERRY_OK;
}

void fy_rank_file(char *buf, size_t cap, uint32_t rank, uint32_t nranks) {
    (void)snprintf(buf, cap, "rank-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", rank, nranks);
}

/* --- opening ----------------------------------------------------------------------------------- */

ferry_status_t fy_need_rules(ferry_folder_t *folder, ferry_error_t *err) {
    if (folder->rules != NULL) {
        return FERRY_OK;
    }
    if (folder->rules_text[0] != '\0') {
        return ferry_rules_parse(folder->rules_text, folder->rules_name, &folder->rules, err);
    }
    if (folder->rules_name[0] != '\0') {
        return ferry_rules_builtin(folder->rules_name, &folder->rules, err);
    }
    if (folder->config.model_type[0] == '\0') {
        return fy_fail_file(err, FERRY_INVALID, 0, folder->path,
                            "no config.json tells the family of the model; give its rules");
    }
    FY_TRY(ferry_rules_for_type(folder->config.model_type, &folder->rules, err));
    folder->rules_name = ferry_rules_name(folder->rules);
    return FERRY_OK;
}

static bool has(const ferry_folder_t *folder, const char *name) {
    char path[PATH_MAX];
    struct stat info;
    int length = snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return length < (int)sizeof path && stat(path, &info) == 0;
}

/* Says what a folder is that ferry does not read. */
static ferry_status_t refuse(ferry_folder_t *folder, ferry_error_t *err) {
    if (has(folder, ".metadata")) {
        return fy_fail_file(err, FERRY_UNSUPPORTED, 0, folder->path,
                            "a torch distributed checkpoint; save it as safetensors first "
                            "(torch.distributed.checkpoint.format_utils.dcp_to_torch_save)");
    }
    if (has(folder, "metadata.json") || has(folder, "common.pt") ||
        has(folder, "latest_checkpointed_iteration.txt")) {
        return fy_fail_file(err, FERRY_UNSUPPORTED, 0, folder->path,
                            "a Megatron distributed checkpoint; export it to Hugging Face form "
                            "first");
    }
    return fy_fail_file(err, FERRY_INVALID, 0, folder->path,
                        "no checkpoint: neither %s, %s nor %s is there", FY_ONE_FILE, FY_INDEX_JSON,
                        FY_FERRY_JSON);
}

static ferry_status_t open_folder(ferry_folder_t *folder, const ferry_folder_params_t *params,
                                  ferry_error_t *err) {
    struct stat info;
    if (stat(folder->path, &info) != 0) {
        return fy_fail_file(err, FERRY_IO, errno, folder->path, "cannot be read");
    }
    if (!S_ISDIR(info.st_mode)) {
        return fy_fail_file(err, FERRY_INVALID, 0, folder->path, "is no folder");
    }
    uint32_t nranks = 0;
    FY_TRY(fy_read_ferry_json(folder, &nranks, err));
    if (nranks == 0) {
        FY_TRY(fy_read_config(folder, err));
    }
    if (params->rules != NULL) {
        folder->rules_name = fy_arena_string(&folder->arena, params->rules);
        folder->rules_text =
            fy_arena_string(&folder->arena, params->rules_text != NULL ? params->rules_text : "");
    }
    folder->flags |= params->flags;
    if (folder->rules_name == NULL || folder->rules_text == NULL ||
        folder->config.model_type == NULL) {
        return fy_fail_nomem(err, "a folder");
    }
    if (nranks > 0) {
        return open_ranks(folder, err);
    }
    if (params->parallel != NULL) {
        FY_TRY(fy_open_shards(folder, params->parallel, err));
        return open_ranks(folder, err);
    }
    return has(folder, FY_ONE_FILE) || has(folder, FY_INDEX_JSON) ? open_hf(folder, err)
                                                                  : refuse(folder, err);
}

ferry_status_t ferry_folder_open(const char *path, const ferry_folder_params_t *params,
                                 ferry_folder_t **folder_p, ferry_error_t *err) {
    FY_NEED(path, err);
    FY_NEED(folder_p, err);
    ferry_folder_params_t defaults = FERRY_FOLDER_PARAMS_INIT;
    params = params != NULL ? params : &defaults;
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID, "ferry_folder_params_t of %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    ferry_folder_t *folder = fy_alloc_zero(1, sizeof *folder);
    if (folder == NULL) {
        return fy_fail_nomem(err, "a folder");
    }
    static char none[] = "";
    folder->form = none;
    folder->rules_name = none;
    folder->rules_text = none;
    folder->config.model_type = none;
    folder->parallel = (ferry_parallel_t)FERRY_PARALLEL_INIT;
    folder->path = fy_arena_string(&folder->arena, path);
    ferry_status_t status =
        folder->path == NULL ? fy_fail_nomem(err, "a folder") : open_folder(folder, params, err);
    if (status == FERRY_OK && params->form != NULL && strcmp(params->form, folder->form) != 0) {
        status = fy_fail_file(err, FERRY_MISMATCH, 0, path, "its form is %s, not %s", folder->form,
                              params->form);
    }
    if (status != FERRY_OK) {
        ferry_folder_close(folder);
        return status;
    }
    *folder_p = folder;
    return FERRY_OK;
}

void ferry_folder_close(ferry_folder_t *folder) {
    if (folder == NULL) {
        return;
    }
    for (size_t i = 0; i < folder->nfiles; i++) {
        ferry_safetensors_close(folder->files[i]);
    }
    ferry_tensor_set_destroy(folder->set);
    ferry_layout_destroy(folder->one);
    ferry_rules_destroy(folder->rules);
    fy_free(folder->wholes.list);
    fy_free(folder->config.numbers);
    fy_arena_fini(&folder->arena);
    fy_free(folder);
}

/* --- asking ------------------------------------------------------------------------------------ */

const char *ferry_folder_path(const ferry_folder_t *folder) {
    return folder->path;
}

ferry_folder_kind_t ferry_folder_kind(const ferry_folder_t *folder) {
    return folder->kind;
}

const char *ferry_folder_form(const ferry_folder_t *folder) {
    return folder->form;
}

const char *ferry_folder_rules(const ferry_folder_t *folder) {
    return folder->rules_name;
}

const ferry_parallel_t *ferry_folder_parallel(const ferry_folder_t *folder) {
    return &folder->parallel;
}

uint32_t ferry_folder_nranks(const ferry_folder_t *folder) {
    return folder->nranks;
}

size_t ferry_folder_nfiles(const ferry_folder_t *folder) {
    return folder->nfiles;
}

const ferry_safetensors_t *ferry_folder_file(const ferry_folder_t *folder, size_t index) {
    return folder->files[index];
}

const ferry_tensor_t *ferry_folder_tensors(const ferry_folder_t *folder, size_t *count_p) {
    *count_p = folder->wholes.count;
    return folder->tensors;
}
