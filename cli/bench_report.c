/* bench_report.c - the figures of a bench as a table or as JSON (docs/formats/bench-json.md).
 *
 * Invariant: what was not measured is "-" in the table and null in JSON, never 0. */
#include "bench_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ferry/kernel.h>

#include "bench_reshard.h"
#include "units.h"

/* More of the cores in use than this when a bench begins, and its figures say little. */
#define BUSY 0.25

bool bench_report_met(const bench_report_t *report) {
    for (size_t i = 0; i < report->ncases; i++) {
        bench_target_t targets[BENCH_TARGETS_MAX];
        size_t count = bench_targets(&report->cases[i], targets);
        for (size_t j = 0; j < count; j++) {
            if (!targets[j].met) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the table --------------------------------------------------------------------------------- */

/* "15.1", or "-" for what was not measured. */
static cli_label_t label_figure(double value, int digits) {
    cli_label_t label = {"-"};
    if (value > 0) {
        (void)snprintf(label.text, sizeof label.text, "%.*f", digits, value);
    }
    return label;
}

static void print_peers(const bench_figures_t *figures, cli_output_t *out) {
    const char *between = "";
    double readv = bench_gbps(figures, &figures->readv);
    if (readv > 0) {
        cli_print(out, "process_vm_readv %.1f", readv);
        between = ", ";
    }
    for (size_t i = 0; i < figures->npeers; i++) {
        cli_print(out, "%s%s %.1f", between, figures->peers[i].name, figures->peers[i].gbps);
        between = ", ";
    }
    if (figures->tiny) {
        cli_print(out, "%.1f us a run", figures->ours.median_s * 1e6);
    }
}

static void print_case(const bench_figures_t *figures, cli_output_t *out) {
    const bench_times_t *ours = &figures->ours;
    double spread = ours->median_s > 0 ? (ours->max_s - ours->min_s) / ours->median_s * 100 : 0;
    bench_times_t cold = {.median_s = figures->cold_s};
    double ratio = bench_ratio(figures, &figures->limit);
    cli_print(out, "%-18s %5" PRIu32 " %s%6.*f%s %6s %6s %5.0f %% %6.*f  ", figures->name,
              figures->ranks, cli_bold(out), figures->tiny ? 2 : 1, bench_gbps(figures, ours),
              cli_plain(out), label_figure(bench_gbps(figures, &figures->limit), 1).text,
              label_figure(ratio, 2).text, spread, figures->tiny ? 2 : 1,
              bench_gbps(figures, &cold));
    if (figures->reshard != NULL && !figures->tiny) {
        reshard_print_phases(figures->reshard, out);
    } else {
        print_peers(figures, out);
    }
    cli_print(out, "\n");
    if (figures->reshard != NULL) {
        reshard_print_case(figures->reshard, out);
    }
}

static void print_targets(const bench_figures_t *figures, cli_output_t *out) {
    bench_target_t targets[BENCH_TARGETS_MAX];
    size_t count = bench_targets(figures, targets);
    for (size_t i = 0; i < count; i++) {
        const bench_target_t *target = &targets[i];
        if (!target->met) {
            cli_print(out, "%smissed:%s %s is at %.3f %s; %.2f is asked for\n", cli_paint(out, 31),
                      cli_plain(out), figures->name, target->got, target->what, target->wanted);
        }
    }
}

void bench_report_text(const bench_report_t *report, cli_output_t *out) {
    cli_print(out, "%s%-18s %5s %6s %6s %6s %7s %6s  %s%s\n", cli_dim(out), "case", "ranks", "GB/s",
              "limit", "ratio", "spread", "cold",
              report->ncases > 0 && report->cases[0].reshard != NULL ? "phases" : "peers",
              cli_plain(out));
    for (size_t i = 0; i < report->ncases; i++) {
        print_case(&report->cases[i], out);
    }
    for (size_t i = 0; report->targets && i < report->ncases; i++) {
        print_targets(&report->cases[i], out);
    }
    if (report->targets && bench_report_met(report)) {
        cli_print(out, "All targets that were measured are met.\n");
    }
    if (report->load > BUSY * report->cores) {
        cli_print(out,
                  "Other programs kept %.1f of %" PRIu32 " cores busy: figures are low, and "
                  "ratios uncertain.\n",
                  report->load, report->cores);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

/* Six digits are more than a measurement has. */
static void put_figure(cli_json_t *json, struct json_object *object, const char *key,
                       double value) {
    if (value > 0) {
        char text[64];
        (void)snprintf(text, sizeof text, "%.6g", value);
        cli_json_put(json, object, key, json_object_new_double_s(value, text));
    } else {
        cli_json_null(json, object, key);
    }
}

static void put_times(cli_json_t *json, struct json_object *object, const char *key,
                      const bench_times_t *times) {
    if (times->median_s <= 0) {
        cli_json_null(json, object, key);
        return;
    }
    struct json_object *all = cli_json_object(json, object, key);
    put_figure(json, all, "median", times->median_s);
    put_figure(json, all, "min", times->min_s);
    put_figure(json, all, "max", times->max_s);
}

static void put_paths(cli_json_t *json, struct json_object *object,
                      const bench_figures_t *figures) {
    struct json_object *paths = cli_json_object(json, object, "paths");
    cli_json_u64(json, paths, "direct", figures->moved.bytes_direct);
    cli_json_u64(json, paths, "read", figures->moved.bytes_read);
    cli_json_u64(json, paths, "pipeline", figures->moved.bytes_pipeline);
    if (figures->reshard == NULL) {
        cli_json_u64(json, object, "helped_bytes", figures->moved.bytes_helped);
    } else {
        cli_json_null(json, object, "helped_bytes"); /* sessions do not tell */
    }
    cli_json_u64(json, object, "staging_bytes", figures->moved.staging_bytes);
}

static void put_peers(cli_json_t *json, struct json_object *object,
                      const bench_figures_t *figures) {
    struct json_object *peers = cli_json_object(json, object, "peers");
    for (size_t i = 0; i < figures->npeers; i++) {
        put_figure(json, peers, figures->peers[i].name, figures->peers[i].gbps);
    }
    struct json_object *list = cli_json_array(json, object, "targets");
    bench_target_t targets[BENCH_TARGETS_MAX];
    size_t count = bench_targets(figures, targets);
    for (size_t i = 0; i < count; i++) {
        struct json_object *target = json_object_new_object();
        cli_json_text(json, target, "what", targets[i].what);
        put_figure(json, target, "wanted", targets[i].wanted);
        put_figure(json, target, "got", targets[i].got);
        cli_json_bool(json, target, "met", targets[i].met);
        cli_json_push(json, list, target);
    }
}

static struct json_object *make_case(cli_json_t *json, const bench_figures_t *figures) {
    struct json_object *object = json_object_new_object();
    cli_json_text(json, object, "name", figures->name);
    cli_json_u64(json, object, "ranks", figures->ranks);
    cli_json_u64(json, object, "bytes", figures->bytes);
    cli_json_u64(json, object, "rounds", figures->rounds);
    put_figure(json, object, "gbps", bench_gbps(figures, &figures->ours));
    put_figure(json, object, "limit_gbps", bench_gbps(figures, &figures->limit));
    put_figure(json, object, "ratio_to_limit", bench_ratio(figures, &figures->limit));
    cli_json_text(json, object, "limit_method",
                  figures->limit_name[0] != '\0' ? figures->limit_name : NULL);
    put_figure(json, object, "readv_gbps", bench_gbps(figures, &figures->readv));
    put_figure(json, object, "ratio_to_readv", bench_ratio(figures, &figures->readv));
    put_figure(json, object, "latency_us", figures->tiny ? figures->ours.median_s * 1e6 : 0);
    put_times(json, object, "seconds", &figures->ours);
    put_times(json, object, "limit_seconds", &figures->limit);
    put_figure(json, object, "cold_seconds", figures->cold_s);
    put_figure(json, object, "keep_seconds", figures->keep_s);
    put_paths(json, object, figures);
    put_peers(json, object, figures);
    if (figures->reshard != NULL) {
        reshard_put_json(figures->reshard, json, object);
    }
    return object;
}

static void put_load(cli_json_t *json, double load) {
    if (load >= 0) {
        cli_json_seconds(json, json->root, "load", load);
    } else {
        cli_json_null(json, json->root, "load");
    }
}

ferry_status_t bench_report_json(const bench_report_t *report, cli_output_t *out,
                                 ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    const char *isa = NULL;
    (void)ferry_kernel_isa(&isa, NULL);
    cli_json_text(&json, json.root, "isa", isa);
    cli_json_u64(&json, json.root, "rounds", report->rounds);
    put_figure(&json, json.root, "scale", report->scale);
    cli_json_text(&json, json.root, "share", report->share);
    cli_json_u64(&json, json.root, "cores", report->cores);
    put_load(&json, report->load);
    cli_json_bool(&json, json.root, "targets_met", bench_report_met(report));
    struct json_object *cases = cli_json_array(&json, json.root, "cases");
    for (size_t i = 0; i < report->ncases; i++) {
        cli_json_push(&json, cases, make_case(&json, &report->cases[i]));
    }
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}
