/* bench_progress.h - how far a bench is, on standard error.
 *
 * A bar that is drawn over itself on a terminal, a line a case elsewhere. Ranks are processes, so what
 * there is to say is said at once and nothing is kept.
 *
 * Ownership: plain memory that borrows nothing but the name. */
#ifndef CLI_BENCH_PROGRESS_H
#define CLI_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_progress {
    bool bar;   /* on a terminal */
    bool lines; /* elsewhere; neither: quiet */
    bool utf8;
    size_t index; /* of the case, and how many there are */
    size_t count;
    const char *name;
} bench_progress_t;

/* `step` of `steps` of this case are done; `what` comes next. Draws a bar or nothing. */
void bench_progress_step(const bench_progress_t *progress, uint32_t step, uint32_t steps,
                         const char *what);

/* The case has begun: a line where there is no bar. */
void bench_progress_begin(const bench_progress_t *progress, uint64_t bytes, uint32_t ranks);

/* Removes the bar, if any. */
void bench_progress_end(const bench_progress_t *progress);

#endif
