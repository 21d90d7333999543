/* colour.c - edge colouring: makes a graph regular, and colours that.
 *
 * Light vertices of a side are folded into one as long as their degrees sum to at most D, and blank
 * arcs, which stand for no edge, fill every vertex up to D. Colouring the folded graph colours the
 * graph itself: what may not share a colour there includes what may not here.
 *
 * Invariant: two neighbouring folded vertices hold more than D edges, so that a side of m edges has at
 * most 2m/D + 1 of them, and the regular graph at most 2m + D <= 3m arcs, however skewed. */
#include "sched/colour.h"

#include "base/memory.h"
#include "sched/regular.h"

/* Replaces each vertex's degree by the folded vertex that it goes to; returns how many there are. */
static uint32_t fold(uint32_t *degrees, uint32_t n, uint32_t most) {
    uint32_t folded = 0;
    uint32_t room = most;
    for (uint32_t v = 0; v < n; v++) {
        if (degrees[v] > room) {
            folded++;
            room = most;
        }
        room -= degrees[v];
        degrees[v] = folded;
    }
    return folded + 1;
}

/* Enters the edges, then blanks until every vertex has the full degree. lefts and rights are 0 for
 * all n vertices, and count their arcs. */
static void fill(const fy_regular_t *graph, const fy_edge_t *edges, size_t nedges,
                 const uint32_t *left_fold, const uint32_t *right_fold, uint32_t *lefts,
                 uint32_t *rights) {
    for (size_t e = 0; e < nedges; e++) {
        uint32_t left = left_fold[edges[e].left];
        uint32_t right = right_fold[edges[e].right];
        size_t at = (size_t)left * graph->degree + lefts[left]++;
        graph->arcs[at] = (fy_arc_t){.right = right, .edge = (uint32_t)e};
        rights[right]++;
    }
    uint32_t right = 0;
    for (uint32_t left = 0; left < graph->n; left++) {
        fy_arc_t *row = graph->arcs + (size_t)left * graph->degree;
        for (uint32_t i = lefts[left]; i < graph->degree; i++) {
            /* Both sides lack equally many arcs, so one on the right still lacks some. */
            while (rights[right] == graph->degree) {
                right++;
            }
            row[i] = (fy_arc_t){.right = right, .edge = FY_BLANK};
            rights[right]++;
        }
    }
}

static bool colour_folded(const fy_edge_t *edges, size_t nedges, const uint32_t *left_fold,
                          const uint32_t *right_fold, uint32_t n, uint32_t degree,
                          uint32_t *colours) {
    fy_regular_t graph = {.n = n, .degree = degree};
    graph.arcs = fy_alloc(n, degree * sizeof *graph.arcs);
    uint32_t *lefts = fy_alloc_zero(n, sizeof *lefts);
    uint32_t *rights = fy_alloc_zero(n, sizeof *rights);
    bool ok = graph.arcs != NULL && lefts != NULL && rights != NULL;
    if (ok) {
        fill(&graph, edges, nedges, left_fold, right_fold, lefts, rights);
    }
    fy_free(lefts);
    fy_free(rights);
    ok = ok && fy_regular_colour(&graph, colours);
    fy_free(graph.arcs);
    return ok;
}

bool fy_colour_edges(const fy_edge_t *edges, size_t nedges, uint32_t nleft, uint32_t nright,
                     uint32_t *colours, uint32_t *degree_p) {
    uint32_t *lefts = fy_alloc_zero(nleft, sizeof *lefts);
    uint32_t *rights = fy_alloc_zero(nright, sizeof *rights);
    bool ok = lefts != NULL && rights != NULL;
    uint32_t most = 0;
    for (size_t e = 0; ok && e < nedges; e++) {
        uint32_t sent = ++lefts[edges[e].left];
        uint32_t received = ++rights[edges[e].right];
        most = sent > most ? sent : most;
        most = received > most ? received : most;
    }
    if (ok && nedges > 0) {
        uint32_t left_n = fold(lefts, nleft, most);
        uint32_t right_n = fold(rights, nright, most);
        uint32_t n = left_n > right_n ? left_n : right_n;
        ok = colour_folded(edges, nedges, lefts, rights, n, most, colours);
    }
    fy_free(lefts);
    fy_free(rights);
    if (ok) {
        *degree_p = most;
    }
    return ok;
}
