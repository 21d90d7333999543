/* flags.c - when the flags of a closed service may be freed.
 *
 * Others look at a rank's flags until they have ended their last run, and a close waits for nobody. So
 * each member, when it closes, counts itself on everyone's flags, and an owner frees its own once all
 * have: here, whenever it makes or closes a service. Nobody looks at them either once the world has
 * recovered without the service: then all were out of it, and whoever runs it again first meets its
 * owner. That is how those of a dead run go.
 *
 * Invariant: flags of a generation that has passed are not touched by anyone but their owner. While the
 * world has failed nothing is freed, since ranks may see different generations then. */
#include "base/fail.h"
#include "service/builtin.h"
#include "world/world.h"

/* Takes from the list what may go. */
static fy_rank_flags_t *take_free(ferry_world_t *world) {
    fy_rank_flags_t *found = NULL;
    fy_rank_flags_t *kept = NULL;
    (void)pthread_mutex_lock(&world->lock);
    for (fy_rank_flags_t *flags = world->retired; flags != NULL;) {
        fy_rank_flags_t *next = flags->next;
        bool all_left = atomic_load(&flags->left) == flags->size;
        bool passed = flags->generation != fy_world_generation(world);
        fy_rank_flags_t **list = all_left || passed ? &found : &kept;
        flags->next = *list;
        *list = flags;
        flags = next;
    }
    world->retired = kept;
    (void)pthread_mutex_unlock(&world->lock);
    return found;
}

void fy_flags_sweep(ferry_world_t *world) {
    if (ferry_world_check(world, NULL) != FERRY_OK) {
        return;
    }
    for (fy_rank_flags_t *flags = take_free(world); flags != NULL;) {
        fy_rank_flags_t *next = flags->next;
        (void)ferry_mem_free(world, flags, NULL);
        flags = next;
    }
}

void fy_flags_leave(const fy_builtin_t *service) {
    ferry_world_t *world = service->world;
    if (fy_world_usable(world, NULL) != FERRY_OK) {
        return; /* a child that was forked by a rank closes for itself alone */
    }
    bool current = service->generation == fy_world_generation(world);
    for (uint32_t member = 0; member < service->size && current; member++) {
        (void)atomic_fetch_add(&service->flags[member]->left, 1);
    }
    fy_rank_flags_t *flags = service->flags[service->me];
    flags->size = service->size;
    flags->generation = service->generation;
    (void)pthread_mutex_lock(&world->lock);
    flags->next = world->retired;
    world->retired = flags;
    (void)pthread_mutex_unlock(&world->lock);
    fy_flags_sweep(world);
}
