/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to collectives and requests: check arguments, make a call record, forward. */
#include "api/api.h"

/* One end of a call: parts of `count` elements each, one behind the other. */
struct buffer {
    const char *name;
    uintptr_t at;
    size_t bytes;
};

static int check_user(ringred_comm *c, struct rr_call *call)
{
    const char *name = rr_collective_name(call->what);

    call->user = rr_comm_op(c, call->op);
    if (!call->user)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %d is no operator of this communicator (ringred_op_create)", name,
                              call->op);
    if (call->type != RINGRED_BYTES)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: operators of the caller's take elements of type bytes (%d), not %d",
                              name, RINGRED_BYTES, call->type);
    if (call->count > (SIZE_MAX >> 1) / call->user->element_bytes / (size_t)c->ranks)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %zu elements of %zu bytes are more than memory", name, call->count,
                              call->user->element_bytes);
    return 0;
}

static int check_type(ringred_comm *c, struct rr_call *call)
{
    const char *name = rr_collective_name(call->what);
    size_t bytes = rr_type_bytes(call->type);

    if (RR_UNLIKELY(rr_is_reduction(call->what) && call->op >= RR_USER_OP))
        return check_user(c, call);
    if (RR_UNLIKELY(rr_is_reduction(call->what) && (call->op < RINGRED_SUM || call->op > RINGRED_LXOR)))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %d is not an operator (types.h; sum is %d, avg is %d)",
                              name, call->op, RINGRED_SUM, RINGRED_AVG);
    if (RR_UNLIKELY(!bytes))
        return rr_comm_refuse(c, RINGRED_EINVAL,
                              "%s: %d is not an element type (types.h; float32 is %d, float64 is %d)", name,
                              call->type, RINGRED_FLOAT32, RINGRED_FLOAT64);
    if (RR_UNLIKELY(call->count > (SIZE_MAX >> 1) / bytes / (size_t)c->ranks))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %zu elements of %zu bytes are more than memory",
                              name, call->count, bytes);
    if (!rr_is_reduction(call->what))
        return 0;
    if (RR_UNLIKELY(!rr_op_legal(call->type, call->op)))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: there is no %s of %s (docs/NUMBERS.md)", name,
                              rr_op_name(call->op), rr_type_name(call->type));
    return 0;
}

static int check_root(ringred_comm *c, const struct rr_call *call)
{
    if (RR_UNLIKELY(call->root < 0 || call->root >= c->ranks))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: root is %d, the ranks are 0 to %d",
                              rr_collective_name(call->what), call->root, c->ranks - 1);
    return 0;
}

/* In place, the end with fewer parts is my part of the other; any other overlap is a mistake. */
static int check_overlap(ringred_comm *c, const struct rr_call *call, struct rr_shape shape,
                         const struct buffer *in, const struct buffer *out)
{
    size_t part = call->count * rr_call_element_bytes(call), own = (size_t)c->rank * part;
    uintptr_t due = shape.in == shape.out ? in->at : shape.in < shape.out ? out->at + own : in->at + own;

    if (RR_LIKELY(in->at >= out->at + out->bytes || out->at >= in->at + in->bytes))
        return 0;
    if (shape.in < shape.out ? in->at == due : out->at == due)
        return 0;
    return rr_comm_refuse(c, RINGRED_EINVAL, "%s: send and recv overlap without being the same (in place is %s)",
                          rr_collective_name(call->what),
                          shape.in == shape.out  ? "send == recv"
                          : shape.in < shape.out ? "send == recv + rank * count elements"
                                                 : "recv == send + rank * count elements");
}

int rr_api_check(ringred_comm *c, struct rr_call *call)
{
    if (RR_UNLIKELY(!c))
        return RINGRED_EINVAL;
    if (rr_is_rooted(call->what))
        RR_TRY(check_root(c, call));
    RR_TRY(check_type(c, call));
    struct rr_shape shape = rr_shape_of(call->what, c->ranks, call->root, c->rank);
    if (call->what == RR_BROADCAST && c->rank != call->root)
        call->in = call->out; /* send counts on the root only */
    if (!shape.in)
        call->in = NULL;
    if (!shape.out)
        call->out = NULL;
    size_t part = call->count * rr_call_element_bytes(call);
    struct buffer in = { "send", (uintptr_t)call->in, part * (size_t)shape.in };
    struct buffer out = { "recv", (uintptr_t)call->out, part * (size_t)shape.out };
    if (RR_UNLIKELY((in.bytes && !in.at) || (out.bytes && !out.at)))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %s is NULL, but count is %zu",
                              rr_collective_name(call->what), out.bytes && !out.at ? out.name : in.name,
                              call->count);
    return in.bytes && out.bytes ? check_overlap(c, call, shape, &in, &out) : 0;
}

static struct rr_call simple(enum rr_collective what, const void *send, void *recv, size_t count, int type, int op,
                             int root)
{
    return (struct rr_call){ .what = what, .in = send, .out = recv, .count = count, .type = type, .op = op, .root = root };
}

static int32_t run(ringred_comm *c, struct rr_call call)
{
    RR_TRY(rr_api_check(c, &call));
    return rr_comm_run(c, &call);
}

static int32_t start(ringred_comm *c, struct rr_call call, ringred_request **request)
{
    RR_TRY(rr_api_check(c, &call));
    return request ? rr_comm_start(c, &call, request)
                   : rr_comm_refuse(c, RINGRED_EINVAL, "%s: request is NULL", rr_collective_name(call.what));
}

int32_t ringred_allreduce(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                          int32_t op)
{
    return run(comm, simple(RR_ALLREDUCE, send, recv, count, type, op, 0));
}

int32_t ringred_allreduce_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                int32_t type, int32_t op, ringred_request **request)
{
    return start(comm, simple(RR_ALLREDUCE, send, recv, count, type, op, 0), request);
}

int32_t ringred_reduce(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                       int32_t op, int32_t root)
{
    return run(comm, simple(RR_REDUCE, send, recv, count, type, op, root));
}

int32_t ringred_reduce_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                             int32_t op, int32_t root, ringred_request **request)
{
    return start(comm, simple(RR_REDUCE, send, recv, count, type, op, root), request);
}

int32_t ringred_reduce_scatter(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                               int32_t op)
{
    return run(comm, simple(RR_REDUCE_SCATTER, send, recv, count, type, op, 0));
}

int32_t ringred_reduce_scatter_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                     int32_t type, int32_t op, ringred_request **request)
{
    return start(comm, simple(RR_REDUCE_SCATTER, send, recv, count, type, op, 0), request);
}

int32_t ringred_broadcast(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                          int32_t root)
{
    return run(comm, simple(RR_BROADCAST, send, recv, count, type, 0, root));
}

int32_t ringred_broadcast_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                int32_t type, int32_t root, ringred_request **request)
{
    return start(comm, simple(RR_BROADCAST, send, recv, count, type, 0, root), request);
}

int32_t ringred_allgather(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type)
{
    return run(comm, simple(RR_ALLGATHER, send, recv, count, type, 0, 0));
}

int32_t ringred_allgather_start(ringred_comm *comm, const void *send, void *recv, size_t count,
                                int32_t type, ringred_request **request)
{
    return start(comm, simple(RR_ALLGATHER, send, recv, count, type, 0, 0), request);
}

int32_t ringred_gather(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                       int32_t root)
{
    return run(comm, simple(RR_GATHER, send, recv, count, type, 0, root));
}

int32_t ringred_gather_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                             int32_t root, ringred_request **request)
{
    return start(comm, simple(RR_GATHER, send, recv, count, type, 0, root), request);
}

int32_t ringred_scatter(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                        int32_t root)
{
    return run(comm, simple(RR_SCATTER, send, recv, count, type, 0, root));
}

int32_t ringred_scatter_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                              int32_t root, ringred_request **request)
{
    return start(comm, simple(RR_SCATTER, send, recv, count, type, 0, root), request);
}

int32_t ringred_alltoall(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type)
{
    return run(comm, simple(RR_ALLTOALL, send, recv, count, type, 0, 0));
}

int32_t ringred_alltoall_start(ringred_comm *comm, const void *send, void *recv, size_t count, int32_t type,
                               ringred_request **request)
{
    return start(comm, simple(RR_ALLTOALL, send, recv, count, type, 0, 0), request);
}

/* ---- parts of unequal length ---- */

static bool fits(ringred_comm *c, size_t count, size_t at, size_t bytes)
{
    size_t most = (SIZE_MAX >> 1) / bytes / (size_t)c->ranks;

    return count <= most && at <= (SIZE_MAX >> 1) / bytes - count;
}

/* The end of the last part, in elements. EINVAL: too large, or two parts of an output overlap. */
static int check_parts(ringred_comm *c, const struct rr_call *call, const size_t *count, const size_t *at,
                       bool output, size_t *end)
{
    size_t bytes = rr_call_element_bytes(call), sum = 0;

    *end = 0;
    for (int r = 0; count && r < c->ranks; r++) {
        size_t from = at ? at[r] : sum;
        if (!fits(c, count[r], from, bytes))
            return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: part %d, %zu elements at %zu, is more than memory",
                                  rr_collective_name(call->what), r, count[r], from);
        if (!count[r])
            continue; /* wherever it is said to be */
        if (at && output && from < *end) /* not ascending: look closely */
            for (int q = 0; q < r; q++)
                if (count[q] && from < at[q] + count[q] && at[q] < from + count[r])
                    return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: parts %d and %d of recv overlap",
                                          rr_collective_name(call->what), q, r);
        sum += count[r];
        *end = from + count[r] > *end ? from + count[r] : *end;
    }
    return 0;
}

/* My part of my own vector is as long on both sides. */
static int check_own(ringred_comm *c, const struct rr_call *call)
{
    const struct rr_ragged *g = call->ragged;
    size_t in = g->in_count ? g->in_count[c->rank] : g->own_in;
    size_t out = g->out_count ? g->out_count[c->rank] : g->own_out;
    struct rr_shape shape = rr_shape_of(call->what, c->ranks, call->root, c->rank);

    if (in == out || !shape.in || !shape.out)
        return 0;
    return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: rank %d has %zu elements for itself and expects %zu",
                          rr_collective_name(call->what), c->rank, in, out);
}

/* One side of a call, part by part. */
struct side {
    uintptr_t at;
    const size_t *count, *places; /* NULL: one part of `own`; one part behind the other */
    size_t own, next;             /* next: where the part behind this one begins if places is NULL */
};

static struct buffer part_of(struct side *s, int r, size_t bytes)
{
    size_t from = s->places ? s->places[r] : s->next, n = s->count ? s->count[r] : s->own;

    s->next += n;
    return (struct buffer){ "", s->at + from * bytes, n * bytes };
}

static bool touch(const struct buffer *a, const struct buffer *b)
{
    return a->bytes && b->bytes && a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* In place, a vector of one part is my part of the other; nothing else of the two may touch. */
static int check_ragged_overlap(ringred_comm *c, const struct rr_call *call, size_t in_bytes, size_t out_bytes)
{
    const struct rr_ragged *g = call->ragged;
    struct buffer all_in = { "", (uintptr_t)call->in, in_bytes }, all_out = { "", (uintptr_t)call->out, out_bytes };
    struct side in = { all_in.at, g->in_count, g->in_at, g->own_in, 0 };
    size_t bytes = rr_call_element_bytes(call);

    if (RR_LIKELY(!touch(&all_in, &all_out)))
        return 0;
    for (int i = 0; i < (g->in_count ? c->ranks : 1); i++) {
        struct side out = { all_out.at, g->out_count, g->out_at, g->own_out, 0 };
        struct buffer from = part_of(&in, i, bytes);
        for (int j = 0; j < (g->out_count ? c->ranks : 1); j++) {
            struct buffer to = part_of(&out, j, bytes);
            bool own = (!g->in_count || i == c->rank) && (!g->out_count || j == c->rank);
            if (touch(&from, &to) && !(own && from.at == to.at && call->what != RR_ALLTOALL))
                return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: send and recv overlap%s",
                                      rr_collective_name(call->what),
                                      call->what == RR_ALLTOALL
                                          ? "; it cannot be done in place"
                                          : " without the one being this rank's part of the other");
        }
    }
    return 0;
}

int rr_api_check_parts(ringred_comm *c, struct rr_call *call, struct rr_ragged *g)
{
    size_t bytes, in_end, out_end;

    if (RR_UNLIKELY(!c))
        return RINGRED_EINVAL;
    if (rr_is_rooted(call->what))
        RR_TRY(check_root(c, call));
    RR_TRY(check_type(c, call));
    struct rr_shape shape = rr_shape_of(call->what, c->ranks, call->root, c->rank);
    bool in_parts = shape.in > 1 || (shape.in && call->what == RR_SCATTER) || call->what == RR_ALLTOALL ||
                    call->what == RR_REDUCE_SCATTER;
    bool out_parts = call->what == RR_ALLGATHER || call->what == RR_ALLTOALL ||
                     (call->what == RR_GATHER && shape.out);
    if (!in_parts)
        g->in_count = g->in_at = NULL;
    if (!out_parts)
        g->out_count = g->out_at = NULL;
    if ((in_parts && !g->in_count) || (out_parts && !g->out_count))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: the array of counts is NULL",
                              rr_collective_name(call->what));
    if (call->what == RR_REDUCE_SCATTER)
        g->own_out = g->in_count[c->rank];
    call->ragged = g;
    RR_TRY(check_parts(c, call, g->in_count, g->in_at, false, &in_end));
    RR_TRY(check_parts(c, call, g->out_count, g->out_at, true, &out_end));
    bytes = rr_call_element_bytes(call);
    if (!fits(c, g->own_in, 0, bytes) || !fits(c, g->own_out, 0, bytes))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: %zu elements of %zu bytes are more than memory",
                              rr_collective_name(call->what), g->own_in > g->own_out ? g->own_in : g->own_out,
                              bytes);
    RR_TRY(check_own(c, call));
    in_end = in_parts ? in_end : shape.in ? g->own_in : 0;
    out_end = out_parts ? out_end : shape.out ? g->own_out : 0;
    call->in = in_end ? call->in : NULL;
    call->out = out_end ? call->out : NULL;
    if ((in_end && !call->in) || (out_end && !call->out))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%sv: %s is NULL, but not empty",
                              rr_collective_name(call->what), in_end && !call->in ? "send" : "recv");
    if (call->what == RR_ALLGATHER || call->what == RR_REDUCE_SCATTER) /* known to all */
        call->count = rr_ragged_most(g, c->ranks);
    return check_ragged_overlap(c, call, in_end * bytes, out_end * bytes);
}

static int32_t run_ragged(ringred_comm *c, struct rr_call call, struct rr_ragged parts)
{
    RR_TRY(rr_api_check_parts(c, &call, &parts));
    return rr_comm_run(c, &call);
}

static int32_t start_ragged(ringred_comm *c, struct rr_call call, struct rr_ragged parts,
                            ringred_request **request)
{
    RR_TRY(rr_api_check_parts(c, &call, &parts));
    return request ? rr_comm_start(c, &call, request)
                   : rr_comm_refuse(c, RINGRED_EINVAL, "%sv: request is NULL", rr_collective_name(call.what));
}

static struct rr_call call_of(enum rr_collective what, const void *send, void *recv, int type, int op, int root)
{
    return (struct rr_call){ .what = what, .in = send, .out = recv, .type = type, .op = op, .root = root };
}

static struct rr_ragged gathered(size_t count, const size_t *counts, const size_t *places)
{
    return (struct rr_ragged){ .own_in = count, .out_count = counts, .out_at = places };
}

static struct rr_ragged dealt_out(const size_t *counts, const size_t *places, size_t count)
{
    return (struct rr_ragged){ .in_count = counts, .in_at = places, .own_out = count };
}

static struct rr_ragged exchanged(const size_t *send_counts, const size_t *send_places,
                                  const size_t *recv_counts, const size_t *recv_places)
{
    return (struct rr_ragged){ send_counts, send_places, recv_counts, recv_places, 0, 0 };
}

int32_t ringred_allgatherv(ringred_comm *comm, const void *send, size_t count, void *recv,
                           const size_t *counts, const size_t *places, int32_t type)
{
    return run_ragged(comm, call_of(RR_ALLGATHER, send, recv, type, 0, 0),
                        gathered(count, counts, places));
}

int32_t ringred_allgatherv_start(ringred_comm *comm, const void *send, size_t count, void *recv,
                                 const size_t *counts, const size_t *places, int32_t type,
                                 ringred_request **request)
{
    return start_ragged(comm, call_of(RR_ALLGATHER, send, recv, type, 0, 0),
                        gathered(count, counts, places), request);
}

int32_t ringred_gatherv(ringred_comm *comm, const void *send, size_t count, void *recv,
                        const size_t *counts, const size_t *places, int32_t type, int32_t root)
{
    return run_ragged(comm, call_of(RR_GATHER, send, recv, type, 0, root),
                        gathered(count, counts, places));
}

int32_t ringred_gatherv_start(ringred_comm *comm, const void *send, size_t count, void *recv,
                              const size_t *counts, const size_t *places, int32_t type, int32_t root,
                              ringred_request **request)
{
    return start_ragged(comm, call_of(RR_GATHER, send, recv, type, 0, root),
                        gathered(count, counts, places), request);
}

int32_t ringred_scatterv(ringred_comm *comm, const void *send, const size_t *counts, const size_t *places,
                         void *recv, size_t count, int32_t type, int32_t root)
{
    return run_ragged(comm, call_of(RR_SCATTER, send, recv, type, 0, root),
                        dealt_out(counts, places, count));
}

int32_t ringred_scatterv_start(ringred_comm *comm, const void *send, const size_t *counts,
                               const size_t *places, void *recv, size_t count, int32_t type, int32_t root,
                               ringred_request **request)
{
    return start_ragged(comm, call_of(RR_SCATTER, send, recv, type, 0, root),
                        dealt_out(counts, places, count), request);
}

int32_t ringred_reduce_scatterv(ringred_comm *comm, const void *send, void *recv, const size_t *counts,
                                int32_t type, int32_t op)
{
    return run_ragged(comm, call_of(RR_REDUCE_SCATTER, send, recv, type, op, 0),
                        dealt_out(counts, NULL, 0));
}

int32_t ringred_reduce_scatterv_start(ringred_comm *comm, const void *send, void *recv,
                                      const size_t *counts, int32_t type, int32_t op,
                                      ringred_request **request)
{
    return start_ragged(comm, call_of(RR_REDUCE_SCATTER, send, recv, type, op, 0),
                        dealt_out(counts, NULL, 0), request);
}

int32_t ringred_alltoallv(ringred_comm *comm, const void *send, const size_t *send_counts,
                          const size_t *send_places, void *recv, const size_t *recv_counts,
                          const size_t *recv_places, int32_t type)
{
    return run_ragged(comm, call_of(RR_ALLTOALL, send, recv, type, 0, 0),
                        exchanged(send_counts, send_places, recv_counts, recv_places));
}

int32_t ringred_alltoallv_start(ringred_comm *comm, const void *send, const size_t *send_counts,
                                const size_t *send_places, void *recv, const size_t *recv_counts,
                                const size_t *recv_places, int32_t type, ringred_request **request)
{
    return start_ragged(comm, call_of(RR_ALLTOALL, send, recv, type, 0, 0),
                        exchanged(send_counts, send_places, recv_counts, recv_places), request);
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
