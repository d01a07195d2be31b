/* SPDX-License-Identifier: Apache-2.0 */
/* The ring (Patarasuk, Yuan 2009): the vector in n blocks, everybody talks to its neighbours only.
 * In n-1 hops each block goes once round and gathers all summands, in n-1 more the sums go round. 2
 * (n-1) rounds of one block. The hops of the second half of a segment are interleaved with those of
 * the first half of the next (lag 1), so the link carries one while the other is being summed. Each
 * block is summed in another order, so this is not the canonical tree: it is for numerics=fast. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

struct ring {
    struct rr_builder *b;
    int n, me, left, right;
    int temp[2];        /* received, not yet added: hops take turns */
    int sends[RR_MOST]; /* of the first half */
    int sum[RR_MOST];   /* of the first half, hop by hop */
};

static struct rr_span block(const struct ring *r, enum rr_place place, int i)
{
    return rr_span_block(rr_span_whole(place, r->me), (i % r->n + r->n) % r->n, r->n);
}

/* Pass on the block that was summed last, add mine to the one that arrives. */
static void add_hop(struct ring *r, int h)
{
    struct rr_span mine = block(r, RR_IN, r->me - h - 1), out = block(r, RR_OUT, r->me - h - 1);
    struct rr_span both[2] = { rr_at(mine, RR_TEMP, r->temp[h % 2]), mine };

    int send = rr_add_send(r->b, r->right, h, block(r, h == 0 ? RR_IN : RR_OUT, r->me - h));
    int recv = rr_add_recv(r->b, r->left, h, both[0]);
    int sum = rr_add_reduce(r->b, both, 2, &out, 1, h == r->n - 2 ? RR_DIVIDE : 0);
    rr_after(r->b, sum, recv, 0);
    if (h > 0)
        rr_after(r->b, send, r->sum[h - 1], 0);
    if (h > 1)
        rr_after(r->b, recv, r->sum[h - 2], 0);
    r->sends[h] = send;
    r->sum[h] = sum;
}

/* Pass on the sum that arrived last, at first (h = 0) my own, whose step does not exist yet. */
static int pass_hop(struct ring *r, int h, int got)
{
    int send = rr_add_send(r->b, r->right, r->n - 1 + h, block(r, RR_OUT, r->me + 1 - h));
    int recv = rr_add_recv(r->b, r->left, r->n - 1 + h, block(r, RR_OUT, r->me - h));

    rr_lag(r->b, send, 1);
    rr_lag(r->b, recv, 1);
    if (h > 0)
        rr_after(r->b, send, got, 0);
    rr_after(r->b, recv, r->sends[h], 0); /* these bytes went to the right in hop h */
    return recv;
}

static void ring_steps(struct ring *r)
{
    int last = r->n - 2, got = 0;

    for (int i = 0; i < 2 && i <= last; i++)
        r->temp[i] = rr_builder_temp(r->b, block(r, RR_OUT, 0));
    for (int h = 0; h <= last; h++) {
        add_hop(r, h);
        got = pass_hop(r, h, got);
    }
    rr_after(r->b, r->sends[0] + 3, r->sum[last], 0); /* the first one to pass on */
    for (int h = 0; h < 2 && h <= last; h++)
        rr_after(r->b, r->sends[h] + 1, r->sum[last - (last - h) % 2], W);
}

RR_BUILDER(rr_build_ring)
{
    int n = layout->ranks;
    struct ring r = { .n = n, .me = me, .left = (me + n - 1) % n, .right = (me + 1) % n };

    (void)root; /* a sum has none */
    if (n == 1)
        return rr_alone("ring", plan);
    if (n > RR_MOST)
        return RINGRED_EINVAL;
    r.b = rr_builder_new(n, me, "ring");
    if (!r.b)
        return RINGRED_ENOMEM;
    ring_steps(&r);
    RR_TRY(rr_plan_finish(r.b, plan));
    (*plan)->tree = false;
    return 0;
}

/* Everybody passes on what it got last: n - 1 rounds of one vector, each byte once over each link. */
RR_BUILDER(rr_build_ring_allgather)
{
    int n = layout->ranks, got = -1;

    (void)root; /* it has none */
    if (n == 1)
        return RINGRED_EINVAL;
    struct rr_builder *b = rr_builder_new(n, me, "ring allgather");
    if (!b)
        return RINGRED_ENOMEM;
    struct rr_span out = rr_span_whole(RR_OUT, me), mine = rr_span_parts(out, me, 1);
    rr_add_copy(b, rr_span_whole(RR_IN, me), &mine, 1, 0);
    for (int h = 0; h < n - 1; h++) {
        struct rr_span had = rr_span_parts(out, (me - h + n) % n, 1);
        int send = rr_add_send(b, (me + 1) % n, h, h == 0 ? rr_span_whole(RR_IN, me) : had);
        int recv = rr_add_recv(b, (me + n - 1) % n, h, rr_span_parts(out, (me - h - 1 + n) % n, 1));
        if (got >= 0)
            rr_after(b, send, got, 0);
        got = recv;
    }
    return rr_plan_finish(b, plan);
}

/* Part p starts behind rank p and comes home with all summands: the first half of the ring above. */
RR_BUILDER(rr_build_ring_reduce_scatter)
{
    int n = layout->ranks, sum = -1;

    (void)root; /* it has none */
    if (n == 1 || n > RR_MOST)
        return RINGRED_EINVAL;
    struct rr_builder *b = rr_builder_new(n, me, "ring reduce-scatter");
    if (!b)
        return RINGRED_ENOMEM;
    struct rr_span whole = rr_span_whole(RR_IN, me), partial = whole;
    for (int h = 0; h < n - 1; h++) {
        int part = (me - h - 2 + 2 * n) % n; /* the part that arrives */
        struct rr_span mine = rr_span_parts(whole, part, 1);
        struct rr_span both[2] = { rr_at(whole, RR_TEMP, rr_builder_temp(b, whole)), mine };
        struct rr_span to = h == n - 2 ? rr_span_whole(RR_OUT, me)
                                       : rr_at(whole, RR_TEMP, rr_builder_temp(b, whole));
        struct rr_span from = h == 0 ? rr_span_parts(whole, (me + n - 1) % n, 1) : partial;
        int send = rr_add_send(b, (me + 1) % n, h, from);
        int recv = rr_add_recv(b, (me + n - 1) % n, h, both[0]);
        if (sum >= 0) {
            rr_after(b, send, sum, 0);
            rr_after(b, sum, send, W);
        }
        sum = rr_add_reduce(b, both, 2, &to, 1, h == n - 2 ? RR_DIVIDE : 0);
        rr_after(b, sum, recv, 0);
        rr_after(b, recv, sum, W);
        partial = to;
    }
    RR_TRY(rr_plan_finish(b, plan));
    (*plan)->tree = false;
    return 0;
}
