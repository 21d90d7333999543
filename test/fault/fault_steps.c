/* fault_steps.c - the n-th step of a service or a pipeline goes wrong, for n = 1, 2, ... until there is no
 * n-th step any more.
 *
 * A step is what a channel operation is elsewhere: a wait for another rank, a read of its memory, a
 * direct copy, a pack, an unpack, a put, a signal. The program is linked with --wrap, so that the library's calls of these
 * come here; what the library does with a failure is its own. Three things may go wrong on one rank:
 *
 *   it fails        all ranks get one record that names the rank and the step, soon; ferry_world_recover
 *                   works, the next run moves the right bytes, nothing of shared memory is lost
 *   its wake-up is lost   a signal is stored but nobody is woken: the run is late and nothing else
 *   it kills        the others get FERRY_DEAD with the rank's name, soon
 *
 * Signals are stores to memory and cannot fail, so only the last two are for them. */
#include "multi/body.h"

#include <stdatomic.h>

#include <ferry/kernel.h>
#include <ferry/pipeline.h>
#include <ferry/service.h>

#include "support/soak.h"
#include "world/wait.h"
#include "world/world.h"

enum { RANKS = 3, COUNT = 4000, ITEMS = 3, ROUNDS = 5, SLOT_BYTES = 4096, PASSES = 3 };

typedef enum harm { HARM_FAIL, HARM_LOSE, HARM_KILL } harm_t;

/* --- the n-th step ----------------------------------------------------------------------------- */

static _Thread_local uint64_t counted;
static _Thread_local uint64_t strike_at; /* 0: never */
static _Thread_local harm_t harm;
static _Thread_local bool was_struck; /* since strike_at was last set to a step */

static void arm(uint64_t n, harm_t what) {
    counted = 0;
    strike_at = n;
    harm = what;
    was_struck = n == 0 && was_struck;
}

static bool is_struck(void) {
    if (strike_at == 0 || ++counted != strike_at) {
        return false;
    }
    strike_at = 0;
    was_struck = true;
    if (harm == HARM_KILL) {
        (void)kill(getpid(), SIGKILL);
    }
    return true;
}

/* Fills in the record of this rank's failure; false: the step is not the one. */
static bool fails(const char *name, ferry_error_t *mine) {
    uint64_t n = strike_at;
    if (harm == HARM_LOSE || !is_struck()) {
        return false;
    }
    ferry_error_clear(mine);
    mine->status = FERRY_IO;
    mine->sys_errno = EIO;
    (void)snprintf(mine->text, sizeof mine->text, "injected fault at step %lu, %s",
                   (unsigned long)n, name);
    return true;
}

ferry_status_t __real_fy_wait_until_at_least(fy_counter_t *counter, uint32_t value,
                                             const fy_wait_t *wait, ferry_error_t *err);
ferry_status_t __wrap_fy_wait_until_at_least(fy_counter_t *counter, uint32_t value,
                                             const fy_wait_t *wait, ferry_error_t *err);
ferry_status_t __real_fy_mem_readv(ferry_world_t *world, uint32_t peer, struct iovec *local,
                                   size_t nlocal, struct iovec *remote, size_t nremote,
                                   ferry_error_t *err);
ferry_status_t __wrap_fy_mem_readv(ferry_world_t *world, uint32_t peer, struct iovec *local,
                                   size_t nlocal, struct iovec *remote, size_t nremote,
                                   ferry_error_t *err);
ferry_status_t __real_ferry_pipeline_pack(const ferry_pipeline_batch_t *batch, void *slot,
                                          ferry_error_t *err);
ferry_status_t __wrap_ferry_pipeline_pack(const ferry_pipeline_batch_t *batch, void *slot,
                                          ferry_error_t *err);
ferry_status_t __real_ferry_pipeline_unpack(const ferry_pipeline_batch_t *batch, const void *slot,
                                            ferry_error_t *err);
ferry_status_t __wrap_ferry_pipeline_unpack(const ferry_pipeline_batch_t *batch, const void *slot,
                                            ferry_error_t *err);
ferry_status_t __real_ferry_copy_batch_run(const ferry_copy_batch_t *batch, uint32_t part,
                                           uint32_t nparts, ferry_error_t *err);
ferry_status_t __wrap_ferry_copy_batch_run(const ferry_copy_batch_t *batch, uint32_t part,
                                           uint32_t nparts, ferry_error_t *err);
void __real_fy_wake(fy_counter_t *counter);
void __wrap_fy_wake(fy_counter_t *counter);

/* As every wait that fails, it tells the world first. */
ferry_status_t __wrap_fy_wait_until_at_least(fy_counter_t *counter, uint32_t value,
                                             const fy_wait_t *wait, ferry_error_t *err) {
    ferry_error_t mine;
    if (fails("wait", &mine)) {
        mine.rank = ferry_world_rank(wait->world);
        mine.peer = wait->peer;
        return ferry_world_fail(wait->world, &mine, err);
    }
    return __real_fy_wait_until_at_least(counter, value, wait, err);
}

ferry_status_t __wrap_fy_mem_readv(ferry_world_t *world, uint32_t peer, struct iovec *local,
                                   size_t nlocal, struct iovec *remote, size_t nremote,
                                   ferry_error_t *err) {
    if (fails("read", err)) {
        return err->status;
    }
    return __real_fy_mem_readv(world, peer, local, nlocal, remote, nremote, err);
}

ferry_status_t __wrap_ferry_pipeline_pack(const ferry_pipeline_batch_t *batch, void *slot,
                                          ferry_error_t *err) {
    return fails("pack", err) ? err->status : __real_ferry_pipeline_pack(batch, slot, err);
}

ferry_status_t __wrap_ferry_pipeline_unpack(const ferry_pipeline_batch_t *batch, const void *slot,
                                            ferry_error_t *err) {
    return fails("unpack", err) ? err->status : __real_ferry_pipeline_unpack(batch, slot, err);
}

ferry_status_t __wrap_ferry_copy_batch_run(const ferry_copy_batch_t *batch, uint32_t part,
                                           uint32_t nparts, ferry_error_t *err) {
    return fails("copy", err) ? err->status : __real_ferry_copy_batch_run(batch, part, nparts, err);
}

void __wrap_fy_wake(fy_counter_t *counter) {
    if (harm == HARM_FAIL || !is_struck()) {
        __real_fy_wake(counter);
    }
}

/* A put of one's own, for a pipeline without a service. */
static ferry_status_t put(void *context, uint32_t peer, void *peer_slot, const void *send_slot,
                          uint64_t bytes, void *queue, ferry_error_t *err) {
    (void)context;
    (void)peer;
    (void)queue;
    if (fails("put", err)) {
        return err->status;
    }
    memcpy(peer_slot, send_slot, bytes);
    return FERRY_OK;
}

/* --- what is run ------------------------------------------------------------------------------- */

typedef enum how {
    HOW_RUN,
    HOW_KEPT,     /* kept before the fault is armed */
    HOW_TESTED,   /* kept, started and tested */
    HOW_CREATE,   /* the fault is in the making of the service */
    HOW_PIPELINE, /* no service, a pipeline with a put */
    HOWS,
} how_t;

/* One rank's service, or its pipeline, and what it moves. */
typedef struct actor {
    ferry_world_t *world;
    uint32_t me;
    how_t how;
    uint32_t paths;
    uint32_t *source; /* ITEMS of COUNT */
    uint32_t *target;
    ferry_copy_service_t *service;
    ferry_kept_batch_t *batch;
    ferry_slots_t *slots;
} actor_t;

static ferry_status_t open_service(actor_t *actor, ferry_error_t *err) {
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = actor->paths;
    params.slot_bytes = SLOT_BYTES;
    return ferry_copy_service_create(ferry_world_group(actor->world), &params, &actor->service,
                                     err);
}

static void close_service(actor_t *actor) {
    ferry_copy_service_close(actor->service);
    actor->service = NULL;
}

static ferry_status_t submit(const actor_t *actor, ferry_error_t *err) {
    for (uint32_t i = 0; i < ITEMS; i++) { /* to itself, and to the others */
        ferry_view_t view;
        uint32_t to = (actor->me + i) % RANKS;
        uint32_t from = (actor->me + RANKS - i % RANKS) % RANKS;
        GOOD(ferry_view_contiguous(actor->source + i * COUNT, FERRY_U32, 1, &(uint64_t){COUNT},
                                   &view, err));
        GOOD(ferry_copy_submit_send(actor->service, &view, FERRY_DTYPE_NONE, to,
                                    actor->me * ITEMS + i, err));
        GOOD(ferry_view_contiguous(actor->target + i * COUNT, FERRY_U32, 1, &(uint64_t){COUNT},
                                   &view, err));
        GOOD(ferry_copy_submit_recv(actor->service, &view, from, from * ITEMS + i, err));
    }
    return FERRY_OK;
}

static ferry_status_t run_tested(actor_t *actor, ferry_error_t *err) {
    bool done = false;
    GOOD(ferry_kept_batch_start(actor->batch, err));
    while (!done) {
        GOOD(ferry_kept_batch_test(actor->batch, &done, err));
    }
    return FERRY_OK;
}

/* The source goes to the next rank in ROUNDS batches, each a part of the one before it. */
static ferry_status_t run_pipeline(const actor_t *actor, ferry_error_t *err) {
    ferry_view_t views[2];
    ferry_pipeline_segment_t segments[2][ROUNDS];
    ferry_pipeline_round_t rounds[ROUNDS];
    uint64_t part = COUNT / ROUNDS;
    GOOD(ferry_view_contiguous(actor->source, FERRY_U32, 1, &(uint64_t){COUNT}, &views[0], err));
    GOOD(ferry_view_contiguous(actor->target, FERRY_U32, 1, &(uint64_t){COUNT}, &views[1], err));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (int side = 0; side < 2; side++) {
            segments[side][i] = (ferry_pipeline_segment_t){
                .view = &views[side], .wire = FERRY_U32, .first = i * part, .count = part};
        }
        uint64_t bytes = part * sizeof(uint32_t);
        rounds[i].send =
            (ferry_pipeline_batch_t){(actor->me + 1) % RANKS, i, &segments[0][i], 1, bytes};
        rounds[i].recv =
            (ferry_pipeline_batch_t){(actor->me + RANKS - 1) % RANKS, i, &segments[1][i], 1, bytes};
    }
    uint32_t received[RANKS] = {ROUNDS, ROUNDS, ROUNDS};
    ferry_pipeline_hooks_t hooks = {.put = put};
    ferry_pipeline_params_t params = FERRY_PIPELINE_PARAMS_INIT;
    params.rounds = rounds;
    params.nrounds = ROUNDS;
    params.received = received;
    params.hooks = &hooks;
    return ferry_pipeline_execute(actor->slots, &params, err);
}

static ferry_status_t run(actor_t *actor, ferry_error_t *err) {
    switch (actor->how) {
    case HOW_KEPT:
        return ferry_kept_batch_run(actor->batch, NULL, err);
    case HOW_TESTED:
        return run_tested(actor, err);
    case HOW_PIPELINE:
        return run_pipeline(actor, err);
    case HOW_CREATE:
        GOOD(open_service(actor, err));
        break;
    case HOW_RUN:
    case HOWS:
        break;
    }
    GOOD(submit(actor, err));
    return ferry_copy_service_run(actor->service, NULL, err);
}

static ferry_status_t open_actor(actor_t *actor, ferry_error_t *err) {
    size_t bytes = ITEMS * COUNT * sizeof(uint32_t);
    void *memory = NULL;
    actor->me = ferry_world_rank(actor->world);
    GOOD(ferry_mem_alloc(actor->world, bytes, &memory, err));
    /* Where peers can only read across processes, there is no mapping of the source. */
    actor->source = actor->paths == FERRY_PATH_READ ? malloc(bytes) : memory;
    actor->target = malloc(bytes);
    EXPECT(actor->source != NULL && actor->target != NULL);
    if (actor->how == HOW_PIPELINE) {
        ferry_slots_params_t params = FERRY_SLOTS_PARAMS_INIT;
        params.slot_bytes = SLOT_BYTES;
        params.send_slots = true;
        return ferry_slots_create(ferry_world_group(actor->world), &params, &actor->slots, err);
    }
    if (actor->how != HOW_CREATE) {
        GOOD(open_service(actor, err));
    }
    if (actor->how == HOW_KEPT || actor->how == HOW_TESTED) {
        GOOD(submit(actor, err));
        GOOD(ferry_copy_service_keep(actor->service, &actor->batch, err));
    }
    return FERRY_OK;
}

static void close_actor(actor_t *actor) {
    ferry_kept_batch_destroy(actor->batch);
    ferry_copy_service_close(actor->service);
    ferry_slots_destroy(actor->slots);
    if (actor->paths == FERRY_PATH_READ) {
        free(actor->source);
    }
    free(actor->target);
}

static void fill(const actor_t *actor, uint32_t salt) {
    for (uint32_t i = 0; i < ITEMS * COUNT; i++) {
        actor->source[i] = actor->me * 10000000 + salt * 20000 + i;
        actor->target[i] = 0;
    }
}

static ferry_status_t check(const actor_t *actor, uint32_t salt, ferry_error_t *err) {
    bool piped = actor->how == HOW_PIPELINE;
    for (uint32_t i = 0; i < (piped ? 1 : ITEMS) * COUNT; i++) {
        uint32_t back = piped ? 1 : i / COUNT % RANKS;
        uint32_t from = (actor->me + RANKS - back) % RANKS;
        EXPECT(actor->target[i] == from * 10000000 + salt * 20000 + i);
    }
    return FERRY_OK;
}

/* --- faults and lost wake-ups ------------------------------------------------------------------ */

typedef struct plot {
    how_t how;
    uint32_t paths;
    harm_t harm;
    uint64_t seed;
    uint64_t at;                /* HARM_KILL: the step */
    _Atomic uint32_t *arrivals; /* shared by all ranks */
} plot_t;

/* Where ranks meet outside of the world, so that the next fault finds nobody in the last exchange. */
static ferry_status_t meet(const plot_t *plot, uint32_t *meetings, ferry_error_t *err) {
    uint32_t all = ++*meetings * RANKS;
    (void)atomic_fetch_add(plot->arrivals, 1);
    for (double begin = body_seconds(); atomic_load(plot->arrivals) < all;) {
        EXPECT(body_seconds() - begin < 10);
        (void)usleep(20);
    }
    return FERRY_OK;
}

/* A run and a meeting after it, so that a rank that was done before the fault hears of it, too. */
static ferry_status_t run_and_meet(actor_t *actor, uint64_t n, harm_t what, ferry_error_t *err) {
    arm(n, what);
    ferry_status_t status = run(actor, err);
    arm(0, HARM_FAIL);
    return status == FERRY_OK ? ferry_group_barrier(ferry_world_group(actor->world), err) : status;
}

/* All ranks have the same record, and it is the right one. */
static ferry_status_t compare(const actor_t *actor, const ferry_error_t *found, uint32_t victim,
                              uint64_t n, ferry_error_t *err) {
    ferry_error_t all[RANKS];
    char text[64];
    (void)snprintf(text, sizeof text, "injected fault at step %lu,", (unsigned long)n);
    GOOD(ferry_group_allgather(ferry_world_group(actor->world), found, sizeof *found, all, err));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        EXPECT(memcmp(&all[rank], found, sizeof *found) == 0);
    }
    EXPECT(found->status == FERRY_IO && found->sys_errno == EIO && found->rank == victim);
    EXPECT(strstr(found->text, text) != NULL);
    return FERRY_OK;
}

/* The n-th step of the victim. *struck_p: there was one. */
static ferry_status_t strike(actor_t *actor, const plot_t *plot, uint32_t victim, uint64_t n,
                             bool *struck_p, ferry_error_t *err) {
    ferry_error_t found = FERRY_ERROR_INIT;
    uint32_t salt = (uint32_t)(n % 50);
    double begin = body_seconds();
    fill(actor, salt);
    uint64_t mine = actor->me == victim ? n : 0;
    ferry_status_t status = run_and_meet(actor, mine, plot->harm, &found);
    EXPECT(body_seconds() - begin < 2);
    *struck_p = status != FERRY_OK;
    if (status == FERRY_OK) {
        GOOD(check(actor, salt, err));
        if (actor->how == HOW_CREATE) {
            close_service(actor);
        }
        return FERRY_OK;
    }
    EXPECT(status == found.status);
    GOOD(ferry_world_recover(actor->world, err));
    GOOD(compare(actor, &found, victim, n, err));
    if (actor->how == HOW_CREATE) {
        close_service(actor);
    }
    fill(actor, salt + 1);
    GOOD(run_and_meet(actor, 0, HARM_FAIL, err));
    GOOD(check(actor, salt + 1, err));
    if (actor->how == HOW_CREATE) {
        close_service(actor);
    }
    return FERRY_OK;
}

/* Whether a wake-up was lost is known to the victim alone. */
static ferry_status_t tell_all(const actor_t *actor, bool *struck_p, ferry_error_t *err) {
    uint8_t mine = *struck_p ? 1 : 0;
    uint8_t all[RANKS];
    GOOD(ferry_group_allgather(ferry_world_group(actor->world), &mine, sizeof mine, all, err));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        *struck_p = *struck_p || all[rank] != 0;
    }
    return FERRY_OK;
}

/* How many steps there are depends on who is late; so a few runs have to pass one after another. */
static ferry_status_t strike_all(actor_t *actor, const plot_t *plot, ferry_error_t *err) {
    uint64_t random = plot->seed;
    uint32_t meetings = 0;
    uint32_t passed = 0;
    uint64_t struck = 0;
    fill(actor, 1);
    GOOD(run_and_meet(actor, 0, HARM_FAIL, err)); /* what is made once is made */
    GOOD(check(actor, 1, err));
    if (actor->how == HOW_CREATE) {
        close_service(actor);
    }
    /* What a closed service leaves is freed with the next one. */
    size_t pieces = actor->world->npieces + (actor->how == HOW_CREATE ? 1 : 0);
    for (uint64_t n = 1; passed < PASSES; n++) {
        uint32_t victim = (uint32_t)body_below(&random, RANKS);
        bool hit = false;
        EXPECT(n < 1000);
        GOOD(meet(plot, &meetings, err));
        GOOD(strike(actor, plot, victim, n, &hit, err));
        if (plot->harm == HARM_LOSE) {
            hit = victim == actor->me && was_struck;
            GOOD(tell_all(actor, &hit, err));
        }
        passed = hit ? 0 : passed + 1;
        struck += hit ? 1 : 0;
        EXPECT(actor->world->npieces <= pieces);
    }
    /* Or the calls do not come here. Direct copies of a kept batch wait only for who is late. */
    bool sure = plot->how != HOW_TESTED && plot->how != HOW_KEPT;
    EXPECT(struck > 0 || !(sure || plot->paths == FERRY_PATH_PIPELINE));
    return FERRY_OK;
}

static ferry_status_t strikes_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    actor_t actor = {.world = world, .how = plot->how, .paths = plot->paths};
    ferry_status_t status = open_actor(&actor, err);
    if (status == FERRY_OK) {
        status = strike_all(&actor, plot, err);
    }
    if (status == FERRY_OK) {
        status = ferry_group_barrier(ferry_world_group(world), err);
    }
    close_actor(&actor);
    return status;
}

static const uint32_t all_paths[] = {FERRY_PATH_DIRECT, FERRY_PATH_READ, FERRY_PATH_PIPELINE};

static void strike_as(body_kind_t kind, plot_t *plot) {
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    ferry_rank_result_t results[RANKS];
    ferry_error_t err = FERRY_ERROR_INIT;
    params.timeout_ms = 10000;
    atomic_store(plot->arrivals, 0);
    if (run_as(kind, RANKS, strikes_body, plot, &params, results, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        fail_msg("kind %d, how %d, paths %u, seed %lu: %s", (int)kind, (int)plot->how, plot->paths,
                 (unsigned long)plot->seed, line);
    }
}

static size_t paths_of(int how) {
    return how == HOW_PIPELINE ? 1 : sizeof all_paths / sizeof *all_paths;
}

static _Atomic uint32_t *share_counter(void) {
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void strike_kinds(body_kind_t kind, harm_t what) {
    body_traces_t before = body_look();
    plot_t plot = {.harm = what, .arrivals = share_counter()};
    for (plot.seed = 0; plot.seed < (uint64_t)soak_count(1, 20); plot.seed++) {
        for (int how = 0; how < HOWS; how++) {
            for (size_t i = 0; i < paths_of(how); i++) {
                plot.how = (how_t)how;
                plot.paths = all_paths[i];
                strike_as(kind, &plot);
            }
        }
    }
    (void)munmap(plot.arrivals, 4096);
    body_expect_no_trace(before);
}

static void test_fail_threads(void **state) {
    (void)state;
    strike_kinds(AS_THREADS, HARM_FAIL);
}

static void test_fail_processes(void **state) {
    (void)state;
    strike_kinds(AS_PROCESSES, HARM_FAIL);
}

static void test_lost_wakes(void **state) {
    (void)state;
    strike_kinds(AS_PROCESSES, HARM_LOSE);
}

/* --- death at a step --------------------------------------------------------------------------- */

static ferry_status_t death_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plot_t *plot = context;
    uint32_t victim = (uint32_t)(plot->seed % RANKS);
    actor_t actor = {.world = world, .how = plot->how, .paths = plot->paths};
    uint32_t meetings = 0;
    GOOD(open_actor(&actor, err));
    GOOD(meet(plot, &meetings, err));
    fill(&actor, 1);
    double begin = body_seconds();
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status =
        run_and_meet(&actor, actor.me == victim ? plot->at : 0, HARM_KILL, &found);
    EXPECT(body_seconds() - begin < 2);
    if (status == FERRY_OK) {
        GOOD(check(&actor, 1, err));
    } else {
        char text[32];
        (void)snprintf(text, sizeof text, "rank %u is dead", victim);
        EXPECT(status == FERRY_DEAD && strstr(found.text, text) != NULL);
        EXPECT(found.peer == victim || found.rank == victim);
        EXPECT(ferry_world_recover(world, NULL) == FERRY_DEAD);
    }
    close_actor(&actor);
    return FERRY_OK;
}

/* False: the rank has fewer steps. */
static bool kill_at(plot_t *plot) {
    uint32_t victim = (uint32_t)(plot->seed % RANKS);
    ferry_rank_result_t results[RANKS];
    ferry_error_t err = FERRY_ERROR_INIT;
    atomic_store(plot->arrivals, 0);
    ferry_status_t status = ferry_world_run_processes(RANKS, death_body, plot, NULL, results, &err);
    bool died = results[victim].signal == SIGKILL;
    assert_int_equal(status, died ? FERRY_DEAD : FERRY_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (results[rank].status != FERRY_OK && (rank != victim || !died)) {
            fail_msg("how %d, paths %u, step %lu, rank %u: %s", (int)plot->how, plot->paths,
                     (unsigned long)plot->at, victim, results[rank].error.text);
        }
    }
    return died;
}

/* Every step in `make soak`, else some. */
static void test_death(void **state) {
    (void)state;
    body_traces_t before = body_look();
    uint64_t random = 5;
    uint64_t stride = (uint64_t)soak_count(20, 1);
    plot_t plot = {.arrivals = share_counter()};
    for (int how = 0; how < HOWS; how++) {
        for (size_t i = 0; i < paths_of(how); i++) {
            plot.how = (how_t)how;
            plot.paths = all_paths[i];
            plot.at = 1;
            for (uint32_t passed = 0; passed < PASSES; plot.at += 1 + body_below(&random, stride)) {
                plot.seed = body_random(&random);
                passed = kill_at(&plot) ? 0 : passed + 1;
            }
        }
    }
    (void)munmap(plot.arrivals, 4096);
    body_expect_no_trace(before);
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_threads),
        cmocka_unit_test(test_fail_processes),
        cmocka_unit_test(test_lost_wakes),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
