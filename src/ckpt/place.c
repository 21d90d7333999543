/* place.c - where another spec would put the tensors of a folder. */
#include "base/fail.h"
#include "ckpt/folder.h"

ferry_status_t ferry_folder_place(ferry_folder_t *folder, const ferry_parallel_t *parallel,
                                  ferry_dtype_t dtype, ferry_tensor_set_t **set_p,
                                  ferry_error_t *err) {
    FY_NEED(folder, err);
    FY_NEED(parallel, err);
    FY_NEED(set_p, err);
    FY_TRY(fy_need_rules(folder, err));
    fy_spread_t spread = {.wholes = &folder->wholes,
                          .rules = folder->rules,
                          .config = &folder->config,
                          .parallel = parallel,
                          .flags = folder->flags,
                          .dtype = dtype};
    return fy_place_wholes(&spread, set_p, err);
}
