/* launch.h - what starting ranks as threads and as processes has in common. */
#ifndef FERRY_WORLD_LAUNCH_H
#define FERRY_WORLD_LAUNCH_H

#include "world/world.h"

typedef struct fy_launch {
    fy_space_t *space;
    ferry_world_t *watcher; /* the launcher's own handle; its rank is `size` */
    ferry_world_params_t params;
    uint32_t size;
    ferry_rank_fn_t fn;
    void *context;
} fy_launch_t;

/* Checks the arguments, makes the space and describes all slots. */
ferry_status_t fy_launch_init(fy_launch_t *launch, const fy_kind_t *kind, uint32_t size,
                              ferry_rank_fn_t fn, void *context, const ferry_world_params_t *params,
                              ferry_error_t *err);
void fy_launch_fini(fy_launch_t *launch);
/* When all ranks have ended: the world's first error, or else the first rank's that has one. */
ferry_status_t fy_launch_outcome(const fy_launch_t *launch, const ferry_rank_result_t *results,
                                 ferry_error_t *err);

#endif
