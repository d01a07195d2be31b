/* SPDX-License-Identifier: Apache-2.0 */
/* Sum at one rank: everybody sends its vector to rank 0, which sums and sends the result back. Two
 * rounds and 2 (n-1) messages in all, the fewest there can be; rank 0 carries n - 1 vectors each
 * way. For small vectors where ranks outnumber CPUs, so that each message's cost in CPU time counts
 * and nothing runs beside anything else. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

static void centre(struct rr_builder *b, int n)
{
    struct rr_span in = rr_span_whole(RR_IN, 0), out = rr_span_whole(RR_OUT, 0), sources[RR_MOST];

    sources[0] = in;
    for (int r = 1; r < n; r++) {
        sources[r] = rr_at(in, RR_TEMP, rr_builder_temp(b, in));
        (void)rr_add_recv(b, r, 0, sources[r]); /* step r - 1 */
    }
    int sum = rr_add_reduce(b, sources, n, &out, 1, RR_DIVIDE);
    for (int r = 1; r < n; r++) {
        rr_after(b, sum, r - 1, 0);
        rr_after(b, r - 1, sum, W);
        rr_after(b, rr_add_send(b, r, 1, out), sum, 0);
    }
}

static void point(struct rr_builder *b, int me)
{
    int send = rr_add_send(b, 0, 0, rr_span_whole(RR_IN, me));
    int recv = rr_add_recv(b, 0, 1, rr_span_whole(RR_OUT, me));

    rr_lag(b, recv, 1);
    rr_after(b, recv, send, 0); /* in place, these are the bytes that were sent */
}

RR_BUILDER(rr_build_star)
{
    int n = layout->ranks;

    (void)root; /* a sum has none */
    if (n == 1)
        return rr_alone("star", plan);
    if (n > RR_MOST)
        return RINGRED_EINVAL;
    struct rr_builder *b = rr_builder_new(n, me, "star");
    if (!b)
        return RINGRED_ENOMEM;
    if (me == 0)
        centre(b, n);
    else
        point(b, me);
    return rr_plan_finish(b, plan);
}
