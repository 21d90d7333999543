/* target.c - a folder that is being written.
 *
 * Everything goes to a folder beside it, whose name ends in ".ferry-part"; when all files are synced it gets its
 * name with one rename. Until then the target is absent, or what it was. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/files.h"
#include "ckpt/job.h"
#include "ckpt/json.h"

#define PART_SUFFIX ".ferry-part"
#define OLD_SUFFIX ".ferry-old"
#define FILE_BYTES UINT64_C(5000000000)

static void print(fy_writer_t *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print(fy_writer_t *w, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0) {
        fy_write_bytes(w, text, fy_min_u64((uint64_t)length, sizeof text - 1));
    }
}

/* --- removing ---------------------------------------------------------------------------------- */

/* A folder of plain files, as ferry makes them. */
static ferry_status_t remove_folder(const char *path, ferry_error_t *err) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT ? FERRY_OK
                               : fy_fail_file(err, FERRY_IO, errno, path, "cannot be removed");
    }
    struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    (void)closedir(folder);
    return rmdir(path) == 0 ? FERRY_OK
                            : fy_fail_file(err, FERRY_IO, errno, path, "cannot be removed");
}

static bool is_empty(const char *path, bool *there_p) {
    DIR *folder = opendir(path);
    struct stat info;
    *there_p = lstat(path, &info) == 0;
    if (folder == NULL) {
        return !*there_p;
    }
    bool empty = true;
    struct dirent *entry = NULL;
    while (empty && (entry = readdir(folder)) != NULL) {
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    }
    (void)closedir(folder);
    return empty;
}

/* What may be replaced: a folder of plain files, other than the source. Whatever else is there is not ferry's to remove. */
static ferry_status_t check_replaceable(const char *path, const char *source, ferry_error_t *err) {
    struct stat there;
    struct stat from;
    if (lstat(path, &there) != 0) {
        return FERRY_OK;
    }
    if (!S_ISDIR(there.st_mode)) {
        return fy_fail_file(err, FERRY_INVALID, 0, path, "is there already and is no folder");
    }
    if (stat(source, &from) == 0 && from.st_dev == there.st_dev && from.st_ino == there.st_ino) {
        return fy_fail_file(err, FERRY_INVALID, 0, path, "is the source itself");
    }
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return fy_fail_file(err, FERRY_IO, errno, path, "cannot be read");
    }
    ferry_status_t status = FERRY_OK;
    struct dirent *entry = NULL;
    while (status == FERRY_OK && (entry = readdir(folder)) != NULL) {
        bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        struct stat info;
        if (!dots && fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(info.st_mode)) {
            status =
                fy_fail_file(err, FERRY_INVALID, 0, path,
                             "has a folder in it (%.64s), so it is not replaced", entry->d_name);
        }
    }
    (void)closedir(folder);
    return status;
}

void fy_target_abandon(fy_target_t *target) {
    for (size_t i = 0; i < target->nwriters; i++) {
        ferry_safetensors_abandon(target->writers[i]);
    }
    fy_free(target->writers);
    target->writers = NULL;
    target->nwriters = 0;
    if (target->part != NULL) {
        (void)remove_folder(target->part, NULL);
    }
    fy_free(target->part);
    target->part = NULL;
}

/* --- files of tensors -------------------------------------------------------------------------- */

static char *join(const char *folder, const char *name) {
    size_t length = strlen(folder) + strlen(name) + 2;
    char *path = fy_alloc(length, 1);
    if (path != NULL) {
        (void)snprintf(path, length, "%s/%s", folder, name);
    }
    return path;
}

/* Which made tensors go to which file: ranks know, whole tensors fill files up. */
static size_t deal_out(const fy_job_t *job, const ferry_convert_params_t *params) {
    uint64_t most = params->file_bytes != 0 ? params->file_bytes : FILE_BYTES;
    if (params->kind == FERRY_FOLDER_RANKS) {
        return job->nranks;
    }
    size_t file = 0;
    uint32_t index = 0;
    uint64_t held = 0;
    for (size_t i = 0; i < job->nmade; i++) {
        fy_made_t *made = &job->made[i];
        uint64_t bytes = made->rows * made->row_elements * (ferry_dtype_bits(made->dtype) / 8);
        if (index > 0 && held + bytes > most) {
            file++;
            index = 0;
            held = 0;
        }
        made->file = (uint32_t)file;
        made->index = index++;
        held += bytes;
    }
    return file + 1;
}

static void file_name(char *buf, size_t cap, const ferry_convert_params_t *params, size_t file,
                      size_t nfiles) {
    if (params->kind == FERRY_FOLDER_RANKS) {
        fy_rank_file(buf, cap, (uint32_t)file, (uint32_t)nfiles);
    } else if (nfiles == 1) {
        (void)snprintf(buf, cap, "%s", FY_ONE_FILE);
    } else {
        (void)snprintf(buf, cap, "model-%05zu-of-%05zu.safetensors", file + 1, nfiles);
    }
}

/* "name":[[[0,512]],[[0,64],[128,192]]]: the intervals of each dim. */
static ferry_status_t write_intervals(fy_writer_t *w, const ferry_tensor_t *tensor, uint32_t rank,
                                      ferry_error_t *err) {
    fy_json_write_string(w, tensor->name);
    print(w, ":[");
    for (uint32_t dim = 0; dim < tensor->ndim; dim++) {
        ferry_interval_t few[16];
        size_t count = 0;
        ferry_interval_t *list = few;
        FY_TRY(ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim, few,
                                      16, &count, err));
        if (count > 16) {
            list = fy_alloc(count, sizeof *list);
            if (list == NULL) {
                return fy_fail_nomem(err, "the intervals of a shard");
            }
            (void)ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim,
                                         list, count, &count, NULL);
        }
        print(w, "%s[", dim > 0 ? "," : "");
        for (size_t i = 0; i < count; i++) {
            print(w, "%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "", list[i].lo, list[i].hi);
        }
        print(w, "]");
        if (list != few) {
            fy_free(list);
        }
    }
    print(w, "]");
    return FERRY_OK;
}

/* What the file of a rank says of itself, so that it can be understood alone. */
static ferry_status_t explain_rank(const fy_job_t *job, uint32_t rank, fy_writer_t *w,
                                   ferry_error_t *err) {
    bool first = true;
    print(w, "{");
    for (size_t i = 0; i < job->source->wholes.count; i++) {
        const ferry_tensor_t *tensor = &job->targets[i];
        uint64_t shape[FERRY_MAX_DIMS];
        uint64_t elements = 1;
        FY_TRY(ferry_layout_local_shape(tensor->layout, tensor->ndim, tensor->shape, rank, shape,
                                        err));
        for (uint32_t k = 0; k < tensor->ndim; k++) {
            elements *= shape[k];
        }
        if (ferry_layout_find(tensor->layout, rank, NULL) && elements > 0) {
            print(w, "%s", first ? "" : ",");
            FY_TRY(write_intervals(w, tensor, rank, err));
            first = false;
        }
    }
    print(w, "}");
    uint8_t end = 0;
    fy_write_bytes(w, &end, 1);
    return w->failed ? fy_fail_nomem(err, "the notes of a file") : FERRY_OK;
}

static ferry_status_t create_file(fy_target_t *target, const fy_job_t *job,
                                  const ferry_convert_params_t *params, size_t file, size_t nfiles,
                                  ferry_error_t *err) {
    ferry_new_tensor_t *tensors = fy_alloc_zero(job->nmade, sizeof *tensors);
    size_t count = 0;
    for (size_t i = 0; i < job->nmade && tensors != NULL; i++) {
        const fy_made_t *made = &job->made[i];
        if (made->file == file) {
            const fy_whole_t *opaque = made->opaque;
            tensors[count++] =
                (ferry_new_tensor_t){.name = made->name,
                                     .dtype = opaque != NULL ? FERRY_DTYPE_NONE : made->dtype,
                                     .dtype_text = opaque != NULL ? opaque->dtype_text : NULL,
                                     .ndim = opaque != NULL ? opaque->file_ndim : made->ndim,
                                     .shape = opaque != NULL ? opaque->file_shape : made->shape,
                                     .bytes = opaque != NULL ? opaque->shape[0] : 0};
        }
    }
    fy_writer_t held = {0};
    char rank[32];
    char ranks[32];
    char name[80];
    (void)snprintf(rank, sizeof rank, "%zu", file);
    (void)snprintf(ranks, sizeof ranks, "%zu", nfiles);
    file_name(name, sizeof name, params, file, nfiles);
    char *path = join(target->part, name);
    ferry_status_t status =
        tensors == NULL || path == NULL ? fy_fail_nomem(err, "the files of a folder") : FERRY_OK;
    ferry_file_note_t notes[] = {{"format", "pt"}, {NULL, NULL}, {NULL, NULL}, {NULL, NULL}};
    size_t nnotes = 1;
    if (status == FERRY_OK && params->kind == FERRY_FOLDER_RANKS) {
        status = explain_rank(job, job->first_rank + (uint32_t)file, &held, err);
        notes[0] = (ferry_file_note_t){"ferry.rank", rank};
        notes[1] = (ferry_file_note_t){"ferry.ranks", ranks};
        notes[2] = (ferry_file_note_t){"ferry.intervals", (const char *)held.bytes};
        nnotes = 3;
    }
    if (status == FERRY_OK) {
        status = ferry_safetensors_create(path, tensors, count, notes, nnotes,
                                          &target->writers[file], err);
    }
    fy_free(tensors);
    fy_free(held.bytes);
    fy_free(path);
    return status;
}

ferry_status_t fy_target_open(fy_target_t *target, const fy_job_t *job, const char *path,
                              const ferry_convert_params_t *params, ferry_error_t *err) {
    *target = (fy_target_t){.path = path, .force = params->force};
    bool there = false;
    if (!is_empty(path, &there) && !params->force) {
        return fy_fail_file(err, FERRY_INVALID, 0, path, "is there already and is not empty");
    }
    FY_TRY(check_replaceable(path, job->source->path, err));
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    target->part = fy_alloc(length + sizeof PART_SUFFIX, 1);
    if (target->part == NULL) {
        return fy_fail_nomem(err, "the path of a folder");
    }
    (void)snprintf(target->part, length + sizeof PART_SUFFIX, "%.*s%s", (int)length, path,
                   PART_SUFFIX);
    FY_TRY(remove_folder(target->part, err)); /* what an earlier run left */
    if (mkdir(target->part, 0777) != 0) {
        ferry_status_t status = fy_fail_file(err, FERRY_IO, errno, target->part, "cannot be made");
        fy_free(target->part);
        target->part = NULL;
        return status;
    }
    size_t nfiles = deal_out(job, params);
    target->writers = fy_alloc_zero(nfiles, sizeof *target->writers);
    if (target->writers == NULL) {
        return fy_fail_nomem(err, "the files of a folder");
    }
    target->nwriters = nfiles;
    for (size_t i = 0; i < nfiles; i++) {
        FY_TRY(create_file(target, job, params, i, nfiles, err));
    }
    return FERRY_OK;
}

/* --- beside the tensors ------------------------------------------------------------------------ */

static ferry_status_t write_file(const char *path, const void *bytes, size_t length,
                                 ferry_error_t *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fy_fail_file(err, FERRY_IO, errno, path, "cannot be made");
    }
    ferry_status_t status = fy_file_write(fd, path, 0, bytes, length, err);
    if (status == FERRY_OK) {
        status = fy_file_sync(fd, path, err);
    }
    (void)close(fd);
    return status;
}

static ferry_status_t write_text(const fy_target_t *target, const char *name, fy_writer_t *w,
                                 ferry_error_t *err) {
    char *path = join(target->part, name);
    ferry_status_t status = path == NULL || w->failed ? fy_fail_nomem(err, "a file of JSON text")
                                                      : write_file(path, w->bytes, w->length, err);
    fy_free(path);
    fy_free(w->bytes);
    return status;
}

static ferry_status_t write_index(const fy_target_t *target, const fy_job_t *job,
                                  const ferry_convert_params_t *params, ferry_error_t *err) {
    fy_writer_t w = {0};
    print(&w, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
          job->bytes_total);
    for (size_t i = 0; i < job->nmade; i++) {
        char name[80];
        file_name(name, sizeof name, params, job->made[i].file, target->nwriters);
        print(&w, "%s\n    ", i > 0 ? "," : "");
        fy_json_write_string(&w, job->made[i].name);
        print(&w, ": \"%s\"", name);
    }
    print(&w, "\n  }\n}\n");
    return write_text(target, FY_INDEX_JSON, &w, err);
}

static void write_tensor(fy_writer_t *w, const fy_whole_t *whole, const ferry_tensor_t *tensor,
                         const ferry_digest_t *digest) {
    bool opaque = whole->dtype_text != NULL;
    uint32_t ndim = opaque ? whole->file_ndim : whole->ndim;
    const uint64_t *shape = opaque ? whole->file_shape : whole->shape;
    char text[FERRY_DIGEST_TEXT_MAX];
    ferry_digest_text(digest, text);
    print(w, "    {\"name\": ");
    fy_json_write_string(w, whole->name);
    print(w, ", \"dtype\": ");
    fy_json_write_string(w,
                         opaque ? whole->dtype_text : ferry_safetensors_dtype_text(tensor->dtype));
    print(w, ", \"shape\": [");
    for (uint32_t i = 0; i < ndim; i++) {
        print(w, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
    }
    print(w, "], ");
    if (opaque) {
        print(w, "\"bytes\": %" PRIu64 ", ", whole->shape[0]);
    }
    print(w, "\"digest\": \"%s\"}", text);
}

static ferry_status_t write_ferry_json(const fy_target_t *target, const fy_job_t *job,
                                       const ferry_convert_params_t *params,
                                       const ferry_digest_t *digests, ferry_error_t *err) {
    const ferry_folder_t *source = job->source;
    fy_writer_t w = {0};
    char parallel[128];
    fy_parallel_text(&params->parallel, parallel, sizeof parallel);
    print(&w, "{\n  \"format\": \"ferry-ranks\",\n  \"version\": %d,\n", FY_FOLDER_VERSION);
    print(&w, "  \"ranks\": %" PRIu32 ",\n  \"parallel\": \"%s\",\n  \"form\": ", job->nranks,
          parallel);
    fy_json_write_string(&w, params->form != NULL ? params->form : "hf");
    print(&w, ",\n  \"rules\": ");
    fy_json_write_string(&w, source->rules_name);
    if (source->rules_text[0] != '\0') {
        print(&w, ",\n  \"rules_text\": ");
        fy_json_write_string(&w, source->rules_text);
    }
    if ((source->flags & FERRY_RULES_REPLICATE) != 0) {
        print(&w, ",\n  \"unmatched\": \"replicate\"");
    }
    print(&w, ",\n  \"config\": {");
    for (size_t i = 0; i < source->config.count; i++) {
        print(&w, "%s", i > 0 ? ", " : "");
        fy_json_write_string(&w, source->config.numbers[i].key);
        print(&w, ": %" PRIu64, source->config.numbers[i].value);
    }
    print(&w, "},\n  \"tensors\": [");
    size_t count = source->wholes.count;
    uint32_t *in_order = fy_alloc(count, sizeof *in_order);
    for (size_t i = 0; i < count && in_order != NULL; i++) {
        in_order[source->wholes.list[i].order] = (uint32_t)i;
    }
    for (size_t i = 0; i < count && in_order != NULL; i++) {
        uint32_t t = in_order[i];
        print(&w, "%s\n", i > 0 ? "," : "");
        write_tensor(&w, &source->wholes.list[t], &job->targets[t], &digests[t]);
    }
    w.failed = w.failed || in_order == NULL;
    fy_free(in_order);
    print(&w, "\n  ]\n}\n");
    return write_text(target, FY_FERRY_JSON, &w, err);
}

/* Config, tokenizer and the like; not what holds tensors or says where they are. */
static bool goes_along(const char *name) {
    size_t length = strlen(name);
    size_t suffix = strlen(".safetensors");
    bool tensors = length >= suffix && strcmp(name + length - suffix, ".safetensors") == 0;
    return name[0] != '.' && !tensors && strcmp(name, FY_INDEX_JSON) != 0 &&
           strcmp(name, FY_FERRY_JSON) != 0;
}

static ferry_status_t copy_file(const char *from, const char *to, ferry_error_t *err) {
    int source = open(from, O_RDONLY | O_CLOEXEC);
    if (source < 0) {
        return fy_fail_file(err, FERRY_IO, errno, from, "cannot be opened");
    }
    int target = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ferry_status_t status =
        target < 0 ? fy_fail_file(err, FERRY_IO, errno, to, "cannot be made") : FERRY_OK;
    char buffer[65536];
    uint64_t at = 0;
    for (ssize_t got = 1; got > 0 && status == FERRY_OK;) {
        got = read(source, buffer, sizeof buffer);
        if (got < 0 && errno != EINTR) {
            status = fy_fail_file(err, FERRY_IO, errno, from, "cannot be read");
        } else if (got > 0) {
            status = fy_file_write(target, to, at, buffer, (size_t)got, err);
            at += (uint64_t)got;
        } else if (got < 0) {
            got = 1;
        }
    }
    if (status == FERRY_OK) {
        status = fy_file_sync(target, to, err);
    }
    (void)close(source);
    if (target >= 0) {
        (void)close(target);
    }
    return status;
}

static ferry_status_t copy_along(const fy_target_t *target, const char *from, ferry_error_t *err) {
    DIR *folder = opendir(from);
    if (folder == NULL) {
        return fy_fail_file(err, FERRY_IO, errno, from, "cannot be read");
    }
    ferry_status_t status = FERRY_OK;
    struct dirent *entry = NULL;
    while (status == FERRY_OK && (entry = readdir(folder)) != NULL) {
        struct stat info;
        if (!goes_along(entry->d_name) || fstatat(dirfd(folder), entry->d_name, &info, 0) != 0 ||
            !S_ISREG(info.st_mode)) {
            continue;
        }
        char *source = join(from, entry->d_name);
        char *copy = join(target->part, entry->d_name);
        status = source == NULL || copy == NULL ? fy_fail_nomem(err, "the path of a file")
                                                : copy_file(source, copy, err);
        fy_free(source);
        fy_free(copy);
    }
    (void)closedir(folder);
    return status;
}

/* --- the name ---------------------------------------------------------------------------------- */

/* The old folder is moved aside, so that the name is without a folder for no more than a moment. One that a run left
 * there which ended in that moment goes once the new folder has the name. */
static ferry_status_t take_name(fy_target_t *target, ferry_error_t *err) {
    size_t length = strlen(target->part) - strlen(PART_SUFFIX);
    char *old = fy_alloc(length + sizeof OLD_SUFFIX, 1);
    if (old == NULL) {
        return fy_fail_nomem(err, "the path of a folder");
    }
    (void)snprintf(old, length + sizeof OLD_SUFFIX, "%.*s%s", (int)length, target->part,
                   OLD_SUFFIX);
    bool there = false;
    bool aside = !is_empty(target->path, &there) && target->force;
    ferry_status_t status = aside ? remove_folder(old, err) : FERRY_OK;
    if (status == FERRY_OK && aside && rename(target->path, old) != 0) {
        status = fy_fail_file(err, FERRY_IO, errno, target->path, "cannot be moved aside");
    } else if (status == FERRY_OK && rename(target->part, target->path) != 0) {
        status = fy_fail_file(err, FERRY_IO, errno, target->path, "cannot be given its name");
        if (aside) {
            (void)rename(old, target->path);
        }
    } else if (status == FERRY_OK) {
        status = remove_folder(old, err);
    }
    fy_free(old);
    return status == FERRY_OK ? fy_folder_sync(target->part, err) : status;
}

/* The names of the files in the folder. */
static ferry_status_t sync_names(const fy_target_t *target, ferry_error_t *err) {
    char *inside = join(target->part, FY_CONFIG_JSON);
    ferry_status_t status =
        inside == NULL ? fy_fail_nomem(err, "the path of a file") : fy_folder_sync(inside, err);
    fy_free(inside);
    return status;
}

ferry_status_t fy_target_seal(fy_target_t *target, const fy_job_t *job,
                              const ferry_convert_params_t *params, const ferry_digest_t *digests,
                              ferry_error_t *err) {
    for (size_t i = 0; i < target->nwriters; i++) {
        ferry_safetensors_writer_t *writer = target->writers[i];
        target->writers[i] = NULL;
        FY_TRY(ferry_safetensors_commit(writer, err));
    }
    if (params->kind == FERRY_FOLDER_RANKS) {
        FY_TRY(write_ferry_json(target, job, params, digests, err));
    } else if (target->nwriters > 1) {
        FY_TRY(write_index(target, job, params, err));
    }
    FY_TRY(copy_along(target, job->source->path, err));
    return sync_names(target, err);
}

ferry_status_t fy_target_commit(fy_target_t *target, ferry_error_t *err) {
    FY_TRY(take_name(target, err));
    fy_free(target->part);
    target->part = NULL;
    fy_free(target->writers);
    target->writers = NULL;
    target->nwriters = 0;
    return FERRY_OK;
}
