/* test_safetensors.c - safetensors files: round trips, and every complaint with its text. */
#include "oracle/unit.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/safetensors.h>

static char folder[] = "/tmp/ferry-st-XXXXXX";
static char path[64];
static char part[72];

/* --- helpers ------------------------------------------------------------------------------------ */

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/t.safetensors", folder);
    (void)snprintf(part, sizeof part, "%s.part", path);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(folder); /* fails when a test has left something */
}

static bool is_there(const char *name) {
    return access(name, F_OK) == 0;
}

/* Files in the folder. */
static int files_left(void) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        count += e->d_name[0] != '.';
    }
    (void)closedir(dir);
    return count;
}

static void write_file(const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* A file of this header, which claims to be `claimed` bytes long, and `data` bytes 0, 1, 2, ... */
static void write_raw(uint64_t claimed, const char *header, size_t length, size_t data) {
    uint8_t *bytes = malloc(8 + length + data);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(claimed >> (8 * i));
    }
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data; i++) {
        bytes[8 + length + i] = (uint8_t)i;
    }
    write_file(bytes, 8 + length + data);
    free(bytes);
}

/* Opens a file of this header and so many bytes of data. */
static ferry_status_t try_header(const char *header, size_t data, ferry_safetensors_t **file_p,
                                 ferry_error_t *err) {
    write_raw(strlen(header), header, strlen(header), data);
    return ferry_safetensors_open(path, file_p, err);
}

static ferry_safetensors_t *open_header(const char *header, size_t data) {
    ferry_safetensors_t *file = NULL;
    assert_ok(try_header(header, data, &file, &err));
    return file;
}

/* The header is refused, the record names the file, and nothing is returned. */
#define assert_header_fails(header, data, name, part_)                                             \
    do {                                                                                           \
        ferry_safetensors_t *none = NULL;                                                          \
        assert_fails(try_header(header, data, &none, &err), name, part_);                          \
        assert_fails(try_header(header, data, &none, &err), name, path);                           \
        assert_null(none);                                                                         \
        assert_int_equal(ferry_safetensors_open(path, &none, NULL), FERRY_##name);                 \
    } while (0)

#define ENTRY(dtype, shape, begin, end)                                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

/* --- round trips -------------------------------------------------------------------------------- */

static const ferry_dtype_t every_dtype[] = {
#define DTYPE(name, number, text, bits) FERRY_##name,
    FERRY_DTYPE_MAP(DTYPE)
#undef DTYPE
};

enum { NDTYPES = sizeof every_dtype / sizeof *every_dtype };

static void dtypes_have_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < NDTYPES; i++) {
        const char *text = ferry_safetensors_dtype_text(every_dtype[i]);
        assert_non_null(text);
        assert_int_equal(ferry_safetensors_dtype(text), every_dtype[i]);
    }
    assert_string_equal(ferry_safetensors_dtype_text(FERRY_BF16), "BF16");
    assert_string_equal(ferry_safetensors_dtype_text(FERRY_E8M0), "F8_E8M0");
    assert_int_equal(ferry_safetensors_dtype("F8_E4M3"), FERRY_F8E4M3);
    assert_int_equal(ferry_safetensors_dtype("bf16"), FERRY_DTYPE_NONE);
    assert_int_equal(ferry_safetensors_dtype("F4"), FERRY_DTYPE_NONE);
    assert_int_equal(ferry_safetensors_dtype(""), FERRY_DTYPE_NONE);
    assert_int_equal(ferry_safetensors_dtype(NULL), FERRY_DTYPE_NONE);
    assert_null(ferry_safetensors_dtype_text(FERRY_DTYPE_NONE));
    assert_null(ferry_safetensors_dtype_text((ferry_dtype_t)99));
}

/* What tensor `i` of a test file holds at byte `at`. */
static uint8_t byte_of(size_t i, uint64_t at) {
    return (uint8_t)(i * 31 + at * 7 + 1);
}

static void put_all(ferry_safetensors_writer_t *writer, size_t i, uint64_t bytes) {
    uint8_t *values = malloc(bytes + 1);
    assert_non_null(values);
    for (uint64_t at = 0; at < bytes; at++) {
        values[at] = byte_of(i, at);
    }
    /* In two pieces, the second one first. */
    uint64_t half = bytes / 2;
    assert_ok(ferry_safetensors_put(writer, i, half, values + half, bytes - half, &err));
    assert_ok(ferry_safetensors_put(writer, i, 0, values, half, &err));
    free(values);
}

static void check_all(ferry_safetensors_t *file, const ferry_file_tensor_t *tensor, size_t i) {
    const uint8_t *mapped = NULL;
    assert_ok(ferry_safetensors_map(file, &mapped, &err));
    uint8_t *values = malloc(tensor->bytes + 1);
    assert_non_null(values);
    assert_ok(ferry_safetensors_read(file, tensor->offset, values, tensor->bytes, &err));
    for (uint64_t at = 0; at < tensor->bytes; at++) {
        assert_int_equal(values[at], byte_of(i, at));
        assert_int_equal(mapped[tensor->offset + at], byte_of(i, at));
    }
    free(values);
}

static void every_dtype_comes_back(void **state) {
    (void)state;
    const uint64_t shape[] = {3, 1, 5};
    ferry_new_tensor_t tensors[NDTYPES + 3];
    memset(tensors, 0, sizeof tensors);
    for (size_t i = 0; i < NDTYPES; i++) {
        tensors[i] = (ferry_new_tensor_t){
            ferry_dtype_name(every_dtype[i]), every_dtype[i], "!", 3, shape, 12345};
    }
    static const char *const strange[] = {"F4", "F6_E2M3", "C64"};
    static const uint64_t strange_bytes[] = {8, 12, 120};
    for (size_t i = 0; i < 3; i++) {
        tensors[NDTYPES + i] = (ferry_new_tensor_t){strange[i], FERRY_DTYPE_NONE, strange[i], 3,
                                                    shape,      strange_bytes[i]};
    }
    const ferry_file_note_t notes[] = {{"format", "pt"}, {"", ""}, {"a \"b\"\n\\", "\x01\x7f/"}};
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(path, tensors, NDTYPES + 3, notes, 3, &writer, &err));
    assert_true(is_there(part));
    assert_false(is_there(path));
    for (size_t i = 0; i < NDTYPES + 3; i++) {
        uint64_t bytes =
            ferry_safetensors_offset(writer, i + 1) - ferry_safetensors_offset(writer, i);
        put_all(writer, i, bytes);
    }
    assert_int_equal(ferry_safetensors_offset(writer, 0) % 64, 0);
    assert_ok(ferry_safetensors_commit(writer, &err));
    assert_false(is_there(part));

    ferry_safetensors_t *file = NULL;
    assert_ok(ferry_safetensors_open(path, &file, &err));
    assert_string_equal(ferry_safetensors_path(file), path);
    size_t count = 0;
    const ferry_file_tensor_t *got = ferry_safetensors_tensors(file, &count);
    assert_int_equal(count, NDTYPES + 3);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(got[i].name, tensors[i].name);
        assert_int_equal(got[i].dtype, tensors[i].dtype);
        assert_int_equal(got[i].ndim, 3);
        assert_memory_equal(got[i].shape, shape, sizeof shape);
        assert_ptr_equal(ferry_safetensors_find(file, tensors[i].name), &got[i]);
        if (i < NDTYPES) {
            assert_int_equal(got[i].bytes, 15 * ferry_dtype_bits(got[i].dtype) / 8);
            assert_string_equal(got[i].dtype_text, ferry_safetensors_dtype_text(got[i].dtype));
        } else {
            assert_int_equal(got[i].bytes, strange_bytes[i - NDTYPES]);
            assert_string_equal(got[i].dtype_text, strange[i - NDTYPES]);
        }
        check_all(file, &got[i], i);
    }
    assert_null(ferry_safetensors_find(file, "no such name"));
    size_t nnotes = 0;
    const ferry_file_note_t *back = ferry_safetensors_notes(file, &nnotes);
    assert_int_equal(nnotes, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(back[i].key, notes[i].key);
        assert_string_equal(back[i].value, notes[i].value);
        assert_string_equal(ferry_safetensors_note(file, notes[i].key), notes[i].value);
    }
    assert_null(ferry_safetensors_note(file, "form"));
    ferry_safetensors_close(file);
    ferry_safetensors_close(NULL);
}

/* The bytes of the file, as somebody with the format's description would write them. */
static void header_is_as_described(void **state) {
    (void)state;
    const uint64_t shape[] = {2, 2};
    const uint64_t none[] = {7, 0};
    const ferry_new_tensor_t tensors[] = {{"b\t\"x\"", FERRY_BF16, NULL, 2, shape, 0},
                                          {"empty", FERRY_F32, NULL, 2, none, 0},
                                          {"s", FERRY_I64, NULL, 0, NULL, 0}};
    const ferry_file_note_t notes[] = {{"format", "pt"}};
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(path, tensors, 3, notes, 1, &writer, &err));
    const uint8_t values[] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_ok(ferry_safetensors_put(writer, 0, 0, values, 8, &err));
    assert_ok(ferry_safetensors_put(writer, 1, 0, NULL, 0, &err));
    assert_ok(ferry_safetensors_put(writer, 2, 4, values, 4, &err));
    assert_ok(ferry_safetensors_commit(writer, &err));

    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\\u0009\\\"x\\\"\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[7,0],\"data_offsets\":[8,8]},"
        "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]}}";
    size_t padded = (8 + strlen(expected) + 63) / 64 * 64;
    uint8_t bytes[1024];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), padded + 16);
    (void)fclose(file);
    assert_int_equal(bytes[0] + 256 * bytes[1], padded - 8);
    for (size_t i = 2; i < 8; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_memory_equal(bytes + 8, expected, strlen(expected));
    for (size_t i = 8 + strlen(expected); i < padded; i++) {
        assert_int_equal(bytes[i], ' ');
    }
    const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 1, 2, 3, 4};
    assert_memory_equal(bytes + padded, data, 16);
}

static void nothing_is_a_file_too(void **state) {
    (void)state;
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(path, NULL, 0, NULL, 0, &writer, &err));
    assert_ok(ferry_safetensors_commit(writer, &err));
    ferry_safetensors_t *file = NULL;
    assert_ok(ferry_safetensors_open(path, &file, &err));
    size_t count = 99;
    (void)ferry_safetensors_tensors(file, &count);
    assert_int_equal(count, 0);
    (void)ferry_safetensors_notes(file, &count);
    assert_int_equal(count, 0);
    assert_null(ferry_safetensors_find(file, ""));
    assert_null(ferry_safetensors_note(file, ""));
    ferry_safetensors_close(file);
    ferry_safetensors_close(open_header("{}", 0));
    ferry_safetensors_close(open_header("{\"__metadata__\":{}}", 0));
}

/* Headers of other writers: any order, blanks, escapes, tensors without bytes in between, more keys. */
static void foreign_headers_are_read(void **state) {
    (void)state;
    ferry_safetensors_t *file = open_header(
        "{ \"z\\u00e4\\ud83d\\ude00\\/\" : " ENTRY(
            "U8", "2", "4",
            "6") ",\n"
                 "\"e1\":" ENTRY("U8", "0", "4",
                                 "4") ","
                                      "\"\":" ENTRY("F4", "3,3", "6",
                                                    "9") ","
                                                         "\"a\": "
                                                         "{\"data_offsets\":[0,4],\"more\":[{\"x\":"
                                                         "[1,-2.5e+3,true,false,null,\"\"]}],"
                                                         "\"shape\":[1],\"dtype\":\"F32\"},"
                                                         "\"__metadata__\":{\"k\":\"v\"}}  \n",
        9);
    size_t count = 0;
    const ferry_file_tensor_t *got = ferry_safetensors_tensors(file, &count);
    assert_int_equal(count, 4);
    assert_string_equal(got[0].name, "a");
    assert_string_equal(got[1].name, "e1");
    assert_string_equal(got[2].name, "z\xc3\xa4\xf0\x9f\x98\x80/");
    assert_string_equal(got[3].name, "");
    assert_int_equal(got[3].dtype, FERRY_DTYPE_NONE);
    assert_string_equal(got[3].dtype_text, "F4");
    assert_int_equal(got[3].bytes, 3);
    assert_string_equal(ferry_safetensors_note(file, "k"), "v");
    uint8_t bytes[2];
    assert_ok(ferry_safetensors_read(file, got[2].offset, bytes, 2, &err));
    assert_int_equal(bytes[0], 4);
    assert_int_equal(bytes[1], 5);
    ferry_safetensors_close(file);
}

static void many_names_are_found(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    ferry_new_tensor_t *tensors = calloc(COUNT, sizeof *tensors);
    char(*names)[24] = calloc(COUNT, sizeof *names);
    assert_non_null(tensors);
    assert_non_null(names);
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof names[i], "layers.%zu.w", i * 7919 % COUNT);
        tensors[i] = (ferry_new_tensor_t){names[i], FERRY_U8, NULL, 0, NULL, 0};
    }
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(path, tensors, COUNT, NULL, 0, &writer, &err));
    assert_ok(ferry_safetensors_commit(writer, &err));
    ferry_safetensors_t *file = NULL;
    assert_ok(ferry_safetensors_open(path, &file, &err));
    size_t count = 0;
    const ferry_file_tensor_t *got = ferry_safetensors_tensors(file, &count);
    assert_int_equal(count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(ferry_safetensors_find(file, names[i]), &got[i]);
    }
    ferry_safetensors_close(file);
    names[COUNT - 1][0] = 'm';
    memcpy(names[17], names[4000], sizeof names[17]);
    writer = NULL;
    assert_fails(ferry_safetensors_create(path, tensors, COUNT, NULL, 0, &writer, &err), INVALID,
                 "two tensors of one name");
    assert_null(writer);
    free(tensors);
    free(names);
}

/* --- complaints about a file -------------------------------------------------------------------- */

static void files_that_cannot_be_opened(void **state) {
    (void)state;
    ferry_safetensors_t *file = NULL;
    (void)unlink(path);
    assert_fails(ferry_safetensors_open(path, &file, &err), IO, "cannot open (No such file");
    assert_fails(ferry_safetensors_open(folder, &file, &err), IO, "is no regular file");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), IO, "is no regular file");
    (void)unlink(path);
    assert_fails(ferry_safetensors_open(NULL, &file, &err), INVALID, "path is NULL");
    assert_fails(ferry_safetensors_open(path, NULL, &err), INVALID, "file_p is NULL");
    char longer[600];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + sizeof longer - 9, "/the-end", 9);
    assert_fails(ferry_safetensors_open(longer, &file, &err), IO, "xx/the-end: cannot open (");
    assert_null(file);
}

static void lengths_are_checked(void **state) {
    (void)state;
    ferry_safetensors_t *file = NULL;
    write_file("", 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), CORRUPT, "0 bytes are no safetensors");
    write_file("\2\0\0\0\0\0\0", 7);
    assert_fails(ferry_safetensors_open(path, &file, &err), CORRUPT, "7 bytes are no safetensors");
    write_raw(0, "", 0, 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), PARSE, "does not begin with '{'");
    write_raw(3, "{}", 2, 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), CORRUPT,
                 "a header of 3 bytes in a file of 10: truncated?");
    write_raw(104857601, "{}", 2, 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), CORRUPT,
                 "a header of 104857601 bytes: more than the format allows");
    write_raw(UINT64_MAX, "{}", 2, 0);
    assert_fails(ferry_safetensors_open(path, &file, &err), CORRUPT,
                 "a header of 18446744073709551615 bytes");
    assert_null(file);
    assert_header_fails(" {}", 0, PARSE, "does not begin with '{'");
    assert_header_fails("[]", 0, PARSE, "does not begin with '{'");
    assert_header_fails("{}", 3, CORRUPT, "the last 3 bytes belong to no tensor");
}

static void places_are_checked(void **state) {
    (void)state;
    assert_header_fails("{\"a\":" ENTRY("U8", "4", "0", "4") "}", 3, CORRUPT, "tensor a: ");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "4", "0", "4") "}", 3, CORRUPT,
        "data_offsets [0, 4] go past the end of the file, which has 3 bytes of data: "
        "truncated?");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "4", "18446744073709551612", "18446744073709551615") "}", 4, CORRUPT,
        "go past the end of the file");
    assert_header_fails("{\"a\":" ENTRY("U8", "4", "4", "0") "}", 4, CORRUPT,
                        "data_offsets [4, 0] end before they begin");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "4", "0", "4") ",\"b\":" ENTRY("U8", "4", "2", "6") "}", 6, CORRUPT,
        "tensor b: ");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "4", "0", "4") ",\"b\":" ENTRY("U8", "4", "2", "6") "}", 6, CORRUPT,
        "its first 2 bytes belong to another tensor too");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "4", "0", "4") ",\"b\":" ENTRY("U8", "4", "0", "4") "}", 4, CORRUPT,
        "its first 4 bytes belong to another tensor too");
    assert_header_fails(
        "{\"b\":" ENTRY("U8", "1", "5", "6") ",\"a\":" ENTRY("U8", "4", "0", "4") "}", 6, CORRUPT,
        "the 1 bytes before it belong to no tensor");
    assert_header_fails("{\"a\":" ENTRY("U8", "4", "2", "6") "}", 6, CORRUPT,
                        "the 2 bytes before it belong to no tensor");
    assert_header_fails("{\"a\":" ENTRY("U8", "4", "0", "4") "}", 6, CORRUPT,
                        "the last 2 bytes belong to no tensor");
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "0", "3", "3") ",\"b\":" ENTRY("U8", "4", "0", "4") "}", 4, CORRUPT,
        "tensor a: "); /* without bytes, in the middle of another */
}

static void shapes_are_checked(void **state) {
    (void)state;
    assert_header_fails("{\"a\":" ENTRY("BF16", "2,2", "0", "4") "}", 4, CORRUPT,
                        "4 elements of BF16 take 8 bytes, and data_offsets give 4");
    assert_header_fails("{\"a\":" ENTRY("U8", "4294967296,4294967296", "0", "0") "}", 0, CORRUPT,
                        "its shape passes 64 bits");
    assert_header_fails("{\"a\":" ENTRY("U8", "4294967296,4294967296,0", "0", "0") "}", 0, CORRUPT,
                        "its shape passes 64 bits");
    assert_header_fails("{\"a\":" ENTRY("F64", "4611686018427387904", "0", "0") "}", 0, CORRUPT,
                        "its shape passes 64 bits");
    assert_header_fails("{\"a\":" ENTRY("F4", "4294967296,4294967296", "0", "0") "}", 0, CORRUPT,
                        "its shape passes 64 bits");
    assert_header_fails("{\"a\":" ENTRY("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0", "1") "}", 1,
                        UNSUPPORTED, "tensor a: ");
    assert_header_fails("{\"a\":" ENTRY("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0", "1") "}", 1,
                        UNSUPPORTED, "more than 16 dims");
    ferry_safetensors_close(
        open_header("{\"a\":" ENTRY("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0", "1") "}", 1));
}

static void forms_are_checked(void **state) {
    (void)state;
    assert_header_fails("{\"a\":1}", 0, PARSE, "column 6: expected an object, not '1'");
    assert_header_fails("{\"a\":{}}", 0, PARSE, "a tensor without dtype");
    assert_header_fails("{\"a\":{\"dtype\":\"U8\"}}", 0, PARSE, "a tensor without shape");
    assert_header_fails("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, PARSE,
                        "a tensor without data_offsets");
    assert_header_fails("{\"a\":{\"dtype\":8}}", 0, PARSE, "expected a string, not '8'");
    assert_header_fails("{\"a\":{\"shape\":4}}", 0, PARSE, "expected an array, not '4'");
    assert_header_fails("{\"a\":{\"shape\":[\"4\"]}}", 0, PARSE, "expected a number, not '\"'");
    assert_header_fails("{\"a\":{\"shape\":[-4]}}", 0, PARSE,
                        "expected a whole number that is not negative, not -4");
    assert_header_fails("{\"a\":{\"shape\":[4.0]}}", 0, PARSE, "not negative, not 4.0");
    assert_header_fails("{\"a\":{\"shape\":[18446744073709551616]}}", 0, PARSE,
                        "a number of more than 64 bits");
    assert_header_fails("{\"a\":{\"data_offsets\":[1]}}", 0, PARSE, "data_offsets are two numbers");
    assert_header_fails("{\"a\":{\"data_offsets\":[0,0,0]}}", 0, PARSE,
                        "data_offsets are two numbers");
    assert_header_fails("{\"a\":{\"data_offsets\":{}}}", 0, PARSE, "expected an array, not '{'");
    assert_header_fails("{\"__metadata__\":[]}", 0, PARSE, "expected an object, not '['");
    assert_header_fails("{\"__metadata__\":{\"a\":1}}", 0, PARSE, "tensor __metadata__: ");
    assert_header_fails("{\"__metadata__\":{\"a\":1}}", 0, PARSE, "expected a string, not '1'");
    assert_header_fails("{\"__metadata__\":{},\"__metadata__\":{}}", 0, PARSE,
                        "the key \"__metadata__\" is there twice");
}

static void duplicates_are_refused(void **state) {
    (void)state;
    assert_header_fails(
        "{\"a\":" ENTRY("U8", "0", "0", "0") ",\"\\u0061\":" ENTRY("U8", "0", "0", "0") "}", 0,
        PARSE, "line 1, column 54: the key \"a\" is there twice");
    assert_header_fails("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, PARSE, "tensor a: ");
    assert_header_fails("{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0, PARSE,
                        "\"k\" is there twice");
}

static void bombs_are_refused(void **state) {
    (void)state;
    size_t length = 1 << 20;
    char *bomb = malloc(length + 1);
    assert_non_null(bomb);
    memset(bomb, '[', length);
    memcpy(bomb, "{\"a\":{\"x\":", 10);
    bomb[length] = '\0';
    assert_header_fails(bomb, 0, PARSE, "column 41: nested more than 32 deep");
    free(bomb);
    assert_header_fails("{\"a\":{\"x\":[{\"y\":1,\"y\":1}]}}", 0, PARSE,
                        "the key \"y\" is there twice"); /* in what is skipped, too */
    assert_header_fails("{} {}", 0, PARSE, "column 4: expected the end, not '{'");
}

/* --- reading ------------------------------------------------------------------------------------ */

static void reads_stay_in_the_file(void **state) {
    (void)state;
    ferry_safetensors_t *file = open_header("{\"a\":" ENTRY("U8", "4", "0", "4") "}", 4);
    const ferry_file_tensor_t *tensor = ferry_safetensors_find(file, "a");
    uint64_t end = tensor->offset + 4;
    uint8_t bytes[8];
    assert_ok(ferry_safetensors_read(file, end, NULL, 0, &err));
    assert_fails(ferry_safetensors_read(file, end - 3, bytes, 4, &err), INVALID, "4 bytes at byte");
    assert_fails(ferry_safetensors_read(file, UINT64_MAX, bytes, 1, &err), INVALID, path);
    assert_fails(ferry_safetensors_read(file, 0, NULL, 1, &err), INVALID, "target is NULL");
    assert_int_equal(truncate(path, (off_t)end - 1), 0);
    assert_fails(ferry_safetensors_read(file, tensor->offset, bytes, 4, &err), CORRUPT,
                 "1 bytes too early");
    ferry_safetensors_close(file);
}

typedef struct mapping {
    ferry_safetensors_t *file;
    const uint8_t *bytes;
} mapping_t;

static void *map_it(void *mapping) {
    mapping_t *mine = mapping;
    (void)ferry_safetensors_map(mine->file, &mine->bytes, NULL);
    return NULL;
}

static void threads_share_a_mapping(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        ferry_safetensors_t *file = open_header("{\"a\":" ENTRY("U8", "4", "0", "4") "}", 4);
        pthread_t threads[4];
        mapping_t mappings[4];
        for (size_t i = 0; i < 4; i++) {
            mappings[i] = (mapping_t){file, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, map_it, &mappings[i]), 0);
        }
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_non_null(mappings[i].bytes);
            assert_ptr_equal(mappings[i].bytes, mappings[0].bytes);
        }
        ferry_safetensors_close(file);
    }
}

/* --- complaints about what is to be written -------------------------------------------------------- */

static void bad_tensors_are_not_written(void **state) {
    (void)state;
    (void)unlink(path);
    const uint64_t four[] = {4};
    const uint64_t huge[] = {UINT64_C(1) << 32, UINT64_C(1) << 32};
    const uint64_t large[] = {UINT64_C(1) << 62};
    ferry_new_tensor_t ok = {"ok", FERRY_U8, NULL, 1, four, 0};
    const struct {
        ferry_new_tensor_t tensor;
        ferry_status_t status;
        const char *text;
    } cases[] = {
        {{NULL, FERRY_U8, NULL, 1, four, 0}, FERRY_INVALID, "tensor 1 has no name"},
        {{"ok", FERRY_U8, NULL, 1, four, 0}, FERRY_INVALID, "two tensors of one name, 'ok'"},
        {{"\xff", FERRY_U8, NULL, 1, four, 0}, FERRY_INVALID, "the name of tensor 1 is not UTF-8"},
        {{"__metadata__", FERRY_U8, NULL, 1, four, 0}, FERRY_INVALID, "cannot have this name"},
        {{"a", FERRY_U8, NULL, 17, four, 0}, FERRY_UNSUPPORTED, "more than 16 dims"},
        {{"a", FERRY_U8, NULL, 1, NULL, 0}, FERRY_INVALID, "tensor->shape is NULL"},
        {{"a", FERRY_U8, NULL, 2, huge, 0}, FERRY_OVERFLOW, "more elements than 64 bits"},
        {{"a", FERRY_F64, NULL, 1, large, 0}, FERRY_OVERFLOW, "pass 64 bits"},
        {{"a", (ferry_dtype_t)77, NULL, 1, four, 0}, FERRY_INVALID, "77 is no dtype"},
        {{"a", FERRY_DTYPE_NONE, NULL, 1, four, 4}, FERRY_INVALID, "neither a dtype nor the text"},
        {{"a", FERRY_DTYPE_NONE, "\xff", 1, four, 4},
         FERRY_INVALID,
         "neither a dtype nor the text"},
        {{"a", FERRY_DTYPE_NONE, "F32", 1, four, 4}, FERRY_INVALID, "F32 is known"},
        {{"a", FERRY_DTYPE_NONE, "F4", 1, four, UINT64_MAX},
         FERRY_OVERFLOW,
         "the file passes 64 bits"},
        {{"a", FERRY_DTYPE_NONE, "F4", 1, four, UINT64_MAX - 64},
         FERRY_OVERFLOW,
         "the file passes 64 bits"},
        {{"a", FERRY_DTYPE_NONE, "F4", 1, four, UINT64_MAX / 2},
         FERRY_OVERFLOW,
         "bytes are too many"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ferry_new_tensor_t tensors[] = {ok, cases[i].tensor};
        ferry_safetensors_writer_t *writer = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(ferry_safetensors_create(path, tensors, 2, NULL, 0, &writer, &err),
                         cases[i].status);
        if (strstr(err.text, cases[i].text) == NULL) {
            fail_msg("case %zu: %s", i, err.text);
        }
        assert_null(writer);
        assert_int_equal(files_left(), 0);
    }
}

static void bad_notes_are_not_written(void **state) {
    (void)state;
    const ferry_file_note_t notes[][2] = {
        {{"a", "b"}, {"a", "c"}},   {{"a", NULL}, {"b", ""}},  {{NULL, ""}, {"b", ""}},
        {{"a", "\x80"}, {"b", ""}}, {{"\xc0", ""}, {"b", ""}},
    };
    static const char *const texts[] = {
        "two notes of one name, 'a'", "the value of note 'a' is NULL", "note 0 has no name",
        "the value of note 'a' is not UTF-8", "the name of note 0 is not UTF-8"};
    for (size_t i = 0; i < 5; i++) {
        ferry_safetensors_writer_t *writer = NULL;
        assert_fails(ferry_safetensors_create(path, NULL, 0, notes[i], 2, &writer, &err), INVALID,
                     texts[i]);
        assert_null(writer);
    }
    assert_int_equal(files_left(), 0);
}

static void headers_have_a_limit(void **state) {
    (void)state;
    size_t length = FERRY_SAFETENSORS_HEADER_MAX;
    char *value = malloc(length + 1);
    assert_non_null(value);
    memset(value, 'x', length);
    value[length] = '\0';
    const ferry_file_note_t note = {"k", value};
    ferry_safetensors_writer_t *writer = NULL;
    assert_fails(ferry_safetensors_create(path, NULL, 0, &note, 1, &writer, &err), OVERFLOW,
                 "the format allows 104857600");
    assert_null(writer);
    assert_int_equal(files_left(), 0);
    free(value);
}

static ferry_safetensors_writer_t *start_one(void) {
    const uint64_t shape[] = {10};
    const ferry_new_tensor_t tensors[] = {{"a", FERRY_U8, NULL, 1, shape, 0},
                                          {"b", FERRY_F16, NULL, 1, shape, 0}};
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(path, tensors, 2, NULL, 0, &writer, &err));
    return writer;
}

static void puts_stay_in_their_tensor(void **state) {
    (void)state;
    ferry_safetensors_writer_t *writer = start_one();
    const uint8_t bytes[32] = {0};
    assert_ok(ferry_safetensors_put(writer, 1, 20, NULL, 0, &err));
    assert_fails(ferry_safetensors_put(writer, 0, 3, bytes, 8, &err), INVALID,
                 "8 bytes at byte 3 of tensor 0, which has 10");
    assert_fails(ferry_safetensors_put(writer, 1, 21, bytes, 0, &err), INVALID, "which has 20");
    assert_fails(ferry_safetensors_put(writer, 0, UINT64_MAX, bytes, 2, &err), INVALID, path);
    assert_fails(ferry_safetensors_put(writer, 2, 0, bytes, 1, &err), INVALID,
                 "no tensor 2: there are 2");
    assert_fails(ferry_safetensors_put(writer, 0, 0, NULL, 1, &err), INVALID, "bytes is NULL");
    ferry_safetensors_abandon(writer);
    ferry_safetensors_abandon(NULL);
    assert_int_equal(files_left(), 0);
}

static void what_stands_stays_until_the_commit(void **state) {
    (void)state;
    write_file("old", 3);
    FILE *stale = fopen(part, "wb"); /* of a run that was killed */
    assert_non_null(stale);
    assert_int_equal(fwrite("left over, and longer than the new one will be", 1, 46, stale), 46);
    (void)fclose(stale);
    ferry_safetensors_writer_t *writer = start_one();
    ferry_safetensors_abandon(writer);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3);
    assert_false(is_there(part));
    writer = start_one();
    assert_ok(ferry_safetensors_commit(writer, &err));
    ferry_safetensors_t *file = NULL;
    assert_ok(ferry_safetensors_open(path, &file, &err));
    uint8_t bytes[10];
    assert_ok(
        ferry_safetensors_read(file, ferry_safetensors_find(file, "a")->offset, bytes, 10, &err));
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0); /* never put */
    }
    ferry_safetensors_close(file);
    (void)unlink(path);
}

static void places_that_cannot_be_written(void **state) {
    (void)state;
    ferry_safetensors_writer_t *writer = NULL;
    char elsewhere[128];
    (void)snprintf(elsewhere, sizeof elsewhere, "%s/none/t", folder);
    assert_fails(ferry_safetensors_create(elsewhere, NULL, 0, NULL, 0, &writer, &err), IO,
                 "/none/t.part: cannot make (No such file");
    assert_fails(ferry_safetensors_create(NULL, NULL, 0, NULL, 0, &writer, &err), INVALID,
                 "path is NULL");
    assert_fails(ferry_safetensors_create(path, NULL, 1, NULL, 0, &writer, &err), INVALID,
                 "tensors is NULL");
    assert_fails(ferry_safetensors_create(path, NULL, 0, NULL, 0, NULL, &err), INVALID,
                 "writer_p is NULL");
    assert_int_equal(mkdir(part, 0700), 0);
    assert_fails(ferry_safetensors_create(path, NULL, 0, NULL, 0, &writer, &err), IO,
                 ".part: cannot replace");
    assert_int_equal(rmdir(part), 0);
    assert_null(writer);
    /* A folder in the way is found by the rename. */
    assert_int_equal(mkdir(path, 0700), 0);
    writer = start_one();
    assert_fails(ferry_safetensors_commit(writer, &err), IO, "cannot rename to its final name");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(files_left(), 0);
    assert_fails(ferry_safetensors_commit(NULL, &err), INVALID, "writer is NULL");
}

/* More than any disk of today has: refused at once, with errno, and nothing stays. */
static void too_large_is_found_early(void **state) {
    (void)state;
    const uint64_t shape[] = {UINT64_C(1) << 58};
    const ferry_new_tensor_t tensor = {"a", FERRY_U8, NULL, 1, shape, 0};
    ferry_safetensors_writer_t *writer = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(ferry_safetensors_create(path, &tensor, 1, NULL, 0, &writer, &err), FERRY_IO);
    assert_true(err.sys_errno == ENOSPC || err.sys_errno == EFBIG);
    assert_non_null(strstr(err.text, "no room for 288230376151711"));
    assert_null(writer);
    assert_int_equal(files_left(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_texts),
        cmocka_unit_test(every_dtype_comes_back),
        cmocka_unit_test(header_is_as_described),
        cmocka_unit_test(nothing_is_a_file_too),
        cmocka_unit_test(foreign_headers_are_read),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(files_that_cannot_be_opened),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(places_are_checked),
        cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(forms_are_checked),
        cmocka_unit_test(duplicates_are_refused),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(reads_stay_in_the_file),
        cmocka_unit_test(threads_share_a_mapping),
        cmocka_unit_test(bad_tensors_are_not_written),
        cmocka_unit_test(bad_notes_are_not_written),
        cmocka_unit_test(headers_have_a_limit),
        cmocka_unit_test(puts_stay_in_their_tensor),
        cmocka_unit_test(what_stands_stays_until_the_commit),
        cmocka_unit_test(places_that_cannot_be_written),
        cmocka_unit_test(too_large_is_found_early),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
