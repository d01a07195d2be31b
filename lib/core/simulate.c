/* SPDX-License-Identifier: Apache-2.0 */
/* Answers questions about machines that are not here: chooses algorithms and segments as a communicator
 * there would, and has their plans simulated (lib/sim). */
#include "core/core.h"
#include "sim/sim.h"

#include <string.h>

/* A communicator on paper: just what choosing looks at. */
struct paper {
    ringred_comm comm;
    struct rr_family family;
    struct rr_plans plans;
    struct rr_shared shared;
    struct rr_choice *choice[RR_ALGOS]; /* NULL: not possible */
    struct rr_choice there;
};

struct answer {
    const struct rr_question *q;
    struct rr_machine machine;
    struct paper *paper;
    struct rr_text *text;
    int given;                          /* results so far */
};

/* ---- the communicator ---- */

static int16_t *make_hosts(int nodes, int per_host)
{
    int16_t *host = rr_alloc((size_t)nodes * (size_t)per_host, sizeof *host);

    for (int r = 0; r < nodes * per_host && host; r++)
        host[r] = (int16_t)(r / per_host);
    return host;
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

static void paper_free(struct paper *p)
{
    if (p)
        rr_free(p->comm.host);
    rr_free(p);
}

static struct paper *paper_new(const struct rr_question *q)
{
    int nodes = (int)q->value[RR_SIM_NODES], per_host = (int)q->value[RR_SIM_PER_HOST];
    int cpus = (int)q->value[RR_SIM_CPUS], all = (int)q->value[RR_SIM_ALL_CPUS];
    struct paper *p = rr_alloc(1, sizeof *p);
    int16_t *host = make_hosts(nodes, per_host);

    if (!p || !host) {
        rr_free(host);
        rr_free(p);
        return NULL;
    }
    ringred_comm *c = &p->comm;
    c->ranks = nodes * per_host;
    c->local_ranks = per_host;
    c->host = host;
    c->layout = (struct rr_layout){ c->ranks, nodes, host };
    c->all_local = nodes == 1;
    c->family = &p->family;
    c->plans = &p->plans;
    p->family.wired = nodes > 1;
    p->family.crowded_any = (cpus > 0 && per_host > cpus) || (all > 0 && c->ranks > all);
    for (int what = 0; what < RR_COLLECTIVES; what++)
        c->wish[what] = -1;
    p->shared.stage_bytes = rr_stage_bytes(0, per_host);
    c->engine.shared = per_host > 1 ? &p->shared : NULL;
    c->engine.scratch_bytes = RR_SCRATCH_BYTES;
    if (find_possible(p, (int)q->value[RR_SIM_ROOT]) == 0)
        return p;
    paper_free(p);
    return NULL;
}

/* ---- one algorithm ---- */

static int segment_of(const struct answer *a, enum rr_algo algo, struct rr_sim *sim, ringred_error *why)
{
    const ringred_comm *c = &a->paper->comm;
    struct rr_plan *plan = NULL;
    double wish = a->q->value[RR_SIM_SEGMENT];
    int rc = rr_algo_table[algo].build(&c->layout, 0, sim->root, &plan);

    if (rc < 0)
        return rr_fail(why, rc, -1, 0, "no plan for \"%s\"", rr_algo_table[algo].name);
    sim->segment = wish > 0 ? (size_t)wish / sim->element_bytes
                            : rr_segment_of(c, plan, sim->count, sim->element_bytes, 0);
    sim->segment += sim->segment == 0;
    rr_plan_free(plan);
    return 0;
}

static void add_list(struct rr_text *t, const char *name, const double *number, int n)
{
    rr_text_add(t, ",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        rr_text_add(t, "%s%.12g", i ? "," : "", number[i]);
    rr_text_add(t, "]");
}

static double most_of(const double *number, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = number[i] > most ? number[i] : most;
    return most;
}

static void print_result(struct answer *a, const struct rr_sim *sim, const struct rr_simulated *r)
{
    const struct rr_algo_row *row = &rr_algo_table[sim->algo];
    double least = rr_sim_least(row->what, sim, (double)(sim->count * sim->element_bytes));
    struct rr_text *t = a->text;

    rr_text_add(t, "%s{\"algorithm\":\"%s\",\"segment_bytes\":%zu,\"seconds\":%.12g,\"least_s\":%.12g,",
                a->given++ ? "," : "", row->name, sim->segment * sim->element_bytes, r->seconds, least);
    rr_text_add(t, "\"of_wire\":%.6g,\"busiest\":%.6g,\"messages\":%.0f,\"steps\":%zu,",
                r->seconds > 0 ? least / r->seconds : 0, r->busiest, r->messages, r->steps);
    rr_text_add(t, "\"most_out_bytes\":%.0f,\"most_in_bytes\":%.0f", most_of(r->out, sim->hosts),
                most_of(r->in, sim->hosts));
    if (a->q->value[RR_SIM_DETAIL] > 0) {
        add_list(t, "rank_s", r->rank_s, sim->hosts * sim->per_host);
        add_list(t, "out_bytes", r->out, sim->hosts);
        add_list(t, "in_bytes", r->in, sim->hosts);
    }
    rr_text_add(t, "}");
}

static int answer_one(struct answer *a, enum rr_algo algo, ringred_error *why)
{
    const double *v = a->q->value;
    struct rr_simulated result;
    struct rr_sim sim = { .algo = algo, .hosts = (int)v[RR_SIM_NODES], .per_host = (int)v[RR_SIM_PER_HOST],
                          .root = rr_is_rooted(a->q->what) ? (int)v[RR_SIM_ROOT] : 0,
                          .in_place = v[RR_SIM_IN_PLACE] > 0, .machine = &a->machine };

    sim.element_bytes = a->q->what == RR_BARRIER ? 1 : (size_t)v[RR_SIM_ELEMENT];
    sim.count = a->q->what == RR_BARRIER ? 0 : (size_t)v[RR_SIM_BYTES] / sim.element_bytes;
    RR_TRY(segment_of(a, algo, &sim, why));
    RR_TRY(rr_simulate(&sim, &result, why));
    print_result(a, &sim, &result);
    rr_simulated_free(&result);
    return 0;
}

/* ---- which algorithms ---- */

static bool is_due(const struct answer *a, int algo)
{
    return a->paper->choice[algo] && (rr_algo_table[algo].what == a->q->what || algo == RR_ALGO_COPY);
}

static int answer_auto(struct answer *a, ringred_error *why)
{
    struct rr_call call = { .what = a->q->what, .type = RINGRED_FLOAT32, .op = RINGRED_SUM,
                            .count = (size_t)a->q->value[RR_SIM_BYTES] / 4,
                            .root = (int)a->q->value[RR_SIM_ROOT] };
    enum rr_algo algo = rr_choose_algo(&a->paper->comm, &call);

    if (!a->paper->choice[algo])
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s: no algorithm for these ranks",
                       rr_collective_name(a->q->what));
    return answer_one(a, algo, why);
}

static int answer_all(struct answer *a, ringred_error *why)
{
    for (int algo = 0; algo < RR_ALGOS; algo++)
        if (is_due(a, algo))
            RR_TRY(answer_one(a, (enum rr_algo)algo, why));
    return 0;
}

static int find_algo(const struct answer *a, const char *name, ringred_error *why)
{
    int nearest = -1;

    for (int algo = 0; algo < RR_ALGOS; algo++) {
        const char *other = rr_algo_table[algo].name;
        if (strcmp(name, other) == 0 && is_due(a, algo))
            return algo;
        if (strcmp(name, other) == 0)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s is not possible as %s of %d ranks on %d hosts", name,
                           rr_collective_name(a->q->what), a->paper->comm.ranks, a->paper->comm.layout.hosts);
        if (is_due(a, algo) && (nearest < 0 || rr_word_distance(name, other) <
                                                   rr_word_distance(name, rr_algo_table[nearest].name)))
            nearest = algo;
    }
    return rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no algorithm \"%.40s\"; the nearest is \"%s\"", name,
                   nearest < 0 ? "auto" : rr_algo_table[nearest].name);
}

static int answer_named(struct answer *a, ringred_error *why)
{
    char name[sizeof a->q->algorithm];

    for (const char *at = a->q->algorithm; *at;) {
        size_t n = strcspn(at, ",");
        memcpy(name, at, n);
        name[n] = 0;
        at += n + (at[n] == ',');
        int algo = find_algo(a, name, why);
        RR_TRY(algo);
        RR_TRY(answer_one(a, (enum rr_algo)algo, why));
    }
    return 0;
}

int rr_simulate_answer(const char *question, struct rr_text *t, ringred_error *why)
{
    struct rr_question q;

    RR_TRY(rr_question_read(question, &q, why));
    if (q.value[RR_SIM_STREAMS] < 1)
        q.value[RR_SIM_STREAMS] = rr_choose_streams((int)q.value[RR_SIM_NODES], (int)q.value[RR_SIM_PER_HOST]);
    struct answer a = { .q = &q, .machine = rr_question_machine(&q), .paper = paper_new(&q), .text = t };
    if (!a.paper)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to simulate");
    rr_text_add(t, "{\"assumptions\":");
    rr_question_print(&q, t);
    rr_text_add(t, ",\"results\":[");
    int rc = strcmp(q.algorithm, "auto") == 0  ? answer_auto(&a, why)
             : strcmp(q.algorithm, "all") == 0 ? answer_all(&a, why)
                                               : answer_named(&a, why);
    rr_text_add(t, "]}");
    paper_free(a.paper);
    return rc;
}
