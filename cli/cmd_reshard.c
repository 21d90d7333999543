/* cmd_reshard.c - `ferry reshard`: a checkpoint in one layout becomes one in another.
 *
 * Invariant: everything that was asked for is checked before a file is made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt_forecast.h"
#include "ckpt_new.h"
#include "ckpt_options.h"
#include "ckpt_progress.h"
#include "ckpt_reshard.h"
#include "ckpt_text.h"
#include "commands.h"
#include "error.h"
#include "units.h"

typedef struct asked {
    ferry_folder_params_t open;
    ferry_parallel_t from; /* what open.parallel points to */
    bool from_whole;       /* --from hf */
    uint8_t *rules_text;   /* with a zero at its end; of a file, or NULL */
    ferry_convert_params_t convert;
} asked_t;

/* ---- the command line ----------------------------------------------------------------------------- */

/* A SPEC, or "hf": *whole_p. */
static ferry_status_t read_spec(const char *option, const char *text, ferry_parallel_t *parallel_p,
                                bool *whole_p, ferry_error_t *err) {
    *whole_p = strcmp(text, "hf") == 0;
    ferry_status_t status = *whole_p ? FERRY_OK : ferry_parallel_parse(text, parallel_p, err);
    if (status != FERRY_OK) {
        cli_error_place(err, option);
    }
    return status;
}

static ferry_status_t read_target(const cli_args_t *args, ferry_convert_params_t *convert,
                                  ferry_error_t *err) {
    const char *to = cli_args_value(args, "to");
    if (to == NULL) {
        return cli_fail(err, FERRY_INVALID, "--to is needed: --to tp=4,pp=2 or --to hf");
    }
    bool whole = false;
    ferry_status_t status = read_spec("--to", to, &convert->parallel, &whole, err);
    if (status != FERRY_OK) {
        return status;
    }
    convert->kind = whole ? FERRY_FOLDER_HF : FERRY_FOLDER_RANKS;
    convert->form = cli_args_value(args, "to-form");
    if (whole && convert->form != NULL && strcmp(convert->form, "hf") != 0) {
        return cli_fail(err, FERRY_INVALID,
                        "--to-form %s: whole tensors have the form hf; a spec such as --to tp=1 "
                        "makes rank files",
                        convert->form);
    }
    return FERRY_OK;
}

static ferry_status_t read_source(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    const char *from = cli_args_value(args, "from");
    const char *unmatched = cli_args_value(args, "unmatched");
    asked->open.form = cli_args_value(args, "from-form");
    if (unmatched != NULL && strcmp(unmatched, "replicate") != 0) {
        return cli_fail(err, FERRY_INVALID, "--unmatched %s: only replicate is known", unmatched);
    }
    asked->open.flags = unmatched != NULL ? FERRY_RULES_REPLICATE : 0;
    if (from == NULL) {
        return FERRY_OK;
    }
    ferry_status_t status = read_spec("--from", from, &asked->from, &asked->from_whole, err);
    asked->open.parallel = status == FERRY_OK && !asked->from_whole ? &asked->from : NULL;
    return status;
}

/* Of a file, the text; it is tried here, so that a mistake in it is not taken for one of the folder. */
static ferry_status_t read_rules_file(const char *path, asked_t *asked, ferry_error_t *err) {
    uint8_t *bytes = NULL;
    size_t length = 0;
    ferry_status_t status = cli_file_read(path, &bytes, &length, err);
    if (status != FERRY_OK) {
        return status;
    }
    asked->rules_text = realloc(bytes, length + 1);
    if (asked->rules_text == NULL) {
        free(bytes);
        return cli_fail_nomem(err);
    }
    asked->rules_text[length] = '\0';
    const char *slash = strrchr(path, '/');
    asked->open.rules = slash != NULL ? slash + 1 : path;
    asked->open.rules_text = (const char *)asked->rules_text;
    ferry_rules_t *rules = NULL;
    status = ferry_rules_parse(asked->open.rules_text, path, &rules, err);
    ferry_rules_destroy(rules);
    return status;
}

static ferry_status_t read_rules(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    const char *rules = cli_args_value(args, "rules");
    if (rules == NULL) {
        return FERRY_OK;
    }
    for (size_t i = 0; i < ferry_rules_count(); i++) {
        if (strcmp(ferry_rules_builtin_name(i), rules) == 0) {
            asked->open.rules = rules;
            return FERRY_OK;
        }
    }
    struct stat info;
    if (stat(rules, &info) == 0) {
        return read_rules_file(rules, asked, err);
    }
    ferry_rules_t *none = NULL;
    ferry_status_t status = ferry_rules_builtin(rules, &none, err); /* says which there are */
    ferry_rules_destroy(none);
    cli_error_place(err, "--rules: no such file, and");
    return status;
}

static ferry_status_t read_memory(const cli_args_t *args, uint64_t *bytes_p, ferry_error_t *err) {
    const char *text = cli_args_value(args, "mem");
    if (text == NULL) {
        return FERRY_OK;
    }
    ferry_status_t status = cli_parse_bytes("--mem", text, bytes_p, err);
    if (status == FERRY_OK && *bytes_p == 0) {
        status = cli_fail(err, FERRY_INVALID, "--mem 0: workers need buffers");
    }
    return status;
}

static ferry_status_t read_asked(const cli_args_t *args, asked_t *asked, ferry_error_t *err) {
    ferry_convert_params_t *convert = &asked->convert;
    ferry_status_t status = read_target(args, convert, err);
    status = status == FERRY_OK ? read_source(args, asked, err) : status;
    status = status == FERRY_OK ? ckpt_read_dtype(args, &convert->dtype, err) : status;
    status = status == FERRY_OK ? ckpt_read_workers(args, &convert->workers, err) : status;
    status = status == FERRY_OK ? ckpt_read_file_bytes(args, &convert->file_bytes, err) : status;
    status = status == FERRY_OK ? read_memory(args, &convert->memory_bytes, err) : status;
    status = status == FERRY_OK ? read_rules(args, asked, err) : status;
    convert->force = cli_args_has(args, "force");
    convert->verify = cli_args_has(args, "verify");
    return status;
}

/* ---- what is there -------------------------------------------------------------------------------- */

static ferry_status_t check_apart(const char *source, const char *target, ferry_error_t *err) {
    struct stat a;
    struct stat b;
    bool same = stat(source, &a) == 0 && stat(target, &b) == 0 && a.st_dev == b.st_dev &&
                a.st_ino == b.st_ino;
    return same ? cli_fail(err, FERRY_INVALID, "%s: source and target are one folder", target)
                : FERRY_OK;
}

/* --from says what the user believes; the folder may know better. */
static ferry_status_t check_from(const asked_t *asked, const ferry_folder_t *source,
                                 ferry_error_t *err) {
    bool whole = ferry_folder_kind(source) == FERRY_FOLDER_HF;
    const ferry_parallel_t *told = asked->open.parallel;
    ckpt_spec_t is = ckpt_folder_spec(source);
    if ((asked->from_whole && !whole) ||
        (told != NULL && strcmp(ckpt_spec_text(told).text, is.text) != 0)) {
        return cli_fail(err, FERRY_INVALID, "--from %s: %s is %s",
                        told != NULL ? ckpt_spec_text(told).text : "hf", ferry_folder_path(source),
                        is.text);
    }
    return FERRY_OK;
}

/* Found before anything is made, and by a dry run too. Rules that only ferry.json has are left to the library. */
static ferry_status_t check_form(const asked_t *asked, const ferry_folder_t *source,
                                 ferry_error_t *err) {
    const char *form = asked->convert.form;
    ferry_rules_t *rules = NULL;
    ferry_status_t status =
        form == NULL ? FERRY_INVALID
        : asked->rules_text != NULL
            ? ferry_rules_parse(asked->open.rules_text, asked->open.rules, &rules, NULL)
            : ferry_rules_builtin(ferry_folder_rules(source), &rules, NULL);
    if (status != FERRY_OK) {
        return FERRY_OK;
    }
    char known[256] = "";
    bool found = false;
    for (size_t i = 0; i < ferry_rules_nforms(rules); i++) {
        const char *name = ferry_rules_form(rules, i);
        size_t length = strlen(known);
        (void)snprintf(known + length, sizeof known - length, "%s%s", i > 0 ? ", " : "", name);
        found = found || strcmp(name, form) == 0;
    }
    status = found ? FERRY_OK
                   : cli_fail(err, FERRY_INVALID, "--to-form %s: rules %s have the forms %s", form,
                              ferry_rules_name(rules), known);
    ferry_rules_destroy(rules);
    return status;
}

/* ---- converting ----------------------------------------------------------------------------------- */

static ferry_status_t convert(const cli_args_t *args, ferry_folder_t *source, asked_t *asked,
                              ckpt_reshard_t *run, cli_output_t *out, ferry_error_t *err) {
    ckpt_progress_t progress = ckpt_progress_make(args, out, "reshard");
    asked->convert.context = &progress;
    asked->convert.progress = ckpt_progress_tell;
    ferry_status_t status =
        ferry_convert(source, args->words[1], &asked->convert, &run->result, err);
    ckpt_progress_end(&progress);
    if (status == FERRY_MISMATCH && asked->convert.verify) {
        err->status = FERRY_CORRUPT; /* what was written is not what was meant: no user's mistake */
        status = FERRY_CORRUPT;
    }
    return status;
}

static ferry_status_t work(const cli_args_t *args, asked_t *asked, ferry_folder_t *source,
                           cli_output_t *out, ferry_error_t *err) {
    ckpt_reshard_t run = {.source = source,
                          .target = args->words[1],
                          .params = &asked->convert,
                          .dry = cli_args_has(args, "dry-run")};
    ferry_status_t status = check_from(asked, source, err);
    if (status == FERRY_OK) {
        status = ckpt_forecast(source, &asked->convert, &run.forecast, err);
    }
    if (status == FERRY_OK) {
        status = check_form(asked, source, err);
    }
    if (status == FERRY_OK && run.dry) {
        status = ckpt_measure_disk(source, run.target, &run.disk_rate, &run.free_bytes, err);
    } else if (status == FERRY_OK) {
        status = convert(args, source, asked, &run, out, err);
    }
    if (status != FERRY_OK) {
        return status;
    }
    if (cli_args_has(args, "json")) {
        return ckpt_reshard_json(&run, out, err);
    }
    ckpt_reshard_text(&run, out);
    return FERRY_OK;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    asked_t asked = {.open = FERRY_FOLDER_PARAMS_INIT,
                     .from = FERRY_PARALLEL_INIT,
                     .convert = FERRY_CONVERT_PARAMS_INIT};
    ferry_folder_t *source = NULL;
    ferry_status_t status = read_asked(args, &asked, err);
    if (status == FERRY_OK) {
        status = check_apart(args->words[0], args->words[1], err);
    }
    if (status == FERRY_OK) {
        status = ckpt_open(args->words[0], &asked.open, &source, err);
    }
    if (status == FERRY_OK) {
        status = ckpt_new_check(args->words[1], asked.convert.force, err);
    }
    if (status == FERRY_OK) {
        status = work(args, &asked, source, out, err);
    }
    ferry_folder_close(source);
    free(asked.rules_text);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------------ */

static const char *const usage[] = {
    "reshard SRC DST --to SPEC|hf [OPTIONS]",
    NULL,
};

static const char *const more[] = {
    "Reads the checkpoint folder SRC and writes it as the folder DST in another layout, in bounded "
    "memory. SRC is a Hugging Face folder (model.safetensors, or several with their index), a "
    "folder of rank files that ferry wrote, or, with --from, one of shards by others; "
    "docs/formats/folder.md describes them. Other files of the folder (config, tokenizer) are "
    "copied "
    "along.",
    "--to hf writes whole tensors. A SPEC such as tp=4,pp=2 writes a file per rank; its axes are "
    "tp, cp, pp, dp, ep and etp, as in ferry plan. Cuts need not divide: where they do not, the "
    "summary says so.",
    "How tensors are cut is told by rules. They are found by the model_type of config.json, or "
    "given by --rules; docs/formats/rules.md has their grammar.",
    "DST must not be there, or be empty, unless --force. It is written beside its place and gets "
    "its name when all of it is on the disk: whatever happens, SRC stays as it was, and DST is "
    "absent, whole, or what it was.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "to", .argument = "SPEC", .text = "layout of DST: tp=4,pp=2, or hf for whole tensors"},
    {.name = "to-form",
     .argument = "FORM",
     .text = "names and fusing in rank files: hf, vllm or megatron",
     .fallback = "hf"},
    {.name = "from",
     .argument = "SPEC",
     .text = "layout of SRC, where it does not say so itself",
     .more =
         "Needed for shards that others wrote: one file a rank, in the order of file names, with "
         "Hugging Face's tensor names. Of a folder that says what it is, this makes sure that "
         "it is what you think."},
    {.name = "from-form", .argument = "FORM", .text = "form that SRC must have"},
    {.name = "dtype",
     .argument = "D",
     .text = "what floats of other types become",
     .more = "f64, f32, f16, bf16, f8e4m3 or f8e5m2; whole numbers stay as they are.",
     .complete = CLI_DTYPE},
    {.name = "rules",
     .argument = "NAME",
     .text = "built-in rules, or a file of rules",
     .fallback = "by model_type of config.json",
     .complete = CLI_FILE},
    {.name = "unmatched",
     .argument = "WHAT",
     .text = "replicate: accept tensors that no rule covers",
     .more = "They are whole on every rank of the first stage. Without it they are an error that "
             "lists them."},
    {.name = "ranks", .argument = "N", .text = "worker processes", .fallback = "one per core"},
    {.name = "mem",
     .argument = "BYTES",
     .text = "of all buffers together",
     .more = "K, M, G and T are powers of 1024; KB, MB, GB and TB powers of 1000.",
     .fallback = "1M a worker, which is also the most"},
    CKPT_OPTION_MAX_FILE,
    {.name = "verify", .text = "read DST again and compare it with what was meant"},
    CKPT_OPTION_FORCE,
    {.name = "dry-run",
     .text = "say bytes, files, memory and expected time, and write nothing",
     .more = "The time is that of 32 MiB, copied to a file without a name on the disk of DST, "
             "scaled up."},
    {.name = "json",
     .text = "print one JSON object",
     .more = "The fields are described in docs/formats/folder.md."},
    CKPT_OPTION_QUIET,
};

static const cli_example_t examples[] = {
    {"a Hugging Face checkpoint for eight ranks",
     "ferry reshard llama llama-tp4pp2 --to tp=4,pp=2"},
    {"and back to whole tensors", "ferry reshard llama-tp4pp2 llama-hf --to hf --verify"},
    {"fused for inference, in bf16",
     "ferry reshard llama llama-vllm --to tp=2 --to-form vllm --dtype bf16"},
    {"what would it take?", "ferry reshard llama llama-tp3 --to tp=3 --dry-run"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_reshard = {
    .name = "reshard",
    .text = "write a checkpoint in another layout",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .min_words = 2,
    .max_words = 2,
    .words = "SRC DST",
    .complete = CLI_FILE,
    .run = run,
};
