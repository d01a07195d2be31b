/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast and barrier over hosts: one rank of each host (the leader) speaks over links, the
 * others through shared memory. Broadcast: a binomial tree of leaders, each hands segments to its
 * host and down the tree; 1 + ceil(log2 hosts) rounds. Barrier: leaders wait for their host,
 * disseminate, and tell their host; 2 + ceil(log2 hosts) rounds. */
#include "algo/parts.h"

/* The leader of each host: its lowest rank, but on the root's host the root (root -1: none). */
static void leaders_of(const struct rr_layout *layout, int root, int16_t *leader)
{
    for (int r = layout->ranks - 1; r >= 0; r--)
        leader[layout->host[r]] = (int16_t)r;
    if (root >= 0)
        leader[layout->host[root]] = (int16_t)root;
}

static int index_in(const struct rr_group *g, int rank)
{
    int i = 0;

    while (g->rank[i] != rank)
        i++;
    return i;
}

struct cast {
    const struct rr_layout *layout;
    int me, root;
    const int16_t *leader;
};

/* Hosts are members of the tree, counted from the root's. */
static int leader_of_member(const struct cast *c, int member)
{
    return c->leader[(member + c->layout->host[c->root]) % c->layout->hosts];
}

static void lead(struct rr_builder *b, const struct cast *c, const struct rr_group *g)
{
    int hosts = c->layout->hosts, first = c->layout->host[c->root];
    struct rr_binomial t = rr_binomial_of(hosts, (c->layout->host[c->me] - first + hosts) % hosts);
    struct rr_span in = rr_span_whole(RR_IN, c->me), out = rr_span_whole(RR_OUT, c->me);
    bool is_root = c->me == c->root;

    int got = is_root ? -1 : rr_add_recv(b, leader_of_member(c, t.parent), 0, out);
    for (int i = 0; i < t.children; i++) {
        int send = rr_add_send(b, leader_of_member(c, t.child[i]), 0, is_root ? in : out);
        if (got >= 0)
            rr_after(b, send, got, 0);
    }
    if (g->n > 1)
        rr_shm_serve(b, g, is_root ? in : out, is_root, got);
    else if (is_root)
        rr_add_copy(b, in, &out, 1, 0);
}

RR_BUILDER(rr_build_hier_broadcast)
{
    struct rr_group g;
    int16_t leader[RR_MOST];

    if (layout->hosts > RR_MOST)
        return RINGRED_EINVAL;
    if (layout->ranks == 1)
        return rr_alone("hierarchical broadcast", plan);
    RR_TRY(rr_group_host(layout, me, &g));
    struct rr_builder *b = rr_builder_new(layout->ranks, me, "hierarchical broadcast");
    if (!b)
        return RINGRED_ENOMEM;

    rr_builder_shared(b);
    leaders_of(layout, root, leader);
    struct cast c = { .layout = layout, .me = me, .root = root, .leader = leader };
    int mine = leader[layout->host[me]];
    if (me == mine)
        lead(b, &c, &g);
    else
        rr_shm_fetch(b, &g, index_in(&g, mine), mine == root);
    return rr_plan_finish(b, plan);
}

/* Nobody but the leader needs to see all ARRIVED: its LEFT says that it has. Its own tells the
 * others early that they are in the same call. */
RR_BUILDER(rr_build_hier_barrier)
{
    struct rr_group g;
    int16_t leader[RR_MOST];

    (void)root; /* a barrier has none */
    if (layout->hosts > RR_MOST)
        return RINGRED_EINVAL;
    RR_TRY(rr_group_host(layout, me, &g));
    struct rr_builder *b = rr_builder_new(layout->ranks, me, "hierarchical barrier");
    if (!b)
        return RINGRED_ENOMEM;

    leaders_of(layout, -1, leader);
    int host = layout->host[me], ready = -1;
    if (g.n > 1)
        ready = rr_add_signal(b, RR_ARRIVED);
    if (me != leader[host]) {
        int await = rr_add_await(b, RR_ARRIVED, &leader[host], 1);
        rr_after(b, await, ready, 0);
        rr_after(b, rr_add_await(b, RR_LEFT, &leader[host], 1), await, 0);
        return rr_plan_finish(b, plan);
    }
    if (g.n > 1) { /* the leader is the lowest rank, so the others follow it */
        int await = rr_add_await(b, RR_ARRIVED, g.rank + 1, g.n - 1);
        rr_after(b, await, ready, 0);
        ready = await;
    }
    ready = rr_disseminate(b, leader, layout->hosts, host, ready);
    if (g.n > 1)
        rr_after(b, rr_add_signal(b, RR_LEFT), ready, 0);
    return rr_plan_finish(b, plan);
}
