/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine room: one step of a run. */
#ifndef RR_ENGINE_STEP_H
#define RR_ENGINE_STEP_H

#include "engine/engine.h"

/* Writes my windows and my request's hash into an arrival, for peers to meet. */
void rr_run_introduce(const struct rr_engine *e, const struct rr_run *r, struct rr_arrival *a);
/* Ragged: elements that a span has in all segments; where a part begins in its buffer. */
size_t rr_ragged_elements(const struct rr_engine *e, const struct rr_run *r, const struct rr_span *s);
size_t rr_ragged_at(const struct rr_run *r, const struct rr_span *s);
/* A peer is in this operation: do we agree, and where are its vectors? */
int rr_run_meet(struct rr_engine *e, struct rr_run *r, int peer, ringred_error *why);
/* Where a peer's stage is, if it borrows one. */
int rr_run_find_stage(const struct rr_engine *e, int peer, const struct rr_arrival *a, ringred_error *why);
static inline uint64_t rr_run_stage(const struct rr_engine *e) /* where mine is */
{
    const struct rr_mate *mate = &e->shared->mate[e->rank];

    return RR_LIKELY(!e->shared->home) ? 0 : (uint64_t)(mate->stage - mate->heap);
}
/* A message of a late segment that has no bytes: both ends know, and leave it out. */
bool rr_run_is_left_out(const struct rr_engine *e, const struct rr_run *r, const struct rr_step *step,
                        size_t segment);
static inline bool rr_run_await_is_off(const struct rr_run *r, const struct rr_step *step)
{
    return (step->flags & RR_WINDOW_IN) && !r->in_window;
}
/* A peer's request is not mine: both in words. */
int rr_run_disagree(const struct rr_engine *e, const struct rr_run *r, int peer, ringred_error *why);
/* Finds out which of my vectors have windows, and lends the run what the engine has for it. */
void rr_run_bind(struct rr_engine *e, struct rr_run *r);
/* The next `bytes` of every rank's stage, in one piece; the same place on all ranks. */
size_t rr_run_piece(struct rr_engine *e, size_t bytes);

#endif
