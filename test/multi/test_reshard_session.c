/* test_reshard_session.c - what sessions promise beyond the right bytes: starting, testing, cancelling,
 * several at once, hooks, one memory for source and target, groups, budgets, no allocation in a run. */
#include <pthread.h>
#include <stdatomic.h>

#include "multi/body.h"

#include "oracle/reshard_run.h"
#include "support/sanitizer.h"

/* ---- counting allocations ---- */

static _Thread_local uint64_t allocations;

#if !SANITIZED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    allocations++;
    return __libc_realloc(memory, size);
}
#endif

/* ---- cases ---- */

static const uint64_t square[] = {24, 20};
static const uint64_t tall[] = {128, 64};

/* Two tensors, a sum among them, on three ranks. */
static void open_plain(rso_case_t *c) {
    memset(c, 0, sizeof *c);
    (void)rso_add_text(c, "a", FERRY_F32, FERRY_BF16, 2, square, "3:S0", "2:S1@1-2");
    (void)rso_add_text(c, "b", FERRY_F32, FERRY_F32, 2, square, "3:P(sum)", "3:S1");
    assert_true(rso_open(c));
}

static ferry_status_t one_round(rsr_t *run, uint32_t round, ferry_error_t *err) {
    GOOD(rsr_fill(run, round, err));
    GOOD(rsr_drive(run, err));
    return rsr_check(run, round, err);
}

/* Like run_well, and says what became of every rank. */
static void run_all(body_kind_t kind, uint32_t size, ferry_rank_fn_t fn, void *context,
                    const ferry_world_params_t *params) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rank_result_t results[8];
    if (run_as(kind, size, fn, context, params, results, &err) == FERRY_OK) {
        return;
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        char line[1024] = "fine";
        if (results[rank].status != FERRY_OK) {
            (void)ferry_error_format(&results[rank].error, line, sizeof line);
        }
        (void)fprintf(stderr, "kind %d, rank %u of %u: %s\n", (int)kind, rank, size, line);
    }
    fail_msg("kind %d, %u ranks", (int)kind, size);
}

static void run_kinds(uint32_t size, ferry_rank_fn_t fn, void *context,
                      const ferry_world_params_t *params) {
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_all((body_kind_t)kind, size, fn, context, params);
    }
}

/* All ranks hold the same record. */
static ferry_status_t same_everywhere(ferry_world_t *world, const ferry_error_t *mine,
                                      ferry_error_t *err) {
    ferry_error_t all[8];
    GOOD(ferry_group_allgather(ferry_world_group(world), mine, sizeof *mine, all, err));
    for (uint32_t i = 0; i < ferry_world_size(world); i++) {
        EXPECT(all[i].status == mine->status && all[i].rank == mine->rank);
        EXPECT(strcmp(all[i].text, mine->text) == 0);
    }
    return FERRY_OK;
}

/* ---- cancel ---- */

static ferry_status_t cancel_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const rsr_setup_t *setup = context;
    rsr_t run;
    GOOD(rsr_open(&run, world, setup, NULL, err));
    GOOD(rsr_session(&run, err));
    EXPECT(ferry_session_cancel(run.session, NULL) == FERRY_INVALID);
    GOOD(one_round(&run, 0, err));
    GOOD(rsr_fill(&run, 1, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    if (run.me == 1) { /* never drives: the others cannot finish */
        GOOD(ferry_session_start(run.session, err));
        body_sleep(0.02);
        (void)ferry_session_cancel(run.session, &found);
        status = ferry_session_wait(run.session, NULL, &found);
    } else {
        status = ferry_session_run(run.session, NULL, &found);
    }
    EXPECT(status == FERRY_STOPPED && found.status == FERRY_STOPPED);
    EXPECT(ferry_session_check(run.session, NULL) != FERRY_OK);
    GOOD(ferry_world_recover(world, err));
    GOOD(same_everywhere(world, &found, err));
    GOOD(ferry_session_check(run.session, err));
    EXPECT(ferry_session_cancel(run.session, NULL) == FERRY_INVALID);
    if (run.commit != NULL) { /* the old version, untouched where readers are */
        ferry_hold_t hold;
        GOOD(ferry_commit_acquire(run.commit, &hold, err));
        EXPECT(hold.version == 1);
        ferry_commit_release(run.commit, &hold);
    }
    run.refreshed = 1;
    GOOD(one_round(&run, 1, err));
    GOOD(one_round(&run, 2, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_cancel(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c;
    open_plain(&c);
    for (int i = 0; i < 3; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 5);
        setup.commit = commits[i];
        run_kinds(3, cancel_body, &setup, NULL);
        setup.service.paths = FERRY_PATH_PIPELINE;
        run_kinds(3, cancel_body, &setup, NULL);
    }
    rso_close(&c);
}

/* ---- several sessions ---- */

typedef struct pair {
    rsr_setup_t first;
    rsr_setup_t second;
    bool shared; /* one service for both */
} pair_t;

/* On one service in turn; on two, both under way at the same time. */
static ferry_status_t two_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const pair_t *pair = context;
    rsr_t a;
    rsr_t b;
    GOOD(rsr_open(&a, world, &pair->first, NULL, err));
    GOOD(rsr_open(&b, world, &pair->second, pair->shared ? a.service : NULL, err));
    GOOD(rsr_session(&a, err));
    GOOD(rsr_session(&b, err));
    for (uint32_t round = 0; round < 4; round++) {
        if (pair->shared) {
            GOOD(one_round(round % 2 == 0 ? &a : &b, round, err));
            GOOD(one_round(round % 2 == 0 ? &b : &a, round, err));
            continue;
        }
        bool a_done = false;
        bool b_done = false;
        GOOD(rsr_fill(&a, round, err));
        GOOD(rsr_fill(&b, round, err));
        GOOD(ferry_session_start(a.session, err));
        GOOD(ferry_session_start(b.session, err));
        while (!a_done || !b_done) {
            if (!a_done) {
                GOOD(ferry_session_test(a.session, &a_done, err));
            }
            if (!b_done) {
                GOOD(ferry_session_test(b.session, &b_done, err));
            }
        }
        ferry_session_result(a.session, &a.result);
        ferry_session_result(b.session, &b.result);
        GOOD(rsr_check(&a, round, err));
        GOOD(rsr_check(&b, round, err));
    }
    rsr_close(&b);
    rsr_close(&a);
    return FERRY_OK;
}

static void test_two_sessions(void **state) {
    (void)state;
    rso_case_t c;
    rso_case_t d = {0};
    open_plain(&c);
    (void)rso_add_text(&d, "other", FERRY_U16, FERRY_U16, 2, square, "2:S1@1-2", "3:S0");
    assert_true(rso_open(&d));
    pair_t pair = {RSR_SETUP_INIT(&c, 6), RSR_SETUP_INIT(&d, 7), false};
    for (int shared = 0; shared < 2; shared++) {
        pair.shared = shared == 1;
        run_kinds(3, two_body, &pair, NULL);
    }
    rso_close(&c);
    rso_close(&d);
}

/* ---- one memory for source and target ---- */

static ferry_status_t refused_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = rsr_session(&run, &found);
    EXPECT(status == FERRY_MISMATCH || status == FERRY_INVALID);
    EXPECT(run.session == NULL && found.status == status);
    EXPECT(strstr(found.text, "memory") != NULL && strncmp(found.tensor, "turned", 6) == 0);
    GOOD(same_everywhere(world, &found, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_in_place(void **state) {
    (void)state;
    rso_case_t c = {0};
    (void)rso_add_text(&c, "same", FERRY_F32, FERRY_F32, 2, square, "4:S0", "4:S0");
    (void)rso_add_text(&c, "swap", FERRY_F32, FERRY_F32, 2, square, "2x2:R,S0", "2x2:R,S0");
    assert_true(rso_open(&c));
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 8);
    setup.in_place = true;
    run_kinds(4, rsr_body, &setup, NULL); /* nothing moves */
    setup.commit = FERRY_COMMIT_GATE;
    run_kinds(4, rsr_body, &setup, NULL);
    rso_close(&c);
    (void)rso_add_text(&c, "turned", FERRY_F32, FERRY_F32, 2, square, "2x2:S0,S1", "4:S0");
    (void)rso_add_text(&c, "turned.sum", FERRY_F32, FERRY_F32, 2, square, "2x2:S0,P(sum)", "4:S0");
    assert_true(rso_open(&c));
    setup.commit = FERRY_COMMIT_GATE; /* everything is staged first */
    run_kinds(4, rsr_body, &setup, NULL);
    setup.options.buckets = FERRY_BUCKETS_ALWAYS;
    run_kinds(4, rsr_body, &setup, NULL);
    setup.options.buckets = FERRY_BUCKETS_AUTO;
    setup.commit = 0;
    run_kinds(4, refused_body, &setup, NULL);
    rso_close(&c);
}

/* ---- hooks ---- */

static ferry_status_t bad_refresh(void *context, uint64_t version, ferry_error_t *err) {
    rsr_t *run = context;
    (void)version;
    if (++run->refreshed != 2 || run->me != 1) {
        return FERRY_OK;
    }
    err->status = FERRY_IO;
    (void)snprintf(err->text, sizeof err->text, "the cache cannot be refreshed");
    return FERRY_IO;
}

static ferry_status_t refresh_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    run.options.refresh = bad_refresh;
    GOOD(rsr_session(&run, err));
    GOOD(rsr_fill(&run, 0, err));
    GOOD(rsr_drive(&run, err));
    EXPECT(run.refreshed == 1);
    GOOD(rsr_fill(&run, 1, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    EXPECT(rsr_drive(&run, &found) == FERRY_IO);
    EXPECT(strcmp(found.text, "the cache cannot be refreshed") == 0 && found.rank == 1);
    if (run.commit != NULL) { /* it came after the commit */
        EXPECT(ferry_commit_version(run.commit) == 2);
    }
    GOOD(ferry_world_recover(world, err));
    GOOD(same_everywhere(world, &found, err));
    GOOD(rsr_fill(&run, 2, err));
    GOOD(rsr_drive(&run, err));
    EXPECT(run.refreshed == 3);
    run.content[0] = run.copies == 2 ? 2 : 3;
    run.content[1] = 3;
    GOOD(rsr_check_targets(&run, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_refresh(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c;
    open_plain(&c);
    for (int i = 0; i < 3; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 9);
        setup.commit = commits[i];
        run_kinds(3, refresh_body, &setup, NULL);
    }
    rso_close(&c);
}

/* Changes a source between the hash of what will be sent and the move. */
static void meddle(void *context, const ferry_reshard_progress_t *now) {
    rsr_t *run = context;
    if (now->phase == FERRY_PHASE_MOVE && run->me == 0 && run->refreshed == 1) {
        *(uint8_t *)run->tensors[0].source.view.data ^= 0x10;
    }
}

static ferry_status_t corrupt_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    run.options.progress = meddle;
    GOOD(rsr_session(&run, err));
    GOOD(rsr_fill(&run, 0, err));
    GOOD(rsr_drive(&run, err));
    EXPECT(run.refreshed == 1);
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    body_sleep(0.02); /* all have left the barrier */
    GOOD(rsr_fill(&run, 1, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    EXPECT(rsr_drive(&run, &found) == FERRY_CORRUPT);
    EXPECT(strcmp(found.tensor, "a") == 0 && found.region[0] != '\0');
    EXPECT(run.commit == NULL || ferry_commit_version(run.commit) == 1);
    GOOD(ferry_world_recover(world, err));
    GOOD(same_everywhere(world, &found, err));
    run.refreshed = 2; /* leaves the source alone from now on */
    GOOD(rsr_fill(&run, 2, err));
    GOOD(rsr_drive(&run, err));
    EXPECT(run.refreshed == 3 && run.result.buckets_checked > 0);
    run.content[0] =
        3; /* flip: the first went to copy 1, the one that failed and this one to copy 0 */
    run.content[1] = 1;
    GOOD(rsr_check_targets(&run, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_corrupt(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c = {0};
    rso_tensor_t *t = rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "3:S0", "3:S1");
    t->values = RSO_FINITE;
    assert_true(rso_open(&c));
    for (uint32_t i = 0; i < 3; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 16);
        setup.commit = commits[i];
        setup.options.check = true;
        setup.service.paths = i == 0 ? FERRY_PATH_PIPELINE : 0;
        run_kinds(3, corrupt_body, &setup, NULL);
    }
    rso_close(&c);
}

/* A source that never becomes ready is a missed deadline on all ranks. */
static bool never(void *context, void *event) {
    const rsr_t *run = context;
    (void)event;
    return run->me != 2;
}

static ferry_status_t never_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    run.options.is_ready = never;
    GOOD(rsr_session(&run, err));
    GOOD(rsr_fill(&run, 0, err));
    double begin = body_seconds();
    ferry_error_t found = FERRY_ERROR_INIT;
    EXPECT(ferry_session_run(run.session, NULL, &found) == FERRY_TIMEOUT);
    EXPECT(body_seconds() - begin < 5);
    GOOD(ferry_world_recover(world, err));
    GOOD(same_everywhere(world, &found, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_never_ready(void **state) {
    (void)state;
    rso_case_t c;
    open_plain(&c);
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = SANITIZED ? 1500 : 500;
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 10);
    setup.delays = true;
    run_well(AS_THREADS, 3, never_body, &setup, &params);
    run_well(AS_PROCESSES, 3, never_body, &setup, &params);
    rso_close(&c);
}

/* ---- delays ---- */

/* The same sums whoever comes late: equal to the oracle's, so equal to each other. */
static void test_delays(void **state) {
    (void)state;
    rso_case_t c = {0};
    rso_tensor_t *t = rso_add_text(&c, "a", FERRY_F32, FERRY_BF16, 2, square, "4:P(sum)", "4:R");
    t->values = RSO_THOUSANDS;
    (void)rso_add_text(&c, "b", FERRY_BF16, FERRY_BF16, 2, square, "2x2:P(avg),P(sum)", "4:S1");
    (void)rso_add_text(&c, "c", FERRY_F16, FERRY_F32, 2, square, "2x2:S0,P(product)", "4:S0");
    assert_true(rso_open(&c));
    for (uint64_t i = 0; i < (SANITIZED ? 2 : 6); i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 500); /* the same values every time */
        setup.delays = true;
        setup.drive = RSR_EACH;
        setup.rounds = 4;
        setup.service.paths = i % 2 == 0 ? 0 : FERRY_PATH_PIPELINE;
        setup.options.buckets = i % 3 == 0 ? FERRY_BUCKETS_ALWAYS : FERRY_BUCKETS_AUTO;
        run_kinds(4, rsr_body, &setup, NULL);
    }
    rso_close(&c);
}

/* ---- groups, budgets, allocations, addresses ---- */

static ferry_status_t group_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const rsr_setup_t *setup = context;
    bool member = false;
    for (uint32_t i = 0; i < setup->nmembers; i++) {
        member = member || setup->members[i] == ferry_world_rank(world);
    }
    return member ? rsr_run(world, setup, err) : FERRY_OK;
}

static void test_groups(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "2:S0@0,2", "3:S1@2,1,0");
    (void)rso_add_text(&c, "b", FERRY_F32, FERRY_F32, 2, square, "2:P(sum)@0,2", "1:R@1");
    assert_true(rso_open(&c));
    for (int i = 0; i < 3; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 11);
        setup.commit = commits[i];
        setup.nmembers = 3;
        setup.members[0] = 4;
        setup.members[1] = 2;
        setup.members[2] = 1;
        run_kinds(5, group_body, &setup, NULL);
    }
    rso_close(&c);
}

/* Less budget: more passes, the same bytes, and never past it. */
static ferry_status_t budget_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_setup_t setup = *(const rsr_setup_t *)context;
    uint64_t before = 0;
    uint32_t passes = 0;
    for (uint64_t budget = 256 << 10; budget >= 8 << 10; budget /= 2) {
        rsr_t run;
        setup.options.budget_bytes = budget;
        GOOD(rsr_open(&run, world, &setup, NULL, err));
        GOOD(rsr_session(&run, err));
        GOOD(one_round(&run, 0, err));
        GOOD(one_round(&run, 1, err));
        EXPECT(run.result.staging_bytes <= budget);
        EXPECT(run.result.passes >= passes);
        passes = run.result.passes;
        before = run.result.bytes_received;
        rsr_close(&run);
    }
    EXPECT(passes > 1);
    EXPECT(before > 0 || ferry_world_rank(world) == 0);
    return FERRY_OK;
}

static void test_budgets(void **state) {
    (void)state;
    rso_case_t c = {0};
    for (int i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "w%d", i);
        (void)rso_add_text(&c, name, FERRY_F32, FERRY_F32, 2, tall, "2:S0", "2:S1@1-2");
    }
    (void)rso_add_text(&c, "sum", FERRY_F32, FERRY_BF16, 2, tall, "2:P(sum)", "2:S1@1-2");
    assert_true(rso_open(&c));
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 12);
    setup.options.buckets = FERRY_BUCKETS_ALWAYS;
    run_well(AS_THREADS, 3, budget_body, &setup, NULL);
    run_well(AS_PROCESSES, 3, budget_body, &setup, NULL);
    setup.service.slot_bytes = 512;
    setup.service.paths = FERRY_PATH_PIPELINE;
    setup.options.check = true;
    run_well(AS_THREADS, 3, budget_body, &setup, NULL);
    rso_close(&c);
}

static ferry_status_t frugal_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    GOOD(rsr_session(&run, err));
    GOOD(one_round(&run, 0, err));
    for (uint32_t round = 1; round < 5; round++) {
        GOOD(rsr_fill(&run, round, err));
        GOOD(ferry_group_barrier(ferry_world_group(world), err));
        uint64_t before = allocations;
        GOOD(ferry_session_run(run.session, &run.result, err));
        EXPECT(allocations == before);
        GOOD(rsr_check(&run, round, err));
    }
    /* Addresses are compared. */
    GOOD(ferry_session_compare(run.session, run.sources, run.targets, err));
    ferry_bound_t moved = run.sources.list[0];
    moved.view.data = (uint8_t *)moved.view.data + 4;
    ferry_error_t found = FERRY_ERROR_INIT;
    EXPECT(ferry_session_compare(run.session, (ferry_tensors_t){&moved, 1}, run.targets, &found) ==
           FERRY_MISMATCH);
    EXPECT(strcmp(found.tensor, moved.name) == 0);
    char json[4096];
    size_t length = ferry_reshard_result_json(&run.result, json, sizeof json);
    EXPECT(length < sizeof json && strlen(json) == length);
    EXPECT(json[0] == '{' && strchr(json, '}') != NULL);
    EXPECT(strstr(json, "\"passes\"") != NULL);
    char cut[8];
    EXPECT(ferry_reshard_result_json(&run.result, cut, sizeof cut) == length && strlen(cut) == 7);
    rsr_close(&run);
    return FERRY_OK;
}

static void test_no_allocation(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c;
    open_plain(&c);
    for (uint32_t i = 0; i < 6; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 13);
        setup.commit = commits[i % 3];
        setup.options.check = i >= 3;
        setup.options.buckets = i >= 3 ? FERRY_BUCKETS_ALWAYS : FERRY_BUCKETS_AUTO;
        run_kinds(3, frugal_body, &setup, NULL);
    }
    rso_close(&c);
}

static ferry_status_t once_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    for (uint32_t round = 0; round < 2; round++) {
        GOOD(rsr_fill(&run, round, err));
        GOOD(ferry_reshard_execute(run.plan, run.sources, run.targets, run.service, NULL,
                                   &run.options, &run.result, err));
        GOOD(rsr_check(&run, round, err));
    }
    rsr_close(&run);
    return FERRY_OK;
}

static void test_once(void **state) {
    (void)state;
    rso_case_t c;
    open_plain(&c);
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 14);
    run_kinds(3, once_body, &setup, NULL);
    rso_close(&c);
}

/* ---- targets inside a fused parameter ---- */

/* q, k and v of 8, 4 and 4 rows, a gap of one row after each, in one memory. */
static ferry_status_t fused_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    float fused[19 * 10];
    ferry_bound_t targets[3];
    static const uint64_t rows[] = {8, 4, 4};
    static const uint64_t first[] = {0, 9, 14};
    for (int i = 0; i < 190; i++) {
        fused[i] = -7;
    }
    for (int i = 0; i < 3; i++) {
        targets[i].name = run.setup->c->tensors[i].name;
        targets[i].ready = NULL;
        GOOD(ferry_view_contiguous(&fused[first[i] * 10], FERRY_F32, 2, (uint64_t[]){rows[i], 10},
                                   &targets[i].view, err));
    }
    if (run.me == 2) {
        run.targets = (ferry_tensors_t){targets, 3};
    }
    GOOD(rsr_session(&run, err));
    GOOD(rsr_fill(&run, 0, err));
    GOOD(rsr_drive(&run, err));
    for (uint32_t i = 0; i < 3 && run.me == 2; i++) {
        float want[80];
        rso_target(run.setup->c, i, run.setup->seed, 0, 2, (uint8_t *)want);
        EXPECT(memcmp(want, &fused[first[i] * 10], rows[i] * 10 * sizeof(float)) == 0);
        for (uint64_t k = 0; k < 10 && i < 2; k++) {
            EXPECT(fused[(first[i] + rows[i]) * 10 + k] == -7);
        }
    }
    ferry_session_close(run.session);
    run.session = NULL;
    GOOD(ferry_group_barrier(ferry_world_group(world), err)); /* `fused` ends here */
    rsr_close(&run);
    return FERRY_OK;
}

static void test_fused(void **state) {
    (void)state;
    rso_case_t c = {0};
    (void)rso_add_text(&c, "q", FERRY_F32, FERRY_F32, 2, (uint64_t[]){8, 10}, "2:S0", "1:R@2");
    (void)rso_add_text(&c, "k", FERRY_F32, FERRY_F32, 2, (uint64_t[]){4, 10}, "2:S1", "1:R@2");
    (void)rso_add_text(&c, "v", FERRY_F32, FERRY_F32, 2, (uint64_t[]){4, 10}, "2:R", "1:R@2");
    assert_true(rso_open(&c));
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 15);
    run_kinds(3, fused_body, &setup, NULL);
    setup.service.paths = FERRY_PATH_PIPELINE;
    run_kinds(3, fused_body, &setup, NULL);
    rso_close(&c);
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_two_sessions),
        cmocka_unit_test(test_in_place),      cmocka_unit_test(test_refresh),
        cmocka_unit_test(test_never_ready),   cmocka_unit_test(test_delays),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_once),
        cmocka_unit_test(test_fused),         cmocka_unit_test(test_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
