/* SPDX-License-Identifier: Apache-2.0 */
/* Sum over hosts: the vector is cut into slices, and each rank of a host sums its slices over the host through
 * shared memory, sums that over the hosts with the owners of the slice there (over links, directly), and
 * hands it to its host through shared memory. Each host sends 2 (H-1)/H of the vector, spread over its ranks,
 * as a flat two-shot over hosts would; between two hosts one round of whole slices does (the same bytes, one
 * round less).
 *
 *     2 hosts of 2:   0 1 | 2 3    slice 0: 0,1 in 0 and 2,3 in 2; 0 <> 2; to 1 and 3
 *                                  slice 1: 0,1 in 1 and 2,3 in 3; 1 <> 3; to 0 and 2
 *     2 and 1:        0 1 | 2      slice 0: 0,1 in 0; 0 <> 2; to 1
 *                                  slice 1: 0,1 in 1; 1 <> 2; to 0
 *
 * It evaluates the tree of the layout: the ranks of a host, then the hosts. That is the canonical tree where
 * hosts hold equal, contiguous, power-of-two blocks of ranks. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

struct hier {
    struct rr_builder *b;
    struct rr_hosts hosts;
    struct rr_group local, across; /* my host; the owners of the slice at hand on all hosts */
    struct rr_span outs[RR_MOST + 1];
    int n_outs;
    struct rr_span sums[RR_MOST]; /* my host's sum, in temps: of the block of each host, or whole */
    int ready[RR_MOST];           /* the step that makes it; -1: I am alone, it is my input */
    int temps;
    int written[2 * RR_MOST], n_written; /* steps that hand out my slices; room: see slice_sum */
};

/* Sums `part` of my slice over my host into a temp, from which it is sent on. */
static void sum_host(struct hier *h, struct rr_published in, int i, struct rr_span part)
{
    struct rr_span sources[RR_MOST];

    h->sums[i] = rr_at(part, RR_IN, h->local.rank[0]);
    h->ready[i] = -1;
    if (h->local.n == 1)
        return;
    for (int r = 0; r < h->local.n; r++)
        sources[r] = rr_at(part, RR_IN, h->local.rank[r]);
    h->sums[i] = rr_at(part, RR_TEMP, rr_builder_temp(h->b, part));
    h->temps++;
    h->ready[i] = rr_add_reduce(h->b, sources, h->local.n, &h->sums[i], 1, RR_PARTIAL);
    rr_after(h->b, h->ready[i], in.await, 0);
}

/* What is sent first is summed first, my own part last. */
static void sum_host_parts(struct hier *h, struct rr_published in, struct rr_span slice)
{
    int n = h->across.n;

    if (n == 2) {
        sum_host(h, in, 0, slice);
        return;
    }
    for (int j = 1; j <= n; j++) {
        int to = (h->across.mine + j) % n;
        sum_host(h, in, to, rr_span_block(slice, to, n));
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

static void sum_slice(struct hier *h, struct rr_published in, int slice)
{
    int me = h->local.rank[h->local.mine], n = h->hosts.n;
    bool alone = h->local.n == 1;
    struct rr_span block = rr_span_block(rr_span_whole(RR_OUT, me), slice, h->hosts.slices);

    for (int host = 0; host < n; host++)
        h->across.rank[host] = rr_host_rank(&h->hosts, host, slice);
    sum_host_parts(h, in, block);
    h->outs[0] = block;
    h->n_outs = alone ? 1 : rr_shm_outputs(&h->local, block, h->outs);
    struct rr_exchange e = { .group = &h->across,
                             .in = h->sums,
                             .ready = h->ready,
                             .outs = h->outs,
                             .n_outs = h->n_outs,
                             .flags = alone ? RR_DIVIDE : RR_DIVIDE | RR_PRIVATE_OUT,
                             .slot = 2 * slice };
    struct rr_exchanged x = n == 2 ? rr_direct_oneshot(h->b, &e) : rr_direct_twoshot(h->b, &e);
    h->temps += n - 1;
    if (alone)
        return;
    free_temps(h, &x);
    h->written[h->n_written++] = x.sum;
    for (int i = 0; i < x.recvs; i++)
        h->written[h->n_written++] = push(h, x.recv0 + 2 * i, (h->across.mine - i - 1 + n) % n);
}

/* Temps of the rank that has most of them. */
static int most_temps(const struct rr_hosts *h)
{
    int most = 0;

    for (int host = 0; host < h->n; host++) {
        int size = rr_host_size(h, host), slices = (h->slices + size - 1) / size;
        int sums = size == 1 ? 0 : h->n == 2 ? 1 : h->n;
        if (slices * (sums + h->n - 1) > most)
            most = slices * (sums + h->n - 1);
    }
    return most;
}

static void hier_steps(struct hier *h)
{
    int slices = h->hosts.slices, n = h->hosts.n;
    struct rr_published in = { .first = -1, .await = -1 };
    struct rr_span shape = rr_span_block(rr_span_whole(RR_OUT, 0), 0, slices);

    rr_builder_shared(h->b);
    if (h->local.n > 1)
        in = rr_shm_publish(h->b, &h->local, slices);
    for (int slice = h->local.mine; slice < slices; slice += h->local.n)
        sum_slice(h, in, slice);
    rr_pad_temps(h->b, n == 2 ? shape : rr_span_block(shape, 0, n), h->temps, most_temps(&h->hosts));
    if (h->local.n == 1)
        return;
    int signal = rr_shm_collect(h->b, &h->local, slices, in, n > 2);
    for (int i = 0; i < h->n_written; i++)
        rr_after(h->b, signal, h->written[i], 0);
}

RR_BUILDER(rr_build_hierarchical)
{
    struct hier h = { .n_outs = 0 };

    if (layout->hosts == 1)
        return rr_build_shm_twoshot(layout, me, root, plan);
    if (layout->hosts == layout->ranks)
        return rr_build_twoshot(layout, me, root, plan);
    RR_TRY(rr_hosts_of(layout, &h.hosts));
    RR_TRY(rr_group_host(layout, me, &h.local));
    h.across.n = layout->hosts;
    h.across.mine = layout->host[me];
    h.b = rr_builder_new(layout->ranks, me, "hierarchical");
    if (!h.b)
        return RINGRED_ENOMEM;
    hier_steps(&h);
    return rr_plan_finish(h.b, plan);
}
