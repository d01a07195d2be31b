/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets how much of the wires. Ways with bytes to move share the wires max-min fairly, by streams: rates
 * rise together until a wire is full or a stream has all that it may have; what goes over that wire keeps
 * its rate, the others rise on. Between two events rates do not change.
 *
 * Always holds: what moves has sent rr_moving.sent bytes at net.at_ps, and rates are those since then.
 *
 * With more than EXACT ways at once (a two-shot of 256 hosts has 65,280), rates are found anew no more often
 * than TURNS times while the wires would carry what is under way. */
#include "sim/world.h"

#include <string.h>

#define EXACT 20000
#define TURNS 50
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
    rr_free(net->moving);
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
    struct rr_moving *moving = rr_alloc(room, sizeof *moving);
    uint32_t *todo = rr_alloc(room, sizeof *todo);

    if (!moving || !todo) {
        rr_free(moving);
        rr_free(todo);
        net->failed = true;
        return false;
    }
    if (net->used > 0)
        memcpy(moving, net->moving, net->used * sizeof *moving);
    rr_free(net->moving);
    rr_free(net->todo);
    net->moving = moving;
    net->todo = todo;
    net->room = room;
    return true;
}

/* What this way waits for next, and with how many streams. */
static void aim(struct rr_net *net, struct rr_moving *m)
{
    const struct rr_way *way = m->way;
    double goal = limit_of(way);

    if (way->head && way->head->end < goal)
        goal = way->head->end;
    if (way->sending >= 0 && way->send_end < goal)
        goal = way->send_end;
    m->goal = goal > m->sent ? goal : m->sent;
    if (way->head)
        m->weight = (uint8_t)streams_of(net, way, way->head->bytes);
}

/* Moves on with what it has been given or allowed. */
static void set_moving(struct rr_net *net, struct rr_way *way)
{
    if (way->slot < 0) {
        if (!way->head || limit_of(way) - way->sent <= SLACK || (net->used == net->room && !grow(net)))
            return;
        way->slot = (int32_t)net->used++;
        net->moving[way->slot] =
            (struct rr_moving){ .sent = way->sent, .way = way, .out = way->out, .in = way->in };
    }
    aim(net, &net->moving[way->slot]);
    net->dirty = true;
}

static void set_resting(struct rr_net *net, struct rr_way *way)
{
    struct rr_moving *m = &net->moving[way->slot];

    way->sent = m->sent;
    *m = net->moving[--net->used];
    m->way->slot = way->slot;
    way->slot = -1;
}

/* What is through now that so many bytes are on the wire: messages that have left, the step that sends. */
static void tell(struct rr_net *net, struct rr_way *way, double sent, const struct rr_news *news)
{
    while (way->head && sent >= way->head->end - SLACK) {
        struct rr_letter *l = way->head;
        if (way->out >= 0) {
            net->wire[way->out].bytes += l->bytes;
            net->wire[way->in].bytes += l->bytes;
        }
        net->messages++;
        way->head = l->next;
        l->next = net->spare;
        net->spare = l;
        news->left(news->context, way);
    }
    if (way->sending >= 0 && sent >= way->send_end - SLACK)
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
    if (way->head)
        way->tail->next = l;
    else
        way->head = l;
    way->tail = l;
    way->sending = step;
    way->send_end = way->given - net->machine->buffer_bytes;
    if (way->slot < 0) /* what fits into the socket, and what is empty, is through at once */
        tell(net, way, way->sent, news);
    set_moving(net, way);
}

void rr_net_allow(struct rr_net *net, struct rr_way *way, double bytes)
{
    way->allowed += bytes;
    set_moving(net, way);
}

/* ---- shares ---- */

/* What lies before all that moves: picoseconds until the first is through; bytes to go, and their rate. */
struct prospect {
    double soonest, left, rate;
};

static void open_wires(struct rr_net *net)
{
    for (int i = 0; i < net->wires; i++) {
        net->wire[i].left = net->wire[i].rate;
        net->wire[i].weight = 0;
    }
}

/* Sets a rate for the time to come; *next grows by it. */
static void set_rate(struct rr_net *net, struct rr_moving *m, double rate, struct prospect *next)
{
    double left = m->goal - m->sent;

    m->rate = rate;
    if (isinf(rate)) {
        net->endless = true;
        next->soonest = 0;
        return;
    }
    if (left < next->soonest * rate)
        next->soonest = left / rate;
    next->left += left;
    next->rate += rate;
}

/* The ways whose rates the wires decide; the others get theirs. */
static size_t list_ways(struct rr_net *net, struct prospect *next)
{
    double loop = net->machine->loop_rate > 0 ? net->machine->loop_rate / RR_SECOND : INFINITY;
    size_t n = 0;

    for (size_t i = 0; i < net->used; i++) {
        struct rr_moving *m = &net->moving[i];
        if (m->out < 0) {
            set_rate(net, m, loop, next);
            continue;
        }
        net->wire[m->out].weight += m->weight;
        net->wire[m->in].weight += m->weight;
        net->todo[n++] = (uint32_t)i;
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

static void take(struct rr_wire *w, const struct rr_moving *m)
{
    w->left -= m->rate;
    w->weight -= m->weight;
}

static struct prospect share(struct rr_net *net)
{
    double most = net->machine->flow > 0 ? net->machine->flow / RR_SECOND : INFINITY;
    struct prospect next = { .soonest = INFINITY };

    open_wires(net);
    net->endless = false;
    for (size_t left = list_ways(net, &next); left > 0;) {
        double level = level_of(net);
        size_t kept = 0;
        for (size_t i = 0; i < left; i++) {
            struct rr_moving *m = &net->moving[net->todo[i]];
            struct rr_wire *out = &net->wire[m->out], *in = &net->wire[m->in];
            if (level < most && !out->tight && !in->tight) {
                net->todo[kept++] = net->todo[i];
                continue;
            }
            set_rate(net, m, level * m->weight, &next);
            take(out, m);
            take(in, m);
        }
        left = level < most ? kept : 0;
    }
    return next;
}

/* ---- time ---- */

static void advance(struct rr_net *net, int64_t now_ps)
{
    double time = (double)(now_ps - net->at_ps);

    if (now_ps == net->at_ps && !net->endless)
        return;
    net->at_ps = now_ps;
    for (size_t i = 0; i < net->used; i++) {
        struct rr_moving *m = &net->moving[i];
        double sent = isinf(m->rate) ? m->goal : m->sent + m->rate * time;
        m->sent = sent > m->goal - SLACK ? m->goal : sent;
    }
}

static int64_t due_ps(const struct rr_net *net)
{
    return net->used > EXACT ? net->shared_ps + net->quantum_ps : net->at_ps;
}

void rr_net_share(struct rr_net *net, int64_t now_ps)
{
    int64_t due = due_ps(net);

    if (!net->dirty)
        return;
    if (now_ps < due) {
        net->next_ps = net->next_ps < due ? net->next_ps : due;
        return;
    }
    advance(net, now_ps);
    struct prospect next = share(net);
    net->quantum_ps = net->used > EXACT && next.rate > 0 ? (int64_t)(next.left / next.rate / TURNS) : 0;
    double wait = round_up(next.soonest);
    if (wait < (double)net->quantum_ps)
        wait = (double)net->quantum_ps;
    net->next_ps = wait < 9e18 ? now_ps + (int64_t)wait : RR_NEVER;
    net->shared_ps = now_ps;
    net->dirty = false;
}

void rr_net_move(struct rr_net *net, int64_t now_ps, const struct rr_news *news)
{
    advance(net, now_ps);
    for (size_t i = net->used; i-- > 0;) {
        struct rr_moving *m = &net->moving[i];
        if (m->sent < m->goal - SLACK)
            continue;
        tell(net, m->way, m->sent, news);
        aim(net, m);
        if (limit_of(m->way) - m->sent <= SLACK)
            set_resting(net, m->way);
    }
    net->dirty = true;
    net->next_ps = RR_NEVER; /* until rates are found */
}
