/* limit_readv.c - the raw process_vm_readv loop, the yardstick of cross-process reads.
 *
 * The child is a fork that writes one byte to each page of the sources, so that it has pages of its own
 * at the addresses that the copies name, and then sleeps until the pipe from its parent closes. The
 * workers, threads of the parent, read from it.
 *
 * Invariants: a batch has at most IOV_MAX remote and at most IOV_MAX local pieces, and their bytes are
 * equal. Local pieces that touch are one piece; remote ones are rows, merged in the same way.
 */
#include "limit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool.h"

/* A batch ends here even when it could hold more rows, so that the workers finish together. */
enum { BATCH_BYTES = 4 * 1024 * 1024 };

typedef struct {
    size_t local, local_count;
    size_t remote, remote_count;
    size_t bytes;
} batch_t;

struct limit_readv {
    bench_pool_t *pool;
    pid_t child;
    int keep_alive; /* the child ends when this closes */
    struct iovec *local, *remote;
    batch_t *batches;
    size_t batch_count;
    atomic_size_t next_batch;
    atomic_int error;
};

/* --- the child --------------------------------------------------------------------------------------- */

/* What the child does with its copy of a source, and the type of iov_base, know no const. */
static uint8_t *unconst(const void *source) {
    union {
        const void *in;
        void *out;
    } both = {.in = source};
    return both.out;
}

static void own_pages(const bench_copy_t *copy) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t row = 0; row < copy->rows; row++) {
        volatile uint8_t *begin = unconst(copy->source) + row * copy->source_stride;
        size_t step = page - (uintptr_t)begin % page;
        for (size_t at = 0; at < copy->row_bytes; at += step, step = page) {
            uint8_t value = begin[at];
            begin[at] = value;
        }
    }
}

/* Only calls that are safe after a fork of a process with threads. */
_Noreturn static void child_main(const bench_copy_t *copies, size_t count, int ready, int alive,
                                 pid_t parent) {
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        own_pages(&copies[i]);
    }
    if (write(ready, &byte, 1) != 1) {
        _exit(1);
    }
    while (read(alive, &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

static bool start_child(limit_readv_t *limit, const bench_copy_t *copies, size_t count) {
    int ready[2], alive[2];
    char byte;
    if (pipe(ready) != 0) {
        return false;
    }
    if (pipe(alive) != 0) {
        close(ready[0]);
        close(ready[1]);
        return false;
    }
    pid_t parent = getpid();
    limit->child = fork();
    if (limit->child == 0) {
        close(ready[0]);
        close(alive[1]);
        child_main(copies, count, ready[1], alive[0], parent);
    }
    close(ready[1]);
    close(alive[0]);
    limit->keep_alive = alive[1];
    bool fine = limit->child > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    return fine;
}

/* --- batches ----------------------------------------------------------------------------------------- */

/* Adds a piece to a list, or lengthens the list's last one. */
static void append(struct iovec *list, size_t begin, size_t *count, void *base, size_t bytes) {
    struct iovec *last = *count > 0 ? &list[begin + *count - 1] : NULL;
    if (last && (uintptr_t)last->iov_base + last->iov_len == (uintptr_t)base) {
        last->iov_len += bytes;
        return;
    }
    list[begin + (*count)++] = (struct iovec){base, bytes};
}

static void fill_batches(limit_readv_t *limit, const bench_copy_t *copies, size_t count) {
    batch_t batch = {0};
    for (size_t i = 0; i < count; i++) {
        const bench_copy_t *copy = &copies[i];
        for (size_t row = 0; row < copy->rows; row++) {
            if (batch.local_count == IOV_MAX || batch.remote_count == IOV_MAX ||
                batch.bytes >= BATCH_BYTES) {
                limit->batches[limit->batch_count++] = batch;
                batch = (batch_t){.local = batch.local + batch.local_count,
                                  .remote = batch.remote + batch.remote_count};
            }
            append(limit->remote, batch.remote, &batch.remote_count,
                   unconst(copy->source) + row * copy->source_stride, copy->row_bytes);
            append(limit->local, batch.local, &batch.local_count,
                   (uint8_t *)copy->target + row * copy->target_stride, copy->row_bytes);
            batch.bytes += copy->row_bytes;
        }
    }
    if (batch.bytes > 0) {
        limit->batches[limit->batch_count++] = batch;
    }
}

static bool make_batches(limit_readv_t *limit, const bench_copy_t *copies, size_t count) {
    size_t rows = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        rows += copies[i].rows;
        bytes += copies[i].rows * copies[i].row_bytes;
    }
    size_t batches = rows / IOV_MAX + bytes / BATCH_BYTES + 2;
    limit->local = calloc(rows + 1, sizeof *limit->local);
    limit->remote = calloc(rows + 1, sizeof *limit->remote);
    limit->batches = calloc(batches, sizeof *limit->batches);
    if (!limit->local || !limit->remote || !limit->batches) {
        return false;
    }
    fill_batches(limit, copies, count);
    return true;
}

/* --- rounds ------------------------------------------------------------------------------------------ */

static void work(void *context, unsigned worker) {
    limit_readv_t *limit = context;
    (void)worker;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&limit->next_batch, 1, memory_order_relaxed);
        if (i >= limit->batch_count) {
            return;
        }
        const batch_t *batch = &limit->batches[i];
        errno = 0;
        ssize_t got =
            process_vm_readv(limit->child, &limit->local[batch->local], batch->local_count,
                             &limit->remote[batch->remote], batch->remote_count, 0);
        if (got != (ssize_t)batch->bytes) {
            atomic_store(&limit->error, errno ? errno : EFAULT);
            return;
        }
    }
}

double limit_readv_round(limit_readv_t *limit) {
    atomic_store(&limit->next_batch, 0);
    atomic_store(&limit->error, 0);
    double seconds = bench_pool_run(limit->pool, work, limit);
    int error = atomic_load(&limit->error);
    if (error) {
        errno = error;
        return -1;
    }
    return seconds;
}

/* --- life -------------------------------------------------------------------------------------------- */

limit_readv_t *limit_readv_create(const bench_copy_t *copies, size_t count) {
    limit_readv_t *limit = calloc(1, sizeof *limit);
    if (!limit) {
        return NULL;
    }
    limit->keep_alive = -1;
    if (!make_batches(limit, copies, count) || !start_child(limit, copies, count) ||
        !(limit->pool = bench_pool_create())) {
        int error = errno;
        limit_readv_destroy(limit);
        errno = error;
        return NULL;
    }
    return limit;
}

void limit_readv_destroy(limit_readv_t *limit) {
    if (!limit) {
        return;
    }
    bench_pool_destroy(limit->pool);
    if (limit->keep_alive >= 0) {
        close(limit->keep_alive);
    }
    if (limit->child > 0) {
        /* Not only the closed pipe: another fork may have inherited it. */
        kill(limit->child, SIGKILL);
        waitpid(limit->child, NULL, 0);
    }
    free(limit->local);
    free(limit->remote);
    free(limit->batches);
    free(limit);
}
