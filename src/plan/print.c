/* print.c - the readable form of a plan. Described in docs/formats/plan.md.
 *
 * Lines are built in a buffer and handed to the sink when it fills; a line longer than the buffer (a
 * layout of scattered ranks) gets memory of its own. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "plan/plan.h"

enum { BUFFER_BYTES = 64 * 1024, LINE_BYTES = 4096 };

typedef struct printer {
    ferry_text_sink_t sink;
    void *context;
    char *buffer;
    size_t used;
    ferry_error_t *err;
} printer_t;

static ferry_status_t emit(printer_t *p, const char *text, size_t length) {
    ferry_status_t status = p->sink(p->context, text, length);
    return status != FERRY_OK ? fy_fail(p->err, status, "writing a plan as text was stopped")
                              : FERRY_OK;
}

static ferry_status_t flush(printer_t *p) {
    size_t length = p->used;
    p->used = 0;
    return length > 0 ? emit(p, p->buffer, length) : FERRY_OK;
}

/* A text that may use the rest of the buffer, at least LINE_BYTES of it. */
static ferry_status_t line_begin(printer_t *p, fy_text_t *line) {
    if (BUFFER_BYTES - p->used < LINE_BYTES) {
        FY_TRY(flush(p));
    }
    fy_text_init(line, p->buffer + p->used, BUFFER_BYTES - p->used);
    return FERRY_OK;
}

static void line_end(printer_t *p, const fy_text_t *line) {
    p->used += line->length < line->cap ? line->length : line->cap - 1;
}

static ferry_status_t print_layout(printer_t *p, size_t number, const ferry_layout_t *layout) {
    size_t need = ferry_layout_format(layout, NULL, 0) + 1;
    char *text = fy_alloc(need, 1);
    if (text == NULL) {
        return fy_fail_nomem(p->err, "a layout as text");
    }
    (void)ferry_layout_format(layout, text, need);
    fy_text_t line;
    ferry_status_t status = line_begin(p, &line);
    if (status == FERRY_OK) {
        fy_text_printf(&line, "layout %zu ", number);
        line_end(p, &line);
        status = flush(p);
    }
    if (status == FERRY_OK) {
        text[need - 1] = '\n'; /* in the place of its end */
        status = emit(p, text, need);
    }
    fy_free(text);
    return status;
}

static ferry_status_t print_tensor(printer_t *p, const ferry_plan_t *plan, uint32_t t) {
    const fy_pattern_t *pattern = fy_plan_pattern_of(plan, t);
    fy_text_t line;
    FY_TRY(line_begin(p, &line));
    fy_text_printf(&line, "tensor %" PRIu32 " %s->%s ", t, ferry_dtype_name(pattern->source_dtype),
                   ferry_dtype_name(pattern->target_dtype));
    fy_text_shape(&line, pattern->ndim, pattern->shape);
    /* The name comes last: it is the only field that may hold anything. */
    fy_text_printf(&line, " layout %" PRIu32 "->%" PRIu32 " %.2048s\n", pattern->source,
                   pattern->target, plan->tensors[t].name);
    line_end(p, &line);
    return FERRY_OK;
}

static ferry_status_t print_transfer(printer_t *p, const ferry_transfer_t *t) {
    fy_text_t line;
    FY_TRY(line_begin(p, &line));
    fy_text_printf(&line, "move %" PRIu32 ".%" PRIu32 ".%" PRIu32 " rank %" PRIu32 " ", t->tensor,
                   t->target, t->piece, t->source);
    fy_text_region(&line, t->ndim, t->source_lo, t->extent);
    fy_text_printf(&line, " -> rank %" PRIu32 " ", t->target);
    fy_text_region(&line, t->ndim, t->target_lo, t->extent);
    fy_text_printf(&line, " %" PRIu64 " bytes\n", t->bytes);
    line_end(p, &line);
    return FERRY_OK;
}

static ferry_status_t print_all(printer_t *p, const ferry_plan_t *plan) {
    fy_text_t line;
    FY_TRY(line_begin(p, &line));
    fy_text_printf(&line, "ferry plan %d\nhash %016" PRIx64 "\n", FERRY_PLAN_FORMAT_VERSION,
                   plan->hash);
    if (plan->rank != FERRY_RANK_NONE) {
        fy_text_printf(&line, "part of rank %" PRIu32 "\n", plan->rank);
    }
    fy_text_printf(&line, "%" PRIu32 " tensors, %zu layouts, %" PRIu64 " transfers\n",
                   plan->ntensors, plan->nsides, plan->ntransfers);
    line_end(p, &line);
    for (size_t s = 0; s < plan->nsides; s++) {
        FY_TRY(print_layout(p, s, plan->sides[s].layout));
    }
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        FY_TRY(print_tensor(p, plan, t));
    }
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t transfer;
    while (ferry_plan_next(plan, &cursor, &transfer)) {
        FY_TRY(print_transfer(p, &transfer));
    }
    return flush(p);
}

ferry_status_t ferry_plan_print(const ferry_plan_t *plan, ferry_text_sink_t sink, void *context,
                                ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(sink, err);
    printer_t p = {sink, context, fy_alloc(BUFFER_BYTES, 1), 0, err};
    if (p.buffer == NULL) {
        return fy_fail_nomem(err, "a plan as text");
    }
    ferry_status_t status = print_all(&p, plan);
    fy_free(p.buffer);
    return status;
}
