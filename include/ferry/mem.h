/* mem.h - memory that ranks reach in each other.
 *
 * Every rank of a world has an arena in one shared file without a name (docs/decisions/one-memfd.md).
 * ferry_mem_alloc takes pages there; they are reserved before it returns, so a machine that is full is
 * an error here and never a SIGBUS later. Any rank reaches them directly. Other memory ("own": heap,
 * stack, a mapping) is registered: threads reach it directly, processes read it where the system lets
 * them (ferry_world_can_read).
 *
 * A key names memory of a rank and is plain data: send it in an all-gather, add to its offset, store
 * it. It says nothing about lifetime: whoever gave the memory keeps it until the others are done.
 *
 * Ownership: memory from ferry_mem_alloc belongs to the rank that allocated it and ends with
 * ferry_mem_free or with the world. Registered memory stays the caller's.
 * Thread safety: all calls may be made by any thread of a rank. */
#ifndef FERRY_MEM_H
#define FERRY_MEM_H

#include <ferry/world.h>

FERRY_BEGIN_DECLS

typedef enum ferry_mem_reach {
    FERRY_MEM_NONE = 0,
    FERRY_MEM_ARENA = 1, /* in the rank's arena: `at` is the offset there */
    FERRY_MEM_OWN = 2,   /* the rank's own memory: `at` is its address in that process */
} ferry_mem_reach_t;

typedef struct ferry_mem_key {
    uint32_t rank;  /* of the world */
    uint32_t reach; /* ferry_mem_reach_t */
    uint64_t at;
    uint64_t bytes;
} ferry_mem_key_t;

#define FERRY_MEM_ALIGN 4096 /* of what ferry_mem_alloc gives; 2 MiB pieces and larger: 2 MiB */

/* Zeroed, reserved, shared. FERRY_NOMEM when the arena or the machine's memory is full; FERRY_INVALID
 * for no bytes. */
FERRY_API ferry_status_t ferry_mem_alloc(ferry_world_t *world, size_t bytes, void **memory_p,
                                         ferry_error_t *err);
/* Gives the pages back at once; peers must be done with them. In a world that has failed, where nobody
 * knows that, the pages go when it has recovered. NULL is fine; any other pointer that ferry_mem_alloc
 * did not give is FERRY_INVALID. */
FERRY_API ferry_status_t ferry_mem_free(ferry_world_t *world, void *memory, ferry_error_t *err);
/* Maps the pages of a piece of arena memory (this rank's or a peer's) now rather than at first touch,
 * which is what makes a first run slow. Advice: it changes no result. */
FERRY_API void ferry_mem_populate(ferry_world_t *world, const ferry_mem_key_t *key);

/* The key of memory of this rank: allocated above (or a part of it), or any other. */
FERRY_API ferry_status_t ferry_mem_register(ferry_world_t *world, const void *memory, size_t bytes,
                                            ferry_mem_key_t *key_p, ferry_error_t *err);
/* Ends what ferry_mem_register began. */
FERRY_API void ferry_mem_unregister(ferry_world_t *world, const ferry_mem_key_t *key);

/* Can this rank load and store what the key names? */
FERRY_API bool ferry_mem_is_mappable(const ferry_world_t *world, const ferry_mem_key_t *key);
/* The memory as this rank addresses it. FERRY_UNSUPPORTED when it is another process's own;
 * FERRY_INVALID for a key that names no memory of this world. */
FERRY_API ferry_status_t ferry_mem_map(ferry_world_t *world, const ferry_mem_key_t *key,
                                       void **memory_p, ferry_error_t *err);

/* Copies `bytes` from `offset` in what the key names, whichever way reaches it: directly or by
 * process_vm_readv. FERRY_UNSUPPORTED (with errno) where the system forbids it. */
FERRY_API ferry_status_t ferry_mem_read(ferry_world_t *world, const ferry_mem_key_t *key,
                                        uint64_t offset, void *target, size_t bytes,
                                        ferry_error_t *err);

FERRY_END_DECLS

#endif
