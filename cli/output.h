/* output.h - what the tool says, held back until all has gone well.
 *
 * A command writes its text into memory and stages at most one file under a temporary name beside its
 * place. Only cli_output_commit shows anything: it writes standard output, then renames the file. An
 * error before that leaves no trace.
 *
 * Ownership: cli_output_fini frees everything and removes a file that was not committed. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

typedef struct cli_output {
    char *text; /* terminated once something was written */
    size_t length;
    size_t cap;
    bool nomem; /* text was lost; commit says so */
    bool color;
    bool utf8;
    int exit_code;   /* of a run that returns FERRY_OK; 0 unless the command says otherwise */
    double start_s;  /* cli_clock at the start of main */
    char *file_path; /* where the staged file shall be, or NULL */
    char *temp_path;
} cli_output_t;

/* Seconds of a clock that only goes forward. */
double cli_clock(void);

void cli_output_init(cli_output_t *out, double start_s);
void cli_output_fini(cli_output_t *out);

__attribute__((format(printf, 2, 3))) void cli_print(cli_output_t *out, const char *format, ...);
void cli_write(cli_output_t *out, const char *text, size_t length);

/* Colour, when it is on: "" otherwise. */
const char *cli_bold(const cli_output_t *out);
const char *cli_dim(const cli_output_t *out);
const char *cli_plain(const cli_output_t *out);
const char *cli_paint(const cli_output_t *out, int color); /* an ANSI foreground, 31 to 36 */

/* Writes and syncs the bytes under a temporary name beside `path`. What is no regular file (a pipe, a
 * device) is written straight away, for a rename would replace it. */
ferry_status_t cli_output_stage(cli_output_t *out, const char *path, const void *bytes,
                                size_t length, ferry_error_t *err);

/* A reader of standard output that has seen enough (EPIPE) is no error. */
ferry_status_t cli_output_commit(cli_output_t *out, ferry_error_t *err);

/* The whole of a file or pipe; free with free(). */
ferry_status_t cli_file_read(const char *path, uint8_t **bytes_p, size_t *length_p,
                             ferry_error_t *err);

#endif
