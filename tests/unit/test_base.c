/* SPDX-License-Identifier: Apache-2.0 */
/* The base room: deadlines. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_a_deadline_for_ever_waits_as_long_as_it_may(void **state)
{
    (void)state;
    assert_true(rr_deadline(RINGRED_FOREVER) == INT64_MAX);
    assert_int_equal(rr_deadline_ms(INT64_MAX, 100), 100);
    assert_int_equal(rr_deadline_ms(INT64_MAX - 1, 100), 100);
    assert_int_equal(rr_deadline_ms(rr_now_ns() + INT64_C(3600000000000), 100), 100);
}

static void test_a_deadline_that_is_over_waits_no_more(void **state)
{
    (void)state;
    assert_int_equal(rr_deadline_ms(rr_now_ns(), 100), 0);
    assert_int_equal(rr_deadline_ms(0, 100), 0);
    assert_int_equal(rr_deadline_ms(INT64_MIN / 2, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_deadline_for_ever_waits_as_long_as_it_may),
        cmocka_unit_test(test_a_deadline_that_is_over_waits_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
