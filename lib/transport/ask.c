/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank asks for: comparing two of them, and putting a disagreement in words. */
#include "reduce/reduce.h"
#include "transport/transport.h"

#include <string.h>

void rr_ask_print(const struct rr_ask *ask, struct rr_text *t)
{
    int type = ask->type, op = ask->op ? 256 + ask->op : 0;
    enum rr_collective what = rr_ask_what(ask);
    bool ragged = ask->collective & RR_RAGGED;
    uint64_t count = ask->count & ((1ull << RR_ASK_COUNT) - 1);

    if (ask->collective == RR_TALK) {
        rr_text_add(t, "a message of %llu %s with tag %d", (unsigned long long)ask->count, rr_type_name(type),
                    (int)ask->root);
        return;
    }
    if (what < 1 || what >= RR_COLLECTIVES) {
        rr_text_add(t, "unknown collective %d", ask->collective);
        return;
    }
    rr_text_add(t, "%s%s", rr_collective_name(what),
                ragged                          ? "v"
                : ask->collective & RR_LISTED ? "_list"
                                              : "");
    if (op >= RR_USER_OP)
        rr_text_add(t, " (the caller's operator %d)", op);
    else if (op)
        rr_text_add(t, " (%s)", rr_op_name(op));
    if (ask->collective & RR_LISTED)
        rr_text_add(t, " of a list of %u vectors (%08x)", (unsigned)(ask->count >> 32), (unsigned)ask->count);
    else if (ragged && !ask->count)
        rr_text_add(t, " of %s", rr_type_name(type));
    else if (what != RR_BARRIER)
        rr_text_add(t, " of %llu %s", (unsigned long long)count, rr_type_name(type));
    if (rr_is_rooted(what))
        rr_text_add(t, what == RR_BROADCAST || what == RR_SCATTER ? " from root %d" : " to root %d", rr_ask_root(ask));
    if (rr_is_reduction(what) && !ragged && (uint32_t)ask->root >> 12)
        rr_text_add(t, ", scaled (%05x)", (unsigned)ask->root >> 12);
}

_Static_assert(RR_RANKS_MOST == 1 << 12, "a root has 12 bits");

void rr_ask_scale(struct rr_ask *ask, double scale)
{
    uint64_t h;

    memcpy(&h, &scale, sizeof h);
    h = (h ^ h >> 32) * 0xff51afd7ed558ccdu;
    ask->root ^= (int32_t)((uint32_t)(h >> 44 | 1) << 12);
}

/* A multiplicative hash: equal texts agree, others differ but once in 2^32. */
uint32_t rr_ask_hash(const struct rr_ask *ask)
{
    uint64_t small = (uint64_t)(uint32_t)ask->root << 32 | (uint64_t)ask->op << 16 | (uint64_t)ask->type << 8 | ask->collective;
    uint64_t h = (small ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;

    h = (h ^ (h >> 32) ^ ask->count) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(h >> 32);
}

int rr_ask_compare(const struct rr_ask *mine, int my_rank, const struct rr_ask *theirs,
                   int their_rank, ringred_error *why)
{
    char a[128], b[192];
    struct rr_text left = { a, sizeof a, 0 }, right = { b, sizeof b, 0 };

    if (mine->collective == theirs->collective && mine->type == theirs->type &&
        mine->op == theirs->op && mine->root == theirs->root && mine->count == theirs->count)
        return 0;
    rr_ask_print(mine, &left);
    rr_ask_print(theirs, &right);
    if ((mine->collective & RR_RAGGED) && strcmp(a, b) == 0)
        rr_text_add(&right, " in other parts");
    else if (strcmp(a, b) == 0)
        rr_text_add(&right, " by another algorithm or segment, which the function choose answered, or the team");
    return rr_fail(why, RINGRED_EMISMATCH, their_rank, 0,
                   "the ranks disagree about operation %llu: rank %d asked for %s, rank %d for %s",
                   (unsigned long long)mine->sequence, my_rank, a, their_rank, b);
}

int rr_ask_parts(const struct rr_ask *ask, int my_rank, uint64_t mine, int their_rank, uint64_t theirs,
                 ringred_error *why)
{
    return rr_fail(why, RINGRED_EMISMATCH, their_rank, 0,
                   "the ranks disagree about operation %llu, %sv: rank %d expects %llu elements of rank %d, "
                   "which sends %llu",
                   (unsigned long long)ask->sequence, rr_collective_name(rr_ask_what(ask)), my_rank,
                   (unsigned long long)mine, their_rank, (unsigned long long)theirs);
}
