/* limit.c - runs copies in the order and by the method that suit this machine best.
 *
 * For each order the copies are sorted and cut into pieces: some rows of some copies that lie side by
 * side. Pieces are gathered into tasks of about TASK_BYTES, and a round is: every worker takes the next
 * task until none is left, so that a core which is disturbed does less instead of holding up the rest.
 *
 * Invariants: in every order the pieces cover each row of each copy once; tasks cover each piece once.
 */
#include "limit.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limit_methods.h"
#include "pool.h"

enum {
    TASK_BYTES =
        512 * 1024, /* some 50 us: many to a round, and few enough to take by one counter */
    TUNE_ROUNDS = 4,
};

/* What takes this many times the least time once is not tried again. */
#define HOPELESS 1.3

typedef struct {
    size_t copy, count; /* which copies, in the order's own array */
    size_t first, last; /* which of their rows */
} piece_t;

typedef struct {
    bench_copy_t *copies;
    piece_t *pieces;
    size_t piece_count;
    size_t *tasks; /* the first piece of each task, and piece_count at the end */
    size_t task_count;
} schedule_t;

struct limit {
    bench_pool_t *pool;
    schedule_t schedules[LIMIT_ORDERS];
    bool tuned;
    limit_method_t best;
    limit_order_t best_order[LIMIT_METHODS];
    char description[48];
    /* of the round that runs */
    const schedule_t *schedule;
    limit_copy_fn copy;
    atomic_size_t next_task;
};

/* --- orders ------------------------------------------------------------------------------------------ */

static int compare_targets(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const bench_copy_t *)a)->target;
    uintptr_t y = (uintptr_t)((const bench_copy_t *)b)->target;
    return (x > y) - (x < y);
}

static int compare_sources(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const bench_copy_t *)a)->source;
    uintptr_t y = (uintptr_t)((const bench_copy_t *)b)->source;
    return (x > y) - (x < y);
}

/* Whether the second copy continues every row of the first one, on the side that the order follows. */
static bool side_by_side(limit_order_t order, const bench_copy_t *a, const bench_copy_t *b) {
    if (a->rows != b->rows) {
        return false;
    }
    if (order == LIMIT_TARGET_ROWS) {
        return a->target_stride == b->target_stride &&
               (uintptr_t)a->target + a->row_bytes == (uintptr_t)b->target;
    }
    if (order == LIMIT_SOURCE_ROWS) {
        return a->source_stride == b->source_stride &&
               (uintptr_t)a->source + a->row_bytes == (uintptr_t)b->source;
    }
    return false;
}

/* Finds the copies from `begin` on that are side by side; returns how many, and the bytes of a row. */
static size_t chain_at(limit_order_t order, const bench_copy_t *copies, size_t count, size_t begin,
                       size_t *row_bytes_p) {
    size_t end = begin + 1;
    size_t row_bytes = copies[begin].row_bytes;
    while (end < count && side_by_side(order, &copies[end - 1], &copies[end])) {
        row_bytes += copies[end++].row_bytes;
    }
    *row_bytes_p = row_bytes;
    return end - begin;
}

/* Cuts the sorted copies into pieces and tasks. With NULL arrays it only counts. */
static void cut(limit_order_t order, size_t count, schedule_t *schedule) {
    size_t pieces = 0, tasks = 0, filled = TASK_BYTES;
    for (size_t i = 0; i < count;) {
        size_t row_bytes;
        size_t chain = chain_at(order, schedule->copies, count, i, &row_bytes);
        size_t rows = schedule->copies[i].rows;
        size_t step = row_bytes > 0 && row_bytes < TASK_BYTES ? TASK_BYTES / row_bytes : 1;
        for (size_t row = 0; row < rows; row += step) {
            size_t last = rows - row < step ? rows : row + step;
            if (filled >= TASK_BYTES) {
                if (schedule->tasks) {
                    schedule->tasks[tasks] = pieces;
                }
                tasks++;
                filled = 0;
            }
            filled += (last - row) * row_bytes;
            if (schedule->pieces) {
                schedule->pieces[pieces] = (piece_t){i, chain, row, last};
            }
            pieces++;
        }
        i += chain;
    }
    if (schedule->tasks) {
        schedule->tasks[tasks] = pieces;
    }
    schedule->piece_count = pieces;
    schedule->task_count = tasks;
}

static bool schedule_init(limit_order_t order, const bench_copy_t *copies, size_t count,
                          schedule_t *schedule) {
    bool by_target = order == LIMIT_BY_TARGET || order == LIMIT_TARGET_ROWS;
    schedule->copies = calloc(count + 1, sizeof *copies);
    if (!schedule->copies) {
        return false;
    }
    memcpy(schedule->copies, copies, count * sizeof *copies);
    qsort(schedule->copies, count, sizeof *copies, by_target ? compare_targets : compare_sources);
    cut(order, count, schedule);
    schedule->pieces = calloc(schedule->piece_count + 1, sizeof *schedule->pieces);
    schedule->tasks = calloc(schedule->task_count + 1, sizeof *schedule->tasks);
    if (!schedule->pieces || !schedule->tasks) {
        return false;
    }
    cut(order, count, schedule);
    return true;
}

/* --- rounds ------------------------------------------------------------------------------------------ */

static void work(void *context, unsigned worker) {
    limit_t *limit = context;
    const schedule_t *schedule = limit->schedule;
    limit_copy_fn copy = limit->copy;
    (void)worker;
    for (;;) {
        size_t task = atomic_fetch_add_explicit(&limit->next_task, 1, memory_order_relaxed);
        if (task >= schedule->task_count) {
            return;
        }
        for (size_t i = schedule->tasks[task]; i < schedule->tasks[task + 1]; i++) {
            const piece_t *piece = &schedule->pieces[i];
            copy(&schedule->copies[piece->copy], piece->count, piece->first, piece->last);
        }
    }
}

double limit_round_in(limit_t *limit, limit_method_t method, limit_order_t order) {
    limit->schedule = &limit->schedules[order];
    limit->copy = limit_method_copy(method);
    atomic_store(&limit->next_task, 0);
    return bench_pool_run(limit->pool, work, limit);
}

/* Tries what is not hopeless yet and keeps the least time of each: a disturbance only ever adds. */
static double try_all(limit_t *limit, double give_up, double least[LIMIT_METHODS][LIMIT_ORDERS]) {
    double best = INFINITY;
    for (int m = 0; m < LIMIT_METHODS; m++) {
        for (int o = 0; o < LIMIT_ORDERS; o++) {
            if (limit_has((limit_method_t)m) && least[m][o] <= give_up) {
                double seconds = limit_round_in(limit, (limit_method_t)m, (limit_order_t)o);
                least[m][o] = seconds < least[m][o] ? seconds : least[m][o];
            }
            best = least[m][o] < best ? least[m][o] : best;
        }
    }
    return best;
}

static void tune(limit_t *limit) {
    double least[LIMIT_METHODS][LIMIT_ORDERS];
    for (int i = 0; i < LIMIT_METHODS * LIMIT_ORDERS; i++) {
        least[i / LIMIT_ORDERS][i % LIMIT_ORDERS] = INFINITY;
    }
    limit_round_in(limit, LIMIT_MEMCPY, LIMIT_BY_TARGET); /* warms up */
    double best = try_all(limit, INFINITY, least);
    for (int round = 1; round < TUNE_ROUNDS; round++) {
        best = try_all(limit, best * HOPELESS, least);
    }
    for (int m = 0; m < LIMIT_METHODS; m++) {
        for (int o = 0; o < LIMIT_ORDERS; o++) {
            if (least[m][o] < least[m][limit->best_order[m]]) {
                limit->best_order[m] = (limit_order_t)o;
            }
            if (least[m][o] <= best) {
                limit->best = (limit_method_t)m;
            }
        }
    }
    limit->tuned = true;
}

static limit_method_t resolve(limit_t *limit, limit_method_t method) {
    if (!limit->tuned) {
        tune(limit);
    }
    return method == LIMIT_BEST ? limit->best : method;
}

double limit_round(limit_t *limit, limit_method_t method) {
    method = resolve(limit, method);
    return limit_round_in(limit, method, limit->best_order[method]);
}

const char *limit_describe(limit_t *limit, limit_method_t method) {
    static const char *const orders[LIMIT_ORDERS] = {"by target", "by source", "by target rows",
                                                     "by source rows"};
    method = resolve(limit, method);
    snprintf(limit->description, sizeof limit->description, "%s %s", limit_method_name(method),
             orders[limit->best_order[method]]);
    return limit->description;
}

/* --- life -------------------------------------------------------------------------------------------- */

bool limit_has(limit_method_t method) {
    return limit_method_copy(method) != NULL;
}

limit_t *limit_create(const bench_copy_t *copies, size_t count) {
    limit_t *limit = calloc(1, sizeof *limit);
    if (!limit) {
        return NULL;
    }
    limit->pool = bench_pool_create();
    bool fine = limit->pool != NULL;
    for (int order = 0; fine && order < LIMIT_ORDERS; order++) {
        fine = schedule_init((limit_order_t)order, copies, count, &limit->schedules[order]);
    }
    if (!fine) {
        int error = errno;
        limit_destroy(limit);
        errno = error;
        return NULL;
    }
    return limit;
}

void limit_destroy(limit_t *limit) {
    if (!limit) {
        return;
    }
    bench_pool_destroy(limit->pool);
    for (int order = 0; order < LIMIT_ORDERS; order++) {
        free(limit->schedules[order].copies);
        free(limit->schedules[order].pieces);
        free(limit->schedules[order].tasks);
    }
    free(limit);
}
