/* channel_bench.c - how long a channel takes: a signal there and back, and 4 KiB with a signal.
 *
 * Two ranks, as threads and as processes; the median of many, in microseconds of one direction for the
 * puts and of the round trip for the signals. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <ferry/channel.h>

#define ROUNDS 20001
#define PUT_BYTES 4096

typedef enum what {
    SIGNALS,
    PUTS,
    PORT_PUTS,
    WHATS,
} what_t;

static const char *const names[WHATS] = {
    "memory: signal round trip",
    "memory: 4 KiB put + signal + wait",
    "port: 4 KiB put + signal + wait",
};

static double now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static ferry_status_t give(ferry_channels_t *set, what_t what, const void *source,
                           ferry_error_t *err) {
    ferry_memory_channel_t *memory = ferry_channels_memory(set, 0);
    if (what == PORT_PUTS) {
        return ferry_port_put_with_signal(ferry_channels_port(set, 0), 0, 0, source, PUT_BYTES,
                                          err);
    }
    if (what == PUTS) {
        ferry_status_t status = ferry_memory_put(memory, 0, 0, source, PUT_BYTES, err);
        if (status != FERRY_OK) {
            return status;
        }
    }
    return ferry_memory_signal(memory, err);
}

static ferry_status_t take(ferry_channels_t *set, what_t what, ferry_error_t *err) {
    return what == PORT_PUTS ? ferry_port_wait(ferry_channels_port(set, 0), err)
                             : ferry_memory_wait(ferry_channels_memory(set, 0), err);
}

/* There and back, ROUNDS times; the times of rank 0. */
static ferry_status_t play(ferry_channels_t *set, uint32_t rank, what_t what, const void *source,
                           double *times, ferry_error_t *err) {
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_us();
        ferry_status_t status = rank == 0 ? give(set, what, source, err) : take(set, what, err);
        if (status == FERRY_OK) {
            status = rank == 0 ? take(set, what, err) : give(set, what, source, err);
        }
        if (status != FERRY_OK) {
            return status;
        }
        times[i] = now_us() - begin;
    }
    return FERRY_OK;
}

static ferry_status_t measure(ferry_channels_t *set, uint32_t rank, const char *kind,
                              ferry_error_t *err) {
    static double times[2][ROUNDS];
    static uint8_t source[2][PUT_BYTES];
    for (what_t what = SIGNALS; what < WHATS; what++) {
        ferry_status_t status = play(set, rank, what, source[rank], times[rank], err);
        if (status != FERRY_OK) {
            return status;
        }
        if (rank == 0) {
            qsort(times[0], ROUNDS, sizeof times[0][0], by_value);
            double ways = what == SIGNALS ? 1 : 2;
            (void)printf("%-10s %-36s %8.2f us median, %8.2f us at 99%%\n", kind, names[what],
                         times[0][ROUNDS / 2] / ways, times[0][ROUNDS * 99 / 100] / ways);
            (void)fflush(stdout);
        }
    }
    return FERRY_OK;
}

static ferry_status_t bench(ferry_world_t *world, void *context, ferry_error_t *err) {
    (void)context;
    uint32_t rank = ferry_world_rank(world);
    uint32_t peer = 1 - rank;
    void *memory = NULL;
    ferry_status_t status = ferry_mem_alloc(world, PUT_BYTES, &memory, err);
    if (status != FERRY_OK) {
        return status;
    }
    ferry_buffer_t buffer = {memory, PUT_BYTES};
    ferry_channels_params_t params = FERRY_CHANNELS_PARAMS_INIT;
    params.buffers = &buffer;
    params.nbuffers = 1;
    params.memory_peers = &peer;
    params.nmemory = 1;
    params.port_peers = &peer;
    params.nport = 1;
    ferry_channels_t *set = NULL;
    status = ferry_channels_open(ferry_world_group(world), &params, &set, err);
    if (status == FERRY_OK) {
        status = measure(set, rank, ferry_world_kind(world), err);
        ferry_status_t closed = ferry_channels_close(set, status == FERRY_OK ? err : NULL);
        status = status == FERRY_OK ? closed : status;
    }
    return status;
}

int main(void) {
    ferry_error_t err = FERRY_ERROR_INIT;
    ferry_status_t status = ferry_world_run_threads(2, bench, NULL, NULL, NULL, &err);
    if (status == FERRY_OK) {
        status = ferry_world_run_processes(2, bench, NULL, NULL, NULL, &err);
    }
    if (status != FERRY_OK) {
        char line[1024];
        (void)ferry_error_format(&err, line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        return 1;
    }
    return 0;
}
