/* cross.c - where the parts of one dim meet.
 *
 * Both sides cut [0, length) into disjoint intervals that cover it, so one sweep over the two sorted
 * lists gives every intersection, in global order, in linear time: no grid, no divisibility. Segments
 * of one pair that follow each other in local memory on both ends are joined as they appear; that is
 * all the merging there is, and it is complete because both local orders ascend with the global one.
 *
 * Invariant: the segments of a target part, over all its pairs, tile its local range. check.c proves
 * it again without this file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "plan/plan.h"

/* An interval of one side with its owner. */
typedef struct piece {
    uint64_t lo;
    uint64_t hi;
    uint64_t local;
    uint32_t part;
} piece_t;

/* An intersection, before grouping by pair. */
typedef struct meeting {
    fy_segment_t segment;
    uint32_t source;
    uint32_t target;
} meeting_t;

typedef struct meetings {
    meeting_t *items;
    size_t count;
    size_t cap;
} meetings_t;

static int piece_compare(const void *a, const void *b) {
    uint64_t x = ((const piece_t *)a)->lo;
    uint64_t y = ((const piece_t *)b)->lo;
    return x < y ? -1 : x > y;
}

static int meeting_compare(const void *a, const void *b) {
    const meeting_t *x = a;
    const meeting_t *y = b;
    if (x->target != y->target) {
        return x->target < y->target ? -1 : 1;
    }
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return x->segment.target_lo < y->segment.target_lo
               ? -1
               : x->segment.target_lo > y->segment.target_lo;
}

/* All intervals of a map in global order. NULL when memory is out. */
static piece_t *pieces_of(const fy_axis_map_t *map) {
    size_t count = map->first[map->nparts];
    piece_t *pieces = fy_alloc(count, sizeof *pieces);
    if (pieces == NULL) {
        return NULL;
    }
    bool sorted = true;
    for (uint32_t p = 0; p < map->nparts; p++) {
        for (size_t i = map->first[p]; i < map->first[p + 1]; i++) {
            pieces[i] = (piece_t){map->intervals[i].lo, map->intervals[i].hi, map->offsets[i], p};
            sorted = sorted && (i == 0 || pieces[i - 1].lo < pieces[i].lo);
        }
    }
    if (!sorted) {
        qsort(pieces, count, sizeof *pieces, piece_compare);
    }
    return pieces;
}

static bool meet(meetings_t *m, const piece_t *s, const piece_t *t, uint64_t lo, uint64_t hi) {
    if (!fy_reserve(&m->items, &m->cap, m->count + 1, sizeof *m->items)) {
        return false;
    }
    m->items[m->count++] =
        (meeting_t){{s->local + (lo - s->lo), t->local + (lo - t->lo), hi - lo}, s->part, t->part};
    return true;
}

/* The sweep. Both lists cover [0, length), so one of them ends wherever a meeting ends. */
static bool sweep(const fy_axis_map_t *source, const fy_axis_map_t *target, meetings_t *m) {
    piece_t *s = pieces_of(source);
    piece_t *t = pieces_of(target);
    bool fine = s != NULL && t != NULL;
    size_t ns = source->first[source->nparts];
    size_t nt = target->first[target->nparts];
    for (size_t i = 0, j = 0; fine && i < ns && j < nt;) {
        uint64_t lo = fy_max_u64(s[i].lo, t[j].lo);
        uint64_t hi = fy_min_u64(s[i].hi, t[j].hi);
        fine = meet(m, &s[i], &t[j], lo, hi);
        bool source_ends = s[i].hi == hi;
        bool target_ends = t[j].hi == hi;
        i += source_ends;
        j += target_ends;
    }
    fy_free(s);
    fy_free(t);
    return fine;
}

/* Sorts meetings by pair and joins those that are contiguous on both ends. */
static void group(meetings_t *m) {
    bool sorted = true;
    for (size_t i = 1; i < m->count && sorted; i++) {
        sorted = meeting_compare(&m->items[i - 1], &m->items[i]) < 0;
    }
    if (!sorted) {
        qsort(m->items, m->count, sizeof *m->items, meeting_compare);
    }
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++) {
        meeting_t *last = kept > 0 ? &m->items[kept - 1] : NULL;
        const meeting_t *here = &m->items[i];
        if (last != NULL && last->source == here->source && last->target == here->target &&
            last->segment.source_lo + last->segment.extent == here->segment.source_lo &&
            last->segment.target_lo + last->segment.extent == here->segment.target_lo) {
            last->segment.extent += here->segment.extent;
        } else {
            m->items[kept++] = *here;
        }
    }
    m->count = kept;
}

/* Mesh offset of every part of a dim: row-major over the axes that cut it, as fy_layout_part. */
static void bases_of(const ferry_layout_t *layout, uint32_t dim, uint32_t nparts, uint32_t *bases) {
    for (uint32_t p = 0; p < nparts; p++) {
        uint32_t rest = p;
        bases[p] = 0;
        for (uint32_t a = layout->naxes; a-- > 0;) {
            if (fy_layout_cuts(layout, a, dim)) {
                bases[p] += rest % layout->axes[a].size * layout->strides[a];
                rest /= layout->axes[a].size;
            }
        }
    }
}

static bool cross_alloc(fy_cross_t *c, fy_arena_t *arena, size_t nsegments) {
    c->source_part = fy_arena_alloc(arena, c->npairs, sizeof *c->source_part);
    c->target_part = fy_arena_alloc(arena, c->npairs, sizeof *c->target_part);
    c->extent = fy_arena_alloc(arena, c->npairs, sizeof *c->extent);
    c->first_segment = fy_arena_alloc(arena, (size_t)c->npairs + 1, sizeof *c->first_segment);
    c->segments = fy_arena_alloc(arena, nsegments, sizeof *c->segments);
    c->first_pair = fy_arena_alloc(arena, (size_t)c->ntarget + 1, sizeof *c->first_pair);
    c->source_base = fy_arena_alloc(arena, c->nsource, sizeof *c->source_base);
    c->target_base = fy_arena_alloc(arena, c->ntarget, sizeof *c->target_base);
    return c->source_part != NULL && c->target_part != NULL && c->extent != NULL &&
           c->first_segment != NULL && c->segments != NULL && c->first_pair != NULL &&
           c->source_base != NULL && c->target_base != NULL;
}

/* Fills the pairs from the grouped meetings. */
static void cross_fill(fy_cross_t *c, const meetings_t *m) {
    uint32_t pair = 0;
    for (size_t i = 0; i < m->count; i++) {
        const meeting_t *here = &m->items[i];
        bool fresh = i == 0 || here->source != here[-1].source || here->target != here[-1].target;
        if (fresh) {
            c->source_part[pair] = here->source;
            c->target_part[pair] = here->target;
            c->extent[pair] = 0;
            c->first_segment[pair] = i;
            pair++;
        }
        c->segments[i] = here->segment;
        c->extent[pair - 1] += here->segment.extent;
    }
    c->first_segment[c->npairs] = m->count;
    for (uint32_t t = 0, p = 0; t <= c->ntarget; t++) {
        while (p < c->npairs && c->target_part[p] < t) {
            p++;
        }
        c->first_pair[t] = p;
    }
}

static ferry_status_t cross_build(fy_cross_t *c, fy_arena_t *arena, const ferry_layout_t *source,
                                  const ferry_layout_t *target, uint32_t dim,
                                  const fy_axis_map_t *smap, const fy_axis_map_t *tmap,
                                  meetings_t *m, ferry_error_t *err) {
    if (!sweep(smap, tmap, m)) {
        return fy_fail_nomem(err, "where two layouts meet");
    }
    group(m);
    size_t npairs = 0;
    for (size_t i = 0; i < m->count; i++) {
        npairs += i == 0 || m->items[i].source != m->items[i - 1].source ||
                  m->items[i].target != m->items[i - 1].target;
    }
    c->nsource = smap->nparts;
    c->ntarget = tmap->nparts;
    c->npairs = (uint32_t)npairs; /* at most both sides' intervals, each below 2^24 */
    c->source_length = fy_arena_copy(arena, smap->lengths, c->nsource, sizeof *smap->lengths);
    c->target_length = fy_arena_copy(arena, tmap->lengths, c->ntarget, sizeof *tmap->lengths);
    if (!cross_alloc(c, arena, m->count) || c->source_length == NULL || c->target_length == NULL) {
        return fy_fail_nomem(err, "where two layouts meet");
    }
    bases_of(source, dim, c->nsource, c->source_base);
    bases_of(target, dim, c->ntarget, c->target_base);
    cross_fill(c, m);
    return FERRY_OK;
}

ferry_status_t fy_cross_init(fy_cross_t *cross, fy_arena_t *arena, const ferry_layout_t *source,
                             const ferry_layout_t *target, uint32_t dim, uint64_t length,
                             ferry_error_t *err) {
    fy_axis_map_t smap;
    fy_axis_map_t tmap;
    meetings_t m = {NULL, 0, 0};
    memset(cross, 0, sizeof *cross);
    ferry_status_t status = fy_axis_map_init(&smap, source, dim, length, err);
    if (status != FERRY_OK) {
        fy_error_prefix(err, "source layout");
        return status;
    }
    status = fy_axis_map_init(&tmap, target, dim, length, err);
    if (status != FERRY_OK) {
        fy_axis_map_fini(&smap);
        fy_error_prefix(err, "target layout");
        return status;
    }
    status = cross_build(cross, arena, source, target, dim, &smap, &tmap, &m, err);
    fy_free(m.items);
    fy_axis_map_fini(&smap);
    fy_axis_map_fini(&tmap);
    return status;
}

uint32_t fy_cross_find(const fy_cross_t *cross, uint32_t source_part, uint32_t target_part) {
    uint32_t lo = cross->first_pair[target_part];
    uint32_t end = cross->first_pair[target_part + 1];
    uint32_t hi = end;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (cross->source_part[mid] < source_part) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < end && cross->source_part[lo] == source_part ? lo : cross->npairs;
}
