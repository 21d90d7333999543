/* parse.c - the layout language: text to layout. The grammar is docs/formats/layout.md.
 *
 * A recursive descent over one line. Every error names the column and what was expected; nothing is
 * allocated by a number that the text merely claims (a range of ranks is measured before it is
 * written out). */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "layout/layout.h"

typedef struct parser {
    const char *text;
    const char *at;
    fy_arena_t arena; /* names and lists, until the layout has copied them */
    ferry_axis_t axes[FERRY_MAX_AXES];
    ferry_placement_t placements[FERRY_MAX_AXES];
    uint32_t naxes;
    uint32_t nplacements;
    uint64_t nranks;
    uint32_t *ranks;
    ferry_error_t *err;
} parser_t;

static ferry_status_t expected(parser_t *p, const char *what) {
    char found[24] = "the end";
    if (*p->at != '\0') {
        fy_text_t text;
        fy_text_init(&text, found, sizeof found);
        fy_text_printf(&text, "'%.12s'", p->at);
    }
    return fy_fail(p->err, FERRY_PARSE, "layout '%.80s', column %zu: expected %s, found %s",
                   p->text, (size_t)(p->at - p->text) + 1, what, found);
}

static void skip_spaces(parser_t *p) {
    while (*p->at == ' ' || *p->at == '\t') {
        p->at++;
    }
}

static bool take(parser_t *p, char c) {
    skip_spaces(p);
    if (*p->at != c) {
        return false;
    }
    p->at++;
    return true;
}

static bool take_word(parser_t *p, const char *word) {
    skip_spaces(p);
    size_t length = strlen(word);
    if (strncmp(p->at, word, length) != 0 || isalnum((unsigned char)p->at[length])) {
        return false;
    }
    p->at += length;
    return true;
}

static ferry_status_t number(parser_t *p, const char *what, uint64_t most, uint64_t *value_p) {
    skip_spaces(p);
    const char *start = p->at;
    if (!isdigit((unsigned char)*p->at)) {
        return expected(p, what);
    }
    if (!fy_text_read_u64(&p->at, value_p) || *value_p > most) {
        p->at = start;
        return fy_fail(p->err, FERRY_OVERFLOW, "layout '%.80s', column %zu: %s is at most %" PRIu64,
                       p->text, (size_t)(p->at - p->text) + 1, what, most);
    }
    return FERRY_OK;
}

/* '(' number (',' number)* ')' */
static ferry_status_t number_list(parser_t *p, const char *what, const uint64_t **list_p,
                                  size_t *count_p) {
    if (!take(p, '(')) {
        return expected(p, "'('");
    }
    size_t room = 1;
    for (const char *c = p->at; *c != '\0' && *c != ')'; c++) {
        room += *c == ',';
    }
    uint64_t *list = fy_arena_alloc(&p->arena, room, sizeof *list);
    if (list == NULL) {
        return fy_fail_nomem(p->err, "a layout");
    }
    size_t count = 0;
    do {
        FY_TRY(number(p, what, UINT64_MAX, &list[count++]));
    } while (count < room && take(p, ','));
    if (!take(p, ')')) {
        return expected(p, "',' or ')'");
    }
    *list_p = list;
    *count_p = count;
    return FERRY_OK;
}

/* '(' number ')' */
static ferry_status_t argument(parser_t *p, const char *what, uint64_t *value_p) {
    if (!take(p, '(')) {
        return expected(p, "'('");
    }
    FY_TRY(number(p, what, UINT64_MAX, value_p));
    return take(p, ')') ? FERRY_OK : expected(p, "')'");
}

/* [name '='] size */
static ferry_status_t parse_axis(parser_t *p) {
    uint64_t size = 0;
    if (p->naxes == FERRY_MAX_AXES) {
        return fy_fail(p->err, FERRY_INVALID, "layout '%.80s': a mesh has at most %d axes", p->text,
                       FERRY_MAX_AXES);
    }
    ferry_axis_t *axis = &p->axes[p->naxes];
    axis->name = "";
    skip_spaces(p);
    if (isalpha((unsigned char)*p->at) || *p->at == '_') {
        const char *start = p->at;
        while (isalnum((unsigned char)*p->at) || *p->at == '_') {
            p->at++;
        }
        size_t length = (size_t)(p->at - start);
        char *name = fy_arena_alloc(&p->arena, length + 1, 1);
        if (name == NULL) {
            return fy_fail_nomem(p->err, "a layout");
        }
        memcpy(name, start, length);
        name[length] = '\0';
        axis->name = name;
        if (!take(p, '=')) {
            return expected(p, "'=' after the name of an axis");
        }
    }
    FY_TRY(number(p, "the size of a mesh axis", (uint64_t)FERRY_MAX_RANK + 1, &size));
    axis->size = (uint32_t)size;
    p->naxes++;
    if (!fy_mul_u64(p->nranks, size, &p->nranks) || p->nranks > (uint64_t)FERRY_MAX_RANK + 1) {
        return fy_fail(p->err, FERRY_OVERFLOW, "layout '%.80s': the mesh has more than %d ranks",
                       p->text, FERRY_MAX_RANK + 1);
    }
    return FERRY_OK;
}

static ferry_status_t senseless(parser_t *p, const char *what) {
    return fy_fail(p->err, FERRY_PARSE, "layout '%.80s', column %zu: %s", p->text,
                   (size_t)(p->at - p->text), what);
}

/* '/' then stride(n) | cyclic(n) | ragged(a,b,..) | sizes(a,b,..) | unit(n) */
static ferry_status_t parse_cut(parser_t *p, ferry_placement_t *out) {
    if (take_word(p, "unit")) {
        if (out->unit != 0) {
            return senseless(p, "two units in one cut");
        }
        FY_TRY(argument(p, "a unit", &out->unit));
        if (out->unit == 0) {
            return senseless(p, "a unit of 0 means nothing");
        }
        return FERRY_OK;
    }
    if (take_word(p, "sizes")) {
        if (out->nsizes != 0) {
            return senseless(p, "two lists of sizes in one cut");
        }
        return number_list(p, "a size", &out->sizes, &out->nsizes);
    }
    ferry_cut_t cut = FERRY_CUT_EVEN;
    if (take_word(p, "stride")) {
        cut = FERRY_CUT_STRIDE;
    } else if (take_word(p, "cyclic")) {
        cut = FERRY_CUT_CYCLIC;
    } else if (take_word(p, "ragged")) {
        cut = FERRY_CUT_RAGGED;
    } else {
        return expected(p, "stride, cyclic, ragged, sizes or unit");
    }
    if (out->cut != FERRY_CUT_EVEN) {
        return senseless(p, "a dim is cut in one way only: stride, cyclic, ragged or SS");
    }
    out->cut = cut;
    if (cut == FERRY_CUT_RAGGED) {
        return number_list(p, "a length", &out->lengths, &out->nlengths);
    }
    return argument(p, cut == FERRY_CUT_STRIDE ? "a stride" : "a block", &out->arg);
}

static ferry_status_t parse_partial(parser_t *p, ferry_placement_t *out) {
    out->kind = FERRY_PARTIAL;
    if (!take(p, '(')) {
        return expected(p, "'(' and a reduction, as in P(sum)");
    }
#define FIND(name, number, text)                                                                   \
    if (take_word(p, text)) {                                                                      \
        out->op = FERRY_REDUCE_##name;                                                             \
    } else
    FERRY_REDUCE_MAP(FIND) {
        return expected(p, "sum, avg, max, min or product");
    }
#undef FIND
    return take(p, ')') ? FERRY_OK : expected(p, "')'");
}

/* R | P(op) | S<dim> cuts | SS(dim,split) cuts */
static ferry_status_t parse_placement(parser_t *p) {
    ferry_placement_t *out = &p->placements[p->nplacements++];
    uint64_t dim = 0;
    skip_spaces(p);
    if (take_word(p, "R")) {
        out->kind = FERRY_REPLICATE;
        return FERRY_OK;
    }
    if (take_word(p, "P")) {
        return parse_partial(p, out);
    }
    out->kind = FERRY_SHARD;
    if (take_word(p, "SS")) {
        out->cut = FERRY_CUT_STRIDED;
        if (!take(p, '(')) {
            return expected(p, "'(' as in SS(dim,split)");
        }
        FY_TRY(number(p, "a dim", UINT32_MAX, &dim));
        if (!take(p, ',')) {
            return expected(p, "',' as in SS(dim,split)");
        }
        FY_TRY(number(p, "a split", UINT64_MAX, &out->arg));
        if (!take(p, ')')) {
            return expected(p, "')'");
        }
    } else if (*p->at == 'S') {
        p->at++;
        if (!isdigit((unsigned char)*p->at)) {
            return expected(p, "a dim, as in S0");
        }
        FY_TRY(number(p, "a dim", UINT32_MAX, &dim));
    } else {
        return expected(p, "a placement: R, S<dim>, SS(dim,split) or P(op)");
    }
    out->dim = (uint32_t)dim;
    while (take(p, '/')) {
        FY_TRY(parse_cut(p, out));
    }
    return FERRY_OK;
}

static ferry_status_t wrong_ranks(parser_t *p, const char *at_least, uint64_t listed) {
    return fy_fail(p->err, FERRY_INVALID,
                   "layout '%.80s', column %zu: the mesh has %" PRIu64 " ranks, but %s%" PRIu64
                   " are listed",
                   p->text, (size_t)(p->at - p->text) + 1, p->nranks, at_least, listed);
}

/* number ['-' number] (',' ...)* */
static ferry_status_t parse_ranks(parser_t *p) {
    uint64_t count = 0;
    p->ranks = fy_arena_alloc(&p->arena, p->nranks, sizeof *p->ranks);
    if (p->ranks == NULL) {
        return fy_fail_nomem(p->err, "the ranks of a layout");
    }
    do {
        uint64_t lo = 0;
        FY_TRY(number(p, "a rank", FERRY_MAX_RANK, &lo));
        uint64_t hi = lo;
        if (take(p, '-')) {
            FY_TRY(number(p, "a rank", FERRY_MAX_RANK, &hi));
        }
        if (hi < lo) {
            return fy_fail(p->err, FERRY_INVALID,
                           "layout '%.80s': ranks %" PRIu64 "-%" PRIu64 " count downwards", p->text,
                           lo, hi);
        }
        if (hi - lo + 1 > p->nranks - count) {
            return wrong_ranks(p, "at least ", count + (hi - lo + 1));
        }
        for (uint64_t r = lo; r <= hi; r++) {
            p->ranks[count++] = (uint32_t)r;
        }
    } while (take(p, ','));
    return count == p->nranks ? FERRY_OK : wrong_ranks(p, "", count);
}

static ferry_status_t parse_layout(parser_t *p) {
    do {
        FY_TRY(parse_axis(p));
    } while (take(p, 'x'));
    if (!take(p, ':')) {
        return expected(p, "'x' and another axis, or ':' and placements");
    }
    do {
        if (p->nplacements == p->naxes) {
            return fy_fail(p->err, FERRY_INVALID,
                           "layout '%.80s', column %zu: the mesh has %" PRIu32
                           " axes but more placements",
                           p->text, (size_t)(p->at - p->text) + 1, p->naxes);
        }
        FY_TRY(parse_placement(p));
    } while (take(p, ','));
    bool ranks = take(p, '@');
    if (!ranks && *p->at != '\0') {
        return expected(p, "',' '/' '@' or the end");
    }
    if (p->nplacements < p->naxes) {
        return fy_fail(p->err, FERRY_INVALID,
                       "layout '%.80s': %" PRIu32 " mesh axes but %" PRIu32 " placements", p->text,
                       p->naxes, p->nplacements);
    }
    if (ranks) {
        FY_TRY(parse_ranks(p));
        skip_spaces(p);
        return *p->at == '\0' ? FERRY_OK : expected(p, "',' or the end");
    }
    return FERRY_OK;
}

ferry_status_t ferry_layout_parse(const char *text, ferry_layout_t **layout_p, ferry_error_t *err) {
    FY_NEED(text, err);
    FY_NEED(layout_p, err);
    parser_t p = {0};
    p.text = text;
    p.at = text;
    p.nranks = 1;
    p.err = err;
    ferry_status_t status = parse_layout(&p);
    if (status == FERRY_OK) {
        ferry_layout_params_t params = {sizeof params, p.naxes, p.axes, p.placements, p.ranks};
        status = ferry_layout_create(&params, layout_p, err);
        if (status != FERRY_OK && status != FERRY_NOMEM && err != NULL) {
            char place[112];
            fy_text_t prefix;
            fy_text_init(&prefix, place, sizeof place);
            fy_text_printf(&prefix, "layout '%.80s'", text);
            fy_error_prefix(err, place);
        }
    }
    fy_arena_fini(&p.arena);
    return status;
}
