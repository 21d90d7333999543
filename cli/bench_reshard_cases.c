/* bench_reshard_cases.c - the standard cases of `ferry bench reshard`, and cases of one's own.
 *
 * Invariant: a standard case is what its targets (bench_figures.c) were made for. */
#include <stdlib.h>
#include <string.h>

#include "bench_reshard.h"
#include "error.h"
#include "units.h"

/* In tensor parallel steps of two, so that every target gets a part of two sources. With experts, all are
 * taken that fit. */
static const reshard_case_t standard[] = {
    {.name = "llama3-8b-tp",
     .model = "llama3-8b",
     .from = "tp=4",
     .to = "tp=2",
     .dtype = FERRY_BF16,
     .to_dtype = FERRY_BF16,
     .scale = {.layers = 4}},
    {.name = "llama3-8b-cast",
     .model = "llama3-8b",
     .from = "tp=4",
     .to = "tp=2",
     .dtype = FERRY_F32,
     .to_dtype = FERRY_BF16,
     .scale = {.layers = 4}},
    {.name = "qwen3-ep",
     .model = "qwen3-235b-a22b",
     .from = "tp=8,ep=8",
     .to = "tp=8,ep=4,etp=2",
     .dtype = FERRY_BF16,
     .to_dtype = FERRY_BF16,
     .scale = {.layers = 2}},
    {.name = "llama3-8b-mxfp8",
     .model = "llama3-8b",
     .from = "tp=4",
     .to = "tp=2",
     .dtype = FERRY_BF16,
     .to_dtype = FERRY_BF16,
     .scale = {.layers = 4},
     .mx = RESHARD_MX_RECEIVER,
     .mx_layout = FERRY_MX_ROWS},
    {.name = "tiny-700", .dtype = FERRY_F32, .to_dtype = FERRY_F32},
};

const reshard_case_t *reshard_standard(size_t index) {
    return index < sizeof standard / sizeof standard[0] ? &standard[index] : NULL;
}

static ferry_status_t fail_unknown(const char *name, ferry_error_t *err) {
    cli_nearest_t nearest = {.word = name};
    for (size_t i = 0; reshard_standard(i) != NULL; i++) {
        cli_nearest_offer(&nearest, reshard_standard(i)->name);
    }
    if (nearest.best != NULL) {
        return cli_fail(err, FERRY_INVALID, "unknown case '%s' (did you mean %s?)", name,
                        nearest.best);
    }
    return cli_fail(err, FERRY_INVALID, "unknown case '%s' (see ferry help bench reshard)", name);
}

static ferry_status_t find_standard(const char *name, reshard_case_t *case_p, ferry_error_t *err) {
    for (size_t i = 0; reshard_standard(i) != NULL; i++) {
        if (strcmp(reshard_standard(i)->name, name) == 0) {
            *case_p = *reshard_standard(i);
            return FERRY_OK;
        }
    }
    return fail_unknown(name, err);
}

/* ---- --scale ----------------------------------------------------------------------------------- */

static ferry_status_t fail_scale(const char *text, ferry_error_t *err) {
    return cli_fail(err, FERRY_INVALID,
                    "--scale %s: layers=N, experts=N, both with a comma, or a number above 0 and "
                    "up to 1",
                    text);
}

/* "layers=4": its length, or 0 when it is none. */
static size_t read_count(const char *text, const char *key, uint32_t *count_p) {
    size_t length = strlen(key);
    if (strncmp(text, key, length) != 0 || text[length] < '0' || text[length] > '9') {
        return 0;
    }
    char *end = NULL;
    unsigned long count = strtoul(text + length, &end, 10);
    if (count == 0 || count > UINT32_MAX || *count_p != 0) {
        return 0;
    }
    *count_p = (uint32_t)count;
    return (size_t)(end - text);
}

static ferry_status_t read_scale(const char *text, reshard_scale_t *scale_p, ferry_error_t *err) {
    reshard_scale_t scale = {0};
    if (text[0] >= '0' && text[0] <= '9') {
        char *end = NULL;
        scale.part = strtod(text, &end);
        if (*end != '\0' || !(scale.part > 0 && scale.part <= 1)) {
            return fail_scale(text, err);
        }
        *scale_p = scale;
        return FERRY_OK;
    }
    for (const char *at = text;;) {
        size_t length = read_count(at, "layers=", &scale.layers);
        length = length > 0 ? length : read_count(at, "experts=", &scale.experts);
        at += length;
        if (length == 0 || (*at != ',' && *at != '\0')) {
            return fail_scale(text, err);
        }
        if (*at == '\0') {
            *scale_p = scale;
            return FERRY_OK;
        }
        at++;
    }
}

/* ---- a case of one's own ----------------------------------------------------------------------- */

static bool is_float(ferry_dtype_t dtype) {
    return dtype >= FERRY_F64 && dtype <= FERRY_F8E5M2;
}

static ferry_status_t read_dtypes(const cli_args_t *args, reshard_case_t *asked,
                                  ferry_error_t *err) {
    ferry_status_t status = plan_read_dtype(args, "dtype", FERRY_BF16, &asked->dtype, err);
    if (status == FERRY_OK) {
        status = plan_read_dtype(args, "to-dtype", asked->dtype, &asked->to_dtype, err);
    }
    if (status == FERRY_OK && !(is_float(asked->dtype) && is_float(asked->to_dtype))) {
        const char *wrong =
            ferry_dtype_name(is_float(asked->dtype) ? asked->to_dtype : asked->dtype);
        return cli_fail(err, FERRY_INVALID, "%s: weights are f64 f32 f16 bf16 f8e4m3 or f8e5m2",
                        wrong);
    }
    return status;
}

static ferry_status_t read_mx(const cli_args_t *args, reshard_case_t *asked, ferry_error_t *err) {
    const char *where = cli_args_value(args, "mxfp8");
    const char *scales = cli_args_value(args, "scales");
    if (where == NULL) {
        return scales == NULL ? FERRY_OK
                              : cli_fail(err, FERRY_INVALID, "--scales goes with --mxfp8");
    }
    if (strcmp(where, "receiver") == 0) {
        asked->mx = RESHARD_MX_RECEIVER;
    } else if (strcmp(where, "sender") == 0) {
        asked->mx = RESHARD_MX_SENDER;
    } else {
        return cli_fail(err, FERRY_INVALID, "--mxfp8 %s: receiver or sender", where);
    }
    if (scales != NULL && strcmp(scales, "swizzled") == 0) {
        asked->mx_layout = FERRY_MX_SWIZZLED;
    } else if (scales != NULL && strcmp(scales, "rows") != 0) {
        return cli_fail(err, FERRY_INVALID, "--scales %s: rows or swizzled", scales);
    }
    if (asked->dtype != FERRY_F32 && asked->dtype != FERRY_F16 && asked->dtype != FERRY_BF16) {
        return cli_fail(err, FERRY_INVALID, "--mxfp8: %s is not quantised; f32, f16 and bf16 are",
                        ferry_dtype_name(asked->dtype));
    }
    return FERRY_OK;
}

static ferry_status_t read_model(const cli_args_t *args, reshard_case_t *asked,
                                 ferry_error_t *err) {
    *asked = (reshard_case_t){
        .name = cli_args_value(args, "model"),
        .model = cli_args_value(args, "model"),
        .from = cli_args_value(args, "from"),
        .to = cli_args_value(args, "to"),
        .only = cli_args_value(args, "only"),
        .disjoint = cli_args_has(args, "disjoint"),
    };
    if (args->nwords > 0) {
        return cli_fail(err, FERRY_INVALID, "%s and --model exclude each other", args->words[0]);
    }
    if (asked->from == NULL || asked->to == NULL) {
        return cli_fail(err, FERRY_INVALID, "--%s is missing: a parallel spec such as tp=4",
                        asked->from != NULL ? "to" : "from");
    }
    ferry_status_t status = read_dtypes(args, asked, err);
    return status == FERRY_OK ? read_mx(args, asked, err) : status;
}

/* ---- all --------------------------------------------------------------------------------------- */

/* What may be asked of any case. */
static ferry_status_t read_ways(const cli_args_t *args, reshard_case_t *ways, ferry_error_t *err) {
    const char *budget = cli_args_value(args, "budget");
    const char *commit = cli_args_value(args, "commit");
    const char *scale = cli_args_value(args, "scale");
    ferry_status_t status = FERRY_OK;
    ways->check = cli_args_has(args, "check");
    if (budget != NULL) {
        status = cli_parse_bytes("--budget", budget, &ways->budget_bytes, err);
        if (status == FERRY_OK && ways->budget_bytes == 0) {
            return cli_fail(err, FERRY_INVALID, "--budget %s: at least one byte is needed", budget);
        }
    }
    if (status == FERRY_OK && commit != NULL) {
        bool flip = strcmp(commit, "flip") == 0;
        if (!flip && strcmp(commit, "gate") != 0) {
            return cli_fail(err, FERRY_INVALID, "--commit %s: flip or gate", commit);
        }
        ways->commit = flip ? FERRY_COMMIT_FLIP : FERRY_COMMIT_GATE;
    }
    return status == FERRY_OK && scale != NULL ? read_scale(scale, &ways->scale, err) : status;
}

/* layers=N leaves the experts of a standard case as they are, and the other way round. */
static void apply(const reshard_case_t *ways, reshard_case_t *asked) {
    asked->budget_bytes = ways->budget_bytes;
    asked->check = ways->check;
    asked->commit = ways->commit;
    if (ways->scale.part > 0) {
        asked->scale = ways->scale;
    }
    if (ways->scale.layers > 0) {
        asked->scale.layers = ways->scale.layers;
    }
    if (ways->scale.experts > 0) {
        asked->scale.experts = ways->scale.experts;
    }
}

static ferry_status_t read_list(const cli_args_t *args, reshard_case_t *cases, size_t *count_p,
                                ferry_error_t *err) {
    static const char *const of_models[] = {"from",  "to",     "dtype",    "to-dtype",
                                            "mxfp8", "scales", "disjoint", "only"};
    if (cli_args_has(args, "model")) {
        *count_p = 1;
        return read_model(args, &cases[0], err);
    }
    for (size_t i = 0; i < sizeof of_models / sizeof of_models[0]; i++) {
        if (cli_args_has(args, of_models[i])) {
            return cli_fail(err, FERRY_INVALID, "--%s goes with --model", of_models[i]);
        }
    }
    size_t count = 0;
    for (; args->nwords == 0 && reshard_standard(count) != NULL; count++) {
        cases[count] = *reshard_standard(count);
    }
    for (; count < args->nwords; count++) {
        ferry_status_t status = find_standard(args->words[count], &cases[count], err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    *count_p = count;
    return FERRY_OK;
}

ferry_status_t reshard_read_cases(const cli_args_t *args, reshard_case_t cases_p[RESHARD_CASES_MAX],
                                  size_t *count_p, ferry_error_t *err) {
    reshard_case_t ways = {0};
    ferry_status_t status = read_ways(args, &ways, err);
    if (status == FERRY_OK) {
        status = read_list(args, cases_p, count_p, err);
    }
    for (size_t i = 0; status == FERRY_OK && i < *count_p; i++) {
        apply(&ways, &cases_p[i]);
    }
    return status;
}
