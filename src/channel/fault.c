/* fault.c - a transport that delays, drops, fails or dies at chosen calls of another.
 *
 * Calls are numbered from 1 as they come, over all threads. Which of them are struck depends on the
 * number and the parameters alone, so a failing run can be run again. */
#include "channel/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"

typedef struct breaker {
    ferry_transport_ops_t ops;
    ferry_transport_t *inner;
    ferry_fault_params_t params;
    _Atomic uint64_t calls;
    _Atomic uint64_t strikes;
} breaker_t;

typedef enum verdict {
    PASS,
    DROP,
    FAIL,
} verdict_t;

/* splitmix64 */
static uint64_t scramble(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool is_struck(const ferry_fault_params_t *params, uint64_t number) {
    if (params->at_call != 0) {
        return number == params->at_call;
    }
    return scramble(params->seed ^ scramble(number)) % 1000000 < params->per_million;
}

static void pause_us(uint32_t delay_us) {
    struct timespec left = {delay_us / 1000000, (long)(delay_us % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Counts the call and decides. `may_drop`: the caller would not notice that nothing was done. */
static verdict_t strike(breaker_t *breaker, ferry_transport_call_t call, bool may_drop,
                        ferry_error_t *err) {
    const ferry_fault_params_t *params = &breaker->params;
    if ((params->calls & (UINT32_C(1) << call)) == 0) {
        return PASS;
    }
    uint64_t number = atomic_fetch_add(&breaker->calls, 1) + 1;
    if (params->kind == FERRY_FAULT_NONE || !is_struck(params, number)) {
        return PASS;
    }
    (void)atomic_fetch_add(&breaker->strikes, 1);
    switch (params->kind) {
    case FERRY_FAULT_DELAY:
        pause_us(params->delay_us);
        return PASS;
    case FERRY_FAULT_DEATH:
        (void)kill(getpid(), SIGKILL);
        return FAIL;
    case FERRY_FAULT_DROP:
        if (may_drop) {
            return DROP;
        }
        break;
    case FERRY_FAULT_NONE:
    case FERRY_FAULT_ERROR:
        break;
    }
    (void)fy_fail(err, FERRY_IO, "injected fault at call %" PRIu64 ", %s", number,
                  ferry_transport_call_name(call));
    if (err != NULL) {
        err->sys_errno = EIO;
    }
    return FAIL;
}

static void fault_close(void *state) {
    breaker_t *breaker = state;
    ferry_transport_close(breaker->inner);
    fy_free(breaker);
}

static uint32_t fault_caps(const void *state, uint32_t peer) {
    const ferry_transport_t *inner = ((const breaker_t *)state)->inner;
    return inner->ops->caps(inner->state, peer);
}

static ferry_status_t fault_enroll(void *state, void *memory, size_t bytes,
                                   ferry_transport_key_t *key_p, ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_ENROLL, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->enroll(breaker->inner->state, memory, bytes, key_p, err);
}

static void fault_withdraw(void *state, const ferry_transport_key_t *key) {
    const ferry_transport_t *inner = ((breaker_t *)state)->inner;
    inner->ops->withdraw(inner->state, key);
}

static ferry_status_t fault_attach(void *state, const ferry_transport_key_t *key,
                                   ferry_remote_t *remote_p, ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_ATTACH, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->attach(breaker->inner->state, key, remote_p, err);
}

static void fault_detach(void *state, ferry_remote_t *remote) {
    const ferry_transport_t *inner = ((breaker_t *)state)->inner;
    inner->ops->detach(inner->state, remote);
}

/* What a verdict other than PASS makes the call return. */
static ferry_status_t outcome(verdict_t verdict) {
    return verdict == DROP ? FERRY_OK : FERRY_IO;
}

static ferry_status_t fault_put(void *state, const ferry_remote_t *target, uint64_t offset,
                                const void *source, size_t bytes, ferry_error_t *err) {
    breaker_t *breaker = state;
    verdict_t verdict = strike(breaker, FERRY_CALL_PUT, true, err);
    if (verdict != PASS) {
        return outcome(verdict);
    }
    return breaker->inner->ops->put(breaker->inner->state, target, offset, source, bytes, err);
}

static ferry_status_t fault_read(void *state, const ferry_remote_t *source,
                                 const ferry_read_piece_t *pieces, size_t npieces,
                                 ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_READ, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->read(breaker->inner->state, source, pieces, npieces, err);
}

static ferry_status_t fault_signal(void *state, const ferry_remote_t *target, uint64_t offset,
                                   ferry_error_t *err) {
    breaker_t *breaker = state;
    verdict_t verdict = strike(breaker, FERRY_CALL_SIGNAL, true, err);
    if (verdict != PASS) {
        return outcome(verdict);
    }
    return breaker->inner->ops->signal(breaker->inner->state, target, offset, err);
}

static ferry_status_t fault_flush(void *state, uint32_t peer, bool *done_p, ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_FLUSH, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->flush(breaker->inner->state, peer, done_p, err);
}

static ferry_status_t fault_progress(void *state, ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_PROGRESS, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->progress(breaker->inner->state, err);
}

static ferry_status_t fault_send(void *state, uint32_t peer, const void *source, size_t bytes,
                                 ferry_error_t *err) {
    breaker_t *breaker = state;
    verdict_t verdict = strike(breaker, FERRY_CALL_SEND, true, err);
    if (verdict != PASS) {
        return outcome(verdict);
    }
    return breaker->inner->ops->send(breaker->inner->state, peer, source, bytes, err);
}

static ferry_status_t fault_recv(void *state, uint32_t peer, void *target, size_t bytes,
                                 bool *done_p, ferry_error_t *err) {
    breaker_t *breaker = state;
    if (strike(breaker, FERRY_CALL_RECV, false, err) != PASS) {
        return FERRY_IO;
    }
    return breaker->inner->ops->recv(breaker->inner->state, peer, target, bytes, done_p, err);
}

static const ferry_transport_ops_t fault_ops = {
    .size = sizeof(ferry_transport_ops_t),
    .close = fault_close,
    .caps = fault_caps,
    .enroll = fault_enroll,
    .withdraw = fault_withdraw,
    .attach = fault_attach,
    .detach = fault_detach,
    .put = fault_put,
    .read = fault_read,
    .signal = fault_signal,
    .flush = fault_flush,
    .progress = fault_progress,
    .send = fault_send,
    .recv = fault_recv,
};

ferry_status_t ferry_transport_fault(ferry_transport_t *inner, const ferry_fault_params_t *params,
                                     ferry_transport_t **transport_p, ferry_error_t *err) {
    FY_NEED(inner, err);
    FY_NEED(params, err);
    FY_NEED(transport_p, err);
    if (params->size != sizeof *params) {
        return fy_fail(err, FERRY_VERSION, "ferry_fault_params_t has %zu bytes, not %zu",
                       params->size, sizeof *params);
    }
    breaker_t *breaker = fy_alloc_zero(1, sizeof *breaker);
    if (breaker == NULL) {
        return fy_fail_nomem(err, "a fault injector");
    }
    fy_transport_decorate(&fault_ops, inner->ops, &breaker->ops);
    breaker->inner = inner;
    breaker->params = *params;
    if (breaker->params.calls == 0) {
        breaker->params.calls = FERRY_CALLS_DATA;
    }
    ferry_status_t status =
        fy_transport_create(inner->world, &breaker->ops, breaker, transport_p, err);
    if (status != FERRY_OK) {
        fy_free(breaker);
    }
    return status;
}

static const breaker_t *breaker_of(const ferry_transport_t *transport) {
    return transport != NULL && transport->ops->close == fault_close ? transport->state : NULL;
}

uint64_t ferry_transport_fault_calls(const ferry_transport_t *transport) {
    const breaker_t *breaker = breaker_of(transport);
    return breaker != NULL ? atomic_load(&breaker->calls) : 0;
}

uint64_t ferry_transport_fault_strikes(const ferry_transport_t *transport) {
    const breaker_t *breaker = breaker_of(transport);
    return breaker != NULL ? atomic_load(&breaker->strikes) : 0;
}
