/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' plans of one algorithm; see plans.h. */
#include "plans.h"

#include <string.h>

void layout_make(struct layout *l, int ranks, int each)
{
    for (int r = 0; r < ranks; r++)
        l->host[r] = (int16_t)(r / each);
    l->of =
        (struct rr_layout){ .ranks = ranks, .hosts = (ranks + each - 1) / each, .host = l->host };
}

void layout_deal(struct layout *l, int ranks, int hosts)
{
    for (int r = 0; r < ranks; r++)
        l->host[r] = (int16_t)(r % hosts);
    l->of = (struct rr_layout){ .ranks = ranks, .hosts = hosts, .host = l->host };
}

void layout_lump(struct layout *l, int ranks, int first)
{
    for (int r = 0; r < ranks; r++)
        l->host[r] = (int16_t)(r < first - 1 || r == ranks - 1 ? 0 : r - first + 2);
    l->of = (struct rr_layout){ .ranks = ranks, .hosts = ranks - first + 1, .host = l->host };
}

bool spans_hosts(enum rr_algo a)
{
    return a == RR_ALGO_HIERARCHICAL || a == RR_ALGO_HIER_BROADCAST || a == RR_ALGO_HIER_BARRIER;
}

int plans_build(struct plans *p, enum rr_algo algo, const struct layout *l, int root)
{
    memset(p, 0, sizeof *p);
    p->ranks = l->of.ranks;
    p->host = spans_hosts(algo) && !rr_layout_is_even(&l->of) ? l->host : NULL;
    for (int r = 0; r < p->ranks; r++) {
        int rc = rr_algo_table[algo].build(&l->of, r, root, &p->plan[r]);
        if (rc < 0) {
            plans_free(p);
            return rc;
        }
    }
    return 0;
}

void plans_free(struct plans *p)
{
    for (int r = 0; r < p->ranks; r++)
        rr_plan_free(p->plan[r]);
    memset(p, 0, sizeof *p);
}

static uint8_t facts_in_place[FACTS][MOST_RANKS], facts_in[FACTS][MOST_RANKS],
    facts_out[FACTS][MOST_RANKS];

static void make_facts(void)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        facts_in_place[FACTS_PRIVATE_IN_PLACE][r] = facts_in_place[FACTS_WINDOWS_IN_PLACE][r] = 1;
        facts_in[FACTS_WINDOWS][r] = facts_out[FACTS_WINDOWS][r] = 1;
        facts_in[FACTS_WINDOWS_IN_PLACE][r] = facts_out[FACTS_WINDOWS_IN_PLACE][r] = 1;
        for (int f = FACTS_MIXED; f < FACTS; f++) {
            int mix = f == FACTS_MIXED ? r * 5 + 1 : r * 11 + r / 3 + 4;
            facts_in_place[f][r] = mix & 1;
            facts_in[f][r] = mix >> 1 & 1;
            facts_out[f][r] = mix & 1 ? mix >> 1 & 1 : mix >> 2 & 1;
        }
    }
}

struct rr_case case_of(const struct plans *p, enum rr_algo algo, int root, enum facts facts)
{
    if (!facts_in[FACTS_WINDOWS][0])
        make_facts();
    return (struct rr_case){
        .what = rr_algo_table[algo].what,
        .ranks = p->ranks,
        .root = root,
        .plan = p->plan,
        .segment = 1,
        .element_bytes = 64, /* a line: then blocks may be as short as one element */
        .average = true,
        .host = p->host,
        .in_place = facts_in_place[facts],
        .in_window = facts_in[facts],
        .out_window = facts_out[facts],
        .stage_pieces = 2 * RR_PLAN_WINDOW,
        .channel = -1,
    };
}
