/* doctor.h - what this machine allows, and what things cost on it.
 *
 * doctor_ask reads what the system says, doctor_measure tries things out; together they take less than
 * three seconds. Neither fails: what cannot be had is in the facts as such.
 *
 * Ownership: the facts are plain memory. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#define DOCTOR_UNLIMITED UINT64_MAX

typedef struct doctor_facts {
    /* cores */
    uint32_t cores; /* that we may use */
    uint32_t cores_online;
    double cpu_quota; /* cores that the cgroup grants; 0: no limit */
    const char *isa;  /* what the kernels use; NULL: nothing, and isa_error says why */
    ferry_error_t isa_error;
    char cpu_features[48];
    /* memory */
    uint64_t memory_bytes;
    uint64_t available_bytes;
    uint64_t cgroup_bytes; /* DOCTOR_UNLIMITED: no limit; so in the next four */
    uint64_t limit_as;
    uint64_t limit_fsize;
    uint64_t limit_memlock;
    uint64_t limit_nofile;
    int memfd_errno;     /* 0: there is memfd_create */
    int fallocate_errno; /* 0: space in it can be reserved */
    char huge_anon[16];  /* "always", "madvise", "never", or "absent" */
    char huge_shared[16];
    uint64_t huge_reserved_bytes;
    /* processes */
    uint32_t uid;
    int ptrace_scope; /* -1: the system has no such setting */
    int pidfd_errno;
    ferry_status_t world; /* did two processes start and meet? */
    ferry_error_t world_error;
    bool can_read;
    /* figures; 0 where there is none */
    double read_long_gbps;  /* cross-process reads of 32 KiB runs, one reader */
    double read_short_gbps; /* of 256-byte runs */
    double futex_us;        /* round trip between two processes that sleep */
    double touch_gbps;      /* shared pages, reserved and touched for the first time */
    double copy_one_gbps;   /* bytes copied a second: each is read once and written once */
    double copy_all_gbps;
} doctor_facts_t;

void doctor_ask(doctor_facts_t *facts_p);

/* Needs doctor_ask first. */
void doctor_measure(doctor_facts_t *facts);

#endif
