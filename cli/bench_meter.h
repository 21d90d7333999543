/* bench_meter.h - the limit of the machine, measured by one rank over the memory of all.
 *
 * Shared shards are the ranks' own; where they are private (a heap case), the meter has copies of its
 * own, and a second figure: a plain loop of process_vm_readv.
 *
 * Ownership: bench_meter_destroy frees all; the ranks' memory must live as long. */
#ifndef CLI_BENCH_METER_H
#define CLI_BENCH_METER_H

#include <ferry/mem.h>

#include "bench_run.h"

typedef struct bench_meter bench_meter_t;

/* The memory of one rank. */
typedef struct bench_keys {
    ferry_mem_key_t key[BENCH_SIDES];
} bench_keys_t;

/* `keys` has one entry a rank. Finds out the best method, which takes some rounds. */
ferry_status_t bench_meter_create(ferry_world_t *world, const bench_case_t *bench,
                                  const bench_keys_t *keys, bench_meter_t **meter_p,
                                  ferry_error_t *err);
void bench_meter_destroy(bench_meter_t *meter); /* NULL is fine */

/* How the limit is reached, as "stream by target". */
void bench_meter_describe(bench_meter_t *meter, char text_p[BENCH_LIMIT_NAME_MAX]);

/* One round of the limit; of the reads only for a heap case, where they are allowed. */
ferry_status_t bench_meter_round(bench_meter_t *meter, bench_stamp_t *limit, bench_stamp_t *readv,
                                 ferry_error_t *err);

#endif
