/* group.c - groups of ranks: numbers, barrier, all-gather.
 *
 * Nothing is set up for a group: exchanges go pair by pair. For each ordered pair of ranks there is a
 * cell with two counters (posts sent, posts read); since both ends make their calls in the same order,
 * the n-th post of one is the n-th that the other takes, whatever groups the posts belong to. A note in
 * the cell says which call it was, so calls that do not fit together are found and not mixed up.
 *
 * Bytes travel in the sender's mailbox: two halves, each holding one step of one call for all its
 * readers at once. A half is written again only when all of them have read it. An exchange returns when
 * everything was read here; then everyone has posted everything, so the others can finish alone. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "world/world.h"

struct ferry_group {
    ferry_world_t *world;
    uint32_t size;
    uint32_t rank; /* this rank's number, or FERRY_RANK_NONE */
    uint64_t hash;
    uint32_t *ranks;   /* member -> world rank */
    uint32_t *members; /* world rank -> member, or FERRY_RANK_NONE */
};

struct ferry_blobs {
    uint32_t count;
    uint8_t *bytes;
    size_t *at; /* count + 1 */
    size_t *sizes;
};

#define BLOB_ALIGN 16

typedef enum call_kind {
    CALL_BARRIER = 1,
    CALL_GATHER = 2,
    CALL_SIZES = 3,
    CALL_BLOBS = 4,
} call_kind_t;

static const char *const call_names[] = {"?", "barrier", "all-gather", "gather of blobs (sizes)",
                                         "gather of blobs"};

/* --- groups ------------------------------------------------------------------------------------ */

static ferry_status_t fill_group(ferry_group_t *group, const uint32_t *ranks, ferry_error_t *err) {
    uint32_t world_size = group->world->size;
    group->ranks = fy_alloc(group->size, sizeof *group->ranks);
    group->members = fy_alloc(world_size, sizeof *group->members);
    if (group->ranks == NULL || group->members == NULL) {
        return fy_fail_nomem(err, "a group");
    }
    for (uint32_t rank = 0; rank < world_size; rank++) {
        group->members[rank] = FERRY_RANK_NONE;
    }
    for (uint32_t member = 0; member < group->size; member++) {
        uint32_t rank = ranks[member];
        if (rank >= world_size) {
            return fy_fail(err, FERRY_INVALID,
                           "group member %" PRIu32 " is rank %" PRIu32 " of a world of %" PRIu32,
                           member, rank, world_size);
        }
        if (group->members[rank] != FERRY_RANK_NONE) {
            return fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " is twice in the group", rank);
        }
        group->members[rank] = member;
        group->ranks[member] = rank;
    }
    group->rank = group->members[group->world->rank];
    group->hash = fy_hash_list_u32(0, group->ranks, group->size);
    return FERRY_OK;
}

ferry_status_t ferry_group_create(ferry_world_t *world, const uint32_t *ranks, uint32_t count,
                                  ferry_group_t **group_p, ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(group_p, err);
    FY_NEED_ARRAY(ranks, count, err);
    if (count == 0 || count > world->size) {
        return fy_fail(err, FERRY_INVALID, "a group has 1 to %" PRIu32 " members, not %" PRIu32,
                       world->size, count);
    }
    ferry_group_t *group = fy_alloc_zero(1, sizeof *group);
    if (group == NULL) {
        return fy_fail_nomem(err, "a group");
    }
    group->world = world;
    group->size = count;
    ferry_status_t status = fill_group(group, ranks, err);
    if (status != FERRY_OK) {
        ferry_group_destroy(group);
        return status;
    }
    *group_p = group;
    return FERRY_OK;
}

void ferry_group_destroy(ferry_group_t *group) {
    if (group != NULL) {
        fy_free(group->ranks);
        fy_free(group->members);
        fy_free(group);
    }
}

ferry_world_t *ferry_group_world(const ferry_group_t *group) {
    return group->world;
}

uint32_t ferry_group_size(const ferry_group_t *group) {
    return group->size;
}

uint32_t ferry_group_rank(const ferry_group_t *group) {
    return group->rank;
}

uint32_t ferry_group_world_rank(const ferry_group_t *group, uint32_t member) {
    return member < group->size ? group->ranks[member] : FERRY_RANK_NONE;
}

uint32_t ferry_group_member(const ferry_group_t *group, uint32_t world_rank) {
    return world_rank < group->world->size ? group->members[world_rank] : FERRY_RANK_NONE;
}

/* --- exchanges --------------------------------------------------------------------------------- */

/* One collective call of this rank. Member i's blob is sizes[i] bytes and goes to base + at[i]; without
 * these arrays all are `bytes` long, one after the other. */
typedef struct call {
    ferry_group_t *group;
    call_kind_t kind;
    uint64_t deadline_ns;
    const uint8_t *mine;
    size_t bytes;
    uint8_t *base;
    const size_t *at;
    const size_t *sizes;
} call_t;

ferry_status_t fy_exchange_init(ferry_world_t *world, ferry_error_t *err) {
    uint32_t size = world->size;
    world->sent = fy_alloc_zero(size, sizeof *world->sent);
    world->got = fy_alloc_zero(size, sizeof *world->got);
    bool out = world->sent == NULL || world->got == NULL;
    for (int i = 0; i < 2; i++) {
        world->halves[i].peers = fy_alloc_zero(size, sizeof(uint32_t));
        world->halves[i].values = fy_alloc_zero(size, sizeof(uint32_t));
        out = out || world->halves[i].peers == NULL || world->halves[i].values == NULL;
    }
    return out ? fy_fail_nomem(err, "a world") : FERRY_OK;
}

void fy_exchange_fini(ferry_world_t *world) {
    fy_free(world->sent);
    fy_free(world->got);
    for (int i = 0; i < 2; i++) {
        fy_free(world->halves[i].peers);
        fy_free(world->halves[i].values);
    }
}

/* Between the two meetings of a recovery: each rank clears what it alone writes. */
void fy_exchange_reset(ferry_world_t *world) {
    for (uint32_t rank = 0; rank < world->size; rank++) {
        atomic_store(&fy_space_cell(world->space, world->rank, rank)->sent.value, 0);
        atomic_store(&fy_space_cell(world->space, rank, world->rank)->read.value, 0);
        world->sent[rank] = 0;
        world->got[rank] = 0;
    }
    world->halves[0].count = 0;
    world->halves[1].count = 0;
    world->posted = 0;
}

static ferry_status_t await(const call_t *call, fy_counter_t *counter, uint32_t value,
                            uint32_t peer, ferry_error_t *err) {
    fy_wait_t wait = {call->group->world, peer, call_names[call->kind], call->deadline_ns};
    return fy_wait_until_at_least(counter, value, &wait, err);
}

/* Puts a step into the next half of the mailbox, once its last readers are done. */
static ferry_status_t fill_mail(const call_t *call, const uint8_t *bytes, size_t length,
                                ferry_error_t *err) {
    ferry_world_t *world = call->group->world;
    fy_half_t *half = &world->halves[world->posted % 2];
    for (uint32_t i = 0; i < half->count; i++) {
        uint32_t peer = half->peers[i];
        fy_cell_t *cell = fy_space_cell(world->space, world->rank, peer);
        FY_TRY(await(call, &cell->read, half->values[i], peer, err));
    }
    half->count = 0;
    memcpy(fy_space_mail(world->space, world->rank, world->posted % 2), bytes, length);
    return FERRY_OK;
}

/* Tells all other members of the next step; `length` bytes of it go through the mailbox. */
static ferry_status_t post(const call_t *call, const uint8_t *bytes, size_t length,
                           ferry_error_t *err) {
    ferry_group_t *group = call->group;
    ferry_world_t *world = group->world;
    uint32_t turn = world->posted % 2;
    if (length > 0) {
        FY_TRY(fill_mail(call, bytes, length, err));
    }
    for (uint32_t member = 0; member < group->size; member++) {
        if (member == group->rank) {
            continue;
        }
        uint32_t peer = group->ranks[member];
        fy_cell_t *cell = fy_space_cell(world->space, world->rank, peer);
        uint32_t number = world->sent[peer];
        FY_TRY(await(call, &cell->read, number - 1, peer, err));
        cell->note[number % 2] = (fy_note_t){group->hash, call->bytes, call->kind, turn};
        world->sent[peer] = number + 1;
        if (length > 0) {
            fy_half_t *half = &world->halves[turn];
            half->peers[half->count] = peer;
            half->values[half->count++] = number + 1;
        }
        fy_counter_set(&cell->sent, number + 1);
    }
    world->posted += length > 0 ? 1 : 0;
    return FERRY_OK;
}

static ferry_status_t complain(const call_t *call, uint32_t peer, const fy_note_t *note,
                               ferry_error_t *err) {
    char members[128];
    fy_text_t text;
    fy_text_init(&text, members, sizeof members);
    fy_text_ranks(&text, call->group->ranks, call->group->size);
    uint32_t kind = note->kind <= CALL_BLOBS ? note->kind : 0;
    uint32_t rank = call->group->world->rank;
    ferry_error_t mine;
    (void)fy_fail(&mine, FERRY_MISMATCH,
                  "calls do not fit: rank %" PRIu32
                  " is in %s of %zu bytes over ranks %s, rank %" PRIu32 " in %s of %" PRIu64
                  " bytes%s",
                  rank, call_names[call->kind], call->bytes, members, peer, call_names[kind],
                  note->bytes, note->group != call->group->hash ? " over other ranks" : "");
    mine.rank = rank;
    mine.peer = peer;
    return ferry_world_fail(call->group->world, &mine, err);
}

static size_t blob_bytes(const call_t *call, uint32_t member) {
    return call->sizes != NULL ? call->sizes[member] : call->bytes;
}

/* Takes a member's next step: up to FY_MAIL_BYTES of its blob, from `done`. */
static ferry_status_t take(const call_t *call, uint32_t member, size_t done, ferry_error_t *err) {
    ferry_world_t *world = call->group->world;
    uint32_t peer = call->group->ranks[member];
    fy_cell_t *cell = fy_space_cell(world->space, peer, world->rank);
    uint32_t number = world->got[peer];
    FY_TRY(await(call, &cell->sent, number + 1, peer, err));
    fy_note_t note = cell->note[number % 2];
    size_t bytes = blob_bytes(call, member);
    if (note.group != call->group->hash || note.kind != (uint32_t)call->kind ||
        note.bytes != bytes || note.half > 1) {
        return complain(call, peer, &note, err);
    }
    size_t length = (size_t)fy_min_u64(bytes - done, FY_MAIL_BYTES);
    if (length > 0) {
        size_t at = call->at != NULL ? call->at[member] : member * call->bytes;
        memcpy(call->base + at + done, fy_space_mail(world->space, peer, note.half), length);
    }
    world->got[peer] = number + 1;
    fy_counter_set(&cell->read, number + 1);
    return FERRY_OK;
}

static ferry_status_t exchange(call_t *call, ferry_error_t *err) {
    ferry_group_t *group = call->group;
    size_t most = call->bytes;
    for (uint32_t member = 0; member < group->size; member++) {
        most = (size_t)fy_max_u64(most, blob_bytes(call, member));
    }
    for (size_t done = 0; done == 0 || done < most; done += FY_MAIL_BYTES) {
        if (done == 0 || done < call->bytes) {
            size_t length = (size_t)fy_min_u64(call->bytes - done, FY_MAIL_BYTES);
            FY_TRY(post(call, call->mine + done, length, err));
        }
        for (uint32_t i = 1; i < group->size; i++) {
            /* Each begins with its neighbour, so that not all read from one mailbox. */
            uint32_t member = (group->rank + i) % group->size;
            if (done == 0 || done < blob_bytes(call, member)) {
                FY_TRY(take(call, member, done, err));
            }
        }
    }
    return FERRY_OK;
}

/* The door of every collective call. */
static ferry_status_t begin(ferry_group_t *group, ferry_error_t *err) {
    FY_NEED(group, err);
    FY_TRY(ferry_world_check(group->world, err));
    if (group->rank == FERRY_RANK_NONE) {
        return fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " is not a member of the group",
                       group->world->rank);
    }
    return FERRY_OK;
}

ferry_status_t ferry_group_barrier(ferry_group_t *group, ferry_error_t *err) {
    FY_TRY(begin(group, err));
    uint8_t nothing = 0;
    call_t call = {.group = group, .kind = CALL_BARRIER, .mine = &nothing, .base = &nothing};
    return exchange(&call, err);
}

static ferry_status_t gather(ferry_group_t *group, call_kind_t kind, const void *mine, size_t bytes,
                             void *all, ferry_error_t *err) {
    call_t call = {.group = group, .kind = kind, .mine = mine, .bytes = bytes, .base = all};
    if (bytes > 0) {
        memmove(call.base + group->rank * bytes, mine, bytes);
    }
    return exchange(&call, err);
}

ferry_status_t ferry_group_allgather(ferry_group_t *group, const void *mine, size_t bytes,
                                     void *all_p, ferry_error_t *err) {
    FY_TRY(begin(group, err));
    uint8_t nothing = 0;
    size_t total = 0;
    FY_NEED_ARRAY(mine, bytes, err);
    FY_NEED_ARRAY(all_p, bytes, err);
    if (!fy_mul_size(bytes, group->size, &total)) {
        return fy_fail(err, FERRY_OVERFLOW, "all-gather: %zu bytes from %" PRIu32 " ranks", bytes,
                       group->size);
    }
    return gather(group, CALL_GATHER, bytes > 0 ? mine : &nothing, bytes,
                  bytes > 0 ? all_p : &nothing, err);
}

/* --- blobs ------------------------------------------------------------------------------------- */

static ferry_status_t make_blobs(const ferry_group_t *group, ferry_blobs_t **blobs_p,
                                 ferry_error_t *err) {
    ferry_blobs_t *blobs = fy_alloc_zero(1, sizeof *blobs);
    if (blobs == NULL) {
        return fy_fail_nomem(err, "blobs");
    }
    *blobs_p = blobs;
    blobs->count = group->size;
    blobs->at = fy_alloc_zero((size_t)group->size + 1, sizeof *blobs->at);
    blobs->sizes = fy_alloc_zero(group->size, sizeof *blobs->sizes);
    return blobs->at == NULL || blobs->sizes == NULL ? fy_fail_nomem(err, "blobs") : FERRY_OK;
}

static ferry_status_t place_blobs(ferry_blobs_t *blobs, ferry_error_t *err) {
    for (uint32_t i = 0; i < blobs->count; i++) {
        uint64_t end = 0;
        if (!fy_add_u64(blobs->at[i], blobs->sizes[i], &end) ||
            !fy_add_u64(end, BLOB_ALIGN - 1, &end)) {
            return fy_fail(err, FERRY_OVERFLOW, "blobs of more than 64 bits of bytes");
        }
        blobs->at[i + 1] = (size_t)(end - end % BLOB_ALIGN);
    }
    blobs->bytes = fy_alloc(blobs->at[blobs->count], 1);
    return blobs->bytes == NULL ? fy_fail_nomem(err, "blobs") : FERRY_OK;
}

static ferry_status_t gather_blobs(ferry_group_t *group, const void *mine, size_t bytes,
                                   ferry_blobs_t *blobs, ferry_error_t *err) {
    FY_TRY(gather(group, CALL_SIZES, &bytes, sizeof bytes, blobs->sizes, err));
    ferry_error_t out;
    if (place_blobs(blobs, &out) != FERRY_OK) {
        return ferry_world_fail(group->world, &out, err); /* the others wait for our blob */
    }
    uint8_t nothing = 0;
    call_t call = {.group = group,
                   .kind = CALL_BLOBS,
                   .mine = bytes > 0 ? mine : &nothing,
                   .bytes = bytes,
                   .base = blobs->bytes,
                   .at = blobs->at,
                   .sizes = blobs->sizes};
    if (bytes > 0) {
        memcpy(blobs->bytes + blobs->at[group->rank], mine, bytes);
    }
    return exchange(&call, err);
}

ferry_status_t ferry_group_gather_blobs(ferry_group_t *group, const void *mine, size_t bytes,
                                        ferry_blobs_t **blobs_p, ferry_error_t *err) {
    FY_TRY(begin(group, err));
    FY_NEED_ARRAY(mine, bytes, err);
    FY_NEED(blobs_p, err);
    ferry_blobs_t *blobs = NULL;
    ferry_status_t status = make_blobs(group, &blobs, err);
    if (status == FERRY_OK) {
        status = gather_blobs(group, mine, bytes, blobs, err);
    }
    if (status != FERRY_OK) {
        ferry_blobs_destroy(blobs);
        return status;
    }
    *blobs_p = blobs;
    return FERRY_OK;
}

const void *ferry_blobs_get(const ferry_blobs_t *blobs, uint32_t member, size_t *bytes_p) {
    if (blobs == NULL || member >= blobs->count) {
        return NULL;
    }
    if (bytes_p != NULL) {
        *bytes_p = blobs->sizes[member];
    }
    return blobs->bytes + blobs->at[member];
}

void ferry_blobs_destroy(ferry_blobs_t *blobs) {
    if (blobs != NULL) {
        fy_free(blobs->bytes);
        fy_free(blobs->at);
        fy_free(blobs->sizes);
        fy_free(blobs);
    }
}
