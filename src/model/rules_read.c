/* rules_read.c - text to rules. The grammar is docs/formats/rules.md.
 *
 * One statement a line, read word by word. Every error names line and column. Nothing is allocated by a
 * number that the text merely claims, and what a short text can expand to is limited. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "model/rules.h"

/* `let NAME TEXT`: $NAME stands for the text. */
typedef struct shorthand {
    const char *name;
    const char *text;
} shorthand_t;

typedef struct reader {
    ferry_rules_t *rules;
    const char *name; /* for messages */
    uint32_t line;
    const char *start; /* of the line */
    const char *at;
    const char *end;           /* of the line, without a comment */
    const char *word;          /* where the last word began */
    char text[FY_MAX_PATTERN]; /* the last word, shorthands written out */
    shorthand_t *lets;
    size_t nlets, lets_cap;
    size_t names; /* of all forms too */
    ferry_error_t *err;
} reader_t;

/* ---- errors ------------------------------------------------------------------------------------ */

/* Says where the record's line was found wrong. */
static ferry_status_t placed(reader_t *r, const char *at, ferry_status_t status) {
    char place[128];
    fy_text_t text;
    fy_text_init(&text, place, sizeof place);
    fy_text_printf(&text, "%.64s, line %" PRIu32 ", column %zu", r->name, r->line,
                   (size_t)(at - r->start) + 1);
    fy_error_prefix(r->err, place);
    return status;
}

#define FAIL_AT(r, at, ...) placed((r), (at), fy_fail((r)->err, FERRY_PARSE, __VA_ARGS__))

static ferry_status_t no_memory(reader_t *r) {
    return fy_fail_nomem(r->err, "rules");
}

/* ---- words ------------------------------------------------------------------------------------- */

static void skip_spaces(reader_t *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t')) {
        r->at++;
    }
}

static bool at_end(reader_t *r) {
    skip_spaces(r);
    return r->at == r->end;
}

static bool is_name_char(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '-'));
}

/* The length of the name that begins at c: letters, digits, _ and, where they may be, dashes. */
static size_t name_length(const char *c, const char *end, bool dashes) {
    size_t length = 0;
    while (c + length < end && is_name_char(c[length], length == 0) &&
           (dashes || c[length] != '-')) {
        length++;
    }
    return length;
}

static const char *find_shorthand(const reader_t *r, const char *name, size_t length) {
    for (size_t i = 0; i < r->nlets; i++) {
        if (strlen(r->lets[i].name) == length && memcmp(r->lets[i].name, name, length) == 0) {
            return r->lets[i].text;
        }
    }
    return NULL;
}

/* Reads the next word into r->text; an empty one at the end of the line. */
static ferry_status_t next_word(reader_t *r) {
    skip_spaces(r);
    r->word = r->at;
    size_t used = 0;
    while (r->at < r->end && *r->at != ' ' && *r->at != '\t') {
        const char *from = r->at;
        size_t length = 1;
        r->at++;
        if (*from == '$') {
            size_t name = name_length(r->at, r->end, false);
            from = find_shorthand(r, r->at, name);
            if (from == NULL) {
                return FAIL_AT(r, r->at - 1, "$%.*s is not defined; `let %.*s TEXT` does that",
                               (int)(name < 32 ? name : 32), r->at, (int)(name < 32 ? name : 32),
                               r->at);
            }
            length = strlen(from);
            r->at += name;
        }
        if (length >= sizeof r->text - used) {
            return FAIL_AT(r, r->word, "the word is longer than %d bytes", FY_MAX_PATTERN - 1);
        }
        memcpy(r->text + used, from, length);
        used += length;
    }
    r->text[used] = '\0';
    return FERRY_OK;
}

static ferry_status_t expected(reader_t *r, const char *what) {
    if (r->word == r->end) {
        return FAIL_AT(r, r->word, "expected %s, found the end of the line", what);
    }
    return FAIL_AT(r, r->word, "expected %s, found \"%.40s\"", what, r->text);
}

static bool word_is(const reader_t *r, const char *word) {
    return strcmp(r->text, word) == 0;
}

/* Takes the next word when it is this one. */
static bool take(reader_t *r, const char *word) {
    skip_spaces(r);
    size_t length = strlen(word);
    size_t left = (size_t)(r->end - r->at);
    if (left < length || memcmp(r->at, word, length) != 0 ||
        (left > length && r->at[length] != ' ' && r->at[length] != '\t')) {
        return false;
    }
    r->at += length;
    return true;
}

static ferry_status_t need_end(reader_t *r) {
    if (at_end(r)) {
        return FERRY_OK;
    }
    FY_TRY(next_word(r));
    return expected(r, "the end of the line");
}

/* A name of a thing that the text defines. */
static ferry_status_t read_name(reader_t *r, const char *what, const char **name_p) {
    FY_TRY(next_word(r));
    size_t length = strlen(r->text);
    if (length == 0 || name_length(r->text, r->text + length, true) != length) {
        return expected(r, what);
    }
    *name_p = fy_arena_string(&r->rules->arena, r->text);
    return *name_p != NULL ? FERRY_OK : no_memory(r);
}

static ferry_status_t read_dim(reader_t *r, uint32_t *dim_p) {
    FY_TRY(next_word(r));
    const char *cursor = r->text;
    uint64_t dim = 0;
    if (!fy_text_read_u64(&cursor, &dim) || *cursor != '\0' || dim >= FERRY_MAX_DIMS) {
        return expected(r, "a dim, 0 to 15");
    }
    *dim_p = (uint32_t)dim;
    return FERRY_OK;
}

static ferry_status_t read_expression(reader_t *r, const char *end, fy_expression_t *expression) {
    const char *at = r->at;
    const char *wrong = fy_expression_read(r->at, end, r->rules->numbers, r->rules->nnumbers,
                                           &r->rules->arena, expression, &at);
    if (wrong != NULL) {
        return wrong == fy_expression_no_memory ? no_memory(r) : FAIL_AT(r, at, "%s", wrong);
    }
    r->at = end;
    return FERRY_OK;
}

/* After `by`: an expression without blanks. */
static ferry_status_t read_unit(reader_t *r, fy_expression_t *expression) {
    skip_spaces(r);
    const char *end = r->at;
    while (end < r->end && *end != ' ' && *end != '\t') {
        end++;
    }
    return read_expression(r, end, expression);
}

/* A pattern, as it is written, in r->text. */
static ferry_status_t read_pattern(reader_t *r, fy_groups_t *groups_p) {
    FY_TRY(next_word(r));
    if (r->text[0] == '\0') {
        return expected(r, "a pattern of names");
    }
    size_t at = 0;
    const char *wrong = fy_pattern_groups(r->text, groups_p, &at);
    if (wrong != NULL) {
        return FAIL_AT(r, r->word, "in \"%.100s\" at \"%.16s\": %s", r->text, r->text + at, wrong);
    }
    return FERRY_OK;
}

/* One of the names that r->text stands for, in the arena. */
static const char *expand(reader_t *r, const char *pattern, const fy_groups_t *groups,
                          uint32_t choice) {
    char text[FY_MAX_PATTERN];
    fy_pattern_expand(pattern, groups, choice, text);
    return fy_arena_string(&r->rules->arena, text);
}

static ferry_status_t add_name(reader_t *r, fy_named_t **names, size_t *count, size_t *cap,
                               fy_named_t name) {
    if (name.pattern == NULL || !fy_reserve(names, cap, *count + 1, sizeof name)) {
        return no_memory(r);
    }
    if (r->names++ == FY_MAX_NAMES) {
        return FAIL_AT(r, r->start, "the rules have more than %d names", FY_MAX_NAMES);
    }
    (*names)[(*count)++] = name;
    return FERRY_OK;
}

/* ---- tensor ------------------------------------------------------------------------------------ */

static ferry_status_t read_by(reader_t *r, fy_expression_t *unit) {
    return take(r, "by") ? read_unit(r, unit) : FERRY_OK;
}

/* whole | tp DIM [by EXPR] | etp DIM [by EXPR] | query DIM | kv DIM */
static ferry_status_t read_cut(reader_t *r, bool expert, fy_tensor_rule_t *rule) {
    FY_TRY(next_word(r));
    bool etp = word_is(r, "etp");
    rule->way.expert = expert;
    if (word_is(r, "whole")) {
        return FERRY_OK;
    }
    if (word_is(r, "query")) {
        rule->way.cut = FY_CUT_QUERY;
    } else if (word_is(r, "kv")) {
        rule->way.cut = FY_CUT_KEY_VALUE;
    } else if (etp || word_is(r, "tp")) {
        rule->way.cut = FY_CUT_PLAIN;
    } else {
        return expected(r, "a cut: whole, tp, etp, query or kv");
    }
    if (etp != expert) {
        return FAIL_AT(r, r->word,
                       etp ? "etp cuts tensors of experts: there is no {expert} in the name"
                           : "tensors of experts are cut by etp");
    }
    FY_TRY(read_dim(r, &rule->way.dim));
    return rule->way.cut == FY_CUT_PLAIN ? read_by(r, &rule->unit) : FERRY_OK;
}

/* [on first | last | ends] [tied NAME] */
static ferry_status_t read_place(reader_t *r, bool layer, fy_tensor_rule_t *rule) {
    if (!take(r, "on")) {
        if (!layer) {
            FY_TRY(next_word(r));
            return expected(r,
                            "`on first`, `on last` or `on ends` (there is no {layer} in the name)");
        }
        return FERRY_OK;
    }
    FY_TRY(next_word(r));
    if (word_is(r, "first")) {
        rule->where = FY_ON_FIRST;
    } else if (word_is(r, "last")) {
        rule->where = FY_ON_LAST;
    } else if (word_is(r, "ends")) {
        rule->where = FY_ON_ENDS;
    } else {
        return expected(r, "first, last or ends");
    }
    if (rule->where == FY_ON_ENDS && rule->way.expert) {
        return FAIL_AT(r, r->word, "an expert lies on one stage");
    }
    if (take(r, "tied")) {
        FY_TRY(next_word(r));
        if (rule->way.expert || rule->where != FY_ON_FIRST || r->text[0] == '\0') {
            return FAIL_AT(r, r->word, "tied goes with `on first` and the name of a tensor");
        }
        rule->tied = fy_arena_string(&r->rules->arena, r->text);
        return rule->tied != NULL ? FERRY_OK : no_memory(r);
    }
    return FERRY_OK;
}

/* tensor PATTERN CUT [PLACE] */
static ferry_status_t read_tensor(reader_t *r) {
    ferry_rules_t *rules = r->rules;
    fy_groups_t groups;
    char pattern[FY_MAX_PATTERN];
    FY_TRY(read_pattern(r, &groups));
    memcpy(pattern, r->text, sizeof pattern);
    if (!fy_reserve(&rules->rules, &rules->rules_cap, rules->nrules + 1, sizeof *rules->rules)) {
        return no_memory(r);
    }
    uint32_t index = (uint32_t)rules->nrules++;
    fy_tensor_rule_t *rule = &rules->rules[index];
    *rule = (fy_tensor_rule_t){.line = r->line};
    FY_TRY(read_cut(r, strstr(pattern, "{expert}") != NULL, rule));
    FY_TRY(read_place(r, strstr(pattern, "{layer}") != NULL, rule));
    for (uint32_t i = 0; i < groups.expanded; i++) {
        fy_named_t name = {expand(r, pattern, &groups, i), index, 0};
        FY_TRY(add_name(r, &rules->names, &rules->nnames, &rules->names_cap, name));
    }
    return need_end(r);
}

/* ---- forms ------------------------------------------------------------------------------------- */

/* form NAME */
static ferry_status_t read_form(reader_t *r) {
    ferry_rules_t *rules = r->rules;
    fy_form_t form = {.name = NULL};
    FY_TRY(read_name(r, "the name of a form", &form.name));
    bool known = strcmp(form.name, "hf") == 0;
    for (size_t i = 0; i < rules->nforms; i++) {
        known = known || strcmp(form.name, rules->forms[i].name) == 0;
    }
    if (known) {
        return FAIL_AT(r, r->word, "there is a form %.40s already", form.name);
    }
    if (!fy_reserve(&rules->forms, &rules->forms_cap, rules->nforms + 1, sizeof form)) {
        return no_memory(r);
    }
    rules->forms[rules->nforms++] = form;
    return need_end(r);
}

/* What a statement `stored` says, before its alternatives are expanded. */
typedef struct stored {
    fy_stored_rule_t rule; /* its patterns as they are written */
    fy_groups_t groups;
} stored_t;

static ferry_status_t read_interleave_unit(reader_t *r, fy_stored_rule_t *rule) {
    ferry_rules_t *rules = r->rules;
    if (rule->joint != FY_INTERLEAVE) {
        return FERRY_OK;
    }
    if (!take(r, "by")) {
        FY_TRY(next_word(r));
        return expected(r, "`by` and the length that is taken in turn");
    }
    if (!fy_reserve(&rules->units, &rules->units_cap, rules->nunits + 1, sizeof *rules->units)) {
        return no_memory(r);
    }
    fy_expression_t *unit = fy_alloc_zero(1, sizeof *unit);
    if (unit == NULL) {
        return no_memory(r);
    }
    rules->units[rules->nunits++] = unit;
    rule->units[rule->nsources - 1] = unit;
    return read_unit(r, unit);
}

/* The captures of a source must be those of the target, and {expert} too when experts are stacked. */
static ferry_status_t check_captures(reader_t *r, const fy_stored_rule_t *rule) {
    bool expert = strstr(r->text, "{expert}") != NULL;
    bool target_expert = strstr(rule->target, "{expert}") != NULL;
    bool layer = strstr(r->text, "{layer}") != NULL;
    if (layer != (strstr(rule->target, "{layer}") != NULL)) {
        return FAIL_AT(r, r->word, "{layer} is in one of the two names only");
    }
    if (rule->stack ? !expert || target_expert : expert != target_expert) {
        return FAIL_AT(r, r->word,
                       rule->stack ? "stack needs {expert} in every source and not in the target"
                                   : "{expert} is in one of the two names only (`stack` it?)");
    }
    return FERRY_OK;
}

static ferry_status_t read_source(reader_t *r, stored_t *stored) {
    fy_stored_rule_t *rule = &stored->rule;
    fy_groups_t groups;
    FY_TRY(read_pattern(r, &groups));
    if (rule->nsources == FY_MAX_SOURCES || (rule->joint == FY_ALONE && rule->nsources == 1)) {
        return FAIL_AT(r, r->word,
                       rule->joint == FY_ALONE ? "several sources need concat or interleave"
                                               : "at most 16 sources make one tensor");
    }
    if (groups.count != stored->groups.count ||
        memcmp(groups.options, stored->groups.options, groups.count * sizeof groups.options[0]) !=
            0) {
        return FAIL_AT(r, r->word, "a source has as many alternatives as its target");
    }
    FY_TRY(check_captures(r, rule));
    const char *text = fy_arena_string(&r->rules->arena, r->text);
    if (text == NULL) {
        return no_memory(r);
    }
    rule->sources[rule->nsources++] = text;
    return read_interleave_unit(r, rule);
}

/* [stack] [concat DIM | interleave DIM] [transposed] SOURCE ... */
static ferry_status_t read_sources(reader_t *r, stored_t *stored) {
    fy_stored_rule_t *rule = &stored->rule;
    rule->stack = take(r, "stack");
    if (take(r, "concat")) {
        rule->joint = FY_CONCAT;
    } else if (take(r, "interleave")) {
        rule->joint = FY_INTERLEAVE;
    }
    if (rule->joint != FY_ALONE) {
        FY_TRY(read_dim(r, &rule->dim));
    }
    rule->transposed = take(r, "transposed");
    do {
        FY_TRY(read_source(r, stored));
    } while (!at_end(r));
    return FERRY_OK;
}

static ferry_status_t add_stored(reader_t *r, const stored_t *stored, uint32_t choice) {
    fy_form_t *form = &r->rules->forms[r->rules->nforms - 1];
    if (!fy_reserve(&form->stored, &form->stored_cap, form->nstored + 1, sizeof *form->stored)) {
        return no_memory(r);
    }
    fy_stored_rule_t rule = stored->rule;
    rule.target = expand(r, stored->rule.target, &stored->groups, choice);
    if (rule.target == NULL) {
        return no_memory(r);
    }
    uint32_t index = (uint32_t)form->nstored;
    for (uint32_t s = 0; s < rule.nsources; s++) {
        rule.sources[s] = expand(r, stored->rule.sources[s], &stored->groups, choice);
        FY_TRY(add_name(r, &form->names, &form->nnames, &form->names_cap,
                        (fy_named_t){rule.sources[s], index, s}));
    }
    form->stored[form->nstored++] = rule;
    return FERRY_OK;
}

/* stored TARGET = SOURCES */
static ferry_status_t read_stored(reader_t *r) {
    stored_t stored = {.rule = {.line = r->line}};
    if (r->rules->nforms == 0) {
        return FAIL_AT(r, r->start, "`stored` belongs below a `form`");
    }
    FY_TRY(read_pattern(r, &stored.groups));
    stored.rule.target = fy_arena_string(&r->rules->arena, r->text);
    if (stored.rule.target == NULL) {
        return no_memory(r);
    }
    if (!take(r, "=")) {
        FY_TRY(next_word(r));
        return expected(r, "'='");
    }
    FY_TRY(read_sources(r, &stored));
    for (uint32_t i = 0; i < stored.groups.expanded; i++) {
        FY_TRY(add_stored(r, &stored, i));
    }
    return FERRY_OK;
}

/* ---- the other statements ---------------------------------------------------------------------- */

/* rules NAME */
static ferry_status_t read_rules(reader_t *r) {
    if (r->rules->name != NULL) {
        return FAIL_AT(r, r->start, "the rules have a name already: %.40s", r->rules->name);
    }
    FY_TRY(read_name(r, "the name of the rules", &r->rules->name));
    return need_end(r);
}

/* types NAME ... */
static ferry_status_t read_types(reader_t *r) {
    ferry_rules_t *rules = r->rules;
    do {
        const char *type = NULL;
        FY_TRY(read_name(r, "a model_type", &type));
        if (!fy_reserve(&rules->types, &rules->types_cap, rules->ntypes + 1, sizeof type)) {
            return no_memory(r);
        }
        rules->types[rules->ntypes++] = type;
    } while (!at_end(r));
    return FERRY_OK;
}

/* let NAME TEXT */
static ferry_status_t read_let(reader_t *r) {
    shorthand_t let = {NULL, NULL};
    FY_TRY(next_word(r));
    size_t length = strlen(r->text);
    if (length == 0 || name_length(r->text, r->text + length, false) != length) {
        return expected(r, "a name for $NAME");
    }
    if (find_shorthand(r, r->text, length) != NULL) {
        return FAIL_AT(r, r->word, "$%.40s is defined twice", r->text);
    }
    let.name = fy_arena_string(&r->rules->arena, r->text);
    FY_TRY(next_word(r));
    if (r->text[0] == '\0') {
        return expected(r, "the text that it stands for");
    }
    let.text = fy_arena_string(&r->rules->arena, r->text);
    if (let.name == NULL || let.text == NULL ||
        !fy_reserve(&r->lets, &r->lets_cap, r->nlets + 1, sizeof let)) {
        return no_memory(r);
    }
    r->lets[r->nlets++] = let;
    return need_end(r);
}

/* number NAME = EXPRESSION */
static ferry_status_t read_number(reader_t *r) {
    ferry_rules_t *rules = r->rules;
    fy_number_t number = {.name = NULL};
    FY_TRY(read_name(r, "the name of a number", &number.name));
    for (size_t i = 0; i < rules->nnumbers; i++) {
        if (strcmp(rules->numbers[i].name, number.name) == 0) {
            return FAIL_AT(r, r->word, "number %.40s is defined twice", number.name);
        }
    }
    if (!take(r, "=")) {
        FY_TRY(next_word(r));
        return expected(r, "'='");
    }
    if (!fy_reserve(&rules->numbers, &rules->numbers_cap, rules->nnumbers + 1, sizeof number)) {
        return no_memory(r);
    }
    ferry_status_t status = read_expression(r, r->end, &number.expression);
    rules->numbers[rules->nnumbers++] = number;
    return status;
}

/* extra_layers last */
static ferry_status_t read_extra_layers(reader_t *r) {
    if (!take(r, "last")) {
        FY_TRY(next_word(r));
        return expected(r, "last");
    }
    r->rules->extra_layers = true;
    return need_end(r);
}

static const struct statement {
    const char *word;
    ferry_status_t (*read)(reader_t *r);
} statements[] = {
    {"tensor", read_tensor}, {"stored", read_stored},
    {"let", read_let},       {"number", read_number},
    {"form", read_form},     {"rules", read_rules},
    {"types", read_types},   {"extra_layers", read_extra_layers},
};

static ferry_status_t read_statement(reader_t *r) {
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (take(r, statements[i].word)) {
            if (r->rules->name == NULL && statements[i].read != read_rules) {
                return FAIL_AT(r, r->start, "expected `rules NAME` as the first statement");
            }
            return statements[i].read(r);
        }
    }
    FY_TRY(next_word(r));
    return expected(r, "rules, types, let, number, extra_layers, tensor, form or stored");
}

static ferry_status_t read_lines(reader_t *r, const char *text) {
    while (*text != '\0') {
        r->line++;
        r->start = text;
        r->at = text;
        r->end = text + strcspn(text, "#\r\n");
        text += strcspn(text, "\n");
        text += *text == '\n';
        while (r->end > r->start && (r->end[-1] == ' ' || r->end[-1] == '\t')) {
            r->end--;
        }
        if (!at_end(r)) {
            FY_TRY(read_statement(r));
        }
    }
    return FERRY_OK;
}

/* ---- when all is read -------------------------------------------------------------------------- */

static bool has_number(const ferry_rules_t *rules, const char *name) {
    for (size_t i = 0; i < rules->nnumbers; i++) {
        if (strcmp(rules->numbers[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Cuts by heads need to know how many there are. */
static ferry_status_t check_heads(reader_t *r) {
    static const char *const needed[] = {"heads", "kv_heads", "head_dim"};
    for (size_t i = 0; i < r->rules->nrules; i++) {
        fy_axis_cut_t cut = r->rules->rules[i].way.cut;
        for (size_t n = 0; n < 3 && (cut == FY_CUT_QUERY || cut == FY_CUT_KEY_VALUE); n++) {
            if (!has_number(r->rules, needed[n])) {
                r->line = r->rules->rules[i].line;
                return FAIL_AT(r, r->start,
                               "%s needs the numbers heads, kv_heads and head_dim, and there is no "
                               "`number %s = ...`",
                               cut == FY_CUT_QUERY ? "query" : "kv", needed[n]);
            }
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_rules_parse(const char *text, const char *name, ferry_rules_t **rules_p,
                                 ferry_error_t *err) {
    FY_NEED(text, err);
    FY_NEED(rules_p, err);
    ferry_rules_t *rules = fy_alloc_zero(1, sizeof *rules);
    if (rules == NULL) {
        return fy_fail_nomem(err, "rules");
    }
    reader_t r = {.rules = rules, .name = name != NULL ? name : "rules", .start = text, .err = err};
    ferry_status_t status = read_lines(&r, text);
    if (status == FERRY_OK && rules->nrules == 0) {
        r.start = text;
        r.line += r.line == 0;
        status = FAIL_AT(&r, text, "there is no statement `tensor`");
    }
    if (status == FERRY_OK) {
        r.start = text;
        status = check_heads(&r);
    }
    fy_free(r.lets);
    if (status != FERRY_OK) {
        ferry_rules_destroy(rules);
        return status;
    }
    fy_names_sort(rules->names, rules->nnames);
    for (size_t i = 0; i < rules->nforms; i++) {
        fy_names_sort(rules->forms[i].names, rules->forms[i].nnames);
    }
    *rules_p = rules;
    return FERRY_OK;
}

void ferry_rules_destroy(ferry_rules_t *rules) {
    if (rules == NULL) {
        return;
    }
    for (size_t i = 0; i < rules->nnumbers; i++) {
        fy_free(rules->numbers[i].expression.steps);
    }
    for (size_t i = 0; i < rules->nrules; i++) {
        fy_free(rules->rules[i].unit.steps);
    }
    for (size_t i = 0; i < rules->nunits; i++) {
        fy_free(rules->units[i]->steps);
        fy_free(rules->units[i]);
    }
    for (size_t i = 0; i < rules->nforms; i++) {
        fy_free(rules->forms[i].stored);
        fy_free(rules->forms[i].names);
    }
    fy_free(rules->types);
    fy_free(rules->numbers);
    fy_free(rules->rules);
    fy_free(rules->names);
    fy_free(rules->forms);
    fy_free(rules->units);
    fy_arena_fini(&rules->arena);
    fy_free(rules);
}
