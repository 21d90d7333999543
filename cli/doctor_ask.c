/* doctor_ask.c - what the system says about itself, read from /proc, /sys and a few calls.
 *
 * Invariant: a file that is absent or says nothing readable gives the answer "no limit" or "absent". */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ferry/kernel.h>

#include "doctor.h"

enum { FILE_TEXT_MAX = 4096, PATH_TEXT_MAX = 512 };

/* ---- files ------------------------------------------------------------------------------------- */

/* The beginning of a small file, terminated; "" when it cannot be read. */
static const char *read_text(const char *path, char text_p[FILE_TEXT_MAX]) {
    size_t length = 0;
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        length = fread(text_p, 1, FILE_TEXT_MAX - 1, file);
        (void)fclose(file);
    }
    text_p[length] = '\0';
    return text_p;
}

/* The number after `key`, or `otherwise`. */
static uint64_t number_after(const char *text, const char *key, uint64_t otherwise) {
    const char *at = strstr(text, key);
    if (at == NULL) {
        return otherwise;
    }
    at += strlen(key);
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(at, &end, 10);
    return end == at || errno != 0 ? otherwise : value;
}

/* The word in brackets of a setting such as "always [madvise] never". */
static void chosen_word(const char *path, char word_p[16]) {
    char text[FILE_TEXT_MAX];
    const char *open = strchr(read_text(path, text), '[');
    size_t length = open != NULL ? strcspn(open + 1, "]") : 0;
    if (open == NULL || length >= 16) {
        (void)snprintf(word_p, 16, "absent");
        return;
    }
    (void)snprintf(word_p, 16, "%.*s", (int)length, open + 1);
}

/* ---- cores ------------------------------------------------------------------------------------- */

/* The folder of this process's cgroup (version 2) in path_p. False when there is none. */
static bool cgroup_folder(char path_p[PATH_TEXT_MAX]) {
    char text[FILE_TEXT_MAX];
    const char *line = strstr(read_text("/proc/self/cgroup", text), "0::");
    if (line == NULL) {
        return false;
    }
    line += strlen("0::");
    int length =
        snprintf(path_p, PATH_TEXT_MAX, "/sys/fs/cgroup%.*s", (int)strcspn(line, "\n"), line);
    return length > 0 && length < PATH_TEXT_MAX;
}

/* Calls `take` with the text of `file` in our cgroup and in all above it: each of them binds. */
static void each_cgroup(const char *file, void (*take)(const char *text, doctor_facts_t *facts),
                        doctor_facts_t *facts) {
    char folder[PATH_TEXT_MAX];
    if (!cgroup_folder(folder)) {
        return;
    }
    for (;;) {
        char path[PATH_TEXT_MAX + 32];
        char text[FILE_TEXT_MAX];
        (void)snprintf(path, sizeof path, "%s/%s", folder, file);
        take(read_text(path, text), facts);
        char *slash = strrchr(folder, '/');
        if (slash == NULL || strcmp(folder, "/sys/fs/cgroup") == 0) {
            return;
        }
        *slash = '\0';
    }
}

/* "200000 100000" is two cores, "max 100000" no limit. */
static void take_quota(const char *text, doctor_facts_t *facts) {
    char *end = NULL;
    double quota = strtod(text, &end);
    double period = end != text ? strtod(end, NULL) : 0;
    if (period > 0 && quota > 0 && (facts->cpu_quota <= 0 || quota / period < facts->cpu_quota)) {
        facts->cpu_quota = quota / period;
    }
}

static void take_memory_max(const char *text, doctor_facts_t *facts) {
    uint64_t bytes = number_after(text, "", DOCTOR_UNLIMITED);
    facts->cgroup_bytes = bytes < facts->cgroup_bytes ? bytes : facts->cgroup_bytes;
}

static void name_features(char text_p[48]) {
    text_p[0] = '\0';
#if defined(__x86_64__)
    (void)snprintf(text_p, 48, "%s%s%s", __builtin_cpu_supports("avx2") ? "avx2 " : "",
                   __builtin_cpu_supports("avx512f") ? "avx512f " : "",
                   __builtin_cpu_supports("avx512bw") ? "avx512bw " : "");
#endif
    size_t length = strlen(text_p);
    if (length > 0) {
        text_p[length - 1] = '\0';
    }
}

static void ask_cores(doctor_facts_t *facts) {
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    facts->cores_online = online > 0 ? (uint32_t)online : 1;
    facts->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set)
                                                               : facts->cores_online;
    each_cgroup("cpu.max", take_quota, facts);
    if (ferry_kernel_isa(&facts->isa, &facts->isa_error) != FERRY_OK) {
        facts->isa = NULL;
    }
    name_features(facts->cpu_features);
}

/* ---- memory ------------------------------------------------------------------------------------ */

static uint64_t ask_limit(__rlimit_resource_t resource) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return DOCTOR_UNLIMITED;
    }
    return limit.rlim_cur;
}

static void ask_shared_memory(doctor_facts_t *facts) {
    long page = sysconf(_SC_PAGESIZE);
    int fd = memfd_create("ferry-doctor", MFD_CLOEXEC);
    facts->memfd_errno = fd < 0 ? errno : 0;
    facts->fallocate_errno = facts->memfd_errno;
    if (fd >= 0) {
        facts->fallocate_errno = fallocate(fd, 0, 0, page) != 0 ? errno : 0;
        (void)close(fd);
    }
}

static void ask_memory(doctor_facts_t *facts) {
    char text[FILE_TEXT_MAX];
    (void)read_text("/proc/meminfo", text);
    facts->memory_bytes = number_after(text, "MemTotal:", 0) * 1024;
    facts->available_bytes = number_after(text, "MemAvailable:", 0) * 1024;
    facts->huge_reserved_bytes =
        number_after(text, "HugePages_Total:", 0) * number_after(text, "Hugepagesize:", 0) * 1024;
    facts->cgroup_bytes = DOCTOR_UNLIMITED;
    each_cgroup("memory.max", take_memory_max, facts);
    facts->limit_as = ask_limit(RLIMIT_AS);
    facts->limit_fsize = ask_limit(RLIMIT_FSIZE);
    facts->limit_memlock = ask_limit(RLIMIT_MEMLOCK);
    facts->limit_nofile = ask_limit(RLIMIT_NOFILE);
    ask_shared_memory(facts);
    chosen_word("/sys/kernel/mm/transparent_hugepage/enabled", facts->huge_anon);
    chosen_word("/sys/kernel/mm/transparent_hugepage/shmem_enabled", facts->huge_shared);
}

/* ---- processes --------------------------------------------------------------------------------- */

static void ask_processes(doctor_facts_t *facts) {
    char text[FILE_TEXT_MAX];
    facts->uid = (uint32_t)geteuid();
    uint64_t scope = number_after(read_text("/proc/sys/kernel/yama/ptrace_scope", text), "", 99);
    facts->ptrace_scope = scope < 99 ? (int)scope : -1;
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    facts->pidfd_errno = fd < 0 ? errno : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
}

void doctor_ask(doctor_facts_t *facts_p) {
    *facts_p = (doctor_facts_t){.isa_error = FERRY_ERROR_INIT, .world_error = FERRY_ERROR_INIT};
    ask_cores(facts_p);
    ask_memory(facts_p);
    ask_processes(facts_p);
}
