/* names.c - patterns of tensor names: reading, expanding, matching, finding. */
#include "model/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

static const struct capture {
    const char *text;
    char code;
} captures[] = {{"{layer}", FY_LAYER}, {"{expert}", FY_EXPERT}};

/* The capture that is written at `text`, or NULL. */
static const struct capture *capture_at(const char *text) {
    for (size_t i = 0; i < sizeof captures / sizeof captures[0]; i++) {
        if (strncmp(text, captures[i].text, strlen(captures[i].text)) == 0) {
            return &captures[i];
        }
    }
    return NULL;
}

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/' || c == ':';
}

/* Walks over "(weight|bias)"; NULL or what is wrong. */
static const char *read_group(const char **cursor, fy_groups_t *groups) {
    const char *c = *cursor + 1;
    uint32_t options = 1;
    bool empty = true;
    if (groups->count == FY_MAX_GROUPS) {
        return "a pattern has at most 4 groups of alternatives";
    }
    for (;; c++) {
        *cursor = c;
        if (is_plain(*c)) {
            empty = false;
            continue;
        }
        if (*c != '|' && *c != ')') {
            return "alternatives are letters, digits, '.', '_' or '-', with '|' between them and "
                   "')' at the end";
        }
        if (empty) {
            return "an alternative is empty";
        }
        if (*c == ')') {
            break;
        }
        empty = true;
        options++;
    }
    *cursor = c + 1;
    groups->options[groups->count++] = options;
    if (options > FY_MAX_EXPANDED || groups->expanded * options > FY_MAX_EXPANDED) {
        return "the alternatives make more than 64 names";
    }
    groups->expanded *= options;
    return NULL;
}

/* Walks over "{layer}"; NULL or what is wrong. */
static const char *read_capture(const char *start, const char **cursor, uint32_t *seen) {
    const char *c = *cursor;
    const struct capture *capture = capture_at(c);
    if (capture == NULL) {
        return "a capture is {layer} or {expert}";
    }
    if ((*seen & (1u << capture->code)) != 0) {
        return "a pattern has each capture at most once";
    }
    *seen |= 1u << capture->code;
    const char *after = c + strlen(capture->text);
    if ((c > start && c[-1] != '.') || (*after != '\0' && *after != '.')) {
        return "a capture stands for all that is between two dots";
    }
    *cursor = after;
    return NULL;
}

const char *fy_pattern_groups(const char *pattern, fy_groups_t *groups_p, size_t *at_p) {
    fy_groups_t groups = {.expanded = 1};
    uint32_t seen = 0;
    const char *wrong = NULL;
    const char *c = pattern;
    while (*c != '\0' && wrong == NULL) {
        if (is_plain(*c)) {
            c++;
        } else if (*c == '(') {
            wrong = read_group(&c, &groups);
        } else if (*c == '{') {
            wrong = read_capture(pattern, &c, &seen);
        } else {
            wrong = "no character of a name";
        }
    }
    *groups_p = groups;
    *at_p = (size_t)(c - pattern);
    return wrong;
}

/* Copies option number `option` of the group at `c`; returns what follows the group. */
static const char *copy_option(const char *c, uint32_t option, char **out) {
    c++;
    for (; option > 0; option--) {
        c = strchr(c, '|') + 1;
    }
    for (; *c != '|' && *c != ')'; c++) {
        *(*out)++ = *c;
    }
    return strchr(c, ')') + 1;
}

void fy_pattern_expand(const char *pattern, const fy_groups_t *groups, uint32_t choice,
                       char out[FY_MAX_PATTERN]) {
    uint32_t group = 0;
    for (const char *c = pattern; *c != '\0';) {
        if (*c == '(') {
            c = copy_option(c, choice % groups->options[group], &out);
            choice /= groups->options[group++];
        } else if (*c == '{') {
            const struct capture *capture = capture_at(c);
            *out++ = capture->code;
            c += strlen(capture->text);
        } else {
            *out++ = *c++;
        }
    }
    *out = '\0';
}

/* ---- matching ---------------------------------------------------------------------------------- */

bool fy_pattern_has(const char *pattern, int capture) {
    return strchr(pattern, capture) != NULL;
}

/* Reads a number as it is written in names: no leading zero. */
static bool read_number(const char **cursor, uint32_t *number_p) {
    const char *c = *cursor;
    uint64_t number = 0;
    if (c[0] == '0' && c[1] >= '0' && c[1] <= '9') {
        return false;
    }
    for (; *c >= '0' && *c <= '9'; c++) {
        number = number * 10 + (uint64_t)(*c - '0');
        if (number >= UINT32_MAX) {
            return false;
        }
    }
    *number_p = (uint32_t)number;
    bool read = c > *cursor;
    *cursor = c;
    return read;
}

bool fy_pattern_match(const char *pattern, const char *name, fy_captures_t *captures_p) {
    fy_captures_t found = {0, 0};
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == FY_LAYER || *pattern == FY_EXPERT) {
            if (!read_number(&name, *pattern == FY_LAYER ? &found.layer : &found.expert)) {
                return false;
            }
        } else if (*pattern != *name++) {
            return false;
        }
    }
    *captures_p = found;
    return *name == '\0';
}

char *fy_name_number(char *out, uint32_t number) {
    char digits[10];
    uint32_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) {
        *out++ = digits[--count];
    }
    return out;
}

size_t fy_pattern_format(const char *pattern, fy_captures_t numbers, char *out) {
    char *start = out;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == FY_LAYER || *pattern == FY_EXPERT) {
            out = fy_name_number(out, *pattern == FY_LAYER ? numbers.layer : numbers.expert);
        } else {
            *out++ = *pattern;
        }
    }
    *out = '\0';
    return (size_t)(out - start);
}

/* ---- finding ----------------------------------------------------------------------------------- */

/* The next character of the skeleton, '\0' at its end. `fresh` says that a component begins here. */
static char next_in_skeleton(const char **cursor, bool *fresh) {
    const char *c = *cursor;
    if (*fresh && *c != '\0') {
        size_t length = *c == FY_LAYER || *c == FY_EXPERT ? 1 : strspn(c, "0123456789");
        if (length > 0 && (c[length] == '.' || c[length] == '\0')) {
            *fresh = false;
            *cursor = c + length;
            return '#';
        }
    }
    *fresh = *c == '.';
    *cursor = *c != '\0' ? c + 1 : c;
    return *c;
}

static int compare_skeletons(const char *a, const char *b) {
    bool fresh_a = true;
    bool fresh_b = true;
    for (;;) {
        unsigned char x = (unsigned char)next_in_skeleton(&a, &fresh_a);
        unsigned char y = (unsigned char)next_in_skeleton(&b, &fresh_b);
        if (x != y || x == '\0') {
            return x < y ? -1 : x > y;
        }
    }
}

static int compare_named(const void *a, const void *b) {
    const fy_named_t *x = a;
    const fy_named_t *y = b;
    int order = compare_skeletons(x->pattern, y->pattern);
    if (order == 0) {
        order = x->rule < y->rule ? -1 : x->rule > y->rule;
    }
    return order != 0 ? order : (x->place < y->place ? -1 : x->place > y->place);
}

void fy_names_sort(fy_named_t *names, size_t count) {
    if (count > 1) {
        qsort(names, count, sizeof *names, compare_named);
    }
}

const fy_named_t *fy_names_find(const fy_named_t *names, size_t count, const char *name,
                                fy_captures_t *captures_p, const fy_named_t **other_p) {
    size_t lo = 0;
    size_t hi = count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (compare_skeletons(names[mid].pattern, name) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    const fy_named_t *found = NULL;
    *other_p = NULL;
    for (; lo < count && compare_skeletons(names[lo].pattern, name) == 0; lo++) {
        fy_captures_t numbers;
        if (!fy_pattern_match(names[lo].pattern, name, &numbers)) {
            continue;
        }
        if (found != NULL) {
            *other_p = &names[lo];
            break;
        }
        found = &names[lo];
        *captures_p = numbers;
    }
    return found;
}
