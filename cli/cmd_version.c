/* cmd_version.c - `ferry version`. */
#include <ferry/plan.h>
#include <ferry/version.h>

#include "commands.h"

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    (void)args;
    (void)err;
    cli_print(out, "ferry %s (planner %d, plan format %d)\n", ferry_version(),
              FERRY_PLANNER_VERSION, FERRY_PLAN_FORMAT_VERSION);
    return FERRY_OK;
}

static const char *const usage[] = {"version", NULL};

static const char *const more[] = {
    "The versions of ferry, of its planner (plans of different planners are never mixed) and of "
    "the "
    "plan files that it reads and writes.",
    NULL,
};

const cli_command_t cli_cmd_version = {
    .name = "version",
    .text = "print the version",
    .usage = usage,
    .more = more,
    .run = run,
};
