/* prop_sched.c - random items, every promise of a schedule checked the slow and simple way.
 *
 *   FERRY_CASES=n   how many (default 2,000; with FERRY_SOAK=1 50,000)
 *   FERRY_FIRST=s   the seed of the first one (default 1; the others follow)
 *   FERRY_SEED=s    only this one
 *
 * A failure prints the seed and what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/sched.h>

#include "sched/pack.h"
#include "support/soak.h"

enum { CASES = 2000, SOAK_CASES = 50000, LARGE_EVERY = 100, PACK_MAX = 300 };

/* Leaves a check with what is wrong. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- drawing ---- */

static uint64_t draw(uint64_t *rng, uint64_t bound) {
    *rng += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *rng;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % bound;
}

static uint64_t between(uint64_t *rng, uint64_t low, uint64_t high) {
    return low + draw(rng, high - low + 1);
}

typedef struct drawn {
    ferry_item_t *items;
    size_t nitems;
    ferry_schedule_params_t params;
} drawn_t;

static uint64_t draw_bytes(uint64_t *rng, uint64_t slot) {
    switch (draw(rng, 8)) {
    case 0:
        return 0;
    case 1:
        return slot;
    case 2:
        return slot * between(rng, 1, 4);
    case 3:
        return between(rng, 1, 5 * slot);
    case 4:
        return between(rng, slot / 2, slot + 1);
    default:
        return between(rng, 1, slot / 4 + 1);
    }
}

/* Ranks 0 to n-1 as numbers far apart; skew: half of the time rank 0. */
static uint32_t draw_rank(uint64_t *rng, uint64_t n, uint32_t step, bool skew) {
    return skew && draw(rng, 2) == 0 ? 0 : (uint32_t)draw(rng, n) * step;
}

/* Large: so many batches that the colouring halves the graph before it matches. */
static drawn_t draw_case(uint64_t *rng, bool large) {
    const uint64_t slots[] = {1, 2, 7, 64, 1000, UINT64_C(1) << 40};
    drawn_t drawn = {.params = FERRY_SCHEDULE_PARAMS_INIT};
    drawn.params.slot_bytes = slots[draw(rng, sizeof slots / sizeof *slots)];
    drawn.params.max_segments = (uint32_t)(large ? 1 : between(rng, 1, 20));
    drawn.nitems = (size_t)(large ? between(rng, 20000, 60000) : draw(rng, 200));
    drawn.items = calloc(drawn.nitems + 1, sizeof *drawn.items);
    assert_non_null(drawn.items);
    uint64_t sources = large ? between(rng, 50, 2000) : between(rng, 1, 12);
    uint64_t targets = large ? between(rng, 50, 2000) : between(rng, 1, 12);
    uint32_t step = draw(rng, 2) == 0 ? 1 : 1000003;
    bool source_skew = draw(rng, 3) == 0;
    bool target_skew = draw(rng, 3) == 0;
    for (size_t i = 0; i < drawn.nitems; i++) {
        drawn.items[i] = (ferry_item_t){.id = draw(rng, 10),
                                        .bytes = draw_bytes(rng, drawn.params.slot_bytes),
                                        .source = draw_rank(rng, sources, step, source_skew),
                                        .target = draw_rank(rng, targets, step, target_skew)};
    }
    return drawn;
}

/* ---- checking ---- */

typedef struct view {
    const drawn_t *drawn;
    const ferry_schedule_t *schedule;
    const ferry_batch_t *batches;
    size_t nbatches;
    const ferry_segment_t *segments;
    size_t nsegments;
} view_t;

/* A copy, so that checks may sort it; the caller frees it. */
static void *copy_of(const void *from, size_t count, size_t size) {
    void *to = malloc(count * size + 1);
    assert_non_null(to);
    if (count > 0) {
        memcpy(to, from, count * size);
    }
    return to;
}

static int compare_u64(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_item_and_offset(const void *a, const void *b) {
    const ferry_segment_t *left = a;
    const ferry_segment_t *right = b;
    int order = compare_u64(left->item, right->item);
    return order != 0 ? order : compare_u64(left->offset, right->offset);
}

/* Every item that moves is tiled by slots and a rest, the others have no segment. */
static const char *check_tiling(const view_t *view, ferry_segment_t *sorted) {
    const uint64_t slot = view->drawn->params.slot_bytes;
    qsort(sorted, view->nsegments, sizeof *sorted, by_item_and_offset);
    size_t at = 0;
    for (size_t i = 0; i < view->drawn->nitems; i++) {
        const ferry_item_t *item = &view->drawn->items[i];
        uint64_t left = item->source == item->target ? 0 : item->bytes;
        for (uint64_t offset = 0; left > 0; at++) {
            uint64_t bytes = left < slot ? left : slot;
            REQUIRE(at < view->nsegments);
            REQUIRE(sorted[at].item == i);
            REQUIRE(sorted[at].offset == offset);
            REQUIRE(sorted[at].bytes == bytes);
            offset += bytes;
            left -= bytes;
        }
    }
    REQUIRE(at == view->nsegments);
    return NULL;
}

/* Every segment is in one batch, of its own pair, within the limits and in item order. */
static const char *check_batches(const view_t *view, unsigned char *seen) {
    for (size_t b = 0; b < view->nbatches; b++) {
        const ferry_batch_t *batch = &view->batches[b];
        uint64_t bytes = 0;
        REQUIRE(batch->nsegments > 0);
        REQUIRE(batch->nsegments <= view->drawn->params.max_segments);
        REQUIRE(batch->first_segment <= view->nsegments);
        REQUIRE(batch->nsegments <= view->nsegments - batch->first_segment);
        for (uint32_t i = 0; i < batch->nsegments; i++) {
            const ferry_segment_t *segment = &view->segments[batch->first_segment + i];
            REQUIRE(view->drawn->items[segment->item].source == batch->source);
            REQUIRE(view->drawn->items[segment->item].target == batch->target);
            REQUIRE(i == 0 || segment[-1].item < segment->item);
            REQUIRE(seen[batch->first_segment + i] == 0);
            seen[batch->first_segment + i] = 1;
            bytes += segment->bytes;
        }
        REQUIRE(batch->bytes == bytes);
        REQUIRE(bytes <= view->drawn->params.slot_bytes);
    }
    for (size_t i = 0; i < view->nsegments; i++) {
        REQUIRE(seen[i] == 1);
    }
    return NULL;
}

static int by_target_and_round(const void *a, const void *b) {
    const ferry_batch_t *left = a;
    const ferry_batch_t *right = b;
    int order = compare_u64(left->target, right->target);
    return order != 0 ? order : compare_u64(left->round, right->round);
}

static int by_source_and_target(const void *a, const void *b) {
    const ferry_batch_t *left = a;
    const ferry_batch_t *right = b;
    int order = compare_u64(left->source, right->source);
    return order != 0 ? order : compare_u64(left->target, right->target);
}

/* Ordered by round and source, nobody twice in a round, and as many rounds as the largest degree. */
static const char *check_rounds(const view_t *view, ferry_batch_t *sorted) {
    const ferry_batch_t *batches = view->batches;
    for (size_t i = 1; i < view->nbatches; i++) {
        REQUIRE(batches[i].round > batches[i - 1].round ||
                (batches[i].round == batches[i - 1].round &&
                 batches[i].source > batches[i - 1].source));
    }
    size_t degree = 0;
    size_t run = 0;
    qsort(sorted, view->nbatches, sizeof *sorted, by_target_and_round);
    for (size_t i = 0; i < view->nbatches; i++) {
        bool same = i > 0 && sorted[i].target == sorted[i - 1].target;
        REQUIRE(!same || sorted[i].round > sorted[i - 1].round);
        run = same ? run + 1 : 1;
        degree = run > degree ? run : degree;
    }
    qsort(sorted, view->nbatches, sizeof *sorted, by_source_and_target);
    for (size_t i = 0; i < view->nbatches; i++) {
        bool same = i > 0 && sorted[i].source == sorted[i - 1].source;
        run = same ? run + 1 : 1;
        degree = run > degree ? run : degree;
    }
    REQUIRE(ferry_schedule_nrounds(view->schedule) == degree);
    REQUIRE(ferry_schedule_max_degree(view->schedule) == degree);
    size_t at = 0;
    for (uint32_t round = 0; round < degree; round++) {
        size_t count = 0;
        REQUIRE(ferry_schedule_round(view->schedule, round, &count) == batches + at);
        for (size_t i = 0; i < count; i++, at++) {
            REQUIRE(at < view->nbatches);
            REQUIRE(batches[at].round == round);
        }
    }
    REQUIRE(at == view->nbatches);
    return NULL;
}

static int items_by_pair(const void *a, const void *b) {
    const ferry_item_t *left = a;
    const ferry_item_t *right = b;
    int order = compare_u64(left->source, right->source);
    return order != 0 ? order : compare_u64(left->target, right->target);
}

/* First fit leaves no two batches of a pair that would fit into one, unless one is full by count. */
static const char *check_quality(const view_t *view, ferry_batch_t *batches, ferry_item_t *items) {
    const ferry_schedule_params_t *params = &view->drawn->params;
    size_t nitems = view->drawn->nitems;
    qsort(batches, view->nbatches, sizeof *batches, by_source_and_target);
    qsort(items, nitems, sizeof *items, items_by_pair);
    size_t item = 0;
    for (size_t first = 0, end = 0; first < view->nbatches; first = end) {
        while (end < view->nbatches && by_source_and_target(&batches[first], &batches[end]) == 0) {
            end++;
        }
        const ferry_item_t pair = {.source = batches[first].source,
                                   .target = batches[first].target};
        while (items_by_pair(&items[item], &pair) < 0) {
            item++;
        }
        uint64_t total = 0;
        uint64_t count = 0;
        for (; item < nitems && items_by_pair(&items[item], &pair) == 0; item++, count++) {
            total += items[item].bytes;
        }
        uint64_t slots = (total - 1) / params->slot_bytes + 1;
        REQUIRE(end - first >= slots);
        REQUIRE(end - first <= 2 * slots + count / params->max_segments);
    }
    return NULL;
}

static const char *check_all(const view_t *view) {
    ferry_segment_t *segments = copy_of(view->segments, view->nsegments, sizeof *segments);
    ferry_batch_t *batches = copy_of(view->batches, view->nbatches, sizeof *batches);
    ferry_item_t *items = copy_of(view->drawn->items, view->drawn->nitems, sizeof *items);
    unsigned char *seen = calloc(view->nsegments + 1, 1);
    assert_non_null(seen);
    const char *wrong = check_tiling(view, segments);
    wrong = wrong != NULL ? wrong : check_batches(view, seen);
    wrong = wrong != NULL ? wrong : check_rounds(view, batches);
    wrong = wrong != NULL ? wrong : check_quality(view, batches, items);
    free(segments);
    free(batches);
    free(items);
    free(seen);
    return wrong;
}

static const char *check_same(const view_t *a, const view_t *b) {
    REQUIRE(a->nbatches == b->nbatches);
    REQUIRE(a->nsegments == b->nsegments);
    REQUIRE(memcmp(a->batches, b->batches, a->nbatches * sizeof *a->batches) == 0);
    REQUIRE(memcmp(a->segments, b->segments, a->nsegments * sizeof *a->segments) == 0);
    return NULL;
}

/* ---- the properties ---- */

static view_t make(const drawn_t *drawn, ferry_schedule_t **schedule_p) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status =
        ferry_schedule_create(drawn->items, drawn->nitems, &drawn->params, schedule_p, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(status, FERRY_OK);
    view_t view = {.drawn = drawn, .schedule = *schedule_p};
    view.batches = ferry_schedule_batches(*schedule_p, &view.nbatches);
    view.segments = ferry_schedule_segments(*schedule_p, &view.nsegments);
    return view;
}

static bool schedule_case(uint64_t seed) {
    uint64_t rng = seed;
    drawn_t drawn = draw_case(&rng, seed % LARGE_EVERY == 0);
    ferry_schedule_t *first = NULL;
    ferry_schedule_t *second = NULL;
    view_t view = make(&drawn, &first);
    view_t again = make(&drawn, &second);
    const char *wrong = check_all(&view);
    wrong = wrong != NULL ? wrong : check_same(&view, &again);
    if (wrong != NULL) {
        fprintf(stderr, "FERRY_SEED=%llu fails: not %s\n", (unsigned long long)seed, wrong);
    }
    ferry_schedule_destroy(first);
    ferry_schedule_destroy(second);
    free(drawn.items);
    return wrong == NULL;
}

/* First-fit-decreasing by scanning the bins. */
static void pack_naively(const uint64_t *bytes, size_t n, uint64_t slot, uint32_t max_segments,
                         size_t *bin_of) {
    uint64_t room[PACK_MAX];
    uint32_t used[PACK_MAX];
    bool done[PACK_MAX] = {false};
    size_t nbins = 0;
    for (size_t step = 0; step < n; step++) {
        size_t next = n;
        for (size_t i = 0; i < n; i++) {
            if (!done[i] && (next == n || bytes[i] > bytes[next])) {
                next = i;
            }
        }
        size_t bin = 0;
        while (bin < nbins && (room[bin] < bytes[next] || used[bin] == max_segments)) {
            bin++;
        }
        if (bin == nbins) {
            room[nbins] = slot;
            used[nbins++] = 0;
        }
        room[bin] -= bytes[next];
        used[bin]++;
        done[next] = true;
        bin_of[next] = bin;
    }
}

static bool pack_case(uint64_t seed, fy_keyed_t *pieces, fy_keyed_t *scratch) {
    uint64_t rng = ~seed;
    uint64_t bytes[PACK_MAX];
    size_t bin_of[PACK_MAX];
    size_t n = (size_t)draw(&rng, PACK_MAX);
    uint64_t slot = between(&rng, 1, 2000);
    uint32_t max_segments = (uint32_t)between(&rng, 1, 40);
    uint64_t most = between(&rng, 1, slot);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = between(&rng, 1, most);
        pieces[i] = (fy_keyed_t){.key = bytes[i], .value = i};
    }
    pack_naively(bytes, n, slot, max_segments, bin_of);
    fy_packer_t packer;
    fy_packer_init(&packer, slot, max_segments);
    bool ok = fy_pack(&packer, pieces, scratch, n);
    fy_packer_fini(&packer);
    for (size_t i = 0; ok && i < n; i++) {
        ok = pieces[i].key == bin_of[pieces[i].value] &&
             (i == 0 || pieces[i - 1].key < pieces[i].key ||
              (pieces[i - 1].key == pieces[i].key && pieces[i - 1].value < pieces[i].value));
    }
    if (!ok) {
        fprintf(stderr, "FERRY_SEED=%llu fails: not first-fit-decreasing\n",
                (unsigned long long)seed);
    }
    return ok;
}

static uint64_t from_environment(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : fallback;
}

typedef struct range {
    uint64_t first;
    uint64_t end;
} range_t;

static range_t seeds(void) {
    uint64_t cases = from_environment("FERRY_CASES", (uint64_t)soak_count(CASES, SOAK_CASES));
    uint64_t first = from_environment("FERRY_FIRST", 1);
    uint64_t only = from_environment("FERRY_SEED", 0);
    if (only != 0) {
        first = only;
        cases = 1;
    }
    return (range_t){.first = first, .end = first + cases};
}

static void schedules_keep_their_promises(void **state) {
    (void)state;
    range_t range = seeds();
    for (uint64_t seed = range.first; seed < range.end; seed++) {
        assert_true(schedule_case(seed));
    }
}

static void packing_is_first_fit_decreasing(void **state) {
    (void)state;
    range_t range = seeds();
    fy_keyed_t pieces[PACK_MAX];
    fy_keyed_t scratch[PACK_MAX];
    for (uint64_t seed = range.first; seed < range.end; seed++) {
        assert_true(pack_case(seed, pieces, scratch));
    }
}

int main(void) {
    range_t range = seeds();
    printf("seeds %llu to %llu\n", (unsigned long long)range.first,
           (unsigned long long)(range.end - 1));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_keep_their_promises),
        cmocka_unit_test(packing_is_first_fit_decreasing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
