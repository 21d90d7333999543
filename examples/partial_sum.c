/* partial_sum.c - sums that are still in parts are added up on the way.
 *
 * Four ranks have each computed a gradient of the same 96 x 64 matrix from their part of a batch, in f32.
 * The gradient is the sum of the four: nobody holds it yet. The layout "4:P(sum)" says so. Two other ranks
 * want it in bf16, cut by columns. ferry adds up in f32, in a fixed order, and casts once, at the end; to
 * cast first and add up in bf16 would lose what the small parts say, and the program shows that.
 *
 *     cc partial_sum.c -lferry && ./a.out */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/mem.h>
#include <ferry/reshard.h>

enum { PARTS = 4, OWNERS = 2, ROWS = 96, COLS = 64 };

#define NAME "mlp.up.weight.grad"

static const uint64_t shape[] = {ROWS, COLS};

/* Rank r's part of an element: one large number, and three small ones that together matter. */
static float part_of(uint32_t r, size_t row, size_t col) {
    return r == 0 ? 1000 + (float)row : 1.5f + (float)(col % 3);
}

static uint16_t round_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* nearest, ties to even */
}

static float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Added up as ferry does: rank 0's part first, in f32. */
static uint16_t expected(size_t row, size_t col) {
    float sum = part_of(0, row, col);
    for (uint32_t r = 1; r < PARTS; r++) {
        sum += part_of(r, row, col);
    }
    return round_to_bf16(sum);
}

/* As it would be with every step in bf16. */
static uint16_t careless(size_t row, size_t col) {
    uint16_t sum = round_to_bf16(part_of(0, row, col));
    for (uint32_t r = 1; r < PARTS; r++) {
        sum = round_to_bf16(from_bf16(sum) + from_bf16(round_to_bf16(part_of(r, row, col))));
    }
    return sum;
}

static ferry_status_t check(const uint16_t *values, uint32_t rank, ferry_error_t *err) {
    size_t first = (size_t)(rank - PARTS) * COLS / OWNERS;
    size_t wrong = 0;
    size_t lost = 0;
    for (size_t i = 0; i < (size_t)ROWS * COLS / OWNERS; i++) {
        size_t row = i / (COLS / OWNERS);
        size_t col = first + i % (COLS / OWNERS);
        wrong += values[i] != expected(row, col);
        lost += careless(row, col) != expected(row, col);
    }
    (void)printf("rank %u: columns %zu to %zu, (0,%zu) is %g; %zu elements are wrong "
                 "(in bf16 all along it would be %zu of %d)\n",
                 rank, first, first + COLS / OWNERS - 1, first, (double)from_bf16(values[0]), wrong,
                 lost, ROWS * COLS / OWNERS);
    if (wrong > 0 || lost == 0) {
        ferry_error_clear(err);
        return err->status = FERRY_CORRUPT;
    }
    return FERRY_OK;
}

/* This rank's tensor, as its layout has it. */
static ferry_status_t take_tensor(ferry_world_t *world, const ferry_tensor_t *tensor,
                                  ferry_bound_t *bound_p, ferry_error_t *err) {
    uint64_t local[2];
    void *memory = NULL;
    ferry_status_t status =
        ferry_layout_local_shape(tensor->layout, 2, shape, ferry_world_rank(world), local, err);
    if (status == FERRY_OK) {
        size_t bytes = local[0] * local[1] * ferry_dtype_bits(tensor->dtype) / 8;
        status = ferry_mem_alloc(world, bytes, &memory, err);
    }
    bound_p->name = tensor->name;
    return status == FERRY_OK
               ? ferry_view_contiguous(memory, tensor->dtype, 2, local, &bound_p->view, err)
               : status;
}

static ferry_status_t reduce_and_move(ferry_world_t *world, const ferry_plan_t *plan,
                                      const ferry_tensor_t sides[2], ferry_copy_service_t *service,
                                      ferry_error_t *err) {
    uint32_t rank = ferry_world_rank(world);
    bool has_part = rank < PARTS;
    ferry_bound_t bound = {0};
    ferry_status_t status = take_tensor(world, &sides[has_part ? 0 : 1], &bound, err);
    if (status != FERRY_OK) {
        return status;
    }
    float *part = bound.view.data;
    for (size_t i = 0; has_part && i < (size_t)ROWS * COLS; i++) {
        part[i] = part_of(rank, i / COLS, i % COLS);
    }
    ferry_tensors_t mine = {&bound, 1};
    ferry_tensors_t none = {NULL, 0};
    status = ferry_reshard_execute(plan, has_part ? mine : none, has_part ? none : mine, service,
                                   NULL, NULL, NULL, err);
    return status == FERRY_OK && !has_part ? check(bound.view.data, rank, err) : status;
}

static ferry_status_t rank_main(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    ferry_layout_t *parts = NULL;
    ferry_layout_t *columns = NULL;
    ferry_plan_t *plan = NULL;
    ferry_copy_service_t *service = NULL;
    ferry_status_t status = ferry_layout_parse("4:P(sum)", &parts, err);
    if (status == FERRY_OK) {
        status = ferry_layout_parse("2:S1@4-5", &columns, err);
    }
    ferry_tensor_t sides[2] = {{NAME, FERRY_F32, 2, shape, parts},
                               {NAME, FERRY_BF16, 2, shape, columns}};
    ferry_plan_params_t params = FERRY_PLAN_PARAMS_INIT;
    params.flags = FERRY_PLAN_ALLOW_CAST | FERRY_PLAN_PART;
    params.rank = ferry_world_rank(world);
    params.sources = &sides[0];
    params.targets = &sides[1];
    params.nsources = params.ntargets = 1;
    if (status == FERRY_OK) {
        status = ferry_plan_create(&params, &plan, err);
    }
    if (status == FERRY_OK) {
        status = ferry_copy_service_create(ferry_world_group(world), NULL, &service, err);
    }
    if (status == FERRY_OK) {
        status = reduce_and_move(world, plan, sides, service, err);
    }
    ferry_copy_service_close(service);
    ferry_plan_destroy(plan);
    ferry_layout_destroy(parts);
    ferry_layout_destroy(columns);
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_world_run_processes(PARTS + OWNERS, rank_main, NULL, NULL, NULL, &err) != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
