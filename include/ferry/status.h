/* status.h - what a ferry function answers, and the record that explains it.
 *
 * Every function that can fail returns a ferry_status_t and takes, last, an optional ferry_error_t
 * that the caller owns. On failure the record says what happened and where: each floor fills in only
 * what it knows (a rank, a peer, a tensor, a region, a round). On success it is left alone.
 *
 * Ownership: the record is plain memory of fixed size; copy it freely, nothing needs freeing.
 * Thread safety: no shared state; one record belongs to one thread at a time. */
#ifndef FERRY_STATUS_H
#define FERRY_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/export.h>

FERRY_BEGIN_DECLS

/* The one list of statuses: name, number, text. It grows at the end; numbers are stable. */
#define FERRY_STATUS_MAP(X)                                                                        \
    X(OK, 0, "success")                                                                            \
    X(NOMEM, 1, "out of memory")                                                                   \
    X(INVALID, 2, "invalid argument")                                                              \
    X(PARSE, 3, "text cannot be read")                                                             \
    X(OVERFLOW, 4, "a size or count is too large")                                                 \
    X(MISMATCH, 5, "source and target do not fit together")                                        \
    X(UNSUPPORTED, 6, "not supported")                                                             \
    X(CORRUPT, 7, "data is damaged or truncated")                                                  \
    X(VERSION, 8, "written by another version")                                                    \
    X(IO, 9, "input or output failed")                                                             \
    X(CHECK, 10, "the plan is wrong")                                                              \
    X(STOPPED, 11, "stopped by the caller")                                                        \
    X(DEAD, 12, "a rank has died or left")                                                         \
    X(TIMEOUT, 13, "a deadline has passed")

typedef enum ferry_status {
#define FERRY_STATUS_ENUM(name, number, text) FERRY_##name = (number),
    FERRY_STATUS_MAP(FERRY_STATUS_ENUM)
#undef FERRY_STATUS_ENUM
} ferry_status_t;

/* "no rank" in every field that names one. */
#define FERRY_RANK_NONE UINT32_MAX
/* "no task" in every field that holds a task id. */
#define FERRY_TASK_NONE UINT64_MAX

#define FERRY_ERROR_TENSOR_MAX 128
#define FERRY_ERROR_REGION_MAX 128
#define FERRY_ERROR_TEXT_MAX 384

typedef struct ferry_error {
    ferry_status_t status;
    uint32_t rank;                       /* where it happened, or FERRY_RANK_NONE */
    uint32_t peer;                       /* the other end, or FERRY_RANK_NONE */
    int32_t round;                       /* round of a schedule, or -1 */
    int32_t sys_errno;                   /* errno of a failed system call, or 0 */
    char tensor[FERRY_ERROR_TENSOR_MAX]; /* name, shortened in the middle when long, or "" */
    char region[FERRY_ERROR_REGION_MAX]; /* "[0:512, 128:256]", or "" */
    char text[FERRY_ERROR_TEXT_MAX];     /* one line for people, without a newline */
} ferry_error_t;

#define FERRY_ERROR_INIT                                                                           \
    { FERRY_OK, FERRY_RANK_NONE, FERRY_RANK_NONE, -1, 0, "", "", "" }

/* "INVALID" and "invalid argument"; "?" for a number that is no status. Static strings. */
FERRY_API const char *ferry_status_name(ferry_status_t status);
FERRY_API const char *ferry_status_text(ferry_status_t status);

/* Forgets what the record says. */
FERRY_API void ferry_error_clear(ferry_error_t *err);

/* Writes the record as one line, for example
 *   rank 3 <- rank 1, tensor layers.7.mlp.w1 [0:512, 128:256], round 4: peer closed the connection
 * into buf (always terminated when cap > 0). Returns the length the whole line has. */
FERRY_API size_t ferry_error_format(const ferry_error_t *err, char *buf, size_t cap);

FERRY_END_DECLS

#endif
