/* slots.c - the memory of a pipeline: two receive slots per rank, and the flags that go with them.
 *
 * One piece of shared memory per rank: flags | receive slot 0 | receive slot 1 | send slots, where asked
 * for. Everybody maps everybody's. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "pipeline/pipeline.h"
#include "world/world.h"

enum { FLAG_BYTES = 256 };

_Static_assert(sizeof(fy_slot_flags_t) <= FLAG_BYTES, "flags have room before the slots");

ferry_status_t fy_slots_size(const ferry_slots_params_t *params, uint64_t *bytes_p,
                             ferry_error_t *err) {
    uint64_t bytes = params->slot_bytes != 0 ? params->slot_bytes : FERRY_PIPELINE_SLOT_BYTES;
    uint64_t count = params->send_slots ? 4 : 2;
    if (params->budget_bytes != 0) {
        bytes = fy_min_u64(bytes, params->budget_bytes / count);
    }
    bytes -= bytes % FERRY_PIPELINE_ALIGN;
    uint64_t all = 0;
    if (bytes == 0 || !fy_mul_u64(bytes, count, &all) || all > INT64_MAX) {
        return fy_fail(err, FERRY_INVALID,
                       "slots of %" PRIu64 " bytes within a budget of %" PRIu64
                       ": each has at least %d bytes, and a rank has %" PRIu64 " of them",
                       params->slot_bytes, params->budget_bytes, FERRY_PIPELINE_ALIGN, count);
    }
    *bytes_p = bytes;
    return FERRY_OK;
}

static ferry_status_t fill(ferry_slots_t *slots, bool send_slots, ferry_error_t *err) {
    uint32_t size = ferry_group_size(slots->group);
    slots->staging_bytes = slots->slot_bytes * (send_slots ? 4 : 2);
    slots->peers = fy_alloc_zero(size, sizeof *slots->peers);
    slots->base = fy_alloc_zero(size, sizeof *slots->base);
    if (slots->peers == NULL || slots->base == NULL) {
        return fy_fail_nomem(err, "the slots of a pipeline");
    }
    FY_TRY(ferry_mem_alloc(slots->world, FLAG_BYTES + slots->staging_bytes, &slots->memory, err));
    uint8_t *bytes = slots->memory;
    if (send_slots) {
        slots->send[0] = bytes + FLAG_BYTES + 2 * slots->slot_bytes;
        slots->send[1] = slots->send[0] + slots->slot_bytes;
    }
    return FERRY_OK;
}

ferry_status_t fy_slots_open(ferry_group_t *group, uint64_t slot_bytes, bool send_slots,
                             ferry_slots_t **slots_p, ferry_mem_key_t *key_p, ferry_error_t *err) {
    ferry_slots_t *slots = fy_alloc_zero(1, sizeof *slots);
    if (slots == NULL) {
        return fy_fail_nomem(err, "the slots of a pipeline");
    }
    slots->group = group;
    slots->world = ferry_group_world(group);
    slots->slot_bytes = slot_bytes;
    slots->generation = fy_world_generation(slots->world);
    ferry_status_t status = fill(slots, send_slots, err);
    if (status == FERRY_OK) {
        status = ferry_mem_register(slots->world, slots->memory, FLAG_BYTES + 2 * slot_bytes, key_p,
                                    err);
    }
    if (status != FERRY_OK) {
        ferry_slots_destroy(slots);
        return status;
    }
    *slots_p = slots;
    return FERRY_OK;
}

ferry_status_t fy_slots_connect(ferry_slots_t *slots, uint32_t member, const ferry_mem_key_t *key,
                                ferry_error_t *err) {
    void *memory = NULL;
    if (key->bytes != FLAG_BYTES + 2 * slots->slot_bytes) {
        return fy_fail(err, FERRY_MISMATCH, "slots of member %" PRIu32 " have another size",
                       member);
    }
    FY_TRY(ferry_mem_map(slots->world, key, &memory, err));
    fy_slot_peer_t *peer = &slots->peers[member];
    peer->flags = memory;
    peer->slots[0] = (uint8_t *)memory + FLAG_BYTES;
    peer->slots[1] = peer->slots[0] + slots->slot_bytes;
    return FERRY_OK;
}

/* What ranks tell each other when slots are made. */
typedef struct hello {
    ferry_error_t error;
    uint64_t slot_bytes;
    ferry_mem_key_t key;
} hello_t;

/* The first failure by member, or the smallest slot. */
static ferry_status_t judge(const hello_t *all, uint32_t size, uint64_t *bytes_p,
                            ferry_error_t *err) {
    uint64_t bytes = UINT64_MAX;
    for (uint32_t member = 0; member < size; member++) {
        if (all[member].error.status != FERRY_OK) {
            if (err != NULL) {
                *err = all[member].error;
            }
            return all[member].error.status;
        }
        bytes = fy_min_u64(bytes, all[member].slot_bytes);
    }
    *bytes_p = bytes;
    return FERRY_OK;
}

/* Sizes first, then the memory: two exchanges, each of which tells a failure to all. */
static ferry_status_t create(ferry_group_t *group, const ferry_slots_params_t *params, hello_t *all,
                             ferry_slots_t **slots_p, ferry_error_t *err) {
    uint32_t size = ferry_group_size(group);
    uint32_t rank = ferry_world_rank(ferry_group_world(group));
    hello_t mine = {.error = FERRY_ERROR_INIT};
    if (fy_slots_size(params, &mine.slot_bytes, &mine.error) != FERRY_OK) {
        mine.error.rank = rank;
    }
    FY_TRY(ferry_group_allgather(group, &mine, sizeof mine, all, err));
    FY_TRY(judge(all, size, &mine.slot_bytes, err));
    ferry_slots_t *slots = NULL;
    if (fy_slots_open(group, mine.slot_bytes, params->send_slots, &slots, &mine.key, &mine.error) !=
        FERRY_OK) {
        fy_error_ranks(&mine.error, rank, FERRY_RANK_NONE);
    }
    ferry_status_t status = ferry_group_allgather(group, &mine, sizeof mine, all, err);
    if (status == FERRY_OK) {
        status = judge(all, size, &mine.slot_bytes, err);
    }
    for (uint32_t member = 0; member < size && status == FERRY_OK && slots != NULL; member++) {
        status = fy_slots_connect(slots, member, &all[member].key, err);
    }
    if (status != FERRY_OK) {
        ferry_slots_destroy(slots);
        return status;
    }
    *slots_p = slots;
    return FERRY_OK;
}

ferry_status_t ferry_slots_create(ferry_group_t *group, const ferry_slots_params_t *params,
                                  ferry_slots_t **slots_p, ferry_error_t *err) {
    FY_NEED(group, err);
    FY_NEED(slots_p, err);
    ferry_slots_params_t defaults = FERRY_SLOTS_PARAMS_INIT;
    params = params != NULL ? params : &defaults;
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID, "ferry_slots_params_t of %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    hello_t *all = fy_alloc_zero(ferry_group_size(group), sizeof *all);
    if (all == NULL) {
        ferry_error_t mine = FERRY_ERROR_INIT;
        (void)fy_fail_nomem(&mine, "the slots of a pipeline");
        return ferry_world_fail(ferry_group_world(group), &mine, err);
    }
    ferry_status_t status = create(group, params, all, slots_p, err);
    fy_free(all);
    return status;
}

void ferry_slots_destroy(ferry_slots_t *slots) {
    if (slots != NULL) {
        (void)ferry_mem_free(slots->world, slots->memory, NULL);
        fy_free(slots->peers);
        fy_free(slots->base);
        fy_free(slots);
    }
}

uint64_t ferry_slots_bytes(const ferry_slots_t *slots) {
    return slots == NULL ? 0 : slots->slot_bytes;
}

uint64_t ferry_slots_staging(const ferry_slots_t *slots) {
    return slots == NULL ? 0 : slots->staging_bytes;
}

bool fy_slots_stale(const ferry_slots_t *slots) {
    return slots->generation != fy_world_generation(slots->world);
}

void fy_slots_clear(ferry_slots_t *slots) {
    fy_slot_flags_t *flags = slots->memory;
    atomic_store(&flags->unpacked.value, 0);
    atomic_store(&flags->arrived[0].value, 0);
    atomic_store(&flags->arrived[1].value, 0);
    memset(slots->base, 0, ferry_group_size(slots->group) * sizeof *slots->base);
    slots->generation = fy_world_generation(slots->world);
}

ferry_status_t ferry_slots_reset(ferry_slots_t *slots, ferry_error_t *err) {
    FY_NEED(slots, err);
    FY_TRY(ferry_world_check(slots->world, err));
    fy_slots_clear(slots);
    return ferry_group_barrier(slots->group, err);
}
