/* ckpt_reshard.c - what `ferry reshard` says in the end. */
#include "ckpt_reshard.h"

#include <inttypes.h>

#include "ckpt_options.h"
#include "ckpt_text.h"
#include "json.h"
#include "units.h"

static ckpt_spec_t target_spec(const ckpt_reshard_t *run) {
    ckpt_spec_t whole = {"hf"};
    return run->params->kind == FERRY_FOLDER_HF ? whole : ckpt_spec_text(&run->params->parallel);
}

static const char *target_form(const ckpt_reshard_t *run) {
    return run->params->form != NULL ? run->params->form : "hf";
}

static double expected_seconds(const ckpt_reshard_t *run) {
    return run->disk_rate > 0 ? (double)run->forecast.bytes_written / run->disk_rate : 0;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void print_uneven(const ckpt_uneven_t *uneven, cli_output_t *out) {
    if (uneven->tensors > 0) {
        cli_print(out,
                  "  uneven    %s %s; dim %" PRIu32 " of %s (%" PRIu64 ") is cut to %" PRIu64
                  " up to %" PRIu64 "\n",
                  cli_label_count(uneven->tensors).text,
                  uneven->tensors == 1 ? "tensor" : "tensors", uneven->dim, uneven->example,
                  uneven->length, uneven->least, uneven->most);
    }
}

static void print_forecast(const ckpt_reshard_t *run, cli_output_t *out) {
    const ckpt_forecast_t *forecast = &run->forecast;
    cli_print(out, "  reads     %s\n", cli_label_bytes(forecast->bytes_read).text);
    cli_print(out, "  writes    %s in %s %s, the largest %s\n",
              cli_label_bytes(forecast->bytes_written).text, cli_label_count(forecast->files).text,
              forecast->files == 1 ? "file" : "files",
              cli_label_bytes(forecast->largest_file).text);
    if (run->free_bytes > 0) {
        cli_print(out, "  disk      %s free%s\n", cli_label_bytes(run->free_bytes).text,
                  run->free_bytes < forecast->bytes_written ? ": not enough" : "");
    }
    cli_print(out, "  memory    %s for %" PRIu32 " workers\n",
              cli_label_slot(forecast->memory_bytes).text, run->params->workers);
    if (run->disk_rate > 0) {
        cli_print(out, "  time      about %s, at the %.2f GB/s of a sample\n",
                  cli_label_seconds(expected_seconds(run)).text, run->disk_rate / 1e9);
    } else {
        cli_print(out, "  time      unknown: the disk could not be measured\n");
    }
}

static void print_result(const ckpt_reshard_t *run, cli_output_t *out) {
    const ferry_convert_result_t *result = &run->result;
    char digest[FERRY_DIGEST_TEXT_MAX];
    ferry_digest_text(&result->digest, digest);
    cli_print(out, "  read      %s\n", cli_label_bytes(result->bytes_read).text);
    cli_print(out, "  written   %s in %s %s, %s tensors\n",
              cli_label_bytes(result->bytes_written).text, cli_label_count(result->files).text,
              result->files == 1 ? "file" : "files", cli_label_count(result->tensors).text);
    cli_print(out, "  time      %s, %.2f GB/s: plan %s, copy %s, sync %s",
              cli_label_seconds(result->total_seconds).text,
              ckpt_rate(result->bytes_written, result->total_seconds),
              cli_label_seconds(result->read_seconds).text,
              cli_label_seconds(result->copy_seconds).text,
              cli_label_seconds(result->sync_seconds).text);
    if (run->params->verify) {
        cli_print(out, ", verify %s", cli_label_seconds(result->verify_seconds).text);
    }
    cli_print(out, "\n  memory    %s for %" PRIu32 " workers\n",
              cli_label_slot(result->memory_bytes).text, run->params->workers);
    cli_print(out, "  digest    %s%s\n", digest, run->params->verify ? ", verified" : "");
}

void ckpt_reshard_text(const ckpt_reshard_t *run, cli_output_t *out) {
    cli_print(out, "%s%s%s (%s, form %s) -> %s%s%s (%s, form %s)%s\n", cli_bold(out),
              ferry_folder_path(run->source), cli_plain(out), ckpt_folder_spec(run->source).text,
              ferry_folder_form(run->source), cli_bold(out), run->target, cli_plain(out),
              target_spec(run).text, target_form(run), run->dry ? ", a dry run" : "");
    if (run->dry) {
        print_forecast(run, out);
    } else {
        print_result(run, out);
    }
    print_uneven(&run->forecast.uneven, out);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static void put_ends(cli_json_t *json, const ckpt_reshard_t *run) {
    struct json_object *source = cli_json_object(json, json->root, "source");
    cli_json_text(json, source, "path", ferry_folder_path(run->source));
    cli_json_text(json, source, "layout", ckpt_folder_spec(run->source).text);
    cli_json_text(json, source, "form", ferry_folder_form(run->source));
    cli_json_u64(json, source, "files", ferry_folder_nfiles(run->source));
    struct json_object *target = cli_json_object(json, json->root, "target");
    cli_json_text(json, target, "path", run->target);
    cli_json_text(json, target, "layout", target_spec(run).text);
    cli_json_text(json, target, "form", target_form(run));
    cli_json_u64(json, target, "files", run->dry ? run->forecast.files : run->result.files);
}

static void put_uneven(cli_json_t *json, const ckpt_uneven_t *uneven) {
    struct json_object *node = cli_json_object(json, json->root, "uneven");
    cli_json_u64(json, node, "tensors", uneven->tensors);
    if (uneven->tensors > 0) {
        cli_json_text(json, node, "example", uneven->example);
        cli_json_u64(json, node, "dim", uneven->dim);
        cli_json_u64(json, node, "length", uneven->length);
        cli_json_u64(json, node, "least", uneven->least);
        cli_json_u64(json, node, "most", uneven->most);
    }
}

static void put_forecast(cli_json_t *json, const ckpt_reshard_t *run) {
    const ckpt_forecast_t *forecast = &run->forecast;
    cli_json_u64(json, json->root, "bytes_read", forecast->bytes_read);
    cli_json_u64(json, json->root, "bytes_written", forecast->bytes_written);
    cli_json_u64(json, json->root, "largest_file", forecast->largest_file);
    cli_json_u64(json, json->root, "memory_bytes", forecast->memory_bytes);
    cli_json_u64(json, json->root, "free_bytes", run->free_bytes);
    if (run->disk_rate > 0) {
        cli_json_seconds(json, json->root, "expected_seconds", expected_seconds(run));
    } else {
        cli_json_null(json, json->root, "expected_seconds");
    }
}

static void put_result(cli_json_t *json, const ckpt_reshard_t *run) {
    const ferry_convert_result_t *result = &run->result;
    char digest[FERRY_DIGEST_TEXT_MAX];
    ferry_digest_text(&result->digest, digest);
    cli_json_u64(json, json->root, "bytes_read", result->bytes_read);
    cli_json_u64(json, json->root, "bytes_written", result->bytes_written);
    cli_json_u64(json, json->root, "tensors", result->tensors);
    cli_json_u64(json, json->root, "memory_bytes", result->memory_bytes);
    cli_json_seconds(json, json->root, "seconds", result->total_seconds);
    cli_json_seconds(json, json->root, "gb_per_s",
                     ckpt_rate(result->bytes_written, result->total_seconds));
    struct json_object *phases = cli_json_object(json, json->root, "phases");
    cli_json_seconds(json, phases, "plan", result->read_seconds);
    cli_json_seconds(json, phases, "copy", result->copy_seconds);
    cli_json_seconds(json, phases, "sync", result->sync_seconds);
    cli_json_seconds(json, phases, "verify", result->verify_seconds);
    cli_json_text(json, json->root, "digest", digest);
    cli_json_bool(json, json->root, "verified", run->params->verify);
}

ferry_status_t ckpt_reshard_json(const ckpt_reshard_t *run, cli_output_t *out, ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    put_ends(&json, run);
    cli_json_bool(&json, json.root, "dry_run", run->dry);
    cli_json_u64(&json, json.root, "workers", run->params->workers);
    if (run->dry) {
        put_forecast(&json, run);
    } else {
        put_result(&json, run);
    }
    put_uneven(&json, &run->forecast.uneven);
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}
