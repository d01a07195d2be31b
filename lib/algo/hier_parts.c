/* SPDX-License-Identifier: Apache-2.0 */
/* Over hosts, collectives whose vectors have parts, and reduce: everything crosses the wire once for each host
 * that it goes to or comes from, and ranks of a host share the work in turn.
 *
 *     allgather       my vector to one rank of each other host, which puts it where its mates can read it
 *     reduce-scatter  the sum over my host of each part that is mine to handle, to the part's owner, who sums over
 *                     hosts
 *     reduce          the sum over my host of each slice that is mine, to the root, which sums over hosts
 *
 * The rank at place p of a host deals with the rank at place p of another one; places are counted round, so
 * where a host has fewer ranks, each deals with several. Sums have the tree of the layout, as those of
 * hierarchical.c. The rules that keep stages right are those of shm.c. */
#include "algo/parts.h"

#define W RR_PLAN_WINDOW

struct parts {
    struct rr_builder *b;
    const struct rr_layout *layout;
    struct rr_hosts hosts;
    struct rr_group local;
    int me, host, place;
    bool alone; /* no mates */
};

static int open_parts(struct parts *p, const struct rr_layout *layout, int me, const char *name)
{
    *p = (struct parts){ .layout = layout, .me = me, .host = layout->host[me] };
    if (layout->hosts == 1 || layout->hosts == layout->ranks)
        return RINGRED_EINVAL;
    RR_TRY(rr_hosts_of(layout, &p->hosts));
    RR_TRY(rr_group_host(layout, me, &p->local));
    p->place = p->local.mine;
    p->alone = p->local.n == 1;
    p->b = rr_builder_new(layout->ranks, me, name);
    if (!p->b)
        return RINGRED_ENOMEM;
    rr_builder_shared(p->b);
    return 0;
}

/* The j-th host behind mine, before mine. */
static int host_at(const struct parts *p, int j)
{
    return (p->host + j + p->hosts.n) % p->hosts.n;
}

/* Who deals with `rank` on a host. */
static int16_t partner(const struct parts *p, int host, int rank)
{
    return rr_host_rank(&p->hosts, host, p->hosts.place[rank]);
}

static bool is_mate(const struct parts *p, int rank)
{
    return p->layout->host[rank] == p->host;
}

/* Ranks of other hosts that the rank at this place of a host deals with. */
static int dealt_with(const struct parts *p, int host, int place)
{
    int n = 0;

    for (int r = 0; r < p->layout->ranks; r++)
        n += p->layout->host[r] != host && p->hosts.place[r] % rr_host_size(&p->hosts, host) == place;
    return n;
}

/* ---- allgather ---- */

/* Which part of its host's stages holds what came from a rank: 0 is the stage's owner's own vector. */
static int stage_part(const struct parts *p, int rank)
{
    int owner = partner(p, p->host, rank), part = 1;

    for (int r = 0; r < rank; r++)
        part += !is_mate(p, r) && partner(p, p->host, r) == owner;
    return part;
}

/* The same on all ranks. A host's first place deals with the most. */
static int stage_parts(const struct parts *p)
{
    int most = 0;

    for (int host = 0; host < p->hosts.n; host++) {
        int n = dealt_with(p, host, 0);
        if (rr_host_size(&p->hosts, host) > 1 && n > most)
            most = n;
    }
    return 1 + most;
}

/* Everything that comes to me. recv[r]: the step that brings what rank r has put in; -1: a mate takes that. */
static void receive_parts(struct parts *p, struct rr_published in, int *recv)
{
    for (int r = 0; r < p->layout->ranks; r++)
        recv[r] = -1;
    for (int j = 1; j < p->hosts.n; j++) {
        int host = host_at(p, -j);
        for (int i = p->place; i < rr_host_size(&p->hosts, host); i += p->local.n) {
            int from = rr_host_rank(&p->hosts, host, i);
            struct rr_span to = p->alone ? rr_part(RR_OUT, p->me, from)
                                         : rr_part(RR_STAGE, p->me, stage_part(p, from));
            recv[from] = rr_add_recv(p->b, from, 0, to);
            if (!p->alone)
                rr_after(p->b, recv[from], in.await, W);
        }
    }
}

static int take(struct parts *p, struct rr_span from, int part, int after)
{
    struct rr_span out = rr_part(RR_OUT, p->me, part);
    int copy = rr_add_copy(p->b, from, &out, 1, 0);

    rr_after(p->b, copy, after, 0);
    return copy;
}

/* Waits until mates have what came to them from other hosts. Starts after step `ready`. */
static int await_received(struct parts *p, int ready)
{
    int16_t rank[RR_MOST];
    struct rr_others others;
    int n = 0;

    rr_others_of(&p->local, &others);
    for (int i = 0; i < others.n; i++)
        if (dealt_with(p, p->host, others.index[i]) > 0)
            rank[n++] = others.rank[i];
    if (n == 0)
        return ready;
    int await = rr_add_await(p->b, RR_REDUCED, rank, n);
    rr_after(p->b, await, ready, 0);
    return await;
}

/* What came to me (mine), or to my mates; one step after the other, from `last` on. */
static int take_received(struct parts *p, const int *recv, bool mine, int last)
{
    for (int r = 0; r < p->layout->ranks; r++) {
        if (is_mate(p, r) || (recv[r] >= 0) != mine)
            continue;
        last = take(p, rr_part(RR_STAGE, partner(p, p->host, r), stage_part(p, r)), r, last);
        if (mine)
            rr_after(p->b, last, recv[r], 0);
    }
    return last;
}

/* What mates have put in, and then what came to me and them from other hosts. */
static void take_parts(struct parts *p, struct rr_published in, const int *recv)
{
    struct rr_others others;
    int last = in.await;

    if (dealt_with(p, p->host, p->place) > 0) {
        int signal = rr_add_signal(p->b, RR_REDUCED);
        for (int r = 0; r < p->layout->ranks; r++)
            if (recv[r] >= 0)
                rr_after(p->b, signal, recv[r], 0);
    }
    rr_others_of(&p->local, &others);
    for (int i = 0; i < others.n; i++)
        last = take(p, rr_part(RR_IN, others.rank[i], 0), others.rank[i], last);
    int left = rr_add_signal(p->b, RR_LEFT);
    rr_after(p->b, left, last, 0);
    last = take_received(p, recv, true, last);
    last = take_received(p, recv, false, await_received(p, last));
    rr_after(p->b, in.first, last, W);
    rr_after(p->b, rr_add_farewell(p->b, others.rank, others.n), left, 0);
}

RR_BUILDER(rr_build_hier_allgather)
{
    struct rr_published in = { .first = -1, .await = -1 };
    int recv[RR_MOST];
    struct parts p;

    (void)root; /* it has none */
    RR_TRY(open_parts(&p, layout, me, "hierarchical allgather"));
    struct rr_span own = rr_part(RR_OUT, me, me);
    rr_builder_stage(p.b, stage_parts(&p));
    if (!p.alone) {
        in.first = rr_shm_copy_in(p.b, &p.local, RR_PRIVATE_IN);
        in.await = rr_shm_arrive(p.b, &p.local, in.first);
    }
    for (int j = 1; j < p.hosts.n; j++)
        rr_add_send(p.b, partner(&p, host_at(&p, j), me), 0, rr_span_whole(RR_IN, me));
    rr_add_copy(p.b, rr_span_whole(RR_IN, me), &own, 1, 0);
    receive_parts(&p, in, recv);
    if (!p.alone)
        take_parts(&p, in, recv);
    return rr_plan_finish(p.b, plan);
}

/* ---- reduce-scatter ---- */

/* My vector is needed until all mates have left. */
static void leave(struct parts *p, struct rr_published in, int last)
{
    struct rr_others others;

    rr_others_of(&p->local, &others);
    int signal = rr_add_signal(p->b, RR_LEFT);
    rr_after(p->b, signal, last, 0);
    rr_after(p->b, rr_add_farewell(p->b, others.rank, others.n), signal, 0);
    rr_after(p->b, in.first, last, W);
}

/* Sums one part of all mates' inputs into a temp. */
static struct rr_span sum_part(struct parts *p, struct rr_span shape, int part, int after, int *sum)
{
    struct rr_span sources[RR_MOST], temp = rr_at(shape, RR_TEMP, rr_builder_temp(p->b, shape));

    for (int i = 0; i < p->local.n; i++)
        sources[i] = rr_span_parts(rr_at(shape, RR_IN, p->local.rank[i]), part, 1);
    *sum = rr_add_reduce(p->b, sources, p->local.n, &temp, 1, RR_PARTIAL);
    rr_after(p->b, *sum, after, 0);
    return temp;
}

/* My parts for which mates do the sums, where they can read them. */
static struct rr_published publish_parts(struct parts *p)
{
    struct rr_published in = { .first = -1 };
    int last = -1;

    for (int i = 1; i < p->layout->ranks; i++) {
        int part = (p->me + i) % p->layout->ranks;
        struct rr_span from = rr_part(RR_IN, p->me, part), to = rr_at(from, RR_STAGE, p->me);
        if (partner(p, p->host, part) == p->me)
            continue;
        int copy = rr_add_copy(p->b, from, &to, 1, RR_PRIVATE_IN);
        if (last < 0)
            in.first = copy;
        else
            rr_after(p->b, copy, last, 0);
        last = copy;
    }
    in.await = rr_shm_arrive(p->b, &p->local, last);
    return in;
}

/* The host's sums of the parts of other hosts' ranks that I deal with; returns the last of them. */
static int send_sums(struct parts *p, int last)
{
    struct rr_span shape = rr_span_whole(RR_IN, p->me);

    for (int j = 1; j < p->hosts.n; j++) {
        int host = host_at(p, j);
        for (int i = p->place; i < rr_host_size(&p->hosts, host); i += p->local.n) {
            int to = rr_host_rank(&p->hosts, host, i), sum = -1;
            struct rr_span from = rr_part(RR_IN, p->me, to);
            if (!p->alone)
                from = sum_part(p, shape, to, last, &sum);
            int send = rr_add_send(p->b, to, 0, from);
            if (!p->alone) {
                rr_after(p->b, send, sum, 0);
                rr_after(p->b, sum, send, W);
                last = sum;
            }
        }
    }
    return last;
}

/* Of any rank, those of reduce-scatter: the most. */
static int most_temps(const struct parts *p)
{
    int most = 0;

    for (int host = 0; host < p->hosts.n; host++) {
        int sums = rr_host_size(&p->hosts, host) == 1 ? 0 : 1 + dealt_with(p, host, 0);
        most = sums > most ? sums : most;
    }
    return most + p->hosts.n - 1;
}

RR_BUILDER(rr_build_hier_reduce_scatter)
{
    struct rr_published in = { .first = -1, .await = -1 };
    struct rr_span sources[RR_MOST], out = rr_span_whole(RR_OUT, me), shape = rr_span_whole(RR_IN, me);
    int recv[RR_MOST], own = -1, last = -1;
    struct parts p;

    (void)root; /* it has none */
    RR_TRY(open_parts(&p, layout, me, "hierarchical reduce-scatter"));
    rr_builder_stage(p.b, layout->ranks);
    if (!p.alone) {
        in = publish_parts(&p);
        last = in.await;
    }
    last = send_sums(&p, last);
    sources[p.host] = rr_part(RR_IN, me, me);
    if (!p.alone)
        sources[p.host] = sum_part(&p, shape, me, last, &own);
    for (int j = 1; j < p.hosts.n; j++) {
        int host = host_at(&p, -j);
        sources[host] = rr_at(shape, RR_TEMP, rr_builder_temp(p.b, shape));
        recv[host] = rr_add_recv(p.b, partner(&p, host, me), 0, sources[host]);
    }
    int sum = rr_add_reduce(p.b, sources, p.hosts.n, &out, 1, RR_DIVIDE);
    for (int host = 0; host < p.hosts.n; host++) {
        if (host == p.host && p.alone)
            continue;
        int summand = host == p.host ? own : recv[host];
        rr_after(p.b, sum, summand, 0);
        rr_after(p.b, summand, sum, W);
    }
    int temps = p.alone ? p.hosts.n - 1 : p.hosts.n + dealt_with(&p, p.host, p.place);
    rr_pad_temps(p.b, shape, temps, most_temps(&p));
    if (!p.alone)
        leave(&p, in, own);
    return rr_plan_finish(p.b, plan);
}

/* ---- reduce ---- */

/* Each of my slices, summed over my host: into temps, to the root. */
static void send_slices(struct parts *p, int root)
{
    int slices = p->hosts.slices, temps = 0;
    struct rr_published in = { .first = -1, .await = -1 };

    if (!p->alone)
        in = rr_shm_publish(p->b, &p->local, slices);
    int last = in.await;
    for (int slice = p->place; slice < slices; slice += p->local.n) {
        struct rr_span from = rr_span_block(rr_span_whole(RR_IN, p->me), slice, slices);
        int sum = -1;
        if (!p->alone)
            from = sum_part(p, from, 0, last, &sum);
        int send = rr_add_send(p->b, root, slice, from);
        if (p->alone)
            continue;
        temps++;
        rr_after(p->b, send, sum, 0);
        rr_after(p->b, sum, send, W);
        last = sum;
    }
    rr_pad_temps(p->b, rr_span_block(rr_span_whole(RR_IN, p->me), 0, slices), temps,
                 (p->hosts.n - 1) * slices);
    if (!p->alone)
        leave(p, in, last);
}

/* On the root's host: my slices, summed over the host, in my stage. Returns the step after which those of all
 * mates are there. */
static int stage_slices(struct parts *p, struct rr_published *in)
{
    int slices = p->hosts.slices;
    struct rr_span sources[RR_MOST];
    int16_t owner[RR_MOST];
    struct rr_others others;
    int owners = 0;

    *in = rr_shm_publish(p->b, &p->local, slices);
    int last = in->await;
    for (int slice = p->place; slice < slices; slice += p->local.n) {
        struct rr_span at = rr_span_block(rr_span_whole(RR_STAGE, p->me), slice, slices);
        for (int i = 0; i < p->local.n; i++)
            sources[i] = rr_at(at, RR_IN, p->local.rank[i]);
        int sum = rr_add_reduce(p->b, sources, p->local.n, &at, 1, RR_PARTIAL);
        rr_after(p->b, sum, last, 0);
        last = sum;
    }
    rr_others_of(&p->local, &others);
    for (int i = 0; i < others.n; i++)
        if (others.index[i] < slices)
            owner[owners++] = others.rank[i];
    if (p->place < slices) {
        int signal = rr_add_signal(p->b, RR_REDUCED);
        rr_after(p->b, signal, last, 0);
        last = signal;
    }
    int await = rr_add_await(p->b, RR_REDUCED, owner, owners);
    rr_after(p->b, await, last, 0);
    return await;
}

/* Adds up what all hosts have for one slice; mates' sums are there after step `ready`. */
static int sum_slice(struct parts *p, int slice, int ready)
{
    struct rr_span out = rr_span_block(rr_span_whole(RR_OUT, p->me), slice, p->hosts.slices), sources[RR_MOST];
    int recv[RR_MOST];

    sources[p->host] = p->alone ? rr_at(out, RR_IN, p->me)
                                : rr_at(out, RR_STAGE, rr_host_rank(&p->hosts, p->host, slice));
    for (int j = 1; j < p->hosts.n; j++) {
        int host = host_at(p, -j);
        sources[host] = rr_at(out, RR_TEMP, rr_builder_temp(p->b, out));
        recv[host] = rr_add_recv(p->b, rr_host_rank(&p->hosts, host, slice), slice, sources[host]);
    }
    int sum = rr_add_reduce(p->b, sources, p->hosts.n, &out, 1, RR_DIVIDE);
    for (int host = 0; host < p->hosts.n; host++)
        if (host != p->host) {
            rr_after(p->b, sum, recv[host], 0);
            rr_after(p->b, recv[host], sum, W);
        }
    if (p->alone)
        return -1;
    rr_after(p->b, sum, ready, 0);
    return sum;
}

/* The root says ARRIVED again only when it has read the stages; its mates need not wait for it. */
RR_BUILDER(rr_build_hier_reduce)
{
    struct rr_published in = { .first = -1 };
    struct parts p;
    int last = -1;

    RR_TRY(open_parts(&p, layout, me, "hierarchical reduce"));
    if (p.host != layout->host[root]) {
        send_slices(&p, root);
        return rr_plan_finish(p.b, plan);
    }
    struct rr_span shape = rr_span_block(rr_span_whole(RR_IN, me), 0, p.hosts.slices);
    if (!p.alone)
        last = stage_slices(&p, &in);
    for (int slice = 0; slice < p.hosts.slices && me == root; slice++)
        last = sum_slice(&p, slice, last);
    rr_pad_temps(p.b, shape, me == root ? (p.hosts.n - 1) * p.hosts.slices : 0,
                 (p.hosts.n - 1) * p.hosts.slices);
    if (!p.alone)
        rr_after(p.b, in.first, me == root ? last : in.await, W);
    return rr_plan_finish(p.b, plan);
}
