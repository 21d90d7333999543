/* ckpt_reshard.h - what `ferry reshard` says in the end. */
#ifndef CLI_CKPT_RESHARD_H
#define CLI_CKPT_RESHARD_H

#include "ckpt_forecast.h"
#include "output.h"

typedef struct ckpt_reshard {
    const ferry_folder_t *source;
    const char *target;
    const ferry_convert_params_t *params;
    ckpt_forecast_t forecast;
    bool dry;         /* nothing was done: */
    double disk_rate; /* bytes a second of a sample; 0: unknown */
    uint64_t free_bytes;
    ferry_convert_result_t result; /* else this was */
} ckpt_reshard_t;

void ckpt_reshard_text(const ckpt_reshard_t *run, cli_output_t *out);
ferry_status_t ckpt_reshard_json(const ckpt_reshard_t *run, cli_output_t *out, ferry_error_t *err);

#endif
