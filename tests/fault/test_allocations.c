/* SPDX-License-Identifier: Apache-2.0 */
/* Whichever allocation of whichever public call fails on rank 0, the call is refused with ENOMEM, nothing has changed, and it works as soon
 * as there is memory. A rank's own library, inside the test, can be told which allocation is to fail. (Making a communicator and
 * shrinking it: tests/evidence/failure_matrix.) */
#include "coll.h"

#include <ringred/fusion.h>

#include "base/base.h" /* for rr_alloc_fail_after alone: all else is the client's */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SIZE  3
#define LAST  1000000 /* no call allocates so often */
#define COUNT 5000

/* Who calls until it works. */
enum who {
    ALONE,   /* rank 0; the others need not know */
    OTHERS_WAIT, /* rank 0, while the others are inside their one call of a collective */
    ALL      /* all ranks get the same status, so all call again */
};

struct place {
    ringred_comm *comm;
    int rank;
    float *in, *out;
    void *made; /* by the call, to be undone */
    ringred_fusion *fusion;
    int fused;  /* of do_fusion's calls, that have been done */
};

static void add(void *context, const void *left, const void *right, void *result, size_t count)
{
    const int32_t *a = left, *b = right;

    (void)context;
    for (size_t i = 0; i < count; i++)
        ((int32_t *)result)[i] = a[i] + b[i];
}

static int32_t do_allreduce(struct place *p)
{
    return ringred_allreduce(p->comm, p->in, p->out, COUNT, RINGRED_FLOAT32, RINGRED_SUM);
}
static int32_t do_reduce(struct place *p)
{
    return ringred_reduce(p->comm, p->in, p->out, COUNT, RINGRED_FLOAT32, RINGRED_MAX, 1);
}
static int32_t do_reduce_scatter(struct place *p)
{
    return ringred_reduce_scatter(p->comm, p->in, p->out, COUNT / SIZE, RINGRED_FLOAT32, RINGRED_MAX);
}
static int32_t do_broadcast(struct place *p)
{
    return ringred_broadcast(p->comm, p->in, p->out, COUNT, RINGRED_FLOAT32, 2);
}
static int32_t do_allgather(struct place *p)
{
    return ringred_allgather(p->comm, p->in, p->out, COUNT / SIZE, RINGRED_FLOAT32);
}
static int32_t do_gather(struct place *p)
{
    return ringred_gather(p->comm, p->in, p->out, COUNT / SIZE, RINGRED_FLOAT32, 0);
}
static int32_t do_scatter(struct place *p)
{
    return ringred_scatter(p->comm, p->in, p->out, COUNT / SIZE, RINGRED_FLOAT32, 1);
}
static int32_t do_alltoall(struct place *p)
{
    return ringred_alltoall(p->comm, p->in, p->out, COUNT / SIZE, RINGRED_FLOAT32);
}
static int32_t do_barrier(struct place *p)
{
    return ringred_barrier(p->comm);
}
static int32_t do_allgatherv(struct place *p)
{
    static const size_t counts[SIZE] = { 7, 0, 900 };
    return ringred_allgatherv(p->comm, p->in, counts[p->rank], p->out, counts, NULL, RINGRED_FLOAT32);
}
static int32_t do_alltoallv(struct place *p)
{
    const size_t send[SIZE] = { (size_t)p->rank, (size_t)p->rank + 1, (size_t)p->rank + 2 };
    const size_t recv[SIZE] = { (size_t)p->rank, (size_t)p->rank + 1, (size_t)p->rank + 2 };
    return ringred_alltoallv(p->comm, p->in, send, NULL, p->out, recv, NULL, RINGRED_FLOAT32);
}
static int32_t do_reduce_scatterv(struct place *p)
{
    static const size_t counts[SIZE] = { 7, 0, 900 };
    return ringred_reduce_scatterv(p->comm, p->in, p->out, counts, RINGRED_FLOAT32, RINGRED_SUM);
}
static int32_t do_list(struct place *p)
{
    const void *in[3] = { p->in, p->in + 10, p->in + 100 };
    void *out[3] = { p->out, p->out + 10, p->out + 100 };
    const size_t counts[3] = { 3, 70, 3000 };
    const int32_t types[3] = { RINGRED_FLOAT32, RINGRED_FLOAT32, RINGRED_FLOAT32 };
    return ringred_allreduce_list(p->comm, in, out, counts, types, 3, RINGRED_SUM);
}
static int32_t do_start(struct place *p)
{
    ringred_request *request;
    int32_t rc = ringred_broadcast_start(p->comm, p->in, p->out, 10, RINGRED_FLOAT32, 1, &request);
    return rc < 0 ? rc : ringred_wait(request, RINGRED_FOREVER);
}
static int32_t do_messages(struct place *p)
{
    int32_t rc = 0;
    if (p->rank == 0)
        rc = ringred_send(p->comm, p->in, COUNT, RINGRED_FLOAT32, 1, 5);
    if (p->rank == 1)
        rc = ringred_recv(p->comm, p->out, COUNT, RINGRED_FLOAT32, RINGRED_ANY_SOURCE, 5, NULL);
    return rc;
}
static int32_t do_split(struct place *p)
{
    ringred_comm *part = NULL;
    int32_t rc = ringred_comm_split(p->comm, 0, -p->rank, &part);
    p->made = part;
    return rc;
}
static int32_t do_group(struct place *p)
{
    static const int32_t ranks[SIZE] = { 2, 0, 1 };
    ringred_comm *part = NULL;
    int32_t rc = ringred_comm_group(p->comm, ranks, SIZE, &part);
    p->made = part;
    return rc;
}
static int32_t do_fusion_create(struct place *p)
{
    return ringred_fusion_create(p->comm, NULL, &p->fusion, NULL);
}
/* Two steps of two gradients; a try goes on where the last one had no memory. */
static int32_t do_fusion(struct place *p)
{
    for (int32_t rc; p->fused < 6; p->fused++) {
        if (p->fused % 3 == 0)
            rc = ringred_fusion_add(p->fusion, "first", p->out, 3000, RINGRED_FLOAT32);
        else if (p->fused % 3 == 1)
            rc = ringred_fusion_add(p->fusion, "second", p->in, 70, RINGRED_FLOAT32);
        else
            rc = ringred_fusion_wait(p->fusion, RINGRED_FOREVER);
        if (rc < 0)
            return rc;
    }
    return 0;
}
static int32_t do_op(struct place *p)
{
    int32_t op;
    return ringred_op_create(p->comm, add, NULL, 4, &op);
}
static int32_t do_alloc(struct place *p)
{
    void *memory;
    int32_t rc = ringred_alloc(p->comm, 100000, &memory);
    return rc < 0 ? rc : ringred_free(memory);
}
static int32_t do_describe(struct place *p)
{
    char text[65536];
    int64_t rc = ringred_comm_describe(p->comm, "allreduce", 1000, text, sizeof text);
    return rc < 0 ? (int32_t)rc : 0;
}
static int32_t do_about(struct place *p)
{
    char text[65536];
    int64_t rc = ringred_describe(text, sizeof text);
    (void)p;
    return rc < 0 ? (int32_t)rc : 0;
}
static int32_t do_simulate(struct place *p)
{
    char text[65536];
    int64_t rc = ringred_simulate("nodes=4 bytes=1M", text, sizeof text);
    (void)p;
    return rc < 0 ? (int32_t)rc : 0;
}
static int32_t do_explain(struct place *p)
{
    char text[65536];
    int64_t rc = ringred_explain("nodes=2 per_host=2 bytes=1M", NULL, text, sizeof text);
    (void)p;
    return rc < 0 ? (int32_t)rc : 0;
}
static int32_t do_descriptor(struct place *p)
{
    int32_t rc = ringred_comm_descriptor(p->comm);
    return rc < 0 ? rc : 0;
}
static int32_t do_poll(struct place *p)
{
    return ringred_poll(p->comm);
}
static int32_t do_id(struct place *p)
{
    ringred_unique_id id;
    (void)p;
    return ringred_unique_id_create(&id, NULL);
}

static const struct {
    const char *name;
    int32_t (*call)(struct place *p);
    enum who who;
} calls[] = {
    { "allreduce", do_allreduce, OTHERS_WAIT }, { "reduce", do_reduce, OTHERS_WAIT },
    { "reduce_scatter", do_reduce_scatter, OTHERS_WAIT }, { "broadcast", do_broadcast, OTHERS_WAIT },
    { "allgather", do_allgather, OTHERS_WAIT }, { "gather", do_gather, OTHERS_WAIT }, { "scatter", do_scatter, OTHERS_WAIT },
    { "alltoall", do_alltoall, OTHERS_WAIT }, { "barrier", do_barrier, OTHERS_WAIT }, { "allgatherv", do_allgatherv, OTHERS_WAIT },
    { "alltoallv", do_alltoallv, OTHERS_WAIT }, { "reduce_scatterv", do_reduce_scatterv, OTHERS_WAIT },
    { "allreduce_list", do_list, OTHERS_WAIT }, { "broadcast_start", do_start, OTHERS_WAIT }, { "send", do_messages, OTHERS_WAIT },
    { "split", do_split, ALL }, { "group", do_group, ALL }, { "op_create", do_op, ALL },
    { "fusion_create", do_fusion_create, ALL }, { "fusion", do_fusion, OTHERS_WAIT },
    { "alloc", do_alloc, ALONE }, { "comm_describe", do_describe, ALONE }, { "describe", do_about, ALONE },
    { "simulate", do_simulate, ALONE }, { "explain", do_explain, ALONE }, { "descriptor", do_descriptor, ALONE },
    { "poll", do_poll, ALONE }, { "unique_id_create", do_id, ALONE },
};
#define CALLS (sizeof calls / sizeof calls[0])

static void undo(struct place *p)
{
    (void)ringred_comm_destroy(p->made); /* NULL where there is none */
    p->made = NULL;
}

/* The status of the last try, and how often there was no memory. */
static int32_t try_until_it_works(struct place *p, size_t which, bool from_there, int *refused)
{
    bool fails = p->rank == 0 && (calls[which].who != ALONE || p->rank == 0);
    int32_t rc = RINGRED_ENOMEM;

    for (long nth = 1; rc == RINGRED_ENOMEM && nth < LAST; nth += 1 + nth / 16) {
        if (fails)
            rr_alloc_fail_after(nth, from_there);
        rc = calls[which].call(p);
        rr_alloc_fail_after(0, false);
        undo(p);
        *refused += rc == RINGRED_ENOMEM;
    }
    return rc;
}

static void all_calls(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    float in[COUNT] = { 0 }, out[COUNT];

    for (int from_there = 0; from_there < 2; from_there++) {
        struct place p = { .comm = coll_open(me, setup), .rank = me->rank, .in = in, .out = out };
        int refused = 0, calls_refused = 0;
        for (size_t i = 0; i < CALLS; i++) {
            int before = refused;
            bool waits = me->rank != 0 && calls[i].who == OTHERS_WAIT;
            if (calls[i].who == ALONE && me->rank != 0)
                continue;
            if (calls[i].call == do_fusion && !strstr(setup->setting[0], "shm"))
                continue; /* what comes early on a communicator's channel, and finds no memory, breaks it */
            int32_t rc = waits ? calls[i].call(&p) : try_until_it_works(&p, i, from_there, &refused);
            rank_check_msg(rc == 0, "%s%s: status %d after %d times without memory", calls[i].name,
                           from_there ? ", no memory from there on" : "", rc, refused - before);
            calls_refused += refused > before;
            if (calls[i].who != ALONE)
                coll_must(p.comm, ringred_barrier(p.comm), calls[i].name);
        }
        if (me->rank == 0)
            rank_check_msg(calls_refused >= 8 && refused > 30, "%d calls were refused %d times: allocations did not fail",
                           calls_refused, refused);
        long before = rr_alloc_count();
        for (int step = 0; step < 100; step++) {
            p.fused = 0;
            rank_check_int(do_fusion(&p), 0);
            before = step < 10 ? rr_alloc_count() : before; /* so long what a rank needs may come up */
        }
        if (strstr(setup->setting[0], "shm")) /* over links there may come more at once that is not wanted yet than ever before */
            rank_check_int(rr_alloc_count() - before, 0);
        rank_check_int(ringred_fusion_destroy(p.fusion), 0);
        coll_close(p.comm);
    }
}

static void test_without_memory_a_call_is_refused_and_nothing_has_changed(void **state)
{
    static const struct coll_setup setups[] = {
        { SIZE, { "transport=shm", "stage=64K", "heap=1M" } }, { SIZE, { "transport=tcp" } }, { SIZE, { "hosts=aab", "stage=64K" } },
    };

    (void)state;
    coll_each(setups, 3, all_calls, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_without_memory_a_call_is_refused_and_nothing_has_changed) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
