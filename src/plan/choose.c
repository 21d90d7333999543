/* choose.c - which holder of a region sends it to which target.
 *
 * A target that holds the region takes it from itself; else from a holder on its host, if there is
 * one; else from any. Among several candidates the choice is arithmetic on the target's rank number
 * and the region, so that every rank comes to the same answer alone, and a target rank that is added
 * changes nothing for the others.
 *
 * The arithmetic. Targets that want one region are usually a progression of ranks: eight in a row, or
 * every eighth. Where the holders' part has c such regions, and this is number w of them, the candidate
 * is number
 *     a * walk(rank - w) + w      with a the common factor of c and the number of candidates
 * counted around: regions of one part begin at different candidates, and walk() goes through those
 * that are left, n of them. walk(x) is x mod n, which is even for consecutive ranks and for steps that
 * share no factor with n, plus the sum of the digits of x / n to the base of the powers of two in n,
 * because steps and numbers of replicas usually share those.
 *
 * Turns. When the number of targets is no multiple of the number of holders, some holders would serve
 * one target more than others for every tensor. So tensors take turns, and each turn begins elsewhere.
 * But every turn makes a target talk to one more source, and a pair's last batch is rarely full; so
 * there are only as many turns as leave TURN_BYTES for each.
 *
 * Riders. What nothing cuts on either side (norms, routers) could come from any rank of its mesh. It
 * rides with what moves in parts from the same mesh: from a rank that sends to this target anyway, so
 * that small tensors do not cost a pair, and a batch, of their own. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "plan/plan.h"

/* Twelve default slots: a last batch that is half empty costs 4 % of that. */
#define TURN_BYTES (UINT64_C(3) << 30)

uint64_t fy_plan_host(const ferry_plan_t *plan, uint32_t rank) {
    return rank < plan->nhosts ? plan->hosts[rank] : (UINT64_C(1) << 32) + rank;
}

/* ---- meshes: who could ride with whom ---------------------------------------------------------- */

typedef struct mesh_key {
    const ferry_plan_t *plan;
    const ferry_layout_t *layout;
    const uint32_t *sides; /* one that has the mesh, for each mesh */
} mesh_key_t;

static bool mesh_same(const void *context, uint32_t id) {
    const mesh_key_t *key = context;
    const ferry_layout_t *a = key->layout;
    const ferry_layout_t *b = key->plan->sides[key->sides[id]].layout;
    bool same = a->nranks == b->nranks;
    for (uint32_t i = 0; same && i < a->nranks; i++) {
        same = a->ranks[a->by_rank[i]] == b->ranks[b->by_rank[i]];
    }
    return same;
}

/* Gives every side the number of its mesh (its set of ranks), and counts the meshes. `sides` has
 * nsides entries to work in. */
static ferry_status_t meshes_find(ferry_plan_t *plan, uint32_t *sides, uint32_t *count_p,
                                  ferry_error_t *err) {
    fy_index_t index = {0};
    uint32_t count = 0;
    for (uint32_t s = 0; s < plan->nsides; s++) {
        const ferry_layout_t *layout = plan->sides[s].layout;
        mesh_key_t key = {plan, layout, sides};
        uint64_t hash = layout->nranks;
        for (uint32_t i = 0; i < layout->nranks; i++) {
            hash = fy_hash_u64(hash, layout->ranks[layout->by_rank[i]]);
        }
        uint32_t id = fy_index_find(&index, hash, mesh_same, &key);
        if (id == FY_INDEX_NONE) {
            if (!fy_index_add(&index, hash, count)) {
                fy_index_fini(&index);
                return fy_fail_nomem(err, "the meshes of a plan");
            }
            sides[count] = s;
            id = count++;
        }
        plan->sides[s].mesh = id;
    }
    fy_index_fini(&index);
    *count_p = count;
    return FERRY_OK;
}

/* What moves in parts leads, what moves whole rides; reductions do neither. */
typedef enum travel { TRAVEL_ALONE, TRAVEL_LEADS, TRAVEL_RIDES } travel_t;

static travel_t travel_of(const ferry_plan_t *plan, const fy_pattern_t *p) {
    const fy_side_t *source = &plan->sides[p->source];
    const fy_side_t *target = &plan->sides[p->target];
    if (source->group_ranks > 1 || p->elements == 0) {
        return TRAVEL_ALONE;
    }
    bool whole =
        source->nreplicas == source->layout->nranks && target->nreplicas == target->layout->nranks;
    return whole ? TRAVEL_RIDES : TRAVEL_LEADS;
}

/* Chains the patterns that lead on each mesh, in the order of their first tensor. */
static ferry_status_t leads_chain(ferry_plan_t *plan, ferry_error_t *err) {
    uint32_t *sides = fy_alloc(plan->nsides, sizeof *sides);
    uint32_t count = 0;
    ferry_status_t status = sides != NULL ? meshes_find(plan, sides, &count, err)
                                          : fy_fail_nomem(err, "the meshes of a plan");
    fy_free(sides);
    if (status != FERRY_OK) {
        return status;
    }
    plan->first_lead = fy_arena_alloc(&plan->arena, count, sizeof *plan->first_lead);
    if (plan->first_lead == NULL) {
        return fy_fail_nomem(err, "the meshes of a plan");
    }
    for (uint32_t m = 0; m < count; m++) {
        plan->first_lead[m] = FY_INDEX_NONE;
    }
    for (uint32_t i = (uint32_t)plan->npatterns; i-- > 0;) {
        fy_pattern_t *p = &plan->patterns[i];
        uint32_t mesh = plan->sides[p->source].mesh;
        p->next_lead = FY_INDEX_NONE;
        if (travel_of(plan, p) == TRAVEL_LEADS) {
            p->next_lead = plan->first_lead[mesh];
            plan->first_lead[mesh] = i;
        }
    }
    return FERRY_OK;
}

/* ---- turns: who begins where ------------------------------------------------------------------- */

typedef struct spread_key {
    const ferry_plan_t *plan;
    const ferry_layout_t *layout;
} spread_key_t;

/* Same mesh, and cut by the same axes: then the groups of holders are the same. */
static bool spread_same(const void *context, uint32_t id) {
    const spread_key_t *key = context;
    const ferry_layout_t *a = key->layout;
    const ferry_layout_t *b = key->plan->sides[key->plan->spreads[id].side].layout;
    bool same = a->naxes == b->naxes && a->nranks == b->nranks &&
                memcmp(a->ranks, b->ranks, a->nranks * sizeof *a->ranks) == 0;
    for (uint32_t i = 0; same && i < a->naxes; i++) {
        same = a->axes[i].size == b->axes[i].size &&
               (a->placements[i].kind == FERRY_SHARD) == (b->placements[i].kind == FERRY_SHARD);
    }
    return same;
}

static uint64_t spread_hash(const ferry_layout_t *layout) {
    uint64_t hash = fy_hash_list_u32(layout->naxes, layout->ranks, layout->nranks);
    for (uint32_t a = 0; a < layout->naxes; a++) {
        hash = fy_hash_u64(hash, (uint64_t)layout->axes[a].size << 1 |
                                     (layout->placements[a].kind == FERRY_SHARD));
    }
    return hash;
}

/* Gives every side its spread. */
static ferry_status_t spreads_find(ferry_plan_t *plan, ferry_error_t *err) {
    fy_index_t index = {0};
    ferry_status_t status = FERRY_OK;
    for (uint32_t s = 0; s < plan->nsides && status == FERRY_OK; s++) {
        spread_key_t key = {plan, plan->sides[s].layout};
        uint64_t hash = spread_hash(key.layout);
        uint32_t id = fy_index_find(&index, hash, spread_same, &key);
        if (id == FY_INDEX_NONE) {
            id = (uint32_t)plan->nspreads;
            if (!fy_reserve(&plan->spreads, &plan->spreads_cap, plan->nspreads + 1,
                            sizeof *plan->spreads) ||
                !fy_index_add(&index, hash, id)) {
                status = fy_fail_nomem(err, "the spread of a plan");
                break;
            }
            plan->spreads[plan->nspreads++] = (fy_spread_t){s, 1};
        }
        plan->sides[s].spread = id;
    }
    fy_index_fini(&index);
    return status;
}

/* The most turns, up to a limit, that come round evenly among n candidates. */
static uint32_t even_turns(uint64_t limit, uint64_t n) {
    uint64_t turns = fy_max_u64(fy_min_u64(limit, n), 1);
    while (n % turns != 0) {
        turns--;
    }
    return (uint32_t)turns;
}

static uint32_t spread_of(const ferry_plan_t *plan, uint32_t tensor) {
    return plan->sides[fy_plan_pattern_of(plan, tensor)->source].spread;
}

/* Decides how many turns each spread has. `totals` has nspreads entries to work in. */
static void spreads_measure(ferry_plan_t *plan, uint64_t *totals) {
    memset(totals, 0, plan->nspreads * sizeof *totals);
    for (uint32_t t = 0; t < plan->ntensors; t++) {
        const fy_pattern_t *p = fy_plan_pattern_of(plan, t);
        uint64_t *total = &totals[spread_of(plan, t)];
        if (!fy_add_u64(*total, fy_wire_bytes(p, p->elements), total)) {
            *total = UINT64_MAX;
        }
    }
    for (size_t s = 0; s < plan->nspreads; s++) {
        const fy_side_t *side = &plan->sides[plan->spreads[s].side];
        uint64_t each = totals[s] / (side->layout->nranks / side->nreplicas);
        plan->spreads[s].turns = even_turns(each / TURN_BYTES, side->nreplicas);
    }
}

ferry_status_t fy_spread_assign(ferry_plan_t *plan, ferry_error_t *err) {
    FY_TRY(leads_chain(plan, err));
    FY_TRY(spreads_find(plan, err));
    uint64_t *totals = fy_alloc(plan->nspreads, sizeof *totals);
    if (totals == NULL) {
        return fy_fail_nomem(err, "the spread of a plan");
    }
    spreads_measure(plan, totals);
    fy_free(totals);
    return FERRY_OK;
}

/* Multiples of the golden section fall evenly into any number of bins, and so does every regular
 * selection of them: all tensors of one kind, layer after layer. */
uint32_t fy_turn_of(uint32_t tensor, uint32_t turns) {
    uint32_t fraction = tensor * UINT32_C(2654435769); /* of 2^32; wraps on purpose */
    return (uint32_t)((uint64_t)fraction * turns >> 32);
}

/* ---- the choice ------------------------------------------------------------------------------- */

/* How a region lies in its holders' part. */
typedef struct region_place {
    uint64_t in_part; /* regions of this size in the part */
    uint64_t which;   /* of them this is */
} region_place_t;

static region_place_t place_of(const fy_pattern_t *pattern, uint64_t geom) {
    uint32_t pairs[FERRY_MAX_DIMS];
    region_place_t place = {1, 0};
    fy_geom_split(pattern, geom, pairs);
    for (uint32_t d = 0; d < pattern->ndim; d++) {
        const fy_cross_t *c = &pattern->cross[d];
        uint64_t extent = c->extent[pairs[d]];
        uint64_t in_part = fy_max_u64(c->source_length[c->source_part[pairs[d]]] / extent, 1);
        uint64_t which = c->segments[c->first_segment[pairs[d]]].source_lo / extent;
        /* A product of counts whose elements fit in 64 bits: no overflow. */
        place.in_part *= in_part;
        place.which = place.which * in_part + fy_min_u64(which, in_part - 1);
    }
    return place;
}

static uint32_t candidates_on_host(const ferry_plan_t *plan, const fy_side_t *side, uint32_t base,
                                   uint32_t target) {
    uint32_t count = 0;
    if (target >= plan->nhosts) {
        return 0;
    }
    for (uint32_t i = 0; i < side->nreplicas; i++) {
        uint32_t rank = side->layout->ranks[base + side->replica[i]];
        count += fy_plan_host(plan, rank) == plan->hosts[target];
    }
    return count;
}

/* The sum of the digits of x to this base; 0 to the base 1. */
static uint64_t digits(uint64_t x, uint64_t base) {
    uint64_t sum = 0;
    for (; base > 1 && x > 0; x /= base) {
        sum += x % base;
    }
    return sum;
}

/* A number below 2n, even over n for progressions of x. */
static uint64_t walk(uint64_t x, uint64_t n) {
    uint64_t twos = n & (~n + 1); /* the power of two in n */
    return x % n + digits(x / n, twos) % twos;
}

static uint64_t common_factor(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The arithmetic, for a target that does not hold the region. */
static fy_choice_t spread_choice(const ferry_plan_t *plan, const fy_pattern_t *pattern,
                                 uint64_t geom, uint32_t target) {
    const fy_side_t *side = &plan->sides[pattern->source];
    fy_choice_t choice = {
        FERRY_RANK_NONE, pattern->source, fy_geom_source_base(pattern, geom), 0, 1,
        FERRY_RANK_NONE, side->nreplicas};
    uint32_t near = candidates_on_host(plan, side, choice.base, target);
    if (near > 0) {
        choice.host = plan->hosts[target];
        choice.count = near;
    }
    region_place_t place = place_of(pattern, geom);
    uint64_t n = choice.count;
    uint64_t apart = common_factor(place.in_part, n);
    uint64_t from = target >= place.which ? target - place.which : target;
    choice.start = (uint32_t)((apart * walk(from, n / apart) + place.which) % n);
    choice.turns = even_turns(plan->spreads[side->spread].turns / place.in_part, n);
    return choice;
}

/* One of the geoms of a lead that this target receives. False when it receives none. */
static bool lead_geom(const ferry_plan_t *plan, const fy_pattern_t *lead, uint32_t target,
                      uint64_t *geom_p) {
    const ferry_layout_t *layout = plan->sides[lead->target].layout;
    uint32_t pairs[FERRY_MAX_DIMS] = {0};
    uint32_t index = 0;
    uint64_t count = 1;
    if (!ferry_layout_find(layout, target, &index)) {
        return false;
    }
    for (uint32_t d = 0; d < lead->ndim; d++) {
        uint32_t part = fy_layout_part(layout, index, d);
        pairs[d] = lead->cross[d].first_pair[part];
        count *= lead->cross[d].first_pair[part + 1] - pairs[d];
    }
    uint64_t which = count > 0 ? digits(target, count) % count : 0;
    for (uint32_t d = lead->ndim; d-- > 0 && count > 0;) {
        uint32_t part = fy_layout_part(layout, index, d);
        uint32_t here = lead->cross[d].first_pair[part + 1] - pairs[d];
        pairs[d] += (uint32_t)(which % here);
        which /= here;
    }
    *geom_p = fy_geom_join(lead, pairs);
    return count > 0;
}

/* Takes the choice of the first lead on the same mesh from which this target receives. */
static bool ride(const ferry_plan_t *plan, const fy_pattern_t *pattern, uint32_t target,
                 fy_choice_t *choice_p) {
    if (travel_of(plan, pattern) != TRAVEL_RIDES) {
        return false;
    }
    for (uint32_t i = plan->first_lead[plan->sides[pattern->source].mesh]; i != FY_INDEX_NONE;
         i = plan->patterns[i].next_lead) {
        uint64_t geom = 0;
        if (lead_geom(plan, &plan->patterns[i], target, &geom)) {
            *choice_p = spread_choice(plan, &plan->patterns[i], geom, target);
            return true;
        }
    }
    return false;
}

void fy_choose(const ferry_plan_t *plan, const fy_pattern_t *pattern, uint64_t geom,
               uint32_t target, fy_choice_t *choice_p) {
    const ferry_layout_t *layout = plan->sides[pattern->source].layout;
    uint32_t index = 0;
    if (ferry_layout_find(layout, target, &index) &&
        fy_layout_base(layout, index) == fy_geom_source_base(pattern, geom)) {
        *choice_p = (fy_choice_t){.fixed = target, .turns = 1};
        return;
    }
    fy_choice_t choice = spread_choice(plan, pattern, geom, target);
    fy_choice_t lead;
    /* A holder on the host goes before a lead that is elsewhere. */
    if (ride(plan, pattern, target, &lead) &&
        (choice.host == FERRY_RANK_NONE || lead.host != FERRY_RANK_NONE)) {
        choice = lead;
    }
    *choice_p = choice;
}

uint32_t fy_choice_rank(const ferry_plan_t *plan, const fy_choice_t *choice, uint32_t turn) {
    if (choice->fixed != FERRY_RANK_NONE) {
        return choice->fixed;
    }
    const fy_side_t *side = &plan->sides[choice->side];
    /* turns divides count, so the starting points are evenly spaced. */
    uint64_t shift = (uint64_t)turn * (choice->count / choice->turns);
    uint32_t at = (uint32_t)((choice->start + shift) % choice->count);
    if (choice->host == FERRY_RANK_NONE) {
        return side->layout->ranks[choice->base + side->replica[at]];
    }
    uint32_t rank = FERRY_RANK_NONE;
    for (uint32_t i = 0, seen = 0; seen <= at; i++) { /* `count` of them are there */
        rank = side->layout->ranks[choice->base + side->replica[i]];
        seen += fy_plan_host(plan, rank) == choice->host;
    }
    return rank;
}
