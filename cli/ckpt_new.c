/* ckpt_new.c - a checkpoint folder that appears whole or not at all.
 *
 * Invariant: part is set exactly while a folder of ours is there under that name. */
#include "ckpt_new.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"

/* Whether nothing is in a folder; false with errno when it cannot be read. */
static bool is_empty(const char *path, bool *empty_p) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return false;
    }
    const struct dirent *entry = NULL;
    *empty_p = true;
    while (*empty_p && (entry = readdir(folder)) != NULL) {
        *empty_p = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    }
    (void)closedir(folder);
    return true;
}

/* 0 or an errno. Files go, folders in it do not: then it stays. */
static int remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT ? 0 : errno;
    }
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    (void)closedir(folder);
    return rmdir(path) == 0 ? 0 : errno;
}

/* *taken_p: there is a folder that is not empty. */
static ferry_status_t check_place(const char *path, bool force, bool *taken_p, ferry_error_t *err) {
    struct stat info;
    *taken_p = false;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? FERRY_OK : cli_fail_errno(err, errno, "%s", path);
    }
    if (!S_ISDIR(info.st_mode)) { /* a link, too: what it leads to is not ours to rename */
        return cli_fail(err, FERRY_INVALID, "%s: is there and is no folder", path);
    }
    bool empty = false;
    if (!is_empty(path, &empty)) {
        return cli_fail_errno(err, errno, "%s: cannot be read", path);
    }
    *taken_p = !empty;
    return empty || force
               ? FERRY_OK
               : cli_fail(err, FERRY_INVALID,
                          "%s: is there already and is not empty (--force replaces it)", path);
}

/* The path without slashes at its end; free with free(). */
static char *trim(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    return strndup(path, length);
}

ferry_status_t ckpt_new_check(const char *path, bool force, ferry_error_t *err) {
    if (path[0] == '\0') {
        return cli_fail(err, FERRY_INVALID, "'': the name of a folder is needed");
    }
    char *place = trim(path);
    if (place == NULL) {
        return cli_fail_nomem(err);
    }
    bool taken = false;
    ferry_status_t status = check_place(place, force, &taken, err);
    free(place);
    return status;
}

ferry_status_t ckpt_new_init(ckpt_new_t *folder, const char *path, bool force, ferry_error_t *err) {
    *folder = (ckpt_new_t){.force = force};
    ferry_status_t status = ckpt_new_check(path, force, err);
    if (status != FERRY_OK) {
        return status;
    }
    char *part = NULL;
    folder->path = trim(path);
    if (folder->path == NULL || asprintf(&part, "%s.ferry-part", folder->path) < 0) {
        return cli_fail_nomem(err);
    }
    int error = remove_folder(part); /* what an earlier run left */
    if (error == 0 && mkdir(part, 0777) != 0) {
        error = errno;
    }
    if (error != 0) {
        status = cli_fail_errno(err, error, "%s: cannot be made", part);
        free(part);
        return status;
    }
    folder->part = part;
    return FERRY_OK;
}

void ckpt_new_fini(ckpt_new_t *folder) {
    if (folder->part != NULL) {
        (void)remove_folder(folder->part);
    }
    free(folder->part);
    free(folder->path);
    *folder = (ckpt_new_t){0};
}

char *ckpt_new_file(const ckpt_new_t *folder, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder->part, name) >= 0 ? path : NULL;
}

/* 0 or an errno. */
static int write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t done = write(fd, text, length);
        if (done < 0 && errno != EINTR) {
            return errno;
        }
        text += done > 0 ? done : 0;
        length -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

/* The text and a newline. 0 or an errno. */
static int write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    int error = write_all(fd, text, strlen(text));
    error = error == 0 ? write_all(fd, "\n", 1) : error;
    if (error == 0 && fsync(fd) != 0) {
        error = errno;
    }
    return close(fd) != 0 && error == 0 ? errno : error;
}

ferry_status_t ckpt_new_text(const ckpt_new_t *folder, const char *name, const char *text,
                             ferry_error_t *err) {
    char *path = ckpt_new_file(folder, name);
    if (path == NULL) {
        return cli_fail_nomem(err);
    }
    int error = write_text(path, text);
    ferry_status_t status =
        error == 0 ? FERRY_OK : cli_fail_errno(err, error, "%s: cannot be written", path);
    free(path);
    return status;
}

/* Makes the rename itself last, where folders can be synced. */
static void sync_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int fd = parent != NULL ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(parent);
}

/* The name changes hands: the old folder is moved aside first, and back when that fails. */
static ferry_status_t replace(const ckpt_new_t *folder, ferry_error_t *err) {
    char *old = NULL;
    if (asprintf(&old, "%s.ferry-old", folder->path) < 0) {
        return cli_fail_nomem(err);
    }
    int error = remove_folder(old);
    if (error == 0 && rename(folder->path, old) != 0) {
        error = errno;
    }
    if (error == 0 && rename(folder->part, folder->path) != 0) {
        error = errno;
        (void)rename(old, folder->path);
    }
    ferry_status_t status =
        error == 0 ? FERRY_OK : cli_fail_errno(err, error, "%s: cannot be replaced", folder->path);
    if (error == 0) {
        (void)remove_folder(old); /* folders in it are not ours to remove: then it stays aside */
    }
    free(old);
    return status;
}

ferry_status_t ckpt_new_commit(ckpt_new_t *folder, ferry_error_t *err) {
    bool taken = false;
    ferry_status_t status = check_place(folder->path, folder->force, &taken, err);
    if (status == FERRY_OK && taken) {
        status = replace(folder, err);
    } else if (status == FERRY_OK && rename(folder->part, folder->path) != 0) {
        status = cli_fail_errno(err, errno, "%s: cannot be given its name", folder->path);
    }
    if (status == FERRY_OK) {
        free(folder->part);
        folder->part = NULL;
        sync_parent(folder->path);
    }
    return status;
}
