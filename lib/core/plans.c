/* SPDX-License-Identifier: Apache-2.0 */
/* The plan cache of a layout: one plan for each algorithm that it allows and, for rooted collectives, each
 * root that was used. It is bounded by what can be asked for, not by how many sizes are. */
#include "core/core.h"

#include <string.h>

static void program_free(struct rr_program *p)
{
    if (!p)
        return;
    for (int cut = 0; cut < RR_CUTS; cut++)
        rr_free(p->extent[cut]);
    rr_free(p->temp_at);
    rr_free(p->temp_bytes);
    rr_free(p);
}

static struct rr_program *program_new(const struct rr_plan *plan)
{
    struct rr_program *p = rr_alloc(1, sizeof *p);
    bool made = p != NULL;

    if (!p)
        return NULL;
    p->plan = plan;
    for (int cut = 0; cut < RR_CUTS; cut++) {
        p->extent[cut] = rr_alloc(plan->spans, sizeof *p->extent[cut]);
        made = made && p->extent[cut];
    }
    p->temp_at = rr_alloc(plan->temps, sizeof *p->temp_at);
    p->temp_bytes = rr_alloc(plan->temps, sizeof *p->temp_bytes);
    if (made && p->temp_at && p->temp_bytes)
        return p;
    program_free(p);
    return NULL;
}

static void choice_free(struct rr_choice *choice)
{
    if (!choice)
        return;
    for (int i = 0; i < choice->programs; i++)
        program_free(choice->program[i]);
    rr_free(choice->program);
    rr_plan_free((struct rr_plan *)(uintptr_t)choice->plan);
    rr_free(choice);
}

/* Takes the plan. */
static struct rr_choice *choice_new(const struct rr_plan *plan)
{
    struct rr_choice *choice = rr_alloc(1, sizeof *choice);

    if (choice)
        choice->plan = plan;
    else
        rr_plan_free((struct rr_plan *)(uintptr_t)plan);
    return choice;
}

/* Runs that are active at once have a program each: its extents are those of the run's count. */
static bool has_program(struct rr_choice *choice, int number)
{
    if (RR_UNLIKELY(number >= choice->programs)) {
        struct rr_program **more = rr_alloc((size_t)number + 1, sizeof *more);
        if (!more)
            return false;
        if (choice->programs)
            memcpy(more, choice->program, (size_t)choice->programs * sizeof *more);
        rr_free(choice->program);
        choice->program = more;
        choice->programs = number + 1;
    }
    if (RR_UNLIKELY(!choice->program[number]))
        choice->program[number] = program_new(choice->plan);
    return choice->program[number] != NULL;
}

bool rr_plan_usable(const ringred_comm *c, enum rr_algo algo)
{
    const struct rr_algo_row *row = &rr_algo_table[algo];
    bool spans_hosts = algo == RR_ALGO_HIERARCHICAL || algo == RR_ALGO_HIER_BROADCAST ||
                       algo == RR_ALGO_HIER_BARRIER;

    if (c->ranks == 1)
        return algo == RR_ALGO_COPY || (row->linked && row->what > RR_BARRIER);
    if (algo == RR_ALGO_COPY)
        return false;
    if (spans_hosts)
        return c->engine.shared && !c->all_local;
    return c->all_local ? row->shared : row->linked;
}

/* 0 and NULL: this layout cannot be done so. */
static int make(const struct rr_plans *p, enum rr_algo algo, int root, struct rr_choice **choice, ringred_error *why)
{
    struct rr_plan *plan = NULL;
    int rc = rr_algo_table[algo].build(&p->layout, p->rank, root, &plan);

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
    struct rr_choice **choice = &c->plans->plan[algo][rr_is_rooted(rr_algo_table[algo].what) ? root : 0];

    if (RR_UNLIKELY(!*choice) && make(c->plans, algo, root, choice, why) < 0)
        return NULL;
    if (RR_UNLIKELY(!*choice)) {
        rr_fail(why, RINGRED_EINTERNAL, -1, 0, "\"%s\" is not possible with this layout",
                rr_algo_table[algo].name);
        return NULL;
    }
    if (RR_UNLIKELY((*choice)->plan->steps > c->plans->most_steps)) {
        choice_free(*choice);
        *choice = NULL;
        rr_fail(why, RINGRED_EINTERNAL, -1, 0, "the plan \"%s\" is larger than expected",
                rr_algo_table[algo].name);
        return NULL;
    }
    if (RR_UNLIKELY(!has_program(*choice, c->area->number))) {
        rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the plan \"%s\"", rr_algo_table[algo].name);
        return NULL;
    }
    return *choice;
}

static int fill(const ringred_comm *c, struct rr_plans *p, ringred_error *why)
{
    for (int algo = 0; algo < RR_ALGOS; algo++) {
        enum rr_collective what = rr_algo_table[algo].what;
        p->plan[algo] = rr_alloc(rr_is_rooted(what) ? (size_t)c->ranks : 1, sizeof **p->plan);
        if (!p->plan[algo])
            return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the plans of %d ranks", c->ranks);
        if ((what != RR_ALLREDUCE && what != RR_BARRIER) || !rr_plan_usable(c, (enum rr_algo)algo))
            continue;
        RR_TRY(make(p, (enum rr_algo)algo, 0, p->plan[algo], why));
        const struct rr_choice *made = *p->plan[algo];
        if (made && made->plan->steps > p->most_steps)
            p->most_steps = made->plan->steps;
    }
    return 0;
}

struct rr_plans *rr_plans_new(const ringred_comm *c, ringred_error *why)
{
    struct rr_plans *p = rr_alloc(1, sizeof *p);

    if (p)
        p->host = rr_alloc((size_t)c->ranks, sizeof *p->host);
    if (!p || !p->host) {
        rr_free(p);
        rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the plans of %d ranks", c->ranks);
        return NULL;
    }
    memcpy(p->host, c->layout.host, (size_t)c->ranks * sizeof *p->host);
    p->layout = (struct rr_layout){ c->ranks, c->layout.hosts, p->host };
    p->rank = c->rank;
    p->shared = c->engine.shared != NULL;
    p->most_steps = rr_plan_steps_most(c->ranks);
    if (fill(c, p, why) == 0)
        return p;
    rr_plans_free(p);
    return NULL;
}

void rr_plans_free(struct rr_plans *p)
{
    for (int algo = 0; p && algo < RR_ALGOS; algo++) {
        int roots = rr_is_rooted(rr_algo_table[algo].what) ? p->layout.ranks : 1;
        for (int root = 0; p->plan[algo] && root < roots; root++)
            choice_free(p->plan[algo][root]);
        rr_free(p->plan[algo]);
    }
    if (p)
        rr_free(p->host);
    rr_free(p);
}
