/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast inside one host: the leader puts its vector where all can read it, everybody copies.
 * Each rank reads and writes one vector, the leader copies one more if its input has no window. The
 * rules that keep stages right are those of shm.c; a reader that has its data still waits for
 * ARRIVED of the other readers before its plan ends, because its next call may write a piece of its
 * own stage that they read in the call before this one. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

void rr_shm_serve(struct rr_builder *b, const struct rr_group *g, struct rr_span from, bool windows,
                  int after)
{
    int me = g->rank[g->mine];
    struct rr_span stage = rr_span_whole(RR_STAGE, me);
    struct rr_others others;

    rr_others_of(g, &others);
    int copy = rr_add_copy(b, from, &stage, 1, windows ? RR_PRIVATE_IN : 0);
    int signal = rr_add_signal(b, RR_ARRIVED);
    if (windows) {
        struct rr_span out = rr_at(from, RR_OUT, me);
        rr_add_copy(b, from, &out, 1, 0); /* my own output, while the others read */
    }
    int await = rr_add_await(b, RR_ARRIVED, others.rank, others.n);
    if (after >= 0)
        rr_after(b, copy, after, 0);
    rr_after(b, signal, copy, 0);
    rr_after(b, await, signal, 0);
    rr_after(b, copy, await, W);
    if (windows) /* my input is the caller's again only when nobody reads it */
        rr_after(b, rr_add_farewell(b, others.rank, others.n), await, 0);
}

static void await_readers(struct rr_builder *b, const struct rr_group *g, int leader)
{
    int16_t rank[RR_MOST];
    int n = 0;

    for (int i = 0; i < g->n; i++)
        if (i != leader && i != g->mine)
            rank[n++] = g->rank[i];
    if (n > 0)
        rr_add_await(b, RR_ARRIVED, rank, n);
}

void rr_shm_fetch(struct rr_builder *b, const struct rr_group *g, int leader, bool windows)
{
    struct rr_span out = rr_span_whole(RR_OUT, g->rank[g->mine]);

    int signal = rr_add_signal(b, RR_ARRIVED);
    int await = rr_add_await(b, RR_ARRIVED, &g->rank[leader], 1);
    int copy = rr_add_copy(b, rr_at(out, windows ? RR_IN : RR_STAGE, g->rank[leader]), &out, 1, 0);
    rr_after(b, await, signal, 0);
    rr_after(b, copy, await, 0);
    rr_after(b, signal, copy, W);
    if (windows)
        rr_after(b, rr_add_signal(b, RR_LEFT), copy, 0);
    await_readers(b, g, leader);
}

RR_BUILDER(rr_build_shm_broadcast)
{
    struct rr_group g;

    if (layout->hosts != 1)
        return RINGRED_EINVAL;
    RR_TRY(rr_group_all(layout, me, &g));
    if (g.n == 1)
        return rr_alone("shared broadcast", plan);
    struct rr_builder *b = rr_builder_new(g.n, me, "shared broadcast");
    if (!b)
        return RINGRED_ENOMEM;

    if (me == root)
        rr_shm_serve(b, &g, rr_span_whole(RR_IN, me), true, -1);
    else
        rr_shm_fetch(b, &g, root, true);
    return rr_plan_finish(b, plan);
}
