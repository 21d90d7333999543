/* run.c - moves the bytes of a prepared batch.
 *
 * A rank that enters run n says so (`begun`); whoever copies from or to its memory waits for that. When it
 * has done its own copies it says so too (`done`), and then waits for those that touch its memory, and
 * for nobody else. Ranks may be several runs apart where nothing ties them.
 *
 * Shared copies. The copies of a rank are cut into parts, in a fixed order. `claim` hands them out, to
 * the rank itself and to those that have nothing left to do; `open` says how many of them have sources
 * that have begun; `parts` counts those done. All three carry the number of the run, so that who is late
 * or early finds nothing to take.
 *
 * On the direct path there is no allocation and no system call but futex in this file. */
#include "base/fail.h"
#include "service/builtin.h"
#include "world/world.h"

#define LOOK_NS UINT64_C(100000000) /* between looks at others, in a run that is only tested */

static bool has_begun(const fy_builtin_t *service, uint32_t member) {
    return fy_counter_reached(&service->flags[member]->begun, service->number);
}

static fy_share_t *own_share(const fy_builtin_t *service) {
    return &service->run.batch->shares[service->me];
}

ferry_status_t fy_run_begin(fy_builtin_t *service, fy_batch_t *batch, ferry_error_t *err) {
    fy_run_t *run = &service->run;
    *run = (fy_run_t){.batch = batch, .pipe_done = !batch->piped};
    if (batch->piped) {
        ferry_error_t mine = FERRY_ERROR_INIT;
        if (fy_pipeline_begin(&run->pipe, service->slots, &batch->pipeline, &mine) != FERRY_OK) {
            return ferry_world_fail(service->world, &mine, err);
        }
        run->pipe.hooks.context = service->params.trace_context;
        run->pipe.hooks.trace = service->params.trace;
    }
    service->number++;
    fy_rank_flags_t *flags = service->flags[service->me];
    if (own_share(service)->shared) {
        uint64_t none = (uint64_t)service->number << 32;
        atomic_store_explicit(&flags->open, none, memory_order_relaxed);
        atomic_store_explicit(&flags->claim, none, memory_order_release);
    }
    fy_counter_set(&flags->begun, service->number);
    return FERRY_OK;
}

/* --- trace ------------------------------------------------------------------------------------- */

static uint64_t trace_clock(const fy_builtin_t *service) {
    return service->params.trace != NULL ? fy_clock_ns() : 0;
}

static void trace(const fy_builtin_t *service, ferry_pipeline_step_t step, uint32_t member,
                  uint32_t round, uint64_t bytes, uint64_t begin_ns) {
    if (service->params.trace == NULL) {
        return;
    }
    bool one = member != FERRY_RANK_NONE;
    ferry_pipeline_event_t event = {.step = step,
                                    .rank = ferry_world_rank(service->world),
                                    .peer = one ? ferry_group_world_rank(service->group, member)
                                                : FERRY_RANK_NONE,
                                    .round = round,
                                    .bytes = bytes,
                                    .begin_ns = begin_ns,
                                    .end_ns = fy_clock_ns()};
    service->params.trace(service->params.trace_context, &event);
}

/* --- copies ------------------------------------------------------------------------------------ */

static const fy_work_t *work_of(const fy_share_t *share, uint32_t step) {
    return &share->works[share->steps[step].work];
}

/* A step of a member's share. */
static ferry_status_t run_step(const fy_builtin_t *service, uint32_t member, uint32_t step,
                               ferry_error_t *err) {
    const fy_share_t *share = &service->run.batch->shares[member];
    const fy_work_t *work = work_of(share, step);
    uint64_t begin_ns = trace_clock(service);
    FY_TRY(ferry_copy_batch_run(work->copies, share->steps[step].part, work->nparts, err));
    bool own = member == service->me;
    trace(service, own ? FERRY_STEP_COPY : FERRY_STEP_HELP, own ? work->other : member, step,
          work->bytes / work->nparts, begin_ns);
    return FERRY_OK;
}

/* Has everybody begun that the next step of this rank's share needs? */
static bool may_step(const fy_builtin_t *service) {
    const fy_share_t *share = own_share(service);
    uint32_t step = service->run.step;
    return step < share->nparts && has_begun(service, work_of(share, step)->other);
}

/* Takes the next part of a rank's shared copies; false when there is none to be had now. */
static bool claim_part(fy_builtin_t *service, uint32_t member, uint32_t *part_p) {
    fy_rank_flags_t *flags = service->flags[member];
    uint64_t open = atomic_load_explicit(&flags->open, memory_order_acquire);
    uint64_t claim = atomic_load_explicit(&flags->claim, memory_order_acquire);
    while (claim >> 32 == service->number && open >> 32 == service->number && claim < open) {
        if (atomic_compare_exchange_weak_explicit(&flags->claim, &claim, claim + 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *part_p = (uint32_t)claim;
            return true;
        }
    }
    return false;
}

/* Opens the parts of this rank's shared copies whose other ranks have begun, in order. */
static void open_parts(fy_builtin_t *service) {
    fy_run_t *run = &service->run;
    bool more = false;
    for (; may_step(service); run->step++) {
        more = true;
    }
    if (more) {
        uint64_t open = (uint64_t)service->number << 32 | run->step;
        atomic_store_explicit(&service->flags[service->me]->open, open, memory_order_release);
    }
}

static ferry_status_t run_claimed(fy_builtin_t *service, uint32_t member, uint32_t step,
                                  ferry_error_t *err) {
    FY_TRY(run_step(service, member, step, err));
    if (member != service->me) {
        const fy_work_t *work = work_of(&service->run.batch->shares[member], step);
        service->run.helped_bytes += work->bytes / work->nparts;
    }
    fy_counter_add(&service->flags[member]->parts, 1);
    return FERRY_OK;
}

/* This rank's own copies, one part. */
static ferry_status_t copy_own(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    fy_run_t *run = &service->run;
    const fy_share_t *share = own_share(service);
    uint32_t step = 0;
    if (share->shared) {
        open_parts(service);
        *moved_p = claim_part(service, service->me, &step);
        return *moved_p ? run_claimed(service, service->me, step, err) : FERRY_OK;
    }
    *moved_p = may_step(service);
    return *moved_p ? run_step(service, service->me, run->step++, err) : FERRY_OK;
}

/* One part of somebody else's. */
static ferry_status_t help(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    *moved_p = false;
    for (uint32_t step = 1; step < service->size; step++) {
        uint32_t member = (service->me + step) % service->size;
        uint32_t part = 0;
        if (service->run.batch->shares[member].shared && claim_part(service, member, &part)) {
            *moved_p = true;
            return run_claimed(service, member, part, err);
        }
    }
    return FERRY_OK;
}

/* --- reads and the pipeline -------------------------------------------------------------------- */

static ferry_status_t read_next(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    fy_run_t *run = &service->run;
    const fy_batch_t *batch = run->batch;
    *moved_p =
        run->read < batch->nreads && has_begun(service, batch->read_sources[run->read]->owner);
    if (*moved_p) {
        const fy_end_t *source = batch->read_sources[run->read];
        ferry_error_t mine = FERRY_ERROR_INIT;
        uint64_t begin_ns = trace_clock(service);
        if (fy_read_view(service->world, &batch->read_targets[run->read], source, &mine) !=
            FERRY_OK) {
            fy_error_ranks(&mine, ferry_world_rank(service->world), source->key.rank);
            return ferry_world_fail(service->world, &mine, err);
        }
        trace(service, FERRY_STEP_READ, source->owner, (uint32_t)run->read, source->bytes,
              begin_ns);
        run->read++;
    }
    return FERRY_OK;
}

static ferry_status_t pipe_next(fy_run_t *run, bool *moved_p, ferry_error_t *err) {
    *moved_p = false;
    if (run->pipe_done) {
        return FERRY_OK;
    }
    if (!fy_pipeline_done(&run->pipe)) {
        FY_TRY(fy_pipeline_step(&run->pipe, false, moved_p, err));
    }
    if (fy_pipeline_done(&run->pipe)) {
        fy_pipeline_end(&run->pipe);
        run->pipe_done = true;
        *moved_p = true;
    }
    return FERRY_OK;
}

/* --- phases ------------------------------------------------------------------------------------ */

/* Are all own copies done, or claimed by somebody? */
static bool copied(const fy_builtin_t *service) {
    const fy_run_t *run = &service->run;
    const fy_share_t *share = own_share(service);
    bool claimed = run->step == share->nparts;
    if (share->shared && claimed) {
        uint64_t claim = atomic_load(&service->flags[service->me]->claim);
        claimed = (uint32_t)claim >= share->nparts;
    }
    return claimed && run->read == run->batch->nreads && run->pipe_done;
}

static ferry_status_t copy_something(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    FY_TRY(pipe_next(&service->run, moved_p, err));
    if (!*moved_p) {
        FY_TRY(copy_own(service, moved_p, err));
    }
    if (!*moved_p) {
        FY_TRY(read_next(service, moved_p, err));
    }
    if (!*moved_p && copied(service)) {
        service->run.phase = FY_AWAITING_PARTS;
        *moved_p = true;
    }
    return FERRY_OK;
}

static uint32_t parts_due(const fy_builtin_t *service) {
    const fy_share_t *share = own_share(service);
    return service->parts_done + (share->shared ? share->nparts : 0);
}

static ferry_status_t await_parts(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    fy_rank_flags_t *flags = service->flags[service->me];
    if (!fy_counter_reached(&flags->parts, parts_due(service))) {
        return help(service, moved_p, err);
    }
    service->parts_done = parts_due(service);
    fy_counter_set(&flags->done, service->number);
    service->run.phase = FY_AWAITING_OTHERS;
    *moved_p = true;
    return FERRY_OK;
}

static ferry_status_t await_others(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    fy_run_t *run = &service->run;
    const fy_batch_t *batch = run->batch;
    while (run->wait < batch->nwaits &&
           fy_counter_reached(&service->flags[batch->waits[run->wait]]->done, service->number)) {
        run->wait++;
    }
    if (run->wait == batch->nwaits) {
        run->phase = FY_RUN_OVER;
        *moved_p = true;
        return FERRY_OK;
    }
    return help(service, moved_p, err);
}

static ferry_status_t do_something(fy_builtin_t *service, bool *moved_p, ferry_error_t *err) {
    switch (service->run.phase) {
    case FY_COPYING:
        return copy_something(service, moved_p, err);
    case FY_AWAITING_PARTS:
        return await_parts(service, moved_p, err);
    case FY_AWAITING_OTHERS:
        return await_others(service, moved_p, err);
    case FY_RUN_OVER:
        break;
    }
    *moved_p = false;
    return FERRY_OK;
}

/* --- waiting ----------------------------------------------------------------------------------- */

/* What the run cannot go on without. Not asked while pipe_next has to be asked instead. */
typedef struct need {
    fy_counter_t *counter;
    uint32_t value;
    uint32_t member; /* or FERRY_RANK_NONE: anyone */
    const char *what;
} need_t;

static need_t need_begun(const fy_builtin_t *service, uint32_t member) {
    return (need_t){&service->flags[member]->begun, service->number, member, "start of a batch"};
}

static need_t need_of(const fy_builtin_t *service) {
    const fy_run_t *run = &service->run;
    const fy_batch_t *batch = run->batch;
    const fy_share_t *share = own_share(service);
    if (run->phase == FY_AWAITING_PARTS) {
        return (need_t){&service->flags[service->me]->parts, parts_due(service), FERRY_RANK_NONE,
                        "shared copies"};
    }
    if (run->phase == FY_AWAITING_OTHERS) {
        uint32_t member = batch->waits[run->wait];
        if (batch->shares[member].shared && !has_begun(service, member)) {
            return need_begun(service, member); /* then there is something to help with */
        }
        return (need_t){&service->flags[member]->done, service->number, member, "end of a batch"};
    }
    if (run->step < share->nparts) {
        return need_begun(service, work_of(share, run->step)->other);
    }
    if (run->read < batch->nreads) {
        return need_begun(service, batch->read_sources[run->read]->owner);
    }
    return (need_t){NULL, 0, FERRY_RANK_NONE, ""}; /* the pipeline's */
}

static ferry_status_t wait_for(fy_builtin_t *service, const need_t *need, uint64_t deadline_ns,
                               ferry_error_t *err) {
    if (need->counter == NULL) {
        return fy_pipeline_await(&service->run.pipe, deadline_ns, err);
    }
    uint32_t peer = need->member == FERRY_RANK_NONE
                        ? FERRY_RANK_NONE
                        : ferry_group_world_rank(service->group, need->member);
    fy_wait_t wait = {service->world, peer, need->what, deadline_ns};
    uint64_t begin_ns = trace_clock(service);
    FY_TRY(fy_wait_until_at_least(need->counter, need->value, &wait, err));
    if (trace_clock(service) - begin_ns >= FERRY_TRACE_WAIT_NS) {
        trace(service, FERRY_STEP_WAIT, need->member, 0, 0, begin_ns);
    }
    return FERRY_OK;
}

/* A run that is only tested must see failures, too: of the world at once, of a rank now and then. */
static ferry_status_t look_around(fy_builtin_t *service, ferry_error_t *err) {
    FY_TRY(ferry_world_check(service->world, err));
    fy_run_t *run = &service->run;
    uint64_t now = fy_clock_ns();
    if (run->begin_ns == 0) {
        run->begin_ns = now;
        run->looked_ns = now;
    }
    if (now - run->looked_ns < LOOK_NS) {
        return FERRY_OK;
    }
    run->looked_ns = now;
    uint32_t timeout_ms = ferry_world_timeout_ms(service->world);
    bool late =
        timeout_ms != FERRY_TIMEOUT_NONE && now - run->begin_ns > timeout_ms * UINT64_C(1000000);
    need_t need = need_of(service);
    bool gone = false;
    for (uint32_t member = 0; member < service->size && !late && !gone; member++) {
        uint32_t rank = ferry_group_world_rank(service->group, member);
        ferry_rank_life_t life = ferry_world_rank_life(service->world, rank);
        gone = life == FERRY_RANK_DEAD || (life == FERRY_RANK_LEFT && member == need.member);
    }
    return late || gone ? wait_for(service, &need, late ? 1 : 0, err) : FERRY_OK;
}

ferry_status_t fy_run_step(fy_builtin_t *service, bool wait, bool *done_p, ferry_error_t *err) {
    fy_run_t *run = &service->run;
    while (run->phase != FY_RUN_OVER) {
        bool moved = false;
        FY_TRY(do_something(service, &moved, err));
        if (moved) {
            run->begin_ns = 0;
            continue;
        }
        if (!wait) {
            *done_p = false;
            return look_around(service, err);
        }
        need_t need = need_of(service);
        FY_TRY(wait_for(service, &need, 0, err));
    }
    *done_p = true;
    return FERRY_OK;
}
