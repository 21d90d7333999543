/* cmd_synth.c - `ferry synth`: a small checkpoint of a real family, for demos and tests.
 *
 * Invariant: everything that was asked for is checked before the first file is made. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_config.h"
#include "ckpt_options.h"
#include "ckpt_progress.h"
#include "ckpt_scale.h"
#include "ckpt_synth.h"
#include "commands.h"
#include "error.h"
#include "json.h"
#include "units.h"

typedef struct asked {
    const char *model;
    const char *scale_text;
    double scale;
    ferry_dtype_t dtype;
    uint64_t seed;
    uint64_t file_bytes;
} asked_t;

typedef struct made {
    ferry_model_numbers_t numbers;
    uint64_t parameters;
    size_t tensors;
    ckpt_synth_result_t written;
    double seconds;
} made_t;

static ferry_status_t check_model(const char *name, ferry_error_t *err) {
    if (name == NULL) {
        return cli_fail(err, FERRY_INVALID,
                        "--model NAME is needed (ferry plan --list-models prints them)");
    }
    cli_nearest_t nearest = {.word = name};
    for (size_t i = 0; i < ferry_model_count(); i++) {
        ferry_model_info_t info;
        ferry_status_t status = ferry_model_info(i, &info, err);
        if (status != FERRY_OK || strcmp(info.name, name) == 0) {
            return status;
        }
        cli_nearest_offer(&nearest, info.name);
    }
    return nearest.best != NULL
               ? cli_fail(err, FERRY_INVALID, "--model %s: unknown (did you mean %s?)", name,
                          nearest.best)
               : cli_fail(err, FERRY_INVALID,
                          "--model %s: unknown (ferry plan --list-models prints them)", name);
}

static ferry_status_t read_asked(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    const char *scale = cli_args_value(args, "scale");
    const char *seed = cli_args_value(args, "seed");
    *asked = (asked_t){.model = cli_args_value(args, "model"),
                       .scale_text = scale != NULL ? scale : "1/16",
                       .seed = 1};
    ferry_status_t status = check_model(asked->model, err);
    if (status == FERRY_OK) {
        status = ckpt_parse_part("--scale", asked->scale_text, &asked->scale, err);
    }
    if (status == FERRY_OK) {
        status = ckpt_read_dtype(args, &asked->dtype, err);
        asked->dtype = asked->dtype != FERRY_DTYPE_NONE ? asked->dtype : FERRY_BF16;
    }
    if (status == FERRY_OK && seed != NULL) {
        status = cli_parse_u64("--seed", seed, UINT64_MAX, &asked->seed, err);
    }
    return status == FERRY_OK ? ckpt_read_file_bytes(args, &asked->file_bytes, err) : status;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static ferry_status_t write_folder(const ckpt_synth_t *synth, const char *config, const char *path,
                                   bool force, ckpt_synth_result_t *result, ferry_error_t *err) {
    ckpt_new_t folder;
    ferry_status_t status = ckpt_new_init(&folder, path, force, err);
    if (status == FERRY_OK) {
        status = ckpt_synth_write(synth, &folder, result, err);
    }
    if (status == FERRY_OK) {
        status = ckpt_new_text(&folder, "config.json", config, err);
    }
    if (status == FERRY_OK) {
        status = ckpt_new_commit(&folder, err);
    }
    ckpt_new_fini(&folder);
    return status;
}

static ferry_status_t synthesise(const cli_args_t *args, const asked_t *asked, cli_output_t *out,
                                 made_t *made, ferry_error_t *err) {
    ferry_tensor_set_t *set = NULL;
    char *config = NULL;
    ferry_status_t status =
        ckpt_scale(asked->model, asked->scale, &made->numbers, &made->parameters, err);
    if (status == FERRY_OK) {
        status = ferry_model_tensors_with(asked->model, &made->numbers, asked->dtype, &set, err);
    }
    if (status == FERRY_OK) {
        status = ckpt_config_text(&made->numbers, asked->dtype, &config, err);
    }
    if (status == FERRY_OK) {
        ckpt_progress_t progress = ckpt_progress_make(args, out, "synth");
        double begin = progress.begin_s;
        ckpt_synth_t synth = {.tensors = ferry_tensor_set_tensors(set, &made->tensors),
                              .seed = asked->seed,
                              .file_bytes = asked->file_bytes,
                              .context = &progress,
                              .progress = ckpt_progress_tell};
        synth.count = made->tensors;
        synth.threads = ckpt_cores();
        status = write_folder(&synth, config, args->words[0], cli_args_has(args, "force"),
                              &made->written, err);
        ckpt_progress_end(&progress);
        made->seconds = cli_clock() - begin;
    }
    free(config);
    ferry_tensor_set_destroy(set);
    return status;
}

/* ---- what is said ------------------------------------------------------------------------------- */

static ferry_status_t report_json(const char *path, const asked_t *asked, const made_t *made,
                                  cli_output_t *out, ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    cli_json_text(&json, json.root, "path", path);
    cli_json_text(&json, json.root, "model", asked->model);
    cli_json_text(&json, json.root, "model_type", made->numbers.model_type);
    cli_json_text(&json, json.root, "dtype", ferry_dtype_name(asked->dtype));
    cli_json_u64(&json, json.root, "seed", asked->seed);
    cli_json_u64(&json, json.root, "params", made->parameters);
    cli_json_u64(&json, json.root, "tensors", made->tensors);
    cli_json_u64(&json, json.root, "layers", made->numbers.layers);
    cli_json_u64(&json, json.root, "experts", made->numbers.experts);
    cli_json_u64(&json, json.root, "hidden", made->numbers.hidden);
    cli_json_u64(&json, json.root, "bytes", made->written.bytes);
    cli_json_u64(&json, json.root, "files", made->written.files);
    cli_json_seconds(&json, json.root, "seconds", made->seconds);
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}

static void report_text(const char *path, const asked_t *asked, const made_t *made,
                        cli_output_t *out) {
    const ferry_model_numbers_t *numbers = &made->numbers;
    cli_print(out, "%s%s%s: %s, %s parameters in %s tensors, %s\n", cli_bold(out), path,
              cli_plain(out), asked->model, cli_label_count(made->parameters).text,
              cli_label_count(made->tensors).text, cli_label_bytes(made->written.bytes).text);
    cli_print(out, "  %" PRIu32 " layers", numbers->layers);
    if (numbers->experts > 0) {
        cli_print(out, ", %" PRIu32 " experts", numbers->experts);
    }
    cli_print(out, ", hidden %" PRIu32 ", %" PRIu32 " heads", numbers->hidden, numbers->heads);
    if (numbers->kv_heads > 0) {
        cli_print(out, ", %" PRIu32 " K/V heads", numbers->kv_heads);
    }
    cli_print(out, ", vocabulary %s, %s\n", cli_label_count(numbers->vocab).text,
              ferry_dtype_name(asked->dtype));
    cli_print(out, "  %s %s in %s, %.2f GB/s, seed %" PRIu64 "\n",
              cli_label_count(made->written.files).text,
              made->written.files == 1 ? "file" : "files", cli_label_seconds(made->seconds).text,
              ckpt_rate(made->written.bytes, made->seconds), asked->seed);
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    asked_t asked;
    made_t made = {0};
    ferry_status_t status = read_asked(args, &asked, err);
    if (status == FERRY_OK) {
        status = synthesise(args, &asked, out, &made, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    if (cli_args_has(args, "json")) {
        return report_json(args->words[0], &asked, &made, out, err);
    }
    report_text(args->words[0], &asked, &made, out);
    return FERRY_OK;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const char *const usage[] = {
    "synth DST --model NAME [--scale PART] [OPTIONS]",
    NULL,
};

static const char *const more[] = {
    "Writes a checkpoint in Hugging Face form (safetensors and a config.json) of a smaller model "
    "of "
    "a real family: its names, its dtypes, its kinds of shapes. The same model, scale, dtype and "
    "seed give the same bytes everywhere.",
    "Smaller means: fewer layers (down to 4), then fewer experts (down to 8), then narrower, in "
    "steps that keep heads, K/V heads and shared experts dividing, until no more than PART of the "
    "model's parameters is left, or the smallest that there is.",
    "Values look like weights: around 0 with a deviation of 0.02, norms around 1. DST must not be "
    "there, or be empty, unless --force; it appears when all of it is written.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "model",
     .argument = "NAME",
     .text = "a built-in model",
     .more = "ferry plan --list-models prints them.",
     .complete = CLI_MODEL},
    {.name = "scale",
     .argument = "PART",
     .text = "how much of its parameters: 1/16 or 0.01",
     .fallback = "1/16"},
    {.name = "dtype",
     .argument = "D",
     .text = "element type of the weights",
     .more = "f64, f32, f16, bf16, f8e4m3 or f8e5m2.",
     .fallback = "bf16",
     .complete = CLI_DTYPE},
    {.name = "seed", .argument = "N", .text = "of the values", .fallback = "1"},
    CKPT_OPTION_MAX_FILE,
    CKPT_OPTION_FORCE,
    {.name = "json", .text = "print one JSON object"},
    CKPT_OPTION_QUIET,
};

static const cli_example_t examples[] = {
    {"about 300 MB of llama", "ferry synth /tmp/llama --model llama3-8b --scale 1/53"},
    {"a tiny model with experts", "ferry synth /tmp/moe --model qwen3-30b-a3b --scale 1/30000"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_synth = {
    .name = "synth",
    .text = "write a small checkpoint of a real family, with made-up weights",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .min_words = 1,
    .max_words = 1,
    .words = "DST",
    .complete = CLI_FILE,
    .run = run,
};
