/* bench_trace.h - what happened when, as a Chrome trace (Perfetto reads it, too).
 *
 * A rank is a process of the trace, in all cases; so are the limit and the plain cross-process reads. Its
 * first row has the cases and in them their phases and rounds; then there is a row for each kind of step.
 * Text gathers in a cli_output_t that is used as a buffer only.
 *
 * Ownership: bench_trace_fini frees the text. */
#ifndef CLI_BENCH_TRACE_H
#define CLI_BENCH_TRACE_H

#include "bench_run.h"
#include "output.h"

enum {
    BENCH_TRACE_LIMIT = BENCH_RANKS_MAX, /* processes of the trace that are no ranks */
    BENCH_TRACE_READV,
    BENCH_TRACE_PROCESSES,
};

typedef struct bench_trace {
    cli_output_t text;
    size_t events;
    uint64_t named[BENCH_TRACE_PROCESSES]; /* per process, the rows that have a name: 1 << row */
} bench_trace_t;

void bench_trace_init(bench_trace_t *trace);
void bench_trace_fini(bench_trace_t *trace);

/* Adds a case that has run. */
void bench_trace_add(bench_trace_t *trace, const bench_job_t *job);

/* Ends the JSON and stages it as the file `path`. */
ferry_status_t bench_trace_stage(bench_trace_t *trace, const char *path, cli_output_t *out,
                                 ferry_error_t *err);

#endif
