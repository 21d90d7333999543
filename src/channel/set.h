/* set.h - a set of channels: what its files share.
 *
 * Shared between ranks are the buffers and, per rank, one line per point-to-point channel with the
 * count of signals that came in; others only ever add to it. Everything else is local: what was
 * consumed, the queue, the proxy. So a rank that is killed, at whatever point, leaves nothing behind
 * that others would wait for, except signals that it never gave; and that the wait notices. */
#ifndef FERRY_CHANNEL_SET_H
#define FERRY_CHANNEL_SET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <ferry/channel.h>

#include "base/memory.h"
#include "channel/queue.h"
#include "world/wait.h"

#define FY_COUNTER_BYTES FY_LINE_BYTES /* a line per counter: ends do not disturb each other */
#define FY_WHAT_BYTES 48

/* What this rank knows of a member. */
typedef struct fy_member {
    uint32_t rank; /* of the world */
    uint32_t nbuffers;
    ferry_remote_t *buffers; /* caps 0: a buffer of no bytes, or out of reach */
    ferry_remote_t counters;
} fy_member_t;

/* This rank's end of a point-to-point channel. */
typedef struct fy_end {
    ferry_channels_t *set;
    const char *kind; /* "memory", "port" */
    uint32_t id;
    uint32_t peer;                 /* member of the group */
    fy_counter_t *inbound;         /* signals that came */
    const ferry_remote_t *counted; /* where the signals go that this end gives */
    uint64_t counted_at;
    _Atomic uint32_t consumed; /* of the inbound ones */
} fy_end_t;

struct ferry_memory_channel {
    fy_end_t end;
};

struct ferry_port_channel {
    fy_end_t end;
    _Atomic uint64_t last; /* one past the last position of the queue that this channel used */
};

struct ferry_switch_channel {
    ferry_channels_t *set;
    uint32_t id;
    uint32_t count;
    uint32_t *members;
};

struct ferry_channels {
    ferry_group_t *group;
    ferry_world_t *world;
    uint32_t me;         /* member */
    uint32_t generation; /* of the world, when this was opened */
    ferry_transport_t *transport;
    bool owns_transport;
    fy_arena_t arena; /* of all arrays below */
    fy_member_t *members;
    uint32_t nmembers;
    uint32_t nkeys; /* of own buffers, registered so far */
    ferry_transport_key_t *keys;
    ferry_transport_key_t counters_key;
    bool has_counters_key;
    uint8_t *counters; /* (nmemory + nport + 1) lines; the last is where lost signals go */
    uint32_t nmemory;
    uint32_t nport;
    uint32_t nswitch;
    uint32_t first_count;
    ferry_memory_channel_t *memory;
    ferry_port_channel_t *ports;
    ferry_switch_channel_t *switches;

    _Atomic bool broken; /* hands over `failure` */
    _Atomic bool told;   /* a caller has had the record as it is; later ones hear "broken" */
    pthread_mutex_t lock;
    ferry_error_t failure; /* under lock until broken */

    /* The proxy; only when there are ports, or when the transport needs driving. */
    bool has_proxy;
    pthread_t proxy;
    uint32_t proxy_spins;
    _Atomic bool stop;
    fy_queue_t queue;
    _Atomic uint64_t finished; /* one past the last finished position */
    fy_counter_t finished_low; /* its low bits, to sleep on */
};

/* --- set.c --- */

/* At the door of every operation: FERRY_OK, or why the set cannot be used. */
ferry_status_t fy_set_check(ferry_channels_t *set, ferry_error_t *err);
/* Breaks the set; the first record stays. `told`: the caller of an operation gets it now. */
void fy_set_break(ferry_channels_t *set, const ferry_error_t *why, bool told);
/* Tells all ranks of this failure, breaks the set, and returns what is agreed. */
ferry_status_t fy_set_fail(ferry_channels_t *set, const ferry_error_t *mine, ferry_error_t *err);
/* For what a transport returned while doing `what` on an end: a refusal passes, all else is a failure
 * of the set. */
ferry_status_t fy_end_fail(const fy_end_t *end, const char *what, ferry_error_t *mine,
                           ferry_error_t *err);
/* The peer's buffer, when the range lies in it and `caps` can be done to it. */
ferry_status_t fy_set_range(const ferry_channels_t *set, uint32_t member, uint32_t buffer,
                            uint64_t offset, uint64_t bytes, uint32_t caps,
                            const ferry_remote_t **remote_p, ferry_error_t *err);
/* Frees all; the counters only when no peer can still add to them. */
void fy_set_free(ferry_channels_t *set, bool peers_are_done);

/* --- end.c --- */

ferry_status_t fy_end_signal(fy_end_t *end, ferry_error_t *err);
ferry_status_t fy_end_wait(fy_end_t *end, ferry_error_t *err);
ferry_status_t fy_end_poll(fy_end_t *end, bool *consumed_p, ferry_error_t *err);
/* Waits for a counter that this rank's proxy moves for `end`. */
ferry_status_t fy_end_await_proxy(fy_end_t *end, fy_counter_t *counter, uint32_t value,
                                  const char *what, ferry_error_t *err);

/* --- proxy.c --- */

ferry_status_t fy_proxy_start(ferry_channels_t *set, uint32_t queue_slots, ferry_error_t *err);
/* Waits until all that is queued has finished. */
ferry_status_t fy_proxy_drain(ferry_channels_t *set, ferry_error_t *err);
/* Joins the thread; what is still queued is dropped. Nothing to do without a proxy. */
void fy_proxy_stop(ferry_channels_t *set);

static inline uint32_t fy_set_rank(const ferry_channels_t *set, uint32_t member) {
    return set->members[member].rank;
}

#endif
