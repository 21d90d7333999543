/* test_rules_store.c - where shards lie in the tensors of a rank's file.
 *
 * Values are made of a tensor's number and global indices. A file is filled through the parts of its store,
 * and every element must be written exactly once. What fused, stacked and interleaved tensors must then hold
 * is worked out here from the intervals that the rank holds, head by head and row by row. */
#include "rules_rig.h"

enum { HEAD = 4, HIDDEN = 10, FFN = 11, LAYERS = 3 };

/* ---- a rank's file ----------------------------------------------------------------------------- */

typedef struct file {
    const ferry_tensor_t *tensors;
    size_t ntensors;
    const ferry_stored_t *stored;
    size_t nstored;
    uint64_t **values; /* per stored tensor */
    ferry_tensor_set_t *set;
    ferry_store_t *store;
    uint32_t rank;
} file_t;

typedef struct rows {
    uint64_t at[512];
    size_t count;
} rows_t;

/* The global indices of a dim that the rank holds, in its order. */
static rows_t held(const file_t *file, const ferry_tensor_t *tensor, uint32_t dim) {
    ferry_interval_t intervals[64];
    size_t count = 0;
    rows_t rows = {.count = 0};
    assert_int_equal(ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, file->rank,
                                            dim, intervals, 64, &count, NULL),
                     FERRY_OK);
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++) {
        for (uint64_t at = intervals[i].lo; at < intervals[i].hi; at++) {
            assert_true(rows.count < 512);
            rows.at[rows.count++] = at;
        }
    }
    return rows;
}

static uint64_t value_of(uint64_t tensor, uint64_t row, uint64_t column) {
    return ((tensor + 1) << 32) + (row << 16) + column;
}

static uint64_t elements(uint32_t ndim, const uint64_t *shape) {
    uint64_t product = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        product *= shape[d];
    }
    return product;
}

/* Writes the box of a part, and counts what it has of the shard in `seen`. */
static void write_part(file_t *file, const ferry_stored_part_t *part, const rows_t *rows,
                       const rows_t *columns, uint8_t *seen) {
    uint64_t room = elements(file->stored[part->stored].ndim, file->stored[part->stored].shape);
    uint64_t width = part->ndim > 1 ? part->extent[1] : 1;
    assert_true(part->extent[0] > 0 && width > 0);
    for (uint64_t r = 0; r < part->extent[0]; r++) {
        for (uint64_t c = 0; c < width; c++) {
            uint64_t row = part->lo[0] + r;
            uint64_t column = (part->ndim > 1 ? part->lo[1] : 0) + c;
            assert_true(row < rows->count && column < columns->count);
            uint64_t at = part->first + r * (uint64_t)part->strides[0] +
                          (part->ndim > 1 ? c * (uint64_t)part->strides[1] : 0);
            assert_true(at < room);
            assert_int_equal(file->values[part->stored][at], 0);
            file->values[part->stored][at] =
                value_of(part->tensor, rows->at[row], columns->at[column]);
            assert_int_equal(seen[row * columns->count + column]++, 0);
        }
    }
}

static void write_shard(file_t *file, uint32_t index, const ferry_stored_part_t **part,
                        const ferry_stored_part_t *end) {
    const ferry_tensor_t *tensor = &file->tensors[index];
    rows_t rows = held(file, tensor, 0);
    rows_t columns = {.at = {0}, .count = rows.count > 0 ? 1 : 0};
    if (tensor->ndim > 1) {
        columns = held(file, tensor, 1);
    }
    size_t count = rows.count * columns.count;
    uint8_t *seen = calloc(count + 1, 1);
    assert_non_null(seen);
    for (; *part < end && (*part)->tensor == index; (*part)++) {
        assert_int_equal((*part)->ndim, tensor->ndim);
        write_part(file, *part, &rows, &columns, seen);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(seen[i], 1);
    }
    free(seen);
}

/* Places, stores and fills the file of a rank. */
static void open_file(file_t *file, rig_t *rig, const ferry_rules_t *rules, const char *form,
                      ferry_tensor_set_t *set, uint32_t rank) {
    *file = (file_t){.set = set, .rank = rank};
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_store(rules, form, &rig->params, set, rank, &file->store, &err) != FERRY_OK) {
        fail_msg("rank %u, form %s: %s %s", rank, form, err.tensor, err.text);
    }
    file->tensors = ferry_tensor_set_tensors(set, &file->ntensors);
    file->stored = ferry_store_tensors(file->store, &file->nstored);
    file->values = calloc(file->nstored + 1, sizeof *file->values);
    assert_non_null(file->values);
    for (size_t i = 0; i < file->nstored; i++) {
        uint64_t count = elements(file->stored[i].ndim, file->stored[i].shape);
        file->values[i] = calloc(count + 1, sizeof(uint64_t));
        assert_non_null(file->values[i]);
        assert_true(i == 0 || strcmp(file->stored[i - 1].name, file->stored[i].name) < 0);
        assert_int_equal(file->stored[i].dtype, FERRY_BF16);
    }
    size_t nparts = 0;
    const ferry_stored_part_t *part = ferry_store_parts(file->store, &nparts);
    const ferry_stored_part_t *end = part + nparts;
    for (uint32_t t = 0; t < file->ntensors; t++) {
        write_shard(file, t, &part, end);
    }
    assert_ptr_equal(part, end);
    for (size_t i = 0; i < file->nstored; i++) {
        uint64_t count = elements(file->stored[i].ndim, file->stored[i].shape);
        for (uint64_t e = 0; e < count; e++) {
            assert_int_not_equal(file->values[i][e], 0);
        }
    }
}

static void close_file(file_t *file) {
    for (size_t i = 0; i < file->nstored; i++) {
        free(file->values[i]);
    }
    free(file->values);
    ferry_store_destroy(file->store);
}

/* The stored tensor of this name, or -1. */
static int find_stored(const file_t *file, const char *name) {
    for (size_t i = 0; i < file->nstored; i++) {
        if (strcmp(file->stored[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* The number of the tensor, which must be there. */
static uint32_t find_tensor(const file_t *file, const char *name) {
    for (size_t i = 0; i < file->ntensors; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return (uint32_t)i;
        }
    }
    fail_msg("no tensor %s", name);
    return 0;
}

/* ---- what must be in it ------------------------------------------------------------------------ */

/* Reads a stored tensor row by row. */
typedef struct checker {
    const file_t *file;
    const uint64_t *at;
    const uint64_t *end;
} checker_t;

static checker_t check(const file_t *file, const char *name) {
    int index = find_stored(file, name);
    if (index < 0) {
        fail_msg("rank %u has no %s", file->rank, name);
    }
    const ferry_stored_t *stored = &file->stored[index];
    return (checker_t){file, file->values[index],
                       file->values[index] + elements(stored->ndim, stored->shape)};
}

static void expect_row(checker_t *checker, uint32_t tensor, uint64_t row) {
    const ferry_tensor_t *t = &checker->file->tensors[tensor];
    rows_t columns = {.at = {0}, .count = 1};
    if (t->ndim > 1) {
        columns = held(checker->file, t, 1);
    }
    for (size_t c = 0; c < columns.count; c++) {
        assert_true(checker->at < checker->end);
        assert_int_equal(*checker->at++, value_of(tensor, row, columns.at[c]));
    }
}

static void expect_rows(checker_t *checker, const char *name) {
    uint32_t tensor = find_tensor(checker->file, name);
    rows_t rows = held(checker->file, &checker->file->tensors[tensor], 0);
    for (size_t i = 0; i < rows.count; i++) {
        expect_row(checker, tensor, rows.at[i]);
    }
}

static void expect_end(const checker_t *checker) {
    assert_ptr_equal(checker->at, checker->end);
}

/* Rows of a tensor that the rank holds inside [lo, hi). */
static void expect_between(checker_t *checker, const char *name, uint64_t lo, uint64_t hi) {
    uint32_t tensor = find_tensor(checker->file, name);
    rows_t rows = held(checker->file, &checker->file->tensors[tensor], 0);
    for (size_t i = 0; i < rows.count; i++) {
        if (rows.at[i] >= lo && rows.at[i] < hi) {
            expect_row(checker, tensor, rows.at[i]);
        }
    }
}

static void check_qkv(const file_t *file, uint32_t layer, uint64_t heads, uint64_t kv_heads,
                      const char *leaf) {
    char name[3][128];
    char target[128];
    for (int i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "model.layers.%u.self_attn.%c_proj.%s", layer, "qkv"[i],
                 leaf);
    }
    snprintf(target, sizeof target, "model.layers.%u.self_attn.qkv_proj.%s", layer, leaf);
    if (find_stored(file, target) >= 0) {
        checker_t checker = check(file, target);
        for (int i = 0; i < 3; i++) {
            expect_rows(&checker, name[i]);
        }
        expect_end(&checker);
    }
    snprintf(target, sizeof target, "decoder.layers.%u.self_attention.linear_qkv.%s", layer, leaf);
    if (find_stored(file, target) >= 0) {
        checker_t checker = check(file, target);
        uint64_t group = HEAD * heads / kv_heads;
        for (uint64_t g = 0; g < kv_heads; g++) {
            expect_between(&checker, name[0], g * group, (g + 1) * group);
            expect_between(&checker, name[1], g * HEAD, (g + 1) * HEAD);
            expect_between(&checker, name[2], g * HEAD, (g + 1) * HEAD);
        }
        expect_end(&checker);
    }
}

static void check_pair(const file_t *file, const char *target, const char *a, const char *b) {
    if (find_stored(file, target) >= 0) {
        checker_t checker = check(file, target);
        expect_rows(&checker, a);
        expect_rows(&checker, b);
        expect_end(&checker);
    }
}

/* ---- models ------------------------------------------------------------------------------------ */

typedef struct small {
    const char *rules;
    const char *moe;              /* below the layer; NULL: dense */
    const char *gate, *up, *down; /* of an expert */
    uint64_t heads, kv_heads, experts;
} small_t;

static const small_t smalls[] = {
    {"llama", NULL, NULL, NULL, NULL, 6, 3, 0},
    {"llama", NULL, NULL, NULL, NULL, 10, 2, 0},
    {"llama", NULL, NULL, NULL, NULL, 4, 4, 0},
    {"qwen3-moe", "mlp", "gate_proj", "up_proj", "down_proj", 8, 2, 5},
    {"mixtral", "block_sparse_moe", "w1", "w3", "w2", 6, 2, 4},
};

static void add_small(rig_t *rig, const small_t *small) {
    rig_number(rig, "num_hidden_layers", LAYERS);
    rig_number(rig, "num_attention_heads", small->heads);
    rig_number(rig, "num_key_value_heads", small->kv_heads);
    rig_number(rig, "head_dim", HEAD);
    rig_tensor(rig, 17, HIDDEN, "model.embed_tokens.weight");
    rig_tensor(rig, HIDDEN, 0, "model.norm.weight");
    for (int l = 0; l < LAYERS; l++) {
        rig_tensor(rig, HIDDEN, 0, "model.layers.%d.input_layernorm.weight", l);
        rig_tensor(rig, HIDDEN, 0, "model.layers.%d.post_attention_layernorm.weight", l);
        for (int i = 0; i < 3; i++) {
            uint64_t rows = HEAD * (i == 0 ? small->heads : small->kv_heads);
            rig_tensor(rig, rows, HIDDEN, "model.layers.%d.self_attn.%c_proj.weight", l, "qkv"[i]);
            rig_tensor(rig, rows, 0, "model.layers.%d.self_attn.%c_proj.bias", l, "qkv"[i]);
        }
        rig_tensor(rig, HIDDEN, HEAD * small->heads, "model.layers.%d.self_attn.o_proj.weight", l);
        if (small->moe == NULL) {
            rig_tensor(rig, FFN, HIDDEN, "model.layers.%d.mlp.gate_proj.weight", l);
            rig_tensor(rig, FFN, HIDDEN, "model.layers.%d.mlp.up_proj.weight", l);
            rig_tensor(rig, HIDDEN, FFN, "model.layers.%d.mlp.down_proj.weight", l);
            continue;
        }
        rig_tensor(rig, small->experts, HIDDEN, "model.layers.%d.%s.gate.weight", l, small->moe);
        for (unsigned e = 0; e < small->experts; e++) {
            const char *names[] = {small->gate, small->up, small->down};
            for (int i = 0; i < 3; i++) {
                rig_tensor(rig, i < 2 ? FFN : HIDDEN, i < 2 ? HIDDEN : FFN,
                           "model.layers.%d.%s.experts.%u.%s.weight", l, small->moe, e, names[i]);
            }
        }
    }
}

/* Stacked and separate experts of a layer, in order of what the rank holds. */
static void check_experts(const file_t *file, const small_t *small, uint32_t layer) {
    char target[128];
    snprintf(target, sizeof target, "model.layers.%u.%s.experts.w13_weight", layer, small->moe);
    bool stacked = find_stored(file, target) >= 0;
    checker_t w13 = {NULL, NULL, NULL};
    checker_t w2 = {NULL, NULL, NULL};
    if (stacked) {
        w13 = check(file, target);
        snprintf(target, sizeof target, "model.layers.%u.%s.experts.w2_weight", layer, small->moe);
        w2 = check(file, target);
        assert_int_equal(file->stored[find_stored(file, target)].ndim, 3);
    }
    for (unsigned e = 0; e < small->experts; e++) {
        char name[3][128];
        const char *leaf[] = {small->gate, small->up, small->down};
        for (int i = 0; i < 3; i++) {
            snprintf(name[i], sizeof name[i], "model.layers.%u.%s.experts.%u.%s.weight", layer,
                     small->moe, e, leaf[i]);
        }
        snprintf(target, sizeof target,
                 "decoder.layers.%u.mlp.experts.local_experts.%u.linear_fc1.weight", layer, e);
        check_pair(file, target, name[0], name[1]);
        if (stacked) {
            expect_rows(&w13, name[0]);
            expect_rows(&w13, name[1]);
            expect_rows(&w2, name[2]);
        }
    }
    if (stacked) {
        expect_end(&w13);
        expect_end(&w2);
    }
}

static void check_file(const file_t *file, const small_t *small, const char *form) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        check_qkv(file, l, small->heads, small->kv_heads, "weight");
        check_qkv(file, l, small->heads, small->kv_heads, "bias");
        if (small->moe != NULL) {
            check_experts(file, small, l);
            continue;
        }
        char target[128];
        char gate[128];
        char up[128];
        snprintf(gate, sizeof gate, "model.layers.%u.mlp.gate_proj.weight", l);
        snprintf(up, sizeof up, "model.layers.%u.mlp.up_proj.weight", l);
        snprintf(target, sizeof target, "model.layers.%u.mlp.gate_up_proj.weight", l);
        check_pair(file, target, gate, up);
        snprintf(target, sizeof target, "decoder.layers.%u.mlp.linear_fc1.weight", l);
        check_pair(file, target, gate, up);
    }
    bool hf = strcmp(form, "hf") == 0;
    bool megatron = strcmp(form, "megatron") == 0;
    for (size_t i = 0; i < file->nstored; i++) {
        const char *name = file->stored[i].name;
        assert_true(!megatron || strncmp(name, "model.", 6) != 0);
        assert_true(hf || strstr(name, "gate_proj") == NULL);
        assert_true(hf || strstr(name, "k_proj") == NULL);
    }
}

static const char *const specs[] = {
    "tp=1",
    "tp=2,pp=2",
    "tp=3,dp=2",
    "tp=4,pp=3",
    "tp=5",
    "tp=6,cp=2",
    "tp=8",
    "tp=12",
    "tp=13",
    "tp=2,dp=2,ep=2,etp=2",
    "tp=2,dp=2,ep=4,pp=2",
    "tp=3,dp=2,ep=3,etp=2",
    "tp=1,dp=5,ep=5,order=dp-ep-tp-cp-pp",
    "tp=4,etp=4",
};

/* The files of all ranks, in the form hf, must lead back to the set. */
static void check_gather(rig_t *rig, const ferry_rules_t *rules, const ferry_tensor_set_t *set,
                         uint32_t world) {
    ferry_rank_tensors_t *files = calloc(world, sizeof *files);
    ferry_store_t **stores = calloc(world, sizeof(ferry_store_t *));
    assert_true(files != NULL && stores != NULL);
    for (uint32_t rank = 0; rank < world; rank++) {
        assert_int_equal(
            ferry_rules_store(rules, "hf", &rig->params, set, rank, &stores[rank], NULL), FERRY_OK);
        const ferry_stored_t *stored = ferry_store_tensors(stores[rank], &files[rank].ntensors);
        ferry_whole_t *tensors = calloc(files[rank].ntensors + 1, sizeof *tensors);
        assert_non_null(tensors);
        for (size_t i = 0; i < files[rank].ntensors; i++) {
            tensors[i] =
                (ferry_whole_t){stored[i].name, stored[i].dtype, stored[i].ndim, stored[i].shape};
        }
        files[rank].tensors = tensors;
    }
    ferry_tensor_set_t *found = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_gather(rules, &rig->params, files, world, &found, &err) != FERRY_OK) {
        fail_msg("%s: %s", err.tensor, err.text);
    }
    size_t count = 0;
    size_t other = 0;
    const ferry_tensor_t *a = ferry_tensor_set_tensors(set, &count);
    const ferry_tensor_t *b = ferry_tensor_set_tensors(found, &other);
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(a[i].name, b[i].name);
        assert_true(ferry_layout_equal(a[i].layout, b[i].layout));
        assert_memory_equal(a[i].shape, b[i].shape, a[i].ndim * sizeof a[i].shape[0]);
    }
    ferry_tensor_set_destroy(found);
    found = NULL;
    assert_int_equal(ferry_rules_gather(rules, &rig->params, files, world + 1, &found, &err),
                     FERRY_INVALID);
    if (files[world - 1].ntensors > 0) {
        /* A file that lacks a tensor is noticed, unless nobody else has it either. */
        const char *name = files[world - 1].tensors[--files[world - 1].ntensors].name;
        while (strcmp(a->name, name) != 0) {
            a++;
        }
        ferry_error_clear(&err);
        ferry_status_t status = ferry_rules_gather(rules, &rig->params, files, world, &found, &err);
        bool alone = ferry_layout_nranks(a->layout) == 1;
        assert_true(alone ? status == FERRY_OK : err.rank == world - 1);
        ferry_tensor_set_destroy(found);
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        ferry_whole_t *tensors = NULL;
        memcpy(&tensors, &files[rank].tensors, sizeof(void *));
        free(tensors);
        ferry_store_destroy(stores[rank]);
    }
    free(files);
    free(stores);
}

/* A spec that does not suit the model is none of this test's business. */
static uint32_t check_spec(rig_t *rig, const small_t *small, const ferry_rules_t *rules,
                           const char *spec) {
    ferry_tensor_set_t *set = NULL;
    uint32_t world = 0;
    if (ferry_rules_place(rules, rig_params(rig, spec), &set, NULL) != FERRY_OK) {
        return 0;
    }
    assert_int_equal(ferry_parallel_world(rig->params.parallel, &world, NULL), FERRY_OK);
    check_gather(rig, rules, set, world);
    for (size_t f = 0; f < ferry_rules_nforms(rules); f++) {
        for (uint32_t rank = 0; rank < world; rank++) {
            file_t file;
            open_file(&file, rig, rules, ferry_rules_form(rules, f), set, rank);
            check_file(&file, small, ferry_rules_form(rules, f));
            if (f == 1 && rank == 0) {
                assert_true(find_stored(&file, "model.layers.0.self_attn.qkv_proj.weight") >= 0);
            }
            if (f == 2 && rank == 0) {
                assert_true(find_stored(&file, "decoder.layers.0.self_attention.linear_qkv.bias") >=
                            0);
                assert_true(find_stored(&file, "embedding.word_embeddings.weight") >= 0);
            }
            close_file(&file);
        }
    }
    ferry_tensor_set_destroy(set);
    return 1;
}

static void test_files_hold_every_shard_once(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof smalls / sizeof smalls[0]; m++) {
        rig_t rig;
        rig_init(&rig);
        add_small(&rig, &smalls[m]);
        ferry_rules_t *rules = rig_rules(smalls[m].rules);
        assert_int_equal(ferry_rules_nforms(rules), 3);
        assert_string_equal(ferry_rules_form(rules, 0), "hf");
        assert_string_equal(ferry_rules_form(rules, 1), "vllm");
        assert_string_equal(ferry_rules_form(rules, 2), "megatron");
        uint32_t done = 0;
        for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
            done += check_spec(&rig, &smalls[m], rules, specs[s]);
        }
        assert_true(done >= 5);
        ferry_rules_destroy(rules);
        rig_fini(&rig);
    }
}

/* A number of 0 .. bound - 1. */
static uint32_t draw(uint64_t *rng, uint32_t bound) {
    *rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*rng >> 33) % bound;
}

/* FERRY_SEED=s tries only that case; the last one that is printed is the one that failed. */
static void test_random_models_and_specs(void **state) {
    (void)state;
    const char *only = getenv("FERRY_SEED");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t last = only != NULL ? first : 150;
    uint32_t done = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        uint64_t rng = seed;
        (void)draw(&rng, 1);
        small_t small = smalls[draw(&rng, 2) == 0 ? 0 : 3 + draw(&rng, 2)];
        small.kv_heads = 1 + draw(&rng, 4);
        small.heads = small.kv_heads * (1 + draw(&rng, 5));
        small.experts = small.moe != NULL ? 1 + draw(&rng, 6) : 0;
        static const char *const orders[] = {"tp-cp-ep-dp-pp", "pp-dp-ep-tp-cp", "ep-tp-pp-cp-dp"};
        uint32_t tp = 1 + draw(&rng, 9);
        uint32_t dp = 1 + draw(&rng, 3);
        uint32_t ep = small.moe != NULL ? 1 + draw(&rng, 3) : 1;
        uint32_t etp = small.moe != NULL ? 1 + draw(&rng, 3) : 1;
        dp *= tp * dp % (ep * etp) == 0 ? 1 : ep * etp;
        char spec[128];
        snprintf(spec, sizeof spec, "tp=%u,pp=%u,dp=%u,ep=%u,etp=%u,order=%s", tp,
                 1 + draw(&rng, LAYERS), dp, ep, etp, orders[draw(&rng, 3)]);
        print_message("FERRY_SEED=%llu %s %s\n", (unsigned long long)seed, small.rules, spec);
        rig_t rig;
        rig_init(&rig);
        add_small(&rig, &small);
        ferry_rules_t *rules = rig_rules(small.rules);
        done += check_spec(&rig, &small, rules, spec);
        ferry_rules_destroy(rules);
        rig_fini(&rig);
    }
    assert_true(only != NULL || done > 75);
}

/* ---- latent attention, stacks in part ---------------------------------------------------------- */

static void test_deepseek_files(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    ferry_rules_t *rules = rig_rules("deepseek-v3");
    rig_number(&rig, "num_hidden_layers", 1);
    rig_number(&rig, "n_routed_experts", 3);
    rig_tensor(&rig, 6, 7, "model.layers.0.self_attn.q_a_proj.weight");
    rig_tensor(&rig, 5, 7, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
    rig_tensor(&rig, 5, 7, "model.layers.0.mlp.shared_experts.gate_proj.weight");
    rig_tensor(&rig, 5, 7, "model.layers.0.mlp.shared_experts.up_proj.weight");
    for (int e = 0; e < 3; e++) {
        rig_tensor(&rig, 5, 7, "model.layers.0.mlp.experts.%d.gate_proj.weight", e);
        rig_tensor(&rig, 5, 7, "model.layers.0.mlp.experts.%d.up_proj.weight", e);
        rig_tensor(&rig, 7, 5, "model.layers.0.mlp.experts.%d.down_proj.weight", e);
        rig_tensor(&rig, 1, 1, "model.layers.0.mlp.experts.%d.down_proj.weight_scale_inv", e);
    }
    rig_tensor(&rig, 7, 14, "model.layers.1.eh_proj.weight");
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=4,ep=2,etp=2");
    for (uint32_t rank = 0; rank < 4; rank++) {
        file_t file;
        open_file(&file, &rig, rules, "vllm", set, rank);
        check_pair(&file, "model.layers.0.self_attn.fused_qkv_a_proj.weight",
                   "model.layers.0.self_attn.q_a_proj.weight",
                   "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
        int w13 = find_stored(&file, "model.layers.0.mlp.experts.w13_weight");
        int w2 = find_stored(&file, "model.layers.0.mlp.experts.w2_weight");
        assert_true(w13 >= 0 && w2 >= 0);
        /* Experts 0 and 1, then 2; 5 columns cut as 3 and 2. */
        uint64_t ffn = rank % 2 == 0 ? 3 : 2;
        assert_int_equal(file.stored[w13].shape[0], rank < 2 ? 2 : 1);
        assert_int_equal(file.stored[w13].shape[1], 2 * ffn);
        assert_int_equal(file.stored[w13].shape[2], 7);
        assert_int_equal(file.stored[w2].shape[1], 7);
        assert_int_equal(file.stored[w2].shape[2], ffn);
        close_file(&file);
        open_file(&file, &rig, rules, "megatron", set, rank);
        check_pair(&file, "decoder.layers.0.mlp.shared_experts.linear_fc1.weight",
                   "model.layers.0.mlp.shared_experts.gate_proj.weight",
                   "model.layers.0.mlp.shared_experts.up_proj.weight");
        assert_true(
            find_stored(&file, "decoder.layers.0.self_attention.linear_kv_down_proj.weight") >= 0);
        assert_true(find_stored(&file, "model.layers.1.eh_proj.weight") >= 0);
        close_file(&file);
    }
    /* A rank that holds nothing has an empty file. */
    file_t file;
    open_file(&file, &rig, rules, "vllm", set, 4);
    assert_int_equal(file.nstored, 0);
    close_file(&file);
    ferry_tensor_set_destroy(set);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

/* ---- own forms --------------------------------------------------------------------------------- */

static const char own_text[] = "rules own\n"
                               "tensor (a|b).{expert} etp 0 on first\n"
                               "tensor (c|d|e|f|g|h) whole on first\n"
                               "form turned\n"
                               "stored s = stack concat 1 transposed a.{expert} b.{expert}\n"
                               "stored t = transposed c\n"
                               "form woven\n"
                               "stored w = interleave 1 transposed d by two e by 3\n"
                               "form twice\n"
                               "stored x = c\n"
                               "stored y = c\n"
                               "form same\n"
                               "stored x = c\n"
                               "stored x = d\n"
                               "form clash\n"
                               "stored c = d\n"
                               "form uneven\n"
                               "stored x = concat 0 c g\n"
                               "form flat\n"
                               "stored x = transposed f\n"
                               "form deep\n"
                               "stored x = concat 2 c d\n"
                               "form zero\n"
                               "stored x = interleave 0 c by zero d by 1\n"
                               "form short\n"
                               "stored x = concat 0 c h\n";

static void add_own(rig_t *rig) {
    rig_number(rig, "two", 2);
    rig_number(rig, "zero", 0);
    for (int e = 0; e < 2; e++) {
        rig_tensor(rig, 3, 4, "a.%d", e);
        rig_tensor(rig, 5, 4, "b.%d", e);
    }
    rig_tensor(rig, 3, 5, "c");
    rig_tensor(rig, 5, 2, "d");
    rig_tensor(rig, 7, 2, "e");
    rig_tensor(rig, 7, 0, "f");
    rig_tensor(rig, 7, 6, "g");
}

static uint64_t stored_value(const file_t *file, const char *name, uint64_t index) {
    int found = find_stored(file, name);
    assert_true(found >= 0);
    return file->values[found][index];
}

static void test_turned_and_woven(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    add_own(&rig);
    ferry_rules_t *rules = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_parse(own_text, "own", &rules, &err) != FERRY_OK) {
        fail_msg("%s", err.text);
    }
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=2,etp=2");
    file_t file;
    open_file(&file, &rig, rules, "turned", set, 1);
    /* Rank 1 has row 2 of a and rows 3, 4 of b: s is 2 experts x 4 x 3. */
    uint32_t a1 = find_tensor(&file, "a.1");
    uint32_t b1 = find_tensor(&file, "b.1");
    uint32_t c = find_tensor(&file, "c");
    assert_int_equal(file.stored[find_stored(&file, "s")].ndim, 3);
    for (uint64_t column = 0; column < 4; column++) {
        uint64_t at = 12 + 3 * column;
        assert_int_equal(stored_value(&file, "s", at), value_of(a1, 2, column));
        assert_int_equal(stored_value(&file, "s", at + 1), value_of(b1, 3, column));
        assert_int_equal(stored_value(&file, "s", at + 2), value_of(b1, 4, column));
    }
    assert_int_equal(file.stored[find_stored(&file, "t")].shape[0], 5);
    assert_int_equal(stored_value(&file, "t", 3 * 4 + 1), value_of(c, 1, 4));
    close_file(&file);

    open_file(&file, &rig, rules, "woven", set, 0);
    uint32_t d = find_tensor(&file, "d");
    uint32_t e = find_tensor(&file, "e");
    /* d by 2, e by 3: d0 d1 e0 e1 e2 d2 d3 e3 e4 e5 d4 e6 */
    const struct {
        uint32_t tensor;
        uint64_t row;
    } order[] = {{d, 0}, {d, 1}, {e, 0}, {e, 1}, {e, 2}, {d, 2},
                 {d, 3}, {e, 3}, {e, 4}, {e, 5}, {d, 4}, {e, 6}};
    for (uint64_t i = 0; i < 12; i++) {
        assert_int_equal(stored_value(&file, "w", 12 + i),
                         value_of(order[i].tensor, order[i].row, 1));
    }
    close_file(&file);
    ferry_tensor_set_destroy(set);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

static void test_forms_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *form, *says, *tensor;
    } cases[] = {
        {"none", "rules own have no form \"none\"", ""},
        {"twice", "two statements of form twice store it, in line 10 and 11", "c"},
        {"same", "two tensors of the file would have this name", "x"},
        {"clash", "two tensors of the file would have this name", "c"},
        {"uneven", "its shape does not fit its neighbour's, so x of form uneven in line 18", "g"},
        {"flat", "it has too few or too many dims", "f"},
        {"deep", "it has too few or too many dims", "c"},
        {"zero", "line 24: a length: it is 0", ""},
        {"short", "x needs h, which is not there", ""},
    };
    rig_t rig;
    rig_init(&rig);
    add_own(&rig);
    ferry_rules_t *rules = NULL;
    assert_int_equal(ferry_rules_parse(own_text, "own", &rules, NULL), FERRY_OK);
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=1");
    ferry_store_t *store = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status =
            ferry_rules_store(rules, cases[i].form, &rig.params, set, 0, &store, &err);
        if (status != FERRY_INVALID || strstr(err.text, cases[i].says) == NULL) {
            fail_msg("%s: %d %s", cases[i].form, (int)status, err.text);
        }
        assert_string_equal(err.tensor, cases[i].tensor);
        assert_null(store);
    }
    ferry_tensor_set_destroy(set);
    /* What is needed changes with the config and with the tensors. */
    rig.config[0].key = "three";
    rig.tensors[1].dtype = FERRY_F32;
    set = rig_place(&rig, rules, "tp=1");
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(ferry_rules_store(rules, "woven", &rig.params, set, 0, &store, &err),
                     FERRY_INVALID);
    assert_non_null(strstr(err.text, "line 8: \"two\" is not in config.json"));
    assert_int_equal(ferry_rules_store(rules, "turned", &rig.params, set, 0, &store, &err),
                     FERRY_INVALID);
    assert_non_null(strstr(err.text, "its dtype is not its neighbour's"));
    ferry_tensor_set_destroy(set);
    ferry_store_destroy(NULL);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_hold_every_shard_once),
        cmocka_unit_test(test_random_models_and_specs),
        cmocka_unit_test(test_deepseek_files),
        cmocka_unit_test(test_turned_and_woven),
        cmocka_unit_test(test_forms_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
