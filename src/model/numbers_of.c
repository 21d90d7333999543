/* numbers_of.c - the numbers of a catalogue model, and its tensors with other ones. */
#include <string.h>

#include "base/fail.h"
#include "model/catalogue.h"

/* The numbers that a model of the catalogue and what users see have in common. */
#define NUMBERS_MAP(X)                                                                             \
    X(layers)                                                                                      \
    X(dense_layers)                                                                                \
    X(vocab)                                                                                       \
    X(hidden)                                                                                      \
    X(ffn)                                                                                         \
    X(heads)                                                                                       \
    X(kv_heads)                                                                                    \
    X(head_dim)                                                                                    \
    X(experts)                                                                                     \
    X(expert_ffn)                                                                                  \
    X(shared_ffn)                                                                                  \
    X(q_rank)                                                                                      \
    X(kv_rank)                                                                                     \
    X(qk_nope)                                                                                     \
    X(qk_rope)                                                                                     \
    X(v_head)

static ferry_status_t find(const char *name, const fy_model_t **model_p, ferry_error_t *err) {
    FY_NEED(name, err);
    *model_p = fy_model_find(name);
    return *model_p != NULL ? FERRY_OK
                            : fy_fail(err, FERRY_INVALID, "unknown model \"%.64s\"", name);
}

ferry_status_t ferry_model_numbers(const char *model, ferry_model_numbers_t *numbers_p,
                                   ferry_error_t *err) {
    const fy_model_t *known = NULL;
    FY_NEED(numbers_p, err);
    FY_TRY(find(model, &known, err));
    *numbers_p = (ferry_model_numbers_t){
        .size = sizeof *numbers_p, .model_type = known->type, .tied = known->tied};
#define TAKE(name) numbers_p->name = known->name;
    NUMBERS_MAP(TAKE)
#undef TAKE
    return FERRY_OK;
}

ferry_status_t ferry_model_tensors_with(const char *model, const ferry_model_numbers_t *numbers,
                                        ferry_dtype_t dtype, ferry_tensor_set_t **set_p,
                                        ferry_error_t *err) {
    const fy_model_t *known = NULL;
    FY_NEED(numbers, err);
    FY_NEED(set_p, err);
    FY_TRY(find(model, &known, err));
    if (numbers->size != sizeof *numbers) {
        return fy_fail(err, FERRY_INVALID, "ferry_model_numbers_t of %zu bytes, not %zu",
                       numbers->size, sizeof *numbers);
    }
    fy_model_t other = *known;
#define TAKE(name)                                                                                 \
    if ((numbers->name == 0) != (known->name == 0)) {                                              \
        return fy_fail(err, FERRY_INVALID, "%s: %s is %u", model, #name, numbers->name);           \
    }                                                                                              \
    other.name = numbers->name;
    NUMBERS_MAP(TAKE)
#undef TAKE
    if (other.experts > 0 && other.dense_layers >= other.layers) {
        return fy_fail(err, FERRY_INVALID, "%s: %u layers, and %u of them without experts", model,
                       other.layers, other.dense_layers);
    }
    ferry_parallel_t one = FERRY_PARALLEL_INIT;
    return fy_model_tensors(&other, dtype, &one, 0, set_p, err);
}
