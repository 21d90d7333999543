/* plan_file.c - reads plan files. */
#include "plan_file.h"

#include <stdlib.h>

#include "error.h"
#include "output.h"

ferry_status_t plan_file_read(const char *path, ferry_plan_t **plan_p, ferry_error_t *err) {
    uint8_t *bytes = NULL;
    size_t length = 0;
    ferry_status_t status = cli_file_read(path, &bytes, &length, err);
    if (status != FERRY_OK) {
        return status;
    }
    status = ferry_plan_decode(bytes, length, plan_p, err);
    free(bytes);
    if (status == FERRY_OK) {
        return FERRY_OK;
    }
    cli_error_place(err, path);
    if (cli_exit_code(status) == cli_exit_code(FERRY_INVALID)) {
        /* A size too large or a layout that makes no sense was typed by nobody: it is damage. */
        status = FERRY_CORRUPT;
    }
    return status;
}
