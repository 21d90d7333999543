/* check_stats.c - figures of a plan counted anew, element by element, and its schedule. */
#include "oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is at the ports ---- */

typedef struct ports {
    size_t count;
    ferry_port_t at[ORC_ALL_RANKS];
} ports_t;

static ferry_port_t *port_of(ports_t *ports, uint32_t rank) {
    for (size_t i = 0; i < ports->count; i++) {
        if (ports->at[i].rank == rank) {
            return &ports->at[i];
        }
    }
    abort();
}

static void count_ports(const orc_case_t *c, const orc_transfers_t *all, ports_t *ports) {
    uint32_t ranks[ORC_ALL_RANKS];
    memset(ports, 0, sizeof *ports);
    ports->count = orc_case_ranks(c, ranks);
    for (size_t i = 0; i < ports->count; i++) {
        bool known;
        ports->at[i].rank = ranks[i];
        ports->at[i].host = orc_case_host(c, ranks[i], &known);
    }
    for (uint32_t t = 0; t < c->ntensors; t++) {
        const orc_tensor_t *tensor = &c->tensors[t];
        for (uint32_t i = 0; i < tensor->source.nranks; i++) {
            port_of(ports, tensor->source.ranks[i])->is_source = true;
        }
        for (uint32_t i = 0; i < tensor->target.nranks; i++) {
            port_of(ports, tensor->target.ranks[i])->is_target = true;
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        if (x->source == x->target) {
            port_of(ports, x->source)->local_bytes += x->bytes;
        } else {
            port_of(ports, x->source)->send_bytes += x->bytes;
            port_of(ports, x->target)->recv_bytes += x->bytes;
        }
    }
}

static bool same_ports(const ports_t *want, const ferry_plan_t *plan) {
    ferry_port_t have[ORC_ALL_RANKS];
    memset(have, 0, sizeof have);
    size_t count = 0;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_plan_ports(plan, have, ORC_ALL_RANKS, &count, &err) != FERRY_OK) {
        return orc_fail("no ports: %s", err.text);
    }
    if (count != want->count) {
        return orc_fail("%zu ports, not %zu", count, want->count);
    }
    for (size_t i = 0; i < count; i++) {
        const ferry_port_t *a = &want->at[i];
        const ferry_port_t *b = &have[i];
        if (a->rank != b->rank || a->host != b->host || a->is_source != b->is_source ||
            a->is_target != b->is_target || a->send_bytes != b->send_bytes ||
            a->recv_bytes != b->recv_bytes || a->local_bytes != b->local_bytes) {
            return orc_fail("port %zu (rank %u): rank %u host %u sends %llu receives %llu keeps "
                            "%llu, not host %u %llu %llu %llu",
                            i, a->rank, b->rank, b->host, (unsigned long long)b->send_bytes,
                            (unsigned long long)b->recv_bytes, (unsigned long long)b->local_bytes,
                            a->host, (unsigned long long)a->send_bytes,
                            (unsigned long long)a->recv_bytes, (unsigned long long)a->local_bytes);
        }
    }
    return true;
}

/* ---- the lower bound ---- */

/* Those who hold exactly the same regions, and what leaves them at the least. */
typedef struct holders {
    size_t count;
    uint32_t ranks[ORC_RANKS];
    uint64_t bytes;
} holders_t;

typedef struct bound {
    size_t nsets;
    holders_t sets[ORC_TENSORS * ORC_RANKS];
    uint64_t lacks[ORC_ALL_RANKS]; /* by port */
    uint64_t bytes;
} bound_t;

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool is_holder(const holders_t *set, uint32_t rank) {
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* The set of ranks that hold what `place` holds; a new one when it was not seen yet. */
static size_t set_of(bound_t *bound, const orc_tensor_t *tensor, uint32_t place) {
    holders_t set = {0, {0}, 0};
    for (uint32_t i = 0; i < tensor->source.nranks; i++) {
        if (orc_side_same(tensor->from, place, i)) {
            set.ranks[set.count++] = tensor->source.ranks[i];
        }
    }
    qsort(set.ranks, set.count, sizeof *set.ranks, by_number);
    for (size_t i = 0; i < bound->nsets; i++) {
        if (bound->sets[i].count == set.count &&
            memcmp(bound->sets[i].ranks, set.ranks, set.count * sizeof *set.ranks) == 0) {
            return i;
        }
    }
    bound->sets[bound->nsets] = set;
    return bound->nsets++;
}

static void bound_tensor(bound_t *bound, const orc_tensor_t *tensor, ports_t *ports) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        elements *= tensor->shape[d];
    }
    uint32_t bits = ferry_dtype_bits(ferry_dtype_wire(tensor->source_dtype, tensor->target_dtype));
    uint64_t bytes = orc_tensor_scale(tensor) * bits / 8;
    size_t *set = orc_alloc(elements, sizeof *set);
    bool *leaves = orc_alloc(elements, sizeof *leaves);
    for (uint32_t s = 0; s < tensor->source.nranks; s++) {
        uint64_t held = orc_side_elements(tensor->from, s);
        size_t number = held > 0 ? set_of(bound, tensor, s) : 0;
        uint64_t *numbers = orc_side_numbers(tensor->from, s);
        for (uint64_t e = 0; e < held; e++) {
            set[numbers[e]] = number;
        }
        free(numbers);
    }
    for (uint32_t t = 0; t < tensor->target.nranks; t++) {
        uint32_t rank = tensor->target.ranks[t];
        uint64_t *numbers = orc_side_numbers(tensor->to, t);
        for (uint64_t e = 0; e < orc_side_elements(tensor->to, t); e++) {
            holders_t *holders = &bound->sets[set[numbers[e]]];
            if (is_holder(holders, rank)) {
                continue;
            }
            bound->lacks[port_of(ports, rank) - ports->at] += bytes;
            holders->bytes += leaves[numbers[e]] ? 0 : bytes;
            leaves[numbers[e]] = true;
        }
        free(numbers);
    }
    free(set);
    free(leaves);
}

static uint64_t share(const holders_t *set) {
    return (set->bytes + set->count - 1) / set->count;
}

static bool check_bound(const orc_case_t *c, ports_t *ports, const ferry_plan_stats_t *stats) {
    bound_t *bound = orc_alloc(1, sizeof *bound);
    for (uint32_t t = 0; t < c->ntensors; t++) {
        bound_tensor(bound, &c->tensors[t], ports);
    }
    bool named = false;
    for (size_t i = 0; i < ports->count; i++) {
        bound->bytes = bound->lacks[i] > bound->bytes ? bound->lacks[i] : bound->bytes;
        named = named || (!stats->bound_is_send && ports->at[i].rank == stats->bound_rank &&
                          bound->lacks[i] == stats->lower_bound_bytes);
    }
    for (size_t i = 0; i < bound->nsets; i++) {
        uint64_t load = share(&bound->sets[i]);
        bound->bytes = load > bound->bytes ? load : bound->bytes;
        named = named || (stats->bound_is_send && load == stats->lower_bound_bytes &&
                          bound->sets[i].count == stats->bound_holders &&
                          is_holder(&bound->sets[i], stats->bound_rank));
    }
    uint64_t want = bound->bytes;
    free(bound);
    if (stats->lower_bound_bytes != want) {
        return orc_fail("lower bound %llu, not %llu", (unsigned long long)stats->lower_bound_bytes,
                        (unsigned long long)want);
    }
    return named || want == 0 ||
           orc_fail("the bound %llu is said to be %s rank %u among %u, which it is not",
                    (unsigned long long)want, stats->bound_is_send ? "sent by" : "received by",
                    stats->bound_rank, stats->bound_holders);
}

/* ---- reduced bytes ---- */

/* The same box of the same source, wherever it goes, is reduced once. */
static bool same_region(const ferry_transfer_t *a, const ferry_transfer_t *b) {
    bool same = a->tensor == b->tensor && a->source == b->source;
    for (uint32_t d = 0; same && d < a->ndim; d++) {
        same = a->source_lo[d] == b->source_lo[d] && a->extent[d] == b->extent[d];
    }
    return same;
}

static uint64_t reduced_bytes(const orc_case_t *c, const ferry_plan_t *plan,
                              const orc_transfers_t *all) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        const orc_tensor_t *tensor = &c->tensors[x->tensor];
        ferry_reduce_t reduce;
        bool partial = false;
        for (uint32_t a = 0; a < tensor->source.naxes; a++) {
            partial = partial || tensor->source.axes[a].kind == FERRY_PARTIAL;
        }
        for (size_t j = 0; partial && j < i; j++) {
            partial = !same_region(x, &all->at[j]);
        }
        if (partial &&
            ferry_plan_reduce(plan, x->tensor, x->source, &reduce, NULL, 0, NULL) == FERRY_OK) {
            bytes += (reduce.nranks - 1) * x->elements * ferry_dtype_bits(tensor->source_dtype) / 8;
        }
    }
    return bytes;
}

/* ---- all figures ---- */

static bool check_sums(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all,
                       ports_t *ports, const ferry_plan_stats_t *stats) {
    ferry_plan_stats_t want = {.tensors = c->ntensors, .transfers = all->count};
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        bool source_known;
        bool target_known;
        bool near = orc_case_host(c, x->source, &source_known) ==
                    orc_case_host(c, x->target, &target_known);
        want.bytes_total += x->bytes;
        want.bytes_local += x->source == x->target ? x->bytes : 0;
        want.bytes_wire += x->source == x->target ? 0 : x->bytes;
        want.bytes_host +=
            x->source != x->target && source_known && target_known && near ? x->bytes : 0;
    }
    want.bytes_reduce = reduced_bytes(c, plan, all);
    uint64_t nsources = 0;
    for (size_t i = 0; i < ports->count; i++) {
        const ferry_port_t *port = &ports->at[i];
        nsources += port->is_source;
        want.max_send_bytes =
            port->send_bytes > want.max_send_bytes ? port->send_bytes : want.max_send_bytes;
        want.max_recv_bytes =
            port->recv_bytes > want.max_recv_bytes ? port->recv_bytes : want.max_recv_bytes;
    }
    double mean = (double)want.bytes_wire / (double)nsources;
#define SAME(field)                                                                                \
    if (stats->field != want.field) {                                                              \
        return orc_fail(#field " is %llu, not %llu", (unsigned long long)stats->field,             \
                        (unsigned long long)want.field);                                           \
    }
    SAME(tensors)
    SAME(transfers)
    SAME(bytes_total)
    SAME(bytes_local)
    SAME(bytes_wire)
    SAME(bytes_host)
    SAME(bytes_reduce)
    SAME(max_send_bytes)
    SAME(max_recv_bytes)
#undef SAME
    if (fabs(stats->mean_send_bytes - mean) > 1e-9 * (mean + 1)) {
        return orc_fail("mean_send_bytes is %g, not %g", stats->mean_send_bytes, mean);
    }
    if (want.bytes_wire > 0 &&
        (port_of(ports, stats->max_send_rank)->send_bytes != want.max_send_bytes ||
         port_of(ports, stats->max_recv_rank)->recv_bytes != want.max_recv_bytes)) {
        return orc_fail("ranks %u and %u are not the busiest ones", stats->max_send_rank,
                        stats->max_recv_rank);
    }
    return true;
}

bool orc_check_stats(const orc_case_t *c, const ferry_plan_t *plan, const orc_transfers_t *all) {
    ferry_plan_stats_t stats;
    memset(&stats, 0xff, sizeof stats);
    stats.size = sizeof stats;
    ferry_error_t err = FERRY_ERROR_INIT;
    if (ferry_plan_stats(plan, &stats, &err) != FERRY_OK) {
        return orc_fail("no stats: %s", err.text);
    }
    ports_t *ports = orc_alloc(1, sizeof *ports);
    count_ports(c, all, ports);
    bool ok = same_ports(ports, plan) && check_sums(c, plan, all, ports, &stats) &&
              check_bound(c, ports, &stats);
    if (ok && stats.lower_bound_bytes > stats.max_send_bytes &&
        stats.lower_bound_bytes > stats.max_recv_bytes) {
        ok = orc_fail("the plan beats its lower bound");
    }
    free(ports);
    return ok;
}

/* ---- rounds ---- */

typedef struct degree {
    uint32_t rank;
    uint32_t sends;
    uint32_t receives;
    uint32_t last_send;
    uint32_t last_receive;
} degree_t;

static degree_t *degree_of(degree_t *degrees, size_t *count, uint32_t rank) {
    for (size_t i = 0; i < *count; i++) {
        if (degrees[i].rank == rank) {
            return &degrees[i];
        }
    }
    degrees[*count] = (degree_t){rank, 0, 0, UINT32_MAX, UINT32_MAX};
    return &degrees[(*count)++];
}

static bool check_rounds(const ferry_schedule_t *schedule, uint64_t wire_bytes, uint64_t slot) {
    degree_t degrees[ORC_ALL_RANKS];
    size_t nranks = 0;
    size_t nbatches = 0;
    const ferry_batch_t *batches = ferry_schedule_batches(schedule, &nbatches);
    uint32_t most = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < nbatches; i++) {
        const ferry_batch_t *b = &batches[i];
        degree_t *source = degree_of(degrees, &nranks, b->source);
        degree_t *target = degree_of(degrees, &nranks, b->target);
        if (b->source == b->target || b->bytes == 0 || b->bytes > slot ||
            (i > 0 && b->round < batches[i - 1].round)) {
            return orc_fail("batch %zu, %u -> %u, %llu bytes, round %u: out of place", i, b->source,
                            b->target, (unsigned long long)b->bytes, b->round);
        }
        if (source->last_send == b->round || target->last_receive == b->round) {
            return orc_fail("round %u: %u -> %u is in the way of another", b->round, b->source,
                            b->target);
        }
        source->last_send = b->round;
        target->last_receive = b->round;
        most = ++source->sends > most ? source->sends : most;
        most = ++target->receives > most ? target->receives : most;
        bytes += b->bytes;
    }
    if (ferry_schedule_nrounds(schedule) != most || ferry_schedule_max_degree(schedule) != most ||
        bytes != wire_bytes) {
        return orc_fail("%u rounds for degree %u (said %u); %llu of %llu bytes",
                        ferry_schedule_nrounds(schedule), most, ferry_schedule_max_degree(schedule),
                        (unsigned long long)bytes, (unsigned long long)wire_bytes);
    }
    return true;
}

bool orc_check_schedule(const orc_transfers_t *all, uint64_t slot_bytes, uint32_t max_segments) {
    ferry_item_t *items = orc_alloc(all->count, sizeof *items);
    uint64_t wire = 0;
    for (size_t i = 0; i < all->count; i++) {
        const ferry_transfer_t *x = &all->at[i];
        items[i] = (ferry_item_t){x->task_id, x->bytes, x->source, x->target};
        wire += x->source == x->target ? 0 : x->bytes;
    }
    ferry_schedule_params_t params = FERRY_SCHEDULE_PARAMS_INIT;
    params.slot_bytes = slot_bytes;
    params.max_segments = max_segments;
    ferry_schedule_t *schedule = NULL;
    ferry_error_t err = FERRY_ERROR_INIT;
    bool ok = ferry_schedule_create(items, all->count, &params, &schedule, &err) == FERRY_OK ||
              orc_fail("no schedule: %s", err.text);
    ok = ok && check_rounds(schedule, wire, slot_bytes ? slot_bytes : FERRY_SLOT_BYTES_DEFAULT);
    ferry_schedule_destroy(schedule);
    free(items);
    return ok;
}

/* ---- everything ---- */

bool orc_check_all(const orc_case_t *c) {
    ferry_plan_t *plan = orc_case_plan(c, FERRY_RANK_NONE);
    if (plan == NULL) {
        return false;
    }
    orc_transfers_t all = orc_collect(c, plan);
    uint64_t scale = 1;
    for (uint32_t t = 0; t < c->ntensors; t++) {
        scale = orc_tensor_scale(&c->tensors[t]) > scale ? orc_tensor_scale(&c->tensors[t]) : scale;
    }
    ferry_error_t err = FERRY_ERROR_INIT;
    bool ok = orc_check_layouts(c) && orc_check_fields(c, plan, &all) && orc_execute(c, &all);
    if (ok && ferry_plan_check(plan, &err) != FERRY_OK) {
        ok = orc_fail("a right plan fails its check: %s", err.text);
    }
    ok = ok && orc_check_choice(c, &all) && orc_check_merged(c, &all) &&
         orc_check_reduce(c, plan) && orc_check_stats(c, plan, &all) &&
         orc_check_codec(c, plan, &all) && orc_check_print(plan) &&
         orc_check_parts(c, plan, &all) &&
         orc_check_schedule(&all, scale == 1 ? 0 : UINT64_MAX, 0) &&
         orc_check_schedule(&all, 64 * scale, 0) && orc_check_schedule(&all, 7 * scale, 2);
    free(all.at);
    ferry_plan_destroy(plan);
    return ok;
}
