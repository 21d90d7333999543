/* dtype.h - element types.
 *
 * Sizes are in bits: a type may be narrower than a byte, so nobody divides by a byte size; ask
 * ferry_dtype_bytes for the bytes that n elements take.
 *
 * Thread safety: everything here is constant. */
#ifndef FERRY_DTYPE_H
#define FERRY_DTYPE_H

#include <stdbool.h>

#include <ferry/status.h>

FERRY_BEGIN_DECLS

/* The one list: NAME, number, "name", bits. It grows at the end; numbers are stable (plan files). */
#define FERRY_DTYPE_MAP(X)                                                                         \
    X(F64, 1, "f64", 64)                                                                           \
    X(F32, 2, "f32", 32)                                                                           \
    X(F16, 3, "f16", 16)                                                                           \
    X(BF16, 4, "bf16", 16)                                                                         \
    X(F8E4M3, 5, "f8e4m3", 8)                                                                      \
    X(F8E5M2, 6, "f8e5m2", 8)                                                                      \
    X(E8M0, 7, "e8m0", 8)                                                                          \
    X(I64, 8, "i64", 64)                                                                           \
    X(I32, 9, "i32", 32)                                                                           \
    X(I16, 10, "i16", 16)                                                                          \
    X(I8, 11, "i8", 8)                                                                             \
    X(U64, 12, "u64", 64)                                                                          \
    X(U32, 13, "u32", 32)                                                                          \
    X(U16, 14, "u16", 16)                                                                          \
    X(U8, 15, "u8", 8)                                                                             \
    X(BOOL, 16, "bool", 8)

typedef enum ferry_dtype {
    FERRY_DTYPE_NONE = 0,
#define FERRY_DTYPE_ENUM(name, number, text, bits) FERRY_##name = (number),
    FERRY_DTYPE_MAP(FERRY_DTYPE_ENUM)
#undef FERRY_DTYPE_ENUM
} ferry_dtype_t;

/* "bf16"; "?" for a number that is no dtype. Static string. */
FERRY_API const char *ferry_dtype_name(ferry_dtype_t dtype);

/* Bits of one element; 0 for a number that is no dtype. */
FERRY_API uint32_t ferry_dtype_bits(ferry_dtype_t dtype);

/* Finds a dtype by name ("bf16"). FERRY_PARSE when there is none. */
FERRY_API ferry_status_t ferry_dtype_parse(const char *name, ferry_dtype_t *dtype_p,
                                           ferry_error_t *err);

/* The bytes that `elements` take, rounded up to a whole byte. FERRY_OVERFLOW past 64 bits. */
FERRY_API ferry_status_t ferry_dtype_bytes(ferry_dtype_t dtype, uint64_t elements,
                                           uint64_t *bytes_p, ferry_error_t *err);

/* f64 f32 f16 bf16 f8e4m3 f8e5m2: those that are cast into each other. e8m0, a scale, is none. */
FERRY_API bool ferry_dtype_is_float(ferry_dtype_t dtype);

/* The dtype that travels, one rule for both ends: the target's when it is narrower (cast before
 * sending, fewer bytes), else the source's (cast after receiving; equal widths included). */
FERRY_API ferry_dtype_t ferry_dtype_wire(ferry_dtype_t source, ferry_dtype_t target);

FERRY_END_DECLS

#endif
