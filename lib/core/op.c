/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of the caller's. All ranks make them together, so that a number means the same elements everywhere; what
 * the function is, each rank knows for itself. */
#include "core/core.h"

#define PIECE 4096 /* bytes that are folded at once, or one element */

struct offer {
    int32_t status, number;
    uint64_t element_bytes;
};

static void op_free(struct rr_user_op *u)
{
    if (u)
        rr_free(u->room);
    rr_free(u);
}

static struct rr_user_op *op_new(ringred_op_fn fn, void *context, size_t element_bytes)
{
    struct rr_user_op *u = rr_alloc(1, sizeof *u);

    if (!u)
        return NULL;
    *u = (struct rr_user_op){ .fn = fn, .context = context, .element_bytes = element_bytes };
    u->piece = element_bytes < PIECE ? PIECE / element_bytes : 1;
    u->room = rr_alloc_aligned(RR_LINE, RR_USER_LEVELS * u->piece * element_bytes);
    if (u->room)
        return u;
    op_free(u);
    return NULL;
}

/* 0, or why not on some rank. */
static int judge(ringred_comm *c, const struct offer *all)
{
    for (int r = 0; r < c->ranks; r++) {
        if (all[r].status < 0)
            return rr_comm_refuse(c, all[r].status, all[r].status == RINGRED_ELIMIT
                                                        ? "op_create: rank %d has %d operators, the most there may be"
                                                        : "op_create: rank %d has no memory for another than its %d",
                                  r, all[r].number);
        if (all[r].element_bytes != all[0].element_bytes || all[r].number != all[0].number)
            return rr_comm_refuse(c, RINGRED_EINVAL, "op_create: rank %d makes its operator %d, over %llu bytes, rank 0 "
                                  "its operator %d, over %llu bytes", r, all[r].number,
                                  (unsigned long long)all[r].element_bytes, all[0].number,
                                  (unsigned long long)all[0].element_bytes);
    }
    return 0;
}

static int agree(ringred_comm *c, const struct offer *mine, struct offer *all)
{
    const struct rr_call call = { .what = RR_ALLGATHER, .in = mine, .out = all, .count = sizeof *mine,
                                  .type = RINGRED_UINT8, .sets_up = true, .ours = true };

    RR_TRY(rr_comm_run(c, &call));
    return judge(c, all);
}

int rr_op_create(ringred_comm *c, ringred_op_fn fn, void *context, size_t element_bytes, int32_t *op)
{
    struct offer mine = { 0, c->ops, element_bytes };
    struct offer *all = rr_alloc((size_t)c->ranks, sizeof *all);

    if (!all)
        return rr_comm_refuse(c, RINGRED_ENOMEM, "no memory to ask %d ranks", c->ranks);
    if (!c->op)
        c->op = rr_alloc(RR_USER_OPS, sizeof(struct rr_user_op *));
    struct rr_user_op *u = c->op && c->ops < RR_USER_OPS ? op_new(fn, context, element_bytes) : NULL;
    mine.status = c->ops == RR_USER_OPS ? RINGRED_ELIMIT : u ? 0 : RINGRED_ENOMEM;
    int rc = agree(c, &mine, all);
    rr_free(all);
    if (rc < 0) {
        op_free(u);
        return rc;
    }
    c->op[c->ops] = u;
    *op = RR_USER_OP + c->ops++;
    return 0;
}

void rr_ops_free(ringred_comm *c)
{
    for (int i = 0; i < c->ops; i++)
        op_free(c->op[i]);
    rr_free(c->op);
}
