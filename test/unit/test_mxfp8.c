/* test_mxfp8.c - the MXFP8 transform, its callbacks driven by hand (mxfp8_rig.h).
 *
 * FERRY_SEED=n replays one random case. */
#include "mxfp8_rig.h"

enum { CASES = 200 };

/* ---- what stands in for the session's memory ---- */

ferry_status_t __wrap_ferry_staging_take(ferry_staging_t *staging, uint64_t bytes, void **memory_p,
                                         ferry_error_t *err);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);

void *__wrap_malloc(size_t size) {
    allocations += allocation_counts;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    allocations += allocation_counts;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    allocations += allocation_counts;
    return __real_realloc(memory, size);
}

ferry_status_t __wrap_ferry_staging_take(ferry_staging_t *staging, uint64_t bytes, void **memory_p,
                                         ferry_error_t *err) {
    (void)staging;
    assert_true(bytes > 0);
    assert_true(staging_calls < 8);
    if (bytes > staging_budget - staging_taken) {
        if (err != NULL) {
            ferry_error_clear(err);
            err->status = FERRY_NOMEM;
            (void)snprintf(err->text, sizeof err->text, "%llu bytes", (unsigned long long)bytes);
        }
        return FERRY_NOMEM;
    }
    staging_pieces[staging_calls] = calloc(1, bytes);
    assert_non_null(staging_pieces[staging_calls]);
    *memory_p = staging_pieces[staging_calls++];
    staging_taken += bytes;
    return FERRY_OK;
}

/* ---- the reference's cases ---- */

static bool is_untouched(const tensor_t *tensor) {
    for (size_t i = 0; i < tensor->bytes; i++) {
        if (tensor->memory[i] != UNTOUCHED) {
            return false;
        }
    }
    return true;
}

static void test_two_halves(void **state) {
    (void)state;
    open_plain(FERRY_MX_SWIZZLED, FERRY_MX_ON_RECEIVER, 64, 128);
    add_box(0, 32, 0, 128);
    add_box(32, 32, 0, 128);
    prepare_all();
    assert_int_equal(staging_calls, 1);
    assert_int_equal(staging_taken, 64 * 128 * 2);
    for (int run = 0; run < 2; run++) {
        memset(rig.data[0].memory, UNTOUCHED, rig.data[0].bytes);
        memset(rig.scales[0].memory, UNTOUCHED, rig.scales[0].bytes);
        assert_ok(begin(&err));
        move(0, 0);
        assert_ok(finalize(0, 0, &err));
        assert_true(is_untouched(&rig.data[0]) && is_untouched(&rig.scales[0]));
        move(1, 0);
        assert_ok(finalize(1, 0, &err));
        assert_true(is_right(0));
    }
    assert_fails(finalize(1, 0, &err), INVALID, "more elements");
    rig_close();
}

static void test_four_row_slices(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        open_plain(way / 2 == 0 ? FERRY_MX_ROWS : FERRY_MX_SWIZZLED,
                   way % 2 == 0 ? FERRY_MX_ON_RECEIVER : FERRY_MX_ON_SENDER, 128, 256);
        for (uint64_t i = 0; i < 4; i++) {
            add_box(i * 32, 32, 0, 256);
        }
        prepare_all();
        run_all(0);
        assert_true(is_right(0));
        rig_close();
    }
}

static void test_addresses_stay(void **state) {
    (void)state;
    uint64_t values = 99;
    for (int way = 0; way < 4; way++) {
        open_plain(way / 2 == 0 ? FERRY_MX_ROWS : FERRY_MX_SWIZZLED,
                   way % 2 == 0 ? FERRY_MX_ON_RECEIVER : FERRY_MX_ON_SENDER, 96, 96);
        add_box(0, 96, 0, 32);
        add_box(0, 96, 32, 64);
        prepare_all();
        unsigned calls = staging_calls;
        allocations = 0;
        for (int run = 0; run < 3; run++) {
            fill(&values, &rig.source);
            run_all(0); /* into the views of the first prepare */
            assert_true(is_right(0));
        }
        assert_int_equal(staging_calls, calls);
        assert_int_equal(allocations, 0);
        rig_close();
    }
}

/* A run that breaks off leaves nothing that the next one would count. */
static void test_run_after_a_broken_one(void **state) {
    (void)state;
    for (int convert = 0; convert < 2; convert++) {
        open_plain(FERRY_MX_SWIZZLED, (ferry_mx_convert_t)convert, 40, 96);
        add_box(0, 16, 0, 96);
        add_box(16, 24, 0, 96);
        prepare_all();
        assert_ok(begin(&err));
        move(0, 0);
        assert_ok(finalize(0, 0, &err));
        run_all(0);
        assert_true(is_right(0));
        rig_close();
    }
}

/* ---- where payloads lie ---- */

static void test_payloads(void **state) {
    (void)state;
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    size_t count = 0;
    box_t box = {{8, 32}, {4, 64}};

    open_plain(FERRY_MX_ROWS, FERRY_MX_ON_RECEIVER, 16, 128);
    rig.target_dtype = FERRY_F32;
    assert_ok(reserve(1, &err));
    assert_ok(prepare_recv(&box, 0, payloads, &count, &err));
    assert_null(payloads[0].data);
    assert_int_equal(payloads[0].dtype, FERRY_F32);
    assert_ok(prepare_send(&box, payloads, &count, &err));
    assert_int_equal(count, 1);
    assert_ptr_equal(payloads[0].data, rig.source.memory + (8 * 128 + 32) * 2);
    assert_int_equal(payloads[0].dtype, FERRY_BF16);
    rig_close();

    open_plain(FERRY_MX_SWIZZLED, FERRY_MX_ON_RECEIVER, 16, 128);
    rig.target_dtype = FERRY_F32;
    assert_ok(reserve(1, &err));
    assert_ok(prepare_recv(&box, 0, payloads, &count, &err));
    assert_ptr_equal(payloads[0].data, (uint8_t *)staging_pieces[0] + (8 * 128 + 32) * 2);
    assert_int_equal(payloads[0].dtype, FERRY_BF16);
    assert_int_equal(payloads[0].kind, FERRY_MEM_SHARED);
    rig_close();

    for (int layout = 0; layout < 2; layout++) {
        open_plain((ferry_mx_layout_t)layout, FERRY_MX_ON_SENDER, 16, 128);
        assert_ok(reserve(1, &err));
        assert_int_equal(staging_calls, 0);
        assert_ok(prepare_recv(&box, 0, payloads, &count, &err));
        assert_int_equal(count, 2);
        assert_ptr_equal(payloads[0].data, rig.data[0].memory + 8 * 128 + 32);
        assert_ptr_equal(payloads[1].data,
                         layout == FERRY_MX_ROWS ? rig.scales[0].memory + 8 * 4 + 1 : NULL);
        assert_ok(prepare_send(&box, payloads, &count, &err));
        assert_true(payloads[0].data == NULL && payloads[1].data == NULL);
        assert_int_equal(payloads[0].dtype, FERRY_F8E4M3);
        assert_int_equal(payloads[1].dtype, FERRY_E8M0);
        assert_true(payloads[1].shape[0] == 4 && payloads[1].shape[1] == 2);
        rig_close();
    }
}

/* ---- mistakes ---- */

static void test_bad_slices(void **state) {
    (void)state;
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    size_t count = 0;
#define BOX(row, rows, column, columns) (&(box_t){{row, column}, {rows, columns}})
#define RECV(box) prepare_recv(box, 0, payloads, &count, &err)
    for (int way = 0; way < 4; way++) {
        open_plain(way / 2 == 0 ? FERRY_MX_ROWS : FERRY_MX_SWIZZLED,
                   way % 2 == 0 ? FERRY_MX_ON_RECEIVER : FERRY_MX_ON_SENDER, 64, 128);
        assert_fails(RECV(BOX(0, 1, 0, 32)), INVALID, "not reserved");
        assert_ok(reserve(1, &err));
        assert_fails(RECV(BOX(0, 1, 16, 32)), INVALID, "tensor " NAME " [0:1, 16:48]: ");
        assert_fails(RECV(BOX(0, 1, 0, 48)), INVALID, "tensor " NAME " [0:1, 0:48]: ");
        assert_fails(RECV(BOX(60, 5, 0, 32)), INVALID, "tensor " NAME " [60:65, 0:32]: ");
        assert_fails(RECV(BOX(0, 1, 128, 32)), INVALID, "[0:1, 128:160]: ");
        assert_fails(prepare_recv(BOX(0, 1, 0, 32), 1, payloads, &count, &err), INVALID,
                     "not reserved");
        assert_ok(RECV(BOX(0, 32, 0, 128)));
        assert_fails(begin(&err), INVALID,
                     NAME " [32:33, 0:32]: the slices bring 4096 of the 8192");
        assert_ok(RECV(BOX(32, 32, 32, 96)));
        assert_fails(begin(&err), INVALID,
                     NAME " [32:33, 0:32]: the slices bring 7168 of the 8192");
        assert_fails(RECV(BOX(31, 2, 0, 32)), INVALID, NAME " [31:33, 0:32]: a slice overlaps");

        rig_release();
        assert_ok(reserve(1, &err));
        assert_ok(RECV(BOX(5, 1, 64, 32)));
        assert_fails(RECV(BOX(5, 1, 64, 32)), INVALID, NAME " [5:6, 64:96]: a slice overlaps");
        rig_release();
        assert_ok(reserve(1, &err)); /* all forgotten */
        assert_ok(RECV(BOX(0, 64, 0, 128)));
        assert_ok(begin(&err));
        assert_fails(prepare_send(BOX(0, 1, 0, 48), payloads, &count, &err), INVALID,
                     NAME " [0:1, 0:48]: ");
        assert_ok(
            prepare_send(BOX(0, 1, 16, 32), payloads, &count, &err)); /* its own coordinates */
        rig_close();
    }
#undef BOX
#undef RECV
}

static void test_bad_sources(void **state) {
    (void)state;
    const ferry_dtype_t bad[] = {FERRY_F64, FERRY_F8E4M3, FERRY_I32};
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        const uint64_t shape[] = {2, 32};
        box_t box = {{0, 0}, {2, 32}};
        rig.copies = 1;
        rig.source_dtype = bad[i];
        rig.target_dtype = bad[i];
        rig_open(NULL, FERRY_MX_ROWS, FERRY_MX_ON_RECEIVER, 2, shape);
        assert_fails(reserve(1, &err), MISMATCH, ferry_dtype_name(bad[i]));
        assert_fails(prepare_send(&box, payloads, &count, &err), MISMATCH, NAME " [0:2, 0:32]: ");
        rig_close();
    }
}

/* Creates a receiver with this target and reserves it. */
static ferry_status_t try_target(const ferry_mx_target_t *target, uint32_t copies,
                                 ferry_error_t *record) {
    const char *names[] = {NAME, "unknown here"};
    const uint64_t shape[] = {16, 64};
    ferry_mxfp8_t *mxfp8 = NULL;
    assert_int_equal(ferry_mxfp8_create(names, 2, target, 1, FERRY_MX_ON_RECEIVER, &mxfp8, NULL),
                     FERRY_OK);
    const ferry_transform_t *table = ferry_mxfp8_transform(mxfp8);
    ferry_status_t status = table->reserve(mxfp8, NAME, FERRY_BF16, 2, shape, copies, NULL, record);
    if (status == FERRY_OK) {
        assert_fails(table->reserve(mxfp8, NAME, FERRY_BF16, 2, shape, copies, NULL, &err), INVALID,
                     "serves a session already");
        assert_fails(table->reserve(mxfp8, "unknown here", FERRY_BF16, 2, shape, 1, NULL, &err),
                     INVALID, "tensor unknown here: ");
    }
    ferry_mxfp8_destroy(mxfp8);
    give_staging_back();
    return status;
}

static void test_bad_targets(void **state) {
    (void)state;
    uint8_t memory[2][16 * 64];
    uint8_t codes[2][512];
    ferry_mx_target_t good = {.name = NAME, .layout = FERRY_MX_ROWS};
    assert_ok(ferry_view_contiguous(memory[0], FERRY_F8E4M3, 2, (uint64_t[]){16, 64}, &good.data[0],
                                    &err));
    assert_ok(
        ferry_view_contiguous(codes[0], FERRY_E8M0, 2, (uint64_t[]){16, 2}, &good.scales[0], &err));
    assert_ok(try_target(&good, 1, &err));
    assert_fails(try_target(&good, 2, &err), INVALID, "tensor " NAME ": the session flips");
    assert_fails(try_target(&good, 3, &err), INVALID, "3 copies");

    ferry_mx_target_t bad = good;
    bad.data[1] = good.data[0];
    bad.scales[1] = good.scales[0];
    assert_ok(try_target(&bad, 2, &err));
    bad.data[1].data = NULL;
    assert_fails(try_target(&bad, 2, &err), INVALID, "second copy: a view with elements");
    bad = good;
    bad.data[0].dtype = FERRY_F8E5M2;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "MXFP8 data: f8e5m2, expected f8e4m3");
    bad = good;
    bad.data[0].shape[0] = 8;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "MXFP8 data: shape 8x64, expected 16x64");
    bad = good;
    bad.data[0].strides[0] = 0;
    assert_fails(try_target(&bad, 1, &err), INVALID, "one address");
    bad = good;
    bad.data[0].kind = FERRY_MEM_CUDA;
    assert_fails(try_target(&bad, 1, &err), UNSUPPORTED, "cannot address");
    bad = good;
    bad.scales[0].dtype = FERRY_U8;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "MXFP8 scales: u8, expected e8m0");
    bad = good;
    bad.scales[0].shape[1] = 64;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "MXFP8 scales: shape 16x64, expected 16x2");
    bad = good;
    bad.layout = FERRY_MX_SWIZZLED;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "MXFP8 scales: shape 16x2, expected 512");
    bad.scales[0].ndim = 1;
    bad.scales[0].shape[0] = 512;
    bad.scales[0].strides[0] = 2;
    assert_fails(try_target(&bad, 1, &err), MISMATCH, "no gaps");
    bad.scales[0].strides[0] = 1;
    assert_ok(try_target(&bad, 1, &err));
    staging_budget = 16 * 64 * 2 - 1;
    assert_fails(try_target(&bad, 1, &err), NOMEM, "tensor " NAME ": 2048 bytes");
    staging_budget = UINT64_MAX;
}

static void test_bad_shapes(void **state) {
    (void)state;
    uint8_t memory[64];
    ferry_mx_target_t target = {.name = NAME};
    const char *names[] = {NAME};
    ferry_mxfp8_t *mxfp8 = NULL;
    assert_ok(
        ferry_view_contiguous(memory, FERRY_F8E4M3, 1, (uint64_t[]){48}, &target.data[0], &err));
    assert_ok(ferry_mxfp8_create(names, 1, &target, 1, FERRY_MX_ON_SENDER, &mxfp8, &err));
    const ferry_transform_t *table = ferry_mxfp8_transform(mxfp8);
    assert_fails(table->reserve(mxfp8, NAME, FERRY_F32, 1, (uint64_t[]){48}, 1, NULL, &err),
                 INVALID, "last dim");
    assert_fails(table->reserve(mxfp8, NAME, FERRY_F32, 0, NULL, 1, NULL, &err), INVALID,
                 "last dim");
    assert_true(table->should_transform(mxfp8, NAME));
    assert_false(table->should_transform(mxfp8, "layers.0.mlp.w"));
    ferry_mxfp8_destroy(mxfp8);
    ferry_mxfp8_destroy(NULL);
}

static void test_create_refuses(void **state) {
    (void)state;
    ferry_mxfp8_t *mxfp8 = NULL;
    const char *twice[] = {"b", "a", "b"};
    const char *names[] = {"a", "b"};
    const char *hole[] = {"a", NULL};
    ferry_mx_target_t targets[] = {{.name = "b"}, {.name = "a"}, {.name = "b"}};
#define CREATE(n, nn, t, nt, c)                                                                    \
    ferry_mxfp8_create(n, nn, t, nt, (ferry_mx_convert_t)(c), &mxfp8, &err)
    assert_fails(CREATE(twice, 3, NULL, 0, 0), INVALID, "tensor b: it is named twice");
    assert_fails(CREATE(hole, 2, NULL, 0, 0), INVALID, "NULL");
    assert_fails(CREATE(NULL, 2, NULL, 0, 0), INVALID, "NULL");
    assert_fails(CREATE(names, 2, NULL, 1, 0), INVALID, "NULL");
    assert_fails(CREATE(names, 2, targets, 3, 0), INVALID, "tensor b: it has two");
    assert_fails(CREATE(names, 2, targets, 2, 7), INVALID, "7 is no place");
    assert_fails(CREATE(names, 1, targets, 1, 0), INVALID, "tensor b: a quantised target that");
    targets[1].layout = (ferry_mx_layout_t)9;
    assert_fails(CREATE(names, 2, targets, 2, 0), INVALID, "tensor a: 9 is no layout");
    targets[1].name = NULL;
    assert_fails(CREATE(names, 2, targets, 2, 0), INVALID, "NULL");
    assert_null(mxfp8);
    assert_fails(ferry_mxfp8_create(names, 2, NULL, 0, FERRY_MX_ON_SENDER, NULL, &err), INVALID,
                 "NULL");
    assert_ok(CREATE(NULL, 0, NULL, 0, 0));
    assert_false(ferry_mxfp8_transform(mxfp8)->should_transform(mxfp8, "a"));
    ferry_mxfp8_destroy(mxfp8);
#undef CREATE
}

/* ---- many slices, none ---- */

static void test_many_slices(void **state) {
    (void)state;
    enum { ROWS = 200000 }; /* each a slice: pairwise comparison would take minutes */
    open_plain(FERRY_MX_ROWS, FERRY_MX_ON_SENDER, ROWS, 32);
    ferry_view_t payloads[FERRY_MAX_PAYLOADS];
    size_t count = 0;
    assert_ok(reserve(1, &err));
    for (uint64_t i = 0; i < ROWS; i++) {
        box_t box = {{i * 7919 % ROWS, 0}, {1, 32}};
        assert_ok(prepare_recv(&box, 0, payloads, &count, &err));
    }
    assert_ok(begin(&err));
    rig_close();
}

static void test_empty_shard(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        open_plain(way / 2 == 0 ? FERRY_MX_ROWS : FERRY_MX_SWIZZLED,
                   way % 2 == 0 ? FERRY_MX_ON_RECEIVER : FERRY_MX_ON_SENDER, way < 2 ? 0 : 4,
                   way < 2 ? 64 : 0);
        add_box(0, way < 2 ? 0 : 4, 0, 0);
        prepare_all();
        run_all(0);
        assert_true(is_right(0));
        rig_close();
    }
}

/* ---- any slicing ---- */

/* Cuts a box in two somewhere, along any dim, a few times over. */
static void cut_at_random(uint64_t *rng) {
    rig.nboxes = 1;
    for (uint32_t i = 0; i < rig.ndim; i++) {
        rig.boxes[0].lo[i] = 0;
        rig.boxes[0].extent[i] = rig.shape[i];
    }
    uint64_t cuts = oracle_below(rng, 4) == 0 ? 0 : oracle_below(rng, 24);
    for (uint64_t c = 0; c < cuts; c++) {
        box_t *box = &rig.boxes[oracle_below(rng, rig.nboxes)];
        uint32_t dim = (uint32_t)oracle_below(rng, rig.ndim);
        uint64_t unit = dim + 1 == rig.ndim ? FERRY_MX_BLOCK : 1;
        uint64_t at = oracle_below(rng, box->extent[dim] / unit) * unit;
        if (at == 0) {
            continue;
        }
        box_t *rest = &rig.boxes[rig.nboxes++];
        *rest = *box;
        rest->lo[dim] += at;
        rest->extent[dim] -= at;
        box->extent[dim] = at;
    }
}

static void check_case(uint64_t seed) {
    static const ferry_dtype_t dtypes[] = {FERRY_F32, FERRY_F16, FERRY_BF16};
    uint64_t rng = seed * UINT64_C(0x2545f4914f6cdd1d);
    uint64_t shape[MAX_DIMS];
    uint32_t ndim = 1 + (uint32_t)oracle_below(&rng, MAX_DIMS);
    for (uint32_t i = 0; i + 1 < ndim; i++) {
        shape[i] = 1 + oracle_below(&rng, oracle_below(&rng, 6) == 0 ? 150 : 12);
    }
    shape[ndim - 1] = FERRY_MX_BLOCK * (1 + oracle_below(&rng, ndim == 1 ? 40 : 9));
    rig.copies = 1 + (uint32_t)oracle_below(&rng, 2);
    rig.source_dtype = dtypes[oracle_below(&rng, 3)];
    rig.target_dtype = dtypes[oracle_below(&rng, 3)];
    ferry_mx_layout_t layout = (ferry_mx_layout_t)oracle_below(&rng, 2);
    rig_open(&rng, layout, (ferry_mx_convert_t)oracle_below(&rng, 2), ndim, shape);
    uint64_t times = 1 + oracle_below(&rng, 2);
    for (uint64_t t = 0; t < times; t++) {
        cut_at_random(&rng);
        prepare_all();
        for (uint32_t run = 0; run < 2; run++) {
            uint32_t copy = rig.copies == 2 ? run : 0;
            fill(&rng, &rig.source);
            run_all(copy);
            if (!is_right(copy)) {
                fail_msg("FERRY_SEED=%llu: not what quantising the whole gives",
                         (unsigned long long)seed);
            }
        }
        rig_release(); /* and prepare again, cut another way */
    }
    rig_close();
}

static void test_any_slicing(void **state) {
    (void)state;
    const char *only = getenv("FERRY_SEED");
    uint64_t first = only != NULL ? strtoull(only, NULL, 0) : 1;
    allocations = 0;
    for (uint64_t seed = first; seed < first + (only != NULL ? 1 : CASES); seed++) {
        check_case(seed);
    }
    assert_int_equal(allocations, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_halves),     cmocka_unit_test(test_four_row_slices),
        cmocka_unit_test(test_addresses_stay), cmocka_unit_test(test_run_after_a_broken_one),
        cmocka_unit_test(test_payloads),       cmocka_unit_test(test_bad_slices),
        cmocka_unit_test(test_bad_sources),    cmocka_unit_test(test_bad_targets),
        cmocka_unit_test(test_bad_shapes),     cmocka_unit_test(test_create_refuses),
        cmocka_unit_test(test_many_slices),    cmocka_unit_test(test_empty_shard),
        cmocka_unit_test(test_any_slicing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
