/* completion.c - the bash completion, made from the tables.
 *
 * The script is plain bash: it needs neither the bash-completion package nor the tool at run time. */
#include <string.h>

#include <ferry/dtype.h>
#include <ferry/model.h>

#include "help.h"

/* The words of a kind of argument, separated by spaces. */
static void print_words(cli_output_t *out, cli_complete_t complete) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    switch (complete) {
    case CLI_MODEL:
        for (size_t i = 0; i < ferry_model_count(); i++) {
            ferry_model_info_t info;
            if (ferry_model_info(i, &info, NULL) == FERRY_OK) {
                cli_print(out, "%s ", info.name);
            }
        }
        cli_print(out, "list");
        break;
    case CLI_DTYPE:
#define WORD(name, number, text, bits) cli_print(out, "%s%s", (number) > 1 ? " " : "", text);
        FERRY_DTYPE_MAP(WORD)
#undef WORD
        break;
    case CLI_COMMAND:
        for (size_t i = 0; i < count; i++) {
            if (strchr(commands[i]->name, ' ') == NULL) {
                cli_print(out, "%s%s", i > 0 ? " " : "", commands[i]->name);
            }
        }
        break;
    case CLI_SHELL:
        cli_print(out, "bash");
        break;
    case CLI_ANY:
    case CLI_FILE:
        break;
    }
}

/* One case of "what may follow": the words themselves, or file names. */
static void print_reply(cli_output_t *out, cli_complete_t complete) {
    if (complete == CLI_FILE) {
        cli_print(out, "compopt -o filenames 2>/dev/null; "
                       "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")");
    } else {
        cli_print(out, "words='");
        print_words(out, complete);
        cli_print(out, "'");
    }
}

/* The names of commands one level below `command`. */
static void print_below(cli_output_t *out, const cli_command_t *command) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    size_t length = strlen(command->name);
    for (size_t i = 0; i < count; i++) {
        const char *name = commands[i]->name;
        if (strncmp(name, command->name, length) == 0 && name[length] == ' ') {
            cli_print(out, "%s ", name + length + 1);
        }
    }
}

static void print_option_values(cli_output_t *out, const cli_command_t *command) {
    for (size_t i = 0; i < command->noptions; i++) {
        const cli_option_t *option = &command->options[i];
        if (option->argument != NULL) {
            cli_print(out, "    '%s --%s') ", command->name, option->name);
            print_reply(out, option->complete);
            cli_print(out, "; ;;\n");
        }
    }
}

static void print_command(cli_output_t *out, const cli_command_t *command) {
    cli_print(out, "    '%s')\n        if [[ $cur == -* ]]; then\n            words='",
              command->name);
    for (size_t i = 0; i < command->noptions; i++) {
        cli_print(out, "--%s ", command->options[i].name);
    }
    cli_print(out, "--%s'\n", cli_option_help.name);
    if (command->complete == CLI_FILE) {
        cli_print(out, "        else\n            ");
        print_reply(out, CLI_FILE);
    } else {
        cli_print(out, "        else\n            words='");
        print_below(out, command);
        print_words(out, command->complete);
        cli_print(out, "'");
    }
    cli_print(out, "\n        fi ;;\n");
}

void cli_help_completion_bash(cli_output_t *out) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    cli_print(out, "# bash completion for ferry; made by `ferry completion bash`, do not edit.\n"
                   "# shellcheck shell=bash\n"
                   "_ferry() {\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} prev='' command='' words=''\n"
                   "    COMPREPLY=()\n"
                   "    ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                   "    # bash cuts --name=value into three words.\n"
                   "    if [[ $cur == = ]]; then\n"
                   "        cur=\n"
                   "    elif [[ $prev == = ]] && ((COMP_CWORD > 2)); then\n"
                   "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                   "    fi\n"
                   "    # The command is one word, or two where both together name one.\n"
                   "    if ((COMP_CWORD > 1)); then\n"
                   "        command=${COMP_WORDS[1]}\n"
                   "    fi\n"
                   "    if ((COMP_CWORD > 2)); then\n"
                   "        case \"$command ${COMP_WORDS[2]}\" in\n");
    for (size_t i = 0; i < count; i++) {
        if (strchr(commands[i]->name, ' ') != NULL) {
            cli_print(out, "        '%s') command='%s' ;;\n", commands[i]->name, commands[i]->name);
        }
    }
    cli_print(out, "        esac\n    fi\n    case \"$command $prev\" in\n");
    for (size_t i = 0; i < count; i++) {
        print_option_values(out, commands[i]);
    }
    cli_print(out, "    *)\n    case $command in\n    '') words='");
    print_words(out, CLI_COMMAND);
    cli_print(out, " --help --version' ;;\n");
    for (size_t i = 0; i < count; i++) {
        print_command(out, commands[i]);
    }
    cli_print(out, "    esac ;;\n    esac\n"
                   "    if [[ -n $words ]]; then\n"
                   "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                   "    fi\n"
                   "}\n"
                   "complete -F _ferry ferry\n");
}
