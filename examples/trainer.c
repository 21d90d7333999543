/* trainer.c - a trainer hands its weights to an inference engine, step after step.
 *
 *     ranks 0-3   the trainer: TP2 x DP2, weights in f32
 *     ranks 4-6   the inference side: TP3, which divides none of the shapes; weights in bf16
 *
 * Every rank plans from the two layouts alone and binds the plan to its tensors once. Then, ten times, the
 * trainer changes its weights and all ranks run the session. Inference ranks keep two copies of their
 * weights (a flip): a thread on each goes on reading one while a run writes the other, and checks that what
 * it holds is one version, all of it. Ranks are processes of this machine.
 *
 *     cc trainer.c -lferry && ./a.out */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/mem.h>
#include <ferry/reshard.h>

enum { RANKS = 7, TRAINERS = 4, TENSORS = 4, COPIES = 2, STEPS = 10 };

static const struct {
    const char *name;
    uint64_t shape[2];
    const char *trainer; /* layouts: a mesh, and per axis R(eplicated) or S(harded by a dim) */
    const char *inference;
} model[TENSORS] = {
    {"embed.weight", {1000, 64}, "dp=2xtp=2:R,S0", "tp=3:S0@4-6"},
    {"mlp.down.weight", {64, 500}, "dp=2xtp=2:R,S1", "tp=3:S1@4-6"},
    {"mlp.up.weight", {500, 64}, "dp=2xtp=2:R,S0", "tp=3:S0@4-6"},
    {"norm.weight", {1, 64}, "dp=2xtp=2:R,R", "tp=3:R@4-6"},
};

/* What this rank holds of one tensor: rows x cols of it, from (row, col) on. */
typedef struct shard {
    uint64_t row, col;
    uint64_t rows, cols;
    void *memory[COPIES];
} shard_t;

typedef struct rank {
    ferry_world_t *world;
    bool trains;
    ferry_layout_t *layouts[2][TENSORS]; /* the trainer's and the inference side's */
    shard_t shards[TENSORS];
    ferry_bound_t bound[COPIES][TENSORS];
    ferry_plan_t *plan;
    ferry_copy_service_t *service;
    ferry_commit_t *commit;
    ferry_session_t *session;
    /* the reader's */
    _Atomic bool stop;
    uint64_t reads;
    uint64_t wrong;
} rank_t;

/* The weight at (row, col) of tensor t after a step: a small integer, which bf16 holds exactly. */
static float weight(uint64_t step, uint64_t t, uint64_t row, uint64_t col) {
    return step == 0 ? 0 : (float)((step * 31 + t * 7 + row * 3 + col) % 251);
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* --- tensors ------------------------------------------------------------------------------------ */

/* The layout says which part of a tensor is here; memory that other ranks reach holds it. */
static ferry_status_t take_shard(rank_t *me, int t, ferry_error_t *err) {
    shard_t *shard = &me->shards[t];
    const ferry_layout_t *layout = me->layouts[me->trains ? 0 : 1][t];
    uint32_t rank = ferry_world_rank(me->world);
    uint64_t local[2];
    ferry_interval_t part[2];
    ferry_status_t status = ferry_layout_local_shape(layout, 2, model[t].shape, rank, local, err);
    for (uint32_t dim = 0; dim < 2 && status == FERRY_OK; dim++) {
        size_t count;
        status = ferry_layout_intervals(layout, 2, model[t].shape, rank, dim, &part[dim], 1, &count,
                                        err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    *shard = (shard_t){part[0].lo, part[1].lo, local[0], local[1], {NULL, NULL}};
    ferry_dtype_t dtype = me->trains ? FERRY_F32 : FERRY_BF16;
    size_t bytes = local[0] * local[1] * (me->trains ? sizeof(float) : sizeof(uint16_t));
    for (int copy = 0; copy < (me->trains ? 1 : COPIES) && status == FERRY_OK; copy++) {
        ferry_bound_t *bound = &me->bound[copy][t];
        bound->name = model[t].name;
        status = ferry_mem_alloc(me->world, bytes, &shard->memory[copy], err);
        if (status == FERRY_OK) {
            status = ferry_view_contiguous(shard->memory[copy], dtype, 2, local, &bound->view, err);
        }
    }
    return status;
}

static ferry_status_t make_plan(rank_t *me, ferry_error_t *err) {
    ferry_tensor_t sides[2][TENSORS];
    ferry_status_t status = FERRY_OK;
    for (int t = 0; t < TENSORS && status == FERRY_OK; t++) {
        status = ferry_layout_parse(model[t].trainer, &me->layouts[0][t], err);
        if (status == FERRY_OK) {
            status = ferry_layout_parse(model[t].inference, &me->layouts[1][t], err);
        }
        for (int side = 0; side < 2; side++) {
            sides[side][t] = (ferry_tensor_t){model[t].name, side == 0 ? FERRY_F32 : FERRY_BF16, 2,
                                              model[t].shape, me->layouts[side][t]};
        }
    }
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_ALLOW_CAST | FERRY_PLAN_PART;
    params.rank = ferry_world_rank(me->world);
    params.sources = sides[0];
    params.targets = sides[1];
    params.nsources = params.ntargets = TENSORS;
    return status == FERRY_OK ? ferry_plan_create(&params, &me->plan, err) : status;
}

static ferry_status_t prepare(rank_t *me, ferry_error_t *err) {
    ferry_group_t *everyone = ferry_world_group(me->world);
    ferry_status_t status = make_plan(me, err);
    for (int t = 0; t < TENSORS && status == FERRY_OK; t++) {
        status = take_shard(me, t, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_create(everyone, NULL, &me->service, err);
    }
    if (status == FERRY_OK) {
        status = ferry_commit_create(everyone, FERRY_COMMIT_FLIP, &me->commit, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    ferry_tensors_t none = {NULL, 0};
    ferry_tensors_t copies[COPIES] = {{me->bound[0], TENSORS}, {me->bound[1], TENSORS}};
    ferry_reshard_options_t options = FERRY_RESHARD_OPTIONS_INIT;
    options.commit = me->commit;
    options.other_targets = me->trains ? none : copies[1];
    return ferry_session_create(me->plan, me->trains ? copies[0] : none,
                                me->trains ? none : copies[0], me->service, NULL, &options,
                                &me->session, err);
}

/* --- the two sides ------------------------------------------------------------------------------ */

/* What a step of training leaves behind. */
static void train(rank_t *me, uint64_t step) {
    for (uint64_t t = 0; t < TENSORS; t++) {
        const shard_t *shard = &me->shards[t];
        float *values = shard->memory[0];
        for (uint64_t i = 0; i < shard->rows * shard->cols; i++) {
            values[i] = weight(step, t, shard->row + i / shard->cols, shard->col + i % shard->cols);
        }
    }
}

static bool is_version(const rank_t *me, const ferry_hold_t *hold) {
    for (uint64_t t = 0; t < TENSORS; t++) {
        const shard_t *shard = &me->shards[t];
        const uint16_t *values = shard->memory[hold->copy];
        for (uint64_t i = 0; i < shard->rows * shard->cols; i++) {
            float value = weight(hold->version, t, shard->row + i / shard->cols,
                                 shard->col + i % shard->cols);
            if (values[i] != to_bf16(value)) {
                return false;
            }
        }
    }
    return true;
}

/* Reads as long as there are steps. A version stays as it is while it is held. */
static void *read_on(void *context) {
    rank_t *me = context;
    while (!atomic_load(&me->stop)) {
        ferry_hold_t hold;
        if (ferry_commit_acquire(me->commit, &hold, NULL) != FERRY_OK) {
            me->wrong++;
            break;
        }
        me->wrong += is_version(me, &hold) ? 0 : 1;
        me->reads++;
        ferry_commit_release(me->commit, &hold);
    }
    return NULL;
}

static ferry_status_t run_steps(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (uint64_t step = 1; step <= STEPS && status == FERRY_OK; step++) {
        ferry_reshard_result_t result;
        if (me->trains) {
            train(me, step);
        }
        status = ferry_session_run(me->session, &result, err);
        if (status == FERRY_OK && ferry_world_rank(me->world) == RANKS - 1) {
            (void)printf("step %2d: rank %d got %llu bytes, and holds version %llu\n", (int)step,
                         RANKS - 1, (unsigned long long)result.bytes_received,
                         (unsigned long long)result.version);
        }
    }
    return status;
}

static ferry_status_t run_beside_reader(rank_t *me, ferry_error_t *err) {
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_on, me) != 0) {
        ferry_error_clear(err);
        return err->status = FERRY_NOMEM;
    }
    ferry_status_t status = run_steps(me, err);
    atomic_store(&me->stop, true);
    (void)pthread_join(reader, NULL);
    if (status != FERRY_OK) {
        return status;
    }
    ferry_hold_t last;
    status = ferry_commit_acquire(me->commit, &last, err);
    if (status == FERRY_OK) {
        bool right = last.version == STEPS && is_version(me, &last) && me->wrong == 0;
        ferry_commit_release(me->commit, &last);
        (void)printf("rank %u: %llu reads beside the steps, %llu of them wrong; the last is %s\n",
                     ferry_world_rank(me->world), (unsigned long long)me->reads,
                     (unsigned long long)me->wrong, right ? "right" : "WRONG");
        if (!right) {
            ferry_error_clear(err);
            err->status = status = FERRY_CORRUPT;
        }
    }
    return status;
}

/* --- everyone ----------------------------------------------------------------------------------- */

static void release(rank_t *me) {
    ferry_session_close(me->session);
    ferry_commit_destroy(me->commit);
    ferry_copy_service_close(me->service);
    ferry_plan_destroy(me->plan);
    for (int t = 0; t < TENSORS; t++) {
        ferry_layout_destroy(me->layouts[0][t]);
        ferry_layout_destroy(me->layouts[1][t]);
    }
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    rank_t me = {.world = world, .trains = ferry_world_rank(world) < TRAINERS};
    ferry_status_t status = prepare(&me, err);
    if (status == FERRY_OK) {
        status = me.trains ? run_steps(&me, err) : run_beside_reader(&me, err);
    }
    release(&me);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(RANKS, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
