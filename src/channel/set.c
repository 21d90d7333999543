/* set.c - the set as a whole: what breaks it, ranges in buffers, closing.
 *
 * Invariant: once broken, a set stays broken; its record is written once, before `broken` is set. */
#include "channel/set.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "channel/transport.h"
#include "world/world.h"

void fy_set_break(ferry_channels_t *set, const ferry_error_t *why, bool told) {
    if (told) {
        atomic_store_explicit(&set->told, true, memory_order_relaxed);
    }
    (void)pthread_mutex_lock(&set->lock);
    if (!atomic_load_explicit(&set->broken, memory_order_relaxed)) {
        set->failure = *why;
        atomic_store_explicit(&set->broken, true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&set->lock);
}

static ferry_status_t say_broken(ferry_channels_t *set, ferry_error_t *err) {
    ferry_error_t record = set->failure;
    if (atomic_exchange_explicit(&set->told, true, memory_order_relaxed)) {
        fy_error_prefix(&record, "the channels are broken");
    }
    if (err != NULL) {
        *err = record;
    }
    return record.status;
}

ferry_status_t fy_set_check(ferry_channels_t *set, ferry_error_t *err) {
    if (atomic_load_explicit(&set->broken, memory_order_acquire)) {
        return say_broken(set, err);
    }
    if (fy_world_generation(set->world) != set->generation) {
        ferry_error_t old;
        (void)fy_fail(&old, FERRY_IO, "the world has failed and recovered since they were opened");
        old.rank = ferry_world_rank(set->world);
        fy_set_break(set, &old, true);
        return say_broken(set, err);
    }
    ferry_error_t agreed;
    ferry_status_t status = ferry_world_check(set->world, &agreed);
    if (status != FERRY_OK) {
        if (fy_world_usable(set->world, NULL) == FERRY_OK) {
            fy_set_break(set, &agreed, true);
        }
        if (err != NULL) {
            *err = agreed;
        }
    }
    return status;
}

ferry_status_t fy_set_fail(ferry_channels_t *set, const ferry_error_t *mine, ferry_error_t *err) {
    ferry_error_t agreed = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_fail(set->world, mine, &agreed);
    fy_set_break(set, &agreed, err != NULL);
    if (err != NULL) {
        *err = agreed;
    }
    return status;
}

ferry_status_t fy_end_fail(const fy_end_t *end, const char *what, ferry_error_t *mine,
                           ferry_error_t *err) {
    char prefix[96];
    (void)snprintf(prefix, sizeof prefix, "%s on %s channel %" PRIu32, what, end->kind, end->id);
    fy_error_prefix(mine, prefix);
    fy_error_ranks(mine, ferry_world_rank(end->set->world), fy_set_rank(end->set, end->peer));
    if (mine->status == FERRY_UNSUPPORTED || mine->status == FERRY_INVALID ||
        mine->status == FERRY_MISMATCH) {
        if (err != NULL) {
            *err = *mine;
        }
        return mine->status;
    }
    return fy_set_fail(end->set, mine, err);
}

static ferry_status_t fail_range(const ferry_channels_t *set, uint32_t member, uint32_t buffer,
                                 uint64_t offset, uint64_t bytes, uint64_t have,
                                 ferry_error_t *err) {
    ferry_status_t status = fy_fail(err, FERRY_INVALID,
                                    "%" PRIu64 " bytes at %" PRIu64 " are outside the %" PRIu64
                                    " bytes of buffer %" PRIu32 " of rank %" PRIu32,
                                    bytes, offset, have, buffer, fy_set_rank(set, member));
    fy_error_ranks(err, ferry_world_rank(set->world), fy_set_rank(set, member));
    return status;
}

ferry_status_t fy_set_range(const ferry_channels_t *set, uint32_t member, uint32_t buffer,
                            uint64_t offset, uint64_t bytes, uint32_t caps,
                            const ferry_remote_t **remote_p, ferry_error_t *err) {
    const fy_member_t *owner = &set->members[member];
    if (buffer >= owner->nbuffers) {
        return fail_range(set, member, buffer, offset, bytes, 0, err);
    }
    const ferry_remote_t *remote = &owner->buffers[buffer];
    uint64_t have = remote->key.memory.bytes;
    if (offset > have || bytes > have - offset) {
        return fail_range(set, member, buffer, offset, bytes, have, err);
    }
    if (bytes != 0 && (remote->caps & caps) != caps) {
        ferry_status_t status = fy_fail(
            err, FERRY_UNSUPPORTED,
            "buffer %" PRIu32 " of rank %" PRIu32
            " is its own memory and cannot be %s from here; ferry_mem_alloc gives memory that can",
            buffer, owner->rank, caps == FERRY_TRANSPORT_READ ? "read" : "mapped");
        fy_error_ranks(err, ferry_world_rank(set->world), owner->rank);
        return status;
    }
    *remote_p = remote;
    return FERRY_OK;
}

ferry_status_t ferry_channels_check(ferry_channels_t *channels, ferry_error_t *err) {
    FY_NEED(channels, err);
    return fy_set_check(channels, err);
}

uint32_t ferry_channels_nbuffers(const ferry_channels_t *channels, uint32_t member) {
    return member < channels->nmembers ? channels->members[member].nbuffers : 0;
}

uint64_t ferry_channels_buffer_bytes(const ferry_channels_t *channels, uint32_t member,
                                     uint32_t buffer) {
    if (buffer >= ferry_channels_nbuffers(channels, member)) {
        return 0;
    }
    return channels->members[member].buffers[buffer].key.memory.bytes;
}

ferry_status_t ferry_channels_map(ferry_channels_t *channels, uint32_t member, uint32_t buffer,
                                  uint64_t offset, uint64_t bytes, void **memory_p,
                                  ferry_error_t *err) {
    FY_NEED(channels, err);
    FY_NEED(memory_p, err);
    FY_TRY(fy_set_check(channels, err));
    if (member >= channels->nmembers) {
        return fy_fail(err, FERRY_INVALID, "there is no member %" PRIu32 " in a group of %" PRIu32,
                       member, channels->nmembers);
    }
    const ferry_remote_t *remote = NULL;
    FY_TRY(
        fy_set_range(channels, member, buffer, offset, bytes, FERRY_TRANSPORT_MAP, &remote, err));
    *memory_p = remote->address == NULL ? NULL : (uint8_t *)remote->address + offset;
    return FERRY_OK;
}

ferry_memory_channel_t *ferry_channels_memory(ferry_channels_t *channels, uint32_t id) {
    return channels != NULL && id < channels->nmemory ? &channels->memory[id] : NULL;
}

ferry_port_channel_t *ferry_channels_port(ferry_channels_t *channels, uint32_t id) {
    return channels != NULL && id < channels->nport ? &channels->ports[id] : NULL;
}

ferry_switch_channel_t *ferry_channels_switch(ferry_channels_t *channels, uint32_t id) {
    return channels != NULL && id < channels->nswitch ? &channels->switches[id] : NULL;
}

static void detach_all(ferry_channels_t *set) {
    const ferry_transport_t *transport = set->transport;
    if (transport->ops->detach == NULL || set->members == NULL) {
        return;
    }
    for (uint32_t m = 0; m < set->nmembers; m++) {
        fy_member_t *member = &set->members[m];
        for (uint32_t b = 0; b < member->nbuffers; b++) {
            if (member->buffers[b].caps != 0) {
                transport->ops->detach(transport->state, &member->buffers[b]);
            }
        }
        if (member->counters.caps != 0) {
            transport->ops->detach(transport->state, &member->counters);
        }
    }
}

void fy_set_free(ferry_channels_t *set, bool peers_are_done) {
    const ferry_transport_t *transport = set->transport;
    if (transport != NULL) {
        detach_all(set);
        for (uint32_t i = 0; i < set->nkeys; i++) {
            if (set->keys[i].memory.bytes != 0) {
                transport->ops->withdraw(transport->state, &set->keys[i]);
            }
        }
        if (set->has_counters_key) {
            transport->ops->withdraw(transport->state, &set->counters_key);
        }
    }
    if (peers_are_done) {
        /* After a failure a peer may be just about to add to a counter: they stay with the world. */
        (void)ferry_mem_free(set->world, set->counters, NULL);
    }
    if (set->owns_transport) {
        ferry_transport_close(set->transport);
    }
    fy_queue_fini(&set->queue);
    (void)pthread_mutex_destroy(&set->lock);
    fy_arena_fini(&set->arena);
    fy_free(set);
}

ferry_status_t ferry_channels_close(ferry_channels_t *channels, ferry_error_t *err) {
    if (channels == NULL) {
        return FERRY_OK;
    }
    FY_TRY(fy_world_usable(channels->world, err)); /* a fork has no thread to join */
    ferry_status_t status = fy_set_check(channels, err);
    if (status == FERRY_OK) {
        status = fy_proxy_drain(channels, err);
    }
    if (status == FERRY_OK) {
        status = ferry_group_barrier(channels->group, err);
    }
    fy_proxy_stop(channels);
    fy_set_free(channels, status == FERRY_OK);
    return status;
}
