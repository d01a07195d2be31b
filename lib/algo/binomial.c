/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast along a binomial tree: who has the vector passes it on to the one half way to the next
 * who has it. ceil(log2 n) rounds; the root sends ceil(log2 n) vectors. Segments follow each other
 * down the tree.
 *
 *     8 ranks, root 0:   0>4;   0>2 4>6;   0>1 2>3 4>5 6>7 */
#include "algo/parts.h"

struct rr_binomial rr_binomial_of(int n, int member)
{
    struct rr_binomial t = { .parent = -1 };
    int reach = 1; /* the subtree of `member` has the members up to member + reach */

    while (reach < n && (member & reach) == 0)
        reach *= 2;
    if (member > 0)
        t.parent = member - reach;
    for (int step = reach / 2; step > 0; step /= 2)
        if (member + step < n)
            t.child[t.children++] = member + step;
    return t;
}

RR_BUILDER(rr_build_binomial)
{
    int n = layout->ranks;

    if (n == 1)
        return rr_alone("binomial broadcast", plan);
    struct rr_builder *b = rr_builder_new(n, me, "binomial broadcast");
    if (!b)
        return RINGRED_ENOMEM;

    struct rr_binomial t = rr_binomial_of(n, (me - root + n) % n);
    struct rr_span in = rr_span_whole(RR_IN, me), out = rr_span_whole(RR_OUT, me);
    int got = t.parent < 0 ? -1 : rr_add_recv(b, (t.parent + root) % n, 0, out);
    for (int i = 0; i < t.children; i++) {
        int send = rr_add_send(b, (t.child[i] + root) % n, 0, got < 0 ? in : out);
        if (got >= 0)
            rr_after(b, send, got, 0);
    }
    if (got < 0)
        rr_add_copy(b, in, &out, 1, 0);
    return rr_plan_finish(b, plan);
}
