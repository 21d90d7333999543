/* launch.c - what starting ranks as threads and as processes has in common. */
#include "world/launch.h"

#include "base/fail.h"

ferry_status_t fy_launch_init(fy_launch_t *launch, const fy_kind_t *kind, uint32_t size,
                              ferry_rank_fn_t fn, void *context, const ferry_world_params_t *params,
                              ferry_error_t *err) {
    if (fn == NULL) {
        return fy_fail(err, FERRY_INVALID, "ferry_world_run_%s: fn is NULL", kind->name);
    }
    *launch = (fy_launch_t){.size = size, .fn = fn, .context = context};
    FY_TRY(fy_world_params(params, size, &launch->params, err));
    FY_TRY(fy_space_create(size, launch->params.arena_bytes, &launch->space, err));
    for (uint32_t rank = 0; rank < size; rank++) {
        const uint32_t *hosts = launch->params.hosts;
        fy_world_describe(&launch->space->slots[rank], hosts != NULL ? hosts[rank] : 0);
    }
    ferry_status_t status = fy_world_create(launch->space, kind, size, launch->params.timeout_ms,
                                            &launch->watcher, err);
    if (status != FERRY_OK) {
        fy_launch_fini(launch);
    }
    return status;
}

void fy_launch_fini(fy_launch_t *launch) {
    fy_world_destroy(launch->watcher);
    fy_space_release(launch->space);
}

ferry_status_t fy_launch_outcome(const fy_launch_t *launch, const ferry_rank_result_t *results,
                                 ferry_error_t *err) {
    FY_TRY(fy_world_agreed(launch->watcher, err));
    for (uint32_t rank = 0; rank < launch->size; rank++) {
        if (results[rank].status != FERRY_OK) {
            if (err != NULL) {
                *err = results[rank].error;
            }
            return results[rank].status;
        }
    }
    return FERRY_OK;
}
