/* SPDX-License-Identifier: Apache-2.0 */
/* Links over the lanes of a transport, which are proved: opening and closing them, looking after peers, telling them. Sending is in link_send.c, receiving in link_recv.c; frames are described in docs/WIRE.md.
 * Always holds: messages of one direction are sent and received one at a time, in order; a control frame is
 * sent only between data frames; a peer that ends its stream is found when it is needed, not before.
 *
 * A link has one stream, or several where one connection is given less than the wire has. Everything but
 * stripes travels on the first. A large message is cut into stripes; whichever stream has room takes the
 * next one, so a slow stream gets less. */
#include "transport/link.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#define DRAIN_TURNS 64
#define TELL_NS 100000000
#define SILENCE_NS 500000000 /* between two looks for silent peers */

/* ---- looking after peers ---- */

/* Where packets are lost one way only, the peer hears us and would take us for alive. */
static void give_up(struct rr_links *t, int peer)
{
    struct rr_link *l = &t->link[peer];

    l->state = LINK_DEAD;
    l->system = ETIMEDOUT;
    for (int i = 0; i < l->streams; i++)
        t->by->reset(t->self, peer, i);
}

static void check_silence(struct rr_links *t)
{
    int64_t now = rr_now_ns();

    if (now < t->silence_ns)
        return;
    t->silence_ns = now + SILENCE_NS;
    for (int peer = 0; peer < t->ranks && t->by->silence && t->peer_timeout_ns >= 0; peer++)
        if (t->link[peer].state == LINK_UP && t->by->silence(t->self, peer) > t->peer_timeout_ns)
            give_up(t, peer);
}

/* Takes control frames from a peer that nobody is receiving from; its data stay where they are. */
static int check_alone(struct rr_links *t, int peer, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    struct rr_frame f;

    if (l->hunt_until_ns || (l->stream->left && !rr_link_send_errno(l)))
        return 0;
    return rr_link_send_errno(l) ? rr_link_last_words(t, peer, why) : rr_link_next_header(t, peer, &f, why);
}

static int links_check(struct rr_transport *base, uint8_t *gone, ringred_error *why)
{
    struct rr_links *t = rr_links_of(base);

    check_silence(t);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct rr_link *l = &t->link[peer];
        ringred_error seen;
        if (l->state == LINK_UP && !l->sending)
            (void)rr_link_flush_tail(l);
        if (l->state == LINK_UP && l->leaves)
            rr_channel_say_left(t, peer);
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

static int links_explain(struct rr_transport *base, int peer, ringred_error *why)
{
    struct rr_links *t = rr_links_of(base);

    return t->link[peer].stream ? rr_link_lost(t, peer, t->link[peer].system, why) : 0;
}

static int links_watch(struct rr_transport *base, int epoll, ringred_error *why)
{
    const struct rr_links *t = rr_links_of(base);

    return t->by->watch(t->self, epoll, why);
}

static int links_arm(struct rr_transport *base)
{
    const struct rr_links *t = rr_links_of(base);

    return t->by->arm ? t->by->arm(t->self) : 0;
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
        s->by->reset(s->self, s->peer, s->rail);
        return;
    }
    memcpy(l->rest, s->head + skip, RR_FRAME_BYTES - skip);
    rr_spot_get(rr_spot_behind(s->out, at), l->rest + RR_FRAME_BYTES - skip, s->out_bytes - at);
    l->rest_bytes = RR_FRAME_BYTES - skip + s->out_bytes - at;
}

/* But where a message is under way: what is said goes behind it. */
static bool flush_all(struct rr_links *t)
{
    bool all = true;

    for (int peer = 0; peer < t->ranks; peer++)
        if (t->link[peer].state == LINK_UP && !t->link[peer].sending)
            all = rr_link_flush_tail(&t->link[peer]) != RINGRED_PENDING && all;
    return all;
}

static void links_flush(struct rr_transport *base)
{
    (void)flush_all(rr_links_of(base)); /* what is left goes with the next call, or with close */
}

static void links_tell(struct rr_transport *base, const ringred_error *why)
{
    struct rr_links *t = rr_links_of(base);
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

static void links_begin(struct rr_transport *base, struct rr_channel *channel, const struct rr_ask *ask)
{
    rr_channel_remember(channel ? channel : rr_links_of(base)->first, ask);
}

static void links_probe(struct rr_transport *base, struct rr_channel *channel, const struct rr_ask *ask)
{
    struct rr_links *t = rr_links_of(base);
    const struct rr_channel *c = channel ? channel : t->first;

    for (int way = 0; way < c->ranks; way++) {
        const struct rr_frame f = { .kind = RR_FRAME_ASK, .channel = c->way[way].name, .ask = *ask };
        int peer = c->member ? c->member[way] : way;
        if (!t->link[peer].tail_bytes) /* else one waits already, and room is left for a last word */
            rr_link_queue(t, peer, &f, "");
    }
}

/* ---- opening and closing ---- */

/* 0, or EPEER: not everything went out in time, EINTERRUPTED. */
static int drain(struct rr_link *l, int64_t deadline_ns, const struct rr_interrupt *interrupt)
{
    int64_t asked = rr_now_ns();
    bool half_closed = false;
    int turns = 0;

    for (;;) {
        bool drained = l->state == LINK_DEAD || rr_link_flush_tail(l) < 0;
        bool flushed = drained || !l->tail_bytes;
        for (int i = 0; i < l->streams && flushed && !half_closed; i++)
            l->stream[i].by->finish(l->stream[i].self, l->stream[i].peer, i);
        half_closed = flushed;
        bool all = flushed;
        for (int i = 0; i < l->streams && !drained; i++)
            all = rr_stream_drained(&l->stream[i]) && all;
        if (drained || all)
            return 0;
        int64_t now = rr_now_ns();
        if (now >= deadline_ns)
            return RINGRED_EPEER;
        if (interrupt && now >= asked + RR_INTERRUPT_NS / 2) {
            asked = now;
            if (rr_is_interrupted(interrupt))
                return RINGRED_EINTERRUPTED;
        }
        if (turns++ < DRAIN_TURNS)
            (void)sched_yield();
        else
            (void)poll(NULL, 0, 1); /* acknowledgements raise no event: look again each ms */
    }
}

static void free_links(struct rr_links *t, int64_t deadline_ns)
{
    t->by->close(t->self, deadline_ns);
    for (int peer = 0; peer < t->ranks; peer++) {
        struct rr_link *l = &t->link[peer];
        for (int i = 0; i < l->streams; i++)
            rr_free(l->stream[i].kept);
        rr_free(l->stream);
        rr_free(l->rest);
    }
    rr_channels_free(t);
    rr_free(t->host);
    rr_free(t->link);
    rr_free(t);
}

static int links_close(struct rr_transport *base, uint64_t last, int64_t deadline_ns)
{
    struct rr_links *t = rr_links_of(base);
    struct rr_frame bye = { .kind = RR_FRAME_BYE, .ask.sequence = last };
    int rc = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        if (t->link[peer].sending)
            keep_rest(&t->link[peer]); /* an operation was in flight: its frame goes first */
        if (t->link[peer].leaves)
            rr_channel_say_left(t, peer);
        if (t->link[peer].stream)
            rr_link_queue(t, peer, &bye, "");
    }
    for (int peer = 0; peer < t->ranks; peer++) {
        int undrained = t->link[peer].stream ? drain(&t->link[peer], deadline_ns, base->interrupt) : 0;
        if (undrained == RINGRED_EINTERRUPTED)
            deadline_ns = 0; /* the others get what goes at once */
        rc = rc ? rc : undrained;
    }
    free_links(t, deadline_ns);
    return rc;
}

static bool links_silent(struct rr_transport *base, int peer)
{
    const struct rr_links *t = rr_links_of(base);
    const struct rr_link *l = &t->link[peer];

    if (!l->streams || t->peer_timeout_ns < 0)
        return false;
    return l->state == LINK_DEAD ? l->system == ETIMEDOUT
                                 : t->by->silence && t->by->silence(t->self, peer) > t->peer_timeout_ns;
}

static void links_describe(const struct rr_transport *base, struct rr_text *text)
{
    const struct rr_links *t = (const struct rr_links *)base;
    int links = 0, streams = 0;

    for (int peer = 0; peer < t->ranks; peer++) {
        links += t->link[peer].streams > 0;
        streams = t->link[peer].streams > streams ? t->link[peer].streams : streams;
    }
    rr_text_add(text, "{\"name\":\"%s\",\"links\":%d,\"streams\":%d,\"congestion\":{\"inside\":", t->by->name, links,
                streams);
    rr_text_add_json(text, t->congestion.inside);
    rr_text_add(text, ",\"outside\":");
    rr_text_add_json(text, t->congestion.outside);
    rr_text_add(text, "},\"encrypted\":{\"aes256gcm\":%d,\"chacha20poly1305\":%d},\"sent\":[",
                t->ciphers[RR_CIPHER_AES256GCM], t->ciphers[RR_CIPHER_CHACHA20]);
    for (int peer = 0; peer < t->ranks; peer++)
        rr_text_add(text, "%s%llu", peer ? "," : "",
                    (unsigned long long)atomic_load_explicit(&t->link[peer].payload, memory_order_relaxed));
    rr_text_add(text, "],\"kept\":%zu}", atomic_load_explicit(&t->kept_most, memory_order_relaxed));
}

static const struct rr_transport_ops links_ops = {
    .struct_size = sizeof links_ops,
    .name = "tcp",
    .ordered = true,
    .send = rr_link_send,
    .recv = rr_link_recv,
    .check = links_check,
    .begin = links_begin,
    .watch = links_watch,
    .arm = links_arm,
    .tell = links_tell,
    .flush = links_flush,
    .probe = links_probe,
    .close = links_close,
    .explain = links_explain,
    .describe = links_describe,
    .silent = links_silent,
};

static int open_link(struct rr_links *t, int peer, int streams)
{
    struct rr_link *l = &t->link[peer];

    if (!streams)
        return 0;
    l->stream = rr_alloc((size_t)streams, sizeof *l->stream);
    if (!l->stream)
        return RINGRED_ENOMEM;
    l->streams = streams;
    l->state = LINK_UP;
    rr_share_begin(l);
    for (int i = 0; i < streams; i++) {
        struct rr_stream *s = &l->stream[i];
        *s = (struct rr_stream){ .by = t->by, .self = t->self, .peer = peer, .rail = i, .fd = -1, .weight = s->weight };
    }
    return 0;
}

int rr_links_open(const struct rr_lanes *from, const struct rr_settings *settings, const struct rr_log *log,
                  struct rr_links **links, ringred_error *why)
{
    struct rr_links *t = rr_alloc(1, sizeof *t);
    struct rr_link *link = rr_alloc((size_t)from->ranks, sizeof *link);
    int rc = t && link ? 0 : RINGRED_ENOMEM;

    if (rc == 0)
        *t = (struct rr_links){ .base = { .ops = &links_ops, .core = &t->base }, .ranks = from->ranks, .me = from->me, .log = log,
                              .link = link, .by = from->by, .self = from->self ? from->self : t,
                              .peer_timeout_ns = rr_setting(settings, RR_SET_PEER_TIMEOUT) };
    if (rc == 0)
        rc = rr_channel_new(&t->base, from->ranks, NULL, &t->first, why);
    for (int peer = 0; peer < from->ranks && rc == 0; peer++)
        rc = open_link(t, peer, from->streams[peer]);
    if (rc == 0) {
        *links = t;
        return 0;
    }
    for (int peer = 0; peer < from->ranks && link; peer++)
        rr_free(link[peer].stream);
    if (t && link)
        rr_channels_free(t);
    rr_free(link);
    rr_free(t);
    return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d links", from->ranks);
}
