/* reshard_ways.h - the ways in which every case is run: paths, memory, buckets, budgets, commits, driving. */
#ifndef FERRY_TEST_RESHARD_WAYS_H
#define FERRY_TEST_RESHARD_WAYS_H

#include "oracle/reshard_run.h"

typedef struct rsr_way {
    const char *name;
    uint32_t paths; /* of the service */
    uint64_t slot_bytes;
    rsr_memory_t source_memory;
    rsr_memory_t target_memory;
    bool odd_views;
    bool parts;
    uint32_t buckets;
    uint64_t bucket_bytes;
    uint64_t budget_bytes;
    bool check;
    uint32_t commit;
    rsr_drive_t drive;
    ferry_mx_convert_t convert;
} rsr_way_t;

extern const rsr_way_t rsr_ways[];
extern const size_t rsr_nways;

/* Fills in what the way decides. */
void rsr_way_apply(const rsr_way_t *way, rsr_setup_t *setup);

/* A ferry_rank_fn_t that runs one case in several ways in one world. */
typedef struct rsr_tour {
    const rso_case_t *c;
    uint64_t seed;
    size_t first; /* way */
    size_t count; /* 0: all the others */
    uint32_t rounds;
} rsr_tour_t;

ferry_status_t rsr_tour_body(ferry_world_t *world, void *context, ferry_error_t *err);

#endif
