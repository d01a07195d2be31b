/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that are TCP sockets, which boot has connected and proved. `self` is the links that they belong to. */
#include "transport/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>
#include <linux/tcp.h>

#define TICK_NS 20000000       /* the kernel counts in ticks of up to 10 ms */
#define UNSENT (256 << 10)     /* bytes that a stream of several takes before the wire has had them */

static int fd_of(void *self, int peer, int rail)
{
    return ((struct rr_links *)self)->link[peer].stream[rail].fd;
}

_Static_assert(sizeof(ringred_span) == sizeof(struct iovec) &&
                   offsetof(ringred_span, length) == offsetof(struct iovec, iov_len),
               "a span is what the kernel takes");

static int64_t socket_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = (size_t)parts };
    int fd = fd_of(self, peer, rail);
    ssize_t k;

    do
        k = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k >= 0 || errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) /* the kernel's memory comes back */
        return k < 0 ? 0 : k;
    *system = errno;
    return RINGRED_EPEER;
}

static int64_t socket_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = (size_t)parts };
    int fd = fd_of(self, peer, rail);
    ssize_t k;

    do
        k = parts == 1 ? recv(fd, part->bytes, part->length, MSG_DONTWAIT) : recvmsg(fd, &message, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k > 0 || (k < 0 && errno == EAGAIN))
        return k < 0 ? 0 : k;
    *system = k < 0 ? errno : 0;
    return RINGRED_EPEER;
}

static void socket_finish(void *self, int32_t peer, int32_t rail)
{
    (void)shutdown(fd_of(self, peer, rail), SHUT_WR); /* an error here means that the peer is gone */
}

/* Not shutdown: the end would wait behind bytes that nobody acknowledges, where a reset needs one packet to arrive. */
static void socket_reset(void *self, int32_t peer, int32_t rail)
{
    const struct sockaddr none = { .sa_family = AF_UNSPEC };

    (void)connect(fd_of(self, peer, rail), &none, sizeof none); /* an error here means that the peer is gone */
}

/* Has the peer's kernel everything? Reads and drops what still comes, so that nothing is reset. */
static int32_t socket_drained(void *self, int32_t peer, int32_t rail)
{
    int fd = fd_of(self, peer, rail), left = 0;
    char drop[4096];
    ssize_t n;

    do
        n = recv(fd, drop, sizeof drop, MSG_DONTWAIT);
    while (n > 0);
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return 0; /* it needs nothing more, or is gone: what was reset is never acknowledged */
    return ioctl(fd, SIOCOUTQ, &left) < 0 || left == 0 ? 0 : RINGRED_PENDING;
}

/* For how long the peer's kernel has owed us an acknowledgement. The last one may have come long before what it is to
 * acknowledge was sent: then this counts from the first look that finds something owed. */
static int64_t stream_silence(struct rr_stream *s, int64_t now)
{
    struct tcp_info info = { 0 };
    socklen_t length = sizeof info;

    if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &length) || info.tcpi_unacked + info.tcpi_probes == 0) {
        s->owed_ns = 0;
        return 0;
    }
    int64_t heard = (int64_t)info.tcpi_last_ack_recv * 1000000;
    if (!s->owed_ns || heard < now - s->owed_ns + TICK_NS)
        s->owed_ns = now; /* something else is owed by now */
    return heard < now - s->owed_ns ? heard : now - s->owed_ns;
}

/* Keepalive finds a silent peer on an idle link, but does not run while data waits to be acknowledged; a peer that
 * lives and does not read still acknowledges our window probes. */
static int64_t socket_silence(void *self, int32_t peer)
{
    const struct rr_link *l = &((struct rr_links *)self)->link[peer];
    int64_t most = 0, now = rr_now_ns();

    for (int i = 0; i < l->streams; i++) {
        int64_t silence = stream_silence(&l->stream[i], now);
        most = silence > most ? silence : most;
    }
    return most;
}

static int64_t socket_queued(void *self, int32_t peer, int32_t rail)
{
    int queued = 0;

    return ioctl(fd_of(self, peer, rail), SIOCOUTQNSD, &queued) < 0 ? 0 : queued;
}

static int64_t socket_busy_us(void *self, int32_t peer, int32_t rail)
{
    struct tcp_info info = { 0 };
    socklen_t bytes = sizeof info;

    if (getsockopt(fd_of(self, peer, rail), IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return -1;
    return (int64_t)info.tcpi_busy_time;
}

static int32_t socket_watch(void *self, int32_t epoll, ringred_error *why)
{
    const struct rr_links *t = self;

    for (int peer = 0; peer < t->ranks; peer++) {
        struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
        for (int i = 0; i < t->link[peer].streams; i++)
            if (epoll_ctl(epoll, EPOLL_CTL_ADD, t->link[peer].stream[i].fd, &event))
                return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot watch the link to rank %d", peer);
    }
    return 0;
}

static void socket_close(void *self, int64_t deadline_ns)
{
    struct rr_links *t = self;

    (void)deadline_ns; /* what is sent goes out by itself */
    for (int peer = 0; peer < t->ranks; peer++)
        for (int i = 0; i < t->link[peer].streams; i++)
            rr_fd_close(t->link[peer].stream[i].fd);
}

static const ringred_transport sockets = {
    .struct_size = sizeof sockets,
    .name = "tcp",
    .text = "TCP sockets",
    .send = socket_send,
    .recv = socket_recv,
    .finish = socket_finish,
    .reset = socket_reset,
    .drained = socket_drained,
    .silence = socket_silence,
    .queued = socket_queued,
    .busy_us = socket_busy_us,
    .watch = socket_watch,
    .close = socket_close,
};

static void set_options(int fd, int streams, int64_t peer_timeout_ns)
{
    int on = 1, unsent = UNSENT, interval = peer_timeout_ns < 0 ? 0 : (int)(peer_timeout_ns / 1000000000 / 6);

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (streams > 1) /* what a slow stream holds, the others cannot take */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (peer_timeout_ns < 0)
        return;
    interval = interval < 1 ? 1 : interval;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    on = 5;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &on, sizeof on);
}

int rr_tcp_open(int ranks, int me, const int *fd, int streams, const struct rr_congestion *congestion,
                const struct rr_settings *settings, const struct rr_log *log,
                struct rr_transport **transport, ringred_error *why)
{
    uint8_t *count = rr_alloc((size_t)ranks, 1);
    const struct rr_lanes from = { .ranks = ranks, .me = me, .by = &sockets, .streams = count };
    struct rr_links *t;

    for (int i = 0; count && i < ranks * streams; i++)
        count[i / streams] = (uint8_t)(count[i / streams] + (fd[i] >= 0));
    int rc = count ? rr_links_open(&from, settings, log, &t, why)
                   : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d links", ranks);
    for (int i = 0; i < ranks * streams; i++) {
        if (fd[i] < 0)
            continue;
        if (rc < 0) {
            rr_fd_close(fd[i]);
            continue;
        }
        struct rr_link *l = &t->link[i / streams];
        l->stream[i % streams].fd = rr_fd_own(fd[i]); /* those that are there come first */
        set_options(fd[i], l->streams, t->peer_timeout_ns);
        rr_congestion_apply(fd[i], congestion);
    }
    rr_free(count);
    if (rc < 0)
        return rc;
    t->congestion = *congestion;
    *transport = &t->base;
    return 0;
}
