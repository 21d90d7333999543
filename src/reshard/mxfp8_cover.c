/* mxfp8_cover.c - which blocks of a shard the slices of a session make up.
 *
 * Blocks are numbered in row-major order and bit b of word w stands for block 64 w + b. A box is a set of
 * runs of neighbouring blocks: dims that it fills whole are merged into the run. */
#include "reshard/mxfp8_cover.h"

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"

enum { WORD_BITS = 64 };

ferry_status_t fy_cover_init(fy_cover_t *cover, uint32_t ndim, const uint64_t *shape,
                             ferry_error_t *err) {
    *cover = (fy_cover_t){.ndim = ndim, .blocks = 1};
    for (uint32_t i = 0; i < ndim; i++) {
        cover->shape[i] = shape[i];
        cover->blocks *= shape[i];
    }
    cover->words = fy_alloc_zero(fy_ceil_div(cover->blocks, WORD_BITS), sizeof *cover->words);
    return cover->words == NULL ? fy_fail_nomem(err, "the blocks of a shard") : FERRY_OK;
}

void fy_cover_fini(fy_cover_t *cover) {
    fy_free(cover->words);
    *cover = (fy_cover_t){0};
}

/* Sets `count` bits from `at` on; false when one was set. */
static bool set_run(uint64_t *words, uint64_t at, uint64_t count) {
    uint64_t seen = 0;
    while (count > 0) {
        uint64_t from = at % WORD_BITS;
        uint64_t here = fy_min_u64(count, WORD_BITS - from);
        uint64_t mask = UINT64_MAX << from;
        if (from + here < WORD_BITS) {
            mask &= ~(UINT64_MAX << (from + here));
        }
        seen |= words[at / WORD_BITS] & mask;
        words[at / WORD_BITS] |= mask;
        at += here;
        count -= here;
    }
    return seen == 0;
}

bool fy_cover_add(fy_cover_t *cover, const uint64_t *lo, const uint64_t *extent) {
    uint64_t stride[FERRY_MAX_DIMS];
    uint64_t size = 1;
    uint64_t at = 0;
    uint64_t boxed = 1;
    for (uint32_t i = cover->ndim; i-- > 0;) {
        stride[i] = size;
        size *= cover->shape[i];
        at += lo[i] * stride[i];
        boxed *= extent[i];
    }
    if (cover->ndim == 0 || boxed == 0) {
        return true;
    }
    /* The run is the dims from `outer` on; the others are counted through. */
    uint32_t outer = cover->ndim - 1;
    uint64_t run = extent[outer];
    while (outer > 0 && extent[outer] == cover->shape[outer]) {
        outer--;
        run *= extent[outer];
    }
    uint64_t index[FERRY_MAX_DIMS] = {0};
    for (uint64_t done = 0; done < boxed; done += run) {
        if (!set_run(cover->words, at, run)) {
            return false;
        }
        for (uint32_t i = outer; i-- > 0;) {
            at += stride[i];
            if (++index[i] < extent[i]) {
                break;
            }
            at -= index[i] * stride[i];
            index[i] = 0;
        }
    }
    cover->covered += boxed;
    return true;
}

bool fy_cover_gap(const fy_cover_t *cover, uint64_t *lo_p) {
    if (cover->covered == cover->blocks) {
        return false;
    }
    uint64_t word = 0;
    while (cover->words[word] == UINT64_MAX) {
        word++;
    }
    uint64_t at = word * WORD_BITS + (uint64_t)__builtin_ctzll(~cover->words[word]);
    for (uint32_t i = cover->ndim; i-- > 0;) {
        lo_p[i] = at % cover->shape[i];
        at /= cover->shape[i];
    }
    return true;
}
