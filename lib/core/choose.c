/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where it is decided what runs a call: the setting algorithm, else a stranger's team, else the first row
 * of the table that fits and can be used, else the limits of select.c; then the caller's own function, if there is one.
 * Whatever it is, a result's bits stay what `numerics` promises, since no way that would change them is taken. */
#include "core/core.h"

#include <string.h>

#define CODE_LANE 60  /* of 6 bits: algorithms, then lanes */
#define CODE_SEGMENT 6 /* bits from here on: 1 + log2 of KiB */
#define SEGMENT_LEAST ((uint64_t)1 << 10)
#define SEGMENT_MOST ((uint64_t)1 << 26)

_Static_assert(CODE_LANE + RR_LANE_TEAM < 1 << CODE_SEGMENT, "and for every lane");
_Static_assert(RR_ALGOS < CODE_LANE, "the code of a choice has room for every algorithm");

/* ---- what can be ---- */

static const char *lane_refusal(const ringred_comm *c, enum rr_lane lane, const struct rr_call *call)
{
    bool tiny = lane == RR_LANE_TINY;

    if (!c->all_local || c->ranks == 1 || c->ranks > RR_LANE_RANKS)
        return "it is for 2 to 64 ranks that share memory";
    if (!call)
        return NULL;
    size_t bytes = call->count * rr_call_element_bytes(call);
    if (bytes > (tiny ? RR_LANE_BYTES : c->engine.shared->stage_bytes / 4))
        return tiny ? "it is for at most 2 KiB" : "it is for at most a quarter of the stage";
    return NULL;
}

const char *rr_way_refusal(const ringred_comm *c, struct rr_way way, const struct rr_call *call)
{
    const struct rr_algo_row *row = &rr_algo_table[way.algo];
    bool fast = strcmp(rr_setting_text(&c->family->settings, RR_SET_NUMERICS), "fast") == 0;

    if (way.lane == RR_LANE_TEAM)
        return rr_team_refusal(c, call);
    if (way.lane != RR_LANE_NONE)
        return lane_refusal(c, way.lane, call);
    if (c->ranks == 1 && way.algo != RR_ALGO_COPY)
        return "one rank has one way";
    if (!rr_plan_usable(c, way.algo))
        return way.algo == RR_ALGO_COPY ? "it is for one rank"
               : row->shared            ? "it needs all ranks to share memory"
               : c->all_local           ? "it needs links, and these ranks share memory"
                                        : "it needs several hosts, and ranks that share one";
    if ((row->what == RR_ALLREDUCE || row->what == RR_BARRIER) && !rr_algo_is_possible(c, way.algo))
        return "these ranks sit on their hosts in another way than it needs";
    if (!fast && !row->tree)
        return "it adds in another order, for which numerics=fast asks";
    if (call && !rr_takes_partial_sums(c, call, way.algo))
        return c->portable && way.algo == RR_ALGO_HIERARCHICAL
                   ? "it rounds a host's sum of this type, against which numerics=portable is"
                   : "it would round sums of parts of the ranks to this narrow type";
    if (call && !fast && rr_has_other_bits(c, call, way.algo))
        return rr_algo_spans_hosts(way.algo) ? "it rounds hosts' sums, and sums like this one usually do not"
                                             : "sums like this one usually go by way of hosts, which rounds otherwise";
    return NULL;
}

void rr_tuning_look(const ringred_comm *c)
{
    const struct rr_tuning *t = c->family->tuning;

    for (int i = 0; t && i < t->rows && c->rank == 0; i++) {
        const char *refusal = rr_way_refusal(c, t->row[i].way, NULL);
        if (refusal && rr_tuning_fits(&t->row[i], c->ranks, c->layout.hosts))
            rr_log(&c->family->log, RINGRED_LOG_WARN, "tuning: line %d, %s for %s, is passed over: %s", t->row[i].line,
                   rr_way_name(t->row[i].way), rr_collective_name(t->row[i].what), refusal);
    }
}

/* ---- without the caller's function ---- */

static bool fits_call(const struct rr_tuning_row *row, const struct rr_call *call, size_t bytes)
{
    return row->what == call->what && bytes >= row->bytes.least && bytes <= row->bytes.most &&
           (!row->type || row->type == call->type) &&
           (!row->width || (size_t)row->width == rr_call_element_bytes(call));
}

static const struct rr_tuning_row *find_row(const ringred_comm *c, const struct rr_call *call)
{
    const struct rr_tuning *t = c->family->tuning;
    size_t bytes = call->count * rr_call_element_bytes(call);

    for (int i = 0; i < t->rows; i++)
        if (fits_call(&t->row[i], call, bytes) && rr_tuning_fits(&t->row[i], c->ranks, c->layout.hosts) &&
            !rr_way_refusal(c, t->row[i].way, call))
            return &t->row[i];
    return NULL;
}

void rr_choose_default(const ringred_comm *c, const struct rr_call *call, struct rr_chosen *x)
{
    const struct rr_tuning_row *row = NULL;
    bool wished = c->wished & 1u << call->what;

    if (RR_UNLIKELY(c->family->team != NULL) && rr_team_takes(c, call)) {
        *x = (struct rr_chosen){ .way.lane = RR_LANE_TEAM, .rule = RR_BY_TEAM,
                                 .code = (uint64_t)(CODE_LANE + RR_LANE_TEAM) << RR_ASK_COUNT };
        return;
    }
    if (c->family->tuning && !call->ragged && !wished && c->ranks > 1)
        row = find_row(c, call);
    *x = (struct rr_chosen){ .rule = wished ? RR_BY_SETTING : RR_BY_LIMITS };
    if (row) {
        x->rule = RR_BY_TABLE;
        x->way = row->way;
        x->line = row->line;
        x->segment = rr_setting(&c->family->settings, RR_SET_SEGMENT) ? 0 : (size_t)row->segment;
        return;
    }
    x->way.lane = call->what == RR_ALLREDUCE ? rr_choose_lane(c, call->count * rr_call_element_bytes(call))
                                             : RR_LANE_NONE;
    x->way.algo = x->way.lane == RR_LANE_NONE ? rr_choose_algo(c, call) : RR_ALGO_COPY;
}

/* Walking a table takes longer than a tiny call; programs repeat their calls. */
static void choose_by_table(ringred_comm *c, const struct rr_call *call, struct rr_chosen *x)
{
    struct rr_chosen_last *last = c->last ? &c->last[call->what] : NULL;

    if (call->ragged || !last || last->type != call->type || last->count != call->count || last->op != call->op) {
        rr_choose_default(c, call, x);
        if (!call->ragged && last)
            *last = (struct rr_chosen_last){ call->count, call->type, call->op, *x };
        return;
    }
    *x = last->chosen;
}

/* ---- the caller's function ---- */

static int check_answer(const ringred_comm *c, const struct rr_call *call, const ringred_choice *answer,
                        struct rr_way *way, ringred_error *why)
{
    const char *refusal = NULL;

    if (!answer->algorithm || !rr_way_find(answer->algorithm, way) || rr_way_collective(*way) != call->what)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "choose answered \"%.40s\", which is no algorithm of %s "
                       "(ringred-info --algorithms)", answer->algorithm ? answer->algorithm : "(null)",
                       rr_collective_name(call->what));
    refusal = rr_way_refusal(c, *way, call);
    if (refusal)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "choose answered \"%s\" for %s, but %s", answer->algorithm,
                       rr_collective_name(call->what), refusal);
    if (answer->segment && (answer->segment < SEGMENT_LEAST || answer->segment > SEGMENT_MOST))
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "choose answered a segment of %llu bytes; it is 0, or 1 KiB to 64 MiB",
                       (unsigned long long)answer->segment);
    return 0;
}

/* A power of two, so that the whole answer is in the code that ranks compare. */
static void take_answer(const ringred_choice *answer, struct rr_way way, struct rr_chosen *x)
{
    int code = way.lane != RR_LANE_NONE ? CODE_LANE + (int)way.lane : 1 + (int)way.algo, power = 0;

    while (answer->segment >> (power + 1) >= SEGMENT_LEAST)
        power++;
    if (answer->segment)
        code |= (1 + power) << CODE_SEGMENT;
    *x = (struct rr_chosen){ .way = way, .rule = RR_BY_FUNCTION, .code = (uint64_t)code << RR_ASK_COUNT,
                             .segment = answer->segment ? (size_t)(SEGMENT_LEAST << power) : 0 };
}

static int ask_function(ringred_comm *c, const struct rr_call *call, struct rr_chosen *x, ringred_error *why)
{
    const char *usual = rr_way_name(x->way);
    ringred_choice answer = { .struct_size = sizeof answer,
                              .ranks = c->ranks,
                              .hosts = c->layout.hosts,
                              .type = call->what == RR_BARRIER ? 0 : call->type,
                              .op = rr_is_reduction(call->what) ? call->op : 0,
                              .root = rr_is_rooted(call->what) ? call->root : -1,
                              .bytes = call->what == RR_BARRIER ? 0 : call->count * rr_call_element_bytes(call),
                              .collective = rr_collective_name(call->what),
                              .algorithm = usual,
                              .segment = x->segment };
    struct rr_way way;

    c->family->choose(c->family->choose_context, &answer);
    if (answer.algorithm == usual && answer.segment == x->segment)
        return 0;
    if (x->way.lane == RR_LANE_TEAM && answer.algorithm && strcmp(answer.algorithm, usual) == 0)
        return 0; /* which has no segments */
    RR_TRY(check_answer(c, call, &answer, &way, why));
    if (strcmp(answer.algorithm, usual) != 0 || answer.segment != x->segment)
        take_answer(&answer, way, x);
    return 0;
}

int rr_choose(ringred_comm *c, const struct rr_call *call, struct rr_chosen *x, ringred_error *why)
{
    if (RR_UNLIKELY(c->family->tuning != NULL && !c->family->team)) /* what a team can may hang on more than is kept */
        choose_by_table(c, call, x);
    else
        rr_choose_default(c, call, x);
    if (RR_UNLIKELY(c->family->choose != NULL) && !call->ragged && c->ranks > 1)
        return ask_function(c, call, x, why);
    return 0;
}
