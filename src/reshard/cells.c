/* cells.c - Partial sources.
 *
 * A cell is a box of a tensor whose value is spread over the ranks of a grid. Each member sends its part
 * to the owner, in the source dtype; the owner folds them, innermost axis first and from index 0
 * upwards, into staging, never into a tensor of the caller; what comes out is the source of all transfers of
 * that box. The order comes from the plan, so the bits are the same in every run. */
#include <inttypes.h>
#include <string.h>

#include <ferry/kernel.h>

#include "base/fail.h"
#include "reshard/session.h"

bool fy_is_partial(const ferry_layout_t *layout) {
    bool partial = false;
    for (uint32_t a = 0; a < ferry_layout_naxes(layout); a++) {
        partial = partial || ferry_layout_placement(layout, a)->kind == FERRY_PARTIAL;
    }
    return partial;
}

static bool reducible(ferry_dtype_t dtype) {
    switch (dtype) {
    case FERRY_F8E4M3:
    case FERRY_F8E5M2:
    case FERRY_E8M0:
    case FERRY_BOOL:
        return false;
    default:
        return true;
    }
}

static uint32_t grid_place(const ferry_partial_t *partial, uint32_t rank) {
    uint32_t i = 0;
    while (i < partial->reduce.nranks && partial->ranks[i] != rank) {
        i++;
    }
    return i;
}

/* Folds the parts, or, without `run`, only finds where the result will lie. Each group is written to its
 * first part that is not the caller's own tensor, and stands for the group on the next axis. */
static ferry_status_t walk(const fy_fold_t *fold, ferry_view_t *list, bool run,
                           ferry_view_t *result_p, ferry_error_t *err) {
    const ferry_reduce_t *reduce = &fold->partial->reduce;
    memcpy(list, fold->parts, reduce->nranks * sizeof *list);
    uint32_t left = reduce->nranks;
    for (uint32_t axis = reduce->naxes; axis-- > 0;) {
        uint32_t size = reduce->sizes[axis];
        left /= size;
        for (uint32_t g = 0; g < left; g++) {
            const ferry_view_t *group = &list[(size_t)g * size];
            ferry_view_t target = group[size > 1 && group[0].data == fold->mine.data ? 1 : 0];
            if (run && size > 1) {
                FY_TRY(ferry_reduce(&target, group, size, reduce->ops[axis], err));
            }
            list[g] = target;
        }
    }
    *result_p = list[0];
    return FERRY_OK;
}

ferry_status_t fy_fold_make(fy_session_t *session, const ferry_cell_t *cell, fy_fold_t *fold_p,
                            ferry_error_t *err) {
    memset(fold_p, 0, sizeof *fold_p);
    fold_p->cell = cell;
    fold_p->partial = ferry_chunks_partial(session->chunks, cell->partial);
    fold_p->binding = &session->bindings[cell->tensor];
    const fy_binding_t *b = fold_p->binding;
    ferry_status_t status = FERRY_OK;
    if (!reducible(b->tensor.source_dtype)) {
        status = fy_fail(err, FERRY_UNSUPPORTED, "a Partial source of dtype %s cannot be reduced",
                         ferry_dtype_name(b->tensor.source_dtype));
    }
    if (status == FERRY_OK) {
        status = ferry_view_slice(&b->source, cell->lo, cell->extent, &fold_p->mine, err);
    }
    if (status == FERRY_OK && cell->owner == session->me) {
        /* The second half is for folding. */
        uint32_t nranks = fold_p->partial->reduce.nranks;
        fold_p->parts = fy_arena_alloc(&session->cut, 2 * (size_t)nranks, sizeof *fold_p->parts);
        status = fold_p->parts == NULL ? fy_fail_nomem(err, "the sums of a session") : FERRY_OK;
    }
    if (status == FERRY_OK) {
        status = ferry_view_contiguous(NULL, b->tensor.source_dtype, cell->ndim, cell->extent,
                                       &fold_p->result, err);
    }
    if (status == FERRY_OK && cell->owner == session->me && b->transformed) {
        void *memory = NULL;
        status = ferry_staging_take(&session->staging, fy_fold_cost(session, fold_p), &memory, err);
        fy_places_t places = {memory, 0};
        if (status == FERRY_OK) {
            status = fy_fold_place(session, fold_p, &places, err);
        }
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, b->tensor.name);
        fy_error_region(err, cell->ndim, cell->lo, cell->extent);
    }
    return status;
}

uint64_t fy_fold_cost(const fy_session_t *session, const fy_fold_t *fold) {
    if (fold->cell->owner != session->me) {
        return 0;
    }
    return fy_staged_bytes(&fold->mine) * (fold->partial->reduce.nranks - 1);
}

ferry_status_t fy_fold_place(const fy_session_t *session, fy_fold_t *fold, fy_places_t *places,
                             ferry_error_t *err) {
    if (fold->cell->owner != session->me) {
        return FERRY_OK;
    }
    uint32_t own = grid_place(fold->partial, session->me);
    for (uint32_t i = 0; i < fold->partial->reduce.nranks; i++) {
        fold->parts[i] = fold->mine;
        if (i != own) {
            FY_TRY(fy_place_view(places, fold->mine.dtype, fold->mine.ndim, fold->mine.shape,
                                 &fold->parts[i], err));
        }
    }
    return walk(fold, fold->parts + fold->partial->reduce.nranks, false, &fold->result, err);
}

/* --- handing parts over ------------------------------------------------------------------------ */

/* Member, owner, and how many cells of the two come before in the pass: both count alike. */
static uint64_t part_id(uint32_t member, uint32_t owner, uint32_t number) {
    return (uint64_t)member << 44 | (uint64_t)owner << 24 | number;
}

static ferry_status_t submit_fold(fy_session_t *session, const fy_fold_t *fold, uint32_t *counts,
                                  ferry_error_t *err) {
    uint32_t owner = fold->cell->owner;
    if (owner != session->me) {
        uint64_t id = part_id(session->me, owner, counts[owner]++);
        return ferry_copy_submit_send(session->service, &fold->mine, FERRY_DTYPE_NONE, owner, id,
                                      err);
    }
    for (uint32_t i = 0; i < fold->partial->reduce.nranks; i++) {
        uint32_t member = fold->partial->ranks[i];
        if (member != session->me) {
            uint64_t id = part_id(member, owner, counts[member]++);
            FY_TRY(ferry_copy_submit_recv(session->service, &fold->parts[i], member, id, err));
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_folds_submit(fy_session_t *session, const fy_pass_t *pass, ferry_error_t *err) {
    /* Cells of this rank as owner and as member are counted apart. */
    uint32_t *counts = fy_alloc_zero(2 * (size_t)session->size, sizeof *counts);
    if (counts == NULL) {
        return fy_fail_nomem(err, "the sums of a session");
    }
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < pass->nfolds && status == FERRY_OK; i++) {
        const fy_fold_t *fold = &session->folds[pass->first_fold + i];
        bool owns = fold->cell->owner == session->me;
        status = submit_fold(session, fold, owns ? counts : counts + session->size, err);
    }
    fy_free(counts);
    return status;
}

/* --- folding ----------------------------------------------------------------------------------- */

ferry_status_t fy_fold_run(const fy_fold_t *fold, ferry_error_t *err) {
    ferry_view_t result;
    ferry_status_t status =
        walk(fold, fold->parts + fold->partial->reduce.nranks, true, &result, err);
    if (status != FERRY_OK) {
        fy_error_tensor(err, fold->binding->tensor.name);
        fy_error_region(err, fold->cell->ndim, fold->cell->lo, fold->cell->extent);
    }
    return status;
}
