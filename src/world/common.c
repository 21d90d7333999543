/* common.c - the list of pieces that their owner has done with. */
#include "world/common.h"

#include <ferry/mem.h>

#include "world/world.h"

/* Takes from the list what may go. */
static fy_common_t *take_free(ferry_world_t *world) {
    fy_common_t *found = NULL;
    fy_common_t *kept = NULL;
    (void)pthread_mutex_lock(&world->lock);
    for (fy_common_t *common = world->retired; common != NULL;) {
        fy_common_t *next = common->next;
        bool all_left = atomic_load(&common->left) == common->size;
        bool passed = common->generation != fy_world_generation(world);
        fy_common_t **list = all_left || passed ? &found : &kept;
        common->next = *list;
        *list = common;
        common = next;
    }
    world->retired = kept;
    (void)pthread_mutex_unlock(&world->lock);
    return found;
}

void fy_common_sweep(ferry_world_t *world) {
    if (ferry_world_check(world, NULL) != FERRY_OK) {
        return;
    }
    for (fy_common_t *common = take_free(world); common != NULL;) {
        fy_common_t *next = common->next;
        (void)ferry_mem_free(world, common->memory, NULL);
        common = next;
    }
}

void fy_common_retire(ferry_world_t *world, fy_common_t *common, void *memory, uint32_t size,
                      uint32_t generation) {
    common->size = size;
    common->generation = generation;
    common->memory = memory;
    (void)pthread_mutex_lock(&world->lock);
    common->next = world->retired;
    world->retired = common;
    (void)pthread_mutex_unlock(&world->lock);
    fy_common_sweep(world);
}
