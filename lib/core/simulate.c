/* SPDX-License-Identifier: Apache-2.0 */
/* Answers questions about machines that are not here: chooses algorithms and segments as a communicator
 * there would, and has their plans simulated (lib/sim). */
#include "core/paper.h"

#include <string.h>

struct answer {
    const struct rr_question *q;
    struct rr_machine machine;
    struct paper *paper;
    struct rr_text *text;
    int given;                          /* results so far */
};

/* ---- one algorithm ---- */

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
    double wish = a->q->value[RR_SIM_SEGMENT];
    struct rr_simulated result;
    struct rr_sim sim;

    RR_TRY(rr_paper_sim(a->paper, a->q, algo, 0, &sim, why));
    if (wish > 0)
        sim.segment = (size_t)wish / sim.element_bytes + ((size_t)wish < sim.element_bytes);
    sim.machine = &a->machine;
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
    struct answer a = { .q = &q, .machine = rr_question_machine(&q), .paper = rr_paper_new(&q, NULL, NULL), .text = t };
    if (!a.paper)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to simulate");
    rr_text_add(t, "{\"assumptions\":");
    rr_question_print(&q, t);
    rr_text_add(t, ",\"results\":[");
    int rc = strcmp(q.algorithm, "auto") == 0  ? answer_auto(&a, why)
             : strcmp(q.algorithm, "all") == 0 ? answer_all(&a, why)
                                               : answer_named(&a, why);
    rr_text_add(t, "]}");
    rr_paper_free(a.paper);
    return rc;
}
