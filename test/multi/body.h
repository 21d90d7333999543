/* body.h - tests that run on the ranks of a world, whatever the ranks are.
 *
 * A body is a ferry_rank_fn_t that fails with EXPECT instead of cmocka's asserts, since it may run in a
 * thread or in another process; run_as starts it as threads, as forked processes or as processes that
 * meet at a socket, and tells each rank's result. Nothing here can hang: the socket's ranks die with
 * the test, and body_main sets an alarm. */
#ifndef FERRY_TEST_MULTI_BODY_H
#define FERRY_TEST_MULTI_BODY_H

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/mem.h>
#include <ferry/world.h>

typedef enum body_kind {
    AS_THREADS,
    AS_PROCESSES,
    AS_SOCKET,
} body_kind_t;

#define BODY_KINDS 3

static inline ferry_status_t body_fail(ferry_error_t *err, int line, const char *text) {
    ferry_error_clear(err);
    err->status = FERRY_CHECK;
    (void)snprintf(err->text, sizeof err->text, "line %d: not so: %s", line, text);
    return FERRY_CHECK;
}

/* In a body: the test fails, on this rank. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return body_fail(err, __LINE__, #condition);                                           \
        }                                                                                          \
    } while (0)

/* In a body: a call that must succeed. */
#define GOOD(call)                                                                                 \
    do {                                                                                           \
        ferry_status_t good_status = (call);                                                       \
        if (good_status != FERRY_OK) {                                                             \
            return good_status;                                                                    \
        }                                                                                          \
    } while (0)

/* splitmix64 */
static inline uint64_t body_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t body_below(uint64_t *state, uint64_t limit) {
    return body_random(state) % limit;
}

static inline double body_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void body_sleep(double seconds) {
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {
    }
}

static inline _Noreturn void body_socket_rank(const char *path, uint32_t rank, uint32_t size,
                                              ferry_rank_fn_t fn, void *context,
                                              const ferry_world_params_t *params,
                                              ferry_rank_result_t *result) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    ferry_world_t *world = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_join(path, rank, size, params, &world, &err);
    if (status == FERRY_OK) {
        status = fn(world, context, &err);
        if (status != FERRY_OK) {
            err.status = status;
            (void)ferry_world_fail(world, &err, NULL);
        }
        ferry_world_leave(world);
    }
    result->status = status;
    result->error = err;
    (void)fflush(NULL);
    _exit(status == FERRY_OK ? 0 : 1);
}

/* A path for a socket that no other test uses. */
static inline void body_path(char *path, size_t cap) {
    static unsigned count;
    (void)snprintf(path, cap, "/tmp/ferry-test-%d-%u.sock", (int)getpid(), count++);
}

static inline void body_reap(pid_t pid, ferry_rank_result_t *result) {
    int status = 0;
    (void)waitpid(pid, &status, 0);
    result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (result->signal != 0) {
        result->status = FERRY_DEAD;
    }
}

static inline ferry_status_t body_run_socket(uint32_t size, ferry_rank_fn_t fn, void *context,
                                             const ferry_world_params_t *params,
                                             ferry_rank_result_t *results, ferry_error_t *err) {
    char path[64];
    body_path(path, sizeof path);
    size_t bytes = size * sizeof *results;
    ferry_rank_result_t *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pids[64];
    (void)fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank = size - 1 - i; /* rank 0 comes last */
        pids[rank] = fork();
        if (pids[rank] == 0) {
            body_socket_rank(path, rank, size, fn, context, params, &shared[rank]);
        }
    }
    ferry_status_t status = FERRY_OK;
    for (uint32_t rank = 0; rank < size; rank++) {
        body_reap(pids[rank], &shared[rank]);
        if (status == FERRY_OK && shared[rank].status != FERRY_OK) {
            status = shared[rank].status;
            *err = shared[rank].error;
        }
    }
    memcpy(results, shared, bytes);
    (void)munmap(shared, bytes);
    assert_int_not_equal(access(path, F_OK), 0);
    return status;
}

static inline ferry_status_t run_as(body_kind_t kind, uint32_t size, ferry_rank_fn_t fn,
                                    void *context, const ferry_world_params_t *params,
                                    ferry_rank_result_t *results, ferry_error_t *err) {
    switch (kind) {
    case AS_THREADS:
        return ferry_world_run_threads(size, fn, context, params, results, err);
    case AS_PROCESSES:
        return ferry_world_run_processes(size, fn, context, params, results, err);
    case AS_SOCKET:
        break;
    }
    return body_run_socket(size, fn, context, params, results, err);
}

/* The body must succeed on all ranks. */
static inline void run_well(body_kind_t kind, uint32_t size, ferry_rank_fn_t fn, void *context,
                            const ferry_world_params_t *params) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rank_result_t results[64];
    ferry_status_t status = run_as(kind, size, fn, context, params, results, &err);
    if (status != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        fail_msg("kind %d, %u ranks: %s", (int)kind, size, line);
    }
}

/* How many entries of a folder have the text in their names. */
static inline int body_count_named(const char *folder, const char *text) {
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir != NULL) {
        for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
            count += strstr(entry->d_name, text) != NULL ? 1 : 0;
        }
        (void)closedir(dir);
    }
    return count;
}

static inline int body_count(const char *folder) {
    return body_count_named(folder, "");
}

/* What a test must leave as it found it. */
typedef struct body_traces {
    int descriptors;
    int shared; /* other programs of the machine use that folder, too */
} body_traces_t;

static inline body_traces_t body_look(void) {
    return (body_traces_t){body_count("/proc/self/fd"), body_count_named("/dev/shm", "ferry")};
}

static inline void body_expect_no_trace(body_traces_t before) {
    body_traces_t after = body_look();
    assert_int_equal(before.descriptors, after.descriptors);
    assert_int_equal(before.shared, after.shared);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, not even a dead one */
    assert_int_equal(errno, ECHILD);
}

#endif
