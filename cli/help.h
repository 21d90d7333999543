/* help.h - the texts that are made from the tables of command.h. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "command.h"

void cli_help_all(cli_output_t *out);
void cli_help_command(cli_output_t *out, const cli_command_t *command);

/* ferry(1) in roff. */
void cli_help_man(cli_output_t *out);

/* The completion of ferry for bash. */
void cli_help_completion_bash(cli_output_t *out);

#endif
