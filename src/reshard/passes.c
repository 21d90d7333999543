/* passes.c - staging within a budget.
 *
 * What must be staged for a tensor on a rank has to be there at once for one slab of each of its transfers.
 * Transfers are cut into ever smaller slabs until that fits on every rank. Then slabs are taken in the order
 * (tensor, slab) into passes: each rank says how far its budget reaches, and the nearest end counts for all.
 * A pass never holds two slabs of one transfer. Without a budget there is one pass. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/fail.h"
#include "reshard/session.h"
#include "service/service.h"

/* A place in the order of slabs. */
static uint64_t position(uint32_t tensor, uint32_t slab) {
    return (uint64_t)tensor << 32 | slab;
}

#define END_OF_PLAN UINT64_MAX

/* Walks the cargo and folds of this rank, position by position. */
typedef struct walk {
    const fy_session_t *session;
    size_t cargo;
    size_t fold;
} walk_t;

static uint64_t next_position(const walk_t *walk) {
    const fy_session_t *session = walk->session;
    uint64_t next = END_OF_PLAN;
    if (walk->cargo < session->ncargo) {
        const ferry_chunk_t *chunk = session->cargo[walk->cargo].chunk;
        next = position(chunk->tensor, chunk->slab);
    }
    if (walk->fold < session->nfolds) {
        const ferry_cell_t *cell = session->folds[walk->fold].cell;
        next = fy_min_u64(next, position(cell->tensor, cell->slab));
    }
    return next;
}

/* What one position takes, and what stands in the way of taking more or less. */
typedef struct stop {
    uint64_t at;
    uint64_t cost;
    uint64_t largest; /* of the chunks that cost something, in bytes */
    bool more;        /* a transfer goes on with another slab */
    bool divisible;   /* some chunk that costs something has more than one row */
    const char *name;
} stop_t;

static bool next_stop(walk_t *walk, stop_t *stop) {
    const fy_session_t *session = walk->session;
    *stop = (stop_t){.at = next_position(walk)};
    if (stop->at == END_OF_PLAN) {
        return false;
    }
    while (walk->fold < session->nfolds) {
        const fy_fold_t *fold = &session->folds[walk->fold];
        if (position(fold->cell->tensor, fold->cell->slab) != stop->at) {
            break;
        }
        stop->cost += fold->binding->transformed ? 0 : fy_fold_cost(session, fold);
        walk->fold++;
    }
    while (walk->cargo < session->ncargo) {
        const fy_cargo_t *cargo = &session->cargo[walk->cargo];
        const ferry_chunk_t *chunk = cargo->chunk;
        if (position(chunk->tensor, chunk->slab) != stop->at) {
            break;
        }
        bool costs = cargo->cost > 0 || (chunk->partial != FERRY_INDEX_NONE && cargo->sends);
        stop->cost += cargo->cost;
        stop->largest = fy_max_u64(stop->largest, costs ? chunk->bytes : 0);
        stop->more = stop->more || chunk->slab + 1 < chunk->nslabs;
        stop->divisible = stop->divisible || (costs && chunk->divisible);
        stop->name = cargo->binding->tensor.name;
        walk->cargo++;
    }
    return true;
}

/* --- cutting ----------------------------------------------------------------------------------- */

/* What a pass may take. The hashes of a pass take a line per peer and direction, besides what the cargo
 * has been charged for them. */
static uint64_t available(const fy_session_t *session) {
    uint64_t left = session->staging.budget - session->staging.taken;
    uint64_t lines = session->options.check ? UINT64_C(2) * session->size * FY_STAGING_ALIGN : 0;
    return left == UINT64_MAX || left < lines ? left : left - lines;
}

enum { FITS, LARGEST };

/* How this rank fares with the cargo as it is cut. */
static ferry_status_t weigh(const fy_session_t *session, uint64_t *numbers, ferry_error_t *err) {
    uint64_t budget = session->options.budget_bytes;
    if (budget != 0 && session->slots_bytes > budget) {
        return fy_fail(err, FERRY_NOMEM,
                       "the service's slots take %" PRIu64 " bytes of a budget of %" PRIu64
                       "; make it with fewer staging_bytes",
                       session->slots_bytes, budget);
    }
    walk_t walk = {session, 0, 0};
    stop_t stop;
    uint64_t total = 0;
    numbers[FITS] = 1;
    while (next_stop(&walk, &stop)) {
        total += stop.cost;
        uint64_t need = session->gate ? total : stop.cost;
        if (need <= available(session)) {
            continue;
        }
        numbers[FITS] = 0;
        numbers[LARGEST] = fy_max_u64(numbers[LARGEST], stop.largest);
        if (!session->gate && !stop.divisible) {
            ferry_status_t status =
                fy_fail(err, FERRY_NOMEM,
                        "the budget leaves %" PRIu64 " bytes for staging; one row of this tensor "
                        "takes %" PRIu64,
                        available(session), stop.cost);
            fy_error_tensor(err, stop.name);
            return status;
        }
    }
    if (session->gate && total > available(session)) {
        return fy_fail(err, FERRY_NOMEM,
                       "a gate stages all that arrives here, %" PRIu64
                       " bytes; the budget leaves %" PRIu64,
                       total, available(session));
    }
    return FERRY_OK;
}

static ferry_status_t all_well(const fy_session_t *session, ferry_status_t status,
                               fy_letter_t *mine, fy_letter_t *all, ferry_error_t *err) {
    if (status != FERRY_OK) {
        fy_letter_fail(mine, status, ferry_world_rank(session->world));
    }
    return fy_agree(session->group, mine, all, err);
}

/* *slab_p: the next size to try, or 0 when all ranks fit. */
static ferry_status_t try_slabs(fy_session_t *session, uint64_t *slab_p, fy_letter_t *all,
                                ferry_error_t *err) {
    fy_letter_t mine = {{0}, FERRY_ERROR_INIT};
    ferry_status_t status = fy_load(session, *slab_p, &mine.error);
    if (session->transforms) { /* alike on all ranks */
        FY_TRY(all_well(session, status, &mine, all, err));
        FY_TRY(fy_agree_on_payloads(session, err));
    }
    if (status == FERRY_OK) {
        status = weigh(session, mine.numbers, &mine.error);
    }
    FY_TRY(all_well(session, status, &mine, all, err));
    bool fits = true;
    uint64_t largest = 0;
    for (uint32_t member = 0; member < session->size; member++) {
        fits = fits && all[member].numbers[FITS] != 0;
        largest = fy_max_u64(largest, all[member].numbers[LARGEST]);
    }
    uint64_t from = *slab_p != 0 ? fy_min_u64(*slab_p, largest) : largest;
    *slab_p = fits ? 0 : fy_max_u64(from / 2, 1);
    return FERRY_OK;
}

static ferry_status_t cut(fy_session_t *session, fy_letter_t *all, ferry_error_t *err) {
    uint64_t slab = 0;
    for (;;) {
        FY_TRY(try_slabs(session, &slab, all, err));
        if (slab == 0) {
            return FERRY_OK;
        }
        fy_unload(session);
    }
}

/* --- passes ------------------------------------------------------------------------------------ */

/* How far this rank's budget reaches from where the walk is. */
static uint64_t reach(const fy_session_t *session, walk_t walk) {
    stop_t stop;
    uint64_t cost = 0;
    bool more = false;
    for (;;) {
        uint64_t at = next_position(&walk);
        if (more || !next_stop(&walk, &stop) || stop.cost > available(session) - cost) {
            return at;
        }
        cost += stop.cost;
        more = stop.more;
    }
}

/* All that comes before `end`. Whether some rank folds is read off the layouts, alike on all. */
static void take(fy_session_t *session, walk_t *walk, uint64_t begin, uint64_t end,
                 fy_pass_t *pass) {
    pass->first = walk->cargo;
    pass->first_fold = walk->fold;
    stop_t stop;
    while (next_position(walk) < end) {
        (void)next_stop(walk, &stop);
    }
    pass->count = walk->cargo - pass->first;
    pass->nfolds = walk->fold - pass->first_fold;
    uint64_t last = end == END_OF_PLAN ? session->ntensors : (end - 1) >> 32;
    for (uint64_t t = begin >> 32; t <= last && t < session->ntensors; t++) {
        pass->reduces = pass->reduces || fy_is_partial(session->bindings[t].tensor.source_layout);
    }
}

static ferry_status_t next_end(const fy_session_t *session, const walk_t *walk, fy_letter_t *all,
                               uint64_t *end_p, ferry_error_t *err) {
    *end_p = END_OF_PLAN;
    if (session->options.budget_bytes == 0) {
        return FERRY_OK; /* alike on all ranks: options are compared */
    }
    fy_letter_t mine = {{reach(session, *walk)}, FERRY_ERROR_INIT};
    FY_TRY(fy_agree(session->group, &mine, all, err));
    for (uint32_t member = 0; member < session->size; member++) {
        *end_p = fy_min_u64(*end_p, all[member].numbers[0]);
    }
    return FERRY_OK;
}

static ferry_status_t divide(fy_session_t *session, fy_letter_t *all, ferry_error_t *err) {
    walk_t walk = {session, 0, 0};
    fy_pass_t *passes = NULL;
    size_t cap = 0;
    ferry_status_t status = FERRY_OK;
    uint64_t end = 0;
    while (end != END_OF_PLAN && status == FERRY_OK) {
        uint64_t begin = end;
        status = next_end(session, &walk, all, &end, err);
        if (status == FERRY_OK &&
            !fy_reserve(&passes, &cap, session->npasses + 1, sizeof *passes)) {
            status = fy_fail_nomem(err, "the passes of a session");
        }
        if (status == FERRY_OK) {
            passes[session->npasses] = (fy_pass_t){0};
            take(session, &walk, begin, end, &passes[session->npasses++]);
        }
    }
    if (status == FERRY_OK) {
        session->passes = fy_arena_copy(&session->cut, passes, session->npasses, sizeof *passes);
        status = session->passes == NULL ? fy_fail_nomem(err, "the passes of a session") : FERRY_OK;
    }
    fy_free(passes);
    return status;
}

ferry_status_t fy_make_passes(fy_session_t *session, ferry_error_t *err) {
    fy_letter_t *all = fy_alloc(session->size, sizeof *all);
    if (all == NULL) {
        return fy_fail_nomem(err, "the letters of a session");
    }
    ferry_status_t status = cut(session, all, err);
    if (status == FERRY_OK) {
        status = divide(session, all, err);
    }
    fy_free(all);
    return status;
}
