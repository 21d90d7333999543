/* regular.c - colouring a regular bipartite multigraph by halving it and taking perfect matchings.
 *
 * A d-regular graph has a perfect matching: one colour; without it the rest is (d-1)-regular. When d
 * is even an Euler partition makes two (d/2)-regular halves in linear time. So: halve while the graph
 * is larger than the cache, taking one matching off where d is odd; then take matchings only.
 *
 * Matchings come from random walks (Goel, Kapralov, Khanna: "Perfect matchings in O(n log n) time in
 * regular bipartite graphs", 2010): from a free left vertex take any arc; if its right end is matched
 * go on from its mate, by any arc but the matched one. The walk with its loops cut out is an
 * augmenting path. All walks of one matching take O(n log n) steps in expectation, whatever the graph,
 * so all colours take O(m log m). The random numbers come from a fixed seed: the same graph gives the
 * same colours everywhere.
 *
 * Invariants: a part is a window of the same columns in all rows, it is regular, and its arcs have no
 * colour yet. While matching, the matched arc of a left vertex is the last of its window, and mate[]
 * is the left vertex of each matched right one. */
#include "sched/regular.h"

#include <string.h>

#include "base/memory.h"

#define NONE UINT32_MAX

/* A part of at most so many arcs (256 KiB of them) is not halved: it fits the cache of a core. */
enum { LEAF_ARCS = 32768 };

enum { UNSET = 2 }; /* a pair of arcs that has no halves yet */

typedef struct part {
    fy_arc_t *arcs; /* the first row's window */
    size_t stride;  /* from row to row */
    uint32_t degree;
} part_t;

typedef struct work {
    uint32_t n;
    uint32_t *colours;
    uint64_t random;
    uint32_t *mate;    /* right -> left, or NONE; when halving: right -> its arc without partner */
    uint32_t *taken;   /* left -> the column by which the current walk left it, last */
    uint32_t *order;   /* a permutation of the left vertices */
    uint32_t *partner; /* arc -> the other arc of a pair that meets on the right */
    uint8_t *flipped;  /* pair of neighbours in a row -> 1: the second goes into the first half */
    fy_arc_t *row;     /* half a row */
    fy_arc_t *leaf;    /* a part without gaps between the rows */
} work_t;

static void work_fini(work_t *work) {
    fy_free(work->mate);
    fy_free(work->taken);
    fy_free(work->order);
    fy_free(work->partner);
    fy_free(work->flipped);
    fy_free(work->row);
    fy_free(work->leaf);
}

static bool work_init(work_t *work, const fy_regular_t *graph, uint32_t *colours) {
    *work = (work_t){.n = graph->n, .colours = colours};
    work->mate = fy_alloc(graph->n, sizeof *work->mate);
    work->taken = fy_alloc(graph->n, sizeof *work->taken);
    work->order = fy_alloc(graph->n, sizeof *work->order);
    bool ok = work->mate != NULL && work->taken != NULL && work->order != NULL;
    size_t arcs = (size_t)graph->n * graph->degree;
    if (ok && arcs > LEAF_ARCS) {
        work->partner = fy_alloc(arcs, sizeof *work->partner);
        work->flipped = fy_alloc(arcs / 2, sizeof *work->flipped);
        work->row = fy_alloc(graph->degree / 2, sizeof *work->row);
        work->leaf = fy_alloc(LEAF_ARCS, sizeof *work->leaf);
        ok = work->partner != NULL && work->flipped != NULL && work->row != NULL &&
             work->leaf != NULL;
    }
    for (uint32_t left = 0; ok && left < graph->n; left++) {
        work->order[left] = left;
    }
    return ok;
}

/* splitmix64, scaled to [0, bound). The bias is under bound / 2^32 and harmless here. */
static uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(((z >> 32) * bound) >> 32);
}

static fy_arc_t *row_of(const part_t *part, uint32_t left) {
    return part->arcs + left * part->stride;
}

/* Matches the free vertex `start`, moving others to other mates where that takes it. */
static void augment(work_t *work, const part_t *part, uint32_t start) {
    uint32_t left = start;
    uint32_t choices = part->degree;
    for (;;) {
        uint32_t column = random_below(&work->random, choices);
        work->taken[left] = column;
        left = work->mate[row_of(part, left)[column].right];
        if (left == NONE) {
            break;
        }
        choices = part->degree - 1; /* all but the matched arc, which is the last */
    }
    /* taken[] says how the walk left each vertex for the last time, so that following it from the
     * start skips the loops. */
    for (left = start; left != NONE;) {
        fy_arc_t *row = row_of(part, left);
        fy_arc_t arc = row[work->taken[left]];
        row[work->taken[left]] = row[part->degree - 1];
        row[part->degree - 1] = arc;
        uint32_t next = work->mate[arc.right];
        work->mate[arc.right] = left;
        left = next;
    }
}

/* Makes the last column a perfect matching. That the walks are short in expectation needs each start
 * to be drawn from the free vertices at random. */
static void match(work_t *work, const part_t *part) {
    if (part->degree == 1) {
        return;
    }
    memset(work->mate, 0xff, work->n * sizeof *work->mate);
    for (uint32_t i = 0; i < work->n; i++) {
        uint32_t at = i + random_below(&work->random, work->n - i);
        uint32_t start = work->order[at];
        work->order[at] = work->order[i];
        work->order[i] = start;
        augment(work, part, start);
    }
}

/* Takes one colour off the part. */
static void peel(work_t *work, part_t *part, uint32_t colour) {
    match(work, part);
    part->degree--;
    for (uint32_t left = 0; left < work->n; left++) {
        uint32_t edge = row_of(part, left)[part->degree].edge;
        if (edge != FY_BLANK) {
            work->colours[edge] = colour;
        }
    }
}

/* Pairs up the arcs that meet in each right vertex. Arcs are numbered row by row. */
static void pair_rights(work_t *work, const part_t *part) {
    uint32_t *open = work->mate;
    memset(open, 0xff, work->n * sizeof *open);
    uint32_t arc = 0;
    for (uint32_t left = 0; left < work->n; left++) {
        const fy_arc_t *row = row_of(part, left);
        for (uint32_t i = 0; i < part->degree; i++, arc++) {
            uint32_t right = row[i].right;
            if (open[right] == NONE) {
                open[right] = arc;
            } else {
                work->partner[arc] = open[right];
                work->partner[open[right]] = arc;
                open[right] = NONE;
            }
        }
    }
}

/* Arcs 2p and 2p+1 are a pair on the left, as the degree is even. Pairs on the left and on the right
 * link all arcs into rings of even length; every other arc of a ring goes into the first half, so each
 * pair, and with it each vertex, is cut in half. */
static void choose_halves(work_t *work, const part_t *part) {
    size_t pairs = (size_t)work->n * (part->degree / 2);
    memset(work->flipped, UNSET, pairs);
    for (size_t pair = 0; pair < pairs; pair++) {
        size_t arc = 2 * pair;
        while (work->flipped[arc / 2] == UNSET) {
            work->flipped[arc / 2] = arc & 1;
            arc = work->partner[arc ^ 1];
        }
    }
}

/* Reorders the rows so that the two halves of the window are the parts of an Euler partition. */
static void halve(work_t *work, const part_t *part) {
    pair_rights(work, part);
    choose_halves(work, part);
    uint32_t half = part->degree / 2;
    const uint8_t *flipped = work->flipped;
    for (uint32_t left = 0; left < work->n; left++, flipped += half) {
        fy_arc_t *row = row_of(part, left);
        for (uint32_t i = 0; i < half; i++) {
            fy_arc_t first = row[2 * (size_t)i + flipped[i]];
            work->row[i] = row[2 * (size_t)i + 1 - flipped[i]];
            row[i] = first;
        }
        memcpy(row + half, work->row, half * sizeof *row);
    }
}

/* Colours a part that fits the cache, after moving it together. */
static void colour_leaf(work_t *work, part_t part, uint32_t colour) {
    if (part.stride != part.degree && part.degree > 1) {
        for (uint32_t left = 0; left < work->n; left++) {
            memcpy(work->leaf + (size_t)left * part.degree, row_of(&part, left),
                   part.degree * sizeof *work->leaf);
        }
        part.arcs = work->leaf;
        part.stride = part.degree;
    }
    while (part.degree > 0) {
        peel(work, &part, colour++);
    }
}

/* Colours a part from `colour` up. Each call halves the degree: at most 32 are nested. */
static void colour_part(work_t *work, part_t part, uint32_t colour) {
    /* Without room for partners the whole graph is a leaf. */
    if (work->partner == NULL || part.degree <= 1 || (size_t)work->n * part.degree <= LEAF_ARCS) {
        colour_leaf(work, part, colour);
        return;
    }
    if (part.degree % 2 != 0) {
        peel(work, &part, colour++);
    }
    halve(work, &part);
    part.degree /= 2;
    colour_part(work, part, colour);
    part.arcs += part.degree;
    colour_part(work, part, colour + part.degree);
}

bool fy_regular_colour(const fy_regular_t *graph, uint32_t *colours) {
    work_t work;
    bool ok = work_init(&work, graph, colours);
    if (ok) {
        part_t whole = {.arcs = graph->arcs, .stride = graph->degree, .degree = graph->degree};
        colour_part(&work, whole, 0);
    }
    work_fini(&work);
    return ok;
}
