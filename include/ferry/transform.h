/* transform.h - tensors that do not arrive as they left.
 *
 * A transform takes over the tensors that it names: it says which payloads travel for a slice (any number
 * up to FERRY_MAX_PAYLOADS, of any dtype and shape), fills them on the sender and takes them in on the
 * receiver. ferry moves the payloads, gives them memory inside the session's budget where the transform
 * has none, and calls it in this order:
 *
 *   once per session:  should_transform   for every tensor of the plan, on every rank; all must agree
 *                      reserve            for every such tensor that has a target here
 *                      prepare_send       for every slice that this rank sends: what will travel
 *                      prepare_recv       for every slice that this rank gets: where it will land
 *   in every run:      begin
 *                      fill_send          per slice, before its payloads travel
 *                      finalize_recv      per slice, when all its payloads have landed. Under a gate
 *                                         (reshard.h) after the decision: it must not fail there for
 *                                         reasons that prepare_recv could have seen
 *   at the end:        release            the session is closed; memory from `staging` is gone
 *
 * A session that searches for a way to stay inside its budget may prepare several times: `release`, then
 * `reserve` and the prepares again, with smaller slices.
 *
 * The two prepares give the same number of payloads with the same shapes; ferry compares them before a
 * byte moves. A payload whose view has `data` is sent from there, or received there (under a gate it is
 * staged, and copied there just before finalize_recv). One without gets memory: for fill_send, staging
 * without gaps; for finalize_recv, staging, or, where this rank can address it, the sender's own
 * memory, to be read only and with the sender's strides. Addresses may not change between runs.
 *
 * Ownership: the table and its context outlive every session that uses them. Slices and views are
 * borrowed during a call. A transform serves one session at a time.
 * Thread safety: calls come from one thread at a time, the one that drives the session. */
#ifndef FERRY_TRANSFORM_H
#define FERRY_TRANSFORM_H

#include <ferry/kernel.h>
#include <ferry/plan.h>
#include <ferry/view.h>

FERRY_BEGIN_DECLS

#define FERRY_MAX_PAYLOADS 4

/* A part of a tensor that travels, as one of its ends sees it. */
typedef struct ferry_slice {
    const char *name;
    uint64_t task_id;
    uint32_t peer;       /* rank at the other end */
    ferry_dtype_t dtype; /* of the tensor at this end, as the plan has it */
    uint32_t ndim;
    const uint64_t *local_shape; /* of this rank's whole local tensor */
    const uint64_t *lo;          /* of the slice in it */
    const uint64_t *extent;
    uint32_t copy; /* receiving under a flip: which of the two copies (0 or 1) is written; else 0 */
} ferry_slice_t;

/* Memory inside the budget of a session. */
typedef struct ferry_staging ferry_staging_t;

/* Shared memory that lives as long as the session, zeroed. FERRY_NOMEM when the budget does not allow it;
 * the text says what it would take. */
FERRY_API ferry_status_t ferry_staging_take(ferry_staging_t *staging, uint64_t bytes,
                                            void **memory_p, ferry_error_t *err);

/* May be NULL: reserve, begin, fill_send, release. */
typedef struct ferry_transform {
    size_t size;      /* sizeof(ferry_transform_t) */
    const char *name; /* for messages */
    void *context;
    bool (*should_transform)(void *context, const char *name);
    /* A target tensor of this rank; `copies` is 2 under a flip, else 1. */
    ferry_status_t (*reserve)(void *context, const char *name, ferry_dtype_t dtype, uint32_t ndim,
                              const uint64_t *local_shape, uint32_t copies,
                              ferry_staging_t *staging, ferry_error_t *err);
    /* `source` is the slice of the sender's tensor. payloads has room for FERRY_MAX_PAYLOADS; set dtype,
     * ndim, shape and, where the transform has the memory, data, strides and kind. */
    ferry_status_t (*prepare_send)(void *context, const ferry_slice_t *slice,
                                   const ferry_view_t *source, ferry_view_t *payloads,
                                   size_t *count_p, ferry_error_t *err);
    ferry_status_t (*prepare_recv)(void *context, const ferry_slice_t *slice,
                                   ferry_view_t *payloads, size_t *count_p, ferry_error_t *err);
    ferry_status_t (*begin)(void *context, ferry_error_t *err);
    ferry_status_t (*fill_send)(void *context, const ferry_slice_t *slice,
                                const ferry_view_t *source, const ferry_view_t *payloads,
                                size_t count, ferry_error_t *err);
    ferry_status_t (*finalize_recv)(void *context, const ferry_slice_t *slice,
                                    const ferry_view_t *payloads, size_t count, ferry_error_t *err);
    void (*release)(void *context);
} ferry_transform_t;

#define FERRY_TRANSFORM_INIT                                                                       \
    { sizeof(ferry_transform_t), "transform", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* ---- MXFP8 ------------------------------------------------------------------------------------ */

/* A target that is kept quantised (kernel.h): this rank's shard of the tensor. */
typedef struct ferry_mx_target {
    const char *name;
    ferry_mx_layout_t layout; /* of the scales */
    /* Per copy; the second only under a flip. `data` is f8e4m3 and has the local shape; `scales` is e8m0:
     * FERRY_MX_ROWS: the local shape, last dim divided by 32; FERRY_MX_SWIZZLED: one dim of
     * ferry_mx_swizzled_bytes. Any strides for data and ROWS scales. */
    ferry_view_t data[2];
    ferry_view_t scales[2];
} ferry_mx_target_t;

typedef enum ferry_mx_convert {
    /* The values travel as they are and are quantised where they land. With FERRY_MX_SWIZZLED slices
     * gather in a BF16 accumulator of the whole shard (from `staging`) and are quantised once, when the
     * last has come. */
    FERRY_MX_ON_RECEIVER = 0,
    /* Data and scales travel: two payloads, a little more than half the bytes. */
    FERRY_MX_ON_SENDER = 1,
} ferry_mx_convert_t;

typedef struct ferry_mxfp8 ferry_mxfp8_t;

/* `names` are the tensors that are quantised, on all ranks; `targets` those of them that this rank holds
 * (may be none: a rank that only sends). Everything is copied; the memory behind the views is borrowed.
 * Slices must be whole blocks of 32 along the last dim, must not overlap and must together be the shard:
 * anything else is an error at prepare, with the tensor and the region. Sources are f32 f16 bf16. */
FERRY_API ferry_status_t ferry_mxfp8_create(const char *const *names, size_t nnames,
                                            const ferry_mx_target_t *targets, size_t ntargets,
                                            ferry_mx_convert_t convert, ferry_mxfp8_t **mxfp8_p,
                                            ferry_error_t *err);
FERRY_API void ferry_mxfp8_destroy(ferry_mxfp8_t *mxfp8); /* NULL is fine */
/* Borrowed. */
FERRY_API const ferry_transform_t *ferry_mxfp8_transform(ferry_mxfp8_t *mxfp8);

FERRY_END_DECLS

#endif
