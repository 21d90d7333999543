/* item.c - preparing a copy: checks, normal form of the dims, choice of the routine.
 *
 * Nothing here touches the tensors' memory. Offsets need no checks: every one is that of an element of
 * a view whose extent was checked. */
#include "kernel/item.h"

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"

enum {
    LONG_RUN = 64 * 1024,   /* runs from here on are copied one by one */
    LONG_BLOCK = 32 * 1024, /* and cut to this: a unit of work */
    PAGE = 4096,
    TILE_BYTES = 64 * 1024, /* a block of runs where both sides run the same way */
    CAST_RUN = 256,         /* elements; shorter ones are gathered into tiles */
    CAST_BLOCK = 2048,      /* elements; at most the stage in run.c */
    CAST_LONG_BLOCK = 16 * 1024,
    CAST_EDGE = 32,
    TURN_BYTES = 128, /* edge of a transposed tile: two lines, which prefetchers fetch together */
    TURN_EDGE_1 = 64, /* elements of one byte */
};

int fy_float_index(ferry_dtype_t dtype) {
    switch (dtype) {
    case FERRY_F64:
        return FY_FLOAT_F64;
    case FERRY_F32:
        return FY_FLOAT_F32;
    case FERRY_F16:
        return FY_FLOAT_F16;
    case FERRY_BF16:
        return FY_FLOAT_BF16;
    case FERRY_F8E4M3:
        return FY_FLOAT_F8E4M3;
    case FERRY_F8E5M2:
        return FY_FLOAT_F8E5M2;
    default:
        return -1;
    }
}

bool fy_item_streams(uint32_t flags, uint64_t bytes) {
    if ((flags & (FERRY_COPY_STREAM | FERRY_COPY_CACHED)) != 0) {
        return (flags & FERRY_COPY_STREAM) != 0;
    }
    return bytes >= FY_STREAM_BYTES;
}

/* ---- checks ---- */

ferry_status_t fy_view_usable(const ferry_view_t *view, const char *role, ferry_error_t *err) {
    if (view->kind != FERRY_MEM_HOST && view->kind != FERRY_MEM_SHARED) {
        return fy_fail(err, FERRY_UNSUPPORTED, "the %s is in memory of kind %d, not the CPU's",
                       role, (int)view->kind);
    }
    int64_t low = 0;
    int64_t high = 0;
    ferry_status_t status = ferry_view_extent(view, &low, &high, err);
    if (status != FERRY_OK) {
        fy_error_prefix(err, role);
    }
    return status;
}

ferry_status_t fy_target_usable(const ferry_view_t *view, const char *role, ferry_error_t *err) {
    FY_TRY(fy_view_usable(view, role, err));
    bool overlaps = false;
    FY_TRY(ferry_view_overlaps(view, &overlaps, err));
    if (overlaps) {
        return fy_fail(err, FERRY_INVALID, "two elements of the %s have one address", role);
    }
    return FERRY_OK;
}

ferry_status_t fy_same_shape(const ferry_view_t *target, const ferry_view_t *source,
                             ferry_error_t *err) {
    bool same = target->ndim == source->ndim;
    for (uint32_t i = 0; same && i < target->ndim; i++) {
        same = target->shape[i] == source->shape[i];
    }
    if (same) {
        return FERRY_OK;
    }
    char texts[2][96];
    fy_text_t text;
    fy_text_init(&text, texts[0], sizeof texts[0]);
    fy_text_shape(&text, source->ndim, source->shape);
    fy_text_init(&text, texts[1], sizeof texts[1]);
    fy_text_shape(&text, target->ndim, target->shape);
    return fy_fail(err, FERRY_MISMATCH, "the source is %s, the target %s", texts[0], texts[1]);
}

static ferry_status_t check(const ferry_view_t *target, const ferry_view_t *source, uint32_t flags,
                            ferry_error_t *err) {
    const uint32_t both = FERRY_COPY_STREAM | FERRY_COPY_CACHED;
    if ((flags & ~(FERRY_COPY_SATURATE | both)) != 0 || (flags & both) == both) {
        return fy_fail(err, FERRY_INVALID, "bad flags 0x%x", flags);
    }
    FY_TRY(fy_view_usable(source, "source", err));
    FY_TRY(fy_target_usable(target, "target", err));
    FY_TRY(fy_same_shape(target, source, err));
    if (target->dtype != source->dtype &&
        (fy_float_index(target->dtype) < 0 || fy_float_index(source->dtype) < 0)) {
        return fy_fail(err, FERRY_MISMATCH, "%s does not convert to %s",
                       ferry_dtype_name(source->dtype), ferry_dtype_name(target->dtype));
    }
    return FERRY_OK;
}

/* ---- normal form ---- */

/* Walks a dim the other way round. */
static void mirror(fy_item_t *item, fy_dim_t *dim) {
    item->target += (int64_t)(dim->extent - 1) * dim->target;
    item->source += (int64_t)(dim->extent - 1) * dim->source;
    dim->target = -dim->target;
    dim->source = -dim->source;
}

/* Sorted by falling target stride, dims of extent 1 left out. */
static uint32_t sort_dims(const ferry_view_t *target, const ferry_view_t *source, fy_item_t *item,
                          fy_dim_t *dims) {
    uint32_t ndim = 0;
    for (uint32_t i = 0; i < target->ndim; i++) {
        if (target->shape[i] == 1) {
            continue;
        }
        fy_dim_t dim = {target->shape[i], target->strides[i] * item->target_width,
                        source->strides[i] * item->source_width};
        if (dim.target < 0) {
            mirror(item, &dim);
        }
        uint32_t at = ndim++;
        for (; at > 0 && dims[at - 1].target < dim.target; at--) {
            dims[at] = dims[at - 1];
        }
        dims[at] = dim;
    }
    return ndim;
}

static bool continues(int64_t outer, uint64_t extent, int64_t inner) {
    int64_t end = 0;
    return !__builtin_mul_overflow((int64_t)extent, inner, &end) && outer == end;
}

/* A dim that goes on where the one inside it ends, on both sides, is one dim with it. */
static uint32_t merge_dims(fy_dim_t *dims, uint32_t ndim) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        fy_dim_t *outer = kept > 0 ? &dims[kept - 1] : NULL;
        if (outer != NULL && continues(outer->target, dims[i].extent, dims[i].target) &&
            continues(outer->source, dims[i].extent, dims[i].source)) {
            uint64_t extents = outer->extent * dims[i].extent;
            *outer = dims[i];
            outer->extent = extents;
        } else {
            dims[kept++] = dims[i];
        }
    }
    return kept;
}

static fy_dim_t take_dim(fy_item_t *item, fy_dim_t *dims, uint32_t at) {
    fy_dim_t dim = dims[at];
    item->ndim--;
    for (uint32_t i = at; i < item->ndim; i++) {
        dims[i] = dims[i + 1];
    }
    return dim;
}

static uint64_t magnitude(int64_t stride) {
    return stride < 0 ? (uint64_t)-stride : (uint64_t)stride;
}

/* Takes `a` and `b` out of the dims. True when the two sides run across each other. */
static bool take_blocked(fy_item_t *item, fy_dim_t *dims) {
    item->a = take_dim(item, dims, item->ndim - 1);
    if (item->ndim == 0) {
        return false;
    }
    uint32_t best = item->ndim - 1;
    bool crossed = false;
    uint64_t least = magnitude(item->a.source);
    for (uint32_t i = 0; i < item->ndim; i++) {
        uint64_t stride = magnitude(dims[i].source);
        if (stride > 0 && stride < least) {
            least = stride;
            best = i;
            crossed = true;
        }
    }
    item->b = take_dim(item, dims, best);
    if (item->b.source < 0) {
        mirror(item, &item->b);
    }
    return crossed;
}

/* ---- choices ---- */

static void set_blocks(fy_item_t *item, uint64_t a_block, uint64_t b_block) {
    item->a_block = fy_max_u64(a_block, 1);
    item->b_block = fy_max_u64(b_block, 1);
}

/* Whether the innermost dim is without gaps on both sides. */
static bool gapless(const fy_item_t *item, const fy_dim_t *dims) {
    return item->ndim > 0 && dims[item->ndim - 1].target == item->target_width &&
           dims[item->ndim - 1].source == item->source_width;
}

static void choose_cast(fy_item_t *item, fy_dim_t *dims) {
    if (gapless(item, dims) && (dims[item->ndim - 1].extent >= CAST_RUN || item->ndim == 1)) {
        item->kind = FY_ITEM_CAST_LONG;
        item->a = take_dim(item, dims, item->ndim - 1);
        set_blocks(item, CAST_LONG_BLOCK, 1);
        return;
    }
    item->kind = FY_ITEM_CAST_TILE;
    if (item->ndim == 0) {
        set_blocks(item, 1, 1);
    } else if (take_blocked(item, dims)) {
        set_blocks(item, CAST_BLOCK / CAST_EDGE, CAST_EDGE);
    } else {
        item->a_block = fy_min_u64(item->a.extent, CAST_BLOCK);
        set_blocks(item, item->a_block, CAST_BLOCK / item->a_block);
    }
}

static void choose_copy(fy_item_t *item, fy_dim_t *dims) {
    item->run = item->target_width;
    if (gapless(item, dims)) {
        item->run *= take_dim(item, dims, item->ndim - 1).extent;
    }
    uint64_t run = item->run;
    if (item->ndim == 0 || run >= LONG_RUN) {
        item->kind = FY_ITEM_LONG;
        item->a = (fy_dim_t){run, 1, 1};
        set_blocks(item, LONG_BLOCK, 1);
        return;
    }
    item->kind = FY_ITEM_TILE;
    if (!take_blocked(item, dims)) {
        uint64_t a_block = fy_max_u64(TILE_BYTES / run, 1);
        uint64_t row = fy_max_u64(run * fy_min_u64(item->a.extent, a_block), 1);
        set_blocks(item, a_block, TILE_BYTES / row);
        return;
    }
    bool single = run == 1 || run == 2 || run == 4 || run == 8;
    if (single && item->a.target == (int64_t)run && item->b.source == (int64_t)run) {
        item->kind = FY_ITEM_TURN;
        uint64_t edge = run == 1 ? TURN_EDGE_1 : TURN_BYTES / run;
        set_blocks(item, edge, edge);
        return;
    }
    /* Blocks that use up the pages they touch, on both sides; narrower on the source's where runs are
     * short, to keep a unit small. */
    set_blocks(item, PAGE / run, (run >= 256 ? PAGE : 1024) / run);
}

/* Where every row of the target begins at one place in its line, blocks end on lines. */
static uint64_t shift_of(const fy_item_t *item) {
    uint64_t step = (uint64_t)item->a.target;
    uint64_t place = (uintptr_t)item->target % FY_LINE;
    bool even = item->b.target % FY_LINE == 0 && FY_LINE % step == 0 && place % step == 0 &&
                item->a_block * step % FY_LINE == 0;
    for (uint32_t i = 0; i < item->ndim && even; i++) {
        even = item->dims[i].target % FY_LINE == 0;
    }
    return even ? place / step : 0;
}

ferry_status_t fy_item_prepare(const ferry_view_t *target, const ferry_view_t *source,
                               uint32_t flags, fy_dim_t dims[FERRY_MAX_DIMS], fy_item_t *item_p,
                               ferry_error_t *err) {
    FY_TRY(check(target, source, flags, err));
    fy_item_t item = {.target = target->data, .source = source->data, .dims = dims};
    FY_TRY(fy_kernels_get(&item.kernels, err));
    uint64_t elements = 0;
    FY_TRY(ferry_view_elements(target, &elements, err));
    item.target_width = (uint8_t)(ferry_dtype_bits(target->dtype) / 8);
    item.source_width = (uint8_t)(ferry_dtype_bits(source->dtype) / 8);
    item.bytes = elements * item.target_width;
    item.weight = elements * (item.target_width + (uint64_t)item.source_width);
    item.a = (fy_dim_t){1, 1, 1};
    item.b = (fy_dim_t){1, 0, 0};
    if (elements == 0) {
        *item_p = item;
        return FERRY_OK;
    }
    item.ndim = merge_dims(dims, sort_dims(target, source, &item, dims));
    if (target->dtype != source->dtype) {
        bool saturate = target->dtype == FERRY_F8E4M3 && (flags & FERRY_COPY_SATURATE) != 0;
        int to = saturate ? FY_FLOAT_F8E4M3_SAT : fy_float_index(target->dtype);
        item.cast = item.kernels->cast[fy_float_index(source->dtype)][to];
        item.cast_stream = item.kernels->cast_stream[fy_float_index(source->dtype)][to];
        choose_cast(&item, dims);
    } else {
        choose_copy(&item, dims);
    }
    item.a_shift = shift_of(&item);
    item.a_blocks = fy_ceil_div(item.a.extent + item.a_shift, item.a_block);
    item.b_blocks = fy_ceil_div(item.b.extent, item.b_block);
    item.units = item.a_blocks * item.b_blocks;
    for (uint32_t i = 0; i < item.ndim; i++) {
        item.units *= dims[i].extent;
    }
    *item_p = item;
    return FERRY_OK;
}
