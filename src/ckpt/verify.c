/* verify.c - are two folders the same?
 *
 * Every rank's shards are read where they lie and added to the digest of their tensor, one digest per replica: copies
 * of a shard must agree before folders are compared. Only where digests differ are elements looked at. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/files.h"
#include "ckpt/job.h"
#include "world/wait.h"

#define UNIT_BYTES (UINT64_C(16) << 20)

/* Rows [lo, lo + rows) of a place, along the first dim. */
typedef struct reading {
    uint32_t rank;
    size_t place;
    uint64_t lo;
    uint64_t rows;
} reading_t;

typedef struct survey {
    ferry_folder_t *folder;
    reading_t *units;
    size_t nunits;
    size_t cap;
    size_t *first; /* per tensor, the slot of its first replica; and one more */
    size_t nslots;
    ferry_digest_t *digests; /* shared: [worker][slot] */
    uint32_t workers;
    uint64_t bytes;
} survey_t;

static uint64_t place_bytes(const ferry_tensor_t *tensor, const fy_place_t *place) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        elements *= place->extent[i];
    }
    return elements * (ferry_dtype_bits(tensor->dtype) / 8);
}

static ferry_status_t add_units(survey_t *survey, uint32_t rank, size_t place, ferry_error_t *err) {
    const fy_place_t *p = &survey->folder->places[rank].list[place];
    const ferry_tensor_t *tensor = &survey->folder->tensors[p->tensor];
    uint64_t bytes = place_bytes(tensor, p);
    uint64_t rows = tensor->ndim > 0 ? p->extent[0] : 1;
    uint64_t step = rows > 0 ? fy_max_u64(1, UINT64_C(16) * rows / fy_max_u64(16, bytes >> 20)) : 1;
    for (uint64_t lo = 0; lo < rows && bytes > 0; lo += step) {
        if (!fy_reserve(&survey->units, &survey->cap, survey->nunits + 1, sizeof *survey->units)) {
            return fy_fail_nomem(err, "the units of work");
        }
        survey->units[survey->nunits++] = (reading_t){rank, place, lo, fy_min_u64(step, rows - lo)};
    }
    survey->bytes += bytes;
    return FERRY_OK;
}

/* How many ranks hold the same shard. */
static uint32_t replicas_of(const ferry_layout_t *layout) {
    uint32_t replicas = 1;
    for (uint32_t a = 0; a < ferry_layout_naxes(layout); a++) {
        if (ferry_layout_placement(layout, a)->kind != FERRY_SHARD) {
            replicas *= ferry_layout_axis(layout, a)->size;
        }
    }
    return replicas;
}

static ferry_status_t survey_init(survey_t *survey, ferry_folder_t *folder, uint32_t workers,
                                  ferry_error_t *err) {
    size_t count = folder->wholes.count;
    *survey = (survey_t){.folder = folder, .workers = workers};
    survey->first = fy_alloc(count + 1, sizeof *survey->first);
    if (survey->first == NULL) {
        return fy_fail_nomem(err, "the digests of a folder");
    }
    for (size_t i = 0; i < count; i++) {
        survey->first[i] = survey->nslots;
        survey->nslots += replicas_of(folder->tensors[i].layout);
    }
    survey->first[count] = survey->nslots;
    survey->digests = fy_shared_alloc(workers * survey->nslots * sizeof *survey->digests);
    if (survey->digests == NULL) {
        return fy_fail_nomem(err, "the digests of a folder");
    }
    for (uint32_t rank = 0; rank < folder->nranks; rank++) {
        for (size_t p = 0; p < folder->places[rank].first[count]; p++) {
            FY_TRY(add_units(survey, rank, p, err));
        }
    }
    return FERRY_OK;
}

static void survey_fini(survey_t *survey) {
    fy_shared_free(survey->digests, survey->workers * survey->nslots * sizeof *survey->digests);
    fy_free(survey->units);
    fy_free(survey->first);
}

/* --- reading ----------------------------------------------------------------------------------- */

typedef struct look {
    const survey_t *survey;
    const ferry_tensor_t *tensor;
    const fy_place_t *place;
    const uint8_t *bytes; /* of the file */
    ferry_digest_t *digest;
    uint64_t global[FERRY_MAX_DIMS];
} look_t;

static ferry_status_t add_global(void *context, const fy_box_t *box, ferry_error_t *err) {
    const look_t *look = context;
    const fy_place_t *place = look->place;
    uint64_t at = 0;
    ferry_view_t view = {.dtype = look->tensor->dtype, .ndim = look->tensor->ndim};
    for (uint32_t i = 0; i < look->tensor->ndim; i++) {
        at += (box->lo[i] - place->lo[i]) * (uint64_t)place->strides[i];
        view.shape[i] = box->extent[i];
        view.strides[i] = place->strides[i];
    }
    uint64_t width = ferry_dtype_bits(view.dtype) / 8;
    view.data = fy_readable(look->bytes + place->offset + at * width);
    return ferry_digest_add(look->digest, &view, look->tensor->shape, look->global, err);
}

static ferry_status_t read_unit(void *context, uint32_t worker, void *own, size_t unit,
                                uint64_t *bytes_p, ferry_error_t *err) {
    const survey_t *survey = context;
    (void)own;
    const reading_t *reading = &survey->units[unit];
    ferry_folder_t *folder = survey->folder;
    const fy_place_t *place = &folder->places[reading->rank].list[reading->place];
    look_t look = {.survey = survey, .tensor = &folder->tensors[place->tensor], .place = place};
    uint32_t replica = fy_replica_of(look.tensor->layout, reading->rank);
    look.digest =
        &survey->digests[worker * survey->nslots + survey->first[place->tensor] + replica];
    FY_TRY(ferry_safetensors_map(folder->files[place->file], &look.bytes, err));
    fy_box_t box = {{0}, {0}};
    memcpy(box.lo, place->lo, sizeof box.lo);
    memcpy(box.extent, place->extent, sizeof box.extent);
    uint64_t rows = look.tensor->ndim > 0 ? place->extent[0] : 1;
    if (look.tensor->ndim > 0) {
        box.lo[0] += reading->lo;
        box.extent[0] = reading->rows;
    }
    *bytes_p = place_bytes(look.tensor, place) / rows * reading->rows;
    return fy_box_globals(look.tensor, reading->rank, &box, look.global, add_global, &look, err);
}

static ferry_status_t nothing_first(void *context, uint32_t worker, void **own_p,
                                    ferry_error_t *err) {
    (void)context;
    (void)worker;
    (void)err;
    *own_p = NULL;
    return FERRY_OK;
}

static void nothing_last(void *context, uint32_t worker, void *own) {
    (void)context;
    (void)worker;
    (void)own;
}

static ferry_digest_t sum_of(const survey_t *survey, size_t slot) {
    ferry_digest_t sum = {0, 0};
    for (uint32_t worker = 0; worker < survey->workers; worker++) {
        ferry_digest_join(&sum, &survey->digests[worker * survey->nslots + slot]);
    }
    return sum;
}

/* One digest per tensor, if all copies agree. */
static ferry_status_t collect(const survey_t *survey, ferry_digest_t *digests, ferry_error_t *err) {
    const ferry_folder_t *folder = survey->folder;
    for (size_t i = 0; i < folder->wholes.count; i++) {
        ferry_digest_t first = sum_of(survey, survey->first[i]);
        for (size_t slot = survey->first[i] + 1; slot < survey->first[i + 1]; slot++) {
            ferry_digest_t other = sum_of(survey, slot);
            if (!ferry_digest_equal(&first, &other)) {
                ferry_status_t status = fy_fail_file(err, FERRY_CORRUPT, 0, folder->path,
                                                     "ranks hold different copies of this tensor");
                fy_error_tensor(err, folder->wholes.list[i].name);
                return status;
            }
        }
        const fy_whole_t *whole = &folder->wholes.list[i];
        bool opaque = whole->dtype_text != NULL;
        digests[i] = ferry_digest_seal(
            &first, opaque ? whole->dtype_text : ferry_dtype_name(whole->dtype),
            opaque ? whole->file_ndim : whole->ndim, opaque ? whole->file_shape : whole->shape);
    }
    return FERRY_OK;
}

static ferry_status_t digest_folder(ferry_folder_t *folder, const ferry_verify_params_t *params,
                                    ferry_digest_t *digests, uint64_t *bytes_p,
                                    ferry_error_t *err) {
    survey_t survey;
    uint32_t workers = params->workers != 0 ? params->workers : fy_default_workers();
    ferry_status_t status = survey_init(&survey, folder, workers, err);
    if (status == FERRY_OK) {
        fy_pool_t pool = {.workers = workers,
                          .nunits = survey.nunits,
                          .begin = nothing_first,
                          .unit = read_unit,
                          .end = nothing_last,
                          .context = &survey,
                          .progress_context = params->context,
                          .progress = params->progress,
                          .bytes_total = survey.bytes};
        status = fy_pool_run(&pool, err);
    }
    if (status == FERRY_OK) {
        status = collect(&survey, digests, err);
    }
    *bytes_p += survey.bytes;
    survey_fini(&survey);
    return status;
}

static ferry_status_t check_params(const ferry_verify_params_t *params, ferry_error_t *err) {
    return params->size == sizeof *params
               ? FERRY_OK
               : fy_fail(err, FERRY_INVALID, "ferry_verify_params_t of %zu bytes, not %zu",
                         params->size, sizeof *params);
}

ferry_status_t ferry_folder_digests(ferry_folder_t *folder, const ferry_verify_params_t *params,
                                    ferry_digest_t *digests, ferry_error_t *err) {
    FY_NEED(folder, err);
    FY_NEED(digests, err);
    ferry_verify_params_t defaults = FERRY_VERIFY_PARAMS_INIT;
    params = params != NULL ? params : &defaults;
    FY_TRY(check_params(params, err));
    uint64_t bytes = 0;
    return digest_folder(folder, params, digests, &bytes, err);
}

ferry_digest_t fy_digest_all(const fy_wholes_t *wholes, const ferry_digest_t *digests) {
    ferry_digest_t all = {0, 0};
    for (size_t i = 0; i < wholes->count; i++) {
        ferry_digest_t named = ferry_digest_seal(&digests[i], wholes->list[i].name, 0, NULL);
        ferry_digest_join(&all, &named);
    }
    return all;
}

/* --- differences ------------------------------------------------------------------------------- */

/* The first element that differs; both tensors are read whole, row by row. */
static ferry_status_t find_difference(ferry_folder_t *a, ferry_folder_t *b, size_t tensor,
                                      ferry_error_t *err) {
    fy_job_t jobs[2];
    fy_filler_t fillers[2];
    memset(jobs, 0, sizeof jobs);
    memset(fillers, 0, sizeof fillers);
    fy_job_params_t params = {.kind = FERRY_FOLDER_HF, .form = "hf", .unit_bytes = UNIT_BYTES};
    ferry_status_t status = FERRY_OK;
    for (int i = 0; i < 2 && status == FERRY_OK; i++) {
        status = fy_job_init(&jobs[i], i == 0 ? a : b, &params, err);
        if (status == FERRY_OK) {
            status = fy_filler_init(&fillers[i], &jobs[i], err);
        }
    }
    const fy_whole_t *whole = &a->wholes.list[tensor];
    uint64_t width = ferry_dtype_bits(whole->dtype) / 8;
    uint64_t index = UINT64_MAX;
    uint64_t before = 0;
    for (size_t u = 0, v = 0; u < jobs[0].nunits && status == FERRY_OK && index == UINT64_MAX;
         u++) {
        const fy_made_t *made = &jobs[0].made[jobs[0].units[u].made];
        if (jobs[0].parts[made->first_part].tensor != tensor) {
            continue;
        }
        while (jobs[1].parts[jobs[1].made[jobs[1].units[v].made].first_part].tensor != tensor) {
            v++;
        }
        status = fy_fill(&fillers[0], &jobs[0].units[u], err);
        if (status == FERRY_OK) {
            status = fy_fill(&fillers[1], &jobs[1].units[v++], err);
        }
        uint64_t bytes = jobs[0].units[u].rows * made->row_elements * width;
        for (uint64_t k = 0; k < bytes && status == FERRY_OK && index == UINT64_MAX; k++) {
            if (fillers[0].buffer[k] != fillers[1].buffer[k]) {
                index = before + k / width;
            }
        }
        before += bytes / width;
    }
    if (status == FERRY_OK) {
        status = fy_fail(err, FERRY_MISMATCH,
                         index != UINT64_MAX ? "%s and %s differ, first at element %" PRIu64
                                             : "%s and %s differ",
                         a->path, b->path, index);
        fy_error_tensor(err, whole->name);
    }
    for (int i = 0; i < 2; i++) {
        fy_filler_fini(&fillers[i]);
        fy_job_fini(&jobs[i]);
    }
    return status;
}

static ferry_status_t only_in(const ferry_folder_t *folder, const char *name, ferry_error_t *err) {
    ferry_status_t status = fy_fail(err, FERRY_MISMATCH, "only %s has it", folder->path);
    fy_error_tensor(err, name);
    return status;
}

static const char *dtype_of(const fy_whole_t *whole) {
    return whole->dtype_text != NULL ? whole->dtype_text : ferry_dtype_name(whole->dtype);
}

static ferry_status_t compare_lists(const ferry_folder_t *a, const ferry_folder_t *b,
                                    ferry_error_t *err) {
    size_t count = fy_min_u64(a->wholes.count, b->wholes.count);
    for (size_t i = 0; i < count; i++) {
        const fy_whole_t *x = &a->wholes.list[i];
        const fy_whole_t *y = &b->wholes.list[i];
        int order = strcmp(x->name, y->name);
        if (order != 0) {
            return order < 0 ? only_in(a, x->name, err) : only_in(b, y->name, err);
        }
        ferry_status_t status = FERRY_OK;
        if (strcmp(dtype_of(x), dtype_of(y)) != 0) {
            status = fy_fail(err, FERRY_MISMATCH, "it is %s in %s and %s in %s", dtype_of(x),
                             a->path, dtype_of(y), b->path);
        } else if (x->ndim != y->ndim || x->file_ndim != y->file_ndim ||
                   memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) != 0 ||
                   memcmp(x->file_shape, y->file_shape, x->file_ndim * sizeof *x->shape) != 0) {
            status = fy_fail(err, FERRY_MISMATCH, "its shape is another in %s than in %s", a->path,
                             b->path);
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, x->name);
            return status;
        }
    }
    return a->wholes.count > count   ? only_in(a, a->wholes.list[count].name, err)
           : b->wholes.count > count ? only_in(b, b->wholes.list[count].name, err)
                                     : FERRY_OK;
}

static ferry_status_t compare_digests(ferry_folder_t *a, ferry_folder_t *b,
                                      const ferry_verify_params_t *params, ferry_digest_t *digests,
                                      ferry_verify_result_t *result, ferry_error_t *err) {
    size_t count = a->wholes.count;
    FY_TRY(digest_folder(a, params, digests, &result->bytes, err));
    FY_TRY(digest_folder(b, params, digests + count, &result->bytes, err));
    result->digest = fy_digest_all(&a->wholes, digests);
    for (size_t i = 0; i < count; i++) {
        if (!ferry_digest_equal(&digests[i], &digests[count + i])) {
            return find_difference(a, b, i, err);
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_verify(ferry_folder_t *a, ferry_folder_t *b,
                            const ferry_verify_params_t *params, ferry_verify_result_t *result_p,
                            ferry_error_t *err) {
    FY_NEED(a, err);
    FY_NEED(b, err);
    ferry_verify_params_t defaults = FERRY_VERIFY_PARAMS_INIT;
    params = params != NULL ? params : &defaults;
    FY_TRY(check_params(params, err));
    uint64_t begin_ns = fy_clock_ns();
    ferry_verify_result_t result = {.tensors = a->wholes.count};
    FY_TRY(compare_lists(a, b, err));
    ferry_digest_t *digests = fy_alloc(2 * a->wholes.count, sizeof *digests);
    if (digests == NULL) {
        return fy_fail_nomem(err, "the digests of a folder");
    }
    ferry_status_t status = compare_digests(a, b, params, digests, &result, err);
    fy_free(digests);
    result.seconds = (double)(fy_clock_ns() - begin_ns) * 1e-9;
    if (result_p != NULL) {
        *result_p = result;
    }
    return status;
}
