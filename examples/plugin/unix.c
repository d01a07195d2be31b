/* SPDX-License-Identifier: Apache-2.0 */
/* A transport plug-in, whole: ranks of one machine over Unix sockets. It needs nothing but the library's headers:
 *
 *     cc -std=c17 -O2 -fPIC -shared -o libringred-unix.so unix.c $(pkg-config --cflags ringred)
 *     RINGRED_PLUGIN_PATH=. ringred-conform unix
 *     RINGRED_PLUGIN_PATH=. RINGRED_TRANSPORT=unix ringred-bench allreduce --ranks 2
 *
 * A lane is a stream socket. Each rank listens at an abstract name, which is its address; the lower rank of two dials,
 * and says first who it is. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ringred/transport.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/sockios.h>

#define GUESTS 64 /* connections that have not said yet who they are */

struct self {
    const ringred_host *host;
    struct sockaddr_un at;
    int listener;
    int guest[GUESTS], guests;
    int *fd; /* [ranks][rails]; -1: none */
};

struct card {
    int32_t rank, rail;
};

static int *lane(struct self *s, int peer, int rail)
{
    return &s->fd[peer * s->host->rails + rail];
}

/* ---- making lanes ---- */

static int32_t fail(struct self *s, ringred_error *why, int32_t code, int32_t rank, const char *what)
{
    char text[160];
    const int system = errno;

    snprintf(text, sizeof text, "unix: %s", what);
    return s->host->fail(why, code, rank, system, text);
}

static void unix_close(void *self, int64_t deadline_ns)
{
    struct self *s = self;

    (void)deadline_ns; /* what a socket has taken, the other end can read after it is closed */
    for (int i = 0; i < s->guests; i++)
        s->host->close_descriptor(s->host->context, s->guest[i]);
    for (int i = 0; s->fd && i < s->host->ranks * s->host->rails; i++)
        if (s->fd[i] >= 0)
            s->host->close_descriptor(s->host->context, s->fd[i]);
    if (s->listener >= 0)
        s->host->close_descriptor(s->host->context, s->listener);
    free(s->fd);
    free(s);
}

static int own(struct self *s, int fd)
{
    return fd < 0 ? fd : s->host->own_descriptor(s->host->context, fd);
}

static int32_t unix_open(const ringred_host *host, void **self, ringred_error *why)
{
    struct self *s = calloc(1, sizeof *s);
    const size_t lanes = (size_t)host->ranks * (size_t)host->rails;

    if (!s)
        return host->fail(why, RINGRED_ENOMEM, -1, 0, "unix: no memory");
    s->host = host;
    s->listener = own(s, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    s->fd = malloc(lanes * sizeof *s->fd);
    for (size_t i = 0; s->fd && i < lanes; i++)
        s->fd[i] = -1;
    s->at.sun_family = AF_UNIX; /* sun_path[0] is 0: a name, not a file; random, so that no two are alike */
    if (s->fd && s->listener >= 0 && getrandom(s->at.sun_path + 1, 24, 0) == 24 &&
        bind(s->listener, (struct sockaddr *)&s->at, sizeof s->at) == 0 && listen(s->listener, 1024) == 0) {
        *self = s;
        return 0;
    }
    const int32_t rc = fail(s, why, RINGRED_ESYSTEM, -1, "cannot listen");
    unix_close(s, 0);
    return rc;
}

static int32_t unix_address(void *self, void *to, ringred_error *why)
{
    (void)why;
    memcpy(to, &((struct self *)self)->at, sizeof(struct sockaddr_un));
    return sizeof(struct sockaddr_un);
}

/* 0: there; PENDING: try again. */
static int32_t dial(struct self *s, int peer, int rail, const void *address, int32_t bytes, ringred_error *why)
{
    const struct card card = { s->host->rank, rail };
    struct sockaddr_un at;

    if (bytes != sizeof at)
        return fail(s, why, RINGRED_EWIRE, peer, "an address that is none");
    memcpy(&at, address, sizeof at);
    const int fd = own(s, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return fail(s, why, RINGRED_ELIMIT, -1, "cannot make a socket");
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && send(fd, &card, sizeof card, MSG_NOSIGNAL) == sizeof card) {
        *lane(s, peer, rail) = fd;
        return 0;
    }
    const int system = errno;
    s->host->close_descriptor(s->host->context, fd);
    errno = system;
    return system == EAGAIN ? RINGRED_PENDING : fail(s, why, RINGRED_EPEER, peer, "cannot reach a rank");
}

/* Who is it? The library finds out whether it is true. false: it has not said yet. */
static bool seat(struct self *s, int fd)
{
    struct card card;
    const ssize_t n = recv(fd, &card, sizeof card, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n == sizeof card && card.rank >= 0 && card.rank < s->host->ranks && card.rail >= 0 &&
        card.rail < s->host->rails && *lane(s, card.rank, card.rail) < 0)
        *lane(s, card.rank, card.rail) = fd;
    else
        s->host->close_descriptor(s->host->context, fd);
    return true;
}

static void welcome(struct self *s)
{
    int kept = 0;

    while (s->guests < GUESTS) {
        const int fd = own(s, accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0)
            break;
        s->guest[s->guests++] = fd;
    }
    for (int i = 0; i < s->guests; i++)
        if (!seat(s, s->guest[i]))
            s->guest[kept++] = s->guest[i];
    s->guests = kept;
}

static int32_t unix_connect(void *self, const uint8_t *wanted, const void *const *address, const int32_t *bytes,
                            int64_t deadline_ns, ringred_error *why)
{
    struct self *s = self;

    for (;;) {
        int missing = -1;
        welcome(s);
        for (int peer = 0; peer < s->host->ranks; peer++)
            for (int rail = 0; wanted[peer] && rail < s->host->rails; rail++) {
                if (*lane(s, peer, rail) >= 0)
                    continue;
                const int32_t rc = peer > s->host->rank ? dial(s, peer, rail, address[peer], bytes[peer], why)
                                                        : RINGRED_PENDING;
                if (rc < 0)
                    return rc;
                missing = rc == 0 ? missing : peer;
            }
        if (missing < 0)
            return 0;
        if (s->host->is_interrupted(s->host->context))
            return s->host->fail(why, RINGRED_EINTERRUPTED, s->host->rank, 0, "unix: the caller wants to stop");
        if (s->host->now_ns() >= deadline_ns)
            return s->host->fail(why, RINGRED_ETIMEOUT, missing, 0, "unix: a rank did not come");
        struct pollfd p = { s->listener, POLLIN, 0 };
        (void)poll(&p, 1, 10); /* whatever it says, we look again */
    }
}

/* ---- lanes ---- */

static int64_t unix_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct iovec piece[4];
    struct msghdr message = { .msg_iov = piece };
    ssize_t n;

    for (int i = 0; i < parts && i < 4; i++)
        piece[message.msg_iovlen++] = (struct iovec){ part[i].bytes, part[i].length };
    do
        n = sendmsg(*lane(self, peer, rail), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0 || errno == EAGAIN)
        return n > 0 ? n : 0;
    *system = errno;
    return RINGRED_EPEER;
}

static int64_t unix_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct iovec piece[4];
    struct msghdr message = { .msg_iov = piece };
    ssize_t n;

    for (int i = 0; i < parts && i < 4; i++)
        piece[message.msg_iovlen++] = (struct iovec){ part[i].bytes, part[i].length };
    do
        n = recvmsg(*lane(self, peer, rail), &message, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0 || (n < 0 && errno == EAGAIN))
        return n > 0 ? n : 0;
    *system = n < 0 ? errno : 0;
    return RINGRED_EPEER;
}

static void unix_finish(void *self, int32_t peer, int32_t rail)
{
    (void)shutdown(*lane(self, peer, rail), SHUT_WR); /* an error means that the peer is gone */
}

static void unix_reset(void *self, int32_t peer, int32_t rail)
{
    (void)shutdown(*lane(self, peer, rail), SHUT_RDWR);
}

static int32_t unix_drained(void *self, int32_t peer, int32_t rail)
{
    const int fd = *lane(self, peer, rail);
    char drop[4096];
    int left = 0;
    ssize_t n;

    do
        n = recv(fd, drop, sizeof drop, MSG_DONTWAIT);
    while (n > 0);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        return 0;
    return ioctl(fd, SIOCOUTQ, &left) < 0 || left == 0 ? 0 : RINGRED_PENDING;
}

static int32_t unix_watch(void *self, int32_t epoll, ringred_error *why)
{
    struct self *s = self;
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

    for (int i = 0; i < s->host->ranks * s->host->rails; i++)
        if (s->fd[i] >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, s->fd[i], &event))
            return fail(s, why, RINGRED_ESYSTEM, -1, "cannot watch a socket");
    return 0;
}

static const ringred_transport table = {
    .struct_size = sizeof table,
    .name = "unix",
    .text = "Unix sockets, for ranks of one machine",
    .open = unix_open,
    .address = unix_address,
    .connect = unix_connect,
    .send = unix_send,
    .recv = unix_recv,
    .finish = unix_finish,
    .reset = unix_reset,
    .drained = unix_drained,
    .watch = unix_watch,
    .close = unix_close,
};

#ifndef RINGRED_TRANSPORT_ENTRY_OF_UNIX /* a test has another entry to the same lanes */
__attribute__((visibility("default"))) const ringred_transport *RINGRED_TRANSPORT_ENTRY(void);

const ringred_transport *RINGRED_TRANSPORT_ENTRY(void)
{
    return &table;
}
#endif
