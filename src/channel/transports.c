/* transports.c - the list of transports, opening them, and the check of their tables.
 *
 * Invariant: a table that passed check_table has every function that its caps promise, so that nobody
 * looks for NULL on the data path. */
#include "channel/transport.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"

/* The one list, best first. */
static const ferry_transport_ops_t *const transports[] = {
    &fy_transport_shm,
};

#define NTRANSPORTS (sizeof transports / sizeof transports[0])

const char *ferry_transport_name(uint32_t index) {
    return index < NTRANSPORTS ? transports[index]->name : NULL;
}

const char *ferry_transport_call_name(ferry_transport_call_t call) {
    switch (call) {
#define NAME(name, number, text)                                                                   \
    case FERRY_CALL_##name:                                                                        \
        return text;
        FERRY_TRANSPORT_CALL_MAP(NAME)
#undef NAME
    }
    return "?";
}

/* The name of the first function that is missing, or NULL. */
static const char *missing(const ferry_transport_ops_t *ops, uint32_t caps) {
    const struct {
        uint32_t cap;
        bool there;
        const char *name;
    } needs[] = {
        {FERRY_TRANSPORT_READ, ops->read != NULL, "read"},
        {FERRY_TRANSPORT_PUT, ops->put != NULL, "put"},
        {FERRY_TRANSPORT_PUT, ops->signal != NULL, "signal"},
        {FERRY_TRANSPORT_PUT | FERRY_TRANSPORT_SENDRECV, ops->flush != NULL, "flush"},
        {FERRY_TRANSPORT_SENDRECV, ops->send != NULL, "send"},
        {FERRY_TRANSPORT_SENDRECV, ops->recv != NULL, "recv"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if ((caps & needs[i].cap) != 0 && !needs[i].there) {
            return needs[i].name;
        }
    }
    return NULL;
}

/* What every transport has, whatever it can do. */
static const char *missing_control(const ferry_transport_ops_t *ops) {
    const struct {
        bool there;
        const char *name;
    } needs[] = {
        {ops->open != NULL, "open"},         {ops->close != NULL, "close"},
        {ops->caps != NULL, "caps"},         {ops->enroll != NULL, "enroll"},
        {ops->withdraw != NULL, "withdraw"}, {ops->attach != NULL, "attach"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (!needs[i].there) {
            return needs[i].name;
        }
    }
    return NULL;
}

static ferry_status_t check_table(const ferry_transport_ops_t *ops, ferry_error_t *err) {
    if (ops->size != sizeof *ops) {
        return fy_fail(err, FERRY_VERSION, "the table of a transport has %zu bytes, not %zu",
                       ops->size, sizeof *ops);
    }
    if (ops->name == NULL || ops->name[0] == '\0') {
        return fy_fail(err, FERRY_INVALID, "a transport has no name");
    }
    const char *name = missing_control(ops);
    if (name != NULL) {
        return fy_fail(err, FERRY_INVALID, "transport %s has no %s", ops->name, name);
    }
    return FERRY_OK;
}

static ferry_status_t check_promises(const ferry_transport_t *transport, ferry_error_t *err) {
    uint32_t size = ferry_world_size(transport->world);
    for (uint32_t peer = 0; peer < size; peer++) {
        uint32_t caps = transport->ops->caps(transport->state, peer);
        const char *name = missing(transport->ops, caps);
        if (name != NULL) {
            return fy_fail(err, FERRY_INVALID, "transport %s promises what needs %s, and has none",
                           transport->ops->name, name);
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_transport_create(ferry_world_t *world, const ferry_transport_ops_t *ops,
                                   void *state, ferry_transport_t **transport_p,
                                   ferry_error_t *err) {
    ferry_transport_t *transport = fy_alloc(1, sizeof *transport);
    if (transport == NULL) {
        return fy_fail_nomem(err, "a transport");
    }
    *transport = (ferry_transport_t){ops, state, world};
    *transport_p = transport;
    return FERRY_OK;
}

ferry_status_t ferry_transport_open_table(ferry_world_t *world, const ferry_transport_ops_t *ops,
                                          const void *config, ferry_transport_t **transport_p,
                                          ferry_error_t *err) {
    FY_NEED(world, err);
    FY_NEED(ops, err);
    FY_NEED(transport_p, err);
    FY_TRY(check_table(ops, err));
    ferry_transport_t *transport = NULL;
    FY_TRY(fy_transport_create(world, ops, NULL, &transport, err));
    ferry_status_t status = ops->open(world, config, &transport->state, err);
    if (status != FERRY_OK) {
        fy_free(transport);
        return status;
    }
    status = check_promises(transport, err);
    if (status != FERRY_OK) {
        ferry_transport_close(transport);
        return status;
    }
    *transport_p = transport;
    return FERRY_OK;
}

ferry_status_t ferry_transport_open(ferry_world_t *world, const char *name,
                                    ferry_transport_t **transport_p, ferry_error_t *err) {
    FY_NEED(world, err);
    for (size_t i = 0; i < NTRANSPORTS; i++) {
        if (name == NULL || strcmp(name, transports[i]->name) == 0) {
            return ferry_transport_open_table(world, transports[i], NULL, transport_p, err);
        }
    }
    return fy_fail(err, FERRY_UNSUPPORTED, "there is no transport %s", name);
}

void ferry_transport_close(ferry_transport_t *transport) {
    if (transport != NULL) {
        transport->ops->close(transport->state);
        fy_free(transport);
    }
}

void fy_transport_decorate(const ferry_transport_ops_t *mine, const ferry_transport_ops_t *inner,
                           ferry_transport_ops_t *ops_p) {
    *ops_p = *mine;
    ops_p->name = inner->name;
    ops_p->detach = inner->detach != NULL ? mine->detach : NULL;
    ops_p->put = inner->put != NULL ? mine->put : NULL;
    ops_p->read = inner->read != NULL ? mine->read : NULL;
    ops_p->signal = inner->signal != NULL ? mine->signal : NULL;
    ops_p->flush = inner->flush != NULL ? mine->flush : NULL;
    ops_p->progress = inner->progress != NULL ? mine->progress : NULL;
    ops_p->send = inner->send != NULL ? mine->send : NULL;
    ops_p->recv = inner->recv != NULL ? mine->recv : NULL;
}
