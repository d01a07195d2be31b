/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the number of ranks of a host and the setting of its stage: each plan finds a segment, the
 * stage has as many pieces of it as the plans are proved for, and no plan has more steps than the
 * communicator has room for. */
#include "core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST 256

static ringred_comm *comm;
static struct rr_family family;
static struct rr_shared shared;
static int16_t host[MOST];

static int open_comm(void **state)
{
    ringred_error why;

    (void)state;
    comm = calloc(1, sizeof *comm);
    if (!comm)
        return -1;
    comm->family = &family;
    return rr_settings_load(&family.settings, NULL, &why);
}

static int close_comm(void **state)
{
    (void)state;
    free(comm);
    return 0;
}

static void be(int ranks, size_t stage, bool crowded)
{
    comm->ranks = ranks;
    comm->all_local = true;
    family.crowded_any = crowded;
    comm->layout = (struct rr_layout){ ranks, 1, host };
    shared.stage_bytes = rr_stage_bytes(stage, ranks);
    comm->engine.shared = &shared;
    comm->engine.scratch_bytes = (size_t)8 << 20;
}

static void check(const struct rr_plan *plan, size_t count, size_t element)
{
    size_t segment = rr_segment_of(comm, plan, count, element, 0);
    size_t piece = rr_round_up(segment * element, 2 * RR_LINE) * plan->stage_parts;

    if (!segment) /* only what is far too long for small segments */
        assert_true(count * element >> (RR_SEGMENT_BITS - 1) > shared.stage_bytes / 10 / plan->stage_parts);
    else if (count > segment)
        assert_true(shared.stage_bytes / piece >= 2 * RR_PLAN_WINDOW);
    else
        assert_true(shared.stage_bytes >= piece);
}

static void test_every_plan_has_a_segment_and_its_stage_the_pieces(void **state)
{
    static const size_t stages[] = { 0, 4096, 1 << 16, 1 << 20 };
    static const size_t counts[] = { 0, 1, 1000, (size_t)1 << 20, (size_t)1 << 31, (size_t)1 << 40 };

    (void)state;
    for (int ranks = 2; ranks <= MOST; ranks = ranks < 8 ? ranks + 1 : ranks * 3 / 2 < MOST ? ranks * 3 / 2
                                               : ranks == MOST ? MOST + 1 : MOST)
        for (int algo = 0; algo < RR_ALGOS; algo++) {
            struct rr_layout layout = { ranks, 1, host };
            struct rr_plan *plan;
            if (!rr_algo_table[algo].shared || rr_algo_table[algo].build(&layout, 0, ranks / 2, &plan) < 0)
                continue;
            for (size_t i = 0; i < 2 * sizeof stages / sizeof *stages; i++) {
                be(ranks, stages[i / 2], i % 2);
                for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                    check(plan, counts[k], 1);
                    check(plan, counts[k], 16);
                }
            }
            rr_plan_free(plan);
        }
}

static void test_no_plan_has_more_steps_than_there_is_room_for(void **state)
{
    static const int ranks[] = { 1, 2, 3, 17, 128, 255, 256 };
    int made = 0;

    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int algo = 0; algo < RR_ALGOS; algo++) {
            struct rr_layout layout = { ranks[i], 1, host };
            struct rr_plan *plan;
            if (rr_algo_table[algo].build(&layout, ranks[i] / 2, 0, &plan) < 0)
                continue;
            made++;
            if (rr_algo_table[algo].what != RR_ALLREDUCE && rr_algo_table[algo].what != RR_BARRIER)
                assert_true(plan->steps <= rr_plan_steps_most(ranks[i]));
            rr_plan_free(plan);
        }
    assert_true(made > RR_ALGOS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_has_a_segment_and_its_stage_the_pieces),
        cmocka_unit_test(test_no_plan_has_more_steps_than_there_is_room_for),
    };

    return cmocka_run_group_tests(tests, open_comm, close_comm);
}
