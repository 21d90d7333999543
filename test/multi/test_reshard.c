/* test_reshard.c - reshard end to end: every case that other implementations hold, in every way, as threads
 * and as processes, against the oracle. */
#include "multi/body.h"

#include "oracle/reshard_ways.h"
#include "support/sanitizer.h"

/* ---- one tensor ---- */

typedef struct one {
    const char *name;
    uint32_t ndim;
    uint64_t shape[3];
    const char *from;
    const char *to;
    ferry_dtype_t source;
    ferry_dtype_t target;
    rso_values_t values;
    ferry_dtype_t wire;
    rso_mx_t mx;
} one_t;

#define F32 .source = FERRY_F32, .target = FERRY_F32
#define BF16 .source = FERRY_BF16, .target = FERRY_BF16

/* Mesh-to-mesh transfers with a placement per axis. */
static const one_t mesh_cases[] = {
    {"nested to flat", 3, {8, 16, 32}, "1x2x2:R,S0,S0", "4:S0", F32},
    {"to itself", 2, {16, 24}, "2x2:R,S0", "2x2:R,S0", F32},
    {"replicated to cut", 2, {16, 24}, "1x4:R,R", "2x2:R,S0", F32},
    {"nested to flat, 2-D", 2, {16, 24}, "2x2:S0,S0", "4:S0", F32},
    {"sum to all", 2, {16, 24}, "4:P(sum)", "4:R", F32},
    {"mean to rows", 2, {16, 24}, "4:P(avg)", "4:S0", F32},
    {"rows of sums", 2, {16, 24}, "2x2:S0,P(sum)", "4:S0", F32},
    {"sums of sums", 2, {16, 24}, "2x2:P(sum),P(sum)", "4:R", F32},
    {"more members than targets", 2, {12, 10}, "2x3:P(sum),P(sum)", "2:R", F32},
    {"reduce before the cast",
     2,
     {16, 24},
     "4:P(sum)",
     "4:R",
     .source = FERRY_F32,
     .target = FERRY_BF16,
     .values = RSO_THOUSANDS},
    {"max of means in f16",
     2,
     {9, 7},
     "2x3:P(max),P(avg)",
     "3:S1",
     .source = FERRY_F16,
     .target = FERRY_F32},
    {"integer product",
     1,
     {50},
     "3:P(product)",
     "2:S0@1-2",
     .source = FERRY_I16,
     .target = FERRY_I16},
    {"one member outside", 2, {6, 10}, "2x2:P(min),S1@1,3,0,2", "2:S0@5-6", BF16},
    {"rows to columns, apart", 3, {12, 8, 4}, "2:S0@0-1", "2:S1@2-3", F32},
    {"rows to all, apart", 3, {12, 8, 4}, "2:S0@0-1", "2:R@2-3", F32},
    {"same ranks, same cut", 2, {16, 24}, "4:S0", "4:S0", F32},
    {"same ranks, other cut", 2, {16, 24}, "2x2:S0,S1", "4:S0", F32},
    {"three to one", 2, {10, 7}, "3:S0", "1:S1", F32},
    {"strided and nested", 2, {16, 24}, "2x2:SS(0,2),S0", "4:S0", F32},
    {"narrow wire", 2, {16, 24}, "2:S0", "4:S1", F32, .wire = FERRY_BF16},
    {"narrow wire, sums", 2, {16, 24}, "2x2:S0,P(sum)", "4:S1", F32, .wire = FERRY_F16},
    {"narrow wire, f64 to f32",
     2,
     {16, 24},
     "2:S0",
     "2:S1",
     .source = FERRY_F64,
     .target = FERRY_F32,
     .wire = FERRY_F8E5M2},
    {"up", 2, {16, 24}, "3:S0", "4:S1", .source = FERRY_BF16, .target = FERRY_F32},
    {"equal widths", 2, {16, 24}, "3:S0", "4:S1", .source = FERRY_F16, .target = FERRY_BF16},
    {"down", 2, {16, 24}, "3:S0", "4:S1", .source = FERRY_F32, .target = FERRY_F8E4M3},
    {"overlapping in part", 2, {11, 13}, "3:S0@0-2", "3:S1@2,1,4", F32},
};

/* Plain tensor parallel, fused components, replicas. */
static const one_t tp_cases[] = {
    {"tp 2 -> 1", 2, {64, 128}, "2:S1", "1:R", BF16},
    {"tp 1 -> 2", 2, {64, 128}, "1:R", "2:S1", BF16},
    {"tp 2 -> 4", 2, {64, 128}, "2:S1", "4:S1", BF16},
    {"tp 2 -> 2", 2, {64, 128}, "2:S1", "2:S1", BF16},
    {"tp 4 -> 2", 2, {64, 128}, "4:S1", "2:S1", BF16},
    {"tp 2 -> 1, rows", 2, {64, 128}, "2:S0", "1:R", BF16},
    {"fused 2 -> 1", 2, {48, 16}, "2:S0/sizes(32,16)", "1:R", BF16},
    {"fused 1 -> 2", 2, {48, 16}, "1:R", "2:S0/sizes(32,16)", BF16},
    {"fused 2 -> 4", 2, {28, 8}, "2:S0/sizes(16,8,4)", "4:S0/sizes(16,8,4)", BF16},
    {"stride", 2, {24, 5}, "2:S0/stride(3)", "4:S0/stride(2)", BF16},
    {"replicas", 1, {33}, "4:R", "4:R", BF16},
    {"replicas, apart", 1, {33}, "4:R@0-3", "4:R@4-7", BF16},
    {"tp 5 -> 7", 2, {64, 9}, "5:S0", "7:S0", BF16},
    {"tp 4 -> 3, uneven", 2, {10, 16}, "2x2:R,S0", "3:S0@4-6", F32},
    {"dp 4 tp 2 -> 8 others", 1, {40}, "4x2:R,S0", "4x2:R,S0@8-15", BF16},
    {"2 replicas -> 16", 1, {40}, "2:R", "16:R@2-17", BF16},
    {"an empty tail", 2, {5, 3}, "4:S0", "4:S1", F32},
    {"no element", 2, {0, 3}, "2:S0", "2:S1", F32},
    {"no dim", 0, {0}, "2:R", "3:R@1-3", F32},
    {"one to the last of many", 1, {100}, "1:R", "1:R@7", F32},
    {"bools", 2, {7, 9}, "3:S0", "2:S1", .source = FERRY_BOOL, .target = FERRY_BOOL},
};

static const one_t mx_cases[] = {
    {"two halves", 2, {64, 128}, "2:S0", "1:R", BF16, .mx = RSO_MX_SWIZZLED},
    {"two halves, rows", 2, {64, 128}, "2:S0", "1:R", BF16, .mx = RSO_MX_ROWS},
    {"four slices", 2, {128, 256}, "4:S0", "1:R@1", BF16, .mx = RSO_MX_SWIZZLED},
    {"four slices, rows", 2, {128, 256}, "4:S0", "1:R@1", BF16, .mx = RSO_MX_ROWS},
    {"columns", 2, {10, 256}, "4:S1", "2:S0", BF16, .mx = RSO_MX_ROWS},
    {"columns, swizzled", 2, {130, 192}, "2:S1", "3:S1", BF16, .mx = RSO_MX_SWIZZLED},
    {"from f32", 2, {12, 96}, "3:S0", "3:S1", F32, .mx = RSO_MX_ROWS},
    {"from f32, swizzled", 2, {12, 96}, "3:S0", "3:S1", F32, .mx = RSO_MX_SWIZZLED},
    {"from f16 as bf16",
     2,
     {12, 96},
     "3:S0",
     "3:S1",
     .source = FERRY_F16,
     .target = FERRY_BF16,
     .mx = RSO_MX_ROWS},
    {"sums", 2, {12, 96}, "2x2:P(sum),S0", "3:S1", F32, .mx = RSO_MX_ROWS},
    {"3-D", 3, {3, 5, 64}, "2:S1", "3:S0", BF16, .mx = RSO_MX_SWIZZLED},
};

static uint64_t seeds = 1000;

/* Fewer ways under a sanitizer, taken in turn. */
static void tour(const rso_case_t *c, uint32_t rounds) {
    static size_t turn;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        rsr_tour_t plan = {c, seeds++, 0, 0, rounds};
        if (SANITIZED || kind == AS_SOCKET) {
            plan.first = turn++ % rsr_nways;
            plan.count = 1;
        }
        run_well((body_kind_t)kind, c->nranks, rsr_tour_body, &plan, NULL);
    }
}

static void run_cases(const one_t *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const one_t *one = &cases[i];
        rso_case_t c = {.wire = one->wire};
        rso_tensor_t *t = rso_add_text(&c, one->name, one->source, one->target, one->ndim,
                                       one->shape, one->from, one->to);
        t->values = one->values;
        t->mx = one->mx;
        assert_true(rso_open(&c));
        tour(&c, 2);
        rso_close(&c);
    }
}

static void test_meshes(void **state) {
    (void)state;
    run_cases(mesh_cases, sizeof mesh_cases / sizeof *mesh_cases);
}

static void test_tensor_parallel(void **state) {
    (void)state;
    run_cases(tp_cases, sizeof tp_cases / sizeof *tp_cases);
}

static void test_mxfp8(void **state) {
    (void)state;
    run_cases(mx_cases, sizeof mx_cases / sizeof *mx_cases);
}

/* ---- several tensors ---- */

/* All meshes of four ranks with four axes, to all. */
static void test_four_axes(void **state) {
    (void)state;
    static const char *const meshes[] = {"4x1x1x1", "1x4x1x1", "1x1x4x1", "1x1x1x4"};
    uint64_t shape[] = {64, 64};
    rso_case_t c = {0};
    for (int from = 0; from < 4; from++) {
        for (int to = 0; to < 4; to++) {
            char name[16];
            char source[64];
            char target[64];
            (void)snprintf(name, sizeof name, "w.%u.%u", (unsigned)from % 10, (unsigned)to % 10);
            (void)snprintf(source, sizeof source, "%s:R,R,S0,S1", meshes[from]);
            (void)snprintf(target, sizeof target, "%s:R,SS(1,2),R,S1", meshes[to]);
            (void)rso_add_text(&c, name, FERRY_F32, FERRY_F32, 2, shape, source, target);
        }
    }
    assert_true(rso_open(&c));
    tour(&c, 2);
    rso_close(&c);
}

static void test_both_directions(void **state) {
    (void)state;
    uint64_t shape[] = {12, 8};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "there", FERRY_F32, FERRY_F32, 2, shape, "1:R@0", "3:R@1-3");
    (void)rso_add_text(&c, "back", FERRY_F32, FERRY_F32, 2, shape, "1:R@3", "3:R@0-2");
    assert_true(rso_open(&c));
    tour(&c, 3);
    rso_close(&c);
}

/* Sources only, targets only, both, idle, and a member of a sum that ships nothing. */
static void test_roles(void **state) {
    (void)state;
    uint64_t shape[] = {12, 8};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_F32, FERRY_F32, 2, shape, "2:S0@0-1", "2:S1@1-2");
    (void)rso_add_text(&c, "sum", FERRY_F32, FERRY_BF16, 2, shape, "2:P(sum)@0,4", "1:R@0");
    (void)rso_add_text(&c, "z", FERRY_I64, FERRY_I64, 2, shape, "1:R@6", "1:R@2");
    assert_true(rso_open(&c)); /* 3 and 5 are idle */
    tour(&c, 3);
    rso_close(&c);
}

/* One memory under two source names; a buffer that keeps its dtype while weights lose theirs. */
static void test_tied_and_kept(void **state) {
    (void)state;
    uint64_t words[] = {30, 16};
    uint64_t experts[] = {6};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "embed", FERRY_F32, FERRY_BF16, 2, words, "2:S0", "3:S0@1-3");
    rso_tensor_t *head =
        rso_add_text(&c, "head", FERRY_F32, FERRY_BF16, 2, words, "2:S0", "2:S1@2-3");
    head->tied = 1;
    (void)rso_add_text(&c, "router.bias", FERRY_F32, FERRY_F32, 1, experts, "2:R", "3:R@1-3");
    (void)rso_add_text(&c, "step", FERRY_I64, FERRY_I64, 0, experts, "2:R", "3:R@1-3");
    assert_true(rso_open(&c));
    tour(&c, 3);
    rso_close(&c);
}

/* Quantised and plain tensors side by side. */
static void test_mixed(void **state) {
    (void)state;
    uint64_t shape[] = {20, 64};
    rso_case_t c = {0};
    (void)rso_add_text(&c, "a", FERRY_BF16, FERRY_BF16, 2, shape, "2:S0", "2:S0@1-2");
    rso_add_text(&c, "b", FERRY_BF16, FERRY_BF16, 2, shape, "2:S0", "2:S1@1-2")->mx = RSO_MX_ROWS;
    rso_add_text(&c, "c", FERRY_F32, FERRY_F32, 2, shape, "2:S1", "3:R")->mx = RSO_MX_SWIZZLED;
    (void)rso_add_text(&c, "d", FERRY_F32, FERRY_BF16, 2, shape, "2:P(sum)", "3:S0");
    assert_true(rso_open(&c));
    tour(&c, 3);
    rso_close(&c);
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),          cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_mxfp8),           cmocka_unit_test(test_four_axes),
        cmocka_unit_test(test_both_directions), cmocka_unit_test(test_roles),
        cmocka_unit_test(test_tied_and_kept),   cmocka_unit_test(test_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
