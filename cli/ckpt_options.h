/* ckpt_options.h - what the commands on checkpoints have in common on the command line. */
#ifndef CLI_CKPT_OPTIONS_H
#define CLI_CKPT_OPTIONS_H

#include <ferry/ckpt.h>

#include "options.h"

#define CKPT_FILE_BYTES UINT64_C(5000000000)

#define CKPT_OPTION_QUIET                                                                          \
    { .name = "quiet", .text = "no progress on standard error" }

#define CKPT_OPTION_MAX_FILE                                                                       \
    {                                                                                              \
        .name = "max-file", .argument = "BYTES", .text = "the most that a file of a folder holds", \
        .more = "A tensor that is larger has a file of its own. K, M, G and T are powers of "      \
                "1024; KB, MB, GB and TB powers of 1000.",                                         \
        .fallback = "5GB"                                                                          \
    }

#define CKPT_OPTION_FORCE                                                                          \
    {                                                                                              \
        .name = "force", .text = "replace DST if it is there",                                     \
        .more = "The old folder keeps its name until the new one is whole."                        \
    }

/* Cores of the machine, and no more than a run has use for. */
uint32_t ckpt_cores(void);
/* --ranks: worker processes; the cores of the machine unless told otherwise. */
ferry_status_t ckpt_read_workers(const cli_args_t *args, uint32_t *workers_p, ferry_error_t *err);
/* --max-file. */
ferry_status_t ckpt_read_file_bytes(const cli_args_t *args, uint64_t *bytes_p, ferry_error_t *err);
/* --dtype: a float type, or FERRY_DTYPE_NONE when it is not given. */
ferry_status_t ckpt_read_dtype(const cli_args_t *args, ferry_dtype_t *dtype_p, ferry_error_t *err);

/* ferry_folder_open, where what a file says is never the user's mistake: text that cannot be read is damage. */
ferry_status_t ckpt_open(const char *path, const ferry_folder_params_t *params,
                         ferry_folder_t **folder_p, ferry_error_t *err);

/* Bytes a second, in units of 10^9; 0 where there was no time. */
double ckpt_rate(uint64_t bytes, double seconds);

#endif
