/* collocated_swap.c - the same ranks, the same memory, another layout.
 *
 * Four ranks train and serve in turn. While they train, each holds 64 rows of a 256 x 256 matrix; while they
 * serve, 64 columns of it. There is memory for one of the two only: source and target are the same bytes.
 * Under a gate that works: a run stages what it receives, and copies it in only when all ranks have all of
 * it. Whoever reads meanwhile acquires a version first, and is held off while the bytes change.
 *
 * Two sessions share the gate: one leads from rows to columns, the other back.
 *
 *     cc collocated_swap.c -lferry && ./a.out */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/mem.h>
#include <ferry/reshard.h>

enum { RANKS = 4, N = 256, PART = N / RANKS, TURNS = 3 };

#define NAME "weight"

static const uint64_t shape[] = {N, N};

/* As training and as serving see this rank's memory. */
enum { BY_ROWS, BY_COLUMNS, FORMS };
static const uint64_t local[FORMS][2] = {{PART, N}, {N, PART}};
static const char *const layout_texts[FORMS] = {"4:S0", "4:S1"};

typedef struct rank {
    ferry_world_t *world;
    float *values; /* PART * N of them, in one form or the other */
    ferry_bound_t bound[FORMS];
    ferry_layout_t *layouts[FORMS];
    ferry_plan_t *plans[FORMS]; /* from that form to the other */
    ferry_copy_service_t *service;
    ferry_commit_t *gate;
    ferry_session_t *sessions[FORMS];
} rank_t;

static float weight(uint64_t turn, uint64_t row, uint64_t col) {
    return (float)(turn * 100000 + row * N + col);
}

static float expected(const rank_t *me, int form, uint64_t turn, uint64_t i) {
    uint64_t row = i / local[form][1];
    uint64_t col = i % local[form][1];
    uint64_t first = (uint64_t)ferry_world_rank(me->world) * PART;
    return form == BY_ROWS ? weight(turn, first + row, col) : weight(turn, row, first + col);
}

/* --- preparing ---------------------------------------------------------------------------------- */

static ferry_status_t make_plan(rank_t *me, int from, ferry_error_t *err) {
    ferry_tensor_t source = {NAME, FERRY_F32, 2, shape, me->layouts[from]};
    ferry_tensor_t target = {NAME, FERRY_F32, 2, shape, me->layouts[1 - from]};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_PART;
    params.rank = ferry_world_rank(me->world);
    params.sources = &source;
    params.targets = &target;
    params.nsources = params.ntargets = 1;
    return ferry_plan_create(&params, &me->plans[from], err);
}

static ferry_status_t make_session(rank_t *me, int from, ferry_error_t *err) {
    ferry_reshard_options_t options = FERRY_RESHARD_OPTIONS_INIT;
    options.commit = me->gate;
    ferry_tensors_t sources = {&me->bound[from], 1};
    ferry_tensors_t targets = {&me->bound[1 - from], 1};
    return ferry_session_create(me->plans[from], sources, targets, me->service, NULL, &options,
                                &me->sessions[from], err);
}

static ferry_status_t prepare(rank_t *me, ferry_error_t *err) {
    ferry_group_t *everyone = ferry_world_group(me->world);
    void *memory = NULL;
    ferry_status_t status = ferry_mem_alloc(me->world, sizeof(float) * PART * N, &memory, err);
    me->values = memory;
    for (int form = 0; form < FORMS && status == FERRY_OK; form++) {
        me->bound[form].name = NAME;
        status =
            ferry_view_contiguous(memory, FERRY_F32, 2, local[form], &me->bound[form].view, err);
        if (status == FERRY_OK) {
            status = ferry_layout_parse(layout_texts[form], &me->layouts[form], err);
        }
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_create(everyone, NULL, &me->service, err);
    }
    if (status == FERRY_OK) {
        status = ferry_commit_create(everyone, FERRY_COMMIT_GATE, &me->gate, err);
    }
    for (int form = 0; form < FORMS && status == FERRY_OK; form++) {
        status = make_plan(me, form, err);
    }
    for (int form = 0; form < FORMS && status == FERRY_OK; form++) {
        status = make_session(me, form, err);
    }
    return status;
}

/* --- training and serving ----------------------------------------------------------------------- */

/* Reads as anyone would who does not know whether a run is under way. */
static ferry_status_t check(rank_t *me, int form, uint64_t turn, ferry_error_t *err) {
    ferry_hold_t hold;
    ferry_status_t status = ferry_commit_acquire(me->gate, &hold, err);
    if (status != FERRY_OK) {
        return status;
    }
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < (uint64_t)PART * N; i++) {
        wrong += me->values[i] != expected(me, form, turn, i);
    }
    ferry_commit_release(me->gate, &hold);
    if (ferry_world_rank(me->world) == 1 || wrong > 0) {
        (void)printf("version %llu on rank %u: %s %d to %d, from (0,0) here %g; %llu wrong\n",
                     (unsigned long long)hold.version, ferry_world_rank(me->world),
                     form == BY_ROWS ? "rows" : "columns", (int)ferry_world_rank(me->world) * PART,
                     (int)ferry_world_rank(me->world) * PART + PART - 1, (double)me->values[0],
                     (unsigned long long)wrong);
    }
    if (wrong > 0) {
        ferry_error_clear(err);
        return err->status = FERRY_CORRUPT;
    }
    return FERRY_OK;
}

static ferry_status_t take_turns(rank_t *me, ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (uint64_t turn = 1; turn <= TURNS && status == FERRY_OK; turn++) {
        for (uint64_t i = 0; i < (uint64_t)PART * N; i++) {
            me->values[i] = expected(me, BY_ROWS, turn, i); /* what training leaves */
        }
        for (int from = 0; from < FORMS && status == FERRY_OK; from++) {
            status = ferry_session_run(me->sessions[from], NULL, err);
            if (status == FERRY_OK) {
                status = check(me, 1 - from, turn, err);
            }
        }
    }
    return status;
}

static void release(rank_t *me) {
    for (int form = 0; form < FORMS; form++) {
        ferry_session_close(me->sessions[form]);
    }
    ferry_commit_destroy(me->gate);
    ferry_copy_service_close(me->service);
    for (int form = 0; form < FORMS; form++) {
        ferry_plan_destroy(me->plans[form]);
        ferry_layout_destroy(me->layouts[form]);
    }
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    rank_t me = {.world = world};
    ferry_status_t status = prepare(&me, err);
    if (status == FERRY_OK) {
        status = take_turns(&me, err);
    }
    release(&me);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(RANKS, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
