/* batch.c - one copy, and many copies kept for later.
 *
 * The copies of a batch lie one after the other on a line of bytes (read and written). A part is a
 * stretch of that line; where it cuts through a copy, both neighbours find the same unit to cut at, by
 * the same arithmetic, so every unit is done once. */
#include <ferry/kernel.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "kernel/item.h"

ferry_status_t ferry_view_copy(const ferry_view_t *target, const ferry_view_t *source,
                               uint32_t flags, ferry_error_t *err) {
    FY_NEED(target, err);
    FY_NEED(source, err);
    fy_dim_t dims[FERRY_MAX_DIMS];
    fy_item_t item;
    FY_TRY(fy_item_prepare(target, source, flags, dims, &item, err));
    item.stream = fy_item_streams(flags, item.bytes);
    fy_item_run(&item, 0, item.units);
    if (item.stream) {
        item.kernels->fence();
    }
    return FERRY_OK;
}

struct ferry_copy_batch {
    fy_arena_t arena;
    fy_item_t *items;
    uint64_t *starts; /* count + 1: where an item begins on the line */
    size_t count;     /* empty copies are not kept */
    uint64_t bytes;
};

static ferry_status_t add(ferry_copy_batch_t *batch, const ferry_view_t *target,
                          const ferry_view_t *source, uint32_t flags, ferry_error_t *err) {
    fy_dim_t dims[FERRY_MAX_DIMS];
    fy_item_t item;
    FY_TRY(fy_item_prepare(target, source, flags, dims, &item, err));
    if (item.units == 0) {
        return FERRY_OK;
    }
    item.dims = fy_arena_copy(&batch->arena, dims, item.ndim, sizeof *dims);
    if (item.dims == NULL) {
        return fy_fail_nomem(err, "a copy of a batch");
    }
    uint64_t start = batch->starts[batch->count];
    if (!fy_add_u64(start, item.weight, &start)) {
        return fy_fail(err, FERRY_OVERFLOW, "the bytes of a batch pass 64 bits");
    }
    batch->bytes += item.bytes;
    batch->items[batch->count++] = item;
    batch->starts[batch->count] = start;
    return FERRY_OK;
}

/* Says which copy of the batch failed, before its text. */
static void name_copy(ferry_error_t *err, size_t index) {
    ferry_error_t named = FERRY_ERROR_INIT;
    if (err != NULL) {
        fy_fail(&named, err->status, "copy %zu", index);
        fy_error_prefix(err, named.text);
    }
}

ferry_status_t ferry_copy_batch_create(const ferry_view_t *targets, const ferry_view_t *sources,
                                       size_t count, uint32_t flags, ferry_copy_batch_t **batch_p,
                                       ferry_error_t *err) {
    FY_NEED_ARRAY(targets, count, err);
    FY_NEED_ARRAY(sources, count, err);
    FY_NEED(batch_p, err);
    ferry_copy_batch_t *batch = fy_alloc_zero(1, sizeof *batch);
    if (batch == NULL) {
        return fy_fail_nomem(err, "a batch of copies");
    }
    ferry_status_t status = FERRY_OK;
    batch->items = fy_arena_alloc(&batch->arena, count, sizeof *batch->items);
    batch->starts = fy_arena_alloc(&batch->arena, count + 1, sizeof *batch->starts);
    if (batch->items == NULL || batch->starts == NULL) {
        status = fy_fail_nomem(err, "a batch of copies");
    } else {
        batch->starts[0] = 0;
    }
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        status = add(batch, &targets[i], &sources[i], flags, err);
        if (status != FERRY_OK) {
            name_copy(err, i);
        }
    }
    if (status != FERRY_OK) {
        ferry_copy_batch_destroy(batch);
        return status;
    }
    for (size_t i = 0; i < batch->count; i++) {
        batch->items[i].stream = fy_item_streams(flags, batch->bytes);
    }
    *batch_p = batch;
    return FERRY_OK;
}

void ferry_copy_batch_destroy(ferry_copy_batch_t *batch) {
    if (batch != NULL) {
        fy_arena_fini(&batch->arena);
        fy_free(batch);
    }
}

uint64_t ferry_copy_batch_bytes(const ferry_copy_batch_t *batch) {
    return batch == NULL ? 0 : batch->bytes;
}

/* Where part `part` begins on the line: total * part / nparts, without passing 64 bits. */
static uint64_t cut_of(uint64_t total, uint32_t part, uint32_t nparts) {
    return total / nparts * part + total % nparts * part / nparts;
}

/* The unit of the item at which a cut `at` bytes after its start falls. */
static uint64_t unit_at(const fy_item_t *item, uint64_t at) {
    if (at >= item->weight) {
        return item->units;
    }
    uint64_t each = fy_ceil_div(item->weight, item->units);
    return fy_min_u64(item->units, fy_ceil_div(at, each));
}

/* The last item that begins at or before `at`. */
static size_t item_at(const ferry_copy_batch_t *batch, uint64_t at) {
    size_t low = 0;
    size_t high = batch->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (batch->starts[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

ferry_status_t ferry_copy_batch_run(const ferry_copy_batch_t *batch, uint32_t part, uint32_t nparts,
                                    ferry_error_t *err) {
    FY_NEED(batch, err);
    if (part >= nparts) {
        return fy_fail(err, FERRY_INVALID, "part %u of %u", part, nparts);
    }
    if (batch->count == 0) {
        return FERRY_OK;
    }
    uint64_t total = batch->starts[batch->count];
    uint64_t from = cut_of(total, part, nparts);
    uint64_t to = part + 1 == nparts ? total : cut_of(total, part + 1, nparts);
    for (size_t i = item_at(batch, from); i < batch->count && batch->starts[i] < to; i++) {
        const fy_item_t *item = &batch->items[i];
        uint64_t start = batch->starts[i];
        fy_item_run(item, from > start ? unit_at(item, from - start) : 0,
                    unit_at(item, to - start));
    }
    if (batch->items[0].stream) {
        batch->items[0].kernels->fence();
    }
    return FERRY_OK;
}
