/* bench_options.c - what `ferry bench` and `ferry bench reshard` have in common on the command line. */
#include "bench_options.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_run.h"
#include "error.h"
#include "units.h"

enum { ROUNDS = 7 };

ferry_status_t bench_read_rounds(const cli_args_t *args, uint32_t *rounds_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "rounds");
    uint64_t rounds = ROUNDS;
    if (text != NULL) {
        ferry_status_t status = cli_parse_u64("--rounds", text, BENCH_ROUNDS_MAX, &rounds, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (rounds == 0) {
            return cli_fail(err, FERRY_INVALID, "--rounds 0: at least one is needed");
        }
    }
    *rounds_p = (uint32_t)rounds;
    return FERRY_OK;
}

ferry_status_t bench_read_share(const cli_args_t *args, const char **name_p,
                                ferry_work_sharing_t *sharing_p, ferry_error_t *err) {
    static const struct {
        const char *name;
        ferry_work_sharing_t sharing;
    } known[] = {{"processes", FERRY_SHARE_PROCESSES},
                 {"threads", FERRY_SHARE_THREADS},
                 {"none", FERRY_SHARE_NONE}};
    const char *text = cli_args_value(args, "share");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (text == NULL || strcmp(text, known[i].name) == 0) {
            *name_p = known[i].name;
            *sharing_p = known[i].sharing;
            return FERRY_OK;
        }
    }
    return cli_fail(err, FERRY_INVALID, "--share %s: none, threads or processes", text);
}

bench_progress_t bench_progress_make(const cli_args_t *args, const cli_output_t *out, size_t index,
                                     size_t count, const char *name) {
    const char *terminal = getenv("TERM");
    bool quiet = cli_args_has(args, "quiet") || cli_args_has(args, "json");
    bool bar = isatty(STDERR_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
    return (bench_progress_t){.bar = bar && !quiet,
                              .lines = !bar && !quiet,
                              .utf8 = out->utf8,
                              .index = index,
                              .count = count,
                              .name = name};
}

uint32_t bench_cores(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

/* Seconds that all cores together have been idle since the machine started; negative: unknown. */
static double idle_seconds(void) {
    uint8_t *text = NULL;
    size_t length = 0;
    ferry_error_t ignored;
    if (cli_file_read("/proc/uptime", &text, &length, &ignored) != FERRY_OK) {
        return -1;
    }
    double idle = -1;
    const char *space = memchr(text, ' ', length);
    if (space != NULL && text[length - 1] == '\n') {
        idle = strtod(space, NULL); /* the newline ends it */
    }
    free(text);
    return idle;
}

double bench_load(uint32_t cores) {
    struct timespec moment = {.tv_nsec = 300000000};
    double begin = cli_clock();
    double before = idle_seconds();
    (void)nanosleep(&moment, NULL);
    double after = idle_seconds();
    if (before < 0 || after < before) {
        return -1;
    }
    double used = cores - (after - before) / (cli_clock() - begin);
    return used > 0 ? used : 0;
}
