/* queue.c - the bounded queue of a proxy; see queue.h for the protocol.
 *
 * Invariant: no request is lost or doubled: a position is given to one producer by the exchange on
 * `tail`, and a slot changes hands only by a release store of its turn. */
#include "channel/queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"
#include "channel/transport.h"

ferry_status_t fy_queue_init(fy_queue_t *queue, uint32_t nslots, uint64_t first,
                             ferry_error_t *err) {
    fy_queue_slot_t *slots = fy_alloc_zero(nslots, sizeof *slots);
    if (slots == NULL) {
        return fy_fail_nomem(err, "the queue of a proxy");
    }
    queue->slots = slots;
    queue->mask = nslots - 1;
    for (uint64_t p = first; p < first + nslots; p++) {
        atomic_init(&slots[p & queue->mask].turn, p);
    }
    atomic_init(&queue->tail, first);
    queue->head = first;
    atomic_init(&queue->taken.value, (uint32_t)first);
    return FERRY_OK;
}

void fy_queue_fini(fy_queue_t *queue) {
    fy_free(queue->slots);
    queue->slots = NULL;
}

bool fy_queue_push(fy_queue_t *queue, const fy_request_t *request, uint64_t *position_p) {
    uint64_t position = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    for (;;) {
        fy_queue_slot_t *slot = &queue->slots[position & queue->mask];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn == position) {
            if (atomic_compare_exchange_weak_explicit(&queue->tail, &position, position + 1,
                                                      memory_order_relaxed, memory_order_relaxed)) {
                slot->request = *request;
                fy_fence_streams(); /* the caller's source may have been streamed */
                atomic_store_explicit(&slot->turn, position + 1, memory_order_release);
                fy_counter_add(&queue->filled, 1);
                *position_p = position;
                return true;
            }
        } else if (turn < position) {
            *position_p = position - (queue->mask + 1);
            return false;
        } else {
            position = atomic_load_explicit(&queue->tail, memory_order_relaxed);
        }
    }
}

bool fy_queue_pop(fy_queue_t *queue, fy_request_t *request_p, uint64_t *position_p) {
    uint64_t position = queue->head;
    fy_queue_slot_t *slot = &queue->slots[position & queue->mask];
    if (atomic_load_explicit(&slot->turn, memory_order_acquire) != position + 1) {
        return false;
    }
    *request_p = slot->request;
    atomic_store_explicit(&slot->turn, position + queue->mask + 1, memory_order_release);
    queue->head = position + 1;
    fy_counter_set(&queue->taken, (uint32_t)queue->head);
    *position_p = position;
    return true;
}

void fy_queue_doze(fy_queue_t *queue, uint32_t seen, uint64_t ns) {
    /* As in wait.h: counted as a sleeper first, compared by the futex after. */
    struct timespec timeout = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    (void)atomic_fetch_add_explicit(&queue->filled.sleepers, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&queue->filled.value, memory_order_seq_cst) == seen) {
        (void)syscall(SYS_futex, &queue->filled.value, FUTEX_WAIT, seen, &timeout, NULL, 0);
    }
    (void)atomic_fetch_sub_explicit(&queue->filled.sleepers, 1, memory_order_seq_cst);
}

void fy_queue_nudge(fy_queue_t *queue) {
    fy_counter_add(&queue->filled, 1);
}
