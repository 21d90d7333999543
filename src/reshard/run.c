/* run.c - the machine that runs the passes.
 *
 * A state is left only when its work is done on this rank; the batches and the commit keep ranks in step,
 * so that no rank's state depends on another's but through them. Every step either goes on, or waits when
 * told to, or says that it cannot now. A failure on this rank alone becomes the world's; whatever
 * failed, the commit is settled before the run ends. */
#include <inttypes.h>
#include <time.h>

#include "base/fail.h"
#include "reshard/session.h"
#include "reshard/unit.h"
#include "service/service.h"

enum { POLL_NS = 20000 }; /* between two looks at an event that has not happened */
#define GRACE_NS UINT64_C(200000000)

static fy_pass_t *pass_of(const fy_session_t *session) {
    return &session->passes[session->turn.pass];
}

/* --- phases and progress ----------------------------------------------------------------------- */

static ferry_reshard_phase_t phase_of(fy_state_t state) {
    switch (state) {
    case FY_READYING:
    case FY_REDUCING:
    case FY_FOLDING:
        return FERRY_PHASE_REDUCE;
    case FY_PACKING:
        return FERRY_PHASE_PACK;
    case FY_MOVING:
        return FERRY_PHASE_MOVE;
    case FY_UNPACKING:
        return FERRY_PHASE_UNPACK;
    case FY_LENDING:
    case FY_RETURNING:
    case FY_MEETING:
        return FERRY_PHASE_MEET;
    case FY_REFRESHING:
        return FERRY_PHASE_REFRESH;
    default:
        return FERRY_PHASE_COMMIT;
    }
}

static void tell_progress(const fy_session_t *session) {
    const ferry_reshard_options_t *options = &session->options;
    if (options->progress != NULL) {
        ferry_reshard_progress_t progress = {phase_of(session->turn.state), session->turn.pass,
                                             session->npasses, session->turn.bytes_done,
                                             session->bytes_total};
        options->progress(options->context, &progress);
    }
}

static void enter(fy_session_t *session, fy_state_t state) {
    fy_turn_t *turn = &session->turn;
    uint64_t now = fy_clock_ns();
    session->result.seconds[phase_of(turn->state)] += (double)(now - turn->mark_ns) * 1e-9;
    bool news = phase_of(turn->state) != phase_of(state);
    turn->mark_ns = now;
    turn->state = state;
    turn->at = 0;
    turn->launched = false;
    turn->deadline_ns = 0;
    if (news) {
        tell_progress(session);
    }
}

/* --- waiting ----------------------------------------------------------------------------------- */

static void nap(void) {
    struct timespec time = {0, POLL_NS};
    (void)nanosleep(&time, NULL);
}

/* An event of the caller's has not happened. *moved_p: looked again after a while. */
static ferry_status_t await_event(fy_session_t *session, const fy_binding_t *binding, bool wait,
                                  bool *moved_p, ferry_error_t *err) {
    fy_turn_t *turn = &session->turn;
    *moved_p = wait;
    if (turn->deadline_ns == 0) {
        turn->deadline_ns = fy_deadline_ns(session->world);
    }
    FY_TRY(ferry_world_check(session->world, err));
    if (fy_clock_ns() > turn->deadline_ns) {
        ferry_status_t status =
            fy_fail(err, FERRY_TIMEOUT, "the source did not become ready within the deadline");
        fy_error_tensor(err, binding->tensor.name);
        return status;
    }
    if (wait) {
        nap();
    }
    return FERRY_OK;
}

/* Runs a kept batch, or lets it go on. */
static ferry_status_t drive(fy_session_t *session, ferry_kept_batch_t *batch, bool wait,
                            bool *done_p, ferry_copy_result_t *result_p, ferry_error_t *err) {
    fy_turn_t *turn = &session->turn;
    *done_p = wait;
    if (wait) {
        return turn->launched ? ferry_kept_batch_wait(batch, result_p, err)
                              : ferry_kept_batch_run(batch, result_p, err);
    }
    if (!turn->launched) {
        FY_TRY(ferry_kept_batch_start(batch, err));
        turn->launched = true;
        return FERRY_OK;
    }
    return fy_kept_test(batch, done_p, result_p, err);
}

/* A service may say that others are not done with this rank's memory when its run is over. */
static ferry_status_t stand_clear(const fy_session_t *session, ferry_error_t *err) {
    return ferry_copy_service_needs_barrier(session->service)
               ? ferry_group_barrier(session->group, err)
               : FERRY_OK;
}

/* A meeting: this rank says that it is there, and waits in the state that it enters. */
static void call(fy_session_t *session, fy_state_t state) {
    session->nmet++;
    for (uint32_t member = 0; member < session->size; member++) {
        fy_counter_set(&session->meetings[member]->came[session->me], session->nmet);
    }
    enter(session, state);
}

static ferry_status_t meet(fy_session_t *session, fy_state_t next, bool wait, bool *moved_p,
                           ferry_error_t *err) {
    fy_turn_t *turn = &session->turn;
    for (; turn->at < session->size; turn->at++) {
        fy_counter_t *counter = &session->meeting->came[turn->at];
        if (!wait && !fy_counter_reached(counter, session->nmet)) {
            return ferry_world_check(session->world, err);
        }
        fy_wait_t whom = {session->world,
                          ferry_group_world_rank(session->group, (uint32_t)turn->at),
                          "a meeting of its run", 0};
        FY_TRY(fy_wait_until_at_least(counter, session->nmet, &whom, err));
    }
    *moved_p = true;
    enter(session, next);
    return FERRY_OK;
}

/* --- sums -------------------------------------------------------------------------------------- */

static ferry_status_t ready_folds(fy_session_t *session, bool wait, bool *moved_p,
                                  ferry_error_t *err) {
    const fy_pass_t *pass = pass_of(session);
    fy_turn_t *turn = &session->turn;
    const ferry_reshard_options_t *options = &session->options;
    while (pass->reduces && turn->at < pass->nfolds) {
        const fy_binding_t *binding = session->folds[pass->first_fold + turn->at].binding;
        if (binding->ready != NULL && options->is_ready != NULL &&
            !options->is_ready(options->context, binding->ready)) {
            return await_event(session, binding, wait, moved_p, err);
        }
        turn->at++;
    }
    *moved_p = true;
    enter(session, pass->reduces ? FY_REDUCING : FY_PACKING);
    return FERRY_OK;
}

static ferry_status_t reduce(fy_session_t *session, bool wait, bool *moved_p, ferry_error_t *err) {
    ferry_copy_result_t result = {0};
    FY_TRY(drive(session, pass_of(session)->reduce, wait, moved_p, &result, err));
    if (*moved_p) {
        FY_TRY(stand_clear(session, err));
        session->result.bytes_reduced += result.bytes_received;
        enter(session, FY_FOLDING);
    }
    return FERRY_OK;
}

static ferry_status_t fold_one(fy_session_t *session, bool *moved_p, ferry_error_t *err) {
    const fy_pass_t *pass = pass_of(session);
    fy_turn_t *turn = &session->turn;
    *moved_p = true;
    if (turn->at >= pass->nfolds) {
        enter(session, FY_PACKING);
        return FERRY_OK;
    }
    const fy_fold_t *fold = &session->folds[pass->first_fold + turn->at++];
    return fold->cell->owner == session->me ? fy_fold_run(fold, err) : FERRY_OK;
}

/* --- packing, moving, unpacking ---------------------------------------------------------------- */

static const fy_cargo_t *first_cargo(const fy_unit_t *unit) {
    return unit->cargo != NULL ? unit->cargo : &unit->all[unit->entries[0].chunk];
}

static ferry_status_t pack_one(fy_session_t *session, bool wait, bool *moved_p,
                               ferry_error_t *err) {
    fy_pass_t *pass = pass_of(session);
    fy_turn_t *turn = &session->turn;
    *moved_p = true;
    if (turn->at >= pass->nunits) {
        if (pass->check != NULL) {
            FY_TRY(fy_check_fill(session, pass, err));
        }
        if (session->lends) {
            call(session, FY_LENDING);
        } else {
            enter(session, FY_MOVING);
        }
        return FERRY_OK;
    }
    fy_unit_t *unit = &pass->units[turn->at];
    bool launched = false;
    unit->ops->prepare(unit);
    ferry_status_t status = unit->ops->launch(session, unit, &launched, err);
    if (status != FERRY_OK) {
        fy_cargo_blame(session, first_cargo(unit), err);
        return status;
    }
    if (!launched) {
        return await_event(session, first_cargo(unit)->binding, wait, moved_p, err);
    }
    turn->deadline_ns = 0;
    turn->at++;
    return FERRY_OK;
}

static ferry_status_t move(fy_session_t *session, bool wait, bool *moved_p, ferry_error_t *err) {
    ferry_reshard_result_t *result = &session->result;
    fy_pass_t *pass = pass_of(session);
    ferry_copy_result_t moved = {0};
    FY_TRY(drive(session, pass->move[session->turn.copy], wait, moved_p, &moved, err));
    if (!*moved_p) {
        return FERRY_OK;
    }
    FY_TRY(stand_clear(session, err));
    for (size_t i = 0; i < pass->nunits; i++) {
        pass->units[i].state = FY_UNIT_LANDED;
    }
    result->bytes_received += moved.bytes_received;
    result->bytes_direct += moved.bytes_direct;
    result->bytes_read += moved.bytes_read;
    result->bytes_pipeline += moved.bytes_pipeline;
    result->rounds += moved.rounds;
    enter(session, FY_UNPACKING);
    return FERRY_OK;
}

static void end_pass(fy_session_t *session) {
    tell_progress(session);
    if (session->turn.pass + 1 < session->npasses) {
        session->turn.pass++;
        if (session->lends) {
            call(session, FY_RETURNING);
        } else {
            enter(session, FY_READYING);
        }
    } else {
        session->turn.pass = 0; /* a gate copies in from the first on */
        enter(session, session->options.commit != NULL ? FY_VOTING : FY_REFRESHING);
    }
}

static ferry_status_t finalize(fy_session_t *session, fy_unit_t *unit, ferry_error_t *err) {
    if (!unit->ops->is_complete(unit)) {
        return FERRY_OK; /* the batch has ended, so there is none */
    }
    ferry_status_t status = unit->ops->finalize(session, unit, session->turn.copy, err);
    if (status != FERRY_OK) {
        fy_cargo_blame(session, first_cargo(unit), err);
    }
    return status;
}

/* What was read where it lay has come directly, too. */
static void count_loans(fy_session_t *session, const fy_cargo_t *cargo) {
    for (uint32_t i = 0; cargo != NULL && i < cargo->nrecv; i++) {
        if (cargo->lent[i]) {
            uint64_t bytes = fy_view_bytes(&cargo->recv[session->turn.copy][i]);
            session->result.bytes_received += bytes;
            session->result.bytes_direct += bytes;
        }
    }
}

static ferry_status_t unpack_one(fy_session_t *session, bool *moved_p, ferry_error_t *err) {
    fy_pass_t *pass = pass_of(session);
    fy_turn_t *turn = &session->turn;
    *moved_p = true;
    if (turn->at == 0 && pass->check != NULL) {
        FY_TRY(fy_check_compare(session, pass, err));
    }
    if (turn->at >= pass->nunits) {
        end_pass(session);
        return FERRY_OK;
    }
    fy_unit_t *unit = &pass->units[turn->at++];
    turn->bytes_done += unit->bytes;
    count_loans(session, unit->cargo);
    return session->gate ? FERRY_OK : finalize(session, unit, err);
}

/* --- commit ------------------------------------------------------------------------------------ */

static ferry_status_t open_commit(fy_session_t *session, bool wait, bool *moved_p,
                                  ferry_error_t *err) {
    ferry_commit_t *commit = session->options.commit;
    *moved_p = true;
    if (commit != NULL) {
        session->turn.open = true;
        FY_TRY(fy_commit_begin(commit, wait, moved_p, err));
    }
    if (!*moved_p) {
        return FERRY_OK;
    }
    session->turn.copy = session->flip ? fy_commit_target(commit) : 0;
    const ferry_transform_t *transform = session->transform;
    if (transform != NULL && transform->begin != NULL) {
        FY_TRY(transform->begin(transform->context, err));
    }
    enter(session, FY_READYING);
    return FERRY_OK;
}

static ferry_status_t vote(fy_session_t *session, bool wait, bool *moved_p, ferry_error_t *err) {
    FY_TRY(fy_commit_vote(session->options.commit, wait, moved_p, err));
    if (*moved_p) {
        enter(session, session->gate ? FY_COPYING_IN : FY_FINISHING);
    }
    return FERRY_OK;
}

/* What was staged goes into the targets. Nothing of this fails but by a transform's own doing. */
static ferry_status_t copy_in_one(fy_session_t *session, bool *moved_p, ferry_error_t *err) {
    fy_turn_t *turn = &session->turn;
    *moved_p = true;
    if (turn->at >= pass_of(session)->nunits) {
        enter(session, FY_FINISHING);
        return FERRY_OK;
    }
    return finalize(session, &pass_of(session)->units[turn->at++], err);
}

static ferry_status_t finish(fy_session_t *session, bool wait, bool *moved_p, ferry_error_t *err) {
    FY_TRY(fy_commit_finish(session->options.commit, wait, moved_p, err));
    if (*moved_p) {
        session->turn.open = false;
        session->result.committed = true;
        session->result.version = ferry_commit_version(session->options.commit);
        enter(session, FY_REFRESHING);
    }
    return FERRY_OK;
}

/* After a failure: old or new, the same everywhere. Decided for the new version, a rank that has not
 * copied in does so now. */
static void settle(fy_session_t *session) {
    fy_turn_t *turn = &session->turn;
    ferry_commit_t *commit = session->options.commit;
    if (commit == NULL) {
        return;
    }
    if (turn->open) {
        turn->open = false;
        session->result.committed = fy_commit_settle(commit);
        bool done = false;
        if (session->result.committed && session->gate) {
            size_t from = turn->state == FY_COPYING_IN ? turn->at : 0;
            bool copied = turn->state == FY_FINISHING;
            for (size_t i = from; i < session->passes[0].nunits && !copied; i++) {
                (void)finalize(session, &session->passes[0].units[i], NULL);
            }
            (void)fy_commit_finish(commit, true, &done, NULL);
        }
    }
    session->result.version = ferry_commit_version(commit);
}

/* --- the end ----------------------------------------------------------------------------------- */

static ferry_status_t refresh(fy_session_t *session, bool *moved_p, ferry_error_t *err) {
    const ferry_reshard_options_t *options = &session->options;
    *moved_p = true;
    if (options->refresh != NULL) {
        FY_TRY(options->refresh(options->context, session->result.version, err));
    }
    if (session->meets) {
        call(session, FY_MEETING);
    } else {
        enter(session, FY_OVER);
    }
    return FERRY_OK;
}

static ferry_status_t step(fy_session_t *session, bool wait, bool *moved_p, ferry_error_t *err) {
    switch (session->turn.state) {
    case FY_OPENING:
        return open_commit(session, wait, moved_p, err);
    case FY_READYING:
        return ready_folds(session, wait, moved_p, err);
    case FY_REDUCING:
        return reduce(session, wait, moved_p, err);
    case FY_FOLDING:
        return fold_one(session, moved_p, err);
    case FY_PACKING:
        return pack_one(session, wait, moved_p, err);
    case FY_MOVING:
        return move(session, wait, moved_p, err);
    case FY_UNPACKING:
        return unpack_one(session, moved_p, err);
    case FY_VOTING:
        return vote(session, wait, moved_p, err);
    case FY_COPYING_IN:
        return copy_in_one(session, moved_p, err);
    case FY_FINISHING:
        return finish(session, wait, moved_p, err);
    case FY_REFRESHING:
        return refresh(session, moved_p, err);
    case FY_LENDING:
        return meet(session, FY_MOVING, wait, moved_p, err);
    case FY_RETURNING:
        return meet(session, FY_READYING, wait, moved_p, err);
    case FY_MEETING:
        return meet(session, FY_OVER, wait, moved_p, err);
    case FY_IDLE:
    case FY_OVER:
        break;
    }
    return FERRY_OK;
}

/* The world has failed while this rank was in the last meeting of its run. Others may have left it: then
 * all have come, the run was good, and what failed is theirs to tell in the next one. Their words need a
 * moment at most to arrive. */
static bool has_met(const fy_session_t *session) {
    uint64_t until = fy_clock_ns() + GRACE_NS;
    uint32_t member = 0;
    while (session->turn.state == FY_MEETING && member < session->size && fy_clock_ns() < until) {
        if (fy_counter_reached(&session->meeting->came[member], session->nmet)) {
            member++;
        } else {
            nap();
        }
    }
    return member == session->size;
}

static void end(fy_session_t *session) {
    session->result.total_seconds = (double)(fy_clock_ns() - session->turn.begin_ns) * 1e-9;
    session->turn.state = FY_IDLE;
    atomic_store(&session->running, false);
}

void fy_run_open(fy_session_t *session) {
    uint64_t now = fy_clock_ns();
    session->turn = (fy_turn_t){.state = FY_OPENING, .begin_ns = now, .mark_ns = now};
    atomic_store(&session->running, true);
}

ferry_status_t fy_session_step(fy_session_t *session, bool wait, bool *done_p, ferry_error_t *err) {
    bool moved = true;
    while (moved && session->turn.state != FY_OVER) {
        moved = false;
        ferry_error_t mine = FERRY_ERROR_INIT;
        ferry_status_t status = step(session, wait, &moved, &mine);
        if (status != FERRY_OK && has_met(session)) {
            enter(session, FY_OVER);
        } else if (status != FERRY_OK) {
            fy_error_ranks(&mine, ferry_world_rank(session->world), FERRY_RANK_NONE);
            status = ferry_world_fail(session->world, &mine, err);
            settle(session);
            end(session);
            return status;
        }
    }
    *done_p = session->turn.state == FY_OVER;
    if (*done_p) {
        end(session);
    }
    return FERRY_OK;
}
