/* safetensors_write.c - writing safetensors files.
 *
 * Invariant: until the commit, only the file with the name path + ".part" exists, and it is at its full size; a writer
 * that goes away without a commit takes it along. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ckpt/files.h"
#include "ckpt/json.h"
#include "layout/layout.h"

struct ferry_safetensors_writer {
    int fd;
    char *path;
    char *part;
    bool made; /* `part` is there, and ours */
    size_t count;
    uint64_t *offsets; /* count + 1 */
};

/* --- checks ------------------------------------------------------------------------------------- */

typedef struct sought {
    const char *base; /* of the first of the names, which lie `stride` bytes apart */
    size_t stride;
    const char *name;
} sought_t;

static const char *name_at(const void *base, size_t stride, size_t i) {
    const char *name = NULL;
    memcpy(&name, (const char *)base + i * stride, sizeof name);
    return name;
}

static bool same_name(const void *context, uint32_t id) {
    const sought_t *sought = context;
    return strcmp(name_at(sought->base, sought->stride, id), sought->name) == 0;
}

static ferry_status_t check_name(fy_index_t *index, const void *base, size_t stride, size_t i,
                                 const char *what, ferry_error_t *err) {
    const char *name = name_at(base, stride, i);
    if (name == NULL) {
        return fy_fail(err, FERRY_INVALID, "%s %zu has no name", what, i);
    }
    if (!fy_utf8_valid(name)) {
        return fy_fail(err, FERRY_INVALID, "the name of %s %zu is not UTF-8", what, i);
    }
    uint64_t hash = fy_hash_bytes(name, strlen(name));
    sought_t sought = {base, stride, name};
    if (fy_index_find(index, hash, same_name, &sought) != FY_INDEX_NONE) {
        return fy_fail(err, FERRY_INVALID, "two %ss of one name, '%.80s'", what, name);
    }
    if (!fy_index_add(index, hash, (uint32_t)i)) {
        return fy_fail_nomem(err, "the names of a file");
    }
    return FERRY_OK;
}

/* Names, of tensors or of notes: the first field of each entry. */
static ferry_status_t check_names(const void *base, size_t stride, size_t count, const char *what,
                                  ferry_error_t *err) {
    if (count >= FY_INDEX_NONE) {
        return fy_fail(err, FERRY_OVERFLOW, "%zu %ss are too many", count, what);
    }
    fy_index_t index = {NULL, NULL, 0, 0};
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        status = check_name(&index, base, stride, i, what, err);
    }
    fy_index_fini(&index);
    return status;
}

static ferry_status_t tensor_bytes(const ferry_new_tensor_t *tensor, uint64_t *bytes_p,
                                   ferry_error_t *err) {
    if (strcmp(tensor->name, FY_SAFETENSORS_METADATA) == 0) {
        return fy_fail(err, FERRY_INVALID, "a tensor cannot have this name");
    }
    if (tensor->ndim > FERRY_MAX_DIMS) {
        return fy_fail(err, FERRY_UNSUPPORTED, "more than %d dims", FERRY_MAX_DIMS);
    }
    FY_NEED_ARRAY(tensor->shape, tensor->ndim, err);
    uint64_t elements = 0;
    FY_TRY(fy_shape_elements(tensor->ndim, tensor->shape, &elements, err));
    if (tensor->dtype != FERRY_DTYPE_NONE) {
        return ferry_dtype_bytes(tensor->dtype, elements, bytes_p, err);
    }
    if (tensor->dtype_text == NULL || !fy_utf8_valid(tensor->dtype_text)) {
        return fy_fail(err, FERRY_INVALID, "neither a dtype nor the text of one");
    }
    if (ferry_safetensors_dtype(tensor->dtype_text) != FERRY_DTYPE_NONE) {
        return fy_fail(err, FERRY_INVALID, "%s is known: give it as dtype, not as text",
                       tensor->dtype_text);
    }
    *bytes_p = tensor->bytes;
    return FERRY_OK;
}

/* --- the header --------------------------------------------------------------------------------- */

static void write_text(fy_writer_t *writer, const char *text) {
    fy_write_bytes(writer, text, strlen(text));
}

static void write_number(fy_writer_t *writer, uint64_t value) {
    char text[24];
    fy_write_bytes(writer, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

static void write_notes(fy_writer_t *writer, const ferry_file_note_t *notes, size_t nnotes) {
    write_text(writer, "\"" FY_SAFETENSORS_METADATA "\":{");
    for (size_t i = 0; i < nnotes; i++) {
        write_text(writer, i > 0 ? "," : "");
        fy_json_write_string(writer, notes[i].key);
        write_text(writer, ":");
        fy_json_write_string(writer, notes[i].value);
    }
    write_text(writer, "}");
}

static void write_entry(fy_writer_t *writer, const ferry_new_tensor_t *tensor, uint64_t begin,
                        uint64_t end) {
    const char *dtype = tensor->dtype != FERRY_DTYPE_NONE
                            ? ferry_safetensors_dtype_text(tensor->dtype)
                            : tensor->dtype_text;
    fy_json_write_string(writer, tensor->name);
    write_text(writer, ":{\"dtype\":");
    fy_json_write_string(writer, dtype);
    write_text(writer, ",\"shape\":[");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        write_text(writer, d > 0 ? "," : "");
        write_number(writer, tensor->shape[d]);
    }
    write_text(writer, "],\"data_offsets\":[");
    write_number(writer, begin);
    write_text(writer, ",");
    write_number(writer, end);
    write_text(writer, "]}");
}

/* Blanks up to where the data start, and the length into the first eight bytes. */
static ferry_status_t close_header(const char *path, fy_writer_t *writer, ferry_error_t *err) {
    while (!writer->failed && writer->length % FY_SAFETENSORS_ALIGN != 0) {
        write_text(writer, " ");
    }
    if (writer->failed) {
        return fy_fail_nomem(err, "the header of a file");
    }
    uint64_t length = writer->length - 8;
    if (length > FERRY_SAFETENSORS_HEADER_MAX) {
        return fy_fail_file(err, FERRY_OVERFLOW, 0, path,
                            "a header of %" PRIu64 " bytes: the format allows %" PRIu64, length,
                            (uint64_t)FERRY_SAFETENSORS_HEADER_MAX);
    }
    for (int i = 0; i < 8; i++) {
        writer->bytes[i] = (uint8_t)(length >> (8 * i));
    }
    return FERRY_OK;
}

ferry_status_t fy_safetensors_layout(const char *path, const ferry_new_tensor_t *tensors,
                                     size_t count, const ferry_file_note_t *notes, size_t nnotes,
                                     fy_writer_t *writer, uint64_t *offsets, ferry_error_t *err) {
    FY_TRY(check_names(tensors, sizeof *tensors, count, "tensor", err));
    FY_TRY(check_names(notes, sizeof *notes, nnotes, "note", err));
    for (size_t i = 0; i < nnotes; i++) {
        if (notes[i].value == NULL || !fy_utf8_valid(notes[i].value)) {
            return fy_fail(err, FERRY_INVALID, "the value of note '%.80s' is %s", notes[i].key,
                           notes[i].value == NULL ? "NULL" : "not UTF-8");
        }
    }
    fy_write_fixed64(writer, 0); /* the length, once it is known */
    write_text(writer, "{");
    if (nnotes > 0) {
        write_notes(writer, notes, nnotes);
    }
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        ferry_status_t status = tensor_bytes(&tensors[i], &bytes, err);
        offsets[i] = at;
        if (status == FERRY_OK && !fy_add_u64(at, bytes, &at)) {
            status = fy_fail_file(err, FERRY_OVERFLOW, 0, path, "the file passes 64 bits");
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, tensors[i].name);
            return status;
        }
        write_text(writer, i > 0 || nnotes > 0 ? "," : "");
        write_entry(writer, &tensors[i], offsets[i], at);
    }
    offsets[count] = at;
    write_text(writer, "}");
    FY_TRY(close_header(path, writer, err));
    if (!fy_add_u64(offsets[count], writer->length, &at)) {
        return fy_fail_file(err, FERRY_OVERFLOW, 0, path, "the file passes 64 bits");
    }
    for (size_t i = 0; i <= count; i++) {
        offsets[i] += writer->length;
    }
    return FERRY_OK;
}

/* --- the file ----------------------------------------------------------------------------------- */

static ferry_status_t set_paths(ferry_safetensors_writer_t *writer, const char *path, size_t count,
                                ferry_error_t *err) {
    static const char ending[] = ".part";
    size_t length = strlen(path);
    writer->count = count;
    writer->path = fy_alloc(length + 1, 1);
    writer->part = fy_alloc(length + sizeof ending, 1);
    writer->offsets = fy_alloc(count + 1, sizeof *writer->offsets);
    if (writer->path == NULL || writer->part == NULL || writer->offsets == NULL) {
        return fy_fail_nomem(err, "a file to be written");
    }
    memcpy(writer->path, path, length + 1);
    memcpy(writer->part, path, length);
    memcpy(writer->part + length, ending, sizeof ending);
    return FERRY_OK;
}

/* What an earlier run left goes first: whoever may still be writing to it writes to a file without a name. */
static ferry_status_t open_part(ferry_safetensors_writer_t *writer, ferry_error_t *err) {
    if (unlink(writer->part) != 0 && errno != ENOENT) {
        return fy_fail_file(err, FERRY_IO, errno, writer->part, "cannot replace");
    }
    writer->fd = open(writer->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        return fy_fail_file(err, FERRY_IO, errno, writer->part, "cannot make");
    }
    writer->made = true;
    return FERRY_OK;
}

static ferry_status_t start(ferry_safetensors_writer_t *writer, const fy_writer_t *header,
                            ferry_error_t *err) {
    FY_TRY(open_part(writer, err));
    FY_TRY(fy_file_reserve(writer->fd, writer->part, writer->offsets[writer->count], err));
    return fy_file_write(writer->fd, writer->part, 0, header->bytes, header->length, err);
}

ferry_status_t ferry_safetensors_create(const char *path, const ferry_new_tensor_t *tensors,
                                        size_t count, const ferry_file_note_t *notes, size_t nnotes,
                                        ferry_safetensors_writer_t **writer_p, ferry_error_t *err) {
    FY_NEED(path, err);
    FY_NEED_ARRAY(tensors, count, err);
    FY_NEED_ARRAY(notes, nnotes, err);
    FY_NEED(writer_p, err);
    ferry_safetensors_writer_t *writer = fy_alloc_zero(1, sizeof *writer);
    if (writer == NULL) {
        return fy_fail_nomem(err, "a file to be written");
    }
    writer->fd = -1;
    fy_writer_t header = {NULL, 0, 0, false};
    ferry_status_t status = set_paths(writer, path, count, err);
    if (status == FERRY_OK) {
        status = fy_safetensors_layout(path, tensors, count, notes, nnotes, &header,
                                       writer->offsets, err);
    }
    if (status == FERRY_OK) {
        status = start(writer, &header, err);
    }
    fy_free(header.bytes);
    if (status != FERRY_OK) {
        ferry_safetensors_abandon(writer);
        return status;
    }
    *writer_p = writer;
    return FERRY_OK;
}

uint64_t ferry_safetensors_offset(const ferry_safetensors_writer_t *writer, size_t index) {
    return writer->offsets[index];
}

ferry_status_t ferry_safetensors_put(ferry_safetensors_writer_t *writer, size_t index, uint64_t at,
                                     const void *bytes, size_t length, ferry_error_t *err) {
    FY_NEED(writer, err);
    FY_NEED_ARRAY(bytes, length, err);
    if (index >= writer->count) {
        return fy_fail_file(err, FERRY_INVALID, 0, writer->path, "no tensor %zu: there are %zu",
                            index, writer->count);
    }
    uint64_t room = writer->offsets[index + 1] - writer->offsets[index];
    if (at > room || length > room - at) {
        return fy_fail_file(err, FERRY_INVALID, 0, writer->path,
                            "%zu bytes at byte %" PRIu64 " of tensor %zu, which has %" PRIu64,
                            length, at, index, room);
    }
    return fy_file_write(writer->fd, writer->part, writer->offsets[index] + at, bytes, length, err);
}

static ferry_status_t finish(ferry_safetensors_writer_t *writer, ferry_error_t *err) {
    FY_TRY(fy_file_sync(writer->fd, writer->part, err));
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0 && errno != EINTR) { /* Linux has closed it in any case */
        return fy_fail_file(err, FERRY_IO, errno, writer->part, "cannot close");
    }
    if (rename(writer->part, writer->path) != 0) {
        return fy_fail_file(err, FERRY_IO, errno, writer->part, "cannot rename to its final name");
    }
    writer->made = false;
    return fy_folder_sync(writer->path, err);
}

ferry_status_t ferry_safetensors_commit(ferry_safetensors_writer_t *writer, ferry_error_t *err) {
    FY_NEED(writer, err);
    ferry_status_t status = finish(writer, err);
    ferry_safetensors_abandon(writer);
    return status;
}

void ferry_safetensors_abandon(ferry_safetensors_writer_t *writer) {
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        (void)close(writer->fd);
    }
    if (writer->made) {
        (void)unlink(writer->part);
    }
    fy_free(writer->offsets);
    fy_free(writer->part);
    fy_free(writer->path);
    fy_free(writer);
}
