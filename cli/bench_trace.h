/* bench_trace.h - what happened when, as a Chrome trace (Perfetto reads it, too).
 *
 * A case is a process of the trace and has a row per rank, and one each for the limit and for the plain
 * cross-process reads. Text gathers in a cli_output_t that is used as a buffer only.
 *
 * Ownership: bench_trace_fini frees the text. */
#ifndef CLI_BENCH_TRACE_H
#define CLI_BENCH_TRACE_H

#include "bench_run.h"
#include "output.h"

typedef struct bench_trace {
    cli_output_t text;
    size_t cases;
    size_t events;
} bench_trace_t;

void bench_trace_init(bench_trace_t *trace);
void bench_trace_fini(bench_trace_t *trace);

/* Adds a case that has run. */
void bench_trace_add(bench_trace_t *trace, const bench_job_t *job);

/* Ends the JSON and stages it as the file `path`. */
ferry_status_t bench_trace_stage(bench_trace_t *trace, const char *path, cli_output_t *out,
                                 ferry_error_t *err);

#endif
