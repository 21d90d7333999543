/* open.c - opening a set of channels: local preparation, one exchange, attaching, one agreement.
 *
 *   prepare   check the arguments, allocate the counters, register counters and buffers
 *   exchange  everyone's hail: keys and lists of peers, or the record of what failed on that rank
 *   connect   attach all keys, pair the ends, start the proxy
 *   agree     everyone's record once more, so that a set is there on all ranks or on none
 *
 * Invariant: whatever fails on a rank before the agreement is told by that rank in the next exchange
 * and nowhere else, so that all ranks take part in both exchanges and get the same record. */
#include "channel/set.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "channel/transport.h"
#include "world/world.h"

#define NAME_BYTES 32

/* What a rank says of itself; behind it follow its buffers' keys, then its memory and port peers; or,
 * when it failed, its record. */
typedef struct hail {
    uint32_t failed;
    uint32_t nbuffers;
    uint32_t nmemory;
    uint32_t nport;
    ferry_transport_key_t counters;
    char transport[NAME_BYTES];
} hail_t;

/* --- prepare --- */

static ferry_status_t check_peers(const uint32_t *peers, uint32_t count, const char *kind,
                                  uint32_t nmembers, ferry_error_t *err) {
    if (count > FERRY_CHANNELS_MAX_PER_KIND) {
        return fy_fail(err, FERRY_OVERFLOW, "%" PRIu32 " %s channels are more than %d", count, kind,
                       FERRY_CHANNELS_MAX_PER_KIND);
    }
    FY_NEED_ARRAY(peers, count, err);
    for (uint32_t i = 0; i < count; i++) {
        if (peers[i] >= nmembers) {
            return fy_fail(err, FERRY_INVALID,
                           "%s channel %" PRIu32 ": there is no member %" PRIu32
                           " in a group of %" PRIu32,
                           kind, i, peers[i], nmembers);
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_switch(const ferry_switch_members_t *spec, uint32_t id, uint32_t me,
                                   uint32_t nmembers, ferry_error_t *err) {
    FY_NEED_ARRAY(spec->members, spec->count, err);
    bool is_in = false;
    for (uint32_t i = 0; i < spec->count; i++) {
        uint32_t member = spec->members[i];
        if (member >= nmembers) {
            return fy_fail(err, FERRY_INVALID,
                           "switch channel %" PRIu32 ": there is no member %" PRIu32
                           " in a group of %" PRIu32,
                           id, member, nmembers);
        }
        is_in = is_in || member == me;
        for (uint32_t j = 0; j < i; j++) {
            if (spec->members[j] == member) {
                return fy_fail(err, FERRY_INVALID,
                               "switch channel %" PRIu32 ": member %" PRIu32 " is there twice", id,
                               member);
            }
        }
    }
    if (!is_in) {
        return fy_fail(err, FERRY_INVALID,
                       "switch channel %" PRIu32 ": member %" PRIu32 ", this rank, is not in it",
                       id, me);
    }
    return FERRY_OK;
}

static ferry_status_t check_params(const ferry_channels_params_t *params, uint32_t me,
                                   uint32_t nmembers, ferry_error_t *err) {
    FY_NEED(params, err);
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_VERSION, "ferry_channels_params_t has %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    FY_TRY(check_peers(params->memory_peers, params->nmemory, "memory", nmembers, err));
    FY_TRY(check_peers(params->port_peers, params->nport, "port", nmembers, err));
    if (params->nswitch > FERRY_CHANNELS_MAX_PER_KIND ||
        params->nbuffers > FERRY_CHANNELS_MAX_PER_KIND) {
        return fy_fail(err, FERRY_OVERFLOW,
                       "%" PRIu32 " switch channels and %" PRIu32
                       " buffers: neither may be more than %d",
                       params->nswitch, params->nbuffers, FERRY_CHANNELS_MAX_PER_KIND);
    }
    FY_NEED_ARRAY(params->switches, params->nswitch, err);
    for (uint32_t i = 0; i < params->nswitch; i++) {
        FY_TRY(check_switch(&params->switches[i], i, me, nmembers, err));
    }
    FY_NEED_ARRAY(params->buffers, params->nbuffers, err);
    uint32_t slots = params->queue_slots;
    if ((slots & (slots - 1)) != 0 || slots > FERRY_CHANNELS_MAX_QUEUE) {
        return fy_fail(err, FERRY_INVALID,
                       "queue_slots is %" PRIu32 ", not a power of two up to %u", slots,
                       FERRY_CHANNELS_MAX_QUEUE);
    }
    return FERRY_OK;
}

static ferry_status_t make_counters(ferry_channels_t *set, ferry_error_t *err) {
    size_t lines = (size_t)set->nmemory + set->nport + 1;
    void *memory = NULL;
    FY_TRY(ferry_mem_alloc(set->world, lines * FY_COUNTER_BYTES, &memory, err));
    set->counters = memory;
    for (size_t i = 0; i < lines; i++) {
        fy_counter_t *counter = (fy_counter_t *)(void *)(set->counters + i * FY_COUNTER_BYTES);
        atomic_store_explicit(&counter->value, set->first_count, memory_order_relaxed);
    }
    const ferry_transport_t *transport = set->transport;
    FY_TRY(transport->ops->enroll(transport->state, memory, lines * FY_COUNTER_BYTES,
                                  &set->counters_key, err));
    set->has_counters_key = true;
    return FERRY_OK;
}

static ferry_status_t register_buffers(ferry_channels_t *set, const ferry_channels_params_t *params,
                                       ferry_error_t *err) {
    const ferry_transport_t *transport = set->transport;
    set->keys = fy_arena_alloc(&set->arena, params->nbuffers, sizeof *set->keys);
    if (set->keys == NULL) {
        return fy_fail_nomem(err, "the keys of buffers");
    }
    memset(set->keys, 0, params->nbuffers * sizeof *set->keys);
    for (uint32_t i = 0; i < params->nbuffers; i++) {
        const ferry_buffer_t *buffer = &params->buffers[i];
        FY_NEED_ARRAY(buffer->memory, buffer->bytes, err);
        if (buffer->bytes != 0) {
            FY_TRY(transport->ops->enroll(transport->state, buffer->memory, buffer->bytes,
                                          &set->keys[i], err));
        }
        set->nkeys = i + 1;
    }
    return FERRY_OK;
}

static ferry_status_t prepare(ferry_channels_t *set, const ferry_channels_params_t *params,
                              ferry_error_t *err) {
    FY_TRY(check_params(params, set->me, set->nmembers, err));
    set->first_count = params->first_count;
    set->nmemory = params->nmemory;
    set->nport = params->nport;
    set->transport = params->transport;
    if (set->transport == NULL) {
        FY_TRY(ferry_transport_open(set->world, NULL, &set->transport, err));
        set->owns_transport = true;
    } else if (set->transport->world != set->world) {
        return fy_fail(err, FERRY_INVALID, "the transport belongs to another world");
    }
    FY_TRY(make_counters(set, err));
    return register_buffers(set, params, err);
}

/* --- exchange --- */

/* `params` NULL: the hail alone. */
static ferry_status_t gather(ferry_channels_t *set, const hail_t *hail,
                             const ferry_channels_params_t *params, const ferry_error_t *failure,
                             ferry_blobs_t **blobs_p, ferry_error_t *err) {
    const struct {
        const void *from;
        size_t bytes;
    } parts[] = {
        {failure, hail->failed ? sizeof *failure : 0},
        {set->keys, hail->nbuffers * sizeof(ferry_transport_key_t)},
        {params != NULL ? params->memory_peers : NULL, hail->nmemory * sizeof(uint32_t)},
        {params != NULL ? params->port_peers : NULL, hail->nport * sizeof(uint32_t)},
    };
    size_t bytes = sizeof *hail;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bytes += parts[i].bytes;
    }
    uint8_t *blob = fy_alloc_zero(1, bytes);
    if (blob == NULL) {
        return fy_fail_nomem(err, "the exchange of channels");
    }
    memcpy(blob, hail, sizeof *hail);
    uint8_t *at = blob + sizeof *hail;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes > 0) {
            memcpy(at, parts[i].from, parts[i].bytes);
            at += parts[i].bytes;
        }
    }
    ferry_status_t status = ferry_group_gather_blobs(set->group, blob, bytes, blobs_p, err);
    fy_free(blob);
    return status;
}

/* The first failure that a member tells of, or a transport that is not ours. */
static ferry_status_t judge(ferry_channels_t *set, const ferry_blobs_t *blobs, ferry_error_t *err) {
    const hail_t *first = ferry_blobs_get(blobs, 0, NULL);
    for (uint32_t m = 0; m < set->nmembers; m++) {
        const hail_t *hail = ferry_blobs_get(blobs, m, NULL);
        if (hail->failed) {
            ferry_error_t record;
            memcpy(&record, hail + 1, sizeof record);
            if (err != NULL) {
                *err = record;
            }
            return record.status;
        }
    }
    for (uint32_t m = 1; m < set->nmembers; m++) {
        const hail_t *hail = ferry_blobs_get(blobs, m, NULL);
        if (strcmp(hail->transport, first->transport) != 0) {
            ferry_status_t status = fy_fail(
                err, FERRY_MISMATCH, "rank %" PRIu32 " uses transport %s, rank %" PRIu32 " uses %s",
                set->members[m].rank, hail->transport, set->members[0].rank, first->transport);
            fy_error_ranks(err, set->members[m].rank, set->members[0].rank);
            return status;
        }
    }
    return FERRY_OK;
}

/* --- connect --- */

static const ferry_transport_key_t *hail_keys(const hail_t *hail) {
    return (const ferry_transport_key_t *)(const void *)(hail + 1);
}

static const uint32_t *hail_memory(const hail_t *hail) {
    return (const uint32_t *)(const void *)(hail_keys(hail) + hail->nbuffers);
}

static const uint32_t *hail_ports(const hail_t *hail) {
    return hail_memory(hail) + hail->nmemory;
}

static ferry_status_t attach_member(ferry_channels_t *set, fy_member_t *member, const hail_t *hail,
                                    ferry_error_t *err) {
    const ferry_transport_t *transport = set->transport;
    const ferry_transport_key_t *keys = hail_keys(hail);
    member->buffers = fy_arena_alloc(&set->arena, hail->nbuffers, sizeof *member->buffers);
    if (member->buffers == NULL) {
        return fy_fail_nomem(err, "the buffers of peers");
    }
    memset(member->buffers, 0, hail->nbuffers * sizeof *member->buffers);
    member->nbuffers = hail->nbuffers;
    for (uint32_t b = 0; b < hail->nbuffers; b++) {
        member->buffers[b].peer = member->rank;
        if (keys[b].memory.bytes != 0) {
            FY_TRY(transport->ops->attach(transport->state, &keys[b], &member->buffers[b], err));
        }
    }
    FY_TRY(transport->ops->attach(transport->state, &hail->counters, &member->counters, err));
    if ((member->counters.caps & FERRY_TRANSPORT_PUT) == 0) {
        return fy_fail(err, FERRY_UNSUPPORTED, "transport %s cannot signal", hail->transport);
    }
    return FERRY_OK;
}

static ferry_status_t attach_all(ferry_channels_t *set, const ferry_blobs_t *blobs,
                                 ferry_error_t *err) {
    for (uint32_t m = 0; m < set->nmembers; m++) {
        fy_member_t *member = &set->members[m];
        ferry_status_t status = attach_member(set, member, ferry_blobs_get(blobs, m, NULL), err);
        if (status != FERRY_OK) {
            fy_error_ranks(err, ferry_world_rank(set->world), member->rank);
            return status;
        }
    }
    return FERRY_OK;
}

/* Fills in an end and pairs it: the next channel of the peer's list that names us, from next[peer]
 * on. Where there is none, signals go to our own last line, where nobody waits. */
static void pair_end(fy_end_t *end, const uint32_t *theirs, uint32_t ntheirs, uint32_t *next,
                     uint32_t line, uint32_t their_first_line) {
    ferry_channels_t *set = end->set;
    uint32_t i = *next;
    while (i < ntheirs && theirs[i] != set->me) {
        i++;
    }
    *next = i < ntheirs ? i + 1 : i;
    end->inbound = (fy_counter_t *)(void *)(set->counters + (size_t)line * FY_COUNTER_BYTES);
    atomic_init(&end->consumed, set->first_count);
    if (i < ntheirs) {
        end->counted = &set->members[end->peer].counters;
        end->counted_at = ((uint64_t)their_first_line + i) * FY_COUNTER_BYTES;
    } else {
        end->counted = &set->members[set->me].counters;
        end->counted_at = ((uint64_t)set->nmemory + set->nport) * FY_COUNTER_BYTES;
    }
}

static ferry_status_t make_ends(ferry_channels_t *set, const ferry_channels_params_t *params,
                                const ferry_blobs_t *blobs, ferry_error_t *err) {
    set->memory = fy_arena_alloc(&set->arena, set->nmemory, sizeof *set->memory);
    set->ports = fy_arena_alloc(&set->arena, set->nport, sizeof *set->ports);
    uint32_t *next = fy_alloc_zero(set->nmembers, 2 * sizeof *next);
    if (set->memory == NULL || set->ports == NULL || next == NULL) {
        fy_free(next);
        return fy_fail_nomem(err, "channels");
    }
    for (uint32_t i = 0; i < set->nmemory; i++) {
        uint32_t peer = params->memory_peers[i];
        const hail_t *hail = ferry_blobs_get(blobs, peer, NULL);
        set->memory[i].end = (fy_end_t){.set = set, .kind = "memory", .id = i, .peer = peer};
        pair_end(&set->memory[i].end, hail_memory(hail), hail->nmemory, &next[peer], i, 0);
    }
    for (uint32_t i = 0; i < set->nport; i++) {
        uint32_t peer = params->port_peers[i];
        const hail_t *hail = ferry_blobs_get(blobs, peer, NULL);
        set->ports[i].end = (fy_end_t){.set = set, .kind = "port", .id = i, .peer = peer};
        pair_end(&set->ports[i].end, hail_ports(hail), hail->nport, &next[set->nmembers + peer],
                 set->nmemory + i, hail->nmemory);
        atomic_init(&set->ports[i].last, set->first_count);
    }
    fy_free(next);
    return FERRY_OK;
}

static ferry_status_t make_switches(ferry_channels_t *set, const ferry_channels_params_t *params,
                                    ferry_error_t *err) {
    set->switches = fy_arena_alloc(&set->arena, params->nswitch, sizeof *set->switches);
    if (set->switches == NULL) {
        return fy_fail_nomem(err, "switch channels");
    }
    for (uint32_t i = 0; i < params->nswitch; i++) {
        const ferry_switch_members_t *spec = &params->switches[i];
        uint32_t *members = fy_arena_copy(&set->arena, spec->members, spec->count, sizeof *members);
        if (members == NULL) {
            return fy_fail_nomem(err, "switch channels");
        }
        set->switches[i] = (ferry_switch_channel_t){set, i, spec->count, members};
    }
    set->nswitch = params->nswitch;
    return FERRY_OK;
}

static ferry_status_t connect_all(ferry_channels_t *set, const ferry_channels_params_t *params,
                                  const ferry_blobs_t *blobs, ferry_error_t *err) {
    FY_TRY(attach_all(set, blobs, err));
    FY_TRY(make_ends(set, params, blobs, err));
    FY_TRY(make_switches(set, params, err));
    if (set->nport == 0 && set->transport->ops->progress == NULL) {
        return FERRY_OK;
    }
    uint32_t slots = params->queue_slots;
    return fy_proxy_start(set, slots != 0 ? slots : FERRY_CHANNELS_QUEUE_SLOTS, err);
}

/* --- all together --- */

/* Tells the others how far this rank came and returns the first failure of any. */
static ferry_status_t tell(ferry_channels_t *set, const ferry_channels_params_t *params,
                           ferry_status_t status, ferry_error_t *mine, ferry_blobs_t **blobs_p,
                           ferry_error_t *err) {
    hail_t hail = {.failed = status != FERRY_OK};
    if (status == FERRY_OK) {
        hail.nbuffers = params != NULL ? set->nkeys : 0;
        hail.nmemory = params != NULL ? set->nmemory : 0;
        hail.nport = params != NULL ? set->nport : 0;
        hail.counters = set->counters_key;
        (void)strncpy(hail.transport, set->transport->ops->name, NAME_BYTES - 1);
    } else {
        fy_error_ranks(mine, ferry_world_rank(set->world), FERRY_RANK_NONE);
    }
    ferry_error_t trouble = FERRY_ERROR_INIT;
    if (gather(set, &hail, params, mine, blobs_p, &trouble) != FERRY_OK) {
        /* Nothing can be told in the exchange: the world is told. */
        return ferry_world_fail(set->world, &trouble, err);
    }
    return judge(set, *blobs_p, err);
}

static ferry_status_t create(ferry_group_t *group, ferry_channels_t **set_p, ferry_error_t *err) {
    ferry_channels_t *set = fy_alloc_zero(1, sizeof *set);
    if (set == NULL) {
        return fy_fail_nomem(err, "channels");
    }
    set->group = group;
    set->world = ferry_group_world(group);
    set->me = ferry_group_rank(group);
    set->generation = fy_world_generation(set->world);
    set->nmembers = ferry_group_size(group);
    (void)pthread_mutex_init(&set->lock, NULL);
    set->members = fy_arena_alloc(&set->arena, set->nmembers, sizeof *set->members);
    if (set->members == NULL) {
        fy_set_free(set, false);
        return fy_fail_nomem(err, "channels");
    }
    memset(set->members, 0, set->nmembers * sizeof *set->members);
    for (uint32_t m = 0; m < set->nmembers; m++) {
        set->members[m].rank = ferry_group_world_rank(group, m);
    }
    *set_p = set;
    return FERRY_OK;
}

/* The four steps. *agreed_p: no rank has a set, or all will say so; nobody touches our counters. */
static ferry_status_t establish(ferry_channels_t *set, const ferry_channels_params_t *params,
                                bool *agreed_p, ferry_error_t *err) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_blobs_t *blobs = NULL;
    ferry_blobs_t *answers = NULL;
    ferry_status_t status = prepare(set, params, &mine);
    status = tell(set, params, status, &mine, &blobs, err);
    *agreed_p = blobs != NULL;
    if (status == FERRY_OK) {
        *agreed_p = false;
        ferry_error_clear(&mine);
        status = connect_all(set, params, blobs, &mine);
        status = tell(set, NULL, status, &mine, &answers, err);
        *agreed_p = answers != NULL;
    }
    ferry_blobs_destroy(answers);
    ferry_blobs_destroy(blobs);
    return status;
}

ferry_status_t ferry_channels_open(ferry_group_t *group, const ferry_channels_params_t *params,
                                   ferry_channels_t **channels_p, ferry_error_t *err) {
    FY_NEED(group, err);
    FY_NEED(channels_p, err);
    if (ferry_group_rank(group) == FERRY_RANK_NONE) {
        return fy_fail(err, FERRY_INVALID, "this rank is not in the group");
    }
    FY_TRY(ferry_world_check(ferry_group_world(group), err));
    ferry_channels_t *set = NULL;
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status = create(group, &set, &mine);
    if (status != FERRY_OK) {
        /* Too little memory even to tell in the exchange: the world is told. */
        return ferry_world_fail(ferry_group_world(group), &mine, err);
    }
    bool agreed = false;
    status = establish(set, params, &agreed, err);
    if (status != FERRY_OK) {
        fy_proxy_stop(set);
        fy_set_free(set, agreed);
        return status;
    }
    *channels_p = set;
    return FERRY_OK;
}
