/* test_model_numbers.c - the numbers of catalogue models, and their tensors with other numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/model.h>
#include <ferry/rules.h>

static ferry_model_numbers_t numbers_of(const char *model) {
    ferry_model_numbers_t numbers;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_model_numbers(model, &numbers, &err) != FERRY_OK) {
        fail_msg("%s: %s", model, err.text);
    }
    return numbers;
}

static const ferry_tensor_t *find(const ferry_tensor_set_t *set, const char *name) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* With its own numbers a model has its own tensors; its type has rules. */
static void test_same(void **state) {
    (void)state;
    for (size_t m = 0; m < ferry_model_count(); m++) {
        ferry_model_info_t info;
        assert_int_equal(ferry_model_info(m, &info, NULL), FERRY_OK);
        ferry_model_numbers_t numbers = numbers_of(info.name);
        assert_int_equal(numbers.layers, info.layers);
        assert_int_equal(numbers.experts, info.experts);
        ferry_rules_t *rules = NULL;
        assert_int_equal(ferry_rules_for_type(numbers.model_type, &rules, NULL), FERRY_OK);
        ferry_rules_destroy(rules);
        ferry_parallel_t one = FERRY_PARALLEL_INIT;
        ferry_tensor_set_t *sets[2] = {NULL, NULL};
        assert_int_equal(ferry_model_tensors(info.name, FERRY_BF16, &one, 0, &sets[0], NULL),
                         FERRY_OK);
        assert_int_equal(ferry_model_tensors_with(info.name, &numbers, FERRY_BF16, &sets[1], NULL),
                         FERRY_OK);
        size_t counts[2] = {0, 0};
        const ferry_tensor_t *a = ferry_tensor_set_tensors(sets[0], &counts[0]);
        const ferry_tensor_t *b = ferry_tensor_set_tensors(sets[1], &counts[1]);
        assert_int_equal(counts[0], counts[1]);
        for (size_t i = 0; i < counts[0]; i++) {
            assert_string_equal(a[i].name, b[i].name);
            assert_int_equal(a[i].dtype, b[i].dtype);
            assert_int_equal(a[i].ndim, b[i].ndim);
            assert_memory_equal(a[i].shape, b[i].shape, a[i].ndim * sizeof *a[i].shape);
        }
        ferry_tensor_set_destroy(sets[0]);
        ferry_tensor_set_destroy(sets[1]);
    }
}

static void test_other(void **state) {
    (void)state;
    ferry_model_numbers_t numbers = numbers_of("deepseek-v3");
    assert_string_equal(numbers.model_type, "deepseek_v3");
    numbers.layers = 3;
    numbers.dense_layers = 1;
    numbers.experts = 2;
    numbers.hidden = 40;
    numbers.expert_ffn = 7;
    numbers.heads = 6;
    numbers.v_head = 5;
    ferry_tensor_set_t *set = NULL;
    assert_int_equal(ferry_model_tensors_with("deepseek-v3", &numbers, FERRY_F16, &set, NULL),
                     FERRY_OK);
    const ferry_tensor_t *expert = find(set, "model.layers.2.mlp.experts.1.gate_proj.weight");
    assert_non_null(expert);
    assert_int_equal(expert->dtype, FERRY_F16);
    assert_int_equal(expert->shape[0], 7);
    assert_int_equal(expert->shape[1], 40);
    assert_int_equal(find(set, "model.layers.0.self_attn.o_proj.weight")->shape[1], 30);
    assert_null(find(set, "model.layers.2.mlp.experts.2.gate_proj.weight"));
    assert_null(find(set, "model.layers.0.mlp.experts.0.gate_proj.weight"));
    assert_null(find(set, "model.layers.3.input_layernorm.weight"));
    ferry_tensor_set_destroy(set);
}

static void refused(const ferry_model_numbers_t *numbers, const char *model) {
    ferry_tensor_set_t *set = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    assert_int_equal(ferry_model_tensors_with(model, numbers, FERRY_BF16, &set, &err),
                     FERRY_INVALID);
    assert_null(set);
    assert_true(err.text[0] != '\0');
}

static void test_refused(void **state) {
    (void)state;
    ferry_model_numbers_t good = numbers_of("llama3-8b");
    ferry_model_numbers_t bad = good;
    bad.hidden = 0; /* needed */
    refused(&bad, "llama3-8b");
    bad = good;
    bad.experts = 8; /* of no meaning here */
    refused(&bad, "llama3-8b");
    bad = good;
    bad.size = 1;
    refused(&bad, "llama3-8b");
    bad = numbers_of("deepseek-v3");
    bad.dense_layers = bad.layers; /* then nobody has experts */
    refused(&bad, "deepseek-v3");
    refused(&good, "no-such-model");
    assert_int_equal(ferry_model_numbers("no-such-model", &bad, NULL), FERRY_INVALID);
    assert_int_equal(ferry_model_numbers(NULL, &bad, NULL), FERRY_INVALID);
    assert_int_equal(ferry_model_numbers("llama3-8b", NULL, NULL), FERRY_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_other),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
