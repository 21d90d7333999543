/* commands.c - the list of commands.
 *
 * Invariant: the order here is the order in help, man page and completion. */
#include "commands.h"

#include <string.h>

static const cli_command_t *const commands[] = {
    &cli_cmd_reshard,       &cli_cmd_inspect,   &cli_cmd_verify,    &cli_cmd_synth,
    &cli_cmd_plan,          &cli_cmd_plan_show, &cli_cmd_plan_diff, &cli_cmd_bench,
    &cli_cmd_bench_reshard, &cli_cmd_doctor,    &cli_cmd_help,      &cli_cmd_version,
    &cli_cmd_completion,
};

const cli_option_t cli_option_help = {
    .name = "help",
    .text = "show the help of this command",
};

const cli_command_t *const *cli_commands(size_t *count_p) {
    *count_p = sizeof commands / sizeof commands[0];
    return commands;
}

/* How many words of argv spell `name` ("plan show" is two); 0 when they do not. */
static size_t words_matched(const char *name, size_t argc, char *const *argv) {
    size_t used = 0;
    while (used < argc) {
        size_t length = strcspn(name, " ");
        if (strlen(argv[used]) != length || memcmp(argv[used], name, length) != 0) {
            return 0;
        }
        used++;
        if (name[length] == '\0') {
            return used;
        }
        name += length + 1;
    }
    return 0;
}

const cli_command_t *cli_command_find(size_t argc, char *const *argv, size_t *used_p) {
    const cli_command_t *found = NULL;
    size_t used = 0;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        size_t words = words_matched(commands[i]->name, argc, argv);
        if (words > used) {
            found = commands[i];
            used = words;
        }
    }
    if (found != NULL) {
        *used_p = used;
    }
    return found;
}
