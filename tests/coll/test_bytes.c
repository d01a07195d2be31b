/* SPDX-License-Identifier: Apache-2.0 */
/* What each collective puts on each link, in bytes of payload, is what its formula says, exactly: S bytes
 * of a vector, or of one part, between n ranks. _start does not wait for peers. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 8
#define SIZE       ((size_t)1 << 20) /* bytes; a multiple of 64 bytes times any n here */

enum kind { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, GATHER, REDUCE_SCATTER, SCATTER, ALLTOALL };

struct formula {
    const char *name, *algorithm;
    enum kind kind;
    /* bytes from rank i to rank j, in units of S / n; root 1 */
    size_t (*units)(size_t n, int i, int j);
};

static size_t two_blocks(size_t n, int i, int j)
{
    (void)n, (void)i, (void)j;
    return 2;
}

/* A block to its owner, and what the owner has made of it to the root. */
static size_t reduce_units(size_t n, int i, int j)
{
    (void)n, (void)i;
    return j == 1 ? 2 : 1;
}

static size_t broadcast_units(size_t n, int i, int j)
{
    (void)n;
    return i == 1 ? 2 : j == 1 ? 0 : 1;
}

static size_t whole(size_t n, int i, int j)
{
    (void)i, (void)j;
    return n;
}

static size_t to_root(size_t n, int i, int j)
{
    (void)i;
    return j == 1 ? n : 0;
}

static size_t from_root(size_t n, int i, int j)
{
    (void)j;
    return i == 1 ? n : 0;
}

static size_t to_the_right(size_t n, int i, int j)
{
    return j == (i + 1) % (int)n ? n * (n - 1) : 0;
}

static size_t ring(size_t n, int i, int j)
{
    return j == (i + 1) % (int)n ? 2 * (n - 1) : 0;
}

static const struct formula formulas[] = {
    { "allreduce, two-shot", "twoshot", ALLREDUCE, two_blocks },
    { "allreduce, one-shot", "oneshot", ALLREDUCE, whole },
    { "allreduce, ring", "ring", ALLREDUCE, ring },
    { "reduce, two-shot", "reduce-twoshot", REDUCE, reduce_units },
    { "reduce", "reduce", REDUCE, to_root },
    { "broadcast, two-shot", "broadcast-twoshot", BROADCAST, broadcast_units },
    { "allgather", "allgather", ALLGATHER, whole },
    { "allgather, ring", "ring-allgather", ALLGATHER, to_the_right },
    { "gather", "gather", GATHER, to_root },
    { "reduce-scatter", "reduce-scatter", REDUCE_SCATTER, whole },
    { "reduce-scatter, ring", "ring-reduce-scatter", REDUCE_SCATTER, to_the_right },
    { "scatter", "scatter", SCATTER, from_root },
    { "alltoall", "alltoall", ALLTOALL, whole },
};

/* Reads the array "sent" of the communicator's description. */
static void sent(ringred_comm *comm, int n, unsigned long long *to)
{
    char text[8192];

    rank_check(ringred_comm_describe(comm, NULL, 0, text, sizeof text) > 0);
    const char *at = strstr(text, "\"sent\":[");
    rank_check(at != NULL);
    at += 8;
    for (int i = 0; i < n; i++) {
        char *end;
        to[i] = strtoull(at, &end, 10);
        at = end + 1;
    }
}

static int32_t call(ringred_comm *comm, enum kind kind, float *in, float *out, size_t count)
{
    switch (kind) {
    case ALLREDUCE:
        return ringred_allreduce(comm, in, out, count, RINGRED_FLOAT32, RINGRED_SUM);
    case REDUCE:
        return ringred_reduce(comm, in, out, count, RINGRED_FLOAT32, RINGRED_SUM, 1);
    case BROADCAST:
        return ringred_broadcast(comm, in, out, count, RINGRED_FLOAT32, 1);
    case ALLGATHER:
        return ringred_allgather(comm, in, out, count, RINGRED_FLOAT32);
    case GATHER:
        return ringred_gather(comm, in, out, count, RINGRED_FLOAT32, 1);
    case REDUCE_SCATTER:
        return ringred_reduce_scatter(comm, in, out, count, RINGRED_FLOAT32, RINGRED_SUM);
    case SCATTER:
        return ringred_scatter(comm, in, out, count, RINGRED_FLOAT32, 1);
    default:
        return ringred_alltoall(comm, in, out, count, RINGRED_FLOAT32);
    }
}

struct task {
    const struct formula *formula;
    struct coll_setup setup;
};

static void measure(struct rank *me)
{
    const struct task *task = me->argument;
    const struct formula *f = task->formula;
    size_t n = (size_t)me->size, count = SIZE / 4 / n / 16 * 16 * n;
    float *in = calloc(n * count, 4), *out = calloc(n * count, 4);
    unsigned long long before[MOST_RANKS], after[MOST_RANKS];
    ringred_comm *comm = coll_open(me, &task->setup);

    rank_check(in && out);
    sent(comm, me->size, before);
    coll_must(comm, call(comm, f->kind, in, out, count), f->name);
    sent(comm, me->size, after);
    for (int j = 0; j < me->size; j++) {
        unsigned long long due = j == me->rank ? 0 : f->units(n, me->rank, j) * (count / n) * 4;
        rank_check_msg(after[j] - before[j] == due, "%s of %zu bytes, %d ranks: %llu bytes from %d to %d, not %llu",
                       f->name, count * 4, me->size, after[j] - before[j], me->rank, j, due);
    }
    coll_close(comm);
    free(in);
    free(out);
}

static void test_bytes_on_each_link_are_the_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            char algorithm[64];
            snprintf(algorithm, sizeof algorithm, "algorithm=%s", formulas[i].algorithm);
            struct task task = { &formulas[i], { ranks, { "transport=tcp", "numerics=fast", algorithm } } };
            ranks_fork(ranks, measure, &task);
        }
}

/* Rank 1 comes only when everybody else has returned from _start. */
static void start_early(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);
    float in[64] = { 0 }, out[64];
    ringred_request *request[3];

    if (me->rank == 1)
        ranks_meet(me);
    coll_must(comm, ringred_allreduce_start(comm, in, out, 16, RINGRED_FLOAT32, RINGRED_SUM, &request[0]), "start");
    coll_must(comm, ringred_alltoall_start(comm, in, out + 32, 4, RINGRED_FLOAT32, &request[1]), "start");
    coll_must(comm, ringred_allgather_start(comm, in, out + 16, 4, RINGRED_FLOAT32, &request[2]), "start");
    if (me->rank != 1)
        ranks_meet(me);
    for (int i = 0; i < 3; i++)
        coll_must(comm, ringred_wait(request[i], RINGRED_FOREVER), "wait");
    coll_close(comm);
}

static void test_start_returns_before_a_peer_has_come(void **state)
{
    static struct coll_setup setups[] = { { 3, { "transport=shm" } }, { 3, { "transport=tcp" } },
                                          { 4, { "ranks_per_host=2" } } };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        ranks_fork(setups[i].ranks, start_early, &setups[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_on_each_link_are_the_formulas),
        cmocka_unit_test(test_start_returns_before_a_peer_has_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
