/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of step does. Called by run.c for an instance whose dependencies are met; always
 * holds: a step handles its segments in order, one at a time. */
#include "engine/step.h"

#include <string.h>

/* Where segment s lies in every rank's stage. */
static size_t piece_at(const struct rr_run *r, size_t segment)
{
    size_t piece = r->first_piece + segment;

    if (RR_LIKELY(r->segments == 1))
        return r->first_piece;
    return piece % r->pieces * r->piece_bytes;
}

static char *locate(const struct rr_engine *e, const struct rr_run *r, uint32_t span,
                    size_t segment, const struct rr_extent *extent)
{
    const struct rr_span *s = &r->program->plan->span[span];
    const struct rr_program *p = r->program;
    size_t along = segment * r->segment_bytes;

    switch (s->place) {
    case RR_IN:
        if (s->rank == e->rank)
            return (char *)(uintptr_t)r->in + along + extent->at;
        if (r->bases[s->rank].in_window)
            return r->bases[s->rank].in + along + extent->at;
        return e->shared->mate[s->rank].stage + piece_at(r, segment) + extent->at;
    case RR_OUT:
        if (s->rank == e->rank)
            return r->out + along + extent->at;
        return r->bases[s->rank].out + along + extent->at;
    case RR_STAGE:
        return e->shared->mate[s->rank].stage + piece_at(r, segment) + extent->at;
    default:
        return e->scratch + p->temp_at[s->rank] + segment % p->slots * p->temp_bytes[s->rank];
    }
}

static const struct rr_extent *extents(const struct rr_run *r, size_t segment)
{
    return r->program->extent[r->whole                     ? RR_CUT_WHOLE
                              : segment + 1 == r->segments ? RR_CUT_LAST
                                                           : RR_CUT_FULL];
}

/* A destination that is switched off by what this rank alone knows. */
static bool is_off(const struct rr_engine *e, const struct rr_run *r, const struct rr_span *s,
                   unsigned flags)
{
    if (s->place == RR_OUT)
        return s->rank != e->rank && !r->bases[s->rank].out_window;
    return s->place == RR_STAGE && (flags & RR_PRIVATE_OUT) && r->all_out_windows;
}

static void run_reduce(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                       size_t segment)
{
    const struct rr_extent *extent = extents(r, segment);
    const struct rr_plan *plan = r->program->plan;
    const void *source[RR_REDUCE_SOURCES];
    void *destination[RR_REDUCE_SOURCES + 1]; /* everybody's output and my stage */
    struct rr_reduce job = {
        .type = r->type, .op = RINGRED_SUM, .divisor = step->flags & RR_DIVIDE ? r->divisor : 1
    };

    job.count = extent[step->source].bytes / r->element_bytes;
    if (!job.count)
        return;
    for (uint32_t i = 0; i < step->sources; i++)
        source[job.sources++] =
            locate(e, r, step->source + i, segment, &extent[step->source + i]);
    for (uint32_t i = 0; i < step->destinations; i++) {
        uint32_t span = step->destination + i;
        if (!is_off(e, r, &plan->span[span], step->flags))
            destination[job.destinations++] = locate(e, r, span, segment, &extent[span]);
    }
    if (job.destinations)
        r->reduce(&job, destination, source);
}

static void run_copy(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                     size_t segment)
{
    const struct rr_extent *extent = extents(r, segment);
    size_t bytes = extent[step->source].bytes;

    if (((step->flags & RR_PRIVATE_IN) && r->in_window) ||
        ((step->flags & RR_PRIVATE_OUT) && r->out_window) || !bytes)
        return;
    if ((step->flags & RR_DIVIDE) && r->divisor > 1) {
        run_reduce(e, r, step, segment);
        return;
    }
    char *from = locate(e, r, step->source, segment, &extent[step->source]);
    for (uint32_t i = 0; i < step->destinations; i++) {
        uint32_t span = step->destination + i;
        if (is_off(e, r, &r->program->plan->span[span], 0))
            continue;
        char *to = locate(e, r, span, segment, &extent[span]);
        if (to != from)
            rr_copy(to, from, bytes);
    }
}

void rr_run_introduce(const struct rr_engine *e, const struct rr_run *r, struct rr_arrival *a)
{
    const char *heap = e->shared->mate[e->rank].heap;

    a->u.window.in = r->in_window ? (uint64_t)(r->in - heap) : 0;
    a->u.window.out = r->out_window ? (uint64_t)(r->out - heap) : 0;
    a->u.window.in_window = r->in_window;
    a->u.window.out_window = r->out_window;
    a->hash = r->hash;
}

static void run_signal(struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                       size_t segment)
{
    struct rr_page *page = e->shared->mate[e->rank].page;
    struct rr_arrival *a = &page->arrival[r->ask.sequence & 1];
    _Atomic uint64_t *counter = &page->counter[step->counter].value;

    if (step->counter == RR_ARRIVED) {
        counter = &a->counter;
        if (segment == 0)
            rr_run_introduce(e, r, a);
    }
    if (!rr_shared_may_publish(e->shared))
        return;
    atomic_store_explicit(counter, r->base + segment + 1, memory_order_release);
    rr_shared_published(e->shared);
}

int rr_run_meet(struct rr_engine *e, struct rr_run *r, int peer, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    const struct rr_arrival *a = &s->mate[peer].page->arrival[r->ask.sequence & 1];
    struct rr_bases *b = &r->bases[peer];
    size_t bytes = r->count * r->element_bytes;

    if (RR_UNLIKELY(a->hash != r->hash)) {
        int rc = rr_ask_compare(&r->ask, e->rank, &s->mate[peer].page->ask[r->ask.sequence & 1], peer,
                                why);
        return rc < 0 ? rc : rr_fail(why, RINGRED_EINTERNAL, peer, 0, "two texts, one hash");
    }
    b->in_window = a->u.window.in_window;
    b->out_window = a->u.window.out_window;
    r->all_out_windows &= b->out_window;
    r->all_in_windows &= b->in_window;
    if (!b->in_window && !b->out_window)
        return 0;
    if (b->in_window) {
        if (a->u.window.in > s->heap_bytes || bytes > s->heap_bytes - a->u.window.in)
            return rr_fail(why, RINGRED_EWIRE, peer, 0, "rank %d's input window is not in its heap", peer);
        b->in = s->mate[peer].heap + a->u.window.in;
        RR_TRY(s->touch(s, peer, a->u.window.in, bytes));
    }
    if (b->out_window) {
        if (a->u.window.out > s->heap_bytes || bytes > s->heap_bytes - a->u.window.out)
            return rr_fail(why, RINGRED_EWIRE, peer, 0, "rank %d's output window is not in its heap", peer);
        b->out = s->mate[peer].heap + a->u.window.out;
        RR_TRY(s->touch(s, peer, a->u.window.out, bytes));
    }
    return 0;
}

/* Everybody is here, and everybody sees the same windows. Where nothing has to go through the stages,
 * segments only cost: take the vector as one. */
static void all_met(struct rr_run *r)
{
    if (r->segments > 1 && r->all_in_windows && r->all_out_windows && r->program->plan->windowed) {
        r->segments = 1;
        r->whole = true;
    }
}

static int run_await(struct rr_engine *e, struct rr_run *r, const struct rr_step *step,
                     size_t segment, ringred_error *why)
{
    const int16_t *peer = &r->program->plan->peer[step->peer0];
    uint64_t want = r->base + segment + 1;

    for (uint32_t i = r->awaited; i < step->peers; i++) {
        const struct rr_page *page = e->shared->mate[peer[i]].page;
        const struct rr_arrival *a = &page->arrival[r->ask.sequence & 1];
        const _Atomic uint64_t *counter =
            step->counter == RR_ARRIVED ? &a->counter : &page->counter[step->counter].value;
        for (uint32_t tries = e->polls;
             atomic_load_explicit(counter, memory_order_acquire) < want; rr_pause())
            if (--tries == 0) {
                r->awaited = r->straight ? i : 0;
                return RINGRED_PENDING;
            }
        if (step->counter == RR_ARRIVED && segment == 0)
            RR_TRY(rr_run_meet(e, r, peer[i], why));
    }
    r->awaited = 0;
    if (step->counter == RR_ARRIVED && segment == 0)
        all_met(r);
    return 0;
}

/* Starts or continues the transfer of a step. */
static int run_move(struct rr_engine *e, struct rr_run *r, const struct rr_step *step,
                    size_t segment, ringred_error *why)
{
    bool sends = step->kind == RR_STEP_SEND;
    uint32_t span = sends ? step->source : step->destination;
    struct rr_move *m = sends ? &r->send[step->peer] : &r->recv[step->peer];

    if (!m->ask) {
        const struct rr_extent *extent = &extents(r, segment)[span];
        *m = (struct rr_move){ .peer = step->peer,
                               .slot = step->slot,
                               .segment = (uint32_t)segment,
                               .bytes = locate(e, r, span, segment, extent),
                               .length = extent->bytes,
                               .ask = &r->ask };
    }
    int rc = sends ? e->links->ops->send(e->links, m, why) : e->links->ops->recv(e->links, m, why);
    if (rc == 0) {
        m->ask = NULL;
        e->bytes_sent += sends ? m->length : 0;
    }
    return rc;
}

int rr_step_run(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment,
                ringred_error *why)
{
    const struct rr_step *step = &r->program->plan->step[x];

    switch (step->kind) {
    case RR_STEP_SIGNAL:
        run_signal(e, r, step, segment);
        return 0;
    case RR_STEP_AWAIT:
        return run_await(e, r, step, segment, why);
    case RR_STEP_REDUCE:
        run_reduce(e, r, step, segment);
        return 0;
    case RR_STEP_COPY:
        run_copy(e, r, step, segment);
        return 0;
    default:
        return run_move(e, r, step, segment, why);
    }
}
