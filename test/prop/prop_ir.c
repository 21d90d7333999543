/* prop_ir.c - random plans cut into chunks and buckets on every rank, and what the ranks must agree on.
 *
 *   FERRY_CASES=n   how many (default 4,000; under a sanitizer 800; with FERRY_SOAK=1 40,000)
 *   FERRY_FIRST=s   the seed of the first one (default 1; the others follow)
 *   FERRY_SEED=s    only this one
 *
 * A failure prints the seed and the layouts. What is expected of a rank is worked out from the whole plan,
 * transfer by transfer, with lists that are searched from the front. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"
#include "oracle/unit.h"
#include "support/sanitizer.h"
#include "support/soak.h"

enum {
    CASES = 4000,
    SANITIZED_CASES = 800,
    SOAK_CASES = 40000,
};

/* One rank's view. */
typedef struct view {
    uint32_t rank;
    ferry_chunks_t *made;
    const ferry_chunk_t *chunks;
    size_t nchunks;
    const ferry_cell_t *cells;
    size_t ncells;
    ferry_buckets_t *packed;
    ferry_buckets_params_t packing;
    const ferry_bucket_t *buckets;
    size_t nbuckets;
    const ferry_bucket_entry_t *entries;
    size_t nentries;
} view_t;

#define COVERAGE(X)                                                                                \
    X(cut)                                                                                         \
    X(narrow)                                                                                      \
    X(wide)                                                                                        \
    X(both)                                                                                        \
    X(sums)                                                                                        \
    X(reduce_only)                                                                                 \
    X(shared_cells)                                                                                \
    X(full_buckets)                                                                                \
    X(alone)                                                                                       \
    X(lanes)                                                                                       \
    X(wishes)                                                                                      \
    X(windows)

typedef struct coverage {
#define COVERAGE_FIELD(name) uint64_t name;
    COVERAGE(COVERAGE_FIELD)
#undef COVERAGE_FIELD
} coverage_t;

typedef struct trial {
    const orc_case_t *c;
    ferry_plan_t *plan; /* the whole one */
    ferry_transfer_t *transfers;
    size_t ntransfers;
    ferry_chunks_params_t params;
    uint8_t cut[ORC_TENSORS];
    uint32_t lanes[ORC_TENSORS];
    uint64_t threshold;
    uint32_t window; /* the first tensor whose chunks are packed */
    view_t *views;
    size_t nviews;
    coverage_t *seen;
} trial_t;

/* ---- what is expected ---- */

static ferry_dtype_t wire_of(const trial_t *t, uint32_t tensor) {
    const orc_tensor_t *x = &t->c->tensors[tensor];
    return ferry_wire_dtype(x->source_dtype, x->target_dtype, t->params.wire);
}

static uint64_t bytes_of(const trial_t *t, uint32_t tensor, uint64_t elements) {
    return elements * (ferry_dtype_bits(wire_of(t, tensor)) / 8);
}

/* The reduce group of a source; false when nothing is reduced. */
static bool group_of(const trial_t *t, uint32_t tensor, uint32_t source, ferry_reduce_t *reduce_p,
                     uint32_t *ranks) {
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_plan_reduce(t->plan, tensor, source, reduce_p, ranks, ORC_RANKS, &err) != FERRY_OK) {
        return orc_fail("reduce: %s", err.text);
    }
    return reduce_p->nranks > 1;
}

static bool is_member(const trial_t *t, const ferry_transfer_t *x, uint32_t rank) {
    ferry_reduce_t reduce;
    uint32_t ranks[ORC_RANKS];
    if (!group_of(t, x->tensor, x->source, &reduce, ranks)) {
        return false;
    }
    for (uint32_t i = 0; i < reduce.nranks; i++) {
        if (ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* The dim that is cut, or ndim; the elements of one row. */
static uint32_t cut_dim(const ferry_transfer_t *x, uint64_t *row_p) {
    for (uint32_t d = 0; d < x->ndim; d++) {
        if (x->extent[d] > 1) {
            *row_p = x->elements / x->extent[d];
            return d;
        }
    }
    *row_p = 1;
    return x->ndim;
}

/* ---- chunks ---- */

static bool check_partial(const trial_t *t, const view_t *v, const ferry_chunk_t *c) {
    ferry_reduce_t reduce;
    uint32_t ranks[ORC_RANKS];
    bool sums = group_of(t, c->tensor, c->source, &reduce, ranks);
    const ferry_partial_t *p = ferry_chunks_partial(v->made, c->partial);
    if (!sums) {
        return (c->partial == FERRY_INDEX_NONE && p == NULL) ||
               orc_fail("a plain source has a sum");
    }
    return (p != NULL && p->reduce.naxes == reduce.naxes && p->reduce.nranks == reduce.nranks &&
            memcmp(p->reduce.sizes, reduce.sizes, reduce.naxes * sizeof *reduce.sizes) == 0 &&
            memcmp(p->reduce.ops, reduce.ops, reduce.naxes * sizeof *reduce.ops) == 0 &&
            memcmp(p->ranks, ranks, reduce.nranks * sizeof *ranks) == 0) ||
           orc_fail("another reduce group");
}

static bool check_cell(const view_t *v, const ferry_chunk_t *c, bool member) {
    if (!member) {
        return c->cell == FERRY_INDEX_NONE || orc_fail("a cell of somebody else");
    }
    if (c->cell >= v->ncells) {
        return orc_fail("no cell");
    }
    const ferry_cell_t *cell = &v->cells[c->cell];
    size_t bytes = c->ndim * sizeof *c->extent;
    return (cell->tensor == c->tensor && cell->slab == c->slab && cell->owner == c->source &&
            cell->partial == c->partial && cell->elements == c->elements && cell->ndim == c->ndim &&
            memcmp(cell->lo, c->source_lo, bytes) == 0 &&
            memcmp(cell->extent, c->extent, bytes) == 0) ||
           orc_fail("another cell");
}

/* One slab, which begins `at` rows after the transfer does. */
static bool check_slab(const trial_t *t, const view_t *v, const ferry_transfer_t *x,
                       const ferry_chunk_t *c, uint64_t at) {
    uint64_t row = 0;
    uint32_t dim = cut_dim(x, &row);
    uint64_t elements = 1;
    for (uint32_t d = 0; d < x->ndim; d++) {
        uint64_t skip = d == dim ? at : 0;
        elements *= c->extent[d];
        if (c->source_lo[d] != x->source_lo[d] + skip ||
            c->target_lo[d] != x->target_lo[d] + skip ||
            (d != dim && c->extent[d] != x->extent[d]) || c->extent[d] == 0) {
            return orc_fail("slab %u is not where it should be", c->slab);
        }
    }
    ferry_chunk_role_t role = (x->source == v->rank ? FERRY_CHUNK_SOURCE : 0) |
                              (x->target == v->rank ? FERRY_CHUNK_TARGET : 0);
    role = role == 0 ? FERRY_CHUNK_REDUCE : role;
    bool divisible = t->cut[x->tensor] != 0 && c->elements > (row == 1 ? 32 : row);
    if (c->tensor != x->tensor || c->source != x->source || c->target != x->target ||
        c->ndim != x->ndim || c->role != role || c->wire != wire_of(t, x->tensor) ||
        c->elements != elements || c->divisible != divisible ||
        c->bytes != bytes_of(t, x->tensor, elements)) {
        return orc_fail("a field of slab %u is wrong", c->slab);
    }
    return check_partial(t, v, c) && check_cell(v, c, is_member(t, x, v->rank));
}

/* Is a slab of so many rows what slab_bytes asks for, when more rows follow? */
static bool check_rows(const trial_t *t, const ferry_transfer_t *x, uint64_t rows) {
    uint64_t row = 0;
    (void)cut_dim(x, &row);
    uint64_t bytes = bytes_of(t, x->tensor, row * rows);
    uint64_t more = bytes_of(t, x->tensor, row * (rows + (row == 1 ? 32 : 1)));
    if (row == 1) {
        t->seen->narrow++;
        return (rows % 32 == 0 && (rows == 32 || bytes <= t->params.slab_bytes) &&
                more > t->params.slab_bytes) ||
               orc_fail("%" PRIu64 " elements in a slab", rows);
    }
    t->seen->wide += bytes > t->params.slab_bytes;
    return ((rows == 1 || bytes <= t->params.slab_bytes) && more > t->params.slab_bytes) ||
           orc_fail("%" PRIu64 " rows in a slab", rows);
}

static const ferry_chunk_t *find_chunk(const view_t *v, uint64_t task_id, uint32_t slab) {
    for (size_t i = 0; i < v->nchunks; i++) {
        if (v->chunks[i].task_id == task_id && v->chunks[i].slab == slab) {
            return &v->chunks[i];
        }
    }
    return NULL;
}

/* The chunks of one transfer cover it; *count_p grows by how many there are. */
static bool check_transfer(const trial_t *t, const view_t *v, const ferry_transfer_t *x,
                           size_t *count_p) {
    uint64_t row = 0;
    uint32_t dim = cut_dim(x, &row);
    uint64_t length = dim < x->ndim ? x->extent[dim] : 1;
    uint64_t at = 0;
    uint32_t slab = 0;
    const ferry_chunk_t *c = NULL;
    for (; at < length; slab++) {
        c = find_chunk(v, x->task_id, slab);
        if (c == NULL) {
            return orc_fail("slab %u is missing", slab);
        }
        if (!check_slab(t, v, x, c, at)) {
            return false;
        }
        uint64_t rows = dim < x->ndim ? c->extent[dim] : 1;
        at += rows;
        if (at < length && (t->cut[x->tensor] == 0 || t->params.slab_bytes == 0)) {
            return orc_fail("cut without being asked");
        }
        if (at < length && !check_rows(t, x, rows)) {
            return false;
        }
    }
    t->seen->cut += slab > 1;
    *count_p += slab;
    return (at == length && c->nslabs == slab &&
            (slab == 1 || c->elements <= row || row == 1 || c->bytes <= t->params.slab_bytes)) ||
           orc_fail("the last slab is wrong");
}

static bool check_order(const view_t *v) {
    for (size_t i = 1; i < v->nchunks; i++) {
        const ferry_chunk_t *a = &v->chunks[i - 1];
        const ferry_chunk_t *b = &v->chunks[i];
        bool less = a->tensor != b->tensor ? a->tensor < b->tensor
                    : a->slab != b->slab   ? a->slab < b->slab
                                           : a->task_id < b->task_id;
        if (!less) {
            return orc_fail("chunks %zu and %zu are out of order", i - 1, i);
        }
    }
    return true;
}

/* Cells come as the chunks do that need them first, each once. */
static bool check_cells(const trial_t *t, const view_t *v) {
    size_t next = 0;
    for (size_t i = 0; i < v->nchunks; i++) {
        const ferry_chunk_t *c = &v->chunks[i];
        if (c->cell == FERRY_INDEX_NONE) {
            continue;
        }
        if (c->cell > next) {
            return orc_fail("cell %u comes before cell %zu", c->cell, next);
        }
        t->seen->shared_cells += c->cell < next;
        next += c->cell == next;
    }
    for (size_t a = 0; a < v->ncells; a++) {
        for (size_t b = 0; b < a; b++) {
            const ferry_cell_t *x = &v->cells[a];
            const ferry_cell_t *y = &v->cells[b];
            size_t bytes = x->ndim * sizeof *x->lo;
            if (x->tensor == y->tensor && x->slab == y->slab && x->owner == y->owner &&
                memcmp(x->lo, y->lo, bytes) == 0 && memcmp(x->extent, y->extent, bytes) == 0) {
                return orc_fail("cells %zu and %zu are one", b, a);
            }
        }
    }
    return next == v->ncells || orc_fail("%zu cells of %zu are used", next, v->ncells);
}

static bool check_chunks(const trial_t *t, const view_t *v) {
    size_t count = 0;
    for (size_t i = 0; i < t->ntransfers; i++) {
        const ferry_transfer_t *x = &t->transfers[i];
        bool member = is_member(t, x, v->rank);
        if (x->source != v->rank && x->target != v->rank && !member) {
            continue;
        }
        t->seen->sums += member;
        t->seen->both += x->source == x->target;
        t->seen->reduce_only += x->source != v->rank && x->target != v->rank;
        if (!check_transfer(t, v, x, &count)) {
            return orc_fail("rank %u, task %" PRIx64, v->rank, x->task_id);
        }
    }
    if (count != v->nchunks) {
        return orc_fail("rank %u has %zu chunks, not %zu", v->rank, v->nchunks, count);
    }
    return check_order(v) && check_cells(t, v);
}

/* The rank's part of the plan gives the same as the whole. */
static bool check_part(const trial_t *t, const view_t *v) {
    ferry_plan_t *part = orc_case_plan(t->c, v->rank);
    ferry_chunks_t *made = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_chunks_params_t params = t->params;
    params.rank = v->rank;
    bool ok = part != NULL && ferry_chunks_create(part, &params, &made, &err) == FERRY_OK;
    if (!ok) {
        ferry_plan_destroy(part);
        return orc_fail("the part of rank %u: %s", v->rank, err.text);
    }
    size_t nchunks = 0;
    size_t ncells = 0;
    const ferry_chunk_t *chunks = ferry_chunks_list(made, &nchunks);
    const ferry_cell_t *cells = ferry_chunks_cells(made, &ncells);
    /* Both are zeroed before they are filled, so that there are no odd bytes between fields. */
    ok = nchunks == v->nchunks && memcmp(chunks, v->chunks, nchunks * sizeof *chunks) == 0 &&
         ncells == v->ncells && memcmp(cells, v->cells, ncells * sizeof *cells) == 0;
    for (uint32_t i = 0;; i++) {
        const ferry_partial_t *a = ferry_chunks_partial(made, i);
        const ferry_partial_t *b = ferry_chunks_partial(v->made, i);
        if (a == NULL || b == NULL) {
            ok = ok && a == b;
            break;
        }
        ok = ok && a->reduce.nranks == b->reduce.nranks &&
             memcmp(a->ranks, b->ranks, a->reduce.nranks * sizeof *a->ranks) == 0;
    }
    ferry_chunks_destroy(made);
    ferry_plan_destroy(part);
    return ok || orc_fail("rank %u: its part and the whole plan differ", v->rank);
}

/* ---- buckets ---- */

static bool same_key(const trial_t *t, const ferry_chunk_t *a, const ferry_chunk_t *b) {
    bool reduce_only = a->role == FERRY_CHUNK_REDUCE;
    return a->source == b->source && a->partial == b->partial &&
           t->lanes[a->tensor] == t->lanes[b->tensor] &&
           reduce_only == (b->role == FERRY_CHUNK_REDUCE) &&
           (reduce_only ? a->cell == b->cell : a->target == b->target);
}

/* The bytes that lie before chunk `index` in its bucket. An earlier chunk of its key, if any, is in the
 * same bucket as long as all fit. offsets[] of the chunks before it are known. */
static uint64_t offset_of(const trial_t *t, const view_t *v, size_t index,
                          const uint64_t *offsets) {
    const ferry_chunk_t *c = &v->chunks[index];
    for (size_t i = index; i-- > v->packing.first;) {
        if (same_key(t, &v->chunks[i], c)) {
            uint64_t end = offsets[i] + v->chunks[i].bytes;
            if (end + c->bytes <= t->threshold) {
                return end;
            }
            t->seen->full_buckets++;
            return 0;
        }
    }
    return 0;
}

static bool check_bucket(const trial_t *t, const view_t *v, const ferry_bucket_t *b,
                         const uint64_t *offsets) {
    const ferry_chunk_t *first = &v->chunks[v->entries[b->first_entry].chunk];
    bool reduce_only = first->role == FERRY_CHUNK_REDUCE;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < b->nentries; k++) {
        const ferry_bucket_entry_t *e = &v->entries[b->first_entry + k];
        if (e->offset != bytes || e->offset != offsets[e->chunk] ||
            e->bytes != v->chunks[e->chunk].bytes || !same_key(t, first, &v->chunks[e->chunk])) {
            return orc_fail("entry %u of a bucket is wrong", k);
        }
        bytes += e->bytes;
    }
    t->seen->alone += bytes > t->threshold;
    return (b->task_id == first->task_id && b->source == first->source &&
            b->target == (reduce_only ? FERRY_RANK_NONE : first->target) &&
            b->partial == first->partial &&
            b->cell == (reduce_only ? first->cell : FERRY_INDEX_NONE) &&
            b->lane == t->lanes[first->tensor] && b->bytes == bytes && b->nentries > 0 &&
            (b->nentries == 1 || bytes <= t->threshold)) ||
           orc_fail("a bucket is wrong");
}

static bool check_buckets(const trial_t *t, const view_t *v) {
    uint64_t *offsets = orc_alloc(v->nchunks + 1, sizeof *offsets);
    size_t want = 0;
    for (size_t i = v->packing.first; i < v->packing.first + v->packing.count; i++) {
        offsets[i] = offset_of(t, v, i, offsets);
        want += offsets[i] == 0;
    }
    bool ok = (v->nbuckets == want && v->nentries == v->packing.count) ||
              orc_fail("%zu buckets, not %zu", v->nbuckets, want);
    size_t entry = 0;
    for (size_t b = 0; ok && b < v->nbuckets; b++) {
        ok = v->buckets[b].first_entry == entry && check_bucket(t, v, &v->buckets[b], offsets);
        if (ok && b > 0) {
            ok = v->entries[v->buckets[b - 1].first_entry].chunk < v->entries[entry].chunk;
        }
        entry += v->buckets[b].nentries;
    }
    free(offsets);
    return (ok && entry == v->nentries) || orc_fail("the buckets of rank %u", v->rank);
}

/* ---- what ranks agree on ---- */

/* The next bucket from source to target at or after *at_p. */
static const ferry_bucket_t *next_bucket(const view_t *v, uint32_t source, uint32_t target,
                                         size_t *at_p) {
    while (*at_p < v->nbuckets) {
        const ferry_bucket_t *b = &v->buckets[(*at_p)++];
        if (b->source == source && b->target == target) {
            return b;
        }
    }
    return NULL;
}

static bool same_bucket(const view_t *x, const ferry_bucket_t *a, const view_t *y,
                        const ferry_bucket_t *b) {
    bool same = a->task_id == b->task_id && a->lane == b->lane && a->nentries == b->nentries &&
                a->bytes == b->bytes;
    for (uint32_t k = 0; same && k < a->nentries; k++) {
        const ferry_bucket_entry_t *e = &x->entries[a->first_entry + k];
        const ferry_bucket_entry_t *f = &y->entries[b->first_entry + k];
        const ferry_chunk_t *c = &x->chunks[e->chunk];
        const ferry_chunk_t *d = &y->chunks[f->chunk];
        same = e->offset == f->offset && e->bytes == f->bytes && c->task_id == d->task_id &&
               c->slab == d->slab && c->nslabs == d->nslabs && c->wire == d->wire;
    }
    return same;
}

static bool check_ends(const view_t *source, const view_t *target) {
    size_t i = 0;
    size_t k = 0;
    for (;;) {
        const ferry_bucket_t *a = next_bucket(source, source->rank, target->rank, &i);
        const ferry_bucket_t *b = next_bucket(target, source->rank, target->rank, &k);
        if (a == NULL || b == NULL) {
            return a == b ||
                   orc_fail("%u > %u: one end has more buckets", source->rank, target->rank);
        }
        if (!same_bucket(source, a, target, b)) {
            return orc_fail("%u > %u: the two ends of a bucket differ", source->rank, target->rank);
        }
    }
}

static const ferry_cell_t *next_cell(const view_t *v, uint32_t owner, size_t *at_p) {
    while (*at_p < v->ncells) {
        const ferry_cell_t *cell = &v->cells[(*at_p)++];
        if (cell->owner == owner) {
            return cell;
        }
    }
    return NULL;
}

/* A member has the owner's cells that it takes part in, and no others, in the owner's order. */
static bool check_member(const view_t *owner, const view_t *member) {
    size_t i = 0;
    size_t k = 0;
    for (;;) {
        const ferry_cell_t *a = NULL;
        bool shared = false;
        while (!shared && (a = next_cell(owner, owner->rank, &i)) != NULL) {
            const ferry_partial_t *p = ferry_chunks_partial(owner->made, a->partial);
            for (uint32_t r = 0; r < p->reduce.nranks; r++) {
                shared = shared || p->ranks[r] == member->rank;
            }
        }
        const ferry_cell_t *b = next_cell(member, owner->rank, &k);
        if (a == NULL || b == NULL) {
            return a == NULL && b == NULL ? true
                                          : orc_fail("owner %u, member %u: one has more cells",
                                                     owner->rank, member->rank);
        }
        const ferry_partial_t *p = ferry_chunks_partial(owner->made, a->partial);
        const ferry_partial_t *q = ferry_chunks_partial(member->made, b->partial);
        if (a->tensor != b->tensor || a->slab != b->slab || a->ndim != b->ndim ||
            memcmp(a->lo, b->lo, sizeof a->lo) != 0 ||
            memcmp(a->extent, b->extent, sizeof a->extent) != 0 ||
            p->reduce.nranks != q->reduce.nranks ||
            memcmp(p->ranks, q->ranks, p->reduce.nranks * sizeof *p->ranks) != 0) {
            return orc_fail("owner %u, member %u: cells differ", owner->rank, member->rank);
        }
    }
}

/* ---- trials ---- */

static bool look(trial_t *t, view_t *v) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_chunks_params_t params = t->params;
    params.rank = v->rank;
    if (ferry_chunks_create(t->plan, &params, &v->made, &err) != FERRY_OK) {
        return orc_fail("rank %u: %s", v->rank, err.text);
    }
    v->chunks = ferry_chunks_list(v->made, &v->nchunks);
    v->cells = ferry_chunks_cells(v->made, &v->ncells);
    v->packing = (ferry_buckets_params_t)FERRY_BUCKETS_PARAMS_INIT;
    while (v->packing.first < v->nchunks && v->chunks[v->packing.first].tensor < t->window) {
        v->packing.first++;
    }
    v->packing.count = v->nchunks - v->packing.first;
    v->packing.threshold = t->threshold;
    v->packing.lanes = t->lanes;
    if (ferry_buckets_create(v->made, &v->packing, &v->packed, &err) != FERRY_OK) {
        return orc_fail("buckets of rank %u: %s", v->rank, err.text);
    }
    v->buckets = ferry_buckets_list(v->packed, &v->nbuckets);
    v->entries = ferry_buckets_entries(v->packed, &v->nentries);
    return true;
}

/* Slabs and buckets of sizes that matter: a few of them make up the largest transfer. */
static void draw_params(orc_rng_t *rng, trial_t *t) {
    static const ferry_dtype_t wishes[] = {FERRY_F32, FERRY_F16, FERRY_BF16, FERRY_F8E4M3};
    uint64_t largest = 1;
    t->params = (ferry_chunks_params_t)FERRY_CHUNKS_PARAMS_INIT;
    t->params.wire = orc_chance(rng, 30) ? wishes[orc_draw(rng, 4)] : FERRY_DTYPE_NONE;
    for (uint32_t i = 0; i < t->c->ntensors; i++) {
        t->cut[i] = orc_chance(rng, 85);
        t->lanes[i] = orc_chance(rng, 30) ? (uint32_t)orc_draw(rng, 3) : 0;
        t->seen->lanes += t->lanes[i] != 0;
    }
    t->params.cut = t->cut;
    for (size_t i = 0; i < t->ntransfers; i++) {
        uint64_t bytes = bytes_of(t, t->transfers[i].tensor, t->transfers[i].elements);
        largest = bytes > largest ? bytes : largest;
    }
    t->params.slab_bytes =
        orc_chance(rng, 15) ? 0 : largest / (1 + orc_draw(rng, 6)) + orc_draw(rng, 9);
    t->threshold = 1 + orc_draw(rng, 3 * largest);
    t->window = orc_chance(rng, 20) ? (uint32_t)orc_draw(rng, t->c->ntensors) : 0;
    t->seen->windows += t->window > 0;
    t->seen->wishes += t->params.wire != FERRY_DTYPE_NONE;
}

static bool run_trial(orc_rng_t *rng, trial_t *t) {
    draw_params(rng, t);
    bool ok = true;
    for (size_t i = 0; ok && i < t->nviews; i++) {
        view_t *v = &t->views[i];
        ok = look(t, v) && check_chunks(t, v) && check_part(t, v) && check_buckets(t, v);
    }
    for (size_t i = 0; ok && i < t->nviews; i++) {
        for (size_t k = 0; ok && k < t->nviews; k++) {
            ok = check_ends(&t->views[i], &t->views[k]) && check_member(&t->views[i], &t->views[k]);
        }
    }
    if (!ok) {
        (void)orc_fail("slab_bytes %" PRIu64 ", threshold %" PRIu64 ", wire %s",
                       t->params.slab_bytes, t->threshold, ferry_dtype_name(t->params.wire));
    }
    return ok;
}

static bool run_case(uint64_t seed, coverage_t *seen) {
    orc_rng_t rng = {seed * 0x2545f4914f6cdd1d + 7};
    orc_case_t *c = orc_alloc(1, sizeof *c);
    orc_case_random(&rng, c);
    trial_t t = {.c = c, .seen = seen};
    uint32_t ranks[ORC_ALL_RANKS];
    bool ok = orc_case_open(c) && (t.plan = orc_case_plan(c, FERRY_RANK_NONE)) != NULL;
    if (ok) {
        ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
        t.transfers = orc_alloc(ferry_plan_ntransfers(t.plan) + 1, sizeof *t.transfers);
        while (ferry_plan_next(t.plan, &cursor, &t.transfers[t.ntransfers])) {
            t.ntransfers++;
        }
        t.nviews = orc_case_ranks(c, ranks);
        t.views = orc_alloc(t.nviews + 1, sizeof *t.views);
        for (size_t i = 0; i < t.nviews; i++) {
            t.views[i].rank = ranks[i];
        }
        ok = run_trial(&rng, &t);
    }
    if (!ok) {
        fprintf(stderr, "FERRY_SEED=%llu fails:\n", (unsigned long long)seed);
        orc_case_print(c);
    }
    for (size_t i = 0; i < t.nviews; i++) {
        ferry_buckets_destroy(t.views[i].packed);
        ferry_chunks_destroy(t.views[i].made);
    }
    free(t.views);
    free(t.transfers);
    ferry_plan_destroy(t.plan);
    orc_case_free(c);
    return ok;
}

static uint64_t from_environment(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static void ranks_agree_on_chunks_and_buckets(void **state) {
    (void)state;
    uint64_t cases = (uint64_t)soak_count(SANITIZED ? SANITIZED_CASES : CASES, SOAK_CASES);
    cases = from_environment("FERRY_CASES", cases);
    uint64_t first = from_environment("FERRY_FIRST", 1);
    uint64_t only = from_environment("FERRY_SEED", 0);
    if (only != 0) {
        first = only;
        cases = 1;
    }
    coverage_t seen;
    memset(&seen, 0, sizeof seen);
    for (uint64_t i = 0; i < cases; i++) {
        assert_true(run_case(first + i, &seen));
    }
    printf("%llu cases:", (unsigned long long)cases);
#define COVERAGE_PRINT(name) printf(" " #name " %llu", (unsigned long long)seen.name);
    COVERAGE(COVERAGE_PRINT)
#undef COVERAGE_PRINT
    printf("\n");
    if (cases >= 500) {
#define COVERAGE_SEEN(name) assert_true(seen.name > 0);
        COVERAGE(COVERAGE_SEEN)
#undef COVERAGE_SEEN
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_on_chunks_and_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
