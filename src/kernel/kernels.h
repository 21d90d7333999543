/* kernels.h - the routines that depend on the CPU, one table per instruction set.
 *
 * Everything above these tables is written once. Each routine works on plain runs of bytes or
 * elements at any alignment; it allocates nothing and calls nothing but memcpy and memmove. Those that
 * end in _stream write whole cache lines past the caches; whoever used one calls `fence` before it
 * tells anybody. All tables give the same bits. */
#ifndef FERRY_KERNEL_KERNELS_H
#define FERRY_KERNEL_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/kernel.h>

#include "kernel/floats.h"

typedef enum fy_isa {
    FY_ISA_PLAIN = 0,
    FY_ISA_AVX2 = 1,
    FY_ISA_AVX512 = 2,
    FY_ISA_COUNT = 3
} fy_isa_t;

#define FY_LINE 64 /* bytes of a cache line */

/* The float types in the order of the cast tables; the last exists as a target only. */
enum {
    FY_FLOAT_F64,
    FY_FLOAT_F32,
    FY_FLOAT_F16,
    FY_FLOAT_BF16,
    FY_FLOAT_F8E4M3,
    FY_FLOAT_F8E5M2,
    FY_FLOAT_SOURCES,
    FY_FLOAT_F8E4M3_SAT = FY_FLOAT_SOURCES,
    FY_FLOAT_TARGETS
};

/* The types that reductions compute in. */
enum { FY_ACC_F64, FY_ACC_F32, FY_ACC_I64, FY_ACC_U64, FY_ACC_COUNT };

enum { FY_REDUCE_OPS = 5, FY_TURN_WIDTHS = 4 };

/* target[0..count) := source[0..count), elements without gaps. */
typedef void (*fy_cast_fn)(void *restrict target, const void *restrict source, size_t count);

/* `count` runs of `run` bytes, each a stride of bytes after the one before. */
typedef void (*fy_rows_fn)(uint8_t *target, int64_t target_stride, const uint8_t *source,
                           int64_t source_stride, size_t run, size_t count);

/* target[j][i] := source[i][j] for i < ni, j < nj; rows of either are a pitch of bytes apart. */
typedef void (*fy_turn_fn)(uint8_t *restrict target, size_t target_pitch,
                           const uint8_t *restrict source, size_t source_pitch, size_t ni,
                           size_t nj);

typedef void (*fy_quantise_fn)(uint8_t *restrict data, uint8_t *restrict scales,
                               const void *restrict source, size_t blocks, bool stream);

typedef struct fy_kernels {
    const char *name;
    fy_rows_fn rows;
    fy_rows_fn rows_stream;
    void (*fence)(void);
    fy_turn_fn turn[FY_TURN_WIDTHS];                     /* elements of 1, 2, 4, 8 bytes */
    fy_cast_fn cast[FY_FLOAT_SOURCES][FY_FLOAT_TARGETS]; /* NULL where source and target are one */
    /* The same, past the caches: target on a line, whole lines. NULL where a stage is as good. */
    fy_cast_fn cast_stream[FY_FLOAT_SOURCES][FY_FLOAT_TARGETS];
    /* acc[i] := acc[i] op source[i], both of the type that is computed in */
    void (*fold[FY_ACC_COUNT][FY_REDUCE_OPS])(void *restrict acc, const void *restrict source,
                                              size_t count);
    /* acc[i] := acc[i] / divisor, NaN made plain; divisor 1 leaves the rest alone */
    void (*finish[FY_ACC_COUNT])(void *acc, size_t count, uint64_t divisor);
    /* MXFP8 from f32 or bf16, and to f32; whole blocks of 32. `stream` asks for data past the caches
     * and needs data on a multiple of 32 bytes. */
    fy_quantise_fn quantise;
    fy_quantise_fn quantise_bf16;
    void (*dequantise)(void *restrict target, const uint8_t *restrict data,
                       const uint8_t *restrict scales, size_t blocks);
} fy_kernels_t;

extern const fy_kernels_t fy_kernels_plain;
#if defined(__x86_64__)
extern const fy_kernels_t fy_kernels_avx2;
extern const fy_kernels_t fy_kernels_avx512;
#endif

/* The table in use; fails as ferry_kernel_isa does. */
ferry_status_t fy_kernels_get(const fy_kernels_t **kernels_p, ferry_error_t *err);

/* For tests: whether this CPU can run it, and the choice by hand, for copies prepared from now on. */
bool fy_isa_runs(fy_isa_t isa);
void fy_isa_force(fy_isa_t isa);
/* The choice that FERRY_ISA's text (NULL: unset) makes on this CPU. */
ferry_status_t fy_isa_choose(const char *text, fy_isa_t *isa_p, ferry_error_t *err);

#endif
