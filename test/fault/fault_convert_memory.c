/* fault_convert_memory.c - a large checkpoint goes through little memory: what the process and its workers hold of their
 * own (anonymous and shared; not the mapped files, which the system may drop) is watched while they convert. The bound
 * is the buffers that were asked for and 64 MiB.
 *
 * The source is one file with holes, about 1 GiB (with FERRY_SOAK=1 about 4 GiB), in the current folder: a disk, where
 * the pages of files are not memory of their own. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ferry/ckpt.h>

#include "oracle/unit.h"
#include "support/ckpt_files.h"
#include "support/sanitizer.h"
#include "support/soak.h"

#define MIB (UINT64_C(1) << 20)
#define TMPFS 0x01021994

enum { HIDDEN = 4096, FFN = 8192, KV = 1024 };

static char root[64] = "ferry-memory-XXXXXX";

/* --- a source --------------------------------------------------------------------------------- */

static void add(ferry_new_tensor_t *list, uint64_t (*shapes)[2], size_t *count, const char *name,
                uint64_t rows, uint64_t columns) {
    shapes[*count][0] = rows;
    shapes[*count][1] = columns;
    list[*count] = (ferry_new_tensor_t){
        .name = name, .dtype = FERRY_BF16, .ndim = columns > 0 ? 2 : 1, .shape = shapes[*count]};
    (*count)++;
}

/* Returns its bytes. The header is written by ferry into a file of its own, and what follows it is a hole. */
static uint64_t make_source(const char *path, uint64_t vocab) {
    ferry_new_tensor_t list[16];
    uint64_t shapes[16][2];
    size_t count = 0;
#define L "model.layers.0."
    add(list, shapes, &count, "model.embed_tokens.weight", vocab, HIDDEN);
    add(list, shapes, &count, L "input_layernorm.weight", HIDDEN, 0);
    add(list, shapes, &count, L "self_attn.q_proj.weight", HIDDEN, HIDDEN);
    add(list, shapes, &count, L "self_attn.k_proj.weight", KV, HIDDEN);
    add(list, shapes, &count, L "self_attn.v_proj.weight", KV, HIDDEN);
    add(list, shapes, &count, L "self_attn.o_proj.weight", HIDDEN, HIDDEN);
    add(list, shapes, &count, L "post_attention_layernorm.weight", HIDDEN, 0);
    add(list, shapes, &count, L "mlp.gate_proj.weight", FFN, HIDDEN);
    add(list, shapes, &count, L "mlp.up_proj.weight", FFN, HIDDEN);
    add(list, shapes, &count, L "mlp.down_proj.weight", HIDDEN, FFN);
    add(list, shapes, &count, "model.norm.weight", HIDDEN, 0);
    add(list, shapes, &count, "lm_head.weight", vocab, HIDDEN);
    char full[160];
    (void)snprintf(full, sizeof full, "%s/model.safetensors", path);
    assert_int_equal(mkdir(path, 0777), 0);
    ferry_safetensors_writer_t *writer = NULL;
    assert_ok(ferry_safetensors_create(full, list, count, NULL, 0, &writer, &err));
    uint64_t begin = ferry_safetensors_offset(writer, 0);
    uint64_t end = ferry_safetensors_offset(writer, count);
    assert_ok(ferry_safetensors_commit(writer, &err));
    assert_int_equal(truncate(full, (off_t)begin), 0);
    assert_int_equal(truncate(full, (off_t)end), 0);
    ckpt_text(path, "config.json",
              "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"num_attention_heads\":32,"
              "\"num_key_value_heads\":8,\"head_dim\":128}");
    return end - begin;
}

/* --- watching ---------------------------------------------------------------------------------- */

/* Anonymous and shared memory of a process; 0 when it is gone. */
static uint64_t own_memory(long pid) {
    char name[64];
    char line[256];
    uint64_t bytes = 0;
    (void)snprintf(name, sizeof name, "/proc/%ld/status", pid);
    FILE *file = fopen(name, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "RssAnon:", 8) == 0 || strncmp(line, "RssShmem:", 9) == 0) {
            bytes += strtoull(strchr(line, ':') + 1, NULL, 10) * 1024;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

/* Of it and its children, added up. */
static uint64_t family_memory(long pid, size_t *children_p) {
    char name[64];
    uint64_t bytes = own_memory(pid);
    (void)snprintf(name, sizeof name, "/proc/%ld/task/%ld/children", pid, pid);
    FILE *file = fopen(name, "r");
    *children_p = 0;
    if (file == NULL) {
        return bytes;
    }
    char text[512];
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    (void)fclose(file);
    char *at = text;
    for (long child = strtol(at, &at, 10); child > 0; child = strtol(at, &at, 10)) {
        bytes += own_memory(child);
        (*children_p)++;
    }
    return bytes;
}

static int convert(const char *from, const char *to, uint64_t memory_bytes) {
    ferry_folder_t *folder = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_convert_params_t params = FERRY_CONVERT_PARAMS_INIT;
    params.kind = FERRY_FOLDER_RANKS;
    params.parallel.tp = 2;
    params.form = "megatron";
    params.memory_bytes = memory_bytes;
    params.workers = 3;
    params.verify = true;
    ferry_status_t status = ferry_folder_open(from, NULL, &folder, &err);
    if (status == FERRY_OK) {
        status = ferry_convert(folder, to, &params, NULL, &err);
    }
    ferry_folder_close(folder);
    if (status != FERRY_OK) {
        (void)fprintf(stderr, "%s: %s\n", ferry_status_name(status), err.text);
    }
    return status == FERRY_OK ? 0 : 1;
}

/* The most that the family holds while it converts. */
static uint64_t watch(const char *from, const char *to, uint64_t memory_bytes, size_t *most_p) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(convert(from, to, memory_bytes));
    }
    assert_true(pid > 0);
    uint64_t peak = 0;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        size_t children = 0;
        uint64_t bytes = family_memory(pid, &children);
        peak = bytes > peak ? bytes : peak;
        *most_p = children > *most_p ? children : *most_p;
        struct timespec pause = {0, 2000000};
        (void)nanosleep(&pause, NULL);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return peak;
}

static void memory_is_bounded(void **state) {
    (void)state;
    char from[128];
    char to[128];
    (void)snprintf(from, sizeof from, "%s/source", root);
    (void)snprintf(to, sizeof to, "%s/target", root);
    bool soak = soak_count(0, 1) == 1;
    uint64_t bytes = make_source(from, soak ? 230000 : 42000);
    uint64_t asked = (soak ? 256 : 64) * MIB;
    size_t workers = 0;
    uint64_t peak = watch(from, to, asked, &workers);
    print_message("%" PRIu64 " MiB through %" PRIu64 " MiB: %zu workers, peak %" PRIu64 " MiB\n",
                  bytes / MIB, asked / MIB, workers, peak / MIB);
    assert_int_equal(workers, 3); /* they were seen */
    assert_true(peak > MIB);
    assert_true(peak <= asked + 64 * MIB);
}

static bool can_run(void) {
    struct statfs info;
    if (SANITIZED) {
        print_message("sanitizers need memory of their own\n");
        return false;
    }
    if (statfs(".", &info) != 0 || info.f_type == TMPFS ||
        (uint64_t)info.f_bavail * (uint64_t)info.f_bsize < (uint64_t)soak_count(3, 10) << 30) {
        print_message("the current folder is no disk with room\n");
        return false;
    }
    return true;
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    ckpt_remove(root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_bounded)};
    return can_run() ? cmocka_run_group_tests(tests, make_root, remove_root) : 77;
}
