/* text.c - building text in memory of fixed size. */
#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/checked.h"

void fy_text_init(fy_text_t *text, char *buf, size_t cap) {
    text->buf = buf;
    text->cap = cap;
    text->length = 0;
    if (cap > 0) {
        buf[0] = '\0';
    }
}

void fy_text_printf(fy_text_t *text, const char *format, ...) {
    size_t room = text->length < text->cap ? text->cap - text->length : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room > 0 ? text->buf + text->length : NULL, room, format, args);
    va_end(args);
    text->length += n > 0 ? (size_t)n : 0;
}

void fy_text_region(fy_text_t *text, uint32_t ndim, const uint64_t *lo, const uint64_t *extent) {
    fy_text_printf(text, "[");
    for (uint32_t d = 0; d < ndim; d++) {
        fy_text_printf(text, "%s%" PRIu64 ":%" PRIu64, d > 0 ? ", " : "", lo[d], lo[d] + extent[d]);
    }
    fy_text_printf(text, "]");
}

void fy_text_shape(fy_text_t *text, uint32_t ndim, const uint64_t *shape) {
    if (ndim == 0) {
        fy_text_printf(text, "scalar");
    }
    for (uint32_t d = 0; d < ndim; d++) {
        fy_text_printf(text, "%s%" PRIu64, d > 0 ? "x" : "", shape[d]);
    }
}

void fy_text_ranks(fy_text_t *text, const uint32_t *ranks, size_t count) {
    for (size_t i = 0; i < count;) {
        size_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1) {
            last++;
        }
        fy_text_printf(text, "%s%" PRIu32, i > 0 ? "," : "", ranks[i]);
        if (last > i) {
            fy_text_printf(text, "-%" PRIu32, ranks[last]);
        }
        i = last + 1;
    }
}

int fy_text_read_u64(const char **cursor, uint64_t *value_p) {
    const char *c = *cursor;
    uint64_t value = 0;
    if (*c < '0' || *c > '9') {
        return 0;
    }
    for (; *c >= '0' && *c <= '9'; c++) {
        if (!fy_mul_u64(value, 10, &value) || !fy_add_u64(value, (uint64_t)(*c - '0'), &value)) {
            return 0;
        }
    }
    *cursor = c;
    *value_p = value;
    return 1;
}
