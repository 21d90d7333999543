/* convert.c - one folder into another: the whole way. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "ckpt/job.h"
#include "world/wait.h"

typedef struct conversion {
    const fy_job_t *job;
    const fy_target_t *target;
    ferry_digest_t *digests;      /* shared: [worker][tensor] */
    _Atomic uint64_t *bytes_read; /* shared */
} conversion_t;

static ferry_status_t worker_begin(void *context, uint32_t worker, void **own_p,
                                   ferry_error_t *err) {
    const conversion_t *c = context;
    (void)worker;
    fy_filler_t *filler = fy_alloc(1, sizeof *filler);
    *own_p = filler;
    return filler == NULL ? fy_fail_nomem(err, "a worker") : fy_filler_init(filler, c->job, err);
}

static void worker_end(void *context, uint32_t worker, void *own) {
    const conversion_t *c = context;
    (void)worker;
    fy_filler_t *filler = own;
    if (filler != NULL) {
        (void)atomic_fetch_add(c->bytes_read, filler->bytes_read);
        fy_filler_fini(filler);
    }
    fy_free(filler);
}

static ferry_status_t convert_unit(void *context, uint32_t worker, void *own, size_t index,
                                   uint64_t *bytes_p, ferry_error_t *err) {
    const conversion_t *c = context;
    const fy_job_t *job = c->job;
    const fy_work_unit_t *unit = &job->units[index];
    const fy_made_t *made = &job->made[unit->made];
    fy_filler_t *filler = own;
    uint64_t row_bytes = made->row_elements * (ferry_dtype_bits(made->dtype) / 8);
    *bytes_p = unit->rows * row_bytes;
    FY_TRY(fy_fill(filler, unit, err));
    FY_TRY(fy_digest_unit(filler, unit, c->digests + worker * job->source->wholes.count, err));
    return ferry_safetensors_put(c->target->writers[made->file], made->index, unit->row * row_bytes,
                                 filler->buffer, (size_t)*bytes_p, err);
}

static uint32_t workers_of(const ferry_convert_params_t *params) {
    return params->workers != 0 ? params->workers : fy_default_workers();
}

/* What is written, in sealed digests. */
static ferry_status_t copy_all(const fy_job_t *job, const fy_target_t *target,
                               const ferry_convert_params_t *params, ferry_digest_t *sealed,
                               ferry_convert_result_t *result, ferry_error_t *err) {
    uint32_t workers = workers_of(params);
    size_t count = job->source->wholes.count;
    size_t bytes = workers * count * sizeof(ferry_digest_t) + sizeof(uint64_t);
    uint8_t *shared = fy_shared_alloc(bytes);
    if (shared == NULL) {
        return fy_fail_nomem(err, "the digests of a folder");
    }
    conversion_t c = {job, target, (ferry_digest_t *)(shared + sizeof(uint64_t)),
                      (_Atomic uint64_t *)shared};
    fy_pool_t pool = {.workers = workers,
                      .nunits = job->nunits,
                      .lanes = job->lanes,
                      .nlanes = job->nlanes,
                      .begin = worker_begin,
                      .unit = convert_unit,
                      .end = worker_end,
                      .context = &c,
                      .progress_context = params->context,
                      .progress = params->progress,
                      .bytes_total = job->bytes_total};
    ferry_status_t status = fy_pool_run(&pool, err);
    for (size_t i = 0; i < count; i++) {
        ferry_digest_t sum = {0, 0};
        for (uint32_t worker = 0; worker < workers; worker++) {
            ferry_digest_join(&sum, &c.digests[worker * count + i]);
        }
        const fy_whole_t *whole = &job->source->wholes.list[i];
        bool opaque = whole->dtype_text != NULL;
        sealed[i] = ferry_digest_seal(
            &sum, opaque ? whole->dtype_text : ferry_dtype_name(job->targets[i].dtype),
            opaque ? whole->file_ndim : whole->ndim, opaque ? whole->file_shape : whole->shape);
    }
    result->bytes_read = atomic_load(c.bytes_read);
    result->bytes_written = job->bytes_total;
    result->memory_bytes = workers * job->unit_bytes;
    fy_shared_free(shared, bytes);
    return status;
}

/* The target, read again. */
static ferry_status_t check(ferry_folder_t *source, const char *path, const ferry_digest_t *written,
                            const ferry_convert_params_t *params, ferry_error_t *err) {
    ferry_folder_t *target = NULL;
    ferry_folder_params_t open = FERRY_FOLDER_PARAMS_INIT;
    open.flags = source->flags;
    FY_TRY(ferry_folder_open(path, &open, &target, err));
    ferry_verify_params_t verify = FERRY_VERIFY_PARAMS_INIT;
    verify.workers = params->workers;
    ferry_status_t status = FERRY_OK;
    if (params->dtype == FERRY_DTYPE_NONE) {
        status = ferry_verify(source, target, &verify, NULL, err);
    } else {
        ferry_digest_t *digests = fy_alloc(source->wholes.count, sizeof *digests);
        status = digests == NULL ? fy_fail_nomem(err, "the digests of a folder")
                                 : ferry_folder_digests(target, &verify, digests, err);
        for (size_t i = 0; i < source->wholes.count && status == FERRY_OK; i++) {
            if (!ferry_digest_equal(&digests[i], &written[i])) {
                status = fy_fail(err, FERRY_CORRUPT, "%s: it is not what was written", path);
                fy_error_tensor(err, source->wholes.list[i].name);
            }
        }
        fy_free(digests);
    }
    ferry_folder_close(target);
    return status;
}

static double seconds_since(uint64_t *mark_ns) {
    uint64_t now = fy_clock_ns();
    double seconds = (double)(now - *mark_ns) * 1e-9;
    *mark_ns = now;
    return seconds;
}

static ferry_status_t run(fy_job_t *job, const char *path, const ferry_convert_params_t *params,
                          ferry_convert_result_t *result, uint64_t *mark_ns, ferry_error_t *err) {
    fy_target_t target = {0};
    ferry_digest_t *sealed = fy_alloc(job->source->wholes.count, sizeof *sealed);
    ferry_status_t status = sealed == NULL ? fy_fail_nomem(err, "the digests of a folder")
                                           : fy_target_open(&target, job, path, params, err);
    if (status == FERRY_OK) {
        status = fy_job_lanes(job, target.nwriters, err);
    }
    result->files = target.nwriters;
    result->read_seconds = seconds_since(mark_ns);
    if (status == FERRY_OK) {
        status = copy_all(job, &target, params, sealed, result, err);
    }
    result->copy_seconds = seconds_since(mark_ns);
    if (status == FERRY_OK) {
        status = fy_target_seal(&target, job, params, sealed, err);
    }
    result->sync_seconds = seconds_since(mark_ns);
    if (status == FERRY_OK && params->verify) {
        status = check(job->source, target.part, sealed, params, err);
        result->verify_seconds = seconds_since(mark_ns);
    }
    if (status == FERRY_OK) {
        status = fy_target_commit(&target, err);
    }
    fy_target_abandon(&target); /* what is left of it */
    if (status == FERRY_OK) {
        result->digest = fy_digest_all(&job->source->wholes, sealed);
    }
    fy_free(sealed);
    return status;
}

ferry_status_t ferry_convert(ferry_folder_t *source, const char *path,
                             const ferry_convert_params_t *params, ferry_convert_result_t *result_p,
                             ferry_error_t *err) {
    FY_NEED(source, err);
    FY_NEED(path, err);
    FY_NEED(params, err);
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID, "ferry_convert_params_t of %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    uint64_t begin_ns = fy_clock_ns();
    uint64_t mark_ns = begin_ns;
    uint32_t workers = workers_of(params);
    uint64_t each =
        params->memory_bytes != 0 ? params->memory_bytes / workers : FERRY_CONVERT_BUFFER_BYTES;
    ferry_convert_result_t result = {.tensors = source->wholes.count};
    fy_job_params_t what = {.kind = params->kind,
                            .form = params->form != NULL ? params->form : "hf",
                            .parallel = &params->parallel,
                            .dtype = params->dtype,
                            .unit_bytes =
                                fy_max_u64(4096, fy_min_u64(each, FERRY_CONVERT_BUFFER_BYTES))};
    fy_job_t job;
    ferry_status_t status = fy_job_init(&job, source, &what, err);
    if (status == FERRY_OK) {
        status = run(&job, path, params, &result, &mark_ns, err);
    }
    fy_job_fini(&job);
    result.total_seconds = (double)(fy_clock_ns() - begin_ns) * 1e-9;
    if (result_p != NULL) {
        *result_p = result;
    }
    return status;
}
