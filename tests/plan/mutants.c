/* SPDX-License-Identifier: Apache-2.0 */
/* Are the provers any good? Changes plans in one place at a time, in every way that a builder could
 * have got it wrong, and demands that the provers notice each. A change that they let pass must be
 * shown to be none: by a rule that is checked here, mutant by mutant, not taken for granted (see
 * `reason`).
 *
 *     mutants [-v]    -v: a line for each mutant that was found equivalent */
#include "plan/graph.h"
#include "plans.h"

#include <stdio.h>
#include <string.h>

/* ---- mutants ---- */

enum change {
    BLOCK, /* another block */
    CUT,   /* one block less or more of the cut */
    PLACE, /* another buffer */
    OWNER, /* another rank's, another temp */
    PART,  /* another part */
    PARTS, /* one part more or less */
    PEER,  /* of a message */
    SLOT,
    COUNTER,
    PEER_LOST, /* an await forgets one */
    DEP_LOST,
    DEP_LATE,  /* waits for one segment less */
    DEP_OTHER, /* waits for another step */
    ORDER,     /* two steps in a row change places */
    FLAG_DIVIDE,
    FLAG_PRIVATE_IN,
    FLAG_PRIVATE_OUT,
    FLAG_IN_PLACE,
    LAG,
    SOURCES, /* two in a row change places */
    SOURCE_LOST,
    DESTINATION_LOST,
    TEMP_SMALL,
    CHANGES
};

static const char *const change_names[CHANGES] = {
    "block",  "cut",        "place",       "owner",    "part",    "parts",    "peer",      "slot",
    "counter", "await",     "no dep",      "late dep", "other dep", "order",  "divide",    "private in",
    "private out", "in place", "lag",      "sources",  "no source", "no destination", "small temp",
};

/* The place of a change: a step, and which of its spans, dependencies, ... */
struct mutant {
    enum change change;
    int rank;
    uint32_t step, item;
};

/* What can be restored. */
struct backup {
    struct rr_step step[64];
    struct rr_span span[256];
    struct rr_dep dep[256];
    int16_t peer[64];
    struct rr_temp temp[32];
    uint8_t most_lag;
};

static bool fits(const struct rr_plan *p)
{
    return p->steps <= 64 && p->spans <= 256 && p->deps <= 256 && p->peers <= 64 && p->temps <= 32;
}

static void save(struct backup *b, const struct rr_plan *p)
{
    memcpy(b->step, p->step, p->steps * sizeof *p->step);
    memcpy(b->span, p->span, p->spans * sizeof *p->span);
    memcpy(b->dep, p->dep, p->deps * sizeof *p->dep);
    memcpy(b->peer, p->peer, p->peers * sizeof *p->peer);
    memcpy(b->temp, p->temp, p->temps * sizeof *p->temp);
    b->most_lag = p->most_lag;
}

static void restore(const struct backup *b, struct rr_plan *p)
{
    memcpy(p->step, b->step, p->steps * sizeof *p->step);
    memcpy(p->span, b->span, p->spans * sizeof *p->span);
    memcpy(p->dep, b->dep, p->deps * sizeof *p->dep);
    memcpy(p->peer, b->peer, p->peers * sizeof *p->peer);
    memcpy(p->temp, b->temp, p->temps * sizeof *p->temp);
    p->most_lag = b->most_lag;
}

/* ---- changing ---- */

static bool is_message(const struct rr_step *s)
{
    return s->kind == RR_STEP_SEND || s->kind == RR_STEP_RECV;
}

/* Each returns whether there was anything to change. */

static bool is_temp(const struct rr_span *s)
{
    return s->place == RR_TEMP || s->place == RR_KEPT;
}

/* Where there are several: in a temp of several, or with another part named elsewhere in the plan. */
static bool change_part(const struct rr_plan *p, struct rr_span *s)
{
    int parts = s->place == RR_TEMP ? p->temp[s->rank].parts : 1;

    for (uint32_t i = 0; i < p->spans && s->place != RR_TEMP; i++)
        if (p->span[i].place == s->place && p->span[i].part > 0)
            parts = p->ranks;
    s->part = (uint16_t)((s->part + 1) % parts);
    return parts > 1;
}

static bool change_span(struct rr_plan *p, enum change how, struct rr_span *s)
{
    int level = 0;

    while (level < RR_LEVELS - 1 && s->of[level + 1] > 1)
        level++;
    switch (how) {
    case BLOCK:
        s->at[level] = (uint16_t)((s->at[level] + 1) % s->of[level]);
        return s->of[level] > 1;
    case CUT:
        s->of[level] =
            (uint16_t)(s->at[level] + 1 < s->of[level] ? s->of[level] - 1 : s->of[level] + 1);
        return true;
    case PLACE:
        if (s->place == RR_TEMP)
            *s = (struct rr_span){ .place = RR_OUT,
                                   .rank = (int16_t)p->me,
                                   .part = s->part,
                                   .parts = 1,
                                   .at = { s->at[0], s->at[1], s->at[2] },
                                   .of = { s->of[0], s->of[1], s->of[2] } };
        else
            s->place = s->place == RR_IN ? RR_OUT : s->place == RR_OUT ? RR_IN : RR_OUT;
        return true;
    case PART:
        return change_part(p, s);
    case PARTS:
        if (s->place != RR_TEMP || p->temp[s->rank].parts == 1)
            return false;
        s->parts = (uint16_t)(s->parts > 1 ? s->parts - 1 : s->parts + 1);
        return true;
    default:
        s->rank = (int16_t)((s->rank + 1) % (is_temp(s) ? (int)p->temps : p->ranks));
        return (is_temp(s) ? (int)p->temps : p->ranks) > 1;
    }
}

static struct rr_span *span_of(struct rr_plan *p, const struct rr_step *x, uint32_t item)
{
    if (item < x->sources)
        return &p->span[x->source + item];
    item -= x->sources;
    return item < x->destinations ? &p->span[x->destination + item] : NULL;
}

static bool change_dep(struct rr_plan *p, const struct mutant *m, struct rr_step *x)
{
    struct rr_dep *d = &p->dep[x->dep + m->item];

    if (m->item >= x->deps)
        return false;
    if (m->change == DEP_LOST)
        *d = p->dep[x->dep + --x->deps];
    else if (m->change == DEP_LATE)
        d->back++;
    else
        d->step = (uint16_t)(d->step > 0 ? d->step - 1 : 1);
    return d->step < p->steps;
}

static bool change_list(struct rr_plan *p, const struct mutant *m, struct rr_step *x)
{
    struct rr_span swap;

    switch (m->change) {
    case SOURCES:
        if (m->item + 1 >= x->sources)
            return false;
        swap = p->span[x->source + m->item];
        p->span[x->source + m->item] = p->span[x->source + m->item + 1];
        p->span[x->source + m->item + 1] = swap;
        return true;
    case SOURCE_LOST:
        if (m->item >= x->sources || x->sources < 2)
            return false;
        memmove(&p->span[x->source + m->item], &p->span[x->source + m->item + 1],
                (x->sources - m->item - 1) * sizeof swap);
        x->sources--;
        return true;
    case DESTINATION_LOST:
        if (m->item >= x->destinations || x->destinations < 2)
            return false;
        p->span[x->destination + m->item] = p->span[x->destination + --x->destinations];
        return true;
    default:
        if (m->item >= x->peers)
            return false;
        p->peer[x->peer0 + m->item] = p->peer[x->peer0 + --x->peers];
        return true;
    }
}

static bool change_flag(struct rr_step *x, unsigned flag)
{
    bool meant =
        flag == RR_DIVIDE ? x->kind == RR_STEP_REDUCE || x->kind == RR_STEP_COPY : x->flags & flag;

    x->flags ^= (uint8_t)flag;
    return meant;
}

/* Dependencies keep naming places in the program, so they now wait for the other step. */
static bool change_order(struct rr_plan *p, uint32_t step)
{
    if (step + 1 >= p->steps)
        return false;

    struct rr_step swap = p->step[step];
    p->step[step] = p->step[step + 1];
    p->step[step + 1] = swap;
    return true;
}

/* A lag means something only among the messages of a link. */
static bool change_lag(struct rr_plan *p, struct rr_step *x)
{
    int on_link = 0;

    for (uint32_t y = 0; y < p->steps && is_message(x); y++)
        on_link += p->step[y].kind == x->kind && p->step[y].peer == x->peer;
    x->lag = (uint8_t)(x->lag ? x->lag - 1 : 1);
    if (x->lag > p->most_lag)
        p->most_lag = x->lag;
    return on_link > 1;
}

static bool change_step(struct rr_plan *p, const struct mutant *m, struct rr_step *x)
{
    switch (m->change) {
    case PEER:
        x->peer = (int16_t)((x->peer + 1) % p->ranks);
        return is_message(x) && p->ranks > 2;
    case SLOT:
        x->slot++;
        return is_message(x);
    case COUNTER:
        x->counter = (uint8_t)((x->counter + 1) % RR_COUNTERS);
        return x->kind == RR_STEP_SIGNAL || x->kind == RR_STEP_AWAIT;
    case FLAG_DIVIDE:
        return change_flag(x, RR_DIVIDE);
    case FLAG_PRIVATE_IN:
        return change_flag(x, RR_PRIVATE_IN);
    case FLAG_PRIVATE_OUT:
        return change_flag(x, RR_PRIVATE_OUT);
    case FLAG_IN_PLACE:
        return change_flag(x, RR_IN_PLACE);
    case LAG:
        return change_lag(p, x);
    default:
        return change_order(p, m->step);
    }
}

static bool apply(struct rr_plan *p, const struct mutant *m)
{
    struct rr_step *x = &p->step[m->step];
    struct rr_span *s;

    switch (m->change) {
    case BLOCK:
    case CUT:
    case PLACE:
    case OWNER:
    case PART:
    case PARTS:
        s = span_of(p, x, m->item);
        return s && change_span(p, m->change, s);
    case DEP_LOST:
    case DEP_LATE:
    case DEP_OTHER:
        return change_dep(p, m, x);
    case SOURCES:
    case SOURCE_LOST:
    case DESTINATION_LOST:
    case PEER_LOST:
        return change_list(p, m, x);
    case TEMP_SMALL:
        if (m->step > 0 || m->item >= p->temps)
            return false;
        for (int i = 0; i < RR_LEVELS; i++)
            if (p->temp[m->item].of[i] == 1) {
                p->temp[m->item].of[i] = 2;
                break;
            }
        return true;
    default:
        return m->item == 0 && change_step(p, m, x);
    }
}

/* ---- looking for it ---- */

struct subject {
    enum rr_algo algo;
    int ranks, each, root; /* each 0: a lump of 5 */
};

static struct rr_case sized(const struct plans *p, const struct subject *s, enum facts facts,
                            size_t count, size_t segment)
{
    struct rr_case c = case_of(p, s->algo, s->root, facts);

    c.count = c.what == RR_BARRIER ? 0 : count;
    c.segment = segment;
    return c;
}

/* Among other calls: the stages that these use must be safe from it, and its own from them. */
static bool is_found_in_turn(const struct plans *p, const struct subject *s,
                             const struct plans *other)
{
    static const uint32_t segments[][4] = {
        { 10, 1, 1, 4 }, { 3, 3, 1, 4 }, { 1, 9, 1, 4 }, { 7, 1, 4, 2 }
    };
    size_t n = (size_t)p->ranks;

    for (int f = 0; f < FACTS && other->plan[0]; f++)
        for (size_t i = 0; i < sizeof segments / sizeof *segments; i++) {
            struct rr_case mine = sized(p, s, (enum facts)f, 4 * n * n, 4 * n * n), theirs = mine;
            const struct rr_case *turn[4] = { &theirs, &mine, i == 3 ? &theirs : &mine, &theirs };
            theirs.plan = other->plan;
            theirs.what = RR_ALLREDUCE;
            theirs.count = theirs.segment;
            if (rr_plan_hazards_in_turn(turn, segments[i], 4, NULL) < 0)
                return true;
        }
    return false;
}

/* From cheap to dear: most are found at once. */
static bool is_found(const struct plans *p, const struct subject *s, const struct plans *other)
{
    size_t n = (size_t)p->ranks, whole = 4 * n * (n + 1);

    for (int f = 0; f < FACTS; f++) {
        struct rr_case c = sized(p, s, (enum facts)f, 11 * whole, whole);
        c.seed = (uint64_t)f;
        if (rr_plan_prove(&c, NULL) < 0)
            return true;
        c.count = c.what == RR_BARRIER ? 0 : whole;
        c.channel = f % 3 - 1;
        if (rr_plan_prove(&c, NULL) < 0)
            return true;
    }
    for (int f = 0; f < FACTS; f++) {
        struct rr_case c = sized(p, s, (enum facts)f, whole, whole);
        if (rr_plan_hazards(&c, NULL) < 0)
            return true;
    }
    return is_found_in_turn(p, s, other);
}

/* ---- equivalent ones ----
 * What no prover finds must be one of these; `reason` checks which, on the mutant itself. */

enum reason {
    NOT_EQUIVALENT,
    IMPLIED,
    AWAIT_EARLY,
    NO_BYTES,
    LAST_EMPTY,
    NEEDLESS_COPY,
    SAME_BYTES,
    ANY_ORDER,
    ALIKE,
    ONE_RANK,
    UNUSED_TEMP,
    REASONS
};

static const char *const reason_texts[REASONS] = {
    [NOT_EQUIVALENT] = "NOT FOUND",
    [IMPLIED] = "what it no longer waits for still comes before, by way of others",
    [AWAIT_EARLY] = "an await begins before my own signal or await; it touches no bytes",
    [NO_BYTES] = "the span of a barrier's message, which has no bytes",
    [LAST_EMPTY] = "the last message of a barrier, which nobody waits for, is read earlier",
    [NEEDLESS_COPY] = "copies where it could do without",
    [SAME_BYTES] = "in place, the input is the output",
    [ANY_ORDER] = "another order of a sum that promises none",
    [ALIKE] = "the same steps in another line: none waits for the other, others for both or neither",
    [ONE_RANK] = "divides by one",
    [UNUSED_TEMP] = "the size of a temp that nobody names",
};

/* Does step t of `rank` for segment s - back still come before step x for segment s, for all s?
 * With t_rank another rank's: its signal. x = UINT32_MAX: before the end. */
struct order {
    int t_rank, x_rank;
    uint32_t t, x;
    int back;
};

static bool holds_in(const struct rr_model *m, const struct order *o, uint32_t segments)
{
    struct rr_call call = { .m = m, .segments = segments };
    struct rr_questions q = { 0 };
    struct rr_graph g;
    size_t broken;
    int rc = rr_graph_init(&g, &call, 1, NULL);

    for (int64_t s = 0; s < segments && rc == 0; s++) {
        int64_t on = s - o->back < segments ? s - o->back : segments - 1;
        if (on < 0)
            continue;
        struct rr_question one = { .a_out = rr_graph_out(&g, 0, o->t_rank, o->t, (uint32_t)on) };
        one.b_in = o->x == UINT32_MAX ? rr_graph_end(&g, 0, o->x_rank)
                                      : rr_graph_in(&g, 0, o->x_rank, o->x, (uint32_t)s);
        rc = rr_questions_add(&q, one);
    }
    if (rc == 0)
        rc = rr_graph_answer(&g, &q, &broken);
    rr_questions_done(&q);
    rr_graph_done(&g);
    return rc == 0;
}

static bool holds(const struct plans *p, const struct subject *s, const struct order *o)
{
    struct rr_case c = sized(p, s, FACTS_PRIVATE, 1, 1);
    struct rr_model m;
    bool all = rr_model_init(&m, &c, NULL) == 0;

    for (uint32_t segments = 1; segments <= 2 * RR_PLAN_WINDOW + 1 && all;
         segments += segments < 3 ? 1 : 3)
        all = holds_in(&m, o, segments);
    rr_model_done(&m);
    return all;
}

static bool has_users(const struct rr_plan *p, uint32_t step)
{
    for (uint32_t i = 0; i < p->deps; i++)
        if (p->dep[i].step == step)
            return true;
    return false;
}

static enum reason why_dep(const struct plans *p, const struct subject *s, const struct mutant *m,
                           const struct backup *was)
{
    const struct rr_step *x = &was->step[m->step];
    const struct rr_dep *d = &was->dep[x->dep + m->item];
    struct order o = { m->rank, m->rank, d->step, m->step, d->back };
    int on = was->step[d->step].kind;

    if (holds(p, s, &o))
        return IMPLIED;
    if (x->kind == RR_STEP_AWAIT && (on == RR_STEP_SIGNAL || on == RR_STEP_AWAIT))
        return AWAIT_EARLY;
    if (rr_algo_table[s->algo].what == RR_BARRIER && x->kind == RR_STEP_RECV &&
        on == RR_STEP_RECV && !has_users(p->plan[m->rank], m->step))
        return LAST_EMPTY;
    return NOT_EQUIVALENT;
}

/* The signal that an await forgot must come before all that waits for the await, and before the
 * end. */
static enum reason why_peer(const struct plans *p, const struct subject *s, const struct mutant *m,
                            const struct backup *was)
{
    const struct rr_plan *mine = p->plan[m->rank];
    const struct rr_step *x = &was->step[m->step];
    int peer = was->peer[x->peer0 + m->item];
    struct order o = { peer, m->rank, (uint32_t)rr_graph_signal(p->plan[peer], x->counter),
                       UINT32_MAX, 0 };

    if (!holds(p, s, &o))
        return NOT_EQUIVALENT;
    for (uint32_t y = 0; y < mine->steps; y++)
        for (uint32_t i = 0; i < mine->step[y].deps; i++)
            if (mine->dep[mine->step[y].dep + i].step == m->step) {
                o.x = y;
                o.back = mine->dep[mine->step[y].dep + i].back;
                if (!holds(p, s, &o))
                    return NOT_EQUIVALENT;
            }
    return IMPLIED;
}

#define NOT_AT_ALL (1 << 20)

/* How a step waits for another. */
static int waits(const struct backup *was, uint32_t y, uint32_t on)
{
    for (uint32_t i = 0; i < was->step[y].deps; i++)
        if (was->dep[was->step[y].dep + i].step == on)
            return was->dep[was->step[y].dep + i].back;
    return NOT_AT_ALL;
}

static enum reason why_order(const struct rr_plan *p, const struct mutant *m,
                             const struct backup *was)
{
    uint32_t a = m->step, b = m->step + 1;

    if (waits(was, b, a) != NOT_AT_ALL || waits(was, a, b) != NOT_AT_ALL)
        return NOT_EQUIVALENT;
    for (uint32_t y = 0; y < p->steps; y++)
        if (waits(was, y, a) != waits(was, y, b) &&
            was->step[y].kind != RR_STEP_AWAIT) /* AWAIT_EARLY */
            return NOT_EQUIVALENT;
    return ALIKE;
}

static bool names_temp(const struct rr_plan *p, uint32_t temp)
{
    for (uint32_t i = 0; i < p->spans; i++)
        if (is_temp(&p->span[i]) && (uint32_t)p->span[i].rank == temp)
            return true;
    return false;
}

static enum reason reason(const struct plans *p, const struct subject *s, const struct mutant *m,
                          const struct backup *was)
{
    switch (m->change) {
    case DEP_LOST:
    case DEP_LATE:
    case DEP_OTHER:
        return why_dep(p, s, m, was);
    case PEER_LOST:
        return why_peer(p, s, m, was);
    case PLACE:
        if ((was->step[m->step].flags & RR_IN_PLACE) && m->item == 0 &&
            was->span[was->step[m->step].source].place == RR_IN && rr_algo_table[s->algo].what == RR_ALLTOALL)
            return SAME_BYTES; /* only then it copies, and its parts have the same names */
        return rr_algo_table[s->algo].what == RR_BARRIER ? NO_BYTES : NOT_EQUIVALENT;
    case BLOCK:
    case CUT:
    case OWNER:
        return rr_algo_table[s->algo].what == RR_BARRIER ? NO_BYTES : NOT_EQUIVALENT;
    case FLAG_PRIVATE_IN:
    case FLAG_PRIVATE_OUT:
    case FLAG_IN_PLACE:
        return NEEDLESS_COPY; /* these changes only clear the flag */
    case SOURCES:
        return p->plan[m->rank]->tree ? NOT_EQUIVALENT : ANY_ORDER;
    case ORDER:
        return why_order(p->plan[m->rank], m, was);
    case TEMP_SMALL:
        return names_temp(p->plan[m->rank], m->item) ? NOT_EQUIVALENT : UNUSED_TEMP;
    case FLAG_DIVIDE:
        return p->ranks == 1 ? ONE_RANK : NOT_EQUIVALENT;
    default:
        return NOT_EQUIVALENT;
    }
}

/* The static check has let it pass; chance must not find it either. */
static bool stands_chance(const struct plans *p, const struct subject *s)
{
    for (uint64_t seed = 1; seed <= 24; seed++) {
        struct rr_case c =
            sized(p, s, (enum facts)(seed % FACTS), 11 * (size_t)p->ranks, (size_t)p->ranks);
        c.channel = (int)(seed % 3) - 1;
        c.seed = seed;
        if (rr_plan_prove(&c, NULL) < 0)
            return false;
    }
    return true;
}

/* ---- counting ---- */

struct tally {
    bool lists;
    long mutants, killed, by_change[CHANGES][2];
    long equivalent[REASONS];
};

static void report(const struct subject *s, const struct mutant *m, const struct rr_step *x,
                   const char *why)
{
    printf("%s, %d ranks: rank %d, step %u (%s), item %u: %s: %s\n", rr_algo_table[s->algo].name,
           s->ranks, m->rank, m->step, rr_step_name(x->kind), m->item, change_names[m->change],
           why);
}

static void judge(const struct plans *p, const struct subject *s, const struct plans *other,
                  const struct mutant *m, const struct backup *was, struct tally *t)
{
    t->mutants++;
    t->by_change[m->change][0]++;
    if (is_found(p, s, other)) {
        t->killed++;
        t->by_change[m->change][1]++;
        return;
    }
    enum reason why = reason(p, s, m, was);
    if (!stands_chance(p, s))
        why = NOT_EQUIVALENT;
    t->equivalent[why]++;
    if (t->lists || why == NOT_EQUIVALENT)
        report(s, m, &was->step[m->step], reason_texts[why]);
}

static void judge_step(const struct plans *p, const struct subject *s, const struct plans *other,
                       struct mutant m, const struct backup *was, struct tally *t)
{
    const struct rr_step *x = &was->step[m.step];
    uint32_t items = (uint32_t)x->sources + x->destinations + x->deps + x->peers;

    if (m.step == 0 && items < p->plan[m.rank]->temps)
        items = p->plan[m.rank]->temps;
    for (m.change = 0; m.change < CHANGES; m.change++)
        for (m.item = 0; m.item <= items; m.item++) {
            if (apply(p->plan[m.rank], &m))
                judge(p, s, other, &m, was, t);
            restore(was, p->plan[m.rank]);
        }
}

/* Other calls on the same stages, where there are stages. */
static int build_other(struct plans *other, const struct plans *p, const struct layout *l)
{
    *other = (struct plans){ .ranks = 0 };
    if (!p->plan[0]->shared)
        return 0;
    return plans_build(other, l->of.hosts == 1 ? RR_ALGO_SHM_TWOSHOT : RR_ALGO_HIERARCHICAL, l, 0);
}

static int judge_subject(const struct subject *s, struct tally *t)
{
    struct layout l;
    struct plans p, other;
    struct backup was;

    if (s->each)
        layout_make(&l, s->ranks, s->each);
    else
        layout_lump(&l, s->ranks, 5);
    if (plans_build(&p, s->algo, &l, s->root) < 0 || build_other(&other, &p, &l) < 0 ||
        is_found(&p, s, &other)) {
        printf("%s for %d ranks is not right to begin with\n", rr_algo_table[s->algo].name,
               s->ranks);
        return 1;
    }
    for (int r = 0; r < p.ranks; r++) {
        if (!fits(p.plan[r])) {
            printf("%s for %d ranks is too long\n", rr_algo_table[s->algo].name, s->ranks);
            return 1;
        }
        save(&was, p.plan[r]);
        for (uint32_t x = 0; x < p.plan[r]->steps; x++)
            judge_step(&p, s, &other, (struct mutant){ .rank = r, .step = x }, &was, t);
    }
    plans_free(&p);
    plans_free(&other);
    return 0;
}

static int summarise(const struct tally *t)
{
    long equivalent = t->mutants - t->killed - t->equivalent[NOT_EQUIVALENT];

    for (int c = 0; c < CHANGES; c++)
        printf("  %-15s %5ld, %5ld killed\n", change_names[c], t->by_change[c][0],
               t->by_change[c][1]);
    for (int r = 1; r < REASONS; r++)
        printf("  equivalent %5ld: %s\n", t->equivalent[r], reason_texts[r]);
    if (t->equivalent[NOT_EQUIVALENT] > 0)
        printf("  %ld were not found\n", t->equivalent[NOT_EQUIVALENT]);
    printf("%ld mutants, %ld killed, %ld equivalent\n", t->mutants, t->killed, equivalent);
    return t->equivalent[NOT_EQUIVALENT] > 0 || t->mutants < 500;
}

int main(int argc, char **argv)
{
    static const struct subject subjects[] = {
        { RR_ALGO_COPY, 1, 1, 0 },         { RR_ALGO_SHM_ONESHOT, 3, 3, 0 },
        { RR_ALGO_SHM_TWOSHOT, 2, 2, 0 },  { RR_ALGO_SHM_TWOSHOT, 3, 3, 0 },
        { RR_ALGO_ONESHOT, 3, 3, 0 },      { RR_ALGO_TWOSHOT, 2, 2, 0 },
        { RR_ALGO_TWOSHOT, 4, 4, 0 },      { RR_ALGO_STAR, 3, 3, 0 },
        { RR_ALGO_RING, 2, 2, 0 },         { RR_ALGO_RING, 4, 4, 0 },
        { RR_ALGO_DOUBLING, 5, 5, 0 },     { RR_ALGO_HIERARCHICAL, 4, 2, 0 },
        { RR_ALGO_HIERARCHICAL, 6, 2, 0 }, { RR_ALGO_HIERARCHICAL, 4, 3, 0 },
        { RR_ALGO_HIERARCHICAL, 5, 2, 0 }, { RR_ALGO_SHM_BROADCAST, 3, 3, 1 },
        { RR_ALGO_BINOMIAL, 6, 6, 2 },     { RR_ALGO_HIER_BROADCAST, 6, 2, 1 },
        { RR_ALGO_SHM_BARRIER, 3, 3, 0 },  { RR_ALGO_DISSEMINATION, 8, 8, 0 },
        { RR_ALGO_HIER_BARRIER, 8, 2, 0 }, { RR_ALGO_BROADCAST_TWOSHOT, 3, 3, 1 },
        { RR_ALGO_REDUCE, 3, 3, 1 },       { RR_ALGO_REDUCE_TWOSHOT, 3, 3, 2 },
        { RR_ALGO_ALLGATHER, 3, 3, 0 },    { RR_ALGO_RING_ALLGATHER, 4, 4, 0 },
        { RR_ALGO_STAR_ALLGATHER, 3, 3, 0 },  { RR_ALGO_BRUCK_ALLGATHER, 3, 3, 0 }, { RR_ALGO_GATHER, 3, 3, 1 },
        { RR_ALGO_REDUCE_SCATTER, 3, 3, 0 }, { RR_ALGO_RING_REDUCE_SCATTER, 3, 3, 0 },
        { RR_ALGO_SCATTER, 3, 3, 1 },      { RR_ALGO_ALLTOALL, 3, 3, 0 },
        { RR_ALGO_BRUCK_ALLTOALL, 4, 4, 0 }, { RR_ALGO_SHM_REDUCE, 3, 3, 1 },
        { RR_ALGO_SHM_REDUCE_TWOSHOT, 3, 3, 1 }, { RR_ALGO_SHM_ALLGATHER, 3, 3, 0 },
        { RR_ALGO_SHM_GATHER, 3, 3, 1 },   { RR_ALGO_SHM_REDUCE_SCATTER, 3, 3, 0 },
        { RR_ALGO_SHM_SCATTER, 3, 3, 1 },  { RR_ALGO_SHM_ALLTOALL, 3, 3, 0 },
    };
    struct tally t = { .lists = argc > 1 && strcmp(argv[1], "-v") == 0 };

    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (judge_subject(&subjects[i], &t))
            return 1;
    return summarise(&t);
}
