/* prop_convert.c - random small models go through random chains of conversions, Hugging Face -> ranks -> ranks ->
 * Hugging Face, over specs, forms, workers and units of all kinds. Each folder verifies against the first, and the last
 * is the first, bit for bit, as a reader sees it that shares no code with ferry. One flipped bit is found, and named.
 *
 *   FERRY_CASES=n   how many (default 250; with FERRY_SOAK=1 10,000)
 *   FERRY_SEED=s    only this one
 *
 * A failure prints the seed and the step; the folders of a case are removed. */
#include <inttypes.h>
#include <stdlib.h>

#include <ferry/ckpt.h>

#include "oracle/unit.h"
#include "support/ckpt_draw.h"
#include "support/sanitizer.h"
#include "support/soak.h"

enum { CASES = SANITIZED ? 60 : 250, SOAK_CASES = 10000, STEPS = 4, TRIES = 20 };

static char root[64];

/* One folder of a chain. */
typedef struct link {
    char path[128];
    char how[CKPT_SPEC + 16]; /* for messages */
    ferry_folder_t *folder;
} link_t;

typedef struct chain {
    uint64_t seed;
    uint64_t rng;
    ckpt_drawn_t drawn;
    link_t links[STEPS + 2];
    size_t count;
    ferry_digest_t digest; /* that the last conversion told */
    size_t widened;        /* the first link whose floats are wider; 0: none */
    uint64_t refused;
    uint64_t made;
} chain_t;

static uint64_t below(chain_t *c, uint64_t bound) {
    return ckpt_below(&c->rng, bound);
}

static void describe(const chain_t *c, char *text, size_t cap) {
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < c->count && length < cap; i++) {
        length += (size_t)snprintf(text + length, cap - length, "%s%s", i > 0 ? " -> " : "",
                                   c->links[i].how);
    }
}

static void fail_case(const chain_t *c, const char *what, const ferry_error_t *err) {
    char line[1024] = "";
    char chain[800];
    if (err != NULL) {
        (void)ferry_error_format(err, line, sizeof line);
    }
    describe(c, chain, sizeof chain);
    fail_msg("FERRY_SEED=%" PRIu64 ": %s: %s %s (%s, base %s; %s)", c->seed, what,
             err != NULL ? ferry_status_name(err->status) : "", line, c->drawn.family,
             c->drawn.base != NULL ? c->drawn.base : "mixed", chain);
}

#define REQUIRE(condition, err)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fail_case(c, #condition, err);                                                         \
        }                                                                                          \
    } while (0)

/* --- the chain --------------------------------------------------------------------------------- */

static link_t *next_link(chain_t *c) {
    link_t *link = &c->links[c->count];
    (void)snprintf(link->path, sizeof link->path, "%s/%zu", root, c->count);
    return link;
}

static void open_link(chain_t *c, link_t *link) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_folder_params_t params = FERRY_FOLDER_PARAMS_INIT;
    params.flags = c->drawn.unmatched ? FERRY_RULES_REPLICATE : 0;
    c->count++;
    REQUIRE(ferry_folder_open(link->path, &params, &link->folder, &err) == FERRY_OK, &err);
}

static void first_link(chain_t *c) {
    link_t *link = next_link(c);
    size_t files = 1 + below(c, 3);
    ckpt_write_folder(&c->drawn.model, link->path, files);
    (void)snprintf(link->how, sizeof link->how, "hf in %zu", files);
    open_link(c, link);
}

/* What is drawn for any step. */
static ferry_convert_params_t draw_params(chain_t *c) {
    static const uint64_t memory[] = {0, 1, 20000, 1 << 20};
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.workers = 1 + (uint32_t)below(c, 3);
    params.memory_bytes = memory[below(c, 4)];
    params.verify = below(c, 2) == 0;
    params.file_bytes = below(c, 2) == 0 ? 1 + below(c, 2000) : 0;
    return params;
}

/* False: the rules cannot do it, which they may say; then nothing is there. */
static bool convert(chain_t *c, const ferry_convert_params_t *params) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_convert_result_t result;
    link_t *link = next_link(c);
    ferry_status_t status =
        ferry_convert(c->links[c->count - 1].folder, link->path, params, &result, &err);
    if (status == FERRY_INVALID || status == FERRY_UNSUPPORTED) {
        c->refused++;
        REQUIRE(params->kind == FERRY_FOLDER_RANKS, &err);
        REQUIRE(ckpt_entries(root, "") == c->count, &err);
        return false;
    }
    c->made++;
    REQUIRE(status == FERRY_OK, &err);
    REQUIRE(err.status == FERRY_OK, &err);
    REQUIRE(ckpt_entries(root, "") == c->count + 1, NULL); /* nothing but the folder */
    REQUIRE(ckpt_entries(link->path, ".safetensors") ==
                result.files + ckpt_entries(link->path, ".index."),
            NULL);
    REQUIRE(result.tensors == c->drawn.model.count, NULL);
    c->digest = result.digest;
    open_link(c, link);
    return true;
}

static void rank_step(chain_t *c, ferry_dtype_t dtype) {
    static const char *const forms[] = {"hf", "vllm", "megatron"};
    for (int i = 0; i < TRIES; i++) {
        char spec[CKPT_SPEC];
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_convert_params_t params = draw_params(c);
        ckpt_draw_spec(&c->rng, &c->drawn, spec);
        params.kind = FERRY_FOLDER_RANKS;
        params.form = forms[below(c, i < TRIES / 2 ? 3 : 1)];
        params.dtype = dtype;
        REQUIRE(ferry_parallel_parse(spec, &params.parallel, &err) == FERRY_OK, &err);
        (void)snprintf(c->links[c->count].how, sizeof c->links[0].how, "%s %s%s", params.form, spec,
                       dtype != FERRY_DTYPE_NONE ? " cast" : "");
        if (convert(c, &params)) {
            return;
        }
    }
    fail_case(c, "no spec is good enough", NULL);
}

static void verify_link(chain_t *c, size_t with) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_verify_params_t params = FERRY_VERIFY_PARAMS_INIT;
    ferry_verify_result_t result;
    params.workers = 1 + (uint32_t)below(c, 3);
    ferry_folder_t *a = c->links[with].folder;
    ferry_folder_t *b = c->links[c->count - 1].folder;
    REQUIRE(ferry_verify(a, b, &params, &result, &err) == FERRY_OK, &err);
    REQUIRE(ferry_digest_equal(&result.digest, &c->digest), NULL);
    REQUIRE(result.tensors == c->drawn.model.count, NULL);
}

/* A wider dtype that holds every value of the base; NONE when floats are of several. */
static ferry_dtype_t wider(const char *base) {
    return base == NULL                   ? FERRY_DTYPE_NONE
           : strcmp(base, "F32") == 0     ? FERRY_F64
           : strcmp(base, "F8_E5M2") == 0 ? FERRY_F16
                                          : FERRY_F32;
}

static void last_step(chain_t *c) {
    ferry_convert_params_t params = draw_params(c);
    params.dtype = c->widened > 0 ? ferry_safetensors_dtype(c->drawn.base) : FERRY_DTYPE_NONE;
    (void)snprintf(c->links[c->count].how, sizeof c->links[0].how, "hf%s",
                   c->widened > 0 ? " cast" : "");
    REQUIRE(convert(c, &params), NULL);
    verify_link(c, 0);
    ckpt_model_t read = {.count = 0};
    ckpt_read_folder(&read, c->links[c->count - 1].path);
    const char *differs = ckpt_difference(&c->drawn.model, &read);
    ckpt_model_fini(&read);
    REQUIRE(differs == NULL, NULL);
}

/* Where a wider float is the same bits and zeros after them: cast, read, and compared. */
static void check_wide(chain_t *c, ferry_dtype_t wide) {
    char path[128];
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_convert_params_t params = draw_params(c);
    params.dtype = wide;
    (void)snprintf(path, sizeof path, "%s/wide", root);
    REQUIRE(ferry_convert(c->links[0].folder, path, &params, NULL, &err) == FERRY_OK, &err);
    ckpt_model_t read = {.count = 0};
    ckpt_read_folder(&read, path);
    ckpt_remove(path);
    size_t width = ckpt_width(c->drawn.base);
    for (size_t i = 0; i < read.count; i++) {
        const ckpt_tensor_t *now = &read.list[i];
        const ckpt_tensor_t *was = ckpt_find(&c->drawn.model, now->name);
        REQUIRE(was != NULL, NULL);
        bool cast = strcmp(was->dtype, c->drawn.base) == 0;
        REQUIRE(now->bytes == (cast ? 2 * was->bytes : was->bytes), NULL);
        for (uint64_t at = 0; at < now->bytes && cast; at++) {
            uint64_t in = at % (2 * width);
            uint8_t bits = in < width ? 0 : was->data[at / (2 * width) * width + in - width];
            REQUIRE(now->data[at] == bits, NULL);
        }
        REQUIRE(cast || memcmp(now->data, was->data, now->bytes) == 0, NULL);
    }
    ckpt_model_fini(&read);
}

/* --- a flipped bit ------------------------------------------------------------------------------- */

/* Where an element of a rank's shard lies in the whole: the intervals of each dim, walked one by one. */
static uint64_t global_of(chain_t *c, const ferry_tensor_t *tensor, uint32_t rank, uint64_t local) {
    uint64_t index[FERRY_MAX_DIMS];
    for (uint32_t dim = tensor->ndim; dim-- > 0;) {
        ferry_interval_t list[256];
        size_t count = 0;
        REQUIRE(ferry_layout_intervals(tensor->layout, tensor->ndim, tensor->shape, rank, dim, list,
                                       256, &count, NULL) == FERRY_OK,
                NULL);
        uint64_t length = 0;
        for (size_t i = 0; i < count; i++) {
            length += list[i].hi - list[i].lo;
        }
        uint64_t at = local % length;
        local /= length;
        for (size_t i = 0; i < count; i++) {
            uint64_t here = list[i].hi - list[i].lo;
            if (at < here) {
                index[dim] = list[i].lo + at;
                break;
            }
            at -= here;
        }
    }
    uint64_t global = 0;
    for (uint32_t dim = 0; dim < tensor->ndim; dim++) {
        global = global * tensor->shape[dim] + index[dim];
    }
    return global;
}

static const ferry_tensor_t *tensor_of(const ferry_folder_t *folder, const char *name) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_folder_tensors(folder, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* The record names the tensor and the element that changed. */
static void check_record(chain_t *c, const ferry_folder_t *folder, const ckpt_tensor_t *changed,
                         uint64_t byte, ferry_status_t status, const ferry_error_t *err) {
    REQUIRE(status == FERRY_MISMATCH || status == FERRY_CORRUPT, err);
    REQUIRE(err->status == status, err);
    REQUIRE(ckpt_find(&c->drawn.model, err->tensor) != NULL, err);
    if (strcmp(ferry_folder_form(folder), "hf") != 0) {
        return; /* the file's tensors are others */
    }
    REQUIRE(strcmp(err->tensor, changed->name) == 0, err);
    if (status == FERRY_CORRUPT) {
        REQUIRE(ferry_folder_kind(folder) == FERRY_FOLDER_RANKS, err);
        return;
    }
    const ferry_tensor_t *tensor = tensor_of(folder, changed->name);
    uint32_t rank = 0;
    if (ferry_folder_kind(folder) == FERRY_FOLDER_RANKS) {
        rank = (uint32_t)strtoul(changed->file + strlen("rank-"), NULL, 10);
    }
    uint64_t element = byte / (ferry_dtype_bits(tensor->dtype) / 8);
    char words[64];
    (void)snprintf(words, sizeof words, "first at element %" PRIu64,
                   global_of(c, tensor, rank, element));
    const char *found = strstr(err->text, words);
    REQUIRE(found != NULL && found[strlen(words)] == '\0', err);
}

static void flip_one(chain_t *c) {
    size_t at = below(c, c->count);
    size_t other = c->widened > 0 && at >= c->widened && at < c->count - 1 ? c->widened : 0;
    if (at == other) {
        return;
    }
    const link_t *link = &c->links[at];
    ckpt_model_t read = {.count = 0};
    ckpt_read_folder(&read, link->path);
    const ckpt_tensor_t *tensor = &read.list[below(c, read.count)];
    if (tensor->bytes > 0) {
        uint64_t byte = below(c, tensor->bytes);
        char full[256];
        (void)snprintf(full, sizeof full, "%s/%s", link->path, tensor->file);
        FILE *file = fopen(full, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, (long)(tensor->offset + byte), SEEK_SET), 0);
        (void)fputc(tensor->data[byte] ^ 1 << below(c, 8), file);
        assert_int_equal(fclose(file), 0);
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status =
            below(c, 2) == 0 ? ferry_verify(c->links[other].folder, link->folder, NULL, NULL, &err)
                             : ferry_verify(link->folder, c->links[other].folder, NULL, NULL, &err);
        check_record(c, link->folder, tensor, byte, status, &err);
    }
    ckpt_model_fini(&read);
}

/* --- cases --------------------------------------------------------------------------------------- */

static void run_case(chain_t *c) {
    ckpt_draw_model(&c->rng, &c->drawn);
    first_link(c);
    size_t steps = 1 + below(c, STEPS - 1);
    ferry_dtype_t wide = below(c, 2) == 0 ? wider(c->drawn.base) : FERRY_DTYPE_NONE;
    if (wide != FERRY_DTYPE_NONE &&
        (strcmp(c->drawn.base, "BF16") == 0 || strcmp(c->drawn.base, "F8_E5M2") == 0)) {
        check_wide(c, wide);
    }
    for (size_t i = 0; i < steps; i++) {
        bool now = wide != FERRY_DTYPE_NONE && c->widened == 0 && i + 1 == steps;
        rank_step(c, now ? wide : FERRY_DTYPE_NONE);
        if (now) {
            c->widened = c->count - 1;
            ferry_error_t err = FERRY_ERROR_INIT;
            REQUIRE(ferry_verify(c->links[0].folder, c->links[c->widened].folder, NULL, NULL,
                                 &err) == FERRY_MISMATCH,
                    &err);
            REQUIRE(strstr(err.text, ferry_dtype_name(wide)) != NULL, &err);
        } else {
            verify_link(c, 0);
        }
    }
    last_step(c);
    flip_one(c);
}

static void end_case(chain_t *c) {
    for (size_t i = 0; i < c->count; i++) {
        ferry_folder_close(c->links[i].folder);
        ckpt_remove(c->links[i].path);
    }
    ckpt_model_fini(&c->drawn.model);
}

static void test_random(void **state) {
    (void)state;
    const char *only = getenv("FERRY_SEED");
    const char *count = getenv("FERRY_CASES");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t cases =
        count != NULL ? strtoull(count, NULL, 10) : (uint64_t)soak_count(CASES, SOAK_CASES);
    uint64_t end = only != NULL ? first + 1 : first + cases;
    uint64_t made = 0;
    uint64_t refused = 0;
    for (uint64_t seed = first; seed < end; seed++) {
        chain_t c = {.seed = seed, .rng = seed};
        run_case(&c);
        end_case(&c);
        made += c.made;
        refused += c.refused;
    }
    print_message("%" PRIu64 " conversions, and %" PRIu64 " that the rules refused\n", made,
                  refused);
    assert_true(only != NULL || refused < made); /* else it tries too little */
}

static int make_root(void **state) {
    (void)state;
    ckpt_temp(root);
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    ckpt_remove(root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("prop convert", tests, make_root, remove_root);
}
