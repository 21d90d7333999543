/* bars.c - bytes per rank as a small picture.
 *
 * Invariant: all bars have one scale, the busiest port; a port that moves anything shows something. */
#include "bars.h"

#include <stdlib.h>
#include <string.h>

#include "units.h"

enum {
    ROWS_WHOLE = 8,
    ROWS_PART = 10, /* a rank and its peers, often eight */
    ROWS_MAX = 10,
    WIDTH = 79,
    BAR_MAX = 24,
    VALUE_WIDTH = 8, /* " 35.3 GB" without its space */
    SEND_COLOR = 36,
    RECV_COLOR = 33,
};

typedef struct row {
    cli_label_t label;
    uint64_t send_bytes;
    uint64_t recv_bytes;
} row_t;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static bool is_shown(const plan_figures_t *figures, const ferry_port_t *port) {
    return figures->rank == FERRY_RANK_NONE || port->send_bytes > 0 || port->recv_bytes > 0;
}

/* Are two ports of one kind: sources, targets or both? */
static bool same_role(const ferry_port_t *a, const ferry_port_t *b) {
    return a->is_source == b->is_source && a->is_target == b->is_target;
}

/* Fills rows with groups of up to `group` neighbours and returns how many rows that takes, which may
 * be more than there are. With `by_role` no group mixes sources and targets. */
static size_t make_rows(const plan_figures_t *figures, size_t group, bool by_role,
                        row_t rows[ROWS_MAX]) {
    const ferry_port_t *last = NULL;
    uint32_t first = 0;
    size_t used = 0;
    size_t filled = 0;
    row_t spare = {0};
    row_t *row = &spare;
    for (size_t i = 0; i < figures->nports; i++) {
        const ferry_port_t *port = &figures->ports[i];
        if (!is_shown(figures, port)) {
            continue;
        }
        if (last == NULL || filled == group || (by_role && !same_role(last, port))) {
            row = used < ROWS_MAX ? &rows[used] : &spare;
            *row = (row_t){0};
            used++;
            filled = 0;
            first = port->rank;
        }
        row->label = cli_label_ranks(first, port->rank);
        row->send_bytes = larger(row->send_bytes, port->send_bytes);
        row->recv_bytes = larger(row->recv_bytes, port->recv_bytes);
        filled++;
        last = port;
    }
    return used;
}

/* The smallest groups whose rows fit; *group_p is how many ranks one stands for at most. */
static size_t fit_rows(const plan_figures_t *figures, row_t rows[ROWS_MAX], size_t *group_p) {
    size_t rows_max = figures->rank == FERRY_RANK_NONE ? ROWS_WHOLE : ROWS_PART;
    for (int by_role = 1; by_role >= 0; by_role--) {
        for (size_t group = 1; group < 2 * figures->nports; group *= 2) {
            size_t used = make_rows(figures, group, by_role == 1, rows);
            if (used <= rows_max) {
                *group_p = group;
                return used;
            }
        }
    }
    return 0;
}

/* A bar of value/scale, in eighths of a character where there are such. */
static void print_bar(cli_output_t *out, uint64_t value, uint64_t scale, size_t width, int color) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    size_t steps = out->utf8 ? 8 : 1;
    double part = scale > 0 ? (double)value / (double)scale : 0;
    size_t length = (size_t)(part * (double)(width * steps) + 0.5);
    if (value > 0 && length == 0) {
        length = 1;
    }
    cli_print(out, "%s", cli_paint(out, color));
    for (size_t i = 0; i < length / steps; i++) {
        cli_print(out, "%s", out->utf8 ? "█" : "#");
    }
    cli_print(out, "%s%s", out->utf8 ? eighths[length % steps] : "", cli_plain(out));
    size_t used = length / steps + (length % steps != 0 ? 1 : 0);
    cli_print(out, "%*s", (int)(width - used), "");
}

void bars_print(const plan_figures_t *figures, cli_output_t *out) {
    row_t rows[ROWS_MAX];
    size_t group = 0;
    size_t nrows = fit_rows(figures, rows, &group);
    uint64_t scale = 0;
    size_t label = strlen("ranks");
    for (size_t i = 0; i < nrows; i++) {
        scale = larger(scale, larger(rows[i].send_bytes, rows[i].recv_bytes));
        label = strlen(rows[i].label.text) > label ? strlen(rows[i].label.text) : label;
    }
    if (scale == 0) {
        return;
    }
    size_t width = (WIDTH - 2 - label) / 2 - VALUE_WIDTH - 3;
    width = width < BAR_MAX ? width : BAR_MAX;
    bool grouped = group > 1; /* then a row shows its busiest rank */
    cli_print(out, "\n%s  %*s  %-*s  %s%s\n", cli_bold(out), (int)label, grouped ? "ranks" : "rank",
              (int)(width + VALUE_WIDTH + 1), grouped ? "send up to" : "sends",
              grouped ? "receive up to" : "receives", cli_plain(out));
    for (size_t i = 0; i < nrows; i++) {
        cli_print(out, "  %*s  ", (int)label, rows[i].label.text);
        print_bar(out, rows[i].send_bytes, scale, width, SEND_COLOR);
        cli_print(out, " %-*s  ", VALUE_WIDTH, cli_label_bytes(rows[i].send_bytes).text);
        print_bar(out, rows[i].recv_bytes, scale, width, RECV_COLOR);
        cli_print(out, " %s\n", cli_label_bytes(rows[i].recv_bytes).text);
    }
}
