/* world.c - a rank's handle: made, asked, ended.
 *
 * Invariant: a slot is opened (PRESENT) after its plain fields are written and closed (LEFT) after the
 * rank's last word; both by the rank itself. */
#include "world/world.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"

#define SPINS                                                                                      \
    2000 /* some 20-50 us: longer than a peer on another core takes, shorter than a sleep */

const fy_kind_t fy_kind_threads = {"threads", true, fy_look_thread};
const fy_kind_t fy_kind_processes = {"processes", false, fy_look_process};
const fy_kind_t fy_kind_socket = {"socket", false, fy_look_process};

ferry_status_t fy_world_params(const ferry_world_params_t *params, uint32_t size,
                               ferry_world_params_t *params_p, ferry_error_t *err) {
    ferry_world_params_t filled = FERRY_WORLD_PARAMS_INIT;
    if (params != NULL) {
        if (params->size != sizeof filled) {
            return fy_fail(err, FERRY_INVALID, "ferry_world_params_t: size is %zu, not %zu",
                           params->size, sizeof filled);
        }
        filled = *params;
    }
    if (size == 0 || size > FERRY_WORLD_MAX_RANKS) {
        return fy_fail(err, FERRY_INVALID, "a world has 1 to %d ranks, not %" PRIu32,
                       FERRY_WORLD_MAX_RANKS, size);
    }
    if (filled.timeout_ms == 0) {
        filled.timeout_ms = FERRY_WORLD_TIMEOUT_MS;
    }
    if (filled.grace_ms == 0) {
        filled.grace_ms = FERRY_WORLD_GRACE_MS;
    }
    *params_p = filled;
    return FERRY_OK;
}

static ferry_status_t fill_world(ferry_world_t *world, ferry_error_t *err) {
    world->readable = fy_alloc_zero(world->size, sizeof *world->readable);
    if (world->readable == NULL) {
        return fy_fail_nomem(err, "a world");
    }
    FY_TRY(fy_exchange_init(world, err));
    if (world->rank == world->size) {
        return FERRY_OK;
    }
    uint32_t *ranks = fy_alloc(world->size, sizeof *ranks);
    if (ranks == NULL) {
        return fy_fail_nomem(err, "a world");
    }
    for (uint32_t rank = 0; rank < world->size; rank++) {
        ranks[rank] = rank;
    }
    ferry_status_t status = ferry_group_create(world, ranks, world->size, &world->all, err);
    fy_free(ranks);
    return status;
}

ferry_status_t fy_world_create(fy_space_t *space, const fy_kind_t *kind, uint32_t rank,
                               uint32_t timeout_ms, ferry_world_t **world_p, ferry_error_t *err) {
    ferry_world_t *world = fy_alloc_zero(1, sizeof *world);
    if (world == NULL) {
        return fy_fail_nomem(err, "a world");
    }
    if (pthread_mutex_init(&world->lock, NULL) != 0) {
        fy_free(world);
        return fy_fail_nomem(err, "a lock");
    }
    world->space = space;
    space->refs++;
    world->kind = kind;
    world->rank = rank;
    world->size = space->control->size;
    world->timeout_ms = timeout_ms;
    world->probe = FY_CONTROL_MAGIC;
    ferry_status_t status = fill_world(world, err);
    if (status != FERRY_OK) {
        fy_world_destroy(world);
        return status;
    }
    *world_p = world;
    return FERRY_OK;
}

void fy_world_destroy(ferry_world_t *world) {
    if (world == NULL) {
        return;
    }
    ferry_group_destroy(world->all);
    fy_exchange_fini(world);
    fy_free(world->readable);
    fy_free(world->pieces);
    (void)pthread_mutex_destroy(&world->lock);
    fy_space_release(world->space);
    fy_free(world);
}

static void cores_of_this_thread(uint64_t cores[FY_CORE_WORDS]) {
    cpu_set_t set;
    CPU_ZERO(&set);
    memset(cores, 0, FY_CORE_WORDS * sizeof *cores);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        long count = sysconf(_SC_NPROCESSORS_ONLN);
        for (long core = 0; core < count && core < CPU_SETSIZE; core++) {
            CPU_SET((size_t)core, &set);
        }
    }
    for (size_t core = 0; core < (size_t)FY_CORE_WORDS * 64; core++) {
        if (CPU_ISSET(core, &set)) {
            cores[core / 64] |= UINT64_C(1) << core % 64;
        }
    }
}

uint32_t ferry_world_cores(const ferry_world_t *world) {
    uint32_t count = 0;
    for (size_t word = 0; word < FY_CORE_WORDS; word++) {
        uint64_t together = 0;
        for (uint32_t rank = 0; rank < world->size; rank++) {
            together |= fy_world_slot(world, rank)->cores[word];
        }
        count += (uint32_t)__builtin_popcountll(together);
    }
    return count;
}

void fy_world_count_cores(ferry_world_t *world) {
    world->spins = world->size <= ferry_world_cores(world) ? SPINS : 0;
    atomic_store(&world->spin_now, world->spins);
}

void fy_world_describe(fy_slot_t *slot, uint32_t host) {
    slot->host = host;
    cores_of_this_thread(slot->cores);
}

void fy_world_enter(ferry_world_t *world) {
    fy_slot_t *slot = fy_world_slot(world, world->rank);
    slot->start_time = fy_process_start_time((int32_t)getpid());
    slot->probe = (uint64_t)(uintptr_t)&world->probe;
    atomic_store(&slot->pid, (int32_t)getpid());
    atomic_store_explicit(&slot->state, FY_SLOT_PRESENT, memory_order_release);
}

void fy_world_close(ferry_world_t *world) {
    fy_slot_t *slot = fy_world_slot(world, world->rank);
    atomic_store_explicit(&slot->state, FY_SLOT_LEFT, memory_order_release);
}

ferry_status_t fy_world_live(ferry_world_t *world, ferry_rank_fn_t fn, void *context,
                             ferry_error_t *err) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status = fn(world, context, &mine);
    fy_slot_t *slot = fy_world_slot(world, world->rank);
    if (status != FERRY_OK) {
        mine.status = status;
        fy_error_ranks(&mine, world->rank, FERRY_RANK_NONE);
        (void)ferry_world_fail(world, &mine, NULL);
    } else {
        ferry_error_clear(&mine);
    }
    slot->result = mine;
    fy_world_close(world);
    if (err != NULL) {
        *err = mine;
    }
    return status;
}

ferry_status_t fy_world_usable(const ferry_world_t *world, ferry_error_t *err) {
    if (*world->space->mine == 0) {
        return fy_fail(err, FERRY_INVALID,
                       "process %d was forked by rank %" PRIu32
                       " after the world had started; it has "
                       "no part in the world",
                       (int)getpid(), world->rank);
    }
    return FERRY_OK;
}

uint32_t ferry_world_rank(const ferry_world_t *world) {
    return world->rank;
}

uint32_t ferry_world_size(const ferry_world_t *world) {
    return world->size;
}

const char *ferry_world_kind(const ferry_world_t *world) {
    return world->kind->name;
}

uint32_t ferry_world_timeout_ms(const ferry_world_t *world) {
    return world->timeout_ms;
}

uint32_t ferry_world_host(const ferry_world_t *world, uint32_t rank) {
    return rank < world->size ? fy_world_slot(world, rank)->host : 0;
}

bool ferry_world_same_process(const ferry_world_t *world, uint32_t peer) {
    return world->kind->one_process || peer == world->rank;
}

ferry_group_t *ferry_world_group(ferry_world_t *world) {
    return world->all;
}

uint32_t fy_world_spins(const ferry_world_t *world) {
    return world->spins;
}
