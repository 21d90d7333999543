/* prop_reshard.c - random layouts, dtypes, views, transforms, budgets, buckets, checks, paths and commits
 * against the oracle.
 *
 * A case is made from its seed alone; several cases share a world, which costs more to start than they
 * do to run. To replay one: FERRY_SEED=<seed> prop.reshard. Seeds that once failed are in `kept`. */
#include "multi/body.h"

#include "oracle/reshard_run.h"
#include "support/sanitizer.h"
#include "support/soak.h"

enum { MAX_RANKS = 8, BATCH = 25 };

/* Seeds that found something. They run first, as threads and as processes. */
static const uint64_t kept[] = {
    25000099, 50000108, /* slots alone passed the budget */
};

typedef struct trial {
    uint64_t seed;
    rso_case_t c;
    rsr_setup_t setup;
    bool tight; /* the budget may be too small */
} trial_t;

typedef struct batch {
    uint32_t size; /* ranks */
    size_t count;
    trial_t trials[BATCH];
    long refused; /* in memory that ranks share */
} batch_t;

/* ---- layouts ---- */

/* Renumbers the ranks of a case 0, 1, ...; false when there are too many. */
static bool compress(orc_case_t *drawn, uint32_t limit) {
    uint32_t ranks[ORC_ALL_RANKS];
    size_t count = orc_case_ranks(drawn, ranks);
    if (count > limit) {
        return false;
    }
    for (uint32_t t = 0; t < drawn->ntensors; t++) {
        orc_layout_t *sides[] = {&drawn->tensors[t].source, &drawn->tensors[t].target};
        for (int s = 0; s < 2; s++) {
            for (uint32_t i = 0; i < sides[s]->nranks; i++) {
                uint32_t at = 0;
                while (ranks[at] != sides[s]->ranks[i]) {
                    at++;
                }
                sides[s]->ranks[i] = at;
            }
        }
    }
    return true;
}

static bool is_strided(const orc_layout_t *layout, uint32_t dim) {
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const orc_axis_t *axis = &layout->axes[a];
        if (axis->kind == FERRY_SHARD && axis->dim == dim && axis->cut == FERRY_CUT_STRIDED) {
            return true;
        }
    }
    return false;
}

/* Makes every cut of a dim fall on multiples of 32. */
static void stretch(orc_layout_t *layout, uint32_t dim) {
    for (uint32_t a = 0; a < layout->naxes; a++) {
        orc_axis_t *axis = &layout->axes[a];
        if (axis->kind != FERRY_SHARD || axis->dim != dim) {
            continue;
        }
        if (axis->cut == FERRY_CUT_CYCLIC) {
            axis->arg *= RSO_MX_BLOCK;
        } else if (axis->cut != FERRY_CUT_RAGGED) {
            axis->unit = (axis->unit == 0 ? 1 : axis->unit) * RSO_MX_BLOCK;
        }
        for (size_t i = 0; i < axis->nsizes; i++) {
            axis->sizes[i] *= RSO_MX_BLOCK;
        }
        for (size_t i = 0; i < axis->nlengths; i++) {
            axis->lengths[i] *= RSO_MX_BLOCK;
        }
    }
}

static void draw_mx(orc_rng_t *rng, rso_tensor_t *t) {
    static const ferry_dtype_t wide[] = {FERRY_F32, FERRY_F16, FERRY_BF16, FERRY_BF16};
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        elements *= t->shape[d];
    }
    if (t->ndim == 0 || elements > 300 || !orc_chance(rng, 25) ||
        is_strided(&t->source, t->ndim - 1) || is_strided(&t->target, t->ndim - 1)) {
        return;
    }
    t->mx = orc_chance(rng, 50) ? RSO_MX_ROWS : RSO_MX_SWIZZLED;
    t->source_dtype = wide[orc_draw(rng, 4)];
    t->target_dtype = orc_chance(rng, 70) ? t->source_dtype : wide[orc_draw(rng, 4)];
    t->shape[t->ndim - 1] *= RSO_MX_BLOCK;
    stretch(&t->source, t->ndim - 1);
    stretch(&t->target, t->ndim - 1);
}

/* Sums are rare among what was drawn: replicas become members of one. */
static void draw_sums(orc_rng_t *rng, orc_layout_t *source) {
    bool sums = orc_chance(rng, 30);
    for (uint32_t a = 0; a < source->naxes && sums; a++) {
        if (source->axes[a].kind == FERRY_REPLICATE && orc_chance(rng, 70)) {
            source->axes[a].kind = FERRY_PARTIAL;
            source->axes[a].op = (ferry_reduce_op_t)orc_draw(rng, 5);
        }
    }
}

/* ---- dtypes ---- */

static void draw_dtypes(orc_rng_t *rng, rso_tensor_t *t) {
    static const ferry_dtype_t floats[] = {FERRY_F64,  FERRY_F32,    FERRY_F16,
                                           FERRY_BF16, FERRY_F8E4M3, FERRY_F8E5M2};
    bool sum = rso_members(t) > 1;
    for (uint32_t a = 0; a < t->source.naxes; a++) { /* sums of one member, too */
        sum = sum || t->source.axes[a].kind == FERRY_PARTIAL;
    }
    if (orc_chance(rng, 40)) {
        do {
            t->source_dtype = (ferry_dtype_t)(FERRY_F64 + orc_draw(rng, FERRY_BOOL));
        } while (sum && (t->source_dtype == FERRY_BOOL || t->source_dtype == FERRY_E8M0 ||
                         t->source_dtype == FERRY_F8E4M3 || t->source_dtype == FERRY_F8E5M2));
        t->target_dtype = t->source_dtype;
    } else {
        t->source_dtype = floats[orc_draw(rng, sum ? 4 : 6)];
        t->target_dtype = floats[orc_draw(rng, 6)];
    }
    if (rso_members(t) == 1) {
        t->values = sum ? RSO_FINITE : RSO_MIXED;
    }
}

/* ---- a trial ---- */

static void draw_case(orc_rng_t *rng, uint32_t limit, rso_case_t *c) {
    static _Thread_local orc_case_t drawn;
    do {
        orc_case_random(rng, &drawn);
    } while (!compress(&drawn, limit));
    for (uint32_t i = 0; i < drawn.ntensors; i++) {
        const orc_tensor_t *from = &drawn.tensors[i];
        rso_tensor_t *t = rso_add(c, from->name, FERRY_F32, FERRY_F32);
        t->ndim = from->ndim;
        memcpy(t->shape, from->shape, sizeof t->shape);
        t->source = from->source;
        t->target = from->target;
        draw_sums(rng, &t->source);
        draw_dtypes(rng, t);
        draw_mx(rng, t);
        c->flags |= t->source_dtype != t->target_dtype ? FERRY_PLAN_ALLOW_CAST : 0;
    }
    static const ferry_dtype_t wishes[] = {FERRY_BF16, FERRY_F16, FERRY_F8E4M3, FERRY_F8E5M2,
                                           FERRY_F32};
    bool quantised = false;
    for (uint32_t i = 0; i < c->ntensors; i++) {
        quantised = quantised || c->tensors[i].mx != RSO_MX_NONE;
    }
    if (!quantised && orc_chance(rng, 20)) {
        c->wire = wishes[orc_draw(rng, 5)];
    }
    if (orc_chance(rng, 30)) {
        c->nhosts = limit;
        for (uint32_t i = 0; i < limit; i++) {
            c->hosts[i] = (uint32_t)orc_draw(rng, 3);
        }
    }
}

static void draw_service(orc_rng_t *rng, ferry_copy_service_params_t *service) {
    static const uint32_t paths[] = {0,
                                     0,
                                     FERRY_PATH_PIPELINE,
                                     FERRY_PATH_READ,
                                     FERRY_PATH_READ | FERRY_PATH_PIPELINE,
                                     FERRY_PATH_DIRECT};
    service->paths = paths[orc_draw(rng, 6)];
    service->sharing = (uint32_t)orc_draw(rng, 3);
    service->read_run_bytes = orc_chance(rng, 50) ? 1 : 64;
    service->slot_bytes = orc_chance(rng, 50) ? 0 : 64 + orc_draw(rng, 4096);
    service->progress_thread = orc_chance(rng, 15);
}

static void draw_options(orc_rng_t *rng, trial_t *trial) {
    ferry_reshard_options_t *options = &trial->setup.options;
    options->buckets = (uint32_t)orc_draw(rng, 3);
    options->bucket_bytes = orc_chance(rng, 50) ? 0 : 1 + orc_draw(rng, 2000);
    options->check = orc_chance(rng, 30);
    if (orc_chance(rng, 30)) {
        trial->tight = orc_chance(rng, 50);
        options->budget_bytes =
            trial->tight ? 256 + orc_draw(rng, 64 << 10) : (UINT64_C(64) << 20) + orc_draw(rng, 64);
    }
}

static void draw_trial(uint64_t seed, uint32_t limit, trial_t *trial) {
    orc_rng_t rng = {seed * UINT64_C(0x9e3779b97f4a7c15) + 12345};
    memset(trial, 0, sizeof *trial);
    trial->seed = seed;
    draw_case(&rng, limit, &trial->c);
    rsr_setup_t setup = RSR_SETUP_INIT(&trial->c, seed);
    setup.rounds = 1 + (uint32_t)orc_draw(&rng, 3);
    setup.source_memory = (rsr_memory_t)orc_draw(&rng, 3);
    setup.target_memory = (rsr_memory_t)orc_draw(&rng, 3);
    setup.odd_views = orc_chance(&rng, 50);
    setup.parts = orc_chance(&rng, 50);
    setup.drive = (rsr_drive_t)orc_draw(&rng, 4);
    setup.delays = orc_chance(&rng, 3);
    setup.convert = orc_chance(&rng, 50) ? FERRY_MX_ON_SENDER : FERRY_MX_ON_RECEIVER;
    static const uint32_t commits[] = {0, 0, FERRY_COMMIT_FLIP, FERRY_COMMIT_GATE};
    setup.commit = commits[orc_draw(&rng, 4)];
    trial->setup = setup;
    draw_service(&rng, &trial->setup.service);
    draw_options(&rng, trial);
    trial->c.saturate = orc_chance(&rng, 20);
    trial->setup.service.copy_flags = trial->c.saturate ? FERRY_COPY_SATURATE : 0;
}

/* ---- running ---- */

/* A session that its budget does not allow is refused on all ranks, and that is all. */
static bool is_refusal(const trial_t *trial, ferry_status_t status, const ferry_error_t *err) {
    return trial->tight && (status == FERRY_NOMEM || status == FERRY_INVALID) &&
           strstr(err->text, "budget") != NULL;
}

static ferry_status_t run_trial(ferry_world_t *world, const trial_t *trial, bool *refused_p,
                                ferry_error_t *err) {
    rsr_t run;
    GOOD(rsr_open(&run, world, &trial->setup, NULL, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = rsr_session(&run, &found);
    *refused_p = is_refusal(trial, status, &found);
    if (status != FERRY_OK && !*refused_p) {
        *err = found;
        return status;
    }
    for (uint32_t round = 0; round < run.setup->rounds && !*refused_p; round++) {
        GOOD(rsr_fill(&run, round, err));
        GOOD(rsr_drive(&run, err));
        GOOD(rsr_check(&run, round, err));
    }
    rsr_close(&run);
    return FERRY_OK;
}

static ferry_status_t body(ferry_world_t *world, void *context, ferry_error_t *err) {
    batch_t *batch = context;
    for (size_t i = 0; i < batch->count; i++) {
        bool refused = false;
        ferry_status_t status = run_trial(world, &batch->trials[i], &refused, err);
        if (status != FERRY_OK) {
            char text[FERRY_ERROR_TEXT_MAX];
            memcpy(text, err->text, sizeof text);
            (void)snprintf(err->text, sizeof err->text, "seed %llu: %.350s",
                           (unsigned long long)batch->trials[i].seed, text);
            return status;
        }
        if (refused && ferry_world_rank(world) == 0) {
            batch->refused++;
        }
    }
    return FERRY_OK;
}

static void explain(const batch_t *batch, const char *line) {
    const char *at = strstr(line, "seed ");
    uint64_t seed = at != NULL ? strtoull(at + 5, NULL, 10) : 0;
    for (size_t i = 0; i < batch->count; i++) {
        const trial_t *trial = &batch->trials[i];
        if (trial->seed != seed) {
            continue;
        }
        const rsr_setup_t *s = &trial->setup;
        (void)fprintf(stderr,
                      "seed %llu: paths %u sharing %u slot %llu thread %d, memory %d %d, odd %d, "
                      "parts %d, drive %d, commit %u, buckets %u of %llu, check %d, budget %llu, "
                      "convert %d, rounds %u, delays %d\n",
                      (unsigned long long)seed, s->service.paths, s->service.sharing,
                      (unsigned long long)s->service.slot_bytes, s->service.progress_thread,
                      (int)s->source_memory, (int)s->target_memory, s->odd_views, s->parts,
                      (int)s->drive, s->commit, s->options.buckets,
                      (unsigned long long)s->options.bucket_bytes, s->options.check,
                      (unsigned long long)s->options.budget_bytes, (int)s->convert, s->rounds,
                      s->delays);
        rso_print(&trial->c);
    }
}

static long refusals;

/* Seeds first .. first + count - 1, in one world. Small worlds are the rule. */
static void run_batch(body_kind_t kind, uint64_t first, size_t count, uint32_t limit) {
    static batch_t batch;
    memset(&batch, 0, sizeof batch);
    batch.count = count;
    for (size_t i = 0; i < count; i++) {
        trial_t *trial = &batch.trials[i];
        draw_trial(first + i, limit, trial);
        assert_true(rso_open(&trial->c));
        batch.size = trial->c.nranks > batch.size ? trial->c.nranks : batch.size;
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rank_result_t results[MAX_RANKS];
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = UINT64_C(1) << 30;
    ferry_status_t status = run_as(kind, batch.size, body, &batch, &params, results, &err);
    if (status != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        explain(&batch, line);
        fail_msg("kind %d, %u ranks: %s", (int)kind, batch.size, line);
    }
    refusals += batch.refused;
    for (size_t i = 0; i < count; i++) {
        rso_close(&batch.trials[i].c);
    }
}

/* A trial depends on its seed only: the limit comes from the batch's place in it. */
static uint32_t limit_of(uint64_t seed) {
    return seed / BATCH % 3 == 0 ? MAX_RANKS : 4;
}

static void run_seeds(body_kind_t kind, uint64_t first, long count) {
    for (long done = 0; done < count; done += BATCH) {
        uint64_t seed = first + (uint64_t)done;
        run_batch(kind, seed, BATCH, limit_of(seed));
    }
}

static void test_kept(void **state) {
    (void)state;
    const char *wanted = getenv("FERRY_SEED");
    uint64_t seed = wanted != NULL ? strtoull(wanted, NULL, 10) : 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        uint64_t at = wanted != NULL ? seed : kept[i];
        run_batch(AS_THREADS, at, 1, limit_of(at));
        run_batch(AS_PROCESSES, at, 1, limit_of(at));
    }
    if (wanted != NULL) {
        exit(0);
    }
}

/* Both begin at a multiple of BATCH. */
static void test_threads(void **state) {
    (void)state;
    long count = SANITIZED ? 1500 : soak_count(4500, 90000);
    refusals = 0;
    run_seeds(AS_THREADS, (uint64_t)BATCH * 1000000, count);
    assert_true(refusals < count / 4); /* or budgets would not be tried */
}

static void test_processes(void **state) {
    (void)state;
    run_seeds(AS_PROCESSES, (uint64_t)BATCH * 2000000, SANITIZED ? 250 : soak_count(750, 12500));
}

int main(void) {
    (void)alarm((unsigned)soak_count(220, 3500));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
