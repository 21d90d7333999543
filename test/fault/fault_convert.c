/* fault_convert.c - conversions that go wrong: killed at any moment, the n-th call of the system or allocation fails, the
 * disk is full, a target is there already. The source stays as it was; the target is absent or whole; nothing else
 * is left; and the next run succeeds.
 *
 * The program is linked with --wrap. What counts the calls is shared with the workers, so that one call fails in one process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ferry/ckpt.h>

#include "oracle/unit.h"
#include "support/ckpt_draw.h"
#include "support/sanitizer.h"
#include "support/soak.h"

/* --- the n-th call ------------------------------------------------------------------------------ */

enum {
    CALL_ALLOC = 1 << 0,
    CALL_OPEN = 1 << 1,
    CALL_WRITE = 1 << 2,
    CALL_RESERVE = 1 << 3,
    CALL_SYNC = 1 << 4,
    CALL_RENAME = 1 << 5,
    CALL_MKDIR = 1 << 6,
    CALL_FILES = (1 << 7) - 1 - CALL_ALLOC,
};

/* In memory that workers share; NULL: nothing fails. */
static struct {
    _Atomic bool on;
    _Atomic unsigned calls; /* that count */
    _Atomic long left;      /* until it strikes */
    _Atomic unsigned struck;
} * fault;

static char root[64]; /* where everything lies */
static long live;     /* allocations of this process that were not freed */

static bool fails(unsigned call) {
    if (fault == NULL || !fault->on || (fault->calls & call) == 0 ||
        atomic_fetch_sub(&fault->left, 1) != 1) {
        return false;
    }
    fault->struck = call;
    errno = (call & (CALL_WRITE | CALL_RESERVE | CALL_MKDIR)) != 0 ? ENOSPC : EIO;
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
    bool ours =
        strncmp(path, root, strlen(root)) == 0; /* workers also ask the system for its cores */
    return ours && fails(CALL_OPEN) ? -1 : __real_open(path, flags, 0644);
}

WRAPPED(ssize_t, pwrite, int fd, const void *source, size_t bytes, off_t offset) {
    return fails(CALL_WRITE) ? -1 : __real_pwrite(fd, source, bytes, offset);
}

WRAPPED(int, fallocate, int fd, int mode, off_t offset, off_t bytes) {
    return fails(CALL_RESERVE) ? -1 : __real_fallocate(fd, mode, offset, bytes);
}

WRAPPED(int, fsync, int fd) {
    return fails(CALL_SYNC) ? -1 : __real_fsync(fd);
}

WRAPPED(int, rename, const char *from, const char *to) {
    return fails(CALL_RENAME) ? -1 : __real_rename(from, to);
}

WRAPPED(int, mkdir, const char *path, mode_t mode) {
    return fails(CALL_MKDIR) ? -1 : __real_mkdir(path, mode);
}

/* --- what is tried ------------------------------------------------------------------------------ */

static char source[128];
static char target[128];
static ckpt_model_t model;

static void (*told)(void *context, const ferry_convert_progress_t *progress); /* or NULL */

static void make_source(uint64_t head_dim) {
    ckpt_remove(source);
    ckpt_model_fini(&model);
    ckpt_small_llama(&model, head_dim);
    ckpt_write_folder(&model, source, 2);
    ckpt_text(source, "tokenizer.json", "{}");
}

static int make_root(void **state) {
    (void)state;
    ckpt_temp(root);
    (void)snprintf(source, sizeof source, "%s/source", root);
    (void)snprintf(target, sizeof target, "%s/target", root);
    make_source(2);
    fault = mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return fault == MAP_FAILED ? -1 : 0;
}

static int remove_root(void **state) {
    (void)state;
    ckpt_model_fini(&model);
    ckpt_remove(root);
    return 0;
}

static int clear(void **state) {
    (void)state;
    ckpt_remove(target);
    return 0;
}

/* Opens the source and converts it to `path`: to two ranks, or, for tp = 0, to whole tensors. */
static ferry_status_t convert(const char *path, uint32_t tp, uint32_t workers, bool force,
                              ferry_error_t *err) {
    ferry_folder_t *folder = NULL;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = tp > 0 ? FERRY_FOLDER_RANKS : FERRY_FOLDER_HF;
    params.parallel.tp = tp > 0 ? tp : 1;
    params.workers = workers;
    params.force = force;
    params.memory_bytes = 1 << 20;
    params.file_bytes = 3000;
    params.progress = told;
    ferry_status_t status = ferry_folder_open(source, NULL, &folder, err);
    if (status == FERRY_OK) {
        status = ferry_convert(folder, path, &params, NULL, err);
    }
    ferry_folder_close(folder);
    return status;
}

static void source_is_as_it_was(void) {
    ckpt_model_t read = {.count = 0};
    ckpt_read_folder(&read, source);
    assert_null(ckpt_difference(&model, &read));
    ckpt_model_fini(&read);
    assert_int_equal(ckpt_entries(source, ""), 5); /* two files, index, config, tokenizer */
}

static void target_is_whole(void) {
    ferry_folder_t *a = NULL;
    ferry_folder_t *b = NULL;
    assert_ok(ferry_folder_open(source, NULL, &a, &err));
    assert_ok(ferry_folder_open(target, NULL, &b, &err));
    assert_ok(ferry_verify(a, b, NULL, NULL, &err));
    ferry_folder_close(a);
    ferry_folder_close(b);
    assert_int_equal(ckpt_entries(target, ".part"), 0);
    assert_int_equal(ckpt_entries(target, "tokenizer.json"), 1);
}

/* Nothing beside them. */
static void only_source_and(size_t more) {
    assert_int_equal(ckpt_entries(root, "source"), 1);
    assert_int_equal(ckpt_entries(root, ""), 1 + more);
}

/* --- calls that fail ------------------------------------------------------------------------------ */

static ferry_status_t run(uint32_t tp, bool force, unsigned calls, long n, ferry_error_t *err) {
    size_t descriptors = ckpt_entries("/proc/self/fd", "");
    long before = live;
    fault->calls = calls;
    fault->left = n;
    fault->struck = 0;
    fault->on = true;
    ferry_status_t status = convert(target, tp, 1, force, err);
    fault->on = false;
    assert_int_equal(live, before);
    assert_int_equal(ckpt_entries("/proc/self/fd", ""), descriptors);
    return status;
}

static void check_failure(ferry_status_t status, const ferry_error_t *err, long n) {
    unsigned struck = fault->struck;
    char line[1024];
    (void)ferry_error_format(err, line, sizeof line);
    bool memory = struck == CALL_ALLOC || strstr(line, "for the world") != NULL;
    ferry_status_t expected = memory ? FERRY_NOMEM : FERRY_IO;
    bool named = memory || strstr(line, root) != NULL;
    if (status != expected || err->status != status || !named) {
        fail_msg("call %ld (kind %#x): %s: %s", n, struck, ferry_status_name(status), line);
    }
}

/* With every n-th of the calls failing. `there`: a target that is to be replaced. */
static void fail_each(uint32_t tp, bool there, unsigned calls, long least, long step) {
    bool named = false;
    long n = 1;
    for (;; n += step) {
        ckpt_remove(target);
        if (there) {
            assert_ok(convert(target, 1, 1, false, &err));
        }
        ferry_error_t record = FERRY_ERROR_INIT;
        ferry_status_t status = run(tp, there, calls, n, &record);
        if (fault->struck == 0) {
            assert_int_equal(status, FERRY_OK);
            break;
        }
        check_failure(status, &record, n);
        named = named || (there ? ckpt_entries(target, "rank-") != 1 : ckpt_exists(target));
        only_source_and(there || named ? 1 : 0);
        if (there || named) {
            target_is_whole(); /* the old one, or the new one that only was not synced */
        }
    }
    assert_true(n > least);
    target_is_whole();
    only_source_and(1);
    source_is_as_it_was();
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    fail_each(2, false, CALL_ALLOC, 100, SANITIZED ? 5 : 1);
    fail_each(0, false, CALL_ALLOC, 50, SANITIZED ? 5 : 1);
}

static void every_call_on_files_may_fail(void **state) {
    (void)state;
    fail_each(2, false, CALL_FILES, 25, 1);
    fail_each(0, false, CALL_FILES, 25, 1);
    fail_each(2, true, CALL_FILES, 25, 1);
}

/* --- death ------------------------------------------------------------------------------------------ */

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Converts in a process of its own and kills it after a while; true when that came before its end. Returns when
 * the workers are gone, too: they hold the other end of a pipe. */
static bool kill_after(uint64_t us, uint32_t tp, bool force) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        _exit(convert(target, tp, 2, force, NULL) == FERRY_OK ? 0 : 1);
    }
    assert_true(pid > 0);
    (void)close(ends[1]);
    struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    (void)nanosleep(&wait, NULL);
    (void)kill(pid, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 10000), 1); /* else workers outlive it */
    (void)close(ends[0]);
    return WIFSIGNALED(status);
}

static void killed_at_any_moment(void **state) {
    (void)state;
    make_source(SANITIZED ? 16 : 64);
    uint64_t whole_us = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t begin = now_us();
        assert_ok(convert(target, 2, 2, true, &err));
        uint64_t took = now_us() - begin;
        whole_us = took < whole_us ? took : whole_us;
    }
    uint64_t rng = 1;
    long killed = 0;
    long absent = 0;
    long count = soak_count(50, 1000);
    for (long i = 0; i < count; i++) {
        bool force = i % 2 == 1;
        if (force && !ckpt_exists(target)) {
            assert_ok(convert(target, 1, 1, false, &err));
        } else if (!force) {
            ckpt_remove(target);
        }
        killed += kill_after(ckpt_below(&rng, whole_us * 6 / 5), 2 + (uint32_t)(i % 3), force);
        source_is_as_it_was();
        absent += !ckpt_exists(target);
        if (ckpt_exists(target)) {
            target_is_whole();
        }
        assert_ok(convert(target, 2, 2, true, &err));
        target_is_whole();
        only_source_and(1);
    }
    print_message("of %ld, %ld were killed, %ld left no target; a whole run takes %" PRIu64 " us\n",
                  count, killed, absent, whole_us);
    assert_true(killed >= count / 10 && absent > 0); /* else it tries too little */
    make_source(2);
}

static pid_t parent;

static void die_at_work(void *context, const ferry_convert_progress_t *progress) {
    (void)context;
    (void)progress;
    if (getpid() != parent) {
        (void)raise(SIGKILL);
    }
}

/* Progress is told by a worker, which does not survive it. */
static void a_worker_dies(void **state) {
    (void)state;
    parent = getpid();
    for (uint32_t workers = 1; workers <= 3; workers++) {
        told = die_at_work;
        ferry_error_t record = FERRY_ERROR_INIT;
        ferry_status_t status = convert(target, 2, workers, false, &record);
        told = NULL;
        /* Of several workers the first may find nothing left to do, and live. */
        assert_true(status == FERRY_DEAD || (workers > 1 && status == FERRY_OK));
        assert_int_equal(record.status, status);
        only_source_and(status == FERRY_OK ? 1 : 0);
        ckpt_remove(target);
    }
    source_is_as_it_was();
}

/* --- a full disk ---------------------------------------------------------------------------------- */

/* In a process of its own: 77 where it may not mount, 0 when all is as it should be. */
static int fill_a_disk(void) {
    char small[128];
    char inside[160];
    (void)snprintf(small, sizeof small, "%s/small", root);
    (void)snprintf(inside, sizeof inside, "%s/target", small);
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", small, "tmpfs", 0, "size=64k") != 0) {
        return 77;
    }
    for (uint32_t tp = 0; tp < 3; tp += 2) {
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = convert(inside, tp, 1, false, &err);
        if (status != FERRY_IO || err.sys_errno != ENOSPC || ckpt_entries(small, "") != 0) {
            (void)fprintf(stderr, "%s %s\n", ferry_status_name(status), err.text);
            return 1;
        }
    }
    return 0;
}

static void full_disk(void **state) {
    (void)state;
    char small[128];
    (void)snprintf(small, sizeof small, "%s/small", root);
    make_source(16);
    assert_int_equal(__real_mkdir(small, 0777), 0);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(fill_a_disk());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ckpt_remove(small);
    make_source(2);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no small disk can be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- a target that is there ----------------------------------------------------------------------- */

static void targets_that_are_there(void **state) {
    (void)state;
    char full[160];
    assert_int_equal(__real_mkdir(target, 0777), 0);
    assert_ok(convert(target, 2, 1, false, &err)); /* an empty one is fine */
    target_is_whole();
    assert_fails(convert(target, 4, 1, false, &err), INVALID, "is there already");
    assert_int_equal(ckpt_entries(target, "of-00002"), 2);
    only_source_and(1);
    (void)snprintf(full, sizeof full, "%s/", target);
    assert_ok(convert(full, 4, 1, true, &err));
    assert_int_equal(ckpt_entries(target, "of-00004"), 4);
    assert_int_equal(ckpt_entries(target, "of-00002"), 0);
    target_is_whole();
    only_source_and(1);
}

static void targets_that_are_not_ours(void **state) {
    (void)state;
    char inside[160];
    (void)snprintf(inside, sizeof inside, "%s/precious", target);
    assert_int_equal(__real_mkdir(target, 0777), 0);
    assert_int_equal(__real_mkdir(inside, 0777), 0);
    assert_fails(convert(target, 2, 1, true, &err), INVALID, "precious");
    assert_true(ckpt_exists(inside));
    ckpt_remove(target);
    ckpt_text(root, "target", "a file");
    assert_fails(convert(target, 2, 1, true, &err), INVALID, "no folder");
    assert_fails(convert(target, 2, 1, false, &err), INVALID, "target");
    only_source_and(1);
    ckpt_remove(target);
    assert_fails(convert(source, 2, 1, true, &err), INVALID, "the source itself");
    assert_fails(convert("/proc/nowhere/target", 2, 1, false, &err), IO, "/proc/nowhere/target");
    only_source_and(0);
    source_is_as_it_was();
}

/* What a killed run left, even when another tool wrote into it. */
static void leftovers_go(void **state) {
    (void)state;
    char part[160];
    (void)snprintf(part, sizeof part, "%s.ferry-part", target);
    assert_int_equal(__real_mkdir(part, 0777), 0);
    ckpt_text(part, "rank-00007-of-00008.safetensors", "old");
    (void)snprintf(part, sizeof part, "%s.ferry-old", target);
    assert_int_equal(__real_mkdir(part, 0777), 0);
    ckpt_text(part, "ferry.json", "old");
    assert_ok(convert(target, 2, 2, false, &err));
    target_is_whole();
    only_source_and(1);
    assert_int_equal(ckpt_entries(target, "00007"), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, clear)
    const struct CMUnitTest tests[] = {
        TEST(every_allocation_may_fail),
        TEST(every_call_on_files_may_fail),
        TEST(killed_at_any_moment),
        TEST(a_worker_dies),
        TEST(full_disk),
        TEST(targets_that_are_there),
        TEST(targets_that_are_not_ours),
        TEST(leftovers_go),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
