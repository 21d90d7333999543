/* json.h - builds JSON objects with json-c, and notices when memory runs out on the way.
 *
 * json-c answers a failed allocation with NULL, which it also takes for JSON's null. Values go through
 * json_put here, so that a NULL is told apart: it is remembered and fails the printing. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <json-c/json.h>

#include "output.h"

typedef struct cli_json {
    struct json_object *root;
    bool nomem;
} cli_json_t;

void cli_json_init(cli_json_t *json);
void cli_json_fini(cli_json_t *json);

/* Adds `value` to the object, which then owns it. A NULL value means memory ran out. */
void cli_json_put(cli_json_t *json, struct json_object *object, const char *key,
                  struct json_object *value);
void cli_json_push(cli_json_t *json, struct json_object *array, struct json_object *value);

void cli_json_null(cli_json_t *json, struct json_object *object, const char *key);
void cli_json_u64(cli_json_t *json, struct json_object *object, const char *key, uint64_t value);
void cli_json_bool(cli_json_t *json, struct json_object *object, const char *key, bool value);
void cli_json_seconds(cli_json_t *json, struct json_object *object, const char *key, double value);
void cli_json_double(cli_json_t *json, struct json_object *object, const char *key, double value);
/* NULL text becomes null. */
void cli_json_text(cli_json_t *json, struct json_object *object, const char *key,
                   const char *value);
void cli_json_hash(cli_json_t *json, struct json_object *object, const char *key, uint64_t value);
void cli_json_u64s(cli_json_t *json, struct json_object *object, const char *key,
                   const uint64_t *values, size_t count);

/* An empty object or array that is already in its place; borrowed. NULL when memory ran out, which
 * the other calls take calmly. */
struct json_object *cli_json_object(cli_json_t *json, struct json_object *object, const char *key);
struct json_object *cli_json_array(cli_json_t *json, struct json_object *object, const char *key);

/* The root, indented, and a newline. */
ferry_status_t cli_json_print(const cli_json_t *json, cli_output_t *out, ferry_error_t *err);

#endif
