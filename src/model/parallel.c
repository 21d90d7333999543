/* parallel.c - parallel specs: reading them and counting their ranks.
 *
 * The grammar is in docs/formats/parallel.md. Invariant: what fy_grid_init accepts has a world of at
 * most FERRY_MAX_RANK + 1 ranks, so every product of its axes fits in 32 bits. */
#include "model/parallel.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"

#define MAX_WORLD ((uint64_t)FERRY_MAX_RANK + 1)
#define DEFAULT_ORDER "tp-cp-ep-dp-pp"

typedef enum axis {
    TP,
    CP,
    EP,
    DP,
    PP,
    ETP,
    NAXES,
    ORDER_AXES = ETP /* the axes before it are the ones that an order names */
} axis_t;

static const char *const axis_names[NAXES] = {"tp", "cp", "ep", "dp", "pp", "etp"};

/* A stretch of the text that is being read. */
typedef struct span {
    const char *text;
    size_t length;
} span_t;

/* For "%.*s": as much of a span as a line can bear. */
static int shown(span_t span) {
    return (int)fy_min_u64(span.length, 48);
}

static span_t span_until(const char *text, const char *stops) {
    return (span_t){text, strcspn(text, stops)};
}

static bool span_is(span_t span, const char *text) {
    return strlen(text) == span.length && memcmp(span.text, text, span.length) == 0;
}

/* NAXES when the name is not an axis. */
static axis_t axis_find(span_t name) {
    axis_t axis = TP;
    while (axis < NAXES && !span_is(name, axis_names[axis])) {
        axis++;
    }
    return axis;
}

/* ---- order ------------------------------------------------------------------------------------- */

/* Reads "tp-cp-ep-dp-pp" into axes, innermost first. */
static ferry_status_t read_order(span_t order, axis_t axes[ORDER_AXES], ferry_error_t *err) {
    bool seen[NAXES] = {false};
    uint32_t count = 0;
    const char *end = order.text + order.length;
    for (const char *c = order.text; c <= end;) {
        const char *dash = memchr(c, '-', (size_t)(end - c));
        span_t name = {c, (size_t)((dash != NULL ? dash : end) - c)};
        axis_t axis = axis_find(name);
        if (axis >= ORDER_AXES) {
            return fy_fail(err, FERRY_INVALID,
                           "order: \"%.*s\" is no axis of an order (they are tp, cp, ep, dp, pp)",
                           shown(name), name.text);
        }
        if (seen[axis]) {
            return fy_fail(err, FERRY_INVALID, "order: axis %s is named twice", axis_names[axis]);
        }
        seen[axis] = true;
        axes[count++] = axis;
        c = name.text + name.length + 1;
    }
    for (axis_t axis = TP; axis < ORDER_AXES; axis++) {
        if (!seen[axis]) {
            return fy_fail(err, FERRY_INVALID, "order: axis %s is missing", axis_names[axis]);
        }
    }
    return FERRY_OK;
}

/* ---- grid -------------------------------------------------------------------------------------- */

static ferry_status_t count_world(fy_grid_t *grid, ferry_error_t *err) {
    uint64_t stage = 0;
    uint64_t world = 0;
    if (!fy_mul_u64((uint64_t)grid->tp * grid->cp, grid->dp, &stage) ||
        !fy_mul_u64(stage, grid->pp, &world) || world > MAX_WORLD) {
        return fy_fail(err, FERRY_INVALID,
                       "world tp*cp*pp*dp = %" PRIu32 "*%" PRIu32 "*%" PRIu32 "*%" PRIu32
                       " is more than %" PRIu64 " ranks",
                       grid->tp, grid->cp, grid->pp, grid->dp, MAX_WORLD);
    }
    uint64_t experts = (uint64_t)grid->ep * grid->etp;
    if (stage % experts != 0) {
        return fy_fail(err, FERRY_INVALID,
                       "ep*etp = %" PRIu32 "*%" PRIu32 " does not divide tp*cp*dp = %" PRIu64,
                       grid->ep, grid->etp, stage);
    }
    grid->world = (uint32_t)world;
    grid->stage_ranks = (uint32_t)stage;
    grid->edp = (uint32_t)(stage / experts);
    return FERRY_OK;
}

/* Gives an axis its step and moves on to the next step. */
static void take_step(uint32_t *step_p, uint32_t size, uint32_t *next) {
    *step_p = *next;
    *next *= size;
}

static void count_steps(fy_grid_t *grid, const axis_t order[ORDER_AXES]) {
    uint32_t rank = 1;
    uint32_t place = 1;
    for (uint32_t i = 0; i < ORDER_AXES; i++) {
        switch (order[i]) {
        case TP:
            take_step(&grid->tp_step, grid->tp, &rank);
            take_step(&grid->etp_step, grid->etp, &place);
            break;
        case CP:
            take_step(&grid->cp_step, grid->cp, &rank);
            break;
        case EP:
            take_step(&grid->ep_step, grid->ep, &place);
            break;
        case DP:
            take_step(&grid->dp_step, grid->dp, &rank);
            take_step(&grid->edp_step, grid->edp, &place);
            break;
        case PP:
            take_step(&grid->pp_step, grid->pp, &rank);
            break;
        case ETP:
        case NAXES:
            break; /* an order never names them */
        }
    }
}

static uint32_t or_one(uint32_t size) {
    return size > 0 ? size : 1;
}

ferry_status_t fy_grid_init(fy_grid_t *grid, const ferry_parallel_t *parallel, ferry_error_t *err) {
    if (parallel == NULL || parallel->size != sizeof *parallel) {
        return fy_fail(err, FERRY_INVALID, "parallel spec is missing or its size is not set");
    }
    span_t order = {parallel->order, 0};
    const char *end = memchr(parallel->order, '\0', sizeof parallel->order);
    if (end == NULL) {
        return fy_fail(err, FERRY_INVALID, "order is not terminated");
    }
    order.length = (size_t)(end - parallel->order);
    if (order.length == 0) {
        order = (span_t){DEFAULT_ORDER, strlen(DEFAULT_ORDER)};
    }
    axis_t axes[ORDER_AXES] = {TP};
    FY_TRY(read_order(order, axes, err));
    *grid = (fy_grid_t){.tp = or_one(parallel->tp),
                        .cp = or_one(parallel->cp),
                        .pp = or_one(parallel->pp),
                        .dp = or_one(parallel->dp),
                        .ep = or_one(parallel->ep),
                        .etp = or_one(parallel->etp)};
    FY_TRY(count_world(grid, err));
    count_steps(grid, axes);
    return FERRY_OK;
}

ferry_status_t ferry_parallel_world(const ferry_parallel_t *parallel, uint32_t *world_p,
                                    ferry_error_t *err) {
    fy_grid_t grid;
    FY_TRY(fy_grid_init(&grid, parallel, err));
    *world_p = grid.world;
    return FERRY_OK;
}

/* ---- text -------------------------------------------------------------------------------------- */

static ferry_status_t read_size(const char *name, span_t value, uint32_t *size_p,
                                ferry_error_t *err) {
    if (value.length == 0 || strspn(value.text, "0123456789") < value.length) {
        return fy_fail(err, FERRY_PARSE, "axis %s: \"%.*s\" is not a number", name, shown(value),
                       value.text);
    }
    const char *cursor = value.text;
    uint64_t size = 0;
    if (!fy_text_read_u64(&cursor, &size) || size > MAX_WORLD) {
        return fy_fail(err, FERRY_INVALID, "axis %s: %.*s is too large (at most %" PRIu64 ")", name,
                       shown(value), value.text, MAX_WORLD);
    }
    if (size == 0) {
        return fy_fail(err, FERRY_INVALID, "axis %s must be at least 1, not 0", name);
    }
    *size_p = (uint32_t)size;
    return FERRY_OK;
}

/* What has been read so far; a size of 0 has not been given. */
typedef struct spec {
    uint32_t sizes[NAXES];
    span_t order;
} spec_t;

static ferry_status_t read_item(span_t item, spec_t *spec, ferry_error_t *err) {
    const char *equals = memchr(item.text, '=', item.length);
    if (equals == NULL) {
        return fy_fail(err, FERRY_PARSE, "\"%.*s\": expected axis=number, such as tp=8",
                       shown(item), item.text);
    }
    span_t name = {item.text, (size_t)(equals - item.text)};
    span_t value = {equals + 1, item.length - name.length - 1};
    bool is_order = span_is(name, "order");
    axis_t axis = axis_find(name);
    if (!is_order && axis == NAXES) {
        return fy_fail(err, FERRY_PARSE,
                       "unknown axis \"%.*s\" (axes are tp, cp, pp, dp, ep, etp; and order)",
                       shown(name), name.text);
    }
    if (is_order ? spec->order.text != NULL : spec->sizes[axis] != 0) {
        return fy_fail(err, FERRY_INVALID, "%s%.*s is given twice", is_order ? "" : "axis ",
                       shown(name), name.text);
    }
    if (is_order) {
        axis_t axes[ORDER_AXES] = {TP};
        spec->order = value;
        return read_order(value, axes, err);
    }
    return read_size(axis_names[axis], value, &spec->sizes[axis], err);
}

ferry_status_t ferry_parallel_parse(const char *text, ferry_parallel_t *parallel_p,
                                    ferry_error_t *err) {
    if (text == NULL || *text == '\0') {
        return fy_fail(err, FERRY_PARSE, "the parallel spec is empty; expected e.g. tp=8,dp=2");
    }
    spec_t spec = {{0}, {NULL, 0}};
    for (const char *c = text;; c++) {
        span_t item = span_until(c, ",");
        FY_TRY(read_item(item, &spec, err));
        c = item.text + item.length;
        if (*c == '\0') {
            break;
        }
    }
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    parallel.tp = or_one(spec.sizes[TP]);
    parallel.cp = or_one(spec.sizes[CP]);
    parallel.pp = or_one(spec.sizes[PP]);
    parallel.dp = or_one(spec.sizes[DP]);
    parallel.ep = or_one(spec.sizes[EP]);
    parallel.etp = or_one(spec.sizes[ETP]);
    if (spec.order.text != NULL) {
        /* A permutation of the five has one length, and it fits. */
        _Static_assert(sizeof DEFAULT_ORDER <= sizeof parallel.order, "an order fits");
        memcpy(parallel.order, spec.order.text, spec.order.length);
    }
    fy_grid_t grid;
    FY_TRY(fy_grid_init(&grid, &parallel, err));
    *parallel_p = parallel;
    return FERRY_OK;
}
