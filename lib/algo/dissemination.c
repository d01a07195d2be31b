/* SPDX-License-Identifier: Apache-2.0 */
/* Barrier by dissemination (Hensgen, Finkel, Manber 1988): in round k everybody tells the 2^k-th
 * behind it that it and all it has heard of are there. ceil(log2 n) rounds of empty messages. */
#include "algo/parts.h"

int rr_disseminate(struct rr_builder *b, const int16_t *rank, int n, int mine, int ready)
{
    for (int k = 0; 1 << k < n; k++) {
        int to = (mine + (1 << k)) % n, from = (mine - (1 << k) + n) % n;
        int to_rank = rank ? rank[to] : to, from_rank = rank ? rank[from] : from;
        int me = rank ? rank[mine] : mine;
        int send = rr_add_send(b, to_rank, k, rr_span_whole(RR_IN, me));
        int recv = rr_add_recv(b, from_rank, k, rr_span_whole(RR_OUT, me));
        if (ready >= 0)
            rr_after(b, send, ready, 0);
        if (ready >= 0)
            rr_after(b, recv, ready, 0);
        ready = recv;
    }
    return ready;
}

RR_BUILDER(rr_build_dissemination)
{
    struct rr_builder *b = rr_builder_new(layout->ranks, me, "dissemination barrier");

    (void)root; /* a barrier has none */
    if (!b)
        return RINGRED_ENOMEM;
    (void)rr_disseminate(b, NULL, layout->ranks, me, -1); /* nothing follows it */
    return rr_plan_finish(b, plan);
}
