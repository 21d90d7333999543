/* safetensors.c - reading safetensors files.
 *
 * Invariants of an open file: its tensors are sorted by offset and lie one behind the other from the end of the
 * header to the end of the file; for a known dtype, bytes = elements x size. Names, dtypes and notes are strings
 * inside the header, which the JSON reader has decoded in place. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ckpt/files.h"
#include "ckpt/json.h"
#include "layout/layout.h"

struct ferry_safetensors {
    int fd;
    char *path;
    uint64_t size;
    uint64_t data_at; /* where the data begin */
    char *header;
    ferry_file_tensor_t *tensors;
    size_t count;
    size_t cap;
    ferry_file_note_t *notes;
    size_t nnotes;
    size_t notes_cap;
    fy_index_t names;
    _Atomic(uint8_t *) mapped; /* NULL until somebody asks */
};

/* --- dtypes ------------------------------------------------------------------------------------- */

static const struct {
    ferry_dtype_t dtype;
    const char *text;
} dtypes[] = {
    {FERRY_F64, "F64"},   {FERRY_F32, "F32"},        {FERRY_F16, "F16"},
    {FERRY_BF16, "BF16"}, {FERRY_F8E4M3, "F8_E4M3"}, {FERRY_F8E5M2, "F8_E5M2"},
    {FERRY_I64, "I64"},   {FERRY_E8M0, "F8_E8M0"},   {FERRY_I32, "I32"},
    {FERRY_I16, "I16"},   {FERRY_I8, "I8"},          {FERRY_U64, "U64"},
    {FERRY_U32, "U32"},   {FERRY_U16, "U16"},        {FERRY_U8, "U8"},
    {FERRY_BOOL, "BOOL"},
};

ferry_dtype_t ferry_safetensors_dtype(const char *text) {
    for (size_t i = 0; text != NULL && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].text, text) == 0) {
            return dtypes[i].dtype;
        }
    }
    return FERRY_DTYPE_NONE;
}

const char *ferry_safetensors_dtype_text(ferry_dtype_t dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].text;
        }
    }
    return NULL;
}

/* --- the header --------------------------------------------------------------------------------- */

/* What the entry of one tensor has told so far. */
typedef struct entry {
    ferry_file_tensor_t tensor;
    bool has_dtype;
    bool has_shape;
    bool has_offsets;
} entry_t;

static ferry_status_t read_shape(fy_json_t *json, ferry_file_tensor_t *tensor, ferry_error_t *err) {
    bool more = false;
    FY_TRY(fy_json_array(json, err));
    for (;;) {
        FY_TRY(fy_json_item(json, &more, err));
        if (!more) {
            return FERRY_OK;
        }
        uint64_t extent = 0;
        FY_TRY(fy_json_u64(json, &extent, err));
        if (tensor->ndim == FERRY_MAX_DIMS) {
            return fy_fail_file(err, FERRY_UNSUPPORTED, 0, json->path, "more than %d dims",
                                FERRY_MAX_DIMS);
        }
        tensor->shape[tensor->ndim++] = extent;
    }
}

/* [begin, end), from the end of the header on; kept as a place in the file. */
static ferry_status_t read_offsets(const ferry_safetensors_t *file, fy_json_t *json,
                                   ferry_file_tensor_t *tensor, ferry_error_t *err) {
    uint64_t ends[2] = {0, 0};
    bool more = false;
    FY_TRY(fy_json_array(json, err));
    for (size_t i = 0; i < 2; i++) {
        FY_TRY(fy_json_item(json, &more, err));
        if (!more) {
            return fy_json_fail(json, err, "data_offsets are two numbers");
        }
        FY_TRY(fy_json_u64(json, &ends[i], err));
    }
    FY_TRY(fy_json_item(json, &more, err));
    if (more) {
        return fy_json_fail(json, err, "data_offsets are two numbers");
    }
    if (ends[1] < ends[0]) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, json->path,
                            "data_offsets [%" PRIu64 ", %" PRIu64 "] end before they begin",
                            ends[0], ends[1]);
    }
    uint64_t there = file->size - file->data_at;
    if (ends[1] > there) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, json->path,
                            "data_offsets [%" PRIu64 ", %" PRIu64 "] go past the end of the file, "
                            "which has %" PRIu64 " bytes of data: truncated?",
                            ends[0], ends[1], there);
    }
    tensor->offset = file->data_at + ends[0];
    tensor->bytes = ends[1] - ends[0];
    return FERRY_OK;
}

static ferry_status_t read_field(const ferry_safetensors_t *file, fy_json_t *json, const char *key,
                                 entry_t *entry, ferry_error_t *err) {
    if (strcmp(key, "dtype") == 0) {
        entry->has_dtype = true;
        FY_TRY(fy_json_string(json, &entry->tensor.dtype_text, err));
        entry->tensor.dtype = ferry_safetensors_dtype(entry->tensor.dtype_text);
        return FERRY_OK;
    }
    if (strcmp(key, "shape") == 0) {
        entry->has_shape = true;
        return read_shape(json, &entry->tensor, err);
    }
    if (strcmp(key, "data_offsets") == 0) {
        entry->has_offsets = true;
        return read_offsets(file, json, &entry->tensor, err);
    }
    return fy_json_skip(json, err); /* as other readers do */
}

/* The shape against the bytes, as far as the dtype is known. */
static ferry_status_t check_bytes(const ferry_safetensors_t *file,
                                  const ferry_file_tensor_t *tensor, ferry_error_t *err) {
    uint64_t elements = 0;
    uint64_t bytes = 0;
    if (fy_shape_elements(tensor->ndim, tensor->shape, &elements, NULL) != FERRY_OK ||
        (tensor->dtype != FERRY_DTYPE_NONE &&
         ferry_dtype_bytes(tensor->dtype, elements, &bytes, NULL) != FERRY_OK)) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path, "its shape passes 64 bits");
    }
    if (tensor->dtype != FERRY_DTYPE_NONE && bytes != tensor->bytes) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                            "%" PRIu64 " elements of %s take %" PRIu64
                            " bytes, and data_offsets give %" PRIu64,
                            elements, tensor->dtype_text, bytes, tensor->bytes);
    }
    return FERRY_OK;
}

static ferry_status_t read_entry(ferry_safetensors_t *file, fy_json_t *json, const char *name,
                                 ferry_error_t *err) {
    entry_t entry = {.tensor = {.name = name}};
    const char *key = NULL;
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            break;
        }
        FY_TRY(read_field(file, json, key, &entry, err));
    }
    if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
        return fy_json_fail(json, err, "a tensor without %s",
                            !entry.has_dtype   ? "dtype"
                            : !entry.has_shape ? "shape"
                                               : "data_offsets");
    }
    FY_TRY(check_bytes(file, &entry.tensor, err));
    if (file->count >= FY_INDEX_NONE - 1) {
        return fy_fail_file(err, FERRY_OVERFLOW, 0, file->path, "too many tensors");
    }
    if (!fy_reserve(&file->tensors, &file->cap, file->count + 1, sizeof *file->tensors)) {
        return fy_fail_nomem(err, "the tensors of a file");
    }
    file->tensors[file->count++] = entry.tensor;
    return FERRY_OK;
}

static ferry_status_t read_notes(ferry_safetensors_t *file, fy_json_t *json, ferry_error_t *err) {
    ferry_file_note_t note = {NULL, NULL};
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        FY_TRY(fy_json_key(json, &note.key, err));
        if (note.key == NULL) {
            return FERRY_OK;
        }
        FY_TRY(fy_json_string(json, &note.value, err));
        if (!fy_reserve(&file->notes, &file->notes_cap, file->nnotes + 1, sizeof *file->notes)) {
            return fy_fail_nomem(err, "the metadata of a file");
        }
        file->notes[file->nnotes++] = note;
    }
}

static ferry_status_t read_entries(ferry_safetensors_t *file, fy_json_t *json, ferry_error_t *err) {
    const char *key = NULL;
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            return fy_json_end(json, err);
        }
        ferry_status_t status = FERRY_OK;
        if (strcmp(key, FY_SAFETENSORS_METADATA) == 0) {
            status = read_notes(file, json, err);
        } else {
            status = read_entry(file, json, key, err);
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, key);
            return status;
        }
    }
}

/* --- the whole ---------------------------------------------------------------------------------- */

/* By offset; of those without bytes, in the order of the header, where the names lie. */
static int by_offset(const void *a, const void *b) {
    const ferry_file_tensor_t *x = a;
    const ferry_file_tensor_t *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return x->name < y->name ? -1 : x->name > y->name;
}

/* The format allows no gaps, so that nothing can hide in a file, and no overlaps. */
static ferry_status_t check_cover(const ferry_safetensors_t *file, ferry_error_t *err) {
    uint64_t at = file->data_at;
    for (size_t i = 0; i < file->count; i++) {
        const ferry_file_tensor_t *tensor = &file->tensors[i];
        if (tensor->offset != at) {
            bool gap = tensor->offset > at;
            (void)fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                               gap ? "the %" PRIu64 " bytes before it belong to no tensor"
                                   : "its first %" PRIu64 " bytes belong to another tensor too",
                               gap ? tensor->offset - at : at - tensor->offset);
            fy_error_tensor(err, tensor->name);
            return FERRY_CORRUPT;
        }
        at += tensor->bytes;
    }
    if (at != file->size) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                            "the last %" PRIu64 " bytes belong to no tensor", file->size - at);
    }
    return FERRY_OK;
}

static ferry_status_t index_names(ferry_safetensors_t *file, ferry_error_t *err) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        if (!fy_index_add(&file->names, fy_hash_bytes(name, strlen(name)), (uint32_t)i)) {
            return fy_fail_nomem(err, "the names of a file's tensors");
        }
    }
    return FERRY_OK;
}

/* Opens a regular file and nothing that could make us wait. */
static ferry_status_t open_file(ferry_safetensors_t *file, ferry_error_t *err) {
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        return fy_fail_file(err, FERRY_IO, errno, file->path, "cannot open");
    }
    if (!S_ISREG(info.st_mode)) {
        return fy_fail_file(err, FERRY_IO, 0, file->path, "is no regular file");
    }
    file->size = (uint64_t)info.st_size;
    return FERRY_OK;
}

static ferry_status_t load_header(ferry_safetensors_t *file, size_t *length_p, ferry_error_t *err) {
    uint8_t first[8];
    if (file->size < sizeof first) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                            "%" PRIu64 " bytes are no safetensors file", file->size);
    }
    FY_TRY(fy_file_read(file->fd, file->path, 0, first, sizeof first, err));
    uint64_t length = fy_fixed64(first);
    if (length > FERRY_SAFETENSORS_HEADER_MAX) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                            "a header of %" PRIu64
                            " bytes: more than the format allows, or no safetensors file",
                            length);
    }
    if (length > file->size - sizeof first) {
        return fy_fail_file(err, FERRY_CORRUPT, 0, file->path,
                            "a header of %" PRIu64 " bytes in a file of %" PRIu64 ": truncated?",
                            length, file->size);
    }
    file->data_at = sizeof first + length;
    file->header = fy_alloc((size_t)length, 1);
    if (file->header == NULL) {
        return fy_fail_nomem(err, "the header of a file");
    }
    FY_TRY(fy_file_read(file->fd, file->path, sizeof first, file->header, (size_t)length, err));
    if (length == 0 || file->header[0] != '{') {
        return fy_fail_file(err, FERRY_PARSE, 0, file->path, "the header does not begin with '{'");
    }
    *length_p = (size_t)length;
    return FERRY_OK;
}

static ferry_status_t load(ferry_safetensors_t *file, ferry_error_t *err) {
    size_t length = 0;
    fy_json_t json;
    FY_TRY(open_file(file, err));
    FY_TRY(load_header(file, &length, err));
    fy_json_init(&json, file->path, file->header, length);
    ferry_status_t status = read_entries(file, &json, err);
    fy_json_fini(&json);
    FY_TRY(status);
    if (file->count > 1) {
        qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    }
    FY_TRY(check_cover(file, err));
    return index_names(file, err);
}

ferry_status_t ferry_safetensors_open(const char *path, ferry_safetensors_t **file_p,
                                      ferry_error_t *err) {
    FY_NEED(path, err);
    FY_NEED(file_p, err);
    ferry_safetensors_t *file = fy_alloc_zero(1, sizeof *file);
    if (file == NULL) {
        return fy_fail_nomem(err, "a safetensors file");
    }
    file->fd = -1;
    file->path = fy_alloc(strlen(path) + 1, 1);
    ferry_status_t status = FERRY_OK;
    if (file->path == NULL) {
        status = fy_fail_nomem(err, "a file name");
    } else {
        memcpy(file->path, path, strlen(path) + 1);
        status = load(file, err);
    }
    if (status != FERRY_OK) {
        ferry_safetensors_close(file);
        return status;
    }
    *file_p = file;
    return FERRY_OK;
}

void ferry_safetensors_close(ferry_safetensors_t *file) {
    if (file == NULL) {
        return;
    }
    uint8_t *mapped = atomic_load(&file->mapped);
    if (mapped != NULL) {
        (void)munmap(mapped, (size_t)file->size);
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    fy_index_fini(&file->names);
    fy_free(file->notes);
    fy_free(file->tensors);
    fy_free(file->header);
    fy_free(file->path);
    fy_free(file);
}

/* --- asking ------------------------------------------------------------------------------------- */

const char *ferry_safetensors_path(const ferry_safetensors_t *file) {
    return file->path;
}

const ferry_file_tensor_t *ferry_safetensors_tensors(const ferry_safetensors_t *file,
                                                     size_t *count_p) {
    *count_p = file->count;
    return file->tensors;
}

typedef struct sought {
    const ferry_safetensors_t *file;
    const char *name;
} sought_t;

static bool same_name(const void *context, uint32_t id) {
    const sought_t *sought = context;
    return strcmp(sought->file->tensors[id].name, sought->name) == 0;
}

const ferry_file_tensor_t *ferry_safetensors_find(const ferry_safetensors_t *file,
                                                  const char *name) {
    sought_t sought = {file, name};
    uint32_t id =
        fy_index_find(&file->names, fy_hash_bytes(name, strlen(name)), same_name, &sought);
    return id == FY_INDEX_NONE ? NULL : &file->tensors[id];
}

const ferry_file_note_t *ferry_safetensors_notes(const ferry_safetensors_t *file, size_t *count_p) {
    *count_p = file->nnotes;
    return file->notes;
}

const char *ferry_safetensors_note(const ferry_safetensors_t *file, const char *key) {
    for (size_t i = 0; i < file->nnotes; i++) {
        if (strcmp(file->notes[i].key, key) == 0) {
            return file->notes[i].value;
        }
    }
    return NULL;
}

ferry_status_t ferry_safetensors_read(const ferry_safetensors_t *file, uint64_t offset,
                                      void *target, size_t bytes, ferry_error_t *err) {
    FY_NEED(file, err);
    FY_NEED_ARRAY(target, bytes, err);
    if (offset > file->size || bytes > file->size - offset) {
        return fy_fail_file(err, FERRY_INVALID, 0, file->path,
                            "%zu bytes at byte %" PRIu64 " of a file of %" PRIu64, bytes, offset,
                            file->size);
    }
    return fy_file_read(file->fd, file->path, offset, target, bytes, err);
}

ferry_status_t ferry_safetensors_map(ferry_safetensors_t *file, const uint8_t **bytes_p,
                                     ferry_error_t *err) {
    FY_NEED(file, err);
    FY_NEED(bytes_p, err);
    uint8_t *mapped = atomic_load(&file->mapped);
    if (mapped == NULL) {
        uint8_t *fresh = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->fd, 0);
        if (fresh == MAP_FAILED) {
            return fy_fail_file(err, FERRY_IO, errno, file->path, "cannot map %" PRIu64 " bytes",
                                file->size);
        }
        /* Of threads that come at once, the first to get here gives the mapping. */
        if (atomic_compare_exchange_strong(&file->mapped, &mapped, fresh)) {
            mapped = fresh;
        } else {
            (void)munmap(fresh, (size_t)file->size);
        }
    }
    *bytes_p = mapped;
    return FERRY_OK;
}
