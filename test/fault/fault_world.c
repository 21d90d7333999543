/* fault_world.c - ranks that die, stop, leave, fork or run out of memory: no hang, no leak, and the
 * right record everywhere.
 *
 * The allocator is compiled into this program a second time, with a fault point; the linker then leaves
 * the library's own out. */
#include <fcntl.h>
#include <stdatomic.h>

#include "multi/body.h"
#include "support/soak.h"
#include "world/world.h"

static _Atomic long fail_after = -1; /* so many more succeed, then none does; -1: all do */

static bool fails(void) {
    long left = atomic_load(&fail_after);
    while (left > 0 && !atomic_compare_exchange_weak(&fail_after, &left, left - 1)) {
    }
    return left == 0;
}

static void *test_malloc_or_not(size_t size) {
    return fails() ? NULL : malloc(size);
}

static void *test_calloc_or_not(size_t count, size_t size) {
    return fails() ? NULL : calloc(count, size);
}

static void *test_realloc_or_not(void *old, size_t size) {
    return fails() ? NULL : realloc(old, size);
}

#define malloc test_malloc_or_not
#define calloc test_calloc_or_not
#define realloc test_realloc_or_not
#include "../../src/base/memory.c" // NOLINT(bugprone-suspicious-include)
#undef malloc
#undef calloc
#undef realloc

typedef struct plot {
    uint32_t victim;
    uint64_t seed;
    long after_us;
    int exit_code;
} plot_t;

/* SIGKILL at some time from now, wherever this process then is. */
static void die_after(long microseconds) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {0, 1000 * (microseconds + 1)}};
    timer_t timer;
    (void)timer_create(CLOCK_MONOTONIC, &event, &timer);
    (void)timer_settime(timer, 0, &when, NULL);
}

/* Exchanges of all sorts until one fails. */
static ferry_status_t chatter(ferry_world_t *world, uint64_t seed, ferry_error_t *err) {
    uint8_t bytes[40000] = {0};
    for (;;) {
        ferry_status_t status = FERRY_OK;
        ferry_blobs_t *blobs = NULL;
        switch (body_below(&seed, 3)) {
        case 0:
            status = ferry_group_barrier(ferry_world_group(world), err);
            break;
        case 1:
            status = ferry_group_gather_blobs(ferry_world_group(world), bytes,
                                              (size_t)body_below(&seed, sizeof bytes), &blobs, err);
            break;
        default: {
            void *memory = NULL;
            status = ferry_mem_alloc(world, 100000, &memory, err);
            if (status == FERRY_OK) {
                status = ferry_mem_free(world, memory, err);
            }
        }
        }
        ferry_blobs_destroy(blobs);
        if (status != FERRY_OK) {
            return status;
        }
    }
}

static ferry_status_t killed(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    if (ferry_world_rank(world) == plot->victim) {
        die_after(plot->after_us);
    }
    double begin = body_seconds();
    ferry_status_t status = chatter(world, plot->seed, err);
    EXPECT(status == FERRY_DEAD);
    EXPECT(body_seconds() - begin < 2.0 + (double)plot->after_us / 1e6);
    ferry_error_t broken = FERRY_ERROR_INIT;
    EXPECT(ferry_world_recover(world, &broken) == FERRY_DEAD);
    char text[64];
    (void)snprintf(text, sizeof text, "the world is broken: rank %u is dead", plot->victim);
    EXPECT(strstr(broken.text, text) != NULL);
    EXPECT(ferry_group_barrier(ferry_world_group(world), NULL) == FERRY_DEAD);
    return status;
}

static void expect_death(const ferry_rank_result_t *results, uint32_t size, uint32_t victim,
                         const char *how) {
    char text[80];
    (void)snprintf(text, sizeof text, "rank %u is dead%s", victim, how);
    const ferry_error_t *first = &results[victim == 0 ? 1 : 0].error;
    for (uint32_t rank = 0; rank < size; rank++) {
        const ferry_error_t *error = &results[rank].error;
        if (rank == victim) {
            continue;
        }
        if (results[rank].status != FERRY_DEAD || strstr(error->text, text) == NULL) {
            fail_msg("rank %u: status %d, \"%s\"", rank, (int)results[rank].status, error->text);
        }
        assert_string_equal(error->text, first->text); /* one record for all */
        assert_int_equal(error->rank, first->rank);
        assert_true(error->peer == victim || error->rank == victim);
    }
}

static void test_killed(void **state) {
    (void)state;
    body_traces_t before = body_look();
    uint64_t seed = 1;
    long trials = soak_count(20, 500);
    for (long trial = 0; trial < trials; trial++) {
        uint32_t size = 2 + (uint32_t)body_below(&seed, 4);
        plot_t plot = {.victim = (uint32_t)body_below(&seed, size), .seed = body_random(&seed)};
        plot.after_us = (long)body_below(&seed, 20000);
        body_kind_t kind = trial % 3 == 2 ? AS_SOCKET : AS_PROCESSES;
        ferry_rank_result_t results[8];
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(run_as(kind, size, killed, &plot, NULL, results, &err), FERRY_DEAD);
        assert_int_equal(results[plot.victim].signal, SIGKILL);
        if (results[plot.victim == 0 ? 1 : 0].status == FERRY_CHECK) {
            fail_msg("trial %ld: %s", trial, results[plot.victim == 0 ? 1 : 0].error.text);
        }
        /* At a socket nobody reaps for the world; the zombie may be gone when a rank looks. */
        expect_death(results, size, plot.victim, kind == AS_SOCKET ? "" : " (killed by signal 9)");
    }
    body_expect_no_trace(before);
}

static ferry_status_t exits(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    if (ferry_world_rank(world) == plot->victim) {
        body_sleep(0.05);
        _exit(plot->exit_code);
    }
    return chatter(world, 1, err);
}

static ferry_status_t leaves(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    if (ferry_world_rank(world) == plot->victim) {
        return FERRY_OK;
    }
    ferry_status_t status = chatter(world, 1, err);
    EXPECT(status == FERRY_DEAD && err->peer == plot->victim);
    EXPECT(strstr(err->text, "rank 1 has left the world") != NULL);
    return FERRY_OK;
}

static void test_ended(void **state) {
    (void)state;
    body_traces_t before = body_look();
    ferry_rank_result_t results[3];
    ferry_error_t err;
    for (int code = 0; code <= 3; code += 3) {
        plot_t plot = {.victim = 1, .exit_code = code};
        char how[32];
        (void)snprintf(how, sizeof how, " (exited with code %d)", code);
        assert_int_equal(ferry_world_run_processes(3, exits, &plot, NULL, results, &err),
                         FERRY_DEAD);
        assert_int_equal(results[1].exit_code, code);
        expect_death(results, 3, 1, how);
    }
    plot_t plot = {.victim = 1};
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(run_as((body_kind_t)kind, 3, leaves, &plot, NULL, results, &err),
                         FERRY_DEAD);
        for (int rank = 0; rank < 3; rank++) {
            assert_string_equal(results[rank].error.text, "");
        }
    }
    body_expect_no_trace(before);
}

static ferry_status_t stops(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (ferry_world_rank(world) == plot->victim) {
        (void)raise(SIGSTOP);
        body_sleep(60); /* it is killed before that is over */
    }
    double begin = body_seconds();
    ferry_status_t status = chatter(world, 1, err);
    EXPECT(status == FERRY_TIMEOUT && err->peer == plot->victim);
    EXPECT(strstr(err->text, "rank 2 is stopped") != NULL);
    EXPECT(body_seconds() - begin < 2.5);
    EXPECT(ferry_world_rank_life(world, 2) == FERRY_RANK_STOPPED);
    return status;
}

/* A short stop harms nobody. */
static ferry_status_t naps(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    pid_t pid = getpid();
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (ferry_world_rank(world) == 2) {
        pid_t waker = fork();
        if (waker == 0) {
            body_sleep(0.5);
            (void)kill(pid, SIGCONT);
            _exit(0);
        }
        (void)raise(SIGSTOP);
        (void)waitpid(waker, NULL, 0);
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

/* All ranks are stopped together for longer than the deadline, as by ^Z: that counts against nobody. */
static ferry_status_t sleeps_with_all(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    pid_t pids[2];
    pid_t pid = getpid();
    GOOD(ferry_group_allgather(ferry_world_group(world), &pid, sizeof pid, pids, err));
    if (ferry_world_rank(world) == 0) {
        pid_t other = fork();
        if (other == 0) {
            body_sleep(0.1);
            (void)kill(pids[1], SIGSTOP); /* waits in the barrier below */
            (void)kill(pids[0], SIGSTOP); /* waits for this process */
            body_sleep(1.2);
            (void)kill(pids[0], SIGCONT);
            (void)kill(pids[1], SIGCONT);
            _exit(0);
        }
        (void)waitpid(other, NULL, 0);
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_stopped(void **state) {
    (void)state;
    body_traces_t before = body_look();
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.grace_ms = 300;
    plot_t plot = {.victim = 2};
    ferry_rank_result_t results[3];
    ferry_error_t err;
    assert_int_equal(ferry_world_run_processes(3, stops, &plot, &params, results, &err),
                     FERRY_TIMEOUT);
    assert_non_null(strstr(err.text, "rank 2 is stopped; rank "));
    assert_string_equal(results[0].error.text, results[1].error.text);
    assert_int_equal(results[2].signal, SIGKILL); /* what is left is not left behind */
    run_well(AS_PROCESSES, 3, naps, NULL, NULL);
    params.timeout_ms = 700;
    run_well(AS_PROCESSES, 2, sleeps_with_all, NULL, &params);
    body_expect_no_trace(before);
}

/* --- a child that inherits the world ------------------------------------------------------------ */

static int strangers_view(ferry_world_t *world) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_mem_key_t key = {0, FERRY_MEM_ARENA, 0, 1};
    void *memory = NULL;
    mine.status = FERRY_IO;
    bool all = ferry_world_check(world, &err) == FERRY_INVALID &&
               strstr(err.text, "was forked by rank") != NULL &&
               ferry_group_barrier(ferry_world_group(world), NULL) == FERRY_INVALID &&
               ferry_world_fail(world, &mine, NULL) == FERRY_INVALID &&
               ferry_world_recover(world, NULL) == FERRY_INVALID &&
               ferry_mem_alloc(world, 1, &memory, NULL) == FERRY_INVALID &&
               ferry_mem_map(world, &key, &memory, NULL) == FERRY_INVALID &&
               !ferry_world_can_read(world, 0);
    ferry_world_leave(world); /* frees what is its own and says nothing to the others */
    return all ? 0 : 1;
}

static ferry_status_t forks(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(strangers_view(world));
    }
    int status = 0;
    (void)waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_forked(void **state) {
    (void)state;
    body_traces_t before = body_look();
    run_well(AS_PROCESSES, 2, forks, NULL, NULL);
    run_well(AS_SOCKET, 2, forks, NULL, NULL);
    body_expect_no_trace(before);
}

/* --- the launcher dies --------------------------------------------------------------------------- */

static ferry_status_t tells_pid(ferry_world_t *world, void *context, ferry_error_t *err) {
    const int *pipe_end = context;
    pid_t pid = getpid();
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    EXPECT(write(*pipe_end, &pid, sizeof pid) == (ssize_t)sizeof pid);
    body_sleep(60);
    return FERRY_OK;
}

static void test_launcher_killed(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        (void)ferry_world_run_processes(3, tells_pid, &ends[1], NULL, NULL, NULL);
        _exit(0);
    }
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(read(ends[0], &pids[i], sizeof pids[i]), sizeof pids[i]);
    }
    (void)kill(launcher, SIGKILL);
    (void)waitpid(launcher, NULL, 0);
    (void)close(ends[1]);
    char byte = 0;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the last that held the pipe is gone */
    (void)close(ends[0]);
}

/* --- without permission -------------------------------------------------------------------------- */

static ferry_status_t unprivileged(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    if (getuid() == 0) {
        EXPECT(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    }
    EXPECT(prctl(PR_SET_DUMPABLE, 0) == 0);
    uint32_t peer = 1 - ferry_world_rank(world);
    uint64_t value = 41;
    uint64_t copy = 0;
    ferry_mem_key_t mine;
    ferry_mem_key_t keys[2];
    GOOD(ferry_mem_register(world, &value, sizeof value, &mine, err));
    GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, keys, err));
    EXPECT(!ferry_world_can_read(world, peer));
    EXPECT(ferry_world_rank_life(world, peer) == FERRY_RANK_ALIVE);
    EXPECT(ferry_mem_read(world, &keys[peer], 0, &copy, sizeof copy, err) == FERRY_UNSUPPORTED);
    EXPECT(err->sys_errno == EPERM && err->peer == peer);
    void *memory = NULL; /* shared memory works as before */
    GOOD(ferry_mem_alloc(world, 8, &memory, err));
    *(uint64_t *)memory = 42 + peer;
    GOOD(ferry_mem_register(world, memory, 8, &mine, err));
    GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, keys, err));
    GOOD(ferry_mem_read(world, &keys[peer], 0, &copy, sizeof copy, err));
    EXPECT(copy == 42 + ferry_world_rank(world));
    return ferry_group_barrier(ferry_world_group(world), err);
}

static ferry_status_t bad_address(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_mem_key_t nowhere = {1 - ferry_world_rank(world), FERRY_MEM_OWN, 4096, 100};
    char bytes[100];
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (ferry_world_can_read(world, nowhere.rank)) {
        EXPECT(ferry_mem_read(world, &nowhere, 0, bytes, sizeof bytes, err) == FERRY_INVALID);
        EXPECT(err->sys_errno == EFAULT);
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_reads_refused(void **state) {
    (void)state;
    run_well(AS_PROCESSES, 2, unprivileged, NULL, NULL);
    run_well(AS_PROCESSES, 2, bad_address, NULL, NULL);
}

/* --- memory that runs out ------------------------------------------------------------------------ */

static ferry_status_t needs_memory(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t ranks[] = {1, 0};
    ferry_group_t *group = NULL;
    ferry_blobs_t *blobs = NULL;
    void *memory = NULL;
    ferry_status_t status = ferry_group_create(world, ranks, 2, &group, err);
    if (status == FERRY_OK) {
        status = ferry_group_gather_blobs(group, "abc", 1 + ferry_world_rank(world), &blobs, err);
    }
    if (status == FERRY_OK) {
        status = ferry_mem_alloc(world, 5000, &memory, err);
    }
    ferry_blobs_destroy(blobs);
    ferry_group_destroy(group);
    return status;
}

static ferry_status_t join_and_go(ferry_error_t *err) {
    char path[64];
    body_path(path, sizeof path);
    ferry_world_t *world = NULL;
    GOOD(ferry_world_join(path, 0, 1, NULL, &world, err));
    ferry_world_leave(world);
    return FERRY_OK;
}

static void test_no_memory(void **state) {
    (void)state;
    body_traces_t before = body_look();
    for (int way = 0; way < 3; way++) {
        ferry_status_t status = FERRY_NOMEM;
        long n = 0;
        for (; n < 200 && status != FERRY_OK; n++) {
            ferry_error_t err = FERRY_ERROR_INIT;
            ferry_rank_result_t results[2];
            atomic_store(&fail_after, n);
            status = way == 2
                         ? join_and_go(&err)
                         : run_as((body_kind_t)way, 2, needs_memory, NULL, NULL, results, &err);
            atomic_store(&fail_after, -1);
            if (status != FERRY_OK) {
                assert_int_equal(status, FERRY_NOMEM);
                assert_non_null(strstr(err.text, "out of memory for"));
            }
        }
        assert_true(n > 5 && n < 200);
    }
    body_expect_no_trace(before);
}

int main(void) {
    (void)alarm((unsigned)soak_count(100, 1800));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_stopped),       cmocka_unit_test(test_forked),
        cmocka_unit_test(test_reads_refused), cmocka_unit_test(test_launcher_killed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
