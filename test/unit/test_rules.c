/* test_rules.c - rules: reading them, and placing tensors by them.
 *
 * The catalogue is the oracle for the built-in rules: names and shapes of a model, placed by the rules with
 * the numbers of its config.json, must come out with the layouts that ferry_model_tensors gives. */
#include "rules_rig.h"

#include "model/catalogue.h"

/* ---- the catalogue ----------------------------------------------------------------------------- */

typedef struct family {
    const char *model;
    const char *type;
    const char *rules;
} family_t;

static const family_t families[] = {
    {"llama3.2-1b", "llama", "llama"},
    {"llama3-8b", "mistral", "llama"},
    {"llama3-70b", "llama", "llama"},
    {"llama3-405b", "llama", "llama"},
    {"qwen3-8b", "qwen3", "llama"},
    {"qwen3-32b", "qwen2", "llama"},
    {"qwen3-30b-a3b", "qwen3_moe", "qwen3-moe"},
    {"qwen3-235b-a22b", "qwen3_moe", "qwen3-moe"},
    {"mixtral-8x7b", "mixtral", "mixtral"},
    {"deepseek-v3", "deepseek_v3", "deepseek-v3"},
    {"kimi-k2", "kimi_k2", "deepseek-v3"},
};

enum { FAMILIES = sizeof families / sizeof families[0] };

static void add_config(rig_t *rig, const fy_model_t *model) {
    rig_number(rig, "num_hidden_layers", model->layers);
    rig_number(rig, "hidden_size", model->hidden);
    rig_number(rig, "num_attention_heads", model->heads);
    if (model->kv_heads > 0) {
        rig_number(rig, "num_key_value_heads", model->kv_heads);
    }
    if ((uint64_t)model->head_dim * model->heads != model->hidden && model->head_dim > 0) {
        rig_number(rig, "head_dim", model->head_dim); /* else the rules divide */
    }
    if (model->experts > 0) {
        const char *key = model->q_rank > 0              ? "n_routed_experts"
                          : strstr(model->name, "qwen3") ? "num_experts"
                                                         : "num_local_experts";
        rig_number(rig, key, model->experts);
    }
    if (model->q_rank > 0) {
        rig_number(rig, "qk_nope_head_dim", model->qk_nope);
        rig_number(rig, "qk_rope_head_dim", model->qk_rope);
        rig_number(rig, "v_head_dim", model->v_head);
    }
}

/* The tensors of a model, as a checkpoint would list them, last one first. */
static void add_tensors(rig_t *rig, const char *model) {
    const ferry_parallel_t one = FERRY_PARALLEL_INIT;
    ferry_tensor_set_t *set = NULL;
    assert_int_equal(ferry_model_tensors(model, FERRY_BF16, &one, 0, &set, NULL), FERRY_OK);
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    for (size_t i = count; i-- > 0;) {
        rig_tensor(rig, tensors[i].shape[0], tensors[i].ndim > 1 ? tensors[i].shape[1] : 0, "%s",
                   tensors[i].name);
        rig->tensors[rig->ntensors - 1].dtype = tensors[i].dtype;
    }
    ferry_tensor_set_destroy(set);
}

static void assert_same(const ferry_tensor_set_t *expected, const ferry_tensor_set_t *found,
                        const char *model, const char *spec) {
    size_t count = 0;
    size_t other = 0;
    const ferry_tensor_t *a = ferry_tensor_set_tensors(expected, &count);
    const ferry_tensor_t *b = ferry_tensor_set_tensors(found, &other);
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(a[i].name, b[i].name) != 0 || a[i].dtype != b[i].dtype ||
            a[i].ndim != b[i].ndim ||
            memcmp(a[i].shape, b[i].shape, a[i].ndim * sizeof a[i].shape[0]) != 0) {
            fail_msg("%s %s: %s became %s", model, spec, a[i].name, b[i].name);
        }
        if (!ferry_layout_equal(a[i].layout, b[i].layout)) {
            char want[512];
            char have[512];
            ferry_layout_format(a[i].layout, want, sizeof want);
            ferry_layout_format(b[i].layout, have, sizeof have);
            fail_msg("%s %s: %s: %s, should be %s", model, spec, a[i].name, have, want);
        }
    }
}

/* Both refuse, with the same words but for the name, or both agree. */
static void compare_with_catalogue(rig_t *rig, const family_t *family, const ferry_rules_t *rules,
                                   const char *spec, uint32_t first_rank) {
    const ferry_place_params_t *params = rig_params(rig, spec);
    rig->params.first_rank = first_rank;
    ferry_tensor_set_t *expected = NULL;
    ferry_tensor_set_t *found = NULL;
    ferry_error_t want = FERRY_ERROR_INIT;
    ferry_error_t have = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_model_tensors(family->model, FERRY_BF16, params->parallel,
                                                first_rank, &expected, &want);
    ferry_status_t other = ferry_rules_place(rules, params, &found, &have);
    if (status != other) {
        fail_msg("%s %s: \"%s\", should be \"%s\"", family->model, spec, have.text, want.text);
    }
    if (status == FERRY_OK) {
        assert_same(expected, found, family->model, spec);
    }
    ferry_tensor_set_destroy(expected);
    ferry_tensor_set_destroy(found);
}

static void test_built_in_rules_are_the_catalogue(void **state) {
    (void)state;
    static const char *const specs[] = {
        "tp=1",
        "tp=8,dp=2",
        "tp=3,pp=2",
        "pp=7",
        "tp=16,pp=3,cp=2",
        "tp=6",
        "tp=64",
        "tp=2,dp=4,ep=8",
        "tp=4,dp=2,ep=2,etp=2,pp=2,order=pp-dp-ep-tp-cp",
        "tp=3,dp=2,ep=3,etp=2,order=tp-ep-dp-cp-pp",
        "dp=5,ep=5,pp=16",
        "tp=12,dp=2,ep=4",
    };
    for (size_t f = 0; f < FAMILIES; f++) {
        rig_t rig;
        rig_init(&rig);
        add_config(&rig, fy_model_find(families[f].model));
        add_tensors(&rig, families[f].model);
        ferry_rules_t *rules = NULL;
        assert_int_equal(ferry_rules_for_type(families[f].type, &rules, NULL), FERRY_OK);
        assert_string_equal(ferry_rules_name(rules), families[f].rules);
        /* The giants take a third of the specs, each another third. */
        size_t step = rig.ntensors > 10000 ? 3 : 1;
        for (size_t s = f % step; s < sizeof specs / sizeof specs[0]; s += step) {
            compare_with_catalogue(&rig, &families[f], rules, specs[s], (uint32_t)s * 3);
        }
        ferry_rules_destroy(rules);
        rig_fini(&rig);
    }
}

/* ---- reading ----------------------------------------------------------------------------------- */

#define HEADER "rules r\n"

static const struct wrong {
    const char *text;
    const char *says; /* part of the line */
} wrongs[] = {
    {"", "line 1, column 1: there is no statement `tensor`"},
    {"\n\n  tensor a whole on first", "line 3, column 1: expected `rules NAME`"},
    {"rules", "line 1, column 6: expected the name of the rules, found the end of the line"},
    {"rules a b", "line 1, column 9: expected the end of the line, found \"b\""},
    {"rules 7", "line 1, column 7: expected the name of the rules"},
    {HEADER "rules s", "line 2, column 1: the rules have a name already"},
    {HEADER "tensors a", "line 2, column 1: expected rules, types,"},
    {HEADER "tensor", "line 2, column 7: expected a pattern"},
    {HEADER "tensor a", "line 2, column 9: expected a cut"},
    {HEADER "tensor a hole", "line 2, column 10: expected a cut: whole, tp, etp, query or kv"},
    {HEADER "tensor a whole", "line 2, column 15: expected `on first`"},
    {HEADER "tensor a whole on", "line 2, column 18: expected first, last or ends"},
    {HEADER "tensor a whole on top", "line 2, column 19: expected first"},
    {HEADER "tensor a tp on first", "line 2, column 13: expected a dim"},
    {HEADER "tensor a tp 16 on first", "line 2, column 13: expected a dim, 0 to 15"},
    {HEADER "tensor a tp 0 by on first", "line 2, column 21: expected `on first`"},
    {HEADER "tensor a tp 0 by 3+ on first", "line 2, column 20: expected a number, a name or '('"},
    {HEADER "tensor a tp 0 by (3 on first", "line 2, column 20: expected an operator or ')'"},
    {HEADER "tensor a tp 0 by 3% on first", "line 2, column 19: expected an operator"},
    {HEADER "tensor a tp 0 by 18446744073709551616 on first", "does not fit in 64 bits"},
    {HEADER "tensor a etp 0 on first", "line 2, column 10: etp cuts tensors of experts"},
    {HEADER "tensor {layer}.{expert} tp 0", "line 2, column 25: tensors of experts are cut by etp"},
    {HEADER "tensor {expert} whole on ends", "an expert lies on one stage"},
    {HEADER "tensor a whole on last tied b", "line 2, column 29: tied goes with"},
    {HEADER "tensor a whole on first tied", "tied goes with"},
    {HEADER "tensor a whole on first # fine\ntensor {layer} whole x",
     "line 3, column 22: expected the"},
    {HEADER "tensor {layers} whole", "a capture is {layer} or {expert}"},
    {HEADER "tensor {layer}.{layer} whole", "each capture at most once"},
    {HEADER "tensor h{layer} whole", "all that is between two dots"},
    {HEADER "tensor {layer}h whole", "all that is between two dots"},
    {HEADER "tensor a(b|) whole", "an alternative is empty"},
    {HEADER "tensor a(b|c whole", "alternatives are letters"},
    {HEADER "tensor a* whole", "at \"*\": no character of a name"},
    {HEADER "tensor (a|b)(a|b)(a|b)(a|b)(a|b) whole", "at most 4 groups"},
    {HEADER "tensor (a|b|c|d|e|f|g|h|i)(a|b|c|d|e|f|g|h) whole", "more than 64 names"},
    {HEADER "tensor $X whole", "line 2, column 8: $X is not defined"},
    {HEADER "let X a\nlet X b", "line 3, column 5: $X is defined twice"},
    {HEADER "let X", "line 2, column 6: expected the text"},
    {HEADER "let 1 a", "line 2, column 5: expected a name for $NAME"},
    {HEADER "number n", "line 2, column 9: expected '='"},
    {HEADER "number n =", "line 2, column 11: expected a number, a name or '('"},
    {HEADER "number n = 1\nnumber n = 2", "line 3, column 8: number n is defined twice"},
    {HEADER "number n = a b", "line 2, column 14: expected an operator"},
    {HEADER "number n = ((((((((((((((((((1", "too many parentheses"},
    {HEADER "types", "line 2, column 6: expected a model_type"},
    {HEADER "extra_layers first", "line 2, column 14: expected last"},
    {HEADER "tensor {layer} query 0", "there is no `number heads = ...`"},
    {HEADER "number heads = 1\nnumber kv_heads = 1\ntensor {layer} kv 0",
     "line 4, column 1: kv needs the numbers heads, kv_heads and head_dim, and there is no `number "
     "head_dim"},
    {HEADER "form", "line 2, column 5: expected the name of a form"},
    {HEADER "form hf", "line 2, column 6: there is a form hf already"},
    {HEADER "form v\nform v", "line 3, column 6: there is a form v already"},
    {HEADER "stored a = b", "line 2, column 1: `stored` belongs below a `form`"},
    {HEADER "form v\nstored a b", "line 3, column 10: expected '='"},
    {HEADER "form v\nstored a =", "line 3, column 11: expected a pattern"},
    {HEADER "form v\nstored a = b c", "line 3, column 14: several sources need concat"},
    {HEADER "form v\nstored a = concat b c", "line 3, column 19: expected a dim"},
    {HEADER "form v\nstored a = interleave 0 b c", "line 3, column 27: expected `by`"},
    {HEADER "form v\nstored (a|b) = c", "line 3, column 16: a source has as many alternatives"},
    {HEADER "form v\nstored (a|b) = (c|d|e)", "a source has as many alternatives"},
    {HEADER "form v\nstored a = {layer}", "{layer} is in one of the two names only"},
    {HEADER "form v\nstored a = {expert}", "{expert} is in one of the two names only"},
    {HEADER "form v\nstored a = stack b", "stack needs {expert} in every source"},
    {HEADER "form v\nstored {expert} = stack {expert}", "stack needs {expert} in every source"},
};

static void test_errors_name_line_and_column(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        ferry_rules_t *rules = NULL;
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(ferry_rules_parse(wrongs[i].text, "my.rules", &rules, &err), FERRY_PARSE);
        assert_null(rules);
        if (strncmp(err.text, "my.rules, line ", 15) != 0 ||
            strstr(err.text, wrongs[i].says) == NULL) {
            fail_msg("%s\nsays: %s\nshould say: %s", wrongs[i].text, err.text, wrongs[i].says);
        }
        assert_int_equal(ferry_rules_parse(wrongs[i].text, NULL, &rules, NULL), FERRY_PARSE);
    }
}

static void test_texts_that_grow_are_refused(void **state) {
    (void)state;
    char text[4096] = HEADER "let a0 xxxxxxxxxxxxxxxx\n";
    for (int i = 1; i < 20; i++) {
        snprintf(text + strlen(text), 64, "let a%d $a%d$a%d\n", i, i - 1, i - 1);
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rules_t *rules = NULL;
    assert_int_equal(ferry_rules_parse(text, "grow", &rules, &err), FERRY_PARSE);
    assert_non_null(strstr(err.text, "line 7, column 8: the word is longer than 511 bytes"));
    char *many = calloc(1, 64 * 1024);
    assert_non_null(many);
    strcpy(many, HEADER "let d (0|1|2|3|4|5|6|7)\n");
    for (int i = 0; i < 300; i++) {
        snprintf(many + strlen(many), 64, "tensor x%d.$d.$d whole on first\n", i);
    }
    assert_int_equal(ferry_rules_parse(many, "many", &rules, &err), FERRY_PARSE);
    assert_non_null(strstr(err.text, "more than 16384 names"));
    free(many);
}

static void test_built_in_rules_can_be_listed(void **state) {
    (void)state;
    assert_int_equal(ferry_rules_count(), 4);
    for (size_t i = 0; i < ferry_rules_count(); i++) {
        ferry_rules_t *rules = NULL;
        assert_int_equal(ferry_rules_parse(ferry_rules_builtin_text(i), "text", &rules, NULL),
                         FERRY_OK);
        assert_string_equal(ferry_rules_name(rules), ferry_rules_builtin_name(i));
        assert_int_equal(ferry_rules_nforms(rules), 3);
        assert_null(ferry_rules_form(rules, 3));
        ferry_rules_destroy(rules);
    }
    assert_null(ferry_rules_builtin_name(4));
    assert_null(ferry_rules_builtin_text(4));
    ferry_rules_destroy(NULL);
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rules_t *rules = NULL;
    assert_int_equal(ferry_rules_builtin("lama", &rules, &err), FERRY_INVALID);
    assert_non_null(
        strstr(err.text, "\"lama\" (built in are llama, qwen3-moe, mixtral, deepseek-v3)"));
    assert_int_equal(ferry_rules_for_type("gpt2", &rules, &err), FERRY_INVALID);
    assert_non_null(
        strstr(err.text, "llama, mistral, qwen2, qwen3, qwen3_moe, mixtral, deepseek_v3"));
    assert_null(rules);
}

/* ---- placing by own rules ---------------------------------------------------------------------- */

static ferry_rules_t *read_rules(const char *text) {
    ferry_rules_t *rules = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_parse(text, "test", &rules, &err) != FERRY_OK) {
        fail_msg("%s", err.text);
    }
    return rules;
}

/* Refused, with these words in the line, about this tensor. */
static void assert_refused(rig_t *rig, const ferry_rules_t *rules, const char *spec,
                           const char *says, const char *tensor) {
    ferry_tensor_set_t *set = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_rules_place(rules, rig_params(rig, spec), &set, &err);
    if (status != FERRY_INVALID || strstr(err.text, says) == NULL) {
        fail_msg("says %d, %s, should say: %s", (int)status, err.text, says);
    }
    assert_null(set);
    assert_string_equal(err.tensor, tensor);
}

static const ferry_tensor_t *get(const ferry_tensor_set_t *set, const char *name) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void assert_layout(const ferry_tensor_set_t *set, const char *name, const char *layout) {
    char text[256];
    ferry_layout_format(get(set, name)->layout, text, sizeof text);
    assert_string_equal(text, layout);
}

static void test_unmatched_tensors_are_listed(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    ferry_rules_t *rules = rig_rules("llama");
    rig_tensor(&rig, 8, 4, "model.embed_tokens.weight");
    rig_tensor(&rig, 4, 0, "model.layers.01.input_layernorm.weight"); /* no such number */
    assert_refused(&rig, rules, "tp=2",
                   "rules llama do not cover 1 tensor: model.layers.01.input_layernorm.weight", "");
    for (int i = 0; i < 6; i++) {
        rig_tensor(&rig, 4, 4, "visual.%d", i);
    }
    assert_refused(&rig, rules, "tp=2",
                   "rules llama do not cover 7 tensors: model.layers.01.input_layernorm.weight, "
                   "visual.0, visual.1, visual.2, visual.3, ...",
                   "");
    rig.params.flags = FERRY_RULES_REPLICATE;
    rig_number(&rig, "num_hidden_layers", 3);
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=2,pp=3");
    assert_layout(set, "visual.5", "dp=1xcp=1xtp=2:R,R,R");
    assert_layout(set, "model.embed_tokens.weight", "pp=2xdp=1xcp=1xtp=2:R,R,R,S0@0-1,4-5");
    ferry_tensor_set_destroy(set);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

static void test_numbers_are_looked_for_where_needed(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    ferry_rules_t *rules = rig_rules("qwen3-moe");
    rig_tensor(&rig, 8, 4, "model.layers.4.mlp.experts.6.up_proj.weight");
    rig_tensor(&rig, 8, 4, "model.layers.4.mlp.experts.2.up_proj.weight");
    /* 5 layers and 7 experts, as the names show; heads are not needed. */
    ferry_tensor_set_t *set = rig_place(&rig, rules, "pp=5,dp=7,ep=7");
    assert_layout(set, "model.layers.4.mlp.experts.6.up_proj.weight", "edp=1xetp=1:R,R@34");
    ferry_tensor_set_destroy(set);
    assert_refused(&rig, rules, "pp=6", "pp=6 exceeds the 5 layers of qwen3-moe", "");
    assert_refused(&rig, rules, "dp=8,ep=8", "ep=8 exceeds the 7 experts of qwen3-moe", "");
    rig_tensor(&rig, 8, 4, "model.layers.0.self_attn.q_proj.weight");
    assert_refused(&rig, rules, "tp=2",
                   "number heads needs \"num_attention_heads\", which is not in config.json", "");
    rig_number(&rig, "num_attention_heads", 3);
    assert_refused(&rig, rules, "tp=2", "number head_dim needs \"head_dim\"", "");
    rig_number(&rig, "hidden_size", 12);
    set = rig_place(&rig, rules, "tp=2");
    assert_layout(set, "model.layers.0.self_attn.q_proj.weight", "dp=1xcp=1xtp=2:R,R,S0/unit(4)");
    ferry_tensor_set_destroy(set);
    rig_number(&rig, "num_key_value_heads", 2);
    assert_refused(&rig, rules, "tp=2", "3 heads do not fall into groups for 2 K/V heads", "");
    rig.config[2].value = 0;
    assert_refused(&rig, rules, "tp=2", "number kv_heads is 0", "");
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

static void test_config_and_tensors_must_agree(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    ferry_rules_t *rules = rig_rules("qwen3-moe");
    rig_number(&rig, "num_hidden_layers", 2);
    rig_number(&rig, "num_experts", 4);
    rig_tensor(&rig, 8, 4, "model.layers.1.mlp.experts.4.up_proj.weight");
    assert_refused(&rig, rules, "tp=1", "there is no expert 4: config.json says 4",
                   "model.layers.1.mlp.experts.4.up_proj.weight");
    rig_fini(&rig);
    rig_init(&rig);
    rig_number(&rig, "num_hidden_layers", 2);
    rig_tensor(&rig, 8, 0, "model.layers.2.input_layernorm.weight");
    assert_refused(&rig, rules, "tp=1", "there is no layer 2: config.json says 2",
                   "model.layers.2.input_layernorm.weight");
    rig_fini(&rig);
    rig_init(&rig);
    rig_tensor(&rig, 8, 0, "model.layers.1.mlp.down_proj.weight");
    assert_refused(&rig, rules, "tp=1", "cuts dim 1, but the tensor has 1",
                   "model.layers.1.mlp.down_proj.weight");
    rig_fini(&rig);
    rig_init(&rig);
    rig_tensor(&rig, 8, 0, "model.norm.weight");
    rig_tensor(&rig, 8, 0, "lm_head.weight");
    rig_tensor(&rig, 8, 0, "model.norm.weight");
    assert_refused(&rig, rules, "tp=1", "the name is there twice", "model.norm.weight");
    rig.tensors[1].dtype = FERRY_DTYPE_NONE;
    assert_refused(&rig, rules, "tp=1", "0 is no dtype", "lm_head.weight");
    rig.params.flags = 2;
    assert_refused(&rig, rules, "tp=1", "unknown flags 0x2", "");
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

static void test_own_rules(void **state) {
    (void)state;
    ferry_rules_t *rules = read_rules("rules own  # a comment\r\n"
                                      "number width = a.b * (c - 2) / 3 | 5\n"
                                      "number never = 1 / 0\n"
                                      "\ttensor\tblock.0.{expert}.w etp 1 by width+1 on last\n"
                                      "tensor block.(0|1).0.w whole on first\n"
                                      "tensor both whole on ends\n"
                                      "tensor bad tp 0 by never on first\n"
                                      "tensor zero tp 0 by width-width on first");
    rig_t rig;
    rig_init(&rig);
    rig_tensor(&rig, 4, 60, "block.0.3.w");
    rig_tensor(&rig, 4, 4, "block.1.0.w");
    rig_tensor(&rig, 4, 0, "both");
    rig_number(&rig, "layers", 9); /* a key, and no number of these rules */
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=2,etp=2");
    assert_layout(set, "block.0.3.w", "edp=1xetp=2:R,S1/unit(6)");
    ferry_tensor_set_destroy(set);
    rig_number(&rig, "a.b", 6);
    rig_number(&rig, "c", 5);
    set = rig_place(&rig, rules, "tp=2,etp=2");
    assert_layout(set, "block.0.3.w", "edp=1xetp=2:R,S1/unit(7)");
    ferry_tensor_set_destroy(set);
    rig_tensor(&rig, 4, 60, "block.0.0.w");
    assert_refused(&rig, rules, "tp=1", "two rules of own cover it, in line 4 and 5",
                   "block.0.0.w");
    rig_fini(&rig);
    rig_init(&rig);
    rig_tensor(&rig, 4, 60, "zero");
    assert_refused(&rig, rules, "tp=1", "the unit in line 8: it is 0", "");
    rig_tensor(&rig, 4, 60, "bad");
    assert_refused(&rig, rules, "tp=1", "the unit in line 7: it divides by 0", "");
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

/* What DeepSeek's checkpoints have beyond the catalogue: FP8 scales and the prediction layer. */
static void test_deepseek_extras(void **state) {
    (void)state;
    rig_t rig;
    rig_init(&rig);
    ferry_rules_t *rules = rig_rules("deepseek-v3");
    rig_number(&rig, "num_hidden_layers", 2);
    rig_number(&rig, "n_routed_experts", 4);
    rig_tensor(&rig, 8, 4, "lm_head.weight");
    rig_tensor(&rig, 8, 4, "model.embed_tokens.weight");
    rig_tensor(&rig, 8, 4, "model.layers.0.mlp.gate_proj.weight");
    rig_tensor(&rig, 1, 1, "model.layers.0.mlp.gate_proj.weight_scale_inv");
    rig_tensor(&rig, 1, 1, "model.layers.1.mlp.experts.3.down_proj.weight_scale_inv");
    rig_tensor(&rig, 8, 4, "model.layers.2.eh_proj.weight");
    rig_tensor(&rig, 8, 0, "model.layers.2.shared_head.norm.weight");
    rig_tensor(&rig, 8, 4, "model.layers.2.shared_head.head.weight");
    rig_tensor(&rig, 8, 4, "model.layers.2.mlp.experts.1.up_proj.weight");
    rig_tensor(&rig, 8, 0, "model.layers.2.mlp.gate.e_score_correction_bias");
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=2,pp=2,ep=2");
    assert_layout(set, "model.embed_tokens.weight", "dp=1xcp=1xtp=2:R,R,S0");
    assert_layout(set, "model.layers.0.mlp.gate_proj.weight", "dp=1xcp=1xtp=2:R,R,S0");
    assert_layout(set, "model.layers.0.mlp.gate_proj.weight_scale_inv", "dp=1xcp=1xtp=2:R,R,R");
    assert_layout(set, "model.layers.1.mlp.experts.3.down_proj.weight_scale_inv",
                  "edp=1xetp=1:R,R@3");
    assert_layout(set, "model.layers.2.eh_proj.weight", "dp=1xcp=1xtp=2:R,R,R@2-3");
    assert_layout(set, "model.layers.2.shared_head.norm.weight", "dp=1xcp=1xtp=2:R,R,R@2-3");
    assert_layout(set, "model.layers.2.shared_head.head.weight", "dp=1xcp=1xtp=2:R,R,S0@2-3");
    assert_layout(set, "model.layers.2.mlp.experts.1.up_proj.weight", "edp=1xetp=1:R,R@2");
    ferry_tensor_set_destroy(set);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

/* The example of docs/formats/rules.md: its text is read from there, its figures are these. */
static void test_worked_example(void **state) {
    (void)state;
    static char page[64 * 1024];
    FILE *file = fopen(FERRY_TEST_DIR "/../docs/formats/rules.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    char *text = strstr(page, "```\nrules mine");
    assert_non_null(text);
    text += 4;
    *strstr(text, "```") = '\0';
    ferry_rules_t *rules = read_rules(text);
    rig_t rig;
    rig_init(&rig);
    rig_number(&rig, "num_attention_heads", 8);
    rig_number(&rig, "num_key_value_heads", 2);
    rig_number(&rig, "head_dim", 64);
    rig_tensor(&rig, 512, 16, "model.layers.0.self_attn.q_proj.weight");
    rig_tensor(&rig, 128, 16, "model.layers.0.self_attn.k_proj.weight");
    rig_tensor(&rig, 128, 16, "model.layers.0.self_attn.v_proj.weight");
    for (int e = 0; e < 4; e++) {
        rig_tensor(&rig, 24, 16, "model.layers.0.mlp.experts.%d.gate.weight", e);
        rig_tensor(&rig, 24, 16, "model.layers.0.mlp.experts.%d.up.weight", e);
    }
    ferry_tensor_set_t *set = rig_place(&rig, rules, "tp=2,ep=2");
    const ferry_tensor_t *q = get(set, "model.layers.0.self_attn.q_proj.weight");
    ferry_interval_t held = {0, 0};
    size_t count = 0;
    assert_int_equal(ferry_layout_intervals(q->layout, 2, q->shape, 1, 0, &held, 1, &count, NULL),
                     FERRY_OK);
    assert_true(count == 1 && held.lo == 256 && held.hi == 512);
    ferry_store_t *store = NULL;
    assert_int_equal(ferry_rules_store(rules, "fused", &rig.params, set, 1, &store, NULL),
                     FERRY_OK);
    const ferry_stored_t *stored = ferry_store_tensors(store, &count);
    assert_int_equal(count, 2);
    assert_string_equal(stored[0].name, "model.layers.0.mlp.w13");
    assert_int_equal(stored[0].ndim, 3);
    assert_true(stored[0].shape[0] == 2 && stored[0].shape[1] == 48 && stored[0].shape[2] == 16);
    assert_string_equal(stored[1].name, "model.layers.0.self_attn.qkv.weight");
    assert_true(stored[1].shape[0] == 256 + 64 + 64 && stored[1].shape[1] == 16);
    const ferry_stored_part_t *parts = ferry_store_parts(store, &count);
    assert_int_equal(count, 7);
    assert_string_equal(ferry_tensor_set_tensors(set, &count)[parts[0].tensor].name,
                        "model.layers.0.mlp.experts.2.gate.weight");
    ferry_store_destroy(store);
    ferry_tensor_set_destroy(set);
    ferry_rules_destroy(rules);
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_rules_are_the_catalogue),
        cmocka_unit_test(test_errors_name_line_and_column),
        cmocka_unit_test(test_texts_that_grow_are_refused),
        cmocka_unit_test(test_built_in_rules_can_be_listed),
        cmocka_unit_test(test_unmatched_tensors_are_listed),
        cmocka_unit_test(test_numbers_are_looked_for_where_needed),
        cmocka_unit_test(test_config_and_tensors_must_agree),
        cmocka_unit_test(test_own_rules),
        cmocka_unit_test(test_deepseek_extras),
        cmocka_unit_test(test_worked_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
