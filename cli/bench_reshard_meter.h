/* bench_reshard_meter.h - the limit of the machine for a case of `ferry bench reshard`.
 *
 * The limit copies the regions of the plan's transfers, in the ranks' own memory, as plain bytes. Where a
 * source's elements are larger or smaller than the target's, it copies as many bytes as the smaller ones
 * have; so it reads and writes fewer bytes than the reshard, and rates are compared, in bytes read plus
 * written a second.
 *
 * Ownership: reshard_meter_destroy frees all; the ranks' memory must live as long. */
#ifndef CLI_BENCH_RESHARD_METER_H
#define CLI_BENCH_RESHARD_METER_H

#include "bench_meter.h"
#include "bench_reshard.h"

typedef struct reshard_meter reshard_meter_t;

/* `keys` has one entry a rank. Finds out the best method, which takes some rounds. */
ferry_status_t reshard_meter_create(ferry_world_t *world, const reshard_job_t *job,
                                    const bench_keys_t *keys, reshard_meter_t **meter_p,
                                    ferry_error_t *err);
void reshard_meter_destroy(reshard_meter_t *meter); /* NULL is fine */

/* One round. */
void reshard_meter_round(reshard_meter_t *meter, bench_stamp_t *stamp);

#endif
