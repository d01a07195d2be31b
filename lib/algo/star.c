/* SPDX-License-Identifier: Apache-2.0 */
/* All by way of one rank: everybody sends its vector to rank 0, which sums, or gathers, and sends the result
 * back. Two rounds and 2 (n-1) messages in all, the fewest there can be; rank 0 carries n - 1 vectors, or
 * n (n - 1), each way. For small vectors where ranks outnumber CPUs, so that each message's cost in CPU time counts
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

static void point(struct rr_builder *b, int n, int me)
{
    int send = rr_add_send(b, 0, 0, rr_span_whole(RR_IN, me));
    int recv = rr_add_recv(b, 0, 1, rr_span_whole(RR_OUT, me));

    rr_unused_temps(b, rr_span_whole(RR_IN, me), n - 1);
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
        point(b, n, me);
    return rr_plan_finish(b, plan);
}

/* ---- allgather ---- */

/* All parts, there after step `after`, from the temp to my output. The temp can be written again, from step
 * `first` on, when they have been copied. In place, my part is what step `sent` sends (-1: none does). */
static void spread(struct rr_builder *b, int n, int me, int temp, const int *after, int first, int sent)
{
    for (int r = 0; r < n; r++) {
        struct rr_span out = rr_span_parts(rr_span_whole(RR_OUT, me), r, 1);
        int copy = rr_add_copy(b, rr_temp_parts(temp, r, 1), &out, 1, 0);
        rr_lag(b, copy, me == 0 ? 0 : 1);
        rr_after(b, copy, after[r], 0);
        if (r == me && sent >= 0)
            rr_after(b, copy, sent, 0);
        rr_after(b, first, copy, W);
    }
}

/* Rank 0 gathers all vectors in a temp and sends everybody all of them in one message. */
RR_BUILDER(rr_build_star_allgather)
{
    int n = layout->ranks, there[RR_MOST];

    (void)root; /* it has none */
    if (n == 1 || n > RR_MOST)
        return RINGRED_EINVAL;
    struct rr_builder *b = rr_builder_new(n, me, "star allgather");
    if (!b)
        return RINGRED_ENOMEM;
    struct rr_span in = rr_span_whole(RR_IN, me);
    int temp = rr_builder_temp(b, rr_span_parts(in, 0, n));
    if (me > 0) {
        int send = rr_add_send(b, 0, 0, in);
        int recv = rr_add_recv(b, 0, 1, rr_temp_parts(temp, 0, n));
        rr_lag(b, recv, 1);
        for (int r = 0; r < n; r++)
            there[r] = recv;
        spread(b, n, me, temp, there, recv, send);
        return rr_plan_finish(b, plan);
    }
    struct rr_span mine = rr_temp_parts(temp, 0, 1);
    there[0] = rr_add_copy(b, in, &mine, 1, 0);
    for (int r = 1; r < n; r++) {
        there[r] = rr_add_recv(b, r, 0, rr_temp_parts(temp, r, 1));
        rr_after(b, there[r], there[0], 0);
    }
    for (int r = 1; r < n; r++) {
        int send = rr_add_send(b, r, 1, rr_temp_parts(temp, 0, n));
        for (int q = 0; q < n; q++)
            rr_after(b, send, there[q], 0);
        rr_after(b, there[0], send, W);
    }
    spread(b, n, me, temp, there, there[0], -1);
    return rr_plan_finish(b, plan);
}
