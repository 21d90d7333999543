/* bench_trace.c - what happened when, as a Chrome trace.
 *
 * Invariant: the text is a JSON object that lacks only its end; every event but the first is preceded
 * by a comma. */
#include "bench_trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "error.h"

enum {
    PHASES_ROW = 63, /* steps have rows 0 and up, as ferry_pipeline_event_json puts them */
    STEP_TEXT_MAX = 512,
};

void bench_trace_init(bench_trace_t *trace) {
    *trace = (bench_trace_t){0};
    cli_print(&trace->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

void bench_trace_fini(bench_trace_t *trace) {
    cli_output_fini(&trace->text);
}

/* ---- events ------------------------------------------------------------------------------------ */

static void begin_event(bench_trace_t *trace) {
    cli_print(&trace->text, "%s\n", trace->events++ > 0 ? "," : "");
}

/* The beginning of an event, up to its name. */
static void open_event(bench_trace_t *trace, const char *phase, size_t process, size_t row) {
    begin_event(trace);
    cli_print(&trace->text, "{\"ph\":\"%s\",\"pid\":%zu,\"tid\":%zu,", phase, process, row);
}

static void describe(bench_trace_t *trace, const char *what, size_t process, size_t row,
                     const char *name) {
    open_event(trace, "M", process, row);
    cli_print(&trace->text, "\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", what, name);
}

static void order(bench_trace_t *trace, const char *what, size_t process, size_t row, int at) {
    open_event(trace, "M", process, row);
    cli_print(&trace->text, "\"name\":\"%s\",\"args\":{\"sort_index\":%d}}", what, at);
}

/* Names the row, if it is new. */
static void need_row(bench_trace_t *trace, size_t process, size_t row, const char *name) {
    if ((trace->named[process] >> row & 1) == 0) {
        trace->named[process] |= UINT64_C(1) << row;
        describe(trace, "thread_name", process, row, name);
        order(trace, "thread_sort_index", process, row, row == PHASES_ROW ? -1 : (int)row);
    }
}

static void need_process(bench_trace_t *trace, size_t process, const char *name) {
    if (trace->named[process] == 0) {
        describe(trace, "process_name", process, PHASES_ROW, name);
        order(trace, "process_sort_index", process, PHASES_ROW, (int)process);
        need_row(trace, process, PHASES_ROW, "phases");
    }
}

static void add_stamp(bench_trace_t *trace, size_t process, const char *name,
                      const bench_stamp_t *stamp) {
    if (stamp->end_ns <= stamp->begin_ns) {
        return;
    }
    uint64_t length = stamp->end_ns - stamp->begin_ns;
    open_event(trace, "X", process, PHASES_ROW);
    cli_print(&trace->text, "\"name\":\"%s\",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u}",
              name, stamp->begin_ns / 1000, (unsigned)(stamp->begin_ns % 1000), length / 1000,
              (unsigned)(length % 1000));
}

/* ---- a case ------------------------------------------------------------------------------------ */

static void widen(bench_stamp_t *whole, const bench_stamp_t *stamp) {
    if (stamp->end_ns <= stamp->begin_ns) {
        return;
    }
    if (whole->begin_ns == 0 || stamp->begin_ns < whole->begin_ns) {
        whole->begin_ns = stamp->begin_ns;
    }
    if (stamp->end_ns > whole->end_ns) {
        whole->end_ns = stamp->end_ns;
    }
}

/* From the first stamp of a lane to the last. */
static bench_stamp_t whole_of(const bench_job_t *job, const bench_lane_t *lane) {
    bench_stamp_t whole = {0};
    for (size_t i = 0; i < BENCH_STEPS; i++) {
        widen(&whole, &lane->steps[i]);
    }
    for (uint32_t i = 0; i < job->rounds; i++) {
        widen(&whole, &lane->rounds[i]);
    }
    return whole;
}

static void add_lane(bench_trace_t *trace, const bench_job_t *job, size_t process, const char *name,
                     const bench_lane_t *lane) {
    static const char *const phases[] = {
#define BENCH_STEP_TEXT(step, text) text,
        BENCH_STEP_MAP(BENCH_STEP_TEXT)
#undef BENCH_STEP_TEXT
    };
    need_process(trace, process, name);
    bench_stamp_t whole = whole_of(job, lane);
    add_stamp(trace, process, job->bench.name, &whole);
    for (size_t i = 0; i < BENCH_STEPS; i++) {
        add_stamp(trace, process, phases[i], &lane->steps[i]);
    }
    for (uint32_t i = 0; i < job->rounds; i++) {
        char round[32];
        (void)snprintf(round, sizeof round, "round %" PRIu32, i + 1);
        add_stamp(trace, process, round, &lane->rounds[i]);
    }
}

static void add_log(bench_trace_t *trace, size_t process, const bench_log_t *log) {
    for (uint32_t i = 0; i < log->count; i++) {
        const ferry_pipeline_event_t *step = &log->steps[i];
        char text[STEP_TEXT_MAX];
        need_row(trace, process, step->step, ferry_pipeline_step_name(step->step));
        (void)ferry_pipeline_event_json(step, text, sizeof text);
        begin_event(trace);
        cli_print(&trace->text, "%s", text);
    }
    if (log->dropped > 0) {
        uint64_t last_ns = log->steps[log->count - 1].end_ns;
        open_event(trace, "i", process, PHASES_ROW);
        cli_print(&trace->text,
                  "\"name\":\"%" PRIu64 " later steps are left out\",\"s\":\"p\",\"ts\":%" PRIu64
                  "}",
                  log->dropped, last_ns / 1000);
    }
}

void bench_trace_add(bench_trace_t *trace, const bench_job_t *job) {
    for (size_t rank = 0; rank < job->bench.ranks; rank++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank %zu", rank);
        add_lane(trace, job, rank, name, &job->board->ranks[rank]);
        if (job->logs != NULL) {
            add_log(trace, rank, &job->logs[rank]);
        }
    }
    if (!job->tiny) {
        add_lane(trace, job, BENCH_TRACE_LIMIT, "limit", &job->board->limit);
    }
    if (job->bench.heap) {
        add_lane(trace, job, BENCH_TRACE_READV, "process_vm_readv", &job->board->readv);
    }
}

ferry_status_t bench_trace_stage(bench_trace_t *trace, const char *path, cli_output_t *out,
                                 ferry_error_t *err) {
    cli_print(&trace->text, "\n]}\n");
    if (trace->text.nomem) {
        return cli_fail_nomem(err);
    }
    return cli_output_stage(out, path, trace->text.text, trace->text.length, err);
}
