/* bytes.c - writing and reading compact binary forms. */
#include "base/bytes.h"

#include <string.h>

#include "base/memory.h"

void fy_write_bytes(fy_writer_t *writer, const void *bytes, size_t length) {
    if (writer->failed || length > SIZE_MAX - writer->length ||
        !fy_reserve(&writer->bytes, &writer->cap, writer->length + length, 1)) {
        writer->failed = true;
        return;
    }
    if (length > 0) {
        memcpy(writer->bytes + writer->length, bytes, length);
        writer->length += length;
    }
}

void fy_write_u64(fy_writer_t *writer, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    fy_write_bytes(writer, bytes, n);
}

void fy_write_i64(fy_writer_t *writer, int64_t value) {
    fy_write_u64(writer, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

void fy_write_fixed64(fy_writer_t *writer, uint64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    fy_write_bytes(writer, bytes, sizeof bytes);
}

uint64_t fy_read_u64(fy_reader_t *reader) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !reader->failed; shift += 7) {
        if (reader->at == reader->length) {
            break;
        }
        uint8_t byte = reader->bytes[reader->at++];
        if (shift == 63 && byte > 1) {
            break;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    reader->failed = true;
    return 0;
}

int64_t fy_read_i64(fy_reader_t *reader) {
    uint64_t value = fy_read_u64(reader);
    return (int64_t)(value >> 1 ^ ((value & 1) != 0 ? UINT64_MAX : 0));
}

uint64_t fy_read_at_most(fy_reader_t *reader, uint64_t most) {
    uint64_t value = fy_read_u64(reader);
    if (value > most) {
        reader->failed = true;
        return 0;
    }
    return value;
}

const uint8_t *fy_read_bytes(fy_reader_t *reader, size_t length) {
    if (reader->failed || length > reader->length - reader->at) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *bytes = reader->bytes + reader->at;
    reader->at += length;
    return bytes;
}

uint64_t fy_fixed64(const uint8_t *bytes) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}
