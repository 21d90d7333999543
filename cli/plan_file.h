/* plan_file.h - reads plan files. */
#ifndef CLI_PLAN_FILE_H
#define CLI_PLAN_FILE_H

#include <ferry/plan.h>

/* What it accepts has passed the check. Errors name the file, and are failures, never usage. */
ferry_status_t plan_file_read(const char *path, ferry_plan_t **plan_p, ferry_error_t *err);

#endif
