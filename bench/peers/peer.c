/* peer.c - the common part of the peer programs; see peer.h. */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 1000, ALIGNMENT = 4096 };

/* A slow peer does fewer rounds than asked for. */
static const double budget_seconds = 20;

void peer_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("peer: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

static void *take(uint64_t bytes) {
    void *base = NULL;
    if (posix_memalign(&base, ALIGNMENT, bytes) != 0) {
        peer_fail("no memory for %llu bytes", (unsigned long long)bytes);
    }
    memset(base, 0, bytes);
    return base;
}

void peer_init(int argc, char **argv, peer_t *peer_p) {
    int rank, size;
    double scale = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 3 || argc % 2 == 0) {
        peer_fail("usage: peer_x NAME CASE [--rounds N] [--scale F] [--each no]");
    }
    *peer_p = (peer_t){.name = argv[1], .rank = (uint32_t)rank, .rounds = 7, .each = true};
    for (int i = 3; i < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0) {
            peer_p->rounds = (int)strtol(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--scale") == 0) {
            scale = strtod(argv[i + 1], NULL);
        } else if (strcmp(argv[i], "--each") == 0) {
            peer_p->each = strcmp(argv[i + 1], "no") != 0;
        } else {
            peer_fail("unknown option %s", argv[i]);
        }
    }
    if (peer_p->rounds < 1 || peer_p->rounds > MOST_ROUNDS) {
        peer_fail("between 1 and %d rounds", MOST_ROUNDS);
    }
    if (!bench_case_init(argv[2], (uint32_t)size, scale, &peer_p->bench)) {
        peer_fail("no case %s with %d ranks and scale %g", argv[2], size, scale);
    }
    const bench_case_t *bench = &peer_p->bench;
    peer_p->source = take(bench_shard_bytes(bench, BENCH_SOURCE, peer_p->rank));
    peer_p->target = take(bench_shard_bytes(bench, BENCH_TARGET, peer_p->rank));
    bench_shard_fill(bench, BENCH_SOURCE, peer_p->rank, peer_p->source);
}

void peer_fini(peer_t *peer) {
    free(peer->source);
    free(peer->target);
    MPI_Finalize();
}

/* --- measuring --------------------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of the slowest rank, on every rank. */
static double timed(peer_t *peer, void (*move)(peer_t *, void *), void *context) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    move(peer, context);
    MPI_Barrier(MPI_COMM_WORLD);
    double mine = MPI_Wtime() - begin, slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static void check(const peer_t *peer, const char *suffix) {
    uint64_t wrong = bench_shard_wrong(&peer->bench, BENCH_TARGET, peer->rank, peer->target);
    if (wrong > 0) {
        peer_fail("%s%s: rank %u has %llu wrong elements", peer->name, suffix, peer->rank,
                  (unsigned long long)wrong);
    }
}

static void print(const peer_t *peer, const char *suffix, double *seconds, int rounds) {
    double bytes = (double)bench_case_bytes(&peer->bench);
    printf("{\"peer\":\"%s%s\",\"case\":\"%s\",\"ranks\":%u,\"bytes\":%.0f,\"seconds\":[",
           peer->name, suffix, peer->bench.name, peer->bench.ranks, bytes);
    for (int i = 0; i < rounds; i++) {
        printf("%s%.6f", i ? "," : "", seconds[i]);
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare_seconds);
    printf("],\"gbps\":%.3f}\n", bytes / seconds[rounds / 2] / 1e9);
    fflush(stdout);
}

void peer_measure(peer_t *peer, const char *suffix, void (*move)(peer_t *, void *), void *context) {
    static double seconds[MOST_ROUNDS];
    memset(peer->target, 0, bench_shard_bytes(&peer->bench, BENCH_TARGET, peer->rank));
    seconds[0] = timed(peer, move, context);
    check(peer, suffix);
    /* The round that warms up counts only where there is no time for another. */
    int rounds = 0;
    for (double spent = seconds[0]; rounds < peer->rounds && spent < budget_seconds; rounds++) {
        seconds[rounds] = timed(peer, move, context);
        spent += seconds[rounds];
    }
    if (peer->rank == 0) {
        print(peer, suffix, seconds, rounds > 0 ? rounds : 1);
    }
}
