/* test_channel.c - what each operation of a channel means, one by one, on ranks of every kind.
 *
 * The meanings are those of mscclpp-plan-format.md, sections 3.1, 7.1, 7.2, 7.4 and 7.5. */
#include <pthread.h>

#include <ferry/channel.h>

#include "multi/body.h"

#define KIB 1024

/* Each rank's buffer 0, in shared memory, and the set that everyone opens. */
typedef struct kit {
    ferry_channels_t *set;
    uint8_t *memory;
    uint32_t rank;
    uint32_t size;
} kit_t;

/* Memory and port channels to every rank, also to itself, in rank order: channel p leads to rank p. */
static ferry_status_t kit_open(kit_t *kit, ferry_world_t *world, size_t bytes,
                               const ferry_channels_params_t *more, ferry_error_t *err) {
    uint32_t peers[64];
    void *memory = NULL;
    kit->rank = ferry_world_rank(world);
    kit->size = ferry_world_size(world);
    for (uint32_t i = 0; i < kit->size; i++) {
        peers[i] = i;
    }
    GOOD(ferry_mem_alloc(world, bytes, &memory, err));
    kit->memory = memory;
    ferry_buffer_t buffer = {memory, bytes};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    if (more != NULL) {
        params = *more;
    }
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.memory_peers = peers;
    params.nmemory = kit->size;
    params.port_peers = peers;
    params.nport = kit->size;
    return ferry_channels_open(ferry_world_group(world), &params, &kit->set, err);
}

static ferry_status_t kit_close(kit_t *kit, ferry_world_t *world, ferry_error_t *err) {
    GOOD(ferry_channels_close(kit->set, err));
    return ferry_mem_free(world, kit->memory, err);
}

static float larger(float a, float b) {
    return a > b ? a : b;
}

#define MEMORY(kit, i) ferry_channels_memory((kit)->set, i)
#define PORT(kit, i) ferry_channels_port((kit)->set, i)

/* --- counts --- */

/* Signals wait to be consumed, are consumed one by one, and nothing resets them. */
static ferry_status_t count_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    GOOD(kit_open(&kit, world, KIB, NULL, err));
    ferry_memory_channel_t *other = MEMORY(&kit, 1 - kit.rank);
    bool consumed = true;
    if (kit.rank == 0) {
        for (int i = 0; i < 5; i++) {
            GOOD(i % 2 == 0 ? ferry_memory_signal(other, err)
                            : ferry_memory_signal_relaxed(other, err));
        }
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (kit.rank == 1) {
        for (int i = 0; i < 3; i++) {
            GOOD(i % 2 == 0 ? ferry_memory_wait_relaxed(other, err)
                            : ferry_memory_wait(other, err));
        }
        GOOD(ferry_memory_poll(other, &consumed, err));
        EXPECT(consumed);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (kit.rank == 0) {
        GOOD(ferry_memory_signal(other, err));
    } else {
        GOOD(ferry_memory_wait(other, err)); /* the fifth */
        GOOD(ferry_memory_wait(other, err)); /* the sixth */
    }
    GOOD(ferry_memory_poll(other, &consumed, err));
    EXPECT(!consumed);
    /* Ports count apart from memory channels. */
    GOOD(ferry_port_signal(PORT(&kit, 1 - kit.rank), err));
    GOOD(ferry_port_wait(PORT(&kit, 1 - kit.rank), err));
    GOOD(ferry_memory_poll(other, &consumed, err));
    EXPECT(!consumed);
    GOOD(ferry_port_poll(PORT(&kit, 1 - kit.rank), &consumed, err));
    EXPECT(!consumed);
    return kit_close(&kit, world, err);
}

/* A ring of two: "next" and "previous" in opposite order. Signals arrive at the paired end only. */
static ferry_status_t pair_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peers[4] = {1 - rank, 1 - rank, rank, 1 - rank};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.memory_peers = peers;
    params.nmemory = rank == 0 ? 4 : 3; /* rank 0 has one end more than rank 1 */
    ferry_channels_t *set = NULL;
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &set, err));
    EXPECT(ferry_channels_memory(set, params.nmemory) == NULL);
    EXPECT(ferry_memory_peer(ferry_channels_memory(set, 2)) == rank);
    ferry_memory_channel_t *next = ferry_channels_memory(set, rank == 0 ? 0 : 1);
    ferry_memory_channel_t *previous = ferry_channels_memory(set, rank == 0 ? 1 : 0);
    ferry_memory_channel_t *self = ferry_channels_memory(set, 2);
    bool consumed = true;
    GOOD(ferry_memory_signal(next, err));
    GOOD(ferry_memory_signal(self, err));
    if (rank == 0) {
        GOOD(ferry_memory_signal(ferry_channels_memory(set, 3), err)); /* to the missing end */
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    GOOD(ferry_memory_poll(next, &consumed, err));
    EXPECT(!consumed);
    GOOD(ferry_memory_poll(previous, &consumed, err));
    EXPECT(consumed); /* the other end of its next */
    GOOD(ferry_memory_poll(previous, &consumed, err));
    EXPECT(!consumed);
    GOOD(ferry_memory_poll(self, &consumed, err));
    EXPECT(consumed);
    GOOD(ferry_memory_poll(self, &consumed, err));
    EXPECT(!consumed);
    return ferry_channels_close(set, err);
}

/* --- data --- */

static ferry_status_t data_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    GOOD(kit_open(&kit, world, 4 * KIB, NULL, err));
    uint32_t peer = (kit.rank + 1) % kit.size;
    uint32_t from = (kit.rank + kit.size - 1) % kit.size;
    uint8_t local[KIB];
    memset(local, (int)(kit.rank + 1), sizeof local);
    GOOD(ferry_memory_put(MEMORY(&kit, peer), 0, 100, local, 50, err));
    GOOD(ferry_memory_put(MEMORY(&kit, peer), 0, 4 * KIB - 1, local, 1, err));
    GOOD(ferry_memory_put(MEMORY(&kit, peer), 0, 4 * KIB, NULL, 0, err));
    GOOD(ferry_memory_signal(MEMORY(&kit, peer), err));
    GOOD(ferry_memory_wait(MEMORY(&kit, from), err));
    for (size_t i = 0; i < 4 * KIB; i++) {
        bool in = (i >= 100 && i < 150) || i == 4 * KIB - 1;
        EXPECT(kit.memory[i] == (in ? from + 1 : 0));
    }
    GOOD(ferry_memory_get(MEMORY(&kit, peer), 0, 140, local, 20, err));
    for (size_t i = 0; i < KIB; i++) {
        EXPECT(local[i] == (i >= 10 && i < 20 ? 0 : kit.rank + 1));
    }
    /* One byte too far, in every way. */
    EXPECT(ferry_memory_put(MEMORY(&kit, peer), 0, 4 * KIB, local, 1, err) == FERRY_INVALID);
    EXPECT(err->rank == kit.rank && err->peer == peer);
    EXPECT(ferry_memory_put(MEMORY(&kit, peer), 0, UINT64_MAX, local, 2, err) == FERRY_INVALID);
    EXPECT(ferry_memory_put(MEMORY(&kit, peer), 1, 0, local, 1, err) == FERRY_INVALID);
    EXPECT(ferry_memory_get(MEMORY(&kit, peer), 0, 4 * KIB - 1, local, 2, err) == FERRY_INVALID);
    EXPECT(ferry_port_put(PORT(&kit, peer), 0, 1, local, 4 * KIB, err) == FERRY_INVALID);
    EXPECT(ferry_memory_put(MEMORY(&kit, peer), 0, 0, NULL, 1, err) == FERRY_INVALID);
    EXPECT(ferry_memory_put(NULL, 0, 0, local, 1, err) == FERRY_INVALID);
    ferry_error_clear(err);
    GOOD(ferry_channels_check(kit.set, err)); /* and nothing is broken */
    EXPECT(ferry_channels_nbuffers(kit.set, peer) == 1);
    EXPECT(ferry_channels_buffer_bytes(kit.set, peer, 0) == 4 * KIB);
    EXPECT(ferry_channels_buffer_bytes(kit.set, peer, 1) == 0);
    EXPECT(ferry_channels_buffer_bytes(kit.set, kit.size, 0) == 0);
    void *mapped = NULL;
    GOOD(ferry_channels_map(kit.set, peer, 0, 100, 50, &mapped, err));
    EXPECT(*(uint8_t *)mapped == kit.rank + 1);
    EXPECT(ferry_channels_map(kit.set, kit.size, 0, 0, 1, &mapped, err) == FERRY_INVALID);
    return kit_close(&kit, world, err);
}

static ferry_status_t reduce_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    GOOD(kit_open(&kit, world, 4 * KIB, NULL, err));
    uint32_t peer = 1 - kit.rank;
    float *mine = (float *)(void *)kit.memory;
    for (int i = 0; i < 300; i++) {
        mine[i] = (float)((int)kit.rank * 1000 + i);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    float local[100];
    float target[100];
    for (int i = 0; i < 100; i++) {
        local[i] = (float)(i * i);
    }
    GOOD(ferry_memory_reduce(MEMORY(&kit, peer), target, local, 0, 200 * 4, 100, FERRY_F32,
                             FERRY_REDUCE_SUM, err));
    GOOD(ferry_memory_reduce(MEMORY(&kit, peer), local, local, 0, 200 * 4, 100, FERRY_F32,
                             FERRY_REDUCE_MAX, err));
    for (int i = 0; i < 100; i++) {
        float theirs = (float)((int)peer * 1000 + 200 + i);
        EXPECT(target[i] == (float)(i * i) + theirs);
        EXPECT(local[i] == larger((float)(i * i), theirs));
    }
    EXPECT(ferry_memory_reduce(MEMORY(&kit, peer), local, local, 0, 4 * KIB - 4, 2, FERRY_F32,
                               FERRY_REDUCE_SUM, err) == FERRY_INVALID);
    ferry_error_clear(err);
    return kit_close(&kit, world, err);
}

/* --- ports --- */

/* Each signal comes after the put before it. */
static ferry_status_t order_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const uint64_t *rounds = context;
    kit_t kit;
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.queue_slots = 4;
    params.first_count = UINT32_MAX - 20; /* wraps on the way */
    GOOD(kit_open(&kit, world, *rounds * 8, &params, err));
    uint64_t *values = malloc(*rounds * sizeof *values);
    EXPECT(values != NULL);
    for (uint64_t i = 0; i < *rounds && kit.rank == 0; i++) {
        values[i] = i + 1;
        if (i % 3 == 0) {
            GOOD(ferry_port_put(PORT(&kit, 1), 0, i * 8, &values[i], 8, err));
            GOOD(ferry_port_signal(PORT(&kit, 1), err));
        } else if (i % 7 == 0) {
            GOOD(ferry_port_put_with_signal_and_flush(PORT(&kit, 1), 0, i * 8, &values[i], 8, err));
            values[i] = 0; /* flushed: the source is ours again */
        } else {
            GOOD(ferry_port_put_with_signal(PORT(&kit, 1), 0, i * 8, &values[i], 8, err));
        }
    }
    const uint64_t *got = (const uint64_t *)(const void *)kit.memory;
    for (uint64_t i = 0; i < *rounds && kit.rank == 1; i++) {
        GOOD(ferry_port_wait(PORT(&kit, 0), err));
        EXPECT(got[i] == i + 1);
    }
    if (kit.rank == 0) {
        GOOD(ferry_port_flush(PORT(&kit, 1), err));
    }
    free(values);
    return kit_close(&kit, world, err);
}

/* All that a rank does through a transport that is slow by `us` at every put. */
static ferry_status_t slow_transport(ferry_world_t *world, uint32_t us, uint32_t calls,
                                     ferry_transport_t **transport_p, ferry_error_t *err) {
    ferry_fault_params_t fault = FERRY_FAULT_PARAMS_INIT;
    fault.kind = FERRY_FAULT_DELAY;
    fault.per_million = 1000000;
    fault.delay_us = us;
    fault.calls = calls;
    ferry_transport_t *shm = NULL;
    GOOD(ferry_transport_open(world, "shm", &shm, err));
    ferry_status_t status = ferry_transport_fault(shm, &fault, transport_p, err);
    if (status != FERRY_OK) {
        ferry_transport_close(shm);
    }
    return status;
}

/* Queueing does not wait for the proxy; flush does. */
static ferry_status_t flush_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    ferry_transport_t *slow = NULL;
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    GOOD(slow_transport(world, 30000, UINT32_C(1) << FERRY_CALL_PUT, &slow, err));
    params.transport = slow;
    GOOD(kit_open(&kit, world, KIB, &params, err));
    uint32_t source = 7;
    if (kit.rank == 0) {
        double begin = body_seconds();
        GOOD(ferry_port_put(PORT(&kit, 1), 0, 0, &source, 4, err));
        EXPECT(body_seconds() - begin < 0.025);
        GOOD(ferry_port_flush(PORT(&kit, 1), err));
        EXPECT(body_seconds() - begin > 0.029);
        source = 8; /* too late to be seen at 0 */
        GOOD(ferry_port_put_with_signal_and_flush(PORT(&kit, 1), 0, 4, &source, 4, err));
        source = 9;
        GOOD(ferry_port_flush(PORT(&kit, 1), err)); /* nothing is queued: at once */
        GOOD(ferry_port_put_with_signal(PORT(&kit, 1), 0, 8, &source, 4, err));
        GOOD(ferry_port_put(PORT(&kit, 1), 0, 12, &source, 4, err)); /* closing finishes it */
    } else {
        GOOD(ferry_port_wait(PORT(&kit, 0), err));
        GOOD(ferry_port_wait(PORT(&kit, 0), err));
        const uint32_t *got = (const uint32_t *)(const void *)kit.memory;
        EXPECT(got[0] == 7 && got[1] == 8 && got[2] == 9);
    }
    GOOD(ferry_channels_close(kit.set, err));
    EXPECT(kit.rank == 0 || ((const uint32_t *)(const void *)kit.memory)[3] == 9);
    EXPECT(ferry_transport_fault_calls(slow) == (kit.rank == 0 ? 4 : 0));
    ferry_transport_close(slow);
    return FERRY_OK;
}

/* --- many threads of a rank on one channel --- */

#define CREW 4
#define SHIFTS 400

typedef struct hand {
    kit_t *kit;
    ferry_status_t status;
} hand_t;

static void *hand_main(void *argument) {
    hand_t *hand = argument;
    kit_t *kit = hand->kit;
    uint32_t peer = 1 - kit->rank;
    for (int i = 0; i < SHIFTS && hand->status == FERRY_OK; i++) {
        uint8_t byte = 1;
        if (kit->rank == 0) {
            hand->status = ferry_memory_signal(MEMORY(kit, peer), NULL);
            if (hand->status == FERRY_OK) {
                hand->status = ferry_port_put_with_signal(PORT(kit, peer), 0, 0, &byte, 0, NULL);
            }
            if (hand->status == FERRY_OK && i % 50 == 0) {
                hand->status = ferry_port_flush(PORT(kit, peer), NULL);
            }
        } else {
            hand->status = ferry_memory_wait(MEMORY(kit, peer), NULL);
            if (hand->status == FERRY_OK) {
                hand->status = ferry_port_wait(PORT(kit, peer), NULL);
            }
        }
    }
    return NULL;
}

static ferry_status_t crew_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.queue_slots = 8;
    GOOD(kit_open(&kit, world, KIB, &params, err));
    pthread_t threads[CREW];
    hand_t hands[CREW];
    for (int i = 0; i < CREW; i++) {
        hands[i] = (hand_t){&kit, FERRY_OK};
        EXPECT(pthread_create(&threads[i], NULL, hand_main, &hands[i]) == 0);
    }
    for (int i = 0; i < CREW; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < CREW; i++) {
        EXPECT(hands[i].status == FERRY_OK);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    bool consumed = true;
    GOOD(ferry_memory_poll(MEMORY(&kit, 1 - kit.rank), &consumed, err));
    EXPECT(!consumed);
    GOOD(ferry_port_poll(PORT(&kit, 1 - kit.rank), &consumed, err));
    EXPECT(!consumed);
    return kit_close(&kit, world, err);
}

/* --- switch --- */

#define SWITCH_ELEMENTS 20000 /* more than one piece */

static float switch_value(uint32_t rank, size_t i) {
    return (float)((i * 7 + rank * 13) % 1001) - 300.0F;
}

static ferry_status_t switch_open(ferry_world_t *world, float **memory_p, ferry_channels_t **set_p,
                                  ferry_error_t *err) {
    static const uint32_t all[] = {2, 0, 1, 3};
    static const uint32_t even[] = {0, 2};
    static const uint32_t odd[] = {3, 1};
    uint32_t rank = ferry_world_rank(world);
    size_t bytes = 3 * SWITCH_ELEMENTS * sizeof(float);
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, bytes, &memory, err));
    ferry_buffer_t buffer = {memory, bytes};
    ferry_switch_members_t switches[] = {{all, 4}, {rank % 2 == 0 ? even : odd, 2}};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.switches = switches;
    params.nswitch = 2;
    *memory_p = memory;
    float *mine = memory;
    for (size_t i = 0; i < SWITCH_ELEMENTS; i++) {
        mine[i] = switch_value(rank, i);
    }
    return ferry_channels_open(ferry_world_group(world), &params, set_p, err);
}

static ferry_status_t switch_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    const uint64_t n = SWITCH_ELEMENTS;
    uint32_t rank = ferry_world_rank(world);
    ferry_channels_t *set = NULL;
    float *mine = NULL;
    GOOD(switch_open(world, &mine, &set, err));
    ferry_switch_channel_t *all = ferry_channels_switch(set, 0);
    ferry_switch_channel_t *half = ferry_channels_switch(set, 1);
    EXPECT(ferry_switch_size(all) == 4 && ferry_switch_size(half) == 2);
    EXPECT(ferry_channels_switch(set, 2) == NULL);
    GOOD(ferry_group_barrier(ferry_world_group(world), err));

    float *sum = malloc(n * sizeof *sum);
    EXPECT(sum != NULL);
    GOOD(ferry_switch_reduce(half, sum, 0, 4, n - 1, FERRY_F32, FERRY_REDUCE_SUM, err));
    for (size_t i = 0; i < n - 1; i++) {
        EXPECT(sum[i] == switch_value(rank, i + 1) + switch_value(rank ^ 2u, i + 1));
    }
    /* Each rank sums its quarter for all, to the second third; all values are whole numbers. */
    uint64_t quarter = n / 4;
    GOOD(ferry_switch_reduce_all(all, 0, (n + rank * quarter) * 4, 0, rank * quarter * 4, quarter,
                                 FERRY_F32, FERRY_REDUCE_SUM, err));
    GOOD(ferry_switch_broadcast(all, 0, (2 * n + rank * 10) * 4, mine + rank, 10 * 4, err));
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (uint32_t r = 0; r < 4; r++) {
            want += switch_value(r, i);
        }
        EXPECT(mine[n + i] == want);
    }
    for (uint32_t i = 0; i < 40; i++) {
        EXPECT(mine[2 * n + i] == switch_value(i / 10, i / 10 + i % 10));
    }
    EXPECT(mine[2 * n + 40] == 0);
    /* In place: rank 3 alone; then everybody has the largest. */
    if (rank == 3) {
        GOOD(ferry_switch_reduce_all(all, 0, 0, 0, 0, n, FERRY_F32, FERRY_REDUCE_MAX, err));
        EXPECT(ferry_switch_reduce_all(all, 0, 4, 0, 0, n, FERRY_F32, FERRY_REDUCE_MAX, err) ==
               FERRY_INVALID);
        EXPECT(ferry_switch_broadcast(all, 0, 3 * n * 4 - 8, sum, 12, err) == FERRY_INVALID);
        ferry_error_clear(err);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    for (size_t i = 0; i < n; i++) {
        float want = switch_value(0, i);
        for (uint32_t r = 1; r < 4; r++) {
            want = larger(want, switch_value(r, i));
        }
        EXPECT(mine[i] == want);
    }
    free(sum);
    return ferry_channels_close(set, err);
}

/* --- groups, own memory, traces --- */

/* Two sets at once, one over a group that counts backwards. */
static ferry_status_t group_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    static const uint32_t ranks[] = {3, 1, 0};
    kit_t kit;
    GOOD(kit_open(&kit, world, KIB, NULL, err));
    ferry_group_t *group = NULL;
    GOOD(ferry_group_create(world, ranks, 3, &group, err));
    uint32_t me = ferry_group_rank(group);
    if (me != FERRY_RANK_NONE) {
        uint32_t next = (me + 1) % 3;
        uint32_t peers[] = {next, (me + 2) % 3};
        ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
        ferry_buffer_t buffer = {kit.memory + 512, 8};
        params.buffers = &buffer;
        params.nbuffers = 1;
        params.port_peers = peers;
        params.nport = 2;
        ferry_channels_t *set = NULL;
        GOOD(ferry_channels_open(group, &params, &set, err));
        uint64_t value = me + 100;
        EXPECT(ferry_port_peer(ferry_channels_port(set, 0)) == next);
        GOOD(ferry_port_put_with_signal_and_flush(ferry_channels_port(set, 0), 0, 0, &value, 8,
                                                  err));
        GOOD(ferry_port_wait(ferry_channels_port(set, 1), err));
        EXPECT(*(const uint64_t *)(const void *)(kit.memory + 512) == (me + 2) % 3 + 100);
        GOOD(ferry_channels_close(set, err));
    }
    ferry_group_destroy(group);
    GOOD(ferry_memory_signal(MEMORY(&kit, (kit.rank + 1) % 4), err));
    GOOD(ferry_memory_wait(MEMORY(&kit, (kit.rank + 3) % 4), err));
    return kit_close(&kit, world, err);
}

/* Heap memory: threads may do all to it; processes may read it, where the system allows. */
static ferry_status_t own_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peer = 1 - rank;
    uint8_t *heap = malloc(10000);
    EXPECT(heap != NULL);
    memset(heap, (int)rank + 5, 10000);
    ferry_buffer_t buffers[2] = {{NULL, 0}, {heap, 10000}};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = buffers;
    params.nbuffers = 2;
    params.memory_peers = &peer;
    params.nmemory = 1;
    params.port_peers = &peer;
    params.nport = 1;
    ferry_channels_t *set = NULL;
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &set, err));
    ferry_memory_channel_t *channel = ferry_channels_memory(set, 0);
    uint8_t got[100] = {0};
    EXPECT(ferry_memory_put(channel, 0, 0, got, 1, err) == FERRY_INVALID);
    bool threads = ferry_world_same_process(world, peer);
    ferry_status_t want = ferry_world_can_read(world, peer) ? FERRY_OK : FERRY_UNSUPPORTED;
    EXPECT(ferry_memory_get(channel, 1, 9900, got, 100, err) == want);
    for (size_t i = 0; i < 100 && want == FERRY_OK; i++) {
        EXPECT(got[i] == peer + 5);
    }
    want = threads ? FERRY_OK : FERRY_UNSUPPORTED;
    EXPECT(ferry_memory_put(channel, 1, rank, got, 1, err) == want);
    EXPECT(ferry_port_put(ferry_channels_port(set, 0), 1, rank, got, 1, err) == want);
    void *mapped = NULL;
    EXPECT(ferry_channels_map(set, peer, 1, 0, 1, &mapped, err) == want);
    ferry_error_clear(err);
    GOOD(ferry_memory_signal(channel, err)); /* nothing is broken */
    GOOD(ferry_memory_wait(channel, err));
    GOOD(ferry_channels_close(set, err));
    free(heap);
    return FERRY_OK;
}

static ferry_status_t trace_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_trace_event_t events[FERRY_TRACE_MIN_EVENTS];
    ferry_trace_params_t trace = FERRY_TRACE_PARAMS_INIT;
    trace.events = events;
    trace.capacity = FERRY_TRACE_MIN_EVENTS;
    ferry_transport_t *shm = NULL;
    ferry_transport_t *traced = NULL;
    GOOD(ferry_transport_open(world, NULL, &shm, err));
    GOOD(ferry_transport_trace(shm, &trace, &traced, err));
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.transport = traced;
    kit_t kit;
    GOOD(kit_open(&kit, world, KIB, &params, err));
    EXPECT(ferry_transport_trace_count(traced) == 0);
    uint32_t peer = 1 - kit.rank;
    uint8_t bytes[10] = {0};
    GOOD(ferry_memory_put(MEMORY(&kit, peer), 0, 0, bytes, 10, err));
    GOOD(ferry_memory_signal(MEMORY(&kit, peer), err));
    GOOD(ferry_memory_wait(MEMORY(&kit, peer), err));
    GOOD(ferry_memory_get(MEMORY(&kit, peer), 0, 0, bytes, 7, err));
    GOOD(ferry_port_put_with_signal_and_flush(PORT(&kit, kit.rank), 0, 512, bytes, 5, err));
    GOOD(kit_close(&kit, world, err));
    static const uint32_t calls[] = {FERRY_CALL_PUT, FERRY_CALL_SIGNAL, FERRY_CALL_READ,
                                     FERRY_CALL_PUT, FERRY_CALL_SIGNAL, FERRY_CALL_FLUSH};
    static const uint64_t sizes[] = {10, 0, 7, 5, 0, 0};
    EXPECT(ferry_transport_trace_count(traced) == 6);
    for (size_t i = 0; i < 6; i++) {
        EXPECT(events[i].call == calls[i] && events[i].bytes == sizes[i]);
        EXPECT(events[i].rank == kit.rank && events[i].peer == (i < 3 ? peer : kit.rank));
        EXPECT(events[i].status == FERRY_OK && events[i].begin_ns <= events[i].end_ns);
        EXPECT(i == 0 || events[i - 1].end_ns <= events[i].begin_ns);
    }
    ferry_transport_close(traced);
    return FERRY_OK;
}

/* --- opening that fails, and the next one that does not --- */

static ferry_status_t refuse_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peers[] = {0, rank == 2 ? 3 : 1};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.memory_peers = peers;
    params.nmemory = 2;
    ferry_channels_t *set = NULL;
    EXPECT(ferry_channels_open(ferry_world_group(world), &params, &set, err) == FERRY_INVALID);
    EXPECT(set == NULL && err->rank == 2 && strstr(err->text, "memory channel 1") != NULL);
    peers[1] = 1;
    params.queue_slots = rank == 1 ? 3 : 0;
    EXPECT(ferry_channels_open(ferry_world_group(world), &params, &set, err) == FERRY_INVALID);
    EXPECT(set == NULL && err->rank == 1 && strstr(err->text, "power of two") != NULL);
    params.queue_slots = 0;
    ferry_switch_members_t without = {peers, 2};
    params.switches = &without; /* ranks 0 and 1; rank 2 is not in it */
    params.nswitch = 1;
    EXPECT(ferry_channels_open(ferry_world_group(world), &params, &set, err) == FERRY_INVALID);
    EXPECT(set == NULL && err->rank == 2 && strstr(err->text, "is not in it") != NULL);
    params.nswitch = 0;
    params.size = rank == 0 ? 8 : params.size;
    EXPECT(ferry_channels_open(ferry_world_group(world), &params, &set, err) == FERRY_VERSION);
    params.size = sizeof params;
    ferry_error_clear(err);
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &set, err));
    return ferry_channels_close(set, err);
}

/* A failure breaks the set for good; after recovery another one works. */
static ferry_status_t broken_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    ferry_fault_params_t fault = FERRY_FAULT_PARAMS_INIT;
    fault.kind = rank == 1 ? FERRY_FAULT_ERROR : FERRY_FAULT_NONE;
    fault.at_call = 2;
    ferry_transport_t *shm = NULL;
    ferry_transport_t *faulty = NULL;
    GOOD(ferry_transport_open(world, NULL, &shm, err));
    GOOD(ferry_transport_fault(shm, &fault, &faulty, err));
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.transport = faulty;
    kit_t kit;
    GOOD(kit_open(&kit, world, KIB, &params, err));
    uint32_t peer = (rank + 1) % kit.size;
    uint32_t from = (rank + kit.size - 1) % kit.size;
    double begin = body_seconds();
    ferry_status_t status = FERRY_OK;
    while (status == FERRY_OK) {
        status = ferry_memory_signal(MEMORY(&kit, peer), err);
        if (status == FERRY_OK) {
            status = ferry_memory_wait(MEMORY(&kit, from), err);
        }
    }
    EXPECT(body_seconds() - begin < 2);
    EXPECT(status == FERRY_IO && err->rank == 1 && err->peer == 2 % kit.size);
    EXPECT(err->sys_errno == EIO);
    EXPECT(strcmp(err->text, "signal on memory channel 2: injected fault at call 2, signal") == 0);
    EXPECT(ferry_port_signal(PORT(&kit, peer), err) == FERRY_IO && err->rank == 1);
    EXPECT(strncmp(err->text, "the channels are broken: signal on", 34) == 0);
    EXPECT(ferry_memory_wait(MEMORY(&kit, from), err) == FERRY_IO);
    ferry_error_clear(err);
    GOOD(ferry_world_recover(world, err));
    EXPECT(ferry_channels_check(kit.set, err) == FERRY_IO);
    EXPECT(ferry_channels_close(kit.set, err) == FERRY_IO);
    ferry_error_clear(err);
    GOOD(kit_open(&kit, world, KIB, NULL, err));
    GOOD(ferry_port_signal(PORT(&kit, peer), err));
    GOOD(ferry_port_wait(PORT(&kit, from), err));
    GOOD(kit_close(&kit, world, err));
    ferry_transport_close(faulty);
    return FERRY_OK;
}

/* A set that saw nothing of a failure is as old as one that did. */
static ferry_status_t outlived_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    kit_t kit;
    GOOD(kit_open(&kit, world, KIB, NULL, err));
    if (kit.rank == 0) {
        ferry_error_t mine = FERRY_ERROR_INIT;
        mine.status = FERRY_STOPPED;
        EXPECT(ferry_world_fail(world, &mine, err) == FERRY_STOPPED);
    }
    while (ferry_world_check(world, NULL) == FERRY_OK) {
        body_sleep(0.001);
    }
    GOOD(ferry_world_recover(world, err));
    uint32_t peer = (kit.rank + 1) % kit.size;
    EXPECT(ferry_memory_signal(MEMORY(&kit, peer), err) == FERRY_IO);
    EXPECT(strstr(err->text, "recovered since") != NULL && err->rank == kit.rank);
    EXPECT(ferry_channels_close(kit.set, err) == FERRY_IO);
    ferry_error_clear(err);
    GOOD(kit_open(&kit, world, KIB, NULL, err));
    return kit_close(&kit, world, err);
}

/* --- running them --- */

static void run_on_all(uint32_t size, ferry_rank_fn_t fn, void *context) {
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        body_traces_t before = body_look();
        run_well((body_kind_t)kind, size, fn, context, NULL);
        body_expect_no_trace(before);
    }
}

static void test_counts(void **state) {
    (void)state;
    run_on_all(2, count_body, NULL);
    run_on_all(2, pair_body, NULL);
}

static void test_data(void **state) {
    (void)state;
    run_on_all(1, data_body, NULL);
    run_on_all(3, data_body, NULL);
    run_on_all(2, reduce_body, NULL);
}

static void test_ports(void **state) {
    (void)state;
    uint64_t rounds = 2000;
    run_on_all(2, order_body, &rounds);
    run_on_all(2, flush_body, NULL);
}

static void test_threads_of_a_rank(void **state) {
    (void)state;
    run_on_all(2, crew_body, NULL);
}

static void test_switches(void **state) {
    (void)state;
    run_on_all(4, switch_body, NULL);
}

static void test_sets(void **state) {
    (void)state;
    run_on_all(4, group_body, NULL);
    run_on_all(2, own_body, NULL);
    run_on_all(2, trace_body, NULL);
}

static void test_refusals(void **state) {
    (void)state;
    run_on_all(3, refuse_body, NULL);
}

static void test_broken(void **state) {
    (void)state;
    run_on_all(3, broken_body, NULL);
    run_on_all(2, outlived_body, NULL);
}

int main(void) {
    (void)alarm(200);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_data),
        cmocka_unit_test(test_ports),    cmocka_unit_test(test_threads_of_a_rank),
        cmocka_unit_test(test_switches), cmocka_unit_test(test_sets),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
