/* cmd_bench.c - `ferry bench`: how fast ferry is here, how fast it could be, and what others reach.
 *
 * Invariant: everything that was asked for is checked before the first case runs, for it may run long. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_figures.h"
#include "bench_options.h"
#include "bench_peers.h"
#include "bench_report.h"
#include "bench_trace.h"
#include "commands.h"
#include "error.h"
#include "options.h"

enum { CASES_MAX = 64 };

typedef struct asked {
    const char *names[CASES_MAX];
    size_t nnames;
    uint32_t rounds;
    double scale;
    const char *share;
    ferry_work_sharing_t sharing;
    const char *trace; /* NULL: none */
    const char *peers; /* the program that runs them; NULL: none */
    bool quiet;        /* no progress */
} asked_t;

/* ---- what is asked for ------------------------------------------------------------------------- */

static ferry_status_t read_names(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    if (args->nwords == 0) {
        while (bench_name(asked->nnames) != NULL) {
            asked->names[asked->nnames] = bench_name(asked->nnames);
            asked->nnames++;
        }
        return FERRY_OK;
    }
    for (size_t i = 0; i < args->nwords; i++) {
        bench_job_t job;
        ferry_status_t status = bench_job_init(args->words[i], 1, &job, err);
        if (status != FERRY_OK) {
            return status;
        }
        asked->names[asked->nnames++] = args->words[i];
    }
    return FERRY_OK;
}

static ferry_status_t read_scale(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    const char *text = cli_args_value(args, "scale");
    asked->scale = 1;
    if (text == NULL) {
        return FERRY_OK;
    }
    char *end = NULL;
    asked->scale = strtod(text, &end);
    if (end == text || *end != '\0' || !(asked->scale > 0 && asked->scale <= 1)) {
        return cli_fail(err, FERRY_INVALID, "--scale %s: a number above 0 and up to 1 is needed",
                        text);
    }
    return FERRY_OK;
}

/* Writes an empty file beside its place and removes it. What is no file (a pipe) is left alone. */
static ferry_status_t read_trace(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    asked->trace = cli_args_value(args, "trace");
    struct stat known;
    if (asked->trace == NULL ||
        (stat(asked->trace, &known) == 0 && !S_ISREG(known.st_mode) && !S_ISDIR(known.st_mode))) {
        return FERRY_OK;
    }
    cli_output_t probe = {0};
    ferry_status_t status = cli_output_stage(&probe, asked->trace, "", 0, err);
    cli_output_fini(&probe);
    return status;
}

static ferry_status_t read_peers(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    const char *program = cli_args_value(args, "peers-from");
    if (program == NULL && !cli_args_has(args, "peers")) {
        return FERRY_OK;
    }
    asked->peers = program != NULL ? program : bench_peers_default();
    if (access(asked->peers, X_OK) != 0) {
        return cli_fail(err, FERRY_IO,
                        "cannot run the peers: no program %s (--peers-from names another)",
                        asked->peers);
    }
    return FERRY_OK;
}

static ferry_status_t read_asked(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    static ferry_status_t (*const readers[])(const cli_args_t *, asked_t *, ferry_error_t *) = {
        read_names,
        read_scale,
        read_peers,
        read_trace,
    };
    asked->quiet = cli_args_has(args, "quiet") || cli_args_has(args, "json");
    ferry_status_t status = bench_read_rounds(args, &asked->rounds, err);
    if (status == FERRY_OK) {
        status = bench_read_share(args, &asked->share, &asked->sharing, err);
    }
    for (size_t i = 0; status == FERRY_OK && i < sizeof readers / sizeof readers[0]; i++) {
        status = readers[i](args, asked, err);
    }
    return status;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* One case: ours and the limit, then the peers. */
static ferry_status_t run_case(const cli_args_t *args, const asked_t *asked, size_t index,
                               const cli_output_t *out, bench_trace_t *trace,
                               bench_figures_t *figures_p, ferry_error_t *err) {
    bench_progress_t progress =
        bench_progress_make(args, out, index, asked->nnames, asked->names[index]);
    bench_job_t job;
    ferry_status_t status = bench_job_init(asked->names[index], asked->scale, &job, err);
    if (status == FERRY_OK) {
        job.rounds = asked->rounds;
        job.sharing = asked->sharing;
        job.progress = &progress;
        status = bench_board_create(&job.board, err);
    }
    if (status == FERRY_OK && asked->trace != NULL) {
        status = bench_logs_create(&job.logs, err);
    }
    if (status == FERRY_OK) {
        status = bench_run(&job, err);
    }
    if (status == FERRY_OK) {
        bench_figures_read(&job, figures_p);
        bench_trace_add(trace, &job);
        if (asked->peers != NULL && !job.tiny) {
            bench_progress_step(&progress, 1, 1, "peers");
            status =
                bench_peers_run(asked->peers, &job, asked->scale, asked->quiet, figures_p, err);
            bench_progress_end(&progress);
        }
    }
    bench_logs_destroy(job.logs);
    bench_board_destroy(job.board);
    return status;
}

static ferry_status_t run_cases(const cli_args_t *args, const asked_t *asked,
                                bench_figures_t *figures, cli_output_t *out, ferry_error_t *err) {
    bench_trace_t trace;
    bench_trace_init(&trace);
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; status == FERRY_OK && i < asked->nnames; i++) {
        status = run_case(args, asked, i, out, &trace, &figures[i], err);
    }
    if (status == FERRY_OK && asked->trace != NULL) {
        status = bench_trace_stage(&trace, asked->trace, out, err);
    }
    bench_trace_fini(&trace);
    return status;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    asked_t asked = {0};
    ferry_status_t status = read_asked(args, &asked, err);
    if (status != FERRY_OK) {
        return status;
    }
    uint32_t cores = bench_cores();
    double load = bench_load(cores);
    bench_figures_t *figures = calloc(asked.nnames, sizeof *figures);
    if (figures == NULL) {
        return cli_fail_nomem(err);
    }
    status = run_cases(args, &asked, figures, out, err);
    if (status == FERRY_OK) {
        bench_report_t report = {.cases = figures,
                                 .ncases = asked.nnames,
                                 .rounds = asked.rounds,
                                 .scale = asked.scale,
                                 .share = asked.share,
                                 .load = load,
                                 .cores = cores,
                                 .targets = cli_args_has(args, "check-targets")};
        if (report.targets && !bench_report_met(&report)) {
            out->exit_code = CLI_EXIT_FAILED;
        }
        if (cli_args_has(args, "json")) {
            status = bench_report_json(&report, out, err);
        } else {
            bench_report_text(&report, out);
        }
    }
    free(figures);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------- */

static const char *const usage[] = {"bench [CASE...] [OPTIONS]", NULL};

static const char *const more[] = {
    "Moves tensors between processes on this machine and compares: with the limit, which is the "
    "best plain copy of the same bytes by one worker a core, measured between our rounds over the "
    "same memory; and, with --peers, with other libraries.",
    "Cases: row-col-2, row-col-4 and row-col-8 (1 GiB f32, row to column shards, so many ranks); "
    "row-col-4-heap (private memory, read across processes); small-tensors (2000 of 256 KiB); "
    "block-cyclic (f64, blocks of 64 to blocks of 48); row-col-4-pipeline (through slots); tiny "
    "(4 KiB between two ranks: the time of a run). Without CASE: all of them.",
    "GB/s count the bytes of the tensors once. Each figure is the median of the rounds; spread is "
    "their range by the median; cold is the first run, which touches the pages.",
    NULL,
};

static const cli_option_t options[] = {
    BENCH_OPTION_ROUNDS,
    {.name = "scale",
     .argument = "F",
     .text = "shrink the cases to this part of their bytes",
     .fallback = "1"},
    BENCH_OPTION_SHARE,
    {.name = "peers", .text = "measure other libraries, too, where they are installed"},
    {.name = "peers-from",
     .argument = "FILE",
     .text = "the program that measures them",
     .more = "It is called with a case, a number of ranks, --rounds and --scale, and prints one "
             "JSON object a line with \"peer\" and \"gbps\".",
     .fallback = "bench/peers/run",
     .complete = CLI_FILE},
    BENCH_OPTION_TARGETS,
    {.name = "trace",
     .argument = "FILE",
     .text = "write what happened when, for Perfetto or chrome://tracing",
     .more = "Every rank has its rows: phases and rounds, and one for each kind of step (copy, "
             "read, pack, put, unpack, wait).",
     .complete = CLI_FILE},
    BENCH_OPTION_JSON,
    BENCH_OPTION_QUIET,
};

static const cli_example_t examples[] = {
    {"all cases", "ferry bench"},
    {"one case against other libraries", "ferry bench row-col-4 --peers"},
    {"a quick look at all cases", "ferry bench --scale 0.01 --rounds 3"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_bench = {
    .name = "bench",
    .text = "measure copies between processes against the machine's limit",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .max_words = CASES_MAX,
    .words = "CASE",
    .run = run,
};
