/* test_parallel.c - reading parallel specs and counting their ranks: what is accepted, and the line
 * that every refusal gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/model.h>

static ferry_parallel_t spec(const char *text) {
    ferry_parallel_t parallel;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_parallel_parse(text, &parallel, &err);
    if (status != FERRY_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    return parallel;
}

static void test_parse(void **state) {
    (void)state;
    ferry_parallel_t p = spec("tp=8,pp=4,dp=2,cp=3,ep=16,etp=1,order=ep-tp-dp-pp-cp");
    assert_int_equal(p.size, sizeof p);
    assert_int_equal(p.tp, 8);
    assert_int_equal(p.pp, 4);
    assert_int_equal(p.dp, 2);
    assert_int_equal(p.cp, 3);
    assert_int_equal(p.ep, 16);
    assert_int_equal(p.etp, 1);
    assert_string_equal(p.order, "ep-tp-dp-pp-cp");
    uint32_t world = 0;
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_OK);
    assert_int_equal(world, 192);

    p = spec("dp=64");
    assert_int_equal(p.tp * p.cp * p.pp * p.ep * p.etp, 1);
    assert_string_equal(p.order, "");
    p = spec("tp=1048576");
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_OK);
    assert_int_equal(world, 1048576);
}

static void test_parse_errors(void **state) {
    (void)state;
    static const struct {
        const char *text;
        ferry_status_t status;
        const char *says;
    } cases[] = {
        {"", FERRY_PARSE, "empty"},
        {"tp", FERRY_PARSE, "\"tp\": expected axis=number"},
        {"tp=8,", FERRY_PARSE, "\"\": expected axis=number"},
        {"tp=8,,dp=2", FERRY_PARSE, "\"\": expected axis=number"},
        {"tp=8 dp=2", FERRY_PARSE, "axis tp: \"8 dp=2\" is not a number"},
        {"tp=", FERRY_PARSE, "axis tp: \"\" is not a number"},
        {"tp=x", FERRY_PARSE, "axis tp: \"x\""},
        {"tp=-1", FERRY_PARSE, "axis tp: \"-1\""},
        {"tp=8k", FERRY_PARSE, "axis tp: \"8k\""},
        {"xp=8", FERRY_PARSE, "unknown axis \"xp\""},
        {"TP=8", FERRY_PARSE, "unknown axis \"TP\""},
        {"=8", FERRY_PARSE, "unknown axis \"\""},
        {"edp=8", FERRY_PARSE, "unknown axis \"edp\""},
        {"tp=8,dp=2,tp=8", FERRY_INVALID, "axis tp is given twice"},
        {"dp=0", FERRY_INVALID, "axis dp must be at least 1"},
        {"etp=1048577", FERRY_INVALID, "axis etp: 1048577 is too large"},
        {"pp=18446744073709551616", FERRY_INVALID, "axis pp: 18446744073709551616 is too large"},
        {"tp=1048576,dp=2", FERRY_INVALID, "world tp*cp*pp*dp = 1048576*1*1*2 is more than"},
        {"tp=1048576,cp=1048576,dp=1048576,pp=1048576", FERRY_INVALID, "is more than 1048576"},
        {"tp=4,dp=2,ep=3", FERRY_INVALID, "ep*etp = 3*1 does not divide tp*cp*dp = 8"},
        {"tp=4,pp=4,ep=4,etp=4", FERRY_INVALID, "ep*etp = 4*4 does not divide tp*cp*dp = 4"},
        {"tp=2,order=", FERRY_INVALID, "order: \"\" is no axis"},
        {"order=tp-cp-ep-dp", FERRY_INVALID, "order: axis pp is missing"},
        {"order=tp-cp-ep-dp-tp", FERRY_INVALID, "order: axis tp is named twice"},
        {"order=tp-cp-ep-dp-pp-tp", FERRY_INVALID, "order: axis tp is named twice"},
        {"order=tp-cp-ep-dp-etp", FERRY_INVALID, "order: \"etp\" is no axis"},
        {"order=tp-cp-ep-dp-pp-", FERRY_INVALID, "order: \"\" is no axis"},
        {"order=tp-cp-ep-dp-zz", FERRY_INVALID, "order: \"zz\" is no axis"},
        {"order=tp-cp-ep-dp-pp,order=tp-cp-ep-dp-pp", FERRY_INVALID, "order is given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ferry_parallel_t parallel = {.tp = 77};
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = ferry_parallel_parse(cases[i].text, &parallel, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].says) == NULL) {
            fail_msg("\"%s\" gave %s: %s", cases[i].text, ferry_status_name(status), err.text);
        }
        assert_int_equal(err.status, status);
        assert_int_equal(parallel.tp, 77);
        assert_int_equal(ferry_parallel_parse(cases[i].text, &parallel, NULL), status);
    }
    ferry_parallel_t parallel;
    assert_int_equal(ferry_parallel_parse(NULL, &parallel, NULL), FERRY_PARSE);
}

static void test_world_of_a_struct(void **state) {
    (void)state;
    uint32_t world = 0;
    ferry_parallel_t p = {.size = sizeof p}; /* zero means 1 */
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_OK);
    assert_int_equal(world, 1);

    p.tp = p.cp = p.dp = p.pp = UINT32_MAX;
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_INVALID);
    p.pp = p.dp = 1; /* the product fits in 64 bits and is still too much */
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_INVALID);
    p.tp = p.cp = 1;
    p.ep = p.etp = UINT32_MAX;
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_INVALID);

    p = (ferry_parallel_t)FERRY_PARALLEL_INIT;
    memset(p.order, 'x', sizeof p.order);
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_INVALID);
    p = (ferry_parallel_t)FERRY_PARALLEL_INIT;
    p.size = 0;
    assert_int_equal(ferry_parallel_world(&p, &world, NULL), FERRY_INVALID);
    assert_int_equal(ferry_parallel_world(NULL, &world, NULL), FERRY_INVALID);
    assert_int_equal(world, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_errors),
        cmocka_unit_test(test_world_of_a_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
