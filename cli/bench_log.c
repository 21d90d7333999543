/* bench_log.c - the steps of all ranks of a case.
 *
 * Invariant: the first BENCH_LOG_MAX steps of a rank are kept, in the order in which they ended. */
#include "bench_log.h"

#include <errno.h>
#include <sys/mman.h>

#include "error.h"

static const size_t logs_bytes = BENCH_RANKS_MAX * sizeof(bench_log_t);

ferry_status_t bench_logs_create(bench_log_t **logs_p, ferry_error_t *err) {
    void *logs = mmap(NULL, logs_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (logs == MAP_FAILED) {
        return cli_fail_errno(err, errno, "no shared memory for a trace");
    }
    *logs_p = logs;
    return FERRY_OK;
}

void bench_logs_destroy(bench_log_t *logs) {
    if (logs != NULL) {
        (void)munmap(logs, logs_bytes);
    }
}

static void add_step(void *context, const ferry_pipeline_event_t *event) {
    bench_log_t *log = context;
    if (log->count < BENCH_LOG_MAX) {
        log->steps[log->count++] = *event;
    } else {
        log->dropped++;
    }
}

void bench_log_attach(bench_log_t *logs, uint32_t rank, ferry_copy_service_params_t *params) {
    if (logs != NULL) {
        params->trace = add_step;
        params->trace_context = &logs[rank];
    }
}
