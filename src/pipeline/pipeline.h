/* pipeline.h - slots and runs, as the files of this floor and the services see them.
 *
 * A run is a machine that never waits unless told to: fy_pipeline_step does the next thing that can be
 * done. Deadlock is impossible as long as a rank that has to wait waits for the earliest thing on its
 * list (round by round, send before receive): each of these depends only on earlier ones. */
#ifndef FERRY_PIPELINE_PIPELINE_H
#define FERRY_PIPELINE_PIPELINE_H

#include <stdalign.h>

#include <ferry/mem.h>
#include <ferry/pipeline.h>

#include "world/wait.h"

/* In the receiver's shared memory. All counters count batches since the slots were made or reset. */
typedef struct fy_slot_flags {
    alignas(64) fy_counter_t unpacked;   /* written by the receiver: batches that it is done with */
    alignas(64) fy_counter_t arrived[2]; /* by the sender of a batch n: n + 1, in slot n % 2 */
} fy_slot_flags_t;

typedef struct fy_slot_peer {
    fy_slot_flags_t *flags;
    uint8_t *slots[2];
} fy_slot_peer_t;

struct ferry_slots {
    ferry_group_t *group;
    ferry_world_t *world;
    uint32_t generation; /* of the world, when the counters were last at 0 */
    uint64_t slot_bytes;
    uint64_t staging_bytes;
    void *memory; /* flags, receive slots, send slots */
    uint8_t *send[2];
    fy_slot_peer_t *peers; /* per member, this rank too */
    uint32_t *base;        /* per member: batches received in earlier runs */
};

typedef struct fy_pipeline {
    ferry_slots_t *slots;
    ferry_pipeline_params_t params;
    ferry_pipeline_hooks_t hooks;
    size_t pack; /* next round to look at, of each kind */
    size_t put;
    size_t recv;
    size_t move;
    uint32_t packed; /* batches, for the choice of the send slot */
    uint32_t sent;
    bool unpacking; /* an unpack was launched and has not been waited for */
} fy_pipeline_t;

/* Has the world recovered since the counters were at 0? Then ferry_slots_reset is due, on all ranks. */
bool fy_slots_stale(const ferry_slots_t *slots);
/* Sets this rank's counters and sums to 0; others must not be in a run. */
void fy_slots_clear(ferry_slots_t *slots);

/* Two calls of which the caller does what lies between: an allocation that gives this rank's key (or a
 * failure), and the making of slots from all keys, in member order. */
ferry_status_t fy_slots_open(ferry_group_t *group, uint64_t slot_bytes, bool send_slots,
                             ferry_slots_t **slots_p, ferry_mem_key_t *key_p, ferry_error_t *err);
ferry_status_t fy_slots_connect(ferry_slots_t *slots, uint32_t member, const ferry_mem_key_t *key,
                                ferry_error_t *err);

/* The slot size that the parameters come to. FERRY_INVALID when the budget holds no slots. */
ferry_status_t fy_slots_size(const ferry_slots_params_t *params, uint64_t *bytes_p,
                             ferry_error_t *err);

ferry_status_t fy_pipeline_begin(fy_pipeline_t *run, ferry_slots_t *slots,
                                 const ferry_pipeline_params_t *params, ferry_error_t *err);
/* Does one thing. Where nothing can be done: waits for the earliest when `wait`, else *moved_p is
 * false. */
ferry_status_t fy_pipeline_step(fy_pipeline_t *run, bool wait, bool *moved_p, ferry_error_t *err);
bool fy_pipeline_done(const fy_pipeline_t *run);
/* After the last step. */
void fy_pipeline_end(fy_pipeline_t *run);
/* Waits until the earliest thing on the list can be done; deadline_ns as in fy_wait_t. */
ferry_status_t fy_pipeline_await(fy_pipeline_t *run, uint64_t deadline_ns, ferry_error_t *err);

#endif
