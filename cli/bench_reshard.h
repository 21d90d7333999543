/* bench_reshard.h - `ferry bench reshard`: whole models from one layout to another, on ranks that are
 * processes.
 *
 *   case (what is asked for) -> model (its tensors, both sides) -> job -> board (stamps) -> figures
 *
 * Every rank plans its part, fills its shards, prepares a session and runs it round after round. Between
 * the rounds rank 0 copies the same regions in the best way that this machine knows (bench/limit.h). In
 * the end every element of every target is looked at.
 *
 * Ownership: a model owns tensors and layouts; a board is made before the ranks are and shared with them. */
#ifndef CLI_BENCH_RESHARD_H
#define CLI_BENCH_RESHARD_H

#include <ferry/reshard.h>

#include "bench_figures.h"
#include "json.h"
#include "plan_input.h"

/* ---- what is asked for ------------------------------------------------------------------------- */

typedef enum reshard_mx { RESHARD_MX_NONE, RESHARD_MX_RECEIVER, RESHARD_MX_SENDER } reshard_mx_t;

/* How much of a model; 0: not said, as much as fits. */
typedef struct reshard_scale {
    uint32_t layers;
    uint32_t experts;
    double part; /* of the bytes; layers and experts are 0 then */
} reshard_scale_t;

typedef struct reshard_case {
    const char *name;
    const char *model; /* NULL: many tensors of 64 bytes between two ranks */
    const char *from;
    const char *to;
    const char *only; /* tensors with this in their names; NULL: all */
    reshard_scale_t scale;
    uint64_t budget_bytes; /* 0: none */
    ferry_dtype_t dtype;
    ferry_dtype_t to_dtype;
    reshard_mx_t mx; /* which 2-D tensors arrive quantised: none, or all */
    ferry_mx_layout_t mx_layout;
    ferry_commit_mode_t commit; /* 0: none */
    bool disjoint;
    bool check;
} reshard_case_t;

/* The standard cases, in their order; NULL after the last. */
const reshard_case_t *reshard_standard(size_t index);

enum { RESHARD_CASES_MAX = 16 };

/* What the command line asks for: standard cases, or one with --model. */
ferry_status_t reshard_read_cases(const cli_args_t *args, reshard_case_t cases_p[RESHARD_CASES_MAX],
                                  size_t *count_p, ferry_error_t *err);

/* ---- its tensors ------------------------------------------------------------------------------- */

typedef struct reshard_model {
    plan_side_t sides[BENCH_SIDES];       /* all tensors of the model */
    ferry_tensor_t *tensors[BENCH_SIDES]; /* those of the case, in name order: index = ordinal */
    size_t count;
    uint32_t ranks;
    uint32_t layers; /* that are left, and that there are; 0: it has none. So the experts */
    uint32_t all_layers;
    uint32_t experts;
    uint32_t all_experts;
    uint64_t bytes_read; /* out of sources and into targets, by all ranks in one run */
    uint64_t bytes_written;
    uint64_t memory_bytes; /* about what all ranks take together */
    char *names;           /* of the small tensors */
    ferry_layout_t *layouts[2];
} reshard_model_t;

/* Takes what fits into the machine's memory where the case does not say how much. FERRY_NOMEM when what
 * it says does not fit. reshard_model_fini is due in any case. */
ferry_status_t reshard_model_init(const reshard_case_t *asked, reshard_model_t *model_p,
                                  ferry_error_t *err);
void reshard_model_fini(reshard_model_t *model);

/* Does the tensor arrive quantised? */
bool reshard_is_mx(const reshard_case_t *asked, const ferry_tensor_t *tensor);

/* The plan of the case, whole (FERRY_RANK_NONE) or one rank's part. */
ferry_status_t reshard_plan(const reshard_model_t *model, uint32_t rank, ferry_plan_t **plan_p,
                            ferry_error_t *err);

/* ---- running it -------------------------------------------------------------------------------- */

/* What happens once, in this order; rounds come between WARM and CHECK. */
typedef enum reshard_step {
    RESHARD_FILL,
    RESHARD_PLAN,
    RESHARD_PREPARE,
    RESHARD_COLD,
    RESHARD_TUNE,
    RESHARD_WARM,
    RESHARD_CHECK,
    RESHARD_STEPS
} reshard_step_t;

typedef struct reshard_lane {
    bench_stamp_t steps[RESHARD_STEPS];
    bench_stamp_t rounds[BENCH_ROUNDS_MAX];
    double latency_s[BENCH_ROUNDS_MAX]; /* small tensors: the median run of each round */
    double phases[BENCH_ROUNDS_MAX][FERRY_PHASE_COUNT];
    ferry_reshard_result_t result; /* of the last round */
} reshard_lane_t;

typedef struct reshard_board {
    reshard_lane_t ranks[BENCH_RANKS_MAX];
    bench_stamp_t limit[BENCH_ROUNDS_MAX]; /* rank 0 measures it */
    uint64_t limit_bytes;                  /* that the limit reads and writes in a round */
    char limit_name[BENCH_LIMIT_NAME_MAX];
} reshard_board_t;

typedef struct reshard_job {
    const reshard_case_t *asked;
    const reshard_model_t *model;
    uint32_t rounds;
    ferry_work_sharing_t sharing;
    const bench_progress_t *progress; /* told by rank 0 */
    reshard_board_t *board;
} reshard_job_t;

ferry_status_t reshard_board_create(reshard_board_t **board_p, ferry_error_t *err);
void reshard_board_destroy(reshard_board_t *board); /* NULL is fine */

/* Runs the case; its board then has the stamps. A wrong result is FERRY_CORRUPT. */
ferry_status_t reshard_run(const reshard_job_t *job, ferry_error_t *err);

/* ---- figures ----------------------------------------------------------------------------------- */

/* What a case of whole models has beside the figures of all cases. */
typedef struct reshard_facts {
    reshard_case_t asked; /* its texts are borrowed */
    size_t tensors;
    uint32_t layers, all_layers;
    uint32_t experts, all_experts;
    uint64_t bytes_read, bytes_written;
    double plan_s;
    double phases[FERRY_PHASE_COUNT]; /* of the busiest rank, median of the rounds */
    ferry_reshard_result_t all;       /* of all ranks together in one run */
} reshard_facts_t;

/* Reads the board of a case that has run. */
void reshard_figures_read(const reshard_job_t *job, reshard_facts_t *facts_p,
                          bench_figures_t *figures_p);

/* "move 61 ms, unpack 3 ms", and what the case is, in a line. */
void reshard_print_phases(const reshard_facts_t *facts, cli_output_t *out);
void reshard_print_case(const reshard_facts_t *facts, cli_output_t *out);
void reshard_put_json(const reshard_facts_t *facts, cli_json_t *json, struct json_object *object);

#endif
