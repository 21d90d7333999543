/* unit.h - cmocka, which needs these headers before it, and a word for expected failures. */
#ifndef FERRY_TEST_UNIT_H
#define FERRY_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

/* `call` (which uses a variable `err`) fails with FERRY_<name>, and the record, written as one line,
 * has `part` in it. */
#define assert_fails(call, name, part)                                                             \
    do {                                                                                           \
        ferry_error_t err = FERRY_ERROR_INIT;                                                      \
        ferry_status_t status_ = (call);                                                           \
        char line_[1024];                                                                          \
        ferry_error_format(&err, line_, sizeof line_);                                             \
        if (status_ != FERRY_##name || err.status != status_ || strstr(line_, (part)) == NULL) {   \
            fail_msg("%s: %s, expected %s; the line \"%s\" should have \"%s\"", #call,             \
                     ferry_status_name(status_), #name, line_, (part));                            \
        }                                                                                          \
    } while (0)

/* `call` (which uses a variable `err`) succeeds and leaves the record alone. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        ferry_error_t err = FERRY_ERROR_INIT;                                                      \
        ferry_status_t status_ = (call);                                                           \
        if (status_ != FERRY_OK) {                                                                 \
            fail_msg("%s: %s: %s", #call, ferry_status_name(status_), err.text);                   \
        }                                                                                          \
        assert_int_equal(err.status, FERRY_OK);                                                    \
        assert_string_equal(err.text, "");                                                         \
    } while (0)

#endif
