/* ckpt_text.c - checkpoints in words. */
#include "ckpt_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add_axis(ckpt_spec_t *spec, const char *name, uint32_t size) {
    size_t length = strlen(spec->text);
    if (size > 1) {
        (void)snprintf(spec->text + length, sizeof spec->text - length, "%s%s=%" PRIu32,
                       length > 0 ? "," : "", name, size);
    }
}

ckpt_spec_t ckpt_spec_text(const ferry_parallel_t *parallel) {
    ckpt_spec_t spec = {""};
    add_axis(&spec, "tp", parallel->tp);
    add_axis(&spec, "cp", parallel->cp);
    add_axis(&spec, "pp", parallel->pp);
    add_axis(&spec, "dp", parallel->dp);
    add_axis(&spec, "ep", parallel->ep);
    add_axis(&spec, "etp", parallel->etp);
    if (spec.text[0] == '\0') {
        (void)snprintf(spec.text, sizeof spec.text, "tp=1");
    }
    if (parallel->order[0] != '\0') {
        size_t length = strlen(spec.text);
        (void)snprintf(spec.text + length, sizeof spec.text - length, ",order=%s", parallel->order);
    }
    return spec;
}

ckpt_spec_t ckpt_folder_spec(const ferry_folder_t *folder) {
    ckpt_spec_t whole = {"hf"};
    return ferry_folder_kind(folder) == FERRY_FOLDER_HF
               ? whole
               : ckpt_spec_text(ferry_folder_parallel(folder));
}

ckpt_spec_t ckpt_shape_text(uint32_t ndim, const uint64_t *shape) {
    ckpt_spec_t spec = {"scalar"};
    size_t length = 0;
    for (uint32_t d = 0; d < ndim && length < sizeof spec.text; d++) {
        int more = snprintf(spec.text + length, sizeof spec.text - length, "%s%" PRIu64,
                            d > 0 ? "x" : "", shape[d]);
        length += more > 0 ? (size_t)more : 0;
    }
    return spec;
}

/* Adds to the text what there is room for. */
__attribute__((format(printf, 2, 3))) static void add(ckpt_spec_t *spec, const char *format, ...) {
    size_t length = strlen(spec->text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(spec->text + length, sizeof spec->text - length, format, args);
    va_end(args);
}

static void add_ranks(ckpt_spec_t *spec, const ferry_layout_t *layout) {
    uint32_t count = ferry_layout_nranks(layout);
    const uint32_t *ranks = ferry_layout_ranks(layout);
    uint32_t first = UINT32_MAX;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        first = ranks[i] < first ? ranks[i] : first;
        last = ranks[i] > last ? ranks[i] : last;
    }
    if (count == 1) {
        add(spec, "rank %" PRIu32, first);
    } else if (last - first + 1 == count) {
        add(spec, "ranks %" PRIu32 "-%" PRIu32, first, last);
    } else {
        add(spec, "%" PRIu32 " ranks of %" PRIu32 "-%" PRIu32, count, first, last);
    }
}

ckpt_spec_t ckpt_holders_text(const ferry_layout_t *layout) {
    ckpt_spec_t spec = {""};
    add_ranks(&spec, layout);
    uint32_t parts = 1;
    for (uint32_t a = 0; a < ferry_layout_naxes(layout); a++) {
        uint32_t size = ferry_layout_axis(layout, a)->size;
        const ferry_placement_t *placement = ferry_layout_placement(layout, a);
        if (size > 1 && placement->kind == FERRY_SHARD) {
            parts *= size;
            add(&spec, ", dim %" PRIu32 " in %" PRIu32, placement->dim, size);
        }
    }
    uint32_t copies = ferry_layout_nranks(layout) / parts;
    if (parts == 1) {
        add(&spec, ", whole");
    } else if (copies > 1) {
        add(&spec, ", %" PRIu32 " copies", copies);
    }
    return spec;
}

const char *ckpt_kind_text(ferry_folder_kind_t kind) {
    return kind == FERRY_FOLDER_HF ? "hf" : "ranks";
}
