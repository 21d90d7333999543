/* test_reshard_transform.c - transforms of the caller's: what they are called with and in which order, several
 * payloads, local pairs; and transforms whose ends do not fit or that fail.
 *
 * The transform here sends two payloads: the slice with its sign turned, and three bytes that name the
 * slice. What lands is doubled, so a target must hold -2 times its source. */
#include "multi/body.h"

#include "oracle/reshard_run.h"

enum { RANKS = 3, ROWS = 12, COLUMNS = 10, MARK = 3 };

typedef enum mode {
    FINE,
    COUNTS_DIFFER,  /* rank 1 expects one payload */
    SHAPES_DIFFER,  /* rank 1 expects a payload without its last row */
    DTYPES_DIFFER,  /* rank 1 expects whole numbers */
    NAMES_DIFFER,   /* rank 2 transforms nothing */
    TOO_MANY,       /* rank 0 sends nine */
    NONE,           /* rank 0 sends none */
    PREPARE_FAILS,  /* rank 2, when it prepares to receive */
    FILL_FAILS,     /* rank 0, in the second round */
    FINALIZE_FAILS, /* rank 1, in the second round */
    BEGIN_FAILS,    /* rank 2, in the second round */
} turn_mode_t;

typedef struct turner {
    uint32_t me;
    turn_mode_t mode;
    float target[2][ROWS * COLUMNS]; /* the local tensor, dense, per copy */
    uint8_t mark[64][MARK];          /* of the slices that are sent */
    uint32_t nmarks;
    uint32_t asked, reserved, sends, receives, begun, filled, finalized, released;
    uint32_t wrong; /* calls that should not have been as they were */
} turner_t;

static ferry_status_t refuse(ferry_error_t *err, const char *text) {
    if (err != NULL) {
        err->status = FERRY_IO;
        (void)snprintf(err->text, sizeof err->text, "%s", text);
    }
    return FERRY_IO;
}

static bool should_transform(void *context, const char *name) {
    turner_t *turner = context;
    turner->asked++;
    return strncmp(name, "t.", 2) == 0 && !(turner->mode == NAMES_DIFFER && turner->me == 2);
}

static ferry_status_t reserve(void *context, const char *name, ferry_dtype_t dtype, uint32_t ndim,
                              const uint64_t *local_shape, uint32_t copies,
                              ferry_staging_t *staging, ferry_error_t *err) {
    turner_t *turner = context;
    void *memory = NULL;
    turner->reserved++;
    turner->wrong += strncmp(name, "t.", 2) != 0 || dtype != FERRY_F32 || ndim != 2 ||
                     local_shape[0] * local_shape[1] > ROWS * COLUMNS || copies < 1 || copies > 2;
    ferry_status_t status = ferry_staging_take(staging, 100, &memory, err);
    for (int i = 0; status == FERRY_OK && i < 100; i++) {
        turner->wrong += ((uint8_t *)memory)[i] != 0;
    }
    return status;
}

static ferry_status_t payloads_of(const ferry_slice_t *slice, ferry_view_t *payloads,
                                  size_t *count_p, ferry_error_t *err) {
    GOOD(ferry_view_contiguous(NULL, FERRY_F32, 2, slice->extent, &payloads[0], err));
    GOOD(ferry_view_contiguous(NULL, FERRY_U8, 1, &(uint64_t){MARK}, &payloads[1], err));
    *count_p = 2;
    return FERRY_OK;
}

static void mark_of(uint64_t task_id, uint8_t *mark) {
    mark[0] = (uint8_t)(task_id >> 4);
    mark[1] = (uint8_t)(task_id >> 24);
    mark[2] = (uint8_t)(task_id >> 44);
}

static ferry_status_t prepare_send(void *context, const ferry_slice_t *slice,
                                   const ferry_view_t *source, ferry_view_t *payloads,
                                   size_t *count_p, ferry_error_t *err) {
    turner_t *turner = context;
    turner->sends++;
    turner->wrong += slice->dtype != FERRY_F32 || slice->peer >= RANKS || slice->ndim != 2 ||
                     source->shape[0] != slice->extent[0] || source->shape[1] != slice->extent[1] ||
                     turner->nmarks == 64;
    GOOD(payloads_of(slice, payloads, count_p, err));
    payloads[1].data = turner->mark[turner->nmarks++ % 64]; /* memory of its own */
    if (turner->me == 0 && turner->mode == TOO_MANY) {
        *count_p = FERRY_MAX_PAYLOADS + 1;
    } else if (turner->me == 0 && turner->mode == NONE) {
        *count_p = 0;
    }
    return FERRY_OK;
}

static ferry_status_t prepare_recv(void *context, const ferry_slice_t *slice,
                                   ferry_view_t *payloads, size_t *count_p, ferry_error_t *err) {
    turner_t *turner = context;
    turner->receives++;
    turner->wrong += slice->copy > 1 || slice->peer >= RANKS;
    if (turner->mode == PREPARE_FAILS && turner->me == 2) {
        return refuse(err, "no room for a slice");
    }
    GOOD(payloads_of(slice, payloads, count_p, err));
    if (turner->me == 1 && turner->mode == COUNTS_DIFFER) {
        *count_p = 1;
    } else if (turner->me == 1 && turner->mode == SHAPES_DIFFER) {
        payloads[0].shape[0]--;
    } else if (turner->me == 1 && turner->mode == DTYPES_DIFFER) {
        payloads[0].dtype = FERRY_I32;
    }
    return FERRY_OK;
}

static ferry_status_t begin(void *context, ferry_error_t *err) {
    turner_t *turner = context;
    turner->begun++;
    bool fails = turner->mode == BEGIN_FAILS && turner->me == 2 && turner->begun == 2;
    return fails ? refuse(err, "cannot begin") : FERRY_OK;
}

static float *element(const ferry_view_t *view, uint64_t i, uint64_t j) {
    return (float *)view->data + (int64_t)i * view->strides[0] + (int64_t)j * view->strides[1];
}

static ferry_status_t fill_send(void *context, const ferry_slice_t *slice,
                                const ferry_view_t *source, const ferry_view_t *payloads,
                                size_t count, ferry_error_t *err) {
    turner_t *turner = context;
    turner->filled++;
    turner->wrong += count != 2 || payloads[0].data == NULL || payloads[0].strides[1] != 1 ||
                     payloads[0].strides[0] != (int64_t)slice->extent[1];
    if (turner->mode == FILL_FAILS && turner->me == 0 && turner->begun == 2) {
        return refuse(err, "cannot fill");
    }
    for (uint64_t i = 0; i < slice->extent[0]; i++) {
        for (uint64_t j = 0; j < slice->extent[1]; j++) {
            *element(&payloads[0], i, j) = -*element(source, i, j);
        }
    }
    mark_of(slice->task_id, payloads[1].data);
    return FERRY_OK;
}

static ferry_status_t finalize_recv(void *context, const ferry_slice_t *slice,
                                    const ferry_view_t *payloads, size_t count,
                                    ferry_error_t *err) {
    turner_t *turner = context;
    uint8_t mark[MARK];
    turner->finalized++;
    mark_of(slice->task_id, mark);
    turner->wrong += count != 2 || memcmp(mark, payloads[1].data, MARK) != 0;
    if (turner->mode == FINALIZE_FAILS && turner->me == 1 && turner->begun == 2) {
        return refuse(err, "cannot finalize");
    }
    for (uint64_t i = 0; i < slice->extent[0]; i++) {
        for (uint64_t j = 0; j < slice->extent[1]; j++) {
            uint64_t at = (slice->lo[0] + i) * slice->local_shape[1] + slice->lo[1] + j;
            turner->target[slice->copy][at] = 2 * *element(&payloads[0], i, j);
        }
    }
    return FERRY_OK;
}

static void release(void *context) {
    turner_t *turner = context;
    turner->released++;
    turner->nmarks = 0;
}

/* ---- bodies ---- */

typedef struct trial {
    rsr_setup_t setup;
    turn_mode_t mode;
    ferry_status_t status;
    const char *text;
} trial_t;

/* "t.w" goes through the transform; "plain" does not. Binding a transformed target is
 * not needed; it is not looked at either. */
static ferry_status_t open_turner(rsr_t *run, turner_t *turner, const ferry_transform_t *transform,
                                  ferry_error_t *err) {
    bool bound = turner->mode == NAMES_DIFFER;
    for (size_t i = 0; i < run->targets.count && !bound; i++) {
        if (strcmp(run->targets.list[i].name, "t.w") == 0) {
            run->bound[&run->targets.list[i] - run->bound].name = "unused";
        }
    }
    for (size_t i = 0; i < run->others.count && !bound; i++) {
        if (strcmp(run->others.list[i].name, "t.w") == 0) {
            run->bound[&run->others.list[i] - run->bound].name = "unused";
        }
    }
    turner->me = run->me;
    return ferry_session_create(run->plan, run->sources, run->targets, run->service, transform,
                                &run->options, &run->session, err);
}

static ferry_status_t check_turned(const rsr_t *run, const turner_t *turner, uint32_t round,
                                   uint32_t copy, ferry_error_t *err) {
    const rso_case_t *c = run->setup->c;
    float want[ROWS * COLUMNS] = {0};
    rso_target(c, 1, run->setup->seed, round, run->me, (uint8_t *)want);
    for (uint64_t e = 0; e < rso_elements(&c->tensors[1], false, run->me); e++) {
        EXPECT(turner->target[copy][e] == -2 * want[e]);
    }
    return FERRY_OK;
}

static ferry_status_t check_plain(const rsr_t *run, uint32_t round, uint32_t copy,
                                  ferry_error_t *err) {
    const rso_case_t *c = run->setup->c;
    const rsr_block_t *block = &run->tensors[0].target[copy];
    float want[ROWS * COLUMNS];
    rso_target(c, 0, run->setup->seed, round, run->me, (uint8_t *)want);
    if (block->memory != NULL) {
        EXPECT(memcmp(block->view.data, want,
                      rso_elements(&c->tensors[0], false, run->me) * sizeof *want) == 0);
    }
    return FERRY_OK;
}

static ferry_status_t fine_rounds(rsr_t *run, turner_t *turner, uint32_t first, uint32_t end,
                                  ferry_error_t *err) {
    for (uint32_t round = first; round < end; round++) {
        uint32_t copy = 0;
        uint32_t filled = turner->filled;
        uint32_t finalized = turner->finalized;
        GOOD(rsr_fill(run, round, err));
        GOOD(ferry_session_run(run->session, &run->result, err));
        if (run->commit != NULL) {
            ferry_hold_t hold;
            GOOD(ferry_commit_acquire(run->commit, &hold, err));
            copy = hold.copy;
            ferry_commit_release(run->commit, &hold);
        }
        GOOD(check_turned(run, turner, round, copy, err));
        GOOD(check_plain(run, round, copy, err));
        EXPECT(turner->wrong == 0);
        EXPECT(turner->filled - filled <= turner->sends);
        EXPECT((turner->filled > filled) == (turner->sends > 0));
        EXPECT(run->result.chunks_transform == turner->finalized - finalized);
    }
    return FERRY_OK;
}

static ferry_status_t trial_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const trial_t *trial = context;
    rsr_t run;
    turner_t turner = {.mode = trial->mode};
    ferry_transform_t transform = {
        sizeof transform, "turner", &turner,   should_transform, reserve, prepare_send,
        prepare_recv,     begin,    fill_send, finalize_recv,    release,
    };
    GOOD(rsr_open(&run, world, &trial->setup, NULL, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = open_turner(&run, &turner, &transform, &found);
    bool late = trial->mode >= FILL_FAILS;
    if (trial->mode == FINE || late) {
        EXPECT(status == FERRY_OK && turner.asked > 0 && turner.wrong == 0);
        EXPECT((turner.reserved > 0) ==
               (rso_elements(&trial->setup.c->tensors[1], false, run.me) > 0));
        GOOD(fine_rounds(&run, &turner, 0, 1, err));
        EXPECT(turner.begun == 1);
    }
    if (late) {
        body_sleep(
            0.02); /* or the failure could reach ranks that are still at the end of the last run */
        GOOD(rsr_fill(&run, 1, err));
        status = ferry_session_run(run.session, &run.result, &found);
        GOOD(ferry_world_recover(world, err));
        if (run.commit != NULL) { /* the old version is where it was */
            EXPECT(ferry_commit_version(run.commit) == 1 && !run.result.committed);
            EXPECT(run.result.version == 1);
            GOOD(check_turned(&run, &turner, 0, run.copies == 2 ? 1 : 0, err));
            GOOD(check_plain(&run, 0, run.copies == 2 ? 1 : 0, err));
        }
    }
    if (trial->mode != FINE) {
        if (status != trial->status || strstr(found.text, trial->text) == NULL) {
            (void)snprintf(err->text, sizeof err->text, "mode %d: %s: %.300s", (int)trial->mode,
                           ferry_status_name(status), found.text);
            err->status = FERRY_CHECK;
            return FERRY_CHECK;
        }
        ferry_error_t all[RANKS];
        GOOD(ferry_group_allgather(ferry_world_group(world), &found, sizeof found, all, err));
        EXPECT(strcmp(all[0].text, found.text) == 0 && all[0].rank == found.rank);
    }
    turner.mode = FINE;
    if (run.session == NULL) { /* the next session works */
        GOOD(open_turner(&run, &turner, &transform, err));
        turner.wrong = 0;
    }
    GOOD(fine_rounds(&run, &turner, 1, 4, err));
    uint32_t released = turner.released;
    rsr_close(&run);
    EXPECT(turner.released == released + 1);
    return FERRY_OK;
}

static void open_case(rso_case_t *c) {
    static const uint64_t shape[] = {ROWS, COLUMNS};
    memset(c, 0, sizeof *c);
    rso_add_text(c, "plain", FERRY_F32, FERRY_F32, 2, shape, "3:S0", "2:S1@1-2")->values =
        RSO_FINITE;
    rso_add_text(c, "t.w", FERRY_F32, FERRY_F32, 2, shape, "3:S0", "2:S1@1-2")->values = RSO_FINITE;
    assert_true(rso_open(c));
}

static void run_trials(const trial_t *trials, size_t count) {
    static const uint32_t commits[] = {0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    rso_case_t c;
    open_case(&c);
    for (size_t i = 0; i < count; i++) {
        for (int way = 0; way < 6; way++) {
            trial_t trial = trials[i];
            rsr_setup_t setup = RSR_SETUP_INIT(&c, 30 + i);
            setup.commit = commits[way % 3];
            /* After the decision of a gate nothing may fail that could have failed before. */
            if (setup.commit == FERRY_COMMIT_GATE && trial.mode == FINALIZE_FAILS) {
                continue;
            }
            setup.service.paths = way >= 3 ? FERRY_PATH_PIPELINE : 0;
            setup.options.check = way >= 3;
            trial.setup = setup;
            run_well(way % 2 == 0 ? AS_THREADS : AS_PROCESSES, RANKS, trial_body, &trial, NULL);
        }
    }
    rso_close(&c);
}

static void test_fine(void **state) {
    (void)state;
    trial_t fine = {.mode = FINE};
    run_trials(&fine, 1);
}

static void test_ends_differ(void **state) {
    (void)state;
    static const trial_t trials[] = {
        {.mode = COUNTS_DIFFER, .status = FERRY_MISMATCH, .text = "payload"},
        {.mode = SHAPES_DIFFER, .status = FERRY_MISMATCH, .text = ""},
        {.mode = DTYPES_DIFFER, .status = FERRY_MISMATCH, .text = "i32"},
        {.mode = NAMES_DIFFER, .status = FERRY_MISMATCH, .text = "transform"},
        {.mode = TOO_MANY, .status = FERRY_INVALID, .text = "5 payloads"},
        {.mode = NONE, .status = FERRY_INVALID, .text = "0 payloads"},
        {.mode = PREPARE_FAILS, .status = FERRY_IO, .text = "no room for a slice"},
    };
    run_trials(trials, sizeof trials / sizeof *trials);
}

static void test_failing(void **state) {
    (void)state;
    static const trial_t trials[] = {
        {.mode = FILL_FAILS, .status = FERRY_IO, .text = "cannot fill"},
        {.mode = FINALIZE_FAILS, .status = FERRY_IO, .text = "cannot finalize"},
        {.mode = BEGIN_FAILS, .status = FERRY_IO, .text = "cannot begin"},
    };
    run_trials(trials, sizeof trials / sizeof *trials);
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fine),
        cmocka_unit_test(test_ends_differ),
        cmocka_unit_test(test_failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
