/* SPDX-License-Identifier: Apache-2.0 */
/* Explains choices: what would run a call, by which rule, and what each other way is expected to take. Nothing is
 * chosen by the predictions: measured against each other they were no better than the limits
 * (docs/ARCHITECTURE.md). */
#include "core/paper.h"

#include <string.h>

#define WORDS 2048

struct explanation {
    struct rr_question q;
    bool measure;
    bool said[RR_SIM_VALUES];      /* figures that the question gives */
    int type, op;
    struct rr_machine machine;
    struct paper *paper;
    struct rr_call call;
    struct rr_chosen chosen;
    struct rr_text *text;
    int listed;
    struct rr_way best;            /* by prediction */
    size_t best_segment;
    double best_s;                 /* 0: none yet */
};

/* ---- the question ---- */

static int read_kind(struct explanation *e, const char *name, const char *value, ringred_error *why)
{
    if (strcmp(name, "type") == 0) {
        e->type = rr_type_of_name(value);
        return e->type > 0 ? 0 : rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no type \"%.40s\" (as float32 is)", value);
    }
    if (strcmp(name, "op") == 0) {
        e->op = rr_op_of_name(value);
        return e->op > 0 ? 0 : rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no operator \"%.40s\" (as sum is)", value);
    }
    e->measure = strcmp(value, "1") == 0;
    return e->measure || strcmp(value, "0") == 0
               ? 0
               : rr_fail(why, RINGRED_EINVAL, -1, 0, "measure is 0 or 1, not %.40s", value);
}

static void note_said(struct explanation *e, const char *name)
{
    static const struct {
        const char *name;
        enum rr_sim_value value;
    } figures[] = { { "copy", RR_SIM_COPY }, { "reduce", RR_SIM_REDUCE }, { "signal", RR_SIM_SIGNAL },
                    { "send", RR_SIM_SEND }, { "recv", RR_SIM_RECV }, { "loop_rate", RR_SIM_LOOP_RATE } };

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(name, figures[i].name) == 0)
            e->said[figures[i].value] = true;
}

/* Takes the words that are ours out of a question; the rest is one about a simulation. */
static int sift(struct explanation *e, const char *text, char *rest, ringred_error *why)
{
    static const char blank[] = " \t\n";
    size_t used = 0;

    for (text += strspn(text, blank); *text; text += strspn(text, blank)) {
        char word[128];
        size_t n = strcspn(text, blank);
        if (n >= sizeof word || used + n + 2 > WORDS)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "\"%.40s...\" is too long", text);
        memcpy(word, text, n);
        word[n] = 0;
        char *equals = strchr(word, '=');
        if (equals)
            *equals = 0;
        note_said(e, word);
        if (equals && (!strcmp(word, "type") || !strcmp(word, "op") || !strcmp(word, "measure"))) {
            RR_TRY(read_kind(e, word, equals + 1, why));
        } else {
            memcpy(rest + used, text, n);
            used += n;
            rest[used++] = ' ';
        }
        text += n;
    }
    rest[used] = 0;
    return 0;
}

static int check_question(struct explanation *e, ringred_error *why)
{
    bool sums = rr_is_reduction(e->q.what);

    if (strcmp(e->q.algorithm, "auto") != 0 || e->q.value[RR_SIM_SEGMENT] > 0)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "algorithm and segment are settings here");
    if (sums && !rr_op_legal(e->type, e->op))
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no %s of %s (docs/NUMBERS.md)", rr_op_name(e->op),
                       rr_type_name(e->type));
    e->q.value[RR_SIM_ELEMENT] = (double)rr_type_bytes(e->type);
    if (e->q.what == RR_BARRIER)
        e->q.value[RR_SIM_BYTES] = 0;
    if (e->q.value[RR_SIM_STREAMS] < 1)
        e->q.value[RR_SIM_STREAMS] = rr_choose_streams((int)e->q.value[RR_SIM_NODES], (int)e->q.value[RR_SIM_PER_HOST]);
    return 0;
}

static void take_figure(struct explanation *e, enum rr_sim_value value, double measured)
{
    if (measured > 0 && !e->said[value])
        e->q.value[value] = measured;
}

static void measure(struct explanation *e)
{
    struct rr_figures f;

    rr_figures_measure(&f);
    take_figure(e, RR_SIM_COPY, f.copy);
    take_figure(e, RR_SIM_REDUCE, f.reduce);
    take_figure(e, RR_SIM_SIGNAL, f.signal_s);
    take_figure(e, RR_SIM_SEND, f.message_s);
    take_figure(e, RR_SIM_RECV, f.message_s);
    take_figure(e, RR_SIM_LOOP_RATE, f.loop_rate);
}

/* ---- candidates ---- */

static void note(struct explanation *e, struct rr_way way, size_t segment, double seconds)
{
    rr_text_add(e->text, "%s{\"algorithm\":\"%s\",\"segment\":%zu,\"seconds\":%.6g}", e->listed++ ? "," : "",
                rr_way_name(way), segment, seconds);
    if (e->best_s > 0 && seconds >= e->best_s)
        return;
    e->best = way;
    e->best_segment = segment;
    e->best_s = seconds;
}

static int predict(struct explanation *e, struct rr_way way, size_t wish, size_t *usual, ringred_error *why)
{
    struct rr_simulated result;
    struct rr_sim sim;

    RR_TRY(rr_paper_sim(e->paper, &e->q, way.algo, wish, &sim, why));
    sim.machine = &e->machine;
    size_t bytes = e->q.what == RR_BARRIER ? 0 : sim.segment * sim.element_bytes;
    if (!wish)
        *usual = bytes;
    else if (bytes == *usual)
        return 0;
    RR_TRY(rr_simulate(&sim, &result, why));
    note(e, way, bytes, result.seconds);
    rr_simulated_free(&result);
    return 0;
}

static int consider(struct explanation *e, struct rr_way way, ringred_error *why)
{
    static const size_t segments[] = { 64 << 10, 256 << 10, 1 << 20 };
    const char *refusal = rr_way_refusal(&e->paper->comm, way, &e->call);
    size_t usual = 0, bytes = (size_t)e->q.value[RR_SIM_BYTES];

    if (refusal) {
        rr_text_add(e->text, "%s{\"algorithm\":\"%s\",\"refused\":\"%s\"}", e->listed++ ? "," : "", rr_way_name(way),
                    refusal);
        return 0;
    }
    if (way.lane != RR_LANE_NONE) {
        note(e, way, 0, rr_lane_cost(way.lane, e->paper->comm.ranks, (double)bytes, &e->machine));
        return 0;
    }
    RR_TRY(predict(e, way, 0, &usual, why));
    for (size_t i = 0; i < sizeof segments / sizeof *segments; i++)
        if (e->q.what != RR_BARRIER && bytes > segments[i])
            RR_TRY(predict(e, way, segments[i], &usual, why));
    return 0;
}

static int consider_all(struct explanation *e, ringred_error *why)
{
    for (int lane = RR_LANE_TINY; lane <= RR_LANE_LAST && e->q.what == RR_ALLREDUCE; lane++)
        RR_TRY(consider(e, (struct rr_way){ (enum rr_lane)lane, RR_ALGO_COPY }, why));
    for (int algo = 0; algo < RR_ALGOS; algo++)
        if (rr_algo_table[algo].what == e->q.what && (algo != RR_ALGO_COPY || e->paper->comm.ranks == 1))
            RR_TRY(consider(e, (struct rr_way){ RR_LANE_NONE, (enum rr_algo)algo }, why));
    return 0;
}

/* ---- the answer ---- */

static int tell_choice(struct explanation *e, ringred_error *why)
{
    static const char *const rules[] = { [RR_BY_LIMITS] = "limits", [RR_BY_SETTING] = "setting",
                                         [RR_BY_TABLE] = "table", [RR_BY_TEAM] = "team" };
    size_t segment = 0;
    struct rr_sim sim;

    rr_choose_default(&e->paper->comm, &e->call, &e->chosen);
    if (e->chosen.way.lane == RR_LANE_NONE) {
        RR_TRY(rr_paper_sim(e->paper, &e->q, e->chosen.way.algo, e->chosen.segment, &sim, why));
        segment = e->q.what == RR_BARRIER ? 0 : sim.segment * sim.element_bytes;
    }
    rr_text_add(e->text, "\"choice\":{\"algorithm\":\"%s\",\"segment\":%zu,\"rule\":\"%s\"", rr_way_name(e->chosen.way),
                segment, rules[e->chosen.rule]);
    if (e->chosen.rule == RR_BY_TABLE)
        rr_text_add(e->text, ",\"line\":%d", e->chosen.line);
    if (e->chosen.rule == RR_BY_TEAM)
        rr_text_add(e->text, ",\"team\":\"%s\"", e->paper->family.team->name);
    if (e->chosen.rule == RR_BY_TEAM && rr_is_reduction(e->q.what))
        rr_text_add(e->text, ",\"tree\":\"%s\"", rr_choose_tree(&e->paper->comm, &e->call));
    rr_text_add(e->text, "}");
    return 0;
}

static int tell(struct explanation *e, ringred_error *why)
{
    struct rr_text *t = e->text;

    rr_text_add(t, "{\"assumptions\":");
    rr_question_print(&e->q, t);
    rr_text_add(t, ",\"measured\":%s,\"call\":{\"collective\":\"%s\",\"bytes\":%.0f,\"type\":\"%s\",\"op\":\"%s\",",
                e->measure ? "true" : "false", rr_collective_name(e->q.what), e->q.value[RR_SIM_BYTES],
                e->q.what == RR_BARRIER ? "none" : rr_type_name(e->type), rr_is_reduction(e->q.what) ? rr_op_name(e->op) : "none");
    rr_text_add(t, "\"ranks\":%d,\"hosts\":%d},", e->paper->comm.ranks, e->paper->comm.layout.hosts);
    RR_TRY(tell_choice(e, why));
    rr_text_add(t, ",\"candidates\":[");
    RR_TRY(consider_all(e, why));
    rr_text_add(t, "]");
    if (e->best_s > 0)
        rr_text_add(t, ",\"model\":{\"algorithm\":\"%s\",\"segment\":%zu,\"seconds\":%.6g}", rr_way_name(e->best),
                    e->best_segment, e->best_s);
    rr_text_add(t, "}");
    return 0;
}

static int explain(struct explanation *e, const char *question, const char *const *arguments,
                   struct rr_settings *settings, ringred_error *why)
{
    struct rr_tuning *tuning = NULL;
    const ringred_team *team = NULL;
    char rest[WORDS];

    RR_TRY(sift(e, question, rest, why));
    RR_TRY(rr_question_read(rest, &e->q, why));
    RR_TRY(check_question(e, why));
    RR_TRY(rr_settings_load(settings, arguments, why));
    RR_TRY(rr_choose_check(settings, why));
    if (*rr_setting_text(settings, RR_SET_TEAM))
        RR_TRY(rr_team_find(rr_setting_text(settings, RR_SET_TEAM), &team, why));
    RR_TRY(rr_tuning_load(rr_setting_text(settings, RR_SET_TUNING), &tuning, why));
    e->paper = rr_paper_new(&e->q, settings, tuning);
    if (!e->paper)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to explain");
    e->paper->family.team = team;
    if (e->measure)
        measure(e);
    e->machine = rr_question_machine(&e->q);
    e->call = (struct rr_call){ .what = e->q.what, .type = e->type, .op = e->op, .root = (int)e->q.value[RR_SIM_ROOT],
                                .count = (size_t)e->q.value[RR_SIM_BYTES] / rr_type_bytes(e->type) };
    if (e->q.what == RR_BARRIER)
        e->call.count = 0;
    int rc = tell(e, why);
    rr_paper_free(e->paper);
    return rc;
}

int rr_explain_answer(const char *question, const char *const *arguments, struct rr_text *t, ringred_error *why)
{
    struct explanation e = { .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .text = t };
    struct rr_settings *settings = rr_alloc(1, sizeof *settings);

    if (!settings)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to explain");
    int rc = explain(&e, question, arguments, settings, why);
    rr_free(settings);
    return rc;
}
