/* mx.c - MXFP8: blocks of 32 elements along the last dim that share a power of two.
 *
 * The tensor is walked as rows (all dims but the last, flattened) and a row in pieces that fit the first
 * cache. A piece goes source -> f32 -> data and scales, or back; f16 goes by way of f32, to which it
 * converts exactly. Blocks do not cross rows, so rows are shared out among parts freely; with
 * swizzled scales in bands of 128 rows, whose owner also writes the padding of the band. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "kernel/item.h"

enum {
    PIECE = 2048, /* elements */
    PIECE_BLOCKS = PIECE / FERRY_MX_BLOCK,
    TILE_ROWS = 128,
    TILE_BLOCKS = 4,
    TILE_BYTES = TILE_ROWS * TILE_BLOCKS,
};

typedef struct job {
    const fy_kernels_t *kernels;
    const ferry_view_t *data;
    const ferry_view_t *scales;
    const ferry_view_t *wide; /* the f32, f16 or bf16 side */
    ferry_mx_layout_t layout;
    int float_index; /* of `wide` */
    size_t wide_width;
    bool stream;
    uint64_t rows;
    uint64_t columns;
    uint64_t tiles; /* per band */
} job_t;

ferry_status_t ferry_mx_swizzled_bytes(uint64_t rows, uint64_t columns, uint64_t *bytes_p,
                                       ferry_error_t *err) {
    FY_NEED(bytes_p, err);
    if (columns % FERRY_MX_BLOCK != 0) {
        return fy_fail(err, FERRY_INVALID, "%llu columns are no multiple of %d",
                       (unsigned long long)columns, FERRY_MX_BLOCK);
    }
    uint64_t bytes = fy_ceil_div(columns / FERRY_MX_BLOCK, TILE_BLOCKS);
    if (!fy_mul_u64(bytes, fy_ceil_div(rows, TILE_ROWS), &bytes) ||
        !fy_mul_u64(bytes, TILE_BYTES, &bytes)) {
        return fy_fail(err, FERRY_OVERFLOW, "the scales pass 64 bits");
    }
    *bytes_p = bytes;
    return FERRY_OK;
}

/* ---- checks ---- */

static ferry_status_t check_scales(const job_t *job, ferry_error_t *err) {
    const ferry_view_t *data = job->data;
    const ferry_view_t *scales = job->scales;
    if (scales->dtype != FERRY_E8M0) {
        return fy_fail(err, FERRY_MISMATCH, "the scales are %s, not e8m0",
                       ferry_dtype_name(scales->dtype));
    }
    if (job->layout == FERRY_MX_ROWS) {
        ferry_view_t expected = *data;
        expected.shape[data->ndim - 1] /= FERRY_MX_BLOCK;
        return fy_same_shape(scales, &expected, err);
    }
    uint64_t bytes = 0;
    FY_TRY(ferry_mx_swizzled_bytes(job->rows, job->columns, &bytes, err));
    if (scales->ndim != 1 || scales->shape[0] != bytes || (bytes > 1 && scales->strides[0] != 1)) {
        return fy_fail(err, FERRY_MISMATCH, "swizzled scales are %llu bytes without gaps",
                       (unsigned long long)bytes);
    }
    return FERRY_OK;
}

static ferry_status_t prepare(job_t *job, uint32_t part, uint32_t nparts, ferry_error_t *err) {
    const ferry_view_t *data = job->data;
    if (part >= nparts) {
        return fy_fail(err, FERRY_INVALID, "part %u of %u", part, nparts);
    }
    if (job->layout != FERRY_MX_ROWS && job->layout != FERRY_MX_SWIZZLED) {
        return fy_fail(err, FERRY_INVALID, "%d is no layout of scales", (int)job->layout);
    }
    FY_TRY(fy_same_shape(data, job->wide, err));
    if (data->dtype != FERRY_F8E4M3) {
        return fy_fail(err, FERRY_MISMATCH, "the data are %s, not f8e4m3",
                       ferry_dtype_name(data->dtype));
    }
    job->float_index = fy_float_index(job->wide->dtype);
    if (job->float_index != FY_FLOAT_F32 && job->float_index != FY_FLOAT_F16 &&
        job->float_index != FY_FLOAT_BF16) {
        return fy_fail(err, FERRY_MISMATCH, "%s and MXFP8 do not convert",
                       ferry_dtype_name(job->wide->dtype));
    }
    if (data->ndim == 0 || data->shape[data->ndim - 1] % FERRY_MX_BLOCK != 0) {
        return fy_fail(err, FERRY_INVALID, "the last dim is no multiple of %d", FERRY_MX_BLOCK);
    }
    job->columns = data->shape[data->ndim - 1];
    uint64_t elements = 0;
    FY_TRY(ferry_view_elements(data, &elements, err));
    job->rows = job->columns == 0 ? 0 : elements / job->columns;
    job->tiles = fy_ceil_div(job->columns / FERRY_MX_BLOCK, TILE_BLOCKS);
    job->wide_width = ferry_dtype_bits(job->wide->dtype) / 8;
    FY_TRY(fy_kernels_get(&job->kernels, err));
    return check_scales(job, err);
}

/* ---- pieces ---- */

/* Where row `row` begins; the last dim of `view` is the one that is walked. */
static uint8_t *row_of(const ferry_view_t *view, uint64_t row) {
    int64_t offset = 0;
    for (uint32_t i = view->ndim - 1; i-- > 0;) {
        offset += (int64_t)(row % view->shape[i]) * view->strides[i];
        row /= view->shape[i];
    }
    return (uint8_t *)view->data + offset * (int64_t)(ferry_dtype_bits(view->dtype) / 8);
}

/* Elements [at, at + count) of a row, in one piece: in place, or gathered into the stage. */
static const uint8_t *gather(const job_t *job, const ferry_view_t *view, uint64_t row, uint64_t at,
                             size_t count, uint8_t *stage) {
    size_t width = ferry_dtype_bits(view->dtype) / 8;
    int64_t step = view->strides[view->ndim - 1] * (int64_t)width;
    const uint8_t *from = row_of(view, row) + (int64_t)at * step;
    if (step == (int64_t)width) {
        return from;
    }
    job->kernels->rows(stage, (int64_t)width, from, step, width, count);
    return stage;
}

static void scatter(const job_t *job, const ferry_view_t *view, uint64_t row, uint64_t at,
                    size_t count, const uint8_t *stage) {
    size_t width = ferry_dtype_bits(view->dtype) / 8;
    int64_t step = view->strides[view->ndim - 1] * (int64_t)width;
    uint8_t *to = row_of(view, row) + (int64_t)at * step;
    if (step != (int64_t)width) {
        job->kernels->rows(to, step, stage, (int64_t)width, width, count);
    } else if (job->stream && count * width >= 4 * (size_t)FY_LINE) {
        job->kernels->rows_stream(to, 0, stage, 0, count * width, 1);
    } else {
        memcpy(to, stage, count * width);
    }
}

static uint8_t *swizzled(const job_t *job, uint64_t row, uint64_t block) {
    uint64_t tile = row / TILE_ROWS * job->tiles + block / TILE_BLOCKS;
    uint64_t inside = row % 32 * 16 + row / 32 % 4 * 4 + block % TILE_BLOCKS;
    return (uint8_t *)job->scales->data + tile * TILE_BYTES + inside;
}

static void put_scales(const job_t *job, uint64_t row, uint64_t first, size_t blocks,
                       const uint8_t *codes) {
    if (job->layout == FERRY_MX_ROWS) {
        scatter(job, job->scales, row, first, blocks, codes);
        return;
    }
    for (size_t b = 0; b < blocks; b++) {
        *swizzled(job, row, first + b) = codes[b];
    }
}

static const uint8_t *get_scales(const job_t *job, uint64_t row, uint64_t first, size_t blocks,
                                 uint8_t *stage) {
    if (job->layout == FERRY_MX_ROWS) {
        return gather(job, job->scales, row, first, blocks, stage);
    }
    for (size_t b = 0; b < blocks; b++) {
        stage[b] = *swizzled(job, row, first + b);
    }
    return stage;
}

static void quantise_piece(const job_t *job, uint64_t row, uint64_t at, size_t count) {
    _Alignas(FY_LINE) uint8_t stage[PIECE * sizeof(float)];
    _Alignas(FY_LINE) uint8_t wide[PIECE * sizeof(float)];
    _Alignas(FY_LINE) uint8_t data[PIECE];
    uint8_t codes[PIECE_BLOCKS];
    const uint8_t *from = gather(job, job->wide, row, at, count, stage);
    if (job->float_index == FY_FLOAT_F16) {
        job->kernels->cast[FY_FLOAT_F16][FY_FLOAT_F32](wide, from, count);
        from = wide;
    }
    fy_quantise_fn quantise =
        job->float_index == FY_FLOAT_BF16 ? job->kernels->quantise_bf16 : job->kernels->quantise;
    uint8_t *straight = row_of(job->data, row) + at;
    if (job->data->strides[job->data->ndim - 1] == 1 && (uintptr_t)straight % FERRY_MX_BLOCK == 0) {
        quantise(straight, codes, from, count / FERRY_MX_BLOCK, job->stream);
    } else {
        quantise(data, codes, from, count / FERRY_MX_BLOCK, false);
        scatter(job, job->data, row, at, count, data);
    }
    put_scales(job, row, at / FERRY_MX_BLOCK, count / FERRY_MX_BLOCK, codes);
}

static void dequantise_piece(const job_t *job, uint64_t row, uint64_t at, size_t count) {
    _Alignas(FY_LINE) uint8_t wide[PIECE * sizeof(float)];
    _Alignas(FY_LINE) uint8_t narrow[PIECE * sizeof(uint16_t)];
    uint8_t stage[PIECE];
    uint8_t codes_stage[PIECE_BLOCKS];
    const uint8_t *data = gather(job, job->data, row, at, count, stage);
    const uint8_t *codes =
        get_scales(job, row, at / FERRY_MX_BLOCK, count / FERRY_MX_BLOCK, codes_stage);
    job->kernels->dequantise(wide, data, codes, count / FERRY_MX_BLOCK);
    const uint8_t *out = wide;
    if (job->float_index != FY_FLOAT_F32) {
        job->kernels->cast[FY_FLOAT_F32][job->float_index](narrow, wide, count);
        out = narrow;
    }
    scatter(job, job->wide, row, at, count, out);
}

/* ---- rows ---- */

static void run_rows(const job_t *job, uint32_t part, uint32_t nparts, bool forward) {
    uint64_t band = job->layout == FERRY_MX_SWIZZLED ? TILE_ROWS : 1;
    uint64_t bands = fy_ceil_div(job->rows, band);
    uint64_t from = bands / nparts * part + bands % nparts * part / nparts;
    uint64_t next = (uint64_t)part + 1;
    uint64_t to = bands / nparts * next + bands % nparts * next / nparts;
    bool padded = job->layout == FERRY_MX_SWIZZLED && forward &&
                  (job->columns / FERRY_MX_BLOCK % TILE_BLOCKS != 0 || job->rows % TILE_ROWS != 0);
    for (uint64_t b = from; b < to; b++) {
        if (padded) {
            memset(swizzled(job, b * TILE_ROWS, 0), 0, job->tiles * TILE_BYTES);
        }
        uint64_t end = fy_min_u64(job->rows, (b + 1) * band);
        for (uint64_t row = b * band; row < end; row++) {
            for (uint64_t at = 0; at < job->columns; at += PIECE) {
                size_t count = fy_min_u64(PIECE, job->columns - at);
                if (forward) {
                    quantise_piece(job, row, at, count);
                } else {
                    dequantise_piece(job, row, at, count);
                }
            }
        }
    }
    if (job->stream) {
        job->kernels->fence();
    }
}

ferry_status_t ferry_mx_quantise(const ferry_view_t *data, const ferry_view_t *scales,
                                 const ferry_view_t *source, ferry_mx_layout_t layout,
                                 uint32_t part, uint32_t nparts, ferry_error_t *err) {
    FY_NEED(data, err);
    FY_NEED(scales, err);
    FY_NEED(source, err);
    FY_TRY(fy_view_usable(source, "source", err));
    FY_TRY(fy_target_usable(data, "data", err));
    FY_TRY(fy_target_usable(scales, "scales", err));
    job_t job = {.data = data, .scales = scales, .wide = source, .layout = layout};
    FY_TRY(prepare(&job, part, nparts, err));
    job.stream = fy_item_streams(0, job.rows * job.columns);
    run_rows(&job, part, nparts, true);
    return FERRY_OK;
}

ferry_status_t ferry_mx_dequantise(const ferry_view_t *target, const ferry_view_t *data,
                                   const ferry_view_t *scales, ferry_mx_layout_t layout,
                                   uint32_t part, uint32_t nparts, ferry_error_t *err) {
    FY_NEED(target, err);
    FY_NEED(data, err);
    FY_NEED(scales, err);
    FY_TRY(fy_target_usable(target, "target", err));
    FY_TRY(fy_view_usable(data, "data", err));
    FY_TRY(fy_view_usable(scales, "scales", err));
    job_t job = {.data = data, .scales = scales, .wide = target, .layout = layout};
    FY_TRY(prepare(&job, part, nparts, err));
    job.stream = fy_item_streams(0, job.rows * job.columns * job.wide_width);
    run_rows(&job, part, nparts, false);
    return FERRY_OK;
}
