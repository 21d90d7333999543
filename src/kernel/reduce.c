/* reduce.c - reductions over views.
 *
 * Dims are walked in the order of the target's strides. The innermost dims in which no view has a gap
 * form a row; a row is done in blocks that fit the first cache: every source in turn is brought to the
 * type that is computed in and folded into the block, which is then rounded and stored. All sources of
 * a block are read before it is written, so the target may be one of them. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "kernel/item.h"

enum { BLOCK = 1024 };

typedef struct job {
    const fy_kernels_t *kernels;
    const ferry_view_t *target;
    const ferry_view_t *sources;
    size_t nsources;
    ferry_reduce_op_t op;
    int acc;                        /* FY_ACC_* */
    size_t width;                   /* bytes of an element */
    uint32_t order[FERRY_MAX_DIMS]; /* of the dims, falling target stride */
    uint32_t outer;                 /* dims order[0 .. outer) are outside the row */
    uint64_t row;                   /* elements of a row */
    bool gapless; /* rows have no gaps in any view; else a row is the dim order[outer] */
} job_t;

static int acc_of(ferry_dtype_t dtype) {
    switch (dtype) {
    case FERRY_F64:
        return FY_ACC_F64;
    case FERRY_F32:
    case FERRY_F16:
    case FERRY_BF16:
        return FY_ACC_F32;
    case FERRY_I64:
    case FERRY_I32:
    case FERRY_I16:
    case FERRY_I8:
        return FY_ACC_I64;
    case FERRY_U64:
    case FERRY_U32:
    case FERRY_U16:
    case FERRY_U8:
        return FY_ACC_U64;
    default:
        return -1;
    }
}

/* ---- between a dtype and the type that is computed in ---- */

#define WIDEN(dtype, value_t, acc_t)                                                               \
    case dtype:                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                       \
            ((acc_t *)acc)[i] = ((const value_t *)source)[i];                                      \
        }                                                                                          \
        break;

static void widen(const job_t *job, void *acc, const void *source, size_t count) {
    switch (job->target->dtype) {
    case FERRY_F16:
        job->kernels->cast[FY_FLOAT_F16][FY_FLOAT_F32](acc, source, count);
        break;
    case FERRY_BF16:
        job->kernels->cast[FY_FLOAT_BF16][FY_FLOAT_F32](acc, source, count);
        break;
        WIDEN(FERRY_I32, fy_i32, fy_i64)
        WIDEN(FERRY_I16, fy_i16, fy_i64)
        WIDEN(FERRY_I8, int8_t, fy_i64) /* NOLINT(bugprone-signed-char-misuse): no character */
        WIDEN(FERRY_U32, fy_u32, fy_u64)
        WIDEN(FERRY_U16, fy_u16, fy_u64)
        WIDEN(FERRY_U8, uint8_t, fy_u64)
    default: /* computed in as it is */
        memcpy(acc, source, count * job->width);
        break;
    }
}

/* The low bits, signed or not. */
#define NARROW(bytes, value_t)                                                                     \
    case bytes:                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                       \
            ((value_t *)target)[i] = (value_t)((const fy_u64 *)acc)[i];                            \
        }                                                                                          \
        break;

static void narrow(const job_t *job, void *target, const void *acc, size_t count) {
    ferry_dtype_t dtype = job->target->dtype;
    if (dtype == FERRY_F16 || dtype == FERRY_BF16) {
        job->kernels->cast[FY_FLOAT_F32][fy_float_index(dtype)](target, acc, count);
        return;
    }
    if (job->acc == FY_ACC_F32 || job->acc == FY_ACC_F64) {
        memcpy(target, acc, count * job->width);
        return;
    }
    switch (job->width) {
        NARROW(1, uint8_t)
        NARROW(2, fy_u16)
        NARROW(4, fy_u32)
    default:
        memcpy(target, acc, count * job->width);
        break;
    }
}

/* ---- walking ---- */

static uint64_t magnitude(int64_t stride) {
    return stride < 0 ? UINT64_C(0) - (uint64_t)stride : (uint64_t)stride;
}

/* Whether dim `dim` goes on where a row of `row` elements ends. */
static bool goes_on(const ferry_view_t *view, uint32_t dim, uint64_t row) {
    return view->strides[dim] == (int64_t)row || view->shape[dim] == 1;
}

static void order_dims(job_t *job) {
    const ferry_view_t *target = job->target;
    for (uint32_t i = 0; i < target->ndim; i++) {
        uint32_t at = i;
        uint64_t stride = magnitude(target->strides[i]);
        for (; at > 0 && magnitude(target->strides[job->order[at - 1]]) < stride; at--) {
            job->order[at] = job->order[at - 1];
        }
        job->order[at] = i;
    }
    job->row = 1;
    job->outer = target->ndim;
    while (job->outer > 0) {
        uint32_t dim = job->order[job->outer - 1];
        bool all = goes_on(target, dim, job->row);
        for (size_t s = 0; s < job->nsources && all; s++) {
            all = goes_on(&job->sources[s], dim, job->row);
        }
        if (!all) {
            break;
        }
        job->row *= target->shape[dim];
        job->outer--;
    }
    job->gapless = job->row > 1 || job->outer == 0;
    if (!job->gapless) {
        job->row = target->shape[job->order[--job->outer]];
    }
}

/* Element `at` of row number `row`, of one view. */
static uint8_t *place(const job_t *job, const ferry_view_t *view, uint64_t row, uint64_t at) {
    int64_t stride = job->gapless ? 1 : view->strides[job->order[job->outer]];
    int64_t offset = (int64_t)at * stride;
    for (uint32_t i = job->outer; i-- > 0;) {
        uint32_t dim = job->order[i];
        offset += (int64_t)(row % view->shape[dim]) * view->strides[dim];
        row /= view->shape[dim];
    }
    return (uint8_t *)view->data + offset * (int64_t)job->width;
}

static int64_t step_of(const job_t *job, const ferry_view_t *view) {
    int64_t stride = job->gapless ? 1 : view->strides[job->order[job->outer]];
    return stride * (int64_t)job->width;
}

/* A block of one source, in the type that is computed in. */
static void load(const job_t *job, const ferry_view_t *view, uint64_t row, uint64_t at, void *acc,
                 size_t count) {
    const uint8_t *from = place(job, view, row, at);
    int64_t step = step_of(job, view);
    if (step == (int64_t)job->width) {
        widen(job, acc, from, count);
        return;
    }
    _Alignas(FY_LINE) uint8_t stage[BLOCK * sizeof(double)];
    job->kernels->rows(stage, (int64_t)job->width, from, step, job->width, count);
    widen(job, acc, stage, count);
}

static void store(const job_t *job, uint64_t row, uint64_t at, const void *acc, size_t count) {
    uint8_t *to = place(job, job->target, row, at);
    int64_t step = step_of(job, job->target);
    if (step == (int64_t)job->width) {
        narrow(job, to, acc, count);
        return;
    }
    _Alignas(FY_LINE) uint8_t stage[BLOCK * sizeof(double)];
    narrow(job, stage, acc, count);
    job->kernels->rows(to, step, stage, (int64_t)job->width, job->width, count);
}

static void reduce_block(const job_t *job, uint64_t row, uint64_t at, size_t count) {
    _Alignas(FY_LINE) uint8_t acc[BLOCK * sizeof(double)];
    _Alignas(FY_LINE) uint8_t next[BLOCK * sizeof(double)];
    load(job, &job->sources[0], row, at, acc, count);
    for (size_t s = 1; s < job->nsources; s++) {
        load(job, &job->sources[s], row, at, next, count);
        job->kernels->fold[job->acc][job->op](acc, next, count);
    }
    job->kernels->finish[job->acc](acc, count, job->op == FERRY_REDUCE_AVG ? job->nsources : 1);
    store(job, row, at, acc, count);
}

/* ---- the door ---- */

static ferry_status_t check(const ferry_view_t *target, const ferry_view_t *sources,
                            size_t nsources, ferry_reduce_op_t op, ferry_error_t *err) {
    if ((int)op < 0 || (int)op >= FY_REDUCE_OPS) {
        return fy_fail(err, FERRY_INVALID, "%d is no reduction", (int)op);
    }
    if (nsources == 0) {
        return fy_fail(err, FERRY_INVALID, "a reduction of no sources");
    }
    FY_TRY(fy_target_usable(target, "target", err));
    if (acc_of(target->dtype) < 0) {
        return fy_fail(err, FERRY_UNSUPPORTED, "%s is not reduced",
                       ferry_dtype_name(target->dtype));
    }
    for (size_t s = 0; s < nsources; s++) {
        FY_TRY(fy_view_usable(&sources[s], "source", err));
        FY_TRY(fy_same_shape(target, &sources[s], err));
        if (sources[s].dtype != target->dtype) {
            return fy_fail(err, FERRY_MISMATCH, "source %zu is %s, the target %s", s,
                           ferry_dtype_name(sources[s].dtype), ferry_dtype_name(target->dtype));
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_reduce(const ferry_view_t *target, const ferry_view_t *sources,
                            size_t nsources, ferry_reduce_op_t op, ferry_error_t *err) {
    FY_NEED(target, err);
    FY_NEED_ARRAY(sources, nsources, err);
    FY_TRY(check(target, sources, nsources, op, err));
    job_t job = {.target = target,
                 .sources = sources,
                 .nsources = nsources,
                 .op = op,
                 .acc = acc_of(target->dtype),
                 .width = ferry_dtype_bits(target->dtype) / 8};
    FY_TRY(fy_kernels_get(&job.kernels, err));
    uint64_t elements = 0;
    FY_TRY(ferry_view_elements(target, &elements, err));
    if (elements == 0) {
        return FERRY_OK;
    }
    order_dims(&job);
    for (uint64_t row = 0; row < elements / job.row; row++) {
        for (uint64_t at = 0; at < job.row; at += BLOCK) {
            reduce_block(&job, row, at, fy_min_u64(BLOCK, job.row - at));
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_accumulate(const ferry_view_t *target, const ferry_view_t *source,
                                ferry_reduce_op_t op, ferry_error_t *err) {
    FY_NEED(target, err);
    FY_NEED(source, err);
    if (op == FERRY_REDUCE_AVG) {
        return fy_fail(err, FERRY_INVALID, "avg is no step: it needs the number of sources");
    }
    const ferry_view_t both[2] = {*target, *source};
    return ferry_reduce(target, both, 2, op, err);
}
