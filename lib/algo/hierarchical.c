/* SPDX-License-Identifier: Apache-2.0 */
/* Sum over hosts of equal size: each of the L ranks of a host sums its block over the host through
 * shared memory, sums that over the hosts with the ranks of the same place there (over links,
 * directly), and hands it to its host through shared memory. Each rank sends 2 (H-1)/H of its
 * block, so the host's link carries what a flat two-shot over hosts would; between two hosts one
 * round of whole blocks does (the same bytes, one round less).
 *
 *     2 hosts of 2:   0 1 | 2 3    block 0: 0,1 in 0 and 2,3 in 2; 0 <> 2; to 1 and 3
 *                                  block 1: 0,1 in 1 and 2,3 in 3; 1 <> 3; to 0 and 2
 *
 * A host's sum is a subtree of the canonical tree only if hosts hold equal, contiguous,
 * power-of-two blocks of ranks; other layouts are refused. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

struct hier {
    struct rr_builder *b;
    struct rr_group local, across; /* my host; the ranks of my place on all hosts */
    struct rr_span outs[RR_MOST + 1];
    int n_outs;
    struct rr_span sums[RR_MOST]; /* my host's sum, in temps: of the block of each host, or whole */
    int ready[RR_MOST];           /* the step that makes it */
};

static bool layout_is_even(const struct rr_layout *layout)
{
    int each = layout->ranks / layout->hosts;

    if (layout->ranks % layout->hosts != 0 || (each & (each - 1)) != 0)
        return false;
    for (int r = 0; r < layout->ranks; r++)
        if (layout->host[r] != r / each)
            return false;
    return true;
}

static int across_group(const struct rr_layout *layout, int me, struct rr_group *g)
{
    int each = layout->ranks / layout->hosts;

    if (layout->hosts > RR_MOST)
        return RINGRED_EINVAL;
    g->n = layout->hosts;
    g->mine = me / each;
    for (int h = 0; h < g->n; h++)
        g->rank[h] = (int16_t)(h * each + me % each);
    return 0;
}

/* Sums `part` of my block over my host into a temp, from which it is sent on. */
static void sum_host(struct hier *h, struct rr_published in, int i, struct rr_span part)
{
    struct rr_span sources[RR_MOST];

    for (int r = 0; r < h->local.n; r++)
        sources[r] = rr_at(part, RR_IN, h->local.rank[r]);
    h->sums[i] = rr_at(part, RR_TEMP, rr_builder_temp(h->b, part));
    h->ready[i] = rr_add_reduce(h->b, sources, h->local.n, &h->sums[i], 1, RR_PARTIAL);
    rr_after(h->b, h->ready[i], in.await, 0);
}

/* What is sent first is summed first, my own part last. */
static void sum_host_parts(struct hier *h, struct rr_published in, struct rr_span block)
{
    int n = h->across.n;

    if (n == 2) {
        sum_host(h, in, 0, block);
        return;
    }
    for (int j = 1; j <= n; j++) {
        int to = (h->across.mine + j) % n;
        sum_host(h, in, to, rr_span_block(block, to, n));
    }
}

/* A temp can be summed into again when it has been sent and added up. */
static void free_temps(struct hier *h, const struct rr_exchanged *x)
{
    int n = h->across.n;

    for (int i = 0; i < x->sends; i++)
        rr_after(h->b, h->ready[n == 2 ? 0 : (h->across.mine + 1 + i) % n], x->send0 + 2 * i, W);
    rr_after(h->b, h->ready[n == 2 ? 0 : h->across.mine], x->sum, W);
}

/* What came from another host goes to my host. A sum of one summand is a copy that, unlike COPY, is
 * left out of the stage when everybody has a window. */
static int push(struct hier *h, int recv, int member)
{
    struct rr_span from = rr_span_block(h->outs[0], member, h->across.n), to[RR_MOST + 1];

    for (int i = 1; i < h->n_outs; i++)
        to[i] = rr_at(from, h->outs[i].place, h->outs[i].rank);
    int step = rr_add_reduce(h->b, &from, 1, to + 1, h->n_outs - 1, RR_PRIVATE_OUT);
    rr_lag(h->b, step, 1);
    rr_after(h->b, step, recv, 0);
    return step;
}

static void hier_steps(struct hier *h)
{
    int me = h->local.rank[h->local.mine], n = h->across.n, pushed[RR_MOST];
    struct rr_published in = rr_shm_publish(h->b, &h->local);
    struct rr_span block = rr_span_block(rr_span_whole(RR_OUT, me), h->local.mine, h->local.n);

    sum_host_parts(h, in, block);
    h->n_outs = rr_shm_outputs(&h->local, block, h->outs);
    struct rr_exchange e = { .group = &h->across,
                             .in = h->sums,
                             .ready = h->ready,
                             .outs = h->outs,
                             .n_outs = h->n_outs,
                             .flags = RR_DIVIDE | RR_PRIVATE_OUT };
    struct rr_exchanged x = n == 2 ? rr_direct_oneshot(h->b, &e) : rr_direct_twoshot(h->b, &e);
    free_temps(h, &x);

    for (int i = 0; i < x.recvs; i++)
        pushed[i] = push(h, x.recv0 + 2 * i, (h->across.mine - i - 1 + n) % n);
    int signal = rr_shm_collect(h->b, &h->local, in, x.recvs > 0);
    rr_after(h->b, signal, x.sum, 0);
    for (int i = 0; i < x.recvs; i++)
        rr_after(h->b, signal, pushed[i], 0);
}

RR_BUILDER(rr_build_hierarchical)
{
    struct hier h = { .n_outs = 0 };

    if (!layout_is_even(layout))
        return RINGRED_EINVAL;
    if (layout->hosts == 1)
        return rr_build_shm_twoshot(layout, me, root, plan);
    if (layout->hosts == layout->ranks)
        return rr_build_twoshot(layout, me, root, plan);
    RR_TRY(rr_group_host(layout, me, &h.local));
    RR_TRY(across_group(layout, me, &h.across));
    h.b = rr_builder_new(layout->ranks, me, "hierarchical");
    if (!h.b)
        return RINGRED_ENOMEM;
    hier_steps(&h);
    return rr_plan_finish(h.b, plan);
}
