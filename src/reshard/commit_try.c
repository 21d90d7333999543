/* commit_try.c - the writer's side of a commit: one try, from begin to finish. The protocol is told at the
 * top of commit.c.
 *
 * Each step is a look: it makes whatever move of the state it finds due, and says what it lacks
 * otherwise. Looks never wait and may be repeated at will; what is lacking (a vote, a release, a copy) is
 * always announced by a counter of the member that owes it, so waiting is for that one member, with its
 * life in view. */
#include "reshard/commit.h"

#include <assert.h>
#include <inttypes.h>

#include "base/fail.h"
#include "reshard/commit_state.h"
#include "world/world.h"

#define MS UINT64_C(1000000)

/* What a step lacks: `counter` moves on from `seen` when `member` has done it. */
typedef struct need {
    fy_counter_t *counter;
    uint32_t seen;
    uint32_t member; /* FERRY_RANK_NONE: anyone */
    const char *what;
} need_t;

/* *done_p, or *need_p tells what is lacking. */
typedef ferry_status_t (*look_fn_t)(ferry_commit_t *commit, need_t *need_p, bool *done_p,
                                    ferry_error_t *err);

static bool is_new_version(const ferry_commit_t *commit, uint64_t state) {
    return fy_commit_version_of(state) != fy_commit_version_of(commit->mine);
}

/* --- what is lacking ------------------------------------------------------------------------------ */

static bool nobody_claims(ferry_commit_t *commit, uint32_t copy, need_t *need_p) {
    for (uint32_t member = 0; member < commit->size; member++) {
        fy_commit_line_t *line = &commit->shared->lines[member];
        *need_p = (need_t){&line->released, fy_counter_load(&line->released), member,
                           "release of a version"};
        if (atomic_load(&line->claims[copy]) != 0) {
            return false;
        }
    }
    return true;
}

static bool all_voted(ferry_commit_t *commit, need_t *need_p) {
    for (uint32_t member = 0; member < commit->size; member++) {
        fy_commit_line_t *line = &commit->shared->lines[member];
        *need_p = (need_t){&line->told, fy_counter_load(&line->told), member, "vote of a commit"};
        if (atomic_load(&line->vote) != commit->mine) {
            return false;
        }
    }
    return true;
}

/* In a failed world the dead, and those who have left, are not waited for. */
static bool all_copied(ferry_commit_t *commit, uint64_t version, bool failed, need_t *need_p) {
    for (uint32_t member = 0; member < commit->size; member++) {
        fy_commit_line_t *line = &commit->shared->lines[member];
        *need_p = (need_t){&line->told, fy_counter_load(&line->told), member, "end of a commit"};
        if (atomic_load(&line->copied) != version &&
            !(failed && fy_commit_is_gone(commit, member))) {
            return false;
        }
    }
    return true;
}

/* --- waiting -------------------------------------------------------------------------------------- */

static uint32_t rank_of(const ferry_commit_t *commit, const need_t *need) {
    return need->member == FERRY_RANK_NONE ? FERRY_RANK_NONE
                                           : ferry_group_world_rank(commit->group, need->member);
}

/* The time runs from when this was first lacking, however often it is looked at. */
static void note_blocked(ferry_commit_t *commit, const fy_counter_t *on) {
    if (commit->blocked_on != on) {
        commit->blocked_on = on;
        commit->blocked_ns = fy_clock_ns();
        commit->looked_ns = commit->blocked_ns;
    }
}

static uint64_t deadline_of(const ferry_commit_t *commit) {
    uint32_t timeout_ms = ferry_world_timeout_ms(commit->world);
    return timeout_ms == FERRY_TIMEOUT_NONE ? UINT64_MAX : commit->blocked_ns + timeout_ms * MS;
}

static ferry_status_t await(ferry_commit_t *commit, const need_t *need, ferry_error_t *err) {
    fy_wait_t wait = {commit->world, rank_of(commit, need), need->what, deadline_of(commit)};
    return fy_wait_until_at_least(need->counter, need->seen + 1, &wait, err);
}

static ferry_status_t fail_late(ferry_commit_t *commit, const need_t *need, ferry_error_t *err) {
    ferry_error_t mine;
    uint32_t me = ferry_world_rank(commit->world);
    double seconds = (double)(fy_clock_ns() - commit->blocked_ns) / 1e9;
    (void)fy_fail(&mine, FERRY_TIMEOUT, "nothing came for %.3g s; rank %" PRIu32 " waited in %s",
                  seconds, me, need->what);
    fy_error_ranks(&mine, me, rank_of(commit, need));
    return ferry_world_fail(commit->world, &mine, err);
}

/* For steps that do not wait: the deadline, and now and then the lives of all. A death is told as by
 * one who waits. */
static ferry_status_t glance(ferry_commit_t *commit, const need_t *need, ferry_error_t *err) {
    uint64_t now = fy_clock_ns();
    if (now >= deadline_of(commit)) {
        return fail_late(commit, need, err);
    }
    if (now - commit->looked_ns < FY_SLICE_MS * MS) {
        return FERRY_OK;
    }
    commit->looked_ns = now;
    for (uint32_t member = 0; member < commit->size; member++) {
        need_t its = {need->counter, need->seen, member, need->what};
        if (fy_commit_is_gone(commit, member)) {
            return await(commit, &its, err);
        }
    }
    return FERRY_OK;
}

static ferry_status_t drive(ferry_commit_t *commit, look_fn_t look, bool wait, bool *done_p,
                            ferry_error_t *err) {
    for (;;) {
        need_t need = {NULL, 0, FERRY_RANK_NONE, ""};
        *done_p = false;
        FY_TRY(look(commit, &need, done_p, err));
        if (*done_p) {
            return FERRY_OK;
        }
        FY_TRY(ferry_world_check(commit->world, err));
        note_blocked(commit, need.counter);
        if (!wait) {
            return glance(commit, &need, err);
        }
        FY_TRY(await(commit, &need, err));
    }
}

/* --- begin ---------------------------------------------------------------------------------------- */

static ferry_status_t look_begin(ferry_commit_t *commit, need_t *need_p, bool *done_p,
                                 ferry_error_t *err) {
    (void)err;
    fy_counter_t *opened = &commit->shared->opened;
    *need_p = (need_t){opened, fy_counter_load(opened), FERRY_RANK_NONE, "opening of a gate"};
    uint64_t state = atomic_load(&commit->shared->state);
    if (fy_commit_phase_of(state) != FY_COMMIT_OPEN) {
        return FERRY_OK; /* of the last try: somebody has still to copy in */
    }
    commit->mine = state;
    *done_p = commit->mode == FERRY_COMMIT_GATE ||
              nobody_claims(commit, fy_commit_target(commit), need_p);
    return FERRY_OK;
}

ferry_status_t fy_commit_begin(ferry_commit_t *commit, bool wait, bool *done_p,
                               ferry_error_t *err) {
    *done_p = false;
    if (commit->step > FY_STEP_BEGINS) {
        return fy_fail(err, FERRY_INVALID, "the commit is in use by another run");
    }
    if (commit->step == FY_STEP_NONE) {
        commit->step = FY_STEP_BEGINS;
        commit->committed = false;
        commit->blocked_on = NULL;
    }
    ferry_status_t status = ferry_world_check(commit->world, err);
    if (status == FERRY_OK) {
        status = drive(commit, look_begin, wait, done_p, err);
    }
    if (status != FERRY_OK) {
        commit->step = FY_STEP_NONE; /* without a vote from here nothing can be decided */
    } else if (*done_p) {
        commit->step = FY_STEP_WRITES;
    }
    return status;
}

uint32_t fy_commit_target(const ferry_commit_t *commit) {
    return fy_commit_copy_of(commit, fy_commit_version_of(commit->mine) + 1);
}

/* --- vote ----------------------------------------------------------------------------------------- */

/* Whoever gives a try up has failed the world before. */
static ferry_status_t fail_given_up(ferry_commit_t *commit, ferry_error_t *err) {
    FY_TRY(ferry_world_check(commit->world, err));
    ferry_error_t mine;
    (void)fy_fail(&mine, FERRY_STOPPED, "a commit was given up");
    return ferry_world_fail(commit->world, &mine, err);
}

/* Where the state moves when nothing lacks. */
static uint64_t word_after(const ferry_commit_t *commit, uint64_t state) {
    uint64_t version = fy_commit_version_of(state);
    if (commit->mode == FERRY_COMMIT_FLIP) {
        return fy_commit_word(version + 1, 0, FY_COMMIT_OPEN);
    }
    return fy_commit_phase_of(state) == FY_COMMIT_OPEN
               ? fy_commit_word(version, fy_commit_try_of(state), FY_COMMIT_SHUT)
               : fy_commit_word(version + 1, 0, FY_COMMIT_COPYING);
}

static ferry_status_t look_vote(ferry_commit_t *commit, need_t *need_p, bool *done_p,
                                ferry_error_t *err) {
    for (;;) {
        uint64_t state = atomic_load(&commit->shared->state);
        if (is_new_version(commit, state)) {
            *done_p = true;
            return FERRY_OK;
        }
        if (fy_commit_try_of(state) != fy_commit_try_of(commit->mine)) {
            return fail_given_up(commit, err);
        }
        bool is_shut = fy_commit_phase_of(state) == FY_COMMIT_SHUT;
        if (is_shut ? nobody_claims(commit, 0, need_p) : all_voted(commit, need_p)) {
            uint64_t next = word_after(commit, state);
            (void)atomic_compare_exchange_strong(&commit->shared->state, &state, next);
        } else if (atomic_load(&commit->shared->state) == state) {
            return FERRY_OK;
        } /* else the vote that seems to lack may be one for the next try already */
    }
}

static void cast_vote(ferry_commit_t *commit) {
    fy_commit_line_t *line = &commit->shared->lines[commit->me];
    commit->step = FY_STEP_VOTED;
    commit->blocked_on = NULL;
    atomic_store(&line->vote, commit->mine);
    fy_counter_add(&line->told, 1);
}

ferry_status_t fy_commit_vote(ferry_commit_t *commit, bool wait, bool *done_p, ferry_error_t *err) {
    assert(commit->step == FY_STEP_WRITES || commit->step == FY_STEP_VOTED);
    *done_p = false;
    if (commit->step == FY_STEP_WRITES) {
        FY_TRY(ferry_world_check(commit->world, err));
        cast_vote(commit);
    }
    ferry_error_t mine;
    ferry_status_t status = drive(commit, look_vote, wait, done_p, &mine);
    if (status != FERRY_OK && is_new_version(commit, atomic_load(&commit->shared->state))) {
        status = FERRY_OK; /* decided before the failure was seen */
        *done_p = true;
    }
    if (status != FERRY_OK && err != NULL) {
        *err = mine;
    }
    if (*done_p) {
        commit->step = FY_STEP_DECIDED;
    }
    return status;
}

/* --- finish --------------------------------------------------------------------------------------- */

static void end_try(ferry_commit_t *commit, bool committed) {
    commit->step = FY_STEP_NONE;
    commit->committed = committed;
}

/* The gate is open, or *need_p tells whose copy is lacking. */
static bool is_open(ferry_commit_t *commit, bool failed, need_t *need_p) {
    uint64_t version = fy_commit_version_of(commit->mine) + 1;
    uint64_t copying = fy_commit_word(version, 0, FY_COMMIT_COPYING);
    if (atomic_load(&commit->shared->state) != copying) {
        return true;
    }
    if (!all_copied(commit, version, failed, need_p)) {
        return false;
    }
    uint64_t open = fy_commit_word(version, 0, FY_COMMIT_OPEN);
    if (atomic_compare_exchange_strong(&commit->shared->state, &copying, open)) {
        fy_counter_add(&commit->shared->opened, 1);
    }
    return true;
}

/* Once the world has failed: false when a living rank is late. */
static bool await_living(ferry_commit_t *commit, const need_t *need, bool wait,
                         uint64_t *slept_ns) {
    return wait ? fy_commit_nap(commit, need->counter, need->seen, slept_ns)
                : fy_clock_ns() < deadline_of(commit);
}

/* The world may fail meanwhile: then it goes on with those who live. */
static ferry_status_t open_gate(ferry_commit_t *commit, bool wait, bool *done_p,
                                ferry_error_t *err) {
    uint64_t slept_ns = 0;
    do {
        need_t need;
        ferry_error_t agreed;
        ferry_status_t status = ferry_world_check(commit->world, &agreed);
        *done_p = is_open(commit, status != FERRY_OK, &need);
        if (*done_p) {
            return FERRY_OK;
        }
        /* With the failure the time starts anew, once for all. */
        note_blocked(commit, status == FERRY_OK ? need.counter : &commit->shared->opened);
        if (status == FERRY_OK) {
            (void)(wait ? await(commit, &need, NULL) : glance(commit, &need, NULL));
        } else if (!await_living(commit, &need, wait, &slept_ns)) {
            if (err != NULL) {
                *err = agreed;
            }
            return status;
        }
    } while (wait);
    return FERRY_OK;
}

ferry_status_t fy_commit_finish(ferry_commit_t *commit, bool wait, bool *done_p,
                                ferry_error_t *err) {
    assert(commit->step == FY_STEP_DECIDED);
    FY_TRY(fy_world_usable(commit->world, err));
    *done_p = true;
    if (commit->mode == FERRY_COMMIT_GATE) {
        fy_commit_line_t *line = &commit->shared->lines[commit->me];
        uint64_t version = fy_commit_version_of(commit->mine) + 1;
        if (atomic_load(&line->copied) != version) {
            commit->blocked_on = NULL;
            atomic_store(&line->copied, version);
            fy_counter_add(&line->told, 1);
        }
        FY_TRY(open_gate(commit, wait, done_p, err));
    }
    if (*done_p) {
        end_try(commit, true);
    }
    return FERRY_OK;
}

/* --- settle --------------------------------------------------------------------------------------- */

/* Gives the try up, unless it is decided, and returns the state after that. The world fails first, so
 * that all ranks end the try and meet before the next one. */
static uint64_t give_up(ferry_commit_t *commit) {
    uint64_t state = atomic_load(&commit->shared->state);
    if (is_new_version(commit, state)) {
        return state;
    }
    (void)fail_given_up(commit, NULL);
    while (fy_commit_try_of(state) == fy_commit_try_of(commit->mine)) {
        uint64_t next = fy_commit_word(fy_commit_version_of(state), fy_commit_try_of(state) + 1,
                                       FY_COMMIT_OPEN);
        if (atomic_compare_exchange_strong(&commit->shared->state, &state, next)) {
            fy_counter_add(&commit->shared->opened, 1);
            return next;
        }
    }
    return state;
}

bool fy_commit_settle(ferry_commit_t *commit) {
    if (commit->step == FY_STEP_NONE) {
        return commit->committed;
    }
    if (commit->step == FY_STEP_BEGINS) {
        (void)fail_given_up(commit, NULL);
        end_try(commit, false);
        return false;
    }
    bool committed = is_new_version(commit, give_up(commit));
    if (committed && commit->mode == FERRY_COMMIT_GATE) {
        commit->step = FY_STEP_DECIDED; /* finish is still to come */
    } else {
        end_try(commit, committed);
    }
    return committed;
}
