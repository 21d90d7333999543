/* wait.h - waiting for a counter in shared memory.
 *
 * The one place where a rank waits for another. A counter is a 32-bit number that only ever goes up
 * and may wrap: "at least" means at most 2^31 - 1 ahead. A waiter looks, spins briefly (not at all when
 * ranks exceed cores), then sleeps on a futex shared between processes, in slices of FY_SLICE_MS; after
 * each slice it looks whether the world has failed and whether the rank it waits for still lives.
 *
 * No wake-up is lost: the writer stores, then looks for sleepers; the sleeper counts itself, then looks
 * at the value; both in sequentially consistent order, and the futex compares again. A sleeper that is
 * killed leaves its count behind, which costs a needless wake-up and nothing else.
 *
 * What the writer stored before fy_counter_set or _add is seen by whoever saw the new value (release,
 * acquire). Streaming stores need their own fence first. */
#ifndef FERRY_WORLD_WAIT_H
#define FERRY_WORLD_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/world.h>

#define FY_SLICE_MS 100

/* Lives in memory that the ranks share; 8 bytes, 8-aligned. All zero is a counter at 0. */
typedef struct fy_counter {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} fy_counter_t;

/* Who waits, for whom, for what. */
typedef struct fy_wait {
    ferry_world_t *world;
    uint32_t peer;        /* world rank that will move the counter; FERRY_RANK_NONE: anyone */
    const char *what;     /* one or two words for the error: "barrier", "signal 3 of channel 7" */
    uint64_t deadline_ns; /* fy_clock_ns() time; 0: the world's timeout from now */
} fy_wait_t;

/* CLOCK_MONOTONIC. */
uint64_t fy_clock_ns(void);
/* The world's timeout from now, as an absolute time; UINT64_MAX: none. */
uint64_t fy_deadline_ns(const ferry_world_t *world);

static inline uint32_t fy_counter_load(const fy_counter_t *counter) {
    return atomic_load_explicit(&counter->value, memory_order_acquire);
}

/* Is `now` at or past `value`, wrapping at 2^32? */
static inline bool fy_at_least(uint32_t now, uint32_t value) {
    return (int32_t)(now - value) >= 0;
}

static inline bool fy_counter_reached(const fy_counter_t *counter, uint32_t value) {
    return fy_at_least(fy_counter_load(counter), value);
}

/* Wakes whoever sleeps on the counter. A system call only when someone does. */
void fy_wake(fy_counter_t *counter);

/* Store, or add, and wake. fy_counter_set is for a counter with one writer. */
static inline void fy_counter_set(fy_counter_t *counter, uint32_t value) {
    atomic_store_explicit(&counter->value, value, memory_order_seq_cst);
    fy_wake(counter);
}

static inline void fy_counter_add(fy_counter_t *counter, uint32_t more) {
    (void)atomic_fetch_add_explicit(&counter->value, more, memory_order_seq_cst);
    fy_wake(counter);
}

/* Returns when the counter is at `value` or past it. FERRY_OK at once when it is, even in a failed
 * world. A failure (the agreed one of the world; a dead, stopped or late peer, which then becomes the
 * agreed one unless another was first) is the same record on all ranks. */
ferry_status_t fy_wait_until_at_least(fy_counter_t *counter, uint32_t value, const fy_wait_t *wait,
                                      ferry_error_t *err);

#endif
