/* pool.c - worker threads for the yardsticks.
 *
 * Invariants: a round is a generation number; a worker runs each generation once, and `busy` counts
 * those that have not finished it. Everything is guarded by one mutex; waking costs some ten
 * microseconds, which is small beside the milliseconds of a round.
 */
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    struct bench_pool *pool;
    pthread_t thread;
    unsigned index;
    size_t core;
} worker_t;

struct bench_pool {
    pthread_mutex_t mutex;
    pthread_cond_t start;
    pthread_cond_t done;
    uint64_t generation;
    unsigned busy;
    bool ending;
    bench_work_t work;
    void *context;
    unsigned count; /* workers that run */
    worker_t workers[];
};

static void pin(size_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set,
                                 &set); /* unpinned is slower, not wrong */
}

static void *worker_main(void *argument) {
    worker_t *me = argument;
    bench_pool_t *pool = me->pool;
    uint64_t seen = 0;
    pin(me->core);
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->generation == seen && !pool->ending) {
            pthread_cond_wait(&pool->start, &pool->mutex);
        }
        if (pool->ending) {
            break;
        }
        seen = pool->generation;
        pthread_mutex_unlock(&pool->mutex);
        pool->work(pool->context, me->index);
        pthread_mutex_lock(&pool->mutex);
        if (--pool->busy == 0) {
            pthread_cond_signal(&pool->done);
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

bench_pool_t *bench_pool_create(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return NULL;
    }
    size_t cores = (size_t)CPU_COUNT(&allowed);
    bench_pool_t *pool = calloc(1, sizeof *pool + cores * sizeof pool->workers[0]);
    if (!pool) {
        return NULL;
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (size_t core = 0; core < CPU_SETSIZE && pool->count < cores; core++) {
        if (!CPU_ISSET(core, &allowed)) {
            continue;
        }
        worker_t *worker = &pool->workers[pool->count];
        *worker = (worker_t){.pool = pool, .index = pool->count, .core = core};
        int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failed) {
            bench_pool_destroy(pool);
            errno = failed;
            return NULL;
        }
        pool->count++;
    }
    return pool;
}

void bench_pool_destroy(bench_pool_t *pool) {
    if (!pool) {
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->ending = true;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->count; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

unsigned bench_pool_workers(const bench_pool_t *pool) {
    return pool->count;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_pool_run(bench_pool_t *pool, bench_work_t work, void *context) {
    double begin = seconds_now();
    pthread_mutex_lock(&pool->mutex);
    pool->work = work;
    pool->context = context;
    pool->busy = pool->count;
    pool->generation++;
    pthread_cond_broadcast(&pool->start);
    while (pool->busy > 0) {
        pthread_cond_wait(&pool->done, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return seconds_now() - begin;
}
