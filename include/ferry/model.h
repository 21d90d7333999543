/* model.h - the tensors of known models, and how parallel axes cut them.
 *
 * A catalogue is made from a model's published dimensions, with Hugging Face names and shapes. A
 * parallel spec ("tp=8,pp=4,dp=2") and the usual rules give each tensor its layout: column-parallel
 * and row-parallel projections, vocabulary, experts, replicated norms and routers, K/V heads
 * replicated when tp exceeds them; pp picks layers, ep picks experts.
 *
 * world = tp * cp * pp * dp; ep * etp divides tp * cp * dp (experts borrow those ranks, they do not
 * multiply them). Ranks count in the order tp-cp-ep-dp-pp, innermost first, unless told otherwise.
 *
 * Ownership: a tensor set owns its tensors, names and layouts.
 * Thread safety: everything here is immutable once created. */
#ifndef FERRY_MODEL_H
#define FERRY_MODEL_H

#include <stdbool.h>

#include <ferry/plan.h>

FERRY_BEGIN_DECLS

typedef struct ferry_tensor_set ferry_tensor_set_t;

typedef struct ferry_parallel {
    size_t size;                      /* sizeof(ferry_parallel_t) */
    uint32_t tp, cp, pp, dp, ep, etp; /* 0 means 1 */
    char order[32];                   /* "" means "tp-cp-ep-dp-pp" */
} ferry_parallel_t;

#define FERRY_PARALLEL_INIT                                                                        \
    { sizeof(ferry_parallel_t), 1, 1, 1, 1, 1, 1, "" }

/* Reads "tp=8,dp=8[,order=tp-cp-ep-dp-pp]". Checks the axes and what they multiply to. */
FERRY_API ferry_status_t ferry_parallel_parse(const char *text, ferry_parallel_t *parallel_p,
                                              ferry_error_t *err);
FERRY_API ferry_status_t ferry_parallel_world(const ferry_parallel_t *parallel, uint32_t *world_p,
                                              ferry_error_t *err);

/* The built-in models: their number, and what is known of each (index < count). Static. */
typedef struct ferry_model_info {
    const char *name;    /* "llama3-70b" */
    const char *summary; /* one line for people */
    uint64_t parameters; /* elements of all tensors */
    uint32_t tensors;
    uint32_t layers;
    uint32_t experts; /* per layer that has them; 0: dense */
} ferry_model_info_t;

FERRY_API size_t ferry_model_count(void);
FERRY_API ferry_status_t ferry_model_info(size_t index, ferry_model_info_t *info_p,
                                          ferry_error_t *err);

/* The tensors of `model` cut by `parallel`, on ranks first_rank, first_rank + 1, ... Weights are of
 * `dtype`; tensors that a family keeps in f32 (router bias) stay so. */
FERRY_API ferry_status_t ferry_model_tensors(const char *model, ferry_dtype_t dtype,
                                             const ferry_parallel_t *parallel, uint32_t first_rank,
                                             ferry_tensor_set_t **set_p, ferry_error_t *err);

/* The dimensions of a model, as in its config.json; 0 where its family has no such thing. */
typedef struct ferry_model_numbers {
    size_t size;            /* sizeof(ferry_model_numbers_t) */
    const char *model_type; /* "llama"; static */
    uint32_t layers;
    uint32_t dense_layers; /* with experts: the first ones that have none */
    uint32_t vocab, hidden, ffn;
    uint32_t heads, kv_heads, head_dim;
    uint32_t experts, expert_ffn, shared_ffn; /* shared: of all shared experts together */
    uint32_t q_rank, kv_rank, qk_nope, qk_rope, v_head;
    bool tied; /* the embedding is the output layer too */
} ferry_model_numbers_t;

FERRY_API ferry_status_t ferry_model_numbers(const char *model, ferry_model_numbers_t *numbers_p,
                                             ferry_error_t *err);
/* The tensors that a model of the family of `model` with other numbers has, whole, on rank 0. A number that the family
 * needs must not be 0, one that it lacks must be; model_type and tied stay as they are. */
FERRY_API ferry_status_t ferry_model_tensors_with(const char *model,
                                                  const ferry_model_numbers_t *numbers,
                                                  ferry_dtype_t dtype, ferry_tensor_set_t **set_p,
                                                  ferry_error_t *err);
FERRY_API void ferry_tensor_set_destroy(ferry_tensor_set_t *set); /* NULL is fine */
FERRY_API const ferry_tensor_t *ferry_tensor_set_tensors(const ferry_tensor_set_t *set,
                                                         size_t *count_p);

FERRY_END_DECLS

#endif
