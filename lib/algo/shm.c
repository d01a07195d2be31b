/* SPDX-License-Identifier: Apache-2.0 */
/* Sums inside one host, through memory that all its ranks can reach.
 *
 * A rank's input is read in its window if it has one, else in its stage, a ring of pieces of shared
 * memory that segments use in turn. Two rules keep the stages right, within a call and across
 * calls; every plan with counters keeps both:
 *   1. a rank says ARRIVED for segment s only when it has read what it wants of segment s - W;
 *   2. before its plan ends, and before it writes its piece of segment s + W, a rank has seen
 * ARRIVED of everybody for segment s. A stage has at least 2W pieces, so the piece that segment s +
 * W goes to was last used by s - W or earlier, which by then nobody reads any more.
 *
 * One-shot: everybody copies its input to its stage, waits for ARRIVED of all, sums all stages.
 * One wait; each rank reads n - 1 vectors.
 * Two-shot: everybody sums its block of all inputs and puts it into all outputs; blocks that could
 * not be put (no window) are fetched from the owners' stages. Two waits; with windows each rank
 * reads and writes about one vector, without it copies one in and one out as well. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW
#define COPY_APART                                                                              \
    8 /* up to so many ranks my own block is left out of the copy, for more it is not worth the \
         steps */

/* ---- parts ---- */

static int copy_in_blocks(struct rr_builder *b, const struct rr_group *g, int slices, int *last)
{
    int me = g->rank[g->mine], first = -1;

    for (int i = 0; i < slices; i++) {
        int slice = (g->mine + i) % slices;
        struct rr_span from = rr_span_block(rr_span_whole(RR_IN, me), slice, slices);
        struct rr_span to = rr_at(from, RR_STAGE, me);
        if (slice % g->n == g->mine)
            continue;
        int copy = rr_add_copy(b, from, &to, 1, RR_PRIVATE_IN);
        if (first < 0)
            first = copy;
        else
            rr_after(b, copy, *last, 0);
        *last = copy;
    }
    return first;
}

int rr_shm_copy_in(struct rr_builder *b, const struct rr_group *g, unsigned flags)
{
    int me = g->rank[g->mine];
    struct rr_span stage = rr_span_whole(RR_STAGE, me);

    return rr_add_copy(b, rr_span_whole(RR_IN, me), &stage, 1, flags);
}

int rr_shm_arrive(struct rr_builder *b, const struct rr_group *g, int after)
{
    struct rr_others others;

    rr_others_of(g, &others);
    int signal = rr_add_signal(b, RR_ARRIVED);
    int await = rr_add_await(b, RR_ARRIVED, others.rank, others.n);
    if (after >= 0)
        rr_after(b, signal, after, 0);
    rr_after(b, await, signal, 0);
    return await;
}

struct rr_published rr_shm_publish(struct rr_builder *b, const struct rr_group *g, int slices)
{
    struct rr_published in;
    int last = -1;

    if (slices <= COPY_APART)
        in.first = copy_in_blocks(b, g, slices, &last);
    else
        last = in.first = rr_shm_copy_in(b, g, RR_PRIVATE_IN);
    in.await = rr_shm_arrive(b, g, last);
    return in;
}

int rr_shm_outputs(const struct rr_group *g, struct rr_span shape, struct rr_span *spans)
{
    int me = g->rank[g->mine], n = 0;
    struct rr_others others;

    rr_others_of(g, &others);
    spans[n++] = rr_at(shape, RR_OUT, me);
    for (int i = 0; i < others.n; i++)
        spans[n++] = rr_at(shape, RR_OUT, others.rank[i]);
    spans[n++] = rr_at(shape, RR_STAGE, me);
    return n;
}

static int await_owners(struct rr_builder *b, const struct rr_group *g, int slices)
{
    int16_t owner[RR_MOST];
    struct rr_others others;
    int n = 0;

    rr_others_of(g, &others);
    for (int i = 0; i < others.n; i++)
        if (others.index[i] < slices)
            owner[n++] = others.rank[i];
    return rr_add_await(b, RR_REDUCED, owner, n);
}

int rr_shm_collect(struct rr_builder *b, const struct rr_group *g, int slices, struct rr_published in, int lag)
{
    int me = g->rank[g->mine], signal = g->mine < slices ? rr_add_signal(b, RR_REDUCED) : -1;
    int before = await_owners(b, g, slices);

    rr_lag(b, before, lag);
    if (signal >= 0) {
        rr_lag(b, signal, lag);
        rr_after(b, before, signal, 0);
    } else {
        rr_after(b, before, in.await, 0); /* there it meets them */
    }
    for (int i = 0; i < slices; i++) {
        int slice = (g->mine + i) % slices;
        struct rr_span whole = rr_span_whole(RR_STAGE, g->rank[slice % g->n]);
        struct rr_span from = rr_span_block(whole, slice, slices);
        struct rr_span to = rr_at(from, RR_OUT, me);
        if (slice % g->n == g->mine)
            continue;
        int copy = rr_add_copy(b, from, &to, 1, RR_PRIVATE_OUT);
        rr_lag(b, copy, lag);
        rr_after(b, copy, before, 0);
        before = copy;
    }
    rr_after(b, in.first, before, W); /* and thereby both awaits */
    return signal;
}

/* ---- plans ---- */

static int one_host(const struct rr_layout *layout, int me, struct rr_group *g)
{
    return layout->hosts == 1 ? rr_group_all(layout, me, g) : RINGRED_EINVAL;
}

RR_BUILDER(rr_build_shm_oneshot)
{
    struct rr_group g;
    struct rr_span sources[RR_MOST], out = rr_span_whole(RR_OUT, me);

    (void)root; /* a sum has none */
    RR_TRY(one_host(layout, me, &g));
    if (g.n == 1)
        return rr_alone("shared one-shot", plan);
    struct rr_builder *b = rr_builder_new(g.n, me, "shared one-shot");
    if (!b)
        return RINGRED_ENOMEM;

    /* Always through the stage: I may overwrite my input, in place, before all have read it. */
    int copy = rr_shm_copy_in(b, &g, 0);
    int await = rr_shm_arrive(b, &g, copy);
    for (int r = 0; r < g.n; r++)
        sources[r] = rr_span_whole(r == me ? RR_IN : RR_STAGE, r);
    int sum = rr_add_reduce(b, sources, g.n, &out, 1, RR_DIVIDE);
    rr_after(b, sum, await, 0);
    rr_after(b, copy, sum, W); /* and thereby the await */
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_shm_twoshot)
{
    struct rr_group g;
    struct rr_span sources[RR_MOST], outs[RR_MOST + 1];

    (void)root; /* a sum has none */
    RR_TRY(one_host(layout, me, &g));
    if (g.n == 1)
        return rr_alone("shared two-shot", plan);
    struct rr_builder *b = rr_builder_new(g.n, me, "shared two-shot");
    if (!b)
        return RINGRED_ENOMEM;

    rr_builder_windowed(b);
    struct rr_published in = rr_shm_publish(b, &g, g.n);
    struct rr_span block = rr_span_block(rr_span_whole(RR_IN, me), me, g.n);
    for (int r = 0; r < g.n; r++)
        sources[r] = rr_at(block, RR_IN, r);
    int n_outs = rr_shm_outputs(&g, block, outs);
    int sum = rr_add_reduce(b, sources, g.n, outs, n_outs, RR_DIVIDE | RR_PRIVATE_OUT);
    rr_after(b, sum, in.await, 0);
    rr_after(b, rr_shm_collect(b, &g, g.n, in, 0), sum, 0);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_shm_barrier)
{
    struct rr_group g;

    (void)root; /* a barrier has none */
    RR_TRY(one_host(layout, me, &g));
    struct rr_builder *b = rr_builder_new(g.n, me, "shared barrier");
    if (!b)
        return RINGRED_ENOMEM;
    if (g.n > 1)
        rr_shm_arrive(b, &g, -1);
    return rr_plan_finish(b, plan);
}
