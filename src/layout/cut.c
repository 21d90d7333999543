/* cut.c - the ways an axis cuts a length.
 *
 * All cuts are lists of segments of one rule, torch's: n segments of ceil(units / n) units each, of
 * which the last may be short and those behind it empty. Invariant: for one axis, the lists of all
 * ranks are disjoint and cover the length.
 *
 * Work is bounded before it is done: a cut that would make more than FY_MAX_INTERVALS pieces is
 * refused, so no text or file makes ferry loop for hours. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/fail.h"
#include "layout/layout.h"

/* n equal segments of a length, in whole units: the first `used` of them are not empty. */
typedef struct segments {
    uint64_t length;
    uint64_t step; /* elements in a full one */
    uint64_t used;
} segments_t;

static segments_t segments_of(uint64_t length, uint64_t unit, uint64_t n) {
    uint64_t u = unit > 0 ? unit : 1;
    uint64_t units = fy_ceil_div(length, u);
    uint64_t each = fy_ceil_div(units, n);
    segments_t s = {length, 0, 0};
    if (each > 0) {
        s.used = fy_ceil_div(units, each);
        /* A step past the length (one segment that takes all) is the length itself. */
        if (!fy_mul_u64(each, u, &s.step) || s.step > length) {
            s.step = length;
        }
    }
    return s;
}

static ferry_interval_t segment(const segments_t *s, uint64_t i) {
    if (i >= s->used) {
        return (ferry_interval_t){s->length, s->length};
    }
    uint64_t lo = i * s->step;
    uint64_t hi = i + 1 < s->used ? lo + s->step : s->length;
    return (ferry_interval_t){lo, hi};
}

bool fy_intervals_push(fy_intervals_t *list, size_t first, uint64_t lo, uint64_t hi) {
    if (lo == hi) {
        return true;
    }
    if (list->count > first && list->items[list->count - 1].hi == lo) {
        list->items[list->count - 1].hi = hi;
        return true;
    }
    if (!fy_reserve(&list->items, &list->cap, list->count + 1, sizeof *list->items)) {
        return false;
    }
    list->items[list->count++] = (ferry_interval_t){lo, hi};
    return true;
}

static ferry_status_t too_many(uint32_t dim, ferry_error_t *err) {
    return fy_fail(err, FERRY_OVERFLOW, "dim %" PRIu32 " is cut into more than %" PRIu64 " pieces",
                   dim, FY_MAX_INTERVALS);
}

static ferry_status_t nomem(ferry_error_t *err) {
    return fy_fail_nomem(err, "the intervals of a layout");
}

/* Rank r's pieces of one component at [base, base + length), for all cuts but RAGGED. */
static ferry_status_t cut_component(const ferry_placement_t *p, uint32_t width, uint32_t r,
                                    uint64_t base, uint64_t length, size_t first,
                                    fy_intervals_t *list, ferry_error_t *err) {
    if (p->cut == FERRY_CUT_STRIDED) {
        segments_t parts = segments_of(length, 1, p->arg);
        if (parts.used > FY_MAX_INTERVALS / width) {
            return too_many(p->dim, err);
        }
        for (uint64_t i = 0; i < parts.used; i++) {
            ferry_interval_t part = segment(&parts, i);
            segments_t inner = segments_of(part.hi - part.lo, p->unit, width);
            ferry_interval_t own = segment(&inner, r);
            if (!fy_intervals_push(list, first, base + part.lo + own.lo, base + part.lo + own.hi)) {
                return nomem(err);
            }
        }
        return FERRY_OK;
    }
    /* The others deal segments to the ranks in turn; an even cut is one turn. */
    segments_t s = {0, 0, 0};
    if (p->cut == FERRY_CUT_CYCLIC) {
        s = (segments_t){length, fy_min_u64(p->arg, length),
                         length > 0 ? fy_ceil_div(length, p->arg) : 0};
    } else {
        uint64_t n = width;
        uint64_t turns = p->cut == FERRY_CUT_STRIDE ? p->arg : 1;
        if (!fy_mul_u64(n, turns, &n)) {
            return fy_fail(err, FERRY_OVERFLOW,
                           "dim %" PRIu32 ": %" PRIu32 " ranks times a stride of %" PRIu64
                           " pass 64 bits",
                           p->dim, width, turns);
        }
        s = segments_of(length, p->unit, n);
    }
    if (s.used > FY_MAX_INTERVALS) {
        return too_many(p->dim, err);
    }
    for (uint64_t i = r; i < s.used; i += width) {
        ferry_interval_t own = segment(&s, i);
        if (!fy_intervals_push(list, first, base + own.lo, base + own.hi)) {
            return nomem(err);
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_cut(const ferry_placement_t *p, uint32_t width, uint32_t r, uint64_t length,
                      fy_intervals_t *list, ferry_error_t *err) {
    size_t first = list->count;
    bool ragged = p->cut == FERRY_CUT_RAGGED;
    const uint64_t *sizes = ragged ? p->lengths : p->sizes;
    size_t nsizes = ragged ? p->nlengths : p->nsizes;
    if (!ragged && nsizes == 0) {
        return cut_component(p, width, r, 0, length, first, list, err);
    }
    uint64_t total = 0;
    for (size_t i = 0; i < nsizes; i++) {
        total += sizes[i]; /* fits: ferry_layout_create saw to it */
    }
    if (total != length) {
        return fy_fail(err, FERRY_INVALID,
                       "%s of dim %" PRIu32 " add up to %" PRIu64 ", but %" PRIu64 " are to be cut",
                       ragged ? "ragged lengths" : "sizes", p->dim, total, length);
    }
    uint64_t base = 0;
    for (size_t i = 0; i < nsizes; i++) {
        if (!ragged) {
            FY_TRY(cut_component(p, width, r, base, sizes[i], first, list, err));
        } else if (i == r && !fy_intervals_push(list, first, base, base + sizes[i])) {
            return nomem(err);
        }
        base += sizes[i];
    }
    return FERRY_OK;
}
