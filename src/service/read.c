/* read.c - reads a view from another process, stretch by stretch.
 *
 * Both views are walked together in the order of the target; each stretch without gaps on either side
 * is one piece of a process_vm_readv, and neighbours on one side are joined, so that the kernel sees as
 * few pieces as there are. */
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "service/builtin.h"
#include "world/world.h"

enum { PIECES = 256 }; /* of one call; on the stack */

static int64_t magnitude(int64_t value) {
    return value < 0 ? -value : value;
}

/* Sorted by falling target stride, so that the last dim is the innermost. */
static void insert(fy_stretches_t *s, uint64_t extent, int64_t target, int64_t source) {
    uint32_t at = s->ndim++;
    while (at > 0 && magnitude(s->target[at - 1]) < magnitude(target)) {
        s->extent[at] = s->extent[at - 1];
        s->target[at] = s->target[at - 1];
        s->source[at] = s->source[at - 1];
        at--;
    }
    s->extent[at] = extent;
    s->target[at] = target;
    s->source[at] = source;
}

void fy_stretches(uint32_t ndim, const uint64_t *shape, const int64_t *target,
                  const int64_t *source, size_t width, fy_stretches_t *stretches_p) {
    fy_stretches_t *s = stretches_p;
    memset(s, 0, sizeof *s);
    s->run_bytes = width;
    s->count = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] != 1) {
            insert(s, shape[i], target[i] * (int64_t)width, source[i] * (int64_t)width);
        }
    }
    while (s->ndim > 0 && s->target[s->ndim - 1] == (int64_t)s->run_bytes &&
           s->source[s->ndim - 1] == (int64_t)s->run_bytes) {
        s->run_bytes *= s->extent[--s->ndim];
    }
    for (uint32_t i = 0; i < s->ndim; i++) {
        s->count *= s->extent[i];
    }
}

/* A list of pieces that grows at its last one where it can. */
typedef struct pieces {
    struct iovec list[PIECES];
    size_t count;
} pieces_t;

static void append(pieces_t *pieces, uintptr_t at, size_t bytes) {
    if (pieces->count > 0) {
        struct iovec *last = &pieces->list[pieces->count - 1];
        if ((uintptr_t)last->iov_base + last->iov_len == at) {
            last->iov_len += bytes;
            return;
        }
    }
    /* An address in another process is a number here. */
    void *base = (void *)at; // NOLINT(performance-no-int-to-ptr)
    pieces->list[pieces->count++] = (struct iovec){base, bytes};
}

ferry_status_t fy_read_view(ferry_world_t *world, const ferry_view_t *target,
                            const fy_end_t *source, ferry_error_t *err) {
    fy_stretches_t s;
    fy_stretches(target->ndim, target->shape, target->strides, source->strides,
                 ferry_dtype_bits(target->dtype) / 8, &s);
    uint64_t index[FERRY_MAX_DIMS] = {0};
    uintptr_t to = (uintptr_t)target->data;
    uintptr_t from = (uintptr_t)(source->key.at + source->offset);
    pieces_t local = {.count = 0};
    pieces_t remote = {.count = 0};
    for (uint64_t n = 0; n < s.count; n++) {
        append(&local, to, s.run_bytes);
        append(&remote, from, s.run_bytes);
        if (local.count == PIECES || remote.count == PIECES || n + 1 == s.count) {
            FY_TRY(fy_mem_readv(world, source->key.rank, local.list, local.count, remote.list,
                                remote.count, err));
            local.count = 0;
            remote.count = 0;
        }
        for (uint32_t i = s.ndim; i-- > 0;) {
            to += (uintptr_t)s.target[i];
            from += (uintptr_t)s.source[i];
            if (++index[i] < s.extent[i]) {
                break;
            }
            to -= (uintptr_t)s.target[i] * s.extent[i];
            from -= (uintptr_t)s.source[i] * s.extent[i];
            index[i] = 0;
        }
    }
    return FERRY_OK;
}
