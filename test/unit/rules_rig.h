/* rules_rig.h - what the tests of rules share: whole tensors and config numbers of the catalogue's models,
 * and small models that people would recognise. */
#ifndef RULES_RIG_H
#define RULES_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/rules.h>

enum { RIG_NUMBERS = 24 };

typedef struct rig {
    ferry_config_number_t config[RIG_NUMBERS];
    ferry_whole_t *tensors;
    void **memory; /* names and shapes; two a tensor */
    size_t ntensors, cap;
    ferry_place_params_t params;
    ferry_parallel_t parallel;
} rig_t;

static inline void rig_number(rig_t *rig, const char *key, uint64_t value) {
    assert_true(rig->params.nconfig < RIG_NUMBERS);
    rig->config[rig->params.nconfig++] = (ferry_config_number_t){key, value};
}

static inline void rig_init(rig_t *rig) {
    *rig = (rig_t){.ntensors = 0};
    rig->params = (ferry_place_params_t)FERRY_PLACE_PARAMS_INIT;
}

static inline void rig_fini(rig_t *rig) {
    for (size_t i = 0; i < rig->ntensors; i++) {
        free(rig->memory[2 * i]);
        free(rig->memory[2 * i + 1]);
    }
    free(rig->memory);
    free(rig->tensors);
}

/* A tensor of one or, when columns > 0, two dims. */
static inline void rig_tensor(rig_t *rig, uint64_t rows, uint64_t columns, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static inline void rig_tensor(rig_t *rig, uint64_t rows, uint64_t columns, const char *format,
                              ...) {
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (rig->ntensors == rig->cap) {
        rig->cap = rig->cap > 0 ? 2 * rig->cap : 64;
        rig->tensors = realloc(rig->tensors, rig->cap * sizeof *rig->tensors);
        rig->memory = realloc(rig->memory, 2 * rig->cap * sizeof *rig->memory);
        assert_true(rig->tensors != NULL && rig->memory != NULL);
    }
    uint64_t *shape = malloc(2 * sizeof *shape);
    char *copy = malloc(strlen(name) + 1);
    assert_true(shape != NULL && copy != NULL);
    strcpy(copy, name);
    rig->memory[2 * rig->ntensors] = copy;
    rig->memory[2 * rig->ntensors + 1] = shape;
    shape[0] = rows;
    shape[1] = columns;
    rig->tensors[rig->ntensors++] = (ferry_whole_t){copy, FERRY_BF16, columns > 0 ? 2u : 1u, shape};
}

/* Parameters for a spec ("tp=2,pp=2"); they borrow from the rig. */
static inline const ferry_place_params_t *rig_params(rig_t *rig, const char *spec) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_parallel_parse(spec, &rig->parallel, &err) != FERRY_OK) {
        fail_msg("%s: %s", spec, err.text);
    }
    rig->params.config = rig->config;
    rig->params.tensors = rig->tensors;
    rig->params.ntensors = rig->ntensors;
    rig->params.parallel = &rig->parallel;
    return &rig->params;
}

static inline ferry_rules_t *rig_rules(const char *name) {
    ferry_rules_t *rules = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_builtin(name, &rules, &err) != FERRY_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    return rules;
}

static inline ferry_tensor_set_t *rig_place(rig_t *rig, const ferry_rules_t *rules,
                                            const char *spec) {
    ferry_tensor_set_t *set = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_rules_place(rules, rig_params(rig, spec), &set, &err) != FERRY_OK) {
        fail_msg("%s %s: %s %s", ferry_rules_name(rules), spec, err.tensor, err.text);
    }
    return set;
}

#endif
