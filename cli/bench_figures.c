/* bench_figures.c - what a case came to, and what it should come to.
 *
 * Invariant: a round lasts from the first rank's start to the last one's end; rounds that did not
 * happen have no stamps and do not count. */
#include "bench_figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- times ------------------------------------------------------------------------------------- */

double bench_span_s(const bench_stamp_t *stamp) {
    return stamp->end_ns > stamp->begin_ns ? (double)(stamp->end_ns - stamp->begin_ns) * 1e-9 : 0;
}

void bench_stamp_join(bench_stamp_t *all, const bench_stamp_t *one) {
    all->begin_ns = one->begin_ns < all->begin_ns ? one->begin_ns : all->begin_ns;
    all->end_ns = one->end_ns > all->end_ns ? one->end_ns : all->end_ns;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_times_t bench_times_of(double *seconds, size_t count) {
    if (count == 0) {
        return (bench_times_t){0};
    }
    qsort(seconds, count, sizeof *seconds, compare);
    double middle =
        count % 2 != 0 ? seconds[count / 2] : (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
    return (bench_times_t){middle, seconds[0], seconds[count - 1]};
}

/* From the first start to the last end. */
static double joint_s(const bench_job_t *job,
                      const bench_stamp_t *(*stamp_of)(const bench_lane_t *, uint32_t),
                      uint32_t index) {
    bench_stamp_t all = BENCH_STAMP_NONE;
    for (uint32_t rank = 0; rank < job->bench.ranks; rank++) {
        bench_stamp_join(&all, stamp_of(&job->board->ranks[rank], index));
    }
    return bench_span_s(&all);
}

static const bench_stamp_t *step_of(const bench_lane_t *lane, uint32_t index) {
    return &lane->steps[index];
}

static const bench_stamp_t *round_of(const bench_lane_t *lane, uint32_t index) {
    return &lane->rounds[index];
}

/* A run of `tiny` takes as long as the slower rank needs. */
static double latency_s(const bench_job_t *job, uint32_t round) {
    double most = 0;
    for (uint32_t rank = 0; rank < job->bench.ranks; rank++) {
        double mine = job->board->ranks[rank].latency_s[round];
        most = mine > most ? mine : most;
    }
    return most;
}

static bench_times_t our_times(const bench_job_t *job) {
    double seconds[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < job->rounds; i++) {
        seconds[i] = job->tiny ? latency_s(job, i) : joint_s(job, round_of, i);
    }
    return bench_times_of(seconds, job->rounds);
}

static bench_times_t lane_times(const bench_lane_t *lane, uint32_t rounds) {
    double seconds[BENCH_ROUNDS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        double span = bench_span_s(&lane->rounds[i]);
        if (span > 0) {
            seconds[count++] = span;
        }
    }
    return bench_times_of(seconds, count);
}

static ferry_copy_result_t moved_by_all(const bench_job_t *job) {
    ferry_copy_result_t all = {0};
    for (uint32_t rank = 0; rank < job->bench.ranks; rank++) {
        const ferry_copy_result_t *one = &job->board->ranks[rank].moved;
        all.bytes_received += one->bytes_received;
        all.bytes_direct += one->bytes_direct;
        all.bytes_read += one->bytes_read;
        all.bytes_pipeline += one->bytes_pipeline;
        all.bytes_helped += one->bytes_helped;
        all.staging_bytes += one->staging_bytes;
    }
    return all;
}

void bench_figures_read(const bench_job_t *job, bench_figures_t *figures_p) {
    *figures_p = (bench_figures_t){
        .name = job->bench.name,
        .tiny = job->tiny,
        .ranks = job->bench.ranks,
        .rounds = job->rounds,
        .bytes = bench_case_bytes(&job->bench),
        .ours = our_times(job),
        .limit = lane_times(&job->board->limit, job->rounds),
        .readv = lane_times(&job->board->readv, job->rounds),
        .keep_s = joint_s(job, step_of, BENCH_KEEP),
        .cold_s = joint_s(job, step_of, BENCH_COLD),
        .moved = moved_by_all(job),
    };
    (void)snprintf(figures_p->limit_name, sizeof figures_p->limit_name, "%s",
                   job->board->limit_name);
}

double bench_gbps(const bench_figures_t *figures, const bench_times_t *times) {
    return times->median_s > 0 ? (double)figures->bytes / times->median_s / 1e9 : 0;
}

double bench_ratio(const bench_figures_t *figures, const bench_times_t *other) {
    return figures->ours.median_s > 0 ? other->median_s / figures->ours.median_s : 0;
}

/* ---- peers ------------------------------------------------------------------------------------- */

double bench_peer_gbps(const bench_figures_t *figures, const char *name) {
    for (size_t i = 0; i < figures->npeers; i++) {
        if (strcmp(figures->peers[i].name, name) == 0) {
            return figures->peers[i].gbps;
        }
    }
    return 0;
}

double bench_peer_best(const bench_figures_t *figures) {
    static const char *const alltoallw[] = {"openmpi", "openmpi-ucx", "mpich"};
    double best = 0;
    for (size_t i = 0; i < sizeof alltoallw / sizeof alltoallw[0]; i++) {
        double gbps = bench_peer_gbps(figures, alltoallw[i]);
        best = gbps > best ? gbps : best;
    }
    return best;
}

/* ---- targets ----------------------------------------------------------------------------------- */

typedef struct wanted {
    const char *name;
    double limit; /* 0: not asked of this case; so in the others */
    double readv;
    double alltoallw;
    double pdgemr2d;
    double latency_us;
} wanted_t;

static const wanted_t table[] = {
    {.name = "row-col-2", .limit = 0.90, .alltoallw = 2, .pdgemr2d = 6},
    {.name = "row-col-4", .limit = 0.90, .alltoallw = 2, .pdgemr2d = 6},
    {.name = "row-col-8", .limit = 0.90, .alltoallw = 1.7, .pdgemr2d = 6},
    {.name = "row-col-4-heap", .limit = 0.40, .readv = 0.90},
    {.name = "small-tensors", .limit = 0.80, .alltoallw = 1.4},
    {.name = "block-cyclic", .limit = 0.60, .pdgemr2d = 6},
    {.name = "row-col-4-pipeline", .limit = 0.50},
    {.name = BENCH_TINY, .latency_us = 20},
    /* ferry bench reshard */
    {.name = "llama3-8b-tp", .limit = 0.85},
    {.name = "llama3-8b-cast", .limit = 0.80},
    {.name = "qwen3-ep", .limit = 0.70},
    {.name = "llama3-8b-mxfp8", .limit = 0.40},
    {.name = "tiny-700", .latency_us = 1000},
};

/* Adds a target that is asked for and was measured. */
static void want(bench_target_t *targets_p, size_t *count_p, const char *what, double wanted,
                 double got, bool at_most) {
    if (wanted > 0 && got > 0) {
        bool met = at_most ? got <= wanted : got >= wanted;
        targets_p[(*count_p)++] = (bench_target_t){what, wanted, got, met};
    }
}

size_t bench_targets(const bench_figures_t *figures, bench_target_t targets_p[BENCH_TARGETS_MAX]) {
    size_t count = 0;
    double gbps = bench_gbps(figures, &figures->ours);
    double best = bench_peer_best(figures);
    double scalapack = bench_peer_gbps(figures, "pdgemr2d");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const wanted_t *row = &table[i];
        if (figures->altered || strcmp(row->name, figures->name) != 0) {
            continue;
        }
        want(targets_p, &count, "of the limit", row->limit, bench_ratio(figures, &figures->limit),
             false);
        want(targets_p, &count, "of process_vm_readv", row->readv,
             bench_ratio(figures, &figures->readv), false);
        want(targets_p, &count, "x the best MPI_Alltoallw", row->alltoallw,
             best > 0 ? gbps / best : 0, false);
        want(targets_p, &count, "x pdgemr2d", row->pdgemr2d, scalapack > 0 ? gbps / scalapack : 0,
             false);
        want(targets_p, &count, "us a run", row->latency_us, figures->ours.median_s * 1e6, true);
    }
    return count;
}
