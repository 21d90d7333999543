/* mxfp8.c - targets that are kept quantised: the transform and its memory.
 *
 * What a user can get wrong is found here or in the prepares, before a byte moves: names and targets when
 * the transform is made, views against the plan's shape in reserve, slices when they are prepared, and
 * slices that are missing at the first begin, when all have been named. */
#include "reshard/mxfp8.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"

enum { SHAPE_TEXT = 128 };

/* ---- names ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_targets(const void *a, const void *b) {
    return strcmp(((const fy_mx_target_t *)a)->spec.name, ((const fy_mx_target_t *)b)->spec.name);
}

fy_mx_target_t *fy_mx_find(const ferry_mxfp8_t *mxfp8, const char *name) {
    fy_mx_target_t key = {.spec.name = name};
    return bsearch(&key, mxfp8->targets, mxfp8->ntargets, sizeof key, compare_targets);
}

static bool should_transform(void *context, const char *name) {
    const ferry_mxfp8_t *mxfp8 = context;
    return bsearch(&name, mxfp8->names, mxfp8->nnames, sizeof name, compare_names) != NULL;
}

/* ---- create ---- */

static ferry_status_t copy_names(ferry_mxfp8_t *mxfp8, const char *const *names, size_t count,
                                 ferry_error_t *err) {
    mxfp8->names = fy_arena_alloc(&mxfp8->arena, count, sizeof *mxfp8->names);
    if (mxfp8->names == NULL) {
        return fy_fail_nomem(err, "the names of quantised tensors");
    }
    for (size_t i = 0; i < count; i++) {
        FY_NEED(names[i], err);
        mxfp8->names[i] = fy_arena_string(&mxfp8->arena, names[i]);
        if (mxfp8->names[i] == NULL) {
            return fy_fail_nomem(err, "the names of quantised tensors");
        }
    }
    mxfp8->nnames = count;
    if (count > 0) {
        qsort(mxfp8->names, count, sizeof *mxfp8->names, compare_names);
    }
    for (size_t i = 1; i < count; i++) {
        if (strcmp(mxfp8->names[i - 1], mxfp8->names[i]) == 0) {
            ferry_status_t status = fy_fail(err, FERRY_INVALID, "it is named twice");
            fy_error_tensor(err, mxfp8->names[i]);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t copy_target(ferry_mxfp8_t *mxfp8, const ferry_mx_target_t *from,
                                  fy_mx_target_t *to, ferry_error_t *err) {
    FY_NEED(from->name, err);
    ferry_status_t status = FERRY_OK;
    if (!should_transform(mxfp8, from->name)) {
        status = fy_fail(err, FERRY_INVALID, "a quantised target that is not among the names");
    } else if (from->layout != FERRY_MX_ROWS && from->layout != FERRY_MX_SWIZZLED) {
        status = fy_fail(err, FERRY_INVALID, "%d is no layout of scales", (int)from->layout);
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, from->name);
        return status;
    }
    *to = (fy_mx_target_t){.spec = *from};
    to->spec.name = fy_arena_string(&mxfp8->arena, from->name);
    return to->spec.name == NULL ? fy_fail_nomem(err, "a quantised target") : FERRY_OK;
}

static ferry_status_t copy_targets(ferry_mxfp8_t *mxfp8, const ferry_mx_target_t *targets,
                                   size_t count, ferry_error_t *err) {
    mxfp8->targets = fy_arena_alloc(&mxfp8->arena, count, sizeof *mxfp8->targets);
    if (mxfp8->targets == NULL) {
        return fy_fail_nomem(err, "quantised targets");
    }
    for (size_t i = 0; i < count; i++) {
        FY_TRY(copy_target(mxfp8, &targets[i], &mxfp8->targets[i], err));
    }
    mxfp8->ntargets = count;
    if (count > 0) {
        qsort(mxfp8->targets, count, sizeof *mxfp8->targets, compare_targets);
    }
    for (size_t i = 1; i < count; i++) {
        if (compare_targets(&mxfp8->targets[i - 1], &mxfp8->targets[i]) == 0) {
            ferry_status_t status = fy_fail(err, FERRY_INVALID, "it has two quantised targets");
            fy_error_tensor(err, mxfp8->targets[i].spec.name);
            return status;
        }
    }
    return FERRY_OK;
}

/* ---- reserve ---- */

ferry_status_t fy_mx_check_source(ferry_dtype_t dtype, ferry_error_t *err) {
    if (dtype != FERRY_F32 && dtype != FERRY_F16 && dtype != FERRY_BF16) {
        return fy_fail(err, FERRY_MISMATCH, "MXFP8 is made of f32, f16 or bf16, not of %s",
                       ferry_dtype_name(dtype));
    }
    return FERRY_OK;
}

/* A view that will be written: `role` names it in the message. */
static ferry_status_t check_view(const ferry_view_t *view, const char *role, ferry_dtype_t dtype,
                                 uint32_t ndim, const uint64_t *shape, ferry_error_t *err) {
    if (view->dtype != dtype) {
        return fy_fail(err, FERRY_MISMATCH, "%s: %s, expected %s", role,
                       ferry_dtype_name(view->dtype), ferry_dtype_name(dtype));
    }
    if (view->ndim != ndim || memcmp(view->shape, shape, ndim * sizeof *shape) != 0) {
        char has[SHAPE_TEXT];
        char needs[SHAPE_TEXT];
        fy_text_t text;
        fy_text_init(&text, has, sizeof has);
        fy_text_shape(&text, view->ndim > FERRY_MAX_DIMS ? 0 : view->ndim, view->shape);
        fy_text_init(&text, needs, sizeof needs);
        fy_text_shape(&text, ndim, shape);
        return fy_fail(err, FERRY_MISMATCH, "%s: shape %s, expected %s", role, has, needs);
    }
    if (view->kind == FERRY_MEM_CUDA) {
        return fy_fail(err, FERRY_UNSUPPORTED, "%s: this process cannot address it", role);
    }
    bool overlaps = false;
    ferry_status_t status = ferry_view_overlaps(view, &overlaps, err);
    if (status != FERRY_OK) {
        fy_error_prefix(err, role);
    } else if (overlaps) {
        status = fy_fail(err, FERRY_INVALID, "%s: two of its elements have one address", role);
    }
    return status;
}

/* The views of one copy against the shape of the shard. */
static ferry_status_t check_copy(const fy_mx_target_t *target, uint32_t copy, uint32_t ndim,
                                 const uint64_t *shape, ferry_error_t *err) {
    const ferry_view_t *data = &target->spec.data[copy];
    const ferry_view_t *scales = &target->spec.scales[copy];
    if (copy == 1 && (data->dtype == FERRY_DTYPE_NONE || scales->dtype == FERRY_DTYPE_NONE)) {
        return fy_fail(err, FERRY_INVALID,
                       "the session flips between two copies, and there is no "
                       "second view of data and scales");
    }
    FY_TRY(check_view(data, copy == 0 ? "MXFP8 data" : "MXFP8 data of the second copy",
                      FERRY_F8E4M3, ndim, shape, err));
    const char *role = copy == 0 ? "MXFP8 scales" : "MXFP8 scales of the second copy";
    uint64_t expected[FERRY_MAX_DIMS];
    memcpy(expected, shape, ndim * sizeof *shape);
    if (target->spec.layout == FERRY_MX_ROWS) {
        expected[ndim - 1] /= FERRY_MX_BLOCK;
        return check_view(scales, role, FERRY_E8M0, ndim, expected, err);
    }
    uint64_t columns = shape[ndim - 1];
    uint64_t rows = columns == 0 ? 0 : target->elements / columns;
    FY_TRY(ferry_mx_swizzled_bytes(rows, columns, expected, err));
    FY_TRY(check_view(scales, role, FERRY_E8M0, 1, expected, err));
    if (expected[0] > 1 && scales->strides[0] != 1) {
        return fy_fail(err, FERRY_MISMATCH, "%s: swizzled scales have no gaps", role);
    }
    return FERRY_OK;
}

static ferry_status_t take_accumulator(fy_mx_target_t *target, uint32_t ndim, const uint64_t *shape,
                                       ferry_staging_t *staging, ferry_error_t *err) {
    uint64_t bytes = 0;
    void *memory = NULL;
    FY_TRY(ferry_dtype_bytes(FERRY_BF16, target->elements, &bytes, err));
    if (bytes > 0) {
        FY_TRY(ferry_staging_take(staging, bytes, &memory, err));
    }
    FY_TRY(ferry_view_contiguous(memory, FERRY_BF16, ndim, shape, &target->gathered, err));
    target->gathered.kind = FERRY_MEM_SHARED;
    return FERRY_OK;
}

static ferry_status_t reserve_target(const ferry_mxfp8_t *mxfp8, fy_mx_target_t *target,
                                     ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape,
                                     uint32_t copies, ferry_staging_t *staging,
                                     ferry_error_t *err) {
    if (target->copies != 0) {
        return fy_fail(err, FERRY_INVALID, "this MXFP8 transform serves a session already");
    }
    if (copies < 1 || copies > 2) {
        return fy_fail(err, FERRY_INVALID, "%u copies, expected 1 or 2", copies);
    }
    if (ndim < 1 || ndim > FERRY_MAX_DIMS || shape[ndim - 1] % FERRY_MX_BLOCK != 0) {
        return fy_fail(err, FERRY_INVALID, "the last dim of the shard is no multiple of %d",
                       FERRY_MX_BLOCK);
    }
    if (mxfp8->convert == FERRY_MX_ON_RECEIVER) {
        FY_TRY(fy_mx_check_source(dtype, err));
    }
    ferry_view_t shard;
    FY_TRY(ferry_view_contiguous(NULL, FERRY_F8E4M3, ndim, shape, &shard, err));
    FY_TRY(ferry_view_elements(&shard, &target->elements, err));
    shard.shape[ndim - 1] /= FERRY_MX_BLOCK;
    for (uint32_t copy = 0; copy < copies; copy++) {
        FY_TRY(check_copy(target, copy, ndim, shape, err));
        fy_cover_fini(&target->cover[copy]); /* of a reserve that failed */
        FY_TRY(fy_cover_init(&target->cover[copy], ndim, shard.shape, err));
    }
    if (mxfp8->convert == FERRY_MX_ON_RECEIVER && target->spec.layout == FERRY_MX_SWIZZLED) {
        FY_TRY(take_accumulator(target, ndim, shape, staging, err));
    }
    target->copies = copies;
    return FERRY_OK;
}

static ferry_status_t reserve(void *context, const char *name, ferry_dtype_t dtype, uint32_t ndim,
                              const uint64_t *local_shape, uint32_t copies,
                              ferry_staging_t *staging, ferry_error_t *err) {
    ferry_mxfp8_t *mxfp8 = context;
    fy_mx_target_t *target = fy_mx_find(mxfp8, name);
    ferry_status_t status = FERRY_OK;
    if (target == NULL) {
        status = fy_fail(err, FERRY_INVALID,
                         "it is quantised, and has a target on this rank, but "
                         "no data and scales were given for it");
    } else {
        status = reserve_target(mxfp8, target, dtype, ndim, local_shape, copies, staging, err);
    }
    mxfp8->complete = false;
    if (status != FERRY_OK) {
        fy_error_tensor(err, name);
    }
    return status;
}

/* ---- runs ---- */

/* The first block that no slice brings. */
static ferry_status_t check_complete(const fy_mx_target_t *target, ferry_error_t *err) {
    for (uint32_t copy = 0; copy < target->copies; copy++) {
        const fy_cover_t *cover = &target->cover[copy];
        uint64_t lo[FERRY_MAX_DIMS] = {0};
        if (!fy_cover_gap(cover, lo)) {
            continue;
        }
        uint64_t extent[FERRY_MAX_DIMS];
        for (uint32_t i = 0; i < cover->ndim; i++) {
            extent[i] = 1;
        }
        lo[cover->ndim - 1] *= FERRY_MX_BLOCK;
        extent[cover->ndim - 1] = FERRY_MX_BLOCK;
        ferry_status_t status = fy_fail(
            err, FERRY_INVALID,
            "the slices bring %llu of the %llu elements of the shard; this block is missing",
            (unsigned long long)(cover->covered * FERRY_MX_BLOCK),
            (unsigned long long)target->elements);
        fy_error_tensor(err, target->spec.name);
        fy_error_region(err, cover->ndim, lo, extent);
        return status;
    }
    return FERRY_OK;
}

static ferry_status_t begin(void *context, ferry_error_t *err) {
    ferry_mxfp8_t *mxfp8 = context;
    for (size_t i = 0; i < mxfp8->ntargets; i++) {
        mxfp8->targets[i].arrived = 0;
        if (!mxfp8->complete) {
            FY_TRY(check_complete(&mxfp8->targets[i], err));
        }
    }
    mxfp8->complete = true;
    return FERRY_OK;
}

static void release(void *context) {
    ferry_mxfp8_t *mxfp8 = context;
    for (size_t i = 0; i < mxfp8->ntargets; i++) {
        fy_mx_target_t *target = &mxfp8->targets[i];
        fy_cover_fini(&target->cover[0]);
        fy_cover_fini(&target->cover[1]);
        *target = (fy_mx_target_t){.spec = target->spec};
    }
    mxfp8->complete = false;
}

/* ---- the handle ---- */

ferry_status_t ferry_mxfp8_create(const char *const *names, size_t nnames,
                                  const ferry_mx_target_t *targets, size_t ntargets,
                                  ferry_mx_convert_t convert, ferry_mxfp8_t **mxfp8_p,
                                  ferry_error_t *err) {
    FY_NEED_ARRAY(names, nnames, err);
    FY_NEED_ARRAY(targets, ntargets, err);
    FY_NEED(mxfp8_p, err);
    if (convert != FERRY_MX_ON_RECEIVER && convert != FERRY_MX_ON_SENDER) {
        return fy_fail(err, FERRY_INVALID, "%d is no place to convert", (int)convert);
    }
    const char *isa = NULL; /* kernels that cannot run should not be found out in a run */
    FY_TRY(ferry_kernel_isa(&isa, err));
    ferry_mxfp8_t *mxfp8 = fy_alloc_zero(1, sizeof *mxfp8);
    if (mxfp8 == NULL) {
        return fy_fail_nomem(err, "an MXFP8 transform");
    }
    mxfp8->convert = convert;
    mxfp8->table = (ferry_transform_t){
        .size = sizeof mxfp8->table,
        .name = "mxfp8",
        .context = mxfp8,
        .should_transform = should_transform,
        .reserve = reserve,
        .prepare_send = fy_mx_prepare_send,
        .prepare_recv = fy_mx_prepare_recv,
        .begin = begin,
        .fill_send = convert == FERRY_MX_ON_SENDER ? fy_mx_fill_send : NULL,
        .finalize_recv = fy_mx_finalize_recv,
        .release = release,
    };
    ferry_status_t status = copy_names(mxfp8, names, nnames, err);
    if (status == FERRY_OK) {
        status = copy_targets(mxfp8, targets, ntargets, err);
    }
    if (status != FERRY_OK) {
        ferry_mxfp8_destroy(mxfp8);
        return status;
    }
    *mxfp8_p = mxfp8;
    return FERRY_OK;
}

void ferry_mxfp8_destroy(ferry_mxfp8_t *mxfp8) {
    if (mxfp8 == NULL) {
        return;
    }
    release(mxfp8);
    fy_arena_fini(&mxfp8->arena);
    fy_free(mxfp8);
}

const ferry_transform_t *ferry_mxfp8_transform(ferry_mxfp8_t *mxfp8) {
    return &mxfp8->table;
}
