/* SPDX-License-Identifier: Apache-2.0 */
/* Sending over a link: one message at a time, cut into stripes where there are several streams; control
 * frames between them. */
#include "transport/link.h"

#include <errno.h>
#include <string.h>

int rr_link_lost(struct rr_links *t, int peer, int system, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];

    if (system == EBADMSG) /* the way to it is whole, and tells it */
        return rr_fail(why, RINGRED_EAUTH, peer, 0, "what came on the link from rank %d did not decrypt: it was changed, "
                       "repeated or left out on the way (tcp_encryption)", peer);
    if (l->state == LINK_LEFT)
        return rr_fail(why, RINGRED_EPEER, peer, 0, "rank %d left the communicator after operation %llu",
                       peer, (unsigned long long)l->left_after);
    l->state = LINK_DEAD;
    l->system = system;
    return rr_fail(why, RINGRED_EPEER, peer, system, "rank %d is gone: its connection %s", peer,
                   system ? "failed" : "was closed without a goodbye");
}

int rr_link_flush_tail(struct rr_link *l)
{
    struct rr_stream *s = l->stream;
    int rc = rr_stream_write(s, l->rest, l->rest_bytes, &l->rest_sent);

    if (rc == 0)
        rc = rr_stream_write(s, l->tail, l->tail_bytes, &l->tail_sent);
    if (rc == 0)
        l->tail_bytes = l->tail_sent = 0;
    return rc;
}

void rr_link_queue(struct rr_links *t, int peer, const struct rr_frame *f, const void *payload)
{
    struct rr_link *l = &t->link[peer];

    if (l->state != LINK_UP || l->tail_bytes + RR_FRAME_BYTES + f->length > RR_LINK_TAIL)
        return;
    rr_frame_write(f, l->tail + l->tail_bytes);
    memcpy(l->tail + l->tail_bytes + RR_FRAME_BYTES, payload, f->length);
    l->tail_bytes += RR_FRAME_BYTES + f->length;
    if (!l->sending)
        (void)rr_link_flush_tail(l); /* a lost peer is found when it is needed */
}

/* Of the first stream that takes no more; 0: all do. */
int rr_link_send_errno(const struct rr_link *l)
{
    int system = 0;

    for (int i = 0; i < l->streams && !system; i++)
        system = l->stream[i].send_errno;
    return system;
}

/* How long the first frame of a message is, which both ends know: a stripe for each stream, or more where they
 * would be large. The others are as long as the sender likes. */
size_t rr_link_first(const struct rr_link *l, const struct rr_move *m)
{
    size_t length = m->length;
    size_t each = rr_round_up(length / (size_t)l->streams, RR_STRIPE_GRAIN);

    if (l->streams == 1 || length <= RR_STRIPE_LEAST || (m->slot == RR_TALK_SLOT && length <= RR_EAGER))
        return length;
    return each < RR_STRIPE_LEAST ? RR_STRIPE_LEAST : each > RR_STRIPE_MOST ? RR_STRIPE_MOST : each;
}

/* The next part of the message under way, to a stream that is idle. */
static void give(struct rr_link *l, struct rr_stream *s, size_t part)
{
    const struct rr_move *m = l->sending;
    struct rr_frame f = { .kind = l->given ? RR_FRAME_STRIPE : m->offers ? RR_FRAME_OFFER : RR_FRAME_DATA,
                          .length = (uint32_t)part,
                          .slot = m->slot,
                          .segment = m->segment,
                          .ask = *m->ask };

    if (m->channel)
        f.channel = rr_way_of(m)->name;
    if (rr_ask_is_by_pairs(m->ask))
        f.ask.count = m->elements;
    if (l->given)
        f.ask.root = (int32_t)l->given;
    rr_stream_frame(s, &f, rr_spot_behind(rr_move_spot(m), l->given));
    l->given += part;
}

/* Each stream goes on with what it has, and takes more when it is through. */
static int send_stripes(struct rr_link *l)
{
    size_t length = l->sending->length;
    bool busy = false;

    if (l->streams > 1 && l->given < length)
        rr_share_level(l);
    for (int i = 0; i < l->streams; i++) {
        struct rr_stream *s = &l->stream[i];
        for (int rc = 0; rc == 0;) {
            size_t part = s->busy || l->given == length ? 0 : rr_share_part(l, s);
            if (part) {
                give(l, s, part);
                s->waiting += part;
            }
            if (!s->busy)
                break;
            rc = rr_stream_push(s);
            if (rc < 0)
                return rc;
            if (l->streams > 1 && rc == 0)
                break; /* the others' turn */
        }
        busy = busy || s->busy;
    }
    return busy || l->given < length ? RINGRED_PENDING : 0;
}

int rr_link_begin_send(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    int rc = l->tail_bytes || l->stream->send_errno ? rr_link_flush_tail(l) : 0;

    if (RR_UNLIKELY(rc))
        return rc < 0 ? rr_link_last_words(t, m->peer, why) : rc;
    l->sending = m;
    l->given = 0;
    give(l, l->stream, rr_link_first(l, m));
    return 0;
}

int rr_link_go_on(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    int rc;

    do { /* with several streams a turn gives each a stripe */
        size_t given = l->given;
        rc = send_stripes(l);
        if (rc == RINGRED_PENDING && l->given == given)
            break;
    } while (rc == RINGRED_PENDING);
    if (rc < 0)
        return rr_link_last_words(t, m->peer, why);
    if (rc)
        return rc;
    m->done = m->length;
    atomic_store_explicit(&l->payload, atomic_load_explicit(&l->payload, memory_order_relaxed) + m->length,
                          memory_order_relaxed);
    l->sending = NULL;
    if (RR_UNLIKELY(l->leaves))
        rr_channel_say_left(t, m->peer);
    if (l->streams > 1 && m->length > RR_STRIPE_LEAST)
        rr_share_sent(l, m->length);
    return 0;
}

int rr_link_send(struct rr_transport *base, struct rr_move *m, ringred_error *why)
{
    struct rr_links *t = rr_links_of(base);
    struct rr_link *l = &t->link[m->peer];

    if (RR_UNLIKELY(l->state != LINK_UP))
        return rr_link_lost(t, m->peer, l->system, why);
    if (RR_UNLIKELY(l->out_shared || m->channel || m->slot == RR_TALK_SLOT))
        return rr_mux_send(t, m, why);
    if (!l->sending) {
        int rc = rr_link_begin_send(t, m, why);
        if (rc)
            return rc;
    }
    return rr_link_go_on(t, m, why);
}
