/* ckpt_files.c - checkpoint folders for tests. */
#include "support/ckpt_files.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void insist(bool condition, const char *what) {
    if (!condition) {
        (void)fprintf(stderr, "ckpt_files: %s\n", what);
        abort();
    }
}

/* --- tensors ----------------------------------------------------------------------------------- */

void ckpt_model_fini(ckpt_model_t *model) {
    for (size_t i = 0; i < model->count; i++) {
        free(model->list[i].data);
    }
    free(model->list);
    *model = (ckpt_model_t){.count = 0};
}

uint64_t ckpt_width(const char *dtype) {
    static const struct {
        const char *name;
        uint64_t width;
    } widths[] = {{"F64", 8},  {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4},
                  {"U32", 4},  {"F16", 2},     {"BF16", 2},    {"I16", 2}, {"U16", 2},
                  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (strcmp(widths[i].name, dtype) == 0) {
            return widths[i].width;
        }
    }
    return 3;
}

static ckpt_tensor_t *new_tensor(ckpt_model_t *model) {
    if (model->count == model->cap) {
        model->cap = model->cap > 0 ? 2 * model->cap : 32;
        model->list = realloc(model->list, model->cap * sizeof *model->list);
        insist(model->list != NULL, "no memory");
    }
    ckpt_tensor_t *tensor = &model->list[model->count++];
    *tensor = (ckpt_tensor_t){.ndim = 0};
    return tensor;
}

ckpt_tensor_t *ckpt_add(ckpt_model_t *model, const char *name, const char *dtype, uint32_t ndim,
                        const uint64_t *dims) {
    ckpt_tensor_t *tensor = new_tensor(model);
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", name);
    (void)snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
    tensor->ndim = ndim;
    tensor->bytes = ckpt_width(dtype);
    for (uint32_t i = 0; i < ndim; i++) {
        tensor->shape[i] = dims[i];
        tensor->bytes *= dims[i];
    }
    tensor->data = calloc(tensor->bytes + 1, 1);
    insist(tensor->data != NULL, "no memory");
    return tensor;
}

const ckpt_tensor_t *ckpt_find(const ckpt_model_t *model, const char *name) {
    for (size_t i = 0; i < model->count; i++) {
        if (strcmp(model->list[i].name, name) == 0) {
            return &model->list[i];
        }
    }
    return NULL;
}

const char *ckpt_difference(const ckpt_model_t *a, const ckpt_model_t *b) {
    for (size_t i = 0; i < a->count; i++) {
        const ckpt_tensor_t *x = &a->list[i];
        const ckpt_tensor_t *y = ckpt_find(b, x->name);
        if (y == NULL || strcmp(x->dtype, y->dtype) != 0 || x->ndim != y->ndim ||
            memcmp(x->shape, y->shape, sizeof x->shape) != 0 || x->bytes != y->bytes ||
            memcmp(x->data, y->data, x->bytes) != 0) {
            return x->name;
        }
    }
    return a->count == b->count ? NULL : "(one has more tensors)";
}

/* --- writing ----------------------------------------------------------------------------------- */

void ckpt_write_file(const ckpt_model_t *model, size_t first, size_t count, const char *path) {
    char *header = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&header, &length);
    insist(text != NULL, "no memory");
    uint64_t at = 0;
    (void)fprintf(text, "{");
    for (size_t i = first; i < first + count; i++) {
        const ckpt_tensor_t *tensor = &model->list[i];
        (void)fprintf(text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i > first ? "," : "",
                      tensor->name, tensor->dtype);
        for (uint32_t k = 0; k < tensor->ndim; k++) {
            (void)fprintf(text, "%s%" PRIu64, k > 0 ? "," : "", tensor->shape[k]);
        }
        (void)fprintf(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                      at + tensor->bytes);
        at += tensor->bytes;
    }
    (void)fprintf(text, "}");
    (void)fclose(text);
    FILE *file = fopen(path, "wb");
    insist(file != NULL, path);
    for (unsigned i = 0; i < 8; i++) {
        (void)fputc((int)(length >> (8 * i) & 255), file);
    }
    insist(fwrite(header, 1, length, file) == length, path);
    for (size_t i = first; i < first + count; i++) {
        const ckpt_tensor_t *tensor = &model->list[i];
        insist(fwrite(tensor->data, 1, tensor->bytes, file) == tensor->bytes, path);
    }
    insist(fclose(file) == 0, path);
    free(header);
}

static void name_of(char *name, size_t file, size_t files) {
    (void)snprintf(name, CKPT_NAME, "model-%05zu-of-%05zu.safetensors", file + 1, files);
}

static void write_index(const ckpt_model_t *model, const char *path, size_t each, size_t files) {
    char name[CKPT_NAME];
    char full[512];
    (void)snprintf(full, sizeof full, "%s/model.safetensors.index.json", path);
    FILE *index = fopen(full, "w");
    insist(index != NULL, full);
    (void)fprintf(index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (size_t i = 0; i < model->count; i++) {
        name_of(name, i / each, files);
        (void)fprintf(index, "%s\"%s\":\"%s\"", i > 0 ? "," : "", model->list[i].name, name);
    }
    (void)fprintf(index, "}}");
    (void)fclose(index);
}

void ckpt_write_folder(const ckpt_model_t *model, const char *path, size_t files) {
    char name[CKPT_NAME];
    char full[512];
    insist(mkdir(path, 0777) == 0, path);
    if (files == 1 || model->count < files) {
        (void)snprintf(full, sizeof full, "%s/model.safetensors", path);
        ckpt_write_file(model, 0, model->count, full);
    } else {
        size_t each = (model->count + files - 1) / files;
        files = (model->count + each - 1) / each;
        for (size_t i = 0; i < files; i++) {
            name_of(name, i, files);
            (void)snprintf(full, sizeof full, "%s/%s", path, name);
            size_t left = model->count - i * each;
            ckpt_write_file(model, i * each, left < each ? left : each, full);
        }
        write_index(model, path, each, files);
    }
    if (model->config[0] != '\0') {
        ckpt_text(path, "config.json", model->config);
    }
}

/* --- reading ----------------------------------------------------------------------------------- */

/* The next number after `at`, which moves behind it. */
static uint64_t number(char **at) {
    *at += strcspn(*at, "0123456789");
    return strtoull(*at, at, 10);
}

/* One tensor, of a header that goes on at `at`: "name":{"dtype":"..","shape":[..],"data_offsets":[..]}. */
static void read_tensor(ckpt_model_t *model, FILE *file, uint64_t data, char **at) {
    ckpt_tensor_t *tensor = new_tensor(model);
    char *end = strchr(*at + 1, '"');
    insist(end != NULL, "no name");
    (void)snprintf(tensor->name, sizeof tensor->name, "%.*s", (int)(end - *at - 1), *at + 1);
    char *dtype = strstr(end, "\"dtype\":\"");
    char *shape = strstr(end, "\"shape\":[");
    char *offsets = strstr(end, "\"data_offsets\":[");
    insist(dtype != NULL && shape != NULL && offsets != NULL, "not in ferry's words");
    dtype += strlen("\"dtype\":\"");
    (void)snprintf(tensor->dtype, sizeof tensor->dtype, "%.*s", (int)strcspn(dtype, "\""), dtype);
    for (shape += strlen("\"shape\":["); *shape != ']'; shape += *shape == ',') {
        insist(tensor->ndim < CKPT_DIMS, "too many dims");
        tensor->shape[tensor->ndim++] = number(&shape);
    }
    uint64_t from = number(&offsets);
    tensor->bytes = number(&offsets) - from;
    tensor->offset = data + from;
    tensor->data = malloc(tensor->bytes + 1);
    insist(tensor->data != NULL && fseek(file, (long)tensor->offset, SEEK_SET) == 0, "no data");
    insist(fread(tensor->data, 1, tensor->bytes, file) == tensor->bytes, "the file is too short");
    *at = strchr(offsets, '}') + 1;
}

void ckpt_read_file(ckpt_model_t *model, const char *folder, const char *name) {
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *file = fopen(full, "rb");
    insist(file != NULL, full);
    uint64_t length = 0;
    for (unsigned i = 0; i < 8; i++) {
        length |= (uint64_t)fgetc(file) << (8 * i);
    }
    insist(length < 100000000, "a long header");
    char *header = calloc(length + 1, 1);
    insist(header != NULL && fread(header, 1, length, file) == length, full);
    char *at = header + 1;
    for (at += strcspn(at, "\"}"); *at == '"'; at += strcspn(at, "\"}")) {
        if (strncmp(at, "\"__metadata__\"", 14) == 0) {
            /* Strings only, whose quotes and braces may be escaped or inside: to the } that is outside. */
            bool quoted = false;
            for (at = strchr(at, '{') + 1; quoted || *at != '}'; at++) {
                at += quoted && *at == '\\';
                quoted = quoted != (*at == '"' && at[-1] != '\\');
            }
            at++;
        } else {
            read_tensor(model, file, 8 + length, &at);
            (void)snprintf(model->list[model->count - 1].file, CKPT_NAME, "%s", name);
        }
    }
    free(header);
    (void)fclose(file);
}

void ckpt_read_folder(ckpt_model_t *model, const char *path) {
    DIR *folder = opendir(path);
    insist(folder != NULL, path);
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        size_t length = strlen(e->d_name);
        if (length > 12 && strcmp(e->d_name + length - 12, ".safetensors") == 0) {
            ckpt_read_file(model, path, e->d_name);
        }
    }
    (void)closedir(folder);
}

/* --- a model ----------------------------------------------------------------------------------- */

static void add_small(ckpt_model_t *model, const char *name, uint64_t rows, uint64_t columns) {
    uint64_t dims[] = {rows, columns};
    ckpt_tensor_t *tensor = ckpt_add(model, name, "BF16", columns > 0 ? 2 : 1, dims);
    for (uint64_t i = 0; i < tensor->bytes; i++) {
        tensor->data[i] = (uint8_t)(model->count * 29 + i * 7 + (i >> 8));
    }
}

void ckpt_small_llama(ckpt_model_t *model, uint64_t head_dim) {
    uint64_t hidden = 8 * head_dim;
    uint64_t kv = 4 * head_dim;
    add_small(model, "model.embed_tokens.weight", 40, hidden);
    add_small(model, "model.layers.0.input_layernorm.weight", hidden, 0);
    add_small(model, "model.layers.0.self_attn.q_proj.weight", hidden, hidden);
    add_small(model, "model.layers.0.self_attn.k_proj.weight", kv, hidden);
    add_small(model, "model.layers.0.self_attn.v_proj.weight", kv, hidden);
    add_small(model, "model.layers.0.self_attn.o_proj.weight", hidden, hidden);
    add_small(model, "model.layers.0.post_attention_layernorm.weight", hidden, 0);
    add_small(model, "model.layers.0.mlp.gate_proj.weight", 3 * kv, hidden);
    add_small(model, "model.layers.0.mlp.up_proj.weight", 3 * kv, hidden);
    add_small(model, "model.layers.0.mlp.down_proj.weight", hidden, 3 * kv);
    add_small(model, "model.norm.weight", hidden, 0);
    add_small(model, "lm_head.weight", 40, hidden);
    (void)snprintf(model->config, sizeof model->config,
                   "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"num_attention_heads\":8,"
                   "\"num_key_value_heads\":4,\"head_dim\":%" PRIu64 ",\"rms_norm_eps\":1e-5}",
                   head_dim);
}

/* --- files ------------------------------------------------------------------------------------- */

void ckpt_temp(char *path) {
    static const char *const where[] = {"/dev/shm/ckpt-test-XXXXXX", "/tmp/ckpt-test-XXXXXX"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, 64, "%s", where[i]);
        if (mkdtemp(path) != NULL) {
            return;
        }
    }
    insist(false, "no folder for temporary files");
}

void ckpt_remove(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        (void)unlink(path);
        return;
    }
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            char full[1024];
            struct stat info;
            (void)snprintf(full, sizeof full, "%s/%s", path, e->d_name);
            if (lstat(full, &info) == 0 && S_ISDIR(info.st_mode)) {
                ckpt_remove(full);
            } else {
                (void)unlink(full);
            }
        }
    }
    (void)closedir(folder);
    (void)rmdir(path);
}

void ckpt_text(const char *folder, const char *name, const char *text) {
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", folder, name);
    FILE *file = fopen(full, "w");
    insist(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, full);
}

bool ckpt_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

size_t ckpt_entries(const char *path, const char *part) {
    DIR *folder = opendir(path);
    size_t count = 0;
    if (folder == NULL) {
        return 0;
    }
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        bool dots = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        count += !dots && strstr(e->d_name, part) != NULL;
    }
    (void)closedir(folder);
    return count;
}
