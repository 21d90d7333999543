/* mem.c - memory of ranks: a rank's arena, keys, and reading across processes.
 *
 * An arena is address space; pages come and go with its pieces. The list of pieces is the owner's own
 * business and private to it: peers know offsets only. New pieces go behind the last one while there is
 * room (addresses are plenty), then into the first gap that fits.
 *
 * Invariants: pieces are sorted, apart, whole pages; every piece is reserved, nothing else is. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <ferry/mem.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "world/world.h"

#define HUGE_PAGE (UINT64_C(2) << 20)
#define READ_PIECES 1024 /* IOV_MAX */

static uint64_t align_up(uint64_t value, uint64_t to) {
    return value + (to - value % to) % to;
}

/* An address that came as a number in a key. */
static void *pointer_at(uint64_t address) {
    return (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
}

/* --- the arena --------------------------------------------------------------------------------- */

/* The end of the piece before index, or 0. */
static uint64_t end_before(const ferry_world_t *world, size_t index) {
    return index == 0 ? 0 : world->pieces[index - 1].at + world->pieces[index - 1].bytes;
}

/* Does it fit before piece `index`? bytes is at most the arena. */
static bool fits_before(const ferry_world_t *world, size_t index, uint64_t bytes, uint64_t align,
                        uint64_t *at_p) {
    uint64_t limit =
        index < world->npieces ? world->pieces[index].at : world->space->control->arena_bytes;
    *at_p = align_up(end_before(world, index), align);
    return *at_p <= limit && bytes <= limit - *at_p;
}

static bool find_place(const ferry_world_t *world, uint64_t bytes, size_t *index_p,
                       uint64_t *at_p) {
    uint64_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : FERRY_MEM_ALIGN;
    *index_p = world->npieces;
    bool found = fits_before(world, world->npieces, bytes, align, at_p);
    for (size_t i = 0; i < world->npieces && !found; i++) {
        found = fits_before(world, i, bytes, align, at_p);
        *index_p = i;
    }
    return found;
}

static uint64_t file_offset(const ferry_world_t *world, uint64_t at) {
    return (uint64_t)(fy_space_arena(world->space, world->rank) - world->space->base) + at;
}

static ferry_status_t alloc_piece(ferry_world_t *world, uint64_t bytes, uint64_t *at_p,
                                  ferry_error_t *err) {
    size_t index = 0;
    uint64_t at = 0;
    uint64_t whole = 0;
    uint64_t arena = world->space->control->arena_bytes;
    bool fits = fy_add_u64(bytes, FERRY_MEM_ALIGN - 1, &whole);
    whole -= whole % FERRY_MEM_ALIGN;
    if (!fits || whole > arena || !find_place(world, whole, &index, &at)) {
        return fy_fail(err, FERRY_NOMEM,
                       "%" PRIu64 " bytes do not fit the arena of rank %" PRIu32 " (arena_bytes is "
                       "%" PRIu64 ", in %zu pieces)",
                       bytes, world->rank, arena, world->npieces);
    }
    if (!fy_reserve(&world->pieces, &world->pieces_cap, world->npieces + 1,
                    sizeof *world->pieces)) {
        return fy_fail_nomem(err, "the list of shared memory");
    }
    FY_TRY(fy_space_reserve(world->space, file_offset(world, at), whole, err));
    memmove(world->pieces + index + 1, world->pieces + index,
            (world->npieces - index) * sizeof *world->pieces);
    world->pieces[index] = (fy_piece_t){at, whole, false};
    world->npieces++;
    *at_p = at;
    return FERRY_OK;
}

ferry_status_t ferry_mem_alloc(ferry_world_t *world, size_t bytes, void **memory_p,
                               ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(memory_p, err);
    FY_TRY(fy_world_usable(world, err));
    if (bytes == 0) {
        return fy_fail(err, FERRY_INVALID, "ferry_mem_alloc: no bytes are asked for");
    }
    uint64_t at = 0;
    (void)pthread_mutex_lock(&world->lock);
    ferry_status_t status = alloc_piece(world, bytes, &at, err);
    (void)pthread_mutex_unlock(&world->lock);
    if (status != FERRY_OK) {
        fy_error_ranks(err, world->rank, FERRY_RANK_NONE);
        return status;
    }
    *memory_p = fy_space_arena(world->space, world->rank) + at;
    return FERRY_OK;
}

/* The piece that holds offset `at`, or npieces. */
static size_t find_piece(const ferry_world_t *world, uint64_t at) {
    size_t lo = 0;
    size_t hi = world->npieces;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (world->pieces[middle].at <= at) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    bool inside = lo > 0 && at - world->pieces[lo - 1].at < world->pieces[lo - 1].bytes;
    return inside ? lo - 1 : world->npieces;
}

/* The place of an address in a rank's arena; false when it is elsewhere. */
static bool in_arena(const ferry_world_t *world, uint32_t rank, const void *memory,
                     uint64_t *at_p) {
    uintptr_t base = (uintptr_t)fy_space_arena(world->space, rank);
    uintptr_t address = (uintptr_t)memory;
    *at_p = address - base;
    return address >= base && *at_p < world->space->control->arena_bytes;
}

static void drop_piece(ferry_world_t *world, size_t index) {
    const fy_piece_t *piece = &world->pieces[index];
    fy_space_punch(world->space, file_offset(world, piece->at), piece->bytes);
    world->npieces--;
    memmove(world->pieces + index, world->pieces + index + 1,
            (world->npieces - index) * sizeof *world->pieces);
}

/* In a world that has failed others may not have heard of it yet, and write here still. */
static ferry_status_t free_piece(ferry_world_t *world, const void *memory, ferry_error_t *err) {
    uint64_t at = 0;
    size_t index = world->npieces;
    if (in_arena(world, world->rank, memory, &at)) {
        index = find_piece(world, at);
    }
    if (index == world->npieces || world->pieces[index].at != at || world->pieces[index].freed) {
        return fy_fail(err, FERRY_INVALID, "ferry_mem_free: rank %" PRIu32 " has no such memory",
                       world->rank);
    }
    if (fy_world_agreed(world, NULL) != FERRY_OK) {
        world->pieces[index].freed = true;
    } else {
        drop_piece(world, index);
    }
    return FERRY_OK;
}

void fy_mem_drop_freed(ferry_world_t *world) {
    (void)pthread_mutex_lock(&world->lock);
    for (size_t i = world->npieces; i > 0; i--) {
        if (world->pieces[i - 1].freed) {
            drop_piece(world, i - 1);
        }
    }
    (void)pthread_mutex_unlock(&world->lock);
}

ferry_status_t ferry_mem_free(ferry_world_t *world, void *memory, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_TRY(fy_world_usable(world, err));
    if (memory == NULL) {
        return FERRY_OK;
    }
    (void)pthread_mutex_lock(&world->lock);
    ferry_status_t status = free_piece(world, memory, err);
    (void)pthread_mutex_unlock(&world->lock);
    return status;
}

/* --- keys -------------------------------------------------------------------------------------- */

ferry_status_t fy_mem_check_key(const ferry_world_t *world, const ferry_mem_key_t *key,
                                ferry_error_t *err) {
    uint64_t end = 0;
    bool known = key->reach == FERRY_MEM_ARENA || key->reach == FERRY_MEM_OWN;
    if (!known || key->rank >= world->size || !fy_add_u64(key->at, key->bytes, &end) ||
        (key->reach == FERRY_MEM_ARENA && end > world->space->control->arena_bytes) ||
        (key->reach == FERRY_MEM_OWN && end > UINTPTR_MAX)) {
        return fy_fail(err, FERRY_INVALID,
                       "a memory key names no memory of this world: rank %" PRIu32
                       ", reach %" PRIu32 ", at %" PRIu64 ", %" PRIu64 " bytes",
                       key->rank, key->reach, key->at, key->bytes);
    }
    return FERRY_OK;
}

static ferry_status_t register_own_arena(ferry_world_t *world, uint64_t at, size_t bytes,
                                         ferry_error_t *err) {
    (void)pthread_mutex_lock(&world->lock);
    size_t index = find_piece(world, at);
    bool inside = index < world->npieces && !world->pieces[index].freed &&
                  bytes <= world->pieces[index].at + world->pieces[index].bytes - at;
    (void)pthread_mutex_unlock(&world->lock);
    if (!inside) {
        return fy_fail(err, FERRY_INVALID,
                       "%zu bytes at %" PRIu64 " are not within one piece of shared memory of rank "
                       "%" PRIu32,
                       bytes, at, world->rank);
    }
    return FERRY_OK;
}

ferry_status_t ferry_mem_register(ferry_world_t *world, const void *memory, size_t bytes,
                                  ferry_mem_key_t *key_p, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED_ARRAY(memory, bytes, err);
    FY_NEED(key_p, err);
    FY_TRY(fy_world_usable(world, err));
    ferry_mem_key_t key = {world->rank, FERRY_MEM_OWN, (uintptr_t)memory, bytes};
    uint64_t at = 0;
    if (in_arena(world, world->rank, memory, &at)) {
        FY_TRY(register_own_arena(world, at, bytes, err));
        key.reach = FERRY_MEM_ARENA;
        key.at = at;
    }
    uintptr_t base = (uintptr_t)world->space->base;
    if (key.reach == FERRY_MEM_OWN && key.at >= base &&
        key.at - base < world->space->control->total_bytes) {
        return fy_fail(err, FERRY_INVALID,
                       "the memory belongs to another rank; only that one "
                       "registers it");
    }
    FY_TRY(fy_mem_check_key(world, &key, err));
    *key_p = key;
    return FERRY_OK;
}

void ferry_mem_unregister(ferry_world_t *world, const ferry_mem_key_t *key) {
    (void)world; /* nothing to undo on a CPU; pinned memory will need it */
    (void)key;
}

bool ferry_mem_is_mappable(const ferry_world_t *world, const ferry_mem_key_t *key) {
    return key->rank < world->size &&
           (key->reach == FERRY_MEM_ARENA || ferry_world_same_process(world, key->rank));
}

ferry_status_t ferry_mem_map(ferry_world_t *world, const ferry_mem_key_t *key, void **memory_p,
                             ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(key, err);
    FY_NEED(memory_p, err);
    FY_TRY(fy_world_usable(world, err));
    FY_TRY(fy_mem_check_key(world, key, err));
    if (!ferry_mem_is_mappable(world, key)) {
        (void)fy_fail(err, FERRY_UNSUPPORTED,
                      "memory of rank %" PRIu32 " is its own and in another process", key->rank);
        fy_error_ranks(err, world->rank, key->rank);
        return FERRY_UNSUPPORTED;
    }
    if (key->reach == FERRY_MEM_ARENA) {
        *memory_p = fy_space_arena(world->space, key->rank) + key->at;
    } else {
        *memory_p = pointer_at(key->at);
    }
    return FERRY_OK;
}

void ferry_mem_populate(ferry_world_t *world, const ferry_mem_key_t *key) {
    void *memory = NULL;
    if (key == NULL || key->reach != FERRY_MEM_ARENA || key->bytes == 0 ||
        ferry_mem_map(world, key, &memory, NULL) != FERRY_OK) {
        return;
    }
#ifdef MADV_POPULATE_WRITE
    uintptr_t begin = (uintptr_t)memory & ~(uintptr_t)(FERRY_MEM_ALIGN - 1);
    size_t bytes = (uintptr_t)memory + key->bytes - begin;
    int advice = key->rank == world->rank ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    (void)madvise(pointer_at(begin), bytes, advice); /* older systems: at first touch, then */
#endif
}

/* --- across processes -------------------------------------------------------------------------- */

static ferry_status_t fail_read(ferry_world_t *world, uint32_t peer, int number,
                                ferry_error_t *err) {
    ferry_status_t status = FERRY_IO;
    const char *text = "cannot read the memory of rank %" PRIu32;
    if (number == EPERM || number == ENOSYS || number == EACCES) {
        status = FERRY_UNSUPPORTED;
    } else if (number == EFAULT) {
        status = FERRY_INVALID;
        text = "rank %" PRIu32 " registered memory that is not there";
    } else if (number == ESRCH) {
        status = FERRY_DEAD;
        text = "rank %" PRIu32 " is dead; its memory cannot be read";
    }
    (void)fy_fail(err, status, text, peer);
    fy_error_ranks(err, world->rank, peer);
    if (err != NULL) {
        err->sys_errno = number;
    }
    return status;
}

/* Takes `bytes` off the front of a list. */
static void consume(struct iovec **list, size_t *count, size_t bytes) {
    while (*count > 0 && bytes >= (*list)->iov_len) {
        bytes -= (*list)->iov_len;
        ++*list;
        --*count;
    }
    if (*count > 0) {
        (*list)->iov_base = (uint8_t *)(*list)->iov_base + bytes;
        (*list)->iov_len -= bytes;
    }
}

ferry_status_t fy_mem_readv(ferry_world_t *world, uint32_t peer, struct iovec *local, size_t nlocal,
                            struct iovec *remote, size_t nremote, ferry_error_t *err) {
    pid_t pid = atomic_load(&fy_world_slot(world, peer)->pid);
    consume(&local, &nlocal, 0); /* empty pieces */
    consume(&remote, &nremote, 0);
    while (nlocal > 0 && nremote > 0) {
        ssize_t got = process_vm_readv(pid, local, fy_min_u64(nlocal, READ_PIECES), remote,
                                       fy_min_u64(nremote, READ_PIECES), 0);
        if (got <= 0) {
            return fail_read(world, peer, got == 0 ? EFAULT : errno, err);
        }
        consume(&local, &nlocal, (size_t)got);
        consume(&remote, &nremote, (size_t)got);
    }
    return FERRY_OK;
}

bool ferry_world_can_read(ferry_world_t *world, uint32_t peer) {
    enum { UNKNOWN, NO, YES };
    if (world == NULL || peer >= world->size || fy_world_usable(world, NULL) != FERRY_OK) {
        return false;
    }
    if (ferry_world_same_process(world, peer)) {
        return true;
    }
    uint8_t known = atomic_load(&world->readable[peer].known);
    const fy_slot_t *slot = fy_world_slot(world, peer);
    if (known == UNKNOWN &&
        atomic_load_explicit(&slot->state, memory_order_acquire) == FY_SLOT_PRESENT) {
        uint64_t word = 0;
        struct iovec local = {&word, sizeof word};
        struct iovec remote = {pointer_at(slot->probe), sizeof word};
        ferry_status_t status = fy_mem_readv(world, peer, &local, 1, &remote, 1, NULL);
        known = status == FERRY_OK && word == FY_CONTROL_MAGIC ? YES : NO;
        atomic_store(&world->readable[peer].known, known);
    }
    return known == YES;
}

ferry_status_t ferry_mem_read(ferry_world_t *world, const ferry_mem_key_t *key, uint64_t offset,
                              void *target, size_t bytes, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(key, err);
    FY_NEED_ARRAY(target, bytes, err);
    FY_TRY(fy_world_usable(world, err));
    FY_TRY(fy_mem_check_key(world, key, err));
    if (offset > key->bytes || bytes > key->bytes - offset) {
        return fy_fail(err, FERRY_INVALID,
                       "%zu bytes at %" PRIu64 " are outside the %" PRIu64 " bytes of the key",
                       bytes, offset, key->bytes);
    }
    if (bytes == 0) {
        return FERRY_OK;
    }
    if (ferry_mem_is_mappable(world, key)) {
        void *memory = NULL;
        FY_TRY(ferry_mem_map(world, key, &memory, err));
        memcpy(target, (const uint8_t *)memory + offset, bytes);
        return FERRY_OK;
    }
    struct iovec local = {target, bytes};
    struct iovec remote = {pointer_at(key->at + offset), bytes};
    return fy_mem_readv(world, key->rank, &local, 1, &remote, 1, err);
}
