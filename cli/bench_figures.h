/* bench_figures.h - what a case came to, and what it should come to.
 *
 * Ownership: plain memory, but for the names of cases, which are static. */
#ifndef CLI_BENCH_FIGURES_H
#define CLI_BENCH_FIGURES_H

#include "bench_run.h"

enum { BENCH_PEERS_MAX = 16, BENCH_PEER_NAME_MAX = 32 };

typedef struct bench_peer {
    char name[BENCH_PEER_NAME_MAX];
    double gbps;
} bench_peer_t;

/* The median of some rounds, and their extremes. All 0: there are none. */
typedef struct bench_times {
    double median_s;
    double min_s;
    double max_s;
} bench_times_t;

typedef struct reshard_facts reshard_facts_t;

typedef struct bench_figures {
    const char *name;
    bool tiny;
    bool altered; /* by options for which its targets were not made: it has none */
    uint32_t ranks;
    uint32_t rounds;
    uint64_t bytes;
    bench_times_t ours;
    bench_times_t limit;
    bench_times_t readv;
    double keep_s; /* submitting and preparing */
    double cold_s; /* the first run, which touches the targets' pages */
    char limit_name[BENCH_LIMIT_NAME_MAX];
    ferry_copy_result_t moved; /* by all ranks in one run */
    bench_peer_t peers[BENCH_PEERS_MAX];
    size_t npeers;
    const reshard_facts_t *reshard; /* of `ferry bench reshard`; else NULL */
} bench_figures_t;

/* Seconds of a stamp; the stamp from the first begin to the last end. */
#define BENCH_STAMP_NONE                                                                           \
    { UINT64_MAX, 0 }
double bench_span_s(const bench_stamp_t *stamp);
void bench_stamp_join(bench_stamp_t *all, const bench_stamp_t *one);

/* Sorts the seconds of some rounds. */
bench_times_t bench_times_of(double *seconds, size_t count);

/* Reads the board of a case that has run. */
void bench_figures_read(const bench_job_t *job, bench_figures_t *figures_p);

/* Payload in GB a second; 0 when there is no time. */
double bench_gbps(const bench_figures_t *figures, const bench_times_t *times);

/* How many times as fast as `other` ours is; 0 when one of them was not measured. */
double bench_ratio(const bench_figures_t *figures, const bench_times_t *other);

/* The fastest MPI_Alltoallw (one call for all tensors), or the peer of that name; 0: not measured. */
double bench_peer_best(const bench_figures_t *figures);
double bench_peer_gbps(const bench_figures_t *figures, const char *name);

/* ---- targets ----------------------------------------------------------------------------------- */

/* Something that a case shall reach: `got` should be at least `wanted`, or at most for a time. */
typedef struct bench_target {
    const char *what; /* "of the limit" */
    double wanted;
    double got;
    bool met;
} bench_target_t;

enum { BENCH_TARGETS_MAX = 5 };

/* The targets of a case for which there are measurements. Returns how many. */
size_t bench_targets(const bench_figures_t *figures, bench_target_t targets_p[BENCH_TARGETS_MAX]);

#endif
