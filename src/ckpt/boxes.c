/* boxes.c - boxes of shards: clipping, meeting, their global places. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/folder.h"

bool fy_box_meet(uint32_t ndim, const fy_box_t *a, const fy_box_t *b, fy_box_t *both_p) {
    for (uint32_t i = 0; i < ndim; i++) {
        uint64_t lo = fy_max_u64(a->lo[i], b->lo[i]);
        uint64_t hi = fy_min_u64(a->lo[i] + a->extent[i], b->lo[i] + b->extent[i]);
        if (lo >= hi) {
            return false;
        }
        both_p->lo[i] = lo;
        both_p->extent[i] = hi - lo;
    }
    return true;
}

/* --- clipping ---------------------------------------------------------------------------------- */

typedef struct clip {
    uint32_t ndim;
    uint32_t order[FERRY_MAX_DIMS]; /* dims, largest stride first */
    const int64_t *strides;
    uint64_t from;
    uint64_t to;
    fy_box_fn_t fn;
    void *context;
} clip_t;

/* How far the dims from order[k] on reach beyond their first element. */
static uint64_t reach(const clip_t *clip, const fy_box_t *box, uint32_t k) {
    uint64_t span = 0;
    for (; k < clip->ndim; k++) {
        uint32_t dim = clip->order[k];
        span += (box->extent[dim] - 1) * (uint64_t)clip->strides[dim];
    }
    return span;
}

/* `box` begins at `first`; dims before order[k] have an extent of 1 or lie inside whatever the index. */
static ferry_status_t clip_from(const clip_t *clip, const fy_box_t *box, uint64_t first, uint32_t k,
                                ferry_error_t *err) {
    uint64_t last = first + reach(clip, box, k);
    if (first >= clip->to || last < clip->from) {
        return FERRY_OK;
    }
    if (first >= clip->from && last < clip->to) {
        return clip->fn(clip->context, box, err);
    }
    uint32_t dim = clip->order[k];
    uint64_t stride = (uint64_t)clip->strides[dim];
    uint64_t inner = reach(clip, box, k + 1);
    fy_box_t part = *box;
    uint64_t i = 0;
    while (i < box->extent[dim]) {
        uint64_t begin = first + i * stride;
        if (begin >= clip->to) {
            break;
        }
        if (begin + inner < clip->from) { /* to the first that reaches in */
            i += fy_ceil_div(clip->from - begin - inner, stride);
            continue;
        }
        uint64_t whole = 0; /* indices from i on that lie inside as they are */
        if (begin >= clip->from && begin + inner < clip->to) {
            whole = fy_min_u64(box->extent[dim] - i, (clip->to - 1 - inner - begin) / stride + 1);
        }
        part.lo[dim] = box->lo[dim] + i;
        part.extent[dim] = fy_max_u64(whole, 1);
        FY_TRY(whole > 0 ? clip->fn(clip->context, &part, err)
                         : clip_from(clip, &part, begin, k + 1, err));
        i += part.extent[dim];
    }
    return FERRY_OK;
}

ferry_status_t fy_box_clip(uint32_t ndim, const fy_box_t *box, uint64_t first,
                           const int64_t *strides, uint64_t from, uint64_t to, fy_box_fn_t fn,
                           void *context, ferry_error_t *err) {
    clip_t clip = {
        .ndim = ndim, .strides = strides, .from = from, .to = to, .fn = fn, .context = context};
    for (uint32_t i = 0; i < ndim; i++) {
        uint32_t at = i;
        for (; at > 0 && strides[clip.order[at - 1]] < strides[i]; at--) {
            clip.order[at] = clip.order[at - 1];
        }
        clip.order[at] = i;
    }
    return clip_from(&clip, box, first, 0, err);
}

/* --- global places ----------------------------------------------------------------------------- */

/* The intervals that a rank holds of each dim. */
typedef struct held {
    ferry_interval_t *list[FERRY_MAX_DIMS];
    size_t count[FERRY_MAX_DIMS];
} held_t;

static void held_fini(held_t *held) {
    for (uint32_t i = 0; i < FERRY_MAX_DIMS; i++) {
        fy_free(held->list[i]);
    }
}

static ferry_status_t held_init(held_t *held, const ferry_tensor_t *tensor, uint32_t rank,
                                ferry_error_t *err) {
    memset(held, 0, sizeof *held);
    for (uint32_t dim = 0; dim < tensor->ndim; dim++) {
        FY_TRY(ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim, NULL,
                                      0, &held->count[dim], err));
        held->list[dim] = fy_alloc(held->count[dim], sizeof *held->list[dim]);
        if (held->list[dim] == NULL) {
            return fy_fail_nomem(err, "the intervals of a shard");
        }
        FY_TRY(ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim,
                                      held->list[dim], held->count[dim], &held->count[dim], err));
    }
    return FERRY_OK;
}

typedef struct spread {
    const held_t *held;
    uint32_t ndim;
    const fy_box_t *box;
    uint64_t *global;
    fy_box_fn_t fn;
    void *context;
} spread_t;

/* Stretch by stretch in this dim, then inwards. */
static ferry_status_t spread_dim(const spread_t *spread, fy_box_t *part, uint32_t dim,
                                 ferry_error_t *err) {
    if (dim == spread->ndim) {
        return spread->fn(spread->context, part, err);
    }
    uint64_t lo = spread->box->lo[dim];
    uint64_t hi = lo + spread->box->extent[dim];
    uint64_t local = 0; /* where the interval begins in the shard */
    for (size_t i = 0; i < spread->held->count[dim] && local < hi; i++) {
        const ferry_interval_t *interval = &spread->held->list[dim][i];
        uint64_t length = interval->hi - interval->lo;
        uint64_t from = fy_max_u64(lo, local);
        uint64_t to = fy_min_u64(hi, local + length);
        if (from < to) {
            part->lo[dim] = from;
            part->extent[dim] = to - from;
            spread->global[dim] = interval->lo + (from - local);
            FY_TRY(spread_dim(spread, part, dim + 1, err));
        }
        local += length;
    }
    return FERRY_OK;
}

ferry_status_t fy_box_globals(const ferry_tensor_t *tensor, uint32_t rank, const fy_box_t *box,
                              uint64_t *global_p, fy_box_fn_t fn, void *context,
                              ferry_error_t *err) {
    held_t held;
    ferry_status_t status = held_init(&held, tensor, rank, err);
    if (status == FERRY_OK) {
        spread_t spread = {&held, tensor->ndim, box, global_p, fn, context};
        fy_box_t part = *box;
        status = spread_dim(&spread, &part, 0, err);
    }
    held_fini(&held);
    return status;
}

uint32_t fy_replica_of(const ferry_layout_t *layout, uint32_t rank) {
    uint32_t index = 0;
    uint32_t replica = 0;
    if (!ferry_layout_find(layout, rank, &index)) {
        return 0;
    }
    uint32_t naxes = ferry_layout_naxes(layout);
    uint32_t scale = 1;
    for (uint32_t axis = naxes; axis-- > 0;) {
        uint32_t size = ferry_layout_axis(layout, axis)->size;
        if (ferry_layout_placement(layout, axis)->kind != FERRY_SHARD) {
            replica += index % size * scale;
            scale *= size;
        }
        index /= size;
    }
    return replica;
}
