/* ckpt_draw.c - random small models and specs. */
#include "support/ckpt_draw.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint64_t ckpt_draw(uint64_t *rng) {
    uint64_t z = *rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t ckpt_below(uint64_t *rng, uint64_t bound) {
    return bound > 0 ? ckpt_draw(rng) % bound : 0;
}

/* A model being drawn. */
typedef struct sketch {
    uint64_t *rng;
    ckpt_drawn_t *drawn;
    const char *dtype; /* NULL: each tensor has its own */
    uint64_t hidden;
} sketch_t;

static const char *const all_dtypes[] = {"F64",     "F32", "F16", "BF16", "F8_E4M3",
                                         "F8_E5M2", "I64", "I32", "I16",  "I8",
                                         "U64",     "U32", "U16", "U8",   "BOOL"};

/* Clears a bit of the exponent of each element, so that it is never all ones. */
static void tame(ckpt_tensor_t *tensor) {
    uint64_t width = ckpt_width(tensor->dtype);
    bool floats = tensor->dtype[0] == 'F' || tensor->dtype[0] == 'B';
    for (uint64_t i = width - 1; i < tensor->bytes && floats; i += width) {
        tensor->data[i] =
            strcmp(tensor->dtype, "BOOL") == 0 ? tensor->data[i] & 1 : tensor->data[i] & 0xbf;
    }
}

static void add_dims(sketch_t *s, const char *dtype, uint32_t ndim, const uint64_t *dims,
                     const char *name) {
    ckpt_tensor_t *tensor = ckpt_add(&s->drawn->model, name, dtype, ndim, dims);
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        tensor->data[i] = (uint8_t)ckpt_draw(s->rng);
    }
    if (strncmp(dtype, "X", 1) != 0) {
        tame(tensor);
    }
}

/* Of one dim when `columns` is 0. */
static void add(sketch_t *s, uint64_t rows, uint64_t columns, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void add(sketch_t *s, uint64_t rows, uint64_t columns, const char *format, ...) {
    char name[CKPT_NAME];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const char *dtype = s->dtype;
    if (dtype == NULL) {
        dtype = all_dtypes[ckpt_below(s->rng, sizeof all_dtypes / sizeof all_dtypes[0])];
    }
    uint64_t dims[] = {rows, columns};
    add_dims(s, dtype, columns > 0 ? 2 : 1, dims, name);
}

/* Of a dtype that nobody knows, or a plain integer: it must stay whole. */
static void add_odd(sketch_t *s, const char *name) {
    uint64_t dims[] = {1 + ckpt_below(s->rng, 9), 1 + ckpt_below(s->rng, 3)};
    const char *dtypes[] = {"X6_E2M3", "X4", "I64", "BOOL"};
    add_dims(s, dtypes[ckpt_below(s->rng, 4)], 1 + (uint32_t)ckpt_below(s->rng, 2), dims, name);
}

static void add_attention(sketch_t *s, unsigned layer, uint64_t heads, uint64_t kv_heads,
                          uint64_t head_dim, bool bias) {
    uint64_t q = heads * head_dim;
    uint64_t kv = kv_heads * head_dim;
    add(s, q, s->hidden, "model.layers.%u.self_attn.q_proj.weight", layer);
    add(s, kv, s->hidden, "model.layers.%u.self_attn.k_proj.weight", layer);
    add(s, kv, s->hidden, "model.layers.%u.self_attn.v_proj.weight", layer);
    add(s, s->hidden, q, "model.layers.%u.self_attn.o_proj.weight", layer);
    if (bias) {
        add(s, q, 0, "model.layers.%u.self_attn.q_proj.bias", layer);
        add(s, kv, 0, "model.layers.%u.self_attn.k_proj.bias", layer);
        add(s, kv, 0, "model.layers.%u.self_attn.v_proj.bias", layer);
    } else {
        add(s, head_dim, 0, "model.layers.%u.self_attn.q_norm.weight", layer);
        add(s, head_dim, 0, "model.layers.%u.self_attn.k_norm.weight", layer);
    }
}

static void add_mla(sketch_t *s, unsigned layer, uint64_t heads, uint64_t nope, uint64_t rope,
                    uint64_t v_head) {
    uint64_t q_rank = 5;
    uint64_t kv_rank = 3;
    add(s, q_rank, s->hidden, "model.layers.%u.self_attn.q_a_proj.weight", layer);
    add(s, q_rank, 0, "model.layers.%u.self_attn.q_a_layernorm.weight", layer);
    add(s, heads * (nope + rope), q_rank, "model.layers.%u.self_attn.q_b_proj.weight", layer);
    add(s, kv_rank + rope, s->hidden, "model.layers.%u.self_attn.kv_a_proj_with_mqa.weight", layer);
    add(s, kv_rank, 0, "model.layers.%u.self_attn.kv_a_layernorm.weight", layer);
    add(s, heads * (nope + v_head), kv_rank, "model.layers.%u.self_attn.kv_b_proj.weight", layer);
    add(s, s->hidden, heads * v_head, "model.layers.%u.self_attn.o_proj.weight", layer);
}

static void add_mlp(sketch_t *s, unsigned layer, const char *where, uint64_t ffn) {
    add(s, ffn, s->hidden, "model.layers.%u.mlp%s.gate_proj.weight", layer, where);
    add(s, ffn, s->hidden, "model.layers.%u.mlp%s.up_proj.weight", layer, where);
    add(s, s->hidden, ffn, "model.layers.%u.mlp%s.down_proj.weight", layer, where);
}

static void add_experts(sketch_t *s, unsigned layer, uint64_t ffn) {
    ckpt_drawn_t *d = s->drawn;
    bool mixtral = strcmp(d->family, "mixtral") == 0;
    add(s, d->experts, s->hidden,
        mixtral ? "model.layers.%u.block_sparse_moe.gate.weight"
                : "model.layers.%u.mlp.gate.weight",
        layer);
    for (unsigned e = 0; e < d->experts && mixtral; e++) {
        add(s, ffn, s->hidden, "model.layers.%u.block_sparse_moe.experts.%u.w1.weight", layer, e);
        add(s, s->hidden, ffn, "model.layers.%u.block_sparse_moe.experts.%u.w2.weight", layer, e);
        add(s, ffn, s->hidden, "model.layers.%u.block_sparse_moe.experts.%u.w3.weight", layer, e);
    }
    for (unsigned e = 0; e < d->experts && !mixtral; e++) {
        char where[24];
        (void)snprintf(where, sizeof where, ".experts.%u", e);
        add_mlp(s, layer, where, ffn);
    }
}

static void add_layers(sketch_t *s, uint64_t heads, uint64_t kv_heads, uint64_t head_dim) {
    ckpt_drawn_t *d = s->drawn;
    bool deepseek = strcmp(d->family, "deepseek_v3") == 0;
    bool bias = ckpt_below(s->rng, 2) == 0;
    uint64_t ffn = 1 + ckpt_below(s->rng, 23);
    for (unsigned layer = 0; layer < d->layers; layer++) {
        add(s, s->hidden, 0, "model.layers.%u.input_layernorm.weight", layer);
        if (deepseek) {
            add_mla(s, layer, heads, head_dim, 2, 3);
        } else {
            add_attention(s, layer, heads, kv_heads, head_dim, bias);
        }
        add(s, s->hidden, 0, "model.layers.%u.post_attention_layernorm.weight", layer);
        if (d->experts == 0 || (deepseek && layer == 0)) {
            add_mlp(s, layer, "", ffn);
        } else {
            add_experts(s, layer, ffn);
        }
        if (deepseek && layer > 0) {
            add_mlp(s, layer, ".shared_experts", 1 + ffn / 2);
        }
    }
}

static void draw_dtype(sketch_t *s) {
    static const char *const bases[] = {"BF16", "F16", "F32", "F8_E5M2"};
    uint64_t way = ckpt_below(s->rng, 6);
    if (way < 4) {
        s->dtype = bases[way];
        s->drawn->base = s->dtype;
    } else if (way == 4) {
        s->dtype = all_dtypes[ckpt_below(s->rng, sizeof all_dtypes / sizeof all_dtypes[0])];
    }
}

/* Mostly small; sometimes so much that a tensor is several units of work, or a row is more than one. */
static uint64_t draw_width(uint64_t *rng) {
    uint64_t way = ckpt_below(rng, 12);
    return way == 0  ? 500 + ckpt_below(rng, 200)
           : way < 4 ? 50 + ckpt_below(rng, 100)
                     : 1 + ckpt_below(rng, 19);
}

void ckpt_draw_model(uint64_t *rng, ckpt_drawn_t *d) {
    static const char *const families[] = {"llama", "qwen3_moe", "mixtral", "deepseek_v3"};
    static const uint64_t head_counts[] = {1, 2, 3, 4, 6, 8};
    *d = (ckpt_drawn_t){.family = families[ckpt_below(rng, 4)]};
    sketch_t s = {.rng = rng, .drawn = d, .hidden = draw_width(rng)};
    draw_dtype(&s);
    uint64_t heads = head_counts[ckpt_below(rng, 6)];
    uint64_t kv_heads = heads % 2 == 0 && ckpt_below(rng, 2) == 0 ? heads / 2 : heads;
    kv_heads = ckpt_below(rng, 5) == 0 ? 1 : kv_heads;
    uint64_t head_dim = 1 + ckpt_below(rng, 5);
    uint64_t vocab = 1 + ckpt_below(rng, 31);
    bool tied = ckpt_below(rng, 3) == 0;
    d->layers = 1 + (uint32_t)ckpt_below(rng, 3);
    d->experts = strcmp(d->family, "llama") == 0 ? 0 : 1 + (uint32_t)ckpt_below(rng, 5);
    add(&s, vocab, s.hidden, "model.embed_tokens.weight");
    add_layers(&s, heads, kv_heads, head_dim);
    add(&s, s.hidden, 0, "model.norm.weight");
    if (!tied) {
        add(&s, vocab, s.hidden, "lm_head.weight");
    }
    if (ckpt_below(rng, 2) == 0) {
        add_odd(&s, "model.layers.0.self_attn.rotary_emb.inv_freq");
    }
    d->unmatched = ckpt_below(rng, 3) == 0;
    if (d->unmatched) {
        uint64_t dims[CKPT_DIMS] = {2, 1, 3, 2};
        add_odd(&s, "extra.counters");
        add_dims(&s, "I32", (uint32_t)ckpt_below(rng, CKPT_DIMS + 1), dims, "extra.deep");
        dims[1] = 0;
        add_dims(&s, "U8", 2, dims, "extra.empty");
    }
    (void)snprintf(d->model.config, sizeof d->model.config,
                   "{\"model_type\":\"%s\",\"num_hidden_layers\":%" PRIu32
                   ",\"num_attention_heads\":%" PRIu64 ",\"num_key_value_heads\":%" PRIu64
                   ",\"head_dim\":%" PRIu64 ",\"num_experts\":%" PRIu32
                   ",\"n_routed_experts\":%" PRIu32 ",\"num_local_experts\":%" PRIu32
                   ",\"qk_nope_head_dim\":%" PRIu64
                   ",\"qk_rope_head_dim\":2,\"v_head_dim\":3,\"tie_word_embeddings\":%s,"
                   "\"rope_scaling\":{\"factor\":8,\"type\":\"yarn\"},\"eps\":1e-6}",
                   d->family, d->layers, heads, kv_heads, head_dim, d->experts, d->experts,
                   d->experts, head_dim, tied ? "true" : "false");
}

void ckpt_draw_spec(uint64_t *rng, const ckpt_drawn_t *d, char spec[CKPT_SPEC]) {
    uint64_t tp = 1 + ckpt_below(rng, 5);
    uint64_t cp = ckpt_below(rng, 8) == 0 ? 2 : 1;
    uint64_t dp = 1 + ckpt_below(rng, tp * cp > 3 ? 1 : 3);
    uint64_t pp = 1 + ckpt_below(rng, tp * cp * dp > 4 ? 2 : d->layers);
    pp = pp > d->layers ? 1 : pp;
    uint64_t room = tp * cp * dp;
    uint64_t ep = 1;
    uint64_t etp = 1;
    if (d->experts > 0) {
        ep = 1 + ckpt_below(rng, room < d->experts ? room : d->experts);
        ep = room % ep == 0 ? ep : 1;
        etp = 1 + ckpt_below(rng, room / ep);
        etp = room / ep % etp == 0 ? etp : 1;
    }
    bool ordered = ckpt_below(rng, 6) == 0;
    (void)snprintf(spec, CKPT_SPEC,
                   "tp=%" PRIu64 ",cp=%" PRIu64 ",pp=%" PRIu64 ",dp=%" PRIu64 ",ep=%" PRIu64
                   ",etp=%" PRIu64 "%s",
                   tp, cp, pp, dp, ep, etp, ordered ? ",order=tp-cp-ep-pp-dp" : "");
}
