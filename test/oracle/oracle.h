/* oracle.h - layouts and plans the slow and obvious way, to hold the library against.
 *
 * Nothing here uses code of src/: a layout is turned into plain arrays of global indices, element by
 * element, and a plan is run by copying numbers one at a time. Sizes are capped; every limit is named
 * below and a test that passes one aborts.
 *
 * A check answers false after it has said on stderr what is wrong (orc_fail). */
#ifndef FERRY_TEST_ORACLE_H
#define FERRY_TEST_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/ferry.h>

enum {
    ORC_RANKS = 64, /* of one mesh */
    ORC_PARTS = 32, /* entries of sizes() or ragged() */
    ORC_DIMS = 8,
    ORC_TENSORS = 3,
    ORC_HOSTS = 96,
};

/* One mesh axis and its placement; a plain value, unlike ferry_placement_t. */
typedef struct orc_axis {
    char name[FERRY_MAX_AXIS_NAME + 1];
    uint32_t size;
    ferry_placement_kind_t kind;
    ferry_reduce_op_t op;
    ferry_cut_t cut;
    uint32_t dim;
    uint64_t arg;
    uint64_t unit;
    size_t nsizes;
    uint64_t sizes[ORC_PARTS];
    size_t nlengths;
    uint64_t lengths[ORC_PARTS];
} orc_axis_t;

typedef struct orc_layout {
    uint32_t naxes;
    orc_axis_t axes[FERRY_MAX_AXES];
    uint32_t nranks;
    uint32_t ranks[ORC_RANKS];
} orc_layout_t;

/* The global indices that a rank holds of one dim, in local order. */
typedef struct orc_list {
    uint64_t count;
    uint64_t *at;
} orc_list_t;

/* A tensor on a layout: the lists of every rank (by its place in the mesh) and dim. */
typedef struct orc_side {
    const orc_layout_t *layout;
    uint32_t ndim;
    uint64_t shape[ORC_DIMS];
    orc_list_t lists[ORC_RANKS][ORC_DIMS];
} orc_side_t;

typedef struct orc_tensor {
    char name[24];
    uint32_t ndim;
    uint64_t shape[ORC_DIMS];
    ferry_dtype_t source_dtype;
    ferry_dtype_t target_dtype;
    orc_layout_t source;
    orc_layout_t target;
    /* The library sees dim scale_dim, and all cuts of it, this many times as long (0: once), so that
     * there are gigabytes to plan and few elements to copy. */
    uint64_t scale;
    uint32_t scale_dim;
    /* Made by orc_case_open. */
    ferry_layout_t *source_layout;
    ferry_layout_t *target_layout;
    orc_side_t *from;
    orc_side_t *to;
} orc_tensor_t;

/* All that goes into one plan. Tensors are in name order, so that index and ordinal are one; they
 * are handed to the library in the order of `shuffle`. */
typedef struct orc_case {
    uint32_t ntensors;
    orc_tensor_t tensors[ORC_TENSORS];
    uint32_t shuffle[ORC_TENSORS];
    bool extra_source; /* hand over one more source tensor, which has no target */
    uint32_t flags;
    size_t nhosts;
    uint32_t hosts[ORC_HOSTS];
} orc_case_t;

typedef struct orc_transfers {
    size_t count;
    ferry_transfer_t *at;
} orc_transfers_t;

/* Says on stderr what is wrong; always false. */
bool orc_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Aborts when memory is out: a test has nothing better to do. */
void *orc_alloc(size_t count, size_t size);

/* ---- layouts: oracle.c ---- */

/* The rank (0 .. W-1) of axis `a` that holds position `p` of what earlier axes left, `length`. */
uint64_t orc_owner(const orc_axis_t *a, uint64_t p, uint64_t length);
/* Of rank number `index` of the mesh, after the first `naxes` axes. The caller frees list.at. */
orc_list_t orc_list(const orc_layout_t *layout, uint32_t naxes, uint32_t index, uint32_t dim,
                    uint64_t length);
/* The coordinate on `axis` of place `index`. */
uint32_t orc_coord(const orc_layout_t *layout, uint32_t index, uint32_t axis);

orc_side_t *orc_side_make(const orc_layout_t *layout, uint32_t ndim, const uint64_t *shape);
void orc_side_free(orc_side_t *side);
/* Elements held by place `index`. */
uint64_t orc_side_elements(const orc_side_t *side, uint32_t index);
/* A local buffer of place `index`, filled with global element numbers. The caller frees it. */
uint64_t *orc_side_numbers(const orc_side_t *side, uint32_t index);
/* Do two places hold the same elements? Those that hold none do not. */
bool orc_side_same(const orc_side_t *side, uint32_t a, uint32_t b);
/* Does place `index` hold the element at these global coordinates? */
bool orc_side_holds(const orc_side_t *side, uint32_t index, const uint64_t *coords);
/* The place of `rank`, or UINT32_MAX. */
uint32_t orc_place(const orc_layout_t *layout, uint32_t rank);

/* To and from the library's form. */
ferry_layout_t *orc_to_ferry(const orc_layout_t *layout, ferry_error_t *err);
void orc_from_ferry(const ferry_layout_t *from, orc_layout_t *layout_p);

/* ---- cases and plans: exec.c ---- */

/* Makes the layouts and lists of a filled-in case. */
bool orc_case_open(orc_case_t *c);
void orc_case_close(orc_case_t *c);
/* FERRY_RANK_NONE: the whole plan. NULL (and a word) when the library refuses. */
ferry_plan_t *orc_case_plan(const orc_case_t *c, uint32_t part_of);
/* All ranks of all meshes, ascending; returns how many. */
enum { ORC_ALL_RANKS = 2 * ORC_TENSORS * ORC_RANKS };
size_t orc_case_ranks(const orc_case_t *c, uint32_t *ranks);
uint32_t orc_case_host(const orc_case_t *c, uint32_t rank, bool *known_p);
void orc_case_print(const orc_case_t *c);

/* One tensor, layouts in text form; NULL (and a word) when the library refuses them. The case is
 * open; free it with orc_case_free. */
orc_case_t *orc_case_text(ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape,
                          const char *source, const char *target);
void orc_case_free(orc_case_t *c);

/* How often an index of the oracle is there for the library. */
uint64_t orc_scale(const orc_tensor_t *tensor, uint32_t dim);
uint64_t orc_tensor_scale(const orc_tensor_t *tensor);

/* All transfers, boxes in the oracle's indices; elements and bytes as the library says. A box that
 * is no whole number of indices has an extent of 0, which no check lets pass. */
orc_transfers_t orc_collect(const orc_case_t *c, const ferry_plan_t *plan);
bool orc_transfer_equal(const ferry_transfer_t *a, const ferry_transfer_t *b);

/* Copies the numbers and looks at every target. */
bool orc_execute(const orc_case_t *c, const orc_transfers_t *all);
/* Runs a plan of unknown origin, going by the layouts that it names: judge.c. What is too large for
 * the oracle, and parts, pass unseen. */
bool orc_judge(const ferry_plan_t *plan);

/* The group whose values make up what `source` sends, and its reduction of one element: values[i]
 * belongs to the i-th rank of the grid. */
float orc_reduce_f32(const ferry_reduce_t *reduce, const float *values);

/* ---- what a plan promises: check_*.c ---- */

bool orc_check_layouts(const orc_case_t *c);
bool orc_check_fields(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all);
bool orc_check_choice(const orc_case_t *c, const orc_transfers_t *all);
bool orc_check_merged(const orc_case_t *c, const orc_transfers_t *all);
bool orc_check_reduce(const orc_case_t *c, const ferry_plan_t *plan);
bool orc_check_parts(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all);
bool orc_check_codec(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all);
bool orc_check_print(const ferry_plan_t *plan);
bool orc_check_stats(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all);
bool orc_check_schedule(const orc_transfers_t *all, uint64_t slot_bytes, uint32_t max_segments);
/* Every promise above, the schedule with a few slot sizes. */
bool orc_check_all(const orc_case_t *c);
/* The transfers to ranks of `before` are the same in `after`, but for ranks that became targets. */
bool orc_check_grown(const orc_case_t *before, const orc_case_t *after);

/* ---- random cases: random.c ---- */

typedef struct orc_rng {
    uint64_t state;
} orc_rng_t;

uint64_t orc_draw(orc_rng_t *rng, uint64_t bound); /* below bound; 0 when bound is 0 */
bool orc_chance(orc_rng_t *rng, uint32_t percent);

/* Fills in everything but what orc_case_open makes. */
void orc_case_random(orc_rng_t *rng, orc_case_t *c);
/* `c` with one more replica of the target of tensor 0, on ranks that it had not. */
void orc_case_grow(orc_rng_t *rng, const orc_case_t *c, orc_case_t *grown_p);

#endif
