/* plan_input.c - from the words on the command line to the tensors of both sides.
 *
 * Errors name the option that they come from. What the library can judge (layouts, parallel specs,
 * how both sides fit) is left to it. */
#include "plan_input.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/sched.h>

#include "error.h"
#include "units.h"

/* ---- dtypes and models ------------------------------------------------------------------------- */

ferry_status_t plan_read_dtype(const cli_args_t *args, const char *option, ferry_dtype_t fallback,
                               ferry_dtype_t *dtype_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, option);
    if (text == NULL) {
        *dtype_p = fallback;
        return FERRY_OK;
    }
    if (ferry_dtype_parse(text, dtype_p, NULL) == FERRY_OK) {
        return FERRY_OK;
    }
    cli_nearest_t nearest = {.word = text};
#define OFFER(name, number, word, bits) cli_nearest_offer(&nearest, word);
    FERRY_DTYPE_MAP(OFFER)
#undef OFFER
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_PARSE, "--%s: unknown dtype '%s' (did you mean %s?)", option,
                        text, nearest.best);
    }
    return cli_fail(err, FERRY_PARSE, "--%s: unknown dtype '%s' (such as f32, bf16, f8e4m3)",
                    option, text);
}

ferry_status_t plan_check_model(const char *model, ferry_error_t *err) {
    cli_nearest_t nearest = {.word = model};
    for (size_t i = 0; i < ferry_model_count(); i++) {
        ferry_model_info_t info;
        ferry_status_t status = ferry_model_info(i, &info, err);
        if (status != FERRY_OK || strcmp(info.name, model) == 0) {
            return status;
        }
        cli_nearest_offer(&nearest, info.name);
    }
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "--model: unknown model '%s' (did you mean %s?)", model,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID,
                    "--model: unknown model '%s' (see ferry plan --list-models)", model);
}

/* ---- the two sides ----------------------------------------------------------------------------- */

static ferry_status_t read_layout(plan_side_t *side, const char *option, ferry_error_t *err) {
    ferry_status_t status = ferry_layout_parse(side->spec, &side->layout, err);
    if (status != FERRY_OK) {
        cli_error_place(err, option);
        return status;
    }
    uint32_t nranks = ferry_layout_nranks(side->layout);
    const uint32_t *ranks = ferry_layout_ranks(side->layout);
    for (uint32_t i = 0; i < nranks; i++) {
        if (ranks[i] >= side->end_rank) {
            side->end_rank = ranks[i] + 1;
        }
    }
    return FERRY_OK;
}

static void set_tensor(plan_input_t *input, plan_side_t *side, const char *name) {
    side->tensor = (ferry_tensor_t){
        .name = name,
        .dtype = side->dtype,
        .ndim = input->ndim,
        .shape = input->shape,
        .layout = side->layout,
    };
    side->tensors = &side->tensor;
    side->count = 1;
}

static ferry_status_t read_one_tensor(plan_input_t *input, const cli_args_t *args,
                                      ferry_error_t *err) {
    ferry_status_t status =
        cli_parse_shape("--shape", cli_args_value(args, "shape"), input->shape, &input->ndim, err);
    if (status == FERRY_OK) {
        status = read_layout(&input->source, "--from", err);
    }
    if (status == FERRY_OK) {
        status = read_layout(&input->target, "--to", err);
    }
    const char *name = cli_args_value(args, "name");
    set_tensor(input, &input->source, name != NULL ? name : "tensor");
    set_tensor(input, &input->target, name != NULL ? name : "tensor");
    return status;
}

ferry_status_t plan_read_model_side(const char *model, plan_side_t *side, uint32_t first_rank,
                                    const char *option, ferry_error_t *err) {
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    uint32_t world = 0;
    ferry_status_t status = ferry_parallel_parse(side->spec, &parallel, err);
    if (status == FERRY_OK) {
        status = ferry_parallel_world(&parallel, &world, err);
    }
    if (status == FERRY_OK && world > FERRY_MAX_RANK + 1 - first_rank) {
        status = cli_fail(err, FERRY_OVERFLOW, "ranks %u to %u: the largest rank is %d", first_rank,
                          first_rank + world - 1, FERRY_MAX_RANK);
    }
    if (status == FERRY_OK) {
        status = ferry_model_tensors(model, side->dtype, &parallel, first_rank, &side->set, err);
    }
    if (status != FERRY_OK) {
        cli_error_place(err, option);
        return status;
    }
    side->tensors = ferry_tensor_set_tensors(side->set, &side->count);
    side->end_rank = first_rank + world;
    return FERRY_OK;
}

static ferry_status_t read_model(plan_input_t *input, const cli_args_t *args, ferry_error_t *err) {
    ferry_status_t status = plan_check_model(input->model, err);
    if (status == FERRY_OK) {
        status = plan_read_model_side(input->model, &input->source, 0, "--from", err);
    }
    if (status == FERRY_OK) {
        uint32_t first = cli_args_has(args, "disjoint") ? input->source.end_rank : 0;
        status = plan_read_model_side(input->model, &input->target, first, "--to", err);
    }
    return status;
}

/* ---- the rest ---------------------------------------------------------------------------------- */

ferry_status_t plan_read_rank(const cli_args_t *args, uint32_t *rank_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "rank");
    uint64_t rank = FERRY_RANK_NONE;
    if (text != NULL) {
        ferry_status_t status = cli_parse_u64("--rank", text, FERRY_MAX_RANK, &rank, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    *rank_p = (uint32_t)rank;
    return FERRY_OK;
}

ferry_status_t plan_read_slot(const cli_args_t *args, uint64_t *slot_bytes_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "slot");
    uint64_t slot = FERRY_SLOT_BYTES_DEFAULT;
    if (text != NULL) {
        ferry_status_t status = cli_parse_bytes("--slot", text, &slot, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (slot == 0) {
            return cli_fail(err, FERRY_INVALID, "--slot '%s': a slot holds at least one byte",
                            text);
        }
    }
    *slot_bytes_p = slot;
    return FERRY_OK;
}

/* Ranks in contiguous blocks of ceil(ranks / hosts). */
static ferry_status_t read_hosts(plan_input_t *input, const cli_args_t *args, ferry_error_t *err) {
    const char *text = cli_args_value(args, "hosts");
    if (text == NULL) {
        return FERRY_OK;
    }
    uint64_t hosts = 0;
    ferry_status_t status = cli_parse_u64("--hosts", text, FERRY_MAX_RANK + 1, &hosts, err);
    if (status != FERRY_OK) {
        return status;
    }
    if (hosts == 0) {
        return cli_fail(err, FERRY_INVALID, "--hosts '%s': at least one host is needed", text);
    }
    uint32_t ranks = plan_input_ranks(input);
    uint32_t block = (uint32_t)((ranks + hosts - 1) / hosts);
    input->hosts = malloc(ranks * sizeof *input->hosts);
    if (input->hosts == NULL) {
        return cli_fail_nomem(err);
    }
    for (uint32_t i = 0; i < ranks; i++) {
        input->hosts[i] = i / block;
    }
    return FERRY_OK;
}

uint32_t plan_input_ranks(const plan_input_t *input) {
    return input->source.end_rank > input->target.end_rank ? input->source.end_rank
                                                           : input->target.end_rank;
}

/* Which options go together. */
static ferry_status_t check_options(const cli_args_t *args, ferry_error_t *err) {
    static const char *const of_models[] = {"collocated", "disjoint"};
    bool model = cli_args_has(args, "model");
    bool shape = cli_args_has(args, "shape");
    if (model == shape) {
        return cli_fail(err, FERRY_INVALID,
                        model ? "--model and --shape exclude each other"
                              : "what shall be planned? Give --model NAME or --shape SHAPE");
    }
    for (size_t i = 0; shape && i < sizeof of_models / sizeof of_models[0]; i++) {
        if (cli_args_has(args, of_models[i])) {
            return cli_fail(err, FERRY_INVALID,
                            "--%s goes with --model; with --shape a layout names its ranks, as in "
                            "4:S0@4-7",
                            of_models[i]);
        }
    }
    if (model && cli_args_has(args, "name")) {
        return cli_fail(err, FERRY_INVALID, "--name goes with --shape");
    }
    if (cli_args_has(args, "collocated") && cli_args_has(args, "disjoint")) {
        return cli_fail(err, FERRY_INVALID, "--collocated and --disjoint exclude each other");
    }
    const char *form = model ? "a parallel spec such as tp=8,dp=8" : "a layout such as 2x2:R,S0";
    if (!cli_args_has(args, "from") || !cli_args_has(args, "to")) {
        return cli_fail(err, FERRY_INVALID, "--%s is missing: %s",
                        cli_args_has(args, "from") ? "to" : "from", form);
    }
    return FERRY_OK;
}

static ferry_status_t read_all(plan_input_t *input, const cli_args_t *args, ferry_error_t *err) {
    ferry_status_t status = check_options(args, err);
    if (status != FERRY_OK) {
        return status;
    }
    input->model = cli_args_value(args, "model");
    input->source.spec = cli_args_value(args, "from");
    input->target.spec = cli_args_value(args, "to");
    input->flags |= cli_args_has(args, "strict") ? FERRY_PLAN_STRICT : 0U;
    input->flags |= cli_args_has(args, "allow-cast") ? FERRY_PLAN_ALLOW_CAST : 0U;
    status = plan_read_slot(args, &input->slot_bytes, err);
    if (status == FERRY_OK) {
        status = plan_read_rank(args, &input->rank, err);
    }
    if (status == FERRY_OK) {
        ferry_dtype_t fallback = input->model != NULL ? FERRY_BF16 : FERRY_F32;
        status = plan_read_dtype(args, "dtype", fallback, &input->source.dtype, err);
    }
    if (status == FERRY_OK) {
        status = plan_read_dtype(args, "to-dtype", input->source.dtype, &input->target.dtype, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    status =
        input->model != NULL ? read_model(input, args, err) : read_one_tensor(input, args, err);
    return status == FERRY_OK ? read_hosts(input, args, err) : status;
}

ferry_status_t plan_input_init(plan_input_t *input, const cli_args_t *args, ferry_error_t *err) {
    *input = (plan_input_t){.rank = FERRY_RANK_NONE};
    return read_all(input, args, err);
}

void plan_side_fini(plan_side_t *side) {
    ferry_layout_destroy(side->layout);
    ferry_tensor_set_destroy(side->set);
}

void plan_input_fini(plan_input_t *input) {
    plan_side_fini(&input->source);
    plan_side_fini(&input->target);
    free(input->hosts);
    *input = (plan_input_t){.rank = FERRY_RANK_NONE};
}
