/* placing.h - which ranks hold a tensor, and how they cut it.
 *
 * A placing joins a model and a grid. It makes every layout once, on first use, and tensors share
 * them: one per pp stage and rule, for experts one per pp stage, ep coordinate and rule. Rules that
 * come to the same cut on this grid share layouts too. */
#ifndef FERRY_MODEL_PLACING_H
#define FERRY_MODEL_PLACING_H

#include "model/catalogue.h"
#include "model/parallel.h"

/* How a rule cuts on this grid. All zero: not at all. */
typedef struct fy_cut {
    bool sharded;
    bool split;     /* the tp axis is two: tp (one per K/V head) and, inside it, tprep */
    bool inner;     /* tprep cuts too, at multiples of inner_unit; else it replicates */
    bool both_ends; /* on the first and on the last pp stage */
    uint32_t dim;
    uint64_t unit; /* the tp axis cuts at multiples of it */
    uint64_t inner_unit;
} fy_cut_t;

typedef struct fy_placing {
    const fy_model_t *model;
    fy_grid_t grid;
    uint32_t first_rank;
    uint32_t experts_per_coordinate;
    fy_cut_t cuts[FY_RULES];
    fy_rule_t same[FY_RULES]; /* the first rule with the same cut: the one that has the layouts */
    ferry_layout_t **layouts; /* owned; NULL until first use */
    size_t nlayouts;
    uint32_t *ranks; /* scratch: the ranks of one mesh */
} fy_placing_t;

/* Refuses a grid that does not suit the model. To be followed by fy_placing_fini, failed or not. */
ferry_status_t fy_placing_init(fy_placing_t *placing, const fy_model_t *model,
                               const fy_grid_t *grid, uint32_t first_rank, ferry_error_t *err);
void fy_placing_fini(fy_placing_t *placing);

/* The pp stage that holds a layer. */
uint32_t fy_placing_stage(const fy_placing_t *placing, uint32_t layer);

/* The layout of a tensor on a stage; `expert` counts for expert rules only. */
ferry_status_t fy_placing_layout(fy_placing_t *placing, uint32_t stage, fy_rule_t rule,
                                 uint32_t expert, const ferry_layout_t **layout_p,
                                 ferry_error_t *err);

/* Hands the layouts over; what they are is freed by ferry_layout_destroy and fy_free. */
ferry_layout_t **fy_placing_take(fy_placing_t *placing, size_t *count_p);

#endif
