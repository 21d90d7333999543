/* text.h - building text in memory of fixed size.
 *
 * A text never overruns its buffer; `length` counts what the whole text would take, so a caller can
 * tell that it was cut, or ask with an empty buffer how much it needs. */
#ifndef FERRY_BASE_TEXT_H
#define FERRY_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct fy_text {
    char *buf;
    size_t cap;
    size_t length;
} fy_text_t;

void fy_text_init(fy_text_t *text, char *buf, size_t cap);

void fy_text_printf(fy_text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "[0:512, 128:256]" */
void fy_text_region(fy_text_t *text, uint32_t ndim, const uint64_t *lo, const uint64_t *extent);

/* "64x128"; "scalar" for no dims */
void fy_text_shape(fy_text_t *text, uint32_t ndim, const uint64_t *shape);

/* "0-7,9,12-15" */
void fy_text_ranks(fy_text_t *text, const uint32_t *ranks, size_t count);

/* Reads decimal digits at *cursor into *value_p and moves the cursor behind them. False, with the
 * cursor where it was, when there is no digit or the number passes 64 bits. */
int fy_text_read_u64(const char **cursor, uint64_t *value_p);

#endif
