/* reshard_ways.c - one case in many ways. */
#include "oracle/reshard_ways.h"

#include <stdio.h>

const rsr_way_t rsr_ways[] = {
    {"direct", .paths = FERRY_PATH_DIRECT},
    {"pipeline", .paths = FERRY_PATH_PIPELINE, .slot_bytes = 512},
    {"read", .paths = FERRY_PATH_READ, .source_memory = RSR_HEAP, .target_memory = RSR_HEAP},
    {"odd views, parts", .source_memory = RSR_EITHER, .target_memory = RSR_EITHER,
     .odd_views = true, .parts = true, .drive = RSR_EACH},
    {"checked buckets", .source_memory = RSR_EITHER, .buckets = FERRY_BUCKETS_ALWAYS, .check = true,
     .drive = RSR_TEST},
    {"small checked buckets, pipeline", .paths = FERRY_PATH_PIPELINE, .slot_bytes = 4096,
     .odd_views = true, .parts = true, .buckets = FERRY_BUCKETS_ALWAYS, .bucket_bytes = 256,
     .check = true},
    {"budget", .paths = FERRY_PATH_PIPELINE, .slot_bytes = 1024, .target_memory = RSR_HEAP,
     .budget_bytes = 256 << 10, .drive = RSR_WAIT},
    {"flip", .source_memory = RSR_EITHER, .commit = FERRY_COMMIT_FLIP, .drive = RSR_EACH},
    {"flip, checked, sender quantises", .odd_views = true, .check = true,
     .commit = FERRY_COMMIT_FLIP, .convert = FERRY_MX_ON_SENDER},
    {"gate", .target_memory = RSR_EITHER, .parts = true, .commit = FERRY_COMMIT_GATE},
    {"gate, buckets, odd views, sender quantises", .paths = FERRY_PATH_READ,
     .source_memory = RSR_HEAP, .odd_views = true, .buckets = FERRY_BUCKETS_ALWAYS,
     .commit = FERRY_COMMIT_GATE, .drive = RSR_EACH, .convert = FERRY_MX_ON_SENDER},
};

const size_t rsr_nways = sizeof rsr_ways / sizeof *rsr_ways;

void rsr_way_apply(const rsr_way_t *way, rsr_setup_t *setup) {
    setup->service.paths = way->paths;
    setup->service.slot_bytes = way->slot_bytes;
    setup->service.read_run_bytes = 1;
    setup->source_memory = way->source_memory;
    setup->target_memory = way->target_memory;
    setup->odd_views = way->odd_views;
    setup->parts = way->parts;
    setup->options.buckets = way->buckets;
    setup->options.bucket_bytes = way->bucket_bytes;
    setup->options.budget_bytes = way->budget_bytes;
    setup->options.check = way->check;
    setup->commit = way->commit;
    setup->drive = way->drive;
    setup->convert = way->convert;
}

ferry_status_t rsr_tour_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const rsr_tour_t *tour = context;
    size_t end = tour->count == 0 ? rsr_nways : tour->first + tour->count;
    for (size_t i = tour->first; i < end; i++) {
        rsr_setup_t setup = RSR_SETUP_INIT(tour->c, tour->seed + i);
        setup.rounds = tour->rounds;
        rsr_way_apply(&rsr_ways[i], &setup);
        ferry_status_t status = rsr_run(world, &setup, err);
        if (status != FERRY_OK) {
            (void)fprintf(stderr, "rank %u: way \"%s\", tensor %s: %s\n", ferry_world_rank(world),
                          rsr_ways[i].name, tour->c->tensors[0].name, err->text);
            return status;
        }
    }
    return FERRY_OK;
}
