/* expression.h - expressions over the numbers of a config.json.
 *
 *     num_key_value_heads | num_attention_heads        the first that is there
 *     hidden_size / num_attention_heads
 *
 * An expression is kept as steps of a stack machine. Its value may be missing (a key is not there) or
 * wrong (a division by 0, a result that does not fit): that is an error only where it is used. */
#ifndef FERRY_MODEL_EXPRESSION_H
#define FERRY_MODEL_EXPRESSION_H

#include <stdbool.h>

#include <ferry/rules.h>

#include "base/memory.h"

typedef enum fy_op {
    FY_CONSTANT,
    FY_NUMBER,
    FY_KEY,
    FY_ADD,
    FY_SUB,
    FY_MUL,
    FY_DIV,
    FY_OR
} fy_op_t;

typedef struct fy_step {
    fy_op_t op;
    uint64_t value;  /* of a constant; which number */
    const char *key; /* of config.json */
} fy_step_t;

typedef struct fy_expression {
    fy_step_t *steps; /* freed with fy_free */
    size_t count;
    size_t cap;
} fy_expression_t;

/* A number that rules define. */
typedef struct fy_number {
    const char *name;
    fy_expression_t expression;
} fy_number_t;

typedef struct fy_value {
    uint64_t value;
    const char *missing; /* the key that is not there, or NULL */
    const char *wrong;   /* what is wrong, or NULL */
} fy_value_t;

static inline bool fy_value_is_there(const fy_value_t *value) {
    return value->missing == NULL && value->wrong == NULL;
}

/* What reading answers when memory is out. */
extern const char fy_expression_no_memory[];

/* Reads [text, end). A name is one of the first `count` numbers, else a key, which is copied to the
 * arena. NULL, or what is wrong and, in *at_p, where. */
const char *fy_expression_read(const char *text, const char *end, const fy_number_t *numbers,
                               size_t count, fy_arena_t *arena, fy_expression_t *expression,
                               const char **at_p);

/* `values` are those of the numbers that the expression may name. */
fy_value_t fy_expression_value(const fy_expression_t *expression, const fy_value_t *values,
                               const ferry_config_number_t *config, size_t nconfig);

#endif
