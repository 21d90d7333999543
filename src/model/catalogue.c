/* catalogue.c - the built-in models.
 *
 * To add a model of a known family, add a line to `models`. To add a family, write its rows. Names
 * and shapes are those of the Hugging Face checkpoints; dimensions are those of config.json.
 *
 * DeepSeek-V3 and Kimi K2 share a family. DeepSeek-V3's extra prediction layer (model.layers.61, the
 * multi-token head) is left out: it is used in training and for speculation, and the published total
 * of 671B does not count it.
 *
 * Invariant: dimensions are constants, and no product of them comes near 64 bits. */
#include "model/catalogue.h"

#include <string.h>

#include "base/fail.h"

/* ---- rows -------------------------------------------------------------------------------------- */

#define END                                                                                        \
    { .name = NULL }

static const fy_row_t root_rows[] = {
    {"lm_head.weight", FY_COLUMN, {FY_VOCAB, FY_HIDDEN}, FERRY_DTYPE_NONE, false},
    {"model.embed_tokens.weight", FY_COLUMN, {FY_VOCAB, FY_HIDDEN}, FERRY_DTYPE_NONE, true},
    {"model.norm.weight", FY_REPLICATED, {FY_HIDDEN}, FERRY_DTYPE_NONE, false},
    END,
};

static const fy_row_t tied_root_rows[] = {
    {"model.embed_tokens.weight", FY_TIED, {FY_VOCAB, FY_HIDDEN}, FERRY_DTYPE_NONE, true},
    {"model.norm.weight", FY_REPLICATED, {FY_HIDDEN}, FERRY_DTYPE_NONE, false},
    END,
};

/* clang-format off */
#define NORM_ROWS                                                                                  \
    {.name = "input_layernorm.weight", .rule = FY_REPLICATED, .dims = {FY_HIDDEN}},                \
    {.name = "post_attention_layernorm.weight", .rule = FY_REPLICATED, .dims = {FY_HIDDEN}}

#define GQA_ROWS                                                                                   \
    {.name = "self_attn.q_proj.weight", .rule = FY_QUERY, .dims = {FY_HEADS, FY_HIDDEN}},          \
    {.name = "self_attn.k_proj.weight", .rule = FY_KEY_VALUE, .dims = {FY_KV_HEADS, FY_HIDDEN}},   \
    {.name = "self_attn.v_proj.weight", .rule = FY_KEY_VALUE, .dims = {FY_KV_HEADS, FY_HIDDEN}},   \
    {.name = "self_attn.o_proj.weight", .rule = FY_OUTPUT, .dims = {FY_HIDDEN, FY_HEADS}}

#define EXPERT_ROWS(gate, up, down)                                                                \
    {.name = (gate), .rule = FY_EXPERT_COLUMN, .dims = {FY_EXPERT_FFN, FY_HIDDEN}},                \
    {.name = (up), .rule = FY_EXPERT_COLUMN, .dims = {FY_EXPERT_FFN, FY_HIDDEN}},                  \
    {.name = (down), .rule = FY_EXPERT_ROW, .dims = {FY_HIDDEN, FY_EXPERT_FFN}}

static const fy_row_t llama_attention[] = {NORM_ROWS, GQA_ROWS, END};

static const fy_row_t qwen3_attention[] = {
    NORM_ROWS,
    GQA_ROWS,
    {.name = "self_attn.q_norm.weight", .rule = FY_REPLICATED, .dims = {FY_HEAD}},
    {.name = "self_attn.k_norm.weight", .rule = FY_REPLICATED, .dims = {FY_HEAD}},
    END,
};

static const fy_row_t mla_attention[] = {
    NORM_ROWS,
    {.name = "self_attn.q_a_proj.weight", .rule = FY_REPLICATED, .dims = {FY_Q_RANK, FY_HIDDEN}},
    {.name = "self_attn.q_a_layernorm.weight", .rule = FY_REPLICATED, .dims = {FY_Q_RANK}},
    {.name = "self_attn.q_b_proj.weight", .rule = FY_MLA_QUERY,
     .dims = {FY_MLA_Q_HEADS, FY_Q_RANK}},
    {.name = "self_attn.kv_a_proj_with_mqa.weight", .rule = FY_REPLICATED,
     .dims = {FY_KV_RANK_ROPE, FY_HIDDEN}},
    {.name = "self_attn.kv_a_layernorm.weight", .rule = FY_REPLICATED, .dims = {FY_KV_RANK}},
    {.name = "self_attn.kv_b_proj.weight", .rule = FY_MLA_KEY_VALUE,
     .dims = {FY_MLA_KV_HEADS, FY_KV_RANK}},
    {.name = "self_attn.o_proj.weight", .rule = FY_MLA_OUTPUT,
     .dims = {FY_HIDDEN, FY_MLA_OUT_HEADS}},
    END,
};

static const fy_row_t dense_mlp[] = {
    {.name = "mlp.gate_proj.weight", .rule = FY_COLUMN, .dims = {FY_FFN, FY_HIDDEN}},
    {.name = "mlp.up_proj.weight", .rule = FY_COLUMN, .dims = {FY_FFN, FY_HIDDEN}},
    {.name = "mlp.down_proj.weight", .rule = FY_ROW, .dims = {FY_HIDDEN, FY_FFN}},
    END,
};

static const fy_row_t mixtral_moe[] = {
    {.name = "block_sparse_moe.gate.weight", .rule = FY_REPLICATED, .dims = {FY_EXPERTS, FY_HIDDEN}},
    EXPERT_ROWS("block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight",
                "block_sparse_moe.experts.*.w2.weight"),
    END,
};

#define MLP_EXPERT_ROWS                                                                            \
    {.name = "mlp.gate.weight", .rule = FY_REPLICATED, .dims = {FY_EXPERTS, FY_HIDDEN}},           \
    EXPERT_ROWS("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight",                  \
                "mlp.experts.*.down_proj.weight")

static const fy_row_t qwen3_moe[] = {MLP_EXPERT_ROWS, END};

static const fy_row_t deepseek_moe[] = {
    MLP_EXPERT_ROWS,
    {.name = "mlp.gate.e_score_correction_bias", .rule = FY_REPLICATED, .dims = {FY_EXPERTS},
     .dtype = FERRY_F32},
    {.name = "mlp.shared_experts.gate_proj.weight", .rule = FY_COLUMN,
     .dims = {FY_SHARED_FFN, FY_HIDDEN}},
    {.name = "mlp.shared_experts.up_proj.weight", .rule = FY_COLUMN,
     .dims = {FY_SHARED_FFN, FY_HIDDEN}},
    {.name = "mlp.shared_experts.down_proj.weight", .rule = FY_ROW,
     .dims = {FY_HIDDEN, FY_SHARED_FFN}},
    END,
};

/* ---- models ------------------------------------------------------------------------------------ */

static const fy_family_t llama = {llama_attention, dense_mlp, NULL};
static const fy_family_t qwen3 = {qwen3_attention, dense_mlp, qwen3_moe};
static const fy_family_t mixtral = {llama_attention, NULL, mixtral_moe};
static const fy_family_t deepseek = {mla_attention, dense_mlp, deepseek_moe};

static const fy_model_t models[] = {
    {.name = "llama3.2-1b", .summary = "Llama 3.2 1B, dense, tied embeddings",
     .family = &llama, .type = "llama", .layers = 16, .vocab = 128256, .hidden = 2048, .ffn = 8192,
     .heads = 32, .kv_heads = 8, .head_dim = 64, .tied = true},
    {.name = "llama3-8b", .summary = "Llama 3 and 3.1 8B, dense",
     .family = &llama, .type = "llama", .layers = 32, .vocab = 128256, .hidden = 4096, .ffn = 14336,
     .heads = 32, .kv_heads = 8, .head_dim = 128},
    {.name = "llama3-70b", .summary = "Llama 3, 3.1 and 3.3 70B, dense",
     .family = &llama, .type = "llama", .layers = 80, .vocab = 128256, .hidden = 8192, .ffn = 28672,
     .heads = 64, .kv_heads = 8, .head_dim = 128},
    {.name = "llama3-405b", .summary = "Llama 3.1 405B, dense",
     .family = &llama, .type = "llama", .layers = 126, .vocab = 128256, .hidden = 16384,
     .ffn = 53248, .heads = 128, .kv_heads = 8, .head_dim = 128},
    {.name = "qwen3-8b", .summary = "Qwen3 8B, dense",
     .family = &qwen3, .type = "qwen3", .layers = 36, .vocab = 151936, .hidden = 4096, .ffn = 12288,
     .heads = 32, .kv_heads = 8, .head_dim = 128},
    {.name = "qwen3-32b", .summary = "Qwen3 32B, dense",
     .family = &qwen3, .type = "qwen3", .layers = 64, .vocab = 151936, .hidden = 5120, .ffn = 25600,
     .heads = 64, .kv_heads = 8, .head_dim = 128},
    {.name = "qwen3-30b-a3b", .summary = "Qwen3 30B-A3B, 128 experts",
     .family = &qwen3, .type = "qwen3_moe", .layers = 48, .vocab = 151936, .hidden = 2048,
     .heads = 32, .kv_heads = 4, .head_dim = 128, .experts = 128, .expert_ffn = 768},
    {.name = "qwen3-235b-a22b", .summary = "Qwen3 235B-A22B, 128 experts",
     .family = &qwen3, .type = "qwen3_moe", .layers = 94, .vocab = 151936, .hidden = 4096,
     .heads = 64, .kv_heads = 4, .head_dim = 128, .experts = 128, .expert_ffn = 1536},
    {.name = "mixtral-8x7b", .summary = "Mixtral 8x7B, 8 experts",
     .family = &mixtral, .type = "mixtral", .layers = 32, .vocab = 32000, .hidden = 4096,
     .heads = 32, .kv_heads = 8, .head_dim = 128, .experts = 8, .expert_ffn = 14336},
    {.name = "deepseek-v3", .summary = "DeepSeek-V3 671B, 256 experts, without the prediction layer",
     .family = &deepseek, .type = "deepseek_v3", .layers = 61, .dense_layers = 3, .vocab = 129280,
     .hidden = 7168, .ffn = 18432, .heads = 128, .experts = 256, .expert_ffn = 2048,
     .shared_ffn = 2048, .q_rank = 1536, .kv_rank = 512, .qk_nope = 128, .qk_rope = 64, .v_head = 128},
    {.name = "kimi-k2", .summary = "Kimi K2 1T, 384 experts",
     .family = &deepseek, .type = "kimi_k2", .layers = 61, .dense_layers = 1, .vocab = 163840,
     .hidden = 7168, .ffn = 18432, .heads = 64, .experts = 384, .expert_ffn = 2048,
     .shared_ffn = 2048, .q_rank = 1536, .kv_rank = 512, .qk_nope = 128, .qk_rope = 64, .v_head = 128},
};
/* clang-format on */

enum { MODELS = sizeof models / sizeof models[0] };

/* ---- questions --------------------------------------------------------------------------------- */

const fy_model_t *fy_model_find(const char *name) {
    for (size_t i = 0; i < MODELS; i++) {
        if (strcmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

uint64_t fy_model_dim(const fy_model_t *model, fy_dim_t dim) {
    switch (dim) {
    case FY_NO_DIM:
        break;
    case FY_HIDDEN:
        return model->hidden;
    case FY_VOCAB:
        return model->vocab;
    case FY_HEAD:
        return model->head_dim;
    case FY_HEADS:
        return (uint64_t)model->heads * model->head_dim;
    case FY_KV_HEADS:
        return (uint64_t)model->kv_heads * model->head_dim;
    case FY_FFN:
        return model->ffn;
    case FY_EXPERT_FFN:
        return model->expert_ffn;
    case FY_SHARED_FFN:
        return model->shared_ffn;
    case FY_EXPERTS:
        return model->experts;
    case FY_Q_RANK:
        return model->q_rank;
    case FY_KV_RANK:
        return model->kv_rank;
    case FY_KV_RANK_ROPE:
        return (uint64_t)model->kv_rank + model->qk_rope;
    case FY_MLA_Q_HEADS:
        return (uint64_t)model->heads * (model->qk_nope + model->qk_rope);
    case FY_MLA_KV_HEADS:
        return (uint64_t)model->heads * (model->qk_nope + model->v_head);
    case FY_MLA_OUT_HEADS:
        return (uint64_t)model->heads * model->v_head;
    }
    return 0;
}

fy_counts_t fy_model_counts(const fy_model_t *model) {
    return (fy_counts_t){.name = model->name,
                         .layers = model->layers,
                         .experts = model->experts,
                         .heads = model->heads,
                         .kv_heads = model->kv_heads,
                         .head_dim = model->head_dim};
}

static fy_way_t plain_way(uint32_t dim, uint64_t unit) {
    return (fy_way_t){.cut = FY_CUT_PLAIN, .dim = dim, .unit = unit};
}

fy_way_t fy_model_way(const fy_model_t *model, fy_rule_t rule) {
    switch (rule) {
    case FY_REPLICATED:
    case FY_RULES:
        break;
    case FY_COLUMN:
        return plain_way(0, 1);
    case FY_ROW:
        return plain_way(1, 1);
    case FY_QUERY:
        return (fy_way_t){.cut = FY_CUT_QUERY, .dim = 0};
    case FY_OUTPUT:
        return (fy_way_t){.cut = FY_CUT_QUERY, .dim = 1};
    case FY_KEY_VALUE:
        return (fy_way_t){.cut = FY_CUT_KEY_VALUE, .dim = 0};
    case FY_MLA_QUERY:
        return plain_way(0, (uint64_t)model->qk_nope + model->qk_rope);
    case FY_MLA_KEY_VALUE:
        return plain_way(0, (uint64_t)model->qk_nope + model->v_head);
    case FY_MLA_OUTPUT:
        return plain_way(1, model->v_head);
    case FY_TIED:
        return (fy_way_t){.cut = FY_CUT_PLAIN, .dim = 0, .unit = 1, .both_ends = true};
    case FY_EXPERT_COLUMN:
        return (fy_way_t){.cut = FY_CUT_PLAIN, .dim = 0, .unit = 1, .expert = true};
    case FY_EXPERT_ROW:
        return (fy_way_t){.cut = FY_CUT_PLAIN, .dim = 1, .unit = 1, .expert = true};
    }
    return (fy_way_t){.cut = FY_CUT_NONE};
}

const fy_row_t *fy_model_root(const fy_model_t *model) {
    return model->tied ? tied_root_rows : root_rows;
}

bool fy_model_is_sparse(const fy_model_t *model, uint32_t layer) {
    return model->experts > 0 && layer >= model->dense_layers;
}

void fy_model_layer(const fy_model_t *model, bool sparse, const fy_row_t *parts[2]) {
    parts[0] = model->family->attention;
    parts[1] = sparse ? model->family->sparse : model->family->dense;
}

uint32_t fy_row_copies(const fy_model_t *model, const fy_row_t *row) {
    return row->rule >= FY_EXPERT_COLUMN ? model->experts : 1;
}

uint32_t fy_row_shape(const fy_model_t *model, const fy_row_t *row, uint64_t shape[2]) {
    uint32_t ndim = 0;
    for (; ndim < 2 && row->dims[ndim] != FY_NO_DIM; ndim++) {
        shape[ndim] = fy_model_dim(model, row->dims[ndim]);
    }
    return ndim;
}

/* ---- what users see ---------------------------------------------------------------------------- */

size_t ferry_model_count(void) {
    return MODELS;
}

/* Adds the tensors of a list of rows, `layers` times. */
static void add_rows(const fy_model_t *model, const fy_row_t *row, uint32_t layers,
                     ferry_model_info_t *info) {
    for (; row->name != NULL; row++) {
        uint64_t shape[2] = {0, 0};
        uint32_t ndim = fy_row_shape(model, row, shape);
        uint32_t copies = layers * fy_row_copies(model, row);
        info->tensors += copies;
        info->parameters += copies * shape[0] * (ndim > 1 ? shape[1] : 1);
    }
}

ferry_status_t ferry_model_info(size_t index, ferry_model_info_t *info_p, ferry_error_t *err) {
    if (index >= MODELS) {
        return fy_fail(err, FERRY_INVALID, "there is no model number %zu (there are %d)", index,
                       (int)MODELS);
    }
    const fy_model_t *model = &models[index];
    ferry_model_info_t info = {.name = model->name,
                               .summary = model->summary,
                               .layers = model->layers,
                               .experts = model->experts};
    uint32_t dense = model->experts > 0 ? model->dense_layers : model->layers;
    uint32_t layers[2] = {dense, model->layers - dense};
    add_rows(model, fy_model_root(model), 1, &info);
    for (uint32_t sparse = 0; sparse < 2; sparse++) {
        if (layers[sparse] > 0) {
            const fy_row_t *parts[2];
            fy_model_layer(model, sparse == 1, parts);
            add_rows(model, parts[0], layers[sparse], &info);
            add_rows(model, parts[1], layers[sparse], &info);
        }
    }
    *info_p = info;
    return FERRY_OK;
}
