/* test_channel.c - the parts of channels that need no second rank: the proxy's queue, the table of a
 * transport, the decorators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "channel/queue.h"
#include "channel/set.h"
#include "channel/transport.h"

/* --- the queue --- */

static fy_request_t request_of(uint64_t number) {
    return (fy_request_t){.offset = number, .flags = FY_REQUEST_PUT};
}

/* Fills and empties it around the place where 32 bits end. */
static void test_queue(void **state) {
    (void)state;
    static const uint64_t firsts[] = {0, UINT32_MAX - 2, UINT64_C(5) << 32};
    for (size_t f = 0; f < 3; f++) {
        fy_queue_t queue = {0};
        assert_int_equal(fy_queue_init(&queue, 4, firsts[f], NULL), FERRY_OK);
        uint64_t position = 0;
        fy_request_t request;
        assert_false(fy_queue_pop(&queue, &request, &position));
        uint64_t pushed = firsts[f];
        uint64_t popped = firsts[f];
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < 4; i++, pushed++) {
                fy_request_t fresh = request_of(pushed);
                assert_true(fy_queue_push(&queue, &fresh, &position));
                assert_int_equal(position, pushed);
            }
            fy_request_t one_too_many = request_of(0);
            assert_false(fy_queue_push(&queue, &one_too_many, &position));
            assert_int_equal(position, popped); /* this must be taken first */
            assert_false(fy_counter_reached(&queue.taken, (uint32_t)(position + 1)));
            int take = round % 4 + 1;
            for (int i = 0; i < take; i++, popped++) {
                assert_true(fy_queue_pop(&queue, &request, &position));
                assert_int_equal(position, popped);
                assert_int_equal(request.offset, popped);
            }
            assert_true(fy_counter_reached(&queue.taken, (uint32_t)popped));
            for (; popped < pushed; popped++) {
                assert_true(fy_queue_pop(&queue, &request, &position));
                assert_int_equal(request.offset, popped);
            }
            assert_false(fy_queue_pop(&queue, &request, &position));
        }
        fy_queue_fini(&queue);
    }
}

#define PRODUCERS 4
#define PER_PRODUCER 5000

typedef struct producer {
    fy_queue_t *queue;
    uint64_t id;
} producer_t;

static void *produce(void *argument) {
    const producer_t *producer = argument;
    for (uint64_t i = 0; i < PER_PRODUCER; i++) {
        fy_request_t request = request_of(producer->id << 32 | i);
        request.bytes = (size_t)(i * 3);
        uint64_t position = 0;
        while (!fy_queue_push(producer->queue, &request, &position)) {
            (void)sched_yield();
        }
    }
    return NULL;
}

/* Nothing lost, nothing doubled, each producer's in order, while the consumer sleeps in between. */
static void test_queue_threads(void **state) {
    (void)state;
    fy_queue_t queue = {0};
    assert_int_equal(fy_queue_init(&queue, 8, UINT32_MAX - 1000, NULL), FERRY_OK);
    pthread_t threads[PRODUCERS];
    producer_t producers[PRODUCERS];
    for (uint64_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (producer_t){&queue, i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    uint64_t next[PRODUCERS] = {0};
    for (uint64_t n = 0; n < PRODUCERS * PER_PRODUCER;) {
        uint32_t seen = fy_counter_load(&queue.filled);
        uint64_t position = 0;
        fy_request_t request;
        if (!fy_queue_pop(&queue, &request, &position)) {
            fy_queue_doze(&queue, seen, UINT64_C(10000000000));
            continue;
        }
        uint64_t id = request.offset >> 32;
        uint64_t number = request.offset & UINT32_MAX;
        assert_true(id < PRODUCERS);
        assert_int_equal(number, next[id]);
        assert_int_equal(request.bytes, number * 3);
        next[id]++;
        n++;
    }
    for (size_t i = 0; i < PRODUCERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    fy_queue_fini(&queue);
}

/* --- tables --- */

static ferry_status_t bare_open(ferry_world_t *world, const void *config, void **state_p,
                                ferry_error_t *err) {
    (void)world;
    (void)err;
    memcpy(state_p, &config, sizeof config); /* only read */
    return FERRY_OK;
}

static int closed;

static void bare_close(void *state) {
    (void)state;
    closed++;
}

static uint32_t bare_caps(const void *state, uint32_t peer) {
    (void)peer;
    return *(const uint32_t *)state;
}

static ferry_status_t table_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_transport_t *transport = NULL;
    assert_string_equal(ferry_transport_name(0), "shm");
    assert_null(ferry_transport_name(1));
    assert_int_equal(ferry_transport_open(world, "nosuch", &transport, err), FERRY_UNSUPPORTED);
    ferry_transport_ops_t ops = fy_transport_shm;
    ops.open = bare_open;
    ops.close = bare_close;
    ops.caps = bare_caps;
    uint32_t caps = 0;
    closed = 0;
    assert_int_equal(ferry_transport_open_table(world, &ops, &caps, &transport, err), FERRY_OK);
    ferry_transport_close(transport);
    assert_int_equal(closed, 1);
    /* A promise without the function. */
    caps = FERRY_TRANSPORT_SENDRECV;
    assert_int_equal(ferry_transport_open_table(world, &ops, &caps, &transport, err),
                     FERRY_INVALID);
    assert_non_null(strstr(err->text, "send"));
    assert_int_equal(closed, 2);
    caps = FERRY_TRANSPORT_PUT;
    ops.flush = NULL;
    assert_int_equal(ferry_transport_open_table(world, &ops, &caps, &transport, err),
                     FERRY_INVALID);
    assert_non_null(strstr(err->text, "flush"));
    caps = 0;
    ops.attach = NULL;
    assert_int_equal(ferry_transport_open_table(world, &ops, &caps, &transport, err),
                     FERRY_INVALID);
    assert_non_null(strstr(err->text, "attach"));
    ops.size = 8;
    assert_int_equal(ferry_transport_open_table(world, &ops, &caps, &transport, err),
                     FERRY_VERSION);
    ferry_error_clear(err);
    return FERRY_OK;
}

static void test_tables(void **state) {
    (void)state;
    assert_int_equal(ferry_world_run_threads(1, table_body, NULL, NULL, NULL, NULL), FERRY_OK);
    assert_string_equal(ferry_transport_call_name(FERRY_CALL_RECV), "recv");
    assert_string_equal(ferry_transport_call_name((ferry_transport_call_t)99), "?");
}

/* --- decorators --- */

/* `calls` signals through a transport that injects; how many came through. */
static uint32_t strike(ferry_world_t *world, ferry_fault_params_t fault, uint32_t calls,
                       uint64_t *strikes_p, uint32_t *errors_p) {
    ferry_transport_t *shm = NULL;
    ferry_transport_t *faulty = NULL;
    ferry_transport_key_t key;
    ferry_remote_t remote;
    void *memory = NULL;
    assert_int_equal(ferry_mem_alloc(world, 64, &memory, NULL), FERRY_OK);
    assert_int_equal(ferry_transport_open(world, NULL, &shm, NULL), FERRY_OK);
    assert_int_equal(ferry_transport_fault(shm, &fault, &faulty, NULL), FERRY_OK);
    assert_string_equal(faulty->ops->name, "shm");
    assert_true(faulty->ops->progress == NULL && faulty->ops->send == NULL);
    assert_int_equal(faulty->ops->enroll(faulty->state, memory, 64, &key, NULL), FERRY_OK);
    assert_int_equal(faulty->ops->attach(faulty->state, &key, &remote, NULL), FERRY_OK);
    *errors_p = 0;
    for (uint32_t i = 0; i < calls; i++) {
        if (faulty->ops->signal(faulty->state, &remote, 0, NULL) != FERRY_OK) {
            (*errors_p)++;
        }
    }
    assert_int_equal(ferry_transport_fault_calls(faulty), calls);
    *strikes_p = ferry_transport_fault_strikes(faulty);
    uint32_t count = fy_counter_load(memory);
    ferry_transport_close(faulty);
    assert_int_equal(ferry_mem_free(world, memory, NULL), FERRY_OK);
    return count;
}

static ferry_status_t fault_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    (void)err;
    uint64_t strikes = 0;
    uint32_t errors = 0;
    ferry_fault_params_t fault = FERRY_FAULT_PARAMS_INIT;
    fault.at_call = 3;
    assert_int_equal(strike(world, fault, 10, &strikes, &errors), 10); /* NONE only counts */
    assert_int_equal(strikes, 0);
    fault.kind = FERRY_FAULT_DROP;
    assert_int_equal(strike(world, fault, 10, &strikes, &errors), 9);
    assert_true(strikes == 1 && errors == 0);
    fault.kind = FERRY_FAULT_ERROR;
    assert_int_equal(strike(world, fault, 10, &strikes, &errors), 9);
    assert_true(strikes == 1 && errors == 1);
    assert_int_equal(strike(world, fault, 2, &strikes, &errors), 2);
    assert_int_equal(strikes, 0);
    /* By chance: about as often as asked, and the same calls for the same seed. */
    fault.at_call = 0;
    fault.per_million = 250000;
    uint64_t again = 0;
    uint32_t through = strike(world, fault, 10000, &strikes, &errors);
    assert_int_equal(through + strikes, 10000);
    assert_in_range(strikes, 2200, 2800);
    assert_int_equal(strike(world, fault, 10000, &again, &errors), through);
    fault.seed = 1;
    (void)strike(world, fault, 10000, &again, &errors);
    assert_in_range(again, 2200, 2800);
    assert_int_not_equal(again, strikes);
    return FERRY_OK;
}

static void test_faults(void **state) {
    (void)state;
    assert_int_equal(ferry_world_run_threads(1, fault_body, NULL, NULL, NULL, NULL), FERRY_OK);
}

static ferry_status_t ring_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_trace_event_t events[FERRY_TRACE_MIN_EVENTS];
    ferry_trace_params_t trace = FERRY_TRACE_PARAMS_INIT;
    ferry_transport_t *shm = NULL;
    ferry_transport_t *traced = NULL;
    assert_int_equal(ferry_transport_open(world, NULL, &shm, err), FERRY_OK);
    trace.events = events;
    trace.capacity = FERRY_TRACE_MIN_EVENTS - 1;
    assert_int_equal(ferry_transport_trace(shm, &trace, &traced, err), FERRY_INVALID);
    trace.capacity = FERRY_TRACE_MIN_EVENTS;
    assert_int_equal(ferry_transport_trace(shm, &trace, &traced, err), FERRY_OK);
    assert_int_equal(ferry_transport_trace_count(shm), 0);
    uint8_t target[200] = {0};
    uint8_t source[200];
    memset(source, 1, sizeof source);
    ferry_transport_key_t key;
    ferry_remote_t remote;
    assert_int_equal(traced->ops->enroll(traced->state, target, 200, &key, err), FERRY_OK);
    assert_int_equal(traced->ops->attach(traced->state, &key, &remote, err), FERRY_OK);
    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(traced->ops->put(traced->state, &remote, i, source, i, err), FERRY_OK);
    }
    assert_int_equal(ferry_transport_trace_count(traced), 100);
    for (uint64_t i = 100 - FERRY_TRACE_MIN_EVENTS; i < 100; i++) { /* the newest */
        assert_int_equal(events[i % FERRY_TRACE_MIN_EVENTS].bytes, i + 1);
        assert_int_equal(events[i % FERRY_TRACE_MIN_EVENTS].call, FERRY_CALL_PUT);
    }
    assert_true(target[0] == 0 && target[1] == 1 && target[199] == 1);
    traced->ops->withdraw(traced->state, &key);
    ferry_transport_close(traced);
    ferry_error_clear(err);
    return FERRY_OK;
}

static void test_trace(void **state) {
    (void)state;
    assert_int_equal(ferry_world_run_threads(1, ring_body, NULL, NULL, NULL, NULL), FERRY_OK);
}

/* --- a rank alone --- */

/* A channel that was idle while 2^32 requests passed is flushed as any other. */
static ferry_status_t idle_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t peers[] = {0, 0};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.port_peers = peers;
    params.nport = 2;
    ferry_channels_t *set = NULL;
    assert_int_equal(ferry_channels_open(ferry_world_group(world), &params, &set, err), FERRY_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ferry_port_signal(ferry_channels_port(set, 0), err), FERRY_OK);
    }
    assert_int_equal(ferry_port_flush(ferry_channels_port(set, 0), err), FERRY_OK);
    /* As if it were 2^32 requests ago, or 2^31: 32 bits would call that the future. */
    atomic_store(&set->finished, (UINT64_C(3) << 31) + 10);
    atomic_store(&set->finished_low.value, (uint32_t)((UINT64_C(3) << 31) + 10));
    assert_int_equal(ferry_port_flush(ferry_channels_port(set, 0), err), FERRY_OK);
    assert_int_equal(ferry_port_flush(ferry_channels_port(set, 1), err), FERRY_OK);
    return ferry_channels_close(set, err);
}

static ferry_status_t fork_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    int *pipe_ends = context;
    uint32_t self = 0;
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.memory_peers = &self;
    params.nmemory = 1;
    params.port_peers = &self;
    params.nport = 1;
    ferry_channels_t *set = NULL;
    assert_int_equal(ferry_channels_open(ferry_world_group(world), &params, &set, err), FERRY_OK);
    pid_t pid = fork();
    if (pid == 0) {
        uint8_t ok = ferry_memory_signal(ferry_channels_memory(set, 0), err) == FERRY_INVALID &&
                     ferry_memory_wait(ferry_channels_memory(set, 0), err) == FERRY_INVALID &&
                     ferry_port_signal(ferry_channels_port(set, 0), err) == FERRY_INVALID &&
                     ferry_channels_close(set, err) == FERRY_INVALID &&
                     strstr(err->text, "forked") != NULL;
        (void)!write(pipe_ends[1], &ok, 1);
        _exit(0);
    }
    uint8_t ok = 0;
    assert_int_equal(read(pipe_ends[0], &ok, 1), 1);
    assert_int_equal(ok, 1);
    assert_int_equal(ferry_memory_signal(ferry_channels_memory(set, 0), err), FERRY_OK);
    assert_int_equal(ferry_memory_wait(ferry_channels_memory(set, 0), err), FERRY_OK);
    return ferry_channels_close(set, err);
}

static void test_alone(void **state) {
    (void)state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(ferry_world_run_threads(1, idle_body, NULL, NULL, NULL, NULL), FERRY_OK);
    assert_int_equal(ferry_world_run_threads(1, fork_body, pipe_ends, NULL, NULL, NULL), FERRY_OK);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    assert_int_equal(ferry_channels_close(NULL, NULL), FERRY_OK);
    ferry_transport_close(NULL);
}

int main(void) {
    (void)alarm(100);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue),  cmocka_unit_test(test_queue_threads),
        cmocka_unit_test(test_tables), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_trace),  cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
