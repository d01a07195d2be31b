/* SPDX-License-Identifier: Apache-2.0 */
/* What the other ranks see when one misbehaves: killed in the middle, left out a message, sent half of
 * one, slow. Through the decorator `faulty` (setting fault), over shared memory, links, and both. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CULPRIT 1
#define COUNT ((size_t)1 << 16)

struct fault_case {
    struct coll_setup setup;
    int32_t status;  /* that every other rank must get; 0: all goes well */
    int named;       /* the rank that their errors must name; -1: any */
    uint64_t deaths; /* bit r: rank r may be killed */
    size_t count;    /* of elements; 0: COUNT */
};

/* Calls until one fails; the number of calls is bounded. */
static int32_t call_until_failure(ringred_comm *comm, float *vector, size_t count, int calls)
{
    int32_t rc = 0;

    for (int i = 0; i < calls && rc == 0; i++) {
        for (size_t k = 0; k < count; k++)
            vector[k] = 1;
        rc = ringred_allreduce(comm, vector, vector, count, RINGRED_FLOAT32, RINGRED_AVG);
        for (size_t k = 0; k < count && rc == 0; k++)
            rank_check_msg(vector[k] == 1, "call %d succeeded with wrong numbers: element %zu is %g", i, k,
                           (double)vector[k]);
    }
    return rc;
}

static void check_failure(ringred_comm *comm, const struct fault_case *c, int32_t rc)
{
    ringred_error error;
    float x = 1;

    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(rc == c->status, "status %d and not %d: %s", rc, c->status, error.text);
    rank_check_int(error.code, c->status);
    rank_check_msg(strlen(error.text) > 20, "\"%s\" says nothing", error.text);
    rank_check_msg(c->named < 0 || error.rank == c->named, "names rank %d and not %d: %s", error.rank,
                   c->named, error.text);
    rank_check_int(ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), c->status);
    rank_check_int(ringred_barrier(comm), c->status);
}

static void run(struct rank *me)
{
    const struct fault_case *c = me->argument;
    ringred_comm *comm = coll_open(me, &c->setup);
    float *vector = malloc(COUNT * sizeof *vector);
    int32_t rc = call_until_failure(comm, vector, c->count ? c->count : COUNT, 20);

    if (c->status)
        check_failure(comm, c, rc);
    else
        coll_must(comm, rc, "a call beside a slow rank");
    rank_check_int(ringred_comm_destroy(comm), c->status);
    free(vector);
}

static void try_all(const struct fault_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ranks_plan plan = { .size = cases[i].setup.ranks, .run = run,
                                         .argument = (void *)(uintptr_t)&cases[i],
                                         .may_die = cases[i].deaths };
        char text[200];
        coll_setup_text(&cases[i].setup, text, sizeof text);
        print_message("             %s\n", text);
        ranks_run(&plan);
    }
}
#define TRY(cases) try_all(cases, sizeof cases / sizeof *cases)

static void test_a_killed_rank_is_named_by_all(void **state)
{
#define KILLED(n, transport, after)                                                  \
    { { n, { transport, "fault=kill:rank=1:after=" #after } }, RINGRED_EPEER, CULPRIT, \
      1u << CULPRIT, 0 }
    static const struct fault_case cases[] = {
        KILLED(2, "transport=shm", 0),    KILLED(2, "transport=shm", 5),   KILLED(4, "transport=shm", 9),
        KILLED(2, "transport=tcp", 0),    KILLED(3, "transport=tcp", 3),   KILLED(4, "transport=tcp", 9),
        KILLED(4, "ranks_per_host=2", 0), KILLED(4, "ranks_per_host=2", 11), KILLED(6, "ranks_per_host=2", 17),
    };

    (void)state;
    TRY(cases);
}

/* Nothing tells a message that is late from one that was never sent: the call's own limit ends it. */
static void test_a_message_left_out_ends_by_the_time_limit(void **state)
{
#define DROPPED(n, transport)                                                        \
    { { n, { transport, "fault=drop:rank=1:after=4", "timeout=0.5" } }, RINGRED_ETIMEOUT, -1, 0, 0 }
    static const struct fault_case cases[] = { DROPPED(2, "transport=shm"), DROPPED(3, "transport=shm") };

    (void)state;
    TRY(cases);
}

static void test_half_a_message_is_never_a_sum(void **state)
{
#define HALVED(n, transport) \
    { { n, { transport, "fault=truncate:rank=1:after=3" } }, RINGRED_EWIRE, -1, 0, 0 }
    static const struct fault_case cases[] = {
        HALVED(2, "transport=tcp"), HALVED(3, "transport=tcp"), HALVED(4, "ranks_per_host=2"),
    };

    (void)state;
    TRY(cases);
}

static void test_a_slow_rank_changes_nothing(void **state)
{
#define SLOW(n, transport) { { n, { transport, "fault=delay:rank=1:after=2:ms=5", "segment=64K" } }, 0, -1, 0, 0 }
    static const struct fault_case cases[] = {
        SLOW(2, "transport=shm"), SLOW(3, "transport=tcp"), SLOW(4, "ranks_per_host=2"),
    };

    (void)state;
    TRY(cases);
}

/* Neither is one that says nothing for longer than peer_timeout and then sends: its peers owe it nothing before. */
static void test_a_rank_that_is_slow_for_long_takes_nobody_for_lost(void **state)
{
    static const struct fault_case cases[] = {
        { { 3, { "transport=tcp", "peer_timeout=0.3",
                 "fault=delay:rank=1:after=17:ms=500,delay:rank=2:after=17:ms=700" } }, 0, -1, 0, 4 },
    };

    (void)state;
    TRY(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_by_all),
        cmocka_unit_test(test_a_message_left_out_ends_by_the_time_limit),
        cmocka_unit_test(test_half_a_message_is_never_a_sum),
        cmocka_unit_test(test_a_slow_rank_changes_nothing),
        cmocka_unit_test(test_a_rank_that_is_slow_for_long_takes_nobody_for_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
