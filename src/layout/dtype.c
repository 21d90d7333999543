/* dtype.c - element types. */
#include <ferry/dtype.h>

#include <string.h>

#include "base/checked.h"
#include "base/fail.h"

const char *ferry_dtype_name(ferry_dtype_t dtype) {
    switch (dtype) {
#define NAME(name, number, text, bits)                                                             \
    case FERRY_##name:                                                                             \
        return text;
        FERRY_DTYPE_MAP(NAME)
#undef NAME
    case FERRY_DTYPE_NONE:
        break;
    }
    return "?";
}

uint32_t ferry_dtype_bits(ferry_dtype_t dtype) {
    switch (dtype) {
#define BITS(name, number, text, bits)                                                             \
    case FERRY_##name:                                                                             \
        return bits;
        FERRY_DTYPE_MAP(BITS)
#undef BITS
    case FERRY_DTYPE_NONE:
        break;
    }
    return 0;
}

ferry_status_t ferry_dtype_parse(const char *name, ferry_dtype_t *dtype_p, ferry_error_t *err) {
    FY_NEED(name, err);
    FY_NEED(dtype_p, err);
#define FIND(upper, number, text, bits)                                                            \
    if (strcmp(name, text) == 0) {                                                                 \
        *dtype_p = FERRY_##upper;                                                                  \
        return FERRY_OK;                                                                           \
    }
    FERRY_DTYPE_MAP(FIND)
#undef FIND
#define LIST(upper, number, text, bits) " " text
    return fy_fail(err, FERRY_PARSE, "unknown dtype '%.40s': one of" FERRY_DTYPE_MAP(LIST), name);
#undef LIST
}

ferry_status_t ferry_dtype_bytes(ferry_dtype_t dtype, uint64_t elements, uint64_t *bytes_p,
                                 ferry_error_t *err) {
    FY_NEED(bytes_p, err);
    uint32_t bits = ferry_dtype_bits(dtype);
    if (bits == 0) {
        return fy_fail(err, FERRY_INVALID, "%d is no dtype", (int)dtype);
    }
    /* elements * bits / 8, without going past 64 bits on the way. */
    uint64_t whole = 0;
    uint64_t rest = (elements % 8 * bits + 7) / 8;
    uint64_t bytes = 0;
    if (!fy_mul_u64(elements / 8, bits, &whole) || !fy_add_u64(whole, rest, &bytes)) {
        return fy_fail(err, FERRY_OVERFLOW, "the bytes of so many %s elements pass 64 bits",
                       ferry_dtype_name(dtype));
    }
    *bytes_p = bytes;
    return FERRY_OK;
}

bool ferry_dtype_is_float(ferry_dtype_t dtype) {
    return dtype == FERRY_F64 || dtype == FERRY_F32 || dtype == FERRY_F16 || dtype == FERRY_BF16 ||
           dtype == FERRY_F8E4M3 || dtype == FERRY_F8E5M2;
}

ferry_dtype_t ferry_dtype_wire(ferry_dtype_t source, ferry_dtype_t target) {
    return ferry_dtype_bits(target) < ferry_dtype_bits(source) ? target : source;
}
