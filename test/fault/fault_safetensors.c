/* fault_safetensors.c - the n-th call that can fail, allocations included, goes wrong while a file is written or
 * read, for n = 1, 2, ... until there is no n-th call any more.
 *
 * The program is linked with --wrap, so that the library's calls of the system come here. Three things may happen:
 *
 *   it fails          one record with the file and errno; what stood under the name before stands there still, no
 *                     other file stays, no descriptor and no memory is lost
 *   it is broken off  by a signal, or does less than asked: nobody notices
 *   it does nothing   a file that has become shorter is FERRY_CORRUPT; a write that writes nothing, FERRY_IO */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/safetensors.h>

#include "oracle/unit.h"

/* --- the n-th call -------------------------------------------------------------------------------- */

enum {
    CALL_ALLOC = 1 << 0,
    CALL_OPEN = 1 << 1,
    CALL_STAT = 1 << 2,
    CALL_READ = 1 << 3,
    CALL_WRITE = 1 << 4,
    CALL_RESERVE = 1 << 5,
    CALL_TRUNCATE = 1 << 6,
    CALL_SYNC = 1 << 7,
    CALL_CLOSE = 1 << 8,
    CALL_RENAME = 1 << 9,
    CALL_UNLINK = 1 << 10,
    CALL_MAP = 1 << 11,
    CALL_ANY = (1 << 12) - 1,
    CALL_LONG = CALL_READ | CALL_WRITE | CALL_RESERVE | CALL_TRUNCATE | CALL_SYNC,
};

typedef enum harm { HARM_FAIL, HARM_BREAK_OFF, HARM_SHORT, HARM_NOTHING } harm_t;

static struct {
    bool on;
    harm_t harm;
    unsigned calls;  /* that count */
    long left;       /* until it strikes */
    unsigned struck; /* the call that it was, or 0 */
    bool no_fallocate;
} fault;

static long live; /* allocations that were not freed */

static bool strikes(unsigned call) {
    if (!fault.on || (fault.calls & call) == 0 || --fault.left != 0) {
        return false;
    }
    fault.struck = call;
    return true;
}

/* What errno says when a call of this kind fails. */
static int number_of(unsigned call) {
    return (call & (CALL_WRITE | CALL_RESERVE | CALL_TRUNCATE)) != 0 ? ENOSPC : EIO;
}

/* Whether the call goes wrong; then errno is set. */
static bool fails(unsigned call) {
    if (!strikes(call)) {
        return false;
    }
    errno = fault.harm == HARM_BREAK_OFF ? EINTR : number_of(call);
    return true;
}

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAPPED(void *, malloc, size_t size) {
    void *memory = fails(CALL_ALLOC) ? NULL : __real_malloc(size);
    live += memory != NULL;
    return memory;
}

WRAPPED(void *, calloc, size_t count, size_t size) {
    void *memory = fails(CALL_ALLOC) ? NULL : __real_calloc(count, size);
    live += memory != NULL;
    return memory;
}

WRAPPED(void *, realloc, void *memory, size_t size) {
    if (fails(CALL_ALLOC)) {
        return NULL;
    }
    void *grown = __real_realloc(memory, size);
    live += memory == NULL && grown != NULL;
    return grown;
}

WRAPPED(void, free, void *memory) {
    live -= memory != NULL;
    __real_free(memory);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    return fails(CALL_OPEN) ? -1 : __real_open(path, flags, 0644);
}

WRAPPED(int, fstat, int fd, struct stat *info) {
    return fails(CALL_STAT) ? -1 : __real_fstat(fd, info);
}

WRAPPED(ssize_t, pread, int fd, void *target, size_t bytes, off_t offset) {
    if (fails(CALL_READ)) {
        return fault.harm == HARM_NOTHING ? 0
               : fault.harm == HARM_SHORT ? __real_pread(fd, target, 1, offset)
                                          : -1;
    }
    return __real_pread(fd, target, bytes, offset);
}

WRAPPED(ssize_t, pwrite, int fd, const void *source, size_t bytes, off_t offset) {
    if (fails(CALL_WRITE)) {
        return fault.harm == HARM_NOTHING ? 0
               : fault.harm == HARM_SHORT ? __real_pwrite(fd, source, 1, offset)
                                          : -1;
    }
    return __real_pwrite(fd, source, bytes, offset);
}

WRAPPED(int, fallocate, int fd, int mode, off_t offset, off_t bytes) {
    if (fails(CALL_RESERVE)) {
        return -1;
    }
    if (fault.no_fallocate) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_fallocate(fd, mode, offset, bytes);
}

WRAPPED(int, ftruncate, int fd, off_t bytes) {
    return fails(CALL_TRUNCATE) ? -1 : __real_ftruncate(fd, bytes);
}

WRAPPED(int, fsync, int fd) {
    return fails(CALL_SYNC) ? -1 : __real_fsync(fd);
}

WRAPPED(int, close, int fd) {
    int result = __real_close(fd); /* Linux closes it even when it complains */
    return fails(CALL_CLOSE) ? -1 : result;
}

WRAPPED(int, rename, const char *from, const char *to) {
    return fails(CALL_RENAME) ? -1 : __real_rename(from, to);
}

WRAPPED(int, unlink, const char *path) {
    return fails(CALL_UNLINK) ? -1 : __real_unlink(path);
}

static ferry_safetensors_t
    *raced; /* while one thread maps this file, another one does so too, and is first */
static const uint8_t *first;
static long mapped_now;

WRAPPED(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (fails(CALL_MAP)) {
        return MAP_FAILED;
    }
    if (raced != NULL) {
        ferry_safetensors_t *file = raced;
        raced = NULL;
        assert_int_equal(ferry_safetensors_map(file, &first, NULL), FERRY_OK);
    }
    mapped_now++;
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

WRAPPED(int, munmap, void *at, size_t bytes) {
    mapped_now--;
    return __real_munmap(at, bytes);
}

/* --- what is tried -------------------------------------------------------------------------------- */

enum { TENSORS = 40, BYTES = 100 }; /* so many that every list and the index of names grow */

static char folder[] = "/tmp/ferry-st-XXXXXX";
static char path[64];
static char names[TENSORS][16];

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/t.safetensors", folder);
    for (size_t i = 0; i < TENSORS; i++) {
        (void)snprintf(names[i], sizeof names[i], "tensor.%zu", i);
    }
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static int entries_of(const char *name) {
    DIR *dir = opendir(name);
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        count += e->d_name[0] != '.';
    }
    (void)closedir(dir);
    return count;
}

/* Tensor `i` holds i, i + 1, ... */
static void fill(uint8_t *bytes, size_t i) {
    for (size_t at = 0; at < BYTES; at++) {
        bytes[at] = (uint8_t)(i + at);
    }
}

static ferry_status_t put_all(ferry_safetensors_writer_t *writer, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < TENSORS && status == FERRY_OK; i++) {
        uint8_t bytes[BYTES];
        fill(bytes, i);
        status = ferry_safetensors_put(writer, i, 0, bytes, BYTES, err);
    }
    return status;
}

static ferry_status_t write_one(ferry_error_t *err) {
    static const uint64_t shape[] = {BYTES};
    ferry_new_tensor_t tensors[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (ferry_new_tensor_t){names[i], FERRY_U8, NULL, 1, shape, 0};
    }
    const ferry_file_note_t note = {"k", "v"};
    ferry_safetensors_writer_t *writer = NULL;
    ferry_status_t status =
        ferry_safetensors_create(path, tensors, TENSORS, &note, 1, &writer, err);
    if (status != FERRY_OK) {
        assert_null(writer);
        return status;
    }
    status = put_all(writer, err);
    if (status != FERRY_OK) {
        ferry_safetensors_abandon(writer);
        return status;
    }
    return ferry_safetensors_commit(writer, err);
}

static ferry_status_t read_all(const ferry_safetensors_t *file, const uint8_t *mapped,
                               ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < TENSORS && status == FERRY_OK; i++) {
        const ferry_file_tensor_t *tensor = ferry_safetensors_find(file, names[i]);
        assert_non_null(tensor);
        uint8_t bytes[BYTES];
        uint8_t expected[BYTES];
        fill(expected, i);
        status = ferry_safetensors_read(file, tensor->offset, bytes, BYTES, err);
        if (status == FERRY_OK) {
            assert_memory_equal(bytes, expected, BYTES);
        }
        assert_memory_equal(mapped + tensor->offset, expected, BYTES);
    }
    return status;
}

static ferry_status_t read_one(ferry_error_t *err) {
    ferry_safetensors_t *file = NULL;
    const uint8_t *mapped = NULL;
    ferry_status_t status = ferry_safetensors_open(path, &file, err);
    assert_true((status == FERRY_OK) == (file != NULL));
    if (status == FERRY_OK) {
        status = ferry_safetensors_map(file, &mapped, err);
    }
    if (status == FERRY_OK) {
        assert_string_equal(ferry_safetensors_note(file, "k"), "v");
        status = read_all(file, mapped, err);
    }
    ferry_safetensors_close(file);
    return status;
}

/* --- how it must end -------------------------------------------------------------------------------- */

/* Runs once with the n-th of the calls harmed. */
static ferry_status_t run(ferry_status_t (*what)(ferry_error_t *), harm_t harm, unsigned calls,
                          long n, ferry_error_t *err) {
    int descriptors = entries_of("/proc/self/fd");
    long before = live;
    fault.harm = harm;
    fault.calls = calls;
    fault.left = n;
    fault.struck = 0;
    fault.on = true;
    ferry_status_t status = what(err);
    fault.on = false;
    assert_int_equal(live, before);
    assert_int_equal(entries_of("/proc/self/fd"), descriptors);
    return status;
}

static void check_record(ferry_status_t status, const ferry_error_t *err) {
    assert_int_equal(err->status, status);
    if (fault.struck == CALL_ALLOC) {
        assert_int_equal(status, FERRY_NOMEM);
        return;
    }
    char line[1024];
    (void)ferry_error_format(err, line, sizeof line);
    assert_int_equal(status, FERRY_IO);
    assert_int_equal(err->sys_errno, number_of(fault.struck));
    assert_non_null(strstr(line, folder));
    assert_non_null(strstr(line, strerror(number_of(fault.struck))));
}

static void write_text(const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    (void)fclose(file);
}

/* The file is the whole new one. */
static void check_new(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(read_one(&err), FERRY_OK);
    assert_int_equal(entries_of(folder), 1);
}

static void check_old(void) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 3);
    assert_int_equal(entries_of(folder), 1); /* no .part */
}

static void fail_each_write(void) {
    bool renamed = false;
    unsigned seen[2] = {0, 0}; /* before and after the rename */
    long n = 1;
    for (;; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        write_text("old");
        ferry_status_t status = run(write_one, HARM_FAIL, CALL_ANY, n, &err);
        if (fault.struck == 0) {
            assert_int_equal(status, FERRY_OK);
            check_new();
            break;
        }
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        renamed = renamed || info.st_size != 3;
        seen[renamed] |= fault.struck;
        if (renamed && fault.struck == CALL_CLOSE && status == FERRY_OK) {
            check_new(); /* the folder was synced, and closing it means nothing any more */
            continue;
        }
        check_record(status, &err);
        if (renamed) {
            assert_non_null(strstr(err.text, "folder"));
            check_new();
        } else {
            check_old();
        }
    }
    assert_true(n > TENSORS + 15); /* puts, allocations, and the calls around them */
    unsigned reserve = fault.no_fallocate ? CALL_RESERVE | CALL_TRUNCATE : CALL_RESERVE;
    assert_int_equal(seen[0], CALL_ALLOC | CALL_UNLINK | CALL_OPEN | reserve | CALL_WRITE |
                                  CALL_SYNC | CALL_CLOSE | CALL_RENAME);
    assert_int_equal(seen[1], CALL_ALLOC | CALL_OPEN | CALL_SYNC | CALL_CLOSE);
}

static void every_call_of_a_write_may_fail(void **state) {
    (void)state;
    fault.no_fallocate = false;
    fail_each_write();
    fault.no_fallocate = true;
    fail_each_write();
    fault.no_fallocate = false;
}

static void every_call_of_a_read_may_fail(void **state) {
    (void)state;
    ferry_error_t ignored = FERRY_ERROR_INIT;
    assert_int_equal(write_one(&ignored), FERRY_OK);
    unsigned seen = 0;
    for (long n = 1;; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = run(read_one, HARM_FAIL, CALL_ANY, n, &err);
        seen |= fault.struck;
        if (fault.struck == 0) {
            assert_int_equal(status, FERRY_OK);
            break;
        }
        if (fault.struck == CALL_CLOSE) {
            assert_int_equal(status, FERRY_OK); /* nothing was written */
        } else {
            check_record(status, &err);
        }
    }
    assert_int_equal(seen, CALL_ALLOC | CALL_OPEN | CALL_STAT | CALL_READ | CALL_MAP | CALL_CLOSE);
}

/* Each call that may be broken off or do less, one by one: nothing shows. */
static void unnoticed(ferry_status_t (*what)(ferry_error_t *), harm_t harm, unsigned calls,
                      long least) {
    for (long n = 1;; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(run(what, harm, calls, n, &err), FERRY_OK);
        check_new();
        if (fault.struck == 0) {
            assert_true(n > least);
            return;
        }
    }
}

static void broken_off_calls_are_carried_on(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fault.no_fallocate = plain == 1;
        unnoticed(write_one, HARM_BREAK_OFF, CALL_LONG, TENSORS + 3 + plain);
    }
    fault.no_fallocate = false;
    unnoticed(read_one, HARM_BREAK_OFF, CALL_LONG, TENSORS);
    unnoticed(write_one, HARM_SHORT, CALL_WRITE, TENSORS);
    unnoticed(read_one, HARM_SHORT, CALL_READ, TENSORS);
}

static void calls_that_do_nothing_end(void **state) {
    (void)state;
    for (long n = 1; n <= TENSORS + 2; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(run(read_one, HARM_NOTHING, CALL_READ, n, &err), FERRY_CORRUPT);
        assert_non_null(strstr(err.text, "bytes too early"));
    }
    for (long n = 1; n <= TENSORS + 1; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        write_text("old");
        assert_int_equal(run(write_one, HARM_NOTHING, CALL_WRITE, n, &err), FERRY_IO);
        assert_non_null(strstr(err.text, "cannot write"));
        check_old();
    }
}

static void the_first_mapping_stays(void **state) {
    (void)state;
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(write_one(&err), FERRY_OK);
    ferry_safetensors_t *file = NULL;
    assert_int_equal(ferry_safetensors_open(path, &file, &err), FERRY_OK);
    const uint8_t *second = NULL;
    raced = file;
    assert_int_equal(ferry_safetensors_map(file, &second, &err), FERRY_OK);
    assert_null(raced);
    assert_ptr_equal(first, second);
    assert_int_equal(mapped_now, 1);
    ferry_safetensors_close(file);
    assert_int_equal(mapped_now, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_a_write_may_fail),
        cmocka_unit_test(every_call_of_a_read_may_fail),
        cmocka_unit_test(broken_off_calls_are_carried_on),
        cmocka_unit_test(calls_that_do_nothing_end),
        cmocka_unit_test(the_first_mapping_stays),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
