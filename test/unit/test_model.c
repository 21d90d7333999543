/* test_model.c - the catalogue, and which rank holds what.
 *
 * Placement is checked twice: with figures written out for known cases, and, for every rank order,
 * against an oracle that decodes rank numbers on its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/model.h>

/* ---- helpers ----------------------------------------------------------------------------------- */

static ferry_parallel_t spec(const char *text) {
    ferry_parallel_t parallel;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_parallel_parse(text, &parallel, &err);
    if (status != FERRY_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    return parallel;
}

static ferry_tensor_set_t *make_at(const char *model, const char *text, uint32_t first_rank) {
    ferry_parallel_t parallel = spec(text);
    ferry_tensor_set_t *set = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_model_tensors(model, FERRY_BF16, &parallel, first_rank, &set, &err) != FERRY_OK) {
        fail_msg("%s %s: %s", model, text, err.text);
    }
    return set;
}

static ferry_tensor_set_t *make(const char *model, const char *text) {
    return make_at(model, text, 0);
}

static int compare_name(const void *key, const void *element) {
    return strcmp(key, ((const ferry_tensor_t *)element)->name);
}

/* By binary search, so it leans on the order too. NULL when there is none. */
static const ferry_tensor_t *look(const ferry_tensor_set_t *set, const char *name) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    return bsearch(name, tensors, count, sizeof *tensors, compare_name);
}

static const ferry_tensor_t *get(const ferry_tensor_set_t *set, const char *name) {
    const ferry_tensor_t *tensor = look(set, name);
    if (tensor == NULL) {
        fail_msg("no tensor %s", name);
    }
    return tensor;
}

/* The one stretch of a dim that a rank holds; {0, 0} when it holds nothing of it. */
static ferry_interval_t held(const ferry_tensor_t *tensor, uint32_t rank, uint32_t dim) {
    ferry_interval_t interval = {0, 0};
    size_t count = 0;
    ferry_status_t status = ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape,
                                                   rank, dim, &interval, 1, &count, NULL);
    assert_int_equal(status, FERRY_OK);
    assert_true(count <= 1);
    return interval;
}

#define assert_held(tensor, rank, dim, from, to)                                                   \
    do {                                                                                           \
        ferry_interval_t interval_ = held(tensor, rank, dim);                                      \
        assert_int_equal(interval_.lo, from);                                                      \
        assert_int_equal(interval_.hi, to);                                                        \
    } while (0)

static void assert_shape(const ferry_tensor_set_t *set, const char *name, uint64_t rows,
                         uint64_t columns) {
    const ferry_tensor_t *tensor = get(set, name);
    assert_int_equal(tensor->ndim, columns > 0 ? 2 : 1);
    assert_int_equal(tensor->shape[0], rows);
    if (columns > 0) {
        assert_int_equal(tensor->shape[1], columns);
    }
}

static void assert_axis(const ferry_tensor_t *tensor, uint32_t axis, const char *name,
                        uint32_t size, ferry_placement_kind_t kind) {
    assert_string_equal(ferry_layout_axis(tensor->layout, axis)->name, name);
    assert_int_equal(ferry_layout_axis(tensor->layout, axis)->size, size);
    assert_int_equal(ferry_layout_placement(tensor->layout, axis)->kind, kind);
}

static void find_info(const char *name, ferry_model_info_t *info_p) {
    for (size_t i = 0; i < ferry_model_count(); i++) {
        assert_int_equal(ferry_model_info(i, info_p, NULL), FERRY_OK);
        if (strcmp(info_p->name, name) == 0) {
            return;
        }
    }
    *info_p = (ferry_model_info_t){.name = name, .summary = ""};
    fail_msg("no model %s", name);
}

/* ---- catalogue --------------------------------------------------------------------------------- */

/* Published totals, with the router bias of DeepSeek-V3 and Kimi K2: 256 or 384 a layer. */
static const struct known {
    const char *name;
    uint64_t parameters;
    uint32_t tensors, layers, experts;
} known[] = {
    {"llama3.2-1b", 1235814400, 146, 16, 0},
    {"llama3-8b", 8030261248, 291, 32, 0},
    {"llama3-70b", 70553706496, 723, 80, 0},
    {"llama3-405b", 405853388800, 1137, 126, 0},
    {"qwen3-8b", 8190735360, 399, 36, 0},
    {"qwen3-32b", 32762123264, 707, 64, 0},
    {"qwen3-30b-a3b", 30532122624, 18867, 48, 128},
    {"qwen3-235b-a22b", 235093634560, 36945, 94, 128},
    {"mixtral-8x7b", 46702792704, 995, 32, 8},
    {"deepseek-v3", 671026404352 + UINT64_C(58) * 256, 45395, 61, 256},
    {"kimi-k2", 1026408232448, 69975, 61, 384},
};

enum { KNOWN = sizeof known / sizeof known[0] };

static void test_info_is_as_published(void **state) {
    (void)state;
    assert_int_equal(ferry_model_count(), KNOWN);
    for (size_t i = 0; i < KNOWN; i++) {
        ferry_model_info_t info;
        find_info(known[i].name, &info);
        assert_int_equal(info.parameters, known[i].parameters);
        assert_int_equal(info.tensors, known[i].tensors);
        assert_int_equal(info.layers, known[i].layers);
        assert_int_equal(info.experts, known[i].experts);
        assert_true(strlen(info.summary) > 0);
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_model_info_t info = {.name = "untouched"};
    assert_int_equal(ferry_model_info(KNOWN, &info, &err), FERRY_INVALID);
    assert_string_equal(info.name, "untouched");
}

static void test_tensors_are_sorted_and_add_up(void **state) {
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        ferry_tensor_set_t *set = make(known[i].name, "tp=4,pp=3,dp=2");
        size_t count = 0;
        const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
        uint64_t parameters = 0;
        for (size_t t = 0; t < count; t++) {
            const ferry_tensor_t *tensor = &tensors[t];
            uint64_t elements = 1;
            for (uint32_t d = 0; d < tensor->ndim; d++) {
                elements *= tensor->shape[d];
            }
            parameters += elements;
            assert_true(t == 0 || strcmp(tensors[t - 1].name, tensor->name) < 0);
            assert_int_equal(ferry_layout_check(tensor->layout, tensor->ndim, tensor->shape, NULL),
                             FERRY_OK);
        }
        assert_int_equal(count, known[i].tensors);
        assert_int_equal(parameters, known[i].parameters);
        ferry_tensor_set_destroy(set);
    }
    ferry_tensor_set_destroy(NULL);
}

static void test_llama_and_qwen_shapes(void **state) {
    (void)state;
    ferry_tensor_set_t *llama = make("llama3-70b", "tp=1");
    assert_shape(llama, "lm_head.weight", 128256, 8192);
    assert_shape(llama, "model.embed_tokens.weight", 128256, 8192);
    assert_shape(llama, "model.norm.weight", 8192, 0);
    assert_shape(llama, "model.layers.79.input_layernorm.weight", 8192, 0);
    assert_shape(llama, "model.layers.79.post_attention_layernorm.weight", 8192, 0);
    assert_shape(llama, "model.layers.0.self_attn.q_proj.weight", 8192, 8192);
    assert_shape(llama, "model.layers.0.self_attn.k_proj.weight", 1024, 8192);
    assert_shape(llama, "model.layers.0.self_attn.v_proj.weight", 1024, 8192);
    assert_shape(llama, "model.layers.0.self_attn.o_proj.weight", 8192, 8192);
    assert_shape(llama, "model.layers.10.mlp.gate_proj.weight", 28672, 8192);
    assert_shape(llama, "model.layers.10.mlp.up_proj.weight", 28672, 8192);
    assert_shape(llama, "model.layers.10.mlp.down_proj.weight", 8192, 28672);
    assert_null(look(llama, "model.layers.80.input_layernorm.weight"));
    assert_null(look(llama, "model.layers.0.self_attn.q_norm.weight"));
    ferry_tensor_set_destroy(llama);

    ferry_tensor_set_t *qwen = make("qwen3-32b", "tp=1");
    assert_shape(qwen, "model.layers.63.self_attn.q_proj.weight", 8192, 5120);
    assert_shape(qwen, "model.layers.63.self_attn.o_proj.weight", 5120, 8192);
    assert_shape(qwen, "model.layers.63.self_attn.q_norm.weight", 128, 0);
    assert_shape(qwen, "model.layers.63.self_attn.k_norm.weight", 128, 0);
    ferry_tensor_set_destroy(qwen);

    ferry_tensor_set_t *moe = make("qwen3-235b-a22b", "tp=1");
    assert_shape(moe, "model.layers.93.mlp.gate.weight", 128, 4096);
    assert_shape(moe, "model.layers.93.mlp.experts.127.gate_proj.weight", 1536, 4096);
    assert_shape(moe, "model.layers.93.mlp.experts.127.up_proj.weight", 1536, 4096);
    assert_shape(moe, "model.layers.93.mlp.experts.127.down_proj.weight", 4096, 1536);
    assert_shape(moe, "model.layers.93.self_attn.k_norm.weight", 128, 0);
    assert_null(look(moe, "model.layers.93.mlp.gate_proj.weight"));
    ferry_tensor_set_destroy(moe);
}

static void test_mixtral_and_deepseek_shapes(void **state) {
    (void)state;
    ferry_tensor_set_t *mixtral = make("mixtral-8x7b", "tp=1");
    assert_shape(mixtral, "model.layers.31.block_sparse_moe.gate.weight", 8, 4096);
    assert_shape(mixtral, "model.layers.31.block_sparse_moe.experts.7.w1.weight", 14336, 4096);
    assert_shape(mixtral, "model.layers.31.block_sparse_moe.experts.7.w2.weight", 4096, 14336);
    assert_shape(mixtral, "model.layers.31.block_sparse_moe.experts.7.w3.weight", 14336, 4096);
    ferry_tensor_set_destroy(mixtral);

    ferry_tensor_set_t *deepseek = make("deepseek-v3", "tp=1");
    assert_shape(deepseek, "model.layers.0.self_attn.q_a_proj.weight", 1536, 7168);
    assert_shape(deepseek, "model.layers.0.self_attn.q_a_layernorm.weight", 1536, 0);
    assert_shape(deepseek, "model.layers.0.self_attn.q_b_proj.weight", 24576, 1536);
    assert_shape(deepseek, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 576, 7168);
    assert_shape(deepseek, "model.layers.0.self_attn.kv_a_layernorm.weight", 512, 0);
    assert_shape(deepseek, "model.layers.0.self_attn.kv_b_proj.weight", 32768, 512);
    assert_shape(deepseek, "model.layers.0.self_attn.o_proj.weight", 7168, 16384);
    assert_shape(deepseek, "model.layers.2.mlp.gate_proj.weight", 18432, 7168);
    assert_null(look(deepseek, "model.layers.3.mlp.gate_proj.weight"));
    assert_null(look(deepseek, "model.layers.2.mlp.gate.weight"));
    assert_shape(deepseek, "model.layers.3.mlp.gate.weight", 256, 7168);
    assert_shape(deepseek, "model.layers.3.mlp.experts.255.down_proj.weight", 7168, 2048);
    assert_shape(deepseek, "model.layers.60.mlp.shared_experts.up_proj.weight", 2048, 7168);
    assert_null(look(deepseek, "model.layers.61.input_layernorm.weight"));
    const ferry_tensor_t *bias = get(deepseek, "model.layers.60.mlp.gate.e_score_correction_bias");
    assert_int_equal(bias->dtype, FERRY_F32);
    assert_int_equal(bias->shape[0], 256);
    assert_int_equal(get(deepseek, "model.layers.60.mlp.gate.weight")->dtype, FERRY_BF16);
    ferry_tensor_set_destroy(deepseek);

    ferry_tensor_set_t *kimi = make("kimi-k2", "tp=1");
    assert_shape(kimi, "model.layers.0.mlp.down_proj.weight", 7168, 18432);
    assert_shape(kimi, "model.layers.1.mlp.experts.383.gate_proj.weight", 2048, 7168);
    assert_shape(kimi, "model.layers.60.self_attn.q_b_proj.weight", 12288, 1536);
    assert_shape(kimi, "model.layers.60.self_attn.o_proj.weight", 7168, 8192);
    assert_shape(kimi, "model.embed_tokens.weight", 163840, 7168);
    ferry_tensor_set_destroy(kimi);
}

/* ---- dense tensors ----------------------------------------------------------------------------- */

static void test_tp8_dp8(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("llama3-70b", "tp=8,dp=8");
    const ferry_tensor_t *embed = get(set, "model.embed_tokens.weight");
    const ferry_tensor_t *head = get(set, "lm_head.weight");
    const ferry_tensor_t *norm = get(set, "model.norm.weight");
    const ferry_tensor_t *q = get(set, "model.layers.7.self_attn.q_proj.weight");
    const ferry_tensor_t *k = get(set, "model.layers.7.self_attn.k_proj.weight");
    const ferry_tensor_t *v = get(set, "model.layers.7.self_attn.v_proj.weight");
    const ferry_tensor_t *o = get(set, "model.layers.7.self_attn.o_proj.weight");
    const ferry_tensor_t *gate = get(set, "model.layers.7.mlp.gate_proj.weight");
    const ferry_tensor_t *up = get(set, "model.layers.7.mlp.up_proj.weight");
    const ferry_tensor_t *down = get(set, "model.layers.7.mlp.down_proj.weight");
    for (uint32_t rank = 0; rank < 64; rank++) {
        uint32_t tp = rank % 8;
        assert_held(embed, rank, 0, 16032 * tp, 16032 * (tp + 1));
        assert_held(embed, rank, 1, 0, 8192);
        assert_held(head, rank, 0, 16032 * tp, 16032 * (tp + 1));
        assert_held(norm, rank, 0, 0, 8192);
        assert_held(q, rank, 0, 1024 * tp, 1024 * (tp + 1));
        assert_held(k, rank, 0, 128 * tp, 128 * (tp + 1));
        assert_held(v, rank, 0, 128 * tp, 128 * (tp + 1));
        assert_held(o, rank, 0, 0, 8192);
        assert_held(o, rank, 1, 1024 * tp, 1024 * (tp + 1));
        assert_held(gate, rank, 0, 3584 * tp, 3584 * (tp + 1));
        assert_held(up, rank, 0, 3584 * tp, 3584 * (tp + 1));
        assert_held(down, rank, 0, 0, 8192);
        assert_held(down, rank, 1, 3584 * tp, 3584 * (tp + 1));
    }
    assert_axis(q, 0, "dp", 8, FERRY_REPLICATE);
    assert_axis(q, 1, "cp", 1, FERRY_REPLICATE);
    assert_axis(q, 2, "tp", 8, FERRY_SHARD);
    assert_int_equal(ferry_layout_placement(q->layout, 2)->unit, 1024);
    assert_int_equal(ferry_layout_nranks(q->layout), 64);
    ferry_tensor_set_destroy(set);
}

static void test_kv_heads_are_replicated(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("llama3-70b", "tp=16");
    const ferry_tensor_t *q = get(set, "model.layers.0.self_attn.q_proj.weight");
    const ferry_tensor_t *k = get(set, "model.layers.0.self_attn.k_proj.weight");
    const ferry_tensor_t *v = get(set, "model.layers.0.self_attn.v_proj.weight");
    const ferry_tensor_t *o = get(set, "model.layers.0.self_attn.o_proj.weight");
    for (uint32_t rank = 0; rank < 16; rank++) {
        uint32_t head = rank / 2; /* ranks 0 and 1 share head 0, 2 and 3 head 1, ... */
        assert_held(k, rank, 0, 128 * head, 128 * (head + 1));
        assert_held(v, rank, 0, 128 * head, 128 * (head + 1));
        assert_held(q, rank, 0, 512 * rank, 512 * (rank + 1));
        assert_held(o, rank, 1, 512 * rank, 512 * (rank + 1));
    }
    assert_axis(k, 2, "tp", 8, FERRY_SHARD);
    assert_axis(k, 3, "tprep", 2, FERRY_REPLICATE);
    ferry_tensor_set_destroy(set);
}

/* Every query head is held, and by ranks that hold its K/V head, however uneven tp is. */
static void test_query_heads_follow_their_kv_head(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 40, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "tp=%u", (unsigned)sizes[i]);
        ferry_tensor_set_t *set = make("llama3-8b", text); /* 32 heads on 8 K/V heads */
        const ferry_tensor_t *q = get(set, "model.layers.0.self_attn.q_proj.weight");
        const ferry_tensor_t *k = get(set, "model.layers.0.self_attn.k_proj.weight");
        const ferry_tensor_t *o = get(set, "model.layers.0.self_attn.o_proj.weight");
        uint64_t heads = 0;
        for (uint32_t rank = 0; rank < sizes[i]; rank++) {
            ferry_interval_t query = held(q, rank, 0);
            ferry_interval_t key = held(k, rank, 0);
            ferry_interval_t out = held(o, rank, 1);
            assert_int_equal(query.lo % 128, 0);
            assert_int_equal(query.hi % 128, 0);
            assert_true(out.lo == query.lo && out.hi == query.hi);
            if (query.hi > query.lo) {
                assert_true(key.lo <= query.lo / 512 * 128);
                assert_true((query.hi - 1) / 512 * 128 + 128 <= key.hi);
            }
            heads += (query.hi - query.lo) / 128;
        }
        assert_int_equal(heads, 32);
        ferry_tensor_set_destroy(set);
    }
}

static void test_latent_attention(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("deepseek-v3", "tp=6"); /* 128 heads: 22 each, last 18 */
    const ferry_tensor_t *q_a = get(set, "model.layers.5.self_attn.q_a_proj.weight");
    const ferry_tensor_t *kv_a = get(set, "model.layers.5.self_attn.kv_a_proj_with_mqa.weight");
    const ferry_tensor_t *q_b = get(set, "model.layers.5.self_attn.q_b_proj.weight");
    const ferry_tensor_t *kv_b = get(set, "model.layers.5.self_attn.kv_b_proj.weight");
    const ferry_tensor_t *o = get(set, "model.layers.5.self_attn.o_proj.weight");
    const ferry_tensor_t *shared = get(set, "model.layers.5.mlp.shared_experts.down_proj.weight");
    const ferry_tensor_t *router = get(set, "model.layers.5.mlp.gate.weight");
    static const uint64_t heads[] = {0, 22, 44, 66, 88, 110, 128};
    static const uint64_t columns[] = {0, 342, 684, 1026, 1368, 1710, 2048}; /* ceil(n / 6) */
    for (uint32_t rank = 0; rank < 6; rank++) {
        assert_held(q_a, rank, 0, 0, 1536);
        assert_held(kv_a, rank, 0, 0, 576);
        assert_held(router, rank, 0, 0, 256);
        assert_held(q_b, rank, 0, 192 * heads[rank], 192 * heads[rank + 1]);
        assert_held(kv_b, rank, 0, 256 * heads[rank], 256 * heads[rank + 1]);
        assert_held(o, rank, 1, 128 * heads[rank], 128 * heads[rank + 1]);
        assert_held(shared, rank, 1, columns[rank], columns[rank + 1]);
    }
    ferry_tensor_set_destroy(set);
}

/* ---- pipeline ---------------------------------------------------------------------------------- */

static void assert_stages(const char *model, uint32_t layers, uint32_t pp, const uint32_t *want) {
    char text[32];
    (void)snprintf(text, sizeof text, "tp=2,pp=%u", (unsigned)pp);
    ferry_tensor_set_t *set = make(model, text);
    uint32_t layer = 0;
    for (uint32_t stage = 0; stage < pp; stage++) {
        for (uint32_t n = 0; n < want[stage]; n++, layer++) {
            char name[80];
            (void)snprintf(name, sizeof name, "model.layers.%u.input_layernorm.weight",
                           (unsigned)layer);
            const ferry_tensor_t *tensor = get(set, name);
            assert_int_equal(ferry_layout_nranks(tensor->layout), 2);
            assert_int_equal(ferry_layout_ranks(tensor->layout)[0], 2 * stage);
        }
    }
    assert_int_equal(layer, layers);
    assert_int_equal(ferry_layout_ranks(get(set, "model.embed_tokens.weight")->layout)[0], 0);
    assert_int_equal(ferry_layout_ranks(get(set, "model.norm.weight")->layout)[0], 2 * (pp - 1));
    assert_int_equal(ferry_layout_ranks(get(set, "lm_head.weight")->layout)[0], 2 * (pp - 1));
    ferry_tensor_set_destroy(set);
}

static void test_stages(void **state) {
    (void)state;
    assert_stages("llama3-70b", 80, 4, (const uint32_t[]){20, 20, 20, 20});
    assert_stages("llama3-405b", 126, 4, (const uint32_t[]){31, 32, 32, 31});
    assert_stages("llama3-405b", 126, 8, (const uint32_t[]){15, 16, 16, 16, 16, 16, 16, 15});
    assert_stages("deepseek-v3", 61, 8, (const uint32_t[]){7, 7, 8, 8, 8, 8, 8, 7});
    assert_stages("llama3-8b", 32, 3, (const uint32_t[]){10, 11, 11});
    assert_stages("llama3-8b", 32, 5, (const uint32_t[]){6, 6, 7, 7, 6});
    uint32_t ones[61];
    for (size_t i = 0; i < 61; i++) {
        ones[i] = 1;
    }
    assert_stages("kimi-k2", 61, 61, ones);
}

/* A tied embedding serves the first stage as a table and the last one as the output layer. */
static void test_tied_embedding(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("llama3.2-1b", "tp=2,pp=4,dp=3");
    assert_null(look(set, "lm_head.weight"));
    const ferry_tensor_t *embed = get(set, "model.embed_tokens.weight");
    assert_int_equal(ferry_layout_nranks(embed->layout), 12);
    assert_axis(embed, 0, "pp", 2, FERRY_REPLICATE);
    for (uint32_t rank = 0; rank < 24; rank++) {
        bool there = rank < 6 || rank >= 18;
        assert_held(embed, rank, 0, there ? 64128 * (rank % 2) : 0,
                    there ? 64128 * (rank % 2 + 1) : 0);
    }
    ferry_tensor_set_destroy(set);

    set = make("llama3.2-1b", "tp=2,dp=3");
    embed = get(set, "model.embed_tokens.weight");
    assert_int_equal(ferry_layout_nranks(embed->layout), 6);
    assert_ptr_equal(embed->layout, get(set, "model.layers.0.mlp.up_proj.weight")->layout);
    ferry_tensor_set_destroy(set);
}

/* ---- experts ----------------------------------------------------------------------------------- */

static const ferry_tensor_t *get_expert(const ferry_tensor_set_t *set, const char *format,
                                        uint32_t layer, uint32_t expert) {
    char name[96];
    int length = 0;
    if (strcmp(format, "w2") == 0 || strcmp(format, "w3") == 0) {
        length =
            snprintf(name, sizeof name, "model.layers.%u.block_sparse_moe.experts.%u.%s.weight",
                     (unsigned)layer, (unsigned)expert, format);
    } else {
        length = snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s.weight",
                          (unsigned)layer, (unsigned)expert, format);
    }
    assert_true(length > 0 && (size_t)length < sizeof name);
    return get(set, name);
}

static void test_deepseek_expert_meshes(void **state) {
    (void)state;
    static const uint32_t first_layer[] = {0, 7, 14, 22, 30, 38, 46, 54, 61};
    ferry_tensor_set_t *set = make("deepseek-v3", "tp=4,pp=8,dp=8,ep=32");
    for (uint32_t stage = 0; stage < 8; stage++) {
        for (uint32_t layer = first_layer[stage]; layer < first_layer[stage + 1]; layer++) {
            char name[80];
            (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.o_proj.weight",
                           (unsigned)layer);
            assert_int_equal(ferry_layout_nranks(get(set, name)->layout), 32);
            if (layer < 3) {
                continue; /* dense */
            }
            uint32_t used[32] = {0};
            for (uint32_t expert = 0; expert < 256; expert++) {
                const ferry_tensor_t *gate = get_expert(set, "gate_proj", layer, expert);
                const ferry_tensor_t *down = get_expert(set, "down_proj", layer, expert);
                assert_int_equal(ferry_layout_nranks(gate->layout), 1);
                assert_int_equal(ferry_layout_ranks(gate->layout)[0], 32 * stage + expert / 8);
                assert_ptr_equal(gate->layout, down->layout); /* etp=1: nothing to tell apart */
                used[expert / 8]++;
            }
            for (uint32_t i = 0; i < 32; i++) {
                assert_int_equal(used[i], 8);
            }
        }
    }
    ferry_tensor_set_destroy(set);
}

static void test_uneven_experts(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("mixtral-8x7b", "dp=6,ep=6"); /* 2 each: 4 ranks are enough */
    for (uint32_t expert = 0; expert < 8; expert++) {
        const ferry_tensor_t *w2 = get_expert(set, "w2", 0, expert);
        assert_int_equal(ferry_layout_nranks(w2->layout), 1);
        assert_int_equal(ferry_layout_ranks(w2->layout)[0], expert / 2);
    }
    ferry_tensor_set_destroy(set);
}

/* ---- rank orders, against an oracle ------------------------------------------------------------ */

enum { O_TP = 2, O_CP = 3, O_PP = 2, O_DP = 4, O_EP = 4, O_ETP = 3, O_EDP = 2, O_WORLD = 48 };

/* The coordinate of `number` on `wanted`, axes counted from the innermost. */
static uint32_t decode(uint32_t number, const char *const *axes, const uint32_t *sizes,
                       size_t count, const char *wanted) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(axes[i], wanted) == 0) {
            return number % sizes[i];
        }
        number /= sizes[i];
    }
    fail_msg("no axis %s", wanted);
    return 0;
}

static uint32_t dense_coordinate(const char *const order[5], uint32_t rank, const char *wanted) {
    uint32_t sizes[5];
    for (size_t i = 0; i < 5; i++) {
        sizes[i] = strcmp(order[i], "tp") == 0   ? O_TP
                   : strcmp(order[i], "cp") == 0 ? O_CP
                   : strcmp(order[i], "dp") == 0 ? O_DP
                   : strcmp(order[i], "pp") == 0 ? O_PP
                                                 : 1;
    }
    return decode(rank, order, sizes, 5, wanted);
}

static uint32_t expert_coordinate(const char *const order[5], uint32_t place, const char *wanted) {
    uint32_t sizes[5];
    for (size_t i = 0; i < 5; i++) {
        sizes[i] = strcmp(order[i], "tp") == 0   ? O_ETP
                   : strcmp(order[i], "ep") == 0 ? O_EP
                   : strcmp(order[i], "dp") == 0 ? O_EDP
                                                 : 1;
    }
    return decode(place, order, sizes, 5, wanted);
}

static void check_order(const char *const order[5]) {
    enum { FIRST = 100, FFN = 14336 };
    char text[96];
    (void)snprintf(text, sizeof text, "tp=2,cp=3,pp=2,dp=4,ep=4,etp=3,order=%s-%s-%s-%s-%s",
                   order[0], order[1], order[2], order[3], order[4]);
    ferry_tensor_set_t *set = make_at("mixtral-8x7b", text, FIRST);
    const ferry_tensor_t *embed = get(set, "model.embed_tokens.weight");
    const ferry_tensor_t *head = get(set, "lm_head.weight");
    uint32_t places[O_PP] = {0};
    uint32_t third = (FFN + 2) / 3;
    for (uint32_t r = 0; r < O_WORLD; r++) {
        uint32_t rank = FIRST + r;
        uint32_t tp = dense_coordinate(order, r, "tp");
        uint32_t pp = dense_coordinate(order, r, "pp");
        const ferry_tensor_t *here = pp == 0 ? embed : head;
        const ferry_tensor_t *there = pp == 0 ? head : embed;
        uint32_t index = 0;
        assert_held(here, rank, 0, 16000 * tp, 16000 * (tp + 1));
        assert_false(ferry_layout_find(there->layout, rank, NULL));
        assert_true(ferry_layout_find(here->layout, rank, &index));
        uint32_t dp = dense_coordinate(order, r, "dp");
        uint32_t cp = dense_coordinate(order, r, "cp");
        assert_int_equal(index, (dp * O_CP + cp) * O_TP + tp);

        uint32_t place = places[pp]++;
        uint32_t ep = expert_coordinate(order, place, "ep");
        uint32_t etp = expert_coordinate(order, place, "tp");
        uint64_t lo = (uint64_t)etp * third;
        uint64_t hi = etp == 2 ? FFN : lo + third;
        for (uint32_t expert = 0; expert < 8; expert++) {
            const ferry_tensor_t *w3 = get_expert(set, "w3", pp == 0 ? 15 : 16, expert);
            const ferry_tensor_t *w2 = get_expert(set, "w2", pp == 0 ? 0 : 31, expert);
            bool mine = expert / 2 == ep;
            assert_int_equal(ferry_layout_nranks(w2->layout), O_EDP * O_ETP);
            assert_int_equal(ferry_layout_find(w2->layout, rank, &index), mine);
            assert_held(w3, rank, 0, mine ? lo : 0, mine ? hi : 0);
            assert_held(w2, rank, 1, mine ? lo : 0, mine ? hi : 0);
            if (mine) {
                assert_int_equal(index, expert_coordinate(order, place, "dp") * O_ETP + etp);
            }
        }
    }
    ferry_tensor_set_destroy(set);
}

/* All 120 orders, by swapping each axis into each place. */
static void check_orders_from(const char *order[5], size_t from) {
    if (from == 5) {
        check_order(order);
        return;
    }
    for (size_t i = from; i < 5; i++) {
        const char *kept = order[from];
        order[from] = order[i];
        order[i] = kept;
        check_orders_from(order, from + 1);
        order[i] = order[from];
        order[from] = kept;
    }
}

static void test_every_order(void **state) {
    (void)state;
    const char *order[5] = {"tp", "cp", "ep", "dp", "pp"};
    check_orders_from(order, 0);
}

/* Default: tp + TP*(cp + CP*(dp + DP*pp)). */
static void test_default_order(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make("llama3-8b", "tp=2,cp=3,pp=4,dp=5");
    const uint32_t *ranks = ferry_layout_ranks(get(set, "lm_head.weight")->layout);
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(ranks[i], 90 + i); /* dp, cp, tp row-major is the rank order itself */
    }
    ferry_tensor_set_destroy(set);
    set = make("llama3-8b", "tp=2,cp=3,pp=4,dp=5,order=pp-dp-cp-tp-ep");
    ranks = ferry_layout_ranks(get(set, "lm_head.weight")->layout);
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t tp = i % 2;
        uint32_t cp = i / 2 % 3;
        uint32_t dp = i / 6;
        assert_int_equal(ranks[i], 3 + 4 * (dp + 5 * (cp + 3 * tp)));
    }
    ferry_tensor_set_destroy(set);
}

/* ---- sharing and refusals ---------------------------------------------------------------------- */

static void assert_layouts(const char *model, const char *text, size_t want) {
    ferry_tensor_set_t *set = make(model, text);
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    const ferry_layout_t *distinct[256];
    size_t ndistinct = 0;
    for (size_t t = 0; t < count; t++) {
        size_t i = 0;
        while (i < ndistinct && distinct[i] != tensors[t].layout) {
            assert_false(ferry_layout_equal(distinct[i], tensors[t].layout));
            i++;
        }
        if (i == ndistinct) {
            assert_true(ndistinct < 256);
            distinct[ndistinct++] = tensors[t].layout;
        }
    }
    assert_int_equal(ndistinct, want);
    ferry_tensor_set_destroy(set);
}

static void test_layouts_are_shared(void **state) {
    (void)state;
    assert_layouts("llama3-70b", "dp=8", 1);
    /* replicated, column, row, query, output, K/V */
    assert_layouts("llama3-70b", "tp=4,dp=8", 6);
    assert_layouts("llama3-70b", "tp=4,pp=4", 24);
    /* mixtral has no dense mlp, so no plain row; columns are the embedding and the output layer */
    assert_layouts("mixtral-8x7b", "tp=4,ep=2,etp=2", 5 + 4); /* 2 coordinates, column and row */
    assert_layouts("mixtral-8x7b", "tp=4,ep=4", 5 + 4);
    assert_layouts("mixtral-8x7b", "pp=2,dp=4,ep=4", 10); /* per stage: dense, and 4 coordinates */
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *model, *text;
        uint32_t first_rank;
        const char *says;
    } cases[] = {
        {"llama3-9b", "tp=1", 0, "unknown model \"llama3-9b\" (known: llama3.2-1b, "},
        {"", "tp=1", 0, "unknown model \"\""},
        {"llama3-8b", "dp=2,ep=2", 0, "llama3-8b has no experts, so ep must be 1, not 2"},
        {"llama3-8b", "tp=2,etp=2", 0, "llama3-8b has no experts, so etp must be 1, not 2"},
        {"mixtral-8x7b", "dp=16,ep=16", 0, "ep=16 exceeds the 8 experts of mixtral-8x7b"},
        {"llama3-8b", "pp=33", 0, "pp=33 exceeds the 32 layers of llama3-8b"},
        {"llama3-70b", "tp=12", 0, "tp=12 exceeds the 8 K/V heads of llama3-70b"},
        {"llama3-8b", "tp=8", 1048569, "8 ranks from rank 1048569 on pass the largest rank"},
        {"llama3-8b", "tp=8", UINT32_MAX, "pass the largest rank"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ferry_parallel_t parallel = spec(cases[i].text);
        ferry_tensor_set_t *set = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(ferry_model_tensors(cases[i].model, FERRY_BF16, &parallel,
                                             cases[i].first_rank, &set, &err),
                         FERRY_INVALID);
        assert_null(set);
        assert_int_equal(err.status, FERRY_INVALID);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("%s %s gave: %s", cases[i].model, cases[i].text, err.text);
        }
    }
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    ferry_tensor_set_t *set = NULL;
    assert_int_equal(ferry_model_tensors(NULL, FERRY_BF16, &parallel, 0, &set, NULL),
                     FERRY_INVALID);
    assert_int_equal(ferry_model_tensors("llama3-8b", FERRY_DTYPE_NONE, &parallel, 0, &set, NULL),
                     FERRY_INVALID);
    assert_int_equal(ferry_model_tensors("llama3-8b", FERRY_BF16, NULL, 0, &set, NULL),
                     FERRY_INVALID);
    parallel.ep = 3;
    assert_int_equal(ferry_model_tensors("mixtral-8x7b", FERRY_BF16, &parallel, 0, &set, NULL),
                     FERRY_INVALID);
    assert_null(set);
}

static void test_last_rank_is_usable(void **state) {
    (void)state;
    ferry_tensor_set_t *set = make_at("llama3-8b", "tp=8", FERRY_MAX_RANK - 7);
    assert_held(get(set, "lm_head.weight"), FERRY_MAX_RANK, 0, 7 * 16032, 8 * 16032);
    ferry_tensor_set_destroy(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info_is_as_published),
        cmocka_unit_test(test_tensors_are_sorted_and_add_up),
        cmocka_unit_test(test_llama_and_qwen_shapes),
        cmocka_unit_test(test_mixtral_and_deepseek_shapes),
        cmocka_unit_test(test_tp8_dp8),
        cmocka_unit_test(test_kv_heads_are_replicated),
        cmocka_unit_test(test_query_heads_follow_their_kv_head),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_tied_embedding),
        cmocka_unit_test(test_deepseek_expert_meshes),
        cmocka_unit_test(test_uneven_experts),
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_default_order),
        cmocka_unit_test(test_layouts_are_shared),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_last_rank_is_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
