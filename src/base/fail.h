/* fail.h - how ferry's own code fills error records.
 *
 * The one who knows fills in: fy_fail starts a record with a status and a line; the callers above add
 * the tensor, region or rank on the way up, and never overwrite what is already there. */
#ifndef FERRY_BASE_FAIL_H
#define FERRY_BASE_FAIL_H

#include <ferry/status.h>

/* Starts the record (err may be NULL) and returns status, so that callers can `return fy_fail(...)`. */
ferry_status_t fy_fail(ferry_error_t *err, ferry_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* FERRY_NOMEM, naming what the memory was for. */
ferry_status_t fy_fail_nomem(ferry_error_t *err, const char *what);

/* Fills in the field when it is still empty. Long names keep their two ends. */
void fy_error_tensor(ferry_error_t *err, const char *name);
void fy_error_region(ferry_error_t *err, uint32_t ndim, const uint64_t *lo, const uint64_t *extent);
void fy_error_ranks(ferry_error_t *err, uint32_t rank, uint32_t peer);

/* Puts "prefix: " before the text of the record. */
void fy_error_prefix(ferry_error_t *err, const char *prefix);

#ifdef __clang_analyzer__
/* Lets the analyzer see that the status which comes back is the one that went in. */
#define fy_fail(err, status, ...) ((void)(fy_fail)(err, status, __VA_ARGS__), (status))
#define fy_fail_nomem(err, what) ((void)(fy_fail_nomem)(err, what), FERRY_NOMEM)
#endif

/* At the door of a public function: an argument that must be there. */
#define FY_NEED(pointer, err)                                                                      \
    do {                                                                                           \
        if ((pointer) == NULL) {                                                                   \
            return fy_fail((err), FERRY_INVALID, "%s: %s is NULL", __func__, #pointer);            \
        }                                                                                          \
    } while (0)

/* The same for an array of `count` entries. */
#define FY_NEED_ARRAY(pointer, count, err)                                                         \
    do {                                                                                           \
        if ((count) > 0) {                                                                         \
            FY_NEED(pointer, err);                                                                 \
        }                                                                                          \
    } while (0)

/* Leaves the function with the status of what failed. */
#define FY_TRY(expression)                                                                         \
    do {                                                                                           \
        ferry_status_t fy_try_status = (expression);                                               \
        if (fy_try_status != FERRY_OK) {                                                           \
            return fy_try_status;                                                                  \
        }                                                                                          \
    } while (0)

#endif
