/* SPDX-License-Identifier: Apache-2.0 */
/* What the plan tests share: all ranks' plans of one algorithm, and facts about ranks. */
#ifndef TEST_PLANS_H
#define TEST_PLANS_H

#include "algo/algo.h"

#define MOST_RANKS 256

struct plans {
    int ranks;
    const int16_t *host; /* of each rank, where sums have the layout tree: the layout's, which must stay; else NULL */
    struct rr_plan *plan[MOST_RANKS];
};

/* Hosts of `each` ranks in turn (the last may be smaller). */
struct layout {
    struct rr_layout of;
    int16_t host[MOST_RANKS];
};
void layout_make(struct layout *l, int ranks, int each);
/* Ranks dealt out to hosts like cards. */
void layout_deal(struct layout *l, int ranks, int hosts);
/* One host of `first` ranks, the others alone, but the last rank sits on the first host, too. */
void layout_lump(struct layout *l, int ranks, int first);

bool spans_hosts(enum rr_algo algo); /* has links and shared memory */

/* The status of the first builder that fails; then there are no plans. */
int plans_build(struct plans *p, enum rr_algo algo, const struct layout *l, int root);
void plans_free(struct plans *p);

/* What ranks know alone. */
enum facts {
    FACTS_PRIVATE, /* out of place, no windows */
    FACTS_PRIVATE_IN_PLACE,
    FACTS_WINDOWS,
    FACTS_WINDOWS_IN_PLACE,
    FACTS_MIXED, /* rank by rank another */
    FACTS_MIXED_2,
    FACTS
};
struct rr_case case_of(const struct plans *p, enum rr_algo algo, int root, enum facts facts);

#endif
