/* names.h - patterns of tensor names.
 *
 * As people write them, patterns have captures and alternatives:
 *     model.layers.{layer}.self_attn.q_proj.(weight|bias)
 * Alternatives are expanded when the pattern is read. In what is left a capture is one byte, FY_LAYER or
 * FY_EXPERT, and stands for a number that fills a whole component of the name, between dots.
 *
 * Names are found by their skeleton: the name with '#' in place of every component that is a number or a
 * capture. So finding one among thousands of patterns is a binary search. */
#ifndef FERRY_MODEL_NAMES_H
#define FERRY_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FY_LAYER = 1,
    FY_EXPERT = 2,
    FY_MAX_PATTERN = 512,     /* bytes of a pattern, its end included */
    FY_MAX_GROUPS = 4,        /* alternatives of one pattern */
    FY_MAX_EXPANDED = 64,     /* patterns that one pattern stands for */
    FY_MAX_NAMES = 16 * 1024, /* patterns of one text */
};

/* The numbers that captures stood for; 0 where there was none. */
typedef struct fy_captures {
    uint32_t layer, expert;
} fy_captures_t;

/* How many options each group of alternatives has. */
typedef struct fy_groups {
    uint32_t count;
    uint32_t options[FY_MAX_GROUPS];
    uint32_t expanded; /* the product */
} fy_groups_t;

/* NULL, or what is wrong with the pattern and, in *at_p, where. */
const char *fy_pattern_groups(const char *pattern, fy_groups_t *groups_p, size_t *at_p);
/* Writes number `choice` (< groups->expanded) of what a well-formed pattern stands for. */
void fy_pattern_expand(const char *pattern, const fy_groups_t *groups, uint32_t choice,
                       char out[FY_MAX_PATTERN]);

/* The rest takes expanded patterns. */
bool fy_pattern_has(const char *pattern, int capture);
bool fy_pattern_match(const char *pattern, const char *name, fy_captures_t *captures_p);
/* Puts the numbers back; returns the length. `out` has room for FY_MAX_PATTERN + 20. */
size_t fy_pattern_format(const char *pattern, fy_captures_t captures, char *out);

/* Writes the digits and returns where they end. */
char *fy_name_number(char *out, uint32_t number);

/* A pattern and what it is for. */
typedef struct fy_named {
    const char *pattern; /* borrowed */
    uint32_t rule;
    uint32_t place; /* among the rule's patterns */
} fy_named_t;

void fy_names_sort(fy_named_t *names, size_t count);
/* The entry of a sorted list that matches, or NULL; *other_p is a second one, or NULL. */
const fy_named_t *fy_names_find(const fy_named_t *names, size_t count, const char *name,
                                fy_captures_t *captures_p, const fy_named_t **other_p);

#endif
