/* ckpt_forecast.h - what a conversion will make, known before a byte is written. */
#ifndef CLI_CKPT_FORECAST_H
#define CLI_CKPT_FORECAST_H

#include <ferry/ckpt.h>

/* Tensors whose parts are not all alike: a dim that tp does not divide, or that is smaller than tp. */
typedef struct ckpt_uneven {
    size_t tensors;
    const char *example; /* the first of them, borrowed from the folder; NULL: none */
    uint32_t dim;
    uint64_t length; /* of that dim, in the whole tensor */
    uint64_t least;  /* what ranks hold of it */
    uint64_t most;
} ckpt_uneven_t;

typedef struct ckpt_forecast {
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t largest_file; /* bytes of tensors */
    size_t files;
    uint64_t memory_bytes; /* buffers of all workers, at most */
    ckpt_uneven_t uneven;
} ckpt_forecast_t;

/* params->workers and file_bytes must not be 0. */
ferry_status_t ckpt_forecast(ferry_folder_t *source, const ferry_convert_params_t *params,
                             ckpt_forecast_t *forecast_p, ferry_error_t *err);

/* Bytes a second that were copied from a file of the source to the disk of `path`, through a file without a name that is gone
 * at once; 0 where the file system has no such files. FERRY_IO when the place of `path` cannot be written. */
ferry_status_t ckpt_measure_disk(const ferry_folder_t *source, const char *path, double *rate_p,
                                 uint64_t *free_bytes_p, ferry_error_t *err);

#endif
