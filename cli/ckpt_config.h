/* ckpt_config.h - the config.json of a model with given numbers. */
#ifndef CLI_CKPT_CONFIG_H
#define CLI_CKPT_CONFIG_H

#include <ferry/model.h>

/* The text, to be freed with free(): what the rules of the family and Hugging Face's own loaders need. */
ferry_status_t ckpt_config_text(const ferry_model_numbers_t *numbers, ferry_dtype_t dtype,
                                char **text_p, ferry_error_t *err);

#endif
