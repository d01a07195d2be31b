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
    comm->least_stage = shared.stage_bytes;
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

/* ---- several hosts ---- */

/* Hosts of `each` ranks, ranks dealt out like cards, one host of many among ranks alone. */
static int lay_out(struct rr_layout *layout, int ranks, int how)
{
    int hosts = 0;

    for (int r = 0; r < ranks; r++) {
        host[r] = (int16_t)(how < 4 ? r / (how + 2) : how == 4 ? r % (ranks / 3 + 1) : r < ranks / 2 ? 0 : r - ranks / 2 + 1);
        hosts = host[r] < hosts ? hosts : host[r] + 1;
    }
    *layout = (struct rr_layout){ ranks, hosts, host };
    return hosts;
}

/* Whether it is the root, has mates or not: a rank that cut a vector otherwise would wait for other messages. */
static void check_alike(const struct rr_layout *layout, enum rr_algo algo, int root)
{
    static const size_t counts[] = { 1, 5000, 300000, 9000000 };
    size_t segment[4] = { 0 };

    for (int r = 0; r < layout->ranks; r++) {
        struct rr_plan *plan;
        if (rr_algo_table[algo].build(layout, r, root, &plan) < 0)
            return;
        if (rr_algo_table[algo].what != RR_ALLREDUCE && rr_algo_table[algo].what != RR_BARRIER)
            assert_true(plan->steps <= rr_plan_steps_most(layout->ranks));
        for (int i = 0; i < 4; i++) {
            size_t mine = rr_segment_of(comm, plan, counts[i], 4, 0);
            if (r > 0 && mine != segment[i])
                fail_msg("%s, %d ranks on %d hosts, root %d: rank %d cuts %zu elements by %zu, rank 0 by %zu",
                         rr_algo_table[algo].name, layout->ranks, layout->hosts, root, r, counts[i], mine,
                         segment[i]);
            segment[i] = mine;
        }
        rr_plan_free(plan);
    }
}

static void test_all_ranks_cut_segments_alike(void **state)
{
    static const int ranks[] = { 3, 5, 6, 7, 12, 31, 64 };

    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int how = 0; how < 6; how++)
            for (int algo = RR_ALGO_COPY + 1; algo < RR_ALGOS; algo++) {
                struct rr_layout layout;
                if (!rr_algo_table[algo].linked || rr_algo_table[algo].what == RR_BARRIER)
                    continue;
                be(ranks[i], 0, how % 2);
                comm->all_local = false;
                comm->layout.hosts = lay_out(&layout, ranks[i], how);
                check_alike(&layout, (enum rr_algo)algo, 0);
                check_alike(&layout, (enum rr_algo)algo, ranks[i] / 2);
            }
    for (int r = 0; r < MOST; r++)
        host[r] = 0;
}

/* A tree for all sizes: only what all ranks know for good decides between hosts and links. */
static void test_sums_go_by_hosts_where_stages_have_room(void **state)
{
    struct rr_call call = { .what = RR_REDUCE_SCATTER, .type = RINGRED_FLOAT32, .op = RINGRED_SUM };
    struct rr_layout layout;

    (void)state;
    be(128, 0, false);
    comm->all_local = false;
    comm->layout.hosts = lay_out(&layout, 128, 1);
    for (int what = 0; what < RR_COLLECTIVES; what++)
        comm->wish[what] = -1;
    for (call.count = 0; call.count < 1 << 24; call.count = 2 * call.count + 1) {
        comm->least_stage = (size_t)64 << 10;
        assert_int_equal(rr_choose_algo(comm, &call), RR_ALGO_REDUCE_SCATTER);
        comm->least_stage = (size_t)4 << 20;
        assert_int_equal(rr_choose_algo(comm, &call), RR_ALGO_HIER_REDUCE_SCATTER);
        assert_string_equal(rr_choose_tree(comm, &call), "layout");
        call.type = RINGRED_FLOAT8_E5M2;
        assert_int_equal(rr_choose_algo(comm, &call), RR_ALGO_REDUCE_SCATTER);
        call.type = RINGRED_FLOAT32;
    }
    for (int r = 0; r < MOST; r++)
        host[r] = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_plan_has_a_segment_and_its_stage_the_pieces),
        cmocka_unit_test(test_no_plan_has_more_steps_than_there_is_room_for),
        cmocka_unit_test(test_all_ranks_cut_segments_alike),
        cmocka_unit_test(test_sums_go_by_hosts_where_stages_have_room),
    };

    return cmocka_run_group_tests(tests, open_comm, close_comm);
}
