/* agree.c - one answer on all ranks.
 *
 * Preparing is a sequence of local steps, each of which may fail on any rank. After each of them the
 * ranks exchange letters, so that nobody goes on alone and everybody has the same error. The world is
 * not failed by a mistake in what was asked for: the next session can be made at once. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "reshard/session.h"

void fy_letter_fail(fy_letter_t *letter, ferry_status_t status, uint32_t world_rank) {
    if (letter->error.status == FERRY_OK) {
        (void)fy_fail(&letter->error, status, "%s", ferry_status_text(status));
    }
    fy_error_ranks(&letter->error, world_rank, FERRY_RANK_NONE);
}

ferry_status_t fy_agree(ferry_group_t *group, const fy_letter_t *mine, fy_letter_t *all,
                        ferry_error_t *err) {
    FY_TRY(ferry_group_allgather(group, mine, sizeof *mine, all, err));
    for (uint32_t member = 0; member < ferry_group_size(group); member++) {
        if (all[member].error.status != FERRY_OK) {
            if (err != NULL) {
                *err = all[member].error;
            }
            return all[member].error.status;
        }
    }
    return FERRY_OK;
}

/* --- inputs ------------------------------------------------------------------------------------ */

enum { PLAN_HASH, OPTIONS_HASH, TRANSFORM_HASH, BUDGET, LATE_FAILURES };

static uint64_t options_hash(const fy_session_t *session) {
    const ferry_reshard_options_t *options = &session->options;
    uint64_t hash = fy_hash_u64(0, options->bucket_bytes);
    hash = fy_hash_u64(hash, session->bucketed ? 1 : 0);
    hash = fy_hash_u64(hash, options->wire);
    hash = fy_hash_u64(hash, options->check ? 1 : 0);
    hash = fy_hash_u64(hash, options->budget_bytes != 0 ? 1 : 0);
    hash = fy_hash_u64(hash, session->flip ? 1 : 0);
    return fy_hash_u64(hash, session->gate ? 1 : 0);
}

static uint64_t transform_hash(const fy_session_t *session) {
    uint64_t hash = 0;
    for (uint32_t i = 0; session->bindings != NULL && i < session->ntensors; i++) {
        hash = fy_hash_u64(hash, session->bindings[i].transformed ? 1 : 0);
    }
    return hash;
}

static ferry_status_t differ(const fy_session_t *session, const fy_letter_t *all, int number,
                             const char *what, ferry_error_t *err) {
    for (uint32_t member = 1; member < session->size; member++) {
        if (all[member].numbers[number] != all[0].numbers[number]) {
            uint32_t a = ferry_group_world_rank(session->group, 0);
            uint32_t b = ferry_group_world_rank(session->group, member);
            ferry_status_t status =
                fy_fail(err, FERRY_MISMATCH, "ranks %" PRIu32 " and %" PRIu32 " have different %s",
                        a, b, what);
            fy_error_ranks(err, a, b);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t compare(fy_session_t *session, const fy_letter_t *all, ferry_error_t *err) {
    FY_TRY(differ(session, all, PLAN_HASH, "plans", err));
    FY_TRY(differ(session, all, OPTIONS_HASH, "options of the session", err));
    FY_TRY(differ(session, all, TRANSFORM_HASH, "sets of transformed tensors", err));
    for (uint32_t member = 0; member < session->size; member++) {
        session->meets = session->meets || all[member].numbers[LATE_FAILURES] != 0;
    }
    return FERRY_OK;
}

/* The transfers of each pair, as both ends have them. */
static ferry_status_t compare_pairs(const fy_session_t *session, ferry_error_t *err) {
    uint32_t size = session->size;
    uint64_t *mine = fy_alloc(2 * (size_t)size, sizeof *mine);
    uint64_t *all = fy_alloc(2 * (size_t)size * size, sizeof *all);
    fy_letter_t letter = {{0}, FERRY_ERROR_INIT};
    fy_letter_t *letters = fy_alloc(size, sizeof *letters);
    ferry_status_t status = FERRY_OK;
    if (letters == NULL) {
        /* Without it nobody can be told; the others notice by the deadline. */
        status = fy_fail_nomem(err, "the letters of a session");
    } else if (mine == NULL || all == NULL) {
        fy_letter_fail(&letter, FERRY_NOMEM, ferry_world_rank(session->world));
    }
    if (status == FERRY_OK) {
        status = fy_agree(session->group, &letter, letters, err);
    }
    if (status == FERRY_OK && (mine == NULL || all == NULL)) {
        status = fy_fail_nomem(err, "the hashes of a plan"); /* told above */
    }
    for (uint32_t peer = 0; peer < size && status == FERRY_OK; peer++) {
        mine[peer] = ferry_plan_pair_hash(session->plan, session->me, peer);
        mine[size + peer] = ferry_plan_pair_hash(session->plan, peer, session->me);
    }
    if (status == FERRY_OK) {
        status =
            ferry_group_allgather(session->group, mine, 2 * (size_t)size * sizeof *mine, all, err);
    }
    for (uint32_t from = 0; from < size && status == FERRY_OK; from++) {
        for (uint32_t to = 0; to < size && status == FERRY_OK; to++) {
            uint64_t sent = all[2 * (size_t)size * from + to];
            uint64_t received = all[2 * (size_t)size * to + size + from];
            if (sent != received) {
                uint32_t a = ferry_group_world_rank(session->group, from);
                uint32_t b = ferry_group_world_rank(session->group, to);
                status = fy_fail(err, FERRY_MISMATCH,
                                 "the plans of rank %" PRIu32 " and rank %" PRIu32
                                 " differ in what the first sends to the second",
                                 a, b);
                fy_error_ranks(err, a, b);
            }
        }
    }
    fy_free(mine);
    fy_free(all);
    fy_free(letters);
    return status;
}

ferry_status_t fy_agree_on_inputs(fy_session_t *session, ferry_status_t status,
                                  const ferry_error_t *mine, ferry_error_t *err) {
    bool late = session->options.refresh != NULL || session->options.check ||
                session->transform != NULL || session->bucketed || session->options.commit != NULL;
    fy_letter_t letter = {{ferry_plan_hash(session->plan), options_hash(session),
                           transform_hash(session), session->options.budget_bytes, late ? 1 : 0, 0},
                          FERRY_ERROR_INIT};
    if (status != FERRY_OK) {
        letter.error = *mine;
        fy_letter_fail(&letter, status, ferry_world_rank(session->world));
    }
    fy_letter_t *all = fy_alloc(session->size, sizeof *all);
    if (all == NULL) {
        return fy_fail_nomem(err, "the letters of a session");
    }
    status = fy_agree(session->group, &letter, all, err);
    if (status == FERRY_OK) {
        status = compare(session, all, err);
    }
    fy_free(all);
    return status == FERRY_OK ? compare_pairs(session, err) : status;
}
