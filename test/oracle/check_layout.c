/* check_layout.c - what the library says of a layout, against the lists of the oracle. */
#include "oracle/oracle.h"

#include <stdlib.h>
#include <string.h>

/* The intervals are `scale` times as long as the list says. */
static bool same_intervals(const orc_list_t *list, const ferry_interval_t *intervals, size_t n,
                           uint64_t scale) {
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (intervals[i].lo >= intervals[i].hi) {
            return orc_fail("interval %zu is empty", i);
        }
        if (i > 0 && intervals[i].lo <= intervals[i - 1].hi) {
            return orc_fail("interval %zu touches the one before it", i);
        }
        if (intervals[i].lo % scale != 0 || intervals[i].hi % scale != 0) {
            return orc_fail("interval %zu is not of whole indices", i);
        }
        for (uint64_t g = intervals[i].lo / scale; g < intervals[i].hi / scale; g++, at++) {
            if (at >= list->count || list->at[at] != g) {
                return orc_fail("interval %zu: index %llu is not held at %llu", i,
                                (unsigned long long)g, (unsigned long long)at);
            }
        }
    }
    return at == list->count || orc_fail("intervals hold %llu of %llu indices",
                                         (unsigned long long)at, (unsigned long long)list->count);
}

/* A side as the library sees it. */
typedef struct seen {
    const orc_tensor_t *tensor;
    const orc_side_t *side;
    const ferry_layout_t *layout;
    uint64_t shape[ORC_DIMS];
} seen_t;

static bool check_dim(const seen_t *seen, uint32_t place, uint32_t dim) {
    const orc_side_t *side = seen->side;
    const ferry_layout_t *layout = seen->layout;
    const orc_list_t *list = &side->lists[place][dim];
    uint32_t rank = side->layout->ranks[place];
    ferry_error_t err = FERRY_ERROR_INIT;
    size_t need = SIZE_MAX;
    if (ferry_layout_intervals(layout, side->ndim, seen->shape, rank, dim, NULL, 0, &need, &err)) {
        return orc_fail("intervals of rank %u dim %u: %s", rank, dim, err.text);
    }
    if (need > list->count) {
        return orc_fail("rank %u dim %u: %zu intervals for %llu indices", rank, dim, need,
                        (unsigned long long)list->count);
    }
    ferry_interval_t *intervals = orc_alloc(need, sizeof *intervals);
    size_t count = SIZE_MAX;
    bool ok = ferry_layout_intervals(layout, side->ndim, seen->shape, rank, dim, intervals, need,
                                     &count, &err) == FERRY_OK &&
              count == need && same_intervals(list, intervals, count, orc_scale(seen->tensor, dim));
    free(intervals);
    return ok || orc_fail("rank %u dim %u: wrong intervals", rank, dim);
}

static bool check_rank(const seen_t *seen, uint32_t place) {
    const orc_side_t *side = seen->side;
    const ferry_layout_t *layout = seen->layout;
    uint32_t rank = side->layout->ranks[place];
    uint32_t index = UINT32_MAX;
    if (!ferry_layout_find(layout, rank, &index) || index != place) {
        return orc_fail("rank %u is not found at place %u but %u", rank, place, index);
    }
    uint64_t local[ORC_DIMS];
    memset(local, 0xff, sizeof local);
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_local_shape(layout, side->ndim, seen->shape, rank, local, &err)) {
        return orc_fail("local shape of rank %u: %s", rank, err.text);
    }
    for (uint32_t d = 0; d < side->ndim; d++) {
        if (local[d] != side->lists[place][d].count * orc_scale(seen->tensor, d)) {
            return orc_fail("rank %u dim %u: length %llu, not %llu", rank, d,
                            (unsigned long long)local[d],
                            (unsigned long long)side->lists[place][d].count);
        }
        if (!check_dim(seen, place, d)) {
            return false;
        }
    }
    return true;
}

/* A rank that is not in the mesh holds nothing. */
static bool check_stranger(const seen_t *seen) {
    const orc_side_t *side = seen->side;
    const ferry_layout_t *layout = seen->layout;
    uint32_t stranger = 0;
    while (orc_place(side->layout, stranger) != UINT32_MAX) {
        stranger++;
    }
    if (ferry_layout_find(layout, stranger, NULL)) {
        return orc_fail("rank %u is found in a mesh without it", stranger);
    }
    uint64_t local[ORC_DIMS];
    memset(local, 0xff, sizeof local);
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_local_shape(layout, side->ndim, seen->shape, stranger, local, &err)) {
        return orc_fail("local shape of a stranger: %s", err.text);
    }
    for (uint32_t d = 0; d < side->ndim; d++) {
        size_t count = SIZE_MAX;
        if (local[d] != 0 ||
            ferry_layout_intervals(layout, side->ndim, seen->shape, stranger, d, NULL, 0, &count,
                                   &err) != FERRY_OK ||
            count != 0) {
            return orc_fail("rank %u is not in the mesh and yet holds something", stranger);
        }
    }
    return true;
}

static bool check_text(const ferry_layout_t *layout) {
    size_t need = ferry_layout_format(layout, NULL, 0);
    char *text = orc_alloc(need + 1, 1);
    char *again = orc_alloc(need + 1, 1);
    size_t length = ferry_layout_format(layout, text, need + 1);
    ferry_layout_t *parsed = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    bool ok = length == need && strlen(text) == need;
    if (!ok) {
        orc_fail("text '%s' is said to have %zu characters", text, need);
    } else if (ferry_layout_parse(text, &parsed, &err) != FERRY_OK) {
        ok = orc_fail("text '%s' does not parse: %s", text, err.text);
    } else if (!ferry_layout_equal(layout, parsed) || !ferry_layout_equal(parsed, layout)) {
        ok = orc_fail("text '%s' parses to another layout", text);
    } else if (ferry_layout_format(parsed, again, need + 1) != need || strcmp(text, again) != 0) {
        ok = orc_fail("text '%s' comes back as '%s'", text, again);
    }
    ferry_layout_destroy(parsed);
    free(text);
    free(again);
    return ok;
}

static bool check_side(const orc_tensor_t *tensor, const orc_side_t *side,
                       const ferry_layout_t *layout) {
    seen_t seen = {tensor, side, layout, {0}};
    for (uint32_t d = 0; d < side->ndim; d++) {
        seen.shape[d] = side->shape[d] * orc_scale(tensor, d);
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_check(layout, side->ndim, seen.shape, &err) != FERRY_OK) {
        return orc_fail("layout does not fit: %s", err.text);
    }
    for (uint32_t i = 0; i < side->layout->nranks; i++) {
        if (!check_rank(&seen, i)) {
            return false;
        }
    }
    return check_stranger(&seen) && check_text(layout);
}

bool orc_check_layouts(const orc_case_t *c) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        const orc_tensor_t *tensor = &c->tensors[t];
        if (!check_side(tensor, tensor->from, tensor->source_layout) ||
            !check_side(tensor, tensor->to, tensor->target_layout)) {
            return false;
        }
    }
    return true;
}
