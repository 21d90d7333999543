/* stats.c - what every port carries, and the least that the busiest must.
 *
 * The lower bound. A target that does not hold a region must receive it: so each receiving port has a
 * load that no plan avoids. And a region that somebody outside its holders wants must leave them at
 * least once (targets could pass it on), through one of their ports: so for each set of holders, what
 * must leave it divided by its size is a load that one of its members cannot avoid. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "plan/plan.h"

/* ---- ports ------------------------------------------------------------------------------------ */

/* All ranks of both sides, and where each is in that list. */
typedef struct ports {
    ferry_port_t *ports;
    size_t count;
    uint32_t *place; /* of rank r, plus 1; 0: takes no part */
    uint32_t limit;  /* ranks are below this */
} ports_t;

static void ports_fini(ports_t *p) {
    fy_free(p->ports);
    fy_free(p->place);
}

enum { PLACE_SOURCE = 1, PLACE_TARGET = 2 };

static ferry_status_t ports_init(ports_t *p, const ferry_plan_t *plan, ferry_error_t *err) {
    memset(p, 0, sizeof *p);
    for (size_t s = 0; s < plan->nsides; s++) {
        const ferry_layout_t *layout = plan->sides[s].layout;
        uint32_t last = layout->ranks[layout->by_rank[layout->nranks - 1]];
        p->limit = last >= p->limit ? last + 1 : p->limit;
    }
    p->place = fy_alloc_zero(p->limit, sizeof *p->place);
    uint8_t *roles = fy_alloc_zero(plan->nsides, sizeof *roles);
    if (p->place == NULL || roles == NULL) {
        fy_free(roles);
        return fy_fail_nomem(err, "the ports of a plan");
    }
    for (size_t i = 0; i < plan->npatterns; i++) {
        roles[plan->patterns[i].source] |= PLACE_SOURCE;
        roles[plan->patterns[i].target] |= PLACE_TARGET;
    }
    for (size_t s = 0; s < plan->nsides; s++) {
        const ferry_layout_t *layout = plan->sides[s].layout;
        for (uint32_t i = 0; i < layout->nranks; i++) {
            p->place[layout->ranks[i]] |= roles[s];
        }
    }
    fy_free(roles);
    for (uint32_t r = 0; r < p->limit; r++) {
        p->count += p->place[r] != 0;
    }
    p->ports = fy_alloc_zero(p->count, sizeof *p->ports);
    if (p->ports == NULL) {
        return fy_fail_nomem(err, "the ports of a plan");
    }
    uint32_t at = 0;
    for (uint32_t r = 0; r < p->limit; r++) {
        if (p->place[r] != 0) {
            uint32_t host = r < plan->nhosts ? plan->hosts[r] : r;
            p->ports[at] = (ferry_port_t){
                r, host, (p->place[r] & PLACE_SOURCE) != 0, (p->place[r] & PLACE_TARGET) != 0, 0,
                0, 0};
            p->place[r] = ++at;
        }
    }
    return FERRY_OK;
}

/* ---- bytes that are handed over inside reduce groups ------------------------------------------- */

static int move_region_compare(const void *a, const void *b) {
    const fy_move_t *x = a;
    const fy_move_t *y = b;
    if (x->tensor != y->tensor) {
        return x->tensor < y->tensor ? -1 : 1;
    }
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return x->geom < y->geom ? -1 : x->geom > y->geom;
}

/* A region that an owner sends to several targets is reduced once. Targets that hold the same parts
 * share a geom, so distinct (tensor, owner, geom) are the distinct reductions. */
static ferry_status_t reduce_bytes(const ferry_plan_t *plan, uint64_t *bytes_p,
                                   ferry_error_t *err) {
    fy_move_t *list = NULL;
    size_t count = 0;
    size_t cap = 0;
    *bytes_p = 0;
    for (size_t i = 0; i < plan->nmoves; i++) {
        const fy_pattern_t *p = fy_plan_pattern_of(plan, plan->moves[i].tensor);
        if (plan->sides[p->source].group_ranks > 1) {
            if (!fy_reserve(&list, &cap, count + 1, sizeof *list)) {
                fy_free(list);
                return fy_fail_nomem(err, "the reductions of a plan");
            }
            list[count++] = plan->moves[i];
        }
    }
    if (count > 0) {
        qsort(list, count, sizeof *list, move_region_compare);
    }
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && move_region_compare(&list[i - 1], &list[i]) == 0) {
            continue;
        }
        const fy_pattern_t *p = fy_plan_pattern_of(plan, list[i].tensor);
        uint64_t bits = ferry_dtype_bits(p->source_dtype);
        uint64_t elements = fy_geom_elements(p, list[i].geom);
        uint64_t bytes = elements / 8 * bits + (elements % 8 * bits + 7) / 8;
        *bytes_p += bytes * (plan->sides[p->source].group_ranks - 1);
    }
    fy_free(list);
    return FERRY_OK;
}

/* ---- one pass over the moves ------------------------------------------------------------------- */

static ferry_status_t count_moves(const ferry_plan_t *plan, ports_t *p, ferry_plan_stats_t *stats,
                                  ferry_error_t *err) {
    uint64_t total = 0;
    for (size_t i = 0; i < plan->nmoves; i++) {
        const fy_move_t *m = &plan->moves[i];
        if (plan->rank != FERRY_RANK_NONE && m->source != plan->rank && m->target != plan->rank) {
            continue; /* here it only helps to reduce */
        }
        const fy_pattern_t *pattern = fy_plan_pattern_of(plan, m->tensor);
        uint64_t bytes = fy_wire_bytes(pattern, fy_geom_elements(pattern, m->geom));
        ferry_port_t *source = &p->ports[p->place[m->source] - 1];
        ferry_port_t *target = &p->ports[p->place[m->target] - 1];
        if (!fy_add_u64(total, bytes, &total)) {
            return fy_fail(err, FERRY_OVERFLOW, "the bytes of the plan pass 64 bits");
        }
        if (source == target) {
            source->local_bytes += bytes;
            stats->bytes_local += bytes;
            continue;
        }
        source->send_bytes += bytes;
        target->recv_bytes += bytes;
        stats->bytes_wire += bytes;
        if (fy_plan_host(plan, m->source) == fy_plan_host(plan, m->target)) {
            stats->bytes_host += bytes;
        }
    }
    stats->bytes_total = total;
    return FERRY_OK;
}

static void find_busiest(const ports_t *p, ferry_plan_stats_t *stats) {
    uint64_t holders = 0;
    stats->max_send_rank = FERRY_RANK_NONE;
    stats->max_recv_rank = FERRY_RANK_NONE;
    for (size_t i = 0; i < p->count; i++) {
        const ferry_port_t *port = &p->ports[i];
        holders += port->is_source;
        if (port->send_bytes > stats->max_send_bytes) {
            stats->max_send_bytes = port->send_bytes;
            stats->max_send_rank = port->rank;
        }
        if (port->recv_bytes > stats->max_recv_bytes) {
            stats->max_recv_bytes = port->recv_bytes;
            stats->max_recv_rank = port->rank;
        }
    }
    stats->mean_send_bytes = holders > 0 ? (double)stats->bytes_wire / (double)holders : 0.0;
}

/* ---- the lower bound --------------------------------------------------------------------------- */

/* A set of holders: the ranks of one base of one side. */
typedef struct holders {
    uint32_t side;
    uint32_t base;
    uint64_t out_bytes; /* what must leave it */
} holders_t;

typedef struct bound {
    const ferry_plan_t *plan;
    holders_t *sets;
    size_t count;
    size_t cap;
    fy_index_t index;
    uint32_t *of_base; /* per mesh index of the pattern's source: its set plus 1 */
    size_t of_base_cap;
} bound_t;

static int rank_compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The ranks of a set, ascending; to be freed. NULL when memory is out. */
static uint32_t *set_ranks(const ferry_plan_t *plan, uint32_t side_id, uint32_t base) {
    const fy_side_t *side = &plan->sides[side_id];
    uint32_t *ranks = fy_alloc(side->nreplicas, sizeof *ranks);
    for (uint32_t i = 0; ranks != NULL && i < side->nreplicas; i++) {
        ranks[i] = side->layout->ranks[base + side->replica[i]];
    }
    if (ranks != NULL) {
        qsort(ranks, side->nreplicas, sizeof *ranks, rank_compare);
    }
    return ranks;
}

typedef struct set_key {
    const bound_t *bound;
    const uint32_t *ranks;
    uint32_t count;
} set_key_t;

static bool set_same(const void *context, uint32_t id) {
    const set_key_t *key = context;
    const holders_t *set = &key->bound->sets[id];
    const fy_side_t *side = &key->bound->plan->sides[set->side];
    bool same = side->nreplicas == key->count;
    for (uint32_t i = 0; same && i < key->count; i++) {
        /* Both lists name distinct ranks: equal sizes and one inside the other is equal. */
        uint32_t rank = side->layout->ranks[set->base + side->replica[i]];
        same = bsearch(&rank, key->ranks, key->count, sizeof rank, rank_compare) != NULL;
    }
    return same;
}

/* Files the holders of (side, base); equal sets of different layouts are one. */
static ferry_status_t bound_set(bound_t *b, uint32_t side, uint32_t base, uint32_t *set_p,
                                ferry_error_t *err) {
    uint32_t count = b->plan->sides[side].nreplicas;
    uint32_t *ranks = set_ranks(b->plan, side, base);
    if (ranks == NULL) {
        return fy_fail_nomem(err, "the bound of a plan");
    }
    uint64_t hash = fy_hash_list_u32(0, ranks, count);
    set_key_t key = {b, ranks, count};
    uint32_t id = fy_index_find(&b->index, hash, set_same, &key);
    fy_free(ranks);
    if (id == FY_INDEX_NONE) {
        id = (uint32_t)b->count;
        if (!fy_reserve(&b->sets, &b->cap, b->count + 1, sizeof *b->sets) ||
            !fy_index_add(&b->index, hash, id)) {
            return fy_fail_nomem(err, "the bound of a plan");
        }
        b->sets[b->count++] = (holders_t){side, base, 0};
    }
    *set_p = id;
    return FERRY_OK;
}

/* Does any rank that wants the geom lack it? */
static bool wanted_outside(const ferry_plan_t *plan, const fy_pattern_t *p, uint32_t source_base,
                           uint32_t target_base) {
    const fy_side_t *source = &plan->sides[p->source];
    const fy_side_t *target = &plan->sides[p->target];
    for (uint32_t i = 0; i < target->nreplicas; i++) {
        uint32_t rank = target->layout->ranks[target_base + target->replica[i]];
        uint32_t index = 0;
        if (!ferry_layout_find(source->layout, rank, &index) ||
            fy_layout_base(source->layout, index) != source_base) {
            return true;
        }
    }
    return false;
}

/* Adds what one pattern, over all its tensors, takes out of each set of holders. */
static ferry_status_t bound_pattern(bound_t *b, const fy_pattern_t *p, ferry_error_t *err) {
    uint32_t nranks = b->plan->sides[p->source].layout->nranks;
    if (!fy_reserve(&b->of_base, &b->of_base_cap, nranks, sizeof *b->of_base)) {
        return fy_fail_nomem(err, "the bound of a plan");
    }
    memset(b->of_base, 0, nranks * sizeof *b->of_base);
    for (uint64_t geom = 0; geom < p->ngeoms; geom++) {
        uint32_t base = fy_geom_source_base(p, geom);
        if (!wanted_outside(b->plan, p, base, fy_geom_target_base(p, geom))) {
            continue;
        }
        if (b->of_base[base] == 0) {
            uint32_t set = 0;
            FY_TRY(bound_set(b, p->source, base, &set, err));
            b->of_base[base] = set + 1;
        }
        /* Fits: no more than the bytes of the plan, which were added up before. */
        b->sets[b->of_base[base] - 1].out_bytes +=
            fy_wire_bytes(p, fy_geom_elements(p, geom)) * p->ntensors;
    }
    return FERRY_OK;
}

static ferry_status_t lower_bound(const ferry_plan_t *plan, ferry_plan_stats_t *stats,
                                  ferry_error_t *err) {
    bound_t b = {0};
    ferry_status_t status = FERRY_OK;
    b.plan = plan;
    /* Every target takes from itself what it holds, so what it receives is what it lacks. */
    stats->lower_bound_bytes = stats->max_recv_bytes;
    stats->bound_rank = stats->max_recv_rank;
    stats->bound_holders = stats->max_recv_rank != FERRY_RANK_NONE ? 1 : 0;
    for (size_t i = 0; i < plan->npatterns && status == FERRY_OK; i++) {
        status = bound_pattern(&b, &plan->patterns[i], err);
    }
    for (size_t i = 0; i < b.count && status == FERRY_OK; i++) {
        const fy_side_t *side = &plan->sides[b.sets[i].side];
        uint64_t load = fy_ceil_div(b.sets[i].out_bytes, side->nreplicas);
        if (load > stats->lower_bound_bytes) {
            stats->lower_bound_bytes = load;
            stats->bound_rank = side->layout->ranks[b.sets[i].base + side->replica[0]];
            stats->bound_is_send = true;
            stats->bound_holders = side->nreplicas;
        }
    }
    fy_free(b.sets);
    fy_free(b.of_base);
    fy_index_fini(&b.index);
    return status;
}

/* ---- public ------------------------------------------------------------------------------------ */

ferry_status_t ferry_plan_stats(const ferry_plan_t *plan, ferry_plan_stats_t *stats_p,
                                ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED(stats_p, err);
    if (stats_p->size != sizeof *stats_p) {
        return fy_fail(err, FERRY_INVALID, "plan stats of size %zu, expected %zu", stats_p->size,
                       sizeof *stats_p);
    }
    ferry_plan_stats_t stats;
    ports_t ports;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    stats.tensors = plan->ntensors;
    stats.transfers = plan->ntransfers;
    stats.bound_rank = FERRY_RANK_NONE;
    ferry_status_t status = ports_init(&ports, plan, err);
    if (status == FERRY_OK) {
        status = count_moves(plan, &ports, &stats, err);
    }
    if (status == FERRY_OK) {
        find_busiest(&ports, &stats);
        status = reduce_bytes(plan, &stats.bytes_reduce, err);
    }
    if (status == FERRY_OK && plan->rank == FERRY_RANK_NONE) {
        status = lower_bound(plan, &stats, err);
    }
    ports_fini(&ports);
    if (status == FERRY_OK) {
        *stats_p = stats;
    }
    return status;
}

ferry_status_t ferry_plan_ports(const ferry_plan_t *plan, ferry_port_t *ports, size_t cap,
                                size_t *count_p, ferry_error_t *err) {
    FY_NEED(plan, err);
    FY_NEED_ARRAY(ports, cap, err);
    FY_NEED(count_p, err);
    ports_t all;
    ferry_plan_stats_t unused;
    memset(&unused, 0, sizeof unused);
    ferry_status_t status = ports_init(&all, plan, err);
    if (status == FERRY_OK && cap > 0) {
        status = count_moves(plan, &all, &unused, err);
    }
    if (status == FERRY_OK) {
        if (cap > 0 && all.count > 0) {
            memcpy(ports, all.ports, (all.count < cap ? all.count : cap) * sizeof *ports);
        }
        *count_p = all.count;
    }
    ports_fini(&all);
    return status;
}
