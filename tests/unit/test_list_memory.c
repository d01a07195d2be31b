/* SPDX-License-Identifier: Apache-2.0 */
/* A list allocates at its first call, and when it is longer than any before; then nothing. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define N 500

static float x[N][8];
static void *at[N];
static size_t counts[N];
static int32_t types[N];

static void reduce(ringred_comm *comm, size_t n)
{
    assert_int_equal(ringred_allreduce_list(comm, (const void *const *)at, at, counts, types, n, RINGRED_SUM), 0);
}

static void test_nothing_is_allocated_once_a_list_is_known(void **state)
{
    ringred_config config;
    ringred_comm *comm;

    (void)state;
    for (int i = 0; i < N; i++) {
        at[i] = x[i];
        counts[i] = (size_t)i % 9;
        types[i] = i & 1 ? RINGRED_FLOAT32 : RINGRED_INT32;
    }
    ringred_config_init(&config, sizeof config);
    config.rank = 0;
    config.size = 1;
    assert_int_equal(ringred_comm_create(&config, &comm, NULL), 0);
    reduce(comm, N);
    long before = rr_alloc_count();
    for (size_t i = 0; i <= N; i++)
        reduce(comm, i);
    assert_int_equal(rr_alloc_count(), before);
    assert_int_equal(ringred_comm_destroy(comm), 0);
}

/* Whichever allocation fails, the call is refused and the next one works. */
static void test_a_list_without_memory_is_refused(void **state)
{
    int refused = 0;

    (void)state;
    for (long nth = 1; nth < 20; nth++) {
        ringred_config config;
        ringred_comm *comm;

        ringred_config_init(&config, sizeof config);
        config.rank = 0;
        config.size = 1;
        assert_int_equal(ringred_comm_create(&config, &comm, NULL), 0);
        rr_alloc_fail_after(nth, false);
        int32_t rc = ringred_allreduce_list(comm, (const void *const *)at, at, counts, types, N, RINGRED_SUM);
        rr_alloc_fail_after(0, false);
        assert_true(rc == 0 || rc == RINGRED_ENOMEM);
        refused += rc != 0;
        reduce(comm, N);
        assert_int_equal(ringred_comm_destroy(comm), 0);
    }
    assert_in_range(refused, 5, 18); /* its own five, and those of the plan that it is the first to use */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated_once_a_list_is_known),
        cmocka_unit_test(test_a_list_without_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
