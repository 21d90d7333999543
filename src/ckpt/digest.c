/* digest.c - the digest that adds up from parts: which cells of memory are walked, in which order.
 *
 * The sum does not ask for the order, so dims are walked as they lie in memory, and a dim that runs
 * backwards in memory is turned round: its places then fall instead. Dims and places are in bytes. Offsets need
 * no checks: each is that of an element of a view whose extent was checked, and so is each place. */
#include "ckpt/digest.h"

#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "kernel/item.h"

enum {
    ENOUGH_CELLS = 32, /* an innermost loop of so many hides what it costs to begin one */
    TURN_LEAST = 8,    /* elements each way that make it worth turning a transpose */
    TURN_RUN = 256,    /* bytes of a run when it is turned */
    TURN_RUNS = 64,    /* how many are turned at once */
};

typedef struct dim {
    uint64_t extent; /* >= 2 */
    int64_t memory;  /* step in memory; >= 0 */
    int64_t place;   /* step in the whole tensor */
} dim_t;

/* A box of runs. dims[] are by growing step in memory. */
typedef struct box {
    const uint8_t *data;
    size_t run; /* bytes without gaps on either side */
    uint32_t ndim;
    dim_t dims[FERRY_MAX_DIMS + 1]; /* one more for the cells of a run */
} box_t;

/* ---- arithmetic ---- */

static fy_pair_t plus(fy_pair_t a, fy_pair_t b) {
    return (fy_pair_t){{a.of[0] ^ b.of[0], a.of[1] ^ b.of[1]}};
}

/* x^(8 * bytes), bytes of either sign. */
static fy_pair_t power(const fy_digest_way_t *way, int64_t bytes) {
    bool back = bytes < 0;
    return fy_digest_power(way, back ? UINT64_C(0) - (uint64_t)bytes : (uint64_t)bytes, back);
}

/* What a step of so many bytes multiplies sums with. */
static fy_factor_t factor(const fy_digest_way_t *way, int64_t bytes) {
    const fy_pair_t x64 = {{FY_DIGEST_MODULUS_0, FY_DIGEST_MODULUS_1}};
    fy_pair_t low = power(way, -bytes);
    fy_pair_t high = way->multiply(low, x64);
    return (fy_factor_t){{{low.of[0], high.of[0]}, {low.of[1], high.of[1]}}, NULL};
}

static void add(ferry_digest_t *digest, fy_pair_t pair) {
    digest->low ^= pair.of[0];
    digest->high ^= pair.of[1];
}

/* ---- the walk ---- */

/* How far the last cell lies behind the first, in the whole tensor. */
static int64_t reach_of(const dim_t *dims, uint32_t ndim) {
    int64_t reach = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        reach += (int64_t)(dims[i].extent - 1) * dims[i].place;
    }
    return reach;
}

/* The sum over all runs of a box, none longer than a cell, as seen from the first one. */
static fy_pair_t walk(const fy_digest_way_t *way, const box_t *box) {
    const dim_t *dims = box->dims;
    uint32_t ndim = box->ndim;
    fy_cells_t cells = {.width = box->run, .count = 1};
    fy_factor_t carry[FERRY_MAX_DIMS + 1] = {0};
    uint64_t index[FERRY_MAX_DIMS + 1] = {0};
    if (ndim > 0) {
        cells.count = dims[0].extent;
        cells.pitch = dims[0].memory;
        cells.step = factor(way, dims[0].place);
    }
    for (uint32_t i = 1; i < ndim; i++) {
        carry[i] = factor(way, dims[i].place - reach_of(dims, i));
    }
    fy_table_t tables[2];
    for (uint32_t i = 0; i < 2 && i < ndim && way->tabulate != NULL; i++) {
        fy_factor_t *often = i == 0 ? &cells.step : &carry[i];
        way->tabulate(often, &tables[i]);
        often->table = &tables[i];
    }
    fy_sums_t sums = {0};
    const uint8_t *data = box->data;
    for (uint32_t at = 0;;) {
        way->fold(&sums, &cells, data, &carry[at]);
        for (at = 1; at < ndim && ++index[at] == dims[at].extent; at++) {
            index[at] = 0;
            data -= (int64_t)(dims[at].extent - 1) * dims[at].memory;
        }
        if (at >= ndim) {
            break;
        }
        data += dims[at].memory;
    }
    fy_pair_t sum = way->finish(&sums, box->run);
    /* cppcheck-suppress returnDanglingLifetime ; a pair holds no pointer */
    return way->multiply(sum, power(way, reach_of(dims, ndim)));
}

/* Puts the dim that is best walked first to the front: the first that is long enough, or the longest. */
static void choose_inner(box_t *box) {
    uint32_t best = 0;
    for (uint32_t i = 0; i < box->ndim && box->dims[best].extent < ENOUGH_CELLS; i++) {
        best = box->dims[i].extent > box->dims[best].extent ? i : best;
    }
    for (; best > 0; best--) {
        dim_t dim = box->dims[best];
        box->dims[best] = box->dims[best - 1];
        box->dims[best - 1] = dim;
    }
}

/* The sum over a box of runs of any length. Runs longer than a cell are cut into cells, which are one more
 * dim, and what is left of each, which is a box of its own. */
static fy_pair_t sum_box(const fy_digest_way_t *way, const box_t *box) {
    fy_pair_t sum = {{0, 0}};
    size_t whole = box->run / way->cell;
    size_t rest = box->run % way->cell;
    box_t part = *box;
    if (whole > 0) {
        part.run = way->cell;
        if (whole > 1) {
            memmove(part.dims + 1, part.dims, box->ndim * sizeof *part.dims);
            part.dims[0] = (dim_t){whole, (int64_t)way->cell, (int64_t)way->cell};
            part.ndim++;
        } else {
            choose_inner(&part);
        }
        sum = walk(way, &part);
    }
    if (rest > 0) {
        part = *box;
        part.data += box->run - rest;
        part.run = rest;
        choose_inner(&part);
        fy_pair_t ends = walk(way, &part);
        sum = plus(sum, way->multiply(ends, power(way, (int64_t)(box->run - rest))));
    }
    return sum;
}

/* ---- transposes ---- */

/* A box of single elements, without gaps in memory along one dim and in the tensor along another. */
typedef struct turn {
    dim_t near;    /* in memory */
    dim_t next;    /* in the tensor */
    box_t rest;    /* the other dims */
    fy_turn_fn fn; /* how elements of this width are turned */
} turn_t;

static bool is_turned(const box_t *box, turn_t *turn_p) {
    const fy_kernels_t *kernels = NULL;
    int64_t width = (int64_t)box->run;
    *turn_p = (turn_t){.rest = {.data = box->data, .run = box->run}};
    for (uint32_t i = 0; i < box->ndim; i++) {
        const dim_t *dim = &box->dims[i];
        if (dim->memory == width && dim->extent >= TURN_LEAST && turn_p->near.extent == 0) {
            turn_p->near = *dim;
        } else if (dim->place == width && dim->extent >= TURN_LEAST && turn_p->next.extent == 0) {
            turn_p->next = *dim;
        } else {
            turn_p->rest.dims[turn_p->rest.ndim++] = *dim;
        }
    }
    if (box->run > 8 || (box->run & (box->run - 1)) != 0 || turn_p->near.extent == 0 ||
        turn_p->next.extent == 0 || fy_kernels_get(&kernels, NULL) != FERRY_OK) {
        return false;
    }
    turn_p->fn = kernels->turn[__builtin_ctzll(box->run)];
    return true;
}

/* The sum over the two dims: tiles are turned into runs first, each of which is then one cell or few. */
static fy_pair_t sum_plane(const fy_digest_way_t *way, const turn_t *turn, const uint8_t *data) {
    _Alignas(64) uint8_t tile[TURN_RUNS * TURN_RUN];
    uint64_t width = turn->rest.run;
    uint64_t edge = TURN_RUN / width;
    fy_pair_t sum = {{0, 0}};
    for (uint64_t i = 0; i < turn->next.extent; i += edge) {
        uint64_t ni = fy_min_u64(edge, turn->next.extent - i);
        for (uint64_t j = 0; j < turn->near.extent; j += TURN_RUNS) {
            uint64_t nj = fy_min_u64(TURN_RUNS, turn->near.extent - j);
            turn->fn(tile, TURN_RUN, data + i * (uint64_t)turn->next.memory + j * width,
                     (size_t)turn->next.memory, ni, nj);
            box_t runs = {.data = tile, .run = ni * width, .ndim = nj > 1 ? 1 : 0};
            runs.dims[0] = (dim_t){nj, TURN_RUN, turn->near.place};
            int64_t place = (int64_t)(i * width) + (int64_t)j * turn->near.place;
            sum = plus(sum, way->multiply(sum_box(way, &runs), power(way, place)));
        }
    }
    return sum;
}

static fy_pair_t sum_turned(const fy_digest_way_t *way, const turn_t *turn) {
    const dim_t *dims = turn->rest.dims;
    uint64_t index[FERRY_MAX_DIMS] = {0};
    fy_pair_t sum = {{0, 0}};
    for (;;) {
        int64_t memory = 0;
        int64_t place = 0;
        for (uint32_t i = 0; i < turn->rest.ndim; i++) {
            memory += (int64_t)index[i] * dims[i].memory;
            place += (int64_t)index[i] * dims[i].place;
        }
        fy_pair_t plane = sum_plane(way, turn, turn->rest.data + memory);
        sum = plus(sum, way->multiply(plane, power(way, place)));
        uint32_t at = 0;
        for (; at < turn->rest.ndim && ++index[at] == dims[at].extent; at++) {
            index[at] = 0;
        }
        if (at == turn->rest.ndim) {
            return sum;
        }
    }
}

/* ---- from a view to a box ---- */

/* Whether `outer` goes on where the `extent` steps of `inner` end, on both sides. */
static bool follows(const dim_t *outer, uint64_t extent, int64_t memory, int64_t place) {
    return outer->memory == (int64_t)extent * memory && outer->place == (int64_t)extent * place;
}

static void drop_dim(box_t *box, uint32_t at) {
    box->ndim--;
    memmove(box->dims + at, box->dims + at + 1, (box->ndim - at) * sizeof *box->dims);
}

/* Takes into the run, and into each other, dims that follow one another. Afterwards dims are sorted. */
static void merge(box_t *box) {
    for (uint32_t i = 0; i < box->ndim;) {
        if (follows(&box->dims[i], box->run, 1, 1)) {
            box->run *= box->dims[i].extent;
            drop_dim(box, i);
            i = 0;
        } else {
            i++;
        }
    }
    for (uint32_t i = 1; i < box->ndim; i++) {
        dim_t dim = box->dims[i];
        uint32_t at = i;
        for (; at > 0 && box->dims[at - 1].memory > dim.memory; at--) {
            box->dims[at] = box->dims[at - 1];
        }
        box->dims[at] = dim;
    }
    for (uint32_t i = 0; i + 1 < box->ndim;) {
        dim_t *dim = &box->dims[i];
        if (follows(dim + 1, dim->extent, dim->memory, dim->place)) {
            dim->extent *= dim[1].extent;
            drop_dim(box, i + 1);
        } else {
            i++;
        }
    }
}

/* The box of a view that has elements, and the place of its first run in the whole. */
static box_t box_of(const ferry_view_t *view, const uint64_t *shape, const uint64_t *lo,
                    uint64_t *place_p) {
    int64_t width = (int64_t)(ferry_dtype_bits(view->dtype) / 8);
    box_t box = {.data = view->data, .run = (size_t)width};
    int64_t step = width;
    int64_t place = 0;
    for (uint32_t i = view->ndim; i-- > 0;) {
        place += (int64_t)lo[i] * step;
        if (view->shape[i] > 1) { /* else the stride may be anything */
            dim_t dim = {view->shape[i], view->strides[i] * width, step};
            if (dim.memory < 0) {
                box.data += (int64_t)(dim.extent - 1) * dim.memory;
                place += (int64_t)(dim.extent - 1) * dim.place;
                dim.memory = -dim.memory;
                dim.place = -dim.place;
            }
            box.dims[box.ndim++] = dim;
        }
        step *= (int64_t)shape[i];
    }
    merge(&box);
    *place_p = (uint64_t)place;
    return box;
}

static ferry_status_t check(const ferry_view_t *view, const uint64_t *shape, const uint64_t *lo,
                            ferry_error_t *err) {
    FY_TRY(fy_view_usable(view, "part", err));
    uint64_t bytes = ferry_dtype_bits(view->dtype) / 8;
    bool fits = true;
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (lo[i] > shape[i] || view->shape[i] > shape[i] - lo[i]) {
            ferry_status_t status =
                fy_fail(err, FERRY_INVALID, "the part leaves its tensor in dim %u", i);
            fy_error_region(err, view->ndim, lo, view->shape);
            return status;
        }
        fits = fits && fy_mul_u64(bytes, fy_max_u64(shape[i], 1), &bytes) && bytes <= INT64_MAX;
    }
    if (!fits) {
        return fy_fail(err, FERRY_OVERFLOW, "the bytes of a tensor pass 63 bits");
    }
    return FERRY_OK;
}

/* ---- the doors ---- */

ferry_status_t ferry_digest_add(ferry_digest_t *digest, const ferry_view_t *view,
                                const uint64_t *shape, const uint64_t *lo, ferry_error_t *err) {
    FY_NEED(digest, err);
    FY_NEED(view, err);
    FY_NEED_ARRAY(shape, view->ndim, err);
    FY_NEED_ARRAY(lo, view->ndim, err);
    FY_TRY(check(view, shape, lo, err));
    for (uint32_t i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 0) {
            return FERRY_OK;
        }
    }
    const fy_digest_way_t *way = fy_digest_way();
    uint64_t place = 0;
    box_t box = box_of(view, shape, lo, &place);
    turn_t turn;
    fy_pair_t sum = is_turned(&box, &turn) ? sum_turned(way, &turn) : sum_box(way, &box);
    add(digest, way->multiply(sum, fy_digest_power(way, place, false)));
    return FERRY_OK;
}

void ferry_digest_add_bytes(ferry_digest_t *digest, const void *bytes, size_t length, uint64_t at) {
    if (length == 0) {
        return;
    }
    const fy_digest_way_t *way = fy_digest_way();
    box_t box = {.data = bytes, .run = length};
    add(digest, way->multiply(sum_box(way, &box), fy_digest_power(way, at, false)));
}

void ferry_digest_join(ferry_digest_t *digest, const ferry_digest_t *part) {
    digest->low ^= part->low;
    digest->high ^= part->high;
}

/* The head stands before the tensor and ends at place 0; from there back: the dtype, ndim, the shape. So
 * neither the tensor's own length nor that of the head moves any byte of the tensor. */
ferry_digest_t ferry_digest_seal(const ferry_digest_t *digest, const char *dtype, uint32_t ndim,
                                 const uint64_t *shape) {
    enum { NAME_BLOCK = 16, NUMBER = 8 };
    const fy_digest_way_t *way = fy_digest_way();
    ferry_digest_t sealed = *digest;
    size_t name_bytes = dtype != NULL ? strlen(dtype) : 0;
    uint64_t before = (name_bytes / NAME_BLOCK + 1) * NAME_BLOCK; /* at least one zero follows */
    box_t name = {.data = (const uint8_t *)dtype, .run = name_bytes};
    add(&sealed, way->multiply(sum_box(way, &name), fy_digest_power(way, before, true)));
    fy_pair_t place = fy_digest_power(way, before + NUMBER, true);
    const fy_pair_t step = fy_digest_power(way, NUMBER, true);
    add(&sealed, way->multiply((fy_pair_t){{ndim, ndim}}, place));
    for (uint32_t i = ndim; i-- > 0;) {
        place = way->multiply(place, step);
        add(&sealed, way->multiply((fy_pair_t){{shape[i], shape[i]}}, place));
    }
    return sealed;
}

bool ferry_digest_equal(const ferry_digest_t *a, const ferry_digest_t *b) {
    return a->low == b->low && a->high == b->high;
}

void ferry_digest_text(const ferry_digest_t *digest, char text[FERRY_DIGEST_TEXT_MAX]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[i] = digits[digest->high >> (60 - 4 * i) & 15];
        text[16 + i] = digits[digest->low >> (60 - 4 * i) & 15];
    }
    text[32] = '\0';
}
