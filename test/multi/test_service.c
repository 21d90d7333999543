/* test_service.c - the built-in service between ranks: every mistake is one error on all of them and the
 * next run works; groups, waiting, cancelling, sharing, and services of other makers. */
#include "multi/body.h"

#include <ferry/kernel.h>
#include <ferry/sys/service.h>

static ferry_view_t view_1d(void *data, ferry_dtype_t dtype, uint64_t count) {
    ferry_view_t view;
    (void)ferry_view_contiguous(data, dtype, 1, &count, &view, NULL);
    return view;
}

/* --- mistakes ---------------------------------------------------------------------------------- */

enum { COUNT = 300, IDLE_RANK = 2, RANKS = 3 };

typedef struct bench {
    ferry_world_t *world;
    ferry_copy_service_t *service;
    uint32_t me;
    float *source; /* COUNT of each in shared memory; nothing behind them */
    float *target;
    ferry_view_t from;
    ferry_view_t to;
    float own[COUNT]; /* memory that is not shared */
} bench_t;

/* Submits this rank's part of a mistake. */
typedef ferry_status_t (*mistake_fn)(bench_t *bench, ferry_error_t *err);

typedef struct mistake {
    const char *name;
    mistake_fn submit;
    ferry_status_t status;
    const char *text;
    uint32_t rank; /* of the record */
} mistake_t;

#define SEND(view, wire, peer, id)                                                                 \
    GOOD(ferry_copy_submit_send(bench->service, view, FERRY_DTYPE_##wire, peer, id, err))
#define RECV(view, peer, id) GOOD(ferry_copy_submit_recv(bench->service, view, peer, id, err))
#define FERRY_DTYPE_BF16 FERRY_BF16

static ferry_status_t send_alone(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    }
    return FERRY_OK;
}

static ferry_status_t recv_alone(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 1) {
        RECV(&bench->to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t ids_differ(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&bench->to, 0, 6);
    }
    return FERRY_OK;
}

static ferry_status_t send_twice(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&bench->to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t recv_twice(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else {
        RECV(&bench->to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t wrong_peer(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 2) {
        RECV(&bench->to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t shapes_differ(bench_t *bench, ferry_error_t *err) {
    ferry_view_t shorter = view_1d(bench->target, FERRY_F32, COUNT - 1);
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&shorter, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t dtypes_differ(bench_t *bench, ferry_error_t *err) {
    ferry_view_t ints = view_1d(bench->target, FERRY_I32, COUNT);
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&ints, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t odd_wire(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 0) {
        SEND(&bench->from, BF16, 1, 7);
    } else if (bench->me == 1) {
        RECV(&bench->to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t outside(bench_t *bench, ferry_error_t *err) {
    ferry_view_t far = view_1d(bench->target, FERRY_F32, 4096);
    if (bench->me == 0) {
        SEND(&far, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&far, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t targets_overlap(bench_t *bench, ferry_error_t *err) {
    ferry_view_t half = view_1d(bench->source, FERRY_F32, COUNT / 2);
    ferry_view_t first = view_1d(bench->target, FERRY_F32, COUNT / 2);
    ferry_view_t second = view_1d(bench->target + COUNT / 2 - 1, FERRY_F32, COUNT / 2);
    if (bench->me == 0) {
        SEND(&half, NONE, 1, 7);
        SEND(&half, NONE, 1, 8);
    } else if (bench->me == 1) {
        RECV(&first, 0, 7);
        RECV(&second, 0, 8);
    }
    return FERRY_OK;
}

static ferry_status_t target_folds(bench_t *bench, ferry_error_t *err) {
    ferry_view_t folded = bench->to;
    folded.strides[0] = 0;
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&folded, 0, 7);
    }
    return FERRY_OK;
}

/* Rank 1 receives into what it sends on. */
static ferry_status_t source_overwritten(bench_t *bench, ferry_error_t *err) {
    ferry_view_t last = view_1d(bench->source + COUNT - 1, FERRY_F32, 1);
    if (bench->me == 0) {
        SEND(&last, NONE, 1, 7);
    } else if (bench->me == 1) {
        SEND(&bench->from, NONE, 2, 8);
        RECV(&last, 0, 7);
    } else if (bench->me == 2) {
        RECV(&bench->to, 1, 8);
    }
    return FERRY_OK;
}

static ferry_status_t own_source_overwritten(bench_t *bench, ferry_error_t *err) {
    ferry_view_t rows = view_1d(bench->own, FERRY_F32, COUNT / 2);
    rows.strides[0] = 2; /* every second element is the source, every third the target */
    ferry_view_t thirds = view_1d(bench->own + 1, FERRY_F32, COUNT / 3);
    thirds.strides[0] = 3;
    if (bench->me == 2) {
        SEND(&rows, NONE, 0, 7);
        RECV(&thirds, 1, 8);
    } else if (bench->me == 1) {
        ferry_view_t third = view_1d(bench->source, FERRY_F32, COUNT / 3);
        SEND(&third, NONE, 2, 8);
    } else if (bench->me == 0) {
        ferry_view_t half = view_1d(bench->target, FERRY_F32, COUNT / 2);
        RECV(&half, 2, 7);
    }
    return FERRY_OK;
}

/* Onto itself, but not quite: by one element, or as another dtype. */
static ferry_status_t moved_by_one(bench_t *bench, ferry_error_t *err) {
    ferry_view_t from = view_1d(bench->own, FERRY_F32, COUNT - 1);
    ferry_view_t to = view_1d(bench->own + 1, FERRY_F32, COUNT - 1);
    if (bench->me == 1) {
        SEND(&from, NONE, 1, 7);
        RECV(&to, 1, 7);
    }
    return FERRY_OK;
}

static ferry_status_t cast_in_place(bench_t *bench, ferry_error_t *err) {
    ferry_view_t from = view_1d(bench->source, FERRY_BF16, COUNT);
    ferry_view_t to = view_1d(bench->source, FERRY_F16, COUNT);
    if (bench->me == 0) {
        SEND(&from, NONE, 0, 7);
        RECV(&to, 0, 7);
    }
    return FERRY_OK;
}

static ferry_status_t local_without_id(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 1) {
        SEND(&bench->from, NONE, 1, FERRY_TASK_NONE);
        RECV(&bench->to, 1, FERRY_TASK_NONE);
    }
    return FERRY_OK;
}

static ferry_status_t local_counts(bench_t *bench, ferry_error_t *err) {
    if (bench->me == 2) {
        SEND(&bench->from, NONE, 2, 7);
    }
    return FERRY_OK;
}

static const mistake_t mistakes[] = {
    {"a send alone", send_alone, FERRY_MISMATCH,
     "send 0 of rank 0, task id 7, has no receive at rank 1", 0},
    {"a receive alone", recv_alone, FERRY_MISMATCH,
     "receive 0 of rank 1, task id 7, has no send at rank 0", 1},
    {"ids differ", ids_differ, FERRY_MISMATCH, "receive 0 of rank 1, task id 6, has no send", 1},
    {"a send twice", send_twice, FERRY_MISMATCH,
     "task id 7 repeats: send 0 of rank 0 and send 1 of rank 0", 0},
    {"a receive twice", recv_twice, FERRY_MISMATCH,
     "task id 7 repeats: receive 0 of rank 1 and receive 0 of rank 2", 2},
    {"peers differ", wrong_peer, FERRY_MISMATCH,
     "rank 0 sends to rank 1, but rank 2 receives from rank 0", 2},
    {"shapes differ", shapes_differ, FERRY_MISMATCH, "the source is 300, the target 299", 1},
    {"dtypes differ", dtypes_differ, FERRY_MISMATCH, "f32 does not convert to i32", 1},
    {"odd wire dtype", odd_wire, FERRY_MISMATCH, "the wire dtype bf16 is neither", 0},
    {"outside its memory", outside, FERRY_INVALID, "send 0, task id 7", 0},
    {"targets overlap", targets_overlap, FERRY_MISMATCH,
     "rank 1: the targets of task ids 7 and 8 overlap", 1},
    {"a source is overwritten", source_overwritten, FERRY_MISMATCH,
     "rank 1: the target of task id 7 overlaps the source of task id 8", 1},
    {"an own source is overwritten", own_source_overwritten, FERRY_MISMATCH,
     "rank 2: the target of task id 8 overlaps the source of task id 7", 2},
    {"moved by one", moved_by_one, FERRY_MISMATCH,
     "rank 1: the target of task id 7 overlaps the source of task id 7", 1},
    {"cast in place", cast_in_place, FERRY_MISMATCH,
     "rank 0: the target of task id 7 overlaps the source of task id 7", 0},
    {"a target folds", target_folds, FERRY_MISMATCH, "has two elements at one address", 1},
    {"local without id", local_without_id, FERRY_MISMATCH,
     "ferry copy service: rank 1: local send 0 has no task id", 1},
    {"local counts", local_counts, FERRY_MISMATCH, "1 local sends, but 0 local receives", 2},
};

/* A run that must succeed: rank 0 -> rank 1, and rank 1 -> itself. */
static ferry_status_t good_run(bench_t *bench, float salt, ferry_error_t *err) {
    for (int i = 0; i < COUNT; i++) {
        bench->source[i] = salt + (float)i;
        bench->target[i] = -1;
    }
    ferry_view_t own = view_1d(bench->target, FERRY_F32, COUNT);
    if (bench->me == 0) {
        SEND(&bench->from, NONE, 1, 7);
    } else if (bench->me == 1) {
        RECV(&own, 0, 7);
    }
    ferry_copy_result_t result;
    GOOD(ferry_copy_service_run(bench->service, &result, err));
    EXPECT(result.bytes_received == (bench->me == 1 ? COUNT * sizeof(float) : 0));
    for (int i = 0; i < COUNT && bench->me == 1; i++) {
        EXPECT(bench->target[i] == salt + (float)i);
    }
    return FERRY_OK;
}

/* All ranks hold the same record. */
static ferry_status_t same_everywhere(ferry_world_t *world, const ferry_error_t *mine,
                                      ferry_error_t *err) {
    ferry_error_t all[8];
    GOOD(ferry_group_allgather(ferry_world_group(world), mine, sizeof *mine, all, err));
    for (uint32_t i = 0; i < ferry_world_size(world); i++) {
        EXPECT(strcmp(all[i].text, mine->text) == 0);
        EXPECT(all[i].status == mine->status && all[i].rank == mine->rank &&
               all[i].peer == mine->peer);
    }
    return FERRY_OK;
}

static ferry_status_t open_bench(ferry_world_t *world, bench_t *bench, ferry_error_t *err) {
    void *memory = NULL;
    bench->world = world;
    bench->me = ferry_world_rank(world);
    GOOD(ferry_mem_alloc(world, COUNT * sizeof(float), &memory, err));
    bench->source = memory;
    GOOD(ferry_mem_alloc(world, COUNT * sizeof(float), &memory, err));
    bench->target = memory;
    bench->from = view_1d(bench->source, FERRY_F32, COUNT);
    bench->to = view_1d(bench->target, FERRY_F32, COUNT);
    return FERRY_OK;
}

static ferry_status_t mistakes_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    bench_t bench = {0};
    GOOD(open_bench(world, &bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), context, &bench.service, err));
    EXPECT(strcmp(ferry_copy_service_name(bench.service), "ferry copy service") == 0);
    EXPECT(!ferry_copy_service_needs_barrier(bench.service));
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake_t *mistake = &mistakes[i];
        for (int keep = 0; keep < 2; keep++) {
            ferry_error_t found = FERRY_ERROR_INIT;
            ferry_kept_batch_t *batch = NULL;
            GOOD(mistake->submit(&bench, err));
            ferry_status_t status = keep ? ferry_copy_service_keep(bench.service, &batch, &found)
                                         : ferry_copy_service_run(bench.service, NULL, &found);
            if (status != mistake->status || strstr(found.text, mistake->text) == NULL ||
                found.rank != mistake->rank || batch != NULL) {
                (void)snprintf(err->text, sizeof err->text, "%s: %.300s", mistake->name,
                               found.text);
                err->status = FERRY_CHECK;
                return FERRY_CHECK;
            }
            GOOD(same_everywhere(world, &found, err));
            GOOD(ferry_copy_service_check(bench.service, err));
            GOOD(good_run(&bench, (float)i, err));
        }
    }
    ferry_copy_service_close(bench.service);
    return FERRY_OK;
}

/* What is no mistake: a move onto itself, and a source and a target that lie between each other. */
static ferry_status_t in_place_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    bench_t opened = {0};
    bench_t *bench = &opened;
    uint32_t next = (ferry_world_rank(world) + 1) % RANKS;
    uint32_t last = (ferry_world_rank(world) + RANKS - 1) % RANKS;
    GOOD(open_bench(world, bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), context, &bench->service, err));
    for (int i = 0; i < COUNT; i++) {
        bench->source[i] = (float)(bench->me * COUNT) + (float)i;
        bench->own[i] = (float)i;
    }
    ferry_view_t even = view_1d(bench->source, FERRY_F32, COUNT / 2);
    even.strides[0] = 2;
    ferry_view_t odd = even;
    odd.data = bench->source + 1;
    ferry_view_t own = view_1d(bench->own, FERRY_F32, COUNT);
    SEND(&even, NONE, next, 10 + bench->me);
    RECV(&odd, last, 10 + last);
    SEND(&own, NONE, bench->me, 20 + bench->me);
    RECV(&own, bench->me, 20 + bench->me);
    GOOD(ferry_copy_service_run(bench->service, NULL, err));
    for (int i = 0; i < COUNT; i++) {
        uint32_t from = i % 2 == 0 ? bench->me : last;
        EXPECT(bench->source[i] == (float)(from * COUNT) + (float)(i - i % 2));
        EXPECT(bench->own[i] == (float)i);
    }
    ferry_copy_service_close(bench->service);
    return FERRY_OK;
}

static void test_in_place(void **state) {
    (void)state;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        params.paths = 0;
        run_well((body_kind_t)kind, RANKS, in_place_body, &params, NULL);
        params.paths = FERRY_PATH_PIPELINE;
        run_well((body_kind_t)kind, RANKS, in_place_body, &params, NULL);
    }
}

static void test_mistakes(void **state) {
    (void)state;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        params.paths = 0;
        run_well((body_kind_t)kind, RANKS, mistakes_body, &params, NULL);
        params.paths = FERRY_PATH_PIPELINE;
        run_well((body_kind_t)kind, RANKS, mistakes_body, &params, NULL);
    }
}

/* What is refused before it is queued. */
static ferry_status_t refused_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    bench_t bench = {0};
    GOOD(open_bench(world, &bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), NULL, &bench.service, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    uint32_t other = 1 - bench.me;
    EXPECT(ferry_copy_submit_send(bench.service, &bench.from, FERRY_DTYPE_NONE, other,
                                  FERRY_TASK_NONE, &found) == FERRY_INVALID);
    EXPECT(strstr(found.text, "needs a task id") != NULL);
    EXPECT(ferry_copy_submit_recv(bench.service, &bench.to, 2, 1, &found) == FERRY_INVALID);
    EXPECT(strstr(found.text, "peer 2 of a group of 2") != NULL);
    EXPECT(ferry_copy_submit_send(bench.service, &bench.from, (ferry_dtype_t)99, other, 1,
                                  &found) == FERRY_INVALID);
    ferry_view_t bad = bench.to;
    bad.dtype = FERRY_DTYPE_NONE;
    EXPECT(ferry_copy_submit_recv(bench.service, &bad, other, 1, &found) == FERRY_INVALID);
    bad = bench.to;
    bad.kind = FERRY_MEM_CUDA;
    EXPECT(ferry_copy_submit_recv(bench.service, &bad, other, 1, &found) == FERRY_UNSUPPORTED);
    GOOD(ferry_copy_service_run(bench.service, NULL, err)); /* nothing is queued */
    ferry_copy_service_close(bench.service);
    /* Parameters that differ or mean nothing are an error on all ranks. */
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.slot_bytes = bench.me == 0 ? 4096 : 8192;
    ferry_group_t *group = ferry_world_group(world);
    EXPECT(ferry_copy_service_create(group, &params, &bench.service, &found) == FERRY_MISMATCH);
    EXPECT(strstr(found.text, "parameters differ") != NULL);
    params = (ferry_copy_service_params_t)FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = bench.me == 0 ? 64 : 0;
    EXPECT(ferry_copy_service_create(group, &params, &bench.service, &found) == FERRY_INVALID);
    EXPECT(found.rank == 0);
    params.paths = FERRY_PATH_PIPELINE;
    params.staging_bytes = 100; /* holds no two slots */
    GOOD(ferry_copy_service_create(group, &params, &bench.service, err));
    if (bench.me == 0) {
        GOOD(ferry_copy_submit_send(bench.service, &bench.from, FERRY_DTYPE_NONE, 1, 1, err));
    } else {
        GOOD(ferry_copy_submit_recv(bench.service, &bench.to, 0, 1, err));
    }
    EXPECT(ferry_copy_service_run(bench.service, NULL, &found) == FERRY_INVALID);
    EXPECT(strstr(found.text, "budget of 100") != NULL);
    ferry_copy_service_close(bench.service);
    return FERRY_OK;
}

static void test_refused(void **state) {
    (void)state;
    run_well(AS_THREADS, 2, refused_body, NULL, NULL);
    run_well(AS_PROCESSES, 2, refused_body, NULL, NULL);
}

/* --- a group inside the world ------------------------------------------------------------------ */

static ferry_status_t group_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t ranks[] = {3, 1, 0};
    uint32_t rank = ferry_world_rank(world);
    ferry_group_t *group = NULL;
    ferry_copy_service_t *service = NULL;
    GOOD(ferry_group_create(world, ranks, 3, &group, err));
    uint32_t me = ferry_group_rank(group);
    if (me == FERRY_RANK_NONE) {
        ferry_error_t found = FERRY_ERROR_INIT;
        EXPECT(ferry_copy_service_create(group, NULL, &service, &found) == FERRY_INVALID);
        ferry_group_destroy(group);
        return FERRY_OK;
    }
    uint64_t source[4] = {rank, rank + 10, rank + 20, rank + 30}; /* on the stack: not shared */
    uint64_t target[4] = {0};
    ferry_view_t from = view_1d(source, FERRY_U64, 4);
    ferry_view_t to = view_1d(target, FERRY_U64, 4);
    GOOD(ferry_copy_service_create(group, NULL, &service, err));
    GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, (me + 1) % 3, me, err));
    GOOD(ferry_copy_submit_recv(service, &to, (me + 2) % 3, (me + 2) % 3, err));
    GOOD(ferry_copy_service_run(service, NULL, err));
    EXPECT(target[0] == ranks[(me + 2) % 3] && target[3] == target[0] + 30);
    ferry_copy_service_close(service);
    ferry_group_destroy(group);
    return FERRY_OK;
}

static void test_group(void **state) {
    (void)state;
    for (int kind = 0; kind < BODY_KINDS; kind++) {
        run_well((body_kind_t)kind, 4, group_body, NULL, NULL);
    }
}

/* --- without permission to read ---------------------------------------------------------------- */

/* Heap to heap, as a user whose processes may not read each other: the pipeline takes over. */
static ferry_status_t unprivileged_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    if (geteuid() == 0) {
        EXPECT(setgid(65534) == 0 && setuid(65534) == 0);
    }
    EXPECT(prctl(PR_SET_DUMPABLE, 0) == 0);
    GOOD(ferry_group_barrier(ferry_world_group(world), err));
    enum { WORDS = 100000 };
    uint32_t me = ferry_world_rank(world);
    uint32_t *memory = calloc(2, WORDS * sizeof *memory);
    for (uint32_t i = 0; i < WORDS; i++) {
        memory[i] = i * 3 + me;
    }
    EXPECT(!ferry_world_can_read(world, 1 - me));
    ferry_copy_service_t *service = NULL;
    ferry_copy_result_t result;
    ferry_view_t from = view_1d(memory, FERRY_U32, WORDS);
    ferry_view_t to = view_1d(memory + WORDS, FERRY_U32, WORDS);
    GOOD(ferry_copy_service_create(ferry_world_group(world), NULL, &service, err));
    GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, 1 - me, me, err));
    GOOD(ferry_copy_submit_recv(service, &to, 1 - me, 1 - me, err));
    GOOD(ferry_copy_service_run(service, &result, err));
    EXPECT(result.bytes_pipeline == WORDS * sizeof *memory && result.bytes_read == 0);
    for (uint32_t i = 0; i < WORDS; i++) {
        EXPECT(memory[WORDS + i] == i * 3 + 1 - me);
    }
    ferry_copy_service_close(service);
    free(memory);
    return FERRY_OK;
}

static void test_unprivileged(void **state) {
    (void)state;
    run_well(AS_PROCESSES, 2, unprivileged_body, NULL, NULL);
}

/* --- late, cancelled, recovered ---------------------------------------------------------------- */

static ferry_status_t late_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    bench_t bench = {0};
    GOOD(open_bench(world, &bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), context, &bench.service, err));
    GOOD(good_run(&bench, 1, err));
    ferry_error_t found = FERRY_ERROR_INIT;
    if (bench.me != 1) {
        if (bench.me == 0) {
            GOOD(ferry_copy_submit_send(bench.service, &bench.from, FERRY_DTYPE_NONE, 1, 7, err));
        }
        EXPECT(ferry_copy_service_run(bench.service, NULL, &found) == FERRY_TIMEOUT);
        EXPECT(found.peer == 1);
        EXPECT(ferry_copy_service_check(bench.service, &found) == FERRY_TIMEOUT);
    } else {
        while (ferry_world_check(world, &found) == FERRY_OK) {
            body_sleep(0.01);
        }
        EXPECT(found.peer == 1);
    }
    GOOD(ferry_world_recover(world, err));
    GOOD(ferry_copy_service_check(bench.service, err));
    for (int i = 0; i < 3; i++) {
        GOOD(good_run(&bench, (float)i, err));
    }
    ferry_copy_service_close(bench.service);
    return FERRY_OK;
}

static void test_late(void **state) {
    (void)state;
    ferry_world_params_t world = FERRY_WORLD_PARAMS_INIT;
    world.timeout_ms = 400;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    run_well(AS_THREADS, RANKS, late_body, &params, &world);
    params.paths = FERRY_PATH_PIPELINE;
    run_well(AS_PROCESSES, RANKS, late_body, &params, &world);
}

/* Rank 0 starts a batch for which rank 1 never comes, and cancels it. */
static ferry_status_t cancel_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    bench_t bench = {0};
    GOOD(open_bench(world, &bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), context, &bench.service, err));
    if (bench.me == 0) {
        GOOD(ferry_copy_submit_send(bench.service, &bench.from, FERRY_DTYPE_NONE, 1, 7, err));
    } else {
        GOOD(ferry_copy_submit_recv(bench.service, &bench.to, 0, 7, err));
    }
    ferry_kept_batch_t *batch = NULL;
    ferry_error_t found = FERRY_ERROR_INIT;
    GOOD(ferry_copy_service_keep(bench.service, &batch, err));
    for (int round = 0; round < 3; round++) {
        EXPECT(ferry_copy_cancel(batch, &found) == FERRY_INVALID);
        EXPECT(ferry_kept_batch_wait(batch, NULL, &found) == FERRY_INVALID);
        if (bench.me == 0) {
            bool done = true;
            GOOD(ferry_kept_batch_start(batch, err));
            EXPECT(ferry_kept_batch_start(batch, &found) == FERRY_INVALID);
            EXPECT(ferry_copy_service_run(bench.service, NULL, &found) == FERRY_INVALID);
            GOOD(ferry_kept_batch_test(batch, &done, err));
            EXPECT(!done);
            GOOD(ferry_copy_service_progress(bench.service, err));
            GOOD(ferry_copy_cancel(batch, err));
            EXPECT(ferry_kept_batch_wait(batch, NULL, &found) == FERRY_STOPPED);
        } else {
            while (ferry_world_check(world, &found) == FERRY_OK) {
                body_sleep(0.005);
            }
            EXPECT(ferry_kept_batch_run(batch, NULL, &found) == FERRY_STOPPED);
        }
        EXPECT(found.rank == 0 && strstr(found.text, "cancelled") != NULL);
        GOOD(ferry_world_recover(world, err));
        bench.source[5] = (float)round;
        GOOD(ferry_kept_batch_start(batch, err));
        GOOD(ferry_kept_batch_wait(batch, NULL, err));
        EXPECT(bench.me == 0 || bench.target[5] == (float)round);
        GOOD(ferry_group_barrier(ferry_world_group(world), err));
    }
    ferry_kept_batch_destroy(batch);
    ferry_copy_service_close(bench.service);
    return FERRY_OK;
}

static void test_cancel(void **state) {
    (void)state;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    run_well(AS_THREADS, 2, cancel_body, &params, NULL);
    run_well(AS_PROCESSES, 2, cancel_body, &params, NULL);
    params.progress_thread = true;
    run_well(AS_THREADS, 2, cancel_body, &params, NULL);
    run_well(AS_PROCESSES, 2, cancel_body, &params, NULL);
}

/* A run that is only tested sees that its deadline passes. */
static ferry_status_t tested_late_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    bench_t bench = {0};
    GOOD(open_bench(world, &bench, err));
    GOOD(ferry_copy_service_create(ferry_world_group(world), NULL, &bench.service, err));
    if (bench.me == 0) {
        GOOD(ferry_copy_submit_send(bench.service, &bench.from, FERRY_DTYPE_NONE, 1, 7, err));
    } else {
        GOOD(ferry_copy_submit_recv(bench.service, &bench.to, 0, 7, err));
    }
    ferry_kept_batch_t *batch = NULL;
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    GOOD(ferry_copy_service_keep(bench.service, &batch, err));
    bool done = false;
    if (bench.me == 0) {
        GOOD(ferry_kept_batch_start(batch, err));
    }
    while (status == FERRY_OK && !done) {
        body_sleep(0.005);
        status = bench.me == 0 ? ferry_kept_batch_test(batch, &done, &found)
                               : ferry_world_check(world, &found);
    }
    EXPECT(status == FERRY_TIMEOUT && found.peer == 1);
    GOOD(ferry_world_recover(world, err));
    ferry_kept_batch_destroy(batch);
    ferry_copy_service_close(bench.service);
    return FERRY_OK;
}

static void test_tested_late(void **state) {
    (void)state;
    ferry_world_params_t world = FERRY_WORLD_PARAMS_INIT;
    world.timeout_ms = 300;
    run_well(AS_PROCESSES, 2, tested_late_body, NULL, &world);
}

/* --- sharing ----------------------------------------------------------------------------------- */

enum { SHARED_BYTES = 32 << 20 };

static ferry_status_t helping_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    ferry_copy_service_t *service = NULL;
    uint32_t me = ferry_world_rank(world);
    GOOD(ferry_copy_service_create(ferry_world_group(world), context, &service, err));
    void *source = NULL;
    void *target = NULL;
    GOOD(ferry_mem_alloc(world, SHARED_BYTES, &source, err));
    GOOD(ferry_mem_alloc(world, SHARED_BYTES, &target, err));
    ferry_view_t from = view_1d(source, FERRY_U32, SHARED_BYTES / 4);
    ferry_view_t to = view_1d(target, FERRY_U32, SHARED_BYTES / 4);
    if (me == 1) { /* all copies are rank 0's, which receives */
        GOOD(ferry_copy_submit_send(service, &from, FERRY_DTYPE_NONE, 0, 1, err));
    } else {
        GOOD(ferry_copy_submit_recv(service, &to, 1, 1, err));
    }
    ferry_kept_batch_t *batch = NULL;
    GOOD(ferry_copy_service_keep(service, &batch, err));
    uint64_t helped = 0;
    for (uint32_t run = 0; run < 50 && helped == 0; run++) {
        for (uint32_t i = 0; i < SHARED_BYTES / 4; i += 997) {
            ((uint32_t *)source)[i] = i + run;
        }
        ferry_copy_result_t result;
        GOOD(ferry_kept_batch_run(batch, &result, err));
        for (uint32_t i = 0; i < SHARED_BYTES / 4 && me == 0; i += 997) {
            EXPECT(((uint32_t *)target)[i] == i + run);
        }
        uint64_t all[2];
        GOOD(ferry_group_allgather(ferry_world_group(world), &result.bytes_helped, 8, all, err));
        helped = all[0] + all[1];
    }
    ferry_copy_service_params_t *params = context;
    EXPECT(params->sharing == FERRY_SHARE_NONE ? helped == 0 : helped > 0);
    ferry_kept_batch_destroy(batch);
    ferry_copy_service_close(service);
    return FERRY_OK;
}

static void test_sharing(void **state) {
    (void)state;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    run_well(AS_THREADS, 2, helping_body, &params, NULL);
    params.sharing = FERRY_SHARE_PROCESSES;
    run_well(AS_PROCESSES, 2, helping_body, &params, NULL);
}

/* --- a table of one's own ---------------------------------------------------------------------- */

static ferry_status_t own_create(ferry_group_t *group, const void *config, void **state_p,
                                 ferry_error_t *err) {
    (void)group;
    (void)err;
    memcpy(state_p, &config, sizeof config);
    return FERRY_OK;
}

static void own_close(void *state) {
    *(int *)state += 100;
}

/* Counts runs; every second one fails. */
static ferry_status_t own_run(void *state, const ferry_copy_list_t *list, void *batch,
                              ferry_copy_result_t *result_p, ferry_error_t *err) {
    int *runs = state;
    EXPECT(++*runs % 2 != 0);
    EXPECT(batch == NULL);
    result_p->bytes_received = list->nsends * 100 + list->nrecvs;
    return FERRY_OK;
}

static ferry_status_t own_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_copy_service_ops_t ops = {.size = sizeof ops,
                                    .name = "counting service",
                                    .needs_barrier = true,
                                    .create = own_create,
                                    .close = own_close,
                                    .run = own_run};
    int runs = 0;
    uint32_t value = 0;
    ferry_copy_service_t *service = NULL;
    ferry_view_t view = view_1d(&value, FERRY_U32, 1);
    GOOD(ferry_copy_service_create_on(&ops, ferry_world_group(world), &runs, &service, err));
    EXPECT(ferry_copy_service_needs_barrier(service));
    ferry_copy_result_t result = {0};
    ferry_error_t found = FERRY_ERROR_INIT;
    GOOD(ferry_copy_submit_send(service, &view, FERRY_DTYPE_NONE, 0, 1, err));
    GOOD(ferry_copy_submit_recv(service, &view, 0, 1, err));
    GOOD(ferry_copy_service_run(service, &result, err));
    EXPECT(result.bytes_received == 101);
    GOOD(ferry_copy_submit_recv(service, &view, 0, 1, err));
    EXPECT(ferry_copy_service_run(service, &result, &found) == FERRY_CHECK);
    GOOD(ferry_copy_service_run(service, &result, err)); /* what failed is not replayed */
    EXPECT(result.bytes_received == 0);
    ferry_kept_batch_t *batch = NULL;
    GOOD(ferry_copy_submit_recv(service, &view, 0, 1, err));
    GOOD(ferry_copy_service_keep(service, &batch, err));
    EXPECT(ferry_kept_batch_run(batch, &result, &found) == FERRY_CHECK);
    GOOD(ferry_kept_batch_start(batch, err));
    bool done = false;
    GOOD(ferry_kept_batch_test(batch, &done, err));
    EXPECT(done && runs == 5);
    ferry_kept_batch_destroy(batch);
    ferry_copy_service_close(service);
    EXPECT(runs == 105);
    ops.run = NULL;
    EXPECT(ferry_copy_service_create_on(&ops, ferry_world_group(world), &runs, &service, &found) ==
           FERRY_INVALID);
    return FERRY_OK;
}

static void test_own_table(void **state) {
    (void)state;
    run_well(AS_THREADS, 1, own_body, NULL, NULL);
}

int main(void) {
    (void)alarm(200);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),    cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_group),
        cmocka_unit_test(test_late),        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_tested_late), cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_own_table),   cmocka_unit_test(test_unprivileged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
