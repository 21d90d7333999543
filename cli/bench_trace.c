/* bench_trace.c - what happened when, as a Chrome trace.
 *
 * Invariant: the text is a JSON object that lacks only its end; every event but the first is preceded
 * by a comma. */
#include "bench_trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "error.h"

void bench_trace_init(bench_trace_t *trace) {
    *trace = (bench_trace_t){0};
    cli_print(&trace->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

void bench_trace_fini(bench_trace_t *trace) {
    cli_output_fini(&trace->text);
}

/* The beginning of an event, up to its name. */
static void open_event(bench_trace_t *trace, const char *phase, size_t lane) {
    cli_print(&trace->text, "%s\n{\"ph\":\"%s\",\"pid\":%zu,\"tid\":%zu,",
              trace->events++ > 0 ? "," : "", phase, trace->cases, lane);
}

static void name_row(bench_trace_t *trace, const char *what, size_t lane, const char *name) {
    open_event(trace, "M", lane);
    cli_print(&trace->text, "\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", what, name);
}

static void add_stamp(bench_trace_t *trace, size_t lane, const char *name,
                      const bench_stamp_t *stamp) {
    if (stamp->end_ns <= stamp->begin_ns) {
        return;
    }
    uint64_t length = stamp->end_ns - stamp->begin_ns;
    open_event(trace, "X", lane);
    cli_print(&trace->text, "\"name\":\"%s\",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u}",
              name, stamp->begin_ns / 1000, (unsigned)(stamp->begin_ns % 1000), length / 1000,
              (unsigned)(length % 1000));
}

static void add_lane(bench_trace_t *trace, const bench_job_t *job, size_t row, const char *name,
                     const bench_lane_t *lane) {
    static const char *const steps[] = {
#define BENCH_STEP_TEXT(step, text) text,
        BENCH_STEP_MAP(BENCH_STEP_TEXT)
#undef BENCH_STEP_TEXT
    };
    name_row(trace, "thread_name", row, name);
    for (size_t i = 0; i < BENCH_STEPS; i++) {
        add_stamp(trace, row, steps[i], &lane->steps[i]);
    }
    for (uint32_t i = 0; i < job->rounds; i++) {
        char round[32];
        (void)snprintf(round, sizeof round, "round %" PRIu32, i + 1);
        add_stamp(trace, row, round, &lane->rounds[i]);
    }
}

void bench_trace_add(bench_trace_t *trace, const bench_job_t *job) {
    size_t ranks = job->bench.ranks;
    name_row(trace, "process_name", 0, job->bench.name);
    for (size_t rank = 0; rank < ranks; rank++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank %zu", rank);
        add_lane(trace, job, rank, name, &job->board->ranks[rank]);
    }
    if (!job->tiny) {
        add_lane(trace, job, ranks, "limit", &job->board->limit);
    }
    if (job->bench.heap) {
        add_lane(trace, job, ranks + 1, "process_vm_readv", &job->board->readv);
    }
    trace->cases++;
}

ferry_status_t bench_trace_stage(bench_trace_t *trace, const char *path, cli_output_t *out,
                                 ferry_error_t *err) {
    cli_print(&trace->text, "\n]}\n");
    if (trace->text.nomem) {
        return cli_fail_nomem(err);
    }
    return cli_output_stage(out, path, trace->text.text, trace->text.length, err);
}
