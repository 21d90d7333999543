/* commit.c - a commit and its readers. The writer's side is in commit_try.c.
 *
 * All that is decided is decided in one word of shared memory, by compare-and-swap: version, number of
 * the try, phase. Flip: version v lies in copy v % 2. The moves, each made by whichever rank comes first:
 *
 *     flip:  (v, t, open) --all voted--> (v + 1, 0, open)
 *     gate:  (v, t, open) --all voted--> (v, t, shut) --no holds--> (v + 1, 0, copying)
 *                                          (v + 1, 0, copying) --all copied in--> (v + 1, 0, open)
 *     both:  (v, t, open or shut) --someone gives up--> (v, t + 1, open)
 *
 * A vote is the word that the try began with, so a vote for one try is none for another, and a word never
 * comes back. Nobody ever waits for one certain rank to make a move: a rank that dies between any two
 * instructions has either made its move, or left it to the others. What it alone could do (vote, copy in)
 * they do without: before the decision by giving up, after it by counting only the living.
 *
 * Invariants. A reader counts its claim first and looks at the state then; a writer moves the state first
 * and looks at the claims then; all of it sequentially consistent. So of a reader and a writer that meet,
 * at least one sees the other, and the reader steps back:
 *   flip   who has claimed copy c and then seen it current holds it: c is written only by a try that
 *          began after the state moved on from c, and begins by waiting for all claims on c.
 *   gate   who has claimed and then seen the gate open holds: the decision needs a shut gate and then no claim
 *          on any rank.
 * Claims of those who will step back only hold writers off a little longer.
 *
 * Holds nest: under a shut gate a thread that already holds is let in, or it would wait for itself. It
 * claims, then adds itself to `held`, but only if that is not 0. A holder takes itself off `held` before
 * it drops its claim, so at that moment some holder's claim was still counted, and ours was, too: since
 * the gate was shut the claims of this rank were never seen at 0. Which threads may try that is a guess,
 * kept per thread; guessing wrong lets in a reader early, or late, and nothing else.
 *
 * The shared block belongs to member 0. It is given back when member 0 destroys its handle after the
 * others, else when the world ends: it is a page or a few, and readers may still look at it. */
#include "reshard/commit.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <ferry/mem.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "reshard/commit_state.h"
#include "world/world.h"

#define MS UINT64_C(1000000)
#define NESTS 8 /* commits of which one thread holds something at the same time, under a gate */

/* --- create and destroy -------------------------------------------------------------------------- */

/* What ranks tell each other when a commit is made. */
typedef struct hello {
    ferry_error_t error;
    uint32_t mode;
    ferry_mem_key_t key; /* of member 0 */
} hello_t;

static ferry_status_t make_shared(ferry_commit_t *commit, ferry_mem_key_t *key_p,
                                  ferry_error_t *err) {
    size_t bytes = sizeof(fy_commit_shared_t) + commit->size * sizeof(fy_commit_line_t);
    FY_TRY(ferry_mem_alloc(commit->world, bytes, &commit->memory, err));
    FY_TRY(ferry_mem_register(commit->world, commit->memory, bytes, key_p, err));
    fy_commit_shared_t *shared = commit->memory;
    atomic_store(&shared->state, fy_commit_word(0, 0, FY_COMMIT_OPEN));
    return FERRY_OK;
}

static ferry_status_t introduce(ferry_commit_t *commit, hello_t *mine) {
    ferry_status_t status = FERRY_OK;
    if (commit->mode != FERRY_COMMIT_FLIP && commit->mode != FERRY_COMMIT_GATE) {
        status =
            fy_fail(&mine->error, FERRY_INVALID, "commit: mode %d is unknown", (int)commit->mode);
    } else if (commit->me == 0) {
        status = make_shared(commit, &mine->key, &mine->error);
    }
    if (status != FERRY_OK) {
        fy_error_ranks(&mine->error, ferry_world_rank(commit->world), FERRY_RANK_NONE);
    }
    return status;
}

/* The same on all ranks, since all judge by the same. */
static ferry_status_t judge(const ferry_commit_t *commit, const hello_t *all, ferry_error_t *err) {
    for (uint32_t member = 0; member < commit->size; member++) {
        if (all[member].error.status != FERRY_OK) {
            if (err != NULL) {
                *err = all[member].error;
            }
            return all[member].error.status;
        }
    }
    for (uint32_t member = 1; member < commit->size; member++) {
        if (all[member].mode != all[0].mode) {
            (void)fy_fail(err, FERRY_MISMATCH, "commit: one rank asks for %s, the other for %s",
                          all[member].mode == FERRY_COMMIT_FLIP ? "flip" : "gate",
                          all[0].mode == FERRY_COMMIT_FLIP ? "flip" : "gate");
            fy_error_ranks(err, ferry_group_world_rank(commit->group, member),
                           ferry_group_world_rank(commit->group, 0));
            return FERRY_MISMATCH;
        }
    }
    return FERRY_OK;
}

static ferry_status_t meet(ferry_commit_t *commit, hello_t *all, ferry_error_t *err) {
    hello_t mine;
    memset(&mine, 0, sizeof mine);
    mine.error = (ferry_error_t)FERRY_ERROR_INIT;
    mine.mode = (uint32_t)commit->mode;
    (void)introduce(commit, &mine);
    FY_TRY(ferry_group_allgather(commit->group, &mine, sizeof mine, all, err));
    FY_TRY(judge(commit, all, err));
    void *memory = NULL;
    FY_TRY(ferry_mem_map(commit->world, &all[0].key, &memory, err));
    commit->shared = memory;
    return FERRY_OK;
}

ferry_status_t ferry_commit_create(ferry_group_t *group, ferry_commit_mode_t mode,
                                   ferry_commit_t **commit_p, ferry_error_t *err) {
    FY_NEED(group, err);
    FY_NEED(commit_p, err);
    ferry_world_t *world = ferry_group_world(group);
    FY_TRY(ferry_world_check(world, err));
    ferry_commit_t *commit = fy_alloc_zero(1, sizeof *commit);
    hello_t *all = fy_alloc_zero(ferry_group_size(group), sizeof *all);
    if (commit == NULL || all == NULL) {
        fy_free(commit);
        fy_free(all);
        ferry_error_t mine = FERRY_ERROR_INIT;
        (void)fy_fail_nomem(&mine, "a commit");
        return ferry_world_fail(world, &mine, err);
    }
    commit->group = group;
    commit->world = world;
    commit->mode = mode;
    commit->me = ferry_group_rank(group);
    commit->size = ferry_group_size(group);
    ferry_status_t status = meet(commit, all, err);
    fy_free(all);
    if (status != FERRY_OK) {
        (void)ferry_mem_free(world, commit->memory, NULL);
        fy_free(commit);
        return status;
    }
    *commit_p = commit;
    return FERRY_OK;
}

/* Will no other rank look at the shared block any more? */
static bool is_alone(const ferry_commit_t *commit) {
    for (uint32_t member = 0; member < commit->size; member++) {
        if (atomic_load(&commit->shared->lines[member].closed) == 0 &&
            !fy_commit_is_gone(commit, member)) {
            return false;
        }
    }
    return true;
}

void ferry_commit_destroy(ferry_commit_t *commit) {
    if (commit == NULL) {
        return;
    }
    if (fy_world_usable(commit->world, NULL) == FERRY_OK) {
        atomic_store(&commit->shared->lines[commit->me].closed, 1);
        if (commit->memory != NULL && is_alone(commit)) {
            (void)ferry_mem_free(commit->world, commit->memory, NULL);
        }
    }
    fy_free(commit);
}

ferry_commit_mode_t ferry_commit_mode(const ferry_commit_t *commit) {
    return commit->mode;
}

uint64_t ferry_commit_version(const ferry_commit_t *commit) {
    return commit == NULL ? 0 : fy_commit_version_of(atomic_load(&commit->shared->state));
}

/* --- waiting in a world that may have failed ------------------------------------------------------ */

bool fy_commit_nap(const ferry_commit_t *commit, fy_counter_t *counter, uint32_t seen,
                   uint64_t *slept_ns) {
    uint32_t timeout_ms = ferry_world_timeout_ms(commit->world);
    uint64_t limit = timeout_ms == FERRY_TIMEOUT_NONE ? UINT64_MAX : timeout_ms * MS;
    if (*slept_ns >= limit) {
        return false;
    }
    uint64_t slice = fy_min_u64(limit - *slept_ns, FY_SLICE_MS * MS);
    struct timespec timeout = {0, (long)slice};
    uint64_t begin = fy_clock_ns();
    (void)atomic_fetch_add(&counter->sleepers, 1);
    if (atomic_load(&counter->value) == seen) {
        (void)syscall(SYS_futex, &counter->value, FUTEX_WAIT, seen, &timeout, NULL, 0);
    }
    (void)atomic_fetch_sub(&counter->sleepers, 1);
    /* Time in which this process did not run, being stopped, is not held against others. */
    *slept_ns += fy_min_u64(fy_clock_ns() - begin, slice);
    return true;
}

/* --- readers -------------------------------------------------------------------------------------- */

/* How deep this thread is in which commits. A guess: another thread may release. */
typedef struct nest {
    const ferry_commit_t *commit;
    uint32_t depth;
} nest_t;

static _Thread_local nest_t nests[NESTS];

static nest_t *find_nest(const ferry_commit_t *commit) {
    for (size_t i = 0; i < NESTS; i++) {
        if (nests[i].commit == commit && nests[i].depth > 0) {
            return &nests[i];
        }
    }
    return NULL;
}

static void note_acquired(const ferry_commit_t *commit) {
    nest_t *nest = find_nest(commit);
    for (size_t i = 0; i < NESTS && nest == NULL; i++) {
        nest = nests[i].depth == 0 ? &nests[i] : NULL;
    }
    if (nest != NULL) {
        nest->commit = commit;
        nest->depth++;
    }
}

static void note_released(const ferry_commit_t *commit) {
    nest_t *nest = find_nest(commit);
    if (nest != NULL) {
        nest->depth--;
    }
}

static void drop_claim(fy_commit_line_t *line, uint32_t copy) {
    if (atomic_fetch_sub(&line->claims[copy], 1) == 1) {
        fy_counter_add(&line->released, 1);
    }
}

/* Through an open gate, or to the current copy. */
static bool enter(ferry_commit_t *commit, ferry_hold_t *hold_p) {
    uint64_t before = atomic_load(&commit->shared->state);
    if (fy_commit_phase_of(before) != FY_COMMIT_OPEN) {
        return false;
    }
    fy_commit_line_t *line = &commit->shared->lines[commit->me];
    uint32_t copy = fy_commit_copy_of(commit, fy_commit_version_of(before));
    (void)atomic_fetch_add(&line->claims[copy], 1);
    uint64_t now = atomic_load(&commit->shared->state);
    uint64_t version = fy_commit_version_of(now);
    if (fy_commit_phase_of(now) != FY_COMMIT_OPEN || fy_commit_copy_of(commit, version) != copy) {
        drop_claim(line, copy);
        return false;
    }
    if (commit->mode == FERRY_COMMIT_GATE) {
        (void)atomic_fetch_add(&line->held, 1);
    }
    *hold_p = (ferry_hold_t){version, copy};
    return true;
}

/* Through a shut gate, beside a hold of this rank. */
static bool join(ferry_commit_t *commit, ferry_hold_t *hold_p) {
    fy_commit_line_t *line = &commit->shared->lines[commit->me];
    (void)atomic_fetch_add(&line->claims[0], 1);
    uint32_t held = atomic_load(&line->held);
    while (held != 0 && !atomic_compare_exchange_weak(&line->held, &held, held + 1)) {
    }
    if (held == 0) {
        drop_claim(line, 0);
        return false;
    }
    *hold_p = (ferry_hold_t){fy_commit_version_of(atomic_load(&commit->shared->state)), 0};
    return true;
}

static ferry_status_t acquire(ferry_commit_t *commit, ferry_hold_t *hold_p, ferry_error_t *err) {
    uint64_t slept_ns = 0;
    for (;;) {
        uint32_t seen = fy_counter_load(&commit->shared->opened);
        if (enter(commit, hold_p) || (find_nest(commit) != NULL && join(commit, hold_p))) {
            return FERRY_OK;
        }
        bool is_open = fy_commit_phase_of(atomic_load(&commit->shared->state)) == FY_COMMIT_OPEN;
        if (!is_open && !fy_commit_nap(commit, &commit->shared->opened, seen, &slept_ns)) {
            (void)fy_fail(err, FERRY_TIMEOUT, "the gate of a commit has been shut for %.3g s",
                          (double)slept_ns / 1e9);
            fy_error_ranks(err, ferry_world_rank(commit->world), FERRY_RANK_NONE);
            return FERRY_TIMEOUT;
        }
    }
}

ferry_status_t ferry_commit_acquire(ferry_commit_t *commit, ferry_hold_t *hold_p,
                                    ferry_error_t *err) {
    FY_NEED(commit, err);
    FY_NEED(hold_p, err);
    FY_TRY(fy_world_usable(commit->world, err));
    FY_TRY(acquire(commit, hold_p, err));
    if (commit->mode == FERRY_COMMIT_GATE) {
        note_acquired(commit);
    }
    return FERRY_OK;
}

void ferry_commit_release(ferry_commit_t *commit, const ferry_hold_t *hold) {
    if (commit == NULL || hold == NULL || hold->copy > 1 ||
        fy_world_usable(commit->world, NULL) != FERRY_OK) {
        return;
    }
    fy_commit_line_t *line = &commit->shared->lines[commit->me];
    if (commit->mode == FERRY_COMMIT_GATE) {
        note_released(commit);
        (void)atomic_fetch_sub(&line->held, 1);
    }
    drop_claim(line, hold->copy);
}
