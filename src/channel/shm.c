/* shm.c - the transport over the world's shared file.
 *
 * All ranks map the file, so a put is a copy and a signal an addition, both finished when they return;
 * flush has nothing to wait for and progress nothing to drive. Own memory of another process can only
 * be read, by process_vm_readv, where the system allows it.
 *
 * The state is the world itself. */
#include "channel/transport.h"

#include <string.h>

#include "base/fail.h"
#include "world/wait.h"
#include "world/world.h"

#define READ_PIECES 128 /* of one system call; bounds the stack that a read takes */

static ferry_status_t shm_open_world(ferry_world_t *world, const void *config, void **state_p,
                                     ferry_error_t *err) {
    (void)config;
    FY_TRY(fy_world_usable(world, err));
    *state_p = world;
    return FERRY_OK;
}

static void shm_close(void *state) {
    (void)state;
}

static uint32_t shm_caps(const void *state, uint32_t peer) {
    const ferry_world_t *world = state;
    if (peer >= ferry_world_size(world)) {
        return 0;
    }
    return FERRY_TRANSPORT_MAP | FERRY_TRANSPORT_READ | FERRY_TRANSPORT_PUT;
}

static ferry_status_t shm_enroll(void *state, void *memory, size_t bytes,
                                 ferry_transport_key_t *key_p, ferry_error_t *err) {
    ferry_transport_key_t key = {0};
    FY_TRY(ferry_mem_register(state, memory, bytes, &key.memory, err));
    *key_p = key;
    return FERRY_OK;
}

static void shm_withdraw(void *state, const ferry_transport_key_t *key) {
    ferry_mem_unregister(state, &key->memory);
}

static ferry_status_t shm_attach(void *state, const ferry_transport_key_t *key,
                                 ferry_remote_t *remote_p, ferry_error_t *err) {
    ferry_world_t *world = state;
    ferry_remote_t remote = {.key = *key, .peer = key->memory.rank};
    FY_TRY(fy_mem_check_key(world, &key->memory, err));
    if (ferry_mem_is_mappable(world, &key->memory)) {
        FY_TRY(ferry_mem_map(world, &key->memory, &remote.address, err));
        remote.caps = FERRY_TRANSPORT_MAP | FERRY_TRANSPORT_READ | FERRY_TRANSPORT_PUT;
    } else if (ferry_world_can_read(world, remote.peer)) {
        remote.caps = FERRY_TRANSPORT_READ;
    }
    *remote_p = remote;
    return FERRY_OK;
}

static ferry_status_t shm_put(void *state, const ferry_remote_t *target, uint64_t offset,
                              const void *source, size_t bytes, ferry_error_t *err) {
    (void)state;
    if (target->address == NULL) {
        return fy_fail(err, FERRY_UNSUPPORTED, "rank %u has memory that cannot be mapped",
                       target->peer);
    }
    memcpy((uint8_t *)target->address + offset, source, bytes);
    return FERRY_OK;
}

static ferry_status_t read_across(ferry_world_t *world, const ferry_remote_t *source,
                                  const ferry_read_piece_t *pieces, size_t npieces,
                                  ferry_error_t *err) {
    struct iovec local[READ_PIECES];
    struct iovec remote[READ_PIECES];
    while (npieces > 0) {
        size_t count = npieces < READ_PIECES ? npieces : READ_PIECES;
        for (size_t i = 0; i < count; i++) {
            uint64_t at = source->key.memory.at + pieces[i].offset;
            local[i] = (struct iovec){pieces[i].local, pieces[i].bytes};
            /* An address in another process. NOLINTNEXTLINE(performance-no-int-to-ptr) */
            remote[i] = (struct iovec){(void *)(uintptr_t)at, pieces[i].bytes};
        }
        FY_TRY(fy_mem_readv(world, source->peer, local, count, remote, count, err));
        pieces += count;
        npieces -= count;
    }
    return FERRY_OK;
}

static ferry_status_t shm_read(void *state, const ferry_remote_t *source,
                               const ferry_read_piece_t *pieces, size_t npieces,
                               ferry_error_t *err) {
    if (source->address == NULL) {
        return read_across(state, source, pieces, npieces, err);
    }
    for (size_t i = 0; i < npieces; i++) {
        if (pieces[i].bytes > 0) {
            memcpy(pieces[i].local, (const uint8_t *)source->address + pieces[i].offset,
                   pieces[i].bytes);
        }
    }
    return FERRY_OK;
}

static ferry_status_t shm_signal(void *state, const ferry_remote_t *target, uint64_t offset,
                                 ferry_error_t *err) {
    (void)state;
    if (target->address == NULL) {
        return fy_fail(err, FERRY_UNSUPPORTED, "rank %u has memory that cannot be mapped",
                       target->peer);
    }
    fy_fence_streams();
    fy_counter_add((fy_counter_t *)(void *)((uint8_t *)target->address + offset), 1);
    return FERRY_OK;
}

static ferry_status_t shm_flush(void *state, uint32_t peer, bool *done_p, ferry_error_t *err) {
    (void)state;
    (void)peer;
    (void)err;
    *done_p = true;
    return FERRY_OK;
}

const ferry_transport_ops_t fy_transport_shm = {
    .size = sizeof(ferry_transport_ops_t),
    .name = "shm",
    .open = shm_open_world,
    .close = shm_close,
    .caps = shm_caps,
    .enroll = shm_enroll,
    .withdraw = shm_withdraw,
    .attach = shm_attach,
    .put = shm_put,
    .read = shm_read,
    .signal = shm_signal,
    .flush = shm_flush,
};
