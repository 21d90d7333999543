/* man.c - ferry(1), in the man macros that groff and mandoc both read.
 *
 * Invariant: text never begins a line with '.' or a quote by accident, and '-' and '\' are escaped,
 * so that a reader can copy options and examples from the page. */
#include <ctype.h>
#include <string.h>

#include <ferry/version.h>

#include "help.h"

/* Changes when the page's own words do; a build date would make every build differ. */
#define MAN_DATE "2026-11-15"

static void print_escaped(cli_output_t *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '-':
            cli_print(out, "\\-");
            break;
        case '\\':
            cli_print(out, "\\e");
            break;
        case '\'':
            cli_print(out, "\\(aq");
            break;
        case '~':
            cli_print(out, "\\(ti");
            break;
        case '^':
            cli_print(out, "\\(ha");
            break;
        default:
            cli_write(out, &text[i], 1);
        }
    }
}

/* The length of the option that a word begins with; 0 when there is none. */
static size_t option_length(const char *word, size_t length) {
    if (length < 3 || word[0] != '-' || word[1] != '-') {
        return 0;
    }
    size_t name = 2;
    while (name < length && (isalnum((unsigned char)word[name]) || word[name] == '-')) {
        name++;
    }
    return name;
}

/* The words of a text, options among them set bold, in lines that mandoc does not find too long.
 * A sentence begins a line, as roff wants it. */
static void print_text(cli_output_t *out, const char *text) {
    enum { LINE_MAX_BYTES = 72 };
    size_t begin = out->length;
    bool sentence = false;
    for (size_t length = 0; *text != '\0'; text += length) {
        text += strspn(text, " ");
        length = strcspn(text, " ");
        bool first = out->length == begin;
        bool fits = !sentence && out->length - begin + length < LINE_MAX_BYTES;
        if (!first) {
            cli_print(out, fits ? " " : "\n");
            begin = fits ? begin : out->length;
        }
        if (text[0] == '.') {
            cli_print(out, "\\&");
        }
        size_t name = option_length(text, length);
        if (name > 0) {
            cli_print(out, "\\fB");
            print_escaped(out, text, name);
            cli_print(out, "\\fR");
        }
        print_escaped(out, text + name, length - name);
        sentence = length > 1 && text[length - 1] == '.' && text[length - 2] != '.';
    }
    cli_print(out, "\n");
}

/* Table texts begin small and have no full stop. */
static void print_sentence(cli_output_t *out, const char *text, const char *end) {
    char first = (char)toupper((unsigned char)text[0]);
    print_escaped(out, &first, 1);
    print_escaped(out, text + 1, strlen(text + 1));
    cli_print(out, "%s\n", end);
}

static void print_literal(cli_output_t *out, const char *text) {
    print_escaped(out, text, strlen(text));
    cli_print(out, "\n");
}

static void print_option(cli_output_t *out, const cli_option_t *option) {
    cli_print(out, ".TP\n\\fB\\-\\-");
    print_escaped(out, option->name, strlen(option->name));
    cli_print(out, "\\fR");
    if (option->argument != NULL) {
        cli_print(out, " \\fI");
        print_escaped(out, option->argument, strlen(option->argument));
        cli_print(out, "\\fR");
    }
    cli_print(out, "\n");
    print_sentence(out, option->text, ".");
    if (option->more != NULL) {
        print_text(out, option->more);
    }
    if (option->fallback != NULL) {
        cli_print(out, "The default is ");
        print_escaped(out, option->fallback, strlen(option->fallback));
        cli_print(out, ".\n");
    }
    if (option->repeatable) {
        cli_print(out, "May be given more than once.\n");
    }
}

/* As it is typed; a long one goes on in the next line, indented. */
static void print_usage(cli_output_t *out, const char *usage) {
    enum { COLUMNS = 70 };
    size_t column = strlen("ferry");
    cli_print(out, "\\fBferry\\fR");
    for (size_t length = 0; *usage != '\0'; usage += length) {
        usage += strspn(usage, " ");
        length = strcspn(usage, " ");
        if (column + 1 + length > COLUMNS) {
            cli_print(out, "\n     ");
            column = 5;
        }
        cli_print(out, " ");
        print_escaped(out, usage, length);
        column += 1 + length;
    }
    cli_print(out, "\n");
}

static void print_command(cli_output_t *out, const cli_command_t *command) {
    cli_print(out, ".SS ferry %s\n", command->name);
    print_sentence(out, command->text, ".");
    cli_print(out, ".PP\n.nf\n");
    for (const char *const *usage = command->usage; *usage != NULL; usage++) {
        print_usage(out, *usage);
    }
    cli_print(out, ".fi\n");
    for (const char *const *more = command->more; more != NULL && *more != NULL; more++) {
        cli_print(out, ".PP\n");
        print_text(out, *more);
    }
    for (size_t i = 0; i < command->noptions; i++) {
        print_option(out, &command->options[i]);
    }
}

static void print_examples(cli_output_t *out, const cli_command_t *command, bool *first_p) {
    for (const cli_example_t *example = command->examples; example != NULL && example->text != NULL;
         example++) {
        cli_print(out, "%s", *first_p ? "" : ".PP\n");
        *first_p = false;
        print_sentence(out, example->text, ":");
        cli_print(out, ".PP\n.nf\n.RS 4\n");
        print_literal(out, example->line);
        cli_print(out, ".RE\n.fi\n");
    }
}

static void print_row(cli_output_t *out, const char *name, const char *text) {
    cli_print(out, ".TP\n.B ");
    print_literal(out, name);
    print_text(out, text);
}

void cli_help_man(cli_output_t *out) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    cli_print(out,
              ".\\\" Made by `ferry help --man`; do not edit.\n"
              ".TH FERRY 1 " MAN_DATE " \"ferry %s\" \"User Commands\"\n"
              ".nh\n.ad l\n" /* options are copied from here: never broken, never stretched */
              ".SH NAME\nferry \\- move sharded tensors between parallel layouts\n"
              ".SH SYNOPSIS\n.nf\n",
              ferry_version());
    for (size_t i = 0; i < count; i++) {
        cli_print(out, "\\fBferry %s\\fR [\\fIoptions\\fR]%s%s\n", commands[i]->name,
                  commands[i]->words != NULL ? " " : "",
                  commands[i]->words != NULL ? commands[i]->words : "");
    }
    cli_print(out, ".fi\n.SH DESCRIPTION\n");
    print_text(out,
               "ferry works out who sends which part of which tensor to whom when a model goes "
               "from one parallel layout to another, proves that every element arrives exactly "
               "once, and says how the plan stands against what is possible.");
    cli_print(out, ".PP\n");
    print_text(out, "Options may be written --name VALUE or --name=VALUE; -- ends them. Every "
                    "command knows --help. An error is one line on standard error; then nothing is "
                    "written to standard output or to a file.");
    cli_print(out, ".SH COMMANDS\n");
    for (size_t i = 0; i < count; i++) {
        print_command(out, commands[i]);
    }
    cli_print(out, ".SH EXIT STATUS\n");
#define ROW(name, number, text) print_row(out, #number, text);
    CLI_EXIT_MAP(ROW)
#undef ROW
    cli_print(out, ".SH ENVIRONMENT\n");
#define ROW(name, text) print_row(out, name, text);
    CLI_ENVIRONMENT_MAP(ROW)
#undef ROW
    cli_print(out, ".SH EXAMPLES\n");
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        print_examples(out, commands[i], &first);
    }
}
