/* units.c - numbers as people write and read them.
 *
 * Invariant: no number read here wraps around; what does not fit is an error that quotes the text. */
#include "units.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

cli_label_t cli_label_count(uint64_t count) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    cli_label_t label = {""};
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            label.text[at++] = ',';
        }
        label.text[at++] = digits[i];
    }
    return label;
}

cli_label_t cli_label_bytes(uint64_t bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    cli_label_t label;
    if (bytes < 1000) {
        (void)snprintf(label.text, sizeof label.text, "%" PRIu64 " B", bytes);
        return label;
    }
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(label.text, sizeof label.text, "%.*f %s", digits, value, units[unit]);
    return label;
}

cli_label_t cli_label_slot(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    for (size_t i = sizeof units / sizeof units[0]; i-- > 0;) {
        unsigned shift = (unsigned)(10 * (i + 1));
        if (bytes >> shift != 0 && bytes >> shift << shift == bytes) {
            cli_label_t label;
            (void)snprintf(label.text, sizeof label.text, "%" PRIu64 " %s", bytes >> shift,
                           units[i]);
            return label;
        }
    }
    return cli_label_bytes(bytes);
}

cli_label_t cli_label_seconds(double seconds) {
    cli_label_t label;
    if (seconds < 0.0095) {
        (void)snprintf(label.text, sizeof label.text, "%.1f ms", seconds * 1e3);
    } else if (seconds < 0.9995) {
        (void)snprintf(label.text, sizeof label.text, "%.0f ms", seconds * 1e3);
    } else {
        (void)snprintf(label.text, sizeof label.text, "%.2f s", seconds);
    }
    return label;
}

cli_label_t cli_label_ratio(uint64_t a, double b) {
    cli_label_t label = {"-"};
    if (b > 0) {
        (void)snprintf(label.text, sizeof label.text, "%.2fx", (double)a / b);
    }
    return label;
}

cli_label_t cli_label_ranks(uint32_t first, uint32_t last) {
    cli_label_t label;
    if (first == last) {
        (void)snprintf(label.text, sizeof label.text, "%" PRIu32, first);
    } else {
        (void)snprintf(label.text, sizeof label.text, "%" PRIu32 "-%" PRIu32, first, last);
    }
    return label;
}

/* Reads digits at *at_p and moves behind them. False when there are none or they are too many. */
static bool take_digits(const char **at_p, uint64_t *value_p) {
    const char *at = *at_p;
    uint64_t value = 0;
    while (*at >= '0' && *at <= '9') {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
        at++;
    }
    if (at == *at_p) {
        return false;
    }
    *at_p = at;
    *value_p = value;
    return true;
}

ferry_status_t cli_parse_u64(const char *what, const char *text, uint64_t max, uint64_t *value_p,
                             ferry_error_t *err) {
    const char *at = text;
    uint64_t value = 0;
    if (!take_digits(&at, &value) || *at != '\0' || value > max) {
        return cli_fail(err, FERRY_PARSE, "%s '%s': a number from 0 to %" PRIu64 " is needed", what,
                        text, max);
    }
    *value_p = value;
    return FERRY_OK;
}

/* The factor of a unit; 0 when it is none. */
static uint64_t unit_factor(const char *unit) {
    static const char letters[] = "KMGT";
    if (unit[0] == '\0' || strcmp(unit, "B") == 0) {
        return 1;
    }
    char letter = unit[0] == 'k' || unit[0] == 'm' || unit[0] == 'g' || unit[0] == 't'
                      ? (char)(unit[0] - 'a' + 'A')
                      : unit[0];
    const char *found = strchr(letters, letter);
    if (found == NULL) {
        return 0;
    }
    bool decimal = strcmp(unit + 1, "B") == 0;
    if (!decimal && unit[1] != '\0' && strcmp(unit + 1, "i") != 0 && strcmp(unit + 1, "iB") != 0) {
        return 0;
    }
    uint64_t factor = 1;
    for (const char *step = letters; step <= found; step++) {
        factor *= decimal ? 1000 : 1024;
    }
    return factor;
}

ferry_status_t cli_parse_bytes(const char *what, const char *text, uint64_t *bytes_p,
                               ferry_error_t *err) {
    const char *at = text;
    uint64_t value = 0;
    uint64_t factor = 0;
    if (!take_digits(&at, &value) || (factor = unit_factor(at)) == 0) {
        return cli_fail(err, FERRY_PARSE,
                        "%s '%s': a size is needed, such as 1048576, 64K, 256M or 1G", what, text);
    }
    if (value > UINT64_MAX / factor) {
        return cli_fail(err, FERRY_OVERFLOW, "%s '%s': more than 64 bits can count", what, text);
    }
    *bytes_p = value * factor;
    return FERRY_OK;
}

ferry_status_t cli_parse_shape(const char *what, const char *text, uint64_t shape_p[FERRY_MAX_DIMS],
                               uint32_t *ndim_p, ferry_error_t *err) {
    if (text[0] == '\0' || strcmp(text, "scalar") == 0) {
        *ndim_p = 0;
        return FERRY_OK;
    }
    uint64_t shape[FERRY_MAX_DIMS];
    uint32_t ndim = 0;
    const char *at = text;
    for (;;) {
        if (ndim == FERRY_MAX_DIMS) {
            return cli_fail(err, FERRY_OVERFLOW, "%s '%s': more than %d dims", what, text,
                            FERRY_MAX_DIMS);
        }
        if (!take_digits(&at, &shape[ndim])) {
            return cli_fail(err, FERRY_PARSE, "%s '%s': a length (64 bits) is needed at '%s'", what,
                            text, at);
        }
        ndim++;
        if (*at == '\0') {
            break;
        }
        if (*at != 'x' && *at != ',') {
            return cli_fail(err, FERRY_PARSE, "%s '%s': 'x' is needed at '%s'", what, text, at);
        }
        at++;
    }
    memcpy(shape_p, shape, ndim * sizeof shape[0]);
    *ndim_p = ndim;
    return FERRY_OK;
}
