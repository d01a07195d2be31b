/* SPDX-License-Identifier: Apache-2.0 */
/* Who works with whom. */
#include "algo/parts.h"

static int group_of(const struct rr_layout *layout, int me, int host, struct rr_group *g)
{
    g->n = 0;
    for (int r = 0; r < layout->ranks; r++) {
        if (host >= 0 && layout->host[r] != host)
            continue;
        if (g->n == RR_MOST)
            return RINGRED_EINVAL;
        if (r == me)
            g->mine = g->n;
        g->rank[g->n++] = (int16_t)r;
    }
    return 0;
}

int rr_group_all(const struct rr_layout *layout, int me, struct rr_group *g)
{
    return group_of(layout, me, -1, g);
}

int rr_group_host(const struct rr_layout *layout, int me, struct rr_group *g)
{
    return group_of(layout, me, layout->host[me], g);
}

int rr_hosts_of(const struct rr_layout *layout, struct rr_hosts *h)
{
    int at = 0, most = 0, fair = 2 * layout->ranks / layout->hosts;

    if (layout->ranks > RR_MOST)
        return RINGRED_EINVAL;
    h->n = layout->hosts;
    for (int host = 0; host < h->n; host++) {
        h->first[host] = (int16_t)at;
        for (int r = 0; r < layout->ranks; r++)
            if (layout->host[r] == host) {
                h->place[r] = (int16_t)(at - h->first[host]);
                h->rank[at++] = (int16_t)r;
            }
        h->first[host + 1] = (int16_t)at;
        if (rr_host_size(h, host) > most)
            most = rr_host_size(h, host);
    }
    h->slices = most < fair ? most : fair;
    return 0;
}

void rr_pad_temps(struct rr_builder *b, struct rr_span shape, int have, int most)
{
    for (; have < most; have++)
        (void)rr_builder_temp(b, shape); /* its number: nobody names it */
}

bool rr_layout_is_even(const struct rr_layout *layout)
{
    int each = layout->ranks / layout->hosts;

    if (layout->ranks % layout->hosts != 0 || (each & (each - 1)) != 0)
        return layout->hosts == 1;
    for (int r = 0; r < layout->ranks; r++)
        if (layout->host[r] != r / each)
            return false;
    return true;
}

void rr_others_of(const struct rr_group *g, struct rr_others *others)
{
    others->n = g->n - 1;
    for (int j = 1; j < g->n; j++) {
        int i = (g->mine + j) % g->n;
        others->index[j - 1] = i;
        others->rank[j - 1] = g->rank[i];
    }
}

int rr_alone(const char *name, struct rr_plan **plan)
{
    struct rr_builder *b = rr_builder_new(1, 0, name);
    if (!b)
        return RINGRED_ENOMEM;

    struct rr_span out = rr_span_whole(RR_OUT, 0);
    rr_add_copy(b, rr_span_whole(RR_IN, 0), &out, 1, RR_DIVIDE);
    return rr_plan_finish(b, plan);
}

RR_BUILDER(rr_build_copy)
{
    (void)me; /* there is only rank 0 */
    (void)root;
    return layout->ranks == 1 ? rr_alone("copy", plan) : RINGRED_EINVAL;
}
