/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for reunions, and for how long: its source is a part of this program. */
#include "boot/keep.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct rr_reunion *one_more(struct rr_reunion *before)
{
    struct rr_reunion *u = rr_alloc(1, sizeof *u);

    assert_non_null(u);
    *u = (struct rr_reunion){ .holders = 1, .before = before };
    return u;
}

static int length(const struct rr_reunion *u)
{
    int n = 0;

    for (; u; u = u->before)
        n++;
    return n;
}

static void test_the_newest_generations_are_kept(void **state)
{
    struct rr_reunion *u = NULL;

    (void)state;
    for (int i = 1; i < 3 * KEPT_MOST; i++) {
        u = one_more(u);
        rr_reunion_drop(cut_off(u));
        assert_int_equal(length(u), i < KEPT_MOST + 1 ? i : KEPT_MOST + 1);
    }
    struct rr_reunion *half = one_more(u), *other;
    rr_reunion_hold(u); /* half's, beside mine */
    rr_reunion_adopt(u, half);
    other = one_more(u);
    rr_reunion_hold(u);
    rr_reunion_adopt(u, other);
    assert_ptr_equal(u->half, other);
    assert_ptr_equal(other->before, half);
    assert_null(half->before);
    assert_int_equal(u->holders, 1);
    rr_reunion_drop(u); /* with all: the leak checker looks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_generations_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
