/* failure.c - one error for all ranks, and the way back.
 *
 * A rank writes its record into its own slot and then tries to swap its number into failed_by; whoever
 * swaps first has named the one record that everybody reads. A rank that is killed before the swap has
 * said nothing; one that is killed after it has said everything. broken_by works alike and is final.
 *
 * Recovery is two meetings of all ranks. After the first nobody is in any other call, so each rank
 * clears its own part of the exchanges and lets go of what it freed meanwhile, and rank 0 clears the
 * error; after the second all may go on. */
#include <string.h>

#include "base/fail.h"
#include "world/world.h"

static ferry_status_t read_record(const ferry_error_t *record, ferry_error_t *err) {
    if (err != NULL) {
        *err = *record;
    }
    return record->status;
}

ferry_status_t fy_world_broken(const ferry_world_t *world, ferry_error_t *err) {
    uint32_t by = atomic_load_explicit(&world->space->control->broken_by, memory_order_acquire);
    return by == 0 ? FERRY_OK : read_record(&world->space->slots[by - 1].breakage, err);
}

ferry_status_t fy_world_agreed(const ferry_world_t *world, ferry_error_t *err) {
    uint32_t by = atomic_load_explicit(&world->space->control->failed_by, memory_order_acquire);
    if (by == 0) {
        return fy_world_broken(world, err);
    }
    return read_record(&world->space->slots[by - 1].failure, err);
}

/* The first swap wins. The lock keeps two threads of this rank from writing one record. */
static void publish(ferry_world_t *world, _Atomic uint32_t *winner, ferry_error_t *record,
                    const ferry_error_t *mine) {
    (void)pthread_mutex_lock(&world->lock);
    uint32_t none = 0;
    if (atomic_load_explicit(winner, memory_order_acquire) == 0) {
        *record = *mine;
        if (record->rank == FERRY_RANK_NONE && world->rank < world->size) {
            record->rank = world->rank;
        }
        (void)atomic_compare_exchange_strong(winner, &none, world->rank + 1);
    }
    (void)pthread_mutex_unlock(&world->lock);
    fy_wake_all(world);
}

ferry_status_t ferry_world_fail(ferry_world_t *world, const ferry_error_t *mine,
                                ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(mine, err);
    if (mine->status == FERRY_OK) {
        return fy_fail(err, FERRY_INVALID, "ferry_world_fail: the record tells of no failure");
    }
    FY_TRY(fy_world_usable(world, err));
    fy_control_t *control = world->space->control;
    publish(world, &control->failed_by, &fy_world_slot(world, world->rank)->failure, mine);
    return fy_world_agreed(world, err);
}

ferry_status_t fy_world_break(ferry_world_t *world, const ferry_error_t *mine, ferry_error_t *err) {
    ferry_error_t record = *mine;
    fy_error_prefix(&record, "the world is broken");
    fy_control_t *control = world->space->control;
    publish(world, &control->broken_by, &fy_world_slot(world, world->rank)->breakage, &record);
    return fy_world_broken(world, err);
}

ferry_status_t ferry_world_check(ferry_world_t *world, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_TRY(fy_world_usable(world, err));
    return fy_world_agreed(world, err);
}

/* Tells the others that this rank is at its next phase and waits until they are. */
static ferry_status_t meet(ferry_world_t *world, uint64_t deadline_ns, ferry_error_t *err) {
    world->phases++;
    fy_counter_set(&fy_world_slot(world, world->rank)->recover, world->phases);
    for (uint32_t rank = 0; rank < world->size; rank++) {
        fy_wait_t wait = {world, rank, "recovery", deadline_ns};
        if (rank != world->rank) {
            FY_TRY(fy_wait_recovering(&fy_world_slot(world, rank)->recover, world->phases, &wait,
                                      err));
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_world_recover(ferry_world_t *world, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_TRY(fy_world_usable(world, err));
    FY_TRY(fy_world_broken(world, err));
    uint64_t deadline_ns = fy_deadline_ns(world);
    FY_TRY(meet(world, deadline_ns, err));
    fy_exchange_reset(world);
    fy_mem_drop_freed(world);
    if (world->rank == 0) {
        atomic_store_explicit(&world->space->control->failed_by, 0, memory_order_release);
    }
    return meet(world, deadline_ns, err);
}

uint32_t fy_world_generation(const ferry_world_t *world) {
    return world->phases / 2;
}
