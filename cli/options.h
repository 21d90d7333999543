/* options.h - reads a command line by a command's table.
 *
 * Long options only: --name VALUE, --name=VALUE, --flag; "--" ends them. Names are never shortened,
 * so that a new option cannot change what an old script means.
 *
 * Ownership: the values are argv's own strings; cli_args_fini frees the lists. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "command.h"

typedef struct cli_given {
    const cli_option_t *option;
    const char *value; /* NULL for a flag */
} cli_given_t;

struct cli_args {
    const cli_command_t *command;
    cli_given_t *given;
    size_t ngiven;
    const char **words;
    size_t nwords;
    bool help; /* --help was met: nothing else counts */
};

/* Reads argv, which begins after the command's own words. On failure there is nothing to free. */
ferry_status_t cli_args_init(cli_args_t *args, const cli_command_t *command, size_t argc,
                             char *const *argv, ferry_error_t *err);
void cli_args_fini(cli_args_t *args);

/* `name` must be in the command's table. A value is NULL when the option was not given. */
bool cli_args_has(const cli_args_t *args, const char *name);
const char *cli_args_value(const cli_args_t *args, const char *name);

#endif
