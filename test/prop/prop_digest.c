/* prop_digest.c - random tensors, cut at random into boxes, each box in memory of its own with strides of
 * its own: whatever the cut, the order and the instruction set, the parts come to the digest of the
 * whole; and one changed bit does not.
 *
 *   FERRY_CASES=n   how many (default 1,500; with FERRY_SOAK=1 30,000)
 *   FERRY_SEED=s    only this one
 *
 * A failure prints the seed and what is wrong. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/soak.h"
#include "unit/digest_oracle.h"

enum { CASES = 1500, SOAK_CASES = 30000, DIMS = 5, MOST_BOXES = 64, ROOM = 1 << 20 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

typedef struct box {
    uint64_t lo[DIMS];
    uint64_t extent[DIMS];
} box_t;

typedef struct trial {
    uint64_t rng;
    ferry_dtype_t dtype;
    size_t width;
    uint32_t ndim;
    uint64_t shape[DIMS];
    size_t bytes;
    box_t boxes[MOST_BOXES];
    size_t nboxes;
} trial_t;

static uint8_t whole[ROOM];
static uint8_t memory[40 * ROOM];

static uint64_t below(trial_t *t, uint64_t most) {
    return digest_below(&t->rng, most);
}

static void draw_tensor(trial_t *t) {
    static const uint64_t budgets[] = {200, 2000, 2000, 40000};
    t->dtype = (ferry_dtype_t)(1 + below(t, 16));
    t->width = ferry_dtype_bits(t->dtype) / 8;
    t->ndim = (uint32_t)below(t, DIMS + 1);
    uint64_t budget = budgets[below(t, 4)];
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        uint64_t left = budget / elements;
        uint64_t most = below(t, 3) == 0 ? left : 12;
        most = most > left ? left : most;
        t->shape[i] = 1 + below(t, most < 1 ? 1 : most);
        elements *= t->shape[i];
    }
    t->bytes = elements * t->width;
    for (size_t i = 0; i < t->bytes; i++) {
        whole[i] = (uint8_t)digest_draw(&t->rng);
    }
}

/* Cuts boxes in two, along any dim at any place, then shuffles them. */
static void draw_cut(trial_t *t) {
    t->nboxes = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        t->boxes[0].lo[i] = 0;
        t->boxes[0].extent[i] = t->shape[i];
    }
    uint64_t cuts = t->ndim == 0 ? 0 : below(t, below(t, 4) == 0 ? MOST_BOXES : 8);
    for (uint64_t i = 0; i < cuts; i++) {
        box_t *box = &t->boxes[below(t, t->nboxes)];
        uint64_t dim = below(t, t->ndim);
        box_t rest = *box;
        uint64_t at = below(t, box->extent[dim] + 1); /* an empty box is a box, too */
        rest.lo[dim] += at;
        rest.extent[dim] -= at;
        box->extent[dim] = at;
        t->boxes[t->nboxes++] = rest;
    }
    for (size_t i = t->nboxes; i > 1; i--) {
        uint64_t other = below(t, i);
        box_t box = t->boxes[i - 1];
        t->boxes[i - 1] = t->boxes[other];
        t->boxes[other] = box;
    }
}

/* A view of the box's shape: dims in any order in memory, with gaps, backwards. */
static ferry_view_t draw_view(trial_t *t, const box_t *box) {
    ferry_view_t view = {.dtype = t->dtype, .ndim = t->ndim};
    uint32_t order[DIMS];
    bool plain = below(t, 3) == 0;
    bool tight = below(t, 2) == 0;
    int64_t stride = !plain && below(t, 6) == 0 ? 2 : 1;
    int64_t low = 0;
    for (uint32_t i = 0; i < t->ndim; i++) {
        uint32_t at = plain ? i : (uint32_t)below(t, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = t->ndim; i-- > 0;) {
        uint32_t dim = order[i];
        int64_t extent = (int64_t)box->extent[dim];
        bool back = !plain && below(t, 5) == 0;
        view.shape[dim] = box->extent[dim];
        view.strides[dim] = back ? -stride : stride;
        low += back && extent > 0 ? (extent - 1) * stride : 0;
        stride = stride * (extent > 0 ? extent : 1) + (tight ? 0 : (int64_t)below(t, 20));
    }
    assert_true((size_t)stride * t->width + 64 <= sizeof memory);
    view.data = memory + below(t, 64) + (size_t)low * t->width;
    return view;
}

/* Puts every element of the box where the view has it. */
static void fill(const trial_t *t, const box_t *box, const ferry_view_t *view) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        elements *= box->extent[i];
    }
    for (uint64_t n = 0; n < elements; n++) {
        uint64_t left = n;
        uint64_t place = 0;
        uint64_t step = 1;
        int64_t offset = 0;
        for (uint32_t i = t->ndim; i-- > 0;) {
            uint64_t index = left % box->extent[i];
            left /= box->extent[i];
            place += (box->lo[i] + index) * step;
            step *= t->shape[i];
            offset += (int64_t)index * view->strides[i];
        }
        memcpy((uint8_t *)view->data + offset * (int64_t)t->width, whole + place * t->width,
               t->width);
    }
}

/* ---- one case ---- */

static const char *check_cut(trial_t *t) {
    ferry_digest_t want = digest_oracle_bytes(whole, t->bytes);
    ferry_digest_t sums[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
    for (size_t i = 0; i < t->nboxes; i++) {
        ferry_view_t view = draw_view(t, &t->boxes[i]);
        fill(t, &t->boxes[i], &view);
        ferry_digest_t *sum = sums;
        FOR_EACH_WAY(way) {
            ferry_digest_t part = {0, 0};
            REQUIRE(ferry_digest_add(&part, &view, t->shape, t->boxes[i].lo, NULL) == FERRY_OK);
            ferry_digest_join(sum++, &part);
        }
    }
    ferry_digest_t *sum = sums;
    FOR_EACH_WAY(way) {
        REQUIRE(ferry_digest_equal(sum, &want));
        sum++;
    }
    return NULL;
}

/* Bytes in pieces, one way for each. */
static const char *check_bytes(trial_t *t) {
    ferry_digest_t want = digest_oracle_bytes(whole, t->bytes);
    ferry_digest_t sum = {0, 0};
    for (size_t at = 0; at < t->bytes;) {
        size_t piece = 1 + below(t, t->bytes - at);
        size_t ways = 0;
        for (; fy_digest_ways[ways] != NULL && fy_digest_ways[ways]->runs(); ways++) {
        }
        fy_digest_force(fy_digest_ways[below(t, ways)]);
        ferry_digest_add_bytes(&sum, whole + at, piece, at);
        at += piece;
    }
    REQUIRE(ferry_digest_equal(&sum, &want));
    /* and with a bit that is not as it was */
    uint64_t bit = below(t, t->bytes * 8);
    whole[bit / 8] ^= (uint8_t)(1 << bit % 8);
    ferry_digest_t other = {0, 0};
    ferry_digest_add_bytes(&other, whole, t->bytes, 0);
    REQUIRE(!ferry_digest_equal(&sum, &other));
    return NULL;
}

/* Two blocks of up to 16 bytes that change places, anywhere. */
static const char *check_swap(trial_t *t) {
    size_t most = t->bytes / 2 < 16 ? t->bytes / 2 : 16;
    if (most == 0) {
        return NULL;
    }
    size_t size = 1 + below(t, most);
    size_t a = below(t, t->bytes - 2 * size + 1);
    size_t b = a + size + below(t, t->bytes - a - 2 * size + 1);
    uint8_t kept[16];
    ferry_digest_t before = {0, 0};
    ferry_digest_t after = {0, 0};
    ferry_digest_add_bytes(&before, whole, t->bytes, 0);
    bool same = memcmp(whole + a, whole + b, size) == 0;
    memcpy(kept, whole + a, size);
    memcpy(whole + a, whole + b, size);
    memcpy(whole + b, kept, size);
    ferry_digest_add_bytes(&after, whole, t->bytes, 0);
    REQUIRE(ferry_digest_equal(&before, &after) == same);
    return NULL;
}

static void test_random(void **state) {
    (void)state;
    const char *only = getenv("FERRY_SEED");
    const char *count = getenv("FERRY_CASES");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t cases =
        count != NULL ? strtoull(count, NULL, 10) : (uint64_t)soak_count(CASES, SOAK_CASES);
    uint64_t end = only != NULL ? first + 1 : first + cases;
    for (uint64_t seed = first; seed < end; seed++) {
        trial_t t = {.rng = seed};
        draw_tensor(&t);
        draw_cut(&t);
        const char *wrong = check_cut(&t);
        wrong = wrong == NULL ? check_bytes(&t) : wrong;
        wrong = wrong == NULL ? check_swap(&t) : wrong;
        if (wrong != NULL) {
            fail_msg("FERRY_SEED=%" PRIu64 ": %s (%s, %u dims, %zu bytes, %zu boxes)", seed, wrong,
                     ferry_dtype_name(t.dtype), t.ndim, t.bytes, t.nboxes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("prop digest", tests, NULL, NULL);
}
