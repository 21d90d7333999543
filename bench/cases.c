/* cases.c - the cases of `ferry bench`: their shapes, their regions, and memory for them.
 *
 * Along one dim, global position g belongs to part (g / block) % parts, at local position
 * (g / (block * parts)) * block + g % block. All else follows from these two lines.
 *
 * Invariant: the regions of a tensor cover every element exactly once (test/unit/test_bench_cases.c).
 */
#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- the table --------------------------------------------------------------------------------------- */

typedef enum { ROWS_TO_COLUMNS, BLOCK_CYCLIC } kind_t;

typedef struct {
    const char *name;
    kind_t kind;
    uint32_t ranks;
    uint32_t tensors;
    uint32_t element_bytes;
    uint64_t edge; /* the tensors are square */
    bool heap, pipeline;
} entry_t;

static const entry_t table[] = {
    {"row-col-2", ROWS_TO_COLUMNS, 2, 1, 4, 16384, false, false},
    {"row-col-4", ROWS_TO_COLUMNS, 4, 1, 4, 16384, false, false},
    {"row-col-8", ROWS_TO_COLUMNS, 8, 1, 4, 16384, false, false},
    {"row-col-4-heap", ROWS_TO_COLUMNS, 4, 1, 4, 16384, true, false},
    {"small-tensors", ROWS_TO_COLUMNS, 4, 2000, 4, 256, false, false},
    {"block-cyclic", BLOCK_CYCLIC, 4, 1, 8, 11520, false, false},
    {"row-col-4-pipeline", ROWS_TO_COLUMNS, 4, 1, 4, 16384, false, true},
};

enum {
    CASES = sizeof table / sizeof table[0],
    SOURCE_BLOCK = 64,
    TARGET_BLOCK = 48,
    BLOCKS_MEET = 192, /* their least common multiple */
    LINE_ELEMENTS = 16 /* a scaled shard keeps whole cache lines in its rows */
};

const char *bench_case_name(size_t index) {
    return index < CASES ? table[index].name : NULL;
}

static const entry_t *find(const char *name) {
    for (size_t i = 0; i < CASES; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* Cuts the edge over the ranks; one tensor shrinks along both edges, many become fewer. */
static void shrink(double scale, uint64_t unit, bench_case_t *bench) {
    if (bench->tensors > 1) {
        double tensors = ceil(bench->tensors * scale);
        bench->tensors = tensors < 1 ? 1 : (uint32_t)tensors;
        scale = 1;
    }
    uint64_t edge = (uint64_t)((double)bench->rows * sqrt(scale)) / unit * unit;
    bench->rows = bench->cols = edge > unit ? edge : unit;
}

bool bench_case_init(const char *name, uint32_t ranks, double scale, bench_case_t *case_p) {
    const entry_t *entry = find(name);
    if (!entry || !(scale > 0 && scale <= 1)) {
        return false;
    }
    ranks = ranks ? ranks : entry->ranks;
    bench_case_t bench = {.name = entry->name,
                          .ranks = ranks,
                          .tensors = entry->tensors,
                          .element_bytes = entry->element_bytes,
                          .rows = entry->edge,
                          .cols = entry->edge,
                          .heap = entry->heap,
                          .pipeline = entry->pipeline};
    if (entry->kind == BLOCK_CYCLIC) {
        if (ranks % 2 != 0) {
            return false;
        }
        shrink(scale, (uint64_t)BLOCKS_MEET * ranks, &bench);
        bench.cut[BENCH_SOURCE] = (bench_cut_t){2, ranks / 2, SOURCE_BLOCK, SOURCE_BLOCK};
        bench.cut[BENCH_TARGET] = (bench_cut_t){2, ranks / 2, TARGET_BLOCK, TARGET_BLOCK};
    } else {
        uint64_t unit = (uint64_t)LINE_ELEMENTS * ranks;
        if (unit > entry->edge || entry->edge % ranks != 0) {
            return false;
        }
        shrink(scale, unit, &bench);
        bench.cut[BENCH_SOURCE] = (bench_cut_t){ranks, 1, bench.rows / ranks, bench.cols};
        bench.cut[BENCH_TARGET] = (bench_cut_t){1, ranks, bench.rows, bench.cols / ranks};
    }
    *case_p = bench;
    return true;
}

uint64_t bench_case_bytes(const bench_case_t *bench) {
    return bench->tensors * bench->rows * bench->cols * bench->element_bytes;
}

/* --- one dim ----------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t length, block;
    uint32_t parts;
} dim_t;

/* A piece of a dim that lies in one block on both sides. */
typedef struct {
    uint64_t length;
    uint32_t part[BENCH_SIDES];
    uint64_t local[BENCH_SIDES];
} span_t;

/* A block size or a number of parts of 0 counts as 1, so that no division needs to ask. */
static dim_t make_dim(uint64_t length, uint64_t block, uint32_t parts) {
    return (dim_t){length, block ? block : 1, parts ? parts : 1};
}

static dim_t row_dim(const bench_case_t *bench, bench_side_t side) {
    return make_dim(bench->rows, bench->cut[side].block_rows, bench->cut[side].grid_rows);
}

static dim_t col_dim(const bench_case_t *bench, bench_side_t side) {
    return make_dim(bench->cols, bench->cut[side].block_cols, bench->cut[side].grid_cols);
}

static uint32_t part_of(const dim_t *dim, uint64_t global) {
    return (uint32_t)(global / dim->block % dim->parts);
}

static uint64_t local_of(const dim_t *dim, uint64_t global) {
    return global / (dim->block * dim->parts) * dim->block + global % dim->block;
}

static uint64_t global_of(const dim_t *dim, uint32_t part, uint64_t local) {
    return (local / dim->block * dim->parts + part) * dim->block + local % dim->block;
}

static uint64_t part_length(const dim_t *dim, uint32_t part) {
    uint64_t cycle = dim->block * dim->parts;
    uint64_t rest = dim->length % cycle;
    uint64_t before = part * dim->block;
    uint64_t more = rest > before ? rest - before : 0;
    return dim->length / cycle * dim->block + (more < dim->block ? more : dim->block);
}

/* Writes the spans of a dim, or only counts them when spans is NULL. */
static size_t spans_of(const dim_t dims[BENCH_SIDES], span_t *spans) {
    size_t count = 0;
    for (uint64_t at = 0; at < dims[0].length; count++) {
        span_t span = {.length = dims[0].length - at};
        for (int side = 0; side < BENCH_SIDES; side++) {
            uint64_t left = dims[side].block - at % dims[side].block;
            span.length = left < span.length ? left : span.length;
            span.part[side] = part_of(&dims[side], at);
            span.local[side] = local_of(&dims[side], at);
        }
        if (spans) {
            spans[count] = span;
        }
        at += span.length;
    }
    return count;
}

/* --- regions ----------------------------------------------------------------------------------------- */

static bench_region_t cross(const bench_case_t *bench, const span_t *row, const span_t *col) {
    const bench_cut_t *source = &bench->cut[BENCH_SOURCE];
    const bench_cut_t *target = &bench->cut[BENCH_TARGET];
    return (bench_region_t){
        .source_rank = row->part[BENCH_SOURCE] * source->grid_cols + col->part[BENCH_SOURCE],
        .target_rank = row->part[BENCH_TARGET] * target->grid_cols + col->part[BENCH_TARGET],
        .rows = row->length,
        .cols = col->length,
        .source_row = row->local[BENCH_SOURCE],
        .source_col = col->local[BENCH_SOURCE],
        .target_row = row->local[BENCH_TARGET],
        .target_col = col->local[BENCH_TARGET],
    };
}

bool bench_case_regions(const bench_case_t *bench, bench_region_t **regions_p, size_t *count_p) {
    const dim_t row_dims[] = {row_dim(bench, BENCH_SOURCE), row_dim(bench, BENCH_TARGET)};
    const dim_t col_dims[] = {col_dim(bench, BENCH_SOURCE), col_dim(bench, BENCH_TARGET)};
    size_t row_count = spans_of(row_dims, NULL);
    size_t col_count = spans_of(col_dims, NULL);
    span_t *rows = calloc(row_count + 1, sizeof *rows);
    span_t *cols = calloc(col_count + 1, sizeof *cols);
    bench_region_t *regions = calloc(row_count * col_count + 1, sizeof *regions);
    bool fine = rows && cols && regions;
    if (fine) {
        spans_of(row_dims, rows);
        spans_of(col_dims, cols);
        for (size_t i = 0; i < row_count; i++) {
            for (size_t j = 0; j < col_count; j++) {
                regions[i * col_count + j] = cross(bench, &rows[i], &cols[j]);
            }
        }
        *regions_p = regions;
        *count_p = row_count * col_count;
    } else {
        free(regions);
    }
    free(rows);
    free(cols);
    return fine;
}

/* --- shards ------------------------------------------------------------------------------------------ */

void bench_shard_shape(const bench_case_t *bench, bench_side_t side, uint32_t rank,
                       uint64_t *rows_p, uint64_t *cols_p) {
    dim_t rows = row_dim(bench, side);
    dim_t cols = col_dim(bench, side);
    *rows_p = part_length(&rows, rank / cols.parts);
    *cols_p = part_length(&cols, rank % cols.parts);
}

/* Of one tensor. */
static uint64_t shard_elements(const bench_case_t *bench, bench_side_t side, uint32_t rank) {
    uint64_t rows, cols;
    bench_shard_shape(bench, side, rank, &rows, &cols);
    return rows * cols;
}

uint64_t bench_shard_bytes(const bench_case_t *bench, bench_side_t side, uint32_t rank) {
    return shard_elements(bench, side, rank) * bench->element_bytes * bench->tensors;
}

/* Called for each run of neighbouring elements of a shard: where it is, and the value of its first. */
typedef void (*visit_t)(void *context, uint64_t at, uint64_t count, uint64_t value);

/* An element's bits are its position in the case, counted from 1. */
static void walk_shard(const bench_case_t *bench, bench_side_t side, uint32_t rank, visit_t visit,
                       void *context) {
    dim_t row = row_dim(bench, side);
    dim_t col = col_dim(bench, side);
    uint64_t rows, cols;
    bench_shard_shape(bench, side, rank, &rows, &cols);
    for (uint64_t line = 0; line < bench->tensors * rows; line++) {
        uint64_t tensor = line / rows;
        uint64_t global_row = global_of(&row, rank / col.parts, line % rows);
        for (uint64_t at = 0, run; at < cols; at += run) {
            run = col.block - at % col.block;
            run = run < cols - at ? run : cols - at;
            uint64_t global_col = global_of(&col, rank % col.parts, at);
            uint64_t value = (tensor * bench->rows + global_row) * bench->cols + global_col + 1;
            visit(context, line * cols + at, run, value);
        }
    }
}

static void fill_4(void *context, uint64_t at, uint64_t count, uint64_t value) {
    uint32_t *element = (uint32_t *)context + at;
    for (uint64_t i = 0; i < count; i++) {
        element[i] = (uint32_t)(value + i);
    }
}

static void fill_8(void *context, uint64_t at, uint64_t count, uint64_t value) {
    uint64_t *element = (uint64_t *)context + at;
    for (uint64_t i = 0; i < count; i++) {
        element[i] = value + i;
    }
}

typedef struct {
    const void *base;
    uint64_t wrong;
} check_t;

static void check_4(void *context, uint64_t at, uint64_t count, uint64_t value) {
    check_t *check = context;
    const uint32_t *element = (const uint32_t *)check->base + at;
    for (uint64_t i = 0; i < count; i++) {
        check->wrong += element[i] != (uint32_t)(value + i);
    }
}

static void check_8(void *context, uint64_t at, uint64_t count, uint64_t value) {
    check_t *check = context;
    const uint64_t *element = (const uint64_t *)check->base + at;
    for (uint64_t i = 0; i < count; i++) {
        check->wrong += element[i] != value + i;
    }
}

void bench_shard_fill(const bench_case_t *bench, bench_side_t side, uint32_t rank, void *base) {
    walk_shard(bench, side, rank, bench->element_bytes == 4 ? fill_4 : fill_8, base);
}

uint64_t bench_shard_wrong(const bench_case_t *bench, bench_side_t side, uint32_t rank,
                           const void *base) {
    check_t check = {base, 0};
    walk_shard(bench, side, rank, bench->element_bytes == 4 ? check_4 : check_8, &check);
    return check.wrong;
}

/* --- memory ------------------------------------------------------------------------------------------ */

static void *map(bench_memory_t memory, size_t bytes) {
    void *base = MAP_FAILED;
    if (memory == BENCH_MEMORY_SHARED) {
        int fd = memfd_create("ferry-bench", MFD_CLOEXEC);
        if (fd < 0) {
            return NULL;
        }
        /* Reserved now, so that a lack of memory is an error here and not a signal later. */
        int failed = posix_fallocate(fd, 0, (off_t)bytes);
        if (failed) {
            errno = failed;
        } else {
            base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
        int error = errno;
        close(fd);
        errno = error;
    } else {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (base != MAP_FAILED && memory == BENCH_MEMORY_HUGE) {
        (void)madvise(base, bytes, MADV_HUGEPAGE); /* ordinary pages are slower, not wrong */
    }
    return base == MAP_FAILED ? NULL : base;
}

bool bench_buffers_init(const bench_case_t *bench, bench_memory_t memory,
                        bench_buffers_t *buffers_p) {
    bench_buffers_t buffers = {.ranks = bench->ranks};
    bool fine = true;
    for (int side = 0; side < BENCH_SIDES; side++) {
        buffers.base[side] = calloc(bench->ranks, sizeof *buffers.base[side]);
        buffers.bytes[side] = calloc(bench->ranks, sizeof *buffers.bytes[side]);
        fine = fine && buffers.base[side] && buffers.bytes[side];
    }
    for (uint32_t i = 0; fine && i < BENCH_SIDES * bench->ranks; i++) {
        bench_side_t side = (bench_side_t)(i / bench->ranks);
        uint32_t rank = i % bench->ranks;
        size_t bytes = bench_shard_bytes(bench, side, rank);
        void *base = map(memory, bytes);
        if (!base) {
            fine = false;
            break;
        }
        buffers.bytes[side][rank] = bytes;
        buffers.base[side][rank] = base;
        if (side == BENCH_SOURCE) {
            bench_shard_fill(bench, side, rank, base);
        } else {
            memset(base, 0, bytes);
        }
    }
    if (!fine) {
        int error = errno;
        bench_buffers_fini(&buffers);
        errno = error;
        return false;
    }
    *buffers_p = buffers;
    return true;
}

void bench_buffers_fini(bench_buffers_t *buffers) {
    for (int side = 0; side < BENCH_SIDES; side++) {
        for (uint32_t rank = 0; buffers->base[side] && rank < buffers->ranks; rank++) {
            if (buffers->base[side][rank]) {
                munmap(buffers->base[side][rank], buffers->bytes[side][rank]);
            }
        }
        free(buffers->base[side]);
        free(buffers->bytes[side]);
    }
    *buffers = (bench_buffers_t){0};
}

static bench_copy_t copy_of(const bench_case_t *bench, const bench_buffers_t *buffers,
                            const bench_region_t *region, uint32_t tensor) {
    uint64_t rows, source_cols, target_cols, element = bench->element_bytes;
    uint64_t source_rank = region->source_rank, target_rank = region->target_rank;
    bench_shard_shape(bench, BENCH_SOURCE, region->source_rank, &rows, &source_cols);
    uint64_t source_at = (tensor * rows + region->source_row) * source_cols + region->source_col;
    bench_shard_shape(bench, BENCH_TARGET, region->target_rank, &rows, &target_cols);
    uint64_t target_at = (tensor * rows + region->target_row) * target_cols + region->target_col;
    return (bench_copy_t){
        .source = (const uint8_t *)buffers->base[BENCH_SOURCE][source_rank] + source_at * element,
        .target = (uint8_t *)buffers->base[BENCH_TARGET][target_rank] + target_at * element,
        .rows = region->rows,
        .row_bytes = region->cols * element,
        .source_stride = source_cols * element,
        .target_stride = target_cols * element,
    };
}

bool bench_case_copies(const bench_case_t *bench, const bench_buffers_t *buffers,
                       bench_copy_t **copies_p, size_t *count_p) {
    bench_region_t *regions;
    size_t count;
    if (!bench_case_regions(bench, &regions, &count)) {
        return false;
    }
    bench_copy_t *copies = calloc(count * bench->tensors + 1, sizeof *copies);
    for (uint32_t tensor = 0; copies && tensor < bench->tensors; tensor++) {
        for (size_t i = 0; i < count; i++) {
            copies[tensor * count + i] = copy_of(bench, buffers, &regions[i], tensor);
        }
    }
    free(regions);
    if (!copies) {
        return false;
    }
    *copies_p = copies;
    *count_p = count * bench->tensors;
    return true;
}

uint64_t bench_buffers_wrong(const bench_case_t *bench, const bench_buffers_t *buffers) {
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < bench->ranks; rank++) {
        wrong += bench_shard_wrong(bench, BENCH_TARGET, rank, buffers->base[BENCH_TARGET][rank]);
    }
    return wrong;
}
