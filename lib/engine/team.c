/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a stranger's team does. A barrier of ours that carries what each rank asks for goes before it: so whoever
 * has come through it knows that all ask for the same, and no team waits for a rank that is not coming. */
#include "engine/engine.h"

#define LOST_NS 200000000 /* a team has lost a rank: so long we may take to find out which */

/* It calls ranks as the communicator does. */
static int failed(const struct rr_engine *e, ringred_error *why)
{
    bool is_member = why->rank >= 0 && why->rank < e->ranks;

    why->rank = is_member ? rr_engine_member(e, why->rank) : -1;
    return why->code;
}

/* Whoever looks after the peers may know more. */
static int lost(const struct rr_crew *crew, ringred_error *why)
{
    if (rr_now_ns() < crew->lost_ns + LOST_NS)
        return RINGRED_PENDING;
    *why = crew->lost;
    return why->code;
}

int rr_run_hand_over(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why)
{
    struct rr_crew *crew = e->crew;

    if (RR_UNLIKELY(!crew))
        return RINGRED_PENDING; /* the communicator is broken, and being destroyed */
    if (crew->lost.code)
        return lost(crew, why);
    if (!r->handed) {
        if (rr_crew_start(crew, &r->call, why) < 0)
            return failed(e, why);
        r->handed = true;
        *moved = true;
    }
    int rc = rr_crew_test(crew, why);
    if (rc >= 0)
        return rc;
    if (failed(e, why) != RINGRED_EPEER || why->rank >= 0)
        return why->code;
    crew->lost = *why;
    crew->lost_ns = rr_now_ns();
    return RINGRED_PENDING;
}
