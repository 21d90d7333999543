/* buckets.c - chunks of one key, laid out one after the other.
 *
 * One walk over the chunks: each key has at most one bucket open; a chunk goes into it or closes it and
 * opens the next. Then the entries are put in the order of their buckets.
 *
 * Invariant: partials have other numbers on other ranks, but two chunks have the same one here exactly
 * when they do there, so that both ends form the same buckets. */
#include <inttypes.h>

#include "base/fail.h"
#include "ir/ir.h"

struct ferry_buckets {
    fy_arena_t arena;
    ferry_bucket_t *list;
    size_t count;
    ferry_bucket_entry_t *entries;
    size_t nentries;
};

typedef struct filler {
    const ferry_chunk_t *chunks; /* the first of them */
    size_t count;
    uint32_t first; /* its place in the list of all */
    uint64_t threshold;
    const uint32_t *lanes;
    ferry_bucket_t *list;
    size_t nbuckets;
    size_t cap;
    uint32_t *bucket_of; /* of each chunk */
    uint32_t *open;      /* of each key: its bucket */
    size_t nkeys;
    size_t keys_cap;
    fy_index_t keys;
} filler_t;

/* ---- keys --------------------------------------------------------------------------------------- */

/* The key of a chunk, as an empty bucket. */
static ferry_bucket_t key_of(const filler_t *f, const ferry_chunk_t *chunk) {
    bool reduce_only = chunk->role == FERRY_CHUNK_REDUCE;
    return (ferry_bucket_t){
        .task_id = chunk->task_id,
        .source = chunk->source,
        .target = reduce_only ? FERRY_RANK_NONE : chunk->target,
        .partial = chunk->partial,
        .cell = reduce_only ? chunk->cell : FERRY_INDEX_NONE,
        .lane = f->lanes == NULL ? 0 : f->lanes[chunk->tensor],
    };
}

typedef struct wanted {
    const filler_t *filler;
    const ferry_bucket_t *key;
} wanted_t;

static bool same_key(const void *context, uint32_t id) {
    const wanted_t *wanted = context;
    const ferry_bucket_t *a = &wanted->filler->list[wanted->filler->open[id]];
    const ferry_bucket_t *b = wanted->key;
    return a->source == b->source && a->target == b->target && a->partial == b->partial &&
           a->cell == b->cell && a->lane == b->lane;
}

/* Finds the number of a key, or gives it one; a new one has no open bucket yet. */
static ferry_status_t find_key(filler_t *f, const ferry_bucket_t *key, uint32_t *key_p,
                               ferry_error_t *err) {
    wanted_t wanted = {f, key};
    const uint32_t words[] = {key->source, key->target, key->partial, key->cell, key->lane};
    uint64_t hash = fy_hash_list_u32(0, words, sizeof words / sizeof *words);
    uint32_t id = fy_index_find(&f->keys, hash, same_key, &wanted);
    if (id == FY_INDEX_NONE) {
        if (!fy_reserve(&f->open, &f->keys_cap, f->nkeys + 1, sizeof *f->open) ||
            !fy_index_add(&f->keys, hash, (uint32_t)f->nkeys)) {
            return fy_fail_nomem(err, "the keys of buckets");
        }
        id = (uint32_t)f->nkeys++;
        f->open[id] = FERRY_INDEX_NONE;
    }
    *key_p = id;
    return FERRY_OK;
}

/* ---- filling ------------------------------------------------------------------------------------ */

static bool has_room(const filler_t *f, uint32_t bucket, uint64_t bytes) {
    return bucket != FERRY_INDEX_NONE && f->list[bucket].bytes <= f->threshold &&
           bytes <= f->threshold - f->list[bucket].bytes;
}

static ferry_status_t put_chunk(filler_t *f, size_t index, ferry_error_t *err) {
    const ferry_chunk_t *chunk = &f->chunks[index];
    ferry_bucket_t key = key_of(f, chunk);
    uint32_t id = 0;
    FY_TRY(find_key(f, &key, &id, err));
    if (!has_room(f, f->open[id], chunk->bytes)) {
        if (!fy_reserve(&f->list, &f->cap, f->nbuckets + 1, sizeof *f->list)) {
            return fy_fail_nomem(err, "the buckets of a rank");
        }
        f->open[id] = (uint32_t)f->nbuckets++; /* fits: no more than there are chunks */
        f->list[f->open[id]] = key;
    }
    ferry_bucket_t *bucket = &f->list[f->open[id]];
    bucket->nentries++;
    bucket->bytes += chunk->bytes;
    f->bucket_of[index] = f->open[id];
    return FERRY_OK;
}

static ferry_status_t put_all(filler_t *f, ferry_error_t *err) {
    f->bucket_of = fy_alloc(f->count, sizeof *f->bucket_of);
    if (f->bucket_of == NULL) {
        return fy_fail_nomem(err, "the buckets of a rank");
    }
    for (size_t i = 0; i < f->count; i++) {
        FY_TRY(put_chunk(f, i, err));
    }
    return FERRY_OK;
}

/* Copies the buckets and gives each its entries. */
static ferry_status_t lay_out(const filler_t *f, ferry_buckets_t *out, ferry_error_t *err) {
    out->list = fy_arena_copy(&out->arena, f->list, f->nbuckets, sizeof *out->list);
    out->entries = fy_arena_alloc(&out->arena, f->count, sizeof *out->entries);
    if (out->list == NULL || out->entries == NULL) {
        return fy_fail_nomem(err, "the buckets of a rank");
    }
    out->count = f->nbuckets;
    out->nentries = f->count;
    size_t first = 0;
    for (size_t b = 0; b < out->count; b++) {
        out->list[b].first_entry = first;
        first += out->list[b].nentries;
        out->list[b].nentries = 0; /* counted again as entries come, and the bytes, too */
        out->list[b].bytes = 0;
    }
    for (size_t i = 0; i < f->count; i++) {
        ferry_bucket_t *bucket = &out->list[f->bucket_of[i]];
        uint64_t bytes = f->chunks[i].bytes;
        out->entries[bucket->first_entry + bucket->nentries++] =
            (ferry_bucket_entry_t){f->first + (uint32_t)i, bucket->bytes, bytes};
        bucket->bytes += bytes;
    }
    return FERRY_OK;
}

/* ---- the doors ---------------------------------------------------------------------------------- */

static ferry_status_t check_params(const ferry_chunks_t *chunks,
                                   const ferry_buckets_params_t *params, ferry_error_t *err) {
    if (params == NULL || params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "bucket parameters of size %zu, expected %zu (FERRY_BUCKETS_PARAMS_INIT)",
                       params == NULL ? (size_t)0 : params->size, sizeof *params);
    }
    if (params->first > chunks->count || params->count > chunks->count - params->first) {
        return fy_fail(err, FERRY_INVALID, "%zu chunks from number %zu on, of %zu", params->count,
                       params->first, chunks->count);
    }
    return FERRY_OK;
}

ferry_status_t ferry_buckets_create(const ferry_chunks_t *chunks,
                                    const ferry_buckets_params_t *params,
                                    ferry_buckets_t **buckets_p, ferry_error_t *err) {
    FY_NEED(chunks, err);
    FY_NEED(buckets_p, err);
    FY_TRY(check_params(chunks, params, err));
    ferry_buckets_t *buckets = fy_alloc_zero(1, sizeof *buckets);
    if (buckets == NULL) {
        return fy_fail_nomem(err, "the buckets of a rank");
    }
    filler_t f = {
        .chunks = chunks->list + params->first,
        .count = params->count,
        .first = (uint32_t)params->first,
        .threshold = params->threshold > 0 ? params->threshold : FERRY_BUCKET_BYTES_DEFAULT,
        .lanes = params->lanes,
    };
    ferry_status_t status = put_all(&f, err);
    if (status == FERRY_OK) {
        status = lay_out(&f, buckets, err);
    }
    fy_free(f.list);
    fy_free(f.bucket_of);
    fy_free(f.open);
    fy_index_fini(&f.keys);
    if (status != FERRY_OK) {
        ferry_buckets_destroy(buckets);
        return status;
    }
    *buckets_p = buckets;
    return FERRY_OK;
}

void ferry_buckets_destroy(ferry_buckets_t *buckets) {
    if (buckets == NULL) {
        return;
    }
    fy_arena_fini(&buckets->arena);
    fy_free(buckets);
}

const ferry_bucket_t *ferry_buckets_list(const ferry_buckets_t *buckets, size_t *count_p) {
    *count_p = buckets->count;
    return buckets->list;
}

const ferry_bucket_entry_t *ferry_buckets_entries(const ferry_buckets_t *buckets, size_t *count_p) {
    *count_p = buckets->nentries;
    return buckets->entries;
}
