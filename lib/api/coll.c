/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to collectives and requests: check arguments, make a call record, forward. */
#include "core/core.h"

static int check_vectors(ringred_comm *c, const char *name, const void *send, const void *recv,
                         size_t count, int32_t type)
{
    size_t bytes = rr_type_bytes(type);

    if (RR_UNLIKELY(!bytes || type > RINGRED_FLOAT64)) /* the others are not plumbed through yet */
        return rr_comm_refuse(c, RINGRED_EINVAL,
                              "%s: %d is not an element type (float32 is %d, float64 is %d)", name, type,
                              RINGRED_FLOAT32, RINGRED_FLOAT64);
    if (RR_UNLIKELY(count > (SIZE_MAX >> 1) / bytes))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %zu elements of %zu bytes are more than memory",
                              name, count, bytes);
    if (RR_UNLIKELY(count && (!send || !recv)))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %s is NULL, but count is %zu", name,
                              recv ? "send" : "recv", count);
    uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv, n = count * bytes;
    if (RR_UNLIKELY(a != b && a < b + n && b < a + n))
        return rr_comm_refuse(c, RINGRED_EINVAL,
                              "%s: send and recv overlap without being the same (in place is send == "
                              "recv)", name);
    return 0;
}

static int check_allreduce(ringred_comm *c, struct rr_call *call)
{
    if (RR_UNLIKELY(!c))
        return RINGRED_EINVAL;
    if (RR_UNLIKELY(call->op != RINGRED_SUM && call->op != RINGRED_AVG))
        return rr_comm_refuse(c, RINGRED_EINVAL,
                              "allreduce: %d is not an operator (sum is %d, avg is %d)", call->op,
                              RINGRED_SUM, RINGRED_AVG);
    return check_vectors(c, "allreduce", call->in, call->out, call->count, call->type);
}

static int check_broadcast(ringred_comm *c, struct rr_call *call)
{
    if (RR_UNLIKELY(!c))
        return RINGRED_EINVAL;
    if (RR_UNLIKELY(call->root < 0 || call->root >= c->ranks))
        return rr_comm_refuse(c, RINGRED_EINVAL, "broadcast: root is %d, the ranks are 0 to %d",
                              call->root, c->ranks - 1);
    if (c->rank != call->root)
        call->in = call->out; /* send counts on the root only */
    return check_vectors(c, "broadcast", call->in, call->out, call->count, call->type);
}

int32_t ringred_allreduce(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                          int32_t op)
{
    struct rr_call call = { RR_ALLREDUCE, send, recv, count, type, op, 0 };

    RR_TRY(check_allreduce(comm, &call));
    return rr_comm_run(comm, &call);
}

int32_t ringred_allreduce_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                int32_t type, int32_t op, ringred_request **request)
{
    struct rr_call call = { RR_ALLREDUCE, send, recv, count, type, op, 0 };

    RR_TRY(check_allreduce(comm, &call));
    return request ? rr_comm_start(comm, &call, request)
                   : rr_comm_refuse(comm, RINGRED_EINVAL, "allreduce: request is NULL");
}

int32_t ringred_broadcast(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                          int32_t root)
{
    struct rr_call call = { RR_BROADCAST, send, recv, count, type, 0, root };

    RR_TRY(check_broadcast(comm, &call));
    return rr_comm_run(comm, &call);
}

int32_t ringred_broadcast_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                int32_t type, int32_t root, ringred_request **request)
{
    struct rr_call call = { RR_BROADCAST, send, recv, count, type, 0, root };

    RR_TRY(check_broadcast(comm, &call));
    return request ? rr_comm_start(comm, &call, request)
                   : rr_comm_refuse(comm, RINGRED_EINVAL, "broadcast: request is NULL");
}

int32_t ringred_barrier(ringred_comm *comm)
{
    struct rr_call call = { .what = RR_BARRIER };

    return comm ? rr_comm_run(comm, &call) : RINGRED_EINVAL;
}

int32_t ringred_barrier_start(ringred_comm *comm, ringred_request **request)
{
    struct rr_call call = { .what = RR_BARRIER };

    if (!comm)
        return RINGRED_EINVAL;
    return request ? rr_comm_start(comm, &call, request)
                   : rr_comm_refuse(comm, RINGRED_EINVAL, "barrier: request is NULL");
}

int32_t ringred_wait(ringred_request *request, int64_t timeout_ns)
{
    if (!request || timeout_ns < -1)
        return RINGRED_EINVAL;
    return rr_request_wait(request, timeout_ns);
}

int32_t ringred_test(ringred_request *request)
{
    return request ? rr_request_wait(request, 0) : RINGRED_EINVAL;
}
