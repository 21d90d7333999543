/* processes.c - a world of processes that this one forks.
 *
 * The launcher stays: it reaps its children (and only those), tells the world how one died, and kills
 * what is still there when the grace after a failure is over. When it dies itself, the kernel kills the
 * children. Each child is watched through a pidfd, so nothing of the host program's signals is used. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"
#include "world/launch.h"

#define LOOK_MS 50 /* between looks whether the world has failed */

typedef struct child {
    pid_t pid; /* 0: not started, or reaped */
    ferry_rank_result_t result;
} child_t;

typedef struct nursery {
    const fy_launch_t *launch;
    child_t *children;
    struct pollfd *polls; /* pidfd of each child; -1: gone */
    uint32_t alive;
    uint64_t kill_ns; /* when the grace is over; 0: nothing has failed */
} nursery_t;

static _Noreturn void child_main(const nursery_t *nursery, uint32_t rank, pid_t parent) {
    const fy_launch_t *launch = nursery->launch;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    for (uint32_t other = 0; other < rank; other++) {
        (void)close(nursery->polls[other].fd);
    }
    *launch->space->mine = 1; /* the mapping is ours now, too */
    ferry_world_t *world = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = fy_world_create(launch->space, &fy_kind_processes, rank,
                                            launch->params.timeout_ms, &world, &err);
    if (status == FERRY_OK) {
        fy_world_count_cores(world);
        fy_world_enter(world);
        status = fy_world_live(world, launch->fn, launch->context, &err);
    } else {
        /* No handle of its own: the result in the slot tells the launcher. */
        fy_slot_t *slot = &launch->space->slots[rank];
        slot->result = err;
        atomic_store_explicit(&slot->state, FY_SLOT_LEFT, memory_order_release);
    }
    (void)fflush(NULL);
    _exit(status == FERRY_OK ? 0 : 1);
}

static ferry_status_t start_one(nursery_t *nursery, uint32_t rank, ferry_error_t *err) {
    pid_t parent = getpid();
    (void)fflush(NULL); /* or the child would write it again */
    pid_t pid = fork();
    if (pid == 0) {
        child_main(nursery, rank, parent);
    }
    int number = errno;
    int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid > 0 && fd < 0) {
        number = errno;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (fd < 0) {
        ferry_status_t status =
            fy_fail(err, FERRY_NOMEM, "cannot start the process of rank %u", rank);
        if (err != NULL) {
            err->rank = rank;
            err->sys_errno = number;
        }
        return status;
    }
    nursery->children[rank].pid = pid;
    nursery->polls[rank].fd = fd;
    nursery->alive++;
    return FERRY_OK;
}

/* A child that cannot start fails the world; those before it then end. */
static void start_all(nursery_t *nursery) {
    for (uint32_t rank = 0; rank < nursery->launch->size; rank++) {
        child_t *child = &nursery->children[rank];
        ferry_error_t mine = FERRY_ERROR_INIT;
        child->result.exit_code = -1;
        if (start_one(nursery, rank, &mine) != FERRY_OK) {
            (void)ferry_world_fail(nursery->launch->watcher, &mine, NULL);
            for (uint32_t other = rank; other < nursery->launch->size; other++) {
                nursery->children[other].result.status = mine.status;
                nursery->children[other].result.error = mine;
                fy_slot_t *slot = &nursery->launch->space->slots[other];
                atomic_store_explicit(&slot->state, FY_SLOT_LEFT, memory_order_release);
            }
            return;
        }
    }
}

/* What the child said itself, or how it died; the latter is told to the world. */
static void take_result(nursery_t *nursery, uint32_t rank, int wait_status) {
    ferry_rank_result_t *result = &nursery->children[rank].result;
    ferry_world_t *watcher = nursery->launch->watcher;
    fy_slot_t *slot = fy_world_slot(watcher, rank);
    bool signaled = WIFSIGNALED(wait_status);
    result->signal = signaled ? WTERMSIG(wait_status) : 0;
    result->exit_code = signaled ? -1 : WEXITSTATUS(wait_status);
    uint32_t told = FY_EXIT_KNOWN | (uint32_t)(signaled ? result->signal : result->exit_code);
    atomic_store_explicit(&slot->exit, told | (signaled ? FY_EXIT_SIGNAL : 0),
                          memory_order_release);
    if (atomic_load_explicit(&slot->state, memory_order_acquire) == FY_SLOT_LEFT) {
        result->error = slot->result;
        result->status = slot->result.status;
        if (result->status == FERRY_OK) {
            return;
        }
        (void)ferry_world_fail(watcher, &result->error, NULL); /* it could not, without a handle */
        return;
    }
    fy_describe_death(watcher, rank, &result->error);
    result->status = result->error.status;
    (void)ferry_world_fail(watcher, &result->error, NULL);
}

static void reap(nursery_t *nursery, uint32_t rank) {
    child_t *child = &nursery->children[rank];
    int wait_status = 0;
    pid_t pid = 0;
    do {
        pid = waitpid(child->pid, &wait_status, 0);
    } while (pid < 0 && errno == EINTR);
    if (pid < 0) {
        wait_status = 0; /* the host program ignores SIGCHLD: nobody knows how it ended */
    }
    (void)close(nursery->polls[rank].fd);
    nursery->polls[rank].fd = -1;
    child->pid = 0;
    nursery->alive--;
    take_result(nursery, rank, wait_status);
}

/* After a failure the rest may finish, but not for ever. While all are there they may recover, each
 * within its own deadline; the grace begins when the first has ended. */
static void watch_grace(nursery_t *nursery) {
    const fy_launch_t *launch = nursery->launch;
    if (launch->params.grace_ms == FERRY_TIMEOUT_NONE) {
        return;
    }
    bool all_there = nursery->alive == launch->size;
    if (all_there || fy_world_agreed(launch->watcher, NULL) == FERRY_OK) {
        nursery->kill_ns = 0; /* nothing failed, or it may recover */
        return;
    }
    uint64_t now = fy_clock_ns();
    if (nursery->kill_ns == 0) {
        nursery->kill_ns = now + launch->params.grace_ms * UINT64_C(1000000);
    } else if (now >= nursery->kill_ns) {
        for (uint32_t rank = 0; rank < launch->size; rank++) {
            if (nursery->children[rank].pid > 0) {
                (void)kill(nursery->children[rank].pid, SIGKILL);
            }
        }
    }
}

static void watch_all(nursery_t *nursery) {
    while (nursery->alive > 0) {
        int ready = poll(nursery->polls, nursery->launch->size, LOOK_MS);
        for (uint32_t rank = 0; ready > 0 && rank < nursery->launch->size; rank++) {
            if (nursery->polls[rank].fd >= 0 && nursery->polls[rank].revents != 0) {
                reap(nursery, rank);
            }
        }
        watch_grace(nursery);
    }
}

static ferry_status_t run(const fy_launch_t *launch, ferry_rank_result_t *all, ferry_error_t *err) {
    nursery_t nursery = {.launch = launch};
    nursery.children = fy_alloc_zero(launch->size, sizeof *nursery.children);
    nursery.polls = fy_alloc_zero(launch->size, sizeof *nursery.polls);
    ferry_status_t status = FERRY_NOMEM;
    if (nursery.children == NULL || nursery.polls == NULL) {
        status = fy_fail_nomem(err, "processes");
    } else {
        for (uint32_t rank = 0; rank < launch->size; rank++) {
            nursery.polls[rank] = (struct pollfd){-1, POLLIN, 0};
        }
        start_all(&nursery);
        watch_all(&nursery);
        for (uint32_t rank = 0; rank < launch->size; rank++) {
            all[rank] = nursery.children[rank].result;
        }
        status = fy_launch_outcome(launch, all, err);
    }
    fy_free(nursery.children);
    fy_free(nursery.polls);
    return status;
}

ferry_status_t ferry_world_run_processes(uint32_t size, ferry_rank_fn_t fn, void *context,
                                         const ferry_world_params_t *params,
                                         ferry_rank_result_t *results, ferry_error_t *err) {
    fy_launch_t launch;
    FY_TRY(fy_launch_init(&launch, &fy_kind_processes, size, fn, context, params, err));
    ferry_rank_result_t *all = fy_alloc_zero(size, sizeof *all);
    ferry_status_t status = all != NULL ? run(&launch, all, err) : fy_fail_nomem(err, "processes");
    if (all != NULL && results != NULL) {
        memcpy(results, all, size * sizeof *all);
    }
    fy_free(all);
    fy_launch_fini(&launch);
    return status;
}
