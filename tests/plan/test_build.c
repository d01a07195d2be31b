/* SPDX-License-Identifier: Apache-2.0 */
/* The builder, blocks, the printer; and every algorithm when memory runs out. */
#include "plans.h"

#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct rr_span in0, out0;

static struct rr_builder *fresh(int ranks, int me)
{
    struct rr_builder *b = rr_builder_new(ranks, me, "test");

    assert_non_null(b);
    in0 = rr_span_whole(RR_IN, me);
    out0 = rr_span_whole(RR_OUT, me);
    return b;
}

static void refuses(struct rr_builder *b)
{
    struct rr_plan *plan = NULL;

    assert_int_equal(rr_plan_finish(b, &plan), RINGRED_EINVAL);
    assert_null(plan);
}

static void test_builder_refuses_what_makes_no_sense(void **state)
{
    struct rr_builder *b;
    int16_t me = 0, none = 9;

    (void)state;
    refuses(fresh(2, 2));
    b = fresh(2, 0);
    rr_add_send(b, 0, 0, in0); /* to itself */
    refuses(b);
    b = fresh(2, 0);
    rr_add_recv(b, 2, 0, out0);
    refuses(b);
    b = fresh(2, 0);
    rr_add_send(b, 1, 0, rr_span_whole(RR_TEMP, 0)); /* no such temp */
    refuses(b);
    b = fresh(2, 0);
    rr_add_send(b, 1, 0, rr_span_block(in0, 4, 4));
    refuses(b);
    b = fresh(2, 0);
    rr_add_await(b, RR_ARRIVED, &me, 1);
    refuses(b);
    b = fresh(2, 0);
    rr_add_await(b, RR_ARRIVED, &none, 1);
    refuses(b);
    b = fresh(2, 0);
    rr_add_reduce(b, &in0, 0, &out0, 1, 0);
    refuses(b);
    b = fresh(2, 0);
    rr_add_signal(b, RR_LEFT);
    rr_add_signal(b, RR_LEFT); /* would say it too early */
    refuses(b);
}

static void test_builder_refuses_numbers_out_of_range(void **state)
{
    const int16_t other = 1;
    struct rr_builder *b = fresh(2, 0);

    (void)state;
    rr_builder_stage(b, 0);
    assert_int_equal(rr_builder_temp(b, in0), 0); /* after a failure nothing is done any more */
    rr_lag(b, 0, 0);
    rr_after(b, 0, 0, 1);
    assert_int_equal(rr_add_await(b, RR_LEFT, &other, 1), 0);
    assert_int_equal(rr_add_signal(b, RR_LEFT), 0);
    refuses(b);
    b = fresh(2, 0);
    rr_builder_temp(b, rr_span_parts(in0, -1, 1));
    refuses(b);
    b = fresh(2, 0);
    rr_add_send(b, 1, 0, rr_span_parts(in0, 0, 0x10000));
    refuses(b);
    b = fresh(2, 0);
    rr_add_await(b, RR_LEFT, &other, -1);
    refuses(b);
    b = fresh(2, 0);
    rr_lag(b, rr_add_send(b, 1, 0, in0), 256);
    refuses(b);
    b = fresh(2, 0);
    for (int i = 0; i <= 0xffff; i++)
        rr_add_send(b, 1, 0, in0);
    refuses(b);
}

static void test_builder_refuses_dependencies_that_point_forward(void **state)
{
    (void)state;
    struct rr_builder *b = fresh(2, 0);
    int a = rr_add_signal(b, RR_ARRIVED), c = rr_add_signal(b, RR_LEFT);
    rr_after(b, a, c, 0);
    refuses(b);

    b = fresh(2, 0);
    a = rr_add_signal(b, RR_ARRIVED);
    rr_after(b, a, a, 0);
    refuses(b);

    b = fresh(2, 0);
    rr_after(b, rr_add_signal(b, RR_ARRIVED), 7, 0);
    refuses(b);

    b = fresh(2, 0); /* in the turn of a segment, one that lags has only done the one before */
    a = rr_add_send(b, 1, 0, in0);
    c = rr_add_recv(b, 1, 1, out0);
    rr_lag(b, a, 1);
    rr_after(b, c, a, 0);
    refuses(b);
}

static int deps_on(const struct rr_plan *p, int step, int on, int *back)
{
    int n = 0;

    for (int i = 0; i < p->step[step].deps; i++)
        if (p->dep[p->step[step].dep + (uint32_t)i].step == on) {
            *back = p->dep[p->step[step].dep + (uint32_t)i].back;
            n++;
        }
    return n;
}

static void test_messages_of_a_link_keep_the_order_of_turns(void **state)
{
    struct rr_plan *p = NULL;
    int back = 99;

    (void)state;
    struct rr_builder *b = fresh(3, 0);
    int a = rr_add_send(b, 1, 0, in0), other = rr_add_send(b, 2, 0, in0),
        c = rr_add_send(b, 1, 1, in0);
    rr_lag(b, c, 1);
    assert_int_equal(rr_plan_finish(b, &p), 0);
    assert_int_equal(deps_on(p, c, a, &back), 1);
    assert_int_equal(back, -1); /* the next segment's first message goes before */
    assert_int_equal(deps_on(p, a, c, &back), 1);
    assert_int_equal(back, 2);
    assert_int_equal(deps_on(p, a, other, &back) + deps_on(p, other, a, &back), 0);
    assert_true(p->linked && !p->shared && p->most_lag == 1);
    rr_plan_free(p);
}

static void test_dependencies_on_one_step_become_one(void **state)
{
    struct rr_plan *p = NULL;
    int back = 99;

    (void)state;
    struct rr_builder *b = fresh(2, 0);
    int a = rr_add_copy(b, in0, &out0, 1, 0), c = rr_add_signal(b, RR_ARRIVED);
    rr_after(b, c, a, 2);
    rr_after(b, c, a, 0);
    rr_after(b, c, a, 1);
    assert_int_equal(rr_plan_finish(b, &p), 0);
    assert_int_equal(p->deps, 1);
    assert_int_equal(deps_on(p, c, a, &back), 1);
    assert_int_equal(back, 0);
    rr_plan_free(p);
}

/* ---- blocks ---- */

static void check_blocks(size_t elements, int of, size_t bytes)
{
    size_t at = 0, line = bytes < 64 ? 64 / bytes : 1, most = 0;
    struct rr_span whole = rr_span_whole(RR_IN, 0);

    for (int i = 0; i < of; i++) {
        struct rr_span s = rr_span_block(whole, i, of);
        struct rr_range r = rr_block_range((struct rr_range){ 100, 100 + elements }, &s, bytes);
        assert_int_equal(r.lo, 100 + at);
        assert_true(r.hi >= r.lo);
        if (i < of - 1 && r.hi < 100 + elements)
            assert_int_equal((r.hi - 100) % line, 0);
        most = r.hi - r.lo > most ? r.hi - r.lo : most;
        at = r.hi - 100;
    }
    struct rr_span s = rr_span_block(whole, 0, of);
    assert_int_equal(at, elements);
    assert_int_equal(rr_block_most(elements, s.of, bytes), most);
}

static void test_blocks_cover_a_segment_without_overlap(void **state)
{
    (void)state;
    for (size_t elements = 0; elements < 300; elements++)
        for (int of = 1; of < 20; of++) {
            check_blocks(elements, of, 4);
            check_blocks(elements, of, 8);
            check_blocks(elements, of, 64);
        }
    check_blocks((size_t)1 << 40, 255, 4);
}

static void test_blocks_of_blocks_cover_the_block(void **state)
{
    (void)state;
    for (size_t elements = 0; elements < 500; elements += 7)
        for (int i = 0; i < 3; i++) {
            struct rr_span block = rr_span_block(rr_span_whole(RR_IN, 0), i, 3);
            struct rr_range r = rr_block_range((struct rr_range){ 0, elements }, &block, 4);
            size_t at = r.lo;
            for (int j = 0; j < 5; j++) {
                struct rr_span s = rr_span_block(block, j, 5);
                struct rr_range sub = rr_block_range((struct rr_range){ 0, elements }, &s, 4);
                assert_int_equal(sub.lo, at);
                assert_true(sub.hi - sub.lo <= rr_block_most(elements, s.of, 4));
                at = sub.hi;
            }
            assert_int_equal(at, r.hi);
        }
}

/* ---- printing ---- */

static void test_printer_writes_a_line_per_step(void **state)
{
    char text[4096];
    struct rr_text t = { .at = text, .room = sizeof text };
    struct layout l;
    struct plans p;
    uint32_t lines = 0;

    (void)state;
    layout_make(&l, 4, 4);
    assert_int_equal(plans_build(&p, RR_ALGO_TWOSHOT, &l, 0), 0);
    rr_plan_print(p.plan[1], &t);
    assert_true(t.used < sizeof text);
    for (size_t i = 0; i < t.used; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, p.plan[1]->steps + 1);
    assert_non_null(strstr(text, "direct two-shot, rank 1 of 4"));
    assert_non_null(strstr(text, "send   to 2 #0: in(1)[2/4]"));
    assert_non_null(strstr(text, "divide"));
    assert_true(rr_plan_bytes(p.plan[1]) > sizeof(struct rr_plan));
    plans_free(&p);
}

static void test_printer_names_flags_lags_and_counters(void **state)
{
    static const char *const lines[] = {
        "every word, rank 0 of 2: 7 steps, 1 temps",
        "   0 signal arrived\n",
        "   1 await  arrived of 1\n",
        "   2 copy   in(0) -> stage(0) private-in",
        "   3 copy   in(0) -> temp(0) in-place",
        "   4 reduce kept(0) stage(1).1 -> out(0) private-out divide partial; after 1, 3(-1)\n",
        "   5 signal left",
        "   6 await  left of 1 window-in",
    };
    const int16_t other = 1;
    char text[2048];
    struct rr_text t = { .at = text, .room = sizeof text };
    struct rr_builder *b = rr_builder_new(2, 0, "every word");
    struct rr_plan *p = NULL;

    (void)state;
    assert_non_null(b);
    const struct rr_span in = rr_span_whole(RR_IN, 0), out = rr_span_whole(RR_OUT, 0);
    const struct rr_span stage = rr_span_whole(RR_STAGE, 0), temp = rr_span_whole(RR_TEMP, rr_builder_temp(b, in));
    const struct rr_span both[] = { rr_span_whole(RR_KEPT, 0), rr_span_parts(rr_span_whole(RR_STAGE, 1), 1, 1) };
    rr_builder_stage(b, 2);
    rr_add_signal(b, RR_ARRIVED);
    int met = rr_add_await(b, RR_ARRIVED, &other, 1);
    rr_add_copy(b, in, &stage, 1, RR_PRIVATE_IN);
    int kept = rr_add_copy(b, in, &temp, 1, RR_IN_PLACE);
    int sum = rr_add_reduce(b, both, 2, &out, 1, RR_DIVIDE | RR_PARTIAL | RR_PRIVATE_OUT);
    rr_after(b, sum, met, 0);
    rr_after(b, sum, kept, 1);
    rr_add_signal(b, RR_LEFT);
    rr_add_farewell(b, &other, 1);
    assert_int_equal(rr_plan_finish(b, &p), 0);
    rr_plan_print(p, &t);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("\"%s\" is not in:\n%s", lines[i], text);
    rr_plan_free(p);
}

/* ---- memory ---- */

static void test_builders_survive_every_failing_allocation(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++) {
        struct layout l;
        struct rr_plan *plan = NULL;
        int n = a == RR_ALGO_COPY ? 1 : 8, rc = RINGRED_ENOMEM;
        layout_make(&l, n, rr_algo_table[a].shared || n == 1 ? n : 2);
        for (long nth = 1; rc == RINGRED_ENOMEM; nth++) {
            rr_alloc_fail_after(nth, nth % 2 == 0);
            rc = rr_algo_table[a].build(&l.of, n - 1, 0, &plan);
            rr_alloc_fail_after(0, false);
            assert_true(nth < 1000);
        }
        assert_int_equal(rc, 0);
        rr_plan_free(plan);
    }
}

static void test_provers_survive_every_failing_allocation(void **state)
{
    struct layout l;
    struct plans p;
    int rc = RINGRED_ENOMEM;

    (void)state;
    layout_make(&l, 4, 2);
    assert_int_equal(plans_build(&p, RR_ALGO_HIERARCHICAL, &l, 0), 0);
    struct rr_case c = case_of(&p, RR_ALGO_HIERARCHICAL, 0, FACTS_MIXED);
    c.count = 20;
    c.segment = 4;
    for (long nth = 1; rc == RINGRED_ENOMEM; nth++) {
        rr_alloc_fail_after(nth, true);
        rc = rr_plan_prove(&c, NULL);
        rr_alloc_fail_after(0, false);
    }
    assert_int_equal(rc, 0);
    rc = RINGRED_ENOMEM;
    for (long nth = 1; rc == RINGRED_ENOMEM; nth++) {
        rr_alloc_fail_after(nth, true);
        rc = rr_plan_hazards(&c, NULL);
        rr_alloc_fail_after(0, false);
    }
    assert_int_equal(rc, 0);
    plans_free(&p);
}

static void test_table_names_every_algorithm(void **state)
{
    (void)state;
    for (int a = 0; a < RR_ALGOS; a++) {
        assert_non_null(rr_algo_table[a].name);
        assert_non_null(rr_algo_table[a].build);
        assert_non_null(rr_algo_table[a].rounds);
        assert_non_null(rr_algo_table[a].bytes);
        for (int b = 0; b < a; b++)
            assert_string_not_equal(rr_algo_table[a].name, rr_algo_table[b].name);
    }
}

/* Ranks that came to different answers would wait for each other's segments. */
static void test_all_ranks_agree_on_windowed(void **state)
{
    (void)state;
    for (int a = RR_ALGO_COPY + 1; a < RR_ALGOS; a++)
        for (int n = 2; n <= 12; n++) {
            struct layout l;
            struct plans p;
            layout_make(&l, n, n);
            if (plans_build(&p, (enum rr_algo)a, &l, n / 2) < 0)
                continue;
            bool windowed =
                a == RR_ALGO_SHM_TWOSHOT || a == RR_ALGO_SHM_REDUCE_SCATTER ||
                (a == RR_ALGO_HIERARCHICAL && !p.plan[0]->linked);
            for (int r = 0; r < n; r++)
                assert_int_equal(p.plan[r]->windowed, windowed);
            plans_free(&p);
        }
}

/* How large a segment may be depends on it, and a segment must be the same on all ranks. */
static void test_all_ranks_need_the_same_scratch(void **state)
{
    static const int each[] = { 1, 2, 4, 64 };

    (void)state;
    for (int a = RR_ALGO_COPY + 1; a < RR_ALGOS; a++)
        for (int n = 2; n <= 33; n++)
            for (size_t e = 0; e < sizeof each / sizeof *each; e++) {
                struct layout l;
                struct plans p;
                layout_make(&l, n, each[e] < n ? each[e] : n);
                if (plans_build(&p, (enum rr_algo)a, &l, n / 2) < 0)
                    continue;
                for (int r = 1; r < n; r++)
                    for (size_t count = 1; count < 100000; count = 7 * count + 3)
                        if (rr_program_scratch(p.plan[r], count, 4, 4096) !=
                            rr_program_scratch(p.plan[0], count, 4, 4096))
                            fail_msg("%s: rank %d of %d, %d on a host, needs other scratch than rank 0",
                                     rr_algo_table[a].name, r, n, each[e]);
                plans_free(&p);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builder_refuses_what_makes_no_sense),
        cmocka_unit_test(test_builder_refuses_numbers_out_of_range),
        cmocka_unit_test(test_builder_refuses_dependencies_that_point_forward),
        cmocka_unit_test(test_messages_of_a_link_keep_the_order_of_turns),
        cmocka_unit_test(test_dependencies_on_one_step_become_one),
        cmocka_unit_test(test_blocks_cover_a_segment_without_overlap),
        cmocka_unit_test(test_blocks_of_blocks_cover_the_block),
        cmocka_unit_test(test_printer_writes_a_line_per_step),
        cmocka_unit_test(test_printer_names_flags_lags_and_counters),
        cmocka_unit_test(test_builders_survive_every_failing_allocation),
        cmocka_unit_test(test_provers_survive_every_failing_allocation),
        cmocka_unit_test(test_table_names_every_algorithm),
        cmocka_unit_test(test_all_ranks_agree_on_windowed),
        cmocka_unit_test(test_all_ranks_need_the_same_scratch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
