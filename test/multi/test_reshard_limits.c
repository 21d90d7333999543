/* test_reshard_limits.c - sessions at their edges: tensors larger than slots and buckets, budgets that differ
 * between ranks, chunks alone in their buckets, many sessions in little memory, closing in the middle of a
 * run, readers that do not let go. */
#include "multi/body.h"

#include "oracle/reshard_ways.h"
#include "support/sanitizer.h"

static const uint64_t square[] = {24, 20};

static void run_both(uint32_t size, ferry_rank_fn_t fn, void *context,
                     const ferry_world_params_t *params) {
    run_well(AS_THREADS, size, fn, context, params);
    run_well(AS_PROCESSES, size, fn, context, params);
}

static ferry_status_t one_round(rsr_t *run, uint32_t round, ferry_error_t *err) {
    GOOD(rsr_fill(run, round, err));
    GOOD(rsr_drive(run, err));
    return rsr_check(run, round, err);
}

/* ---- large ---- */

static void test_large(void **state) {
    (void)state;
    static const uint64_t wide[] = {301, 700};
    static const uint64_t tall[] = {384, 512};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_BF16, 2, wide, "3:S0", "2x2:R,S1");
    (void)rso_add_text(&c, "b", FERRY_BF16, FERRY_BF16, 2, wide, "2x2:P(sum),S1", "3:S0@1-3");
    rso_add_text(&c, "c", FERRY_BF16, FERRY_BF16, 2, tall, "3:S0", "2:S1@2-3")->mx =
        RSO_MX_SWIZZLED;
    assert_true(rso_open(&c));
    rsr_tour_t plan = {&c, 1, 0, 0, 1};
    for (size_t i = 0; i < rsr_nways; i++) {
        if (rsr_ways[i].budget_bytes == 0) { /* too small for this one */
            plan.first = i;
            plan.count = 1;
            run_well(i % 2 == 0 ? AS_THREADS : AS_PROCESSES, 4, rsr_tour_body, &plan, NULL);
        }
    }
    rso_close(&c);
}

/* ---- budgets ---- */

static ferry_status_t budgets_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    run.options.budget_bytes = run.me == 1 ? 24 << 10 : 256 << 10;
    GOOD(rsr_session(&run, err));
    GOOD(one_round(&run, 0, err));
    GOOD(one_round(&run, 1, err));
    uint32_t passes[3];
    GOOD(ferry_group_allgather(ferry_world_group(world), &run.result.passes, sizeof *passes, passes,
                               err));
    EXPECT(passes[0] == passes[1] && passes[1] == passes[2] && passes[0] > 1);
    rsr_close(&run);
    return FERRY_OK;
}

static void test_smallest_budget(void **state) {
    (void)state;
    static const uint64_t shape[] = {128, 64};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, shape, "3:S0", "3:S1");
    (void)rso_add_text(&c, "b", FERRY_F32, FERRY_F32, 2, shape, "2:S0", "3:S1");
    (void)rso_add_text(&c, "c", FERRY_F32, FERRY_BF16, 2, shape, "3:P(avg)", "3:S1");
    assert_true(rso_open(&c));
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 2);
    setup.options.buckets = FERRY_BUCKETS_ALWAYS;
    run_both(3, budgets_body, &setup, NULL);
    rso_close(&c);
}

/* ---- alone ---- */

/* One chunk per pair: buckets or not, it goes straight to where it belongs. */
static ferry_status_t alone_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    GOOD(rsr_session(&run, err));
    GOOD(one_round(&run, 0, err));
    EXPECT(run.result.chunks_copy == 0);
    EXPECT(run.result.chunks_direct == (run.me >= 2 ? 2 : 0));
    EXPECT(run.result.buckets == 2); /* sent or received */
    rsr_close(&run);
    return FERRY_OK;
}

static void test_alone(void **state) {
    (void)state;
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "2:S0", "2:S1@2-3");
    assert_true(rso_open(&c));
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 3);
    setup.options.buckets = FERRY_BUCKETS_ALWAYS;
    run_both(4, alone_body, &setup, NULL);
    rso_close(&c);
}

/* ---- many ---- */

/* What sessions take they give back: 300 of them in an arena that holds a few. */
static ferry_status_t many_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    for (uint32_t i = 0; i < (SANITIZED ? 60 : 300); i++) {
        GOOD(rsr_session(&run, err));
        GOOD(rsr_fill(&run, i, err));
        GOOD(rsr_drive(&run, err));
        ferry_session_close(run.session);
        run.session = NULL;
    }
    rsr_close(&run);
    return FERRY_OK;
}

static void test_many(void **state) {
    (void)state;
    static const uint64_t shape[] = {200, 100};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, shape, "3:S0", "3:S1");
    (void)rso_add_text(&c, "b", FERRY_F32, FERRY_F32, 2, shape, "3:P(sum)", "3:S1");
    assert_true(rso_open(&c));
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = 8 << 20;
    rsr_setup_t setup = RSR_SETUP_INIT(&c, 4);
    setup.commit = FERRY_COMMIT_GATE; /* everything is staged */
    run_both(3, many_body, &setup, &params);
    rso_close(&c);
}

/* ---- closing in the middle ---- */

static ferry_status_t close_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, context, NULL, err));
    for (uint32_t i = 0; i < 3; i++) {
        GOOD(rsr_session(&run, err));
        GOOD(rsr_fill(&run, 0, err));
        ferry_error_t found = FERRY_ERROR_INIT;
        if (run.me == 1) { /* does nothing for it */
            GOOD(ferry_session_start(run.session, err));
            body_sleep(0.001 * i);
        } else {
            EXPECT(ferry_session_run(run.session, NULL, &found) == FERRY_STOPPED);
        }
        ferry_session_close(run.session);
        run.session = NULL;
        GOOD(ferry_world_recover(world, err));
    }
    GOOD(rsr_session(&run, err));
    run.refreshed = 0;
    GOOD(one_round(&run, 0, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_close(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "3:S0", "3:S1");
    assert_true(rso_open(&c));
    for (int i = 0; i < 3; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 5);
        setup.commit = commits[i];
        setup.service.paths = i == 1 ? FERRY_PATH_PIPELINE : 0;
        run_both(3, close_body, &setup, NULL);
    }
    rso_close(&c);
}

/* ---- a reader that does not let go ---- */

static ferry_status_t holder_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rsr_t run;
    ferry_hold_t hold;
    GOOD(rsr_open(&run, world, context, NULL, err));
    GOOD(rsr_session(&run, err));
    GOOD(one_round(&run, 0, err));
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    if (run.me == 2) {
        GOOD(ferry_commit_acquire(run.commit, &hold, err));
        EXPECT(hold.version == 1);
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    uint32_t round = 1;
    if (run.copies == 2) { /* the copy that is not held can be written */
        GOOD(one_round(&run, round++, err));
    }
    GOOD(rsr_fill(&run, round, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    double begin = body_seconds();
    EXPECT(rsr_drive(&run, &found) == FERRY_TIMEOUT);
    EXPECT(body_seconds() - begin < 6);
    EXPECT(run.result.version == round && !run.result.committed);
    EXPECT(ferry_commit_version(run.commit) == round);
    GOOD(rsr_check_targets(&run, err)); /* what is held is as it was */
    GOOD(ferry_world_recover(world, err));
    if (run.me == 2) {
        ferry_commit_release(run.commit, &hold);
    }
    run.refreshed = round;
    GOOD(one_round(&run, round, err));
    rsr_close(&run);
    return FERRY_OK;
}

static void test_holder(void **state) {
    (void)state;
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "3:S0", "3:S1");
    assert_true(rso_open(&c));
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = SANITIZED ? 1500 : 400;
    for (int i = 0; i < 2; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(&c, 6);
        setup.commit = i == 0 ? FERRY_COMMIT_FLIP : FERRY_COMMIT_GATE;
        run_both(3, holder_body, &setup, &params);
    }
    rso_close(&c);
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large), cmocka_unit_test(test_smallest_budget),
        cmocka_unit_test(test_alone), cmocka_unit_test(test_many),
        cmocka_unit_test(test_close), cmocka_unit_test(test_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
