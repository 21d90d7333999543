/* test_json.c - the JSON reader: what it reads, and everything it refuses, with the place. */
#include "oracle/unit.h"

#include <stdlib.h>

#include "ckpt/json.h"

/* A copy of the text with nothing behind it, so that ASan sees a read past its end. */
static fy_json_t start(const char *text, size_t length) {
    char *copy = malloc(length + (length == 0));
    assert_non_null(copy);
    memcpy(copy, text, length);
    fy_json_t json;
    fy_json_init(&json, "some.json", copy, length);
    return json;
}

static void stop(fy_json_t *json) {
    fy_json_fini(json);
    free(json->text);
}

static ferry_status_t skip_all(const char *text, size_t length, ferry_error_t *err) {
    fy_json_t json = start(text, length);
    ferry_status_t status = fy_json_skip(&json, err);
    if (status == FERRY_OK) {
        status = fy_json_end(&json, err);
    }
    stop(&json);
    return status;
}

static void values_are_read(void **state) {
    (void)state;
    static const char text[] =
        " { \"n\" : 18446744073709551615 ,\"zero\":0, \"b\":[true,false , null],\r\n"
        "\t\"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E4\\u20ac\\uD83D\\ude00 "
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\",\"e\":{},\"x\":-1.5E-7}\n ";
    fy_json_t json = start(text, strlen(text));
    const char *key = NULL;
    const char *string = NULL;
    uint64_t number = 0;
    bool flag = false;
    bool more = false;
    fy_json_type_t type = FY_JSON_NULL;
    assert_ok(fy_json_object(&json, &err));
    assert_ok(fy_json_key(&json, &key, &err));
    assert_string_equal(key, "n");
    assert_ok(fy_json_peek(&json, &type, &err));
    assert_int_equal(type, FY_JSON_NUMBER);
    assert_ok(fy_json_u64(&json, &number, &err));
    assert_true(number == UINT64_MAX);
    assert_ok(fy_json_key(&json, &key, &err));
    assert_ok(fy_json_u64(&json, &number, &err));
    assert_true(number == 0);
    assert_ok(fy_json_key(&json, &key, &err));
    assert_ok(fy_json_array(&json, &err));
    for (int i = 0; i < 2; i++) {
        assert_ok(fy_json_item(&json, &more, &err));
        assert_true(more);
        assert_ok(fy_json_bool(&json, &flag, &err));
        assert_int_equal(flag, i == 0);
    }
    assert_ok(fy_json_item(&json, &more, &err));
    assert_ok(fy_json_peek(&json, &type, &err));
    assert_int_equal(type, FY_JSON_NULL);
    assert_ok(fy_json_skip(&json, &err));
    assert_ok(fy_json_item(&json, &more, &err));
    assert_false(more);
    assert_ok(fy_json_key(&json, &key, &err));
    assert_ok(fy_json_string(&json, &string, &err));
    assert_string_equal(string, "\"\\/\b\f\n\r\t\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 "
                                "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_string_equal(key, "s"); /* strings stay */
    assert_ok(fy_json_key(&json, &key, &err));
    assert_ok(fy_json_object(&json, &err));
    assert_ok(fy_json_key(&json, &key, &err));
    assert_null(key);
    assert_ok(fy_json_key(&json, &key, &err));
    assert_ok(fy_json_skip(&json, &err));
    assert_ok(fy_json_key(&json, &key, &err));
    assert_null(key);
    assert_ok(fy_json_end(&json, &err));
    stop(&json);
}

static void values_of_every_kind_are_skipped(void **state) {
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "10",
        "-1.0",
        "1e5",
        "1E+5",
        "0.5e-05",
        "true",
        "false",
        "null",
        "\"\"",
        "[]",
        "{}",
        "[[],[[]],{}]",
        "{\"\":{\"\":0}}",
        " [ 1 , \"\\u0001\\u007f\\uffff\" ] ",
        "\"\x7f\xf4\x8f\xbf\xbf\"",
        "{\"a\":{\"x\":0},\"b\":{\"x\":0}}", /* one key in two objects */
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(skip_all(good[i], strlen(good[i]), &err));
        for (size_t cut = 0; cut < strlen(good[i]); cut++) { /* no prefix reads past its end */
            (void)skip_all(good[i], cut, NULL);
        }
    }
}

static void what_is_no_json_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        const char *text;
    } cases[] = {
        {"", "some.json: line 1, column 1: expected a value, and the text ends"},
        {" \n ", "line 2, column 2: expected a value, and the text ends"},
        {"{", "expected a key or '}', and the text ends"},
        {"{,}", "expected a key or '}', not ','"},
        {"{\"a\"}", "column 5: expected ':', not '}'"},
        {"{\"a\":\"b\",}", "expected a key, not '}'"},
        {"{\"a\":\"b\" \"c\":\"d\"}", "expected ',' or '}', not '\"'"},
        {"{\"a\":\"\\n\"\n\n  x}", "line 3, column 3: expected ',' or '}', not 'x'"},
        {"{} {}", "column 4: expected the end, not '{'"},
        {"1 2", "column 3: expected the end, not '2'"},
        {"\xef\xbb\xbf{}", "expected a value, not the byte 0xef"},
        {"{'a':1}", "expected a key or '}', not '''"},
        {"{a:1}", "expected a key or '}', not 'a'"},
        {"[1}", "expected ',' or ']', not '}'"},
        {"{\"a\":1]", "expected ',' or '}', not ']'"},
        {"\"a", "a string without an end"},
        {"\"a\\", "a string without an end"},
        {"\"a\\\"", "a string without an end"},
        {"\"\\x\"", "column 2: no such escape in a string"},
        {"\"\\u12g4\"", "\\u needs four hexadecimal digits"},
        {"\"\\u12", "\\u needs four hexadecimal digits"},
        {"\"\\u0000\"", "a NUL in a string"},
        {"\"\\ud800\"", "half a surrogate pair"},
        {"\"\\ud800\\ud800\"", "half a surrogate pair"},
        {"\"\\ud800\\n00000\"", "half a surrogate pair"},
        {"\"\\udc00\\ud800\"", "half a surrogate pair"},
        {"\"\n\"", "a control character (0x0a) in a string"},
        {"\"\x1f\"", "a control character (0x1f) in a string"},
        {"\"\x80\"", "not UTF-8 (0x80)"},
        {"\"\xc0\xaf\"", "not UTF-8 (0xc0)"},
        {"\"\xc3\"", "not UTF-8 (0xc3)"},
        {"\"\xe0\x9f\xbf\"", "not UTF-8 (0xe0)"},
        {"\"\xed\xa0\x80\"", "not UTF-8 (0xed)"},
        {"\"\xf0\x8f\xbf\xbf\"", "not UTF-8 (0xf0)"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8 (0xf4)"},
        {"\"\xf5\x80\x80\x80\"", "not UTF-8 (0xf5)"},
        {"\"\xe2\x82", "not UTF-8 (0xe2)"},
        {"{\x01", "not the byte 0x01"},
        {"01", "expected the end, not '1'"},
        {"-", "no JSON number"},
        {"-a", "no JSON number"},
        {"1.", "no JSON number"},
        {"1.e3", "no JSON number"},
        {"1e", "no JSON number"},
        {"1e+", "no JSON number"},
        {"+1", "expected a value, not '+'"},
        {".5", "expected a value, not '.'"},
        {"nul", "expected null, not 'n'"},
        {"tru", "expected true or false, not 't'"},
        {"NaN", "expected a value, not 'N'"},
        {"Infinity", "expected a value, not 'I'"},
        {"[1,]", "expected a value, not ']'"},
        {"[,1]", "expected a value, not ','"},
        {"[1 2]", "expected ',' or ']', not '2'"},
        {"[", "expected a value, and the text ends"},
        {"[1", "expected ',' or ']', and the text ends"},
        {"{\"y\":1,\n\"\\u0079\":1}", "line 2, column 1: the key \"y\" is there twice"},
        {"/**/1", "expected a value, not '/'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(skip_all(cases[i].json, strlen(cases[i].json), &err), PARSE, cases[i].text);
        assert_int_equal(skip_all(cases[i].json, strlen(cases[i].json), NULL), FERRY_PARSE);
    }
    assert_fails(skip_all("{\0}", 3, &err), PARSE, "not the byte 0x00");
    assert_fails(skip_all("\"\0\"", 3, &err), PARSE, "a control character (0x00)");
}

static void other_kinds_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        const char *text;
    } numbers[] = {
        {"\"1\"", "expected a number, not '\"'"},
        {"-0", "expected a whole number that is not negative, not -0"},
        {"1.0", "not 1.0"},
        {"1e3", "not 1e3"},
        {"18446744073709551616", "a number of more than 64 bits"},
        {"99999999999999999999999999999999999999999999", "a number of more than 64 bits"},
        {"", "and the text ends"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint64_t number = 77;
        fy_json_t json = start(numbers[i].json, strlen(numbers[i].json));
        assert_fails(fy_json_u64(&json, &number, &err), PARSE, numbers[i].text);
        assert_true(number == 77);
        stop(&json);
    }
    const char *string = NULL;
    bool flag = false;
    fy_json_t json = start(" 1", 2);
    assert_fails(fy_json_string(&json, &string, &err), PARSE,
                 "column 2: expected a string, not '1'");
    assert_fails(fy_json_bool(&json, &flag, &err), PARSE, "expected true or false, not '1'");
    assert_fails(fy_json_object(&json, &err), PARSE, "expected an object, not '1'");
    assert_fails(fy_json_array(&json, &err), PARSE, "expected an array, not '1'");
    stop(&json);
}

static void depth_is_limited(void **state) {
    (void)state;
    char text[2 * (FY_JSON_DEPTH_MAX + 1)];
    for (size_t depth = 1; depth <= FY_JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        if (depth <= FY_JSON_DEPTH_MAX) {
            assert_ok(skip_all(text, 2 * depth, &err));
        } else {
            assert_fails(skip_all(text, 2 * depth, &err), PARSE,
                         "column 33: nested more than 32 deep");
        }
    }
}

/* Few keys and many are looked up in different ways: each number of them, each one repeated, and in objects that
 * follow one another at one level. */
static void a_key_is_there_once(void **state) {
    (void)state;
    for (int count = 1; count < 40; count++) {
        for (int twice = 0; twice <= count; twice++) {
            char text[2048] = "[{\"k0\":0},";
            size_t length = strlen(text);
            for (int object = 0; object < 2; object++) {
                for (int i = 0; i < count; i++) {
                    length += (size_t)snprintf(text + length, sizeof text - length,
                                               "%c\"k%d\":{\"k0\":1}", i > 0 ? ',' : '{', i);
                }
                length += (size_t)snprintf(text + length, sizeof text - length, ",\"k%d\":2}%c",
                                           object == 0 ? count : twice, object == 0 ? ',' : ']');
            }
            assert_true(length < sizeof text);
            if (twice == count) {
                assert_ok(skip_all(text, length, &err));
            } else {
                char expected[64];
                (void)snprintf(expected, sizeof expected, "the key \"k%d\" is there twice", twice);
                assert_fails(skip_all(text, length, &err), PARSE, expected);
            }
        }
    }
}

static void strings_are_written_as_read(void **state) {
    (void)state;
    char text[0x80 + 16];
    for (int c = 1; c < 0x80; c++) {
        text[c - 1] = (char)c;
    }
    (void)snprintf(text + 0x7f, 16, "\xc3\xa4\xf0\x9f\x98\x80");
    assert_true(fy_utf8_valid(text));
    fy_writer_t writer = {NULL, 0, 0, false};
    fy_json_write_string(&writer, text);
    assert_false(writer.failed);
    fy_json_t json = start((const char *)writer.bytes, writer.length);
    const char *back = NULL;
    assert_ok(fy_json_string(&json, &back, &err));
    assert_string_equal(back, text);
    assert_ok(fy_json_end(&json, &err));
    stop(&json);
    free(writer.bytes);
    assert_true(fy_utf8_valid(""));
    assert_false(fy_utf8_valid("a\x80"));
    assert_false(fy_utf8_valid("\xed\xa0\x80"));
    assert_false(fy_utf8_valid("a\xf0\x9f\x98"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(values_of_every_kind_are_skipped),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(a_key_is_there_once),
        cmocka_unit_test(strings_are_written_as_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
