/* test_reference.c - the planning cases that Megatron-LM's and Etha's tests hold, and the figures that
 * they reach or miss. Every small case is run by the naive oracle too. */
#include <math.h>
#include <stdlib.h>

#include "oracle/oracle.h"
#include "oracle/unit.h"

/* ---- one tensor ---- */

typedef struct small {
    const char *from;
    const char *to;
    uint32_t ndim;
    uint64_t shape[4];
    uint64_t transfers; /* 0: not said */
} small_t;

static void run_small(const small_t *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        orc_case_t *c = orc_case_text(FERRY_F32, x[i].ndim, x[i].shape, x[i].from, x[i].to);
        assert_non_null(c);
        ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
        assert_non_null(plan);
        if (!orc_check_all(c) ||
            (x[i].transfers != 0 && ferry_plan_ntransfers(plan) != x[i].transfers)) {
            fail_msg("%s -> %s: %llu transfers, expected %llu", x[i].from, x[i].to,
                     (unsigned long long)ferry_plan_ntransfers(plan),
                     (unsigned long long)x[i].transfers);
        }
        ferry_plan_destroy(plan);
        orc_case_free(c);
    }
}

#define RUN_SMALL(all) run_small((all), sizeof(all) / sizeof *(all))

static void megatron_planner(void **state) {
    (void)state;
    static const small_t all[] = {
        {"2:S1", "1:R", 2, {64, 128}, 2},
        {"1:R", "2:S1", 2, {64, 128}, 2},
        {"2:S1", "4:S1", 2, {64, 128}, 4},
        {"2:S1", "2:S1", 2, {64, 128}, 2}, /* one local transfer on each rank */
        {"4:S1", "2:S1", 2, {64, 128}, 4},
        {"2:S0", "1:R", 2, {64, 128}, 2}, /* (32,128) x 2 -> (64,128) */
        {"2:S1", "1:R@2", 2, {64, 128}, 2},
        {"1:R", "2:S1@1-2", 2, {64, 128}, 2},
        {"2:S1", "4:S1@2-5", 2, {64, 128}, 4},
        {"4:S1", "2:S1@4-5", 2, {64, 128}, 4},
    };
    RUN_SMALL(all);
}

static void megatron_local_copy(void **state) {
    (void)state;
    uint64_t shape[] = {64, 128};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, "2:S1", "2:S1");
    assert_non_null(c);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ferry_plan_t *part = orc_case_plan(c, rank);
        assert_non_null(part);
        orc_transfers_t own = orc_collect(c, part);
        assert_int_equal(own.count, rank < 2); /* a rank outside the target gets nothing */
        if (rank < 2) {
            assert_int_equal(own.at[0].source, rank);
            assert_int_equal(own.at[0].target, rank);
            assert_int_equal(own.at[0].elements, 64 * 64);
        }
        free(own.at);
        ferry_plan_destroy(part);
    }
    orc_case_free(c);
}

/* Two shards of 64 do not make 100. */
static void megatron_shapes_that_do_not_add_up(void **state) {
    (void)state;
    uint64_t shape[] = {64, 128};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, "2:S1", "1:R");
    assert_non_null(c);
    uint64_t other[] = {64, 100};
    ferry_tensor_t source = {"w", FERRY_F32, 2, shape, c->tensors[0].source_layout};
    ferry_tensor_t target = {"w", FERRY_F32, 2, other, c->tensors[0].target_layout};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = &source;
    params.nsources = 1;
    params.targets = &target;
    params.ntargets = 1;
    ferry_plan_t *plan = NULL;
    assert_fails(ferry_plan_create(&params, &plan, &err), MISMATCH, "100");
    assert_null(plan);
    orc_case_free(c);
    ferry_layout_t *ragged = NULL;
    uint64_t length = 100;
    assert_ok(ferry_layout_parse("2:S0/ragged(64,64)", &ragged, &err));
    assert_fails(ferry_layout_check(ragged, 1, &length, &err), INVALID, "100");
    ferry_layout_destroy(ragged);
}

static void megatron_blocks(void **state) {
    (void)state;
    static const small_t all[] = {
        {"2:S0/sizes(32,16)", "1:R", 2, {48, 8}, 4},
        {"1:R", "2:S0/sizes(32,16)", 2, {48, 8}, 4},
        {"2:S0/sizes(32,16)", "1:R@2", 2, {48, 8}, 4},
        {"1:R", "2:S0/sizes(32,16)@1-2", 2, {48, 8}, 4},
        {"2:S0/sizes(32,16,8)", "4:S0/sizes(32,16,8)", 2, {56, 4}, 12},
        {"2:S0/sizes(32,16,8)", "4:S0/sizes(32,16,8)@2-5", 2, {56, 4}, 12},
        {"2:S0/sizes(16,8,4)", "4:S0/sizes(16,8,4)", 2, {28, 4}, 12},
    };
    RUN_SMALL(all);
}

static void megatron_replicated(void **state) {
    (void)state;
    static const small_t all[] = {
        {"4:R", "4:R", 2, {16, 16}, 4},
        {"4:R", "4:R@4-7", 2, {16, 16}, 4},
    };
    RUN_SMALL(all);
    uint64_t shape[] = {16, 16};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, "4:R", "4:R");
    ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
    assert_non_null(plan);
    ferry_plan_stats_t stats = {.size = sizeof stats};
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.bytes_wire, 0);
    ferry_plan_destroy(plan);
    orc_case_free(c);
}

static void megatron_a_target_more(void **state) {
    (void)state;
    static const char *const pairs[][3] = {
        {"4:R", "4:R@4-7", "5:R@4-8"},
        {"4:R", "4:R@4-7", "5:R@9,4-7"},
        {"2x2:R,S0", "2x2:R,S0@4-7", "3x2:R,S0@8-9,4-7"},
        {"2x2:R,S0", "2x2:R,S0@0-3", "3x2:R,S0@0-1,6-7,2-3"},
    };
    uint64_t shape[] = {16, 16};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        orc_case_t *before = orc_case_text(FERRY_F32, 2, shape, pairs[i][0], pairs[i][1]);
        orc_case_t *after = orc_case_text(FERRY_F32, 2, shape, pairs[i][0], pairs[i][2]);
        assert_true(orc_check_grown(before, after));
        orc_case_free(before);
        orc_case_free(after);
    }
}

/* ---- balance ---- */

/* Busiest source over mean, by wire bytes. */
static double imbalance(const ferry_plan_t *plan) {
    ferry_plan_stats_t stats = {.size = sizeof stats};
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    return (double)stats.max_send_bytes / stats.mean_send_bytes;
}

/* TP2 x DP4 and 8 targets: each of the four replicas is used twice. */
static void megatron_each_replica_twice(void **state) {
    (void)state;
    uint64_t shape[] = {16, 16};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, "dp=4xtp=2:R,S0", "8:R@8-15");
    assert_non_null(c);
    assert_true(orc_check_all(c));
    ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
    orc_transfers_t all = orc_collect(c, plan);
    uint32_t used[8] = {0};
    for (size_t i = 0; i < all.count; i++) {
        used[all.at[i].source]++;
    }
    for (size_t r = 0; r < 8; r++) {
        assert_int_equal(used[r], 2);
    }
    free(all.at);
    ferry_plan_destroy(plan);
    orc_case_free(c);
}

static void megatron_eight_and_eight(void **state) {
    (void)state;
    uint64_t shape[] = {16, 16};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, "2:R", "16:R@2-17");
    assert_non_null(c);
    ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
    orc_transfers_t all = orc_collect(c, plan);
    uint32_t used[2] = {0};
    for (size_t i = 0; i < all.count; i++) {
        used[all.at[i].source]++;
    }
    assert_int_equal(used[0], 8);
    assert_int_equal(used[1], 8);
    free(all.at);
    ferry_plan_destroy(plan);
    orc_case_free(c);
}

/* ---- whole models ---- */

static ferry_tensor_set_t *model(const char *name, const char *spec, uint32_t first_rank) {
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    ferry_tensor_set_t *set = NULL;
    assert_ok(ferry_parallel_parse(spec, &parallel, &err));
    assert_ok(ferry_model_tensors(name, FERRY_BF16, &parallel, first_rank, &set, &err));
    return set;
}

static ferry_plan_t *model_plan(const char *name, const char *from, const char *to, bool disjoint) {
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    uint32_t world = 0;
    assert_ok(ferry_parallel_parse(from, &parallel, &err));
    assert_ok(ferry_parallel_world(&parallel, &world, &err));
    ferry_tensor_set_t *sources = model(name, from, 0);
    ferry_tensor_set_t *targets = model(name, to, disjoint ? world : 0);
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = ferry_tensor_set_tensors(sources, &params.nsources);
    params.targets = ferry_tensor_set_tensors(targets, &params.ntargets);
    ferry_plan_t *plan = NULL;
    assert_ok(ferry_plan_create(&params, &plan, &err));
    assert_ok(ferry_plan_check(plan, &err));
    ferry_tensor_set_destroy(sources);
    ferry_tensor_set_destroy(targets);
    return plan;
}

static void models_are_balanced(void **state) {
    (void)state;
    static const struct {
        const char *name, *from, *to;
        double most;
    } all[] = {
        {"llama3-70b", "tp=1,dp=64", "tp=8,dp=8", 1.05},
        {"llama3-70b", "tp=2,dp=32", "tp=8,dp=8", 1.05},
        {"deepseek-v3", "tp=1,pp=8,dp=32,ep=32", "tp=8,dp=16,ep=32", 1.1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_plan_t *plan = model_plan(all[i].name, all[i].from, all[i].to, true);
        double ratio = imbalance(plan);
        print_message("%s %s -> %s: busiest / mean = %.4f\n", all[i].name, all[i].from, all[i].to,
                      ratio);
        if (!(ratio <= all[i].most)) {
            fail_msg("%s %s -> %s: busiest / mean = %.4f, at most %.2f", all[i].name, all[i].from,
                     all[i].to, ratio, all[i].most);
        }
        ferry_plan_destroy(plan);
    }
}

static uint32_t rounds_of(const ferry_plan_t *plan, size_t *batches_p) {
    size_t count = ferry_plan_ntransfers(plan);
    ferry_item_t *items = orc_alloc(count, sizeof *items);
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t x;
    for (size_t i = 0; ferry_plan_next(plan, &cursor, &x); i++) {
        items[i] = (ferry_item_t){x.task_id, x.bytes, x.source, x.target};
    }
    ferry_schedule_t *schedule = NULL;
    assert_ok(ferry_schedule_create(items, count, NULL, &schedule, &err));
    uint32_t rounds = ferry_schedule_nrounds(schedule);
    assert_int_equal(rounds, ferry_schedule_max_degree(schedule));
    ferry_schedule_batches(schedule, batches_p);
    ferry_schedule_destroy(schedule);
    free(items);
    return rounds;
}

static void model_schedules_reach_the_bound(void **state) {
    (void)state;
    static const char *const wide = "tp=4,pp=8,dp=8,ep=32";
    static const struct {
        const char *name, *from, *to;
        bool disjoint;
        uint32_t most;
    } all[] = {
        {"llama3-70b", "tp=8,dp=8", "tp=4,dp=16", false, 148},
        {"deepseek-v3", wide, "tp=8,dp=16,ep=128", false, 74},
        {"deepseek-v3", wide, "tp=8,dp=16,ep=128", true, 74},
        {"deepseek-v3", wide, "tp=8,dp=16,ep=32", false, 186},
        {"deepseek-v3", wide, "tp=8,dp=16,ep=32", true, 186},
    };
    uint32_t rounds[sizeof all / sizeof *all];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_plan_t *plan = model_plan(all[i].name, all[i].from, all[i].to, all[i].disjoint);
        size_t batches = 0;
        rounds[i] = rounds_of(plan, &batches);
        print_message("%s %s -> %s %s: %zu batches in %u rounds\n", all[i].name, all[i].from,
                      all[i].to, all[i].disjoint ? "disjoint" : "collocated", batches, rounds[i]);
        ferry_plan_destroy(plan);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (rounds[i] > all[i].most) {
            fail_msg("%s %s -> %s: %u rounds, at most %u", all[i].name, all[i].from, all[i].to,
                     rounds[i], all[i].most);
        }
    }
}

/* ---- merging ---- */

static void pieces_are_merged(void **state) {
    (void)state;
    static const small_t all[] = {
        {"8:S0", "6:S0@8-13", 2, {48, 4}, 12},
        {"8:S0", "6:S0", 2, {48, 4}, 12},
        {"5:S0", "7:S0@5-11", 2, {70, 4}, 11},
        {"5:S0", "7:S0", 2, {70, 4}, 11},
        {"8:S0/stride(2)", "8:S0/stride(2)@8-15", 2, {64, 4}, 8},
        {"8:S0/stride(2)", "8:S0/stride(2)", 2, {64, 4}, 8},
        {"8:S1", "6:S1@8-13", 2, {4, 48}, 12},
    };
    RUN_SMALL(all);
}

/* ---- Etha ---- */

/* Four ranks along any one of four axes, on both sides, and two along two of them. */
static void etha_four_axes(void **state) {
    (void)state;
    static const char *const meshes[] = {"4x1x1x1", "1x4x1x1", "1x1x4x1",
                                         "1x1x1x4", "1x1x2x2", "1x2x1x2"};
    for (size_t i = 0; i < 36; i++) {
        char from[64];
        char to[64];
        snprintf(from, sizeof from, "%s:R,R,S0,S1", meshes[i / 6]);
        snprintf(to, sizeof to, "%s:R,SS(1,2),R,S1@4-7", meshes[i % 6]);
        small_t one = {from, to, 2, {64, 64}, 0};
        run_small(&one, 1);
    }
}

static void etha_layout_pairs(void **state) {
    (void)state;
    static const small_t all[] = {
        {"1x2x2:R,S0,S0", "4:S0@4-7", 3, {8, 16, 32}, 4},
        {"1x2x2:R,S0,S0", "4:S0@4-7", 3, {8, 16, 16}, 4}, /* the half-width view */
        {"2x2:R,S0", "2x2:R,S0@4-7", 2, {8, 16}, 4},
        {"2x2:R,S0", "2x2:R,S0", 2, {8, 16}, 4},
        {"1x4:R,R", "2x2:R,S0@4-7", 2, {8, 16}, 4},
        {"2x2:S0,S0", "4:S0@4-7", 2, {8, 16}, 4},
        {"2:S0", "2:S1@2-3", 3, {12, 8, 4}, 4},
        {"2:S0", "2:R@2-3", 3, {12, 8, 4}, 4},
        {"4:S0", "4:S0", 2, {8, 16}, 4},
        {"2x2:S0,S1", "4:S0", 2, {8, 16}, 8},
        {"3:S0", "1:S1@3", 2, {9, 6}, 3},
        {"3:S0", "1:S1@3", 2, {10, 6}, 3}, /* uneven: the tail is not lost */
        {"2x2:SS(0,2),S0", "4:S0@4-7", 2, {8, 16}, 4},
        {"2x2:SS(0,2),S0", "4:S0", 2, {8, 16}, 4},
        {"4:P(sum)", "4:R@4-7", 2, {8, 16}, 4},
        {"4:P(avg)", "4:S0@4-7", 2, {8, 16}, 4},
        {"2x2:S0,P(sum)", "4:S0@4-7", 2, {8, 16}, 4},
        {"2x2:P(sum),P(sum)", "4:R@4-7", 2, {8, 16}, 4},
        {"2x3:P(sum),P(sum)", "2:R@6-7", 2, {8, 16}, 2},
        {"2x3:P(sum),P(sum)", "2:R@0-1", 2, {8, 16}, 2},
    };
    RUN_SMALL(all);
}

/* Round to nearest even, as a cast to bf16 does. */
static float to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* What `rank` adds to the sum at global element `e`. */
static float part_of(uint32_t rank, uint64_t e) {
    return (float)((rank + 1) * 37 % 11) * 0.3125f + (float)(e % 13) * 0.0625f +
           (float)rank * 1e-3f;
}

static float reduced(const ferry_plan_t *plan, uint32_t source, uint64_t e, float scale) {
    ferry_reduce_t reduce;
    uint32_t ranks[ORC_RANKS];
    float values[ORC_RANKS];
    assert_ok(ferry_plan_reduce(plan, 0, source, &reduce, ranks, ORC_RANKS, &err));
    for (uint32_t i = 0; i < reduce.nranks; i++) {
        values[i] = part_of(ranks[i], e) * scale;
    }
    return orc_reduce_f32(&reduce, values);
}

/* Runs a plan out of a Partial source: each element is reduced as planned, cast, and delivered. */
static void run_partial(const char *from, const char *to, float scale, bool bf16,
                        float (*want)(uint64_t e, float scale)) {
    uint64_t shape[] = {8, 16};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, from, to);
    assert_non_null(c);
    c->tensors[0].target_dtype = bf16 ? FERRY_BF16 : FERRY_F32;
    c->flags = bf16 ? FERRY_PLAN_ALLOW_CAST : 0;
    assert_true(orc_check_all(c));
    ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
    orc_transfers_t all = orc_collect(c, plan);
    const orc_tensor_t *tensor = &c->tensors[0];
    for (uint32_t t = 0; t < tensor->target.nranks; t++) {
        uint64_t *numbers = orc_side_numbers(tensor->to, t);
        for (uint64_t e = 0; e < orc_side_elements(tensor->to, t); e++) {
            uint64_t width = tensor->to->lists[t][1].count;
            uint32_t source = FERRY_RANK_NONE;
            for (size_t i = 0; i < all.count; i++) {
                const ferry_transfer_t *x = &all.at[i];
                if (x->target == tensor->target.ranks[t] &&
                    e / width - x->target_lo[0] < x->extent[0] &&
                    e % width - x->target_lo[1] < x->extent[1]) {
                    source = x->source;
                }
            }
            float have = reduced(plan, source, numbers[e], scale);
            float expected = want(numbers[e], scale);
            have = bf16 ? to_bf16(have) : have;
            expected = bf16 ? to_bf16(expected) : expected;
            assert_true(fabsf(have - expected) <= (bf16 ? 0 : 1e-5f * fabsf(expected)));
        }
        free(numbers);
    }
    free(all.at);
    ferry_plan_destroy(plan);
    orc_case_free(c);
}

static float sum_of(uint32_t first, uint32_t step, uint32_t count, uint64_t e, float scale) {
    float sum = part_of(first, e) * scale;
    for (uint32_t i = 1; i < count; i++) {
        sum += part_of(first + i * step, e) * scale;
    }
    return sum;
}

static float sum_of_4(uint64_t e, float scale) {
    return sum_of(0, 1, 4, e, scale);
}

static float mean_of_4(uint64_t e, float scale) {
    return sum_of(0, 1, 4, e, scale) / 4;
}

static float sum_of_6(uint64_t e, float scale) {
    return sum_of(0, 1, 6, e, scale);
}

/* (2,2) S0,P: rows 0-3 are the sum of ranks 0 and 1, rows 4-7 of ranks 2 and 3. */
static float sum_of_2(uint64_t e, float scale) {
    return sum_of(e / 16 < 4 ? 0 : 2, 1, 2, e, scale);
}

static void etha_partial_sources(void **state) {
    (void)state;
    run_partial("4:P(sum)", "4:R@4-7", 1, false, sum_of_4);
    run_partial("4:P(avg)", "4:S0@4-7", 1, false, mean_of_4);
    run_partial("2x2:S0,P(sum)", "4:S0@4-7", 1, false, sum_of_2);
    run_partial("2x2:P(sum),P(sum)", "4:R@4-7", 1, false, sum_of_4);
    run_partial("2x2:P(avg),P(avg)", "4:R@4-7", 1, false, mean_of_4);
    run_partial("2x3:P(sum),P(sum)", "2:R@6-7", 1, false, sum_of_6);
}

/* The sum is made in f32 and cast once; casting the terms first gives something else. */
static void etha_reduce_before_cast(void **state) {
    (void)state;
    run_partial("4:P(sum)", "4:R@4-7", 1e3f, true, sum_of_4);
    bool differs = false;
    for (uint64_t e = 0; e < 128; e++) {
        float cast_first = 0;
        for (uint32_t r = 0; r < 4; r++) {
            cast_first = to_bf16(cast_first + to_bf16(part_of(r, e) * 1e3f));
        }
        differs = differs || cast_first != to_bf16(sum_of_4(e, 1e3f));
    }
    assert_true(differs); /* or this test could not fail */
}

static void etha_wire_dtype(void **state) {
    (void)state;
    static const struct {
        ferry_dtype_t source, target, wire;
        uint64_t bytes;
    } all[] = {
        {FERRY_F32, FERRY_BF16, FERRY_BF16, 2 * 128}, {FERRY_BF16, FERRY_F32, FERRY_BF16, 2 * 128},
        {FERRY_F32, FERRY_F32, FERRY_F32, 4 * 128},   {FERRY_F16, FERRY_BF16, FERRY_F16, 2 * 128},
        {FERRY_BF16, FERRY_F16, FERRY_BF16, 2 * 128},
    };
    uint64_t shape[] = {8, 16};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        orc_case_t *c = orc_case_text(all[i].source, 2, shape, "2:S0", "2:S1@2-3");
        assert_non_null(c);
        c->tensors[0].target_dtype = all[i].target;
        c->flags = FERRY_PLAN_ALLOW_CAST;
        assert_true(orc_check_all(c));
        ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(plan, 0, &tensor);
        assert_int_equal(tensor.wire_dtype, all[i].wire);
        ferry_plan_stats_t stats = {.size = sizeof stats};
        assert_ok(ferry_plan_stats(plan, &stats, &err));
        assert_int_equal(stats.bytes_total, all[i].bytes);
        ferry_plan_destroy(plan);
        orc_case_free(c);
    }
}

/* Broadcast in both directions at once: two tensors, two meshes, each the other's target. */
static void etha_both_directions(void **state) {
    (void)state;
    uint64_t shape[] = {8, 16};
    orc_case_t *there = orc_case_text(FERRY_F32, 2, shape, "2:S0", "2:R@2-3");
    orc_case_t *back = orc_case_text(FERRY_F32, 2, shape, "2:S0@2-3", "2:R");
    assert_non_null(there);
    assert_non_null(back);
    orc_case_t both;
    memset(&both, 0, sizeof both);
    both.ntensors = 2;
    both.tensors[0] = there->tensors[0];
    both.tensors[1] = back->tensors[0];
    snprintf(both.tensors[0].name, sizeof both.tensors[0].name, "back");
    snprintf(both.tensors[1].name, sizeof both.tensors[1].name, "there");
    both.shuffle[1] = 1;
    assert_true(orc_check_all(&both));
    orc_case_free(there);
    orc_case_free(back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_planner),
        cmocka_unit_test(megatron_local_copy),
        cmocka_unit_test(megatron_shapes_that_do_not_add_up),
        cmocka_unit_test(megatron_blocks),
        cmocka_unit_test(megatron_replicated),
        cmocka_unit_test(megatron_a_target_more),
        cmocka_unit_test(megatron_each_replica_twice),
        cmocka_unit_test(megatron_eight_and_eight),
        cmocka_unit_test(models_are_balanced),
        cmocka_unit_test(model_schedules_reach_the_bound),
        cmocka_unit_test(pieces_are_merged),
        cmocka_unit_test(etha_four_axes),
        cmocka_unit_test(etha_layout_pairs),
        cmocka_unit_test(etha_partial_sources),
        cmocka_unit_test(etha_reduce_before_cast),
        cmocka_unit_test(etha_wire_dtype),
        cmocka_unit_test(etha_both_directions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
