/* space.h - a world's shared file: one memfd, mapped once per process.
 *
 * Offsets are equal on all ranks, so memory of a peer is found by its rank and an offset. The file is
 * sealed against growing and shrinking: nobody can pull pages away from under a peer. */
#ifndef FERRY_WORLD_SPACE_H
#define FERRY_WORLD_SPACE_H

#include <stdint.h>

#include "world/control.h"

typedef struct fy_space {
    int fd;
    uint32_t refs; /* handles of this process */
    uint8_t *base;
    fy_control_t *control;
    fy_slot_t *slots; /* size + 1 */
    fy_cell_t *cells; /* [from * size + to] */
    uint8_t *mail;    /* [rank][half][FY_MAIL_BYTES] */
    uint8_t *arenas;
    /* A page that reads 1 in the process that made this, and 0 in what that process forks. */
    uint8_t *mine;
} fy_space_t;

/* Makes the file. arena_bytes 0: the machine's memory. */
ferry_status_t fy_space_create(uint32_t size, uint64_t arena_bytes, fy_space_t **space_p,
                               ferry_error_t *err);
/* Maps a file that another process made; takes the descriptor, also on failure. */
ferry_status_t fy_space_open(int fd, fy_space_t **space_p, ferry_error_t *err);
void fy_space_release(fy_space_t *space); /* NULL is fine */

static inline uint8_t *fy_space_arena(const fy_space_t *space, uint32_t rank) {
    return space->arenas + (uint64_t)rank * space->control->arena_bytes;
}

static inline fy_cell_t *fy_space_cell(const fy_space_t *space, uint32_t from, uint32_t to) {
    return &space->cells[(uint64_t)from * space->control->size + to];
}

static inline uint8_t *fy_space_mail(const fy_space_t *space, uint32_t rank, uint32_t half) {
    return space->mail + ((uint64_t)rank * 2 + half) * FY_MAIL_BYTES;
}

/* Takes pages of the file, so that touching them cannot fail; all or nothing. FERRY_NOMEM. */
ferry_status_t fy_space_reserve(fy_space_t *space, uint64_t offset, uint64_t bytes,
                                ferry_error_t *err);
void fy_space_punch(fy_space_t *space, uint64_t offset, uint64_t bytes);

#endif
