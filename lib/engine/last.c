/* SPDX-License-Identifier: Apache-2.0 */
/* The last-arriver lane, for more ranks than CPUs: whoever comes last sums for everyone, so that each
 * rank needs the CPU once per operation and never in the middle of one. The others meanwhile sleep or
 * give way. It keeps the rules of the shared-memory plans (plan.h): arrival lines, windows, pieces of
 * the stage, the tree. */
#include "engine/step.h"

/* Everybody is here: sum everything into whatever can be reached, and a copy for whoever has no window. */
static int work(struct rr_engine *e, struct rr_run *r, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    const void *source[RR_LANE_RANKS];
    void *destination[RR_LANE_RANKS + 1] = { r->out };
    struct rr_reduce job = { .type = r->type, .op = r->op, .sources = e->ranks,
                             .destinations = 1, .divisor = r->divisor, .scale = r->scale, .count = r->count,
                             .user = r->user };

    for (int i = 0; i < e->ranks; i++) {
        if (i != e->rank)
            RR_TRY(rr_run_meet(e, r, i, why));
        source[i] = i == e->rank          ? (const void *)r->in
                    : r->bases[i].in_window ? r->bases[i].in
                                            : s->mate[i].stage + r->first_piece;
        if (i != e->rank && r->bases[i].out_window)
            destination[job.destinations++] = r->bases[i].out;
    }
    if (job.destinations < e->ranks)
        destination[job.destinations++] = s->mate[e->rank].stage + r->first_piece;
    if (job.count)
        r->reduce(&job, destination, source);
    s->team->over[r->turn].by = e->rank;
    atomic_store_explicit(&s->team->over[r->turn].counter, r->base + 1,
                          memory_order_release);
    rr_shared_published(s);
    r->ended = true;
    return 0;
}

int rr_last_begin(struct rr_engine *e, struct rr_run *r, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    size_t bytes = r->count * r->element_bytes;

    rr_run_bind(e, r);
    struct rr_arrival *a = &s->mate[e->rank].page->arrival[r->turn];
    r->ended = false;
    r->first_piece = rr_run_piece(e, bytes);
    if (!r->in_window && bytes)
        rr_copy(s->mate[e->rank].stage + r->first_piece, r->in, bytes);
    rr_run_introduce(e, r, a);
    if (!rr_shared_may_publish(s))
        return 0;
    atomic_store_explicit(&a->counter, r->base + 1, memory_order_release);
    uint64_t all = ++e->last_runs * (uint64_t)e->ranks;
    if (atomic_fetch_add_explicit(&s->team->arrived, 1, memory_order_acq_rel) + 1 == all)
        return work(e, r, why);
    return 0;
}

int rr_last_advance(struct rr_engine *e, struct rr_run *r, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    size_t bytes = r->count * r->element_bytes;

    if (r->ended)
        return 0;
    if (atomic_load_explicit(&s->team->over[r->turn].counter, memory_order_acquire) <
        r->base + 1)
        return RINGRED_PENDING;
    int by = s->team->over[r->turn].by;
    if (by < 0 || by >= e->ranks || !s->mate[by].page)
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "the host's shared memory names a rank %d", by);
    RR_TRY(rr_run_find_stage(e, by, &s->mate[by].page->arrival[r->turn], why));
    if (!r->out_window && bytes)
        rr_copy(r->out, s->mate[by].stage + r->first_piece, bytes);
    return 0;
}
