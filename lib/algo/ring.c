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
