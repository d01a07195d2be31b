/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a case concrete; see model.h. */
#include "plan/model.h"

#include "plan/builder.h"

#include <string.h>

#define MOST_ELEMENTS ((size_t)1 << 24) /* of a segment: one byte of memory each */

/* ---- hosts: ranks that wait for each other's counters share memory ---- */

static int host_of(const int *host, int r)
{
    while (host[r] != r)
        r = host[r];
    return r;
}

static void join(int *host, int a, int b)
{
    a = host_of(host, a);
    b = host_of(host, b);
    if (a < b)
        host[b] = a;
    else
        host[a] = b;
}

static bool out_has_window(const struct rr_case *c, int r)
{
    return rr_fact(rr_fact(c->in_place, r) ? c->in_window : c->out_window, r);
}

/* As the engine has it: in place, an input with parts is staged, since it is overwritten while others
 * may still want it. */
static bool in_has_window(const struct rr_case *c, int r)
{
    return rr_fact(c->in_window, r) && !(c->what == RR_ALLTOALL && rr_fact(c->in_place, r));
}

static void find_hosts(struct rr_model *m)
{
    const struct rr_case *c = m->c;

    for (int r = 0; r < c->ranks; r++) {
        m->host[r] = r;
        m->windows[r] = true;
    }
    for (int r = 0; r < c->ranks; r++)
        for (uint32_t i = 0; i < c->plan[r]->peers; i++)
            join(m->host, r, c->plan[r]->peer[i]);
    for (int r = 0; r < c->ranks; r++) {
        m->host[r] = host_of(m->host, r);
        if (!out_has_window(c, r))
            m->windows[m->host[r]] = false;
    }
}

/* ---- cuts ---- */

/* Ranges of all spans; number[e] becomes 1 where one begins or ends. */
static void mark(const struct rr_model *m, int kind, uint32_t *number)
{
    const struct rr_case *c = m->c;
    struct rr_range segment = { 0, m->elements[kind] };

    for (int r = 0; r < c->ranks; r++)
        for (uint32_t i = 0; i < c->plan[r]->spans; i++) {
            struct rr_range e = rr_block_range(segment, &c->plan[r]->span[i], c->element_bytes);
            struct rr_cut *cut = &m->cut[kind][m->span0[r] + i];
            cut->lo = e.lo;
            cut->hi = e.hi;
            number[e.lo] = number[e.hi] = 1;
        }
    number[0] = number[segment.hi] = 1;
}

static int cut_segment(struct rr_model *m, int kind)
{
    size_t end = m->elements[kind], spans = m->span0[m->c->ranks];
    uint32_t *number = rr_alloc(end + 1, sizeof *number);
    uint32_t pieces = 0;

    if (!number)
        return RINGRED_ENOMEM;
    mark(m, kind, number);
    for (size_t e = 0; e <= end; e++)
        number[e] = number[e] ? pieces++ : 0;
    m->pieces[kind] = pieces - 1;
    for (size_t i = 0; i < spans; i++) {
        struct rr_cut *cut = &m->cut[kind][i];
        cut->first = number[cut->lo];
        cut->pieces = number[cut->hi] - cut->first;
    }
    rr_free(number);
    return 0;
}

static int make_cuts(struct rr_model *m)
{
    const struct rr_case *c = m->c;

    for (int r = 0; r < c->ranks; r++)
        m->span0[r + 1] = m->span0[r] + c->plan[r]->spans;
    for (int kind = 0; kind < 2; kind++) {
        m->cut[kind] = rr_alloc(m->span0[c->ranks] + 1, sizeof *m->cut[kind]);
        if (!m->cut[kind])
            return RINGRED_ENOMEM;
        RR_TRY(cut_segment(m, kind));
    }
    return 0;
}

/* ---- the whole ---- */

/* Bytes of the temps. */
static size_t scratch_of(const struct rr_case *c, int rank)
{
    const struct rr_plan *p = c->plan[rank];
    size_t bytes = 0;

    for (uint32_t k = 0; k < p->temps; k++)
        bytes += rr_block_most(c->segment, p->temp[k].of, c->element_bytes) * c->element_bytes * p->temp[k].parts;
    return bytes;
}

static int check_case(const struct rr_case *c, ringred_error *why)
{
    if (c->ranks < 1 || c->segment < 1 || c->segment > MOST_ELEMENTS || c->element_bytes < 1 ||
        c->stage_pieces < 2 * RR_PLAN_WINDOW)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "the case is out of the prover's range");
    for (int r = 0; r < c->ranks; r++)
        if (c->plan[r]->ranks != c->ranks || c->plan[r]->me != r)
            return rr_fail(why, RINGRED_EINVAL, r, 0, "plan %d is not that of rank %d of %d", r, r,
                           c->ranks);
    for (int r = 0; r < c->ranks; r++)
        if (rr_plan_check(c->plan[r]) < 0)
            return rr_fail(why, RINGRED_EINTERNAL, r, 0, "the plan of rank %d is not well formed",
                           r);
    for (int r = 1; r < c->ranks; r++)
        if (scratch_of(c, r) != scratch_of(c, 0))
            return rr_fail(why, RINGRED_EINTERNAL, r, 0,
                           "rank %d needs other scratch than rank 0, so their segments may differ", r);
    return 0;
}

int rr_model_init(struct rr_model *m, const struct rr_case *c, ringred_error *why)
{
    memset(m, 0, sizeof *m);
    m->c = c;
    RR_TRY(check_case(c, why));
    m->segments = c->count == 0 ? 1 : (c->count - 1) / c->segment + 1;
    m->elements[0] = c->segment;
    m->elements[1] = c->count - (m->segments - 1) * c->segment;
    if (m->segments == 1)
        m->elements[0] = m->elements[1];

    m->host = rr_alloc((size_t)c->ranks, sizeof *m->host);
    m->windows = rr_alloc((size_t)c->ranks, sizeof *m->windows);
    m->span0 = rr_alloc((size_t)c->ranks + 1, sizeof *m->span0);
    int rc = m->host && m->windows && m->span0 ? make_cuts(m) : RINGRED_ENOMEM;
    if (rc < 0) {
        rr_model_done(m);
        return rr_fail(why, rc, -1, 0, "no memory for the prover");
    }
    find_hosts(m);
    return 0;
}

void rr_model_done(struct rr_model *m)
{
    rr_free(m->host);
    rr_free(m->windows);
    rr_free(m->span0);
    rr_free(m->cut[0]);
    rr_free(m->cut[1]);
    memset(m, 0, sizeof *m);
}

struct rr_where rr_model_vector(const struct rr_model *m, int rank, enum rr_place place, int part)
{
    struct rr_where w = { .memory = RR_VECTOR, .rank = rank, .index = place == RR_OUT, .part = part };
    struct rr_shape shape = rr_shape_of(m->c->what, m->c->ranks, m->c->root, rank);

    if (!rr_fact(m->c->in_place, rank) || shape.in == 0 || shape.out == 0)
        return w;
    if (shape.in < shape.out && w.index == 0) {
        w.index = 1;
        w.part = rank;
    } else if (shape.in >= shape.out && w.index == 1) {
        w.index = 0;
        w.part = shape.in > shape.out ? rank : part;
    }
    return w;
}

static bool same_place(const struct rr_where *a, const struct rr_where *b)
{
    return a->rank == b->rank && a->index == b->index && a->part == b->part;
}

/* In place, my input is my output. */
static bool copies_to_itself(const struct rr_model *m, int rank, const struct rr_step *x)
{
    const struct rr_span *from = &m->c->plan[rank]->span[x->source];
    const struct rr_span *to = &m->c->plan[rank]->span[x->destination];

    if (!rr_fact(m->c->in_place, rank) || x->destinations != 1 || (x->flags & RR_DIVIDE) ||
        from->place != RR_IN || to->place != RR_OUT || from->rank != rank || to->rank != rank)
        return false;
    struct rr_where a = rr_model_vector(m, rank, RR_IN, from->part);
    struct rr_where b = rr_model_vector(m, rank, RR_OUT, to->part);
    return same_place(&a, &b) && memcmp(from->at, to->at, sizeof from->at) == 0 &&
           memcmp(from->of, to->of, sizeof from->of) == 0;
}

bool rr_model_step_is_off(const struct rr_model *m, int rank, const struct rr_step *x)
{
    if (x->kind == RR_STEP_AWAIT)
        return (x->flags & RR_WINDOW_IN) && !in_has_window(m->c, rank);
    if (x->kind != RR_STEP_COPY)
        return false;
    return ((x->flags & RR_PRIVATE_IN) && in_has_window(m->c, rank)) ||
           ((x->flags & RR_PRIVATE_OUT) && out_has_window(m->c, rank)) ||
           ((x->flags & RR_IN_PLACE) && !rr_fact(m->c->in_place, rank)) ||
           copies_to_itself(m, rank, x);
}

/* IN(r) and OUT(r) of another rank: its window; IN without one: its stage. */
static int where_of_peer(const struct rr_model *m, int rank, const struct rr_span *s, bool write,
                         struct rr_where *where, ringred_error *why)
{
    const struct rr_case *c = m->c;
    bool window = s->place == RR_IN ? in_has_window(c, s->rank) : out_has_window(c, s->rank);

    if (m->host[s->rank] != m->host[rank])
        return rr_fail(why, RINGRED_EINTERNAL, rank, 0,
                       "rank %d names a vector of rank %d on another host", rank, s->rank);
    if (window)
        return 0;
    if (s->place == RR_IN) {
        *where = (struct rr_where){ .memory = RR_STAGES, .rank = s->rank, .part = s->part };
        return 0;
    }
    if (!write)
        return rr_fail(why, RINGRED_EINTERNAL, rank, 0,
                       "rank %d reads the output of rank %d, which has no window", rank, s->rank);
    where->memory = RR_NOWHERE;
    return 0;
}

int rr_model_where(const struct rr_model *m, int rank, const struct rr_step *x, uint32_t span,
                   bool write, struct rr_where *where, ringred_error *why)
{
    const struct rr_case *c = m->c;
    const struct rr_span *s = &c->plan[rank]->span[span];

    if (s->place == RR_TEMP || (s->place == RR_KEPT && rr_fact(c->in_place, rank))) {
        int part = s->place == RR_TEMP ? s->part : 0;
        *where = (struct rr_where){ .memory = RR_TEMPS, .rank = rank, .index = s->rank, .part = part };
        return 0;
    }
    *where = rr_model_vector(m, s->place == RR_KEPT ? rank : s->rank,
                             s->place == RR_OUT ? RR_OUT : RR_IN, s->part);
    switch (s->place) {
    case RR_KEPT:
        return write ? rr_fail(why, RINGRED_EINTERNAL, rank, 0, "rank %d writes what it keeps", rank) : 0;
    case RR_STAGE:
        *where = (struct rr_where){ .memory = RR_STAGES, .rank = s->rank, .part = s->part };
        if (write && (x->flags & RR_PRIVATE_OUT) && m->windows[m->host[rank]])
            where->memory = RR_NOWHERE;
        if (write && s->rank != rank)
            return rr_fail(why, RINGRED_EINTERNAL, rank, 0, "rank %d writes the stage of rank %d",
                           rank, s->rank);
        if (m->host[s->rank] != m->host[rank])
            return rr_fail(why, RINGRED_EINTERNAL, rank, 0,
                           "rank %d reads the stage of rank %d on another host", rank, s->rank);
        return 0;
    case RR_IN:
        if (write)
            return rr_fail(why, RINGRED_EINTERNAL, rank, 0, "rank %d writes an input", rank);
        break;
    default:
        break;
    }
    return s->rank == rank ? 0 : where_of_peer(m, rank, s, write, where, why);
}

const char *rr_step_name(int kind)
{
    static const char *const names[RR_STEP_LAST] = {
        [RR_STEP_SEND] = "send", [RR_STEP_RECV] = "recv",     [RR_STEP_REDUCE] = "reduce",
        [RR_STEP_COPY] = "copy", [RR_STEP_SIGNAL] = "signal", [RR_STEP_AWAIT] = "await",
    };

    return kind > 0 && kind < RR_STEP_LAST ? names[kind] : "?";
}
