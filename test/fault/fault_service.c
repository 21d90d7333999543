/* fault_service.c - a service whose memory runs out, and one whose ranks are killed.
 *
 * Memory: the n-th allocation of one rank fails, for n = 1, 2, ... until none is left to fail. All ranks
 * get the same error, the queues are empty, and the next run works.
 *
 * Death: one rank is killed at a random moment of a stream of runs. The others get one record that
 * names it, within two seconds, and the service says that it is broken. */
#include <pthread.h>
#include <stdatomic.h>

#include "multi/body.h"

#include <ferry/pipeline.h>
#include <ferry/service.h>

#include "support/soak.h"

/* --- the allocator ----------------------------------------------------------------------------- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static _Thread_local uint64_t counted;
static _Thread_local uint64_t fail_at; /* 0: never */

static bool fails(void) {
    return fail_at != 0 && ++counted == fail_at;
}

static void arm(uint64_t n) {
    counted = 0;
    fail_at = n;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}

/* --- memory runs out --------------------------------------------------------------------------- */

enum { RANKS = 3, COUNT = 500, ITEMS = 3 };

typedef struct trial {
    uint32_t paths;
    uint32_t armed; /* rank */
    bool at_create; /* else in submit and run */
    bool keep;
    bool send_slots; /* of a pipeline of one's own, instead of a service */
    pthread_barrier_t
        *gate; /* so that one rank's next failure finds no other in its last exchange */
} trial_t;

typedef struct tensors {
    uint32_t *source; /* ITEMS of COUNT each, in the arena; targets on the heap */
    uint32_t *target;
} tensors_t;

static ferry_status_t submit(ferry_copy_service_t *service, const tensors_t *tensors, uint32_t me,
                             uint32_t size, ferry_error_t *err) {
    for (uint32_t i = 0; i < ITEMS; i++) {
        ferry_view_t view;
        uint32_t to = (me + i) % size; /* itself, and the others */
        uint32_t from = (me + size - i % size) % size;
        GOOD(ferry_view_contiguous(tensors->source + i * COUNT, FERRY_U32, 1, &(uint64_t){COUNT},
                                   &view, err));
        GOOD(ferry_copy_submit_send(service, &view, FERRY_DTYPE_NONE, to, me * ITEMS + i, err));
        GOOD(ferry_view_contiguous(tensors->target + i * COUNT, FERRY_U32, 1, &(uint64_t){COUNT},
                                   &view, err));
        GOOD(ferry_copy_submit_recv(service, &view, from, from * ITEMS + i, err));
    }
    return FERRY_OK;
}

static void fill(const tensors_t *tensors, uint32_t me, uint32_t salt) {
    for (uint32_t i = 0; i < ITEMS * COUNT; i++) {
        tensors->source[i] = me * 1000000 + salt * 10000 + i;
        tensors->target[i] = 0;
    }
}

static ferry_status_t check(const tensors_t *tensors, uint32_t me, uint32_t size, uint32_t salt,
                            ferry_error_t *err) {
    for (uint32_t i = 0; i < ITEMS * COUNT; i++) {
        uint32_t from = (me + size - i / COUNT % size) % size;
        EXPECT(tensors->target[i] == from * 1000000 + salt * 10000 + i);
    }
    return FERRY_OK;
}

/* What all ranks must agree on: nothing went wrong, or one thing did. */
static ferry_status_t agree(ferry_world_t *world, ferry_status_t status, const ferry_error_t *found,
                            bool *failed_p, ferry_error_t *err) {
    if (ferry_world_check(world, NULL) != FERRY_OK) {
        GOOD(ferry_world_recover(world, err));
    }
    struct answer {
        ferry_status_t status;
        char text[FERRY_ERROR_TEXT_MAX];
    } mine, all[RANKS];
    memset(&mine, 0, sizeof mine);
    mine.status = status;
    if (status != FERRY_OK) {
        memcpy(mine.text, found->text, sizeof mine.text);
    }
    GOOD(ferry_group_allgather(ferry_world_group(world), &mine, sizeof mine, all, err));
    for (uint32_t i = 0; i < RANKS; i++) {
        EXPECT(all[i].status == all[0].status && strcmp(all[i].text, all[0].text) == 0);
    }
    EXPECT(status == FERRY_OK || status == FERRY_NOMEM);
    *failed_p = status != FERRY_OK;
    return FERRY_OK;
}

static ferry_status_t one_try(ferry_copy_service_t *service, const trial_t *trial,
                              ferry_error_t *found) {
    ferry_kept_batch_t *batch = NULL;
    ferry_status_t status = trial->keep ? ferry_copy_service_keep(service, &batch, found)
                                        : ferry_copy_service_run(service, NULL, found);
    arm(0);
    if (status == FERRY_OK && trial->keep) {
        status = ferry_kept_batch_run(batch, NULL, found);
    }
    ferry_kept_batch_destroy(batch);
    return status;
}

static ferry_status_t runs_body(ferry_world_t *world, const trial_t *trial,
                                const tensors_t *tensors, ferry_error_t *err) {
    uint32_t me = ferry_world_rank(world);
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = trial->paths;
    params.slot_bytes = 512;
    bool failed = true;
    for (uint32_t n = 1; failed; n++) {
        ferry_copy_service_t *service = NULL;
        ferry_error_t found = FERRY_ERROR_INIT;
        EXPECT(n < 500);
        arm(trial->at_create && me == trial->armed ? n : 0);
        ferry_status_t status =
            ferry_copy_service_create(ferry_world_group(world), &params, &service, &found);
        arm(0);
        if (status == FERRY_OK && !trial->at_create) {
            GOOD(submit(service, tensors, me, RANKS, err));
            fill(tensors, me, n);
            (void)pthread_barrier_wait(trial->gate);
            arm(me == trial->armed ? n : 0);
            status = one_try(service, trial, &found);
        }
        GOOD(agree(world, status, &found, &failed, err));
        if (service != NULL) { /* the next run works, with nothing left of the last */
            fill(tensors, me, n + 1);
            GOOD(ferry_group_barrier(ferry_world_group(world), err));
            GOOD(submit(service, tensors, me, RANKS, err));
            GOOD(ferry_copy_service_run(service, NULL, err));
            GOOD(check(tensors, me, RANKS, n + 1, err));
        }
        ferry_copy_service_close(service);
        (void)pthread_barrier_wait(trial->gate);
    }
    return FERRY_OK;
}

static ferry_status_t slots_body(ferry_world_t *world, const trial_t *trial, ferry_error_t *err) {
    uint32_t me = ferry_world_rank(world);
    ferry_slots_params_t params = FERRY_SLOTS_PARAMS_INIT;
    params.send_slots = true;
    bool failed = true;
    for (uint32_t n = 1; failed; n++) {
        ferry_slots_t *slots = NULL;
        ferry_error_t found = FERRY_ERROR_INIT;
        EXPECT(n < 100);
        arm(me == trial->armed ? n : 0);
        ferry_status_t status =
            ferry_slots_create(ferry_world_group(world), &params, &slots, &found);
        arm(0);
        GOOD(agree(world, status, &found, &failed, err));
        EXPECT(failed == (slots == NULL));
        ferry_slots_destroy(slots);
        (void)pthread_barrier_wait(trial->gate);
    }
    return FERRY_OK;
}

static ferry_status_t memory_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const trial_t *trial = context;
    if (trial->send_slots) {
        return slots_body(world, trial, err);
    }
    tensors_t tensors;
    void *memory = NULL;
    GOOD(ferry_mem_alloc(world, ITEMS * COUNT * sizeof(uint32_t), &memory, err));
    tensors.source = memory;
    tensors.target = malloc(ITEMS * COUNT * sizeof(uint32_t));
    ferry_status_t status = runs_body(world, trial, &tensors, err);
    free(tensors.target);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    trial_t trial = {.send_slots = true, .gate = memory};
    pthread_barrierattr_t shared;
    (void)pthread_barrierattr_init(&shared);
    (void)pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_barrier_init(trial.gate, &shared, RANKS), 0);
    run_well(AS_THREADS, RANKS, memory_body, &trial, NULL);
    trial.send_slots = false;
    for (int which = 0; which < 3; which++) {
        trial.paths = which == 1 ? FERRY_PATH_PIPELINE : 0;
        trial.keep = which == 2;
        for (int at_create = 0; at_create < 2; at_create++) {
            trial.at_create = at_create == 1;
            trial.armed = (uint32_t)which;
            run_well(which == 0 ? AS_PROCESSES : AS_THREADS, RANKS, memory_body, &trial, NULL);
        }
    }
    (void)pthread_barrier_destroy(trial.gate);
    (void)pthread_barrierattr_destroy(&shared);
    (void)munmap(memory, 4096);
}

/* --- death ------------------------------------------------------------------------------------- */

typedef struct doom {
    uint32_t victim;
    uint32_t paths;
    bool kept;
    bool tested; /* the survivors only test */
    useconds_t after_us;
    double *killed_at; /* shared */
} doom_t;

/* The dead rank is whom somebody waited for; or, where nobody did, where it happened. */
static bool names(const ferry_error_t *error, uint32_t victim) {
    char text[32];
    (void)snprintf(text, sizeof text, "rank %u is dead", victim);
    bool right = error->peer == victim || (error->peer == FERRY_RANK_NONE && error->rank == victim);
    return right && strstr(error->text, text) != NULL;
}

static void *strike(void *argument) {
    const doom_t *doom = argument;
    (void)usleep(doom->after_us);
    *doom->killed_at = body_seconds();
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static ferry_status_t stream(ferry_copy_service_t *service, const doom_t *doom,
                             const tensors_t *tensors, uint32_t me, ferry_error_t *found) {
    ferry_kept_batch_t *batch = NULL;
    ferry_status_t status = FERRY_OK;
    for (uint32_t n = 0; status == FERRY_OK; n++) {
        if (batch == NULL) {
            status = submit(service, tensors, me, RANKS, found);
        }
        if (status == FERRY_OK && doom->kept && batch == NULL) {
            status = ferry_copy_service_keep(service, &batch, found);
        }
        if (status == FERRY_OK && !doom->kept) {
            status = ferry_copy_service_run(service, NULL, found);
        } else if (status == FERRY_OK && !doom->tested) {
            status = ferry_kept_batch_run(batch, NULL, found);
        } else if (status == FERRY_OK) {
            bool done = false;
            status = ferry_kept_batch_start(batch, found);
            while (status == FERRY_OK && !done) {
                status = ferry_kept_batch_test(batch, &done, found);
            }
        }
    }
    ferry_kept_batch_destroy(batch);
    return status;
}

static ferry_status_t doom_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    doom_t *doom = context;
    uint32_t me = ferry_world_rank(world);
    tensors_t tensors;
    void *memory = NULL;
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = doom->paths;
    params.slot_bytes = 256;
    params.read_run_bytes = 256;
    ferry_copy_service_t *service = NULL;
    size_t bytes = ITEMS * COUNT * sizeof(uint32_t);
    GOOD(ferry_mem_alloc(world, bytes, &memory, err));
    /* What is to be read across processes must not be mapped. */
    bool own = doom->paths == FERRY_PATH_READ;
    tensors.source = own ? malloc(bytes) : memory;
    tensors.target = malloc(bytes);
    pthread_t thread;
    if (me == doom->victim) {
        EXPECT(pthread_create(&thread, NULL, strike, doom) == 0);
    }
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status =
        ferry_copy_service_create(ferry_world_group(world), &params, &service, &found);
    if (status == FERRY_OK) {
        status = stream(service, doom, &tensors, me, &found);
    }
    double waited = body_seconds() - *doom->killed_at;
    EXPECT(status == FERRY_DEAD && names(&found, doom->victim));
    EXPECT(waited < 2);
    if (service != NULL) {
        ferry_error_t why = FERRY_ERROR_INIT;
        EXPECT(ferry_copy_service_check(service, &why) == FERRY_DEAD && names(&why, doom->victim));
        EXPECT(ferry_world_recover(world, &why) != FERRY_OK);
        EXPECT(ferry_copy_service_run(service, NULL, &why) != FERRY_OK);
    }
    ferry_copy_service_close(service);
    free(own ? tensors.source : NULL);
    free(tensors.target);
    return FERRY_OK;
}

static void test_death(void **state) {
    (void)state;
    double *killed_at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(killed_at != MAP_FAILED);
    uint64_t random = 99;
    long count = soak_count(20, 500);
    for (long i = 0; i < count; i++) {
        body_traces_t traces = body_look();
        doom_t doom = {.victim = (uint32_t)body_below(&random, RANKS),
                       .paths = i % 3 == 0   ? 0
                                : i % 3 == 1 ? FERRY_PATH_PIPELINE
                                             : FERRY_PATH_READ,
                       .kept = body_below(&random, 2) == 0,
                       .tested = body_below(&random, 3) == 0,
                       .after_us = (useconds_t)body_below(&random, 60000),
                       .killed_at = killed_at};
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_rank_result_t results[RANKS];
        ferry_status_t status =
            ferry_world_run_processes(RANKS, doom_body, &doom, NULL, results, &err);
        if (status != FERRY_DEAD || !names(&err, doom.victim)) {
            fail_msg("death %ld of rank %u: %s", i, doom.victim, err.text);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (rank == doom.victim) {
                assert_int_equal(results[rank].signal, SIGKILL);
            } else if (results[rank].status != FERRY_OK) {
                fail_msg("death %ld, rank %u: %s", i, rank, results[rank].error.text);
            }
        }
        body_expect_no_trace(traces);
    }
    (void)munmap(killed_at, 4096);
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
