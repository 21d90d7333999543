/* pool.h - one pinned worker thread for each core that this process may use.
 *
 * Ownership: bench_pool_create makes it, bench_pool_destroy ends the workers.
 * Thread safety: one thread at a time uses a pool.
 */
#ifndef FERRY_BENCH_POOL_H
#define FERRY_BENCH_POOL_H

typedef struct bench_pool bench_pool_t;

/* Called once by each worker in a round; worker is 0 .. workers-1. */
typedef void (*bench_work_t)(void *context, unsigned worker);

/* NULL, with errno, when threads or memory are missing. */
bench_pool_t *bench_pool_create(void);
void bench_pool_destroy(bench_pool_t *pool);

unsigned bench_pool_workers(const bench_pool_t *pool);

/* Runs work on all workers, waits for them, and says how many seconds that took. Between rounds the
 * workers sleep. */
double bench_pool_run(bench_pool_t *pool, bench_work_t work, void *context);

#endif
