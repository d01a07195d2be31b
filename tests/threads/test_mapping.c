/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's shared-memory protocols between threads that share one mapping, so that the thread
 * sanitizer sees every access of every rank (each rank of a communicator has a mapping of its own).
 * Lanes and plans of all sizes follow each other at full speed, over a stage so small that it goes
 * round all the time. */
#include "algo/algo.h"
#include "engine/engine.h"

#include "numerics.h"
#include "ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define STAGE 16384
#define MOST 4096 /* elements */
#define HEAP (2 * MOST * sizeof(float))
#define SEGMENT (STAGE / 10 / 128 * 128 / sizeof(float))
#define CALLS 1500

struct area {
    struct rr_host_page host;
    struct rr_page page[RANKS];
    _Alignas(128) char stage[RANKS][STAGE], heap[RANKS][HEAP];
};
static struct area *area;

static const enum rr_algo algos[] = { RR_ALGO_SHM_ONESHOT, RR_ALGO_SHM_TWOSHOT, RR_ALGO_SHM_BROADCAST,
                                      RR_ALGO_SHM_BARRIER };
enum { ALGOS = sizeof algos / sizeof *algos, TINY = ALGOS, LAST, KINDS };

struct side {
    struct rank *me;
    struct rr_shared shared;
    struct rr_mate mates[RANKS];
    struct rr_engine engine;
    uint32_t most_steps;
    struct rr_program program[KINDS][RANKS]; /* by root; lanes have none */
    int16_t everybody[RANKS];
    float *in, *out, *own;
};

/* What the ranks agree on, and what one alone knows. */
struct call {
    uint32_t kind;
    int root;
    size_t count;
    uint64_t number;
};

static int mapped(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    (void)s, (void)peer, (void)offset, (void)bytes;
    return 0;
}

static void ring(struct rr_shared *s)
{
    (void)s;
}

static void open_programs(struct side *s, int ranks)
{
    static const int16_t host[RANKS];
    const struct rr_layout layout = { ranks, 1, host };

    for (int a = 0; a < ALGOS; a++)
        for (int root = 0; root < ranks; root++) {
            struct rr_program *p = &s->program[a][root];
            struct rr_plan *plan;
            rank_check(rr_algo_table[algos[a]].build(&layout, s->me->rank, root, &plan) == 0);
            p->plan = plan;
            for (int cut = 0; cut < RR_CUTS; cut++)
                p->extent[cut] = rr_alloc(plan->spans, sizeof(struct rr_extent));
            s->most_steps = plan->steps > s->most_steps ? plan->steps : s->most_steps;
        }
}

static struct side *side_open(struct rank *me)
{
    struct side *s = rr_alloc(1, sizeof *s);

    rank_check(s != NULL);
    s->me = me;
    for (int r = 0; r < me->size; r++) {
        s->mates[r] = (struct rr_mate){ .page = &area->page[r], .stage = area->stage[r], .heap = area->heap[r] };
        s->everybody[r] = (int16_t)r;
    }
    s->shared = (struct rr_shared){ .host = &area->host, .team = &area->host.team, .mate = s->mates, .local = s->everybody,
                                    .locals = me->size, .me = me->rank, .stage_bytes = STAGE,
                                    .heap_bytes = HEAP, .ring = ring, .touch = mapped };
    s->engine = (struct rr_engine){ .rank = me->rank, .ranks = me->size, .shared = &s->shared, .polls = 20,
                                    .step = rr_step_run };
    open_programs(s, me->size);
    s->engine.done = rr_alloc(s->most_steps, sizeof *s->engine.done);
    s->engine.bases = rr_alloc((size_t)me->size, sizeof *s->engine.bases);
    s->own = rr_alloc(2, MOST * sizeof(float));
    rank_check(s->engine.done && s->engine.bases && s->own);
    return s;
}

static void side_close(struct side *s)
{
    for (int a = 0; a < ALGOS; a++)
        for (int root = 0; root < s->me->size; root++) {
            rr_plan_free((struct rr_plan *)(uintptr_t)s->program[a][root].plan);
            for (int cut = 0; cut < RR_CUTS; cut++)
                rr_free(s->program[a][root].extent[cut]);
        }
    rr_free(s->engine.done);
    rr_free(s->engine.bases);
    rr_free(s->own);
    rr_free(s);
}

static float input(const struct call *c, int rank, size_t i)
{
    return (float)((c->number * 7 + i) % 13 * (uint64_t)(rank + 1));
}

static float output(const struct call *c, int ranks, size_t i)
{
    float sum = 0;

    if (c->kind < ALGOS && algos[c->kind] == RR_ALGO_SHM_BROADCAST)
        return input(c, c->root, i);
    for (int r = 0; r < ranks; r++)
        sum += input(c, r, i);
    return sum;
}

static void bind(struct side *s, const struct call *c, struct rr_run *r)
{
    bool planned = c->kind < ALGOS;

    *r = (struct rr_run){ .in = (char *)s->in, .out = (char *)s->out, .count = c->count, .element_bytes = 4,
                          .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .divisor = 1, .segment = SEGMENT,
                          .reduce = rr_reduce_kernel(RINGRED_FLOAT32, RINGRED_SUM) };
    r->ask = (struct rr_ask){ .collective = planned ? (uint8_t)rr_algo_table[algos[c->kind]].what : RR_ALLREDUCE,
                              .type = RINGRED_FLOAT32, .op = 1, .root = c->root, .count = c->count,
                              .sequence = c->number };
    r->lane = c->kind == TINY ? RR_LANE_TINY : c->kind == LAST ? RR_LANE_LAST : RR_LANE_NONE;
    if (planned)
        r->program = &s->program[c->kind][c->root];
}

static void call(struct side *s, const struct call *c)
{
    ringred_error why = { .text = "?" };
    struct rr_run r;
    bool moved;
    int rc = 0;

    bind(s, c, &r);
    if (r.lane == RR_LANE_TINY) {
        rr_lane_begin(&s->engine, &r);
    } else if (r.lane == RR_LANE_LAST) {
        rc = rr_last_begin(&s->engine, &r, &why);
    } else {
        rank_check(rr_program_fit(&s->engine, r.program, c->count, 4, SEGMENT) == 0);
        rr_run_begin(&s->engine, &r);
    }
    while (rc == 0 && (rc = rr_run_advance(&s->engine, &r, &moved, &why)) == RINGRED_PENDING) {
        (void)rr_run_waits_for(&s->engine, &r, NULL);
        sched_yield();
        rc = 0;
    }
    rank_check_msg(rc == 0, "call %llu: %s", (unsigned long long)c->number, why.text);
    for (size_t i = 0; i < c->count && r.ask.collective != RR_BARRIER; i++)
        rank_check_msg(s->out[i] == output(c, s->me->size, i), "call %llu, kind %u: element %zu is %g, not %g",
                       (unsigned long long)c->number, c->kind, i, (double)s->out[i],
                       (double)output(c, s->me->size, i));
}

static void calls(struct rank *me)
{
    struct numbers_random all = { 3 }, mine = { 50 + (uint64_t)me->rank };
    struct side *s = side_open(me);

    for (uint64_t n = 1; n <= CALLS; n++) {
        static const size_t most[KINDS] = { SEGMENT, MOST, MOST, 1, 512, STAGE / 4 / sizeof(float) };
        struct call c = { (uint32_t)numbers_below(&all, KINDS), (int)numbers_below(&all, (uint64_t)me->size), 0, n };
        c.count = numbers_below(&all, most[c.kind]) + 1;
        if (c.kind < ALGOS && algos[c.kind] != RR_ALGO_SHM_BROADCAST)
            c.root = 0;
        s->in = numbers_below(&mine, 2) ? s->own : (float *)(void *)area->heap[me->rank];
        s->out = numbers_below(&mine, 2) ? s->own + MOST : (float *)(void *)area->heap[me->rank] + MOST;
        if (numbers_below(&mine, 3) == 0)
            s->out = s->in;
        for (size_t i = 0; i < c.count; i++) {
            s->out[i] = -1;
            s->in[i] = input(&c, me->rank, i);
        }
        call(s, &c);
        memset(s->in, 0xff, c.count * sizeof(float)); /* nobody may read or write it any more */
        memset(s->out, 0xff, c.count * sizeof(float));
    }
    side_close(s);
}

static void test_threads_on_one_mapping(void **state)
{
    (void)state;
    for (int n = 2; n <= RANKS; n++) {
        area = rr_alloc_aligned(4096, sizeof *area);
        assert_non_null(area);
        ranks_threads(n, calls, NULL);
        rr_free(area);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads_on_one_mapping) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
