/* limit_methods.c - memcpy, streaming stores of three widths, and rep movsb.
 *
 * Each method is one loop over rows with its row routine compiled into it. Streaming stores need an
 * aligned target: bytes before the first and after the last whole line go through memcpy, so every
 * method is right for any address and length. On CPUs other than x86-64 only memcpy is there.
 */
#include "limit_methods.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE __attribute__((always_inline)) static inline

#define LINE ((size_t)64)

/* Defines a limit_copy_fn out of a row routine. attributes: the instruction set it needs. */
#define DEFINE_METHOD(name, attributes, copy_row, finish)                                          \
    attributes static void name(const bench_copy_t *copies, size_t count, size_t first,            \
                                size_t last) {                                                     \
        for (size_t row = first; row < last; row++) {                                              \
            for (size_t i = 0; i < count; i++) {                                                   \
                const bench_copy_t *copy = &copies[i];                                             \
                copy_row((uint8_t *)copy->target + row * copy->target_stride,                      \
                         (const uint8_t *)copy->source + row * copy->source_stride,                \
                         copy->row_bytes);                                                         \
            }                                                                                      \
        }                                                                                          \
        (finish);                                                                                  \
    }

ALWAYS_INLINE void row_memcpy(uint8_t *target, const uint8_t *source, size_t bytes) {
    memcpy(target, source, bytes);
}

DEFINE_METHOD(copy_memcpy, , row_memcpy, (void)0)

#if defined(__x86_64__)

ALWAYS_INLINE void row_movsb(uint8_t *target, const uint8_t *source, size_t bytes) {
    __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
}

DEFINE_METHOD(copy_movsb, , row_movsb, (void)0)

/* Defines a row routine that calls move(target, source) for every whole line of the target. */
#define DEFINE_ROW(name, attributes, move)                                                         \
    attributes ALWAYS_INLINE void name(uint8_t *target, const uint8_t *source, size_t bytes) {     \
        size_t head = (LINE - (uintptr_t)target % LINE) % LINE;                                    \
        if (head > 0) {                                                                            \
            head = head < bytes ? head : bytes;                                                    \
            memcpy(target, source, head);                                                          \
            target += head;                                                                        \
            source += head;                                                                        \
            bytes -= head;                                                                         \
        }                                                                                          \
        for (; bytes >= 4 * LINE; bytes -= 4 * LINE, target += 4 * LINE, source += 4 * LINE) {     \
            move(target, source, 4);                                                               \
        }                                                                                          \
        for (; bytes >= LINE; bytes -= LINE, target += LINE, source += LINE) {                     \
            move(target, source, 1);                                                               \
        }                                                                                          \
        if (bytes > 0) {                                                                           \
            memcpy(target, source, bytes);                                                         \
        }                                                                                          \
    }

#define AVX512 __attribute__((target("avx512f")))
#define AVX2 __attribute__((target("avx2")))

/* Keeps stores in the order they are written in. gcc moves the halves of a line apart otherwise, which
 * costs half the speed of streaming stores narrower than a line. */
#define IN_ORDER __asm__ volatile("" : : : "memory")

/* Loads of a move come before its stores: four lines in flight. */
AVX512 ALWAYS_INLINE void move_512(uint8_t *target, const uint8_t *source, size_t lines) {
    __m512i v[4];
    for (size_t i = 0; i < lines; i++) {
        v[i] = _mm512_loadu_si512(source + i * LINE);
    }
    for (size_t i = 0; i < lines; i++) {
        _mm512_stream_si512((__m512i *)(void *)(target + i * LINE), v[i]);
        IN_ORDER;
    }
}

AVX2 ALWAYS_INLINE void move_256(uint8_t *target, const uint8_t *source, size_t lines) {
    __m256i v[8];
    for (size_t i = 0; i < 2 * lines; i++) {
        v[i] = _mm256_loadu_si256((const __m256i *)(const void *)(source + i * 32));
    }
    for (size_t i = 0; i < 2 * lines; i++) {
        _mm256_stream_si256((__m256i *)(void *)(target + i * 32), v[i]);
        IN_ORDER;
    }
}

ALWAYS_INLINE void move_128(uint8_t *target, const uint8_t *source, size_t lines) {
    __m128i v[16];
    for (size_t i = 0; i < 4 * lines; i++) {
        v[i] = _mm_loadu_si128((const __m128i *)(const void *)(source + i * 16));
    }
    for (size_t i = 0; i < 4 * lines; i++) {
        _mm_stream_si128((__m128i *)(void *)(target + i * 16), v[i]);
        IN_ORDER;
    }
}

/* Hardware prefetch stops at the end of a page; this goes on into the next one. */
#define AHEAD ((size_t)1024)

ALWAYS_INLINE void fetch_ahead(const uint8_t *source, size_t lines) {
    for (size_t i = 0; i < lines; i++) {
        _mm_prefetch((const char *)source + AHEAD + i * LINE, _MM_HINT_T0);
    }
}

AVX512 ALWAYS_INLINE void fetch_512(uint8_t *target, const uint8_t *source, size_t lines) {
    fetch_ahead(source, lines);
    move_512(target, source, lines);
}

AVX2 ALWAYS_INLINE void fetch_256(uint8_t *target, const uint8_t *source, size_t lines) {
    fetch_ahead(source, lines);
    move_256(target, source, lines);
}

DEFINE_ROW(row_512, AVX512, move_512)
DEFINE_ROW(row_256, AVX2, move_256)
DEFINE_ROW(row_128, , move_128)
DEFINE_ROW(row_fetch_512, AVX512, fetch_512)
DEFINE_ROW(row_fetch_256, AVX2, fetch_256)

DEFINE_METHOD(copy_512, AVX512, row_512, _mm_sfence())
DEFINE_METHOD(copy_256, AVX2, row_256, _mm_sfence())
DEFINE_METHOD(copy_128, , row_128, _mm_sfence())
DEFINE_METHOD(copy_fetch_512, AVX512, row_fetch_512, _mm_sfence())
DEFINE_METHOD(copy_fetch_256, AVX2, row_fetch_256, _mm_sfence())

limit_copy_fn limit_method_copy(limit_method_t method) {
    bool avx512 = __builtin_cpu_supports("avx512f");
    bool avx2 = __builtin_cpu_supports("avx2");
    switch (method) {
    case LIMIT_MEMCPY:
        return copy_memcpy;
    case LIMIT_STREAM:
        return avx512 ? copy_512 : avx2 ? copy_256 : copy_128;
    case LIMIT_STREAM_256:
        return avx512 ? copy_256 : NULL;
    case LIMIT_PREFETCH:
        return avx512 ? copy_fetch_512 : avx2 ? copy_fetch_256 : NULL;
    case LIMIT_MOVSB:
        return copy_movsb;
    case LIMIT_METHODS:
        break;
    }
    return NULL;
}

#else

limit_copy_fn limit_method_copy(limit_method_t method) {
    return method == LIMIT_MEMCPY ? copy_memcpy : NULL;
}

#endif

const char *limit_method_name(limit_method_t method) {
    static const char *const names[LIMIT_METHODS] = {"memcpy", "stream", "stream-256", "prefetch",
                                                     "movsb"};
    return method < LIMIT_METHODS ? names[method] : "best";
}
