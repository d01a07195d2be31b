/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine room: one step of a run. */
#ifndef RR_ENGINE_STEP_H
#define RR_ENGINE_STEP_H

#include "engine/engine.h"

/* Writes my windows and my request's hash into an arrival, for peers to meet. */
void rr_run_introduce(const struct rr_engine *e, const struct rr_run *r, struct rr_arrival *a);
/* A peer is in this operation: do we agree, and where are its vectors? */
int rr_run_meet(struct rr_engine *e, struct rr_run *r, int peer, ringred_error *why);
/* Finds out which of my vectors have windows, and lends the run what the engine has for it. */
void rr_run_bind(struct rr_engine *e, struct rr_run *r);
/* The next `bytes` of every rank's stage, in one piece; the same place on all ranks. */
size_t rr_run_piece(struct rr_engine *e, size_t bytes);

#endif
