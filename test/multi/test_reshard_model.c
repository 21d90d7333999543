/* test_reshard_model.c - whole small models from one parallel layout to another, every byte.
 *
 * The models have the tensors of large ones with small dims. Which rank holds what is worked out here
 * from (TP, PP, EP), not by the model floor: dense rank = tp + TP * (dp + DP * pp), and inside a
 * pipeline stage an expert's place = etp + ETP * (ep + EP * edp). */
#include "multi/body.h"

#include "oracle/reshard_ways.h"
#include "support/sanitizer.h"

enum {
    LAYERS = 4,
    HIDDEN = 16,
    VOCAB = 37,
    HEADS = 8,
    KV_HEADS = 4,
    HEAD = 4,
    INNER = 24,
    EXPERTS = 4,
    EXPERT_INNER = 12,
    MAMBA_INNER = 32,
    MAMBA_GROUPS = 4,
    MAMBA_STATE = 2,
    MAMBA_HEADS = 8,
};

typedef struct axes {
    uint32_t tp, pp, ep;
    uint32_t dp, etp; /* worked out */
    uint32_t base;
} axes_t;

static uint32_t stage_ranks(const axes_t *a) {
    return a->tp * a->dp;
}

static uint32_t world_of(const axes_t *a) {
    return stage_ranks(a) * a->pp;
}

/* "211" is TP2 PP1 EP1. Data parallel ranks are as many as the experts need. */
static axes_t read_axes(const char *text, uint32_t base) {
    axes_t a = {(uint32_t)(text[0] - '0'),
                (uint32_t)(text[1] - '0'),
                text[2] != '\0' ? (uint32_t)(text[2] - '0') : 1,
                1,
                1,
                base};
    while (a.tp * a.dp % a.ep != 0) {
        a.dp++;
    }
    a.etp = a.ep == 1 ? a.tp : 1;
    return a;
}

/* ---- layouts ---- */

typedef struct text {
    char at[512];
} text_t;

static uint32_t stage_of(const axes_t *a, uint32_t layer) {
    return layer * a->pp / LAYERS;
}

/* A dense tensor of a stage; cut: how tp cuts it, "R" for not at all. */
static text_t dense(const axes_t *a, uint32_t stage, const char *cut) {
    text_t text;
    uint32_t first = a->base + stage * stage_ranks(a);
    (void)snprintf(text.at, sizeof text.at, "dp=%uxtp=%u:R,%s@%u-%u", a->dp, a->tp, cut, first,
                   first + stage_ranks(a) - 1);
    return text;
}

static text_t expert(const axes_t *a, uint32_t stage, uint32_t index, const char *cut) {
    text_t text;
    uint32_t first = a->base + stage * stage_ranks(a);
    uint32_t each = (EXPERTS + a->ep - 1) / a->ep;
    uint32_t edp = stage_ranks(a) / (a->ep * a->etp);
    int length = snprintf(text.at, sizeof text.at, "edp=%uxetp=%u:R,%s@", edp, a->etp, cut);
    for (uint32_t i = 0; i < edp * a->etp; i++) {
        uint32_t place = i % a->etp + a->etp * (index / each + a->ep * (i / a->etp));
        length += snprintf(text.at + length, sizeof text.at - (size_t)length, "%s%u",
                           i == 0 ? "" : ",", first + place);
    }
    return text;
}

/* ---- tensors ---- */

typedef struct model {
    rso_case_t c;
    axes_t from;
    axes_t to;
    ferry_dtype_t source;
    ferry_dtype_t target;
} model_t;

static rso_tensor_t *add(model_t *m, ferry_dtype_t kept, uint64_t rows, uint64_t columns,
                         const text_t *from, const text_t *to, const char *name) {
    uint64_t shape[] = {rows, columns};
    ferry_dtype_t source = kept != FERRY_DTYPE_NONE ? kept : m->source;
    ferry_dtype_t target = kept != FERRY_DTYPE_NONE ? kept : m->target;
    return rso_add_text(&m->c, name, source, target, columns == 0 ? 1 : 2, shape, from->at, to->at);
}

/* A tensor of a layer. */
static void add_dense(model_t *m, uint32_t layer, const char *name, uint64_t rows, uint64_t columns,
                      const char *cut) {
    char full[64];
    text_t from = dense(&m->from, stage_of(&m->from, layer), cut);
    text_t to = dense(&m->to, stage_of(&m->to, layer), cut);
    (void)snprintf(full, sizeof full, "layers.%u.%s", layer, name);
    (void)add(m, FERRY_DTYPE_NONE, rows, columns, &from, &to, full);
}

static void add_kept(model_t *m, uint32_t layer, const char *name, uint64_t rows) {
    char full[64];
    text_t from = dense(&m->from, stage_of(&m->from, layer), "R");
    text_t to = dense(&m->to, stage_of(&m->to, layer), "R");
    (void)snprintf(full, sizeof full, "layers.%u.%s", layer, name);
    (void)add(m, FERRY_F32, rows, 0, &from, &to, full);
}

static void add_expert(model_t *m, uint32_t layer, uint32_t index, const char *name, uint64_t rows,
                       uint64_t columns, const char *cut) {
    char full[64];
    text_t from = expert(&m->from, stage_of(&m->from, layer), index, cut);
    text_t to = expert(&m->to, stage_of(&m->to, layer), index, cut);
    (void)snprintf(full, sizeof full, "layers.%u.experts.%u.%s", layer, index, name);
    (void)add(m, FERRY_DTYPE_NONE, rows, columns, &from, &to, full);
}

/* Embedding on the first stage; norm and output layer on the last. Where they are tied the output layer
 * is fed from the embedding. */
static void add_ends(model_t *m, bool tied) {
    text_t first = dense(&m->from, 0, "S0");
    text_t first_to = dense(&m->to, 0, "S0");
    text_t last = dense(&m->from, m->from.pp - 1, "S0");
    text_t last_to = dense(&m->to, m->to.pp - 1, "S0");
    text_t norm = dense(&m->from, m->from.pp - 1, "R");
    text_t norm_to = dense(&m->to, m->to.pp - 1, "R");
    (void)add(m, FERRY_DTYPE_NONE, VOCAB, HIDDEN, &first, &first_to, "embed");
    uint32_t embedding = m->c.ntensors;
    rso_tensor_t *head =
        add(m, FERRY_DTYPE_NONE, VOCAB, HIDDEN, tied ? &first : &last, &last_to, "output_layer");
    head->tied = tied ? embedding : 0;
    (void)add(m, FERRY_DTYPE_NONE, HIDDEN, 0, &norm, &norm_to, "norm");
}

static void add_attention(model_t *m, uint32_t layer) {
    add_dense(m, layer, "norm1", HIDDEN, 0, "R");
    add_dense(m, layer, "qkv", (HEADS + 2 * KV_HEADS) * HEAD, HIDDEN, "S0/sizes(32,16,16)/unit(4)");
    add_dense(m, layer, "qkv.bias", (HEADS + 2 * KV_HEADS) * HEAD, 0, "S0/sizes(32,16,16)/unit(4)");
    add_dense(m, layer, "o", HIDDEN, HEADS * HEAD, "S1");
    add_dense(m, layer, "norm2", HIDDEN, 0, "R");
}

static void make_dense(model_t *m) {
    add_ends(m, true);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        add_attention(m, layer);
        add_dense(m, layer, "gate_up", 2 * INNER, HIDDEN, "S0/sizes(24,24)");
        add_dense(m, layer, "down", HIDDEN, INNER, "S1");
    }
}

static void make_moe(model_t *m) {
    add_ends(m, false);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        add_attention(m, layer);
        add_dense(m, layer, "router", EXPERTS, HIDDEN, "R");
        add_kept(m, layer, "router.bias", EXPERTS);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            add_expert(m, layer, e, "gate_up", 2 * EXPERT_INNER, HIDDEN, "S0/sizes(12,12)");
            add_expert(m, layer, e, "down", HIDDEN, EXPERT_INNER, "S1");
        }
    }
}

static void make_mamba(model_t *m) {
    add_ends(m, false);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        enum { BC = MAMBA_GROUPS * MAMBA_STATE };
        add_dense(m, layer, "norm", HIDDEN, 0, "R");
        add_dense(m, layer, "in_proj", 2 * MAMBA_INNER + 2 * BC + MAMBA_HEADS, HIDDEN,
                  "S0/sizes(32,32,8,8,8)");
        add_dense(m, layer, "conv1d", MAMBA_INNER + 2 * BC, 4, "S0/sizes(32,8,8)");
        add_dense(m, layer, "A_log", MAMBA_HEADS, 0, "S0");
        add_dense(m, layer, "D", MAMBA_HEADS, 0, "S0");
        add_dense(m, layer, "dt_bias", MAMBA_HEADS, 0, "S0");
        add_dense(m, layer, "gate_norm", MAMBA_INNER, 0, "S0");
        add_dense(m, layer, "out_proj", HIDDEN, MAMBA_INNER, "S1");
    }
}

/* ---- the list ---- */

typedef void (*make_fn)(model_t *model);

typedef struct step {
    make_fn make;
    const char *from;
    const char *to;
} step_t;

static const step_t steps[] = {
    {make_dense, "211", "111"}, {make_dense, "111", "211"}, {make_dense, "211", "411"},
    {make_dense, "121", "111"}, {make_dense, "221", "111"}, {make_dense, "111", "221"},
    {make_dense, "211", "121"}, {make_dense, "121", "241"}, {make_moe, "112", "114"},
    {make_moe, "112", "111"},   {make_moe, "112", "122"},   {make_moe, "212", "111"},
    {make_moe, "411", "212"},   {make_moe, "212", "411"},   {make_moe, "411", "114"},
    {make_moe, "114", "411"},   {make_mamba, "21", "11"},   {make_mamba, "11", "21"},
    {make_mamba, "21", "41"},   {make_mamba, "11", "22"},   {make_mamba, "21", "12"},
};

enum { STEPS = sizeof steps / sizeof *steps };

static void open_model(model_t *m, const step_t *step, bool apart, ferry_dtype_t source,
                       ferry_dtype_t target) {
    memset(m, 0, sizeof *m);
    m->source = source;
    m->target = target;
    m->from = read_axes(step->from, 0);
    m->to = read_axes(step->to, apart ? world_of(&m->from) : 0);
    step->make(m);
    assert_true(rso_open(&m->c));
}

/* Each step in four ways, collocated and apart, the dtypes in turn. */
static void test_list(void **state) {
    (void)state;
    for (size_t i = 0; i < STEPS; i++) {
        for (int apart = 0; apart < 2; apart++) {
            model_t m;
            open_model(&m, &steps[i], apart == 1, i % 3 == 0 ? FERRY_BF16 : FERRY_F32,
                       i % 3 == 1 ? FERRY_F32 : FERRY_BF16);
            for (int kind = 0; kind <= AS_PROCESSES; kind++) {
                size_t first = (i * 4 + (size_t)(2 * apart + kind) * 3) % (rsr_nways - 3);
                rsr_tour_t plan = {&m.c, 7000 + i, first, SANITIZED ? 1 : 4, 2};
                run_well((body_kind_t)kind, m.c.nranks, rsr_tour_body, &plan, NULL);
            }
            rso_close(&m.c);
        }
    }
}

/* Ten rounds of one session. */
static void test_ten_rounds(void **state) {
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        model_t m;
        open_model(&m, &steps[narrow == 0 ? 4 : 12], narrow == 1, FERRY_F32,
                   narrow == 1 ? FERRY_BF16 : FERRY_F32);
        for (int kind = 0; kind <= AS_PROCESSES; kind++) {
            rsr_tour_t plan = {&m.c, 99, (size_t)(narrow + 1) * 3, 2, 10};
            run_well((body_kind_t)kind, m.c.nranks, rsr_tour_body, &plan, NULL);
        }
        rso_close(&m.c);
    }
}

/* ---- tensors of real models, as the model floor cuts them ---- */

typedef struct real {
    const char *model;
    const char *from;
    const char *to;
    const char *names[6];
} real_t;

#define LAYER "model.layers.0."

static const real_t reals[] = {
    {"llama3.2-1b",
     "tp=2,pp=2",
     "tp=8",
     {LAYER "self_attn.k_proj.weight", LAYER "input_layernorm.weight",
      "model.layers.15.self_attn.v_proj.weight"}},
    {"qwen3-30b-a3b",
     "tp=8,ep=2",
     "tp=2,dp=2,ep=4",
     {LAYER "self_attn.k_proj.weight", LAYER "self_attn.q_norm.weight", LAYER "mlp.gate.weight",
      LAYER "mlp.experts.127.down_proj.weight"}},
    {"deepseek-v3",
     "pp=2,dp=2,ep=2",
     "tp=3",
     {"model.layers.3.mlp.gate.e_score_correction_bias", LAYER "self_attn.q_a_layernorm.weight",
      "model.layers.60.mlp.gate.weight"}},
};

static const ferry_tensor_t *find(const ferry_tensor_set_t *set, const char *name) {
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

static ferry_tensor_set_t *make_set(const char *model, const char *spec, ferry_dtype_t dtype) {
    ferry_parallel_t parallel;
    ferry_tensor_set_t *set = NULL;
    assert_int_equal(ferry_parallel_parse(spec, &parallel, NULL), FERRY_OK);
    assert_int_equal(ferry_model_tensors(model, dtype, &parallel, 0, &set, NULL), FERRY_OK);
    return set;
}

static void test_real(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const real_t *real = &reals[i];
        ferry_tensor_set_t *from = make_set(real->model, real->from, FERRY_F32);
        ferry_tensor_set_t *to = make_set(real->model, real->to, FERRY_BF16);
        rso_case_t c = {.flags = FERRY_PLAN_ALLOW_CAST};
        for (int k = 0; k < 6 && real->names[k] != NULL; k++) {
            const ferry_tensor_t *source = find(from, real->names[k]);
            const ferry_tensor_t *target = find(to, real->names[k]);
            rso_tensor_t *t = rso_add(&c, source->name, source->dtype, target->dtype);
            t->ndim = source->ndim;
            memcpy(t->shape, source->shape, source->ndim * sizeof *t->shape);
            orc_from_ferry(source->layout, &t->source);
            orc_from_ferry(target->layout, &t->target);
            bool kept = strstr(source->name, "bias") != NULL;
            assert_int_equal(target->dtype, kept ? FERRY_F32 : FERRY_BF16);
        }
        assert_true(rso_open(&c));
        for (int kind = 0; kind <= AS_PROCESSES; kind++) {
            rsr_tour_t plan = {&c, 1, 3 + i, 1, 1};
            run_well((body_kind_t)kind, c.nranks, rsr_tour_body, &plan, NULL);
        }
        rso_close(&c);
        ferry_tensor_set_destroy(from);
        ferry_tensor_set_destroy(to);
    }
}

int main(void) {
    (void)alarm(220);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_ten_rounds),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
