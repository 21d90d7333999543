/* commit.h - the writer's side of a commit.
 *
 * One try of a session, on every rank of the group:
 *
 *     begin                   the try is open; flip: nobody reads the copy that will be written
 *     (write copy fy_commit_target, or stage)
 *     vote                    this rank is ready; returns when it is decided. gate: the gate is shut and
 *                             nobody holds anything
 *     (gate: copy in)
 *     finish                  gate: all have copied in, the gate is open
 *
 * Each step is called again until *done_p is true; only with `wait` does it wait. A failure before the
 * decision leaves the old version. After any failure between begin and finish the rank calls
 * fy_commit_settle once, before it does anything else with the world. finish fails only when a living rank
 * does not copy in for the world's deadline: then the gate stays shut, since what lies behind it is a mix,
 * until that rank does.
 * Thread safety: one thread per rank. */
#ifndef FERRY_RESHARD_COMMIT_H
#define FERRY_RESHARD_COMMIT_H

#include <ferry/commit.h>

ferry_status_t fy_commit_begin(ferry_commit_t *commit, bool wait, bool *done_p, ferry_error_t *err);
/* The copy that this try writes: flip: the one that is not current; gate: 0. */
uint32_t fy_commit_target(const ferry_commit_t *commit);
ferry_status_t fy_commit_vote(ferry_commit_t *commit, bool wait, bool *done_p, ferry_error_t *err);
ferry_status_t fy_commit_finish(ferry_commit_t *commit, bool wait, bool *done_p,
                                ferry_error_t *err);

/* Gives the try up, unless it has been decided. True: it was decided for the new version, and under a
 * gate the caller must now copy in (unless it has) and then call fy_commit_finish with `wait`, which in a
 * failed world waits for the living ranks only and returns FERRY_OK when the gate is open. False: the old
 * version is the one that all hold. Giving up fails the world with FERRY_STOPPED, unless it has failed
 * already: so the others end the try, too, and all meet in ferry_world_recover before the next. After
 * finish, or when it is called again: how the last try ended. */
bool fy_commit_settle(ferry_commit_t *commit);

#endif
