/* ckpt_progress.h - how far a checkpoint is, on standard error.
 *
 * A bar that is drawn over itself on a terminal; elsewhere a line every few seconds. The workers of a
 * conversion are processes, and one of them tells: what is kept here is that process's own.
 *
 * Ownership: plain memory that borrows nothing but the word. */
#ifndef CLI_CKPT_PROGRESS_H
#define CLI_CKPT_PROGRESS_H

#include <ferry/ckpt.h>

#include "options.h"

typedef struct ckpt_progress {
    bool bar;
    bool lines;
    bool utf8;
    const char *what; /* "reshard" */
    double begin_s;
    double last_s; /* when something was said */
} ckpt_progress_t;

/* The command has the flags quiet and json: with either nothing is said. */
ckpt_progress_t ckpt_progress_make(const cli_args_t *args, const cli_output_t *out,
                                   const char *what);
/* Fits ferry_convert_params_t; context is a ckpt_progress_t. */
void ckpt_progress_tell(void *context, const ferry_convert_progress_t *progress);
/* Removes the bar, if any. */
void ckpt_progress_end(const ckpt_progress_t *progress);

#endif
