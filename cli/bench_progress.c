/* bench_progress.c - how far a bench is, on standard error.
 *
 * Invariant: each call is one write, so that lines of several processes do not mix. */
#include "bench_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

enum { BAR_CELLS = 24, LINE_MAX_BYTES = 256 };

/* Whoever reads standard error may have gone; that is no reason to stop. */
static void say(const char *line) {
    ssize_t done = write(STDERR_FILENO, line, strlen(line));
    (void)done;
}

void bench_progress_step(const bench_progress_t *progress, uint32_t step, uint32_t steps,
                         const char *what) {
    if (!progress->bar) {
        return;
    }
    const char *full = progress->utf8 ? "\u2588" : "#";
    const char *empty = progress->utf8 ? "\u2591" : ".";
    uint32_t filled = steps > 0 ? BAR_CELLS * step / steps : 0;
    char cells[BAR_CELLS * 3 + 1] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < BAR_CELLS; i++) {
        const char *cell = i < filled ? full : empty;
        (void)snprintf(cells + at, sizeof cells - at, "%s", cell);
        at += strlen(cell);
    }
    char line[LINE_MAX_BYTES];
    (void)snprintf(line, sizeof line, "\r\033[K%zu/%zu %-18s %s %s", progress->index + 1,
                   progress->count, progress->name, cells, what);
    say(line);
}

void bench_progress_begin(const bench_progress_t *progress, uint64_t bytes, uint32_t ranks) {
    if (!progress->lines) {
        return;
    }
    char line[LINE_MAX_BYTES];
    (void)snprintf(line, sizeof line, "%zu/%zu %s: %s, %" PRIu32 " ranks\n", progress->index + 1,
                   progress->count, progress->name, cli_label_slot(bytes).text, ranks);
    say(line);
}

void bench_progress_end(const bench_progress_t *progress) {
    if (progress->bar) {
        say("\r\033[K");
    }
}
