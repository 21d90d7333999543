/* bench_peers.h - other libraries on the same case, by way of the program bench/peers/run. */
#ifndef CLI_BENCH_PEERS_H
#define CLI_BENCH_PEERS_H

#include "bench_figures.h"

/* Where the program is unless told otherwise: in the source tree that this tool was built from. */
const char *bench_peers_default(void);

/* Runs it for a case and adds what it prints, one JSON object a line, to the figures. No peer at all
 * (exit code 77) is no failure; a program that cannot be started is. */
ferry_status_t bench_peers_run(const char *program, const bench_job_t *job, double scale,
                               bool quiet, bench_figures_t *figures, ferry_error_t *err);

#endif
