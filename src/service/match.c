/* match.c - pairs a rank's operations with itself by task id.
 *
 * Both lists of ids are sorted by (id, place); equal neighbours are repeats, and the two sorted lists
 * must then be equal. Complaints come in a fixed order: absent ids, counts, repeats, receives without a
 * send; among several of one kind the first in the order of submission is named. */
#include <inttypes.h>
#include <stdlib.h>

#include <ferry/service.h>

#include "base/fail.h"
#include "base/memory.h"

typedef struct place {
    uint64_t id;
    size_t index;
} place_t;

static int compare(const void *left, const void *right) {
    const place_t *a = left;
    const place_t *b = right;
    if (a->id != b->id) {
        return a->id < b->id ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

/* Who complains. */
typedef struct speaker {
    const char *name;
    uint32_t rank;
    ferry_error_t *err;
} speaker_t;

static ferry_status_t check_present(const speaker_t *speaker, const char *what, const uint64_t *ids,
                                    size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (ids[i] == FERRY_TASK_NONE) {
            return fy_fail(speaker->err, FERRY_MISMATCH,
                           "%s: rank %" PRIu32 ": local %s %zu has no task id", speaker->name,
                           speaker->rank, what, i);
        }
    }
    return FERRY_OK;
}

static place_t *sort_ids(const uint64_t *ids, size_t count) {
    place_t *places = fy_alloc(count, sizeof *places);
    for (size_t i = 0; i < count && places != NULL; i++) {
        places[i] = (place_t){ids[i], i};
    }
    if (places != NULL && count > 0) {
        qsort(places, count, sizeof *places, compare);
    }
    return places;
}

static ferry_status_t check_repeats(const speaker_t *speaker, const char *what,
                                    const place_t *places, size_t count) {
    const place_t *first = NULL;
    for (size_t i = 1; i < count; i++) {
        if (places[i].id == places[i - 1].id && (first == NULL || places[i].index < first->index)) {
            first = &places[i];
        }
    }
    if (first != NULL) {
        return fy_fail(speaker->err, FERRY_MISMATCH,
                       "%s: rank %" PRIu32 ": task id %" PRIu64
                       " repeats among the local %ss (%s %zu)",
                       speaker->name, speaker->rank, first->id, what, what, first->index);
    }
    return FERRY_OK;
}

static ferry_status_t join(const speaker_t *speaker, const place_t *sends, const place_t *recvs,
                           size_t count, ferry_op_pair_t *pairs) {
    const place_t *lonely = NULL;
    for (size_t i = 0, j = 0; i < count; i++) {
        while (j < count && sends[j].id < recvs[i].id) {
            j++;
        }
        bool found = j < count && sends[j].id == recvs[i].id;
        if (!found && (lonely == NULL || recvs[i].index < lonely->index)) {
            lonely = &recvs[i];
        }
        if (found) {
            pairs[recvs[i].index] = (ferry_op_pair_t){sends[j].index, recvs[i].index};
        }
    }
    if (lonely != NULL) {
        return fy_fail(speaker->err, FERRY_MISMATCH,
                       "%s: rank %" PRIu32 ": local receive %zu, task id %" PRIu64 ", has no send",
                       speaker->name, speaker->rank, lonely->index, lonely->id);
    }
    return FERRY_OK;
}

static ferry_status_t match(const speaker_t *speaker, const place_t *sends, const place_t *recvs,
                            size_t count, ferry_op_pair_t *pairs) {
    if (sends == NULL || recvs == NULL) {
        return fy_fail_nomem(speaker->err, "matching local operations");
    }
    FY_TRY(check_repeats(speaker, "send", sends, count));
    FY_TRY(check_repeats(speaker, "receive", recvs, count));
    return join(speaker, sends, recvs, count, pairs);
}

ferry_status_t ferry_match_local_ops(const uint64_t *send_ids, size_t nsends,
                                     const uint64_t *recv_ids, size_t nrecvs,
                                     const char *service_name, uint32_t rank,
                                     ferry_op_pair_t *pairs_p, ferry_error_t *err) {
    FY_NEED_ARRAY(send_ids, nsends, err);
    FY_NEED_ARRAY(recv_ids, nrecvs, err);
    FY_NEED_ARRAY(pairs_p, nrecvs, err);
    speaker_t speaker = {service_name != NULL ? service_name : "copy service", rank, err};
    ferry_status_t status = check_present(&speaker, "send", send_ids, nsends);
    if (status == FERRY_OK) {
        status = check_present(&speaker, "receive", recv_ids, nrecvs);
    }
    if (status == FERRY_OK && nsends != nrecvs) {
        status = fy_fail(err, FERRY_MISMATCH,
                         "%s: rank %" PRIu32 ": %zu local sends, but %zu local receives",
                         speaker.name, rank, nsends, nrecvs);
    }
    if (status == FERRY_OK) {
        place_t *sends = sort_ids(send_ids, nsends);
        place_t *recvs = sort_ids(recv_ids, nrecvs);
        status = match(&speaker, sends, recvs, nrecvs, pairs_p);
        fy_free(sends);
        fy_free(recvs);
    }
    if (status != FERRY_OK) {
        fy_error_ranks(err, rank, FERRY_RANK_NONE);
    }
    return status;
}
