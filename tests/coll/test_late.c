/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come late, each by another while: those who wait ask what the others are doing, so that
 * control frames stand between data of every size; sleepers have to be woken. No number may change. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

#define ROUNDS 8
#define MOST ((size_t)1 << 20)

static uint64_t seed;

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
};

/* As if this rank had to compute before it comes. */
static void compute(int64_t for_ns)
{
    struct timespec from, now;

    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * INT64_C(1000000000) + now.tv_nsec - from.tv_nsec < for_ns);
}

static void late(struct rank *me)
{
    static const int64_t lateness_ns[] = { 0, 0, 2000000, 120000000, 250000000 };
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    struct coll_memory m;

    coll_memory_open(&m, comm, MOST);
    for (int round = 0; round < ROUNDS; round++) {
        struct coll_call c = { .count = 100 + numbers_below(&all, round % 2 ? 5000 : 130000), .exact = true };

        c.root = (int)numbers_below(&all, (uint64_t)me->size);
        c.job = (struct numbers_job){ RINGRED_FLOAT64, RINGRED_AVG, me->size, NUMBERS_ROUNDING,
                                      numbers_next(&all), 0 };
        coll_prepare(&c, &m, me, &mine);
        compute(lateness_ns[numbers_below(&mine, 5)]);
        if (numbers_below(&all, 3)) {
            coll_must(comm, ringred_broadcast(comm, c.send, c.recv, c.count, c.job.type, c.root), c.text);
            coll_check_broadcast(&c, me);
        } else {
            coll_must(comm, ringred_allreduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op), c.text);
            coll_check_allreduce(&c, me);
        }
    }
    coll_close(comm);
    coll_memory_close(&m);
}

static void test_late_ranks_change_nothing(void **state)
{
    static const struct coll_setup setups[] = {
        { 5, { "transport=tcp" } }, { 3, { "transport=shm" } }, { 4, { "ranks_per_host=2" } },
        { 7, { "transport=tcp", "segment=100000" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct campaign p = { &setups[i], seed + i };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_fork(setups[i].ranks, late, &p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_late_ranks_change_nothing) };

    seed = numbers_seed("test_late");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
