/* test_balance.c - how evenly sources are used, over many meshes.
 *
 * Every pair of meshes of D replicas of S row shards -> E replicas of T row shards, on ranks behind the
 * sources, in both rank orders. The ideal is worked out by counting: E * max(1, T/S) regions are wanted
 * of every source part, and D ranks hold it. */
#include <stdio.h>

#include "oracle/unit.h"

enum { MOST_REPLICAS = 12, MOST_SHARDS = 8, ROWS = 64 };

static uint64_t busiest_source(const char *from, const char *to) {
    ferry_layout_t *source = NULL;
    ferry_layout_t *target = NULL;
    const uint64_t shape[] = {ROWS};
    assert_ok(ferry_layout_parse(from, &source, &err));
    assert_ok(ferry_layout_parse(to, &target, &err));
    ferry_tensor_t s = {"w", FERRY_U8, 1, shape, source};
    ferry_tensor_t t = {"w", FERRY_U8, 1, shape, target};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = &s;
    params.nsources = 1;
    params.targets = &t;
    params.ntargets = 1;
    ferry_plan_t *plan = NULL;
    ferry_plan_stats_t stats = {.size = sizeof stats};
    assert_ok(ferry_plan_create(&params, &plan, &err));
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    ferry_plan_destroy(plan);
    ferry_layout_destroy(source);
    ferry_layout_destroy(target);
    return stats.max_send_bytes;
}

/* Is the busiest source as busy as it must be? Fails beyond twice that. */
static int one_pair(unsigned D, unsigned S, unsigned E, unsigned T, int shards_first) {
    char from[64];
    char to[64];
    unsigned first = D * S;
    unsigned last = first + E * T - 1;
    (void)snprintf(from, sizeof from, "%ux%u:R,S0", D, S);
    if (shards_first) {
        (void)snprintf(to, sizeof to, "%ux%u:S0,R@%u-%u", T, E, first, last);
    } else {
        (void)snprintf(to, sizeof to, "%ux%u:R,S0@%u-%u", E, T, first, last);
    }
    uint64_t region = ROWS / (S > T ? S : T);
    uint64_t wanted = (uint64_t)E * (T > S ? T / S : 1);
    uint64_t ideal = (wanted + D - 1) / D * region;
    uint64_t busiest = busiest_source(from, to);
    if (busiest > 2 * ideal) {
        fail_msg("%s -> %s: busiest source sends %lu, %lu are possible", from, to,
                 (unsigned long)busiest, (unsigned long)ideal);
    }
    return busiest <= ideal;
}

static void sources_share_the_load(void **state) {
    (void)state;
    unsigned pairs = 0;
    unsigned ideal = 0;
    for (unsigned D = 1; D <= MOST_REPLICAS; D++) {
        for (unsigned S = 1; S <= MOST_SHARDS; S *= 2) {
            for (unsigned E = 1; E <= MOST_REPLICAS; E++) {
                for (unsigned T = 1; T <= MOST_SHARDS; T *= 2) {
                    ideal += one_pair(D, S, E, T, 0) ? 1U : 0U;
                    ideal += one_pair(D, S, E, T, 1) ? 1U : 0U;
                    pairs += 2;
                }
            }
        }
    }
    print_message("%u of %u pairs of meshes are as even as can be\n", ideal, pairs);
    assert_int_equal(pairs, 4608);
    assert_true(ideal >= pairs * 95 / 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sources_share_the_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
