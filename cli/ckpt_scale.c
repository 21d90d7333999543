/* ckpt_scale.c - a smaller model of the same family. */
#include "ckpt_scale.h"

#include <stdlib.h>

#include "error.h"

enum {
    LAYERS_MIN = 4,    /* enough for a few stages */
    EXPERTS_STEP = 8,  /* and the fewest */
    WIDTH_STEPS = 256, /* widths are tried in steps of 1/256 */
    HEAD_MIN = 8,      /* head_dim; below it heads go */
    KV_HEADS_MIN = 4,  /* tp=3 and tp=4 have no more than that */
    HEADS_MIN = 4,
};

ferry_status_t ckpt_parse_part(const char *what, const char *text, double *part_p,
                               ferry_error_t *err) {
    char *end = NULL;
    double part = strtod(text, &end);
    if (end != text && *end == '/') {
        const char *below = end + 1;
        double divisor = strtod(below, &end);
        part = end != below && divisor > 0 ? part / divisor : -1;
    }
    if (end == text || *end != '\0' || !(part > 0) || part > 1) {
        return cli_fail(err, FERRY_PARSE,
                        "%s '%s': a part above 0 and up to 1 is needed, such as 1/16", what, text);
    }
    *part_p = part;
    return FERRY_OK;
}

static ferry_status_t count(const char *model, const ferry_model_numbers_t *numbers,
                            uint64_t *parameters_p, ferry_error_t *err) {
    ferry_tensor_set_t *set = NULL;
    ferry_status_t status = ferry_model_tensors_with(model, numbers, FERRY_BF16, &set, err);
    if (status != FERRY_OK) {
        return status;
    }
    size_t ntensors = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &ntensors);
    *parameters_p = 0;
    for (size_t i = 0; i < ntensors; i++) {
        uint64_t elements = 1;
        for (uint32_t d = 0; d < tensors[i].ndim; d++) {
            elements *= tensors[i].shape[d];
        }
        *parameters_p += elements;
    }
    ferry_tensor_set_destroy(set);
    return FERRY_OK;
}

/* ---- one step of each kind ---------------------------------------------------------------------- */

typedef void (*shrink_t)(const ferry_model_numbers_t *whole, uint32_t step,
                         ferry_model_numbers_t *numbers);

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static void to_layers(const ferry_model_numbers_t *whole, uint32_t step,
                      ferry_model_numbers_t *numbers) {
    numbers->layers = step;
    if (whole->dense_layers > 0) {
        numbers->dense_layers = most(1, whole->dense_layers * step / whole->layers);
    }
}

static void to_experts(const ferry_model_numbers_t *whole, uint32_t step,
                       ferry_model_numbers_t *numbers) {
    numbers->experts = least(whole->experts, step * EXPERTS_STEP);
}

/* step/WIDTH_STEPS of a length, in whole units and no less than one of them. 0 stays 0. */
static uint32_t narrow(uint32_t length, uint32_t step, uint32_t unit) {
    uint32_t part = (uint32_t)((uint64_t)length * step / WIDTH_STEPS) / unit * unit;
    return least(length, most(part, unit));
}

/* How many of `heads` are left where a head of `from` elements would become narrower than HEAD_MIN. */
static uint32_t fewer_heads(uint32_t heads, uint32_t from, uint32_t step, uint32_t fewest) {
    uint32_t left = (uint32_t)((uint64_t)heads * from * step / WIDTH_STEPS / HEAD_MIN);
    return least(heads, most(left, least(heads, fewest)));
}

static void to_width(const ferry_model_numbers_t *whole, uint32_t step,
                     ferry_model_numbers_t *numbers) {
    numbers->hidden = narrow(whole->hidden, step, 16);
    numbers->vocab = narrow(whole->vocab, step, 64);
    numbers->ffn = narrow(whole->ffn, step, 16);
    numbers->expert_ffn = narrow(whole->expert_ffn, step, 16);
    if (whole->shared_ffn > 0) {
        numbers->shared_ffn = numbers->expert_ffn * (whole->shared_ffn / whole->expert_ffn);
    }
    if (whole->kv_heads > 0) {
        numbers->head_dim = narrow(whole->head_dim, step, HEAD_MIN);
        numbers->kv_heads = fewer_heads(whole->kv_heads, whole->head_dim, step, KV_HEADS_MIN);
        numbers->heads = numbers->kv_heads * (whole->heads / whole->kv_heads);
    } else {
        numbers->heads = fewer_heads(whole->heads, whole->qk_nope, step, HEADS_MIN);
    }
    numbers->q_rank = narrow(whole->q_rank, step, 16);
    numbers->kv_rank = narrow(whole->kv_rank, step, 16);
    numbers->qk_nope = narrow(whole->qk_nope, step, HEAD_MIN);
    numbers->qk_rope = narrow(whole->qk_rope, step, HEAD_MIN);
    numbers->v_head = narrow(whole->v_head, step, HEAD_MIN);
}

/* ---- the largest step that fits ------------------------------------------------------------------ */

typedef struct search {
    const char *model;
    const ferry_model_numbers_t *whole;
    uint64_t room; /* parameters */
} search_t;

/* Takes the largest step in [low, high] whose model fits, or `low`. */
static ferry_status_t shrink(const search_t *search, shrink_t to, uint32_t low, uint32_t high,
                             ferry_model_numbers_t *numbers, uint64_t *parameters_p,
                             ferry_error_t *err) {
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        uint64_t parameters = 0;
        to(search->whole, middle, numbers);
        ferry_status_t status = count(search->model, numbers, &parameters, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (parameters <= search->room) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    to(search->whole, low, numbers);
    return count(search->model, numbers, parameters_p, err);
}

ferry_status_t ckpt_scale(const char *model, double part, ferry_model_numbers_t *numbers_p,
                          uint64_t *parameters_p, ferry_error_t *err) {
    ferry_model_numbers_t whole;
    uint64_t parameters = 0;
    ferry_status_t status = ferry_model_numbers(model, &whole, err);
    if (status == FERRY_OK) {
        status = count(model, &whole, &parameters, err);
    }
    ferry_model_numbers_t numbers = whole;
    search_t search = {model, &whole, (uint64_t)(part * (double)parameters)};
    if (status == FERRY_OK && parameters > search.room) {
        status = shrink(&search, to_layers, least(LAYERS_MIN, whole.layers), whole.layers, &numbers,
                        &parameters, err);
    }
    if (status == FERRY_OK && parameters > search.room && whole.experts > 0) {
        uint32_t steps = (whole.experts + EXPERTS_STEP - 1) / EXPERTS_STEP;
        status = shrink(&search, to_experts, 1, steps, &numbers, &parameters, err);
    }
    if (status == FERRY_OK && parameters > search.room) {
        status = shrink(&search, to_width, 1, WIDTH_STEPS, &numbers, &parameters, err);
    }
    if (status == FERRY_OK) {
        *numbers_p = numbers;
        *parameters_p = parameters;
    }
    return status;
}
