/* join.c - a world of processes that meet at a unix socket.
 *
 * Rank 0 listens, collects one hello from each other rank and answers all of them at once: with the
 * world's file, or with the one error that all get. Strangers (another user, no hello of ferry's) are
 * sent away and do not count. After an error rank 0 stays for LINGER_MS to tell it to those who come a
 * little later. The file of the socket is removed in every case; one that a killed rank 0 left behind
 * is recognised (nobody listens) and replaced.
 *
 * The meeting ends with a barrier in the new world, so whoever returns knows that all are there. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <ferry/log.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/text.h"
#include "world/hello.h"
#include "world/world.h"

#define MS UINT64_C(1000000)
#define LINGER_MS                                                                                  \
    1000 /* for latecomers after an error; the others wait so much longer for a reply */
#define RETRY_MS 5
#define STRANGERS 16 /* that may be at the door at once */

typedef struct guest {
    int fd;
    uint32_t rank; /* FERRY_RANK_NONE: has not said hello */
} guest_t;

typedef struct meeting {
    const char *path;
    fy_hello_t ours;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    /* rank 0 only */
    int listener;
    guest_t *guests;
    uint32_t nguests;
    uint32_t cap;
    uint32_t arrived;
} meeting_t;

static ferry_status_t fail_errno(ferry_error_t *err, int number, const char *what,
                                 const char *path) {
    (void)fy_fail(err, FERRY_IO, "%s %s", what, path);
    if (err != NULL) {
        err->sys_errno = number;
    }
    return FERRY_IO;
}

static void set_address(struct sockaddr_un *address, const char *path) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path)); /* ferry_world_join checked the length */
}

/* Waits for one descriptor; false when the time is over. */
static bool wait_for(int fd, uint64_t deadline_ns) {
    struct pollfd one = {fd, POLLIN, 0};
    for (;;) {
        uint64_t now = fy_clock_ns();
        if (now >= deadline_ns) {
            return false;
        }
        int ready = poll(&one, 1, (int)fy_min_u64((deadline_ns - now) / MS + 1, 1000));
        if (ready > 0) {
            return true;
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* Connects to whoever listens; -1 with errno. */
static int connect_to(const char *path) {
    struct sockaddr_un address;
    set_address(&address, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int number = errno;
        (void)close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

/* --- rank 0 ------------------------------------------------------------------------------------ */

static bool bind_here(meeting_t *meeting) {
    struct sockaddr_un address;
    set_address(&address, meeting->path);
    return bind(meeting->listener, (const struct sockaddr *)&address, sizeof address) == 0;
}

/* The path is taken: by a rank 0 that lives (tell it, and fail), or by the file of a dead one. */
static ferry_status_t take_over(meeting_t *meeting, ferry_error_t *err) {
    int fd = connect_to(meeting->path);
    if (fd >= 0) {
        (void)send(fd, &meeting->ours, sizeof meeting->ours, MSG_NOSIGNAL);
        (void)close(fd);
        return fy_fail(err, FERRY_MISMATCH, "rank 0 came twice: another one listens at %s",
                       meeting->path);
    }
    struct stat info;
    bool stale =
        errno == ECONNREFUSED && lstat(meeting->path, &info) == 0 && S_ISSOCK(info.st_mode);
    if (!stale || unlink(meeting->path) != 0 || !bind_here(meeting)) {
        return fail_errno(err, EADDRINUSE, "cannot listen at", meeting->path);
    }
    return FERRY_OK;
}

static ferry_status_t open_listener(meeting_t *meeting, ferry_error_t *err) {
    meeting->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (meeting->listener < 0) {
        return fail_errno(err, errno, "cannot make a socket for", meeting->path);
    }
    (void)fchmod(meeting->listener, S_IRUSR | S_IWUSR); /* of the file that bind makes */
    ferry_status_t status = FERRY_OK;
    if (!bind_here(meeting)) {
        status = errno == EADDRINUSE ? take_over(meeting, err)
                                     : fail_errno(err, errno, "cannot listen at", meeting->path);
    }
    if (status == FERRY_OK && listen(meeting->listener, SOMAXCONN) != 0) {
        status = fail_errno(err, errno, "cannot listen at", meeting->path);
        (void)unlink(meeting->path);
    }
    if (status != FERRY_OK) {
        (void)close(meeting->listener);
        meeting->listener = -1;
    }
    return status;
}

static bool same_user(int fd) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void accept_one(meeting_t *meeting) {
    int fd = accept4(meeting->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (meeting->nguests == meeting->cap || !same_user(fd)) {
        ferry_log(FERRY_LOG_WARN, "a stranger came to %s", meeting->path);
        (void)close(fd);
        return;
    }
    meeting->guests[meeting->nguests++] = (guest_t){fd, FERRY_RANK_NONE};
}

static void drop(meeting_t *meeting, uint32_t index) {
    (void)close(meeting->guests[index].fd);
    meeting->guests[index] = meeting->guests[--meeting->nguests];
}

static ferry_status_t welcome(meeting_t *meeting, guest_t *guest, const fy_hello_t *hello,
                              size_t got, ferry_error_t *err) {
    FY_TRY(fy_hello_check(hello, got, &meeting->ours, err));
    bool twice = hello->rank == 0;
    for (uint32_t i = 0; i < meeting->nguests; i++) {
        twice = twice || meeting->guests[i].rank == hello->rank;
    }
    if (twice) {
        return fy_fail(err, FERRY_MISMATCH, "rank %" PRIu32 " came twice", hello->rank);
    }
    guest->rank = hello->rank;
    meeting->arrived++;
    return FERRY_OK;
}

/* A guest said something, or went away. */
static ferry_status_t listen_to(meeting_t *meeting, uint32_t index, ferry_error_t *err) {
    guest_t *guest = &meeting->guests[index];
    fy_hello_t hello;
    memset(&hello, 0, sizeof hello);
    ssize_t got = recv(guest->fd, &hello, sizeof hello, MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return FERRY_OK;
    }
    if (guest->rank != FERRY_RANK_NONE) {
        return fy_fail(err, FERRY_DEAD, "rank %" PRIu32 " went away before the world was complete",
                       guest->rank);
    }
    if (got < (ssize_t)sizeof hello.magic ||
        memcmp(hello.magic, FY_HELLO_MAGIC, sizeof hello.magic) != 0) {
        ferry_log(FERRY_LOG_WARN, "a stranger came to %s", meeting->path);
        drop(meeting, index);
        return FERRY_OK;
    }
    return welcome(meeting, guest, &hello, (size_t)got, err);
}

static ferry_status_t late(const meeting_t *meeting, ferry_error_t *err) {
    uint32_t missing[FERRY_WORLD_MAX_RANKS];
    uint32_t count = 0;
    for (uint32_t rank = 1; rank < meeting->ours.size; rank++) {
        bool here = false;
        for (uint32_t i = 0; i < meeting->nguests; i++) {
            here = here || meeting->guests[i].rank == rank;
        }
        if (!here) {
            missing[count++] = rank;
        }
    }
    char ranks[128];
    fy_text_t text;
    fy_text_init(&text, ranks, sizeof ranks);
    fy_text_ranks(&text, missing, count);
    (void)fy_fail(err, FERRY_TIMEOUT, "rank%s %s did not come to %s", count == 1 ? "" : "s", ranks,
                  meeting->path);
    err->rank = 0;
    err->peer = count == 1 ? missing[0] : FERRY_RANK_NONE;
    return FERRY_TIMEOUT;
}

/* Waits for what happens next at the door or with a guest. */
static ferry_status_t serve_once(meeting_t *meeting, uint64_t deadline_ns, ferry_error_t *err) {
    struct pollfd polls[FERRY_WORLD_MAX_RANKS + STRANGERS + 1];
    polls[0] = (struct pollfd){meeting->listener, POLLIN, 0};
    for (uint32_t i = 0; i < meeting->nguests; i++) {
        polls[i + 1] = (struct pollfd){meeting->guests[i].fd, POLLIN, 0};
    }
    uint64_t now = fy_clock_ns();
    uint64_t left = now < deadline_ns ? (deadline_ns - now) / MS + 1 : 0;
    if (poll(polls, meeting->nguests + 1, (int)fy_min_u64(left, 1000)) <= 0) {
        return FERRY_OK;
    }
    for (uint32_t i = meeting->nguests; i > 0; i--) { /* from the back: drop moves the last one */
        if (polls[i].revents != 0) {
            FY_TRY(listen_to(meeting, i - 1, err));
        }
    }
    if (polls[0].revents != 0) {
        accept_one(meeting);
    }
    return FERRY_OK;
}

static ferry_status_t collect(meeting_t *meeting, ferry_error_t *err) {
    while (meeting->arrived + 1 < meeting->ours.size) {
        if (fy_clock_ns() >= meeting->deadline_ns) {
            return late(meeting, err);
        }
        FY_TRY(serve_once(meeting, meeting->deadline_ns, err));
    }
    return FERRY_OK;
}

/* The reply, with the descriptor when there is one. A guest that is gone is noticed later. */
static void reply_to(int fd, fy_reply_t *reply, int file) {
    struct iovec bytes = {reply, sizeof *reply};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void reply_to_all(meeting_t *meeting, fy_reply_t *reply, int file) {
    while (meeting->nguests > 0) {
        guest_t *guest = &meeting->guests[meeting->nguests - 1];
        bool known = guest->rank != FERRY_RANK_NONE;
        if (known || file < 0) {             /* an error is for whoever is there */
            char unread[sizeof(fy_hello_t)]; /* closing over it would reset the connection */
            (void)recv(guest->fd, unread, sizeof unread, MSG_DONTWAIT);
            reply_to(guest->fd, reply, file);
        }
        drop(meeting, meeting->nguests - 1);
    }
}

static void fill_reply(fy_reply_t *reply, ferry_status_t status, const ferry_error_t *err) {
    memset(reply, 0, sizeof *reply);
    memcpy(reply->magic, FY_HELLO_MAGIC, sizeof reply->magic);
    reply->status = (uint32_t)status;
    if (status != FERRY_OK) {
        memcpy(reply->text, err->text, sizeof reply->text);
        reply->rank = err->rank;
        reply->peer = err->peer;
    }
}

/* Tells the error to those who are there, and for a while to those who come. */
static void send_away(meeting_t *meeting, ferry_status_t status, const ferry_error_t *err) {
    fy_reply_t reply;
    fill_reply(&reply, status, err);
    uint32_t told = meeting->nguests;
    reply_to_all(meeting, &reply, -1);
    uint64_t end = fy_clock_ns() + LINGER_MS * MS;
    while (told + 1 < meeting->ours.size && wait_for(meeting->listener, end)) {
        accept_one(meeting);
        told += meeting->nguests;
        reply_to_all(meeting, &reply, -1);
    }
}

static ferry_status_t host(meeting_t *meeting, const ferry_world_params_t *params,
                           fy_space_t **space_p, ferry_error_t *err) {
    ferry_error_t mine = FERRY_ERROR_INIT;
    FY_TRY(open_listener(meeting, err));
    fy_space_t *space = NULL;
    ferry_status_t status = fy_space_create(meeting->ours.size, params->arena_bytes, &space, &mine);
    if (status == FERRY_OK) {
        status = collect(meeting, &mine);
    }
    if (status == FERRY_OK) {
        fy_reply_t reply;
        fill_reply(&reply, FERRY_OK, NULL);
        reply_to_all(meeting, &reply, space->fd);
    } else {
        fy_error_ranks(&mine, 0, FERRY_RANK_NONE);
        send_away(meeting, status, &mine);
        fy_space_release(space);
        if (err != NULL) {
            *err = mine;
        }
    }
    (void)unlink(meeting->path);
    (void)close(meeting->listener);
    if (status == FERRY_OK) {
        *space_p = space;
    }
    return status;
}

/* --- the others -------------------------------------------------------------------------------- */

static ferry_status_t find_host(meeting_t *meeting, int *fd_p, ferry_error_t *err) {
    for (;;) {
        int fd = connect_to(meeting->path);
        if (fd >= 0) {
            *fd_p = fd;
            return FERRY_OK;
        }
        int number = errno;
        bool may_come = number == ENOENT || number == ECONNREFUSED || number == EAGAIN;
        if (!may_come && number != EINTR) {
            return fail_errno(err, number, "cannot connect to", meeting->path);
        }
        if (fy_clock_ns() >= meeting->deadline_ns) {
            ferry_status_t status =
                fy_fail(err, FERRY_TIMEOUT, "rank 0 did not come to %s", meeting->path);
            fy_error_ranks(err, meeting->ours.rank, 0);
            return status;
        }
        struct timespec pause = {0, RETRY_MS * (long)MS};
        (void)nanosleep(&pause, NULL);
    }
}

/* Receives the reply and the descriptor in it (-1: none). */
static ssize_t receive_reply(int fd, fy_reply_t *reply, int *file_p) {
    struct iovec bytes = {reply, sizeof *reply};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    *file_p = -1;
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == ECONNRESET) {
        /* Rank 0 closed before it read our hello; its reply still lies behind the error. */
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    }
    const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(file_p, CMSG_DATA(header), sizeof *file_p);
    }
    return got;
}

static ferry_status_t read_reply(const meeting_t *meeting, int fd, int *file_p,
                                 ferry_error_t *err) {
    fy_reply_t reply = {.status = FERRY_CORRUPT};
    uint64_t deadline = meeting->deadline_ns;
    deadline = deadline == UINT64_MAX ? deadline : deadline + LINGER_MS * MS;
    if (!wait_for(fd, deadline)) {
        return fy_fail(err, FERRY_TIMEOUT,
                       "rank 0 listens at %s but the world was not complete in time",
                       meeting->path);
    }
    ssize_t got = receive_reply(fd, &reply, file_p);
    size_t stable = offsetof(fy_reply_t, rank);
    if (got < (ssize_t)stable || memcmp(reply.magic, FY_HELLO_MAGIC, sizeof reply.magic) != 0) {
        return fy_fail(err, FERRY_DEAD, "rank 0 went away from %s before the world was complete",
                       meeting->path);
    }
    if (reply.status != FERRY_OK) {
        ferry_status_t status = (ferry_status_t)reply.status;
        reply.text[sizeof reply.text - 1] = '\0';
        (void)fy_fail(err, status, "%s", reply.text);
        if (err != NULL && got == (ssize_t)sizeof reply) {
            err->rank = reply.rank;
            err->peer = reply.peer;
        }
        return status;
    }
    return *file_p >= 0 ? FERRY_OK : fy_fail(err, FERRY_CORRUPT, "rank 0 sent no file");
}

static ferry_status_t visit(meeting_t *meeting, fy_space_t **space_p, ferry_error_t *err) {
    int fd = -1;
    int file = -1;
    FY_TRY(find_host(meeting, &fd, err));
    ferry_status_t status = FERRY_OK;
    if (send(fd, &meeting->ours, sizeof meeting->ours, MSG_NOSIGNAL) < 0 && errno != EPIPE) {
        status = fail_errno(err, errno, "cannot say hello at", meeting->path);
    }
    if (status == FERRY_OK) {
        status = read_reply(meeting, fd, &file, err);
    }
    (void)close(fd);
    if (status != FERRY_OK) {
        if (file >= 0) {
            (void)close(file);
        }
        fy_error_ranks(err, meeting->ours.rank, 0);
        return status;
    }
    return fy_space_open(file, space_p, err);
}

/* --- both -------------------------------------------------------------------------------------- */

static ferry_status_t meet(meeting_t *meeting, const ferry_world_params_t *params,
                           fy_space_t **space_p, ferry_error_t *err) {
    if (meeting->ours.rank != 0) {
        return visit(meeting, space_p, err);
    }
    if (meeting->ours.size == 1) {
        return fy_space_create(1, params->arena_bytes, space_p, err);
    }
    meeting->cap = meeting->ours.size + STRANGERS;
    meeting->guests = fy_alloc_zero(meeting->cap, sizeof *meeting->guests);
    if (meeting->guests == NULL) {
        return fy_fail_nomem(err, "a meeting");
    }
    ferry_status_t status = host(meeting, params, space_p, err);
    fy_free(meeting->guests);
    return status;
}

static ferry_status_t enter(fy_space_t *space, uint32_t rank, const ferry_world_params_t *params,
                            ferry_world_t **world_p, ferry_error_t *err) {
    ferry_world_t *world = NULL;
    ferry_status_t status =
        fy_world_create(space, &fy_kind_socket, rank, params->timeout_ms, &world, err);
    fy_space_release(space); /* the handle has its own reference */
    FY_TRY(status);
    fy_world_describe(fy_world_slot(world, rank), params->hosts != NULL ? params->hosts[rank] : 0);
    fy_world_enter(world);
    status = ferry_group_barrier(world->all, err);
    if (status != FERRY_OK) {
        ferry_world_leave(world);
        return status;
    }
    fy_world_count_cores(world);
    *world_p = world;
    return FERRY_OK;
}

ferry_status_t ferry_world_join(const char *path, uint32_t rank, uint32_t size,
                                const ferry_world_params_t *params, ferry_world_t **world_p,
                                ferry_error_t *err) {
    FY_NEED(path, err);
    FY_NEED(world_p, err);
    ferry_world_params_t filled;
    FY_TRY(fy_world_params(params, size, &filled, err));
    if (rank >= size) {
        return fy_fail(err, FERRY_INVALID, "rank %" PRIu32 " of a world of %" PRIu32, rank, size);
    }
    if (path[0] == '\0' || strlen(path) > FERRY_WORLD_PATH_MAX) {
        return fy_fail(err, FERRY_INVALID, "the path of a socket has 1 to %d characters, not %zu",
                       FERRY_WORLD_PATH_MAX, strlen(path));
    }
    meeting_t meeting = {.path = path, .listener = -1, .deadline_ns = UINT64_MAX};
    fy_hello_fill(&meeting.ours, rank, size, filled.arena_bytes);
    if (filled.timeout_ms != FERRY_TIMEOUT_NONE) {
        meeting.deadline_ns = fy_clock_ns() + filled.timeout_ms * MS;
    }
    fy_space_t *space = NULL;
    FY_TRY(meet(&meeting, &filled, &space, err));
    return enter(space, rank, &filled, world_p, err);
}

void ferry_world_leave(ferry_world_t *world) {
    if (world == NULL) {
        return;
    }
    if (fy_world_usable(world, NULL) == FERRY_OK) {
        fy_world_close(world);
    }
    fy_world_destroy(world);
}
