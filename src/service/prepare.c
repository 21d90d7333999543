/* prepare.c - pairs become kernel batches, reads and rounds.
 *
 * Nothing is left for a run to decide: it finds, per rank, copies in the order in which they are to be
 * done, whom to wait for before each, and whom to wait for at the end. */
#include <inttypes.h>
#include <string.h>

#include <ferry/sched.h>

#include "base/checked.h"
#include "base/fail.h"
#include "service/builtin.h"

/* What is built, from what. */
typedef struct builder {
    fy_builtin_t *service;
    const ferry_copy_list_t *list;
    const fy_pair_t *pairs;
    size_t npairs;
    fy_batch_t *batch;
} builder_t;

/* --- views ------------------------------------------------------------------------------------- */

/* The end as this rank addresses it; this rank reaches it. */
static ferry_status_t view_of(const fy_builtin_t *service, const fy_end_t *end,
                              ferry_view_t *view_p, ferry_error_t *err) {
    void *memory = NULL;
    FY_TRY(ferry_mem_map(service->world, &end->key, &memory, err));
    memset(view_p, 0, sizeof *view_p);
    view_p->data = (uint8_t *)memory + end->offset;
    view_p->dtype = end->dtype;
    view_p->ndim = end->ndim;
    for (uint32_t i = 0; i < end->ndim; i++) {
        view_p->shape[i] = end->shape[i];
        view_p->strides[i] = end->strides[i];
    }
    return FERRY_OK;
}

/* --- direct copies ----------------------------------------------------------------------------- */

static uint32_t other_of(const fy_pair_t *pair) {
    return pair->doer == pair->recv->owner ? pair->send->owner : pair->recv->owner;
}

static bool is_work(const fy_pair_t *pair, uint32_t doer, uint32_t other) {
    return pair->path == FERRY_PATH_DIRECT && pair->doer == doer && other_of(pair) == other;
}

/* How the copies of a doer are written: past the caches when they are many. */
static uint32_t flags_of(const fy_builtin_t *service, uint64_t total) {
    uint32_t flags = service->params.copy_flags;
    bool decided = (flags & (FERRY_COPY_STREAM | FERRY_COPY_CACHED)) != 0;
    return !decided && total >= FY_STREAM_TOTAL ? flags | FERRY_COPY_STREAM : flags;
}

static ferry_status_t build_work(const builder_t *builder, uint32_t doer, uint32_t other,
                                 uint32_t flags, size_t count, fy_work_t *work_p,
                                 ferry_error_t *err) {
    ferry_view_t *views = fy_alloc(2 * count, sizeof *views);
    if (views == NULL) {
        return fy_fail_nomem(err, "the copies of a batch");
    }
    ferry_status_t status = FERRY_OK;
    size_t at = 0;
    for (size_t i = 0; i < builder->npairs && status == FERRY_OK; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        if (is_work(pair, doer, other)) {
            status = view_of(builder->service, pair->recv, &views[at], err);
            if (status == FERRY_OK) {
                status = view_of(builder->service, pair->send, &views[count + at], err);
            }
            at++;
        }
    }
    if (status == FERRY_OK) {
        status = ferry_copy_batch_create(views, views + count, count, flags, &work_p->copies, err);
    }
    fy_free(views);
    work_p->other = other;
    work_p->bytes = ferry_copy_batch_bytes(work_p->copies);
    uint64_t parts = fy_ceil_div(work_p->bytes, FY_PART_BYTES);
    work_p->nparts = (uint32_t)fy_max_u64(1, fy_min_u64(parts, 1u << 20));
    return status;
}

/* Part 0 of every work, then part 1, and so on. */
static ferry_status_t order_steps(const builder_t *builder, fy_share_t *share, ferry_error_t *err) {
    share->steps = fy_arena_alloc(&builder->batch->arena, share->nparts, sizeof *share->steps);
    if (share->steps == NULL) {
        return fy_fail_nomem(err, "the copies of a batch");
    }
    uint32_t count = 0;
    for (uint32_t part = 0; count < share->nparts; part++) {
        for (uint32_t work = 0; work < share->nworks; work++) {
            if (part < share->works[work].nparts) {
                share->steps[count++] = (fy_step_t){work, part};
            }
        }
    }
    return FERRY_OK;
}

/* What one doer has to copy: itself first, then with its neighbour round the group, so that not all
 * turn to one rank at once. */
static ferry_status_t build_share(const builder_t *builder, uint32_t doer, ferry_error_t *err) {
    uint32_t size = builder->service->size;
    fy_share_t *share = &builder->batch->shares[doer];
    size_t *counts = fy_alloc_zero(size, sizeof *counts);
    share->works = fy_arena_alloc(&builder->batch->arena, size, sizeof *share->works);
    ferry_status_t status = FERRY_OK;
    if (counts == NULL || share->works == NULL) {
        status = fy_fail_nomem(err, "the copies of a batch");
    } else {
        memset(share->works, 0, size * sizeof *share->works);
    }
    uint64_t total = 0;
    for (size_t i = 0; i < builder->npairs && status == FERRY_OK; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        if (pair->path == FERRY_PATH_DIRECT && pair->doer == doer) {
            counts[other_of(pair)]++;
            total += pair->recv->bytes;
        }
    }
    uint32_t flags = flags_of(builder->service, total);
    for (uint32_t step = 0; step < size && status == FERRY_OK; step++) {
        uint32_t other = (doer + step) % size;
        if (counts[other] > 0) {
            fy_work_t *work = &share->works[share->nworks++];
            status = build_work(builder, doer, other, flags, counts[other], work, err);
            share->nparts += work->nparts;
        }
    }
    share->shared = builder->service->size > 1 && share->nparts > 1;
    fy_free(counts);
    return status == FERRY_OK ? order_steps(builder, share, err) : status;
}

/* May this rank help that one? Then all memory of its copies must be in reach. */
static bool may_help(const builder_t *builder, uint32_t doer) {
    const fy_builtin_t *service = builder->service;
    bool allowed = service->params.sharing == FERRY_SHARE_PROCESSES ||
                   (service->params.sharing == FERRY_SHARE_THREADS && service->one_process);
    for (size_t i = 0; i < builder->npairs && allowed; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        if (pair->path == FERRY_PATH_DIRECT && pair->doer == doer && !service->one_process) {
            allowed = pair->send->key.reach == FERRY_MEM_ARENA &&
                      pair->recv->key.reach == FERRY_MEM_ARENA;
        }
    }
    return allowed;
}

static ferry_status_t build_shares(const builder_t *builder, ferry_error_t *err) {
    fy_builtin_t *service = builder->service;
    fy_batch_t *batch = builder->batch;
    batch->shares = fy_arena_alloc(&batch->arena, service->size, sizeof *batch->shares);
    if (batch->shares == NULL) {
        return fy_fail_nomem(err, "a batch");
    }
    memset(batch->shares, 0, service->size * sizeof *batch->shares);
    batch->size = service->size;
    for (uint32_t doer = 0; doer < service->size; doer++) {
        bool helpable = may_help(builder, doer);
        if (doer == service->me || helpable) {
            FY_TRY(build_share(builder, doer, err));
        }
        batch->shares[doer].shared = batch->shares[doer].shared && helpable;
    }
    return FERRY_OK;
}

/* --- reads, waits, sums ------------------------------------------------------------------------ */

static ferry_status_t build_reads(const builder_t *builder, ferry_error_t *err) {
    fy_batch_t *batch = builder->batch;
    uint32_t me = builder->service->me;
    size_t count = 0;
    for (size_t i = 0; i < builder->npairs; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        count += pair->path == FERRY_PATH_READ && pair->doer == me ? 1 : 0;
    }
    batch->read_targets = fy_arena_alloc(&batch->arena, count, sizeof *batch->read_targets);
    batch->read_sources = fy_arena_alloc(&batch->arena, count, sizeof *batch->read_sources);
    if (batch->read_targets == NULL || batch->read_sources == NULL) {
        return fy_fail_nomem(err, "the reads of a batch");
    }
    for (size_t i = 0; i < builder->npairs; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        if (pair->path == FERRY_PATH_READ && pair->doer == me) {
            batch->read_targets[batch->nreads] = builder->list->recvs[pair->recv->index].view;
            batch->read_sources[batch->nreads++] = pair->send;
        }
    }
    return FERRY_OK;
}

/* Does the doer of the pair touch memory of `member`, another rank? */
static bool touches(const fy_pair_t *pair, uint32_t member) {
    bool copied = pair->path == FERRY_PATH_DIRECT || pair->path == FERRY_PATH_READ;
    return copied && pair->doer != member &&
           (pair->send->owner == member || pair->recv->owner == member);
}

static ferry_status_t build_waits(const builder_t *builder, ferry_error_t *err) {
    fy_batch_t *batch = builder->batch;
    uint32_t size = builder->service->size;
    batch->waits = fy_arena_alloc(&batch->arena, size, sizeof *batch->waits);
    uint8_t *seen = fy_alloc_zero(size, 1);
    if (batch->waits == NULL || seen == NULL) {
        fy_free(seen);
        return fy_fail_nomem(err, "a batch");
    }
    for (size_t i = 0; i < builder->npairs; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        if (touches(pair, builder->service->me) && seen[pair->doer] == 0) {
            seen[pair->doer] = 1;
            batch->waits[batch->nwaits++] = pair->doer;
        }
    }
    fy_free(seen);
    return FERRY_OK;
}

static void sum_up(const builder_t *builder) {
    ferry_copy_result_t *result = &builder->batch->result;
    for (size_t i = 0; i < builder->npairs; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        builder->batch->piped = builder->batch->piped || pair->path == FERRY_PATH_PIPELINE;
        if (pair->recv->owner == builder->service->me) {
            uint64_t bytes = pair->recv->bytes;
            result->bytes_received += bytes;
            result->bytes_direct += pair->path == FERRY_PATH_DIRECT ? bytes : 0;
            result->bytes_read += pair->path == FERRY_PATH_READ ? bytes : 0;
            result->bytes_pipeline += pair->path == FERRY_PATH_PIPELINE ? bytes : 0;
        }
    }
}

/* --- rounds ------------------------------------------------------------------------------------ */

ferry_status_t fy_builtin_slot_bytes(const fy_builtin_t *service, uint64_t *bytes_p,
                                     ferry_error_t *err) {
    ferry_slots_params_t params = FERRY_SLOTS_PARAMS_INIT;
    params.slot_bytes = service->params.slot_bytes;
    params.budget_bytes = service->params.staging_bytes;
    return fy_slots_size(&params, bytes_p, err);
}

static ferry_dtype_t wire_of(const fy_pair_t *pair) {
    return pair->send->wire != FERRY_DTYPE_NONE
               ? pair->send->wire
               : ferry_dtype_wire(pair->send->dtype, pair->recv->dtype);
}

/* The stretches of pairs become items of whole lines, so that what is packed together stays aligned. */
static ferry_status_t make_schedule(const builder_t *builder, ferry_schedule_t **schedule_p,
                                    ferry_error_t *err) {
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    FY_TRY(fy_builtin_slot_bytes(builder->service, &params.slot_bytes, err));
    ferry_item_t *items = fy_alloc_zero(builder->npairs, sizeof *items);
    if (items == NULL) {
        return fy_fail_nomem(err, "the rounds of a batch");
    }
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; i < builder->npairs && status == FERRY_OK; i++) {
        const fy_pair_t *pair = &builder->pairs[i];
        items[i] = (ferry_item_t){.source = pair->send->owner, .target = pair->recv->owner};
        if (pair->path == FERRY_PATH_PIPELINE) {
            uint64_t bytes = 0;
            status = ferry_dtype_bytes(wire_of(pair), pair->recv->elements, &bytes, err);
            items[i].bytes = fy_ceil_div(bytes, FERRY_PIPELINE_ALIGN) * FERRY_PIPELINE_ALIGN;
        }
    }
    if (status == FERRY_OK) {
        status = ferry_schedule_create(items, builder->npairs, &params, schedule_p, err);
    }
    fy_free(items);
    return status;
}

/* The segments of one batch of the schedule, as one of its ends sees them. */
static ferry_status_t make_segments(const builder_t *builder, const ferry_schedule_t *schedule,
                                    const ferry_batch_t *from, bool send, uint32_t flags,
                                    ferry_pipeline_batch_t *batch_p, ferry_error_t *err) {
    size_t total = 0;
    const ferry_segment_t *given = ferry_schedule_segments(schedule, &total) + from->first_segment;
    ferry_pipeline_segment_t *segments =
        fy_arena_alloc(&builder->batch->arena, from->nsegments, sizeof *segments);
    if (segments == NULL) {
        return fy_fail_nomem(err, "the rounds of a batch");
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < from->nsegments; i++) {
        const fy_pair_t *pair = &builder->pairs[given[i].item];
        ferry_dtype_t wire = wire_of(pair);
        uint64_t width = ferry_dtype_bits(wire) / 8;
        uint64_t first = given[i].offset / width;
        segments[i] = (ferry_pipeline_segment_t){
            .view = send ? &builder->list->sends[pair->send->index].view
                         : &builder->list->recvs[pair->recv->index].view,
            .wire = wire,
            .first = first,
            .count = fy_min_u64(given[i].bytes / width, pair->recv->elements - first),
            .at = at,
            .flags = flags};
        at += given[i].bytes;
    }
    batch_p->peer = send ? from->target : from->source;
    batch_p->segments = segments;
    batch_p->nsegments = from->nsegments;
    batch_p->bytes = at;
    return FERRY_OK;
}

static ferry_status_t make_rounds(const builder_t *builder, const ferry_schedule_t *schedule,
                                  ferry_error_t *err) {
    fy_batch_t *batch = builder->batch;
    uint32_t me = builder->service->me;
    uint32_t nrounds = ferry_schedule_nrounds(schedule);
    uint32_t *received = fy_arena_alloc(&batch->arena, builder->service->size, sizeof *received);
    ferry_pipeline_round_t *rounds = fy_arena_alloc(&batch->arena, nrounds, sizeof *rounds);
    if (received == NULL || rounds == NULL) {
        return fy_fail_nomem(err, "the rounds of a batch");
    }
    memset(received, 0, builder->service->size * sizeof *received);
    for (uint32_t i = 0; i < nrounds; i++) {
        rounds[i] = (ferry_pipeline_round_t){FERRY_PIPELINE_BATCH_NONE, FERRY_PIPELINE_BATCH_NONE};
    }
    uint32_t flags = flags_of(builder->service, batch->result.bytes_received);
    size_t count = 0;
    const ferry_batch_t *batches = ferry_schedule_batches(schedule, &count);
    for (size_t i = 0; i < count; i++) {
        ferry_pipeline_round_t *round = &rounds[batches[i].round];
        if (batches[i].source == me) {
            FY_TRY(make_segments(builder, schedule, &batches[i], true, flags, &round->send, err));
            round->send.sequence = received[batches[i].target];
        }
        if (batches[i].target == me) {
            FY_TRY(make_segments(builder, schedule, &batches[i], false, flags, &round->recv, err));
            round->recv.sequence = received[me];
        }
        received[batches[i].target]++;
    }
    batch->pipeline.rounds = rounds;
    batch->pipeline.nrounds = nrounds;
    batch->result.rounds = nrounds;
    batch->pipeline.received = received;
    return FERRY_OK;
}

static ferry_status_t build_rounds(const builder_t *builder, ferry_error_t *err) {
    if (!builder->batch->piped) {
        return FERRY_OK;
    }
    ferry_schedule_t *schedule = NULL;
    FY_TRY(make_schedule(builder, &schedule, err));
    ferry_status_t status = make_rounds(builder, schedule, err);
    ferry_schedule_destroy(schedule);
    return status;
}

/* --- all of it --------------------------------------------------------------------------------- */

ferry_status_t fy_batch_build(fy_builtin_t *service, const ferry_copy_list_t *list,
                              const fy_pair_t *pairs, size_t npairs, fy_batch_t *batch,
                              ferry_error_t *err) {
    builder_t builder = {service, list, pairs, npairs, batch};
    batch->pipeline = (ferry_pipeline_params_t)FERRY_PIPELINE_PARAMS_INIT;
    sum_up(&builder);
    FY_TRY(build_shares(&builder, err));
    FY_TRY(build_reads(&builder, err));
    FY_TRY(build_waits(&builder, err));
    return build_rounds(&builder, err);
}

void fy_batch_destroy(fy_batch_t *batch) {
    if (batch == NULL) {
        return;
    }
    for (uint32_t member = 0; member < batch->size && batch->shares != NULL; member++) {
        for (uint32_t i = 0; i < batch->shares[member].nworks; i++) {
            ferry_copy_batch_destroy(batch->shares[member].works[i].copies);
        }
    }
    fy_arena_fini(&batch->arena);
    fy_free(batch);
}
