/* log.h - emitting log lines. FY_LOG costs one load when the level is off. */
#ifndef FERRY_BASE_LOG_H
#define FERRY_BASE_LOG_H

#include <ferry/log.h>

void fy_log_emit(ferry_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define FY_LOG(level, ...)                                                                         \
    do {                                                                                           \
        if (ferry_log_get_level() >= (level)) {                                                    \
            fy_log_emit((level), __VA_ARGS__);                                                     \
        }                                                                                          \
    } while (0)

#endif
