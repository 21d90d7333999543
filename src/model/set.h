/* set.h - inside of a tensor set: who makes one fills it in and hands the placing's layouts over. */
#ifndef FERRY_MODEL_SET_H
#define FERRY_MODEL_SET_H

#include <ferry/model.h>

#include "base/memory.h"

struct ferry_tensor_set {
    fy_arena_t arena; /* tensors, names, shapes */
    ferry_tensor_t *tensors;
    size_t count;
    ferry_layout_t **layouts; /* some may be NULL */
    size_t nlayouts;
};

#endif
