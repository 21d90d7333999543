/* layout.h - inside of a layout, and the interval lists that it gives.
 *
 * An axis map says, for one dim of one length, what every part holds. A part is one choice of
 * coordinates on the mesh axes that cut the dim; ranks that differ only on other axes share it. So the
 * parts of a dim are disjoint and together cover it, which everything above relies on. */
#ifndef FERRY_LAYOUT_LAYOUT_H
#define FERRY_LAYOUT_LAYOUT_H

#include <ferry/layout.h>

#include "base/memory.h"

struct ferry_layout {
    fy_arena_t arena;
    uint32_t naxes;
    uint32_t nranks;
    ferry_axis_t axes[FERRY_MAX_AXES];
    ferry_placement_t placements[FERRY_MAX_AXES];
    uint32_t strides[FERRY_MAX_AXES]; /* of the row-major mesh index */
    uint32_t *ranks;
    uint32_t *by_rank; /* mesh indices in ascending order of their rank */
};

/* More intervals than this in one dim are refused rather than computed. */
#define FY_MAX_INTERVALS (UINT64_C(1) << 24)

typedef struct fy_intervals {
    ferry_interval_t *items;
    size_t count;
    size_t cap;
} fy_intervals_t;

/* Appends [lo, hi); drops it when empty, joins it to the last one when that is at or after index
 * `first` and ends where this begins. */
bool fy_intervals_push(fy_intervals_t *list, size_t first, uint64_t lo, uint64_t hi);

/* Appends what rank `r` of an axis of `width` ranks holds of [0, length), ascending. The place named
 * in errors is the placement's dim. */
ferry_status_t fy_cut(const ferry_placement_t *placement, uint32_t width, uint32_t r,
                      uint64_t length, fy_intervals_t *list, ferry_error_t *err);

typedef struct fy_axis_map {
    uint32_t nparts;
    size_t *first;               /* nparts + 1 places in intervals */
    ferry_interval_t *intervals; /* of part p: first[p] .. first[p + 1] */
    uint64_t *offsets; /* beside each interval: where it begins in the part's local order */
    uint64_t *lengths; /* of each part: elements it holds */
} fy_axis_map_t;

/* For dim `dim` (which no axis may cut) of `length` elements. fy_axis_map_fini frees it. */
ferry_status_t fy_axis_map_init(fy_axis_map_t *map, const ferry_layout_t *layout, uint32_t dim,
                                uint64_t length, ferry_error_t *err);
void fy_axis_map_fini(fy_axis_map_t *map);

/* The part of `dim` that the rank at this mesh index holds. */
uint32_t fy_layout_part(const ferry_layout_t *layout, uint32_t index, uint32_t dim);

static inline uint32_t fy_layout_coordinate(const ferry_layout_t *layout, uint32_t index,
                                            uint32_t axis) {
    return index / layout->strides[axis] % layout->axes[axis].size;
}

static inline bool fy_layout_cuts(const ferry_layout_t *layout, uint32_t axis, uint32_t dim) {
    return layout->placements[axis].kind == FERRY_SHARD && layout->placements[axis].dim == dim;
}

/* The product of the shape; FERRY_OVERFLOW past 64 bits. 1 for no dims. */
ferry_status_t fy_shape_elements(uint32_t ndim, const uint64_t *shape, uint64_t *elements_p,
                                 ferry_error_t *err);

#endif
