/* cmd_inspect.c - `ferry inspect`: what is in a checkpoint, and who holds what.
 *
 * A folder or a single file first becomes one list of rows; text and JSON are both made from that. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_options.h"
#include "ckpt_text.h"
#include "commands.h"
#include "error.h"
#include "json.h"
#include "units.h"

enum { LAYOUT_BYTES = 256, NOTE_WIDTH = 60 };

typedef struct row {
    const char *name;
    const char *dtype;
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t bytes;               /* of the whole tensor */
    const char *file;             /* where it is whole; else NULL */
    const ferry_layout_t *layout; /* where it is cut */
    uint64_t offset;              /* of a single file */
} row_t;

typedef struct subject {
    const char *path;
    ferry_folder_t *folder; /* one of these two */
    ferry_safetensors_t *file;
    row_t *rows;
    size_t count;
    uint64_t bytes;
} subject_t;

/* ---- rows --------------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static row_t row_of_stored(const ferry_file_tensor_t *stored, const char *file) {
    return (row_t){.name = stored->name,
                   .dtype = stored->dtype != FERRY_DTYPE_NONE ? ferry_dtype_name(stored->dtype)
                                                              : stored->dtype_text,
                   .ndim = stored->ndim,
                   .shape = stored->shape,
                   .bytes = stored->bytes,
                   .file = file,
                   .offset = stored->offset};
}

static row_t row_of_cut(const ferry_tensor_t *tensor) {
    row_t row = {.name = tensor->name,
                 .dtype = ferry_dtype_name(tensor->dtype),
                 .ndim = tensor->ndim,
                 .shape = tensor->shape,
                 .bytes = ferry_dtype_bits(tensor->dtype) / 8,
                 .layout = tensor->layout};
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        row.bytes *= tensor->shape[d];
    }
    return row;
}

/* A tensor of a folder of whole tensors is in one of its files. */
static row_t row_of_whole(const ferry_folder_t *folder, const ferry_tensor_t *tensor) {
    for (size_t f = 0; f < ferry_folder_nfiles(folder); f++) {
        const ferry_safetensors_t *file = ferry_folder_file(folder, f);
        const ferry_file_tensor_t *stored = ferry_safetensors_find(file, tensor->name);
        if (stored != NULL) {
            return row_of_stored(stored, base_name(ferry_safetensors_path(file)));
        }
    }
    return row_of_cut(tensor);
}

static ferry_status_t make_room(subject_t *subject, size_t count, ferry_error_t *err) {
    subject->rows = calloc(count + 1, sizeof *subject->rows);
    subject->count = count;
    return subject->rows != NULL ? FERRY_OK : cli_fail_nomem(err);
}

static ferry_status_t rows_of_file(subject_t *subject, ferry_error_t *err) {
    size_t count = 0;
    const ferry_file_tensor_t *stored = ferry_safetensors_tensors(subject->file, &count);
    ferry_status_t status = make_room(subject, count, err);
    for (size_t i = 0; status == FERRY_OK && i < count; i++) {
        subject->rows[i] = row_of_stored(&stored[i], NULL);
    }
    return status;
}

static ferry_status_t rows_of_folder(subject_t *subject, ferry_error_t *err) {
    const ferry_folder_t *folder = subject->folder;
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_folder_tensors(folder, &count);
    bool whole = ferry_folder_kind(folder) == FERRY_FOLDER_HF;
    ferry_status_t status = make_room(subject, count, err);
    for (size_t i = 0; status == FERRY_OK && i < count; i++) {
        subject->rows[i] = whole ? row_of_whole(folder, &tensors[i]) : row_of_cut(&tensors[i]);
    }
    return status;
}

static ferry_status_t make_rows(subject_t *subject, ferry_error_t *err) {
    ferry_status_t status =
        subject->file != NULL ? rows_of_file(subject, err) : rows_of_folder(subject, err);
    if (status != FERRY_OK) {
        return status;
    }
    for (size_t i = 0; i < subject->count; i++) {
        subject->bytes += subject->rows[i].bytes;
    }
    return FERRY_OK;
}

static ferry_status_t open_subject(subject_t *subject, ferry_error_t *err) {
    struct stat info;
    ferry_status_t status = FERRY_OK;
    if (stat(subject->path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        status = ferry_safetensors_open(subject->path, &subject->file, err);
        if (status == FERRY_PARSE || status == FERRY_OVERFLOW) {
            err->status = FERRY_CORRUPT; /* what a file says is not the user's mistake */
            status = FERRY_CORRUPT;
        }
    } else {
        status = ckpt_open(subject->path, NULL, &subject->folder, err);
    }
    return status == FERRY_OK ? make_rows(subject, err) : status;
}

static void layout_text(const ferry_layout_t *layout, char text[LAYOUT_BYTES]) {
    if (ferry_layout_format(layout, text, LAYOUT_BYTES) >= LAYOUT_BYTES) {
        memcpy(text + LAYOUT_BYTES - 4, "...", 4);
    }
}

static uint64_t file_bytes(const ferry_safetensors_t *file, size_t *count_p) {
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, count_p);
    uint64_t bytes = 0;
    for (size_t i = 0; i < *count_p; i++) {
        bytes += tensors[i].bytes;
    }
    return bytes;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void print_head(const subject_t *subject, cli_output_t *out) {
    cli_print(out, "%s%s%s: ", cli_bold(out), subject->path, cli_plain(out));
    const ferry_folder_t *folder = subject->folder;
    if (folder == NULL) {
        cli_print(out, "a file");
    } else if (ferry_folder_kind(folder) == FERRY_FOLDER_HF) {
        cli_print(out, "whole tensors");
    } else {
        cli_print(out, "rank files, %s, form %s, rules %s", ckpt_folder_spec(folder).text,
                  ferry_folder_form(folder), ferry_folder_rules(folder));
    }
    cli_print(out, ", %s tensors, %s", cli_label_count(subject->count).text,
              cli_label_bytes(subject->bytes).text);
    if (folder != NULL) {
        size_t files = ferry_folder_nfiles(folder);
        cli_print(out, " in %s %s", cli_label_count(files).text, files == 1 ? "file" : "files");
    }
    cli_print(out, "\n");
}

static void print_files(const ferry_folder_t *folder, cli_output_t *out) {
    cli_print(out, "\n%s%-36s %8s %9s%s\n", cli_bold(out), "file", "tensors", "bytes",
              cli_plain(out));
    for (size_t f = 0; f < ferry_folder_nfiles(folder); f++) {
        const ferry_safetensors_t *file = ferry_folder_file(folder, f);
        size_t count = 0;
        uint64_t bytes = file_bytes(file, &count);
        cli_print(out, "%-36s %8s %9s\n", base_name(ferry_safetensors_path(file)),
                  cli_label_count(count).text, cli_label_bytes(bytes).text);
    }
}

/* A name as it may be shown: whatever a file has in it, the terminal gets no orders from it. */
static void print_clean(const char *text, size_t most, int width, cli_output_t *out) {
    size_t length = strnlen(text, most);
    for (size_t i = 0; i < length; i++) {
        bool plain = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
        cli_write(out, plain ? &text[i] : "?", 1);
    }
    cli_print(out, "%*s", width > (int)length ? width - (int)length : 0, "");
}

/* Long values, such as the intervals of a rank file, are cut short. */
static void print_notes(const ferry_safetensors_t *file, cli_output_t *out) {
    size_t count = 0;
    const ferry_file_note_t *notes = ferry_safetensors_notes(file, &count);
    for (size_t i = 0; i < count; i++) {
        cli_print(out, "  ");
        print_clean(notes[i].key, NOTE_WIDTH, 0, out);
        cli_print(out, ": ");
        print_clean(notes[i].value, NOTE_WIDTH, 0, out);
        cli_print(out, "%s\n", strlen(notes[i].value) <= NOTE_WIDTH ? "" : "...");
    }
}

static void print_rows(const subject_t *subject, cli_output_t *out) {
    int width = (int)strlen("tensor");
    int shape_width = (int)strlen("shape");
    for (size_t i = 0; i < subject->count; i++) {
        const row_t *row = &subject->rows[i];
        int length = (int)strlen(row->name);
        int shape_length = (int)strlen(ckpt_shape_text(row->ndim, row->shape).text);
        width = length > width ? length : width;
        shape_width = shape_length > shape_width ? shape_length : shape_width;
    }
    bool alone = subject->file != NULL;
    cli_print(out, "\n%s%-*s  %-7s %-*s  %9s  %s%s\n", cli_bold(out), width, "tensor", "dtype",
              shape_width, "shape", "bytes", alone ? "at byte" : "where", cli_plain(out));
    for (size_t i = 0; i < subject->count; i++) {
        const row_t *row = &subject->rows[i];
        ckpt_spec_t where = {""};
        if (row->layout != NULL) {
            where = ckpt_holders_text(row->layout);
        } else if (alone) {
            (void)snprintf(where.text, sizeof where.text, "%" PRIu64, row->offset);
        }
        print_clean(row->name, SIZE_MAX, width, out);
        cli_print(out, "  %-7s %-*s  %9s  %s\n", row->dtype, shape_width,
                  ckpt_shape_text(row->ndim, row->shape).text, cli_label_bytes(row->bytes).text,
                  row->file != NULL ? row->file : where.text);
    }
}

static void report_text(const subject_t *subject, cli_output_t *out) {
    print_head(subject, out);
    if (subject->folder != NULL) {
        print_files(subject->folder, out);
    } else {
        print_notes(subject->file, out);
    }
    print_rows(subject, out);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static void put_row(cli_json_t *json, struct json_object *list, const row_t *row, bool alone) {
    struct json_object *node = json_object_new_object();
    cli_json_push(json, list, node);
    node = json->nomem ? NULL : node;
    cli_json_text(json, node, "name", row->name);
    cli_json_text(json, node, "dtype", row->dtype);
    cli_json_u64s(json, node, "shape", row->shape, row->ndim);
    cli_json_u64(json, node, "bytes", row->bytes);
    if (row->layout != NULL) {
        char layout[LAYOUT_BYTES];
        layout_text(row->layout, layout);
        cli_json_text(json, node, "layout", layout);
    } else if (alone) {
        cli_json_u64(json, node, "offset", row->offset);
    } else {
        cli_json_text(json, node, "file", row->file);
    }
}

static void put_folder(cli_json_t *json, const ferry_folder_t *folder) {
    cli_json_text(json, json->root, "kind", ckpt_kind_text(ferry_folder_kind(folder)));
    cli_json_text(json, json->root, "layout", ckpt_folder_spec(folder).text);
    cli_json_text(json, json->root, "form", ferry_folder_form(folder));
    cli_json_text(json, json->root, "rules", ferry_folder_rules(folder));
    cli_json_u64(json, json->root, "ranks", ferry_folder_nranks(folder));
    struct json_object *files = cli_json_array(json, json->root, "files");
    for (size_t f = 0; f < ferry_folder_nfiles(folder); f++) {
        const ferry_safetensors_t *file = ferry_folder_file(folder, f);
        struct json_object *node = json_object_new_object();
        cli_json_push(json, files, node);
        node = json->nomem ? NULL : node;
        size_t count = 0;
        uint64_t bytes = file_bytes(file, &count);
        cli_json_text(json, node, "name", base_name(ferry_safetensors_path(file)));
        cli_json_u64(json, node, "tensors", count);
        cli_json_u64(json, node, "bytes", bytes);
    }
}

static void put_file(cli_json_t *json, const ferry_safetensors_t *file) {
    cli_json_text(json, json->root, "kind", "file");
    struct json_object *node = cli_json_object(json, json->root, "metadata");
    size_t count = 0;
    const ferry_file_note_t *notes = ferry_safetensors_notes(file, &count);
    for (size_t i = 0; i < count; i++) {
        cli_json_text(json, node, notes[i].key, notes[i].value);
    }
}

static ferry_status_t report_json(const subject_t *subject, cli_output_t *out, ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    cli_json_text(&json, json.root, "path", subject->path);
    if (subject->folder != NULL) {
        put_folder(&json, subject->folder);
    } else {
        put_file(&json, subject->file);
    }
    cli_json_u64(&json, json.root, "bytes", subject->bytes);
    struct json_object *list = cli_json_array(&json, json.root, "tensors");
    for (size_t i = 0; i < subject->count; i++) {
        put_row(&json, list, &subject->rows[i], subject->file != NULL);
    }
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    subject_t subject = {.path = args->words[0]};
    ferry_status_t status = open_subject(&subject, err);
    if (status == FERRY_OK && cli_args_has(args, "json")) {
        status = report_json(&subject, out, err);
    } else if (status == FERRY_OK) {
        report_text(&subject, out);
    }
    free(subject.rows);
    ferry_folder_close(subject.folder);
    ferry_safetensors_close(subject.file);
    return status;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const char *const usage[] = {
    "inspect PATH [--json]",
    NULL,
};

static const char *const more[] = {
    "Lists the tensors of a checkpoint folder or of one safetensors file: dtype, shape, bytes, and "
    "where they are. Only headers are read.",
    "For whole tensors, where is a file. For rank files it is the ranks and what each of them "
    "holds: "
    "\"ranks 0-3, dim 0 in 4\" is cut, \"ranks 0-3, whole\" is on each of them. Shapes and names "
    "are "
    "those of the whole tensors. --json has the layout itself (docs/formats/layout.md).",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "json",
     .text = "print one JSON object",
     .more = "The fields are described in docs/formats/folder.md."},
};

static const cli_example_t examples[] = {
    {"what a folder holds", "ferry inspect llama-tp4pp2"},
    {"one file of it", "ferry inspect llama-tp4pp2/rank-00003-of-00008.safetensors"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_inspect = {
    .name = "inspect",
    .text = "list what a checkpoint holds, and where",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .min_words = 1,
    .max_words = 1,
    .words = "PATH",
    .complete = CLI_FILE,
    .run = run,
};
