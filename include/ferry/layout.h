/* layout.h - who holds which part of a tensor.
 *
 * A layout is a mesh (an N-D grid of ranks with named axes) and one placement per mesh axis. For a
 * given shape it gives every rank, per tensor dim, an ordered list of global intervals [lo, hi) that
 * the rank holds one after the other in its local memory. Everything after that (plans, checks,
 * bounds) works on those lists and knows no other rule.
 *
 * Axes apply from the first to the last; several may cut one dim, each cutting what the earlier ones
 * left. The text form is described in docs/formats/layout.md:
 *     2x2:R,S0         4:S1@4-7         dp=2xtp=4:R,S0/unit(128)         4:P(sum)
 *
 * Ownership: a layout is immutable and owned by whoever created it; everything passed in is copied.
 * Thread safety: any number of threads may use one layout at once. */
#ifndef FERRY_LAYOUT_H
#define FERRY_LAYOUT_H

#include <stdbool.h>

#include <ferry/status.h>

FERRY_BEGIN_DECLS

#define FERRY_MAX_DIMS 16      /* dims of a tensor */
#define FERRY_MAX_AXES 16      /* axes of a mesh */
#define FERRY_MAX_RANK 1048575 /* largest rank number (a task id holds 20 bits of it) */
#define FERRY_MAX_AXIS_NAME 15

typedef struct ferry_layout ferry_layout_t;

typedef enum ferry_placement_kind {
    FERRY_REPLICATE = 0,
    FERRY_SHARD = 1,
    FERRY_PARTIAL = 2,
} ferry_placement_kind_t;

#define FERRY_REDUCE_MAP(X)                                                                        \
    X(SUM, 0, "sum")                                                                               \
    X(AVG, 1, "avg")                                                                               \
    X(MAX, 2, "max")                                                                               \
    X(MIN, 3, "min")                                                                               \
    X(PRODUCT, 4, "product")

typedef enum ferry_reduce_op {
#define FERRY_REDUCE_ENUM(name, number, text) FERRY_REDUCE_##name = (number),
    FERRY_REDUCE_MAP(FERRY_REDUCE_ENUM)
#undef FERRY_REDUCE_ENUM
} ferry_reduce_op_t;

/* "sum"; "?" for a number that is no operator. Static string. */
FERRY_API const char *ferry_reduce_name(ferry_reduce_op_t op);

/* How an axis of W ranks cuts a length L (of one component, where `sizes` names components). */
typedef enum ferry_cut {
    FERRY_CUT_EVEN = 0,   /* W parts of ceil(L/W); the last ones may be short or empty */
    FERRY_CUT_STRIDE = 1, /* W*arg segments of ceil(L/(W*arg)); rank r holds r, r+W, r+2W, ... */
    FERRY_CUT_CYCLIC = 2, /* blocks of arg elements, dealt to the ranks in turn */
    FERRY_CUT_RAGGED = 3, /* explicit lengths, one per rank */
    FERRY_CUT_STRIDED =
        4, /* StridedShard: arg parts, each cut evenly; rank r holds part r of each */
} ferry_cut_t;

typedef struct ferry_placement {
    ferry_placement_kind_t kind;
    ferry_reduce_op_t op; /* PARTIAL only */
    ferry_cut_t cut;      /* this and all below: SHARD only */
    uint32_t dim;
    uint64_t arg;            /* STRIDE: s >= 1; CYCLIC: block >= 1; STRIDED: split >= 1 */
    uint64_t unit;           /* EVEN, STRIDE, STRIDED: cuts fall on multiples of it; 0 means 1 */
    const uint64_t *sizes;   /* fused components, each cut on its own; they add up to the dim */
    size_t nsizes;           /* 0: one component. Not with RAGGED. */
    const uint64_t *lengths; /* RAGGED: one per rank of the axis */
    size_t nlengths;
} ferry_placement_t;

typedef struct ferry_axis {
    const char *name; /* NULL or "": unnamed */
    uint32_t size;    /* at least 1 */
} ferry_axis_t;

typedef struct ferry_layout_params {
    size_t size; /* sizeof(ferry_layout_params_t) */
    uint32_t naxes;
    const ferry_axis_t *axes;
    const ferry_placement_t *placements; /* one per axis */
    const uint32_t *ranks; /* row-major over the axes, each at most once; NULL: 0, 1, 2, ... */
} ferry_layout_params_t;

#define FERRY_LAYOUT_PARAMS_INIT                                                                   \
    { sizeof(ferry_layout_params_t), 0, NULL, NULL, NULL }

/* Half-open and never empty. */
typedef struct ferry_interval {
    uint64_t lo;
    uint64_t hi;
} ferry_interval_t;

FERRY_API ferry_status_t ferry_layout_create(const ferry_layout_params_t *params,
                                             ferry_layout_t **layout_p, ferry_error_t *err);
FERRY_API ferry_status_t ferry_layout_parse(const char *text, ferry_layout_t **layout_p,
                                            ferry_error_t *err);
/* A copy whose ranks are all `shift` higher. */
FERRY_API ferry_status_t ferry_layout_shift(const ferry_layout_t *layout, uint32_t shift,
                                            ferry_layout_t **layout_p, ferry_error_t *err);
FERRY_API void ferry_layout_destroy(ferry_layout_t *layout); /* NULL is fine */

/* Writes the text form, which parses back to an equal layout. Returns the length it has; buf is
 * always terminated when cap > 0. */
FERRY_API size_t ferry_layout_format(const ferry_layout_t *layout, char *buf, size_t cap);

FERRY_API bool ferry_layout_equal(const ferry_layout_t *a, const ferry_layout_t *b);

FERRY_API uint32_t ferry_layout_naxes(const ferry_layout_t *layout);
/* Borrowed from the layout; axis < naxes. */
FERRY_API const ferry_axis_t *ferry_layout_axis(const ferry_layout_t *layout, uint32_t axis);
FERRY_API const ferry_placement_t *ferry_layout_placement(const ferry_layout_t *layout,
                                                          uint32_t axis);
FERRY_API uint32_t ferry_layout_nranks(const ferry_layout_t *layout);
/* Row-major over the axes; borrowed. */
FERRY_API const uint32_t *ferry_layout_ranks(const ferry_layout_t *layout);
/* True when `rank` is in the mesh; then *index_p (may be NULL) is its row-major place. */
FERRY_API bool ferry_layout_find(const ferry_layout_t *layout, uint32_t rank, uint32_t *index_p);

/* Does this layout fit this shape? Says what does not: a dim out of range, sizes or ragged lengths
 * that do not add up, an element count past 64 bits. */
FERRY_API ferry_status_t ferry_layout_check(const ferry_layout_t *layout, uint32_t ndim,
                                            const uint64_t *shape, ferry_error_t *err);

/* The shape of what `rank` holds (all zero when it is not in the mesh). local_p has ndim entries. */
FERRY_API ferry_status_t ferry_layout_local_shape(const ferry_layout_t *layout, uint32_t ndim,
                                                  const uint64_t *shape, uint32_t rank,
                                                  uint64_t *local_p, ferry_error_t *err);

/* The intervals of `dim` that `rank` holds, ascending, neighbours merged. Writes up to cap of them
 * and always sets *count_p to how many there are. */
FERRY_API ferry_status_t ferry_layout_intervals(const ferry_layout_t *layout, uint32_t ndim,
                                                const uint64_t *shape, uint32_t rank, uint32_t dim,
                                                ferry_interval_t *intervals, size_t cap,
                                                size_t *count_p, ferry_error_t *err);

FERRY_END_DECLS

#endif
