/* safetensors.c - ferry's safetensors reader and writer, for tests in other languages.
 *
 *     safetensors dump FILE      a line for each note and tensor, in the order of the file: "note KEY VALUE" and
 *                                "tensor NAME DTYPE TEXT SHAPE DATA"; DTYPE is ferry's name, SHAPE "2x3", "scalar";
 *                                KEY, VALUE, NAME, TEXT and DATA in hexadecimal, after an x
 *     safetensors copy FROM TO   read whole, and written again
 *     safetensors open FILE...   a line for each: OK, or the name of the status */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/safetensors.h>

static void print_hex(const void *bytes, size_t length) {
    const uint8_t *at = bytes;
    (void)printf(" x");
    for (size_t i = 0; i < length; i++) {
        (void)printf("%02x", at[i]);
    }
}

static void print_text(const char *text) {
    print_hex(text, strlen(text));
}

/* The bytes of a tensor; NULL after a failure. */
static uint8_t *load(const ferry_safetensors_t *file, const ferry_file_tensor_t *tensor,
                     ferry_status_t *status_p, ferry_error_t *err) {
    uint8_t *bytes = malloc(tensor->bytes + 1);
    *status_p = FERRY_NOMEM;
    if (bytes != NULL) {
        *status_p = ferry_safetensors_read(file, tensor->offset, bytes, tensor->bytes, err);
    }
    if (*status_p != FERRY_OK) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

static ferry_status_t dump_tensor(const ferry_safetensors_t *file,
                                  const ferry_file_tensor_t *tensor, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    uint8_t *bytes = load(file, tensor, &status, err);
    if (bytes == NULL) {
        return status;
    }
    (void)printf("tensor");
    print_text(tensor->name);
    (void)printf(" %s", ferry_dtype_name(tensor->dtype));
    print_text(tensor->dtype_text);
    (void)printf(tensor->ndim == 0 ? " scalar" : " ");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        (void)printf("%s%" PRIu64, d > 0 ? "x" : "", tensor->shape[d]);
    }
    print_hex(bytes, tensor->bytes);
    (void)printf("\n");
    free(bytes);
    return FERRY_OK;
}

static ferry_status_t dump(const ferry_safetensors_t *file, ferry_error_t *err) {
    size_t count = 0;
    const ferry_file_note_t *notes = ferry_safetensors_notes(file, &count);
    for (size_t i = 0; i < count; i++) {
        (void)printf("note");
        print_text(notes[i].key);
        print_text(notes[i].value);
        (void)printf("\n");
    }
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, &count);
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        status = dump_tensor(file, &tensors[i], err);
    }
    return status;
}

static ferry_status_t put_all(const ferry_safetensors_t *file, ferry_safetensors_writer_t *writer,
                              ferry_error_t *err) {
    size_t count = 0;
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, &count);
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        uint8_t *bytes = load(file, &tensors[i], &status, err);
        if (bytes != NULL) {
            status = ferry_safetensors_put(writer, i, 0, bytes, tensors[i].bytes, err);
        }
        free(bytes);
    }
    return status;
}

static ferry_status_t copy(const ferry_safetensors_t *file, const char *to, ferry_error_t *err) {
    size_t count = 0;
    size_t nnotes = 0;
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, &count);
    const ferry_file_note_t *notes = ferry_safetensors_notes(file, &nnotes);
    ferry_new_tensor_t *fresh = calloc(count + 1, sizeof *fresh);
    if (fresh == NULL) {
        return FERRY_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        fresh[i] = (ferry_new_tensor_t){tensors[i].name, tensors[i].dtype, tensors[i].dtype_text,
                                        tensors[i].ndim, tensors[i].shape, tensors[i].bytes};
    }
    ferry_safetensors_writer_t *writer = NULL;
    ferry_status_t status = ferry_safetensors_create(to, fresh, count, notes, nnotes, &writer, err);
    free(fresh);
    if (status != FERRY_OK) {
        return status;
    }
    status = put_all(file, writer, err);
    if (status != FERRY_OK) {
        ferry_safetensors_abandon(writer);
        return status;
    }
    return ferry_safetensors_commit(writer, err);
}

static void open_each(int count, char **paths) {
    for (int i = 0; i < count; i++) {
        ferry_safetensors_t *file = NULL;
        (void)puts(ferry_status_name(ferry_safetensors_open(paths[i], &file, NULL)));
        ferry_safetensors_close(file);
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "open") == 0) {
        open_each(argc - 2, argv + 2);
        return EXIT_SUCCESS;
    }
    bool copies = argc == 4 && strcmp(argv[1], "copy") == 0;
    if (!copies && (argc != 3 || strcmp(argv[1], "dump") != 0)) {
        (void)fprintf(stderr, "usage: safetensors dump FILE | copy FROM TO | open FILE...\n");
        return 2;
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_safetensors_t *file = NULL;
    ferry_status_t status = ferry_safetensors_open(argv[2], &file, &err);
    if (status == FERRY_OK) {
        status = copies ? copy(file, argv[3], &err) : dump(file, &err);
    }
    ferry_safetensors_close(file);
    if (status != FERRY_OK) {
        (void)fprintf(stderr, "safetensors: %s: %s\n", ferry_status_name(status), err.text);
    }
    return status == FERRY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
