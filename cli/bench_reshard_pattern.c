/* bench_reshard_pattern.c - what stands in a tensor, and whether it arrived.
 *
 * There is one line of PERIOD values. A row of a tensor is that line from a place on that depends on tensor and
 * row, over and over; so filling and looking are plain memory copies and comparisons, and a row or column in
 * a wrong place shows.
 *
 * Nothing here uses the library's kernels but the encoding of the sixteen values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_reshard_shards.h"
#include "error.h"

enum {
    PERIOD = 65521, /* prime: columns that a mistake would swap are no multiple of it apart */
    VALUES = 16,
    DTYPES = 32,
    LINE_BYTES_MAX = 8,
};

struct reshard_pattern {
    uint8_t *lines[DTYPES]; /* by dtype, made when it is first needed */
    float f8[256];          /* f8e4m3 and e8m0 as numbers */
    float scale[256];
};

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- the line ---------------------------------------------------------------------------------- */

static float value_of(uint64_t which) {
    float magnitude = (float)(1 + which % (VALUES / 2));
    return which < VALUES / 2 ? magnitude : -magnitude;
}

static ferry_status_t encode(ferry_dtype_t dtype, uint8_t *values_p, ferry_error_t *err) {
    static const uint64_t shape[] = {VALUES};
    float values[VALUES];
    for (uint64_t i = 0; i < VALUES; i++) {
        values[i] = value_of(i);
    }
    ferry_view_t source;
    ferry_view_t target;
    ferry_status_t status = ferry_view_contiguous(values, FERRY_F32, 1, shape, &source, err);
    if (status == FERRY_OK) {
        status = ferry_view_contiguous(values_p, dtype, 1, shape, &target, err);
    }
    return status == FERRY_OK ? ferry_view_copy(&target, &source, 0, err) : status;
}

static ferry_status_t line_of(reshard_pattern_t *pattern, ferry_dtype_t dtype,
                              const uint8_t **line_p, ferry_error_t *err) {
    size_t size = ferry_dtype_bits(dtype) / 8;
    if (pattern->lines[dtype] == NULL) {
        uint8_t values[VALUES * LINE_BYTES_MAX];
        ferry_status_t status = encode(dtype, values, err);
        if (status != FERRY_OK) {
            return status;
        }
        uint8_t *line = malloc(PERIOD * size);
        if (line == NULL) {
            return cli_fail_nomem(err);
        }
        for (uint64_t i = 0; i < PERIOD; i++) {
            memcpy(line + i * size, values + mix(i) % VALUES * size, size);
        }
        pattern->lines[dtype] = line;
    }
    *line_p = pattern->lines[dtype];
    return FERRY_OK;
}

static float decode_f8e4m3(unsigned bits) {
    int exponent = (int)(bits >> 3 & 15);
    int mantissa = (int)(bits & 7);
    float magnitude =
        exponent > 0 ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    if (exponent == 15 && mantissa == 7) {
        magnitude = NAN;
    }
    return (bits & 128) != 0 ? -magnitude : magnitude;
}

ferry_status_t reshard_pattern_create(reshard_pattern_t **pattern_p, ferry_error_t *err) {
    reshard_pattern_t *pattern = calloc(1, sizeof *pattern);
    if (pattern == NULL) {
        return cli_fail_nomem(err);
    }
    for (int i = 0; i < 256; i++) {
        pattern->f8[i] = decode_f8e4m3((unsigned)i);
        pattern->scale[i] = i < 255 ? ldexpf(1, i - 127) : NAN;
    }
    *pattern_p = pattern;
    return FERRY_OK;
}

void reshard_pattern_destroy(reshard_pattern_t *pattern) {
    for (int i = 0; pattern != NULL && i < DTYPES; i++) {
        free(pattern->lines[i]);
    }
    free(pattern);
}

/* ---- walking a shard --------------------------------------------------------------------------- */

/* A stretch of a shard: `count` elements from element `at` on hold the line from place `phase` on. */
typedef struct stretch {
    uint64_t at;
    uint64_t phase;
    uint64_t count;
} stretch_t;

/* False stops the walk. */
typedef bool (*visit_t)(void *context, const stretch_t *stretch);

/* What a rank holds of one dim. */
typedef struct held {
    ferry_interval_t *list;
    size_t count;
} held_t;

static ferry_status_t held_init(const ferry_tensor_t *tensor, uint32_t rank, uint32_t dim,
                                held_t *held_p, ferry_error_t *err) {
    size_t count = 0;
    ferry_status_t status = ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape,
                                                   rank, dim, NULL, 0, &count, err);
    if (status != FERRY_OK) {
        return status;
    }
    held_p->list = calloc(count + 1, sizeof *held_p->list);
    held_p->count = count;
    if (held_p->list == NULL) {
        return cli_fail_nomem(err);
    }
    return ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim,
                                  held_p->list, count, &count, err);
}

static uint64_t global_of(const held_t *held, uint64_t local) {
    size_t i = 0;
    while (local >= held->list[i].hi - held->list[i].lo) {
        local -= held->list[i].hi - held->list[i].lo;
        i++;
    }
    return held->list[i].lo + local;
}

static bool visit_row(uint64_t seed, const held_t *columns, uint64_t at, visit_t visit,
                      void *context) {
    uint64_t from = mix(seed) % PERIOD;
    for (size_t i = 0; i < columns->count; i++) {
        uint64_t length = columns->list[i].hi - columns->list[i].lo;
        stretch_t stretch = {at, (from + columns->list[i].lo) % PERIOD, length};
        if (!visit(context, &stretch)) {
            return false;
        }
        at += length;
    }
    return true;
}

/* Visits all elements of a shard that has some. */
static void walk(const ferry_tensor_t *tensor, size_t ordinal, const reshard_shard_t *shard,
                 const held_t *held, visit_t visit, void *context) {
    static ferry_interval_t one = {0, 1};
    static const held_t scalar = {&one, 1};
    uint32_t rows = tensor->ndim > 0 ? tensor->ndim - 1 : 0; /* dims that count rows */
    const held_t *columns = tensor->ndim > 0 ? &held[rows] : &scalar;
    uint64_t width = tensor->ndim > 0 ? shard->shape[rows] : 1;
    for (uint64_t row = 0; row * width < shard->elements; row++) {
        uint64_t rest = row;
        uint64_t global = 0;
        uint64_t weight = 1;
        for (uint32_t d = rows; d-- > 0;) {
            global += weight * global_of(&held[d], rest % shard->shape[d]);
            weight *= tensor->shape[d];
            rest /= shard->shape[d];
        }
        uint64_t seed = ((uint64_t)ordinal + 1) * UINT64_C(0x9e3779b97f4a7c15) + global;
        if (!visit_row(seed, columns, row * width, visit, context)) {
            return;
        }
    }
}

static ferry_status_t walk_shard(const ferry_tensor_t *tensor, size_t ordinal,
                                 const reshard_shard_t *shard, uint32_t rank, visit_t visit,
                                 void *context, ferry_error_t *err) {
    held_t held[FERRY_MAX_DIMS] = {{NULL, 0}};
    ferry_status_t status = FERRY_OK;
    for (uint32_t d = 0; status == FERRY_OK && d < tensor->ndim; d++) {
        status = held_init(tensor, rank, d, &held[d], err);
    }
    if (status == FERRY_OK) {
        walk(tensor, ordinal, shard, held, visit, context);
    }
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        free(held[d].list);
    }
    return status;
}

/* ---- filling ----------------------------------------------------------------------------------- */

typedef struct values {
    const uint8_t *line;
    size_t size; /* of an element */
    uint8_t *data;
    const uint8_t *seen; /* the same, only looked at */
    bool right;
} values_t;

static bool fill_stretch(void *context, const stretch_t *stretch) {
    const values_t *values = context;
    uint64_t phase = stretch->phase;
    for (uint64_t done = 0; done < stretch->count;) {
        uint64_t left = stretch->count - done;
        uint64_t part = PERIOD - phase < left ? PERIOD - phase : left;
        memcpy(values->data + (stretch->at + done) * values->size,
               values->line + phase * values->size, part * values->size);
        done += part;
        phase = 0;
    }
    return true;
}

ferry_status_t reshard_fill(reshard_pattern_t *pattern, const ferry_tensor_t *tensors,
                            const reshard_shards_t *shards, uint32_t rank, void *base,
                            ferry_error_t *err) {
    ferry_status_t status = FERRY_OK;
    for (size_t i = 0; status == FERRY_OK && i < shards->count; i++) {
        const reshard_shard_t *shard = &shards->list[i];
        if (shard->elements == 0) {
            continue;
        }
        values_t values = {.size = ferry_dtype_bits(shard->dtype) / 8,
                           .data = (uint8_t *)base + shard->at};
        status = line_of(pattern, shard->dtype, &values.line, err);
        if (status == FERRY_OK) {
            status = walk_shard(&tensors[i], i, shard, rank, fill_stretch, &values, err);
        }
    }
    return status;
}

/* ---- looking ----------------------------------------------------------------------------------- */

static bool match_stretch(void *context, const stretch_t *stretch) {
    values_t *values = context;
    uint64_t phase = stretch->phase;
    for (uint64_t done = 0; values->right && done < stretch->count;) {
        uint64_t left = stretch->count - done;
        uint64_t part = PERIOD - phase < left ? PERIOD - phase : left;
        values->right = memcmp(values->seen + (stretch->at + done) * values->size,
                               values->line + phase * values->size, part * values->size) == 0;
        done += part;
        phase = 0;
    }
    return values->right;
}

typedef struct quantised {
    const reshard_pattern_t *pattern;
    const float *line;
    const uint8_t *data;
    const uint8_t *scales;
    uint64_t columns;
    ferry_mx_layout_t layout;
    bool right;
} quantised_t;

/* Where the scale of a row's block is (kernel.h). */
static uint64_t scale_at(const quantised_t *mx, uint64_t row, uint64_t block) {
    uint64_t blocks = mx->columns / FERRY_MX_BLOCK;
    if (mx->layout == FERRY_MX_ROWS) {
        return row * blocks + block;
    }
    uint64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
    return tile * 512 + row % 32 * 16 + row / 32 % 4 * 4 + block % 4;
}

static bool match_quantised(void *context, const stretch_t *stretch) {
    quantised_t *mx = context;
    uint64_t phase = stretch->phase;
    uint64_t row = stretch->at / mx->columns; /* a stretch is a part of one row */
    uint64_t first = stretch->at % mx->columns;
    float scale = 0;
    for (uint64_t i = 0; i < stretch->count; i++) {
        uint64_t column = first + i;
        if (i == 0 || column % FERRY_MX_BLOCK == 0) {
            scale = mx->pattern->scale[mx->scales[scale_at(mx, row, column / FERRY_MX_BLOCK)]];
        }
        float value = mx->pattern->f8[mx->data[stretch->at + i]] * scale;
        if (value != mx->line[phase]) {
            mx->right = false;
            return false;
        }
        phase = phase + 1 < PERIOD ? phase + 1 : 0;
    }
    return true;
}

static ferry_status_t verify_shard(reshard_pattern_t *pattern, const ferry_tensor_t *tensor,
                                   size_t ordinal, const reshard_shard_t *shard,
                                   ferry_mx_layout_t layout, uint32_t rank, const uint8_t *base,
                                   bool *right_p, ferry_error_t *err) {
    const uint8_t *line = NULL;
    ferry_dtype_t dtype = shard->mx ? FERRY_F32 : shard->dtype;
    ferry_status_t status = line_of(pattern, dtype, &line, err);
    if (status != FERRY_OK) {
        return status;
    }
    if (shard->mx) {
        quantised_t mx = {pattern,
                          (const float *)(const void *)line,
                          base + shard->at,
                          base + shard->scales,
                          shard->shape[1],
                          layout,
                          true};
        status = walk_shard(tensor, ordinal, shard, rank, match_quantised, &mx, err);
        *right_p = mx.right;
        return status;
    }
    values_t values = {
        .line = line, .size = ferry_dtype_bits(dtype) / 8, .seen = base + shard->at, .right = true};
    status = walk_shard(tensor, ordinal, shard, rank, match_stretch, &values, err);
    *right_p = values.right;
    return status;
}

ferry_status_t reshard_verify(reshard_pattern_t *pattern, const ferry_tensor_t *tensors,
                              const reshard_shards_t *shards, ferry_mx_layout_t layout,
                              uint32_t rank, const void *base, ferry_error_t *err) {
    for (size_t i = 0; i < shards->count; i++) {
        if (shards->list[i].elements == 0) {
            continue;
        }
        bool right = false;
        ferry_status_t status = verify_shard(pattern, &tensors[i], i, &shards->list[i], layout,
                                             rank, base, &right, err);
        if (status != FERRY_OK) {
            return status;
        }
        if (!right) {
            return cli_fail(err, FERRY_CORRUPT, "%s arrived wrong", tensors[i].name);
        }
    }
    return FERRY_OK;
}
