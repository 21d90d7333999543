/* options.c - reads a command line by a command's table.
 *
 * Invariant: every option in `given` is one of the command's, has a value exactly when the table says
 * so, and stands there once unless it is repeatable. */
#include "options.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

static const cli_option_t *find_option(const cli_command_t *command, const char *name,
                                       size_t length) {
    for (size_t i = 0; i < command->noptions; i++) {
        const cli_option_t *option = &command->options[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0) {
            return option;
        }
    }
    if (strlen(cli_option_help.name) == length && memcmp(cli_option_help.name, name, length) == 0) {
        return &cli_option_help;
    }
    return NULL;
}

static ferry_status_t fail_unknown(const cli_command_t *command, const char *name, size_t length,
                                   ferry_error_t *err) {
    char word[64];
    size_t kept = length < sizeof word - 1 ? length : sizeof word - 1;
    memcpy(word, name, kept);
    word[kept] = '\0';
    cli_nearest_t nearest = {.word = word};
    for (size_t i = 0; i < command->noptions; i++) {
        cli_nearest_offer(&nearest, command->options[i].name);
    }
    cli_nearest_offer(&nearest, cli_option_help.name);
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "unknown option --%s (did you mean --%s?)", word,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID, "unknown option --%s (see ferry help %s)", word,
                    command->name);
}

/* Reads the option at argv[*at_p] and moves on. */
static ferry_status_t take_option(cli_args_t *args, size_t argc, char *const *argv, size_t *at_p,
                                  ferry_error_t *err) {
    const char *name = argv[*at_p] + 2;
    size_t length = strcspn(name, "=");
    const cli_option_t *option = find_option(args->command, name, length);
    if (option == NULL) {
        return fail_unknown(args->command, name, length, err);
    }
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    *at_p += 1;
    if (option->argument == NULL && value != NULL) {
        return cli_fail(err, FERRY_INVALID, "option --%s takes no value", option->name);
    }
    if (option == &cli_option_help) {
        args->help = true;
        return FERRY_OK;
    }
    if (option->argument != NULL && value == NULL) {
        /* A value that looks like an option is a forgotten value far more often than a value. */
        if (*at_p == argc || strncmp(argv[*at_p], "--", 2) == 0) {
            return cli_fail(err, FERRY_INVALID, "option --%s needs a value: --%s %s", option->name,
                            option->name, option->argument);
        }
        value = argv[*at_p];
        *at_p += 1;
    }
    if (!option->repeatable && cli_args_has(args, option->name)) {
        return cli_fail(err, FERRY_INVALID, "option --%s is given twice", option->name);
    }
    args->given[args->ngiven++] = (cli_given_t){option, value};
    return FERRY_OK;
}

static ferry_status_t take_all(cli_args_t *args, size_t argc, char *const *argv,
                               ferry_error_t *err) {
    bool ended = false;
    for (size_t at = 0; at < argc && !args->help;) {
        const char *word = argv[at];
        if (ended || word[0] != '-' || word[1] == '\0') {
            args->words[args->nwords++] = word;
            at++;
        } else if (strcmp(word, "--") == 0) {
            ended = true;
            at++;
        } else if (strcmp(word, "-h") == 0) {
            args->help = true;
        } else if (word[1] != '-') {
            return cli_fail(err, FERRY_INVALID, "unknown option %s (options have long names: --%s)",
                            word,
                            args->command->noptions > 0 ? args->command->options[0].name
                                                        : cli_option_help.name);
        } else {
            ferry_status_t status = take_option(args, argc, argv, &at, err);
            if (status != FERRY_OK) {
                return status;
            }
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_words(const cli_args_t *args, ferry_error_t *err) {
    const cli_command_t *command = args->command;
    if (args->nwords > command->max_words) {
        return cli_fail(err, FERRY_INVALID, "unexpected argument '%s' (see ferry help %s)",
                        args->words[command->max_words], command->name);
    }
    if (args->nwords < command->min_words) {
        return cli_fail(err, FERRY_INVALID, "missing argument: ferry %s %s", command->name,
                        command->words);
    }
    return FERRY_OK;
}

ferry_status_t cli_args_init(cli_args_t *args, const cli_command_t *command, size_t argc,
                             char *const *argv, ferry_error_t *err) {
    *args = (cli_args_t){.command = command};
    args->given = calloc(argc + 1, sizeof *args->given);
    args->words = calloc(argc + 1, sizeof *args->words);
    if (args->given == NULL || args->words == NULL) {
        cli_args_fini(args);
        return cli_fail_nomem(err);
    }
    ferry_status_t status = take_all(args, argc, argv, err);
    if (status == FERRY_OK && !args->help) {
        status = check_words(args, err);
    }
    if (status != FERRY_OK) {
        cli_args_fini(args);
    }
    return status;
}

void cli_args_fini(cli_args_t *args) {
    free(args->given);
    free(args->words);
    *args = (cli_args_t){0};
}

static const cli_given_t *find_given(const cli_args_t *args, const char *name) {
    assert(find_option(args->command, name, strlen(name)) != NULL);
    for (size_t i = 0; i < args->ngiven; i++) {
        if (strcmp(args->given[i].option->name, name) == 0) {
            return &args->given[i];
        }
    }
    return NULL;
}

bool cli_args_has(const cli_args_t *args, const char *name) {
    return find_given(args, name) != NULL;
}

const char *cli_args_value(const cli_args_t *args, const char *name) {
    const cli_given_t *given = find_given(args, name);
    return given != NULL ? given->value : NULL;
}
