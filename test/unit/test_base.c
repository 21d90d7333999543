/* test_base.c - error lines, log levels, versions: what base promises to users. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/log.h>
#include <ferry/status.h>
#include <ferry/version.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/memory.h"

static void a_record_is_one_line(void **state) {
    (void)state;
    ferry_error_t err = FERRY_ERROR_INIT;
    char line[256];
    uint64_t lo[] = {0, 128};
    uint64_t extent[] = {512, 128};
    assert_int_equal(fy_fail(&err, FERRY_IO, "peer closed\nthe connection"), FERRY_IO);
    fy_error_ranks(&err, 3, 1);
    fy_error_ranks(&err, 9, 9);
    fy_error_tensor(&err, "layers.7.mlp.w1");
    fy_error_tensor(&err, "another");
    fy_error_region(&err, 2, lo, extent);
    err.round = 4;
    const char *want = "rank 3 <- rank 1, tensor layers.7.mlp.w1 [0:512, 128:256], round 4: "
                       "peer closed?the connection";
    assert_int_equal(ferry_error_format(&err, line, sizeof line), strlen(want));
    assert_string_equal(line, want);
    assert_int_equal(ferry_error_format(&err, line, 8), strlen(want));
    assert_string_equal(line, "rank 3 ");
    ferry_error_clear(&err);
    ferry_error_format(&err, line, sizeof line);
    assert_string_equal(line, "success");
}

static void long_names_keep_both_ends(void **state) {
    (void)state;
    ferry_error_t err = FERRY_ERROR_INIT;
    char name[400];
    memset(name, 'm', sizeof name);
    name[0] = 'b';
    memcpy(name + sizeof name - 4, "end", 4);
    fy_error_tensor(&err, name);
    assert_int_equal(strlen(err.tensor), FERRY_ERROR_TENSOR_MAX - 1);
    assert_memory_equal(err.tensor, "bmm", 3);
    assert_non_null(strstr(err.tensor, "..."));
    assert_string_equal(err.tensor + strlen(err.tensor) - 3, "end");
}

static void every_status_has_a_name(void **state) {
    (void)state;
#define SAME(name, number, text)                                                                   \
    assert_string_equal(ferry_status_name(FERRY_##name), #name);                                   \
    assert_string_equal(ferry_status_text((ferry_status_t)(number)), text);
    FERRY_STATUS_MAP(SAME)
#undef SAME
    assert_string_equal(ferry_status_name((ferry_status_t)999), "?");
    assert_string_equal(ferry_version(), "0.1.0");
    assert_int_equal(ferry_version_number(), 1000);
}

typedef struct heard {
    int lines;
    char last[64];
} heard_t;

static void hear(void *context, ferry_log_level_t level, const char *line) {
    heard_t *heard = context;
    (void)level;
    heard->lines++;
    strncpy(heard->last, line, sizeof heard->last - 1);
}

static void the_log_obeys_its_level(void **state) {
    (void)state;
    heard_t heard = {0};
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_log_set_sink(hear, &heard);
    ferry_log(FERRY_LOG_WARN, "off");
    assert_int_equal(heard.lines, 0);
    assert_int_equal(setenv("FERRY_DEBUG", "INFO", 1), 0);
    assert_int_equal(ferry_log_from_env(&err), FERRY_OK);
    ferry_log(FERRY_LOG_TRACE, "too much");
    ferry_log(FERRY_LOG_INFO, "line %d", 1);
    assert_int_equal(heard.lines, 1);
    assert_string_equal(heard.last, "line 1");
    assert_int_equal(setenv("FERRY_DEBUG", "info", 1), 0);
    assert_int_equal(ferry_log_from_env(&err), FERRY_INVALID);
    assert_non_null(strstr(err.text, "FERRY_DEBUG=info"));
    assert_int_equal(ferry_log_get_level(), FERRY_LOG_INFO);
    ferry_log_set_level(FERRY_LOG_OFF);
    ferry_log_set_sink(NULL, NULL);
    unsetenv("FERRY_DEBUG");
}

static void bytes_come_back(void **state) {
    (void)state;
    const uint64_t values[] = {0, 1, 127, 128, 16383, 16384, UINT64_MAX - 1, UINT64_MAX};
    const int64_t signs[] = {0, -1, 1, INT64_MIN, INT64_MAX};
    fy_writer_t w = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        fy_write_u64(&w, values[i]);
    }
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        fy_write_i64(&w, signs[i]);
    }
    fy_reader_t r = {w.bytes, w.length, 0, false};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_true(fy_read_u64(&r) == values[i]);
    }
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        assert_true(fy_read_i64(&r) == signs[i]);
    }
    assert_false(r.failed);
    assert_int_equal(fy_read_u64(&r), 0);
    assert_true(r.failed);
    fy_free(w.bytes);
    const uint8_t endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    r = (fy_reader_t){endless, sizeof endless, 0, false};
    (void)fy_read_u64(&r);
    assert_true(r.failed);
}

static void arenas_hold_and_align(void **state) {
    (void)state;
    fy_arena_t arena = FY_ARENA_INIT;
    unsigned char *kept[300];
    for (size_t i = 0; i < 300; i++) {
        size_t bytes = i % 50 == 49 ? 100000 : i + 1;
        kept[i] = fy_arena_alloc(&arena, bytes, 1);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % _Alignof(max_align_t), 0);
        memset(kept[i], (int)(i & 0xff), bytes);
    }
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(kept[i][0], i & 0xff);
        assert_int_equal(kept[i][i % 50 == 49 ? 99999 : i], i & 0xff);
    }
    assert_null(fy_arena_alloc(&arena, SIZE_MAX, 2));
    assert_null(fy_arena_alloc(&arena, SIZE_MAX, 1));
    assert_null(fy_alloc(SIZE_MAX / 2, 3));
    fy_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_one_line),    cmocka_unit_test(long_names_keep_both_ends),
        cmocka_unit_test(every_status_has_a_name), cmocka_unit_test(the_log_obeys_its_level),
        cmocka_unit_test(bytes_come_back),         cmocka_unit_test(arenas_hold_and_align),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
