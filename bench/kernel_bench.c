/* kernel_bench.c - kernels against the fastest contiguous copy of the same moment.
 *
 *   kernel_bench [--json] [--threads N] [--mib M] [--only TEXT] [--check-targets]
 *
 * Two threads (unless told) share every copy. All pages are there before the clock runs. Each round times
 * every way of copying contiguous memory (memcpy, streaming stores, rep movsb: code of this file, none
 * of the library's) and then every case; a case's figure is the median over 7 rounds of its bytes read
 * plus written, and its ratio is to the best of the contiguous medians. Exit code 2 when something failed
 * and, with --check-targets, 1 when a case misses its target. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <ferry/kernel.h>

enum { ROUNDS = 7, MAX_THREADS = 64 };

typedef struct options {
    bool json;
    uint32_t threads;
    uint64_t bytes; /* of a target */
    const char *only;
    bool check_targets;
} options_t;

static options_t options = {false, 2, UINT64_C(256) << 20, NULL, false};

static void *source_memory; /* twice options.bytes */
static void *target_memory; /* the same */

static void require(ferry_status_t status, const ferry_error_t *err) {
    if (status != FERRY_OK) {
        char line[512];
        ferry_error_format(err, line, sizeof line);
        fprintf(stderr, "kernel_bench: %s\n", line);
        exit(2);
    }
}

/* ---- threads ---- */

typedef void (*work_fn)(void *context, uint32_t part, uint32_t nparts);

static pthread_barrier_t start_line;
static pthread_barrier_t finish_line;
static work_fn work;
static void *work_context;

static void *worker(void *part) {
    for (;;) {
        pthread_barrier_wait(&start_line);
        if (work == NULL) {
            return NULL;
        }
        work(work_context, *(const uint32_t *)part, options.threads);
        pthread_barrier_wait(&finish_line);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Part 0 runs in the caller. */
static double timed(work_fn fn, void *context) {
    work = fn;
    work_context = context;
    pthread_barrier_wait(&start_line);
    double from = seconds();
    fn(context, 0, options.threads);
    pthread_barrier_wait(&finish_line);
    return seconds() - from;
}

/* ---- the limit ---- */

static void copy_memcpy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void copy_stream(void *to, const void *from, size_t bytes) {
    __m256i *t = to;
    const __m256i *s = from;
    for (size_t i = 0; i < bytes / sizeof *t; i += 4) {
        __m256i a = _mm256_load_si256(s + i);
        __m256i b = _mm256_load_si256(s + i + 1);
        __m256i c = _mm256_load_si256(s + i + 2);
        __m256i d = _mm256_load_si256(s + i + 3);
        _mm256_stream_si256(t + i, a);
        _mm256_stream_si256(t + i + 1, b);
        _mm256_stream_si256(t + i + 2, c);
        _mm256_stream_si256(t + i + 3, d);
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void copy_stream_wide(void *to, const void *from,
                                                                size_t bytes) {
    uint8_t *t = to;
    const uint8_t *s = from;
    for (size_t i = 0; i < bytes; i += 128) {
        __m512i a = _mm512_load_si512(s + i);
        __m512i b = _mm512_load_si512(s + i + 64);
        _mm512_stream_si512((void *)(t + i), a);
        _mm512_stream_si512((void *)(t + i + 64), b);
    }
    _mm_sfence();
}

static void copy_rep(void *to, const void *from, size_t bytes) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#endif

typedef struct contiguous {
    const char *name;
    void (*copy)(void *to, const void *from, size_t bytes);
    double times[ROUNDS];
} contiguous_t;

static size_t list_contiguous(contiguous_t *list) {
    size_t count = 0;
    list[count++] = (contiguous_t){.name = "memcpy", .copy = copy_memcpy};
#if defined(__x86_64__)
    list[count++] = (contiguous_t){.name = "rep movsb", .copy = copy_rep};
    if (__builtin_cpu_supports("avx2")) {
        list[count++] = (contiguous_t){.name = "streaming, 32 bytes", .copy = copy_stream};
    }
    if (__builtin_cpu_supports("avx512f")) {
        list[count++] = (contiguous_t){.name = "streaming, 64 bytes", .copy = copy_stream_wide};
    }
#endif
    return count;
}

static void run_contiguous(void *context, uint32_t part, uint32_t nparts) {
    const contiguous_t *way = context;
    size_t each = options.bytes / nparts / 4096 * 4096;
    way->copy((uint8_t *)target_memory + part * each, (const uint8_t *)source_memory + part * each,
              each);
}

/* ---- the cases ---- */

typedef struct bench_case {
    const char *name;
    double target; /* ratio to reach */
    ferry_copy_batch_t *batch;
    bool quantise; /* instead of the batch */
    ferry_view_t data;
    ferry_view_t scales;
    ferry_view_t source;
    double bytes; /* read and written */
    double times[ROUNDS];
} bench_case_t;

static void run_case(void *context, uint32_t part, uint32_t nparts) {
    const bench_case_t *one = context;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (one->quantise) {
        require(ferry_mx_quantise(&one->data, &one->scales, &one->source, FERRY_MX_ROWS, part,
                                  nparts, &err),
                &err);
    } else {
        require(ferry_copy_batch_run(one->batch, part, nparts, &err), &err);
    }
}

static ferry_view_t view(void *data, ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape,
                         const int64_t *strides) {
    ferry_view_t made;
    ferry_error_t err = FERRY_ERROR_INIT;
    require(ferry_view_contiguous(data, dtype, ndim, shape, &made, &err), &err);
    for (uint32_t i = 0; i < ndim && strides != NULL; i++) {
        made.strides[i] = strides[i];
    }
    return made;
}

static bench_case_t copy_case(const char *name, double target, ferry_view_t to, ferry_view_t from) {
    bench_case_t made = {.name = name, .target = target};
    ferry_error_t err = FERRY_ERROR_INIT;
    require(ferry_copy_batch_create(&to, &from, 1, 0, &made.batch, &err), &err);
    uint64_t elements = 0;
    require(ferry_view_elements(&to, &elements, &err), &err);
    uint32_t bits = ferry_dtype_bits(to.dtype) + ferry_dtype_bits(from.dtype);
    made.bytes = (double)elements * bits / 8;
    return made;
}

/* Runs of `run` bytes every `stride` bytes, to or from memory without gaps. */
static bench_case_t runs_case(const char *name, double target, uint64_t run, uint64_t stride,
                              bool scatter) {
    uint64_t shape[2] = {options.bytes / run, run};
    int64_t gaps[2] = {(int64_t)stride, 1};
    return copy_case(name, target, view(target_memory, FERRY_U8, 2, shape, scatter ? gaps : NULL),
                     view(source_memory, FERRY_U8, 2, shape, scatter ? NULL : gaps));
}

/* The whole of a matrix with rows of `stride` bytes, column block by column block. */
static bench_case_t blocks_case(const char *name, double target, uint64_t run, uint64_t stride,
                                bool scatter) {
    uint64_t shape[3] = {stride / run, options.bytes / stride, run};
    int64_t gaps[3] = {(int64_t)run, (int64_t)stride, 1};
    return copy_case(name, target, view(target_memory, FERRY_U8, 3, shape, scatter ? gaps : NULL),
                     view(source_memory, FERRY_U8, 3, shape, scatter ? NULL : gaps));
}

static bench_case_t cast_case(void) {
    uint64_t shape[1] = {options.bytes / 2};
    return copy_case("f32-to-bf16", 0.85, view(target_memory, FERRY_BF16, 1, shape, NULL),
                     view(source_memory, FERRY_F32, 1, shape, NULL));
}

static bench_case_t transpose_case(void) {
    uint64_t shape[3] = {options.bytes / 2 / 8192 / 8192, 8192, 8192};
    int64_t turned[3] = {INT64_C(8192) * 8192, 1, 8192};
    return copy_case("bf16-transpose-8192", 0.40, view(target_memory, FERRY_BF16, 3, shape, NULL),
                     view(source_memory, FERRY_BF16, 3, shape, turned));
}

static bench_case_t quantise_case(void) {
    uint64_t shape[2] = {options.bytes / 8192, 8192};
    uint64_t scales[2] = {shape[0], 8192 / FERRY_MX_BLOCK};
    bench_case_t made = {.name = "bf16-to-mxfp8", .target = 0.40, .quantise = true};
    made.data = view(target_memory, FERRY_F8E4M3, 2, shape, NULL);
    made.scales = view((uint8_t *)target_memory + options.bytes, FERRY_E8M0, 2, scales, NULL);
    made.source = view(source_memory, FERRY_BF16, 2, shape, NULL);
    made.bytes = (double)options.bytes * (3 + 1.0 / FERRY_MX_BLOCK);
    return made;
}

static size_t list_cases(bench_case_t *list) {
    size_t count = 0;
    list[count++] = runs_case("runs-1k-every-2k", 0.90, 1024, 2048, false);
    list[count++] = runs_case("runs-1k-every-2k-scatter", 0.90, 1024, 2048, true);
    list[count++] = runs_case("runs-64-every-128", 0.50, 64, 128, false);
    list[count++] = runs_case("runs-64-every-128-scatter", 0.50, 64, 128, true);
    list[count++] = blocks_case("runs-1k-every-64k", 0.40, 1024, 65536, false);
    list[count++] = blocks_case("runs-1k-every-64k-scatter", 0.40, 1024, 65536, true);
    list[count++] = cast_case();
    list[count++] = transpose_case();
    list[count++] = quantise_case();
    if (options.only != NULL) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            if (strstr(list[i].name, options.only) != NULL) {
                list[kept++] = list[i];
            } else {
                ferry_copy_batch_destroy(list[i].batch);
            }
        }
        count = kept;
    }
    return count;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *times) {
    double sorted[ROUNDS];
    memcpy(sorted, times, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, compare);
    return sorted[ROUNDS / 2];
}

static double best_contiguous(const contiguous_t *ways, size_t nways) {
    double best = 0;
    for (size_t w = 0; w < nways; w++) {
        uint64_t pages = options.bytes / options.threads / 4096 * options.threads;
        double gbps = 2.0 * 4096 * (double)pages / median(ways[w].times) / 1e9;
        if (!options.json) {
            printf("%-28s %7.2f GB/s\n", ways[w].name, gbps);
        }
        best = gbps > best ? gbps : best;
    }
    return best;
}

static bool report(const bench_case_t *cases, size_t ncases, double limit) {
    bool reached = true;
    printf(options.json ? "{\"cases\":[" : "\n%-28s %7s %14s %7s\n", "case", "GB/s",
           "ratio to best", "target");
    for (size_t c = 0; c < ncases; c++) {
        double gbps = cases[c].bytes / median(cases[c].times) / 1e9;
        double ratio = gbps / limit;
        bool good = ratio >= cases[c].target;
        if (options.json) {
            printf("%s{\"name\":\"%s\",\"gbps\":%.3f,\"limit_gbps\":%.3f,\"ratio_to_limit\":%.4f}",
                   c > 0 ? "," : "", cases[c].name, gbps, limit, ratio);
        } else {
            printf("%-28s %7.2f %14.2f %7.2f%s\n", cases[c].name, gbps, ratio, cases[c].target,
                   good ? "" : "  missed");
        }
        reached = reached && good;
    }
    printf(options.json ? "]}\n" : "");
    return reached;
}

/* Numbers as weights have them: any mantissa, half as many for every smaller exponent. */
static void fill_bf16(uint16_t *numbers, size_t count) {
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t bits = (uint32_t)(state >> 32);
        uint32_t exponent = 120 - (uint32_t)__builtin_ctz(bits | UINT32_C(1) << 20);
        numbers[i] = (uint16_t)((bits >> 16 & 0x8000) | exponent << 7 | (bits >> 20 & 0x7f));
    }
}

static void *touched(size_t bytes, int fill) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("kernel_bench: mmap");
        exit(2);
    }
    memset(memory, fill, bytes);
    return memory;
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0) {
            options.json = true;
        } else if (strcmp(argv[i], "--threads") == 0 && more) {
            options.threads = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--mib") == 0 && more) {
            options.bytes = strtoull(argv[++i], NULL, 10) << 20;
        } else if (strcmp(argv[i], "--only") == 0 && more) {
            options.only = argv[++i];
        } else if (strcmp(argv[i], "--check-targets") == 0) {
            options.check_targets = true;
        } else {
            fprintf(stderr, "usage: kernel_bench [--json] [--threads N] [--mib M] [--only TEXT] "
                            "[--check-targets]\n");
            exit(2);
        }
    }
    if (options.threads < 1 || options.threads > MAX_THREADS || options.bytes < 128u << 20) {
        fprintf(stderr, "kernel_bench: 1 to %d threads, at least 128 MiB\n", MAX_THREADS);
        exit(2);
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    source_memory = touched(options.bytes * 2, 0);
    fill_bf16(source_memory, options.bytes);
    target_memory = touched(options.bytes * 2, 0x11);
    contiguous_t ways[8];
    bench_case_t cases[16];
    size_t nways = list_contiguous(ways);
    size_t ncases = list_cases(cases);
    pthread_t threads[MAX_THREADS];
    uint32_t parts[MAX_THREADS];
    pthread_barrier_init(&start_line, NULL, options.threads);
    pthread_barrier_init(&finish_line, NULL, options.threads);
    for (uint32_t t = 1; t < options.threads; t++) {
        parts[t] = t;
        if (pthread_create(&threads[t], NULL, worker, &parts[t]) != 0) {
            fprintf(stderr, "kernel_bench: no thread\n");
            return 2;
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t w = 0; w < nways; w++) {
            ways[w].times[round] = timed(run_contiguous, &ways[w]);
        }
        for (size_t c = 0; c < ncases; c++) {
            cases[c].times[round] = timed(run_case, &cases[c]);
        }
    }
    work = NULL;
    pthread_barrier_wait(&start_line);
    for (uint32_t t = 1; t < options.threads; t++) {
        pthread_join(threads[t], NULL);
    }
    bool reached = report(cases, ncases, best_contiguous(ways, nways));
    for (size_t c = 0; c < ncases; c++) {
        ferry_copy_batch_destroy(cases[c].batch);
    }
    return reached || !options.check_targets ? 0 : 1;
}
