/* fuzz_safetensors.c - any bytes as a safetensors file: what opens is whole and can be written and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ferry/safetensors.h>

#include "ckpt/safetensors.h"
#include "layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

/* A file without a name, and a path to it. */
static int make_file(const void *bytes, size_t length, char path[32]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    insist(fd >= 0);
    insist(write(fd, bytes, length) == (ssize_t)length);
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* The tensors cover the file behind its header, in order, and each is found by its name. */
static void check_cover(const ferry_safetensors_t *file, size_t size) {
    size_t count = 0;
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, &count);
    uint64_t end = count > 0 ? tensors[0].offset : size;
    insist(end >= 10); /* the length and {} */
    for (size_t i = 0; i < count; i++) {
        uint64_t elements = 0;
        insist(tensors[i].offset == end);
        insist(tensors[i].ndim <= FERRY_MAX_DIMS);
        insist(fy_shape_elements(tensors[i].ndim, tensors[i].shape, &elements, NULL) == FERRY_OK);
        uint32_t bits = ferry_dtype_bits(tensors[i].dtype);
        insist(bits == 0 || tensors[i].bytes == elements * (bits / 8));
        insist(ferry_safetensors_find(file, tensors[i].name) == &tensors[i]);
        end += tensors[i].bytes;
    }
    insist(end == size);
}

/* The same tensors and notes under another header. */
static void check_same(const ferry_safetensors_t *a, const ferry_safetensors_t *b) {
    size_t count = 0;
    size_t other = 0;
    const ferry_file_tensor_t *x = ferry_safetensors_tensors(a, &count);
    const ferry_file_tensor_t *y = ferry_safetensors_tensors(b, &other);
    insist(count == other);
    for (size_t i = 0; i < count; i++) {
        insist(strcmp(x[i].name, y[i].name) == 0);
        insist(strcmp(x[i].dtype_text, y[i].dtype_text) == 0);
        insist(x[i].dtype == y[i].dtype && x[i].bytes == y[i].bytes && x[i].ndim == y[i].ndim);
        insist(memcmp(x[i].shape, y[i].shape, sizeof x[i].shape) == 0);
    }
    const ferry_file_note_t *m = ferry_safetensors_notes(a, &count);
    const ferry_file_note_t *n = ferry_safetensors_notes(b, &other);
    insist(count == other);
    for (size_t i = 0; i < count; i++) {
        insist(strcmp(m[i].key, n[i].key) == 0 && strcmp(m[i].value, n[i].value) == 0);
        insist(ferry_safetensors_note(b, m[i].key) == n[i].value);
    }
}

static void write_again(const ferry_safetensors_t *file) {
    size_t count = 0;
    size_t nnotes = 0;
    const ferry_file_tensor_t *tensors = ferry_safetensors_tensors(file, &count);
    const ferry_file_note_t *notes = ferry_safetensors_notes(file, &nnotes);
    ferry_new_tensor_t *fresh = calloc(count + 1, sizeof *fresh);
    uint64_t *offsets = calloc(count + 1, sizeof *offsets);
    insist(fresh != NULL && offsets != NULL);
    for (size_t i = 0; i < count; i++) {
        fresh[i] = (ferry_new_tensor_t){tensors[i].name, tensors[i].dtype, tensors[i].dtype_text,
                                        tensors[i].ndim, tensors[i].shape, tensors[i].bytes};
    }
    fy_writer_t writer = {NULL, 0, 0, false};
    insist(fy_safetensors_layout("fuzz", fresh, count, notes, nnotes, &writer, offsets, NULL) ==
           FERRY_OK);
    insist(offsets[0] == writer.length && offsets[0] % FY_SAFETENSORS_ALIGN == 0);
    char path[32];
    int fd = make_file(writer.bytes, writer.length, path);
    insist(ftruncate(fd, (off_t)offsets[count]) == 0);
    ferry_safetensors_t *again = NULL;
    insist(ferry_safetensors_open(path, &again, NULL) == FERRY_OK);
    check_same(file, again);
    ferry_safetensors_close(again);
    (void)close(fd);
    free(writer.bytes);
    free(offsets);
    free(fresh);
}

static void try_file(const uint8_t *data, size_t size) {
    char path[32];
    int fd = make_file(data, size, path);
    ferry_safetensors_t *file = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_safetensors_open(path, &file, &err);
    insist((status == FERRY_OK) == (file != NULL));
    insist((status == FERRY_OK) == (err.text[0] == '\0'));
    if (status == FERRY_OK) {
        check_cover(file, size);
        write_again(file);
        ferry_safetensors_close(file);
    }
    (void)close(fd);
}

/* The bytes as they are, and with the length set to where the last brace is: else most mutations would end at
 * a header that is cut short. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_file(data, size);
    size_t end = size;
    while (end > 8 && data[end - 1] != '}') {
        end--;
    }
    if (end > 8) {
        uint8_t *mended = malloc(size);
        insist(mended != NULL);
        memcpy(mended, data, size);
        for (size_t i = 0; i < 8; i++) {
            mended[i] = (uint8_t)((uint64_t)(end - 8) >> (8 * i));
        }
        try_file(mended, size);
        free(mended);
    }
    return 0;
}
