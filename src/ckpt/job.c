/* job.c - what is to be made of a folder, and the units of work. */
#include "ckpt/job.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"

static uint64_t elements_of(uint32_t ndim, const uint64_t *shape) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        elements *= shape[i];
    }
    return elements;
}

/* Rows that fit a unit: the leading dims are taken together until one does, or nothing is left. */
static void choose_rows(fy_made_t *made, uint64_t unit_bytes) {
    uint64_t width = ferry_dtype_bits(made->dtype) / 8;
    made->rows = 1;
    made->row_elements = elements_of(made->ndim, made->shape);
    for (uint32_t i = 0; i < made->ndim && made->row_elements > 0 &&
                         (i == 0 || made->row_elements * width > unit_bytes);
         i++) {
        made->rows *= made->shape[i];
        made->row_elements /= made->shape[i];
    }
}

/* --- what is made ------------------------------------------------------------------------------ */

static ferry_status_t make_room(fy_job_t *job, size_t made, size_t *made_cap, size_t parts,
                                size_t *parts_cap, ferry_error_t *err) {
    return fy_reserve(&job->made, made_cap, job->nmade + made, sizeof *job->made) &&
                   fy_reserve(&job->parts, parts_cap, job->nparts + parts, sizeof *job->parts)
               ? FERRY_OK
               : fy_fail_nomem(err, "the tensors of a folder");
}

/* Whole tensors, in the order that they had. */
static ferry_status_t make_hf(fy_job_t *job, const fy_job_params_t *params, ferry_error_t *err) {
    const fy_wholes_t *wholes = &job->source->wholes;
    size_t made_cap = 0;
    size_t parts_cap = 0;
    FY_TRY(make_room(job, wholes->count, &made_cap, wholes->count, &parts_cap, err));
    job->nmade = wholes->count;
    job->nparts = wholes->count;
    for (size_t i = 0; i < wholes->count; i++) {
        const fy_whole_t *whole = &wholes->list[i];
        ferry_view_t view;
        FY_TRY(ferry_view_contiguous(NULL, job->targets[i].dtype, whole->ndim, whole->shape, &view,
                                     err));
        fy_made_t *made = &job->made[whole->order];
        *made = (fy_made_t){.name = whole->name,
                            .dtype = job->targets[i].dtype,
                            .ndim = whole->ndim,
                            .opaque = whole->dtype_text != NULL ? whole : NULL,
                            .rank = job->first_rank,
                            .first_part = i,
                            .nparts = 1};
        memcpy(made->shape, whole->shape, sizeof made->shape);
        choose_rows(made, params->unit_bytes);
        job->parts[i] = (fy_part_t){.tensor = (uint32_t)i};
        memcpy(job->parts[i].box.extent, whole->shape, sizeof whole->shape);
        memcpy(job->parts[i].strides, view.strides, sizeof view.strides);
    }
    return FERRY_OK;
}

static ferry_status_t add_store(fy_job_t *job, const fy_job_params_t *params, uint32_t rank,
                                const ferry_store_t *store, size_t *made_cap, size_t *parts_cap,
                                ferry_error_t *err) {
    size_t nstored = 0;
    size_t nparts = 0;
    const ferry_stored_t *stored = ferry_store_tensors(store, &nstored);
    const ferry_stored_part_t *parts = ferry_store_parts(store, &nparts);
    if (nstored == 0) {
        return FERRY_OK;
    }
    FY_TRY(make_room(job, nstored, made_cap, nparts, parts_cap, err));
    fy_made_t *made = &job->made[job->nmade];
    memset(made, 0, nstored * sizeof *made);
    for (size_t i = 0; i < nparts; i++) {
        made[parts[i].stored].nparts++;
    }
    size_t first = job->nparts;
    for (size_t i = 0; i < nstored; i++) {
        made[i].name = fy_arena_string(&job->arena, stored[i].name);
        if (made[i].name == NULL) {
            return fy_fail_nomem(err, "the tensors of a folder");
        }
        made[i].dtype = stored[i].dtype;
        made[i].ndim = stored[i].ndim;
        made[i].rank = rank;
        made[i].file = rank - job->first_rank;
        made[i].index = (uint32_t)i;
        memcpy(made[i].shape, stored[i].shape, sizeof made[i].shape);
        choose_rows(&made[i], params->unit_bytes);
        made[i].first_part = first;
        first += made[i].nparts;
        made[i].nparts = 0; /* counted again below */
    }
    for (size_t i = 0; i < nparts; i++) {
        fy_made_t *in = &made[parts[i].stored];
        fy_part_t *part = &job->parts[in->first_part + in->nparts++];
        *part = (fy_part_t){.tensor = parts[i].tensor, .first = parts[i].first};
        memcpy(part->box.lo, parts[i].lo, sizeof part->box.lo);
        memcpy(part->box.extent, parts[i].extent, sizeof part->box.extent);
        memcpy(part->strides, parts[i].strides, sizeof part->strides);
        const fy_whole_t *whole = &job->source->wholes.list[parts[i].tensor];
        in->opaque = whole->dtype_text != NULL ? whole : NULL;
        if (in->opaque != NULL && (in->ndim != 1 || in->shape[0] != whole->shape[0])) {
            ferry_status_t status =
                fy_fail(err, FERRY_UNSUPPORTED, "dtype %s is unknown, so it cannot be put into %s",
                        whole->dtype_text, in->name);
            fy_error_tensor(err, whole->name);
            return status;
        }
    }
    job->nmade += nstored;
    job->nparts += nparts;
    return FERRY_OK;
}

/* Bytes of unknown meaning may only go whole. */
static ferry_status_t check_opaque(const fy_job_t *job, ferry_error_t *err) {
    for (size_t i = 0; i < job->source->wholes.count; i++) {
        const fy_whole_t *whole = &job->source->wholes.list[i];
        const ferry_layout_t *layout = job->targets[i].layout;
        for (uint32_t a = 0; whole->dtype_text != NULL && a < ferry_layout_naxes(layout); a++) {
            if (ferry_layout_placement(layout, a)->kind == FERRY_SHARD &&
                ferry_layout_axis(layout, a)->size > 1) {
                ferry_status_t status =
                    fy_fail(err, FERRY_UNSUPPORTED, "dtype %s is unknown, so it cannot be cut",
                            whole->dtype_text);
                fy_error_tensor(err, whole->name);
                return status;
            }
        }
    }
    return FERRY_OK;
}

static ferry_status_t make_ranks(fy_job_t *job, const fy_job_params_t *params,
                                 const fy_spread_t *spread, ferry_error_t *err) {
    size_t made_cap = 0;
    size_t parts_cap = 0;
    FY_TRY(check_opaque(job, err));
    for (uint32_t i = 0; i < job->nranks; i++) {
        ferry_store_t *store = NULL;
        uint32_t rank = job->first_rank + i;
        FY_TRY(fy_store_of(spread, params->form, job->set, rank, &store, err));
        ferry_status_t status = add_store(job, params, rank, store, &made_cap, &parts_cap, err);
        ferry_store_destroy(store);
        FY_TRY(status);
    }
    return FERRY_OK;
}

/* --- units ------------------------------------------------------------------------------------- */

static ferry_status_t make_units(fy_job_t *job, uint64_t unit_bytes, ferry_error_t *err) {
    size_t cap = 0;
    for (size_t i = 0; i < job->nmade; i++) {
        const fy_made_t *made = &job->made[i];
        uint64_t row_bytes = made->row_elements * (ferry_dtype_bits(made->dtype) / 8);
        uint64_t step = row_bytes > 0 ? fy_max_u64(1, unit_bytes / row_bytes) : made->rows;
        for (uint64_t row = 0; row < made->rows && row_bytes > 0; row += step) {
            if (!fy_reserve(&job->units, &cap, job->nunits + 1, sizeof *job->units)) {
                return fy_fail_nomem(err, "the units of work");
            }
            uint64_t rows = fy_min_u64(step, made->rows - row);
            job->units[job->nunits++] = (fy_work_unit_t){(uint32_t)i, row, rows};
            job->unit_bytes = fy_max_u64(job->unit_bytes, rows * row_bytes);
        }
        job->bytes_total += made->rows * row_bytes;
    }
    return FERRY_OK;
}

static ferry_status_t make_targets(fy_job_t *job, const fy_job_params_t *params,
                                   const fy_spread_t *spread, ferry_error_t *err) {
    const fy_wholes_t *wholes = &job->source->wholes;
    if (params->kind == FERRY_FOLDER_RANKS) {
        FY_TRY(fy_place_wholes(spread, &job->set, err));
        size_t count = 0;
        const ferry_tensor_t *placed = ferry_tensor_set_tensors(job->set, &count);
        job->targets = fy_arena_copy(&job->arena, placed, count, sizeof *placed);
        FY_TRY(ferry_parallel_world(params->parallel, &job->nranks, err));
        return job->targets == NULL ? fy_fail_nomem(err, "the tensors of a folder") : FERRY_OK;
    }
    ferry_layout_t *zero = NULL;
    FY_TRY(ferry_layout_parse("1:R", &zero, err));
    ferry_status_t status = ferry_layout_shift(zero, job->first_rank, &job->one, err);
    ferry_layout_destroy(zero);
    FY_TRY(status);
    job->nranks = 1;
    job->targets = fy_arena_alloc(&job->arena, wholes->count, sizeof *job->targets);
    if (job->targets == NULL) {
        return fy_fail_nomem(err, "the tensors of a folder");
    }
    for (size_t i = 0; i < wholes->count; i++) {
        const fy_whole_t *whole = &wholes->list[i];
        job->targets[i] = (ferry_tensor_t){whole->name, fy_target_dtype(whole, params->dtype),
                                           whole->ndim, whole->shape, job->one};
    }
    return FERRY_OK;
}

ferry_status_t fy_job_init(fy_job_t *job, ferry_folder_t *source, const fy_job_params_t *params,
                           ferry_error_t *err) {
    memset(job, 0, sizeof *job);
    job->source = source;
    job->first_rank = source->nranks;
    if (params->kind == FERRY_FOLDER_RANKS) {
        FY_TRY(fy_need_rules(source, err));
    }
    fy_spread_t spread = {.wholes = &source->wholes,
                          .rules = source->rules,
                          .config = &source->config,
                          .parallel = params->parallel,
                          .first_rank = job->first_rank,
                          .flags = source->flags,
                          .dtype = params->dtype};
    FY_TRY(make_targets(job, params, &spread, err));
    FY_TRY(params->kind == FERRY_FOLDER_RANKS ? make_ranks(job, params, &spread, err)
                                              : make_hf(job, params, err));
    return make_units(job, params->unit_bytes, err);
}

ferry_status_t fy_job_lanes(fy_job_t *job, size_t nfiles, ferry_error_t *err) {
    job->lanes = fy_arena_alloc(&job->arena, nfiles + 1, sizeof *job->lanes);
    if (job->lanes == NULL) {
        return fy_fail_nomem(err, "the units of work");
    }
    job->nlanes = nfiles;
    size_t unit = 0;
    for (size_t file = 0; file <= nfiles; file++) {
        job->lanes[file] = unit;
        while (unit < job->nunits && job->made[job->units[unit].made].file == file) {
            unit++;
        }
    }
    return FERRY_OK;
}

void fy_job_fini(fy_job_t *job) {
    ferry_tensor_set_destroy(job->set);
    ferry_layout_destroy(job->one);
    fy_free(job->made);
    fy_free(job->parts);
    fy_free(job->units);
    fy_arena_fini(&job->arena);
}
