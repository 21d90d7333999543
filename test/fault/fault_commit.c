/* fault_commit.c - memory runs out while a commit is made: one error for all. Ranks are killed in the middle
 * of a try: whoever survives holds the same version, and a reader that looks all the time never sees a mix.
 *
 * Two ways to die. At a step: the commit is compiled into this program a second time (the linker then
 * leaves the library's own out) with a fault point before every touch of shared memory, and the writer's
 * n-th one kills, for n = 1, 2, ... until the whole try has none left: before the vote, between the vote and
 * its news, between the decision and its report, in the copying, before the gate opens. And at any time:
 * by a timer, in a stream of tries. Without a death, random delays at the fault points of readers and writers
 * bring about the orders that a quiet machine seldom has. The allocator is compiled in a second time, too. */
#include <pthread.h>
#include <stdatomic.h>

#include "multi/commit_model.h"

#include "support/soak.h"
#include "world/wait.h"

/* --- the n-th allocation -------------------------------------------------------------------------- */

static _Thread_local uint64_t allocations_left; /* 0: all succeed */

static bool fails(void) {
    return allocations_left > 0 && --allocations_left == 0;
}

static void *test_malloc_or_not(size_t size) {
    return fails() ? NULL : malloc(size);
}

static void *test_calloc_or_not(size_t count, size_t size) {
    return fails() ? NULL : calloc(count, size);
}

static void *test_realloc_or_not(void *old, size_t size) {
    return fails() ? NULL : realloc(old, size);
}

#define malloc test_malloc_or_not
#define calloc test_calloc_or_not
#define realloc test_realloc_or_not
#include "../../src/base/memory.c" // NOLINT(bugprone-suspicious-include)
#undef malloc
#undef calloc
#undef realloc

/* --- the n-th step -------------------------------------------------------------------------------- */

static _Thread_local uint64_t steps_left; /* 0: never */
static _Thread_local uint64_t dawdling;   /* state of a random number; 0: no delays */

static void step(void) {
    if (steps_left > 0 && --steps_left == 0) {
        (void)kill(getpid(), SIGKILL);
    }
    if (dawdling != 0 && body_below(&dawdling, 8) == 0) {
        (void)usleep((useconds_t)body_below(&dawdling, 300));
    }
}

/* As the standard has them, with a step before. */
#undef atomic_load
#undef atomic_store
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_compare_exchange_strong
#define IN_ORDER memory_order_seq_cst
#define atomic_load(place) (step(), atomic_load_explicit(place, IN_ORDER))
#define atomic_store(place, value) (step(), atomic_store_explicit(place, value, IN_ORDER))
#define atomic_fetch_add(place, more) (step(), atomic_fetch_add_explicit(place, more, IN_ORDER))
#define atomic_fetch_sub(place, less) (step(), atomic_fetch_sub_explicit(place, less, IN_ORDER))
#define atomic_compare_exchange_strong(place, expected_p, value)                                   \
    (step(), atomic_compare_exchange_strong_explicit(place, expected_p, value, IN_ORDER, IN_ORDER))
#define fy_counter_add(counter, more) (step(), fy_counter_add(counter, more))
#include "../../src/reshard/commit.c"     // NOLINT(bugprone-suspicious-include)
#include "../../src/reshard/commit_try.c" // NOLINT(bugprone-suspicious-include)

enum { RANKS = 3 };

/* --- delays --------------------------------------------------------------------------------------- */

typedef struct dawdler {
    model_t *model;
    uint64_t seed;
    ferry_status_t status;
    ferry_error_t error;
} dawdler_t;

static ferry_status_t dawdle(dawdler_t *dawdler, uint64_t rounds, ferry_error_t *err) {
    dawdling = dawdler->seed;
    for (uint64_t version = 0; version < rounds;) {
        GOOD(model_read(dawdler->model, &version, err));
    }
    return FERRY_OK;
}

static void *dawdler_main(void *argument) {
    dawdler_t *dawdler = argument;
    dawdler->status = dawdle(dawdler, (uint64_t)soak_count(100, 2000), &dawdler->error);
    return NULL;
}

/* Nothing is lost, mixed up or late. */
static ferry_status_t delays_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const ferry_commit_mode_t *mode = context;
    model_t model;
    pthread_t thread;
    GOOD(model_open(&model, ferry_world_group(world), *mode, err));
    dawdler_t dawdler = {.model = &model, .seed = 100 + model.me, .error = FERRY_ERROR_INIT};
    EXPECT(pthread_create(&thread, NULL, dawdler_main, &dawdler) == 0);
    long rounds = soak_count(100, 2000);
    ferry_status_t status = FERRY_OK;
    dawdling = 1 + model.me;
    for (long i = 0; i < rounds && status == FERRY_OK; i++) {
        status = model_commit(&model, body_below(&dawdling, 4) != 0, err);
    }
    dawdling = 0;
    if (status != FERRY_OK) {
        return status; /* the reader would wait for ever */
    }
    (void)pthread_join(thread, NULL);
    if (dawdler.status != FERRY_OK) {
        *err = dawdler.error;
        return dawdler.status;
    }
    GOOD(ferry_group_barrier(model.group, err));
    ferry_commit_destroy(model.commit);
    return FERRY_OK;
}

static void test_delays(void **state) {
    (void)state;
    ferry_world_params_t params = FERRY_WORLD_PARAMS_INIT;
    params.timeout_ms = 3000;
    for (int mode = FERRY_COMMIT_FLIP; mode <= FERRY_COMMIT_GATE; mode++) {
        ferry_commit_mode_t which = (ferry_commit_mode_t)mode;
        run_well(AS_PROCESSES, RANKS, delays_body, &which, &params);
    }
}

/* --- memory runs out ------------------------------------------------------------------------------ */

typedef struct shortage {
    uint32_t rank;
    pthread_barrier_t meeting; /* which a failed world does not disturb */
    ferry_error_t found[RANKS];
} shortage_t;

static ferry_status_t shortage_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    shortage_t *shortage = context;
    uint32_t me = ferry_world_rank(world);
    ferry_commit_t *commit = NULL;
    uint64_t n = 0;
    while (commit == NULL) {
        ferry_error_t *found = &shortage->found[me];
        *found = (ferry_error_t)FERRY_ERROR_INIT;
        allocations_left = me == shortage->rank ? ++n : 0;
        ferry_status_t status =
            ferry_commit_create(ferry_world_group(world), FERRY_COMMIT_GATE, &commit, found);
        allocations_left = 0;
        (void)pthread_barrier_wait(&shortage->meeting);
        EXPECT(n < 100 && (status == FERRY_NOMEM || status == FERRY_OK));
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            EXPECT(shortage->found[rank].status == status);
            EXPECT(strcmp(shortage->found[rank].text, found->text) == 0);
        }
        if (ferry_world_check(world, NULL) != FERRY_OK) {
            GOOD(ferry_world_recover(world, err));
        }
        (void)pthread_barrier_wait(&shortage->meeting);
    }
    EXPECT(me != shortage->rank || n > 2); /* some did fail */
    ferry_commit_destroy(commit);
    return FERRY_OK;
}

static void test_memory(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        shortage_t shortage = {.rank = rank};
        assert_int_equal(pthread_barrier_init(&shortage.meeting, NULL, RANKS), 0);
        run_well(AS_THREADS, RANKS, shortage_body, &shortage, NULL);
        (void)pthread_barrier_destroy(&shortage.meeting);
    }
}

/* --- a trial -------------------------------------------------------------------------------------- */

enum { NEVER = 0 };

/* What ranks leave for the test, dying or not. */
typedef struct report {
    _Atomic uint64_t seen;  /* the last version that was decided, as this rank was told */
    _Atomic uint64_t final; /* 1 + the version after all was settled */
    _Atomic uint64_t reads;
} report_t;

typedef struct board {
    report_t ranks[RANKS];
    _Atomic uint64_t struck_ns; /* when the victim was last known to live */
    _Atomic bool unharmed;      /* the victim got through the try */
} board_t;

typedef struct doom {
    ferry_commit_mode_t mode;
    bool victims[RANKS];
    uint64_t at_step;           /* of the second try; NEVER */
    useconds_t after_us[RANKS]; /* else */
    uint64_t seed;
    board_t *board; /* shared */
} doom_t;

typedef struct rank_state {
    model_t model;
    const doom_t *doom;
    uint64_t random;
    bool copied; /* in this try */
    _Atomic bool over;
    ferry_status_t read_status;
    ferry_error_t read_error;
} rank_state_t;

/* SIGKILL at some time from now, wherever this process then is. */
static void die_after(useconds_t microseconds) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {0, 1000 * ((long)microseconds + 1)}};
    timer_t timer;
    (void)timer_create(CLOCK_MONOTONIC, &event, &timer);
    (void)timer_settime(timer, 0, &when, NULL);
}

/* A rank that died while it copied in has nothing to show. Under flip even the dead rank's is whole. */
static ferry_status_t read_once(rank_state_t *state, uint64_t *version_p, ferry_error_t *err) {
    model_t *model = &state->model;
    ferry_hold_t hold;
    GOOD(ferry_commit_acquire(model->commit, &hold, err));
    bool right = true;
    for (uint32_t member = 0; member < RANKS; member++) {
        bool whole = model_holds(model, &hold, member);
        bool excused = model->commit->mode == FERRY_COMMIT_GATE && state->doom->victims[member] &&
                       ferry_world_rank_life(model->world, member) == FERRY_RANK_DEAD;
        right = right && (whole || excused);
    }
    ferry_commit_release(model->commit, &hold);
    EXPECT(right);
    *version_p = hold.version;
    return FERRY_OK;
}

static ferry_status_t read_on(rank_state_t *state, ferry_error_t *err) {
    uint64_t last = 0;
    report_t *report = &state->doom->board->ranks[state->model.me];
    while (!state->over) {
        uint64_t version = 0;
        GOOD(read_once(state, &version, err));
        EXPECT(version >= last);
        last = version;
        (void)atomic_fetch_add(&report->reads, 1);
        if (version % 3 == 0) {
            (void)usleep(50);
        }
    }
    return FERRY_OK;
}

static void *reader_main(void *argument) {
    rank_state_t *state = argument;
    state->read_status = read_on(state, &state->read_error);
    (void)atomic_fetch_add(&state->doom->board->ranks[state->model.me].reads, 1);
    return NULL;
}

static bool waits(rank_state_t *state) {
    return body_below(&state->random, 4) != 0;
}

static ferry_status_t one_try(rank_state_t *state, ferry_error_t *found) {
    model_t *model = &state->model;
    uint64_t version = ferry_commit_version(model->commit) + 1;
    state->copied = false;
    GOOD(model_step(model, fy_commit_begin, waits(state), found));
    model_write(model, version);
    GOOD(model_step(model, fy_commit_vote, waits(state), found));
    atomic_store(&state->doom->board->ranks[model->me].seen, version);
    step();
    model_copy_in(model);
    state->copied = true;
    step();
    return model_step(model, fy_commit_finish, waits(state), found);
}

/* Tries until something fails. */
static ferry_status_t stream(rank_state_t *state, ferry_error_t *found) {
    const doom_t *doom = state->doom;
    bool is_victim = doom->victims[state->model.me];
    if (is_victim && doom->at_step == NEVER) {
        die_after(doom->after_us[state->model.me]);
    }
    for (int i = 1;; i++) {
        steps_left = is_victim && i == 2 ? doom->at_step : NEVER;
        if (is_victim) {
            atomic_store(&doom->board->struck_ns, fy_clock_ns());
        }
        GOOD(one_try(state, found));
        if (is_victim && i == 2 && doom->at_step != NEVER) {
            atomic_store(&doom->board->unharmed, true);
            (void)kill(getpid(), SIGKILL);
        }
    }
}

/* What a session does after a failure. */
static ferry_status_t settle(rank_state_t *state, ferry_error_t *err) {
    model_t *model = &state->model;
    if (fy_commit_settle(model->commit) && model->commit->mode == FERRY_COMMIT_GATE &&
        model->commit->step != FY_STEP_NONE) {
        if (!state->copied) {
            model_copy_in(model);
        }
        GOOD(model_step(model, fy_commit_finish, true, err));
    }
    return FERRY_OK;
}

static ferry_status_t survive(rank_state_t *state, ferry_error_t *err) {
    model_t *model = &state->model;
    board_t *board = state->doom->board;
    ferry_error_t found = FERRY_ERROR_INIT;
    ferry_status_t status = stream(state, &found);
    EXPECT(status == FERRY_DEAD);
    EXPECT(state->doom->victims[found.peer != FERRY_RANK_NONE ? found.peer : found.rank]);
    GOOD(settle(state, err));
    double waited = (double)(fy_clock_ns() - atomic_load(&board->struck_ns)) / 1e9;
    EXPECT(waited < 3);
    uint64_t version = ferry_commit_version(model->commit);
    uint64_t read = 0;
    atomic_store(&board->ranks[model->me].final, version + 1);
    for (int i = 0; i < 20; i++) { /* readers go on, and it stays so */
        GOOD(read_once(state, &read, err));
        EXPECT(read == version && ferry_commit_version(model->commit) == version);
        (void)usleep(100);
    }
    bool done = false;
    EXPECT(fy_commit_begin(model->commit, true, &done, NULL) == FERRY_DEAD && !done);
    return FERRY_OK;
}

static ferry_status_t doom_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    rank_state_t state = {.doom = context, .read_error = FERRY_ERROR_INIT};
    pthread_t thread;
    GOOD(model_open(&state.model, ferry_world_group(world), state.doom->mode, err));
    state.random = state.doom->seed + state.model.me;
    EXPECT(pthread_create(&thread, NULL, reader_main, &state) == 0);
    while (atomic_load(&state.doom->board->ranks[state.model.me].reads) == 0) {
        (void)usleep(100);
    }
    model_meet(&state.model); /* nobody dies before all are ready */
    ferry_status_t status = survive(&state, err);
    state.over = true;
    (void)pthread_join(thread, NULL);
    if (state.doom->victims[state.model.me]) {
        body_sleep(5); /* another one died before, and this one is late for its own end */
    }
    GOOD(status);
    if (state.read_status != FERRY_OK) {
        *err = state.read_error;
        return state.read_status;
    }
    ferry_commit_destroy(state.model.commit);
    return FERRY_OK;
}

/* --- the verdict ------------------------------------------------------------------------------------ */

static board_t *make_board(void) {
    board_t *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    return board;
}

/* All survivors have one version, and what any rank was told is not taken back. Returns it. */
static uint64_t verdict(const doom_t *doom) {
    uint64_t final = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!doom->victims[rank]) {
            uint64_t its =
                atomic_load_explicit(&doom->board->ranks[rank].final, memory_order_acquire);
            assert_int_not_equal(its, 0);
            assert_true(final == 0 || its == final);
            final = its;
        }
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const report_t *report = &doom->board->ranks[rank];
        uint64_t seen = atomic_load_explicit(&report->seen, memory_order_acquire);
        assert_true(seen <= final - 1 && seen + 1 >= final - 1);
        assert_true(doom->victims[rank] ||
                    atomic_load_explicit(&report->reads, memory_order_acquire) > 0);
    }
    return final - 1;
}

static uint64_t run_trial(doom_t *doom, body_kind_t kind) {
    ferry_rank_result_t results[RANKS];
    ferry_error_t err = FERRY_ERROR_INIT;
    body_traces_t traces = body_look();
    memset(doom->board, 0, sizeof *doom->board);
    print_message("mode %d, seed %lu:", (int)doom->mode, (unsigned long)doom->seed);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (doom->victims[rank]) {
            print_message(" rank %u at step %lu or after %u us", rank, (unsigned long)doom->at_step,
                          doom->after_us[rank]);
        }
    }
    print_message("\n");
    ferry_status_t status = run_as(kind, RANKS, doom_body, doom, NULL, results, &err);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (!doom->victims[rank] && results[rank].status != FERRY_OK) {
            fail_msg("rank %u: %s", rank, results[rank].error.text);
        }
        assert_int_equal(results[rank].signal, doom->victims[rank] ? SIGKILL : 0);
    }
    assert_int_equal(status, FERRY_DEAD);
    body_expect_no_trace(traces);
    return verdict(doom);
}

/* Every step of a try is one rank's last. Some of these leave the old version and some the new one. */
static void test_steps(void **state) {
    (void)state;
    doom_t doom = {.board = make_board(), .seed = 5};
    for (int mode = FERRY_COMMIT_FLIP; mode <= FERRY_COMMIT_GATE; mode++) {
        long ended[2] = {0, 0};
        bool unharmed = false;
        doom.mode = (ferry_commit_mode_t)mode;
        for (uint64_t n = 1; !unharmed; n++) {
            uint32_t trials = (uint32_t)soak_count(1, RANKS);
            unharmed = true;
            for (uint32_t i = 0; i < trials; i++) {
                uint32_t victim = (uint32_t)((n + i) % RANKS);
                memset(doom.victims, 0, sizeof doom.victims);
                doom.victims[victim] = true;
                doom.at_step = n;
                doom.seed++;
                uint64_t version = run_trial(&doom, AS_PROCESSES);
                unharmed = unharmed && doom.board->unharmed;
                assert_true(version == 1 || version == 2);
                ended[version - 1] += doom.board->unharmed ? 0 : 1;
            }
            assert_true(n < 1000);
        }
        assert_true(ended[0] > 0 && ended[1] > 0);
    }
    (void)munmap(doom.board, sizeof *doom.board);
}

static void test_any_time(void **state) {
    (void)state;
    doom_t doom = {.board = make_board(), .at_step = NEVER};
    uint64_t random = 77;
    long count = soak_count(50, 500);
    for (long i = 0; i < count; i++) {
        doom.mode = i % 2 == 0 ? FERRY_COMMIT_FLIP : FERRY_COMMIT_GATE;
        memset(doom.victims, 0, sizeof doom.victims);
        for (uint64_t left = body_below(&random, 4) == 0 ? 2 : 1; left > 0; left--) {
            uint64_t victim = body_below(&random, RANKS); /* or the same again */
            doom.victims[victim] = true;
            doom.after_us[victim] = (useconds_t)body_below(&random, 30000);
        }
        doom.seed = body_random(&random);
        (void)run_trial(&doom, i % 5 == 4 ? AS_SOCKET : AS_PROCESSES);
    }
    (void)munmap(doom.board, sizeof *doom.board);
}

int main(void) {
    (void)alarm((unsigned)soak_count(200, 3000));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
