/* space.c - the shared file of a world.
 *
 * Invariants: the file has its final size before anyone maps it and is sealed then, so no access within
 * it is ever out of bounds; what lies before the arenas is reserved at once, what lies in them is
 * reserved by fy_space_reserve. RLIMIT_FSIZE is asked before the size is set, because passing it sends
 * a signal (SIGXFSZ) and not only an error. */
#include "world/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/version.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "world/world.h"

#define PAGE UINT64_C(4096)
#define HUGE_PAGE (UINT64_C(2) << 20)
#define MOST_ADDRESSES (UINT64_C(1) << 45) /* of all arenas together, unless asked for more */
#define RESERVE_STEP (UINT64_C(64) << 20)

typedef struct offsets {
    uint64_t slots;
    uint64_t cells;
    uint64_t mail;
    uint64_t arenas;
} offsets_t;

static uint64_t round_up(uint64_t value, uint64_t to) {
    return fy_ceil_div(value, to) * to;
}

/* size is at most FERRY_WORLD_MAX_RANKS: nothing here comes near 64 bits. */
static offsets_t find_offsets(uint32_t size) {
    offsets_t at;
    at.slots = round_up(sizeof(fy_control_t), FY_LINE);
    at.cells = at.slots + ((uint64_t)size + 1) * sizeof(fy_slot_t);
    at.mail = round_up(at.cells + (uint64_t)size * size * sizeof(fy_cell_t), PAGE);
    at.arenas = round_up(at.mail + (uint64_t)size * 2 * FY_MAIL_BYTES, HUGE_PAGE);
    return at;
}

static ferry_status_t fail_errno(ferry_error_t *err, ferry_status_t status, int number,
                                 const char *what, uint64_t bytes) {
    (void)fy_fail(err, status, "cannot %s %" PRIu64 " MiB for the world", what, bytes >> 20);
    if (err != NULL) {
        err->sys_errno = number;
    }
    return status;
}

static ferry_status_t find_total(uint32_t size, uint64_t *arena_bytes, uint64_t *total_p,
                                 ferry_error_t *err) {
    uint64_t arena = *arena_bytes;
    if (arena == 0) {
        arena = fy_min_u64(fy_memory_total(), MOST_ADDRESSES / size);
    }
    uint64_t all = 0;
    bool fits = fy_add_u64(arena, HUGE_PAGE - 1, &arena);
    arena -= arena % HUGE_PAGE;
    if (!fits || !fy_mul_u64(arena, size, &all) ||
        !fy_add_u64(all, find_offsets(size).arenas, &all) || all > (uint64_t)INT64_MAX) {
        return fy_fail(err, FERRY_OVERFLOW, "arenas of %" PRIu64 " bytes for %u ranks are too much",
                       *arena_bytes, size);
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        all > limit.rlim_cur) {
        (void)fy_fail(err, FERRY_IO,
                      "the world needs a file of %" PRIu64
                      " MiB, and the limit on the size of files "
                      "(ulimit -f) is %" PRIu64 " MiB: raise it or lower arena_bytes",
                      all >> 20, (uint64_t)limit.rlim_cur >> 20);
        if (err != NULL) {
            err->sys_errno = EFBIG;
        }
        return FERRY_IO;
    }
    *arena_bytes = arena;
    *total_p = all;
    return FERRY_OK;
}

static ferry_status_t map_file(fy_space_t *space, uint64_t total, ferry_error_t *err) {
    void *base =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, space->fd, 0);
    if (base == MAP_FAILED) {
        int number = errno;
        struct rlimit limit;
        if (number == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 &&
            limit.rlim_cur != RLIM_INFINITY) {
            (void)fy_fail(err, FERRY_NOMEM,
                          "cannot map %" PRIu64 " MiB: the limit on address space (ulimit -v) is "
                          "%" PRIu64 " MiB: raise it or lower arena_bytes",
                          total >> 20, (uint64_t)limit.rlim_cur >> 20);
            if (err != NULL) {
                err->sys_errno = number;
            }
            return FERRY_NOMEM;
        }
        return fail_errno(err, number == ENOMEM ? FERRY_NOMEM : FERRY_IO, number, "map", total);
    }
    space->base = base;
    space->control = base;
    return FERRY_OK;
}

/* The page that tells a process from what it forks. */
static ferry_status_t make_mine(fy_space_t *space, ferry_error_t *err) {
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return fail_errno(err, FERRY_NOMEM, errno, "map", PAGE);
    }
    space->mine = page;
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        return fail_errno(err, FERRY_UNSUPPORTED, errno, "mark", PAGE);
    }
    *space->mine = 1;
    return FERRY_OK;
}

static void find_parts(fy_space_t *space, uint32_t size) {
    offsets_t at = find_offsets(size);
    space->slots = (fy_slot_t *)(void *)(space->base + at.slots);
    space->cells = (fy_cell_t *)(void *)(space->base + at.cells);
    space->mail = space->base + at.mail;
    space->arenas = space->base + at.arenas;
}

static ferry_status_t new_space(int fd, fy_space_t **space_p, ferry_error_t *err) {
    fy_space_t *space = fy_alloc_zero(1, sizeof *space);
    if (space == NULL) {
        (void)close(fd);
        return fy_fail_nomem(err, "a world");
    }
    space->fd = fd;
    space->refs = 1;
    *space_p = space;
    return FERRY_OK;
}

static ferry_status_t fill_new(fy_space_t *space, uint32_t size, uint64_t arena, uint64_t total,
                               ferry_error_t *err) {
    if (ftruncate(space->fd, (off_t)total) != 0) {
        return fail_errno(err, FERRY_IO, errno, "make a file of", total);
    }
    if (fcntl(space->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail_errno(err, FERRY_IO, errno, "seal the file of", total);
    }
    FY_TRY(map_file(space, total, err));
    FY_TRY(make_mine(space, err));
    find_parts(space, size);
    FY_TRY(fy_space_reserve(space, 0, find_offsets(size).arenas, err));
    fy_control_t *control = space->control;
    control->magic = FY_CONTROL_MAGIC;
    control->version = ferry_version_number();
    control->size = size;
    control->arena_bytes = arena;
    control->total_bytes = total;
    return FERRY_OK;
}

ferry_status_t fy_space_create(uint32_t size, uint64_t arena_bytes, fy_space_t **space_p,
                               ferry_error_t *err) {
    uint64_t total = 0;
    FY_TRY(find_total(size, &arena_bytes, &total, err));
    int fd = memfd_create("ferry-world", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return fail_errno(err, FERRY_IO, errno, "make a file of", total);
    }
    fy_space_t *space = NULL;
    FY_TRY(new_space(fd, &space, err));
    ferry_status_t status = fill_new(space, size, arena_bytes, total, err);
    if (status != FERRY_OK) {
        fy_space_release(space);
        return status;
    }
    *space_p = space;
    return FERRY_OK;
}

static ferry_status_t fill_opened(fy_space_t *space, ferry_error_t *err) {
    struct stat stat;
    if (fstat(space->fd, &stat) != 0) {
        return fail_errno(err, FERRY_IO, errno, "ask the size of", 0);
    }
    uint64_t total = (uint64_t)stat.st_size;
    int seals = fcntl(space->fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || total < sizeof(fy_control_t)) {
        return fy_fail(err, FERRY_CORRUPT, "what rank 0 sent is not the file of a world");
    }
    FY_TRY(map_file(space, total, err));
    FY_TRY(make_mine(space, err));
    const fy_control_t *control = space->control;
    uint64_t arenas = 0;
    if (control->magic != FY_CONTROL_MAGIC || control->size == 0 ||
        control->size > FERRY_WORLD_MAX_RANKS || control->total_bytes != total ||
        !fy_mul_u64(control->arena_bytes, control->size, &arenas) || arenas > total ||
        total - arenas != find_offsets(control->size).arenas) {
        return fy_fail(err, FERRY_CORRUPT, "what rank 0 sent is not the file of a world");
    }
    find_parts(space, control->size);
    return FERRY_OK;
}

ferry_status_t fy_space_open(int fd, fy_space_t **space_p, ferry_error_t *err) {
    fy_space_t *space = NULL;
    FY_TRY(new_space(fd, &space, err));
    ferry_status_t status = fill_opened(space, err);
    if (status != FERRY_OK) {
        fy_space_release(space);
        return status;
    }
    *space_p = space;
    return FERRY_OK;
}

void fy_space_release(fy_space_t *space) {
    if (space == NULL || --space->refs > 0) {
        return;
    }
    if (space->base != NULL) {
        struct stat stat;
        if (fstat(space->fd, &stat) ==
            0) { /* not the control block: what opened it may have refused it */
            (void)munmap(space->base, (size_t)stat.st_size);
        }
    }
    if (space->mine != NULL) {
        (void)munmap(space->mine, PAGE);
    }
    (void)close(space->fd);
    fy_free(space);
}

void fy_space_punch(fy_space_t *space, uint64_t offset, uint64_t bytes) {
    while (bytes > 0 && fallocate(space->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  (off_t)offset, (off_t)bytes) != 0) {
        if (errno != EINTR) {
            return;
        }
    }
}

ferry_status_t fy_space_reserve(fy_space_t *space, uint64_t offset, uint64_t bytes,
                                ferry_error_t *err) {
    /* In steps, each after a look at what is left: ranks that allocate at once see each other. */
    for (uint64_t done = 0; done < bytes;) {
        uint64_t step = fy_min_u64(bytes - done, RESERVE_STEP);
        uint64_t need = done == 0 ? bytes : step; /* no use to begin what cannot end */
        uint64_t left = bytes >= HUGE_PAGE ? fy_memory_left() : UINT64_MAX;
        if (need > left) {
            fy_space_punch(space, offset, done);
            (void)fy_fail(err, FERRY_NOMEM,
                          "%" PRIu64 " MiB of shared memory asked for, and the machine or its "
                          "control group has %" PRIu64 " MiB left",
                          bytes >> 20, (left + done) >> 20);
            if (err != NULL) {
                err->sys_errno = ENOMEM;
            }
            return FERRY_NOMEM;
        }
        if (fallocate(space->fd, 0, (off_t)(offset + done), (off_t)step) != 0) {
            int number = errno;
            if (number == EINTR) {
                continue;
            }
            fy_space_punch(space, offset, done + step);
            bool full = number == ENOMEM || number == ENOSPC;
            return fail_errno(err, full ? FERRY_NOMEM : FERRY_IO, number, "reserve", bytes);
        }
        done += step;
    }
    return FERRY_OK;
}
