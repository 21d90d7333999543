/* reshard_oracle.h - what a reshard must leave in memory, computed one element at a time.
 *
 * The second implementer of reshard.h: it knows layouts as lists of global indices (oracle.h), makes up
 * the value of every global element from a seed, folds the members of Partial groups one by one,
 * converts floats bit by bit and quantises block by block. It shares no code with src/.
 *
 * A value is its bits, in the low end of a uint64_t. */
#ifndef FERRY_TEST_RESHARD_ORACLE_H
#define FERRY_TEST_RESHARD_ORACLE_H

#include "oracle/oracle.h"

enum { RSO_NAME = 96, RSO_MX_BLOCK = 32 };

/* Which values a tensor has. */
typedef enum rso_values {
    RSO_MIXED = 0, /* mostly ordinary numbers; some of any bits, zeros, infinities and NaN */
    RSO_FINITE,    /* ordinary numbers and zeros */
    RSO_THOUSANDS, /* ordinary numbers of either sign, a thousand times larger */
} rso_values_t;

typedef enum rso_mx {
    RSO_MX_NONE = 0, /* the target is as the plan has it */
    RSO_MX_ROWS,     /* it is quantised, scales in rows */
    RSO_MX_SWIZZLED,
} rso_mx_t;

typedef struct rso_tensor {
    char name[RSO_NAME];
    uint32_t ndim;
    uint64_t shape[ORC_DIMS];
    ferry_dtype_t source_dtype;
    ferry_dtype_t target_dtype;
    rso_values_t values;
    rso_mx_t mx;
    uint32_t tied; /* 1 + the tensor whose source memory this one has too; 0: its own */
    orc_layout_t source;
    orc_layout_t target;
    /* Made by rso_open. */
    ferry_layout_t *source_layout;
    ferry_layout_t *target_layout;
    orc_side_t *from;
    orc_side_t *to;
} rso_tensor_t;

typedef struct rso_case {
    uint32_t ntensors;
    uint32_t cap;
    rso_tensor_t *tensors;
    uint32_t flags;     /* of the plan, besides the part */
    ferry_dtype_t wire; /* wish, or FERRY_DTYPE_NONE */
    bool saturate;      /* casts to f8e4m3 do */
    size_t nhosts;
    uint32_t hosts[ORC_HOSTS];
    uint32_t nranks; /* largest rank + 1; made by rso_open */
} rso_case_t;

/* ---- cases ---- */

/* A tensor more; it is zero but for its name and dtypes. Pointers to others may move. */
rso_tensor_t *rso_add(rso_case_t *c, const char *name, ferry_dtype_t source, ferry_dtype_t target);
/* With layouts in text form; aborts on text that the library refuses: a mistake of the test. */
rso_tensor_t *rso_add_text(rso_case_t *c, const char *name, ferry_dtype_t source,
                           ferry_dtype_t target, uint32_t ndim, const uint64_t *shape,
                           const char *from, const char *to);
bool rso_open(rso_case_t *c);
void rso_close(rso_case_t *c);
/* FERRY_RANK_NONE: the whole plan. */
ferry_status_t rso_plan(const rso_case_t *c, uint32_t part_of, ferry_plan_t **plan_p,
                        ferry_error_t *err);
void rso_print(const rso_case_t *c);
/* Bits of the dtype, in bytes. */
size_t rso_width(ferry_dtype_t dtype);
bool rso_is_float(ferry_dtype_t dtype);
/* The wire dtype of a tensor, by the rule of ir.h. */
ferry_dtype_t rso_wire(const rso_case_t *c, const rso_tensor_t *tensor);
/* How many ranks have a part of each sum of the source; 1 where nothing is Partial. */
uint32_t rso_members(const rso_tensor_t *tensor);

/* ---- values ---- */

/* Casts as kernel.h has them. Equal dtypes keep their bits. */
uint64_t rso_cast(ferry_dtype_t to, ferry_dtype_t from, uint64_t bits, bool saturate);
/* A left fold as ferry_reduce has it. */
uint64_t rso_fold(ferry_dtype_t dtype, ferry_reduce_op_t op, const uint64_t *values,
                  uint32_t count);

/* One block of MXFP8: data and the exponent byte of its scale. */
void rso_quantise(ferry_dtype_t dtype, const uint64_t *values, uint8_t *data_p, uint8_t *scale_p);
/* Where the scale of row r, block c lies when swizzled, `blocks` a row; and how many bytes they all take. */
uint64_t rso_swizzled_at(uint64_t row, uint64_t block, uint64_t blocks);
uint64_t rso_swizzled_bytes(uint64_t rows, uint64_t blocks);

/* What `rank` holds, row-major without gaps, elements of the dtype; `out` has room. Nothing when the
 * rank holds nothing. Rounds have different values. */
void rso_source(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round, uint32_t rank,
                uint8_t *out);
void rso_target(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round, uint32_t rank,
                uint8_t *out);
/* A quantised target: data in the local shape; scales in rows or swizzled. `arrives` is the dtype of what is
 * quantised: FERRY_DTYPE_NONE for the source's. */
void rso_target_mx(const rso_case_t *c, uint32_t tensor, uint64_t seed, uint32_t round,
                   uint32_t rank, ferry_dtype_t arrives, uint8_t *data, uint8_t *scales);

/* The local shape; false (and zeros) when the rank is not in the mesh. */
bool rso_local_shape(const rso_tensor_t *tensor, bool source, uint32_t rank, uint64_t *shape);
uint64_t rso_elements(const rso_tensor_t *tensor, bool source, uint32_t rank);

#endif
