/* SPDX-License-Identifier: Apache-2.0 */
/* Expression trees, each stored once; see trees.h. */
#include "plan/trees.h"

#include <string.h>

#define PRINT_DEPTH 12 /* deeper trees are cut short when written out */

int rr_trees_init(struct rr_trees *t, int ranks)
{
    memset(t, 0, sizeof *t);
    t->leaves = (uint32_t)ranks;
    t->room = 512;
    t->node = rr_alloc(t->room, sizeof *t->node);
    t->table = rr_alloc(2 * (size_t)t->room, sizeof *t->table);
    return t->node && t->table ? 0 : RINGRED_ENOMEM;
}

void rr_trees_done(struct rr_trees *t)
{
    rr_free(t->node);
    rr_free(t->table);
    t->node = NULL;
    t->table = NULL;
}

static uint32_t hash(uint32_t left, uint32_t right, uint32_t slots)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(h >> 32) & (slots - 1);
}

static bool grow(struct rr_trees *t)
{
    struct rr_trees bigger = *t;

    bigger.room = 2 * t->room;
    bigger.node = rr_alloc(bigger.room, sizeof *t->node);
    bigger.table = rr_alloc(2 * (size_t)bigger.room, sizeof *t->table);
    if (!bigger.node || !bigger.table) {
        rr_trees_done(&bigger);
        return false;
    }
    memcpy(bigger.node, t->node, t->used * sizeof *t->node);
    for (uint32_t i = 0; i < t->used; i++) {
        uint32_t at = hash(t->node[i][0], t->node[i][1], 2 * bigger.room);
        while (bigger.table[at])
            at = (at + 1) & (2 * bigger.room - 1);
        bigger.table[at] = i + 1;
    }
    rr_trees_done(t);
    *t = bigger;
    return true;
}

static uint32_t find(struct rr_trees *t, uint32_t left, uint32_t right)
{
    uint32_t slots = 2 * t->room, at = hash(left, right, slots);

    for (; t->table[at]; at = (at + 1) & (slots - 1)) {
        const uint32_t *node = t->node[t->table[at] - 1];
        if (node[0] == left && node[1] == right)
            return t->leaves + t->table[at];
    }
    if (t->used == t->room) {
        if (grow(t))
            return find(t, left, right);
        t->failed = true;
        return RR_TREE_NONE;
    }
    t->node[t->used][0] = left;
    t->node[t->used][1] = right;
    t->table[at] = ++t->used;
    return t->leaves + t->used;
}

uint32_t rr_tree_sum(struct rr_trees *t, uint32_t left, uint32_t right)
{
    return find(t, left, right);
}

uint32_t rr_tree_divided(struct rr_trees *t, uint32_t sum)
{
    return find(t, sum, RR_TREE_DIVIDED);
}

uint32_t rr_tree_fold(struct rr_trees *t, uint32_t *value, int n)
{
    int q = 1;

    while (2 * q <= n)
        q *= 2;
    int rem = n - q;
    for (int i = 0; i < rem; i++)
        value[i] = rr_tree_sum(t, value[2 * i], value[2 * i + 1]);
    memmove(value + rem, value + 2 * rem, (size_t)(n - 2 * rem) * sizeof *value);
    for (; q > 1; q /= 2)
        for (int i = 0; i < q / 2; i++)
            value[i] = rr_tree_sum(t, value[2 * i], value[2 * i + 1]);
    return value[0];
}

/* Walks down from the newest node, which is never below an older one. */
static bool count_leaves(const struct rr_trees *t, uint32_t tree, uint8_t *times)
{
    times[tree] = 1;
    for (uint32_t i = tree; i > t->leaves; i--) {
        const uint32_t *node = t->node[i - t->leaves - 1];
        if (times[i] == 0)
            continue;
        if (times[i] > 1 || node[1] == RR_TREE_DIVIDED)
            return false;
        for (int side = 0; side < 2; side++)
            if (times[node[side]] < 2) /* as good as any more */
                times[node[side]]++;
    }
    for (uint32_t i = 1; i <= t->leaves; i++)
        if (times[i] != 1)
            return false;
    return true;
}

int rr_tree_has_all_once(const struct rr_trees *t, uint32_t tree, bool divided)
{
    if (divided) {
        if (tree <= t->leaves || t->node[tree - t->leaves - 1][1] != RR_TREE_DIVIDED)
            return 0;
        tree = t->node[tree - t->leaves - 1][0];
    }
    if (tree == RR_TREE_NONE)
        return 0;

    uint8_t *times = rr_alloc((size_t)t->leaves + t->used + 1, 1);
    if (!times)
        return RINGRED_ENOMEM;
    bool all = count_leaves(t, tree, times);
    rr_free(times);
    return all;
}

static void print(const struct rr_trees *t, uint32_t tree, int depth, struct rr_text *text)
{
    if (tree == RR_TREE_NONE || depth == 0) {
        rr_text_add(text, "..");
        return;
    }
    if (tree <= t->leaves) {
        rr_text_add(text, "%u", tree - 1);
        return;
    }

    const uint32_t *node = t->node[tree - t->leaves - 1];
    bool divided = node[1] == RR_TREE_DIVIDED;
    rr_text_add(text, divided ? "" : "(");
    print(t, node[0], depth - 1, text);
    if (divided) {
        rr_text_add(text, "/n");
        return;
    }
    rr_text_add(text, "+");
    print(t, node[1], depth - 1, text);
    rr_text_add(text, ")");
}

void rr_tree_print(const struct rr_trees *t, uint32_t tree, struct rr_text *text)
{
    print(t, tree, PRINT_DEPTH, text);
}
