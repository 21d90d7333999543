/* test_world_join.c - meeting at a socket: who may come, who may not, and that all are told the same. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "multi/body.h"
#include "world/hello.h"

#define RANKS_MAX 8

/* One process that comes to the meeting. */
typedef struct comer {
    uint32_t rank;
    uint32_t size;
    double after; /* seconds */
    uint64_t arena_bytes;
    bool dies; /* right after it came */
} comer_t;

/* What it was told. */
typedef struct told {
    ferry_status_t status;
    double seconds;
    char text[FERRY_ERROR_TEXT_MAX];
    int descriptors;
} told_t;

static told_t *told; /* shared with the children */
static char path[64];

static _Noreturn void come(const comer_t *comer, uint32_t timeout_ms, told_t *mine) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_world_t *world = NULL;
    params.timeout_ms = timeout_ms;
    params.arena_bytes = comer->arena_bytes;
    body_sleep(comer->after);
    if (comer->dies) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        struct itimerspec when = {.it_value = {0, 200000000}};
        timer_t timer;
        (void)timer_create(CLOCK_MONOTONIC, &event, &timer);
        (void)timer_settime(timer, 0, &when, NULL);
    }
    int descriptors = body_count("/proc/self/fd");
    double begin = body_seconds();
    mine->status = ferry_world_join(path, comer->rank, comer->size, &params, &world, &err);
    mine->seconds = body_seconds() - begin;
    memcpy(mine->text, err.text, sizeof mine->text);
    if (mine->status == FERRY_OK) {
        uint32_t rank = comer->rank;
        uint32_t ranks[RANKS_MAX];
        mine->status =
            ferry_group_allgather(ferry_world_group(world), &rank, sizeof rank, ranks, &err);
        for (uint32_t i = 0; i < comer->size; i++) {
            mine->status = ranks[i] == i ? mine->status : FERRY_CHECK;
        }
        ferry_world_leave(world);
    }
    mine->descriptors = body_count("/proc/self/fd") - descriptors;
    _exit(0);
}

/* All come; `between` runs while they wait. */
static void hold(const comer_t *comers, size_t count, uint32_t timeout_ms, void (*between)(void)) {
    pid_t pids[RANKS_MAX];
    memset(told, 0, RANKS_MAX * sizeof *told);
    (void)fflush(NULL);
    for (size_t i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            come(&comers[i], timeout_ms, &told[i]);
        }
    }
    if (between != NULL) {
        between();
    }
    for (size_t i = 0; i < count; i++) {
        (void)waitpid(pids[i], NULL, 0);
        assert_int_equal(told[i].descriptors, 0);
    }
    assert_int_not_equal(access(path, F_OK), 0);
}

static void expect_all(size_t count, ferry_status_t status, const char *text) {
    for (size_t i = 0; i < count; i++) {
        if (told[i].status != status || strstr(told[i].text, text) == NULL) {
            fail_msg("comer %zu: status %d, \"%s\"", i, (int)told[i].status, told[i].text);
        }
    }
}

static void test_meet(void **state) {
    (void)state;
    comer_t early[] = {
        {0, 4, 0, 0, false}, {1, 4, 0.05, 0, false}, {3, 4, 0, 0, false}, {2, 4, 0.1, 0, false}};
    comer_t late[] = {{0, 3, 0.1, 0, false}, {1, 3, 0, 0, false}, {2, 3, 0, 0, false}};
    comer_t alone[] = {{0, 1, 0, 0, false}};
    hold(early, 4, 5000, NULL);
    expect_all(4, FERRY_OK, "");
    hold(late, 3, 5000, NULL);
    expect_all(3, FERRY_OK, "");
    hold(alone, 1, 5000, NULL);
    expect_all(1, FERRY_OK, "");
}

static void test_stale_file(void **state) {
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    (void)close(fd); /* as a killed rank 0 leaves it */
    comer_t comers[] = {{0, 2, 0.1, 0, false}, {1, 2, 0, 0, false}};
    hold(comers, 2, 5000, NULL);
    expect_all(2, FERRY_OK, "");
    /* A file that is no socket is nobody's to remove. */
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    (void)close(fd);
    ferry_world_t *world = NULL;
    ferry_error_t err;
    assert_int_equal(ferry_world_join(path, 0, 2, NULL, &world, &err), FERRY_IO);
    assert_int_equal(access(path, F_OK), 0);
    (void)unlink(path);
}

static void test_wrong_comers(void **state) {
    (void)state;
    comer_t twice[] = {{0, 3, 0, 0, false}, {1, 3, 0, 0, false}, {1, 3, 0.1, 0, false}};
    hold(twice, 3, 5000, NULL);
    expect_all(3, FERRY_MISMATCH, "rank 1 came twice");
    comer_t size[] = {{0, 3, 0, 0, false}, {1, 3, 0, 0, false}, {2, 4, 0.1, 0, false}};
    hold(size, 3, 5000, NULL);
    expect_all(3, FERRY_MISMATCH, "rank 2 thinks that the world has 4 ranks, rank 0 that it has 3");
    comer_t arena[] = {{0, 2, 0, 0, false}, {1, 2, 0, 1 << 20, false}};
    hold(arena, 2, 5000, NULL);
    expect_all(2, FERRY_MISMATCH, "arena_bytes");
    comer_t zeros[] = {{0, 2, 0, 0, false}, {0, 2, 0.1, 0, false}};
    hold(zeros, 2, 5000, NULL);
    expect_all(2, FERRY_MISMATCH, "rank 0 came twice");
    /* One that comes a little after the error is told as well. */
    comer_t after[] = {{0, 3, 0, 0, false}, {1, 4, 0, 0, false}, {2, 3, 0.3, 0, false}};
    hold(after, 3, 5000, NULL);
    expect_all(3, FERRY_MISMATCH, "rank 1 thinks");
}

static void test_missing(void **state) {
    (void)state;
    comer_t comers[] = {{0, 4, 0, 0, false}, {2, 4, 0, 0, false}};
    hold(comers, 2, 400, NULL);
    expect_all(2, FERRY_TIMEOUT, "ranks 1,3 did not come");
    for (int i = 0; i < 2; i++) {
        assert_true(told[i].seconds > 0.35 && told[i].seconds < 2.5);
    }
    comer_t no_host[] = {{1, 3, 0, 0, false}, {2, 3, 0, 0, false}};
    hold(no_host, 2, 300, NULL);
    expect_all(2, FERRY_TIMEOUT, "rank 0 did not come");
}

/* A rank is killed while the others still wait for more. */
static void test_killed(void **state) {
    (void)state;
    comer_t guest[] = {{0, 3, 0, 0, false}, {1, 3, 0, 0, true}};
    hold(guest, 2, 3000, NULL);
    expect_all(1, FERRY_DEAD, "rank 1 went away");
    comer_t host[] = {{2, 4, 0, 0, false}, {1, 4, 0, 0, false}, {0, 4, 0, 0, true}};
    pid_t pids[3];
    memset(told, 0, RANKS_MAX * sizeof *told);
    for (size_t i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            come(&host[i], 3000, &told[i]);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        (void)waitpid(pids[i], NULL, 0);
    }
    expect_all(2, FERRY_DEAD, "rank 0 went away");
    assert_true(told[0].seconds < 2);
    (void)unlink(path); /* a killed rank 0 cannot do it; the next one would */
}

/* --- talking to rank 0 without the library ------------------------------------------------------ */

static int call_host(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    for (int i = 0; i < 1000; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
            return fd;
        }
        (void)close(fd);
        body_sleep(0.005);
    }
    fail_msg("nobody listens at %s", path);
    return -1;
}

static void say(const void *bytes, size_t length) {
    int fd = call_host();
    (void)send(fd, bytes, length, MSG_NOSIGNAL);
    fy_reply_t reply;
    memset(&reply, 0, sizeof reply);
    ssize_t got = recv(fd, &reply, sizeof reply, 0);
    assert_int_equal(got, sizeof reply); /* the offender is told, too */
    assert_int_not_equal(reply.status, FERRY_OK);
    (void)close(fd);
}

static void other_version(void) {
    fy_hello_t hello;
    fy_hello_fill(&hello, 2, 3, 0);
    hello.version += 1000;
    say(&hello, sizeof hello);
}

/* A later version may have a longer hello. */
static void longer_hello(void) {
    char bytes[2 * sizeof(fy_hello_t)];
    memset(bytes, 0xee, sizeof bytes);
    fy_hello_t hello;
    fy_hello_fill(&hello, 2, 3, 0);
    hello.version += 1000000;
    memcpy(bytes, &hello, offsetof(fy_hello_t, bytes));
    say(bytes, sizeof bytes);
}

static void other_order(void) {
    fy_hello_t hello;
    fy_hello_fill(&hello, 2, 3, 0);
    hello.order = __builtin_bswap32(hello.order);
    hello.version = __builtin_bswap32(hello.version);
    say(&hello, sizeof hello);
}

static void other_structs(void) {
    fy_hello_t hello;
    fy_hello_fill(&hello, 2, 3, 0);
    hello.sizes[1]++;
    say(&hello, sizeof hello);
}

static void cut_short(void) {
    fy_hello_t hello;
    fy_hello_fill(&hello, 2, 3, 0);
    say(&hello, 12);
}

static void test_other_builds(void **state) {
    (void)state;
    static const struct {
        void (*say)(void);
        ferry_status_t status;
        const char *text;
    } cases[] = {
        {other_version, FERRY_VERSION, "a peer runs ferry 0."},
        {longer_hello, FERRY_VERSION, "a peer runs ferry 1."},
        {other_order, FERRY_UNSUPPORTED, "another byte order"},
        {other_structs, FERRY_VERSION, "other struct sizes"},
        {cut_short, FERRY_CORRUPT, "cut short"},
    };
    comer_t comers[] = {{0, 3, 0, 0, false}, {1, 3, 0, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hold(comers, 2, 5000, cases[i].say);
        expect_all(2, cases[i].status, cases[i].text);
    }
}

/* Noise at the door changes nothing. */
static void noise(void) {
    static const char junk[] =
        "GET / HTTP/1.1\r\n\r\n and much more than a hello would ever be, so "
        "that it does not fit into the buffer that is there for a hello";
    int silent = call_host();
    int shouting = call_host();
    (void)send(shouting, junk, sizeof junk, MSG_NOSIGNAL);
    int brief = call_host();
    (void)send(brief, "x", 1, MSG_NOSIGNAL);
    (void)close(call_host());
    body_sleep(0.4);
    (void)close(silent);
    (void)close(shouting);
    (void)close(brief);
}

static void test_strangers(void **state) {
    (void)state;
    comer_t comers[] = {{0, 3, 0, 0, false}, {1, 3, 0, 0, false}, {2, 3, 0.3, 0, false}};
    hold(comers, 3, 5000, noise);
    expect_all(3, FERRY_OK, "");
}

int main(void) {
    (void)alarm(100);
    body_path(path, sizeof path);
    told = mmap(NULL, RANKS_MAX * sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meet),      cmocka_unit_test(test_stale_file),
        cmocka_unit_test(test_missing),   cmocka_unit_test(test_wrong_comers),
        cmocka_unit_test(test_killed),    cmocka_unit_test(test_other_builds),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
