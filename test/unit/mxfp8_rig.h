/* mxfp8_rig.h - a sender and a receiver of the MXFP8 transform with one tensor between them.
 *
 * The tensor is cut into slices; what a session would do with the payloads (memory for those that have
 * none, the copy, the cast) is done here the slow way. The expected bytes come from a quantiser in
 * double arithmetic that knows nothing of src/kernel. For one test file: there is one rig. */
#ifndef FERRY_TEST_MXFP8_RIG_H
#define FERRY_TEST_MXFP8_RIG_H

#include <stdlib.h>

#include "oracle/unit.h"

#include <ferry/transform.h>

#include "kernel_oracle.h"

enum {
    MAX_SLICES = 4096,
    MAX_DIMS = 3,
    UNTOUCHED = 0xee,
};

#define NAME "layers.0.mlp.w1"

/* ---- what the test's own ferry_staging_take and malloc keep account of ---- */

static uint64_t staging_taken;
static unsigned staging_calls;
static uint64_t staging_budget = UINT64_MAX;
static void *staging_pieces[8];
static bool allocation_counts; /* in a run */
static unsigned allocations;

static void give_staging_back(void) {
    for (unsigned i = 0; i < staging_calls; i++) {
        free(staging_pieces[i]);
    }
    staging_calls = 0;
    staging_taken = 0;
}

/* ---- tensors ---- */

typedef struct tensor {
    uint8_t *memory;
    size_t bytes;
    ferry_view_t view;
} tensor_t;

static uint64_t count_elements(uint32_t ndim, const uint64_t *shape) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        elements *= shape[i];
    }
    return elements;
}

/* Memory full of UNTOUCHED; with rng, dims in any order in memory and with gaps. */
static tensor_t make_tensor(uint64_t *rng, ferry_dtype_t dtype, uint32_t ndim,
                            const uint64_t *shape) {
    tensor_t tensor = {0};
    uint32_t order[MAX_DIMS] = {0, 1, 2};
    uint64_t margin = rng != NULL ? oracle_below(rng, 3) * 5 : 0;
    assert_int_equal(ferry_view_contiguous(NULL, dtype, ndim, shape, &tensor.view, NULL), FERRY_OK);
    uint64_t stride = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        if (rng != NULL && oracle_below(rng, 4) == 0) {
            uint32_t other = (uint32_t)oracle_below(rng, i + 1);
            uint32_t held = order[i];
            order[i] = order[other];
            order[other] = held;
        }
        tensor.view.strides[order[i]] = (int64_t)stride;
        stride *= shape[order[i]] + (rng != NULL ? oracle_below(rng, 3) : 0);
    }
    size_t width = ferry_dtype_bits(dtype) / 8;
    tensor.bytes = (stride + margin + 1) * width;
    tensor.memory = malloc(tensor.bytes);
    assert_non_null(tensor.memory);
    memset(tensor.memory, UNTOUCHED, tensor.bytes);
    tensor.view.data = tensor.memory + margin * width;
    return tensor;
}

static void fill(uint64_t *rng, const tensor_t *tensor) {
    int around = (int)oracle_below(rng, 60) - 30 + (oracle_below(rng, 8) == 0 ? 100 : 0);
    uint64_t elements = count_elements(tensor->view.ndim, tensor->view.shape);
    for (uint64_t i = 0; i < elements; i++) {
        double value = ldexp((double)(int64_t)oracle_draw(rng), -63 + around - (int)(i % 11));
        uint64_t odd = oracle_below(rng, 3000);
        value = odd < 10 ? 0 : odd == 10 ? (double)NAN : odd == 11 ? -(double)INFINITY : value;
        oracle_cast(oracle_at(&tensor->view, i), tensor->view.dtype, &value, FERRY_F64, false);
    }
}

/* ---- the quantiser that ferry's is compared with ---- */

static double value_at(const ferry_view_t *view, uint64_t index, ferry_dtype_t by_way_of) {
    uint64_t narrow = 0;
    double value = 0;
    oracle_cast(&narrow, by_way_of, oracle_at(view, index), view->dtype, false);
    oracle_cast(&value, FERRY_F64, &narrow, by_way_of, false);
    return value;
}

static int scale_exponent(const double *block) {
    double most = 0;
    for (int i = 0; i < FERRY_MX_BLOCK; i++) {
        double size = block[i] < 0 ? -block[i] : block[i];
        most = size > most ? size : most; /* a NaN is not greater */
    }
    int exponent = -126;
    if (isinf(most)) {
        return 120;
    }
    while (exponent < 127 && ldexp(1, exponent + 1) <= most) {
        exponent++;
    }
    return exponent - 8 < -127 || most < ldexp(1, exponent) ? -127 : exponent - 8;
}

static uint64_t swizzled_place(uint64_t row, uint64_t block, uint64_t blocks) {
    uint64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

/* Quantises the whole, whose values first become `by_way_of`. */
static void quantise_whole(const tensor_t *data, const tensor_t *scales, ferry_mx_layout_t layout,
                           const ferry_view_t *source, ferry_dtype_t by_way_of) {
    uint64_t columns = source->shape[source->ndim - 1];
    uint64_t blocks = columns / FERRY_MX_BLOCK;
    uint64_t nblocks = count_elements(source->ndim, source->shape) / FERRY_MX_BLOCK;
    if (layout == FERRY_MX_SWIZZLED) {
        memset(scales->view.data, 0, scales->view.shape[0]);
    }
    for (uint64_t b = 0; b < nblocks; b++) {
        double block[FERRY_MX_BLOCK];
        for (uint64_t i = 0; i < FERRY_MX_BLOCK; i++) {
            block[i] = value_at(source, b * FERRY_MX_BLOCK + i, by_way_of);
        }
        int exponent = scale_exponent(block);
        uint64_t place =
            layout == FERRY_MX_ROWS ? b : swizzled_place(b / blocks, b % blocks, blocks);
        *oracle_at(&scales->view, place) = (uint8_t)(exponent + 127);
        for (uint64_t i = 0; i < FERRY_MX_BLOCK; i++) {
            double scaled = ldexp(block[i], -exponent);
            oracle_cast(oracle_at(&data->view, b * FERRY_MX_BLOCK + i), FERRY_F8E4M3, &scaled,
                        FERRY_F64, true);
        }
    }
}

/* ---- the rig ---- */

typedef struct box {
    uint64_t lo[MAX_DIMS];
    uint64_t extent[MAX_DIMS];
} box_t;

typedef struct rig {
    ferry_dtype_t source_dtype;
    ferry_dtype_t target_dtype; /* as the plan has it */
    uint32_t ndim;
    uint64_t shape[MAX_DIMS];
    uint64_t shift[MAX_DIMS]; /* of the shard in the sender's tensor */
    ferry_mx_layout_t layout;
    ferry_mx_convert_t convert;
    uint32_t copies;
    uint64_t *rng; /* NULL: everything without gaps */
    tensor_t source;
    ferry_view_t shard; /* what of the source is sent */
    tensor_t data[2];
    tensor_t scales[2];
    ferry_mxfp8_t *sender;
    ferry_mxfp8_t *receiver;
    box_t boxes[MAX_SLICES];
    size_t nboxes;
    ferry_view_t send[MAX_SLICES][2];
    ferry_view_t recv[2][MAX_SLICES][2];
    size_t npayloads;
    uint8_t *staged[3 * 2 * MAX_SLICES];
    size_t nstaged;
} rig_t;

static rig_t rig;

static void rig_open(uint64_t *rng, ferry_mx_layout_t layout, ferry_mx_convert_t convert,
                     uint32_t ndim, const uint64_t *shape) {
    rig.layout = layout;
    rig.convert = convert;
    rig.ndim = ndim;
    rig.rng = rng;
    uint64_t held[MAX_DIMS];
    uint64_t scale_shape[MAX_DIMS];
    for (uint32_t i = 0; i < ndim; i++) {
        rig.shape[i] = shape[i];
        rig.shift[i] = rng != NULL ? oracle_below(rng, 20) : 0;
        held[i] = shape[i] + rig.shift[i] + (rng != NULL ? oracle_below(rng, 3) : 0);
        scale_shape[i] = shape[i];
    }
    uint32_t scale_ndim = ndim;
    scale_shape[ndim - 1] /= FERRY_MX_BLOCK;
    if (layout == FERRY_MX_SWIZZLED) {
        uint64_t columns = shape[ndim - 1];
        uint64_t rows = columns == 0 ? 0 : count_elements(ndim, shape) / columns;
        assert_ok(ferry_mx_swizzled_bytes(rows, columns, scale_shape, &err));
        scale_ndim = 1;
    }
    rig.source = make_tensor(rng, rig.source_dtype, ndim, held);
    assert_ok(ferry_view_slice(&rig.source.view, rig.shift, shape, &rig.shard, &err));
    ferry_mx_target_t target = {.name = NAME, .layout = layout};
    for (uint32_t copy = 0; copy < rig.copies; copy++) {
        rig.data[copy] = make_tensor(rng, FERRY_F8E4M3, ndim, shape);
        rig.scales[copy] =
            make_tensor(layout == FERRY_MX_ROWS ? rng : NULL, FERRY_E8M0, scale_ndim, scale_shape);
        target.data[copy] = rig.data[copy].view;
        target.scales[copy] = rig.scales[copy].view;
    }
    const char *names[] = {"other", NAME};
    assert_ok(ferry_mxfp8_create(names, 2, NULL, 0, convert, &rig.sender, &err));
    assert_ok(ferry_mxfp8_create(names, 2, &target, 1, convert, &rig.receiver, &err));
    rig.nboxes = 0;
    rig.nstaged = 0;
}

static void rig_release(void) {
    ferry_mxfp8_transform(rig.receiver)->release(rig.receiver);
    give_staging_back();
    for (size_t i = 0; i < rig.nstaged; i++) {
        free(rig.staged[i]);
    }
    rig.nstaged = 0;
}

static void rig_close(void) {
    rig_release();
    ferry_mxfp8_destroy(rig.sender);
    ferry_mxfp8_destroy(rig.receiver);
    free(rig.source.memory);
    for (uint32_t copy = 0; copy < rig.copies; copy++) {
        free(rig.data[copy].memory);
        free(rig.scales[copy].memory);
    }
}

static ferry_slice_t slice_of(const box_t *box, bool sending, uint32_t copy, uint64_t *lo) {
    for (uint32_t i = 0; i < rig.ndim; i++) {
        lo[i] = box->lo[i] + (sending ? rig.shift[i] : 0);
    }
    ferry_slice_t slice = {
        .name = NAME,
        .peer = sending ? 1 : 0,
        .dtype = sending ? rig.source_dtype : rig.target_dtype,
        .ndim = rig.ndim,
        .local_shape = sending ? rig.source.view.shape : rig.shape,
        .lo = lo,
        .extent = box->extent,
        .copy = copy,
    };
    return slice;
}

static ferry_status_t reserve(uint32_t copies, ferry_error_t *err) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.receiver);
    return table->reserve(table->context, NAME, rig.target_dtype, rig.ndim, rig.shape, copies, NULL,
                          err);
}

static ferry_status_t prepare_recv(const box_t *box, uint32_t copy, ferry_view_t *payloads,
                                   size_t *count_p, ferry_error_t *err) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.receiver);
    uint64_t lo[MAX_DIMS];
    ferry_slice_t slice = slice_of(box, false, copy, lo);
    return table->prepare_recv(table->context, &slice, payloads, count_p, err);
}

static ferry_status_t prepare_send(const box_t *box, ferry_view_t *payloads, size_t *count_p,
                                   ferry_error_t *record) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.sender);
    ferry_view_t source;
    uint64_t lo[MAX_DIMS];
    ferry_slice_t slice = slice_of(box, true, 0, lo);
    assert_ok(ferry_view_slice(&rig.source.view, lo, box->extent, &source, &err));
    return table->prepare_send(table->context, &slice, &source, payloads, count_p, record);
}

/* Memory for a payload that has none, as ferry gives it. */
static void stage(ferry_view_t *payload) {
    if (payload->data != NULL) {
        return;
    }
    uint64_t elements = count_elements(payload->ndim, payload->shape);
    uint8_t *memory = malloc(elements * 4 + 1);
    assert_non_null(memory);
    memset(memory, UNTOUCHED, elements * 4 + 1);
    rig.staged[rig.nstaged++] = memory;
    assert_ok(ferry_view_contiguous(memory, payload->dtype, payload->ndim, payload->shape, payload,
                                    &err));
}

static void prepare_all(void) {
    assert_ok(reserve(rig.copies, &err));
    for (size_t i = 0; i < rig.nboxes; i++) {
        ferry_view_t payloads[FERRY_MAX_PAYLOADS];
        assert_ok(prepare_send(&rig.boxes[i], payloads, &rig.npayloads, &err));
        assert_int_equal(rig.npayloads, rig.convert == FERRY_MX_ON_SENDER ? 2 : 1);
        memcpy(rig.send[i], payloads, sizeof rig.send[i]);
        for (uint32_t copy = 0; copy < rig.copies; copy++) {
            size_t count = 0;
            assert_ok(prepare_recv(&rig.boxes[i], copy, payloads, &count, &err));
            assert_int_equal(count, rig.npayloads);
            memcpy(rig.recv[copy][i], payloads, sizeof rig.recv[copy][i]);
        }
        for (size_t p = 0; p < rig.npayloads; p++) {
            stage(&rig.send[i][p]);
            for (uint32_t copy = 0; copy < rig.copies; copy++) {
                const ferry_view_t *recv = &rig.recv[copy][i][p];
                assert_int_equal(recv->ndim, rig.send[i][p].ndim);
                assert_memory_equal(recv->shape, rig.send[i][p].shape, recv->ndim * 8);
                stage(&rig.recv[copy][i][p]);
            }
        }
    }
}

static ferry_status_t begin(ferry_error_t *err) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.receiver);
    allocation_counts = true;
    ferry_status_t status = table->begin(table->context, err);
    allocation_counts = false;
    return status;
}

static ferry_status_t finalize(size_t box, uint32_t copy, ferry_error_t *err) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.receiver);
    uint64_t lo[MAX_DIMS];
    ferry_slice_t slice = slice_of(&rig.boxes[box], false, copy, lo);
    allocation_counts = true;
    ferry_status_t status =
        table->finalize_recv(table->context, &slice, rig.recv[copy][box], rig.npayloads, err);
    allocation_counts = false;
    return status;
}

static void move(size_t box, uint32_t copy) {
    const ferry_transform_t *table = ferry_mxfp8_transform(rig.sender);
    uint64_t lo[MAX_DIMS];
    ferry_slice_t slice = slice_of(&rig.boxes[box], true, 0, lo);
    ferry_view_t source;
    assert_ok(ferry_view_slice(&rig.source.view, lo, slice.extent, &source, &err));
    if (table->fill_send != NULL) {
        allocation_counts = true;
        assert_ok(
            table->fill_send(table->context, &slice, &source, rig.send[box], rig.npayloads, &err));
        allocation_counts = false;
    }
    for (size_t p = 0; p < rig.npayloads; p++) {
        const ferry_view_t *from = &rig.send[box][p];
        const ferry_view_t *to = &rig.recv[copy][box][p];
        uint64_t elements = count_elements(from->ndim, from->shape);
        for (uint64_t i = 0; i < elements; i++) {
            oracle_cast(oracle_at(to, i), to->dtype, oracle_at(from, i), from->dtype, false);
        }
    }
}

static void run_all(uint32_t copy) {
    assert_ok(begin(&err));
    size_t order[MAX_SLICES];
    for (size_t i = 0; i < rig.nboxes; i++) {
        order[i] = i;
    }
    for (size_t i = rig.nboxes; rig.rng != NULL && i-- > 1;) {
        size_t other = oracle_below(rig.rng, i + 1);
        size_t held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
    for (size_t i = 0; i < rig.nboxes; i++) {
        move(order[i], copy);
        assert_ok(finalize(order[i], copy, &err));
    }
}

/* Every byte of the target's memory, those around the views included. */
static bool is_right(uint32_t copy) {
    ferry_dtype_t by_way_of = rig.convert == FERRY_MX_ON_SENDER ? rig.source_dtype
                              : rig.layout == FERRY_MX_SWIZZLED ? FERRY_BF16
                                                                : rig.target_dtype;
    tensor_t data = rig.data[copy];
    tensor_t scales = rig.scales[copy];
    data.memory = malloc(data.bytes);
    scales.memory = malloc(scales.bytes);
    assert_true(data.memory != NULL && scales.memory != NULL);
    memset(data.memory, UNTOUCHED, data.bytes);
    memset(scales.memory, UNTOUCHED, scales.bytes);
    data.view.data = data.memory + ((uint8_t *)data.view.data - rig.data[copy].memory);
    scales.view.data = scales.memory + ((uint8_t *)scales.view.data - rig.scales[copy].memory);
    quantise_whole(&data, &scales, rig.layout, &rig.shard, by_way_of);
    bool right = memcmp(data.memory, rig.data[copy].memory, data.bytes) == 0 &&
                 memcmp(scales.memory, rig.scales[copy].memory, scales.bytes) == 0;
    free(data.memory);
    free(scales.memory);
    return right;
}

static void add_box(uint64_t row, uint64_t rows, uint64_t column, uint64_t columns) {
    box_t box = {{row, column}, {rows, columns}};
    rig.boxes[rig.nboxes++] = box;
}

static void open_plain(ferry_mx_layout_t layout, ferry_mx_convert_t convert, uint64_t rows,
                       uint64_t columns) {
    static uint64_t values = 7;
    uint64_t shape[] = {rows, columns};
    rig.copies = 1;
    rig.source_dtype = FERRY_BF16;
    rig.target_dtype = FERRY_BF16;
    rig_open(NULL, layout, convert, 2, shape);
    fill(&values, &rig.source);
}

#endif
