/* ckpt_draw.h - random small models of the families that have rules, and random parallel specs. */
#ifndef FERRY_TEST_CKPT_DRAW_H
#define FERRY_TEST_CKPT_DRAW_H

#include "support/ckpt_files.h"

enum { CKPT_SPEC = 160 }; /* bytes of a spec */

typedef struct ckpt_drawn {
    ckpt_model_t model;
    const char *family; /* model_type */
    const char *base;   /* the dtype of its floats, when all have one; else NULL */
    uint32_t layers;    /* of pp */
    uint32_t experts;   /* 0: none */
    bool unmatched;     /* has tensors that no rule covers */
} ckpt_drawn_t;

uint64_t ckpt_draw(uint64_t *rng); /* splitmix64 */
uint64_t ckpt_below(uint64_t *rng, uint64_t bound);

/* No float is a NaN or an infinity: these need not survive a cast and back. */
void ckpt_draw_model(uint64_t *rng, ckpt_drawn_t *drawn_p);
/* "tp=3,pp=2,dp=1,..." of at most 12 ranks. It need not suit the model. */
void ckpt_draw_spec(uint64_t *rng, const ckpt_drawn_t *drawn, char spec[CKPT_SPEC]);

#endif
