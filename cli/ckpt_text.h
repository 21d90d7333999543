/* ckpt_text.h - checkpoints in words. */
#ifndef CLI_CKPT_TEXT_H
#define CLI_CKPT_TEXT_H

#include <ferry/ckpt.h>

typedef struct ckpt_spec {
    char text[128];
} ckpt_spec_t;

/* "tp=4,pp=2": axes of one are left out; "tp=1" when all are. */
ckpt_spec_t ckpt_spec_text(const ferry_parallel_t *parallel);
/* "hf", or the spec of a folder of rank files. */
ckpt_spec_t ckpt_folder_spec(const ferry_folder_t *folder);
/* "4096x1024"; "scalar". */
ckpt_spec_t ckpt_shape_text(uint32_t ndim, const uint64_t *shape);

/* Who holds a tensor of rank files: "ranks 0-3, dim 0 in 4", "ranks 0-3, whole", "ranks 0-7, dim 1 in 4, 2 copies". */
ckpt_spec_t ckpt_holders_text(const ferry_layout_t *layout);

const char *ckpt_kind_text(ferry_folder_kind_t kind); /* "hf", "ranks" */

#endif
