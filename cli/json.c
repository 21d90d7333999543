/* json.c - builds JSON objects with json-c.
 *
 * Invariant: once nomem is set nothing is printed; every value given is owned or freed. */
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

void cli_json_init(cli_json_t *json) {
    json->root = json_object_new_object();
    json->nomem = json->root == NULL;
}

void cli_json_fini(cli_json_t *json) {
    (void)json_object_put(json->root);
    *json = (cli_json_t){0};
}

void cli_json_put(cli_json_t *json, struct json_object *object, const char *key,
                  struct json_object *value) {
    if (object == NULL || value == NULL || json_object_object_add(object, key, value) != 0) {
        (void)json_object_put(value);
        json->nomem = true;
    }
}

void cli_json_push(cli_json_t *json, struct json_object *array, struct json_object *value) {
    if (array == NULL || value == NULL || json_object_array_add(array, value) != 0) {
        (void)json_object_put(value);
        json->nomem = true;
    }
}

void cli_json_null(cli_json_t *json, struct json_object *object, const char *key) {
    if (object == NULL || json_object_object_add(object, key, NULL) != 0) {
        json->nomem = true;
    }
}

void cli_json_u64(cli_json_t *json, struct json_object *object, const char *key, uint64_t value) {
    cli_json_put(json, object, key, json_object_new_uint64(value));
}

void cli_json_bool(cli_json_t *json, struct json_object *object, const char *key, bool value) {
    cli_json_put(json, object, key, json_object_new_boolean(value ? 1 : 0));
}

/* json-c would print 17 digits. */
void cli_json_seconds(cli_json_t *json, struct json_object *object, const char *key, double value) {
    char text[64];
    (void)snprintf(text, sizeof text, "%.6f", value);
    cli_json_put(json, object, key, json_object_new_double_s(value, text));
}

void cli_json_double(cli_json_t *json, struct json_object *object, const char *key, double value) {
    cli_json_put(json, object, key, json_object_new_double(value));
}

void cli_json_text(cli_json_t *json, struct json_object *object, const char *key,
                   const char *value) {
    if (value == NULL) {
        cli_json_null(json, object, key);
    } else {
        cli_json_put(json, object, key, json_object_new_string(value));
    }
}

void cli_json_hash(cli_json_t *json, struct json_object *object, const char *key, uint64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%016" PRIx64, value);
    cli_json_text(json, object, key, text);
}

void cli_json_u64s(cli_json_t *json, struct json_object *object, const char *key,
                   const uint64_t *values, size_t count) {
    struct json_object *array = cli_json_array(json, object, key);
    for (size_t i = 0; i < count; i++) {
        cli_json_push(json, array, json_object_new_uint64(values[i]));
    }
}

/* What was put is still there to fill, unless putting freed it. */
static struct json_object *put_container(cli_json_t *json, struct json_object *object,
                                         const char *key, struct json_object *value) {
    cli_json_put(json, object, key, value);
    return json->nomem ? NULL : value;
}

struct json_object *cli_json_object(cli_json_t *json, struct json_object *object, const char *key) {
    return put_container(json, object, key, json_object_new_object());
}

struct json_object *cli_json_array(cli_json_t *json, struct json_object *object, const char *key) {
    return put_container(json, object, key, json_object_new_array());
}

ferry_status_t cli_json_print(const cli_json_t *json, cli_output_t *out, ferry_error_t *err) {
    const char *text = json->nomem
                           ? NULL
                           : json_object_to_json_string_ext(
                                 json->root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                 JSON_C_TO_STRING_NOSLASHESCAPE);
    if (text == NULL) {
        return cli_fail_nomem(err);
    }
    cli_write(out, text, strlen(text));
    cli_write(out, "\n", 1);
    return FERRY_OK;
}
