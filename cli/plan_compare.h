/* plan_compare.h - what two plans differ in. */
#ifndef CLI_PLAN_COMPARE_H
#define CLI_PLAN_COMPARE_H

#include <stdbool.h>

#include <ferry/plan.h>

enum { PLAN_COMPARE_SAMPLES = 6 }; /* the first few differences are kept, of each kind */

/* A tensor of one or both plans. */
typedef struct plan_tensor_pair {
    uint32_t a; /* ordinal, or UINT32_MAX where the plan does not have it */
    uint32_t b;
} plan_tensor_pair_t;

/* A transfer of one or both plans. */
typedef struct plan_transfer_pair {
    bool in_a;
    bool in_b;
    ferry_transfer_t a;
    ferry_transfer_t b;
} plan_transfer_pair_t;

typedef struct plan_compare {
    const ferry_plan_t *a;
    const ferry_plan_t *b;
    bool ranks_differ; /* whole plan or part, or parts of other ranks */
    bool flags_differ;
    bool hashes_differ;
    uint32_t hosts_differ;       /* ranks of both plans that lie on another host */
    plan_tensor_pair_t *tensors; /* all of both, in name order */
    size_t ntensors;
    uint64_t tensors_only_a;
    uint64_t tensors_only_b;
    uint64_t tensors_changed; /* shape, dtype or a layout */
    plan_tensor_pair_t tensor_samples[PLAN_COMPARE_SAMPLES];
    size_t ntensor_samples;
    uint64_t same; /* transfers; a is before, b is after */
    uint64_t changed;
    uint64_t removed;
    uint64_t added;
    plan_transfer_pair_t samples[PLAN_COMPARE_SAMPLES];
    size_t nsamples;
} plan_compare_t;

/* Both plans are borrowed. plan_compare_fini is due in any case. */
ferry_status_t plan_compare_init(plan_compare_t *compare, const ferry_plan_t *a,
                                 const ferry_plan_t *b, ferry_error_t *err);
void plan_compare_fini(plan_compare_t *compare);

bool plan_compare_equal(const plan_compare_t *compare);

/* What is different about a tensor that both have: "shape", "dtype", "source layout", "target layout",
 * or NULL. */
const char *plan_tensor_difference(const ferry_plan_tensor_t *a, const ferry_plan_tensor_t *b);

#endif
