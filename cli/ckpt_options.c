/* ckpt_options.c - what the commands on checkpoints have in common on the command line. */
#include "ckpt_options.h"

#include <string.h>
#include <unistd.h>

#include "error.h"
#include "units.h"

enum { CORES_MAX = 64, WORKERS_MAX = 256 };

uint32_t ckpt_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > CORES_MAX ? CORES_MAX : (uint32_t)cores;
}

ferry_status_t ckpt_read_workers(const cli_args_t *args, uint32_t *workers_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "ranks");
    if (text == NULL) {
        *workers_p = ckpt_cores();
        return FERRY_OK;
    }
    uint64_t value = 0;
    ferry_status_t status = cli_parse_u64("--ranks", text, WORKERS_MAX, &value, err);
    if (status == FERRY_OK && value == 0) {
        status = cli_fail(err, FERRY_INVALID, "--ranks 0: at least one is needed");
    }
    *workers_p = (uint32_t)value;
    return status;
}

ferry_status_t ckpt_read_file_bytes(const cli_args_t *args, uint64_t *bytes_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "max-file");
    if (text == NULL) {
        *bytes_p = CKPT_FILE_BYTES;
        return FERRY_OK;
    }
    ferry_status_t status = cli_parse_bytes("--max-file", text, bytes_p, err);
    if (status == FERRY_OK && *bytes_p == 0) {
        status = cli_fail(err, FERRY_INVALID, "--max-file 0: a file must hold something");
    }
    return status;
}

ferry_status_t ckpt_read_dtype(const cli_args_t *args, ferry_dtype_t *dtype_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "dtype");
    *dtype_p = FERRY_DTYPE_NONE;
    if (text == NULL) {
        return FERRY_OK;
    }
    if (ferry_dtype_parse(text, dtype_p, NULL) != FERRY_OK || !ferry_dtype_is_float(*dtype_p)) {
        return cli_fail(err, FERRY_INVALID,
                        "--dtype %s: f64, f32, f16, bf16, f8e4m3 or f8e5m2 is needed", text);
    }
    return FERRY_OK;
}

ferry_status_t ckpt_open(const char *path, const ferry_folder_params_t *params,
                         ferry_folder_t **folder_p, ferry_error_t *err) {
    ferry_status_t status = ferry_folder_open(path, params, folder_p, err);
    bool told = params != NULL && (params->parallel != NULL || params->form != NULL);
    if (status == FERRY_MISMATCH && told) { /* what the user says of the files does not fit them */
        cli_error_place(err, params->parallel != NULL ? "--from" : "--from-form");
    } else if (status == FERRY_PARSE || status == FERRY_MISMATCH || status == FERRY_OVERFLOW) {
        err->status = FERRY_CORRUPT;
        return FERRY_CORRUPT;
    }
    return status;
}

double ckpt_rate(uint64_t bytes, double seconds) {
    return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}
