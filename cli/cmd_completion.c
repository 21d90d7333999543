/* cmd_completion.c - `ferry completion bash`. */
#include <string.h>

#include "commands.h"
#include "error.h"
#include "help.h"
#include "options.h"

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    if (strcmp(args->words[0], "bash") != 0) {
        return cli_fail(err, FERRY_INVALID, "no completion for '%s': there is one for bash",
                        args->words[0]);
    }
    cli_help_completion_bash(out);
    return FERRY_OK;
}

static const char *const usage[] = {"completion bash", NULL};

static const char *const more[] = {
    "Completes commands, options, model names, dtypes and file names. `make install` puts the "
    "script "
    "where bash-completion looks for it.",
    NULL,
};

static const cli_example_t examples[] = {
    {"use it in this shell", "source <(ferry completion bash)"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_completion = {
    .name = "completion",
    .text = "print a completion script for a shell",
    .usage = usage,
    .more = more,
    .examples = examples,
    .min_words = 1,
    .max_words = 1,
    .words = "bash",
    .complete = CLI_SHELL,
    .run = run,
};
