/* fuzz_parallel.c - any bytes as a parallel spec: what parses keeps the rules of docs/formats/parallel.md,
 * can be written and read again, and cuts a model or says why not. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

static bool same(const ferry_parallel_t *a, const ferry_parallel_t *b) {
    return a->size == b->size && a->tp == b->tp && a->cp == b->cp && a->pp == b->pp &&
           a->dp == b->dp && a->ep == b->ep && a->etp == b->etp && strcmp(a->order, b->order) == 0;
}

/* Sizes are at most 2^20, so that no product here passes 64 bits. */
static void check_rules(const ferry_parallel_t *p) {
    insist(p->tp > 0 && p->cp > 0 && p->pp > 0 && p->dp > 0 && p->ep > 0 && p->etp > 0);
    uint64_t stage = (uint64_t)p->tp * p->cp * p->dp;
    uint32_t world = 0;
    insist(ferry_parallel_world(p, &world, NULL) == FERRY_OK);
    insist(stage <= (uint64_t)FERRY_MAX_RANK + 1 && world == stage * p->pp);
    insist(world <= (uint64_t)FERRY_MAX_RANK + 1);
    insist(stage % ((uint64_t)p->ep * p->etp) == 0);
    static const char *const names[] = {"tp", "cp", "ep", "dp", "pp"};
    for (size_t i = 0; i < 5 && p->order[0] != '\0'; i++) {
        insist(strlen(p->order) == 14 && strstr(p->order, names[i]) != NULL);
    }
}

static void write_and_read(const ferry_parallel_t *p) {
    char text[128];
    int length =
        snprintf(text, sizeof text, "etp=%u,ep=%u,dp=%u,pp=%u,cp=%u,tp=%u%s%s", p->etp, p->ep,
                 p->dp, p->pp, p->cp, p->tp, p->order[0] != '\0' ? ",order=" : "", p->order);
    ferry_parallel_t again;
    insist(length > 0 && (size_t)length < sizeof text);
    insist(ferry_parallel_parse(text, &again, NULL) == FERRY_OK && same(p, &again));
}

static void cut_a_model(const ferry_parallel_t *p) {
    ferry_tensor_set_t *set = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_model_tensors("llama3.2-1b", FERRY_BF16, p, 0, &set, &err);
    insist(status == FERRY_OK || status == FERRY_INVALID);
    insist(status == err.status && (status == FERRY_OK) == (set != NULL));
    insist((status == FERRY_OK) == (err.text[0] == '\0'));
    ferry_tensor_set_destroy(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    ferry_parallel_t parallel;
    memset(&parallel, 0x5a, sizeof parallel);
    ferry_parallel_t before = parallel;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_parallel_parse(text, &parallel, &err);
    insist(status == FERRY_OK || status == FERRY_PARSE || status == FERRY_INVALID);
    insist(status == err.status && (status == FERRY_OK) == (err.text[0] == '\0'));
    if (status == FERRY_OK) {
        check_rules(&parallel);
        write_and_read(&parallel);
        if ((uint64_t)parallel.tp * parallel.pp * parallel.dp * parallel.cp <= 64) {
            cut_a_model(&parallel);
        }
    } else {
        insist(memcmp(&parallel, &before, sizeof parallel) == 0);
        insist(ferry_parallel_parse(text, &parallel, NULL) == status);
    }
    free(text);
    return 0;
}
