/* x86_turn.c - transposes in AVX2 registers, for elements of 1, 2, 4 and 8 bytes.
 *
 * A register takes 16 bytes of row i in its low half and 16 bytes of row i + n in its high half, where
 * n elements fill a half. Interleaving register k with register k + n/2, log2(n) times over, is a
 * transpose of each half: n registers then hold n columns of 2n rows. Only in-lane shuffles are used. */
#include "kernel/loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernel/x86.h"

void fy_x86_fence(void) {
    _mm_sfence();
}

FY_AVX2 FY_INLINE __m256i load_pair(const uint8_t *low, const uint8_t *high) {
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)low);
    __m128i second = _mm_loadu_si128((const __m128i *)(const void *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
}

/* One function per width: whole tiles of 2n rows by n columns, then the two edges. */
#define DEFINE_TURN(name, value_t, n, stages, low, high)                                           \
    FY_AVX2 FY_INLINE void name##_tile(uint8_t *restrict target, size_t target_pitch,              \
                                       const uint8_t *restrict source, size_t source_pitch) {      \
        __m256i a[n];                                                                              \
        __m256i b[n];                                                                              \
        for (size_t k = 0; k < (n); k++) {                                                         \
            a[k] = load_pair(source + k * source_pitch, source + (k + (n)) * source_pitch);        \
        }                                                                                          \
        for (size_t stage = 0; stage < (stages); stage++) {                                        \
            for (size_t k = 0; k < (n) / 2; k++) {                                                 \
                b[2 * k] = low(a[k], a[k + (n) / 2]);                                              \
                b[2 * k + 1] = high(a[k], a[k + (n) / 2]);                                         \
            }                                                                                      \
            for (size_t k = 0; k < (n); k++) {                                                     \
                a[k] = b[k];                                                                       \
            }                                                                                      \
        }                                                                                          \
        for (size_t k = 0; k < (n); k++) {                                                         \
            _mm256_storeu_si256((__m256i *)(void *)(target + k * target_pitch), a[k]);             \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void name##_edge(uint8_t *restrict target, size_t target_pitch,                         \
                            const uint8_t *restrict source, size_t source_pitch, size_t i0,        \
                            size_t ni, size_t j0, size_t nj){FY_TURN_LOOP(value_t)}                \
                                                                                                   \
    FY_AVX2 void fy_x86_##name(uint8_t *restrict target, size_t target_pitch,                      \
                               const uint8_t *restrict source, size_t source_pitch, size_t ni,     \
                               size_t nj) {                                                        \
        const size_t whole_i = ni - ni % (2 * (size_t)(n));                                        \
        const size_t whole_j = nj - nj % (n);                                                      \
        for (size_t i = 0; i < whole_i; i += 2 * (size_t)(n)) {                                    \
            for (size_t j = 0; j < whole_j; j += (n)) {                                            \
                name##_tile(target + j * target_pitch + i * sizeof(value_t), target_pitch,         \
                            source + i * source_pitch + j * sizeof(value_t), source_pitch);        \
            }                                                                                      \
        }                                                                                          \
        name##_edge(target, target_pitch, source, source_pitch, 0, whole_i, whole_j, nj);          \
        name##_edge(target, target_pitch, source, source_pitch, whole_i, ni, 0, nj);               \
    }

DEFINE_TURN(turn_1, uint8_t, 16, 4, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8)
DEFINE_TURN(turn_2, fy_u16, 8, 3, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16)
DEFINE_TURN(turn_4, fy_u32, 4, 2, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32)
DEFINE_TURN(turn_8, fy_u64, 2, 1, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64)

#endif
