/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: the messages of one communicator on links that several share. A peer is told by which name to call a
 * channel, and that is the number of its place in our list, so names need no agreement; a name is given away
 * again when all members have said that they left. */
#include "transport/link.h"

#include <string.h>

#define CHANNELS_MOST 65536 /* a name has 16 bits */

static int peer_of(const struct rr_channel *c, int way)
{
    return c->member ? c->member[way] : way;
}

struct rr_way *rr_channel_way(const struct rr_channel *c, int peer)
{
    for (int way = 0; way < c->ranks; way++)
        if (peer_of(c, way) == peer)
            return &c->way[way];
    return NULL;
}

static bool is_over(const struct rr_links *t, const struct rr_channel *c)
{
    bool over = c->over;

    for (int way = 0; way < c->ranks && over; way++)
        over = peer_of(c, way) == t->me || (c->way[way].left && !c->way[way].leaves) ||
               t->link[peer_of(c, way)].state != LINK_UP;
    return over;
}

static void channel_free(struct rr_channel *c)
{
    rr_free(c->way);
    rr_free(c);
}

/* Messages that nobody will take any more. */
static void drop_kept(struct rr_links *t, const struct rr_channel *c)
{
    for (int way = 0; way < c->ranks; way++) {
        struct rr_kept **at = &t->link[peer_of(c, way)].kept;
        while (*at) {
            struct rr_kept *k = *at;
            if (k->head.channel != c->name) {
                at = &k->next;
                continue;
            }
            *at = k->next;
            rr_kept_free(t, k);
        }
    }
}

void rr_channel_free(struct rr_transport *core, struct rr_channel *c)
{
    struct rr_links *t = rr_links_of(core);

    if (!c)
        return;
    drop_kept(t, c);
    t->channel[c->name] = NULL;
    channel_free(c);
}

/* Frees those that are over, but for the first. */
static void sweep(struct rr_links *t)
{
    for (size_t name = 1; name < t->channels; name++)
        if (t->channel[name] && is_over(t, t->channel[name]))
            rr_channel_free(&t->base, t->channel[name]);
}

/* The lowest name that is free; negative: no memory. */
static int take_name(struct rr_links *t)
{
    size_t name = 0, more = t->channels ? 2 * t->channels : 8;

    while (name < t->channels && t->channel[name])
        name++;
    if (name < t->channels)
        return (int)name;
    struct rr_channel **table = name < CHANNELS_MOST ? rr_alloc(more, sizeof(struct rr_channel *)) : NULL;
    if (!table)
        return RINGRED_ENOMEM;
    if (t->channels)
        memcpy(table, t->channel, t->channels * sizeof(struct rr_channel *));
    rr_free(t->channel);
    t->channel = table;
    t->channels = more;
    return (int)name;
}

int rr_channel_new(struct rr_transport *core, int ranks, const int16_t *member, struct rr_channel **channel,
                   ringred_error *why)
{
    struct rr_links *t = rr_links_of(core);
    struct rr_channel *c = rr_alloc(1, sizeof *c);

    if (t->channels)
        sweep(t);
    if (c) /* the ways, and the members behind them */
        c->way = rr_alloc((size_t)ranks, sizeof *c->way + sizeof *member);
    int name = c && c->way ? take_name(t) : RINGRED_ENOMEM;
    if (name < 0) {
        if (c)
            channel_free(c);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a channel between %d ranks, or there are %d",
                       ranks, CHANNELS_MOST);
    }
    c->name = (uint16_t)name;
    c->ranks = ranks;
    if (member)
        c->member = memcpy(c->way + ranks, member, (size_t)ranks * sizeof *member);
    t->channel[name] = c;
    *channel = c;
    return 0;
}

uint16_t rr_channel_name(const struct rr_channel *c)
{
    return c->name;
}

void rr_channel_route(struct rr_channel *c, int way, uint16_t name)
{
    c->way[way].name = name;
}

struct rr_channel *rr_channel_find(const struct rr_links *t, uint16_t name)
{
    return name < t->channels ? t->channel[name] : NULL;
}

void rr_channel_remember(struct rr_channel *c, const struct rr_ask *ask)
{
    c->asked[ask->sequence % RR_LINK_ASKED] = *ask;
}

const struct rr_ask *rr_channel_recall(const struct rr_channel *c, const struct rr_ask *theirs)
{
    const struct rr_ask *slot = &c->asked[theirs->sequence % RR_LINK_ASKED];

    return slot->sequence && (uint32_t)slot->sequence == (uint32_t)theirs->sequence ? slot : NULL;
}

void rr_channel_told(struct rr_links *t, int peer, const struct rr_frame *f)
{
    struct rr_channel *c = rr_channel_find(t, f->channel);
    struct rr_way *w = c ? rr_channel_way(c, peer) : NULL;

    if (!w)
        return; /* of a channel that is over */
    switch (f->kind) {
    case RR_FRAME_WANT:
        w->large_asked = (uint32_t)f->ask.count;
        break;
    case RR_FRAME_CREDIT:
        w->small[f->slot == RR_TALK_SLOT].sent_taken = (uint32_t)f->ask.count;
        break;
    case RR_FRAME_TAKE:
        rr_talk_taken(&t->link[peer], c, f->ask.count);
        break;
    default:
        w->left = true;
        w->left_after = f->ask.count;
    }
}

bool rr_channel_tell(struct rr_links *t, int peer, const struct rr_frame *f)
{
    struct rr_link *l = &t->link[peer];

    if (l->state == LINK_UP && l->tail_bytes + RR_FRAME_BYTES + RR_FAULT_BYTES > RR_LINK_TAIL && !l->sending)
        (void)rr_link_flush_tail(l);
    if (l->state == LINK_UP && l->tail_bytes + 2 * RR_FRAME_BYTES + RR_FAULT_BYTES > RR_LINK_TAIL)
        return false; /* room is left for a last word */
    rr_link_queue(t, peer, f, "");
    return true;
}

void rr_channel_say(struct rr_links *t, struct rr_channel *c, int way)
{
    struct rr_way *w = &c->way[way];
    int peer = peer_of(c, way);
    const struct rr_frame want = { .kind = RR_FRAME_WANT, .channel = w->name, .ask.count = w->wanted };

    if (w->wanted != w->wanted_said && rr_channel_tell(t, peer, &want))
        w->wanted_said = w->wanted;
    for (int talk = 0; talk < 2; talk++) {
        struct rr_credit *of = &w->small[talk];
        const struct rr_frame credit = { .kind = RR_FRAME_CREDIT, .channel = w->name,
                                         .slot = talk ? RR_TALK_SLOT : 0, .ask.count = of->taken };
        if (of->taken - of->taken_said >= RR_CREDIT / 2 && rr_channel_tell(t, peer, &credit))
            of->taken_said = of->taken;
    }
}

/* That this rank has left a channel; false: no room for now. */
static bool say_left(struct rr_links *t, struct rr_channel *c, int way)
{
    const struct rr_frame leave = { .kind = RR_FRAME_LEAVE, .channel = c->way[way].name, .ask.count = c->last };

    rr_channel_say(t, c, way);
    c->way[way].leaves = !rr_channel_tell(t, peer_of(c, way), &leave);
    return !c->way[way].leaves;
}

void rr_channel_say_left(struct rr_links *t, int peer)
{
    bool all = true;

    for (size_t name = 0; name < t->channels && all; name++) {
        struct rr_channel *c = t->channel[name];
        for (int way = 0; c && c->over && way < c->ranks; way++)
            if (c->way[way].leaves && peer_of(c, way) == peer)
                all = say_left(t, c, way) && all;
    }
    t->link[peer].leaves = !all;
}

void rr_channel_left(struct rr_transport *core, const struct rr_channel *channel, uint8_t *gone)
{
    struct rr_links *t = rr_links_of(core);
    const struct rr_channel *c = channel ? channel : t->first;

    for (int way = 0; way < c->ranks; way++) {
        if (c->way[way].left && !rr_mux_owes(&t->link[peer_of(c, way)], c, way))
            gone[way] |= RR_GONE_LINK;
    }
}

uint64_t rr_channel_left_after(struct rr_transport *core, const struct rr_channel *channel, int way)
{
    const struct rr_channel *c = channel ? channel : rr_links_of(core)->first;

    return c->way[way].left ? c->way[way].left_after + 1 : 0;
}

void rr_channel_asks(struct rr_channel *c, int peer, uint64_t sequence)
{
    for (int way = 0; way < c->ranks; way++)
        if ((c->member ? c->member[way] : way) == peer)
            c->way[way].asked = (uint32_t)sequence;
}

bool rr_channel_has_asked(struct rr_transport *core, const struct rr_channel *channel, int way, uint64_t sequence)
{
    struct rr_links *t = rr_links_of(core);
    const struct rr_channel *c = channel ? channel : t->first;
    int peer = peer_of(c, way);
    const struct rr_stream *s = t->link[peer].stream;
    ringred_error why;
    struct rr_frame f;

    if (c->way[way].asked == (uint32_t)sequence)
        return true;
    /* what it has sent for that operation, and is not wanted yet, keeps its words back */
    if (!s || t->link[peer].receiving || s->left || s->hi - s->lo < RR_FRAME_BYTES ||
        rr_frame_read(s->room + s->lo, peer, &f, &why) < 0)
        return false;
    return f.kind == RR_FRAME_DATA && rr_channel_find(t, f.channel) == c && (uint32_t)f.ask.sequence == (uint32_t)sequence;
}

void rr_channel_leave(struct rr_transport *core, struct rr_channel *channel, uint64_t last)
{
    struct rr_links *t = rr_links_of(core);
    struct rr_channel *c = channel ? channel : t->first;

    c->last = last;
    for (int way = 0; way < c->ranks; way++) {
        int peer = peer_of(c, way);
        if (peer != t->me && t->link[peer].stream && !say_left(t, c, way))
            t->link[peer].leaves = true; /* a message is under way, and much waits behind it */
    }
    c->over = true;
    drop_kept(t, c);
    sweep(t);
}

void rr_channels_free(struct rr_links *t)
{
    for (size_t name = 0; name < t->channels; name++)
        if (t->channel[name])
            channel_free(t->channel[name]);
    rr_free(t->channel);
    for (int peer = 0; peer < t->ranks; peer++)
        while (t->link && t->link[peer].kept) {
            struct rr_kept *k = t->link[peer].kept;
            t->link[peer].kept = k->next;
            rr_free(k);
        }
    for (int size = 0; size < 3; size++)
        while (t->spare[size]) {
            struct rr_kept *k = t->spare[size];
            t->spare[size] = k->next;
            rr_free(k);
        }
}
