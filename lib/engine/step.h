/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine room: one step of a run. */
#ifndef RR_ENGINE_STEP_H
#define RR_ENGINE_STEP_H

#include "engine/engine.h"

/* Runs instance (x, segment). 0: ended. PENDING. < 0: failed. */
int rr_step_run(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment,
                ringred_error *why);

#endif
