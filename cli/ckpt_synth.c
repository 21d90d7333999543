/* ckpt_synth.c - writes made-up tensors as a Hugging Face folder.
 *
 * Threads take pieces of tensors in turn, make their values and put them in the files.
 *
 * Invariant: after an error nobody takes another piece, and no writer is left. */
#include "ckpt_synth.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/kernel.h>

#include "ckpt_values.h"
#include "error.h"
#include "json.h"

enum { PIECE = 1 << 20, NAME_BYTES = 64 }; /* elements that a thread makes at a time */

/* Where a tensor goes. */
typedef struct slot {
    size_t file;
    size_t index; /* in the file */
    uint64_t elements;
    uint64_t bytes;
} slot_t;

typedef struct work {
    const ckpt_synth_t *synth;
    slot_t *slots;
    ferry_safetensors_writer_t **writers;
    size_t nfiles;
    uint64_t bytes;
    pthread_mutex_t lock; /* for the rest */
    size_t tensor;        /* the next piece */
    uint64_t at;
    uint64_t done;
    ferry_error_t err; /* status is FERRY_OK until the first error */
} work_t;

/* ---- files -------------------------------------------------------------------------------------- */

static ferry_status_t deal_out(work_t *work, ferry_error_t *err) {
    const ckpt_synth_t *synth = work->synth;
    work->slots = calloc(synth->count + 1, sizeof *work->slots);
    if (work->slots == NULL) {
        return cli_fail_nomem(err);
    }
    uint64_t held = 0;
    size_t index = 0;
    for (size_t i = 0; i < synth->count; i++) {
        const ferry_tensor_t *tensor = &synth->tensors[i];
        slot_t *slot = &work->slots[i];
        slot->elements = 1;
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            slot->elements *= tensor->shape[d];
        }
        ferry_status_t status = ferry_dtype_bytes(tensor->dtype, slot->elements, &slot->bytes, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (index > 0 && slot->bytes > synth->file_bytes - held) {
            work->nfiles++;
            index = 0;
            held = 0;
        }
        slot->file = work->nfiles;
        slot->index = index++;
        held += slot->bytes < synth->file_bytes - held ? slot->bytes : synth->file_bytes - held;
        work->bytes += slot->bytes;
    }
    work->nfiles++;
    work->writers = calloc(work->nfiles, sizeof *work->writers);
    return work->writers != NULL ? FERRY_OK : cli_fail_nomem(err);
}

static void file_name(const work_t *work, size_t file, char name[NAME_BYTES]) {
    if (work->nfiles == 1) {
        (void)snprintf(name, NAME_BYTES, "model.safetensors");
    } else {
        (void)snprintf(name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", file + 1,
                       work->nfiles);
    }
}

static ferry_status_t create_file(work_t *work, const ckpt_new_t *folder, size_t file,
                                  ferry_error_t *err) {
    const ckpt_synth_t *synth = work->synth;
    char name[NAME_BYTES];
    file_name(work, file, name);
    char *path = ckpt_new_file(folder, name);
    ferry_new_tensor_t *list = calloc(synth->count + 1, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; list != NULL && i < synth->count; i++) {
        const ferry_tensor_t *tensor = &synth->tensors[i];
        if (work->slots[i].file == file) {
            list[count++] = (ferry_new_tensor_t){.name = tensor->name,
                                                 .dtype = tensor->dtype,
                                                 .ndim = tensor->ndim,
                                                 .shape = tensor->shape};
        }
    }
    ferry_file_note_t note = {"format", "pt"};
    ferry_status_t status =
        path == NULL || list == NULL
            ? cli_fail_nomem(err)
            : ferry_safetensors_create(path, list, count, &note, 1, &work->writers[file], err);
    free(list);
    free(path);
    return status;
}

static ferry_status_t write_index(const work_t *work, const ckpt_new_t *folder,
                                  ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    struct json_object *metadata = cli_json_object(&json, json.root, "metadata");
    cli_json_u64(&json, metadata, "total_size", work->bytes);
    struct json_object *map = cli_json_object(&json, json.root, "weight_map");
    for (size_t i = 0; i < work->synth->count; i++) {
        char name[NAME_BYTES];
        file_name(work, work->slots[i].file, name);
        cli_json_text(&json, map, work->synth->tensors[i].name, name);
    }
    const char *text = json.nomem
                           ? NULL
                           : json_object_to_json_string_ext(json.root, JSON_C_TO_STRING_PRETTY |
                                                                           JSON_C_TO_STRING_SPACED);
    ferry_status_t status = text == NULL
                                ? cli_fail_nomem(err)
                                : ckpt_new_text(folder, "model.safetensors.index.json", text, err);
    cli_json_fini(&json);
    return status;
}

/* ---- threads ------------------------------------------------------------------------------------ */

typedef struct piece {
    size_t tensor;
    uint64_t first;
    size_t count;
} piece_t;

/* The next piece; false when there is none or something has failed. */
static bool take(work_t *work, piece_t *piece_p) {
    (void)pthread_mutex_lock(&work->lock);
    while (work->tensor < work->synth->count && work->at == work->slots[work->tensor].elements) {
        work->tensor++;
        work->at = 0;
    }
    bool more = work->tensor < work->synth->count && work->err.status == FERRY_OK;
    if (more) {
        uint64_t left = work->slots[work->tensor].elements - work->at;
        *piece_p = (piece_t){work->tensor, work->at, left < PIECE ? (size_t)left : PIECE};
        work->at += piece_p->count;
    }
    (void)pthread_mutex_unlock(&work->lock);
    return more;
}

static ferry_status_t make(const work_t *work, const piece_t *piece, float *values, void *cast,
                           ferry_error_t *err) {
    const ferry_tensor_t *tensor = &work->synth->tensors[piece->tensor];
    const slot_t *slot = &work->slots[piece->tensor];
    ckpt_values_t what = ckpt_values_of(work->synth->seed, tensor->name);
    ckpt_values_make(&what, piece->first, values, piece->count);
    uint64_t shape[] = {piece->count};
    ferry_view_t source;
    ferry_view_t target;
    ferry_status_t status = ferry_view_contiguous(values, FERRY_F32, 1, shape, &source, err);
    if (status == FERRY_OK) {
        status = ferry_view_contiguous(cast, tensor->dtype, 1, shape, &target, err);
    }
    if (status == FERRY_OK) {
        status = ferry_view_copy(&target, &source, FERRY_COPY_CACHED, err);
    }
    uint64_t width = ferry_dtype_bits(tensor->dtype) / 8;
    return status != FERRY_OK
               ? status
               : ferry_safetensors_put(work->writers[slot->file], slot->index, piece->first * width,
                                       cast, piece->count * width, err);
}

/* Notes a piece that is done, or the first error. Returns the bytes that are done. */
static uint64_t note(work_t *work, const piece_t *piece, ferry_status_t status,
                     const ferry_error_t *err) {
    (void)pthread_mutex_lock(&work->lock);
    if (status != FERRY_OK && work->err.status == FERRY_OK) {
        work->err = *err;
    } else if (status == FERRY_OK) {
        ferry_dtype_t dtype = work->synth->tensors[piece->tensor].dtype;
        work->done += piece->count * (ferry_dtype_bits(dtype) / 8);
    }
    uint64_t done = work->done;
    (void)pthread_mutex_unlock(&work->lock);
    return done;
}

static void run(work_t *work, bool tells) {
    float *values = malloc(PIECE * sizeof *values);
    double *cast = malloc(PIECE * sizeof *cast); /* room for the widest dtype */
    ferry_error_t err = FERRY_ERROR_INIT;
    piece_t piece = {0};
    if (values == NULL || cast == NULL) {
        (void)note(work, &piece, cli_fail_nomem(&err), &err);
    }
    while (take(work, &piece)) {
        ferry_status_t status = make(work, &piece, values, cast, &err);
        ferry_convert_progress_t progress = {note(work, &piece, status, &err), work->bytes};
        if (tells && work->synth->progress != NULL) {
            work->synth->progress(work->synth->context, &progress);
        }
    }
    free(values);
    free(cast);
}

static void *thread_main(void *context) {
    run(context, false);
    return NULL;
}

/* This thread works too; where others cannot be had, it does so alone. */
static void run_all(work_t *work) {
    enum { THREADS_MAX = 64 };
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    uint32_t wanted = work->synth->threads < THREADS_MAX ? work->synth->threads : THREADS_MAX;
    while (started + 1 < wanted &&
           pthread_create(&threads[started], NULL, thread_main, work) == 0) {
        started++;
    }
    run(work, true);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static ferry_status_t write_all(work_t *work, const ckpt_new_t *folder, ferry_error_t *err) {
    ferry_status_t status = deal_out(work, err);
    for (size_t i = 0; status == FERRY_OK && i < work->nfiles; i++) {
        status = create_file(work, folder, i, err);
    }
    if (status == FERRY_OK) {
        run_all(work);
        status = work->err.status;
        *err = status == FERRY_OK ? *err : work->err;
    }
    for (size_t i = 0; status == FERRY_OK && i < work->nfiles; i++) {
        ferry_safetensors_writer_t *writer = work->writers[i];
        work->writers[i] = NULL;
        status = ferry_safetensors_commit(writer, err);
    }
    return status == FERRY_OK && work->nfiles > 1 ? write_index(work, folder, err) : status;
}

ferry_status_t ckpt_synth_write(const ckpt_synth_t *synth, const ckpt_new_t *folder,
                                ckpt_synth_result_t *result_p, ferry_error_t *err) {
    work_t work = {.synth = synth, .lock = PTHREAD_MUTEX_INITIALIZER, .err = FERRY_ERROR_INIT};
    ferry_status_t status = write_all(&work, folder, err);
    for (size_t i = 0; work.writers != NULL && i < work.nfiles; i++) {
        ferry_safetensors_abandon(work.writers[i]);
    }
    *result_p = (ckpt_synth_result_t){work.bytes, work.nfiles};
    free(work.writers);
    free(work.slots);
    (void)pthread_mutex_destroy(&work.lock);
    return status;
}
