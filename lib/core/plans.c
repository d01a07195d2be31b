/* SPDX-License-Identifier: Apache-2.0 */
/* The plan cache of a communicator: one plan per algorithm that the layout allows, one broadcast per
 * root that was used. It is bounded by what can be asked for, not by how many sizes are. */
#include "core/core.h"

#include <string.h>

static void program_done(struct rr_program *p)
{
    rr_plan_free((struct rr_plan *)(uintptr_t)p->plan);
    for (int cut = 0; cut < RR_CUTS; cut++)
        rr_free(p->extent[cut]);
    rr_free(p->temp_at);
    rr_free(p->temp_bytes);
    memset(p, 0, sizeof *p);
}

static int program_init(struct rr_program *p, const struct rr_plan *plan)
{
    bool made = true;

    p->plan = plan;
    for (int cut = 0; cut < RR_CUTS; cut++) {
        p->extent[cut] = rr_alloc(plan->spans, sizeof *p->extent[cut]);
        made = made && p->extent[cut];
    }
    p->temp_at = rr_alloc(plan->temps, sizeof *p->temp_at);
    p->temp_bytes = rr_alloc(plan->temps, sizeof *p->temp_bytes);
    if (made && p->temp_at && p->temp_bytes)
        return 0;
    program_done(p);
    return RINGRED_ENOMEM;
}

/* 0 and no plan: this layout cannot be done so. */
static int make(ringred_comm *c, enum rr_algo algo, int root, struct rr_choice *choice,
                ringred_error *why)
{
    struct rr_plan *plan = NULL;
    int rc = rr_algo_table[algo].build(&c->layout, c->rank, root, &plan);

    if (rc == RINGRED_EINVAL)
        return 0;
    if (rc == 0)
        rc = program_init(&choice->program, plan);
    if (rc < 0)
        return rr_fail(why, rc, -1, 0, "no memory for the plan \"%s\"", rr_algo_table[algo].name);
    return 0;
}

static bool is_usable(const ringred_comm *c, enum rr_algo algo)
{
    const struct rr_algo_row *row = &rr_algo_table[algo];

    if (c->ranks == 1)
        return algo == RR_ALGO_COPY;
    if (c->all_local || !c->engine.shared)
        return row->shared == c->all_local && row->linked == !c->all_local && algo != RR_ALGO_COPY &&
               algo != RR_ALGO_HIERARCHICAL && algo != RR_ALGO_HIER_BROADCAST &&
               algo != RR_ALGO_HIER_BARRIER;
    return algo == RR_ALGO_HIERARCHICAL || algo == RR_ALGO_HIER_BROADCAST ||
           algo == RR_ALGO_HIER_BARRIER;
}

static enum rr_algo one_of(const ringred_comm *c, enum rr_algo shared, enum rr_algo linked,
                           enum rr_algo both)
{
    return c->all_local ? shared : c->engine.shared ? both : linked;
}

int rr_plan_broadcast(ringred_comm *c, int root, struct rr_choice *choice, ringred_error *why)
{
    enum rr_algo algo = one_of(c, RR_ALGO_SHM_BROADCAST, RR_ALGO_BINOMIAL, RR_ALGO_HIER_BROADCAST);

    RR_TRY(make(c, algo, root, choice, why));
    if (!choice->program.plan)
        return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "no broadcast for this layout");
    if (choice->program.plan->steps > c->engine.most_steps) {
        program_done(&choice->program);
        return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "a broadcast plan is larger than expected");
    }
    return 0;
}

static int plan_all(ringred_comm *c, ringred_error *why)
{
    for (int algo = 0; algo < RR_ALGOS; algo++)
        if (rr_algo_table[algo].what == RR_ALLREDUCE && is_usable(c, (enum rr_algo)algo))
            RR_TRY(make(c, (enum rr_algo)algo, 0, &c->allreduce[algo], why));
    return make(c, one_of(c, RR_ALGO_SHM_BARRIER, RR_ALGO_DISSEMINATION, RR_ALGO_HIER_BARRIER), 0,
                &c->barrier, why);
}

/* One rank alone: every collective is a copy. */
static int plan_single(ringred_comm *c, ringred_error *why)
{
    RR_TRY(make(c, RR_ALGO_COPY, 0, &c->allreduce[RR_ALGO_COPY], why));
    RR_TRY(make(c, RR_ALGO_COPY, 0, &c->broadcast[0], why));
    return make(c, RR_ALGO_COPY, 0, &c->barrier, why);
}

int rr_plans_init(ringred_comm *c, ringred_error *why)
{
    c->broadcast = rr_alloc((size_t)c->ranks, sizeof *c->broadcast);
    if (!c->broadcast)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d plans", c->ranks);
    RR_TRY(c->ranks == 1 ? plan_single(c, why) : plan_all(c, why));
    if (!c->barrier.program.plan)
        return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "no barrier for this layout");

    /* no broadcast has more steps than a few for each rank */
    c->engine.most_steps = 16 * (uint32_t)c->ranks + 64;
    for (int algo = 0; algo < RR_ALGOS; algo++) {
        const struct rr_plan *plan = c->allreduce[algo].program.plan;
        if (plan && plan->steps > c->engine.most_steps)
            c->engine.most_steps = plan->steps;
    }
    return 0;
}

void rr_plans_done(ringred_comm *c)
{
    for (int algo = 0; algo < RR_ALGOS; algo++)
        program_done(&c->allreduce[algo].program);
    program_done(&c->barrier.program);
    for (int root = 0; c->broadcast && root < c->ranks; root++)
        program_done(&c->broadcast[root].program);
    rr_free(c->broadcast);
    c->broadcast = NULL;
}
