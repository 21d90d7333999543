/* service.c - the front of every service: what is submitted, what is kept.
 *
 * Invariant: whatever happens in run or keep, the queues are empty afterwards, so a failed run is never
 * replayed by the next. */
#include "service/service.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"

/* --- life -------------------------------------------------------------------------------------- */

static ferry_status_t check_table(const ferry_copy_service_ops_t *ops, ferry_error_t *err) {
    if (ops->size != sizeof *ops) {
        return fy_fail(err, FERRY_INVALID, "ferry_copy_service_ops_t of %zu bytes, not %zu",
                       ops->size, sizeof *ops);
    }
    if (ops->name == NULL || ops->create == NULL || ops->close == NULL || ops->run == NULL) {
        return fy_fail(err, FERRY_INVALID,
                       "a copy service needs a name and the functions create, run and close");
    }
    return FERRY_OK;
}

ferry_status_t fy_service_create(const ferry_copy_service_ops_t *ops, ferry_group_t *group,
                                 const void *config, bool thread, ferry_copy_service_t **service_p,
                                 ferry_error_t *err) {
    FY_TRY(check_table(ops, err));
    if (ferry_group_rank(group) == FERRY_RANK_NONE) {
        return fy_fail(err, FERRY_INVALID, "%s: this rank is not a member of the group", ops->name);
    }
    ferry_copy_service_t *service = fy_alloc_zero(1, sizeof *service);
    ferry_error_t mine = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    if (service == NULL) {
        status = fy_fail_nomem(&mine, "a copy service");
    } else {
        service->ops = ops;
        service->group = group;
        status = thread ? fy_driver_start(service, &mine) : FERRY_OK;
    }
    if (status != FERRY_OK) { /* the others are in create, which is collective */
        fy_free(service);
        return ferry_world_fail(ferry_group_world(group), &mine, err);
    }
    status = ops->create(group, config, &service->state, err);
    if (status != FERRY_OK) {
        fy_driver_stop(service);
        fy_free(service);
        return status;
    }
    *service_p = service;
    return FERRY_OK;
}

ferry_status_t ferry_copy_service_create_on(const ferry_copy_service_ops_t *ops,
                                            ferry_group_t *group, const void *config,
                                            ferry_copy_service_t **service_p, ferry_error_t *err) {
    FY_NEED(ops, err);
    FY_NEED(group, err);
    FY_NEED(service_p, err);
    return fy_service_create(ops, group, config, false, service_p, err);
}

void ferry_copy_service_close(ferry_copy_service_t *service) {
    if (service == NULL) {
        return;
    }
    if (service->active != NULL) {
        (void)ferry_copy_cancel(service->active, NULL);
    }
    fy_driver_stop(service);
    service->ops->close(service->state);
    fy_free(service->sends.ops);
    fy_free(service->recvs.ops);
    fy_free(service);
}

const char *ferry_copy_service_name(const ferry_copy_service_t *service) {
    return service == NULL ? "" : service->ops->name;
}

bool ferry_copy_service_needs_barrier(const ferry_copy_service_t *service) {
    return service != NULL && service->ops->needs_barrier;
}

ferry_group_t *ferry_copy_service_group(const ferry_copy_service_t *service) {
    return service->group;
}

void ferry_copy_service_traits(const ferry_copy_service_t *service, ferry_copy_traits_t *traits_p) {
    *traits_p = (ferry_copy_traits_t){.needs_barrier = service->ops->needs_barrier,
                                      .contiguous = service->ops->contiguous};
    if (service->ops->traits != NULL) {
        service->ops->traits(service->state, traits_p);
    }
}

ferry_status_t ferry_copy_service_check(ferry_copy_service_t *service, ferry_error_t *err) {
    FY_NEED(service, err);
    return ferry_world_check(ferry_group_world(service->group), err);
}

/* --- submitting -------------------------------------------------------------------------------- */

static ferry_status_t check_op(const ferry_copy_service_t *service, const ferry_copy_op_t *op,
                               ferry_error_t *err) {
    uint32_t me = ferry_group_rank(service->group);
    if (op->peer >= ferry_group_size(service->group)) {
        return fy_fail(err, FERRY_INVALID,
                       "%s: rank %" PRIu32 ": peer %" PRIu32 " of a group of %" PRIu32,
                       service->ops->name, me, op->peer, ferry_group_size(service->group));
    }
    if (op->peer != me && op->task_id == FERRY_TASK_NONE) {
        return fy_fail(err, FERRY_INVALID,
                       "%s: rank %" PRIu32 ": an operation with rank %" PRIu32 " needs a task id",
                       service->ops->name, me, op->peer);
    }
    if (op->wire != FERRY_DTYPE_NONE && ferry_dtype_bits(op->wire) == 0) {
        return fy_fail(err, FERRY_INVALID, "%s: rank %" PRIu32 ": the wire dtype is none",
                       service->ops->name, me);
    }
    int64_t low = 0;
    int64_t high = 0;
    return ferry_view_extent(&op->view, &low, &high, err);
}

static ferry_status_t submit(ferry_copy_service_t *service, bool is_send, const ferry_copy_op_t *op,
                             ferry_error_t *err) {
    FY_TRY(check_op(service, op, err));
    if (service->ops->submit != NULL) {
        FY_TRY(service->ops->submit(service->state, is_send, op, err));
    }
    fy_queue_t *queue = is_send ? &service->sends : &service->recvs;
    if (!fy_reserve(&queue->ops, &queue->cap, queue->count + 1, sizeof *queue->ops)) {
        return fy_fail_nomem(err, "the queue of a copy service");
    }
    queue->ops[queue->count++] = *op;
    return FERRY_OK;
}

ferry_status_t ferry_copy_submit_send(ferry_copy_service_t *service, const ferry_view_t *source,
                                      ferry_dtype_t wire, uint32_t peer, uint64_t task_id,
                                      ferry_error_t *err) {
    FY_NEED(service, err);
    FY_NEED(source, err);
    ferry_copy_op_t op = {task_id, peer, wire, *source};
    return submit(service, true, &op, err);
}

ferry_status_t ferry_copy_submit_recv(ferry_copy_service_t *service, const ferry_view_t *target,
                                      uint32_t peer, uint64_t task_id, ferry_error_t *err) {
    FY_NEED(service, err);
    FY_NEED(target, err);
    ferry_copy_op_t op = {task_id, peer, FERRY_DTYPE_NONE, *target};
    return submit(service, false, &op, err);
}

/* --- batches ----------------------------------------------------------------------------------- */

static ferry_status_t idle(const ferry_copy_service_t *service, ferry_error_t *err) {
    if (service->active != NULL) {
        return fy_fail(err, FERRY_INVALID, "%s: a batch was started and has not been waited for",
                       service->ops->name);
    }
    return FERRY_OK;
}

/* Moves the queues into the batch and prepares it. On a failure the batch is empty again. */
static ferry_status_t fill(ferry_copy_service_t *service, ferry_kept_batch_t *batch,
                           ferry_error_t *err) {
    memset(batch, 0, sizeof *batch);
    batch->service = service;
    batch->sends = service->sends;
    batch->recvs = service->recvs;
    service->sends = (fy_queue_t){NULL, 0, 0};
    service->recvs = (fy_queue_t){NULL, 0, 0};
    batch->list = (ferry_copy_list_t){batch->sends.ops, batch->sends.count, batch->recvs.ops,
                                      batch->recvs.count};
    if (service->ops->prepare == NULL) {
        return FERRY_OK;
    }
    return service->ops->prepare(service->state, &batch->list, &batch->batch, err);
}

static void empty(ferry_kept_batch_t *batch) {
    const ferry_copy_service_t *service = batch->service;
    if (batch->batch != NULL && service->ops->release != NULL) {
        service->ops->release(service->state, batch->batch);
    }
    fy_free(batch->sends.ops);
    fy_free(batch->recvs.ops);
}

static ferry_status_t run_now(ferry_kept_batch_t *batch, ferry_copy_result_t *result_p,
                              ferry_error_t *err) {
    const ferry_copy_service_t *service = batch->service;
    ferry_copy_result_t result = {0};
    FY_TRY(service->ops->run(service->state, &batch->list, batch->batch, &result, err));
    if (result_p != NULL) {
        *result_p = result;
    }
    return FERRY_OK;
}

void fy_service_drop(ferry_copy_service_t *service) {
    service->sends.count = 0;
    service->recvs.count = 0;
}

ferry_status_t ferry_copy_service_run(ferry_copy_service_t *service, ferry_copy_result_t *result_p,
                                      ferry_error_t *err) {
    FY_NEED(service, err);
    FY_TRY(idle(service, err));
    ferry_status_t status = fill(service, &service->once, err);
    if (status == FERRY_OK) {
        status = run_now(&service->once, result_p, err);
    }
    empty(&service->once);
    return status;
}

ferry_status_t ferry_copy_service_keep(ferry_copy_service_t *service, ferry_kept_batch_t **batch_p,
                                       ferry_error_t *err) {
    FY_NEED(service, err);
    FY_NEED(batch_p, err);
    FY_TRY(idle(service, err));
    ferry_kept_batch_t *batch = fy_alloc(1, sizeof *batch);
    if (batch == NULL) { /* the others are in keep, which is collective */
        fy_service_drop(service);
        ferry_error_t mine = FERRY_ERROR_INIT;
        (void)fy_fail_nomem(&mine, "a kept batch");
        return ferry_world_fail(ferry_group_world(service->group), &mine, err);
    }
    ferry_status_t status = fill(service, batch, err);
    if (status != FERRY_OK) {
        empty(batch);
        fy_free(batch);
        return status;
    }
    *batch_p = batch;
    return FERRY_OK;
}

void ferry_kept_batch_destroy(ferry_kept_batch_t *batch) {
    if (batch == NULL) {
        return;
    }
    if (batch->service->active == batch) {
        (void)ferry_copy_cancel(batch, NULL);
        (void)ferry_kept_batch_wait(batch, NULL, NULL);
    }
    empty(batch);
    fy_free(batch);
}

ferry_status_t ferry_kept_batch_run(ferry_kept_batch_t *batch, ferry_copy_result_t *result_p,
                                    ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_TRY(idle(batch->service, err));
    return run_now(batch, result_p, err);
}

/* --- without waiting --------------------------------------------------------------------------- */

static void end(ferry_kept_batch_t *batch, ferry_status_t status, const ferry_error_t *error) {
    batch->status = status;
    batch->error = *error;
    atomic_store_explicit(&batch->state, FY_KEPT_ENDED, memory_order_release);
}

void fy_kept_finish(ferry_kept_batch_t *batch) {
    ferry_error_t error = FERRY_ERROR_INIT;
    ferry_status_t status = FERRY_OK;
    if (atomic_load(&batch->state) == FY_KEPT_STARTED) {
        status = run_now(batch, &batch->result, &error);
    } else {
        bool done = false;
        const ferry_copy_service_t *service = batch->service;
        while (status == FERRY_OK && !done) {
            status = service->ops->step(service->state, batch->batch, false, true, &done,
                                        &batch->result, &error);
        }
    }
    end(batch, status, &error);
}

/* The run has ended: the batch may be started again. */
static ferry_status_t collect(ferry_kept_batch_t *batch, ferry_copy_result_t *result_p,
                              ferry_error_t *err) {
    if (batch->service->driver.there) {
        fy_driver_wait(batch->service, batch); /* until the thread has let go of it */
    }
    atomic_store(&batch->service->active, NULL);
    atomic_store(&batch->state, FY_KEPT_IDLE);
    if (batch->status != FERRY_OK) {
        if (err != NULL) {
            *err = batch->error;
        }
        return batch->status;
    }
    if (result_p != NULL) {
        *result_p = batch->result;
    }
    return FERRY_OK;
}

ferry_status_t ferry_kept_batch_start(ferry_kept_batch_t *batch, ferry_error_t *err) {
    FY_NEED(batch, err);
    ferry_copy_service_t *service = batch->service;
    FY_TRY(idle(service, err));
    FY_TRY(ferry_copy_service_check(service, err));
    atomic_store(&batch->state, FY_KEPT_STARTED);
    memset(&batch->result, 0, sizeof batch->result);
    atomic_store(&service->active, batch);
    if (service->driver.there) {
        fy_driver_give(service, batch);
        return FERRY_OK;
    }
    ferry_status_t status =
        service->ops->step != NULL ? ferry_copy_service_progress(service, err) : FERRY_OK;
    return status != FERRY_OK ? collect(batch, NULL, NULL) : FERRY_OK;
}

/* One look at a batch that no thread drives. */
static void advance(ferry_kept_batch_t *batch) {
    const ferry_copy_service_t *service = batch->service;
    uint32_t state = atomic_load_explicit(&batch->state, memory_order_acquire);
    if (state == FY_KEPT_ENDED || service->driver.there) {
        return;
    }
    if (service->ops->step == NULL) {
        fy_kept_finish(batch);
        return;
    }
    bool done = false;
    ferry_error_t error = FERRY_ERROR_INIT;
    atomic_store(&batch->state, FY_KEPT_GOING);
    ferry_status_t status =
        service->ops->step(service->state, batch->batch, state == FY_KEPT_STARTED, false, &done,
                           &batch->result, &error);
    if (status != FERRY_OK || done) {
        end(batch, status, &error);
    }
}

ferry_status_t ferry_copy_service_progress(ferry_copy_service_t *service, ferry_error_t *err) {
    FY_NEED(service, err);
    if (service->active == NULL) {
        return FERRY_OK;
    }
    ferry_kept_batch_t *batch = service->active;
    advance(batch);
    bool ended = atomic_load_explicit(&batch->state, memory_order_acquire) == FY_KEPT_ENDED;
    if (ended && batch->status != FERRY_OK && err != NULL) {
        *err = batch->error;
    }
    return ended ? batch->status : FERRY_OK;
}

static ferry_status_t under_way(const ferry_kept_batch_t *batch, ferry_error_t *err) {
    if (batch->service->active != batch) {
        return fy_fail(err, FERRY_INVALID, "%s: the batch was not started",
                       batch->service->ops->name);
    }
    return FERRY_OK;
}

ferry_status_t fy_kept_test(ferry_kept_batch_t *batch, bool *done_p, ferry_copy_result_t *result_p,
                            ferry_error_t *err) {
    FY_TRY(under_way(batch, err));
    advance(batch);
    bool ended = atomic_load_explicit(&batch->state, memory_order_acquire) == FY_KEPT_ENDED;
    if (ended) {
        FY_TRY(collect(batch, result_p, err));
    }
    *done_p = ended;
    return FERRY_OK;
}

ferry_status_t ferry_kept_batch_test(ferry_kept_batch_t *batch, bool *done_p, ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_NEED(done_p, err);
    return fy_kept_test(batch, done_p, NULL, err);
}

ferry_status_t ferry_kept_batch_wait(ferry_kept_batch_t *batch, ferry_copy_result_t *result_p,
                                     ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_TRY(under_way(batch, err));
    if (batch->service->driver.there) {
        fy_driver_wait(batch->service, batch);
    } else if (atomic_load(&batch->state) != FY_KEPT_ENDED) {
        fy_kept_finish(batch);
    }
    return collect(batch, result_p, err);
}

ferry_status_t ferry_copy_cancel(ferry_kept_batch_t *batch, ferry_error_t *err) {
    FY_NEED(batch, err);
    FY_TRY(under_way(batch, err));
    if (atomic_load_explicit(&batch->state, memory_order_acquire) == FY_KEPT_ENDED) {
        return FERRY_OK;
    }
    ferry_world_t *world = ferry_group_world(batch->service->group);
    ferry_error_t mine = FERRY_ERROR_INIT;
    (void)fy_fail(&mine, FERRY_STOPPED, "%s: rank %" PRIu32 " cancelled the batch",
                  batch->service->ops->name, ferry_world_rank(world));
    mine.rank = ferry_world_rank(world);
    ferry_error_t agreed = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_fail(world, &mine, &agreed);
    if (status != FERRY_STOPPED && err != NULL) {
        *err = agreed;
    }
    return status == FERRY_STOPPED ? FERRY_OK : status;
}
