/* ckpt_synth.h - writes made-up tensors as a Hugging Face folder. */
#ifndef CLI_CKPT_SYNTH_H
#define CLI_CKPT_SYNTH_H

#include <ferry/ckpt.h>

#include "ckpt_new.h"

typedef struct ckpt_synth {
    const ferry_tensor_t *tensors;
    size_t count;
    uint64_t seed;
    uint64_t file_bytes; /* the most that a file holds, unless one tensor is larger */
    uint32_t threads;
    void *context;
    void (*progress)(void *context, const ferry_convert_progress_t *progress);
} ckpt_synth_t;

typedef struct ckpt_synth_result {
    uint64_t bytes; /* of tensors */
    size_t files;
} ckpt_synth_result_t;

/* Writes files and index below `folder`, which is not committed. */
ferry_status_t ckpt_synth_write(const ckpt_synth_t *synth, const ckpt_new_t *folder,
                                ckpt_synth_result_t *result_p, ferry_error_t *err);

#endif
