/* execute.c - runs the rounds of one rank.
 *
 * Invariants. Batch n of a receiver is written to its slot n % 2 only when `unpacked` of that receiver
 * is n - 1 or more, that is, when batch n - 2 has left the slot. It is read only when `arrived` of the
 * slot is n + 1. Both flags have one writer at a time: senders into one slot follow each other through
 * `unpacked`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ferry/kernel.h>

#include "base/fail.h"
#include "base/text.h"
#include "pipeline/pipeline.h"
#include "world/world.h"

/* --- what is next ------------------------------------------------------------------------------ */

static const ferry_pipeline_batch_t *send_of(const fy_pipeline_t *run, size_t round) {
    return &run->params.rounds[round].send;
}

static const ferry_pipeline_batch_t *recv_of(const fy_pipeline_t *run, size_t round) {
    return &run->params.rounds[round].recv;
}

static void skip_idle(fy_pipeline_t *run) {
    size_t n = run->params.nrounds;
    while (run->put < n && send_of(run, run->put)->peer == FERRY_RANK_NONE) {
        run->put++;
    }
    run->pack = run->pack < run->put ? run->put : run->pack;
    while (run->pack < n && send_of(run, run->pack)->peer == FERRY_RANK_NONE) {
        run->pack++;
    }
    while (run->recv < n && recv_of(run, run->recv)->peer == FERRY_RANK_NONE) {
        run->recv++;
    }
}

/* The number of a batch among all that its receiver ever got. */
static uint32_t number_of(const fy_pipeline_t *run, uint32_t receiver, uint32_t sequence) {
    return run->slots->base[receiver] + sequence;
}

static uint32_t me(const fy_pipeline_t *run) {
    return ferry_group_rank(run->slots->group);
}

/* A counter and what it must come to. */
typedef struct condition {
    fy_counter_t *counter;
    uint32_t value;
    uint32_t peer; /* member */
} condition_t;

static condition_t ready(const fy_pipeline_t *run) {
    const ferry_pipeline_batch_t *batch = send_of(run, run->put);
    uint32_t n = number_of(run, batch->peer, batch->sequence);
    return (condition_t){&run->slots->peers[batch->peer].flags->unpacked, n - 1, batch->peer};
}

static condition_t arrived(const fy_pipeline_t *run) {
    const ferry_pipeline_batch_t *batch = recv_of(run, run->recv);
    uint32_t n = number_of(run, me(run), batch->sequence);
    fy_slot_flags_t *flags = run->slots->peers[me(run)].flags;
    return (condition_t){&flags->arrived[n % 2], n + 1, batch->peer};
}

static bool holds(condition_t condition) {
    return fy_counter_reached(condition.counter, condition.value);
}

/* --- steps ------------------------------------------------------------------------------------- */

static uint64_t now(const fy_pipeline_t *run) {
    return run->hooks.trace != NULL ? fy_clock_ns() : 0;
}

static void trace(const fy_pipeline_t *run, ferry_pipeline_step_t step, size_t round, uint32_t peer,
                  uint32_t slot, uint64_t bytes, uint64_t begin_ns) {
    if (run->hooks.trace != NULL) {
        ferry_group_t *group = run->slots->group;
        ferry_pipeline_event_t event = {.step = step,
                                        .rank = ferry_world_rank(run->slots->world),
                                        .peer = ferry_group_world_rank(group, peer),
                                        .round = (uint32_t)round,
                                        .slot = slot,
                                        .bytes = bytes,
                                        .begin_ns = begin_ns,
                                        .end_ns = fy_clock_ns()};
        run->hooks.trace(run->hooks.context, &event);
    }
}

/* This rank's own failure becomes everybody's, with its place. */
static ferry_status_t tell(const fy_pipeline_t *run, const ferry_error_t *mine, size_t round,
                           uint32_t peer, ferry_error_t *err) {
    ferry_error_t record = *mine;
    fy_error_ranks(&record, ferry_world_rank(run->slots->world),
                   ferry_group_world_rank(run->slots->group, peer));
    if (record.round < 0) {
        record.round = (int32_t)round;
    }
    return ferry_world_fail(run->slots->world, &record, err);
}

static ferry_status_t sync_event(const fy_pipeline_t *run, void *event, ferry_error_t *err) {
    return run->hooks.sync != NULL ? run->hooks.sync(run->hooks.context, event, err) : FERRY_OK;
}

static ferry_status_t launch_pack(fy_pipeline_t *run, size_t round, void *slot, uint32_t index,
                                  ferry_error_t *err) {
    const ferry_pipeline_hooks_t *hooks = &run->hooks;
    const ferry_pipeline_batch_t *batch = send_of(run, round);
    uint64_t begin_ns = now(run);
    ferry_status_t status = hooks->pack != NULL
                                ? hooks->pack(hooks->context, batch, slot, hooks->pack_queue,
                                              hooks->pack_events[index], err)
                                : ferry_pipeline_pack(batch, slot, err);
    trace(run, FERRY_STEP_PACK, round, batch->peer, index, batch->bytes, begin_ns);
    return status;
}

/* Into the send slot, one batch ahead of the put. */
static ferry_status_t pack_ahead(fy_pipeline_t *run, ferry_error_t *err) {
    uint32_t index = run->packed % 2;
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (launch_pack(run, run->pack, run->slots->send[index], index, &mine) != FERRY_OK) {
        return tell(run, &mine, run->pack, send_of(run, run->pack)->peer, err);
    }
    run->packed++;
    run->pack++;
    return FERRY_OK;
}

/* The slot is free: fills it, either straight from the tensors or from the send slot. */
static ferry_status_t fill_slot(fy_pipeline_t *run, uint32_t n, ferry_error_t *err) {
    const ferry_pipeline_hooks_t *hooks = &run->hooks;
    const ferry_pipeline_batch_t *batch = send_of(run, run->put);
    void *slot = run->slots->peers[batch->peer].slots[n % 2];
    if (hooks->put == NULL) {
        FY_TRY(launch_pack(run, run->put, slot, n % 2, err));
        return sync_event(run, hooks->pack_events[n % 2], err);
    }
    uint32_t index = run->sent % 2;
    FY_TRY(sync_event(run, hooks->pack_events[index], err));
    return hooks->put(hooks->context, batch->peer, slot, run->slots->send[index], batch->bytes,
                      hooks->send_queue, err);
}

static ferry_status_t put_batch(fy_pipeline_t *run, ferry_error_t *err) {
    const ferry_pipeline_batch_t *batch = send_of(run, run->put);
    uint32_t n = number_of(run, batch->peer, batch->sequence);
    ferry_error_t mine = FERRY_ERROR_INIT;
    uint64_t begin_ns = now(run);
    if (fill_slot(run, n, &mine) != FERRY_OK) {
        return tell(run, &mine, run->put, batch->peer, err);
    }
    fy_counter_set(&run->slots->peers[batch->peer].flags->arrived[n % 2], n + 1);
    trace(run, FERRY_STEP_PUT, run->put, batch->peer, n % 2, batch->bytes, begin_ns);
    run->sent++;
    run->put++;
    return FERRY_OK;
}

/* The slot of the batch before run->recv may be written to again. */
static ferry_status_t finish_unpack(fy_pipeline_t *run, ferry_error_t *err) {
    const ferry_pipeline_batch_t *batch = recv_of(run, run->recv);
    uint32_t n = number_of(run, me(run), batch->sequence);
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (sync_event(run, run->hooks.unpack_events[n % 2], &mine) != FERRY_OK) {
        return tell(run, &mine, run->recv, batch->peer, err);
    }
    fy_counter_set(&run->slots->peers[me(run)].flags->unpacked, n + 1);
    run->unpacking = false;
    run->recv++;
    return FERRY_OK;
}

static ferry_status_t unpack_batch(fy_pipeline_t *run, ferry_error_t *err) {
    const ferry_pipeline_hooks_t *hooks = &run->hooks;
    const ferry_pipeline_batch_t *batch = recv_of(run, run->recv);
    uint32_t n = number_of(run, me(run), batch->sequence);
    const void *slot = run->slots->peers[me(run)].slots[n % 2];
    ferry_error_t mine = FERRY_ERROR_INIT;
    uint64_t begin_ns = now(run);
    ferry_status_t status = hooks->unpack != NULL
                                ? hooks->unpack(hooks->context, batch, slot, hooks->unpack_queue,
                                                hooks->unpack_events[n % 2], &mine)
                                : ferry_pipeline_unpack(batch, slot, &mine);
    trace(run, FERRY_STEP_UNPACK, run->recv, batch->peer, n % 2, batch->bytes, begin_ns);
    if (status != FERRY_OK) {
        return tell(run, &mine, run->recv, batch->peer, err);
    }
    run->unpacking = true;
    return hooks->sync != NULL ? FERRY_OK : finish_unpack(run, err);
}

static ferry_status_t self_move(fy_pipeline_t *run, ferry_error_t *err) {
    const ferry_pipeline_hooks_t *hooks = &run->hooks;
    const ferry_self_move_t *move = &run->params.moves[run->move];
    ferry_error_t mine = FERRY_ERROR_INIT;
    uint64_t begin_ns = now(run);
    ferry_status_t status = hooks->copy != NULL
                                ? hooks->copy(hooks->context, move, hooks->copy_queue, &mine)
                                : ferry_view_copy(&move->target, &move->source, 0, &mine);
    trace(run, FERRY_STEP_SELF, 0, me(run), 0, 0, begin_ns);
    if (status != FERRY_OK) {
        return tell(run, &mine, 0, me(run), err);
    }
    run->move++;
    return FERRY_OK;
}

/* --- the machine ------------------------------------------------------------------------------- */

bool fy_pipeline_done(const fy_pipeline_t *run) {
    size_t n = run->params.nrounds;
    return run->put >= n && run->recv >= n && run->move >= run->params.nmoves;
}

static bool can_pack(const fy_pipeline_t *run) {
    return run->hooks.put != NULL && run->pack < run->params.nrounds && run->packed - run->sent < 2;
}

static bool can_put(const fy_pipeline_t *run) {
    bool packed = run->hooks.put == NULL || run->packed != run->sent;
    return run->put < run->params.nrounds && packed && holds(ready(run));
}

/* Puts go before packs, so that the peer has work; a launched unpack is waited for when there is nothing
 * better to do; moves within the rank fill the gaps. */
static ferry_status_t do_one(fy_pipeline_t *run, bool *moved_p, ferry_error_t *err) {
    *moved_p = true;
    if (!run->unpacking && run->recv < run->params.nrounds && holds(arrived(run))) {
        return unpack_batch(run, err);
    }
    if (can_put(run)) {
        return put_batch(run, err);
    }
    if (can_pack(run)) {
        return pack_ahead(run, err);
    }
    if (run->unpacking) {
        return finish_unpack(run, err);
    }
    if (run->move < run->params.nmoves) {
        return self_move(run, err);
    }
    *moved_p = false;
    return FERRY_OK;
}

ferry_status_t fy_pipeline_await(fy_pipeline_t *run, uint64_t deadline_ns, ferry_error_t *err) {
    size_t n = run->params.nrounds;
    bool send = run->put < n && (run->recv >= n || run->put <= run->recv);
    if (!send && run->recv >= n) {
        return FERRY_OK;
    }
    condition_t condition = send ? ready(run) : arrived(run);
    char what[40];
    (void)snprintf(what, sizeof what, "%s of round %zu", send ? "the free slot" : "the batch",
                   send ? run->put : run->recv);
    uint32_t peer = ferry_group_world_rank(run->slots->group, condition.peer);
    fy_wait_t wait = {run->slots->world, peer, what, deadline_ns};
    uint64_t begin_ns = now(run);
    FY_TRY(fy_wait_until_at_least(condition.counter, condition.value, &wait, err));
    if (now(run) - begin_ns >= FERRY_TRACE_WAIT_NS) {
        trace(run, FERRY_STEP_WAIT, send ? run->put : run->recv, condition.peer, 0, 0, begin_ns);
    }
    return FERRY_OK;
}

ferry_status_t fy_pipeline_step(fy_pipeline_t *run, bool wait, bool *moved_p, ferry_error_t *err) {
    skip_idle(run);
    FY_TRY(do_one(run, moved_p, err));
    if (!*moved_p && wait && !fy_pipeline_done(run)) {
        FY_TRY(fy_pipeline_await(run, 0, err));
        *moved_p = true;
    }
    skip_idle(run);
    return FERRY_OK;
}

static ferry_status_t check_batch(const ferry_slots_t *slots, const ferry_pipeline_batch_t *batch,
                                  ferry_error_t *err) {
    if (batch->peer == FERRY_RANK_NONE) {
        return FERRY_OK;
    }
    if (batch->peer >= ferry_group_size(slots->group) || batch->bytes > slots->slot_bytes) {
        return fy_fail(err, FERRY_INVALID,
                       "a batch of %" PRIu64 " bytes with member %" PRIu32 ", in slots of %" PRIu64
                       " bytes of %" PRIu32 " members",
                       batch->bytes, batch->peer, slots->slot_bytes,
                       ferry_group_size(slots->group));
    }
    return FERRY_OK;
}

ferry_status_t fy_pipeline_begin(fy_pipeline_t *run, ferry_slots_t *slots,
                                 const ferry_pipeline_params_t *params, ferry_error_t *err) {
    for (size_t i = 0; i < params->nrounds; i++) {
        FY_TRY(check_batch(slots, &params->rounds[i].send, err));
        FY_TRY(check_batch(slots, &params->rounds[i].recv, err));
    }
    *run = (fy_pipeline_t){.slots = slots, .params = *params};
    if (params->hooks != NULL) {
        run->hooks = *params->hooks;
    }
    if (run->hooks.put != NULL && slots->send[0] == NULL) {
        return fy_fail(err, FERRY_INVALID, "a put of one's own needs send slots");
    }
    skip_idle(run);
    return FERRY_OK;
}

void fy_pipeline_end(fy_pipeline_t *run) {
    for (uint32_t member = 0; member < ferry_group_size(run->slots->group); member++) {
        run->slots->base[member] += run->params.received[member];
    }
}

ferry_status_t ferry_pipeline_execute(ferry_slots_t *slots, const ferry_pipeline_params_t *params,
                                      ferry_error_t *err) {
    FY_NEED(slots, err);
    FY_NEED(params, err);
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID, "ferry_pipeline_params_t of %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    FY_NEED_ARRAY(params->rounds, params->nrounds, err);
    FY_NEED_ARRAY(params->moves, params->nmoves, err);
    FY_NEED(params->received, err);
    FY_TRY(ferry_world_check(slots->world, err));
    if (fy_slots_stale(slots)) {
        FY_TRY(ferry_slots_reset(slots, err));
    }
    fy_pipeline_t run;
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (fy_pipeline_begin(&run, slots, params, &mine) != FERRY_OK) {
        return ferry_world_fail(slots->world, &mine, err);
    }
    while (!fy_pipeline_done(&run)) {
        bool moved = false;
        FY_TRY(fy_pipeline_step(&run, true, &moved, err));
    }
    fy_pipeline_end(&run);
    return FERRY_OK;
}

/* --- trace ------------------------------------------------------------------------------------- */

const char *ferry_pipeline_step_name(uint32_t step) {
    static const char *const names[] = {"pack", "put",  "unpack", "self",
                                        "copy", "help", "read",   "wait"};
    return step < sizeof names / sizeof names[0] ? names[step] : NULL;
}

size_t ferry_pipeline_event_json(const ferry_pipeline_event_t *event, char *buf, size_t cap) {
    fy_text_t text;
    fy_text_init(&text, buf, cap);
    uint32_t step = (uint32_t)event->step;
    uint64_t length_ns = event->end_ns - event->begin_ns;
    const char *name = ferry_pipeline_step_name(step);
    fy_text_printf(&text,
                   "{\"name\":\"%s\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":%" PRIu32
                   ",\"tid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u,",
                   name != NULL ? name : "?", event->rank, step, event->begin_ns / 1000,
                   (unsigned)(event->begin_ns % 1000), length_ns / 1000,
                   (unsigned)(length_ns % 1000));
    fy_text_printf(&text, "\"args\":{");
    if (event->peer != FERRY_RANK_NONE) {
        fy_text_printf(&text, "\"peer\":%" PRIu32 ",", event->peer);
    }
    fy_text_printf(&text, "\"round\":%" PRIu32 ",\"slot\":%" PRIu32 ",\"bytes\":%" PRIu64 "}}",
                   event->round, event->slot, event->bytes);
    return text.length;
}
