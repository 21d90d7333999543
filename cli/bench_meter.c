/* bench_meter.c - the limit of the machine, measured by one rank over the memory of all.
 *
 * Invariant: the limit's copies are exactly the regions that the ranks submit. */
#include "bench_meter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "error.h"

struct bench_meter {
    bench_buffers_t buffers;
    bool own_buffers; /* mapped by us, not by the world */
    limit_t *limit;
    limit_readv_t *readv; /* NULL: not measured */
};

/* Where all shards are in this process. */
static ferry_status_t map_shards(ferry_world_t *world, const bench_case_t *bench,
                                 const bench_keys_t *keys, bench_buffers_t *buffers,
                                 ferry_error_t *err) {
    buffers->ranks = bench->ranks;
    for (int side = 0; side < BENCH_SIDES; side++) {
        buffers->base[side] = calloc(bench->ranks, sizeof *buffers->base[side]);
        buffers->bytes[side] = calloc(bench->ranks, sizeof *buffers->bytes[side]);
        if (buffers->base[side] == NULL || buffers->bytes[side] == NULL) {
            return cli_fail_nomem(err);
        }
        for (uint32_t rank = 0; rank < bench->ranks; rank++) {
            const ferry_mem_key_t *key = &keys[rank].key[side];
            if (key->bytes == 0) {
                continue;
            }
            ferry_status_t status = ferry_mem_map(world, key, &buffers->base[side][rank], err);
            if (status != FERRY_OK) {
                return status;
            }
            ferry_mem_populate(world, key);
            buffers->bytes[side][rank] = (size_t)key->bytes;
        }
    }
    return FERRY_OK;
}

static ferry_status_t make_limits(bench_meter_t *meter, const bench_case_t *bench,
                                  ferry_error_t *err) {
    bench_copy_t *copies = NULL;
    size_t count = 0;
    if (!bench_case_copies(bench, &meter->buffers, &copies, &count)) {
        return cli_fail_nomem(err);
    }
    errno = 0;
    if (bench->heap) {
        meter->readv = limit_readv_create(copies, count);
        if (meter->readv == NULL && errno != EPERM) {
            free(copies);
            return cli_fail_errno(err, errno, "cannot measure cross-process reads");
        }
    }
    meter->limit = limit_create(copies, count);
    free(copies);
    if (meter->limit == NULL) {
        return cli_fail_errno(err, errno, "cannot measure the limit");
    }
    (void)limit_round(meter->limit, LIMIT_BEST);
    return FERRY_OK;
}

ferry_status_t bench_meter_create(ferry_world_t *world, const bench_case_t *bench,
                                  const bench_keys_t *keys, bench_meter_t **meter_p,
                                  ferry_error_t *err) {
    bench_meter_t *meter = calloc(1, sizeof *meter);
    if (meter == NULL) {
        return cli_fail_nomem(err);
    }
    ferry_status_t status = FERRY_OK;
    if (!bench->heap) {
        status = map_shards(world, bench, keys, &meter->buffers, err);
    } else if (bench_buffers_init(bench, BENCH_MEMORY_HEAP, &meter->buffers)) {
        meter->own_buffers = true;
    } else {
        status = cli_fail_errno(err, errno, "no memory to measure the limit in");
    }
    if (status == FERRY_OK) {
        status = make_limits(meter, bench, err);
    }
    if (status != FERRY_OK) {
        bench_meter_destroy(meter);
        return status;
    }
    *meter_p = meter;
    return FERRY_OK;
}

void bench_meter_destroy(bench_meter_t *meter) {
    if (meter == NULL) {
        return;
    }
    limit_destroy(meter->limit);
    limit_readv_destroy(meter->readv);
    if (meter->own_buffers) {
        bench_buffers_fini(&meter->buffers);
    } else {
        for (int side = 0; side < BENCH_SIDES; side++) {
            free(meter->buffers.base[side]);
            free(meter->buffers.bytes[side]);
        }
    }
    free(meter);
}

void bench_meter_describe(bench_meter_t *meter, char text_p[BENCH_LIMIT_NAME_MAX]) {
    (void)snprintf(text_p, BENCH_LIMIT_NAME_MAX, "%s", limit_describe(meter->limit, LIMIT_BEST));
}

/* Rounds say how long they took; the stamp also says when. */
static void stamp_round(bench_stamp_t *stamp, uint64_t begin_ns, double seconds) {
    stamp->begin_ns = begin_ns;
    stamp->end_ns = begin_ns + (uint64_t)(seconds * 1e9);
}

ferry_status_t bench_meter_round(bench_meter_t *meter, bench_stamp_t *limit, bench_stamp_t *readv,
                                 ferry_error_t *err) {
    uint64_t begin_ns = bench_now_ns();
    stamp_round(limit, begin_ns, limit_round(meter->limit, LIMIT_BEST));
    if (meter->readv == NULL) {
        return FERRY_OK;
    }
    begin_ns = bench_now_ns();
    double seconds = limit_readv_round(meter->readv);
    if (seconds >= 0) {
        stamp_round(readv, begin_ns, seconds);
    } else if (errno != EPERM) {
        return cli_fail_errno(err, errno, "cross-process reads failed");
    }
    return FERRY_OK;
}
