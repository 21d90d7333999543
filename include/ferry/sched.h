/* sched.h - batches and conflict-free rounds.
 *
 * Items (source, target, bytes) come in, whoever made them. What is larger than a slot is split, what
 * is small is packed with others of the same pair into batches of at most a slot, and every batch is
 * given a round, so that in a round no rank sends twice and none receives twice (a rank may do both:
 * links are full duplex). The number of rounds is exactly the largest number of batches that one rank
 * sends or receives: fewer is impossible. The same items give the same schedule.
 *
 * Items whose source is their target need no schedule and are left out; items of 0 bytes too.
 *
 * Ownership: a schedule copies what it needs; what it returns is borrowed until it is destroyed.
 * Thread safety: a schedule is immutable; any number of threads may read it. */
#ifndef FERRY_SCHED_H
#define FERRY_SCHED_H

#include <ferry/status.h>

FERRY_BEGIN_DECLS

#define FERRY_SLOT_BYTES_DEFAULT (UINT64_C(256) << 20)
#define FERRY_BATCH_SEGMENTS_DEFAULT 10000

typedef struct ferry_schedule ferry_schedule_t;

typedef struct ferry_item {
    uint64_t id; /* the caller's; not looked at */
    uint64_t bytes;
    uint32_t source;
    uint32_t target;
} ferry_item_t;

typedef struct ferry_schedule_params {
    size_t size;           /* sizeof(ferry_schedule_params_t) */
    uint64_t slot_bytes;   /* 0: FERRY_SLOT_BYTES_DEFAULT */
    uint32_t max_segments; /* in one batch; 0: FERRY_BATCH_SEGMENTS_DEFAULT */
} ferry_schedule_params_t;

#define FERRY_SCHEDULE_PARAMS_INIT                                                                 \
    { sizeof(ferry_schedule_params_t), 0, 0 }

/* A stretch of one item inside a batch. The stretches of an item tile it, in offset order. */
typedef struct ferry_segment {
    uint64_t item; /* index in the items given */
    uint64_t offset;
    uint64_t bytes;
} ferry_segment_t;

typedef struct ferry_batch {
    uint32_t source;
    uint32_t target;
    uint32_t round;
    uint32_t nsegments;
    uint64_t first_segment;
    uint64_t bytes;
} ferry_batch_t;

/* params may be NULL for the defaults. */
FERRY_API ferry_status_t ferry_schedule_create(const ferry_item_t *items, size_t nitems,
                                               const ferry_schedule_params_t *params,
                                               ferry_schedule_t **schedule_p, ferry_error_t *err);
FERRY_API void ferry_schedule_destroy(ferry_schedule_t *schedule); /* NULL is fine */

FERRY_API uint32_t ferry_schedule_nrounds(const ferry_schedule_t *schedule);
/* The largest number of batches one rank sends or receives, counted apart from the rounds. */
FERRY_API uint32_t ferry_schedule_max_degree(const ferry_schedule_t *schedule);

/* All batches, ordered by round, then source; and the segments that they point into. */
FERRY_API const ferry_batch_t *ferry_schedule_batches(const ferry_schedule_t *schedule,
                                                      size_t *count_p);
FERRY_API const ferry_segment_t *ferry_schedule_segments(const ferry_schedule_t *schedule,
                                                         size_t *count_p);
/* The batches of one round (round < nrounds). */
FERRY_API const ferry_batch_t *ferry_schedule_round(const ferry_schedule_t *schedule,
                                                    uint32_t round, size_t *count_p);

FERRY_END_DECLS

#endif
