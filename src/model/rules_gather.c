/* rules_gather.c - from the files of ranks to the whole tensors behind them.
 *
 * A layout does not depend on shapes, so tensors are placed twice: first with the shapes of any shard, to learn
 * who holds what; then with the lengths that the shards of each dim add up to. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "layout/layout.h"
#include "model/rules.h"

/* A tensor in a rank's file. */
typedef struct held {
    const ferry_whole_t *tensor;
    uint32_t rank;
} held_t;

typedef struct gatherer {
    held_t *held; /* in the order of names, then of ranks */
    size_t count;
    ferry_whole_t *wholes; /* one per name */
    size_t nwholes;
    size_t *first;                      /* of each whole: its place in held; and the end */
    uint64_t (*shapes)[FERRY_MAX_DIMS]; /* of each whole */
} gatherer_t;

static int compare_held(const void *a, const void *b) {
    const held_t *x = a;
    const held_t *y = b;
    int order = strcmp(x->tensor->name, y->tensor->name);
    return order != 0 ? order : (x->rank < y->rank ? -1 : x->rank > y->rank);
}

static ferry_status_t check_held(const gatherer_t *g, const ferry_place_params_t *params, size_t i,
                                 ferry_error_t *err) {
    const held_t *held = &g->held[i];
    ferry_status_t status = FERRY_OK;
    if (held->tensor->ndim > FERRY_MAX_DIMS) {
        status = fy_fail(err, FERRY_INVALID, "%" PRIu32 " dims, but tensors have at most %d",
                         held->tensor->ndim, FERRY_MAX_DIMS);
    } else if (i > 0 && compare_held(held - 1, held) == 0) {
        status = fy_fail(err, FERRY_INVALID, "the name is there twice");
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, held->tensor->name);
        fy_error_ranks(err, params->first_rank + held->rank, FERRY_RANK_NONE);
    }
    return status;
}

/* Lists everything that is held, by name. */
static ferry_status_t list_held(gatherer_t *g, const ferry_place_params_t *params,
                                const ferry_rank_tensors_t *files, size_t nfiles,
                                ferry_error_t *err) {
    size_t room = 0;
    for (size_t r = 0; r < nfiles; r++) {
        room += files[r].ntensors;
    }
    g->held = fy_alloc(room, sizeof *g->held);
    g->wholes = fy_alloc(room, sizeof *g->wholes);
    g->first = fy_alloc(room + 1, sizeof *g->first);
    g->shapes = fy_alloc_zero(room, sizeof *g->shapes);
    if (g->held == NULL || g->wholes == NULL || g->first == NULL || g->shapes == NULL) {
        return fy_fail_nomem(err, "the tensors of rank files");
    }
    for (size_t r = 0; r < nfiles; r++) {
        for (size_t i = 0; i < files[r].ntensors; i++) {
            FY_NEED(files[r].tensors[i].name, err);
            g->held[g->count++] = (held_t){&files[r].tensors[i], (uint32_t)r};
        }
    }
    if (g->count > 1) {
        qsort(g->held, g->count, sizeof *g->held, compare_held);
    }
    for (size_t i = 0; i < g->count; i++) {
        FY_TRY(check_held(g, params, i, err));
        if (i == 0 || strcmp(g->held[i - 1].tensor->name, g->held[i].tensor->name) != 0) {
            g->first[g->nwholes] = i;
            g->wholes[g->nwholes++] = *g->held[i].tensor;
        }
    }
    g->first[g->nwholes] = g->count;
    return FERRY_OK;
}

/* What a rank holds of whole number w, or NULL. */
static const ferry_whole_t *find_held(const gatherer_t *g, size_t w, uint32_t rank) {
    size_t lo = g->first[w];
    size_t hi = g->first[w + 1];
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (g->held[mid].rank == rank) {
            return g->held[mid].tensor;
        }
        lo = g->held[mid].rank < rank ? mid + 1 : lo;
        hi = g->held[mid].rank < rank ? hi : mid;
    }
    return NULL;
}

/* Does the rank at this mesh index count for the length of dim d? One of those that hold the same part does. */
static bool counts_for(const ferry_layout_t *layout, uint32_t index, uint32_t d) {
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (!fy_layout_cuts(layout, a, d) && fy_layout_coordinate(layout, index, a) != 0) {
            return false;
        }
    }
    return true;
}

/* Adds the shard of one rank to the whole. */
static ferry_status_t add_shard(const gatherer_t *g, size_t w, const ferry_layout_t *layout,
                                uint32_t index, uint32_t rank, ferry_error_t *err) {
    const ferry_whole_t *whole = &g->wholes[w];
    const ferry_whole_t *shard = find_held(g, w, rank);
    if (shard == NULL) {
        return fy_fail(err, FERRY_INVALID, "the rank's file does not have this tensor");
    }
    if (shard->dtype != whole->dtype || shard->ndim != whole->ndim) {
        return fy_fail(err, FERRY_INVALID,
                       "other ranks have it in another dtype or number of dims");
    }
    for (uint32_t d = 0; d < shard->ndim; d++) {
        if (counts_for(layout, index, d) &&
            !fy_add_u64(g->shapes[w][d], shard->shape[d], &g->shapes[w][d])) {
            return fy_fail(err, FERRY_OVERFLOW, "dim %" PRIu32 " adds up to more than 64 bits", d);
        }
    }
    return FERRY_OK;
}

static ferry_status_t add_up(gatherer_t *g, const ferry_place_params_t *params,
                             const ferry_tensor_set_t *set, ferry_error_t *err) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    for (size_t w = 0; w < count; w++) {
        const ferry_layout_t *layout = tensors[w].layout;
        for (uint32_t i = 0; i < layout->nranks; i++) {
            uint32_t rank = layout->ranks[i];
            ferry_status_t status = add_shard(g, w, layout, i, rank - params->first_rank, err);
            if (status != FERRY_OK) {
                fy_error_tensor(err, tensors[w].name);
                fy_error_ranks(err, rank, FERRY_RANK_NONE);
                return status;
            }
        }
        g->wholes[w].shape = g->shapes[w];
    }
    return FERRY_OK;
}

static ferry_status_t gather(gatherer_t *g, const ferry_rules_t *rules,
                             const ferry_place_params_t *params, const ferry_rank_tensors_t *files,
                             size_t nfiles, ferry_tensor_set_t **set_p, ferry_error_t *err) {
    FY_TRY(list_held(g, params, files, nfiles, err));
    ferry_place_params_t first = *params;
    first.tensors = g->wholes;
    first.ntensors = g->nwholes;
    ferry_tensor_set_t *set = NULL;
    FY_TRY(ferry_rules_place(rules, &first, &set, err));
    ferry_status_t status = add_up(g, params, set, err);
    ferry_tensor_set_destroy(set);
    return status == FERRY_OK ? ferry_rules_place(rules, &first, set_p, err) : status;
}

ferry_status_t ferry_rules_gather(const ferry_rules_t *rules, const ferry_place_params_t *params,
                                  const ferry_rank_tensors_t *files, size_t nfiles,
                                  ferry_tensor_set_t **set_p, ferry_error_t *err) {
    FY_NEED(rules, err);
    FY_NEED(set_p, err);
    FY_TRY(fy_rules_check_params(params, err));
    FY_NEED_ARRAY(files, nfiles, err);
    uint32_t world = 1;
    if (params->parallel != NULL) {
        FY_TRY(ferry_parallel_world(params->parallel, &world, err));
    }
    if (nfiles != world) {
        return fy_fail(err, FERRY_INVALID, "%zu rank files, but the spec has %" PRIu32 " ranks",
                       nfiles, world);
    }
    for (size_t r = 0; r < nfiles; r++) {
        FY_NEED_ARRAY(files[r].tensors, files[r].ntensors, err);
    }
    gatherer_t g = {.held = NULL};
    ferry_status_t status = gather(&g, rules, params, files, nfiles, set_p, err);
    fy_free(g.held);
    fy_free(g.wholes);
    fy_free(g.first);
    fy_free(g.shapes);
    return status;
}
