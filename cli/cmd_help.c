/* cmd_help.c - `ferry help`. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "error.h"
#include "help.h"
#include "options.h"

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    if (cli_args_has(args, "man")) {
        if (args->nwords > 0) {
            return cli_fail(err, FERRY_INVALID, "--man is the page of all commands: leave out '%s'",
                            args->words[0]);
        }
        cli_help_man(out);
        return FERRY_OK;
    }
    if (args->nwords == 0) {
        cli_help_all(out);
        return FERRY_OK;
    }
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    const char *name = args->words[0];
    char both[64];
    if (args->nwords == 2) {
        (void)snprintf(both, sizeof both, "%s %s", args->words[0], args->words[1]);
        name = both;
    }
    cli_nearest_t nearest = {.word = name};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            cli_help_command(out, commands[i]);
            return FERRY_OK;
        }
        cli_nearest_offer(&nearest, commands[i]->name);
    }
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "unknown command '%s' (did you mean %s?)", name,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID, "unknown command '%s' (see ferry --help)", name);
}

static const char *const usage[] = {"help [COMMAND]", "help --man", NULL};

static const cli_option_t options[] = {
    {.name = "man",
     .text = "print the man page ferry(1) in roff",
     .more = "Read it with: ferry help --man | man -l -"},
};

static const cli_example_t examples[] = {
    {"all about ferry plan", "ferry help plan"},
    {"read the man page without installing it", "ferry help --man | man -l -"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_help = {
    .name = "help",
    .text = "explain ferry or one of its commands",
    .usage = usage,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .max_words = 2,
    .words = "[COMMAND]",
    .complete = CLI_COMMAND,
    .run = run,
};
