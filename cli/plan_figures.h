/* plan_figures.h - everything that is said about a plan, worked out once.
 *
 * The text and the JSON print these figures and compute none of their own.
 *
 * Ownership: plan_figures_fini frees; the plan is borrowed. */
#ifndef CLI_PLAN_FIGURES_H
#define CLI_PLAN_FIGURES_H

#include <ferry/plan.h>
#include <ferry/sched.h>

/* The steps whose wall time is told, in the order in which they happen. */
#define PLAN_PHASE_MAP(X)                                                                          \
    X(TENSORS, "tensors")                                                                          \
    X(READ, "read")                                                                                \
    X(PLAN, "plan")                                                                                \
    X(CHECK, "check")                                                                              \
    X(STATS, "stats")                                                                              \
    X(SCHEDULE, "schedule")

typedef enum plan_phase {
#define PLAN_PHASE_ENUM(name, text) PLAN_PHASE_##name,
    PLAN_PHASE_MAP(PLAN_PHASE_ENUM)
#undef PLAN_PHASE_ENUM
        PLAN_PHASE_COUNT
} plan_phase_t;

const char *plan_phase_name(plan_phase_t phase);

/* The ranks of one side. */
typedef struct plan_ranks {
    uint32_t count;
    uint32_t first;
    uint32_t last;
} plan_ranks_t;

typedef struct plan_figures {
    const ferry_plan_t *plan;
    uint32_t rank; /* whose part it is, or FERRY_RANK_NONE */
    uint64_t hash; /* of the input */
    ferry_plan_stats_t stats;
    ferry_port_t *ports;
    size_t nports;
    const ferry_port_t *own; /* the part's own port; NULL for a whole plan */
    plan_ranks_t sources;
    plan_ranks_t targets;
    uint32_t hosts; /* of the host map; 0: none */
    uint64_t wire_transfers;
    uint64_t send_transfers; /* these three: of a part's own rank */
    uint64_t recv_transfers;
    uint64_t local_transfers;
    uint64_t slot_bytes;
    uint32_t rounds;
    uint32_t max_degree;
    size_t batches;
    double phase_s[PLAN_PHASE_COUNT]; /* negative: did not happen */
    double seconds;                   /* since the start of main */
    uint64_t peak_rss_bytes;
} plan_figures_t;

/* No phase has happened yet. */
void plan_figures_init(plan_figures_t *figures);

/* Ends a phase that began at *since_p, and begins the next one. */
void plan_figures_phase(plan_figures_t *figures, plan_phase_t phase, double *since_p);

/* Statistics and schedule of a plan that has passed its check. start_s is when main began. */
ferry_status_t plan_figures_measure(plan_figures_t *figures, const ferry_plan_t *plan,
                                    uint64_t slot_bytes, double start_s, ferry_error_t *err);
void plan_figures_fini(plan_figures_t *figures);

#endif
