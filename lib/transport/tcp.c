/* SPDX-License-Identifier: Apache-2.0 */
/* Links over TCP sockets that boot has connected and proved. Frames are described in docs/WIRE.md.
 * Always holds: frames of one direction arrive whole and in order; a control frame is sent only
 * between data frames; a peer that ends its stream is found when it is needed, not before. */
#include "transport/transport.h"

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

#include "transport/frame.h"

#define READ_ROOM 8192 /* bytes read ahead: several small frames in one call */
#define DIRECT 4096    /* payloads above it are read straight to where they belong */
#define TAIL_ROOM 2048 /* control frames that wait for their turn */
#define ASKED 16       /* operations whose text is remembered */
#define HUNT_NS 1000000000
#define TELL_NS 100000000
#define SILENCE_NS 500000000 /* between two looks for silent peers */

enum link_state { LINK_DOWN, LINK_UP, LINK_LEFT, LINK_DEAD };

struct link {
    int fd;
    enum link_state state;
    uint64_t left_after;        /* LINK_LEFT: the peer's last operation */
    int system;                 /* LINK_DEAD: errno, 0 for an end of stream */

    /* out: the data frame in flight, then the tail */
    unsigned char head[RR_FRAME_BYTES];
    size_t sent;                /* bytes of head and payload that the kernel has */
    const struct rr_move *sending;
    int send_errno;             /* the kernel takes no more; what the peer said before is still to be read */
    unsigned char *rest;        /* what was left of a data frame when the communicator broke */
    size_t rest_bytes, rest_sent;
    unsigned char tail[TAIL_ROOM];
    size_t tail_bytes, tail_sent;

    /* in */
    unsigned char room[READ_ROOM];
    size_t lo, hi;
    unsigned char *spill;       /* what came behind the room's bytes and lies where the posted receive */
    size_t spilled;             /* wants its payload: see read_both */
    const struct rr_move *receiving; /* whose header has been taken */
    int64_t hunt_until_ns;      /* the peer is out of step: data is dropped until it says why */
    size_t drop;                /* bytes of a frame's payload that are still to be dropped */
    struct rr_ask strange;      /* what it sent instead of what was due */
};

struct tcp {
    struct rr_transport base;
    int ranks, me;
    const struct rr_log *log;
    struct rr_congestion congestion;
    struct link *link;          /* [ranks] */
    int64_t peer_timeout_ns, silence_ns; /* setting; when to look next */
    struct rr_ask asked[ASKED]; /* what this rank asked for lately, by sequence */
};

static struct tcp *self(struct rr_transport *t)
{
    return (struct tcp *)t;
}

static int lost(struct tcp *t, int peer, int system, ringred_error *why)
{
    struct link *l = &t->link[peer];

    if (l->state == LINK_LEFT)
        return rr_fail(why, RINGRED_EPEER, peer, 0, "rank %d left the communicator after operation %llu",
                       peer, (unsigned long long)l->left_after);
    l->state = LINK_DEAD;
    l->system = system;
    return rr_fail(why, RINGRED_EPEER, peer, system, "rank %d is gone: its connection %s", peer,
                   system ? "failed" : "was closed without a goodbye");
}

/* ---- sending ---- */

/* Sends what is left of [bytes]; 0 when all of it is out. EPEER: send_errno says why. */
static int push(struct link *l, const unsigned char *bytes, size_t length, size_t *sent)
{
    while (*sent < length && !l->send_errno) {
        ssize_t k = send(l->fd, bytes + *sent, length - *sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k < 0)
            l->send_errno = errno;
        else
            *sent += (size_t)k;
    }
    return l->send_errno ? RINGRED_EPEER : 0;
}

static int flush_tail(struct link *l)
{
    int rc = push(l, l->rest, l->rest_bytes, &l->rest_sent);

    if (rc == 0)
        rc = push(l, l->tail, l->tail_bytes, &l->tail_sent);
    if (rc == 0)
        l->tail_bytes = l->tail_sent = 0;
    return rc;
}

static void queue_control(struct tcp *t, int peer, const struct rr_frame *f, const void *payload)
{
    struct link *l = &t->link[peer];

    if (l->state != LINK_UP || l->tail_bytes + RR_FRAME_BYTES + f->length > TAIL_ROOM)
        return;
    rr_frame_write(f, l->tail + l->tail_bytes);
    memcpy(l->tail + l->tail_bytes + RR_FRAME_BYTES, payload, f->length);
    l->tail_bytes += RR_FRAME_BYTES + f->length;
    if (!l->sending)
        (void)flush_tail(l); /* a lost peer is found when it is needed */
}

static void remember(struct tcp *t, const struct rr_ask *ask)
{
    struct rr_ask *slot = &t->asked[ask->sequence % ASKED];

    if (slot->sequence != ask->sequence)
        *slot = *ask;
}

/* What this rank asked for in the operation that a peer speaks of; NULL: too long ago, or not yet. */
static const struct rr_ask *recall(const struct tcp *t, const struct rr_ask *theirs)
{
    const struct rr_ask *slot = &t->asked[theirs->sequence % ASKED];

    return slot->sequence && (uint32_t)slot->sequence == (uint32_t)theirs->sequence ? slot : NULL;
}

/* Lengths that two ranks alone agree on: on the wire, the count is the part's. */
static bool is_by_pairs(const struct rr_ask *ask)
{
    return (ask->collective & RR_RAGGED) && ask->count == 0;
}

static void start_frame(struct tcp *t, struct link *l, const struct rr_move *m)
{
    struct rr_frame f = { .kind = RR_FRAME_DATA,
                          .length = (uint32_t)m->length,
                          .slot = m->slot,
                          .segment = m->segment,
                          .ask = *m->ask };
    if (is_by_pairs(m->ask))
        f.ask.count = m->elements;
    remember(t, m->ask);
    rr_frame_write(&f, l->head);
    l->sent = 0;
    l->sending = m;
}

static int last_words(struct tcp *t, int peer, const struct rr_ask *mine, ringred_error *why);

static int tcp_send(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct tcp *t = self(base);
    struct link *l = &t->link[m->peer];
    size_t whole = RR_FRAME_BYTES + m->length;

    if (RR_UNLIKELY(l->state != LINK_UP))
        return lost(t, m->peer, l->system, why);
    if (!l->sending) {
        int rc = l->tail_bytes || l->send_errno ? flush_tail(l) : 0;
        if (RR_UNLIKELY(rc))
            return rc < 0 ? last_words(t, m->peer, m->ask, why) : rc;
        start_frame(t, l, m);
    }
    while (l->sent < whole) {
        size_t skip = l->sent < RR_FRAME_BYTES ? l->sent : RR_FRAME_BYTES;
        size_t at = l->sent - skip;
        struct iovec part[2] = { { l->head + skip, RR_FRAME_BYTES - skip },
                                 { (char *)m->bytes + at, m->length - at } };
        struct msghdr message = { .msg_iov = part + (skip == RR_FRAME_BYTES),
                                  .msg_iovlen = 2 - (skip == RR_FRAME_BYTES) };
        ssize_t k = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k < 0) {
            l->send_errno = errno;
            return last_words(t, m->peer, m->ask, why);
        }
        l->sent += (size_t)k;
    }
    m->done = m->length;
    l->sending = NULL;
    return 0;
}

/* ---- receiving ---- */

/* Reads ahead into the link's room, which has some left. 0: something came. */
static int fill(struct tcp *t, int peer, ringred_error *why)
{
    struct link *l = &t->link[peer];

    if (l->lo) {
        memmove(l->room, l->room + l->lo, l->hi - l->lo);
        l->hi -= l->lo;
        l->lo = 0;
    }
    if (RR_UNLIKELY(l->spilled)) {
        size_t k = l->spilled < READ_ROOM - l->hi ? l->spilled : READ_ROOM - l->hi;
        memcpy(l->room + l->hi, l->spill, k);
        l->hi += k;
        l->spill += k;
        l->spilled -= k;
        return 0;
    }
    for (;;) {
        ssize_t k = recv(l->fd, l->room + l->hi, READ_ROOM - l->hi, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k <= 0)
            return lost(t, peer, k < 0 ? errno : 0, why);
        l->hi += (size_t)k;
        return 0;
    }
}

static int peer_told(struct tcp *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    struct link *l = &t->link[peer];
    struct rr_reader r = { l->room + l->lo, l->room + l->lo + f->length, false };

    return rr_frame_read_fault(&r, t->ranks, peer, why);
}

/* Handles the control frame at the front of the room, which has it whole. */
static int control(struct tcp *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    struct link *l = &t->link[peer];
    int rc = 0;

    l->lo += RR_FRAME_BYTES;
    if (f->kind == RR_FRAME_FAULT) {
        rc = peer_told(t, peer, f, why);
    } else if (f->kind == RR_FRAME_BYE) {
        l->state = LINK_LEFT;
        l->left_after = f->ask.sequence;
    } else if (recall(t, &f->ask)) {
        rc = rr_ask_compare(recall(t, &f->ask), t->me, &f->ask, peer, why);
    }
    l->lo += f->length;
    return rc;
}

/* Takes control frames off the front; 0 when a data header is there, read but not taken. */
static int next_header(struct tcp *t, int peer, struct rr_frame *f, ringred_error *why)
{
    struct link *l = &t->link[peer];

    for (;;) {
        size_t have = l->hi - l->lo;
        if (have >= RR_FRAME_BYTES) {
            RR_TRY(rr_frame_read(l->room + l->lo, peer, f, why));
            if (f->kind == RR_FRAME_DATA)
                return 0;
            if (have >= RR_FRAME_BYTES + f->length) {
                RR_TRY(control(t, peer, f, why));
                continue;
            }
        }
        int rc = fill(t, peer, why);
        if (rc)
            return rc;
    }
}

/* A peer takes no more. What it said before it went says more than the errno: everything that has come
 * is read for it. Data only tell whether the peer was in the same operation. */
static int last_words(struct tcp *t, int peer, const struct rr_ask *mine, ringred_error *why)
{
    struct link *l = &t->link[peer];
    struct rr_frame f;

    if (l->receiving)
        l->drop = l->receiving->length - l->receiving->done;
    l->receiving = NULL;
    for (;;) {
        size_t have = l->hi - l->lo, k = have < l->drop ? have : l->drop;
        l->lo += k;
        l->drop -= k;
        int rc = l->drop ? fill(t, peer, why) : next_header(t, peer, &f, why);
        if (rc < 0 && l->state == LINK_UP)
            return rc; /* its word, or a broken stream */
        if (rc)
            return lost(t, peer, l->send_errno, why);
        if (!l->drop) {
            if ((uint32_t)f.ask.sequence == (uint32_t)mine->sequence)
                RR_TRY(rr_ask_compare(mine, t->me, &f.ask, peer, why));
            l->lo += RR_FRAME_BYTES;
            l->drop = f.length;
        }
    }
}

/* Drops data until the peer has said what it thinks is wrong, or has had time enough to. */
static int hunt(struct tcp *t, int peer, const struct rr_ask *mine, ringred_error *why)
{
    struct link *l = &t->link[peer];
    struct rr_frame f;

    for (;;) {
        size_t have = l->hi - l->lo, k = have < l->drop ? have : l->drop;
        l->lo += k;
        l->drop -= k;
        int rc = l->drop ? fill(t, peer, why) : next_header(t, peer, &f, why);
        if (rc == RINGRED_PENDING && rr_now_ns() >= l->hunt_until_ns)
            return rr_ask_out_of_step(mine, t->me, &l->strange, peer, why);
        if (rc)
            return rc;
        if (!l->drop) {
            l->lo += RR_FRAME_BYTES;
            l->drop = f.length;
        }
    }
}

/* The peer's next data belongs to another operation than mine. Either its text of mine differs, and
 * both are known here, or the peer has to say what it did in mine: ask, and wait for its answer. */
static int out_of_step(struct tcp *t, const struct rr_move *m, const struct rr_frame *f,
                       ringred_error *why)
{
    struct link *l = &t->link[m->peer];
    const struct rr_ask *before = recall(t, &f->ask);
    const struct rr_frame ask = { .kind = RR_FRAME_ASK, .ask = *m->ask };

    if (before && (uint32_t)before->sequence != (uint32_t)m->ask->sequence)
        RR_TRY(rr_ask_compare(before, t->me, &f->ask, m->peer, why));
    l->strange = f->ask;
    l->hunt_until_ns = rr_now_ns() + HUNT_NS;
    l->drop = f->length;
    queue_control(t, m->peer, &ask, "");
    return hunt(t, m->peer, m->ask, why);
}

/* Is the data frame the one that the plan wants next? */
static int expect(struct tcp *t, const struct rr_move *m, struct rr_frame *f, ringred_error *why)
{
    uint64_t theirs = f->ask.count;

    if (is_by_pairs(m->ask) && f->ask.collective == m->ask->collective)
        f->ask.count = 0;
    RR_TRY(rr_ask_compare(m->ask, t->me, &f->ask, m->peer, why));
    if (is_by_pairs(m->ask) && theirs != m->elements)
        return rr_ask_parts(m->ask, t->me, m->elements, m->peer, theirs, why);
    if (f->slot == m->slot && f->segment == m->segment && f->length == m->length)
        return 0;
    return rr_fail(why, RINGRED_EWIRE, m->peer, 0,
                   "rank %d sent slot %u, segment %u, %u bytes where slot %u, segment %u, %zu bytes "
                   "were due", m->peer, f->slot, f->segment, f->length, m->slot, m->segment, m->length);
}

static bool is_in_step(const struct rr_move *m, const struct rr_frame *f)
{
    return (uint32_t)f->ask.sequence == (uint32_t)m->ask->sequence;
}

/* A large payload whose header has not come yet: header and payload in one call. Where the first frame
 * is another than the one that is due, what follows it has come to the wrong place; fill takes it from
 * there. */
static int read_both(struct tcp *t, struct rr_move *m, ringred_error *why)
{
    struct link *l = &t->link[m->peer];
    struct iovec part[2] = { { l->room, RR_FRAME_BYTES }, { m->bytes, m->length } };
    struct msghdr message = { .msg_iov = part, .msg_iovlen = 2 };
    ssize_t k;

    do
        k = recvmsg(l->fd, &message, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k < 0 && errno == EAGAIN)
        return RINGRED_PENDING;
    if (k <= 0)
        return lost(t, m->peer, k < 0 ? errno : 0, why);
    l->lo = 0;
    l->hi = (size_t)k < RR_FRAME_BYTES ? (size_t)k : RR_FRAME_BYTES;
    l->spill = m->bytes;
    l->spilled = (size_t)k - l->hi;
    return 0;
}

static int take_header(struct tcp *t, struct rr_move *m, ringred_error *why)
{
    struct link *l = &t->link[m->peer];
    struct rr_frame f;

    remember(t, m->ask);
    if (m->length > DIRECT && l->lo == l->hi && !l->spilled) {
        int rc = read_both(t, m, why);
        if (rc)
            return rc;
    }
    int rc = next_header(t, m->peer, &f, why);
    if (rc)
        return rc;
    l->lo += RR_FRAME_BYTES;
    if (!is_in_step(m, &f))
        return out_of_step(t, m, &f, why);
    RR_TRY(expect(t, m, &f, why));
    l->receiving = m;
    return 0;
}

/* Payload that was read along with headers: what is in the room, then what was spilled. The spill lies
 * in the destination itself, behind whatever the room has had from it, so nothing is overtaken. */
static void take_read_ahead(struct link *l, struct rr_move *m)
{
    size_t wanted = m->length - m->done, k = l->hi - l->lo < wanted ? l->hi - l->lo : wanted;

    memcpy((char *)m->bytes + m->done, l->room + l->lo, k);
    l->lo += k;
    m->done += k;
    wanted -= k;
    k = l->spilled < wanted ? l->spilled : wanted;
    if (!k)
        return;
    if (l->spill != (unsigned char *)m->bytes + m->done)
        memmove((char *)m->bytes + m->done, l->spill, k);
    l->spill += k;
    l->spilled -= k;
    m->done += k;
}

static int tcp_recv(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct tcp *t = self(base);
    struct link *l = &t->link[m->peer];

    if (RR_UNLIKELY(l->state == LINK_DEAD || (l->state == LINK_LEFT && l->lo == l->hi)))
        return lost(t, m->peer, l->system, why);
    if (RR_UNLIKELY(l->hunt_until_ns != 0))
        return hunt(t, m->peer, m->ask, why);
    if (!l->receiving) {
        int rc = take_header(t, m, why);
        if (rc)
            return rc;
    }
    if (m->done < m->length && (l->lo < l->hi || l->spilled))
        take_read_ahead(l, m);
    while (m->done < m->length) {
        ssize_t k = recv(l->fd, (char *)m->bytes + m->done, m->length - m->done, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k <= 0)
            return lost(t, m->peer, k < 0 ? errno : 0, why);
        m->done += (size_t)k;
    }
    l->receiving = NULL;
    return 0;
}

/* ---- looking after peers ---- */

/* Is a peer's kernel silent? Keepalive finds it on an idle link, but does not run while data waits to be
 * acknowledged; a peer that lives and does not read still acknowledges our window probes. */
static bool is_silent(const struct tcp *t, int peer)
{
    struct tcp_info info = { 0 };
    socklen_t length = sizeof info;

    if (t->peer_timeout_ns < 0 || getsockopt(t->link[peer].fd, IPPROTO_TCP, TCP_INFO, &info, &length))
        return false;
    return info.tcpi_unacked + info.tcpi_probes > 0 &&
           (int64_t)info.tcpi_last_ack_recv * 1000000 > t->peer_timeout_ns;
}

static void check_silence(struct tcp *t)
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

static int tcp_check(struct rr_transport *base, const struct rr_ask *ask, uint8_t *gone,
                     ringred_error *why)
{
    struct tcp *t = self(base);

    remember(t, ask);
    check_silence(t);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct link *l = &t->link[peer];
        ringred_error seen;
        struct rr_frame f;
        if (l->state == LINK_UP && !l->sending)
            (void)flush_tail(l);
        if (l->state == LINK_UP && !l->hunt_until_ns && (!l->receiving || l->send_errno)) {
            int rc = l->send_errno ? last_words(t, peer, ask, &seen) : next_header(t, peer, &f, &seen);
            if (rc < 0 && l->state == LINK_UP) {
                *why = seen;
                return rc;
            }
        }
        if (l->state == LINK_DEAD || (l->state == LINK_LEFT && l->lo == l->hi))
            gone[peer] = 1;
    }
    return 0;
}

static int tcp_explain(struct rr_transport *base, int peer, ringred_error *why)
{
    struct tcp *t = self(base);

    return t->link[peer].fd < 0 ? 0 : lost(t, peer, t->link[peer].system, why);
}

static int tcp_watch(struct rr_transport *base, int epoll, ringred_error *why)
{
    struct tcp *t = self(base);

    for (int peer = 0; peer < t->ranks; peer++) {
        struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
        if (t->link[peer].fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, t->link[peer].fd, &event))
            return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot watch the link to rank %d", peer);
    }
    return 0;
}

/* The caller's buffer may go away now; what is left of the frame is kept, so that the peer does not
 * take a half frame for our death. */
static void keep_rest(struct link *l)
{
    const struct rr_move *m = l->sending;
    size_t skip = l->sent < RR_FRAME_BYTES ? l->sent : RR_FRAME_BYTES, at = l->sent - skip;

    l->sending = NULL;
    if (l->sent == 0)
        return;
    l->rest = rr_alloc(1, RR_FRAME_BYTES - skip + m->length - at);
    if (!l->rest) { /* nothing may follow half a frame: the peer sees the stream end instead */
        l->state = LINK_DEAD;
        (void)shutdown(l->fd, SHUT_RDWR);
        return;
    }
    memcpy(l->rest, l->head + skip, RR_FRAME_BYTES - skip);
    memcpy(l->rest + RR_FRAME_BYTES - skip, (const char *)m->bytes + at, m->length - at);
    l->rest_bytes = RR_FRAME_BYTES - skip + m->length - at;
}

static bool flush_all(struct tcp *t)
{
    bool all = true;

    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].state == LINK_UP)
            all = flush_tail(&t->link[peer]) != RINGRED_PENDING && all;
    return all;
}

static void tcp_flush(struct rr_transport *base)
{
    (void)flush_all(self(base)); /* what is left goes with the next call, or with close */
}

static void tcp_tell(struct rr_transport *base, const ringred_error *why)
{
    struct tcp *t = self(base);
    unsigned char payload[RR_FAULT_BYTES];
    struct rr_frame f = { .kind = RR_FRAME_FAULT };

    f.length = (uint32_t)rr_frame_write_fault(why, payload);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct link *l = &t->link[peer];
        if (l->sending)
            keep_rest(l);
        l->spilled = 0; /* the buffer that a receive was posted with may go away, too */
        queue_control(t, peer, &f, payload);
    }
    int64_t until = rr_now_ns() + TELL_NS;
    while (!flush_all(t) && rr_now_ns() < until)
        (void)poll(NULL, 0, 1); /* a peer that is stuck in a receive of ours takes it at once */
}

static void tcp_probe(struct rr_transport *base, const struct rr_ask *ask)
{
    struct tcp *t = self(base);
    struct rr_frame f = { .kind = RR_FRAME_ASK, .ask = *ask };

    for (int peer = 0; peer < t->ranks; peer++)
        if (!t->link[peer].tail_bytes) /* else one waits already, and room is left for a last word */
            queue_control(t, peer, &f, "");
}

/* ---- opening and closing ---- */

/* Has the peer's kernel everything? Reads and drops what still comes, so that nothing is reset. */
static bool is_drained(struct tcp *t, int peer)
{
    struct link *l = &t->link[peer];
    char drop[4096];
    ssize_t n;
    int left = 0;

    if (l->state == LINK_DEAD || flush_tail(l) < 0)
        return true;
    if (l->tail_bytes)
        return false;
    do
        n = recv(l->fd, drop, sizeof drop, MSG_DONTWAIT);
    while (n > 0);
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return true; /* it needs nothing more, or is gone: what was reset is never acknowledged */
    return ioctl(l->fd, SIOCOUTQ, &left) < 0 || left == 0;
}

static int tcp_close(struct rr_transport *base, uint64_t last, int64_t deadline_ns)
{
    struct tcp *t = self(base);
    struct rr_frame bye = { .kind = RR_FRAME_BYE, .ask.sequence = last };
    int rc = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        if (t->link[peer].sending)
            keep_rest(&t->link[peer]); /* an operation was in flight: its frame goes first */
        if (t->link[peer].fd >= 0)
            queue_control(t, peer, &bye, "");
    }
    for (int peer = 0; peer < t->ranks; peer++) {
        struct link *l = &t->link[peer];
        if (l->fd < 0)
            continue;
        bool half_closed = false;
        for (;;) {
            bool drained = is_drained(t, peer);
            if (!l->tail_bytes && !half_closed) {
                half_closed = true;
                (void)shutdown(l->fd, SHUT_WR); /* an error here means that the peer is gone */
            }
            if (drained || rr_now_ns() >= deadline_ns) {
                rc = drained ? rc : RINGRED_EPEER;
                break;
            }
            struct pollfd wait = { l->fd, (short)(POLLIN | (l->tail_bytes ? POLLOUT : 0)), 0 };
            (void)poll(&wait, 1, 1); /* acknowledgements raise no event: look again each ms */
        }
        rr_fd_close(l->fd);
        rr_free(l->rest);
    }
    rr_free(t->link);
    rr_free(t);
    return rc;
}

static void tcp_describe(const struct rr_transport *base, struct rr_text *text)
{
    const struct tcp *t = (const struct tcp *)base;
    int links = 0;

    for (int peer = 0; peer < t->ranks; peer++)
        links += t->link[peer].fd >= 0;
    rr_text_add(text, "{\"name\":\"tcp\",\"links\":%d,\"congestion\":{\"inside\":", links);
    rr_text_add_json(text, t->congestion.inside);
    rr_text_add(text, ",\"outside\":");
    rr_text_add_json(text, t->congestion.outside);
    rr_text_add(text, "}}");
}

static const struct rr_transport_ops tcp_ops = {
    .struct_size = sizeof tcp_ops,
    .name = "tcp",
    .ordered = true,
    .send = tcp_send,
    .recv = tcp_recv,
    .check = tcp_check,
    .watch = tcp_watch,
    .tell = tcp_tell,
    .flush = tcp_flush,
    .probe = tcp_probe,
    .close = tcp_close,
    .explain = tcp_explain,
    .describe = tcp_describe,
};

static void set_options(int fd, int64_t peer_timeout_ns)
{
    int on = 1, interval = peer_timeout_ns < 0 ? 0 : (int)(peer_timeout_ns / 1000000000 / 6);

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (peer_timeout_ns < 0)
        return;
    interval = interval < 1 ? 1 : interval;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    on = 5;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &on, sizeof on);
}

int rr_tcp_open(int ranks, int me, const int *fd, const struct rr_congestion *congestion,
                const struct rr_settings *settings, const struct rr_log *log,
                struct rr_transport **transport, ringred_error *why)
{
    struct tcp *t = rr_alloc(1, sizeof *t);
    struct link *link = rr_alloc((size_t)ranks, sizeof *link);

    if (!t || !link) {
        for (int peer = 0; peer < ranks; peer++)
            if (fd[peer] >= 0)
                close(fd[peer]);
        rr_free(t);
        rr_free(link);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d links", ranks);
    }
    *t = (struct tcp){ .base = { &tcp_ops }, .ranks = ranks, .me = me, .log = log, .link = link,
                       .congestion = *congestion,
                       .peer_timeout_ns = rr_setting(settings, RR_SET_PEER_TIMEOUT) };
    for (int peer = 0; peer < ranks; peer++) {
        link[peer].fd = rr_fd_own(fd[peer]);
        link[peer].state = fd[peer] >= 0 ? LINK_UP : LINK_DOWN;
        if (link[peer].fd < 0) /* no link; or no memory, then it is as good as dead */
            continue;
        set_options(fd[peer], rr_setting(settings, RR_SET_PEER_TIMEOUT));
        rr_congestion_apply(fd[peer], congestion);
    }
    *transport = &t->base;
    return 0;
}
