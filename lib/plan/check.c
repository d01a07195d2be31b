/* SPDX-License-Identifier: Apache-2.0 */
/* The static check: whatever the timing, two instances that touch the same bytes, one of them
 * writing, come in one order; what a call needs of its ranks before it touches their vectors, and
 * what it owes them before it ends, holds; messages of a link are never two at a time. Then all
 * runs of a plan give the same result, so the one that the symbolic runner looks at speaks for all.
 *
 * Calls follow each other on the same stages, so several are looked at in a row, with few and with
 * many segments; within one, and between neighbours, everything repeats after a stage has been gone
 * round once. Different segments in one slot of a stage or a temp are taken to touch each other
 * always, because the last segment of a call is cut otherwise. */
#include "plan/graph.h"

#include <stdlib.h>

#define W RR_PLAN_WINDOW

struct access {
    uint64_t memory;  /* equal: the same buffer, and the same slot of it */
    uint64_t segment; /* counted from the first call */
    size_t lo, hi;
    uint32_t in, out; /* nodes between which it happens */
    bool write;
};

struct check {
    struct rr_graph g;
    struct rr_questions q;
    struct access *access;
    size_t used, room;
    const char *name;
    ringred_error *why;
};

/* ---- accesses ---- */

static int add_access(struct check *k, struct access a)
{
    if (k->used == k->room) {
        size_t room = k->room ? 2 * k->room : 4096;
        struct access *bigger = rr_alloc(room, sizeof *bigger);
        if (!bigger)
            return RINGRED_ENOMEM;
        for (size_t i = 0; i < k->used; i++)
            bigger[i] = k->access[i];
        rr_free(k->access);
        k->access = bigger;
        k->room = room;
    }
    k->access[k->used++] = a;
    return 0;
}

/* An instance, and what it works on. */
struct instance {
    int call, rank;
    uint32_t step, segment;
};

static uint64_t memory_of(const struct check *k, const struct instance *i, const struct rr_where *w)
{
    const struct rr_call *c = &k->g.call[i->call];
    uint64_t slot, call = 0;

    if (w->memory == RR_STAGES) {
        slot = (c->first_segment + i->segment) % (uint64_t)c->m->c->stage_pieces;
    } else {
        slot = w->memory == RR_TEMPS ? i->segment % W : i->segment;
        call = (uint64_t)i->call + 1;
    }
    return call << 48 | (uint64_t)w->memory << 46 | (uint64_t)w->rank << 28 |
           (uint64_t)w->index << 10 | slot;
}

/* The step that sees `peer` in the call; there it learns where its vectors are. -1: none. */
static int64_t meeting(const struct rr_plan *p, int peer)
{
    for (uint32_t x = 0; x < p->steps; x++)
        for (uint32_t i = 0; i < p->step[x].peers; i++)
            if (p->step[x].counter == RR_ARRIVED && p->peer[p->step[x].peer0 + i] == peer)
                return x;
    return -1;
}

/* Nothing of another rank is touched before it is known to have arrived. */
static int ask_arrival(struct check *k, const struct instance *i, int peer)
{
    const struct rr_plan *p = k->g.call[i->call].m->c->plan[i->rank];
    struct rr_question q = { .about = "there it learns where the other's memory is" };
    int64_t met = meeting(p, peer);

    if (met < 0)
        return rr_fail(k->why, RINGRED_EINTERNAL, i->rank, 0,
                       "rank %d touches memory of rank %d, which it never meets", i->rank, peer);
    q.a_out = rr_graph_out(&k->g, i->call, i->rank, (uint32_t)met, 0);
    q.b_in = rr_graph_in(&k->g, i->call, i->rank, i->step, i->segment);
    return rr_questions_add(&k->q, q);
}

/* A vector of another rank is the caller's again when that rank's call ends. */
static int ask_departure(struct check *k, const struct instance *i, int owner)
{
    struct rr_question q = { .about = "the owner of the vector may have left" };

    q.a_out = rr_graph_out(&k->g, i->call, i->rank, i->step, i->segment);
    q.b_in = rr_graph_end(&k->g, i->call, owner);
    return rr_questions_add(&k->q, q);
}

/* What a span takes for granted about other ranks: `all` of the host, if it is left out when they
 * all have windows. */
static int ask_others(struct check *k, const struct instance *i, const struct rr_step *x,
                      const struct rr_span *s, bool write)
{
    const struct rr_model *m = k->g.call[i->call].m;
    bool all = write && s->place == RR_STAGE && (x->flags & RR_PRIVATE_OUT);

    if (s->place == RR_TEMP || s->place == RR_KEPT || i->segment > 0) /* later segments come later */
        return 0;
    for (int r = 0; r < m->c->ranks; r++)
        if (r != i->rank && (r == s->rank || (all && m->host[r] == m->host[i->rank])))
            RR_TRY(ask_arrival(k, i, r));
    return 0;
}

static int add_span(struct check *k, const struct instance *i, uint32_t span, bool write)
{
    const struct rr_call *c = &k->g.call[i->call];
    const struct rr_step *x = &c->m->c->plan[i->rank]->step[i->step];
    const struct rr_cut *cut = rr_model_cut(c->m, i->rank, span, 0);
    struct rr_where w;

    RR_TRY(ask_others(k, i, x, &c->m->c->plan[i->rank]->span[span], write));
    RR_TRY(rr_model_where(c->m, i->rank, x, span, write, &w, k->why));
    if (w.memory == RR_NOWHERE || cut->lo == cut->hi)
        return 0;
    if (w.memory == RR_VECTOR && w.rank != i->rank)
        RR_TRY(ask_departure(k, i, w.rank));
    struct access a = { .memory = memory_of(k, i, &w),
                        .segment = c->first_segment + i->segment,
                        .lo = cut->lo,
                        .hi = cut->hi,
                        .write = write };
    a.in = rr_graph_in(&k->g, i->call, i->rank, i->step, i->segment);
    a.out = rr_graph_out(&k->g, i->call, i->rank, i->step, i->segment);
    size_t parts = c->m->c->plan[i->rank]->span[span].parts, length = cut->hi - cut->lo;
    if (w.memory == RR_TEMPS) { /* a block lies at the beginning of its temp, part behind part */
        a.lo = (size_t)w.part * length;
        a.hi = a.lo + parts * length;
    } else {
        a.lo += (size_t)w.part * c->m->elements[0];
        a.hi += (size_t)w.part * c->m->elements[0];
    }
    return add_access(k, a);
}

static int add_step(struct check *k, struct instance i)
{
    const struct rr_call *c = &k->g.call[i.call];
    const struct rr_step *x = &c->m->c->plan[i.rank]->step[i.step];

    if (rr_model_step_is_off(c->m, i.rank, x))
        return 0;
    for (i.segment = 0; i.segment < c->segments; i.segment++) {
        for (uint32_t n = 0; n < x->sources; n++)
            RR_TRY(add_span(k, &i, x->source + n, false));
        for (uint32_t n = 0; n < x->destinations; n++)
            RR_TRY(add_span(k, &i, x->destination + n, true));
    }
    return 0;
}

static int add_accesses(struct check *k)
{
    for (int call = 0; call < k->g.calls; call++) {
        const struct rr_case *c = k->g.call[call].m->c;
        for (int r = 0; r < c->ranks; r++)
            for (uint32_t x = 0; x < c->plan[r]->steps; x++)
                RR_TRY(add_step(k, (struct instance){ .call = call, .rank = r, .step = x }));
    }
    return 0;
}

/* ---- conflicts ---- */

static int compare(const void *a, const void *b)
{
    const struct access *x = a, *y = b;

    return x->memory < y->memory ? -1 : x->memory > y->memory;
}

static bool conflict(const struct access *a, const struct access *b)
{
    if ((!a->write && !b->write) || a->in == b->in)
        return false;
    return a->segment != b->segment || (a->lo < b->hi && b->lo < a->hi);
}

static int ask_conflicts(struct check *k)
{
    if (k->used > 0)
        qsort(k->access, k->used, sizeof *k->access, compare);
    for (size_t i = 0, end; i < k->used; i = end) {
        for (end = i + 1; end < k->used && k->access[end].memory == k->access[i].memory; end++)
            ;
        for (size_t a = i; a < end; a++)
            for (size_t b = a + 1; b < end; b++) {
                const struct access *x = &k->access[a], *y = &k->access[b];
                if (conflict(x, y))
                    RR_TRY(rr_questions_add(
                        &k->q, (struct rr_question){ .a_out = x->out,
                                                     .b_in = y->in,
                                                     .b_out = y->out,
                                                     .a_in = x->in,
                                                     .either_way = true,
                                                     .about = "they touch the same bytes" }));
            }
    }
    return 0;
}

/* ---- one message at a time, in the order of turns ---- */

static int ask_link(struct check *k, int call, int rank, uint32_t first)
{
    const struct rr_call *c = &k->g.call[call];
    const struct rr_plan *p = c->m->c->plan[rank];
    struct rr_question q = { .about = "two messages at once on a link" };
    bool any = false;

    for (int64_t turn = 0; turn < (int64_t)c->segments + p->most_lag; turn++)
        for (uint32_t x = first; x < p->steps; x++) {
            int64_t s = turn - p->step[x].lag;
            if (p->step[x].kind != p->step[first].kind || p->step[x].peer != p->step[first].peer ||
                s < 0 || s >= c->segments)
                continue;
            q.b_in = rr_graph_in(&k->g, call, rank, x, (uint32_t)s);
            if (any)
                RR_TRY(rr_questions_add(&k->q, q));
            q.a_out = rr_graph_out(&k->g, call, rank, x, (uint32_t)s);
            any = true;
        }
    return 0;
}

static bool first_of_link(const struct rr_plan *p, uint32_t x)
{
    for (uint32_t y = 0; y < x; y++)
        if (p->step[y].kind == p->step[x].kind && p->step[y].peer == p->step[x].peer)
            return false;
    return p->step[x].kind == RR_STEP_SEND || p->step[x].kind == RR_STEP_RECV;
}

static int ask_links(struct check *k)
{
    for (int call = 0; call < k->g.calls; call++) {
        const struct rr_case *c = k->g.call[call].m->c;
        for (int r = 0; r < c->ranks; r++)
            for (uint32_t x = 0; x < c->plan[r]->steps; x++)
                if (first_of_link(c->plan[r], x))
                    RR_TRY(ask_link(k, call, r, x));
    }
    return 0;
}

/* ---- barriers ---- */

static int ask_barriers(struct check *k)
{
    for (int call = 0; call < k->g.calls; call++) {
        const struct rr_case *c = k->g.call[call].m->c;
        if (c->what != RR_BARRIER)
            continue;
        for (int r = 0; r < c->ranks; r++)
            for (int q = 0; q < c->ranks; q++) {
                struct rr_question one = { .about = "a barrier lets it pass" };
                one.a_out = rr_graph_start(&k->g, call, q);
                one.b_in = rr_graph_end(&k->g, call, r);
                RR_TRY(rr_questions_add(&k->q, one));
            }
    }
    return 0;
}

/* ---- the whole ---- */

static int report(struct check *k, size_t broken)
{
    const struct rr_question *q = &k->q.at[broken];
    char one[96], other[96];
    struct rr_text a = { .at = one, .room = sizeof one }, b = { .at = other, .room = sizeof other };

    rr_graph_print_node(&k->g, q->a_out, &a);
    rr_graph_print_node(&k->g, q->b_in, &b);
    return rr_fail(k->why, RINGRED_EINTERNAL, -1, 0, "%s: %s and %s are in no order, but %s",
                   k->name, one, other, q->about);
}

static int check_calls(struct rr_call *call, int calls, ringred_error *why)
{
    struct check k = { .why = why, .name = call[0].m->c->plan[0]->name };
    size_t broken = 0;

    int rc = rr_graph_init(&k.g, call, calls, why);
    if (rc == 0)
        rc = add_accesses(&k);
    if (rc == 0)
        rc = ask_conflicts(&k);
    if (rc == 0)
        rc = ask_links(&k);
    if (rc == 0)
        rc = ask_barriers(&k);
    if (rc == 0) {
        rc = rr_graph_answer(&k.g, &k.q, &broken);
        if (rc == RINGRED_EINTERNAL)
            (void)report(&k, broken); /* the code stays the same */
    }
    rr_questions_done(&k.q);
    rr_free(k.access);
    rr_graph_done(&k.g);
    return rc;
}

int rr_plan_hazards_in_turn(const struct rr_case *const *c, const uint32_t *segments, int calls,
                            ringred_error *why)
{
    struct rr_model *m = rr_alloc((size_t)calls, sizeof *m);
    struct rr_case *one = rr_alloc((size_t)calls, sizeof *one);
    struct rr_call *call = rr_alloc((size_t)calls, sizeof *call);
    int rc = m && one && call ? 0 : RINGRED_ENOMEM, made = 0;

    for (; made < calls && rc == 0; made++) {
        one[made] = *c[made];
        if (one[made].count > one[made].segment)
            one[made].count = one[made].segment;
        call[made].segments = segments[made];
        if (made > 0 && c[made] == c[made - 1])
            call[made].m = call[made - 1].m;
        else
            rc = rr_model_init(&m[made], &one[made], why);
        if (!call[made].m)
            call[made].m = &m[made];
    }
    if (rc == 0)
        rc = check_calls(call, calls, why);
    for (int i = 0; i < made; i++)
        if (m[i].c)
            rr_model_done(&m[i]);
    rr_free(m);
    rr_free(one);
    rr_free(call);
    return rc;
}

static int check_shape(const struct rr_case *c, uint32_t segments, int calls, ringred_error *why)
{
    const struct rr_case *same[64];
    uint32_t each[64];

    for (int i = 0; i < calls; i++) {
        same[i] = c;
        each[i] = segments;
    }
    return rr_plan_hazards_in_turn(same, each, calls, why);
}

int rr_plan_hazards(const struct rr_case *c, ringred_error *why)
{
    uint32_t round = (uint32_t)c->stage_pieces;
    bool shared = false;

    for (int r = 0; r < c->ranks; r++)
        shared = shared || c->plan[r]->shared;
    if (c->what == RR_BARRIER || !shared) { /* nothing goes from one call to the next */
        for (uint32_t segments = 1; segments <= 3; segments++)
            RR_TRY(check_shape(c, segments, 1, why));
        return check_shape(c, 2 * W + 1, 1, why);
    }

    /* Round the stages twice: one segment a call, few, a window and one more, all in one call. */
    RR_TRY(check_shape(c, 1, 2 * (int)round + 1 <= 64 ? 2 * (int)round + 1 : 64, why));
    RR_TRY(check_shape(c, 3, (int)(2 * round + 2) / 3 + 1, why));
    RR_TRY(check_shape(c, W + 1, (int)(2 * round) / (W + 1) + 2, why));
    return check_shape(c, 2 * round + 1, 1, why);
}
