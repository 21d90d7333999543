/* encode.c - a plan as bytes, and the hash of its input.
 *
 * Invariant: equal plans give equal bytes; nothing that differs between machines or runs goes in. */
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "plan/file.h"
#include "plan/plan.h"

static void write_list(fy_writer_t *w, const uint64_t *list, size_t count) {
    fy_write_u64(w, count);
    for (size_t i = 0; i < count; i++) {
        fy_write_u64(w, list[i]);
    }
}

static void write_placement(fy_writer_t *w, const ferry_placement_t *p) {
    fy_write_u64(w, (uint64_t)p->kind);
    if (p->kind == FERRY_PARTIAL) {
        fy_write_u64(w, (uint64_t)p->op);
    }
    if (p->kind == FERRY_SHARD) {
        fy_write_u64(w, (uint64_t)p->cut);
        fy_write_u64(w, p->dim);
        fy_write_u64(w, p->arg);
        fy_write_u64(w, p->unit);
        write_list(w, p->sizes, p->nsizes);
        write_list(w, p->lengths, p->nlengths);
    }
}

static void write_layout(fy_writer_t *w, const ferry_layout_t *layout) {
    fy_write_u64(w, layout->naxes);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        size_t length = strlen(layout->axes[a].name);
        fy_write_u64(w, length);
        fy_write_bytes(w, layout->axes[a].name, length);
        fy_write_u64(w, layout->axes[a].size);
        write_placement(w, &layout->placements[a]);
    }
    int64_t next = 0; /* ranks usually count upwards */
    for (uint32_t i = 0; i < layout->nranks; i++) {
        fy_write_i64(w, (int64_t)layout->ranks[i] - next);
        next = (int64_t)layout->ranks[i] + 1;
    }
}

/* Names share their beginning with the one before: only the rest is written. */
static void write_tensor(fy_writer_t *w, const ferry_plan_t *plan, uint32_t t) {
    const fy_pattern_t *p = fy_plan_pattern_of(plan, t);
    const char *name = plan->tensors[t].name;
    const char *before = t > 0 ? plan->tensors[t - 1].name : "";
    size_t shared = 0;
    while (before[shared] != '\0' && before[shared] == name[shared]) {
        shared++;
    }
    size_t rest = strlen(name + shared);
    fy_write_u64(w, shared);
    fy_write_u64(w, rest);
    fy_write_bytes(w, name + shared, rest);
    fy_write_u64(w, p->source);
    fy_write_u64(w, p->target);
    fy_write_u64(w, (uint64_t)p->source_dtype);
    fy_write_u64(w, (uint64_t)p->target_dtype);
    write_list(w, p->shape, p->ndim);
}

static void write_input(fy_writer_t *w, const ferry_plan_t *plan) {
    fy_write_u64(w, FERRY_PLANNER_VERSION);
    fy_write_u64(w, plan->flags);
    fy_write_u64(w, plan->nhosts);
    for (size_t i = 0; i < plan->nhosts; i++) {
        fy_write_u64(w, plan->hosts[i]);
    }
    fy_write_u64(w, plan->nsides);
    for (size_t s = 0; s < plan->nsides; s++) {
        write_layout(w, plan->sides[s].layout);
    }
    fy_write_u64(w, plan->ntensors);
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        write_tensor(w, plan, t);
    }
}

ferry_status_t fy_plan_hash_input(const ferry_plan_t *plan, uint64_t *hash_p, ferry_error_t *err) {
    fy_writer_t w = {0};
    write_input(&w, plan);
    if (!w.failed) {
        *hash_p = fy_hash_bytes(w.bytes, w.length);
    }
    fy_free(w.bytes);
    return w.failed ? fy_fail_nomem(err, "the hash of a plan") : FERRY_OK;
}

/* ---- moves ------------------------------------------------------------------------------------ */

typedef struct block {
    size_t begin; /* in the bytes of all blocks */
    size_t length;
} block_t;

typedef struct blocks {
    fy_writer_t bytes;
    block_t *list;
    size_t count;
    size_t cap;
    fy_index_t index;
    uint32_t *of_tensor;
} blocks_t;

typedef struct block_key {
    const blocks_t *blocks;
    block_t block;
} block_key_t;

static bool block_same(const void *context, uint32_t id) {
    const block_key_t *key = context;
    const block_t *other = &key->blocks->list[id];
    const uint8_t *bytes = key->blocks->bytes.bytes;
    return other->length == key->block.length &&
           memcmp(bytes + other->begin, bytes + key->block.begin, key->block.length) == 0;
}

/* Moves [first, end) of one tensor: stage, how many, and for each what changed since the last one. */
static void write_block(fy_writer_t *w, const ferry_plan_t *plan, size_t first, size_t end) {
    uint32_t target = 0;
    uint64_t geom = 0;
    fy_write_u64(w, 0); /* stage; others are reserved, and will then say what they come after */
    fy_write_u64(w, end - first);
    for (size_t i = first; i < end; i++) {
        const fy_move_t *m = &plan->moves[i];
        fy_write_u64(w, m->target - target);
        fy_write_i64(w, (int64_t)m->source - (int64_t)m->target);
        fy_write_i64(w, (int64_t)(m->geom - geom));
        target = m->target;
        geom = m->geom;
    }
}

/* Appends the block of a tensor, or finds that an equal one is there and drops it again. */
static bool add_block(blocks_t *b, const ferry_plan_t *plan, uint32_t tensor, size_t first,
                      size_t end) {
    block_key_t key = {b, {b->bytes.length, 0}};
    write_block(&b->bytes, plan, first, end);
    if (b->bytes.failed) {
        return false;
    }
    key.block.length = b->bytes.length - key.block.begin;
    uint64_t hash = fy_hash_bytes(b->bytes.bytes + key.block.begin, key.block.length);
    uint32_t id = fy_index_find(&b->index, hash, block_same, &key);
    if (id != FY_INDEX_NONE) {
        b->bytes.length = key.block.begin;
    } else {
        id = (uint32_t)b->count;
        if (!fy_reserve(&b->list, &b->cap, b->count + 1, sizeof *b->list) ||
            !fy_index_add(&b->index, hash, id)) {
            return false;
        }
        b->list[b->count++] = key.block;
    }
    b->of_tensor[tensor] = id;
    return true;
}

static bool write_moves(fy_writer_t *w, const ferry_plan_t *plan, blocks_t *b) {
    size_t first = 0;
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        size_t end = first;
        while (end < plan->nmoves && plan->moves[end].tensor == t) {
            end++;
        }
        if (!add_block(b, plan, t, first, end)) {
            return false;
        }
        first = end;
    }
    fy_write_u64(w, plan->rank == FERRY_RANK_NONE ? 0 : (uint64_t)plan->rank + 1);
    fy_write_u64(w, b->count);
    fy_write_bytes(w, b->bytes.bytes, b->bytes.length);
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        fy_write_u64(w, b->of_tensor[t]);
    }
    return !w->failed;
}

ferry_status_t ferry_plan_encode(const ferry_plan_t *plan, uint8_t **bytes_p, size_t *length_p,
                                 ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(bytes_p, err);
    FY_NEED(length_p, err);
    fy_writer_t w = {0};
    blocks_t b = {0};
    fy_write_bytes(&w, FY_PLAN_MAGIC, FY_PLAN_MAGIC_BYTES);
    fy_write_u64(&w, FERRY_PLAN_FORMAT_VERSION);
    write_input(&w, plan);
    b.of_tensor = fy_alloc(plan->ntensors, sizeof *b.of_tensor);
    bool fine = b.of_tensor != NULL && write_moves(&w, plan, &b);
    if (fine) {
        fy_write_fixed64(&w, fy_hash_bytes(w.bytes, w.length));
        fine = !w.failed;
    }
    fy_free(b.bytes.bytes);
    fy_free(b.list);
    fy_free(b.of_tensor);
    fy_index_fini(&b.index);
    if (!fine) {
        fy_free(w.bytes);
        return fy_fail_nomem(err, "the bytes of a plan");
    }
    *bytes_p = w.bytes;
    *length_p = w.length;
    return FERRY_OK;
}

void ferry_free(void *memory) {
    fy_free(memory);
}
