/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to lists of vectors: check arguments, make a call record, forward. */
#include "core/core.h"

static struct rr_shape shape_of(const ringred_comm *c, const struct rr_call *call)
{
    struct rr_shape shape = rr_shape_of(call->what, c->ranks, call->root, c->rank);

    if (call->what == RR_BROADCAST && c->rank != call->root)
        shape.in = 0; /* send counts on the root only */
    return shape;
}

static int check_member(ringred_comm *c, const struct rr_call *call, size_t i)
{
    const struct rr_vectors *v = call->vectors;
    const char *name = rr_collective_name(call->what);
    const struct rr_shape shape = shape_of(c, call);
    size_t bytes = rr_type_bytes(v->type[i]);

    if (!bytes)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: types[%zu] is %d, which is no element type (types.h)", name, i,
                              v->type[i]);
    if (rr_is_reduction(call->what) && !rr_op_legal(v->type[i], call->op))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: there is no %s of %s, which types[%zu] is (docs/NUMBERS.md)",
                              name, rr_op_name(call->op), rr_type_name(v->type[i]), i);
    if (v->count[i] > (SIZE_MAX >> 1) / bytes / (size_t)c->ranks)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: counts[%zu], %zu elements of %zu bytes, is more than memory",
                              name, i, v->count[i], bytes);
    if (!v->count[i])
        return 0;
    uintptr_t in = shape.in ? (uintptr_t)v->in[i] : 0, out = shape.out ? (uintptr_t)v->out[i] : 0;
    if ((shape.in && !in) || (shape.out && !out))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: %s[%zu] is NULL, but counts[%zu] is %zu", name,
                              shape.in && !in ? "send" : "recv", i, i, v->count[i]);
    if (shape.in && shape.out && in != out && in < out + v->count[i] * bytes && out < in + v->count[i] * bytes)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: send[%zu] and recv[%zu] overlap without being the same", name,
                              i, i);
    return 0;
}

static int check(ringred_comm *c, const struct rr_call *call)
{
    const struct rr_vectors *v = call->vectors;
    const char *name = rr_collective_name(call->what);

    if (!c)
        return RINGRED_EINVAL;
    const struct rr_shape shape = shape_of(c, call);
    if (rr_is_rooted(call->what) && (call->root < 0 || call->root >= c->ranks))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: root is %d, the ranks are 0 to %d", name, call->root,
                              c->ranks - 1);
    if (rr_is_reduction(call->what) && (call->op < RINGRED_SUM || call->op > RINGRED_LXOR))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: %d is not an operator (types.h)", name, call->op);
    if (v->n > RR_LIST_MOST)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: %zu vectors are more than %zu", name, v->n, RR_LIST_MOST);
    if (v->n && (!v->count || !v->type || (shape.in && !v->in) || (shape.out && !v->out)))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: %s is NULL", name,
                              !v->count  ? "counts"
                              : !v->type ? "types"
                              : shape.in && !v->in ? "send"
                                                   : "recv");
    for (size_t i = 0; i < v->n; i++)
        RR_TRY(check_member(c, call, i));
    return 0;
}

static int32_t run(ringred_comm *c, struct rr_call call, const struct rr_vectors *vectors)
{
    call.vectors = vectors;
    RR_TRY(check(c, &call));
    return rr_comm_run(c, &call);
}

static int32_t start(ringred_comm *c, struct rr_call call, const struct rr_vectors *vectors, ringred_request **request)
{
    call.vectors = vectors;
    RR_TRY(check(c, &call));
    return request ? rr_comm_start(c, &call, request)
                   : rr_comm_refuse(c, RINGRED_EINVAL, "%s_list: request is NULL", rr_collective_name(call.what));
}

int32_t ringred_allreduce_list(ringred_comm *comm, const void *const *send, void *const *recv, const size_t *counts,
                               const int32_t *types, size_t n, int32_t op)
{
    return run(comm, (struct rr_call){ .what = RR_ALLREDUCE, .op = op },
               &(struct rr_vectors){ send, recv, counts, types, n });
}

int32_t ringred_allreduce_list_start(ringred_comm *comm, const void *const *send, void *const *recv,
                                     const size_t *counts, const int32_t *types, size_t n, int32_t op,
                                     ringred_request **request)
{
    return start(comm, (struct rr_call){ .what = RR_ALLREDUCE, .op = op },
                 &(struct rr_vectors){ send, recv, counts, types, n }, request);
}

int32_t ringred_reduce_list(ringred_comm *comm, const void *const *send, void *const *recv, const size_t *counts,
                            const int32_t *types, size_t n, int32_t op, int32_t root)
{
    return run(comm, (struct rr_call){ .what = RR_REDUCE, .op = op, .root = root },
               &(struct rr_vectors){ send, recv, counts, types, n });
}

int32_t ringred_reduce_list_start(ringred_comm *comm, const void *const *send, void *const *recv, const size_t *counts,
                                  const int32_t *types, size_t n, int32_t op, int32_t root, ringred_request **request)
{
    return start(comm, (struct rr_call){ .what = RR_REDUCE, .op = op, .root = root },
                 &(struct rr_vectors){ send, recv, counts, types, n }, request);
}

int32_t ringred_broadcast_list(ringred_comm *comm, const void *const *send, void *const *recv, const size_t *counts,
                               const int32_t *types, size_t n, int32_t root)
{
    return run(comm, (struct rr_call){ .what = RR_BROADCAST, .root = root },
               &(struct rr_vectors){ send, recv, counts, types, n });
}

int32_t ringred_broadcast_list_start(ringred_comm *comm, const void *const *send, void *const *recv,
                                     const size_t *counts, const int32_t *types, size_t n, int32_t root,
                                     ringred_request **request)
{
    return start(comm, (struct rr_call){ .what = RR_BROADCAST, .root = root },
                 &(struct rr_vectors){ send, recv, counts, types, n }, request);
}
