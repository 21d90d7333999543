/* output.c - text held in memory, files staged beside their place.
 *
 * Invariant: temp_path is set exactly while a temporary file of ours exists. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

enum {
    TEXT_CAP_MIN = 4096,
    READ_CAP_MIN = 65536,
    TEMP_TRIES = 100,
};

double cli_clock(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void cli_output_init(cli_output_t *out, double start_s) {
    *out = (cli_output_t){.start_s = start_s};
    const char *term = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");
    out->color = isatty(STDOUT_FILENO) == 1 && (no_color == NULL || no_color[0] == '\0') &&
                 term != NULL && strcmp(term, "dumb") != 0;
    /* LC_CTYPE alone: numbers keep their point in every country. */
    (void)setlocale(LC_CTYPE, "");
    out->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* The file that must not stay behind when a signal ends the process: set while a temporary file is
 * there, and read by the handler only. */
static char *volatile temp_in_danger;

static void remove_temp(int signal_number) {
    const char *path = temp_in_danger;
    if (path != NULL) {
        (void)unlink(path);
    }
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* Signals that nobody handles or ignores yet. */
static void guard_temp(char *path) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    temp_in_danger = path;
    for (size_t i = 0; path != NULL && i < sizeof ends / sizeof *ends; i++) {
        struct sigaction now;
        struct sigaction ours = {.sa_handler = remove_temp};
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
            (void)sigaction(ends[i], &ours, NULL);
        }
    }
}

void cli_output_fini(cli_output_t *out) {
    if (out->temp_path != NULL) {
        (void)unlink(out->temp_path);
        guard_temp(NULL);
    }
    free(out->temp_path);
    free(out->file_path);
    free(out->text);
    *out = (cli_output_t){0};
}

/* ---- text -------------------------------------------------------------------------------------- */

/* Room for `more` bytes and a terminator. */
static bool reserve(cli_output_t *out, size_t more) {
    if (out->nomem || more > SIZE_MAX / 4 - out->length) {
        out->nomem = true;
        return false;
    }
    size_t need = out->length + more + 1;
    if (need <= out->cap) {
        return true;
    }
    size_t cap = out->cap < TEXT_CAP_MIN ? TEXT_CAP_MIN : out->cap;
    while (cap < need) {
        cap *= 2;
    }
    char *text = realloc(out->text, cap);
    if (text == NULL) {
        out->nomem = true;
        return false;
    }
    out->text = text;
    out->cap = cap;
    return true;
}

void cli_write(cli_output_t *out, const char *text, size_t length) {
    if (reserve(out, length)) {
        memcpy(out->text + out->length, text, length);
        out->length += length;
        out->text[out->length] = '\0';
    }
}

void cli_print(cli_output_t *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length >= 0 && reserve(out, (size_t)length)) {
        (void)vsnprintf(out->text + out->length, (size_t)length + 1, format, again);
        out->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

const char *cli_bold(const cli_output_t *out) {
    return out->color ? "\033[1m" : "";
}

const char *cli_dim(const cli_output_t *out) {
    return out->color ? "\033[2m" : "";
}

const char *cli_plain(const cli_output_t *out) {
    return out->color ? "\033[0m" : "";
}

const char *cli_paint(const cli_output_t *out, int color) {
    static const char *const codes[] = {"\033[31m", "\033[32m", "\033[33m",
                                        "\033[34m", "\033[35m", "\033[36m"};
    return out->color && color >= 31 && color <= 36 ? codes[color - 31] : "";
}

/* ---- files ------------------------------------------------------------------------------------- */

/* 0, or the errno of the write that failed. */
static int write_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t done = write(fd, bytes, length);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return errno;
        }
        bytes += done;
        length -= (size_t)done;
    }
    return 0;
}

/* Opens a file that did not exist, named after `path`; its name is then out->temp_path. */
static int open_temp(cli_output_t *out, const char *path) {
    for (int i = 0; i < TEMP_TRIES; i++) {
        char *name = NULL;
        if (asprintf(&name, "%s.%ld-%d.tmp", path, (long)getpid(), i) < 0) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            out->temp_path = name;
            guard_temp(name);
            return fd;
        }
        free(name);
        if (errno != EEXIST) {
            return -1;
        }
    }
    return -1;
}

/* 0 or an errno. Closes fd. */
static int write_and_close(int fd, const void *bytes, size_t length, bool sync) {
    int error = write_all(fd, bytes, length);
    if (error == 0 && sync && fsync(fd) != 0) {
        error = errno;
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    return error;
}

static ferry_status_t write_in_place(const char *path, const void *bytes, size_t length,
                                     ferry_error_t *err) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : write_and_close(fd, bytes, length, false);
    return error == 0 ? FERRY_OK : cli_fail_errno(err, error, "cannot write %s", path);
}

ferry_status_t cli_output_stage(cli_output_t *out, const char *path, const void *bytes,
                                size_t length, ferry_error_t *err) {
    struct stat known;
    if (stat(path, &known) == 0 && !S_ISREG(known.st_mode)) {
        return write_in_place(path, bytes, length, err);
    }
    /* A link keeps being one: the file it leads to is replaced. */
    char *place = realpath(path, NULL);
    out->file_path = place != NULL ? place : strdup(path);
    if (out->file_path == NULL) {
        return cli_fail_nomem(err);
    }
    int fd = open_temp(out, out->file_path);
    int error = fd < 0 ? errno : write_and_close(fd, bytes, length, true);
    return error == 0 ? FERRY_OK : cli_fail_errno(err, error, "cannot write %s", path);
}

/* Makes the rename itself last. What cannot be synced (some network folders) is no failure: the file
 * is in its place. */
static void sync_folder(const char *path) {
    char *folder = strdup(path);
    if (folder == NULL) {
        return;
    }
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    int fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(folder);
}

ferry_status_t cli_output_commit(cli_output_t *out, ferry_error_t *err) {
    if (out->nomem) {
        return cli_fail_nomem(err);
    }
    int error = write_all(STDOUT_FILENO, out->text, out->length);
    if (error != 0 && error != EPIPE) {
        return cli_fail_errno(err, error, "cannot write standard output");
    }
    if (out->temp_path == NULL) {
        return FERRY_OK;
    }
    if (rename(out->temp_path, out->file_path) != 0) {
        return cli_fail_errno(err, errno, "cannot write %s", out->file_path);
    }
    guard_temp(NULL);
    free(out->temp_path);
    out->temp_path = NULL;
    sync_folder(out->file_path);
    return FERRY_OK;
}

/* 0 or an errno. *bytes_p grows by doubling; a terminator is not added. */
static int read_all(int fd, size_t cap, uint8_t **bytes_p, size_t *length_p) {
    uint8_t *bytes = NULL;
    size_t length = 0;
    size_t room = 0;
    for (;;) {
        if (length == room) {
            size_t next = room == 0 ? cap : room * 2;
            uint8_t *grown = next > room ? realloc(bytes, next) : NULL;
            if (grown == NULL) {
                free(bytes);
                return ENOMEM;
            }
            bytes = grown;
            room = next;
        }
        ssize_t done = read(fd, bytes + length, room - length);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            int error = errno;
            free(bytes);
            return error;
        }
        if (done == 0) {
            *bytes_p = bytes;
            *length_p = length;
            return 0;
        }
        length += (size_t)done;
    }
}

ferry_status_t cli_file_read(const char *path, uint8_t **bytes_p, size_t *length_p,
                             ferry_error_t *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return cli_fail_errno(err, errno, "cannot read %s", path);
    }
    struct stat known;
    int error = fstat(fd, &known) != 0 ? errno : 0;
    ferry_status_t status = FERRY_OK;
    if (error == 0 && !S_ISREG(known.st_mode) && !S_ISFIFO(known.st_mode)) {
        status = cli_fail(err, FERRY_IO, "cannot read %s: it is no file", path);
    } else if (error == 0) {
        /* One byte more than the file has, so that its end is seen without growing. */
        size_t cap = S_ISREG(known.st_mode) && known.st_size >= READ_CAP_MIN
                         ? (size_t)known.st_size + 1
                         : READ_CAP_MIN;
        error = read_all(fd, cap, bytes_p, length_p);
    }
    (void)close(fd);
    return error == 0 ? status : cli_fail_errno(err, error, "cannot read %s", path);
}
