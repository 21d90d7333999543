/* pack.h - packing the pieces of one pair into as few batches as first-fit-decreasing gives.
 *
 * A packer is a workspace that serves one pair after the other; it only grows. */
#ifndef FERRY_SCHED_PACK_H
#define FERRY_SCHED_PACK_H

#include <stdbool.h>

#include "sched/radix.h"

typedef struct fy_packer {
    uint64_t slot_bytes;   /* > 0 */
    uint32_t max_segments; /* > 0 */
    uint64_t *room;        /* tree of bins, see pack.c */
    size_t room_cap;
    uint32_t *used; /* pieces in each bin */
    size_t used_cap;
} fy_packer_t;

void fy_packer_init(fy_packer_t *packer, uint64_t slot_bytes, uint32_t max_segments);
void fy_packer_fini(fy_packer_t *packer);

/* Gives each piece a bin. In: key is the piece's bytes (1 to slot_bytes; their sum fits 64 bits),
 * value its item, ascending. Out: key is its bin (0, 1, ...), and the pieces are ordered by bin, then
 * item. scratch has room for n. False when memory is out. */
bool fy_pack(fy_packer_t *packer, fy_keyed_t *pieces, fy_keyed_t *scratch, size_t n);

#endif
