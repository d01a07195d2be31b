/* SPDX-License-Identifier: Apache-2.0 */
/* The plan cache of a communicator: one plan for each algorithm that the layout allows and, for rooted
 * collectives, each root that was used. It is bounded by what can be asked for, not by how many sizes
 * are. */
#include "core/core.h"

#include <string.h>

static void choice_free(struct rr_choice *choice)
{
    if (!choice)
        return;
    struct rr_program *p = &choice->program;
    rr_plan_free((struct rr_plan *)(uintptr_t)p->plan);
    for (int cut = 0; cut < RR_CUTS; cut++)
        rr_free(p->extent[cut]);
    rr_free(p->temp_at);
    rr_free(p->temp_bytes);
    rr_free(choice);
}

/* Takes the plan. */
static struct rr_choice *choice_new(const struct rr_plan *plan)
{
    struct rr_choice *choice = rr_alloc(1, sizeof *choice);
    bool made = choice != NULL;

    if (!choice) {
        rr_plan_free((struct rr_plan *)(uintptr_t)plan);
        return NULL;
    }
    struct rr_program *p = &choice->program;
    p->plan = plan;
    for (int cut = 0; cut < RR_CUTS; cut++) {
        p->extent[cut] = rr_alloc(plan->spans, sizeof *p->extent[cut]);
        made = made && p->extent[cut];
    }
    p->temp_at = rr_alloc(plan->temps, sizeof *p->temp_at);
    p->temp_bytes = rr_alloc(plan->temps, sizeof *p->temp_bytes);
    if (made && p->temp_at && p->temp_bytes)
        return choice;
    choice_free(choice);
    return NULL;
}

bool rr_plan_usable(const ringred_comm *c, enum rr_algo algo)
{
    const struct rr_algo_row *row = &rr_algo_table[algo];

    if (c->ranks == 1)
        return algo == RR_ALGO_COPY || (row->linked && !row->shared && row->what > RR_BARRIER);
    if (algo == RR_ALGO_COPY)
        return false;
    if (rr_algo_spans_hosts(algo))
        return c->engine.shared && !c->all_local;
    return c->all_local ? row->shared : row->linked;
}

/* 0 and NULL: this layout cannot be done so. */
static int make(ringred_comm *c, enum rr_algo algo, int root, struct rr_choice **choice,
                ringred_error *why)
{
    struct rr_plan *plan = NULL;
    int rc = rr_algo_table[algo].build(&c->layout, c->rank, root, &plan);

    if (rc == RINGRED_EINVAL)
        return 0;
    *choice = rc == 0 ? choice_new(plan) : NULL;
    if (!*choice)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the plan \"%s\"",
                       rr_algo_table[algo].name);
    return 0;
}

struct rr_choice *rr_plan_get(ringred_comm *c, enum rr_algo algo, int root, ringred_error *why)
{
    struct rr_choice **choice = &c->plan[algo][rr_is_rooted(rr_algo_table[algo].what) ? root : 0];

    if (RR_LIKELY(*choice != NULL))
        return *choice;
    if (make(c, algo, root, choice, why) < 0)
        return NULL;
    if (!*choice) {
        rr_fail(why, RINGRED_EINTERNAL, -1, 0, "\"%s\" is not possible with this layout",
                rr_algo_table[algo].name);
    } else if ((*choice)->program.plan->steps > c->engine.most_steps) {
        choice_free(*choice);
        *choice = NULL;
        rr_fail(why, RINGRED_EINTERNAL, -1, 0, "the plan \"%s\" is larger than expected",
                rr_algo_table[algo].name);
    }
    return *choice;
}

int rr_plans_init(ringred_comm *c, ringred_error *why)
{
    c->engine.most_steps = rr_plan_steps_most(c->ranks);
    for (int algo = 0; algo < RR_ALGOS; algo++) {
        enum rr_collective what = rr_algo_table[algo].what;
        c->plan[algo] = rr_alloc(rr_is_rooted(what) ? (size_t)c->ranks : 1, sizeof **c->plan);
        if (!c->plan[algo])
            return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the plans of %d ranks", c->ranks);
        if ((what != RR_ALLREDUCE && what != RR_BARRIER) || !rr_plan_usable(c, (enum rr_algo)algo))
            continue;
        RR_TRY(make(c, (enum rr_algo)algo, 0, c->plan[algo], why));
        const struct rr_choice *made = *c->plan[algo];
        if (made && made->program.plan->steps > c->engine.most_steps)
            c->engine.most_steps = made->program.plan->steps;
    }
    return 0;
}

void rr_plans_done(ringred_comm *c)
{
    for (int algo = 0; algo < RR_ALGOS; algo++) {
        int roots = rr_is_rooted(rr_algo_table[algo].what) ? c->ranks : 1;
        for (int root = 0; c->plan[algo] && root < roots; root++)
            choice_free(c->plan[algo][root]);
        rr_free(c->plan[algo]);
        c->plan[algo] = NULL;
    }
    rr_free(c->ragged_room);
}
