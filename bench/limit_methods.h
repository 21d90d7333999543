/* limit_methods.h - the copy loops that limit.c tries. Private to bench/. */
#ifndef FERRY_BENCH_LIMIT_METHODS_H
#define FERRY_BENCH_LIMIT_METHODS_H

#include <stddef.h>

#include "limit.h"

/* Copies rows [first, last) of `count` copies that lie side by side: row by row, and in each row copy by
 * copy. Streaming stores are fenced before it returns. */
typedef void (*limit_copy_fn)(const bench_copy_t *copies, size_t count, size_t first, size_t last);

/* NULL when this CPU does not have the method. */
limit_copy_fn limit_method_copy(limit_method_t method);
const char *limit_method_name(limit_method_t method);

#endif
