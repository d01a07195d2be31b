/* SPDX-License-Identifier: Apache-2.0 */
/* Several channels on one link. Messages of different channels meet in any order, so whatever comes must find a
 * place at once, or those behind it could not pass and two communicators could wait for each other for ever:
 *  - a message of up to RR_EAGER bytes goes when it is ready. If it is not wanted yet, it is kept; a sender has
 *    credit for RR_CREDIT bytes of them on each channel, and gets it back as they are taken;
 *  - a larger one goes when the receiver has said that it wants it. Wants are counted: both ends know the order of
 *    the messages between them on one channel.
 * A direction of a link is so from the first message of another channel than the first one on; the sender says
 * SHARE before it. What it sent earlier, in plan order and unasked, is kept too where somebody waits for what is
 * behind it: at most what the sockets had room for, once. */
#include "transport/link.h"

#include <string.h>

/* A small message, however small, takes its share of the credit: so few are under way that the peer still knows
 * what it asked for in the operation that any of them belongs to. */
#define LEAST (RR_CREDIT / RR_LINK_ASKED)
#define TINY 4096 /* room of the smaller spare ones */

uint32_t rr_mux_cost(size_t bytes)
{
    return bytes < LEAST ? LEAST : (uint32_t)bytes;
}

static bool is_small(size_t bytes)
{
    return bytes <= RR_EAGER;
}

static struct rr_way *way_to(const struct rr_links *t, const struct rr_move *m)
{
    return &rr_channel_of(t, m)->way[m->way];
}

/* ---- sending ---- */

static bool is_talk(const struct rr_move *m)
{
    return m->slot == RR_TALK_SLOT;
}

bool rr_mux_has_credit(const struct rr_credit *of, size_t bytes)
{
    return is_small(bytes) && of->sent - of->sent_taken + rr_mux_cost(bytes) <= RR_CREDIT;
}

static bool may_send(const struct rr_way *w, const struct rr_move *m)
{
    if (m->granted || m->offers)
        return true;
    if (is_small(m->length))
        return rr_mux_has_credit(&w->small[is_talk(m)], m->length);
    return (int32_t)(w->large_asked - w->large_sent) > 0;
}

int rr_mux_send(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    struct rr_way *w = way_to(t, m);

    if (l->sending && l->sending != m)
        return RINGRED_PENDING;
    if (!l->out_shared) {
        const struct rr_frame share = { .kind = RR_FRAME_SHARE };
        if (!rr_channel_tell(t, m->peer, &share))
            return RINGRED_PENDING;
        l->out_shared = true;
    }
    if (!l->sending) {
        if (!may_send(w, m)) {
            RR_TRY(rr_mux_pump(t, m->peer, why));
            if (!may_send(w, m))
                return RINGRED_PENDING;
        }
        int rc = rr_link_begin_send(t, m, why);
        if (rc)
            return rc;
        if (is_small(m->length) && !m->granted && !m->offers)
            w->small[is_talk(m)].sent += rr_mux_cost(m->length);
        else if (!is_talk(m))
            w->large_sent++;
    }
    int rc = rr_link_go_on(t, m, why);
    if (rc == 0 && l->tail_bytes)
        (void)rr_link_flush_tail(l); /* wants and credit that came up meanwhile; a lost peer is found when needed */
    return rc;
}

/* ---- receiving ---- */

bool rr_mux_owes(const struct rr_link *l, const struct rr_channel *c, int way)
{
    if (c ? c->way[way].arrived : l->arrived)
        return true;
    for (const struct rr_kept *k = l->kept; k; k = k->next)
        if (!c || k->head.channel == c->name)
            return true;
    for (const struct rr_move *m = l->posted; m; m = m->next) /* stripes come behind a word on stream 0 */
        if (m->begun && l->state != LINK_DEAD && (!c || (m->channel ? m->channel == c : c->name == 0)))
            return true;
    return false;
}

static bool is_of(const struct rr_links *t, const struct rr_move *m, const struct rr_frame *f)
{
    return rr_channel_of(t, m)->name == f->channel && (uint32_t)m->ask->sequence == (uint32_t)f->ask.sequence &&
           m->slot == f->slot && m->segment == f->segment;
}

static struct rr_move *wanted(const struct rr_links *t, const struct rr_link *l, const struct rr_frame *f)
{
    struct rr_move *m = l->posted;

    while (m && !is_of(t, m, f))
        m = m->next;
    return m;
}

static void post(struct rr_link *l, struct rr_move *m)
{
    m->posted = true;
    m->next = l->posted;
    l->posted = m;
    l->hoping = NULL;
}

static void take_off(struct rr_link *l, struct rr_move *m)
{
    struct rr_move **at = &l->posted;

    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    m->posted = false;
}

static void took(struct rr_links *t, struct rr_move *m)
{
    if (m->charged && is_small(m->length)) {
        way_to(t, m)->small[0].taken += rr_mux_cost(m->length);
        rr_channel_say(t, rr_channel_of(t, m), m->way);
    }
}

/* Asks for a message that comes only if it is wanted. */
static void want(struct rr_links *t, struct rr_move *m)
{
    if (!m->counted && !m->begun && !is_small(m->length) && !is_talk(m))
        way_to(t, m)->wanted++;
    m->counted = true;
    rr_channel_say(t, rr_channel_of(t, m), m->way);
}

/* Has the first frame of a message been set aside? */
static bool is_kept(const struct rr_links *t, const struct rr_link *l, const struct rr_move *m)
{
    const struct rr_kept *k = l->kept;

    while (k && !(is_of(t, m, &k->head) && k->head.kind == RR_FRAME_DATA))
        k = k->next;
    return k != NULL;
}

/* What came before that word was sent unasked, and does not count as wanted. */
void rr_mux_shared(struct rr_links *t, int peer)
{
    struct rr_link *l = &t->link[peer];

    l->in_shared = l->muxed = true;
    for (struct rr_move *m = l->posted; m; m = m->next) /* there is one on the first channel at most */
        if (is_kept(t, l, m))
            m->counted = true;
        else if (!m->counted)
            want(t, m);
}

static int class_of(size_t room)
{
    return !room ? 0 : room <= TINY ? 1 : 2;
}

void rr_kept_free(struct rr_links *t, struct rr_kept *k)
{
    t->kept_now -= k->head.length;
    if (k->held)
        *k->held -= k->cost;
    if (k->room > RR_EAGER) {
        rr_free(k);
        return;
    }
    k->next = t->spare[class_of(k->room)];
    t->spare[class_of(k->room)] = k;
}

/* What a peer may have lying here is bounded; one that goes on is none of ours. */
static uint32_t *held_to(struct rr_way *w, const struct rr_frame *f, uint32_t *cost, uint32_t *most)
{
    *most = RR_CREDIT;
    *cost = rr_mux_cost(f->length);
    if (f->kind != RR_FRAME_OFFER)
        return &w->small[f->slot == RR_TALK_SLOT].held;
    *most = RR_OFFERS;
    *cost = 1;
    return &w->offers;
}

/* Room for a frame that nobody wants yet. */
static int keep(struct rr_links *t, int peer, int i, const struct rr_frame *f, ringred_error *why)
{
    struct rr_way *w = rr_channel_way(rr_channel_find(t, f->channel), peer);
    uint32_t cost = 0, most = 0, *held = NULL;

    if (t->link[peer].in_shared && f->kind != RR_FRAME_STRIPE)
        held = w ? held_to(w, f, &cost, &most) : &cost;
    if (held && (!w || !is_small(f->length) || *held + cost > most))
        return rr_fail(why, RINGRED_EWIRE, peer, 0, "rank %d sent %u bytes that nobody had asked for and it had no "
                       "credit for", peer, f->length);

    struct rr_stream *s = &t->link[peer].stream[i];
    size_t room = !f->length ? 0 : f->length <= TINY ? TINY : f->length <= RR_EAGER ? RR_EAGER : f->length;
    struct rr_kept **spare = room <= RR_EAGER ? &t->spare[class_of(room)] : NULL;
    struct rr_kept *k = spare && *spare ? *spare : rr_alloc(1, sizeof *k + room);

    if (!k)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to keep %u bytes of rank %d that came early", f->length,
                       peer);
    if (spare && k == *spare)
        *spare = k->next;
    k->next = NULL;
    k->head = *f;
    k->room = room;
    k->charged = t->link[peer].in_shared;
    k->held = held;
    k->cost = cost;
    if (held)
        *held += cost;
    k->stamp = ++t->stamps;
    s->kept = k;
    s->in = (struct rr_spot){ .at = (char *)k->bytes };
    s->left = f->length;
    t->kept_now += f->length;
    if (t->kept_now > atomic_load_explicit(&t->kept_most, memory_order_relaxed))
        atomic_store_explicit(&t->kept_most, t->kept_now, memory_order_relaxed);
    return 0;
}

/* The message is not wanted: of an operation that this rank is not in yet, or of one in which the peer does
 * something else. */
static int not_wanted(struct rr_links *t, int peer, int i, const struct rr_frame *f, ringred_error *why)
{
    const struct rr_channel *c = rr_channel_find(t, f->channel);

    if (!c)
        return rr_fail(why, RINGRED_EWIRE, peer, 0, "rank %d sent a message on channel %u, which there is not", peer,
                       f->channel);
    const struct rr_ask *mine = f->slot == RR_TALK_SLOT ? NULL : rr_channel_recall(c, &f->ask);
    if (mine && f->kind == RR_FRAME_DATA && !(mine->collective & RR_RAGGED))
        RR_TRY(rr_ask_compare(mine, t->me, &f->ask, peer, why));
    t->link[peer].stream[i].lo += RR_FRAME_BYTES;
    return keep(t, peer, i, f, why);
}

/* The frame at the front of a stream, to where it belongs. */
static int route(struct rr_links *t, int peer, int i, struct rr_frame *f, ringred_error *why)
{
    struct rr_stream *s = &t->link[peer].stream[i];
    struct rr_move *m = wanted(t, &t->link[peer], f);
    size_t at = 0;

    /* a stripe whose first frame, on stream 0, has not been looked at closely waits for that */
    if (!m || f->kind == RR_FRAME_OFFER || (f->kind == RR_FRAME_STRIPE && !m->begun))
        return not_wanted(t, peer, i, f, why);
    if (f->kind == RR_FRAME_STRIPE) {
        RR_TRY(rr_link_stripe_at(t, m, f, &at, why));
    } else {
        RR_TRY(rr_link_expect(t, m, f, why));
        m->begun = true;
        m->charged = t->link[peer].in_shared && !is_talk(m);
    }
    s->lo += RR_FRAME_BYTES;
    s->into = m;
    s->in = rr_spot_behind(rr_move_spot(m), at);
    s->left = f->length;
    return 0;
}

/* The payload under way on a stream has come. */
static void arrived(struct rr_links *t, int peer, struct rr_stream *s)
{
    struct rr_link *l = &t->link[peer];
    struct rr_move *m = s->into;

    s->into = NULL;
    if (s->kept) {
        s->kept->next = l->kept;
        l->kept = s->kept;
        s->kept = NULL;
    } else if (m && m->done >= m->length) {
        take_off(l, m);
        took(t, m);
        l->arrived++;
        way_to(t, m)->arrived++;
    }
}

/* The engine has seen that it came. */
static int seen(struct rr_links *t, struct rr_move *m)
{
    t->link[m->peer].arrived--;
    way_to(t, m)->arrived--;
    return 0;
}

static int head_of(struct rr_links *t, int peer, int i, struct rr_frame *f, ringred_error *why)
{
    struct rr_stream *s = &t->link[peer].stream[i];
    int rc = 0;

    if (i == 0)
        return rr_link_front(t, peer, f, why);
    while (rc == 0 && s->hi - s->lo < RR_FRAME_BYTES)
        rc = rr_link_read_ahead(s);
    return rc ? rc : rr_frame_read(s->room + s->lo, peer, f, why);
}

/* Whatever has come on a stream. 0: nothing more for now; ENDED; < 0: failed. */
static int pump_stream(struct rr_links *t, int peer, int i, ringred_error *why)
{
    struct rr_stream *s = &t->link[peer].stream[i];

    for (;;) {
        struct rr_frame f;
        size_t got = 0;
        int rc = 0;
        if (s->into || s->kept) {
            rc = s->ended && rr_stream_is_empty(s) && s->left ? RINGRED_EPEER : rr_stream_take(s, &got, &s->read_errno);
            if (s->into)
                s->into->done += got;
            if (rc == 0)
                arrived(t, peer, s);
        } else {
            rc = head_of(t, peer, i, &f, why);
            if (rc == 0)
                rc = route(t, peer, i, &f, why);
            if (rc < 0)
                return rc;
        }
        if (rc == RINGRED_PENDING)
            return 0;
        if (rc == RR_LINK_ENDED || rc < 0) {
            s->ended = true;
            return rr_link_is_clean_end(&t->link[peer], s) ? RR_LINK_ENDED
                                                            : rr_link_lost(t, peer, s->read_errno, why);
        }
    }
}

int rr_mux_pump(struct rr_links *t, int peer, ringred_error *why)
{
    struct rr_link *l = &t->link[peer];
    bool open = l->receiving != NULL; /* in plan order: its own receive goes on with it */

    l->muxed = true;

    if (l->hoping)
        post(l, l->hoping);
    if (l->tail_bytes && !l->sending && l->state == LINK_UP)
        (void)rr_link_flush_tail(l); /* a lost peer is found when it is needed */
    for (int i = 0; i < l->streams && !l->receiving; i++) {
        int rc = pump_stream(t, peer, i, why);
        if (rc < 0)
            return rc;
        open = open || rc == 0;
    }
    if (!open && l->state == LINK_UP)
        return rr_link_lost(t, peer, l->stream->read_errno, why);
    return 0;
}

/* A frame of the message that was kept. The first must come before the stripes. */
static struct rr_kept *find_kept(const struct rr_links *t, struct rr_link *l, const struct rr_move *m)
{
    struct rr_kept **at = &l->kept, *k;

    while (*at && (!is_of(t, m, &(*at)->head) || ((*at)->head.kind == RR_FRAME_STRIPE) != m->begun))
        at = &(*at)->next;
    k = *at;
    if (k)
        *at = k->next;
    return k;
}

static int take_kept(struct rr_links *t, struct rr_move *m, struct rr_kept *k, ringred_error *why)
{
    size_t at = 0;
    int rc = m->begun ? rr_link_stripe_at(t, m, &k->head, &at, why) : rr_link_expect(t, m, &k->head, why);

    if (rc == 0 && k->head.length)
        rr_spot_put(rr_spot_behind(rr_move_spot(m), at), k->bytes, k->head.length);
    if (rc == 0) {
        m->charged = m->begun ? m->charged : k->charged;
        m->begun = true;
        m->done += k->head.length;
    }
    rr_kept_free(t, k);
    return rc;
}

/* What was kept of it. 0: all of it. */
static int take_all_kept(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];
    struct rr_kept *k;

    while ((!m->begun || m->done < m->length) && l->kept && (k = find_kept(t, l, m)) != NULL)
        RR_TRY(take_kept(t, m, k, why));
    if (!m->begun || m->done < m->length)
        return RINGRED_PENDING;
    if (m->posted)
        take_off(l, m);
    took(t, m);
    return 0;
}

int rr_mux_recv(struct rr_links *t, struct rr_move *m, ringred_error *why)
{
    struct rr_link *l = &t->link[m->peer];

    if (m->begun && !m->posted && m->done >= m->length)
        return seen(t, m);
    int rc = take_all_kept(t, m, why);
    if (rc != RINGRED_PENDING)
        return rc;
    if (!m->posted)
        post(l, m);
    if (l->in_shared)
        want(t, m);
    if (RR_UNLIKELY(l->state == LINK_DEAD))
        return rr_link_lost(t, m->peer, l->system, why);
    RR_TRY(rr_mux_pump(t, m->peer, why));
    if (m->begun && !m->posted)
        return seen(t, m);
    rc = take_all_kept(t, m, why); /* it may have been under way into what is kept */
    if (rc != RINGRED_PENDING)
        return rc;
    return rr_link_has_left(l) ? rr_link_lost(t, m->peer, l->system, why) : RINGRED_PENDING;
}
