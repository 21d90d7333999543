/* channel.h - memory, port and switch channels between ranks.
 *
 * Ranks of a group open a set of channels together: each names its buffers and, per channel, the peer.
 * Keys are exchanged once, there; afterwards an operation is a few loads, a copy or an addition.
 *
 *   memory   the caller itself copies to and from the peer's buffers; signals are immediate
 *   port     the caller queues; a proxy thread of the set does the work, in order per channel
 *   switch   over some ranks: reduce from the same range of all, store to the same range on all
 *
 * Pairing: the k-th memory channel that rank a lists with peer b is the other end of the k-th that b
 * lists with peer a; port channels alike, apart from memory channels. Where one side lists fewer, the
 * missing end exists and nobody can wait on it. A rank may be its own peer.
 *
 * Signals are counted, per end. A wait consumes one and blocks until there is one; counts persist and
 * are never reset. What was stored or put before a signal is seen after the wait that consumed it. An
 * end may have 2^31 - 1 signals that nobody has consumed yet.
 *
 * Buffers are named by number, in the order in which their owner lists them. Remote ranges are checked
 * at every call (FERRY_INVALID); local memory is any memory of the caller.
 *
 * Failure. Every wait has the world's deadline and notices dead ranks. A failed operation fails the world
 * (ferry_world_fail), breaks the set, and gives the record that all ranks agree on; every later call
 * on that set says that it is broken, also after ferry_world_recover: close it and open another. What
 * a call refuses at its door (FERRY_INVALID, FERRY_MISMATCH, FERRY_UNSUPPORTED) breaks nothing.
 *
 * Ownership: the set belongs to its opener, who closes it before the group and the world end; channels
 * are borrowed from it. Buffers stay the caller's and must stay until the set is closed.
 * Thread safety: opening and closing are collective calls (world.h). Everything else: any threads of
 * the rank at once, on the same channel, too; concurrent waits on one end consume one signal each.
 * Nothing but opening and closing allocates. */
#ifndef FERRY_CHANNEL_H
#define FERRY_CHANNEL_H

#include <stdbool.h>

#include <ferry/dtype.h>
#include <ferry/layout.h>
#include <ferry/sys/transport.h>
#include <ferry/world.h>

FERRY_BEGIN_DECLS

#define FERRY_CHANNELS_QUEUE_SLOTS 256    /* requests that the proxy's queue holds, by default */
#define FERRY_CHANNELS_MAX_PER_KIND 65536 /* channels of one kind, and buffers, of one rank */
#define FERRY_CHANNELS_MAX_QUEUE (1u << 20)

typedef struct ferry_channels ferry_channels_t;
typedef struct ferry_memory_channel ferry_memory_channel_t;
typedef struct ferry_port_channel ferry_port_channel_t;
typedef struct ferry_switch_channel ferry_switch_channel_t;

/* Memory of this rank that peers reach: from ferry_mem_alloc, or any other. Other memory can only be got
 * from, and only where the system allows it, unless both ranks are threads of one process; the rest is
 * FERRY_UNSUPPORTED. */
typedef struct ferry_buffer {
    void *memory;
    size_t bytes; /* 0: this number is not used; every range on it is out of bounds */
} ferry_buffer_t;

/* The members of a switch channel, as members of the group; this rank is one of them. */
typedef struct ferry_switch_members {
    const uint32_t *members;
    uint32_t count;
} ferry_switch_members_t;

typedef struct ferry_channels_params {
    size_t size; /* sizeof(ferry_channels_params_t) */
    const ferry_buffer_t *buffers;
    uint32_t nbuffers;
    uint32_t nmemory;
    const uint32_t *memory_peers; /* member of the group per memory channel; its index is its id */
    const uint32_t *port_peers;
    uint32_t nport;
    uint32_t nswitch;
    const ferry_switch_members_t *switches;
    ferry_transport_t *transport; /* borrowed until the set is closed; NULL: "shm" */
    uint32_t queue_slots;         /* a power of two; 0: FERRY_CHANNELS_QUEUE_SLOTS */
    uint32_t first_count;         /* where counters start; only tests of wrapping care */
} ferry_channels_params_t;

#define FERRY_CHANNELS_PARAMS_INIT                                                                 \
    { sizeof(ferry_channels_params_t), NULL, 0, 0, NULL, NULL, 0, 0, NULL, NULL, 0, 0 }

/* --- the set ------------------------------------------------------------------------------------ */

/* Collective over the group. When one rank cannot (bad arguments, no memory, a peer out of reach), all
 * get its record, and the world goes on. */
FERRY_API ferry_status_t ferry_channels_open(ferry_group_t *group,
                                             const ferry_channels_params_t *params,
                                             ferry_channels_t **channels_p, ferry_error_t *err);
/* Collective while all is well: finishes what is queued and waits for all, so that no rank's memory is
 * still in use. In a failed world it waits for nobody. The set is gone in either case (NULL is fine);
 * the status tells whether all ended well. */
FERRY_API ferry_status_t ferry_channels_close(ferry_channels_t *channels, ferry_error_t *err);
/* FERRY_OK, or what broke the set or failed the world. */
FERRY_API ferry_status_t ferry_channels_check(ferry_channels_t *channels, ferry_error_t *err);

FERRY_API uint32_t ferry_channels_nbuffers(const ferry_channels_t *channels, uint32_t member);
/* Bytes of a member's buffer; 0 when there is none. */
FERRY_API uint64_t ferry_channels_buffer_bytes(const ferry_channels_t *channels, uint32_t member,
                                               uint32_t buffer);
/* A member's buffer as this rank loads and stores it. FERRY_UNSUPPORTED when it cannot; FERRY_INVALID
 * out of bounds. For folds over several peers, and for kernels that write into a peer's memory: end
 * them with a signal as after put. */
FERRY_API ferry_status_t ferry_channels_map(ferry_channels_t *channels, uint32_t member,
                                            uint32_t buffer, uint64_t offset, uint64_t bytes,
                                            void **memory_p, ferry_error_t *err);

/* By id; NULL when there is none. Borrowed. */
FERRY_API ferry_memory_channel_t *ferry_channels_memory(ferry_channels_t *channels, uint32_t id);
FERRY_API ferry_port_channel_t *ferry_channels_port(ferry_channels_t *channels, uint32_t id);
FERRY_API ferry_switch_channel_t *ferry_channels_switch(ferry_channels_t *channels, uint32_t id);

/* --- memory channels ---------------------------------------------------------------------------- */

FERRY_API uint32_t ferry_memory_peer(const ferry_memory_channel_t *channel); /* of the group */

/* [offset, + bytes) of the peer's buffer := source. Visible there after a later signal and its wait. */
FERRY_API ferry_status_t ferry_memory_put(ferry_memory_channel_t *channel, uint32_t buffer,
                                          uint64_t offset, const void *source, size_t bytes,
                                          ferry_error_t *err);
/* target := [offset, + bytes) of the peer's buffer. */
FERRY_API ferry_status_t ferry_memory_get(ferry_memory_channel_t *channel, uint32_t buffer,
                                          uint64_t offset, void *target, size_t bytes,
                                          ferry_error_t *err);
/* target := local op the peer's elements at `offset`. The target may be `local`. */
FERRY_API ferry_status_t ferry_memory_reduce(ferry_memory_channel_t *channel, void *target,
                                             const void *local, uint32_t buffer, uint64_t offset,
                                             uint64_t elements, ferry_dtype_t dtype,
                                             ferry_reduce_op_t op, ferry_error_t *err);
FERRY_API ferry_status_t ferry_memory_signal(ferry_memory_channel_t *channel, ferry_error_t *err);
FERRY_API ferry_status_t ferry_memory_wait(ferry_memory_channel_t *channel, ferry_error_t *err);
/* Consumes a signal if there is one, without waiting: *consumed_p says so. */
FERRY_API ferry_status_t ferry_memory_poll(ferry_memory_channel_t *channel, bool *consumed_p,
                                           ferry_error_t *err);
/* The same on the same counters, without a promise about the order of memory. */
FERRY_API ferry_status_t ferry_memory_signal_relaxed(ferry_memory_channel_t *channel,
                                                     ferry_error_t *err);
FERRY_API ferry_status_t ferry_memory_wait_relaxed(ferry_memory_channel_t *channel,
                                                   ferry_error_t *err);

/* --- port channels ------------------------------------------------------------------------------ */

/* Requests of one channel finish in the order in which they were queued; different channels are not
 * ordered. A full queue makes the caller wait. A source must stay intact until a flush. What the caller
 * stored before it queued is covered, as by a signal. */

FERRY_API uint32_t ferry_port_peer(const ferry_port_channel_t *channel); /* of the group */

FERRY_API ferry_status_t ferry_port_put(ferry_port_channel_t *channel, uint32_t buffer,
                                        uint64_t offset, const void *source, size_t bytes,
                                        ferry_error_t *err);
FERRY_API ferry_status_t ferry_port_signal(ferry_port_channel_t *channel, ferry_error_t *err);
FERRY_API ferry_status_t ferry_port_put_with_signal(ferry_port_channel_t *channel, uint32_t buffer,
                                                    uint64_t offset, const void *source,
                                                    size_t bytes, ferry_error_t *err);
FERRY_API ferry_status_t ferry_port_put_with_signal_and_flush(ferry_port_channel_t *channel,
                                                              uint32_t buffer, uint64_t offset,
                                                              const void *source, size_t bytes,
                                                              ferry_error_t *err);
/* Waits until everything queued earlier on this channel has finished here: sources may be overwritten,
 * signals have reached the peer's count. Says nothing about the peer having waited. */
FERRY_API ferry_status_t ferry_port_flush(ferry_port_channel_t *channel, ferry_error_t *err);
FERRY_API ferry_status_t ferry_port_wait(ferry_port_channel_t *channel, ferry_error_t *err);
/* As ferry_memory_poll. */
FERRY_API ferry_status_t ferry_port_poll(ferry_port_channel_t *channel, bool *consumed_p,
                                         ferry_error_t *err);

/* --- switch channels ---------------------------------------------------------------------------- */

/* The same range of the buffer with the same number is meant on every member. There are no signals:
 * members tell each other over memory channels when sources are there and targets may be read.
 * Reductions are left folds in the order of the members, rounded once (ferry_reduce). */

FERRY_API uint32_t ferry_switch_size(const ferry_switch_channel_t *channel); /* members */

/* target := member 0's op member 1's op ..., elements at `offset` of `buffer`. The target is local. */
FERRY_API ferry_status_t ferry_switch_reduce(ferry_switch_channel_t *channel, void *target,
                                             uint32_t buffer, uint64_t offset, uint64_t elements,
                                             ferry_dtype_t dtype, ferry_reduce_op_t op,
                                             ferry_error_t *err);
/* The same, stored at `target_offset` of `target_buffer` on every member. Source and target may be
 * the same range; ranges of one buffer that overlap otherwise are FERRY_INVALID. */
FERRY_API ferry_status_t ferry_switch_reduce_all(ferry_switch_channel_t *channel,
                                                 uint32_t target_buffer, uint64_t target_offset,
                                                 uint32_t source_buffer, uint64_t source_offset,
                                                 uint64_t elements, ferry_dtype_t dtype,
                                                 ferry_reduce_op_t op, ferry_error_t *err);
/* [offset, + bytes) of `buffer` := source, on every member. */
FERRY_API ferry_status_t ferry_switch_broadcast(ferry_switch_channel_t *channel, uint32_t buffer,
                                                uint64_t offset, const void *source, size_t bytes,
                                                ferry_error_t *err);

FERRY_END_DECLS

#endif
