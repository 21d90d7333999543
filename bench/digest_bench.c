/* digest_bench.c - how fast digests are, in GB/s (10^9 bytes) of one thread.
 *
 *   digest_bench [--mib M] [--only TEXT]
 *
 * Each case on every instruction set that the CPU has: contiguous bytes in the cache and in memory (1 GiB
 * unless told), and parts whose runs are short: a cut of the last dim, every second run in memory, and a
 * transpose. A figure is the best of 5 rounds. "read" is a loop that only adds up the same memory, 64-bit
 * word by word, as the compiler likes it: what one thread can get. Exit code 2 when something failed. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ckpt/digest.h"

enum { ROUNDS = 5 };

typedef struct bench_case {
    const char *name;
    uint64_t bytes; /* digested; 0: all of the memory */
    uint64_t run;   /* bytes; 0: no gaps */
    ferry_dtype_t dtype;
    bool gaps; /* in memory, too: every second run */
    bool turned;
} bench_case_t;

static const bench_case_t cases[] = {
    {"contiguous 4 KiB", 4 << 10, 0, FERRY_BF16, false, false},
    {"contiguous 64 KiB", 64 << 10, 0, FERRY_BF16, false, false},
    {"contiguous memory", 0, 0, FERRY_BF16, false, false},
    {"column cut, runs of 2 B", 64 << 20, 2, FERRY_BF16, false, false},
    {"column cut, runs of 16 B", 64 << 20, 16, FERRY_BF16, false, false},
    {"column cut, runs of 64 B", 64 << 20, 64, FERRY_BF16, false, false},
    {"column cut, runs of 256 B", 64 << 20, 256, FERRY_BF16, false, false},
    {"column cut, runs of 4 KiB", 64 << 20, 4096, FERRY_BF16, false, false},
    {"column cut, runs of 1000 B", 64 << 20, 1000, FERRY_BF16, false, false},
    {"gaps, runs of 64 B, in cache", 16 << 10, 64, FERRY_BF16, true, false},
    {"gaps, runs of 64 B", 64 << 20, 64, FERRY_BF16, true, false},
    {"gaps, runs of 256 B", 64 << 20, 256, FERRY_BF16, true, false},
    {"gaps, runs of 4 KiB", 64 << 20, 4096, FERRY_BF16, true, false},
    {"transposed bf16", 32 << 20, 0, FERRY_BF16, false, true},
    {"transposed f32", 32 << 20, 0, FERRY_F32, false, true},
};

static uint8_t *memory;
static uint64_t memory_bytes = UINT64_C(1) << 30;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The part, and the tensor that it is of: twice as wide. */
static ferry_view_t view_of(const bench_case_t *c, uint64_t bytes, uint64_t shape[2]) {
    uint64_t width = ferry_dtype_bits(c->dtype) / 8;
    ferry_view_t view = {.data = memory, .dtype = c->dtype, .ndim = 2};
    uint64_t columns = c->run / width;
    if (c->turned) {
        columns = 2048;
    } else if (c->run == 0) {
        columns = bytes / width;
    }
    uint64_t rows = bytes / width / columns;
    view.shape[0] = rows;
    view.shape[1] = columns;
    view.strides[0] = c->turned ? 1 : (int64_t)(c->gaps ? 2 * columns : columns);
    view.strides[1] = c->turned ? (int64_t)rows : 1;
    shape[0] = rows;
    shape[1] = c->run == 0 ? columns : 2 * columns;
    return view;
}

static ferry_digest_t digest_once(const bench_case_t *c, uint64_t bytes) {
    uint64_t shape[2];
    const uint64_t lo[2] = {0, 0};
    ferry_view_t view = view_of(c, bytes, shape);
    ferry_digest_t digest = {0, 0};
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_digest_add(&digest, &view, shape, lo, &err) != FERRY_OK) {
        fprintf(stderr, "digest_bench: %s: %s\n", c->name, err.text);
        exit(2);
    }
    return digest;
}

/* Small cases are repeated until a round is worth timing; slow ones are not done again and again. */
static double rate_of(const bench_case_t *c, uint64_t bytes) {
    double best = 0;
    double begun = seconds();
    uint64_t times = bytes < (8u << 20) ? (8u << 20) / bytes : 1;
    for (int round = 0; round < ROUNDS && (round < 2 || seconds() - begun < 1); round++) {
        double from = seconds();
        for (uint64_t i = 0; i < times; i++) {
            digest_once(c, bytes);
        }
        double rate = (double)(bytes * times) / (seconds() - from) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static double read_rate(uint64_t bytes) {
    double best = 0;
    uint64_t times = bytes < (8u << 20) ? (8u << 20) / bytes : 1;
    for (int round = 0; round < ROUNDS; round++) {
        double from = seconds();
        uint64_t sum = 0;
        for (uint64_t n = 0; n < times; n++) {
            const uint64_t *words = (const uint64_t *)(const void *)memory;
            for (uint64_t i = 0; i < bytes / 8; i++) {
                sum += words[i];
            }
            __asm__ volatile("" : : "r"(sum) : "memory"); /* the sum is wanted every time */
        }
        double rate = (double)(bytes * times) / (seconds() - from) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static void run_case(const bench_case_t *c) {
    uint64_t bytes = c->bytes == 0 ? memory_bytes : c->bytes;
    printf("%-30s", c->name);
    ferry_digest_t first = {0, 0};
    for (int i = 0; fy_digest_ways[i] != NULL; i++) {
        if (!fy_digest_ways[i]->runs()) {
            printf("  %-8s     -", fy_digest_ways[i]->name);
            continue;
        }
        fy_digest_force(fy_digest_ways[i]);
        ferry_digest_t digest = digest_once(c, bytes);
        first = i == 0 ? digest : first;
        if (!ferry_digest_equal(&digest, &first)) {
            fprintf(stderr, "digest_bench: %s differs on %s\n", c->name, fy_digest_ways[i]->name);
            exit(2);
        }
        printf("  %-8s %6.2f", fy_digest_ways[i]->name, rate_of(c, bytes));
        fflush(stdout);
    }
    if (c->run == 0 && !c->turned) {
        printf("  read %6.2f", read_rate(bytes));
    }
    printf("\n");
}

int main(int argc, char **argv) {
    const char *only = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc) {
            memory_bytes = strtoull(argv[++i], NULL, 10) << 20;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else {
            fprintf(stderr, "usage: digest_bench [--mib M] [--only TEXT]\n");
            return 2;
        }
    }
    if (memory_bytes < (UINT64_C(128) << 20) || memory_bytes > (UINT64_C(1) << 40)) {
        fprintf(stderr, "digest_bench: --mib: from 128 to 1048576\n");
        return 2;
    }
    void *mapped =
        mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        perror("digest_bench: mmap");
        return 2;
    }
    memory = mapped;
    uint64_t state = 1;
    for (uint64_t i = 0; i < memory_bytes; i += 8) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(memory + i, &state, 8);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strstr(cases[i].name, only) != NULL) {
            run_case(&cases[i]);
        }
    }
    munmap(mapped, memory_bytes);
    return 0;
}
