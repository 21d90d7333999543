/* plan_figures.c - everything that is said about a plan, worked out once.
 *
 * The transfers are walked a single time: a plan may have millions. */
#include "plan_figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <ferry/log.h>

#include "error.h"
#include "output.h"

const char *plan_phase_name(plan_phase_t phase) {
    static const char *const names[] = {
#define NAME(name, text) text,
        PLAN_PHASE_MAP(NAME)
#undef NAME
    };
    return names[phase];
}

void plan_figures_init(plan_figures_t *figures) {
    *figures = (plan_figures_t){.rank = FERRY_RANK_NONE};
    for (size_t i = 0; i < PLAN_PHASE_COUNT; i++) {
        figures->phase_s[i] = -1;
    }
}

void plan_figures_phase(plan_figures_t *figures, plan_phase_t phase, double *since_p) {
    double now = cli_clock();
    figures->phase_s[phase] = now - *since_p;
    *since_p = now;
    ferry_log(FERRY_LOG_INFO, "plan: %s took %.3f ms", plan_phase_name(phase),
              figures->phase_s[phase] * 1e3);
}

void plan_figures_fini(plan_figures_t *figures) {
    free(figures->ports);
    plan_figures_init(figures);
}

/* ---- ports ------------------------------------------------------------------------------------- */

static void count_rank(plan_ranks_t *ranks, uint32_t rank) {
    if (ranks->count == 0) {
        ranks->first = rank; /* ports ascend */
    }
    ranks->last = rank;
    ranks->count++;
}

static int compare_u32(const void *a, const void *b) {
    const uint32_t *x = a;
    const uint32_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* The number of hosts; 0 when nothing is known of them. */
static ferry_status_t count_hosts(plan_figures_t *figures, ferry_error_t *err) {
    size_t count = 0;
    const uint32_t *map = ferry_plan_hosts(figures->plan, &count);
    if (count == 0) {
        return FERRY_OK;
    }
    uint32_t *hosts = malloc(count * sizeof *hosts);
    if (hosts == NULL) {
        return cli_fail_nomem(err);
    }
    memcpy(hosts, map, count * sizeof *hosts);
    qsort(hosts, count, sizeof *hosts, compare_u32);
    for (size_t i = 0; i < count; i++) {
        figures->hosts += i == 0 || hosts[i] != hosts[i - 1] ? 1U : 0U;
    }
    free(hosts);
    return FERRY_OK;
}

static ferry_status_t measure_ports(plan_figures_t *figures, ferry_error_t *err) {
    size_t count = 0;
    ferry_status_t status = ferry_plan_ports(figures->plan, NULL, 0, &count, err);
    if (status != FERRY_OK) {
        return status;
    }
    figures->ports = calloc(count + 1, sizeof *figures->ports);
    if (figures->ports == NULL) {
        return cli_fail_nomem(err);
    }
    status = ferry_plan_ports(figures->plan, figures->ports, count, &figures->nports, err);
    if (status != FERRY_OK) {
        return status;
    }
    for (size_t i = 0; i < figures->nports; i++) {
        const ferry_port_t *port = &figures->ports[i];
        if (port->is_source) {
            count_rank(&figures->sources, port->rank);
        }
        if (port->is_target) {
            count_rank(&figures->targets, port->rank);
        }
        if (port->rank == figures->rank) {
            figures->own = port;
        }
    }
    return count_hosts(figures, err);
}

/* ---- rounds ------------------------------------------------------------------------------------ */

/* Counts the transfers and keeps those that a schedule places. A part schedules its own rank's only,
 * not those that it merely adds a summand to. */
static size_t take_items(plan_figures_t *figures, ferry_item_t *items) {
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t transfer;
    size_t count = 0;
    uint32_t rank = figures->rank;
    while (ferry_plan_next(figures->plan, &cursor, &transfer)) {
        bool sends = transfer.source == rank;
        bool receives = transfer.target == rank;
        if (transfer.source == transfer.target) {
            figures->local_transfers += sends ? 1U : 0U;
            continue;
        }
        figures->wire_transfers++;
        figures->send_transfers += sends ? 1U : 0U;
        figures->recv_transfers += receives ? 1U : 0U;
        if (rank == FERRY_RANK_NONE || sends || receives) {
            items[count++] =
                (ferry_item_t){transfer.task_id, transfer.bytes, transfer.source, transfer.target};
        }
    }
    return count;
}

static ferry_status_t measure_rounds(plan_figures_t *figures, ferry_error_t *err) {
    uint64_t transfers = ferry_plan_ntransfers(figures->plan);
    if (transfers >= SIZE_MAX / sizeof(ferry_item_t)) {
        return cli_fail_nomem(err);
    }
    ferry_item_t *items = malloc((size_t)(transfers + 1) * sizeof *items);
    if (items == NULL) {
        return cli_fail_nomem(err);
    }
    size_t count = take_items(figures, items);
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    params.slot_bytes = figures->slot_bytes;
    ferry_schedule_t *schedule = NULL;
    ferry_status_t status = ferry_schedule_create(items, count, &params, &schedule, err);
    free(items);
    if (status == FERRY_OK) {
        figures->rounds = ferry_schedule_nrounds(schedule);
        figures->max_degree = ferry_schedule_max_degree(schedule);
        (void)ferry_schedule_batches(schedule, &figures->batches);
    }
    ferry_schedule_destroy(schedule);
    return status;
}

/* ---- the process ------------------------------------------------------------------------------- */

/* The largest memory this program ever held. getrusage alone would count the program that started
 * this one too: its figure survives exec. */
static uint64_t peak_rss_bytes(void) {
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    if (status != NULL) {
        char line[256];
        while (kib == 0 && fgets(line, sizeof line, status) != NULL) {
            if (strncmp(line, "VmHWM:", 6) == 0) {
                kib = strtoull(line + 6, NULL, 10);
            }
        }
        (void)fclose(status);
    }
    struct rusage usage;
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) {
        kib = (unsigned long long)usage.ru_maxrss;
    }
    return (uint64_t)kib * 1024;
}

ferry_status_t plan_figures_measure(plan_figures_t *figures, const ferry_plan_t *plan,
                                    uint64_t slot_bytes, double start_s, ferry_error_t *err) {
    figures->plan = plan;
    figures->rank = ferry_plan_rank(plan);
    figures->hash = ferry_plan_hash(plan);
    figures->slot_bytes = slot_bytes;
    figures->stats.size = sizeof figures->stats;
    double since = cli_clock();
    ferry_status_t status = ferry_plan_stats(plan, &figures->stats, err);
    if (status == FERRY_OK) {
        status = measure_ports(figures, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    plan_figures_phase(figures, PLAN_PHASE_STATS, &since);
    status = measure_rounds(figures, err);
    plan_figures_phase(figures, PLAN_PHASE_SCHEDULE, &since);
    figures->seconds = since - start_s;
    figures->peak_rss_bytes = peak_rss_bytes();
    return status;
}
