/* help.c - `ferry --help` and `ferry help COMMAND`, for a terminal of 80 columns.
 *
 * Invariant: every command, option, exit code and variable of the tables is named here. */
#include "help.h"

#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 79,
    OPTION_COLUMN = 24, /* where the text of an option begins */
    NAME_COLUMN = 16,   /* where the text of a command begins */
};

/* Prints the words of `text` from column `at` on, and further lines from column `indent`. */
static void print_wrapped(cli_output_t *out, const char *text, size_t at, size_t indent) {
    bool fresh = true;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (!fresh && at + 1 + length > WIDTH) {
            cli_print(out, "\n%*s", (int)indent, "");
            at = indent;
            fresh = true;
        }
        cli_print(out, "%s%.*s", fresh ? "" : " ", (int)length, text);
        at += length + (fresh ? 0 : 1);
        fresh = false;
        text += length;
        text += strspn(text, " ");
    }
    cli_print(out, "\n");
}

static void print_heading(cli_output_t *out, const char *text) {
    cli_print(out, "\n%s%s%s\n", cli_bold(out), text, cli_plain(out));
}

static void print_row(cli_output_t *out, const char *name, const char *text, size_t column) {
    size_t length = strlen(name) + 2;
    cli_print(out, "  %s", name);
    if (length + 1 > column) {
        cli_print(out, "\n%*s", (int)column, "");
    } else {
        cli_print(out, "%*s", (int)(column - length), "");
    }
    print_wrapped(out, text, column, column);
}

static void print_option(cli_output_t *out, const cli_option_t *option) {
    char name[64];
    (void)snprintf(name, sizeof name, "--%s%s%s", option->name, option->argument != NULL ? " " : "",
                   option->argument != NULL ? option->argument : "");
    char text[256];
    (void)snprintf(text, sizeof text, "%s%s%s%s%s", option->text,
                   option->fallback != NULL ? " (default: " : "",
                   option->fallback != NULL ? option->fallback : "",
                   option->fallback != NULL ? ")" : "", option->repeatable ? "; repeatable" : "");
    print_row(out, name, text, OPTION_COLUMN);
}

static void print_exit_codes(cli_output_t *out) {
    print_heading(out, "Exit codes");
#define ROW(name, number, text) print_row(out, #number, text, 6);
    CLI_EXIT_MAP(ROW)
#undef ROW
}

void cli_help_all(cli_output_t *out) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    cli_print(out, "ferry moves sharded tensors between parallel layouts.\n\n"
                   "  ferry COMMAND [OPTIONS]\n");
    print_heading(out, "Commands");
    for (size_t i = 0; i < count; i++) {
        print_row(out, commands[i]->name, commands[i]->text, NAME_COLUMN);
    }
    print_heading(out, "Options");
    print_row(out, "--help", "show this help; ferry COMMAND --help tells more", NAME_COLUMN);
    print_row(out, "--version", "print the version", NAME_COLUMN);
    print_heading(out, "Environment");
#define ROW(name, text) print_row(out, name, text, OPTION_COLUMN + 2);
    CLI_ENVIRONMENT_MAP(ROW)
#undef ROW
    print_exit_codes(out);
}

void cli_help_command(cli_output_t *out, const cli_command_t *command) {
    cli_print(out, "%sferry %s%s: ", cli_bold(out), command->name, cli_plain(out));
    print_wrapped(out, command->text, strlen(command->name) + 8, 2);
    cli_print(out, "\n");
    for (const char *const *usage = command->usage; *usage != NULL; usage++) {
        cli_print(out, "  ferry ");
        print_wrapped(out, *usage, 8, 10);
    }
    for (const char *const *more = command->more; more != NULL && *more != NULL; more++) {
        cli_print(out, "\n");
        print_wrapped(out, *more, 0, 0);
    }
    print_heading(out, "Options");
    for (size_t i = 0; i < command->noptions; i++) {
        print_option(out, &command->options[i]);
    }
    print_option(out, &cli_option_help);
    if (command->examples != NULL) {
        print_heading(out, "Examples");
    }
    for (const cli_example_t *example = command->examples; example != NULL && example->text != NULL;
         example++) {
        cli_print(out, "%s  # %s%s\n  %s\n", cli_dim(out), example->text, cli_plain(out),
                  example->line);
    }
    print_exit_codes(out);
}
