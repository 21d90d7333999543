/* common.h - shared memory that several ranks look at, and when its owner may free it.
 *
 * A service, a session: each rank has a piece with flags, and the others look at it until they are done with
 * the last run. Closing waits for nobody. So each member, when it closes, counts itself on everyone's
 * piece, and an owner frees its own once all have: whenever one of its common pieces is made or
 * retired. Nobody looks either once the world has recovered: then all were out of it.
 *
 * Invariant: a piece of a generation that has passed is not touched by anyone but its owner. While the
 * world has failed nothing is freed, since ranks may see different generations then. */
#ifndef FERRY_WORLD_COMMON_H
#define FERRY_WORLD_COMMON_H

#include <stdatomic.h>

#include <ferry/world.h>

/* Somewhere in the piece; zeroed with it. */
typedef struct fy_common {
    _Atomic uint32_t left; /* members that have closed */
    /* For the owner, once it has closed. */
    uint32_t size; /* members in all */
    uint32_t generation;
    void *memory; /* what to free */
    struct fy_common *next;
} fy_common_t;

/* This rank will not look at that piece any more. */
static inline void fy_common_leave(fy_common_t *common) {
    (void)atomic_fetch_add(&common->left, 1);
}
/* The owner is done, too. `generation` is that of the world when the piece was last in use. */
void fy_common_retire(ferry_world_t *world, fy_common_t *common, void *memory, uint32_t size,
                      uint32_t generation);
/* Frees what may be freed. */
void fy_common_sweep(ferry_world_t *world);

#endif
