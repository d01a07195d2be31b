/* SPDX-License-Identifier: Apache-2.0 */
/* Links over TCP sockets that boot has connected and proved. Frames are described in docs/WIRE.md.
 * Always holds: messages of one direction are sent and received one at a time, in order; a control frame is
 * sent only between data frames; a peer that ends its stream is found when it is needed, not before.
 *
 * A link has one stream, or several where one connection is given less than the wire has. Everything but
 * stripes travels on the first. A large message is cut into stripes; whichever stream has room takes the
 * next one, so a slow stream gets less. */
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

#include "transport/stream.h"

#define DIRECT 4096    /* payloads above it are read straight to where they belong */
#define STRIPE_LEAST ((size_t)16 << 10) /* bytes of a stripe; a message that is no longer is not cut */
#define STRIPE_MOST ((size_t)128 << 10)
#define UNSENT (256 << 10)         /* bytes that a stream of several takes before the wire has had them */
#define TAIL_ROOM 2048 /* control frames that wait for their turn */
#define ASKED 16       /* operations whose text is remembered */
#define HUNT_NS 1000000000
#define TELL_NS 100000000
#define SILENCE_NS 500000000 /* between two looks for silent peers */

enum link_state { LINK_DOWN, LINK_UP, LINK_LEFT, LINK_DEAD };

struct link {
    struct rr_stream *stream;   /* [streams]; NULL: no link */
    int streams;
    enum link_state state;
    uint64_t left_after;        /* LINK_LEFT: the peer's last operation */
    int system;                 /* LINK_DEAD: errno, 0 for an end of stream */

    /* out: the message under way, then the tail */
    const struct rr_move *sending;
    size_t given;               /* bytes of it that streams have been given */
    _Atomic uint64_t payload;   /* bytes of messages that have gone out, without heads; any thread may look */
    unsigned char *rest;        /* what was left of a data frame when the communicator broke */
    size_t rest_bytes, rest_sent;
    unsigned char tail[TAIL_ROOM];
    size_t tail_bytes, tail_sent;

    /* in */
    struct rr_move *receiving;  /* whose first header has been taken */
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

static int flush_tail(struct link *l)
{
    struct rr_stream *s = l->stream;
    int rc = rr_stream_write(s, l->rest, l->rest_bytes, &l->rest_sent);

    if (rc == 0)
        rc = rr_stream_write(s, l->tail, l->tail_bytes, &l->tail_sent);
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

static int last_words(struct tcp *t, int peer, const struct rr_ask *mine, ringred_error *why);

/* Of the first stream that takes no more; 0: all do. */
static int send_errno(const struct link *l)
{
    int system = 0;

    for (int i = 0; i < l->streams && !system; i++)
        system = l->stream[i].send_errno;
    return system;
}

/* How both ends cut a message: a stripe for each stream, or more where they would be large, so that a fast
 * stream can take more of them. */
static size_t stripe_of(const struct link *l, size_t length)
{
    size_t each = rr_round_up(length / (size_t)l->streams, 4096);

    if (l->streams == 1 || length <= STRIPE_LEAST)
        return length;
    return each < STRIPE_LEAST ? STRIPE_LEAST : each > STRIPE_MOST ? STRIPE_MOST : each;
}

/* Lengths that two ranks alone agree on: on the wire, the count is the part's. */
static bool is_by_pairs(const struct rr_ask *ask)
{
    return (ask->collective & RR_RAGGED) && ask->count == 0;
}

/* The next part of the message under way, to a stream that is idle. */
static void give(struct link *l, struct rr_stream *s)
{
    const struct rr_move *m = l->sending;
    size_t left = m->length - l->given, stripe = stripe_of(l, m->length), part = left < stripe ? left : stripe;
    struct rr_frame f = { .kind = l->given ? RR_FRAME_STRIPE : RR_FRAME_DATA,
                          .length = (uint32_t)part,
                          .slot = m->slot,
                          .segment = m->segment,
                          .ask = *m->ask };

    if (is_by_pairs(m->ask))
        f.ask.count = m->elements;
    if (l->given)
        f.ask.root = (int32_t)l->given;
    rr_stream_frame(s, &f, (const char *)m->bytes + l->given);
    l->given += part;
}

/* Each stream goes on with what it has, and takes more when it is through. */
static int send_stripes(struct link *l)
{
    bool busy = false;

    for (int i = 0; i < l->streams; i++) {
        struct rr_stream *s = &l->stream[i];
        for (int rc = 0; rc == 0 && (s->busy || l->given < l->sending->length);) {
            if (!s->busy)
                give(l, s);
            rc = rr_stream_push(s);
            if (rc < 0)
                return rc;
            if (l->streams > 1 && rc == 0)
                break; /* the others' turn */
        }
        busy = busy || s->busy;
    }
    return busy || l->given < l->sending->length ? RINGRED_PENDING : 0;
}

static int tcp_send(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct tcp *t = self(base);
    struct link *l = &t->link[m->peer];
    int rc = 0;

    if (RR_UNLIKELY(l->state != LINK_UP))
        return lost(t, m->peer, l->system, why);
    if (!l->sending) {
        rc = l->tail_bytes || l->stream->send_errno ? flush_tail(l) : 0;
        if (RR_UNLIKELY(rc))
            return rc < 0 ? last_words(t, m->peer, m->ask, why) : rc;
        remember(t, m->ask);
        l->sending = m;
        l->given = 0;
        give(l, l->stream);
    }
    do { /* with several streams a turn gives each a stripe */
        size_t given = l->given;
        rc = send_stripes(l);
        if (rc == RINGRED_PENDING && l->given == given)
            break;
    } while (rc == RINGRED_PENDING);
    if (rc < 0)
        return last_words(t, m->peer, m->ask, why);
    if (rc)
        return rc;
    m->done = m->length;
    atomic_store_explicit(&l->payload, atomic_load_explicit(&l->payload, memory_order_relaxed) + m->length,
                          memory_order_relaxed);
    l->sending = NULL;
    return 0;
}

/* ---- receiving ---- */

#define ENDED 3 /* a stream has ended: stream.ended, .read_errno */

/* Reads ahead. 0, PENDING, ENDED. */
static int read_ahead(struct rr_stream *s)
{
    int rc = s->ended ? RINGRED_EPEER : rr_stream_fill(s, &s->read_errno);

    s->ended = rc < 0;
    return rc < 0 ? ENDED : rc;
}

static int fill(struct tcp *t, int peer, ringred_error *why)
{
    struct rr_stream *s = t->link[peer].stream;
    int rc = read_ahead(s);

    return rc == ENDED ? lost(t, peer, s->read_errno, why) : rc;
}

static int peer_told(struct tcp *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    const struct rr_stream *s = t->link[peer].stream;
    struct rr_reader r = { s->room + s->lo, s->room + s->lo + f->length, false };

    return rr_frame_read_fault(&r, t->ranks, peer, why);
}

/* Handles the control frame at the front of the room, which has it whole. */
static int control(struct tcp *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    struct link *l = &t->link[peer];
    int rc = 0;

    l->stream->lo += RR_FRAME_BYTES;
    if (f->kind == RR_FRAME_FAULT) {
        rc = peer_told(t, peer, f, why);
    } else if (f->kind == RR_FRAME_BYE) {
        l->state = LINK_LEFT;
        l->left_after = f->ask.sequence;
    } else if (recall(t, &f->ask)) {
        rc = rr_ask_compare(recall(t, &f->ask), t->me, &f->ask, peer, why);
    }
    l->stream->lo += f->length;
    return rc;
}

/* Takes control frames off the front of the first stream; 0 when a data header is there, read but not
 * taken. ENDED, PENDING. */
static int front(struct tcp *t, int peer, struct rr_frame *f, ringred_error *why)
{
    struct rr_stream *s = t->link[peer].stream;

    for (;;) {
        size_t have = s->hi - s->lo;
        if (have >= RR_FRAME_BYTES) {
            RR_TRY(rr_frame_read(s->room + s->lo, peer, f, why));
            if (f->kind == RR_FRAME_DATA || f->kind == RR_FRAME_STRIPE)
                return 0;
            if (have >= RR_FRAME_BYTES + f->length) {
                RR_TRY(control(t, peer, f, why));
                continue;
            }
        }
        int rc = read_ahead(s);
        if (rc)
            return rc;
    }
}

static int next_header(struct tcp *t, int peer, struct rr_frame *f, ringred_error *why)
{
    int rc = front(t, peer, f, why);

    return rc == ENDED ? lost(t, peer, t->link[peer].stream->read_errno, why) : rc;
}

/* A peer takes no more. What it said before it went says more than the errno: everything that has come
 * is read for it. Data only tell whether the peer was in the same operation. */
static int last_words(struct tcp *t, int peer, const struct rr_ask *mine, ringred_error *why)
{
    struct link *l = &t->link[peer];
    struct rr_frame f;

    if (!l->hunt_until_ns)
        l->drop = l->stream->left; /* of the frame under way */
    l->receiving = NULL;
    for (;;) {
        rr_stream_skip(l->stream, &l->drop);
        int rc = l->drop ? fill(t, peer, why) : next_header(t, peer, &f, why);
        if (rc < 0 && l->state == LINK_UP)
            return rc; /* its word, or a broken stream */
        if (rc)
            return lost(t, peer, send_errno(l), why);
        if (!l->drop) {
            if (f.kind == RR_FRAME_DATA && (uint32_t)f.ask.sequence == (uint32_t)mine->sequence &&
                !(mine->collective & RR_RAGGED))
                RR_TRY(rr_ask_compare(mine, t->me, &f.ask, peer, why));
            l->stream->lo += RR_FRAME_BYTES;
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
        rr_stream_skip(l->stream, &l->drop);
        int rc = l->drop ? fill(t, peer, why) : next_header(t, peer, &f, why);
        if (rc == RINGRED_PENDING && rr_now_ns() >= l->hunt_until_ns)
            return rr_ask_out_of_step(mine, t->me, &l->strange, peer, why);
        if (rc)
            return rc;
        if (!l->drop) {
            l->stream->lo += RR_FRAME_BYTES;
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
    const struct link *l = &t->link[m->peer];
    uint64_t theirs = f->ask.count;

    if (is_by_pairs(m->ask) && f->ask.collective == m->ask->collective)
        f->ask.count = 0;
    RR_TRY(rr_ask_compare(m->ask, t->me, &f->ask, m->peer, why));
    if (is_by_pairs(m->ask) && theirs != m->elements)
        return rr_ask_parts(m->ask, t->me, m->elements, m->peer, theirs, why);
    size_t first = stripe_of(l, m->length);
    if (f->kind == RR_FRAME_DATA && f->slot == m->slot && f->segment == m->segment && f->length == first)
        return 0;
    return rr_fail(why, RINGRED_EWIRE, m->peer, 0,
                   "rank %d sent slot %u, segment %u, %u bytes where slot %u, segment %u, %zu bytes "
                   "were due", m->peer, f->slot, f->segment, f->length, m->slot, m->segment, first);
}

static bool is_in_step(const struct rr_move *m, const struct rr_frame *f)
{
    return (uint32_t)f->ask.sequence == (uint32_t)m->ask->sequence;
}

static int take_header(struct tcp *t, struct rr_move *m, ringred_error *why)
{
    struct link *l = &t->link[m->peer];
    struct rr_stream *s = l->stream;
    struct rr_frame f;
    int rc = 0, system = 0;

    remember(t, m->ask);
    if (m->length > DIRECT && rr_stream_is_empty(s)) {
        rc = rr_stream_read_both(s, m->bytes, stripe_of(l, m->length), &system);
        if (rc)
            return rc < 0 ? lost(t, m->peer, system, why) : rc;
    }
    rc = next_header(t, m->peer, &f, why);
    if (rc)
        return rc;
    s->lo += RR_FRAME_BYTES;
    if (!is_in_step(m, &f))
        return out_of_step(t, m, &f, why);
    RR_TRY(expect(t, m, &f, why));
    l->receiving = m;
    s->in = m->bytes;
    s->left = f.length;
    return 0;
}

/* The header of a stripe of this message at the front of a stream. PENDING: not there, or another's; ENDED. */
static int take_stripe(struct tcp *t, struct rr_move *m, int i, ringred_error *why)
{
    struct rr_stream *s = &t->link[m->peer].stream[i];
    struct rr_frame f;
    int rc = 0;

    if (i == 0)
        rc = front(t, m->peer, &f, why);
    while (i > 0 && rc == 0 && s->hi - s->lo < RR_FRAME_BYTES)
        rc = read_ahead(s);
    if (rc)
        return rc;
    RR_TRY(rr_frame_read(s->room + s->lo, m->peer, &f, why));
    if (f.kind != RR_FRAME_STRIPE || !is_in_step(m, &f) || f.slot != m->slot || f.segment != m->segment)
        return RINGRED_PENDING; /* of a later message; its own header will be looked at closely */
    size_t at = (uint32_t)f.ask.root;
    if (at > m->length || f.length > m->length - at)
        return rr_fail(why, RINGRED_EWIRE, m->peer, 0, "rank %d sent a stripe of %u bytes at %zu of %zu", m->peer,
                       f.length, at, m->length);
    s->lo += RR_FRAME_BYTES;
    s->in = (unsigned char *)m->bytes + at;
    s->left = f.length;
    return 0;
}

/* Between two frames, and not by an error, unless the peer has said goodbye: then a close that finds
 * something unread resets what nobody needs any more. */
static bool is_clean_end(const struct link *l, const struct rr_stream *s)
{
    return s->left == 0 && s->lo == s->hi && !s->spilled && (!s->read_errno || l->state == LINK_LEFT);
}

/* Whatever has come on a stream of a message that has more than one frame. 0: the message has ended;
 * PENDING; ENDED: nothing more will come on this stream; < 0: failed. */
static int receive_stripes(struct tcp *t, struct rr_move *m, int i, ringred_error *why)
{
    struct rr_stream *s = &t->link[m->peer].stream[i];

    for (;;) {
        int rc = s->ended ? 0 : rr_stream_take(s, &m->done, &s->read_errno);
        if (rc < 0)
            s->ended = true;
        if (s->ended && !is_clean_end(&t->link[m->peer], s))
            return lost(t, m->peer, s->read_errno, why);
        if (rc)
            return rc < 0 ? ENDED : rc;
        if (m->done >= m->length)
            return 0;
        rc = take_stripe(t, m, i, why);
        if (rc)
            return rc;
    }
}

/* A peer may have said goodbye on the first stream while others still have data. */
static int receive_all(struct tcp *t, struct rr_move *m, ringred_error *why)
{
    struct link *l = &t->link[m->peer];
    bool open = false;

    for (int i = 0; i < l->streams && m->done < m->length; i++) {
        int rc = receive_stripes(t, m, i, why);
        if (rc < 0)
            return rc;
        open = open || rc != ENDED;
    }
    if (m->done < m->length)
        return open ? RINGRED_PENDING : lost(t, m->peer, l->stream->read_errno, why);
    l->receiving = NULL;
    return 0;
}

/* Nothing will come any more of what this rank has not begun to receive. */
static bool has_left(const struct link *l)
{
    return l->state == LINK_LEFT && rr_stream_is_empty(l->stream) && !l->receiving;
}

static int tcp_recv(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct tcp *t = self(base);
    struct link *l = &t->link[m->peer];
    int system = 0, rc = 0;

    if (RR_UNLIKELY(l->state == LINK_DEAD || has_left(l)))
        return lost(t, m->peer, l->system, why);
    if (RR_UNLIKELY(l->hunt_until_ns != 0))
        return hunt(t, m->peer, m->ask, why);
    if (!l->receiving) {
        rc = take_header(t, m, why);
        if (rc)
            return rc;
    }
    if (l->streams > 1)
        return receive_all(t, m, why);
    rc = rr_stream_take(l->stream, &m->done, &system);
    if (rc)
        return rc < 0 ? lost(t, m->peer, system, why) : rc;
    l->receiving = NULL;
    return 0;
}

/* ---- looking after peers ---- */

/* Is a peer's kernel silent? Keepalive finds it on an idle link, but does not run while data waits to be
 * acknowledged; a peer that lives and does not read still acknowledges our window probes. */
static bool is_silent(const struct tcp *t, int peer)
{
    const struct link *l = &t->link[peer];

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
        if (l->state == LINK_UP && !l->hunt_until_ns && (!l->stream->left || send_errno(l))) {
            int rc = send_errno(l) ? last_words(t, peer, ask, &seen) : next_header(t, peer, &f, &seen);
            if (rc < 0 && l->state == LINK_UP) {
                *why = seen;
                return rc;
            }
        }
        if (l->state == LINK_DEAD || has_left(l))
            gone[peer] |= RR_GONE_LINK;
    }
    return 0;
}

static int tcp_explain(struct rr_transport *base, int peer, ringred_error *why)
{
    struct tcp *t = self(base);

    return t->link[peer].stream ? lost(t, peer, t->link[peer].system, why) : 0;
}

static int tcp_watch(struct rr_transport *base, int epoll, ringred_error *why)
{
    struct tcp *t = self(base);

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
static void keep_rest(struct link *l)
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
        for (int i = 0; i < l->streams; i++)
            l->stream[i].spilled = 0; /* the buffer that a receive was posted with may go away, too */
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
static int drain(struct link *l, int64_t deadline_ns)
{
    bool half_closed = false;

    for (;;) {
        bool drained = l->state == LINK_DEAD || flush_tail(l) < 0;
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

static void free_links(struct tcp *t)
{
    for (int peer = 0; peer < t->ranks; peer++) {
        struct link *l = &t->link[peer];
        for (int i = 0; i < l->streams; i++)
            rr_fd_close(l->stream[i].fd);
        rr_free(l->stream);
        rr_free(l->rest);
    }
    rr_free(t->link);
    rr_free(t);
}

static int tcp_close(struct rr_transport *base, uint64_t last, int64_t deadline_ns)
{
    struct tcp *t = self(base);
    struct rr_frame bye = { .kind = RR_FRAME_BYE, .ask.sequence = last };
    int rc = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        if (t->link[peer].sending)
            keep_rest(&t->link[peer]); /* an operation was in flight: its frame goes first */
        if (t->link[peer].stream)
            queue_control(t, peer, &bye, "");
    }
    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].stream && drain(&t->link[peer], deadline_ns) < 0)
            rc = RINGRED_EPEER;
    free_links(t);
    return rc;
}

static void tcp_describe(const struct rr_transport *base, struct rr_text *text)
{
    const struct tcp *t = (const struct tcp *)base;
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
    rr_text_add(text, "]}");
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

static int open_link(struct tcp *t, struct link *l, const int *fd, int streams)
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
    struct tcp *t = rr_alloc(1, sizeof *t);
    struct link *link = rr_alloc((size_t)ranks, sizeof *link);
    int rc = t && link ? 0 : RINGRED_ENOMEM, peer = 0;

    if (rc == 0)
        *t = (struct tcp){ .base = { &tcp_ops }, .ranks = ranks, .me = me, .log = log, .link = link,
                           .congestion = *congestion,
                           .peer_timeout_ns = rr_setting(settings, RR_SET_PEER_TIMEOUT) };
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
