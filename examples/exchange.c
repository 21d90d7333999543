/* exchange.c - two processes exchange one tensor.
 *
 * Rank 0 holds a 512 x 512 matrix of floats in rows. Rank 1 wants its transpose in bf16. Each says what
 * it has or wants; the cast and the transpose are part of the one copy that moves the bytes.
 *
 *     cc exchange.c -lferry && ./a.out */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/kernel.h>
#include <ferry/mem.h>
#include <ferry/service.h>
#include <ferry/world.h>

#define N ((size_t)512)
#define WEIGHTS 42 /* the task id: any number that both ends use */

static const uint64_t shape[] = {N, N};

static ferry_status_t send_matrix(ferry_world_t *world, ferry_copy_service_t *service,
                                  ferry_error_t *err) {
    void *memory = NULL;
    ferry_view_t matrix;
    ferry_status_t status = ferry_mem_alloc(world, sizeof(float) * N * N, &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    float *values = memory;
    for (size_t i = 0; i < N * N; i++) {
        size_t row = i / N;
        size_t column = i % N;
        values[i] = (float)row + (float)column / N;
    }
    status = ferry_view_contiguous(memory, FERRY_F32, 2, shape, &matrix, err);
    if (status == FERRY_OK) {
        status = ferry_copy_submit_send(service, &matrix, FERRY_DTYPE_NONE, 1, WEIGHTS, err);
    }
    return status == FERRY_OK ? ferry_copy_service_run(service, NULL, err) : status;
}

static ferry_status_t receive_transposed(ferry_world_t *world, ferry_copy_service_t *service,
                                         ferry_error_t *err) {
    void *memory = NULL;
    ferry_view_t matrix;
    ferry_view_t transposed;
    ferry_copy_result_t result;
    ferry_status_t status = ferry_mem_alloc(world, sizeof(uint16_t) * N * N, &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    status = ferry_view_contiguous(memory, FERRY_BF16, 2, shape, &matrix, err);
    if (status == FERRY_OK) {
        status = ferry_view_transpose(&matrix, (const uint32_t[]){1, 0}, &transposed, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_submit_recv(service, &transposed, 0, WEIGHTS, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_run(service, &result, err);
    }
    if (status == FERRY_OK) {
        const uint16_t *values = memory;
        (void)printf("rank 1 got %llu bytes; the source's (2, 0) is here (0, 2): 0x%04x in bf16\n",
                     (unsigned long long)result.bytes_received, values[2]);
        bool right = values[2] == 0x4000 && values[2 * N] == 0x3b80; /* 2, and 2/512 */
        status = right ? FERRY_OK : FERRY_CHECK;
    }
    return status;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_copy_service_t *service = NULL;
    ferry_status_t status =
        ferry_copy_service_create(ferry_world_group(world), NULL, &service, err);
    if (status == FERRY_OK) {
        status = ferry_world_rank(world) == 0 ? send_matrix(world, service, err)
                                              : receive_transposed(world, service, err);
    }
    ferry_copy_service_close(service);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(2, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
