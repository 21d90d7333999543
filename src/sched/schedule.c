/* schedule.c - from items to batches and rounds.
 *
 *   survey   is every item sound, how many segments will there be
 *   group    the items by pair (source, target), in item order
 *   cut      each pair's items into segments and batches
 *   rounds   a round for each batch, by edge colouring
 *   arrange  the batches by round
 *
 * Invariants: until they are arranged, batches are ordered by source, then target; segments stay so,
 * and in item order within a batch. What is larger than a slot fills slots alone; only its rest is
 * packed. Nothing but the items and the two parameters decides the result. */
#include <ferry/sched.h>

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "sched/colour.h"
#include "sched/pack.h"
#include "sched/radix.h"

struct ferry_schedule {
    ferry_batch_t *batches;
    size_t nbatches;
    ferry_segment_t *segments;
    size_t nsegments;
    size_t *round_first; /* nrounds + 1 */
    uint32_t nrounds;
    uint32_t max_degree;
};

typedef struct maker {
    const ferry_item_t *items;
    size_t nitems;
    uint64_t slot_bytes;
    uint32_t max_segments;
    size_t nmoving;      /* items that move at all */
    uint64_t nsegments;  /* that they will have */
    fy_keyed_t *entries; /* nmoving: the pair, and the item */
    fy_keyed_t *scratch; /* as many */
    fy_packer_t packer;
    size_t batches_cap;
    ferry_schedule_t *schedule;
    ferry_error_t *err;
} maker_t;

static bool moves(const ferry_item_t *item) {
    return item->bytes > 0 && item->source != item->target;
}

static ferry_status_t survey(maker_t *maker) {
    uint64_t total = 0;
    uint64_t whole_slots = 0;
    for (size_t i = 0; i < maker->nitems; i++) {
        const ferry_item_t *item = &maker->items[i];
        if (item->source == FERRY_RANK_NONE || item->target == FERRY_RANK_NONE) {
            return fy_fail(maker->err, FERRY_INVALID, "item %zu has no %s rank", i,
                           item->source == FERRY_RANK_NONE ? "source" : "target");
        }
        if (!fy_add_u64(total, item->bytes, &total)) {
            return fy_fail(maker->err, FERRY_OVERFLOW,
                           "items 0 to %zu have more bytes together than 64 bits count", i);
        }
        if (moves(item)) {
            /* Neither sum can pass the total of bytes. */
            maker->nmoving++;
            maker->nsegments += fy_ceil_div(item->bytes, maker->slot_bytes);
            whole_slots += item->bytes / maker->slot_bytes;
        }
    }
    if (whole_slots > FY_EDGES_MAX) {
        return fy_fail(maker->err, FERRY_OVERFLOW,
                       "slots of %" PRIu64 " bytes are too small: the items fill %" PRIu64
                       " of them, and %" PRIu32 " batches are the most",
                       maker->slot_bytes, whole_slots, FY_EDGES_MAX);
    }
    return FERRY_OK;
}

static ferry_status_t group(maker_t *maker) {
    maker->entries = fy_alloc(maker->nmoving, sizeof *maker->entries);
    maker->scratch = fy_alloc(maker->nmoving, sizeof *maker->scratch);
    if (maker->entries == NULL || maker->scratch == NULL) {
        return fy_fail_nomem(maker->err, "the pairs of a schedule");
    }
    size_t n = 0;
    for (size_t i = 0; i < maker->nitems; i++) {
        const ferry_item_t *item = &maker->items[i];
        if (moves(item)) {
            uint64_t pair = (uint64_t)item->source << 32 | item->target;
            maker->entries[n++] = (fy_keyed_t){.key = pair, .value = i};
        }
    }
    fy_radix_sort(maker->entries, maker->scratch, n);
    return FERRY_OK;
}

/* Opens a batch of the pair, without segments yet. */
static ferry_status_t open_batch(maker_t *maker, uint64_t pair) {
    ferry_schedule_t *schedule = maker->schedule;
    if (schedule->nbatches == FY_EDGES_MAX) {
        return fy_fail(maker->err, FERRY_OVERFLOW, "more than %" PRIu32 " batches", FY_EDGES_MAX);
    }
    if (!fy_reserve(&schedule->batches, &maker->batches_cap, schedule->nbatches + 1,
                    sizeof *schedule->batches)) {
        return fy_fail_nomem(maker->err, "the batches of a schedule");
    }
    schedule->batches[schedule->nbatches++] = (ferry_batch_t){.source = (uint32_t)(pair >> 32),
                                                              .target = (uint32_t)pair,
                                                              .first_segment = schedule->nsegments};
    return FERRY_OK;
}

/* Adds a segment to the batch opened last. The segments were counted: there is room. */
static void add_segment(ferry_schedule_t *schedule, uint64_t item, uint64_t offset,
                        uint64_t bytes) {
    ferry_batch_t *batch = &schedule->batches[schedule->nbatches - 1];
    batch->nsegments++;
    batch->bytes += bytes;
    schedule->segments[schedule->nsegments++] =
        (ferry_segment_t){.item = item, .offset = offset, .bytes = bytes};
}

/* Makes the batches of one pair, whose n items are the values of `pieces`. */
static ferry_status_t cut_pair(maker_t *maker, fy_keyed_t *pieces, fy_keyed_t *scratch, size_t n) {
    const uint64_t slot = maker->slot_bytes;
    uint64_t pair = pieces[0].key;
    size_t rests = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t item = pieces[i].value;
        uint64_t bytes = maker->items[item].bytes;
        uint64_t rest = bytes % slot;
        for (uint64_t offset = 0; offset < bytes - rest; offset += slot) {
            FY_TRY(open_batch(maker, pair));
            add_segment(maker->schedule, item, offset, slot);
        }
        if (rest > 0) {
            pieces[rests++] = (fy_keyed_t){.key = rest, .value = item};
        }
    }
    if (!fy_pack(&maker->packer, pieces, scratch, rests)) {
        return fy_fail_nomem(maker->err, "packing batches");
    }
    for (size_t i = 0; i < rests; i++) {
        if (i == 0 || pieces[i].key != pieces[i - 1].key) {
            FY_TRY(open_batch(maker, pair));
        }
        uint64_t bytes = maker->items[pieces[i].value].bytes;
        add_segment(maker->schedule, pieces[i].value, bytes - bytes % slot, bytes % slot);
    }
    return FERRY_OK;
}

static ferry_status_t cut(maker_t *maker) {
    ferry_schedule_t *schedule = maker->schedule;
    schedule->segments = maker->nsegments <= SIZE_MAX
                             ? fy_alloc((size_t)maker->nsegments, sizeof *schedule->segments)
                             : NULL;
    if (schedule->segments == NULL) {
        return fy_fail_nomem(maker->err, "the segments of a schedule");
    }
    for (size_t first = 0, end = 0; first < maker->nmoving; first = end) {
        while (end < maker->nmoving && maker->entries[end].key == maker->entries[first].key) {
            end++;
        }
        FY_TRY(cut_pair(maker, maker->entries + first, maker->scratch + first, end - first));
    }
    return FERRY_OK;
}

/* Numbers the ranks that send, and apart from them those that receive, without gaps: the vertices of
 * the graph. False when memory is out. */
static bool number_ends(const ferry_schedule_t *schedule, fy_edge_t *edges, uint32_t *nsources_p,
                        uint32_t *ntargets_p) {
    size_t n = schedule->nbatches;
    const ferry_batch_t *batches = schedule->batches;
    fy_keyed_t *entries = fy_alloc(n, sizeof *entries);
    fy_keyed_t *scratch = fy_alloc(n, sizeof *scratch);
    bool ok = entries != NULL && scratch != NULL;
    if (ok) {
        uint32_t sources = 0;
        for (size_t i = 0; i < n; i++) {
            sources += i == 0 || batches[i].source != batches[i - 1].source ? 1 : 0;
            edges[i].left = sources - 1;
            entries[i] = (fy_keyed_t){.key = batches[i].target, .value = i};
        }
        fy_radix_sort(entries, scratch, n);
        uint32_t targets = 0;
        for (size_t i = 0; i < n; i++) {
            targets += i == 0 || entries[i].key != entries[i - 1].key ? 1 : 0;
            edges[entries[i].value].right = targets - 1;
        }
        *nsources_p = sources;
        *ntargets_p = targets;
    }
    fy_free(entries);
    fy_free(scratch);
    return ok;
}

static ferry_status_t assign_rounds(ferry_schedule_t *schedule, ferry_error_t *err) {
    size_t n = schedule->nbatches;
    uint32_t sources = 0;
    uint32_t targets = 0;
    fy_edge_t *edges = fy_alloc(n, sizeof *edges);
    uint32_t *rounds = fy_alloc(n, sizeof *rounds);
    bool ok = edges != NULL && rounds != NULL && number_ends(schedule, edges, &sources, &targets) &&
              fy_colour_edges(edges, n, sources, targets, rounds, &schedule->max_degree);
    for (size_t i = 0; ok && i < n; i++) {
        schedule->batches[i].round = rounds[i];
        schedule->nrounds = rounds[i] >= schedule->nrounds ? rounds[i] + 1 : schedule->nrounds;
    }
    fy_free(edges);
    fy_free(rounds);
    if (!ok) {
        return fy_fail_nomem(err, "the rounds of a schedule");
    }
    assert(schedule->nrounds == schedule->max_degree);
    return FERRY_OK;
}

/* Orders the batches by round; they are ordered by source already and the sort is stable. */
static ferry_status_t arrange(ferry_schedule_t *schedule, ferry_error_t *err) {
    size_t nrounds = schedule->nrounds;
    size_t *first = fy_alloc_zero(nrounds + 2, sizeof *first);
    ferry_batch_t *arranged = fy_alloc(schedule->nbatches, sizeof *arranged);
    if (first == NULL || arranged == NULL) {
        fy_free(first);
        fy_free(arranged);
        return fy_fail_nomem(err, "the order of a schedule");
    }
    /* Counted two places up, summed, and then advanced to one place up: the start of each round. */
    for (size_t i = 0; i < schedule->nbatches; i++) {
        first[(size_t)schedule->batches[i].round + 2]++;
    }
    for (size_t r = 2; r < nrounds + 2; r++) {
        first[r] += first[r - 1];
    }
    for (size_t i = 0; i < schedule->nbatches; i++) {
        const ferry_batch_t *batch = &schedule->batches[i];
        arranged[first[(size_t)batch->round + 1]++] = *batch;
    }
    fy_free(schedule->batches);
    schedule->batches = arranged;
    schedule->round_first = first;
    return FERRY_OK;
}

static ferry_status_t make(maker_t *maker) {
    FY_TRY(survey(maker));
    FY_TRY(group(maker));
    return cut(maker);
}

static ferry_status_t check_call(const ferry_item_t *items, size_t nitems,
                                 const ferry_schedule_params_t *params, ferry_error_t *err) {
    if (items == NULL && nitems > 0) {
        return fy_fail(err, FERRY_INVALID, "%zu items, but no pointer to them", nitems);
    }
    if (params != NULL && params->size != sizeof *params) {
        return fy_fail(err, FERRY_INVALID,
                       "schedule parameters of %zu bytes; this version's have %zu", params->size,
                       sizeof *params);
    }
    return FERRY_OK;
}

ferry_status_t ferry_schedule_create(const ferry_item_t *items, size_t nitems,
                                     const ferry_schedule_params_t *params,
                                     ferry_schedule_t **schedule_p, ferry_error_t *err) {
    FY_TRY(check_call(items, nitems, params, err));
    maker_t maker = {.items = items,
                     .nitems = nitems,
                     .slot_bytes = FERRY_SLOT_BYTES_DEFAULT,
                     .max_segments = FERRY_BATCH_SEGMENTS_DEFAULT,
                     .err = err};
    if (params != NULL && params->slot_bytes > 0) {
        maker.slot_bytes = params->slot_bytes;
    }
    if (params != NULL && params->max_segments > 0) {
        maker.max_segments = params->max_segments;
    }
    ferry_schedule_t *schedule = fy_alloc_zero(1, sizeof *schedule);
    if (schedule == NULL) {
        return fy_fail_nomem(err, "a schedule");
    }
    maker.schedule = schedule;
    fy_packer_init(&maker.packer, maker.slot_bytes, maker.max_segments);
    ferry_status_t status = make(&maker);
    /* Before the rounds, which need as much again. */
    fy_packer_fini(&maker.packer);
    fy_free(maker.entries);
    fy_free(maker.scratch);
    if (status == FERRY_OK) {
        status = assign_rounds(schedule, err);
    }
    if (status == FERRY_OK) {
        status = arrange(schedule, err);
    }
    if (status != FERRY_OK) {
        ferry_schedule_destroy(schedule);
        return status;
    }
    *schedule_p = schedule;
    return FERRY_OK;
}

void ferry_schedule_destroy(ferry_schedule_t *schedule) {
    if (schedule != NULL) {
        fy_free(schedule->batches);
        fy_free(schedule->segments);
        fy_free(schedule->round_first);
        fy_free(schedule);
    }
}

uint32_t ferry_schedule_nrounds(const ferry_schedule_t *schedule) {
    return schedule->nrounds;
}

uint32_t ferry_schedule_max_degree(const ferry_schedule_t *schedule) {
    return schedule->max_degree;
}

const ferry_batch_t *ferry_schedule_batches(const ferry_schedule_t *schedule, size_t *count_p) {
    *count_p = schedule->nbatches;
    return schedule->batches;
}

const ferry_segment_t *ferry_schedule_segments(const ferry_schedule_t *schedule, size_t *count_p) {
    *count_p = schedule->nsegments;
    return schedule->segments;
}

const ferry_batch_t *ferry_schedule_round(const ferry_schedule_t *schedule, uint32_t round,
                                          size_t *count_p) {
    assert(round < schedule->nrounds);
    size_t first = schedule->round_first[round];
    *count_p = schedule->round_first[(size_t)round + 1] - first;
    return schedule->batches + first;
}
