/* plan_input.h - from the words on the command line to the tensors of both sides.
 *
 * Ownership: a plan_input_t owns all it points to except the texts, which are argv's. */
#ifndef CLI_PLAN_INPUT_H
#define CLI_PLAN_INPUT_H

#include <ferry/model.h>
#include <ferry/plan.h>

#include "options.h"

typedef struct plan_side {
    const char *spec; /* as typed */
    ferry_dtype_t dtype;
    ferry_layout_t *layout;  /* one tensor */
    ferry_tensor_set_t *set; /* a model */
    ferry_tensor_t tensor;
    const ferry_tensor_t *tensors;
    size_t count;
    uint32_t end_rank; /* one past the highest rank */
} plan_side_t;

typedef struct plan_input {
    const char *model; /* NULL: one tensor */
    uint32_t ndim;
    uint64_t shape[FERRY_MAX_DIMS];
    plan_side_t source;
    plan_side_t target;
    uint32_t rank;   /* FERRY_RANK_NONE: the whole plan */
    uint32_t *hosts; /* NULL: no host map */
    uint64_t slot_bytes;
    uint32_t flags; /* FERRY_PLAN_* */
} plan_input_t;

/* Reads the options of `ferry plan`. plan_input_fini is due in any case. */
ferry_status_t plan_input_init(plan_input_t *input, const cli_args_t *args, ferry_error_t *err);
void plan_input_fini(plan_input_t *input);

/* One past the highest rank of both sides. */
uint32_t plan_input_ranks(const plan_input_t *input);

/* --rank and --slot, which other commands have too. */
ferry_status_t plan_read_rank(const cli_args_t *args, uint32_t *rank_p, ferry_error_t *err);
ferry_status_t plan_read_slot(const cli_args_t *args, uint64_t *slot_bytes_p, ferry_error_t *err);

/* Parts of it that other commands use: the dtype that --<option> names. */
ferry_status_t plan_read_dtype(const cli_args_t *args, const char *option, ferry_dtype_t fallback,
                               ferry_dtype_t *dtype_p, ferry_error_t *err);
/* FERRY_INVALID, with a guess, for a model that is not built in. */
ferry_status_t plan_check_model(const char *model, ferry_error_t *err);
/* The tensors of the model, spread as side->spec says from first_rank on; `option` is where the spec comes
 * from. plan_side_fini is due in any case. */
ferry_status_t plan_read_model_side(const char *model, plan_side_t *side, uint32_t first_rank,
                                    const char *option, ferry_error_t *err);
void plan_side_fini(plan_side_t *side);

#endif
