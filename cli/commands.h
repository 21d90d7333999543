/* commands.h - the commands, each from its own file cmd_<name>.c. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "command.h"

extern const cli_command_t cli_cmd_reshard;
extern const cli_command_t cli_cmd_inspect;
extern const cli_command_t cli_cmd_verify;
extern const cli_command_t cli_cmd_synth;
extern const cli_command_t cli_cmd_plan;
extern const cli_command_t cli_cmd_plan_show;
extern const cli_command_t cli_cmd_plan_diff;
extern const cli_command_t cli_cmd_bench;
extern const cli_command_t cli_cmd_bench_reshard;
extern const cli_command_t cli_cmd_doctor;
extern const cli_command_t cli_cmd_help;
extern const cli_command_t cli_cmd_version;
extern const cli_command_t cli_cmd_completion;

#endif
