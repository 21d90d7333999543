/* cmd_plan.c - `ferry plan`: who sends what to whom, proven and measured.
 *
 * tensors of both sides -> plan -> check -> figures -> report; each step stops at the first error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "error.h"
#include "json.h"
#include "options.h"
#include "plan_figures.h"
#include "plan_input.h"
#include "plan_options.h"
#include "plan_report.h"
#include "units.h"

/* ---- the catalogue ----------------------------------------------------------------------------- */

static cli_label_t label_parameters(uint64_t parameters) {
    cli_label_t label;
    double value = (double)parameters / 1e9;
    if (value < 999.5) {
        (void)snprintf(label.text, sizeof label.text, "%.*f B", value < 99.95 ? 1 : 0, value);
    } else {
        (void)snprintf(label.text, sizeof label.text, "%.2f T", value / 1e3);
    }
    return label;
}

/* As many of the summary's comma-separated parts as fit on a line. */
static int summary_length(const char *summary) {
    enum { WIDTH = 30 };
    size_t length = strlen(summary);
    while (length > WIDTH) {
        const char *comma = memrchr(summary, ',', length);
        if (comma == NULL) {
            return WIDTH;
        }
        length = (size_t)(comma - summary);
    }
    return (int)length;
}

static ferry_status_t list_models(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    bool as_json = cli_args_has(args, "json");
    cli_json_t json;
    cli_json_init(&json);
    struct json_object *list = cli_json_array(&json, json.root, "models");
    ferry_status_t status = FERRY_OK;
    if (!as_json) {
        cli_print(out, "%s%-16s %7s %7s %6s %7s%s\n", cli_bold(out), "model", "params", "tensors",
                  "layers", "experts", cli_plain(out));
    }
    for (size_t i = 0; status == FERRY_OK && i < ferry_model_count(); i++) {
        ferry_model_info_t info;
        status = ferry_model_info(i, &info, err);
        if (status == FERRY_OK && as_json) {
            struct json_object *node = json_object_new_object();
            cli_json_push(&json, list, node);
            node = json.nomem ? NULL : node;
            cli_json_text(&json, node, "name", info.name);
            cli_json_text(&json, node, "summary", info.summary);
            cli_json_u64(&json, node, "params", info.parameters);
            cli_json_u64(&json, node, "tensors", info.tensors);
            cli_json_u64(&json, node, "layers", info.layers);
            cli_json_u64(&json, node, "experts", info.experts);
        } else if (status == FERRY_OK) {
            cli_print(out, "%-16s %7s %7s %6" PRIu32 " %7s  %.*s\n", info.name,
                      label_parameters(info.parameters).text, cli_label_count(info.tensors).text,
                      info.layers, info.experts > 0 ? cli_label_count(info.experts).text : "-",
                      summary_length(info.summary), info.summary);
        }
    }
    if (status == FERRY_OK && as_json) {
        status = cli_json_print(&json, out, err);
    }
    cli_json_fini(&json);
    return status;
}

/* ---- planning ---------------------------------------------------------------------------------- */

static ferry_status_t make_plan(const plan_input_t *input, ferry_plan_t **plan_p,
                                ferry_error_t *err) {
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = input->flags;
    if (input->rank != FERRY_RANK_NONE) {
        params.flags |= FERRY_PLAN_PART;
        params.rank = input->rank;
    }
    params.sources = input->source.tensors;
    params.nsources = input->source.count;
    params.targets = input->target.tensors;
    params.ntargets = input->target.count;
    params.hosts = input->hosts;
    params.nhosts = input->hosts != NULL ? plan_input_ranks(input) : 0;
    return ferry_plan_create(&params, plan_p, err);
}

static ferry_status_t check_rank(const plan_input_t *input, const plan_figures_t *figures,
                                 ferry_error_t *err) {
    if (input->rank == FERRY_RANK_NONE || figures->own != NULL) {
        return FERRY_OK;
    }
    return cli_fail(err, FERRY_INVALID,
                    "--rank %" PRIu32 ": no such rank; the sources are %s and the targets %s",
                    input->rank,
                    cli_label_ranks(figures->sources.first, figures->sources.last).text,
                    cli_label_ranks(figures->targets.first, figures->targets.last).text);
}

static ferry_status_t stage_file(const cli_args_t *args, const ferry_plan_t *plan,
                                 cli_output_t *out, ferry_error_t *err) {
    const char *path = cli_args_value(args, "out");
    if (path == NULL) {
        return FERRY_OK;
    }
    if (path[0] == '\0') {
        return cli_fail(err, FERRY_INVALID, "--out '': a file name is needed");
    }
    uint8_t *bytes = NULL;
    size_t length = 0;
    ferry_status_t status = ferry_plan_encode(plan, &bytes, &length, err);
    if (status == FERRY_OK) {
        status = cli_output_stage(out, path, bytes, length, err);
    }
    ferry_free(bytes);
    return status;
}

static ferry_status_t report(const cli_args_t *args, const plan_input_t *input,
                             const plan_figures_t *figures, cli_output_t *out, ferry_error_t *err) {
    plan_subject_t subject = {
        .model = input->model, .from = input->source.spec, .to = input->target.spec};
    plan_report_t asked = {.json = cli_args_has(args, "json"),
                           .transfers = cli_args_has(args, "transfers")};
    return plan_report_print(&asked, &subject, figures, out, err);
}

/* Everything after the input is read. */
static ferry_status_t plan_and_report(const cli_args_t *args, const plan_input_t *input,
                                      plan_figures_t *figures, cli_output_t *out,
                                      ferry_error_t *err) {
    double since = out->start_s;
    plan_figures_phase(figures, PLAN_PHASE_TENSORS, &since);
    ferry_plan_t *plan = NULL;
    ferry_status_t status = make_plan(input, &plan, err);
    plan_figures_phase(figures, PLAN_PHASE_PLAN, &since);
    if (status == FERRY_OK) {
        status = ferry_plan_check(plan, err);
        plan_figures_phase(figures, PLAN_PHASE_CHECK, &since);
    }
    if (status == FERRY_OK) {
        status = plan_figures_measure(figures, plan, input->slot_bytes, out->start_s, err);
    }
    if (status == FERRY_OK) {
        status = check_rank(input, figures, err);
    }
    if (status == FERRY_OK) {
        status = stage_file(args, plan, out, err);
    }
    if (status == FERRY_OK) {
        status = report(args, input, figures, out, err);
    }
    ferry_plan_destroy(plan);
    return status;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    const char *model = cli_args_value(args, "model");
    if (cli_args_has(args, "list-models") || (model != NULL && strcmp(model, "list") == 0)) {
        return list_models(args, out, err);
    }
    plan_input_t input;
    plan_figures_t figures;
    plan_figures_init(&figures);
    ferry_status_t status = plan_input_init(&input, args, err);
    if (status == FERRY_OK) {
        status = plan_and_report(args, &input, &figures, out, err);
    }
    plan_figures_fini(&figures);
    plan_input_fini(&input);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------- */

static const char *const usage[] = {
    "plan --shape SHAPE --from LAYOUT --to LAYOUT [--dtype D] [--name NAME] [OPTIONS]",
    "plan --model NAME --from SPEC --to SPEC [--collocated|--disjoint] [OPTIONS]",
    "plan --list-models",
    NULL,
};

static const char *const more[] = {
    "Works out who sends which part of which tensor to whom, checks that every element of every "
    "target arrives exactly once, gives the transfers conflict-free rounds, and says how the plan "
    "stands against the lower bound. Nothing is moved.",
    "A LAYOUT is a mesh and one placement per mesh axis, with ranks if they do not count from 0: "
    "2x2:R,S0 or 4:S1@4-7 (R replicated, S0 sharded along dim 0, P(sum) partial sums). Cuts can be "
    "refined: S0/stride(2), S0/cyclic(64), S0/sizes(32,16), S0/unit(128), S0/ragged(10,0,7), "
    "SS(0,2). "
    "The grammar is in docs/formats/layout.md.",
    "A SPEC says how a model is spread: tp=8,pp=4,dp=2 with the axes tp, cp, pp, dp, ep and etp; "
    "world = tp * cp * pp * dp, and ep * etp divides tp * cp * dp. Ranks count in the order "
    "tp-cp-ep-dp-pp, innermost first, unless the spec ends in order=dp-tp-cp-ep-pp or the like.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "shape",
     .argument = "SHAPE",
     .text = "shape of one tensor: 64x128 or 64,128",
     .more = "\"scalar\" has no dims; a length may be 0."},
    {.name = "model",
     .argument = "NAME",
     .text = "all tensors of a built-in model",
     .more = "\"list\" prints the catalogue.",
     .complete = CLI_MODEL},
    {.name = "list-models", .text = "print the built-in models"},
    {.name = "from", .argument = "LAYOUT", .text = "layout or parallel spec of the source"},
    {.name = "to", .argument = "LAYOUT", .text = "layout or parallel spec of the target"},
    {.name = "dtype",
     .argument = "D",
     .text = "element type",
     .more = "One of f64 f32 f16 bf16 f8e4m3 f8e5m2 e8m0 i64 i32 i16 i8 u64 u32 u16 u8 bool.",
     .fallback = "f32 for one tensor, bf16 for a model",
     .complete = CLI_DTYPE},
    {.name = "to-dtype",
     .argument = "D",
     .text = "element type of the target, if it is another",
     .more = "Needs --allow-cast. What travels is the narrower of both.",
     .complete = CLI_DTYPE},
    {.name = "allow-cast", .text = "let source and target differ in dtype"},
    {.name = "name", .argument = "NAME", .text = "name of the tensor", .fallback = "tensor"},
    {.name = "collocated",
     .text = "target ranks count from 0, like the source's",
     .more = "The default for a model: both sides share their ranks."},
    {.name = "disjoint", .text = "target ranks begin after the source's"},
    PLAN_OPTION_RANK,
    {.name = "hosts",
     .argument = "N",
     .text = "ranks lie on N hosts, in contiguous blocks",
     .more =
         "A block is the number of ranks over N, rounded up. Sources on the target's own host are "
         "preferred."},
    PLAN_OPTION_SLOT,
    {.name = "strict", .text = "a source tensor without a target is an error"},
    PLAN_OPTION_JSON,
    PLAN_OPTION_TRANSFERS,
    {.name = "out",
     .argument = "FILE",
     .text = "write the plan in its binary form",
     .more = "The file appears whole or not at all. Its form is described in docs/formats/plan.md.",
     .complete = CLI_FILE},
};

static const cli_example_t examples[] = {
    {"one tensor from a 2x2 mesh to four other ranks",
     "ferry plan --shape 64x128 --dtype f32 --from '2x2:R,S0' --to '4:S1@4-7'"},
    {"a trainer hands its weights to separate inference ranks",
     "ferry plan --model llama3-70b --from tp=8,dp=8 --to tp=4,dp=16 --disjoint"},
    {"what rank 3 of a model does",
     "ferry plan --model deepseek-v3 --from pp=8,ep=4,dp=4 --to tp=8,ep=8 --rank 3"},
    {"keep a plan; ferry plan show a.plan looks at it later",
     "ferry plan --model llama3-8b --from tp=4 --to tp=2 --out a.plan"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_plan = {
    .name = "plan",
    .text = "plan the way from one layout to another and explain it",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .run = run,
};
