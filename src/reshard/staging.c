/* staging.c - memory inside the budget of a session.
 *
 * Two kinds: what transforms keep from run to run (ferry_staging_take), and one block that the passes
 * use in turn. Both are shared memory, so that others reach it directly. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/fail.h"
#include "reshard/session.h"

ferry_status_t ferry_staging_take(ferry_staging_t *staging, uint64_t bytes, void **memory_p,
                                  ferry_error_t *err) {
    FY_NEED(staging, err);
    FY_NEED(memory_p, err);
    if (bytes > staging->budget - staging->taken) {
        return fy_fail(err, FERRY_NOMEM,
                       "%" PRIu64 " bytes of staging do not fit the budget, of which %" PRIu64
                       " bytes are left",
                       bytes, staging->budget - staging->taken);
    }
    if (!fy_reserve(&staging->blocks, &staging->cap, staging->nblocks + 1,
                    sizeof *staging->blocks)) {
        return fy_fail_nomem(err, "staging");
    }
    FY_TRY(ferry_mem_alloc(staging->world, bytes, memory_p, err));
    staging->blocks[staging->nblocks++] = (struct fy_block){*memory_p, bytes};
    staging->taken += bytes;
    return FERRY_OK;
}

bool fy_is_staging(const ferry_staging_t *staging, const void *memory) {
    uintptr_t at = (uintptr_t)memory;
    bool inside = false;
    for (size_t i = 0; i < staging->nblocks && !inside; i++) {
        uintptr_t from = (uintptr_t)staging->blocks[i].memory;
        inside = at >= from && at - from < staging->blocks[i].bytes;
    }
    return inside;
}

void fy_staging_fini(ferry_staging_t *staging, bool forget) {
    for (size_t i = 0; i < staging->nblocks && !forget; i++) {
        (void)ferry_mem_free(staging->world, staging->blocks[i].memory, NULL);
    }
    fy_free(staging->blocks);
    staging->blocks = NULL;
    staging->nblocks = 0;
    staging->cap = 0;
    staging->taken = 0;
}

void *fy_place(fy_places_t *places, uint64_t bytes) {
    void *place = places->base != NULL ? places->base + places->used : NULL;
    places->used += fy_ceil_div(bytes, FY_STAGING_ALIGN) * FY_STAGING_ALIGN;
    return place;
}

uint64_t fy_view_bytes(const ferry_view_t *view) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < view->ndim; i++) {
        elements *= view->shape[i];
    }
    return fy_ceil_div(elements * ferry_dtype_bits(view->dtype), 8);
}

uint64_t fy_staged_bytes(const ferry_view_t *view) {
    return fy_ceil_div(fy_view_bytes(view), FY_STAGING_ALIGN) * FY_STAGING_ALIGN;
}

ferry_status_t fy_place_view(fy_places_t *places, ferry_dtype_t dtype, uint32_t ndim,
                             const uint64_t *shape, ferry_view_t *view_p, ferry_error_t *err) {
    FY_TRY(ferry_view_contiguous(NULL, dtype, ndim, shape, view_p, err));
    view_p->data = fy_place(places, fy_staged_bytes(view_p));
    view_p->kind = FERRY_MEM_SHARED;
    return FERRY_OK;
}
