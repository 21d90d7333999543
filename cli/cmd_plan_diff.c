/* cmd_plan_diff.c - `ferry plan diff A B`: what two plan files differ in. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "options.h"
#include "plan_compare.h"
#include "plan_file.h"
#include "units.h"

enum { LAYOUT_WIDTH = 28 };

/* ---- for people -------------------------------------------------------------------------------- */

static void print_name(cli_output_t *out, const char *name) {
    cli_print(out, "  %s%-10s%s", cli_bold(out), name, cli_plain(out));
}

static void print_part(cli_output_t *out, uint32_t rank) {
    if (rank == FERRY_RANK_NONE) {
        cli_print(out, "the whole plan");
    } else {
        cli_print(out, "the part of rank %" PRIu32, rank);
    }
}

static void print_inputs(const plan_compare_t *compare, cli_output_t *out) {
    if (compare->hashes_differ) {
        print_name(out, "inputs");
        cli_print(out, "hash %016" PRIx64 " and %016" PRIx64 "\n", ferry_plan_hash(compare->a),
                  ferry_plan_hash(compare->b));
    }
    if (compare->ranks_differ) {
        print_name(out, "ranks");
        print_part(out, ferry_plan_rank(compare->a));
        cli_print(out, " and ");
        print_part(out, ferry_plan_rank(compare->b));
        cli_print(out, "\n");
    }
    if (compare->flags_differ) {
        print_name(out, "options");
        uint32_t only = ferry_plan_flags(compare->a) ^ ferry_plan_flags(compare->b);
        cli_print(out, "%s%s%s\n", (only & FERRY_PLAN_STRICT) != 0 ? " --strict" : "",
                  (only & FERRY_PLAN_ALLOW_CAST) != 0 ? " --allow-cast" : "", " in one of them");
    }
    if (compare->hosts_differ > 0) {
        print_name(out, "hosts");
        cli_print(out, "%s ranks lie on another host\n",
                  cli_label_count(compare->hosts_differ).text);
    }
}

static void print_layouts(const ferry_layout_t *a, const ferry_layout_t *b, cli_output_t *out) {
    char before[LAYOUT_WIDTH + 1];
    char after[LAYOUT_WIDTH + 1];
    size_t long_before = ferry_layout_format(a, before, sizeof before);
    size_t long_after = ferry_layout_format(b, after, sizeof after);
    cli_print(out, " %s%s -> %s%s", before, long_before > LAYOUT_WIDTH ? "..." : "", after,
              long_after > LAYOUT_WIDTH ? "..." : "");
}

static void print_tensor_sample(const plan_compare_t *compare, const plan_tensor_pair_t *pair,
                                cli_output_t *out) {
    ferry_plan_tensor_t a = {0};
    ferry_plan_tensor_t b = {0};
    if (pair->a != UINT32_MAX) {
        ferry_plan_tensor(compare->a, pair->a, &a);
    }
    if (pair->b != UINT32_MAX) {
        ferry_plan_tensor(compare->b, pair->b, &b);
    }
    if (b.name == NULL) {
        cli_print(out, "    %s-%s %s\n", cli_paint(out, 31), cli_plain(out), a.name);
    } else if (a.name == NULL) {
        cli_print(out, "    %s+%s %s\n", cli_paint(out, 32), cli_plain(out), b.name);
    } else {
        const char *what = plan_tensor_difference(&a, &b);
        cli_print(out, "    %s~%s %s: %s", cli_paint(out, 33), cli_plain(out), a.name, what);
        if (strcmp(what, "source layout") == 0) {
            print_layouts(a.source_layout, b.source_layout, out);
        } else if (strcmp(what, "target layout") == 0) {
            print_layouts(a.target_layout, b.target_layout, out);
        }
        cli_print(out, "\n");
    }
}

static void print_tensors(const plan_compare_t *compare, cli_output_t *out) {
    print_name(out, "tensors");
    uint64_t changed = compare->tensors_changed;
    uint64_t only = compare->tensors_only_a + compare->tensors_only_b;
    cli_print(out, "%s same, %s changed, %s removed, %s added\n",
              cli_label_count(compare->ntensors - changed - only).text,
              cli_label_count(changed).text, cli_label_count(compare->tensors_only_a).text,
              cli_label_count(compare->tensors_only_b).text);
    for (size_t i = 0; i < compare->ntensor_samples; i++) {
        print_tensor_sample(compare, &compare->tensor_samples[i], out);
    }
    if (changed + only > compare->ntensor_samples) {
        cli_print(out, "    ... and %s more\n",
                  cli_label_count(changed + only - compare->ntensor_samples).text);
    }
}

static void print_box(const ferry_transfer_t *transfer, const uint64_t *lo, cli_output_t *out) {
    cli_print(out, "[");
    for (uint32_t i = 0; i < transfer->ndim; i++) {
        cli_print(out, "%s%" PRIu64 ":%" PRIu64, i > 0 ? ", " : "", lo[i],
                  lo[i] + transfer->extent[i]);
    }
    cli_print(out, "]");
}

static void print_transfer(const ferry_plan_t *plan, const ferry_transfer_t *transfer,
                           const char *mark, int color, cli_output_t *out) {
    ferry_plan_tensor_t tensor;
    ferry_plan_tensor(plan, transfer->tensor, &tensor);
    cli_print(out, "    %s%s%s rank %" PRIu32 " <- %" PRIu32 " %s.%" PRIu32 " ",
              cli_paint(out, color), mark, cli_plain(out), transfer->target, transfer->source,
              tensor.name, transfer->piece);
    print_box(transfer, transfer->target_lo, out);
    cli_print(out, " <- ");
    print_box(transfer, transfer->source_lo, out);
    cli_print(out, " %s\n", cli_label_bytes(transfer->bytes).text);
}

static void print_transfers(const plan_compare_t *compare, cli_output_t *out) {
    uint64_t differ = compare->changed + compare->removed + compare->added;
    print_name(out, "transfers");
    cli_print(out, "%s same, %s changed, %s removed, %s added\n",
              cli_label_count(compare->same).text, cli_label_count(compare->changed).text,
              cli_label_count(compare->removed).text, cli_label_count(compare->added).text);
    for (size_t i = 0; i < compare->nsamples; i++) {
        const plan_transfer_pair_t *sample = &compare->samples[i];
        if (sample->in_a) {
            print_transfer(compare->a, &sample->a, "-", 31, out);
        }
        if (sample->in_b) {
            print_transfer(compare->b, &sample->b, "+", 32, out);
        }
    }
    if (differ > compare->nsamples) {
        cli_print(out, "    ... and %s more\n", cli_label_count(differ - compare->nsamples).text);
    }
}

static void print_all(const plan_compare_t *compare, const cli_args_t *args, cli_output_t *out) {
    if (plan_compare_equal(compare)) {
        cli_print(out, "%s and %s are equal: %s tensors, %s transfers, hash %016" PRIx64 "\n",
                  args->words[0], args->words[1], cli_label_count(compare->ntensors).text,
                  cli_label_count(compare->same).text, ferry_plan_hash(compare->a));
        return;
    }
    cli_print(out, "%s- %s%s and %s+ %s%s differ\n\n", cli_paint(out, 31), args->words[0],
              cli_plain(out), cli_paint(out, 32), args->words[1], cli_plain(out));
    print_inputs(compare, out);
    print_tensors(compare, out);
    print_transfers(compare, out);
}

/* ---- for programs ------------------------------------------------------------------------------ */

static void put_plan(cli_json_t *json, const char *key, const char *file,
                     const ferry_plan_t *plan) {
    struct json_object *node = cli_json_object(json, json->root, key);
    cli_json_text(json, node, "file", file);
    cli_json_hash(json, node, "hash", ferry_plan_hash(plan));
    cli_json_u64(json, node, "tensors", ferry_plan_ntensors(plan));
    cli_json_u64(json, node, "transfers", ferry_plan_ntransfers(plan));
    if (ferry_plan_rank(plan) == FERRY_RANK_NONE) {
        cli_json_null(json, node, "rank");
    } else {
        cli_json_u64(json, node, "rank", ferry_plan_rank(plan));
    }
}

static void put_counts(cli_json_t *json, const char *key, uint64_t same, uint64_t changed,
                       uint64_t removed, uint64_t added) {
    struct json_object *node = cli_json_object(json, json->root, key);
    cli_json_u64(json, node, "same", same);
    cli_json_u64(json, node, "changed", changed);
    cli_json_u64(json, node, "removed", removed);
    cli_json_u64(json, node, "added", added);
}

static void put_tensor_names(cli_json_t *json, const plan_compare_t *compare) {
    struct json_object *names = cli_json_array(json, json->root, "first_tensors");
    for (size_t i = 0; i < compare->ntensor_samples; i++) {
        const plan_tensor_pair_t *pair = &compare->tensor_samples[i];
        ferry_plan_tensor_t tensor;
        if (pair->a != UINT32_MAX) {
            ferry_plan_tensor(compare->a, pair->a, &tensor);
        } else {
            ferry_plan_tensor(compare->b, pair->b, &tensor);
        }
        cli_json_push(json, names, json_object_new_string(tensor.name));
    }
}

static ferry_status_t print_json(const plan_compare_t *compare, const cli_args_t *args,
                                 cli_output_t *out, ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    cli_json_bool(&json, json.root, "equal", plan_compare_equal(compare));
    put_plan(&json, "a", args->words[0], compare->a);
    put_plan(&json, "b", args->words[1], compare->b);
    cli_json_bool(&json, json.root, "inputs_differ", compare->hashes_differ);
    cli_json_bool(&json, json.root, "options_differ", compare->flags_differ);
    cli_json_u64(&json, json.root, "hosts_differ", compare->hosts_differ);
    put_counts(&json, "tensors",
               compare->ntensors - compare->tensors_changed - compare->tensors_only_a -
                   compare->tensors_only_b,
               compare->tensors_changed, compare->tensors_only_a, compare->tensors_only_b);
    put_counts(&json, "transfers", compare->same, compare->changed, compare->removed,
               compare->added);
    put_tensor_names(&json, compare);
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------- */

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    ferry_plan_t *a = NULL;
    ferry_plan_t *b = NULL;
    plan_compare_t compare = {0};
    ferry_status_t status = plan_file_read(args->words[0], &a, err);
    if (status == FERRY_OK) {
        status = plan_file_read(args->words[1], &b, err);
    }
    if (status == FERRY_OK) {
        status = plan_compare_init(&compare, a, b, err);
    }
    if (status == FERRY_OK) {
        out->exit_code = plan_compare_equal(&compare) ? CLI_EXIT_DONE : CLI_EXIT_FAILED;
        if (cli_args_has(args, "json")) {
            status = print_json(&compare, args, out, err);
        } else {
            print_all(&compare, args, out);
        }
    }
    plan_compare_fini(&compare);
    ferry_plan_destroy(a);
    ferry_plan_destroy(b);
    return status;
}

static const char *const usage[] = {"plan diff A B [--json]", NULL};

static const char *const more[] = {
    "Compares two plan files: inputs, hosts, tensors by name, and transfers by tensor, target rank "
    "and piece. Says how many differ and shows the first few; - is A, + is B. The exit code is 0 "
    "when "
    "they are equal and 1 when they differ.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "json",
     .text = "print one JSON object",
     .more = "The fields are described in docs/formats/plan-json.md."},
};

static const cli_example_t examples[] = {
    {"see whether a host map changes who sends", "ferry plan diff a.plan b.plan"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_plan_diff = {
    .name = "plan diff",
    .text = "say what two plan files differ in",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .min_words = 2,
    .max_words = 2,
    .words = "A B",
    .complete = CLI_FILE,
    .run = run,
};
