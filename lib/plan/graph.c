/* SPDX-License-Identifier: Apache-2.0 */
/* The order of instances; see graph.h. */
#include "plan/graph.h"

#include <string.h>

/* ---- nodes ---- */

static uint32_t width(const struct rr_step *s)
{
    return s->kind == RR_STEP_SEND ? 2 : 1;
}

static const struct rr_plan *plan_of(const struct rr_graph *g, int call, int rank)
{
    return g->call[call].m->c->plan[rank];
}

static int ranks_of(const struct rr_graph *g)
{
    return g->call[0].m->c->ranks;
}

uint32_t rr_graph_in(const struct rr_graph *g, int call, int rank, uint32_t step, uint32_t segment)
{
    const struct rr_call *c = &g->call[call];

    return c->node0[rank] + 2 + c->offset[rank][step] +
           segment * width(&plan_of(g, call, rank)->step[step]);
}

uint32_t rr_graph_out(const struct rr_graph *g, int call, int rank, uint32_t step, uint32_t segment)
{
    return rr_graph_in(g, call, rank, step, segment) + width(&plan_of(g, call, rank)->step[step]) -
           1;
}

static void number_nodes(struct rr_graph *g)
{
    int ranks = ranks_of(g);
    uint64_t first = 0;

    for (int k = 0; k < g->calls; k++) {
        struct rr_call *c = &g->call[k];
        c->first_segment = first;
        first += c->segments;
        c->node0 = rr_arena_take(&g->arena, (size_t)ranks, sizeof *c->node0);
        c->offset = rr_arena_take(&g->arena, (size_t)ranks, sizeof *c->offset);
        for (int r = 0; r < ranks && !g->arena.failed; r++) {
            const struct rr_plan *p = plan_of(g, k, r);
            uint32_t at = 0;
            c->node0[r] = g->nodes;
            c->offset[r] = rr_arena_take(&g->arena, p->steps, sizeof **c->offset);
            for (uint32_t x = 0; x < p->steps && c->offset[r]; x++) {
                c->offset[r][x] = at;
                at += c->segments * width(&p->step[x]);
            }
            g->nodes += 2 + at;
        }
    }
}

static bool find_in_rank(const struct rr_graph *g, int k, int r, uint32_t node,
                         struct rr_text *text)
{
    const struct rr_call *c = &g->call[k];
    const struct rr_plan *p = plan_of(g, k, r);
    uint32_t at = node - c->node0[r] - 2;

    if (node == c->node0[r] || node == c->node0[r] + 1) {
        rr_text_add(text, "rank %d, call %d: its %s", r, k, node == c->node0[r] ? "start" : "end");
        return true;
    }
    for (uint32_t x = p->steps; x-- > 0;)
        if (at >= c->offset[r][x]) {
            rr_text_add(text, "rank %d, call %d: step %u (%s) of segment %u", r, k, x,
                        rr_step_name(p->step[x].kind), (at - c->offset[r][x]) / width(&p->step[x]));
            return true;
        }
    return false;
}

void rr_graph_print_node(const struct rr_graph *g, uint32_t node, struct rr_text *text)
{
    for (int k = g->calls - 1; k >= 0; k--)
        for (int r = ranks_of(g) - 1; r >= 0; r--)
            if (node >= g->call[k].node0[r] && find_in_rank(g, k, r, node, text))
                return;
}

/* ---- edges ---- */

static void add_edge(struct rr_graph *g, uint32_t from, uint32_t to)
{
    if (g->edges == g->room) {
        uint32_t room = g->room ? 2 * g->room : 4096;
        uint32_t(*bigger)[2] = rr_alloc(room, sizeof *bigger);
        if (!bigger) {
            g->arena.failed = true;
            return;
        }
        if (g->edges > 0)
            memcpy(bigger, g->edge, g->edges * sizeof *bigger);
        rr_free(g->edge);
        g->edge = bigger;
        g->room = room;
    }
    g->edge[g->edges][0] = from;
    g->edge[g->edges++][1] = to;
}

/* What one rank orders by itself: its calls, each step's segments, dependencies. */
static void add_own(struct rr_graph *g, int k, int r)
{
    const struct rr_plan *p = plan_of(g, k, r);
    int64_t segments = g->call[k].segments;

    if (k > 0)
        add_edge(g, rr_graph_end(g, k - 1, r), rr_graph_start(g, k, r));
    add_edge(g, rr_graph_start(g, k, r), rr_graph_end(g, k, r));
    for (uint32_t x = 0; x < p->steps; x++) {
        add_edge(g, rr_graph_start(g, k, r), rr_graph_in(g, k, r, x, 0));
        add_edge(g, rr_graph_out(g, k, r, x, (uint32_t)segments - 1), rr_graph_end(g, k, r));
        for (uint32_t s = 0; s < segments; s++) {
            if (p->step[x].kind == RR_STEP_SEND)
                add_edge(g, rr_graph_in(g, k, r, x, s), rr_graph_out(g, k, r, x, s));
            if (s > 0)
                add_edge(g, rr_graph_out(g, k, r, x, s - 1), rr_graph_in(g, k, r, x, s));
            for (uint32_t i = 0; i < p->step[x].deps; i++) {
                const struct rr_dep *d = &p->dep[p->step[x].dep + i];
                int64_t on = (int64_t)s - d->back;
                if (on >= segments)
                    on = segments - 1;
                if (on >= 0)
                    add_edge(g, rr_graph_out(g, k, r, d->step, (uint32_t)on),
                             rr_graph_in(g, k, r, x, s));
            }
        }
    }
}

/* ---- counters ---- */

int64_t rr_graph_signal(const struct rr_plan *p, int counter)
{
    for (uint32_t x = 0; x < p->steps; x++)
        if (p->step[x].kind == RR_STEP_SIGNAL && p->step[x].counter == counter)
            return x;
    return -1;
}

static int add_counters(struct rr_graph *g, int k)
{
    for (int r = 0; r < ranks_of(g); r++) {
        const struct rr_plan *p = plan_of(g, k, r);
        for (uint32_t x = 0; x < p->steps; x++)
            for (uint32_t i = 0; i < p->step[x].peers && !rr_model_step_is_off(g->call[k].m, r, &p->step[x]); i++) {
                int peer = p->peer[p->step[x].peer0 + i];
                int64_t on = rr_graph_signal(plan_of(g, k, peer), p->step[x].counter);
                if (on < 0)
                    return rr_fail(g->why, RINGRED_EINTERNAL, r, 0,
                                   "rank %d awaits what rank %d never signals", r, peer);
                for (uint32_t s = 0; s < g->call[k].segments; s++)
                    add_edge(g, rr_graph_out(g, k, peer, (uint32_t)on, s),
                             rr_graph_in(g, k, r, x, s));
            }
    }
    return 0;
}

/* ---- messages ---- */

struct end { /* of a message: a step of some rank and a segment */
    uint32_t step, segment;
};
struct ends {
    size_t *start; /* [links + 1] */
    struct end *at;
};

static size_t link_of(int ranks, int rank, const struct rr_step *s)
{
    return s->kind == RR_STEP_SEND ? (size_t)rank * (size_t)ranks + (size_t)s->peer
                                   : (size_t)s->peer * (size_t)ranks + (size_t)rank;
}

/* All ends of one kind, link by link, each in the order of turns. */
static bool list_ends(struct rr_graph *g, int k, int kind, struct ends *e)
{
    int ranks = ranks_of(g);
    size_t links = (size_t)ranks * (size_t)ranks;
    int64_t segments = g->call[k].segments;

    e->start = rr_arena_take(&g->arena, links + 2, sizeof *e->start);
    if (!e->start)
        return false;
    for (int r = 0; r < ranks; r++)
        for (uint32_t x = 0; x < plan_of(g, k, r)->steps; x++)
            if (plan_of(g, k, r)->step[x].kind == kind)
                e->start[link_of(ranks, r, &plan_of(g, k, r)->step[x]) + 2] += (size_t)segments;
    for (size_t l = 2; l < links + 2; l++)
        e->start[l] += e->start[l - 1];
    e->at = rr_arena_take(&g->arena, e->start[links + 1], sizeof *e->at);
    for (int r = 0; r < ranks && e->at; r++) {
        const struct rr_plan *p = plan_of(g, k, r);
        for (int64_t turn = 0; p->linked && turn < segments + p->most_lag; turn++)
            for (uint32_t x = 0; x < p->steps; x++) {
                int64_t s = turn - p->step[x].lag;
                if (p->step[x].kind == kind && s >= 0 && s < segments)
                    e->at[e->start[link_of(ranks, r, &p->step[x]) + 1]++] =
                        (struct end){ x, (uint32_t)s };
            }
    }
    return e->at != NULL;
}

static int match(struct rr_graph *g, int k, size_t link, const struct end *sent,
                 const struct end *read)
{
    int from = (int)(link / (size_t)ranks_of(g)), to = (int)(link % (size_t)ranks_of(g));
    const struct rr_step *s = &plan_of(g, k, from)->step[sent->step];
    const struct rr_step *d = &plan_of(g, k, to)->step[read->step];
    const struct rr_cut *out = rr_model_cut(g->call[k].m, from, s->source, 0);
    const struct rr_cut *in = rr_model_cut(g->call[k].m, to, d->destination, 0);

    if (s->slot != d->slot || sent->segment != read->segment)
        return rr_fail(g->why, RINGRED_EINTERNAL, to, 0,
                       "rank %d sends step %u, segment %u, where rank %d reads step %u, segment %u",
                       from, sent->step, sent->segment, to, read->step, read->segment);
    if (out->hi - out->lo != in->hi - in->lo)
        return rr_fail(g->why, RINGRED_EINTERNAL, to, 0,
                       "ranks %d and %d disagree on a message's length", from, to);
    add_edge(g, rr_graph_in(g, k, from, sent->step, sent->segment),
             rr_graph_in(g, k, to, read->step, read->segment));
    return 0;
}

static int add_messages(struct rr_graph *g, int k)
{
    size_t links = (size_t)ranks_of(g) * (size_t)ranks_of(g);
    struct ends sent, read;

    if (!list_ends(g, k, RR_STEP_SEND, &sent) || !list_ends(g, k, RR_STEP_RECV, &read))
        return RINGRED_ENOMEM;
    for (size_t l = 0; l < links; l++) {
        size_t n = sent.start[l + 1] - sent.start[l];
        if (n != read.start[l + 1] - read.start[l])
            return rr_fail(g->why, RINGRED_EINTERNAL, (int)(l / (size_t)ranks_of(g)), 0,
                           "a link has more sends than receives, or fewer");
        for (size_t i = 0; i < n; i++)
            RR_TRY(match(g, k, l, &sent.at[sent.start[l] + i], &read.at[read.start[l] + i]));
    }
    return 0;
}

/* ---- topological order ---- */

/* Sorts edges by their node `side`: start[v + 1] ends up as where those of v begin. */
static void sort_edges(const struct rr_graph *g, int side, uint32_t *start, uint32_t *other)
{
    for (uint32_t e = 0; e < g->edges; e++)
        start[g->edge[e][side] + 2]++;
    for (uint32_t v = 2; v < g->nodes + 2; v++)
        start[v] += start[v - 1];
    for (uint32_t e = 0; e < g->edges; e++)
        other[start[g->edge[e][side] + 1]++] = g->edge[e][!side];
}

static int report_cycle(struct rr_graph *g, const uint32_t *missing)
{
    char name[96];
    struct rr_text text = { .at = name, .room = sizeof name };

    for (uint32_t v = 0; v < g->nodes; v++)
        if (missing[v] > 0) {
            rr_graph_print_node(g, v, &text);
            break;
        }
    return rr_fail(g->why, RINGRED_EINTERNAL, -1, 0, "%s: deadlock: %s waits for itself",
                   plan_of(g, 0, 0)->name, name);
}

static int order_nodes(struct rr_graph *g)
{
    uint32_t *after0 = rr_arena_take(&g->arena, g->nodes + 2u, sizeof *after0);
    uint32_t *after = rr_arena_take(&g->arena, g->edges, sizeof *after);
    uint32_t *missing = rr_arena_take(&g->arena, g->nodes, sizeof *missing);
    uint32_t *order = rr_arena_take(&g->arena, g->nodes, sizeof *order), n = 0;

    g->place = rr_arena_take(&g->arena, g->nodes, sizeof *g->place);
    g->before0 = rr_arena_take(&g->arena, g->nodes + 2u, sizeof *g->before0);
    g->before = rr_arena_take(&g->arena, g->edges, sizeof *g->before);
    if (g->arena.failed)
        return RINGRED_ENOMEM;
    sort_edges(g, 0, after0, after);
    for (uint32_t e = 0; e < g->edges; e++)
        missing[g->edge[e][1]]++;
    for (uint32_t v = 0; v < g->nodes; v++)
        if (missing[v] == 0)
            order[n++] = v;
    for (uint32_t i = 0; i < n; i++) {
        g->place[order[i]] = i;
        for (uint32_t e = after0[order[i]]; e < after0[order[i] + 1]; e++)
            if (--missing[after[e]] == 0)
                order[n++] = after[e];
    }
    if (n < g->nodes)
        return report_cycle(g, missing);
    for (uint32_t e = 0; e < g->edges; e++) {
        g->edge[e][0] = g->place[g->edge[e][0]];
        g->edge[e][1] = g->place[g->edge[e][1]];
    }
    sort_edges(g, 1, g->before0, g->before);
    return 0;
}

int rr_graph_init(struct rr_graph *g, struct rr_call *call, int calls, ringred_error *why)
{
    *g = (struct rr_graph){ .call = call, .calls = calls, .why = why };
    number_nodes(g);
    for (int k = 0; k < calls && !g->arena.failed; k++) {
        for (int r = 0; r < ranks_of(g); r++)
            add_own(g, k, r);
        RR_TRY(add_counters(g, k));
        RR_TRY(add_messages(g, k));
    }
    return g->arena.failed ? rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the prover")
                           : order_nodes(g);
}

void rr_graph_done(struct rr_graph *g)
{
    rr_free(g->edge);
    rr_arena_done(&g->arena);
}

/* ---- questions ---- */

int rr_questions_add(struct rr_questions *q, struct rr_question one)
{
    if (q->used == q->room) {
        size_t room = q->room ? 2 * q->room : 1024;
        struct rr_question *bigger = rr_alloc(room, sizeof *bigger);
        if (!bigger)
            return RINGRED_ENOMEM;
        if (q->used > 0)
            memcpy(bigger, q->at, q->used * sizeof *bigger);
        rr_free(q->at);
        q->at = bigger;
        q->room = room;
    }
    q->at[q->used++] = one;
    return 0;
}

void rr_questions_done(struct rr_questions *q)
{
    rr_free(q->at);
    *q = (struct rr_questions){ 0 };
}

/* Sources are taken so many at a time: a node's row says which of them come before it. */
#define CHUNK 4096u
#define ROW   (CHUNK / 64)

/* Of the two orders only the one that agrees with the topological one is possible. */
static void places(const struct rr_graph *g, const struct rr_question *q, uint32_t *from,
                   uint32_t *to)
{
    *from = g->place[q->a_out];
    *to = g->place[q->b_in];
    if (q->either_way && *from > *to) {
        *from = g->place[q->b_out];
        *to = g->place[q->a_in];
    }
}

static void fill_rows(const struct rr_graph *g, uint32_t first, uint32_t last, uint64_t *row)
{
    memset(row, 0, ((size_t)last - first + 1) * ROW * sizeof *row);
    for (uint32_t v = first; v <= last; v++) {
        uint64_t *mine = row + (size_t)(v - first) * ROW;
        for (uint32_t e = g->before0[v]; e < g->before0[v + 1]; e++) {
            uint32_t p = g->before[e];
            if (p < first)
                continue;
            const uint64_t *theirs = row + (size_t)(p - first) * ROW;
            for (uint32_t i = 0; i < ROW; i++)
                mine[i] |= theirs[i];
            if (p - first < CHUNK)
                mine[(p - first) / 64] |= (uint64_t)1 << (p - first) % 64;
        }
    }
}

/* Sorts questions by the chunk of their source; finds how far each chunk must look. */
static void sort_questions(const struct rr_graph *g, const struct rr_questions *q, size_t *start,
                           uint32_t *last, size_t *sorted)
{
    uint32_t chunks = g->nodes / CHUNK + 1, from, to;

    for (size_t i = 0; i < q->used; i++) {
        places(g, &q->at[i], &from, &to);
        start[from / CHUNK + 2]++;
        if (to > last[from / CHUNK])
            last[from / CHUNK] = to;
    }
    for (uint32_t c = 2; c < chunks + 2; c++)
        start[c] += start[c - 1];
    for (size_t i = 0; i < q->used; i++) {
        places(g, &q->at[i], &from, &to);
        sorted[start[from / CHUNK + 1]++] = i;
    }
}

static int answer_chunk(const struct rr_graph *g, const struct rr_questions *q, uint32_t first,
                        const uint64_t *row, const size_t *sorted, size_t n, size_t *broken)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t from, to;
        places(g, &q->at[sorted[i]], &from, &to);
        bool before =
            from < to &&
            (row[(size_t)(to - first) * ROW + (from - first) / 64] >> (from - first) % 64 & 1);
        if (!before && from != to) {
            *broken = sorted[i];
            return RINGRED_EINTERNAL;
        }
    }
    return 0;
}

int rr_graph_answer(struct rr_graph *g, const struct rr_questions *q, size_t *broken)
{
    uint32_t chunks = g->nodes / CHUNK + 1;
    size_t *start = rr_alloc(chunks + 2u, sizeof *start),
           *sorted = rr_alloc(q->used + 1, sizeof *sorted);
    uint32_t *last = rr_alloc(chunks + 1u, sizeof *last);
    uint64_t *row = rr_alloc((size_t)g->nodes * ROW, sizeof *row);
    int rc = start && sorted && last && row ? 0 : RINGRED_ENOMEM;

    if (rc == 0)
        sort_questions(g, q, start, last, sorted);
    for (uint32_t c = 0; c < chunks && rc == 0; c++) {
        if (start[c + 1] == start[c])
            continue;
        if (last[c] >= c * CHUNK)
            fill_rows(g, c * CHUNK, last[c], row);
        rc = answer_chunk(g, q, c * CHUNK, row, sorted + start[c], start[c + 1] - start[c], broken);
    }
    rr_free(start);
    rr_free(sorted);
    rr_free(last);
    rr_free(row);
    return rc;
}
