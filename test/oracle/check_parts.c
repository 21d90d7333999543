/* check_parts.c - parts against the whole, outside forms, and plans with a target added. */
#include "oracle/oracle.h"

#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

enum { MANY_RANKS = 16, SOME_PARTS = 3, CODEC_EVERY = 6 }; /* all of them would take too long */

static bool in_group(const ferry_plan_t *plan, const ferry_transfer_t *x, uint32_t rank) {
    uint32_t ranks[ORC_RANKS];
    ferry_reduce_t reduce;
    if (ferry_plan_reduce(plan, x->tensor, x->source, &reduce, ranks, ORC_RANKS, NULL)) {
        return orc_fail("no group for task %llx", (unsigned long long)x->task_id);
    }
    for (uint32_t i = 0; i < reduce.nranks; i++) {
        if (ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* A part is what of the whole names its rank, at either end or in the group that reduces. */
static bool same_part(const ferry_plan_t *whole, const orc_transfers_t *all,
                      const orc_transfers_t *part, uint32_t rank) {
    size_t n = 0;
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        if (x->source != rank && x->target != rank && !in_group(whole, x, rank)) {
            continue;
        }
        if (n >= part->count || !orc_transfer_equal(x, &part->at[n])) {
            return orc_fail("part of rank %u: task %llx is missing or differs", rank,
                            (unsigned long long)x->task_id);
        }
        n++;
    }
    return n == part->count ||
           orc_fail("part of rank %u has task %llx, which is none of its business", rank,
                    (unsigned long long)part->at[n].task_id);
}

static bool same_pair_hashes(const ferry_plan_t *whole, const ferry_plan_t *part, uint32_t rank,
                             const uint32_t *ranks, size_t nranks) {
    for (size_t i = 0; i < nranks; i++) {
        if (ferry_plan_pair_hash(whole, rank, ranks[i]) !=
                ferry_plan_pair_hash(part, rank, ranks[i]) ||
            ferry_plan_pair_hash(whole, ranks[i], rank) !=
                ferry_plan_pair_hash(part, ranks[i], rank)) {
            return orc_fail("the hashes of %u and %u differ in the part of %u", rank, ranks[i],
                            rank);
        }
    }
    return true;
}

static bool check_part(const orc_case_t *c, const ferry_plan_t *whole, const orc_transfers_t *all,
                       uint32_t rank, const uint32_t *ranks, size_t nranks, bool codec) {
    ferry_plan_t *part = orc_case_plan(c, rank);
    if (part == NULL) {
        return false;
    }
    orc_transfers_t own = orc_collect(c, part);
    ferry_error_t err = FERRY_ERROR_INIT;
    bool ok = true;
    if (ferry_plan_rank(part) != rank || ferry_plan_ntensors(part) != c->ntensors ||
        ferry_plan_flags(part) != c->flags || ferry_plan_ntransfers(part) != own.count) {
        ok = orc_fail("part of rank %u says it is of %u, %llu of %zu transfers", rank,
                      ferry_plan_rank(part), (unsigned long long)ferry_plan_ntransfers(part),
                      own.count);
    } else if (ferry_plan_hash(part) != ferry_plan_hash(whole)) {
        ok = orc_fail("part of rank %u has another hash than the whole", rank);
    } else if (ferry_plan_check(part, &err) != FERRY_OK) {
        ok = orc_fail("part of rank %u fails its check: %s", rank, err.text);
    }
    ok = ok && same_part(whole, all, &own, rank) &&
         same_pair_hashes(whole, part, rank, ranks, nranks) &&
         (!codec || orc_check_codec(c, part, &own));
    free(own.at);
    ferry_plan_destroy(part);
    return ok;
}

bool orc_check_parts(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all) {
    uint32_t ranks[ORC_ALL_RANKS + 1];
    size_t nranks = orc_case_ranks(c, ranks);
    uint32_t stranger = 0;
    for (size_t i = 0; i < nranks && ranks[i] == stranger; i++) {
        stranger++;
    }
    ranks[nranks++] = stranger;
    size_t step = nranks > MANY_RANKS ? SOME_PARTS : 1;
    for (size_t i = all->count % step; i < nranks; i += step) {
        bool codec = i % CODEC_EVERY == all->count % CODEC_EVERY;
        if (!check_part(c, plan, all, ranks[i], ranks, nranks, codec)) {
            return false;
        }
    }
    return true;
}

/* ---- outside forms ---- */

static bool same_stream(const orc_case_t *c, const ferry_plan_t *plan, const ferry_plan_t *again,
                        const orc_transfers_t *all) {
    if (ferry_plan_hash(plan) != ferry_plan_hash(again) ||
        ferry_plan_rank(plan) != ferry_plan_rank(again) ||
        ferry_plan_flags(plan) != ferry_plan_flags(again) ||
        ferry_plan_ntensors(plan) != ferry_plan_ntensors(again)) {
        return orc_fail("the decoded plan has another hash, rank or number of tensors");
    }
    orc_transfers_t back = orc_collect(c, again);
    bool ok = back.count == all->count;
    for (size_t i = 0; ok && i < all->count; i++) {
        ok = orc_transfer_equal(&all->at[i], &back.at[i]);
    }
    if (ok && all->count > 0) {
        uint32_t s = all->at[0].source;
        uint32_t t = all->at[0].target;
        ok = ferry_plan_pair_hash(plan, s, t) == ferry_plan_pair_hash(again, s, t);
    }
    free(back.at);
    return ok || orc_fail("the decoded plan has other transfers");
}

bool orc_check_codec(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all) {
    ferry_error_t err = FERRY_ERROR_INIT;
    uint8_t *bytes = NULL;
    uint8_t *bytes_again = NULL;
    size_t length = 0;
    size_t length_again = 0;
    ferry_plan_t *again = NULL;
    bool ok;
    if (ferry_plan_encode(plan, &bytes, &length, &err) != FERRY_OK) {
        ok = orc_fail("cannot encode: %s", err.text);
    } else if (ferry_plan_decode(bytes, length, &again, &err) != FERRY_OK) {
        ok = orc_fail("cannot decode: %s: %s", ferry_status_name(err.status), err.text);
    } else if (ferry_plan_check(again, &err) != FERRY_OK) {
        ok = orc_fail("the decoded plan fails its check: %s", err.text);
    } else if (ferry_plan_encode(again, &bytes_again, &length_again, &err) != FERRY_OK) {
        ok = orc_fail("cannot encode again: %s", err.text);
    } else if (length != length_again || memcmp(bytes, bytes_again, length) != 0) {
        ok = orc_fail("the bytes change when a plan is read and written");
    } else {
        ok = same_stream(c, plan, again, all);
    }
    ferry_plan_destroy(again);
    ferry_free(bytes);
    ferry_free(bytes_again);
    return ok;
}

typedef struct sink {
    uint64_t calls;
    uint64_t lines;
    uint64_t stop_after;
} sink_t;

static ferry_status_t count_lines(void *context, const char *text, size_t length) {
    sink_t *sink = context;
    if (sink->calls++ == sink->stop_after) {
        return FERRY_STOPPED;
    }
    for (size_t i = 0; i < length; i++) {
        sink->lines += text[i] == '\n';
    }
    return FERRY_OK;
}

bool orc_check_print(const ferry_plan_t *plan) {
    sink_t all = {0, 0, UINT64_MAX};
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_plan_print(plan, count_lines, &all, &err) != FERRY_OK) {
        return orc_fail("cannot print: %s", err.text);
    }
    if (all.lines < ferry_plan_ntransfers(plan) + ferry_plan_ntensors(plan)) {
        return orc_fail("%llu lines for %llu transfers", (unsigned long long)all.lines,
                        (unsigned long long)ferry_plan_ntransfers(plan));
    }
    sink_t some = {0, 0, all.calls / 2};
    if (ferry_plan_print(plan, count_lines, &some, &err) != FERRY_STOPPED ||
        some.calls != all.calls / 2 + 1) {
        return orc_fail("printing does not stop when it is told to");
    }
    return true;
}

/* ---- a target more ---- */

static bool same_for_target(const orc_transfers_t *before, const orc_transfers_t *after,
                            uint32_t tensor, uint32_t target) {
    size_t i = 0;
    size_t j = 0;
    for (;;) {
        while (i < before->count &&
               (before->at[i].tensor != tensor || before->at[i].target != target)) {
            i++;
        }
        while (j < after->count &&
               (after->at[j].tensor != tensor || after->at[j].target != target)) {
            j++;
        }
        if (i == before->count && j == after->count) {
            return true;
        }
        if (i == before->count || j == after->count ||
            !orc_transfer_equal(&before->at[i], &after->at[j])) {
            return orc_fail("tensor %u, target %u: transfers change when a target is added", tensor,
                            target);
        }
        i++;
        j++;
    }
}

/* A rank that is now a target of one more tensor may take the others from elsewhere. */
static bool became_target(const orc_case_t *before, const orc_case_t *after, uint32_t rank) {
    for (uint32_t t = 0; t < before->ntensors; t++) {
        if (orc_place(&before->tensors[t].target, rank) == UINT32_MAX &&
            orc_place(&after->tensors[t].target, rank) != UINT32_MAX) {
            return true;
        }
    }
    return false;
}

bool orc_check_grown(const orc_case_t *before, const orc_case_t *after) {
    ferry_plan_t *plan = orc_case_plan(before, FERRY_RANK_NONE);
    ferry_plan_t *grown = orc_case_plan(after, FERRY_RANK_NONE);
    bool ok = plan != NULL && grown != NULL;
    if (ok) {
        orc_transfers_t all = orc_collect(before, plan);
        orc_transfers_t more = orc_collect(after, grown);
        for (uint32_t t = 0; t < before->ntensors; t++) {
            const orc_layout_t *target = &before->tensors[t].target;
            for (uint32_t i = 0; ok && i < target->nranks; i++) {
                uint32_t rank = target->ranks[i];
                ok = became_target(before, after, rank) || same_for_target(&all, &more, t, rank);
            }
        }
        ok = ok && orc_execute(after, &more);
        free(all.at);
        free(more.at);
    }
    ferry_plan_destroy(plan);
    ferry_plan_destroy(grown);
    return ok;
}
