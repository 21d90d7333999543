/* oracle.c - layouts as plain arrays of global indices, cut element by element. */
#include "oracle/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool orc_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("oracle: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return false;
}

void *orc_alloc(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- one axis ---- */

static uint64_t ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

/* The number of the piece that `p` falls into when `length` is cut into `pieces`, in whole units. */
static uint64_t piece_of(uint64_t p, uint64_t length, uint64_t pieces, uint64_t unit) {
    uint64_t units = ceil_div(length, unit);
    uint64_t per_piece = ceil_div(units, pieces);
    return p / unit / per_piece;
}

static uint64_t owner_in_component(const orc_axis_t *a, uint64_t p, uint64_t length) {
    uint64_t unit = a->unit == 0 ? 1 : a->unit;
    switch (a->cut) {
    case FERRY_CUT_EVEN:
        return piece_of(p, length, a->size, unit);
    case FERRY_CUT_STRIDE:
        return piece_of(p, length, a->size * a->arg, unit) % a->size;
    case FERRY_CUT_CYCLIC:
        return p / a->arg % a->size;
    case FERRY_CUT_RAGGED: {
        uint64_t rank = 0;
        while (p >= a->lengths[rank]) {
            p -= a->lengths[rank];
            rank++;
        }
        return rank;
    }
    case FERRY_CUT_STRIDED: {
        uint64_t outer = ceil_div(length, a->arg);
        uint64_t start = p / outer * outer;
        uint64_t inner = length - start < outer ? length - start : outer;
        return piece_of(p - start, inner, a->size, unit);
    }
    }
    abort();
}

uint64_t orc_owner(const orc_axis_t *a, uint64_t p, uint64_t length) {
    for (size_t i = 0; i < a->nsizes; i++) {
        if (p < a->sizes[i]) {
            return owner_in_component(a, p, a->sizes[i]);
        }
        p -= a->sizes[i];
    }
    return owner_in_component(a, p, length);
}

/* ---- a rank ---- */

uint32_t orc_coord(const orc_layout_t *layout, uint32_t index, uint32_t axis) {
    for (uint32_t a = layout->naxes - 1; a > axis; a--) {
        index /= layout->axes[a].size;
    }
    return index % layout->axes[axis].size;
}

orc_list_t orc_list(const orc_layout_t *layout, uint32_t naxes, uint32_t index, uint32_t dim,
                    uint64_t length) {
    orc_list_t list = {length, orc_alloc(length, sizeof(uint64_t))};
    for (uint64_t i = 0; i < length; i++) {
        list.at[i] = i;
    }
    for (uint32_t a = 0; a < naxes; a++) {
        const orc_axis_t *axis = &layout->axes[a];
        if (axis->kind != FERRY_SHARD || axis->dim != dim) {
            continue;
        }
        uint64_t kept = 0;
        for (uint64_t p = 0; p < list.count; p++) {
            if (orc_owner(axis, p, list.count) == orc_coord(layout, index, a)) {
                list.at[kept++] = list.at[p];
            }
        }
        list.count = kept;
    }
    return list;
}

uint32_t orc_place(const orc_layout_t *layout, uint32_t rank) {
    for (uint32_t i = 0; i < layout->nranks; i++) {
        if (layout->ranks[i] == rank) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* ---- a tensor ---- */

orc_side_t *orc_side_make(const orc_layout_t *layout, uint32_t ndim, const uint64_t *shape) {
    orc_side_t *side = orc_alloc(1, sizeof *side);
    side->layout = layout;
    side->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        side->shape[d] = shape[d];
        for (uint32_t i = 0; i < layout->nranks; i++) {
            side->lists[i][d] = orc_list(layout, layout->naxes, i, d, shape[d]);
        }
    }
    return side;
}

void orc_side_free(orc_side_t *side) {
    if (side == NULL) {
        return;
    }
    for (uint32_t i = 0; i < side->layout->nranks; i++) {
        for (uint32_t d = 0; d < side->ndim; d++) {
            free(side->lists[i][d].at);
        }
    }
    free(side);
}

uint64_t orc_side_elements(const orc_side_t *side, uint32_t index) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < side->ndim; d++) {
        elements *= side->lists[index][d].count;
    }
    return elements;
}

uint64_t *orc_side_numbers(const orc_side_t *side, uint32_t index) {
    uint64_t elements = orc_side_elements(side, index);
    uint64_t *numbers = orc_alloc(elements, sizeof *numbers);
    for (uint64_t e = 0; e < elements; e++) {
        uint64_t rest = e;
        uint64_t stride = 1;
        for (uint32_t d = side->ndim; d-- > 0;) {
            const orc_list_t *list = &side->lists[index][d];
            numbers[e] += list->at[rest % list->count] * stride;
            rest /= list->count;
            stride *= side->shape[d];
        }
    }
    return numbers;
}

bool orc_side_same(const orc_side_t *side, uint32_t a, uint32_t b) {
    if (orc_side_elements(side, a) == 0) {
        return false;
    }
    for (uint32_t d = 0; d < side->ndim; d++) {
        const orc_list_t *x = &side->lists[a][d];
        const orc_list_t *y = &side->lists[b][d];
        if (x->count != y->count || memcmp(x->at, y->at, x->count * sizeof *x->at) != 0) {
            return false;
        }
    }
    return true;
}

bool orc_side_holds(const orc_side_t *side, uint32_t index, const uint64_t *coords) {
    for (uint32_t d = 0; d < side->ndim; d++) {
        const orc_list_t *list = &side->lists[index][d];
        bool found = false;
        for (uint64_t i = 0; i < list->count && !found; i++) {
            found = list->at[i] == coords[d];
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* ---- the library's form ---- */

ferry_layout_t *orc_to_ferry(const orc_layout_t *layout, ferry_error_t *err) {
    ferry_axis_t axes[FERRY_MAX_AXES];
    ferry_placement_t placements[FERRY_MAX_AXES];
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const orc_axis_t *axis = &layout->axes[a];
        axes[a] = (ferry_axis_t){axis->name[0] ? axis->name : NULL, axis->size};
        placements[a] = (ferry_placement_t){
            .kind = axis->kind,
            .op = axis->op,
            .cut = axis->cut,
            .dim = axis->dim,
            .arg = axis->arg,
            .unit = axis->unit,
            .sizes = axis->nsizes ? axis->sizes : NULL,
            .nsizes = axis->nsizes,
            .lengths = axis->nlengths ? axis->lengths : NULL,
            .nlengths = axis->nlengths,
        };
    }
    ferry_layout_params_t params = FERRY_LAYOUT_PARAMS_INIT;
    params.naxes = layout->naxes;
    params.axes = axes;
    params.placements = placements;
    params.ranks = layout->ranks;
    ferry_layout_t *made = NULL;
    return ferry_layout_create(&params, &made, err) == FERRY_OK ? made : NULL;
}

void orc_from_ferry(const ferry_layout_t *from, orc_layout_t *layout_p) {
    memset(layout_p, 0, sizeof *layout_p);
    layout_p->naxes = ferry_layout_naxes(from);
    layout_p->nranks = ferry_layout_nranks(from);
    if (layout_p->naxes > FERRY_MAX_AXES || layout_p->nranks > ORC_RANKS) {
        abort();
    }
    for (uint32_t i = 0; i < layout_p->nranks; i++) {
        layout_p->ranks[i] = ferry_layout_ranks(from)[i];
    }
    for (uint32_t a = 0; a < layout_p->naxes; a++) {
        const ferry_axis_t *axis = ferry_layout_axis(from, a);
        const ferry_placement_t *placement = ferry_layout_placement(from, a);
        orc_axis_t *to = &layout_p->axes[a];
        if (placement->nsizes > ORC_PARTS || placement->nlengths > ORC_PARTS) {
            abort();
        }
        snprintf(to->name, sizeof to->name, "%s", axis->name ? axis->name : "");
        to->size = axis->size;
        to->kind = placement->kind;
        to->op = placement->op;
        to->cut = placement->cut;
        to->dim = placement->dim;
        to->arg = placement->arg;
        to->unit = placement->unit;
        to->nsizes = placement->nsizes;
        for (size_t i = 0; i < to->nsizes; i++) {
            to->sizes[i] = placement->sizes[i];
        }
        to->nlengths = placement->nlengths;
        for (size_t i = 0; i < to->nlengths; i++) {
            to->lengths[i] = placement->lengths[i];
        }
    }
}
