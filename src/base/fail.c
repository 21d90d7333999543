/* fail.c - statuses and error records.
 *
 * Invariant: every text in a record is terminated and fits; a record is never left half written. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

const char *ferry_status_name(ferry_status_t status) {
    switch (status) {
#define NAME(name, number, text)                                                                   \
    case FERRY_##name:                                                                             \
        return #name;
        FERRY_STATUS_MAP(NAME)
#undef NAME
    }
    return "?";
}

const char *ferry_status_text(ferry_status_t status) {
    switch (status) {
#define TEXT(name, number, text)                                                                   \
    case FERRY_##name:                                                                             \
        return text;
        FERRY_STATUS_MAP(TEXT)
#undef TEXT
    }
    return "?";
}

void ferry_error_clear(ferry_error_t *err) {
    if (err != NULL) {
        *err = (ferry_error_t)FERRY_ERROR_INIT;
    }
}

size_t ferry_error_format(const ferry_error_t *err, char *buf, size_t cap) {
    fy_text_t line;
    fy_text_init(&line, buf, cap);
    const char *sep = "";
    if (err->rank != FERRY_RANK_NONE) {
        fy_text_printf(&line, "rank %u", err->rank);
        if (err->peer != FERRY_RANK_NONE) {
            fy_text_printf(&line, " <- rank %u", err->peer);
        }
        sep = ", ";
    }
    if (err->tensor[0] != '\0') {
        fy_text_printf(&line, "%stensor %s", sep, err->tensor);
        sep = ", ";
    }
    if (err->region[0] != '\0') {
        fy_text_printf(&line, " %s", err->region);
        sep = ", ";
    }
    if (err->round >= 0) {
        fy_text_printf(&line, "%sround %d", sep, err->round);
        sep = ", ";
    }
    if (sep[0] != '\0') {
        fy_text_printf(&line, ": ");
    }
    fy_text_printf(&line, "%s", err->text[0] != '\0' ? err->text : ferry_status_text(err->status));
    if (err->sys_errno != 0) {
        fy_text_printf(&line, " (%s)", strerror(err->sys_errno));
    }
    return line.length;
}

/* Whatever a name or a file brought in. */
static void make_one_line(char *text) {
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

ferry_status_t(fy_fail)(ferry_error_t *err, ferry_status_t status, const char *format, ...) {
    if (err != NULL) {
        ferry_error_clear(err);
        err->status = status;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        make_one_line(err->text);
    }
    return status;
}

ferry_status_t(fy_fail_nomem)(ferry_error_t *err, const char *what) {
    return fy_fail(err, FERRY_NOMEM, "out of memory for %s", what);
}

void fy_error_tensor(ferry_error_t *err, const char *name) {
    if (err == NULL || err->tensor[0] != '\0') {
        return;
    }
    size_t length = strlen(name);
    size_t cap = sizeof err->tensor - 1;
    if (length <= cap) {
        memcpy(err->tensor, name, length + 1);
    } else {
        size_t head = cap / 2 - 3;
        size_t tail = cap - head - 3;
        memcpy(err->tensor, name, head);
        memcpy(err->tensor + head, "...", 3);
        memcpy(err->tensor + head + 3, name + length - tail, tail + 1);
    }
    make_one_line(err->tensor);
}

void fy_error_region(ferry_error_t *err, uint32_t ndim, const uint64_t *lo,
                     const uint64_t *extent) {
    if (err == NULL || err->region[0] != '\0') {
        return;
    }
    fy_text_t text;
    fy_text_init(&text, err->region, sizeof err->region);
    fy_text_region(&text, ndim, lo, extent);
}

void fy_error_ranks(ferry_error_t *err, uint32_t rank, uint32_t peer) {
    if (err != NULL && err->rank == FERRY_RANK_NONE) {
        err->rank = rank;
        err->peer = peer;
    }
}

void fy_error_prefix(ferry_error_t *err, const char *prefix) {
    if (err == NULL) {
        return;
    }
    char text[FERRY_ERROR_TEXT_MAX];
    fy_text_t line;
    fy_text_init(&line, text, sizeof text);
    fy_text_printf(&line, "%s: %s", prefix, err->text);
    memcpy(err->text, text, sizeof text);
}
