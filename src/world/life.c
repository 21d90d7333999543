/* life.c - is a rank alive, stopped, dead, gone; and what does it wait for?
 *
 * A process is looked at through /proc/PID/stat: no descriptor per peer, and it tells stopped from
 * running. The time at which the process began tells a reused pid. A leading thread that has ended
 * while others run shows as a zombie, too; the number of threads tells that apart. Where /proc hides
 * the peer, only kill(pid, 0) is asked. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "world/world.h"

typedef struct process_stat {
    char state;
    uint64_t threads;
    uint64_t start_time;
    int exit_status; /* as waitpid tells it; 0 when it may not be seen */
} process_stat_t;

/* Fields, counted as in proc(5). */
enum { FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_START = 22, FIELD_EXIT = 52 };

static bool read_stat(int32_t pid, process_stat_t *stat_p) {
    char path[40];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    char *field = strrchr(text, ')'); /* the name before it may hold anything */
    if (field == NULL || field[1] == '\0') {
        return false;
    }
    *stat_p = (process_stat_t){.state = field[2]};
    field += 2;
    for (int number = FIELD_STATE + 1; number <= FIELD_EXIT; number++) {
        field = strchr(field, ' ');
        if (field == NULL) {
            break;
        }
        field++;
        uint64_t value = strtoull(field, NULL, 10);
        if (number == FIELD_THREADS) {
            stat_p->threads = value;
        } else if (number == FIELD_START) {
            stat_p->start_time = value;
        } else if (number == FIELD_EXIT) {
            stat_p->exit_status = (int)value;
        }
    }
    return true;
}

uint64_t fy_process_start_time(int32_t pid) {
    process_stat_t stat;
    return read_stat(pid, &stat) ? stat.start_time : 0;
}

static void say_signal(fy_life_t *life, uint32_t number) {
    (void)snprintf(life->how, sizeof life->how, "killed by signal %u", number);
}

static void say_exit(fy_life_t *life, uint32_t number) {
    (void)snprintf(life->how, sizeof life->how, "exited with code %u", number);
}

/* The dead's own words, where someone reaped it or its zombie is still there. */
static void say_how(fy_life_t *life, uint32_t told, int exit_status) {
    if ((told & FY_EXIT_SIGNAL) != 0) {
        say_signal(life, told & FY_EXIT_NUMBER);
    } else if (told != 0) {
        say_exit(life, told & FY_EXIT_NUMBER);
    } else if (WIFSIGNALED(exit_status)) {
        say_signal(life, (uint32_t)WTERMSIG(exit_status));
    } else if (exit_status != 0) {
        say_exit(life, (uint32_t)WEXITSTATUS(exit_status));
    }
}

/* What the slot alone tells; true when that is all there is to know. */
static bool look_at_slot(const fy_slot_t *slot, fy_life_t *life) {
    *life = (fy_life_t){.life = FERRY_RANK_ALIVE};
    uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    uint32_t told = atomic_load_explicit(&slot->exit, memory_order_acquire);
    if (state == FY_SLOT_LEFT) {
        life->life = FERRY_RANK_LEFT;
        return true;
    }
    if (told != 0) {
        life->life = FERRY_RANK_DEAD;
        say_how(life, told, 0);
        return true;
    }
    if (state == FY_SLOT_ABSENT) {
        life->life = FERRY_RANK_ABSENT;
        return true;
    }
    return false;
}

void fy_look_thread(const ferry_world_t *world, uint32_t rank, fy_life_t *life_p) {
    (void)look_at_slot(fy_world_slot(world, rank), life_p);
}

void fy_look_process(const ferry_world_t *world, uint32_t rank, fy_life_t *life_p) {
    const fy_slot_t *slot = fy_world_slot(world, rank);
    if (look_at_slot(slot, life_p)) {
        return;
    }
    int32_t pid = atomic_load(&slot->pid);
    process_stat_t stat;
    bool dead = false;
    int exit_status = 0;
    if (!read_stat(pid, &stat)) {
        dead = kill(pid, 0) != 0 && errno == ESRCH;
    } else if (slot->start_time != 0 && stat.start_time != slot->start_time) {
        dead = true;
    } else if ((stat.state == 'Z' || stat.state == 'X') && stat.threads <= 1) {
        dead = true;
        exit_status = stat.exit_status;
    } else if (stat.state == 'T') {
        life_p->life = FERRY_RANK_STOPPED;
    }
    if (dead && !look_at_slot(slot, life_p)) { /* it may have left, or been reaped, meanwhile */
        life_p->life = FERRY_RANK_DEAD;
        say_how(life_p, 0, exit_status);
    }
}

ferry_rank_life_t ferry_world_rank_life(ferry_world_t *world, uint32_t rank) {
    if (world == NULL || rank >= world->size) {
        return FERRY_RANK_ABSENT;
    }
    fy_life_t life;
    world->kind->look(world, rank, &life);
    return life.life;
}

/* --- what a rank waits for: words in atomics, since others read them at any time ----------------- */

void fy_say_waits(ferry_world_t *world, uint32_t peer, const char *what) {
    fy_slot_t *slot = fy_world_slot(world, world->rank);
    char text[FY_WHAT_WORDS * 8] = "";
    (void)snprintf(text, sizeof text, "%s", what);
    for (size_t i = 0; i < FY_WHAT_WORDS; i++) {
        uint64_t word = 0;
        memcpy(&word, text + i * 8, 8);
        atomic_store_explicit(&slot->what[i], word, memory_order_relaxed);
    }
    atomic_store_explicit(&slot->waits_for, peer, memory_order_relaxed);
    atomic_store_explicit(&slot->waits, 1, memory_order_release);
}

void fy_say_goes_on(ferry_world_t *world) {
    fy_slot_t *slot = fy_world_slot(world, world->rank);
    atomic_store_explicit(&slot->sleeps_at, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->waits, 0, memory_order_release);
}

void fy_say_sleeps(ferry_world_t *world, const fy_counter_t *counter) {
    uint64_t at = (uintptr_t)counter - (uintptr_t)world->space->base;
    bool shared = at < world->space->control->total_bytes;
    atomic_store(&fy_world_slot(world, world->rank)->sleeps_at, shared ? at + 1 : 0);
}

void fy_wake_all(ferry_world_t *world) {
    uint64_t last = world->space->control->total_bytes - sizeof(fy_counter_t);
    for (uint32_t rank = 0; rank < world->size; rank++) {
        uint64_t at = atomic_load(&fy_world_slot(world, rank)->sleeps_at);
        if (rank != world->rank && at > 0 && at - 1 <= last &&
            (at - 1) % sizeof(fy_counter_t) == 0) {
            fy_wake((fy_counter_t *)(void *)(world->space->base + at - 1));
        }
    }
}

bool fy_what_waits(const ferry_world_t *world, uint32_t rank, uint32_t *peer_p, char *what,
                   size_t cap) {
    const fy_slot_t *slot = fy_world_slot(world, rank);
    if (atomic_load_explicit(&slot->waits, memory_order_acquire) == 0) {
        return false;
    }
    char text[FY_WHAT_WORDS * 8 + 1] = "";
    for (size_t i = 0; i < FY_WHAT_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&slot->what[i], memory_order_relaxed);
        memcpy(text + i * 8, &word, 8);
    }
    (void)snprintf(what, cap, "%s", text);
    *peer_p = atomic_load_explicit(&slot->waits_for, memory_order_relaxed);
    return true;
}

void fy_describe_death(const ferry_world_t *world, uint32_t rank, ferry_error_t *record_p) {
    fy_life_t life;
    world->kind->look(world, rank, &life);
    char waited[96] = "";
    uint32_t waiter = FERRY_RANK_NONE;
    for (uint32_t other = 0; other < world->size && waiter == FERRY_RANK_NONE; other++) {
        uint32_t peer = FERRY_RANK_NONE;
        char what[FY_WHAT_WORDS * 8 + 1];
        if (other != rank && fy_what_waits(world, other, &peer, what, sizeof what) &&
            peer == rank) {
            waiter = other;
            (void)snprintf(waited, sizeof waited, "; rank %u waited for it in %s", waiter, what);
        }
    }
    (void)fy_fail(record_p, FERRY_DEAD, "rank %u is dead (%s)%s", rank,
                  life.how[0] != '\0' ? life.how : "nobody knows how", waited);
    record_p->rank = waiter != FERRY_RANK_NONE ? waiter : rank;
    record_p->peer = waiter != FERRY_RANK_NONE ? rank : FERRY_RANK_NONE;
}
