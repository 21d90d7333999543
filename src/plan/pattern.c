/* pattern.c - sides and patterns: what tensors share, and geoms.
 *
 * Invariant: equal layouts are one side and equal (source, target, shape, dtypes) one pattern, so
 * everything that depends only on those is computed once. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "plan/plan.h"

/* ---- sides ------------------------------------------------------------------------------------ */

static uint64_t layout_hash(const ferry_layout_t *layout) {
    uint64_t hash = fy_hash_list_u32(layout->naxes, layout->ranks, layout->nranks);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const ferry_placement_t *p = &layout->placements[a];
        hash = fy_hash_u64(hash, layout->axes[a].size);
        hash = fy_hash_u64(hash, fy_hash_bytes(layout->axes[a].name, strlen(layout->axes[a].name)));
        hash = fy_hash_u64(hash, (uint64_t)p->kind << 32 | (uint64_t)p->op << 16 | p->cut);
        hash = fy_hash_u64(hash, p->dim);
        hash = fy_hash_u64(hash, p->arg);
        hash = fy_hash_u64(hash, p->unit);
        hash = fy_hash_list_u64(hash, p->sizes, p->nsizes);
        hash = fy_hash_list_u64(hash, p->lengths, p->nlengths);
    }
    return hash;
}

typedef struct side_key {
    const ferry_plan_t *plan;
    const ferry_layout_t *layout;
} side_key_t;

static bool side_same(const void *context, uint32_t id) {
    const side_key_t *key = context;
    return ferry_layout_equal(key->layout, key->plan->sides[id].layout);
}

/* Lists the ranks that share a part (all coordinates on Replicate and Partial axes), and counts those
 * that reduce together (they differ on Partial axes only). */
static bool side_replicas(ferry_plan_t *plan, fy_side_t *side) {
    const ferry_layout_t *layout = side->layout;
    uint32_t n = 1;
    side->group_ranks = 1;
    for (uint32_t a = 0; a < layout->naxes; a++) {
        n *= layout->placements[a].kind != FERRY_SHARD ? layout->axes[a].size : 1;
        side->group_ranks *= layout->placements[a].kind == FERRY_PARTIAL ? layout->axes[a].size : 1;
    }
    side->nreplicas = n;
    side->replica = fy_arena_alloc(&plan->arena, n, sizeof *side->replica);
    if (side->replica == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rest = i;
        uint32_t offset = 0;
        for (uint32_t a = layout->naxes; a-- > 0;) {
            ferry_placement_kind_t kind = layout->placements[a].kind;
            uint32_t at = kind != FERRY_SHARD ? rest % layout->axes[a].size : 0;
            rest /= kind != FERRY_SHARD ? layout->axes[a].size : 1;
            offset += at * layout->strides[a];
        }
        side->replica[i] = offset;
    }
    return true;
}

ferry_status_t fy_plan_side(ferry_plan_t *plan, const ferry_layout_t *layout, uint32_t *side_p,
                            ferry_error_t *err) {
    uint64_t hash = layout_hash(layout);
    side_key_t key = {plan, layout};
    uint32_t found = fy_index_find(&plan->side_index, hash, side_same, &key);
    if (found != FY_INDEX_NONE) {
        *side_p = found;
        return FERRY_OK;
    }
    uint32_t id = (uint32_t)plan->nsides;
    if (!fy_reserve(&plan->sides, &plan->sides_cap, plan->nsides + 1, sizeof *plan->sides)) {
        return fy_fail_nomem(err, "the layouts of a plan");
    }
    fy_side_t *side = &plan->sides[id];
    memset(side, 0, sizeof *side);
    FY_TRY(ferry_layout_shift(layout, 0, &side->layout, err));
    plan->nsides++; /* from here on the plan frees the copy */
    if (!side_replicas(plan, side) || !fy_index_add(&plan->side_index, hash, id)) {
        return fy_fail_nomem(err, "the layouts of a plan");
    }
    *side_p = id;
    return FERRY_OK;
}

uint32_t fy_layout_base(const ferry_layout_t *layout, uint32_t index) {
    uint32_t base = 0;
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (layout->placements[a].kind == FERRY_SHARD) {
            base += fy_layout_coordinate(layout, index, a) * layout->strides[a];
        }
    }
    return base;
}

static uint32_t reduce_base(const ferry_layout_t *layout, uint32_t index) {
    uint32_t base = 0;
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (layout->placements[a].kind != FERRY_PARTIAL) {
            base += fy_layout_coordinate(layout, index, a) * layout->strides[a];
        }
    }
    return base;
}

bool fy_side_reduces(const fy_side_t *side, uint32_t rank, uint32_t owner) {
    uint32_t here = 0;
    uint32_t there = 0;
    return side->group_ranks > 1 && ferry_layout_find(side->layout, rank, &here) &&
           ferry_layout_find(side->layout, owner, &there) &&
           reduce_base(side->layout, here) == reduce_base(side->layout, there);
}

/* ---- patterns --------------------------------------------------------------------------------- */

typedef struct pattern_key {
    const ferry_plan_t *plan;
    const fy_pattern_t *pattern;
} pattern_key_t;

static bool pattern_same(const void *context, uint32_t id) {
    const pattern_key_t *key = context;
    const fy_pattern_t *a = key->pattern;
    const fy_pattern_t *b = &key->plan->patterns[id];
    return a->source == b->source && a->target == b->target && a->ndim == b->ndim &&
           a->source_dtype == b->source_dtype && a->target_dtype == b->target_dtype &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* The most segments that one target part has in this dim. */
static uint64_t most_segments(const fy_cross_t *c) {
    uint64_t most = 0;
    for (uint32_t t = 0; t < c->ntarget; t++) {
        most = fy_max_u64(most, c->first_segment[c->first_pair[t + 1]] -
                                    c->first_segment[c->first_pair[t]]);
    }
    return most;
}

/* The busiest target's pieces must fit in a task id. Asked of the pattern, not of what one rank moves
 * of it, so that all ranks come to the same answer. */
static ferry_status_t check_pieces(const fy_pattern_t *p, ferry_error_t *err) {
    const uint64_t limit = UINT64_C(1) << FERRY_TASK_PIECE_BITS;
    uint64_t pieces = p->elements > 0 ? 1 : 0;
    for (uint32_t d = 0; d < p->ndim && pieces <= limit; d++) {
        pieces *= most_segments(&p->cross[d]); /* at most 2^20 times 2^25 */
    }
    return pieces <= limit ? FERRY_OK
                           : fy_fail(err, FERRY_OVERFLOW,
                                     "a target needs more than %" PRIu64
                                     " pieces of it, and a task id holds no more",
                                     limit);
}

/* Crosses every dim, and makes sure that volumes, bytes and geom numbers fit in 64 bits. */
static ferry_status_t pattern_build(ferry_plan_t *plan, fy_pattern_t *p, ferry_error_t *err) {
    uint64_t bytes = 0;
    FY_TRY(fy_shape_elements(p->ndim, p->shape, &p->elements, err));
    FY_TRY(ferry_dtype_bytes(p->source_dtype, p->elements, &bytes, err));
    FY_TRY(ferry_dtype_bytes(p->target_dtype, p->elements, &bytes, err));
    p->wire_dtype = ferry_dtype_wire(p->source_dtype, p->target_dtype);
    p->wire_bits = ferry_dtype_bits(p->wire_dtype);
    p->shape = fy_arena_copy(&plan->arena, p->shape, p->ndim, sizeof *p->shape);
    p->cross = fy_arena_alloc(&plan->arena, p->ndim, sizeof *p->cross);
    if (p->shape == NULL || p->cross == NULL) {
        return fy_fail_nomem(err, "the geometry of a plan");
    }
    p->ngeoms = 1;
    for (uint32_t d = 0; d < p->ndim; d++) {
        FY_TRY(fy_cross_init(&p->cross[d], &plan->arena, plan->sides[p->source].layout,
                             plan->sides[p->target].layout, d, p->shape[d], err));
        if (!fy_mul_u64(p->ngeoms, p->cross[d].npairs, &p->ngeoms)) {
            return fy_fail(err, FERRY_OVERFLOW, "the layouts meet in more regions than 64 bits");
        }
    }
    return check_pieces(p, err);
}

ferry_status_t fy_plan_pattern(ferry_plan_t *plan, const fy_pattern_t *key, uint32_t *pattern_p,
                               ferry_error_t *err) {
    uint64_t hash = fy_hash_list_u64(key->source, key->shape, key->ndim);
    hash = fy_hash_u64(hash, key->target);
    hash = fy_hash_u64(hash, (uint64_t)key->source_dtype << 32 | (uint64_t)key->target_dtype);
    pattern_key_t context = {plan, key};
    uint32_t found = fy_index_find(&plan->pattern_index, hash, pattern_same, &context);
    if (found == FY_INDEX_NONE) {
        found = (uint32_t)plan->npatterns;
        if (!fy_reserve(&plan->patterns, &plan->patterns_cap, plan->npatterns + 1,
                        sizeof *plan->patterns)) {
            return fy_fail_nomem(err, "the geometry of a plan");
        }
        fy_pattern_t fresh = *key;
        fresh.ntensors = 0;
        FY_TRY(pattern_build(plan, &fresh, err));
        plan->patterns[plan->npatterns++] = fresh;
        if (!fy_index_add(&plan->pattern_index, hash, found)) {
            return fy_fail_nomem(err, "the geometry of a plan");
        }
    }
    plan->patterns[found].ntensors++;
    *pattern_p = found;
    return FERRY_OK;
}

/* ---- geoms ------------------------------------------------------------------------------------ */

void fy_geom_split(const fy_pattern_t *pattern, uint64_t geom, uint32_t *pairs) {
    for (uint32_t d = pattern->ndim; d-- > 0;) {
        uint32_t n = pattern->cross[d].npairs;
        pairs[d] = n > 1 ? (uint32_t)(geom % n) : 0;
        geom = n > 1 ? geom / n : geom;
    }
}

uint64_t fy_geom_join(const fy_pattern_t *pattern, const uint32_t *pairs) {
    uint64_t geom = 0;
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        geom = geom * pattern->cross[d].npairs + pairs[d];
    }
    return geom;
}

uint64_t fy_geom_elements(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    uint64_t elements = 1;
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        elements *= pattern->cross[d].extent[pairs[d]];
    }
    return elements;
}

uint64_t fy_geom_boxes(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    uint64_t boxes = 1;
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        const fy_cross_t *c = &pattern->cross[d];
        boxes *= c->first_segment[pairs[d] + 1] - c->first_segment[pairs[d]];
    }
    return boxes;
}

uint64_t fy_geom_piece(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    uint64_t piece = 0;
    uint64_t boxes = 1; /* of the geom, in the dims so far */
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        /* Segments of one target part lie together, pair after pair. Each segment that is skipped in
         * this dim skips a whole target's worth of boxes in the dims behind it. */
        const fy_cross_t *c = &pattern->cross[d];
        uint32_t part = c->target_part[pairs[d]];
        size_t begin = c->first_segment[c->first_pair[part]];
        size_t own = c->first_segment[pairs[d]];
        size_t end = c->first_segment[c->first_pair[part + 1]];
        piece = piece * (end - begin) + boxes * (own - begin);
        boxes *= c->first_segment[pairs[d] + 1] - own;
    }
    return piece;
}

uint64_t fy_wire_bytes(const fy_pattern_t *pattern, uint64_t elements) {
    /* Fits: the bytes of the whole tensor do. */
    return elements / 8 * pattern->wire_bits + (elements % 8 * pattern->wire_bits + 7) / 8;
}

uint32_t fy_geom_source_base(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    uint32_t base = 0;
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        base += pattern->cross[d].source_base[pattern->cross[d].source_part[pairs[d]]];
    }
    return base;
}

uint32_t fy_geom_target_base(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    uint32_t base = 0;
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        base += pattern->cross[d].target_base[pattern->cross[d].target_part[pairs[d]]];
    }
    return base;
}
