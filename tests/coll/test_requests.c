/* SPDX-License-Identifier: Apache-2.0 */
/* Started operations: many in flight, of all kinds and sizes, waited for in another order on each
 * rank, by wait, by test, by waits that time out first. */
#include "coll.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define FLIGHT 12
#define MOST ((size_t)1 << 19)

static uint64_t seed;

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
};

struct flight {
    struct coll_call call;
    struct coll_memory memory;
    ringred_request *request;
    enum { ALLREDUCE, BROADCAST, BARRIER } what;
};

static int32_t start(ringred_comm *comm, struct flight *f)
{
    struct coll_call *c = &f->call;

    if (f->what == ALLREDUCE)
        return ringred_allreduce_start(comm, c->send, c->recv, c->count, c->job.type, c->job.op, &f->request);
    if (f->what == BROADCAST)
        return ringred_broadcast_start(comm, c->send, c->recv, c->count, c->job.type, c->root, &f->request);
    return ringred_barrier_start(comm, &f->request);
}

/* Drawn from `all`: what the ranks agree on. */
static void draw(struct flight *f, struct rank *me, struct numbers_random *all, struct numbers_random *mine)
{
    static const size_t counts[] = { 0, 1, 2, 7, 16, 100, 1000, 4096, 10007, 40009, 65536 };
    struct coll_call *c = &f->call;

    memset(c, 0, sizeof *c);
    f->request = NULL;
    f->what = numbers_below(all, 4) ? ALLREDUCE : numbers_below(all, 2) ? BROADCAST : BARRIER;
    c->count = counts[numbers_below(all, sizeof counts / sizeof counts[0])];
    c->root = (int)numbers_below(all, (uint64_t)me->size);
    c->exact = true;
    c->job.type = numbers_below(all, 2) ? RINGRED_FLOAT32 : RINGRED_FLOAT64;
    c->job.op = numbers_below(all, 2) ? RINGRED_SUM : RINGRED_AVG;
    c->job.ranks = me->size;
    c->job.kind = numbers_below(all, 2) ? NUMBERS_WILD : NUMBERS_ROUNDING;
    c->job.seed = numbers_next(all);
    coll_prepare(c, &f->memory, me, mine);
}

static void finish(ringred_comm *comm, struct flight *f, struct numbers_random *mine)
{
    int32_t rc = RINGRED_PENDING;

    switch (numbers_below(mine, 3)) {
    case 0:
        while ((rc = ringred_test(f->request)) == RINGRED_PENDING)
            sched_yield(); /* there may be fewer CPUs than ranks */
        break;
    case 1:
        rc = ringred_wait(f->request, 0);
        if (rc == RINGRED_PENDING) /* it goes on */
            rc = ringred_wait(f->request, 20 * RINGRED_SECOND);
        break;
    default:
        rc = ringred_wait(f->request, RINGRED_FOREVER);
    }
    coll_must(comm, rc, f->call.text);
}

static void shuffle(int *order, int n, struct numbers_random *r)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)numbers_below(r, (uint64_t)i + 1), keep = order[i];

        order[i] = order[j];
        order[j] = keep;
    }
}

static void rounds(struct rank *me)
{
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    static struct flight flight[FLIGHT];
    int order[FLIGHT];

    for (int i = 0; i < FLIGHT; i++)
        coll_memory_open(&flight[i].memory, comm, MOST);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < FLIGHT; i++) {
            draw(&flight[i], me, &all, &mine);
            coll_must(comm, start(comm, &flight[i]), "start");
            rank_check(flight[i].request != NULL);
        }
        shuffle(order, FLIGHT, &mine);
        for (int i = 0; i < FLIGHT; i++)
            finish(comm, &flight[order[i]], &mine);
        for (int i = 0; i < FLIGHT; i++) {
            if (flight[i].what == ALLREDUCE)
                coll_check_allreduce(&flight[i].call, me);
            if (flight[i].what == BROADCAST)
                coll_check_broadcast(&flight[i].call, me);
        }
    }
    coll_close(comm);
    for (int i = 0; i < FLIGHT; i++)
        coll_memory_close(&flight[i].memory);
}

static void test_many_in_flight_are_waited_for_in_any_order(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=auto" } },    { 2, { "transport=shm" } },
        { 3, { "transport=shm" } },     { 2, { "transport=tcp" } },
        { 3, { "transport=tcp" } },     { 5, { "transport=tcp", "segment=8192" } },
        { 4, { "ranks_per_host=2" } },  { 6, { "ranks_per_host=2", "segment=16384" } },
        { 4, { "transport=shm", "algorithm=twoshot", "segment=4096" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct campaign p = { &setups[i], seed + i };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_fork(setups[i].ranks, rounds, &p);
    }
}

/* A start that finds no free request says so, changes nothing, and works again afterwards. */
static void too_many(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    enum { MOST_REQUESTS = 4096 };
    static ringred_request *request[MOST_REQUESTS];
    static float x[MOST_REQUESTS];
    int n = 0;

    /* Each rank must start equally many: rank 0 finds out how many that is. */
    if (me->rank == 0) {
        int32_t rc = 0;

        for (; n < MOST_REQUESTS && rc == 0; n += rc == 0) {
            x[n] = 1;
            rc = ringred_allreduce_start(comm, &x[n], &x[n], 1, RINGRED_FLOAT32, RINGRED_SUM, &request[n]);
        }
        rank_check_int(rc, RINGRED_ELIMIT);
        rank_check(n >= 16);
    }
    ranks_pass(me, &n, sizeof n);
    for (int i = 0; i < n; i++) {
        x[i] = me->rank == 0 ? x[i] : 1;
        if (me->rank != 0)
            coll_must(comm,
                      ringred_allreduce_start(comm, &x[i], &x[i], 1, RINGRED_FLOAT32, RINGRED_SUM, &request[i]),
                      "start");
    }
    for (int i = n - 1; i >= 0; i--) {
        coll_must(comm, ringred_wait(request[i], RINGRED_FOREVER), "wait");
        rank_check(x[i] == (float)me->size);
    }
    coll_must(comm, ringred_barrier(comm), "barrier afterwards");
    coll_close(comm);
}

static void test_too_many_in_flight_are_refused(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 2, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct campaign p = { &setups[i], seed };

        ranks_fork(2, too_many, &p);
    }
}

/* Whoever only polls must learn of a death too. */
static void last_dies(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request = NULL;
    float x[1000] = { 0 };
    int32_t rc;

    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me); /* else a rank may still be in the barrier when the others find the dead one */
    if (me->rank == me->size - 1)
        raise(SIGKILL);
    rc = ringred_allreduce_start(comm, x, x, 1000, RINGRED_FLOAT32, RINGRED_SUM, &request);
    if (rc == 0)
        while ((rc = ringred_test(request)) == RINGRED_PENDING)
            sched_yield();
    rank_check_int(rc, RINGRED_EPEER);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
}

static void test_polling_notices_a_dead_peer(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } }, { 3, { "transport=shm", "algorithm=twoshot" } },
        { 2, { "transport=tcp" } }, { 3, { "transport=tcp" } },
        { 4, { "ranks_per_host=2" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        const int n = setups[i].ranks;
        const struct ranks_plan plan = { .size = n, .run = last_dies, .deadline_s = 10,
                                         .argument = (void *)(uintptr_t)&setups[i],
                                         .may_die = UINT64_C(1) << (n - 1) };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_run(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_in_flight_are_waited_for_in_any_order),
        cmocka_unit_test(test_too_many_in_flight_are_refused),
        cmocka_unit_test(test_polling_notices_a_dead_peer),
    };

    seed = numbers_seed("test_requests");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
