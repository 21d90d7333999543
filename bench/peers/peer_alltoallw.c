/* peer_alltoallw.c - the cases by MPI_Alltoallw with subarray types.
 *
 * For each other rank there is one type a side: the subarrays of all regions that the two exchange. With
 * more than one tensor it does the case twice: all tensors in one call, by types that reach over all of
 * them, and one call for each.
 */
#include <stdlib.h>

#include "peer.h"

typedef struct {
    int *counts, *displacements; /* 1 or 0; always 0 */
    MPI_Datatype *types;
    size_t shard_bytes; /* of one tensor */
} side_t;

typedef struct {
    side_t side[BENCH_SIDES];
    uint32_t calls; /* tensors that each call moves: all in 1, or 1 in each of many */
} exchange_t;

static MPI_Datatype subarray(const peer_t *peer, bench_side_t side, const bench_region_t *region) {
    const bench_case_t *bench = &peer->bench;
    uint64_t rows, cols;
    MPI_Datatype type;
    bench_shard_shape(bench, side, peer->rank, &rows, &cols);
    int sizes[2] = {(int)rows, (int)cols};
    int subsizes[2] = {(int)region->rows, (int)region->cols};
    int starts[2] = {
        (int)(side == BENCH_SOURCE ? region->source_row : region->target_row),
        (int)(side == BENCH_SOURCE ? region->source_col : region->target_col),
    };
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C,
                             bench->element_bytes == 4 ? MPI_FLOAT : MPI_DOUBLE, &type);
    return type;
}

/* One type out of the parts, repeated for each tensor; frees the parts. */
static MPI_Datatype join(MPI_Datatype *parts, int count, uint32_t tensors, size_t shard_bytes) {
    size_t total = (size_t)count * tensors;
    int *lengths = calloc(total, sizeof *lengths);
    MPI_Aint *places = calloc(total, sizeof *places);
    MPI_Datatype *all = calloc(total, sizeof *all);
    MPI_Datatype joined;
    if (!lengths || !places || !all) {
        peer_fail("no memory for %zu types", total);
    }
    for (size_t i = 0; i < total; i++) {
        lengths[i] = 1;
        places[i] = (MPI_Aint)(i / (size_t)count * shard_bytes);
        all[i] = parts[i % (size_t)count];
    }
    MPI_Type_create_struct((int)total, lengths, places, all, &joined);
    for (int i = 0; i < count; i++) {
        MPI_Type_free(&parts[i]);
    }
    free(lengths);
    free(places);
    free(all);
    return joined;
}

/* The type of what this rank exchanges with `other`; *count_p is 0 when that is nothing. */
static MPI_Datatype type_with(const peer_t *peer, bench_side_t side, uint32_t other,
                              const bench_region_t *regions, size_t count, uint32_t tensors,
                              size_t shard_bytes, int *count_p) {
    MPI_Datatype *parts = calloc(count, sizeof *parts);
    MPI_Datatype type = MPI_BYTE;
    int found = 0;
    if (!parts) {
        peer_fail("no memory for types");
    }
    for (size_t i = 0; i < count; i++) {
        const bench_region_t *region = &regions[i];
        uint32_t mine = side == BENCH_SOURCE ? region->source_rank : region->target_rank;
        uint32_t theirs = side == BENCH_SOURCE ? region->target_rank : region->source_rank;
        if (mine == peer->rank && theirs == other) {
            parts[found++] = subarray(peer, side, region);
        }
    }
    *count_p = found > 0;
    if (found > 0) {
        type = found == 1 && tensors == 1 ? parts[0] : join(parts, found, tensors, shard_bytes);
        MPI_Type_commit(&type);
    }
    free(parts);
    return type;
}

static void side_init(const peer_t *peer, bench_side_t which, uint32_t tensors,
                      const bench_region_t *regions, size_t count, side_t *side) {
    uint32_t ranks = peer->bench.ranks;
    uint64_t rows, cols;
    bench_shard_shape(&peer->bench, which, peer->rank, &rows, &cols);
    side->shard_bytes = rows * cols * peer->bench.element_bytes;
    side->counts = calloc(ranks, sizeof *side->counts);
    side->displacements = calloc(ranks, sizeof *side->displacements);
    side->types = calloc(ranks, sizeof *side->types);
    if (!side->counts || !side->displacements || !side->types) {
        peer_fail("no memory for %u ranks", ranks);
    }
    for (uint32_t other = 0; other < ranks; other++) {
        side->types[other] = type_with(peer, which, other, regions, count, tensors,
                                       side->shard_bytes, &side->counts[other]);
    }
}

static void side_fini(const peer_t *peer, side_t *side) {
    for (uint32_t other = 0; other < peer->bench.ranks; other++) {
        if (side->counts[other]) {
            MPI_Type_free(&side->types[other]);
        }
    }
    free(side->counts);
    free(side->displacements);
    free(side->types);
}

static void move(peer_t *peer, void *context) {
    exchange_t *exchange = context;
    side_t *source = &exchange->side[BENCH_SOURCE];
    side_t *target = &exchange->side[BENCH_TARGET];
    for (uint32_t call = 0; call < exchange->calls; call++) {
        MPI_Alltoallw((char *)peer->source + call * source->shard_bytes, source->counts,
                      source->displacements, source->types,
                      (char *)peer->target + call * target->shard_bytes, target->counts,
                      target->displacements, target->types, MPI_COMM_WORLD);
    }
}

static void measure(peer_t *peer, uint32_t calls, const char *suffix) {
    exchange_t exchange = {.calls = calls};
    bench_region_t *regions;
    size_t count;
    if (!bench_case_regions(&peer->bench, &regions, &count)) {
        peer_fail("no memory for the regions");
    }
    for (int side = 0; side < BENCH_SIDES; side++) {
        side_init(peer, (bench_side_t)side, peer->bench.tensors / calls, regions, count,
                  &exchange.side[side]);
    }
    peer_measure(peer, suffix, move, &exchange);
    for (int side = 0; side < BENCH_SIDES; side++) {
        side_fini(peer, &exchange.side[side]);
    }
    free(regions);
}

int main(int argc, char **argv) {
    peer_t peer;
    peer_init(argc, argv, &peer);
    measure(&peer, 1, "");
    if (peer.bench.tensors > 1 && peer.each) {
        measure(&peer, peer.bench.tensors, "-each");
    }
    peer_fini(&peer);
    return 0;
}
