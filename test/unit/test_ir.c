/* test_ir.c - chunks, cells and buckets worked out by hand, and every refusal of the ir functions. */
#include <stdlib.h>

#include "oracle/unit.h"

#define MIB (UINT64_C(1) << 20)

/* ---- helpers ---- */

/* One tensor of a plan; `name` NULL ends a list of them. */
typedef struct spec {
    const char *name;
    ferry_dtype_t from_dtype;
    ferry_dtype_t to_dtype;
    uint32_t ndim;
    uint64_t shape[4];
    const char *from;
    const char *to;
} spec_t;

enum { SPECS_MAX = 8 };

static ferry_layout_t *parse(const char *text) {
    ferry_layout_t *layout = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_layout_parse(text, &layout, &err) != FERRY_OK) {
        fail_msg("'%s': %s", text, err.text);
    }
    return layout;
}

/* FERRY_RANK_NONE: the whole plan. */
static ferry_plan_t *plan_of(const spec_t *specs, uint32_t part_of) {
    ferry_tensor_t sources[SPECS_MAX];
    ferry_tensor_t targets[SPECS_MAX];
    ferry_layout_t *layouts[2 * SPECS_MAX];
    size_t count = 0;
    for (; specs[count].name != NULL; count++) {
        const spec_t *s = &specs[count];
        assert_true(count < SPECS_MAX);
        layouts[2 * count] = parse(s->from);
        layouts[2 * count + 1] = parse(s->to);
        sources[count] =
            (ferry_tensor_t){s->name, s->from_dtype, s->ndim, s->shape, layouts[2 * count]};
        targets[count] =
            (ferry_tensor_t){s->name, s->to_dtype, s->ndim, s->shape, layouts[2 * count + 1]};
    }
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_ALLOW_CAST | (part_of == FERRY_RANK_NONE ? 0 : FERRY_PLAN_PART);
    params.rank = part_of == FERRY_RANK_NONE ? 0 : part_of;
    params.sources = sources;
    params.targets = targets;
    params.nsources = params.ntargets = count;
    ferry_plan_t *plan = NULL;
    assert_ok(ferry_plan_create(&params, &plan, &err));
    for (size_t i = 0; i < 2 * count; i++) {
        ferry_layout_destroy(layouts[i]);
    }
    return plan;
}

static ferry_chunks_t *chunks_of(const spec_t *specs, uint32_t rank, uint64_t slab_bytes) {
    ferry_plan_t *plan = plan_of(specs, rank);
    ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
    params.rank = rank;
    params.slab_bytes = slab_bytes;
    ferry_chunks_t *chunks = NULL;
    assert_ok(ferry_chunks_create(plan, &params, &chunks, &err));
    ferry_plan_destroy(plan); /* chunks borrow nothing */
    return chunks;
}

typedef struct text {
    char at[4096];
    size_t length;
} text_t;

__attribute__((format(printf, 2, 3))) static void add(text_t *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(text->at + text->length, sizeof text->at - text->length, format, args);
    va_end(args);
    assert_true(wrote >= 0 && (size_t)wrote < sizeof text->at - text->length);
    text->length += (size_t)wrote;
}

static void add_list(text_t *text, const uint64_t *list, uint32_t count, char between) {
    for (uint32_t i = 0; i < count; i++) {
        add(text, "%c%llu", i == 0 ? ' ' : between, (unsigned long long)list[i]);
    }
}

/* "role tensor.slab/slabs source>target source_lo target_lo extent; ", with p and c for the partial and
 * the cell, where there are such. */
static text_t describe(const ferry_chunks_t *chunks) {
    text_t text = {.length = 0};
    size_t count = 0;
    const ferry_chunk_t *list = ferry_chunks_list(chunks, &count);
    for (size_t i = 0; i < count; i++) {
        const ferry_chunk_t *c = &list[i];
        uint64_t elements = 1;
        for (uint32_t d = 0; d < c->ndim; d++) {
            elements *= c->extent[d];
        }
        assert_int_equal(c->elements, elements);
        assert_int_equal(c->bytes, elements * ferry_dtype_bits(c->wire) / 8);
        add(&text, "%s%c%u.%u/%u %u>%u", i == 0 ? "" : "; ", "?STBR"[c->role], c -> tensor,
            c -> slab, c -> nslabs, c -> source, c -> target);
        add_list(&text, c->source_lo, c->ndim, ',');
        add_list(&text, c->target_lo, c->ndim, ',');
        add_list(&text, c->extent, c->ndim, 'x');
        if (c->partial != FERRY_INDEX_NONE) {
            add(&text, " p%u", c->partial);
        }
        if (c->cell != FERRY_INDEX_NONE) {
            add(&text, " c%u", c->cell);
        }
    }
    return text;
}

/* The part of the rank and the whole plan give these chunks. */
static void assert_chunks(const spec_t *specs, uint32_t rank, uint64_t slab_bytes,
                          const char *want) {
    uint32_t plans[] = {rank, FERRY_RANK_NONE};
    for (size_t i = 0; i < 2; i++) {
        ferry_plan_t *plan = plan_of(specs, plans[i]);
        ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
        params.rank = rank;
        params.slab_bytes = slab_bytes;
        ferry_chunks_t *chunks = NULL;
        assert_ok(ferry_chunks_create(plan, &params, &chunks, &err));
        text_t got = describe(chunks);
        assert_string_equal(got.at, want);
        ferry_chunks_destroy(chunks);
        ferry_plan_destroy(plan);
    }
}

/* "tensor.slab owner lo extent p; " */
static void assert_cells(const ferry_chunks_t *chunks, const char *want) {
    text_t text = {.length = 0};
    size_t count = 0;
    const ferry_cell_t *list = ferry_chunks_cells(chunks, &count);
    for (size_t i = 0; i < count; i++) {
        const ferry_cell_t *c = &list[i];
        add(&text, "%s%u.%u %u", i == 0 ? "" : "; ", c->tensor, c->slab, c->owner);
        add_list(&text, c->lo, c->ndim, ',');
        add_list(&text, c->extent, c->ndim, 'x');
        add(&text, " p%u", c->partial);
    }
    assert_string_equal(text.at, want);
}

static void assert_partial(const ferry_chunks_t *chunks, uint32_t index, uint32_t naxes,
                           const uint32_t *sizes, uint32_t nranks, const uint32_t *ranks) {
    const ferry_partial_t *partial = ferry_chunks_partial(chunks, index);
    assert_non_null(partial);
    assert_int_equal(partial->reduce.naxes, naxes);
    assert_int_equal(partial->reduce.nranks, nranks);
    assert_memory_equal(partial->reduce.sizes, sizes, naxes * sizeof *sizes);
    assert_memory_equal(partial->ranks, ranks, nranks * sizeof *ranks);
}

/* "source>target[/lane][ cCELL]: chunk@offset+bytes ...; " */
static void assert_buckets(const ferry_chunks_t *chunks, const ferry_buckets_params_t *params,
                           const char *want) {
    ferry_buckets_t *buckets = NULL;
    assert_ok(ferry_buckets_create(chunks, params, &buckets, &err));
    size_t count = 0;
    size_t nentries = 0;
    size_t nchunks = 0;
    size_t seen = 0;
    const ferry_bucket_t *list = ferry_buckets_list(buckets, &count);
    const ferry_bucket_entry_t *entries = ferry_buckets_entries(buckets, &nentries);
    const ferry_chunk_t *all = ferry_chunks_list(chunks, &nchunks);
    text_t text = {.length = 0};
    for (size_t b = 0; b < count; b++) {
        const ferry_bucket_t *bucket = &list[b];
        const ferry_chunk_t *first = &all[entries[bucket->first_entry].chunk];
        uint64_t bytes = 0;
        assert_int_equal(bucket->first_entry, seen);
        assert_int_equal(bucket->task_id, first->task_id);
        assert_int_equal(bucket->partial, first->partial);
        add(&text, "%s%u>%d", b == 0 ? "" : "; ", bucket->source, (int)bucket->target);
        if (bucket->lane != 0) {
            add(&text, "/%u", bucket->lane);
        }
        if (bucket->cell != FERRY_INDEX_NONE) {
            add(&text, " c%u", bucket->cell);
        }
        for (uint32_t i = 0; i < bucket->nentries; i++) {
            const ferry_bucket_entry_t *e = &entries[seen++];
            assert_int_equal(e->bytes, all[e->chunk].bytes);
            add(&text, "%s %u@%llu+%llu", i == 0 ? ":" : "", e->chunk,
                (unsigned long long)e->offset, (unsigned long long)e->bytes);
            bytes += e->bytes;
        }
        assert_int_equal(bucket->bytes, bytes);
    }
    assert_int_equal(seen, nentries);
    assert_int_equal(nentries, params->count);
    assert_string_equal(text.at, want);
    ferry_buckets_destroy(buckets);
}

static ferry_buckets_params_t all_of(const ferry_chunks_t *chunks, uint64_t threshold) {
    ferry_buckets_params_t params = FERRY_BUCKETS_PARAMS_INIT;
    (void)ferry_chunks_list(chunks, &params.count);
    params.threshold = threshold;
    return params;
}

#define F32(name, rows, columns, from, to)                                                         \
    { name, FERRY_F32, FERRY_F32, 2, {rows, columns}, from, to }
#define END                                                                                        \
    { NULL, FERRY_DTYPE_NONE, FERRY_DTYPE_NONE, 0, {0}, NULL, NULL }

/* ---- chunks ---- */

static void a_rank_is_source_target_or_both(void **state) {
    (void)state;
    const spec_t specs[] = {F32("a", 64, 128, "2:S1", "2:S1@1-2"),
                            F32("b", 4, 6, "2:S0@1-2", "2:S0@1-2"), END};
    assert_chunks(specs, 0, 0, "S0.0/1 0>1 0,0 0,0 64x64");
    assert_chunks(specs, 1, 0,
                  "T0.0/1 0>1 0,0 0,0 64x64; S0.0/1 1>2 0,0 0,0 64x64; B1.0/1 1>1 0,0 0,0 2x6");
    assert_chunks(specs, 2, 0, "T0.0/1 1>2 0,0 0,0 64x64; B1.0/1 2>2 0,0 0,0 2x6");
    assert_chunks(specs, 3, 0, "");
}

static void transfers_are_cut_into_rows(void **state) {
    (void)state;
    const spec_t whole[] = {F32("w", 10, 4, "1:R", "1:R@1"), END};
    const char *four = "S0.0/4 0>1 0,0 0,0 3x4; S0.1/4 0>1 3,0 3,0 3x4; S0.2/4 0>1 6,0 6,0 3x4; "
                       "S0.3/4 0>1 9,0 9,0 1x4";
    assert_chunks(whole, 0, 48, four);
    assert_chunks(whole, 0, 63, four);
    assert_chunks(whole, 0, 159, "S0.0/2 0>1 0,0 0,0 9x4; S0.1/2 0>1 9,0 9,0 1x4");
    assert_chunks(whole, 0, 160, "S0.0/1 0>1 0,0 0,0 10x4");
    assert_chunks(whole, 0, 0, "S0.0/1 0>1 0,0 0,0 10x4");
    assert_chunks(whole, 1, UINT64_MAX, "T0.0/1 0>1 0,0 0,0 10x4");
    /* A target that begins inside the source, and one that the source lies inside. */
    const spec_t halves[] = {F32("w", 8, 4, "1:R", "2:S0@1-2"), END};
    assert_chunks(halves, 2, 32, "T0.0/2 0>2 4,0 0,0 2x4; T0.1/2 0>2 6,0 2,0 2x4");
    const spec_t joined[] = {F32("w", 8, 4, "2:S0", "1:R@2"), END};
    assert_chunks(joined, 1, 32, "S0.0/2 1>2 0,0 4,0 2x4; S0.1/2 1>2 2,0 6,0 2x4");
}

static void rows_lie_along_the_first_dim_that_is_longer_than_one(void **state) {
    (void)state;
    const spec_t specs[] = {
        {"w", FERRY_F32, FERRY_F32, 4, {1, 1, 5, 4}, "1:R", "1:R@1"},
        END,
    };
    assert_chunks(specs, 0, 40,
                  "S0.0/3 0>1 0,0,0,0 0,0,0,0 1x1x2x4; S0.1/3 0>1 0,0,2,0 0,0,2,0 1x1x2x4; "
                  "S0.2/3 0>1 0,0,4,0 0,0,4,0 1x1x1x4");
}

static void one_long_dim_is_cut_at_multiples_of_32(void **state) {
    (void)state;
    const spec_t vector[] = {{"w", FERRY_F32, FERRY_F32, 1, {100}, "1:R", "1:R@1"}, END};
    assert_chunks(vector, 0, 300, "S0.0/2 0>1 0 0 64; S0.1/2 0>1 64 64 36");
    const char *least = "S0.0/4 0>1 0 0 32; S0.1/4 0>1 32 32 32; S0.2/4 0>1 64 64 32; "
                        "S0.3/4 0>1 96 96 4";
    assert_chunks(vector, 0, 252, least);
    assert_chunks(vector, 0, 16, least);
    assert_chunks(vector, 0, 1, least);
    const spec_t column[] = {F32("w", 70, 1, "1:R", "1:R@1"), END};
    assert_chunks(column, 0, 256, "S0.0/2 0>1 0,0 0,0 64x1; S0.1/2 0>1 64,0 64,0 6x1");
    const spec_t element[] = {F32("w", 1, 1, "1:R", "1:R@1"), END};
    assert_chunks(element, 0, 1, "S0.0/1 0>1 0,0 0,0 1x1");
    const spec_t scalar[] = {{"w", FERRY_F32, FERRY_F32, 0, {0}, "1:R", "1:R@1"}, END};
    assert_chunks(scalar, 1, 1, "T0.0/1 0>1");
}

static void chunks_say_whether_smaller_slabs_would_cut_them(void **state) {
    (void)state;
    static const struct {
        uint64_t rows, columns, slab_bytes;
        const char *want; /* per chunk */
    } all[] = {
        {4, 4, 0, "+"},  {4, 4, 48, "+-"}, {4, 4, 16, "----"}, {1, 1, 0, "-"},
        {33, 1, 0, "+"}, {32, 1, 0, "-"},  {1, 65, 256, "+-"}, {1, 65, 1, "---"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const spec_t specs[] = {F32("w", all[i].rows, all[i].columns, "1:R", "1:R@1"), END};
        ferry_chunks_t *chunks = chunks_of(specs, 0, all[i].slab_bytes);
        size_t count = 0;
        const ferry_chunk_t *list = ferry_chunks_list(chunks, &count);
        assert_int_equal(count, strlen(all[i].want));
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(list[k].divisible, all[i].want[k] == '+');
        }
        ferry_chunks_destroy(chunks);
    }
}

static void chunks_come_by_tensor_slab_and_task(void **state) {
    (void)state;
    /* Rank 0 sends 2, 6 and 1 rows of "a" to ranks 1, 2 and 3, and all of "b" to rank 4. */
    const spec_t specs[] = {F32("b", 3, 2, "1:R", "1:R@4"),
                            F32("a", 9, 2, "1:R", "3:S0/ragged(2,6,1)@1-3"), END};
    assert_chunks(specs, 0, 16,
                  "S0.0/1 0>1 0,0 0,0 2x2; S0.0/3 0>2 2,0 0,0 2x2; S0.0/1 0>3 8,0 0,0 1x2; "
                  "S0.1/3 0>2 4,0 2,0 2x2; S0.2/3 0>2 6,0 4,0 2x2; "
                  "S1.0/2 0>4 0,0 0,0 2x2; S1.1/2 0>4 2,0 2,0 1x2");
}

static void only_marked_tensors_are_cut(void **state) {
    (void)state;
    const spec_t specs[] = {F32("a", 4, 4, "1:R", "1:R@1"), F32("b", 4, 4, "1:R", "1:R@1"), END};
    ferry_plan_t *plan = plan_of(specs, FERRY_RANK_NONE);
    const uint8_t cut[] = {0, 1};
    ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
    params.rank = 1;
    params.slab_bytes = 32;
    params.cut = cut;
    ferry_chunks_t *chunks = NULL;
    assert_ok(ferry_chunks_create(plan, &params, &chunks, &err));
    text_t got = describe(chunks);
    assert_string_equal(got.at, "T0.0/1 0>1 0,0 0,0 4x4; T1.0/2 0>1 0,0 0,0 2x4; "
                                "T1.1/2 0>1 2,0 2,0 2x4");
    ferry_chunks_destroy(chunks);
    ferry_plan_destroy(plan);
}

static void the_task_id_is_the_transfers(void **state) {
    (void)state;
    const spec_t specs[] = {F32("a", 4, 4, "2:S0", "2:S1@2-3"), END};
    ferry_chunks_t *chunks = chunks_of(specs, 3, 16);
    size_t count = 0;
    const ferry_chunk_t *list = ferry_chunks_list(chunks, &count);
    assert_int_equal(count, 2);
    assert_int_equal(list[0].task_id, UINT64_C(3) << 24);
    assert_int_equal(list[1].task_id, UINT64_C(3) << 24 | 1 << 4);
    ferry_chunks_destroy(chunks);
}

/* ---- wire dtypes ---- */

static void the_wire_dtype_follows_the_rule_or_the_wish(void **state) {
    (void)state;
    static const struct {
        ferry_dtype_t source, target, wish, want;
    } all[] = {
        {FERRY_F32, FERRY_F32, FERRY_DTYPE_NONE, FERRY_F32},
        {FERRY_F32, FERRY_BF16, FERRY_DTYPE_NONE, FERRY_BF16},
        {FERRY_BF16, FERRY_F32, FERRY_DTYPE_NONE, FERRY_BF16},
        {FERRY_F16, FERRY_BF16, FERRY_DTYPE_NONE, FERRY_F16},
        {FERRY_F32, FERRY_F32, FERRY_BF16, FERRY_BF16},
        {FERRY_F64, FERRY_F32, FERRY_F8E5M2, FERRY_F8E5M2},
        {FERRY_BF16, FERRY_F32, FERRY_F16, FERRY_BF16}, /* no narrower than the source */
        {FERRY_F32, FERRY_BF16, FERRY_F16, FERRY_BF16}, /* no narrower than the target */
        {FERRY_BF16, FERRY_BF16, FERRY_F32, FERRY_BF16},
        {FERRY_I32, FERRY_I32, FERRY_BF16, FERRY_I32},
        {FERRY_F32, FERRY_I32, FERRY_BF16, FERRY_F32},
        {FERRY_F32, FERRY_F32, FERRY_I8, FERRY_F32},
        {FERRY_F32, FERRY_F32, FERRY_E8M0, FERRY_F32},
        {FERRY_I64, FERRY_F32, FERRY_F16, FERRY_F32},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(ferry_wire_dtype(all[i].source, all[i].target, all[i].wish), all[i].want);
    }
}

static void slabs_are_measured_in_the_wire_dtype(void **state) {
    (void)state;
    const spec_t specs[] = {{"a", FERRY_F32, FERRY_F32, 2, {8, 4}, "1:R", "1:R@1"},
                            {"b", FERRY_F32, FERRY_BF16, 2, {8, 4}, "1:R", "1:R@1"},
                            {"c", FERRY_I32, FERRY_I32, 2, {8, 4}, "1:R", "1:R@1"},
                            END};
    static const struct {
        ferry_dtype_t wish;
        uint32_t nslabs[3];
        ferry_dtype_t wire[3];
    } all[] = {
        {FERRY_DTYPE_NONE, {4, 2, 4}, {FERRY_F32, FERRY_BF16, FERRY_I32}},
        {FERRY_F16, {2, 2, 4}, {FERRY_F16, FERRY_BF16, FERRY_I32}},
        {FERRY_F8E4M3, {1, 1, 4}, {FERRY_F8E4M3, FERRY_F8E4M3, FERRY_I32}},
    };
    ferry_plan_t *plan = plan_of(specs, FERRY_RANK_NONE);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
        params.slab_bytes = 32;
        params.wire = all[i].wish;
        ferry_chunks_t *chunks = NULL;
        assert_ok(ferry_chunks_create(plan, &params, &chunks, &err));
        size_t count = 0;
        const ferry_chunk_t *list = ferry_chunks_list(chunks, &count);
        assert_int_equal(count, all[i].nslabs[0] + all[i].nslabs[1] + all[i].nslabs[2]);
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(list[k].nslabs, all[i].nslabs[list[k].tensor]);
            assert_int_equal(list[k].wire, all[i].wire[list[k].tensor]);
            assert_int_equal(list[k].bytes, 32);
        }
        ferry_chunks_destroy(chunks);
    }
    ferry_plan_destroy(plan);
}

/* ---- Partial sources ---- */

/* Rows are cut over 0,1 | 2,3; the values of each half are sums over two ranks. Ranks 1 and 3 send to 4,
 * ranks 0 and 2 to 5 and 6. */
#define HALVES F32("w", 8, 4, "2x2:S0,P(sum)", "3:R@4-6")

static void members_and_owners_share_cells(void **state) {
    (void)state;
    const spec_t specs[] = {HALVES, END};
    assert_chunks(specs, 0, 0,
                  "R0.0/1 1>4 0,0 0,0 4x4 p0 c0; S0.0/1 0>5 0,0 0,0 4x4 p0 c1; "
                  "S0.0/1 0>6 0,0 0,0 4x4 p0 c1");
    assert_chunks(specs, 1, 0,
                  "S0.0/1 1>4 0,0 0,0 4x4 p0 c0; R0.0/1 0>5 0,0 0,0 4x4 p0 c1; "
                  "R0.0/1 0>6 0,0 0,0 4x4 p0 c1");
    assert_chunks(specs, 3, 0,
                  "S0.0/1 3>4 0,0 4,0 4x4 p0 c0; R0.0/1 2>5 0,0 4,0 4x4 p0 c1; "
                  "R0.0/1 2>6 0,0 4,0 4x4 p0 c1");
    assert_chunks(specs, 4, 0, "T0.0/1 1>4 0,0 0,0 4x4 p0; T0.0/1 3>4 0,0 4,0 4x4 p1");
    static const uint32_t size[] = {2};
    static const uint32_t low[] = {0, 1};
    static const uint32_t high[] = {2, 3};
    for (uint32_t rank = 0; rank < 2; rank++) {
        ferry_chunks_t *member = chunks_of(specs, rank, 0);
        assert_cells(member, "0.0 1 0,0 4x4 p0; 0.0 0 0,0 4x4 p0");
        assert_partial(member, 0, 1, size, 2, low);
        assert_null(ferry_chunks_partial(member, 1));
        assert_null(ferry_chunks_partial(member, FERRY_INDEX_NONE));
        ferry_chunks_destroy(member);
    }
    ferry_chunks_t *target = chunks_of(specs, 4, 0);
    assert_cells(target, "");
    assert_partial(target, 0, 1, size, 2, low);
    assert_partial(target, 1, 1, size, 2, high);
    ferry_chunks_destroy(target);
}

static void cells_are_cut_like_chunks(void **state) {
    (void)state;
    const spec_t specs[] = {HALVES, END};
    assert_chunks(specs, 0, 32,
                  "R0.0/2 1>4 0,0 0,0 2x4 p0 c0; S0.0/2 0>5 0,0 0,0 2x4 p0 c1; "
                  "S0.0/2 0>6 0,0 0,0 2x4 p0 c1; R0.1/2 1>4 2,0 2,0 2x4 p0 c2; "
                  "S0.1/2 0>5 2,0 2,0 2x4 p0 c3; S0.1/2 0>6 2,0 2,0 2x4 p0 c3");
    ferry_chunks_t *chunks = chunks_of(specs, 0, 32);
    assert_cells(chunks, "0.0 1 0,0 2x4 p0; 0.0 0 0,0 2x4 p0; 0.1 1 2,0 2x4 p0; 0.1 0 2,0 2x4 p0");
    ferry_chunks_destroy(chunks);
}

static void two_axes_of_sums_are_one_group(void **state) {
    (void)state;
    const spec_t specs[] = {F32("w", 8, 4, "2x2:P(sum),P(max)", "2:S0@0,5"), END};
    assert_chunks(specs, 0, 0, "B0.0/1 0>0 0,0 0,0 4x4 p0 c0; R0.0/1 3>5 4,0 0,0 4x4 p0 c1");
    assert_chunks(specs, 1, 0, "R0.0/1 0>0 0,0 0,0 4x4 p0 c0; R0.0/1 3>5 4,0 0,0 4x4 p0 c1");
    assert_chunks(specs, 3, 0, "R0.0/1 0>0 0,0 0,0 4x4 p0 c0; S0.0/1 3>5 4,0 0,0 4x4 p0 c1");
    assert_chunks(specs, 5, 0, "T0.0/1 3>5 4,0 0,0 4x4 p0");
    static const uint32_t sizes[] = {2, 2};
    static const uint32_t ranks[] = {0, 1, 2, 3};
    static const uint32_t who[] = {2, 5};
    for (size_t i = 0; i < 2; i++) {
        ferry_chunks_t *chunks = chunks_of(specs, who[i], 0);
        assert_cells(chunks, who[i] == 5 ? "" : "0.0 0 0,0 4x4 p0; 0.0 3 4,0 4x4 p0");
        assert_partial(chunks, 0, 2, sizes, 4, ranks);
        assert_int_equal(ferry_chunks_partial(chunks, 0)->reduce.ops[0], FERRY_REDUCE_SUM);
        assert_int_equal(ferry_chunks_partial(chunks, 0)->reduce.ops[1], FERRY_REDUCE_MAX);
        ferry_chunks_destroy(chunks);
    }
}

static void equal_groups_of_other_layouts_are_one_partial(void **state) {
    (void)state;
    const spec_t specs[] = {F32("a", 2, 4, "2x2:S0,P(sum)", "1:R@4"),
                            F32("b", 2, 4, "2x2:S1,P(sum)", "1:R@4"),
                            F32("c", 2, 4, "2x2:S0,P(max)", "1:R@4"), END};
    ferry_chunks_t *chunks = chunks_of(specs, 4, 0);
    size_t count = 0;
    const ferry_chunk_t *list = ferry_chunks_list(chunks, &count);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < 6; i++) {
        static const uint32_t want[] = {0, 1, 0, 1, 2, 3};
        assert_int_equal(list[i].partial, want[i]);
    }
    assert_non_null(ferry_chunks_partial(chunks, 3));
    assert_null(ferry_chunks_partial(chunks, 4));
    ferry_chunks_destroy(chunks);
}

static void a_group_of_one_sums_nothing_up(void **state) {
    (void)state;
    const spec_t specs[] = {F32("w", 8, 4, "2x1:R,P(sum)", "1:R@4"), END};
    assert_chunks(specs, 0, 0, "");
    assert_chunks(specs, 1, 0, "S0.0/1 1>4 0,0 0,0 8x4");
    assert_chunks(specs, 4, 0, "T0.0/1 1>4 0,0 0,0 8x4");
}

/* ---- buckets ---- */

/* Three tensors of so many MiB each, from rank 0 to rank 1. */
static ferry_chunks_t *three(uint64_t a, uint64_t b, uint64_t c) {
    const spec_t specs[] = {F32("a", a, MIB / 4, "1:R", "1:R@1"),
                            F32("b", b, MIB / 4, "1:R", "1:R@1"),
                            F32("c", c, MIB / 4, "1:R", "1:R@1"), END};
    return chunks_of(specs, 1, 0);
}

static void buckets_hold_eight_mebibytes(void **state) {
    (void)state;
    static const struct {
        uint64_t mib[3];
        const char *want;
    } all[] = {
        {{3, 3, 3}, "0>1: 0@0+3145728 1@3145728+3145728; 0>1: 2@0+3145728"},
        {{4, 4, 1}, "0>1: 0@0+4194304 1@4194304+4194304; 0>1: 2@0+1048576"},
        {{1, 2, 3}, "0>1: 0@0+1048576 1@1048576+2097152 2@3145728+3145728"},
        {{1, 9, 1}, "0>1: 0@0+1048576; 0>1: 1@0+9437184; 0>1: 2@0+1048576"},
        {{9, 9, 1}, "0>1: 0@0+9437184; 0>1: 1@0+9437184; 0>1: 2@0+1048576"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ferry_chunks_t *chunks = three(all[i].mib[0], all[i].mib[1], all[i].mib[2]);
        ferry_buckets_params_t params = all_of(chunks, 0);
        assert_buckets(chunks, &params, all[i].want);
        params.threshold = 8 * MIB;
        assert_buckets(chunks, &params, all[i].want);
        params.threshold = 1;
        assert_int_equal(params.count, 3);
        ferry_buckets_t *single = NULL;
        assert_ok(ferry_buckets_create(chunks, &params, &single, &err));
        size_t count = 0;
        (void)ferry_buckets_list(single, &count);
        assert_int_equal(count, 3);
        ferry_buckets_destroy(single);
        ferry_chunks_destroy(chunks);
    }
}

static void buckets_keep_peers_and_lanes_apart(void **state) {
    (void)state;
    const spec_t specs[] = {F32("a", 2, 1, "1:R", "2:S0@0-1"), F32("b", 2, 1, "1:R", "2:S0@0-1"),
                            F32("c", 2, 1, "1:R", "2:S0@0-1"), END};
    ferry_chunks_t *chunks = chunks_of(specs, 0, 0);
    ferry_buckets_params_t params = all_of(chunks, 100);
    assert_buckets(chunks, &params, "0>0: 0@0+4 2@4+4 4@8+4; 0>1: 1@0+4 3@4+4 5@8+4");
    params.threshold = 8;
    assert_buckets(chunks, &params, "0>0: 0@0+4 2@4+4; 0>1: 1@0+4 3@4+4; 0>0: 4@0+4; 0>1: 5@0+4");
    static const uint32_t lanes[] = {0, 7, 0};
    params.lanes = lanes;
    assert_buckets(chunks, &params,
                   "0>0: 0@0+4 4@4+4; 0>1: 1@0+4 5@4+4; 0>0/7: 2@0+4; 0>1/7: 3@0+4");
    params.first = 1;
    params.count = 3;
    params.lanes = NULL;
    assert_buckets(chunks, &params, "0>1: 1@0+4 3@4+4; 0>0: 2@0+4");
    params.first = 6;
    params.count = 0;
    assert_buckets(chunks, &params, "");
    ferry_chunks_destroy(chunks);
}

static void buckets_of_sums(void **state) {
    (void)state;
    const spec_t halves[] = {HALVES, END};
    ferry_chunks_t *chunks = chunks_of(halves, 0, 0);
    ferry_buckets_params_t params = all_of(chunks, 0);
    assert_buckets(chunks, &params, "1>-1 c0: 0@0+64; 0>5: 1@0+64; 0>6: 2@0+64");
    ferry_chunks_destroy(chunks);
    chunks = chunks_of(halves, 1, 0);
    assert_buckets(chunks, &params, "1>4: 0@0+64; 0>-1 c1: 1@0+64 2@64+64");
    params.threshold = 64;
    assert_buckets(chunks, &params, "1>4: 0@0+64; 0>-1 c1: 1@0+64; 0>-1 c1: 2@0+64");
    ferry_chunks_destroy(chunks);
    /* Rank 0 is the owner of both; sums and maxima do not travel together. */
    const spec_t ops[] = {F32("a", 2, 4, "2:P(sum)", "1:R@0"), F32("b", 2, 4, "2:P(max)", "1:R@0"),
                          F32("c", 2, 4, "2:P(sum)", "1:R@0"), END};
    chunks = chunks_of(ops, 0, 0);
    params = all_of(chunks, 0);
    assert_buckets(chunks, &params, "0>0: 0@0+32 2@32+32; 0>0: 1@0+32");
    ferry_chunks_destroy(chunks);
}

/* ---- refusals ---- */

static void chunks_refuse(void **state) {
    (void)state;
    const spec_t specs[] = {F32("some.weight", 4, 4, "1:R", "1:R@1"), END};
    ferry_plan_t *whole = plan_of(specs, FERRY_RANK_NONE);
    ferry_plan_t *part = plan_of(specs, 1);
    ferry_chunks_t *chunks = NULL;
    ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
    assert_fails(ferry_chunks_create(NULL, &params, &chunks, &err), INVALID, "plan is NULL");
    assert_fails(ferry_chunks_create(whole, &params, NULL, &err), INVALID, "chunks_p is NULL");
    assert_fails(ferry_chunks_create(whole, NULL, &chunks, &err), INVALID,
                 "FERRY_CHUNKS_PARAMS_INIT");
    assert_fails(ferry_chunks_create(part, &params, &chunks, &err), INVALID,
                 "chunks of rank 0 out of the part of rank 1");
    params.size--;
    assert_fails(ferry_chunks_create(whole, &params, &chunks, &err), INVALID, "of size");
    params.size++;
    params.rank = FERRY_MAX_RANK + 1;
    assert_fails(ferry_chunks_create(whole, &params, &chunks, &err), INVALID, "rank 1048576");
    params.rank = 0;
    params.wire = (ferry_dtype_t)99;
    assert_fails(ferry_chunks_create(whole, &params, &chunks, &err), INVALID, "99 is no dtype");
    params.wire = FERRY_DTYPE_NONE;
    ferry_plan_destroy(whole);
    ferry_plan_destroy(part);
    ferry_chunks_destroy(NULL);
    ferry_buckets_destroy(NULL);
}

static void too_many_chunks_are_refused(void **state) {
    (void)state;
    const uint64_t most =
        UINT64_C(32) * (UINT32_MAX - 1); /* elements in one slab less than a limit */
    const struct { uint64_t a, b; } all[] = {{most + 1, 1}, {most / 2, most / 2 + 33}, {most, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const spec_t specs[] = {{"a", FERRY_U8, FERRY_U8, 1, {all[i].a}, "1:R", "1:R@1"},
                                {"b", FERRY_U8, FERRY_U8, 1, {all[i].b}, "1:R", "1:R@1"},
                                END};
        ferry_plan_t *plan = plan_of(specs, FERRY_RANK_NONE);
        ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
        params.slab_bytes = 32;
        ferry_chunks_t *chunks = NULL;
        assert_fails(ferry_chunks_create(plan, &params, &chunks, &err), OVERFLOW, "tensor ");
        ferry_plan_destroy(plan);
    }
}

static void buckets_refuse(void **state) {
    (void)state;
    ferry_chunks_t *chunks = three(1, 1, 1);
    ferry_buckets_t *buckets = NULL;
    ferry_buckets_params_t params = FERRY_BUCKETS_PARAMS_INIT;
    assert_fails(ferry_buckets_create(NULL, &params, &buckets, &err), INVALID, "chunks is NULL");
    assert_fails(ferry_buckets_create(chunks, &params, NULL, &err), INVALID, "buckets_p is NULL");
    assert_fails(ferry_buckets_create(chunks, NULL, &buckets, &err), INVALID,
                 "FERRY_BUCKETS_PARAMS_INIT");
    params.size++;
    assert_fails(ferry_buckets_create(chunks, &params, &buckets, &err), INVALID, "of size");
    params.size--;
    params.first = 4;
    assert_fails(ferry_buckets_create(chunks, &params, &buckets, &err), INVALID,
                 "0 chunks from number 4 on, of 3");
    params.first = 1;
    params.count = 3;
    assert_fails(ferry_buckets_create(chunks, &params, &buckets, &err), INVALID,
                 "3 chunks from number 1 on, of 3");
    params.count = SIZE_MAX;
    assert_fails(ferry_buckets_create(chunks, &params, &buckets, &err), INVALID, "of 3");
    ferry_chunks_destroy(chunks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_source_target_or_both),
        cmocka_unit_test(transfers_are_cut_into_rows),
        cmocka_unit_test(rows_lie_along_the_first_dim_that_is_longer_than_one),
        cmocka_unit_test(one_long_dim_is_cut_at_multiples_of_32),
        cmocka_unit_test(chunks_say_whether_smaller_slabs_would_cut_them),
        cmocka_unit_test(chunks_come_by_tensor_slab_and_task),
        cmocka_unit_test(only_marked_tensors_are_cut),
        cmocka_unit_test(the_task_id_is_the_transfers),
        cmocka_unit_test(the_wire_dtype_follows_the_rule_or_the_wish),
        cmocka_unit_test(slabs_are_measured_in_the_wire_dtype),
        cmocka_unit_test(members_and_owners_share_cells),
        cmocka_unit_test(cells_are_cut_like_chunks),
        cmocka_unit_test(two_axes_of_sums_are_one_group),
        cmocka_unit_test(equal_groups_of_other_layouts_are_one_partial),
        cmocka_unit_test(a_group_of_one_sums_nothing_up),
        cmocka_unit_test(buckets_hold_eight_mebibytes),
        cmocka_unit_test(buckets_keep_peers_and_lanes_apart),
        cmocka_unit_test(buckets_of_sums),
        cmocka_unit_test(chunks_refuse),
        cmocka_unit_test(too_many_chunks_are_refused),
        cmocka_unit_test(buckets_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
