/* test_world.c - worlds from the inside: arguments, groups, the arena, keys, limits of the system.
 *
 * What several ranks do together is in multi/test_world.c; what breaks is in fault/fault_world.c. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "multi/body.h"
#include "support/sanitizer.h"
#include "world/world.h"

/* --- arguments --------------------------------------------------------------------------------- */

static ferry_status_t nothing(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)world;
    (void)context;
    (void)err;
    return FERRY_OK;
}

static void test_arguments(void **state) {
    (void)state;
    ferry_error_t err;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    assert_int_equal(ferry_world_run_threads(0, nothing, NULL, NULL, NULL, &err), FERRY_INVALID);
    assert_int_equal(
        ferry_world_run_threads(FERRY_WORLD_MAX_RANKS + 1, nothing, NULL, NULL, NULL, &err),
        FERRY_INVALID);
    assert_int_equal(ferry_world_run_threads(1, NULL, NULL, NULL, NULL, &err), FERRY_INVALID);
    params.size = 3;
    assert_int_equal(ferry_world_run_processes(1, nothing, NULL, &params, NULL, &err),
                     FERRY_INVALID);
    params.size = sizeof params;
    params.arena_bytes = UINT64_MAX;
    assert_int_equal(ferry_world_run_processes(1, nothing, NULL, &params, NULL, &err),
                     FERRY_OVERFLOW);
    params.arena_bytes = UINT64_MAX / 2;
    assert_int_equal(ferry_world_run_threads(3, nothing, NULL, &params, NULL, &err),
                     FERRY_OVERFLOW);
    ferry_world_t *world = NULL;
    char path[FERRY_WORLD_PATH_MAX + 2];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(ferry_world_join(path, 0, 1, NULL, &world, &err), FERRY_INVALID);
    assert_int_equal(ferry_world_join("", 0, 1, NULL, &world, &err), FERRY_INVALID);
    assert_int_equal(ferry_world_join("/tmp/x", 2, 2, NULL, &world, &err), FERRY_INVALID);
    assert_int_equal(ferry_world_join(NULL, 0, 1, NULL, &world, &err), FERRY_INVALID);
    assert_null(world);
    ferry_world_leave(NULL);
    ferry_group_destroy(NULL);
    ferry_blobs_destroy(NULL);
}

static ferry_status_t groups(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_group_t *group = NULL;
    uint32_t twice[] = {0, 1, 0};
    uint32_t far[] = {3};
    uint32_t good[] = {2, 0};
    EXPECT(ferry_group_create(world, twice, 3, &group, err) == FERRY_INVALID);
    EXPECT(strstr(err->text, "rank 0 is twice") != NULL);
    EXPECT(ferry_group_create(world, far, 1, &group, err) == FERRY_INVALID);
    EXPECT(ferry_group_create(world, good, 0, &group, err) == FERRY_INVALID);
    EXPECT(ferry_group_create(world, NULL, 2, &group, err) == FERRY_INVALID);
    EXPECT(group == NULL);
    GOOD(ferry_group_create(world, good, 2, &group, err));
    EXPECT(ferry_group_size(group) == 2 && ferry_group_world(group) == world);
    EXPECT(ferry_group_member(group, 2) == 0 && ferry_group_member(group, 0) == 1);
    EXPECT(ferry_group_member(group, 1) == FERRY_RANK_NONE);
    EXPECT(ferry_group_member(group, 99) == FERRY_RANK_NONE);
    EXPECT(ferry_group_world_rank(group, 0) == 2);
    EXPECT(ferry_group_world_rank(group, 2) == FERRY_RANK_NONE);
    uint32_t rank = ferry_world_rank(world);
    EXPECT(ferry_group_rank(group) == (rank == 1 ? FERRY_RANK_NONE : rank == 2 ? 0 : 1));
    ferry_group_destroy(group);
    return FERRY_OK;
}

static void test_groups(void **state) {
    (void)state;
    run_well(AS_THREADS, 3, groups, NULL, NULL);
}

/* --- waiting ----------------------------------------------------------------------------------- */

static void test_counters(void **state) {
    (void)state;
    assert_true(fy_at_least(5, 5));
    assert_true(fy_at_least(6, 5));
    assert_false(fy_at_least(4, 5));
    assert_true(fy_at_least(0, UINT32_MAX));
    assert_true(fy_at_least(3, UINT32_MAX - 3));
    assert_false(fy_at_least(UINT32_MAX, 0));
    assert_true(fy_at_least(0x80000000, 1));
    assert_false(fy_at_least(0x80000001, 1));
    fy_counter_t counter = {UINT32_MAX - 1, 0};
    fy_counter_add(&counter, 3);
    assert_int_equal(fy_counter_load(&counter), 1);
    assert_true(fy_counter_reached(&counter, UINT32_MAX));
}

/* --- the arena --------------------------------------------------------------------------------- */

static uint64_t pages_of_file(const ferry_world_t *world) {
    struct stat info;
    return fstat(world->space->fd, &info) == 0 ? (uint64_t)info.st_blocks * 512 / 4096 : 0;
}

static ferry_status_t pages(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint64_t before = pages_of_file(world);
    void *a = NULL;
    void *b = NULL;
    void *c = NULL;
    GOOD(ferry_mem_alloc(world, 1, &a, err));
    GOOD(ferry_mem_alloc(world, 3 << 20, &b, err));
    GOOD(ferry_mem_alloc(world, 4097, &c, err));
    EXPECT((uintptr_t)a % FERRY_MEM_ALIGN == 0 && (uintptr_t)c % FERRY_MEM_ALIGN == 0);
    EXPECT(((uintptr_t)b - (uintptr_t)fy_space_arena(world->space, 0)) % (2 << 20) == 0);
    EXPECT(pages_of_file(world) == before + 1 + 768 + 2); /* there before the first touch */
    memset(b, 1, 3 << 20);
    GOOD(ferry_mem_free(world, b, err));
    EXPECT(pages_of_file(world) == before + 3);
    EXPECT(ferry_mem_free(world, b, err) == FERRY_INVALID);
    EXPECT(ferry_mem_free(world, (uint8_t *)c + 1, err) == FERRY_INVALID);
    EXPECT(ferry_mem_free(world, &before, err) == FERRY_INVALID);
    GOOD(ferry_mem_free(world, NULL, err));
    EXPECT(ferry_mem_alloc(world, 0, &b, err) == FERRY_INVALID);
    GOOD(ferry_mem_free(world, c, err));
    GOOD(ferry_mem_free(world, a, err));
    EXPECT(pages_of_file(world) == before && world->npieces == 0);
    return FERRY_OK;
}

/* Random allocations in a small arena: never two in one place, gaps are used again. */
static ferry_status_t fragments(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    enum { SLOTS = 40, ARENA = 4 << 20 };
    uint8_t *memory[SLOTS] = {0};
    size_t bytes[SLOTS] = {0};
    uint64_t state = 3;
    uint32_t full = 0;
    for (int step = 0; step < 2000; step++) {
        size_t i = (size_t)body_below(&state, SLOTS);
        if (memory[i] != NULL) {
            for (size_t k = 0; k < bytes[i]; k += 1021) {
                EXPECT(memory[i][k] == (uint8_t)(i + 1));
            }
            GOOD(ferry_mem_free(world, memory[i], err));
            memory[i] = NULL;
            continue;
        }
        bytes[i] = 1 + (size_t)body_below(&state, 300000);
        void *given = NULL;
        ferry_status_t status = ferry_mem_alloc(world, bytes[i], &given, err);
        if (status != FERRY_OK) {
            EXPECT(status == FERRY_NOMEM && given == NULL);
            EXPECT(strstr(err->text, "do not fit the arena of rank 0") != NULL);
            full++;
            continue;
        }
        memory[i] = given;
        EXPECT(memory[i] >= fy_space_arena(world->space, 0));
        EXPECT(memory[i] + bytes[i] <= fy_space_arena(world->space, 0) + ARENA);
        memset(memory[i], (int)(i + 1), bytes[i]);
    }
    EXPECT(full > 0 && full < 1000);
    return FERRY_OK;
}

static ferry_status_t keys(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    void *memory = NULL;
    void *mapped = NULL;
    ferry_mem_key_t key;
    uint8_t byte = 0;
    GOOD(ferry_mem_alloc(world, 10000, &memory, err));
    GOOD(ferry_mem_register(world, (uint8_t *)memory + 100, 200, &key, err));
    GOOD(ferry_mem_map(world, &key, &mapped, err));
    EXPECT(mapped == (uint8_t *)memory + 100);
    EXPECT(ferry_mem_register(world, memory, 12289, &key, err) == FERRY_INVALID);
    EXPECT(ferry_mem_register(world, (uint8_t *)memory + 12288, 1, &key, err) == FERRY_INVALID);
    EXPECT(ferry_mem_register(world, fy_space_arena(world->space, 1 - ferry_world_rank(world)), 1,
                              &key, err) == FERRY_INVALID);
    EXPECT(ferry_mem_register(world, &byte, SIZE_MAX, &key, err) == FERRY_INVALID);
    EXPECT(ferry_mem_register(world, NULL, 1, &key, err) == FERRY_INVALID);
    ferry_mem_key_t bad[] = {
        {2, FERRY_MEM_ARENA, 0, 1},
        {0, FERRY_MEM_NONE, 0, 1},
        {0, 7, 0, 1},
        {0, FERRY_MEM_ARENA, UINT64_MAX, 2},
        {0, FERRY_MEM_ARENA, 0, UINT64_MAX},
        {0, FERRY_MEM_ARENA, (4 << 20) - 1, 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(ferry_mem_map(world, &bad[i], &mapped, err) == FERRY_INVALID);
        EXPECT(ferry_mem_read(world, &bad[i], 0, &byte, 1, err) == FERRY_INVALID);
        ferry_mem_populate(world, &bad[i]);
    }
    return FERRY_OK;
}

static void test_arena(void **state) {
    (void)state;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    run_well(AS_THREADS, 1, pages, NULL, NULL);
    params.arena_bytes = 4 << 20;
    run_well(AS_THREADS, 1, fragments, NULL, &params);
    run_well(AS_THREADS, 2, keys, NULL, &params);
}

/* --- limits ------------------------------------------------------------------------------------ */

static ferry_status_t take_too_much(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    void *memory = NULL;
    EXPECT(ferry_mem_alloc(world, SIZE_MAX, &memory, err) == FERRY_NOMEM);
    EXPECT(ferry_mem_alloc(world, (size_t)1 << 41, &memory, err) == FERRY_NOMEM); /* the arena */
    EXPECT(ferry_mem_alloc(world, (size_t)1 << 39, &memory, err) == FERRY_NOMEM); /* the machine */
    EXPECT(err->sys_errno == ENOMEM && strstr(err->text, "MiB left") != NULL);
    EXPECT(memory == NULL && world->npieces == 0);
    GOOD(ferry_mem_alloc(world, 1 << 20, &memory, err));
    return FERRY_OK;
}

/* Runs in a process of its own; returns its exit code, or 1000 and the signal. */
static int in_child(int (*fn)(void)) {
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(20);
        _exit(fn());
    }
    int status = 0;
    (void)waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int small_files(void) {
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    ferry_error_t err = FERRY_ERROR_INIT;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    ferry_status_t status = ferry_world_run_threads(2, nothing, NULL, NULL, NULL, &err);
    bool told = strstr(err.text, "ulimit -f") != NULL && err.sys_errno == EFBIG;
    limit.rlim_cur = 512 << 20;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = 64 << 20;
    ferry_status_t fits = ferry_world_run_threads(2, nothing, NULL, &params, NULL, &err);
    return status == FERRY_IO && told && fits == FERRY_OK ? 0 : 1;
}

static int small_address_space(void) {
    struct rlimit limit = {1 << 30, RLIM_INFINITY};
    ferry_error_t err = FERRY_ERROR_INIT;
    (void)setrlimit(RLIMIT_AS, &limit);
    ferry_status_t status = ferry_world_run_threads(2, nothing, NULL, NULL, NULL, &err);
    return status == FERRY_NOMEM && strstr(err.text, "ulimit -v") != NULL ? 0 : 1;
}

static int no_descriptors(void) {
    struct rlimit limit = {3, 3};
    ferry_error_t err = FERRY_ERROR_INIT;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    ferry_status_t status = ferry_world_run_threads(2, nothing, NULL, NULL, NULL, &err);
    return status == FERRY_IO && err.sys_errno == EMFILE ? 0 : 1;
}

static int few_descriptors(void) {
    struct rlimit limit = {6, 6}; /* the file and two of four children */
    ferry_error_t err = FERRY_ERROR_INIT;
    for (int fd = 3; fd < 64; fd++) {
        (void)close(fd);
    }
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    ferry_status_t status = ferry_world_run_processes(4, nothing, NULL, NULL, NULL, &err);
    bool none = waitpid(-1, NULL, WNOHANG) == -1;
    return status == FERRY_NOMEM && err.sys_errno == EMFILE && none ? 0 : 1;
}

static void test_limits(void **state) {
    (void)state;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = (uint64_t)1 << 40;
    assert_int_equal(in_child(small_files), 0);
    assert_int_equal(in_child(no_descriptors), 0);
    assert_int_equal(in_child(few_descriptors), 0);
    if (!SANITIZED) { /* they need address space of their own */
        run_well(AS_THREADS, 1, take_too_much, NULL, &params);
        assert_int_equal(in_child(small_address_space), 0);
    }
}

/* --- results ----------------------------------------------------------------------------------- */

static ferry_status_t one_fails(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    if (ferry_world_rank(world) == 1) {
        ferry_error_clear(err);
        (void)snprintf(err->text, sizeof err->text, "no luck");
        err->round = 7;
        return FERRY_CORRUPT;
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_results(void **state) {
    (void)state;
    body_traces_t before = body_look();
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_rank_result_t results[3];
        ferry_status_t status = run_as((body_kind_t)kind, 3, one_fails, NULL, NULL, results, &err);
        assert_int_equal(status, FERRY_CORRUPT);
        assert_string_equal(err.text, "no luck");
        assert_int_equal(err.round, 7);
        for (int rank = 0; rank < 3; rank++) { /* the origin's record, everywhere */
            assert_int_equal(results[rank].status, FERRY_CORRUPT);
            assert_string_equal(results[rank].error.text, "no luck");
            assert_int_equal(results[rank].error.round, 7);
            assert_int_equal(results[rank].exit_code, kind == AS_THREADS ? -1 : 1);
            if (kind != AS_SOCKET || rank != 1) {
                assert_int_equal(results[rank].error.rank, 1);
            }
        }
    }
    body_expect_no_trace(before);
}

int main(void) {
    (void)alarm(100);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_counters),  cmocka_unit_test(test_arena),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
