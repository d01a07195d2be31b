/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of two ranks, each with one mistake, written by hand: the static check and the symbolic runner find
 * it, or one of them does, and say what it is. */
#include "plans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct rr_span *in(int rank)
{
    static struct rr_span span[2];

    span[rank] = rr_span_whole(RR_IN, rank);
    return &span[rank];
}

static const struct rr_span *out(int rank)
{
    static struct rr_span span[2];

    span[rank] = rr_span_whole(RR_OUT, rank);
    return &span[rank];
}

/* ---- mistakes: each adds rank `me`'s steps ---- */

static void waits_in_a_circle(struct rr_builder *b, int me)
{
    int got = rr_add_recv(b, 1 - me, 0, *out(me));

    rr_after(b, rr_add_send(b, 1 - me, 0, *out(me)), got, 0);
}

static void awaits_what_is_never_signalled(struct rr_builder *b, int me)
{
    const int16_t peer = 0;

    if (me == 1)
        rr_add_await(b, RR_READY, &peer, 1);
    else
        rr_add_signal(b, RR_ARRIVED);
}

static void sends_what_nobody_reads(struct rr_builder *b, int me)
{
    if (me == 0)
        rr_add_send(b, 1, 0, *in(0));
    else
        rr_add_signal(b, RR_ARRIVED);
}

static void sends_half_of_what_is_read(struct rr_builder *b, int me)
{
    if (me == 0)
        rr_add_send(b, 1, 0, rr_span_block(*in(0), 0, 2));
    else
        rr_add_recv(b, 0, 0, *out(1));
}

static void sends_another_than_is_read(struct rr_builder *b, int me)
{
    if (me == 0)
        rr_add_send(b, 1, 0, *in(0));
    else
        rr_add_recv(b, 0, 1, *out(1));
}

static void reads_what_nobody_wrote(struct rr_builder *b, int me)
{
    if (me == 0)
        rr_add_send(b, 1, 0, *out(0));
    else
        rr_add_recv(b, 0, 0, *out(1));
}

static void adds_different_places(struct rr_builder *b, int me)
{
    const struct rr_span half[2] = { rr_span_block(*in(me), 0, 2), rr_span_block(*in(me), 1, 2) };
    const struct rr_span to = rr_span_block(*out(me), 0, 2);

    rr_add_reduce(b, half, 2, &to, 1, 0);
}

static void copies_half_into_the_whole(struct rr_builder *b, int me)
{
    rr_add_copy(b, rr_span_block(*in(me), 0, 2), out(me), 1, 0);
}

static void writes_what_another_reads(struct rr_builder *b, int me)
{
    const struct rr_span stage = rr_span_whole(RR_STAGE, 0);

    if (me == 0)
        rr_add_copy(b, *in(0), &stage, 1, 0);
    else
        rr_add_copy(b, stage, out(1), 1, 0);
    rr_add_signal(b, RR_ARRIVED);
}

static void touches_whom_it_has_not_met(struct rr_builder *b, int me)
{
    const struct rr_span stage = rr_span_whole(RR_STAGE, 1 - me);

    rr_add_copy(b, stage, out(me), 1, 0);
    rr_add_signal(b, RR_ARRIVED);
}

static void writes_the_stage_of_another(struct rr_builder *b, int me)
{
    const struct rr_span stage = rr_span_whole(RR_STAGE, 1 - me);
    const int16_t peer = (int16_t)(1 - me);

    rr_add_signal(b, RR_ARRIVED);
    const int met = rr_add_await(b, RR_ARRIVED, &peer, 1);
    rr_after(b, rr_add_copy(b, *in(me), &stage, 1, 0), met, 0);
}

static void reads_an_output_without_a_window(struct rr_builder *b, int me)
{
    const int16_t peer = (int16_t)(1 - me);

    rr_add_signal(b, RR_ARRIVED);
    const int met = rr_add_await(b, RR_ARRIVED, &peer, 1);
    rr_after(b, rr_add_copy(b, rr_span_whole(RR_OUT, peer), out(me), 1, 0), met, 0);
}

static void writes_what_it_keeps(struct rr_builder *b, int me)
{
    const int temp = rr_builder_temp(b, *in(me));
    const struct rr_span kept = rr_span_whole(RR_KEPT, temp);

    rr_add_copy(b, *in(me), &kept, 1, 0);
}

static void needs_other_scratch(struct rr_builder *b, int me)
{
    if (me == 0)
        (void)rr_builder_temp(b, *in(me));
    rr_add_signal(b, RR_ARRIVED);
}

static void gives_itself_what_is_the_roots(struct rr_builder *b, int me)
{
    rr_add_copy(b, *in(me), out(me), 1, 0);
}

#define ANY ""
static const struct {
    void (*steps)(struct rr_builder *b, int me);
    const char *hazard, *proof; /* words of what each finds; NULL: nothing */
} wrong[] = {
    { waits_in_a_circle, "deadlock", "deadlock" },
    { awaits_what_is_never_signalled, "never signals", ANY },
    { sends_what_nobody_reads, "more sends than receives", "nobody reads" },
    { sends_half_of_what_is_read, "message's length", ANY },
    { sends_another_than_is_read, "reads step", ANY },
    { reads_what_nobody_wrote, NULL, "nobody wrote" },
    { adds_different_places, NULL, "different places" },
    { copies_half_into_the_whole, NULL, "sizes differ" },
    { writes_what_another_reads, ANY, ANY },
    { touches_whom_it_has_not_met, "never meets", "has not arrived" },
    { writes_the_stage_of_another, "writes the stage", "writes the stage" },
    { reads_an_output_without_a_window, "no window", "no window" },
    { writes_what_it_keeps, "what it keeps", "what it keeps" },
    { needs_other_scratch, "other scratch", "other scratch" },
    { gives_itself_what_is_the_roots, NULL, "output" },
};

static void says(size_t i, const char *who, int rc, const ringred_error *why, const char *words)
{
    if (words == NULL ? rc != 0 : rc != RINGRED_EINTERNAL || strstr(why->text, words) == NULL)
        fail_msg("mistake %zu: %s says %d, \"%s\"; should speak of \"%s\"", i, who, rc, rc ? why->text : "",
                 words ? words : "nothing");
}

static void test_every_mistake_is_found_and_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ringred_error why = { .struct_size = sizeof why };
        struct rr_plan *plan[2];
        const struct rr_case c = { .what = RR_BROADCAST, .ranks = 2, .plan = plan, .count = 256, .segment = 256,
                                   .element_bytes = 1, .stage_pieces = 2 * RR_PLAN_WINDOW, .channel = -1 };

        for (int me = 0; me < 2; me++) {
            struct rr_builder *b = rr_builder_new(2, me, "wrong");

            wrong[i].steps(b, me);
            assert_int_equal(rr_plan_finish(b, &plan[me]), 0);
        }
        says(i, "the static check", rr_plan_hazards(&c, &why), &why, wrong[i].hazard);
        says(i, "the symbolic runner", rr_plan_prove(&c, &why), &why, wrong[i].proof);
        for (int me = 0; me < 2; me++)
            rr_plan_free(plan[me]);
    }
}

static void test_cases_out_of_range_are_refused(void **state)
{
    ringred_error why = { .struct_size = sizeof why };
    struct layout l;
    struct plans p;

    (void)state;
    layout_make(&l, 2, 2);
    assert_int_equal(plans_build(&p, RR_ALGO_SHM_ONESHOT, &l, 0), 0);
    struct rr_case c = case_of(&p, RR_ALGO_SHM_ONESHOT, 0, FACTS_PRIVATE);
    c.segment = 0;
    assert_int_equal(rr_plan_prove(&c, &why), RINGRED_EINVAL);
    assert_int_equal(rr_plan_hazards(&c, &why), RINGRED_EINVAL);
    c = case_of(&p, RR_ALGO_SHM_ONESHOT, 0, FACTS_PRIVATE);
    c.count = c.segment = 4;
    p.plan[1]->me = 0; /* both are rank 0's */
    assert_int_equal(rr_plan_prove(&c, &why), RINGRED_EINVAL);
    assert_non_null(strstr(why.text, "plan 1 is not that of rank 1 of 2"));
    p.plan[1]->me = 1;
    p.plan[1]->step[0].kind = RR_STEP_LAST;
    assert_int_equal(rr_plan_prove(&c, &why), RINGRED_EINTERNAL);
    assert_non_null(strstr(why.text, "not well formed"));
    plans_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mistake_is_found_and_named),
        cmocka_unit_test(test_cases_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
