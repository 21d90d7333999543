/* rules.h - what a family of models calls its tensors, and how they are cut.
 *
 * Rules are a small text (docs/formats/rules.md): which names belong to a family, for each of them which dim which
 * axis cuts and where `pp` and `ep` put it, and, for other forms than Hugging Face's (vllm, megatron), which
 * tensors lie in which, fused, stacked, transposed, renamed or tied. The common families are built in.
 *
 * Everything is told in terms of the Hugging Face tensors of a checkpoint: these are what a plan moves. A form only
 * says where, inside the tensors of a rank's file, each rank's shard of them lies: as a view.
 *
 * Ownership: rules, tensor sets and stores own what they return; a store borrows its set.
 * Thread safety: immutable once created. */
#ifndef FERRY_RULES_H
#define FERRY_RULES_H

#include <ferry/model.h>

FERRY_BEGIN_DECLS

typedef struct ferry_rules ferry_rules_t;
typedef struct ferry_store ferry_store_t;

/* Reads rules; `name` is for messages ("my.rules"). FERRY_PARSE with line and column. */
FERRY_API ferry_status_t ferry_rules_parse(const char *text, const char *name,
                                           ferry_rules_t **rules_p, ferry_error_t *err);
FERRY_API void ferry_rules_destroy(ferry_rules_t *rules); /* NULL is fine */

/* The built-in ones: by name ("llama"), or by the model_type of a config.json ("mistral"). FERRY_INVALID, with the names
 * that there are, when there is none. */
FERRY_API ferry_status_t ferry_rules_builtin(const char *name, ferry_rules_t **rules_p,
                                             ferry_error_t *err);
FERRY_API ferry_status_t ferry_rules_for_type(const char *model_type, ferry_rules_t **rules_p,
                                              ferry_error_t *err);
/* Names of the built-in rules, and the text of one (index < count). Static. */
FERRY_API size_t ferry_rules_count(void);
FERRY_API const char *ferry_rules_builtin_name(size_t index);
FERRY_API const char *ferry_rules_builtin_text(size_t index);
FERRY_API const char *ferry_rules_name(const ferry_rules_t *rules);
/* The forms that the rules know, "hf" first. */
FERRY_API size_t ferry_rules_nforms(const ferry_rules_t *rules);
FERRY_API const char *ferry_rules_form(const ferry_rules_t *rules, size_t index);

/* A number of config.json, by its key ("num_hidden_layers"; of nested objects with dots). */
typedef struct ferry_config_number {
    const char *key;
    uint64_t value;
} ferry_config_number_t;

/* A whole tensor of the checkpoint, Hugging Face's name and shape. */
typedef struct ferry_whole {
    const char *name;
    ferry_dtype_t dtype;
    uint32_t ndim;
    const uint64_t *shape;
} ferry_whole_t;

enum {
    /* Tensors that no rule covers are whole on every rank of the first stage; else they are an error that lists them. */
    FERRY_RULES_REPLICATE = 1 << 0,
};

typedef struct ferry_place_params {
    size_t size; /* sizeof(ferry_place_params_t) */
    const ferry_config_number_t *config;
    size_t nconfig;
    const ferry_whole_t *tensors;
    size_t ntensors;
    const ferry_parallel_t *parallel; /* NULL: one rank */
    uint32_t first_rank;
    uint32_t flags;
} ferry_place_params_t;

#define FERRY_PLACE_PARAMS_INIT                                                                    \
    { sizeof(ferry_place_params_t), NULL, 0, NULL, 0, NULL, 0, 0 }

/* Gives every tensor its layout; the set is in the order of names. Numbers that the rules need and config lacks are
 * worked out from names where that can be done (layers, experts), else FERRY_INVALID names the key. */
FERRY_API ferry_status_t ferry_rules_place(const ferry_rules_t *rules,
                                           const ferry_place_params_t *params,
                                           ferry_tensor_set_t **set_p, ferry_error_t *err);

/* The tensors of one rank's file, each with the shape that it has there. */
typedef struct ferry_rank_tensors {
    const ferry_whole_t *tensors;
    size_t ntensors;
} ferry_rank_tensors_t;

/* The set behind rank files of others, in the form hf: one list per rank of params->parallel, whose tensors are what the
 * ranks hold. Whole shapes are what the shards add up to under the rules. params->tensors is not used. Whether each
 * rank's shapes are those that the set's layouts give it is left to the caller. */
FERRY_API ferry_status_t ferry_rules_gather(const ferry_rules_t *rules,
                                            const ferry_place_params_t *params,
                                            const ferry_rank_tensors_t *files, size_t nfiles,
                                            ferry_tensor_set_t **set_p, ferry_error_t *err);

/* --- where shards lie in the tensors of a file --------------------------------------------------- */

/* A tensor of a rank's file. */
typedef struct ferry_stored {
    const char *name;
    ferry_dtype_t dtype;
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
} ferry_stored_t;

/* A box of a rank's shard of a tensor of the set, and where it lies in a stored tensor. Parts of one tensor tile the shard. */
typedef struct ferry_stored_part {
    uint32_t tensor;             /* index in the set */
    uint32_t stored;             /* index in the store */
    uint32_t ndim;               /* of the tensor */
    uint64_t lo[FERRY_MAX_DIMS]; /* in the shard */
    uint64_t extent[FERRY_MAX_DIMS];
    uint64_t first;                  /* element of the stored tensor where the box begins */
    int64_t strides[FERRY_MAX_DIMS]; /* in elements of the stored tensor */
} ferry_stored_part_t;

/* What the file of `rank` holds under a form: tensors in the order of names, none when the rank has no shard. A shard that is
 * empty has no parts, but a tensor. params as for the set: the store needs the same numbers. */
FERRY_API ferry_status_t ferry_rules_store(const ferry_rules_t *rules, const char *form,
                                           const ferry_place_params_t *params,
                                           const ferry_tensor_set_t *set, uint32_t rank,
                                           ferry_store_t **store_p, ferry_error_t *err);
FERRY_API void ferry_store_destroy(ferry_store_t *store); /* NULL is fine */
FERRY_API const ferry_stored_t *ferry_store_tensors(const ferry_store_t *store, size_t *count_p);
/* In the order of (tensor, box). */
FERRY_API const ferry_stored_part_t *ferry_store_parts(const ferry_store_t *store, size_t *count_p);

FERRY_END_DECLS

#endif
