/* hash.h - hashing (XXH3, 64 bits) and an index that finds things by their hash.
 *
 * Values are hashed in little-endian form, so that a hash means the same on every machine. */
#ifndef FERRY_BASE_HASH_H
#define FERRY_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t fy_hash_bytes(const void *bytes, size_t length);

/* Folds one more value or list into a running hash. */
uint64_t fy_hash_u64(uint64_t hash, uint64_t value);
uint64_t fy_hash_list_u64(uint64_t hash, const uint64_t *list, size_t count);
uint64_t fy_hash_list_u32(uint64_t hash, const uint32_t *list, size_t count);

/* Numbers 0, 1, 2, ... filed under their hash; the caller keeps the things themselves. */
typedef struct fy_index {
    uint64_t *hashes;
    uint32_t *ids; /* id + 1; 0: free */
    size_t cap;    /* a power of two, or 0 */
    size_t count;
} fy_index_t;

#define FY_INDEX_NONE UINT32_MAX

/* The filed number for which same(context, id) is true, or FY_INDEX_NONE. */
uint32_t fy_index_find(const fy_index_t *index, uint64_t hash,
                       bool (*same)(const void *context, uint32_t id), const void *context);
/* False when memory is out; the index is then as it was. */
bool fy_index_add(fy_index_t *index, uint64_t hash, uint32_t id);
void fy_index_fini(fy_index_t *index);

#endif
