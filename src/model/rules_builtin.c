/* rules_builtin.c - the rules that come with ferry, and what can be asked of rules.
 *
 * Each text is as a file of rules would be. To add a family, copy one; docs/formats/rules.md is the guide. */
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "model/rules.h"

/* clang-format off */

static const char llama_text[] =
    "# Llama, Mistral, Qwen2 and Qwen3: dense, grouped-query attention.\n"
    "rules llama\n"
    "types llama mistral qwen2 qwen3\n"
    "\n"
    "number layers   = num_hidden_layers\n"
    "number heads    = num_attention_heads\n"
    "number kv_heads = num_key_value_heads | num_attention_heads\n"
    "number head_dim = head_dim | hidden_size / num_attention_heads\n"
    "number group    = head_dim * (heads / kv_heads)   # query rows of one K/V head\n"
    "\n"
    "let L model.layers.{layer}\n"
    "let A $L.self_attn\n"
    "let wb (weight|bias)\n"
    "\n"
    "tensor model.embed_tokens.weight  tp 0   on first tied lm_head.weight\n"
    "tensor model.norm.weight          whole  on last\n"
    "tensor lm_head.weight             tp 0   on last\n"
    "tensor $L.(input|post_attention)_layernorm.weight  whole\n"
    "\n"
    "tensor $A.q_proj.$wb                query 0\n"
    "tensor $A.(k|v)_proj.$wb            kv 0\n"
    "tensor $A.o_proj.weight             query 1\n"
    "tensor $A.o_proj.bias               whole\n"
    "tensor $A.(q|k)_norm.weight         whole\n"
    "tensor $A.rotary_emb.inv_freq       whole\n"
    "\n"
    "tensor $L.mlp.(gate|up)_proj.$wb  tp 0\n"
    "tensor $L.mlp.down_proj.weight    tp 1\n"
    "tensor $L.mlp.down_proj.bias      whole\n"
    "\n"
    "form vllm\n"
    "stored $A.qkv_proj.$wb = concat 0 $A.q_proj.$wb $A.k_proj.$wb $A.v_proj.$wb\n"
    "stored $L.mlp.gate_up_proj.$wb = concat 0 $L.mlp.gate_proj.$wb $L.mlp.up_proj.$wb\n"
    "\n"
    "form megatron\n"
    "let D decoder.layers.{layer}\n"
    "stored embedding.word_embeddings.weight = model.embed_tokens.weight\n"
    "stored decoder.final_layernorm.weight = model.norm.weight\n"
    "stored output_layer.weight = lm_head.weight\n"
    "stored $D.(input|pre_mlp)_layernorm.weight = $L.(input|post_attention)_layernorm.weight\n"
    "stored $D.self_attention.linear_qkv.$wb = interleave 0 $A.q_proj.$wb by group $A.k_proj.$wb by head_dim $A.v_proj.$wb by head_dim\n"
    "stored $D.self_attention.linear_proj.$wb = $A.o_proj.$wb\n"
    "stored $D.self_attention.(q|k)_layernorm.weight = $A.(q|k)_norm.weight\n"
    "stored $D.mlp.linear_fc1.$wb = concat 0 $L.mlp.gate_proj.$wb $L.mlp.up_proj.$wb\n"
    "stored $D.mlp.linear_fc2.$wb = $L.mlp.down_proj.$wb\n";

static const char qwen3_moe_text[] =
    "# Qwen3 with experts; layers of mlp_only_layers have none.\n"
    "rules qwen3-moe\n"
    "types qwen3_moe\n"
    "\n"
    "number layers   = num_hidden_layers\n"
    "number heads    = num_attention_heads\n"
    "number kv_heads = num_key_value_heads | num_attention_heads\n"
    "number head_dim = head_dim | hidden_size / num_attention_heads\n"
    "number group    = head_dim * (heads / kv_heads)   # query rows of one K/V head\n"
    "number experts  = num_experts | num_local_experts | n_routed_experts\n"
    "\n"
    "let L model.layers.{layer}\n"
    "let A $L.self_attn\n"
    "let wb (weight|bias)\n"
    "let E $L.mlp.experts.{expert}\n"
    "\n"
    "tensor model.embed_tokens.weight  tp 0   on first tied lm_head.weight\n"
    "tensor model.norm.weight          whole  on last\n"
    "tensor lm_head.weight             tp 0   on last\n"
    "tensor $L.(input|post_attention)_layernorm.weight  whole\n"
    "\n"
    "tensor $A.q_proj.$wb                query 0\n"
    "tensor $A.(k|v)_proj.$wb            kv 0\n"
    "tensor $A.o_proj.weight             query 1\n"
    "tensor $A.o_proj.bias               whole\n"
    "tensor $A.(q|k)_norm.weight         whole\n"
    "tensor $A.rotary_emb.inv_freq       whole\n"
    "\n"
    "tensor $L.mlp.(gate|up)_proj.$wb  tp 0\n"
    "tensor $L.mlp.down_proj.weight    tp 1\n"
    "tensor $L.mlp.down_proj.bias      whole\n"
    "\n"
    "tensor $L.mlp.gate.weight         whole   # the router\n"
    "tensor $E.(gate|up)_proj.weight   etp 0\n"
    "tensor $E.down_proj.weight        etp 1\n"
    "\n"
    "form vllm\n"
    "stored $A.qkv_proj.$wb = concat 0 $A.q_proj.$wb $A.k_proj.$wb $A.v_proj.$wb\n"
    "stored $L.mlp.gate_up_proj.$wb = concat 0 $L.mlp.gate_proj.$wb $L.mlp.up_proj.$wb\n"
    "stored $L.mlp.experts.w13_weight = stack concat 0 $E.gate_proj.weight $E.up_proj.weight\n"
    "stored $L.mlp.experts.w2_weight = stack $E.down_proj.weight\n"
    "\n"
    "form megatron\n"
    "let D decoder.layers.{layer}\n"
    "stored embedding.word_embeddings.weight = model.embed_tokens.weight\n"
    "stored decoder.final_layernorm.weight = model.norm.weight\n"
    "stored output_layer.weight = lm_head.weight\n"
    "stored $D.(input|pre_mlp)_layernorm.weight = $L.(input|post_attention)_layernorm.weight\n"
    "stored $D.self_attention.linear_qkv.$wb = interleave 0 $A.q_proj.$wb by group $A.k_proj.$wb by head_dim $A.v_proj.$wb by head_dim\n"
    "stored $D.self_attention.linear_proj.$wb = $A.o_proj.$wb\n"
    "stored $D.self_attention.(q|k)_layernorm.weight = $A.(q|k)_norm.weight\n"
    "stored $D.mlp.linear_fc1.$wb = concat 0 $L.mlp.gate_proj.$wb $L.mlp.up_proj.$wb\n"
    "stored $D.mlp.linear_fc2.$wb = $L.mlp.down_proj.$wb\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc1.weight = concat 0 $E.gate_proj.weight $E.up_proj.weight\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc2.weight = $E.down_proj.weight\n"
    "stored $D.mlp.router.weight = $L.mlp.gate.weight\n";

static const char mixtral_text[] =
    "# Mixtral. An expert's w1 is its gate, w3 its up, w2 its down projection.\n"
    "rules mixtral\n"
    "types mixtral\n"
    "\n"
    "number layers   = num_hidden_layers\n"
    "number heads    = num_attention_heads\n"
    "number kv_heads = num_key_value_heads | num_attention_heads\n"
    "number head_dim = head_dim | hidden_size / num_attention_heads\n"
    "number group    = head_dim * (heads / kv_heads)   # query rows of one K/V head\n"
    "number experts  = num_experts | num_local_experts | n_routed_experts\n"
    "\n"
    "let L model.layers.{layer}\n"
    "let A $L.self_attn\n"
    "let wb (weight|bias)\n"
    "let M $L.block_sparse_moe\n"
    "let E $M.experts.{expert}\n"
    "\n"
    "tensor model.embed_tokens.weight  tp 0   on first tied lm_head.weight\n"
    "tensor model.norm.weight          whole  on last\n"
    "tensor lm_head.weight             tp 0   on last\n"
    "tensor $L.(input|post_attention)_layernorm.weight  whole\n"
    "\n"
    "tensor $A.q_proj.$wb                query 0\n"
    "tensor $A.(k|v)_proj.$wb            kv 0\n"
    "tensor $A.o_proj.weight             query 1\n"
    "tensor $A.o_proj.bias               whole\n"
    "tensor $A.(q|k)_norm.weight         whole\n"
    "tensor $A.rotary_emb.inv_freq       whole\n"
    "\n"
    "tensor $M.gate.weight     whole   # the router\n"
    "tensor $E.(w1|w3).weight  etp 0\n"
    "tensor $E.w2.weight       etp 1\n"
    "\n"
    "form vllm\n"
    "stored $A.qkv_proj.$wb = concat 0 $A.q_proj.$wb $A.k_proj.$wb $A.v_proj.$wb\n"
    "stored $M.experts.w13_weight = stack concat 0 $E.w1.weight $E.w3.weight\n"
    "stored $M.experts.w2_weight = stack $E.w2.weight\n"
    "\n"
    "form megatron\n"
    "let D decoder.layers.{layer}\n"
    "stored embedding.word_embeddings.weight = model.embed_tokens.weight\n"
    "stored decoder.final_layernorm.weight = model.norm.weight\n"
    "stored output_layer.weight = lm_head.weight\n"
    "stored $D.(input|pre_mlp)_layernorm.weight = $L.(input|post_attention)_layernorm.weight\n"
    "stored $D.self_attention.linear_qkv.$wb = interleave 0 $A.q_proj.$wb by group $A.k_proj.$wb by head_dim $A.v_proj.$wb by head_dim\n"
    "stored $D.self_attention.linear_proj.$wb = $A.o_proj.$wb\n"
    "stored $D.self_attention.(q|k)_layernorm.weight = $A.(q|k)_norm.weight\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc1.weight = concat 0 $E.w1.weight $E.w3.weight\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc2.weight = $E.w2.weight\n"
    "stored $D.mlp.router.weight = $M.gate.weight\n";

static const char deepseek_v3_text[] =
    "# DeepSeek-V3, R1 and Kimi K2: latent attention, shared and routed experts.\n"
    "rules deepseek-v3\n"
    "types deepseek_v3 kimi_k2\n"
    "\n"
    "number layers  = num_hidden_layers\n"
    "number experts = n_routed_experts | num_experts\n"
    "number nope    = qk_nope_head_dim\n"
    "number rope    = qk_rope_head_dim\n"
    "number v_head  = v_head_dim\n"
    "\n"
    "extra_layers last   # multi-token prediction: model.layers.61\n"
    "\n"
    "let L model.layers.{layer}\n"
    "let A $L.self_attn\n"
    "let S $L.mlp.shared_experts\n"
    "let E $L.mlp.experts.{expert}\n"
    "\n"
    "tensor model.embed_tokens.weight  tp 0   on first tied lm_head.weight\n"
    "tensor model.norm.weight          whole  on last\n"
    "tensor lm_head.weight             tp 0   on last\n"
    "tensor $L.(input|post_attention)_layernorm.weight  whole\n"
    "\n"
    "tensor $A.(q_a_proj|kv_a_proj_with_mqa).weight    whole\n"
    "tensor $A.(q|kv)_a_layernorm.weight               whole\n"
    "tensor $A.q_b_proj.weight                         tp 0 by nope+rope\n"
    "tensor $A.kv_b_proj.weight                        tp 0 by nope+v_head\n"
    "tensor $A.o_proj.weight                           tp 1 by v_head\n"
    "tensor $A.rotary_emb.inv_freq                     whole\n"
    "\n"
    "tensor $L.mlp.(gate|up)_proj.weight  tp 0\n"
    "tensor $L.mlp.down_proj.weight       tp 1\n"
    "tensor $S.(gate|up)_proj.weight      tp 0\n"
    "tensor $S.down_proj.weight           tp 1\n"
    "\n"
    "tensor $L.mlp.gate.weight         whole   # the router\n"
    "tensor $E.(gate|up)_proj.weight   etp 0\n"
    "tensor $E.down_proj.weight        etp 1\n"
    "tensor $L.mlp.gate.e_score_correction_bias  whole\n"
    "\n"
    "# Scales of FP8 weights, one for 128 x 128: cuts of the weights need not fall on blocks, so they stay whole.\n"
    "let s weight_scale_inv\n"
    "tensor $A.(q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj).$s  whole\n"
    "tensor $L.mlp.(gate|up|down)_proj.$s  whole\n"
    "tensor $S.(gate|up|down)_proj.$s      whole\n"
    "tensor $E.(gate|up|down)_proj.$s      whole\n"
    "\n"
    "# Multi-token prediction has these beside what every layer has.\n"
    "tensor $L.(enorm|hnorm|eh_proj|shared_head.norm).weight  whole\n"
    "tensor $L.eh_proj.$s                                     whole\n"
    "tensor $L.(embed_tokens|shared_head.head).weight         tp 0\n"
    "\n"
    "form vllm\n"
    "stored $A.fused_qkv_a_proj.weight = concat 0 $A.q_a_proj.weight $A.kv_a_proj_with_mqa.weight\n"
    "stored $L.mlp.gate_up_proj.weight = concat 0 $L.mlp.gate_proj.weight $L.mlp.up_proj.weight\n"
    "stored $S.gate_up_proj.weight = concat 0 $S.gate_proj.weight $S.up_proj.weight\n"
    "stored $L.mlp.experts.w13_weight = stack concat 0 $E.gate_proj.weight $E.up_proj.weight\n"
    "stored $L.mlp.experts.w2_weight = stack $E.down_proj.weight\n"
    "\n"
    "form megatron\n"
    "let D decoder.layers.{layer}\n"
    "stored embedding.word_embeddings.weight = model.embed_tokens.weight\n"
    "stored decoder.final_layernorm.weight = model.norm.weight\n"
    "stored output_layer.weight = lm_head.weight\n"
    "stored $D.(input|pre_mlp)_layernorm.weight = $L.(input|post_attention)_layernorm.weight\n"
    "stored $D.self_attention.linear_(q|kv)_down_proj.weight = $A.(q_a_proj|kv_a_proj_with_mqa).weight\n"
    "stored $D.self_attention.linear_(q|kv)_up_proj.weight = $A.(q|kv)_b_proj.weight\n"
    "stored $D.self_attention.(q|kv)_layernorm.weight = $A.(q|kv)_a_layernorm.weight\n"
    "stored $D.self_attention.linear_proj.weight = $A.o_proj.weight\n"
    "stored $D.mlp.linear_fc1.weight = concat 0 $L.mlp.gate_proj.weight $L.mlp.up_proj.weight\n"
    "stored $D.mlp.linear_fc2.weight = $L.mlp.down_proj.weight\n"
    "stored $D.mlp.shared_experts.linear_fc1.weight = concat 0 $S.gate_proj.weight $S.up_proj.weight\n"
    "stored $D.mlp.shared_experts.linear_fc2.weight = $S.down_proj.weight\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc1.weight = concat 0 $E.gate_proj.weight $E.up_proj.weight\n"
    "stored $D.mlp.experts.local_experts.{expert}.linear_fc2.weight = $E.down_proj.weight\n"
    "stored $D.mlp.router.weight = $L.mlp.gate.weight\n"
    "stored $D.mlp.router.expert_bias = $L.mlp.gate.e_score_correction_bias\n";
/* clang-format on */

static const struct builtin {
    const char *name;
    const char *text;
} builtins[] = {
    {"llama", llama_text},
    {"qwen3-moe", qwen3_moe_text},
    {"mixtral", mixtral_text},
    {"deepseek-v3", deepseek_v3_text},
};

enum { BUILTINS = sizeof builtins / sizeof builtins[0] };

size_t ferry_rules_count(void) {
    return BUILTINS;
}

const char *ferry_rules_builtin_name(size_t index) {
    return index < BUILTINS ? builtins[index].name : NULL;
}

const char *ferry_rules_builtin_text(size_t index) {
    return index < BUILTINS ? builtins[index].text : NULL;
}

static void add_names(fy_text_t *text) {
    for (size_t i = 0; i < BUILTINS; i++) {
        fy_text_printf(text, "%s%s", i > 0 ? ", " : "", builtins[i].name);
    }
}

ferry_status_t ferry_rules_builtin(const char *name, ferry_rules_t **rules_p, ferry_error_t *err) {
    FY_NEED(name, err);
    FY_NEED(rules_p, err);
    for (size_t i = 0; i < BUILTINS; i++) {
        if (strcmp(builtins[i].name, name) == 0) {
            return ferry_rules_parse(builtins[i].text, name, rules_p, err);
        }
    }
    char known[128];
    fy_text_t text;
    fy_text_init(&text, known, sizeof known);
    add_names(&text);
    return fy_fail(err, FERRY_INVALID, "there are no rules \"%.64s\" (built in are %s)", name,
                   known);
}

static bool has_type(const ferry_rules_t *rules, const char *type) {
    for (size_t i = 0; i < rules->ntypes; i++) {
        if (strcmp(rules->types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

ferry_status_t ferry_rules_for_type(const char *model_type, ferry_rules_t **rules_p,
                                    ferry_error_t *err) {
    FY_NEED(model_type, err);
    FY_NEED(rules_p, err);
    char known[FERRY_ERROR_TEXT_MAX];
    fy_text_t text;
    fy_text_init(&text, known, sizeof known);
    for (size_t i = 0; i < BUILTINS; i++) {
        ferry_rules_t *rules = NULL;
        FY_TRY(ferry_rules_parse(builtins[i].text, builtins[i].name, &rules, err));
        if (has_type(rules, model_type)) {
            *rules_p = rules;
            return FERRY_OK;
        }
        for (size_t t = 0; t < rules->ntypes; t++) {
            fy_text_printf(&text, "%s%s", text.length > 0 ? ", " : "", rules->types[t]);
        }
        ferry_rules_destroy(rules);
    }
    return fy_fail(err, FERRY_INVALID,
                   "no built-in rules are for model_type \"%.64s\" (there are some for %s)",
                   model_type, known);
}

const char *ferry_rules_name(const ferry_rules_t *rules) {
    return rules->name;
}

size_t ferry_rules_nforms(const ferry_rules_t *rules) {
    return rules->nforms + 1;
}

const char *ferry_rules_form(const ferry_rules_t *rules, size_t index) {
    if (index > rules->nforms) {
        return NULL;
    }
    return index == 0 ? "hf" : rules->forms[index - 1].name;
}
