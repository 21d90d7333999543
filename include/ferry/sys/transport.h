/* transport.h - for authors of transports: what carries bytes and signals from rank to rank.
 *
 * A transport is a folder or a file and one table of functions, listed in src/channel/transports.c.
 * Channels, services and pipelines call nothing but this table. What a transport can do to a peer it
 * says in a pure query:
 *
 *   MAP        attach gives an address where the peer's memory is loaded and stored
 *   READ       read
 *   PUT        put, signal, flush
 *   SENDRECV   send, recv, flush
 *
 * A function that is NULL is unsupported. That is checked once, when the transport is opened, against
 * what caps promises; afterwards nobody looks.
 *
 * Two decorators wrap any transport and are transports themselves: one traces, one injects faults.
 *
 * Ownership: whoever opened a transport closes it; a decorator owns what it wraps. Keys and remotes are
 * plain memory of the caller.
 * Thread safety: control functions (open .. detach): one thread of a rank at a time. Data functions
 * (put .. recv): any threads at once. They never block for long, allocate nothing, and make no system
 * call but futex and, where there is no other way, the one that moves the bytes. */
#ifndef FERRY_SYS_TRANSPORT_H
#define FERRY_SYS_TRANSPORT_H

#include <ferry/mem.h>
#include <ferry/world.h>

FERRY_BEGIN_DECLS

typedef enum ferry_transport_caps {
    FERRY_TRANSPORT_MAP = 1,
    FERRY_TRANSPORT_READ = 2,
    FERRY_TRANSPORT_PUT = 4,
    FERRY_TRANSPORT_SENDRECV = 8,
} ferry_transport_caps_t;

#define FERRY_TRANSPORT_KEY_EXTRA 32

/* Names memory of a rank; plain data that ranks send each other. */
typedef struct ferry_transport_key {
    ferry_mem_key_t memory;
    uint8_t extra[FERRY_TRANSPORT_KEY_EXTRA]; /* the transport's own */
} ferry_transport_key_t;

/* A peer's memory, ready for use. `bytes` bound every offset; callers check, transports need not. */
typedef struct ferry_remote {
    ferry_transport_key_t key;
    uint32_t peer; /* rank of the world */
    uint32_t caps; /* a sum of ferry_transport_caps_t: what can be done to this memory */
    void *address; /* as this rank loads and stores it; NULL: it cannot */
    void *handle;  /* the transport's own */
} ferry_remote_t;

/* One piece of a read: `bytes` from `offset` of the remote to `local`. */
typedef struct ferry_read_piece {
    uint64_t offset;
    void *local;
    size_t bytes;
} ferry_read_piece_t;

/* Tables grow at the end; `size` says how far this one goes. */
typedef struct ferry_transport_ops {
    size_t size; /* sizeof(ferry_transport_ops_t) */
    const char *name;

    /* --- control: may block, may allocate --- */

    /* `config` is the transport's own and may be NULL. */
    ferry_status_t (*open)(ferry_world_t *world, const void *config, void **state_p,
                           ferry_error_t *err);
    void (*close)(void *state);
    /* A sum of ferry_transport_caps_t: what can be done to the peer's memory at best. Pure. */
    uint32_t (*caps)(const void *state, uint32_t peer);
    /* Makes memory of this rank reachable for others, and ends that. */
    ferry_status_t (*enroll)(void *state, void *memory, size_t bytes, ferry_transport_key_t *key_p,
                             ferry_error_t *err);
    void (*withdraw)(void *state, const ferry_transport_key_t *key);
    /* Makes a peer's key usable here, and ends that. detach may be NULL: nothing to do. */
    ferry_status_t (*attach)(void *state, const ferry_transport_key_t *key,
                             ferry_remote_t *remote_p, ferry_error_t *err);
    void (*detach)(void *state, ferry_remote_t *remote);

    /* --- data --- */

    /* Writes `bytes` at `offset` of the remote. The source must stay intact until flush says so; the
     * target is written before any later signal to that peer is counted. */
    ferry_status_t (*put)(void *state, const ferry_remote_t *target, uint64_t offset,
                          const void *source, size_t bytes, ferry_error_t *err);
    /* Reads all pieces; they are there when it returns. */
    ferry_status_t (*read)(void *state, const ferry_remote_t *source,
                           const ferry_read_piece_t *pieces, size_t npieces, ferry_error_t *err);
    /* Adds 1 to the counter (32 bits and 4 of the waiter's own, 8-aligned, zero at first) at `offset`
     * of the remote and wakes who sleeps on it. What this thread wrote before, streaming stores
     * included, and earlier puts to that peer are seen by whoever sees the new count. */
    ferry_status_t (*signal)(void *state, const ferry_remote_t *target, uint64_t offset,
                             ferry_error_t *err);
    /* Asks, without waiting: have all earlier puts, signals and sends to the peer finished here, so
     * that their sources may be overwritten and the counts have arrived? */
    ferry_status_t (*flush)(void *state, uint32_t peer, bool *done_p, ferry_error_t *err);
    /* Moves things along; the rank's proxy calls it again and again. NULL: nothing needs driving. */
    ferry_status_t (*progress)(void *state, ferry_error_t *err);
    /* Two-sided, in order per pair of ranks. The source must stay intact until flush says so; recv
     * asks, without waiting, for the next message, which must have `bytes` bytes. */
    ferry_status_t (*send)(void *state, uint32_t peer, const void *source, size_t bytes,
                           ferry_error_t *err);
    ferry_status_t (*recv)(void *state, uint32_t peer, void *target, size_t bytes, bool *done_p,
                           ferry_error_t *err);
} ferry_transport_ops_t;

/* A transport that is open. */
typedef struct ferry_transport {
    const ferry_transport_ops_t *ops;
    void *state;
    ferry_world_t *world; /* borrowed */
} ferry_transport_t;

/* --- opening ----------------------------------------------------------------------------------- */

/* The names of the built-in transports, best first; index from 0; NULL past the end. Static. */
FERRY_API const char *ferry_transport_name(uint32_t index);

/* By name ("shm"; NULL: the first). Local: no communication. */
FERRY_API ferry_status_t ferry_transport_open(ferry_world_t *world, const char *name,
                                              ferry_transport_t **transport_p, ferry_error_t *err);
/* By table: a transport that is not built in. FERRY_INVALID when the table lacks a function that it
 * must have, or that its caps promise. The table must outlive the transport. */
FERRY_API ferry_status_t ferry_transport_open_table(ferry_world_t *world,
                                                    const ferry_transport_ops_t *ops,
                                                    const void *config,
                                                    ferry_transport_t **transport_p,
                                                    ferry_error_t *err);
FERRY_API void ferry_transport_close(ferry_transport_t *transport); /* NULL is fine */

/* --- what decorators count ---------------------------------------------------------------------- */

/* The one list of calls; it grows at the end. */
#define FERRY_TRANSPORT_CALL_MAP(X)                                                                \
    X(ENROLL, 0, "register")                                                                       \
    X(ATTACH, 1, "attach")                                                                         \
    X(PUT, 2, "put")                                                                               \
    X(READ, 3, "read")                                                                             \
    X(SIGNAL, 4, "signal")                                                                         \
    X(FLUSH, 5, "flush")                                                                           \
    X(PROGRESS, 6, "progress")                                                                     \
    X(SEND, 7, "send")                                                                             \
    X(RECV, 8, "recv")

typedef enum ferry_transport_call {
#define FERRY_TRANSPORT_CALL_ENUM(name, number, text) FERRY_CALL_##name = (number),
    FERRY_TRANSPORT_CALL_MAP(FERRY_TRANSPORT_CALL_ENUM)
#undef FERRY_TRANSPORT_CALL_ENUM
} ferry_transport_call_t;

#define FERRY_CALLS_CONTROL UINT32_C(0x003) /* sets of calls: 1 << call */
#define FERRY_CALLS_DATA UINT32_C(0x1fc)

/* "put"; "?" for a number that is no call. Static. */
FERRY_API const char *ferry_transport_call_name(ferry_transport_call_t call);

/* --- trace -------------------------------------------------------------------------------------- */

typedef struct ferry_trace_event {
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t end_ns;
    uint64_t bytes;
    uint32_t rank;
    uint32_t peer;   /* FERRY_RANK_NONE for progress */
    uint32_t call;   /* ferry_transport_call_t */
    uint32_t status; /* ferry_status_t */
} ferry_trace_event_t;

#define FERRY_TRACE_MIN_EVENTS 64

typedef struct ferry_trace_params {
    size_t size; /* sizeof(ferry_trace_params_t) */
    ferry_trace_event_t
        *events;     /* the ring: memory of the caller, who reads it when no call runs */
    size_t capacity; /* in events, at least FERRY_TRACE_MIN_EVENTS; the newest stay */
} ferry_trace_params_t;

#define FERRY_TRACE_PARAMS_INIT                                                                    \
    { sizeof(ferry_trace_params_t), NULL, 0 }

/* Wraps `inner` and, on success, owns it. Data calls are recorded. */
FERRY_API ferry_status_t ferry_transport_trace(ferry_transport_t *inner,
                                               const ferry_trace_params_t *params,
                                               ferry_transport_t **transport_p, ferry_error_t *err);
/* Events written so far; event i lies at i % capacity. 0 for a transport that does not trace. */
FERRY_API uint64_t ferry_transport_trace_count(const ferry_transport_t *transport);

/* --- faults ------------------------------------------------------------------------------------- */

typedef enum ferry_fault_kind {
    FERRY_FAULT_NONE = 0,  /* only counts */
    FERRY_FAULT_DELAY = 1, /* the call is made after delay_us */
    FERRY_FAULT_DROP = 2,  /* put, signal and send say yes and do nothing; others fail as below */
    FERRY_FAULT_ERROR = 3, /* FERRY_IO, EIO, and nothing is done */
    FERRY_FAULT_DEATH = 4, /* SIGKILL to this process */
} ferry_fault_kind_t;

typedef struct ferry_fault_params {
    size_t size; /* sizeof(ferry_fault_params_t) */
    ferry_fault_kind_t kind;
    uint32_t calls;       /* which calls count: a set of 1 << call; 0: FERRY_CALLS_DATA */
    uint64_t at_call;     /* strikes at the n-th call that counts, from 1; 0: by chance */
    uint32_t per_million; /* by chance: how often */
    uint32_t delay_us;
    uint64_t seed; /* of the chance */
} ferry_fault_params_t;

#define FERRY_FAULT_PARAMS_INIT                                                                    \
    { sizeof(ferry_fault_params_t), FERRY_FAULT_NONE, 0, 0, 0, 0, 0 }

/* Wraps `inner` and, on success, owns it. */
FERRY_API ferry_status_t ferry_transport_fault(ferry_transport_t *inner,
                                               const ferry_fault_params_t *params,
                                               ferry_transport_t **transport_p, ferry_error_t *err);
/* Calls that counted so far, and how many were struck. 0 for a transport that injects nothing. */
FERRY_API uint64_t ferry_transport_fault_calls(const ferry_transport_t *transport);
FERRY_API uint64_t ferry_transport_fault_strikes(const ferry_transport_t *transport);

FERRY_END_DECLS

#endif
