/* error.h - how the tool says what went wrong: one line, one exit code.
 *
 * The tool speaks through the library's error records, so its own errors and the library's look the
 * same. The exit code follows from the status alone. */
#ifndef CLI_ERROR_H
#define CLI_ERROR_H

#include <ferry/status.h>

/* Fills in the record; returns `status`. */
__attribute__((format(printf, 3, 4))) ferry_status_t
cli_fail(ferry_error_t *err, ferry_status_t status, const char *format, ...);

/* The same for a failed system call: FERRY_IO (or FERRY_NOMEM) with its errno. */
__attribute__((format(printf, 3, 4))) ferry_status_t cli_fail_errno(ferry_error_t *err, int error,
                                                                    const char *format, ...);

ferry_status_t cli_fail_nomem(ferry_error_t *err);

/* Puts "<place>: " before what the record says. */
void cli_error_place(ferry_error_t *err, const char *place);

/* CLI_EXIT_USAGE for what the user typed, CLI_EXIT_FAILED for what the world did. */
int cli_exit_code(ferry_status_t status);

/* "ferry plan: <line>" on standard error, always exactly one line; command may be NULL. */
void cli_error_print(const char *command, const ferry_error_t *err);

/* Looks for the word that was meant. Start with {word, NULL, 0}, offer all there are. */
typedef struct cli_nearest {
    const char *word;
    const char *best; /* NULL: nothing is near */
    size_t distance;
} cli_nearest_t;

void cli_nearest_offer(cli_nearest_t *nearest, const char *candidate);

#endif
