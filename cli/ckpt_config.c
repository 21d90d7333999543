/* ckpt_config.c - the config.json of a model with given numbers.
 *
 * Keys are those of the family's Hugging Face configuration. What is no dimension (activation, rotary base, how many experts a
 * token takes) is the usual value: it is there so that loaders are content. */
#include "ckpt_config.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "json.h"

typedef struct family {
    const char *model_type;
    const char *architecture;
    const char *experts; /* the key of their number, or NULL */
} family_t;

static const family_t families[] = {
    {"llama", "LlamaForCausalLM", NULL},
    {"qwen3", "Qwen3ForCausalLM", NULL},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "num_experts"},
    {"mixtral", "MixtralForCausalLM", "num_local_experts"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts"},
    {"kimi_k2", "DeepseekV3ForCausalLM", "n_routed_experts"},
};

static const family_t *family_of(const char *model_type) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].model_type, model_type) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

/* Nothing where the family has no such number. */
static void put(cli_json_t *json, const char *key, uint32_t value) {
    if (value > 0) {
        cli_json_u64(json, json->root, key, value);
    }
}

static const char *torch_dtype(ferry_dtype_t dtype) {
    switch (dtype) {
    case FERRY_F64:
        return "float64";
    case FERRY_F32:
        return "float32";
    case FERRY_F16:
        return "float16";
    case FERRY_F8E4M3:
        return "float8_e4m3fn";
    case FERRY_F8E5M2:
        return "float8_e5m2";
    default:
        return "bfloat16";
    }
}

static void put_experts(cli_json_t *json, const ferry_model_numbers_t *numbers, const char *key) {
    put(json, key, numbers->experts);
    put(json, "num_experts_per_tok", numbers->experts < 8 || numbers->ffn == 0 ? 2 : 8);
    put(json, "moe_intermediate_size", numbers->expert_ffn);
    cli_json_bool(json, json->root, "norm_topk_prob", true);
    if (numbers->shared_ffn > 0) {
        put(json, "n_shared_experts", numbers->shared_ffn / numbers->expert_ffn);
    }
    if (numbers->dense_layers > 0) {
        put(json, "first_k_dense_replace", numbers->dense_layers);
        put(json, "moe_layer_freq", 1);
        put(json, "n_group", 1);
        put(json, "topk_group", 1);
    } else {
        put(json, "decoder_sparse_step", 1);
    }
}

static void put_all(cli_json_t *json, const ferry_model_numbers_t *numbers, const family_t *family,
                    ferry_dtype_t dtype) {
    struct json_object *architectures = cli_json_array(json, json->root, "architectures");
    cli_json_push(json, architectures, json_object_new_string(family->architecture));
    cli_json_text(json, json->root, "model_type", family->model_type);
    cli_json_text(json, json->root, "torch_dtype", torch_dtype(dtype));
    put(json, "num_hidden_layers", numbers->layers);
    put(json, "hidden_size", numbers->hidden);
    /* A family whose layers all have experts gives their width here, too. */
    put(json, "intermediate_size", numbers->ffn > 0 ? numbers->ffn : numbers->expert_ffn);
    put(json, "vocab_size", numbers->vocab);
    put(json, "num_attention_heads", numbers->heads);
    put(json, "num_key_value_heads", numbers->kv_heads > 0 ? numbers->kv_heads : numbers->heads);
    put(json, "head_dim", numbers->head_dim);
    put(json, "q_lora_rank", numbers->q_rank);
    put(json, "kv_lora_rank", numbers->kv_rank);
    put(json, "qk_nope_head_dim", numbers->qk_nope);
    put(json, "qk_rope_head_dim", numbers->qk_rope);
    put(json, "v_head_dim", numbers->v_head);
    if (family->experts != NULL) {
        put_experts(json, numbers, family->experts);
    }
    cli_json_bool(json, json->root, "tie_word_embeddings", numbers->tied);
    cli_json_text(json, json->root, "hidden_act", "silu");
    put(json, "max_position_embeddings", 4096);
    put(json, "rope_theta", 10000);
    cli_json_put(json, json->root, "rms_norm_eps", json_object_new_double_s(1e-5, "1e-05"));
}

ferry_status_t ckpt_config_text(const ferry_model_numbers_t *numbers, ferry_dtype_t dtype,
                                char **text_p, ferry_error_t *err) {
    const family_t *family = family_of(numbers->model_type);
    if (family == NULL) {
        return cli_fail(err, FERRY_UNSUPPORTED, "no config.json is known for model_type %s",
                        numbers->model_type);
    }
    cli_json_t json;
    cli_json_init(&json);
    put_all(&json, numbers, family, dtype);
    const char *text = json.nomem
                           ? NULL
                           : json_object_to_json_string_ext(json.root, JSON_C_TO_STRING_PRETTY |
                                                                           JSON_C_TO_STRING_SPACED);
    *text_p = text != NULL ? strdup(text) : NULL;
    cli_json_fini(&json);
    return *text_p != NULL ? FERRY_OK : cli_fail_nomem(err);
}
