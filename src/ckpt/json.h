/* json.h - reading JSON that may be hostile, and writing its strings.
 *
 * A reader goes once through a text, value by value, and the caller says what it expects next:
 *
 *     fy_json_init(&json, path, text, length);
 *     FY_TRY(fy_json_object(&json, err));
 *     for (;;) {
 *         FY_TRY(fy_json_key(&json, &key, err));
 *         if (key == NULL) { break; }                  // the object has been left
 *         if (strcmp(key, "n") == 0) { FY_TRY(fy_json_u64(&json, &n, err)); }
 *         else { FY_TRY(fy_json_skip(&json, err)); }
 *     }
 *     FY_TRY(fy_json_end(&json, err));                 // (leaving early: fy_json_fini all the same)
 *     fy_json_fini(&json);
 *
 * Memory is what the keys of the open objects take, whatever the text holds. Refused everywhere, in what is
 * skipped too: what RFC 8259 does not allow, bad UTF-8, half surrogates, NUL in a string, a key twice in an
 * object, more than FY_JSON_DEPTH_MAX levels. Each complaint is FERRY_PARSE and says "path: line 3, column 7: ...";
 * columns are bytes, from 1.
 *
 * Strings are decoded where they stand: the text is changed, and they live as long as it does. */
#ifndef FERRY_CKPT_JSON_H
#define FERRY_CKPT_JSON_H

#include <stdbool.h>

#include <ferry/status.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { FY_JSON_DEPTH_MAX = 32 };

typedef enum fy_json_type {
    FY_JSON_NULL,
    FY_JSON_BOOL,
    FY_JSON_NUMBER,
    FY_JSON_STRING,
    FY_JSON_ARRAY,
    FY_JSON_OBJECT,
} fy_json_type_t;

/* An object or array that has been entered. */
typedef struct fy_json_level {
    bool object;
    bool started;      /* an element has been read */
    const char **keys; /* so far */
    size_t nkeys;
    size_t cap;
    fy_index_t index; /* of the keys, once they are many */
} fy_json_level_t;

typedef struct fy_json {
    const char *path;
    char *text;
    size_t length;
    size_t at;
    size_t line;    /* from 1 */
    size_t line_at; /* where it begins */
    uint32_t depth;
    fy_json_level_t levels[FY_JSON_DEPTH_MAX];
} fy_json_t;

/* Borrows both. The text needs no NUL at its end, and it is changed. */
void fy_json_init(fy_json_t *json, const char *path, char *text, size_t length);
void fy_json_fini(fy_json_t *json);

/* What comes next, by its first character. */
ferry_status_t fy_json_peek(fy_json_t *json, fy_json_type_t *type_p, ferry_error_t *err);

/* Enters an object; fy_json_key then gives the key of its next value, or NULL when there is none and the
 * object has been left. */
ferry_status_t fy_json_object(fy_json_t *json, ferry_error_t *err);
ferry_status_t fy_json_key(fy_json_t *json, const char **key_p, ferry_error_t *err);

/* Enters an array; fy_json_item then says whether another item comes. If not, the array has been left. */
ferry_status_t fy_json_array(fy_json_t *json, ferry_error_t *err);
ferry_status_t fy_json_item(fy_json_t *json, bool *more_p, ferry_error_t *err);

ferry_status_t fy_json_string(fy_json_t *json, const char **text_p, ferry_error_t *err);
/* A whole number from 0 to 2^64 - 1, written without fraction and exponent. */
ferry_status_t fy_json_u64(fy_json_t *json, uint64_t *value_p, ferry_error_t *err);
/* The same where any number may stand: *whole_p says whether it was such a one. */
ferry_status_t fy_json_number(fy_json_t *json, uint64_t *value_p, bool *whole_p,
                              ferry_error_t *err);
ferry_status_t fy_json_bool(fy_json_t *json, bool *value_p, ferry_error_t *err);
/* Any value. */
ferry_status_t fy_json_skip(fy_json_t *json, ferry_error_t *err);

/* Nothing but blanks may follow. */
ferry_status_t fy_json_end(fy_json_t *json, ferry_error_t *err);

/* A complaint about what was just read, at this place. */
ferry_status_t fy_json_fail(const fy_json_t *json, ferry_error_t *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "text" in quotes and escaped; it must be valid UTF-8. */
void fy_json_write_string(fy_writer_t *writer, const char *text);
/* Whether it is UTF-8 as JSON needs it: nothing overlong, no surrogates, up to U+10FFFF. */
bool fy_utf8_valid(const char *text);

#ifdef __clang_analyzer__
#define fy_json_fail(json, err, ...) ((void)(fy_json_fail)(json, err, __VA_ARGS__), FERRY_PARSE)
#endif

#endif
