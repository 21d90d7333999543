/* fuzz_plan.c - any bytes as a plan file, and recipes of edits to real ones.
 *
 * An input is tried three ways: as a file; as a file whose hash is made right, so that edits get past
 * it; and as a recipe: the first byte picks one of the plans below, then four bytes an edit (kind,
 * place low, place high, value) change its encoding, which is signed again.
 * What is accepted passes its check, is right by the naive oracle, and encodes to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "oracle/oracle.h"

enum { FILE_LIMIT = 1 << 16, HASH_BYTES = 8, EDIT_BYTES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool condition) {
    if (!condition) {
        abort();
    }
}

static void sign(uint8_t *bytes, size_t length) {
    if (length >= HASH_BYTES) {
        uint64_t hash = XXH3_64bits(bytes, length - HASH_BYTES);
        for (size_t i = 0; i < HASH_BYTES; i++) {
            bytes[length - HASH_BYTES + i] = (uint8_t)(hash >> (8 * i));
        }
    }
}

static void decode(const uint8_t *bytes, size_t length) {
    ferry_plan_t *plan = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_plan_decode(bytes, length, &plan, &err);
    insist(status == err.status);
    insist((status == FERRY_OK) == (plan != NULL));
    insist((status == FERRY_OK) == (err.text[0] == '\0'));
    if (plan != NULL) {
        uint8_t *again = NULL;
        size_t length_again = 0;
        insist(ferry_plan_check(plan, NULL) == FERRY_OK);
        insist(ferry_plan_encode(plan, &again, &length_again, NULL) == FERRY_OK);
        insist(length == length_again && memcmp(bytes, again, length) == 0);
        insist(orc_judge(plan));
        ferry_free(again);
        ferry_plan_destroy(plan);
    }
}

/* ---- recipes ---- */

typedef struct made {
    uint8_t *bytes;
    size_t length;
} made_t;

static const struct {
    const char *from;
    const char *to;
    uint32_t part_of;
} plans[] = {
    {"2:S0", "2:S1@2-3", FERRY_RANK_NONE},
    {"2x2:R,S0", "3:S0/ragged(3,0,5)@1-3", FERRY_RANK_NONE},
    {"2:S0/sizes(4,2,2)", "2:S0/stride(2)", FERRY_RANK_NONE},
    {"dp=2xtp=2:P(sum),S1/unit(2)", "2:SS(0,2)@9,4", FERRY_RANK_NONE},
    {"4:S0/cyclic(1)", "1:R", FERRY_RANK_NONE},
    {"4:R@1048572-1048575", "2x2:S0,S0@7,5,3,1", FERRY_RANK_NONE},
    {"2x2:P(max),P(avg)", "2:S0@3-4", 3},
    {"2:S0", "2:R", 1},
};

enum { NPLANS = sizeof plans / sizeof *plans };

static void make(size_t number, made_t *made_p) {
    uint64_t shape[] = {8, 6};
    uint32_t hosts[] = {0, 0, 1, 1};
    orc_case_t *c = orc_case_text(FERRY_F32, 2, shape, plans[number].from, plans[number].to);
    insist(c != NULL);
    if (number % 2 == 1) {
        c->tensors[0].target_dtype = FERRY_BF16;
        c->flags = FERRY_PLAN_ALLOW_CAST;
        memcpy(c->hosts, hosts, sizeof hosts);
        c->nhosts = 4;
    }
    ferry_plan_t *plan = orc_case_plan(c, plans[number].part_of);
    insist(plan != NULL);
    insist(ferry_plan_encode(plan, &made_p->bytes, &made_p->length, NULL) == FERRY_OK);
    insist(made_p->length < FILE_LIMIT / 2);
    ferry_plan_destroy(plan);
    orc_case_free(c);
}

static size_t edit(uint8_t *bytes, size_t length, const uint8_t *how) {
    size_t body = length - HASH_BYTES;
    size_t at = body ? (how[1] | (size_t)how[2] << 8) % body : 0;
    uint8_t value = how[3];
    switch (body ? how[0] % 8 : 2) {
    case 0:
        bytes[at] = value;
        return length;
    case 1:
        bytes[at] ^= (uint8_t)(1u << value % 8);
        return length;
    case 2: /* put a byte in */
        if (length == FILE_LIMIT) {
            return length;
        }
        memmove(bytes + at + 1, bytes + at, length - at);
        bytes[at] = value;
        return length + 1;
    case 3: /* take a byte out */
        memmove(bytes + at, bytes + at + 1, length - at - 1);
        return length - 1;
    case 4:
        bytes[at] = (uint8_t)(bytes[at] + value);
        return length;
    case 5: /* swap with a place a little further */
        if (at + value < body) {
            uint8_t swap = bytes[at];
            bytes[at] = bytes[at + value];
            bytes[at + value] = swap;
        }
        return length;
    case 6: /* a number of eight bytes, all ones or all zeros */
        memset(bytes + at, value & 1 ? 0xff : 0, body - at < 8 ? body - at : 8);
        return length;
    default: /* cut the end off, leaving room for the hash */
        return at + HASH_BYTES;
    }
}

static void cook(const uint8_t *data, size_t size) {
    static made_t made[NPLANS];
    static uint8_t room[FILE_LIMIT];
    size_t number = data[0] % NPLANS;
    if (made[number].bytes == NULL) {
        make(number, &made[number]);
    }
    size_t length = made[number].length;
    memcpy(room, made[number].bytes, length);
    for (size_t i = 1; i + EDIT_BYTES <= size; i += EDIT_BYTES) {
        length = edit(room, length, data + i);
    }
    sign(room, length);
    uint8_t *exact = orc_alloc(length, 1); /* so that ASan sees its end */
    memcpy(exact, room, length);
    decode(exact, length);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size);
    if (size >= 1) {
        cook(data, size);
    }
    uint8_t *signed_ = orc_alloc(size, 1);
    memcpy(signed_, data, size);
    sign(signed_, size);
    decode(signed_, size);
    free(signed_);
    return 0;
}
