/* catalogue.h - the built-in models: dimensions, and rows that say which tensors they have.
 *
 * A row stands for one tensor of a layer, or, when its rule is an expert one, for one tensor of every
 * expert: the '*' in its name is the expert's number. Lists of rows end with a row without a name. */
#ifndef FERRY_MODEL_CATALOGUE_H
#define FERRY_MODEL_CATALOGUE_H

#include <stdbool.h>

#include <ferry/model.h>

#include "model/placing.h"

/* What is cut where. fy_model_way says it in terms of axes and units. */
typedef enum fy_rule {
    FY_REPLICATED,
    FY_COLUMN,    /* dim 0 under tp: gate, up, vocabulary */
    FY_ROW,       /* dim 1 under tp: down */
    FY_QUERY,     /* dim 0, in whole heads that stay with their K/V head */
    FY_OUTPUT,    /* dim 1, like FY_QUERY */
    FY_KEY_VALUE, /* dim 0, in whole heads, replicated when tp exceeds them */
    FY_MLA_QUERY, /* dim 0, in whole heads of the multi-head latent attention */
    FY_MLA_KEY_VALUE,
    FY_MLA_OUTPUT,    /* dim 1 */
    FY_TIED,          /* like FY_COLUMN, on the first and on the last pp stage */
    FY_EXPERT_COLUMN, /* dim 0 under etp */
    FY_EXPERT_ROW,    /* dim 1 under etp */
    FY_RULES
} fy_rule_t;

/* Lengths that shapes are made of; fy_model_dim works them out. */
typedef enum fy_dim {
    FY_NO_DIM,
    FY_HIDDEN,
    FY_VOCAB,
    FY_HEAD,          /* head_dim */
    FY_HEADS,         /* heads * head_dim */
    FY_KV_HEADS,      /* kv_heads * head_dim */
    FY_FFN,           /* of a dense layer */
    FY_EXPERT_FFN,    /* of one expert */
    FY_SHARED_FFN,    /* of all shared experts together */
    FY_EXPERTS,       /* how many there are */
    FY_Q_RANK,        /* q_lora_rank */
    FY_KV_RANK,       /* kv_lora_rank */
    FY_KV_RANK_ROPE,  /* kv_lora_rank + qk_rope */
    FY_MLA_Q_HEADS,   /* heads * (qk_nope + qk_rope) */
    FY_MLA_KV_HEADS,  /* heads * (qk_nope + v_head) */
    FY_MLA_OUT_HEADS, /* heads * v_head */
} fy_dim_t;

typedef struct fy_row {
    const char *name;
    fy_rule_t rule;
    fy_dim_t dims[2];    /* FY_NO_DIM from ndim on */
    ferry_dtype_t dtype; /* FERRY_DTYPE_NONE: that of the weights */
    bool on_first_stage; /* for rows outside the layers: pp stage 0, else the last one */
} fy_row_t;

typedef struct fy_family {
    const fy_row_t *attention; /* and the norms; every layer has them */
    const fy_row_t *dense;     /* rest of a layer without experts */
    const fy_row_t *sparse;    /* rest of a layer with experts */
} fy_family_t;

/* Field names and values as in config.json, shortened; 0 where a family has no such thing. */
typedef struct fy_model {
    const char *name;
    const char *summary;
    const char *type; /* model_type of config.json */
    const fy_family_t *family;
    uint32_t layers;
    uint32_t dense_layers; /* with experts: the first ones that have none */
    uint32_t vocab, hidden, ffn;
    uint32_t heads, kv_heads, head_dim;
    uint32_t experts, expert_ffn, shared_ffn;
    uint32_t q_rank, kv_rank, qk_nope, qk_rope, v_head;
    bool tied; /* the embedding is the output layer too */
} fy_model_t;

/* NULL when there is none of that name. */
const fy_model_t *fy_model_find(const char *name);

uint64_t fy_model_dim(const fy_model_t *model, fy_dim_t dim);

/* What a placing must know of the model, and how a rule cuts its tensors. */
fy_counts_t fy_model_counts(const fy_model_t *model);
fy_way_t fy_model_way(const fy_model_t *model, fy_rule_t rule);

/* ferry_model_tensors, of a model that need not be in the catalogue. */
ferry_status_t fy_model_tensors(const fy_model_t *model, ferry_dtype_t dtype,
                                const ferry_parallel_t *parallel, uint32_t first_rank,
                                ferry_tensor_set_t **set_p, ferry_error_t *err);

/* The tensors that are in no layer. */
const fy_row_t *fy_model_root(const fy_model_t *model);
/* Has this layer experts? */
bool fy_model_is_sparse(const fy_model_t *model, uint32_t layer);
/* The two lists of rows that make up a layer. */
void fy_model_layer(const fy_model_t *model, bool sparse, const fy_row_t *parts[2]);

/* 1, or the number of experts. */
uint32_t fy_row_copies(const fy_model_t *model, const fy_row_t *row);
/* Fills shape and returns the number of dims. */
uint32_t fy_row_shape(const fy_model_t *model, const fy_row_t *row, uint64_t shape[2]);

#endif
