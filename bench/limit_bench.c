/* limit_bench.c - prints what this machine can do at best with each case of `ferry bench`.
 *
 *   limit_bench [--case NAME] [--ranks N] [--scale F] [--rounds N] [--memory shared|heap|huge] [--all]
 *
 * Each figure is the median over interleaved rounds; peak is the best round. --all shows every method in
 * every order. Results are checked after each case. GiB/s are bytes of payload; each is read once and
 * written once.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "limit_methods.h"

enum { MOST_ROUNDS = 1000 };

typedef struct {
    const char *name; /* NULL: all */
    uint32_t ranks;
    double scale;
    int rounds;
    const char *memory; /* NULL: as the case says */
    bool all;
} options_t;

static int compare_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the median; sorts the seconds. */
static double gibps(const bench_case_t *bench, double *seconds, int rounds) {
    qsort(seconds, (size_t)rounds, sizeof *seconds, compare_seconds);
    return (double)bench_case_bytes(bench) / seconds[rounds / 2] / (double)(1 << 30);
}

/* Each method in its best order, interleaved. */
static void show_methods(const bench_case_t *bench, limit_t *limit, int rounds) {
    static double seconds[LIMIT_METHODS + 1][MOST_ROUNDS];
    char best[64];
    limit_round(limit, LIMIT_BEST);
    for (int round = 0; round < rounds; round++) {
        for (int m = 0; m <= LIMIT_METHODS; m++) {
            if (m == LIMIT_BEST || limit_has((limit_method_t)m)) {
                seconds[m][round] = limit_round(limit, (limit_method_t)m);
            }
        }
    }
    snprintf(best, sizeof best, "%s", limit_describe(limit, LIMIT_BEST));
    double median = gibps(bench, seconds[LIMIT_BEST], rounds);
    double peak = (double)bench_case_bytes(bench) / seconds[LIMIT_BEST][0] / (double)(1 << 30);
    printf("%-20s %6u %7.2f %7.2f  %-24s", bench->name, bench->ranks, median, peak, best);
    for (int m = 0; m < LIMIT_METHODS; m++) {
        if (limit_has((limit_method_t)m)) {
            printf(" %s %.2f", limit_method_name((limit_method_t)m),
                   gibps(bench, seconds[m], rounds));
        }
    }
}

static void show_orders(const bench_case_t *bench, limit_t *limit, int rounds) {
    static const char *const orders[LIMIT_ORDERS] = {"target", "source", "target-rows",
                                                     "source-rows"};
    static double seconds[LIMIT_METHODS][LIMIT_ORDERS][MOST_ROUNDS];
    for (int i = 0; i < rounds * LIMIT_METHODS * LIMIT_ORDERS; i++) {
        int m = i / LIMIT_ORDERS % LIMIT_METHODS, o = i % LIMIT_ORDERS;
        if (limit_has((limit_method_t)m)) {
            seconds[m][o][i / LIMIT_ORDERS / LIMIT_METHODS] =
                limit_round_in(limit, (limit_method_t)m, (limit_order_t)o);
        }
    }
    for (int m = 0; m < LIMIT_METHODS; m++) {
        if (!limit_has((limit_method_t)m)) {
            continue;
        }
        printf("\n%14s", limit_method_name((limit_method_t)m));
        for (int o = 0; o < LIMIT_ORDERS; o++) {
            printf("  %s %6.2f", orders[o], gibps(bench, seconds[m][o], rounds));
        }
    }
}

/* Clears the targets first, so that the check after it speaks about these reads. */
static void show_readv(const bench_case_t *bench, const bench_buffers_t *buffers,
                       const bench_copy_t *copies, size_t count, int rounds) {
    static double seconds[MOST_ROUNDS];
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        memset(buffers->base[BENCH_TARGET][rank], 0, buffers->bytes[BENCH_TARGET][rank]);
    }
    limit_readv_t *readv = limit_readv_create(copies, count);
    bool fine = readv && limit_readv_round(readv) >= 0;
    for (int round = 0; fine && round < rounds; round++) {
        seconds[round] = limit_readv_round(readv);
        fine = seconds[round] >= 0;
    }
    if (fine) {
        printf(" process_vm_readv %.2f", gibps(bench, seconds, rounds));
    } else {
        printf(" process_vm_readv: %s", strerror(errno));
    }
    limit_readv_destroy(readv);
}

static bool memory_of(const options_t *options, const bench_case_t *bench,
                      bench_memory_t *memory_p) {
    static const char *const names[] = {"shared", "heap", "huge"};
    if (!options->memory) {
        *memory_p = bench->heap ? BENCH_MEMORY_HEAP : BENCH_MEMORY_SHARED;
        return true;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(options->memory, names[i]) == 0) {
            *memory_p = (bench_memory_t)i;
            return true;
        }
    }
    return false;
}

/* False when the case is unknown, cannot run here, or gave wrong values. */
static bool run_case(const options_t *options, const char *name) {
    bench_case_t bench;
    bench_memory_t memory;
    bench_buffers_t buffers;
    bench_copy_t *copies = NULL;
    size_t count = 0;
    if (!bench_case_init(name, options->ranks, options->scale, &bench) ||
        !memory_of(options, &bench, &memory)) {
        fprintf(stderr, "limit_bench: no such case, ranks, scale or memory: %s\n", name);
        return false;
    }
    if (!bench_buffers_init(&bench, memory, &buffers)) {
        fprintf(stderr, "limit_bench: %s: no memory: %s\n", name, strerror(errno));
        return false;
    }
    limit_t *limit = NULL;
    bool fine = bench_case_copies(&bench, &buffers, &copies, &count) &&
                (limit = limit_create(copies, count)) != NULL;
    if (fine) {
        show_methods(&bench, limit, options->rounds);
        if (options->all) {
            show_orders(&bench, limit, options->rounds);
        }
        fine = bench_buffers_wrong(&bench, &buffers) == 0;
        if (memory != BENCH_MEMORY_SHARED) {
            show_readv(&bench, &buffers, copies, count, options->rounds);
            fine = fine && bench_buffers_wrong(&bench, &buffers) == 0;
        }
        printf("%s\n", fine ? "" : "  WRONG VALUES");
        fflush(stdout);
    }
    limit_destroy(limit);
    free(copies);
    bench_buffers_fini(&buffers);
    return fine;
}

static bool parse(int argc, char **argv, options_t *options) {
    static const struct option names[] = {
        {"case", required_argument, NULL, 'c'},
        {"ranks", required_argument, NULL, 'n'},
        {"scale", required_argument, NULL, 's'},
        {"rounds", required_argument, NULL, 'r'},
        {"memory", required_argument, NULL, 'm'},
        {"all", no_argument, NULL, 'a'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) !=
           -1) { // NOLINT(concurrency-mt-unsafe)
        switch (option) {
        case 'c':
            options->name = optarg;
            break;
        case 'n':
            options->ranks = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            options->scale = strtod(optarg, NULL);
            break;
        case 'r':
            options->rounds = (int)strtol(optarg, NULL, 10);
            break;
        case 'm':
            options->memory = optarg;
            break;
        case 'a':
            options->all = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options->rounds >= 1 && options->rounds <= MOST_ROUNDS;
}

int main(int argc, char **argv) {
    options_t options = {.scale = 1, .rounds = 7};
    bool fine = true;
    if (!parse(argc, argv, &options)) {
        fputs("usage: limit_bench [--case NAME] [--ranks N] [--scale F] [--rounds N]\n"
              "                   [--memory shared|heap|huge] [--all]\n",
              stderr);
        return 2;
    }
    printf("%-20s %6s %7s %7s  %-24s %s\n", "case", "ranks", "GiB/s", "peak", "best",
           "methods, GiB/s");
    for (size_t i = 0; bench_case_name(i); i++) {
        if (!options.name || strcmp(options.name, bench_case_name(i)) == 0) {
            fine = run_case(&options, bench_case_name(i)) && fine;
        }
    }
    return fine ? 0 : 1;
}
