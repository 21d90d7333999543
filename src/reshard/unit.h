/* unit.h - the life of what travels, one interface for a chunk and for a bucket.
 *
 *   prepare       the run begins
 *   launch        fills what will be sent; "not yet" while the producer of a source has not finished
 *   is_complete   the batch that carries it has ended
 *   finalize      writes back what has landed
 *
 * `device` and `ready` are those of the source's memory: on a CPU the launch looks at the event itself;
 * on a GPU it will put its work behind it. */
#ifndef FERRY_RESHARD_UNIT_H
#define FERRY_RESHARD_UNIT_H

#include "reshard/session.h"

struct fy_unit_ops {
    void (*prepare)(fy_unit_t *unit);
    ferry_status_t (*launch)(fy_session_t *session, fy_unit_t *unit, bool *launched_p,
                             ferry_error_t *err);
    bool (*is_complete)(const fy_unit_t *unit);
    ferry_status_t (*finalize)(fy_session_t *session, fy_unit_t *unit, uint32_t copy,
                               ferry_error_t *err);
    /* Queues its ends with the service, when the session is built. */
    ferry_status_t (*submit)(fy_session_t *session, const fy_unit_t *unit, uint32_t copy,
                             ferry_error_t *err);
};

typedef enum fy_unit_state {
    FY_UNIT_PREPARED,
    FY_UNIT_LAUNCHED,
    FY_UNIT_LANDED,
    FY_UNIT_FINAL,
} fy_unit_state_t;

struct fy_unit {
    const fy_unit_ops_t *ops;
    fy_unit_state_t state;
    int32_t device;
    fy_cargo_t *cargo; /* a chunk */
    /* A bucket. */
    const ferry_bucket_t *bucket;
    const ferry_bucket_entry_t *entries;
    fy_cargo_t *all;   /* of the session: entries point into it */
    bool packed;       /* sent from staging, not from the tensor itself */
    bool staged;       /* lands in staging */
    ferry_view_t send; /* bytes */
    ferry_view_t recv[2];
    uint64_t bytes; /* that land here */
};

extern const fy_unit_ops_t fy_chunk_ops;
extern const fy_unit_ops_t fy_bucket_ops;

/* Is the source of a cargo ready to be read? */
bool fy_cargo_ready(const fy_session_t *session, const fy_cargo_t *cargo);
/* Fills the service's error with the tensor and peer of a cargo. */
void fy_cargo_blame(const fy_session_t *session, const fy_cargo_t *cargo, ferry_error_t *err);
/* Gives the cargo its staging. */
ferry_status_t fy_chunk_place(fy_cargo_t *cargo, uint32_t ncopies, fy_places_t *places,
                              ferry_error_t *err);
ferry_status_t fy_bucket_place(fy_session_t *session, fy_unit_t *unit, fy_places_t *places,
                               ferry_error_t *err);

#endif
