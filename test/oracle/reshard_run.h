/* reshard_run.h - a case of reshard_oracle.h on the ranks of a world.
 *
 * rsr_run is a whole session as one rank sees it: memory for its tensors (in the arena or on the heap,
 * plain or with odd strides, bytes around every view), a service, a plan, a commit, a quantiser where
 * tensors ask for one; then rounds with new values, and after each a look at every byte. The pieces
 * may be called one by one. All ranks of the world call them alike. */
#ifndef FERRY_TEST_RESHARD_RUN_H
#define FERRY_TEST_RESHARD_RUN_H

#include <ferry/ferry.h>

#include "oracle/reshard_oracle.h"

typedef enum rsr_memory {
    RSR_ARENA = 0,
    RSR_HEAP,
    RSR_EITHER, /* by tensor and rank */
} rsr_memory_t;

typedef enum rsr_drive {
    RSR_RUN = 0,
    RSR_WAIT, /* start, wait */
    RSR_TEST, /* start, test until it is done */
    RSR_EACH, /* every rank in its own way */
} rsr_drive_t;

typedef struct rsr_setup {
    const rso_case_t *c;
    uint64_t seed;
    uint32_t rounds; /* 0: two */
    ferry_copy_service_params_t service;
    ferry_reshard_options_t options; /* commit, wire and hooks are filled in */
    uint32_t commit;                 /* ferry_commit_mode_t; 0: none */
    rsr_memory_t source_memory;
    rsr_memory_t target_memory;
    bool odd_views; /* transposed, padded, reversed */
    bool parts;     /* every rank plans its own part */
    bool in_place;  /* a target begins where its source does */
    bool delays;    /* sources become ready late; hooks and ranks sleep now and then */
    rsr_drive_t drive;
    ferry_mx_convert_t convert;
    uint32_t nmembers; /* of the group that takes part; 0: the world */
    uint32_t members[8];
} rsr_setup_t;

#define RSR_SETUP_INIT(case_p, seed_value)                                                         \
    {                                                                                              \
        .c = (case_p), .seed = (seed_value), .service = FERRY_COPY_SERVICE_PARAMS_INIT,            \
        .options = FERRY_RESHARD_OPTIONS_INIT                                                      \
    }

/* Memory with a view in it and bytes around that must not change. */
typedef struct rsr_block {
    uint8_t *memory; /* NULL: this rank holds no such tensor */
    size_t bytes;
    bool arena;
    ferry_view_t view;
} rsr_block_t;

/* One tensor on this rank; [2] are the copies of a flip. */
typedef struct rsr_tensor {
    rsr_block_t source;
    rsr_block_t target[2];
    rsr_block_t data[2];
    rsr_block_t scales[2];
    uint32_t polls; /* of its ready event in this round */
} rsr_tensor_t;

typedef struct rsr {
    ferry_world_t *world;
    ferry_group_t *group;
    bool own_group;
    const rsr_setup_t *setup;
    uint32_t me; /* in the group, as the plan numbers ranks */
    uint32_t copies;
    uint32_t content[2]; /* the round whose values a copy holds, plus 1; 0: none yet */
    rsr_tensor_t *tensors;
    ferry_bound_t *bound; /* three lists of at most ntensors */
    ferry_tensors_t sources;
    ferry_tensors_t targets;
    ferry_tensors_t others;
    ferry_reshard_options_t options;
    ferry_copy_service_t *service;
    bool own_service;
    ferry_commit_t *commit;
    ferry_mxfp8_t *mxfp8;
    ferry_plan_t *plan;
    ferry_session_t *session;
    ferry_reshard_result_t result;
    uint64_t random;
    uint32_t refreshed;
    uint64_t refreshed_version;
    uint64_t progress_calls;
    uint64_t progress_bytes;
    uint64_t progress_total;
    bool progress_bad;
} rsr_t;

/* Everything but the session. `service`: NULL for one of its own. */
ferry_status_t rsr_open(rsr_t *r, ferry_world_t *world, const rsr_setup_t *setup,
                        ferry_copy_service_t *service, ferry_error_t *err);
ferry_status_t rsr_session(rsr_t *r, ferry_error_t *err);
/* The sources of a round; without a commit, targets become gaps. */
ferry_status_t rsr_fill(rsr_t *r, uint32_t round, ferry_error_t *err);
/* Drives one run, as the setup says. */
ferry_status_t rsr_drive(rsr_t *r, ferry_error_t *err);
/* After a good run of a round: every byte, and the result. */
ferry_status_t rsr_check(rsr_t *r, uint32_t round, ferry_error_t *err);
/* Every byte of the targets is as r->content says. */
ferry_status_t rsr_check_targets(rsr_t *r, ferry_error_t *err);
ferry_status_t rsr_check_sources(rsr_t *r, uint32_t round, ferry_error_t *err);
/* After success only: on a failure others may still be at this rank's memory. */
void rsr_close(rsr_t *r);

ferry_status_t rsr_run(ferry_world_t *world, const rsr_setup_t *setup, ferry_error_t *err);
/* The same as a ferry_rank_fn_t; context is the setup. */
ferry_status_t rsr_body(ferry_world_t *world, void *context, ferry_error_t *err);

#endif
