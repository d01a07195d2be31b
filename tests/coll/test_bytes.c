/* SPDX-License-Identifier: Apache-2.0 */
/* What each collective puts on each link, in bytes of payload, is what its formula says, exactly: S bytes
 * of a vector, or of one part, between n ranks; where nothing is asked for, too, as large vectors take the
 * forms in two rounds. _start does not wait for peers, whatever is started. */
#include "calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 8
#define BLOCK      ((size_t)64)

/* Blocks of a segment end on whole lines, so formulas hold exactly where segments can be cut evenly: these
 * can for 2 to 5 ranks. Bytes of a vector or a part: about 1 MiB, then several segments. */
#define SEGMENT ((size_t)960 << 10)
static const size_t sizes[] = { (size_t)1 << 20, 3 * SEGMENT, 8 * SEGMENT };

struct formula {
    const char *name, *algorithm; /* NULL: what the library chooses */
    enum calls_kind kind;
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

/* Two ranks have nothing to share out. */
static size_t chosen_reduce(size_t n, int i, int j)
{
    return n == 2 ? to_root(n, i, j) : reduce_units(n, i, j);
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
    { "allreduce", NULL, CALLS_ALLREDUCE, two_blocks },
    { "reduce", NULL, CALLS_REDUCE, chosen_reduce },
    { "broadcast", NULL, CALLS_BROADCAST, broadcast_units },
    { "allgather", NULL, CALLS_ALLGATHER, whole },
    { "gather", NULL, CALLS_GATHER, to_root },
    { "reduce-scatter", NULL, CALLS_REDUCE_SCATTER, whole },
    { "scatter", NULL, CALLS_SCATTER, from_root },
    { "alltoall", NULL, CALLS_ALLTOALL, whole },
    { "allreduce, two-shot", "twoshot", CALLS_ALLREDUCE, two_blocks },
    { "allreduce, one-shot", "oneshot", CALLS_ALLREDUCE, whole },
    { "allreduce, ring", "ring", CALLS_ALLREDUCE, ring },
    { "reduce, two-shot", "reduce-twoshot", CALLS_REDUCE, reduce_units },
    { "reduce, one round", "reduce", CALLS_REDUCE, to_root },
    { "broadcast, two-shot", "broadcast-twoshot", CALLS_BROADCAST, broadcast_units },
    { "allgather, direct", "allgather", CALLS_ALLGATHER, whole },
    { "allgather, ring", "ring-allgather", CALLS_ALLGATHER, to_the_right },
    { "reduce-scatter, direct", "reduce-scatter", CALLS_REDUCE_SCATTER, whole },
    { "reduce-scatter, ring", "ring-reduce-scatter", CALLS_REDUCE_SCATTER, to_the_right },
    { "alltoall, direct", "alltoall", CALLS_ALLTOALL, whole },
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

struct task {
    const struct formula *formula;
    struct coll_setup setup;
};

static void measure_one(ringred_comm *comm, const struct rank *me, const struct formula *f, size_t size, bool v,
                        float *in, float *out)
{
    const size_t n = (size_t)me->size;
    struct call c = { .kind = f->kind, .v = v, .root = 1, .count = size / 4 / n / (BLOCK / 4) * (BLOCK / 4) * n,
                      .job = { .type = RINGRED_FLOAT32, .op = RINGRED_SUM }, .in_parts = 1, .out_parts = 1,
                      .send = (unsigned char *)in, .recv = (unsigned char *)out };
    unsigned long long before[MOST_RANKS], after[MOST_RANKS];

    sent(comm, me->size, before);
    coll_must(comm, calls_run(comm, &c), f->name);
    sent(comm, me->size, after);
    for (int j = 0; j < me->size; j++) {
        unsigned long long due = j == me->rank ? 0 : f->units(n, me->rank, j) * (c.count / n) * 4;

        rank_check_msg(after[j] - before[j] == due, "%s%s of %zu bytes, %d ranks: %llu bytes from %d to %d, not %llu",
                       f->name, v ? " (v)" : "", c.count * 4, me->size, after[j] - before[j], me->rank, j, due);
    }
}

static void measure(struct rank *me)
{
    const struct task *task = me->argument;
    const struct formula *f = task->formula;
    const size_t most = sizes[sizeof sizes / sizeof *sizes - 1] * (size_t)me->size;
    float *in = calloc(most, 1), *out = calloc(most, 1);
    ringred_comm *comm = coll_open(me, &task->setup);

    rank_check(in && out);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        measure_one(comm, me, f, sizes[i], false, in, out);
        if (calls_collectives[f->kind].has_v && f->units != to_the_right) /* uneven parts have no ring of sums */
            measure_one(comm, me, f, sizes[i], true, in, out);
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
            struct task task = { &formulas[i], { ranks, { "transport=tcp", "segment=960K" } } };

            snprintf(algorithm, sizeof algorithm, "algorithm=%s", formulas[i].algorithm ? formulas[i].algorithm : "");
            if (formulas[i].algorithm) {
                task.setup.setting[2] = "numerics=fast";
                task.setup.setting[3] = algorithm;
            }
            ranks_fork(ranks, measure, &task);
        }
}

/* ---- starting ---- */

#define STARTS 14

static int32_t start(ringred_comm *comm, int which, const float *in, float *out, ringred_request **request)
{
    static const size_t counts[MOST_RANKS] = { 4, 4, 4, 4, 4, 4, 4, 4 };
    const int f32 = RINGRED_FLOAT32, sum = RINGRED_SUM;

    switch (which) {
    case 0:
        return ringred_allreduce_start(comm, in, out, 16, f32, sum, request);
    case 1:
        return ringred_reduce_start(comm, in, out, 16, f32, sum, 0, request);
    case 2:
        return ringred_reduce_scatter_start(comm, in, out, 4, f32, sum, request);
    case 3:
        return ringred_broadcast_start(comm, in, out, 16, f32, 0, request);
    case 4:
        return ringred_allgather_start(comm, in, out, 4, f32, request);
    case 5:
        return ringred_gather_start(comm, in, out, 4, f32, 0, request);
    case 6:
        return ringred_scatter_start(comm, in, out, 4, f32, 0, request);
    case 7:
        return ringred_alltoall_start(comm, in, out, 4, f32, request);
    case 8:
        return ringred_allgatherv_start(comm, in, 4, out, counts, NULL, f32, request);
    case 9:
        return ringred_gatherv_start(comm, in, 4, out, counts, NULL, f32, 0, request);
    case 10:
        return ringred_scatterv_start(comm, in, counts, NULL, out, 4, f32, 0, request);
    case 11:
        return ringred_reduce_scatterv_start(comm, in, out, counts, f32, sum, request);
    case 12:
        return ringred_alltoallv_start(comm, in, counts, NULL, out, counts, NULL, f32, request);
    default:
        return ringred_barrier_start(comm, request);
    }
}

/* Rank 1 comes only when everybody else has returned from _start. */
static void start_early(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);
    float in[64] = { 0 }, out[64];

    for (int which = 0; which < STARTS; which++) {
        ringred_request *request;

        if (me->rank == 1)
            ranks_meet(me);
        coll_must(comm, start(comm, which, in, out, &request), "start");
        if (me->rank != 1)
            ranks_meet(me);
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    }
    coll_close(comm);
}

/* Three at a time, of which rank 1 has made none. */
static void start_several(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);
    float in[64] = { 0 }, out[3][64];
    ringred_request *request[3];

    if (me->rank == 1)
        ranks_meet(me);
    for (int i = 0; i < 3; i++)
        coll_must(comm, start(comm, 4 * i, in, out[i], &request[i]), "start");
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
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        ranks_fork(setups[i].ranks, start_early, &setups[i]);
        ranks_fork(setups[i].ranks, start_several, &setups[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_on_each_link_are_the_formulas),
        cmocka_unit_test(test_start_returns_before_a_peer_has_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
