/* ckpt_new.h - a checkpoint folder that appears whole or not at all.
 *
 * Everything goes to a folder beside the target, which gets its name when all is there, as the library does it
 * when it converts.
 *
 * Ownership: ckpt_new_fini frees everything and removes what was not committed. */
#ifndef CLI_CKPT_NEW_H
#define CLI_CKPT_NEW_H

#include <stdbool.h>

#include <ferry/status.h>

typedef struct ckpt_new {
    char *path; /* without slashes at its end */
    char *part; /* the folder that is written, until it has its name */
    bool force;
} ckpt_new_t;

/* FERRY_INVALID when there is something that is no folder, or a folder that is not empty, unless `force`. */
ferry_status_t ckpt_new_check(const char *path, bool force, ferry_error_t *err);
/* The same check, and the folder that is to be written. */
ferry_status_t ckpt_new_init(ckpt_new_t *folder, const char *path, bool force, ferry_error_t *err);
void ckpt_new_fini(ckpt_new_t *folder);

/* The path that a file of the folder has while it is written; free with free(). NULL: no memory. */
char *ckpt_new_file(const ckpt_new_t *folder, const char *name);
/* A file with this text and a newline, synced. */
ferry_status_t ckpt_new_text(const ckpt_new_t *folder, const char *name, const char *text,
                             ferry_error_t *err);
/* Gives the folder its name; with `force`, in the place of one that was there. */
ferry_status_t ckpt_new_commit(ckpt_new_t *folder, ferry_error_t *err);

#endif
