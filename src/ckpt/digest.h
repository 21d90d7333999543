/* digest.h - the arithmetic of the digest, one table per instruction set.
 *
 * A value is taken modulo two polynomials of degree 64 over GF(2), moduli 0 and 1, so it is a pair of 64-bit
 * numbers; bit i is the coefficient of x^i. docs/formats/digest.md defines the digest and says why.
 *
 * What a view holds is walked cell by cell, a cell being up to `cell` bytes without gaps on either side
 * (in memory, and in the whole tensor). Walking keeps one sum per place in the cell, as seen from the cell
 * it has reached: to step `d` bytes on in the tensor multiplies the sum by x^(-8 d), then the cell is
 * added. So a step costs the same whatever its length, steps back included, and the place itself is
 * multiplied in once, at the end. */
#ifndef FERRY_CKPT_DIGEST_H
#define FERRY_CKPT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/digest.h>

enum { FY_DIGEST_MODULI = 2, FY_DIGEST_CELL = 256, FY_DIGEST_WORDS = FY_DIGEST_CELL / 8 };

/* The moduli without x^64, and x^128 divided by them, without x^64 too. */
#define FY_DIGEST_MODULUS_0 UINT64_C(0x6a09e667f3bcc96d)
#define FY_DIGEST_MODULUS_1 UINT64_C(0xbb67ae8584caa753)
#define FY_DIGEST_INVERSE_0 UINT64_C(0x7831d0c4e4781952)
#define FY_DIGEST_INVERSE_1 UINT64_C(0xce7ba14a2a406250)

/* Modulo 0, modulo 1. */
typedef struct fy_pair {
    uint64_t of[FY_DIGEST_MODULI];
} fy_pair_t;

/* For those who multiply by looking up: a constant times every value of every half byte of a word. */
typedef struct fy_table {
    uint64_t of[FY_DIGEST_MODULI][16][16];
} fy_table_t;

/* A constant to multiply sums with: c and c * x^64, per modulus. */
typedef struct fy_factor {
    uint64_t of[FY_DIGEST_MODULI][2];
    const fy_table_t *table; /* or NULL; borrowed */
} fy_factor_t;

/* Per modulus, sum of word[i] * x^(64 i). Two words in a row may hold any 128 bits with the right residue. */
typedef struct fy_sums {
    _Alignas(64) uint64_t of[FY_DIGEST_MODULI][FY_DIGEST_WORDS];
} fy_sums_t;

/* Cells of `width` bytes, `pitch` bytes apart in memory. */
typedef struct fy_cells {
    size_t width; /* 1 .. cell */
    size_t count; /* >= 1 */
    ptrdiff_t pitch;
    fy_factor_t step; /* what a step to the next one multiplies with */
} fy_cells_t;

typedef struct fy_digest_way {
    const char *name;
    size_t cell; /* most bytes of a cell; a multiple of 16, at most FY_DIGEST_CELL */
    bool (*runs)(void);
    /* Fills the table of a factor that is used often. NULL where nobody reads it. */
    void (*tabulate)(const fy_factor_t *factor, fy_table_t *table);
    /* sums := sums * first + cell 0; then sums := sums * step + cell i for each other cell. */
    void (*fold)(fy_sums_t *sums, const fy_cells_t *cells, const uint8_t *data,
                 const fy_factor_t *first);
    /* What the first `width` bytes of the sums come to. */
    fy_pair_t (*finish)(const fy_sums_t *sums, size_t width);
    fy_pair_t (*multiply)(fy_pair_t a, fy_pair_t b);
} fy_digest_way_t;

extern const fy_digest_way_t fy_digest_plain;
#if defined(__x86_64__)
extern const fy_digest_way_t fy_digest_pclmul;
extern const fy_digest_way_t fy_digest_vpclmul;
#endif

/* All ways of this build, the slowest first; NULL at the end. */
extern const fy_digest_way_t *const fy_digest_ways[];

/* The way in use: the best one that runs here, within what FERRY_ISA asks for. Never NULL. */
const fy_digest_way_t *fy_digest_way(void);
/* For tests and measurements: the choice by hand; NULL goes back to the choice of its own. */
void fy_digest_force(const fy_digest_way_t *way);

/* x^(8 * bytes); with `back`, x^(-8 * bytes). */
fy_pair_t fy_digest_power(const fy_digest_way_t *way, uint64_t bytes, bool back);

#endif
