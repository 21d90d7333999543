/* fuzz_folder.c - any bytes as one of the JSON files of a checkpoint folder: the index, config.json or ferry.json, beside
 * files of tensors that are as they should be. The folder opens, or the complaint is one line that says where.
 *
 * The first byte chooses the file ('i', 'c', 'f'; of others, what is left after division). */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/ckpt.h>

#include "support/ckpt_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[64];
static char whole[96]; /* a Hugging Face folder of two files */
static char ranks[96]; /* the same on two ranks */

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

static void clean(void) {
    ckpt_remove(root);
}

static void make_folders(void) {
    ckpt_model_t model = {.count = 0};
    ckpt_temp(root);
    (void)snprintf(whole, sizeof whole, "%s/whole", root);
    (void)snprintf(ranks, sizeof ranks, "%s/ranks", root);
    ckpt_small_llama(&model, 2);
    ckpt_write_folder(&model, whole, 2);
    ckpt_model_fini(&model);
    ferry_folder_t *folder = NULL;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    params.parallel.tp = 2;
    params.workers = 1;
    insist(ferry_folder_open(whole, NULL, &folder, NULL) == FERRY_OK);
    insist(ferry_convert(folder, ranks, &params, NULL, NULL) == FERRY_OK);
    ferry_folder_close(folder);
    (void)atexit(clean);
}

static void write_file(const char *folder, const char *name, const uint8_t *data, size_t size) {
    char path[192];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    insist(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    (void)close(fd);
}

/* What opened can be asked, and holds together. */
static void look(ferry_folder_t *folder) {
    size_t count = 0;
    const ferry_tensor_t *tensors = ferry_folder_tensors(folder, &count);
    for (size_t i = 0; i < count; i++) {
        insist(i == 0 || strcmp(tensors[i - 1].name, tensors[i].name) < 0);
        insist(tensors[i].layout != NULL && tensors[i].ndim <= FERRY_MAX_DIMS);
    }
    insist(ferry_folder_nfiles(folder) > 0 && ferry_folder_nranks(folder) > 0);
    ferry_parallel_t parallel = FERRY_PARALLEL_INIT;
    parallel.tp = 2;
    ferry_tensor_set_t *set = NULL;
    if (ferry_folder_place(folder, &parallel, FERRY_F32, &set, NULL) == FERRY_OK) {
        ferry_tensor_set_destroy(set);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        char key;
        const char *name;
    } files[] = {{'i', "model.safetensors.index.json"}, {'c', "config.json"}, {'f', "ferry.json"}};
    static uint8_t kept[3][65536]; /* the good ones */
    static size_t lengths[3];
    if (size == 0) {
        return 0;
    }
    if (root[0] == '\0') {
        make_folders();
        for (size_t i = 0; i < 3; i++) {
            char path[192];
            (void)snprintf(path, sizeof path, "%s/%s", i == 2 ? ranks : whole, files[i].name);
            FILE *file = fopen(path, "rb");
            insist(file != NULL);
            lengths[i] = fread(kept[i], 1, sizeof kept[i], file);
            (void)fclose(file);
        }
    }
    size_t which = data[0] % 3;
    for (size_t i = 0; i < 3; i++) {
        which = data[0] == (uint8_t)files[i].key ? i : which;
    }
    const char *path = which == 2 ? ranks : whole;
    write_file(path, files[which].name, data + 1, size - 1);
    ferry_folder_t *folder = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_folder_open(path, NULL, &folder, &err);
    insist((status == FERRY_OK) == (folder != NULL) && status == err.status);
    insist((status == FERRY_OK) == (err.text[0] == '\0'));
    insist(status == FERRY_OK || status == FERRY_NOMEM || strstr(err.text, path) != NULL);
    if (status == FERRY_OK) {
        look(folder);
    }
    ferry_folder_close(folder);
    write_file(path, files[which].name, kept[which], lengths[which]);
    return 0;
}
