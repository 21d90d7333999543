/* test_service_trace.c - what a copy service tells of its steps.
 *
 * Every member of a group (whose numbers are not those of the world) sends to every member. Whatever way
 * the bytes take and whoever does the work, the steps of all ranks must add up to what the results say,
 * lie within the run, and name ranks of the world. One member comes late, and the others are seen to
 * wait for it. */
#include "multi/body.h"

#include <ferry/service.h>

enum { MEMBERS = 3, STEPS = FERRY_STEP_WAIT + 1, PAIR_BYTES = 1 << 20 };

static const uint32_t ranks_of[MEMBERS] = {3, 1, 0};

typedef struct variant {
    uint32_t paths;
    uint32_t sharing;
    bool heap;
    bool thread; /* the service's own thread drives the run */
} variant_t;

typedef struct told {
    uint64_t bytes[STEPS];
    uint64_t count[STEPS];
    uint64_t wait_ns;
    uint64_t first_ns;
    uint64_t last_ns;
    uint32_t rank;
    uint32_t wrong; /* events that cannot be */
} told_t;

static bool is_member(uint32_t rank) {
    return rank == ranks_of[0] || rank == ranks_of[1] || rank == ranks_of[2];
}

static void listen(void *context, const ferry_pipeline_event_t *event) {
    told_t *told = context;
    bool wait = event->step == FERRY_STEP_WAIT;
    uint64_t length_ns = event->end_ns - event->begin_ns;
    bool good = (uint32_t)event->step < STEPS && event->rank == told->rank &&
                (is_member(event->peer) || (wait && event->peer == FERRY_RANK_NONE)) &&
                event->end_ns >= event->begin_ns && event->slot < 2 &&
                (event->step != FERRY_STEP_HELP || event->peer != told->rank) &&
                (wait ? length_ns >= FERRY_TRACE_WAIT_NS : event->bytes > 0);
    if (!good) {
        told->wrong++;
        return;
    }
    told->bytes[event->step] += event->bytes;
    told->count[event->step]++;
    told->wait_ns += wait ? length_ns : 0;
    told->first_ns =
        told->first_ns == 0 || event->begin_ns < told->first_ns ? event->begin_ns : told->first_ns;
    told->last_ns = event->end_ns > told->last_ns ? event->end_ns : told->last_ns;
}

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static ferry_status_t submit_all(ferry_copy_service_t *service, uint8_t *source, uint8_t *target,
                                 bool heap, uint32_t me, ferry_error_t *err) {
    uint64_t bytes = PAIR_BYTES;
    for (uint32_t member = 0; member < MEMBERS; member++) {
        ferry_view_t from;
        ferry_view_t to;
        size_t at = (size_t)member * PAIR_BYTES;
        GOOD(ferry_view_contiguous(source + at, FERRY_U8, 1, &bytes, &from, err));
        GOOD(ferry_view_contiguous(target + at, FERRY_U8, 1, &bytes, &to, err));
        from.kind = heap ? FERRY_MEM_HOST : FERRY_MEM_SHARED;
        to.kind = from.kind;
        GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, member, me * MEMBERS + member,
                                    err));
        GOOD(ferry_copy_submit_recv(service, &to, member, member * MEMBERS + me, err));
    }
    return FERRY_OK;
}

static ferry_status_t run_batch(ferry_kept_batch_t *batch, bool start, ferry_copy_result_t *result,
                                ferry_error_t *err) {
    if (!start) {
        return ferry_kept_batch_run(batch, result, err);
    }
    GOOD(ferry_kept_batch_start(batch, err));
    return ferry_kept_batch_wait(batch, result, err);
}

/* The steps of all members against their results. *wait_ns_p: how long member 1 or 2 has waited, the
 * shorter of the two. */
static ferry_status_t check_sums(ferry_group_t *group, const told_t *mine,
                                 const ferry_copy_result_t *result, uint64_t *wait_ns_p,
                                 ferry_error_t *err) {
    told_t all[MEMBERS];
    ferry_copy_result_t results[MEMBERS];
    GOOD(ferry_group_allgather(group, mine, sizeof *mine, all, err));
    GOOD(ferry_group_allgather(group, result, sizeof *result, results, err));
    told_t sum = {0};
    ferry_copy_result_t moved = {0};
    for (uint32_t member = 0; member < MEMBERS; member++) {
        for (uint32_t step = 0; step < STEPS; step++) {
            sum.bytes[step] += all[member].bytes[step];
        }
        moved.bytes_direct += results[member].bytes_direct;
        moved.bytes_read += results[member].bytes_read;
        moved.bytes_pipeline += results[member].bytes_pipeline;
    }
    EXPECT(sum.bytes[FERRY_STEP_COPY] + sum.bytes[FERRY_STEP_HELP] == moved.bytes_direct);
    EXPECT(sum.bytes[FERRY_STEP_READ] == moved.bytes_read);
    EXPECT(sum.bytes[FERRY_STEP_PACK] == moved.bytes_pipeline);
    EXPECT(sum.bytes[FERRY_STEP_PUT] == moved.bytes_pipeline);
    EXPECT(mine->bytes[FERRY_STEP_UNPACK] == result->bytes_pipeline);
    EXPECT(mine->bytes[FERRY_STEP_HELP] == result->bytes_helped);
    EXPECT(moved.bytes_direct + moved.bytes_read + moved.bytes_pipeline ==
           (uint64_t)MEMBERS * MEMBERS * PAIR_BYTES);
    *wait_ns_p = all[1].wait_ns < all[2].wait_ns ? all[1].wait_ns : all[2].wait_ns;
    return FERRY_OK;
}

/* One run, to which member 0 comes late by so many seconds. */
static ferry_status_t run_once(ferry_group_t *group, ferry_kept_batch_t *batch, bool start,
                               double late, told_t *told, uint64_t *wait_ns_p, ferry_error_t *err) {
    memset(told->bytes, 0, sizeof told->bytes);
    told->first_ns = 0;
    told->wait_ns = 0;
    GOOD(ferry_group_barrier(group, err));
    uint64_t begin_ns = now_ns();
    if (ferry_group_rank(group) == 0) {
        body_sleep(late);
    }
    ferry_copy_result_t result;
    GOOD(run_batch(batch, start, &result, err));
    EXPECT(told->wrong == 0);
    EXPECT(told->first_ns >= begin_ns && told->last_ns <= now_ns());
    return check_sums(group, told, &result, wait_ns_p, err);
}

/* Where the machine is so busy that the others come no earlier, member 0 takes more time. */
static ferry_status_t run_some(ferry_group_t *group, ferry_kept_batch_t *batch, bool start,
                               told_t *told, ferry_error_t *err) {
    uint64_t wait_ns = 0;
    GOOD(run_once(group, batch, start, 0, told, &wait_ns, err));
    wait_ns = 0;
    for (double late = 0.02; wait_ns < 10000000; late *= 2) {
        EXPECT(late < 4);
        GOOD(run_once(group, batch, start, late, told, &wait_ns, err));
    }
    return FERRY_OK;
}

static ferry_status_t trace_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const variant_t *variant = context;
    ferry_group_t *group = NULL;
    GOOD(ferry_group_create(world, ranks_of, MEMBERS, &group, err));
    uint32_t me = ferry_group_rank(group);
    if (me == FERRY_RANK_NONE) {
        ferry_group_destroy(group);
        return FERRY_OK;
    }
    size_t bytes = (size_t)2 * MEMBERS * PAIR_BYTES;
    void *memory = NULL;
    if (variant->heap) {
        memory = malloc(bytes);
    } else {
        GOOD(ferry_mem_alloc(world, bytes, &memory, err));
    }
    uint8_t *source = memory;
    memset(source, (int)me + 1, bytes);
    told_t told = {.rank = ferry_world_rank(world)};
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = variant->paths;
    params.sharing = variant->sharing;
    params.progress_thread = variant->thread;
    params.slot_bytes = PAIR_BYTES / 4;
    params.trace = listen;
    params.trace_context = &told;
    ferry_copy_service_t *service = NULL;
    ferry_kept_batch_t *batch = NULL;
    GOOD(ferry_copy_service_create(group, &params, &service, err));
    GOOD(submit_all(service, source, source + bytes / 2, variant->heap, me, err));
    GOOD(ferry_copy_service_keep(service, &batch, err));
    GOOD(run_some(group, batch, variant->thread, &told, err));
    uint32_t other = ranks_of[(me + 1) % MEMBERS];
    bool reads = variant->paths == FERRY_PATH_READ && ferry_world_can_read(world, other);
    EXPECT((told.count[FERRY_STEP_READ] > 0) == reads);
    for (size_t i = 0; i < bytes / 2; i += 1021) {
        EXPECT(source[bytes / 2 + i] == i / PAIR_BYTES + 1);
    }
    ferry_kept_batch_destroy(batch);
    ferry_copy_service_close(service);
    GOOD(ferry_group_barrier(group, err));
    ferry_group_destroy(group);
    if (variant->heap) {
        free(memory);
    }
    return FERRY_OK;
}

static void test_steps(void **state) {
    (void)state;
    static variant_t variants[] = {
        {.paths = FERRY_PATH_DIRECT, .sharing = FERRY_SHARE_NONE},
        {.paths = FERRY_PATH_DIRECT, .sharing = FERRY_SHARE_PROCESSES},
        {.paths = FERRY_PATH_DIRECT, .sharing = FERRY_SHARE_PROCESSES, .thread = true},
        {.paths = FERRY_PATH_READ, .heap = true},
        {.paths = FERRY_PATH_PIPELINE},
        {.paths = FERRY_PATH_PIPELINE, .heap = true, .thread = true},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        for (int kind = 0; kind < BODY_KINDS; kind++) {
            run_well((body_kind_t)kind, 4, trace_body, &variants[i], NULL);
        }
    }
}

/* --- who listens is nobody else's business ----------------------------------------------------- */

static ferry_status_t one_listens_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t me = ferry_world_rank(world);
    uint64_t words[2] = {me + 1, 0};
    told_t told = {.rank = me};
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = FERRY_PATH_PIPELINE;
    if (me == 1) {
        params.trace = listen;
        params.trace_context = &told;
    }
    ferry_copy_service_t *service = NULL;
    GOOD(ferry_copy_service_create(ferry_world_group(world), &params, &service, err));
    ferry_view_t from;
    ferry_view_t to;
    GOOD(ferry_view_contiguous(&words[0], FERRY_U64, 0, NULL, &from, err));
    GOOD(ferry_view_contiguous(&words[1], FERRY_U64, 0, NULL, &to, err));
    GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, 1 - me, me, err));
    GOOD(ferry_copy_submit_recv(service, &to, 1 - me, 1 - me, err));
    GOOD(ferry_copy_service_run(service, NULL, err));
    EXPECT(words[1] == 2 - me && told.wrong == 0);
    EXPECT(told.count[FERRY_STEP_PUT] == me && told.count[FERRY_STEP_UNPACK] == me);
    ferry_copy_service_close(service);
    return FERRY_OK;
}

static void test_one_listens(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 2, one_listens_body, NULL, NULL);
    }
}

/* --- as text ----------------------------------------------------------------------------------- */

static void test_text(void **state) {
    (void)state;
    static const char *const names[STEPS] = {"pack", "put",  "unpack", "self",
                                             "copy", "help", "read",   "wait"};
    for (uint32_t step = 0; step < STEPS; step++) {
        assert_string_equal(ferry_pipeline_step_name(step), names[step]);
    }
    assert_null(ferry_pipeline_step_name(STEPS));
    ferry_pipeline_event_t event = {.step = FERRY_STEP_WAIT,
                                    .rank = 3,
                                    .peer = FERRY_RANK_NONE,
                                    .begin_ns = 1002003,
                                    .end_ns = 1012004};
    char text[512];
    size_t length = ferry_pipeline_event_json(&event, text, sizeof text);
    assert_string_equal(text,
                        "{\"name\":\"wait\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":3,\"tid\":7,"
                        "\"ts\":1002.003,\"dur\":10.001,\"args\":{\"round\":0,\"slot\":0,"
                        "\"bytes\":0}}");
    assert_int_equal(length, strlen(text));
    event = (ferry_pipeline_event_t){.step = FERRY_STEP_PUT, .peer = 5, .round = 7, .slot = 1};
    event.bytes = 64;
    (void)ferry_pipeline_event_json(&event, text, sizeof text);
    assert_non_null(strstr(text, "\"args\":{\"peer\":5,\"round\":7,\"slot\":1,\"bytes\":64}}"));
    assert_int_equal(ferry_pipeline_event_json(&event, text, 8),
                     ferry_pipeline_event_json(&event, NULL, 0));
}

int main(void) {
    (void)alarm(200);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_one_listens),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
