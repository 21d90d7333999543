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

/* Streams that are walked at once, bytes of each in turn, bytes of one stream that are asked for ahead
 * (into the first cache: asking for it in the second takes as many of its places), and what a
 * stream should have at least. Measured in docs/decisions/kernels.md. */
#define FY_STREAMS ((size_t)8)
#define FY_TURN ((size_t)256)
#define FY_AHEAD ((size_t)512)
#define FY_PIECE ((size_t)4096)
#define FY_WEAVE_RUN ((size_t)1024) /* cached copies: what is worth it */
#define FY_WEAVE_BYTES ((size_t)256 * 1024)
#define FY_PREFETCH_NEAR(address) __builtin_prefetch((address), 0, 3)

/* Stores stay in the order they are written in: gcc moves the halves of lines apart otherwise, and a line
 * that is streamed in parts costs more. */
#define FY_IN_ORDER __asm__ volatile("" : : : "memory")

/* The same past the end of what is read: there is most often more of it, and asking for memory that does
 * not exist does no harm. */
#define FY_PREFETCH_PAST(address, bytes) FY_PREFETCH((address) + (bytes))

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

/* rows and rows_stream over the put_line of the file, which streams when told to.
 *
 * A core waits for few lines of the first cache at a time; what brings more is the prefetcher of the
 * second, which follows one stream in each of up to 32 pages. So FY_STREAMS stretches at least a page
 * apart are walked at once, FY_TURN bytes of each in turn, and FY_AHEAD bytes further on are asked for.
 * A stretch is a piece of a long run, or some short runs. Needs runs of whole lines, and targets on lines
 * where they are streamed; what is left over, and what is ragged, goes run by run. */
#define FY_DEFINE_ROWS(attribute)                                                                   \
    attribute FY_INLINE void stream_run(uint8_t *target, const uint8_t *source, size_t run,         \
                                        const uint8_t *ahead, size_t nahead) {                      \
        size_t at = (size_t)(-(uintptr_t)target % FY_LINE);                                         \
        if (at >= run) {                                                                            \
            memcpy(target, source, run);                                                            \
            return;                                                                                 \
        }                                                                                           \
        if (at > 0) {                                                                               \
            memcpy(target, source, at);                                                             \
        }                                                                                           \
        for (; at + FY_LINE <= run && at < nahead; at += FY_LINE) {                                 \
            FY_PREFETCH(ahead + at);                                                                \
            put_line(target + at, source + at, true);                                               \
        }                                                                                           \
        for (; at + FY_LINE <= run; at += FY_LINE) {                                                \
            put_line(target + at, source + at, true);                                               \
        }                                                                                           \
        if (at < run) {                                                                             \
            memcpy(target + at, source + at, run - at);                                             \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    /* Run by run: while a line is copied, the same line of a later run is asked for. */            \
    attribute static void stream_each(uint8_t *target, int64_t target_stride,                       \
                                      const uint8_t *source, int64_t source_stride, size_t run,     \
                                      size_t count) {                                               \
        size_t distance = run < FY_PREFETCH_BYTES ? FY_PREFETCH_BYTES / run : 1;                    \
        bool inside = run >= 2 * FY_PREFETCH_BYTES;                                                 \
        for (size_t i = 0; i < count; i++) {                                                        \
            if (inside) {                                                                           \
                stream_run(target, source, run, source + FY_PREFETCH_BYTES,                         \
                           run - FY_PREFETCH_BYTES);                                                \
            } else if (i + distance < count) {                                                      \
                stream_run(target, source, run, source + (int64_t)distance * source_stride, run);   \
            } else {                                                                                \
                stream_run(target, source, run, source, 0);                                         \
            }                                                                                       \
            target += target_stride;                                                                \
            source += source_stride;                                                                \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    /* `bytes` of each stream; `ahead` is asked for. */                                             \
    attribute FY_INLINE void take_turns(uint8_t *target, int64_t target_step,                       \
                                        const uint8_t *source, int64_t source_step,                 \
                                        const uint8_t *ahead, size_t bytes, bool stream) {          \
        for (size_t i = 0; i < FY_STREAMS; i++) {                                                   \
            for (size_t at = 0; at < bytes; at += FY_LINE) {                                        \
                FY_PREFETCH_NEAR(ahead + at);                                                       \
            }                                                                                       \
            for (size_t at = 0; at < bytes; at += FY_LINE) {                                        \
                put_line(target + at, source + at, stream);                                         \
            }                                                                                       \
            target += target_step;                                                                  \
            source += source_step;                                                                  \
            ahead += source_step;                                                                   \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    /* One run of each stream. From `split` on, what is asked for lies in `next`, the run after. */ \
    attribute FY_INLINE void weave(uint8_t *target, int64_t target_step, const uint8_t *source,     \
                                   int64_t source_step, size_t run, size_t split,                   \
                                   const uint8_t *next, bool stream) {                              \
        size_t at = 0;                                                                              \
        for (; at + FY_TURN <= run; at += FY_TURN) {                                                \
            const uint8_t *ahead = at < split ? source + (run - split) + at : next + (at - split);  \
            take_turns(target + at, target_step, source + at, source_step, ahead, FY_TURN,          \
                       stream);                                                                     \
        }                                                                                           \
        if (at < run) {                                                                             \
            const uint8_t *ahead = at < split ? source + (run - split) + at : next + (at - split);  \
            take_turns(target + at, target_step, source + at, source_step, ahead, run - at,         \
                       stream);                                                                     \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    /* A long run, cut into blocks of FY_STREAMS pieces; `next` is what is read after it. */        \
    attribute FY_INLINE void weave_run(uint8_t *target, const uint8_t *source, size_t run,          \
                                       const uint8_t *next, bool stream) {                          \
        size_t blocks = (run + FY_STREAMS * FY_PIECE - 1) / (FY_STREAMS * FY_PIECE);                \
        size_t piece = run / FY_STREAMS / blocks / FY_LINE * FY_LINE;                               \
        size_t rest = run - blocks * FY_STREAMS * piece;                                            \
        for (; blocks > 0; blocks--) {                                                              \
            const uint8_t *after = source + FY_STREAMS * piece;                                     \
            weave(target, (int64_t)piece, source, (int64_t)piece, piece, piece - FY_AHEAD,          \
                  blocks > 1 ? after : next, stream);                                               \
            target += FY_STREAMS * piece;                                                           \
            source = after;                                                                         \
        }                                                                                           \
        if (stream) {                                                                               \
            stream_run(target, source, rest, source, 0);                                            \
        } else if (rest < run) { /* always; the compiler would rather be told */                    \
            memcpy(target, source, rest);                                                           \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    /* Short runs, FY_STREAMS times `each` of them to a block; returns how many were copied. */     \
    attribute FY_INLINE size_t weave_runs(uint8_t *target, int64_t target_stride,                   \
                                          const uint8_t *source, int64_t source_stride,             \
                                          size_t run, size_t count, size_t each, bool stream) {     \
        size_t split = run > 2 * FY_AHEAD ? run - FY_AHEAD : 0;                                     \
        size_t distance = run < FY_AHEAD ? FY_AHEAD / run : 1;                                      \
        size_t done = 0;                                                                            \
        for (; done + FY_STREAMS * each <= count; done += FY_STREAMS * each) {                      \
            for (size_t r = 0; r < each; r++) {                                                     \
                size_t later = done + (r + distance) / each * each * FY_STREAMS;                    \
                const uint8_t *next =                                                               \
                    source + (int64_t)(later + (r + distance) % each) * source_stride;              \
                const uint8_t *now = source + (int64_t)(done + r) * source_stride;                  \
                bool more = later + FY_STREAMS * each <= count;                                     \
                weave(target + (int64_t)(done + r) * target_stride, (int64_t)each * target_stride,  \
                      now, (int64_t)each * source_stride, run, split, more ? next : now, stream);   \
            }                                                                                       \
        }                                                                                           \
        return done;                                                                                \
    }                                                                                               \
                                                                                                    \
    attribute FY_INLINE void weave_rows(uint8_t *target, int64_t target_stride,                     \
                                        const uint8_t *source, int64_t source_stride, size_t run,   \
                                        size_t count, bool stream) {                                \
        uint64_t start =                                                                            \
            stream ? (uintptr_t)target | (uint64_t)(count > 1 ? target_stride : 0) : 0;             \
        bool even = (start | run) % FY_LINE == 0;                                                   \
        size_t least = count < FY_STREAMS ? FY_STREAMS * FY_PIECE / 2 : FY_STREAMS * FY_PIECE;      \
        if (even && run >= least) {                                                                 \
            for (size_t i = 0; i < count; i++) {                                                    \
                const uint8_t *next = i + 1 < count ? source + source_stride : source;              \
                weave_run(target, source, run, next, stream);                                       \
                target += target_stride;                                                            \
                source += source_stride;                                                            \
            }                                                                                       \
            return;                                                                                 \
        }                                                                                           \
        while (even && count >= FY_STREAMS) {                                                       \
            uint64_t stride = (uint64_t)(source_stride < 0 ? -source_stride : source_stride);       \
            size_t each = stride > 0 && stride < FY_PIECE ? FY_PIECE / stride : 1;                  \
            each = each < count / FY_STREAMS ? each : count / FY_STREAMS;                           \
            size_t done = weave_runs(target, target_stride, source, source_stride, run, count,      \
                                     each, stream);                                                 \
            target += (int64_t)done * target_stride;                                                \
            source += (int64_t)done * source_stride;                                                \
            count -= done;                                                                          \
        }                                                                                           \
        if (stream) {                                                                               \
            stream_each(target, target_stride, source, source_stride, run, count);                  \
        } else {                                                                                    \
            fy_rows_loop(target, target_stride, source, source_stride, run, count);                 \
        }                                                                                           \
    }                                                                                               \
                                                                                                    \
    attribute static void rows_stream(uint8_t *target, int64_t target_stride,                       \
                                      const uint8_t *source, int64_t source_stride, size_t run,     \
                                      size_t count) {                                               \
        weave_rows(target, target_stride, source, source_stride, run, count, true);                 \
    }                                                                                               \
                                                                                                    \
    /* Little data, or short runs: they are often in a cache already. */                            \
    attribute static void rows(uint8_t *target, int64_t target_stride, const uint8_t *source,       \
                               int64_t source_stride, size_t run, size_t count) {                   \
        if (run >= FY_WEAVE_RUN && run * count >= FY_WEAVE_BYTES) {                                 \
            weave_rows(target, target_stride, source, source_stride, run, count, false);            \
        } else {                                                                                    \
            fy_rows_loop(target, target_stride, source, source_stride, run, count);                 \
        }                                                                                           \
    }

/* cast_stream_f32_bf16 over the stream_bf16 of the file: as weave_run, a line of the target at a time. */
#define FY_DEFINE_CAST_STREAM_BF16(attribute)                                                      \
    attribute static void cast_stream_f32_bf16(void *restrict target, const void *restrict source, \
                                               size_t count) {                                     \
        uint8_t *t = target;                                                                       \
        const uint8_t *s = source;                                                                 \
        size_t lines = count * 2 / FY_LINE;                                                        \
        while (lines >= FY_STREAMS) {                                                              \
            size_t each = lines / FY_STREAMS;                                                      \
            each = each < FY_PIECE / 2 / FY_LINE ? each : FY_PIECE / 2 / FY_LINE;                  \
            lines -= FY_STREAMS * each;                                                            \
            for (size_t j = 0; j < each; j++) {                                                    \
                /* Also past the block: the next one goes on there. */                             \
                size_t on = j + FY_AHEAD / 2 / FY_LINE;                                            \
                on = on < each ? on : lines > 0 ? on + (FY_STREAMS - 1) * each : j;                \
                for (size_t i = 0; i < FY_STREAMS; i++) {                                          \
                    const uint8_t *ahead = s + (i * each + on) * 2 * FY_LINE;                      \
                    size_t at = i * each + j;                                                      \
                    FY_PREFETCH_NEAR(ahead);                                                       \
                    FY_PREFETCH_NEAR(ahead + FY_LINE);                                             \
                    stream_bf16(t + at * FY_LINE, s + at * 2 * FY_LINE);                           \
                }                                                                                  \
            }                                                                                      \
            t += FY_STREAMS * each * FY_LINE;                                                      \
            s += FY_STREAMS * each * 2 * FY_LINE;                                                  \
        }                                                                                          \
        for (size_t j = 0; j < lines; j++) {                                                       \
            stream_bf16(t + j * FY_LINE, s + j * 2 * FY_LINE);                                     \
        }                                                                                          \
    }

/* NOLINTEND(bugprone-macro-parentheses) */

#endif
