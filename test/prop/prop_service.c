/* prop_service.c - random batches through the built-in service, against a copy element by element.
 *
 * A case is a number; every rank derives the whole of it alone: who sends what to whom, in which
 * dtypes, shapes, strides and memory. The values of a source are a hash of transfer, element and run, so
 * a rank knows what its targets must hold without asking anybody. Every byte of its memory is compared:
 * the gaps must be as they were. */
#include "multi/body.h"

#include <ferry/kernel.h>
#include <ferry/service.h>

#include "support/soak.h"

enum {
    MAX_RANKS = 6,
    MAX_PAIRS = 40,
    BLOCK = 24 * 1024, /* room for one end */
    GAP = 0xee,
};

/* One end: a view into a block of its rank. */
typedef struct plan_end {
    bool arena;
    uint64_t padded[4]; /* the tensor that it is a slice of, outermost first */
    uint32_t order[4];  /* order[i]: which dim of the view is the i-th outermost in memory */
    bool reversed[4];
    ferry_dtype_t dtype;
} plan_end_t;

typedef struct plan_pair {
    uint64_t id;
    uint32_t source;
    uint32_t target;
    uint32_t ndim;
    uint64_t shape[4];
    ferry_dtype_t wire;
    plan_end_t from;
    plan_end_t to;
} plan_pair_t;

typedef struct plan {
    uint64_t seed;
    uint32_t size;
    uint32_t npairs;
    bool kept;
    bool asynchronous;
    ferry_copy_service_params_t params;
    plan_pair_t pairs[MAX_PAIRS];
} plan_t;

/* --- the case ---------------------------------------------------------------------------------- */

static ferry_dtype_t random_float(uint64_t *state) {
    static const ferry_dtype_t floats[] = {FERRY_F64,  FERRY_F32,    FERRY_F16,
                                           FERRY_BF16, FERRY_F8E4M3, FERRY_F8E5M2};
    return floats[body_below(state, 6)];
}

static bool too_large(const uint64_t *shape, uint32_t ndim) {
    uint64_t bytes = sizeof(uint64_t);
    for (uint32_t i = 0; i < ndim; i++) {
        bytes *= shape[i];
    }
    return bytes > BLOCK - 128;
}

static void random_end(uint64_t *state, const plan_pair_t *pair, plan_end_t *end) {
    end->arena = body_below(state, 3) != 0;
    for (uint32_t i = 0; i < pair->ndim; i++) {
        end->order[i] = i;
    }
    bool turned = body_below(state, 3) == 0;
    for (uint32_t i = pair->ndim; turned && i > 1; i--) {
        uint32_t j = (uint32_t)body_below(state, i);
        uint32_t swap = end->order[i - 1];
        end->order[i - 1] = end->order[j];
        end->order[j] = swap;
    }
    for (uint32_t i = 0; i < pair->ndim; i++) {
        end->padded[i] =
            pair->shape[end->order[i]] + (body_below(state, 2) ? body_below(state, 4) : 0);
        end->reversed[i] = body_below(state, 6) == 0;
    }
    if (too_large(end->padded, pair->ndim)) {
        for (uint32_t i = 0; i < pair->ndim; i++) {
            end->padded[i] = pair->shape[end->order[i]];
        }
    }
}

static void random_pair(uint64_t *state, uint32_t size, plan_pair_t *pair) {
    pair->source = (uint32_t)body_below(state, size);
    pair->target = (uint32_t)body_below(state, size);
    pair->ndim = (uint32_t)body_below(state, 5);
    uint64_t room = 1 + body_below(state, 1200);
    for (uint32_t i = 0; i < pair->ndim; i++) {
        pair->shape[i] = body_below(state, 25) == 0 ? 0 : 1 + body_below(state, room);
        room = pair->shape[i] > 0 ? 1 + room / pair->shape[i] : 1;
    }
    if (too_large(pair->shape, pair->ndim)) {
        pair->ndim = 1;
    }
    if (body_below(state, 2) == 0) {
        pair->from.dtype = (ferry_dtype_t)(1 + body_below(state, 16));
        pair->to.dtype = pair->from.dtype;
    } else {
        pair->from.dtype = random_float(state);
        pair->to.dtype = random_float(state);
    }
    ferry_dtype_t wires[] = {FERRY_DTYPE_NONE, pair->from.dtype, pair->to.dtype};
    pair->wire = wires[body_below(state, 3)];
    random_end(state, pair, &pair->from);
    random_end(state, pair, &pair->to);
}

static void make_plan(uint64_t seed, plan_t *plan) {
    memset(plan, 0, sizeof *plan);
    uint64_t state = seed;
    plan->seed = seed;
    plan->size = 1 + (uint32_t)body_below(&state, MAX_RANKS);
    plan->npairs = (uint32_t)body_below(&state, MAX_PAIRS + 1);
    plan->kept = body_below(&state, 2) == 0;
    plan->asynchronous = body_below(&state, 2) == 0;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    static const uint32_t paths[] = {0, 0, FERRY_PATH_PIPELINE, FERRY_PATH_READ,
                                     FERRY_PATH_READ | FERRY_PATH_PIPELINE};
    params.paths = paths[body_below(&state, 5)];
    params.sharing = (uint32_t)body_below(&state, 3);
    params.read_run_bytes = body_below(&state, 2) ? 1 : 64;
    params.slot_bytes = body_below(&state, 2) ? 0 : 64 + body_below(&state, 4096);
    params.staging_bytes = body_below(&state, 2) ? 0 : 128 + body_below(&state, 65536);
    params.copy_flags = body_below(&state, 2) ? FERRY_COPY_SATURATE : 0;
    params.copy_flags |= body_below(&state, 4) == 0 ? FERRY_COPY_STREAM : 0;
    params.progress_thread = body_below(&state, 4) == 0;
    plan->params = params;
    for (uint32_t i = 0; i < plan->npairs; i++) {
        random_pair(&state, plan->size, &plan->pairs[i]);
        plan->pairs[i].id = (uint64_t)i * 1000003 + (body_random(&state) << 32);
    }
}

/* --- memory ------------------------------------------------------------------------------------ */

/* Block 2i holds the source of pair i, block 2i + 1 its target. */
static ferry_status_t view_in(uint8_t *block, const plan_pair_t *pair, const plan_end_t *end,
                              ferry_view_t *view_p, ferry_error_t *err) {
    ferry_view_t whole;
    GOOD(ferry_view_contiguous(block + 64, end->dtype, pair->ndim, end->padded, &whole, err));
    *view_p = whole;
    size_t width = ferry_dtype_bits(end->dtype) / 8;
    uint8_t *data = whole.data;
    for (uint32_t i = 0; i < pair->ndim; i++) {
        uint32_t dim = end->order[i];
        view_p->shape[dim] = pair->shape[dim];
        view_p->strides[dim] = whole.strides[i];
        if (end->reversed[i] && pair->shape[dim] > 0) {
            data += (size_t)whole.strides[i] * (size_t)(pair->shape[dim] - 1) * width;
            view_p->strides[dim] = -whole.strides[i];
        }
    }
    view_p->data = data;
    return FERRY_OK;
}

static uint64_t value_of(const plan_t *plan, uint32_t pair, uint64_t element, uint32_t run) {
    uint64_t state = plan->seed ^ ((uint64_t)pair << 48) ^ ((uint64_t)run << 40) ^ element;
    return body_random(&state);
}

/* The address of the element with that row-major number. */
static uint8_t *element_at(const ferry_view_t *view, uint64_t number) {
    int64_t at = 0;
    for (uint32_t i = view->ndim; i-- > 0;) {
        at += (int64_t)(number % view->shape[i]) * view->strides[i];
        number /= view->shape[i];
    }
    return (uint8_t *)view->data + at * (int64_t)(ferry_dtype_bits(view->dtype) / 8);
}

static void fill_source(const plan_t *plan, uint32_t pair, const ferry_view_t *view, uint32_t run) {
    uint64_t elements = 0;
    (void)ferry_view_elements(view, &elements, NULL);
    for (uint64_t e = 0; e < elements; e++) {
        uint64_t value = value_of(plan, pair, e, run);
        memcpy(element_at(view, e), &value, ferry_dtype_bits(view->dtype) / 8);
    }
}

/* What the target must hold, one element at a time. */
static ferry_status_t fill_expected(const plan_t *plan, uint32_t index, const ferry_view_t *view,
                                    uint32_t run, ferry_error_t *err) {
    const plan_pair_t *pair = &plan->pairs[index];
    uint64_t elements = 0;
    GOOD(ferry_view_elements(view, &elements, err));
    for (uint64_t e = 0; e < elements; e++) {
        uint64_t value = value_of(plan, index, e, run);
        ferry_view_t source;
        ferry_view_t target;
        GOOD(ferry_view_contiguous(&value, pair->from.dtype, 0, NULL, &source, err));
        GOOD(ferry_view_contiguous(element_at(view, e), pair->to.dtype, 0, NULL, &target, err));
        uint32_t flags = plan->params.copy_flags & FERRY_COPY_SATURATE;
        GOOD(ferry_view_copy(&target, &source, flags, err));
    }
    return FERRY_OK;
}

/* This rank's memory: blocks in the arena and blocks of its own. */
typedef struct blocks {
    uint8_t *arena;
    uint8_t *heap;
    uint8_t *expected; /* BLOCK bytes */
} blocks_t;

static uint8_t *block_of(const blocks_t *blocks, const plan_end_t *end, uint32_t index) {
    return (end->arena ? blocks->arena : blocks->heap) + (size_t)index * BLOCK;
}

/* --- the body ---------------------------------------------------------------------------------- */

static ferry_status_t submit_all(const plan_t *plan, const blocks_t *blocks, uint32_t me,
                                 ferry_copy_service_t *service, ferry_error_t *err) {
    uint64_t state = plan->seed ^ (me + 1);
    uint32_t order[2 * MAX_PAIRS];
    uint32_t count = 2 * plan->npairs;
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)body_below(&state, i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    for (uint32_t i = 0; i < count; i++) {
        const plan_pair_t *pair = &plan->pairs[order[i] / 2];
        bool send = order[i] % 2 == 0;
        const plan_end_t *end = send ? &pair->from : &pair->to;
        ferry_view_t view;
        if ((send ? pair->source : pair->target) != me) {
            continue;
        }
        GOOD(view_in(block_of(blocks, end, order[i]), pair, end, &view, err));
        if (send) {
            GOOD(ferry_copy_submit_send(service, &view, pair->wire, pair->target, pair->id, err));
        } else {
            GOOD(ferry_copy_submit_recv(service, &view, pair->source, pair->id, err));
        }
    }
    return FERRY_OK;
}

static ferry_status_t fill_sources(const plan_t *plan, const blocks_t *blocks, uint32_t me,
                                   uint32_t run, ferry_error_t *err) {
    memset(blocks->arena, GAP, (size_t)2 * MAX_PAIRS * BLOCK);
    memset(blocks->heap, GAP, (size_t)2 * MAX_PAIRS * BLOCK);
    for (uint32_t i = 0; i < plan->npairs; i++) {
        const plan_pair_t *pair = &plan->pairs[i];
        if (pair->source == me) {
            ferry_view_t view;
            GOOD(view_in(block_of(blocks, &pair->from, 2 * i), pair, &pair->from, &view, err));
            fill_source(plan, i, &view, run);
        }
    }
    return FERRY_OK;
}

static ferry_status_t check_targets(const plan_t *plan, const blocks_t *blocks, uint32_t me,
                                    uint32_t run, ferry_error_t *err) {
    for (uint32_t i = 0; i < plan->npairs; i++) {
        const plan_pair_t *pair = &plan->pairs[i];
        ferry_view_t view;
        if (pair->target == me) {
            memset(blocks->expected, GAP, BLOCK);
            GOOD(view_in(blocks->expected, pair, &pair->to, &view, err));
            GOOD(fill_expected(plan, i, &view, run, err));
            EXPECT(memcmp(block_of(blocks, &pair->to, 2 * i + 1), blocks->expected, BLOCK) == 0);
        }
        if (pair->source == me) {
            memset(blocks->expected, GAP, BLOCK);
            GOOD(view_in(blocks->expected, pair, &pair->from, &view, err));
            fill_source(plan, i, &view, run);
            EXPECT(memcmp(block_of(blocks, &pair->from, 2 * i), blocks->expected, BLOCK) == 0);
        }
    }
    return FERRY_OK;
}

static ferry_status_t run_kept(const plan_t *plan, ferry_kept_batch_t *batch, uint32_t me,
                               ferry_copy_result_t *result, ferry_error_t *err) {
    if (!plan->asynchronous || me % 3 == 2) {
        return ferry_kept_batch_run(batch, result, err);
    }
    GOOD(ferry_kept_batch_start(batch, err));
    bool done = me % 3 == 1;
    while (!done) {
        GOOD(ferry_kept_batch_test(batch, &done, err));
        if (!done && body_below(&(uint64_t){(uint64_t)clock()}, 5) == 0) {
            (void)usleep(50);
        }
    }
    return me % 3 == 1 ? ferry_kept_batch_wait(batch, result, err) : FERRY_OK;
}

static ferry_status_t check_result(const plan_t *plan, uint32_t me,
                                   const ferry_copy_result_t *result, ferry_error_t *err) {
    uint64_t bytes = 0;
    uint64_t own = 0;
    for (uint32_t i = 0; i < plan->npairs; i++) {
        const plan_pair_t *pair = &plan->pairs[i];
        uint64_t mine = ferry_dtype_bits(pair->to.dtype) / 8;
        for (uint32_t k = 0; k < pair->ndim; k++) {
            mine *= pair->shape[k];
        }
        bytes += pair->target == me ? mine : 0;
        own += pair->target == me && pair->source == me ? mine : 0;
    }
    EXPECT(result->bytes_received == bytes);
    EXPECT(result->bytes_direct + result->bytes_read + result->bytes_pipeline == bytes);
    if (plan->params.paths == FERRY_PATH_PIPELINE) {
        EXPECT(result->bytes_pipeline == bytes - own);
    }
    if (plan->params.staging_bytes != 0) {
        EXPECT(result->staging_bytes <= plan->params.staging_bytes);
    }
    return FERRY_OK;
}

static ferry_status_t run_plan(const plan_t *plan, const blocks_t *blocks, ferry_world_t *world,
                               ferry_copy_service_t *service, ferry_error_t *err) {
    uint32_t me = ferry_world_rank(world);
    ferry_kept_batch_t *batch = NULL;
    for (uint32_t run = 0; run < 3; run++) {
        ferry_copy_result_t result = {.bytes_received = UINT64_MAX};
        GOOD(fill_sources(plan, blocks, me, run, err));
        if (!plan->kept || run == 0) {
            GOOD(submit_all(plan, blocks, me, service, err));
        }
        if (!plan->kept) {
            GOOD(ferry_copy_service_run(service, &result, err));
        } else if (run == 0) {
            GOOD(ferry_copy_service_keep(service, &batch, err));
        }
        if (plan->kept) {
            GOOD(run_kept(plan, batch, me, &result, err));
        }
        if (result.bytes_received != UINT64_MAX) {
            GOOD(check_result(plan, me, &result, err));
        }
        GOOD(check_targets(plan, blocks, me, run, err));
    }
    ferry_kept_batch_destroy(batch);
    return FERRY_OK;
}

static ferry_status_t body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const plan_t *plan = context;
    blocks_t blocks = {0};
    void *arena = NULL;
    GOOD(ferry_mem_alloc(world, (size_t)2 * MAX_PAIRS * BLOCK, &arena, err));
    blocks.arena = arena;
    blocks.heap = malloc((size_t)2 * MAX_PAIRS * BLOCK);
    blocks.expected = malloc(BLOCK);
    ferry_copy_service_t *service = NULL;
    GOOD(ferry_copy_service_create(ferry_world_group(world), &plan->params, &service, err));
    ferry_status_t status = run_plan(plan, &blocks, world, service, err);
    ferry_copy_service_close(service);
    if (status != FERRY_OK) {
        return status; /* others may still read what this rank has; the process ends soon */
    }
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    free(blocks.heap);
    free(blocks.expected);
    return FERRY_OK;
}

static void run_seed(body_kind_t kind, uint64_t seed) {
    static plan_t plan;
    make_plan(seed, &plan);
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rank_result_t results[MAX_RANKS];
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.arena_bytes = UINT64_C(1) << 26;
    ferry_status_t status = run_as(kind, plan.size, body, &plan, &params, results, &err);
    if (status != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        fail_msg("seed %llu, kind %d, %u ranks, paths %u: %s", (unsigned long long)seed, (int)kind,
                 plan.size, plan.params.paths, line);
    }
}

static void test_threads(void **state) {
    (void)state;
    uint64_t count = (uint64_t)soak_count(60, 4000);
    for (uint64_t seed = 1; seed <= count; seed++) {
        run_seed(AS_THREADS, seed);
    }
}

static void test_processes(void **state) {
    (void)state;
    uint64_t count = (uint64_t)soak_count(60, 4000);
    for (uint64_t seed = 1; seed <= count; seed++) {
        run_seed(AS_PROCESSES, seed + 1000000);
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
