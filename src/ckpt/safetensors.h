/* safetensors.h - what the reader and the writer of safetensors files share. */
#ifndef FERRY_CKPT_SAFETENSORS_H
#define FERRY_CKPT_SAFETENSORS_H

#include <ferry/safetensors.h>

#include "base/bytes.h"

#define FY_SAFETENSORS_METADATA "__metadata__" /* the one key of a header that names no tensor */

/* Where the data of our files start; the format asks for nothing. */
enum { FY_SAFETENSORS_ALIGN = 64 };

/* A checked list of tensors as the beginning of a file (the eight bytes and the header, padded) in `writer`, and the
 * bytes and the places of each, from the beginning of the file: offsets[count] is its end. */
ferry_status_t fy_safetensors_layout(const char *path, const ferry_new_tensor_t *tensors,
                                     size_t count, const ferry_file_note_t *notes, size_t nnotes,
                                     fy_writer_t *writer, uint64_t *offsets, ferry_error_t *err);

#endif
