/* SPDX-License-Identifier: Apache-2.0 */
/* See paper.h. */
#include "core/paper.h"

#include <string.h>

static void make_hosts(struct paper *p, int per_host, bool apart)
{
    ringred_comm *c = &p->comm;

    for (int r = 0; r < c->ranks; r++)
        c->host[r] = (int16_t)(apart ? r : r / per_host);
    c->layout = (struct rr_layout){ c->ranks, apart ? c->ranks : (c->ranks + per_host - 1) / per_host, c->host };
}

static int find_possible(struct paper *p, int root)
{
    ringred_comm *c = &p->comm;

    for (int algo = 0; algo < RR_ALGOS; algo++) {
        struct rr_plan *plan = NULL;
        p->plans.plan[algo] = &p->choice[algo];
        if (!rr_plan_usable(c, (enum rr_algo)algo))
            continue;
        int rc = rr_algo_table[algo].build(&c->layout, 0, root, &plan);
        if (rc == RINGRED_ENOMEM)
            return rc;
        if (rc == 0)
            p->choice[algo] = &p->there;
        rr_plan_free(plan);
    }
    return 0;
}

void rr_paper_free(struct paper *p)
{
    if (p) {
        rr_free(p->comm.host);
        rr_free(p->comm.last);
        rr_tuning_free(p->family.tuning);
    }
    rr_free(p);
}

/* Settings that a communicator looks at when it finds out who shares memory, and when it chooses. */
static void settle(struct paper *p, const struct rr_question *q, const struct rr_settings *settings)
{
    int nodes = (int)q->value[RR_SIM_NODES], per_host = (int)q->value[RR_SIM_PER_HOST];
    int cpus = (int)q->value[RR_SIM_CPUS], all = (int)q->value[RR_SIM_ALL_CPUS];
    ringred_comm *c = &p->comm;
    bool apart = false, pretended = false;
    size_t stage = 0;

    if (settings) {
        p->family.settings = *settings;
        apart = strcmp(rr_setting_text(settings, RR_SET_TRANSPORT), "auto") != 0 &&
                strncmp(rr_setting_text(settings, RR_SET_TRANSPORT), "shm", 3) != 0;
        stage = (size_t)rr_setting(settings, RR_SET_STAGE);
        pretended = rr_setting(settings, RR_SET_RANKS_PER_HOST) > 0;
    }
    make_hosts(p, per_host, apart);
    p->shared.stage_bytes = rr_stage_bytes(stage, per_host);
    c->engine.shared = !apart && c->layout.hosts < c->ranks ? &p->shared : NULL;
    c->all_local = c->engine.shared && c->layout.hosts == 1;
    c->engine.scratch_bytes = RR_SCRATCH_BYTES;
    p->family.wired = nodes > 1 && !pretended;
    p->family.crowded_any = (cpus > 0 && per_host > cpus) || (all > 0 && c->ranks > all);
}

struct paper *rr_paper_new(const struct rr_question *q, const struct rr_settings *settings, struct rr_tuning *tuning)
{
    int ranks = (int)q->value[RR_SIM_NODES] * (int)q->value[RR_SIM_PER_HOST];
    struct paper *p = rr_alloc(1, sizeof *p);
    int16_t *host = rr_alloc((size_t)ranks, sizeof *host);

    if (!p || !host) {
        rr_free(host);
        rr_free(p);
        rr_tuning_free(tuning);
        return NULL;
    }
    ringred_comm *c = &p->comm;
    c->ranks = ranks;
    c->local_ranks = (int)q->value[RR_SIM_PER_HOST];
    c->host = host;
    c->family = &p->family;
    c->plans = &p->plans;
    p->family.tuning = tuning;
    settle(p, q, settings);
    for (int what = 0; what < RR_COLLECTIVES; what++)
        c->wish[what] = -1;
    if (find_possible(p, (int)q->value[RR_SIM_ROOT]) < 0) {
        rr_paper_free(p);
        return NULL;
    }
    if (settings)
        rr_choose_init(c);
    return p;
}

int rr_paper_sim(const struct paper *p, const struct rr_question *q, enum rr_algo algo, size_t segment,
                 struct rr_sim *sim, ringred_error *why)
{
    const double *v = q->value;
    struct rr_plan *plan = NULL;
    bool barrier = q->what == RR_BARRIER;

    *sim = (struct rr_sim){ .algo = algo, .hosts = (int)v[RR_SIM_NODES], .per_host = (int)v[RR_SIM_PER_HOST],
                            .root = rr_is_rooted(q->what) ? (int)v[RR_SIM_ROOT] : 0,
                            .in_place = v[RR_SIM_IN_PLACE] > 0 };
    sim->element_bytes = barrier ? 1 : (size_t)v[RR_SIM_ELEMENT];
    sim->count = barrier ? 0 : (size_t)v[RR_SIM_BYTES] / sim->element_bytes;
    int rc = rr_algo_table[algo].build(&p->comm.layout, 0, sim->root, &plan);
    if (rc < 0)
        return rr_fail(why, rc, -1, 0, "no plan for \"%s\"", rr_algo_table[algo].name);
    sim->segment = rr_segment_of(&p->comm, plan, sim->count, sim->element_bytes, segment);
    sim->segment += sim->segment == 0;
    rr_plan_free(plan);
    return 0;
}
