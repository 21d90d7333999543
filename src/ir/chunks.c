/* chunks.c - the transfers of one rank, cut into slabs.
 *
 * The plan is walked once. What concerns the rank becomes a note of a few words: where the plan has it
 * and how it will be cut. Then the chunks are counted and have one array. They come out in order without
 * sorting: notes are in the order of task ids, so of tensors; and of one tensor, the first slabs of all
 * notes are taken, then the second ones of those that have them, and so on.
 *
 * Invariant: how a transfer is cut follows from its extent, its wire dtype and slab_bytes alone, so both
 * ends and all members of a reduce group cut it alike. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ir/ir.h"

enum { MIN_ELEMENTS = 32 }; /* slabs are multiples of it where a row is one element */

/* A transfer that concerns the rank. */
typedef struct note {
    ferry_plan_cursor_t at;
    uint64_t rows; /* per slab */
    uint32_t nslabs;
    uint32_t tensor;
    uint32_t partial;
    bool is_member; /* of the reduce group */
    bool may_cut;
    uint8_t dim;  /* that is cut; with may_cut only */
    uint8_t step; /* as many rows at least, likewise */
} note_t;

typedef struct maker {
    const ferry_plan_t *plan;
    const ferry_chunks_params_t *params;
    ferry_chunks_t *out;
    fy_groups_t groups;
    fy_cells_t cells;
    note_t *notes;
    size_t nnotes;
    size_t notes_cap;
    uint64_t nchunks;
    /* The tensor at hand. */
    ferry_plan_tensor_t tensor;
    ferry_dtype_t wire;
    bool is_partial;
} maker_t;

/* ---- wire dtypes -------------------------------------------------------------------------------- */

ferry_dtype_t ferry_wire_dtype(ferry_dtype_t source, ferry_dtype_t target, ferry_dtype_t wish) {
    uint32_t bits = ferry_dtype_bits(wish);
    if (ferry_dtype_is_float(source) && ferry_dtype_is_float(target) &&
        ferry_dtype_is_float(wish) && bits < ferry_dtype_bits(source) &&
        bits < ferry_dtype_bits(target)) {
        return wish;
    }
    return ferry_dtype_wire(source, target);
}

/* ---- what concerns the rank --------------------------------------------------------------------- */

/* A group of one rank sums nothing up. */
static bool reduces(const ferry_layout_t *layout) {
    for (uint32_t a = 0; a < ferry_layout_naxes(layout); a++) {
        if (ferry_layout_placement(layout, a)->kind == FERRY_PARTIAL &&
            ferry_layout_axis(layout, a)->size > 1) {
            return true;
        }
    }
    return false;
}

static void enter_tensor(maker_t *m, uint32_t ordinal) {
    ferry_plan_tensor(m->plan, ordinal, &m->tensor);
    m->wire = ferry_wire_dtype(m->tensor.source_dtype, m->tensor.target_dtype, m->params->wire);
    m->is_partial = reduces(m->tensor.source_layout);
}

/* Along which dim the transfer is cut, if it may be. */
static void find_rows(const maker_t *m, const ferry_transfer_t *t, note_t *note) {
    uint32_t dim = 0;
    while (dim < t->ndim && t->extent[dim] == 1) {
        dim++;
    }
    note->may_cut = (m->params->cut == NULL || m->params->cut[t->tensor] != 0) && dim < t->ndim;
    note->dim = (uint8_t)dim;
    note->step = note->may_cut && t->extent[dim] == t->elements ? MIN_ELEMENTS : 1;
    note->nslabs = 1;
}

/* How many slabs of how many rows. */
static ferry_status_t measure(const maker_t *m, const ferry_transfer_t *t, note_t *note,
                              ferry_error_t *err) {
    find_rows(m, t, note);
    if (!note->may_cut || m->params->slab_bytes == 0) {
        return FERRY_OK;
    }
    uint64_t row_bytes = 0;
    FY_TRY(ferry_dtype_bytes(m->wire, t->elements / t->extent[note->dim], &row_bytes, err));
    uint64_t rows = m->params->slab_bytes / row_bytes;
    note->rows = fy_max_u64(rows / note->step * note->step, note->step);
    uint64_t slabs = fy_ceil_div(t->extent[note->dim], note->rows);
    if (slabs >= FERRY_INDEX_NONE) {
        return fy_fail(err, FERRY_OVERFLOW, "%" PRIu64 " slabs of one transfer", slabs);
    }
    note->nslabs = (uint32_t)slabs;
    return FERRY_OK;
}

/* Notes the transfer at `at`, if it concerns the rank. */
static ferry_status_t take_note(maker_t *m, ferry_plan_cursor_t at, const ferry_transfer_t *t,
                                ferry_error_t *err) {
    uint32_t rank = m->params->rank;
    fy_known_t known = {.is_member = false, .partial = FERRY_INDEX_NONE};
    if (m->is_partial) {
        FY_TRY(fy_groups_find(&m->groups, m->plan, m->tensor.source_layout, t, &known, err));
    }
    if (t->source != rank && t->target != rank && !known.is_member) {
        return FERRY_OK;
    }
    note_t note = {
        .at = at, .tensor = t->tensor, .partial = known.partial, .is_member = known.is_member};
    FY_TRY(measure(m, t, &note, err));
    m->nchunks += note.nslabs;
    if (m->nchunks >= FERRY_INDEX_NONE) {
        return fy_fail(err, FERRY_OVERFLOW, "%" PRIu64 " chunks or more on one rank", m->nchunks);
    }
    if (!fy_reserve(&m->notes, &m->notes_cap, m->nnotes + 1, sizeof *m->notes)) {
        return fy_fail_nomem(err, "the transfers of a rank");
    }
    m->notes[m->nnotes++] = note;
    return FERRY_OK;
}

static ferry_status_t walk(maker_t *m, ferry_error_t *err) {
    uint32_t tensor = FERRY_INDEX_NONE;
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_plan_cursor_t at = cursor;
    ferry_transfer_t t;
    while (ferry_plan_next(m->plan, &cursor, &t)) {
        if (t.tensor != tensor) {
            tensor = t.tensor;
            enter_tensor(m, tensor);
        }
        ferry_status_t status = take_note(m, at, &t, err);
        if (status != FERRY_OK) {
            fy_error_tensor(err, m->tensor.name);
            return status;
        }
        at = cursor;
    }
    return FERRY_OK;
}

/* ---- chunks ------------------------------------------------------------------------------------- */

static ferry_chunk_role_t role_of(uint32_t rank, const ferry_transfer_t *t) {
    if (t->source == rank) {
        return t->target == rank ? FERRY_CHUNK_BOTH : FERRY_CHUNK_SOURCE;
    }
    return t->target == rank ? FERRY_CHUNK_TARGET : FERRY_CHUNK_REDUCE;
}

/* Appends one slab of a noted transfer. */
static ferry_status_t add_chunk(maker_t *m, const note_t *note, uint32_t slab, ferry_error_t *err) {
    ferry_plan_cursor_t at = note->at;
    ferry_transfer_t t;
    (void)ferry_plan_next(m->plan, &at, &t); /* it was there before */
    ferry_chunk_t *chunk = &m->out->list[m->out->count++];
    size_t bytes = t.ndim * sizeof *t.extent;
    memset(chunk, 0, sizeof *chunk);
    chunk->task_id = t.task_id;
    chunk->tensor = t.tensor;
    chunk->slab = slab;
    chunk->nslabs = note->nslabs;
    chunk->source = t.source;
    chunk->target = t.target;
    chunk->role = role_of(m->params->rank, &t);
    chunk->wire = m->wire;
    chunk->partial = note->partial;
    chunk->cell = FERRY_INDEX_NONE;
    chunk->elements = t.elements;
    chunk->ndim = t.ndim;
    memcpy(chunk->source_lo, t.source_lo, bytes);
    memcpy(chunk->target_lo, t.target_lo, bytes);
    memcpy(chunk->extent, t.extent, bytes);
    if (note->nslabs > 1) {
        uint64_t first = slab * note->rows;
        uint64_t rows = fy_min_u64(note->rows, t.extent[note->dim] - first);
        chunk->source_lo[note->dim] += first;
        chunk->target_lo[note->dim] += first;
        chunk->extent[note->dim] = rows;
        chunk->elements = t.elements / t.extent[note->dim] * rows;
    }
    chunk->divisible = note->may_cut && chunk->extent[note->dim] > note->step;
    FY_TRY(ferry_dtype_bytes(m->wire, chunk->elements, &chunk->bytes, err));
    return note->is_member ? fy_cells_find(&m->cells, chunk, &chunk->cell, err) : FERRY_OK;
}

/* All chunks of one tensor. Notes that have no more slabs make room for those that have. */
static ferry_status_t add_tensor(maker_t *m, note_t *notes, size_t count, ferry_error_t *err) {
    enter_tensor(m, notes[0].tensor);
    for (uint32_t slab = 0; count > 0; slab++) {
        size_t left = 0;
        for (size_t i = 0; i < count; i++) {
            ferry_status_t status = add_chunk(m, &notes[i], slab, err);
            if (status != FERRY_OK) {
                fy_error_tensor(err, m->tensor.name);
                return status;
            }
            if (slab + 1 < notes[i].nslabs) {
                notes[left++] = notes[i];
            }
        }
        count = left;
    }
    return FERRY_OK;
}

static ferry_status_t add_all(maker_t *m, ferry_error_t *err) {
    ferry_chunks_t *out = m->out;
    out->list = fy_arena_alloc(&out->arena, (size_t)m->nchunks, sizeof *out->list);
    if (out->list == NULL) {
        return fy_fail_nomem(err, "the chunks of a rank");
    }
    size_t end = 0;
    for (size_t first = 0; first < m->nnotes; first = end) {
        while (end < m->nnotes && m->notes[end].tensor == m->notes[first].tensor) {
            end++;
        }
        FY_TRY(add_tensor(m, &m->notes[first], end - first, err));
    }
    out->cells = fy_arena_copy(&out->arena, m->cells.list, m->cells.count, sizeof *out->cells);
    out->ncells = m->cells.count;
    out->partials =
        fy_arena_copy(&out->arena, m->groups.partials, m->groups.npartials, sizeof *out->partials);
    out->npartials = m->groups.npartials;
    if (out->cells == NULL || out->partials == NULL) {
        return fy_fail_nomem(err, "the cells of a rank");
    }
    return FERRY_OK;
}

/* ---- the doors ---------------------------------------------------------------------------------- */

static ferry_status_t check_params(const ferry_plan_t *plan, const ferry_chunks_params_t *params,
                                   ferry_error_t *err) {
    if (params == NULL || params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "chunk parameters of size %zu, expected %zu (FERRY_CHUNKS_PARAMS_INIT)",
                       params == NULL ? (size_t)0 : params->size, sizeof *params);
    }
    if (params->rank > FERRY_MAX_RANK) {
        return fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " is above the largest, %d",
                       params->rank, FERRY_MAX_RANK);
    }
    uint32_t part = ferry_plan_rank(plan);
    if (part != FERRY_RANK_NONE && part != params->rank) {
        return fy_fail(err, FERRY_INVALID,
                       "chunks of rank %" PRIu32 " out of the part of rank %" PRIu32, params->rank,
                       part);
    }
    if (params->wire != FERRY_DTYPE_NONE && ferry_dtype_bits(params->wire) == 0) {
        return fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)params->wire);
    }
    return FERRY_OK;
}

ferry_status_t ferry_chunks_create(const ferry_plan_t *plan, const ferry_chunks_params_t *params,
                                   ferry_chunks_t **chunks_p, ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(chunks_p, err);
    FY_TRY(check_params(plan, params, err));
    ferry_chunks_t *chunks = fy_alloc_zero(1, sizeof *chunks);
    if (chunks == NULL) {
        return fy_fail_nomem(err, "the chunks of a rank");
    }
    maker_t m = {.plan = plan, .params = params, .out = chunks};
    fy_groups_init(&m.groups, params->rank, &chunks->arena);
    ferry_status_t status = walk(&m, err);
    if (status == FERRY_OK) {
        status = add_all(&m, err);
    }
    fy_free(m.notes);
    fy_groups_fini(&m.groups);
    fy_cells_fini(&m.cells);
    if (status != FERRY_OK) {
        ferry_chunks_destroy(chunks);
        return status;
    }
    *chunks_p = chunks;
    return FERRY_OK;
}

void ferry_chunks_destroy(ferry_chunks_t *chunks) {
    if (chunks == NULL) {
        return;
    }
    fy_arena_fini(&chunks->arena);
    fy_free(chunks);
}

const ferry_chunk_t *ferry_chunks_list(const ferry_chunks_t *chunks, size_t *count_p) {
    *count_p = chunks->count;
    return chunks->list;
}

const ferry_cell_t *ferry_chunks_cells(const ferry_chunks_t *chunks, size_t *count_p) {
    *count_p = chunks->ncells;
    return chunks->cells;
}

const ferry_partial_t *ferry_chunks_partial(const ferry_chunks_t *chunks, uint32_t index) {
    return index < chunks->npartials ? &chunks->partials[index] : NULL;
}
