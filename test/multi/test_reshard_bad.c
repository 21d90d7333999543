/* test_reshard_bad.c - mistakes: one clear error, the same on all ranks, before a byte moves; the next
 * session works, and under a commit readers keep what they had. */
#include "multi/body.h"

#include "oracle/reshard_run.h"
#include "support/sanitizer.h"

enum { RANKS = 3 };

/* What a rank gets wrong, after everything was made and before the session is. */
typedef void (*spoil_fn)(rsr_t *run);

typedef struct bad {
    const char *name;
    spoil_fn spoil;
    ferry_status_t status;
    const char *text;   /* in the record's line */
    const char *tensor; /* in the record; NULL: none needed */
    uint32_t rank;      /* where it happened; FERRY_RANK_NONE: any */
} bad_t;

static ferry_bound_t *bound_of(ferry_tensors_t tensors, rsr_t *run, const char *name) {
    for (size_t i = 0; i < tensors.count; i++) {
        if (strcmp(tensors.list[i].name, name) == 0) {
            return &run->bound[&tensors.list[i] - run->bound];
        }
    }
    abort();
}

static void no_source(rsr_t *run) {
    if (run->me == 1) {
        bound_of(run->sources, run, "a")->name = "somebody.else";
    }
}

static void no_target(rsr_t *run) {
    if (run->me == 2) {
        bound_of(run->targets, run, "b")->name = "somebody.else";
    }
}

static void no_second_copy(rsr_t *run) {
    if (run->me == 2 && run->copies == 2) {
        run->options.other_targets.count--;
    } else if (run->me == 2) {
        no_target(run);
    }
}

static void twice(rsr_t *run) {
    if (run->me == 1) {
        bound_of(run->sources, run, "a")->name = "b";
    }
}

static void other_shape(rsr_t *run) {
    if (run->me == 1) {
        bound_of(run->targets, run, "a")->view.shape[1]--;
    }
}

static void other_dims(rsr_t *run) {
    if (run->me == 0) {
        bound_of(run->sources, run, "b")->view.ndim = 1;
    }
}

static void other_dtype(rsr_t *run) {
    if (run->me == 1) {
        bound_of(run->sources, run, "a")->view.dtype = FERRY_I32;
    }
}

static void folded(rsr_t *run) {
    if (run->me == 1) {
        bound_of(run->targets, run, "a")->view.strides[0] = 0;
    }
}

/* Two targets in one memory. */
static void on_each_other(rsr_t *run) {
    if (run->me == 2) {
        ferry_view_t *b = &bound_of(run->targets, run, "b")->view;
        b->data = bound_of(run->targets, run, "a")->view.data;
        b->strides[0] = 100; /* rows do not meet; first elements do */
    }
}

static void no_memory(rsr_t *run) {
    if (run->me == 2) {
        bound_of(run->targets, run, "b")->view.data = NULL;
    }
}

static void other_plan(rsr_t *run) {
    rso_case_t c = {0};
    const rso_case_t *mine = run->setup->c;
    if (run->me != 2) {
        return;
    }
    for (uint32_t i = 0; i < mine->ntensors; i++) {
        *rso_add(&c, "", FERRY_F32, FERRY_F32) = mine->tensors[i];
    }
    c.nhosts = 3;
    c.hosts[1] = c.hosts[2] = 1;
    ferry_plan_destroy(run->plan);
    run->plan = NULL;
    (void)rso_plan(&c, FERRY_RANK_NONE, &run->plan, NULL);
    free(c.tensors);
}

static void no_budget(rsr_t *run) {
    run->options.budget_bytes = 8;
}

static void other_options(rsr_t *run) {
    run->options.check = run->me == 0;
}

static void other_buckets(rsr_t *run) {
    run->options.buckets = run->me == 1 ? FERRY_BUCKETS_ALWAYS : FERRY_BUCKETS_NEVER;
}

static void unknown_buckets(rsr_t *run) {
    run->options.buckets = run->me == 1 ? 9 : 0;
}

static void other_wire(rsr_t *run) {
    run->options.wire = run->me == 1 ? FERRY_F8E5M2 : FERRY_DTYPE_NONE;
}

static const bad_t bads[] = {
    {"a source is missing", no_source, FERRY_MISMATCH, "source", "a", 1},
    {"a target is missing", no_target, FERRY_MISMATCH, "target", "b", 2},
    {"a second copy is missing", no_second_copy, FERRY_MISMATCH, "target", NULL, 2},
    {"a name twice", twice, FERRY_INVALID, "twice", "b", 1},
    {"another shape", other_shape, FERRY_MISMATCH, "target", "a", 1},
    {"another number of dims", other_dims, FERRY_MISMATCH, "source", "b", 0},
    {"another dtype", other_dtype, FERRY_MISMATCH, "i32", "a", 1},
    {"two elements at one address", folded, FERRY_INVALID, "one address", "a", 1},
    {"two targets in one memory", on_each_other, FERRY_INVALID, "memory", NULL, 2},
    {"no memory", no_memory, FERRY_INVALID, "", "b", 2},
    {"another plan", other_plan, FERRY_MISMATCH, "plans", NULL, FERRY_RANK_NONE},
    {"a budget for nothing", no_budget, FERRY_NOMEM, "budget", NULL, FERRY_RANK_NONE},
    {"other options", other_options, FERRY_MISMATCH, "options", NULL, FERRY_RANK_NONE},
    {"other buckets", other_buckets, FERRY_MISMATCH, "options", NULL, FERRY_RANK_NONE},
    {"unknown buckets", unknown_buckets, FERRY_INVALID, "", NULL, 1},
    {"another wire", other_wire, FERRY_MISMATCH, "options", NULL, FERRY_RANK_NONE},
};

static ferry_status_t agree(ferry_world_t *world, const ferry_error_t *mine, ferry_error_t *err) {
    ferry_error_t all[RANKS];
    GOOD(ferry_group_allgather(ferry_world_group(world), mine, sizeof *mine, all, err));
    for (uint32_t i = 0; i < RANKS; i++) {
        EXPECT(all[i].status == mine->status && all[i].rank == mine->rank);
        EXPECT(strcmp(all[i].text, mine->text) == 0);
        EXPECT(strcmp(all[i].tensor, mine->tensor) == 0);
        EXPECT(strcmp(all[i].region, mine->region) == 0);
    }
    return FERRY_OK;
}

static ferry_status_t one_round(rsr_t *run, uint32_t round, ferry_error_t *err) {
    GOOD(rsr_fill(run, round, err));
    GOOD(rsr_drive(run, err));
    return rsr_check(run, round, err);
}

static ferry_status_t judge(const bad_t *bad, ferry_status_t status, const ferry_error_t *found,
                            ferry_error_t *err) {
    char line[1024];
    (void)ferry_error_format(found, line, sizeof line);
    bool right = status == bad->status && found->status == status &&
                 strstr(line, bad->text) != NULL &&
                 (bad->tensor == NULL || strcmp(found->tensor, bad->tensor) == 0) &&
                 (bad->rank == FERRY_RANK_NONE || found->rank == bad->rank) &&
                 (found->text[0] != '\0' || status == FERRY_OK);
    if (!right) {
        ferry_error_clear(err);
        err->status = FERRY_CHECK;
        (void)snprintf(err->text, sizeof err->text, "%s: %s: %.300s", bad->name,
                       ferry_status_name(status), line);
        return FERRY_CHECK;
    }
    return FERRY_OK;
}

/* A good session, a bad one, a good one, on one service and one commit. */
static ferry_status_t spoil_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const rsr_setup_t *setup = context;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        rsr_t run;
        GOOD(rsr_open(&run, world, setup, NULL, err));
        GOOD(rsr_session(&run, err));
        GOOD(one_round(&run, 0, err));
        ferry_session_close(run.session);
        run.session = NULL;

        rsr_t spoiled = run;
        size_t bytes = 3 * (size_t)setup->c->ntensors * sizeof *run.bound;
        ferry_bound_t *saved = orc_alloc(1, bytes);
        memcpy(saved, run.bound, bytes);
        if (bads[i].spoil == other_plan) {
            run.plan = NULL;
        }
        bads[i].spoil(&spoiled);
        ferry_error_t found = FERRY_ERROR_INIT;
        double begin = body_seconds();
        ferry_status_t status = rsr_session(&spoiled, &found);
        EXPECT(body_seconds() - begin < 5);
        GOOD(judge(&bads[i], status, &found, err));
        EXPECT(spoiled.session == NULL);
        GOOD(ferry_world_check(world, err)); /* a mistake is no failure of the world */
        GOOD(agree(world, &found, err));
        memcpy(run.bound, saved, bytes);
        free(saved);
        if (bads[i].spoil == other_plan) {
            ferry_plan_destroy(spoiled.plan);
            GOOD(rso_plan(setup->c, FERRY_RANK_NONE, &run.plan, err));
        }
        GOOD(rsr_check_targets(&run, err)); /* nothing moved */
        GOOD(rsr_session(&run, err));
        GOOD(one_round(&run, 1, err));
        rsr_close(&run);
    }
    return FERRY_OK;
}

static const uint64_t square[] = {24, 20};

static void test_mistakes(void **state) {
    (void)state;
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, square, "3:S0", "2:S1@1-2");
    (void)rso_add_text(&c, "b", FERRY_F32, FERRY_F32, 2, square, "3:P(sum)", "3:S1");
    assert_true(rso_open(&c));
    for (int i = 0; i < 3; i++) {
        for (int kind = 0; kind <= AS_PROCESSES; kind++) {
            rsr_setup_t setup = RSR_SETUP_INIT(&c, 20);
            setup.commit = commits[i];
            setup.service.paths = i == 0 ? FERRY_PATH_PIPELINE : 0;
            run_well((body_kind_t)kind, RANKS, spoil_body, &setup, NULL);
        }
    }
    rso_close(&c);
}

/* ---- cases that cannot be ---- */

typedef struct hopeless {
    bad_t bad;
    ferry_dtype_t source;
    ferry_dtype_t target;
    uint64_t shape[2];
    const char *from;
    const char *to;
    rso_mx_t mx;
    ferry_mx_convert_t convert;
} hopeless_t;

#define ANYWHERE FERRY_RANK_NONE

static const hopeless_t hopeless[] = {
    {{"a sum of bools", NULL, FERRY_UNSUPPORTED, "bool", "w", ANYWHERE},
     FERRY_BOOL,
     FERRY_BOOL,
     {6, 8},
     "2:P(sum)",
     "3:R",
     RSO_MX_NONE,
     0},
    {{"a sum of f8", NULL, FERRY_UNSUPPORTED, "f8e4m3", "w", ANYWHERE},
     FERRY_F8E4M3,
     FERRY_F8E4M3,
     {6, 8},
     "2:P(max)",
     "3:R",
     RSO_MX_NONE,
     0},
    {{"f32 as i32", NULL, FERRY_MISMATCH, "i32", "w", ANYWHERE},
     FERRY_F32,
     FERRY_I32,
     {6, 8},
     "2:S0",
     "3:S1",
     RSO_MX_NONE,
     0},
    {{"half a block at the receiver", NULL, FERRY_INVALID, "32", "w", ANYWHERE},
     FERRY_BF16,
     FERRY_BF16,
     {6, 96},
     "2:S1",
     "1:R@2",
     RSO_MX_ROWS,
     FERRY_MX_ON_RECEIVER},
    {{"half a block at the sender", NULL, FERRY_INVALID, "32", "w", ANYWHERE},
     FERRY_BF16,
     FERRY_BF16,
     {6, 96},
     "2:S1",
     "1:R@2",
     RSO_MX_SWIZZLED,
     FERRY_MX_ON_SENDER},
    {{"i8 quantised", NULL, FERRY_MISMATCH, "i8", "w", ANYWHERE},
     FERRY_I8,
     FERRY_I8,
     {6, 64},
     "2:S0",
     "1:R@2",
     RSO_MX_ROWS,
     FERRY_MX_ON_RECEIVER},
};

typedef struct trial {
    const hopeless_t *hopeless;
    rsr_setup_t setup;
    const rso_case_t *good;
} trial_t;

static ferry_status_t hopeless_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const trial_t *trial = context;
    rsr_t run;
    GOOD(rsr_open(&run, world, &trial->setup, NULL, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    double begin = body_seconds();
    ferry_status_t status = rsr_session(&run, &found);
    EXPECT(body_seconds() - begin < 5);
    EXPECT(run.session == NULL);
    GOOD(judge(&trial->hopeless->bad, status, &found, err));
    GOOD(ferry_world_check(world, err));
    GOOD(agree(world, &found, err));
    GOOD(rsr_check_targets(&run, err));
    rsr_setup_t setup = RSR_SETUP_INIT(trial->good, 3);
    rsr_t next; /* on the same service */
    GOOD(rsr_open(&next, world, &setup, run.service, err));
    GOOD(rsr_session(&next, err));
    GOOD(one_round(&next, 0, err));
    rsr_close(&next);
    rsr_close(&run);
    return FERRY_OK;
}

static void test_hopeless(void **state) {
    (void)state;
    rso_case_t good = {0};
    (void)rso_add_text(&good, "a", FERRY_F32, FERRY_F32, 2, square, "3:S0", "3:S1");
    assert_true(rso_open(&good));
    for (size_t i = 0; i < sizeof hopeless / sizeof *hopeless; i++) {
        const hopeless_t *h = &hopeless[i];
        rso_case_t c = {0};
        rso_add_text(&c, "w", h->source, h->target, 2, h->shape, h->from, h->to)->mx = h->mx;
        assert_true(rso_open(&c));
        trial_t trial = {h, RSR_SETUP_INIT(&c, 21), &good};
        trial.setup.convert = h->convert;
        for (int kind = 0; kind <= AS_PROCESSES; kind++) {
            run_well((body_kind_t)kind, RANKS, hopeless_body, &trial, NULL);
        }
        rso_close(&c);
    }
    rso_close(&good);
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_hopeless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
