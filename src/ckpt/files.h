/* files.h - reading and writing files whole, or saying what went wrong.
 *
 * Every complaint begins with the file's path (its end, when it is long) and carries errno. Calls that a
 * signal broke off or that did less than asked are carried on. */
#ifndef FERRY_CKPT_FILES_H
#define FERRY_CKPT_FILES_H

#include <ferry/status.h>

/* Fails with "path: text"; `number` is the errno to go with it, or 0. */
ferry_status_t fy_fail_file(ferry_error_t *err, ferry_status_t status, int number, const char *path,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Bytes [offset, offset + bytes) of the file. FERRY_CORRUPT when it ends before. */
ferry_status_t fy_file_read(int fd, const char *path, uint64_t offset, void *target, size_t bytes,
                            ferry_error_t *err);
ferry_status_t fy_file_write(int fd, const char *path, uint64_t offset, const void *source,
                             size_t bytes, ferry_error_t *err);

/* Gives a fresh file its size, with room on the disk where the file system can promise that. */
ferry_status_t fy_file_reserve(int fd, const char *path, uint64_t bytes, ferry_error_t *err);

/* Brings what the file holds to the disk. */
ferry_status_t fy_file_sync(int fd, const char *path, ferry_error_t *err);
/* The same for the names in the folder that `path` lies in. */
ferry_status_t fy_folder_sync(const char *path, ferry_error_t *err);

#ifdef __clang_analyzer__
#define fy_fail_file(err, status, ...) ((void)(fy_fail_file)(err, status, __VA_ARGS__), (status))
#endif

#endif
