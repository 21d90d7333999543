/* queue.h - the queue of requests between the threads of a rank and its proxy.
 *
 * Bounded, many producers, one consumer, no lock. Positions are 64-bit and only go up; position p
 * lives in slot p & mask. A slot's `turn` says whose it is: p when the producer of p may fill it, p + 1
 * when the consumer may take it, p + slots when the next producer may. A thread of a rank that is
 * killed takes the whole process with it, so no half-filled slot outlives its producer.
 *
 * Counters that are slept on hold the low 32 bits of positions; they are compared only within the
 * length of the queue, so that wrapping does not matter. */
#ifndef FERRY_CHANNEL_QUEUE_H
#define FERRY_CHANNEL_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/channel.h>

#include "world/wait.h"

#define FY_LINE_BYTES 64 /* kept between what different threads write */

typedef enum fy_request_flags {
    FY_REQUEST_PUT = 1,
    FY_REQUEST_SIGNAL = 2,
} fy_request_flags_t;

typedef struct fy_request {
    ferry_port_channel_t *channel;
    const ferry_remote_t *target; /* PUT only, as all below but `flags` */
    uint64_t offset;
    const void *source;
    size_t bytes;
    uint32_t flags;
} fy_request_t;

typedef struct fy_queue_slot {
    _Atomic uint64_t turn;
    fy_request_t request;
} fy_queue_slot_t;

typedef struct fy_queue {
    fy_queue_slot_t *slots;
    uint64_t mask;
    uint8_t apart_1[FY_LINE_BYTES];
    _Atomic uint64_t tail; /* the next position for a producer */
    fy_counter_t filled;   /* moves with every push; the consumer sleeps here */
    uint8_t apart_2[FY_LINE_BYTES];
    uint64_t head;      /* the consumer's own */
    fy_counter_t taken; /* low bits of head; producers sleep here */
    uint8_t apart_3[FY_LINE_BYTES];
} fy_queue_t;

/* nslots is a power of two; positions start at `first`. */
ferry_status_t fy_queue_init(fy_queue_t *queue, uint32_t nslots, uint64_t first,
                             ferry_error_t *err);
void fy_queue_fini(fy_queue_t *queue);

/* False when it is full; then *position_p is the one that must be taken first (wait until `taken` is
 * past it). True: *position_p is where the request went. What the caller stored before is seen by the
 * consumer. */
bool fy_queue_push(fy_queue_t *queue, const fy_request_t *request, uint64_t *position_p);
/* The consumer only. False when it is empty. */
bool fy_queue_pop(fy_queue_t *queue, fy_request_t *request_p, uint64_t *position_p);
/* The consumer only: sleeps until a push or a nudge after `seen` (fy_counter_load of filled), at most
 * so long. */
void fy_queue_doze(fy_queue_t *queue, uint32_t seen, uint64_t ns);
/* Wakes the consumer without a request. */
void fy_queue_nudge(fy_queue_t *queue);

#endif
