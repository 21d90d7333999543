/* json.c - reading JSON that may be hostile, and writing its strings.
 *
 * Invariants: at <= length; the text before `at` is valid JSON as far as it goes (its strings decoded in place,
 * which never makes them longer); levels[0 .. depth) are the open objects and arrays, and the others own nothing. */
#include "ckpt/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "ckpt/files.h"

enum { FEW_KEYS = 8 }; /* compared one by one; more are found by their hash */

void fy_json_init(fy_json_t *json, const char *path, char *text, size_t length) {
    memset(json, 0, sizeof *json);
    json->path = path;
    json->text = text;
    json->length = length;
    json->line = 1;
}

static void level_fini(fy_json_level_t *level) {
    fy_free(level->keys);
    fy_index_fini(&level->index);
    memset(level, 0, sizeof *level);
}

void fy_json_fini(fy_json_t *json) {
    for (uint32_t i = 0; i < FY_JSON_DEPTH_MAX; i++) {
        level_fini(&json->levels[i]);
    }
    json->depth = 0;
}

static ferry_status_t fail_at(const fy_json_t *json, size_t at, ferry_error_t *err,
                              const char *text) {
    return fy_fail_file(err, FERRY_PARSE, 0, json->path, "line %zu, column %zu: %s", json->line,
                        at - json->line_at + 1, text);
}

ferry_status_t(fy_json_fail)(const fy_json_t *json, ferry_error_t *err, const char *format, ...) {
    char text[FERRY_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail_at(json, json->at, err, text);
}

/* --- characters --------------------------------------------------------------------------------- */

/* The next character that is no blank; -1 at the end. It stays. */
static int next(fy_json_t *json) {
    for (; json->at < json->length; json->at++) {
        char c = json->text[json->at];
        if (c == '\n') {
            json->line++;
            json->line_at = json->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return (unsigned char)c;
        }
    }
    return -1;
}

static ferry_status_t fail_expected(const fy_json_t *json, const char *what, ferry_error_t *err) {
    if (json->at == json->length) {
        return fy_json_fail(json, err, "expected %s, and the text ends", what);
    }
    unsigned char c = (unsigned char)json->text[json->at];
    if (c < 0x20 || c >= 0x7f) {
        return fy_json_fail(json, err, "expected %s, not the byte 0x%02x", what, c);
    }
    return fy_json_fail(json, err, "expected %s, not '%c'", what, c);
}

/* Takes the character or complains. */
static ferry_status_t take(fy_json_t *json, char c, const char *what, ferry_error_t *err) {
    if (next(json) != (unsigned char)c) {
        return fail_expected(json, what, err);
    }
    json->at++;
    return FERRY_OK;
}

/* Bytes of the UTF-8 character at `c`, of which `left` bytes are there; 0 when it is none. */
static size_t utf8_length(const unsigned char *c, size_t left) {
    if (c[0] < 0x80) {
        return 1;
    }
    size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || left < length) {
        return 0;
    }
    /* The second byte is what rules out overlong forms, surrogates and what is past U+10FFFF. */
    unsigned char least = c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    if (c[1] < least || c[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

bool fy_utf8_valid(const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        size_t length = utf8_length((const unsigned char *)text, left);
        if (length == 0) {
            return false;
        }
        text += length;
        left -= length;
    }
    return true;
}

static size_t utf8_write(char *to, uint32_t code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* --- strings ------------------------------------------------------------------------------------- */

/* Four hexadecimal digits at `at`. */
static bool hex4(const fy_json_t *json, size_t at, uint32_t *code_p) {
    uint32_t code = 0;
    if (json->length - at < 4) {
        return false;
    }
    for (size_t i = 0; i < 4; i++) {
        char c = json->text[at + i];
        uint32_t digit = 0;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (uint32_t)((c | 0x20) - 'a') + 10;
        } else {
            return false;
        }
        code = code * 16 + digit;
    }
    *code_p = code;
    return true;
}

/* The character that \uXXXX (and the second half of a pair) at `at` means. */
static ferry_status_t unicode_escape(fy_json_t *json, uint32_t *code_p, ferry_error_t *err) {
    uint32_t code = 0;
    if (!hex4(json, json->at + 2, &code)) {
        return fy_json_fail(json, err, "\\u needs four hexadecimal digits");
    }
    size_t length = 6;
    if (code >= 0xd800 && code <= 0xdfff) {
        uint32_t low = 0;
        bool pair = code < 0xdc00 && json->length - json->at >= 12 &&
                    json->text[json->at + 6] == '\\' && json->text[json->at + 7] == 'u' &&
                    hex4(json, json->at + 8, &low) && low >= 0xdc00 && low <= 0xdfff;
        if (!pair) {
            return fy_json_fail(json, err, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        length = 12;
    }
    if (code == 0) {
        return fy_json_fail(json, err, "a NUL in a string");
    }
    json->at += length;
    *code_p = code;
    return FERRY_OK;
}

/* The character that the escape at `at` means; goes past it. */
static ferry_status_t escape(fy_json_t *json, uint32_t *code_p, ferry_error_t *err) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (json->length - json->at < 2) {
        return fy_json_fail(json, err, "a string without an end");
    }
    char letter = json->text[json->at + 1];
    if (letter == 'u') {
        return unicode_escape(json, code_p, err);
    }
    const char *found = letter == '\0' ? NULL : strchr(letters, letter);
    if (found == NULL) {
        return fy_json_fail(json, err, "no such escape in a string");
    }
    json->at += 2;
    *code_p = (uint32_t)meanings[found - letters];
    return FERRY_OK;
}

/* The string that begins at `at` with its quote. It is decoded towards its own beginning and ends with NUL,
 * at the latest where its closing quote was. */
static ferry_status_t read_string(fy_json_t *json, const char **text_p, ferry_error_t *err) {
    char *text = json->text;
    size_t to = ++json->at;
    *text_p = text + to;
    while (json->at < json->length) {
        unsigned char c = (unsigned char)text[json->at];
        if (c == '"') {
            text[to] = '\0';
            json->at++;
            return FERRY_OK;
        }
        if (c < 0x20) {
            return fy_json_fail(json, err, "a control character (0x%02x) in a string", c);
        }
        if (c == '\\') {
            uint32_t code = 0;
            FY_TRY(escape(json, &code, err));
            to += utf8_write(text + to, code);
            continue;
        }
        size_t length =
            utf8_length((const unsigned char *)text + json->at, json->length - json->at);
        if (length == 0) {
            return fy_json_fail(json, err, "not UTF-8 (0x%02x)", c);
        }
        if (to != json->at) {
            memmove(text + to, text + json->at, length);
        }
        to += length;
        json->at += length;
    }
    return fy_json_fail(json, err, "a string without an end");
}

ferry_status_t fy_json_string(fy_json_t *json, const char **text_p, ferry_error_t *err) {
    if (next(json) != '"') {
        return fail_expected(json, "a string", err);
    }
    return read_string(json, text_p, err);
}

/* --- other values -------------------------------------------------------------------------------- */

static bool is_digit(const fy_json_t *json, size_t at) {
    return at < json->length && json->text[at] >= '0' && json->text[at] <= '9';
}

static size_t skip_digits(const fy_json_t *json, size_t at) {
    while (is_digit(json, at)) {
        at++;
    }
    return at;
}

/* Where the number at `at` ends; `at` itself when there is none. *whole_p: no fraction, no exponent. */
static size_t number_end(const fy_json_t *json, bool *whole_p) {
    size_t start = json->at;
    size_t at = start < json->length && json->text[start] == '-' ? start + 1 : start;
    if (!is_digit(json, at)) {
        return start;
    }
    at = json->text[at] == '0' ? at + 1 : skip_digits(json, at);
    *whole_p = true;
    if (at < json->length && json->text[at] == '.') {
        if (!is_digit(json, at + 1)) {
            return start;
        }
        at = skip_digits(json, at + 1);
        *whole_p = false;
    }
    if (at < json->length && (json->text[at] | 0x20) == 'e') {
        size_t sign = at + 1;
        sign += sign < json->length && (json->text[sign] == '+' || json->text[sign] == '-');
        if (!is_digit(json, sign)) {
            return start;
        }
        at = skip_digits(json, sign);
        *whole_p = false;
    }
    return at;
}

static ferry_status_t skip_number(fy_json_t *json, ferry_error_t *err) {
    bool whole = false;
    size_t end = number_end(json, &whole);
    if (end == json->at) {
        return fy_json_fail(json, err, "no JSON number");
    }
    json->at = end;
    return FERRY_OK;
}

ferry_status_t fy_json_u64(fy_json_t *json, uint64_t *value_p, ferry_error_t *err) {
    int c = next(json);
    if (c != '-' && (c < '0' || c > '9')) {
        return fail_expected(json, "a number", err);
    }
    bool whole = false;
    size_t end = number_end(json, &whole);
    if (end == json->at) {
        return fy_json_fail(json, err, "no JSON number");
    }
    if (c == '-' || !whole) {
        return fy_json_fail(json, err, "expected a whole number that is not negative, not %.*s",
                            (int)fy_min_u64(end - json->at, 40), json->text + json->at);
    }
    uint64_t value = 0;
    for (size_t at = json->at; at < end; at++) {
        if (!fy_mul_u64(value, 10, &value) ||
            !fy_add_u64(value, (uint64_t)(json->text[at] - '0'), &value)) {
            return fy_json_fail(json, err, "a number of more than 64 bits");
        }
    }
    json->at = end;
    *value_p = value;
    return FERRY_OK;
}

ferry_status_t fy_json_number(fy_json_t *json, uint64_t *value_p, bool *whole_p,
                              ferry_error_t *err) {
    bool negative = next(json) == '-';
    bool whole = false;
    (void)number_end(json, &whole);
    *whole_p = whole && !negative;
    return *whole_p ? fy_json_u64(json, value_p, err) : skip_number(json, err);
}

static bool take_word(fy_json_t *json, const char *word) {
    size_t length = strlen(word);
    if (json->length - json->at < length || memcmp(json->text + json->at, word, length) != 0) {
        return false;
    }
    json->at += length;
    return true;
}

ferry_status_t fy_json_bool(fy_json_t *json, bool *value_p, ferry_error_t *err) {
    (void)next(json);
    if (take_word(json, "true")) {
        *value_p = true;
    } else if (take_word(json, "false")) {
        *value_p = false;
    } else {
        return fail_expected(json, "true or false", err);
    }
    return FERRY_OK;
}

ferry_status_t fy_json_peek(fy_json_t *json, fy_json_type_t *type_p, ferry_error_t *err) {
    int c = next(json);
    switch (c) {
    case '{':
        *type_p = FY_JSON_OBJECT;
        return FERRY_OK;
    case '[':
        *type_p = FY_JSON_ARRAY;
        return FERRY_OK;
    case '"':
        *type_p = FY_JSON_STRING;
        return FERRY_OK;
    case 't':
    case 'f':
        *type_p = FY_JSON_BOOL;
        return FERRY_OK;
    case 'n':
        *type_p = FY_JSON_NULL;
        return FERRY_OK;
    default:
        if (c != '-' && (c < '0' || c > '9')) {
            return fail_expected(json, "a value", err);
        }
        *type_p = FY_JSON_NUMBER;
        return FERRY_OK;
    }
}

/* --- objects and arrays ----------------------------------------------------------------------------- */

static ferry_status_t enter(fy_json_t *json, bool object, ferry_error_t *err) {
    if (next(json) != (object ? '{' : '[')) {
        return fail_expected(json, object ? "an object" : "an array", err);
    }
    if (json->depth == FY_JSON_DEPTH_MAX) {
        return fy_json_fail(json, err, "nested more than %d deep", FY_JSON_DEPTH_MAX);
    }
    json->at++;
    json->levels[json->depth].object = object;
    json->levels[json->depth].started = false;
    json->depth++;
    return FERRY_OK;
}

/* Room for few keys is kept for the next object of this level, as headers have many small ones. */
static void leave(fy_json_t *json) {
    fy_json_level_t *level = &json->levels[--json->depth];
    json->at++;
    if (level->nkeys > FEW_KEYS) {
        level_fini(level);
    }
    level->nkeys = 0;
}

typedef struct sought {
    const fy_json_level_t *level;
    const char *key;
} sought_t;

static bool same_key(const void *context, uint32_t id) {
    const sought_t *sought = context;
    return strcmp(sought->level->keys[id], sought->key) == 0;
}

static bool has_key(const fy_json_level_t *level, const char *key, uint64_t hash) {
    if (level->nkeys > FEW_KEYS) {
        sought_t sought = {level, key};
        return fy_index_find(&level->index, hash, same_key, &sought) != FY_INDEX_NONE;
    }
    for (size_t i = 0; i < level->nkeys; i++) {
        if (strcmp(level->keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* Files the key; from the first beyond FEW_KEYS on by hash, and then all the earlier ones too. */
static ferry_status_t add_key(fy_json_level_t *level, const char *key, uint64_t hash,
                              ferry_error_t *err) {
    if (level->nkeys >= FY_INDEX_NONE - 1) {
        return fy_fail(err, FERRY_OVERFLOW, "too many keys in a JSON object");
    }
    bool ok = fy_reserve(&level->keys, &level->cap, level->nkeys + 1, sizeof *level->keys);
    for (size_t i = 0; ok && level->nkeys == FEW_KEYS && i < FEW_KEYS; i++) {
        const char *early = level->keys[i];
        ok = fy_index_add(&level->index, fy_hash_bytes(early, strlen(early)), (uint32_t)i);
    }
    if (ok && level->nkeys >= FEW_KEYS) {
        ok = fy_index_add(&level->index, hash, (uint32_t)level->nkeys);
    }
    if (!ok) {
        return fy_fail_nomem(err, "the keys of a JSON object");
    }
    level->keys[level->nkeys++] = key;
    return FERRY_OK;
}

ferry_status_t fy_json_key(fy_json_t *json, const char **key_p, ferry_error_t *err) {
    fy_json_level_t *level = &json->levels[json->depth - 1];
    int c = next(json);
    if (c == '}') {
        leave(json);
        *key_p = NULL;
        return FERRY_OK;
    }
    if (level->started) {
        FY_TRY(take(json, ',', "',' or '}'", err));
        c = next(json);
    }
    if (c != '"') {
        return fail_expected(json, level->started ? "a key" : "a key or '}'", err);
    }
    size_t start = json->at;
    const char *key = NULL;
    FY_TRY(read_string(json, &key, err));
    uint64_t hash = level->nkeys >= FEW_KEYS ? fy_hash_bytes(key, strlen(key)) : 0;
    if (has_key(level, key, hash)) {
        char text[128];
        (void)snprintf(text, sizeof text, "the key \"%.80s\" is there twice", key);
        return fail_at(json, start, err, text);
    }
    FY_TRY(add_key(level, key, hash, err));
    FY_TRY(take(json, ':', "':'", err));
    level->started = true;
    *key_p = key;
    return FERRY_OK;
}

ferry_status_t fy_json_item(fy_json_t *json, bool *more_p, ferry_error_t *err) {
    fy_json_level_t *level = &json->levels[json->depth - 1];
    if (next(json) == ']') {
        leave(json);
        *more_p = false;
        return FERRY_OK;
    }
    if (level->started) {
        FY_TRY(take(json, ',', "',' or ']'", err));
        if (next(json) == ']') {
            return fail_expected(json, "a value", err);
        }
    }
    level->started = true;
    *more_p = true;
    return FERRY_OK;
}

ferry_status_t fy_json_object(fy_json_t *json, ferry_error_t *err) {
    return enter(json, true, err);
}

ferry_status_t fy_json_array(fy_json_t *json, ferry_error_t *err) {
    return enter(json, false, err);
}

static ferry_status_t skip_object(fy_json_t *json, ferry_error_t *err) {
    const char *key = NULL;
    FY_TRY(fy_json_object(json, err));
    for (;;) {
        FY_TRY(fy_json_key(json, &key, err));
        if (key == NULL) {
            return FERRY_OK;
        }
        FY_TRY(fy_json_skip(json, err));
    }
}

static ferry_status_t skip_array(fy_json_t *json, ferry_error_t *err) {
    bool more = false;
    FY_TRY(fy_json_array(json, err));
    for (;;) {
        FY_TRY(fy_json_item(json, &more, err));
        if (!more) {
            return FERRY_OK;
        }
        FY_TRY(fy_json_skip(json, err));
    }
}

/* Recursive: as deep as FY_JSON_DEPTH_MAX at most. */
ferry_status_t fy_json_skip(fy_json_t *json, ferry_error_t *err) {
    fy_json_type_t type = FY_JSON_NULL;
    bool flag = false;
    const char *text = NULL;
    FY_TRY(fy_json_peek(json, &type, err));
    switch (type) {
    case FY_JSON_OBJECT:
        return skip_object(json, err);
    case FY_JSON_ARRAY:
        return skip_array(json, err);
    case FY_JSON_STRING:
        return read_string(json, &text, err);
    case FY_JSON_NUMBER:
        return skip_number(json, err);
    case FY_JSON_BOOL:
        return fy_json_bool(json, &flag, err);
    case FY_JSON_NULL:
        break;
    }
    return take_word(json, "null") ? FERRY_OK : fail_expected(json, "null", err);
}

ferry_status_t fy_json_end(fy_json_t *json, ferry_error_t *err) {
    return next(json) < 0 ? FERRY_OK : fail_expected(json, "the end", err);
}

/* --- writing ------------------------------------------------------------------------------------ */

void fy_json_write_string(fy_writer_t *writer, const char *text) {
    fy_write_bytes(writer, "\"", 1);
    for (size_t plain = 0; *text != '\0'; text += plain > 0 ? plain : 1) {
        plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\') {
            plain++;
        }
        char escaped[8];
        int length = 0;
        if (plain > 0) {
            fy_write_bytes(writer, text, plain);
        } else if (*text == '"' || *text == '\\') {
            length = snprintf(escaped, sizeof escaped, "\\%c", *text);
        } else {
            length = snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text);
        }
        fy_write_bytes(writer, escaped, (size_t)length);
    }
    fy_write_bytes(writer, "\"", 1);
}
