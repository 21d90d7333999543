/* test_folder.c - opening checkpoint folders: what is there is found, and every mistake is one line that names the file
 * and the tensor. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/ckpt.h>

#include "oracle/unit.h"
#include "support/ckpt_files.h"

#define INDEX "model.safetensors.index.json"
#define Q_PROJ "model.layers.0.self_attn.q_proj.weight"
#define RANK1 "rank-00001-of-00002.safetensors"

static char root[64];
static char path[128]; /* of the folder that a test looks at */
static ckpt_model_t model;

static int make_root(void **state) {
    (void)state;
    ckpt_temp(root);
    (void)snprintf(path, sizeof path, "%s/it", root);
    ckpt_small_llama(&model, 2);
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    ckpt_model_fini(&model);
    ckpt_remove(root);
    return 0;
}

static int clear(void **state) {
    (void)state;
    ckpt_remove(path);
    return 0;
}

static ferry_status_t try_open(ferry_error_t *err) {
    ferry_folder_t *folder = NULL;
    ferry_status_t status = ferry_folder_open(path, NULL, &folder, err);
    assert_true((status == FERRY_OK) == (folder != NULL));
    ferry_folder_close(folder);
    return status;
}

/* It is refused, and the line names a file of the folder, a tensor (or ""), and says why. */
static void refused(ferry_status_t expected, const char *file, const char *tensor,
                    const char *why) {
    ferry_error_t err = FERRY_ERROR_INIT;
    char line[1024];
    char where[256];
    ferry_status_t status = try_open(&err);
    (void)ferry_error_format(&err, line, sizeof line);
    (void)snprintf(where, sizeof where, "%s%s%s", path, file[0] != '\0' ? "/" : "", file);
    if (status != expected || err.status != status || strstr(line, where) == NULL ||
        strstr(line, why) == NULL || strcmp(err.tensor, tensor) != 0) {
        fail_msg("%s, expected %s; \"%s\" (tensor \"%s\") should have \"%s\" and \"%s\" (\"%s\")",
                 ferry_status_name(status), ferry_status_name(expected), line, err.tensor, where,
                 why, tensor);
    }
    assert_null(strchr(line, '\n'));
}

static void remove_file(const char *name) {
    char full[256];
    (void)snprintf(full, sizeof full, "%s/%s", path, name);
    assert_int_equal(unlink(full), 0);
}

static void empty_folder(void) {
    ckpt_remove(path);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* --- what is there ----------------------------------------------------------------------------- */

static void check_tensors(const ferry_folder_t *folder) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_folder_tensors(folder, &count);
    assert_int_equal(count, model.count);
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_t *tensor = ckpt_find(&model, tensors[i].name);
        assert_non_null(tensor);
        assert_true(i == 0 || strcmp(tensors[i - 1].name, tensors[i].name) < 0);
        assert_int_equal(tensors[i].dtype, FERRY_BF16);
        assert_int_equal(tensors[i].ndim, tensor->ndim);
        assert_memory_equal(tensors[i].shape, tensor->shape, tensor->ndim * sizeof(uint64_t));
    }
}

static void whole_folders_open(void **state) {
    (void)state;
    for (size_t files = 1; files <= 4; files++) {
        ckpt_remove(path);
        ckpt_write_folder(&model, path, files);
        ferry_folder_t *folder = NULL;
        assert_ok(ferry_folder_open(path, NULL, &folder, &err));
        assert_int_equal(ferry_folder_kind(folder), FERRY_FOLDER_HF);
        assert_string_equal(ferry_folder_form(folder), "hf");
        assert_string_equal(ferry_folder_path(folder), path);
        assert_int_equal(ferry_folder_nranks(folder), 1);
        assert_int_equal(ferry_folder_nfiles(folder), files);
        check_tensors(folder);
        size_t in_files = 0;
        for (size_t i = 0; i < files; i++) {
            size_t count = 0;
            (void)ferry_safetensors_tensors(ferry_folder_file(folder, i), &count);
            in_files += count;
        }
        assert_int_equal(in_files, model.count);
        ferry_folder_close(folder);
    }
}

/* Two ranks, as ferry writes them. */
static void write_ranks(const char *form) {
    char source[128];
    (void)snprintf(source, sizeof source, "%s/source", root);
    ckpt_write_folder(&model, source, 1);
    ferry_folder_t *folder = NULL;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    params.workers = 1;
    params.form = form;
    assert_ok(ferry_parallel_parse("tp=2", &params.parallel, &err));
    assert_ok(ferry_folder_open(source, NULL, &folder, &err));
    assert_ok(ferry_convert(folder, path, &params, NULL, &err));
    ferry_folder_close(folder);
    ckpt_remove(source);
}

static void rank_folders_open(void **state) {
    (void)state;
    static const char *const forms[] = {"hf", "vllm", "megatron"};
    for (size_t i = 0; i < 3; i++) {
        ckpt_remove(path);
        write_ranks(forms[i]);
        ferry_folder_t *folder = NULL;
        assert_ok(ferry_folder_open(path, NULL, &folder, &err));
        assert_int_equal(ferry_folder_kind(folder), FERRY_FOLDER_RANKS);
        assert_string_equal(ferry_folder_form(folder), forms[i]);
        assert_string_equal(ferry_folder_rules(folder), "llama");
        assert_int_equal(ferry_folder_parallel(folder)->tp, 2);
        assert_int_equal(ferry_folder_nranks(folder), 2);
        assert_int_equal(ferry_folder_nfiles(folder), 2);
        const char *note = ferry_safetensors_note(ferry_folder_file(folder, 1), "ferry.rank");
        assert_non_null(note);
        assert_string_equal(note, "1");
        note = ferry_safetensors_note(ferry_folder_file(folder, 1), "ferry.intervals");
        assert_non_null(note);
        assert_non_null(strstr(note, "\"" Q_PROJ "\":[[[8,16]],[[0,16]]]"));
        check_tensors(folder);
        ferry_folder_close(folder);
    }
}

/* ferry.json has the digest of each tensor as it can be read again. */
static void digests_are_kept(void **state) {
    (void)state;
    static char text[100000];
    char full[256];
    write_ranks("vllm");
    (void)snprintf(full, sizeof full, "%s/ferry.json", path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    ferry_folder_t *folder = NULL;
    ferry_digest_t digests[32];
    size_t count = 0;
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    const ferry_tensor_t *tensors = ferry_folder_tensors(folder, &count);
    assert_ok(ferry_folder_digests(folder, NULL, digests, &err));
    for (size_t i = 0; i < count; i++) {
        char name[160];
        char digest[FERRY_DIGEST_TEXT_MAX];
        (void)snprintf(name, sizeof name, "{\"name\": \"%s\"", tensors[i].name);
        ferry_digest_text(&digests[i], digest);
        const char *at = strstr(text, name);
        assert_non_null(at);
        at = strstr(at, "\"digest\": \"");
        assert_non_null(at);
        assert_memory_equal(at + strlen("\"digest\": \""), digest, 32);
    }
    ferry_folder_close(folder);
}

static void remember(void *context, const ferry_convert_progress_t *progress) {
    *(ferry_convert_progress_t *)context = *progress;
}

static void progress_and_result(void **state) {
    (void)state;
    char target[128];
    (void)snprintf(target, sizeof target, "%s/ranks", root);
    ckpt_write_folder(&model, path, 2);
    ferry_folder_t *folder = NULL;
    ferry_convert_progress_t last = {0, 0};
    ferry_convert_result_t result;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    params.workers = 2;
    params.context = &last;
    params.progress = remember;
    assert_ok(ferry_parallel_parse("tp=2,dp=2", &params.parallel, &err));
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    assert_ok(ferry_convert(folder, target, &params, &result, &err));
    ckpt_model_t read = {.count = 0};
    uint64_t bytes = 0;
    ckpt_read_folder(&read, target);
    for (size_t i = 0; i < read.count; i++) {
        bytes += read.list[i].bytes;
    }
    assert_int_equal(result.bytes_written, bytes);
    assert_int_equal(result.bytes_read, bytes);
    assert_int_equal(result.tensors, model.count);
    assert_int_equal(result.files, 4);
    assert_int_equal(last.bytes_done, bytes);
    assert_int_equal(last.bytes_total, bytes);
    assert_true(result.total_seconds > 0 && result.memory_bytes > 0);
    ckpt_model_fini(&read);
    ferry_folder_close(folder);
    ckpt_remove(target);
}

/* Rank files that others wrote: nothing says how they are cut but the caller. */
static void rank_files_alone_open(void **state) {
    (void)state;
    char source[128];
    write_ranks("hf");
    remove_file("ferry.json");
    ferry_folder_params_t params = FERRY_FOLDER_PARAMS_INIT;
    ferry_parallel_t parallel;
    ferry_folder_t *ranks = NULL;
    ferry_folder_t *folder = NULL;
    params.parallel = &parallel;
    assert_fails(ferry_folder_open(path, NULL, &ranks, &err), INVALID, path);
    assert_ok(ferry_parallel_parse("tp=3", &parallel, &err));
    assert_fails(ferry_folder_open(path, &params, &ranks, &err), MISMATCH, path);
    assert_ok(ferry_parallel_parse("tp=2", &parallel, &err));
    assert_ok(ferry_folder_open(path, &params, &ranks, &err));
    assert_int_equal(ferry_folder_nranks(ranks), 2);
    check_tensors(ranks);
    (void)snprintf(source, sizeof source, "%s/source", root);
    ckpt_write_folder(&model, source, 1);
    assert_ok(ferry_folder_open(source, NULL, &folder, &err));
    assert_ok(ferry_verify(folder, ranks, NULL, NULL, &err));
    ferry_folder_close(folder);
    ferry_folder_close(ranks);
    ckpt_remove(source);
}

static void folders_are_placed(void **state) {
    (void)state;
    ckpt_write_folder(&model, path, 1);
    ferry_folder_t *folder = NULL;
    ferry_parallel_t parallel;
    ferry_tensor_set_t *set = NULL;
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    assert_ok(ferry_parallel_parse("tp=4", &parallel, &err));
    assert_ok(ferry_folder_place(folder, &parallel, FERRY_F32, &set, &err));
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_tensor_set_tensors(set, &count);
    assert_int_equal(count, model.count);
    assert_int_equal(tensors[0].dtype, FERRY_F32);
    uint64_t shape[FERRY_MAX_DIMS];
    assert_string_equal(tensors[0].name, "lm_head.weight");
    assert_ok(ferry_layout_local_shape(tensors[0].layout, 2, tensors[0].shape, 3, shape, &err));
    assert_int_equal(shape[0], 10);
    ferry_tensor_set_destroy(set);
    ferry_folder_close(folder);
}

/* Nothing in it is fine, too. */
static void no_tensors_at_all(void **state) {
    (void)state;
    ckpt_model_t none = {.count = 0};
    ckpt_write_folder(&none, path, 1);
    ferry_folder_t *folder = NULL;
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    size_t count = 1;
    (void)ferry_folder_tensors(folder, &count);
    assert_int_equal(count, 0);
    assert_ok(ferry_verify(folder, folder, NULL, NULL, &err));
    char copy[128];
    (void)snprintf(copy, sizeof copy, "%s/copy", root);
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.verify = true;
    assert_ok(ferry_convert(folder, copy, &params, NULL, &err));
    ckpt_remove(copy);
    ferry_folder_close(folder);
    ckpt_text(path, "config.json", model.config);
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    params.kind = FERRY_FOLDER_RANKS;
    assert_ok(ferry_parallel_parse("tp=2", &params.parallel, &err));
    assert_ok(ferry_convert(folder, copy, &params, NULL, &err));
    ckpt_remove(copy);
    ferry_folder_close(folder);
}

/* --- Hugging Face folders that are wrong -------------------------------------------------------- */

static void folders_that_are_none(void **state) {
    (void)state;
    refused(FERRY_IO, "", "", "cannot be read");
    empty_folder();
    refused(FERRY_INVALID, "", "", "no checkpoint");
    ckpt_text(path, "config.json", "{}");
    refused(FERRY_INVALID, "", "", "no checkpoint");
    ckpt_text(path, ".metadata", "x");
    refused(FERRY_UNSUPPORTED, "", "", "torch distributed checkpoint");
    static const char *const megatron[] = {"metadata.json", "common.pt",
                                           "latest_checkpointed_iteration.txt"};
    for (size_t i = 0; i < 3; i++) {
        empty_folder();
        ckpt_text(path, megatron[i], "x");
        refused(FERRY_UNSUPPORTED, "", "", "Megatron distributed checkpoint");
    }
    ckpt_remove(path);
    ckpt_text(root, "it", "a file");
    refused(FERRY_INVALID, "", "", "is no folder");
}

static void wrong_files(void **state) {
    (void)state;
    ckpt_write_folder(&model, path, 3);
    remove_file("model-00002-of-00003.safetensors");
    refused(FERRY_IO, "model-00002-of-00003.safetensors", "", "No such file");
    ckpt_text(path, "model-00002-of-00003.safetensors", "short");
    refused(FERRY_CORRUPT, "model-00002-of-00003.safetensors", "", "");
    empty_folder();
    ckpt_text(path, "model.safetensors", "short");
    refused(FERRY_CORRUPT, "model.safetensors", "", "");
}

/* Two files of one tensor each, and an index. */
static void two_files(const char *first, const char *second, const char *index) {
    uint64_t dims[] = {4};
    const char *names[] = {first, second};
    empty_folder();
    for (size_t i = 0; i < 2; i++) {
        ckpt_model_t one = {.count = 0};
        char full[256];
        (void)ckpt_add(&one, names[i], "U8", 1, dims);
        (void)snprintf(full, sizeof full, "%s/%c.safetensors", path, i == 0 ? 'a' : 'b');
        ckpt_write_file(&one, 0, 1, full);
        ckpt_model_fini(&one);
    }
    ckpt_text(path, INDEX, index);
}

static void index_and_files_disagree(void **state) {
    (void)state;
    two_files("x", "y", "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    assert_ok(try_open(&err));
    /* In the index and in no file. */
    two_files("x", "y",
              "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\","
              "\"z\":\"b.safetensors\"}}");
    refused(FERRY_CORRUPT, "b.safetensors", "z", "the index says");
    /* In another file than the index says. */
    two_files("x", "y", "{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}");
    refused(FERRY_CORRUPT, "b.safetensors", "x", "the index says");
    /* In a file and not in the index. */
    uint64_t dims[] = {4};
    ckpt_model_t more = {.count = 0};
    char full[256];
    (void)ckpt_add(&more, "y", "U8", 1, dims);
    (void)ckpt_add(&more, "w", "U8", 1, dims);
    (void)snprintf(full, sizeof full, "%s/b.safetensors", path);
    two_files("x", "y", "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    ckpt_write_file(&more, 0, 2, full);
    ckpt_model_fini(&more);
    refused(FERRY_CORRUPT, "b.safetensors", "w", "not in the index");
}

static void bad_indexes(void **state) {
    (void)state;
    two_files("x", "x", "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}}");
    refused(FERRY_CORRUPT, "b.safetensors", "x", "twice");
    static const char *const leaving[] = {"../a.safetensors", "/etc/passwd", "..", "",
                                          "sub/a.safetensors"};
    for (size_t i = 0; i < sizeof leaving / sizeof leaving[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "{\"weight_map\":{\"x\":\"%s\"}}", leaving[i]);
        two_files("x", "y", text);
        refused(FERRY_PARSE, INDEX, "", "is no file of this folder");
    }
    two_files("x", "y", "{\"weight_map\":{\"x\":\".\"}}");
    refused(FERRY_IO, ".", "", "no regular file");
    two_files("x", "y", "{\"weight_map\":{}}");
    refused(FERRY_PARSE, INDEX, "", "names no tensor");
    two_files("x", "y", "{\"metadata\":{\"total_size\":8}}");
    refused(FERRY_PARSE, INDEX, "", "weight_map");
    two_files("x", "y", "{\"weight_map\":{\"x\":3}}");
    refused(FERRY_PARSE, INDEX, "", "line 1, column");
    two_files("x", "y", "{\"weight_map\":{\"x\":\"a.safetensors\"}");
    refused(FERRY_PARSE, INDEX, "", "line 1, column");
    two_files("x", "y", "");
    refused(FERRY_PARSE, INDEX, "", "line 1, column");
}

static void bad_configs(void **state) {
    (void)state;
    ckpt_write_folder(&model, path, 1);
    ckpt_text(path, "config.json", "{\"model_type\":");
    refused(FERRY_PARSE, "config.json", "", "line 1, column");
    ckpt_text(path, "config.json", "[1]");
    refused(FERRY_PARSE, "config.json", "", "line 1, column");
    remove_file("config.json");
    char full[256];
    (void)snprintf(full, sizeof full, "%s/config.json", path);
    assert_int_equal(mkdir(full, 0777), 0);
    refused(FERRY_CORRUPT, "config.json", "", "");
}

/* Whole folders need no rules until they are cut. */
static void rules_that_are_not_there(void **state) {
    (void)state;
    static const struct {
        const char *config;
        const char *why;
    } cases[] = {{"{}", "no config.json tells the family"},
                 {"{\"model_type\":\"gpt9\"}", "gpt9"},
                 {"{\"model_type\":\"llama\",\"num_hidden_layers\":1}", "num_attention_heads"}};
    for (size_t i = 0; i < 3; i++) {
        ckpt_remove(path);
        ckpt_write_folder(&model, path, 1);
        ckpt_text(path, "config.json", cases[i].config);
        ferry_folder_t *folder = NULL;
        ferry_tensor_set_t *set = NULL;
        ferry_parallel_t parallel;
        assert_ok(ferry_folder_open(path, NULL, &folder, &err));
        assert_ok(ferry_parallel_parse("tp=2", &parallel, &err));
        assert_fails(ferry_folder_place(folder, &parallel, FERRY_DTYPE_NONE, &set, &err), INVALID,
                     cases[i].why);
        ferry_folder_close(folder);
    }
}

/* --- rank folders that are wrong ---------------------------------------------------------------- */

/* ferry.json, with one text replaced by another. */
static void edit_ferry_json(const char *old, const char *new) {
    char full[256];
    static char text[100000];
    static char edited[110000];
    (void)snprintf(full, sizeof full, "%s/ferry.json", path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    char *at = strstr(text, old);
    if (at == NULL) {
        fail_msg("ferry.json has no %s", old);
        return;
    }
    (void)snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, new,
                   at + strlen(old));
    ckpt_text(path, "ferry.json", edited);
}

static void bad_ferry_json(void **state) {
    (void)state;
    static const struct {
        const char *old, *new;
        ferry_status_t status;
        const char *tensor, *why;
    } cases[] = {
        {"{", "[", FERRY_PARSE, "", "line 1, column"},
        {"ferry-ranks", "other", FERRY_PARSE, "", "no folder of rank files"},
        {"\"version\": 1", "\"version\": 2", FERRY_VERSION, "", "version 2"},
        {"tp=2", "tp=3", FERRY_PARSE, "", "2 ranks"},
        {"tp=2", "tp=0", FERRY_PARSE, "", "tp"},
        {"tp=2", "tq=2", FERRY_PARSE, "", "tq"},
        {"\"parallel\"", "\"parallels\"", FERRY_PARSE, "", "no parallel spec"},
        {"\"name\": \"lm_head.weight\"", "\"name\": \"model.norm.weight\"", FERRY_CORRUPT,
         "model.norm.weight", "twice"},
        {"\"name\": \"lm_head.weight\", ", "", FERRY_PARSE, "", "lacks its name"},
        {"[40, 16]", "[40, 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", FERRY_PARSE, "", "dims"},
        {"\"rules\": \"llama\"", "\"rules\": \"lama\"", FERRY_INVALID, "", "lama"},
        {"\"form\": \"hf\"", "\"form\": \"hg\"", FERRY_INVALID, "", "hg"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_remove(path);
        write_ranks("hf");
        edit_ferry_json(cases[i].old, cases[i].new);
        bool text = cases[i].status == FERRY_PARSE || cases[i].status == FERRY_VERSION;
        refused(cases[i].status, text ? "ferry.json" : "", cases[i].tensor, cases[i].why);
    }
}

/* The file of rank 1, with one of its tensors changed. */
static void rewrite_rank(const char *name, const char *dtype, uint64_t rows, bool there) {
    ckpt_remove(path);
    write_ranks("hf");
    ckpt_model_t file = {.count = 0};
    ckpt_model_t fresh = {.count = 0};
    char full[256];
    ckpt_read_file(&file, path, RANK1);
    for (size_t i = 0; i < file.count; i++) {
        const ckpt_tensor_t *t = &file.list[i];
        bool this = strcmp(t->name, name) == 0;
        uint64_t dims[CKPT_DIMS];
        memcpy(dims, t->shape, sizeof dims);
        dims[0] = this ? rows : dims[0];
        if (!this || there) {
            (void)ckpt_add(&fresh, t->name, this ? dtype : t->dtype, t->ndim, dims);
        }
    }
    (void)snprintf(full, sizeof full, "%s/" RANK1, path);
    ckpt_write_file(&fresh, 0, fresh.count, full);
    ckpt_model_fini(&file);
    ckpt_model_fini(&fresh);
}

static void wrong_rank_files(void **state) {
    (void)state;
    rewrite_rank(Q_PROJ, "BF16", 8, true);
    assert_ok(try_open(&err));
    rewrite_rank(Q_PROJ, "BF16", 8, false);
    refused(FERRY_CORRUPT, RANK1, Q_PROJ, "not there");
    rewrite_rank(Q_PROJ, "BF16", 7, true);
    refused(FERRY_MISMATCH, RANK1, Q_PROJ, "shape or dtype");
    rewrite_rank(Q_PROJ, "F16", 8, true);
    refused(FERRY_MISMATCH, RANK1, Q_PROJ, "shape or dtype");
    rewrite_rank(Q_PROJ, "X4", 8,
                 true); /* a dtype that ferry does not know, for one that it does */
    refused(FERRY_MISMATCH, RANK1, Q_PROJ, "shape or dtype");
    remove_file(RANK1);
    refused(FERRY_IO, RANK1, "", "No such file");
    ckpt_text(path, RANK1, "short");
    refused(FERRY_CORRUPT, RANK1, "", "");
}

/* A tensor of unknown dtype, whole on both ranks. */
static void wrong_unknown_dtypes(void **state) {
    (void)state;
    static const char name[] = "model.layers.0.self_attn.rotary_emb.inv_freq";
    uint64_t dims[] = {6};
    (void)ckpt_add(&model, name, "X4", 1, dims);
    rewrite_rank(name, "X4", 6, true);
    assert_ok(try_open(&err));
    rewrite_rank(name, "X4", 5, true);
    refused(FERRY_MISMATCH, RANK1, name, "shape or dtype");
    rewrite_rank(name, "X5", 6, true);
    refused(FERRY_MISMATCH, RANK1, name, "shape or dtype");
    rewrite_rank(name, "U8", 18, true);
    refused(FERRY_MISMATCH, RANK1, name, "shape or dtype");
    free(model.list[--model.count].data);
}

/* Bytes of unknown meaning are neither cut nor put together. */
static void unknown_dtypes_stay_whole(void **state) {
    (void)state;
    static const struct {
        const char *spec, *form, *why;
    } cases[] = {{"tp=2", "hf", "cannot be cut"},
                 {"tp=1", "vllm", "cannot be put into model.layers.0.self_attn.qkv_proj.weight"}};
    ckpt_model_t odd = {.count = 0};
    ckpt_model_t copy = {.count = 0};
    char target[128];
    (void)snprintf(target, sizeof target, "%s/ranks", root);
    (void)snprintf(odd.config, sizeof odd.config, "%s", model.config);
    uint64_t dims[] = {16, 16};
    (void)ckpt_add(&odd, "model.layers.0.self_attn.k_proj.weight", "X4", 2, dims);
    (void)ckpt_add(&odd, Q_PROJ, "X4", 2, dims);
    (void)ckpt_add(&odd, "model.layers.0.self_attn.v_proj.weight", "X4", 2, dims);
    ckpt_write_folder(&odd, path, 1);
    ferry_folder_t *folder = NULL;
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(ferry_parallel_parse(cases[i].spec, &params.parallel, &err));
        params.form = cases[i].form;
        assert_fails(ferry_convert(folder, target, &params, NULL, &err), UNSUPPORTED, cases[i].why);
        assert_int_equal(ckpt_entries(root, ""), 1);
    }
    params.form = "hf";
    assert_ok(ferry_convert(folder, target, &params, NULL, &err));
    ckpt_read_folder(&copy, target);
    assert_null(ckpt_difference(&odd, &copy));
    ferry_folder_close(folder);
    ckpt_model_fini(&odd);
    ckpt_model_fini(&copy);
    ckpt_remove(target);
}

/* A ferry.json that puts them together all the same does not lead outside of the file. */
static void unknown_dtypes_put_together(void **state) {
    (void)state;
    uint64_t dims[] = {2};
    ckpt_model_t file = {.count = 0};
    char full[256];
    empty_folder();
    (void)ckpt_add(&file, "model.layers.0.self_attn.qkv_proj.weight", "X4", 1, dims);
    (void)snprintf(full, sizeof full, "%s/rank-00000-of-00001.safetensors", path);
    ckpt_write_file(&file, 0, 1, full);
    ckpt_model_fini(&file);
#define PART(name)                                                                                 \
    "{\"name\":\"model.layers.0.self_attn." name "_proj.weight\",\"dtype\":\"X4\",\"shape\":[2],"  \
    "\"bytes\":6}"
    ckpt_text(path, "ferry.json",
              "{\"format\":\"ferry-ranks\",\"version\":1,\"ranks\":1,\"parallel\":\"tp=1\","
              "\"form\":\"vllm\",\"rules\":\"llama\",\"config\":{\"num_hidden_layers\":1,"
              "\"num_attention_heads\":2,\"head_dim\":3},\"tensors\":[" PART("q") "," PART(
                  "k") "," PART("v") "]}");
    refused(FERRY_MISMATCH, "rank-00000-of-00001.safetensors",
            "model.layers.0.self_attn.qkv_proj.weight", "shape or dtype");
}

/* --- differences --------------------------------------------------------------------------------- */

/* A folder of one tensor; one bit of it is set. */
static ferry_folder_t *one_tensor(const char *name, const char *tensor, const char *dtype,
                                  uint64_t rows, uint64_t columns, uint64_t bit) {
    char full[128];
    uint64_t dims[] = {rows, columns};
    ckpt_model_t one = {.count = 0};
    ckpt_tensor_t *made = ckpt_add(&one, tensor, dtype, 2, dims);
    made->data[bit / 8] = (uint8_t)(1u << bit % 8);
    (void)snprintf(full, sizeof full, "%s/%s", root, name);
    ckpt_remove(full);
    ckpt_write_folder(&one, full, 1);
    ckpt_model_fini(&one);
    ferry_folder_t *folder = NULL;
    assert_ok(ferry_folder_open(full, NULL, &folder, &err));
    return folder;
}

static void differences_are_named(void **state) {
    (void)state;
    static const struct {
        const char *tensor, *dtype;
        uint64_t rows, columns, bit;
        const char *name, *why;
    } cases[] = {
        {"t", "F16", 6, 4, 100, "t", "first at element 6"}, /* 96 .. 111 */
        {"t", "F16", 4, 6, 0, "t", "its shape is another"},
        {"t", "BF16", 6, 4, 0, "t", "it is f16"},
        {"t", "X4", 6, 4, 0, "t", "X4"},
        {"s", "F16", 6, 4, 0, "s", "b has it"},
        {"u", "F16", 6, 4, 0, "t", "a has it"},
    };
    ferry_folder_t *a = one_tensor("a", "t", "F16", 6, 4, 380);
    assert_ok(ferry_verify(a, a, NULL, NULL, &err));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ferry_folder_t *b = one_tensor("b", cases[i].tensor, cases[i].dtype, cases[i].rows,
                                       cases[i].columns, cases[i].bit);
        ferry_error_t err = FERRY_ERROR_INIT;
        assert_int_equal(ferry_verify(a, b, NULL, NULL, &err), FERRY_MISMATCH);
        if (strcmp(err.tensor, cases[i].name) != 0 || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("case %zu: tensor %s: %s", i, err.tensor, err.text);
        }
        ferry_folder_close(b);
    }
    ferry_folder_close(a);
}

/* Past what is compared at once. */
static void late_differences_are_named(void **state) {
    (void)state;
    uint64_t row = 2 << 20;
    uint64_t at = 17 * (row / 2) + 12345;
    ferry_folder_t *a = one_tensor("a", "t", "U8", 9, row, 0);
    ferry_folder_t *b = one_tensor("b", "t", "U8", 9, row, 0);
    assert_ok(ferry_verify(a, b, NULL, NULL, &err));
    char full[160];
    (void)snprintf(full, sizeof full, "%s/b/model.safetensors", root);
    FILE *file = fopen(full, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at - 9 * (long)row, SEEK_END), 0);
    assert_int_equal(fputc(4, file), 4);
    assert_int_equal(fclose(file), 0);
    char words[64];
    (void)snprintf(words, sizeof words, "first at element %llu", (unsigned long long)at);
    assert_fails(ferry_verify(a, b, NULL, NULL, &err), MISMATCH, words);
    ferry_folder_close(a);
    ferry_folder_close(b);
    (void)snprintf(full, sizeof full, "%s/a", root);
    ckpt_remove(full);
    (void)snprintf(full, sizeof full, "%s/b", root);
    ckpt_remove(full);
}

/* What no rule covers was accepted once, when the folder was made; it says so itself. */
static void unmatched_tensors(void **state) {
    (void)state;
    uint64_t dims[] = {6};
    char target[128];
    (void)snprintf(target, sizeof target, "%s/ranks", root);
    (void)ckpt_add(&model, "nobody.knows", "I32", 1, dims);
    ckpt_write_folder(&model, path, 1);
    ferry_folder_t *folder = NULL;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    assert_ok(ferry_parallel_parse("tp=2", &params.parallel, &err));
    assert_ok(ferry_folder_open(path, NULL, &folder, &err));
    assert_fails(ferry_convert(folder, target, &params, NULL, &err), INVALID, "nobody.knows");
    assert_false(ckpt_exists(target));
    ferry_folder_close(folder);
    ferry_folder_params_t accept = FERRY_FOLDER_PARAMS_INIT;
    accept.flags = FERRY_RULES_REPLICATE;
    assert_ok(ferry_folder_open(path, &accept, &folder, &err));
    assert_ok(ferry_convert(folder, target, &params, NULL, &err));
    ferry_folder_t *ranks = NULL;
    assert_ok(ferry_folder_open(target, NULL, &ranks, &err));
    assert_ok(ferry_verify(folder, ranks, NULL, NULL, &err));
    ferry_folder_close(ranks);
    ferry_folder_close(folder);
    ckpt_remove(target);
    free(model.list[--model.count].data);
}

static void wrong_arguments(void **state) {
    (void)state;
    ferry_folder_t *folder = NULL;
    ferry_folder_params_t params = FERRY_FOLDER_PARAMS_INIT;
    params.size--;
    assert_fails(ferry_folder_open(NULL, NULL, &folder, &err), INVALID, "path");
    assert_fails(ferry_folder_open(path, NULL, NULL, &err), INVALID, "folder_p");
    assert_fails(ferry_folder_open(path, &params, &folder, &err), INVALID, "bytes");
    ferry_folder_close(NULL);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, clear)
    const struct CMUnitTest tests[] = {
        TEST(whole_folders_open),
        TEST(rank_folders_open),
        TEST(folders_are_placed),
        TEST(no_tensors_at_all),
        TEST(folders_that_are_none),
        TEST(wrong_files),
        TEST(index_and_files_disagree),
        TEST(bad_indexes),
        TEST(bad_configs),
        TEST(rules_that_are_not_there),
        TEST(bad_ferry_json),
        TEST(wrong_rank_files),
        TEST(wrong_unknown_dtypes),
        TEST(unmatched_tensors),
        TEST(wrong_arguments),
        TEST(unknown_dtypes_stay_whole),
        TEST(rank_files_alone_open),
        TEST(unknown_dtypes_put_together),
        TEST(differences_are_named),
        TEST(late_differences_are_named),
        TEST(digests_are_kept),
        TEST(progress_and_result),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
