/* commit_model.h - weights under a commit, for the tests of it: small enough to be written in no time, large
 * enough to be caught half written.
 *
 * Each rank has its weights in shared memory and can see everybody's. Every word tells its version, its
 * rank and its place, so that a reader knows a mix when it sees one. */
#ifndef FERRY_TEST_MULTI_COMMIT_MODEL_H
#define FERRY_TEST_MULTI_COMMIT_MODEL_H

#include <stdatomic.h>

#include "multi/body.h"

#include <ferry/commit.h>

#include "reshard/commit.h"

enum { MODEL_WORDS = 256, MODEL_RANKS = 8 };

typedef struct weights {
    uint64_t copies[2][MODEL_WORDS];
    uint64_t staging[MODEL_WORDS];
    _Atomic uint32_t met;
} weights_t;

typedef struct model {
    ferry_world_t *world;
    ferry_group_t *group;
    ferry_commit_t *commit;
    uint32_t me; /* member */
    uint32_t size;
    weights_t *mine;
    weights_t *all[MODEL_RANKS]; /* by member */
} model_t;

static inline uint64_t model_value(uint64_t version, uint32_t member, uint32_t word) {
    return version << 32 | (uint64_t)member << 16 | word;
}

static inline void model_fill(uint64_t *words, uint64_t version, uint32_t member) {
    for (uint32_t i = 0; i < MODEL_WORDS; i++) {
        words[i] = model_value(version, member, i);
    }
}

static inline bool model_is(const uint64_t *words, uint64_t version, uint32_t member) {
    bool same = true;
    for (uint32_t i = 0; i < MODEL_WORDS; i++) {
        same = same && words[i] == model_value(version, member, i);
    }
    return same;
}

/* Collective. The world's end gives the memory back. */
static inline ferry_status_t model_open(model_t *model, ferry_group_t *group,
                                        ferry_commit_mode_t mode, ferry_error_t *err) {
    ferry_mem_key_t keys[MODEL_RANKS];
    ferry_mem_key_t key;
    void *memory = NULL;
    memset(model, 0, sizeof *model);
    model->world = ferry_group_world(group);
    model->group = group;
    model->me = ferry_group_rank(group);
    model->size = ferry_group_size(group);
    GOOD(ferry_mem_alloc(model->world, sizeof(weights_t), &memory, err));
    model->mine = memory;
    model_fill(model->mine->copies[0], 0, model->me);
    GOOD(ferry_mem_register(model->world, memory, sizeof(weights_t), &key, err));
    GOOD(ferry_group_allgather(group, &key, sizeof key, keys, err));
    for (uint32_t member = 0; member < model->size; member++) {
        GOOD(ferry_mem_map(model->world, &keys[member], &memory, err));
        model->all[member] = memory;
    }
    return ferry_commit_create(group, mode, &model->commit, err);
}

/* A barrier that a failure of the world does not disturb, for ranks that live. */
static inline void model_meet(model_t *model) {
    uint32_t number = atomic_fetch_add(&model->mine->met, 1) + 1;
    for (uint32_t member = 0; member < model->size; member++) {
        while (atomic_load(&model->all[member]->met) < number) {
            (void)usleep(50);
        }
    }
}

/* What a try does between begin and vote, and between vote and finish. */
static inline void model_write(model_t *model, uint64_t version) {
    bool flip = ferry_commit_mode(model->commit) == FERRY_COMMIT_FLIP;
    uint32_t target = fy_commit_target(model->commit);
    model_fill(flip ? model->mine->copies[target] : model->mine->staging, version, model->me);
}

static inline void model_copy_in(model_t *model) {
    if (ferry_commit_mode(model->commit) == FERRY_COMMIT_GATE) {
        memcpy(model->mine->copies[0], model->mine->staging, sizeof model->mine->staging);
    }
}

typedef ferry_status_t (*model_step_t)(ferry_commit_t *commit, bool wait, bool *done_p,
                                       ferry_error_t *err);

/* One step to its end, waiting or by asking again and again. */
static inline ferry_status_t model_step(model_t *model, model_step_t step, bool wait,
                                        ferry_error_t *err) {
    bool done = false;
    while (!done) {
        GOOD(step(model->commit, wait, &done, err));
        EXPECT(done || !wait);
        if (!done) {
            (void)usleep(20);
        }
    }
    return FERRY_OK;
}

/* A whole try, which must bring the next version. */
static inline ferry_status_t model_commit(model_t *model, bool wait, ferry_error_t *err) {
    uint64_t version = ferry_commit_version(model->commit) + 1;
    GOOD(model_step(model, fy_commit_begin, wait, err));
    model_write(model, version);
    GOOD(model_step(model, fy_commit_vote, wait, err));
    model_copy_in(model);
    GOOD(model_step(model, fy_commit_finish, wait, err));
    EXPECT(ferry_commit_version(model->commit) == version);
    return FERRY_OK;
}

/* Does a member's part fit the hold? */
static inline bool model_holds(const model_t *model, const ferry_hold_t *hold, uint32_t member) {
    return model_is(model->all[member]->copies[hold->copy], hold->version, member);
}

/* Acquires, looks at everybody's weights and releases. */
static inline ferry_status_t model_read(model_t *model, uint64_t *version_p, ferry_error_t *err) {
    ferry_hold_t hold;
    GOOD(ferry_commit_acquire(model->commit, &hold, err));
    bool right = true;
    for (uint32_t member = 0; member < model->size; member++) {
        right = right && model_holds(model, &hold, member);
    }
    ferry_commit_release(model->commit, &hold);
    EXPECT(right);
    *version_p = hold.version;
    return FERRY_OK;
}

#endif
