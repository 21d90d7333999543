/* convert.c - ferry's conversions as a filter, for tests in other languages.
 *
 *     convert cast FROM TO [saturate]   elements -> elements
 *     convert quantise FROM COLUMNS     elements -> MXFP8 data, then scales (row by row)
 *     convert dequantise TO COLUMNS     MXFP8 data, then scales -> elements
 *
 * From standard input to standard output, in the bytes of the dtypes; COLUMNS is the last dim. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/kernel.h>

typedef struct bytes {
    uint8_t *data;
    size_t count;
} bytes_t;

static bytes_t read_all(FILE *file) {
    bytes_t bytes = {NULL, 0};
    size_t cap = 0;
    for (;;) {
        if (bytes.count == cap) {
            cap = cap == 0 ? 1 << 16 : 2 * cap;
            uint8_t *grown = realloc(bytes.data, cap);
            if (grown == NULL) {
                free(bytes.data);
                return (bytes_t){NULL, 0};
            }
            bytes.data = grown;
        }
        size_t got = fread(bytes.data + bytes.count, 1, cap - bytes.count, file);
        if (got == 0) {
            return bytes;
        }
        bytes.count += got;
    }
}

static size_t width_of(ferry_dtype_t dtype) {
    return ferry_dtype_bits(dtype) / 8;
}

static ferry_status_t cast(bytes_t in, ferry_dtype_t from, ferry_dtype_t to, uint32_t flags,
                           uint8_t *out, size_t *written_p, ferry_error_t *err) {
    uint64_t elements = in.count / width_of(from);
    ferry_view_t source;
    ferry_view_t target;
    ferry_status_t status = ferry_view_contiguous(in.data, from, 1, &elements, &source, err);
    if (status == FERRY_OK) {
        status = ferry_view_contiguous(out, to, 1, &elements, &target, err);
    }
    *written_p = elements * width_of(to);
    return status == FERRY_OK ? ferry_view_copy(&target, &source, flags, err) : status;
}

static ferry_status_t mx(bytes_t in, ferry_dtype_t wide, uint64_t columns, bool forward,
                         uint8_t *out, size_t *written_p, ferry_error_t *err) {
    uint64_t elements = forward ? in.count / width_of(wide) : in.count * 32 / 33;
    uint64_t shape[] = {elements / columns, columns};
    uint64_t scale_shape[] = {elements / columns, columns / FERRY_MX_BLOCK};
    uint8_t *quantised = forward ? out : in.data;
    ferry_view_t data;
    ferry_view_t scales;
    ferry_view_t values;
    ferry_status_t status = ferry_view_contiguous(quantised, FERRY_F8E4M3, 2, shape, &data, err);
    if (status == FERRY_OK) {
        status =
            ferry_view_contiguous(quantised + elements, FERRY_E8M0, 2, scale_shape, &scales, err);
    }
    if (status == FERRY_OK) {
        status = ferry_view_contiguous(forward ? in.data : out, wide, 2, shape, &values, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    *written_p = forward ? elements + elements / FERRY_MX_BLOCK : elements * width_of(wide);
    return forward ? ferry_mx_quantise(&data, &scales, &values, FERRY_MX_ROWS, 0, 1, err)
                   : ferry_mx_dequantise(&values, &data, &scales, FERRY_MX_ROWS, 0, 1, err);
}

static ferry_status_t convert(int argc, char **argv, bytes_t in, uint8_t *out, size_t *written_p,
                              ferry_error_t *err) {
    ferry_dtype_t dtype = FERRY_DTYPE_NONE;
    ferry_dtype_t to = FERRY_DTYPE_NONE;
    ferry_status_t status = ferry_dtype_parse(argv[2], &dtype, err);
    if (status != FERRY_OK) {
        return status;
    }
    if (strcmp(argv[1], "cast") == 0) {
        status = ferry_dtype_parse(argv[3], &to, err);
        uint32_t flags = argc > 4 ? FERRY_COPY_SATURATE : 0;
        return status == FERRY_OK ? cast(in, dtype, to, flags, out, written_p, err) : status;
    }
    uint64_t columns = strtoull(argv[3], NULL, 10);
    if (columns == 0) {
        return FERRY_INVALID;
    }
    return mx(in, dtype, columns, strcmp(argv[1], "quantise") == 0, out, written_p, err);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        (void)fprintf(stderr, "usage: convert cast|quantise|dequantise DTYPE DTYPE|COLUMNS\n");
        return 2;
    }
    bytes_t in = read_all(stdin);
    uint8_t *out = malloc(in.count * 8 + 1); /* one byte becomes eight at most */
    ferry_error_t err = FERRY_ERROR_INIT;
    size_t written = 0;
    ferry_status_t status = FERRY_NOMEM;
    if (in.data != NULL && out != NULL) {
        status = convert(argc, argv, in, out, &written, &err);
    }
    if (status == FERRY_OK && fwrite(out, 1, written, stdout) != written) {
        status = FERRY_IO;
    }
    if (status != FERRY_OK) {
        (void)fprintf(stderr, "convert: %s: %s\n", ferry_status_name(status), err.text);
    }
    free(in.data);
    free(out);
    return status == FERRY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
