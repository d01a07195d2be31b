/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of unequal length. A segment is the same range of every part, so a short part has no bytes in
 * late segments. Over links, a message without bytes is left out (but for the first segment's, which
 * says what was asked for), so ranks need not know each other's longest part. Counters in shared
 * memory count segments, so there the ranks first agree how many there are. */
#include "engine/step.h"

static size_t longest(const size_t *count, int ranks, size_t most)
{
    for (int r = 0; count && r < ranks; r++)
        most = count[r] > most ? count[r] : most;
    return most;
}

size_t rr_ragged_most(const struct rr_ragged *g, int ranks)
{
    size_t most = longest(g->in_count, ranks, g->in_count ? 0 : g->own_in);

    return longest(g->out_count, ranks, !g->out_count && g->own_out > most ? g->own_out : most);
}

/* What lies in a mate's memory, or came from it, is as long as my part for it or from it. */
size_t rr_ragged_elements(const struct rr_engine *e, const struct rr_run *r, const struct rr_span *s)
{
    const struct rr_ragged *g = r->ragged;
    bool sums = r->ask.collective == (RR_REDUCE_SCATTER | RR_RAGGED);

    if (s->place == RR_OUT)
        return g->out_count ? g->out_count[s->part] : g->own_out;
    if (s->place == RR_TEMP || (s->place != RR_KEPT && s->rank != e->rank)) {
        if (sums)
            return g->in_count[e->rank];
        return s->place != RR_TEMP && g->out_count ? g->out_count[s->rank] : g->own_out;
    }
    return g->in_count ? g->in_count[s->part] : g->own_in;
}

size_t rr_ragged_at(const struct rr_run *r, const struct rr_span *s)
{
    const struct rr_ragged *g = r->ragged;
    const size_t *at = s->place == RR_OUT ? g->out_at : g->in_at;

    return at ? at[s->part] : 0;
}

void rr_ragged_begin(struct rr_engine *e, struct rr_run *r)
{
    struct rr_shared *s = e->shared;
    struct rr_page *page = s->mate[e->rank].page;

    r->base = r->ask.sequence << RR_SEGMENT_BITS;
    r->turn = ++e->shared_runs & 1;
    r->hash = rr_ask_hash(&r->ask);
    r->awaited = 0;
    r->meeting = true;
    struct rr_arrival *a = &page->arrival[r->turn];
    page->ask[r->turn] = r->ask;
    for (int q = 0; q < e->ranks; q++)
        rr_page_parts(page, r->turn, e->ranks)[q] = r->ragged->in_count ? r->ragged->in_count[q] : r->ragged->own_in;
    a->u.longest = rr_ragged_most(r->ragged, e->ranks);
    a->hash = r->hash;
    if (!rr_shared_may_publish(s))
        return;
    atomic_store_explicit(&a->counter, r->base + 1, memory_order_release);
    rr_shared_published(s);
}

/* Does a mate have for me what I expect of it? */
static int compare(const struct rr_engine *e, const struct rr_run *r, int peer, ringred_error *why)
{
    const struct rr_page *page = e->shared->mate[peer].page;
    struct rr_shape mine = rr_shape_of(rr_ask_what(&r->ask), e->ranks, r->ask.root, e->rank);
    struct rr_shape theirs = rr_shape_of(rr_ask_what(&r->ask), e->ranks, r->ask.root, peer);
    uint64_t there = rr_page_parts(page, r->turn, e->ranks)[e->rank];

    if (!mine.out || !theirs.in || rr_is_reduction(rr_ask_what(&r->ask)))
        return 0;
    if (rr_ask_what(&r->ask) == RR_SCATTER && peer != r->ask.root)
        return 0;
    uint64_t here = r->ragged->out_count ? r->ragged->out_count[peer] : r->ragged->own_out;
    return here == there ? 0 : rr_ask_parts(&r->ask, rr_engine_member(e, e->rank), here, rr_engine_member(e, peer), there, why);
}

int rr_ragged_meet(struct rr_engine *e, struct rr_run *r, ringred_error *why)
{
    struct rr_shared *s = e->shared;

    for (uint32_t i = r->awaited; i < (uint32_t)e->ranks; i++) {
        const struct rr_arrival *a = &s->mate[i].page->arrival[r->turn];
        if ((int)i == e->rank)
            continue;
        if (atomic_load_explicit(&a->counter, memory_order_acquire) < r->base + 1) {
            r->awaited = i;
            return RINGRED_PENDING;
        }
        if (RR_UNLIKELY(a->hash != r->hash))
            return rr_run_disagree(e, r, (int)i, why);
        RR_TRY(compare(e, r, (int)i, why));
    }
    r->count = s->mate[e->rank].page->arrival[r->turn].u.longest;
    for (int i = 0; i < e->ranks; i++) {
        uint64_t there = s->mate[i].page->arrival[r->turn].u.longest;
        if (there > (SIZE_MAX >> 1) / r->element_bytes || there / r->segment >> (RR_SEGMENT_BITS - 1))
            return rr_fail(why, RINGRED_ELIMIT, rr_engine_member(e, i), 0,
                           "a part of %llu elements on rank %d is too long for segments of %zu",
                           (unsigned long long)there, rr_engine_member(e, i), r->segment);
        r->count = there > r->count ? there : r->count;
    }
    r->meeting = false;
    return 0;
}
