/* fuzz_layout.c - any bytes as layout text: what parses can be written, read again and asked. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

/* A few shapes; a layout fits or says why not, and what its ranks hold fits the shape. */
static void ask(const ferry_layout_t *layout) {
    static const uint64_t shapes[][3] = {{8, 6, 4}, {48, 1, 0}, {17, UINT64_MAX, 1}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint64_t local[3] = {0, 0, 0};
        size_t count = 0;
        ferry_interval_t intervals[8];
        ferry_error_t err = FERRY_ERROR_INIT;
        ferry_status_t status = ferry_layout_check(layout, 3, shapes[i], &err);
        insist((status == FERRY_OK) == (err.text[0] == '\0'));
        uint32_t rank = ferry_layout_ranks(layout)[ferry_layout_nranks(layout) - 1];
        insist(ferry_layout_local_shape(layout, 3, shapes[i], rank, local, NULL) == status);
        for (uint32_t d = 0; d < 3 && status == FERRY_OK && shapes[i][d] < 1000; d++) {
            insist(local[d] <= shapes[i][d]);
            insist(ferry_layout_intervals(layout, 3, shapes[i], rank, d, intervals, 8, &count,
                                          NULL) == FERRY_OK);
            insist((count == 0) == (local[d] == 0));
            insist(count == 0 || intervals[0].hi <= shapes[i][d]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    ferry_layout_t *layout = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_layout_parse(text, &layout, &err);
    insist(status == err.status);
    insist((status == FERRY_OK) == (layout != NULL));
    insist((status == FERRY_OK) == (err.text[0] == '\0'));
    if (layout != NULL) {
        size_t length = ferry_layout_format(layout, NULL, 0);
        char *written = malloc(length + 1);
        ferry_layout_t *again = NULL;
        insist(written != NULL && ferry_layout_format(layout, written, length + 1) == length);
        insist(ferry_layout_parse(written, &again, NULL) == FERRY_OK);
        insist(ferry_layout_equal(layout, again));
        ask(layout);
        ferry_layout_destroy(again);
        ferry_layout_destroy(layout);
        free(written);
    }
    free(text);
    return 0;
}
