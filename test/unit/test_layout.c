/* test_layout.c - dtypes and layouts: text, cuts with figures worked out by hand, and every refusal. */
#include <stdlib.h>

#include "oracle/unit.h"

#define BIG (UINT64_C(1) << 40)

static ferry_layout_t *parse(const char *text) {
    ferry_layout_t *layout = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_parse(text, &layout, &err) != FERRY_OK) {
        fail_msg("'%s': %s", text, err.text);
    }
    return layout;
}

/* ---- dtypes ---- */

static void dtypes_have_names_and_bits(void **state) {
    (void)state;
    static const struct {
        ferry_dtype_t dtype;
        const char *name;
        uint32_t bits;
    } all[] = {{FERRY_F64, "f64", 64},   {FERRY_F32, "f32", 32},      {FERRY_F16, "f16", 16},
               {FERRY_BF16, "bf16", 16}, {FERRY_F8E4M3, "f8e4m3", 8}, {FERRY_F8E5M2, "f8e5m2", 8},
               {FERRY_E8M0, "e8m0", 8},  {FERRY_I64, "i64", 64},      {FERRY_I32, "i32", 32},
               {FERRY_I16, "i16", 16},   {FERRY_I8, "i8", 8},         {FERRY_U64, "u64", 64},
               {FERRY_U32, "u32", 32},   {FERRY_U16, "u16", 16},      {FERRY_U8, "u8", 8},
               {FERRY_BOOL, "bool", 8}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_dtype_t found = FERRY_DTYPE_NONE;
        assert_string_equal(ferry_dtype_name(all[i].dtype), all[i].name);
        assert_int_equal(ferry_dtype_bits(all[i].dtype), all[i].bits);
        assert_ok(ferry_dtype_parse(all[i].name, &found, &err));
        assert_int_equal(found, all[i].dtype);
        uint64_t bytes = 0;
        assert_ok(ferry_dtype_bytes(all[i].dtype, 3, &bytes, &err));
        assert_int_equal(bytes, 3 * all[i].bits / 8);
    }
    assert_string_equal(ferry_dtype_name(FERRY_DTYPE_NONE), "?");
    assert_string_equal(ferry_dtype_name((ferry_dtype_t)999), "?");
    assert_int_equal(ferry_dtype_bits((ferry_dtype_t)999), 0);
}

static void dtypes_refuse(void **state) {
    (void)state;
    ferry_dtype_t dtype = FERRY_I8;
    uint64_t bytes = 7;
    assert_fails(ferry_dtype_parse("f33", &dtype, &err), PARSE, "f33");
    assert_fails(ferry_dtype_parse("", &dtype, &err), PARSE, "");
    assert_fails(ferry_dtype_parse("F32", &dtype, &err), PARSE, "F32");
    assert_int_equal(dtype, FERRY_I8);
    assert_fails(ferry_dtype_bytes(FERRY_DTYPE_NONE, 1, &bytes, &err), INVALID, "dtype");
    assert_fails(ferry_dtype_bytes(FERRY_F64, UINT64_C(1) << 61, &bytes, &err), OVERFLOW, "f64");
    assert_int_equal(bytes, 7);
    assert_ok(ferry_dtype_bytes(FERRY_F64, (UINT64_C(1) << 61) - 1, &bytes, &err));
    assert_int_equal(bytes, UINT64_MAX - 7);
    assert_ok(ferry_dtype_bytes(FERRY_U8, UINT64_MAX, &bytes, &err));
    assert_int_equal(bytes, UINT64_MAX);
}

static void the_narrower_dtype_travels(void **state) {
    (void)state;
    assert_int_equal(ferry_dtype_wire(FERRY_F32, FERRY_BF16), FERRY_BF16);
    assert_int_equal(ferry_dtype_wire(FERRY_BF16, FERRY_F32), FERRY_BF16);
    assert_int_equal(ferry_dtype_wire(FERRY_F16, FERRY_BF16), FERRY_F16);
    assert_int_equal(ferry_dtype_wire(FERRY_BF16, FERRY_F16), FERRY_BF16);
    assert_int_equal(ferry_dtype_wire(FERRY_I64, FERRY_I64), FERRY_I64);
}

static void reduce_ops_have_names(void **state) {
    (void)state;
    assert_string_equal(ferry_reduce_name(FERRY_REDUCE_SUM), "sum");
    assert_string_equal(ferry_reduce_name(FERRY_REDUCE_AVG), "avg");
    assert_string_equal(ferry_reduce_name(FERRY_REDUCE_MAX), "max");
    assert_string_equal(ferry_reduce_name(FERRY_REDUCE_MIN), "min");
    assert_string_equal(ferry_reduce_name(FERRY_REDUCE_PRODUCT), "product");
    assert_string_equal(ferry_reduce_name((ferry_reduce_op_t)17), "?");
}

/* ---- text ---- */

static void text_gives_axes_and_placements(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("dp=2xtp=4x3:R,S1/unit(128),P(max)");
    assert_int_equal(ferry_layout_naxes(layout), 3);
    assert_string_equal(ferry_layout_axis(layout, 0)->name, "dp");
    assert_string_equal(ferry_layout_axis(layout, 1)->name, "tp");
    const char *unnamed = ferry_layout_axis(layout, 2)->name;
    assert_true(unnamed == NULL || *unnamed == '\0');
    assert_int_equal(ferry_layout_axis(layout, 0)->size, 2);
    assert_int_equal(ferry_layout_axis(layout, 1)->size, 4);
    assert_int_equal(ferry_layout_axis(layout, 2)->size, 3);
    assert_int_equal(ferry_layout_placement(layout, 0)->kind, FERRY_REPLICATE);
    assert_int_equal(ferry_layout_placement(layout, 1)->kind, FERRY_SHARD);
    assert_int_equal(ferry_layout_placement(layout, 1)->cut, FERRY_CUT_EVEN);
    assert_int_equal(ferry_layout_placement(layout, 1)->dim, 1);
    assert_int_equal(ferry_layout_placement(layout, 1)->unit, 128);
    assert_int_equal(ferry_layout_placement(layout, 2)->kind, FERRY_PARTIAL);
    assert_int_equal(ferry_layout_placement(layout, 2)->op, FERRY_REDUCE_MAX);
    assert_int_equal(ferry_layout_nranks(layout), 24);
    for (uint32_t i = 0; i < 24; i++) {
        assert_int_equal(ferry_layout_ranks(layout)[i], i);
    }
    ferry_layout_destroy(layout);
}

static void text_gives_cuts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        ferry_cut_t cut;
        uint64_t arg;
        uint64_t unit; /* 0 and 1 are one */
        size_t nsizes;
        size_t nlengths;
    } all[] = {
        {"3:S0", FERRY_CUT_EVEN, 0, 1, 0, 0},
        {"3:S0/unit(16)", FERRY_CUT_EVEN, 0, 16, 0, 0},
        {"3:S0/stride(2)", FERRY_CUT_STRIDE, 2, 1, 0, 0},
        {"3:S0/stride(2)/unit(4)", FERRY_CUT_STRIDE, 2, 4, 0, 0},
        {"3:S0/unit(4)/stride(2)", FERRY_CUT_STRIDE, 2, 4, 0, 0},
        {"3:S0/cyclic(64)", FERRY_CUT_CYCLIC, 64, 1, 0, 0},
        {"3:S0/cyclic(64)/sizes(1,2)", FERRY_CUT_CYCLIC, 64, 1, 2, 0},
        {"3:S0/sizes(32,16)", FERRY_CUT_EVEN, 0, 1, 2, 0},
        {"3:S0/sizes(32,16,1)/unit(8)", FERRY_CUT_EVEN, 0, 8, 3, 0},
        {"3:S0/stride(5)/sizes(3)/unit(8)", FERRY_CUT_STRIDE, 5, 8, 1, 0},
        {"3:S0/ragged(10,0,7)", FERRY_CUT_RAGGED, 0, 1, 0, 3},
        {"3:SS(0,2)", FERRY_CUT_STRIDED, 2, 1, 0, 0},
        {"3:SS(0,2)/unit(8)", FERRY_CUT_STRIDED, 2, 8, 0, 0},
        {"3:SS(0,2)/sizes(8,4)", FERRY_CUT_STRIDED, 2, 1, 2, 0},
        {" 3 : SS ( 0 , 2 ) / sizes ( 8 , 4 ) ", FERRY_CUT_STRIDED, 2, 1, 2, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_layout_t *layout = parse(all[i].text);
        const ferry_placement_t *placement = ferry_layout_placement(layout, 0);
        assert_int_equal(placement->kind, FERRY_SHARD);
        assert_int_equal(placement->dim, 0);
        assert_int_equal(placement->cut, all[i].cut);
        if (all[i].arg != 0) {
            assert_int_equal(placement->arg, all[i].arg);
        }
        assert_int_equal(placement->unit ? placement->unit : 1, all[i].unit);
        assert_int_equal(placement->nsizes, all[i].nsizes);
        assert_int_equal(placement->nlengths, all[i].nlengths);
        ferry_layout_destroy(layout);
    }
    ferry_layout_t *layout = parse("3:S0/ragged(10,0,7)");
    const uint64_t lengths[] = {10, 0, 7};
    assert_memory_equal(ferry_layout_placement(layout, 0)->lengths, lengths, sizeof lengths);
    ferry_layout_destroy(layout);
}

static void text_gives_ranks(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t ranks[4];
    } all[] = {
        {"4:R", {0, 1, 2, 3}},
        {"4:S1@4-7", {4, 5, 6, 7}},
        {"4:S1@0,2,5-6", {0, 2, 5, 6}},
        {"2x2:R,S0@9,3,1,1048575", {9, 3, 1, 1048575}},
        {" 2 x 2 : R , S0 @ 3 - 4 , 8-9 ", {3, 4, 8, 9}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_layout_t *layout = parse(all[i].text);
        assert_int_equal(ferry_layout_nranks(layout), 4);
        for (uint32_t r = 0; r < 4; r++) {
            uint32_t index = 99;
            assert_int_equal(ferry_layout_ranks(layout)[r], all[i].ranks[r]);
            assert_true(ferry_layout_find(layout, all[i].ranks[r], &index));
            assert_int_equal(index, r);
        }
        assert_false(ferry_layout_find(layout, 77, NULL));
        ferry_layout_destroy(layout);
    }
}

static void text_comes_back(void **state) {
    (void)state;
    static const char *const texts[] = {
        "4:R",
        "2x2:R,S0",
        "dp=2xtp=4:R,S0/unit(128)",
        "4:P(avg)",
        "1:S15",
        "3:S0/ragged(1,0,2)",
        "2x1:SS(1,3)/unit(4),P(product)@7,3",
        "5:R@0-2,9-10",
        "x=2xmix=2:S0/sizes(0,4),S0/stride(3)/sizes(1,1)",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ferry_layout_t *layout = parse(texts[i]);
        char text[128];
        size_t length = ferry_layout_format(layout, text, sizeof text);
        assert_int_equal(length, strlen(text));
        ferry_layout_t *again = parse(text);
        assert_true(ferry_layout_equal(layout, again));
        /* A short buffer gets the beginning, terminated, and the same answer. */
        char small[4] = "???";
        assert_int_equal(ferry_layout_format(layout, small, sizeof small), length);
        assert_int_equal(strlen(small), length < 3 ? length : 3);
        assert_memory_equal(small, text, strlen(small));
        assert_int_equal(ferry_layout_format(layout, NULL, 0), length);
        ferry_layout_destroy(again);
        ferry_layout_destroy(layout);
    }
}

static void layouts_differ(void **state) {
    (void)state;
    static const char *const texts[] = {
        "4:R",
        "2x2:R,R",
        "4:S0",
        "4:S1",
        "4:R@1-4",
        "4:R@3,2,1,0",
        "tp=4:R",
        "dp=4:R",
        "4:P(sum)",
        "4:P(max)",
        "4:S0/unit(2)",
        "4:S0/stride(2)",
        "4:S0/stride(3)",
        "4:SS(0,2)",
        "4:S0/cyclic(2)",
        "4:S0/sizes(1)",
        "4:S0/sizes(2)",
        "4:S0/sizes(1,1)",
        "4:S0/ragged(1,1,1,1)",
        "4:S0/ragged(1,1,2,0)",
        "5:R",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ferry_layout_t *a = parse(texts[i]);
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            ferry_layout_t *b = parse(texts[j]);
            if (ferry_layout_equal(a, b) != (i == j)) {
                fail_msg("'%s' and '%s'", texts[i], texts[j]);
            }
            ferry_layout_destroy(b);
        }
        ferry_layout_destroy(a);
    }
}

static void bad_text_is_refused_with_its_column(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *place;
    } all[] = {
        {"", "column 1"},
        {"4", "column 2"},
        {"4:", "column 3"},
        {":R", "column 1"},
        {"2x2:R,Q0", "column 7"},
        {"2x2:R,", "column 7"},
        {"2xx2:R,R", "column"},
        {"4:S", "column 4"},
        {"4:S0/", "column 6"},
        {"4:S0/foo(2)", "column 6"},
        {"4:S0/stride", "column 12"},
        {"4:S0/stride(", "column 13"},
        {"4:S0/stride()", "column 13"},
        {"4:S0/stride(2", "column 14"},
        {"4:S0/sizes(1,)", "column 14"},
        {"4:P", "column 4"},
        {"4:P(mean)", "column 5"},
        {"4:SS(0)", "column 7"},
        {"4:SS(0,2", "column 9"},
        {"4:R@", "column 5"},
        {"4:R@0-", "column 7"},
        {"4:R@0-3,", "column 9"},
        {"4:R junk", "column 5"},
        {"4:R@0-3x", "column 8"},
        {"2:S0/unit(0)", "column 12"},
        {"tp=:R", "column 4"},
        {"=4:R", "column 1"},
        {"-4:R", "column 1"},
        {"4:S0/stride(99999999999999999999)", "column 13"},
        {"99999999999:R", "column 1"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_layout_t *layout = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = ferry_layout_parse(all[i].text, &layout, &err);
        bool overflow = status == FERRY_OVERFLOW && strstr(all[i].text, "99999999999") != NULL;
        if ((status != FERRY_PARSE && !overflow) || layout != NULL ||
            strstr(err.text, all[i].place) == NULL) {
            fail_msg("'%s' (%s): %s: %s", all[i].text, all[i].place, ferry_status_name(status),
                     err.text);
        }
    }
}

static void text_that_makes_no_layout_is_refused(void **state) {
    (void)state;
    ferry_layout_t *layout = NULL;
#define REFUSED(text, name, part)                                                                  \
    assert_fails(ferry_layout_parse(text, &layout, &err), name, part);                             \
    assert_null(layout)
    REFUSED("4:R@0,1,1,2", INVALID, "rank 1");
    REFUSED("4:R@0-2", INVALID, "4 ranks");
    REFUSED("4:R@0-4", INVALID, "4 ranks");
    REFUSED("2x2:R@0-3", INVALID, "2 mesh axes but 1");
    REFUSED("2:R,R", INVALID, "column 5");
    REFUSED("0:R", INVALID, "axis 0");
    REFUSED("4:R@7-4", INVALID, "7-4");
    REFUSED("2:S0/stride(0)", INVALID, "stride");
    REFUSED("2:S0/cyclic(0)", INVALID, "cyclic");
    REFUSED("2:SS(0,0)", INVALID, "axis 0");
    REFUSED("2:S0/stride(2)/stride(2)", PARSE, "column");
    REFUSED("2:S0/stride(2)/cyclic(2)", PARSE, "column");
    REFUSED("2:S0/ragged(1,2,3)", INVALID, "ragged");
    REFUSED("2:S0/ragged(1,2)/sizes(3)", INVALID, "ragged");
    REFUSED("2:S0/ragged(1,2)/unit(3)", INVALID, "unit");
    REFUSED("2:S0/cyclic(2)/unit(3)", INVALID, "unit");
    REFUSED("2:S16", INVALID, "dim 16");
    REFUSED("1:R@1048576", OVERFLOW, "1048575");
    REFUSED("a_name_of_sixtee=2:R", INVALID, "axis 0");
    REFUSED("tp=2xtp=2:R,R", INVALID, "named tp");
    REFUSED("1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1:R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R,R", INVALID, "16");
    REFUSED("1048577:R", OVERFLOW, "1048577");
    REFUSED("65536x65536x65536:R,R,R", OVERFLOW, "");
#undef REFUSED
    assert_int_equal(ferry_layout_parse("4:", &layout, NULL), FERRY_PARSE);
}

/* ---- creation ---- */

static void creation_copies_everything(void **state) {
    (void)state;
    char name[] = "tp";
    uint64_t sizes[] = {4, 2};
    uint32_t ranks[] = {5, 3};
    ferry_axis_t axes[] = {{name, 2}};
    ferry_placement_t placements[] = {{.kind = FERRY_SHARD, .sizes = sizes, .nsizes = 2}};
    ferry_layout_params_t params = FERRY_LAYOUT_PARAMS_INIT;
    params.naxes = 1;
    params.axes = axes;
    params.placements = placements;
    params.ranks = ranks;
    ferry_layout_t *layout = NULL;
    assert_ok(ferry_layout_create(&params, &layout, &err));
    memset(name, 'z', 2);
    memset(sizes, 0, sizeof sizes);
    memset(ranks, 0, sizeof ranks);
    memset(axes, 0, sizeof axes);
    memset(placements, 0, sizeof placements);
    ferry_layout_t *same = parse("tp=2:S0/sizes(4,2)@5,3");
    assert_true(ferry_layout_equal(layout, same));
    ferry_layout_destroy(layout);
    ferry_layout_destroy(same);
    ferry_layout_destroy(NULL);
}

static ferry_status_t create(const ferry_axis_t *axis, const ferry_placement_t *placement,
                             const uint32_t *ranks, ferry_error_t *err) {
    ferry_layout_params_t params = FERRY_LAYOUT_PARAMS_INIT;
    params.naxes = 1;
    params.axes = axis;
    params.placements = placement;
    params.ranks = ranks;
    ferry_layout_t *layout = NULL;
    ferry_status_t status = ferry_layout_create(&params, &layout, err);
    assert_true((status == FERRY_OK) == (layout != NULL));
    ferry_layout_destroy(layout);
    return status;
}

static void bad_parameters_are_refused(void **state) {
    (void)state;
    ferry_axis_t axis = {NULL, 2};
    ferry_axis_t none = {NULL, 0};
    ferry_axis_t odd = {"a=b", 2};
    uint32_t twice[] = {3, 3};
    uint32_t large[] = {3, FERRY_MAX_RANK + 1};
    uint64_t two[] = {1, 2};
    uint64_t huge[] = {UINT64_MAX, 2};
    ferry_placement_t r = {.kind = FERRY_REPLICATE};
#define REFUSED(axis_, name, part, ...)                                                            \
    do {                                                                                           \
        ferry_placement_t p_ = __VA_ARGS__;                                                        \
        assert_fails(create(&(axis_), &p_, NULL, &err), name, part);                               \
    } while (0)
    REFUSED(none, INVALID, "axis 0", {.kind = FERRY_REPLICATE});
    REFUSED(odd, INVALID, "axis 0", {.kind = FERRY_REPLICATE});
    REFUSED(axis, INVALID, "axis 0", {.kind = (ferry_placement_kind_t)9});
    REFUSED(axis, INVALID, "axis 0", {.kind = FERRY_PARTIAL, .op = (ferry_reduce_op_t)9});
    REFUSED(axis, INVALID, "axis 0", {.kind = FERRY_SHARD, .cut = (ferry_cut_t)9});
    REFUSED(axis, INVALID, "stride", {.kind = FERRY_SHARD, .cut = FERRY_CUT_STRIDE});
    REFUSED(axis, INVALID, "cyclic", {.kind = FERRY_SHARD, .cut = FERRY_CUT_CYCLIC});
    REFUSED(axis, INVALID, "axis 0", {.kind = FERRY_SHARD, .cut = FERRY_CUT_STRIDED});
    REFUSED(axis, INVALID, "ragged", {.kind = FERRY_SHARD, .cut = FERRY_CUT_RAGGED});
    REFUSED(axis, INVALID, "ragged",
            {.kind = FERRY_SHARD, .cut = FERRY_CUT_RAGGED, .lengths = two, .nlengths = 1});
    REFUSED(axis, INVALID, "axis 0",
            {.kind = FERRY_SHARD, .cut = FERRY_CUT_RAGGED, .lengths = NULL, .nlengths = 2});
    REFUSED(axis, OVERFLOW, "ragged",
            {.kind = FERRY_SHARD, .cut = FERRY_CUT_RAGGED, .lengths = huge, .nlengths = 2});
    REFUSED(axis, OVERFLOW, "sizes", {.kind = FERRY_SHARD, .sizes = huge, .nsizes = 2});
    REFUSED(axis, INVALID, "axis 0", {.kind = FERRY_SHARD, .sizes = NULL, .nsizes = 2});
    REFUSED(axis, INVALID, "unit",
            {.kind = FERRY_SHARD, .cut = FERRY_CUT_CYCLIC, .arg = 2, .unit = 3});
    REFUSED(axis, INVALID, "axis 0", {.kind = FERRY_SHARD, .dim = FERRY_MAX_DIMS});
#undef REFUSED
    assert_fails(create(&axis, &r, twice, &err), INVALID, "rank 3");
    assert_fails(create(&axis, &r, large, &err), OVERFLOW, "1048576");
    assert_fails(create(NULL, &r, NULL, &err), INVALID, "axes");
    assert_fails(create(&axis, NULL, NULL, &err), INVALID, "placement");
    assert_int_equal(create(&none, &r, NULL, NULL), FERRY_INVALID);
}

static void bad_parameter_structs_are_refused(void **state) {
    (void)state;
    ferry_axis_t axes[FERRY_MAX_AXES + 1];
    ferry_placement_t placements[FERRY_MAX_AXES + 1];
    memset(placements, 0, sizeof placements);
    for (size_t a = 0; a <= FERRY_MAX_AXES; a++) {
        axes[a] = (ferry_axis_t){NULL, 1};
    }
    ferry_layout_params_t params = FERRY_LAYOUT_PARAMS_INIT;
    params.axes = axes;
    params.placements = placements;
    params.naxes = 1;
    ferry_layout_t *layout = NULL;
    assert_fails(ferry_layout_create(NULL, &layout, &err), INVALID, "");
    params.size = 0;
    assert_fails(ferry_layout_create(&params, &layout, &err), INVALID, "size");
    params.size = sizeof params + 8;
    assert_fails(ferry_layout_create(&params, &layout, &err), INVALID, "size");
    params.size = sizeof params;
    params.naxes = FERRY_MAX_AXES + 1;
    assert_fails(ferry_layout_create(&params, &layout, &err), INVALID, "17 axes");
    params.naxes = 0;
    assert_fails(ferry_layout_create(&params, &layout, &err), INVALID, "0 axes");
    params.naxes = FERRY_MAX_AXES;
    assert_null(layout);
    assert_ok(ferry_layout_create(&params, &layout, &err));
    ferry_layout_destroy(layout);
    layout = NULL;
    axes[3].size = FERRY_MAX_RANK + 2U;
    assert_fails(ferry_layout_create(&params, &layout, &err), OVERFLOW, "");
    axes[3].size = axes[4].size = axes[5].size = 65536;
    assert_fails(ferry_layout_create(&params, &layout, &err), OVERFLOW, "");
    assert_null(layout);
}

static void shifting_moves_all_ranks(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("tp=3:S0/ragged(1,2,3)@5,0,9");
    ferry_layout_t *want = parse("tp=3:S0/ragged(1,2,3)@105,100,109");
    ferry_layout_t *shifted = NULL;
    assert_ok(ferry_layout_shift(layout, 100, &shifted, &err));
    assert_true(ferry_layout_equal(shifted, want));
    ferry_layout_destroy(shifted);
    shifted = NULL;
    assert_ok(ferry_layout_shift(layout, FERRY_MAX_RANK - 9, &shifted, &err));
    ferry_layout_destroy(shifted);
    shifted = NULL;
    assert_fails(ferry_layout_shift(layout, FERRY_MAX_RANK - 8, &shifted, &err), OVERFLOW,
                 "rank 1048576");
    assert_fails(ferry_layout_shift(layout, UINT32_MAX, &shifted, &err), OVERFLOW, "rank");
    assert_null(shifted);
    ferry_layout_destroy(layout);
    ferry_layout_destroy(want);
}

/* ---- what ranks hold ---- */

typedef struct held {
    const char *text;
    uint64_t length;
    const char *want; /* per rank: its intervals of dim 0 */
} held_t;

static void write_held(const ferry_layout_t *layout, uint64_t length, char *text, size_t cap) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < ferry_layout_nranks(layout); i++) {
        uint32_t rank = ferry_layout_ranks(layout)[i];
        ferry_interval_t intervals[32];
        size_t count = 0;
        uint64_t local = 0;
        uint64_t sum = 0;
        assert_ok(ferry_layout_intervals(layout, 1, &length, rank, 0, intervals, 32, &count, &err));
        assert_ok(ferry_layout_local_shape(layout, 1, &length, rank, &local, &err));
        for (size_t k = 0; k < count; k++) {
            used += (size_t)snprintf(text + used, cap - used, "%s%llu-%llu", k ? " " : "",
                                     (unsigned long long)intervals[k].lo,
                                     (unsigned long long)intervals[k].hi);
            sum += intervals[k].hi - intervals[k].lo;
        }
        used += (size_t)snprintf(text + used, cap - used, ";");
        assert_int_equal(sum, local);
    }
}

static void cuts_are_as_worked_out_by_hand(void **state) {
    (void)state;
    static const held_t all[] = {
        {"2:R", 3, "0-3;0-3;"},
        {"2:P(sum)", 3, "0-3;0-3;"},
        {"4:S0", 10, "0-3;3-6;6-9;9-10;"},
        {"4:S0", 5, "0-2;2-4;4-5;;"},
        {"4:S0", 0, ";;;;"},
        {"2x2:S0,S0", 10, "0-3;3-5;5-8;8-10;"},
        {"2x3:S0,S0", 7, "0-2;2-4;;4-5;5-6;6-7;"},
        {"3:S0/unit(4)", 20, "0-8;8-16;16-20;"},
        {"2:S0/unit(4)", 10, "0-8;8-10;"},
        {"3:S0/unit(16)", 20, "0-16;16-20;;"},
        {"2:S0/stride(2)", 8, "0-2 4-6;2-4 6-8;"},
        {"2:S0/stride(2)", 7, "0-2 4-6;2-4 6-7;"},
        {"2:S0/stride(2)/unit(2)", 7, "0-2 4-6;2-4 6-7;"},
        {"2:S0/stride(2)/unit(3)", 7, "0-3 6-7;3-6;"},
        {"1:S0/stride(4)", 8, "0-8;"},
        {"2:S0/cyclic(3)", 8, "0-3 6-8;3-6;"},
        {"3:S0/cyclic(1)", 7, "0-1 3-4 6-7;1-2 4-5;2-3 5-6;"},
        {"2:S0/sizes(32,16)", 48, "0-16 32-40;16-32 40-48;"},
        {"2:S0/sizes(3,0,4)", 7, "0-2 3-5;2-3 5-7;"},
        {"2:S0/sizes(8,4)/stride(2)", 12, "0-2 4-6 8-9 10-11;2-4 6-8 9-10 11-12;"},
        {"2:S0/sizes(3,3)/cyclic(2)", 6, "0-2 3-5;2-3 5-6;"},
        {"2:S0/sizes(6,4)/unit(4)", 10, "0-4 6-10;4-6;"},
        {"3:S0/ragged(10,0,7)", 17, "0-10;;10-17;"},
        {"2:SS(0,2)", 8, "0-2 4-6;2-4 6-8;"},
        {"2:SS(0,3)", 8, "0-2 3-5 6-7;2-3 5-6 7-8;"},
        {"2x2:SS(0,2),S0", 8, "0-2;4-6;2-4;6-8;"},
        {"2:SS(0,2)/unit(3)", 10, "0-3 5-8;3-5 8-10;"},
        {"2x2:S0/cyclic(2),S0", 8, "0-2;4-6;2-4;6-8;"},
        {"2x2:S0/stride(2),S0/cyclic(1)", 8, "0-1 4-5;1-2 5-6;2-3 6-7;3-4 7-8;"},
        {"2x2:S0,S0/ragged(3,1)", 8, "0-3;3-4;4-7;7-8;"},
        {"2x2:S0,S0/sizes(2,2)", 8, "0-1 2-3;1-2 3-4;4-5 6-7;5-6 7-8;"},
        {"2:S0/stride(9223372036854775807)", 5, "0-1 2-3 4-5;1-2 3-4;"},
        {"2:S0/stride(9223372036854775807)/unit(3)", 8, "0-3 6-8;3-6;"},
        {"2:SS(0,18446744073709551615)", 5, "0-5;;"},
        {"2:S0/unit(18446744073709551615)", 5, "0-5;;"},
        {"2:S0/cyclic(18446744073709551615)", 5, "0-5;;"},
        {"2:S0", UINT64_MAX, "0-9223372036854775808;9223372036854775808-18446744073709551615;"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_layout_t *layout = parse(all[i].text);
        char text[512];
        write_held(layout, all[i].length, text, sizeof text);
        if (strcmp(text, all[i].want) != 0) {
            fail_msg("%s of %llu: \"%s\", not \"%s\"", all[i].text,
                     (unsigned long long)all[i].length, text, all[i].want);
        }
        ferry_layout_destroy(layout);
    }
}

static void other_dims_are_whole(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("2x2:S1,S2@4-7");
    uint64_t shape[] = {5, 3, 4};
    uint64_t local[3];
    assert_ok(ferry_layout_local_shape(layout, 3, shape, 7, local, &err));
    assert_int_equal(local[0], 5);
    assert_int_equal(local[1], 1);
    assert_int_equal(local[2], 2);
    assert_ok(ferry_layout_local_shape(layout, 3, shape, 3, local, &err));
    assert_int_equal(local[0] | local[1] | local[2], 0);
    ferry_layout_destroy(layout);

    layout = parse("3:R");
    assert_ok(ferry_layout_check(layout, 0, NULL, &err));
    assert_ok(ferry_layout_local_shape(layout, 0, NULL, 1, local, &err));
    ferry_layout_destroy(layout);
}

static void intervals_stop_at_the_end_of_the_array(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("2:S0/cyclic(1)");
    uint64_t length = 10;
    ferry_interval_t intervals[] = {{7, 7}, {7, 7}, {7, 7}};
    size_t count = 0;
    assert_ok(ferry_layout_intervals(layout, 1, &length, 1, 0, intervals, 2, &count, &err));
    assert_int_equal(count, 5);
    assert_int_equal(intervals[1].lo, 3);
    assert_int_equal(intervals[1].hi, 4);
    assert_int_equal(intervals[2].lo, 7);
    ferry_layout_destroy(layout);
}

static void misfits_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t ndim;
        uint64_t shape[4];
        ferry_status_t status;
        const char *part;
    } all[] = {
        {"2:S1", 1, {8}, FERRY_INVALID, "dim 1"},
        {"2:S0", 0, {8}, FERRY_INVALID, "dim 0"},
        {"2:S0/sizes(4,5)", 1, {8}, FERRY_INVALID, "sizes"},
        {"2:S0/sizes(4,5)", 1, {8}, FERRY_INVALID, "9"},
        {"2x2:S0,S0/sizes(4,4)", 1, {8}, FERRY_INVALID, "sizes"},
        {"2x2:S0,S0/sizes(2,2)", 1, {7}, FERRY_INVALID, "sizes"},
        {"2:S0/ragged(4,5)", 1, {8}, FERRY_INVALID, "ragged"},
        {"2x2:S0,S0/ragged(2,2)", 1, {7}, FERRY_INVALID, "ragged"},
        {"2:R", 2, {BIG, BIG}, FERRY_OVERFLOW, ""},
        {"2:S0/stride(18446744073709551615)", 1, {8}, FERRY_OVERFLOW, "stride"},
        {"2:R", FERRY_MAX_DIMS + 1, {0}, FERRY_INVALID, "17"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_layout_t *layout = parse(all[i].text);
        uint64_t shape[FERRY_MAX_DIMS + 1] = {0};
        memcpy(shape, all[i].shape, sizeof all[i].shape);
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = ferry_layout_check(layout, all[i].ndim, shape, &err);
        if (status != all[i].status || strstr(err.text, all[i].part) == NULL) {
            fail_msg("%s: %s: %s", all[i].text, ferry_status_name(status), err.text);
        }
        uint64_t local[FERRY_MAX_DIMS + 1];
        size_t count = 77;
        status = ferry_layout_local_shape(layout, all[i].ndim, shape, 0, local, NULL);
        assert_int_equal(status, all[i].status);
        status = ferry_layout_intervals(layout, all[i].ndim, shape, 0, 0, NULL, 0, &count, NULL);
        assert_int_equal(status, all[i].status);
        assert_int_equal(count, 77);
        ferry_layout_destroy(layout);
    }
}

static void dims_out_of_range_are_refused(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("2:S0");
    uint64_t shape = 8;
    size_t count = 5;
    ferry_interval_t one;
    assert_fails(ferry_layout_intervals(layout, 1, &shape, 0, 1, &one, 1, &count, &err), INVALID,
                 "dim 1");
    assert_int_equal(count, 5);
    ferry_layout_destroy(layout);
}

static void nulls_are_refused(void **state) {
    (void)state;
    ferry_layout_t *layout = parse("2:S0");
    ferry_layout_t *made = NULL;
    uint64_t shape = 8;
    uint64_t local = 5;
    size_t count = 5;
    ferry_interval_t one;
    ferry_dtype_t dtype = FERRY_I8;
    assert_fails(ferry_dtype_parse(NULL, &dtype, &err), INVALID, "");
    assert_fails(ferry_dtype_parse("f32", NULL, &err), INVALID, "");
    assert_fails(ferry_dtype_bytes(FERRY_F32, 1, NULL, &err), INVALID, "");
    assert_fails(ferry_layout_parse(NULL, &made, &err), INVALID, "");
    assert_fails(ferry_layout_parse("4:R", NULL, &err), INVALID, "");
    assert_fails(ferry_layout_shift(NULL, 1, &made, &err), INVALID, "");
    assert_fails(ferry_layout_shift(layout, 1, NULL, &err), INVALID, "");
    assert_fails(ferry_layout_check(NULL, 1, &shape, &err), INVALID, "");
    assert_fails(ferry_layout_check(layout, 1, NULL, &err), INVALID, "");
    assert_fails(ferry_layout_local_shape(NULL, 1, &shape, 0, &local, &err), INVALID, "");
    assert_fails(ferry_layout_local_shape(layout, 1, &shape, 0, NULL, &err), INVALID, "");
    assert_fails(ferry_layout_intervals(NULL, 1, &shape, 0, 0, &one, 1, &count, &err), INVALID, "");
    assert_fails(ferry_layout_intervals(layout, 1, &shape, 0, 0, &one, 1, NULL, &err), INVALID, "");
    assert_fails(ferry_layout_intervals(layout, 1, &shape, 0, 0, NULL, 1, &count, &err), INVALID,
                 "");
    assert_int_equal(local, 5);
    assert_int_equal(count, 5);
    assert_null(made);
    ferry_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_bits),
        cmocka_unit_test(dtypes_refuse),
        cmocka_unit_test(the_narrower_dtype_travels),
        cmocka_unit_test(reduce_ops_have_names),
        cmocka_unit_test(text_gives_axes_and_placements),
        cmocka_unit_test(text_gives_cuts),
        cmocka_unit_test(text_gives_ranks),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(layouts_differ),
        cmocka_unit_test(bad_text_is_refused_with_its_column),
        cmocka_unit_test(text_that_makes_no_layout_is_refused),
        cmocka_unit_test(creation_copies_everything),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(bad_parameter_structs_are_refused),
        cmocka_unit_test(shifting_moves_all_ranks),
        cmocka_unit_test(cuts_are_as_worked_out_by_hand),
        cmocka_unit_test(other_dims_are_whole),
        cmocka_unit_test(intervals_stop_at_the_end_of_the_array),
        cmocka_unit_test(misfits_are_named),
        cmocka_unit_test(dims_out_of_range_are_refused),
        cmocka_unit_test(nulls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
