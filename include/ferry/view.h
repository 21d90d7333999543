/* view.h - a tensor in memory: an address, a dtype, a shape and strides.
 *
 * A shard, a slice of a fused parameter, a transposed or a padded tensor are all views; those who move
 * bytes know nothing else. Strides count elements and may be zero or negative; whoever is written to
 * must not have two indices at one address (ferry_view_overlaps). No dims is one element.
 *
 * Ownership: a view borrows its memory and is itself plain memory; copy it freely.
 * Thread safety: no shared state. */
#ifndef FERRY_VIEW_H
#define FERRY_VIEW_H

#include <stdbool.h>

#include <ferry/dtype.h>
#include <ferry/layout.h>

FERRY_BEGIN_DECLS

/* Numbers are stable. */
typedef enum ferry_mem_kind {
    FERRY_MEM_HOST = 0,   /* this process's memory */
    FERRY_MEM_SHARED = 1, /* memory that peers on this host may map */
    FERRY_MEM_CUDA = 2,   /* memory of the GPU `device` */
} ferry_mem_kind_t;

typedef struct ferry_view {
    void *data; /* of the element with index 0 in every dim; may be NULL when there is no element */
    ferry_dtype_t dtype;
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    int64_t strides[FERRY_MAX_DIMS]; /* in elements */
    ferry_mem_kind_t kind;
    int32_t device; /* 0 unless `kind` has several */
} ferry_view_t;

/* A row-major view without gaps, of kind HOST. FERRY_OVERFLOW when its bytes pass 63 bits. */
FERRY_API ferry_status_t ferry_view_contiguous(void *data, ferry_dtype_t dtype, uint32_t ndim,
                                               const uint64_t *shape, ferry_view_t *view_p,
                                               ferry_error_t *err);

/* The box that starts at lo[] and has extent[] (one number per dim), in the same memory.
 * FERRY_INVALID when it leaves the view. */
FERRY_API ferry_status_t ferry_view_slice(const ferry_view_t *view, const uint64_t *lo,
                                          const uint64_t *extent, ferry_view_t *view_p,
                                          ferry_error_t *err);

/* The same elements with dim i of the result being dim perm[i] of `view`. */
FERRY_API ferry_status_t ferry_view_transpose(const ferry_view_t *view, const uint32_t *perm,
                                              ferry_view_t *view_p, ferry_error_t *err);

/* Elements of the view. FERRY_OVERFLOW past 63 bits. */
FERRY_API ferry_status_t ferry_view_elements(const ferry_view_t *view, uint64_t *elements_p,
                                             ferry_error_t *err);

/* The bytes that the view touches, relative to `data`: from *low_p (0 or negative) up to but not
 * including *high_p. Both are 0 for a view without elements. Also the check of a view: FERRY_INVALID
 * for a bad dtype, too many dims, or no memory; FERRY_OVERFLOW when it leaves the address space. */
FERRY_API ferry_status_t ferry_view_extent(const ferry_view_t *view, int64_t *low_p,
                                           int64_t *high_p, ferry_error_t *err);

/* Whether two different indices have one address. Exact for every view that people make; for strides
 * so odd that the search would take too long the answer is FERRY_UNSUPPORTED. */
FERRY_API ferry_status_t ferry_view_overlaps(const ferry_view_t *view, bool *overlaps_p,
                                             ferry_error_t *err);

FERRY_END_DECLS

#endif
