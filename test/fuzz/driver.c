/* driver.c - runs a fuzz target without libFuzzer, so that every compiler and every `make test` can.
 *
 *   fuzz.NAME FILE-OR-FOLDER...
 *
 * The target gets each file of the corpus as it is, then mutations of them drawn from a fixed seed:
 * every run does the same. `make soak` draws a hundred times as many. When the target dies, its input
 * is in the file crash.PID of the current folder; kept in the corpus, it becomes a regression case. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/soak.h"

enum { SEED_LIMIT = 1024, INPUT_LIMIT = 64 * 1024, EDIT_LIMIT = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

typedef struct {
    uint8_t *data;
    size_t size;
} input_t;

static input_t seeds[SEED_LIMIT];
static size_t seed_count;
static input_t current;

/* --- when the target dies --- */

static char crash_file[32];

/* Runs in a signal handler: system calls only. */
static void save_current(void) {
    int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0 && write(fd, current.data, current.size) == (ssize_t)current.size) {
        static const char text[] = "the input is in ";
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        (void)!write(STDERR_FILENO, crash_file, strlen(crash_file));
        (void)!write(STDERR_FILENO, "\n", 1);
    }
}

static void on_signal(int signal_number) {
    signal(signal_number, SIG_DFL);
    save_current();
    raise(signal_number);
}

static void watch_for_death(void) {
    snprintf(crash_file, sizeof crash_file, "crash.%ld", (long)getpid());
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(save_current);
        return;
    }
    const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        signal(fatal[i], on_signal);
    }
}

/* --- the corpus --- */

static void die(const char *what, const char *path) {
    fprintf(stderr, "fuzz driver: %s: %s\n", path, what);
    exit(2);
}

static void add_file(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_LIMIT);
    if (!file || !data) {
        die("cannot read", path);
    }
    if (seed_count == SEED_LIMIT) {
        die("too many files in the corpus", path);
    }
    seeds[seed_count++] = (input_t){data, fread(data, 1, INPUT_LIMIT, file)};
    fclose(file);
}

static int not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void add_path(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        die("no such file or folder", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        add_file(path);
        return;
    }
    struct dirent **entries;
    int count = scandir(path, &entries, not_hidden, alphasort); /* the same order everywhere */
    if (count < 0) {
        die("cannot list", path);
    }
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        add_file(name);
        free(entries[i]);
    }
    free(entries);
}

/* --- mutations --- */

/* A number below `bound`, by splitmix64; 0 when there is none. */
static uint64_t draw(uint64_t bound) {
    static uint64_t state = 0x66657272;
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return bound == 0 ? 0 : (z ^ (z >> 31)) % bound;
}

/* Opens a gap of `count` bytes at `at`, as far as there is room; returns its size. */
static size_t open_gap(input_t *in, size_t at, size_t count) {
    size_t room = INPUT_LIMIT - in->size;
    count = count < room ? count : room;
    memmove(in->data + at + count, in->data + at, in->size - at);
    in->size += count;
    return count;
}

static void edit(input_t *in) {
    static const uint8_t telling[] = {0,   1,   0x7f, 0x80, 0xff, '0', '9',
                                      '-', ',', ':',  '(',  ')',  '@'};
    size_t at = (size_t)draw(in->size + 1);
    size_t count = 1 + (size_t)draw(8);
    switch (in->size == 0 ? 0 : draw(6)) {
    case 0: /* put a telling byte in */
        if (open_gap(in, at, 1) == 1) {
            in->data[at] = telling[draw(sizeof telling)];
        }
        break;
    case 1: /* write one over another */
        in->data[at % in->size] = telling[draw(sizeof telling)];
        break;
    case 2: /* flip a bit */
        in->data[at % in->size] ^= (uint8_t)(1u << draw(8));
        break;
    case 3: /* cut some bytes out */
        count = count < in->size - at ? count : in->size - at;
        memmove(in->data + at, in->data + at + count, in->size - at - count);
        in->size -= count;
        break;
    case 4: { /* bring in a piece of another seed */
        const input_t *other = &seeds[draw(seed_count)];
        size_t from = (size_t)draw(other->size + 1);
        size_t left = other->size - from;
        count = open_gap(in, at, count < left ? count : left);
        memcpy(in->data + at, other->data + from, count);
        break;
    }
    default: /* cut the end off, as a broken write would */
        in->size = at;
        break;
    }
}

static void run(void) {
    /* A copy of its own size, so that ASan sees a read past its end. */
    uint8_t *copy = malloc(current.size + (current.size == 0));
    if (!copy) {
        die("out of memory", "input");
    }
    memcpy(copy, current.data, current.size);
    LLVMFuzzerTestOneInput(copy, current.size);
    free(copy);
}

int main(int argc, char **argv) {
    if (LLVMFuzzerInitialize) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    for (int i = 1; i < argc; i++) {
        add_path(argv[i]);
    }
    if (seed_count == 0) {
        die("the corpus is empty", argc > 1 ? argv[1] : "no folder given");
    }
    watch_for_death();
    for (size_t i = 0; i < seed_count; i++) {
        current = seeds[i];
        run();
    }

    long runs = soak_count(20000, 2000000);
    uint8_t *room = malloc(INPUT_LIMIT);
    if (!room) {
        die("out of memory", "input");
    }
    for (long i = 0; i < runs; i++) {
        const input_t *seed = &seeds[draw(seed_count)];
        current = (input_t){room, seed->size};
        memcpy(room, seed->data, seed->size);
        for (uint64_t edits = 1 + draw(EDIT_LIMIT); edits > 0; edits--) {
            edit(&current);
        }
        run();
    }
    printf("%zu files of the corpus, %ld mutations\n", seed_count, runs);
    free(room);
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i].data);
    }
    return 0;
}
