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

#endif
