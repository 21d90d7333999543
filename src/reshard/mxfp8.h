/* mxfp8.h - the state of an MXFP8 transform.
 *
 * mxfp8.c makes it and keeps it in step with a session; mxfp8_slice.c has the callbacks per slice. */
#ifndef FERRY_RESHARD_MXFP8_H
#define FERRY_RESHARD_MXFP8_H

#include <ferry/transform.h>

#include "base/memory.h"
#include "reshard/mxfp8_cover.h"

typedef struct fy_mx_target {
    ferry_mx_target_t spec;
    /* From reserve until release. */
    uint32_t copies; /* 0: not reserved */
    uint64_t elements;
    ferry_view_t gathered; /* ON_RECEIVER, SWIZZLED: the accumulator */
    fy_cover_t cover[2];   /* per copy: the slices that were prepared */
    /* In a run. */
    uint64_t arrived; /* SWIZZLED: elements */
} fy_mx_target_t;

struct ferry_mxfp8 {
    ferry_transform_t table;
    ferry_mx_convert_t convert;
    fy_arena_t arena;   /* names and targets */
    const char **names; /* sorted */
    size_t nnames;
    fy_mx_target_t *targets; /* sorted by name */
    size_t ntargets;
    bool complete; /* all prepared slices together are the shards */
};

/* NULL when this rank has none. */
fy_mx_target_t *fy_mx_find(const ferry_mxfp8_t *mxfp8, const char *name);

/* FERRY_MISMATCH unless MXFP8 can be made of it. */
ferry_status_t fy_mx_check_source(ferry_dtype_t dtype, ferry_error_t *err);

/* The callbacks; context is the ferry_mxfp8_t. */
ferry_status_t fy_mx_prepare_send(void *context, const ferry_slice_t *slice,
                                  const ferry_view_t *source, ferry_view_t *payloads,
                                  size_t *count_p, ferry_error_t *err);
ferry_status_t fy_mx_prepare_recv(void *context, const ferry_slice_t *slice, ferry_view_t *payloads,
                                  size_t *count_p, ferry_error_t *err);
ferry_status_t fy_mx_fill_send(void *context, const ferry_slice_t *slice,
                               const ferry_view_t *source, const ferry_view_t *payloads,
                               size_t count, ferry_error_t *err);
ferry_status_t fy_mx_finalize_recv(void *context, const ferry_slice_t *slice,
                                   const ferry_view_t *payloads, size_t count, ferry_error_t *err);

#endif
