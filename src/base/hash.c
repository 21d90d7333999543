/* hash.c - hashing and the index.
 *
 * The index is open addressing with linear probing, at most half full. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

uint64_t fy_hash_bytes(const void *bytes, size_t length) {
    return XXH3_64bits(bytes, length);
}

uint64_t fy_hash_u64(uint64_t hash, uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    return XXH3_64bits_withSeed(bytes, sizeof bytes, hash);
}

uint64_t fy_hash_list_u64(uint64_t hash, const uint64_t *list, size_t count) {
    hash = fy_hash_u64(hash, count);
    for (size_t i = 0; i < count; i++) {
        hash = fy_hash_u64(hash, list[i]);
    }
    return hash;
}

uint64_t fy_hash_list_u32(uint64_t hash, const uint32_t *list, size_t count) {
    hash = fy_hash_u64(hash, count);
    for (size_t i = 0; i < count; i++) {
        hash = fy_hash_u64(hash, list[i]);
    }
    return hash;
}

static void index_put(fy_index_t *index, uint64_t hash, uint32_t id_plus_1) {
    size_t at = (size_t)hash & (index->cap - 1);
    while (index->ids[at] != 0) {
        at = (at + 1) & (index->cap - 1);
    }
    index->ids[at] = id_plus_1;
    index->hashes[at] = hash;
}

static bool index_grow(fy_index_t *index) {
    fy_index_t grown = {NULL, NULL, index->cap > 0 ? index->cap * 2 : 64, index->count};
    grown.hashes = fy_alloc(grown.cap, sizeof *grown.hashes);
    grown.ids = fy_alloc_zero(grown.cap, sizeof *grown.ids);
    if (grown.hashes == NULL || grown.ids == NULL) {
        fy_free(grown.hashes);
        fy_free(grown.ids);
        return false;
    }
    for (size_t i = 0; i < index->cap; i++) {
        if (index->ids[i] != 0) {
            index_put(&grown, index->hashes[i], index->ids[i]);
        }
    }
    fy_index_fini(index);
    *index = grown;
    return true;
}

uint32_t fy_index_find(const fy_index_t *index, uint64_t hash,
                       bool (*same)(const void *context, uint32_t id), const void *context) {
    if (index->cap == 0) {
        return FY_INDEX_NONE;
    }
    for (size_t at = (size_t)hash & (index->cap - 1); index->ids[at] != 0;
         at = (at + 1) & (index->cap - 1)) {
        if (index->hashes[at] == hash && same(context, index->ids[at] - 1)) {
            return index->ids[at] - 1;
        }
    }
    return FY_INDEX_NONE;
}

bool fy_index_add(fy_index_t *index, uint64_t hash, uint32_t id) {
    if (index->count + 1 > index->cap / 2 && !index_grow(index)) {
        return false;
    }
    index_put(index, hash, id + 1);
    index->count++;
    return true;
}

void fy_index_fini(fy_index_t *index) {
    fy_free(index->hashes);
    fy_free(index->ids);
    memset(index, 0, sizeof *index);
}
