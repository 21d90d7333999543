/* fuzz_rules.c - any bytes as rules: what parses places a few tensors or says why not, and in every form each
 * rank's file is filled exactly by the parts of its shards. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/rules.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

static const ferry_config_number_t config[] = {
    {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
    {"head_dim", 2},          {"num_experts", 2},         {"n_routed_experts", 2},
    {"hidden_size", 8},       {"num_local_experts", 2},   {"qk_nope_head_dim", 2},
    {"qk_rope_head_dim", 1},  {"v_head_dim", 2},          {"huge", UINT64_MAX},
};

static const uint64_t rows[] = {8, 6};
static const uint64_t narrow[] = {4, 6};

#define WHOLE(text, shape)                                                                         \
    { text, FERRY_BF16, 2, shape }

static const ferry_whole_t tensors[] = {
    WHOLE("a", rows),
    WHOLE("b", narrow),
    {"c", FERRY_F32, 1, rows},
    {"d", FERRY_F32, 0, rows},
    WHOLE("lm_head.weight", rows),
    WHOLE("model.embed_tokens.weight", rows),
    WHOLE("model.layers.0.self_attn.k_proj.weight", narrow),
    WHOLE("model.layers.0.self_attn.q_proj.weight", rows),
    WHOLE("model.layers.0.self_attn.v_proj.weight", narrow),
    WHOLE("model.layers.1.mlp.experts.0.gate_proj.weight", rows),
    WHOLE("model.layers.1.mlp.experts.0.up_proj.weight", rows),
    WHOLE("model.layers.1.mlp.experts.1.gate_proj.weight", rows),
    WHOLE("model.layers.1.mlp.experts.1.up_proj.weight", rows),
    WHOLE("x.0", rows),
    WHOLE("x.1", rows),
    WHOLE("y.0", narrow),
    WHOLE("y.1", narrow),
};

static uint64_t product(uint32_t ndim, const uint64_t *lengths) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        elements *= lengths[d];
    }
    return elements;
}

/* As many elements in parts as in stored tensors, and every box inside its tensor. */
static void check_store(const ferry_store_t *store) {
    size_t nstored = 0;
    size_t nparts = 0;
    const ferry_stored_t *stored = ferry_store_tensors(store, &nstored);
    const ferry_stored_part_t *parts = ferry_store_parts(store, &nparts);
    uint64_t room = 0;
    uint64_t filled = 0;
    for (size_t i = 0; i < nstored; i++) {
        insist(i == 0 || strcmp(stored[i - 1].name, stored[i].name) < 0);
        room += product(stored[i].ndim, stored[i].shape);
    }
    for (size_t i = 0; i < nparts; i++) {
        const ferry_stored_part_t *part = &parts[i];
        insist(part->stored < nstored && part->tensor < sizeof tensors / sizeof tensors[0]);
        uint64_t last = part->first;
        for (uint32_t d = 0; d < part->ndim; d++) {
            last += (part->extent[d] - 1) * (uint64_t)part->strides[d];
        }
        insist(last < product(stored[part->stored].ndim, stored[part->stored].shape));
        filled += product(part->ndim, part->extent);
    }
    insist(filled == room);
}

static void check_forms(const ferry_rules_t *rules, const ferry_place_params_t *params,
                        const ferry_tensor_set_t *set) {
    uint32_t world = 0;
    insist(ferry_parallel_world(params->parallel, &world, NULL) == FERRY_OK);
    for (size_t f = 0; f < ferry_rules_nforms(rules) && f < 8; f++) {
        for (uint32_t rank = 0; rank < world; rank++) {
            ferry_store_t *store = NULL;
            ferry_error_t err = FERRY_ERROR_INIT;
            ferry_status_t status = ferry_rules_store(rules, ferry_rules_form(rules, f), params,
                                                      set, rank, &store, &err);
            insist(status == FERRY_OK || status == FERRY_INVALID);
            insist((status == FERRY_OK) == (store != NULL) && status == err.status);
            insist(f > 0 || status == FERRY_OK);
            if (status == FERRY_OK) {
                check_store(store);
            }
            ferry_store_destroy(store);
        }
    }
}

static void place(const ferry_rules_t *rules) {
    static const char *const specs[] = {"tp=1", "tp=3,pp=2", "tp=2,ep=2", "tp=4,etp=2,dp=1"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        ferry_parallel_t parallel;
        insist(ferry_parallel_parse(specs[i], &parallel, NULL) == FERRY_OK);
        ferry_place_params_t params = FERRY_PLACE_PARAMS_INIT;
        params.config = config;
        params.nconfig = sizeof config / sizeof config[0];
        params.tensors = tensors;
        params.ntensors = sizeof tensors / sizeof tensors[0];
        params.parallel = &parallel;
        params.flags = FERRY_RULES_REPLICATE;
        ferry_tensor_set_t *set = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = ferry_rules_place(rules, &params, &set, &err);
        insist(status == FERRY_OK || status == FERRY_INVALID);
        insist((status == FERRY_OK) == (set != NULL) && status == err.status);
        if (status == FERRY_OK) {
            check_forms(rules, &params, set);
        }
        ferry_tensor_set_destroy(set);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    ferry_rules_t *rules = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_rules_parse(text, "fuzz", &rules, &err);
    insist(status == FERRY_OK || status == FERRY_PARSE);
    insist(status == err.status && (status == FERRY_OK) == (err.text[0] == '\0'));
    insist((status == FERRY_OK) == (rules != NULL));
    if (status == FERRY_OK) {
        place(rules);
    } else {
        insist(strncmp(err.text, "fuzz, line ", 11) == 0);
        insist(ferry_rules_parse(text, "fuzz", &rules, NULL) == status && rules == NULL);
    }
    ferry_rules_destroy(rules);
    free(text);
    return 0;
}
