/* bench_reshard_model.c - the tensors of a case: those of a model, or fewer of its layers and experts.
 *
 * Fewer layers are spread over the model (the middles of equal parts), so that every pipeline stage and,
 * with experts, every expert-parallel rank keeps its share. A tensor is never made smaller.
 *
 * Invariant: both sides have the same tensors in the same order, and their index is the plan's ordinal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_reshard.h"
#include "doctor.h"
#include "error.h"
#include "units.h"

enum {
    SMALL_TENSORS = 700,
    SMALL_ELEMENTS = 16, /* f32: 64 bytes */
    SMALL_NAME_MAX = 24,
};

/* Parts of the available memory: what a case of no said size may take, and what any case may. */
#define FIT_PART 0.6
#define MOST_PART 0.9

/* ---- names ------------------------------------------------------------------------------------- */

/* The number after `key` ("layers.") where it begins a word of the name; UINT32_MAX: there is none. */
static uint32_t number_in(const char *name, const char *key) {
    for (const char *at = strstr(name, key); at != NULL; at = strstr(at + 1, key)) {
        const char *digits = at + strlen(key);
        bool word = at == name || at[-1] == '.';
        if (word && *digits >= '0' && *digits <= '9') {
            return (uint32_t)strtoul(digits, NULL, 10);
        }
    }
    return UINT32_MAX;
}

/* Is `index` among the `kept` that are spread over `all`? */
static bool is_kept(uint32_t index, uint32_t kept, uint32_t all) {
    if (index == UINT32_MAX || kept >= all) {
        return true;
    }
    uint64_t part = (uint64_t)index * kept / all; /* the middle of a part is in it */
    for (uint64_t i = part; i <= part + 1 && i < kept; i++) {
        if ((2 * i + 1) * all / (2 * (uint64_t)kept) == index) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(const reshard_case_t *asked, const reshard_model_t *model,
                      const reshard_scale_t *scale, const char *name) {
    return is_kept(number_in(name, "layers."), scale->layers, model->all_layers) &&
           is_kept(number_in(name, "experts."), scale->experts, model->all_experts) &&
           (asked->only == NULL || strstr(name, asked->only) != NULL);
}

bool reshard_is_mx(const reshard_case_t *asked, const ferry_tensor_t *tensor) {
    bool from =
        tensor->dtype == FERRY_F32 || tensor->dtype == FERRY_F16 || tensor->dtype == FERRY_BF16;
    return asked->mx != RESHARD_MX_NONE && tensor->ndim == 2 && from;
}

/* ---- sizes ------------------------------------------------------------------------------------- */

/* Elements that the ranks of a layout hold together. */
static ferry_status_t held_elements(const ferry_tensor_t *tensor, uint64_t *elements_p,
                                    ferry_error_t *err) {
    uint32_t nranks = ferry_layout_nranks(tensor->layout);
    const uint32_t *ranks = ferry_layout_ranks(tensor->layout);
    uint64_t all = 0;
    for (uint32_t i = 0; i < nranks; i++) {
        uint64_t local[FERRY_MAX_DIMS];
        ferry_status_t status = ferry_layout_local_shape(tensor->layout, tensor->ndim,
                                                         tensor->shape, ranks[i], local, err);
        if (status != FERRY_OK) {
            return status;
        }
        uint64_t elements = 1;
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            elements *= local[d]; /* the layout was checked against the shape */
        }
        all += elements;
    }
    *elements_p = all;
    return FERRY_OK;
}

static uint64_t bytes_of(ferry_dtype_t dtype, uint64_t elements) {
    return elements * ferry_dtype_bits(dtype) / 8;
}

/* What a tensor adds to the memory and the traffic of a case. */
typedef struct cost {
    uint64_t memory;
    uint64_t read;
    uint64_t written;
} cost_t;

/* What quantising takes on the way: payloads on the sender, an accumulator for swizzled scales. */
static uint64_t staged_bytes(const reshard_case_t *asked, uint64_t elements, uint64_t written) {
    if (asked->mx == RESHARD_MX_SENDER) {
        return written;
    }
    return asked->mx_layout == FERRY_MX_SWIZZLED ? bytes_of(FERRY_BF16, elements) : 0;
}

static ferry_status_t cost_of(const reshard_case_t *asked, const ferry_tensor_t *source,
                              const ferry_tensor_t *target, cost_t *cost_p, ferry_error_t *err) {
    uint64_t held = 0;
    uint64_t arrives = 0;
    ferry_status_t status = held_elements(source, &held, err);
    if (status == FERRY_OK) {
        status = held_elements(target, &arrives, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    bool mx = reshard_is_mx(asked, target);
    uint64_t written = mx ? arrives + arrives / FERRY_MX_BLOCK : bytes_of(target->dtype, arrives);
    uint64_t staged = mx ? staged_bytes(asked, arrives, written) : 0;
    *cost_p = (cost_t){
        .memory = bytes_of(source->dtype, held) + written * (asked->commit != 0 ? 2 : 1) + staged,
        .read = bytes_of(source->dtype, arrives),
        .written = written,
    };
    return FERRY_OK;
}

/* ---- how much ---------------------------------------------------------------------------------- */

/* Costs by tensor of the whole model; both sides are in name order. */
typedef struct costs {
    const reshard_case_t *asked;
    const reshard_model_t *model;
    const ferry_tensor_t *const *sources;
    cost_t *list;
    size_t count;
} costs_t;

static cost_t total(const costs_t *costs, const reshard_scale_t *scale) {
    cost_t all = {0};
    for (size_t i = 0; i < costs->count; i++) {
        if (is_wanted(costs->asked, costs->model, scale, costs->sources[i]->name)) {
            all.memory += costs->list[i].memory;
            all.read += costs->list[i].read;
            all.written += costs->list[i].written;
        }
    }
    return all;
}

/* Fewer layers, then fewer experts, until `limit` bytes suffice or nothing is left to leave out. */
static void shrink(const costs_t *costs, const reshard_scale_t *said, uint64_t limit,
                   reshard_scale_t *scale) {
    while (said->layers == 0 && scale->layers > 1 && total(costs, scale).memory > limit) {
        scale->layers--;
    }
    while (said->experts == 0 && scale->experts > 1 && total(costs, scale).memory > limit) {
        scale->experts = (scale->experts + 1) / 2;
    }
}

static uint64_t available_bytes(void) {
    doctor_facts_t facts;
    doctor_ask(&facts);
    return facts.available_bytes < facts.cgroup_bytes ? facts.available_bytes : facts.cgroup_bytes;
}

static ferry_status_t fail_memory(uint64_t needed, uint64_t there, ferry_error_t *err) {
    return cli_fail(err, FERRY_NOMEM,
                    "about %s of memory are needed and %s are available (--scale takes less)",
                    cli_label_bytes(needed).text, cli_label_bytes(there).text);
}

static ferry_status_t choose_scale(const costs_t *costs, reshard_scale_t *scale_p,
                                   ferry_error_t *err) {
    const reshard_scale_t *said = &costs->asked->scale;
    const reshard_model_t *model = costs->model;
    reshard_scale_t scale = {
        .layers = said->layers > 0 ? said->layers : model->all_layers,
        .experts = said->experts > 0 ? said->experts : model->all_experts,
    };
    uint64_t there = available_bytes();
    if (said->part > 0) {
        shrink(costs, said, (uint64_t)(said->part * (double)total(costs, &scale).memory), &scale);
    } else {
        shrink(costs, said, (uint64_t)(FIT_PART * (double)there), &scale);
    }
    uint64_t needed = total(costs, &scale).memory;
    if ((double)needed > MOST_PART * (double)there) {
        return fail_memory(needed, there, err);
    }
    *scale_p = scale;
    return FERRY_OK;
}

/* ---- models ------------------------------------------------------------------------------------ */

static ferry_status_t read_info(const reshard_case_t *asked, reshard_model_t *model,
                                ferry_error_t *err) {
    ferry_status_t status = plan_check_model(asked->model, err);
    for (size_t i = 0; status == FERRY_OK && i < ferry_model_count(); i++) {
        ferry_model_info_t info;
        status = ferry_model_info(i, &info, err);
        if (status == FERRY_OK && strcmp(info.name, asked->model) == 0) {
            model->all_layers = info.layers;
            model->all_experts = info.experts;
        }
    }
    const reshard_scale_t *said = &asked->scale;
    if (status == FERRY_OK && said->layers > model->all_layers) {
        return cli_fail(err, FERRY_INVALID, "--scale: %s has %" PRIu32 " layers, not %" PRIu32,
                        asked->model, model->all_layers, said->layers);
    }
    if (status == FERRY_OK && said->experts > 0 && model->all_experts == 0) {
        return cli_fail(err, FERRY_INVALID, "--scale: %s has no experts", asked->model);
    }
    if (status == FERRY_OK && said->experts > model->all_experts) {
        return cli_fail(err, FERRY_INVALID, "--scale: %s has %" PRIu32 " experts, not %" PRIu32,
                        asked->model, model->all_experts, said->experts);
    }
    return status;
}

static ferry_status_t read_sides(const reshard_case_t *asked, reshard_model_t *model,
                                 ferry_error_t *err) {
    plan_side_t *source = &model->sides[BENCH_SOURCE];
    plan_side_t *target = &model->sides[BENCH_TARGET];
    source->spec = asked->from;
    source->dtype = asked->dtype;
    target->spec = asked->to;
    target->dtype = asked->to_dtype;
    ferry_status_t status = plan_read_model_side(asked->model, source, 0, "--from", err);
    if (status == FERRY_OK) {
        uint32_t first = asked->disjoint ? source->end_rank : 0;
        status = plan_read_model_side(asked->model, target, first, "--to", err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    model->ranks = source->end_rank > target->end_rank ? source->end_rank : target->end_rank;
    if (model->ranks > BENCH_RANKS_MAX) {
        return cli_fail(err, FERRY_INVALID, "%s -> %s: %" PRIu32 " ranks, and at most %d run here",
                        asked->from, asked->to, model->ranks, BENCH_RANKS_MAX);
    }
    return FERRY_OK;
}

static int compare_names(const void *a, const void *b) {
    const ferry_tensor_t *const *x = a;
    const ferry_tensor_t *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Pointers to the tensors of a side, in name order. NULL: no memory. */
static const ferry_tensor_t **sort_tensors(const plan_side_t *side) {
    const ferry_tensor_t **sorted = calloc(side->count + 1, sizeof *sorted);
    for (size_t i = 0; sorted != NULL && i < side->count; i++) {
        sorted[i] = &side->tensors[i];
    }
    if (sorted != NULL) {
        qsort(sorted, side->count, sizeof *sorted, compare_names);
    }
    return sorted;
}

static ferry_status_t take_tensors(const reshard_case_t *asked, reshard_model_t *model,
                                   const ferry_tensor_t *const *sorted[BENCH_SIDES],
                                   const reshard_scale_t *scale, ferry_error_t *err) {
    for (int side = 0; side < BENCH_SIDES; side++) {
        size_t all = model->sides[side].count;
        model->tensors[side] = calloc(all + 1, sizeof *model->tensors[side]);
        if (model->tensors[side] == NULL) {
            return cli_fail_nomem(err);
        }
        model->count = 0;
        for (size_t i = 0; i < all; i++) {
            if (is_wanted(asked, model, scale, sorted[side][i]->name)) {
                model->tensors[side][model->count++] = *sorted[side][i];
            }
        }
    }
    if (model->count == 0) {
        return cli_fail(err, FERRY_INVALID, "--only %s: no tensor of %s has that in its name",
                        asked->only, asked->model);
    }
    model->layers = scale->layers;
    model->experts = scale->experts;
    return FERRY_OK;
}

static ferry_status_t scale_model(const reshard_case_t *asked, reshard_model_t *model,
                                  const ferry_tensor_t *const *sorted[BENCH_SIDES], cost_t *list,
                                  ferry_error_t *err) {
    costs_t costs = {asked, model, sorted[BENCH_SOURCE], list, model->sides[BENCH_SOURCE].count};
    for (size_t i = 0; i < costs.count; i++) {
        ferry_status_t status =
            cost_of(asked, sorted[BENCH_SOURCE][i], sorted[BENCH_TARGET][i], &list[i], err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    reshard_scale_t scale = {0};
    ferry_status_t status = choose_scale(&costs, &scale, err);
    if (status == FERRY_OK) {
        cost_t all = total(&costs, &scale);
        model->bytes_read = all.read;
        model->bytes_written = all.written;
        model->memory_bytes = all.memory;
        status = take_tensors(asked, model, sorted, &scale, err);
    }
    return status;
}

static ferry_status_t init_model(const reshard_case_t *asked, reshard_model_t *model,
                                 ferry_error_t *err) {
    ferry_status_t status = read_info(asked, model, err);
    if (status == FERRY_OK) {
        status = read_sides(asked, model, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    const ferry_tensor_t **sources = sort_tensors(&model->sides[BENCH_SOURCE]);
    const ferry_tensor_t **targets = sort_tensors(&model->sides[BENCH_TARGET]);
    cost_t *list = calloc(model->sides[BENCH_SOURCE].count + 1, sizeof *list);
    const ferry_tensor_t *const *sorted[BENCH_SIDES] = {sources, targets};
    status = sources != NULL && targets != NULL && list != NULL
                 ? scale_model(asked, model, sorted, list, err)
                 : cli_fail_nomem(err);
    free(sources);
    free(targets);
    free(list);
    return status;
}

/* ---- small tensors ----------------------------------------------------------------------------- */

/* Every second tensor goes from rank 0 to rank 1, the others back. */
static ferry_status_t init_small(const reshard_case_t *asked, reshard_model_t *model,
                                 ferry_error_t *err) {
    static const char *const texts[] = {"1:R@0", "1:R@1"};
    static const uint64_t shape[] = {SMALL_ELEMENTS};
    model->ranks = 2;
    model->count = SMALL_TENSORS;
    model->names = calloc(SMALL_TENSORS, SMALL_NAME_MAX);
    ferry_status_t status = model->names != NULL ? FERRY_OK : cli_fail_nomem(err);
    for (int i = 0; status == FERRY_OK && i < 2; i++) {
        status = ferry_layout_parse(texts[i], &model->layouts[i], err);
    }
    for (int side = 0; status == FERRY_OK && side < BENCH_SIDES; side++) {
        model->tensors[side] = calloc(SMALL_TENSORS, sizeof *model->tensors[side]);
        if (model->tensors[side] == NULL) {
            return cli_fail_nomem(err);
        }
        for (int i = 0; i < SMALL_TENSORS; i++) {
            char *name = model->names + (size_t)i * SMALL_NAME_MAX;
            (void)snprintf(name, SMALL_NAME_MAX, "bias.%04d", i);
            model->tensors[side][i] = (ferry_tensor_t){
                .name = name,
                .dtype = side == BENCH_SOURCE ? asked->dtype : asked->to_dtype,
                .ndim = 1,
                .shape = shape,
                .layout = model->layouts[(i + side) % 2],
            };
        }
    }
    uint64_t elements = (uint64_t)SMALL_TENSORS * SMALL_ELEMENTS;
    model->bytes_read = bytes_of(asked->dtype, elements);
    model->bytes_written = bytes_of(asked->to_dtype, elements);
    model->memory_bytes = model->bytes_read + model->bytes_written;
    return status;
}

/* ---- all --------------------------------------------------------------------------------------- */

ferry_status_t reshard_model_init(const reshard_case_t *asked, reshard_model_t *model_p,
                                  ferry_error_t *err) {
    *model_p = (reshard_model_t){0};
    return asked->model != NULL ? init_model(asked, model_p, err) : init_small(asked, model_p, err);
}

void reshard_model_fini(reshard_model_t *model) {
    for (int side = 0; side < BENCH_SIDES; side++) {
        plan_side_fini(&model->sides[side]);
        free(model->tensors[side]);
        ferry_layout_destroy(model->layouts[side]);
    }
    free(model->names);
    *model = (reshard_model_t){0};
}

ferry_status_t reshard_plan(const reshard_model_t *model, uint32_t rank, ferry_plan_t **plan_p,
                            ferry_error_t *err) {
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_STRICT | FERRY_PLAN_ALLOW_CAST;
    if (rank != FERRY_RANK_NONE) {
        params.flags |= FERRY_PLAN_PART;
        params.rank = rank;
    }
    params.sources = model->tensors[BENCH_SOURCE];
    params.nsources = model->count;
    params.targets = model->tensors[BENCH_TARGET];
    params.ntargets = model->count;
    return ferry_plan_create(&params, plan_p, err);
}
