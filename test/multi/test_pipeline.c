/* test_pipeline.c - rounds through two slots, with delays at every step.
 *
 * For each slot of each rank there is a word in memory that all share: 0 when the slot is free, else the
 * number of the batch in it. Whoever packs swaps its number in and must find 0; whoever has unpacked
 * swaps 0 in and must find its number. So a slot that is written to before it was unpacked, or read before
 * it was filled, is seen whatever the bytes are. */
#include "multi/body.h"

#include <stdatomic.h>

#include <ferry/pipeline.h>
#include <ferry/sched.h>
#include <ferry/service.h>

#include "support/soak.h"

/* Slots of one line, and all items between two ranks: a round for each line. */
enum {
    MAX_RANKS = 6,
    MAX_ITEMS = 30,
    MAX_LINES = 59, /* of an item */
    MAX_ROUNDS = MAX_ITEMS * MAX_LINES,
    MAX_SEGMENTS = 2 * (MAX_ROUNDS + MAX_ITEMS),
};

typedef struct shared {
    _Atomic uint64_t busy[MAX_RANKS][2];
    _Atomic uint32_t wrong;
    _Atomic uint32_t ahead; /* packs while the batch before was not put yet */
} shared_t;

typedef struct scene {
    uint64_t seed;
    uint32_t size;
    uint32_t nitems;
    uint64_t slot_bytes;
    bool delays;
    bool put;   /* a put of one's own, through send slots */
    bool queue; /* unpack is launched and waited for later */
    shared_t *shared;
    ferry_item_t items[MAX_ITEMS];
} scene_t;

/* One rank's run. */
typedef struct actor {
    const scene_t *scene;
    ferry_slots_t *slots;
    uint32_t me;
    uint64_t random;
    uint32_t events[FERRY_STEP_WAIT + 1];
    uint64_t last_end_ns[FERRY_STEP_WAIT + 1];
    uint32_t packed;
    uint32_t sent;
    ferry_pipeline_round_t rounds[MAX_ROUNDS];
    ferry_pipeline_segment_t segments[MAX_SEGMENTS];
    size_t nsegments;
    uint32_t received[MAX_RANKS];
    ferry_view_t views[MAX_ITEMS];
    uint32_t run;
    const ferry_pipeline_batch_t *unpacking;
} actor_t;

/* --- the scene --------------------------------------------------------------------------------- */

static void make_scene(uint64_t seed, scene_t *scene, shared_t *shared) {
    memset(scene, 0, sizeof *scene);
    memset(shared, 0, sizeof *shared);
    uint64_t random = seed;
    scene->seed = seed;
    scene->shared = shared;
    scene->size = 2 + (uint32_t)body_below(&random, MAX_RANKS - 1);
    scene->nitems = 1 + (uint32_t)body_below(&random, MAX_ITEMS);
    scene->slot_bytes = 64 * (1 + body_below(&random, 20));
    scene->delays = body_below(&random, 3) != 0;
    scene->put = body_below(&random, 2) == 0;
    scene->queue = body_below(&random, 2) == 0;
    uint32_t busy_ranks = 2 + (uint32_t)body_below(&random, scene->size - 1); /* the rest idles */
    for (uint32_t i = 0; i < scene->nitems; i++) {
        scene->items[i].id = i;
        scene->items[i].bytes = 64 * body_below(&random, MAX_LINES + 1);
        scene->items[i].source = (uint32_t)body_below(&random, busy_ranks);
        scene->items[i].target = (uint32_t)body_below(&random, busy_ranks);
    }
}

static uint8_t byte_of(const scene_t *scene, uint32_t item, uint64_t at, uint32_t run) {
    return (uint8_t)((scene->seed + item * 37 + run * 101 + at * 7 + at / 251) & 0xff);
}

static void add_batch(actor_t *actor, const ferry_segment_t *from, const ferry_batch_t *batch,
                      bool send, ferry_pipeline_batch_t *batch_p) {
    batch_p->peer = send ? batch->target : batch->source;
    batch_p->sequence = actor->received[batch->target];
    batch_p->segments = &actor->segments[actor->nsegments];
    batch_p->nsegments = batch->nsegments;
    batch_p->bytes = batch->bytes;
    uint64_t at = 0;
    for (uint32_t i = 0; i < batch->nsegments; i++) {
        const ferry_segment_t *segment = &from[batch->first_segment + i];
        actor->segments[actor->nsegments++] =
            (ferry_pipeline_segment_t){.view = &actor->views[segment->item],
                                       .wire = FERRY_U8,
                                       .first = segment->offset,
                                       .count = segment->bytes,
                                       .at = at};
        at += segment->bytes;
    }
}

static ferry_status_t make_rounds(actor_t *actor, size_t *nrounds_p, ferry_error_t *err) {
    const scene_t *scene = actor->scene;
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    params.slot_bytes = ferry_slots_bytes(actor->slots);
    ferry_schedule_t *schedule = NULL;
    GOOD(ferry_schedule_create(scene->items, scene->nitems, &params, &schedule, err));
    uint32_t nrounds = ferry_schedule_nrounds(schedule);
    EXPECT(nrounds <= MAX_ROUNDS);
    ferry_pipeline_batch_t none = FERRY_PIPELINE_BATCH_NONE;
    for (uint32_t i = 0; i < nrounds; i++) {
        actor->rounds[i] = (ferry_pipeline_round_t){none, none};
    }
    size_t count = 0;
    const ferry_segment_t *segments = ferry_schedule_segments(schedule, &count);
    const ferry_batch_t *batches = ferry_schedule_batches(schedule, &count);
    *nrounds_p = 0;
    for (size_t i = 0; i < count; i++) {
        ferry_pipeline_round_t *round = &actor->rounds[batches[i].round];
        bool mine = batches[i].source == actor->me || batches[i].target == actor->me;
        if (batches[i].source == actor->me) {
            add_batch(actor, segments, &batches[i], true, &round->send);
        }
        if (batches[i].target == actor->me) {
            add_batch(actor, segments, &batches[i], false, &round->recv);
        }
        if (mine) { /* rounds beyond its own work are not even listed */
            *nrounds_p = batches[i].round + 1;
        }
        actor->received[batches[i].target]++;
    }
    ferry_schedule_destroy(schedule);
    return FERRY_OK;
}

/* --- hooks ------------------------------------------------------------------------------------- */

static void dawdle(actor_t *actor) {
    if (actor->scene->delays && body_below(&actor->random, 3) == 0) {
        (void)usleep((useconds_t)body_below(&actor->random, 300));
    }
}

/* The word of the slot in which a batch of this run lies. */
static _Atomic uint64_t *busy_word(const actor_t *actor, uint32_t receiver, uint32_t sequence) {
    uint32_t n = actor->run * actor->received[receiver] + sequence;
    return &actor->scene->shared->busy[receiver][n % 2];
}

static void occupy(actor_t *actor, const ferry_pipeline_batch_t *batch) {
    uint64_t name = ((uint64_t)actor->run << 32 | batch->sequence) + 1;
    if (atomic_exchange(busy_word(actor, batch->peer, batch->sequence), name) != 0) {
        atomic_fetch_add(&actor->scene->shared->wrong, 1);
    }
}

static void vacate(actor_t *actor, const ferry_pipeline_batch_t *batch) {
    uint64_t name = ((uint64_t)actor->run << 32 | batch->sequence) + 1;
    if (atomic_exchange(busy_word(actor, actor->me, batch->sequence), 0) != name) {
        atomic_fetch_add(&actor->scene->shared->wrong, 1);
    }
}

static ferry_status_t pack(void *context, const ferry_pipeline_batch_t *batch, void *slot,
                           void *queue, void *event, ferry_error_t *err) {
    actor_t *actor = context;
    EXPECT(queue == (void *)1 && (event == (void *)10 || event == (void *)11));
    if (!actor->scene->put) {
        occupy(actor, batch);
    }
    dawdle(actor);
    if (++actor->packed > actor->sent + 1) {
        atomic_fetch_add(&actor->scene->shared->ahead, 1);
    }
    return ferry_pipeline_pack(batch, slot, err);
}

static ferry_status_t put(void *context, uint32_t peer, void *peer_slot, const void *send_slot,
                          uint64_t bytes, void *queue, ferry_error_t *err) {
    actor_t *actor = context;
    EXPECT(queue == (void *)3);
    uint32_t seen = 0;
    const ferry_pipeline_batch_t *batch = NULL;
    for (uint32_t i = 0; batch == NULL; i++) { /* the `sent`-th batch on the list */
        if (actor->rounds[i].send.peer != FERRY_RANK_NONE && seen++ == actor->sent) {
            batch = &actor->rounds[i].send;
        }
    }
    EXPECT(batch->peer == peer && batch->bytes == bytes);
    occupy(actor, batch);
    dawdle(actor);
    memcpy(peer_slot, send_slot, bytes);
    actor->sent++;
    return FERRY_OK;
}

static ferry_status_t unpack(void *context, const ferry_pipeline_batch_t *batch, const void *slot,
                             void *queue, void *event, ferry_error_t *err) {
    actor_t *actor = context;
    EXPECT(queue == (void *)2 && (event == (void *)20 || event == (void *)21));
    dawdle(actor);
    GOOD(ferry_pipeline_unpack(batch, slot, err));
    if (actor->scene->queue) {
        EXPECT(actor->unpacking == NULL);
        actor->unpacking = batch;
    } else {
        vacate(actor, batch);
    }
    return FERRY_OK;
}

static ferry_status_t sync_event(void *context, void *event, ferry_error_t *err) {
    actor_t *actor = context;
    (void)err;
    if (event == (void *)20 || event == (void *)21) {
        dawdle(actor);
        vacate(actor, actor->unpacking);
        actor->unpacking = NULL;
    }
    return FERRY_OK;
}

static void trace(void *context, const ferry_pipeline_event_t *event) {
    actor_t *actor = context;
    char text[512];
    char expected[64];
    size_t length = ferry_pipeline_event_json(event, text, sizeof text);
    (void)snprintf(expected, sizeof expected, "\"pid\":%u,", actor->me);
    bool good = length < sizeof text && strstr(text, expected) != NULL && text[0] == '{' &&
                text[length - 1] == '}' && event->end_ns >= event->begin_ns &&
                event->rank == actor->me && event->begin_ns >= actor->last_end_ns[event->step];
    good = good && (event->step != FERRY_STEP_WAIT ||
                    event->end_ns - event->begin_ns >= FERRY_TRACE_WAIT_NS);
    if (!good) {
        atomic_fetch_add(&actor->scene->shared->wrong, 1);
    }
    actor->last_end_ns[event->step] = event->end_ns;
    actor->events[event->step]++;
}

/* --- a run ------------------------------------------------------------------------------------- */

static ferry_status_t check_items(const actor_t *actor, uint32_t run, ferry_error_t *err) {
    const scene_t *scene = actor->scene;
    for (uint32_t i = 0; i < scene->nitems; i++) {
        const ferry_item_t *item = &scene->items[i];
        const uint8_t *bytes = actor->views[i].data;
        if (item->target == actor->me && item->source != actor->me) {
            for (uint64_t k = 0; k < item->bytes; k++) {
                EXPECT(bytes[k] == byte_of(scene, i, k, run));
            }
        }
    }
    return FERRY_OK;
}

static ferry_status_t run_once(actor_t *actor, size_t nrounds, ferry_error_t *err) {
    const scene_t *scene = actor->scene;
    ferry_pipeline_hooks_t hooks = {.context = actor,
                                    .pack = pack,
                                    .unpack = unpack,
                                    .put = scene->put ? put : NULL,
                                    .sync = scene->queue ? sync_event : NULL,
                                    .pack_queue = (void *)1,
                                    .unpack_queue = (void *)2,
                                    .send_queue = (void *)3,
                                    .copy_queue = (void *)4,
                                    .pack_events = {(void *)10, (void *)11},
                                    .unpack_events = {(void *)20, (void *)21},
                                    .trace = trace};
    uint64_t from = actor->run + 1;
    uint64_t to = 0;
    ferry_self_move_t move;
    GOOD(ferry_view_contiguous(&from, FERRY_U64, 0, NULL, &move.source, err));
    GOOD(ferry_view_contiguous(&to, FERRY_U64, 0, NULL, &move.target, err));
    ferry_pipeline_params_t params = FERRY_PIPELINE_PARAMS_INIT;
    params.rounds = actor->rounds;
    params.nrounds = nrounds;
    params.received = actor->received;
    params.moves = &move;
    params.nmoves = 1;
    params.hooks = actor->run % 3 == 2 ? NULL : &hooks;
    actor->packed = 0;
    actor->sent = 0;
    memset(actor->events, 0, sizeof actor->events);
    GOOD(ferry_pipeline_execute(actor->slots, &params, err));
    EXPECT(to == from);
    uint32_t sends = 0;
    for (size_t i = 0; i < nrounds; i++) {
        sends += actor->rounds[i].send.peer != FERRY_RANK_NONE ? 1 : 0;
    }
    if (params.hooks != NULL) {
        EXPECT(actor->events[FERRY_STEP_PACK] == sends && actor->events[FERRY_STEP_PUT] == sends);
        EXPECT(actor->events[FERRY_STEP_UNPACK] == actor->received[actor->me]);
        EXPECT(actor->events[FERRY_STEP_SELF] == 1);
    }
    return check_items(actor, actor->run, err);
}

static ferry_status_t scene_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const scene_t *scene = context;
    actor_t *actor = calloc(1, sizeof *actor);
    actor->scene = scene;
    actor->me = ferry_world_rank(world);
    actor->random = scene->seed * 977 + actor->me;
    ferry_slots_params_t params = FERRY_SLOTS_PARAMS_INIT;
    params.slot_bytes = scene->slot_bytes;
    params.send_slots = scene->put;
    GOOD(ferry_slots_create(ferry_world_group(world), &params, &actor->slots, err));
    EXPECT(ferry_slots_bytes(actor->slots) == scene->slot_bytes);
    EXPECT(ferry_slots_staging(actor->slots) == scene->slot_bytes * (scene->put ? 4 : 2));
    uint8_t *memory = malloc((size_t)MAX_ITEMS * 4096);
    for (uint32_t i = 0; i < scene->nitems; i++) {
        GOOD(ferry_view_contiguous(memory + (size_t)i * 4096, FERRY_U8, 1, &scene->items[i].bytes,
                                   &actor->views[i], err));
    }
    size_t nrounds = 0;
    GOOD(make_rounds(actor, &nrounds, err));
    for (actor->run = 0; actor->run < 4; actor->run++) {
        memset(memory, 0xee, (size_t)MAX_ITEMS * 4096);
        for (uint32_t i = 0; i < scene->nitems; i++) {
            for (uint64_t k = 0; k < scene->items[i].bytes && scene->items[i].source == actor->me;
                 k++) {
                memory[(size_t)i * 4096 + k] = byte_of(scene, i, k, actor->run);
            }
        }
        GOOD(run_once(actor, nrounds, err));
    }
    EXPECT(atomic_load(&scene->shared->wrong) == 0);
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    ferry_slots_destroy(actor->slots);
    free(memory);
    free(actor);
    return FERRY_OK;
}

static shared_t *make_shared(void) {
    void *memory =
        mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void run_scenes(body_kind_t kind, uint64_t first, uint64_t count) {
    static scene_t scene;
    shared_t *shared = make_shared();
    uint32_t ahead = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        make_scene(seed, &scene, shared);
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_rank_result_t results[MAX_RANKS];
        ferry_status_t status = run_as(kind, scene.size, scene_body, &scene, NULL, results, &err);
        if (status != FERRY_OK) {
            char line[1024];
            (void)ferry_error_format(&err, line, sizeof line);
            fail_msg("seed %llu, %u ranks: %s", (unsigned long long)seed, scene.size, line);
        }
        assert_int_equal(atomic_load(&shared->wrong), 0);
        ahead += atomic_load(&shared->ahead);
    }
    assert_true(ahead > 0); /* the next batch was packed while the last one waited for its slot */
    (void)munmap(shared, sizeof *shared);
}

static void test_threads(void **state) {
    (void)state;
    run_scenes(AS_THREADS, 1, (uint64_t)soak_count(40, 2000));
}

static void test_processes(void **state) {
    (void)state;
    run_scenes(AS_PROCESSES, 5000, (uint64_t)soak_count(40, 2000));
}

/* --- failures ---------------------------------------------------------------------------------- */

static ferry_status_t broken_pack(void *context, const ferry_pipeline_batch_t *batch, void *slot,
                                  void *queue, void *event, ferry_error_t *err) {
    (void)context;
    (void)batch;
    (void)slot;
    (void)queue;
    (void)event;
    return body_fail(err, 0, "the launcher is broken");
}

/* Two ranks exchange 64 bytes; rank 1 cannot pack in the first run. */
static ferry_status_t failing_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t me = ferry_world_rank(world);
    ferry_slots_t *slots = NULL;
    ferry_slots_params_t slots_params = FERRY_SLOTS_PARAMS_INIT;
    slots_params.budget_bytes = me == 0 ? 1000 : 100000;
    GOOD(ferry_slots_create(ferry_world_group(world), &slots_params, &slots, err));
    EXPECT(ferry_slots_bytes(slots) ==
           448); /* two within 1000, whole lines; the smaller one counts */
    uint64_t from = 5 + me;
    uint64_t to = 0;
    ferry_view_t views[2];
    GOOD(ferry_view_contiguous(&from, FERRY_U64, 0, NULL, &views[0], err));
    GOOD(ferry_view_contiguous(&to, FERRY_U64, 0, NULL, &views[1], err));
    ferry_pipeline_segment_t segments[] = {{&views[0], FERRY_U64, 0, 1, 0, 0},
                                           {&views[1], FERRY_U64, 0, 1, 0, 0}};
    ferry_pipeline_round_t round = {{1 - me, 0, &segments[0], 1, 64},
                                    {1 - me, 0, &segments[1], 1, 64}};
    ferry_pipeline_params_t params = FERRY_PIPELINE_PARAMS_INIT;
    uint32_t received[] = {1, 1};
    params.rounds = &round;
    params.nrounds = 1;
    params.received = received;
    ferry_pipeline_hooks_t hooks = {.pack = broken_pack};
    params.hooks = me == 1 ? &hooks : NULL;
    ferry_error_t found = FERRY_ERROR_INIT;
    EXPECT(ferry_pipeline_execute(slots, &params, &found) == FERRY_CHECK);
    EXPECT(found.rank == 1 && found.peer == 0 && found.round == 0);
    EXPECT(strstr(found.text, "the launcher is broken") != NULL);
    GOOD(ferry_world_recover(world, err));
    params.hooks = NULL;
    for (int i = 0; i < 5; i++) {
        to = 0;
        GOOD(ferry_pipeline_execute(slots, &params, err));
        EXPECT(to == 5 + 1 - me);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    /* Mistakes of the caller. */
    segments[me].count = me == 0 ? 2 : 1;
    EXPECT(ferry_pipeline_execute(slots, &params, &found) == FERRY_INVALID);
    EXPECT(found.rank == 0 && strstr(found.text, "segment 0: 2 elements") != NULL);
    GOOD(ferry_world_recover(world, err));
    segments[0].count = 1;
    round.send.bytes = me == 0 ? 512 : 64;
    EXPECT(ferry_pipeline_execute(slots, &params, &found) == FERRY_INVALID);
    EXPECT(strstr(found.text, "in slots of 448") != NULL);
    GOOD(ferry_world_recover(world, err));
    round.send.bytes = 64;
    GOOD(ferry_pipeline_execute(slots, &params, err));
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    ferry_slots_destroy(slots);
    slots_params.budget_bytes = me == 0 ? 127 : 0;
    EXPECT(ferry_slots_create(ferry_world_group(world), &slots_params, &slots, &found) ==
           FERRY_INVALID);
    EXPECT(found.rank == 0);
    return FERRY_OK;
}

static void test_failing(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, failing_body, NULL, NULL);
    }
}

/* --- the budget -------------------------------------------------------------------------------- */

typedef struct resident {
    uint64_t now;  /* anonymous and shared */
    uint64_t all;  /* pages of files, too */
    uint64_t peak; /* the most that `all` has been since forget_peak */
} resident_t;

static resident_t look_resident(void) {
    char line[256];
    resident_t found = {0};
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        uint64_t bytes = colon != NULL ? strtoull(colon + 1, NULL, 10) * 1024 : 0;
        bool counted = strncmp(line, "RssAnon:", 8) == 0 || strncmp(line, "RssShmem:", 9) == 0;
        found.now += counted ? bytes : 0;
        found.all += strncmp(line, "VmRSS:", 6) == 0 ? bytes : 0;
        found.peak += strncmp(line, "VmHWM:", 6) == 0 ? bytes : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* Not every kernel can. */
static bool forget_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    bool done = file != NULL && fputs("5", file) >= 0;
    return file != NULL && fclose(file) == 0 && done;
}

static uint64_t growth(uint64_t before, uint64_t after) {
    return after > before ? after - before : 0;
}

/* Each rank sends half of `context` bytes to the other, out of its heap into the other's heap. */
static ferry_status_t budget_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    uint64_t bytes = *(const uint64_t *)context / 2;
    uint64_t budget = UINT64_C(64) << 20;
    uint32_t me = ferry_world_rank(world);
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = FERRY_PATH_PIPELINE;
    params.staging_bytes = budget;
    params.slot_bytes = UINT64_C(1) << 30; /* more than the budget: slots fill it */
    ferry_copy_service_t *service = NULL;
    GOOD(ferry_copy_service_create(ferry_world_group(world), &params, &service, err));
    uint8_t *memory = malloc(2 * bytes);
    EXPECT(memory != NULL);
    memset(memory, (int)me + 1, bytes);
    memset(memory + bytes, 0xee, bytes);
    ferry_view_t from;
    ferry_view_t to;
    GOOD(ferry_view_contiguous(memory, FERRY_U8, 1, &bytes, &from, err));
    GOOD(ferry_view_contiguous(memory + bytes, FERRY_U8, 1, &bytes, &to, err));
    bool peak_known = forget_peak();
    resident_t before = look_resident();
    GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, 1 - me, me, err));
    GOOD(ferry_copy_submit_recv(service, &to, 1 - me, 1 - me, err));
    ferry_copy_result_t result;
    double begin = body_seconds();
    GOOD(ferry_copy_service_run(service, &result, err));
    double seconds = body_seconds() - begin;
    resident_t after = look_resident();
    uint64_t peer_slots = result.staging_bytes; /* mapped here, too, and as large as our own */
    EXPECT(result.bytes_pipeline == bytes && result.staging_bytes <= budget);
    EXPECT(result.staging_bytes > budget - 1024);
    uint64_t added = growth(before.now + peer_slots, after.now);
    uint64_t most = peak_known ? growth(before.all + peer_slots, after.peak) : added;
    if (me == 0) {
        (void)printf("pipeline of %llu MiB: %.2f GiB/s; rank 0 adds %.1f MiB, at most %.1f MiB\n",
                     (unsigned long long)(2 * bytes >> 20),
                     (double)(2 * bytes) / seconds / (double)(1 << 30), (double)added / 1048576.0,
                     (double)most / 1048576.0);
    }
    EXPECT(added <= UINT64_C(80) << 20);
    EXPECT(most <= UINT64_C(80) << 20);
    for (uint64_t i = 0; i < bytes; i += 1021) {
        EXPECT(memory[bytes + i] == (uint8_t)(2 - me));
    }
    ferry_copy_service_close(service);
    free(memory);
    return FERRY_OK;
}

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif

static void test_budget(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
    skip(); /* it keeps several bytes for each of ours */
#endif
    uint64_t bytes = (uint64_t)soak_count(512, 4096) << 20;
    run_well(AS_PROCESSES, 2, budget_body, &bytes, NULL);
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
