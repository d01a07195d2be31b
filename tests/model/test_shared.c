/* SPDX-License-Identifier: Apache-2.0 */
/* The protocols of shared memory over all orders of events: the engine's own code, with two or three
 * ranks on one mapping, runs a few operations one after another, and every order of its calls is
 * tried. A call is one atomic move: the beginning of an operation, one look of a lane, one step of a
 * plan. That loses nothing: a call either writes what is its rank's and then raises one counter, and
 * who reads half of the writes could as well read all of them; or it looks at counters, which only
 * grow, and then reads, and may as well have looked later.
 *
 * Checked: results; that nobody writes a rank's buffers once its operation has ended, nor reads them
 * (they are overwritten at once); that nothing is read that was not written (stages begin as NaNs);
 * that all ranks come to the end. */
#include "algo/algo.h"
#include "engine/engine.h"
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3
#define OPS 6
#define MOST 264      /* elements of a vector */
#define STEPS 64
#define STAGE 2560
#define HEAP (2 * MOST * sizeof(float))
#define SPARE 0x7fu   /* what a buffer is filled with that nobody may touch */

enum how { TINY, LAST, PLAN };

struct op {
    enum how how;
    enum rr_algo algo;
    size_t count, segment;               /* elements */
    int root;
    unsigned in_window, out_window, in_place; /* bit r: rank r's */
};

struct scenario {
    const char *name;
    int ranks, skips;                    /* skips: of a plan's steps that could run, each of so many is tried */
    size_t stage;
    uint64_t stride;                     /* of operations' numbers; 2: the control with one arrival line */
    struct op op[OPS];
    bool wrong;                          /* a control: something wrong must be found */
};

/* All that changes; a state is a copy of it, cut after the last rank. */
static struct world {
    struct rr_host_page host;
    struct actor {
        struct rr_page page;
        _Alignas(128) char stage[STAGE];
        _Alignas(128) char heap[HEAP];
        _Alignas(128) char own[HEAP];    /* buffers without windows */
        struct rr_engine engine;
        struct rr_run run;
        struct rr_bases bases[RANKS];
        uint32_t done[STEPS];
        size_t at;                       /* operations ended */
        bool active;
    } rank[RANKS];
} world;

/* What does not change. */
static const struct scenario *now;
static size_t ops;
static struct rr_shared shared[RANKS];
static struct rr_mate mates[RANKS];
static int16_t everybody[RANKS];
static struct rr_program program[RANKS][OPS];

static int skip, budget;                 /* of the move under way */

static int one_step(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment, ringred_error *why)
{
    if (budget == 0 || skip-- > 0)
        return RINGRED_PENDING;
    int rc = rr_step_run(e, r, x, segment, why);
    budget -= rc == 0;
    return rc;
}

/* ---- numbers ---- */

static float input(size_t op, int rank, size_t i)
{
    return (float)((int)(op * 5 + 1) * (rank + 1) + (int)(i % 11) * (rank + 3));
}

static float output(size_t op, size_t i)
{
    const struct op *o = &now->op[op];
    float sum = 0;

    if (o->how == PLAN && rr_algo_table[o->algo].what == RR_BROADCAST)
        return input(op, o->root, i);
    for (int r = 0; r < now->ranks; r++)
        sum += input(op, r, i);
    return sum;
}

static float *buffer(int rank, unsigned windows, int which)
{
    struct actor *a = &world.rank[rank];

    return (float *)(void *)((windows >> rank & 1 ? a->heap : a->own) + (size_t)which * (HEAP / 2));
}

static bool is_spare(const char *at)
{
    for (size_t i = 0; i < HEAP; i++)
        if (at[i] != SPARE)
            return false;
    return true;
}

/* ---- moves ---- */

static void fill_ask(struct rr_run *r, const struct op *o, size_t at)
{
    enum rr_collective what = o->how == PLAN ? rr_algo_table[o->algo].what : RR_ALLREDUCE;

    r->ask = (struct rr_ask){ .collective = (uint8_t)what, .type = RINGRED_FLOAT32, .op = 1, .root = o->root,
                              .count = o->count, .sequence = (at + 1) * now->stride };
}

static bool begin(int rank, char *wrong)
{
    struct actor *a = &world.rank[rank];
    const struct op *o = &now->op[a->at];
    ringred_error why;

    if (!is_spare(a->own) || !is_spare(a->heap)) {
        snprintf(wrong, EXPLORE_TEXT, "rank %d's buffers were written after operation %zu", rank, a->at);
        return true;
    }
    float *in = buffer(rank, o->in_window, 0);
    for (size_t i = 0; i < o->count; i++)
        in[i] = input(a->at, rank, i);
    memset(&a->run, 0, sizeof a->run);
    a->run.in = (const char *)in;
    a->run.out = o->in_place >> rank & 1 ? (char *)in : (char *)buffer(rank, o->out_window, 1);
    a->run.count = o->count;
    a->run.element_bytes = 4;
    a->run.type = RINGRED_FLOAT32;
    a->run.divisor = 1;
    a->run.op = RINGRED_SUM;
    a->engine.shared_runs = (a->at + 1) * now->stride - 1;
    a->run.reduce = rr_reduce_kernel(RINGRED_FLOAT32, RINGRED_SUM);
    a->run.program = &program[rank][a->at];
    a->run.segment = o->segment;
    fill_ask(&a->run, o, a->at);
    a->active = true;
    if (o->how == TINY) {
        a->run.lane = RR_LANE_TINY;
        rr_lane_begin(&a->engine, &a->run);
    } else if (o->how == LAST) {
        a->run.lane = RR_LANE_LAST;
        if (rr_last_begin(&a->engine, &a->run, &why) < 0)
            snprintf(wrong, EXPLORE_TEXT, "rank %d, operation %zu: %.400s", rank, a->at, why.text);
    } else {
        rr_run_begin(&a->engine, &a->run);
    }
    return true;
}

static void end(int rank, char *wrong)
{
    struct actor *a = &world.rank[rank];
    const float *out = (const float *)(const void *)a->run.out;

    for (size_t i = 0; i < a->run.count && a->run.ask.collective != RR_BARRIER; i++)
        if (out[i] != output(a->at, i)) {
            snprintf(wrong, EXPLORE_TEXT, "rank %d, operation %zu: element %zu is %g, should be %g", rank,
                     a->at, i, (double)out[i], (double)output(a->at, i));
            return;
        }
    memset(a->own, SPARE, sizeof a->own);
    memset(a->heap, SPARE, sizeof a->heap);
    memset(&a->run, 0, sizeof a->run);
    memset(a->bases, 0, sizeof a->bases);
    memset(a->done, 0, sizeof a->done);
    a->active = false;
    a->at++;
}

static bool advance(int rank, char *wrong)
{
    struct actor *a = &world.rank[rank];
    ringred_error why;
    bool moved;

    budget = 1;
    int rc = rr_run_advance(&a->engine, &a->run, &moved, &why);
    if (rc < 0)
        snprintf(wrong, EXPLORE_TEXT, "rank %d, operation %zu: %.400s", rank, a->at, why.text);
    else if (rc == 0)
        end(rank, wrong);
    return true;
}

static bool move(void *state, int which, char wrong[EXPLORE_TEXT])
{
    size_t bytes = offsetof(struct world, rank) + (size_t)now->ranks * sizeof(struct actor);
    int rank = which % now->ranks;

    skip = which / now->ranks;
    memcpy(&world, state, bytes);
    const struct actor *a = &world.rank[rank];
    if (a->at == ops || (skip && (!a->active || a->run.lane || a->run.straight)))
        return false;
    bool done = a->active ? advance(rank, wrong) : begin(rank, wrong);
    memcpy(state, &world, bytes);
    return done;
}

static bool may_end(const void *state)
{
    const struct world *w = state;

    for (int r = 0; r < now->ranks; r++)
        if (w->rank[r].at != ops)
            return false;
    return true;
}

/* ---- set-up ---- */

static int mapped(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    (void)s, (void)peer, (void)offset, (void)bytes;
    return 0;
}

static void ring(struct rr_shared *s)
{
    (void)s;
}

static void open_rank(int rank)
{
    struct actor *a = &world.rank[rank];

    everybody[rank] = (int16_t)rank;
    mates[rank] = (struct rr_mate){ .page = &a->page, .stage = a->stage, .heap = a->heap };
    shared[rank] = (struct rr_shared){ .host = &world.host, .team = &world.host.team, .mate = mates, .local = everybody,
                                       .locals = now->ranks, .me = rank, .stage_bytes = now->stage,
                                       .heap_bytes = HEAP, .ring = ring, .touch = mapped };
    a->engine = (struct rr_engine){ .rank = rank, .ranks = now->ranks, .shared = &shared[rank], .polls = 1,
                                    .step = one_step, .done = a->done, .bases = a->bases };
    memset(a->stage, 0xff, sizeof a->stage);
    memset(a->own, SPARE, sizeof a->own);
    memset(a->heap, SPARE, sizeof a->heap);
}

static void open_program(int rank, size_t op)
{
    static const int16_t host[RANKS];
    const struct rr_layout layout = { now->ranks, 1, host };
    const struct op *o = &now->op[op];
    struct rr_program *p = &program[rank][op];
    struct rr_plan *plan;

    assert_int_equal(rr_algo_table[o->algo].build(&layout, rank, o->root, &plan), 0);
    assert_true(plan->steps <= STEPS && plan->temps == 0);
    *p = (struct rr_program){ .plan = plan };
    for (int cut = 0; cut < RR_CUTS; cut++)
        p->extent[cut] = calloc(plan->spans + 1, sizeof(struct rr_extent));
    assert_int_equal(rr_program_fit(&world.rank[rank].engine, p, o->count, 4, o->segment), 0);
}

static void close_program(struct rr_program *p)
{
    rr_plan_free((struct rr_plan *)(uintptr_t)p->plan);
    for (int cut = 0; cut < RR_CUTS; cut++)
        free(p->extent[cut]);
    memset(p, 0, sizeof *p);
}

static void run(const struct scenario *s)
{
    struct system system = { s->name, offsetof(struct world, rank) + (size_t)s->ranks * sizeof(struct actor),
                             s->ranks * (s->skips + 1), move, may_end };
    static struct world initial;
    struct explored found;

    now = s;
    memset(&world, 0, sizeof world);
    for (ops = 0; ops < OPS && s->op[ops].count; ops++)
        assert_true(s->op[ops].count <= MOST);
    for (int r = 0; r < s->ranks; r++) {
        open_rank(r);
        for (size_t o = 0; o < ops; o++)
            if (s->op[o].how == PLAN)
                open_program(r, o);
    }
    initial = world;
    explore(&system, &initial, &found);
    print_message("             %-44s %7ld states %8ld moves%s%s\n", s->name, found.states, found.moves,
                  found.wrong[0] ? ": " : "", found.wrong);
    for (int r = 0; r < RANKS; r++)
        for (size_t o = 0; o < OPS; o++)
            close_program(&program[r][o]);
    if (s->wrong)
        assert_true(found.wrong[0]);
    else
        assert_string_equal(found.wrong, "");
}

#define PLANNED(algorithm, n, cut) .how = PLAN, .algo = algorithm, .count = n, .segment = cut
#define ONESHOT(n, cut) PLANNED(RR_ALGO_SHM_ONESHOT, n, cut)
#define TWOSHOT(n, cut) PLANNED(RR_ALGO_SHM_TWOSHOT, n, cut)
#define BROADCAST(n, cut) PLANNED(RR_ALGO_SHM_BROADCAST, n, cut)
#define BARRIER PLANNED(RR_ALGO_SHM_BARRIER, 1, 1)
#define ALL 7u

/* ---- the tiny lane ---- */

static void test_tiny_lane(void **state)
{
    static const struct scenario scenarios[] = {
        { "2 ranks, payload in the line", 2, 0, 128, 1,
          { { TINY, .count = 12 }, { TINY, .count = 12 }, { TINY, .count = 12 }, { TINY, .count = 1 },
            { TINY, .count = 12 } }, false },
        { "3 ranks, payload in the line", 3, 0, 128, 1,
          { { TINY, .count = 12 }, { TINY, .count = 12 }, { TINY, .count = 12, .in_place = ALL },
            { TINY, .count = 3 } }, false },
        { "2 ranks, pieces going round", 2, 0, 1024, 1,
          { { TINY, .count = 128 }, { TINY, .count = 128 }, { TINY, .count = 100, .in_place = ALL },
            { TINY, .count = 128 }, { TINY, .count = 128 } }, false },
        { "3 ranks, pieces and lines", 3, 0, 768, 1,
          { { TINY, .count = 32 }, { TINY, .count = 12 }, { TINY, .count = 64 }, { TINY, .count = 60 },
            { TINY, .count = 5 } }, false },
        { "control: one arrival line", 2, 0, 128, 2,
          { { TINY, .count = 12 }, { TINY, .count = 12 }, { TINY, .count = 12 } }, true },
        { "control: a stage of one piece", 2, 0, 512, 1,
          { { TINY, .count = 128 }, { TINY, .count = 128 }, { TINY, .count = 128 } }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        run(&scenarios[i]);
}

/* ---- the last-arriver lane ---- */

static void test_last_arriver_lane(void **state)
{
    static const struct scenario scenarios[] = {
        { "2 ranks, stages", 2, 0, 1024, 1,
          { { LAST, .count = 64 }, { LAST, .count = 64, .in_place = ALL }, { LAST, .count = 32 },
            { LAST, .count = 64 }, { LAST, .count = 64 } }, false },
        { "3 ranks, windows", 3, 0, 1024, 1,
          { { LAST, .count = 64, .in_window = ALL, .out_window = ALL },
            { LAST, .count = 64, .in_window = ALL, .in_place = ALL },
            { LAST, .count = 64, .in_window = ALL, .out_window = ALL },
            { LAST, .count = 64, .in_window = ALL, .out_window = ALL } }, false },
        { "3 ranks, some windows", 3, 0, 1024, 1,
          { { LAST, .count = 64, .in_window = 1, .out_window = 2 },
            { LAST, .count = 64, .in_window = 6, .out_window = 5 },
            { LAST, .count = 64, .in_window = 2, .in_place = 2 },
            { LAST, .count = 64, .out_window = 4 } }, false },
        { "3 ranks, between tiny ones", 3, 0, 2048, 1,
          { { TINY, .count = 12 }, { LAST, .count = 64, .in_window = 1, .out_window = 4 },
            { TINY, .count = 100 }, { LAST, .count = 100 }, { TINY, .count = 12 } }, false },
        { "control: a stage of one piece", 2, 0, 256, 1,
          { { LAST, .count = 64 }, { LAST, .count = 64 }, { LAST, .count = 64 } }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        run(&scenarios[i]);
}

/* All have arrived, and the last of them dies before the work is done: of those that are gone, one is
 * named; once the work is done, nobody is missed who has left since. */
static void test_whoever_dies_at_the_work_is_missed(void **state)
{
    static const struct scenario scenario = { "a dead worker", 3, 0, 1024, 1, { { LAST, .count = 8 } }, false };
    const uint8_t gone[RANKS] = { 0, 0, 1 };
    char wrong[EXPLORE_TEXT] = "";
    struct actor *a = &world.rank[0];

    (void)state;
    now = &scenario;
    ops = 1;
    memset(&world, 0, sizeof world);
    for (int r = 0; r < scenario.ranks; r++)
        open_rank(r);
    assert_true(begin(0, wrong) && begin(1, wrong));
    assert_int_equal(rr_run_waits_for(&a->engine, &a->run, NULL), 2);
    assert_int_equal(rr_run_waits_for(&a->engine, &a->run, gone), 2);
    atomic_store(&world.rank[2].page.arrival[1].counter, a->run.base + 1); /* and then it dies */
    assert_int_equal(rr_run_waits_for(&a->engine, &a->run, gone), 2);
    assert_int_equal(rr_run_waits_for(&a->engine, &a->run, (const uint8_t[RANKS]){ 0 }), -1);
    atomic_store(&world.host.team.over[1].counter, a->run.base + 1);
    assert_int_equal(rr_run_waits_for(&a->engine, &a->run, gone), -1);
    assert_string_equal(wrong, "");
}

/* ---- plans: a segment of 17 to 32 elements is a piece of 128 bytes ---- */

static void test_plans_of_one_segment(void **state)
{
    static const struct scenario scenarios[] = {
        { "3 ranks, one-shot, two-shot, barrier", 3, 0, 1280, 1,
          { { ONESHOT(32, 32) }, { TWOSHOT(32, 32) }, { BARRIER }, { ONESHOT(20, 32), .in_place = ALL } },
          false },
        { "3 ranks, broadcasts from all roots", 3, 0, 1280, 1,
          { { BROADCAST(32, 32), .root = 1 }, { BROADCAST(32, 32), .root = 0 },
            { BROADCAST(32, 32), .root = 2, .in_window = ALL, .out_window = ALL },
            { BROADCAST(32, 32), .root = 1, .in_window = 2 } }, false },
        { "3 ranks, two-shot, some windows", 3, 0, 1280, 1,
          { { TWOSHOT(32, 32), .in_window = 1, .out_window = 2 },
            { TWOSHOT(32, 32), .in_window = ALL, .out_window = ALL },
            { TWOSHOT(32, 32), .in_window = ALL, .in_place = ALL } }, false },
        { "3 ranks, lanes and plans", 3, 0, 1280, 1,
          { { TINY, .count = 12 }, { TWOSHOT(32, 32) }, { LAST, .count = 32, .in_window = 2 }, { BARRIER },
            { TINY, .count = 32 } }, false },
        { "control: one arrival line", 2, 0, 1280, 2,
          { { ONESHOT(32, 32) }, { ONESHOT(20, 32) }, { ONESHOT(32, 32) } }, true },
        { "control: a stage of one piece", 2, 0, 128, 1,
          { { ONESHOT(32, 32) }, { ONESHOT(32, 32) }, { ONESHOT(32, 32) } }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        run(&scenarios[i]);
}

static void test_plans_of_several_segments(void **state)
{
    static const struct scenario scenarios[] = {
        { "2 ranks, one-shot, 13 segments", 2, 0, 1024, 1, { { ONESHOT(250, 20) }, { ONESHOT(90, 20) } }, false },
        { "2 ranks, two-shot, 11 segments", 2, 0, 1024, 1, { { TWOSHOT(220, 20) } }, false },
        { "2 ranks, one-shot, 6 segments, in any order", 2, 3, 1280, 1, { { ONESHOT(120, 20) } }, false },
        { "2 ranks, two-shot, 5 segments, in any order", 2, 1, 1280, 1, { { TWOSHOT(90, 20) } }, false },
        { "2 ranks, two-shot, in place, then again", 2, 0, 1280, 1,
          { { TWOSHOT(120, 20), .in_place = ALL }, { TWOSHOT(120, 20), .in_place = ALL } }, false },
        { "2 ranks, windows known late", 2, 1, 1280, 1,
          { { TWOSHOT(55, 20), .in_window = 3, .out_window = 3 }, { TWOSHOT(55, 20), .in_window = 1 },
            { TWOSHOT(55, 20), .in_window = 3, .in_place = 3 } }, false },
        { "3 ranks, broadcasts", 3, 0, 1280, 1,
          { { BROADCAST(40, 20), .root = 0 }, { BROADCAST(40, 20), .root = 1 },
            { BROADCAST(60, 20), .root = 2, .in_window = ALL, .out_window = ALL } }, false },
        { "2 ranks, broadcasts, 13 segments", 2, 0, 1280, 1,
          { { BROADCAST(260, 20), .root = 0 }, { BROADCAST(260, 20), .root = 1, .in_window = 3 },
            { BROADCAST(90, 20), .root = 0 } }, false },
        { "2 ranks, broadcasts, in any order", 2, 2, 1280, 1,
          { { BROADCAST(100, 20), .root = 0 }, { BROADCAST(50, 20), .root = 1, .in_window = 3 } }, false },
        { "3 ranks, two-shot, 2 segments", 3, 0, 1280, 1, { { TWOSHOT(96, 48) }, { TWOSHOT(96, 48) } }, false },
        { "2 ranks, sizes of all kinds", 2, 0, 2560, 1,
          { { TWOSHOT(240, 40) }, { ONESHOT(120, 20) }, { LAST, .count = 160 }, { ONESHOT(240, 40) },
            { TINY, .count = 60 }, { TWOSHOT(200, 20) } }, false },
        { "2 ranks, kinds of all sizes", 2, 0, 2560, 1,
          { { ONESHOT(200, 20) }, { BROADCAST(240, 40), .root = 1 }, { BARRIER }, { TWOSHOT(260, 40) },
            { LAST, .count = 160 }, { ONESHOT(200, 40) } }, false },
        { "control: a stage of 5 pieces", 2, 0, 640, 1, { { ONESHOT(260, 20) } }, true },
        { "control: a stage of 3 pieces", 2, 0, 384, 1, { { TWOSHOT(120, 20) } }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        run(&scenarios[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_lane),
        cmocka_unit_test(test_last_arriver_lane),
        cmocka_unit_test(test_whoever_dies_at_the_work_is_missed),
        cmocka_unit_test(test_plans_of_one_segment),
        cmocka_unit_test(test_plans_of_several_segments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
