/* test_plan.c - plans with transfers worked out by hand, and every refusal of the plan functions. */
#include <stdlib.h>
#include <xxhash.h>

#include "oracle/oracle.h"
#include "oracle/unit.h"

/* ---- helpers ---- */

/* One tensor "w" on two layouts; everything may be changed before plan_of. */
typedef struct setup {
    uint64_t shape[FERRY_MAX_DIMS + 1];
    ferry_layout_t *from;
    ferry_layout_t *to;
    ferry_tensor_t source;
    ferry_tensor_t target;
    ferry_plan_params_t params;
} setup_t;

static ferry_layout_t *parse(const char *text) {
    ferry_layout_t *layout = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_parse(text, &layout, &err) != FERRY_OK) {
        fail_msg("'%s': %s", text, err.text);
    }
    return layout;
}

static void set_up(setup_t *s, uint64_t rows, uint64_t columns, const char *from, const char *to) {
    memset(s, 0, sizeof *s);
    s->shape[0] = rows;
    s->shape[1] = columns;
    s->from = parse(from);
    s->to = parse(to);
    s->source = (ferry_tensor_t){"w", FERRY_F32, 2, s->shape, s->from};
    s->target = (ferry_tensor_t){"w", FERRY_F32, 2, s->shape, s->to};
    s->params = (ferry_plan_params_t)FERRY_PLAN_PARAMS_INIT;
    s->params.sources = &s->source;
    s->params.nsources = 1;
    s->params.targets = &s->target;
    s->params.ntargets = 1;
}

static void tear_down(setup_t *s) {
    ferry_layout_destroy(s->from);
    ferry_layout_destroy(s->to);
}

static ferry_plan_t *plan_of(const setup_t *s) {
    ferry_plan_t *plan = NULL;
    assert_ok(ferry_plan_create(&s->params, &plan, &err));
    assert_ok(ferry_plan_check(plan, &err));
    return plan;
}

static ferry_plan_t *plan_text(uint64_t rows, uint64_t columns, const char *from, const char *to) {
    setup_t s;
    set_up(&s, rows, columns, from, to);
    ferry_plan_t *plan = plan_of(&s);
    tear_down(&s);
    return plan;
}

/* Every transfer, written "source>target source_lo target_lo extent;", is in `want`, and no other. */
static void assert_transfers(const ferry_plan_t *plan, const char *want) {
    size_t wanted = 0;
    for (const char *p = want; *p; p++) {
        wanted += *p == ';';
    }
    assert_int_equal(ferry_plan_ntransfers(plan), wanted);
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t x;
    while (ferry_plan_next(plan, &cursor, &x)) {
        char one[128];
        assert_int_equal(x.ndim, 2);
        snprintf(one, sizeof one, "%u>%u %llu,%llu %llu,%llu %llux%llu;", x.source, x.target,
                 (unsigned long long)x.source_lo[0], (unsigned long long)x.source_lo[1],
                 (unsigned long long)x.target_lo[0], (unsigned long long)x.target_lo[1],
                 (unsigned long long)x.extent[0], (unsigned long long)x.extent[1]);
        if (strstr(want, one) == NULL) {
            fail_msg("%s is not in %s", one, want);
        }
        wanted--;
    }
    assert_int_equal(wanted, 0);
}

/* ---- transfers by hand ---- */

static void transfers_are_as_worked_out_by_hand(void **state) {
    (void)state;
    static const struct {
        uint64_t rows, columns;
        const char *from, *to, *want;
    } all[] = {
        {64, 128, "2:S1", "1:R@2", "0>2 0,0 0,0 64x64;1>2 0,0 0,64 64x64;"},
        {64, 128, "1:R", "2:S1@1-2", "0>1 0,0 0,0 64x64;0>2 0,64 0,0 64x64;"},
        {64, 128, "2:S0", "2:S0", "0>0 0,0 0,0 32x128;1>1 0,0 0,0 32x128;"},
        {4, 6, "2:S0", "2:S1@2-3",
         "0>2 0,0 0,0 2x3;1>2 0,0 2,0 2x3;0>3 0,3 0,0 2x3;1>3 0,3 2,0 2x3;"},
        {5, 1, "4:S0", "2:S0@4-5",
         "0>4 0,0 0,0 2x1;1>4 0,0 2,0 1x1;1>5 1,0 0,0 1x1;2>5 0,0 1,0 1x1;"},
        {8, 1, "2:S0/stride(2)", "2:S0/stride(2)@2-3", "0>2 0,0 0,0 4x1;1>3 0,0 0,0 4x1;"},
        {8, 1, "2:S0/stride(2)", "1:R@2",
         "0>2 0,0 0,0 2x1;1>2 0,0 2,0 2x1;0>2 2,0 4,0 2x1;1>2 2,0 6,0 2x1;"},
        {0, 4, "2:S0", "1:R@2", ""},
        {3, 2, "1:R@7", "1:R@7", "7>7 0,0 0,0 3x2;"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_plan_t *plan = plan_text(all[i].rows, all[i].columns, all[i].from, all[i].to);
        assert_transfers(plan, all[i].want);
        ferry_plan_destroy(plan);
    }
}

static void scalars_travel(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 0, 0, "2:R", "2:R@1-2");
    s.source.ndim = s.target.ndim = 0;
    s.source.shape = s.target.shape = NULL;
    ferry_plan_t *plan = plan_of(&s);
    assert_int_equal(ferry_plan_ntransfers(plan), 2);
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t x;
    assert_true(ferry_plan_next(plan, &cursor, &x));
    assert_int_equal(x.source, 1);
    assert_int_equal(x.target, 1);
    assert_int_equal(x.elements, 1);
    assert_int_equal(x.bytes, 4);
    assert_true(ferry_plan_next(plan, &cursor, &x));
    assert_int_equal(x.target, 2);
    assert_int_equal(x.task_id, (UINT64_C(2) << FERRY_TASK_PIECE_BITS | x.piece) << 4);
    assert_false(ferry_plan_next(plan, &cursor, &x));
    assert_false(ferry_plan_next(plan, &cursor, &x));
    ferry_plan_destroy(plan);
    tear_down(&s);
}

static void ordinals_follow_names(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 4, 4, "2:S0", "2:S1@2-3");
    const char *names[] = {"layers.2", "layers.10", "Z", "unused", "a"};
    const char *sorted[] = {"Z", "a", "layers.10", "layers.2"};
    ferry_tensor_t sources[5];
    ferry_tensor_t targets[4];
    for (size_t i = 0; i < 5; i++) {
        sources[i] = s.source;
        sources[i].name = names[i];
    }
    for (size_t i = 0; i < 4; i++) {
        targets[i] = s.target;
        targets[i].name = sorted[3 - i];
    }
    s.params.sources = sources;
    s.params.nsources = 5;
    s.params.targets = targets;
    s.params.ntargets = 4;
    ferry_plan_t *plan = plan_of(&s);
    assert_int_equal(ferry_plan_ntensors(plan), 4);
    for (uint32_t i = 0; i < 4; i++) {
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(plan, i, &tensor);
        assert_string_equal(tensor.name, sorted[i]);
    }
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t x;
    for (uint64_t n = 0; ferry_plan_next(plan, &cursor, &x); n++) {
        assert_int_equal(x.tensor, n / 4);
        assert_int_equal(x.task_id >> 44, x.tensor);
    }
    ferry_plan_destroy(plan);
    tear_down(&s);
}

static void nearer_holders_come_first(void **state) {
    (void)state;
    setup_t s;
    uint32_t hosts[] = {0, 0, 1, 1, 0, 1, 2};
    set_up(&s, 4, 4, "4:R", "4:R@3-6");
    s.params.hosts = hosts;
    s.params.nhosts = 7;
    ferry_plan_t *plan = plan_of(&s);
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t x;
    assert_true(ferry_plan_next(plan, &cursor, &x));
    assert_int_equal(x.source, 3); /* itself */
    assert_true(ferry_plan_next(plan, &cursor, &x));
    assert_in_range(x.source, 0, 1); /* host 0 */
    assert_true(ferry_plan_next(plan, &cursor, &x));
    assert_in_range(x.source, 2, 3); /* host 1 */
    ferry_plan_stats_t stats = {.size = sizeof stats};
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.bytes_total, 4 * 64);
    assert_int_equal(stats.bytes_local, 64);
    assert_int_equal(stats.bytes_wire, 3 * 64);
    assert_int_equal(stats.bytes_host, 2 * 64);
    ferry_plan_destroy(plan);
    tear_down(&s);
}

/* ---- figures by hand ---- */

static void figures_are_as_worked_out_by_hand(void **state) {
    (void)state;
    /* 16 x 1 f32 on ranks 0, 1; ranks 2 and 3 want all of it, rank 1 wants the first half. */
    ferry_plan_t *plan = plan_text(16, 1, "2:S0", "2:R@2-3");
    ferry_plan_stats_t stats = {.size = sizeof stats};
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.tensors, 1);
    assert_int_equal(stats.transfers, 4);
    assert_int_equal(stats.bytes_total, 128);
    assert_int_equal(stats.bytes_local, 0);
    assert_int_equal(stats.bytes_wire, 128);
    assert_int_equal(stats.bytes_host, 0);
    assert_int_equal(stats.bytes_reduce, 0);
    assert_int_equal(stats.max_send_bytes, 64);
    assert_int_equal(stats.max_recv_bytes, 64);
    assert_true(stats.mean_send_bytes == 64.0);
    assert_int_equal(stats.lower_bound_bytes, 64); /* each target lacks it all; sources send 32 */
    assert_false(stats.bound_is_send);
    assert_in_range(stats.bound_rank, 2, 3);
    ferry_plan_destroy(plan);

    /* One holder, four targets of a quarter each: the source's port sets the bound. */
    plan = plan_text(16, 1, "1:R", "4:S0@1-4");
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.lower_bound_bytes, 64);
    assert_true(stats.bound_is_send);
    assert_int_equal(stats.bound_rank, 0);
    assert_int_equal(stats.bound_holders, 1);
    ferry_plan_destroy(plan);

    /* Two holders share the same load. */
    plan = plan_text(15, 1, "2:R", "4:S0@2-5");
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.lower_bound_bytes, 30);
    assert_true(stats.bound_is_send);
    assert_int_equal(stats.bound_holders, 2);
    ferry_plan_destroy(plan);

    /* Partial over 4: three members hand their 16 bytes to the owner of each region. */
    plan = plan_text(16, 1, "4:P(sum)", "4:S0");
    assert_ok(ferry_plan_stats(plan, &stats, &err));
    assert_int_equal(stats.bytes_local, 64);
    assert_int_equal(stats.bytes_wire, 0);
    assert_int_equal(stats.bytes_reduce, 3 * 64);
    ferry_plan_destroy(plan);
}

static void ports_are_listed(void **state) {
    (void)state;
    setup_t s;
    uint32_t hosts[] = {7, 7, 8};
    set_up(&s, 4, 1, "2:S0", "2:R@5,1");
    s.params.hosts = hosts;
    s.params.nhosts = 3;
    ferry_plan_t *plan = plan_of(&s);
    ferry_port_t ports[4];
    memset(ports, 0xee, sizeof ports);
    size_t count = 0;
    assert_ok(ferry_plan_ports(plan, ports, 4, &count, &err));
    assert_int_equal(count, 3);
    assert_int_equal(ports[0].rank, 0);
    assert_int_equal(ports[0].host, 7);
    assert_true(ports[0].is_source && !ports[0].is_target);
    assert_int_equal(ports[0].send_bytes, 16);
    assert_int_equal(ports[1].rank, 1);
    assert_true(ports[1].is_source && ports[1].is_target);
    assert_int_equal(ports[1].send_bytes, 8);
    assert_int_equal(ports[1].recv_bytes, 8);
    assert_int_equal(ports[1].local_bytes, 8);
    assert_int_equal(ports[2].rank, 5);
    assert_int_equal(ports[2].host, 5);
    assert_int_equal(ports[2].recv_bytes, 16);
    memset(ports, 0xee, sizeof ports);
    assert_ok(ferry_plan_ports(plan, ports, 1, &count, &err));
    assert_int_equal(count, 3);
    assert_int_equal(ports[0].rank, 0);
    assert_int_equal(ports[1].rank, 0xeeeeeeee);
    assert_ok(ferry_plan_ports(plan, NULL, 0, &count, &err));
    ferry_plan_destroy(plan);
    tear_down(&s);
}

static void groups_are_grids(void **state) {
    (void)state;
    ferry_plan_t *plan = plan_text(4, 4, "2x3x2:P(avg),S0,P(max)@11,10,9,8,7,6,5,4,3,2,1,0", "1:R");
    ferry_reduce_t reduce;
    uint32_t ranks[5] = {99, 99, 99, 99, 99};
    assert_ok(ferry_plan_reduce(plan, 0, 2, &reduce, ranks, 5, &err)); /* place 9: (1, 1, 1) */
    assert_int_equal(reduce.naxes, 2);
    assert_int_equal(reduce.nranks, 4);
    assert_int_equal(reduce.sizes[0], 2);
    assert_int_equal(reduce.sizes[1], 2);
    assert_int_equal(reduce.ops[0], FERRY_REDUCE_AVG);
    assert_int_equal(reduce.ops[1], FERRY_REDUCE_MAX);
    const uint32_t want[] = {9, 8, 3, 2, 99};
    assert_memory_equal(ranks, want, sizeof want);
    uint32_t two[3] = {99, 99, 99};
    assert_ok(ferry_plan_reduce(plan, 0, 2, &reduce, two, 2, &err));
    assert_int_equal(reduce.nranks, 4);
    assert_int_equal(two[1], 8);
    assert_int_equal(two[2], 99);
    assert_ok(ferry_plan_reduce(plan, 0, 2, &reduce, NULL, 0, &err));
    assert_fails(ferry_plan_reduce(plan, 1, 2, &reduce, ranks, 5, &err), INVALID, "1");
    assert_fails(ferry_plan_reduce(plan, 0, 12, &reduce, ranks, 5, &err), INVALID, "12");
    ferry_plan_destroy(plan);
    plan = plan_text(4, 4, "2:S0", "1:R");
    assert_ok(ferry_plan_reduce(plan, 0, 1, &reduce, ranks, 5, &err));
    assert_int_equal(reduce.naxes, 0);
    assert_int_equal(reduce.nranks, 1);
    assert_int_equal(ranks[0], 1);
    ferry_plan_destroy(plan);
}

/* ---- hashes ---- */

static uint64_t hash_of(const setup_t *s) {
    ferry_plan_t *plan = plan_of(s);
    uint64_t hash = ferry_plan_hash(plan);
    ferry_plan_destroy(plan);
    return hash;
}

static void all_inputs_are_in_the_hash(void **state) {
    (void)state;
    setup_t s;
    uint32_t hosts[] = {0, 0, 1, 1};
    uint64_t seen[16];
    size_t n = 0;
    set_up(&s, 8, 8, "2:S0", "2:S1");
    seen[n++] = hash_of(&s);
    assert_int_equal(hash_of(&s), seen[0]);
    s.params.flags = FERRY_PLAN_STRICT;
    seen[n++] = hash_of(&s);
    s.params.flags = FERRY_PLAN_ALLOW_CAST;
    seen[n++] = hash_of(&s);
    s.target.dtype = FERRY_I32;
    seen[n++] = hash_of(&s);
    s.source.dtype = FERRY_I32;
    seen[n++] = hash_of(&s);
    s.params.hosts = hosts;
    s.params.nhosts = 4;
    seen[n++] = hash_of(&s);
    hosts[1] = 1;
    seen[n++] = hash_of(&s);
    s.source.name = s.target.name = "v";
    seen[n++] = hash_of(&s);
    s.shape[0] = 7;
    seen[n++] = hash_of(&s);
    s.target.layout = s.from;
    seen[n++] = hash_of(&s);
    s.source.layout = s.to;
    seen[n++] = hash_of(&s);
    s.source.ndim = s.target.ndim = 3;
    s.shape[2] = 1;
    seen[n++] = hash_of(&s);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (seen[i] == seen[j]) {
                fail_msg("inputs %zu and %zu have one hash", i, j);
            }
        }
    }
    tear_down(&s);
}

static void pair_hashes_tell_transfers_apart(void **state) {
    (void)state;
    ferry_plan_t *a = plan_text(8, 8, "2:S0", "2:S1@2-3");
    ferry_plan_t *b = plan_text(8, 6, "2:S0", "2:S1@2-3");
    ferry_plan_t *c = plan_text(8, 8, "2:S0", "2:S1@2-3");
    assert_int_equal(ferry_plan_pair_hash(a, 0, 2), ferry_plan_pair_hash(c, 0, 2));
    assert_int_equal(ferry_plan_pair_hash(a, 2, 0), ferry_plan_pair_hash(c, 2, 0));
    assert_int_not_equal(ferry_plan_pair_hash(a, 0, 2), ferry_plan_pair_hash(a, 1, 2));
    assert_int_not_equal(ferry_plan_pair_hash(a, 0, 2), ferry_plan_pair_hash(a, 0, 3));
    assert_int_not_equal(ferry_plan_pair_hash(a, 0, 2), ferry_plan_pair_hash(b, 0, 2));
    ferry_plan_destroy(a);
    ferry_plan_destroy(b);
    ferry_plan_destroy(c);
}

/* ---- refusals ---- */

#define REFUSED(setup, name, part)                                                                 \
    do {                                                                                           \
        ferry_plan_t *plan_ = NULL;                                                                \
        assert_fails(ferry_plan_create(&(setup).params, &plan_, &err), name, part);                \
        assert_null(plan_);                                                                        \
    } while (0)

static void unlike_tensors_are_refused(void **state) {
    (void)state;
    setup_t s;
    uint64_t other[] = {8, 9};
    set_up(&s, 8, 8, "2:S0", "2:S1");
    s.target.shape = other;
    REFUSED(s, MISMATCH, "tensor w");
    REFUSED(s, MISMATCH, "8x9");
    s.target.shape = s.shape;
    s.target.ndim = 1;
    s.target.layout = s.from;
    REFUSED(s, MISMATCH, "tensor w");
    s.target.ndim = 2;
    s.target.dtype = FERRY_BF16;
    REFUSED(s, MISMATCH, "bf16");
    REFUSED(s, MISMATCH, "f32");
    s.params.flags = FERRY_PLAN_ALLOW_CAST;
    ferry_plan_destroy(plan_of(&s));
    s.target.name = "v";
    REFUSED(s, MISMATCH, "v");
    s.target.name = "w";
    s.params.ntargets = 0;
    ferry_plan_t *plan = plan_of(&s);
    assert_int_equal(ferry_plan_ntensors(plan), 0);
    ferry_plan_destroy(plan);
    s.params.flags = FERRY_PLAN_STRICT;
    REFUSED(s, MISMATCH, "w");
    s.params.nsources = 0;
    s.params.ntargets = 1;
    REFUSED(s, MISMATCH, "w");
    tear_down(&s);
}

static void two_of_a_name_are_refused(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 8, 8, "2:S0", "2:S1");
    ferry_tensor_t sources[] = {s.source, s.source};
    ferry_tensor_t targets[] = {s.target, s.target};
    s.params.sources = sources;
    s.params.nsources = 2;
    REFUSED(s, INVALID, "w");
    s.params.nsources = 1;
    s.params.targets = targets;
    s.params.ntargets = 2;
    REFUSED(s, INVALID, "w");
    tear_down(&s);
}

static void targets_cannot_be_partial(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 8, 8, "2:S0", "2x2:R,P(sum)");
    REFUSED(s, UNSUPPORTED, "w");
    REFUSED(s, UNSUPPORTED, "Partial");
    tear_down(&s);
}

static void layouts_must_fit(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *part;
    } all[] = {{"2:S2", "2:S1", "dim 2"},
               {"2:S1", "2:S2", "dim 2"},
               {"2:S0/sizes(3,3)", "1:R", "sizes"},
               {"1:R", "2:S0/ragged(3,3)", "ragged"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        setup_t s;
        set_up(&s, 8, 8, all[i].from, all[i].to);
        REFUSED(s, INVALID, all[i].part);
        REFUSED(s, INVALID, "tensor w");
        tear_down(&s);
    }
}

static void too_much_is_refused(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, UINT64_C(1) << 32, UINT64_C(1) << 32, "2:S0", "2:S1");
    REFUSED(s, OVERFLOW, "tensor w");
    s.shape[0] = UINT64_C(1) << 31;
    s.shape[1] = UINT64_C(1) << 31; /* 2^62 elements, 2^64 bytes */
    REFUSED(s, OVERFLOW, "tensor w");
    tear_down(&s);
    set_up(&s, 1 << 22, 1, "2:S0/cyclic(1)", "1:R"); /* four million pieces for one target */
    REFUSED(s, OVERFLOW, "tensor w");
    tear_down(&s);
    set_up(&s, 1, 1, "2:R", "2:R");
    s.source.ndim = s.target.ndim = FERRY_MAX_DIMS + 1;
    REFUSED(s, INVALID, "17");
    s.source.ndim = s.target.ndim = FERRY_MAX_DIMS;
    for (size_t d = 0; d < FERRY_MAX_DIMS; d++) {
        s.shape[d] = 2;
    }
    ferry_plan_destroy(plan_of(&s));
    tear_down(&s);
}

static void the_largest_number_of_pieces_fits(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 1 << FERRY_TASK_PIECE_BITS, 1, "2:S0/cyclic(1)", "1:R@9");
    ferry_plan_t *plan = plan_of(&s);
    assert_int_equal(ferry_plan_ntransfers(plan), 1 << FERRY_TASK_PIECE_BITS);
    ferry_plan_destroy(plan);
    s.shape[0]++;
    REFUSED(s, OVERFLOW, "tensor w");
    /* Whoever plans its part hears the same, also a source with few of the pieces. */
    s.params.flags = FERRY_PLAN_PART;
    for (s.params.rank = 0; s.params.rank < 2; s.params.rank++) {
        REFUSED(s, OVERFLOW, "tensor w");
    }
    tear_down(&s);
}

static void bad_parameters_are_refused(void **state) {
    (void)state;
    setup_t s;
    ferry_plan_t *plan = NULL;
    set_up(&s, 8, 8, "2:S0", "2:S1");
    setup_t good = s;
    assert_fails(ferry_plan_create(NULL, &plan, &err), INVALID, "");
#define REFUSED_WITH(change, part)                                                                 \
    do {                                                                                           \
        change;                                                                                    \
        REFUSED(s, INVALID, part);                                                                 \
        s.source = good.source;                                                                    \
        s.target = good.target;                                                                    \
        s.params = good.params;                                                                    \
        s.params.sources = &s.source;                                                              \
        s.params.targets = &s.target;                                                              \
    } while (0)
    REFUSED_WITH(s.params.size = 0, "size");
    REFUSED_WITH(s.params.size++, "size");
    REFUSED_WITH(s.params.flags = 1u << 31, "flags");
    REFUSED_WITH(s.params.sources = NULL, "sources");
    REFUSED_WITH(s.params.targets = NULL, "targets");
    REFUSED_WITH(s.params.nhosts = 3, "hosts");
    REFUSED_WITH(s.source.name = NULL, "name");
    REFUSED_WITH(s.target.name = NULL, "name");
    REFUSED_WITH(s.source.layout = NULL, "w");
    REFUSED_WITH(s.target.layout = NULL, "w");
    REFUSED_WITH(s.source.shape = NULL, "w");
    REFUSED_WITH(s.target.shape = NULL, "w");
    REFUSED_WITH(s.source.dtype = FERRY_DTYPE_NONE, "w");
    REFUSED_WITH(s.target.dtype = (ferry_dtype_t)77, "w");
    assert_int_equal(ferry_plan_create(NULL, &plan, NULL), FERRY_INVALID);
    assert_null(plan);
    ferry_plan_destroy(NULL);
    ferry_plan_destroy(plan_of(&s));
    tear_down(&s);
}

static void nulls_are_refused(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 8, 8, "2:S0", "2:S1");
    ferry_plan_t *plan = plan_of(&s);
    ferry_plan_stats_t stats = {.size = sizeof stats};
    ferry_port_t port;
    ferry_reduce_t reduce;
    uint32_t rank = 5;
    uint8_t *bytes = NULL;
    size_t length = 5;
    assert_fails(ferry_plan_create(&s.params, NULL, &err), INVALID, "");
    assert_fails(ferry_plan_check(NULL, &err), INVALID, "");
    assert_fails(ferry_plan_stats(NULL, &stats, &err), INVALID, "");
    assert_fails(ferry_plan_stats(plan, NULL, &err), INVALID, "");
    assert_fails(ferry_plan_ports(NULL, &port, 1, &length, &err), INVALID, "");
    assert_fails(ferry_plan_ports(plan, NULL, 1, &length, &err), INVALID, "");
    assert_fails(ferry_plan_ports(plan, &port, 1, NULL, &err), INVALID, "");
    assert_fails(ferry_plan_reduce(NULL, 0, 1, &reduce, &rank, 1, &err), INVALID, "");
    assert_fails(ferry_plan_reduce(plan, 0, 1, NULL, &rank, 1, &err), INVALID, "");
    assert_fails(ferry_plan_reduce(plan, 0, 1, &reduce, NULL, 1, &err), INVALID, "");
    assert_fails(ferry_plan_encode(NULL, &bytes, &length, &err), INVALID, "");
    assert_fails(ferry_plan_encode(plan, NULL, &length, &err), INVALID, "");
    assert_fails(ferry_plan_encode(plan, &bytes, NULL, &err), INVALID, "");
    assert_fails(ferry_plan_print(plan, NULL, NULL, &err), INVALID, "");
    assert_null(bytes);
    assert_int_equal(length, 5);
    assert_int_equal(rank, 5);
    ferry_free(NULL);
    ferry_plan_destroy(plan);
    tear_down(&s);
}

static void stats_of_another_size_are_refused(void **state) {
    (void)state;
    ferry_plan_t *plan = plan_text(8, 8, "2:S0", "2:S1");
    ferry_plan_stats_t stats = {.size = 0, .transfers = 77};
    assert_fails(ferry_plan_stats(plan, &stats, &err), INVALID, "size");
    assert_int_equal(stats.transfers, 77);
    ferry_plan_destroy(plan);
}

/* ---- parts ---- */

static void a_part_says_less(void **state) {
    (void)state;
    setup_t s;
    set_up(&s, 8, 1, "2x2:P(sum),S0", "2:S0@6-7");
    ferry_plan_t *whole = plan_of(&s);
    s.params.flags |= FERRY_PLAN_PART;
    uint64_t seen = 0;
    for (uint32_t r = 0; r < 9; r++) {
        s.params.rank = r;
        ferry_plan_t *part = plan_of(&s);
        assert_int_equal(ferry_plan_rank(part), r);
        assert_int_equal(ferry_plan_flags(part), 0);
        assert_int_equal(ferry_plan_hash(part), ferry_plan_hash(whole));
        /* Ranks 0-3 sum or send, 6 and 7 receive, each exactly one region; 4, 5, 8 do nothing. */
        assert_int_equal(ferry_plan_ntransfers(part), r < 4 || r == 6 || r == 7);
        seen += ferry_plan_ntransfers(part);
        ferry_plan_stats_t stats = {.size = sizeof stats};
        assert_ok(ferry_plan_stats(part, &stats, &err));
        assert_int_equal(stats.lower_bound_bytes, 0);
        ferry_plan_destroy(part);
    }
    assert_int_equal(seen, 6);
    ferry_plan_destroy(whole);
    tear_down(&s);
}

/* ---- the binary form ---- */

static void sign(uint8_t *bytes, size_t length) {
    uint64_t hash = XXH3_64bits(bytes, length - 8);
    for (size_t i = 0; i < 8; i++) {
        bytes[length - 8 + i] = (uint8_t)(hash >> (8 * i));
    }
}

static void damaged_bytes_are_refused(void **state) {
    (void)state;
    ferry_plan_t *plan = plan_text(8, 8, "2:S0/sizes(4,4)", "2x2:S1,R@2-5");
    uint8_t *bytes = NULL;
    size_t length = 0;
    ferry_plan_t *back = NULL;
    assert_ok(ferry_plan_encode(plan, &bytes, &length, &err));
    for (size_t n = 0; n < length; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        uint8_t *cut = malloc(n + (n == 0));
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        assert_int_equal(ferry_plan_decode(cut, n, &back, &err), FERRY_CORRUPT);
        assert_true(err.text[0] != '\0');
        free(cut);
    }
    for (size_t i = 0; i < length * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        ferry_status_t status = ferry_plan_decode(bytes, length, &back, NULL);
        assert_true(status == FERRY_CORRUPT || status == FERRY_VERSION);
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    assert_null(back);
    ferry_free(bytes);
    ferry_plan_destroy(plan);
}

/* A change that is signed anew is found by what it says, or it is harmless. */
static void altered_bytes_are_refused_or_right(void **state) {
    (void)state;
    ferry_plan_t *plan = plan_text(8, 8, "2:S0/sizes(4,4)", "2x2:S1,R@2-5");
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool other_version = false;
    assert_ok(ferry_plan_encode(plan, &bytes, &length, &err));
    for (size_t i = 0; i < (length - 8) * 8; i++) {
        ferry_plan_t *back = NULL;
        uint8_t *again = NULL;
        size_t length_again = 0;
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        sign(bytes, length);
        ferry_status_t status = ferry_plan_decode(bytes, length, &back, NULL);
        other_version = other_version || status == FERRY_VERSION;
        if (status == FERRY_OK) {
            assert_ok(ferry_plan_check(back, &err));
            assert_true(orc_judge(back));
            assert_ok(ferry_plan_encode(back, &again, &length_again, &err));
            assert_int_equal(length, length_again);
            assert_memory_equal(bytes, again, length);
            ferry_free(again);
            ferry_plan_destroy(back);
        } else {
            assert_null(back);
        }
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    assert_true(other_version);
    ferry_free(bytes);
    ferry_plan_destroy(plan);
}

/* ---- the readable form ---- */

typedef struct text {
    char bytes[8192];
    size_t length;
} text_t;

static ferry_status_t keep(void *context, const char *text, size_t length) {
    text_t *kept = context;
    assert_true(kept->length + length < sizeof kept->bytes);
    memcpy(kept->bytes + kept->length, text, length);
    kept->length += length;
    return FERRY_OK;
}

static ferry_status_t refuse(void *context, const char *text, size_t length) {
    (void)context;
    (void)text;
    (void)length;
    return FERRY_IO;
}

static void the_readable_form_tells_all(void **state) {
    (void)state;
    ferry_plan_t *plan = plan_text(64, 128, "2:S0", "2:S1@4-5");
    text_t text = {"", 0};
    assert_ok(ferry_plan_print(plan, keep, &text, &err));
    text.bytes[text.length] = '\0';
    static const char *const parts[] = {"w", "f32", "64", "128", "2:S0", "2:S1@4-5"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(text.bytes, parts[i]) == NULL) {
            fail_msg("no \"%s\" in:\n%s", parts[i], text.bytes);
        }
    }
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)ferry_plan_hash(plan));
    assert_non_null(strstr(text.bytes, hash));
    assert_int_equal(text.bytes[text.length - 1], '\n');
    assert_int_equal(ferry_plan_print(plan, refuse, NULL, NULL), FERRY_IO);
    ferry_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_are_as_worked_out_by_hand),
        cmocka_unit_test(scalars_travel),
        cmocka_unit_test(ordinals_follow_names),
        cmocka_unit_test(nearer_holders_come_first),
        cmocka_unit_test(figures_are_as_worked_out_by_hand),
        cmocka_unit_test(ports_are_listed),
        cmocka_unit_test(groups_are_grids),
        cmocka_unit_test(all_inputs_are_in_the_hash),
        cmocka_unit_test(pair_hashes_tell_transfers_apart),
        cmocka_unit_test(unlike_tensors_are_refused),
        cmocka_unit_test(two_of_a_name_are_refused),
        cmocka_unit_test(targets_cannot_be_partial),
        cmocka_unit_test(layouts_must_fit),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(the_largest_number_of_pieces_fits),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(nulls_are_refused),
        cmocka_unit_test(stats_of_another_size_are_refused),
        cmocka_unit_test(a_part_says_less),
        cmocka_unit_test(damaged_bytes_are_refused),
        cmocka_unit_test(altered_bytes_are_refused_or_right),
        cmocka_unit_test(the_readable_form_tells_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
