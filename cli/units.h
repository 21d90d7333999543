/* units.h - numbers as people write and read them. */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include <ferry/layout.h>

/* A short text by value, for the arguments of a printf. */
typedef struct cli_label {
    char text[32];
} cli_label_t;

cli_label_t cli_label_count(uint64_t count);       /* 92,544 */
cli_label_t cli_label_bytes(uint64_t bytes);       /* 35.3 GB: powers of 1000, three digits */
cli_label_t cli_label_slot(uint64_t bytes);        /* 256 MiB when exact, else as above */
cli_label_t cli_label_seconds(double seconds);     /* 61 ms, 1.28 s */
cli_label_t cli_label_ratio(uint64_t a, double b); /* 1.02x; "-" when b is 0 */
cli_label_t cli_label_ranks(uint32_t first, uint32_t last); /* 0-63, or 7 */

/* A decimal number of at most `max`. `what` names it in the error ("--rank"). */
ferry_status_t cli_parse_u64(const char *what, const char *text, uint64_t max, uint64_t *value_p,
                             ferry_error_t *err);

/* 1048576, 64K, 256M, 1G, 2T (powers of 1024, also written KiB ...), or 256MB (powers of 1000). */
ferry_status_t cli_parse_bytes(const char *what, const char *text, uint64_t *bytes_p,
                               ferry_error_t *err);

/* "64x128" or "64,128"; "scalar" or "" is 0-d; lengths may be 0. */
ferry_status_t cli_parse_shape(const char *what, const char *text, uint64_t shape_p[FERRY_MAX_DIMS],
                               uint32_t *ndim_p, ferry_error_t *err);

#endif
