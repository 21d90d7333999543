/* doctor_measure.c - tries out what the system only claims.
 *
 * Two processes meet as ranks of a world; one reads the other's private memory and they wake each other
 * by futex. This process then touches shared pages and copies memory, with one core and with all.
 * What the ranks find goes to a page that is shared with this process.
 *
 * Invariant: every loop ends by count or by deadline; on any failure a figure stays 0. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <ferry/world.h>

#include "../bench/limit.h"
#include "doctor.h"
#include "output.h"

enum {
    READ_BYTES = 32 << 20,
    LONG_RUN = 32 << 10,
    SHORT_RUN = 256,
    SHORT_BYTES = 2 << 20, /* short runs are slow */
    IOVECS = 64,
    TOUCH_BYTES = 64 << 20,
    COPY_BYTES = 96 << 20, /* three times a large cache */
    COPY_ROUNDS = 4,       /* the first warms up */
    TURNS = 2000,
    WORLD_TIMEOUT_MS = 10000,
};

#define TURNS_SECONDS 0.4 /* at most, however slow the futex is */

/* Shared by this process and the two ranks. */
typedef struct bulletin {
    _Atomic uint32_t turn; /* even: rank 0's */
    _Atomic uint32_t over;
    pid_t pid;
    uint64_t at; /* rank 0's private memory */
    bool can_read;
    double long_gbps;
    double short_gbps;
    double futex_us;
} bulletin_t;

/* ---- cross-process reads ----------------------------------------------------------------------- */

/* Reads `bytes` in runs that lie twice their length apart. Seconds, or 0 when a read fails. */
static double read_runs(const bulletin_t *board, uint8_t *into, size_t bytes, size_t run) {
    struct iovec local[IOVECS];
    struct iovec remote[IOVECS];
    double begin = cli_clock();
    for (size_t done = 0; done < bytes; done += IOVECS * run) {
        for (size_t i = 0; i < IOVECS; i++) {
            size_t at = done + i * run;
            local[i] = (struct iovec){into + at, run};
            /* An address of the other process, never used here. */
            remote[i] = (struct iovec){NULL, run};
            uintptr_t address = (uintptr_t)board->at + 2 * at % READ_BYTES;
            memcpy(&remote[i].iov_base, &address, sizeof address);
        }
        if (process_vm_readv(board->pid, local, IOVECS, remote, IOVECS, 0) !=
            (ssize_t)(IOVECS * run)) {
            return 0;
        }
    }
    return cli_clock() - begin;
}

/* The first pass maps the pages, the second is timed. */
static double read_gbps(const bulletin_t *board, uint8_t *into, size_t bytes, size_t run) {
    (void)read_runs(board, into, bytes, run);
    double seconds = read_runs(board, into, bytes, run);
    return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}

static ferry_status_t try_reads(ferry_world_t *world, bulletin_t *board, ferry_error_t *err) {
    uint8_t *memory = malloc(READ_BYTES);
    if (memory == NULL) {
        return FERRY_OK; /* figures stay 0 */
    }
    memset(memory, 1, READ_BYTES);
    if (ferry_world_rank(world) == 0) {
        board->pid = getpid();
        board->at = (uint64_t)(uintptr_t)memory;
    }
    ferry_status_t status = ferry_group_barrier(ferry_world_group(world), err);
    if (status == FERRY_OK && ferry_world_rank(world) == 1) {
        board->can_read = ferry_world_can_read(world, 0);
        if (board->can_read) {
            board->long_gbps = read_gbps(board, memory, READ_BYTES, LONG_RUN);
            board->short_gbps = read_gbps(board, memory, SHORT_BYTES, SHORT_RUN);
        }
    }
    if (status == FERRY_OK) {
        status = ferry_group_barrier(ferry_world_group(world), err);
    }
    free(memory);
    return status;
}

/* ---- waking ------------------------------------------------------------------------------------ */

static void futex(_Atomic uint32_t *word, int operation, uint32_t value) {
    struct timespec limit = {.tv_sec = 1};
    (void)syscall(SYS_futex, word, operation, value, operation == FUTEX_WAIT ? &limit : NULL, NULL,
                  0);
}

/* Both ranks hand the turn to and fro; each sleeps at once when it is not theirs. */
static void take_turns(bulletin_t *board, uint32_t rank) {
    double begin = cli_clock();
    uint32_t turn = rank;
    while (turn < 2 * TURNS) {
        uint32_t seen = atomic_load(&board->turn);
        if (seen != turn) {
            if (atomic_load(&board->over) != 0 || cli_clock() - begin > 4 * TURNS_SECONDS) {
                break;
            }
            futex(&board->turn, FUTEX_WAIT, seen);
            continue;
        }
        if (rank == 0 && cli_clock() - begin > TURNS_SECONDS) {
            break;
        }
        turn += 2;
        atomic_store(&board->turn, seen + 1);
        futex(&board->turn, FUTEX_WAKE, 1);
    }
    if (rank == 0) {
        uint32_t trips = turn / 2;
        board->futex_us = trips > 0 ? (cli_clock() - begin) / trips * 1e6 : 0;
        atomic_store(&board->over, 1);
        futex(&board->turn, FUTEX_WAKE, 1);
    }
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    bulletin_t *board = context;
    ferry_status_t status = try_reads(world, board, err);
    if (status == FERRY_OK) {
        take_turns(board, ferry_world_rank(world));
    }
    return status;
}

static void measure_processes(doctor_facts_t *facts) {
    bulletin_t *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        facts->world = FERRY_NOMEM;
        return;
    }
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = WORLD_TIMEOUT_MS;
    facts->world =
        ferry_world_run_processes(2, rank_main, board, &params, NULL, &facts->world_error);
    facts->can_read = board->can_read;
    facts->read_long_gbps = board->long_gbps;
    facts->read_short_gbps = board->short_gbps;
    facts->futex_us = board->futex_us;
    (void)munmap(board, sizeof *board);
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Shared memory as ferry takes it: reserved, then mapped. NULL when there is none. */
static uint8_t *map_shared(size_t bytes) {
    void *memory = MAP_FAILED;
    int fd = memfd_create("ferry-doctor", MFD_CLOEXEC);
    if (fd >= 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return memory != MAP_FAILED ? memory : NULL;
}

static void touch(uint8_t *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) {
        *(volatile uint8_t *)(memory + at) = 1;
    }
}

static void measure_touch(doctor_facts_t *facts) {
    double begin = cli_clock();
    uint8_t *memory = map_shared(TOUCH_BYTES);
    if (memory != NULL) {
        touch(memory, TOUCH_BYTES);
        facts->touch_gbps = TOUCH_BYTES / (cli_clock() - begin) / 1e9;
        (void)munmap(memory, TOUCH_BYTES);
    }
}

/* The best of a few rounds, by the two methods that win on large copies. */
static double copy_gbps(uint8_t *memory) {
    enum { PIECES = 64 };
    bench_copy_t copy = {.source = memory,
                         .target = memory + COPY_BYTES,
                         .rows = PIECES,
                         .row_bytes = COPY_BYTES / PIECES,
                         .source_stride = COPY_BYTES / PIECES,
                         .target_stride = COPY_BYTES / PIECES};
    static const limit_method_t methods[] = {LIMIT_MEMCPY, LIMIT_STREAM};
    limit_t *limit = limit_create(&copy, 1);
    double best = 0;
    for (int i = 0; limit != NULL && i < 2 * COPY_ROUNDS; i++) {
        if (limit_has(methods[i % 2])) {
            double seconds = limit_round_in(limit, methods[i % 2], LIMIT_BY_TARGET);
            double gbps = COPY_BYTES / seconds / 1e9;
            best = gbps > best ? gbps : best;
        }
    }
    limit_destroy(limit);
    return best;
}

/* Workers are made for the cores that this thread may use: on one of them, and on all. */
static void measure_copies(doctor_facts_t *facts) {
    uint8_t *memory = map_shared((size_t)2 * COPY_BYTES);
    cpu_set_t all;
    if (memory == NULL || sched_getaffinity(0, sizeof all, &all) != 0) {
        return;
    }
    touch(memory, (size_t)2 * COPY_BYTES);
    facts->copy_all_gbps = copy_gbps(memory);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &all)) {
            CPU_SET(core, &one);
            break;
        }
    }
    if (sched_setaffinity(0, sizeof one, &one) == 0) {
        facts->copy_one_gbps = copy_gbps(memory);
        /* What one core does, all can do; a busy machine may have shown less. */
        facts->copy_all_gbps = fmax(facts->copy_all_gbps, facts->copy_one_gbps);
        (void)sched_setaffinity(0, sizeof all, &all);
    }
    (void)munmap(memory, (size_t)2 * COPY_BYTES);
}

void doctor_measure(doctor_facts_t *facts) {
    measure_processes(facts);
    measure_touch(facts);
    measure_copies(facts);
}
