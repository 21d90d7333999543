/* commit_state.h - what the ranks of a commit share, and a rank's handle on it. The protocol is told at
 * the top of commit.c. */
#ifndef FERRY_RESHARD_COMMIT_STATE_H
#define FERRY_RESHARD_COMMIT_STATE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "reshard/commit.h"
#include "world/wait.h"

/* --- the state word: version | try | phase ------------------------------------------------------- */

typedef enum fy_commit_phase {
    FY_COMMIT_OPEN = 1,    /* readers come and go */
    FY_COMMIT_SHUT = 2,    /* gate: no new readers; the try is not decided */
    FY_COMMIT_COPYING = 3, /* gate: decided, the ranks copy in; no readers at all */
} fy_commit_phase_t;

#define FY_COMMIT_PHASE_BITS 2
#define FY_COMMIT_TRY_BITS 18 /* of one version; may wrap */
#define FY_COMMIT_VERSION_SHIFT (FY_COMMIT_PHASE_BITS + FY_COMMIT_TRY_BITS)

static inline uint64_t fy_commit_word(uint64_t version, uint64_t try_number,
                                      fy_commit_phase_t phase) {
    uint64_t tries = try_number & ((UINT64_C(1) << FY_COMMIT_TRY_BITS) - 1);
    return version << FY_COMMIT_VERSION_SHIFT | tries << FY_COMMIT_PHASE_BITS | (uint64_t)phase;
}

static inline uint64_t fy_commit_version_of(uint64_t word) {
    return word >> FY_COMMIT_VERSION_SHIFT;
}

/* Equal for all words of one try; not to be counted with. */
static inline uint64_t fy_commit_try_of(uint64_t word) {
    return word >> FY_COMMIT_PHASE_BITS;
}

static inline fy_commit_phase_t fy_commit_phase_of(uint64_t word) {
    return (fy_commit_phase_t)(word & ((1u << FY_COMMIT_PHASE_BITS) - 1));
}

/* --- in shared memory: zeroed, but for the state -------------------------------------------------- */

/* Of one member. Its readers write the first cache line, its writer the second. */
typedef struct fy_commit_line {
    alignas(64) _Atomic uint32_t
        claims[2];         /* by copy: who holds it, or is about to see that it may not */
    _Atomic uint32_t held; /* gate: who holds; never more than claims[0] */
    fy_counter_t released; /* goes up when a number of claims has come down to 0 */
    alignas(64) _Atomic uint64_t vote; /* the word that the try began with */
    _Atomic uint64_t copied;           /* gate: the last version that is copied in here */
    fy_counter_t told;                 /* goes up after either */
    _Atomic uint32_t closed;           /* this member has destroyed its handle */
} fy_commit_line_t;

typedef struct fy_commit_shared {
    alignas(64) _Atomic uint64_t state;
    fy_counter_t opened; /* gate: goes up when it has opened */
    alignas(64) fy_commit_line_t lines[];
} fy_commit_shared_t;

/* --- a rank's handle ------------------------------------------------------------------------------ */

typedef enum fy_commit_step {
    FY_STEP_NONE = 0, /* no try */
    FY_STEP_BEGINS,
    FY_STEP_WRITES,
    FY_STEP_VOTED,
    FY_STEP_DECIDED, /* for the new version */
} fy_commit_step_t;

struct ferry_commit {
    ferry_group_t *group;
    ferry_world_t *world;
    ferry_commit_mode_t mode;
    uint32_t me;
    uint32_t size;
    fy_commit_shared_t *shared;
    void *memory; /* member 0: what it allocated */

    /* The writer's side; one thread. */
    fy_commit_step_t step;
    uint64_t mine;                  /* the word that this try began with */
    bool committed;                 /* how the last try ended */
    const fy_counter_t *blocked_on; /* what the step lacks */
    uint64_t blocked_ns;            /* since when */
    uint64_t looked_ns;             /* when the members' lives were last looked at */
};

static inline uint32_t fy_commit_copy_of(const ferry_commit_t *commit, uint64_t version) {
    return commit->mode == FERRY_COMMIT_FLIP ? (uint32_t)(version & 1) : 0;
}

/* Dead, or has left: it holds nothing and does nothing any more. */
static inline bool fy_commit_is_gone(const ferry_commit_t *commit, uint32_t member) {
    uint32_t rank = ferry_group_world_rank(commit->group, member);
    ferry_rank_life_t life = ferry_world_rank_life(commit->world, rank);
    return life == FERRY_RANK_DEAD || life == FERRY_RANK_LEFT;
}

/* Sleeps until the counter is no longer at `seen`, at most FY_SLICE_MS; whatever the state of the
 * world, and by any thread. False when *slept_ns, where naps are added up, has come to the world's
 * timeout. */
bool fy_commit_nap(const ferry_commit_t *commit, fy_counter_t *counter, uint32_t seen,
                   uint64_t *slept_ns);

#endif
