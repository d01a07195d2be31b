/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny lane: an allreduce between ranks of one host whose vectors are so small that walking a plan
 * would cost more than the work. Every rank publishes its vector, in the flag's own line where it
 * fits, and sums everybody's: one line travels from each rank to each other, nothing more. It keeps
 * the rules of the shared-memory plans (plan.h): the same arrival lines, the same pieces of the stage,
 * the same tree. */
#include "engine/step.h"

#include <string.h>

void rr_lane_begin(struct rr_engine *e, struct rr_run *r)
{
    struct rr_shared *s = e->shared;
    struct rr_page *page = s->mate[e->rank].page;

    r->turn = ++e->shared_runs & 1;
    struct rr_arrival *a = &page->arrival[r->turn];
    size_t bytes = r->count * r->element_bytes;

    r->base = r->ask.sequence << RR_SEGMENT_BITS;
    r->hash = rr_ask_hash(&r->ask);
    r->awaited = 0;
    page->ask[r->turn] = r->ask;
    if (bytes <= RR_INLINE) {
        if (bytes)
            memcpy(a->u.payload, r->in, bytes);
    } else {
        r->first_piece = rr_run_piece(e, bytes);
        a->u.window.stage = rr_run_stage(e);
        rr_copy(s->mate[e->rank].stage + r->first_piece, r->in, bytes);
    }
    a->hash = r->hash;
    if (!rr_shared_may_publish(s))
        return;
    atomic_store_explicit(&a->counter, r->base + 1, memory_order_release);
    rr_shared_published(s);
}

int rr_lane_advance(struct rr_engine *e, struct rr_run *r, ringred_error *why)
{
    struct rr_shared *s = e->shared;
    const void *source[RR_LANE_RANKS];
    void *destination = r->out;
    size_t bytes = r->count * r->element_bytes;

    for (uint32_t i = r->awaited; i < (uint32_t)e->ranks; i++) {
        const struct rr_arrival *a = &s->mate[i].page->arrival[r->turn];
        if ((int)i == e->rank)
            continue;
        for (uint32_t tries = e->polls;
             atomic_load_explicit(&a->counter, memory_order_acquire) < r->base + 1; rr_pause())
            if (--tries == 0) {
                r->awaited = i;
                return RINGRED_PENDING;
            }
        if (RR_UNLIKELY(a->hash != r->hash))
            return rr_run_disagree(e, r, (int)i, why);
        if (bytes > RR_INLINE)
            RR_TRY(rr_run_find_stage(e, (int)i, a, why));
    }
    for (int i = 0; i < e->ranks; i++)
        source[i] = i == e->rank         ? (const void *)r->in
                    : bytes <= RR_INLINE ? s->mate[i].page->arrival[r->turn].u.payload
                                         : (const unsigned char *)s->mate[i].stage + r->first_piece;
    const struct rr_reduce job = { .type = r->type, .op = r->op, .sources = e->ranks,
                                   .destinations = 1, .divisor = r->divisor, .scale = r->scale, .count = r->count,
                                   .user = r->user };
    if (job.count)
        r->reduce(&job, &destination, source);
    return 0;
}
