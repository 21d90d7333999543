/* cmd_plan_show.c - `ferry plan show FILE`: what a plan file says. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "error.h"
#include "options.h"
#include "plan_figures.h"
#include "plan_file.h"
#include "plan_input.h"
#include "plan_options.h"
#include "plan_report.h"

/* ---- one rank of a whole plan ------------------------------------------------------------------ */

/* The tensors of a plan, as ferry_plan_create takes them. */
typedef struct inputs {
    ferry_tensor_t *sources;
    ferry_tensor_t *targets;
} inputs_t;

static void inputs_fini(inputs_t *inputs) {
    free(inputs->sources);
    free(inputs->targets);
}

static ferry_status_t read_tensors(const ferry_plan_t *plan, inputs_t *inputs, ferry_error_t *err) {
    uint32_t count = ferry_plan_ntensors(plan);
    inputs->sources = calloc((size_t)count + 1, sizeof *inputs->sources);
    inputs->targets = calloc((size_t)count + 1, sizeof *inputs->targets);
    if (inputs->sources == NULL || inputs->targets == NULL) {
        return cli_fail_nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        ferry_plan_tensor_t t;
        ferry_plan_tensor(plan, i, &t);
        inputs->sources[i] =
            (ferry_tensor_t){t.name, t.source_dtype, t.ndim, t.shape, t.source_layout};
        inputs->targets[i] =
            (ferry_tensor_t){t.name, t.target_dtype, t.ndim, t.shape, t.target_layout};
    }
    return FERRY_OK;
}

/* Plans are made from their inputs alone, so a rank's part can be made again from a whole plan. */
static ferry_status_t make_part(const ferry_plan_t *plan, uint32_t rank, ferry_plan_t **part_p,
                                ferry_error_t *err) {
    inputs_t inputs = {0};
    ferry_status_t status = read_tensors(plan, &inputs, err);
    if (status == FERRY_OK) {
        ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
        params.flags = ferry_plan_flags(plan) | FERRY_PLAN_PART;
        params.rank = rank;
        params.sources = inputs.sources;
        params.targets = inputs.targets;
        params.nsources = params.ntargets = ferry_plan_ntensors(plan);
        params.hosts = ferry_plan_hosts(plan, &params.nhosts);
        status = ferry_plan_create(&params, part_p, err);
    }
    inputs_fini(&inputs);
    return status;
}

/* Replaces *plan_p by the part of `rank`. */
static ferry_status_t cut_part(ferry_plan_t **plan_p, uint32_t rank, ferry_error_t *err) {
    uint32_t known = ferry_plan_rank(*plan_p);
    if (rank == FERRY_RANK_NONE || rank == known) {
        return FERRY_OK;
    }
    if (known != FERRY_RANK_NONE) {
        return cli_fail(err, FERRY_INVALID,
                        "--rank %" PRIu32 ": the file holds the part of rank %" PRIu32 " only",
                        rank, known);
    }
    ferry_plan_t *part = NULL;
    ferry_status_t status = make_part(*plan_p, rank, &part, err);
    if (status == FERRY_OK) {
        status = ferry_plan_check(part, err);
    }
    if (status != FERRY_OK) {
        ferry_plan_destroy(part);
        return status;
    }
    ferry_plan_destroy(*plan_p);
    *plan_p = part;
    return FERRY_OK;
}

/* ---- the report -------------------------------------------------------------------------------- */

/* The text of the layout that all tensors have on one side; NULL when they have several, or none. */
static ferry_status_t common_layout(const ferry_plan_t *plan, bool target, char **text_p,
                                    ferry_error_t *err) {
    const ferry_layout_t *first = NULL;
    uint32_t count = ferry_plan_ntensors(plan);
    for (uint32_t i = 0; i < count; i++) {
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(plan, i, &tensor);
        const ferry_layout_t *layout = target ? tensor.target_layout : tensor.source_layout;
        if (first != NULL && first != layout && !ferry_layout_equal(first, layout)) {
            return FERRY_OK;
        }
        first = layout;
    }
    if (first == NULL) {
        return FERRY_OK;
    }
    size_t length = ferry_layout_format(first, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL) {
        return cli_fail_nomem(err);
    }
    (void)ferry_layout_format(first, text, length + 1);
    *text_p = text;
    return FERRY_OK;
}

static ferry_status_t report(const cli_args_t *args, const plan_figures_t *figures,
                             cli_output_t *out, ferry_error_t *err) {
    char *from = NULL;
    char *to = NULL;
    ferry_status_t status = common_layout(figures->plan, false, &from, err);
    if (status == FERRY_OK) {
        status = common_layout(figures->plan, true, &to, err);
    }
    if (status == FERRY_OK) {
        plan_subject_t subject = {.file = args->words[0], .from = from, .to = to};
        plan_report_t asked = {.json = cli_args_has(args, "json"),
                               .transfers = cli_args_has(args, "transfers")};
        status = plan_report_print(&asked, &subject, figures, out, err);
    }
    free(from);
    free(to);
    return status;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    uint32_t rank = FERRY_RANK_NONE;
    uint64_t slot_bytes = 0;
    ferry_status_t status = plan_read_rank(args, &rank, err);
    if (status == FERRY_OK) {
        status = plan_read_slot(args, &slot_bytes, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    plan_figures_t figures;
    plan_figures_init(&figures);
    double since = out->start_s;
    ferry_plan_t *plan = NULL;
    status = plan_file_read(args->words[0], &plan, err);
    plan_figures_phase(&figures, PLAN_PHASE_READ, &since);
    if (status == FERRY_OK) {
        status = cut_part(&plan, rank, err);
    }
    if (status == FERRY_OK) {
        status = plan_figures_measure(&figures, plan, slot_bytes, out->start_s, err);
    }
    if (status == FERRY_OK && rank != FERRY_RANK_NONE && figures.own == NULL) {
        status = cli_fail(err, FERRY_INVALID, "--rank %" PRIu32 ": no such rank in %s", rank,
                          args->words[0]);
    }
    if (status == FERRY_OK) {
        status = report(args, &figures, out, err);
    }
    plan_figures_fini(&figures);
    ferry_plan_destroy(plan);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------- */

static const char *const usage[] = {"plan show FILE [OPTIONS]", NULL};

static const char *const more[] = {
    "Reads a file that `ferry plan --out` wrote, checks it from end to end, and prints the same "
    "report. A file knows tensors and layouts, but not the name of a model.",
    NULL,
};

static const cli_option_t options[] = {
    PLAN_OPTION_RANK,
    PLAN_OPTION_SLOT,
    PLAN_OPTION_JSON,
    PLAN_OPTION_TRANSFERS,
};

static const cli_example_t examples[] = {
    {"every transfer of rank 3", "ferry plan show a.plan --rank 3 --transfers"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_plan_show = {
    .name = "plan show",
    .text = "explain a plan file",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .min_words = 1,
    .max_words = 1,
    .words = "FILE",
    .complete = CLI_FILE,
    .run = run,
};
