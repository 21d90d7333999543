/* mxfp8_slice.c - MXFP8, slice by slice: what travels, where it lands, when it is quantised.
 *
 *   converted   scales     payloads                        on the sender  on the receiver
 *   receiver    rows       values                          in place       staged, quantised from there
 *   receiver    swizzled   values                          in place       accumulator, quantised when full
 *   sender      rows       data; scales, row by row        staged         in place
 *   sender      swizzled   data; scales, row by row        staged         data in place; scales staged,
 *                                                                         then put where they belong
 *
 * Blocks begin at multiples of 32 in the coordinates of the receiver's shard. In the sender's they may lie
 * anywhere; only their number can be checked there. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "reshard/mxfp8.h"

enum {
    TILE_ROWS = 128,
    TILE_BLOCKS = 4,
    TILE_BYTES = TILE_ROWS * TILE_BLOCKS,
};

/* Adds what only the slice knows to the record of a failure. */
static ferry_status_t at_slice(ferry_status_t status, const ferry_slice_t *slice,
                               ferry_error_t *err) {
    if (status != FERRY_OK) {
        fy_error_tensor(err, slice->name);
        fy_error_region(err, slice->ndim, slice->lo, slice->extent);
    }
    return status;
}

static ferry_status_t check_blocks(const ferry_slice_t *slice, bool receiving, ferry_error_t *err) {
    if (slice->ndim < 1 || slice->ndim > FERRY_MAX_DIMS) {
        return fy_fail(err, FERRY_INVALID, "a tensor of %u dims has no MXFP8 blocks", slice->ndim);
    }
    uint32_t last = slice->ndim - 1;
    if (slice->extent[last] % FERRY_MX_BLOCK != 0 ||
        (receiving && slice->lo[last] % FERRY_MX_BLOCK != 0)) {
        return fy_fail(err, FERRY_INVALID, "a slice cuts MXFP8 blocks of %d along the last dim",
                       FERRY_MX_BLOCK);
    }
    return FERRY_OK;
}

/* A payload that ferry gives memory to; its last dim is `divisor` times shorter than the slice's. */
static ferry_status_t staged(const ferry_slice_t *slice, ferry_dtype_t dtype, uint64_t divisor,
                             ferry_view_t *payload, ferry_error_t *err) {
    uint64_t shape[FERRY_MAX_DIMS];
    memcpy(shape, slice->extent, slice->ndim * sizeof *shape);
    shape[slice->ndim - 1] /= divisor;
    return ferry_view_contiguous(NULL, dtype, slice->ndim, shape, payload, err);
}

/* ---- the sender ---- */

static ferry_status_t prepare_send(const ferry_mxfp8_t *mxfp8, const ferry_slice_t *slice,
                                   const ferry_view_t *source, ferry_view_t *payloads,
                                   size_t *count_p, ferry_error_t *err) {
    FY_TRY(check_blocks(slice, false, err));
    FY_TRY(fy_mx_check_source(source->dtype, err));
    if (mxfp8->convert == FERRY_MX_ON_RECEIVER) {
        payloads[0] = *source;
        *count_p = 1;
        return FERRY_OK;
    }
    FY_TRY(staged(slice, FERRY_F8E4M3, 1, &payloads[0], err));
    FY_TRY(staged(slice, FERRY_E8M0, FERRY_MX_BLOCK, &payloads[1], err));
    *count_p = 2;
    return FERRY_OK;
}

ferry_status_t fy_mx_prepare_send(void *context, const ferry_slice_t *slice,
                                  const ferry_view_t *source, ferry_view_t *payloads,
                                  size_t *count_p, ferry_error_t *err) {
    return at_slice(prepare_send(context, slice, source, payloads, count_p, err), slice, err);
}

ferry_status_t fy_mx_fill_send(void *context, const ferry_slice_t *slice,
                               const ferry_view_t *source, const ferry_view_t *payloads,
                               size_t count, ferry_error_t *err) {
    (void)context;
    (void)count;
    return at_slice(ferry_mx_quantise(&payloads[0], &payloads[1], source, FERRY_MX_ROWS, 0, 1, err),
                    slice, err);
}

/* ---- the receiver: prepare ---- */

static void in_blocks(const ferry_slice_t *slice, uint64_t *lo, uint64_t *extent) {
    uint32_t last = slice->ndim - 1;
    memcpy(lo, slice->lo, slice->ndim * sizeof *lo);
    memcpy(extent, slice->extent, slice->ndim * sizeof *extent);
    lo[last] /= FERRY_MX_BLOCK;
    extent[last] /= FERRY_MX_BLOCK;
}

static ferry_status_t find_target(const ferry_mxfp8_t *mxfp8, const ferry_slice_t *slice,
                                  fy_mx_target_t **target_p, ferry_error_t *err) {
    fy_mx_target_t *target = fy_mx_find(mxfp8, slice->name);
    if (target == NULL || slice->copy >= target->copies) {
        return fy_fail(err, FERRY_INVALID, "copy %u of the MXFP8 target was not reserved",
                       slice->copy);
    }
    *target_p = target;
    return FERRY_OK;
}

static ferry_status_t prepare_recv(const ferry_mxfp8_t *mxfp8, const ferry_slice_t *slice,
                                   ferry_view_t *payloads, size_t *count_p, ferry_error_t *err) {
    fy_mx_target_t *target = NULL;
    ferry_view_t data;
    uint64_t lo[FERRY_MAX_DIMS];
    uint64_t extent[FERRY_MAX_DIMS];
    FY_TRY(find_target(mxfp8, slice, &target, err));
    const ferry_mx_target_t *spec = &target->spec;
    if (slice->ndim != spec->data[slice->copy].ndim) {
        return fy_fail(err, FERRY_INVALID, "a slice of %u dims in a shard of %u", slice->ndim,
                       spec->data[slice->copy].ndim);
    }
    FY_TRY(check_blocks(slice, true, err));
    FY_TRY(ferry_view_slice(&spec->data[slice->copy], slice->lo, slice->extent, &data, err));
    in_blocks(slice, lo, extent);
    if (!fy_cover_add(&target->cover[slice->copy], lo, extent)) {
        return fy_fail(err, FERRY_INVALID, "a slice overlaps another one of the same shard");
    }
    if (mxfp8->convert == FERRY_MX_ON_SENDER) {
        payloads[0] = data;
        *count_p = 2;
        return spec->layout == FERRY_MX_ROWS
                   ? ferry_view_slice(&spec->scales[slice->copy], lo, extent, &payloads[1], err)
                   : staged(slice, FERRY_E8M0, FERRY_MX_BLOCK, &payloads[1], err);
    }
    *count_p = 1;
    return spec->layout == FERRY_MX_ROWS
               ? staged(slice, slice->dtype, 1, &payloads[0], err)
               : ferry_view_slice(&target->gathered, slice->lo, slice->extent, &payloads[0], err);
}

ferry_status_t fy_mx_prepare_recv(void *context, const ferry_slice_t *slice, ferry_view_t *payloads,
                                  size_t *count_p, ferry_error_t *err) {
    return at_slice(prepare_recv(context, slice, payloads, count_p, err), slice, err);
}

/* ---- swizzled scales ---- */

/* Where the scale of a row and block lies; the three others of its tile's row follow it. */
static uint8_t *scale_at(uint8_t *scales, uint64_t tiles, uint64_t row, uint64_t block) {
    uint64_t tile = row / TILE_ROWS * tiles + block / TILE_BLOCKS;
    return scales + tile * TILE_BYTES + row % 32 * 16 + row / 32 % 4 * 4 + block % TILE_BLOCKS;
}

/* Whoever writes scale by scale leaves out what is beyond the edges. */
static void clear_padding(const fy_mx_target_t *target, uint32_t copy) {
    const ferry_view_t *data = &target->spec.data[copy];
    uint8_t *scales = target->spec.scales[copy].data;
    uint64_t blocks = data->shape[data->ndim - 1] / FERRY_MX_BLOCK;
    uint64_t rows = target->elements / data->shape[data->ndim - 1];
    uint64_t tiles = fy_ceil_div(blocks, TILE_BLOCKS);
    uint64_t first = blocks % TILE_BLOCKS == 0 ? rows : 0;
    for (uint64_t row = first; row < fy_ceil_div(rows, TILE_ROWS) * TILE_ROWS; row++) {
        for (uint64_t block = row < rows ? blocks : 0; block < tiles * TILE_BLOCKS; block++) {
            *scale_at(scales, tiles, row, block) = 0;
        }
    }
}

/* `from` has a row of scales, without gaps, for each row of the slice. */
static void put_scales(const fy_mx_target_t *target, const ferry_slice_t *slice,
                       const uint8_t *from) {
    uint8_t *scales = target->spec.scales[slice->copy].data;
    const uint64_t *shape = target->spec.data[slice->copy].shape;
    uint32_t last = slice->ndim - 1;
    uint64_t tiles = fy_ceil_div(shape[last] / FERRY_MX_BLOCK, TILE_BLOCKS);
    uint64_t begin = slice->lo[last] / FERRY_MX_BLOCK;
    uint64_t end = begin + slice->extent[last] / FERRY_MX_BLOCK;
    uint64_t index[FERRY_MAX_DIMS] = {0};
    uint64_t rows = 1;
    for (uint32_t i = 0; i < last; i++) {
        rows *= slice->extent[i];
    }
    for (uint64_t done = 0; done < rows; done++) {
        uint64_t row = 0;
        for (uint32_t i = 0; i < last; i++) {
            row = row * shape[i] + slice->lo[i] + index[i];
        }
        for (uint64_t block = begin; block < end;) {
            uint64_t here = fy_min_u64(TILE_BLOCKS - block % TILE_BLOCKS, end - block);
            memcpy(scale_at(scales, tiles, row, block), from, here);
            from += here;
            block += here;
        }
        for (uint32_t i = last; i-- > 0 && ++index[i] == slice->extent[i];) {
            index[i] = 0;
        }
    }
}

/* ---- the receiver: finalize ---- */

/* Counts the slice in. */
static ferry_status_t arrive(fy_mx_target_t *target, const ferry_slice_t *slice,
                             ferry_error_t *err) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < slice->ndim; i++) {
        elements *= slice->extent[i];
    }
    if (elements > target->elements - target->arrived) {
        return fy_fail(err, FERRY_INVALID, "more elements have come than the shard has");
    }
    target->arrived += elements;
    return FERRY_OK;
}

/* Quantises the accumulator when its last slice has come. */
static ferry_status_t gather(fy_mx_target_t *target, const ferry_slice_t *slice,
                             ferry_error_t *err) {
    FY_TRY(arrive(target, slice, err));
    if (target->arrived < target->elements) {
        return FERRY_OK;
    }
    return ferry_mx_quantise(&target->spec.data[slice->copy], &target->spec.scales[slice->copy],
                             &target->gathered, FERRY_MX_SWIZZLED, 0, 1, err);
}

static ferry_status_t quantise_rows(const fy_mx_target_t *target, const ferry_slice_t *slice,
                                    const ferry_view_t *values, ferry_error_t *err) {
    ferry_view_t data;
    ferry_view_t scales;
    uint64_t lo[FERRY_MAX_DIMS];
    uint64_t extent[FERRY_MAX_DIMS];
    in_blocks(slice, lo, extent);
    FY_TRY(ferry_view_slice(&target->spec.data[slice->copy], slice->lo, slice->extent, &data, err));
    FY_TRY(ferry_view_slice(&target->spec.scales[slice->copy], lo, extent, &scales, err));
    return ferry_mx_quantise(&data, &scales, values, FERRY_MX_ROWS, 0, 1, err);
}

static ferry_status_t finalize_recv(const ferry_mxfp8_t *mxfp8, const ferry_slice_t *slice,
                                    const ferry_view_t *payloads, size_t count,
                                    ferry_error_t *err) {
    fy_mx_target_t *target = NULL;
    FY_TRY(find_target(mxfp8, slice, &target, err));
    size_t expected = mxfp8->convert == FERRY_MX_ON_SENDER ? 2 : 1;
    if (count != expected) {
        return fy_fail(err, FERRY_INVALID, "%zu payloads, expected %zu", count, expected);
    }
    bool rows = target->spec.layout == FERRY_MX_ROWS;
    if (mxfp8->convert == FERRY_MX_ON_RECEIVER) {
        return rows ? quantise_rows(target, slice, &payloads[0], err) : gather(target, slice, err);
    }
    if (rows) {
        return FERRY_OK; /* all has landed in place */
    }
    if (target->arrived == 0 && target->elements > 0) {
        clear_padding(target, slice->copy);
    }
    FY_TRY(arrive(target, slice, err));
    put_scales(target, slice, payloads[1].data);
    return FERRY_OK;
}

ferry_status_t fy_mx_finalize_recv(void *context, const ferry_slice_t *slice,
                                   const ferry_view_t *payloads, size_t count, ferry_error_t *err) {
    return at_slice(finalize_recv(context, slice, payloads, count, err), slice, err);
}
