/* reshard_run.c - sessions on the ranks of a world, looked at byte by byte. */
#include "oracle/reshard_run.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GAP = 0xa5, EDGE = 64 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        ferry_status_t try_status = (call);                                                        \
        if (try_status != FERRY_OK) {                                                              \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

static ferry_status_t __attribute__((format(printf, 2, 3)))
wrong(ferry_error_t *err, const char *format, ...) {
    ferry_error_clear(err);
    err->status = FERRY_CHECK;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return FERRY_CHECK;
}

static uint64_t draw(uint64_t *state, uint64_t limit) {
    orc_rng_t rng = {*state};
    uint64_t drawn = orc_draw(&rng, limit);
    *state = rng.state;
    return drawn;
}

/* ---- memory ---- */

static ferry_status_t take(rsr_t *r, rsr_block_t *block, rsr_memory_t memory, ferry_error_t *err) {
    block->arena = memory == RSR_ARENA || (memory == RSR_EITHER && draw(&r->random, 2) == 0);
    if (block->arena) {
        void *taken = NULL;
        TRY(ferry_mem_alloc(r->world, block->bytes, &taken, err));
        block->memory = taken;
    } else {
        block->memory = orc_alloc(block->bytes, 1);
    }
    memset(block->memory, GAP, block->bytes);
    return FERRY_OK;
}

/* Strides, padding and direction of every dim. Sets view (data as an offset) and bytes. */
static void shape_block(rsr_t *r, rsr_block_t *block, ferry_dtype_t dtype, uint32_t ndim,
                        const uint64_t *shape, bool odd) {
    uint32_t order[ORC_DIMS];
    int64_t stride = 1;
    size_t width = rso_width(dtype);
    size_t start = EDGE + (odd ? draw(&r->random, 4) * width : 0);
    ferry_view_t *view = &block->view;
    memset(view, 0, sizeof *view);
    view->dtype = dtype;
    view->ndim = ndim;
    for (uint32_t i = 0; i < ndim; i++) {
        order[i] = i;
        view->shape[i] = shape[i];
    }
    bool turned = odd && draw(&r->random, 3) == 0;
    for (uint32_t i = ndim; turned && i > 1; i--) {
        uint32_t j = (uint32_t)draw(&r->random, i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    for (uint32_t i = ndim; i-- > 0;) {
        uint32_t dim = order[i];
        uint64_t length = shape[dim] + (odd && draw(&r->random, 2) == 0 ? draw(&r->random, 3) : 0);
        view->strides[dim] = stride;
        if (odd && shape[dim] > 0 && draw(&r->random, 8) == 0) {
            start += (size_t)stride * (size_t)(shape[dim] - 1) * width;
            view->strides[dim] = -stride;
        }
        stride *= (int64_t)length;
    }
    block->bytes = EDGE + 4 * width + (size_t)stride * width + EDGE;
    view->data = (void *)(uintptr_t)start; /* NOLINT(performance-no-int-to-ptr): an offset */
}

static void place_view(rsr_block_t *block) {
    block->view.data = block->memory + (uintptr_t)block->view.data;
    block->view.kind = block->arena ? FERRY_MEM_SHARED : FERRY_MEM_HOST;
}

static ferry_status_t make_block(rsr_t *r, rsr_block_t *block, rsr_memory_t memory,
                                 ferry_dtype_t dtype, uint32_t ndim, const uint64_t *shape,
                                 bool odd, ferry_error_t *err) {
    shape_block(r, block, dtype, ndim, shape, odd);
    TRY(take(r, block, memory, err));
    place_view(block);
    return FERRY_OK;
}

static void drop(rsr_t *r, rsr_block_t *block) {
    if (block->memory == NULL) {
        return;
    }
    if (block->arena) {
        (void)ferry_mem_free(r->world, block->memory, NULL);
    } else {
        free(block->memory);
    }
    block->memory = NULL;
}

/* Elements in row-major order to where the view has them, in a copy of the block's memory at `to`. */
static void scatter(const rsr_block_t *block, uint8_t *to, const uint8_t *elements) {
    const ferry_view_t *view = &block->view;
    size_t width = rso_width(view->dtype);
    uint64_t count = 1;
    for (uint32_t d = 0; d < view->ndim; d++) {
        count *= view->shape[d];
    }
    uint8_t *base = to + ((uint8_t *)view->data - block->memory);
    for (uint64_t e = 0; e < count; e++) {
        int64_t at = 0;
        uint64_t rest = e;
        for (uint32_t d = view->ndim; d-- > 0;) {
            at += (int64_t)(rest % view->shape[d]) * view->strides[d];
            rest /= view->shape[d];
        }
        memcpy(base + at * (int64_t)width, elements + e * width, width);
    }
}

/* ---- the tensors of this rank ---- */

static ferry_status_t open_mx(rsr_t *r, uint32_t index, const uint64_t *shape, ferry_error_t *err) {
    const rso_tensor_t *t = &r->setup->c->tensors[index];
    rsr_tensor_t *mine = &r->tensors[index];
    uint64_t scales[ORC_DIMS];
    uint32_t ndim = t->ndim;
    uint64_t rows = 1;
    for (uint32_t d = 0; d < t->ndim; d++) {
        scales[d] = shape[d];
        rows *= d + 1 < t->ndim ? shape[d] : 1;
    }
    scales[t->ndim - 1] /= RSO_MX_BLOCK;
    bool odd = r->setup->odd_views;
    if (t->mx == RSO_MX_SWIZZLED) {
        scales[0] = rso_swizzled_bytes(rows, scales[t->ndim - 1]);
        ndim = 1;
        odd = false;
    }
    for (uint32_t i = 0; i < r->copies; i++) {
        TRY(make_block(r, &mine->data[i], r->setup->target_memory, FERRY_F8E4M3, t->ndim, shape,
                       r->setup->odd_views, err));
        TRY(make_block(r, &mine->scales[i], r->setup->target_memory, FERRY_E8M0, ndim, scales, odd,
                       err));
    }
    return FERRY_OK;
}

/* A target that begins where the source does, in a block with room for both. */
static ferry_status_t open_in_place(rsr_t *r, uint32_t index, const uint64_t *shape,
                                    ferry_error_t *err) {
    const rso_tensor_t *t = &r->setup->c->tensors[index];
    rsr_tensor_t *mine = &r->tensors[index];
    shape_block(r, &mine->target[0], t->target_dtype, t->ndim, shape, false);
    if (mine->source.memory == NULL) {
        TRY(take(r, &mine->target[0], r->setup->target_memory, err));
    } else if (mine->source.bytes < mine->target[0].bytes) {
        return wrong(err, "%s: the target does not fit into its source", t->name);
    } else {
        mine->target[0].memory = mine->source.memory;
        mine->target[0].bytes = mine->source.bytes;
        mine->target[0].arena = mine->source.arena;
    }
    place_view(&mine->target[0]);
    return FERRY_OK;
}

static ferry_status_t open_tensor(rsr_t *r, uint32_t index, ferry_error_t *err) {
    const rsr_setup_t *setup = r->setup;
    const rso_tensor_t *t = &setup->c->tensors[index];
    rsr_tensor_t *mine = &r->tensors[index];
    uint64_t shape[ORC_DIMS];
    if (rso_local_shape(t, true, r->me, shape)) {
        if (t->tied != 0) {
            mine->source = r->tensors[t->tied - 1].source;
        } else {
            TRY(make_block(r, &mine->source, setup->source_memory, t->source_dtype, t->ndim, shape,
                           setup->odd_views && !setup->in_place, err));
        }
    }
    if (!rso_local_shape(t, false, r->me, shape)) {
        return FERRY_OK;
    }
    if (t->mx != RSO_MX_NONE) {
        return open_mx(r, index, shape, err);
    }
    if (setup->in_place) {
        return open_in_place(r, index, shape, err);
    }
    for (uint32_t i = 0; i < r->copies; i++) {
        TRY(make_block(r, &mine->target[i], setup->target_memory, t->target_dtype, t->ndim, shape,
                       setup->odd_views, err));
    }
    return FERRY_OK;
}

static void bind(rsr_t *r) {
    const rso_case_t *c = r->setup->c;
    ferry_bound_t *sources = r->bound;
    ferry_bound_t *targets = sources + c->ntensors;
    ferry_bound_t *others = targets + c->ntensors;
    for (uint32_t i = 0; i < c->ntensors; i++) {
        /* In an order of its own: ferry goes by names. */
        uint32_t t = r->me % 2 == 0 ? i : c->ntensors - 1 - i;
        rsr_tensor_t *mine = &r->tensors[t];
        const char *name = c->tensors[t].name;
        if (mine->source.memory != NULL) {
            void *ready = r->setup->delays ? mine : NULL;
            sources[r->sources.count++] = (ferry_bound_t){name, mine->source.view, ready};
        }
        if (mine->target[0].memory != NULL) {
            targets[r->targets.count++] = (ferry_bound_t){name, mine->target[0].view, NULL};
        }
        if (mine->target[1].memory != NULL) {
            others[r->others.count++] = (ferry_bound_t){name, mine->target[1].view, NULL};
        }
    }
    r->sources.list = sources;
    r->targets.list = targets;
    r->others.list = others;
}

/* ---- hooks ---- */

static void nap(rsr_t *r) {
    if (r->setup->delays && draw(&r->random, 3) == 0) {
        (void)usleep((useconds_t)draw(&r->random, 300));
    }
}

static bool is_ready(void *context, void *event) {
    rsr_t *r = context;
    rsr_tensor_t *mine = event;
    nap(r);
    return mine->polls++ >= 2;
}

static ferry_status_t refresh(void *context, uint64_t version, ferry_error_t *err) {
    rsr_t *r = context;
    (void)err;
    nap(r);
    r->refreshed++;
    r->refreshed_version = version;
    return FERRY_OK;
}

static void progress(void *context, const ferry_reshard_progress_t *now) {
    rsr_t *r = context;
    nap(r);
    r->progress_calls++;
    r->progress_bad = r->progress_bad || now->bytes_done > now->bytes_total ||
                      now->bytes_done < r->progress_bytes || now->phase >= FERRY_PHASE_COUNT ||
                      (now->passes > 0 && now->pass >= now->passes);
    r->progress_bytes = now->bytes_done;
    r->progress_total = now->bytes_total;
}

/* ---- opening and closing ---- */

static ferry_status_t open_quantiser(rsr_t *r, ferry_error_t *err) {
    const rso_case_t *c = r->setup->c;
    const char **names = orc_alloc(c->ntensors, sizeof *names);
    ferry_mx_target_t *targets = orc_alloc(c->ntensors, sizeof *targets);
    size_t nnames = 0;
    size_t ntargets = 0;
    for (uint32_t i = 0; i < c->ntensors; i++) {
        const rsr_tensor_t *mine = &r->tensors[i];
        if (c->tensors[i].mx == RSO_MX_NONE) {
            continue;
        }
        names[nnames++] = c->tensors[i].name;
        if (mine->data[0].memory != NULL) {
            ferry_mx_target_t *target = &targets[ntargets++];
            target->name = c->tensors[i].name;
            target->layout = c->tensors[i].mx == RSO_MX_ROWS ? FERRY_MX_ROWS : FERRY_MX_SWIZZLED;
            for (uint32_t k = 0; k < r->copies; k++) {
                target->data[k] = mine->data[k].view;
                target->scales[k] = mine->scales[k].view;
            }
        }
    }
    ferry_status_t status = FERRY_OK;
    if (nnames > 0) {
        status =
            ferry_mxfp8_create(names, nnames, targets, ntargets, r->setup->convert, &r->mxfp8, err);
    }
    free(names);
    free(targets);
    return status;
}

static ferry_status_t open_group(rsr_t *r, ferry_error_t *err) {
    r->group = ferry_world_group(r->world);
    if (r->setup->nmembers == 0) {
        return FERRY_OK;
    }
    r->own_group = true;
    return ferry_group_create(r->world, r->setup->members, r->setup->nmembers, &r->group, err);
}

ferry_status_t rsr_open(rsr_t *r, ferry_world_t *world, const rsr_setup_t *setup,
                        ferry_copy_service_t *service, ferry_error_t *err) {
    const rso_case_t *c = setup->c;
    memset(r, 0, sizeof *r);
    r->world = world;
    r->setup = setup;
    TRY(open_group(r, err));
    r->me = ferry_group_rank(r->group);
    r->copies = setup->commit == FERRY_COMMIT_FLIP ? 2 : 1;
    r->random = setup->seed ^ ((uint64_t)(r->me + 1) << 40);
    r->tensors = orc_alloc(c->ntensors, sizeof *r->tensors);
    r->bound = orc_alloc(3 * (size_t)c->ntensors, sizeof *r->bound);
    for (uint32_t i = 0; i < c->ntensors; i++) {
        TRY(open_tensor(r, i, err));
    }
    bind(r);
    TRY(open_quantiser(r, err));
    TRY(rso_plan(c, setup->parts ? r->me : FERRY_RANK_NONE, &r->plan, err));
    r->service = service;
    if (service == NULL) {
        r->own_service = true;
        TRY(ferry_copy_service_create(r->group, &setup->service, &r->service, err));
    }
    if (setup->commit != 0) {
        TRY(ferry_commit_create(r->group, (ferry_commit_mode_t)setup->commit, &r->commit, err));
    }
    r->options = setup->options;
    r->options.wire = c->wire;
    r->options.commit = r->commit;
    r->options.other_targets = r->others;
    r->options.context = r;
    r->options.is_ready = setup->delays ? is_ready : NULL;
    r->options.refresh = refresh;
    r->options.progress = progress;
    return FERRY_OK;
}

ferry_status_t rsr_session(rsr_t *r, ferry_error_t *err) {
    return ferry_session_create(r->plan, r->sources, r->targets, r->service,
                                r->mxfp8 == NULL ? NULL : ferry_mxfp8_transform(r->mxfp8),
                                &r->options, &r->session, err);
}

void rsr_close(rsr_t *r) {
    const rso_case_t *c = r->setup->c;
    ferry_session_close(r->session);
    ferry_mxfp8_destroy(r->mxfp8);
    if (r->own_service) {
        ferry_copy_service_close(r->service);
    }
    ferry_commit_destroy(r->commit);
    if (r->own_group) {
        ferry_group_destroy(r->group);
    }
    ferry_plan_destroy(r->plan);
    for (uint32_t i = 0; i < c->ntensors; i++) {
        rsr_tensor_t *mine = &r->tensors[i];
        if (mine->target[0].memory != mine->source.memory) {
            drop(r, &mine->target[0]);
        }
        drop(r, &mine->target[1]);
        if (c->tensors[i].tied == 0) {
            drop(r, &mine->source);
        }
        for (int k = 0; k < 2; k++) {
            drop(r, &mine->data[k]);
            drop(r, &mine->scales[k]);
        }
    }
    free(r->tensors);
    free(r->bound);
    memset(r, 0, sizeof *r);
}

/* ---- rounds ---- */

static void clear(rsr_block_t *block) {
    if (block->memory != NULL) {
        memset(block->memory, GAP, block->bytes);
    }
}

ferry_status_t rsr_fill(rsr_t *r, uint32_t round, ferry_error_t *err) {
    const rso_case_t *c = r->setup->c;
    (void)err;
    r->progress_bytes = 0;
    for (uint32_t i = 0; i < c->ntensors; i++) {
        rsr_tensor_t *mine = &r->tensors[i];
        mine->polls = 0;
        if (r->setup->commit == 0) {
            clear(&mine->target[0]);
            clear(&mine->data[0]);
            clear(&mine->scales[0]);
        }
        if (mine->source.memory == NULL || c->tensors[i].tied != 0) {
            continue;
        }
        uint64_t elements = rso_elements(&c->tensors[i], true, r->me);
        uint8_t *values = orc_alloc(elements, rso_width(c->tensors[i].source_dtype));
        rso_source(c, i, r->setup->seed, round, r->me, values);
        scatter(&mine->source, mine->source.memory, values);
        free(values);
    }
    return FERRY_OK;
}

ferry_status_t rsr_drive(rsr_t *r, ferry_error_t *err) {
    rsr_drive_t drive = r->setup->drive;
    bool done = false;
    nap(r);
    if (drive == RSR_EACH) {
        drive = (rsr_drive_t)(r->me % 3);
    }
    if (drive == RSR_RUN) {
        return ferry_session_run(r->session, &r->result, err);
    }
    TRY(ferry_session_start(r->session, err));
    if (drive == RSR_WAIT) {
        return ferry_session_wait(r->session, &r->result, err);
    }
    while (!done) {
        TRY(ferry_session_test(r->session, &done, err));
        if (!done) {
            nap(r);
            (void)sched_yield(); /* there are more ranks than cores */
        }
    }
    ferry_session_result(r->session, &r->result);
    return FERRY_OK;
}

/* ---- looking ---- */

static ferry_status_t same(const rsr_t *r, const rsr_block_t *block, const uint8_t *want,
                           const char *name, const char *what, ferry_error_t *err) {
    for (size_t i = 0; i < block->bytes; i++) {
        if (block->memory[i] != want[i]) {
            return wrong(err, "rank %u, %s of %s, byte %zu of %zu (view at %zd): %02x, not %02x",
                         r->me, what, name, i, block->bytes,
                         (uint8_t *)block->view.data - block->memory, block->memory[i], want[i]);
        }
    }
    return FERRY_OK;
}

/* `elements` in the view, gaps around. */
static ferry_status_t holds(const rsr_t *r, const rsr_block_t *block, const uint8_t *elements,
                            const char *name, const char *what, ferry_error_t *err) {
    uint8_t *want = orc_alloc(block->bytes, 1);
    memset(want, GAP, block->bytes);
    if (elements != NULL) {
        scatter(block, want, elements);
    }
    ferry_status_t status = same(r, block, want, name, what, err);
    free(want);
    return status;
}

ferry_status_t rsr_check_sources(rsr_t *r, uint32_t round, ferry_error_t *err) {
    const rso_case_t *c = r->setup->c;
    ferry_status_t status = FERRY_OK;
    for (uint32_t i = 0; i < c->ntensors && status == FERRY_OK && !r->setup->in_place; i++) {
        const rso_tensor_t *t = &c->tensors[i];
        if (r->tensors[i].source.memory != NULL && t->tied == 0) {
            uint8_t *values = orc_alloc(rso_elements(t, true, r->me), rso_width(t->source_dtype));
            rso_source(c, i, r->setup->seed, round, r->me, values);
            status = holds(r, &r->tensors[i].source, values, t->name, "source", err);
            free(values);
        }
    }
    return status;
}

/* The dtype in which the values of a quantised target reach the quantiser. */
static ferry_dtype_t arrives(const rsr_t *r, const rso_tensor_t *t) {
    if (r->setup->convert == FERRY_MX_ON_SENDER) {
        return FERRY_DTYPE_NONE;
    }
    return t->mx == RSO_MX_SWIZZLED ? FERRY_BF16 : t->target_dtype;
}

static ferry_status_t check_mx(rsr_t *r, uint32_t index, uint32_t copy, ferry_error_t *err) {
    const rso_tensor_t *t = &r->setup->c->tensors[index];
    const rsr_tensor_t *mine = &r->tensors[index];
    uint8_t *data = NULL;
    uint8_t *scales = NULL;
    if (r->content[copy] > 0) {
        data = orc_alloc(mine->data[copy].bytes, 1);
        scales = orc_alloc(mine->scales[copy].bytes, 1);
        rso_target_mx(r->setup->c, index, r->setup->seed, r->content[copy] - 1, r->me,
                      arrives(r, t), data, scales);
    }
    ferry_status_t status = holds(r, &mine->data[copy], data, t->name, "data", err);
    if (status == FERRY_OK) {
        status = holds(r, &mine->scales[copy], scales, t->name, "scales", err);
    }
    free(data);
    free(scales);
    return status;
}

static ferry_status_t check_plain(rsr_t *r, uint32_t index, uint32_t copy, ferry_error_t *err) {
    const rso_case_t *c = r->setup->c;
    const rso_tensor_t *t = &c->tensors[index];
    const rsr_block_t *block = &r->tensors[index].target[copy];
    if (r->content[copy] == 0) {
        return holds(r, block, NULL, t->name, "target", err);
    }
    uint32_t round = r->content[copy] - 1;
    uint8_t *values = orc_alloc(rso_elements(t, false, r->me), rso_width(t->target_dtype));
    uint8_t *want = orc_alloc(block->bytes, 1);
    memset(want, GAP, block->bytes);
    if (block->memory ==
        r->tensors[index].source.memory) { /* what the source had, below the target */
        uint8_t *under = orc_alloc(block->bytes, 1);
        rso_source(c, index, r->setup->seed, round, r->me, under);
        scatter(&r->tensors[index].source, want, under);
        free(under);
    }
    rso_target(c, index, r->setup->seed, round, r->me, values);
    scatter(block, want, values);
    ferry_status_t status = same(r, block, want, t->name, "target", err);
    free(values);
    free(want);
    return status;
}

ferry_status_t rsr_check_targets(rsr_t *r, ferry_error_t *err) {
    for (uint32_t i = 0; i < r->setup->c->ntensors; i++) {
        for (uint32_t copy = 0; copy < r->copies; copy++) {
            if (r->tensors[i].data[copy].memory != NULL) {
                TRY(check_mx(r, i, copy, err));
            } else if (r->tensors[i].target[copy].memory != NULL) {
                TRY(check_plain(r, i, copy, err));
            }
        }
    }
    return FERRY_OK;
}

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return wrong(err, "rank %u, line %d: not so: %s", r->me, __LINE__, #condition);        \
        }                                                                                          \
    } while (0)

/* What must land here: in the plan's dtypes, and, at least, on the way. */
static void expected_bytes(const rsr_t *r, uint64_t *written_p, uint64_t *least_p, bool *mx_p) {
    const rso_case_t *c = r->setup->c;
    for (uint32_t i = 0; i < c->ntensors; i++) {
        const rso_tensor_t *t = &c->tensors[i];
        uint64_t elements = rso_elements(t, false, r->me);
        size_t target = rso_width(t->target_dtype);
        size_t wire = t->mx == RSO_MX_NONE ? rso_width(rso_wire(c, t)) : 1;
        *written_p += elements * target;
        *least_p += elements * (wire < target ? wire : target);
        *mx_p = *mx_p || (t->mx != RSO_MX_NONE && elements > 0);
    }
}

static ferry_status_t check_result(const rsr_t *r, uint32_t round, ferry_error_t *err) {
    const ferry_reshard_result_t *result = &r->result;
    uint64_t written = 0;
    uint64_t least = 0;
    bool mx = false;
    expected_bytes(r, &written, &least, &mx);
    uint64_t by_path = result->bytes_direct + result->bytes_read + result->bytes_pipeline;
    uint64_t by_writeback = result->writeback_direct_bytes + result->writeback_copy_bytes +
                            result->writeback_transform_bytes;
    uint64_t chunks = result->chunks_direct + result->chunks_copy + result->chunks_transform;
    NEED(by_path == result->bytes_received);
    NEED(by_writeback == written);
    NEED(r->setup->in_place || result->bytes_received >= least);
    NEED((chunks > 0) == (written > 0));
    NEED((result->chunks_transform > 0) == mx);
    NEED(result->passes >= 1);
    NEED(r->options.budget_bytes == 0 || result->staging_bytes <= r->options.budget_bytes);
    NEED(result->version == (r->commit == NULL ? 0 : round + 1));
    NEED(result->committed == (r->commit != NULL));
    NEED(r->refreshed == round + 1);
    NEED(r->refreshed_version == result->version);
    NEED(!r->progress_bad && r->progress_calls > 0);
    NEED(r->progress_bytes == r->progress_total);
    NEED(r->options.check ? (result->buckets_checked > 0) == (chunks > 0)
                          : result->buckets_checked == 0);
    NEED(result->total_seconds >= 0);
    return FERRY_OK;
}

/* The version that was just brought is the one that readers get. */
static ferry_status_t check_held(rsr_t *r, uint32_t round, ferry_error_t *err) {
    ferry_hold_t hold;
    TRY(ferry_commit_acquire(r->commit, &hold, err));
    NEED(hold.version == round + 1);
    NEED(ferry_commit_version(r->commit) == round + 1);
    NEED(hold.copy < r->copies);
    NEED(r->copies == 1 || hold.copy == (round + 1) % 2);
    r->content[hold.copy] = round + 1;
    ferry_commit_release(r->commit, &hold);
    return FERRY_OK;
}

ferry_status_t rsr_check(rsr_t *r, uint32_t round, ferry_error_t *err) {
    if (r->commit != NULL) {
        TRY(check_held(r, round, err));
    } else {
        r->content[0] = round + 1;
    }
    TRY(rsr_check_targets(r, err));
    TRY(rsr_check_sources(r, round, err));
    return check_result(r, round, err);
}

ferry_status_t rsr_run(ferry_world_t *world, const rsr_setup_t *setup, ferry_error_t *err) {
    rsr_t run;
    uint32_t rounds = setup->rounds == 0 ? 2 : setup->rounds;
    TRY(rsr_open(&run, world, setup, NULL, err));
    TRY(rsr_session(&run, err));
    for (uint32_t round = 0; round < rounds; round++) {
        TRY(rsr_fill(&run, round, err));
        TRY(rsr_drive(&run, err));
        TRY(rsr_check(&run, round, err));
    }
    rsr_close(&run);
    return FERRY_OK;
}

ferry_status_t rsr_body(ferry_world_t *world, void *context, ferry_error_t *err) {
    return rsr_run(world, context, err);
}
