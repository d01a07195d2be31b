/* SPDX-License-Identifier: Apache-2.0 */
/* Over links, everything straight to where it belongs: one round, every byte once on the wire.
 *
 *     allgather       my vector to all; theirs from all
 *     gather          my vector to the root
 *     scatter         from the root its part for me
 *     reduce-scatter  to each rank my part for it; the sum of what came for me
 *     alltoall        to each rank my part for it
 *     reduce          my vector to the root, which sums; in two rounds everybody sums a block
 *
 * In turn j everybody sends to the j-th behind it and receives from the j-th before it, so that no
 * rank is everybody's target. All summands of an element meet in one place: the canonical tree. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

static int behind(int n, int me, int j)
{
    return (me + j + n) % n;
}

static int open_builder(const struct rr_layout *layout, int me, const char *name, struct rr_builder **b)
{
    if (layout->ranks > RR_MOST)
        return RINGRED_EINVAL;
    *b = rr_builder_new(layout->ranks, me, name);
    return *b ? 0 : RINGRED_ENOMEM;
}

/* My own part goes from my input to my output. */
static int keep_own(struct rr_builder *b, int me, int in_part, int out_part)
{
    struct rr_span out = rr_part(RR_OUT, me, out_part);

    return rr_add_copy(b, rr_part(RR_IN, me, in_part), &out, 1, 0);
}

RR_BUILDER(rr_build_allgather)
{
    int n = layout->ranks;
    struct rr_builder *b;

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "direct allgather", &b));
    keep_own(b, me, 0, me);
    for (int j = 1; j < n; j++) {
        int to = behind(n, me, j), from = behind(n, me, -j);
        rr_add_send(b, to, 0, rr_span_whole(RR_IN, me));
        rr_add_recv(b, from, 0, rr_part(RR_OUT, me, from));
    }
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_gather)
{
    int n = layout->ranks;
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "direct gather", &b));
    if (me != root)
        rr_add_send(b, root, 0, rr_span_whole(RR_IN, me));
    else
        keep_own(b, me, 0, me);
    for (int j = 1; j < n && me == root; j++)
        rr_add_recv(b, behind(n, me, -j), 0, rr_part(RR_OUT, me, behind(n, me, -j)));
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_scatter)
{
    int n = layout->ranks;
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "direct scatter", &b));
    if (me != root)
        rr_add_recv(b, root, 0, rr_span_whole(RR_OUT, me));
    else
        keep_own(b, me, me, 0);
    for (int j = 1; j < n && me == root; j++)
        rr_add_send(b, behind(n, me, j), 0, rr_part(RR_IN, me, behind(n, me, j)));
    return rr_plan_finish(b, plan);
}

/* Receives the summands of the others into temps beside mine and sums them into `out`. Returns the sum;
 * recv[r] is the step that brought rank r's. */
static int sum_of_all(struct rr_builder *b, int n, int me, struct rr_span mine, struct rr_span out,
                      int *recv)
{
    struct rr_span sources[RR_MOST];

    sources[me] = mine;
    for (int j = 1; j < n; j++) {
        int from = behind(n, me, -j);
        struct rr_span temp = rr_span_parts(mine, 0, 1);
        sources[from] = rr_at(temp, RR_TEMP, rr_builder_temp(b, temp));
        recv[from] = rr_add_recv(b, from, 0, sources[from]);
    }
    int sum = rr_add_reduce(b, sources, n, &out, 1, RR_DIVIDE);
    for (int r = 0; r < n; r++)
        if (r != me) {
            rr_after(b, sum, recv[r], 0);
            rr_after(b, recv[r], sum, W);
        }
    return sum;
}

RR_BUILDER(rr_build_reduce_scatter)
{
    int n = layout->ranks, recv[RR_MOST];
    struct rr_builder *b;

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "direct reduce-scatter", &b));
    for (int j = 1; j < n; j++)
        rr_add_send(b, behind(n, me, j), 0, rr_part(RR_IN, me, behind(n, me, j)));
    sum_of_all(b, n, me, rr_part(RR_IN, me, me), rr_span_whole(RR_OUT, me), recv);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_reduce)
{
    int n = layout->ranks, recv[RR_MOST];
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "direct reduce", &b));
    if (me == root)
        sum_of_all(b, n, me, rr_span_whole(RR_IN, me), rr_span_whole(RR_OUT, me), recv);
    else
        rr_add_send(b, root, 0, rr_span_whole(RR_IN, me));
    rr_pad_temps(b, rr_span_whole(RR_IN, me), me == root ? n - 1 : 0, n - 1);
    return rr_plan_finish(b, plan);
}

/* Second round at the root: the others' blocks come to my output, where in place the blocks lie that
 * went to them in the first round. */
static void collect_blocks(struct rr_builder *b, int n, int me, const int *send)
{
    for (int j = 1; j < n; j++) {
        int from = behind(n, me, -j);
        int recv = rr_add_recv(b, from, 1, rr_span_block(rr_span_whole(RR_OUT, me), from, n));
        rr_lag(b, recv, 1);
        rr_after(b, recv, send[from], 0);
    }
}

RR_BUILDER(rr_build_reduce_twoshot)
{
    int n = layout->ranks, recv[RR_MOST], send[RR_MOST];
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "two-shot reduce", &b));
    struct rr_span mine = rr_span_block(rr_span_whole(RR_IN, me), me, n);
    struct rr_span out = rr_at(mine, RR_OUT, me);
    for (int j = 1; j < n; j++) {
        int to = behind(n, me, j);
        send[to] = rr_add_send(b, to, 0, rr_span_block(rr_span_whole(RR_IN, me), to, n));
    }
    if (me != root)
        out = rr_at(mine, RR_TEMP, rr_builder_temp(b, mine));
    int sum = sum_of_all(b, n, me, mine, out, recv);
    if (me == root) {
        collect_blocks(b, n, me, send);
    } else {
        int on = rr_add_send(b, root, 1, out);
        rr_lag(b, on, 1);
        rr_after(b, on, sum, 0);
        rr_after(b, sum, on, W);
    }
    rr_pad_temps(b, mine, me == root ? n - 1 : n, n > 1 ? n : 0); /* a rank alone has no scratch */
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_alltoall)
{
    int n = layout->ranks, kept[RR_MOST];
    struct rr_span keep[RR_MOST];
    struct rr_builder *b;

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "pairwise alltoall", &b));
    keep_own(b, me, me, me);
    for (int j = 1; j < n; j++) { /* in place, what is received lies where this is sent from */
        int to = behind(n, me, j);
        struct rr_span in = rr_part(RR_IN, me, to), temp = rr_span_parts(in, 0, 1);
        temp = rr_at(temp, RR_TEMP, rr_builder_temp(b, temp));
        kept[to] = rr_add_copy(b, in, &temp, 1, RR_IN_PLACE);
        keep[to] = rr_at(in, RR_KEPT, temp.rank);
    }
    for (int j = 1; j < n; j++) {
        int to = behind(n, me, j), from = behind(n, me, -j);
        int send = rr_add_send(b, to, 0, keep[to]);
        int recv = rr_add_recv(b, from, 0, rr_part(RR_OUT, me, from));
        rr_after(b, send, kept[to], 0);
        rr_after(b, kept[to], send, W);
        rr_after(b, recv, kept[from], 0);
    }
    return rr_plan_finish(b, plan);
}

/* A large broadcast: the root deals out blocks, everybody hands its block on to all. */
RR_BUILDER(rr_build_broadcast_twoshot)
{
    int n = layout->ranks, got = -1;
    struct rr_span out = rr_span_whole(RR_OUT, me);
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "two-shot broadcast", &b));
    if (me == root)
        rr_add_copy(b, rr_span_whole(RR_IN, me), &out, 1, 0);
    else
        got = rr_add_recv(b, root, 0, rr_span_block(out, me, n));
    for (int j = 1; j < n && me == root; j++) {
        int to = behind(n, me, j);
        rr_add_send(b, to, 0, rr_span_block(rr_span_whole(RR_IN, me), to, n));
    }
    for (int j = 1; j < n; j++) {
        int to = behind(n, me, j), from = behind(n, me, -j);
        if (to != root) {
            int send = rr_add_send(b, to, 1, rr_span_block(rr_at(out, got < 0 ? RR_IN : RR_OUT, me), me, n));
            rr_lag(b, send, 1);
            if (got >= 0)
                rr_after(b, send, got, 0);
        }
        if (me != root)
            rr_lag(b, rr_add_recv(b, from, 1, rr_span_block(out, from, n)), 1);
    }
    return rr_plan_finish(b, plan);
}
