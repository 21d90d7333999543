/* regular.h - colouring a regular bipartite multigraph.
 *
 * Each of the n left vertices has a row of `degree` arcs; each right vertex is the end of `degree`
 * arcs. Who fills the rows must see to both. */
#ifndef FERRY_SCHED_REGULAR_H
#define FERRY_SCHED_REGULAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FY_BLANK UINT32_MAX

typedef struct fy_arc {
    uint32_t right;
    uint32_t edge; /* whose colour this is, or FY_BLANK: nobody's */
} fy_arc_t;

typedef struct fy_regular {
    uint32_t n;
    uint32_t degree;
    fy_arc_t *arcs; /* n rows of degree arcs; colouring reorders the rows */
} fy_regular_t;

/* Sets colours[arc.edge] for all arcs but blanks: 0 to degree-1, no two of a vertex alike. Fewer than
 * UINT32_MAX arcs. False when memory is out. */
bool fy_regular_colour(const fy_regular_t *graph, uint32_t *colours);

#endif
