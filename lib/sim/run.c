/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the simulated world: steps become ready, get a CPU, send and arrive, until all are done.
 *
 * As in the engine: a step does its segments in order; it runs when its dependencies are met; empty
 * messages but those of the first segment are left out at both ends; a rank goes round over its steps.
 * A SEND is done when what is left of it fits into the socket; a RECV when its last byte has come and a CPU
 * has read it. Copying a long message into and out of a socket goes on while the wire works. */
#include "sim/world.h"

#include <string.h>

#define CHUNK (64 << 10) /* bytes that are copied before the wire can begin, or after it has ended */

/* ---- what may be able to run ---- */

static void look_at(struct rr_world *w, int rank, uint32_t step)
{
    struct rr_actor *a = &w->actor[rank];

    if (a->state[step] != RR_DO_NOTHING || a->done[step] == w->segments)
        return;
    a->state[step] = RR_DO_ASKED;
    w->look[(w->look_at + w->looks++) % w->look_room] = (struct rr_target){ rank, step };
}

static void poke(struct rr_world *w, int rank)
{
    struct rr_actor *a = &w->actor[rank];

    if (a->busy || a->waits || a->ready_steps == 0)
        return;
    a->waits = true;
    struct rr_cpus *c = a->cpus;
    c->queue[(c->first + c->waiting++) % w->ranks] = rank;
}

static void make_ready(struct rr_world *w, struct rr_target t)
{
    struct rr_actor *a = &w->actor[t.rank];

    a->state[t.step] = RR_DO_READY;
    a->ready[t.step / 64] |= (uint64_t)1 << t.step % 64;
    a->ready_steps++;
    poke(w, t.rank);
}

static void complete(struct rr_world *w, struct rr_target t)
{
    struct rr_actor *a = &w->actor[t.rank];

    a->done[t.step]++;
    a->cursor[t.step] = 0;
    a->state[t.step] = RR_DO_NOTHING;
    w->left--;
    if (--w->togo[t.rank] == 0)
        w->end_ps[t.rank] = w->now_ps;
    look_at(w, t.rank, t.step);
    for (uint32_t i = a->user0[t.step]; i < a->user0[t.step + 1]; i++)
        look_at(w, t.rank, a->user[i]);
}

/* Remembers how far it came: what is met stays met. */
static bool can_run(struct rr_world *w, struct rr_target t)
{
    struct rr_actor *a = &w->actor[t.rank];
    const struct rr_step *x = &a->plan->step[t.step];
    int64_t segment = a->done[t.step], segments = (int64_t)w->segments;
    uint32_t *at = &a->cursor[t.step];

    for (; *at < x->deps; ++*at) {
        const struct rr_dep *d = &a->plan->dep[x->dep + *at];
        int64_t need = segment - d->back + 1;
        if (a->done[d->step] < (need < segments ? need : segments))
            return false;
    }
    for (; *at < (uint32_t)x->deps + x->peers; ++*at) {
        int peer = a->plan->peer[x->peer0 + *at - x->deps];
        if (w->actor[peer].seen[x->counter] <= segment)
            return false;
    }
    return true;
}

/* ---- what a step costs ---- */

static double per(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : 0;
}

/* Without windows another rank's output cannot be written. */
static double outputs_of(const struct rr_world *w, struct rr_target t, const struct rr_step *x)
{
    const struct rr_plan *p = w->actor[t.rank].plan;
    int n = 0;

    for (uint32_t i = 0; i < x->destinations; i++) {
        const struct rr_span *s = &p->span[x->destination + i];
        n += s->place != RR_OUT || s->rank == t.rank;
    }
    return n;
}

/* In place, my input is my output. */
static bool copies_to_itself(const struct rr_world *w, struct rr_target t, const struct rr_step *x)
{
    const struct rr_plan *p = w->actor[t.rank].plan;
    const struct rr_span *from = &p->span[x->source], *to = &p->span[x->destination];

    return w->sim->in_place && x->destinations == 1 && !(x->flags & RR_DIVIDE) && from->place == RR_IN &&
           to->place == RR_OUT && from->rank == t.rank && to->rank == t.rank;
}

/* Seconds of a reduce or a copy. */
static double work_s(const struct rr_world *w, struct rr_target t)
{
    const struct rr_actor *a = &w->actor[t.rank];
    const struct rr_step *x = &a->plan->step[t.step];
    double bytes = rr_world_bytes(w, t.rank, x->source, a->done[t.step]), outputs = outputs_of(w, t, x);

    if (x->kind == RR_STEP_REDUCE)
        return per(bytes * x->sources, w->machine->reduce) + per(bytes * (outputs - 1), w->machine->copy);
    if (((x->flags & RR_IN_PLACE) && !w->sim->in_place) || copies_to_itself(w, t, x))
        return 0;
    return per(bytes * outputs, w->machine->copy);
}

static int64_t picoseconds(double seconds)
{
    return (int64_t)(seconds * RR_SECOND + 0.5);
}

static uint32_t span_of(const struct rr_step *x)
{
    return x->kind == RR_STEP_SEND ? x->source : x->destination;
}

static double message_bytes(const struct rr_world *w, struct rr_target t)
{
    const struct rr_actor *a = &w->actor[t.rank];

    return rr_world_bytes(w, t.rank, span_of(&a->plan->step[t.step]), a->done[t.step]);
}

/* ---- steps ---- */

static void post_recv(struct rr_world *w, struct rr_target t)
{
    struct rr_way *way = rr_world_way(w, w->actor[t.rank].plan->step[t.step].peer, t.rank);

    if (!way)
        return;
    w->actor[t.rank].state[t.step] = RR_DO_POSTED;
    way->receiving = (int32_t)t.step;
    rr_net_allow(&w->net, way, message_bytes(w, t) + w->machine->header_bytes);
    if (way->arrived > 0)
        make_ready(w, t);
}

static void say(struct rr_world *w, struct rr_target t)
{
    struct rr_target who = { t.rank, w->actor[t.rank].plan->step[t.step].counter };

    rr_events_add(&w->events, w->now_ps + picoseconds(w->machine->signal_s), RR_EVENT_SEEN, who);
    complete(w, t);
}

static void start(struct rr_world *w, struct rr_target t)
{
    const struct rr_actor *a = &w->actor[t.rank];
    const struct rr_step *x = &a->plan->step[t.step];
    bool moves = x->kind == RR_STEP_SEND || x->kind == RR_STEP_RECV;

    if (x->kind == RR_STEP_SIGNAL)
        say(w, t);
    else if (x->kind == RR_STEP_AWAIT || (moves && a->done[t.step] > 0 && !(message_bytes(w, t) > 0)))
        complete(w, t);
    else if (x->kind == RR_STEP_RECV)
        post_recv(w, t);
    else if (x->kind == RR_STEP_SEND || work_s(w, t) > 0)
        make_ready(w, t);
    else
        complete(w, t);
}

static void look(struct rr_world *w)
{
    while (w->looks > 0) {
        struct rr_target t = w->look[w->look_at];
        w->look_at = (w->look_at + 1) % w->look_room;
        w->looks--;
        w->actor[t.rank].state[t.step] = RR_DO_NOTHING;
        if (can_run(w, t))
            start(w, t);
    }
}

/* ---- CPUs ---- */

/* The next step that is ready, going round. */
static uint32_t next_ready(struct rr_actor *a)
{
    uint32_t words = a->plan->steps / 64 + 1, at = a->sweep / 64;
    uint64_t bits = a->ready[at] & ~(uint64_t)0 << a->sweep % 64;

    while (!bits) {
        at = (at + 1) % words;
        bits = a->ready[at];
    }
    return at * 64 + (uint32_t)__builtin_ctzll(bits);
}

static void run_step(struct rr_world *w, struct rr_target t)
{
    const struct rr_machine *m = w->machine;
    const struct rr_step *x = &w->actor[t.rank].plan->step[t.step];
    double bytes = x->kind == RR_STEP_SEND || x->kind == RR_STEP_RECV ? message_bytes(w, t) : 0;
    double first = bytes < CHUNK ? bytes : CHUNK;

    if (x->kind == RR_STEP_RECV) {
        rr_events_add(&w->events, w->now_ps + picoseconds(m->recv_s + per(first, m->copy)), RR_EVENT_CPU, t);
    } else if (x->kind == RR_STEP_SEND) {
        rr_events_add(&w->events, w->now_ps + picoseconds(m->send_s + per(first, m->copy)), RR_EVENT_OUT, t);
        rr_events_add(&w->events, w->now_ps + picoseconds(m->send_s + per(bytes, m->copy)), RR_EVENT_CPU, t);
    } else {
        rr_events_add(&w->events, w->now_ps + picoseconds(work_s(w, t)), RR_EVENT_CPU, t);
    }
}

static void give_cpu(struct rr_world *w, struct rr_cpus *c)
{
    int rank = c->queue[c->first];
    struct rr_actor *a = &w->actor[rank];

    c->first = (c->first + 1) % w->ranks;
    c->waiting--;
    c->busy++;
    a->waits = false;
    a->busy = true;
    uint32_t step = next_ready(a);
    a->sweep = step + 1;
    a->ready[step / 64] &= ~((uint64_t)1 << step % 64);
    a->ready_steps--;
    a->state[step] = RR_DO_RUNNING;
    run_step(w, (struct rr_target){ rank, step });
}

static void dispatch(struct rr_world *w)
{
    for (int g = 0; g < w->cpu_groups; g++)
        while (w->cpus[g].waiting > 0 && w->cpus[g].busy < w->cpus[g].count)
            give_cpu(w, &w->cpus[g]);
}

/* ---- events ---- */

/* The wires are through with what `way` sends. */
static void on_sent(void *context, struct rr_way *way)
{
    struct rr_world *w = context;
    struct rr_target t = { way->from, (uint32_t)way->sending };

    way->sending = -1;
    complete(w, t);
}

static void on_left(void *context, struct rr_way *way)
{
    struct rr_world *w = context;
    double latency = way->out < 0 ? w->machine->loop_s : w->machine->latency_s;

    rr_events_add(&w->events, w->now_ps + picoseconds(latency), RR_EVENT_ARRIVAL,
                  (struct rr_target){ way->from, (uint32_t)way->to });
}

static void send_out(struct rr_world *w, struct rr_target t)
{
    struct rr_way *way = rr_world_way(w, t.rank, w->actor[t.rank].plan->step[t.step].peer);
    struct rr_news news = { on_sent, on_left, w };

    if (!way)
        return;
    w->actor[t.rank].state[t.step] = RR_DO_POSTED;
    rr_net_give(&w->net, way, (int32_t)t.step, message_bytes(w, t) + w->machine->header_bytes, &news);
}

static void cpu_free(struct rr_world *w, struct rr_target t)
{
    struct rr_actor *a = &w->actor[t.rank];

    a->busy = false;
    a->cpus->busy--;
    if (a->plan->step[t.step].kind == RR_STEP_RECV) {
        struct rr_way *way = rr_world_way(w, a->plan->step[t.step].peer, t.rank);
        way->arrived--;
        way->receiving = -1;
    }
    if (a->plan->step[t.step].kind != RR_STEP_SEND)
        complete(w, t);
    look(w); /* what it has made possible is done before it steps back */
    poke(w, t.rank);
}

static void arrive(struct rr_world *w, int from, int to)
{
    struct rr_way *way = rr_world_way(w, from, to);

    way->arrived++;
    if (way->receiving >= 0 && w->actor[to].state[way->receiving] == RR_DO_POSTED)
        make_ready(w, (struct rr_target){ to, (uint32_t)way->receiving });
}

/* A counter is seen to have grown: who awaits it looks again. */
static void seen(struct rr_world *w, int rank, uint32_t counter)
{
    int first = w->actor[rank].host * w->sim->per_host;

    w->actor[rank].seen[counter]++;
    for (int r = first; r < first + w->sim->per_host; r++) {
        const struct rr_plan *p = w->actor[r].plan;
        for (uint32_t x = 0; p->peers > 0 && x < p->steps; x++)
            if (p->step[x].kind == RR_STEP_AWAIT && p->step[x].counter == counter)
                look_at(w, r, x);
    }
}

static void happen(struct rr_world *w, const struct rr_event *e)
{
    switch (e->kind) {
    case RR_EVENT_OUT:
        send_out(w, e->who);
        break;
    case RR_EVENT_CPU:
        cpu_free(w, e->who);
        break;
    case RR_EVENT_ARRIVAL:
        arrive(w, e->who.rank, (int)e->who.step);
        break;
    default:
        seen(w, e->who.rank, e->who.step);
        break;
    }
}

/* ---- the whole ---- */

static bool is_out_of_memory(const struct rr_world *w)
{
    return w->failed || w->net.failed || w->events.failed;
}

/* Everything that happens at one time. */
static void live_a_moment(struct rr_world *w)
{
    struct rr_news news = { on_sent, on_left, w };

    while (rr_events_next(&w->events) == w->now_ps) {
        struct rr_event e = rr_events_take(&w->events);
        happen(w, &e);
    }
    if (w->net.next_ps <= w->now_ps)
        rr_net_move(&w->net, w->now_ps, &news);
    look(w);
    dispatch(w);
}

static int live(struct rr_world *w, ringred_error *why)
{
    for (int r = 0; r < w->ranks; r++)
        for (uint32_t x = 0; x < w->actor[r].plan->steps; x++)
            look_at(w, r, x);
    look(w);
    dispatch(w);
    while (!is_out_of_memory(w)) {
        int64_t next = rr_events_next(&w->events);
        if (next > w->now_ps)
            rr_net_share(&w->net, w->now_ps);
        next = w->net.next_ps < next ? w->net.next_ps : next;
        if (next == RR_NEVER)
            return w->left ? rr_fail(why, RINGRED_EINTERNAL, -1, 0, "%s: the ranks wait for each other for ever",
                                     w->actor[0].plan->name)
                           : 0;
        w->now_ps = next;
        live_a_moment(w);
    }
    return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to simulate %d ranks", w->ranks);
}

static int report(const struct rr_world *w, struct rr_simulated *result)
{
    int64_t end = 0;

    *result = (struct rr_simulated){ .messages = w->net.messages, .steps = w->steps };
    result->rank_s = rr_alloc((size_t)w->ranks, sizeof(double));
    result->out = rr_alloc((size_t)w->sim->hosts, sizeof(double));
    result->in = rr_alloc((size_t)w->sim->hosts, sizeof(double));
    if (!result->rank_s || !result->out || !result->in) {
        rr_simulated_free(result);
        return RINGRED_ENOMEM;
    }
    for (int r = 0; r < w->ranks; r++) {
        result->rank_s[r] = (double)w->end_ps[r] / RR_SECOND;
        end = w->end_ps[r] > end ? w->end_ps[r] : end;
    }
    result->seconds = (double)end / RR_SECOND;
    for (int i = 0; i < w->net.wires; i++) {
        const struct rr_wire *wire = &w->net.wire[i];
        double share = end > 0 ? wire->bytes / wire->rate / (double)end : 0;
        *(i < w->sim->hosts ? &result->out[i] : &result->in[i - w->sim->hosts]) = wire->bytes;
        result->busiest = share > result->busiest ? share : result->busiest;
    }
    return 0;
}

static int check(const struct rr_sim *s, ringred_error *why)
{
    if (s->hosts < 1 || s->per_host < 1 || s->hosts > RR_SIM_RANKS / s->per_host)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%d hosts with %d ranks each: at most %d ranks are simulated",
                       s->hosts, s->per_host, RR_SIM_RANKS);
    if (s->root < 0 || s->root >= s->hosts * s->per_host)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "root %d is not one of %d ranks", s->root,
                       s->hosts * s->per_host);
    if (s->segment < 1 || s->element_bytes < 1)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "a segment has at least one element, of at least a byte");
    return 0;
}

int rr_simulate(const struct rr_sim *sim, struct rr_simulated *result, ringred_error *why)
{
    struct rr_world w;

    RR_TRY(check(sim, why));
    int rc = rr_world_init(&w, sim, why);
    if (rc == 0)
        rc = live(&w, why);
    if (rc == 0 && report(&w, result) < 0)
        rc = rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the result");
    rr_world_done(&w);
    return rc;
}

void rr_simulated_free(struct rr_simulated *result)
{
    rr_free(result->rank_s);
    rr_free(result->out);
    rr_free(result->in);
    *result = (struct rr_simulated){ 0 };
}

double rr_sim_least(enum rr_collective what, const struct rr_sim *s, double bytes)
{
    double h = s->hosts, g = s->per_host, vectors = 0;
    double rate = s->machine->rate;

    if (s->hosts == 1 || !(rate > 0))
        return 0;
    switch (what) {
    case RR_ALLREDUCE:
        vectors = 2 * (h - 1) / h;
        break;
    case RR_BROADCAST:
    case RR_REDUCE:
        vectors = 1;
        break;
    case RR_ALLGATHER:
    case RR_GATHER:
    case RR_REDUCE_SCATTER:
    case RR_SCATTER:
        vectors = (h - 1) * g;
        break;
    case RR_ALLTOALL:
        vectors = (h - 1) * g * g;
        break;
    default:
        break;
    }
    return vectors * bytes / rate;
}
