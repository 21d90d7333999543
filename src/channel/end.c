/* end.c - signals and waits of point-to-point channels, and the public calls of memory channels.
 *
 * Invariant: `consumed` is the number of waits that began; each waits for its own number, so that
 * concurrent waits on one end consume one signal each. */
#include "channel/set.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ferry/kernel.h>

#include "base/fail.h"

/* Appends a number; cheaper than printf, since it stands before every wait that does not succeed at
 * once. */
static char *append_u32(char *at, uint32_t number) {
    char digits[10];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (n > 0) {
        *at++ = digits[--n];
    }
    return at;
}

static char *append(char *at, const char *text) {
    while (*text != '\0') {
        *at++ = *text++;
    }
    return at;
}

/* "signal 18 of memory channel 3" */
static void name_signal(const fy_end_t *end, uint32_t value, char *what) {
    char *at = append(what, "signal ");
    at = append_u32(at, value);
    at = append(at, " of ");
    at = append(at, end->kind);
    at = append(at, " channel ");
    at = append_u32(at, end->id);
    *at = '\0';
}

/* A failed wait is the world's failure already; the set breaks with the same record. */
static ferry_status_t await(fy_end_t *end, fy_counter_t *counter, uint32_t value, const char *what,
                            ferry_error_t *err) {
    fy_wait_t wait = {end->set->world, fy_set_rank(end->set, end->peer), what, 0};
    ferry_error_t agreed = FERRY_ERROR_INIT;
    ferry_status_t status = fy_wait_until_at_least(counter, value, &wait, &agreed);
    if (status != FERRY_OK) {
        fy_set_break(end->set, &agreed, true);
        if (err != NULL) {
            *err = agreed;
        }
    }
    return status;
}

ferry_status_t fy_end_wait(fy_end_t *end, ferry_error_t *err) {
    FY_TRY(fy_set_check(end->set, err));
    uint32_t value = atomic_fetch_add_explicit(&end->consumed, 1, memory_order_relaxed) + 1;
    if (fy_counter_reached(end->inbound, value)) {
        return FERRY_OK;
    }
    char what[FY_WHAT_BYTES];
    name_signal(end, value, what);
    return await(end, end->inbound, value, what, err);
}

ferry_status_t fy_end_poll(fy_end_t *end, bool *consumed_p, ferry_error_t *err) {
    FY_TRY(fy_set_check(end->set, err));
    uint32_t consumed = atomic_load_explicit(&end->consumed, memory_order_relaxed);
    while (fy_counter_reached(end->inbound, consumed + 1)) {
        if (atomic_compare_exchange_weak_explicit(&end->consumed, &consumed, consumed + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *consumed_p = true;
            return FERRY_OK;
        }
    }
    *consumed_p = false;
    return FERRY_OK;
}

ferry_status_t fy_end_await_proxy(fy_end_t *end, fy_counter_t *counter, uint32_t value,
                                  const char *what, ferry_error_t *err) {
    if (fy_counter_reached(counter, value)) {
        return FERRY_OK;
    }
    char text[FY_WHAT_BYTES];
    (void)snprintf(text, sizeof text, "%s of port channel %" PRIu32, what, end->id);
    return await(end, counter, value, text, err);
}

ferry_status_t fy_end_signal(fy_end_t *end, ferry_error_t *err) {
    FY_TRY(fy_set_check(end->set, err));
    const ferry_transport_t *transport = end->set->transport;
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status =
        transport->ops->signal(transport->state, end->counted, end->counted_at, &mine);
    return status == FERRY_OK ? FERRY_OK : fy_end_fail(end, "signal", &mine, err);
}

/* --- memory channels --- */

uint32_t ferry_memory_peer(const ferry_memory_channel_t *channel) {
    return channel->end.peer;
}

ferry_status_t ferry_memory_put(ferry_memory_channel_t *channel, uint32_t buffer, uint64_t offset,
                                const void *source, size_t bytes, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(source, bytes, err);
    const fy_end_t *end = &channel->end;
    const ferry_remote_t *target = NULL;
    FY_TRY(fy_set_check(end->set, err));
    FY_TRY(fy_set_range(end->set, end->peer, buffer, offset, bytes, FERRY_TRANSPORT_PUT, &target,
                        err));
    if (bytes == 0) {
        return FERRY_OK;
    }
    const ferry_transport_t *transport = end->set->transport;
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status =
        transport->ops->put(transport->state, target, offset, source, bytes, &mine);
    return status == FERRY_OK ? FERRY_OK : fy_end_fail(end, "put", &mine, err);
}

ferry_status_t ferry_memory_get(ferry_memory_channel_t *channel, uint32_t buffer, uint64_t offset,
                                void *target, size_t bytes, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(target, bytes, err);
    const fy_end_t *end = &channel->end;
    const ferry_remote_t *source = NULL;
    FY_TRY(fy_set_check(end->set, err));
    FY_TRY(fy_set_range(end->set, end->peer, buffer, offset, bytes, FERRY_TRANSPORT_READ, &source,
                        err));
    if (bytes == 0) {
        return FERRY_OK;
    }
    const ferry_transport_t *transport = end->set->transport;
    ferry_read_piece_t piece = {offset, target, bytes};
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status = transport->ops->read(transport->state, source, &piece, 1, &mine);
    return status == FERRY_OK ? FERRY_OK : fy_end_fail(end, "get", &mine, err);
}

ferry_status_t ferry_memory_reduce(ferry_memory_channel_t *channel, void *target, const void *local,
                                   uint32_t buffer, uint64_t offset, uint64_t elements,
                                   ferry_dtype_t dtype, ferry_reduce_op_t op, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(target, elements, err);
    FY_NEED_ARRAY(local, elements, err);
    const fy_end_t *end = &channel->end;
    const ferry_remote_t *source = NULL;
    uint64_t bytes = 0;
    FY_TRY(fy_set_check(end->set, err));
    FY_TRY(ferry_dtype_bytes(dtype, elements, &bytes, err));
    FY_TRY(fy_set_range(end->set, end->peer, buffer, offset, bytes, FERRY_TRANSPORT_MAP, &source,
                        err));
    if (elements == 0) {
        return FERRY_OK;
    }
    ferry_view_t to;
    ferry_view_t from[2];
    FY_TRY(ferry_view_contiguous(target, dtype, 1, &elements, &to, err));
    from[0] = to;
    memcpy(&from[0].data, &local, sizeof local); /* a source is only read; views know no const */
    from[1] = to;
    from[1].data = (uint8_t *)source->address + offset;
    return ferry_reduce(&to, from, 2, op, err);
}

ferry_status_t ferry_memory_signal(ferry_memory_channel_t *channel, ferry_error_t *err) {
    FY_NEED(channel, err);
    return fy_end_signal(&channel->end, err);
}

ferry_status_t ferry_memory_wait(ferry_memory_channel_t *channel, ferry_error_t *err) {
    FY_NEED(channel, err);
    return fy_end_wait(&channel->end, err);
}

ferry_status_t ferry_memory_poll(ferry_memory_channel_t *channel, bool *consumed_p,
                                 ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED(consumed_p, err);
    return fy_end_poll(&channel->end, consumed_p, err);
}

/* On a CPU the order costs next to nothing. */
ferry_status_t ferry_memory_signal_relaxed(ferry_memory_channel_t *channel, ferry_error_t *err) {
    return ferry_memory_signal(channel, err);
}

ferry_status_t ferry_memory_wait_relaxed(ferry_memory_channel_t *channel, ferry_error_t *err) {
    return ferry_memory_wait(channel, err);
}
