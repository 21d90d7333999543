/* exec.c - cases (all that goes into a plan), and the naive run of a plan. */
#include "oracle/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ---- */

uint64_t orc_scale(const orc_tensor_t *tensor, uint32_t dim) {
    return dim == tensor->scale_dim ? orc_tensor_scale(tensor) : 1;
}

uint64_t orc_tensor_scale(const orc_tensor_t *tensor) {
    return tensor->scale == 0 ? 1 : tensor->scale;
}

/* Every cut of the scaled dim, in as many times as long pieces. */
static void stretch(orc_layout_t *layout, const orc_tensor_t *tensor) {
    for (uint32_t a = 0; a < layout->naxes && tensor->scale != 0; a++) {
        orc_axis_t *axis = &layout->axes[a];
        if (axis->kind != FERRY_SHARD || axis->dim != tensor->scale_dim) {
            continue;
        }
        if (axis->cut == FERRY_CUT_CYCLIC) {
            axis->arg *= tensor->scale;
        } else if (axis->cut != FERRY_CUT_RAGGED) {
            axis->unit = (axis->unit ? axis->unit : 1) * tensor->scale;
        }
        for (size_t i = 0; i < axis->nsizes; i++) {
            axis->sizes[i] *= tensor->scale;
        }
        for (size_t i = 0; i < axis->nlengths; i++) {
            axis->lengths[i] *= tensor->scale;
        }
    }
}

static ferry_layout_t *make_layout(const orc_tensor_t *tensor, const orc_layout_t *layout,
                                   const char *which) {
    ferry_error_t err = FERRY_ERROR_INIT;
    orc_layout_t stretched = *layout;
    stretch(&stretched, tensor);
    ferry_layout_t *made = orc_to_ferry(&stretched, &err);
    if (made == NULL) {
        orc_fail("%s layout refused: %s: %s", which, ferry_status_name(err.status), err.text);
    }
    return made;
}

bool orc_case_open(orc_case_t *c) {
    bool ok = true;
    for (uint32_t t = 0; t < c->ntensors; t++) {
        orc_tensor_t *tensor = &c->tensors[t];
        tensor->source_layout = make_layout(tensor, &tensor->source, "source");
        tensor->target_layout = make_layout(tensor, &tensor->target, "target");
        tensor->from = orc_side_make(&tensor->source, tensor->ndim, tensor->shape);
        tensor->to = orc_side_make(&tensor->target, tensor->ndim, tensor->shape);
        ok = ok && tensor->source_layout != NULL && tensor->target_layout != NULL;
    }
    return ok;
}

void orc_case_close(orc_case_t *c) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        orc_tensor_t *tensor = &c->tensors[t];
        ferry_layout_destroy(tensor->source_layout);
        ferry_layout_destroy(tensor->target_layout);
        orc_side_free(tensor->from);
        orc_side_free(tensor->to);
    }
}

ferry_plan_t *orc_case_plan(const orc_case_t *c, uint32_t part_of) {
    ferry_tensor_t sources[ORC_TENSORS + 1];
    ferry_tensor_t targets[ORC_TENSORS];
    uint64_t shapes[ORC_TENSORS][ORC_DIMS];
    uint32_t n = c->ntensors;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t d = 0; d < c->tensors[i].ndim; d++) {
            shapes[i][d] = c->tensors[i].shape[d] * orc_scale(&c->tensors[i], d);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = c->shuffle[i];
        const orc_tensor_t *s = &c->tensors[at];
        sources[i] =
            (ferry_tensor_t){s->name, s->source_dtype, s->ndim, shapes[at], s->source_layout};
        targets[n - 1 - i] =
            (ferry_tensor_t){s->name, s->target_dtype, s->ndim, shapes[at], s->target_layout};
    }
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = sources;
    params.nsources = n;
    params.targets = targets;
    params.ntargets = n;
    if (c->extra_source) {
        sources[n] = sources[0];
        sources[n].name = "left.over";
        params.nsources++;
    }
    params.flags = c->flags;
    if (part_of != FERRY_RANK_NONE) {
        params.flags |= FERRY_PLAN_PART;
        params.rank = part_of;
    }
    params.hosts = c->nhosts ? c->hosts : NULL;
    params.nhosts = c->nhosts;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_plan_t *plan = NULL;
    if (ferry_plan_create(&params, &plan, &err) != FERRY_OK) {
        orc_fail("plan refused: %s: %s", ferry_status_name(err.status), err.text);
        return NULL;
    }
    return plan;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

size_t orc_case_ranks(const orc_case_t *c, uint32_t *ranks) {
    size_t count = 0;
    for (uint32_t t = 0; t < c->ntensors; t++) {
        const orc_layout_t *sides[] = {&c->tensors[t].source, &c->tensors[t].target};
        for (int s = 0; s < 2; s++) {
            for (uint32_t i = 0; i < sides[s]->nranks; i++) {
                ranks[count++] = sides[s]->ranks[i];
            }
        }
    }
    qsort(ranks, count, sizeof *ranks, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || ranks[kept - 1] != ranks[i]) {
            ranks[kept++] = ranks[i];
        }
    }
    return kept;
}

uint32_t orc_case_host(const orc_case_t *c, uint32_t rank, bool *known_p) {
    *known_p = rank < c->nhosts;
    return *known_p ? c->hosts[rank] : rank;
}

static void print_layout(const char *which, const ferry_layout_t *layout) {
    char text[2048] = "(none)";
    if (layout != NULL) {
        ferry_layout_format(layout, text, sizeof text);
    }
    fprintf(stderr, "  %s '%s'", which, text);
}

void orc_case_print(const orc_case_t *c) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        const orc_tensor_t *tensor = &c->tensors[t];
        fprintf(stderr, "  tensor %u \"%s\" shape [", t, tensor->name);
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            uint64_t length = tensor->shape[d] * orc_scale(tensor, d);
            fprintf(stderr, "%s%llu", d ? "x" : "", (unsigned long long)length);
        }
        fprintf(stderr, "] %s -> %s:", ferry_dtype_name(tensor->source_dtype),
                ferry_dtype_name(tensor->target_dtype));
        print_layout("from", tensor->source_layout);
        print_layout("to", tensor->target_layout);
        fputc('\n', stderr);
    }
    if (c->nhosts > 0) {
        fputs("  hosts", stderr);
        for (size_t i = 0; i < c->nhosts; i++) {
            fprintf(stderr, " %u", c->hosts[i]);
        }
        fputc('\n', stderr);
    }
}

static bool parse_side(const char *text, orc_layout_t *layout_p) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_layout_t *layout = NULL;
    if (ferry_layout_parse(text, &layout, &err) != FERRY_OK) {
        return orc_fail("layout '%s' refused: %s: %s", text, ferry_status_name(err.status),
                        err.text);
    }
    orc_from_ferry(layout, layout_p);
    ferry_layout_destroy(layout);
    return true;
}

orc_case_t *orc_case_text(ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape,
                          const char *source, const char *target) {
    orc_case_t *c = orc_alloc(1, sizeof *c);
    orc_tensor_t *tensor = &c->tensors[0];
    snprintf(tensor->name, sizeof tensor->name, "w");
    tensor->ndim = ndim;
    memcpy(tensor->shape, shape, ndim * sizeof *shape);
    tensor->source_dtype = dtype;
    tensor->target_dtype = dtype;
    if (!parse_side(source, &tensor->source) || !parse_side(target, &tensor->target)) {
        free(c);
        return NULL;
    }
    c->ntensors = 1;
    if (!orc_case_open(c)) {
        orc_case_free(c);
        return NULL;
    }
    return c;
}

void orc_case_free(orc_case_t *c) {
    if (c != NULL) {
        orc_case_close(c);
        free(c);
    }
}

/* ---- transfers ---- */

static void shrink(const orc_case_t *c, ferry_transfer_t *x) {
    for (uint32_t d = 0; d < x->ndim && x->tensor < c->ntensors; d++) {
        uint64_t scale = orc_scale(&c->tensors[x->tensor], d);
        bool whole = x->source_lo[d] % scale == 0 && x->target_lo[d] % scale == 0 &&
                     x->extent[d] % scale == 0;
        x->source_lo[d] /= scale;
        x->target_lo[d] /= scale;
        x->extent[d] = whole ? x->extent[d] / scale : 0;
    }
}

orc_transfers_t orc_collect(const orc_case_t *c, const ferry_plan_t *plan) {
    orc_transfers_t all = {0, NULL};
    size_t cap = 64;
    all.at = orc_alloc(cap, sizeof *all.at);
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    while (ferry_plan_next(plan, &cursor, &all.at[all.count])) {
        shrink(c, &all.at[all.count]);
        all.count++;
        if (all.count == cap) {
            cap *= 2;
            ferry_transfer_t *grown = realloc(all.at, cap * sizeof *grown);
            if (grown == NULL) {
                abort();
            }
            all.at = grown;
        }
    }
    return all;
}

bool orc_transfer_equal(const ferry_transfer_t *a, const ferry_transfer_t *b) {
    bool equal = a->task_id == b->task_id && a->tensor == b->tensor && a->source == b->source &&
                 a->target == b->target && a->piece == b->piece && a->stage == b->stage &&
                 a->after == b->after && a->elements == b->elements && a->bytes == b->bytes &&
                 a->ndim == b->ndim;
    for (uint32_t d = 0; equal && d < a->ndim; d++) {
        equal = a->source_lo[d] == b->source_lo[d] && a->target_lo[d] == b->target_lo[d] &&
                a->extent[d] == b->extent[d];
    }
    return equal;
}

/* ---- the run ---- */

/* One local buffer per place of the mesh; counts says how often each element was written. */
typedef struct memory {
    uint64_t *numbers[ORC_RANKS];
    uint32_t *counts[ORC_RANKS];
} memory_t;

/* Where the element at `at` (inside the box that starts at lo) lies in a local buffer. */
static uint64_t local_offset(const orc_list_t *lists, uint32_t ndim, const uint64_t *lo,
                             const uint64_t *at) {
    uint64_t offset = 0;
    for (uint32_t d = 0; d < ndim; d++) {
        offset = offset * lists[d].count + lo[d] + at[d];
    }
    return offset;
}

static bool box_inside(const orc_list_t *lists, const ferry_transfer_t *x, const uint64_t *lo,
                       const char *which) {
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (x->extent[d] == 0 || x->extent[d] > lists[d].count ||
            lo[d] > lists[d].count - x->extent[d]) {
            return orc_fail("task %llx dim %u: %llu + %llu is outside the %s's %llu",
                            (unsigned long long)x->task_id, d, (unsigned long long)lo[d],
                            (unsigned long long)x->extent[d], which,
                            (unsigned long long)lists[d].count);
        }
    }
    return true;
}

static bool copy_box(const orc_tensor_t *tensor, const ferry_transfer_t *x, const memory_t *from,
                     memory_t *to) {
    uint32_t s = orc_place(&tensor->source, x->source);
    uint32_t t = orc_place(&tensor->target, x->target);
    if (s == UINT32_MAX || t == UINT32_MAX || x->ndim != tensor->ndim) {
        return orc_fail("task %llx: rank %u -> %u, %u dims: no such ends",
                        (unsigned long long)x->task_id, x->source, x->target, x->ndim);
    }
    const orc_list_t *source = tensor->from->lists[s];
    const orc_list_t *target = tensor->to->lists[t];
    if (!box_inside(source, x, x->source_lo, "source") ||
        !box_inside(target, x, x->target_lo, "target")) {
        return false;
    }
    uint64_t at[ORC_DIMS] = {0};
    for (;;) {
        uint64_t i = local_offset(source, x->ndim, x->source_lo, at);
        uint64_t j = local_offset(target, x->ndim, x->target_lo, at);
        to->numbers[t][j] = from->numbers[s][i];
        to->counts[t][j]++;
        uint32_t d = x->ndim;
        while (d > 0 && ++at[d - 1] == x->extent[d - 1]) {
            at[--d] = 0;
        }
        if (d == 0) {
            return true;
        }
    }
}

static bool look_at_target(const orc_tensor_t *tensor, uint32_t place, const memory_t *to) {
    uint64_t *want = orc_side_numbers(tensor->to, place);
    bool ok = true;
    for (uint64_t e = 0; ok && e < orc_side_elements(tensor->to, place); e++) {
        if (to->counts[place][e] != 1) {
            ok = orc_fail("tensor %s, rank %u: element %llu written %u times", tensor->name,
                          tensor->target.ranks[place], (unsigned long long)e, to->counts[place][e]);
        } else if (to->numbers[place][e] != want[e]) {
            ok = orc_fail("tensor %s, rank %u: element %llu is global %llu, not %llu", tensor->name,
                          tensor->target.ranks[place], (unsigned long long)e,
                          (unsigned long long)to->numbers[place][e], (unsigned long long)want[e]);
        }
    }
    free(want);
    return ok;
}

static bool execute_tensor(const orc_tensor_t *tensor, uint32_t ordinal,
                           const orc_transfers_t *all) {
    memory_t from = {{NULL}, {NULL}};
    memory_t to = {{NULL}, {NULL}};
    for (uint32_t i = 0; i < tensor->source.nranks; i++) {
        from.numbers[i] = orc_side_numbers(tensor->from, i);
    }
    for (uint32_t i = 0; i < tensor->target.nranks; i++) {
        uint64_t elements = orc_side_elements(tensor->to, i);
        to.numbers[i] = orc_alloc(elements, sizeof(uint64_t));
        to.counts[i] = orc_alloc(elements, sizeof(uint32_t));
    }
    bool ok = true;
    for (size_t i = 0; ok && i < all->count; i++) {
        if (all->at[i].tensor == ordinal) {
            ok = copy_box(tensor, &all->at[i], &from, &to);
        }
    }
    for (uint32_t i = 0; ok && i < tensor->target.nranks; i++) {
        ok = look_at_target(tensor, i, &to);
    }
    for (uint32_t i = 0; i < ORC_RANKS; i++) {
        free(from.numbers[i]);
        free(to.numbers[i]);
        free(to.counts[i]);
    }
    return ok;
}

bool orc_execute(const orc_case_t *c, const orc_transfers_t *all) {
    for (uint32_t t = 0; t < c->ntensors; t++) {
        if (!execute_tensor(&c->tensors[t], t, all)) {
            return false;
        }
    }
    return true;
}

/* ---- reductions ---- */

static float fold(ferry_reduce_op_t op, float a, float b) {
    switch (op) {
    case FERRY_REDUCE_SUM:
    case FERRY_REDUCE_AVG:
        return a + b;
    case FERRY_REDUCE_MAX:
        return a > b ? a : b;
    case FERRY_REDUCE_MIN:
        return a < b ? a : b;
    case FERRY_REDUCE_PRODUCT:
        return a * b;
    }
    abort();
}

static float reduce_axis(const ferry_reduce_t *reduce, uint32_t axis, const float *values) {
    if (axis == reduce->naxes) {
        return values[0];
    }
    size_t inner = 1;
    for (uint32_t a = axis + 1; a < reduce->naxes; a++) {
        inner *= reduce->sizes[a];
    }
    float result = reduce_axis(reduce, axis + 1, values);
    for (uint32_t i = 1; i < reduce->sizes[axis]; i++) {
        result = fold(reduce->ops[axis], result, reduce_axis(reduce, axis + 1, values + i * inner));
    }
    return reduce->ops[axis] == FERRY_REDUCE_AVG ? result / (float)reduce->sizes[axis] : result;
}

float orc_reduce_f32(const ferry_reduce_t *reduce, const float *values) {
    return reduce_axis(reduce, 0, values);
}
