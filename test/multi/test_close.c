/* test_close.c - services that come and go: closed by each rank in its own time, in groups that share
 * ranks, they leave no shared memory behind but a page of the last one, and none disturbs another. */
#include "multi/body.h"

#include <ferry/service.h>

#include "support/soak.h"
#include "world/world.h"

enum { RANKS = 4, COUNT = 1000 };

/* Each member sends to the next one. */
static ferry_status_t pass_on(ferry_group_t *group, ferry_copy_service_t *service, uint32_t *source,
                              uint32_t *target, uint32_t salt, ferry_error_t *err) {
    uint32_t size = ferry_group_size(group);
    uint32_t me = ferry_group_rank(group);
    uint32_t last = (me + size - 1) % size;
    ferry_view_t views[2];
    for (uint32_t i = 0; i < COUNT; i++) {
        source[i] = ferry_group_world_rank(group, me) * 1000000 + salt + i;
    }
    GOOD(ferry_view_contiguous(source, FERRY_U32, 1, &(uint64_t){COUNT}, &views[0], err));
    GOOD(ferry_view_contiguous(target, FERRY_U32, 1, &(uint64_t){COUNT}, &views[1], err));
    GOOD(ferry_copy_submit_send(service, &views[0], FERRY_DTYPE_NONE, (me + 1) % size, me, err));
    GOOD(ferry_copy_submit_recv(service, &views[1], last, last, err));
    GOOD(ferry_copy_service_run(service, NULL, err));
    for (uint32_t i = 0; i < COUNT; i++) {
        EXPECT(target[i] == ferry_group_world_rank(group, last) * 1000000 + salt + i);
    }
    return FERRY_OK;
}

static void dawdle(uint64_t *random) {
    if (body_below(random, 3) == 0) {
        (void)usleep((useconds_t)body_below(random, 500));
    }
}

/* A service of some ranks, which ones all know from the shared dice. */
static ferry_status_t one_service(ferry_world_t *world, uint64_t *shared, uint64_t *own,
                                  uint32_t *source, uint32_t *target, ferry_error_t *err) {
    uint32_t ranks[RANKS];
    uint32_t count = 0;
    uint32_t first = (uint32_t)body_below(shared, RANKS);
    uint32_t size = 2 + (uint32_t)body_below(shared, RANKS - 1);
    uint32_t salt = (uint32_t)body_below(shared, 100000);
    uint32_t runs = 1 + (uint32_t)body_below(shared, 3);
    ferry_copy_service_params_t params = FERRY_COPY_SERVICE_PARAMS_INIT;
    params.paths = body_below(shared, 3) == 0 ? FERRY_PATH_PIPELINE : 0;
    for (uint32_t i = 0; i < size; i++) {
        ranks[count++] = (first + i) % RANKS;
    }
    ferry_group_t *group = NULL;
    ferry_copy_service_t *service = NULL;
    GOOD(ferry_group_create(world, ranks, count, &group, err));
    ferry_status_t status = FERRY_OK;
    if (ferry_group_rank(group) != FERRY_RANK_NONE) {
        status = ferry_copy_service_create(group, &params, &service, err);
        for (uint32_t i = 0; i < runs && status == FERRY_OK; i++) {
            dawdle(own);
            status = pass_on(group, service, source, target, salt + i, err);
        }
        dawdle(own);
        ferry_copy_service_close(service);
    }
    ferry_group_destroy(group);
    return status;
}

/* *context is the seed. */
static ferry_status_t close_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    uint64_t shared = *(const uint64_t *)context;
    uint64_t own = shared + 1 + ferry_world_rank(world);
    void *source = NULL;
    void *target = NULL;
    GOOD(ferry_mem_alloc(world, COUNT * sizeof(uint32_t), &source, err));
    GOOD(ferry_mem_alloc(world, COUNT * sizeof(uint32_t), &target, err));
    size_t pieces = world->npieces;
    for (uint32_t round = 0; round < 20; round++) {
        for (int i = 0; i < 5; i++) {
            GOOD(one_service(world, &shared, &own, source, target, err));
        }
        if (round % 5 == 4) { /* what was left by a failure goes, too */
            ferry_error_t mine = FERRY_ERROR_INIT;
            mine.status = FERRY_STOPPED;
            (void)ferry_group_barrier(ferry_world_group(world),
                                      NULL); /* or the failure of another */
            EXPECT(ferry_world_fail(world, &mine, NULL) == FERRY_STOPPED);
            GOOD(ferry_world_recover(world, err));
        }
        /* All have closed theirs: the next one of this rank takes the rest along. */
        GOOD(ferry_group_barrier(ferry_world_group(world), err));
        ferry_copy_service_t *service = NULL;
        GOOD(ferry_copy_service_create(ferry_world_group(world), NULL, &service, err));
        EXPECT(world->npieces == pieces + 1);
        ferry_copy_service_close(service);
        EXPECT(world->npieces <= pieces + 1);
    }
    return FERRY_OK;
}

static void test_close(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)soak_count(2, 100); seed++) {
        for (int kind = 0; kind < BODY_KINDS; kind++) {
            body_traces_t before = body_look();
            print_message("seed %lu\n", (unsigned long)seed);
            run_well((body_kind_t)kind, RANKS, close_body, &seed, NULL);
            body_expect_no_trace(before);
        }
    }
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
