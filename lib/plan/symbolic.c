/* SPDX-License-Identifier: Apache-2.0 */
/* The symbolic runner: runs all ranks' plans of a case with expression trees in place of numbers.
 *
 * It keeps the engine's rules: a step does its segments in order; an instance runs when its
 * dependencies are met; a link carries one message at a time, in order, and the receiver checks its
 * header. What may run is kept in a queue, taken from its front (seed 0: ranks and steps in their
 * order as far as they can) or from anywhere (random). A cell stands for a piece of a segment
 * (model.h) and knows besides its tree which piece of the vector it belongs to, so a block that
 * lands in a wrong place is seen even though all blocks of a rank have the same leaf. */
#include "plan/arena.h"
#include "plan/model.h"
#include "plan/trees.h"

#include <string.h>

#define W RR_PLAN_WINDOW

enum { QUEUED = 1, POSTED = 2 };

struct cell {
    uint32_t tree, place; /* place: number of the piece in the vector */
};

/* A slot of a temp: what it holds begins with piece `first` of a segment. */
struct slot {
    struct cell *cell;
    uint32_t first;
    size_t segment;
};

struct message {
    struct message *next;
    uint16_t slot;
    size_t segment;
    uint32_t pieces;
    uint64_t *heard;
    struct cell cell[];
};

/* One direction between two ranks. */
struct link {
    int send, recv; /* step whose turn it is, + 1; 0: none */
    int held;       /* messages between head and tail */
    struct message *head, *tail;
};

struct target { /* a step of a rank */
    int rank;
    uint32_t step;
};

struct rank {
    const struct rr_plan *plan;
    uint32_t *done,
        *cursor;     /* [steps] segments finished; dependencies of the next one seen to be met */
    uint8_t *state;  /* [steps] */
    uint32_t *user0; /* [steps + 1] users of a step: those that depend on it */
    uint16_t *user;
    struct rr_shape shape;
    struct cell *vector[2]; /* in, out: [parts][pieces]; what has another name in place is not used */
    struct cell *stage;     /* [stage pieces][parts][pieces] */
    struct slot **temp;     /* [temps][W] */
    uint32_t counter[RR_COUNTERS];
    uint64_t *heard_at[RR_COUNTERS]; /* what a signal told, for barriers */
    uint64_t *heard;                 /* [steps][words] */
    uint8_t *arrived;                /* [ranks] seen in this call */
};

struct run {
    struct rr_model m;
    const struct rr_case *c;
    struct rr_trees trees;
    struct rr_arena arena;
    struct rank *rank;
    struct link *link;              /* [from][to] */
    uint32_t *waiter0[RR_COUNTERS]; /* [ranks + 1] awaits of a rank's counter */
    struct target *waiter[RR_COUNTERS];
    struct target *queue; /* goes round */
    size_t queue_room, queue_at, queued;
    size_t left;  /* instances to go */
    size_t words; /* of a set of ranks; 0: not a barrier */
    uint64_t random;
    ringred_error *why;
};

/* ---- setting up ---- */

static void find_users(struct run *run, struct rank *k)
{
    const struct rr_plan *p = k->plan;

    k->user0 = rr_arena_take(&run->arena, p->steps + 2u, sizeof *k->user0);
    k->user = rr_arena_take(&run->arena, p->deps, sizeof *k->user);
    if (run->arena.failed)
        return;
    for (uint32_t i = 0; i < p->deps; i++)
        k->user0[p->dep[i].step + 2]++;
    for (uint32_t x = 2; x < p->steps + 2; x++)
        k->user0[x] += k->user0[x - 1];
    for (uint32_t x = 0; x < p->steps; x++)
        for (uint32_t i = 0; i < p->step[x].deps; i++)
            k->user[k->user0[p->dep[p->step[x].dep + i].step + 1]++] = (uint16_t)x;
}

/* Room for the most pieces that any span puts into a temp. */
static void make_temps(struct run *run, int r)
{
    struct rank *k = &run->rank[r];
    const struct rr_plan *p = k->plan;
    uint32_t *most = rr_arena_take(&run->arena, p->temps, sizeof *most);

    k->temp = rr_arena_take(&run->arena, p->temps, sizeof *k->temp);
    if (run->arena.failed)
        return;
    for (uint32_t i = 0; i < p->spans; i++)
        for (int kind = 0; kind < 2 && (p->span[i].place == RR_TEMP || p->span[i].place == RR_KEPT); kind++) {
            uint32_t pieces = run->m.cut[kind][run->m.span0[r] + i].pieces * p->temp[p->span[i].rank].parts;
            if (pieces > most[p->span[i].rank])
                most[p->span[i].rank] = pieces;
        }
    for (uint32_t t = 0; t < p->temps; t++) {
        k->temp[t] = rr_arena_take(&run->arena, W, sizeof **k->temp);
        for (int w = 0; w < W && k->temp[t]; w++)
            k->temp[t][w].cell = rr_arena_take(&run->arena, most[t], sizeof(struct cell));
    }
}

static size_t vector_pieces(const struct rr_model *m)
{
    return (m->segments - 1) * m->pieces[0] + m->pieces[1];
}

static void make_vectors(struct run *run, int r)
{
    struct rank *k = &run->rank[r];
    size_t n = vector_pieces(&run->m), most = run->m.pieces[0];
    bool shared = k->plan->shared;

    if (run->m.pieces[1] > most)
        most = run->m.pieces[1];
    k->shape = rr_shape_of(run->c->what, run->c->ranks, run->c->root, r);
    k->vector[0] = rr_arena_take(&run->arena, n * (size_t)k->shape.in, sizeof(struct cell));
    k->vector[1] = rr_arena_take(&run->arena, n * (size_t)k->shape.out, sizeof(struct cell));
    if (shared)
        k->stage = rr_arena_take(&run->arena,
                                 most * k->plan->stage_parts * (size_t)run->c->stage_pieces,
                                 sizeof(struct cell));
    for (int part = 0; part < k->shape.in && !run->arena.failed; part++) {
        struct rr_where w = rr_model_vector(&run->m, r, RR_IN, part);
        struct cell *to = k->vector[w.index] + n * (size_t)w.part;
        for (size_t i = 0; i < n; i++)
            to[i] = (struct cell){ rr_tree_leaf(r), (uint32_t)((size_t)part * n + i) };
    }
}

static void make_rank(struct run *run, int r)
{
    struct rank *k = &run->rank[r];
    const struct rr_plan *p = run->c->plan[r];
    struct rr_arena *a = &run->arena;

    k->plan = p;
    k->done = rr_arena_take(a, p->steps, sizeof *k->done);
    k->cursor = rr_arena_take(a, p->steps, sizeof *k->cursor);
    k->state = rr_arena_take(a, p->steps, sizeof *k->state);
    k->arrived = rr_arena_take(a, (size_t)run->c->ranks, 1);
    k->heard = rr_arena_take(a, p->steps * run->words, sizeof *k->heard);
    find_users(run, k);
    make_temps(run, r);
    make_vectors(run, r);
    run->queue_room += p->steps;
    run->left += p->steps * run->m.segments;
}

/* Who awaits which counter of whom, sorted by whom. */
static void find_waiters(struct run *run, int counter)
{
    int ranks = run->c->ranks;
    uint32_t *start = rr_arena_take(&run->arena, (size_t)ranks + 2, sizeof *start);
    size_t n = 0;

    for (int pass = 0; pass < 2 && start; pass++) {
        for (int r = 0; r < ranks; r++) {
            const struct rr_plan *p = run->c->plan[r];
            for (uint32_t x = 0; p->peers > 0 && x < p->steps; x++) {
                const struct rr_step *s = &p->step[x];
                if (s->kind != RR_STEP_AWAIT || s->counter != counter)
                    continue;
                n += pass == 0 ? s->peers : 0;
                for (uint32_t i = 0; i < s->peers; i++)
                    if (pass == 0)
                        start[p->peer[s->peer0 + i] + 2]++;
                    else
                        run->waiter[counter][start[p->peer[s->peer0 + i] + 1]++] =
                            (struct target){ r, x };
            }
        }
        if (pass == 1)
            break;
        for (int r = 2; r < ranks + 2; r++)
            start[r] += start[r - 1];
        run->waiter[counter] = rr_arena_take(&run->arena, n, sizeof(struct target));
        if (!run->waiter[counter])
            return;
    }
    run->waiter0[counter] = start;
}

static int set_up(struct run *run, const struct rr_case *c, ringred_error *why)
{
    size_t ranks = (size_t)c->ranks;

    *run = (struct run){ .c = c, .why = why, .random = c->seed };
    RR_TRY(rr_model_init(&run->m, c, why));
    run->words = c->what == RR_BARRIER ? (ranks + 63) / 64 : 0;
    run->rank = rr_arena_take(&run->arena, ranks, sizeof *run->rank);
    run->link = rr_arena_take(&run->arena, ranks * ranks, sizeof *run->link);
    if (rr_trees_init(&run->trees, c->ranks) < 0)
        run->arena.failed = true;
    for (int r = 0; r < c->ranks && !run->arena.failed; r++)
        make_rank(run, r);
    for (int counter = 0; counter < RR_COUNTERS && !run->arena.failed; counter++)
        find_waiters(run, counter);
    run->queue = rr_arena_take(&run->arena, run->queue_room, sizeof *run->queue);
    if (run->arena.failed)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the prover");
    return 0;
}

static void tear_down(struct run *run)
{
    rr_trees_done(&run->trees);
    rr_arena_done(&run->arena);
    rr_model_done(&run->m);
}

/* ---- the queue of what may be able to run ---- */

static void enqueue(struct run *run, int r, uint32_t x)
{
    struct rank *k = &run->rank[r];

    if (k->state[x] != 0 || k->done[x] == run->m.segments)
        return;
    k->state[x] |= QUEUED;
    run->queue[(run->queue_at + run->queued++) % run->queue_room] = (struct target){ r, x };
}

static uint64_t next_random(struct run *run)
{
    run->random += 0x9e3779b97f4a7c15u;
    uint64_t z = (run->random ^ run->random >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static struct target dequeue(struct run *run)
{
    struct target *front = &run->queue[run->queue_at];

    if (run->c->seed) {
        size_t i = (run->queue_at + next_random(run) % run->queued) % run->queue_room;
        struct target t = run->queue[i];
        run->queue[i] = *front;
        *front = t;
    }
    struct target t = *front;
    run->queue_at = (run->queue_at + 1) % run->queue_room;
    run->queued--;
    run->rank[t.rank].state[t.step] &= (uint8_t)~QUEUED;
    return t;
}

/* Remembers how far it came: what is met stays met. */
static bool can_run(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];
    const struct rr_step *x = &k->plan->step[t.step];
    int64_t segment = k->done[t.step], segments = (int64_t)run->m.segments;
    uint32_t *at = &k->cursor[t.step];

    for (; *at < x->deps; ++*at) {
        const struct rr_dep *d = &k->plan->dep[x->dep + *at];
        int64_t need = segment - d->back + 1;
        if (k->done[d->step] < (need < segments ? need : segments))
            return false;
    }
    uint32_t awaited = rr_model_step_is_off(&run->m, t.rank, x) ? 0 : x->peers;
    for (; *at < x->deps + awaited; ++*at) {
        int peer = k->plan->peer[x->peer0 + *at - x->deps];
        if (run->rank[peer].counter[x->counter] <= segment)
            return false;
    }
    return true;
}

/* ---- who has heard of whom, for barriers ---- */

static uint64_t *heard_of(struct run *run, struct target t)
{
    return run->rank[t.rank].heard + t.step * run->words;
}

static void hear(struct run *run, uint64_t *to, const uint64_t *from)
{
    for (size_t i = 0; from && i < run->words; i++)
        to[i] |= from[i];
}

/* Only what a step waited for counts, not what happened to be earlier in this run. */
static void hear_deps(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];
    const struct rr_step *x = &k->plan->step[t.step];
    uint64_t *mine = heard_of(run, t);

    if (run->words == 0)
        return;
    mine[t.rank / 64] |= (uint64_t)1 << t.rank % 64;
    for (uint32_t i = 0; i < x->deps; i++) {
        const struct rr_dep *d = &k->plan->dep[x->dep + i];
        if ((int64_t)k->done[t.step] - d->back >= 0)
            hear(run, mine, heard_of(run, (struct target){ t.rank, d->step }));
    }
    for (uint32_t i = 0; i < x->peers; i++)
        hear(run, mine, run->rank[k->plan->peer[x->peer0 + i]].heard_at[x->counter]);
    if (x->kind == RR_STEP_SIGNAL)
        k->heard_at[x->counter] = mine;
}

/* ---- finishing an instance ---- */

static void complete(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];

    k->done[t.step]++;
    k->cursor[t.step] = 0;
    k->state[t.step] &= (uint8_t)~POSTED;
    run->left--;
    enqueue(run, t.rank, t.step);
    for (uint32_t i = k->user0[t.step]; i < k->user0[t.step + 1]; i++)
        enqueue(run, t.rank, k->user[i]);
}

static void tell(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];
    int counter = k->plan->step[t.step].counter;

    k->counter[counter] = k->done[t.step] + 1;
    for (uint32_t i = run->waiter0[counter][t.rank]; i < run->waiter0[counter][t.rank + 1]; i++)
        enqueue(run, run->waiter[counter][i].rank, run->waiter[counter][i].step);
}

static void see(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];
    const struct rr_step *x = &k->plan->step[t.step];

    for (uint32_t i = 0; x->counter == RR_ARRIVED && i < x->peers; i++)
        k->arrived[k->plan->peer[x->peer0 + i]] = 1;
}

/* ---- memory ---- */

static int wrong(struct run *run, struct target t, const char *what)
{
    const struct rank *k = &run->rank[t.rank];
    const struct rr_step *x = &k->plan->step[t.step];

    return rr_fail(run->why, RINGRED_EINTERNAL, t.rank, 0,
                   "%s: rank %d of %d, step %u (%s), segment %u of %zu: %s", k->plan->name, t.rank,
                   run->c->ranks, t.step, rr_step_name(x->kind), k->done[t.step], run->m.segments,
                   what);
}

static int temp_cells(struct run *run, struct target t, const struct rr_where *w,
                      const struct rr_cut *cut, uint32_t parts, bool write, struct cell **cells)
{
    struct rank *k = &run->rank[t.rank];
    const struct rr_temp *temp = &k->plan->temp[w->index];
    size_t segment = k->done[t.step];
    size_t elements = run->m.elements[segment + 1 == run->m.segments];
    struct slot *slot = &k->temp[w->index][segment % W];

    if (cut->hi - cut->lo > rr_block_most(elements, temp->of, run->c->element_bytes))
        return wrong(run, t, "a block larger than its temp");
    if (slot->segment != segment || slot->first != cut->first) {
        if (!write)
            return wrong(run, t, "reads a temp that holds another block");
        for (uint32_t i = 0; i < cut->pieces * temp->parts; i++)
            slot->cell[i] = (struct cell){ 0 };
        slot->segment = segment;
        slot->first = cut->first;
    }
    if ((uint32_t)w->part + parts > temp->parts)
        return wrong(run, t, "names a part that its temp does not have");
    *cells = slot->cell + (size_t)w->part * cut->pieces;
    return 0;
}

/* Has the rank seen the others arrive whose memory or windows decide what a span means? */
static bool has_met(const struct run *run, struct target t, uint32_t span, bool write)
{
    const struct rank *k = &run->rank[t.rank];
    const struct rr_span *s = &k->plan->span[span];
    const struct rr_step *x = &k->plan->step[t.step];

    if (s->place == RR_TEMP || s->place == RR_KEPT)
        return true;
    if (s->rank != t.rank)
        return k->arrived[s->rank];
    if (s->place != RR_STAGE || !write || !(x->flags & RR_PRIVATE_OUT))
        return true;
    for (int r = 0; r < run->c->ranks; r++)
        if (r != t.rank && run->m.host[r] == run->m.host[t.rank] && !k->arrived[r])
            return false;
    return true;
}

/* The cells that a span means; *cells = NULL where it is switched off. */
static int cells_of(struct run *run, struct target t, uint32_t span, bool write,
                    struct cell **cells, uint32_t *pieces)
{
    struct rank *k = &run->rank[t.rank];
    size_t segment = k->done[t.step];
    const struct rr_cut *cut = rr_model_cut(&run->m, t.rank, span, segment);
    struct rr_where w;

    if (!has_met(run, t, span, write))
        return wrong(run, t, "touches memory of a rank that has not arrived");
    RR_TRY(rr_model_where(&run->m, t.rank, &k->plan->step[t.step], span, write, &w, run->why));
    uint32_t parts = k->plan->span[span].parts;
    *pieces = cut->pieces * parts;
    *cells = NULL;
    if (w.memory == RR_NOWHERE)
        return 0;
    if (w.memory == RR_TEMPS && cut->pieces == 0) {
        *cells = k->vector[0]; /* no cell of it will be touched */
        return 0;
    }
    if (w.memory == RR_TEMPS)
        return temp_cells(run, t, &w, cut, parts, write, cells);
    if (w.memory == RR_VECTOR) {
        const struct rank *owner = &run->rank[w.rank];
        if (w.part >= (w.index ? owner->shape.out : owner->shape.in))
            return wrong(run, t, "names a part that its vector does not have");
        *cells = owner->vector[w.index] + (size_t)w.part * vector_pieces(&run->m) +
                 segment * run->m.pieces[0] + cut->first;
        return 0;
    }
    size_t most = run->m.pieces[0] > run->m.pieces[1] ? run->m.pieces[0] : run->m.pieces[1];
    if (!run->rank[w.rank].stage)
        return wrong(run, t, "names the stage of a rank without one");
    size_t piece = segment % (size_t)run->c->stage_pieces * run->rank[w.rank].plan->stage_parts;
    *cells = run->rank[w.rank].stage + (piece + (size_t)w.part) * most + cut->first;
    return 0;
}

static int put(struct run *run, struct target t, const struct cell *value, uint32_t pieces)
{
    const struct rr_step *x = &run->rank[t.rank].plan->step[t.step];

    for (uint32_t d = 0; d < x->destinations; d++) {
        struct cell *to;
        uint32_t room;
        RR_TRY(cells_of(run, t, x->destination + d, true, &to, &room));
        if (room != pieces)
            return wrong(run, t, "sizes differ");
        if (to && pieces > 0)
            memmove(to, value, pieces * sizeof *to);
    }
    return 0;
}

static bool divides(const struct run *run, const struct rr_step *x)
{
    return run->c->average && run->c->ranks > 1 && (x->flags & RR_DIVIDE);
}

static int get(struct run *run, struct target t, uint32_t span, const struct cell **cells,
               uint32_t *pieces)
{
    struct cell *from;

    RR_TRY(cells_of(run, t, span, false, &from, pieces));
    for (uint32_t i = 0; i < *pieces; i++)
        if (from[i].tree == RR_TREE_NONE)
            return wrong(run, t, "reads what nobody wrote");
    *cells = from;
    return 0;
}

/* ---- steps ---- */

/* Piece by piece; all summands must belong to the same piece of the vector. */
static int add_up(struct run *run, struct target t, const struct cell *const *source,
                  uint32_t pieces, struct cell *to)
{
    const struct rr_step *x = &run->rank[t.rank].plan->step[t.step];
    uint32_t value[UINT8_MAX + 1];

    for (uint32_t j = 0; j < pieces; j++) {
        for (size_t i = 0; i < x->sources; i++) {
            value[i] = source[i][j].tree;
            if (source[i][j].place != source[0][j].place)
                return wrong(run, t, "adds elements of different places");
        }
        to[j].place = source[0][j].place;
        to[j].tree = rr_tree_fold(&run->trees, value, x->sources);
        if (divides(run, x))
            to[j].tree = rr_tree_divided(&run->trees, to[j].tree);
    }
    return 0;
}

static int reduce(struct run *run, struct target t)
{
    const struct rr_step *x = &run->rank[t.rank].plan->step[t.step];
    size_t n = x->sources;
    const struct cell *source[UINT8_MAX + 1];
    uint32_t pieces = 0;
    struct cell sum[64];

    if (n > UINT8_MAX + 1)
        return wrong(run, t, "more sources than a kernel takes");
    for (size_t i = 0; i < n; i++) {
        uint32_t mine;
        RR_TRY(get(run, t, x->source + (uint32_t)i, &source[i], &mine));
        if (i > 0 && mine != pieces)
            return wrong(run, t, "sizes differ");
        pieces = mine;
    }
    struct cell *to = pieces <= 64 ? sum : rr_alloc(pieces, sizeof *to);
    if (!to)
        return RINGRED_ENOMEM;
    int rc = add_up(run, t, source, pieces, to);
    if (rc == 0)
        rc = put(run, t, to, pieces);
    if (to != sum)
        rr_free(to);
    return rc;
}

static int copy(struct run *run, struct target t)
{
    const struct rr_step *x = &run->rank[t.rank].plan->step[t.step];
    const struct cell *from = NULL;
    uint32_t pieces = 0;

    if (x->flags & RR_DIVIDE)
        return reduce(run, t); /* a sum of one */
    RR_TRY(get(run, t, x->source, &from, &pieces));
    return put(run, t, from, pieces);
}

/* ---- links ---- */

static struct link *link_of(struct run *run, int from, int to)
{
    return &run->link[(size_t)from * (size_t)run->c->ranks + (size_t)to];
}

static int enter(struct run *run, struct link *l, struct target from)
{
    const struct rr_step *x = &run->rank[from.rank].plan->step[from.step];
    const struct cell *cells = NULL;
    uint32_t pieces = 0;

    RR_TRY(get(run, from, x->source, &cells, &pieces));
    struct message *m = rr_arena_take(&run->arena, 1, sizeof *m + pieces * sizeof *cells);
    if (!m)
        return RINGRED_ENOMEM;
    hear_deps(run, from);
    m->slot = x->slot;
    m->segment = run->rank[from.rank].done[from.step];
    m->pieces = pieces;
    m->heard = run->words ? heard_of(run, from) : NULL;
    if (pieces > 0)
        memcpy(m->cell, cells, pieces * sizeof *cells);
    if (l->head)
        l->tail->next = m;
    else
        l->head = m;
    l->tail = m;
    l->held++;
    return 0;
}

static int leave(struct run *run, struct link *l, struct target to)
{
    const struct rr_step *x = &run->rank[to.rank].plan->step[to.step];
    struct message *m = l->head;

    if (m->slot != x->slot || m->segment != run->rank[to.rank].done[to.step])
        return wrong(run, to, "another message came than it expects");
    hear_deps(run, to);
    if (run->words)
        hear(run, heard_of(run, to), m->heard);
    l->head = m->next;
    l->held--;
    return put(run, to, m->cell, m->pieces);
}

/* Moves what can move. With no room in the link, sender and receiver must meet. */
static int pump(struct run *run, int from, int to)
{
    struct link *l = link_of(run, from, to);
    int room = run->c->channel;

    for (;;) {
        if (l->held > 0 && l->recv) {
            struct target t = { to, (uint32_t)l->recv - 1 };
            RR_TRY(leave(run, l, t));
            l->recv = 0;
            complete(run, t);
        } else if (l->send && (room < 0 || l->held < room || (room == 0 && l->recv))) {
            struct target t = { from, (uint32_t)l->send - 1 };
            RR_TRY(enter(run, l, t));
            l->send = 0;
            complete(run, t);
        } else {
            return 0;
        }
    }
}

static int post(struct run *run, struct target t)
{
    struct rank *k = &run->rank[t.rank];
    const struct rr_step *x = &k->plan->step[t.step];
    bool sends = x->kind == RR_STEP_SEND;
    int from = sends ? t.rank : x->peer, to = sends ? x->peer : t.rank;
    struct link *l = link_of(run, from, to);
    int *end = sends ? &l->send : &l->recv;

    if (*end)
        return wrong(run, t, "two messages at once on a link");
    *end = (int)t.step + 1;
    k->state[t.step] |= POSTED;
    return pump(run, from, to);
}

/* ---- running ---- */

static int run_one(struct run *run, struct target t)
{
    const struct rr_step *x = &run->rank[t.rank].plan->step[t.step];
    int rc = 0;

    if (x->kind == RR_STEP_SEND || x->kind == RR_STEP_RECV)
        return post(run, t);
    hear_deps(run, t);
    if (x->kind == RR_STEP_SIGNAL)
        tell(run, t);
    else if (x->kind == RR_STEP_AWAIT)
        see(run, t);
    else if (rr_model_step_is_off(&run->m, t.rank, x))
        rc = 0;
    else
        rc = x->kind == RR_STEP_REDUCE ? reduce(run, t) : copy(run, t);
    if (rc == 0)
        complete(run, t);
    return rc;
}

static int stuck(struct run *run)
{
    for (int r = 0; r < run->c->ranks; r++)
        for (uint32_t x = 0; x < run->rank[r].plan->steps; x++)
            if (run->rank[r].done[x] < run->m.segments)
                return wrong(run, (struct target){ r, x },
                             "deadlock: nothing can run, and this step has not");
    return 0;
}

static int run_all(struct run *run)
{
    for (int r = 0; r < run->c->ranks; r++)
        for (uint32_t x = 0; x < run->rank[r].plan->steps; x++)
            enqueue(run, r, x);
    while (run->queued > 0) {
        struct target t = dequeue(run);
        if (can_run(run, t))
            RR_TRY(run_one(run, t));
    }
    return run->left > 0 ? stuck(run) : 0;
}

/* ---- the result ---- */

static const struct cell *output(struct run *run, int r, int part, size_t i)
{
    struct rr_where w = rr_model_vector(&run->m, r, RR_OUT, part);

    return run->rank[r].vector[w.index] + (size_t)w.part * vector_pieces(&run->m) + i;
}

static int bad_output(struct run *run, int r, int part, size_t piece, const char *what)
{
    char tree[160];
    struct rr_text text = { .at = tree, .room = sizeof tree };

    rr_tree_print(&run->trees, output(run, r, part, piece)->tree, &text);
    return rr_fail(run->why, RINGRED_EINTERNAL, r, 0,
                   "%s: rank %d of %d, part %d, piece %zu of %zu of the output: %s: %s",
                   run->rank[r].plan->name, r, run->c->ranks, part, piece, vector_pieces(&run->m), what,
                   tree);
}

static int check_links(struct run *run)
{
    size_t links = (size_t)run->c->ranks * (size_t)run->c->ranks;

    for (size_t l = 0; l < links; l++)
        if (run->link[l].held > 0)
            return rr_fail(run->why, RINGRED_EINTERNAL, (int)(l / (size_t)run->c->ranks), 0,
                           "%s: a message that nobody reads", run->rank[0].plan->name);
    return 0;
}

static int check_barrier(struct run *run)
{
    for (int r = 0; r < run->c->ranks; r++) {
        uint64_t *all = rr_arena_take(&run->arena, run->words, sizeof *all);
        if (!all)
            return RINGRED_ENOMEM;
        all[r / 64] |= (uint64_t)1 << r % 64;
        for (uint32_t x = 0; x < run->rank[r].plan->steps; x++)
            hear(run, all, heard_of(run, (struct target){ r, x }));
        for (int q = 0; q < run->c->ranks; q++)
            if (!(all[q / 64] >> q % 64 & 1))
                return rr_fail(run->why, RINGRED_EINTERNAL, r, 0,
                               "%s: rank %d leaves without word of rank %d",
                               run->rank[r].plan->name, r, q);
    }
    return 0;
}

/* The sum of a host's ranks. */
static uint32_t tree_of_host(struct run *run, int host)
{
    uint32_t leaf[UINT8_MAX + 1];
    int n = 0;

    for (int r = 0; r < run->c->ranks; r++)
        if (run->c->host[r] == host)
            leaf[n++] = rr_tree_leaf(r);
    return n > 0 ? rr_tree_fold(&run->trees, leaf, n) : RR_TREE_NONE;
}

/* The one tree that every sum must have; RR_TREE_NONE: any that holds each rank once. */
static uint32_t due_tree(struct run *run)
{
    uint32_t leaf[UINT8_MAX + 1];
    int n = run->c->ranks, leaves = 0;

    if (!run->rank[0].plan->tree || n > UINT8_MAX + 1)
        return RR_TREE_NONE;
    for (int r = 0; r < n && !run->c->host; r++)
        leaf[leaves++] = rr_tree_leaf(r);
    while (run->c->host && leaves < n && (leaf[leaves] = tree_of_host(run, leaves)) != RR_TREE_NONE)
        leaves++;
    uint32_t tree = rr_tree_fold(&run->trees, leaf, leaves);
    return run->c->average && n > 1 ? rr_tree_divided(&run->trees, tree) : tree;
}

/* What a part of rank r's output must be: which tree (RR_TREE_NONE: any sum), of which part of the
 * inputs. */
struct due {
    uint32_t tree;
    int part;
};

static struct due due_to(const struct run *run, int r, int part, uint32_t sum)
{
    switch (run->c->what) {
    case RR_BROADCAST:
        return (struct due){ rr_tree_leaf(run->c->root), 0 };
    case RR_SCATTER:
        return (struct due){ rr_tree_leaf(run->c->root), r };
    case RR_ALLGATHER:
    case RR_GATHER:
        return (struct due){ rr_tree_leaf(part), 0 };
    case RR_ALLTOALL:
        return (struct due){ rr_tree_leaf(part), r };
    case RR_REDUCE_SCATTER:
        return (struct due){ sum, r };
    default:
        return (struct due){ sum, 0 };
    }
}

static int check_piece(struct run *run, int r, int part, size_t i, const struct due *due)
{
    const struct cell *mine = output(run, r, part, i);
    bool divided = run->c->average && run->c->ranks > 1;

    if (mine->tree == RR_TREE_NONE || mine->place != (size_t)due->part * vector_pieces(&run->m) + i)
        return bad_output(run, r, part, i, mine->tree ? "belongs elsewhere" : "was not written");
    if (due->tree != RR_TREE_NONE)
        return mine->tree == due->tree ? 0 : bad_output(run, r, part, i, "is not the result");
    if (run->c->what == RR_ALLREDUCE && r > 0)
        return mine->tree == output(run, 0, 0, i)->tree
                   ? 0
                   : bad_output(run, r, part, i, "differs from rank 0's");
    int good = rr_tree_has_all_once(&run->trees, mine->tree, divided);
    return good > 0 ? 0 : good < 0 ? good : bad_output(run, r, part, i, "is not the result");
}

static int check_vectors(struct run *run)
{
    uint32_t sum = due_tree(run);
    size_t pieces = vector_pieces(&run->m);

    for (int r = 0; r < run->c->ranks; r++)
        for (int part = 0; part < run->rank[r].shape.out; part++) {
            struct due due = due_to(run, r, part, sum);
            for (size_t i = 0; i < pieces; i++)
                RR_TRY(check_piece(run, r, part, i, &due));
        }
    return 0;
}

int rr_plan_prove(const struct rr_case *c, ringred_error *why)
{
    struct run run;
    int rc = set_up(&run, c, why);

    if (rc == 0)
        rc = run_all(&run);
    if (rc == 0)
        rc = check_links(&run);
    if (rc == 0)
        rc = c->what == RR_BARRIER ? check_barrier(&run) : check_vectors(&run);
    if (run.trees.failed)
        rc = RINGRED_ENOMEM;
    tear_down(&run);
    return rc;
}
