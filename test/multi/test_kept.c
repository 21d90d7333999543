/* test_kept.c - a kept batch on the direct path: no allocation, no system call but futex, and quick.
 *
 * The runs are made by a thread under a seccomp filter that kills the process at any system call but
 * futex; it never leaves the filter, so it parks when it is done. malloc is wrapped and counts. */
#include "multi/body.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include <ferry/service.h>

#include "support/sanitizer.h"

enum { RUNS = 2000, BYTES = 4096, TRIES = 8 };

/* --- malloc ------------------------------------------------------------------------------------ */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static _Atomic uint64_t allocations;

void *__wrap_malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, size);
}

/* --- the runs ---------------------------------------------------------------------------------- */

typedef struct job {
    ferry_kept_batch_t *batch;
    bool filtered;
    uint64_t allocated;
    double median_us;
    double times[RUNS];
    ferry_status_t status;
    ferry_error_t error;
    sem_t done;
    sem_t never;
} job_t;

static int compare(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Nothing but futex from here on, for this thread. */
static bool enter_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void *run_many(void *argument) {
    job_t *job = argument;
    job->filtered = job->filtered && enter_filter();
    uint64_t before = atomic_load(&allocations);
    for (int i = 0; i < RUNS && job->status == FERRY_OK; i++) {
        double begin = body_seconds();
        job->status = ferry_kept_batch_run(job->batch, NULL, &job->error);
        job->times[i] = (body_seconds() - begin) * 1e6;
    }
    job->allocated = atomic_load(&allocations) - before;
    (void)sem_post(&job->done);
    while (job->filtered) { /* even the end of a thread is a system call */
        (void)sem_wait(&job->never);
    }
    return NULL;
}

typedef struct setting {
    bool filter;
    double *median_us; /* shared with the test */
} setting_t;

static ferry_status_t run_in_thread(job_t *job, ferry_error_t *err) {
    bool filter = job->filtered;
    (void)sem_init(&job->done, 0, 0);
    (void)sem_init(&job->never, 0, 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run_many, job) == 0);
    while (sem_wait(&job->done) != 0) {
    }
    if (!filter) {
        (void)pthread_join(thread, NULL);
    }
    EXPECT(job->filtered == filter);
    if (job->status != FERRY_OK) {
        *err = job->error;
    }
    return job->status;
}

static ferry_status_t body(ferry_world_t *world, void *context, ferry_error_t *err) {
    const setting_t *setting = context;
    uint32_t me = ferry_world_rank(world);
    ferry_copy_service_t *service = NULL;
    void *memory = NULL;
    GOOD(ferry_copy_service_create(ferry_world_group(world), NULL, &service, err));
    GOOD(ferry_mem_alloc(world, BYTES, &memory, err));
    ferry_view_t view;
    GOOD(ferry_view_contiguous(memory, FERRY_U8, 1, &(uint64_t){BYTES}, &view, err));
    if (me == 0) {
        memset(memory, 7, BYTES);
        GOOD(ferry_copy_submit_send(service, &view, FERRY_DTYPE_NONE, 1, 1, err));
    } else {
        GOOD(ferry_copy_submit_recv(service, &view, 0, 1, err));
    }
    job_t *job = calloc(1, sizeof *job); /* the parked thread keeps it */
    job->filtered = setting->filter;
    GOOD(ferry_copy_service_keep(service, &job->batch, err));
    GOOD(ferry_kept_batch_run(job->batch, NULL, err));
    EXPECT(((uint8_t *)memory)[BYTES - 1] == 7);
    GOOD(run_in_thread(job, err));
    EXPECT(job->allocated == 0);
    qsort(job->times, RUNS, sizeof *job->times, compare);
    setting->median_us[me] = job->times[RUNS / 2];
    ferry_kept_batch_destroy(job->batch);
    ferry_copy_service_close(service);
    if (!setting->filter) {
        free(job);
    }
    return FERRY_OK;
}

static double *shared_medians(void) {
    double *medians = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(medians != MAP_FAILED);
    return medians;
}

static void test_no_system_call(void **state) {
    (void)state;
    if (SANITIZED) {
        skip(); /* sanitizers make system calls of their own */
    }
    setting_t setting = {true, shared_medians()};
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_rank_result_t results[2];
    /* A rank that is kept off its core for a tenth of a second is looked at in /proc: try again. */
    ferry_status_t status = FERRY_IO;
    for (int i = 0; i < 3 && status != FERRY_OK; i++) {
        status = ferry_world_run_processes(2, body, &setting, NULL, results, &err);
    }
    if (status != FERRY_OK) {
        fail_msg("%s", err.text);
    }
}

static void test_no_allocation(void **state) {
    (void)state;
    setting_t setting = {false, shared_medians()};
    run_well(AS_PROCESSES, 2, body, &setting, NULL);
}

static void test_latency(void **state) {
    (void)state;
    setting_t setting = {false, shared_medians()};
    double best = 1e9;
    for (int i = 0; i < TRIES && best > 20; i++) {
        run_well(AS_PROCESSES, 2, body, &setting, NULL);
        double slower = setting.median_us[0] > setting.median_us[1] ? setting.median_us[0]
                                                                    : setting.median_us[1];
        best = slower < best ? slower : best;
    }
    print_message("one 4 KiB tensor between 2 ranks: median %.2f us\n", best);
    if (!SANITIZED) {
        assert_true(best <= 20);
    }
}

int main(void) {
    (void)alarm(200);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_system_call),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
