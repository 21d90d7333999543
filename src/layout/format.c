/* format.c - a layout as text. The grammar is docs/formats/layout.md; parse.c reads it back. */
#include <inttypes.h>

#include "base/text.h"
#include "layout/layout.h"

static void format_list(fy_text_t *text, const char *name, const uint64_t *list, size_t count) {
    fy_text_printf(text, "/%s(", name);
    for (size_t i = 0; i < count; i++) {
        fy_text_printf(text, "%s%" PRIu64, i > 0 ? "," : "", list[i]);
    }
    fy_text_printf(text, ")");
}

static void format_shard(fy_text_t *text, const ferry_placement_t *p) {
    if (p->cut == FERRY_CUT_STRIDED) {
        fy_text_printf(text, "SS(%" PRIu32 ",%" PRIu64 ")", p->dim, p->arg);
    } else {
        fy_text_printf(text, "S%" PRIu32, p->dim);
    }
    if (p->nsizes > 0) {
        format_list(text, "sizes", p->sizes, p->nsizes);
    }
    if (p->cut == FERRY_CUT_STRIDE) {
        fy_text_printf(text, "/stride(%" PRIu64 ")", p->arg);
    }
    if (p->cut == FERRY_CUT_CYCLIC) {
        fy_text_printf(text, "/cyclic(%" PRIu64 ")", p->arg);
    }
    if (p->cut == FERRY_CUT_RAGGED) {
        format_list(text, "ragged", p->lengths, p->nlengths);
    }
    if (p->unit > 0) {
        fy_text_printf(text, "/unit(%" PRIu64 ")", p->unit);
    }
}

size_t ferry_layout_format(const ferry_layout_t *layout, char *buf, size_t cap) {
    fy_text_t text;
    fy_text_init(&text, buf, cap);
    bool counted = true; /* ranks are 0, 1, 2, ... and need not be said */
    for (uint32_t i = 0; i < layout->nranks && counted; i++) {
        counted = layout->ranks[i] == i;
    }
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const ferry_axis_t *axis = &layout->axes[a];
        fy_text_printf(&text, "%s%s%s%" PRIu32, a > 0 ? "x" : "", axis->name,
                       axis->name[0] != '\0' ? "=" : "", axis->size);
    }
    for (uint32_t a = 0; a < layout->naxes; a++) {
        const ferry_placement_t *p = &layout->placements[a];
        fy_text_printf(&text, "%s", a > 0 ? "," : ":");
        if (p->kind == FERRY_REPLICATE) {
            fy_text_printf(&text, "R");
        } else if (p->kind == FERRY_PARTIAL) {
            fy_text_printf(&text, "P(%s)", ferry_reduce_name(p->op));
        } else {
            format_shard(&text, p);
        }
    }
    if (!counted) {
        fy_text_printf(&text, "@");
        fy_text_ranks(&text, layout->ranks, layout->nranks);
    }
    return text.length;
}
