/* main.c - finds the command, runs it, and shows either what it says or one line of error.
 *
 * Invariant: standard output and files are touched by cli_output_commit alone, after success. */
#include <signal.h>
#include <string.h>

#include <ferry/log.h>

#include "command.h"
#include "error.h"
#include "help.h"
#include "options.h"

static ferry_status_t fail_unknown(const char *word, ferry_error_t *err) {
    size_t count = 0;
    const cli_command_t *const *commands = cli_commands(&count);
    cli_nearest_t nearest = {.word = word};
    for (size_t i = 0; i < count; i++) {
        cli_nearest_offer(&nearest, commands[i]->name);
    }
    const char *what = word[0] == '-' ? "option" : "command";
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "unknown %s '%s' (did you mean %s?)", what, word,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID, "unknown %s '%s' (see ferry --help)", what, word);
}

static ferry_status_t run_command(const cli_command_t *command, size_t argc, char *const *argv,
                                  cli_output_t *out, ferry_error_t *err) {
    cli_args_t args;
    ferry_status_t status = cli_args_init(&args, command, argc, argv, err);
    if (status != FERRY_OK) {
        return status;
    }
    if (args.help) {
        cli_help_command(out, command);
    } else {
        status = command->run(&args, out, err);
    }
    cli_args_fini(&args);
    return status == FERRY_OK ? cli_output_commit(out, err) : status;
}

/* Sets *name_p to the command's name once it is known, for the error line. */
static ferry_status_t run(size_t argc, char **argv, cli_output_t *out, const char **name_p,
                          ferry_error_t *err) {
    ferry_status_t status = ferry_log_from_env(err);
    if (status != FERRY_OK) {
        return status;
    }
    if (argc == 0) {
        return cli_fail(err, FERRY_INVALID, "a command is needed (see ferry --help)");
    }
    static char help[] = "help";
    static char version[] = "version";
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        argv[0] = help;
    } else if (strcmp(argv[0], "--version") == 0) {
        argv[0] = version;
    }
    size_t used = 0;
    const cli_command_t *command = cli_command_find(argc, argv, &used);
    if (command == NULL) {
        return fail_unknown(argv[0], err);
    }
    *name_p = command->name;
    return run_command(command, argc - used, argv + used, out, err);
}

int main(int argc, char **argv) {
    double start_s = cli_clock();
    /* A reader that goes away is seen as EPIPE, so that a staged file is still dealt with. */
    (void)signal(SIGPIPE, SIG_IGN);
    cli_output_t out;
    cli_output_init(&out, start_s);
    ferry_error_t err = FERRY_ERROR_INIT;
    const char *name = NULL;
    size_t nwords = argc > 1 ? (size_t)argc - 1 : 0;
    ferry_status_t status = run(nwords, argv + (argc > 0 ? 1 : 0), &out, &name, &err);
    int code = status == FERRY_OK ? out.exit_code : cli_exit_code(status);
    if (status != FERRY_OK) {
        cli_error_print(name, &err);
    }
    cli_output_fini(&out);
    return code;
}
