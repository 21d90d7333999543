/* bench_peers.c - other libraries on the same case, by way of the program bench/peers/run.
 *
 * Invariant: the program has ended and its pipe is closed when bench_peers_run returns. */
#include "bench_peers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <json-c/json.h>

#include "error.h"

enum { LINE_BYTES = 65536, EXIT_NONE_BUILT = 77, NUMBER_BYTES = 32 };

#ifndef BENCH_PEERS_PROGRAM
#define BENCH_PEERS_PROGRAM "bench/peers/run"
#endif

extern char **environ;

const char *bench_peers_default(void) {
    return BENCH_PEERS_PROGRAM;
}

/* A line of the program; one that is no such object is passed over. */
static void take_line(const char *line, bench_figures_t *figures) {
    struct json_object *object = json_tokener_parse(line);
    struct json_object *name = NULL;
    struct json_object *gbps = NULL;
    if (json_object_is_type(object, json_type_object) &&
        json_object_object_get_ex(object, "peer", &name) &&
        json_object_object_get_ex(object, "gbps", &gbps) && figures->npeers < BENCH_PEERS_MAX) {
        bench_peer_t *peer = &figures->peers[figures->npeers++];
        (void)snprintf(peer->name, sizeof peer->name, "%s", json_object_get_string(name));
        peer->gbps = json_object_get_double(gbps);
    }
    (void)json_object_put(object);
}

/* 0 or an errno. */
static int start(const char *program, char *const *argv, bool quiet, pid_t *pid_p, int *output_p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawnattr_init(&attributes);
        if (error == 0) {
            sigset_t usual;
            (void)sigemptyset(&usual);
            (void)sigaddset(&usual, SIGPIPE); /* the tool ignores it, shell scripts count on it */
            (void)posix_spawnattr_setsigdefault(&attributes, &usual);
            (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
            error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
            if (error == 0 && quiet) {
                error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                                         O_WRONLY, 0);
            }
            if (error == 0) {
                error = posix_spawn(pid_p, program, &actions, &attributes, argv, environ);
            }
            (void)posix_spawnattr_destroy(&attributes);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[1]);
    if (error != 0) {
        (void)close(ends[0]);
        return error;
    }
    *output_p = ends[0];
    return 0;
}

static void take_output(int fd, bench_figures_t *figures) {
    static char line[LINE_BYTES];
    FILE *stream = fdopen(fd, "r");
    if (stream == NULL) {
        (void)close(fd);
        return;
    }
    while (fgets(line, sizeof line, stream) != NULL) {
        take_line(line, figures);
    }
    (void)fclose(stream);
}

ferry_status_t bench_peers_run(const char *program, const bench_job_t *job, double scale,
                               bool quiet, bench_figures_t *figures, ferry_error_t *err) {
    char ranks[NUMBER_BYTES];
    char rounds[NUMBER_BYTES];
    char part[NUMBER_BYTES];
    char name[64];
    static char rounds_flag[] = "--rounds";
    static char scale_flag[] = "--scale";
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", program);
    (void)snprintf(name, sizeof name, "%s", job->bench.name);
    (void)snprintf(ranks, sizeof ranks, "%" PRIu32, job->bench.ranks);
    (void)snprintf(rounds, sizeof rounds, "%" PRIu32, job->rounds);
    (void)snprintf(part, sizeof part, "%.9g", scale);
    char *argv[] = {path, name, ranks, rounds_flag, rounds, scale_flag, part, NULL};
    pid_t pid = 0;
    int output = -1;
    int error = start(program, argv, quiet, &pid, &output);
    if (error != 0) {
        return cli_fail_errno(err, error, "cannot run the peers: %s", program);
    }
    take_output(output, figures);
    int ended = 0;
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(ended) ||
        (WIFEXITED(ended) && WEXITSTATUS(ended) != 0 && WEXITSTATUS(ended) != EXIT_NONE_BUILT)) {
        return cli_fail(err, FERRY_IO, "the peers failed at %s (%s)", job->bench.name, program);
    }
    return FERRY_OK;
}
