/* cmd_doctor.c - `ferry doctor`: what this machine allows, and what that costs.
 *
 * Invariant: each finding has an answer and says in words what it means; only what ferry cannot do
 * without makes the exit code 1. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ferry/service.h>

#include "commands.h"
#include "doctor.h"
#include "json.h"
#include "options.h"
#include "units.h"

typedef struct finding {
    const char *name; /* as in JSON; people see spaces for underscores */
    bool missing;     /* ferry needs it, and it is not there */
    char answer[64];
    char meaning[192];
} finding_t;

enum { FINDINGS_MAX = 24, NAME_WIDTH = 20, ANSWER_WIDTH = 30 };

typedef struct findings {
    finding_t list[FINDINGS_MAX];
    size_t count;
    bool missing;
} findings_t;

__attribute__((format(printf, 3, 4))) static finding_t *find(findings_t *all, const char *name,
                                                             const char *answer, ...) {
    static finding_t spare;
    finding_t *finding = all->count < FINDINGS_MAX ? &all->list[all->count++] : &spare;
    *finding = (finding_t){.name = name};
    va_list args;
    va_start(args, answer);
    (void)vsnprintf(finding->answer, sizeof finding->answer, answer, args);
    va_end(args);
    return finding;
}

__attribute__((format(printf, 2, 3))) static void mean(finding_t *finding, const char *meaning,
                                                       ...) {
    va_list args;
    va_start(args, meaning);
    (void)vsnprintf(finding->meaning, sizeof finding->meaning, meaning, args);
    va_end(args);
}

static void need(findings_t *all, finding_t *finding) {
    finding->missing = true;
    all->missing = true;
}

static cli_label_t label_limit(uint64_t bytes) {
    cli_label_t none = {"no limit"};
    return bytes == DOCTOR_UNLIMITED ? none : cli_label_bytes(bytes);
}

/* ---- findings ---------------------------------------------------------------------------------- */

static void find_cores(findings_t *all, const doctor_facts_t *facts) {
    finding_t *cores =
        find(all, "cores", "%" PRIu32 " of %" PRIu32, facts->cores, facts->cores_online);
    mean(cores, "with more ranks than that, a rank that waits sleeps at once instead of spinning");
    if (facts->cpu_quota > 0 && facts->cpu_quota < facts->cores) {
        finding_t *quota = find(all, "cpu_quota", "%.1f cores", facts->cpu_quota);
        mean(quota, "ferry counts %" PRIu32 " cores, but gets the time of %.1f: expect pauses",
             facts->cores, facts->cpu_quota);
    }
    if (facts->isa == NULL) {
        finding_t *isa = find(all, "instruction_set", "none");
        mean(isa, "nothing can be copied: %.160s", facts->isa_error.text);
        need(all, isa);
        return;
    }
    finding_t *isa = find(all, "instruction_set", "%s", facts->isa);
    if (strcmp(facts->isa, "plain") == 0) {
        mean(isa, "copies and casts run as plain C, which is several times slower for short runs");
    } else {
        mean(isa, "copies and casts use it; this CPU has %s", facts->cpu_features);
    }
}

static void find_memory(findings_t *all, const doctor_facts_t *facts) {
    finding_t *memory =
        find(all, "memory", "%s of %s free", cli_label_bytes(facts->available_bytes).text,
             cli_label_bytes(facts->memory_bytes).text);
    mean(memory, "sources and targets of all ranks on this machine share it");
    finding_t *cgroup = find(all, "memory_limit", "%s", label_limit(facts->cgroup_bytes).text);
    mean(cgroup, facts->cgroup_bytes == DOCTOR_UNLIMITED
                     ? "no cgroup limits memory"
                     : "of the cgroup; shared tensors count, and beyond it ranks are killed");
    finding_t *as = find(all, "address_space", "%s", label_limit(facts->limit_as).text);
    mean(as, facts->limit_as == DOCTOR_UNLIMITED
                 ? "every rank can map the arenas of all others"
                 : "each rank maps the arenas of all ranks: arena_bytes x ranks must fit "
                   "(ulimit -v)");
    finding_t *fsize = find(all, "file_size", "%s", label_limit(facts->limit_fsize).text);
    mean(fsize, facts->limit_fsize == DOCTOR_UNLIMITED
                    ? "shared memory is one file without a name; it may grow"
                    : "shared memory is one file without a name and cannot pass this (ulimit -f)");
    finding_t *lock = find(all, "locked_memory", "%s", label_limit(facts->limit_memlock).text);
    mean(lock, "ferry locks nothing on a CPU; transfers of GPUs and network cards would");
    finding_t *files =
        find(all, "open_files", "%s",
             facts->limit_nofile == DOCTOR_UNLIMITED ? "no limit"
                                                     : cli_label_count(facts->limit_nofile).text);
    mean(files, "a world takes one for its memory, its starter one for each rank, a tensor none");
}

static void find_shared_memory(findings_t *all, const doctor_facts_t *facts) {
    bool works = facts->memfd_errno == 0 && facts->fallocate_errno == 0;
    if (works) {
        finding_t *shared = find(all, "shared_memory", "yes");
        mean(shared, "memfd and fallocate work: space is reserved up front, /dev/shm is not used");
    } else {
        finding_t *shared =
            find(all, "shared_memory", "no (%s)",
                 strerror(facts->memfd_errno != 0 ? facts->memfd_errno : facts->fallocate_errno));
        mean(shared, "ranks cannot share memory: %s is refused",
             facts->memfd_errno != 0 ? "memfd_create" : "fallocate");
        need(all, shared);
    }
    finding_t *touch = find(all, "first_touch", "%.2f GB/s", facts->touch_gbps);
    mean(touch, "reserving and touching new shared pages: a first run waits for it, later ones do "
                "not");
    finding_t *anon = find(all, "huge_pages", "%s", facts->huge_anon);
    mean(anon, strcmp(facts->huge_anon, "never") == 0 || strcmp(facts->huge_anon, "absent") == 0
                   ? "heap tensors lie in small pages; copies are up to a quarter slower"
                   : "heap tensors can lie in huge pages (\"madvise\": where the program asks)");
    finding_t *shared = find(all, "huge_pages_shared", "%s", facts->huge_shared);
    mean(shared,
         strcmp(facts->huge_shared, "never") == 0 || strcmp(facts->huge_shared, "absent") == 0
             ? "shared tensors lie in small pages: a first touch is slow, TLB misses cost"
             : "shared tensors can lie in huge pages");
    finding_t *reserved = find(
        all, "huge_pages_reserved", "%s",
        facts->huge_reserved_bytes > 0 ? cli_label_bytes(facts->huge_reserved_bytes).text : "none");
    mean(reserved, "ferry does not use reserved huge pages");
}

static void find_reads(findings_t *all, const doctor_facts_t *facts) {
    char scope[32] = "";
    if (facts->ptrace_scope >= 0) {
        (void)snprintf(scope, sizeof scope, ", ptrace_scope %d", facts->ptrace_scope);
    }
    finding_t *reads =
        find(all, "cross_process_reads", "%s (%s%s)", facts->can_read ? "allowed" : "refused",
             facts->uid == 0 ? "as root" : "as this user", scope);
    if (facts->can_read) {
        mean(reads,
             "heap tensors are read at %.1f GB/s a core in 32 KiB runs, at %.2f in 256-byte runs; "
             "below %d bytes they go through slots",
             facts->read_long_gbps, facts->read_short_gbps, FERRY_READ_RUN_BYTES);
    } else {
        mean(reads, "heap tensors go through slots, at about half the speed of shared ones");
    }
}

static void find_pidfd(findings_t *all, const doctor_facts_t *facts) {
    if (facts->pidfd_errno == 0) {
        finding_t *pidfd = find(all, "pidfd", "yes");
        mean(pidfd, "whoever starts ranks sees at once when one of them ends");
    } else {
        finding_t *pidfd = find(all, "pidfd", "no (%s)", strerror(facts->pidfd_errno));
        mean(pidfd, "ferry cannot start ranks as processes; threads and sockets still work");
        need(all, pidfd);
    }
}

static void find_processes(findings_t *all, const doctor_facts_t *facts) {
    find_pidfd(all, facts);
    if (facts->world != FERRY_OK) {
        finding_t *world = find(all, "processes", "no");
        const char *why = facts->world_error.text;
        mean(world, "two ranks could not meet: %.150s",
             why[0] != '\0' ? why : ferry_status_text(facts->world));
        need(all, world);
        return;
    }
    finding_t *world = find(all, "processes", "yes");
    mean(world, "two ranks started as processes and met");
    find_reads(all, facts);
    finding_t *futex = find(all, "futex_round_trip", "%.1f us", facts->futex_us);
    mean(futex, "what a rank pays that slept while it waited; spinning costs under 1 us");
}

static void find_copies(findings_t *all, const doctor_facts_t *facts) {
    finding_t *one = find(all, "copy_one_core", "%.1f GB/s", facts->copy_one_gbps);
    mean(one, "large copies between shared pages, by one core");
    finding_t *every = find(all, "copy_all_cores", "%.1f GB/s", facts->copy_all_gbps);
    mean(every, "by all cores: no resharding here can be faster (`ferry bench` measures it)");
}

/* ---- printing ---------------------------------------------------------------------------------- */

static void print_text(const findings_t *all, cli_output_t *out) {
    for (size_t i = 0; i < all->count; i++) {
        const finding_t *finding = &all->list[i];
        char name[NAME_WIDTH + 1];
        (void)snprintf(name, sizeof name, "%s", finding->name);
        for (char *c = name; *c != '\0'; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
        const char *paint = finding->missing ? cli_paint(out, 31) : cli_bold(out);
        cli_print(out, "%-*s %s%-*s%s %s\n", NAME_WIDTH, name, paint, ANSWER_WIDTH, finding->answer,
                  cli_plain(out), finding->meaning);
    }
    cli_print(out, "\n%s\n",
              all->missing ? "Something that ferry needs is missing."
                           : "All that ferry needs is here.");
}

static void put_limit(cli_json_t *json, struct json_object *object, const char *key,
                      uint64_t value) {
    if (value == DOCTOR_UNLIMITED) {
        cli_json_null(json, object, key);
    } else {
        cli_json_u64(json, object, key, value);
    }
}

static void put_facts(cli_json_t *json, const doctor_facts_t *facts) {
    struct json_object *object = cli_json_object(json, json->root, "facts");
    cli_json_u64(json, object, "cores", facts->cores);
    cli_json_u64(json, object, "cores_online", facts->cores_online);
    cli_json_text(json, object, "isa", facts->isa);
    cli_json_u64(json, object, "memory_bytes", facts->memory_bytes);
    cli_json_u64(json, object, "available_bytes", facts->available_bytes);
    put_limit(json, object, "cgroup_memory_bytes", facts->cgroup_bytes);
    put_limit(json, object, "limit_address_space_bytes", facts->limit_as);
    put_limit(json, object, "limit_file_bytes", facts->limit_fsize);
    put_limit(json, object, "limit_locked_bytes", facts->limit_memlock);
    put_limit(json, object, "limit_open_files", facts->limit_nofile);
    cli_json_bool(json, object, "memfd", facts->memfd_errno == 0);
    cli_json_bool(json, object, "fallocate", facts->fallocate_errno == 0);
    cli_json_text(json, object, "huge_pages", facts->huge_anon);
    cli_json_text(json, object, "huge_pages_shared", facts->huge_shared);
    cli_json_bool(json, object, "pidfd", facts->pidfd_errno == 0);
    cli_json_bool(json, object, "cross_process_reads", facts->can_read);
    cli_json_seconds(json, object, "read_long_gbps", facts->read_long_gbps);
    cli_json_seconds(json, object, "read_short_gbps", facts->read_short_gbps);
    cli_json_seconds(json, object, "futex_round_trip_us", facts->futex_us);
    cli_json_seconds(json, object, "first_touch_gbps", facts->touch_gbps);
    cli_json_seconds(json, object, "copy_one_core_gbps", facts->copy_one_gbps);
    cli_json_seconds(json, object, "copy_all_cores_gbps", facts->copy_all_gbps);
}

static ferry_status_t print_json(const findings_t *all, const doctor_facts_t *facts,
                                 cli_output_t *out, ferry_error_t *err) {
    cli_json_t json;
    cli_json_init(&json);
    cli_json_bool(&json, json.root, "ok", !all->missing);
    struct json_object *list = cli_json_array(&json, json.root, "findings");
    for (size_t i = 0; i < all->count; i++) {
        struct json_object *object = json_object_new_object();
        cli_json_text(&json, object, "name", all->list[i].name);
        cli_json_text(&json, object, "answer", all->list[i].answer);
        cli_json_text(&json, object, "meaning", all->list[i].meaning);
        cli_json_bool(&json, object, "missing", all->list[i].missing);
        cli_json_push(&json, list, object);
    }
    put_facts(&json, facts);
    ferry_status_t status = cli_json_print(&json, out, err);
    cli_json_fini(&json);
    return status;
}

static ferry_status_t run(const cli_args_t *args, cli_output_t *out, ferry_error_t *err) {
    /* A limit on file sizes shall be an answer, not the end. */
    (void)signal(SIGXFSZ, SIG_IGN);
    doctor_facts_t facts;
    doctor_ask(&facts);
    doctor_measure(&facts);
    findings_t all = {0};
    find_cores(&all, &facts);
    find_memory(&all, &facts);
    find_shared_memory(&all, &facts);
    find_processes(&all, &facts);
    find_copies(&all, &facts);
    out->exit_code = all.missing ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
    if (cli_args_has(args, "json")) {
        return print_json(&all, &facts, out, err);
    }
    print_text(&all, out);
    return FERRY_OK;
}

/* ---- the table --------------------------------------------------------------------------------- */

static const char *const usage[] = {"doctor [--json]", NULL};

static const char *const more[] = {
    "Cores, limits, shared memory, huge pages, cross-process reads: each with what it means for "
    "ferry. What can be tried is tried, with two processes and for less than three seconds.",
    "The exit code is 1 only when something is missing that ferry cannot do without.",
    NULL,
};

static const cli_option_t options[] = {
    {.name = "json", .text = "print one JSON object (docs/formats/bench-json.md)"},
};

static const cli_example_t examples[] = {
    {"what this machine allows", "ferry doctor"},
    {NULL, NULL},
};

const cli_command_t cli_cmd_doctor = {
    .name = "doctor",
    .text = "say what this machine allows, and what that costs",
    .usage = usage,
    .more = more,
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .examples = examples,
    .run = run,
};
