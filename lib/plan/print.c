/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as text, for people: one line per step. */
#include "plan/plan.h"

static const char *const kind_names[RR_STEP_LAST] = {
    [RR_STEP_SEND] = "send", [RR_STEP_RECV] = "recv",     [RR_STEP_REDUCE] = "reduce",
    [RR_STEP_COPY] = "copy", [RR_STEP_SIGNAL] = "signal", [RR_STEP_AWAIT] = "await",
};
static const char *const place_names[] = { "?", "in", "out", "stage", "temp", "kept" };
static const char *const counter_names[RR_COUNTERS] = { "arrived", "ready", "reduced", "left" };

static void print_span(const struct rr_span *s, struct rr_text *t)
{
    rr_text_add(t, " %s(%d)", place_names[s->place], s->rank);
    if (s->parts > 1)
        rr_text_add(t, ".%d-%d", s->part, s->part + s->parts - 1);
    else if (s->part > 0)
        rr_text_add(t, ".%d", s->part);
    for (int i = 0; i < RR_LEVELS && s->of[i] != 1; i++)
        rr_text_add(t, "[%d/%d]", s->at[i], s->of[i]);
}

static void print_spans(const struct rr_plan *p, const struct rr_step *s, struct rr_text *t)
{
    for (uint32_t i = 0; i < s->sources; i++)
        print_span(&p->span[s->source + i], t);
    if (s->destinations > 0)
        rr_text_add(t, " ->");
    for (uint32_t i = 0; i < s->destinations; i++)
        print_span(&p->span[s->destination + i], t);
}

static void print_flags(unsigned flags, struct rr_text *t)
{
    if (flags & RR_PRIVATE_IN)
        rr_text_add(t, " private-in");
    if (flags & RR_PRIVATE_OUT)
        rr_text_add(t, " private-out");
    if (flags & RR_DIVIDE)
        rr_text_add(t, " divide");
    if (flags & RR_IN_PLACE)
        rr_text_add(t, " in-place");
    if (flags & RR_WINDOW_IN)
        rr_text_add(t, " window-in");
    if (flags & RR_PARTIAL)
        rr_text_add(t, " partial");
}

static void print_deps(const struct rr_plan *p, const struct rr_step *s, struct rr_text *t)
{
    if (s->lag > 0)
        rr_text_add(t, "; lag %d", s->lag);
    for (uint32_t i = 0; i < s->deps; i++) {
        const struct rr_dep *d = &p->dep[s->dep + i];
        rr_text_add(t, "%s %d", i == 0 ? "; after" : ",", d->step);
        if (d->back != 0)
            rr_text_add(t, "(%+d)", -d->back);
    }
}

static void print_step(const struct rr_plan *p, uint32_t x, struct rr_text *t)
{
    const struct rr_step *s = &p->step[x];

    rr_text_add(t, "%4u %-6s", x, kind_names[s->kind]);
    if (s->kind == RR_STEP_SEND)
        rr_text_add(t, " to %d #%d:", s->peer, s->slot);
    if (s->kind == RR_STEP_RECV)
        rr_text_add(t, " from %d #%d:", s->peer, s->slot);
    if (s->kind == RR_STEP_SIGNAL || s->kind == RR_STEP_AWAIT)
        rr_text_add(t, " %s", counter_names[s->counter]);
    for (uint32_t i = 0; i < s->peers; i++)
        rr_text_add(t, "%s %d", i == 0 ? " of" : "", p->peer[s->peer0 + i]);
    print_spans(p, s, t);
    print_flags(s->flags, t);
    print_deps(p, s, t);
    rr_text_add(t, "\n");
}

void rr_plan_print(const struct rr_plan *p, struct rr_text *t)
{
    rr_text_add(t, "%s, rank %d of %d: %u steps, %u temps%s\n", p->name, p->me, p->ranks, p->steps,
                p->temps, p->tree ? "" : ", not the canonical tree");
    for (uint32_t x = 0; x < p->steps; x++)
        print_step(p, x, t);
}
