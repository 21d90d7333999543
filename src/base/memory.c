/* memory.c - heap, growing arrays and arenas.
 *
 * Invariant: an arena's first block is the one that is being filled; the others are full or hold one
 * large piece each. */
#include "base/memory.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { ARENA_BLOCK_BYTES = 64 * 1024 };

struct fy_arena_block {
    fy_arena_block_t *next;
    size_t used;
    size_t cap;
    alignas(max_align_t) unsigned char bytes[];
};

void *fy_alloc(size_t count, size_t size) {
    size_t bytes = 0;
    if (!fy_mul_size(count, size, &bytes)) {
        return NULL;
    }
    return malloc(bytes > 0 ? bytes : 1);
}

void *fy_alloc_zero(size_t count, size_t size) {
    return calloc(count > 0 ? count : 1, size > 0 ? size : 1);
}

void fy_free(void *memory) {
    free(memory);
}

bool fy_reserve(void *array_p, size_t *cap_p, size_t need, size_t size) {
    if (need <= *cap_p) {
        return true;
    }
    size_t cap = *cap_p + *cap_p / 2;
    cap = cap < need ? need : cap;
    cap = cap < 16 ? 16 : cap;
    size_t bytes = 0;
    if (!fy_mul_size(cap, size, &bytes)) {
        return false;
    }
    void *old = NULL;
    memcpy(&old, array_p, sizeof old);
    void *grown = realloc(old, bytes);
    if (grown == NULL) {
        return false;
    }
    memcpy(array_p, &grown, sizeof grown);
    *cap_p = cap;
    return true;
}

static fy_arena_block_t *block_create(size_t cap) {
    size_t bytes = 0;
    if (__builtin_add_overflow(cap, sizeof(fy_arena_block_t), &bytes)) {
        return NULL;
    }
    fy_arena_block_t *block = malloc(bytes);
    if (block != NULL) {
        block->next = NULL;
        block->used = 0;
        block->cap = cap;
    }
    return block;
}

void *fy_arena_alloc(fy_arena_t *arena, size_t count, size_t size) {
    size_t bytes = 0;
    if (!fy_mul_size(count, size, &bytes) || bytes > SIZE_MAX - alignof(max_align_t)) {
        return NULL;
    }
    bytes = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    fy_arena_block_t *block = arena->blocks;
    if (block == NULL || block->cap - block->used < bytes) {
        bool large = bytes > ARENA_BLOCK_BYTES / 4;
        fy_arena_block_t *fresh = block_create(large ? bytes : ARENA_BLOCK_BYTES);
        if (fresh == NULL) {
            return NULL;
        }
        if (large && block != NULL) {
            /* Keep filling the block in front; the large one goes behind it. */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *memory = block->bytes + block->used;
    block->used += bytes;
    return memory;
}

void *fy_arena_copy(fy_arena_t *arena, const void *from, size_t count, size_t size) {
    void *to = fy_arena_alloc(arena, count, size);
    if (to != NULL && count > 0) {
        memcpy(to, from, count * size);
    }
    return to;
}

char *fy_arena_string(fy_arena_t *arena, const char *text) {
    return fy_arena_copy(arena, text, strlen(text) + 1, 1);
}

void fy_arena_fini(fy_arena_t *arena) {
    fy_arena_block_t *block = arena->blocks;
    while (block != NULL) {
        fy_arena_block_t *next = block->next;
        free(block);
        block = next;
    }
    arena->blocks = NULL;
}
