/* fault_reshard.c - ranks die and runs are stopped while others read.
 *
 * Every rank runs a session under a commit, again and again, and has a thread that acquires, looks at all
 * ranks' targets and releases. Version v of element i is v * STEP + i, so that a look tells whether
 * everything is of the version that is held.
 *
 * Death: one rank kills itself at a random moment, in a hook, or in the refresh, which is after the
 * decision. The survivors get one error, hold one version, and their readers go on. */
#include <pthread.h>
#include <stdatomic.h>

#include "multi/body.h"

#include "oracle/reshard_run.h"
#include "support/sanitizer.h"
#include "support/soak.h"

/* A thread sanitizer does not see what orders the threads of one process when it goes by way of another. */
#if defined(__SANITIZE_THREAD__)
#define ONLY_THREADS 1
#else
#define ONLY_THREADS 0
#endif

enum { RANKS = 4, TENSORS = 2, STEP = 100003 };

typedef enum how {
    AT_A_TIME,
    IN_A_HOOK,      /* the n-th call of progress */
    IN_THE_COMMIT,  /* the n-th call of progress in that phase */
    IN_THE_REFRESH, /* the n-th */
    HOWS,
} how_t;

/* What ranks tell the test, in memory that they share. */
typedef struct report {
    pthread_barrier_t gate; /* between two tries: no rank is in an exchange of the world */
    uint64_t refreshing;    /* the version that the victim was refreshing */
    uint64_t version[RANKS];
    uint64_t looks[RANKS];
    double killed_at;
} report_t;

typedef struct doom {
    rsr_setup_t setup;
    uint32_t victim;
    how_t how;
    useconds_t after_us;
    uint32_t nth;
    report_t *report;
} doom_t;

/* One rank of a trial. */
typedef struct scene {
    rsr_t run;
    const doom_t *doom;
    uint32_t calls; /* of the hook that kills */
    uint64_t *numbers[RANKS][TENSORS];
    uint64_t counts[RANKS][TENSORS];
    const uint32_t *targets[RANKS][TENSORS][2];
    pthread_t reader;
    atomic_bool stop;
    atomic_bool bad;
    char text[256];
    uint64_t looks;
    uint64_t last; /* version that the reader saw */
} scene_t;

/* ---- values ---- */

static void fill(scene_t *scene, uint64_t version) {
    const rso_case_t *c = scene->run.setup->c;
    for (uint32_t t = 0; t < TENSORS; t++) {
        uint32_t place = orc_place(&c->tensors[t].source, scene->run.me);
        if (place == UINT32_MAX) {
            continue;
        }
        uint64_t *numbers = orc_side_numbers(c->tensors[t].from, place);
        uint32_t *values = scene->run.tensors[t].source.view.data;
        for (uint64_t e = 0; e < orc_side_elements(c->tensors[t].from, place); e++) {
            values[e] = (uint32_t)(version * STEP + numbers[e]);
        }
        free(numbers);
    }
}

/* Version 0: the targets before the first run. */
static void fill_targets(scene_t *scene) {
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (uint32_t copy = 0; copy < scene->run.copies; copy++) {
            uint32_t *values = scene->run.tensors[t].target[copy].view.data;
            for (uint64_t e = 0; e < scene->counts[scene->run.me][t]; e++) {
                values[e] = (uint32_t)scene->numbers[scene->run.me][t][e];
            }
        }
    }
}

/* ---- the reader ---- */

static void complain(scene_t *scene, const char *what, uint32_t rank, const ferry_hold_t *hold,
                     uint32_t value) {
    if (!atomic_exchange(&scene->bad, true)) {
        (void)snprintf(
            scene->text, sizeof scene->text,
            "reader of rank %u: %.120s: version %llu, copy %u: rank %u holds %u, that is "
            "version %u",
            scene->run.me, what, (unsigned long long)hold->version, hold->copy, rank, value,
            value / STEP);
    }
}

/* A dead rank's own targets may be of any version. */
static void look_at(scene_t *scene, uint32_t rank, const ferry_hold_t *hold) {
    for (uint32_t t = 0; t < TENSORS; t++) {
        const uint32_t *values = scene->targets[rank][t][hold->copy];
        for (uint64_t e = 0; e < scene->counts[rank][t]; e++) {
            uint32_t want = (uint32_t)(hold->version * STEP + scene->numbers[rank][t][e]);
            if (values[e] != want) {
                if (ferry_world_rank_life(scene->run.world, rank) != FERRY_RANK_DEAD) {
                    complain(scene, "mixed", rank, hold, values[e]);
                }
                return;
            }
        }
    }
}

/* Looks, and now and then looks again at what it still holds. */
static void look(scene_t *scene, useconds_t hold_us) {
    ferry_hold_t hold;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_commit_acquire(scene->run.commit, &hold, &err);
    if (status != FERRY_OK) {
        hold = (ferry_hold_t){0, 0};
        complain(scene, err.text, scene->run.me, &hold, 0);
        return;
    }
    if (hold.version < scene->last || hold.copy >= scene->run.copies) {
        complain(scene, "backwards", scene->run.me, &hold, 0);
    }
    scene->last = hold.version;
    for (uint32_t i = 0; i < (hold_us > 0 ? 3 : 1) * RANKS && !atomic_load(&scene->bad); i++) {
        look_at(scene, i % RANKS, &hold);
        if (i % RANKS == RANKS - 1 && hold_us > 0) {
            (void)usleep(hold_us);
        }
    }
    ferry_commit_release(scene->run.commit, &hold);
    scene->looks++;
}

static void *read_on(void *argument) {
    scene_t *scene = argument;
    uint64_t random = scene->run.me;
    while (!atomic_load(&scene->stop) && !atomic_load(&scene->bad)) {
        look(scene, body_below(&random, 3) == 0 ? 1 + (useconds_t)body_below(&random, 400) : 0);
        if (body_below(&random, 4) == 0) {
            (void)usleep((useconds_t)body_below(&random, 200));
        }
    }
    return NULL;
}

/* ---- death ---- */

static void die(const scene_t *scene) {
    scene->doom->report->killed_at = body_seconds();
    (void)kill(getpid(), SIGKILL);
}

static void *strike(void *argument) {
    const scene_t *scene = argument;
    (void)usleep(scene->doom->after_us);
    die(scene);
    return NULL;
}

static void progress(void *context, const ferry_reshard_progress_t *now) {
    scene_t *scene = context;
    const doom_t *doom = scene->doom;
    bool counts =
        doom->how == IN_A_HOOK || (doom->how == IN_THE_COMMIT && now->phase == FERRY_PHASE_COMMIT);
    if (scene->run.me == doom->victim && counts && ++scene->calls == doom->nth) {
        die(scene);
    }
}

static ferry_status_t refresh(void *context, uint64_t version, ferry_error_t *err) {
    scene_t *scene = context;
    const doom_t *doom = scene->doom;
    (void)err;
    if (scene->run.me == doom->victim && doom->how == IN_THE_REFRESH &&
        ++scene->calls == doom->nth) {
        doom->report->refreshing = version;
        die(scene);
    }
    return FERRY_OK;
}

/* ---- a scene ---- */

static ferry_status_t share_targets(scene_t *scene, ferry_error_t *err) {
    rsr_t *run = &scene->run;
    ferry_mem_key_t mine[TENSORS][2];
    ferry_mem_key_t all[RANKS][TENSORS][2];
    memset(mine, 0, sizeof mine);
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (uint32_t copy = 0; copy < run->copies; copy++) {
            const rsr_block_t *block = &run->tensors[t].target[copy];
            GOOD(ferry_mem_register(run->world, block->view.data,
                                    scene->counts[run->me][t] * sizeof(uint32_t), &mine[t][copy],
                                    err));
        }
    }
    GOOD(ferry_group_allgather(ferry_world_group(run->world), mine, sizeof mine, all, err));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < TENSORS * run->copies; i++) {
            void *memory = NULL;
            GOOD(ferry_mem_map(run->world, &all[rank][i / run->copies][i % run->copies], &memory,
                               err));
            scene->targets[rank][i / run->copies][i % run->copies] = memory;
        }
    }
    return FERRY_OK;
}

static ferry_status_t open_scene(scene_t *scene, ferry_world_t *world, const doom_t *doom,
                                 ferry_error_t *err) {
    memset(scene, 0, sizeof *scene);
    scene->doom = doom;
    GOOD(rsr_open(&scene->run, world, &doom->setup, NULL, err));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            const rso_tensor_t *tensor = &doom->setup.c->tensors[t];
            uint32_t place = orc_place(&tensor->target, rank);
            scene->numbers[rank][t] = orc_side_numbers(tensor->to, place);
            scene->counts[rank][t] = orc_side_elements(tensor->to, place);
        }
    }
    fill_targets(scene);
    GOOD(share_targets(scene, err));
    scene->run.options.context = scene;
    scene->run.options.progress = progress;
    scene->run.options.refresh = refresh;
    GOOD(rsr_session(&scene->run, err));
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    EXPECT(pthread_create(&scene->reader, NULL, read_on, scene) == 0);
    return FERRY_OK;
}

static ferry_status_t close_scene(scene_t *scene, ferry_error_t *err) {
    atomic_store(&scene->stop, true);
    (void)pthread_join(scene->reader, NULL);
    look(scene, 0);
    scene->doom->report->looks[scene->run.me] = scene->looks;
    if (atomic_load(&scene->bad)) {
        ferry_error_clear(err);
        err->status = FERRY_CHECK;
        (void)snprintf(err->text, sizeof err->text, "%s", scene->text);
        return FERRY_CHECK;
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            free(scene->numbers[rank][t]);
        }
    }
    return FERRY_OK;
}

static ferry_status_t doom_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    static _Thread_local scene_t scene;
    const doom_t *doom = context;
    GOOD(open_scene(&scene, world, doom, err));
    rsr_t *run = &scene.run;
    pthread_t killer;
    if (run->me == doom->victim && doom->how == AT_A_TIME) {
        EXPECT(pthread_create(&killer, NULL, strike, &scene) == 0);
    }
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    while (status == FERRY_OK) {
        uint64_t version = ferry_commit_version(run->commit);
        fill(&scene, version + 1);
        status = rsr_drive(run, &found);
        ferry_session_result(run->session, &run->result);
        if (status == FERRY_OK) {
            EXPECT(run->result.version == version + 1 && run->result.committed);
        }
    }
    double waited = body_seconds() - doom->report->killed_at;
    uint64_t version = ferry_commit_version(run->commit);
    doom->report->version[run->me] = version;
    if (status != FERRY_DEAD) {
        *err = found;
        return FERRY_CHECK;
    }
    EXPECT(waited < 3);
    EXPECT(run->result.version == version);
    EXPECT(ferry_session_check(run->session, NULL) != FERRY_OK);
    body_sleep(0.01); /* the reader goes on */
    EXPECT(ferry_commit_version(run->commit) == version);
    return close_scene(&scene, err);
}

/* ---- trials ---- */

static report_t *new_report(void) {
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void open_case(rso_case_t *c) {
    static const uint64_t shape[] = {48, 40};
    memset(c, 0, sizeof *c);
    (void)rso_add_text(c, "w", FERRY_U32, FERRY_U32, 2, shape, "4:S0", "4:S1");
    (void)rso_add_text(c, "x", FERRY_U32, FERRY_U32, 2, shape, "2:S1@0-1", "2x2:R,S0");
    assert_true(rso_open(c));
}

static void draw_setup(uint64_t *random, const rso_case_t *c, rsr_setup_t *setup_p) {
    static const uint32_t paths[] = {0, 0, FERRY_PATH_PIPELINE, FERRY_PATH_READ};
    rsr_setup_t setup = RSR_SETUP_INIT(c, 1);
    setup.commit = body_below(random, 2) == 0 ? FERRY_COMMIT_FLIP : FERRY_COMMIT_GATE;
    setup.service.paths = paths[body_below(random, 4)];
    setup.service.sharing = (uint32_t)body_below(random, 3);
    setup.service.slot_bytes = body_below(random, 2) == 0 ? 0 : 1024;
    setup.options.buckets = (uint32_t)body_below(random, 3);
    setup.options.check = body_below(random, 3) == 0;
    setup.drive = (rsr_drive_t)body_below(random, 4);
    *setup_p = setup;
}

static void check_survivors(long trial, const doom_t *doom, const ferry_rank_result_t *results) {
    const report_t *report = doom->report;
    uint32_t first = doom->victim == 0 ? 1 : 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank == doom->victim) {
            assert_int_equal(results[rank].signal, SIGKILL);
            continue;
        }
        if (results[rank].status != FERRY_OK) {
            fail_msg("death %ld of rank %u, how %d, commit %u, drive %d, paths %u, rank %u: %s",
                     trial, doom->victim, (int)doom->how, doom->setup.commit,
                     (int)doom->setup.drive, doom->setup.service.paths, rank,
                     results[rank].error.text);
        }
        if (report->version[rank] != report->version[first]) {
            fail_msg(
                "death %ld of rank %u, how %d, commit %u: rank %u has version %llu, rank %u %llu",
                trial, doom->victim, (int)doom->how, doom->setup.commit, first,
                (unsigned long long)report->version[first], rank,
                (unsigned long long)report->version[rank]);
        }
        assert_true(report->looks[rank] > 0);
    }
    /* Who refreshes has seen the decision. */
    assert_true(report->version[first] >= report->refreshing);
}

static void test_death(void **state) {
    (void)state;
    if (ONLY_THREADS) {
        skip();
    }
    rso_case_t c;
    open_case(&c);
    uint64_t random = 4242;
    report_t *report = new_report();
    long count = soak_count(SANITIZED ? 20 : 50, 500);
    for (long i = 0; i < count; i++) {
        body_traces_t traces = body_look();
        memset(report, 0, sizeof *report);
        doom_t doom = {.victim = (uint32_t)body_below(&random, RANKS),
                       .how = (how_t)(i % HOWS),
                       .after_us = (useconds_t)body_below(&random, 30000),
                       .nth = 1 + (uint32_t)body_below(&random, i % HOWS == IN_A_HOOK ? 60 : 8),
                       .report = report};
        draw_setup(&random, &c, &doom.setup);
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_rank_result_t results[RANKS];
        ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
        params.timeout_ms = 10000;
        ferry_status_t status =
            ferry_world_run_processes(RANKS, doom_body, &doom, &params, results, &err);
        check_survivors(i, &doom, results);
        assert_int_equal(status, FERRY_DEAD);
        body_expect_no_trace(traces);
    }
    (void)munmap(report, 4096);
    rso_close(&c);
}

/* ---- stopping ---- */

static void *stop_soon(void *argument) {
    const scene_t *scene = argument;
    (void)usleep(scene->doom->after_us);
    (void)ferry_session_cancel(scene->run.session, NULL); /* too late is fine */
    return NULL;
}

/* A try that another thread may stop at any time; after it all ranks hold one version. */
static ferry_status_t stopped_try(scene_t *scene, uint32_t try, ferry_error_t *err) {
    rsr_t *run = &scene->run;
    uint64_t version = ferry_commit_version(run->commit);
    bool stops = try % RANKS == run->me;
    pthread_t thread;
    ferry_error_t found = FERRY_ERROR_INIT;
    fill(scene, version + 1);
    ferry_status_t status = ferry_session_start(run->session, &found); /* or stopped before it */
    if (stops) {
        EXPECT(status == FERRY_OK);
        EXPECT(pthread_create(&thread, NULL, stop_soon, scene) == 0);
    }
    if (status == FERRY_OK) {
        status = ferry_session_wait(run->session, NULL, &found);
    }
    ferry_session_result(run->session, &run->result);
    if (stops) {
        (void)pthread_join(thread, NULL);
    }
    EXPECT(status == FERRY_OK || status == FERRY_STOPPED);
    /* Ranks may end well before the stop comes; then the world has still failed. */
    if (status != FERRY_OK || ferry_world_check(run->world, NULL) != FERRY_OK) {
        GOOD(ferry_world_recover(run->world, err));
    }
    return FERRY_OK;
}

static ferry_status_t stop_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    scene_t *scene = orc_alloc(1, sizeof *scene);
    doom_t doom = *(const doom_t *)context;
    uint64_t random = doom.nth;
    GOOD(open_scene(scene, world, &doom, err));
    for (uint32_t try = 0; try < 5; try++) {
        (void)pthread_barrier_wait(&doom.report->gate);
        doom.after_us = (useconds_t)body_below(&random, 1500);
        ferry_status_t status = stopped_try(scene, try, err);
        if (status != FERRY_OK) {
            return status;
        }
        uint64_t mine = ferry_commit_version(scene->run.commit);
        uint64_t all[RANKS];
        status = ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, all, err);
        if (status == FERRY_STOPPED) { /* the stop came after the run */
            GOOD(ferry_world_recover(world, err));
            GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, all, err));
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            EXPECT(all[rank] == mine);
        }
        EXPECT(scene->run.result.version == mine);
    }
    (void)pthread_barrier_wait(&doom.report->gate);
    uint64_t version = ferry_commit_version(scene->run.commit);
    GOOD(ferry_session_check(scene->run.session, err));
    fill(scene, version + 1);
    GOOD(ferry_session_run(scene->run.session, &scene->run.result, err));
    EXPECT(scene->run.result.version == version + 1);
    GOOD(close_scene(scene, err));
    GOOD(ferry_group_barrier(ferry_world_group(world), err)); /* others may still look */
    rsr_close(&scene->run);
    free(scene);
    return FERRY_OK;
}

static void test_stopping(void **state) {
    (void)state;
    rso_case_t c;
    open_case(&c);
    uint64_t random = 777;
    report_t *report = new_report();
    pthread_barrierattr_t shared;
    (void)pthread_barrierattr_init(&shared);
    (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_barrier_init(&report->gate, &shared, RANKS), 0);
    long count = soak_count(SANITIZED ? 6 : 20, 200);
    for (long i = 0; i < count; i++) {
        doom_t doom = {.victim = RANKS, .nth = (uint32_t)i, .report = report};
        draw_setup(&random, &c, &doom.setup);
        run_well(i % 2 == 0 || ONLY_THREADS ? AS_THREADS : AS_PROCESSES, RANKS, stop_body, &doom,
                 NULL);
    }
    (void)pthread_barrier_destroy(&report->gate);
    (void)pthread_barrierattr_destroy(&shared);
    (void)munmap(report, 4096);
    rso_close(&c);
}

int main(void) {
    (void)alarm((unsigned)soak_count(220, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_stopping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
