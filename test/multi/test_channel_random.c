/* test_channel_random.c - random programs over channels against a naive model, and the tests that
 * would see a missing fence.
 *
 * A program is a list of messages in one global order, drawn from a seed that all ranks know. Each
 * rank runs its part of the list in that order. A message goes over one channel: the sender writes
 * some pieces, one over the other, into the receiver's window (or into its own, for the receiver to
 * get), and signals; the receiver waits, compares the window with what the model says, and gives the
 * window back. Senders may be WINDOWS messages ahead. */
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <ferry/channel.h>

#include "multi/body.h"
#include "support/soak.h"

#define MAX_RANKS 8
#define LANES 2 /* channels per kind and pair of ranks */
#define WINDOWS 3
#define WINDOW_BYTES 512
#define MAX_PIECES 4

typedef enum way {
    MEMORY_PUT,
    MEMORY_GET,
    PORT_PUT,
    WAYS,
} way_t;

typedef struct plan {
    uint64_t seed;
    uint32_t messages;
    uint32_t first_count;
} plan_t;

typedef struct message {
    uint32_t from;
    uint32_t to;
    uint32_t lane;
    way_t way;
    uint64_t seed; /* of its pieces */
} message_t;

typedef struct runner {
    ferry_channels_t *set;
    uint8_t *inbox;   /* buffer 0: others write here */
    uint8_t *outbox;  /* buffer 1: others get from here */
    uint8_t *sources; /* port puts read from here until the window is free again */
    uint32_t rank;
    uint32_t size;
    uint32_t sent[MAX_RANKS][LANES][WAYS];
    uint32_t received[MAX_RANKS][LANES][WAYS];
} runner_t;

/* The window of a message from `other` (inbox), or to `other` (outbox, sources). */
static size_t window_at(uint32_t other, uint32_t lane, way_t way, uint32_t number) {
    size_t flow = ((size_t)other * LANES + lane) * WAYS + (size_t)way;
    return (flow * WINDOWS + number % WINDOWS) * WINDOW_BYTES;
}

static size_t box_bytes(uint32_t size) {
    return (size_t)size * LANES * WAYS * WINDOWS * WINDOW_BYTES;
}

static ferry_memory_channel_t *memory_lane(const runner_t *run, uint32_t peer, uint32_t lane) {
    return ferry_channels_memory(run->set, peer * LANES + lane);
}

static ferry_port_channel_t *port_lane(const runner_t *run, uint32_t peer, uint32_t lane) {
    return ferry_channels_port(run->set, peer * LANES + lane);
}

/* Piece by piece: where, how long, and its bytes. */
static void draw_piece(uint64_t *state, size_t *at_p, size_t *bytes_p, uint8_t *bytes) {
    *at_p = (size_t)body_below(state, WINDOW_BYTES);
    *bytes_p = (size_t)body_below(state, WINDOW_BYTES - *at_p + 1);
    for (size_t i = 0; i < *bytes_p; i++) {
        bytes[i] = (uint8_t)body_random(state);
    }
}

/* The naive model: what a window holds after the message, which starts it from zero. */
static void model(const message_t *message, uint8_t *window) {
    uint64_t state = message->seed;
    uint64_t pieces = 1 + body_below(&state, MAX_PIECES);
    memset(window, 0, WINDOW_BYTES);
    for (uint64_t p = 0; p < pieces; p++) {
        size_t at = 0;
        size_t bytes = 0;
        uint8_t data[WINDOW_BYTES];
        draw_piece(&state, &at, &bytes, data);
        memcpy(window + at, data, bytes);
    }
}

static ferry_status_t put_piece(runner_t *run, const message_t *message, size_t offset,
                                const uint8_t *data, size_t bytes, ferry_error_t *err) {
    if (message->way == PORT_PUT) {
        return ferry_port_put(port_lane(run, message->to, message->lane), 0, offset, data, bytes,
                              err);
    }
    return ferry_memory_put(memory_lane(run, message->to, message->lane), 0, offset, data, bytes,
                            err);
}

/* Writes the pieces; the receiver's window was zeroed by the receiver. */
static ferry_status_t send_pieces(runner_t *run, const message_t *message, uint32_t number,
                                  ferry_error_t *err) {
    uint64_t state = message->seed;
    uint64_t pieces = 1 + body_below(&state, MAX_PIECES);
    size_t target = window_at(run->rank, message->lane, message->way, number);
    /* A port reads its source later, so every piece has a place of its own. */
    uint8_t *source =
        run->sources + window_at(message->to, message->lane, message->way, number) * MAX_PIECES;
    for (uint64_t p = 0; p < pieces; p++) {
        size_t at = 0;
        size_t bytes = 0;
        draw_piece(&state, &at, &bytes, source);
        GOOD(put_piece(run, message, target + at, source, bytes, err));
        source += WINDOW_BYTES;
    }
    return FERRY_OK;
}

static ferry_status_t send_one(runner_t *run, const message_t *message, ferry_error_t *err) {
    uint32_t *sent = &run->sent[message->to][message->lane][message->way];
    ferry_memory_channel_t *memory = memory_lane(run, message->to, message->lane);
    ferry_port_channel_t *port = port_lane(run, message->to, message->lane);
    if (message->way == MEMORY_GET) {
        model(message, run->outbox + window_at(message->to, message->lane, MEMORY_GET, *sent));
    } else {
        GOOD(send_pieces(run, message, *sent, err));
    }
    (*sent)++;
    uint64_t state = message->seed ^ 99;
    if (message->way == PORT_PUT) {
        GOOD(ferry_port_signal(port, err));
        return body_below(&state, 5) == 0 ? ferry_port_flush(port, err) : FERRY_OK;
    }
    return body_below(&state, 2) == 0 ? ferry_memory_signal(memory, err)
                                      : ferry_memory_signal_relaxed(memory, err);
}

static ferry_status_t receive_one(runner_t *run, const message_t *message, ferry_error_t *err) {
    uint32_t *received = &run->received[message->from][message->lane][message->way];
    ferry_memory_channel_t *memory = memory_lane(run, message->from, message->lane);
    uint8_t want[WINDOW_BYTES];
    uint8_t got[WINDOW_BYTES];
    model(message, want);
    if (message->way == PORT_PUT) {
        GOOD(ferry_port_wait(port_lane(run, message->from, message->lane), err));
    } else {
        GOOD(ferry_memory_wait(memory, err));
    }
    uint8_t *window = run->inbox + window_at(message->from, message->lane, message->way, *received);
    if (message->way == MEMORY_GET) {
        size_t at = window_at(run->rank, message->lane, MEMORY_GET, *received);
        GOOD(ferry_memory_get(memory, 1, at, got, WINDOW_BYTES, err));
    } else {
        memcpy(got, window, WINDOW_BYTES);
        memset(window, 0, WINDOW_BYTES);
    }
    EXPECT(memcmp(got, want, WINDOW_BYTES) == 0);
    (*received)++;
    return FERRY_OK;
}

static void draw_message(uint64_t *state, uint32_t size, message_t *message_p) {
    message_p->from = (uint32_t)body_below(state, size);
    message_p->to = (uint32_t)body_below(state, size);
    message_p->lane = (uint32_t)body_below(state, LANES);
    message_p->way = (way_t)body_below(state, WAYS);
    message_p->seed = body_random(state);
}

/* One more memory channel per pair gives windows back, one signal per message. */
static ferry_status_t acknowledge(runner_t *run, const message_t *message, ferry_error_t *err) {
    return ferry_memory_signal(ferry_channels_memory(run->set, run->size * LANES + message->from),
                               err);
}

/* No more than WINDOWS messages to one rank are under way, so no window is used that is not free. */
static ferry_status_t await_window(runner_t *run, const message_t *message, uint32_t *sent_to,
                                   uint32_t *acked_by, ferry_error_t *err) {
    uint32_t to = message->to;
    while (sent_to[to] - acked_by[to] >= WINDOWS) {
        GOOD(ferry_memory_wait(ferry_channels_memory(run->set, run->size * LANES + to), err));
        acked_by[to]++;
    }
    sent_to[to]++;
    return FERRY_OK;
}

static ferry_status_t run_messages(runner_t *run, const plan_t *plan, ferry_error_t *err) {
    uint64_t state = plan->seed;
    uint32_t sent_to[MAX_RANKS] = {0};
    uint32_t acked_by[MAX_RANKS] = {0};
    for (uint32_t m = 0; m < plan->messages; m++) {
        message_t message;
        draw_message(&state, run->size, &message);
        if (message.from == run->rank) {
            GOOD(await_window(run, &message, sent_to, acked_by, err));
            GOOD(send_one(run, &message, err));
        }
        if (message.to == run->rank) {
            GOOD(receive_one(run, &message, err));
            GOOD(acknowledge(run, &message, err));
        }
    }
    for (uint32_t to = 0; to < run->size; to++) {
        while (acked_by[to] != sent_to[to]) {
            GOOD(ferry_memory_wait(ferry_channels_memory(run->set, run->size * LANES + to), err));
            acked_by[to]++;
        }
    }
    for (uint32_t i = 0; i < run->size * (LANES + 1); i++) {
        bool consumed = true; /* every signal was consumed, and no more than were given */
        GOOD(ferry_memory_poll(ferry_channels_memory(run->set, i), &consumed, err));
        EXPECT(!consumed);
    }
    return FERRY_OK;
}

static ferry_status_t program_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plan_t *plan = context;
    runner_t *run = calloc(1, sizeof *run);
    EXPECT(run != NULL);
    run->rank = ferry_world_rank(world);
    run->size = ferry_world_size(world);
    uint32_t peers[MAX_RANKS * (LANES + 1)];
    for (uint32_t i = 0; i < run->size * LANES; i++) {
        peers[i] = i / LANES;
    }
    for (uint32_t i = 0; i < run->size; i++) {
        peers[run->size * LANES + i] = i;
    }
    size_t bytes = box_bytes(run->size);
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 2 * bytes, &memory, err));
    run->inbox = memory;
    run->outbox = run->inbox + bytes;
    run->sources = malloc(bytes * MAX_PIECES);
    EXPECT(run->sources != NULL);
    ferry_buffer_t buffers[] = {{run->inbox, bytes}, {run->outbox, bytes}};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = buffers;
    params.nbuffers = 2;
    params.memory_peers = peers;
    params.nmemory = run->size * (LANES + 1);
    params.port_peers = peers;
    params.nport = run->size * LANES;
    params.queue_slots = 4;
    params.first_count = plan->first_count;
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &run->set, err));
    ferry_status_t status = run_messages(run, plan, err);
    if (status == FERRY_OK) {
        status = ferry_channels_close(run->set, err);
    } else {
        (void)ferry_world_fail(world, err, NULL);
        (void)ferry_channels_close(run->set, NULL);
    }
    free(run->sources);
    free(run);
    return status;
}

static void test_programs(void **state) {
    (void)state;
    long programs = soak_count(4, 200);
    for (long i = 0; i < programs; i++) {
        for (int kind = 0; kind < BODY_KINDS; kind++) {
            uint64_t seed = (uint64_t)i * 1000 + (uint64_t)kind;
            plan_t plan = {seed, 600, i % 2 == 0 ? UINT32_MAX - 30 : 0};
            run_well((body_kind_t)kind, 2 + (uint32_t)(body_random(&seed) % 7), program_body, &plan,
                     NULL);
        }
    }
}

/* --- fences --- */

#define LITMUS_WORDS 32

/* Stores past the cache where there are such stores. */
static void stream(uint64_t *target, uint64_t value) {
#if defined(__x86_64__)
    _mm_stream_si64((long long *)(void *)target, (long long)value);
#else
    *target = value;
#endif
}

/* Ping-pong: everything stored before the signal is there after the wait, in every round. Rank 0 puts,
 * rank 1 streams straight into the mapped memory of the other. */
static ferry_status_t litmus_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const uint64_t *rounds = context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peer = 1 - rank;
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, LITMUS_WORDS * 64, &memory, err));
    ferry_buffer_t buffer = {memory, LITMUS_WORDS * 64};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.memory_peers = &peer;
    params.nmemory = 1;
    ferry_channels_t *set = NULL;
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &set, err));
    ferry_memory_channel_t *channel = ferry_channels_memory(set, 0);
    void *mapped = NULL;
    GOOD(ferry_channels_map(set, peer, 0, 0, LITMUS_WORDS * 64, &mapped, err));
    uint64_t *theirs = mapped;
    const uint64_t *mine = memory;
    for (uint64_t round = 1; round <= *rounds; round++) {
        if (rank == 1) {
            GOOD(ferry_memory_wait(channel, err));
            for (size_t i = 0; i < LITMUS_WORDS; i++) {
                EXPECT(mine[i * 8] == round);
            }
        }
        for (size_t i = 0; i < LITMUS_WORDS; i++) {
            if (rank == 1) {
                stream(&theirs[i * 8], round);
            } else {
                GOOD(ferry_memory_put(channel, 0, i * 64, &round, 8, err));
            }
        }
        GOOD(ferry_memory_signal(channel, err));
        if (rank == 0) {
            GOOD(ferry_memory_wait(channel, err));
            for (size_t i = 0; i < LITMUS_WORDS; i++) {
                EXPECT(mine[i * 8] == round);
            }
        }
    }
    return ferry_channels_close(set, err);
}

static void test_fences(void **state) {
    (void)state;
    uint64_t rounds = (uint64_t)soak_count(20000, 2000000);
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, litmus_body, &rounds, NULL);
    }
}

/* A port's source may have been streamed, too; it is read by another thread. */
static ferry_status_t port_litmus_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const uint64_t *rounds = context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peer = 1 - rank;
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, 4096, &memory, err));
    ferry_buffer_t buffer = {memory, 2048};
    uint64_t *source = (uint64_t *)(void *)((uint8_t *)memory + 2048);
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.port_peers = &peer;
    params.nport = 1;
    ferry_channels_t *set = NULL;
    GOOD(ferry_channels_open(ferry_world_group(world), &params, &set, err));
    ferry_port_channel_t *channel = ferry_channels_port(set, 0);
    const uint64_t *mine = memory;
    for (uint64_t round = 1; round <= *rounds; round++) {
        for (size_t i = 0; i < 256; i++) {
            stream(&source[i], round * 1000 + i);
        }
        GOOD(ferry_port_put_with_signal_and_flush(channel, 0, 0, source, 2048, err));
        GOOD(ferry_port_wait(channel, err));
        for (size_t i = 0; i < 256; i++) {
            EXPECT(mine[i] == round * 1000 + i);
        }
        GOOD(ferry_port_signal(channel, err)); /* seen, may be overwritten */
        GOOD(ferry_port_wait(channel, err));
    }
    return ferry_channels_close(set, err);
}

static void test_port_fences(void **state) {
    (void)state;
    uint64_t rounds = (uint64_t)soak_count(500, 50000);
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, port_litmus_body, &rounds, NULL);
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_port_fences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
