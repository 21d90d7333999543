/* ckpt_scale.h - a smaller model of the same family.
 *
 * Fewer layers, then fewer experts, then narrower, until no more than the part asked for is left of its
 * parameters. What must divide still does: K/V heads their query heads, shared experts their width. */
#ifndef CLI_CKPT_SCALE_H
#define CLI_CKPT_SCALE_H

#include <ferry/model.h>

/* "1/16" or "0.1": above 0, at most 1. */
ferry_status_t ckpt_parse_part(const char *what, const char *text, double *part_p,
                               ferry_error_t *err);

/* The numbers of the smaller model, and how many parameters it has. Where even the smallest is larger than the part,
 * that one. */
ferry_status_t ckpt_scale(const char *model, double part, ferry_model_numbers_t *numbers_p,
                          uint64_t *parameters_p, ferry_error_t *err);

#endif
