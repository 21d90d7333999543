/* port.c - the public calls of port channels: check, queue, wait.
 *
 * Invariant: `last` of a channel is at or past every position that a finished call on it used, so a
 * flush that begins later waits for all of them. */
#include "channel/set.h"

#include "base/fail.h"

/* Raises `last` to `past`. */
static void note_last(ferry_port_channel_t *channel, uint64_t past) {
    uint64_t last = atomic_load_explicit(&channel->last, memory_order_relaxed);
    while (last < past &&
           !atomic_compare_exchange_weak_explicit(&channel->last, &last, past, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* Queues; waits while the queue is full. *past_p is one past the request's position. */
static ferry_status_t enqueue(ferry_port_channel_t *channel, const fy_request_t *request,
                              uint64_t *past_p, ferry_error_t *err) {
    ferry_channels_t *set = channel->end.set;
    uint64_t position = 0;
    while (!fy_queue_push(&set->queue, request, &position)) {
        FY_TRY(fy_end_await_proxy(&channel->end, &set->queue.taken, (uint32_t)(position + 1),
                                  "room in the queue", err));
        FY_TRY(fy_set_check(set, err));
    }
    note_last(channel, position + 1);
    *past_p = position + 1;
    return FERRY_OK;
}

/* Waits until the proxy has finished all positions before `past`. */
static ferry_status_t await_finished(ferry_port_channel_t *channel, uint64_t past,
                                     ferry_error_t *err) {
    ferry_channels_t *set = channel->end.set;
    if (atomic_load_explicit(&set->finished, memory_order_acquire) >= past) {
        return FERRY_OK;
    }
    return fy_end_await_proxy(&channel->end, &set->finished_low, (uint32_t)past, "flush", err);
}

static ferry_status_t put(ferry_port_channel_t *channel, uint32_t buffer, uint64_t offset,
                          const void *source, size_t bytes, uint32_t more_flags, uint64_t *past_p,
                          ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(source, bytes, err);
    const fy_end_t *end = &channel->end;
    const ferry_remote_t *target = NULL;
    FY_TRY(fy_set_check(end->set, err));
    FY_TRY(fy_set_range(end->set, end->peer, buffer, offset, bytes, FERRY_TRANSPORT_PUT, &target,
                        err));
    fy_request_t request = {channel, target, offset, source, bytes, FY_REQUEST_PUT | more_flags};
    return enqueue(channel, &request, past_p, err);
}

uint32_t ferry_port_peer(const ferry_port_channel_t *channel) {
    return channel->end.peer;
}

ferry_status_t ferry_port_put(ferry_port_channel_t *channel, uint32_t buffer, uint64_t offset,
                              const void *source, size_t bytes, ferry_error_t *err) {
    uint64_t past = 0;
    return put(channel, buffer, offset, source, bytes, 0, &past, err);
}

ferry_status_t ferry_port_put_with_signal(ferry_port_channel_t *channel, uint32_t buffer,
                                          uint64_t offset, const void *source, size_t bytes,
                                          ferry_error_t *err) {
    uint64_t past = 0;
    return put(channel, buffer, offset, source, bytes, FY_REQUEST_SIGNAL, &past, err);
}

ferry_status_t ferry_port_put_with_signal_and_flush(ferry_port_channel_t *channel, uint32_t buffer,
                                                    uint64_t offset, const void *source,
                                                    size_t bytes, ferry_error_t *err) {
    uint64_t past = 0;
    FY_TRY(put(channel, buffer, offset, source, bytes, FY_REQUEST_SIGNAL, &past, err));
    return await_finished(channel, past, err);
}

ferry_status_t ferry_port_signal(ferry_port_channel_t *channel, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_TRY(fy_set_check(channel->end.set, err));
    fy_request_t request = {.channel = channel, .flags = FY_REQUEST_SIGNAL};
    uint64_t past = 0;
    return enqueue(channel, &request, &past, err);
}

ferry_status_t ferry_port_flush(ferry_port_channel_t *channel, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_TRY(fy_set_check(channel->end.set, err));
    return await_finished(channel, atomic_load_explicit(&channel->last, memory_order_acquire), err);
}

ferry_status_t ferry_port_wait(ferry_port_channel_t *channel, ferry_error_t *err) {
    FY_NEED(channel, err);
    return fy_end_wait(&channel->end, err);
}

ferry_status_t ferry_port_poll(ferry_port_channel_t *channel, bool *consumed_p,
                               ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED(consumed_p, err);
    return fy_end_poll(&channel->end, consumed_p, err);
}
