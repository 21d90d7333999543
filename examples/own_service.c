/* own_service.c - a copy service written by a user of the library.
 *
 * It moves tensors by the simplest means there is: every rank shows the others where its sources lie, in
 * an all-gather, and copies what it wants. ferry keeps the queues, checks what is submitted and calls
 * run with the whole batch; pairs within a rank are matched by ferry_match_local_ops. The program runs
 * the service on four ranks, each sending a number to itself and to its neighbour. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/kernel.h>
#include <ferry/mem.h>
#include <ferry/sys/service.h>
#include <ferry/world.h>

enum { MAX_OPS = 8, RANKS = 4 };

typedef struct naive {
    ferry_group_t *group;
} naive_t;

/* What a rank shows of one source. A view is plain data; only its address needs a key. */
typedef struct shown {
    uint64_t task_id;
    uint32_t target;
    ferry_view_t view;
    ferry_mem_key_t key;
} shown_t;

typedef struct board {
    uint32_t count;
    shown_t sources[MAX_OPS];
} board_t;

static ferry_status_t refuse(ferry_error_t *err, const char *text) {
    ferry_error_clear(err);
    err->status = FERRY_MISMATCH;
    (void)snprintf(err->text, sizeof err->text, "naive service: %s", text);
    return FERRY_MISMATCH;
}

static ferry_status_t naive_create(ferry_group_t *group, const void *config, void **state_p,
                                   ferry_error_t *err) {
    (void)config;
    naive_t *naive = malloc(sizeof *naive);
    if (naive == NULL) {
        ferry_error_clear(err);
        err->status = FERRY_NOMEM;
        return FERRY_NOMEM;
    }
    naive->group = group;
    *state_p = naive;
    return FERRY_OK;
}

static void naive_close(void *state) {
    free(state);
}

static ferry_status_t show(const naive_t *naive, const ferry_copy_list_t *list, board_t *board,
                           ferry_error_t *err) {
    memset(board, 0, sizeof *board);
    for (size_t i = 0; i < list->nsends && i < MAX_OPS; i++) {
        const ferry_copy_op_t *op = &list->sends[i];
        shown_t *shown = &board->sources[board->count++];
        uint64_t elements = 0;
        uint64_t bytes = 0;
        ferry_status_t status = ferry_view_elements(&op->view, &elements, err);
        if (status == FERRY_OK) {
            status = ferry_dtype_bytes(op->view.dtype, elements, &bytes, err);
        }
        if (status == FERRY_OK) {
            status = ferry_mem_register(ferry_group_world(naive->group), op->view.data, bytes,
                                        &shown->key, err);
        }
        if (status != FERRY_OK) {
            return status;
        }
        shown->task_id = op->task_id;
        shown->target = op->peer;
        shown->view = op->view;
    }
    return FERRY_OK;
}

static ferry_status_t fetch(const naive_t *naive, const board_t *boards, const ferry_copy_op_t *op,
                            ferry_error_t *err) {
    const board_t *board = &boards[op->peer];
    for (uint32_t i = 0; i < board->count; i++) {
        shown_t shown = board->sources[i];
        if (shown.task_id == op->task_id && shown.target == ferry_group_rank(naive->group)) {
            ferry_status_t status =
                ferry_mem_map(ferry_group_world(naive->group), &shown.key, &shown.view.data, err);
            return status == FERRY_OK ? ferry_view_copy(&op->view, &shown.view, 0, err) : status;
        }
    }
    return refuse(err, "a receive has no send");
}

/* Own pairs first: they need nobody. Both ends are views, so a pair is one call. */
static ferry_status_t copy_own(const naive_t *naive, const ferry_copy_list_t *list,
                               ferry_error_t *err) {
    uint32_t me = ferry_group_rank(naive->group);
    uint64_t ids[2][MAX_OPS];
    size_t where[2][MAX_OPS];
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < list->nsends && i < MAX_OPS; i++) {
        if (list->sends[i].peer == me) {
            ids[0][counts[0]] = list->sends[i].task_id;
            where[0][counts[0]++] = i;
        }
    }
    for (size_t i = 0; i < list->nrecvs && i < MAX_OPS; i++) {
        if (list->recvs[i].peer == me) {
            ids[1][counts[1]] = list->recvs[i].task_id;
            where[1][counts[1]++] = i;
        }
    }
    ferry_op_pair_t pairs[MAX_OPS];
    ferry_status_t status = ferry_match_local_ops(ids[0], counts[0], ids[1], counts[1],
                                                  "naive service", me, pairs, err);
    for (size_t i = 0; i < counts[1] && status == FERRY_OK; i++) {
        status = ferry_view_copy(&list->recvs[where[1][pairs[i].recv]].view,
                                 &list->sends[where[0][pairs[i].send]].view, 0, err);
    }
    return status;
}

static ferry_status_t naive_run(void *state, const ferry_copy_list_t *list, void *batch,
                                ferry_copy_result_t *result_p, ferry_error_t *err) {
    (void)batch;
    (void)result_p;
    const naive_t *naive = state;
    uint32_t me = ferry_group_rank(naive->group);
    static _Thread_local board_t boards[RANKS];
    board_t mine;
    ferry_status_t status = show(naive, list, &mine, err);
    if (status == FERRY_OK) {
        status = ferry_group_allgather(naive->group, &mine, sizeof mine, boards, err);
    }
    if (status == FERRY_OK) {
        status = copy_own(naive, list, err);
    }
    for (size_t i = 0; i < list->nrecvs && status == FERRY_OK; i++) {
        if (list->recvs[i].peer != me) {
            status = fetch(naive, boards, &list->recvs[i], err);
        }
    }
    return status;
}

static const ferry_copy_service_ops_t naive_ops = {
    .size = sizeof(ferry_copy_service_ops_t),
    .name = "naive service",
    .needs_barrier = true, /* run returns while others may still read from us */
    .create = naive_create,
    .close = naive_close,
    .run = naive_run,
};

static ferry_status_t exchange(ferry_world_t *world, ferry_copy_service_t *service,
                               ferry_error_t *err) {
    uint32_t me = ferry_world_rank(world);
    void *memory = NULL;
    ferry_status_t status = ferry_mem_alloc(world, 3 * sizeof(double), &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    double *numbers = memory; /* what I give, what I get from myself, what I get from the left */
    numbers[0] = 100 + (double)me;
    ferry_view_t views[3];
    for (int i = 0; i < 3 && status == FERRY_OK; i++) {
        status = ferry_view_contiguous(&numbers[i], FERRY_F64, 0, NULL, &views[i], err);
    }
    struct {
        bool send;
        int view;
        uint32_t peer;
        uint64_t task_id;
    } ops[] = {{true, 0, me, me},
               {false, 1, me, me},
               {true, 0, (me + 1) % RANKS, RANKS + me},
               {false, 2, (me + RANKS - 1) % RANKS, RANKS + (me + RANKS - 1) % RANKS}};
    for (int i = 0; i < 4 && status == FERRY_OK; i++) {
        const ferry_view_t *view = &views[ops[i].view];
        status = ops[i].send
                     ? ferry_copy_submit_send(service, view, FERRY_DTYPE_NONE, ops[i].peer,
                                              ops[i].task_id, err)
                     : ferry_copy_submit_recv(service, view, ops[i].peer, ops[i].task_id, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_run(service, NULL, err);
    }
    if (status == FERRY_OK && ferry_copy_service_needs_barrier(service)) {
        status = ferry_group_barrier(ferry_world_group(world), err);
    }
    if (status == FERRY_OK) {
        (void)printf("rank %u got %g from itself and %g from its neighbour\n", me, numbers[1],
                     numbers[2]);
        bool right = numbers[1] == 100 + (double)me &&
                     numbers[2] == 100 + (double)((me + RANKS - 1) % RANKS);
        status = right ? FERRY_OK : refuse(err, "the numbers are wrong");
    }
    return status;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_copy_service_t *service = NULL;
    ferry_status_t status =
        ferry_copy_service_create_on(&naive_ops, ferry_world_group(world), NULL, &service, err);
    if (status == FERRY_OK) {
        status = exchange(world, service, err);
    }
    ferry_copy_service_close(service);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(RANKS, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
