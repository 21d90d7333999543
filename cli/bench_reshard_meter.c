/* bench_reshard_meter.c - the limit of the machine for a case of `ferry bench reshard`.
 *
 * Invariant: the limit's copies are exactly the regions of the whole plan's transfers. */
#include "bench_reshard_meter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_reshard_shards.h"
#include "error.h"

struct reshard_meter {
    limit_t *limit;
};

/* A rank's side, as this process sees it. */
typedef struct place {
    uint8_t *base;
    reshard_shards_t shards;
} place_t;

typedef struct maker {
    place_t places[BENCH_SIDES][BENCH_RANKS_MAX];
    bench_copy_t *copies;
    size_t count;
    size_t cap;
    uint64_t bytes; /* copied: read once and written once */
} maker_t;

/* ---- one transfer ------------------------------------------------------------------------------ */

static ferry_status_t add_copy(maker_t *maker, const bench_copy_t *copy, ferry_error_t *err) {
    if (maker->count == maker->cap) {
        size_t cap = maker->cap > 0 ? 2 * maker->cap : 1024;
        bench_copy_t *larger = realloc(maker->copies, cap * sizeof *larger);
        if (larger == NULL) {
            return cli_fail_nomem(err);
        }
        maker->copies = larger;
        maker->cap = cap;
    }
    maker->copies[maker->count++] = *copy;
    maker->bytes += (uint64_t)copy->rows * copy->row_bytes;
    return FERRY_OK;
}

/* A transfer seen as rows: dims that follow each other without gaps on both sides are one. */
typedef struct rows {
    uint64_t columns; /* elements of a row */
    uint32_t dims;    /* that are left in front of them */
} rows_t;

static rows_t join_dims(const ferry_transfer_t *transfer, const reshard_shard_t *source,
                        const reshard_shard_t *target) {
    uint32_t d = transfer->ndim;
    uint64_t columns = 1;
    bool whole = true;
    while (d > 0 && whole) {
        d--;
        columns *= transfer->extent[d];
        whole = transfer->extent[d] == source->shape[d] && transfer->extent[d] == target->shape[d];
    }
    return (rows_t){columns, d};
}

/* Element `at` of a box, in elements from the beginning of the shard. `index` has the first dims. */
static uint64_t place_of(const reshard_shard_t *shard, const uint64_t *lo, const uint64_t *index,
                         uint32_t dims) {
    uint64_t at = 0;
    for (uint32_t d = 0; d < shard->ndim; d++) {
        at = at * shard->shape[d] + lo[d] + (d < dims ? index[d] : 0);
    }
    return at;
}

static uint64_t stride_of(const reshard_shard_t *shard, uint32_t dim) {
    uint64_t stride = 1;
    for (uint32_t d = dim + 1; d < shard->ndim; d++) {
        stride *= shard->shape[d];
    }
    return stride;
}

/* The last of the dims in front gives the rows of a copy, those before it give copies. */
static ferry_status_t add_transfer(maker_t *maker, const ferry_transfer_t *transfer,
                                   ferry_error_t *err) {
    const place_t *from = &maker->places[BENCH_SOURCE][transfer->source];
    const place_t *to = &maker->places[BENCH_TARGET][transfer->target];
    if (from->shards.list == NULL || to->shards.list == NULL) {
        return cli_fail(err, FERRY_CHECK, "the plan names a rank that is not there");
    }
    const reshard_shard_t *source = &from->shards.list[transfer->tensor];
    const reshard_shard_t *target = &to->shards.list[transfer->tensor];
    uint64_t read = ferry_dtype_bits(source->dtype) / 8;
    uint64_t write = ferry_dtype_bits(target->dtype) / 8;
    uint64_t size = read < write ? read : write;
    rows_t rows = join_dims(transfer, source, target);
    uint32_t outer = rows.dims > 0 ? rows.dims - 1 : 0;
    uint64_t copies = 1;
    for (uint32_t d = 0; d < outer; d++) {
        copies *= transfer->extent[d];
    }
    for (uint64_t i = 0; i < copies; i++) {
        uint64_t index[FERRY_MAX_DIMS] = {0};
        uint64_t rest = i;
        for (uint32_t d = outer; d-- > 0;) {
            index[d] = rest % transfer->extent[d];
            rest /= transfer->extent[d];
        }
        uint64_t source_at = place_of(source, transfer->source_lo, index, outer);
        uint64_t target_at = place_of(target, transfer->target_lo, index, outer);
        bench_copy_t copy = {
            .source = from->base + source->at + source_at * read,
            .target = to->base + target->at + target_at * write,
            .rows = rows.dims > 0 ? transfer->extent[outer] : 1,
            .row_bytes = rows.columns * size,
            .source_stride = rows.dims > 0 ? stride_of(source, outer) * read : 0,
            .target_stride = rows.dims > 0 ? stride_of(target, outer) * write : 0,
        };
        ferry_status_t status = add_copy(maker, &copy, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    return FERRY_OK;
}

/* ---- all of them ------------------------------------------------------------------------------- */

static ferry_status_t find_places(ferry_world_t *world, const reshard_job_t *job,
                                  const bench_keys_t *keys, maker_t *maker, ferry_error_t *err) {
    for (int side = 0; side < BENCH_SIDES; side++) {
        for (uint32_t rank = 0; rank < job->model->ranks; rank++) {
            place_t *place = &maker->places[side][rank];
            const ferry_mem_key_t *key = &keys[rank].key[side];
            ferry_status_t status = reshard_shards_init(job->asked, job->model, (bench_side_t)side,
                                                        rank, &place->shards, err);
            if (status == FERRY_OK && key->bytes > 0) {
                void *base = NULL;
                status = ferry_mem_map(world, key, &base, err);
                ferry_mem_populate(world, key);
                place->base = base;
            }
            if (status != FERRY_OK) {
                return status;
            }
        }
    }
    return FERRY_OK;
}

static ferry_status_t add_transfers(const reshard_job_t *job, maker_t *maker, ferry_error_t *err) {
    ferry_plan_t *plan = NULL;
    ferry_status_t status = reshard_plan(job->model, FERRY_RANK_NONE, &plan, err);
    if (status != FERRY_OK) {
        return status;
    }
    for (uint32_t i = 0; status == FERRY_OK && i < ferry_plan_ntensors(plan); i++) {
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(plan, i, &tensor);
        if (strcmp(tensor.name, job->model->tensors[BENCH_TARGET][i].name) != 0) {
            status = cli_fail(err, FERRY_CHECK, "%s is not where the plan has it", tensor.name);
        }
    }
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t transfer;
    while (status == FERRY_OK && ferry_plan_next(plan, &cursor, &transfer)) {
        status = add_transfer(maker, &transfer, err);
    }
    ferry_plan_destroy(plan);
    return status;
}

static void maker_fini(maker_t *maker) {
    for (int side = 0; side < BENCH_SIDES; side++) {
        for (uint32_t rank = 0; rank < BENCH_RANKS_MAX; rank++) {
            reshard_shards_fini(&maker->places[side][rank].shards);
        }
    }
    free(maker->copies);
}

static ferry_status_t make(ferry_world_t *world, const reshard_job_t *job, const bench_keys_t *keys,
                           maker_t *maker, reshard_meter_t *meter, ferry_error_t *err) {
    ferry_status_t status = find_places(world, job, keys, maker, err);
    if (status == FERRY_OK) {
        status = add_transfers(job, maker, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    errno = 0;
    meter->limit = limit_create(maker->copies, maker->count);
    if (meter->limit == NULL) {
        return cli_fail_errno(err, errno, "cannot measure the limit");
    }
    (void)limit_round(meter->limit, LIMIT_BEST);
    job->board->limit_bytes = 2 * maker->bytes;
    (void)snprintf(job->board->limit_name, sizeof job->board->limit_name, "%s",
                   limit_describe(meter->limit, LIMIT_BEST));
    return FERRY_OK;
}

ferry_status_t reshard_meter_create(ferry_world_t *world, const reshard_job_t *job,
                                    const bench_keys_t *keys, reshard_meter_t **meter_p,
                                    ferry_error_t *err) {
    maker_t maker = {0};
    reshard_meter_t *meter = calloc(1, sizeof *meter);
    ferry_status_t status =
        meter != NULL ? make(world, job, keys, &maker, meter, err) : cli_fail_nomem(err);
    maker_fini(&maker);
    if (status != FERRY_OK) {
        reshard_meter_destroy(meter);
        return status;
    }
    *meter_p = meter;
    return FERRY_OK;
}

void reshard_meter_destroy(reshard_meter_t *meter) {
    if (meter != NULL) {
        limit_destroy(meter->limit);
    }
    free(meter);
}

void reshard_meter_round(reshard_meter_t *meter, bench_stamp_t *stamp) {
    stamp->begin_ns = bench_now_ns();
    double seconds = limit_round(meter->limit, LIMIT_BEST);
    stamp->end_ns = stamp->begin_ns + (uint64_t)(seconds * 1e9);
}
