/* bars.h - bytes per rank as a small picture. */
#ifndef CLI_BARS_H
#define CLI_BARS_H

#include "output.h"
#include "plan_figures.h"

/* Two bars a line, sent and received, for up to eight ranks or groups of neighbouring ranks; a group
 * shows the busiest of its ranks. Ranks without any byte on the wire are left out of a part's picture. */
void bars_print(const plan_figures_t *figures, cli_output_t *out);

#endif
