/* command.h - the one description of the tool.
 *
 * A command is a file cmd_<name>.c that ends in one cli_command_t, and an entry in commands.c. Help
 * texts, the man page, the shell completion and the reading of the command line all come from these
 * tables, so they cannot disagree. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "output.h"

/* What may stand for an argument: the shell completion offers it. */
typedef enum cli_complete {
    CLI_ANY,
    CLI_FILE,
    CLI_MODEL,
    CLI_DTYPE,
    CLI_COMMAND,
    CLI_SHELL,
} cli_complete_t;

typedef struct cli_option {
    const char *name;     /* "shape" is --shape */
    const char *argument; /* "SHAPE"; NULL: a flag */
    const char *text;     /* one line, without a full stop */
    const char *more;     /* sentences for the man page, or NULL */
    const char *fallback; /* the default, as people read it, or NULL */
    cli_complete_t complete;
    bool repeatable;
} cli_option_t;

typedef struct cli_example {
    const char *text;
    const char *line;
} cli_example_t;

typedef struct cli_args cli_args_t;

/* Puts what it has to say into `out`; nothing reaches the world before it has returned FERRY_OK. */
typedef ferry_status_t (*cli_run_t)(const cli_args_t *args, cli_output_t *out, ferry_error_t *err);

typedef struct cli_command {
    const char *name;         /* "plan", or "plan show": a command below plan */
    const char *text;         /* one line, without a full stop */
    const char *const *usage; /* what follows "ferry "; ends with NULL */
    const char *const *more;  /* paragraphs; ends with NULL; NULL: none */
    const cli_option_t *options;
    size_t noptions;
    const cli_example_t *examples; /* ends with a NULL text; NULL: none */
    uint32_t min_words;            /* arguments that are no options */
    uint32_t max_words;
    const char *words; /* what they are, for the error when there are too few */
    cli_complete_t complete;
    cli_run_t run;
} cli_command_t;

/* All commands, in the order in which help lists them. Static. */
const cli_command_t *const *cli_commands(size_t *count_p);

/* The command that the first words of argv name, the longest name winning ("plan show" before
 * "plan"); *used_p words belong to it. NULL when there is none. */
const cli_command_t *cli_command_find(size_t argc, char *const *argv, size_t *used_p);

/* What every command understands. */
extern const cli_option_t cli_option_help;

/* The exit codes: name, number, text. */
#define CLI_EXIT_MAP(X)                                                                            \
    X(DONE, 0, "Done.")                                                                            \
    X(FAILED, 1,                                                                                   \
      "Failed: a file cannot be read or written or is damaged, a plan is wrong, memory ran out; "  \
      "or what was compared differs.")                                                             \
    X(USAGE, 2, "What was asked makes no sense: options, layouts, models, sizes.")

typedef enum cli_exit {
#define CLI_EXIT_ENUM(name, number, text) CLI_EXIT_##name = (number),
    CLI_EXIT_MAP(CLI_EXIT_ENUM)
#undef CLI_EXIT_ENUM
} cli_exit_t;

/* Environment variables: name, text. */
#define CLI_ENVIRONMENT_MAP(X)                                                                     \
    X("FERRY_DEBUG", "WARN, INFO or TRACE: what ferry does is told on standard error.")            \
    X("NO_COLOR", "Set to anything: no colours on a terminal.")                                    \
    X("LC_ALL, LC_CTYPE, LANG", "Bars are drawn with block characters where these say UTF-8.")

#endif
