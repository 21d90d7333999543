/* rules.h - inside of rules: what a text of docs/formats/rules.md says.
 *
 * A statement `tensor` is a rule; one of its patterns, with alternatives expanded, is a name that leads to
 * it. A statement `stored` is expanded whole: for every choice of alternatives there is one fy_stored_rule,
 * whose sources are names that lead to it. */
#ifndef FERRY_MODEL_RULES_H
#define FERRY_MODEL_RULES_H

#include <ferry/rules.h>

#include "model/expression.h"
#include "model/names.h"
#include "model/placing.h"

enum { FY_MAX_SOURCES = 16 };

/* The pp stages that hold a tensor. */
typedef enum fy_where { FY_ON_LAYER, FY_ON_FIRST, FY_ON_LAST, FY_ON_ENDS } fy_where_t;

typedef struct fy_tensor_rule {
    uint32_t line;
    fy_where_t where;
    fy_way_t way;         /* but for the unit */
    fy_expression_t unit; /* empty: 1 */
    const char *tied; /* where there is no tensor of this name, this one stands for it; or NULL */
} fy_tensor_rule_t;

typedef enum fy_joint { FY_ALONE, FY_CONCAT, FY_INTERLEAVE } fy_joint_t;

typedef struct fy_stored_rule {
    uint32_t line;
    fy_joint_t joint;
    uint32_t dim; /* of the joint, in the stored tensor without the dim of a stack */
    bool stack;   /* a first dim counts the experts that a rank has */
    bool transposed;
    const char *target;
    uint32_t nsources;
    const char *sources[FY_MAX_SOURCES];
    const fy_expression_t *units[FY_MAX_SOURCES]; /* FY_INTERLEAVE */
} fy_stored_rule_t;

typedef struct fy_form {
    const char *name;
    fy_stored_rule_t *stored;
    size_t nstored, stored_cap;
    fy_named_t *names; /* sources; sorted */
    size_t nnames, names_cap;
} fy_form_t;

struct ferry_rules {
    fy_arena_t arena; /* all strings */
    const char *name;
    bool extra_layers; /* layers past the last one lie on the last stage */
    const char **types;
    size_t ntypes, types_cap;
    fy_number_t *numbers;
    size_t nnumbers, numbers_cap;
    fy_tensor_rule_t *rules;
    size_t nrules, rules_cap;
    fy_named_t *names; /* of tensors; sorted */
    size_t nnames, names_cap;
    fy_form_t *forms; /* without hf */
    size_t nforms, forms_cap;
    fy_expression_t **units; /* those of stored rules */
    size_t nunits, units_cap;
};

/* Works out all numbers; freed with fy_free. NULL when memory is out. */
fy_value_t *fy_rules_values(const ferry_rules_t *rules, const ferry_place_params_t *params);

/* Are the parameters whole? */
ferry_status_t fy_rules_check_params(const ferry_place_params_t *params, ferry_error_t *err);

#endif
