/* SPDX-License-Identifier: Apache-2.0 */
/* The door to any collective with options: reads the caller's struct, then goes the way of the plain calls. */
#include "api/api.h"

#include <math.h>
#include <string.h>

#define CALL_LEAST sizeof(ringred_call) /* what the first release that had it has */

static const struct row {
    enum rr_collective what;
    bool parts;
} rows[] = {
    [RINGRED_ALLREDUCE - RINGRED_ALLREDUCE] = { RR_ALLREDUCE, false },
    [RINGRED_REDUCE - RINGRED_ALLREDUCE] = { RR_REDUCE, false },
    [RINGRED_REDUCE_SCATTER - RINGRED_ALLREDUCE] = { RR_REDUCE_SCATTER, false },
    [RINGRED_BROADCAST - RINGRED_ALLREDUCE] = { RR_BROADCAST, false },
    [RINGRED_ALLGATHER - RINGRED_ALLREDUCE] = { RR_ALLGATHER, false },
    [RINGRED_GATHER - RINGRED_ALLREDUCE] = { RR_GATHER, false },
    [RINGRED_SCATTER - RINGRED_ALLREDUCE] = { RR_SCATTER, false },
    [RINGRED_ALLTOALL - RINGRED_ALLREDUCE] = { RR_ALLTOALL, false },
    [RINGRED_BARRIER - RINGRED_ALLREDUCE] = { RR_BARRIER, false },
    [RINGRED_REDUCE_SCATTERV - RINGRED_ALLREDUCE] = { RR_REDUCE_SCATTER, true },
    [RINGRED_ALLGATHERV - RINGRED_ALLREDUCE] = { RR_ALLGATHER, true },
    [RINGRED_GATHERV - RINGRED_ALLREDUCE] = { RR_GATHER, true },
    [RINGRED_SCATTERV - RINGRED_ALLREDUCE] = { RR_SCATTER, true },
    [RINGRED_ALLTOALLV - RINGRED_ALLREDUCE] = { RR_ALLTOALL, true },
};

void ringred_call_init(ringred_call *call, size_t size, int32_t collective)
{
    const ringred_call ours = { .collective = collective, .scale = 1, .timeout_ns = RINGRED_BY_SETTING };

    rr_struct_init(call, size, &ours, sizeof ours);
}

/* A caller's struct of another size: what is missing is zero, what is too much must be zero. */
static int read_struct(ringred_comm *c, const ringred_call *given, ringred_call *call)
{
    if (!given || given->struct_size < CALL_LEAST)
        return rr_comm_refuse(c, RINGRED_EINVAL, "call.struct_size is %u; call ringred_call_init first (%zu)",
                              given ? given->struct_size : 0, CALL_LEAST);
    if (rr_struct_is_newer(given, given->struct_size, sizeof *call))
        return rr_comm_refuse(c, RINGRED_EVERSION, "call has fields that are newer than this library (%s)",
                              RINGRED_VERSION);
    ringred_call_init(call, sizeof *call, given->collective); /* fields that the caller does not know yet */
    memcpy(call, given, given->struct_size < sizeof *call ? given->struct_size : sizeof *call);
    return 0;
}

static bool is_scalable(int type, int op)
{
    return (op == RINGRED_SUM || op == RINGRED_AVG) &&
           (rr_is_narrow(type) || type == RINGRED_FLOAT32 || type == RINGRED_FLOAT64 || type == RINGRED_COMPLEX64 ||
            type == RINGRED_COMPLEX128);
}

static int check_options(ringred_comm *c, const ringred_call *call, const char *name)
{
    if (call->reserved)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: call.reserved is %d, not 0", name, call->reserved);
    if (!isfinite(call->scale) || call->scale == 0)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: scale is %g; give a finite number, 1 for none", name, call->scale);
    if (call->timeout_ns < RINGRED_FOREVER && call->timeout_ns != RINGRED_BY_SETTING)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: timeout_ns is %lld; give nanoseconds, -1 for ever, or "
                              "RINGRED_BY_SETTING", name, (long long)call->timeout_ns);
    return 0;
}

/* The record of a call; parts is what its ragged points to, if it has any. */
static int convert(ringred_comm *c, const ringred_call *given, struct rr_call *to, struct rr_ragged *parts)
{
    ringred_call call;

    if (!c)
        return RINGRED_EINVAL;
    RR_TRY(read_struct(c, given, &call));
    if (call.collective < RINGRED_ALLREDUCE || call.collective > RINGRED_ALLTOALLV)
        return rr_comm_refuse(c, RINGRED_EINVAL, "call.collective is %d, which is none (RINGRED_ALLREDUCE is %d)",
                              call.collective, RINGRED_ALLREDUCE);
    const struct row *row = &rows[call.collective - RINGRED_ALLREDUCE];
    RR_TRY(check_options(c, &call, rr_collective_name(row->what)));
    *to = (struct rr_call){ .what = row->what, .in = call.send, .out = call.recv, .type = call.type,
                            .timed = call.timeout_ns != RINGRED_BY_SETTING, .timeout_ns = call.timeout_ns,
                            .done = call.done, .done_context = call.done_context };
    to->op = rr_is_reduction(row->what) ? call.op : 0;
    to->root = rr_is_rooted(row->what) ? call.root : 0;
    to->count = row->parts ? 0 : call.count;
    if (row->what == RR_BARRIER) {
        to->type = 0;
        to->count = 0;
        return 0;
    }
    if (rr_is_reduction(row->what) && call.scale != 1) {
        if (!is_scalable(call.type, call.op))
            return rr_comm_refuse(c, RINGRED_EINVAL, "%s: scale is %g, but only sums and averages of floats and complex "
                                  "numbers are scaled", rr_collective_name(row->what), call.scale);
        to->scale = call.scale;
    }
    if (!row->parts)
        return rr_api_check(c, to);
    *parts = (struct rr_ragged){ call.send_counts, call.send_places, call.recv_counts, call.recv_places, call.count,
                                 call.count };
    if (row->what == RR_REDUCE_SCATTER)
        parts->in_at = NULL; /* one behind the other */
    return rr_api_check_parts(c, to, parts);
}

int32_t ringred_run(ringred_comm *comm, const ringred_call *given)
{
    struct rr_ragged parts;
    struct rr_call call;

    RR_TRY(convert(comm, given, &call, &parts));
    if (call.done)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "%s: a call that blocks has no use for done",
                              rr_collective_name(call.what));
    return rr_comm_run(comm, &call);
}

int32_t ringred_start(ringred_comm *comm, const ringred_call *given, ringred_request **request)
{
    struct rr_ragged parts;
    struct rr_call call;

    RR_TRY(convert(comm, given, &call, &parts));
    if (!request == !call.done)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "%s: give either a request or done, not %s",
                              rr_collective_name(call.what), request ? "both" : "neither");
    return rr_comm_start(comm, &call, request);
}

int32_t ringred_comm_descriptor(ringred_comm *comm)
{
    if (!comm)
        return RINGRED_EINVAL;
    int fd = rr_listen_descriptor(comm->family);
    return fd == RINGRED_ELIMIT ? rr_comm_refuse(comm, RINGRED_ELIMIT, "no descriptors for an event loop's") : fd;
}

int32_t ringred_poll(ringred_comm *comm)
{
    return comm ? rr_listen_poll(comm->family) : RINGRED_EINVAL;
}
