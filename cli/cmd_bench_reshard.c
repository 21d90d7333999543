/* cmd_bench_reshard.c - `ferry bench reshard`: whole models from one layout to another, against the
 * machine's limit.
 *
 * Invariant: everything that was asked for is checked before the first case runs, for it may run long. */
#include <stdlib.h>

#include "bench_options.h"
#include "bench_report.h"
#include "bench_reshard.h"
#include "commands.h"
#include "error.h"

typedef struct asked {
    reshard_case_t cases[RESHARD_CASES_MAX];
    size_t ncases;
    uint32_t rounds;
    const char *share;
    ferry_work_sharing_t sharing;
} asked_t;

/* A case whose tensors do not fit each other or the machine is found without starting a rank. */
static ferry_status_t try_case(const reshard_case_t *one, ferry_error_t *err) {
    reshard_model_t model;
    ferry_plan_t *plan = NULL;
    ferry_status_t status = reshard_model_init(one, &model, err);
    if (status == FERRY_OK) {
        status = reshard_plan(&model, FERRY_RANK_NONE, &plan, err);
    }
    ferry_plan_destroy(plan);
    reshard_model_fini(&model);
    return status;
}

static ferry_status_t read_asked(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    ferry_status_t status = bench_read_rounds(args, &asked->rounds, err);
    if (status == FERRY_OK) {
        status = bench_read_share(args, &asked->share, &asked->sharing, err);
    }
    if (status == FERRY_OK) {
        status = reshard_read_cases(args, asked->cases, &asked->ncases, err);
    }
    for (size_t i = 0; status == FERRY_OK && i < asked->ncases; i++) {
        status = try_case(&asked->cases[i], err);
        if (status == FERRY_NOMEM) {
            cli_error_place(err, asked->cases[i].name);
        }
    }
    return status;
}

static ferry_status_t run_case(const cli_args_t *args, const asked_t *asked, size_t index,
                               const cli_output_t *out, reshard_facts_t *facts_p,
                               bench_figures_t *figures_p, ferry_error_t *err) {
    const reshard_case_t *one = &asked->cases[index];
    bench_progress_t progress = bench_progress_make(args, out, index, asked->ncases, one->name);
    reshard_model_t model;
    reshard_job_t job = {.asked = one,
                         .model = &model,
                         .rounds = asked->rounds,
                         .sharing = asked->sharing,
                         .progress = &progress};
    ferry_status_t status = reshard_model_init(one, &model, err);
    if (status == FERRY_OK) {
        status = reshard_board_create(&job.board, err);
    }
    if (status == FERRY_OK) {
        status = reshard_run(&job, err);
    }
    if (status == FERRY_OK) {
        reshard_figures_read(&job, facts_p, figures_p);
    }
    reshard_board_destroy(job.board);
    reshard_model_fini(&model);
    return status;
}

static ferry_status_t report(const cli_args_t *args, const asked_t *asked,
                             const bench_figures_t *figures, uint32_t cores, double load,
                             cli_output_t *out, ferry_error_t *err) {
    bench_report_t report = {.cases = figures,
                             .ncases = asked->ncases,
                             .rounds = asked->rounds,
                             .share = asked->share,
                             .load = load,
                             .cores = cores,
                             .targets = cli_args_has(args, "check-targets")};
    if (report.targets && !bench_report_met(&report)) {
        out->exit_code = CLI_EXIT_FAILED;
    }
    if (cli_args_has(args, "json")) {
        return bench_report_json(&report, out, err);
    }
    bench_report_text(&report, out);
    return FERRY_OK;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    asked_t asked = {0};
    ferry_status_t status = read_asked(args, &asked, err);
    if (status != FERRY_OK) {
        return status;
    }
    uint32_t cores = bench_cores();
    double load = bench_load(cores);
    bench_figures_t *figures = calloc(asked.ncases, sizeof *figures);
    reshard_facts_t *facts = calloc(asked.ncases, sizeof *facts);
    status = figures != NULL && facts != NULL ? FERRY_OK : cli_fail_nomem(err);
    for (size_t i = 0; status == FERRY_OK && i < asked.ncases; i++) {
        status = run_case(args, &asked, i, out, &facts[i], &figures[i], err);
    }
    if (status == FERRY_OK) {
        status = report(args, &asked, figures, cores, load, out, err);
    }
    free(figures);
    free(facts);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------- */

static const char *const usage[] = {
    "bench reshard [CASE...] [OPTIONS]",
    "bench reshard --model NAME --from SPEC --to SPEC [OPTIONS]",
    NULL,
};

static const char *const more[] = {
    "Moves the tensors of a model, in their real shapes, from one parallel layout to another, on "
    "ranks that are processes of this machine, round after round in one session. In the end every "
    "element of every target is compared with what it should be.",
    "Cases: llama3-8b-tp (4 layers, TP4 to TP2, bf16), llama3-8b-cast (f32 to bf16), qwen3-ep "
    "(qwen3-235b-a22b, 2 layers and the experts that fit, EP8 to EP4 ETP2), llama3-8b-mxfp8 "
    "(2-D weights quantised to MXFP8 where they land), tiny-700 (700 tensors of 64 bytes between "
    "two ranks: the time of a run). Without CASE: all of them. A SPEC is as in ferry plan.",
    "The limit is the best plain copy of the regions of the same transfers by one worker a core, "
    "measured between our rounds over the same memory. The ratio compares bytes read plus written "
    "a second: of the reshard, those that leave sources and reach targets, each in its own dtype, "
    "quantised ones with their scales, and nothing in between; of the limit, those that it copies. "
    "It can pass 1, for ferry copies long runs in several streams at once, which plain loops do "
    "not. GB/s are half of the bytes read plus written: what arrives, where nothing is cast.",
    "Each figure is the median of the rounds; spread is their range by the median; cold is the "
    "first run, which touches the pages. Phases are those of the rank that works longest.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "model",
     .argument = "NAME",
     .text = "a case of your own: a built-in model",
     .more = "ferry plan --list-models prints them.",
     .complete = CLI_MODEL},
    {.name = "from", .argument = "SPEC", .text = "how the source is spread, such as tp=4"},
    {.name = "to", .argument = "SPEC", .text = "how the target is spread"},
    {.name = "disjoint", .text = "target ranks begin after the source's"},
    {.name = "scale",
     .argument = "PART",
     .text = "fewer layers and experts: layers=4,experts=32, or 0.1 of the bytes",
     .more = "Tensors keep their shapes; layers and experts that are left are spread over the "
             "model. A number takes fewer layers first, then fewer experts, until so much of the "
             "model's bytes is left.",
     .fallback = "what fits in memory"},
    {.name = "only",
     .argument = "TEXT",
     .text = "only tensors that have this in their names",
     .more = "--only layers. leaves embeddings out."},
    {.name = "dtype",
     .argument = "D",
     .text = "element type of the weights",
     .fallback = "bf16",
     .complete = CLI_DTYPE},
    {.name = "to-dtype",
     .argument = "D",
     .text = "element type of the target, if it is another",
     .complete = CLI_DTYPE},
    {.name = "mxfp8",
     .argument = "WHERE",
     .text = "2-D weights arrive as MXFP8, quantised on the receiver or the sender"},
    {.name = "scales",
     .argument = "FORM",
     .text = "of MXFP8: rows, or swizzled over the whole tensor",
     .fallback = "rows"},
    {.name = "budget",
     .argument = "BYTES",
     .text = "of staging a rank may take; more passes are made for it",
     .more = "K, M, G and T are powers of 1024; KB, MB, GB and TB powers of 1000."},
    {.name = "check", .text = "let hashes travel with the bytes, and compare them"},
    {.name = "commit",
     .argument = "MODE",
     .text = "new weights all at once: flip (two copies) or gate (staged)"},
    BENCH_OPTION_ROUNDS,
    BENCH_OPTION_SHARE,
    BENCH_OPTION_TARGETS,
    BENCH_OPTION_JSON,
    BENCH_OPTION_QUIET,
};

static const cli_example_t examples[] = {
    {"all standard cases", "ferry bench reshard"},
    {"one of them", "ferry bench reshard llama3-8b-tp"},
    {"a trainer's weights to separate inference ranks",
     "ferry bench reshard --model llama3-8b --from tp=2,dp=2 --to tp=2 --disjoint"},
    {"experts alone, with two copies of the target",
     "ferry bench reshard --model mixtral-8x7b --from ep=4,dp=4 --to tp=4,etp=4 "
     "--only experts --commit flip"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_bench_reshard = {
    .name = "bench reshard",
    .text = "measure the resharding of whole models against the machine's limit",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .max_words = RESHARD_CASES_MAX,
    .words = "CASE",
    .run = run,
};
