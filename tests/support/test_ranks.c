/* SPDX-License-Identifier: Apache-2.0 */
/* The test helper itself: a failure, a crash or a hang of one rank must fail the test. Each failing
 * run is a process of its own, whose end is looked at. */
#include "ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void good(struct rank *me)
{
    int number = me->rank == 0 ? 4711 : 0;
    atomic_int *sum = me->shared;

    ranks_pass(me, &number, sizeof number);
    rank_check_int(number, 4711);
    atomic_fetch_add(sum, me->rank);
    ranks_meet(me);
    rank_check_int(atomic_load(sum), me->size * (me->size - 1) / 2);
}

static void one_fails(struct rank *me)
{
    rank_check_msg(me->rank != 1, "this is rank %d", me->rank);
}

static void one_crashes(struct rank *me)
{
    if (me->rank == 2)
        raise(SIGSEGV);
}

static void one_hangs(struct rank *me)
{
    if (me->rank == 0)
        pause();
}

static const struct ranks_plan *inner_plan;

static void inner(void **state)
{
    (void)state;
    ranks_run(inner_plan);
}

/* Runs a plan in a cmocka of its own, in a process of its own; returns how many tests failed. */
static int failures_of(const struct ranks_plan *plan)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(inner) };
    int status = 0;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        inner_plan = plan;
        if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
            _exit(99);
        _exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_ranks_share_and_meet(void **state)
{
    (void)state;
    ranks_fork(5, good, NULL);
    ranks_threads(5, good, NULL);
}

static void test_a_failing_rank_fails_the_test(void **state)
{
    const struct ranks_plan forked = { .size = 3, .run = one_fails };
    const struct ranks_plan threads = { .size = 3, .run = one_fails, .threads = true };

    (void)state;
    assert_int_equal(failures_of(&forked), 1);
    assert_int_equal(failures_of(&threads), 1);
}

static void test_a_crash_fails_the_test_unless_it_is_expected(void **state)
{
    const struct ranks_plan plan = { .size = 3, .run = one_crashes };
    const struct ranks_plan expected = { .size = 3, .run = one_crashes, .may_die = 1u << 2 };

    (void)state;
    assert_int_equal(failures_of(&plan), 1);
    assert_int_equal(failures_of(&expected), 0);
}

static void test_a_hanging_rank_fails_the_test(void **state)
{
    const struct ranks_plan plan = { .size = 2, .run = one_hangs, .deadline_s = 1 };

    (void)state;
    assert_int_equal(failures_of(&plan), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_share_and_meet),
        cmocka_unit_test(test_a_failing_rank_fails_the_test),
        cmocka_unit_test(test_a_crash_fails_the_test_unless_it_is_expected),
        cmocka_unit_test(test_a_hanging_rank_fails_the_test),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
