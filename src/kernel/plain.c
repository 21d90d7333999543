/* plain.c - the table for any CPU: plain C, and what the other tables are held against. */
#include "kernel/loops.h"

#define NO_ATTRIBUTE

FY_DEFINE_CASTS(NO_ATTRIBUTE)
FY_DEFINE_FOLDS(NO_ATTRIBUTE)
FY_DEFINE_DEQUANTISE(NO_ATTRIBUTE)

static void quantise(uint8_t *restrict data, uint8_t *restrict scales, const void *restrict source,
                     size_t blocks, bool stream) {
    (void)stream;
    fy_quantise_loop(data, scales, source, blocks);
}

static void quantise_bf16(uint8_t *restrict data, uint8_t *restrict scales,
                          const void *restrict source, size_t blocks, bool stream) {
    (void)stream;
    const fy_u16 *s = source;
    for (size_t b = 0; b < blocks; b++) {
        FY_QUANTISE_WIDENED(data + b * FERRY_MX_BLOCK, scales + b, s + b * FERRY_MX_BLOCK);
    }
}

static void rows(uint8_t *target, int64_t target_stride, const uint8_t *source,
                 int64_t source_stride, size_t run, size_t count) {
    fy_rows_loop(target, target_stride, source, source_stride, run, count);
}

static void no_fence(void) {
}

#define TURN(name, value_t)                                                                        \
    static void name(uint8_t *restrict target, size_t target_pitch,                                \
                     const uint8_t *restrict source, size_t source_pitch, size_t ni, size_t nj) {  \
        const size_t i0 = 0;                                                                       \
        const size_t j0 = 0;                                                                       \
        FY_TURN_LOOP(value_t)                                                                      \
    }
TURN(turn_1, uint8_t)
TURN(turn_2, fy_u16)
TURN(turn_4, fy_u32)
TURN(turn_8, fy_u64)

const fy_kernels_t fy_kernels_plain = {
    .name = "plain",
    .rows = rows,
    .rows_stream = rows, /* C knows no stores past the caches */
    .fence = no_fence,
    .turn = {turn_1, turn_2, turn_4, turn_8},
    .cast = FY_CAST_TABLE,
    .fold = FY_FOLD_TABLE,
    .finish = FY_FINISH_TABLE,
    .quantise = quantise,
    .quantise_bf16 = quantise_bf16,
    .dequantise = dequantise,
};
