/* expression.c - expressions over the numbers of a config.json: reading, working out.
 *
 * Invariant: nesting is limited, so that neither reading nor working out needs more than a fixed stack. */
#include "model/expression.h"

#include <string.h>

#include "base/checked.h"
#include "base/text.h"

enum {
    MAX_NESTING = 16,
    MAX_STACK = 4 * (MAX_NESTING + 1), /* each level of parentheses has at most 4 values waiting */
};

/* ---- reading ----------------------------------------------------------------------------------- */

const char fy_expression_no_memory[] = "memory is out";

typedef struct reader {
    const char *at;
    const char *end;
    const fy_number_t *numbers;
    size_t count;
    fy_arena_t *arena;
    fy_expression_t *out;
    uint32_t nesting;
} reader_t;

static const char *read_level(reader_t *r, uint32_t level);

static void skip_spaces(reader_t *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) {
        r->at++;
    }
}

static const char *add_step(reader_t *r, fy_step_t step) {
    if (!fy_reserve(&r->out->steps, &r->out->cap, r->out->count + 1, sizeof step)) {
        return fy_expression_no_memory;
    }
    r->out->steps[r->out->count++] = step;
    return NULL;
}

static bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static const char *read_name(reader_t *r) {
    const char *start = r->at;
    while (r->at < r->end &&
           (begins_name(*r->at) || (*r->at >= '0' && *r->at <= '9') || *r->at == '.')) {
        r->at++;
    }
    size_t length = (size_t)(r->at - start);
    for (size_t i = 0; i < r->count; i++) {
        if (strlen(r->numbers[i].name) == length &&
            memcmp(r->numbers[i].name, start, length) == 0) {
            return add_step(r, (fy_step_t){.op = FY_NUMBER, .value = i});
        }
    }
    char *key = fy_arena_alloc(r->arena, length + 1, 1);
    if (key == NULL) {
        return fy_expression_no_memory;
    }
    memcpy(key, start, length);
    key[length] = '\0';
    return add_step(r, (fy_step_t){.op = FY_KEY, .key = key});
}

static const char *read_atom(reader_t *r) {
    skip_spaces(r);
    if (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        uint64_t value = 0;
        if (!fy_text_read_u64(&r->at, &value)) {
            return "the number does not fit in 64 bits";
        }
        return add_step(r, (fy_step_t){.op = FY_CONSTANT, .value = value});
    }
    if (r->at < r->end && begins_name(*r->at)) {
        return read_name(r);
    }
    if (r->at == r->end || *r->at != '(') {
        return "expected a number, a name or '('";
    }
    if (++r->nesting > MAX_NESTING) {
        return "too many parentheses inside each other";
    }
    r->at++;
    const char *wrong = read_level(r, 0);
    if (wrong != NULL) {
        return wrong;
    }
    r->nesting--;
    if (r->at == r->end || *r->at != ')') {
        return "expected an operator or ')'";
    }
    r->at++;
    return NULL;
}

/* The operators of each level, from the one that binds least. */
static const struct operator{
    char sign;
    uint32_t level;
    fy_op_t op;
}
operators[] = {
    {'|', 0, FY_OR}, {'+', 1, FY_ADD}, {'-', 1, FY_SUB}, {'*', 2, FY_MUL}, {'/', 2, FY_DIV}};

enum { OPERATORS = sizeof operators / sizeof operators[0], LEVELS = 3 };

static const struct operator* operator_at(const reader_t *r, uint32_t level) {
    for (size_t i = 0; i < OPERATORS && r->at < r->end; i++) {
        if (*r->at == operators[i].sign && operators[i].level == level) {
            return &operators[i];
        }
    }
    return NULL;
}

static const char *read_level(reader_t *r, uint32_t level) {
    const char *wrong = level + 1 < LEVELS ? read_level(r, level + 1) : read_atom(r);
    while (wrong == NULL) {
        skip_spaces(r);
        const struct operator* op = operator_at(r, level);
        if (op == NULL) {
            return NULL;
        }
        r->at++;
        wrong = level + 1 < LEVELS ? read_level(r, level + 1) : read_atom(r);
        if (wrong == NULL) {
            wrong = add_step(r, (fy_step_t){.op = op->op});
        }
    }
    return wrong;
}

const char *fy_expression_read(const char *text, const char *end, const fy_number_t *numbers,
                               size_t count, fy_arena_t *arena, fy_expression_t *expression,
                               const char **at_p) {
    reader_t r = {.at = text,
                  .end = end,
                  .numbers = numbers,
                  .count = count,
                  .arena = arena,
                  .out = expression};
    const char *wrong = read_level(&r, 0);
    if (wrong == NULL && r.at < r.end) {
        wrong = "expected an operator: + - * / or |";
    }
    *at_p = r.at;
    return wrong;
}

/* ---- working out ------------------------------------------------------------------------------- */

static fy_value_t key_value(const char *key, const ferry_config_number_t *config, size_t nconfig) {
    for (size_t i = 0; i < nconfig; i++) {
        if (strcmp(config[i].key, key) == 0) {
            return (fy_value_t){.value = config[i].value};
        }
    }
    return (fy_value_t){.missing = key};
}

static fy_value_t calculate(fy_op_t op, const fy_value_t *a, const fy_value_t *b) {
    if (op == FY_OR) {
        return fy_value_is_there(a) || !fy_value_is_there(b) ? *a : *b;
    }
    if (!fy_value_is_there(a) || !fy_value_is_there(b)) {
        return fy_value_is_there(a) ? *b : *a;
    }
    fy_value_t result = {0, NULL, NULL};
    if (op == FY_DIV) {
        if (b->value == 0) {
            result.wrong = "it divides by 0";
        } else {
            result.value = a->value / b->value;
        }
    } else if (op == FY_SUB) {
        result.value = a->value - b->value;
        result.wrong = a->value < b->value ? "it is below 0" : NULL;
    } else if (op == FY_ADD ? !fy_add_u64(a->value, b->value, &result.value)
                            : !fy_mul_u64(a->value, b->value, &result.value)) {
        result.wrong = "it does not fit in 64 bits";
    }
    return result;
}

fy_value_t fy_expression_value(const fy_expression_t *expression, const fy_value_t *values,
                               const ferry_config_number_t *config, size_t nconfig) {
    fy_value_t stack[MAX_STACK] = {{0, NULL, NULL}};
    size_t depth = 0;
    for (size_t i = 0; i < expression->count; i++) {
        const fy_step_t *step = &expression->steps[i];
        if (step->op == FY_CONSTANT) {
            stack[depth++] = (fy_value_t){.value = step->value};
        } else if (step->op == FY_NUMBER) {
            stack[depth++] = values[step->value];
        } else if (step->op == FY_KEY) {
            stack[depth++] = key_value(step->key, config, nconfig);
        } else {
            depth--;
            stack[depth - 1] = calculate(step->op, &stack[depth - 1], &stack[depth]);
        }
    }
    return stack[0];
}
