/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm's plans, run with expression trees: every rank count up to 64, then the primes
 * and the neighbours of powers of two up to 256, counts around the number of ranks, few and many
 * segments, links of every kind. Up to 16 ranks also in random order, with all that ranks may know
 * alone. */
#include "plans.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static long proofs;

static void prove(const struct rr_case *c)
{
    ringred_error why = { .struct_size = sizeof why };

    proofs++;
    if (rr_plan_prove(c, &why) < 0)
        fail_msg("%zu elements in segments of %zu, channel %d, seed %llu: %s", c->count, c->segment,
                 c->channel, (unsigned long long)c->seed, why.text);
}

/* ---- sizes ---- */

struct size {
    size_t count, segment;
};

#define SIZES 10

/* Counts around n and a prime, in one segment, in a few, in more than are in flight. */
static void sizes_for(int ranks, struct size *s)
{
    size_t n = (size_t)ranks;
    const struct size all[SIZES] = {
        { 0, 4 * n },   { 1, 4 * n },     { n - 1, n + 3 },     { n, n }, { n + 1, n / 2 + 1 },
        { 257, n + 2 }, { 5 * n - 1, n }, { 2 * n + 1, 4 * n }, { 7, 1 }, { 10 * n + 3, n + 1 },
    };

    for (int i = 0; i < SIZES; i++)
        s[i] = all[i];
}

/* ---- one set of plans ---- */

/* Each size, with the other choices taken in turn. */
static void prove_in_turn(const struct plans *p, enum rr_algo algo, int root, int sizes)
{
    struct size size[SIZES];

    sizes_for(p->ranks, size);
    for (int i = 0; i < sizes; i++) {
        struct rr_case c = case_of(p, algo, root, (enum facts)((i + p->ranks) % FACTS));
        c.channel = (i + p->ranks / FACTS) % 3 - 1;
        c.count = c.what == RR_BARRIER ? 0 : size[i].count;
        c.segment = size[i].segment;
        c.average = i % 4 != 3;
        prove(&c);
        if (c.what == RR_BARRIER)
            break;
    }
}

/* All choices with each other, in program order and in random orders. */
static void prove_all(const struct plans *p, enum rr_algo algo, int root, int orders)
{
    struct size size[SIZES];

    sizes_for(p->ranks, size);
    for (int i = 0; i < SIZES * 3 * FACTS; i++) {
        struct rr_case c = case_of(p, algo, root, (enum facts)(i / SIZES / 3));
        c.channel = i / SIZES % 3 - 1;
        c.count = c.what == RR_BARRIER ? 0 : size[i % SIZES].count;
        c.segment = size[i % SIZES].segment;
        for (int order = 0; order < orders; order++) {
            c.seed = order == 0 ? 0 : (uint64_t)(i * 31 + order * 7 + p->ranks);
            prove(&c);
        }
    }
}

/* ---- all plans of an algorithm ---- */

static bool is_rooted(enum rr_algo a)
{
    return rr_is_rooted(rr_algo_table[a].what);
}

typedef void (*prover)(const struct plans *p, enum rr_algo algo, int root);

static void for_roots(enum rr_algo algo, const struct layout *l, int roots, prover run)
{
    for (int i = 0; i < (is_rooted(algo) ? roots : 1); i++) {
        struct plans p;
        int root = roots == l->of.ranks ? i : i * (l->of.ranks - 1) / (roots - 1);
        int rc = plans_build(&p, algo, l, root);
        if (rc == RINGRED_EINVAL && is_needless(algo, l))
            continue;
        assert_int_equal(rc, 0);
        run(&p, algo, root);
        plans_free(&p);
    }
}

/* Every layout that makes sense for it: one host; for those that span hosts, hosts of 1, 2, 4, 8, ... and of 3
 * and 5 ranks, the last smaller; those dealt out like cards; and one host of many among ranks alone. Of many ranks not for every number. */
static void for_layouts(enum rr_algo algo, int n, int roots, prover run)
{
    static const int each[] = { 1, 2, 4, 8, 16, 32, 3, 5 };
    int fewer = roots < 3 ? roots : 3;
    bool odd = n <= 16 || n % 11 == 0;
    struct layout l;

    layout_make(&l, n, n);
    for_roots(algo, &l, roots, run);
    for (int i = 0; i < 8 && rr_algo_spans_hosts(algo); i++) {
        if (each[i] >= n)
            continue;
        layout_make(&l, n, each[i]);
        if (odd || rr_layout_is_even(&l.of))
            for_roots(algo, &l, roots, run);
        if (!odd)
            continue;
        layout_deal(&l, n, (n + each[i] - 1) / each[i]);
        for_roots(algo, &l, fewer, run);
    }
    for (int i = 1; i < 3 && rr_algo_spans_hosts(algo) && odd && n > 3; i++) {
        layout_lump(&l, n, n * i / 3 + 1);
        for_roots(algo, &l, fewer, run);
    }
}

static void few(const struct plans *p, enum rr_algo algo, int root)
{
    prove_in_turn(p, algo, root, p->ranks <= 32 ? SIZES : 6);
}

static void fewest(const struct plans *p, enum rr_algo algo, int root)
{
    prove_in_turn(p, algo, root, 2 + (p->ranks < 128));
}

static void thorough(const struct plans *p, enum rr_algo algo, int root)
{
    prove_all(p, algo, root, 2);
}

static void once_random(const struct plans *p, enum rr_algo algo, int root)
{
    struct rr_case c = case_of(p, algo, root, FACTS_MIXED_2);

    c.count = c.what == RR_BARRIER ? 0 : 5 * (size_t)p->ranks + 3;
    c.segment = (size_t)p->ranks;
    for (c.channel = -1; c.channel < 2; c.channel++) {
        c.seed = (uint64_t)(root + 1);
        prove(&c);
    }
}

static int smallest(enum rr_algo a)
{
    return a == RR_ALGO_COPY ? MOST_RANKS + 1 : 1;
}

static void test_up_to_6_ranks_with_all_choices(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++)
        for (int n = smallest(a); n <= 6; n++)
            for_layouts((enum rr_algo)a, n, n < 3 ? n : 3, thorough);
}

static void test_up_to_16_ranks_with_all_roots_in_random_order(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++)
        for (int n = smallest(a); n <= 16; n++)
            for_layouts((enum rr_algo)a, n, n, once_random);
}

static void test_up_to_64_ranks(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++)
        for (int n = smallest(a); n <= 64; n++)
            for_layouts((enum rr_algo)a, n, n < 4 ? n : 4, few);
}

static bool is_prime(int n)
{
    for (int d = 2; d * d <= n; d++)
        if (n % d == 0)
            return false;
    return true;
}

static void test_primes_and_neighbours_of_powers_up_to_256_ranks(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++)
        for (int n = 65; n <= MOST_RANKS && a != RR_ALGO_COPY; n++)
            if (is_prime(n) || n == 65 || n == 128 || n == 129 || n == 255 || n == 256)
                for_layouts((enum rr_algo)a, n, 2, fewest);
}

static void test_one_rank_copies(void **state)
{
    struct layout l;
    struct plans p;

    (void)state;
    layout_make(&l, 2, 2);
    assert_int_equal(plans_build(&p, RR_ALGO_COPY, &l, 0), RINGRED_EINVAL);
    layout_make(&l, 1, 1);
    assert_int_equal(plans_build(&p, RR_ALGO_COPY, &l, 0), 0);
    thorough(&p, RR_ALGO_COPY, 0);
    plans_free(&p);
}

/* Where it is, proofs demand the canonical tree. */
static void test_a_layout_is_even_where_hosts_are_parts_of_the_tree(void **state)
{
    struct layout l;
    struct plans p;

    (void)state;
    layout_make(&l, 6, 3); /* three is no power of two */
    assert_false(rr_layout_is_even(&l.of));
    layout_make(&l, 7, 4); /* not equal */
    assert_false(rr_layout_is_even(&l.of));
    layout_deal(&l, 4, 2); /* not contiguous */
    assert_false(rr_layout_is_even(&l.of));
    layout_make(&l, 6, 2);
    assert_true(rr_layout_is_even(&l.of));
    layout_make(&l, 3, 3);
    assert_true(rr_layout_is_even(&l.of));
    layout_make(&l, 5, 1);
    assert_true(rr_layout_is_even(&l.of));
    layout_make(&l, 4, 2);
    assert_int_equal(plans_build(&p, RR_ALGO_SHM_TWOSHOT, &l, 0), RINGRED_EINVAL);
}

static void test_proofs_were_made(void **state)
{
    (void)state;
    print_message("%ld proofs\n", proofs);
    assert_true(proofs > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_copies),
        cmocka_unit_test(test_a_layout_is_even_where_hosts_are_parts_of_the_tree),
        cmocka_unit_test(test_up_to_6_ranks_with_all_choices),
        cmocka_unit_test(test_up_to_16_ranks_with_all_roots_in_random_order),
        cmocka_unit_test(test_up_to_64_ranks),
        cmocka_unit_test(test_primes_and_neighbours_of_powers_up_to_256_ranks),
        cmocka_unit_test(test_proofs_were_made),
    };

    (void)mallopt(M_MMAP_THRESHOLD, 1 << 29); /* memory that is used again at once: keep it */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 29);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
