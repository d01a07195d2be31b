/* SPDX-License-Identifier: Apache-2.0 */
/* No two instances that touch the same bytes, one writing, come in an order that chance decides:
 * for every algorithm, with all that ranks may know alone, and for different calls one after
 * another on the same stages. */
#include "plans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* The size that gives every block of every level some bytes. */
static struct rr_case whole_case(const struct plans *p, enum rr_algo algo, int root,
                                 enum facts facts)
{
    struct rr_case c = case_of(p, algo, root, facts);

    c.segment = 2 * (size_t)p->ranks;
    c.count = c.what == RR_BARRIER ? 0 : c.segment;
    return c;
}

static void check(enum rr_algo algo, const struct layout *l, int root, enum facts facts)
{
    ringred_error why = { .struct_size = sizeof why };
    struct plans p;

    int rc = plans_build(&p, algo, l, root);
    if (rc == RINGRED_EINVAL && l->of.ranks == 1) /* nothing to do for one rank alone */
        return;
    assert_int_equal(rc, 0);
    struct rr_case c = whole_case(&p, algo, root, facts);
    if (rr_plan_hazards(&c, &why) < 0)
        fail_msg("%d ranks on %d hosts, root %d, facts %d: %s", l->of.ranks, l->of.hosts, root,
                 facts, why.text);
    plans_free(&p);
}

static void check_facts(enum rr_algo algo, const struct layout *l, int root, int facts)
{
    for (int i = 0; i < facts; i++)
        check(algo, l, root, (enum facts)((i + (facts < FACTS ? l->of.ranks : 0)) % FACTS));
}

static int roots_of(enum rr_algo algo, int n)
{
    return rr_is_rooted(rr_algo_table[algo].what) ? n : 1;
}

static void test_up_to_8_ranks_with_all_facts(void **state)
{
    (void)state;
    for (int a = RR_ALGO_COPY + 1; a < RR_ALGOS; a++)
        for (int n = 1; n <= 8; n++)
            for (int each = spans_hosts((enum rr_algo)a) ? 1 : n; each <= n; each++) {
                struct layout l;
                layout_make(&l, n, each);
                for (int root = 0; root < roots_of((enum rr_algo)a, n); root++)
                    check_facts((enum rr_algo)a, &l, root, FACTS);
            }
}

static void test_ranks_that_are_dealt_out_or_alone(void **state)
{
    (void)state;
    for (int a = RR_ALGO_COPY + 1; a < RR_ALGOS; a++)
        for (int n = 4; n <= 9 && spans_hosts((enum rr_algo)a); n++)
            for (int i = 2; i < n; i++) {
                struct layout l;
                layout_deal(&l, n, i);
                check_facts((enum rr_algo)a, &l, (i + n) % n, FACTS);
                layout_lump(&l, n, i);
                check_facts((enum rr_algo)a, &l, (i + 2) % n, FACTS);
            }
}

static void test_up_to_32_ranks(void **state)
{
    static const int ranks[] = { 9, 11, 12, 16, 17, 24, 32 };

    (void)state;
    for (int a = RR_ALGO_COPY + 1; a < RR_ALGOS; a++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            struct layout l;
            int n = ranks[i];
            layout_make(&l, n, !spans_hosts((enum rr_algo)a) ? n : n % 4 == 0 ? 4 : 1);
            check_facts((enum rr_algo)a, &l, n / 3, n < 16 ? FACTS : 2);
        }
}

/* ---- calls in turn ---- */

static unsigned random_state;

static unsigned any(unsigned below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

#define MOST_CALLS 12

/* A few calls of any kind that ranks of this layout can make with shared memory, most of them
 * short. */
static void check_random_calls(const struct layout *l)
{
    static const enum rr_algo one_host[] = { RR_ALGO_SHM_ONESHOT, RR_ALGO_SHM_TWOSHOT,
                                             RR_ALGO_SHM_BROADCAST, RR_ALGO_SHM_BARRIER,
                                             RR_ALGO_SHM_REDUCE, RR_ALGO_SHM_REDUCE_TWOSHOT,
                                             RR_ALGO_SHM_ALLGATHER, RR_ALGO_SHM_GATHER,
                                             RR_ALGO_SHM_REDUCE_SCATTER, RR_ALGO_SHM_SCATTER,
                                             RR_ALGO_SHM_ALLTOALL };
    static const enum rr_algo more_hosts[] = { RR_ALGO_HIERARCHICAL, RR_ALGO_HIER_BROADCAST,
                                               RR_ALGO_HIER_BARRIER };
    ringred_error why = { .struct_size = sizeof why };
    struct plans p[MOST_CALLS];
    struct rr_case c[MOST_CALLS];
    const struct rr_case *turn[MOST_CALLS];
    uint32_t segments[MOST_CALLS];
    int calls = 4 + (int)any(MOST_CALLS - 3);

    for (int k = 0; k < calls; k++) {
        enum rr_algo a = l->of.hosts == 1 ? one_host[any(sizeof one_host / sizeof *one_host)] : more_hosts[any(3)];
        int root = (int)any((unsigned)l->of.ranks);
        assert_int_equal(plans_build(&p[k], a, l, root), 0);
        c[k] = whole_case(&p[k], a, root, (enum facts)any(FACTS));
        turn[k] = &c[k];
        segments[k] = c[k].what == RR_BARRIER ? 1 : 1 + any(any(3) ? 3 : 2 * RR_PLAN_WINDOW + 2);
    }
    if (rr_plan_hazards_in_turn(turn, segments, calls, &why) < 0)
        fail_msg("%d ranks on %d hosts: %s", l->of.ranks, l->of.hosts, why.text);
    for (int k = 0; k < calls; k++)
        plans_free(&p[k]);
}

static void test_different_calls_in_turn(void **state)
{
    static const int layouts[][2] = { { 2, 2 }, { 3, 3 }, { 4, 4 }, { 5, 5 },
                                      { 4, 2 }, { 6, 2 }, { 8, 4 }, { 5, 3 }, { 7, 4 } };

    (void)state;
    random_state = 1;
    print_message("random calls from seed %u\n", random_state);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int times = 0; times < 500; times++) {
            struct layout l;
            layout_make(&l, layouts[i][0], layouts[i][1]);
            check_random_calls(&l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_up_to_8_ranks_with_all_facts),
        cmocka_unit_test(test_ranks_that_are_dealt_out_or_alone),
        cmocka_unit_test(test_up_to_32_ranks),
        cmocka_unit_test(test_different_calls_in_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
