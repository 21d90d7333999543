/* test_commit.c - versions that come all at once: readers, holds, both modes, tries that are given up. */
#include <pthread.h>

#include "multi/commit_model.h"

#include "support/soak.h"

#define SHORT_MS 300

static const ferry_commit_mode_t modes[] = {FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};

/* TSan does not see that another process stands between a writer and a reader of this one. */
#if defined(__SANITIZE_THREAD__)
#define KINDS_WITH_READERS 1
#else
#define KINDS_WITH_READERS BODY_KINDS
#endif

/* Runs a body in both modes, as threads, as processes and at a socket. */
static void run_modes(int kinds, uint32_t size, ferry_rank_fn_t fn, uint32_t timeout_ms) {
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = timeout_ms;
    for (int i = 0; i < 2; i++) {
        for (int kind = 0; kind < kinds; kind++) {
            ferry_commit_mode_t mode = modes[i];
            run_well((body_kind_t)kind, size, fn, &mode, &params);
        }
    }
}

static ferry_status_t open_model(ferry_world_t *world, const void *context, model_t *model,
                                 ferry_error_t *err) {
    const ferry_commit_mode_t *mode = context;
    return model_open(model, ferry_world_group(world), *mode, err);
}

/* All ranks agree on the failure, which is of this status and blames this rank. */
static ferry_status_t expect_agreed(model_t *model, ferry_status_t status,
                                    const ferry_error_t *found, ferry_status_t expected,
                                    uint32_t peer, ferry_error_t *err) {
    ferry_error_t all[MODEL_RANKS];
    EXPECT(status == expected && found->status == expected && found->peer == peer);
    GOOD(ferry_world_recover(model->world, err));
    GOOD(ferry_group_allgather(model->group, found, sizeof *found, all, err));
    for (uint32_t i = 0; i < model->size; i++) {
        EXPECT(strcmp(all[i].text, found->text) == 0 && all[i].rank == found->rank);
    }
    return FERRY_OK;
}

/* --- versions ------------------------------------------------------------------------------------ */

static ferry_status_t counts(ferry_world_t *world, void *context, ferry_error_t *err) {
    model_t model;
    GOOD(open_model(world, context, &model, err));
    bool flip = ferry_commit_mode(model.commit) == FERRY_COMMIT_FLIP;
    EXPECT(ferry_commit_mode(model.commit) == *(ferry_commit_mode_t *)context);
    uint64_t rounds = (uint64_t)soak_count(200, 5000);
    for (uint64_t version = 0; version < rounds; version++) {
        ferry_hold_t hold = {99, 99};
        uint64_t read = 99;
        EXPECT(ferry_commit_version(model.commit) == version);
        GOOD(ferry_commit_acquire(model.commit, &hold, err));
        EXPECT(hold.version == version && hold.copy == (flip ? version % 2 : 0));
        ferry_commit_release(model.commit, &hold);
        GOOD(model_read(&model, &read, err));
        EXPECT(read == version);
        bool wait = (version + model.me) % 3 != 0; /* some wait, some ask */
        GOOD(model_commit(&model, wait, err));
    }
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_counts(void **state) {
    (void)state;
    run_modes(BODY_KINDS, 3, counts, 0);
    run_modes(BODY_KINDS, 1, counts, 0);
}

/* A group with its own numbers, and a rank that has no part in it. */
static ferry_status_t in_group(ferry_world_t *world, void *context, ferry_error_t *err) {
    uint32_t ranks[] = {3, 0, 2};
    ferry_group_t *group = NULL;
    ferry_commit_t *none = NULL;
    model_t model;
    GOOD(ferry_group_create(world, ranks, 3, &group, err));
    if (ferry_group_rank(group) == FERRY_RANK_NONE) {
        EXPECT(ferry_commit_create(group, FERRY_COMMIT_FLIP, &none, err) == FERRY_INVALID);
    } else {
        GOOD(model_open(&model, group, *(ferry_commit_mode_t *)context, err));
        for (uint64_t i = 1; i < 5; i++) {
            uint64_t read = 0;
            GOOD(model_commit(&model, true, err));
            GOOD(model_read(&model, &read, err));
            EXPECT(read == i);
        }
        GOOD(ferry_group_barrier(group, err));
        ferry_commit_destroy(model.commit);
    }
    ferry_group_destroy(group);
    return ferry_group_barrier(ferry_world_group(world), err);
}

static void test_in_group(void **state) {
    (void)state;
    run_modes(BODY_KINDS, 4, in_group, 0);
}

static ferry_status_t two_at_once(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    model_t flip;
    model_t gate;
    uint64_t read = 0;
    GOOD(model_open(&flip, ferry_world_group(world), FERRY_COMMIT_FLIP, err));
    GOOD(model_open(&gate, ferry_world_group(world), FERRY_COMMIT_GATE, err));
    for (uint64_t i = 1; i < 20; i++) {
        GOOD(model_step(&flip, fy_commit_begin, true, err));
        GOOD(model_step(&gate, fy_commit_begin, true, err));
        model_write(&flip, i);
        model_write(&gate, i);
        GOOD(model_step(&gate, fy_commit_vote, false, err));
        GOOD(model_read(&flip, &read, err));
        EXPECT(read == i - 1);
        GOOD(model_step(&flip, fy_commit_vote, true, err));
        GOOD(model_step(&flip, fy_commit_finish, true, err));
        model_copy_in(&gate);
        GOOD(model_step(&gate, fy_commit_finish, true, err));
        GOOD(model_read(&gate, &read, err));
        EXPECT(read == i);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    ferry_commit_destroy(flip.commit);
    ferry_commit_destroy(gate.commit);
    return FERRY_OK;
}

static void test_two_at_once(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, two_at_once, NULL, NULL);
    }
}

/* --- holds --------------------------------------------------------------------------------------- */

static ferry_status_t asks(model_t *model, model_step_t step, int times, bool *done_p,
                           ferry_error_t *err) {
    *done_p = false;
    for (int i = 0; i < times && !*done_p; i++) {
        GOOD(step(model->commit, false, done_p, err));
        (void)usleep(1000);
    }
    return FERRY_OK;
}

/* Rank 1 holds version 0, twice. Version 1 comes all the same; version 2 would lie where version 0 is. */
static ferry_status_t flip_waits(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    model_t model;
    ferry_hold_t holds[2];
    ferry_hold_t late;
    bool done = true;
    GOOD(model_open(&model, ferry_world_group(world), FERRY_COMMIT_FLIP, err));
    for (int i = 0; i < 2 && model.me == 1; i++) {
        GOOD(ferry_commit_acquire(model.commit, &holds[i], err));
    }
    GOOD(ferry_group_barrier(model.group, err));
    GOOD(model_commit(&model, true, err));
    GOOD(ferry_commit_acquire(model.commit, &late, err));
    EXPECT(late.version == 1 && late.copy == 1);
    for (int i = 0; i < 2; i++) {
        GOOD(asks(&model, fy_commit_begin, 10, &done, err));
        EXPECT(!done);
        GOOD(ferry_group_barrier(model.group, err));
        if (model.me == 1) {
            EXPECT(holds[i].version == 0 && model_holds(&model, &holds[i], 1));
            ferry_commit_release(model.commit, &holds[i]);
        }
    }
    GOOD(model_step(&model, fy_commit_begin, true, err));
    model_write(&model, 2);
    EXPECT(model_holds(&model, &late, model.me));
    GOOD(model_step(&model, fy_commit_vote, true, err));
    GOOD(model_step(&model, fy_commit_finish, true, err));
    EXPECT(model_holds(&model, &late, model.me));
    ferry_commit_release(model.commit, &late);
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

/* A reader that comes when the gate is shut. */
typedef struct visitor {
    model_t *model;
    _Atomic int got; /* 1: through */
    uint64_t version;
    ferry_status_t status;
    ferry_error_t error;
} visitor_t;

static void *visit(void *argument) {
    visitor_t *visitor = argument;
    visitor->status = model_read(visitor->model, &visitor->version, &visitor->error);
    atomic_store(&visitor->got, 1);
    return NULL;
}

/* Rank 1 holds when the others vote: no new reader is let in, but rank 1 may hold twice. */
static ferry_status_t gate_waits(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    model_t model;
    ferry_hold_t holds[2];
    bool done = true;
    pthread_t thread;
    GOOD(model_open(&model, ferry_world_group(world), FERRY_COMMIT_GATE, err));
    visitor_t visitor = {.model = &model, .error = FERRY_ERROR_INIT};
    if (model.me == 1) {
        GOOD(ferry_commit_acquire(model.commit, &holds[0], err));
    }
    GOOD(ferry_group_barrier(model.group, err));
    GOOD(model_step(&model, fy_commit_begin, true, err));
    model_write(&model, 1);
    GOOD(asks(&model, fy_commit_vote, 2, &done, err));
    GOOD(ferry_group_barrier(model.group, err));
    GOOD(asks(&model, fy_commit_vote, 2, &done, err)); /* all have voted: now it is shut */
    EXPECT(!done && ferry_commit_version(model.commit) == 0);
    EXPECT(pthread_create(&thread, NULL, visit, &visitor) == 0);
    body_sleep(0.05);
    bool early = atomic_load(&visitor.got) != 0;
    if (model.me == 1) {
        GOOD(ferry_commit_acquire(model.commit, &holds[1], err));
        bool right = holds[1].version == 0 && model_holds(&model, &holds[1], 1);
        ferry_commit_release(model.commit, &holds[1]);
        GOOD(asks(&model, fy_commit_vote, 2, &done, err));
        EXPECT(right && !done);
        ferry_commit_release(model.commit, &holds[0]);
    }
    GOOD(model_step(&model, fy_commit_vote, true, err));
    EXPECT(ferry_commit_version(model.commit) == 1);
    body_sleep(0.02);
    early = early || atomic_load(&visitor.got) != 0;
    model_copy_in(&model);
    GOOD(model_step(&model, fy_commit_finish, true, err));
    (void)pthread_join(thread, NULL);
    EXPECT(!early);
    if (visitor.status != FERRY_OK) {
        *err = visitor.error;
        return visitor.status;
    }
    EXPECT(visitor.version == 1);
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_holds(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, flip_waits, NULL, NULL);
    }
    for (int kind = 0; kind < KINDS_WITH_READERS; kind++) {
        run_well((body_kind_t)kind, 3, gate_waits, NULL, NULL);
    }
}

/* Rank 1 does not let go: all get one error that says so, the version stays, and later all is well. */
static ferry_status_t held_too_long(ferry_world_t *world, void *context, ferry_error_t *err) {
    model_t model;
    ferry_hold_t hold;
    GOOD(open_model(world, context, &model, err));
    bool flip = ferry_commit_mode(model.commit) == FERRY_COMMIT_FLIP;
    for (int i = 0; i < 2; i++) {
        bool wait = i == 0; /* then by asking */
        uint64_t version = ferry_commit_version(model.commit) + (flip ? 1 : 0);
        if (model.me == 1) {
            GOOD(ferry_commit_acquire(model.commit, &hold, err));
        }
        GOOD(ferry_group_barrier(model.group, err));
        if (flip) {
            GOOD(model_commit(&model, wait, err));
        }
        ferry_error_t found = FERRY_ERROR_INIT;
        ferry_status_t status = model_step(&model, fy_commit_begin, wait, &found);
        if (!flip) {
            EXPECT(status == FERRY_OK);
            model_write(&model, 1000);
            status = model_step(&model, fy_commit_vote, wait, &found);
        }
        EXPECT(!fy_commit_settle(model.commit) && !fy_commit_settle(model.commit));
        uint64_t read = 0;
        GOOD(model_read(&model, &read, err)); /* the gate is open, though the world has failed */
        EXPECT(read == version && ferry_commit_version(model.commit) == version);
        GOOD(expect_agreed(&model, status, &found, FERRY_TIMEOUT, 1, err));
        EXPECT(strstr(found.text, "release of a version") != NULL);
        if (model.me == 1) {
            ferry_commit_release(model.commit, &hold);
        }
        GOOD(model_commit(&model, wait, err));
        EXPECT(ferry_commit_version(model.commit) == version + 1);
    }
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

typedef struct passed {
    ferry_commit_t *commit;
    ferry_hold_t hold;
} passed_t;

static void *release_passed(void *argument) {
    const passed_t *passed = argument;
    ferry_commit_release(passed->commit, &passed->hold);
    return NULL;
}

/* Another thread may release. Then the first one holds nothing, and is not let in as if it did. */
static ferry_status_t pass_on(model_t *model, ferry_error_t *err) {
    pthread_t thread;
    passed_t passed = {.commit = model->commit};
    GOOD(ferry_commit_acquire(model->commit, &passed.hold, err));
    EXPECT(pthread_create(&thread, NULL, release_passed, &passed) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    return FERRY_OK;
}

/* Rank 0 copies in after the deadline only. Readers are told; the others open the gate with it. */
static ferry_status_t late_copy(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    model_t model;
    GOOD(model_open(&model, ferry_world_group(world), FERRY_COMMIT_GATE, err));
    GOOD(pass_on(&model, err));
    GOOD(model_step(&model, fy_commit_begin, true, err));
    model_write(&model, 1);
    GOOD(model_step(&model, fy_commit_vote, true, err));
    if (model.me == 0) {
        ferry_hold_t hold;
        ferry_error_t found = FERRY_ERROR_INIT;
        double begin = body_seconds();
        EXPECT(ferry_commit_acquire(model.commit, &hold, &found) == FERRY_TIMEOUT);
        double waited = body_seconds() - begin;
        EXPECT(waited > SHORT_MS / 1000.0 - 0.05 && waited < 2);
        EXPECT(found.rank == 0 && strstr(found.text, "gate") != NULL);
        body_sleep(0.1);
    }
    model_copy_in(&model);
    GOOD(model_step(&model, fy_commit_finish, model.me != 2, err));
    uint64_t read = 0;
    GOOD(model_read(&model, &read, err));
    EXPECT(read == 1);
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_check(world, &found);
    GOOD(expect_agreed(&model, status, &found, FERRY_TIMEOUT, 0, err));
    GOOD(model_commit(&model, true, err));
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_deadlines(void **state) {
    (void)state;
    run_modes(BODY_KINDS, 3, held_too_long, SHORT_MS);
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = SHORT_MS;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, late_copy, NULL, &params);
    }
}

/* --- tries that are given up --------------------------------------------------------------------- */

enum { STEPS = 5 };

/* Rank 1 fails at some point of a try. Returns how its own calls ended. */
static ferry_status_t failing_try(model_t *model, uint64_t version, int point, bool wait,
                                  ferry_error_t *found) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    mine.status = FERRY_STOPPED;
    (void)snprintf(mine.text, sizeof mine.text, "stopped at point %d", point);
    bool fails = model->me == 1;
    if (point == 0 && fails) {
        return ferry_world_fail(model->world, &mine, found);
    }
    GOOD(model_step(model, fy_commit_begin, wait, found));
    model_write(model, version);
    if (point == 1 && fails) {
        return ferry_world_fail(model->world, &mine, found);
    }
    if (point == 1 && model->me == 2) {
        body_sleep(0.03); /* comes when the others have given up */
    }
    if (point == 2 && fails) {
        bool done = false;
        GOOD(fy_commit_vote(model->commit, false, &done, found));
        return ferry_world_fail(model->world, &mine, found); /* decided or not, as it comes */
    }
    GOOD(model_step(model, fy_commit_vote, wait, found));
    if (point == 3 && fails) {
        return ferry_world_fail(model->world, &mine, found);
    }
    model_copy_in(model);
    GOOD(model_step(model, fy_commit_finish, wait, found));
    return point == 4 && fails ? ferry_world_fail(model->world, &mine, found) : FERRY_OK;
}

/* After a failure at any point all ranks hold one version, and the next try works. */
static ferry_status_t gives_up(ferry_world_t *world, void *context, ferry_error_t *err) {
    model_t model;
    GOOD(open_model(world, context, &model, err));
    uint64_t version = 0;
    model_meet(&model);
    for (int i = 0; i < 40; i++) {
        int point = i % STEPS;
        ferry_error_t found = FERRY_ERROR_INIT;
        ferry_status_t status = failing_try(&model, version + 1, point, i % 3 != 0, &found);
        bool began = point != 0 || model.me != 1;
        bool committed = began && fy_commit_settle(model.commit);
        if (status != FERRY_OK) {
            EXPECT(status == FERRY_STOPPED && strncmp(found.text, "stopped at point ", 17) == 0);
            EXPECT(found.rank == 1);
        }
        if (committed && status != FERRY_OK && point < 4) {
            model_copy_in(&model);
            if (ferry_commit_mode(model.commit) == FERRY_COMMIT_GATE) {
                GOOD(model_step(&model, fy_commit_finish, true, err));
            }
        }
        EXPECT(!began || fy_commit_settle(model.commit) == committed);
        EXPECT(point >= 2 || !committed);
        EXPECT(point < 3 || committed);
        version += committed ? 1 : 0;
        uint64_t read = 0;
        EXPECT(ferry_commit_version(model.commit) == version);
        GOOD(model_read(&model, &read, err));
        EXPECT(read == version);
        GOOD(ferry_world_recover(world, err));
        GOOD(model_commit(&model, i % 2 == 0, err));
        version++;
        GOOD(model_read(&model, &read, err));
        EXPECT(read == version);
    }
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

/* A rank that gives up without a word fails the world with that. */
static ferry_status_t gives_up_silently(ferry_world_t *world, void *context, ferry_error_t *err) {
    model_t model;
    GOOD(open_model(world, context, &model, err));
    bool done = false;
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    GOOD(model_step(&model, fy_commit_begin, true, err));
    EXPECT(fy_commit_begin(model.commit, true, &done, NULL) == FERRY_INVALID && !done);
    model_meet(&model);
    if (model.me != 0) {
        status = model_step(&model, fy_commit_vote, true, &found);
    }
    EXPECT(!fy_commit_settle(model.commit));
    if (model.me == 0) {
        status = ferry_world_check(world, &found);
    }
    EXPECT(found.rank == 0);
    GOOD(expect_agreed(&model, status, &found, FERRY_STOPPED, FERRY_RANK_NONE, err));
    GOOD(model_commit(&model, true, err));
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_given_up(void **state) {
    (void)state;
    run_modes(BODY_KINDS, 3, gives_up, 0);
    run_modes(BODY_KINDS, 3, gives_up_silently, 0);
}

/* --- readers without end ------------------------------------------------------------------------- */

typedef struct reader {
    model_t *model;
    _Atomic bool *over;
    _Atomic bool began; /* has read once, or failed to */
    ferry_status_t status;
    ferry_error_t error;
} reader_t;

/* Versions never go back, and none is ever mixed. */
static ferry_status_t read_on(reader_t *reader, ferry_error_t *err) {
    uint64_t last = 0;
    while (!atomic_load(reader->over)) {
        uint64_t version = 0;
        GOOD(model_read(reader->model, &version, err));
        EXPECT(version >= last);
        last = version;
        atomic_store(&reader->began, true);
    }
    return FERRY_OK;
}

static void *reader_main(void *argument) {
    reader_t *reader = argument;
    reader->status = read_on(reader, &reader->error);
    atomic_store(&reader->began, true);
    return NULL;
}

enum { READERS = 2 };

static ferry_status_t hammer(ferry_world_t *world, void *context, ferry_error_t *err) {
    model_t model;
    pthread_t threads[READERS];
    reader_t readers[READERS];
    _Atomic bool over = false;
    GOOD(open_model(world, context, &model, err));
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader_t){.model = &model, .over = &over, .error = FERRY_ERROR_INIT};
        EXPECT(pthread_create(&threads[i], NULL, reader_main, &readers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        while (!atomic_load(&readers[i].began)) {
            (void)usleep(100);
        }
    }
    long rounds = soak_count(60, 600);
    ferry_status_t status = FERRY_OK;
    for (long i = 0; i < rounds && status == FERRY_OK; i++) {
        status = model_commit(&model, (i + model.me) % 4 != 0, err);
    }
    atomic_store(&over, true);
    for (int i = 0; i < READERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    GOOD(status);
    for (int i = 0; i < READERS; i++) {
        if (readers[i].status != FERRY_OK) {
            *err = readers[i].error;
            return readers[i].status;
        }
    }
    EXPECT(ferry_commit_version(model.commit) == (uint64_t)rounds);
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_hammer(void **state) {
    (void)state;
    run_modes(KINDS_WITH_READERS, 2, hammer, 0);
    run_modes(1, 4, hammer, 0);
}

/* --- creating ------------------------------------------------------------------------------------ */

static ferry_status_t creates(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_group_t *group = ferry_world_group(world);
    uint32_t me = ferry_world_rank(world);
    ferry_commit_t *commit = NULL;
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_commit_mode_t mode = me == 2 ? FERRY_COMMIT_GATE : FERRY_COMMIT_FLIP;
    EXPECT(ferry_commit_create(group, mode, &commit, &found) == FERRY_MISMATCH);
    EXPECT(commit == NULL && found.rank == 2 && found.peer == 0);
    EXPECT(strcmp(found.text, "commit: one rank asks for gate, the other for flip") == 0);
    mode = me == 1 ? (ferry_commit_mode_t)7 : FERRY_COMMIT_FLIP;
    EXPECT(ferry_commit_create(group, mode, &commit, &found) == FERRY_INVALID);
    EXPECT(commit == NULL && found.rank == 1 && strstr(found.text, "mode 7") != NULL);
    EXPECT(ferry_world_check(world, err) == FERRY_OK);
    EXPECT(ferry_commit_create(NULL, FERRY_COMMIT_FLIP, &commit, NULL) == FERRY_INVALID);
    EXPECT(ferry_commit_create(group, FERRY_COMMIT_FLIP, NULL, NULL) == FERRY_INVALID);
    EXPECT(ferry_commit_acquire(NULL, NULL, NULL) == FERRY_INVALID);
    ferry_commit_release(NULL, NULL);
    ferry_commit_destroy(NULL);
    /* Members may come and go in any order, again and again, in a small arena. */
    for (uint32_t i = 0; i < 100; i++) {
        ferry_hold_t hold;
        GOOD(ferry_commit_create(group, modes[i % 2], &commit, err));
        GOOD(ferry_commit_acquire(commit, &hold, err));
        EXPECT(hold.version == 0 && hold.copy == 0);
        ferry_commit_release(commit, &hold);
        if (me == 0) {
            GOOD(ferry_group_barrier(group, err));
        }
        ferry_commit_destroy(commit);
        if (me != 0) {
            GOOD(ferry_group_barrier(group, err));
        }
    }
    return FERRY_OK;
}

static void test_creates(void **state) {
    (void)state;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = 32 * FERRY_MEM_ALIGN;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 3, creates, NULL, &params);
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creates),  cmocka_unit_test(test_counts),
        cmocka_unit_test(test_in_group), cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_holds),    cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_hammer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
