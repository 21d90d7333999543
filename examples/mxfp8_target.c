/* mxfp8_target.c - weights that arrive quantised.
 *
 * Two trainer ranks hold two bf16 matrices of 256 x 512, cut by rows. Two inference ranks want them cut by
 * columns and in MXFP8: one byte an element, and a power of two as a scale for each 32 elements of a row. The
 * scales of one matrix lie row by row, those of the other in the tiles that matrix units read. Slices come
 * from two ranks; what is in memory in the end is, bit for bit, what quantising the whole shard would give.
 *
 *     cc mxfp8_target.c -lferry && ./a.out */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/mem.h>
#include <ferry/reshard.h>

enum { TRAINERS = 2, RANKS = 4, TENSORS = 2, ROWS = 256, COLS = 512, LOCAL_COLS = COLS / 2 };

static const uint64_t shape[] = {ROWS, COLS};
static const uint64_t local_rows[] = {ROWS / TRAINERS, COLS}; /* of a trainer */
static const uint64_t local_cols[] = {ROWS, LOCAL_COLS};      /* of an inference rank */

static const char *const names[TENSORS] = {"attn.out.weight", "mlp.down.weight"};
static const ferry_mx_layout_t scale_layouts[TENSORS] = {FERRY_MX_ROWS, FERRY_MX_SWIZZLED};

typedef struct rank {
    ferry_world_t *world;
    bool trains;
    ferry_plan_t *plan;
    ferry_copy_service_t *service;
    ferry_mxfp8_t *mxfp8;
    ferry_bound_t sources[TENSORS];     /* a trainer's */
    ferry_mx_target_t targets[TENSORS]; /* an inference rank's */
    ferry_session_t *session;
} rank_t;

/* Weights of very different size, both signs, as bf16 bits. */
static uint16_t weight(uint64_t step, uint64_t t, uint64_t row, uint64_t col) {
    uint64_t mixed = (step * 7 + t * 13 + row * 131 + col * 31 + row * col) % 4093;
    float value = ((float)mixed - 2046) / (float)(1 + (row * 5 + col / 32) % 97);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static ferry_status_t take(rank_t *me, ferry_dtype_t dtype, uint32_t ndim, const uint64_t *dims,
                           ferry_view_t *view_p, ferry_error_t *err) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        elements *= dims[i];
    }
    void *memory = NULL;
    ferry_status_t status =
        ferry_mem_alloc(me->world, elements * ferry_dtype_bits(dtype) / 8, &memory, err);
    return status == FERRY_OK ? ferry_view_contiguous(memory, dtype, ndim, dims, view_p, err)
                              : status;
}

/* The scales of a shard of `data`'s shape. */
static ferry_status_t take_scales(rank_t *me, ferry_mx_layout_t layout, ferry_view_t *view_p,
                                  ferry_error_t *err) {
    uint64_t dims[] = {ROWS, LOCAL_COLS / FERRY_MX_BLOCK};
    uint32_t ndim = 2;
    if (layout == FERRY_MX_SWIZZLED) {
        ndim = 1;
        ferry_status_t status = ferry_mx_swizzled_bytes(ROWS, LOCAL_COLS, &dims[0], err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    return take(me, FERRY_E8M0, ndim, dims, view_p, err);
}

static ferry_status_t take_tensors(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (int t = 0; t < TENSORS && status == FERRY_OK; t++) {
        if (me->trains) {
            me->sources[t].name = names[t];
            status = take(me, FERRY_BF16, 2, local_rows, &me->sources[t].view, err);
            continue;
        }
        ferry_mx_target_t *target = &me->targets[t];
        target->name = names[t];
        target->layout = scale_layouts[t];
        status = take(me, FERRY_F8E4M3, 2, local_cols, &target->data[0], err);
        if (status == FERRY_OK) {
            status = take_scales(me, target->layout, &target->scales[0], err);
        }
    }
    return status;
}

static ferry_status_t make_plan(rank_t *me, ferry_error_t *err) {
    ferry_layout_t *rows = NULL;
    ferry_layout_t *columns = NULL;
    ferry_status_t status = ferry_layout_parse("2:S0", &rows, err);
    if (status == FERRY_OK) {
        status = ferry_layout_parse("2:S1@2-3", &columns, err);
    }
    ferry_tensor_t sides[2][TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        sides[0][t] = (ferry_tensor_t){names[t], FERRY_BF16, 2, shape, rows};
        sides[1][t] = (ferry_tensor_t){names[t], FERRY_BF16, 2, shape, columns};
    }
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_PART;
    params.rank = ferry_world_rank(me->world);
    params.sources = sides[0];
    params.targets = sides[1];
    params.nsources = params.ntargets = TENSORS;
    if (status == FERRY_OK) {
        status = ferry_plan_create(&params, &me->plan, err);
    }
    ferry_layout_destroy(rows); /* a plan keeps what it needs */
    ferry_layout_destroy(columns);
    return status;
}

/* All ranks name what is quantised; those that hold some of it say where it lies. */
static ferry_status_t prepare(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = make_plan(me, err);
    if (status == FERRY_OK) {
        status = take_tensors(me, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_create(ferry_world_group(me->world), NULL, &me->service, err);
    }
    if (status == FERRY_OK) {
        status = ferry_mxfp8_create(names, TENSORS, me->targets, me->trains ? 0 : TENSORS,
                                    FERRY_MX_ON_RECEIVER, &me->mxfp8, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    ferry_tensors_t sources = {me->sources, me->trains ? TENSORS : 0};
    ferry_tensors_t none = {NULL, 0};
    return ferry_session_create(me->plan, sources, none, me->service,
                                ferry_mxfp8_transform(me->mxfp8), NULL, &me->session, err);
}

static void train(rank_t *me, uint64_t step) {
    uint64_t first = ferry_world_rank(me->world) * local_rows[0];
    for (uint64_t t = 0; t < TENSORS; t++) {
        uint16_t *values = me->sources[t].view.data;
        for (uint64_t i = 0; i < local_rows[0] * COLS; i++) {
            values[i] = weight(step, t, first + i / COLS, i % COLS);
        }
    }
}

/* Quantises the whole shard in one go and compares. */
static ferry_status_t check(const rank_t *me, uint64_t step, uint64_t t, ferry_error_t *err) {
    static uint16_t whole[ROWS * LOCAL_COLS];
    static uint8_t data[ROWS * LOCAL_COLS];
    static uint8_t scales[ROWS * LOCAL_COLS / FERRY_MX_BLOCK]; /* no edges: tiles fill it, too */
    const ferry_mx_target_t *target = &me->targets[t];
    uint64_t first = (ferry_world_rank(me->world) - TRAINERS) * (uint64_t)LOCAL_COLS;
    for (uint64_t i = 0; i < (uint64_t)ROWS * LOCAL_COLS; i++) {
        whole[i] = weight(step, t, i / LOCAL_COLS, first + i % LOCAL_COLS);
    }
    ferry_view_t source;
    ferry_status_t status = ferry_view_contiguous(whole, FERRY_BF16, 2, local_cols, &source, err);
    ferry_view_t data_view = target->data[0];
    ferry_view_t scales_view = target->scales[0];
    data_view.data = data;
    scales_view.data = scales;
    if (status == FERRY_OK) {
        status = ferry_mx_quantise(&data_view, &scales_view, &source, target->layout, 0, 1, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    bool right = memcmp(data, target->data[0].data, sizeof data) == 0 &&
                 memcmp(scales, target->scales[0].data, sizeof scales) == 0;
    (void)printf("rank %u, step %llu: %s, %zu bytes of data, %zu of scales (%s): %s\n",
                 ferry_world_rank(me->world), (unsigned long long)step, names[t], sizeof data,
                 sizeof scales, target->layout == FERRY_MX_ROWS ? "by row" : "in tiles",
                 right ? "equal to quantising the whole shard" : "WRONG");
    if (!right) {
        ferry_error_clear(err);
        return err->status = FERRY_CORRUPT;
    }
    return FERRY_OK;
}

static ferry_status_t run(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (uint64_t step = 1; step <= 2 && status == FERRY_OK; step++) {
        if (me->trains) {
            train(me, step);
        }
        status = ferry_session_run(me->session, NULL, err);
        for (uint64_t t = 0; t < TENSORS && status == FERRY_OK && !me->trains; t++) {
            status = check(me, step, t, err);
        }
    }
    return status;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    rank_t me = {.world = world, .trains = ferry_world_rank(world) < TRAINERS};
    ferry_status_t status = prepare(&me, err);
    if (status == FERRY_OK) {
        status = run(&me, err);
    }
    ferry_session_close(me.session);
    ferry_mxfp8_destroy(me.mxfp8);
    ferry_copy_service_close(me.service);
    ferry_plan_destroy(me.plan);
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
