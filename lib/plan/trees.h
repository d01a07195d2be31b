/* SPDX-License-Identifier: Apache-2.0 */
/* Expression trees, each stored once, so that two are equal if their numbers are. Inside the plan
 * room. */
#ifndef RR_PLAN_TREES_H
#define RR_PLAN_TREES_H

#include "plan/plan.h"

#define RR_TREE_NONE    0u          /* what nobody wrote */
#define RR_TREE_DIVIDED 0xffffffffu /* as the right side: the left divided by the number of ranks \
                                     */

struct rr_trees {
    uint32_t leaves;     /* 1..leaves: what rank 0, 1, ... put in */
    uint32_t used, room; /* nodes after the leaves */
    uint32_t (*node)[2];
    uint32_t *table; /* hash table of node numbers, twice the room */
    bool failed;     /* no memory: results mean nothing */
};

int rr_trees_init(struct rr_trees *t, int ranks);
void rr_trees_done(struct rr_trees *t);

static inline uint32_t rr_tree_leaf(int rank)
{
    return (uint32_t)rank + 1;
}
uint32_t rr_tree_sum(struct rr_trees *t, uint32_t left, uint32_t right);
uint32_t rr_tree_divided(struct rr_trees *t, uint32_t sum);
/* The canonical sum of n values; overwrites them. */
uint32_t rr_tree_fold(struct rr_trees *t, uint32_t *value, int n);
/* Is it a sum with every rank in it exactly once, divided once, at the top, if `divided`? 1, 0 or
 * ENOMEM. */
int rr_tree_has_all_once(const struct rr_trees *t, uint32_t tree, bool divided);
/* Writes it out: "((0+1)+2)/n". */
void rr_tree_print(const struct rr_trees *t, uint32_t tree, struct rr_text *text);

#endif
