/* SPDX-License-Identifier: Apache-2.0 */
/* Recursive doubling (Thakur, Rabenseifner, Gropp 2005) with a fold for the ranks above a power of
 * two. Ranks that hold the sum of 2^k leaves swap with the neighbour that holds the next 2^k, lower
 * ranks' sum first: exactly the canonical tree. With q the largest power of two <= n, the first 2
 * (n - q) ranks pair up beforehand; the odd one of a pair gets the result at the end. ceil(log2 n)
 * rounds (two more with a fold), one whole vector each.
 *
 *     5 ranks:   (0+1)  2   3   4   ->  (01)+2  3+4  ->  all; then 0 tells 1 */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

enum { SLOT_FOLD, SLOT_UNFOLD, SLOT_ROUND };

/* What has been summed so far, and the step that made it (-1: my input). */
struct so_far {
    struct rr_span at;
    int step;
};

/* Adds what `peer` has; `sends`: it gets what I have. */
static void meet(struct rr_builder *b, int me, int peer, int slot, bool sends, unsigned flags,
                 struct so_far *have)
{
    struct rr_span out = rr_span_whole(RR_OUT, me);
    struct rr_span theirs = rr_at(out, RR_TEMP, rr_builder_temp(b, out));
    struct rr_span both[2] = { me < peer ? have->at : theirs, me < peer ? theirs : have->at };

    int send = sends ? rr_add_send(b, peer, slot, have->at) : -1;
    int recv = rr_add_recv(b, peer, slot, theirs);
    int sum = rr_add_reduce(b, both, 2, &out, 1, flags);
    rr_after(b, sum, recv, 0);
    rr_after(b, recv, sum, W);
    if (sends) {
        rr_after(b, sum, send, 0); /* the sum overwrites what is being sent */
        if (have->step >= 0)
            rr_after(b, send, have->step, 0);
    } else if (have->step >= 0) {
        rr_after(b, sum, have->step, 0);
    }
    *have = (struct so_far){ .at = out, .step = sum };
}

/* The odd one of a pair: hands over its input and waits for the result. */
static void odd_one(struct rr_builder *b, int me, int q)
{
    int send = rr_add_send(b, me - 1, SLOT_FOLD, rr_span_whole(RR_IN, me));
    int recv = rr_add_recv(b, me - 1, SLOT_UNFOLD, rr_span_whole(RR_OUT, me));

    rr_after(b, recv, send, 0);
    for (int k = 0; 1 << k <= q; k++)
        rr_unused_temps(b, rr_span_whole(RR_OUT, me), 1);
}

static void one_of_q(struct rr_builder *b, int me, int q, int rem)
{
    bool paired = me < 2 * rem;
    int node = paired ? me / 2 : me - rem;
    struct so_far have = { .at = rr_span_whole(RR_IN, me), .step = -1 };

    if (paired)
        meet(b, me, me + 1, SLOT_FOLD, false, 0, &have);
    else if (rem > 0)
        rr_unused_temps(b, rr_span_whole(RR_OUT, me), 1);
    for (int k = 0; 1 << k < q; k++) {
        int other = node ^ 1 << k;
        int peer = other < rem ? 2 * other : other + rem;
        meet(b, me, peer, SLOT_ROUND + k, true, 2 << k < q ? 0 : RR_DIVIDE, &have);
    }
    if (paired)
        rr_after(b, rr_add_send(b, me + 1, SLOT_UNFOLD, have.at), have.step, 0);
}

RR_BUILDER(rr_build_doubling)
{
    int n = layout->ranks, q = 1;

    (void)root; /* a sum has none */
    if (n == 1)
        return rr_alone("recursive doubling", plan);
    struct rr_builder *b = rr_builder_new(n, me, "recursive doubling");
    if (!b)
        return RINGRED_ENOMEM;

    while (2 * q <= n)
        q *= 2;
    if (me < 2 * (n - q) && me % 2 == 1)
        odd_one(b, me, q);
    else
        one_of_q(b, me, q, n - q);
    return rr_plan_finish(b, plan);
}
