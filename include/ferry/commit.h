/* commit.h - new weights all at once, or not at all.
 *
 * Readers hold a version while they read; a session (reshard.h) brings the next one. Two modes:
 *
 *   flip   There are two copies of the targets. Readers read one, a run writes the other, and one atomic
 *          store, which all ranks see, makes the other current. A run waits until nobody reads the
 *          copy that it is about to write. Memory: the targets once more.
 *   gate   The targets have fixed addresses. A run stages everything first, then shuts the gate: new
 *          readers wait, old ones finish; every rank copies its staging in; the gate opens. Memory: the
 *          targets once more, as staging.
 *
 * The decision is one compare-and-swap in shared memory, made by whichever rank first sees that all are
 * ready, or first gives up. So after a failure, wherever it struck, all living ranks hold the same version, the old
 * or the new one, and ferry_commit_version says which: a rank that dies before the decision leaves the old one;
 * after it, the others finish (under a gate: each copies in what it has staged) and hold the new one.
 * Readers go on in a failed world, too.
 *
 * A hold on any rank holds off all ranks: whoever has acquired may look at every rank's targets (that it
 * can reach), not only at its own. Holds of a rank that has died do not count; what it had as targets is
 * whole under flip, and may be half written under a gate.
 *
 * Ownership: a commit belongs to its creator, borrows the group, and outlives the sessions that use it and
 * all holds. One session uses a commit at a time.
 * Thread safety: acquire, release and the questions may be called by any thread of a rank at any time. */
#ifndef FERRY_COMMIT_H
#define FERRY_COMMIT_H

#include <ferry/world.h>

FERRY_BEGIN_DECLS

typedef enum ferry_commit_mode {
    FERRY_COMMIT_FLIP = 1,
    FERRY_COMMIT_GATE = 2,
} ferry_commit_mode_t;

typedef struct ferry_commit ferry_commit_t;

/* What a reader holds. */
typedef struct ferry_hold {
    uint64_t version; /* 0 before the first commit */
    uint32_t copy;    /* flip: the copy (0 or 1) that this version is in; gate: 0 */
} ferry_hold_t;

/* Collective over the group; all ranks ask for the same mode. Version 0 is in copy 0. */
FERRY_API ferry_status_t ferry_commit_create(ferry_group_t *group, ferry_commit_mode_t mode,
                                             ferry_commit_t **commit_p, ferry_error_t *err);
/* Local: other ranks may go on reading. NULL is fine. */
FERRY_API void ferry_commit_destroy(ferry_commit_t *commit);
FERRY_API ferry_commit_mode_t ferry_commit_mode(const ferry_commit_t *commit);

/* Until the release the targets of this version stay as they are, on all ranks. Waits while the gate is
 * shut, at most the world's deadline: FERRY_TIMEOUT, which is the caller's own and fails no world. Holds
 * nest: a thread that holds is let in again even while the gate is shut. A run that has to wait for a hold
 * longer than the deadline fails, so a thread that holds must not wait for a run. */
FERRY_API ferry_status_t ferry_commit_acquire(ferry_commit_t *commit, ferry_hold_t *hold_p,
                                              ferry_error_t *err);
FERRY_API void ferry_commit_release(ferry_commit_t *commit, const ferry_hold_t *hold);

/* The version that was committed last. */
FERRY_API uint64_t ferry_commit_version(const ferry_commit_t *commit);

FERRY_END_DECLS

#endif
