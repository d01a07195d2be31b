/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast gives every rank the root's bytes, NaN payloads included, from each root; barrier lets
 * nobody through before all have come. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

static uint64_t seed;

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
};

static const size_t counts[] = { 0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1021, 2048, 8191, 16385, 65537, 262147 };
#define COUNTS (sizeof counts / sizeof counts[0])

/* Ranks other than the root need no send. */
static const void *send_of(const struct coll_call *c, const struct rank *me, struct numbers_random *mine)
{
    if (me->rank == c->root)
        return c->send;
    return numbers_below(mine, 2) ? NULL : c->send;
}

static void broadcasts(struct rank *me)
{
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    struct coll_memory m;

    coll_memory_open(&m, comm, (size_t)1 << 20);
    for (size_t i = 0; i < COUNTS; i++)
        for (int root = 0; root < me->size; root++) {
            struct coll_call c = { .count = counts[i], .root = root };

            c.job.type = numbers_below(&all, 2) ? RINGRED_FLOAT32 : RINGRED_FLOAT64;
            c.job.kind = NUMBERS_WILD;
            c.job.seed = numbers_next(&all);
            if (c.count * numbers_bytes(c.job.type) > (size_t)1 << 20)
                continue;
            coll_prepare(&c, &m, me, &mine);
            coll_must(comm,
                      ringred_broadcast(comm, send_of(&c, me, &mine), c.recv, c.count, c.job.type, root),
                      c.text);
            coll_check_broadcast(&c, me);
        }
    coll_close(comm);
    coll_memory_close(&m);
}

/* Each rank writes the round down before it comes; who has left sees that all had come. */
static void barriers(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    atomic_int *round = me->shared;

    for (int i = 1; i <= 300; i++) {
        atomic_store(&round[me->rank], i);
        coll_must(comm, ringred_barrier(comm), "barrier");
        for (int r = 0; r < me->size; r++)
            rank_check_msg(atomic_load(&round[r]) >= i, "left barrier %d before rank %d had come", i, r);
    }
    coll_close(comm);
}

static const struct coll_setup setups[] = {
    { 1, { "transport=auto" } },
    { 2, { "transport=shm" } },
    { 3, { "transport=shm" } },
    { 5, { "transport=shm", "segment=4096", "stage=128K" } },
    { 2, { "transport=tcp" } },
    { 3, { "transport=tcp" } },
    { 5, { "transport=tcp", "segment=10000" } },
    { 7, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
    { 6, { "ranks_per_host=2" } },
    { 5, { "ranks_per_host=3" } },
    { 6, { "hosts=abacba" } },
};

static void run_all(void (*run)(struct rank *me))
{
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct campaign p = { &setups[i], seed + i };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_fork(setups[i].ranks, run, &p);
    }
}

static void test_broadcast_from_each_root(void **state)
{
    (void)state;
    run_all(broadcasts);
}

static void test_nobody_leaves_a_barrier_before_all_have_come(void **state)
{
    (void)state;
    run_all(barriers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast_from_each_root),
        cmocka_unit_test(test_nobody_leaves_a_barrier_before_all_have_come),
    };

    seed = numbers_seed("test_broadcast");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
