/* payloads.c - do both ends of a transform's slices mean the same?
 *
 * Every rank says, for each slice that it sends or gets, how many payloads travel and what they look like;
 * everybody looks at its own slices in what the peers said. The dtypes of the receiver are kept: a hash of a
 * payload is taken over what lands.
 *
 * A payload that the receiver would only stage, and whose memory it can address, is not sent at all: it
 * is lent. The receiver reads it where the sender has it, between two meetings of all ranks. Not under a gate,
 * which has to have everything before the decision. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/hash.h"
#include "reshard/session.h"
#include "reshard/unit.h"

/* One end of one slice. Plain memory that travels as it is: all ranks are of one build. */
typedef struct said {
    uint64_t task_id;
    uint32_t slab;
    uint32_t peer;
    uint32_t receives;
    uint32_t count;
    uint64_t shapes[FERRY_MAX_PAYLOADS]; /* hashes */
    uint32_t dtypes[FERRY_MAX_PAYLOADS];
    uint32_t reach[FERRY_MAX_PAYLOADS];  /* sender: ferry_mem_reach_t of its memory */
    uint32_t staged[FERRY_MAX_PAYLOADS]; /* receiver: it has no memory of its own for it */
} said_t;

/* The memory of a view, and where its first element lies in it. */
static ferry_status_t key_of(const fy_session_t *session, const ferry_view_t *view,
                             ferry_mem_key_t *key_p, uint64_t *offset_p, ferry_error_t *err) {
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    *offset_p = (uint64_t)-low;
    return ferry_mem_register(session->world, (const uint8_t *)view->data + low,
                              (size_t)(high - low), key_p, err);
}

static uint32_t reach_of(const fy_session_t *session, const fy_cargo_t *cargo, uint32_t i) {
    ferry_mem_key_t key = {.reach = FERRY_MEM_ARENA};
    uint64_t offset = 0;
    if (cargo->staged_send[i] != 0) {
        return FERRY_MEM_ARENA;
    }
    if (key_of(session, &cargo->send[i], &key, &offset, NULL) != FERRY_OK) {
        return FERRY_MEM_NONE;
    }
    ferry_mem_unregister(session->world, &key);
    return key.reach;
}

static void say(const fy_session_t *session, const fy_cargo_t *cargo, bool receives, said_t *said) {
    const ferry_view_t *views = receives ? cargo->recv[0] : cargo->send;
    memset(said, 0, sizeof *said);
    said->task_id = cargo->chunk->task_id;
    said->slab = cargo->chunk->slab;
    said->peer = receives ? cargo->chunk->source : cargo->chunk->target;
    said->receives = receives ? 1 : 0;
    said->count = receives ? cargo->nrecv : cargo->nsend;
    for (uint32_t i = 0; i < said->count; i++) {
        said->shapes[i] = fy_hash_list_u64(views[i].ndim, views[i].shape, views[i].ndim);
        said->dtypes[i] = views[i].dtype;
        said->reach[i] = receives ? FERRY_MEM_NONE : reach_of(session, cargo, i);
        said->staged[i] = receives ? cargo->staged_recv[i] : 0;
    }
}

static said_t *say_all(const fy_session_t *session, size_t *count_p) {
    said_t *all = fy_alloc(2 * session->ncargo, sizeof *all);
    *count_p = 0;
    for (size_t i = 0; i < session->ncargo && all != NULL; i++) {
        const fy_cargo_t *cargo = &session->cargo[i];
        if (cargo->binding->transformed && cargo->nsend > 0) {
            say(session, cargo, false, &all[(*count_p)++]);
        }
        if (cargo->binding->transformed && cargo->nrecv > 0) {
            say(session, cargo, true, &all[(*count_p)++]);
        }
    }
    return all;
}

static ferry_status_t compare(const said_t *mine, const said_t *theirs, ferry_error_t *err) {
    if (theirs == NULL || mine->count != theirs->count) {
        const said_t *sender = mine->receives != 0 ? theirs : mine;
        const said_t *receiver = mine->receives != 0 ? mine : theirs;
        return fy_fail(err, FERRY_MISMATCH,
                       "the transform sends %" PRIu32 " payloads and expects %" PRIu32,
                       sender != NULL ? sender->count : 0, receiver != NULL ? receiver->count : 0);
    }
    for (uint32_t i = 0; i < mine->count; i++) {
        if (mine->shapes[i] != theirs->shapes[i]) {
            return fy_fail(err, FERRY_MISMATCH,
                           "payload %" PRIu32 " of the transform has another shape on the two ends",
                           i);
        }
    }
    return FERRY_OK;
}

/* The peer's word on the other end of `mine`. Its list is in the order of ours, so that a search goes on
 * where the last one ended. */
static const said_t *find(const ferry_blobs_t *blobs, uint32_t me, const said_t *mine, size_t *at) {
    size_t bytes = 0;
    const said_t *list = ferry_blobs_get(blobs, mine->peer, &bytes);
    size_t count = bytes / sizeof *list;
    for (size_t i = 0; i < count; i++) {
        size_t k = (*at + i) % count;
        if (list[k].task_id == mine->task_id && list[k].slab == mine->slab && list[k].peer == me &&
            list[k].receives != mine->receives) {
            *at = k + 1;
            return &list[k];
        }
    }
    return NULL;
}

/* Told from both words alike, whoever looks. */
static bool is_lent(const fy_session_t *session, const said_t *mine, const said_t *theirs,
                    uint32_t i) {
    const said_t *sender = mine->receives != 0 ? theirs : mine;
    const said_t *receiver = mine->receives != 0 ? mine : theirs;
    uint32_t peer = ferry_group_world_rank(session->group, mine->peer);
    bool reachable =
        sender->reach[i] == FERRY_MEM_ARENA ||
        (sender->reach[i] == FERRY_MEM_OWN && ferry_world_same_process(session->world, peer));
    return session->may_lend && reachable && receiver->staged[i] != 0 &&
           sender->dtypes[i] == receiver->dtypes[i];
}

/* Keeps what the other end said. */
static void note(const fy_session_t *session, fy_cargo_t *cargo, const said_t *mine,
                 const said_t *theirs) {
    for (uint32_t i = 0; i < mine->count; i++) {
        bool lent = is_lent(session, mine, theirs, i);
        if (mine->receives == 0) {
            cargo->lands_as[i] = (ferry_dtype_t)theirs->dtypes[i];
        } else if (lent) {
            cargo->cost -= fy_staged_bytes(&cargo->recv[0][i]);
        }
        cargo->lent[i] = lent;
    }
}

static ferry_status_t look(fy_session_t *session, const ferry_blobs_t *blobs, ferry_error_t *err) {
    size_t *at = fy_alloc_zero(2 * (size_t)session->size, sizeof *at);
    ferry_status_t status = at == NULL ? fy_fail_nomem(err, "the payloads of a session") : FERRY_OK;
    for (size_t i = 0; i < 2 * session->ncargo && status == FERRY_OK; i++) {
        fy_cargo_t *cargo = &session->cargo[i / 2];
        bool receives = i % 2 == 1;
        if (!cargo->binding->transformed || (receives ? cargo->nrecv : cargo->nsend) == 0) {
            continue;
        }
        said_t mine;
        say(session, cargo, receives, &mine);
        const said_t *theirs =
            find(blobs, session->me, &mine, &at[mine.peer + (receives ? session->size : 0)]);
        status = compare(&mine, theirs, err);
        if (status != FERRY_OK) {
            fy_cargo_blame(session, cargo, err);
        } else {
            note(session, cargo, &mine, theirs);
        }
    }
    fy_free(at);
    return status;
}

/* Everybody's records, after all have agreed that they have theirs. */
static ferry_status_t exchange(fy_session_t *session, const void *mine, size_t bytes,
                               ferry_status_t made, fy_letter_t *letter, fy_letter_t *all,
                               ferry_blobs_t **blobs_p, ferry_error_t *err) {
    if (made != FERRY_OK) {
        fy_letter_fail(letter, made, ferry_world_rank(session->world));
    }
    FY_TRY(fy_agree(session->group, letter, all, err));
    return ferry_group_gather_blobs(session->group, mine, bytes, blobs_p, err);
}

ferry_status_t fy_agree_on_payloads(fy_session_t *session, ferry_error_t *err) {
    fy_letter_t letter = {{0}, FERRY_ERROR_INIT};
    fy_letter_t *all = fy_alloc(session->size, sizeof *all);
    if (all == NULL) {
        return fy_fail_nomem(err, "the letters of a session");
    }
    size_t count = 0;
    said_t *mine = say_all(session, &count);
    ferry_blobs_t *blobs = NULL;
    ferry_status_t status =
        exchange(session, mine, count * sizeof *mine, mine != NULL ? FERRY_OK : FERRY_NOMEM,
                 &letter, all, &blobs, err);
    if (status == FERRY_OK) {
        ferry_status_t found = look(session, blobs, &letter.error);
        if (found != FERRY_OK) {
            fy_letter_fail(&letter, found, ferry_world_rank(session->world));
        }
        status = fy_agree(session->group, &letter, all, err);
    }
    ferry_blobs_destroy(blobs);
    fy_free(mine);
    fy_free(all);
    return status;
}

/* --- lending ----------------------------------------------------------------------------------- */

/* Where a payload lies that is lent. */
typedef struct loan {
    uint64_t task_id;
    uint32_t slab;
    uint32_t peer; /* the receiver */
    uint32_t payload;
    ferry_mem_key_t key;
    uint64_t offset; /* of the first element */
    int64_t strides[FERRY_MAX_DIMS];
} loan_t;

static ferry_status_t list_loans(const fy_session_t *session, loan_t *loans, size_t *count_p,
                                 ferry_error_t *err) {
    for (size_t i = 0; i < session->ncargo; i++) {
        const fy_cargo_t *cargo = &session->cargo[i];
        for (uint32_t k = 0; k < cargo->nsend; k++) {
            if (!cargo->lent[k]) {
                continue;
            }
            loan_t *loan = &loans[(*count_p)++];
            memset(loan, 0, sizeof *loan);
            loan->task_id = cargo->chunk->task_id;
            loan->slab = cargo->chunk->slab;
            loan->peer = cargo->chunk->target;
            loan->payload = k;
            FY_TRY(key_of(session, &cargo->send[k], &loan->key, &loan->offset, err));
            memcpy(loan->strides, cargo->send[k].strides, sizeof loan->strides);
        }
    }
    return FERRY_OK;
}

static size_t count_loans(const fy_session_t *session) {
    size_t count = 0;
    for (size_t i = 0; i < session->ncargo; i++) {
        for (uint32_t k = 0; k < session->cargo[i].nsend; k++) {
            count += session->cargo[i].lent[k] ? 1 : 0;
        }
    }
    return count;
}

static ferry_status_t borrow(const fy_session_t *session, fy_cargo_t *cargo, uint32_t k,
                             const loan_t *loan, ferry_error_t *err) {
    void *memory = NULL;
    FY_TRY(ferry_mem_map(session->world, &loan->key, &memory, err));
    for (uint32_t copy = 0; copy < session->ncopies; copy++) {
        ferry_view_t *view = &cargo->recv[copy][k];
        view->data = (uint8_t *)memory + loan->offset;
        view->kind = FERRY_MEM_SHARED;
        memcpy(view->strides, loan->strides, sizeof view->strides);
    }
    return FERRY_OK;
}

/* A sender's loans are in the order of its cargo, which is ours, too. */
static ferry_status_t borrow_all(fy_session_t *session, const ferry_blobs_t *blobs, size_t *at,
                                 ferry_error_t *err) {
    for (size_t i = 0; i < session->ncargo; i++) {
        fy_cargo_t *cargo = &session->cargo[i];
        for (uint32_t k = 0; k < cargo->nrecv; k++) {
            if (!cargo->lent[k]) {
                continue;
            }
            uint32_t sender = cargo->chunk->source;
            size_t bytes = 0;
            const loan_t *loans = ferry_blobs_get(blobs, sender, &bytes);
            size_t count = bytes / sizeof *loans;
            while (at[sender] < count && loans[at[sender]].peer != session->me) {
                at[sender]++;
            }
            const loan_t *loan = at[sender] < count ? &loans[at[sender]++] : NULL;
            if (loan == NULL || loan->task_id != cargo->chunk->task_id ||
                loan->slab != cargo->chunk->slab || loan->payload != k) {
                return fy_fail(err, FERRY_CHECK, "the two ends of a transform lend other payloads");
            }
            FY_TRY(borrow(session, cargo, k, loan, err));
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_borrow_payloads(fy_session_t *session, ferry_error_t *err) {
    fy_letter_t letter = {{count_loans(session)}, FERRY_ERROR_INIT};
    fy_letter_t *all = fy_alloc(session->size, sizeof *all);
    loan_t *mine = fy_alloc(letter.numbers[0], sizeof *mine);
    size_t *at = fy_alloc_zero(session->size, sizeof *at);
    ferry_blobs_t *blobs = NULL;
    size_t count = 0;
    ferry_status_t status = FERRY_OK;
    if (all == NULL) {
        status = fy_fail_nomem(err, "the letters of a session");
    } else {
        ferry_status_t made = mine == NULL || at == NULL
                                  ? FERRY_NOMEM
                                  : list_loans(session, mine, &count, &letter.error);
        status = exchange(session, mine, count * sizeof *mine, made, &letter, all, &blobs, err);
    }
    for (uint32_t member = 0; member < session->size && status == FERRY_OK; member++) {
        session->lends = session->lends || all[member].numbers[0] > 0;
    }
    if (status == FERRY_OK) {
        ferry_status_t found = borrow_all(session, blobs, at, &letter.error);
        if (found != FERRY_OK) {
            fy_letter_fail(&letter, found, ferry_world_rank(session->world));
        }
        status = fy_agree(session->group, &letter, all, err);
    }
    ferry_blobs_destroy(blobs);
    fy_free(mine);
    fy_free(at);
    fy_free(all);
    return status;
}
