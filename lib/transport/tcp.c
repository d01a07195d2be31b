/* SPDX-License-Identifier: Apache-2.0 */
/* Links over TCP sockets that boot has connected and proved: opening and closing them, looking after peers,
 * telling them. Sending is in link_send.c, receiving in link_recv.c; frames are described in docs/WIRE.md.
 * Always holds: messages of one direction are sent and received one at a time, in order; a control frame is
 * sent only between data frames; a peer that ends its stream is found when it is needed, not before.
 *
 * A link has one stream, or several where one connection is given less than the wire has. Everything but
 * stripes travels on the first. A large message is cut into stripes; whichever stream has room takes the
 * next one, so a slow stream gets less. */
#include "transport/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#define UNSENT (256 << 10)     /* bytes that a stream of several takes before the wire has had them */
#define TELL_NS 100000000
#define SILENCE_NS 500000000 /* between two looks for silent peers */

/* ---- looking after peers ---- */

/* Is a peer's kernel silent? Keepalive finds it on an idle link, but does not run while data waits to be
 * acknowledged; a peer that lives and does not read still acknowledges our window probes. */
static bool is_silent(const struct rr_tcp *t, int peer)
{
    const struct rr_link *l = &t->link[peer];

    for (int i = 0; i < l->streams && t->peer_timeout_ns >= 0; i++) {
        struct tcp_info info = { 0 };
        socklen_t length = sizeof info;
        if (getsockopt(l->stream[i].fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
            info.tcpi_unacked + info.tcpi_probes > 0 &&
            (int64_t)info.tcpi_last_ack_recv * 1000000 > t->peer_timeout_ns)
            return true;
    }
    return false;
}

static void check_silence(struct rr_tcp *t)
{
    int64_t now = rr_now_ns();

    if (now < t->silence_ns)
        return;
    t->silence_ns = now + SILENCE_NS;
    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].state == LINK_UP && is_silent(t, peer)) {
            t->link[peer].state = LINK_DEAD;
            t->link[peer].system = ETIMEDOUT;
        }
}

/* Takes control frames from a peer that nobody is receiving from; its data stay where they are. */
static int check_alone(struct rr_tcp *t, int peer, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    struct rr_frame f;

    if (l->hunt_until_ns || (l->stream->left && !rr_link_send_errno(l)))
        return 0;
    return rr_link_send_errno(l) ? rr_link_last_words(t, peer, why) : rr_link_next_header(t, peer, &f, why);
}

static int tcp_check(struct rr_transport *base, uint8_t *gone, ringred_error *why)
{
    struct rr_tcp *t = rr_tcp_of(base);

    check_silence(t);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct rr_link *l = &t->link[peer];
        ringred_error seen;
        if (l->state == LINK_UP && !l->sending)
            (void)rr_link_flush_tail(l);
        if (l->state == LINK_UP) {
            bool mux = l->muxed && !l->receiving && !rr_link_send_errno(l);
            int rc = mux ? rr_mux_pump(t, peer, &seen) : check_alone(t, peer, &seen);
            if (rc < 0 && l->state == LINK_UP) {
                *why = seen;
                return rc;
            }
        }
        if ((l->state == LINK_DEAD && !rr_mux_owes(l, NULL, 0)) || rr_link_has_left(l))
            gone[peer] |= RR_GONE_LINK;
    }
    return 0;
}

static int tcp_explain(struct rr_transport *base, int peer, ringred_error *why)
{
    struct rr_tcp *t = rr_tcp_of(base);

    return t->link[peer].stream ? rr_link_lost(t, peer, t->link[peer].system, why) : 0;
}

static int tcp_watch(struct rr_transport *base, int epoll, ringred_error *why)
{
    struct rr_tcp *t = rr_tcp_of(base);

    for (int peer = 0; peer < t->ranks; peer++) {
        struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
        for (int i = 0; i < t->link[peer].streams; i++)
            if (epoll_ctl(epoll, EPOLL_CTL_ADD, t->link[peer].stream[i].fd, &event))
                return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot watch the link to rank %d", peer);
    }
    return 0;
}

/* The caller's buffer may go away now; what is left of the first stream's frame is kept, so that the peer
 * does not take a half frame for our death. Nothing is sent on the others any more. */
static void keep_rest(struct rr_link *l)
{
    struct rr_stream *s = l->stream;
    size_t skip = s->sent < RR_FRAME_BYTES ? s->sent : RR_FRAME_BYTES, at = s->sent - skip;

    l->sending = NULL;
    if (!s->busy || s->sent == 0)
        return;
    l->rest = rr_alloc(1, RR_FRAME_BYTES - skip + s->out_bytes - at);
    if (!l->rest) { /* nothing may follow half a frame: the peer sees the stream end instead */
        l->state = LINK_DEAD;
        (void)shutdown(s->fd, SHUT_RDWR);
        return;
    }
    memcpy(l->rest, s->head + skip, RR_FRAME_BYTES - skip);
    memcpy(l->rest + RR_FRAME_BYTES - skip, s->out + at, s->out_bytes - at);
    l->rest_bytes = RR_FRAME_BYTES - skip + s->out_bytes - at;
}

static bool flush_all(struct rr_tcp *t)
{
    bool all = true;

    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].state == LINK_UP)
            all = rr_link_flush_tail(&t->link[peer]) != RINGRED_PENDING && all;
    return all;
}

static void tcp_flush(struct rr_transport *base)
{
    (void)flush_all(rr_tcp_of(base)); /* what is left goes with the next call, or with close */
}

static void tcp_tell(struct rr_transport *base, const ringred_error *why)
{
    struct rr_tcp *t = rr_tcp_of(base);
    unsigned char payload[RR_FAULT_BYTES];
    struct rr_frame f = { .kind = RR_FRAME_FAULT };

    f.length = (uint32_t)rr_frame_write_fault(why, payload);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct rr_link *l = &t->link[peer];
        if (l->sending)
            keep_rest(l);
        for (int i = 0; i < l->streams; i++)
            l->stream[i].spilled = 0; /* the buffer that a receive was posted with may go away, too */
        l->posted = l->hoping = NULL;
        l->offered = NULL;
        rr_link_queue(t, peer, &f, payload);
    }
    int64_t until = rr_now_ns() + TELL_NS;
    while (!flush_all(t) && rr_now_ns() < until)
        (void)poll(NULL, 0, 1); /* a peer that is stuck in a receive of ours takes it at once */
}

static void tcp_begin(struct rr_transport *base, struct rr_channel *channel, const struct rr_ask *ask)
{
    rr_channel_remember(channel ? channel : rr_tcp_of(base)->first, ask);
}

static void tcp_probe(struct rr_transport *base, struct rr_channel *channel, const struct rr_ask *ask)
{
    struct rr_tcp *t = rr_tcp_of(base);
    const struct rr_channel *c = channel ? channel : t->first;

    for (int way = 0; way < c->ranks; way++) {
        const struct rr_frame f = { .kind = RR_FRAME_ASK, .channel = c->way[way].name, .ask = *ask };
        int peer = c->member ? c->member[way] : way;
        if (!t->link[peer].tail_bytes) /* else one waits already, and room is left for a last word */
            rr_link_queue(t, peer, &f, "");
    }
}

/* ---- opening and closing ---- */

/* Has the peer's kernel everything? Reads and drops what still comes, so that nothing is reset. */
static bool is_drained(int fd)
{
    char drop[4096];
    ssize_t n;
    int left = 0;

    do
        n = recv(fd, drop, sizeof drop, MSG_DONTWAIT);
    while (n > 0);
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return true; /* it needs nothing more, or is gone: what was reset is never acknowledged */
    return ioctl(fd, SIOCOUTQ, &left) < 0 || left == 0;
}

/* 0, or EPEER: not everything went out in time. */
static int drain(struct rr_link *l, int64_t deadline_ns)
{
    bool half_closed = false;

    for (;;) {
        bool drained = l->state == LINK_DEAD || rr_link_flush_tail(l) < 0;
        bool flushed = drained || !l->tail_bytes;
        for (int i = 0; i < l->streams && flushed && !half_closed; i++)
            (void)shutdown(l->stream[i].fd, SHUT_WR); /* an error here means that the peer is gone */
        half_closed = flushed;
        bool all = flushed;
        for (int i = 0; i < l->streams && !drained; i++)
            all = is_drained(l->stream[i].fd) && all;
        if (drained || all)
            return 0;
        if (rr_now_ns() >= deadline_ns)
            return RINGRED_EPEER;
        struct pollfd wait = { l->stream->fd, (short)(POLLIN | (flushed ? 0 : POLLOUT)), 0 };
        (void)poll(&wait, 1, 1); /* acknowledgements raise no event: look again each ms */
    }
}

static void free_links(struct rr_tcp *t)
{
    for (int peer = 0; peer < t->ranks; peer++) {
        struct rr_link *l = &t->link[peer];
        for (int i = 0; i < l->streams; i++) {
            rr_fd_close(l->stream[i].fd);
            rr_free(l->stream[i].kept);
        }
        rr_free(l->stream);
        rr_free(l->rest);
    }
    rr_channels_free(t);
    rr_free(t->link);
    rr_free(t);
}

static int tcp_close(struct rr_transport *base, uint64_t last, int64_t deadline_ns)
{
    struct rr_tcp *t = rr_tcp_of(base);
    struct rr_frame bye = { .kind = RR_FRAME_BYE, .ask.sequence = last };
    int rc = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        if (t->link[peer].sending)
            keep_rest(&t->link[peer]); /* an operation was in flight: its frame goes first */
        if (t->link[peer].stream)
            rr_link_queue(t, peer, &bye, "");
    }
    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].stream && drain(&t->link[peer], deadline_ns) < 0)
            rc = RINGRED_EPEER;
    free_links(t);
    return rc;
}

static void tcp_describe(const struct rr_transport *base, struct rr_text *text)
{
    const struct rr_tcp *t = (const struct rr_tcp *)base;
    int links = 0, streams = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        links += t->link[peer].streams > 0;
        streams = t->link[peer].streams > streams ? t->link[peer].streams : streams;
    }
    rr_text_add(text, "{\"name\":\"tcp\",\"links\":%d,\"streams\":%d,\"congestion\":{\"inside\":", links,
                streams);
    rr_text_add_json(text, t->congestion.inside);
    rr_text_add(text, ",\"outside\":");
    rr_text_add_json(text, t->congestion.outside);
    rr_text_add(text, "},\"sent\":[");
    for (int peer = 0; peer < t->ranks; peer++)
        rr_text_add(text, "%s%llu", peer ? "," : "",
                    (unsigned long long)atomic_load_explicit(&t->link[peer].payload, memory_order_relaxed));
    rr_text_add(text, "],\"kept\":%zu}", atomic_load_explicit(&t->kept_most, memory_order_relaxed));
}

static const struct rr_transport_ops tcp_ops = {
    .struct_size = sizeof tcp_ops,
    .name = "tcp",
    .ordered = true,
    .send = rr_link_send,
    .recv = rr_link_recv,
    .check = tcp_check,
    .begin = tcp_begin,
    .watch = tcp_watch,
    .tell = tcp_tell,
    .flush = tcp_flush,
    .probe = tcp_probe,
    .close = tcp_close,
    .explain = tcp_explain,
    .describe = tcp_describe,
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

static int open_link(struct rr_tcp *t, struct rr_link *l, const int *fd, int streams)
{
    while (l->streams < streams && fd[l->streams] >= 0)
        l->streams++;
    if (!l->streams)
        return 0;
    l->stream = rr_alloc((size_t)l->streams, sizeof *l->stream);
    if (!l->stream) {
        l->streams = 0;
        return RINGRED_ENOMEM;
    }
    l->state = LINK_UP;
    rr_share_begin(l);
    for (int i = 0; i < l->streams; i++) {
        l->stream[i].fd = rr_fd_own(fd[i]);
        set_options(fd[i], l->streams, t->peer_timeout_ns);
        rr_congestion_apply(fd[i], &t->congestion);
    }
    return 0;
}

int rr_tcp_open(int ranks, int me, const int *fd, int streams, const struct rr_congestion *congestion,
                const struct rr_settings *settings, const struct rr_log *log,
                struct rr_transport **transport, ringred_error *why)
{
    struct rr_tcp *t = rr_alloc(1, sizeof *t);
    struct rr_link *link = rr_alloc((size_t)ranks, sizeof *link);
    int rc = t && link ? 0 : RINGRED_ENOMEM, peer = 0;

    if (rc == 0)
        *t = (struct rr_tcp){ .base = { &tcp_ops, &t->base }, .ranks = ranks, .me = me, .log = log, .link = link,
                           .congestion = *congestion,
                           .peer_timeout_ns = rr_setting(settings, RR_SET_PEER_TIMEOUT) };
    if (rc == 0)
        rc = rr_channel_new(&t->base, ranks, NULL, &t->first, why);
    for (; peer < ranks && rc == 0; peer++)
        rc = open_link(t, &link[peer], fd + (size_t)peer * (size_t)streams, streams);
    if (rc == 0) {
        *transport = &t->base;
        return 0;
    }
    for (size_t i = (size_t)(peer > 0 ? peer - 1 : 0) * (size_t)streams; i < (size_t)ranks * (size_t)streams; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    if (t && link) {
        free_links(t);
    } else {
        rr_free(t);
        rr_free(link);
    }
    return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d links", ranks);
}
