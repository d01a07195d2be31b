/* SPDX-License-Identifier: Apache-2.0 */
/* Inside one host, collectives whose vectors have parts, and reduce: everybody puts what others want
 * where they can read it (its window, else its stage), says ARRIVED, awaits all, and takes what it
 * wants. One wait, and one more for a rank whose own buffer is read: it is the caller's again only when all
 * have LEFT it. The rules that keep stages right are those of shm.c. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

static int open_builder(const struct rr_layout *layout, int me, const char *name, struct rr_group *g,
                        struct rr_builder **b)
{
    if (layout->hosts != 1 || layout->ranks == 1)
        return RINGRED_EINVAL;
    RR_TRY(rr_group_all(layout, me, g));
    *b = rr_builder_new(g->n, me, name);
    return *b ? 0 : RINGRED_ENOMEM;
}

/* My parts for the others where they can read them, a step each. */
static struct rr_published publish_parts(struct rr_builder *b, const struct rr_group *g)
{
    int me = g->rank[g->mine], last = -1;
    struct rr_published in = { .first = -1 };
    struct rr_others others;

    rr_others_of(g, &others);
    rr_builder_stage(b, g->n);
    for (int i = 0; i < others.n; i++) {
        struct rr_span from = rr_part(RR_IN, me, others.rank[i]), to = rr_at(from, RR_STAGE, me);
        int copy = rr_add_copy(b, from, &to, 1, RR_PRIVATE_IN);
        if (last >= 0)
            rr_after(b, copy, last, 0);
        else
            in.first = copy;
        last = copy;
    }
    in.await = rr_shm_arrive(b, g, last);
    return in;
}

static struct rr_published publish_whole(struct rr_builder *b, const struct rr_group *g)
{
    struct rr_published in;

    in.first = rr_shm_copy_in(b, g, RR_PRIVATE_IN);
    in.await = rr_shm_arrive(b, g, in.first);
    return in;
}

/* The root of a gather or reduce: nobody reads its input. */
static struct rr_published publish_nothing(struct rr_builder *b, const struct rr_group *g)
{
    struct rr_published in;

    in.await = rr_shm_arrive(b, g, -1);
    in.first = in.await - 1; /* the signal */
    return in;
}

/* Copies one part for me from another's input, after step `after`. */
static int take(struct rr_builder *b, int from, int in_part, int me, int out_part, int after)
{
    struct rr_span out = rr_part(RR_OUT, me, out_part);
    int copy = rr_add_copy(b, rr_part(RR_IN, from, in_part), &out, 1, 0);

    rr_after(b, copy, after, 0);
    return copy;
}

/* I have read all that I want once step `last` is done; a rank whose own buffer was read does not end before
 * all have. */
static int leave(struct rr_builder *b, const struct rr_group *g, struct rr_published in, int last)
{
    struct rr_others others;

    rr_others_of(g, &others);
    int signal = rr_add_signal(b, RR_LEFT);
    int await = rr_add_farewell(b, others.rank, others.n);
    rr_after(b, signal, last, 0);
    rr_after(b, await, signal, 0);
    rr_after(b, in.first, last, W); /* and thereby the await of ARRIVED */
    return await;
}

/* Only the root reads: the others wait for it. */
static void leave_root(struct rr_builder *b, const struct rr_group *g, struct rr_published in, int root,
                       int last)
{
    int16_t reader = (int16_t)root;

    if (g->rank[g->mine] == root)
        rr_after(b, rr_add_signal(b, RR_LEFT), last, 0);
    else
        rr_after(b, rr_add_farewell(b, &reader, 1), last, 0);
    rr_after(b, in.first, last, W);
}

RR_BUILDER(rr_build_shm_allgather)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_others others;

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "shared allgather", &g, &b));
    struct rr_published in = publish_whole(b, &g);
    struct rr_span own = rr_part(RR_OUT, me, me);
    rr_add_copy(b, rr_span_whole(RR_IN, me), &own, 1, 0);
    rr_others_of(&g, &others);
    int last = in.await;
    for (int i = 0; i < others.n; i++)
        last = take(b, others.rank[i], 0, me, others.rank[i], last);
    leave(b, &g, in, last);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_shm_alltoall)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_others others;

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "shared alltoall", &g, &b));
    struct rr_published in = publish_parts(b, &g);
    struct rr_span own = rr_part(RR_OUT, me, me);
    rr_add_copy(b, rr_part(RR_IN, me, me), &own, 1, 0);
    rr_others_of(&g, &others);
    int last = in.await;
    for (int i = 0; i < others.n; i++)
        last = take(b, others.rank[i], me, me, others.rank[i], last);
    leave(b, &g, in, last);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_shm_reduce_scatter)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_span sources[RR_MOST], out = rr_span_whole(RR_OUT, me);

    (void)root; /* it has none */
    RR_TRY(open_builder(layout, me, "shared reduce-scatter", &g, &b));
    rr_builder_windowed(b);
    struct rr_published in = publish_parts(b, &g);
    for (int r = 0; r < g.n; r++)
        sources[r] = rr_part(RR_IN, r, me);
    int sum = rr_add_reduce(b, sources, g.n, &out, 1, RR_DIVIDE);
    rr_after(b, sum, in.await, 0);
    leave(b, &g, in, sum);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_shm_gather)
{
    struct rr_group g;
    struct rr_builder *b;

    RR_TRY(open_builder(layout, me, "shared gather", &g, &b));
    struct rr_published in = me == root ? publish_nothing(b, &g) : publish_whole(b, &g);
    int last = in.await;
    if (me == root) {
        struct rr_span own = rr_part(RR_OUT, me, me);
        rr_add_copy(b, rr_span_whole(RR_IN, me), &own, 1, 0);
    }
    for (int r = 0; r < g.n && me == root; r++)
        if (r != me)
            last = take(b, r, 0, me, r, last);
    leave_root(b, &g, in, root, last);
    return rr_plan_finish(b, plan);
}

/* The root sums everything. */
RR_BUILDER(rr_build_shm_reduce)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_span sources[RR_MOST], out = rr_span_whole(RR_OUT, me);

    RR_TRY(open_builder(layout, me, "shared reduce", &g, &b));
    struct rr_published in = me == root ? publish_nothing(b, &g) : publish_whole(b, &g);
    int last = in.await;
    for (int r = 0; r < g.n; r++)
        sources[r] = rr_span_whole(RR_IN, r);
    if (me == root) {
        last = rr_add_reduce(b, sources, g.n, &out, 1, RR_DIVIDE);
        rr_after(b, last, in.await, 0);
    }
    leave_root(b, &g, in, root, last);
    return rr_plan_finish(b, plan);
}

/* Everybody sums a block, into the root's output if that has a window, else into its own stage. */
RR_BUILDER(rr_build_shm_reduce_twoshot)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_span sources[RR_MOST], outs[2];
    struct rr_others others;

    RR_TRY(open_builder(layout, me, "shared two-shot reduce", &g, &b));
    struct rr_published in = rr_shm_publish(b, &g, g.n);
    struct rr_span block = rr_span_block(rr_span_whole(RR_IN, me), me, g.n);
    for (int r = 0; r < g.n; r++)
        sources[r] = rr_at(block, RR_IN, r);
    outs[0] = rr_at(block, RR_OUT, root);
    outs[1] = rr_at(block, RR_STAGE, me);
    int sum = rr_add_reduce(b, sources, g.n, outs, me == root ? 1 : 2, RR_DIVIDE);
    rr_after(b, sum, in.await, 0);
    rr_others_of(&g, &others);
    int signal = rr_add_signal(b, RR_REDUCED);
    int last = rr_add_await(b, RR_REDUCED, others.rank, others.n);
    rr_after(b, signal, sum, 0);
    rr_after(b, last, signal, 0);
    for (int i = 0; i < others.n && me == root; i++) {
        struct rr_span from = rr_span_block(rr_span_whole(RR_STAGE, others.rank[i]), others.rank[i], g.n);
        struct rr_span to = rr_at(from, RR_OUT, me);
        int copy = rr_add_copy(b, from, &to, 1, RR_PRIVATE_OUT);
        rr_after(b, copy, last, 0);
        last = copy;
    }
    /* the root says ARRIVED again only when all have REDUCED, so the others need not wait for themselves */
    rr_after(b, in.first, me == root ? last : in.await, W);
    return rr_plan_finish(b, plan);
}

/* The root's parts for the others; each takes its own. */
RR_BUILDER(rr_build_shm_scatter)
{
    struct rr_group g;
    struct rr_builder *b;
    struct rr_published in;

    RR_TRY(open_builder(layout, me, "shared scatter", &g, &b));
    if (me == root) {
        in = publish_parts(b, &g);
        struct rr_span out = rr_span_whole(RR_OUT, me);
        rr_add_copy(b, rr_part(RR_IN, me, me), &out, 1, 0);
        struct rr_others others;
        rr_others_of(&g, &others);
        rr_after(b, rr_add_farewell(b, others.rank, others.n), in.await, 0);
        rr_after(b, in.first, in.await, W);
        return rr_plan_finish(b, plan);
    }
    rr_builder_stage(b, g.n);
    in.first = rr_add_signal(b, RR_ARRIVED);
    struct rr_others others;
    rr_others_of(&g, &others);
    in.await = rr_add_await(b, RR_ARRIVED, others.rank, others.n);
    rr_after(b, in.await, in.first, 0);
    int copy = take(b, root, me, me, 0, in.await);
    rr_after(b, rr_add_signal(b, RR_LEFT), copy, 0);
    rr_after(b, in.first, copy, W);
    return rr_plan_finish(b, plan);
}
