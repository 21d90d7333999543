/* log.c - levels, sinks, lines.
 *
 * The level is the only state that the data path reads; it is atomic so that a host program may turn
 * it while ferry works. The sink is set before threads start, as the public header says. */
#include <ferry/log.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { LINE_BYTES = 1024 };

static const char *const level_names[] = {"OFF", "WARN", "INFO", "TRACE"};

static void sink_stderr(void *context, ferry_log_level_t level, const char *line) {
    (void)context;
    (void)fprintf(stderr, "ferry %s: %s\n", level_names[level], line);
}

static atomic_int current_level = FERRY_LOG_OFF;
static ferry_log_sink_t current_sink = sink_stderr;
static void *current_context = NULL;

ferry_status_t ferry_log_from_env(ferry_error_t *err) {
    const char *value = getenv("FERRY_DEBUG");
    if (value == NULL || value[0] == '\0') {
        return FERRY_OK;
    }
    for (int level = FERRY_LOG_WARN; level <= FERRY_LOG_TRACE; level++) {
        if (strcmp(value, level_names[level]) == 0) {
            ferry_log_set_level((ferry_log_level_t)level);
            return FERRY_OK;
        }
    }
    return fy_fail(err, FERRY_INVALID, "FERRY_DEBUG=%s is unknown: use WARN, INFO or TRACE", value);
}

void ferry_log_set_level(ferry_log_level_t level) {
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

ferry_log_level_t ferry_log_get_level(void) {
    return (ferry_log_level_t)atomic_load_explicit(&current_level, memory_order_relaxed);
}

void ferry_log_set_sink(ferry_log_sink_t sink, void *context) {
    current_sink = sink != NULL ? sink : sink_stderr;
    current_context = sink != NULL ? context : NULL;
}

void ferry_log(ferry_log_level_t level, const char *format, ...) {
    if (level == FERRY_LOG_OFF || level > ferry_log_get_level()) {
        return;
    }
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    current_sink(current_context, level, line);
}
