/* hello.c - saying who we are, and checking who they are.
 *
 * Invariant: of a hello only the fields that its length covers are looked at, and the fields after the
 * version only when the version is ours. */
#include "world/hello.h"

#include <string.h>
#include <sys/stat.h>

#include <ferry/version.h>

#include "base/fail.h"
#include "world/control.h"

void fy_hello_fill(fy_hello_t *hello_p, uint32_t rank, uint32_t size, uint64_t arena_bytes) {
    memset(hello_p, 0, sizeof *hello_p);
    memcpy(hello_p->magic, FY_HELLO_MAGIC, sizeof hello_p->magic);
    hello_p->order = FY_HELLO_ORDER;
    hello_p->version = ferry_version_number();
    hello_p->bytes = sizeof *hello_p;
    hello_p->sizes[0] = sizeof(fy_control_t);
    hello_p->sizes[1] = sizeof(fy_slot_t);
    hello_p->sizes[2] = sizeof(fy_cell_t);
    hello_p->sizes[3] = sizeof(ferry_error_t);
    hello_p->rank = rank;
    hello_p->size = size;
    struct stat stat_of;
    hello_p->pid_space = stat("/proc/self/ns/pid", &stat_of) == 0 ? stat_of.st_ino : 0;
    hello_p->arena_bytes = arena_bytes;
}

static ferry_status_t check_version(const fy_hello_t *hello, size_t got, const fy_hello_t *ours,
                                    ferry_error_t *err) {
    if (got < offsetof(fy_hello_t, sizes)) {
        return fy_fail(err, FERRY_CORRUPT, "a peer's hello is cut short");
    }
    if (hello->order != ours->order) {
        return fy_fail(err, FERRY_UNSUPPORTED, "a peer has another byte order");
    }
    if (hello->version != ours->version) {
        return fy_fail(err, FERRY_VERSION, "a peer runs ferry %u.%u.%u, rank 0 runs %u.%u.%u",
                       hello->version / 1000000, hello->version / 1000 % 1000,
                       hello->version % 1000, ours->version / 1000000, ours->version / 1000 % 1000,
                       ours->version % 1000);
    }
    if (hello->bytes != ours->bytes || got != ours->bytes ||
        memcmp(hello->sizes, ours->sizes, sizeof ours->sizes) != 0) {
        return fy_fail(err, FERRY_VERSION,
                       "a peer was built with other struct sizes than rank 0 (same version)");
    }
    return FERRY_OK;
}

ferry_status_t fy_hello_check(const fy_hello_t *hello, size_t got, const fy_hello_t *ours,
                              ferry_error_t *err) {
    FY_TRY(check_version(hello, got, ours, err));
    if (hello->size != ours->size) {
        return fy_fail(err, FERRY_MISMATCH,
                       "rank %u thinks that the world has %u ranks, rank 0 that it has %u",
                       hello->rank, hello->size, ours->size);
    }
    if (hello->rank >= ours->size) {
        return fy_fail(err, FERRY_MISMATCH, "rank %u came to a world of %u", hello->rank,
                       ours->size);
    }
    if (hello->pid_space != ours->pid_space) {
        return fy_fail(err, FERRY_UNSUPPORTED,
                       "rank %u is in another pid namespace than rank 0; they cannot watch each "
                       "other",
                       hello->rank);
    }
    if (hello->arena_bytes != ours->arena_bytes) {
        return fy_fail(err, FERRY_MISMATCH, "rank %u has another arena_bytes than rank 0",
                       hello->rank);
    }
    return FERRY_OK;
}
