/* SPDX-License-Identifier: Apache-2.0 */
/* Is a plan well formed? Every index names something, and every dependency points backwards in the
 * order of turns, so a rank by itself can always go on. Whether ranks can go on together, and to
 * the right result, is what the provers show. */
#include "plan/builder.h"

static bool span_is_sound(const struct rr_plan *p, const struct rr_span *s)
{
    bool temp = s->place == RR_TEMP || s->place == RR_KEPT;

    if (s->place < RR_IN || s->place > RR_KEPT)
        return false;
    if (s->rank < 0 || (uint32_t)s->rank >= (temp ? p->temps : (uint32_t)p->ranks))
        return false;
    if (s->place == RR_TEMP ? s->parts < 1 || s->part + s->parts > p->temp[s->rank].parts
                            : s->parts != 1 || s->part >= p->ranks)
        return false;
    if ((s->place == RR_STAGE || (s->place == RR_IN && s->rank != p->me)) && s->part >= p->stage_parts)
        return false;
    for (int i = 0; i < RR_LEVELS; i++)
        if (s->at[i] >= s->of[i])
            return false;
    return true;
}

static bool within(uint32_t first, uint32_t n, uint32_t all)
{
    return first <= all && n <= all - first;
}

/* How many sources, destinations and peers a step of each kind has: at least and at most. */
static bool numbers_are_sound(const struct rr_step *x)
{
    switch (x->kind) {
    case RR_STEP_SEND:
        return x->sources == 1 && x->destinations == 0 && x->peers == 0;
    case RR_STEP_RECV:
        return x->sources == 0 && x->destinations == 1 && x->peers == 0;
    case RR_STEP_REDUCE:
        return x->sources >= 1 && x->destinations >= 1 && x->peers == 0;
    case RR_STEP_COPY:
        return x->sources == 1 && x->destinations >= 1 && x->peers == 0;
    case RR_STEP_SIGNAL:
        return x->sources == 0 && x->destinations == 0 && x->peers == 0 && x->counter < RR_COUNTERS;
    case RR_STEP_AWAIT:
        return x->sources == 0 && x->destinations == 0 && x->counter < RR_COUNTERS;
    default:
        return false;
    }
}

static bool step_is_sound(const struct rr_plan *p, const struct rr_step *x)
{
    if (!numbers_are_sound(x) || !within(x->source, x->sources, p->spans) ||
        !within(x->destination, x->destinations, p->spans) || !within(x->dep, x->deps, p->deps) ||
        !within(x->peer0, x->peers, p->peers) || x->lag > p->most_lag)
        return false;
    if (rr_step_is_message(x) && (x->peer < 0 || x->peer >= p->ranks || x->peer == p->me))
        return false;
    for (uint32_t i = 0; i < x->peers; i++) {
        int peer = p->peer[x->peer0 + i];
        if (peer < 0 || peer >= p->ranks || peer == p->me)
            return false;
    }
    return true;
}

/* Backwards in the order of turns; and in a plan without messages, which with a single segment is
 * run straight down the program, backwards in the program too (then all `back` of 0 or less are
 * alike). */
static bool points_back(const struct rr_plan *p, uint32_t step, const struct rr_dep *d)
{
    if (d->step >= p->steps)
        return false;

    int turn = p->step[d->step].lag - d->back;
    if (turn > p->step[step].lag || (turn == p->step[step].lag && d->step >= step))
        return false;
    return p->linked || d->back > 0 || d->step < step;
}

int rr_plan_check(const struct rr_plan *p)
{
    unsigned signalled = 0;

    for (uint32_t i = 0; i < p->spans; i++)
        if (!span_is_sound(p, &p->span[i]))
            return RINGRED_EINVAL;
    for (uint32_t x = 0; x < p->steps; x++) {
        const struct rr_step *s = &p->step[x];
        if (!step_is_sound(p, s))
            return RINGRED_EINVAL;
        for (uint32_t i = 0; i < s->deps; i++)
            if (!points_back(p, x, &p->dep[s->dep + i]))
                return RINGRED_EINVAL;
        if (s->kind != RR_STEP_SIGNAL)
            continue;
        if (signalled >> s->counter & 1)
            return RINGRED_EINVAL; /* a counter says one thing only */
        signalled |= 1u << s->counter;
    }
    return 0;
}
