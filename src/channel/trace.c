/* trace.c - a transport that writes down when each data call of another begins and ends.
 *
 * Invariant: an event is written by the one thread that took its number. Two threads meet in one slot
 * only if a whole ring of calls passes while one event is written, hence the smallest capacity. */
#include "channel/transport.h"

#include <stdatomic.h>

#include "base/fail.h"
#include "base/memory.h"
#include "world/wait.h"

typedef struct tracer {
    ferry_transport_ops_t ops;
    ferry_transport_t *inner;
    ferry_trace_event_t *events;
    size_t capacity;
    uint32_t rank;
    _Atomic uint64_t count;
} tracer_t;

static void record(tracer_t *tracer, ferry_transport_call_t call, uint64_t begin_ns, uint32_t peer,
                   uint64_t bytes, ferry_status_t status) {
    uint64_t number = atomic_fetch_add_explicit(&tracer->count, 1, memory_order_relaxed);
    tracer->events[number % tracer->capacity] = (ferry_trace_event_t){
        .begin_ns = begin_ns,
        .end_ns = fy_clock_ns(),
        .bytes = bytes,
        .rank = tracer->rank,
        .peer = peer,
        .call = (uint32_t)call,
        .status = (uint32_t)status,
    };
}

static void trace_close(void *state) {
    tracer_t *tracer = state;
    ferry_transport_close(tracer->inner);
    fy_free(tracer);
}

static uint32_t trace_caps(const void *state, uint32_t peer) {
    const ferry_transport_t *inner = ((const tracer_t *)state)->inner;
    return inner->ops->caps(inner->state, peer);
}

static ferry_status_t trace_enroll(void *state, void *memory, size_t bytes,
                                   ferry_transport_key_t *key_p, ferry_error_t *err) {
    const ferry_transport_t *inner = ((tracer_t *)state)->inner;
    return inner->ops->enroll(inner->state, memory, bytes, key_p, err);
}

static void trace_withdraw(void *state, const ferry_transport_key_t *key) {
    const ferry_transport_t *inner = ((tracer_t *)state)->inner;
    inner->ops->withdraw(inner->state, key);
}

static ferry_status_t trace_attach(void *state, const ferry_transport_key_t *key,
                                   ferry_remote_t *remote_p, ferry_error_t *err) {
    const ferry_transport_t *inner = ((tracer_t *)state)->inner;
    return inner->ops->attach(inner->state, key, remote_p, err);
}

static void trace_detach(void *state, ferry_remote_t *remote) {
    const ferry_transport_t *inner = ((tracer_t *)state)->inner;
    inner->ops->detach(inner->state, remote);
}

static ferry_status_t trace_put(void *state, const ferry_remote_t *target, uint64_t offset,
                                const void *source, size_t bytes, ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status =
        tracer->inner->ops->put(tracer->inner->state, target, offset, source, bytes, err);
    record(tracer, FERRY_CALL_PUT, begin_ns, target->peer, bytes, status);
    return status;
}

static ferry_status_t trace_read(void *state, const ferry_remote_t *source,
                                 const ferry_read_piece_t *pieces, size_t npieces,
                                 ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t bytes = 0;
    for (size_t i = 0; i < npieces; i++) {
        bytes += pieces[i].bytes;
    }
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status =
        tracer->inner->ops->read(tracer->inner->state, source, pieces, npieces, err);
    record(tracer, FERRY_CALL_READ, begin_ns, source->peer, bytes, status);
    return status;
}

static ferry_status_t trace_signal(void *state, const ferry_remote_t *target, uint64_t offset,
                                   ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status = tracer->inner->ops->signal(tracer->inner->state, target, offset, err);
    record(tracer, FERRY_CALL_SIGNAL, begin_ns, target->peer, 0, status);
    return status;
}

static ferry_status_t trace_flush(void *state, uint32_t peer, bool *done_p, ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status = tracer->inner->ops->flush(tracer->inner->state, peer, done_p, err);
    record(tracer, FERRY_CALL_FLUSH, begin_ns, peer, 0, status);
    return status;
}

static ferry_status_t trace_progress(void *state, ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status = tracer->inner->ops->progress(tracer->inner->state, err);
    record(tracer, FERRY_CALL_PROGRESS, begin_ns, FERRY_RANK_NONE, 0, status);
    return status;
}

static ferry_status_t trace_send(void *state, uint32_t peer, const void *source, size_t bytes,
                                 ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status =
        tracer->inner->ops->send(tracer->inner->state, peer, source, bytes, err);
    record(tracer, FERRY_CALL_SEND, begin_ns, peer, bytes, status);
    return status;
}

static ferry_status_t trace_recv(void *state, uint32_t peer, void *target, size_t bytes,
                                 bool *done_p, ferry_error_t *err) {
    tracer_t *tracer = state;
    uint64_t begin_ns = fy_clock_ns();
    ferry_status_t status =
        tracer->inner->ops->recv(tracer->inner->state, peer, target, bytes, done_p, err);
    record(tracer, FERRY_CALL_RECV, begin_ns, peer, bytes, status);
    return status;
}

static const ferry_transport_ops_t trace_ops = {
    .size = sizeof(ferry_transport_ops_t),
    .close = trace_close,
    .caps = trace_caps,
    .enroll = trace_enroll,
    .withdraw = trace_withdraw,
    .attach = trace_attach,
    .detach = trace_detach,
    .put = trace_put,
    .read = trace_read,
    .signal = trace_signal,
    .flush = trace_flush,
    .progress = trace_progress,
    .send = trace_send,
    .recv = trace_recv,
};

ferry_status_t ferry_transport_trace(ferry_transport_t *inner, const ferry_trace_params_t *params,
                                     ferry_transport_t **transport_p, ferry_error_t *err) {
    FY_NEED(inner, err);
    FY_NEED(params, err);
    FY_NEED(transport_p, err);
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_VERSION, "ferry_trace_params_t has %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    FY_NEED(params->events, err);
    if (params->capacity < FERRY_TRACE_MIN_EVENTS) {
        return fy_fail(err, FERRY_INVALID, "a trace needs room for %d events, not %zu",
                       FERRY_TRACE_MIN_EVENTS, params->capacity);
    }
    tracer_t *tracer = fy_alloc_zero(1, sizeof *tracer);
    if (tracer == NULL) {
        return fy_fail_nomem(err, "a trace");
    }
    fy_transport_decorate(&trace_ops, inner->ops, &tracer->ops);
    tracer->inner = inner;
    tracer->events = params->events;
    tracer->capacity = params->capacity;
    tracer->rank = ferry_world_rank(inner->world);
    ferry_status_t status =
        fy_transport_create(inner->world, &tracer->ops, tracer, transport_p, err);
    if (status != FERRY_OK) {
        fy_free(tracer);
    }
    return status;
}

uint64_t ferry_transport_trace_count(const ferry_transport_t *transport) {
    if (transport == NULL || transport->ops->close != trace_close) {
        return 0;
    }
    const tracer_t *tracer = transport->state;
    return atomic_load_explicit(&tracer->count, memory_order_relaxed);
}
