/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a simulated world: their plans, who waits for whom, whose CPUs they share. */
#include "sim/world.h"

/* ---- plans ---- */

/* For each step those that depend on it, as lists one behind the other (a counting sort). */
static bool find_users(struct rr_actor *a)
{
    const struct rr_plan *p = a->plan;

    a->user0 = rr_alloc(p->steps + 2u, sizeof *a->user0);
    a->user = rr_alloc(p->deps + 1u, sizeof *a->user);
    if (!a->user0 || !a->user)
        return false;
    for (uint32_t x = 0; x < p->steps; x++)
        for (uint32_t i = 0; i < p->step[x].deps; i++)
            a->user0[p->dep[p->step[x].dep + i].step + 2]++;
    for (uint32_t x = 2; x < p->steps + 2; x++)
        a->user0[x] += a->user0[x - 1];
    for (uint32_t x = 0; x < p->steps; x++)
        for (uint32_t i = 0; i < p->step[x].deps; i++)
            a->user[a->user0[p->dep[p->step[x].dep + i].step + 1]++] = (uint16_t)x;
    return true;
}

static int make_actor(struct rr_world *w, const struct rr_layout *layout, int r)
{
    struct rr_actor *a = &w->actor[r];

    RR_TRY(rr_algo_table[w->sim->algo].build(layout, r, w->sim->root, &a->plan));
    size_t steps = a->plan->steps;
    a->done = rr_alloc(steps + 1, sizeof *a->done);
    a->cursor = rr_alloc(steps + 1, sizeof *a->cursor);
    a->state = rr_alloc(steps + 1, 1);
    a->ready = rr_alloc(steps / 64 + 1, sizeof *a->ready);
    if (!a->done || !a->cursor || !a->state || !a->ready || !find_users(a))
        return RINGRED_ENOMEM;
    a->host = r / w->sim->per_host;
    a->cpus = &w->cpus[w->cpu_groups == 1 ? 0 : a->host];
    w->togo[r] = steps * w->segments;
    w->left += steps * w->segments;
    w->steps += steps;
    return 0;
}

static int make_actors(struct rr_world *w)
{
    int16_t *host = rr_alloc((size_t)w->ranks, sizeof *host);
    struct rr_layout layout = { .ranks = w->ranks, .hosts = w->sim->hosts, .host = host };
    int rc = host ? 0 : RINGRED_ENOMEM;

    for (int r = 0; r < w->ranks && host; r++)
        host[r] = (int16_t)(r / w->sim->per_host);
    for (int r = 0; r < w->ranks && rc == 0; r++)
        rc = make_actor(w, &layout, r);
    rr_free(host);
    return rc;
}

/* ---- CPUs ---- */

static int make_cpus(struct rr_world *w)
{
    const struct rr_machine *m = w->machine;
    int count = m->all_cpus > 0 ? m->all_cpus : m->cpus;

    w->cpu_groups = m->all_cpus > 0 ? 1 : w->sim->hosts;
    w->cpus = rr_alloc((size_t)w->cpu_groups, sizeof *w->cpus);
    for (int g = 0; g < w->cpu_groups && w->cpus; g++) {
        int ranks = w->cpu_groups == 1 ? w->ranks : w->sim->per_host;
        w->cpus[g].count = count > 0 && count < ranks ? count : ranks;
        w->cpus[g].queue = rr_alloc((size_t)w->ranks, sizeof *w->cpus[g].queue);
        if (!w->cpus[g].queue)
            return RINGRED_ENOMEM;
    }
    return w->cpus ? 0 : RINGRED_ENOMEM;
}

/* ---- the whole ---- */

static void count_segments(struct rr_world *w)
{
    const struct rr_sim *s = w->sim;

    w->segments = s->count == 0 ? 1 : (s->count - 1) / s->segment + 1;
    w->elements[0] = s->segment;
    w->elements[1] = s->count - (w->segments - 1) * s->segment;
}

static int make_world(struct rr_world *w)
{
    size_t n = (size_t)w->ranks;

    w->actor = rr_alloc(n, sizeof *w->actor);
    w->way = rr_alloc(n * n, sizeof(struct rr_way *));
    w->end_ps = rr_alloc(n, sizeof *w->end_ps);
    w->togo = rr_alloc(n, sizeof *w->togo);
    if (!w->actor || !w->way || !w->end_ps || !w->togo)
        return RINGRED_ENOMEM;
    RR_TRY(make_cpus(w));
    RR_TRY(rr_net_init(&w->net, w->sim));
    RR_TRY(make_actors(w));
    w->look_room = w->steps + 1;
    w->look = rr_alloc(w->look_room, sizeof *w->look);
    return w->look ? 0 : RINGRED_ENOMEM;
}

int rr_world_init(struct rr_world *w, const struct rr_sim *sim, ringred_error *why)
{
    *w = (struct rr_world){ .sim = sim, .machine = sim->machine, .ranks = sim->hosts * sim->per_host };
    count_segments(w);
    int rc = make_world(w);
    if (rc == RINGRED_EINVAL)
        return rr_fail(why, rc, -1, 0, "%s cannot be done on %d hosts with %d ranks each",
                       rr_algo_table[sim->algo].name, sim->hosts, sim->per_host);
    return rc < 0 ? rr_fail(why, rc, -1, 0, "no memory to simulate %d ranks", w->ranks) : 0;
}

static void free_actor(struct rr_actor *a)
{
    rr_plan_free(a->plan);
    rr_free(a->done);
    rr_free(a->cursor);
    rr_free(a->state);
    rr_free(a->user0);
    rr_free(a->user);
    rr_free(a->ready);
}

void rr_world_done(struct rr_world *w)
{
    size_t ways = w->way ? (size_t)w->ranks * (size_t)w->ranks : 0;

    for (size_t i = 0; i < ways; i++)
        if (w->way[i]) {
            rr_letters_free(w->way[i]->head);
            rr_free(w->way[i]);
        }
    for (int r = 0; r < w->ranks && w->actor; r++)
        free_actor(&w->actor[r]);
    for (int g = 0; g < w->cpu_groups && w->cpus; g++)
        rr_free(w->cpus[g].queue);
    rr_free(w->actor);
    rr_free(w->way);
    rr_free(w->end_ps);
    rr_free(w->togo);
    rr_free(w->cpus);
    rr_free(w->look);
    rr_net_done(&w->net);
    rr_events_done(&w->events);
    *w = (struct rr_world){ 0 };
}

struct rr_way *rr_world_way(struct rr_world *w, int from, int to)
{
    struct rr_way **at = &w->way[(size_t)from * (size_t)w->ranks + (size_t)to];
    int out = w->actor[from].host, in = w->actor[to].host;

    if (*at)
        return *at;
    *at = rr_alloc(1, sizeof **at);
    if (!*at) {
        w->failed = true;
        return NULL;
    }
    **at = (struct rr_way){ .from = (int16_t)from, .to = (int16_t)to, .out = (int16_t)(out == in ? -1 : out),
                            .in = (int16_t)(out == in ? -1 : w->sim->hosts + in), .slot = -1, .sending = -1, .receiving = -1,
                            .allowed = w->machine->buffer_bytes };
    return *at;
}

double rr_world_bytes(const struct rr_world *w, int rank, uint32_t span, size_t segment)
{
    const struct rr_span *s = &w->actor[rank].plan->span[span];
    struct rr_range whole = { 0, w->elements[segment + 1 == w->segments] };
    struct rr_range r = rr_block_range(whole, s, w->sim->element_bytes);

    return (double)((r.hi - r.lo) * w->sim->element_bytes * s->parts);
}
