/* x86.h - what the tables for AVX2 and AVX-512 share. */
#ifndef FERRY_KERNEL_X86_H
#define FERRY_KERNEL_X86_H

#include <immintrin.h>

#include "kernel/kernels.h"

/* No FMA on purpose: a compiler that fuses a product and a sum would round once less than plain C. */
#define FY_AVX2 __attribute__((target("avx2")))
#define FY_AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))

/* How far ahead of the loads memory is asked for, in bytes that are copied. Far, and into the second
 * cache: it can wait for several times as many lines as the first. */
#define FY_PREFETCH_BYTES ((size_t)16 * 1024)
#define FY_PREFETCH(address) __builtin_prefetch((address), 0, 2)

/* The same past the end of what is read: there is most often more of it, and asking for memory that does
 * not exist does no harm. */
#define FY_PREFETCH_PAST(address, bytes) FY_PREFETCH((address) + (bytes))

/* Asks for the two lines FY_PREFETCH_BYTES after `source`, which is `at` bytes into a run of `bytes`. */
#define FY_PREFETCH_WITHIN(source, at, bytes)                                                      \
    do {                                                                                           \
        if ((at) + FY_PREFETCH_BYTES + 2 * (size_t)FY_LINE <= (bytes)) {                           \
            FY_PREFETCH((source) + FY_PREFETCH_BYTES);                                             \
            FY_PREFETCH((source) + FY_PREFETCH_BYTES + FY_LINE);                                   \
        }                                                                                          \
    } while (0)

/* Largest magnitudes, as bf16, of blocks whose scale neither is infinite nor so small (2^-102) that
 * subnormal sources would count. */
#define FY_MX_EASY_LEAST (UINT32_C(33) << 7)
#define FY_MX_EASY_MOST UINT32_C(0x7f7f)

/* The largest of sixteen magnitudes, in the lowest 16 bits. The CPU finds the least of eight, so they are
 * turned round and back. */
FY_AVX2 FY_INLINE __m128i fy_x86_largest(__m256i sizes) {
    const __m128i ones = _mm_set1_epi16(-1);
    __m128i eight =
        _mm_max_epu16(_mm256_castsi256_si128(sizes), _mm256_extracti128_si256(sizes, 1));
    return _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(eight, ones)), ones);
}

/* What to take from magnitudes to have them divided by the block's scale and in f8e4m3's bias: the
 * exponent of the largest, less 8, less 7, in bf16's place. */
FY_AVX2 FY_INLINE __m128i fy_x86_shift(__m128i largest) {
    __m128i exponent = _mm_and_si128(largest, _mm_set1_epi16((int16_t)0xff80));
    return _mm_sub_epi16(exponent, _mm_set1_epi16(15 << 7));
}

FY_AVX2 FY_INLINE void fy_x86_put(uint8_t *target, __m256i value, bool stream) {
    if (stream) {
        _mm256_stream_si256((__m256i *)(void *)target, value);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)target, value);
    }
}

/* Orders streamed stores before all later ones. */
void fy_x86_fence(void);

void fy_x86_turn_1(uint8_t *restrict target, size_t target_pitch, const uint8_t *restrict source,
                   size_t source_pitch, size_t ni, size_t nj);
void fy_x86_turn_2(uint8_t *restrict target, size_t target_pitch, const uint8_t *restrict source,
                   size_t source_pitch, size_t ni, size_t nj);
void fy_x86_turn_4(uint8_t *restrict target, size_t target_pitch, const uint8_t *restrict source,
                   size_t source_pitch, size_t ni, size_t nj);
void fy_x86_turn_8(uint8_t *restrict target, size_t target_pitch, const uint8_t *restrict source,
                   size_t source_pitch, size_t ni, size_t nj);

/* NOLINTBEGIN(bugprone-macro-parentheses): an attribute cannot stand in parentheses. */

/* rows_stream over the stream_line of the file. While a line is copied, one further on is asked for: in
 * a long run the one FY_PREFETCH_BYTES ahead, else the same line of a later run. Hardware prefetchers
 * stop at the end of a page and know nothing of long strides. Runs of one line have a loop of their own. */
#define FY_DEFINE_ROWS_STREAM(attribute)                                                           \
    attribute FY_INLINE void stream_run(uint8_t *target, const uint8_t *source, size_t run,        \
                                        const uint8_t *ahead, size_t nahead) {                     \
        size_t at = (size_t)(-(uintptr_t)target % FY_LINE);                                        \
        if (at >= run) {                                                                           \
            memcpy(target, source, run);                                                           \
            return;                                                                                \
        }                                                                                          \
        if (at > 0) {                                                                              \
            memcpy(target, source, at);                                                            \
        }                                                                                          \
        for (; at + FY_LINE <= run && at < nahead; at += FY_LINE) {                                \
            FY_PREFETCH(ahead + at);                                                               \
            stream_line(target + at, source + at);                                                 \
        }                                                                                          \
        for (; at + FY_LINE <= run; at += FY_LINE) {                                               \
            stream_line(target + at, source + at);                                                 \
        }                                                                                          \
        if (at < run) {                                                                            \
            memcpy(target + at, source + at, run - at);                                            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    attribute static void stream_lines(uint8_t *target, int64_t target_stride,                     \
                                       const uint8_t *source, int64_t source_stride,               \
                                       size_t count) {                                             \
        const size_t distance = FY_PREFETCH_BYTES / FY_LINE;                                       \
        size_t i = 0;                                                                              \
        for (; i + distance < count; i++) {                                                        \
            FY_PREFETCH(source + (int64_t)distance * source_stride);                               \
            stream_line(target, source);                                                           \
            target += target_stride;                                                               \
            source += source_stride;                                                               \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            stream_line(target, source);                                                           \
            target += target_stride;                                                               \
            source += source_stride;                                                               \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    attribute static void rows_stream(uint8_t *target, int64_t target_stride,                      \
                                      const uint8_t *source, int64_t source_stride, size_t run,    \
                                      size_t count) {                                              \
        if (run == FY_LINE && ((uintptr_t)target | (uint64_t)target_stride) % FY_LINE == 0) {      \
            stream_lines(target, target_stride, source, source_stride, count);                     \
            return;                                                                                \
        }                                                                                          \
        size_t distance = run < FY_PREFETCH_BYTES ? FY_PREFETCH_BYTES / run : 1;                   \
        bool inside = run >= 2 * FY_PREFETCH_BYTES;                                                \
        for (size_t i = 0; i < count; i++) {                                                       \
            if (inside) {                                                                          \
                stream_run(target, source, run, source + FY_PREFETCH_BYTES,                        \
                           run - FY_PREFETCH_BYTES);                                               \
            } else if (i + distance < count) {                                                     \
                stream_run(target, source, run, source + (int64_t)distance * source_stride, run);  \
            } else {                                                                               \
                stream_run(target, source, run, source, 0);                                        \
            }                                                                                      \
            target += target_stride;                                                               \
            source += source_stride;                                                               \
        }                                                                                          \
    }

/* NOLINTEND(bugprone-macro-parentheses) */

#endif
