/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a stranger's team does. A barrier of ours that carries what each rank asks for goes before it: so whoever
 * has come through it knows that all ask for the same, and no team waits for a rank that is not coming. */
#include "engine/engine.h"

/* It calls ranks as the communicator does. */
static int failed(const struct rr_engine *e, ringred_error *why)
{
    bool is_member = why->rank >= 0 && why->rank < e->ranks;

    why->rank = is_member ? rr_engine_member(e, why->rank) : -1;
    return why->code;
}

int rr_run_hand_over(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why)
{
    if (!r->handed) {
        if (rr_crew_start(e->crew, &r->call, why) < 0)
            return failed(e, why);
        r->handed = true;
        *moved = true;
    }
    int rc = rr_crew_test(e->crew, why);
    return rc < 0 ? failed(e, why) : rc;
}
