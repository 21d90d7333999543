/* item.h - one copy, prepared: dims in order, merged, cut into units of work.
 *
 * The dims of target and source are walked together. They are sorted by falling target stride, all
 * target strides are positive, what is contiguous on both sides is merged, and the innermost stretch
 * without gaps on either side is the run. Two dims are blocked: `a`, the one with the smallest target
 * stride, and `b`, the one with the smallest source stride (or the next one out, where that is `a`
 * again); the others are `dims`. A unit is one block of a x b; units 0 .. units - 1 cover every element
 * once, whoever does which. */
#ifndef FERRY_KERNEL_ITEM_H
#define FERRY_KERNEL_ITEM_H

#include "kernel/kernels.h"

/* Targets of this many bytes are written past the caches: about where the lines would be pushed out of
 * a core's share before anybody reads them. Measured in docs/decisions/kernels.md. */
#define FY_STREAM_BYTES (UINT64_C(4) << 20)

typedef struct fy_dim {
    uint64_t extent;
    int64_t target; /* strides, in bytes */
    int64_t source;
} fy_dim_t;

typedef enum fy_item_kind {
    FY_ITEM_LONG,      /* runs so long that they are cut: `a` walks the bytes of the run */
    FY_ITEM_TILE,      /* blocks of shorter runs */
    FY_ITEM_TURN,      /* transposes of single elements, both sides contiguous, each its own way */
    FY_ITEM_CAST_LONG, /* as LONG, `a` walks elements */
    FY_ITEM_CAST_TILE, /* blocks of elements, gathered, cast and scattered */
} fy_item_kind_t;

typedef struct fy_item {
    uint8_t *target;
    const uint8_t *source;
    const fy_kernels_t *kernels;
    fy_cast_fn cast;        /* NULL: the bytes as they are */
    fy_cast_fn cast_stream; /* may be NULL */
    const fy_dim_t *dims;
    uint32_t ndim;
    fy_item_kind_t kind;
    bool stream;
    uint8_t target_width; /* bytes of an element */
    uint8_t source_width;
    uint64_t run; /* TILE, TURN: bytes of a run */
    fy_dim_t a;
    fy_dim_t b;
    uint64_t a_block;
    uint64_t b_block;
    uint64_t
        a_shift; /* the first block along `a` is this much shorter, so that others start on lines */
    uint64_t a_blocks;
    uint64_t b_blocks;
    uint64_t units;
    uint64_t bytes;  /* written */
    uint64_t weight; /* read and written */
} fy_item_t;

/* Checks and prepares a copy of `source` to `target`. Fills dims[], to which item_p->dims then points.
 * `stream` is not decided. An empty copy has no units. */
ferry_status_t fy_item_prepare(const ferry_view_t *target, const ferry_view_t *source,
                               uint32_t flags, fy_dim_t dims[FERRY_MAX_DIMS], fy_item_t *item_p,
                               ferry_error_t *err);

/* Whether so many bytes are streamed under these flags. */
bool fy_item_streams(uint32_t flags, uint64_t bytes);

/* Does the units [first, last). No fence. */
void fy_item_run(const fy_item_t *item, uint64_t first, uint64_t last);

/* Place of a dtype in the cast tables, or -1. */
int fy_float_index(ferry_dtype_t dtype);

/* FERRY_UNSUPPORTED unless this process can address the view; then what ferry_view_extent says. */
ferry_status_t fy_view_usable(const ferry_view_t *view, const char *role, ferry_error_t *err);
/* The same, and that no two indices have one address. */
ferry_status_t fy_target_usable(const ferry_view_t *view, const char *role, ferry_error_t *err);
ferry_status_t fy_same_shape(const ferry_view_t *target, const ferry_view_t *source,
                             ferry_error_t *err);

#endif
