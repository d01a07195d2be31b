/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over links, everybody with everybody.
 *
 * One-shot: send the vector to all, receive theirs, sum. One round, n - 1 vectors each way.
 * Two-shot: send to each rank its block, sum my block of all, send that to all, receive the
 * others'. Two rounds, 2 (n-1)/n vectors each way: the least possible. The second round of a
 * segment goes after the first round of the next (lag 1), so a link never idles while a block is
 * summed. In turn j everybody sends to the j-th behind it and receives from the j-th before it:
 *
 *     ranks 0 1 2 3      j = 1: 0>1 1>2 2>3 3>0      j = 2: 0>2 1>3 2>0 3>1      ...
 *
 * All summands of a block meet in one place, so any number of ranks gives the canonical tree. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

/* The j-th member behind me (j < 0: before me). */
static int member(const struct rr_group *g, int j)
{
    return (g->mine + j + g->n) % g->n;
}

/* Sums what is in `sources`, whose members but mine were received by the steps recv0, recv0 + 2,
 * ...; their temps can be received into again when the sum is done. */
static int sum_received(struct rr_builder *b, const struct rr_exchange *e,
                        const struct rr_span *sources, const struct rr_span *outs, int recv0)
{
    int n = e->group->n;
    int sum = rr_add_reduce(b, sources, n, outs, e->n_outs, e->flags);

    for (int i = 0; i < n - 1; i++) {
        rr_after(b, sum, recv0 + 2 * i, 0);
        rr_after(b, recv0 + 2 * i, sum, W);
    }
    return sum;
}

/* First round: to each what is for it (`twoshot`: its block, else all), from each what is for me,
 * into temps that join my own summand in `sources`. Returns its first step. */
static int scatter(struct rr_builder *b, const struct rr_exchange *e, bool twoshot,
                   struct rr_span *sources)
{
    const struct rr_group *g = e->group;
    struct rr_span mine = e->in[twoshot ? g->mine : 0];
    int first = 0;

    sources[g->mine] = mine;
    for (int j = 1; j < g->n; j++) {
        int to = member(g, j), from = member(g, -j), block = twoshot ? to : 0;
        sources[from] = rr_at(mine, RR_TEMP, rr_builder_temp(b, mine));
        int send = rr_add_send(b, g->rank[to], e->slot, e->in[block]);
        rr_add_recv(b, g->rank[from], e->slot, sources[from]);
        if (e->ready[block] >= 0)
            rr_after(b, send, e->ready[block], 0);
        if (j == 1)
            first = send;
    }
    return first;
}

struct rr_exchanged rr_direct_oneshot(struct rr_builder *b, const struct rr_exchange *e)
{
    struct rr_exchanged x = { .sends = e->group->n - 1 };
    struct rr_span sources[RR_MOST];

    x.send0 = scatter(b, e, false, sources);
    x.sum = sum_received(b, e, sources, e->outs, x.send0 + 1);
    if (e->ready[0] >= 0)
        rr_after(b, x.sum, e->ready[0], 0);
    if (e->in[0].place == RR_IN) /* in place, the sum overwrites what is being sent */
        for (int i = 0; i < x.sends; i++)
            rr_after(b, x.sum, x.send0 + 2 * i, 0);
    return x;
}

/* Second round: my block of the sum to all, theirs from all. Returns its first step. */
static int gather(struct rr_builder *b, const struct rr_exchange *e, const struct rr_exchanged *x)
{
    const struct rr_group *g = e->group;
    int first = 0;

    for (int j = 1; j < g->n; j++) {
        int to = member(g, j), from = member(g, -j);
        int send = rr_add_send(b, g->rank[to], e->slot + 1, rr_span_block(e->outs[0], g->mine, g->n));
        int recv = rr_add_recv(b, g->rank[from], e->slot + 1, rr_span_block(e->outs[0], from, g->n));
        rr_lag(b, send, 1);
        rr_lag(b, recv, 1);
        rr_after(b, send, x->sum, 0);
        if (e->in[from].place ==
            RR_IN) /* in place, the bytes that went to `from` in the first round */
            rr_after(b, recv, x->send0 + 2 * (g->n - j - 1), 0);
        if (j == 1)
            first = send;
    }
    return first;
}

struct rr_exchanged rr_direct_twoshot(struct rr_builder *b, const struct rr_exchange *e)
{
    const struct rr_group *g = e->group;
    struct rr_exchanged x = { .sends = g->n - 1, .recvs = g->n - 1 };
    struct rr_span sources[RR_MOST], outs[RR_MOST + 1];

    x.send0 = scatter(b, e, true, sources);
    for (int i = 0; i < e->n_outs; i++)
        outs[i] = rr_span_block(e->outs[i], g->mine, g->n);
    x.sum = sum_received(b, e, sources, outs, x.send0 + 1);
    if (e->ready[g->mine] >= 0)
        rr_after(b, x.sum, e->ready[g->mine], 0);
    x.recv0 = gather(b, e, &x) + 1;
    return x;
}

/* ---- plans ---- */

static int build(const struct rr_layout *layout, int me, const char *name, bool twoshot,
                 struct rr_plan **plan)
{
    struct rr_group g;
    struct rr_span in[RR_MOST], out = rr_span_whole(RR_OUT, me);
    int ready[RR_MOST];
    struct rr_exchange e = {
        .group = &g, .in = in, .ready = ready, .outs = &out, .n_outs = 1, .flags = RR_DIVIDE
    };

    RR_TRY(rr_group_all(layout, me, &g));
    if (g.n == 1)
        return rr_alone(name, plan);
    for (int i = 0; i < g.n; i++) {
        in[i] = rr_span_block(rr_span_whole(RR_IN, me), twoshot ? i : 0, twoshot ? g.n : 1);
        ready[i] = -1;
    }
    struct rr_builder *b = rr_builder_new(g.n, me, name);
    if (!b)
        return RINGRED_ENOMEM;
    if (twoshot)
        (void)rr_direct_twoshot(b, &e); /* nothing follows it */
    else
        (void)rr_direct_oneshot(b, &e);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_oneshot)
{
    (void)root; /* a sum has none */
    return build(layout, me, "direct one-shot", false, plan);
}

RR_BUILDER(rr_build_twoshot)
{
    (void)root; /* a sum has none */
    return build(layout, me, "direct two-shot", true, plan);
}
