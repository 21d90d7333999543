/* peer.h - what the peer programs share: options, memory, timing, and the line they print.
 *
 * A peer is an MPI program `peer_x NAME CASE [--rounds N] [--scale F] [--each no]`, started with one process a rank.
 * Rank 0 prints one line of JSON for each way of doing the case:
 *
 *   {"peer":NAME,"case":...,"ranks":N,"bytes":B,"seconds":[...],"gbps":payload GB/s at the median}
 */
#ifndef FERRY_BENCH_PEER_H
#define FERRY_BENCH_PEER_H

#include <mpi.h>

#include "../cases.h"

typedef struct peer {
    const char *name;
    bench_case_t bench;
    uint32_t rank;
    int rounds;
    bool each;             /* many tensors: also one call for each (peer_alltoallw.c) */
    void *source, *target; /* this rank's memory, filled and zeroed: all pages are there */
} peer_t;

/* Starts MPI, reads the options and takes memory. What is wrong ends all ranks with a line on stderr. */
void peer_init(int argc, char **argv, peer_t *peer_p);
void peer_fini(peer_t *peer);

_Noreturn void peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs move once to warm up and to check the values, then `rounds` times (fewer when it is very slow)
 * between barriers; the slowest rank counts. Prints the line; suffix is appended to the peer's name. */
void peer_measure(peer_t *peer, const char *suffix, void (*move)(peer_t *peer, void *context),
                  void *context);

#endif
