/* rules_store.c - where a rank's shards lie in the tensors of its file.
 *
 * Everything here is local: shards of one rank are put together as they are, whatever they hold of the whole
 * tensor. Shards that make up one stored tensor are found by sorting: they stand next to each other, in the
 * order of experts and sources.
 *
 * Invariants: the parts of a shard are disjoint boxes that cover it; in a stored tensor every element belongs
 * to exactly one part; an empty shard has no parts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "layout/layout.h"
#include "model/rules.h"

/* More pieces than this in one shard are refused rather than made. */
#define MAX_PIECES (UINT64_C(1) << 24)

struct ferry_store {
    fy_arena_t arena; /* names */
    ferry_stored_t *tensors;
    size_t ntensors, tensors_cap;
    ferry_stored_part_t *parts;
    size_t nparts, parts_cap;
};

/* A shard of the rank. */
typedef struct shard {
    uint32_t tensor; /* index in the set */
    uint32_t rule;   /* of the form; nstored: it is stored as it is */
    uint32_t source; /* which one of the rule's */
    fy_captures_t at;
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
} shard_t;

typedef struct builder {
    const ferry_rules_t *rules;
    const fy_form_t *form; /* NULL: hf */
    const ferry_place_params_t *params;
    const ferry_tensor_t *tensors;
    size_t ntensors;
    uint32_t rank;
    fy_value_t *values;
    shard_t *shards;
    size_t nshards;
    ferry_store_t *store;
} builder_t;

/* ---- shards ------------------------------------------------------------------------------------ */

static ferry_status_t find_rule(const builder_t *builder, const char *name, shard_t *shard,
                                ferry_error_t *err) {
    const fy_form_t *form = builder->form;
    if (form == NULL) {
        return FERRY_OK;
    }
    const fy_named_t *other = NULL;
    const fy_named_t *found = fy_names_find(form->names, form->nnames, name, &shard->at, &other);
    if (other != NULL) {
        return fy_fail(err, FERRY_INVALID,
                       "two statements of form %s store it, in line %" PRIu32 " and %" PRIu32,
                       form->name, form->stored[found->rule].line, form->stored[other->rule].line);
    }
    shard->rule = found != NULL ? found->rule : (uint32_t)form->nstored;
    shard->source = found != NULL ? found->place : 0;
    return FERRY_OK;
}

static ferry_status_t add_shard(builder_t *builder, uint32_t index, ferry_error_t *err) {
    const ferry_tensor_t *tensor = &builder->tensors[index];
    if (!ferry_layout_find(tensor->layout, builder->rank, NULL)) {
        return FERRY_OK;
    }
    shard_t *shard = &builder->shards[builder->nshards];
    *shard = (shard_t){.tensor = index, .ndim = tensor->ndim};
    ferry_status_t status = ferry_layout_local_shape(tensor->layout, tensor->ndim, tensor->shape,
                                                     builder->rank, shard->shape, err);
    if (status == FERRY_OK) {
        status = find_rule(builder, tensor->name, shard, err);
    }
    if (status != FERRY_OK) {
        fy_error_tensor(err, tensor->name);
        return status;
    }
    builder->nshards++;
    return FERRY_OK;
}

static int compare_u32(uint32_t a, uint32_t b) {
    return a < b ? -1 : a > b;
}

static int compare_shards(const void *a, const void *b) {
    const shard_t *x = a;
    const shard_t *y = b;
    int order = compare_u32(x->rule, y->rule);
    order = order != 0 ? order : compare_u32(x->at.layer, y->at.layer);
    order = order != 0 ? order : compare_u32(x->at.expert, y->at.expert);
    order = order != 0 ? order : compare_u32(x->source, y->source);
    return order != 0 ? order : compare_u32(x->tensor, y->tensor);
}

static ferry_status_t find_shards(builder_t *builder, ferry_error_t *err) {
    for (size_t i = 0; i < builder->ntensors; i++) {
        FY_TRY(add_shard(builder, (uint32_t)i, err));
    }
    if (builder->nshards > 1) {
        qsort(builder->shards, builder->nshards, sizeof(shard_t), compare_shards);
    }
    return FERRY_OK;
}

/* ---- one stored tensor ------------------------------------------------------------------------- */

/* A stored tensor that is being put together from shards that follow each other. */
typedef struct group {
    const fy_stored_rule_t *rule; /* NULL: one shard as it is */
    fy_joint_t joint;
    const shard_t *shards;
    uint32_t nsources;
    size_t nslabs; /* experts of a stack, else 1 */
    uint64_t units[FY_MAX_SOURCES];
    uint32_t stored;                  /* index in the store */
    uint32_t ndim;                    /* of one slab */
    uint64_t shape[FERRY_MAX_DIMS];   /* of one slab */
    uint64_t strides[FERRY_MAX_DIMS]; /* of one slab */
    uint64_t slab_elements;
} group_t;

/* The dim of a slab in which dim d of a shard lies; its own inverse. */
static uint32_t stored_dim(const group_t *group, uint32_t d) {
    bool turned = group->rule != NULL && group->rule->transposed && d + 2 >= group->ndim;
    return turned ? 2 * group->ndim - 3 - d : d;
}

static uint32_t joint_dim(const group_t *group) {
    return group->rule != NULL ? stored_dim(group, group->rule->dim) : 0;
}

/* How many of the shards from `first` on belong to one stored tensor. */
static size_t group_length(const builder_t *builder, size_t first) {
    const shard_t *shards = builder->shards;
    size_t end = first + 1;
    if (builder->form == NULL || shards[first].rule == builder->form->nstored) {
        return 1;
    }
    bool stack = builder->form->stored[shards[first].rule].stack;
    while (end < builder->nshards && shards[end].rule == shards[first].rule &&
           shards[end].at.layer == shards[first].at.layer &&
           (stack || shards[end].at.expert == shards[first].at.expert)) {
        end++;
    }
    return end - first;
}

/* Every slab must have all sources. */
static ferry_status_t check_sources(const group_t *group, size_t count, const char *target,
                                    ferry_error_t *err) {
    for (size_t i = 0; i < group->nslabs * group->nsources; i++) {
        const shard_t *head = &group->shards[i - i % group->nsources];
        uint32_t source = (uint32_t)(i % group->nsources);
        if (i < count && group->shards[i].source == source &&
            group->shards[i].at.expert == head->at.expert) {
            continue;
        }
        char missing[FY_MAX_PATTERN + 32];
        fy_pattern_format(group->rule->sources[source],
                          source > 0 || i >= count ? head->at : group->shards[i].at, missing);
        return fy_fail(err, FERRY_INVALID, "%.100s needs %.100s, which is not there", target,
                       missing);
    }
    return FERRY_OK;
}

static ferry_status_t find_units(const builder_t *builder, group_t *group, ferry_error_t *err) {
    for (uint32_t s = 0; s < group->nsources && group->joint == FY_INTERLEAVE; s++) {
        fy_value_t unit = fy_expression_value(group->rule->units[s], builder->values,
                                              builder->params->config, builder->params->nconfig);
        if (unit.missing != NULL) {
            return fy_fail(err, FERRY_INVALID,
                           "rules %s, line %" PRIu32 ": \"%.64s\" is not in config.json",
                           builder->rules->name, group->rule->line, unit.missing);
        }
        if (unit.wrong != NULL || unit.value == 0) {
            return fy_fail(err, FERRY_INVALID, "rules %s, line %" PRIu32 ": a length: %s",
                           builder->rules->name, group->rule->line,
                           unit.wrong != NULL ? unit.wrong : "it is 0");
        }
        group->units[s] = unit.value;
    }
    return FERRY_OK;
}

static ferry_status_t fail_shape(const builder_t *builder, const group_t *group,
                                 const shard_t *shard, const char *what, ferry_error_t *err) {
    ferry_status_t status = FERRY_INVALID;
    if (group->rule == NULL) {
        status = fy_fail(err, status, "%s", what);
    } else {
        status = fy_fail(err, status, "%s, so %s of form %s in line %" PRIu32 " cannot be made",
                         what, builder->store->tensors[group->stored].name, builder->form->name,
                         group->rule->line);
    }
    fy_error_tensor(err, builder->tensors[shard->tensor].name);
    return status;
}

/* Adds a source to the shape of the slab. */
static ferry_status_t join(const builder_t *builder, group_t *group, const shard_t *shard,
                           ferry_error_t *err) {
    if (shard->ndim != group->ndim) {
        return fail_shape(builder, group, shard, "its number of dims is another", err);
    }
    for (uint32_t d = 0; d < shard->ndim; d++) {
        uint64_t *length = &group->shape[stored_dim(group, d)];
        if (d == joint_dim(group)) {
            if (!fy_add_u64(*length, shard->shape[d], length)) {
                return fail_shape(builder, group, shard, "it is too large", err);
            }
        } else if (*length != shard->shape[d]) {
            return fail_shape(builder, group, shard, "its shape does not fit its neighbour's", err);
        }
    }
    return FERRY_OK;
}

/* All slabs of a stack are alike, and all shards of one dtype. */
static ferry_status_t check_alike(const builder_t *builder, const group_t *group,
                                  ferry_error_t *err) {
    ferry_dtype_t dtype = builder->store->tensors[group->stored].dtype;
    for (size_t i = 0; i < group->nslabs * group->nsources; i++) {
        const shard_t *shard = &group->shards[i];
        const shard_t *model = &group->shards[i % group->nsources];
        if (builder->tensors[shard->tensor].dtype != dtype) {
            return fail_shape(builder, group, shard, "its dtype is not its neighbour's", err);
        }
        if (shard->ndim != model->ndim ||
            memcmp(shard->shape, model->shape, sizeof shard->shape) != 0) {
            return fail_shape(builder, group, shard, "its shape is not that of other experts", err);
        }
    }
    return FERRY_OK;
}

static ferry_status_t measure(const builder_t *builder, group_t *group, ferry_error_t *err) {
    const shard_t *first = &group->shards[0];
    const fy_stored_rule_t *rule = group->rule;
    group->ndim = first->ndim;
    if (rule != NULL && ((rule->transposed && first->ndim < 2) ||
                         (group->joint != FY_ALONE && rule->dim >= first->ndim) ||
                         (rule->stack && first->ndim == FERRY_MAX_DIMS))) {
        return fail_shape(builder, group, first, "it has too few or too many dims", err);
    }
    for (uint32_t d = 0; d < first->ndim; d++) {
        group->shape[stored_dim(group, d)] = first->shape[d];
    }
    for (uint32_t s = 1; s < group->nsources; s++) {
        FY_TRY(join(builder, group, &group->shards[s], err));
    }
    group->slab_elements = 1;
    for (uint32_t d = group->ndim; d-- > 0;) {
        group->strides[d] = group->slab_elements;
        if (!fy_mul_u64(group->slab_elements, fy_max_u64(group->shape[d], 1),
                        &group->slab_elements)) {
            return fail_shape(builder, group, first, "it is too large", err);
        }
    }
    uint64_t all = 0;
    if (!fy_mul_u64(group->slab_elements, group->nslabs, &all) || all > INT64_MAX) {
        return fail_shape(builder, group, first, "it is too large", err);
    }
    return rule != NULL ? check_alike(builder, group, err) : FERRY_OK;
}

/* ---- parts ------------------------------------------------------------------------------------- */

/* Where piece `piece` of source s begins in the dim of the joint. */
static uint64_t piece_offset(const group_t *group, uint32_t s, uint64_t piece) {
    uint32_t dim = joint_dim(group);
    uint64_t offset = 0;
    for (uint32_t o = 0; o < group->nsources; o++) {
        uint64_t length = group->shards[o].shape[dim];
        if (group->joint == FY_CONCAT) {
            offset += o < s ? length : 0;
            continue;
        }
        /* Of sources before this one the same piece has been taken already, of others one less. */
        uint64_t taken = 0;
        bool fits = fy_mul_u64(group->units[o], o < s ? piece + 1 : piece, &taken);
        offset += fits ? fy_min_u64(length, taken) : length;
    }
    return offset;
}

static ferry_status_t add_part(builder_t *builder, const group_t *group, size_t slab,
                               const shard_t *shard, uint64_t piece, uint64_t lo, uint64_t extent,
                               ferry_error_t *err) {
    ferry_store_t *store = builder->store;
    if (!fy_reserve(&store->parts, &store->parts_cap, store->nparts + 1, sizeof *store->parts)) {
        return fy_fail_nomem(err, "the parts of a file");
    }
    ferry_stored_part_t *part = &store->parts[store->nparts];
    *part = (ferry_stored_part_t){.tensor = shard->tensor,
                                  .stored = group->stored,
                                  .ndim = shard->ndim,
                                  .first = slab * group->slab_elements};
    bool empty = false;
    for (uint32_t d = 0; d < shard->ndim; d++) {
        part->extent[d] = shard->shape[d];
        part->strides[d] = (int64_t)group->strides[stored_dim(group, d)];
        empty = empty || shard->shape[d] == 0;
    }
    if (group->joint != FY_ALONE) {
        uint32_t dim = joint_dim(group);
        part->lo[dim] = lo;
        part->extent[dim] = extent;
        part->first += piece_offset(group, shard->source, piece) * (uint64_t)part->strides[dim];
    }
    store->nparts += empty ? 0 : 1;
    return FERRY_OK;
}

static ferry_status_t add_parts(builder_t *builder, const group_t *group, size_t slab,
                                const shard_t *shard, ferry_error_t *err) {
    uint64_t length = group->joint != FY_ALONE ? shard->shape[joint_dim(group)] : 1;
    uint64_t unit = length;
    if (group->joint == FY_INTERLEAVE) {
        unit = group->units[shard->source];
    }
    if (length > 0 && length / unit > MAX_PIECES) {
        return fail_shape(builder, group, shard, "it falls into too many pieces", err);
    }
    uint64_t piece = 0;
    for (uint64_t lo = 0; lo < length; piece++) {
        uint64_t extent = fy_min_u64(unit, length - lo);
        FY_TRY(add_part(builder, group, slab, shard, piece, lo, extent, err));
        lo += extent;
    }
    return FERRY_OK;
}

static ferry_status_t add_stored(builder_t *builder, group_t *group, const char *name,
                                 ferry_error_t *err) {
    ferry_store_t *store = builder->store;
    if (!fy_reserve(&store->tensors, &store->tensors_cap, store->ntensors + 1,
                    sizeof *store->tensors)) {
        return fy_fail_nomem(err, "the tensors of a file");
    }
    group->stored = (uint32_t)store->ntensors;
    ferry_stored_t *stored = &store->tensors[store->ntensors++];
    *stored = (ferry_stored_t){.name = fy_arena_string(&store->arena, name),
                               .dtype = builder->tensors[group->shards[0].tensor].dtype};
    if (stored->name == NULL) {
        return fy_fail_nomem(err, "the tensors of a file");
    }
    FY_TRY(measure(builder, group, err));
    bool stack = group->rule != NULL && group->rule->stack;
    if (stack) {
        stored->shape[stored->ndim++] = group->nslabs;
    }
    memcpy(stored->shape + stored->ndim, group->shape, group->ndim * sizeof group->shape[0]);
    stored->ndim += group->ndim;
    for (size_t i = 0; i < group->nslabs * group->nsources; i++) {
        FY_TRY(add_parts(builder, group, i / group->nsources, &group->shards[i], err));
    }
    return FERRY_OK;
}

static ferry_status_t add_group(builder_t *builder, size_t first, size_t count,
                                ferry_error_t *err) {
    const shard_t *shard = &builder->shards[first];
    group_t group = {.shards = shard, .nsources = 1, .nslabs = 1};
    if (builder->form == NULL || shard->rule == builder->form->nstored) {
        return add_stored(builder, &group, builder->tensors[shard->tensor].name, err);
    }
    char name[FY_MAX_PATTERN + 32];
    group.rule = &builder->form->stored[shard->rule];
    group.joint = group.rule->joint;
    group.nsources = group.rule->nsources;
    group.nslabs = fy_ceil_div(count, group.nsources);
    fy_pattern_format(group.rule->target, shard->at, name);
    FY_TRY(check_sources(&group, count, name, err));
    FY_TRY(find_units(builder, &group, err));
    return add_stored(builder, &group, name, err);
}

/* ---- the store --------------------------------------------------------------------------------- */

static int compare_parts(const void *a, const void *b) {
    const ferry_stored_part_t *x = a;
    const ferry_stored_part_t *y = b;
    int order = compare_u32(x->tensor, y->tensor);
    for (uint32_t d = 0; d < x->ndim && order == 0; d++) {
        order = x->lo[d] < y->lo[d] ? -1 : x->lo[d] > y->lo[d];
    }
    return order;
}

/* A stored tensor and the number that parts know it by. */
typedef struct numbered {
    ferry_stored_t stored;
    uint32_t number;
} numbered_t;

static int compare_numbered(const void *a, const void *b) {
    return strcmp(((const numbered_t *)a)->stored.name, ((const numbered_t *)b)->stored.name);
}

/* Puts stored tensors in the order of names, which must differ, and parts in that of shards. */
static ferry_status_t order_store(ferry_store_t *store, ferry_error_t *err) {
    numbered_t *list = fy_alloc(store->ntensors, sizeof *list);
    uint32_t *numbers = fy_alloc(store->ntensors, sizeof *numbers);
    ferry_status_t status = FERRY_OK;
    if (list == NULL || numbers == NULL) {
        status = fy_fail_nomem(err, "the tensors of a file");
    }
    for (size_t i = 0; i < store->ntensors && status == FERRY_OK; i++) {
        list[i] = (numbered_t){store->tensors[i], (uint32_t)i};
    }
    if (status == FERRY_OK && store->ntensors > 1) {
        qsort(list, store->ntensors, sizeof *list, compare_numbered);
    }
    for (size_t i = 0; i < store->ntensors && status == FERRY_OK; i++) {
        store->tensors[i] = list[i].stored;
        numbers[list[i].number] = (uint32_t)i;
        if (i > 0 && compare_numbered(&list[i - 1], &list[i]) == 0) {
            status = fy_fail(err, FERRY_INVALID, "two tensors of the file would have this name");
            fy_error_tensor(err, store->tensors[i].name);
        }
    }
    for (size_t i = 0; i < store->nparts && status == FERRY_OK; i++) {
        store->parts[i].stored = numbers[store->parts[i].stored];
    }
    if (store->nparts > 1) {
        qsort(store->parts, store->nparts, sizeof *store->parts, compare_parts);
    }
    fy_free(list);
    fy_free(numbers);
    return status;
}

static ferry_status_t build(builder_t *builder, ferry_error_t *err) {
    builder->values = fy_rules_values(builder->rules, builder->params);
    builder->shards = fy_alloc(builder->ntensors, sizeof(shard_t));
    builder->store = fy_alloc_zero(1, sizeof *builder->store);
    if (builder->values == NULL || builder->shards == NULL || builder->store == NULL) {
        return fy_fail_nomem(err, "the tensors of a file");
    }
    FY_TRY(find_shards(builder, err));
    for (size_t first = 0; first < builder->nshards;) {
        size_t count = group_length(builder, first);
        FY_TRY(add_group(builder, first, count, err));
        first += count;
    }
    return order_store(builder->store, err);
}

static ferry_status_t find_form(const ferry_rules_t *rules, const char *form,
                                const fy_form_t **form_p, ferry_error_t *err) {
    *form_p = NULL;
    if (strcmp(form, "hf") == 0) {
        return FERRY_OK;
    }
    for (size_t i = 0; i < rules->nforms; i++) {
        if (strcmp(form, rules->forms[i].name) == 0) {
            *form_p = &rules->forms[i];
            return FERRY_OK;
        }
    }
    return fy_fail(err, FERRY_INVALID, "rules %s have no form \"%.64s\"", rules->name, form);
}

ferry_status_t ferry_rules_store(const ferry_rules_t *rules, const char *form,
                                 const ferry_place_params_t *params, const ferry_tensor_set_t *set,
                                 uint32_t rank, ferry_store_t **store_p, ferry_error_t *err) {
    FY_NEED(rules, err);
    FY_NEED(form, err);
    FY_NEED(set, err);
    FY_NEED(store_p, err);
    FY_TRY(fy_rules_check_params(params, err));
    builder_t builder = {.rules = rules, .params = params, .rank = rank};
    builder.tensors = ferry_tensor_set_tensors(set, &builder.ntensors);
    FY_TRY(find_form(rules, form, &builder.form, err));
    ferry_status_t status = build(&builder, err);
    if (status == FERRY_OK) {
        *store_p = builder.store;
    } else {
        ferry_store_destroy(builder.store);
    }
    fy_free(builder.values);
    fy_free(builder.shards);
    return status;
}

void ferry_store_destroy(ferry_store_t *store) {
    if (store != NULL) {
        fy_free(store->tensors);
        fy_free(store->parts);
        fy_arena_fini(&store->arena);
        fy_free(store);
    }
}

const ferry_stored_t *ferry_store_tensors(const ferry_store_t *store, size_t *count_p) {
    *count_p = store->ntensors;
    return store->tensors;
}

const ferry_stored_part_t *ferry_store_parts(const ferry_store_t *store, size_t *count_p) {
    *count_p = store->nparts;
    return store->parts;
}
