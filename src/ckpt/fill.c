/* fill.c - one unit of work: rows of a stored tensor, gathered from the source files.
 *
 * The rows are clipped out of the stored tensor's parts: boxes of shards. Each meets transfers of the plan, which say
 * where it lies in the shards of source ranks; each of these meets the places of that shard in the source
 * files. What remains is one strided copy from a mapped file into the buffer. */
#include <inttypes.h>
#include <string.h>

#include <ferry/kernel.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/job.h"

ferry_status_t fy_filler_init(fy_filler_t *filler, const fy_job_t *job, ferry_error_t *err) {
    *filler = (fy_filler_t){.job = job, .rank = FERRY_RANK_NONE};
    filler->buffer = fy_alloc((size_t)job->unit_bytes, 1);
    return filler->buffer == NULL ? fy_fail_nomem(err, "the buffer of a worker") : FERRY_OK;
}

void fy_filler_fini(fy_filler_t *filler) {
    ferry_plan_destroy(filler->plan);
    fy_free(filler->transfers);
    fy_free(filler->buffer);
}

/* The transfers to a rank. */
static ferry_status_t need_plan(fy_filler_t *filler, uint32_t rank, ferry_error_t *err) {
    const fy_job_t *job = filler->job;
    if (filler->rank == rank) {
        return FERRY_OK;
    }
    ferry_plan_destroy(filler->plan);
    filler->plan = NULL;
    filler->ntransfers = 0;
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_PART | FERRY_PLAN_ALLOW_CAST;
    params.rank = rank;
    params.sources = job->source->tensors;
    params.nsources = job->source->wholes.count;
    params.targets = job->targets;
    params.ntargets = job->source->wholes.count;
    FY_TRY(ferry_plan_create(&params, &filler->plan, err));
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    uint64_t count = ferry_plan_ntransfers(filler->plan);
    if (!fy_reserve(&filler->transfers, &filler->cap, (size_t)count, sizeof *filler->transfers)) {
        return fy_fail_nomem(err, "the plan of a worker");
    }
    while (ferry_plan_next(filler->plan, &cursor, &filler->transfers[filler->ntransfers])) {
        filler->ntransfers++;
    }
    filler->rank = rank;
    return FERRY_OK;
}

static size_t first_transfer(const fy_filler_t *filler, uint32_t tensor) {
    size_t lo = 0;
    size_t hi = filler->ntransfers;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (filler->transfers[middle].tensor < tensor) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return lo;
}

/* --- copying ----------------------------------------------------------------------------------- */

/* A unit being filled. */
typedef struct filling {
    fy_filler_t *filler;
    const fy_made_t *made;
    const fy_part_t *part;
    uint64_t from; /* first element of the unit in the stored tensor */
    uint32_t ndim;
} filling_t;

/* The box of the shard, as it lies in the buffer. */
static ferry_view_t in_buffer(const filling_t *filling, const fy_box_t *box) {
    const fy_part_t *part = filling->part;
    uint64_t at = part->first - filling->from;
    ferry_view_t view = {.dtype = filling->made->dtype, .ndim = filling->ndim};
    for (uint32_t i = 0; i < filling->ndim; i++) {
        at += (box->lo[i] - part->box.lo[i]) * (uint64_t)part->strides[i];
        view.shape[i] = box->extent[i];
        view.strides[i] = part->strides[i];
    }
    view.data = filling->filler->buffer + at * (ferry_dtype_bits(view.dtype) / 8);
    return view;
}

/* What lies in one place of a source rank's shard. `box` is in the target's shard, `source` the same in the source's. */
static ferry_status_t copy_place(const filling_t *filling, const fy_place_t *place,
                                 const fy_box_t *box, const fy_box_t *source, ferry_error_t *err) {
    const ferry_folder_t *folder = filling->filler->job->source;
    fy_box_t meets;
    fy_box_t where = {{0}, {0}};
    memcpy(where.lo, place->lo, sizeof where.lo);
    memcpy(where.extent, place->extent, sizeof where.extent);
    if (!fy_box_meet(filling->ndim, &where, source, &meets)) {
        return FERRY_OK;
    }
    const uint8_t *bytes = NULL;
    FY_TRY(ferry_safetensors_map(folder->files[place->file], &bytes, err));
    ferry_dtype_t dtype = folder->tensors[place->tensor].dtype;
    uint64_t at = 0;
    fy_box_t target = meets;
    ferry_view_t from = {.dtype = dtype, .ndim = filling->ndim};
    for (uint32_t i = 0; i < filling->ndim; i++) {
        at += (meets.lo[i] - place->lo[i]) * (uint64_t)place->strides[i];
        target.lo[i] = box->lo[i] + (meets.lo[i] - source->lo[i]);
        from.shape[i] = meets.extent[i];
        from.strides[i] = place->strides[i];
    }
    uint64_t width = ferry_dtype_bits(dtype) / 8;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < filling->ndim; i++) {
        elements *= meets.extent[i];
    }
    filling->filler->bytes_read += elements * width;
    from.data = fy_readable(bytes + place->offset + at * width);
    ferry_view_t to = in_buffer(filling, &target);
    return ferry_view_copy(&to, &from, FERRY_COPY_CACHED, err);
}

/* A box of the target's shard: from whichever source ranks the plan names. */
static ferry_status_t copy_box(void *context, const fy_box_t *box, ferry_error_t *err) {
    const filling_t *filling = context;
    const fy_filler_t *filler = filling->filler;
    const ferry_folder_t *folder = filler->job->source;
    uint32_t tensor = filling->part->tensor;
    for (size_t i = first_transfer(filler, tensor);
         i < filler->ntransfers && filler->transfers[i].tensor == tensor; i++) {
        const ferry_transfer_t *t = &filler->transfers[i];
        fy_box_t whole = {{0}, {0}};
        memcpy(whole.lo, t->target_lo, sizeof whole.lo);
        memcpy(whole.extent, t->extent, sizeof whole.extent);
        fy_box_t meets;
        if (!fy_box_meet(filling->ndim, &whole, box, &meets)) {
            continue;
        }
        fy_box_t source = meets;
        for (uint32_t k = 0; k < filling->ndim; k++) {
            source.lo[k] = t->source_lo[k] + (meets.lo[k] - t->target_lo[k]);
        }
        const fy_places_of_t *places = &folder->places[t->source];
        for (size_t p = places->first[tensor]; p < places->first[tensor + 1]; p++) {
            FY_TRY(copy_place(filling, &places->list[p], &meets, &source, err));
        }
    }
    return FERRY_OK;
}

static filling_t filling_of(fy_filler_t *filler, const fy_work_unit_t *unit) {
    const fy_made_t *made = &filler->job->made[unit->made];
    return (filling_t){.filler = filler, .made = made, .from = unit->row * made->row_elements};
}

/* Calls fn with the boxes of all parts that lie in the unit. */
static ferry_status_t each_box(filling_t *filling, const fy_work_unit_t *unit, fy_box_fn_t fn,
                               void *context, ferry_error_t *err) {
    const fy_job_t *job = filling->filler->job;
    uint64_t to = filling->from + unit->rows * filling->made->row_elements;
    for (size_t i = 0; i < filling->made->nparts; i++) {
        filling->part = &job->parts[filling->made->first_part + i];
        const ferry_tensor_t *tensor = &job->targets[filling->part->tensor];
        filling->ndim = tensor->ndim;
        ferry_status_t status =
            fy_box_clip(tensor->ndim, &filling->part->box, filling->part->first,
                        filling->part->strides, filling->from, to, fn, context, err);
        if (status != FERRY_OK) {
            fy_error_tensor(err, tensor->name);
            return status;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_fill(fy_filler_t *filler, const fy_work_unit_t *unit, ferry_error_t *err) {
    filling_t filling = filling_of(filler, unit);
    FY_TRY(need_plan(filler, filling.made->rank, err));
    return each_box(&filling, unit, copy_box, &filling, err);
}

/* --- digests ----------------------------------------------------------------------------------- */

typedef struct summing {
    filling_t *filling;
    ferry_digest_t *digests;
    uint64_t global[FERRY_MAX_DIMS];
} summing_t;

static ferry_status_t add_global(void *context, const fy_box_t *box, ferry_error_t *err) {
    summing_t *summing = context;
    const fy_part_t *part = summing->filling->part;
    const ferry_tensor_t *tensor = &summing->filling->filler->job->targets[part->tensor];
    ferry_view_t view = in_buffer(summing->filling, box);
    return ferry_digest_add(&summing->digests[part->tensor], &view, tensor->shape, summing->global,
                            err);
}

static ferry_status_t add_box(void *context, const fy_box_t *box, ferry_error_t *err) {
    summing_t *summing = context;
    const filling_t *filling = summing->filling;
    const ferry_tensor_t *tensor = &filling->filler->job->targets[filling->part->tensor];
    if (fy_replica_of(tensor->layout, filling->made->rank) != 0) {
        return FERRY_OK;
    }
    return fy_box_globals(tensor, filling->made->rank, box, summing->global, add_global, summing,
                          err);
}

ferry_status_t fy_digest_unit(fy_filler_t *filler, const fy_work_unit_t *unit,
                              ferry_digest_t *digests, ferry_error_t *err) {
    filling_t filling = filling_of(filler, unit);
    summing_t summing = {&filling, digests, {0}};
    return each_box(&filling, unit, add_box, &summing, err);
}
