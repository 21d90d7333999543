/* random.c - random cases: meshes, placements, ranks, hosts and dtypes from a seed. */
#include "oracle/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MESH_RANKS = 24,
    POOL_RANKS = 2 * MESH_RANKS,
    ELEMENTS = 500,       /* of a tensor, as a rule */
    MORE_ELEMENTS = 6000, /* now and then */
    LONG_DIM = 3000,      /* of a vector, now and then */
};

/* splitmix64 */
uint64_t orc_draw(orc_rng_t *rng, uint64_t bound) {
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return bound == 0 ? 0 : (z ^ (z >> 31)) % bound;
}

bool orc_chance(orc_rng_t *rng, uint32_t percent) {
    return orc_draw(rng, 100) < percent;
}

static uint32_t draw_small(orc_rng_t *rng, uint32_t low, uint32_t high) {
    return low + (uint32_t)orc_draw(rng, (uint64_t)high - low + 1);
}

static void shuffle(orc_rng_t *rng, uint32_t *items, uint32_t count) {
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)orc_draw(rng, i);
        uint32_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}

/* `parts` numbers that add up to `total`, zeros among them. */
static void compose(orc_rng_t *rng, uint64_t total, uint64_t *parts, size_t count) {
    for (size_t i = 0; i + 1 < count; i++) {
        uint64_t fair = total / (count - i);
        parts[i] =
            orc_chance(rng, 15) ? 0 : orc_draw(rng, (orc_chance(rng, 50) ? total : fair) + 1);
        total -= parts[i];
    }
    parts[count - 1] = total;
}

/* ---- layouts ---- */

static void draw_mesh(orc_rng_t *rng, orc_layout_t *layout) {
    static const uint32_t sizes[] = {1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 11, 12, 24};
    static const char *const names[] = {"dp", "tp", "pp", "ep", "x", "mix", "a_very_long_nam"};
    static const uint32_t rooms[] = {4, 6, 8, 12, MESH_RANKS, MESH_RANKS};
    uint32_t room = rooms[orc_draw(rng, sizeof rooms / sizeof *rooms)];
    layout->naxes = draw_small(rng, 1, 4);
    layout->nranks = 1;
    bool named = orc_chance(rng, 30);
    uint32_t first = (uint32_t)orc_draw(rng, 4);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        uint32_t size = sizes[orc_draw(rng, sizeof sizes / sizeof *sizes)];
        while (size * layout->nranks > room) {
            size = (size + 1) / 2;
        }
        layout->axes[a].size = size;
        layout->nranks *= size;
        if (named && orc_chance(rng, 85)) {
            snprintf(layout->axes[a].name, sizeof layout->axes[a].name, "%s", names[first + a]);
        }
    }
}

/* The length that every rank still has of `dim` before axis `a`; false when they differ. */
static bool common_length(const orc_layout_t *layout, uint32_t a, uint32_t dim, uint64_t shape,
                          uint64_t *length_p) {
    for (uint32_t i = 0; i < layout->nranks; i++) {
        orc_list_t list = orc_list(layout, a, i, dim, shape);
        free(list.at);
        if (i > 0 && list.count != *length_p) {
            return false;
        }
        *length_p = list.count;
    }
    return true;
}

static void draw_cut(orc_rng_t *rng, orc_layout_t *layout, uint32_t a, const uint64_t *shape) {
    static const ferry_cut_t cuts[] = {FERRY_CUT_EVEN,   FERRY_CUT_EVEN,    FERRY_CUT_EVEN,
                                       FERRY_CUT_STRIDE, FERRY_CUT_CYCLIC,  FERRY_CUT_RAGGED,
                                       FERRY_CUT_RAGGED, FERRY_CUT_STRIDED, FERRY_CUT_STRIDED};
    orc_axis_t *axis = &layout->axes[a];
    axis->cut = cuts[orc_draw(rng, sizeof cuts / sizeof *cuts)];
    uint64_t length = 0;
    bool common = common_length(layout, a, axis->dim, shape[axis->dim], &length);
    if (axis->cut == FERRY_CUT_RAGGED) {
        if (common) {
            axis->nlengths = axis->size;
            compose(rng, length, axis->lengths, axis->nlengths);
            return;
        }
        axis->cut = FERRY_CUT_EVEN;
    }
    if (axis->cut != FERRY_CUT_EVEN) {
        axis->arg = 1 + orc_draw(rng, orc_chance(rng, 10) ? 40 : 4);
    }
    if (axis->cut != FERRY_CUT_CYCLIC && orc_chance(rng, 25)) {
        axis->unit = 1 + orc_draw(rng, 4);
    }
    if (common && orc_chance(rng, 25)) {
        axis->nsizes = draw_small(rng, 1, 4);
        compose(rng, length, axis->sizes, axis->nsizes);
    }
}

static void draw_placements(orc_rng_t *rng, orc_layout_t *layout, bool source, uint32_t ndim,
                            const uint64_t *shape) {
    uint32_t favourite = (uint32_t)orc_draw(rng, ndim); /* so that axes meet on one dim */
    bool sums = source && orc_chance(rng, 30);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        orc_axis_t *axis = &layout->axes[a];
        if (sums && orc_chance(rng, 50)) {
            axis->kind = FERRY_PARTIAL;
            axis->op = (ferry_reduce_op_t)orc_draw(rng, 5);
        } else if (ndim == 0 || orc_chance(rng, 30)) {
            axis->kind = FERRY_REPLICATE;
        } else {
            axis->kind = FERRY_SHARD;
            axis->dim = orc_chance(rng, 40) ? favourite : (uint32_t)orc_draw(rng, ndim);
            draw_cut(rng, layout, a, shape);
        }
    }
}

static void draw_ranks(orc_rng_t *rng, orc_layout_t *layout, const uint32_t *pool, bool permute) {
    memcpy(layout->ranks, pool, layout->nranks * sizeof *pool);
    if (permute) {
        shuffle(rng, layout->ranks, layout->nranks);
    }
}

/* ---- tensors ---- */

static void draw_shape(orc_rng_t *rng, orc_tensor_t *tensor) {
    static const uint32_t dims[] = {1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5};
    tensor->ndim = orc_chance(rng, 3) ? 0 : dims[orc_draw(rng, sizeof dims / sizeof *dims)];
    if (tensor->ndim == 1 && orc_chance(rng, 20)) {
        tensor->shape[0] = orc_draw(rng, LONG_DIM);
        return;
    }
    uint64_t room = orc_chance(rng, 5) ? MORE_ELEMENTS : ELEMENTS;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        uint64_t length = orc_chance(rng, 2) ? 0 : 1 + orc_draw(rng, 13);
        while (length > room) {
            length = length / 2;
        }
        tensor->shape[d] = length;
        room /= length ? length : 1;
    }
    for (uint32_t d = tensor->ndim; d > 1; d--) { /* the early dims had the room: mix them */
        uint64_t j = orc_draw(rng, d);
        uint64_t swap = tensor->shape[d - 1];
        tensor->shape[d - 1] = tensor->shape[j];
        tensor->shape[j] = swap;
    }
}

/* Makes one dim long; StridedShard's outer cut knows no unit, so such a dim stays as it is. */
static void draw_scale(orc_rng_t *rng, orc_tensor_t *tensor) {
    tensor->scale_dim = (uint32_t)orc_draw(rng, tensor->ndim);
    bool possible = tensor->ndim > 0;
    const orc_layout_t *sides[] = {&tensor->source, &tensor->target};
    for (int s = 0; s < 2; s++) {
        for (uint32_t a = 0; a < sides[s]->naxes; a++) {
            const orc_axis_t *axis = &sides[s]->axes[a];
            possible = possible && !(axis->kind == FERRY_SHARD && axis->dim == tensor->scale_dim &&
                                     axis->cut == FERRY_CUT_STRIDED);
        }
    }
    tensor->scale = possible ? UINT64_C(1) << draw_small(rng, 24, 34) : 0;
}

/* Another tensor on the meshes that `tensor` has: what sits together in a model. */
static void draw_neighbour(orc_rng_t *rng, orc_tensor_t *tensor) {
    orc_layout_t *sides[] = {&tensor->source, &tensor->target};
    memset(tensor->shape, 0, sizeof tensor->shape);
    tensor->scale = 0;
    draw_shape(rng, tensor);
    for (int s = 0; s < 2; s++) {
        for (uint32_t a = 0; a < sides[s]->naxes; a++) {
            orc_axis_t axis = {.size = sides[s]->axes[a].size};
            memcpy(axis.name, sides[s]->axes[a].name, sizeof axis.name);
            sides[s]->axes[a] = axis;
        }
        if (s == 1 || orc_chance(rng, 60)) { /* else nothing cuts the source, like a norm */
            draw_placements(rng, sides[s], s == 0, tensor->ndim, tensor->shape);
        }
    }
}

static void draw_tensor(orc_rng_t *rng, orc_tensor_t *tensor, const uint32_t *pool, bool permute) {
    draw_shape(rng, tensor);
    draw_mesh(rng, &tensor->source);
    draw_mesh(rng, &tensor->target);
    if (orc_chance(rng, 20)) {
        tensor->target = tensor->source; /* the mesh; it has no placements yet */
    }
    draw_placements(rng, &tensor->source, true, tensor->ndim, tensor->shape);
    draw_placements(rng, &tensor->target, false, tensor->ndim, tensor->shape);
    static const uint32_t starts[] = {0, 0, MESH_RANKS, MESH_RANKS, 1, 3, 10};
    uint32_t start = starts[orc_draw(rng, sizeof starts / sizeof *starts)];
    if (orc_chance(rng, 15)) {
        draw_scale(rng, tensor);
    }
    draw_ranks(rng, &tensor->source, pool, permute);
    draw_ranks(rng, &tensor->target, pool + start, permute);
}

static void draw_dtypes(orc_rng_t *rng, orc_case_t *c) {
    bool cast = orc_chance(rng, 40);
    c->flags = (cast ? FERRY_PLAN_ALLOW_CAST : 0);
    for (uint32_t t = 0; t < c->ntensors; t++) {
        orc_tensor_t *tensor = &c->tensors[t];
        tensor->source_dtype = (ferry_dtype_t)draw_small(rng, FERRY_F64, FERRY_BOOL);
        tensor->target_dtype = tensor->source_dtype;
        if (cast && orc_chance(rng, 70)) {
            tensor->target_dtype = (ferry_dtype_t)draw_small(rng, FERRY_F64, FERRY_BOOL);
        }
    }
}

static void draw_pool(orc_rng_t *rng, uint32_t *pool, bool *permute_p) {
    uint32_t way = (uint32_t)orc_draw(rng, 9);
    bool high = orc_chance(rng, 3);
    uint32_t numbers[ORC_HOSTS];
    for (uint32_t i = 0; i < ORC_HOSTS; i++) {
        numbers[i] = high ? FERRY_MAX_RANK - i : i;
    }
    *permute_p = way >= 3;
    if (way >= 6) {
        shuffle(rng, numbers, ORC_HOSTS); /* sparse */
    }
    memcpy(pool, numbers, POOL_RANKS * sizeof *pool);
}

static void draw_hosts(orc_rng_t *rng, orc_case_t *c) {
    if (!orc_chance(rng, 40)) {
        return;
    }
    static const uint32_t per_host[] = {1, 2, 4, 8, 8, 24};
    uint32_t per = per_host[orc_draw(rng, sizeof per_host / sizeof *per_host)];
    bool scattered = orc_chance(rng, 30);
    c->nhosts = draw_small(rng, 1, ORC_HOSTS);
    for (uint32_t i = 0; i < c->nhosts; i++) {
        c->hosts[i] = scattered ? draw_small(rng, 0, 4) * 1000 : i / per;
    }
}

void orc_case_random(orc_rng_t *rng, orc_case_t *c) {
    /* In the order of their bytes, which is the order of ordinals. */
    static const char *const names[] = {"Z.first",     "a",          "a.b", "a0",
                                        "layers.10.w", "layers.2.w", "z"};
    memset(c, 0, sizeof *c);
    c->ntensors = orc_chance(rng, 60) ? 1 : draw_small(rng, 2, ORC_TENSORS);
    uint32_t pool[POOL_RANKS];
    bool permute;
    draw_pool(rng, pool, &permute);
    uint32_t first = (uint32_t)orc_draw(rng, sizeof names / sizeof *names - ORC_TENSORS + 1);
    for (uint32_t t = 0; t < c->ntensors; t++) {
        orc_tensor_t *tensor = &c->tensors[t];
        if (t == 0 || orc_chance(rng, 40)) {
            draw_tensor(rng, tensor, pool, permute);
        } else {
            *tensor = c->tensors[0];
            if (orc_chance(rng, 60)) {
                draw_neighbour(rng, tensor);
            }
        }
        snprintf(tensor->name, sizeof tensor->name, "%s", names[first + t]);
        c->shuffle[t] = t;
    }
    shuffle(rng, c->shuffle, c->ntensors);
    draw_dtypes(rng, c);
    draw_hosts(rng, c);
    c->extra_source = orc_chance(rng, 20);
    c->flags |= !c->extra_source && orc_chance(rng, 30) ? FERRY_PLAN_STRICT : 0;
}

/* ---- one replica more ---- */

static void insert_replicas(orc_rng_t *rng, orc_layout_t *layout) {
    uint32_t at = draw_small(rng, 0, layout->naxes);
    memmove(&layout->axes[at + 1], &layout->axes[at], (layout->naxes - at) * sizeof *layout->axes);
    memset(&layout->axes[at], 0, sizeof *layout->axes);
    layout->axes[at].size = 1;
    layout->naxes++;
}

static uint32_t fresh_rank(orc_rng_t *rng, const orc_layout_t *a, const orc_layout_t *b) {
    for (;;) {
        uint32_t rank = (uint32_t)orc_draw(rng, ORC_HOSTS + 8);
        if (orc_place(a, rank) == UINT32_MAX && orc_place(b, rank) == UINT32_MAX) {
            return rank;
        }
    }
}

/* The layout with axis `axis` one longer; coordinate `at` of it is new. */
static void widen(orc_rng_t *rng, orc_layout_t *layout, uint32_t axis, uint32_t at) {
    orc_layout_t old = *layout;
    uint32_t inner = 1;
    for (uint32_t a = axis + 1; a < old.naxes; a++) {
        inner *= old.axes[a].size;
    }
    uint32_t size = ++layout->axes[axis].size;
    uint32_t total = old.nranks / (size - 1) * size;
    layout->nranks = 0; /* grows as places are filled, so that fresh ranks differ */
    for (uint32_t i = 0; i < total; i++) {
        uint32_t coord = i / inner % size;
        uint32_t outer = i / inner / size;
        uint32_t was = (outer * (size - 1) + coord - (coord > at)) * inner + i % inner;
        layout->ranks[i] = coord == at ? fresh_rank(rng, &old, layout) : old.ranks[was];
        layout->nranks++;
    }
}

void orc_case_grow(orc_rng_t *rng, const orc_case_t *c, orc_case_t *grown_p) {
    *grown_p = *c;
    orc_layout_t *target = &grown_p->tensors[0].target;
    uint32_t axis = target->naxes;
    for (uint32_t a = 0; a < target->naxes; a++) {
        if (target->axes[a].kind == FERRY_REPLICATE &&
            (axis == target->naxes || orc_chance(rng, 50))) {
            axis = a;
        }
    }
    if (axis == target->naxes) {
        insert_replicas(rng, target);
        axis = 0;
        while (target->axes[axis].kind != FERRY_REPLICATE) {
            axis++;
        }
    }
    widen(rng, target, axis, draw_small(rng, 0, target->axes[axis].size));
}
