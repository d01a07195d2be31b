/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives: what is to be known of each, how its buffers are laid out, and its calls.
 *
 * Sizes are nccl-tests': that of the longer buffer of a call. Where a buffer holds a part for each
 * rank the count is that of one part. Parts of unequal length come in pairs around the mean, the
 * first pair farthest from it: with --uneven 0.5 and four ranks 0.5, 1.5, 0.75 and 1.25 times the
 * mean; with 1 the first part is empty. What rank i sends to rank j in an alltoall is part
 * (i + j) mod n of these, so every rank sends and receives as much. */
#include "bench.h"

#include <string.h>

static const struct bench_row rows[BENCH_COLLECTIVES] = {
    [BENCH_ALLREDUCE] = { .name = "allreduce",
                          .send = BENCH_ONE,
                          .recv = BENCH_ONE,
                          .reduces = true,
                          .in_place = true,
                          .crossings = 2 },
    [BENCH_REDUCE] = { .name = "reduce",
                       .send = BENCH_ONE,
                       .recv = BENCH_ONE,
                       .root = BENCH_TO_ROOT,
                       .reduces = true,
                       .in_place = true },
    [BENCH_BROADCAST] = { .name = "broadcast",
                          .send = BENCH_ONE,
                          .recv = BENCH_ONE,
                          .root = BENCH_FROM_ROOT,
                          .in_place = true },
    [BENCH_ALLGATHER] = { .name = "allgather",
                          .send = BENCH_ONE,
                          .recv = BENCH_PARTS,
                          .in_place = true,
                          .crossings = 1 },
    [BENCH_GATHER] = { .name = "gather",
                       .send = BENCH_ONE,
                       .recv = BENCH_PARTS,
                       .root = BENCH_TO_ROOT,
                       .in_place = true,
                       .crossings = 1 },
    [BENCH_REDUCE_SCATTER] = { .name = "reduce_scatter",
                               .send = BENCH_PARTS,
                               .recv = BENCH_ONE,
                               .reduces = true,
                               .in_place = true,
                               .crossings = 1 },
    [BENCH_SCATTER] = { .name = "scatter",
                        .send = BENCH_PARTS,
                        .recv = BENCH_ONE,
                        .root = BENCH_FROM_ROOT,
                        .in_place = true,
                        .crossings = 1 },
    [BENCH_ALLTOALL] = { .name = "alltoall",
                         .send = BENCH_PARTS,
                         .recv = BENCH_PARTS,
                         .in_place = true,
                         .crossings = 1 },
    [BENCH_BARRIER] = { .name = "barrier" },
    [BENCH_ALLGATHERV] = { .name = "allgatherv",
                           .send = BENCH_ONE,
                           .recv = BENCH_PARTS,
                           .uneven = true,
                           .in_place = true,
                           .crossings = 1 },
    [BENCH_GATHERV] = { .name = "gatherv",
                        .send = BENCH_ONE,
                        .recv = BENCH_PARTS,
                        .root = BENCH_TO_ROOT,
                        .uneven = true,
                        .in_place = true,
                        .crossings = 1 },
    [BENCH_REDUCE_SCATTERV] = { .name = "reduce_scatterv",
                                .send = BENCH_PARTS,
                                .recv = BENCH_ONE,
                                .reduces = true,
                                .uneven = true,
                                .in_place = true,
                                .crossings = 1 },
    [BENCH_SCATTERV] = { .name = "scatterv",
                         .send = BENCH_PARTS,
                         .recv = BENCH_ONE,
                         .root = BENCH_FROM_ROOT,
                         .uneven = true,
                         .in_place = true,
                         .crossings = 1 },
    [BENCH_ALLTOALLV] = { .name = "alltoallv",
                          .send = BENCH_PARTS,
                          .recv = BENCH_PARTS,
                          .uneven = true,
                          .crossings = 1 },
};

/* "all_reduce" and "reduce-scatter" are as good as our own spelling. */
static bool is_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        a += strspn(a, "_-");
        b += strspn(b, "_-");
        if (*a != *b || !*a)
            return *a == *b;
    }
}

const struct bench_row *bench_row_of(const char *name)
{
    for (int i = 0; i < BENCH_COLLECTIVES; i++)
        if (is_same(rows[i].name, name))
            return &rows[i];
    return NULL;
}

enum bench_collective bench_collective_of(const struct bench_row *row)
{
    return (enum bench_collective)(row - rows);
}

void bench_list_collectives(FILE *out)
{
    for (int i = 0; i < BENCH_COLLECTIVES; i++)
        fprintf(out, "%s %s", i == BENCH_ALLGATHERV ? "\n  " : "", rows[i].name);
}

/* ---- the shape of a call ---- */

static bool has_parts(const struct bench_row *row)
{
    return row->send == BENCH_PARTS || row->recv == BENCH_PARTS;
}

/* Elements of part i; the last of an odd number has no mate and is the mean. */
static size_t nth_part(const struct bench_rank *r, size_t mean, int i)
{
    int n = r->size, pairs = (n + 1) / 2;
    double away = r->options->uneven * (1 - (double)(i / 2) / pairs);
    size_t small = (size_t)((double)mean * (1 - away));

    if (!r->options->row->uneven || (n % 2 == 1 && i == n - 1))
        return mean;
    return i % 2 ? 2 * mean - small : small;
}

size_t bench_part(const struct bench_rank *r, const struct bench_point *p, int from, int to)
{
    if (!has_parts(r->options->row))
        return p->count;
    if (r->options->row->send == BENCH_PARTS && r->options->row->recv == BENCH_PARTS)
        return nth_part(r, p->count, (from + to) % r->size);
    return nth_part(r, p->count, r->options->row->send == BENCH_PARTS ? to : from);
}

size_t bench_before(const struct bench_rank *r, const struct bench_point *p, int from, int to)
{
    size_t sum = 0;

    for (int q = 0; q < to; q++)
        sum += bench_part(r, p, from, q);
    return sum;
}

void bench_shape(const struct bench_rank *r, struct bench_point *p, size_t bytes)
{
    const struct bench_row *row = r->options->row;
    size_t all = 0;

    p->count = bytes / p->width / (has_parts(row) ? (size_t)r->size : 1);
    p->before = 0;
    for (int q = 0; q < r->size; q++) {
        bool sent = row->send == BENCH_PARTS;

        r->parts[q] = bench_part(r, p, sent ? r->rank : q, sent ? q : r->rank);
        p->before += q < r->rank ? r->parts[q] : 0;
        all += r->parts[q];
    }
    p->own = r->parts[r->rank];
    p->sends = row->send == BENCH_PARTS ? all : row->send == BENCH_ONE ? p->own : 0;
    p->recvs = row->recv == BENCH_PARTS ? all : row->recv == BENCH_ONE ? p->own : 0;
    p->bytes = (p->sends > p->recvs ? p->sends : p->recvs) * p->width;
}

/* ---- the call ---- */

static int call_even(const struct bench_rank *r, const struct bench_point *p)
{
    int root = r->options->root;

    switch (r->options->collective) {
    case BENCH_ALLREDUCE:
        return ringred_allreduce(r->comm, p->send, p->recv, p->count, p->type, p->op);
    case BENCH_REDUCE:
        return ringred_reduce(r->comm, p->send, p->recv, p->count, p->type, p->op, root);
    case BENCH_BROADCAST:
        return ringred_broadcast(r->comm, p->send, p->recv, p->count, p->type, root);
    case BENCH_ALLGATHER:
        return ringred_allgather(r->comm, p->send, p->recv, p->count, p->type);
    case BENCH_GATHER:
        return ringred_gather(r->comm, p->send, p->recv, p->count, p->type, root);
    case BENCH_REDUCE_SCATTER:
        return ringred_reduce_scatter(r->comm, p->send, p->recv, p->count, p->type, p->op);
    case BENCH_SCATTER:
        return ringred_scatter(r->comm, p->send, p->recv, p->count, p->type, root);
    case BENCH_ALLTOALL:
        return ringred_alltoall(r->comm, p->send, p->recv, p->count, p->type);
    case BENCH_BARRIER:
        return ringred_barrier(r->comm);
    default:
        return RINGRED_EINVAL;
    }
}

int bench_call(const struct bench_rank *r, const struct bench_point *p)
{
    const size_t *parts = r->parts;
    int root = r->options->root;

    switch (r->options->collective) {
    case BENCH_ALLGATHERV:
        return ringred_allgatherv(r->comm, p->send, p->own, p->recv, parts, NULL, p->type);
    case BENCH_GATHERV:
        return ringred_gatherv(r->comm, p->send, p->own, p->recv, parts, NULL, p->type, root);
    case BENCH_REDUCE_SCATTERV:
        return ringred_reduce_scatterv(r->comm, p->send, p->recv, parts, p->type, p->op);
    case BENCH_SCATTERV:
        return ringred_scatterv(r->comm, p->send, parts, NULL, p->recv, p->own, p->type, root);
    case BENCH_ALLTOALLV: /* parts to and from a rank are as long */
        return ringred_alltoallv(r->comm, p->send, parts, NULL, p->recv, parts, NULL, p->type);
    default:
        return call_even(r, p);
    }
}

static int start_even(const struct bench_rank *r, const struct bench_point *p,
                      ringred_request **request)
{
    ringred_comm *comm = r->comm;
    int root = r->options->root;

    switch (r->options->collective) {
    case BENCH_ALLREDUCE:
        return ringred_allreduce_start(comm, p->send, p->recv, p->count, p->type, p->op, request);
    case BENCH_REDUCE:
        return ringred_reduce_start(comm, p->send, p->recv, p->count, p->type, p->op, root,
                                    request);
    case BENCH_BROADCAST:
        return ringred_broadcast_start(comm, p->send, p->recv, p->count, p->type, root, request);
    case BENCH_ALLGATHER:
        return ringred_allgather_start(comm, p->send, p->recv, p->count, p->type, request);
    case BENCH_GATHER:
        return ringred_gather_start(comm, p->send, p->recv, p->count, p->type, root, request);
    case BENCH_REDUCE_SCATTER:
        return ringred_reduce_scatter_start(comm, p->send, p->recv, p->count, p->type, p->op,
                                            request);
    case BENCH_SCATTER:
        return ringred_scatter_start(comm, p->send, p->recv, p->count, p->type, root, request);
    case BENCH_ALLTOALL:
        return ringred_alltoall_start(comm, p->send, p->recv, p->count, p->type, request);
    case BENCH_BARRIER:
        return ringred_barrier_start(comm, request);
    default:
        return RINGRED_EINVAL;
    }
}

int bench_start(const struct bench_rank *r, const struct bench_point *p, ringred_request **request)
{
    ringred_comm *comm = r->comm;
    const size_t *parts = r->parts;
    int root = r->options->root;

    switch (r->options->collective) {
    case BENCH_ALLGATHERV:
        return ringred_allgatherv_start(comm, p->send, p->own, p->recv, parts, NULL, p->type,
                                        request);
    case BENCH_GATHERV:
        return ringred_gatherv_start(comm, p->send, p->own, p->recv, parts, NULL, p->type, root,
                                     request);
    case BENCH_REDUCE_SCATTERV:
        return ringred_reduce_scatterv_start(comm, p->send, p->recv, parts, p->type, p->op,
                                             request);
    case BENCH_SCATTERV:
        return ringred_scatterv_start(comm, p->send, parts, NULL, p->recv, p->own, p->type, root,
                                      request);
    case BENCH_ALLTOALLV:
        return ringred_alltoallv_start(comm, p->send, parts, NULL, p->recv, parts, NULL, p->type,
                                       request);
    default:
        return start_even(r, p, request);
    }
}
