/* kernel.h - strided copies, casts, reductions and MXFP8 on the CPU.
 *
 * Everything works on views (view.h) in memory that this process can address; a view of kind
 * FERRY_MEM_CUDA is refused. Sources may have any strides, a target must not have two indices at one
 * address. A target and a source must not share bytes, unless a function says that they may; that is
 * not checked.
 *
 * Results do not depend on the CPU: the same bits come out of plain C, AVX2 and AVX-512. They suppose
 * the floating-point environment that a C program starts with (round to nearest, subnormals kept).
 *
 * Casts, between any two of f64 f32 f16 bf16 f8e4m3 f8e5m2: round to nearest, ties to even, once.
 * Infinities stay infinities, NaN stays NaN (quiet, with its sign and as much of its payload as fits);
 * too large a value becomes an infinity. f8e4m3 has no infinity: what rounds past 448, and an infinity,
 * becomes NaN; with FERRY_COPY_SATURATE it becomes 448 with its sign, and only NaN stays NaN. All
 * other dtypes are copied to themselves only.
 *
 * Ownership: a batch belongs to whoever created it; it borrows the memory behind its views.
 * Thread safety: all functions may run in any number of threads at once; on one batch, too, as long as
 * every thread runs another part. */
#ifndef FERRY_KERNEL_H
#define FERRY_KERNEL_H

#include <ferry/layout.h>
#include <ferry/view.h>

FERRY_BEGIN_DECLS

/* The instruction set in use: "avx512", "avx2" or "plain" (static string). The best that the CPU has,
 * or what FERRY_ISA asks for (read once). FERRY_INVALID when FERRY_ISA names none, FERRY_UNSUPPORTED when
 * this CPU lacks it; every function of this header then fails in the same way. */
FERRY_API ferry_status_t ferry_kernel_isa(const char **name_p, ferry_error_t *err);

/* ---- copies ---- */

typedef enum ferry_copy_flags {
    FERRY_COPY_SATURATE = 1, /* casts to f8e4m3 saturate */
    /* A large target is written past the caches, a small one through them. These two decide by hand:
     * STREAM when a small piece belongs to a large whole, CACHED when the result is read at once. */
    FERRY_COPY_STREAM = 2,
    FERRY_COPY_CACHED = 4,
} ferry_copy_flags_t;

/* Copies `source` to `target`: the same shape, any strides, cast where the dtypes differ. `flags` is
 * a sum of ferry_copy_flags_t. FERRY_MISMATCH: shapes differ, or the dtypes do not convert. */
FERRY_API ferry_status_t ferry_view_copy(const ferry_view_t *target, const ferry_view_t *source,
                                         uint32_t flags, ferry_error_t *err);

/* Many copies, prepared once and run any number of times. */
typedef struct ferry_copy_batch ferry_copy_batch_t;

/* targets[i] := sources[i] for each i < count; the views are copied, their memory is borrowed. Targets
 * must not share bytes with each other (not checked). On a failure the record names the copy. */
FERRY_API ferry_status_t ferry_copy_batch_create(const ferry_view_t *targets,
                                                 const ferry_view_t *sources, size_t count,
                                                 uint32_t flags, ferry_copy_batch_t **batch_p,
                                                 ferry_error_t *err);
FERRY_API void ferry_copy_batch_destroy(ferry_copy_batch_t *batch); /* NULL is fine */

/* Bytes that one run writes. */
FERRY_API uint64_t ferry_copy_batch_bytes(const ferry_copy_batch_t *batch);

/* Does part `part` of `nparts` (nparts >= 1, part < nparts), all parts being about the same number of
 * bytes; together they do every copy once, in whatever order or thread. Allocates nothing and makes no
 * system call; when it returns, its stores are ordered before any later store of this thread. */
FERRY_API ferry_status_t ferry_copy_batch_run(const ferry_copy_batch_t *batch, uint32_t part,
                                              uint32_t nparts, ferry_error_t *err);

/* ---- reductions ---- */

/* target := sources[0] op sources[1] op ..., a left fold in the order of the list; all views of one
 * shape and dtype (f64 f32 f16 bf16 and the integers), nsources >= 1. The target may be one of the
 * sources (the same view, not a shifted one).
 *
 * Floats: f64 computes in f64, the others in f32, rounding to the dtype once, at the end. A NaN among
 * the sources, or made on the way, gives the quiet NaN without sign and payload; of two equal values
 * (+0 and -0) max and min take the later one. Integers compute in 64 bits, wrap around, and are cut to
 * the dtype at the end. avg is the sum divided by nsources (integers: towards zero). */
FERRY_API ferry_status_t ferry_reduce(const ferry_view_t *target, const ferry_view_t *sources,
                                      size_t nsources, ferry_reduce_op_t op, ferry_error_t *err);

/* target := target op source: one step, rounded to the dtype. Not for avg, which is no step. */
FERRY_API ferry_status_t ferry_accumulate(const ferry_view_t *target, const ferry_view_t *source,
                                          ferry_reduce_op_t op, ferry_error_t *err);

/* ---- MXFP8 ---- */

#define FERRY_MX_BLOCK 32 /* elements along the last dim that share a scale */

/* Where the scale of row r, block c lies; the rows are all dims but the last, flattened. */
typedef enum ferry_mx_layout {
    /* A view of the shape of the data, the last dim divided by 32; any strides. */
    FERRY_MX_ROWS = 0,
    /* One dim without gaps, of ferry_mx_swizzled_bytes: tiles of 128 rows x 4 blocks, 512 bytes each,
     * tiles in row-major order, edges padded with 0. Inside a tile, at
     *     (r % 32) * 16 + (r / 32 % 4) * 4 + c % 4
     * (the blocked layout that cuBLAS reads). */
    FERRY_MX_SWIZZLED = 1,
} ferry_mx_layout_t;

/* Bytes of the swizzled scales of `rows` rows of `columns` elements. */
FERRY_API ferry_status_t ferry_mx_swizzled_bytes(uint64_t rows, uint64_t columns, uint64_t *bytes_p,
                                                 ferry_error_t *err);

/* Quantises `source` (f32 f16 bf16) into `data` (f8e4m3, same shape) and `scales` (e8m0), in blocks of
 * 32 elements along the last dim, which must be a multiple of 32.
 *
 * The scale is 2^(floor(log2(amax)) - 8), and no less than 2^-127, amax being the largest magnitude in
 * the block, NaN left out; a block of zeros has 2^-127. The data are x / scale, rounded to nearest even
 * and saturated at 448; NaN stays NaN; an infinity gives 448 under the scale 2^120, which ferry_mx_dequantise
 * turns back into an infinity.
 *
 * Does part `part` of `nparts` of the work, split by rows, so that threads may share it; 0 of 1 is all. */
FERRY_API ferry_status_t ferry_mx_quantise(const ferry_view_t *data, const ferry_view_t *scales,
                                           const ferry_view_t *source, ferry_mx_layout_t layout,
                                           uint32_t part, uint32_t nparts, ferry_error_t *err);

/* The way back: target (f32 f16 bf16) := data * scale, rounded once. The scale 0xff is NaN. */
FERRY_API ferry_status_t ferry_mx_dequantise(const ferry_view_t *target, const ferry_view_t *data,
                                             const ferry_view_t *scales, ferry_mx_layout_t layout,
                                             uint32_t part, uint32_t nparts, ferry_error_t *err);

FERRY_END_DECLS

#endif
