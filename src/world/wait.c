/* wait.c - waiting for a counter, and noticing why it does not come.
 *
 * Invariant: before any complaint about a peer the counter is looked at once more, after the look at
 * the peer: what a rank did before it left or died counts. Time in which this process was itself
 * stopped does not count against the others. */
#include "world/wait.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "world/world.h"

#define MS UINT64_C(1000000)
#define STOPPED_MS 1500  /* a rank that is seen stopped for so long is taken as stopped */
#define SUSPENDED_MS 500 /* a slice that took so much longer: we did not run ourselves */
#define LOOKS_PER_TURN 16
#define SPIN_AGAIN 16
#define SPIN_LEAST 16

typedef struct watch {
    const fy_wait_t *wait;
    fy_counter_t *counter;
    uint32_t value;
    bool recovering;
    uint64_t begin_ns;
    uint64_t deadline_ns;
    uint64_t stopped_ns; /* since when the peer is seen stopped; 0: it is not */
    uint32_t suspect;    /* seen dead, but nobody said how yet; FERRY_RANK_NONE: no one */
} watch_t;

uint64_t fy_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

uint64_t fy_deadline_ns(const ferry_world_t *world) {
    if (world->timeout_ms == FERRY_TIMEOUT_NONE) {
        return UINT64_MAX;
    }
    return fy_clock_ns() + world->timeout_ms * MS;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec timeout = {(time_t)(ns / (1000 * MS)), (long)(ns % (1000 * MS))};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void fy_wake(fy_counter_t *counter) {
    if (atomic_load_explicit(&counter->sleepers, memory_order_seq_cst) != 0) {
        (void)syscall(SYS_futex, &counter->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

/* Makes the record the agreed one (unless another was first) and returns what is agreed. */
static ferry_status_t settle(const watch_t *watch, const ferry_error_t *mine, ferry_error_t *err) {
    if (watch->recovering) {
        return fy_world_break(watch->wait->world, mine, err);
    }
    return ferry_world_fail(watch->wait->world, mine, err);
}

/* "it", or "rank 3" when the one to blame is not the one waited for */
static const char *awaited(const watch_t *watch, uint32_t culprit, char *buf, size_t cap) {
    uint32_t peer = watch->wait->peer;
    if (peer == culprit) {
        return " for it";
    }
    if (peer == FERRY_RANK_NONE) {
        return "";
    }
    (void)snprintf(buf, cap, " for rank %u", peer);
    return buf;
}

/* Complains of a rank: "<text>; rank 0 waited for it in barrier". */
static ferry_status_t blame(const watch_t *watch, uint32_t culprit, ferry_status_t status,
                            const char *text, ferry_error_t *err) {
    if (fy_counter_reached(watch->counter, watch->value)) {
        return FERRY_OK;
    }
    const fy_wait_t *wait = watch->wait;
    char name[32];
    ferry_error_t mine;
    (void)fy_fail(&mine, status, "%s; rank %u waited%s in %s", text, wait->world->rank,
                  awaited(watch, culprit, name, sizeof name), wait->what);
    mine.rank = wait->world->rank;
    mine.peer = culprit;
    return settle(watch, &mine, err);
}

/* Whoever reaps the dead may say how it died in a moment: without that, one more slice is given. */
static bool wants_second_look(watch_t *watch, uint32_t rank, const fy_life_t *life) {
    bool wants = life->how[0] == '\0' && watch->suspect != rank;
    watch->suspect = rank;
    return wants;
}

static ferry_status_t blame_dead(const watch_t *watch, uint32_t culprit, const fy_life_t *life,
                                 ferry_error_t *err) {
    char text[128];
    (void)snprintf(text, sizeof text,
                   life->how[0] != '\0' ? "rank %u is dead (%s)" : "rank %u is dead", culprit,
                   life->how);
    return blame(watch, culprit, FERRY_DEAD, text, err);
}

static ferry_status_t blame_stopped(const watch_t *watch, ferry_error_t *err) {
    char text[64];
    (void)snprintf(text, sizeof text, "rank %u is stopped", watch->wait->peer);
    return blame(watch, watch->wait->peer, FERRY_TIMEOUT, text, err);
}

static ferry_status_t blame_left(const watch_t *watch, ferry_error_t *err) {
    char text[64];
    (void)snprintf(text, sizeof text, "rank %u has left the world", watch->wait->peer);
    return blame(watch, watch->wait->peer, FERRY_DEAD, text, err);
}

static ferry_status_t look_at_peer(watch_t *watch, uint64_t now, ferry_error_t *err) {
    uint32_t peer = watch->wait->peer;
    const ferry_world_t *world = watch->wait->world;
    fy_life_t life;
    world->kind->look(world, peer, &life);
    if (life.life != FERRY_RANK_STOPPED) {
        watch->stopped_ns = 0;
    }
    switch (life.life) {
    case FERRY_RANK_DEAD:
        return wants_second_look(watch, peer, &life) ? FERRY_OK
                                                     : blame_dead(watch, peer, &life, err);
    case FERRY_RANK_LEFT:
        return blame_left(watch, err);
    case FERRY_RANK_STOPPED:
        if (watch->stopped_ns == 0) {
            watch->stopped_ns = now;
        } else if (now - watch->stopped_ns >= STOPPED_MS * MS) {
            return blame_stopped(watch, err);
        }
        return FERRY_OK;
    case FERRY_RANK_ABSENT:
    case FERRY_RANK_ALIVE:
        return FERRY_OK;
    }
    return FERRY_OK;
}

/* Takes turns to look at everyone else: a death fails the world, whoever was waited for. */
static ferry_status_t look_around(watch_t *watch, ferry_error_t *err) {
    ferry_world_t *world = watch->wait->world;
    uint32_t turns = 1 + world->size / LOOKS_PER_TURN;
    for (uint32_t i = 0; i < turns; i++) {
        uint32_t rank = atomic_fetch_add(&world->next_look, 1) % world->size;
        fy_life_t life;
        if (rank == world->rank || rank == watch->wait->peer) {
            continue;
        }
        world->kind->look(world, rank, &life);
        if (life.life == FERRY_RANK_DEAD && !wants_second_look(watch, rank, &life)) {
            FY_TRY(blame_dead(watch, rank, &life, err));
        }
    }
    return FERRY_OK;
}

/* " (it waits for rank 5 in barrier)", or nothing */
static void say_what_it_does(const fy_wait_t *wait, char *doing, size_t cap) {
    uint32_t next = FERRY_RANK_NONE;
    char what[FY_WHAT_WORDS * 8 + 1];
    char rank[24] = "others";
    doing[0] = '\0';
    if (fy_what_waits(wait->world, wait->peer, &next, what, sizeof what)) {
        if (next != FERRY_RANK_NONE) {
            (void)snprintf(rank, sizeof rank, "rank %u", next);
        }
        (void)snprintf(doing, cap, " (it waits for %s in %s)", rank, what);
    }
}

static ferry_status_t late(watch_t *watch, ferry_error_t *err) {
    const fy_wait_t *wait = watch->wait;
    double seconds = (double)(fy_clock_ns() - watch->begin_ns) / 1e9;
    char text[192];
    if (wait->peer == FERRY_RANK_NONE) {
        (void)snprintf(text, sizeof text, "nobody came for %.3g s", seconds);
        return blame(watch, FERRY_RANK_NONE, FERRY_TIMEOUT, text, err);
    }
    fy_life_t life;
    wait->world->kind->look(wait->world, wait->peer, &life);
    if (life.life == FERRY_RANK_DEAD) {
        return blame_dead(watch, wait->peer, &life, err);
    }
    if (life.life == FERRY_RANK_LEFT) {
        return blame_left(watch, err);
    }
    if (life.life == FERRY_RANK_STOPPED) {
        return blame_stopped(watch, err);
    }
    if (life.life == FERRY_RANK_ABSENT) {
        (void)snprintf(text, sizeof text, "rank %u has not started for %.3g s", wait->peer,
                       seconds);
        return blame(watch, wait->peer, FERRY_TIMEOUT, text, err);
    }
    char doing[96];
    say_what_it_does(wait, doing, sizeof doing);
    (void)snprintf(text, sizeof text, "rank %u is alive but has not arrived for %.3g s%s",
                   wait->peer, seconds, doing);
    return blame(watch, wait->peer, FERRY_TIMEOUT, text, err);
}

static ferry_status_t failed(const watch_t *watch, ferry_error_t *err) {
    const ferry_world_t *world = watch->wait->world;
    return watch->recovering ? fy_world_broken(world, err) : fy_world_agreed(world, err);
}

/* One slice of sleep, and a look around when nobody woke us. */
static ferry_status_t sleep_slice(watch_t *watch, uint32_t seen, ferry_error_t *err) {
    uint64_t before = fy_clock_ns();
    if (before >= watch->deadline_ns) {
        return late(watch, err);
    }
    uint64_t slice = fy_min_u64(watch->deadline_ns - before, FY_SLICE_MS * MS);
    futex_wait(&watch->counter->value, seen, slice);
    uint64_t now = fy_clock_ns();
    if (now - before < slice) {
        return FERRY_OK; /* woken */
    }
    uint64_t over = now - before - slice;
    if (over > SUSPENDED_MS * MS && watch->deadline_ns != UINT64_MAX) {
        watch->deadline_ns += over;
        watch->stopped_ns = 0;
    }
    if (watch->wait->peer != FERRY_RANK_NONE) {
        FY_TRY(look_at_peer(watch, now, err));
    }
    return look_around(watch, err);
}

static ferry_status_t sleep_until(watch_t *watch, ferry_error_t *err) {
    for (;;) {
        uint32_t seen = atomic_load_explicit(&watch->counter->value, memory_order_seq_cst);
        if (fy_at_least(seen, watch->value)) {
            return FERRY_OK;
        }
        FY_TRY(failed(watch, err));
        FY_TRY(sleep_slice(watch, seen, err));
    }
}

static ferry_status_t wait_slowly(watch_t *watch, ferry_error_t *err) {
    const fy_wait_t *wait = watch->wait;
    FY_TRY(fy_world_usable(wait->world, err));
    watch->suspect = FERRY_RANK_NONE;
    watch->begin_ns = fy_clock_ns();
    watch->deadline_ns = wait->deadline_ns != 0 ? wait->deadline_ns : fy_deadline_ns(wait->world);
    fy_say_waits(wait->world, wait->peer, wait->what);
    fy_say_sleeps(wait->world, watch->counter);
    (void)atomic_fetch_add_explicit(&watch->counter->sleepers, 1, memory_order_seq_cst);
    ferry_status_t status = sleep_until(watch, err);
    (void)atomic_fetch_sub_explicit(&watch->counter->sleepers, 1, memory_order_seq_cst);
    fy_say_goes_on(wait->world);
    return status;
}

/* Spins for as long as it lately paid: ranks that have to share a core (with each other, or with other
 * programs) gain nothing by it. Every SPIN_AGAIN-th failure the full time is tried anew. */
static bool spin(ferry_world_t *world, const fy_counter_t *counter, uint32_t value) {
    if (fy_counter_reached(counter, value)) {
        return true;
    }
    if (world->spins == 0) {
        return false;
    }
    uint32_t limit = atomic_load_explicit(&world->spin_now, memory_order_relaxed);
    for (uint32_t i = 0; i < limit; i++) {
        relax();
        if (fy_counter_reached(counter, value)) {
            uint32_t more = (uint32_t)fy_min_u64(world->spins, limit * UINT64_C(2));
            atomic_store_explicit(&world->spin_now, more, memory_order_relaxed);
            return true;
        }
    }
    uint32_t failures = atomic_fetch_add_explicit(&world->spin_failures, 1, memory_order_relaxed);
    uint32_t less = failures % SPIN_AGAIN == 0 ? world->spins : limit / 2;
    atomic_store_explicit(&world->spin_now, less < SPIN_LEAST ? SPIN_LEAST : less,
                          memory_order_relaxed);
    return false;
}

ferry_status_t fy_wait_until_at_least(fy_counter_t *counter, uint32_t value, const fy_wait_t *wait,
                                      ferry_error_t *err) {
    if (spin(wait->world, counter, value)) {
        return FERRY_OK;
    }
    watch_t watch = {.wait = wait, .counter = counter, .value = value};
    return wait_slowly(&watch, err);
}

ferry_status_t fy_wait_recovering(fy_counter_t *counter, uint32_t value, const fy_wait_t *wait,
                                  ferry_error_t *err) {
    watch_t watch = {.wait = wait, .counter = counter, .value = value, .recovering = true};
    return wait_slowly(&watch, err);
}
