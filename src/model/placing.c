/* placing.c - which ranks hold a tensor, and how they cut it. The rules are told for people in
 * docs/formats/parallel.md.
 *
 * Invariants: an axis of size 1 is placed Replicate; a cut that cuts nothing on this grid is all
 * zero; every layout is made at most once and found by its index, without a search. */
#include "model/placing.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"

/* ---- does the grid suit the model? ------------------------------------------------------------- */

static ferry_status_t check_experts(const fy_counts_t *model, const fy_grid_t *grid,
                                    ferry_error_t *err) {
    if (model->experts == 0 && (grid->ep > 1 || grid->etp > 1)) {
        return fy_fail(err, FERRY_INVALID, "%s has no experts, so %s must be 1, not %" PRIu32,
                       model->name, grid->ep > 1 ? "ep" : "etp",
                       grid->ep > 1 ? grid->ep : grid->etp);
    }
    if (grid->ep > 1 && grid->ep > model->experts) {
        return fy_fail(err, FERRY_INVALID, "ep=%" PRIu32 " exceeds the %" PRIu32 " experts of %s",
                       grid->ep, model->experts, model->name);
    }
    return FERRY_OK;
}

static ferry_status_t check_grid(const fy_counts_t *model, const fy_grid_t *grid,
                                 uint32_t first_rank, ferry_error_t *err) {
    FY_TRY(check_experts(model, grid, err));
    if (grid->pp > model->layers) {
        return fy_fail(err, FERRY_INVALID, "pp=%" PRIu32 " exceeds the %" PRIu32 " layers of %s",
                       grid->pp, model->layers, model->name);
    }
    if (model->kv_heads > 0 && grid->tp > model->kv_heads && grid->tp % model->kv_heads != 0) {
        return fy_fail(err, FERRY_INVALID,
                       "tp=%" PRIu32 " exceeds the %" PRIu32
                       " K/V heads of %s and is no multiple of them",
                       grid->tp, model->kv_heads, model->name);
    }
    if (first_rank > FERRY_MAX_RANK || grid->world - 1 > FERRY_MAX_RANK - first_rank) {
        return fy_fail(err, FERRY_INVALID,
                       "%" PRIu32 " ranks from rank %" PRIu32 " on pass the largest rank, %d",
                       grid->world, first_rank, FERRY_MAX_RANK);
    }
    return FERRY_OK;
}

/* ---- cuts -------------------------------------------------------------------------------------- */

static fy_cut_t plain_cut(uint32_t axis_size, uint32_t dim, uint64_t unit) {
    if (axis_size == 1) {
        return (fy_cut_t){.sharded = false};
    }
    return (fy_cut_t){.sharded = true, .dim = dim, .unit = unit};
}

/* The query side: heads stay with the K/V head that they read, whatever tp is. */
static fy_cut_t query_cut(const fy_counts_t *model, uint32_t tp, uint32_t dim) {
    uint64_t group = (uint64_t)model->head_dim * (model->heads / model->kv_heads);
    fy_cut_t cut = plain_cut(tp, dim, group);
    if (tp > model->kv_heads) {
        cut.split = true;
        cut.inner = true;
        cut.inner_unit = model->head_dim;
    }
    return cut;
}

static fy_cut_t key_value_cut(const fy_counts_t *model, uint32_t tp, uint32_t dim) {
    fy_cut_t cut = plain_cut(tp, dim, model->head_dim);
    cut.split = tp > model->kv_heads;
    return cut;
}

static fy_cut_t make_cut(const fy_counts_t *model, const fy_grid_t *grid, const fy_way_t *way) {
    fy_cut_t cut = {.sharded = false};
    /* The catalogue lists ways that a model has no tensors of: there are no heads to divide by. */
    bool grouped = model->kv_heads > 0;
    if (way->cut == FY_CUT_PLAIN) {
        cut = plain_cut(way->expert ? grid->etp : grid->tp, way->dim, way->unit);
    } else if (way->cut == FY_CUT_QUERY && grouped) {
        cut = query_cut(model, grid->tp, way->dim);
    } else if (way->cut == FY_CUT_KEY_VALUE && grouped) {
        cut = key_value_cut(model, grid->tp, way->dim);
    }
    cut.both_ends = way->both_ends && grid->pp > 1;
    cut.expert = way->expert;
    return cut;
}

static bool cut_equal(const fy_cut_t *a, const fy_cut_t *b) {
    return a->sharded == b->sharded && a->split == b->split && a->inner == b->inner &&
           a->both_ends == b->both_ends && a->expert == b->expert && a->dim == b->dim &&
           a->unit == b->unit && a->inner_unit == b->inner_unit;
}

/* Gives every way its cut and the place of its layouts; returns how many layouts a stage may have. */
static size_t make_places(fy_placing_t *placing, const fy_way_t *ways, size_t nways) {
    size_t count = 0;
    for (size_t w = 0; w < nways; w++) {
        fy_spot_t *place = &placing->places[w];
        place->cut = make_cut(&placing->counts, &placing->grid, &ways[w]);
        size_t same = 0;
        while (!cut_equal(&placing->places[same].cut, &place->cut)) {
            same++;
        }
        place->first = same < w ? placing->places[same].first : count;
        if (same == w) {
            count += place->cut.expert ? placing->grid.ep : 1;
        }
    }
    return count;
}

/* ---- meshes ------------------------------------------------------------------------------------ */

/* A mesh that is being put together, outermost axis first. */
typedef struct mesh {
    uint32_t naxes;
    ferry_axis_t axes[5];
    ferry_placement_t placements[5];
} mesh_t;

static void add_axis(mesh_t *mesh, const char *name, uint32_t size) {
    mesh->axes[mesh->naxes] = (ferry_axis_t){name, size};
    mesh->placements[mesh->naxes] = (ferry_placement_t){.kind = FERRY_REPLICATE};
    mesh->naxes++;
}

static void add_cut_axis(mesh_t *mesh, const char *name, uint32_t size, uint32_t dim,
                         uint64_t unit) {
    add_axis(mesh, name, size);
    if (size > 1) {
        mesh->placements[mesh->naxes - 1] = (ferry_placement_t){
            .kind = FERRY_SHARD, .cut = FERRY_CUT_EVEN, .dim = dim, .unit = unit > 1 ? unit : 0};
    }
}

/* Appends the ranks of one stage, row-major over dp, cp, tp. */
static size_t add_stage_ranks(const fy_placing_t *placing, uint32_t stage, size_t count) {
    const fy_grid_t *grid = &placing->grid;
    for (uint32_t dp = 0; dp < grid->dp; dp++) {
        for (uint32_t cp = 0; cp < grid->cp; cp++) {
            for (uint32_t tp = 0; tp < grid->tp; tp++) {
                uint32_t rank = fy_grid_dense_rank(grid, stage, dp, cp, tp);
                placing->ranks[count++] = placing->first_rank + rank;
            }
        }
    }
    return count;
}

static void dense_mesh(const fy_placing_t *placing, uint32_t stage, const fy_cut_t *cut,
                       mesh_t *mesh) {
    const fy_grid_t *grid = &placing->grid;
    size_t count = add_stage_ranks(placing, stage, 0);
    if (cut->both_ends) {
        add_stage_ranks(placing, grid->pp - 1, count);
        add_axis(mesh, "pp", 2);
    }
    add_axis(mesh, "dp", grid->dp);
    add_axis(mesh, "cp", grid->cp);
    if (!cut->sharded) {
        add_axis(mesh, "tp", grid->tp);
        return;
    }
    uint32_t tp = cut->split ? placing->counts.kv_heads : grid->tp;
    add_cut_axis(mesh, "tp", tp, cut->dim, cut->unit);
    if (cut->inner) {
        add_cut_axis(mesh, "tprep", grid->tp / tp, cut->dim, cut->inner_unit);
    } else if (cut->split) {
        add_axis(mesh, "tprep", grid->tp / tp);
    }
}

static void expert_mesh(const fy_placing_t *placing, uint32_t stage, uint32_t ep,
                        const fy_cut_t *cut, mesh_t *mesh) {
    const fy_grid_t *grid = &placing->grid;
    size_t count = 0;
    for (uint32_t edp = 0; edp < grid->edp; edp++) {
        for (uint32_t etp = 0; etp < grid->etp; etp++) {
            uint32_t rank = fy_grid_expert_rank(grid, stage, ep, edp, etp);
            placing->ranks[count++] = placing->first_rank + rank;
        }
    }
    add_axis(mesh, "edp", grid->edp);
    add_cut_axis(mesh, "etp", grid->etp, cut->dim, cut->unit);
}

/* ---- layouts ----------------------------------------------------------------------------------- */

ferry_status_t fy_placing_init(fy_placing_t *placing, const fy_counts_t *counts,
                               const fy_way_t *ways, size_t nways, const fy_grid_t *grid,
                               uint32_t first_rank, ferry_error_t *err) {
    *placing = (fy_placing_t){.counts = *counts, .grid = *grid, .first_rank = first_rank};
    FY_TRY(check_grid(counts, grid, first_rank, err));
    placing->experts_per_coordinate = (uint32_t)fy_ceil_div(counts->experts, grid->ep);
    placing->places = fy_alloc_zero(nways, sizeof(fy_spot_t));
    if (placing->places == NULL) {
        return fy_fail_nomem(err, "the layouts of a model");
    }
    /* pp * ep is at most the world: the table stays small. */
    placing->nlayouts = grid->pp * make_places(placing, ways, nways);
    placing->layouts = fy_alloc_zero(placing->nlayouts, sizeof(ferry_layout_t *));
    placing->ranks = fy_alloc(2 * (size_t)grid->stage_ranks, sizeof(uint32_t));
    if (placing->layouts == NULL || placing->ranks == NULL) {
        return fy_fail_nomem(err, "the layouts of a model");
    }
    return FERRY_OK;
}

void fy_placing_fini(fy_placing_t *placing) {
    if (placing->layouts != NULL) {
        for (size_t i = 0; i < placing->nlayouts; i++) {
            ferry_layout_destroy(placing->layouts[i]);
        }
    }
    fy_free(placing->places);
    fy_free(placing->layouts);
    fy_free(placing->ranks);
}

ferry_layout_t **fy_placing_take(fy_placing_t *placing, size_t *count_p) {
    ferry_layout_t **layouts = placing->layouts;
    *count_p = placing->nlayouts;
    placing->layouts = NULL;
    return layouts;
}

uint32_t fy_placing_stage(const fy_placing_t *placing, uint32_t layer) {
    uint32_t pp = placing->grid.pp;
    uint32_t each = placing->counts.layers / pp;
    uint32_t extra = placing->counts.layers % pp;
    /* The stages of the window [first, first + extra) have one layer more. The window is in the
     * middle, since the first stage has the embedding too, and the last stage the output layer. */
    uint32_t first = (pp - extra + 1) / 2;
    if (layer < first * each) {
        return layer / each;
    }
    layer -= first * each;
    if (layer < extra * (each + 1)) {
        return first + layer / (each + 1);
    }
    return first + extra + (layer - extra * (each + 1)) / each;
}

ferry_status_t fy_placing_layout(fy_placing_t *placing, uint32_t stage, size_t way, uint32_t expert,
                                 const ferry_layout_t **layout_p, ferry_error_t *err) {
    const fy_spot_t *place = &placing->places[way];
    size_t index = stage * (placing->nlayouts / placing->grid.pp) + place->first;
    uint32_t ep = 0;
    if (place->cut.expert) {
        ep = expert / placing->experts_per_coordinate;
        index += ep;
    }
    if (placing->layouts[index] == NULL) {
        mesh_t mesh = {.naxes = 0};
        if (place->cut.expert) {
            expert_mesh(placing, stage, ep, &place->cut, &mesh);
        } else {
            dense_mesh(placing, stage, &place->cut, &mesh);
        }
        ferry_layout_params_t params = FERRY_LAYOUT_PARAMS_INIT;
        params.naxes = mesh.naxes;
        params.axes = mesh.axes;
        params.placements = mesh.placements;
        params.ranks = placing->ranks;
        FY_TRY(ferry_layout_create(&params, &placing->layouts[index], err));
    }
    *layout_p = placing->layouts[index];
    return FERRY_OK;
}
