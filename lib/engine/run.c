/* SPDX-License-Identifier: Apache-2.0 */
/* Issues the steps of a run. A plan without links and with one segment is run in program order;
 * every other one in sweeps over the steps that are not finished. */
#include "engine/step.h"

#include <string.h>

static bool is_window(const struct rr_engine *e, const char *p)
{
    const char *heap = e->shared->mate[e->rank].heap;

    return p >= heap && p < heap + e->shared->heap_bytes;
}

size_t rr_run_piece(struct rr_engine *e, size_t bytes)
{
    size_t piece = rr_round_up(bytes ? bytes : 1, 2 * RR_LINE), at;

    if (e->stage_at + piece > e->shared->stage_bytes)
        e->stage_at = 0;
    at = e->stage_at;
    e->stage_at += piece;
    return at;
}

/* The next pieces of the stage: the same on all ranks of a host, since they run the same plans on the
 * same counts. Whoever enters operation k knows that all have ended k - 2, so going round is safe. */
static void take_pieces(struct rr_engine *e, struct rr_run *r)
{
    r->piece_bytes = r->stage_part_bytes * r->program->plan->stage_parts;
    if (r->segments == 1) {
        r->first_piece = rr_run_piece(e, r->piece_bytes);
        return;
    }
    r->pieces = e->shared->stage_bytes / r->piece_bytes;
    r->first_piece = (e->stage_at + r->piece_bytes - 1) / r->piece_bytes;
    e->stage_at = ((r->first_piece + r->segments - 1) % r->pieces + 1) * r->piece_bytes;
}

void rr_run_bind(struct rr_engine *e, struct rr_run *r)
{
    r->base = r->ask.sequence << RR_SEGMENT_BITS;
    r->first = r->awaited = 0;
    r->in_window = r->out_window = r->whole = r->handed = false;
    r->done = e->done;
    r->bases = e->bases;
    r->send = e->send;
    r->recv = e->recv;
    if (!r->lane && !r->program->plan->shared)
        return;
    /* Whoever is in its next operation has seen all arrive in this one, so two lines are enough. */
    r->turn = ++e->shared_runs & 1;
    r->hash = rr_ask_hash(&r->ask);
    e->shared->mate[e->rank].page->ask[r->turn] = r->ask;
    if (r->count && e->shared->windows && !r->ragged) {
        /* in place, an input with parts is overwritten while others may still want it: stage it */
        r->in_window = !r->in_pieces && is_window(e, r->in) && !(r->in_place && r->ask.collective == RR_ALLTOALL);
        r->out_window = !r->out_pieces && is_window(e, r->out);
    }
    r->all_out_windows = r->out_window;
    r->all_in_windows = r->in_window;
}

void rr_run_begin(struct rr_engine *e, struct rr_run *r)
{
    const struct rr_program *p = r->program;
    size_t elements = r->count < p->segment ? r->count : p->segment;

    rr_run_bind(e, r);
    r->segments = r->count > elements ? (r->count + elements - 1) / elements : 1;
    r->segment_bytes = elements * r->element_bytes;
    r->part_bytes = r->count * r->element_bytes;
    r->stage_part_bytes = rr_round_up(r->segment_bytes ? r->segment_bytes : 1, 2 * RR_LINE);
    r->straight = r->segments == 1 && !p->plan->linked;
    memset(r->done, 0, p->plan->steps * sizeof *r->done);
    if (p->plan->shared)
        take_pieces(e, r);
    if (p->plan->linked)
        e->links->ops->begin(e->links, e->channel, &r->ask);
}

static int run_straight(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why)
{
    uint32_t steps = r->program->plan->steps;

    while (r->first < steps) {
        int rc = e->step(e, r, r->first, 0, why);
        if (rc)
            return rc;
        r->first++;
        *moved = true;
    }
    return 0;
}

static bool may_run(const struct rr_run *r, const struct rr_step *step, size_t segment)
{
    const struct rr_dep *dep = &r->program->plan->dep[step->dep];

    for (uint32_t i = 0; i < step->deps; i++) {
        int64_t need = (int64_t)segment - dep[i].back + 1;
        if (need > (int64_t)r->segments)
            need = (int64_t)r->segments;
        if ((int64_t)r->done[dep[i].step] < need)
            return false;
    }
    return true;
}

static int sweep(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why)
{
    const struct rr_plan *plan = r->program->plan;

    for (uint32_t x = r->first; x < plan->steps; x++) {
        size_t segment = r->done[x];
        if (segment >= r->segments || !may_run(r, &plan->step[x], segment))
            continue;
        int rc = e->step(e, r, x, segment, why);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            r->done[x]++;
            *moved = true;
        }
    }
    while (r->first < plan->steps && r->done[r->first] >= r->segments)
        r->first++;
    return r->first == plan->steps ? 0 : RINGRED_PENDING;
}

int rr_run_advance(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why)
{
    *moved = false;
    if (RR_UNLIKELY(r->meeting)) {
        int rc = rr_ragged_meet(e, r, why);
        if (rc)
            return rc;
        if (rr_program_fit(e, r->program, r->count, r->element_bytes, r->segment) < 0)
            return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "a plan does not fit into scratch");
        rr_run_begin(e, r);
        *moved = true;
    }
    if (r->lane)
        return r->lane == RR_LANE_TINY ? rr_lane_advance(e, r, why) : rr_last_advance(e, r, why);
    int rc = r->straight ? run_straight(e, r, moved, why) : sweep(e, r, moved, why);
    return RR_LIKELY(!r->team) || rc ? rc : rr_run_hand_over(e, r, moved, why);
}

/* The counter of a mate that a step awaits. */
static uint64_t seen_of(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step, int peer)
{
    const struct rr_page *page = e->shared->mate[peer].page;

    return atomic_load(step->counter == RR_ARRIVED ? &page->arrival[r->turn].counter
                                                   : &page->counter[step->counter].value);
}

bool rr_run_has_arrived(const struct rr_engine *e, const struct rr_run *r, int peer)
{
    return atomic_load(&e->shared->mate[peer].page->arrival[r->turn].counter) > r->base;
}

static int awaited(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                   size_t segment, const uint8_t *among)
{
    for (uint32_t i = 0; i < step->peers; i++) {
        int peer = r->program->plan->peer[step->peer0 + i];
        if ((!among || (among[peer] & RR_GONE_MEMORY)) && seen_of(e, r, step, peer) < r->base + segment + 1)
            return peer;
    }
    return -1;
}

static int lane_waits_for(const struct rr_engine *e, const struct rr_run *r, const uint8_t *among)
{
    int suspect = -1, arrived = 1;

    for (int peer = 0; peer < e->ranks; peer++) {
        if (peer == e->rank)
            continue;
        bool here = rr_run_has_arrived(e, r, peer);
        arrived += here;
        if (!among || (among[peer] & RR_GONE_MEMORY)) {
            if (!here)
                return peer;
            suspect = peer;
        }
    }
    /* Everybody came and the work is not done: of those asked for, who died may have been at it. */
    if (r->lane == RR_LANE_LAST && among && arrived == e->ranks &&
        atomic_load(&e->shared->team->over[r->turn].counter) <= r->base)
        return suspect;
    return -1;
}

int rr_run_waits_for(const struct rr_engine *e, const struct rr_run *r, const uint8_t *among)
{
    if (r->lane || r->meeting)
        return lane_waits_for(e, r, among);
    const struct rr_plan *plan = r->program->plan;
    for (uint32_t x = r->first; x < plan->steps; x++) {
        const struct rr_step *step = &plan->step[x];
        size_t segment = r->straight ? 0 : r->done[x];
        int peer = -1;
        if (segment >= r->segments)
            continue;
        if (step->kind == RR_STEP_AWAIT && !rr_run_await_is_off(r, step))
            peer = awaited(e, r, step, segment, among);
        else if ((step->kind == RR_STEP_RECV || step->kind == RR_STEP_SEND) &&
                 (!among || (among[step->peer] & RR_GONE_LINK)) && !rr_run_is_left_out(e, r, step, segment))
            peer = step->peer;
        if (peer >= 0)
            return peer;
    }
    return -1;
}

static void lacks_of_step(const struct rr_engine *e, const struct rr_run *r, uint32_t x, uint8_t *lacks)
{
    const struct rr_plan *plan = r->program->plan;
    const struct rr_step *step = &plan->step[x];
    size_t segment = r->straight ? 0 : r->done[x];

    if (segment >= r->segments || (!r->straight && !may_run(r, step, segment)))
        return;
    if (step->kind == RR_STEP_RECV || step->kind == RR_STEP_SEND)
        lacks[step->peer] |= !rr_run_is_left_out(e, r, step, segment);
    else if (step->kind == RR_STEP_AWAIT && !rr_run_await_is_off(r, step))
        for (uint32_t i = 0; i < step->peers; i++) {
            int peer = plan->peer[step->peer0 + i];
            lacks[peer] |= seen_of(e, r, step, peer) < r->base + segment + 1;
        }
}

void rr_run_lacks(const struct rr_engine *e, const struct rr_run *r, uint8_t *lacks)
{
    if (r->lane || r->meeting) {
        for (int peer = 0; peer < e->ranks; peer++)
            lacks[peer] = peer != e->rank && !rr_run_has_arrived(e, r, peer);
        return;
    }
    uint32_t end = r->straight && r->first < r->program->plan->steps ? r->first + 1 : r->program->plan->steps;
    for (uint32_t x = r->first; x < end; x++)
        lacks_of_step(e, r, x, lacks);
}
