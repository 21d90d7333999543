/* rules_place.c - gives the tensors of a checkpoint their layouts.
 *
 * Names lead to rules, rules to ways, and the placing that the catalogue uses too makes layouts of
 * those. Only what is used must be there: a number that no tensor of the checkpoint needs may be missing.
 *
 * Invariants: the tensors of the set are in strcmp order of their names; every layer and expert that
 * reaches the placing is one that the model has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "layout/layout.h"
#include "model/rules.h"
#include "model/set.h"

enum { SHOWN_NAMES = 5 };

/* A tensor and the rule that covers it. */
typedef struct match {
    const ferry_whole_t *whole;
    uint32_t rule; /* nrules: none */
    fy_captures_t at;
} match_t;

typedef struct placer {
    const ferry_rules_t *rules;
    const ferry_place_params_t *params;
    fy_value_t *values; /* of the rules' numbers */
    match_t *matches;   /* in the order of names */
    bool *used;         /* per rule */
    fy_counts_t counts;
    fy_way_t *ways; /* per rule, and one for tensors without */
    fy_placing_t placing;
    ferry_tensor_set_t *set;
} placer_t;

/* ---- numbers ----------------------------------------------------------------------------------- */

fy_value_t *fy_rules_values(const ferry_rules_t *rules, const ferry_place_params_t *params) {
    fy_value_t *values = fy_alloc_zero(rules->nnumbers, sizeof *values);
    for (size_t i = 0; i < rules->nnumbers && values != NULL; i++) {
        values[i] = fy_expression_value(&rules->numbers[i].expression, values, params->config,
                                        params->nconfig);
    }
    return values;
}

/* The number of that name, or NULL. */
static const fy_value_t *find_value(const placer_t *placer, const char *name) {
    for (size_t i = 0; i < placer->rules->nnumbers; i++) {
        if (strcmp(placer->rules->numbers[i].name, name) == 0) {
            return &placer->values[i];
        }
    }
    return NULL;
}

/* Fills the record for a value that is not there. */
static void say_value(const placer_t *placer, const char *what, const fy_value_t *value,
                      ferry_error_t *err) {
    if (value->missing != NULL) {
        fy_fail(err, FERRY_INVALID, "rules %s: %s needs \"%.64s\", which is not in config.json",
                placer->rules->name, what, value->missing);
    } else {
        fy_fail(err, FERRY_INVALID, "rules %s: %s: %s", placer->rules->name, what, value->wrong);
    }
}

/* A number that must be there, be at least 1 and fit in 32 bits. */
static ferry_status_t get_count(const placer_t *placer, const char *name, const fy_value_t *value,
                                uint32_t *count_p, ferry_error_t *err) {
    char what[64];
    fy_text_t text;
    fy_text_init(&text, what, sizeof what);
    fy_text_printf(&text, "number %s", name);
    if (!fy_value_is_there(value)) {
        say_value(placer, what, value, err);
        return FERRY_INVALID;
    }
    uint32_t count = (uint32_t)value->value;
    if (count == 0 || count == UINT32_MAX || count != value->value) {
        return fy_fail(err, FERRY_INVALID, "rules %s: %s is %" PRIu64, placer->rules->name, what,
                       value->value);
    }
    *count_p = count;
    return FERRY_OK;
}

/* Layers or experts: as config.json says, else as many as the names show. */
static ferry_status_t count_things(const placer_t *placer, const char *name, uint32_t shown,
                                   uint32_t *count_p, ferry_error_t *err) {
    const fy_value_t *value = find_value(placer, name);
    *count_p = shown;
    if (value == NULL || value->missing != NULL) {
        return FERRY_OK;
    }
    return get_count(placer, name, value, count_p, err);
}

static ferry_status_t count_heads(placer_t *placer, ferry_error_t *err) {
    bool needed = false;
    for (size_t i = 0; i < placer->rules->nrules; i++) {
        fy_axis_cut_t cut = placer->rules->rules[i].way.cut;
        needed = needed || (placer->used[i] && (cut == FY_CUT_QUERY || cut == FY_CUT_KEY_VALUE));
    }
    if (!needed) {
        return FERRY_OK;
    }
    fy_counts_t *counts = &placer->counts;
    FY_TRY(get_count(placer, "heads", find_value(placer, "heads"), &counts->heads, err));
    FY_TRY(get_count(placer, "kv_heads", find_value(placer, "kv_heads"), &counts->kv_heads, err));
    FY_TRY(get_count(placer, "head_dim", find_value(placer, "head_dim"), &counts->head_dim, err));
    if (counts->heads % counts->kv_heads != 0) {
        return fy_fail(err, FERRY_INVALID,
                       "rules %s: %" PRIu32 " heads do not fall into groups for %" PRIu32
                       " K/V heads",
                       placer->rules->name, counts->heads, counts->kv_heads);
    }
    return FERRY_OK;
}

static ferry_status_t count_all(placer_t *placer, ferry_error_t *err) {
    uint32_t layers = 1;
    uint32_t experts = 0;
    for (size_t i = 0; i < placer->params->ntensors; i++) {
        const match_t *match = &placer->matches[i];
        if (match->rule == placer->rules->nrules) {
            continue;
        }
        const fy_tensor_rule_t *rule = &placer->rules->rules[match->rule];
        if (match->at.layer >= layers) {
            layers = match->at.layer + 1;
        }
        if (rule->way.expert && match->at.expert >= experts) {
            experts = match->at.expert + 1;
        }
    }
    placer->counts.name = placer->rules->name;
    FY_TRY(count_things(placer, "layers", layers, &placer->counts.layers, err));
    FY_TRY(count_things(placer, "experts", experts, &placer->counts.experts, err));
    return count_heads(placer, err);
}

/* ---- matching ---------------------------------------------------------------------------------- */

static int compare_matches(const void *a, const void *b) {
    return strcmp(((const match_t *)a)->whole->name, ((const match_t *)b)->whole->name);
}

/* Checks what is passed in, and puts it in the order of names. */
static ferry_status_t order_tensors(placer_t *placer, ferry_error_t *err) {
    const ferry_place_params_t *params = placer->params;
    bool ascending = true;
    for (size_t i = 0; i < params->ntensors; i++) {
        const ferry_whole_t *whole = &params->tensors[i];
        uint64_t elements = 0;
        if (whole->name == NULL || whole->name[0] == '\0') {
            return fy_fail(err, FERRY_INVALID, "tensor number %zu has no name", i);
        }
        ferry_status_t status = FERRY_OK;
        if (ferry_dtype_bits(whole->dtype) == 0) {
            status = fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)whole->dtype);
        } else if (whole->shape == NULL && whole->ndim > 0) {
            status = fy_fail(err, FERRY_INVALID, "the shape is NULL");
        } else {
            status = fy_shape_elements(whole->ndim, whole->shape, &elements, err);
        }
        if (status != FERRY_OK) {
            fy_error_tensor(err, whole->name);
            return status;
        }
        placer->matches[i] = (match_t){.whole = whole};
        ascending = ascending && (i == 0 || strcmp(whole[-1].name, whole->name) < 0);
    }
    if (!ascending) {
        qsort(placer->matches, params->ntensors, sizeof(match_t), compare_matches);
    }
    for (size_t i = 1; i < params->ntensors; i++) {
        if (!ascending && compare_matches(&placer->matches[i - 1], &placer->matches[i]) == 0) {
            ferry_status_t status = fy_fail(err, FERRY_INVALID, "the name is there twice");
            fy_error_tensor(err, placer->matches[i].whole->name);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t fail_unmatched(const placer_t *placer, size_t count, ferry_error_t *err) {
    char names[FERRY_ERROR_TEXT_MAX];
    fy_text_t text;
    fy_text_init(&text, names, sizeof names);
    size_t shown = 0;
    for (size_t i = 0; i < placer->params->ntensors && shown < SHOWN_NAMES; i++) {
        if (placer->matches[i].rule == placer->rules->nrules) {
            fy_text_printf(&text, "%s%.60s", shown > 0 ? ", " : "", placer->matches[i].whole->name);
            shown++;
        }
    }
    return fy_fail(err, FERRY_INVALID, "rules %.40s do not cover %zu tensor%s: %s%s",
                   placer->rules->name, count, count > 1 ? "s" : "", names,
                   count > shown ? ", ..." : "");
}

static ferry_status_t match_tensors(placer_t *placer, ferry_error_t *err) {
    const ferry_rules_t *rules = placer->rules;
    size_t unmatched = 0;
    for (size_t i = 0; i < placer->params->ntensors; i++) {
        match_t *match = &placer->matches[i];
        const fy_named_t *other = NULL;
        const fy_named_t *found =
            fy_names_find(rules->names, rules->nnames, match->whole->name, &match->at, &other);
        if (other != NULL) {
            ferry_status_t status = fy_fail(
                err, FERRY_INVALID, "two rules of %s cover it, in line %" PRIu32 " and %" PRIu32,
                rules->name, rules->rules[found->rule].line, rules->rules[other->rule].line);
            fy_error_tensor(err, match->whole->name);
            return status;
        }
        match->rule = found != NULL ? found->rule : (uint32_t)rules->nrules;
        if (found != NULL) {
            placer->used[match->rule] = true;
        } else {
            unmatched++;
        }
    }
    if (unmatched > 0 && (placer->params->flags & FERRY_RULES_REPLICATE) == 0) {
        return fail_unmatched(placer, unmatched, err);
    }
    return FERRY_OK;
}

/* ---- ways -------------------------------------------------------------------------------------- */

static bool has_tensor(const placer_t *placer, const char *name) {
    size_t lo = 0;
    size_t hi = placer->params->ntensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(placer->matches[mid].whole->name, name);
        if (order == 0) {
            return true;
        }
        lo = order < 0 ? mid + 1 : lo;
        hi = order < 0 ? hi : mid;
    }
    return false;
}

static ferry_status_t make_way(placer_t *placer, size_t index, ferry_error_t *err) {
    const fy_tensor_rule_t *rule = &placer->rules->rules[index];
    fy_way_t way = rule->way;
    way.unit = 1;
    way.both_ends =
        rule->where == FY_ON_ENDS || (rule->tied != NULL && !has_tensor(placer, rule->tied));
    if (rule->unit.count > 0) {
        char what[64];
        fy_text_t text;
        fy_text_init(&text, what, sizeof what);
        fy_text_printf(&text, "the unit in line %" PRIu32, rule->line);
        fy_value_t unit = fy_expression_value(&rule->unit, placer->values, placer->params->config,
                                              placer->params->nconfig);
        if (fy_value_is_there(&unit) && unit.value == 0) {
            unit.wrong = "it is 0";
        }
        if (!fy_value_is_there(&unit)) {
            say_value(placer, what, &unit, err);
            return FERRY_INVALID;
        }
        way.unit = unit.value;
    }
    placer->ways[index] = way;
    return FERRY_OK;
}

static ferry_status_t make_ways(placer_t *placer, ferry_error_t *err) {
    for (size_t i = 0; i < placer->rules->nrules; i++) {
        if (placer->used[i]) {
            FY_TRY(make_way(placer, i, err));
        }
    }
    return FERRY_OK;
}

/* ---- the set ----------------------------------------------------------------------------------- */

static ferry_status_t find_stage(const placer_t *placer, const match_t *match, uint32_t *stage_p,
                                 ferry_error_t *err) {
    const fy_placing_t *placing = &placer->placing;
    bool covered = match->rule < placer->rules->nrules;
    fy_where_t where = covered ? placer->rules->rules[match->rule].where : FY_ON_FIRST;
    *stage_p = where == FY_ON_LAST ? placing->grid.pp - 1 : 0;
    if (where != FY_ON_LAYER) {
        return FERRY_OK;
    }
    if (match->at.layer < placer->counts.layers) {
        *stage_p = fy_placing_stage(placing, match->at.layer);
    } else if (placer->rules->extra_layers) {
        *stage_p = placing->grid.pp - 1;
    } else {
        return fy_fail(err, FERRY_INVALID,
                       "there is no layer %" PRIu32 ": config.json says %" PRIu32, match->at.layer,
                       placer->counts.layers);
    }
    return FERRY_OK;
}

static ferry_status_t place_tensor(placer_t *placer, const match_t *match, ferry_tensor_t *tensor,
                                   ferry_error_t *err) {
    const ferry_whole_t *whole = match->whole;
    const fy_way_t *way = &placer->ways[match->rule];
    uint32_t stage = 0;
    if (way->cut != FY_CUT_NONE && way->dim >= whole->ndim) {
        return fy_fail(
            err, FERRY_INVALID,
            "line %" PRIu32 " of the rules %s cuts dim %" PRIu32 ", but the tensor has %" PRIu32,
            placer->rules->rules[match->rule].line, placer->rules->name, way->dim, whole->ndim);
    }
    if (way->expert && match->at.expert >= placer->counts.experts) {
        return fy_fail(err, FERRY_INVALID,
                       "there is no expert %" PRIu32 ": config.json says %" PRIu32,
                       match->at.expert, placer->counts.experts);
    }
    FY_TRY(find_stage(placer, match, &stage, err));
    FY_TRY(fy_placing_layout(&placer->placing, stage, match->rule, match->at.expert,
                             &tensor->layout, err));
    fy_arena_t *arena = &placer->set->arena;
    tensor->name = fy_arena_string(arena, whole->name);
    tensor->dtype = whole->dtype;
    tensor->ndim = whole->ndim;
    tensor->shape = fy_arena_copy(arena, whole->shape, whole->ndim, sizeof whole->shape[0]);
    return tensor->name != NULL && tensor->shape != NULL ? FERRY_OK
                                                         : fy_fail_nomem(err, "a tensor set");
}

static ferry_status_t fill_set(placer_t *placer, ferry_error_t *err) {
    size_t count = placer->params->ntensors;
    ferry_tensor_set_t *set = placer->set;
    set->tensors = fy_arena_alloc(&set->arena, count, sizeof(ferry_tensor_t));
    if (set->tensors == NULL) {
        return fy_fail_nomem(err, "a tensor set");
    }
    for (; set->count < count; set->count++) {
        const match_t *match = &placer->matches[set->count];
        ferry_status_t status = place_tensor(placer, match, &set->tensors[set->count], err);
        if (status != FERRY_OK) {
            fy_error_tensor(err, match->whole->name);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t place(placer_t *placer, const fy_grid_t *grid, ferry_error_t *err) {
    size_t nrules = placer->rules->nrules;
    placer->values = fy_rules_values(placer->rules, placer->params);
    placer->matches = fy_alloc_zero(placer->params->ntensors, sizeof(match_t));
    placer->used = fy_alloc_zero(nrules, sizeof(bool));
    placer->ways = fy_alloc_zero(nrules + 1, sizeof(fy_way_t));
    placer->set = fy_alloc_zero(1, sizeof *placer->set);
    if (placer->values == NULL || placer->matches == NULL || placer->used == NULL ||
        placer->ways == NULL || placer->set == NULL) {
        return fy_fail_nomem(err, "the tensors of a checkpoint");
    }
    FY_TRY(order_tensors(placer, err));
    FY_TRY(match_tensors(placer, err));
    FY_TRY(count_all(placer, err));
    FY_TRY(make_ways(placer, err));
    FY_TRY(fy_placing_init(&placer->placing, &placer->counts, placer->ways, nrules + 1, grid,
                           placer->params->first_rank, err));
    FY_TRY(fill_set(placer, err));
    placer->set->layouts = fy_placing_take(&placer->placing, &placer->set->nlayouts);
    return FERRY_OK;
}

ferry_status_t fy_rules_check_params(const ferry_place_params_t *params, ferry_error_t *err) {
    if (params == NULL || params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "place parameters are missing or their size is not set "
                       "(FERRY_PLACE_PARAMS_INIT)");
    }
    FY_NEED_ARRAY(params->config, params->nconfig, err);
    FY_NEED_ARRAY(params->tensors, params->ntensors, err);
    for (size_t i = 0; i < params->nconfig; i++) {
        FY_NEED(params->config[i].key, err);
    }
    if ((params->flags & ~(uint32_t)FERRY_RULES_REPLICATE) != 0) {
        return fy_fail(err, FERRY_INVALID, "unknown flags %#" PRIx32, params->flags);
    }
    return FERRY_OK;
}

ferry_status_t ferry_rules_place(const ferry_rules_t *rules, const ferry_place_params_t *params,
                                 ferry_tensor_set_t **set_p, ferry_error_t *err) {
    FY_NEED(rules, err);
    FY_NEED(set_p, err);
    FY_TRY(fy_rules_check_params(params, err));
    const ferry_parallel_t one = FERRY_PARALLEL_INIT;
    fy_grid_t grid;
    FY_TRY(fy_grid_init(&grid, params->parallel != NULL ? params->parallel : &one, err));
    placer_t placer = {.rules = rules, .params = params};
    ferry_status_t status = place(&placer, &grid, err);
    if (status == FERRY_OK) {
        *set_p = placer.set;
    } else {
        ferry_tensor_set_destroy(placer.set);
    }
    fy_placing_fini(&placer.placing);
    fy_free(placer.values);
    fy_free(placer.matches);
    fy_free(placer.used);
    fy_free(placer.ways);
    return status;
}
