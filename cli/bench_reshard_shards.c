/* bench_reshard_shards.c - where a rank's tensors lie in its memory.
 *
 * Invariant: shards begin on multiples of ALIGN, so that neither side is favoured by where a tensor happens
 * to begin; their order is that of the model's tensors. */
#include "bench_reshard_shards.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { ALIGN = 512 };

static uint64_t align_up(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static ferry_status_t size_scales(const reshard_case_t *asked, reshard_shard_t *shard,
                                  ferry_error_t *err) {
    if (asked->mx_layout == FERRY_MX_SWIZZLED) {
        return ferry_mx_swizzled_bytes(shard->shape[0], shard->shape[1], &shard->scale_bytes, err);
    }
    shard->scale_bytes = shard->elements / FERRY_MX_BLOCK;
    return FERRY_OK;
}

/* Everything but where it lies. */
static ferry_status_t describe(const reshard_case_t *asked, const ferry_tensor_t *tensor,
                               bench_side_t side, uint32_t rank, reshard_shard_t *shard,
                               ferry_error_t *err) {
    shard->held = ferry_layout_find(tensor->layout, rank, NULL);
    shard->mx = side == BENCH_TARGET && reshard_is_mx(asked, tensor);
    shard->dtype = shard->mx ? FERRY_F8E4M3 : tensor->dtype;
    shard->ndim = tensor->ndim;
    if (!shard->held) {
        return FERRY_OK;
    }
    ferry_status_t status = ferry_layout_local_shape(tensor->layout, tensor->ndim, tensor->shape,
                                                     rank, shard->shape, err);
    if (status != FERRY_OK) {
        return status;
    }
    shard->elements = 1;
    for (uint32_t d = 0; d < shard->ndim; d++) {
        shard->elements *= shard->shape[d];
    }
    return shard->mx ? size_scales(asked, shard, err) : FERRY_OK;
}

ferry_status_t reshard_shards_init(const reshard_case_t *asked, const reshard_model_t *model,
                                   bench_side_t side, uint32_t rank, reshard_shards_t *shards_p,
                                   ferry_error_t *err) {
    *shards_p = (reshard_shards_t){.count = model->count};
    shards_p->list = calloc(model->count, sizeof *shards_p->list);
    if (shards_p->list == NULL) {
        return cli_fail_nomem(err);
    }
    for (size_t i = 0; i < model->count; i++) {
        reshard_shard_t *shard = &shards_p->list[i];
        ferry_status_t status = describe(asked, &model->tensors[side][i], side, rank, shard, err);
        if (status != FERRY_OK) {
            reshard_shards_fini(shards_p);
            return status;
        }
        shard->at = shards_p->bytes;
        shard->scales = shard->at + align_up(shard->elements * ferry_dtype_bits(shard->dtype) / 8);
        shards_p->bytes = shard->scales + align_up(shard->scale_bytes);
    }
    return FERRY_OK;
}

void reshard_shards_fini(reshard_shards_t *shards) {
    free(shards->list);
    *shards = (reshard_shards_t){0};
}

ferry_status_t reshard_shard_view(const reshard_shard_t *shard, void *base, ferry_view_t *view_p,
                                  ferry_error_t *err) {
    uint8_t *data = shard->elements > 0 ? (uint8_t *)base + shard->at : NULL;
    ferry_status_t status =
        ferry_view_contiguous(data, shard->dtype, shard->ndim, shard->shape, view_p, err);
    if (status == FERRY_OK) {
        view_p->kind = FERRY_MEM_SHARED;
    }
    return status;
}

ferry_status_t reshard_scales_view(const reshard_shard_t *shard, ferry_mx_layout_t layout,
                                   void *base, ferry_view_t *view_p, ferry_error_t *err) {
    uint8_t *data = shard->scale_bytes > 0 ? (uint8_t *)base + shard->scales : NULL;
    uint64_t rows[2] = {shard->shape[0], shard->shape[1] / FERRY_MX_BLOCK};
    bool swizzled = layout == FERRY_MX_SWIZZLED;
    ferry_status_t status = ferry_view_contiguous(
        data, FERRY_E8M0, swizzled ? 1 : 2, swizzled ? &shard->scale_bytes : rows, view_p, err);
    if (status == FERRY_OK) {
        view_p->kind = FERRY_MEM_SHARED;
    }
    return status;
}
