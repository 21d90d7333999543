/* plan_json.c - a plan's figures as one JSON object (docs/formats/plan-json.md).
 *
 * Fields are only ever added; what has no meaning for a part is null there, never left out. */
#include "json.h"
#include "plan_report.h"

typedef struct json_object node_t;

static void put_subject(cli_json_t *json, const plan_subject_t *subject,
                        const plan_figures_t *figures) {
    node_t *root = json->root;
    if (subject->file != NULL) {
        cli_json_text(json, root, "file", subject->file);
    }
    cli_json_text(json, root, "model", subject->model);
    if (subject->model == NULL && ferry_plan_ntensors(figures->plan) == 1) {
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(figures->plan, 0, &tensor);
        cli_json_text(json, root, "name", tensor.name);
        cli_json_u64s(json, root, "shape", tensor.shape, tensor.ndim);
        cli_json_text(json, root, "dtype", ferry_dtype_name(tensor.source_dtype));
        cli_json_text(json, root, "to_dtype", ferry_dtype_name(tensor.target_dtype));
    }
    cli_json_text(json, root, "from", subject->from);
    cli_json_text(json, root, "to", subject->to);
    cli_json_u64(json, root, "source_ranks", figures->sources.count);
    cli_json_u64(json, root, "target_ranks", figures->targets.count);
    if (figures->hosts > 0) {
        cli_json_u64(json, root, "hosts", figures->hosts);
    } else {
        cli_json_null(json, root, "hosts");
    }
}

static void put_own(cli_json_t *json, const plan_figures_t *figures) {
    static const ferry_port_t idle = {0};
    const ferry_port_t *own = figures->own != NULL ? figures->own : &idle;
    node_t *root = json->root;
    cli_json_u64(json, root, "rank", figures->rank);
    cli_json_bool(json, root, "is_source", own->is_source);
    cli_json_bool(json, root, "is_target", own->is_target);
    cli_json_u64(json, root, "send_transfers", figures->send_transfers);
    cli_json_u64(json, root, "recv_transfers", figures->recv_transfers);
    cli_json_u64(json, root, "local_transfers", figures->local_transfers);
    cli_json_u64(json, root, "send_bytes", own->send_bytes);
    cli_json_u64(json, root, "recv_bytes", own->recv_bytes);
    cli_json_u64(json, root, "local_bytes", own->local_bytes);
}

static void put_stats(cli_json_t *json, const plan_figures_t *figures) {
    const ferry_plan_stats_t *stats = &figures->stats;
    node_t *root = json->root;
    cli_json_u64(json, root, "tensors", stats->tensors);
    cli_json_u64(json, root, "transfers", stats->transfers);
    cli_json_u64(json, root, "bytes_total", stats->bytes_total);
    cli_json_u64(json, root, "bytes_local", stats->bytes_local);
    cli_json_u64(json, root, "bytes_wire", stats->bytes_wire);
    cli_json_u64(json, root, "bytes_host", stats->bytes_host);
    cli_json_u64(json, root, "bytes_reduce", stats->bytes_reduce);
    cli_json_u64(json, root, "max_send_bytes", stats->max_send_bytes);
    cli_json_u64(json, root, "max_send_rank", stats->max_send_rank);
    cli_json_double(json, root, "mean_send_bytes", stats->mean_send_bytes);
    if (figures->rank == FERRY_RANK_NONE && stats->mean_send_bytes > 0) {
        cli_json_double(json, root, "balance",
                        (double)stats->max_send_bytes / stats->mean_send_bytes);
    } else {
        cli_json_null(json, root, "balance");
    }
    cli_json_u64(json, root, "max_recv_bytes", stats->max_recv_bytes);
    cli_json_u64(json, root, "max_recv_rank", stats->max_recv_rank);
}

static void put_bound(cli_json_t *json, const plan_figures_t *figures) {
    const ferry_plan_stats_t *stats = &figures->stats;
    if (figures->rank != FERRY_RANK_NONE) {
        cli_json_null(json, json->root, "lower_bound_bytes");
        cli_json_null(json, json->root, "bound_port");
        return;
    }
    cli_json_u64(json, json->root, "lower_bound_bytes", stats->lower_bound_bytes);
    if (stats->lower_bound_bytes == 0) {
        cli_json_null(json, json->root, "bound_port");
        return;
    }
    node_t *port = cli_json_object(json, json->root, "bound_port");
    cli_json_u64(json, port, "rank", stats->bound_rank);
    cli_json_text(json, port, "direction", stats->bound_is_send ? "send" : "recv");
    cli_json_u64(json, port, "holders", stats->bound_holders);
}

static void put_process(cli_json_t *json, const plan_figures_t *figures) {
    node_t *root = json->root;
    cli_json_u64(json, root, "rounds", figures->rounds);
    cli_json_u64(json, root, "rounds_lower_bound", figures->max_degree);
    cli_json_u64(json, root, "batches", figures->batches);
    cli_json_u64(json, root, "slot_bytes", figures->slot_bytes);
    cli_json_bool(json, root, "checked", true);
    cli_json_hash(json, root, "hash", figures->hash);
    cli_json_seconds(json, root, "plan_seconds", figures->seconds);
    node_t *phases = cli_json_object(json, root, "phases");
    for (size_t i = 0; i < PLAN_PHASE_COUNT; i++) {
        if (figures->phase_s[i] >= 0) {
            cli_json_seconds(json, phases, plan_phase_name((plan_phase_t)i), figures->phase_s[i]);
        }
    }
    cli_json_u64(json, root, "peak_rss_bytes", figures->peak_rss_bytes);
}

static void put_transfers(cli_json_t *json, const ferry_plan_t *plan) {
    node_t *list = cli_json_array(json, json->root, "transfer_list");
    ferry_plan_cursor_t cursor = FERRY_PLAN_CURSOR_INIT;
    ferry_transfer_t transfer;
    while (!json->nomem && ferry_plan_next(plan, &cursor, &transfer)) {
        ferry_plan_tensor_t tensor;
        ferry_plan_tensor(plan, transfer.tensor, &tensor);
        node_t *node = json_object_new_object();
        cli_json_push(json, list, node);
        if (json->nomem) {
            return;
        }
        cli_json_hash(json, node, "task_id", transfer.task_id);
        cli_json_text(json, node, "tensor", tensor.name);
        cli_json_u64(json, node, "source", transfer.source);
        cli_json_u64(json, node, "target", transfer.target);
        cli_json_u64(json, node, "piece", transfer.piece);
        cli_json_u64(json, node, "elements", transfer.elements);
        cli_json_u64(json, node, "bytes", transfer.bytes);
        cli_json_u64s(json, node, "source_lo", transfer.source_lo, transfer.ndim);
        cli_json_u64s(json, node, "target_lo", transfer.target_lo, transfer.ndim);
        cli_json_u64s(json, node, "extent", transfer.extent, transfer.ndim);
    }
}

ferry_status_t plan_report_json(const plan_report_t *report, const plan_subject_t *subject,
                                const plan_figures_t *figures, cli_output_t *out,
                                ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    put_subject(&json, subject, figures);
    if (figures->rank != FERRY_RANK_NONE) {
        put_own(&json, figures);
    } else {
        cli_json_null(&json, json.root, "rank");
    }
    put_stats(&json, figures);
    put_bound(&json, figures);
    put_process(&json, figures);
    if (report->transfers) {
        put_transfers(&json, figures->plan);
    }
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}
