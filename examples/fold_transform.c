/* fold_transform.c - a transform of one's own: a function is folded over all that arrives.
 *
 * Ranks 0 and 1 train: each holds half the rows of a matrix. Ranks 2 and 3 serve: each wants half the
 * columns, and while they arrive it wants to know their mean and their largest magnitude, and to keep
 * them scaled. The transform puts every slice where it belongs and hands it there, row by row, to a
 * function that may change it. Three rounds, with new weights each time.
 *
 *     cc fold_transform.c -lferry && ./a.out */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/kernel.h>
#include <ferry/mem.h>
#include <ferry/reshard.h>
#include <ferry/world.h>

#define ROWS 96
#define COLUMNS 64
#define HALF (COLUMNS / 2)
#define ROUNDS 3
#define GAIN 0.5F

static const uint64_t shape[] = {ROWS, COLUMNS};

/* ---- the transform: knows slices, and nothing of what the function does ---- */

typedef struct fold {
    void (*each)(void *state, float *values, size_t count); /* may change the values */
    void (*reset)(void *state);
    void *state;
    ferry_view_t target; /* the shard of this rank; unused where nothing arrives */
} fold_t;

static bool fold_should_transform(void *context, const char *name) {
    (void)context;
    return strcmp(name, "weights") == 0;
}

/* The values travel from where they lie. */
static ferry_status_t fold_prepare_send(void *context, const ferry_slice_t *slice,
                                        const ferry_view_t *source, ferry_view_t *payloads,
                                        size_t *count_p, ferry_error_t *err) {
    (void)context;
    (void)slice;
    (void)err;
    payloads[0] = *source;
    *count_p = 1;
    return FERRY_OK;
}

/* Without memory of its own: ferry gives it some, or lends the sender's, to be read only. */
static ferry_status_t fold_prepare_recv(void *context, const ferry_slice_t *slice,
                                        ferry_view_t *payloads, size_t *count_p,
                                        ferry_error_t *err) {
    (void)context;
    *count_p = 1;
    return ferry_view_contiguous(NULL, FERRY_F32, slice->ndim, slice->extent, &payloads[0], err);
}

static ferry_status_t fold_begin(void *context, ferry_error_t *err) {
    fold_t *fold = context;
    (void)err;
    fold->reset(fold->state);
    return FERRY_OK;
}

static ferry_status_t fold_finalize_recv(void *context, const ferry_slice_t *slice,
                                         const ferry_view_t *payloads, size_t count,
                                         ferry_error_t *err) {
    fold_t *fold = context;
    (void)count;
    ferry_view_t place;
    ferry_status_t status = ferry_view_slice(&fold->target, slice->lo, slice->extent, &place, err);
    if (status == FERRY_OK) {
        status = ferry_view_copy(&place, &payloads[0], 0, err);
    }
    for (uint64_t row = 0; row < slice->extent[0] && status == FERRY_OK; row++) {
        float *values = (float *)place.data + (int64_t)row * place.strides[0];
        fold->each(fold->state, values, slice->extent[1]);
    }
    return status;
}

static ferry_transform_t fold_transform(fold_t *fold) {
    ferry_transform_t transform = FERRY_TRANSFORM_INIT;
    transform.name = "fold";
    transform.context = fold;
    transform.should_transform = fold_should_transform;
    transform.prepare_send = fold_prepare_send;
    transform.prepare_recv = fold_prepare_recv;
    transform.begin = fold_begin;
    transform.finalize_recv = fold_finalize_recv;
    return transform;
}

/* ---- the function ---- */

typedef struct statistics {
    double sum;
    float largest;
    size_t count;
} statistics_t;

static void measure_and_scale(void *state, float *values, size_t count) {
    statistics_t *statistics = state;
    for (size_t i = 0; i < count; i++) {
        float size = values[i] < 0 ? -values[i] : values[i];
        statistics->sum += (double)values[i];
        statistics->largest = size > statistics->largest ? size : statistics->largest;
        values[i] *= GAIN;
    }
    statistics->count += count;
}

static void forget(void *state) {
    *(statistics_t *)state = (statistics_t){0};
}

/* ---- the program ---- */

/* Whole numbers, so that sums are exact. */
static float weight(int round, uint64_t row, uint64_t column) {
    return (float)((int)(row * 7 + column * 5) % 101 - 50 * round);
}

static void train(float *half, uint32_t rank, int round) {
    for (uint64_t i = 0; i < (uint64_t)ROWS / 2 * COLUMNS; i++) {
        half[i] = weight(round, i / COLUMNS + rank * (uint64_t)ROWS / 2, i % COLUMNS);
    }
}

/* Is this what one gets by looking at the columns that this rank should hold? */
static bool is_right(const statistics_t *got, const float *half, uint32_t rank, int round) {
    statistics_t expected = {0};
    for (uint64_t i = 0; i < (uint64_t)ROWS * HALF; i++) {
        float value = weight(round, i / HALF, i % HALF + (rank - 2) * (uint64_t)HALF);
        measure_and_scale(&expected, &value, 1);
        if (half[i] != value) {
            return false;
        }
    }
    return got->sum == expected.sum && got->largest == expected.largest &&
           got->count == expected.count;
}

static ferry_status_t make_plan(ferry_plan_t **plan_p, ferry_error_t *err) {
    ferry_layout_t *rows = NULL;
    ferry_layout_t *columns = NULL;
    ferry_status_t status = ferry_layout_parse("2:S0@0-1", &rows, err);
    if (status == FERRY_OK) {
        status = ferry_layout_parse("2:S1@2-3", &columns, err);
    }
    if (status == FERRY_OK) {
        ferry_tensor_t source = {"weights", FERRY_F32, 2, shape, rows};
        ferry_tensor_t target = {"weights", FERRY_F32, 2, shape, columns};
        ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
        params.sources = &source;
        params.nsources = 1;
        params.targets = &target;
        params.ntargets = 1;
        status = ferry_plan_create(&params, plan_p, err);
    }
    ferry_layout_destroy(rows);
    ferry_layout_destroy(columns);
    return status;
}

static ferry_status_t run_rounds(ferry_session_t *session, uint32_t rank, float *half,
                                 const statistics_t *statistics, ferry_error_t *err) {
    for (int round = 0; round < ROUNDS; round++) {
        if (rank < 2) {
            train(half, rank, round);
        }
        ferry_status_t status = ferry_session_run(session, NULL, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (rank >= 2) {
            if (!is_right(statistics, half, rank, round)) {
                return FERRY_CHECK;
            }
            (void)printf("round %d, rank %u: %zu weights, mean %+.3f, largest magnitude %g\n",
                         round, rank, statistics->count,
                         statistics->sum / (double)statistics->count, (double)statistics->largest);
            (void)fflush(stdout);
        }
    }
    return FERRY_OK;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    void *memory = NULL; /* half the rows, or half the columns */
    ferry_status_t status =
        ferry_mem_alloc(world, sizeof(float) * ROWS * COLUMNS / 2, &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    bool trains = rank < 2;
    uint64_t local[] = {trains ? ROWS / 2 : ROWS, trains ? COLUMNS : HALF};
    statistics_t statistics = {0};
    fold_t fold = {measure_and_scale, forget, &statistics, {0}};
    ferry_transform_t transform = fold_transform(&fold);
    ferry_bound_t source = {.name = "weights"};
    ferry_tensors_t sources = {&source, trains ? 1 : 0};
    ferry_tensors_t targets = {NULL, 0}; /* the transform knows where they lie */
    ferry_plan_t *plan = NULL;
    ferry_copy_service_t *service = NULL;
    ferry_session_t *session = NULL;
    status = ferry_view_contiguous(memory, FERRY_F32, 2, local,
                                   trains ? &source.view : &fold.target, err);
    if (status == FERRY_OK) {
        status = make_plan(&plan, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_create(ferry_world_group(world), NULL, &service, err);
    }
    if (status == FERRY_OK) {
        status =
            ferry_session_create(plan, sources, targets, service, &transform, NULL, &session, err);
    }
    if (status == FERRY_OK) {
        status = run_rounds(session, rank, memory, &statistics, err);
    }
    ferry_session_close(session);
    ferry_copy_service_close(service);
    ferry_plan_destroy(plan);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(4, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
