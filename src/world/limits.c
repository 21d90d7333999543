/* limits.c - how much memory is left.
 *
 * Reserving pages of a shared file beyond the machine's memory does not fail: it wakes the kernel's
 * killer. So ferry asks first: the machine (MemAvailable) and the control group of this process. A
 * figure that cannot be read does not limit. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "world/world.h"

#define TEXT_MAX 8192

/* The whole (small) file as text; false when there is none. */
static bool read_text(const char *path, char text[TEXT_MAX]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t length = read(fd, text, TEXT_MAX - 1);
    (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The number behind the word at the start of a line. */
static bool find_number(const char *text, const char *word, uint64_t *value_p) {
    size_t length = strlen(word);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n' ? 1 : 0;
        if (strncmp(line, word, length) == 0) {
            char *end = NULL;
            *value_p = strtoull(line + length, &end, 10);
            return end != line + length;
        }
    }
    return false;
}

static uint64_t machine_left(void) {
    char text[TEXT_MAX];
    uint64_t kib = 0;
    if (!read_text("/proc/meminfo", text) || !find_number(text, "MemAvailable:", &kib)) {
        return UINT64_MAX;
    }
    uint64_t left = kib * 1024;
    uint64_t margin = fy_memory_total() / 64; /* others go on living, too */
    return left > margin ? left - margin : 0;
}

static uint64_t group_left(const char *folder) {
    char path[512];
    char text[TEXT_MAX];
    (void)snprintf(path, sizeof path, "%s/memory.max", folder);
    if (!read_text(path, text) || strncmp(text, "max", 3) == 0) {
        return UINT64_MAX;
    }
    uint64_t most = strtoull(text, NULL, 10);
    (void)snprintf(path, sizeof path, "%s/memory.current", folder);
    if (!read_text(path, text)) {
        return UINT64_MAX;
    }
    uint64_t used = strtoull(text, NULL, 10);
    uint64_t cached = 0;
    (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (read_text(path, text)) {
        (void)find_number(text, "inactive_file ", &cached);
    }
    used -= fy_min_u64(used, cached);
    return most > used ? most - used : 0;
}

/* Control groups, version 2: the one of this process and those above it. */
static uint64_t groups_left(void) {
    char text[TEXT_MAX];
    if (!read_text("/proc/self/cgroup", text)) {
        return UINT64_MAX;
    }
    const char *own = strstr(text, "0::/");
    if (own == NULL) {
        return UINT64_MAX;
    }
    char folder[384];
    int length = (int)strcspn(own + 3, "\n");
    (void)snprintf(folder, sizeof folder, "/sys/fs/cgroup%.*s", length, own + 3);
    uint64_t left = UINT64_MAX;
    for (char *slash = folder; slash != NULL && strlen(folder) >= strlen("/sys/fs/cgroup");) {
        left = fy_min_u64(left, group_left(folder));
        slash = strrchr(folder, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    return left;
}

uint64_t fy_memory_left(void) {
    return fy_min_u64(machine_left(), groups_left());
}

uint64_t fy_memory_total(void) {
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 34;
}
