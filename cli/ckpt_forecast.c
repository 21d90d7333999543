/* ckpt_forecast.c - what a conversion will make, known before a byte is written. */
#include "ckpt_forecast.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "error.h"
#include "output.h"

#define SAMPLE_BYTES (UINT64_C(32) << 20)
#define BUFFER_BYTES_MIN UINT64_C(4096)

/* ---- whole tensors ------------------------------------------------------------------------------- */

static uint64_t bytes_of(ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        elements *= shape[d];
    }
    return elements * (ferry_dtype_bits(dtype) / 8);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void forecast_whole(const ferry_folder_t *source, const ferry_convert_params_t *params,
                           ckpt_forecast_t *forecast) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_folder_tensors(source, &count);
    uint64_t held = 0;
    forecast->files = 1;
    for (size_t i = 0; i < count; i++) {
        const ferry_tensor_t *tensor = &tensors[i];
        bool cast = params->dtype != FERRY_DTYPE_NONE && ferry_dtype_is_float(tensor->dtype);
        uint64_t bytes =
            bytes_of(cast ? params->dtype : tensor->dtype, tensor->ndim, tensor->shape);
        if (held > 0 && bytes > params->file_bytes - held) {
            forecast->files++;
            held = 0;
        }
        held += bytes;
        forecast->largest_file = larger(forecast->largest_file, held);
        held = held < params->file_bytes ? held : params->file_bytes;
        forecast->bytes_read += bytes_of(tensor->dtype, tensor->ndim, tensor->shape);
        forecast->bytes_written += bytes;
    }
}

/* ---- shards -------------------------------------------------------------------------------------- */

/* What the ranks hold of each dim. */
typedef struct spread {
    uint64_t least[FERRY_MAX_DIMS];
    uint64_t most[FERRY_MAX_DIMS];
} spread_t;

static void note_uneven(const ferry_tensor_t *tensor, const char *name, const spread_t *spread,
                        ckpt_uneven_t *uneven) {
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (spread->least[d] == spread->most[d]) {
            continue;
        }
        if (uneven->tensors++ == 0) {
            uneven->example = name;
            uneven->dim = d;
            uneven->length = tensor->shape[d];
            uneven->least = spread->least[d];
            uneven->most = spread->most[d];
        }
        return;
    }
}

/* Adds a tensor's shards to the bytes of each rank. */
static ferry_status_t add_shards(const ferry_tensor_t *target, const ferry_tensor_t *source,
                                 uint64_t *rank_bytes, ckpt_forecast_t *forecast,
                                 ferry_error_t *err) {
    uint32_t nranks = ferry_layout_nranks(target->layout);
    const uint32_t *ranks = ferry_layout_ranks(target->layout);
    spread_t spread;
    memset(spread.least, 0xff, sizeof spread.least);
    memset(spread.most, 0, sizeof spread.most);
    for (uint32_t i = 0; i < nranks; i++) {
        uint64_t local[FERRY_MAX_DIMS];
        ferry_status_t status = ferry_layout_local_shape(target->layout, target->ndim,
                                                         target->shape, ranks[i], local, err);
        if (status != FERRY_OK) {
            return status;
        }
        for (uint32_t d = 0; d < target->ndim; d++) {
            spread.least[d] = local[d] < spread.least[d] ? local[d] : spread.least[d];
            spread.most[d] = larger(spread.most[d], local[d]);
        }
        uint64_t bytes = bytes_of(target->dtype, target->ndim, local);
        rank_bytes[ranks[i]] += bytes;
        forecast->bytes_written += bytes;
        forecast->bytes_read += bytes_of(source->dtype, target->ndim, local);
    }
    note_uneven(target, source->name, &spread, &forecast->uneven);
    return FERRY_OK;
}

/* The shards of all tensors; rank_bytes has an entry, still 0, for each of `world` ranks. */
static ferry_status_t add_tensors(const ferry_folder_t *source, const ferry_tensor_set_t *set,
                                  uint64_t *rank_bytes, uint32_t world, ckpt_forecast_t *forecast,
                                  ferry_error_t *err) {
    size_t count = 0;
    const ferry_tensor_t *targets = ferry_tensor_set_tensors(set, &count);
    const ferry_tensor_t *sources = ferry_folder_tensors(source, &count);
    for (size_t i = 0; i < count; i++) {
        ferry_status_t status = add_shards(&targets[i], &sources[i], rank_bytes, forecast, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        forecast->largest_file = larger(forecast->largest_file, rank_bytes[rank]);
    }
    forecast->files = world;
    return FERRY_OK;
}

static ferry_status_t forecast_ranks(ferry_folder_t *source, const ferry_convert_params_t *params,
                                     ckpt_forecast_t *forecast, ferry_error_t *err) {
    ferry_tensor_set_t *set = NULL;
    uint32_t world = 0;
    ferry_status_t status = ferry_parallel_world(&params->parallel, &world, err);
    if (status == FERRY_OK) {
        status = ferry_folder_place(source, &params->parallel, params->dtype, &set, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    uint64_t *rank_bytes = calloc(world, sizeof *rank_bytes);
    status = rank_bytes == NULL ? cli_fail_nomem(err)
                                : add_tensors(source, set, rank_bytes, world, forecast, err);
    free(rank_bytes);
    ferry_tensor_set_destroy(set);
    return status;
}

ferry_status_t ckpt_forecast(ferry_folder_t *source, const ferry_convert_params_t *params,
                             ckpt_forecast_t *forecast_p, ferry_error_t *err) {
    *forecast_p = (ckpt_forecast_t){0};
    uint64_t each = params->memory_bytes != 0 ? params->memory_bytes / params->workers
                                              : FERRY_CONVERT_BUFFER_BYTES;
    each = larger(BUFFER_BYTES_MIN,
                  each < FERRY_CONVERT_BUFFER_BYTES ? each : FERRY_CONVERT_BUFFER_BYTES);
    forecast_p->memory_bytes = params->workers * each;
    if (params->kind == FERRY_FOLDER_RANKS) {
        return forecast_ranks(source, params, forecast_p, err);
    }
    forecast_whole(source, params, forecast_p);
    return FERRY_OK;
}

/* ---- the disk ------------------------------------------------------------------------------------ */

/* The folder that `path` lies in; free with free(). */
static char *parent_of(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    return length > 0 ? strndup(path, length) : strdup(".");
}

/* Copies up to SAMPLE_BYTES of the source's first file. 0 or an errno. */
static int copy_sample(const ferry_folder_t *source, int target, uint64_t *bytes_p) {
    enum { PIECE = 1 << 20 };
    char *buffer = malloc(PIECE);
    int from =
        ferry_folder_nfiles(source) > 0
            ? open(ferry_safetensors_path(ferry_folder_file(source, 0)), O_RDONLY | O_CLOEXEC)
            : -1;
    int error = buffer == NULL || from < 0 ? ENOENT : 0;
    *bytes_p = 0;
    ssize_t got = 1;
    while (error == 0 && got > 0 && *bytes_p < SAMPLE_BYTES) {
        got = read(from, buffer, PIECE);
        if (got < 0 || (got > 0 && write(target, buffer, (size_t)got) != got)) {
            error = errno != 0 ? errno : EIO;
        }
        *bytes_p += got > 0 ? (uint64_t)got : 0;
    }
    if (error == 0 && fdatasync(target) != 0) {
        error = errno;
    }
    if (from >= 0) {
        (void)close(from);
    }
    free(buffer);
    return error;
}

ferry_status_t ckpt_measure_disk(const ferry_folder_t *source, const char *path, double *rate_p,
                                 uint64_t *free_bytes_p, ferry_error_t *err) {
    *rate_p = 0;
    *free_bytes_p = 0;
    char *parent = parent_of(path);
    if (parent == NULL) {
        return cli_fail_nomem(err);
    }
    ferry_status_t status = FERRY_OK;
    struct statvfs disk;
    int fd = open(parent, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == ENOENT || errno == EACCES || errno == EROFS || errno == ENOTDIR)) {
        status = cli_fail_errno(err, errno, "%s: cannot be written", parent);
    } else if (statvfs(parent, &disk) == 0) {
        *free_bytes_p = (uint64_t)disk.f_bavail * disk.f_frsize;
    }
    if (fd >= 0) {
        double begin = cli_clock();
        uint64_t bytes = 0;
        int error = copy_sample(source, fd, &bytes);
        double seconds = cli_clock() - begin;
        *rate_p = error == 0 && seconds > 0 ? (double)bytes / seconds : 0;
        (void)close(fd);
    }
    free(parent);
    return status;
}
