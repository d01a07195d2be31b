/* SPDX-License-Identifier: Apache-2.0 */
/* Turns what a builder collected into a plan: adds the dependencies that keep messages in order and
 * packs everything into one piece of memory.
 *
 * The order of turns: turn i runs (x, i - lag of x) for all x in program order. Instances that do
 * not exist (before the first segment, after the last) are left out. */
#include "plan/builder.h"

#include <string.h>

/* ---- message order ---- */

/* Steps of one link and one direction, in program order. */
struct group {
    const uint16_t *step;
    size_t n;
};

/* Instance i of the group must follow its neighbour in the order of turns. That neighbour may not
 * exist for some segments (it has not begun, or has ended), and then the one before it counts. So
 * there is a dependency for each lag that occurs, on the nearest step with it, and on the last one
 * in the program, which says that they have ended. A step of the same lag earlier in the turn
 * exists whenever we do, and follows all the rest. */
static void order_one(struct rr_builder *b, const struct group *g, size_t i)
{
    const struct rr_step *steps = b->steps.at;
    int lag = steps[g->step[i]].lag;
    bool seen[2][UINT8_MAX + 1] = { { false } }; /* in this turn, in the turn before */

    for (size_t d = 1; d < g->n; d++) {
        bool before = d > i;
        size_t j = before ? i + g->n - d : i - d;
        int other = steps[g->step[j]].lag;

        if (!seen[before][other])
            rr_after(b, g->step[i], g->step[j], other - lag + (before ? 1 : 0));
        seen[before][other] = true;
        if (other == lag && !before)
            return;
    }
}

static size_t link_of(const struct rr_step *s, int ranks)
{
    return (size_t)(s->kind == RR_STEP_SEND ? 0 : ranks) + (size_t)s->peer;
}

/* Sorts the message steps by link and direction (counting sort: start[l] is where link l begins).
 */
static void sort_by_link(const struct rr_builder *b, size_t *start, uint16_t *sorted)
{
    const struct rr_step *steps = b->steps.at;
    size_t links = 2 * (size_t)b->ranks;

    for (size_t x = 0; x < b->steps.used; x++)
        if (rr_step_is_message(&steps[x]))
            start[link_of(&steps[x], b->ranks) + 2]++;
    for (size_t l = 2; l < links + 2; l++)
        start[l] += start[l - 1];
    for (size_t x = 0; x < b->steps.used; x++)
        if (rr_step_is_message(&steps[x]))
            sorted[start[link_of(&steps[x], b->ranks) + 1]++] = (uint16_t)x;
}

static void order_messages(struct rr_builder *b)
{
    size_t links = 2 * (size_t)b->ranks;
    size_t *start = rr_alloc(links + 2, sizeof *start);
    uint16_t *sorted = rr_alloc(b->steps.used + 1, sizeof *sorted);

    if (!start || !sorted) {
        b->failed = RINGRED_ENOMEM;
    } else {
        sort_by_link(b, start, sorted);
        for (size_t l = 0; l < links; l++) {
            struct group g = { .step = sorted + start[l], .n = start[l + 1] - start[l] };
            for (size_t i = 0; i < g.n; i++)
                order_one(b, &g, i);
        }
    }
    rr_free(start);
    rr_free(sorted);
}

/* ---- packing ---- */

/* One dependency per step waited for: the one that asks for most. */
static void add_dep(struct rr_plan *p, struct rr_step *x, const struct rr_dep *d)
{
    struct rr_dep *mine = p->dep + x->dep;

    for (int i = 0; i < x->deps; i++)
        if (mine[i].step == d->step) {
            if (d->back < mine[i].back)
                mine[i].back = d->back;
            return;
        }
    mine[x->deps++] = *d;
}

/* Room for each step's dependencies was counted; what merging left empty is squeezed out. */
static void pack_deps(struct rr_plan *p, const struct rr_builder *b)
{
    const struct rr_wait *waits = b->waits.at;
    uint32_t next = 0;

    for (size_t i = 0; i < b->waits.used; i++)
        p->step[waits[i].step].dep++;
    for (uint32_t x = 0; x < p->steps; x++) {
        uint32_t n = p->step[x].dep;
        p->step[x].dep = next;
        next += n;
    }
    for (size_t i = 0; i < b->waits.used; i++)
        add_dep(p, &p->step[waits[i].step], &waits[i].dep);

    next = 0;
    for (uint32_t x = 0; x < p->steps; x++) {
        struct rr_step *s = &p->step[x];
        memmove(p->dep + next, p->dep + s->dep, s->deps * sizeof *p->dep);
        s->dep = next;
        next += s->deps;
    }
    p->deps = next;
}

/* Does something even where every rank has windows. */
static bool always_works(const struct rr_step *s)
{
    return s->kind == RR_STEP_REDUCE ||
           (s->kind == RR_STEP_COPY && !(s->flags & (RR_PRIVATE_IN | RR_PRIVATE_OUT)));
}

static bool puts_into_stage(const struct rr_plan *p, const struct rr_step *s)
{
    for (uint32_t i = 0; i < s->destinations && !(s->flags & RR_PRIVATE_OUT); i++)
        if (p->span[s->destination + i].place == RR_STAGE)
            return true;
    return false;
}

static bool waits_for(const struct rr_plan *p, const struct rr_step *s, uint32_t step)
{
    for (uint32_t i = 0; i < s->deps; i++)
        if (p->dep[s->dep + i].step == step && p->dep[s->dep + i].back <= 0)
            return true;
    return false;
}

/* Once it has met all others, in one step, nothing of the vector has been touched and nothing will
 * go through a stage or a link. */
static bool is_windowed(const struct rr_plan *p)
{
    uint32_t meeting = UINT32_MAX;

    for (uint32_t x = 0; x < p->steps; x++) {
        if (p->step[x].kind != RR_STEP_AWAIT || p->step[x].counter != RR_ARRIVED)
            continue;
        if (meeting != UINT32_MAX)
            return false;
        meeting = x;
    }
    for (uint32_t x = 0; x < p->steps; x++) {
        const struct rr_step *s = &p->step[x];
        if (rr_step_is_message(s))
            return false;
        if (!always_works(s))
            continue;
        if (puts_into_stage(p, s) || !waits_for(p, s, meeting))
            return false;
    }
    return meeting != UINT32_MAX;
}

static void describe(struct rr_plan *p, bool windowed)
{
    for (uint32_t x = 0; x < p->steps; x++) {
        const struct rr_step *s = &p->step[x];
        p->shared = p->shared || s->kind == RR_STEP_SIGNAL || s->kind == RR_STEP_AWAIT;
        p->linked = p->linked || rr_step_is_message(s);
        if (s->lag > p->most_lag)
            p->most_lag = s->lag;
    }
    p->windowed = windowed && is_windowed(p);
}

static void *take(char **at, const struct rr_list *l)
{
    void *mine = *at;

    if (l->used > 0)
        memcpy(mine, l->at, l->used * l->item_bytes);
    *at += rr_round_up(l->used * l->item_bytes, 16);
    return mine;
}

static size_t list_bytes(const struct rr_list *l)
{
    return rr_round_up(l->used * l->item_bytes, 16);
}

/* Everything a plan holds lies behind it in one allocation. */
static struct rr_plan *pack(const struct rr_builder *b)
{
    size_t head = rr_round_up(sizeof(struct rr_plan), 16);
    size_t dep_bytes = rr_round_up(b->waits.used * sizeof(struct rr_dep), 16);
    char *at = rr_alloc(1, head + list_bytes(&b->steps) + list_bytes(&b->spans) + dep_bytes +
                               list_bytes(&b->peers) + list_bytes(&b->temps));
    if (!at)
        return NULL;

    struct rr_plan *p = (void *)at;
    at += head;
    p->ranks = b->ranks;
    p->me = b->me;
    p->name = b->name;
    p->steps = (uint32_t)b->steps.used;
    p->spans = (uint32_t)b->spans.used;
    p->peers = (uint32_t)b->peers.used;
    p->temps = (uint32_t)b->temps.used;
    p->step = take(&at, &b->steps);
    p->span = take(&at, &b->spans);
    p->temp = take(&at, &b->temps);
    p->peer = take(&at, &b->peers);
    p->dep = (void *)at;
    p->tree = true;
    p->stage_parts = b->stage_parts;
    p->shared = b->shared;
    pack_deps(p, b);
    describe(p, b->windowed);
    return p;
}

int rr_plan_finish(struct rr_builder *b, struct rr_plan **plan)
{
    int rc = b ? b->failed : RINGRED_ENOMEM;

    if (rc == 0) {
        order_messages(b);
        rc = b->failed;
    }
    if (rc == 0) {
        struct rr_plan *p = pack(b);
        rc = p ? rr_plan_check(p) : RINGRED_ENOMEM;
        if (rc == 0)
            *plan = p;
        else
            rr_plan_free(p);
    }
    rr_builder_free(b);
    return rc;
}

void rr_plan_free(struct rr_plan *plan)
{
    rr_free(plan);
}

size_t rr_plan_bytes(const struct rr_plan *p)
{
    return sizeof *p + p->steps * sizeof *p->step + p->spans * sizeof *p->span +
           p->deps * sizeof *p->dep + p->peers * sizeof *p->peer + p->temps * sizeof *p->temp;
}
