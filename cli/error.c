/* error.c - the tool's errors, and guesses at what was meant.
 *
 * Invariant: whatever a name, a file or the command line brings in, an error stays one line. */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

enum {
    LINE_BYTES = 1024,
    NEAREST_WORD_MAX = 40, /* longer words are no misspelt options */
};

ferry_status_t cli_fail(ferry_error_t *err, ferry_status_t status, const char *format, ...) {
    ferry_error_clear(err);
    err->status = status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

ferry_status_t cli_fail_errno(ferry_error_t *err, int error, const char *format, ...) {
    ferry_error_clear(err);
    err->status = error == ENOMEM ? FERRY_NOMEM : FERRY_IO;
    err->sys_errno = error;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return err->status;
}

ferry_status_t cli_fail_nomem(ferry_error_t *err) {
    return cli_fail(err, FERRY_NOMEM, "%s", ferry_status_text(FERRY_NOMEM));
}

void cli_error_place(ferry_error_t *err, const char *place) {
    char text[2 * FERRY_ERROR_TEXT_MAX];
    const char *said = err->text[0] != '\0' ? err->text : ferry_status_text(err->status);
    (void)snprintf(text, sizeof text, "%s: %s", place, said);
    (void)snprintf(err->text, sizeof err->text, "%.*s", (int)sizeof err->text - 1, text);
}

int cli_exit_code(ferry_status_t status) {
    switch (status) {
    case FERRY_OK:
        return CLI_EXIT_DONE;
    case FERRY_INVALID:
    case FERRY_PARSE:
    case FERRY_OVERFLOW:
    case FERRY_MISMATCH:
    case FERRY_UNSUPPORTED:
        return CLI_EXIT_USAGE;
    case FERRY_NOMEM:
    case FERRY_CORRUPT:
    case FERRY_VERSION:
    case FERRY_IO:
    case FERRY_CHECK:
    case FERRY_STOPPED:
    case FERRY_DEAD:
    case FERRY_TIMEOUT:
        return CLI_EXIT_FAILED;
    }
    return CLI_EXIT_FAILED;
}

void cli_error_print(const char *command, const ferry_error_t *err) {
    char line[LINE_BYTES];
    (void)ferry_error_format(err, line, sizeof line);
    for (char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    (void)fprintf(stderr, "ferry%s%s: %s\n", command != NULL ? " " : "",
                  command != NULL ? command : "", line);
}

static size_t min2(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t rows[3][NEAREST_WORD_MAX + 1];
    for (size_t j = 0; j <= nb; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3];
        const size_t *up = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t same = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = min2(min2(up[j], row[j - 1]) + 1, up[j - 1] + same);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = min2(row[j], rows[(i - 2) % 3][j - 2] + 1);
            }
        }
    }
    return rows[na % 3][nb];
}

void cli_nearest_offer(cli_nearest_t *nearest, const char *candidate) {
    size_t na = strlen(nearest->word);
    size_t nb = strlen(candidate);
    if (na == 0 || na > NEAREST_WORD_MAX || nb > NEAREST_WORD_MAX) {
        return;
    }
    size_t edits = distance(nearest->word, na, candidate, nb);
    if (na >= 2 && strncmp(nearest->word, candidate, na) == 0) {
        edits = 1; /* the beginning of a word is as good as one slip */
    }
    if (edits <= 1 + na / 4 && edits < nb && (nearest->best == NULL || edits < nearest->distance)) {
        nearest->best = candidate;
        nearest->distance = edits;
    }
}
