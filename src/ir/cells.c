/* cells.c - the boxes of Partial sources, each once. */
#include <string.h>

#include "base/fail.h"
#include "ir/ir.h"

typedef struct wanted {
    const fy_cells_t *cells;
    const ferry_chunk_t *chunk;
} wanted_t;

static bool same_cell(const void *context, uint32_t id) {
    const wanted_t *wanted = context;
    const ferry_cell_t *cell = &wanted->cells->list[id];
    const ferry_chunk_t *chunk = wanted->chunk;
    size_t bytes = chunk->ndim * sizeof *chunk->extent;
    return cell->tensor == chunk->tensor && cell->slab == chunk->slab &&
           cell->owner == chunk->source && memcmp(cell->lo, chunk->source_lo, bytes) == 0 &&
           memcmp(cell->extent, chunk->extent, bytes) == 0;
}

static uint64_t hash_of(const ferry_chunk_t *chunk) {
    uint64_t hash = fy_hash_u64(chunk->source, (uint64_t)chunk->tensor << 32 | chunk->slab);
    hash = fy_hash_list_u64(hash, chunk->source_lo, chunk->ndim);
    return fy_hash_list_u64(hash, chunk->extent, chunk->ndim);
}

ferry_status_t fy_cells_find(fy_cells_t *cells, const ferry_chunk_t *chunk, uint32_t *cell_p,
                             ferry_error_t *err) {
    wanted_t wanted = {cells, chunk};
    uint64_t hash = hash_of(chunk);
    uint32_t id = fy_index_find(&cells->index, hash, same_cell, &wanted);
    if (id == FY_INDEX_NONE) {
        if (!fy_reserve(&cells->list, &cells->cap, cells->count + 1, sizeof *cells->list) ||
            !fy_index_add(&cells->index, hash, (uint32_t)cells->count)) {
            return fy_fail_nomem(err, "the cells of a Partial source");
        }
        id = (uint32_t)cells->count++; /* fits: there are no more cells than chunks */
        ferry_cell_t *cell = &cells->list[id];
        memset(cell, 0, sizeof *cell);
        cell->tensor = chunk->tensor;
        cell->slab = chunk->slab;
        cell->owner = chunk->source;
        cell->partial = chunk->partial;
        cell->elements = chunk->elements;
        cell->ndim = chunk->ndim;
        memcpy(cell->lo, chunk->source_lo, sizeof cell->lo);
        memcpy(cell->extent, chunk->extent, sizeof cell->extent);
    }
    *cell_p = id;
    return FERRY_OK;
}

void fy_cells_fini(fy_cells_t *cells) {
    fy_free(cells->list);
    fy_index_fini(&cells->index);
}
