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

static char *temp_slot(const struct rr_engine *e, const struct rr_program *p, const struct rr_span *s,
                       size_t segment)
{
    return e->scratch + p->temp_at[s->rank] + segment % p->slots * p->temp_bytes[s->rank];
}

/* My own vector, which may lie in many places. */
static struct rr_spot in_mine(const struct rr_pieces *pieces, const char *at, size_t along)
{
    if (RR_UNLIKELY(pieces != NULL))
        return (struct rr_spot){ .pieces = pieces, .from = along };
    return (struct rr_spot){ .at = (char *)(uintptr_t)at + along };
}

static struct rr_spot locate(const struct rr_engine *e, const struct rr_run *r, uint32_t span,
                              size_t segment, const struct rr_extent *extent)
{
    const struct rr_span *s = &r->program->plan->span[span];
    const struct rr_program *p = r->program;
    size_t part = RR_UNLIKELY(r->ragged != NULL) ? rr_ragged_at(r, s) * r->element_bytes
                                                 : s->part * r->part_bytes;
    size_t along = part + segment * r->segment_bytes + extent->at;

    switch (s->place) {
    case RR_IN:
        if (s->rank == e->rank)
            return in_mine(r->in_pieces, r->in, along);
        if (r->bases[s->rank].in_window)
            return (struct rr_spot){ .at = r->bases[s->rank].in + along };
        break;
    case RR_OUT:
        if (s->rank == e->rank)
            return in_mine(r->out_pieces, r->out, along);
        return (struct rr_spot){ .at = r->bases[s->rank].out + along };
    case RR_STAGE:
        break;
    case RR_KEPT:
        if (!r->in_place)
            return in_mine(r->in_pieces, r->in, along);
        return (struct rr_spot){ .at = temp_slot(e, p, s, segment) };
    default:
        return (struct rr_spot){ .at = temp_slot(e, p, s, segment) + extent->at };
    }
    return (struct rr_spot){ .at = e->shared->mate[s->rank].stage + piece_at(r, segment) +
                                    s->part * r->stage_part_bytes + extent->at };
}

/* Parts of unequal length: their plans do not cut segments into blocks. */
static struct rr_extent ragged_extent(const struct rr_engine *e, const struct rr_run *r, uint32_t span,
                                      size_t segment)
{
    size_t whole = rr_ragged_elements(e, r, &r->program->plan->span[span]) * r->element_bytes;
    size_t at = segment * r->segment_bytes, left = whole > at ? whole - at : 0;

    return (struct rr_extent){ 0, left < r->segment_bytes ? left : r->segment_bytes };
}

static struct rr_extent extent_of(const struct rr_engine *e, const struct rr_run *r, uint32_t span,
                                  size_t segment)
{
    if (RR_UNLIKELY(r->ragged != NULL))
        return ragged_extent(e, r, span, segment);
    return r->program->extent[r->whole                     ? RR_CUT_WHOLE
                              : segment + 1 == r->segments ? RR_CUT_LAST
                                                           : RR_CUT_FULL][span];
}

/* A destination that is switched off by what this rank alone knows. */
static bool is_off(const struct rr_engine *e, const struct rr_run *r, const struct rr_span *s,
                   unsigned flags)
{
    if (s->place == RR_OUT)
        return s->rank != e->rank && !r->bases[s->rank].out_window;
    return s->place == RR_STAGE && (flags & RR_PRIVATE_OUT) && r->all_out_windows;
}

/* Means of means of equally many, where sums might overflow on their way. */
static uint32_t divisor_of(const struct rr_run *r, const struct rr_step *step)
{
    if (r->means && (step->flags & (RR_DIVIDE | RR_PARTIAL)))
        return step->sources;
    return step->flags & RR_DIVIDE ? r->divisor : 1;
}

/* A sum of which one source or one destination, or both, lie in many places: as many sums as they have pieces
 * there. Of the operands of a step, one of each at most is this rank's own. */
static void reduce_pieces(const struct rr_run *r, struct rr_reduce *job, void **destination, const void **source,
                          int from, struct rr_spot in, int to, struct rr_spot out)
{
    for (size_t left = job->count; left; left -= job->count) {
        size_t bytes = left * r->element_bytes;
        if (from >= 0)
            source[from] = rr_spot_run(&in, &bytes);
        if (to >= 0)
            destination[to] = rr_spot_run(&out, &bytes);
        job->count = bytes / r->element_bytes;
        r->reduce(job, destination, source);
        for (int i = 0; i < (int)job->sources; i++)
            source[i] = (const char *)source[i] + bytes;
        for (int i = 0; i < (int)job->destinations; i++)
            destination[i] = (char *)destination[i] + bytes;
        in.from += bytes;
        out.from += bytes;
    }
}

static void run_reduce(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                       size_t segment)
{
    struct rr_extent extent = extent_of(e, r, step->source, segment);
    const struct rr_plan *plan = r->program->plan;
    const void *source[RR_REDUCE_SOURCES];
    void *destination[RR_REDUCE_SOURCES + 1]; /* everybody's output and my stage */
    struct rr_reduce job = {
        .type = r->type, .op = r->op, .divisor = divisor_of(r, step),
        .scale = step->flags & RR_DIVIDE ? r->scale : 0, .user = r->user
    };
    struct rr_spot in = { 0 }, out = { 0 }, w;
    int from = -1, to = -1;

    job.count = extent.bytes / r->element_bytes;
    if (!job.count)
        return;
    for (uint32_t i = 0; i < step->sources; i++) {
        extent = extent_of(e, r, step->source + i, segment);
        w = locate(e, r, step->source + i, segment, &extent);
        if (RR_UNLIKELY(w.pieces != NULL)) {
            in = w;
            from = (int)i;
        }
        source[job.sources++] = w.at;
    }
    for (uint32_t i = 0; i < step->destinations; i++) {
        uint32_t span = step->destination + i;
        if (is_off(e, r, &plan->span[span], step->flags))
            continue;
        extent = extent_of(e, r, span, segment);
        w = locate(e, r, span, segment, &extent);
        if (RR_UNLIKELY(w.pieces != NULL)) {
            out = w;
            to = (int)job.destinations;
        }
        destination[job.destinations++] = w.at;
    }
    if (!job.destinations)
        return;
    if (RR_UNLIKELY(from >= 0 || to >= 0))
        reduce_pieces(r, &job, destination, source, from, in, to, out);
    else
        r->reduce(&job, destination, source);
}

static void copy_pieces(struct rr_spot to, struct rr_spot from, size_t bytes)
{
    for (size_t n = bytes; bytes; n = bytes) {
        const char *source = rr_spot_run(&from, &n);
        char *destination = rr_spot_run(&to, &n);
        if (destination != source)
            rr_copy(destination, source, n);
        from = rr_spot_behind(from, n);
        to = rr_spot_behind(to, n);
        bytes -= n;
    }
}

static void run_copy(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                     size_t segment)
{
    struct rr_extent extent = extent_of(e, r, step->source, segment);
    size_t bytes = extent.bytes;

    if (((step->flags & RR_PRIVATE_IN) && r->in_window) ||
        ((step->flags & RR_PRIVATE_OUT) && r->out_window) ||
        ((step->flags & RR_IN_PLACE) && !r->in_place) || !bytes)
        return;
    if ((step->flags & RR_DIVIDE) && r->reduce) { /* one rank's sum: a NaN, a truth value become the canonical one */
        run_reduce(e, r, step, segment);
        return;
    }
    struct rr_spot from = locate(e, r, step->source, segment, &extent);
    for (uint32_t i = 0; i < step->destinations; i++) {
        uint32_t span = step->destination + i;
        if (is_off(e, r, &r->program->plan->span[span], 0))
            continue;
        extent = extent_of(e, r, span, segment);
        copy_pieces(locate(e, r, span, segment, &extent), from, bytes);
    }
}

void rr_run_introduce(const struct rr_engine *e, const struct rr_run *r, struct rr_arrival *a)
{
    const char *heap = e->shared->mate[e->rank].heap;

    a->u.window.in = r->in_window ? (uint64_t)(r->in - heap) : 0;
    a->u.window.out = r->out_window ? (uint64_t)(r->out - heap) : 0;
    a->u.window.in_window = r->in_window;
    a->u.window.out_window = r->out_window;
    a->u.window.stage = rr_run_stage(e);
    a->hash = r->hash;
}

static void run_signal(struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                       size_t segment)
{
    struct rr_page *page = e->shared->mate[e->rank].page;
    struct rr_arrival *a = &page->arrival[r->turn];
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

int rr_run_disagree(const struct rr_engine *e, const struct rr_run *r, int peer, ringred_error *why)
{
    int them = rr_engine_member(e, peer);
    int rc = rr_ask_compare(&r->ask, rr_engine_member(e, e->rank), &e->shared->mate[peer].page->ask[r->turn], them,
                            why);

    return rc < 0 ? rc : rr_fail(why, RINGRED_EINTERNAL, them, 0, "one text has two hashes");
}

int rr_run_find_stage(const struct rr_engine *e, int peer, const struct rr_arrival *a, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    struct rr_mate *mate = &s->mate[peer];
    uint64_t at = a->u.window.stage;
    int them = rr_engine_member(e, peer);

    if (RR_LIKELY(!s->home) || mate->stage == mate->heap + at)
        return 0;
    if (at > s->heap_bytes || s->stage_bytes > s->heap_bytes - at)
        return rr_fail(why, RINGRED_EWIRE, them, 0, "rank %d's stage is not in its heap", them);
    mate->stage = mate->heap + at;
    return s->touch(s, peer, at, s->stage_bytes);
}

int rr_run_meet(struct rr_engine *e, struct rr_run *r, int peer, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    const struct rr_arrival *a = &s->mate[peer].page->arrival[r->turn];
    struct rr_bases *b = &r->bases[peer];
    int them = rr_engine_member(e, peer);

    if (RR_UNLIKELY(a->hash != r->hash))
        return rr_run_disagree(e, r, peer, why);
    RR_TRY(rr_run_find_stage(e, peer, a, why));
    b->in_window = a->u.window.in_window;
    b->out_window = a->u.window.out_window;
    r->all_out_windows &= b->out_window;
    r->all_in_windows &= b->in_window;
    if (!b->in_window && !b->out_window)
        return 0;
    const struct rr_shape shape =
        rr_shape_of(rr_ask_what(&r->ask), e->ranks, rr_ask_root(&r->ask), peer);
    if (b->in_window) {
        size_t bytes = (size_t)shape.in * r->count * r->element_bytes;
        if (a->u.window.in > s->heap_bytes || bytes > s->heap_bytes - a->u.window.in)
            return rr_fail(why, RINGRED_EWIRE, them, 0, "rank %d's input window is not in its heap", them);
        b->in = s->mate[peer].heap + a->u.window.in;
        RR_TRY(s->touch(s, peer, a->u.window.in, bytes));
    }
    if (b->out_window) {
        size_t bytes = (size_t)shape.out * r->count * r->element_bytes;
        if (a->u.window.out > s->heap_bytes || bytes > s->heap_bytes - a->u.window.out)
            return rr_fail(why, RINGRED_EWIRE, them, 0, "rank %d's output window is not in its heap", them);
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

    if (rr_run_await_is_off(r, step))
        return 0;
    uint64_t want = r->base + segment + 1;

    for (uint32_t i = r->awaited; i < step->peers; i++) {
        const struct rr_page *page = e->shared->mate[peer[i]].page;
        const struct rr_arrival *a = &page->arrival[r->turn];
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

bool rr_run_is_left_out(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                        size_t segment)
{
    uint32_t span = step->kind == RR_STEP_SEND ? step->source : step->destination;

    return segment > 0 && extent_of(e, r, span, segment).bytes == 0;
}

/* Starts or continues the transfer of a step. */
static int run_move(struct rr_engine *e, struct rr_run *r, const struct rr_step *step,
                    size_t segment, ringred_error *why)
{
    bool sends = step->kind == RR_STEP_SEND;
    uint32_t span = sends ? step->source : step->destination;
    struct rr_move *m = sends ? &r->send[step->peer] : &r->recv[step->peer];

    if (!m->ask) {
        struct rr_extent extent = extent_of(e, r, span, segment);
        if (!extent.bytes && segment > 0)
            return 0; /* both ends know that nothing is left; the first segment says what was asked for */
        struct rr_spot w = locate(e, r, span, segment, &extent);
        *m = (struct rr_move){ .peer = rr_engine_member(e, step->peer),
                               .channel = e->channel,
                               .way = step->peer,
                               .slot = step->slot,
                               .segment = (uint32_t)segment,
                               .bytes = w.at,
                               .pieces = w.pieces,
                               .from = w.from,
                               .length = extent.bytes,
                               .ask = &r->ask };
        if (r->ragged)
            m->elements = rr_ragged_elements(e, r, &r->program->plan->span[span]);
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
