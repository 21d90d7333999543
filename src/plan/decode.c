/* decode.c - bytes to a plan, trusting nothing.
 *
 * The inputs are rebuilt through the same doors as a caller's, so every rule about layouts and
 * tensors holds for a file too; the moves are taken from the file and proven by ferry_plan_check;
 * last, the plan must encode to the very bytes it came from. No count in the file is believed before
 * that many bytes are seen to be there. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "plan/file.h"
#include "plan/plan.h"

typedef struct span {
    size_t begin;
    size_t count; /* moves */
} span_t;

typedef struct decoder {
    fy_reader_t r;
    fy_arena_t arena; /* what the plan will copy */
    ferry_plan_params_t params;
    ferry_layout_t **layouts;
    size_t nlayouts;
    ferry_tensor_t *sources;
    ferry_tensor_t *targets;
    uint32_t *hosts;
    fy_move_t *moves; /* of all blocks, tensor left open */
    size_t nmoves;
    size_t moves_cap;
    span_t *blocks;
    size_t nblocks;
    uint32_t rank;
} decoder_t;

static ferry_status_t damaged(const decoder_t *d, const char *what, ferry_error_t *err) {
    return fy_fail(err, FERRY_CORRUPT, "plan file, byte %zu: %s", d->r.at, what);
}

/* A count of things that take at least `each` bytes. */
static size_t read_count(decoder_t *d, size_t each) {
    return (size_t)fy_read_at_most(&d->r, (d->r.length - d->r.at) / each);
}

static const uint64_t *read_list(decoder_t *d, size_t *count_p) {
    size_t count = read_count(d, 1);
    uint64_t *list = fy_arena_alloc(&d->arena, count, sizeof *list);
    for (size_t i = 0; list != NULL && i < count; i++) {
        list[i] = fy_read_u64(&d->r);
    }
    *count_p = count;
    return list;
}

static bool read_placement(decoder_t *d, ferry_placement_t *p) {
    p->kind = (ferry_placement_kind_t)fy_read_at_most(&d->r, FERRY_PARTIAL);
    if (p->kind == FERRY_PARTIAL) {
        p->op = (ferry_reduce_op_t)fy_read_at_most(&d->r, FERRY_REDUCE_PRODUCT);
    }
    if (p->kind == FERRY_SHARD) {
        p->cut = (ferry_cut_t)fy_read_at_most(&d->r, FERRY_CUT_STRIDED);
        p->dim = (uint32_t)fy_read_at_most(&d->r, FERRY_MAX_DIMS - 1);
        p->arg = fy_read_u64(&d->r);
        p->unit = fy_read_u64(&d->r);
        p->sizes = read_list(d, &p->nsizes);
        p->lengths = read_list(d, &p->nlengths);
        return p->sizes != NULL && p->lengths != NULL;
    }
    return true;
}

static ferry_status_t read_layout(decoder_t *d, ferry_layout_t **layout_p, ferry_error_t *err) {
    ferry_axis_t axes[FERRY_MAX_AXES] = {{0}};
    ferry_placement_t placements[FERRY_MAX_AXES] = {{0}};
    uint32_t naxes = (uint32_t)fy_read_at_most(&d->r, FERRY_MAX_AXES);
    uint64_t nranks = 1;
    for (uint32_t a = 0; a < naxes && !d->r.failed; a++) {
        size_t length = (size_t)fy_read_at_most(&d->r, FERRY_MAX_AXIS_NAME);
        const uint8_t *bytes = fy_read_bytes(&d->r, length);
        char *name = fy_arena_alloc(&d->arena, length + 1, 1);
        axes[a].size = (uint32_t)fy_read_at_most(&d->r, (uint64_t)FERRY_MAX_RANK + 1);
        nranks *= axes[a].size; /* at most 2^21 * 2^20 before the test below */
        if (nranks > d->r.length - d->r.at) {
            d->r.failed = true; /* each rank takes a byte at least */
        }
        if (name == NULL || !read_placement(d, &placements[a])) {
            return fy_fail_nomem(err, "a layout of a plan file");
        }
        if (bytes != NULL) {
            memcpy(name, bytes, length);
        }
        name[length] = '\0';
        axes[a].name = name;
    }
    if (d->r.failed) {
        return damaged(d, "a layout is damaged", err);
    }
    uint32_t *ranks = fy_arena_alloc(&d->arena, (size_t)nranks, sizeof *ranks);
    if (ranks == NULL) {
        return fy_fail_nomem(err, "a layout of a plan file");
    }
    int64_t next = 0;
    for (uint64_t i = 0; i < nranks; i++) {
        int64_t step = fy_read_i64(&d->r);
        if (d->r.failed || step < -next || step > FERRY_MAX_RANK - next) {
            return damaged(d, "the ranks of a layout are damaged", err);
        }
        ranks[i] = (uint32_t)(next + step);
        next = (int64_t)ranks[i] + 1;
    }
    ferry_layout_params_t params = {sizeof params, naxes, axes, placements, ranks};
    return ferry_layout_create(&params, layout_p, err);
}

static ferry_status_t read_layouts(decoder_t *d, ferry_error_t *err) {
    size_t count = read_count(d, 4);
    d->layouts = fy_arena_alloc(&d->arena, count, sizeof *d->layouts);
    if (d->layouts == NULL) {
        return fy_fail_nomem(err, "the layouts of a plan file");
    }
    for (; d->nlayouts < count; d->nlayouts++) {
        FY_TRY(read_layout(d, &d->layouts[d->nlayouts], err));
    }
    return FERRY_OK;
}

/* The whole name, from what it shares with the one before and its rest. */
static const char *read_name(decoder_t *d, const char *before) {
    size_t shared = (size_t)fy_read_at_most(&d->r, strlen(before));
    size_t rest = read_count(d, 1);
    const uint8_t *bytes = fy_read_bytes(&d->r, rest);
    char *name = fy_arena_alloc(&d->arena, shared + rest + 1, 1);
    if (name != NULL && bytes != NULL) {
        memcpy(name, before, shared);
        memcpy(name + shared, bytes, rest);
        name[shared + rest] = '\0';
        if (memchr(bytes, '\0', rest) != NULL) {
            d->r.failed = true;
        }
    }
    return name;
}

static ferry_status_t read_tensors(decoder_t *d, ferry_error_t *err) {
    size_t count = read_count(d, 7);
    const char *before = "";
    d->sources = fy_arena_alloc(&d->arena, count, sizeof *d->sources);
    d->targets = fy_arena_alloc(&d->arena, count, sizeof *d->targets);
    if (d->sources == NULL || d->targets == NULL) {
        return fy_fail_nomem(err, "the tensors of a plan file");
    }
    for (size_t i = 0; i < count; i++) {
        ferry_tensor_t t = {0};
        size_t ndim = 0;
        t.name = read_name(d, before);
        size_t source = (size_t)fy_read_u64(&d->r);
        size_t target = (size_t)fy_read_u64(&d->r);
        ferry_dtype_t source_dtype = (ferry_dtype_t)fy_read_at_most(&d->r, FERRY_BOOL);
        ferry_dtype_t target_dtype = (ferry_dtype_t)fy_read_at_most(&d->r, FERRY_BOOL);
        t.shape = read_list(d, &ndim);
        if (t.name == NULL || t.shape == NULL) {
            return fy_fail_nomem(err, "the tensors of a plan file");
        }
        if (d->r.failed || source >= d->nlayouts || target >= d->nlayouts ||
            ndim > FERRY_MAX_DIMS) {
            return damaged(d, "a tensor is damaged", err);
        }
        t.ndim = (uint32_t)ndim;
        t.layout = d->layouts[source];
        t.dtype = source_dtype;
        d->sources[i] = t;
        t.layout = d->layouts[target];
        t.dtype = target_dtype;
        d->targets[i] = t;
        before = t.name;
    }
    d->params.sources = d->sources;
    d->params.targets = d->targets;
    d->params.nsources = count;
    d->params.ntargets = count;
    return FERRY_OK;
}

static ferry_status_t read_input(decoder_t *d, ferry_error_t *err) {
    uint64_t planner = fy_read_u64(&d->r);
    if (!d->r.failed && planner != FERRY_PLANNER_VERSION) {
        return fy_fail(err, FERRY_VERSION,
                       "plan file made by planner version %" PRIu64 ", this one is %d", planner,
                       FERRY_PLANNER_VERSION);
    }
    d->params.flags = (uint32_t)fy_read_at_most(&d->r, FERRY_PLAN_STRICT | FERRY_PLAN_ALLOW_CAST);
    d->params.nhosts = read_count(d, 1);
    d->hosts = fy_arena_alloc(&d->arena, d->params.nhosts, sizeof *d->hosts);
    if (d->hosts == NULL) {
        return fy_fail_nomem(err, "the host map of a plan file");
    }
    for (size_t i = 0; i < d->params.nhosts; i++) {
        d->hosts[i] = (uint32_t)fy_read_at_most(&d->r, UINT32_MAX);
    }
    d->params.hosts = d->hosts;
    if (d->r.failed) {
        return damaged(d, "the host map is damaged", err);
    }
    FY_TRY(read_layouts(d, err));
    return read_tensors(d, err);
}

/* ---- moves ------------------------------------------------------------------------------------ */

static ferry_status_t read_block(decoder_t *d, span_t *block, ferry_error_t *err) {
    uint64_t stage = fy_read_u64(&d->r);
    size_t count = read_count(d, 3);
    uint64_t target = 0;
    uint64_t geom = 0;
    if (stage != 0) {
        return fy_fail(err, FERRY_VERSION,
                       "plan file, byte %zu: stages are not known to this ferry", d->r.at);
    }
    if (!fy_reserve(&d->moves, &d->moves_cap, d->nmoves + count, sizeof *d->moves)) {
        return fy_fail_nomem(err, "the moves of a plan file");
    }
    *block = (span_t){d->nmoves, count};
    for (size_t i = 0; i < count; i++) {
        target += fy_read_at_most(&d->r, FERRY_MAX_RANK);
        int64_t offset = fy_read_i64(&d->r);
        geom += (uint64_t)fy_read_i64(&d->r);
        if (d->r.failed || target > FERRY_MAX_RANK || offset < -(int64_t)target ||
            offset > FERRY_MAX_RANK - (int64_t)target) {
            return damaged(d, "a move is damaged", err);
        }
        uint32_t source = (uint32_t)((int64_t)target + offset);
        d->moves[d->nmoves++] = (fy_move_t){0, source, (uint32_t)target, 0, geom};
    }
    return FERRY_OK;
}

static ferry_status_t read_blocks(decoder_t *d, ferry_error_t *err) {
    uint64_t rank = fy_read_at_most(&d->r, (uint64_t)FERRY_MAX_RANK + 1);
    d->rank = rank == 0 ? FERRY_RANK_NONE : (uint32_t)(rank - 1);
    size_t count = read_count(d, 2);
    d->blocks = fy_arena_alloc(&d->arena, count, sizeof *d->blocks);
    if (d->blocks == NULL) {
        return fy_fail_nomem(err, "the moves of a plan file");
    }
    for (; d->nblocks < count; d->nblocks++) {
        FY_TRY(read_block(d, &d->blocks[d->nblocks], err));
    }
    return d->r.failed ? damaged(d, "the moves are damaged", err) : FERRY_OK;
}

/* Gives each tensor its block. Geoms are numbers until ferry_plan_check has seen them, so only those
 * in range are asked for their piece. */
static ferry_status_t stamp_blocks(decoder_t *d, ferry_plan_t *plan, ferry_error_t *err) {
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        const fy_pattern_t *p = fy_plan_pattern_of(plan, t);
        uint64_t id = fy_read_u64(&d->r);
        if (d->r.failed || id >= d->nblocks) {
            return damaged(d, "the moves of a tensor are missing", err);
        }
        span_t block = d->blocks[id];
        if (!fy_reserve(&plan->moves, &plan->moves_cap, plan->nmoves + block.count,
                        sizeof *plan->moves)) {
            return fy_fail_nomem(err, "the moves of a plan file");
        }
        for (size_t i = 0; i < block.count; i++) {
            fy_move_t m = d->moves[block.begin + i];
            m.tensor = t;
            if (m.geom >= p->ngeoms) {
                return damaged(d, "a move names a region that is not there", err);
            }
            m.piece = (uint32_t)fy_geom_piece(p, m.geom);
            plan->moves[plan->nmoves++] = m;
            plan->ntransfers += fy_geom_boxes(p, m.geom);
        }
    }
    return FERRY_OK;
}

/* The plan, read back, is the file: nothing was left out, nothing is said in two ways. */
static ferry_status_t check_canonical(const decoder_t *d, const ferry_plan_t *plan,
                                      const uint8_t *bytes, size_t length, ferry_error_t *err) {
    uint8_t *again = NULL;
    size_t again_length = 0;
    FY_TRY(ferry_plan_encode(plan, &again, &again_length, err));
    bool same = again_length == length && memcmp(again, bytes, length) == 0;
    fy_free(again);
    return same ? FERRY_OK : damaged(d, "not written by ferry", err);
}

static ferry_status_t build(decoder_t *d, ferry_plan_t *plan, ferry_error_t *err) {
    FY_TRY(read_input(d, err));
    plan->flags = d->params.flags;
    plan->nhosts = d->params.nhosts;
    plan->hosts = fy_arena_copy(&plan->arena, d->hosts, plan->nhosts, sizeof *plan->hosts);
    if (plan->hosts == NULL) {
        return fy_fail_nomem(err, "the host map of a plan file");
    }
    FY_TRY(fy_plan_match(plan, &d->params, err));
    FY_TRY(fy_plan_hash_input(plan, &plan->hash, err));
    FY_TRY(read_blocks(d, err));
    plan->rank = d->rank;
    FY_TRY(stamp_blocks(d, plan, err));
    if (d->r.at != d->r.length) {
        return damaged(d, "more bytes than the plan needs", err);
    }
    return ferry_plan_check(plan, err);
}

static ferry_status_t check_frame(decoder_t *d, const uint8_t *bytes, size_t length,
                                  ferry_error_t *err) {
    if (length < FY_PLAN_MAGIC_BYTES || memcmp(bytes, FY_PLAN_MAGIC, FY_PLAN_MAGIC_BYTES) != 0) {
        return fy_fail(err, FERRY_CORRUPT, "not a plan file: it does not begin as one");
    }
    d->r.at = FY_PLAN_MAGIC_BYTES;
    uint64_t version = fy_read_u64(&d->r);
    if (!d->r.failed && version != FERRY_PLAN_FORMAT_VERSION) {
        return fy_fail(err, FERRY_VERSION,
                       "plan file of format version %" PRIu64 ", this ferry reads %d", version,
                       FERRY_PLAN_FORMAT_VERSION);
    }
    if (d->r.failed || length < d->r.at + FY_PLAN_HASH_BYTES) {
        return fy_fail(err, FERRY_CORRUPT, "plan file is cut short after %zu bytes", length);
    }
    d->r.length = length - FY_PLAN_HASH_BYTES;
    if (fy_hash_bytes(bytes, d->r.length) != fy_fixed64(bytes + d->r.length)) {
        return fy_fail(err, FERRY_CORRUPT,
                       "plan file of %zu bytes is cut short or altered: its hash does not fit",
                       length);
    }
    return FERRY_OK;
}

ferry_status_t ferry_plan_decode(const uint8_t *bytes, size_t length, ferry_plan_t **plan_p,
                                 ferry_error_t *err) {
    FY_NEED(bytes, err);
    FY_NEED(plan_p, err);
    decoder_t d = {0};
    d.r = (fy_reader_t){bytes, length, 0, false};
    d.params = (ferry_plan_params_t)FERRY_PLAN_PARAMS_INIT;
    FY_TRY(check_frame(&d, bytes, length, err));
    ferry_plan_t *plan = fy_alloc_zero(1, sizeof *plan);
    if (plan == NULL) {
        return fy_fail_nomem(err, "a plan");
    }
    plan->rank = FERRY_RANK_NONE;
    ferry_status_t status = build(&d, plan, err);
    if (status == FERRY_OK) {
        status = check_canonical(&d, plan, bytes, length, err);
    }
    for (size_t i = 0; i < d.nlayouts; i++) {
        ferry_layout_destroy(d.layouts[i]);
    }
    fy_free(d.moves);
    fy_arena_fini(&d.arena);
    if (status != FERRY_OK) {
        ferry_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return FERRY_OK;
}
