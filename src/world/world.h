/* world.h - a rank's handle on its world, and what the files of this floor share.
 *
 * Floors above use the functions of the first part, wait.h and the public headers. */
#ifndef FERRY_WORLD_WORLD_H
#define FERRY_WORLD_WORLD_H

#include <pthread.h>
#include <sys/uio.h>

#include <ferry/mem.h>
#include <ferry/world.h>

#include "world/space.h"

/* --- for the floors above ---------------------------------------------------------------------- */

/* Grows by one with each recovery: what counts in shared memory must start anew when it changes. */
uint32_t fy_world_generation(const ferry_world_t *world);
/* How many times to look before sleeping; 0 when ranks exceed cores. */
uint32_t fy_world_spins(const ferry_world_t *world);
/* FERRY_INVALID in a process that a rank forked. */
ferry_status_t fy_world_usable(const ferry_world_t *world, ferry_error_t *err);
/* process_vm_readv from a peer's own memory, however many pieces there are; both lists hold the same
 * number of bytes. Pieces are consumed: the lists are changed. */
ferry_status_t fy_mem_readv(ferry_world_t *world, uint32_t peer, struct iovec *local, size_t nlocal,
                            struct iovec *remote, size_t nremote, ferry_error_t *err);
/* For looks at a key that a peer sent: it names memory of this world and bytes do not run over. */
ferry_status_t fy_mem_check_key(const ferry_world_t *world, const ferry_mem_key_t *key,
                                ferry_error_t *err);

/* --- inside ------------------------------------------------------------------------------------ */

/* What is seen of a rank. */
typedef struct fy_life {
    ferry_rank_life_t life;
    char how[48]; /* DEAD: "killed by signal 9", or "" */
} fy_life_t;

/* What the kinds of worlds do differently. */
typedef struct fy_kind {
    const char *name;
    bool one_process;
    void (*look)(const ferry_world_t *world, uint32_t rank, fy_life_t *life_p);
} fy_kind_t;

extern const fy_kind_t fy_kind_threads;
extern const fy_kind_t fy_kind_processes;
extern const fy_kind_t fy_kind_socket;

/* A piece of this rank's arena that is allocated. */
typedef struct fy_piece {
    uint64_t at;
    uint64_t bytes;
    bool freed; /* while the world had failed: it goes when the world recovers */
} fy_piece_t;

/* Who still has to read what lies in a half of the mailbox. */
typedef struct fy_half {
    uint32_t count;
    uint32_t *peers;
    uint32_t *values; /* `read` of the cell to that peer, when it is done */
} fy_half_t;

/* May a peer's own memory be read? 0 not tried, 1 no, 2 yes. */
typedef struct fy_readable {
    _Atomic uint8_t known;
} fy_readable_t;

struct ferry_world {
    fy_space_t *space;
    const fy_kind_t *kind;
    uint32_t rank; /* == size: the launcher, which only watches */
    uint32_t size;
    uint32_t timeout_ms;
    uint32_t spins; /* at most */
    _Atomic uint32_t spin_now;
    _Atomic uint32_t spin_failures;
    uint32_t phases;            /* of recoveries, reached */
    _Atomic uint32_t next_look; /* whom to look at next, beside the one waited for */
    uint64_t probe;             /* FY_CONTROL_MAGIC */
    ferry_group_t *all;

    /* Exchanges: one thread at a time. */
    uint32_t *sent; /* posts to each rank */
    uint32_t *got;  /* posts taken from each rank */
    fy_half_t halves[2];
    uint32_t posted; /* halves used */

    fy_readable_t *readable; /* per rank */

    pthread_mutex_t lock; /* of what is below and of slot.failure; never held across a wait */
    fy_piece_t *pieces;   /* ascending, apart */
    size_t npieces;
    size_t pieces_cap;
    struct fy_common *retired; /* common.h */
};

static inline fy_slot_t *fy_world_slot(const ferry_world_t *world, uint32_t rank) {
    return &world->space->slots[rank];
}

/* Checks the caller's struct and fills in defaults. */
ferry_status_t fy_world_params(const ferry_world_params_t *params, uint32_t size,
                               ferry_world_params_t *params_p, ferry_error_t *err);
/* A handle; takes a reference of the space. */
ferry_status_t fy_world_create(fy_space_t *space, const fy_kind_t *kind, uint32_t rank,
                               uint32_t timeout_ms, ferry_world_t **world_p, ferry_error_t *err);
void fy_world_destroy(ferry_world_t *world); /* NULL is fine; leaves no trace in the slot */

/* What a slot tells for good, before anyone reads it: host and cores. */
void fy_world_describe(fy_slot_t *slot, uint32_t host);
/* Writes who this rank is into its slot and opens it. */
void fy_world_enter(ferry_world_t *world);
/* Runs the rank's function, tells the others of its failure, writes the result and closes the slot. */
ferry_status_t fy_world_live(ferry_world_t *world, ferry_rank_fn_t fn, void *context,
                             ferry_error_t *err);
void fy_world_close(ferry_world_t *world);
/* Decides how long to spin, once all slots are described. */
void fy_world_count_cores(ferry_world_t *world);

/* life.c */
void fy_look_thread(const ferry_world_t *world, uint32_t rank, fy_life_t *life_p);
void fy_look_process(const ferry_world_t *world, uint32_t rank, fy_life_t *life_p);
uint64_t fy_process_start_time(int32_t pid);
/* For error texts: "; rank 2 waited for it in barrier" (rank, peer: who waited for whom; what). */
void fy_say_waits(ferry_world_t *world, uint32_t peer, const char *what);
void fy_say_goes_on(ferry_world_t *world);
/* Where this rank sleeps, and waking all others there: so that a failure is seen at once. One that is
 * just about to sleep is missed and sees it at the end of its slice. */
void fy_say_sleeps(ferry_world_t *world, const fy_counter_t *counter);
void fy_wake_all(ferry_world_t *world);
bool fy_what_waits(const ferry_world_t *world, uint32_t rank, uint32_t *peer_p, char *what,
                   size_t cap);
/* The record of a death, seen by the launcher. */
void fy_describe_death(const ferry_world_t *world, uint32_t rank, ferry_error_t *record_p);

/* failure.c */
ferry_status_t fy_world_agreed(const ferry_world_t *world, ferry_error_t *err);
ferry_status_t fy_world_broken(const ferry_world_t *world, ferry_error_t *err);
/* As ferry_world_fail, for a world that cannot recover. */
ferry_status_t fy_world_break(ferry_world_t *world, const ferry_error_t *mine, ferry_error_t *err);

/* mem.c: in a recovery, when nobody is in any other call. */
void fy_mem_drop_freed(ferry_world_t *world);

/* group.c */
void fy_exchange_reset(ferry_world_t *world);
ferry_status_t fy_exchange_init(ferry_world_t *world, ferry_error_t *err);
void fy_exchange_fini(ferry_world_t *world);

/* As fy_wait_until_at_least, in a world that has failed and recovers. */
ferry_status_t fy_wait_recovering(fy_counter_t *counter, uint32_t value, const fy_wait_t *wait,
                                  ferry_error_t *err);

/* limits.c: bytes of memory that can still be had, as far as the system tells. */
uint64_t fy_memory_left(void);
uint64_t fy_memory_total(void);

#endif
