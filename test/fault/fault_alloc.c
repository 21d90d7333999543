/* fault_alloc.c - fails the n-th allocation of every function that allocates, for n = 1, 2, ... until
 * none is left to fail: the answer is FERRY_NOMEM, the output stays as it was, and nothing leaks.
 *
 * The program is linked with --wrap, so that the library's calls of malloc come here. */
#include <stdlib.h>
#include <unistd.h>

#include <ferry/kernel.h>
#include <ferry/service.h>

#include "oracle/unit.h"

/* ---- the allocator ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

static uint64_t allocations; /* since watch() */
static uint64_t fail_at;     /* 0: never */
static int64_t live;

static void watch(uint64_t n) {
    allocations = 0;
    fail_at = n;
}

static bool fails(void) {
    return ++allocations == fail_at;
}

void *__wrap_malloc(size_t size) {
    void *memory = fails() ? NULL : __real_malloc(size);
    live += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t count, size_t size) {
    void *memory = fails() ? NULL : __real_calloc(count, size);
    live += memory != NULL;
    return memory;
}

void *__wrap_realloc(void *memory, size_t size) {
    if (fails()) {
        return NULL;
    }
    void *grown = __real_realloc(memory, size);
    live += memory == NULL && grown != NULL;
    return grown;
}

void __wrap_free(void *memory) {
    live -= memory != NULL;
    __real_free(memory);
}

/* ---- what is tried ---- */

/* All that the operations work on, made once. */
typedef struct bench {
    ferry_layout_t *layouts[4];
    ferry_tensor_t sources[3];
    ferry_tensor_t targets[2];
    uint64_t shape[2];
    uint32_t hosts[4];
    ferry_plan_t *plan;
    uint8_t *bytes;
    size_t length;
    ferry_item_t items[64];
    char path[64];
    ferry_world_t *world; /* of one rank: what several do is in fault_service.c */
    ferry_copy_service_t *service;
    uint32_t numbers[6][96]; /* that are copied, the first three to the others */
} bench_t;

/* Runs one function. Success: *made_p is what was made (or left alone), to be given to `drop`. */
typedef struct operation {
    const char *name;
    ferry_status_t (*run)(const bench_t *b, void **made_p, ferry_error_t *err);
    void (*drop)(void *made);
} operation_t;

static ferry_plan_params_t params_of(const bench_t *b, uint32_t flags, uint32_t rank) {
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = b->sources;
    params.nsources = 3;
    params.targets = b->targets;
    params.ntargets = 2;
    params.flags = flags;
    params.rank = rank;
    params.hosts = b->hosts;
    params.nhosts = 4;
    return params;
}

static ferry_status_t run_parse(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)b;
    return ferry_layout_parse("dp=2xtp=4x1:R,S0/sizes(8,4,4)/unit(2),S1/ragged(6)@3,1,0,2,9-12",
                              (void *)made_p, err);
}

static ferry_status_t run_shift(const bench_t *b, void **made_p, ferry_error_t *err) {
    return ferry_layout_shift(b->layouts[1], 5, (void *)made_p, err);
}

static void drop_layout(void *made) {
    ferry_layout_destroy(made);
}

static ferry_status_t run_intervals(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    size_t count = 0;
    uint64_t local[2];
    ferry_status_t status = ferry_layout_check(b->layouts[3], 2, b->shape, err);
    if (status == FERRY_OK) {
        status = ferry_layout_local_shape(b->layouts[3], 2, b->shape, 5, local, err);
    }
    if (status == FERRY_OK) {
        status = ferry_layout_intervals(b->layouts[3], 2, b->shape, 5, 0, NULL, 0, &count, err);
    }
    return status;
}

static ferry_status_t run_plan(const bench_t *b, void **made_p, ferry_error_t *err) {
    ferry_plan_params_t params = params_of(b, 0, 0);
    return ferry_plan_create(&params, (void *)made_p, err);
}

static ferry_status_t run_part(const bench_t *b, void **made_p, ferry_error_t *err) {
    ferry_plan_params_t params = params_of(b, FERRY_PLAN_PART, 1);
    return ferry_plan_create(&params, (void *)made_p, err);
}

static void drop_plan(void *made) {
    ferry_plan_destroy(made);
}

static ferry_status_t run_check(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    return ferry_plan_check(b->plan, err);
}

static ferry_status_t run_stats(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    ferry_plan_stats_t stats = {.size = sizeof stats};
    return ferry_plan_stats(b->plan, &stats, err);
}

static ferry_status_t run_ports(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    ferry_port_t ports[4];
    size_t count = 0;
    return ferry_plan_ports(b->plan, ports, 4, &count, err);
}

static ferry_status_t run_reduce(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    ferry_reduce_t reduce;
    uint32_t ranks[8];
    return ferry_plan_reduce(b->plan, 0, 1, &reduce, ranks, 8, err);
}

static ferry_status_t swallow(void *context, const char *text, size_t length) {
    (void)context;
    (void)text;
    (void)length;
    return FERRY_OK;
}

static ferry_status_t run_print(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    return ferry_plan_print(b->plan, swallow, NULL, err);
}

static ferry_status_t run_encode(const bench_t *b, void **made_p, ferry_error_t *err) {
    size_t length = 0;
    ferry_status_t status = ferry_plan_encode(b->plan, (void *)made_p, &length, err);
    assert_true(status == FERRY_OK || length == 0);
    return status;
}

static void drop_bytes(void *made) {
    ferry_free(made);
}

static ferry_status_t run_decode(const bench_t *b, void **made_p, ferry_error_t *err) {
    return ferry_plan_decode(b->bytes, b->length, (void *)made_p, err);
}

static ferry_status_t run_schedule(const bench_t *b, void **made_p, ferry_error_t *err) {
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    params.slot_bytes = 100;
    return ferry_schedule_create(b->items, sizeof b->items / sizeof *b->items, &params,
                                 (void *)made_p, err);
}

static void drop_schedule(void *made) {
    ferry_schedule_destroy(made);
}

static ferry_status_t run_model(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)b;
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    parallel.tp = 2;
    parallel.pp = 2;
    parallel.dp = 2;
    parallel.ep = 2;
    return ferry_model_tensors("mixtral-8x7b", FERRY_BF16, &parallel, 3, (void *)made_p, err);
}

static void drop_set(void *made) {
    ferry_tensor_set_destroy(made);
}

static ferry_status_t run_parallel(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)b;
    (void)made_p;
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    return ferry_parallel_parse("tp=2,dp=4,ep=2,order=tp-ep-cp-dp-pp", &parallel, err);
}

static ferry_view_t view_of(const bench_t *b, size_t i) {
    ferry_view_t view;
    union {
        const void *kept;
        void *data; /* nothing is written while it is const */
    } numbers = {.kept = b->numbers[i]};
    assert_int_equal(
        ferry_view_contiguous(numbers.data, FERRY_U32, 2, (const uint64_t[]){4, 24}, &view, NULL),
        FERRY_OK);
    return view;
}

static ferry_status_t run_copy_batch(const bench_t *b, void **made_p, ferry_error_t *err) {
    ferry_view_t sources[3];
    ferry_view_t targets[3];
    for (size_t i = 0; i < 3; i++) {
        sources[i] = view_of(b, i);
        targets[i] = view_of(b, 3 + i);
        targets[i].strides[0] = 1; /* turned */
        targets[i].strides[1] = 4;
    }
    return ferry_copy_batch_create(targets, sources, 3, 0, (void *)made_p, err);
}

static void drop_copy_batch(void *made) {
    ferry_copy_batch_destroy(made);
}

static ferry_status_t run_join(const bench_t *b, void **made_p, ferry_error_t *err) {
    return ferry_world_join(b->path, 0, 1, NULL, (void *)made_p, err);
}

static void drop_world(void *made) {
    ferry_world_leave(made);
}

/* The service tells the world of a failure: go on as a user would. Half a batch may be queued: no run
 * takes it, and every run drops it. */
static ferry_status_t go_on(const bench_t *b, ferry_status_t status) {
    fail_at = 0;
    if (ferry_world_check(b->world, NULL) != FERRY_OK) {
        assert_int_equal(ferry_world_recover(b->world, NULL), FERRY_OK);
    }
    if (status != FERRY_OK) {
        (void)ferry_copy_service_run(b->service, NULL, NULL);
    }
    return status;
}

static ferry_status_t run_service(const bench_t *b, void **made_p, ferry_error_t *err) {
    return go_on(b,
                 ferry_copy_service_create(ferry_world_group(b->world), NULL, (void *)made_p, err));
}

static void drop_service(void *made) {
    ferry_copy_service_close(made);
}

static ferry_status_t submit(const bench_t *b, ferry_error_t *err) {
    for (size_t i = 0; i < 3; i++) {
        ferry_view_t source = view_of(b, i);
        ferry_view_t target = view_of(b, 3 + i);
        ferry_status_t status =
            ferry_copy_submit_send(b->service, &source, FERRY_DTYPE_NONE, 0, i, err);
        if (status == FERRY_OK) {
            status = ferry_copy_submit_recv(b->service, &target, 0, i, err);
        }
        if (status !=
            FERRY_OK) { /* half a batch is queued: no run takes it, and any run drops it */
            fail_at = 0;
            (void)ferry_copy_service_run(b->service, NULL, NULL);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t run_keep(const bench_t *b, void **made_p, ferry_error_t *err) {
    ferry_status_t status = submit(b, err);
    if (status == FERRY_OK) {
        status = ferry_copy_service_keep(b->service, (void *)made_p, err);
    }
    return go_on(b, status);
}

static void drop_kept(void *made) {
    assert_int_equal(ferry_kept_batch_run(made, NULL, NULL), FERRY_OK);
    uint64_t seen = allocations;
    assert_int_equal(ferry_kept_batch_run(made, NULL, NULL), FERRY_OK);
    assert_int_equal(allocations, seen); /* so there is none to fail */
    ferry_kept_batch_destroy(made);
}

static ferry_status_t run_run(const bench_t *b, void **made_p, ferry_error_t *err) {
    (void)made_p;
    ferry_status_t status = submit(b, err);
    if (status == FERRY_OK) {
        status = ferry_copy_service_run(b->service, NULL, err);
    }
    return go_on(b, status);
}

/* ---- the bench ---- */

static void set_up(bench_t *b) {
    static const char *const texts[] = {"2x2:P(sum),S0", "2x2:R,S0/stride(2)@4,1,6,3",
                                        "2x3:R,S1@0-5", "2x3:S0/cyclic(3),S0/unit(2)@2-7"};
    memset(b, 0, sizeof *b);
    b->shape[0] = 40;
    b->shape[1] = 6;
    b->hosts[1] = 1;
    for (size_t i = 0; i < 4; i++) {
        assert_ok(ferry_layout_parse(texts[i], &b->layouts[i], &err));
    }
    b->sources[0] = (ferry_tensor_t){"b", FERRY_F32, 2, b->shape, b->layouts[0]};
    b->sources[1] = (ferry_tensor_t){"a", FERRY_BF16, 2, b->shape, b->layouts[2]};
    b->sources[2] = (ferry_tensor_t){"c", FERRY_BF16, 2, b->shape, b->layouts[2]};
    b->targets[0] = (ferry_tensor_t){"a", FERRY_BF16, 2, b->shape, b->layouts[3]};
    b->targets[1] = (ferry_tensor_t){"b", FERRY_F32, 2, b->shape, b->layouts[1]};
    ferry_plan_params_t params = params_of(b, 0, 0);
    assert_ok(ferry_plan_create(&params, &b->plan, &err));
    assert_ok(ferry_plan_encode(b->plan, &b->bytes, &b->length, &err));
    for (uint32_t i = 0; i < 64; i++) {
        b->items[i] = (ferry_item_t){i, 17 * i, i % 5, i % 7};
    }
    (void)snprintf(b->path, sizeof b->path, "/tmp/ferry-alloc-%d.sock", (int)getpid());
    assert_ok(ferry_world_join(b->path, 0, 1, NULL, &b->world, &err));
    assert_ok(ferry_copy_service_create(ferry_world_group(b->world), NULL, &b->service, &err));
}

static void tear_down(bench_t *b) {
    for (size_t i = 0; i < 4; i++) {
        ferry_layout_destroy(b->layouts[i]);
    }
    ferry_plan_destroy(b->plan);
    ferry_free(b->bytes);
    ferry_copy_service_close(b->service);
    ferry_world_leave(b->world);
}

/* Fails each allocation of one operation in turn; returns how many there were. */
static uint64_t fail_each(const operation_t *op, const bench_t *b) {
    static char untouched;
    for (uint64_t n = 1;; n++) {
        void *made = &untouched;
        ferry_error_t err = FERRY_ERROR_INIT;
        int64_t before = live;
        watch(n);
        ferry_status_t status = op->run(b, &made, n % 2 ? &err : NULL);
        bool failed = allocations >= n;
        watch(0);
        if (!failed) {
            assert_int_equal(status, FERRY_OK);
            if (op->drop != NULL) {
                assert_ptr_not_equal(made, &untouched);
                op->drop(made);
            }
            assert_int_equal(live, before);
            return n - 1;
        }
        if (status != FERRY_NOMEM || made != &untouched || live != before ||
            (n % 2 && (err.status != FERRY_NOMEM || err.text[0] == '\0'))) {
            fail_msg("%s, allocation %llu: %s (%s), %s output, %lld leaked", op->name,
                     (unsigned long long)n, ferry_status_name(status), err.text,
                     made == &untouched ? "untouched" : "touched", (long long)(live - before));
        }
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const operation_t operations[] = {
        {"layout_parse", run_parse, drop_layout},
        {"layout_shift", run_shift, drop_layout},
        {"layout_intervals", run_intervals, NULL},
        {"plan_create", run_plan, drop_plan},
        {"plan_create part", run_part, drop_plan},
        {"plan_check", run_check, NULL},
        {"plan_stats", run_stats, NULL},
        {"plan_ports", run_ports, NULL},
        {"plan_reduce", run_reduce, NULL},
        {"plan_print", run_print, NULL},
        {"plan_encode", run_encode, drop_bytes},
        {"plan_decode", run_decode, drop_plan},
        {"schedule_create", run_schedule, drop_schedule},
        {"model_tensors", run_model, drop_set},
        {"parallel_parse", run_parallel, NULL},
        {"copy_batch_create", run_copy_batch, drop_copy_batch},
        {"world_join", run_join, drop_world},
        {"copy_service_create", run_service, drop_service},
        {"copy_service_keep", run_keep, drop_kept},
        {"copy_service_run", run_run, NULL},
    };
    bench_t b;
    int64_t before = live;
    set_up(&b);
    uint64_t total = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        uint64_t failed = fail_each(&operations[i], &b);
        print_message("%s: %llu allocations\n", operations[i].name, (unsigned long long)failed);
        /* What makes something allocates, or the allocator is not wrapped. */
        assert_true(operations[i].drop == NULL || failed > 0);
        total += failed;
    }
    assert_true(total > 0);
    tear_down(&b);
    assert_int_equal(live, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
