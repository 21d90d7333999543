/* reshard_oracle.c - cases, and the bytes that every rank must hold. */
#include "oracle/reshard_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ---- */

rso_tensor_t *rso_add(rso_case_t *c, const char *name, ferry_dtype_t source, ferry_dtype_t target) {
    if (c->ntensors == c->cap) {
        uint32_t cap = c->cap == 0 ? 4 : 2 * c->cap;
        rso_tensor_t *grown = realloc(c->tensors, cap * sizeof *grown);
        if (grown == NULL) {
            abort();
        }
        c->tensors = grown;
        c->cap = cap;
    }
    rso_tensor_t *tensor = &c->tensors[c->ntensors++];
    memset(tensor, 0, sizeof *tensor);
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->source_dtype = source;
    tensor->target_dtype = target;
    return tensor;
}

static void parse(const char *text, orc_layout_t *layout_p) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_layout_t *layout = NULL;
    if (ferry_layout_parse(text, &layout, &err) != FERRY_OK) {
        (void)orc_fail("layout '%s': %s", text, err.text);
        abort();
    }
    orc_from_ferry(layout, layout_p);
    ferry_layout_destroy(layout);
}

rso_tensor_t *rso_add_text(rso_case_t *c, const char *name, ferry_dtype_t source,
                           ferry_dtype_t target, uint32_t ndim, const uint64_t *shape,
                           const char *from, const char *to) {
    rso_tensor_t *tensor = rso_add(c, name, source, target);
    tensor->ndim = ndim;
    memcpy(tensor->shape, shape, ndim * sizeof *shape);
    parse(from, &tensor->source);
    parse(to, &tensor->target);
    c->flags |= source != target ? FERRY_PLAN_ALLOW_CAST : 0;
    return tensor;
}

static void count_ranks(rso_case_t *c, const orc_layout_t *layout) {
    for (uint32_t i = 0; i < layout->nranks; i++) {
        c->nranks = layout->ranks[i] >= c->nranks ? layout->ranks[i] + 1 : c->nranks;
    }
}

bool rso_open(rso_case_t *c) {
    bool ok = true;
    c->nranks = 0;
    for (uint32_t t = 0; t < c->ntensors; t++) {
        rso_tensor_t *tensor = &c->tensors[t];
        ferry_error_t err = FERRY_ERROR_INIT;
        tensor->source_layout = orc_to_ferry(&tensor->source, &err);
        tensor->target_layout = orc_to_ferry(&tensor->target, &err);
        tensor->from = orc_side_make(&tensor->source, tensor->ndim, tensor->shape);
        tensor->to = orc_side_make(&tensor->target, tensor->ndim, tensor->shape);
        count_ranks(c, &tensor->source);
        count_ranks(c, &tensor->target);
        if (tensor->source_layout == NULL || tensor->target_layout == NULL) {
            ok = orc_fail("layout of %s refused: %s", tensor->name, err.text);
        }
    }
    return ok;
}

void rso_close(rso_case_t *c) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        rso_tensor_t *tensor = &c->tensors[t];
        ferry_layout_destroy(tensor->source_layout);
        ferry_layout_destroy(tensor->target_layout);
        orc_side_free(tensor->from);
        orc_side_free(tensor->to);
    }
    free(c->tensors);
    memset(c, 0, sizeof *c);
}

ferry_status_t rso_plan(const rso_case_t *c, uint32_t part_of, ferry_plan_t **plan_p,
                        ferry_error_t *err) {
    ferry_tensor_t *sides = orc_alloc(2 * (size_t)c->ntensors, sizeof *sides);
    for (uint32_t i = 0; i < c->ntensors; i++) {
        const rso_tensor_t *t = &c->tensors[i];
        sides[i] = (ferry_tensor_t){t->name, t->source_dtype, t->ndim, t->shape, t->source_layout};
        sides[c->ntensors + i] =
            (ferry_tensor_t){t->name, t->target_dtype, t->ndim, t->shape, t->target_layout};
    }
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = sides;
    params.nsources = c->ntensors;
    params.targets = sides + c->ntensors;
    params.ntargets = c->ntensors;
    params.flags = c->flags;
    if (part_of != FERRY_RANK_NONE) {
        params.flags |= FERRY_PLAN_PART;
        params.rank = part_of;
    }
    params.hosts = c->nhosts ? c->hosts : NULL;
    params.nhosts = c->nhosts;
    ferry_status_t status = ferry_plan_create(&params, plan_p, err);
    free(sides);
    return status;
}

static void print_side(const char *which, const ferry_layout_t *layout) {
    char text[2048] = "(none)";
    if (layout != NULL) {
        (void)ferry_layout_format(layout, text, sizeof text);
    }
    (void)fprintf(stderr, "  %s '%s'", which, text);
}

void rso_print(const rso_case_t *c) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        const rso_tensor_t *tensor = &c->tensors[t];
        (void)fprintf(stderr, "  tensor \"%s\" shape [", tensor->name);
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            (void)fprintf(stderr, "%s%llu", d ? "x" : "", (unsigned long long)tensor->shape[d]);
        }
        (void)fprintf(stderr, "] %s -> %s, mx %d:", ferry_dtype_name(tensor->source_dtype),
                      ferry_dtype_name(tensor->target_dtype), (int)tensor->mx);
        print_side("from", tensor->source_layout);
        print_side("to", tensor->target_layout);
        (void)fputc('\n', stderr);
    }
    (void)fprintf(stderr, "  wire %s, %zu hosts\n", ferry_dtype_name(c->wire), c->nhosts);
}

size_t rso_width(ferry_dtype_t dtype) {
    switch (dtype) {
    case FERRY_F64:
    case FERRY_I64:
    case FERRY_U64:
        return 8;
    case FERRY_F32:
    case FERRY_I32:
    case FERRY_U32:
        return 4;
    case FERRY_F16:
    case FERRY_BF16:
    case FERRY_I16:
    case FERRY_U16:
        return 2;
    default:
        return 1;
    }
}

ferry_dtype_t rso_wire(const rso_case_t *c, const rso_tensor_t *tensor) {
    ferry_dtype_t source = tensor->source_dtype;
    ferry_dtype_t target = tensor->target_dtype;
    size_t narrow = rso_width(source) < rso_width(target) ? rso_width(source) : rso_width(target);
    if (c->wire != FERRY_DTYPE_NONE && rso_is_float(source) && rso_is_float(target) &&
        rso_is_float(c->wire) && rso_width(c->wire) < narrow) {
        return c->wire;
    }
    return rso_width(target) < rso_width(source) ? target : source;
}

/* ---- values ---- */

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + UINT64_C(0x632be59bd9b4e019));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number of ordinary size: a whole number below 2^24 over a power of two. */
static uint64_t ordinary(ferry_dtype_t dtype, uint64_t random, double factor) {
    double value = (double)(random & 0xffffff) / 4194304.0 - 2.0;
    double size = (double)(UINT64_C(1) << (random >> 24 & 7)) / 16.0;
    value = value * size * factor;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return rso_cast(dtype, FERRY_F64, bits, false);
}

static uint64_t mixed(ferry_dtype_t dtype, uint64_t random) {
    static const double special[] = {0.0, -0.0, 1.0, 448.0, 464.0, 65504.0, 1e-40, 3e38};
    uint64_t rest = random >> 8;
    switch (random & 15) {
    case 0: /* any bits, NaN and subnormals among them */
        return rest &
               (rso_width(dtype) == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * rso_width(dtype)) - 1);
    case 1: {
        uint64_t bits = 0;
        memcpy(&bits, &special[rest & 7], sizeof bits);
        return rso_cast(dtype, FERRY_F64, bits, false);
    }
    default:
        return ordinary(dtype, rest, 1.0);
    }
}

/* The value of a global element, of one member of the sum where the source is Partial. */
static uint64_t value_of(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round,
                         uint64_t element, uint32_t member) {
    const rso_tensor_t *t = &c->tensors[tensor];
    uint32_t salt = t->tied != 0 ? t->tied - 1 : tensor;
    uint64_t random = mix(mix(mix(seed, salt), ((uint64_t)round << 32) + member), element);
    if (!rso_is_float(t->source_dtype)) {
        uint64_t mask = (UINT64_C(2) << (8 * rso_width(t->source_dtype) - 1)) - 1;
        return t->source_dtype == FERRY_BOOL ? random & 1 : random & mask;
    }
    switch (t->values) {
    case RSO_MIXED:
        return mixed(t->source_dtype, random);
    case RSO_FINITE:
        return ordinary(t->source_dtype, random, 1.0);
    case RSO_THOUSANDS:
        return ordinary(t->source_dtype, random, 1000.0);
    }
    abort();
}

uint32_t rso_members(const rso_tensor_t *tensor) {
    uint32_t members = 1;
    for (uint32_t a = 0; a < tensor->source.naxes; a++) {
        members *= tensor->source.axes[a].kind == FERRY_PARTIAL ? tensor->source.axes[a].size : 1;
    }
    return members;
}

/* Which member of its sum a place of the source mesh is: row-major over the Partial axes. */
static uint32_t member_of(const orc_layout_t *layout, uint32_t place) {
    uint32_t member = 0;
    for (uint32_t a = 0; a < layout->naxes; a++) {
        if (layout->axes[a].kind == FERRY_PARTIAL) {
            member = member * layout->axes[a].size + orc_coord(layout, place, a);
        }
    }
    return member;
}

/* Inner axes first: the members of the last Partial axis are neighbours. */
static uint64_t reduced(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round,
                        uint64_t element) {
    const rso_tensor_t *t = &c->tensors[tensor];
    uint64_t values[ORC_RANKS];
    uint32_t count = rso_members(t);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = value_of(c, tensor, seed, round, element, i);
    }
    for (uint32_t a = t->source.naxes; a-- > 0;) {
        const orc_axis_t *axis = &t->source.axes[a];
        if (axis->kind == FERRY_PARTIAL) {
            count /= axis->size;
            for (uint32_t i = 0; i < count; i++) {
                values[i] =
                    rso_fold(t->source_dtype, axis->op, &values[i * axis->size], axis->size);
            }
        }
    }
    return values[0];
}

/* ---- local tensors ---- */

bool rso_local_shape(const rso_tensor_t *tensor, bool source, uint32_t rank, uint64_t *shape) {
    const orc_side_t *side = source ? tensor->from : tensor->to;
    uint32_t place = orc_place(side->layout, rank);
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        shape[d] = place == UINT32_MAX ? 0 : side->lists[place][d].count;
    }
    return place != UINT32_MAX;
}

uint64_t rso_elements(const rso_tensor_t *tensor, bool source, uint32_t rank) {
    const orc_side_t *side = source ? tensor->from : tensor->to;
    uint32_t place = orc_place(side->layout, rank);
    return place == UINT32_MAX ? 0 : orc_side_elements(side, place);
}

void rso_source(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round, uint32_t rank,
                uint8_t *out) {
    const rso_tensor_t *t = &c->tensors[tensor];
    uint32_t place = orc_place(&t->source, rank);
    if (place == UINT32_MAX) {
        return;
    }
    size_t width = rso_width(t->source_dtype);
    uint32_t member = member_of(&t->source, place);
    uint64_t *numbers = orc_side_numbers(t->from, place);
    for (uint64_t e = 0; e < orc_side_elements(t->from, place); e++) {
        uint64_t value = value_of(c, tensor, seed, round, numbers[e], member);
        memcpy(out + e * width, &value, width);
    }
    free(numbers);
}

void rso_target(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round, uint32_t rank,
                uint8_t *out) {
    const rso_tensor_t *t = &c->tensors[tensor];
    uint32_t place = orc_place(&t->target, rank);
    if (place == UINT32_MAX) {
        return;
    }
    size_t width = rso_width(t->target_dtype);
    ferry_dtype_t wire = rso_wire(c, t);
    uint64_t *numbers = orc_side_numbers(t->to, place);
    for (uint64_t e = 0; e < orc_side_elements(t->to, place); e++) {
        uint64_t value = reduced(c, tensor, seed, round, numbers[e]);
        value = rso_cast(wire, t->source_dtype, value, c->saturate);
        value = rso_cast(t->target_dtype, wire, value, c->saturate);
        memcpy(out + e * width, &value, width);
    }
    free(numbers);
}

void rso_target_mx(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round,
                   uint32_t rank, ferry_dtype_t arrives, uint8_t *data, uint8_t *scales) {
    const rso_tensor_t *t = &c->tensors[tensor];
    uint32_t place = orc_place(&t->target, rank);
    if (place == UINT32_MAX || orc_side_elements(t->to, place) == 0) {
        return;
    }
    ferry_dtype_t dtype = arrives == FERRY_DTYPE_NONE ? t->source_dtype : arrives;
    uint64_t columns = t->to->lists[place][t->ndim - 1].count;
    uint64_t blocks = columns / RSO_MX_BLOCK;
    uint64_t rows = orc_side_elements(t->to, place) / columns;
    uint64_t *numbers = orc_side_numbers(t->to, place);
    if (t->mx == RSO_MX_SWIZZLED) {
        memset(scales, 0, rso_swizzled_bytes(rows, blocks));
    }
    for (uint64_t b = 0; b < rows * blocks; b++) {
        uint64_t values[RSO_MX_BLOCK];
        for (uint64_t i = 0; i < RSO_MX_BLOCK; i++) {
            uint64_t value = reduced(c, tensor, seed, round, numbers[b * RSO_MX_BLOCK + i]);
            values[i] = rso_cast(dtype, t->source_dtype, value, c->saturate);
        }
        uint64_t at =
            t->mx == RSO_MX_SWIZZLED ? rso_swizzled_at(b / blocks, b % blocks, blocks) : b;
        rso_quantise(dtype, values, data + b * RSO_MX_BLOCK, scales + at);
    }
    free(numbers);
}
