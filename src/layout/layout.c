/* layout.c - creating layouts and asking them.
 *
 * Invariant: a layout that exists is well formed on its own (axes, ranks, placement parameters);
 * whether it fits a shape is ferry_layout_check's question. */
#include "layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"

const char *ferry_reduce_name(ferry_reduce_op_t op) {
    switch (op) {
#define NAME(name, number, text)                                                                   \
    case FERRY_REDUCE_##name:                                                                      \
        return text;
        FERRY_REDUCE_MAP(NAME)
#undef NAME
    }
    return "?";
}

/* ---- checks that need no shape ---------------------------------------------------------------- */

static ferry_status_t check_sum(const char *what, uint32_t axis, const uint64_t *list, size_t count,
                                ferry_error_t *err) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (!fy_add_u64(total, list[i], &total)) {
            return fy_fail(err, FERRY_OVERFLOW, "axis %" PRIu32 ": %s add up to more than 64 bits",
                           axis, what);
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_cut(uint32_t axis, uint32_t width, const ferry_placement_t *p,
                                ferry_error_t *err) {
    bool has_arg =
        p->cut == FERRY_CUT_STRIDE || p->cut == FERRY_CUT_CYCLIC || p->cut == FERRY_CUT_STRIDED;
    if ((uint32_t)p->cut > FERRY_CUT_STRIDED) {
        return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 ": unknown cut %d", axis, (int)p->cut);
    }
    if (p->dim >= FERRY_MAX_DIMS) {
        return fy_fail(err, FERRY_INVALID,
                       "axis %" PRIu32 " cuts dim %" PRIu32 ", but tensors have at most %d dims",
                       axis, p->dim, FERRY_MAX_DIMS);
    }
    if (has_arg && p->arg == 0) {
        static const char *const names[] = {"", "a stride", "a cyclic block", "", "a split"};
        return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 ": %s of 0 means nothing", axis,
                       names[p->cut]);
    }
    if (p->unit > 1 && (p->cut == FERRY_CUT_CYCLIC || p->cut == FERRY_CUT_RAGGED)) {
        return fy_fail(err, FERRY_INVALID,
                       "axis %" PRIu32 ": unit does not go with cyclic or ragged", axis);
    }
    if (p->nsizes > 0 && (p->sizes == NULL || p->cut == FERRY_CUT_RAGGED)) {
        return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 ": sizes do not go with %s", axis,
                       p->sizes == NULL ? "a NULL list" : "ragged");
    }
    if (p->cut == FERRY_CUT_RAGGED && (p->nlengths != width || p->lengths == NULL)) {
        return fy_fail(err, FERRY_INVALID,
                       "axis %" PRIu32 " has %" PRIu32 " ranks but %zu ragged lengths", axis, width,
                       p->nlengths);
    }
    FY_TRY(check_sum("sizes", axis, p->sizes, p->nsizes, err));
    return check_sum("ragged lengths", axis, p->lengths,
                     p->cut == FERRY_CUT_RAGGED ? p->nlengths : 0, err);
}

static ferry_status_t check_placement(uint32_t axis, uint32_t width, const ferry_placement_t *p,
                                      ferry_error_t *err) {
    switch (p->kind) {
    case FERRY_REPLICATE:
        return FERRY_OK;
    case FERRY_PARTIAL:
        if ((uint32_t)p->op > FERRY_REDUCE_PRODUCT) {
            return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 ": unknown reduction %d", axis,
                           (int)p->op);
        }
        return FERRY_OK;
    case FERRY_SHARD:
        return check_cut(axis, width, p, err);
    }
    return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 ": unknown placement %d", axis,
                   (int)p->kind);
}

static ferry_status_t check_name(uint32_t axis, const ferry_layout_params_t *params,
                                 ferry_error_t *err) {
    const char *name = params->axes[axis].name;
    if (name == NULL || name[0] == '\0') {
        return FERRY_OK;
    }
    bool fine =
        (name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z') || name[0] == '_';
    size_t length = 0;
    for (; name[length] != '\0' && fine; length++) {
        char c = name[length];
        fine = length < FERRY_MAX_AXIS_NAME && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                                (c >= '0' && c <= '9') || c == '_');
    }
    if (!fine) {
        return fy_fail(err, FERRY_INVALID,
                       "axis %" PRIu32 ": '%.40s' is no name: 1 to %d letters, digits or _", axis,
                       name, FERRY_MAX_AXIS_NAME);
    }
    for (uint32_t b = 0; b < axis; b++) {
        if (params->axes[b].name != NULL && strcmp(params->axes[b].name, name) == 0) {
            return fy_fail(err, FERRY_INVALID, "two axes are named %s", name);
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_params(const ferry_layout_params_t *params, uint32_t *nranks_p,
                                   ferry_error_t *err) {
    if (params == NULL || params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "layout parameters of size %zu, expected %zu (FERRY_LAYOUT_PARAMS_INIT)",
                       params == NULL ? (size_t)0 : params->size, sizeof *params);
    }
    if (params->naxes == 0 || params->naxes > FERRY_MAX_AXES) {
        return fy_fail(err, FERRY_INVALID, "a mesh of %" PRIu32 " axes, 1 to %d are possible",
                       params->naxes, FERRY_MAX_AXES);
    }
    FY_NEED(params->axes, err);
    FY_NEED(params->placements, err);
    uint64_t nranks = 1;
    for (uint32_t a = 0; a < params->naxes; a++) {
        if (params->axes[a].size == 0) {
            return fy_fail(err, FERRY_INVALID, "axis %" PRIu32 " of the mesh has no ranks", a);
        }
        nranks *= params->axes[a].size; /* both below 2^32, and nranks below 2^21 before */
        if (nranks > (uint64_t)FERRY_MAX_RANK + 1) {
            return fy_fail(err, FERRY_OVERFLOW, "the mesh has more than %d ranks",
                           FERRY_MAX_RANK + 1);
        }
        FY_TRY(check_name(a, params, err));
        FY_TRY(check_placement(a, params->axes[a].size, &params->placements[a], err));
    }
    *nranks_p = (uint32_t)nranks;
    return FERRY_OK;
}

/* ---- create ----------------------------------------------------------------------------------- */

typedef struct rank_place {
    uint32_t rank;
    uint32_t index;
} rank_place_t;

static int rank_place_compare(const void *a, const void *b) {
    uint32_t x = ((const rank_place_t *)a)->rank;
    uint32_t y = ((const rank_place_t *)b)->rank;
    return x < y ? -1 : x > y;
}

/* Fills by_rank, and finds a rank that is too large or listed twice. */
static ferry_status_t order_ranks(ferry_layout_t *layout, ferry_error_t *err) {
    uint32_t n = layout->nranks;
    bool ascending = true;
    for (uint32_t i = 0; i < n; i++) {
        layout->by_rank[i] = i;
        if (layout->ranks[i] > FERRY_MAX_RANK) {
            return fy_fail(err, FERRY_OVERFLOW, "rank %" PRIu32 " is above the largest, %d",
                           layout->ranks[i], FERRY_MAX_RANK);
        }
        ascending = ascending && (i == 0 || layout->ranks[i - 1] < layout->ranks[i]);
    }
    if (ascending) {
        return FERRY_OK;
    }
    rank_place_t *places = fy_alloc(n, sizeof *places);
    if (places == NULL) {
        return fy_fail_nomem(err, "the ranks of a layout");
    }
    for (uint32_t i = 0; i < n; i++) {
        places[i] = (rank_place_t){layout->ranks[i], i};
    }
    qsort(places, n, sizeof *places, rank_place_compare);
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; i < n && status == FERRY_OK; i++) {
        layout->by_rank[i] = places[i].index;
        if (i > 0 && places[i].rank == places[i - 1].rank) {
            status = fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " is listed twice in the mesh",
                             places[i].rank);
        }
    }
    fy_free(places);
    return status;
}

/* A placement with the fields that do not count for its kind and cut set to zero, so that layouts
 * that mean the same are equal. */
static bool copy_placement(fy_arena_t *arena, const ferry_placement_t *from,
                           ferry_placement_t *to) {
    memset(to, 0, sizeof *to);
    to->kind = from->kind;
    if (from->kind == FERRY_PARTIAL) {
        to->op = from->op;
    }
    if (from->kind != FERRY_SHARD) {
        return true;
    }
    to->dim = from->dim;
    to->cut = from->cut;
    to->arg = from->cut == FERRY_CUT_EVEN || from->cut == FERRY_CUT_RAGGED ? 0 : from->arg;
    to->unit = from->unit > 1 ? from->unit : 0;
    if (from->cut == FERRY_CUT_RAGGED) {
        to->lengths = fy_arena_copy(arena, from->lengths, from->nlengths, sizeof *from->lengths);
        to->nlengths = from->nlengths;
        return to->lengths != NULL;
    }
    if (from->nsizes > 0) {
        to->sizes = fy_arena_copy(arena, from->sizes, from->nsizes, sizeof *from->sizes);
        to->nsizes = from->nsizes;
        return to->sizes != NULL;
    }
    return true;
}

static bool copy_mesh(ferry_layout_t *layout, const ferry_layout_params_t *params) {
    bool fine = true;
    uint32_t stride = 1;
    for (uint32_t a = params->naxes; a-- > 0;) {
        const char *name = params->axes[a].name != NULL ? params->axes[a].name : "";
        layout->axes[a].name = fy_arena_string(&layout->arena, name);
        layout->axes[a].size = params->axes[a].size;
        layout->strides[a] = stride;
        stride *= params->axes[a].size;
        fine = fine && layout->axes[a].name != NULL &&
               copy_placement(&layout->arena, &params->placements[a], &layout->placements[a]);
    }
    layout->ranks = fy_arena_alloc(&layout->arena, layout->nranks, sizeof *layout->ranks);
    layout->by_rank = fy_arena_alloc(&layout->arena, layout->nranks, sizeof *layout->by_rank);
    if (!fine || layout->ranks == NULL || layout->by_rank == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < layout->nranks; i++) {
        layout->ranks[i] = params->ranks != NULL ? params->ranks[i] : i;
    }
    return true;
}

ferry_status_t ferry_layout_create(const ferry_layout_params_t *params, ferry_layout_t **layout_p,
                                   ferry_error_t *err) {
    uint32_t nranks = 0;
    FY_NEED(layout_p, err);
    FY_TRY(check_params(params, &nranks, err));
    ferry_layout_t *layout = fy_alloc_zero(1, sizeof *layout);
    if (layout == NULL) {
        return fy_fail_nomem(err, "a layout");
    }
    layout->naxes = params->naxes;
    layout->nranks = nranks;
    ferry_status_t status = FERRY_OK;
    if (!copy_mesh(layout, params)) {
        status = fy_fail_nomem(err, "a layout");
    } else {
        status = order_ranks(layout, err);
    }
    if (status != FERRY_OK) {
        ferry_layout_destroy(layout);
        return status;
    }
    *layout_p = layout;
    return FERRY_OK;
}

ferry_status_t ferry_layout_shift(const ferry_layout_t *layout, uint32_t shift,
                                  ferry_layout_t **layout_p, ferry_error_t *err) {
    FY_NEED(layout, err);
    uint32_t *ranks = fy_alloc(layout->nranks, sizeof *ranks);
    if (ranks == NULL) {
        return fy_fail_nomem(err, "the ranks of a layout");
    }
    for (uint32_t i = 0; i < layout->nranks; i++) {
        /* Saturate: order_ranks refuses what is too large, with the right words. */
        ranks[i] = shift > UINT32_MAX - layout->ranks[i] ? UINT32_MAX : layout->ranks[i] + shift;
    }
    ferry_layout_params_t params = {sizeof params, layout->naxes, layout->axes, layout->placements,
                                    ranks};
    ferry_status_t status = ferry_layout_create(&params, layout_p, err);
    fy_free(ranks);
    return status;
}

void ferry_layout_destroy(ferry_layout_t *layout) {
    if (layout != NULL) {
        fy_arena_fini(&layout->arena);
        fy_free(layout);
    }
}

/* ---- questions -------------------------------------------------------------------------------- */

static bool same_list(const uint64_t *a, size_t na, const uint64_t *b, size_t nb) {
    return na == nb && (na == 0 || memcmp(a, b, na * sizeof *a) == 0);
}

bool ferry_layout_equal(const ferry_layout_t *a, const ferry_layout_t *b) {
    if (a == b) {
        return true;
    }
    bool same = a->naxes == b->naxes && a->nranks == b->nranks &&
                memcmp(a->ranks, b->ranks, a->nranks * sizeof *a->ranks) == 0;
    for (uint32_t i = 0; same && i < a->naxes; i++) {
        const ferry_placement_t *p = &a->placements[i];
        const ferry_placement_t *q = &b->placements[i];
        same = a->axes[i].size == b->axes[i].size &&
               strcmp(a->axes[i].name, b->axes[i].name) == 0 && p->kind == q->kind &&
               p->op == q->op && p->cut == q->cut && p->dim == q->dim && p->arg == q->arg &&
               p->unit == q->unit && same_list(p->sizes, p->nsizes, q->sizes, q->nsizes) &&
               same_list(p->lengths, p->nlengths, q->lengths, q->nlengths);
    }
    return same;
}

uint32_t ferry_layout_naxes(const ferry_layout_t *layout) {
    return layout->naxes;
}

const ferry_axis_t *ferry_layout_axis(const ferry_layout_t *layout, uint32_t axis) {
    return &layout->axes[axis];
}

const ferry_placement_t *ferry_layout_placement(const ferry_layout_t *layout, uint32_t axis) {
    return &layout->placements[axis];
}

uint32_t ferry_layout_nranks(const ferry_layout_t *layout) {
    return layout->nranks;
}

const uint32_t *ferry_layout_ranks(const ferry_layout_t *layout) {
    return layout->ranks;
}

bool ferry_layout_find(const ferry_layout_t *layout, uint32_t rank, uint32_t *index_p) {
    uint32_t lo = 0;
    uint32_t hi = layout->nranks;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        uint32_t there = layout->ranks[layout->by_rank[mid]];
        if (there == rank) {
            if (index_p != NULL) {
                *index_p = layout->by_rank[mid];
            }
            return true;
        }
        if (there < rank) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return false;
}

/* ---- against a shape -------------------------------------------------------------------------- */

ferry_status_t fy_shape_elements(uint32_t ndim, const uint64_t *shape, uint64_t *elements_p,
                                 ferry_error_t *err) {
    if (ndim > FERRY_MAX_DIMS) {
        return fy_fail(err, FERRY_INVALID, "%" PRIu32 " dims, but tensors have at most %d", ndim,
                       FERRY_MAX_DIMS);
    }
    /* Zero-length dims count as 1 here: what the other dims multiply to must fit as well, since
     * strides and volumes of parts are made of them. */
    uint64_t elements = 1;
    bool empty = false;
    for (uint32_t d = 0; d < ndim; d++) {
        empty = empty || shape[d] == 0;
        if (!fy_mul_u64(elements, fy_max_u64(shape[d], 1), &elements)) {
            return fy_fail(err, FERRY_OVERFLOW, "the shape has more elements than 64 bits count");
        }
    }
    *elements_p = empty ? 0 : elements;
    return FERRY_OK;
}

static ferry_status_t check_dims(const ferry_layout_t *layout, uint32_t ndim, const uint64_t *shape,
                                 ferry_error_t *err) {
    uint64_t elements = 0;
    FY_NEED(layout, err);
    FY_NEED_ARRAY(shape, ndim, err);
    FY_TRY(fy_shape_elements(ndim, shape, &elements, err));
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const ferry_placement_t *p = &layout->placements[a];
        if (p->kind == FERRY_SHARD && p->dim >= ndim) {
            return fy_fail(err, FERRY_INVALID,
                           "axis %" PRIu32 " cuts dim %" PRIu32 ", but the tensor has %" PRIu32
                           " dims",
                           a, p->dim, ndim);
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_layout_check(const ferry_layout_t *layout, uint32_t ndim,
                                  const uint64_t *shape, ferry_error_t *err) {
    FY_TRY(check_dims(layout, ndim, shape, err));
    for (uint32_t d = 0; d < ndim; d++) {
        fy_axis_map_t map;
        FY_TRY(fy_axis_map_init(&map, layout, d, shape[d], err));
        fy_axis_map_fini(&map);
    }
    return FERRY_OK;
}

ferry_status_t ferry_layout_local_shape(const ferry_layout_t *layout, uint32_t ndim,
                                        const uint64_t *shape, uint32_t rank, uint64_t *local_p,
                                        ferry_error_t *err) {
    uint64_t local[FERRY_MAX_DIMS] = {0};
    uint32_t index = 0;
    FY_NEED_ARRAY(local_p, ndim, err);
    FY_TRY(check_dims(layout, ndim, shape, err));
    if (ferry_layout_find(layout, rank, &index)) {
        for (uint32_t d = 0; d < ndim; d++) {
            fy_axis_map_t map;
            FY_TRY(fy_axis_map_init(&map, layout, d, shape[d], err));
            local[d] = map.lengths[fy_layout_part(layout, index, d)];
            fy_axis_map_fini(&map);
        }
    }
    if (ndim > 0) {
        memcpy(local_p, local, ndim * sizeof *local);
    }
    return FERRY_OK;
}

ferry_status_t ferry_layout_intervals(const ferry_layout_t *layout, uint32_t ndim,
                                      const uint64_t *shape, uint32_t rank, uint32_t dim,
                                      ferry_interval_t *intervals, size_t cap, size_t *count_p,
                                      ferry_error_t *err) {
    FY_NEED_ARRAY(intervals, cap, err);
    FY_NEED(count_p, err);
    FY_TRY(check_dims(layout, ndim, shape, err));
    if (dim >= ndim) {
        return fy_fail(err, FERRY_INVALID, "dim %" PRIu32 " of a tensor with %" PRIu32 " dims", dim,
                       ndim);
    }
    uint32_t index = 0;
    if (!ferry_layout_find(layout, rank, &index)) {
        *count_p = 0;
        return FERRY_OK;
    }
    fy_axis_map_t map;
    FY_TRY(fy_axis_map_init(&map, layout, dim, shape[dim], err));
    uint32_t part = fy_layout_part(layout, index, dim);
    size_t count = map.first[part + 1] - map.first[part];
    if (count > 0 && cap > 0) {
        memcpy(intervals, map.intervals + map.first[part],
               (count < cap ? count : cap) * sizeof *intervals);
    }
    *count_p = count;
    fy_axis_map_fini(&map);
    return FERRY_OK;
}
