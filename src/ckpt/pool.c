/* pool.c - workers: processes that take units in turn.
 *
 * What they share is one page with the number of the next unit of each lane and the bytes done. A worker that fails fails
 * the world, and the others stop before their next unit. */
#include <sys/mman.h>
#include <unistd.h>

#include <ferry/world.h>

#include "base/fail.h"
#include "ckpt/job.h"

typedef struct board {
    _Atomic uint64_t bytes_done;
    struct {
        _Atomic uint64_t next;
        _Atomic uint64_t taken;
    } lanes[];
} board_t;

typedef struct crew {
    const fy_pool_t *pool;
    board_t *board;
    const size_t *lanes;
    size_t nlanes;
} crew_t;

void *fy_shared_alloc(size_t bytes) {
    void *memory = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

void fy_shared_free(void *memory, size_t bytes) {
    if (memory != NULL) {
        (void)munmap(memory, bytes > 0 ? bytes : 1);
    }
}

uint32_t fy_default_workers(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > 64 ? 64 : (uint32_t)cores;
}

static void tell(const crew_t *crew, uint32_t worker) {
    const fy_pool_t *pool = crew->pool;
    if (worker == 0 && pool->progress != NULL) {
        ferry_convert_progress_t progress = {atomic_load(&crew->board->bytes_done),
                                             pool->bytes_total};
        pool->progress(pool->progress_context, &progress);
    }
}

static ferry_status_t work_lane(const crew_t *crew, ferry_world_t *world, uint32_t worker,
                                void *own, size_t lane, ferry_error_t *err) {
    const fy_pool_t *pool = crew->pool;
    for (;;) {
        FY_TRY(ferry_world_check(world, err));
        uint64_t unit = crew->lanes[lane] + atomic_fetch_add(&crew->board->lanes[lane].next, 1);
        if (unit >= crew->lanes[lane + 1]) {
            return FERRY_OK;
        }
        uint64_t bytes = 0;
        FY_TRY(pool->unit(pool->context, worker, own, (size_t)unit, &bytes, err));
        (void)atomic_fetch_add(&crew->board->bytes_done, bytes);
        tell(crew, worker);
    }
}

/* Lanes that nobody has taken, from this worker's own on; or all at the one lane. */
static ferry_status_t work(const crew_t *crew, ferry_world_t *world, uint32_t worker, void *own,
                           ferry_error_t *err) {
    size_t first = crew->nlanes * worker / crew->pool->workers;
    for (size_t i = 0; i < crew->nlanes; i++) {
        size_t lane = (first + i) % crew->nlanes;
        uint64_t free = 0;
        bool mine = crew->pool->lanes == NULL ||
                    atomic_compare_exchange_strong(&crew->board->lanes[lane].taken, &free, 1);
        FY_TRY(mine ? work_lane(crew, world, worker, own, lane, err) : FERRY_OK);
    }
    return FERRY_OK;
}

static ferry_status_t worker_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    const crew_t *crew = context;
    const fy_pool_t *pool = crew->pool;
    uint32_t worker = ferry_world_rank(world);
    void *own = NULL;
    ferry_status_t status = pool->begin(pool->context, worker, &own, err);
    if (status == FERRY_OK) {
        status = work(crew, world, worker, own, err);
    }
    pool->end(pool->context, worker, own);
    return status;
}

ferry_status_t fy_pool_run(const fy_pool_t *pool, ferry_error_t *err) {
    const size_t one[2] = {0, pool->nunits};
    crew_t crew = {.pool = pool, .lanes = one, .nlanes = 1};
    if (pool->lanes != NULL) {
        crew.lanes = pool->lanes;
        crew.nlanes = pool->nlanes;
    }
    size_t bytes = sizeof(board_t) + crew.nlanes * sizeof crew.board->lanes[0];
    crew.board = fy_shared_alloc(bytes);
    if (crew.board == NULL) {
        return fy_fail_nomem(err, "the workers");
    }
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = UINT64_C(1) << 20; /* they exchange nothing */
    params.timeout_ms = FERRY_TIMEOUT_NONE;
    ferry_status_t status =
        ferry_world_run_processes(pool->workers, worker_main, &crew, &params, NULL, err);
    if (status == FERRY_OK && pool->progress != NULL) {
        ferry_convert_progress_t progress = {pool->bytes_total, pool->bytes_total};
        pool->progress(pool->progress_context, &progress);
    }
    fy_shared_free(crew.board, bytes);
    return status;
}
