/* limit.h - what this machine can do at best with a given set of copies.
 *
 * The limit is the best of memcpy, streaming stores and rep movsb over the same regions in their best
 * order, by one pinned worker thread a core, on pages that are there already. It shares no code with
 * the library, so that a mistake there cannot lower the bar.
 *
 * Rounds are single calls, so that a caller can run one of its own between any two of them.
 *
 * Ownership: a limit copies the list of copies; the memory they point to is the caller's, and must stay.
 * Thread safety: one thread at a time uses a limit; only one of several limits should run at a time.
 */
#ifndef FERRY_BENCH_LIMIT_H
#define FERRY_BENCH_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/* rows pieces of row_bytes; the strides lead from one row to the next. */
typedef struct bench_copy {
    const void *source;
    void *target;
    size_t rows;
    size_t row_bytes;
    size_t source_stride;
    size_t target_stride;
} bench_copy_t;

typedef enum limit_method {
    LIMIT_MEMCPY,
    LIMIT_STREAM,     /* the widest streaming stores there are */
    LIMIT_STREAM_256, /* half as wide, which some CPUs like better */
    LIMIT_PREFETCH,   /* the widest, with the source fetched ahead by hand */
    LIMIT_MOVSB,
    LIMIT_METHODS,
    LIMIT_BEST = LIMIT_METHODS,
} limit_method_t;

typedef enum limit_order {
    LIMIT_BY_TARGET,   /* copy after copy, ascending in the target */
    LIMIT_BY_SOURCE,   /* copy after copy, ascending in the source */
    LIMIT_TARGET_ROWS, /* copies side by side in the target: row by row through all of them */
    LIMIT_SOURCE_ROWS, /* the same in the source */
    LIMIT_ORDERS,
} limit_order_t;

typedef struct limit limit_t;

/* NULL, with errno, when memory or threads are missing. Copies must not overlap each other's target. */
limit_t *limit_create(const bench_copy_t *copies, size_t count);
void limit_destroy(limit_t *limit);

/* False for a method that this CPU does not have. */
bool limit_has(limit_method_t method);

/* Carries out all copies once and returns the seconds. A method runs in its best order, LIMIT_BEST is
 * the best method in its best order. The first call finds these out by trying them all. */
double limit_round(limit_t *limit, limit_method_t method);

/* One method in one order, without trying others. */
double limit_round_in(limit_t *limit, limit_method_t method, limit_order_t order);

/* What limit_round runs for a method, as "stream by target". */
const char *limit_describe(limit_t *limit, limit_method_t method);

/* --- the limit of cross-process reads --------------------------------------------------------------- */

/* A raw process_vm_readv loop: a child process holds the sources in private memory at the same
 * addresses, and one worker a core reads whole rows, as many to a call as the kernel takes. */
typedef struct limit_readv limit_readv_t;

/* The sources must be private memory (BENCH_MEMORY_HEAP), already filled: the child gets its copy now.
 * NULL, with errno, when that fails. The child ends with the calling thread at the latest. */
limit_readv_t *limit_readv_create(const bench_copy_t *copies, size_t count);
void limit_readv_destroy(limit_readv_t *limit);

/* Seconds; negative, with errno, when a read failed (EPERM: not allowed here). */
double limit_readv_round(limit_readv_t *limit);

#endif
