/* service.h - the front of every service: queues, kept batches, the thread that drives them. */
#ifndef FERRY_SERVICE_SERVICE_H
#define FERRY_SERVICE_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include <ferry/sys/service.h>

typedef struct fy_queue {
    ferry_copy_op_t *ops;
    size_t count;
    size_t cap;
} fy_queue_t;

typedef enum fy_kept_state {
    FY_KEPT_IDLE,
    FY_KEPT_STARTED, /* nothing of it is done yet */
    FY_KEPT_GOING,
    FY_KEPT_ENDED, /* `status`, `error` and `result` say how; wait and test collect it */
} fy_kept_state_t;

struct ferry_kept_batch {
    ferry_copy_service_t *service;
    fy_queue_t sends;
    fy_queue_t recvs;
    ferry_copy_list_t list;
    void *batch; /* of the table's prepare */
    _Atomic uint32_t state;
    ferry_status_t status;
    ferry_error_t error;
    ferry_copy_result_t result;
};

/* The thread runs `job` and sets its state to ENDED. */
typedef struct fy_driver {
    bool there;
    bool stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ferry_kept_batch_t *job;
} fy_driver_t;

struct ferry_copy_service {
    const ferry_copy_service_ops_t *ops;
    void *state;
    ferry_group_t *group;
    fy_queue_t sends;
    fy_queue_t recvs;
    ferry_kept_batch_t once;              /* for run: what is queued, for one run */
    _Atomic(ferry_kept_batch_t *) active; /* started and not collected */
    fy_driver_t driver;
};

/* driver.c */
ferry_status_t fy_driver_start(ferry_copy_service_t *service, ferry_error_t *err);
void fy_driver_stop(ferry_copy_service_t *service);
void fy_driver_give(ferry_copy_service_t *service, ferry_kept_batch_t *batch);
void fy_driver_wait(ferry_copy_service_t *service, ferry_kept_batch_t *batch);

/* Runs a batch to its end and writes down how it ended. */
void fy_kept_finish(ferry_kept_batch_t *batch);

/* ferry_kept_batch_test that also gives the result, once done. */
ferry_status_t fy_kept_test(ferry_kept_batch_t *batch, bool *done_p, ferry_copy_result_t *result_p,
                            ferry_error_t *err);
/* Forgets what is queued. */
void fy_service_drop(ferry_copy_service_t *service);

/* As ferry_copy_service_create_on, with or without a thread. */
ferry_status_t fy_service_create(const ferry_copy_service_ops_t *ops, ferry_group_t *group,
                                 const void *config, bool thread, ferry_copy_service_t **service_p,
                                 ferry_error_t *err);

#endif
