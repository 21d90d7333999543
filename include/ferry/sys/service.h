/* sys/service.h - for those who write a copy service of their own.
 *
 * A service is one table. ferry keeps the queues: it checks what is submitted, hands the whole list to
 * the service, and empties the queues whatever comes of it, so a failed run is never replayed. All
 * functions are called by one thread at a time.
 *
 * Ownership: the table and what it points to outlive every service that is made from it; a list is
 * borrowed until release (or, where prepare is NULL, during the call).
 * Thread safety: as in <ferry/service.h>. */
#ifndef FERRY_SYS_SERVICE_H
#define FERRY_SYS_SERVICE_H

#include <ferry/service.h>

FERRY_BEGIN_DECLS

/* One end of a transfer. */
typedef struct ferry_copy_op {
    uint64_t task_id;   /* FERRY_TASK_NONE only where the peer is this rank */
    uint32_t peer;      /* member of the group */
    ferry_dtype_t wire; /* sends only */
    ferry_view_t view;
} ferry_copy_op_t;

/* A batch, in the order of submission. */
typedef struct ferry_copy_list {
    const ferry_copy_op_t *sends;
    size_t nsends;
    const ferry_copy_op_t *recvs;
    size_t nrecvs;
} ferry_copy_list_t;

/* May be NULL: submit, prepare, release, step, traits. */
typedef struct ferry_copy_service_ops {
    size_t size;        /* sizeof(ferry_copy_service_ops_t) */
    const char *name;   /* for messages */
    bool needs_barrier; /* ferry_copy_service_needs_barrier */
    bool contiguous; /* it is at its best with few views without gaps, of one dtype at both ends */
    ferry_status_t (*create)(ferry_group_t *group, const void *config, void **state_p,
                             ferry_error_t *err);
    void (*close)(void *state);
    /* Looks at an operation that has passed the common checks; a failure refuses it. */
    ferry_status_t (*submit)(void *state, bool is_send, const ferry_copy_op_t *op,
                             ferry_error_t *err);
    /* Once per batch; collective. *batch_p is handed to the others. */
    ferry_status_t (*prepare)(void *state, const ferry_copy_list_t *list, void **batch_p,
                              ferry_error_t *err);
    void (*release)(void *state, void *batch);
    /* Moves the bytes; collective. `batch` is NULL where prepare is. result_p is never NULL and zeroed. */
    ferry_status_t (*run)(void *state, const ferry_copy_list_t *list, void *batch,
                          ferry_copy_result_t *result_p, ferry_error_t *err);
    /* The same bit by bit: `begin` with the first call of a run; only a call with `wait` may wait for
     * others. Without it a batch that is started runs at its first test. */
    ferry_status_t (*step)(void *state, void *batch, bool begin, bool wait, bool *done_p,
                           ferry_copy_result_t *result_p, ferry_error_t *err);
    /* Fills in what the table cannot know: staging_bytes, copy_flags, direct. */
    void (*traits)(const void *state, ferry_copy_traits_t *traits_p);
} ferry_copy_service_ops_t;

/* A service on the table. `config` goes to create. */
FERRY_API ferry_status_t ferry_copy_service_create_on(const ferry_copy_service_ops_t *ops,
                                                      ferry_group_t *group, const void *config,
                                                      ferry_copy_service_t **service_p,
                                                      ferry_error_t *err);

FERRY_END_DECLS

#endif
