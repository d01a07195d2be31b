/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from one rank to another, which no plan foresees: a sender's go in order, each with its number; a receiver
 * takes the first that has come with the tag that it wants. Small ones are sent at once, while there is credit of
 * their own, so that messages nobody receives do not stop collectives; of others an offer is, and themselves when the
 * receiver has taken that. Both are kept as messages of plans are that come before they are wanted (mux.c). Offers
 * take no credit: there are as many as requests in flight, so a tag is never stopped by another. */
#include "reduce/reduce.h"
#include "transport/link.h"

#include <string.h>

static struct rr_channel *channel_of(const struct rr_links *t, const struct rr_talk *k)
{
    return rr_channel_of(t, &k->move);
}

static int peer_of(const struct rr_channel *c, int way)
{
    return c->member ? c->member[way] : way;
}

/* ---- sending ---- */

void rr_talk_start_send(struct rr_transport *core, struct rr_talk *k)
{
    struct rr_way *w = &channel_of(rr_links_of(core), k)->way[k->move.way];

    k->ask.sequence = ++w->talked;
    k->move.slot = RR_TALK_SLOT;
    k->move.segment = 0;
    k->move.ask = &k->ask;
    k->state = RR_TALK_NEW;
}

void rr_talk_taken(struct rr_link *l, const struct rr_channel *c, uint64_t number)
{
    for (struct rr_talk *k = l->offered; k; k = k->next)
        if ((k->move.channel ? k->move.channel == c : c->name == 0) && k->ask.sequence == number)
            k->state = RR_TALK_TAKEN;
}

static void take_back(struct rr_link *l, struct rr_talk *k)
{
    struct rr_talk **at = &l->offered;

    while (*at && *at != k)
        at = &(*at)->next;
    if (*at)
        *at = k->next;
}

/* Says that it is there. */
static int offer(struct rr_links *t, struct rr_talk *k, ringred_error *why)
{
    size_t length = k->move.length;

    k->move.length = 0;
    int rc = rr_link_send(&t->base, &k->move, why);
    k->move.length = length;
    if (rc)
        return rc;
    k->move.offers = false;
    k->move.done = 0;
    k->state = RR_TALK_OFFERED;
    k->next = t->link[k->move.peer].offered;
    t->link[k->move.peer].offered = k;
    return 0;
}

int rr_talk_send(struct rr_transport *core, struct rr_talk *k, ringred_error *why)
{
    struct rr_links *t = rr_links_of(core);
    struct rr_link *l = &t->link[k->move.peer];
    struct rr_way *w = &channel_of(t, k)->way[k->move.way];
    int rc = 0;

    if (k->state == RR_TALK_NEW) {
        if (w->talked_gone + 1 != (uint32_t)k->ask.sequence)
            return RINGRED_PENDING;
        if (l->sending != &k->move && !k->move.offers) /* decided once, when it begins */
            k->move.offers = !rr_mux_has_credit(&w->small[1], k->move.length);
        rc = k->move.offers ? offer(t, k, why) : rr_link_send(&t->base, &k->move, why);
        if (rc)
            return rc;
        w->talked_gone++;
        if (k->state == RR_TALK_NEW)
            return 0;
    }
    if (k->state == RR_TALK_OFFERED) {
        RR_TRY(rr_mux_pump(t, k->move.peer, why));
        if (k->state == RR_TALK_OFFERED)
            return l->state == LINK_UP ? RINGRED_PENDING : rr_link_lost(t, k->move.peer, l->system, why);
    }
    if (!k->move.granted)
        take_back(l, k);
    k->move.granted = true;
    return rr_link_send(&t->base, &k->move, why);
}

/* ---- receiving ---- */

static bool is_before(const struct rr_kept *a, const struct rr_kept *b, bool same_peer)
{
    return same_peer ? (int32_t)((uint32_t)a->head.ask.sequence - (uint32_t)b->head.ask.sequence) < 0 : a->stamp < b->stamp;
}

/* The first of a peer with the tag; NULL: none has come. */
static struct rr_kept *first_of(const struct rr_link *l, const struct rr_channel *c, int tag)
{
    struct rr_kept *first = NULL;

    for (struct rr_kept *k = l->kept; k; k = k->next)
        if (k->head.slot == RR_TALK_SLOT && k->head.channel == c->name && k->head.ask.root == tag &&
            (!first || is_before(k, first, true)))
            first = k;
    return first;
}

static struct rr_kept *find(const struct rr_links *t, const struct rr_talk *k, int *way)
{
    const struct rr_channel *c = channel_of(t, k);
    struct rr_kept *first = NULL;

    for (int w = 0; w < c->ranks; w++) {
        struct rr_kept *of = NULL;
        if ((k->move.way < 0 || k->move.way == w) && peer_of(c, w) != t->me)
            of = first_of(&t->link[peer_of(c, w)], c, k->ask.root);
        if (of && (!first || is_before(of, first, false))) {
            first = of;
            *way = w;
        }
    }
    return first;
}

static void take_off(struct rr_link *l, const struct rr_kept *k)
{
    struct rr_kept **at = &l->kept;

    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
}

/* One has come: does it fit, and if it is small, here it is. */
static int take(struct rr_links *t, struct rr_talk *k, struct rr_kept *found, int way, ringred_error *why)
{
    struct rr_channel *c = channel_of(t, k);
    int peer = peer_of(c, way), type = k->ask.type;
    size_t bytes = found->head.length;
    bool offered = found->head.kind == RR_FRAME_OFFER;

    k->ask = found->head.ask;
    k->move.peer = peer;
    k->move.way = way;
    if (k->ask.type != type || k->ask.count > k->most || (!offered && bytes != k->ask.count * k->element_bytes))
        return rr_fail(why, RINGRED_EMISMATCH, peer, 0,
                       "rank %d sent %llu %s with tag %d, and rank %d has room for %zu %s", peer,
                       (unsigned long long)k->ask.count, rr_type_name(k->ask.type), (int)k->ask.root, t->me, k->most,
                       rr_type_name(type));
    if (bytes)
        memcpy(k->move.bytes, found->bytes, bytes);
    if (!offered)
        c->way[way].small[1].taken += rr_mux_cost(bytes);
    take_off(&t->link[peer], found);
    rr_kept_free(t, found);
    rr_channel_say(t, c, way);
    if (!offered)
        return 0;
    k->move.ask = &k->ask;
    k->move.slot = RR_TALK_SLOT;
    k->move.segment = 0;
    k->move.length = k->ask.count * k->element_bytes;
    k->state = RR_TALK_OFFERED;
    return RINGRED_PENDING;
}

/* Whatever has come of the ranks that it may be of. */
static int pump(struct rr_links *t, const struct rr_talk *k, ringred_error *why)
{
    const struct rr_channel *c = channel_of(t, k);

    for (int w = 0; w < c->ranks; w++) {
        int peer = peer_of(c, w);
        if ((k->move.way < 0 || k->move.way == w) && t->link[peer].state == LINK_UP)
            RR_TRY(rr_mux_pump(t, peer, why));
    }
    return 0;
}

int rr_talk_recv(struct rr_transport *core, struct rr_talk *k, ringred_error *why)
{
    struct rr_links *t = rr_links_of(core);
    int way = 0;

    if (k->state == RR_TALK_NEW) {
        struct rr_kept *found = find(t, k, &way);
        if (!found) {
            RR_TRY(pump(t, k, why));
            found = find(t, k, &way);
        }
        int rc = found ? take(t, k, found, way, why) : RINGRED_PENDING;
        if (k->state == RR_TALK_NEW || rc < 0)
            return rc;
    }
    const struct rr_frame f = { .kind = RR_FRAME_TAKE, .channel = channel_of(t, k)->way[k->move.way].name,
                                .ask.count = (uint32_t)k->ask.sequence };
    k->told = k->told || rr_channel_tell(t, k->move.peer, &f);
    return rr_mux_recv(t, &k->move, why);
}

/* ---- looking after peers ---- */

static bool is_gone(struct rr_links *t, const struct rr_channel *c, int way, const uint8_t *gone)
{
    const struct rr_link *l = &t->link[peer_of(c, way)];
    ringred_error ignored; /* that it is gone is what we are about to say */

    if (peer_of(c, way) == t->me)
        return true;
    if (gone && gone[way] && l->stream)
        (void)rr_mux_pump(t, peer_of(c, way), &ignored); /* what it wrote before it went */
    bool is = c->way[way].left || l->state != LINK_UP || (gone && gone[way]);
    return is && !rr_mux_owes(l, c, way);
}

int rr_talk_look(struct rr_transport *core, const struct rr_talk *k, const uint8_t *gone, ringred_error *why)
{
    struct rr_links *t = rr_links_of(core);
    const struct rr_channel *c = channel_of(t, k);
    int way = k->move.way;

    if (way >= 0 && !is_gone(t, c, way, gone))
        return 0;
    for (int w = 0; way < 0 && w < c->ranks; w++)
        if (!is_gone(t, c, w, gone))
            return 0;
    if (way < 0)
        return rr_fail(why, RINGRED_EPEER, -1, 0, "all other ranks left while rank %d waited for a message of any", t->me);
    int peer = peer_of(c, way);
    if (!gone && !c->way[way].left)
        return rr_link_lost(t, peer, t->link[peer].system, why);
    return rr_fail(why, RINGRED_EPEER, peer, 0, "rank %d %s, and rank %d has a message %s it", peer,
                   c->way[way].left ? "left the communicator" : "has ended, or left the communicator", t->me,
                   k->most || !k->move.length ? "from" : "to");
}
