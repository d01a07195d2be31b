/* SPDX-License-Identifier: Apache-2.0 */
/* ceil(log2 n) rounds instead of n - 1, for small vectors (Bruck, Ho, Kipnis, Upfal, Weathersby 1997).
 * What travels together lies together in temps, in an order that is the same on every rank counted
 * from itself.
 *
 * Allgather: temp part i is the vector of rank me + i; in round k everybody has 2^k of them and
 * fetches as many more from the rank 2^k behind it.
 * Alltoall: temp part i is what goes i ranks on; in round k all parts whose number has bit k go 2^k
 * ranks on. A part passes through at most log2 n ranks, so more bytes travel than pairwise. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

static int new_temp(struct rr_builder *b, int me, int parts)
{
    return rr_builder_temp(b, rr_span_parts(rr_span_whole(RR_IN, me), 0, parts));
}

static int copy(struct rr_builder *b, struct rr_span from, struct rr_span to)
{
    return rr_add_copy(b, from, &to, 1, 0);
}

RR_BUILDER(rr_build_bruck_allgather)
{
    int n = layout->ranks, last = -1;

    (void)root; /* it has none */
    if (n == 1 || n > RR_MOST)
        return RINGRED_EINVAL;
    struct rr_builder *b = rr_builder_new(n, me, "Bruck allgather");
    if (!b)
        return RINGRED_ENOMEM;

    int all = new_temp(b, me, n), first = copy(b, rr_span_whole(RR_IN, me), rr_temp_parts(all, 0, 1));
    int brought[RR_MOST] = { first };
    for (int have = 1, round = 0; have < n; have *= 2, round++) {
        int more = have < n - have ? have : n - have;
        int send = rr_add_send(b, (me - have + n) % n, round, rr_temp_parts(all, 0, more));
        int recv = rr_add_recv(b, (me + have) % n, round, rr_temp_parts(all, have, more));
        for (int i = 0; i < more; i++)
            rr_after(b, send, brought[i], 0); /* one of them for all that came together */
        rr_after(b, recv, first, 0);
        rr_after(b, first, send, W);
        for (int i = have; i < have + more; i++)
            brought[i] = recv;
    }
    for (int i = 0; i < n; i++) {
        last = copy(b, rr_temp_parts(all, i, 1), rr_span_parts(rr_span_whole(RR_OUT, me), (me + i) % n, 1));
        rr_after(b, last, brought[i], 0);
        rr_after(b, first, last, W);
    }
    return rr_plan_finish(b, plan);
}

struct swap {
    struct rr_builder *b;
    int n, me;
    int all, out, in; /* temps: what goes i ranks on; what is sent and received in one round */
    int done;         /* the step after which `all` is up to date */
    int first;        /* the first step of a segment */
    int packed[RR_MOST]; /* the steps that packed the runs of this round */
};

/* Runs of parts with bit `d`, between `all` and a temp where they lie side by side: packs them after step
 * s->done, or unpacks them after step `recv`, each when it has been packed. Returns the last step. */
static int repack(struct swap *s, int d, bool pack, int recv)
{
    int at = 0, after = pack ? s->done : recv;

    for (int i = d, k = 0; i < s->n; i += 2 * d, k++) {
        int run = i + d <= s->n ? d : s->n - i;
        struct rr_span here = rr_temp_parts(s->all, i, run), there = rr_temp_parts(pack ? s->out : s->in, at, run);
        int step = pack ? copy(s->b, here, there) : copy(s->b, there, here);
        rr_after(s->b, step, after, 0);
        if (pack)
            s->packed[k] = step;
        else
            rr_after(s->b, step, s->packed[k], 0);
        after = step;
        at += run;
    }
    return after;
}

static int parts_with(int n, int d)
{
    int parts = 0;

    for (int i = 0; i < n; i++)
        parts += (i & d) != 0;
    return parts;
}

static void swap_round(struct swap *s, int d, int round)
{
    int parts = parts_with(s->n, d);
    int packed = repack(s, d, true, -1);
    int send = rr_add_send(s->b, (s->me + d) % s->n, round, rr_temp_parts(s->out, 0, parts));
    int recv = rr_add_recv(s->b, (s->me - d + s->n) % s->n, round, rr_temp_parts(s->in, 0, parts));

    rr_after(s->b, send, packed, 0);
    rr_after(s->b, recv, round == 0 ? s->first : s->done, 0); /* what came before has been unpacked */
    s->done = repack(s, d, false, recv);
    rr_after(s->b, s->done, send, 0); /* before anything is packed again */
}

RR_BUILDER(rr_build_bruck_alltoall)
{
    int n = layout->ranks;
    struct swap s = { .n = n, .me = me, .first = -1 };

    (void)root; /* it has none */
    if (n == 1 || n > RR_MOST)
        return RINGRED_EINVAL;
    s.b = rr_builder_new(n, me, "Bruck alltoall");
    if (!s.b)
        return RINGRED_ENOMEM;

    s.all = new_temp(s.b, me, n);
    s.out = new_temp(s.b, me, (n + 1) / 2);
    s.in = new_temp(s.b, me, (n + 1) / 2);
    for (int i = 0; i < n; i++) {
        struct rr_span in = rr_span_parts(rr_span_whole(RR_IN, me), (me + i) % n, 1);
        int step = copy(s.b, in, rr_temp_parts(s.all, i, 1));
        if (s.first < 0)
            s.first = step;
        else
            rr_after(s.b, step, s.done, 0);
        s.done = step;
    }
    for (int d = 1, round = 0; d < n; d *= 2, round++)
        swap_round(&s, d, round);
    for (int i = 0; i < n; i++) { /* what has come i ranks is from rank me - i */
        struct rr_span out = rr_span_parts(rr_span_whole(RR_OUT, me), (me - i + n) % n, 1);
        int step = copy(s.b, rr_temp_parts(s.all, i, 1), out);
        rr_after(s.b, step, s.done, 0);
        s.done = step;
    }
    rr_after(s.b, s.first, s.done, W);
    return rr_plan_finish(s.b, plan);
}
