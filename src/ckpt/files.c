/* files.c - reading and writing files whole, or saying what went wrong. */
#include "ckpt/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"

enum { PATH_SHOWN = 160 }; /* the end of a path says more than its beginning */

ferry_status_t(fy_fail_file)(ferry_error_t *err, ferry_status_t status, int number,
                             const char *path, const char *format, ...) {
    if (err != NULL) {
        char text[FERRY_ERROR_TEXT_MAX];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof text, format, args);
        va_end(args);
        size_t length = strlen(path);
        bool whole = length <= PATH_SHOWN;
        (void)fy_fail(err, status, "%s%s: %s", whole ? "" : "...",
                      whole ? path : path + length - PATH_SHOWN, text);
        err->sys_errno = number;
    }
    return status;
}

ferry_status_t fy_file_read(int fd, const char *path, uint64_t offset, void *target, size_t bytes,
                            ferry_error_t *err) {
    uint8_t *to = target;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)offset);
        if (got < 0 && errno != EINTR) {
            return fy_fail_file(err, FERRY_IO, errno, path, "cannot read at byte %" PRIu64, offset);
        }
        if (got == 0) {
            return fy_fail_file(err, FERRY_CORRUPT, 0, path,
                                "ends at byte %" PRIu64 ", %zu bytes too early", offset, bytes);
        }
        if (got > 0) {
            to += got;
            offset += (uint64_t)got;
            bytes -= (size_t)got;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_file_write(int fd, const char *path, uint64_t offset, const void *source,
                             size_t bytes, ferry_error_t *err) {
    const uint8_t *from = source;
    while (bytes > 0) {
        ssize_t put = pwrite(fd, from, bytes, (off_t)offset);
        if (put == 0 || (put < 0 && errno != EINTR)) {
            /* Nothing written and no reason given happens on no Linux file system; it must not loop. */
            return fy_fail_file(err, FERRY_IO, put == 0 ? EIO : errno, path,
                                "cannot write %zu bytes at byte %" PRIu64, bytes, offset);
        }
        if (put > 0) {
            from += put;
            offset += (uint64_t)put;
            bytes -= (size_t)put;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_file_reserve(int fd, const char *path, uint64_t bytes, ferry_error_t *err) {
    if (bytes > INT64_MAX) {
        return fy_fail_file(err, FERRY_OVERFLOW, 0, path, "%" PRIu64 " bytes are too many", bytes);
    }
    /* Not posix_fallocate: where the file system cannot, that writes every block. */
    int failed = 0;
    do {
        failed = fallocate(fd, 0, 0, (off_t)bytes);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        do {
            failed = ftruncate(fd, (off_t)bytes);
        } while (failed != 0 && errno == EINTR);
    }
    if (failed != 0) {
        return fy_fail_file(err, FERRY_IO, errno, path, "no room for %" PRIu64 " bytes", bytes);
    }
    return FERRY_OK;
}

/* After a failed fsync the kernel may forget the lost pages: never tried twice, except when broken off. */
static int sync_whole(int fd) {
    int failed = 0;
    do {
        failed = fsync(fd);
    } while (failed != 0 && errno == EINTR);
    return failed;
}

ferry_status_t fy_file_sync(int fd, const char *path, ferry_error_t *err) {
    if (sync_whole(fd) != 0) {
        return fy_fail_file(err, FERRY_IO, errno, path, "cannot sync to disk");
    }
    return FERRY_OK;
}

ferry_status_t fy_folder_sync(const char *path, ferry_error_t *err) {
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char *folder = fy_alloc(length + 2, 1);
    if (folder == NULL) {
        return fy_fail_nomem(err, "the name of a folder");
    }
    memcpy(folder, path, length);
    memcpy(folder + length, ".", 2);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: a file system whose folders cannot be synced; nothing more can be done there. */
    bool synced = fd >= 0 && (sync_whole(fd) == 0 || errno == EINVAL);
    int number = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    ferry_status_t status =
        synced ? FERRY_OK
               : fy_fail_file(err, FERRY_IO, number, folder, "cannot sync the folder to disk");
    fy_free(folder);
    return status;
}
