/* colour.h - edge colouring of bipartite multigraphs with as many colours as the largest degree.
 *
 * Sources stand on the left, targets on the right, a batch is an edge, a colour is a round. */
#ifndef FERRY_SCHED_COLOUR_H
#define FERRY_SCHED_COLOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What keeps the arcs of the regular graph, at most three per edge, under 32 bits. */
#define FY_EDGES_MAX (UINT32_C(1) << 30)

typedef struct fy_edge {
    uint32_t left;
    uint32_t right;
} fy_edge_t;

/* Colours 0 to D-1, where D is the largest degree, so that no two edges of a colour share an end.
 * left < nleft and right < nright; at most FY_EDGES_MAX edges. Sets colours[0..nedges) and D. The same
 * edges in the same order get the same colours. False when memory is out. */
bool fy_colour_edges(const fy_edge_t *edges, size_t nedges, uint32_t nleft, uint32_t nright,
                     uint32_t *colours, uint32_t *degree_p);

#endif
