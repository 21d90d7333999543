/* bench_options.h - what `ferry bench` and `ferry bench reshard` have in common on the command line. */
#ifndef CLI_BENCH_OPTIONS_H
#define CLI_BENCH_OPTIONS_H

#include <ferry/service.h>

#include "bench_progress.h"
#include "options.h"

/* --rounds, 7 unless told otherwise. */
ferry_status_t bench_read_rounds(const cli_args_t *args, uint32_t *rounds_p, ferry_error_t *err);

/* --share, as a name and as what the service calls it. */
ferry_status_t bench_read_share(const cli_args_t *args, const char **name_p,
                                ferry_work_sharing_t *sharing_p, ferry_error_t *err);

/* A bar on a terminal, lines elsewhere, nothing with --quiet or --json. */
bench_progress_t bench_progress_make(const cli_args_t *args, const cli_output_t *out, size_t index,
                                     size_t count, const char *name);

/* Cores of the machine, and how many of them others use now (negative: unknown). */
uint32_t bench_cores(void);
double bench_load(uint32_t cores);

#define BENCH_OPTION_ROUNDS                                                                        \
    { .name = "rounds", .argument = "N", .text = "rounds of each case", .fallback = "7" }

#define BENCH_OPTION_SHARE                                                                         \
    {                                                                                              \
        .name = "share", .argument = "WHO",                                                        \
        .text = "who helps with copies: none, threads or processes",                               \
        .more = "With `processes`, a rank that has finished its copies takes over copies of "      \
                "others, and writes into their targets.",                                          \
        .fallback = "processes"                                                                    \
    }

#define BENCH_OPTION_TARGETS                                                                       \
    { .name = "check-targets", .text = "exit with 1 when a case misses what it should reach" }

#define BENCH_OPTION_JSON                                                                          \
    { .name = "json", .text = "print one JSON object (docs/formats/bench-json.md)" }

#define BENCH_OPTION_QUIET                                                                         \
    { .name = "quiet", .text = "no progress on standard error" }

#endif
