/* tensors.c - the tensors of a model, with names and layouts.
 *
 * All layers of a kind (with experts, or without) have the same tensors, so their names below the
 * layer's prefix are made and sorted once; every layer then copies them. Layers are walked in the
 * order of their decimal text, so the whole comes out in name order and is never sorted.
 *
 * Invariants: tensors are in strcmp order; a shape belongs to a row and is shared by all tensors of
 * it; names lie one after the other in one piece of memory of exactly the right size. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/catalogue.h"
#include "model/names.h"
#include "model/placing.h"
#include "model/set.h"

#define LAYER_PREFIX "model.layers."

enum { PREFIX_BYTES = 32 }; /* enough for LAYER_PREFIX, a number and a dot */

/* A tensor of every layer of a kind, or of none. */
typedef struct slot {
    const char *name; /* below the layer's prefix */
    size_t length;
    const fy_row_t *row;
    uint32_t expert;
    uint32_t ndim;
    const uint64_t *shape;
} slot_t;

typedef struct slots {
    slot_t *items; /* in strcmp order of name */
    size_t count;
    size_t bytes; /* of all names, without terminators */
} slots_t;

typedef struct builder {
    const fy_model_t *model;
    ferry_dtype_t dtype;
    fy_placing_t *placing;
    ferry_tensor_set_t *set;
    fy_arena_t scratch;
    slots_t root;
    slots_t layer[2]; /* without and with experts */
    char *next_name;
} builder_t;

/* ---- slots ------------------------------------------------------------------------------------- */

/* The row's name with the expert's number in place of '*'. */
static char *make_name(fy_arena_t *arena, const char *pattern, uint32_t expert) {
    const char *star = strchr(pattern, '*');
    if (star == NULL) {
        return fy_arena_string(arena, pattern);
    }
    char *name = fy_arena_alloc(arena, strlen(pattern) + 11, 1);
    if (name != NULL) {
        size_t head = (size_t)(star - pattern);
        memcpy(name, pattern, head);
        char *end = fy_name_number(name + head, expert);
        memcpy(end, star + 1, strlen(star + 1) + 1);
    }
    return name;
}

static bool add_slots(builder_t *builder, const fy_row_t *row, slots_t *slots) {
    uint64_t shape[2] = {0, 0};
    uint32_t ndim = fy_row_shape(builder->model, row, shape);
    const uint64_t *kept = fy_arena_copy(&builder->set->arena, shape, ndim, sizeof shape[0]);
    if (kept == NULL) {
        return false;
    }
    uint32_t copies = fy_row_copies(builder->model, row);
    for (uint32_t expert = 0; expert < copies; expert++) {
        const char *name = make_name(&builder->scratch, row->name, expert);
        if (name == NULL) {
            return false;
        }
        size_t length = strlen(name);
        slots->items[slots->count++] = (slot_t){name, length, row, expert, ndim, kept};
        slots->bytes += length;
    }
    return true;
}

static int compare_slots(const void *a, const void *b) {
    return strcmp(((const slot_t *)a)->name, ((const slot_t *)b)->name);
}

/* Turns the rows of all parts into slots. */
static bool make_slots(builder_t *builder, const fy_row_t *const *parts, size_t nparts,
                       slots_t *slots) {
    size_t count = 0;
    for (size_t p = 0; p < nparts; p++) {
        for (const fy_row_t *row = parts[p]; row->name != NULL; row++) {
            count += fy_row_copies(builder->model, row);
        }
    }
    slots->items = fy_arena_alloc(&builder->scratch, count, sizeof(slot_t));
    if (slots->items == NULL) {
        return false;
    }
    for (size_t p = 0; p < nparts; p++) {
        for (const fy_row_t *row = parts[p]; row->name != NULL; row++) {
            if (!add_slots(builder, row, slots)) {
                return false;
            }
        }
    }
    qsort(slots->items, slots->count, sizeof(slot_t), compare_slots);
    return true;
}

static ferry_status_t make_all_slots(builder_t *builder, ferry_error_t *err) {
    const fy_model_t *model = builder->model;
    const fy_row_t *root = fy_model_root(model);
    bool ok = make_slots(builder, &root, 1, &builder->root);
    for (uint32_t sparse = 0; sparse < 2 && ok; sparse++) {
        /* The first layer has no experts, or the last one has: else there are none of the kind. */
        uint32_t example = sparse == 0 ? 0 : model->layers - 1;
        if (fy_model_is_sparse(model, example) == (sparse == 1)) {
            const fy_row_t *parts[2];
            fy_model_layer(model, sparse == 1, parts);
            ok = make_slots(builder, parts, 2, &builder->layer[sparse]);
        }
    }
    return ok ? FERRY_OK : fy_fail_nomem(err, "the tensor names of a model");
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static const slots_t *layer_slots(const builder_t *builder, uint32_t layer) {
    return &builder->layer[fy_model_is_sparse(builder->model, layer) ? 1 : 0];
}

/* "model.layers.7."; returns its length. */
static size_t write_prefix(char prefix[PREFIX_BYTES], uint32_t layer) {
    memcpy(prefix, LAYER_PREFIX, sizeof LAYER_PREFIX - 1);
    char *end = fy_name_number(prefix + sizeof LAYER_PREFIX - 1, layer);
    *end++ = '.';
    return (size_t)(end - prefix);
}

static ferry_status_t reserve(builder_t *builder, ferry_error_t *err) {
    size_t count = builder->root.count;
    size_t bytes = builder->root.bytes + builder->root.count;
    for (uint32_t layer = 0; layer < builder->model->layers; layer++) {
        char prefix[PREFIX_BYTES];
        const slots_t *slots = layer_slots(builder, layer);
        count += slots->count;
        bytes += slots->bytes + slots->count * (write_prefix(prefix, layer) + 1);
    }
    builder->set->tensors = fy_arena_alloc(&builder->set->arena, count, sizeof(ferry_tensor_t));
    builder->next_name = fy_arena_alloc(&builder->set->arena, bytes, 1);
    if (builder->set->tensors == NULL || builder->next_name == NULL) {
        return fy_fail_nomem(err, "the tensors of a model");
    }
    return FERRY_OK;
}

static ferry_status_t add_tensor(builder_t *builder, const char *prefix, size_t prefix_length,
                                 const slot_t *slot, uint32_t stage, ferry_error_t *err) {
    ferry_tensor_set_t *set = builder->set;
    ferry_tensor_t *tensor = &set->tensors[set->count];
    const fy_row_t *row = slot->row;
    FY_TRY(
        fy_placing_layout(builder->placing, stage, row->rule, slot->expert, &tensor->layout, err));
    memcpy(builder->next_name, prefix, prefix_length);
    memcpy(builder->next_name + prefix_length, slot->name, slot->length + 1);
    tensor->name = builder->next_name;
    tensor->dtype = row->dtype != FERRY_DTYPE_NONE ? row->dtype : builder->dtype;
    tensor->ndim = slot->ndim;
    tensor->shape = slot->shape;
    builder->next_name += prefix_length + slot->length + 1;
    set->count++;
    return FERRY_OK;
}

static ferry_status_t add_root_tensor(builder_t *builder, const slot_t *slot, ferry_error_t *err) {
    uint32_t stage = slot->row->on_first_stage ? 0 : builder->placing->grid.pp - 1;
    return add_tensor(builder, "", 0, slot, stage, err);
}

/* The number whose decimal text comes next among 0 .. count - 1: 1, 10, 11, ..., 19, 2, 20, ... */
static uint32_t next_in_text_order(uint32_t number, uint32_t count) {
    if (number > 0 && number * 10 < count) {
        return number * 10;
    }
    while (number % 10 == 9 || number + 1 >= count) {
        number /= 10;
    }
    return number + 1;
}

static ferry_status_t add_layers(builder_t *builder, ferry_error_t *err) {
    uint32_t layers = builder->model->layers;
    uint32_t layer = 0;
    for (uint32_t i = 0; i < layers; i++) {
        char prefix[PREFIX_BYTES];
        size_t length = write_prefix(prefix, layer);
        uint32_t stage = fy_placing_stage(builder->placing, layer);
        const slots_t *slots = layer_slots(builder, layer);
        for (size_t s = 0; s < slots->count; s++) {
            FY_TRY(add_tensor(builder, prefix, length, &slots->items[s], stage, err));
        }
        if (i + 1 < layers) {
            layer = next_in_text_order(layer, layers);
        }
    }
    return FERRY_OK;
}

static ferry_status_t add_tensors(builder_t *builder, ferry_error_t *err) {
    const slots_t *root = &builder->root;
    size_t s = 0;
    for (; s < root->count && strcmp(root->items[s].name, LAYER_PREFIX) < 0; s++) {
        FY_TRY(add_root_tensor(builder, &root->items[s], err));
    }
    FY_TRY(add_layers(builder, err));
    for (; s < root->count; s++) {
        FY_TRY(add_root_tensor(builder, &root->items[s], err));
    }
    return FERRY_OK;
}

static ferry_status_t build(builder_t *builder, ferry_error_t *err) {
    FY_TRY(make_all_slots(builder, err));
    FY_TRY(reserve(builder, err));
    return add_tensors(builder, err);
}

/* ---- the set ----------------------------------------------------------------------------------- */

static ferry_status_t fail_unknown(const char *name, ferry_error_t *err) {
    char known[FERRY_ERROR_TEXT_MAX];
    fy_text_t text;
    fy_text_init(&text, known, sizeof known);
    for (size_t i = 0; i < ferry_model_count(); i++) {
        ferry_model_info_t info;
        FY_TRY(ferry_model_info(i, &info, err));
        fy_text_printf(&text, "%s%s", i > 0 ? ", " : "", info.name);
    }
    return fy_fail(err, FERRY_INVALID, "unknown model \"%.64s\" (known: %s)", name, known);
}

ferry_status_t ferry_model_tensors(const char *model, ferry_dtype_t dtype,
                                   const ferry_parallel_t *parallel, uint32_t first_rank,
                                   ferry_tensor_set_t **set_p, ferry_error_t *err) {
    const fy_model_t *found = model != NULL ? fy_model_find(model) : NULL;
    if (found == NULL) {
        return fail_unknown(model != NULL ? model : "", err);
    }
    return fy_model_tensors(found, dtype, parallel, first_rank, set_p, err);
}

ferry_status_t fy_model_tensors(const fy_model_t *model, ferry_dtype_t dtype,
                                const ferry_parallel_t *parallel, uint32_t first_rank,
                                ferry_tensor_set_t **set_p, ferry_error_t *err) {
    if (ferry_dtype_bits(dtype) == 0) {
        return fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)dtype);
    }
    fy_grid_t grid;
    FY_TRY(fy_grid_init(&grid, parallel, err));
    ferry_tensor_set_t *set = fy_alloc_zero(1, sizeof *set);
    if (set == NULL) {
        return fy_fail_nomem(err, "a tensor set");
    }
    fy_counts_t counts = fy_model_counts(model);
    fy_way_t ways[FY_RULES];
    for (fy_rule_t rule = FY_REPLICATED; rule < FY_RULES; rule++) {
        ways[rule] = fy_model_way(model, rule);
    }
    fy_placing_t placing;
    ferry_status_t status =
        fy_placing_init(&placing, &counts, ways, FY_RULES, &grid, first_rank, err);
    if (status == FERRY_OK) {
        builder_t builder = {.model = model, .dtype = dtype, .placing = &placing, .set = set};
        status = build(&builder, err);
        fy_arena_fini(&builder.scratch);
    }
    if (status == FERRY_OK) {
        set->layouts = fy_placing_take(&placing, &set->nlayouts);
        *set_p = set;
    } else {
        ferry_tensor_set_destroy(set);
    }
    fy_placing_fini(&placing);
    return status;
}

void ferry_tensor_set_destroy(ferry_tensor_set_t *set) {
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->nlayouts; i++) {
        ferry_layout_destroy(set->layouts[i]);
    }
    fy_free(set->layouts);
    fy_arena_fini(&set->arena);
    fy_free(set);
}

const ferry_tensor_t *ferry_tensor_set_tensors(const ferry_tensor_set_t *set, size_t *count_p) {
    *count_p = set->count;
    return set->tensors;
}
