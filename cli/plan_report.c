/* plan_report.c - the screen for people.
 *
 * At most 24 lines of 80 columns, whatever the plan. */
#include "plan_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bars.h"
#include "error.h"
#include "units.h"

#define MANY_LAYOUTS "several layouts"

enum {
    NAME_WIDTH = 10,
    INDENT = NAME_WIDTH + 2,
    SPEC_WIDTH = 40, /* a longer layout is cut short */
    GOOD_COLOR = 32,
    BAD_COLOR = 33,
};

static void print_name(cli_output_t *out, const char *name) {
    cli_print(out, "  %s%-*s%s", cli_bold(out), NAME_WIDTH, name, cli_plain(out));
}

/* Is there one dtype for all tensors? */
static bool same_dtypes(const ferry_plan_t *plan, ferry_plan_tensor_t *first_p) {
    ferry_plan_tensor_t tensor;
    uint32_t count = ferry_plan_ntensors(plan);
    for (uint32_t i = 0; i < count; i++) {
        ferry_plan_tensor(plan, i, i == 0 ? first_p : &tensor);
        if (i > 0 && (tensor.source_dtype != first_p->source_dtype ||
                      tensor.target_dtype != first_p->target_dtype)) {
            return false;
        }
    }
    return count > 0;
}

static void print_shape(cli_output_t *out, const ferry_plan_tensor_t *tensor) {
    cli_print(out, "%s", tensor->ndim == 0 ? "scalar" : "");
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        cli_print(out, "%s%" PRIu64, i > 0 ? "x" : "", tensor->shape[i]);
    }
}

/* What it is about: a model, a file, one tensor or many. */
static void print_title(const plan_subject_t *subject, const plan_figures_t *figures,
                        cli_output_t *out) {
    const ferry_plan_t *plan = figures->plan;
    ferry_plan_tensor_t tensor = {0};
    bool uniform = same_dtypes(plan, &tensor);
    uint32_t count = ferry_plan_ntensors(plan);
    const char *name = subject->model != NULL ? subject->model : subject->file;
    cli_print(out, "%s", cli_bold(out));
    if (name != NULL) {
        cli_print(out, "%s%s, ", name, cli_plain(out));
    }
    if (count == 1) {
        cli_print(out, "%.40s%s  ", tensor.name, cli_plain(out));
        print_shape(out, &tensor);
        cli_print(out, " ");
    } else {
        cli_print(out, "%s ", cli_label_count(count).text);
    }
    if (uniform) {
        cli_print(out, "%s", ferry_dtype_name(tensor.source_dtype));
    }
    if (uniform && tensor.target_dtype != tensor.source_dtype) {
        cli_print(out, " to %s", ferry_dtype_name(tensor.target_dtype));
    }
    if (count != 1) {
        cli_print(out, "%s%s", uniform ? " " : "", "tensors");
    }
    if (figures->rank != FERRY_RANK_NONE) {
        cli_print(out, ", %sthe part of rank %" PRIu32 "%s", cli_bold(out), figures->rank,
                  cli_plain(out));
    }
    cli_print(out, "\n\n");
}

static int spec_width(const char *spec) {
    size_t length = spec != NULL ? strlen(spec) : strlen(MANY_LAYOUTS);
    return length > SPEC_WIDTH ? SPEC_WIDTH : (int)length;
}

static void print_side(const char *name, const char *spec, int width, const plan_ranks_t *ranks,
                       cli_output_t *out) {
    print_name(out, name);
    const char *text = spec != NULL ? spec : MANY_LAYOUTS;
    bool cut = strlen(text) > SPEC_WIDTH;
    cli_print(out, "%-*.*s%s  %s", cut ? 0 : width, cut ? SPEC_WIDTH - 3 : SPEC_WIDTH, text,
              cut ? "..." : "", cli_dim(out));
    if (ranks->count == 0) {
        cli_print(out, "no ranks");
    } else if (ranks->count == 1) {
        cli_print(out, "rank %" PRIu32, ranks->first);
    } else {
        bool gaps = ranks->last - ranks->first + 1 != ranks->count;
        cli_print(out, "%s ranks%s %s", cli_label_count(ranks->count).text, gaps ? " of" : ",",
                  cli_label_ranks(ranks->first, ranks->last).text);
    }
    cli_print(out, "%s\n", cli_plain(out));
}

static void print_moves(const plan_figures_t *figures, cli_output_t *out) {
    const ferry_plan_stats_t *stats = &figures->stats;
    print_name(out, "moves");
    cli_print(out, "%s in %s transfers: %s local, %s on the wire",
              cli_label_bytes(stats->bytes_total).text, cli_label_count(stats->transfers).text,
              cli_label_bytes(stats->bytes_local).text, cli_label_bytes(stats->bytes_wire).text);
    if (figures->hosts > 0) {
        cli_print(out, "\n%*s%s hosts; %s of the wire stays within one", INDENT, "",
                  cli_label_count(figures->hosts).text, cli_label_bytes(stats->bytes_host).text);
    }
    if (stats->bytes_reduce > 0) {
        cli_print(out, "\n%*sPartial sources: %s more to reduce them before they go", INDENT, "",
                  cli_label_bytes(stats->bytes_reduce).text);
    }
    cli_print(out, "\n");
}

static void print_busiest(const plan_figures_t *figures, cli_output_t *out) {
    const ferry_plan_stats_t *stats = &figures->stats;
    if (stats->bytes_wire == 0) {
        return;
    }
    print_name(out, "sends");
    cli_print(out, "busiest rank %" PRIu32 ": %s, %s the mean\n", stats->max_send_rank,
              cli_label_bytes(stats->max_send_bytes).text,
              cli_label_ratio(stats->max_send_bytes, stats->mean_send_bytes).text);
    print_name(out, "receives");
    cli_print(out, "busiest rank %" PRIu32 ": %s\n", stats->max_recv_rank,
              cli_label_bytes(stats->max_recv_bytes).text);
}

static void print_bound(const plan_figures_t *figures, cli_output_t *out) {
    const ferry_plan_stats_t *stats = &figures->stats;
    uint64_t busiest = stats->max_send_bytes > stats->max_recv_bytes ? stats->max_send_bytes
                                                                     : stats->max_recv_bytes;
    print_name(out, "bound");
    if (stats->lower_bound_bytes == 0) {
        cli_print(out, "%s\n",
                  busiest == 0 ? "nothing needs to cross the wire, and nothing does"
                               : "nothing would need to cross the wire");
        return;
    }
    bool good = (double)busiest <= 1.1 * (double)stats->lower_bound_bytes;
    cli_print(out, "%s, set by rank %" PRIu32 " ", cli_label_bytes(stats->lower_bound_bytes).text,
              stats->bound_rank);
    if (stats->bound_holders > 1) {
        cli_print(out, "and %s other%s ", cli_label_count(stats->bound_holders - 1).text,
                  stats->bound_holders > 2 ? "s" : "");
    }
    cli_print(out, "%s; busiest port at %s%s%s\n", stats->bound_is_send ? "sending" : "receiving",
              cli_paint(out, good ? GOOD_COLOR : BAD_COLOR),
              cli_label_ratio(busiest, (double)stats->lower_bound_bytes).text, cli_plain(out));
}

/* What the rank of a part does. */
static void print_own(const plan_figures_t *figures, cli_output_t *out) {
    static const ferry_port_t idle = {0};
    const ferry_port_t *own = figures->own != NULL ? figures->own : &idle;
    struct {
        const char *name;
        uint64_t count;
        uint64_t bytes;
    } rows[] = {
        {"sends", figures->send_transfers, own->send_bytes},
        {"receives", figures->recv_transfers, own->recv_bytes},
        {"keeps", figures->local_transfers, own->local_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        print_name(out, rows[i].name);
        cli_print(out, "%s in %s transfers\n", cli_label_bytes(rows[i].bytes).text,
                  cli_label_count(rows[i].count).text);
    }
    if (figures->stats.bytes_reduce > 0) {
        print_name(out, "reduces");
        cli_print(out, "%s of Partial sources, in this part\n",
                  cli_label_bytes(figures->stats.bytes_reduce).text);
    }
}

static void print_rounds(const plan_figures_t *figures, cli_output_t *out) {
    bool part = figures->rank != FERRY_RANK_NONE;
    print_name(out, "rounds");
    cli_print(out, "%s%s", cli_label_count(figures->rounds).text, part ? " for this rank" : "");
    if (figures->rounds == figures->max_degree) {
        cli_print(out, "%s", part ? "" : ", the fewest possible");
    } else {
        cli_print(out, " (%s are possible)", cli_label_count(figures->max_degree).text);
    }
    cli_print(out, "; %s batches of up to %s\n", cli_label_count(figures->batches).text,
              cli_label_slot(figures->slot_bytes).text);
}

static void print_time(const plan_figures_t *figures, cli_output_t *out) {
    print_name(out, "checked");
    cli_print(out, "every element%s arrives exactly once\n",
              figures->rank != FERRY_RANK_NONE ? " of this rank's targets" : "");
    print_name(out, "took");
    cli_print(out, "%s", cli_label_seconds(figures->seconds).text);
    bool first = true;
    for (size_t i = 0; i < PLAN_PHASE_COUNT; i++) {
        /* What takes no time worth a word would only make the line too long. */
        if (figures->phase_s[i] >= 0.0005 && figures->phase_s[i] >= 0.1 * figures->seconds) {
            cli_print(out, "%s%s %.0f", first ? " (" : ", ", plan_phase_name((plan_phase_t)i),
                      figures->phase_s[i] * 1e3);
            first = false;
        }
    }
    cli_print(out, "%s, %s\n", first ? "" : " ms)", cli_label_bytes(figures->peak_rss_bytes).text);
    print_name(out, "hash");
    cli_print(out, "%016" PRIx64 "\n", figures->hash);
}

void plan_report_text(const plan_subject_t *subject, const plan_figures_t *figures,
                      cli_output_t *out) {
    print_title(subject, figures, out);
    int width = spec_width(subject->from);
    width = spec_width(subject->to) > width ? spec_width(subject->to) : width;
    print_side("from", subject->from, width, &figures->sources, out);
    print_side("to", subject->to, width, &figures->targets, out);
    if (figures->rank == FERRY_RANK_NONE) {
        print_moves(figures, out);
        print_busiest(figures, out);
        print_bound(figures, out);
    } else {
        print_own(figures, out);
    }
    print_rounds(figures, out);
    print_time(figures, out);
    bars_print(figures, out);
}

static ferry_status_t write_text(void *context, const char *text, size_t length) {
    cli_output_t *out = context;
    cli_write(out, text, length);
    return out->nomem ? FERRY_NOMEM : FERRY_OK;
}

ferry_status_t plan_report_print(const plan_report_t *report, const plan_subject_t *subject,
                                 const plan_figures_t *figures, cli_output_t *out,
                                 ferry_error_t *err) {
    if (report->json) {
        return plan_report_json(report, subject, figures, out, err);
    }
    plan_report_text(subject, figures, out);
    if (!report->transfers) {
        return FERRY_OK;
    }
    cli_print(out, "\n");
    ferry_status_t status = ferry_plan_print(figures->plan, write_text, out, err);
    return status == FERRY_OK || !out->nomem ? status : cli_fail_nomem(err);
}
