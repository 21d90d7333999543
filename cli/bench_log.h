/* bench_log.h - the steps of all ranks of a case, as their services tell them.
 *
 * Each rank writes into its own part of memory that was shared before the ranks were made; who made it
 * reads when they have ended. Pages that nobody writes to cost nothing.
 *
 * Ownership: bench_logs_destroy frees what bench_logs_create made. */
#ifndef CLI_BENCH_LOG_H
#define CLI_BENCH_LOG_H

#include <ferry/service.h>

enum {
    BENCH_RANKS_MAX = 16,
    BENCH_LOG_MAX = 1 << 18, /* steps of a rank; a case of 7 rounds has a tenth of that */
};

typedef struct bench_log {
    uint32_t count;
    uint64_t dropped; /* that came when it was full */
    ferry_pipeline_event_t steps[BENCH_LOG_MAX];
} bench_log_t;

/* BENCH_RANKS_MAX logs, all empty. */
ferry_status_t bench_logs_create(bench_log_t **logs_p, ferry_error_t *err);
void bench_logs_destroy(bench_log_t *logs); /* NULL is fine */

/* Has the service that is about to be created tell its steps to the log of the rank; logs may be NULL. */
void bench_log_attach(bench_log_t *logs, uint32_t rank, ferry_copy_service_params_t *params);

#endif
