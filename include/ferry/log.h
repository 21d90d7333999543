/* log.h - what ferry says beside its results.
 *
 * Silent by default. FERRY_DEBUG=WARN|INFO|TRACE (read by ferry_log_from_env, which the tool calls
 * first) or ferry_log_set_level opens it; lines go to standard error or to a sink of the host program.
 *
 * Ownership: the sink and its context are borrowed until they are replaced.
 * Thread safety: set level and sink before threads start; emitting is safe from any thread. */
#ifndef FERRY_LOG_H
#define FERRY_LOG_H

#include <ferry/status.h>

FERRY_BEGIN_DECLS

typedef enum ferry_log_level {
    FERRY_LOG_OFF = 0,
    FERRY_LOG_WARN = 1,
    FERRY_LOG_INFO = 2,
    FERRY_LOG_TRACE = 3,
} ferry_log_level_t;

/* Receives one line without a newline. */
typedef void (*ferry_log_sink_t)(void *context, ferry_log_level_t level, const char *line);

/* Reads FERRY_DEBUG. An unknown value is refused with FERRY_INVALID and changes nothing. */
FERRY_API ferry_status_t ferry_log_from_env(ferry_error_t *err);

FERRY_API void ferry_log_set_level(ferry_log_level_t level);
FERRY_API ferry_log_level_t ferry_log_get_level(void);

/* Hands a line, made as printf would, to the sink when the level is open. Long lines are cut. */
FERRY_API void ferry_log(ferry_log_level_t level, const char *format, ...) FERRY_PRINTF(2, 3);

/* NULL brings back the sink that writes to standard error. */
FERRY_API void ferry_log_set_sink(ferry_log_sink_t sink, void *context);

FERRY_END_DECLS

#endif
