/* test_world.c - worlds of threads, of forked processes and of processes that meet at a socket: the
 * same bodies on all of them, with values that only a right exchange gives. */
#include <stdatomic.h>

#include "multi/body.h"
#include "support/soak.h"
#include "world/world.h"

typedef struct settings {
    uint64_t seed;
    uint32_t steps;
} settings_t;

static uint8_t byte_of(uint64_t seed, uint32_t step, uint32_t rank, size_t at) {
    uint64_t state = seed ^ ((uint64_t)step << 40) ^ ((uint64_t)rank << 20) ^ at;
    return (uint8_t)body_random(&state);
}

static void fill(uint8_t *bytes, size_t length, uint64_t seed, uint32_t step, uint32_t rank) {
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_of(seed, step, rank, i);
    }
}

static bool holds(const uint8_t *bytes, size_t length, uint64_t seed, uint32_t step,
                  uint32_t rank) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_of(seed, step, rank, i)) {
            return false;
        }
    }
    return true;
}

/* A random, shuffled choice of ranks; the same on all ranks. */
static uint32_t draw_group(uint64_t *state, uint32_t size, uint32_t *ranks) {
    for (uint32_t i = 0; i < size; i++) {
        ranks[i] = i;
    }
    for (uint32_t i = size; i > 1; i--) {
        uint32_t j = (uint32_t)body_below(state, i);
        uint32_t swap = ranks[i - 1];
        ranks[i - 1] = ranks[j];
        ranks[j] = swap;
    }
    return 1 + (uint32_t)body_below(state, size);
}

static size_t draw_size(uint64_t *state) {
    switch (body_below(state, 8)) {
    case 0:
        return 0;
    case 1:
        return 16384 + (size_t)body_below(state, 3) - 1; /* around one step */
    case 2:
        return (size_t)body_below(state, 100000);
    default:
        return (size_t)body_below(state, 200);
    }
}

static ferry_status_t gather_equal(ferry_group_t *group, uint64_t seed, uint32_t step, size_t bytes,
                                   ferry_error_t *err) {
    uint32_t rank = ferry_world_rank(ferry_group_world(group));
    uint32_t size = ferry_group_size(group);
    uint8_t *mine = malloc(bytes + 1);
    uint8_t *all = malloc(bytes * size + 1);
    EXPECT(mine != NULL && all != NULL);
    fill(mine, bytes, seed, step, rank);
    memset(all, 0, bytes * size);
    GOOD(ferry_group_allgather(group, mine, bytes, all, err));
    for (uint32_t i = 0; i < size; i++) {
        EXPECT(holds(all + i * bytes, bytes, seed, step, ferry_group_world_rank(group, i)));
    }
    free(mine);
    free(all);
    return FERRY_OK;
}

static ferry_status_t gather_blobs(ferry_group_t *group, uint64_t seed, uint32_t step,
                                   const size_t *sizes, ferry_error_t *err) {
    uint32_t rank = ferry_world_rank(ferry_group_world(group));
    uint8_t *mine = malloc(sizes[rank] + 1);
    EXPECT(mine != NULL);
    fill(mine, sizes[rank], seed, step, rank);
    ferry_blobs_t *blobs = NULL;
    GOOD(ferry_group_gather_blobs(group, mine, sizes[rank], &blobs, err));
    for (uint32_t i = 0; i < ferry_group_size(group); i++) {
        uint32_t peer = ferry_group_world_rank(group, i);
        size_t bytes = 0;
        const uint8_t *blob = ferry_blobs_get(blobs, i, &bytes);
        EXPECT(bytes == sizes[peer]);
        EXPECT((uintptr_t)blob % 16 == 0);
        EXPECT(holds(blob, bytes, seed, step, peer));
    }
    ferry_blobs_destroy(blobs);
    free(mine);
    return FERRY_OK;
}

static ferry_status_t random_groups(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint64_t state = settings->seed;
    uint32_t size = ferry_world_size(world);
    for (uint32_t step = 0; step < settings->steps; step++) {
        uint32_t ranks[64];
        size_t sizes[64];
        uint32_t count = draw_group(&state, size, ranks);
        for (uint32_t i = 0; i < size; i++) {
            sizes[i] = draw_size(&state);
        }
        uint64_t what = body_below(&state, 4);
        ferry_group_t *group = NULL;
        GOOD(ferry_group_create(world, ranks, count, &group, err));
        for (uint32_t i = 0; i < count; i++) {
            EXPECT(ferry_group_member(group, ranks[i]) == i);
            EXPECT(ferry_group_world_rank(group, i) == ranks[i]);
        }
        if (ferry_group_rank(group) == FERRY_RANK_NONE) {
            EXPECT(ferry_group_barrier(group, NULL) == FERRY_INVALID);
        } else if (what == 0) {
            GOOD(ferry_group_barrier(group, err));
        } else if (what == 1) {
            GOOD(gather_equal(group, settings->seed, step, sizes[ranks[0]], err));
        } else {
            GOOD(gather_blobs(group, settings->seed, step, sizes, err));
        }
        ferry_group_destroy(group);
    }
    return FERRY_OK;
}

static void test_random_groups(void **state) {
    (void)state;
    body_traces_t before = body_look();
    long rounds = soak_count(1, 20);
    for (long round = 0; round < rounds; round++) {
        for (uint32_t size = 1; size <= 8; size++) {
            settings_t settings = {.seed = size + 100 * (uint64_t)round, .steps = 40};
            run_well(AS_THREADS, size, random_groups, &settings, NULL);
            run_well(AS_PROCESSES, size, random_groups, &settings, NULL);
            if (size % 3 == 1) {
                run_well(AS_SOCKET, size, random_groups, &settings, NULL);
            }
        }
    }
    body_expect_no_trace(before);
}

/* Rank 0 allocates, everyone gets a pointer to it. */
static ferry_status_t share(ferry_world_t *world, size_t bytes, void **memory_p,
                            ferry_error_t *err) {
    ferry_mem_key_t keys[64];
    ferry_mem_key_t mine = {0};
    if (ferry_world_rank(world) == 0) {
        GOOD(ferry_mem_alloc(world, bytes, memory_p, err));
        GOOD(ferry_mem_register(world, *memory_p, bytes, &mine, err));
    }
    GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, keys, err));
    return ferry_mem_map(world, &keys[0], memory_p, err);
}

/* Nobody is past a barrier before all have come to it. */
static ferry_status_t barriers(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint32_t size = ferry_world_size(world);
    void *memory = NULL;
    GOOD(share(world, sizeof(_Atomic uint32_t), &memory, err));
    _Atomic uint32_t *count = memory;
    for (uint32_t step = 1; step <= settings->steps; step++) {
        (void)atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
        GOOD(ferry_group_barrier(ferry_world_group(world), err));
        EXPECT(atomic_load_explicit(count, memory_order_relaxed) == step * size);
        GOOD(ferry_group_barrier(ferry_world_group(world), err));
    }
    return FERRY_OK;
}

static void test_barriers(void **state) {
    (void)state;
    settings_t settings = {.steps = 200};
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, barriers, &settings, NULL);
        run_well((body_kind_t)kind, 5, barriers, &settings, NULL);
    }
}

/* Two ranks take turns on two counters that pass 2^32 on the way. */
static ferry_status_t wrap(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint32_t start = UINT32_MAX - settings->steps / 2;
    void *memory = NULL;
    GOOD(share(world, 2 * sizeof(fy_counter_t), &memory, err));
    fy_counter_t *counters = memory;
    uint32_t rank = ferry_world_rank(world);
    if (rank < 2) {
        atomic_store(&counters[rank].value, start);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    for (uint32_t step = 1; rank < 2 && step <= settings->steps; step++) {
        fy_wait_t wait = {world, 1 - rank, "the other's turn", 0};
        if (rank == 0) {
            fy_counter_set(&counters[0], start + step);
        }
        GOOD(fy_wait_until_at_least(&counters[1 - rank], start + step, &wait, err));
        uint32_t seen = fy_counter_load(&counters[1 - rank]);
        EXPECT(seen - (start + step) <= 1);
        if (rank == 1) {
            fy_counter_add(&counters[1], 1);
        }
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

/* The same for the counters of the exchanges themselves. */
static ferry_status_t wrap_exchanges(ferry_world_t *world, void *context, ferry_error_t *err) {
    const uint32_t start = UINT32_MAX - 6;
    uint32_t size = ferry_world_size(world);
    uint32_t rank = ferry_world_rank(world);
    void *memory = NULL;
    GOOD(share(world, sizeof(fy_counter_t), &memory, err));
    fy_counter_t *ready = memory;
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    for (uint32_t phase = 1; phase <= 2; phase++) {
        fy_counter_add(ready, 1); /* first nobody is in an exchange, then all counters are set */
        fy_wait_t wait = {world, FERRY_RANK_NONE, "all ranks", 0};
        GOOD(fy_wait_until_at_least(ready, phase * size, &wait, err));
        for (uint32_t peer = 0; phase == 1 && peer < size; peer++) {
            atomic_store(&fy_space_cell(world->space, rank, peer)->sent.value, start);
            atomic_store(&fy_space_cell(world->space, peer, rank)->read.value, start);
            world->sent[peer] = start;
            world->got[peer] = start;
            world->halves[0].count = 0;
            world->halves[1].count = 0;
        }
    }
    return random_groups(world, context, err);
}

static void test_wrap(void **state) {
    (void)state;
    settings_t settings = {.seed = 9, .steps = 400};
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, wrap, &settings, NULL);
        run_well((body_kind_t)kind, 3, wrap, &settings,
                 NULL); /* more ranks than cores: no spinning */
    }
    settings.steps = 40;
    run_well(AS_THREADS, 3, wrap_exchanges, &settings, NULL);
    run_well(AS_PROCESSES, 4, wrap_exchanges, &settings, NULL);
}

/* --- memory ------------------------------------------------------------------------------------ */

static ferry_status_t read_arenas(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint32_t size = ferry_world_size(world);
    uint32_t rank = ferry_world_rank(world);
    uint64_t state = settings->seed + rank;
    ferry_group_t *all = ferry_world_group(world);
    for (uint32_t step = 0; step < settings->steps; step++) {
        size_t bytes = 1 + (size_t)body_below(&state, step % 3 == 0 ? 3 << 20 : 20000);
        void *memory = NULL;
        ferry_mem_key_t mine;
        ferry_mem_key_t keys[64];
        GOOD(ferry_mem_alloc(world, bytes, &memory, err));
        for (size_t i = 0; i < bytes; i += 509) {
            EXPECT(((uint8_t *)memory)[i] == 0); /* also when the place was used before */
        }
        memset(memory, (int)(rank + 1), bytes);
        fill(memory, bytes < 300 ? bytes : 300, settings->seed, step, rank);
        GOOD(ferry_mem_register(world, memory, bytes, &mine, err));
        EXPECT(mine.reach == FERRY_MEM_ARENA && mine.rank == rank && mine.bytes == bytes);
        GOOD(ferry_group_allgather(all, &mine, sizeof mine, keys, err));
        for (uint32_t peer = 0; peer < size; peer++) {
            void *theirs = NULL;
            uint8_t last = 0;
            size_t length = keys[peer].bytes < 300 ? (size_t)keys[peer].bytes : 300;
            ferry_mem_populate(world, &keys[peer]);
            GOOD(ferry_mem_map(world, &keys[peer], &theirs, err));
            EXPECT(holds(theirs, length, settings->seed, step, peer));
            GOOD(ferry_mem_read(world, &keys[peer], keys[peer].bytes - 1, &last, 1, err));
            EXPECT(keys[peer].bytes <= 300 || last == peer + 1);
        }
        GOOD(ferry_group_barrier(all, err));
        void *next = NULL; /* write into the next rank's memory; it must see it */
        GOOD(ferry_mem_map(world, &keys[(rank + 1) % size], &next, err));
        *(uint8_t *)next = (uint8_t)(rank + 77);
        GOOD(ferry_group_barrier(all, err));
        EXPECT(*(uint8_t *)memory == (uint8_t)((rank + size - 1) % size + 77));
        if (body_below(&state, 2) == 0) {
            GOOD(ferry_mem_free(world, memory, err));
        }
    }
    return FERRY_OK;
}

static ferry_status_t read_own(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint32_t rank = ferry_world_rank(world);
    size_t bytes = 300000;
    uint8_t *heap = malloc(bytes);
    uint8_t *copy = malloc(bytes);
    EXPECT(heap != NULL && copy != NULL);
    fill(heap, bytes, settings->seed, 1, rank);
    ferry_mem_key_t mine;
    ferry_mem_key_t keys[64];
    GOOD(ferry_mem_register(world, heap, bytes, &mine, err));
    EXPECT(mine.reach == FERRY_MEM_OWN);
    GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, keys, err));
    for (uint32_t peer = 0; peer < ferry_world_size(world); peer++) {
        void *theirs = NULL;
        bool near = ferry_world_same_process(world, peer);
        EXPECT(ferry_mem_is_mappable(world, &keys[peer]) == near);
        EXPECT(ferry_mem_map(world, &keys[peer], &theirs, NULL) ==
               (near ? FERRY_OK : FERRY_UNSUPPORTED));
        if (!ferry_world_can_read(world, peer)) {
            continue; /* this machine forbids it; fault_world looks at that */
        }
        GOOD(ferry_mem_read(world, &keys[peer], 0, copy, bytes, err));
        EXPECT(holds(copy, bytes, settings->seed, 1, peer));
        GOOD(ferry_mem_read(world, &keys[peer], 1234, copy, 10, err));
        EXPECT(memcmp(copy, copy + 1234, 10) == 0);
        EXPECT(ferry_mem_read(world, &keys[peer], bytes - 1, copy, 2, NULL) == FERRY_INVALID);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    ferry_mem_unregister(world, &mine);
    free(heap);
    free(copy);
    return FERRY_OK;
}

/* Many pieces at once, in lists that do not end at the same places. */
static ferry_status_t read_pieces(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    enum { PIECES = 3000, STRIDE = 24 };
    static uint8_t source[PIECES * STRIDE];
    static uint8_t target[PIECES * STRIDE];
    static struct iovec local[PIECES];
    static struct iovec remote[PIECES];
    uint32_t rank = ferry_world_rank(world);
    uint32_t peer = 1 - rank;
    fill(source, sizeof source, settings->seed, 2, rank);
    for (size_t i = 0; i < PIECES; i++) { /* the program is the same, so are the addresses */
        remote[i] = (struct iovec){source + i * STRIDE, i % 5 == 0 ? 0 : 12};
        local[i] = (struct iovec){target + i * STRIDE, i % 5 == 0 ? 0 : 12};
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (ferry_world_can_read(world, peer)) {
        GOOD(fy_mem_readv(world, peer, local, PIECES, remote, PIECES, err));
        for (size_t i = 0; i < sizeof target; i++) {
            bool read = i / STRIDE % 5 != 0 && i % STRIDE < 12;
            EXPECT(target[i] == (read ? byte_of(settings->seed, 2, peer, i) : 0));
        }
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_memory(void **state) {
    (void)state;
    body_traces_t before = body_look();
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        settings_t settings = {.seed = 5, .steps = 8};
        run_well((body_kind_t)kind, 1, read_arenas, &settings, NULL);
        run_well((body_kind_t)kind, 4, read_arenas, &settings, NULL);
        run_well((body_kind_t)kind, 3, read_own, &settings, NULL);
        if (kind != AS_THREADS) {
            run_well((body_kind_t)kind, 2, read_pieces, &settings, NULL);
        }
    }
    body_expect_no_trace(before);
}

/* --- failures that all survive ----------------------------------------------------------------- */

/* Several ranks fail at once, the others wait: one answer everywhere, and the world goes on. */
static ferry_status_t race(ferry_world_t *world, void *context, ferry_error_t *err) {
    const settings_t *settings = context;
    uint64_t state = settings->seed;
    uint32_t rank = ferry_world_rank(world);
    uint32_t size = ferry_world_size(world);
    ferry_group_t *all = ferry_world_group(world);
    for (uint32_t step = 0; step < settings->steps; step++) {
        uint32_t failing = 3 | (uint32_t)body_below(&state, 1u << size);
        ferry_error_t agreed = FERRY_ERROR_INIT;
        if (ferry_group_barrier(all, &agreed) != FERRY_OK) {
            EXPECT(agreed.status ==
                   FERRY_CORRUPT); /* the others were through, and are quick to fail */
        } else if ((failing >> rank & 1) != 0) {
            ferry_error_t mine = FERRY_ERROR_INIT;
            mine.status = FERRY_CORRUPT;
            (void)snprintf(mine.text, sizeof mine.text, "step %u of rank %u", step, rank);
            EXPECT(ferry_world_fail(world, &mine, &agreed) == FERRY_CORRUPT);
        } else {
            EXPECT(ferry_group_barrier(all, &agreed) == FERRY_CORRUPT);
        }
        char text[64];
        (void)snprintf(text, sizeof text, "step %u of rank %u", step, agreed.rank);
        EXPECT(strcmp(text, agreed.text) == 0);
        EXPECT(agreed.rank < size && (failing >> agreed.rank & 1) != 0);
        EXPECT(ferry_world_check(world, NULL) == FERRY_CORRUPT);
        EXPECT(ferry_group_barrier(all, NULL) == FERRY_CORRUPT);
        GOOD(ferry_world_recover(world, err));
        GOOD(ferry_world_check(world, err));
        uint32_t origins[64];
        GOOD(ferry_group_allgather(all, &agreed.rank, sizeof agreed.rank, origins, err));
        for (uint32_t i = 0; i < size; i++) {
            EXPECT(origins[i] == agreed.rank);
        }
    }
    EXPECT(fy_world_generation(world) == settings->steps);
    return FERRY_OK;
}

static void test_race(void **state) {
    (void)state;
    settings_t settings = {.seed = 77, .steps = 200};
    run_well(AS_THREADS, 2, race, &settings, NULL);
    run_well(AS_PROCESSES, 2, race, &settings, NULL);
    settings.steps = 30;
    run_well(AS_THREADS, 5, race, &settings, NULL);
    run_well(AS_SOCKET, 4, race, &settings, NULL);
}

/* Calls that do not fit together are told, not mixed up. */
static ferry_status_t mismatch(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    ferry_group_t *all = ferry_world_group(world);
    uint32_t turned[] = {2, 1, 0};
    ferry_group_t *other = NULL;
    GOOD(ferry_group_create(world, turned, 3, &other, err));
    for (uint32_t step = 0; step < 9; step++) {
        uint64_t mine = rank;
        uint64_t values[6];
        ferry_error_t found = FERRY_ERROR_INIT;
        ferry_status_t status = FERRY_OK;
        if (rank != step % 3) {
            status = ferry_group_allgather(all, &mine, 8, values, &found);
        } else if (step < 3) {
            status = ferry_group_barrier(all, &found);
        } else if (step < 6) {
            status = ferry_group_allgather(all, &mine, 4, values, &found);
        } else {
            status = ferry_group_allgather(other, &mine, 8, values, &found);
        }
        /* A rank may be through before the others find out; the next call tells it. */
        while (status == FERRY_OK) {
            status = ferry_group_barrier(all, &found);
        }
        EXPECT(status == FERRY_MISMATCH);
        EXPECT(strstr(found.text, "calls do not fit") != NULL);
        GOOD(ferry_world_recover(world, err));
        GOOD(ferry_group_allgather(all, &mine, 8, values, err));
        EXPECT(values[0] == 0 && values[1] == 1 && values[2] == 2);
    }
    ferry_group_destroy(other);
    return FERRY_OK;
}

/* A rank that is late: all are told who, and the next run works. */
static ferry_status_t late(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_error_t found = FERRY_ERROR_INIT;
    if (ferry_world_rank(world) == 1) {
        body_sleep(0.9);
        EXPECT(ferry_group_barrier(ferry_world_group(world), &found) == FERRY_TIMEOUT);
    } else {
        double begin = body_seconds();
        EXPECT(ferry_group_barrier(ferry_world_group(world), &found) == FERRY_TIMEOUT);
        EXPECT(body_seconds() - begin < 0.85);
    }
    EXPECT(found.peer == 1);
    EXPECT(strstr(found.text, "rank 1 is alive but has not arrived for 0.") != NULL);
    EXPECT(strstr(found.text, "waited for it in barrier") != NULL);
    GOOD(ferry_world_recover(world, err));
    return ferry_group_barrier(ferry_world_group(world), err);
}

/* The same, but the others do not wait long enough in the recovery: broken, and it says by whom. */
static ferry_status_t never(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_error_t found = FERRY_ERROR_INIT;
    if (ferry_world_rank(world) == 1) {
        body_sleep(0.7);
        EXPECT(ferry_world_check(world, NULL) == FERRY_TIMEOUT);
    } else {
        EXPECT(ferry_group_barrier(ferry_world_group(world), &found) == FERRY_TIMEOUT);
    }
    EXPECT(ferry_world_recover(world, &found) == FERRY_TIMEOUT);
    EXPECT(strstr(found.text, "the world is broken: rank 1 is alive but") != NULL);
    EXPECT(ferry_world_recover(world, &found) == FERRY_TIMEOUT);
    EXPECT(ferry_group_barrier(ferry_world_group(world), NULL) == FERRY_TIMEOUT);
    return FERRY_OK;
}

static void test_survived(void **state) {
    (void)state;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = 200;
    params.grace_ms = FERRY_TIMEOUT_NONE;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, mismatch, NULL, NULL);
    }
    ferry_error_t err;
    ferry_rank_result_t results[3];
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(run_as((body_kind_t)kind, 3, never, NULL, &params, results, &err),
                         FERRY_TIMEOUT);
        for (int rank = 0; rank < 3; rank++) {
            assert_string_equal(results[rank].error.text, "");
            assert_int_equal(results[rank].status, FERRY_OK);
        }
        assert_non_null(strstr(err.text, "rank 1 is alive but has not arrived"));
    }
    params.timeout_ms = 600; /* barrier and recovery together outlast the sleeper */
    run_well(AS_THREADS, 3, late, NULL, &params);
    run_well(AS_SOCKET, 3, late, NULL, &params);
}

/* Rank 1 frees memory in a failed world; the others have not heard of the failure yet and write there. */
static ferry_status_t freed(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    enum { BYTES = 5000 };
    void *memory = NULL;
    ferry_mem_key_t key;
    ferry_mem_key_t keys[3];
    GOOD(ferry_mem_alloc(world, BYTES, &memory, err));
    GOOD(ferry_mem_register(world, memory, BYTES, &key, err));
    GOOD(ferry_group_allgather(ferry_world_group(world), &key, sizeof key, keys, err));
    uint8_t *last = memory;
    if (ferry_world_rank(world) == 1) {
        /* Both have left the exchange: a failure now is none of it. */
        while (__atomic_load_n(&last[0], __ATOMIC_ACQUIRE) == 0 ||
               __atomic_load_n(&last[2], __ATOMIC_ACQUIRE) == 0) {
            body_sleep(0.001);
        }
        ferry_error_t mine = FERRY_ERROR_INIT;
        mine.status = FERRY_STOPPED;
        EXPECT(ferry_world_fail(world, &mine, NULL) == FERRY_STOPPED);
        GOOD(ferry_mem_free(world, memory, err));
        EXPECT(ferry_mem_free(world, memory, NULL) == FERRY_INVALID);
        EXPECT(ferry_mem_register(world, memory, BYTES, &key, NULL) == FERRY_INVALID);
        GOOD(ferry_mem_alloc(world, BYTES, &memory, err));
        EXPECT(memory != last);
    } else {
        void *theirs = NULL;
        GOOD(ferry_mem_map(world, &keys[1], &theirs, err));
        __atomic_store_n((uint8_t *)theirs + ferry_world_rank(world), 1, __ATOMIC_RELEASE);
        body_sleep(0.02);
        memset((uint8_t *)theirs + 4, 0xff, BYTES - 4);
    }
    GOOD(ferry_world_recover(world, err));
    if (ferry_world_rank(world) == 1) {
        for (int i = 0; i < BYTES; i++) {
            EXPECT(((uint8_t *)memory)[i] == 0);
        }
        GOOD(ferry_mem_free(world, memory, err));
        GOOD(ferry_mem_alloc(world, BYTES, &memory, err));
        EXPECT(memory == last); /* it is there again, as new */
        for (int i = 0; i < BYTES; i++) {
            EXPECT(last[i] == 0);
        }
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_freed(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, freed, NULL, NULL);
    }
}

static ferry_status_t ask(ferry_world_t *world, void *context, ferry_error_t *err) {
    const char *kind = context;
    EXPECT(strcmp(ferry_world_kind(world), kind) == 0);
    EXPECT(ferry_world_size(world) == 3);
    EXPECT(ferry_world_cores(world) >= 1);
    EXPECT(ferry_world_timeout_ms(world) == 30000);
    for (uint32_t rank = 0; rank < 3; rank++) {
        EXPECT(ferry_world_host(world, rank) == 10 + rank % 2);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    for (uint32_t rank = 0; rank < 3; rank++) {
        EXPECT(ferry_world_rank_life(world, rank) == FERRY_RANK_ALIVE);
    }
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_ask(void **state) {
    (void)state;
    uint32_t hosts[] = {10, 11, 10};
    char names[BODY_KINDS][10] = {"threads", "processes", "socket"};
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.hosts = hosts;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, ask, names[kind], &params);
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(100, 1800));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_groups), cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_wrap),          cmocka_unit_test(test_memory),
        cmocka_unit_test(test_race),          cmocka_unit_test(test_survived),
        cmocka_unit_test(test_freed),         cmocka_unit_test(test_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
