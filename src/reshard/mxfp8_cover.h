/* mxfp8_cover.h - which blocks of a shard the slices of a session make up.
 *
 * One bit per block, so that the cost of a slice is its own size and not the number of slices, whatever
 * their shapes; a bit stands for 32 elements, so that the bits of a shard take 1/256 of its data.
 *
 * All coordinates are in blocks: the last dim divided by 32. */
#ifndef FERRY_RESHARD_MXFP8_COVER_H
#define FERRY_RESHARD_MXFP8_COVER_H

#include <stdbool.h>

#include <ferry/layout.h>

typedef struct fy_cover {
    uint64_t *words;
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    uint64_t blocks;
    uint64_t covered;
} fy_cover_t;

/* The product of the shape must fit 63 bits. */
ferry_status_t fy_cover_init(fy_cover_t *cover, uint32_t ndim, const uint64_t *shape,
                             ferry_error_t *err);
/* A cover of zeros is fine, too. */
void fy_cover_fini(fy_cover_t *cover);

/* Adds a box, which must lie in the shape. False when a block of it was there before; the cover is then
 * of no more use. */
bool fy_cover_add(fy_cover_t *cover, const uint64_t *lo, const uint64_t *extent);

/* Whether a block is missing; *lo_p (of ndim entries) is the first such. */
bool fy_cover_gap(const fy_cover_t *cover, uint64_t *lo_p);

#endif
