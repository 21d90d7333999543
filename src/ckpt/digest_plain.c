/* digest_plain.c - the digest's arithmetic in plain C.
 *
 * A word of a cell times the constant of a step is sixteen look-ups, one per half byte: half the entries
 * that bytes would take in the first cache are worth more than half the look-ups, because the tables
 * are made anew for every view. Sums are reduced at every step. */
#include "base/bytes.h"
#include "ckpt/digest.h"

static const uint64_t moduli[FY_DIGEST_MODULI] = {FY_DIGEST_MODULUS_0, FY_DIGEST_MODULUS_1};

static bool runs(void) {
    return true;
}

static uint64_t times_x(uint64_t a, uint64_t modulus) {
    return a << 1 ^ (modulus & (UINT64_C(0) - (a >> 63)));
}

static uint64_t multiply_one(uint64_t a, uint64_t b, uint64_t modulus) {
    uint64_t product = 0;
    for (int i = 63; i >= 0; i--) {
        product = times_x(product, modulus) ^ (a & (UINT64_C(0) - (b >> i & 1)));
    }
    return product;
}

static fy_pair_t multiply(fy_pair_t a, fy_pair_t b) {
    fy_pair_t product;
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        product.of[m] = multiply_one(a.of[m], b.of[m], moduli[m]);
    }
    return product;
}

static void tabulate(const fy_factor_t *factor, fy_table_t *table) {
    for (int m = 0; m < FY_DIGEST_MODULI; m++) {
        uint64_t power = factor->of[m][0];
        for (int i = 0; i < 16; i++) {
            uint64_t *entry = table->of[m][i];
            entry[0] = 0;
            for (int bit = 1; bit < 16; bit *= 2) {
                for (int rest = 0; rest < bit; rest++) {
                    entry[bit + rest] = entry[rest] ^ power;
                }
                power = times_x(power, moduli[m]);
            }
        }
    }
}

static uint64_t look_up(uint64_t a, const uint64_t table[16][16]) {
    uint64_t product = 0;
    for (int i = 0; i < 16; i++) {
        product ^= table[i][a >> (4 * i) & 15];
    }
    return product;
}

/* The bytes of the cell from word `i` on, those beyond its end as zeros. */
static uint64_t word_at(const uint8_t *cell, size_t width, size_t i) {
    if (width - 8 * i >= 8) {
        return fy_fixed64(cell + 8 * i);
    }
    uint64_t word = 0;
    for (size_t at = width; at-- > 8 * i;) {
        word = word << 8 | cell[at];
    }
    return word;
}

/* sums := sums * factor + cell. Words are independent of each other, so their look-ups overlap. */
static void step(fy_sums_t *sums, const fy_factor_t *factor, const uint8_t *cell, size_t width) {
    const fy_table_t *table = factor->table;
    for (size_t i = 0; 8 * i < width; i++) {
        uint64_t word = word_at(cell, width, i);
        for (int m = 0; m < FY_DIGEST_MODULI; m++) {
            uint64_t sum = sums->of[m][i];
            sum = table != NULL ? look_up(sum, table->of[m])
                                : multiply_one(sum, factor->of[m][0], moduli[m]);
            sums->of[m][i] = sum ^ word;
        }
    }
}

static void fold(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                 const fy_factor_t *first) {
    step(sums, first, data, cells->width);
    for (size_t left = cells->count - 1; left > 0; left--) {
        data += cells->pitch;
        step(sums, &cells->step, data, cells->width);
    }
}

static fy_pair_t finish(const fy_sums_t *sums, size_t width) {
    fy_pair_t sum = {{0, 0}};
    for (size_t i = (width + 7) / 8; i-- > 0;) {
        for (int m = 0; m < FY_DIGEST_MODULI; m++) {
            /* x^64 is, modulo the modulus, the modulus without its x^64. */
            sum.of[m] = multiply_one(moduli[m], sum.of[m], moduli[m]) ^ sums->of[m][i];
        }
    }
    return sum;
}

const fy_digest_way_t fy_digest_plain = {"plain", 64, runs, tabulate, fold, finish, multiply};
