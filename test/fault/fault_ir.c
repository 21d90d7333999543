/* fault_ir.c - chunks and buckets with the n-th allocation failing, until none is left to fail.
 *
 * Each failure is FERRY_NOMEM with a record, leaves nothing behind and does not spoil the next try. The
 * library's memory functions are compiled into this file, over a malloc of its own, and so stand before
 * those of the library. */
#include <stdlib.h>
#include <string.h>

#include "oracle/unit.h"

/* ---- memory that runs out ---- */

static long allowed = -1; /* allocations until the failing one; -1: none fails */
static long live;         /* allocations that were not freed */

static bool fails(void) {
    return allowed >= 0 && allowed-- == 0;
}

static void *own_malloc(size_t bytes) {
    void *memory = fails() ? NULL : malloc(bytes);
    live += memory != NULL;
    return memory;
}

static void *own_calloc(size_t count, size_t size) {
    void *memory = fails() ? NULL : calloc(count, size);
    live += memory != NULL;
    return memory;
}

static void *own_realloc(void *memory, size_t bytes) {
    if (fails()) {
        return NULL;
    }
    void *grown = realloc(memory, bytes);
    live += memory == NULL && grown != NULL;
    return grown;
}

static void own_free(void *memory) {
    live -= memory != NULL;
    free(memory);
}

#define malloc own_malloc
#define calloc own_calloc
#define realloc own_realloc
#define free own_free
#include "base/memory.c" /* NOLINT(bugprone-suspicious-include) */
#undef malloc
#undef calloc
#undef realloc
#undef free

/* ---- what is tried ---- */

static ferry_layout_t *parse(const char *text) {
    ferry_layout_t *layout = NULL;
    assert_ok(ferry_layout_parse(text, &layout, &err));
    return layout;
}

/* Plain and Partial sources, several groups, enough transfers for every list to grow. */
static ferry_plan_t *make_plan(void) {
    static const uint64_t shape[] = {96, 8};
    ferry_layout_t *plain = parse("4:S0/cyclic(1)");
    ferry_layout_t *sums = parse("2x2:S0,P(sum)");
    ferry_layout_t *maxima = parse("2x2:P(max),P(sum)");
    ferry_layout_t *to = parse("2x2:S0,R@1,4-6");
    const ferry_tensor_t sources[] = {{"a", FERRY_F32, 2, shape, plain},
                                      {"b", FERRY_F32, 2, shape, sums},
                                      {"c", FERRY_F32, 2, shape, maxima}};
    const ferry_tensor_t targets[] = {{"a", FERRY_F32, 2, shape, to},
                                      {"b", FERRY_F32, 2, shape, to},
                                      {"c", FERRY_F32, 2, shape, to}};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.sources = sources;
    params.targets = targets;
    params.nsources = params.ntargets = 3;
    ferry_plan_t *plan = NULL;
    assert_ok(ferry_plan_create(&params, &plan, &err));
    ferry_layout_destroy(plain);
    ferry_layout_destroy(sums);
    ferry_layout_destroy(maxima);
    ferry_layout_destroy(to);
    return plan;
}

static ferry_status_t make_chunks(const void *plan, void **made_p, ferry_error_t *err) {
    ferry_chunks_params_t params = FERRY_CHUNKS_PARAMS_INIT;
    params.rank = 1;
    params.slab_bytes = 64;
    return ferry_chunks_create(plan, &params, (void *)made_p, err);
}

static ferry_status_t make_buckets(const void *chunks, void **made_p, ferry_error_t *err) {
    ferry_buckets_params_t params = FERRY_BUCKETS_PARAMS_INIT;
    (void)ferry_chunks_list(chunks, &params.count);
    params.threshold = 100;
    return ferry_buckets_create(chunks, &params, (void *)made_p, err);
}

/* Fails every allocation in turn. Gives back what the undisturbed try made. */
static void *fail_each(ferry_status_t (*make)(const void *, void **, ferry_error_t *),
                       const void *from, long least) {
    long before = live;
    for (long n = 0;; n++) {
        ferry_error_t err = FERRY_ERROR_INIT;
        void *made = NULL;
        allowed = n;
        ferry_status_t status = make(from, &made, &err);
        bool failed = allowed < 0;
        allowed = -1;
        if (!failed) {
            assert_int_equal(status, FERRY_OK);
            assert_true(n >= least); /* else nothing was tried */
            return made;
        }
        assert_int_equal(status, FERRY_NOMEM);
        assert_int_equal(err.status, FERRY_NOMEM);
        assert_true(err.text[0] != '\0');
        assert_null(made);
        assert_int_equal(live, before);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    ferry_plan_t *plan = make_plan();
    ferry_chunks_t *chunks = fail_each(make_chunks, plan, 20);
    size_t count = 0;
    (void)ferry_chunks_list(chunks, &count);
    assert_true(count > 100);
    (void)ferry_chunks_cells(chunks, &count);
    assert_true(count > 20);
    assert_non_null(ferry_chunks_partial(chunks, 1));
    ferry_buckets_t *buckets = fail_each(make_buckets, chunks, 10);
    (void)ferry_buckets_list(buckets, &count);
    assert_true(count > 20);
    ferry_buckets_destroy(buckets);
    ferry_chunks_destroy(chunks);
    ferry_plan_destroy(plan);
    assert_int_equal(live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
