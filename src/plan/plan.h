/* plan.h - inside of a plan.
 *
 * Most tensors of a model look alike: same shape, same two layouts. So geometry is computed once per
 * pattern (source layout, target layout, shape, dtypes) and tensors refer to it.
 *
 * Per dim, a cross says which source part meets which target part, and where: a list of segments in
 * the local coordinates of both ends. A pair of parts that meet has a number; one number per dim makes
 * a geom (mixed radix, last dim fastest), and a geom is all of what one source sends to one target of
 * a tensor: the product of its dims' segment lists, each element of the product one box, one transfer.
 *
 * A move is (tensor, source rank, target rank, geom). Invariant: moves are ordered by tensor, target,
 * geom; so boxes walked in that order are in the order of their task ids. */
#ifndef FERRY_PLAN_PLAN_H
#define FERRY_PLAN_PLAN_H

#include <ferry/plan.h>

#include "base/hash.h"
#include "base/memory.h"
#include "layout/layout.h"

/* One box edge: the same elements on both ends. */
typedef struct fy_segment {
    uint64_t source_lo;
    uint64_t target_lo;
    uint64_t extent;
} fy_segment_t;

/* One dim of a pattern. Pairs are numbered by (target part, source part). */
typedef struct fy_cross {
    uint32_t nsource; /* parts */
    uint32_t ntarget;
    uint32_t npairs;
    uint32_t *source_part;   /* of each pair */
    uint32_t *target_part;   /* of each pair */
    uint64_t *extent;        /* of each pair: elements along this dim */
    size_t *first_segment;   /* of each pair, npairs + 1 */
    fy_segment_t *segments;  /* ascending on both ends */
    uint32_t *first_pair;    /* of each target part, ntarget + 1 */
    uint32_t *source_base;   /* mesh offset of each source part */
    uint32_t *target_base;   /* mesh offset of each target part */
    uint64_t *source_length; /* local length of each source part */
    uint64_t *target_length;
} fy_cross_t;

/* A layout as the planner sees it: who shares a part. */
typedef struct fy_side {
    ferry_layout_t *layout; /* the plan's own copy */
    uint32_t nreplicas;     /* ranks that hold the same parts */
    uint32_t *replica;      /* mesh offset of each of them */
    uint32_t group_ranks;   /* members of one Partial group; 1: nothing is reduced */
    uint32_t spread;        /* which spread its holders belong to */
    uint32_t mesh;          /* number of its set of ranks */
} fy_side_t;

typedef struct fy_pattern {
    uint32_t source; /* side */
    uint32_t target; /* side */
    uint32_t ndim;
    const uint64_t *shape;
    ferry_dtype_t source_dtype;
    ferry_dtype_t target_dtype;
    ferry_dtype_t wire_dtype;
    uint32_t wire_bits;
    uint64_t elements;
    uint64_t ngeoms;
    uint64_t ntensors;  /* that look like this */
    uint32_t next_lead; /* see choose.c; FY_INDEX_NONE: the last */
    fy_cross_t *cross;  /* ndim of them */
} fy_pattern_t;

typedef struct fy_tensor {
    const char *name;
    uint32_t pattern;
} fy_tensor_t;

typedef struct fy_move {
    uint32_t tensor;
    uint32_t source;
    uint32_t target;
    uint32_t piece; /* of its first box */
    uint64_t geom;
} fy_move_t;

/* Tensors whose holders are the same groups of ranks take turns among them. */
typedef struct fy_spread {
    uint32_t side;  /* a side that has these holders */
    uint32_t turns; /* how many different starting points there are */
} fy_spread_t;

struct ferry_plan {
    fy_arena_t arena;
    uint32_t flags;
    uint32_t rank; /* of a part, or FERRY_RANK_NONE */
    uint32_t *hosts;
    size_t nhosts;
    fy_side_t *sides;
    size_t nsides;
    size_t sides_cap;
    fy_index_t side_index;
    fy_pattern_t *patterns;
    size_t npatterns;
    size_t patterns_cap;
    fy_index_t pattern_index;
    fy_tensor_t *tensors;
    uint32_t ntensors;
    fy_spread_t *spreads;
    size_t nspreads;
    size_t spreads_cap;
    uint32_t *first_lead; /* of each mesh: a pattern, or FY_INDEX_NONE */
    fy_move_t *moves;
    size_t nmoves;
    size_t moves_cap;
    uint64_t ntransfers;
    uint64_t hash; /* of the input */
};

/* ---- cross.c: one dim ------------------------------------------------------------------------- */

ferry_status_t fy_cross_init(fy_cross_t *cross, fy_arena_t *arena, const ferry_layout_t *source,
                             const ferry_layout_t *target, uint32_t dim, uint64_t length,
                             ferry_error_t *err);

/* The pair of these parts, or cross->npairs when they do not meet. */
uint32_t fy_cross_find(const fy_cross_t *cross, uint32_t source_part, uint32_t target_part);

/* ---- pattern.c: geometry shared by tensors ------------------------------------------------------ */

/* Both find an equal one or add a new one. */
ferry_status_t fy_plan_side(ferry_plan_t *plan, const ferry_layout_t *layout, uint32_t *side_p,
                            ferry_error_t *err);
ferry_status_t fy_plan_pattern(ferry_plan_t *plan, const fy_pattern_t *key, uint32_t *pattern_p,
                               ferry_error_t *err);

/* The pair of each dim. pairs has ndim entries. */
void fy_geom_split(const fy_pattern_t *pattern, uint64_t geom, uint32_t *pairs);
uint64_t fy_geom_join(const fy_pattern_t *pattern, const uint32_t *pairs);
uint64_t fy_geom_elements(const fy_pattern_t *pattern, uint64_t geom);
uint64_t fy_geom_boxes(const fy_pattern_t *pattern, uint64_t geom);
/* The number of its first piece: the boxes of all geoms of the same target before it. */
uint64_t fy_geom_piece(const fy_pattern_t *pattern, uint64_t geom);
uint64_t fy_wire_bytes(const fy_pattern_t *pattern, uint64_t elements);

/* Mesh offset, in the source or target layout, of the parts that a geom joins. Adding a replica's
 * offset gives a mesh index. */
uint32_t fy_geom_source_base(const fy_pattern_t *pattern, uint64_t geom);
uint32_t fy_geom_target_base(const fy_pattern_t *pattern, uint64_t geom);

/* The mesh index with every coordinate on a Replicate or Partial axis set to 0: equal for ranks that
 * hold the same parts. */
uint32_t fy_layout_base(const ferry_layout_t *layout, uint32_t index);

/* ---- choose.c: which holder sends ---------------------------------------------------------------- */

/* Before any choice: finds who rides with whom, and how many turns the holders of each layout take. */
ferry_status_t fy_spread_assign(ferry_plan_t *plan, ferry_error_t *err);

/* What the choice of a source for one (target rank, geom) of a pattern comes to. */
typedef struct fy_choice {
    uint32_t fixed; /* the target itself, which holds the region; else FERRY_RANK_NONE */
    uint32_t side;  /* source layout whose holders are the candidates */
    uint32_t base;  /* mesh offset of the parts in it */
    uint32_t start; /* first candidate at turn 0 */
    uint32_t turns; /* different starting points used */
    uint32_t host;  /* candidates are limited to this host, or FERRY_RANK_NONE */
    uint32_t count; /* candidates */
} fy_choice_t;

void fy_choose(const ferry_plan_t *plan, const fy_pattern_t *pattern, uint64_t geom,
               uint32_t target, fy_choice_t *choice_p);
/* The source rank at one of the choice's turns. */
uint32_t fy_choice_rank(const ferry_plan_t *plan, const fy_choice_t *choice, uint32_t turn);
/* Which of so many turns a tensor takes. */
uint32_t fy_turn_of(uint32_t tensor, uint32_t turns);
/* The host of a rank, or the rank itself plus 2^32 when nothing is known. */
uint64_t fy_plan_host(const ferry_plan_t *plan, uint32_t rank);

/* ---- moves.c: all moves, or those of one rank ---------------------------------------------------- */

ferry_status_t fy_plan_make_moves(ferry_plan_t *plan, ferry_error_t *err);

/* Which rank is in which reduce group of a source layout: true when `rank` takes part in reducing
 * what `owner` sends. */
bool fy_side_reduces(const fy_side_t *side, uint32_t rank, uint32_t owner);

/* ---- input.c: tensors of both sides become the plan's ------------------------------------------- */

ferry_status_t fy_plan_match(ferry_plan_t *plan, const ferry_plan_params_t *params,
                             ferry_error_t *err);

/* ---- encode.c ------------------------------------------------------------------------------------- */

/* The hash of the input section of the binary form. */
ferry_status_t fy_plan_hash_input(const ferry_plan_t *plan, uint64_t *hash_p, ferry_error_t *err);

static inline const fy_pattern_t *fy_plan_pattern_of(const ferry_plan_t *plan, uint32_t tensor) {
    return &plan->patterns[plan->tensors[tensor].pattern];
}

#endif
