/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving over a link: the message that the plan wants next, from all streams; what peers say in control
 * frames; and what is told when the two ends are not in the same operation. */
#include "transport/link.h"

#define DIRECT 4096 /* payloads above it are read straight to where they belong */
#define HUNT_NS 1000000000

#define ENDED RR_LINK_ENDED

int rr_link_read_ahead(struct rr_stream *s)
{
    int rc = s->ended ? RINGRED_EPEER : rr_stream_fill(s, &s->read_errno);

    s->ended = rc < 0;
    return rc < 0 ? ENDED : rc;
}

static int fill(struct rr_links *t, int peer, ringred_error *why)
{
    struct rr_stream *s = t->link[peer].stream;
    int rc = rr_link_read_ahead(s);

    return rc == ENDED ? rr_link_lost(t, peer, s->read_errno, why) : rc;
}

static int peer_told(struct rr_links *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    const struct rr_stream *s = t->link[peer].stream;
    struct rr_reader r = { s->room + s->lo, s->room + s->lo + f->length, false };

    return rr_frame_read_fault(&r, t->ranks, peer, why);
}

/* Handles the control frame at the front of the room, which has it whole. */
static int control(struct rr_links *t, int peer, const struct rr_frame *f, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    int rc = 0;

    l->stream->lo += RR_FRAME_BYTES;
    if (f->kind == RR_FRAME_FAULT) {
        rc = peer_told(t, peer, f, why);
    } else if (f->kind == RR_FRAME_BYE) {
        l->state = LINK_LEFT;
        l->left_after = f->ask.sequence;
    } else if (f->kind == RR_FRAME_ASK) {
        struct rr_channel *c = rr_channel_find(t, f->channel);
        const struct rr_ask *mine = c ? rr_channel_recall(c, &f->ask) : NULL;
        if (c)
            rr_channel_asks(c, peer, f->ask.sequence);
        rc = mine ? rr_ask_compare(mine, t->me, &f->ask, peer, why) : 0;
    } else if (f->kind == RR_FRAME_SHARE) {
        rr_mux_shared(t, peer);
    } else {
        rr_channel_told(t, peer, f);
    }
    l->stream->lo += f->length;
    return rc;
}

/* Takes control frames off the front of the first stream; 0 when a data header is there, read but not
 * taken. ENDED, PENDING. */
int rr_link_front(struct rr_links *t, int peer, struct rr_frame *f, ringred_error *why)
{
    struct rr_stream *s = t->link[peer].stream;

    for (;;) {
        size_t have = s->hi - s->lo;
        if (have >= RR_FRAME_BYTES) {
            RR_TRY(rr_frame_read(s->room + s->lo, peer, f, why));
            if (f->kind == RR_FRAME_DATA || f->kind == RR_FRAME_STRIPE || f->kind == RR_FRAME_OFFER)
                return 0;
            if (have >= RR_FRAME_BYTES + f->length) {
                RR_TRY(control(t, peer, f, why));
                continue;
            }
        }
        int rc = rr_link_read_ahead(s);
        if (rc)
            return rc;
    }
}

int rr_link_next_header(struct rr_links *t, int peer, struct rr_frame *f, ringred_error *why)
{
    int rc = rr_link_front(t, peer, f, why);

    return rc == ENDED ? rr_link_lost(t, peer, t->link[peer].stream->read_errno, why) : rc;
}

/* A peer takes no more. What it said before it went says more than the errno: everything that has come
 * is read for it. Data only tell whether the peer was in the same operation. */
int rr_link_last_words(struct rr_links *t, int peer, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    struct rr_frame f;

    if (!l->hunt_until_ns)
        l->drop = l->stream->left; /* of the frame under way */
    l->receiving = l->hoping = l->posted = l->stream->into = NULL;
    for (;;) {
        rr_stream_skip(l->stream, &l->drop);
        int rc = l->drop ? fill(t, peer, why) : rr_link_next_header(t, peer, &f, why);
        if (rc < 0 && l->state == LINK_UP)
            return rc; /* its word, or a broken stream */
        if (rc)
            return rr_link_lost(t, peer, rr_link_send_errno(l), why);
        if (!l->drop) {
            const struct rr_channel *c = rr_channel_find(t, f.channel);
            const struct rr_ask *mine = c && f.kind == RR_FRAME_DATA ? rr_channel_recall(c, &f.ask) : NULL;
            if (mine && !(mine->collective & RR_RAGGED))
                RR_TRY(rr_ask_compare(mine, t->me, &f.ask, peer, why));
            l->stream->lo += RR_FRAME_BYTES;
            l->drop = f.length;
        }
    }
}

/* Drops data until the peer has said what it thinks is wrong, or has had time enough to. */
static int hunt(struct rr_links *t, int peer, const struct rr_ask *mine, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    struct rr_frame f;

    for (;;) {
        rr_stream_skip(l->stream, &l->drop);
        int rc = l->drop ? fill(t, peer, why) : rr_link_next_header(t, peer, &f, why);
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
static int out_of_step(struct rr_links *t, const struct rr_move *m, const struct rr_frame *f,
                       ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    const struct rr_ask *before = rr_channel_recall(t->first, &f->ask);
    const struct rr_frame ask = { .kind = RR_FRAME_ASK, .ask = *m->ask };

    if (before && (uint32_t)before->sequence != (uint32_t)m->ask->sequence)
        RR_TRY(rr_ask_compare(before, t->me, &f->ask, m->peer, why));
    l->strange = f->ask;
    l->hunt_until_ns = rr_now_ns() + HUNT_NS;
    l->drop = f->length;
    rr_link_queue(t, m->peer, &ask, "");
    return hunt(t, m->peer, m->ask, why);
}

/* Is the data frame the one that the plan wants next? */
int rr_link_expect(struct rr_links *t, const struct rr_move *m, struct rr_frame *f, ringred_error *why)
{
    const struct rr_link *l = &t->link[m->peer];
    uint64_t theirs = f->ask.count;

    if (rr_ask_is_by_pairs(m->ask) && f->ask.collective == m->ask->collective)
        f->ask.count = 0;
    RR_TRY(rr_ask_compare(m->ask, t->me, &f->ask, m->peer, why));
    if (rr_ask_is_by_pairs(m->ask) && theirs != m->elements)
        return rr_ask_parts(m->ask, t->me, m->elements, m->peer, theirs, why);
    size_t first = rr_link_first(l, m);
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

static int take_header(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    struct rr_stream *s = l->stream;
    struct rr_frame f;
    int rc = 0, system = 0;

    if (m->length > DIRECT && !m->pieces && rr_stream_is_empty(s)) {
        rc = rr_stream_read_both(s, m->bytes, rr_link_first(l, m), &system);
        if (rc)
            return rc < 0 ? rr_link_lost(t, m->peer, system, why) : rc;
    }
    rc = rr_link_next_header(t, m->peer, &f, why);
    if (RR_UNLIKELY(l->muxed) && rc >= 0)
        return rr_mux_recv(t, m, why); /* the peer has said so just now */
    if (rc)
        return rc;
    s->lo += RR_FRAME_BYTES;
    if (!is_in_step(m, &f))
        return out_of_step(t, m, &f, why);
    RR_TRY(rr_link_expect(t, m, &f, why));
    l->receiving = m;
    s->in = rr_move_spot(m);
    s->left = f.length;
    return 0;
}

/* Never more of them than the message has room for: when all of it has come, no stream brings any more. */
int rr_link_stripe_at(struct rr_links *t, struct rr_move *m, const struct rr_frame *f, size_t *at, ringred_error *why)
{
    size_t first = rr_link_first(&t->link[m->peer], m);

    *at = (uint32_t)f->ask.root;
    if (*at < first || *at > m->length || f->length > m->length - *at || f->length > m->length - first - m->striped)
        return rr_fail(why, RINGRED_EWIRE, m->peer, 0, "rank %d sent a stripe of %u bytes at %zu of %zu, of which %zu had come",
                       m->peer, f->length, *at, m->length, first + m->striped);
    m->striped += f->length;
    return 0;
}

/* The header of a stripe of this message at the front of a stream. PENDING: not there, or another's; ENDED. */
static int take_stripe(struct rr_links *t, struct rr_move *m, int i, ringred_error *why)
{
    struct rr_stream *s = &t->link[m->peer].stream[i];
    struct rr_frame f;
    int rc = 0;

    if (i == 0)
        rc = rr_link_front(t, m->peer, &f, why);
    while (i > 0 && rc == 0 && s->hi - s->lo < RR_FRAME_BYTES)
        rc = rr_link_read_ahead(s);
    if (rc)
        return rc;
    RR_TRY(rr_frame_read(s->room + s->lo, m->peer, &f, why));
    if (f.kind != RR_FRAME_STRIPE || !is_in_step(m, &f) || f.slot != m->slot || f.segment != m->segment)
        return RINGRED_PENDING; /* of a later message; its own header will be looked at closely */
    size_t at;
    RR_TRY(rr_link_stripe_at(t, m, &f, &at, why));
    s->lo += RR_FRAME_BYTES;
    s->in = rr_spot_behind(rr_move_spot(m), at);
    s->left = f.length;
    return 0;
}

/* Between two frames, and not by an error, unless the peer has said goodbye: then a close that finds
 * something unread resets what nobody needs any more. */
bool rr_link_is_clean_end(const struct rr_link *l, const struct rr_stream *s)
{
    return s->left == 0 && s->lo == s->hi && !s->spilled && (!s->read_errno || l->state == LINK_LEFT);
}

/* Whatever has come on a stream of a message that has more than one frame. 0: the message has ended;
 * PENDING; ENDED: nothing more will come on this stream; < 0: failed. */
static int receive_stripes(struct rr_links *t, struct rr_move *m, int i, ringred_error *why)
{
    struct rr_stream *s = &t->link[m->peer].stream[i];

    for (;;) {
        int rc = s->ended ? 0 : rr_stream_take(s, &m->done, &s->read_errno);
        if (rc < 0)
            s->ended = true;
        if (s->ended && !rr_link_is_clean_end(&t->link[m->peer], s))
            return rr_link_lost(t, m->peer, s->read_errno, why);
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
static int receive_all(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    bool open = false;

    for (int i = 0; i < l->streams && m->done < m->length; i++) {
        int rc = receive_stripes(t, m, i, why);
        if (rc < 0)
            return rc;
        open = open || rc != ENDED;
    }
    if (m->done < m->length)
        return open ? RINGRED_PENDING : rr_link_lost(t, m->peer, l->stream->read_errno, why);
    l->receiving = NULL;
    return 0;
}

/* Nothing will come any more of what this rank has not begun to receive. */
bool rr_link_has_left(const struct rr_link *l)
{
    return l->state == LINK_LEFT && rr_stream_is_empty(l->stream) && !l->receiving &&
           !rr_mux_owes(l, NULL, 0);
}

int rr_link_recv(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct rr_links *t = rr_links_of(base);
    struct rr_link *l = &t->link[m->peer];
    int system = 0, rc = 0;

    if (RR_UNLIKELY((l->muxed || m->channel) && l->receiving != m)) /* what is under way in plan order ends first */
        return l->receiving ? RINGRED_PENDING : rr_mux_recv(t, m, why);
    if (RR_UNLIKELY(l->state == LINK_DEAD || rr_link_has_left(l)))
        return rr_link_lost(t, m->peer, l->system, why);
    if (RR_UNLIKELY(l->hunt_until_ns != 0))
        return hunt(t, m->peer, m->ask, why);
    if (!l->receiving) {
        rc = take_header(t, m, why);
        if (rc || !l->receiving) {
            l->hoping = rc == RINGRED_PENDING && !m->posted ? m : NULL;
            return rc;
        }
        l->hoping = NULL;
    }
    if (l->streams > 1)
        return receive_all(t, m, why);
    rc = rr_stream_take(l->stream, &m->done, &system);
    if (rc)
        return rc < 0 ? rr_link_lost(t, m->peer, system, why) : rc;
    l->receiving = NULL;
    return 0;
}
