/* pairs.c - ends become pairs, and every pair gets its way.
 *
 * Everything here is a function of what all members said, so all ranks come to the same pairs in the
 * same order, or to the same error. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/text.h"
#include "service/builtin.h"
#include "world/world.h"

/* --- matching ---------------------------------------------------------------------------------- */

static int by_id(const void *left, const void *right) {
    const fy_end_t *a = left;
    const fy_end_t *b = right;
    if (a->task_id != b->task_id) {
        return a->task_id < b->task_id ? -1 : 1;
    }
    if (a->owner != b->owner) {
        return a->owner < b->owner ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static uint32_t world_rank(const fy_builtin_t *service, uint32_t member) {
    return ferry_group_world_rank(service->group, member);
}

/* The ranks of a complaint, from the end that it is about. */
static ferry_status_t about(const fy_builtin_t *service, const fy_end_t *end, ferry_status_t status,
                            ferry_error_t *err) {
    fy_error_ranks(err, world_rank(service, end->owner), world_rank(service, end->peer));
    return status;
}

static ferry_status_t check_repeats(const fy_builtin_t *service, const char *what,
                                    const fy_end_t *ends, size_t count, ferry_error_t *err) {
    for (size_t i = 1; i < count; i++) {
        if (ends[i].task_id == ends[i - 1].task_id) {
            (void)fy_fail(err, FERRY_MISMATCH,
                          "%s: task id %" PRIu64 " repeats: %s %" PRIu32 " of rank %" PRIu32
                          " and %s %" PRIu32 " of rank %" PRIu32,
                          FY_SERVICE_NAME, ends[i].task_id, what, ends[i - 1].index,
                          world_rank(service, ends[i - 1].owner), what, ends[i].index,
                          world_rank(service, ends[i].owner));
            return about(service, &ends[i], FERRY_MISMATCH, err);
        }
    }
    return FERRY_OK;
}

static ferry_status_t lonely(const fy_builtin_t *service, const fy_end_t *end, const char *what,
                             const char *missing, ferry_error_t *err) {
    (void)fy_fail(err, FERRY_MISMATCH,
                  "%s: %s %" PRIu32 " of rank %" PRIu32 ", task id %" PRIu64 ", has no %s at rank "
                  "%" PRIu32,
                  FY_SERVICE_NAME, what, end->index, world_rank(service, end->owner), end->task_id,
                  missing, world_rank(service, end->peer));
    return about(service, end, FERRY_MISMATCH, err);
}

/* --- do the ends fit? -------------------------------------------------------------------------- */

static bool same_shape(const fy_end_t *a, const fy_end_t *b) {
    bool same = a->ndim == b->ndim;
    for (uint32_t i = 0; i < a->ndim && same; i++) {
        same = a->shape[i] == b->shape[i];
    }
    return same;
}

static ferry_status_t check_pair(const fy_builtin_t *service, const fy_end_t *send,
                                 const fy_end_t *recv, ferry_error_t *err) {
    if (send->peer != recv->owner || recv->peer != send->owner) {
        (void)fy_fail(err, FERRY_MISMATCH,
                      "%s: task id %" PRIu64 ": rank %" PRIu32 " sends to rank %" PRIu32
                      ", but rank %" PRIu32 " receives from rank %" PRIu32,
                      FY_SERVICE_NAME, send->task_id, world_rank(service, send->owner),
                      world_rank(service, send->peer), world_rank(service, recv->owner),
                      world_rank(service, recv->peer));
        return about(service, recv, FERRY_MISMATCH, err);
    }
    if (!same_shape(send, recv)) {
        char shapes[2][128];
        fy_text_t text;
        fy_text_init(&text, shapes[0], sizeof shapes[0]);
        fy_text_shape(&text, send->ndim, send->shape);
        fy_text_init(&text, shapes[1], sizeof shapes[1]);
        fy_text_shape(&text, recv->ndim, recv->shape);
        (void)fy_fail(err, FERRY_MISMATCH,
                      "%s: task id %" PRIu64 ": the source is %s, the target %s", FY_SERVICE_NAME,
                      send->task_id, shapes[0], shapes[1]);
        return about(service, recv, FERRY_MISMATCH, err);
    }
    bool converts = send->dtype == recv->dtype ||
                    (ferry_dtype_is_float(send->dtype) && ferry_dtype_is_float(recv->dtype));
    if (!converts) {
        (void)fy_fail(err, FERRY_MISMATCH, "%s: task id %" PRIu64 ": %s does not convert to %s",
                      FY_SERVICE_NAME, send->task_id, ferry_dtype_name(send->dtype),
                      ferry_dtype_name(recv->dtype));
        return about(service, recv, FERRY_MISMATCH, err);
    }
    if (send->wire != FERRY_DTYPE_NONE && send->wire != send->dtype && send->wire != recv->dtype) {
        (void)fy_fail(err, FERRY_MISMATCH,
                      "%s: task id %" PRIu64
                      ": the wire dtype %s is neither the source's %s nor the "
                      "target's %s",
                      FY_SERVICE_NAME, send->task_id, ferry_dtype_name(send->wire),
                      ferry_dtype_name(send->dtype), ferry_dtype_name(recv->dtype));
        return about(service, send, FERRY_MISMATCH, err);
    }
    return FERRY_OK;
}

/* --- the way ----------------------------------------------------------------------------------- */

static bool reaches(const fy_builtin_t *service, uint32_t member, const fy_end_t *end) {
    return service->one_process || end->key.reach == FERRY_MEM_ARENA || end->owner == member;
}

static bool worth_reading(const fy_builtin_t *service, const fy_said_t *said, const fy_end_t *send,
                          const fy_end_t *recv) {
    if (send->dtype != recv->dtype || send->key.reach != FERRY_MEM_OWN ||
        said->can_read[recv->owner * service->size + send->owner] == 0) {
        return false;
    }
    fy_stretches_t stretches;
    fy_stretches(recv->ndim, recv->shape, recv->strides, send->strides,
                 ferry_dtype_bits(recv->dtype) / 8, &stretches);
    return stretches.run_bytes >= service->params.read_run_bytes;
}

/* Who can address both ends copies: the sender before the receiver, because one pass over its source
 * that scatters to all targets is faster than many passes that gather from all sources (reads are
 * what memory waits for; stores stream past it). Else who can read, reads; else both stage. */
static void choose(const fy_builtin_t *service, const fy_said_t *said, fy_pair_t *pair) {
    const fy_end_t *send = pair->send;
    const fy_end_t *recv = pair->recv;
    uint32_t allowed = service->params.paths;
    bool direct = (allowed & FERRY_PATH_DIRECT) != 0 || send->owner == recv->owner;
    pair->doer = recv->owner;
    if (recv->elements == 0) {
        pair->path = 0;
    } else if (direct && reaches(service, send->owner, recv)) {
        pair->path = FERRY_PATH_DIRECT;
        pair->doer = send->owner;
    } else if (direct && reaches(service, recv->owner, send)) {
        pair->path = FERRY_PATH_DIRECT;
    } else if ((allowed & FERRY_PATH_READ) != 0 && worth_reading(service, said, send, recv)) {
        pair->path = FERRY_PATH_READ;
    } else {
        pair->path = FERRY_PATH_PIPELINE;
    }
}

static ferry_status_t join(fy_builtin_t *service, const fy_said_t *said, fy_pair_t *pairs,
                           ferry_error_t *err) {
    size_t count = 0;
    for (size_t i = 0, j = 0; i < said->nsends || j < said->nrecvs;) {
        const fy_end_t *send = i < said->nsends ? &said->sends[i] : NULL;
        const fy_end_t *recv = j < said->nrecvs ? &said->recvs[j] : NULL;
        if (recv == NULL || (send != NULL && send->task_id < recv->task_id)) {
            return lonely(service, send, "send", "receive", err);
        }
        if (send == NULL || recv->task_id < send->task_id) {
            return lonely(service, recv, "receive", "send", err);
        }
        FY_TRY(check_pair(service, send, recv, err));
        pairs[count].send = send;
        pairs[count].recv = recv;
        choose(service, said, &pairs[count]);
        count++;
        i++;
        j++;
    }
    return FERRY_OK;
}

ferry_status_t fy_make_pairs(fy_builtin_t *service, const fy_said_t *said, fy_arena_t *arena,
                             fy_pair_t **pairs_p, ferry_error_t *err) {
    if (said->nsends > 0) {
        qsort(said->sends, said->nsends, sizeof *said->sends, by_id);
    }
    if (said->nrecvs > 0) {
        qsort(said->recvs, said->nrecvs, sizeof *said->recvs, by_id);
    }
    FY_TRY(check_repeats(service, "send", said->sends, said->nsends, err));
    FY_TRY(check_repeats(service, "receive", said->recvs, said->nrecvs, err));
    fy_pair_t *pairs = fy_arena_alloc(arena, said->nsends, sizeof *pairs);
    if (pairs == NULL) {
        return fy_fail_nomem(err, "matching a batch");
    }
    FY_TRY(join(service, said, pairs, err));
    *pairs_p = pairs;
    return FERRY_OK;
}
