/* memory.h - heap, growing arrays and arenas, every size checked.
 *
 * An arena is a chain of blocks freed whole: what one plan or one layout needs lives and dies
 * together. Nothing here aborts: each answers NULL (or false) when memory or the address space is
 * out, and the caller turns that into FERRY_NOMEM. */
#ifndef FERRY_BASE_MEMORY_H
#define FERRY_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* count * size bytes, zeroed or not; NULL on overflow too. count 0 gives a real pointer. */
void *fy_alloc(size_t count, size_t size);
void *fy_alloc_zero(size_t count, size_t size);
void fy_free(void *memory);

/* Makes room for `need` elements in the array at *array_p (whose pointer type may be anything; pass
 * its address) with capacity *cap_p. Grows by half again, so that appending is linear. */
bool fy_reserve(void *array_p, size_t *cap_p, size_t need, size_t size);

typedef struct fy_arena_block fy_arena_block_t;

typedef struct fy_arena {
    fy_arena_block_t *blocks;
} fy_arena_t;

#define FY_ARENA_INIT                                                                              \
    { NULL }

/* Uninitialised, aligned for any type; lives until fy_arena_fini. */
void *fy_arena_alloc(fy_arena_t *arena, size_t count, size_t size);
void *fy_arena_copy(fy_arena_t *arena, const void *from, size_t count, size_t size);
char *fy_arena_string(fy_arena_t *arena, const char *text);
void fy_arena_fini(fy_arena_t *arena);

#endif
