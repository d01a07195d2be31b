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
                                      numbers_next(&all), 0, NULL };
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

/* Rank 1 has sent all that is wanted of it and destroys its communicator while rank 2 is still away: what
 * it sent lies in rank 0's socket, behind what rank 0 can only take once rank 2 has come. */
static void a_mate_leaves(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    float in[12000], out[12000];
    ringred_comm *comm = coll_open(me, setup);

    for (int i = 0; i < 12000; i++)
        in[i] = (float)(i % 100 + me->rank);
    if (me->rank == 2)
        ranks_meet(me); /* rank 1 has gone */
    if (me->rank == 3 || me->rank == 0)
        ranks_meet(me);
    if (me->rank == 2)
        compute(250000000); /* rank 0 looks after its mates meanwhile */
    coll_must(comm, ringred_reduce(comm, in, out, 12000, RINGRED_FLOAT32, RINGRED_SUM, 0), "reduce");
    for (int i = 0; i < 12000 && me->rank == 0; i++)
        rank_check_msg(out[i] == (float)(4 * (i % 100) + 6), "element %d is %g", i, (double)out[i]);
    coll_close(comm);
    if (me->rank == 1)
        ranks_meet(me);
}

static void test_a_mate_that_has_sent_all_may_leave(void **state)
{
    static struct coll_setup setups[] = {
        { 4, { "ranks_per_host=2", "algorithm=reduce", "segment=1024" } },
        { 4, { "transport=tcp", "algorithm=reduce", "segment=1024" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++)
        ranks_fork(4, a_mate_leaves, &setups[i]);
}

/* Only rank 0's part has elements. It goes round by rank 1, which is busy; rank 2 has empty messages for
 * rank 0 waiting behind it, which nobody needs, so rank 0 may leave. */
static void an_owner_leaves(struct rank *me)
{
    static const struct coll_setup setup = { 3, { "transport=tcp", "algorithm=ring-allgather", "segment=1024" } };
    float in[8000], out[8000];
    size_t counts[3] = { 8000, 0, 0 };
    ringred_comm *comm = coll_open(me, &setup);
    ringred_request *request;

    for (int i = 0; i < 8000; i++)
        in[i] = (float)i;
    coll_must(comm, ringred_allgatherv_start(comm, in, counts[me->rank], out, counts, NULL, RINGRED_FLOAT32,
                                             &request), "start");
    if (me->rank == 1)
        compute(250000000); /* and rank 2 looks after its peers meanwhile */
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    for (int i = 0; i < 8000; i++)
        rank_check_msg(out[i] == (float)i, "element %d is %g", i, (double)out[i]);
    coll_close(comm);
}

static void test_who_owes_only_empty_messages_is_not_missed(void **state)
{
    (void)state;
    ranks_fork(3, an_owner_leaves, NULL);
}

/* Rank 0 comes when the others have given up, and have put something else where it would read. */
static void come_too_late(struct rank *me)
{
    static const size_t counts[] = { 3, 3000, 200000 };
    const struct coll_setup *setup = me->argument;

    for (size_t i = 0; i < 3; i++) {
        ringred_comm *comm = coll_open(me, setup);
        void *memory;
        int32_t rc;
        coll_must(comm, ringred_alloc(comm, counts[i] * sizeof(float), &memory), "alloc");
        float *x = memory;
        for (size_t k = 0; k < counts[i]; k++)
            x[k] = 1;
        if (me->rank == 0)
            ranks_meet(me);
        rc = ringred_allreduce(comm, x, x, counts[i], RINGRED_FLOAT32, RINGRED_SUM);
        for (size_t k = 0; k < counts[i] && me->rank != 0; k++)
            x[k] = 7;
        if (me->rank != 0)
            ranks_meet(me);
        rank_check_msg(rc == RINGRED_ETIMEOUT, "%zu elements: status %d, the first is %g", counts[i], rc, (double)x[0]);
        (void)ringred_comm_destroy(comm); /* says so again */
        rank_check_int(ringred_free(memory), 0);
    }
}

static void test_nothing_is_made_of_buffers_that_others_have_back(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "timeout=0.2", "transport=shm" } }, { 4, { "timeout=0.2", "transport=shm" } },
        { 4, { "timeout=0.2", "transport=shm", "progress=thread" } }, { 4, { "timeout=0.2", "ranks_per_host=2" } },
    };

    (void)state;
    coll_each(setups, 4, come_too_late, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_ranks_change_nothing),
        cmocka_unit_test(test_a_mate_that_has_sent_all_may_leave),
        cmocka_unit_test(test_who_owes_only_empty_messages_is_not_missed),
        cmocka_unit_test(test_nothing_is_made_of_buffers_that_others_have_back),
    };

    seed = numbers_seed("test_late");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
