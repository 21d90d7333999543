/* config.c - config.json, the index of a Hugging Face folder, ferry.json. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/hash.h"
#include "ckpt/files.h"
#include "ckpt/folder.h"
#include "ckpt/json.h"

#define TEXT_MAX (UINT64_C(256) << 20) /* bytes of a JSON file */

const char *fy_path_join(fy_arena_t *arena, const char *folder, const char *name) {
    size_t length = strlen(folder) + strlen(name) + 2;
    char *path = fy_arena_alloc(arena, length, 1);
    if (path != NULL) {
        (void)snprintf(path, length, "%s/%s", folder, name);
    }
    return path;
}

ferry_status_t fy_read_text(ferry_folder_t *folder, const char *name, char **text_p,
                            size_t *length_p, ferry_error_t *err) {
    *text_p = NULL;
    *length_p = 0;
    const char *path = fy_path_join(&folder->arena, folder->path, name);
    if (path == NULL) {
        return fy_fail_nomem(err, "the path of a file");
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? FERRY_OK
                               : fy_fail_file(err, FERRY_IO, errno, path, "cannot be opened");
    }
    struct stat info;
    ferry_status_t status = FERRY_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > TEXT_MAX) {
        status = fy_fail_file(err, FERRY_CORRUPT, 0, path, "is no file of JSON text");
    }
    if (status == FERRY_OK) {
        *length_p = (size_t)info.st_size;
        *text_p = fy_arena_alloc(&folder->arena, *length_p + 1, 1);
        status = *text_p == NULL ? fy_fail_nomem(err, "a file of JSON text")
                                 : fy_file_read(fd, path, 0, *text_p, *length_p, err);
    }
    (void)close(fd);
    return status;
}

/* A reader of a file below the folder. */
static ferry_status_t open_json(ferry_folder_t *folder, const char *name, fy_json_t *json,
                                bool *there_p, ferry_error_t *err) {
    char *text = NULL;
    size_t length = 0;
    FY_TRY(fy_read_text(folder, name, &text, &length, err));
    *there_p = text != NULL;
    if (text != NULL) {
        const char *path = fy_path_join(&folder->arena, folder->path, name);
        fy_json_init(json, path != NULL ? path : name, text, length);
    }
    return FERRY_OK;
}

/* --- config.json ------------------------------------------------------------------------------- */

static ferry_status_t add_number(ferry_folder_t *folder, const char *key, uint64_t value,
                                 ferry_error_t *err) {
    fy_config_t *config = &folder->config;
    if (!fy_reserve(&config->numbers, &config->cap, config->count + 1, sizeof *config->numbers)) {
        return fy_fail_nomem(err, "the numbers of a config");
    }
    char *kept = fy_arena_string(&folder->arena, key);
    config->numbers[config->count++] = (ferry_config_number_t){kept, value};
    return kept == NULL ? fy_fail_nomem(err, "the numbers of a config") : FERRY_OK;
}

/* Whole numbers and booleans of an object, nested ones with their path; everything else is skipped. */
static ferry_status_t read_numbers(ferry_folder_t *folder, fy_json_t *json, const char *prefix,
                                   ferry_error_t *err) {
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        const char *key = NULL;
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            return FERRY_OK;
        }
        char full[256];
        int length =
            snprintf(full, sizeof full, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        fy_json_type_t type = FY_JSON_NULL;
        FY_TRY(fy_json_peek(json, &type, err));
        if (length >= (int)sizeof full) { /* no rule asks for such a key */
            FY_TRY(fy_json_skip(json, err));
        } else if (type == FY_JSON_NUMBER) {
            uint64_t value = 0;
            bool whole = false;
            FY_TRY(fy_json_number(json, &value, &whole, err));
            FY_TRY(whole ? add_number(folder, full, value, err) : FERRY_OK);
        } else if (type == FY_JSON_BOOL) {
            bool value = false;
            FY_TRY(fy_json_bool(json, &value, err));
            FY_TRY(add_number(folder, full, value ? 1 : 0, err));
        } else if (type == FY_JSON_STRING && strcmp(full, "model_type") == 0) {
            const char *text = NULL;
            FY_TRY(fy_json_string(json, &text, err));
            folder->config.model_type = fy_arena_string(&folder->arena, text);
        } else if (type == FY_JSON_OBJECT) {
            FY_TRY(read_numbers(folder, json, full, err));
        } else {
            FY_TRY(fy_json_skip(json, err));
        }
    }
}

ferry_status_t fy_read_config(ferry_folder_t *folder, ferry_error_t *err) {
    fy_json_t json;
    bool there = false;
    FY_TRY(open_json(folder, FY_CONFIG_JSON, &json, &there, err));
    if (!there) {
        return FERRY_OK;
    }
    ferry_status_t status = read_numbers(folder, &json, "", err);
    if (status == FERRY_OK) {
        status = fy_json_end(&json, err);
    }
    fy_json_fini(&json);
    return status;
}

/* --- the index --------------------------------------------------------------------------------- */

typedef struct index_reader {
    ferry_folder_t *folder;
    fy_json_t json;
    fy_index_map_t map;
    size_t names_cap;
    size_t in_cap;
    size_t files_cap;
    fy_index_t files;
} index_reader_t;

static bool same_file(const void *context, uint32_t id) {
    const index_reader_t *reader = context;
    return strcmp(reader->map.files[id], reader->map.files[reader->map.nfiles]) == 0;
}

/* The number of a file, new or not. A name that leaves the folder is refused. */
static ferry_status_t number_of(index_reader_t *reader, const char *file, uint32_t *id_p,
                                ferry_error_t *err) {
    if (file[0] == '\0' || strchr(file, '/') != NULL || strcmp(file, "..") == 0) {
        return fy_json_fail(&reader->json, err, "\"%.100s\" is no file of this folder", file);
    }
    fy_index_map_t *map = &reader->map;
    if (!fy_reserve(&map->files, &reader->files_cap, map->nfiles + 1, sizeof *map->files)) {
        return fy_fail_nomem(err, "the index of a folder");
    }
    map->files[map->nfiles] = file; /* for same_file, and to stay if it is new */
    uint64_t hash = fy_hash_bytes(file, strlen(file));
    *id_p = fy_index_find(&reader->files, hash, same_file, reader);
    if (*id_p != FY_INDEX_NONE) {
        return FERRY_OK;
    }
    *id_p = (uint32_t)map->nfiles++;
    return fy_index_add(&reader->files, hash, *id_p) ? FERRY_OK
                                                     : fy_fail_nomem(err, "the index of a folder");
}

static ferry_status_t read_weight_map(index_reader_t *reader, ferry_error_t *err) {
    fy_index_map_t *map = &reader->map;
    FY_TRY(fy_json_object(&reader->json, err));
    for (;;) {
        const char *name = NULL;
        const char *file = NULL;
        uint32_t id = 0;
        FY_TRY(fy_json_key(&reader->json, &name, err));
        if (name == NULL) {
            return FERRY_OK;
        }
        FY_TRY(fy_json_string(&reader->json, &file, err));
        FY_TRY(number_of(reader, file, &id, err));
        if (!fy_reserve(&map->names, &reader->names_cap, map->count + 1, sizeof *map->names) ||
            !fy_reserve(&map->in, &reader->in_cap, map->count + 1, sizeof *map->in)) {
            return fy_fail_nomem(err, "the index of a folder");
        }
        map->names[map->count] = name;
        map->in[map->count++] = id;
    }
}

static ferry_status_t read_index(index_reader_t *reader, ferry_error_t *err) {
    bool found = false;
    FY_TRY(fy_json_object(&reader->json, err));
    for (;;) {
        const char *key = NULL;
        FY_TRY(fy_json_key(&reader->json, &key, err));
        if (key == NULL) {
            break;
        }
        if (strcmp(key, "weight_map") == 0) {
            found = true;
            FY_TRY(read_weight_map(reader, err));
        } else {
            FY_TRY(fy_json_skip(&reader->json, err));
        }
    }
    FY_TRY(fy_json_end(&reader->json, err));
    if (!found) {
        return fy_json_fail(&reader->json, err, "there is no weight_map");
    }
    return reader->map.count > 0 ? FERRY_OK
                                 : fy_json_fail(&reader->json, err, "the index names no tensor");
}

ferry_status_t fy_read_index(ferry_folder_t *folder, fy_index_map_t *map_p, ferry_error_t *err) {
    index_reader_t reader = {.folder = folder};
    bool there = false;
    FY_TRY(open_json(folder, FY_INDEX_JSON, &reader.json, &there, err));
    ferry_status_t status = there ? read_index(&reader, err) : FERRY_OK;
    if (there) {
        fy_json_fini(&reader.json);
    }
    fy_index_fini(&reader.files);
    *map_p = reader.map; /* the caller frees the arrays */
    return status;
}

/* --- ferry.json -------------------------------------------------------------------------------- */

void fy_parallel_text(const ferry_parallel_t *parallel, char *buf, size_t cap) {
    (void)snprintf(buf, cap,
                   "tp=%" PRIu32 ",cp=%" PRIu32 ",pp=%" PRIu32 ",dp=%" PRIu32 ",ep=%" PRIu32
                   ",etp=%" PRIu32 "%s%s",
                   parallel->tp, parallel->cp, parallel->pp, parallel->dp, parallel->ep,
                   parallel->etp, parallel->order[0] != '\0' ? ",order=" : "", parallel->order);
}

static ferry_status_t read_shape(fy_json_t *json, uint32_t *ndim_p, uint64_t *shape,
                                 ferry_error_t *err) {
    bool more = false;
    *ndim_p = 0;
    FY_TRY(fy_json_array(json, err));
    FY_TRY(fy_json_item(json, &more, err));
    while (more) {
        if (*ndim_p == FERRY_MAX_DIMS) {
            return fy_json_fail(json, err, "a shape has more than %d dims", FERRY_MAX_DIMS);
        }
        FY_TRY(fy_json_u64(json, &shape[(*ndim_p)++], err));
        FY_TRY(fy_json_item(json, &more, err));
    }
    return FERRY_OK;
}

static ferry_status_t read_tensor(ferry_folder_t *folder, fy_json_t *json, ferry_error_t *err) {
    const char *name = NULL;
    const char *dtype = NULL;
    uint32_t ndim = 0;
    uint64_t shape[FERRY_MAX_DIMS];
    uint64_t bytes = 0;
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        const char *key = NULL;
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            break;
        }
        FY_TRY(strcmp(key, "name") == 0    ? fy_json_string(json, &name, err)
               : strcmp(key, "dtype") == 0 ? fy_json_string(json, &dtype, err)
               : strcmp(key, "bytes") == 0 ? fy_json_u64(json, &bytes, err)
               : strcmp(key, "shape") == 0 ? read_shape(json, &ndim, shape, err)
                                           : fy_json_skip(json, err));
    }
    if (name == NULL || dtype == NULL) {
        return fy_json_fail(json, err, "a tensor lacks its name or dtype");
    }
    return fy_add_whole(&folder->wholes, &folder->arena, name, dtype, ndim, shape, bytes, err);
}

static ferry_status_t read_tensors(ferry_folder_t *folder, fy_json_t *json, ferry_error_t *err) {
    bool more = false;
    FY_TRY(fy_json_array(json, err));
    FY_TRY(fy_json_item(json, &more, err));
    while (more) {
        FY_TRY(read_tensor(folder, json, err));
        FY_TRY(fy_json_item(json, &more, err));
    }
    return FERRY_OK;
}

/* What is read of ferry.json before it is believed. */
typedef struct claims {
    const char *format;
    uint64_t version;
    const char *parallel;
    const char *unmatched; /* "replicate", or NULL */
    uint64_t ranks;
} claims_t;

static ferry_status_t read_field(ferry_folder_t *folder, fy_json_t *json, const char *key,
                                 claims_t *claims, ferry_error_t *err) {
    if (strcmp(key, "format") == 0) {
        return fy_json_string(json, &claims->format, err);
    }
    if (strcmp(key, "version") == 0) {
        return fy_json_u64(json, &claims->version, err);
    }
    if (strcmp(key, "parallel") == 0) {
        return fy_json_string(json, &claims->parallel, err);
    }
    if (strcmp(key, "unmatched") == 0) {
        return fy_json_string(json, &claims->unmatched, err);
    }
    if (strcmp(key, "ranks") == 0) {
        return fy_json_u64(json, &claims->ranks, err);
    }
    if (strcmp(key, "form") == 0) {
        return fy_json_string(json, &folder->form, err);
    }
    if (strcmp(key, "rules") == 0) {
        return fy_json_string(json, &folder->rules_name, err);
    }
    if (strcmp(key, "rules_text") == 0) {
        return fy_json_string(json, &folder->rules_text, err);
    }
    if (strcmp(key, "config") == 0) {
        return read_numbers(folder, json, "", err);
    }
    return strcmp(key, "tensors") == 0 ? read_tensors(folder, json, err) : fy_json_skip(json, err);
}

static ferry_status_t read_claims(ferry_folder_t *folder, fy_json_t *json, claims_t *claims,
                                  ferry_error_t *err) {
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        const char *key = NULL;
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            break;
        }
        FY_TRY(read_field(folder, json, key, claims, err));
    }
    FY_TRY(fy_json_end(json, err));
    if (claims->format == NULL || strcmp(claims->format, "ferry-ranks") != 0) {
        return fy_json_fail(json, err, "it is no folder of rank files");
    }
    if (claims->version != FY_FOLDER_VERSION) {
        return fy_fail(err, FERRY_VERSION, "%s: version %" PRIu64 "; this is version %d",
                       json->path, claims->version, FY_FOLDER_VERSION);
    }
    if (claims->parallel == NULL) {
        return fy_json_fail(json, err, "there is no parallel spec");
    }
    ferry_error_t why = FERRY_ERROR_INIT;
    if (ferry_parallel_parse(claims->parallel, &folder->parallel, &why) != FERRY_OK ||
        ferry_parallel_world(&folder->parallel, &folder->nranks, &why) != FERRY_OK) {
        return fy_json_fail(json, err, "parallel: %.200s", why.text);
    }
    if (folder->nranks != claims->ranks) {
        return fy_json_fail(json, err, "%" PRIu64 " ranks, and %s makes %" PRIu32, claims->ranks,
                            claims->parallel, folder->nranks);
    }
    if (claims->unmatched != NULL && strcmp(claims->unmatched, "replicate") == 0) {
        folder->flags |= FERRY_RULES_REPLICATE;
    }
    return FERRY_OK;
}

ferry_status_t fy_read_ferry_json(ferry_folder_t *folder, uint32_t *nfiles_p, ferry_error_t *err) {
    fy_json_t json;
    bool there = false;
    *nfiles_p = 0;
    FY_TRY(open_json(folder, FY_FERRY_JSON, &json, &there, err));
    if (!there) {
        return FERRY_OK;
    }
    claims_t claims = {0};
    ferry_status_t status = read_claims(folder, &json, &claims, err);
    fy_json_fini(&json);
    *nfiles_p = folder->nranks;
    return status;
}
