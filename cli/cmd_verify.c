/* cmd_verify.c - `ferry verify`: do two folders hold the same tensors? */
#include "ckpt_options.h"
#include "ckpt_progress.h"
#include "commands.h"
#include "error.h"
#include "json.h"
#include "units.h"

enum { LINE_BYTES = 1024 };

static ferry_status_t report_json(const cli_args_t *args, const ferry_verify_result_t *result,
                                  const ferry_error_t *difference, cli_output_t *out,
                                  ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    cli_json_text(&json, json.root, "a", args->words[0]);
    cli_json_text(&json, json.root, "b", args->words[1]);
    cli_json_bool(&json, json.root, "equal", difference == NULL);
    if (difference != NULL) {
        char line[LINE_BYTES];
        (void)ferry_error_format(difference, line, sizeof line);
        cli_json_text(&json, json.root, "tensor", difference->tensor);
        cli_json_text(&json, json.root, "difference", line);
    } else {
        char digest[FERRY_DIGEST_TEXT_MAX];
        ferry_digest_text(&result->digest, digest);
        cli_json_u64(&json, json.root, "tensors", result->tensors);
        cli_json_u64(&json, json.root, "bytes", result->bytes);
        cli_json_seconds(&json, json.root, "seconds", result->seconds);
        cli_json_seconds(&json, json.root, "gb_per_s", ckpt_rate(result->bytes, result->seconds));
        cli_json_text(&json, json.root, "digest", digest);
    }
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}

static void report_text(const ferry_verify_result_t *result, const ferry_error_t *difference,
                        cli_output_t *out) {
    if (difference != NULL) {
        char line[LINE_BYTES];
        (void)ferry_error_format(difference, line, sizeof line);
        cli_print(out, "different: %s\n", line);
        return;
    }
    char digest[FERRY_DIGEST_TEXT_MAX];
    ferry_digest_text(&result->digest, digest);
    cli_print(out, "equal: %s tensors, digest %s, %s read in %s, %.2f GB/s\n",
              cli_label_count(result->tensors).text, digest, cli_label_bytes(result->bytes).text,
              cli_label_seconds(result->seconds).text, ckpt_rate(result->bytes, result->seconds));
}

static ferry_status_t compare(const cli_args_t *args, ferry_folder_t *a, ferry_folder_t *b,
                              uint32_t workers, cli_output_t *out, ferry_error_t *err) {
    ckpt_progress_t progress = ckpt_progress_make(args, out, "verify");
    ferry_verify_params_t params = FERRY_VERIFY_PARAMS_INIT;
    params.workers = workers;
    params.context = &progress;
    params.progress = ckpt_progress_tell;
    ferry_verify_result_t result = {0};
    ferry_status_t status = ferry_verify(a, b, &params, &result, err);
    ckpt_progress_end(&progress);
    if (status != FERRY_OK && status != FERRY_MISMATCH) {
        return status;
    }
    ferry_error_t difference = *err;
    const ferry_error_t *found = status == FERRY_MISMATCH ? &difference : NULL;
    ferry_error_clear(err);
    out->exit_code = found == NULL ? CLI_EXIT_DONE : CLI_EXIT_FAILED;
    if (cli_args_has(args, "json")) {
        return report_json(args, &result, found, out, err);
    }
    report_text(&result, found, out);
    return FERRY_OK;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    ferry_folder_t *folders[2] = {NULL, NULL};
    uint32_t workers = 0;
    ferry_status_t status = ckpt_read_workers(args, &workers, err);
    for (int i = 0; status == FERRY_OK && i < 2; i++) {
        status = ckpt_open(args->words[i], NULL, &folders[i], err);
    }
    if (status == FERRY_OK) {
        status = compare(args, folders[0], folders[1], workers, out, err);
    }
    ferry_folder_close(folders[0]);
    ferry_folder_close(folders[1]);
    return status;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const char *const usage[] = {
    "verify A B [--ranks N] [--json] [--quiet]",
    NULL,
};

static const char *const more[] = {
    "Proves that two checkpoint folders hold the same tensors, however they are cut, fused and "
    "named in their files: each byte of both is read once and goes into a digest that adds up from "
    "shards (docs/formats/digest.md says what it notices). Copies of a shard on several ranks must "
    "agree, too.",
    "Equal folders give exit code 0 and one line with the digest. Different ones give exit code 1 "
    "and one line that names the first tensor that is missing, has another dtype or shape, or "
    "differs, and then its first differing element, counted row by row.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "ranks", .argument = "N", .text = "worker processes", .fallback = "one per core"},
    {.name = "json", .text = "print one JSON object"},
    CKPT_OPTION_QUIET,
};

static const cli_example_t examples[] = {
    {"a checkpoint and what became of it", "ferry verify llama llama-tp4pp2"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_verify = {
    .name = "verify",
    .text = "prove that two checkpoints hold the same tensors",
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
