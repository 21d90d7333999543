/* fault_channel.c - channels when things go wrong: the n-th call of a transport fails, the n-th
 * allocation fails, signals get lost, a rank is killed at a random point.
 *
 * What must hold each time: all ranks that live get one and the same record, in time; it names the
 * rank, the peer and what was waited for; nothing is left behind. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include <ferry/channel.h>

#include "multi/body.h"
#include "support/soak.h"

#define RANKS 3
#define BYTES 4096

/* --- allocations that fail, in one thread --- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static _Thread_local long fail_at; /* 0: never; n: the n-th from now */
static _Thread_local bool failed;

static bool is_failing(void) {
    if (fail_at > 0 && --fail_at == 0) {
        failed = true;
        return true;
    }
    return false;
}

void *__wrap_malloc(size_t bytes) {
    return is_failing() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return is_failing() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return is_failing() ? NULL : __real_realloc(memory, bytes);
}

/* --- a program that uses everything, the same every time --- */

typedef struct kit {
    ferry_channels_t *set;
    ferry_transport_t *transport;
    uint8_t *memory;
    uint8_t source[BYTES];
    uint32_t rank;
} kit_t;

static ferry_status_t kit_open(kit_t *kit, ferry_world_t *world, const ferry_fault_params_t *fault,
                               uint32_t queue_slots, ferry_error_t *err) {
    static const uint32_t everyone[RANKS] = {0, 1, 2};
    uint32_t peers[] = {(kit->rank + 1) % RANKS, (kit->rank + 2) % RANKS};
    kit->transport = NULL;
    if (fault != NULL) {
        ferry_transport_t *shm = NULL;
        GOOD(ferry_transport_open(world, NULL, &shm, err));
        GOOD(ferry_transport_fault(shm, fault, &kit->transport, err));
    }
    ferry_buffer_t buffer = {kit->memory, 3 * (size_t)BYTES};
    ferry_switch_members_t all = {everyone, RANKS};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.memory_peers = peers;
    params.nmemory = 2;
    params.port_peers = peers;
    params.nport = 2;
    params.switches = &all;
    params.nswitch = 1;
    params.transport = kit->transport;
    params.queue_slots = queue_slots;
    return ferry_channels_open(ferry_world_group(world), &params, &kit->set, err);
}

/* One turn of the ring: put, signal, wait over memory and port, a get and a broadcast. */
static ferry_status_t turn(kit_t *kit, uint32_t number, ferry_error_t *err) {
    ferry_memory_channel_t *next = ferry_channels_memory(kit->set, 0);
    ferry_memory_channel_t *previous = ferry_channels_memory(kit->set, 1);
    ferry_port_channel_t *next_port = ferry_channels_port(kit->set, 0);
    ferry_port_channel_t *previous_port = ferry_channels_port(kit->set, 1);
    memset(kit->source, (int)(number + kit->rank), BYTES);
    GOOD(ferry_memory_put(next, 0, 0, kit->source, BYTES, err));
    GOOD(ferry_memory_signal(next, err));
    GOOD(ferry_port_put_with_signal(next_port, 0, BYTES, kit->source, BYTES, err));
    GOOD(ferry_memory_wait(previous, err));
    GOOD(ferry_port_wait(previous_port, err));
    uint8_t want = (uint8_t)(number + (kit->rank + RANKS - 1) % RANKS);
    EXPECT(kit->memory[0] == want && kit->memory[2 * BYTES - 1] == want);
    GOOD(ferry_memory_get(next, 0, 100, kit->source, 8, err));
    GOOD(ferry_switch_broadcast(ferry_channels_switch(kit->set, 0), 0,
                                2 * BYTES + kit->rank * (uint64_t)64, kit->source, 64, err));
    GOOD(ferry_memory_signal(previous, err)); /* seen; may be overwritten */
    GOOD(ferry_memory_wait(next, err));
    return ferry_port_flush(next_port, err);
}

/* --- the n-th call fails --- */

typedef struct trial {
    ferry_fault_params_t fault; /* of rank `victim` */
    uint32_t victim;
    uint32_t turns;
    uint32_t queue_slots;
    _Atomic uint64_t strikes;
    _Atomic uint32_t in_open;
    long fail_alloc;
} trial_t;

static ferry_status_t trial_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    trial_t *trial = context;
    kit_t kit = {.rank = ferry_world_rank(world)};
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 3 * (size_t)BYTES, &memory, err));
    kit.memory = memory;
    bool faulty = kit.rank == trial->victim;
    ferry_status_t status =
        kit_open(&kit, world, faulty ? &trial->fault : NULL, trial->queue_slots, err);
    if (status != FERRY_OK) {
        (void)atomic_fetch_add(&trial->in_open, 1);
    }
    for (uint32_t i = 0; i < trial->turns && status == FERRY_OK; i++) {
        status = turn(&kit, i, err);
    }
    if (faulty) {
        atomic_store(&trial->strikes, ferry_transport_fault_strikes(kit.transport));
    }
    ferry_error_t why;
    if (status == FERRY_OK) {
        status = ferry_channels_close(kit.set, err);
    } else if (kit.set != NULL && ferry_channels_close(kit.set, &why) != status) {
        status = body_fail(err, __LINE__, "the set says that it is broken");
    }
    ferry_transport_close(kit.transport);
    return status;
}

/* All ranks have the record of the first. */
static void expect_one_record(const ferry_rank_result_t *results, uint32_t size, uint32_t victim) {
    const ferry_rank_result_t *first = &results[victim == 0 ? 1 : 0];
    for (uint32_t i = 0; i < size; i++) {
        if (results[i].signal == 0) {
            assert_int_equal(results[i].status, first->status);
            assert_string_equal(results[i].error.text, first->error.text);
            assert_int_equal(results[i].error.rank, first->error.rank);
            assert_int_equal(results[i].error.peer, first->error.peer);
        }
    }
}

static bool try_call(body_kind_t kind, ferry_fault_kind_t fault, uint64_t n) {
    trial_t trial = {.victim = (uint32_t)(n % RANKS), .turns = 2, .queue_slots = 2};
    trial.fault = (ferry_fault_params_t)FERRY_FAULT_PARAMS_INIT;
    trial.fault.kind = fault;
    trial.fault.calls = FERRY_CALLS_DATA | FERRY_CALLS_CONTROL;
    trial.fault.at_call = n;
    ferry_rank_result_t results[RANKS];
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = 10000;
    double begin = body_seconds();
    ferry_status_t status = run_as(kind, RANKS, trial_body, &trial, &params, results, &err);
    assert_true(body_seconds() - begin < 2);
    if (status == FERRY_OK) {
        return false;
    }
    char call[64];
    (void)snprintf(call, sizeof call, "injected fault at call %lu,", (unsigned long)n);
    expect_one_record(results, RANKS, RANKS);
    assert_int_equal(err.status, FERRY_IO);
    assert_int_equal(err.rank, trial.victim);
    assert_int_equal(err.sys_errno, EIO);
    if (strstr(err.text, call) == NULL) {
        fail_msg("call %lu: %s", (unsigned long)n, err.text);
    }
    return true;
}

static void test_nth_call(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        body_traces_t before = body_look();
        uint64_t n = 1;
        while (try_call((body_kind_t)kind, FERRY_FAULT_ERROR, n)) {
            n += kind == AS_THREADS ? 1 : 3;
            assert_true(n < 1000);
        }
        assert_true(n > 20); /* control and data were both there */
        body_expect_no_trace(before);
    }
}

/* --- a signal is lost: the deadline says what was waited for --- */

static ferry_status_t lost_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const ferry_fault_params_t *fault = context;
    kit_t kit = {.rank = ferry_world_rank(world)};
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 3 * (size_t)BYTES, &memory, err));
    kit.memory = memory;
    GOOD(kit_open(&kit, world, kit.rank == 1 ? fault : NULL, 2, err));
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; i < 5 && status == FERRY_OK; i++) {
        status = ferry_memory_signal(ferry_channels_memory(kit.set, 0), err);
        if (status == FERRY_OK) {
            status = ferry_memory_wait(ferry_channels_memory(kit.set, 1), err);
        }
    }
    ferry_error_t why = FERRY_ERROR_INIT;
    ferry_status_t closed = ferry_channels_close(kit.set, &why);
    ferry_transport_close(kit.transport);
    if (status == FERRY_OK) { /* a rank whose part was done already */
        *err = why;
        return closed;
    }
    return status;
}

static void test_lost_signal(void **state) {
    (void)state;
    ferry_fault_params_t fault = FERRY_FAULT_PARAMS_INIT;
    fault.kind = FERRY_FAULT_DROP;
    fault.at_call = 4;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        ferry_rank_result_t results[RANKS];
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
        params.timeout_ms = 200;
        double begin = body_seconds();
        ferry_status_t status =
            run_as((body_kind_t)kind, RANKS, lost_body, &fault, &params, results, &err);
        assert_int_equal(status, FERRY_TIMEOUT);
        assert_true(body_seconds() - begin < 2);
        expect_one_record(results, RANKS, RANKS);
        /* Whoever noticed first says which signal of which channel: 5 of them, or the lost fourth. */
        assert_non_null(strstr(err.text, "of memory channel 1"));
        assert_non_null(strstr(err.text, "in signal "));
    }
}

/* --- the n-th allocation fails on one rank --- */

static ferry_status_t alloc_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    trial_t *trial = context;
    kit_t kit = {.rank = ferry_world_rank(world)};
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 3 * (size_t)BYTES, &memory, err));
    kit.memory = memory;
    failed = false;
    fail_at = kit.rank == trial->victim ? trial->fail_alloc : 0;
    ferry_status_t status = kit_open(&kit, world, NULL, 2, err);
    fail_at = 0;
    if (failed) {
        (void)atomic_fetch_add(&trial->strikes, 1);
    }
    if (status == FERRY_OK) {
        EXPECT(!failed);
        GOOD(turn(&kit, 0, err));
        return ferry_channels_close(kit.set, err);
    }
    EXPECT(kit.set == NULL);
    if (ferry_world_check(world, NULL) == FERRY_OK) {
        /* It was refused, and nobody was harmed. */
        ferry_error_t again;
        if (kit_open(&kit, world, NULL, 2, &again) != FERRY_OK) {
            *err = again;
            return again.status;
        }
        GOOD(turn(&kit, 0, &again));
        GOOD(ferry_channels_close(kit.set, &again));
    }
    return status;
}

static void test_nth_allocation(void **state) {
    (void)state;
    long n = 1;
    for (;; n++) {
        trial_t trial = {.victim = (uint32_t)(n % RANKS), .fail_alloc = n};
        ferry_rank_result_t results[RANKS];
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = run_as(AS_THREADS, RANKS, alloc_body, &trial, NULL, results, &err);
        if (atomic_load(&trial.strikes) == 0) {
            assert_int_equal(status, FERRY_OK);
            break;
        }
        expect_one_record(results, RANKS, RANKS);
        assert_int_equal(err.status, FERRY_NOMEM);
        assert_int_equal(err.rank, trial.victim);
        assert_true(n < 200);
    }
    assert_true(n > 5);
}

/* --- killed --- */

static ferry_status_t traffic_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    trial_t *trial = context;
    trial->turns = UINT32_MAX;
    return trial_body(world, context, err);
}

static void expect_death(const ferry_rank_result_t *results, uint32_t victim,
                         const ferry_error_t *err) {
    assert_int_equal(results[victim].signal, SIGKILL);
    expect_one_record(results, RANKS, victim);
    assert_int_equal(err->status, FERRY_DEAD);
    /* A rank that waited for the victim, or the launcher when nobody did just then. */
    assert_true(err->peer == victim || (err->rank == victim && err->peer == FERRY_RANK_NONE));
    const ferry_error_t *record = &results[(victim + 1) % RANKS].error;
    char name[32];
    (void)snprintf(name, sizeof name, "rank %u is dead", victim);
    assert_non_null(strstr(record->text, name));
}

/* SIGKILL at the n-th call of a transport: in the caller's thread or in the proxy. With one slot and a
 * source that keeps the proxy busy, the queue is full most of the time. */
static void kill_once(body_kind_t kind, uint64_t n, uint32_t calls) {
    trial_t trial = {.victim = (uint32_t)(n % RANKS), .queue_slots = 1};
    trial.fault = (ferry_fault_params_t)FERRY_FAULT_PARAMS_INIT;
    trial.fault.kind = FERRY_FAULT_DEATH;
    trial.fault.at_call = n;
    trial.fault.calls = calls;
    ferry_rank_result_t results[RANKS];
    ferry_error_t err = FERRY_ERROR_INIT;
    double begin = body_seconds();
    ferry_status_t status = run_as(kind, RANKS, traffic_body, &trial, NULL, results, &err);
    double seconds = body_seconds() - begin;
    assert_int_equal(status, FERRY_DEAD);
    if (seconds > 2) {
        fail_msg("a death at call %lu took %.2f s", (unsigned long)n, seconds);
    }
    if (kind == AS_PROCESSES) {
        expect_death(results, trial.victim, &err);
    } else {
        assert_int_equal(results[trial.victim].signal, SIGKILL);
        expect_one_record(results, RANKS, trial.victim);
        const ferry_error_t *record = &results[(trial.victim + 1) % RANKS].error;
        if (record->peer != trial.victim) {
            fail_msg("call %lu: %s", (unsigned long)n, record->text);
        }
    }
}

static void test_killed(void **state) {
    (void)state;
    uint64_t random = 4711;
    long rounds = soak_count(12, 500);
    body_traces_t before = body_look();
    for (long i = 0; i < rounds; i++) {
        static const uint32_t sets[] = {
            FERRY_CALLS_DATA,
            FERRY_CALLS_CONTROL,
            UINT32_C(1) << FERRY_CALL_FLUSH, /* made by the proxy only */
            UINT32_C(1) << FERRY_CALL_PUT,
        };
        uint32_t calls = sets[i % 4];
        uint64_t n = 1 + body_below(&random, calls == FERRY_CALLS_CONTROL ? 8 : 400);
        kill_once(i % 3 == 2 ? AS_SOCKET : AS_PROCESSES, n, calls);
    }
    body_expect_no_trace(before);
}

/* Killed from outside at a random time, while its proxy is slow and its queue full. */
static ferry_status_t full_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const uint64_t *when_us = context;
    ferry_fault_params_t slow = FERRY_FAULT_PARAMS_INIT;
    slow.kind = FERRY_FAULT_DELAY;
    slow.per_million = 1000000;
    slow.delay_us = 2000;
    slow.calls = UINT32_C(1) << FERRY_CALL_PUT;
    kit_t kit = {.rank = ferry_world_rank(world)};
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 3 * (size_t)BYTES, &memory, err));
    kit.memory = memory;
    GOOD(kit_open(&kit, world, &slow, 2, err));
    if (kit.rank == 0 && fork() == 0) {
        (void)usleep((useconds_t)*when_us);
        (void)kill(getppid(), SIGKILL);
        _exit(0);
    }
    ferry_status_t status = FERRY_OK;
    while (status == FERRY_OK) { /* nobody waits for anybody but for room */
        status = ferry_port_put(ferry_channels_port(kit.set, 0), 0, 0, kit.source, 64, err);
    }
    if (ferry_port_flush(ferry_channels_port(kit.set, 0), NULL) == FERRY_OK) {
        status = body_fail(err, __LINE__, "a broken set is flushed");
    }
    (void)ferry_channels_close(kit.set, NULL);
    ferry_transport_close(kit.transport);
    return status;
}

static void test_killed_full(void **state) {
    (void)state;
    uint64_t random = 99;
    for (long i = 0; i < soak_count(4, 50); i++) {
        uint64_t when_us = 1000 + body_below(&random, 30000);
        ferry_rank_result_t results[RANKS];
        ferry_error_t err = FERRY_ERROR_INIT;
        double begin = body_seconds();
        ferry_status_t status =
            run_as(AS_PROCESSES, RANKS, full_body, &when_us, NULL, results, &err);
        assert_true(body_seconds() - begin < 2);
        assert_int_equal(status, FERRY_DEAD);
        expect_death(results, 0, &err);
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_call),       cmocka_unit_test(test_lost_signal),
        cmocka_unit_test(test_nth_allocation), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_killed_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
