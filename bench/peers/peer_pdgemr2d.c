/* peer_pdgemr2d.c - the cases by ScaLAPACK's redistribution: pdgemr2d, and psgemr2d for f32.
 *
 * ScaLAPACK counts columns first. Our row-major tensor is its transpose: dims, blocks and grids swap
 * places, and our rank order along the rows of a grid is its order along the columns. One call a tensor.
 */
#include "peer.h"

/* ScaLAPACK and BLACS come without a header for C. */
extern void Cblacs_get(int context, int what, int *value);
extern void Cblacs_gridinit(int *context, const char *order, int rows, int cols);
extern void Cblacs_gridinfo(int context, int *rows, int *cols, int *row, int *col);
extern void Cblacs_gridexit(int context);
extern void descinit_(int *desc, const int *m, const int *n, const int *mb, const int *nb,
                      const int *row, const int *col, const int *context, const int *lld,
                      int *info);
extern void Cpdgemr2d(int m, int n, double *a, int ia, int ja, int *desc_a, double *b, int ib,
                      int jb, int *desc_b, int context);
extern void Cpsgemr2d(int m, int n, float *a, int ia, int ja, int *desc_a, float *b, int ib, int jb,
                      int *desc_b, int context);

enum { DESC = 9 };

typedef struct {
    int everyone; /* a context that has all ranks */
    int grid[BENCH_SIDES];
    int desc[BENCH_SIDES][DESC];
    size_t shard_elements[BENCH_SIDES]; /* of one tensor */
} layout_t;

static void describe(const peer_t *peer, bench_side_t side, layout_t *layout) {
    const bench_case_t *bench = &peer->bench;
    const bench_cut_t *cut = &bench->cut[side];
    uint64_t rows, cols;
    int m = (int)bench->cols, n = (int)bench->rows, zero = 0, info = 0;
    int mb = (int)cut->block_cols, nb = (int)cut->block_rows;
    int grid_rows, grid_cols, row, col;
    int *context = &layout->grid[side];
    Cblacs_get(-1, 0, context);
    Cblacs_gridinit(context, "C", (int)cut->grid_cols, (int)cut->grid_rows);
    Cblacs_gridinfo(*context, &grid_rows, &grid_cols, &row, &col);
    if ((uint32_t)(col * grid_rows + row) != peer->rank) {
        peer_fail("rank %u stands at %d, %d of the grid", peer->rank, row, col);
    }
    bench_shard_shape(bench, side, peer->rank, &rows, &cols);
    int leading = (int)cols;
    descinit_(layout->desc[side], &m, &n, &mb, &nb, &zero, &zero, context, &leading, &info);
    if (info != 0) {
        peer_fail("descinit refuses argument %d", -info);
    }
    layout->shard_elements[side] = rows * cols;
}

static void move(peer_t *peer, void *context) {
    layout_t *layout = context;
    const bench_case_t *bench = &peer->bench;
    int m = (int)bench->cols, n = (int)bench->rows;
    int *from = layout->desc[BENCH_SOURCE], *to = layout->desc[BENCH_TARGET];
    for (uint32_t tensor = 0; tensor < bench->tensors; tensor++) {
        size_t source_at = tensor * layout->shard_elements[BENCH_SOURCE];
        size_t target_at = tensor * layout->shard_elements[BENCH_TARGET];
        if (bench->element_bytes == 4) {
            Cpsgemr2d(m, n, (float *)peer->source + source_at, 1, 1, from,
                      (float *)peer->target + target_at, 1, 1, to, layout->everyone);
        } else {
            Cpdgemr2d(m, n, (double *)peer->source + source_at, 1, 1, from,
                      (double *)peer->target + target_at, 1, 1, to, layout->everyone);
        }
    }
}

int main(int argc, char **argv) {
    peer_t peer;
    layout_t layout;
    peer_init(argc, argv, &peer);
    Cblacs_get(-1, 0, &layout.everyone);
    Cblacs_gridinit(&layout.everyone, "C", 1, (int)peer.bench.ranks);
    describe(&peer, BENCH_SOURCE, &layout);
    describe(&peer, BENCH_TARGET, &layout);
    peer_measure(&peer, "", move, &layout);
    Cblacs_gridexit(layout.grid[BENCH_SOURCE]);
    Cblacs_gridexit(layout.grid[BENCH_TARGET]);
    Cblacs_gridexit(layout.everyone);
    peer_fini(&peer);
    return 0;
}
