/* ir.h - inside of chunks and buckets.
 *
 * Chunks are made in two steps (chunks.c): the plan is walked once, and what concerns the rank is noted;
 * then each noted transfer is cut into its chunks, and the cells are found on the way (cells.c). Reduce
 * groups are asked for once per source layout and source (groups.c). */
#ifndef FERRY_IR_IR_H
#define FERRY_IR_IR_H

#include <ferry/ir.h>

#include "base/hash.h"
#include "base/memory.h"

struct ferry_chunks {
    fy_arena_t arena;
    ferry_chunk_t *list;
    size_t count;
    ferry_cell_t *cells;
    size_t ncells;
    ferry_partial_t *partials;
    size_t npartials;
};

/* ---- groups.c: who makes up a Partial source ---------------------------------------------------- */

/* What is known of the group behind one source of one layout. */
typedef struct fy_known {
    const ferry_layout_t *layout;
    uint32_t source;
    bool is_member;   /* the rank is in the group */
    uint32_t partial; /* FERRY_INDEX_NONE: no transfer of it concerned the rank so far */
} fy_known_t;

typedef struct fy_groups {
    uint32_t rank;
    fy_arena_t *arena; /* for the ranks of partials */
    ferry_partial_t *partials;
    size_t npartials;
    size_t partials_cap;
    fy_index_t partial_index;
    fy_known_t *known;
    size_t nknown;
    size_t known_cap;
    fy_index_t known_index;
    ferry_partial_t read; /* the group that was read last; its ranks are in `ranks` */
    uint32_t *ranks;
    size_t ranks_cap;
} fy_groups_t;

void fy_groups_init(fy_groups_t *groups, uint32_t rank, fy_arena_t *arena);
void fy_groups_fini(fy_groups_t *groups);

/* The group of a transfer out of a Partial source; `layout` is the tensor's source layout. Partials are
 * numbered as transfers that concern the rank come. */
ferry_status_t fy_groups_find(fy_groups_t *groups, const ferry_plan_t *plan,
                              const ferry_layout_t *layout, const ferry_transfer_t *transfer,
                              fy_known_t *known_p, ferry_error_t *err);

/* ---- cells.c: boxes that are reduced once --------------------------------------------------------- */

typedef struct fy_cells {
    ferry_cell_t *list;
    size_t count;
    size_t cap;
    fy_index_t index;
} fy_cells_t;

/* Finds the cell of a chunk, or adds it. */
ferry_status_t fy_cells_find(fy_cells_t *cells, const ferry_chunk_t *chunk, uint32_t *cell_p,
                             ferry_error_t *err);
void fy_cells_fini(fy_cells_t *cells);

#endif
