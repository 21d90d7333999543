/* ckpt_progress.c - how far a checkpoint is, on standard error.
 *
 * Invariant: each call is one write, so that lines of several processes do not mix. */
#include "ckpt_progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

enum { BAR_CELLS = 24, LINE_MAX_BYTES = 256 };

#define BAR_EVERY_S 0.1
#define LINE_EVERY_S 5.0

/* Whoever reads standard error may have gone; that is no reason to stop. */
static void say(const char *line) {
    ssize_t done = write(STDERR_FILENO, line, strlen(line));
    (void)done;
}

ckpt_progress_t ckpt_progress_make(const cli_args_t *args, const cli_output_t *out,
                                   const char *what) {
    const char *terminal = getenv("TERM");
    bool quiet = cli_args_has(args, "quiet") || cli_args_has(args, "json");
    bool bar = isatty(STDERR_FILENO) == 1 && terminal != NULL && strcmp(terminal, "dumb") != 0;
    double now = cli_clock();
    return (ckpt_progress_t){.bar = bar && !quiet,
                             .lines = !bar && !quiet,
                             .utf8 = out->utf8,
                             .what = what,
                             .begin_s = now,
                             .last_s = now};
}

static void draw_cells(char *cells, size_t cap, double part, bool utf8) {
    size_t at = 0;
    for (int i = 0; i < BAR_CELLS; i++) {
        bool filled = i < (int)(part * BAR_CELLS);
        const char *cell = utf8 ? (filled ? "\u2588" : "\u2591") : (filled ? "#" : ".");
        (void)snprintf(cells + at, cap - at, "%s", cell);
        at += strlen(cell);
    }
}

void ckpt_progress_tell(void *context, const ferry_convert_progress_t *progress) {
    ckpt_progress_t *p = context;
    double now = cli_clock();
    bool done = progress->bytes_done >= progress->bytes_total;
    if (done) { /* what comes next, such as the other folder, counts from here */
        p->begin_s = now;
        p->last_s = now;
    }
    if ((!p->bar && !p->lines) || done || now - p->last_s < (p->bar ? BAR_EVERY_S : LINE_EVERY_S)) {
        return;
    }
    p->last_s = now;
    double part = (double)progress->bytes_done / (double)progress->bytes_total;
    double seconds = now - p->begin_s;
    char figures[LINE_MAX_BYTES];
    (void)snprintf(
        figures, sizeof figures, "%s of %s, %.2f GB/s, %.0f s left",
        cli_label_bytes(progress->bytes_done).text, cli_label_bytes(progress->bytes_total).text,
        (double)progress->bytes_done / seconds / 1e9, part > 0 ? seconds / part - seconds : 0);
    char cells[BAR_CELLS * 3 + 1] = "";
    draw_cells(cells, sizeof cells, part, p->utf8);
    char line[LINE_MAX_BYTES + sizeof cells + 16];
    if (p->bar) {
        (void)snprintf(line, sizeof line, "\r\033[K%s %s %s", p->what, cells, figures);
    } else {
        (void)snprintf(line, sizeof line, "%s: %s\n", p->what, figures);
    }
    say(line);
}

void ckpt_progress_end(const ckpt_progress_t *progress) {
    if (progress->bar) {
        say("\r\033[K");
    }
}
