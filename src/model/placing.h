/* placing.h - which ranks hold a tensor, and how they cut it.
 *
 * A placing joins a model, a list of ways in which its tensors are cut, and a grid. It makes every layout
 * once, on first use, and tensors share them: one per pp stage and way, for experts one per pp stage, ep
 * coordinate and way. Ways that come to the same cut on this grid share layouts too. The catalogue and
 * rules both place their tensors here. */
#ifndef FERRY_MODEL_PLACING_H
#define FERRY_MODEL_PLACING_H

#include <stdbool.h>

#include "model/parallel.h"

typedef enum fy_axis_cut {
    FY_CUT_NONE,
    FY_CUT_PLAIN,     /* by tp, or by etp for experts, at multiples of the unit */
    FY_CUT_QUERY,     /* by tp, in whole heads that stay with their K/V head */
    FY_CUT_KEY_VALUE, /* by tp, in whole heads, replicated when tp exceeds them */
} fy_axis_cut_t;

/* How a tensor is cut, whatever the grid. */
typedef struct fy_way {
    fy_axis_cut_t cut;
    bool expert;    /* lies on the ranks of one ep coordinate */
    bool both_ends; /* on the first and on the last pp stage */
    uint32_t dim;
    uint64_t unit; /* FY_CUT_PLAIN only */
} fy_way_t;

/* What a placing must know of a model; 0 where it has no such thing. */
typedef struct fy_counts {
    const char *name; /* for messages */
    uint32_t layers, experts;
    uint32_t heads, kv_heads, head_dim;
} fy_counts_t;

/* How a way cuts on this grid. All zero: not at all. */
typedef struct fy_cut {
    bool sharded;
    bool split;     /* the tp axis is two: tp (one per K/V head) and, inside it, tprep */
    bool inner;     /* tprep cuts too, at multiples of inner_unit; else it replicates */
    bool both_ends; /* on the first and on the last pp stage */
    bool expert;
    uint32_t dim;
    uint64_t unit; /* the tp axis cuts at multiples of it */
    uint64_t inner_unit;
} fy_cut_t;

/* A cut and where its layouts are among those of a stage: one, or one per ep coordinate. */
typedef struct fy_spot {
    fy_cut_t cut;
    size_t first;
} fy_spot_t;

typedef struct fy_placing {
    fy_counts_t counts;
    fy_grid_t grid;
    uint32_t first_rank;
    uint32_t experts_per_coordinate;
    fy_spot_t *places;        /* owned; one per way */
    ferry_layout_t **layouts; /* owned; NULL until first use */
    size_t nlayouts;
    uint32_t *ranks; /* scratch: the ranks of one mesh */
} fy_placing_t;

/* Refuses a grid that does not suit the model. To be followed by fy_placing_fini, failed or not. */
ferry_status_t fy_placing_init(fy_placing_t *placing, const fy_counts_t *counts,
                               const fy_way_t *ways, size_t nways, const fy_grid_t *grid,
                               uint32_t first_rank, ferry_error_t *err);
void fy_placing_fini(fy_placing_t *placing);

/* The pp stage that holds a layer, which is one of the model's. */
uint32_t fy_placing_stage(const fy_placing_t *placing, uint32_t layer);

/* The layout of a tensor on a stage; `expert` is one of the model's, and counts for expert ways only. */
ferry_status_t fy_placing_layout(fy_placing_t *placing, uint32_t stage, size_t way, uint32_t expert,
                                 const ferry_layout_t **layout_p, ferry_error_t *err);

/* Hands the layouts over; what they are is freed by ferry_layout_destroy and fy_free. */
ferry_layout_t **fy_placing_take(fy_placing_t *placing, size_t *count_p);

#endif
