/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets how much of the wires. Ways with bytes to move share the wires max-min fairly, by streams: rates
 * rise together until a wire is full or a stream has all that it may have; what goes over that wire keeps
 * its rate, the others rise on. Between two events rates do not change.
 *
 * Always holds: `sent` of every way is right at net.at_ps, and rates are those since then.
 *
 * With more than EXACT ways at once (a two-shot of 256 hosts has 65,280), rates are found anew no more often
 * than 100 times while the wires would carry what is under way. */
#include "sim/world.h"

#include <string.h>

#define EXACT 20000
#define TURNS 100
#define SLACK 1e-3 /* of a byte: what rounding may leave */
#define STRIPE_LEAST (16 << 10)
#define STRIPE_MOST (128 << 10)

/* Of what is not negative; infinity stays. */
static double round_up(double x)
{
    double whole = x < 9e18 ? (double)(int64_t)x : x;

    return whole < x ? whole + 1 : whole;
}

int rr_net_init(struct rr_net *net, const struct rr_sim *sim)
{
    const struct rr_machine *m = sim->machine;

    *net = (struct rr_net){ .machine = m, .hosts = sim->hosts, .wires = 2 * sim->hosts, .next_ps = RR_NEVER };
    net->wire = rr_alloc((size_t)net->wires, sizeof *net->wire);
    if (!net->wire)
        return RINGRED_ENOMEM;
    for (int i = 0; i < net->wires; i++) {
        double rate = i % sim->hosts == m->slow_host ? m->slow_rate : m->rate;
        net->wire[i].rate = rate > 0 ? rate / RR_SECOND : INFINITY;
    }
    return 0;
}

void rr_letters_free(struct rr_letter *head)
{
    while (head) {
        struct rr_letter *next = head->next;
        rr_free(head);
        head = next;
    }
}

void rr_net_done(struct rr_net *net)
{
    rr_letters_free(net->spare);
    rr_free(net->wire);
    rr_free(net->active);
    rr_free(net->todo);
    *net = (struct rr_net){ 0 };
}

/* ---- messages ---- */

/* Streams that a message is cut over, as the transport cuts it. */
static int streams_of(const struct rr_net *net, const struct rr_way *way, double bytes)
{
    int streams = way->out < 0 || net->machine->streams < 1 ? 1 : net->machine->streams;
    double each = round_up(bytes / streams / 4096) * 4096;

    if (streams == 1 || bytes <= STRIPE_LEAST)
        return 1;
    each = each < STRIPE_LEAST ? STRIPE_LEAST : each > STRIPE_MOST ? STRIPE_MOST : each;
    double parts = round_up(bytes / each);
    return parts < streams ? (int)parts : streams;
}

static struct rr_letter *new_letter(struct rr_net *net)
{
    struct rr_letter *l = net->spare;

    if (!l)
        return rr_alloc(1, sizeof *l);
    net->spare = l->next;
    return l;
}

static double limit_of(const struct rr_way *way)
{
    return way->given < way->allowed ? way->given : way->allowed;
}

static bool grow(struct rr_net *net)
{
    size_t room = net->room ? 2 * net->room : 256;
    struct rr_way **active = rr_alloc(room, sizeof *active), **todo = rr_alloc(room, sizeof *todo);

    if (!active || !todo) {
        rr_free(active);
        rr_free(todo);
        net->failed = true;
        return false;
    }
    if (net->used > 0)
        memcpy(active, net->active, net->used * sizeof *active);
    rr_free(net->active);
    rr_free(net->todo);
    net->active = active;
    net->todo = todo;
    net->room = room;
    return true;
}

static void activate(struct rr_net *net, struct rr_way *way)
{
    if (way->active || !way->head || limit_of(way) - way->sent <= SLACK)
        return;
    if (net->used == net->room && !grow(net))
        return;
    way->active = true;
    way->rate = 0;
    net->active[net->used++] = way;
    net->dirty = true;
}

static void put_in_front(struct rr_net *net, struct rr_way *way)
{
    way->weight = (uint8_t)streams_of(net, way, way->head->bytes);
    way->head_end = way->head->end;
}

/* What is through by now: messages that have left, the step that sends. */
static void tell(struct rr_net *net, struct rr_way *way, const struct rr_news *news)
{
    while (way->head && way->sent >= way->head_end - SLACK) {
        struct rr_letter *l = way->head;
        if (way->out >= 0) {
            net->wire[way->out].bytes += l->bytes;
            net->wire[way->in].bytes += l->bytes;
        }
        net->messages++;
        way->head = l->next;
        l->next = net->spare;
        net->spare = l;
        if (way->head)
            put_in_front(net, way);
        net->dirty = true;
        news->left(news->context, way);
    }
    if (way->sending >= 0 && way->sent >= way->send_end - SLACK)
        news->sent(news->context, way);
}

void rr_net_give(struct rr_net *net, struct rr_way *way, int32_t step, double bytes, const struct rr_news *news)
{
    struct rr_letter *l = new_letter(net);

    if (!l) {
        net->failed = true;
        return;
    }
    way->given += bytes;
    *l = (struct rr_letter){ .end = way->given, .bytes = bytes };
    if (way->head) {
        way->tail->next = l;
    } else {
        way->head = l;
        put_in_front(net, way);
    }
    way->tail = l;
    way->sending = step;
    way->send_end = way->given - net->machine->buffer_bytes;
    activate(net, way);
    net->dirty = net->dirty || way->active;
    tell(net, way, news); /* what fits into the socket, and what is empty, is through at once */
}

void rr_net_allow(struct rr_net *net, struct rr_way *way, double bytes)
{
    way->allowed += bytes;
    activate(net, way);
    net->dirty = net->dirty || way->active; /* it may go on longer than was reckoned */
}

/* ---- shares ---- */

static void open_wires(struct rr_net *net)
{
    for (int i = 0; i < net->wires; i++) {
        net->wire[i].left = net->wire[i].rate;
        net->wire[i].weight = 0;
    }
}

/* The ways whose rates the wires decide; the others have theirs. */
static size_t list_ways(struct rr_net *net)
{
    double loop = net->machine->loop_rate > 0 ? net->machine->loop_rate / RR_SECOND : INFINITY;
    size_t n = 0;

    for (size_t i = 0; i < net->used; i++) {
        struct rr_way *way = net->active[i];
        if (way->out < 0) {
            way->rate = loop;
            net->endless = net->endless || isinf(loop);
            continue;
        }
        net->wire[way->out].weight += way->weight;
        net->wire[way->in].weight += way->weight;
        net->todo[n++] = way;
    }
    return n;
}

/* The most that every stream can have; the wires that allow no more are tight. */
static double level_of(struct rr_net *net)
{
    double level = net->machine->flow > 0 ? net->machine->flow / RR_SECOND : INFINITY;

    for (int i = 0; i < net->wires; i++) {
        const struct rr_wire *w = &net->wire[i];
        if (w->weight > 0 && w->left / (double)w->weight < level)
            level = w->left / (double)w->weight;
    }
    for (int i = 0; i < net->wires; i++) {
        struct rr_wire *w = &net->wire[i];
        w->tight = w->weight > 0 && w->left <= level * (double)w->weight * (1 + 1e-9);
    }
    return level;
}

static void take(struct rr_wire *w, const struct rr_way *way)
{
    w->left -= way->rate;
    w->weight -= way->weight;
}

static void share(struct rr_net *net)
{
    double most = net->machine->flow > 0 ? net->machine->flow / RR_SECOND : INFINITY;

    open_wires(net);
    net->endless = false;
    for (size_t left = list_ways(net); left > 0;) {
        double level = level_of(net);
        size_t kept = 0;
        for (size_t i = 0; i < left; i++) {
            struct rr_way *way = net->todo[i];
            struct rr_wire *out = &net->wire[way->out], *in = &net->wire[way->in];
            if (level < most && !out->tight && !in->tight) {
                net->todo[kept++] = way;
                continue;
            }
            way->rate = level * way->weight;
            net->endless = net->endless || isinf(level);
            take(out, way);
            take(in, way);
        }
        left = level < most ? kept : 0;
    }
}

/* ---- time ---- */

/* Bytes until something of this way is through. */
static double to_go(const struct rr_way *way)
{
    double end = limit_of(way);

    if (way->head && way->head_end < end)
        end = way->head_end;
    if (way->sending >= 0 && way->send_end < end)
        end = way->send_end;
    return end > way->sent ? end - way->sent : 0;
}

static void find_next(struct rr_net *net)
{
    double next = INFINITY, left = 0, rate = 0;

    for (size_t i = 0; i < net->used; i++) {
        const struct rr_way *way = net->active[i];
        if (!(way->rate > 0))
            continue;
        double time = isinf(way->rate) ? 0 : to_go(way) / way->rate;
        next = time < next ? time : next;
        left += way->given - way->sent;
        rate += isinf(way->rate) ? 0 : way->rate;
    }
    net->quantum_ps = net->used > EXACT && rate > 0 ? (int64_t)(left / rate / TURNS) : 0;
    next = round_up(next);
    if (next < (double)net->quantum_ps)
        next = (double)net->quantum_ps;
    net->next_ps = next < 9e18 ? net->at_ps + (int64_t)next : RR_NEVER;
}

static void advance(struct rr_net *net, int64_t now_ps)
{
    double time = (double)(now_ps - net->at_ps);

    if (now_ps == net->at_ps && !net->endless)
        return;
    net->at_ps = now_ps;
    for (size_t i = 0; i < net->used; i++) {
        struct rr_way *way = net->active[i];
        double limit = limit_of(way), sent = isinf(way->rate) ? limit : way->sent + way->rate * time;
        way->sent = sent > limit - SLACK ? limit : sent;
    }
}

static int64_t due_ps(const struct rr_net *net)
{
    return net->used > EXACT ? net->shared_ps + net->quantum_ps : net->at_ps;
}

void rr_net_share(struct rr_net *net, int64_t now_ps)
{
    if (!net->dirty)
        return;
    if (now_ps < due_ps(net)) {
        int64_t due = due_ps(net);
        net->next_ps = net->next_ps < due ? net->next_ps : due;
        return;
    }
    advance(net, now_ps);
    share(net);
    find_next(net);
    net->shared_ps = now_ps;
    net->dirty = false;
}

void rr_net_move(struct rr_net *net, int64_t now_ps, const struct rr_news *news)
{
    size_t kept = 0, ways = net->used;

    advance(net, now_ps);
    for (size_t i = 0; i < ways; i++) {
        struct rr_way *way = net->active[i];
        tell(net, way, news);
        way->active = limit_of(way) - way->sent > SLACK;
        net->active[kept] = way;
        kept += way->active;
        net->dirty = net->dirty || !way->active;
    }
    net->used = kept;
    if (!net->dirty || now_ps < due_ps(net))
        find_next(net);
    else
        net->next_ps = RR_NEVER; /* it is found when the rates are */
}
