/* parallel.h - where the ranks of a parallel spec sit.
 *
 * A grid is a spec that has been checked, with its defaults filled in and its order turned into
 * steps. Dense tensors count ranks by tp, cp, dp and pp. Experts take the ranks of one pp stage in
 * ascending order, and count places in that list by etp, ep and edp. */
#ifndef FERRY_MODEL_PARALLEL_H
#define FERRY_MODEL_PARALLEL_H

#include <ferry/model.h>

typedef struct fy_grid {
    uint32_t tp, cp, pp, dp;
    uint32_t ep, etp, edp; /* ep * etp * edp == stage_ranks */
    uint32_t world;
    uint32_t stage_ranks;                        /* tp * cp * dp */
    uint32_t tp_step, cp_step, dp_step, pp_step; /* from a rank to its neighbour on that axis */
    uint32_t ep_step, etp_step, edp_step;        /* the same, in places of a stage */
} fy_grid_t;

ferry_status_t fy_grid_init(fy_grid_t *grid, const ferry_parallel_t *parallel, ferry_error_t *err);

static inline uint32_t fy_grid_dense_rank(const fy_grid_t *grid, uint32_t pp, uint32_t dp,
                                          uint32_t cp, uint32_t tp) {
    return pp * grid->pp_step + dp * grid->dp_step + cp * grid->cp_step + tp * grid->tp_step;
}

static inline uint32_t fy_grid_expert_rank(const fy_grid_t *grid, uint32_t pp, uint32_t ep,
                                           uint32_t edp, uint32_t etp) {
    uint32_t place = ep * grid->ep_step + edp * grid->edp_step + etp * grid->etp_step;
    /* The stage's ranks come in runs of pp_step, one run every pp_step * pp. */
    uint32_t run = place / grid->pp_step;
    return (run * grid->pp + pp) * grid->pp_step + place % grid->pp_step;
}

#endif
