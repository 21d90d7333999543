/* axismap.c - the interval lists of one dim, axis after axis.
 *
 * Begins with one part that holds everything. Every mesh axis that cuts the dim replaces each part by
 * as many as the axis is wide, cutting the part's local order and translating the pieces back to
 * global intervals. Invariant, before and after each axis: parts are disjoint, cover the dim, and
 * each list is ascending. */
#include "base/checked.h"
#include "base/fail.h"
#include "layout/layout.h"

#include <string.h>

void fy_axis_map_fini(fy_axis_map_t *map) {
    fy_free(map->first);
    fy_free(map->intervals);
    fy_free(map->offsets);
    fy_free(map->lengths);
    memset(map, 0, sizeof *map);
}

/* Fills offsets and lengths from the intervals. */
static bool map_measure(fy_axis_map_t *map) {
    size_t count = map->first[map->nparts];
    map->offsets = fy_alloc(count, sizeof *map->offsets);
    map->lengths = fy_alloc(map->nparts, sizeof *map->lengths);
    if (map->offsets == NULL || map->lengths == NULL) {
        return false;
    }
    for (uint32_t p = 0; p < map->nparts; p++) {
        uint64_t local = 0;
        for (size_t i = map->first[p]; i < map->first[p + 1]; i++) {
            map->offsets[i] = local;
            local += map->intervals[i].hi - map->intervals[i].lo;
        }
        map->lengths[p] = local;
    }
    return true;
}

static bool map_whole(fy_axis_map_t *map, uint64_t length) {
    map->nparts = 1;
    map->first = fy_alloc(2, sizeof *map->first);
    map->intervals = fy_alloc(1, sizeof *map->intervals);
    if (map->first == NULL || map->intervals == NULL) {
        return false;
    }
    map->first[0] = 0;
    map->first[1] = length > 0 ? 1 : 0;
    map->intervals[0] = (ferry_interval_t){0, length};
    return map_measure(map);
}

/* The last interval of part p that begins at or before `local` in its local order. */
static size_t map_locate(const fy_axis_map_t *map, uint32_t p, uint64_t local) {
    size_t lo = map->first[p];
    size_t hi = map->first[p + 1];
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (map->offsets[mid] <= local) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Appends the global intervals behind the local stretch `piece` of part p. */
static bool translate(const fy_axis_map_t *map, uint32_t p, ferry_interval_t piece, size_t first,
                      fy_intervals_t *out) {
    size_t i = map_locate(map, p, piece.lo);
    for (uint64_t local = piece.lo; local < piece.hi; i++) {
        uint64_t skip = local - map->offsets[i];
        uint64_t lo = map->intervals[i].lo + skip;
        uint64_t take = fy_min_u64(map->intervals[i].hi - lo, piece.hi - local);
        if (!fy_intervals_push(out, first, lo, lo + take)) {
            return false;
        }
        local += take;
    }
    return true;
}

/* Replaces *map by the map after one more axis. `pieces` and `out` are lists to work in. */
static ferry_status_t map_cut(fy_axis_map_t *map, const ferry_placement_t *placement,
                              uint32_t width, fy_intervals_t *pieces, fy_axis_map_t *next,
                              ferry_error_t *err) {
    fy_intervals_t out = {NULL, 0, 0};
    ferry_status_t status = FERRY_OK;
    next->nparts = map->nparts * width; /* at most the ranks of the mesh */
    next->first = fy_alloc((size_t)next->nparts + 1, sizeof *next->first);
    if (next->first == NULL || !fy_reserve(&out.items, &out.cap, 1, sizeof *out.items)) {
        return fy_fail_nomem(err, "the parts of a layout");
    }
    for (uint32_t p = 0; p < map->nparts && status == FERRY_OK; p++) {
        for (uint32_t r = 0; r < width && status == FERRY_OK; r++) {
            size_t first = out.count;
            next->first[p * width + r] = first;
            pieces->count = 0;
            status = fy_cut(placement, width, r, map->lengths[p], pieces, err);
            for (size_t i = 0; i < pieces->count && status == FERRY_OK; i++) {
                if (!translate(map, p, pieces->items[i], first, &out)) {
                    status = fy_fail_nomem(err, "the intervals of a layout");
                }
            }
            if (status == FERRY_OK && out.count > FY_MAX_INTERVALS) {
                status = fy_fail(err, FERRY_OVERFLOW, "dim %u is cut into too many pieces",
                                 placement->dim);
            }
        }
    }
    next->first[next->nparts] = out.count;
    next->intervals = out.items;
    if (status == FERRY_OK && !map_measure(next)) {
        status = fy_fail_nomem(err, "the intervals of a layout");
    }
    return status;
}

ferry_status_t fy_axis_map_init(fy_axis_map_t *map, const ferry_layout_t *layout, uint32_t dim,
                                uint64_t length, ferry_error_t *err) {
    memset(map, 0, sizeof *map);
    fy_intervals_t pieces = {NULL, 0, 0};
    ferry_status_t status = FERRY_OK;
    if (!map_whole(map, length)) {
        status = fy_fail_nomem(err, "the parts of a layout");
    }
    for (uint32_t a = 0; a < layout->naxes && status == FERRY_OK; a++) {
        if (fy_layout_cuts(layout, a, dim)) {
            fy_axis_map_t next;
            memset(&next, 0, sizeof next);
            status =
                map_cut(map, &layout->placements[a], layout->axes[a].size, &pieces, &next, err);
            fy_axis_map_fini(map);
            *map = next;
        }
    }
    fy_free(pieces.items);
    if (status != FERRY_OK) {
        fy_axis_map_fini(map);
    }
    return status;
}

uint32_t fy_layout_part(const ferry_layout_t *layout, uint32_t index, uint32_t dim) {
    uint32_t part = 0;
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (fy_layout_cuts(layout, a, dim)) {
            part = part * layout->axes[a].size + fy_layout_coordinate(layout, index, a);
        }
    }
    return part;
}
