/* proxy.c - the thread that does what is queued on the port channels of a set.
 *
 * It takes requests in the order of the queue and finishes each before it takes the next, so those of
 * one channel finish in order, and `finished` says for all of them how far it is. It waits for no
 * other rank. After a failure it tells the world, breaks the set and ends; whoever waits for it
 * notices the failure of the world. */
#include "channel/set.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "base/fail.h"
#include "world/world.h"

#define DOZE_NS                                                                                    \
    UINT64_C(1000000000)         /* nothing is lost by sleeping longer; a second look is cheap */
#define DRIVE_NS UINT64_C(50000) /* between calls of progress, when idle */
#define SPINS_WITH_ROOM UINT32_C(500) /* looks before sleeping, when each proxy can have a core */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool told_to_stop(ferry_channels_t *set) {
    return atomic_load_explicit(&set->stop, memory_order_acquire);
}

static ferry_status_t drive(ferry_channels_t *set, ferry_error_t *err) {
    const ferry_transport_t *transport = set->transport;
    if (transport->ops->progress == NULL) {
        return FERRY_OK;
    }
    return transport->ops->progress(transport->state, err);
}

/* Waits until the transport says that all to the peer has finished. */
static ferry_status_t complete(ferry_channels_t *set, uint32_t peer, ferry_error_t *err) {
    const ferry_transport_t *transport = set->transport;
    uint64_t deadline_ns = 0;
    for (;;) {
        bool done = false;
        FY_TRY(transport->ops->flush(transport->state, peer, &done, err));
        if (done) {
            return FERRY_OK;
        }
        FY_TRY(drive(set, err));
        FY_TRY(ferry_world_check(set->world, err));
        if (told_to_stop(set)) {
            return fy_fail(err, FERRY_STOPPED, "the channels were closed");
        }
        if (deadline_ns == 0) {
            deadline_ns = fy_deadline_ns(set->world);
        } else if (fy_clock_ns() >= deadline_ns) {
            return fy_fail(err, FERRY_TIMEOUT, "nothing arrives");
        }
        (void)sched_yield();
    }
}

static ferry_status_t serve(ferry_channels_t *set, const fy_request_t *request,
                            const char **doing_p, ferry_error_t *err) {
    const ferry_transport_t *transport = set->transport;
    const fy_end_t *end = &request->channel->end;
    if ((request->flags & FY_REQUEST_PUT) != 0 && request->bytes > 0) {
        *doing_p = "put";
        FY_TRY(transport->ops->put(transport->state, request->target, request->offset,
                                   request->source, request->bytes, err));
    }
    if ((request->flags & FY_REQUEST_SIGNAL) != 0) {
        *doing_p = "signal";
        FY_TRY(transport->ops->signal(transport->state, end->counted, end->counted_at, err));
    }
    *doing_p = "flush";
    return complete(set, fy_set_rank(set, end->peer), err);
}

/* Tells everyone. A status that a door would let pass is a failure here: nobody is at the door. */
static void give_up(ferry_channels_t *set, const fy_end_t *end, const char *doing,
                    ferry_error_t *mine) {
    char prefix[96];
    (void)snprintf(prefix, sizeof prefix, "%s on port channel %" PRIu32, doing, end->id);
    fy_error_prefix(mine, prefix);
    fy_error_ranks(mine, ferry_world_rank(set->world), fy_set_rank(set, end->peer));
    (void)fy_set_fail(set, mine, NULL);
}

/* False when the proxy should end. */
static bool work(ferry_channels_t *set, const fy_request_t *request, uint64_t position) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (ferry_world_check(set->world, &mine) != FERRY_OK) {
        fy_set_break(set, &mine, false);
        return false;
    }
    const char *doing = "request";
    if (serve(set, request, &doing, &mine) != FERRY_OK) {
        give_up(set, &request->channel->end, doing, &mine);
        return false;
    }
    atomic_store_explicit(&set->finished, position + 1, memory_order_release);
    fy_counter_set(&set->finished_low, (uint32_t)(position + 1));
    return true;
}

/* Nothing is queued: looks on for a moment, then sleeps. */
static bool idle(ferry_channels_t *set) {
    uint32_t seen = fy_counter_load(&set->queue.filled);
    ferry_error_t mine = FERRY_ERROR_INIT;
    if (drive(set, &mine) != FERRY_OK) {
        fy_error_ranks(&mine, ferry_world_rank(set->world), FERRY_RANK_NONE);
        (void)fy_set_fail(set, &mine, NULL);
        return false;
    }
    const fy_queue_slot_t *slot = &set->queue.slots[set->queue.head & set->queue.mask];
    for (uint32_t i = 0; i <= set->proxy_spins; i++) {
        if (atomic_load_explicit(&slot->turn, memory_order_acquire) == set->queue.head + 1 ||
            told_to_stop(set)) {
            return true;
        }
        relax();
    }
    fy_queue_doze(&set->queue, seen, set->transport->ops->progress != NULL ? DRIVE_NS : DOZE_NS);
    return true;
}

static void *proxy_main(void *argument) {
    ferry_channels_t *set = argument;
    bool going = true;
    while (going && !told_to_stop(set)) {
        fy_request_t request;
        uint64_t position = 0;
        if (fy_queue_pop(&set->queue, &request, &position)) {
            going = work(set, &request, position);
        } else {
            going = idle(set);
        }
    }
    return NULL;
}

/* Signals of the program are for its own threads. */
static int create_quietly(ferry_channels_t *set) {
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int number = pthread_create(&set->proxy, NULL, proxy_main, set);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return number;
}

ferry_status_t fy_proxy_start(ferry_channels_t *set, uint32_t queue_slots, ferry_error_t *err) {
    FY_TRY(fy_queue_init(&set->queue, queue_slots, set->first_count, err));
    atomic_init(&set->finished, set->first_count);
    atomic_init(&set->finished_low.value, set->first_count);
    bool room = 2 * ferry_world_size(set->world) <= ferry_world_cores(set->world);
    set->proxy_spins = room ? SPINS_WITH_ROOM : 0;
    int number = create_quietly(set);
    if (number != 0) {
        ferry_status_t status = fy_fail(err, FERRY_NOMEM, "no thread for the proxy");
        if (err != NULL) {
            err->sys_errno = number;
        }
        return status;
    }
    set->has_proxy = true;
    return FERRY_OK;
}

ferry_status_t fy_proxy_drain(ferry_channels_t *set, ferry_error_t *err) {
    for (uint32_t i = 0; i < set->nport; i++) {
        FY_TRY(ferry_port_flush(&set->ports[i], err));
    }
    return FERRY_OK;
}

void fy_proxy_stop(ferry_channels_t *set) {
    if (set->has_proxy) {
        atomic_store_explicit(&set->stop, true, memory_order_release);
        fy_queue_nudge(&set->queue);
        (void)pthread_join(set->proxy, NULL);
        set->has_proxy = false;
    }
}
