/* run.c - doing the units of a prepared copy.
 *
 * This is the data path: no allocation, no system call, no failure. What has to be rearranged before
 * it can be stored in whole lines passes through a stage on the stack that stays in the first cache. */
#include "base/checked.h"
#include "kernel/item.h"

enum {
    CHUNK = 8,         /* blocks along `a` before the next block along `b` */
    STAGE = 16 * 1024, /* bytes */
    CAST_STAGE = 2048, /* elements */
    SHORT_RUN = 1024,  /* runs up to here are worth collecting into whole lines */
};

typedef struct block {
    uint8_t *target;
    const uint8_t *source;
    uint64_t na;
    uint64_t nb;
} block_t;

/* The u-th block. A chunk of blocks along `a` is walked along `b`: the source's pages are used up while
 * they are known, and the target's get some lines each time. */
static block_t locate(const fy_item_t *item, uint64_t u) {
    uint64_t per = item->a_blocks * item->b_blocks;
    uint64_t outer = u / per;
    uint64_t rest = u % per;
    uint64_t chunk = rest / (CHUNK * item->b_blocks);
    rest %= CHUNK * item->b_blocks;
    uint64_t wide = fy_min_u64(CHUNK, item->a_blocks - chunk * CHUNK);
    uint64_t ai = chunk * CHUNK + rest % wide;
    uint64_t bi = rest / wide;
    uint64_t a_from = ai == 0 ? 0 : ai * item->a_block - item->a_shift;
    uint64_t a_to = fy_min_u64(item->a.extent, (ai + 1) * item->a_block - item->a_shift);
    uint64_t b_from = bi * item->b_block;
    int64_t target = (int64_t)a_from * item->a.target + (int64_t)b_from * item->b.target;
    int64_t source = (int64_t)a_from * item->a.source + (int64_t)b_from * item->b.source;
    for (uint32_t i = item->ndim; i-- > 0;) {
        int64_t at = (int64_t)(outer % item->dims[i].extent);
        outer /= item->dims[i].extent;
        target += at * item->dims[i].target;
        source += at * item->dims[i].source;
    }
    return (block_t){item->target + target, item->source + source, a_to - a_from,
                     fy_min_u64(item->b_block, item->b.extent - b_from)};
}

/* The u-th block together with those after it, below `last`, that go on along `a`; for items without
 * blocks along `b`. A long stretch lets memory be asked for well ahead. */
static block_t locate_stretch(const fy_item_t *item, uint64_t u, uint64_t last, uint64_t *next_p) {
    uint64_t row = u / item->a_blocks * item->a_blocks;
    uint64_t end = fy_min_u64(last, row + item->a_blocks);
    block_t block = locate(item, u);
    uint64_t a_from = u == row ? 0 : (u - row) * item->a_block - item->a_shift;
    block.na = fy_min_u64(item->a.extent, (end - row) * item->a_block - item->a_shift) - a_from;
    *next_p = end;
    return block;
}

static fy_rows_fn rows_of(const fy_item_t *item) {
    return item->stream ? item->kernels->rows_stream : item->kernels->rows;
}

static void run_long(const fy_item_t *item, uint64_t first, uint64_t last) {
    fy_rows_fn rows = rows_of(item);
    for (uint64_t u = first; u < last;) {
        block_t block = locate_stretch(item, u, last, &u);
        rows(block.target, 0, block.source, 0, block.na, 1);
    }
}

/* Runs that do not fill lines of a target without gaps: they are collected first. */
static void tile_row_staged(const fy_item_t *item, uint8_t *target, const uint8_t *source,
                            uint64_t na) {
    _Alignas(FY_LINE) uint8_t stage[STAGE];
    const uint64_t most = STAGE / item->run;
    while (na > 0) {
        uint64_t count = fy_min_u64(na, most);
        item->kernels->rows(stage, (int64_t)item->run, source, item->a.source, item->run, count);
        item->kernels->rows_stream(target, 0, stage, 0, count * item->run, 1);
        target += (int64_t)count * item->a.target;
        source += (int64_t)count * item->a.source;
        na -= count;
    }
}

/* One row of a block of runs. */
static void tile_row(const fy_item_t *item, uint8_t *target, const uint8_t *source, uint64_t na) {
    uint64_t run = item->run;
    bool gapless = item->a.target == (int64_t)run;
    bool ragged = run % FY_LINE != 0 || (uintptr_t)target % FY_LINE != 0;
    if (item->stream && gapless && ragged && run <= SHORT_RUN) {
        tile_row_staged(item, target, source, na);
    } else {
        fy_rows_fn rows = run < FY_LINE ? item->kernels->rows : rows_of(item);
        rows(target, item->a.target, source, item->a.source, run, na);
    }
}

static void run_tile(const fy_item_t *item, uint64_t first, uint64_t last) {
    if (item->b.extent == 1) {
        for (uint64_t u = first; u < last;) {
            block_t block = locate_stretch(item, u, last, &u);
            tile_row(item, block.target, block.source, block.na);
        }
        return;
    }
    for (uint64_t u = first; u < last; u++) {
        block_t block = locate(item, u);
        for (uint64_t j = 0; j < block.nb; j++) {
            tile_row(item, block.target, block.source, block.na);
            block.target += item->b.target;
            block.source += item->b.source;
        }
    }
}

/* Asks for the lines of a block's source, which is walked next. */
static void prefetch_rows(const fy_item_t *item, const block_t *block) {
    for (uint64_t i = 0; i < block->na; i++) {
        const uint8_t *row = block->source + (int64_t)i * item->a.source;
        for (uint64_t at = 0; at < block->nb * item->run; at += FY_LINE) {
            __builtin_prefetch(row + at);
        }
    }
}

/* The rows of a tile lie a power of two apart more often than not, in one set of the cache; so they are
 * first brought together, each line touched once, and turned from there. */
static void run_turn(const fy_item_t *item, uint64_t first, uint64_t last) {
    const fy_kernels_t *kernels = item->kernels;
    fy_rows_fn rows = rows_of(item);
    fy_turn_fn turn = kernels->turn[__builtin_ctzll(item->run)];
    const size_t read_pitch = item->b_block * item->run;
    const size_t pitch = item->a_block * item->run;
    _Alignas(FY_LINE) uint8_t as_read[STAGE];
    _Alignas(FY_LINE) uint8_t turned[STAGE];
    block_t next = locate(item, first);
    for (uint64_t u = first; u < last; u++) {
        block_t block = next;
        kernels->rows(as_read, (int64_t)read_pitch, block.source, item->a.source,
                      block.nb * item->run, block.na);
        if (u + 1 < last) {
            next = locate(item, u + 1);
            prefetch_rows(item, &next);
        }
        turn(turned, pitch, as_read, read_pitch, block.na, block.nb);
        rows(block.target, item->b.target, turned, (int64_t)pitch, block.na * item->run, block.nb);
    }
}

/* A stretch without gaps, streamed: straight from registers where the cast can, else in stages. */
static void cast_streamed(const fy_item_t *item, uint8_t *target, const uint8_t *source,
                          uint64_t count) {
    const uint64_t line = FY_LINE / item->target_width;
    if (item->cast_stream != NULL && (uintptr_t)target % FY_LINE == 0) {
        uint64_t whole = count / line * line;
        item->cast_stream(target, source, whole);
        item->cast(target + whole * item->target_width, source + whole * item->source_width,
                   count - whole);
        return;
    }
    _Alignas(FY_LINE) uint8_t stage[CAST_STAGE * sizeof(double)];
    for (uint64_t at = 0; at < count; at += CAST_STAGE) {
        uint64_t now = fy_min_u64(CAST_STAGE, count - at);
        item->cast(stage, source + at * item->source_width, now);
        item->kernels->rows_stream(target + at * item->target_width, 0, stage, 0,
                                   now * item->target_width, 1);
    }
}

static void run_cast_long(const fy_item_t *item, uint64_t first, uint64_t last) {
    for (uint64_t u = first; u < last;) {
        block_t block = locate_stretch(item, u, last, &u);
        if (item->stream) {
            cast_streamed(item, block.target, block.source, block.na);
        } else {
            item->cast(block.target, block.source, block.na);
        }
    }
}

/* Gathered in the order of the target. */
static void gather(const fy_item_t *item, const block_t *block, uint8_t *stage) {
    size_t width = item->source_width;
    if (item->b.source == (int64_t)width && item->a.source > 0) {
        item->kernels->turn[__builtin_ctz((unsigned)width)](
            stage, block->na * width, block->source, (size_t)item->a.source, block->na, block->nb);
        return;
    }
    const uint8_t *source = block->source;
    for (uint64_t j = 0; j < block->nb; j++, source += item->b.source) {
        item->kernels->rows(stage + j * block->na * width, (int64_t)width, source, item->a.source,
                            width, block->na);
    }
}

static void run_cast_tile(const fy_item_t *item, uint64_t first, uint64_t last) {
    _Alignas(FY_LINE) uint8_t as_read[CAST_STAGE * sizeof(double)];
    _Alignas(FY_LINE) uint8_t as_cast[CAST_STAGE * sizeof(double)];
    size_t width = item->target_width;
    for (uint64_t u = first; u < last; u++) {
        block_t block = locate(item, u);
        gather(item, &block, as_read);
        item->cast(as_cast, as_read, block.na * block.nb);
        size_t row = block.na * width;
        if (item->a.target == (int64_t)width) {
            rows_of(item)(block.target, item->b.target, as_cast, (int64_t)row, row, block.nb);
            continue;
        }
        for (uint64_t j = 0; j < block.nb; j++, block.target += item->b.target) {
            item->kernels->rows(block.target, item->a.target, as_cast + j * row, (int64_t)width,
                                width, block.na);
        }
    }
}

void fy_item_run(const fy_item_t *item, uint64_t first, uint64_t last) {
    if (first >= last) {
        return;
    }
    switch (item->kind) {
    case FY_ITEM_LONG:
        run_long(item, first, last);
        break;
    case FY_ITEM_TILE:
        run_tile(item, first, last);
        break;
    case FY_ITEM_TURN:
        run_turn(item, first, last);
        break;
    case FY_ITEM_CAST_LONG:
        run_cast_long(item, first, last);
        break;
    case FY_ITEM_CAST_TILE:
        run_cast_tile(item, first, last);
        break;
    }
}
