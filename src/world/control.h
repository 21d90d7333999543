/* control.h - what lies at the start of a world's shared file.
 *
 *     fy_control_t | slots, one per rank and one for the launcher | cells, one per ordered pair |
 *     mail, two halves per rank | arena of rank 0 | arena of rank 1 | ...
 *
 * Everything before the arenas is reserved when the file is made. Plain fields are written by one rank
 * and handed over by an atomic one, named in the comment. There is no lock in here: whoever is killed,
 * at whatever point, leaves nothing that others would wait for. */
#ifndef FERRY_WORLD_CONTROL_H
#define FERRY_WORLD_CONTROL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ferry/status.h>

#include "world/wait.h"

#define FY_CONTROL_MAGIC UINT64_C(0x31646c7277797266) /* "frywrld1" */
#define FY_LINE 64
#define FY_MAIL_BYTES 16384 /* a half of a rank's mailbox: what one step of an all-gather carries */
#define FY_CORE_WORDS 16    /* 1024 cores */
#define FY_WHAT_WORDS 5     /* 39 characters of what a rank waits for */

typedef enum fy_slot_state {
    FY_SLOT_ABSENT = 0,
    FY_SLOT_PRESENT = 1,
    FY_SLOT_LEFT = 2,
} fy_slot_state_t;

/* How a process ended, as told by the one that reaped it; 0: not known. */
#define FY_EXIT_KNOWN 0x10000u
#define FY_EXIT_SIGNAL 0x20000u
#define FY_EXIT_NUMBER 0xffffu

typedef struct fy_slot {
    alignas(FY_LINE) _Atomic uint32_t state; /* hands over the plain fields below it */
    _Atomic uint32_t exit;
    _Atomic int32_t pid;
    uint32_t host;
    uint64_t start_time; /* of the process, in ticks since boot: tells a reused pid */
    uint64_t
        probe; /* address of a word that holds FY_CONTROL_MAGIC, for trying cross-process reads */
    uint64_t cores[FY_CORE_WORDS];

    _Atomic uint32_t waits; /* what the rank waits for now; for error texts only */
    _Atomic uint32_t waits_for;
    _Atomic uint64_t what[FY_WHAT_WORDS];
    _Atomic uint64_t sleeps_at; /* 1 + where in the file the counter lies that it sleeps on, or 0 */

    fy_counter_t recover;   /* phases of ferry_world_recover that the rank has reached */
    ferry_error_t failure;  /* handed over by fy_control_t.failed_by */
    ferry_error_t breakage; /* handed over by fy_control_t.broken_by */
    ferry_error_t result;   /* of the rank's function; handed over by state */
} fy_slot_t;

/* What a sender says with each post. */
typedef struct fy_note {
    uint64_t group; /* hash of the members */
    uint64_t bytes; /* of the whole blob */
    uint32_t kind;
    uint32_t half; /* of the sender's mailbox */
} fy_note_t;

/* From one rank to one other. Post n (from 0) uses note n % 2 and needs post n - 2 to have been read. */
typedef struct fy_cell {
    alignas(FY_LINE) fy_counter_t sent; /* hands over the note and the mail */
    fy_note_t note[2];
    alignas(FY_LINE) fy_counter_t read; /* gives them back */
} fy_cell_t;

typedef struct fy_control {
    uint64_t magic;
    uint32_t version; /* ferry_version_number() */
    uint32_t size;
    uint64_t arena_bytes;
    uint64_t total_bytes;

    _Atomic uint32_t failed_by; /* 0, or 1 + the slot whose `failure` is the agreed one */
    _Atomic uint32_t broken_by; /* the same for `breakage` */
} fy_control_t;

#endif
