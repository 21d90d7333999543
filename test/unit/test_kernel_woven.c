/* Copies large enough to be done as woven streams, against a loop over their bytes. Numbers of runs, their
 * lengths, strides and places are drawn so that whole blocks, what is left of them and ragged ends occur,
 * and the bytes between runs must stay as they were. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/kernel.h>

#include "kernel/kernels.h"

enum { MEMORY = 4 << 20, CASES = 150, BEFORE = 0x5a };

static uint8_t *source_memory;
static uint8_t *target_memory;
static uint8_t *expected_memory;
static uint64_t state;

static uint64_t draw(uint64_t most) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % (most + 1);
}

typedef struct runs {
    uint64_t run, count;
    int64_t target_stride, source_stride;
    size_t target_at, source_at;
    uint32_t flags;
} runs_t;

/* Any of the lengths that are treated apart, a line more or less, now and then ragged. */
static runs_t draw_runs(void) {
    static const uint64_t lengths[] = {64, 128, 256, 1024, 4096, 16384, 32768, 65536, 262144};
    runs_t r = {.run = lengths[draw(8)] + 64 * draw(2), .count = 1 + draw(3)};
    uint64_t room = MEMORY / 2 / r.run;
    r.count = draw(3) == 0 ? r.count : 1 + draw(room < 700 ? room - 1 : 700);
    uint64_t gap = MEMORY / r.count - r.run;
    r.target_stride = (int64_t)(r.run + 64 * draw((gap < 4096 ? gap : 4096) / 64 / 2));
    r.source_stride = (int64_t)(r.run + draw((gap < 8192 ? gap : 8192) / 2));
    r.run -= draw(5) == 0 ? draw(63) : 0;
    r.target_at = draw(4) == 0 ? draw(63) : 0;
    r.source_at = draw(63);
    if (draw(3) == 0) {
        r.source_at += (r.count - 1) * (size_t)r.source_stride;
        r.source_stride = -r.source_stride;
    }
    r.flags = draw(1) == 0 ? FERRY_COPY_STREAM : FERRY_COPY_CACHED;
    return r;
}

static ferry_view_t view_of(uint8_t *data, const runs_t *r, int64_t stride) {
    return (ferry_view_t){.data = data,
                          .dtype = FERRY_U8,
                          .ndim = 2,
                          .shape = {r->count, r->run},
                          .strides = {stride, 1}};
}

static void check_runs(const runs_t *r, uint64_t seed) {
    memset(target_memory, BEFORE, MEMORY + 64);
    memset(expected_memory, BEFORE, MEMORY + 64);
    for (uint64_t i = 0; i < r->count; i++) {
        memcpy(expected_memory + r->target_at + (int64_t)i * r->target_stride,
               source_memory + r->source_at + (int64_t)i * r->source_stride, r->run);
    }
    ferry_view_t target = view_of(target_memory + r->target_at, r, r->target_stride);
    ferry_view_t source = view_of(source_memory + r->source_at, r, r->source_stride);
    assert_int_equal(ferry_view_copy(&target, &source, r->flags, NULL), FERRY_OK);
    if (memcmp(target_memory, expected_memory, MEMORY + 64) != 0) {
        fail_msg("seed %" PRIu64 ": %" PRIu64 " runs of %" PRIu64 " bytes differ", seed, r->count,
                 r->run);
    }
}

static void copies_of_runs(void **unused) {
    (void)unused;
    for (int isa = 0; isa < FY_ISA_COUNT; isa++) {
        if (!fy_isa_runs((fy_isa_t)isa)) {
            continue;
        }
        fy_isa_force((fy_isa_t)isa);
        for (uint64_t seed = 1; seed <= CASES; seed++) {
            state = seed;
            runs_t r = draw_runs();
            check_runs(&r, seed);
        }
    }
}

/* Lengths around those at which the blocks of the cast change; a NaN and an infinity among them. */
static void casts_to_bf16(void **unused) {
    (void)unused;
    ferry_view_t source = {.data = source_memory, .dtype = FERRY_F32, .ndim = 1, .strides = {1}};
    ferry_view_t target = {.data = target_memory, .dtype = FERRY_BF16, .ndim = 1, .strides = {1}};
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        state = seed;
        source.shape[0] = 1 + draw(draw(1) == 0 ? 40000 : 900000);
        target.shape[0] = source.shape[0];
        for (int i = 0; i < 3; i++) {
            uint32_t special = 0x7f800000 + (uint32_t)draw(2);
            memcpy(source_memory + 4 * draw(source.shape[0] - 1), &special, sizeof special);
        }
        fy_isa_force(FY_ISA_PLAIN);
        assert_int_equal(ferry_view_copy(&target, &source, FERRY_COPY_STREAM, NULL), FERRY_OK);
        memcpy(expected_memory, target_memory, 2 * source.shape[0]);
        for (int isa = FY_ISA_PLAIN + 1; isa < FY_ISA_COUNT; isa++) {
            if (fy_isa_runs((fy_isa_t)isa)) {
                fy_isa_force((fy_isa_t)isa);
                memset(target_memory, BEFORE, 2 * source.shape[0]);
                assert_int_equal(ferry_view_copy(&target, &source, FERRY_COPY_STREAM, NULL),
                                 FERRY_OK);
                if (memcmp(target_memory, expected_memory, 2 * source.shape[0]) != 0) {
                    fail_msg("seed %" PRIu64 ": %" PRIu64 " elements differ", seed,
                             source.shape[0]);
                }
            }
        }
    }
}

static int setup(void **unused) {
    (void)unused;
    source_memory = aligned_alloc(4096, 2 * MEMORY);
    target_memory = aligned_alloc(4096, 2 * MEMORY);
    expected_memory = aligned_alloc(4096, 2 * MEMORY);
    if (source_memory == NULL || target_memory == NULL || expected_memory == NULL) {
        return -1;
    }
    state = 1;
    for (size_t i = 0; i < 2 * MEMORY; i++) {
        source_memory[i] = (uint8_t)draw(255);
    }
    return 0;
}

static int teardown(void **unused) {
    (void)unused;
    free(source_memory);
    free(target_memory);
    free(expected_memory);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_runs),
        cmocka_unit_test(casts_to_bf16),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
