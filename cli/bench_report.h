/* bench_report.h - the figures of a bench as a table or as JSON. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "bench_figures.h"
#include "output.h"

typedef struct bench_report {
    const bench_figures_t *cases;
    size_t ncases;
    uint32_t rounds;
    double scale;      /* 0: there is none */
    const char *share; /* as --share has it */
    double load;       /* of the machine when the bench began, in cores; negative: unknown */
    uint32_t cores;
    bool targets; /* say which were missed */
} bench_report_t;

void bench_report_text(const bench_report_t *report, cli_output_t *out);
ferry_status_t bench_report_json(const bench_report_t *report, cli_output_t *out,
                                 ferry_error_t *err);

/* Are all targets met that could be measured? */
bool bench_report_met(const bench_report_t *report);

#endif
