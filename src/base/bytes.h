/* bytes.h - writing and reading compact binary forms.
 *
 * Numbers are varints: seven bits a byte, lowest first, the top bit says that more follow. Signed
 * ones are zigzag. The writer remembers that memory ran out instead of failing at every call; ask
 * once at the end. The reader never goes past its end and remembers that it would have had to. */
#ifndef FERRY_BASE_BYTES_H
#define FERRY_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fy_writer {
    uint8_t *bytes; /* freed with fy_free */
    size_t length;
    size_t cap;
    bool failed;
} fy_writer_t;

void fy_write_bytes(fy_writer_t *writer, const void *bytes, size_t length);
void fy_write_u64(fy_writer_t *writer, uint64_t value);
void fy_write_i64(fy_writer_t *writer, int64_t value);
/* Eight bytes, little-endian. */
void fy_write_fixed64(fy_writer_t *writer, uint64_t value);

typedef struct fy_reader {
    const uint8_t *bytes;
    size_t length;
    size_t at;
    bool failed;
} fy_reader_t;

/* 0 after a failure. */
uint64_t fy_read_u64(fy_reader_t *reader);
int64_t fy_read_i64(fy_reader_t *reader);
/* A number that must not pass `most`; more is a failure. */
uint64_t fy_read_at_most(fy_reader_t *reader, uint64_t most);
/* Borrowed; NULL after a failure. */
const uint8_t *fy_read_bytes(fy_reader_t *reader, size_t length);
uint64_t fy_fixed64(const uint8_t *bytes);

#endif
