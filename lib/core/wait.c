/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting. Spin (or yield, where ranks outnumber CPUs) for a short while, then sleep on one epoll set
 * that everything which can end the wait is in: the mates' doorbell, their processes, the sockets, and
 * our own wake-up. The peers' health is looked after now and then, and before and after each sleep. */
#include "core/core.h"

#include <sched.h>
#include <sys/epoll.h>

#define LOOK_NS 5000000       /* between two looks at the peers' health while spinning */
#define PROBE_NS 100000000    /* waited for so long: ask the peers what they are doing */
#define SLEEP_MS 100          /* the longest sleep: every loss of a wake-up is bounded by it */
#define CLOCK_TURNS 64        /* turns between two readings of the clock */

/* What the peers' kernels and the host's verdict say. */
static int look(ringred_comm *c, const struct rr_run *run, ringred_error *why)
{
    struct rr_engine *e = &c->engine;
    int peer;

    if (e->shared) {
        if (rr_shared_verdict(e->shared, why))
            return why->code;
        e->shared->check(e->shared, c->gone);
    }
    if (e->links)
        RR_TRY(e->links->ops->check(e->links, &run->ask, c->gone, why));
    peer = rr_run_waits_for(e, run, c->gone);
    if (peer < 0)
        return 0;
    if (e->shared && e->shared->mate[peer].page) {
        uint64_t left = atomic_load(&e->shared->mate[peer].page->left);
        return left ? rr_fail(why, RINGRED_EPEER, peer, 0,
                              "rank %d left the communicator after operation %llu, while this rank is "
                              "in operation %llu", peer, (unsigned long long)left - 1,
                              (unsigned long long)run->ask.sequence)
                    : rr_fail(why, RINGRED_EPEER, peer, 0, "rank %d is gone: its process has ended", peer);
    }
    return e->links->ops->explain(e->links, peer, why);
}

/* Sleeps unless what we wait for came while we were getting ready to. */
static int sleep_turn(ringred_comm *c, struct rr_waiter *w, struct rr_run *run, int64_t now,
                      int64_t deadline_ns, ringred_error *why)
{
    struct epoll_event event[8];
    int most = SLEEP_MS, rc;
    bool moved;

    if (c->engine.shared && rr_shared_sleep_begin(c->engine.shared) < 0)
        most = now - w->since_ns > 32000000 ? 2 : 1; /* nobody will ring: sleep in proportion */
    rc = rr_run_advance(&c->engine, run, &moved, why);
    if (rc == RINGRED_PENDING && !moved && atomic_load(&c->state) == RR_COMM_READY)
        (void)epoll_wait(c->epoll, event, 8, rr_deadline_ms(deadline_ns, most)); /* errors: look again */
    if (c->engine.shared)
        rr_shared_sleep_end(c->engine.shared);
    return rc;
}

int rr_wait_turn(ringred_comm *c, struct rr_waiter *w, struct rr_run *run, int64_t deadline_ns,
                 ringred_error *why)
{
    if (c->crowded)
        sched_yield();
    else
        rr_pause();
    if (++w->turns % (c->crowded ? 4 : CLOCK_TURNS))
        return RINGRED_PENDING;

    int64_t now = rr_now_ns();
    if (!w->since_ns) {
        *w = (struct rr_waiter){ now, now + LOOK_NS, now + PROBE_NS, w->turns };
        return RINGRED_PENDING;
    }
    if (now >= deadline_ns)
        return RINGRED_ETIMEOUT;
    if (now >= w->probe_ns && c->engine.links) {
        c->engine.links->ops->probe(c->engine.links, &run->ask);
        w->probe_ns = now + 10 * PROBE_NS;
    }
    bool tired = now - w->since_ns >= c->spin_ns;
    if (now >= w->look_ns || tired) {
        RR_TRY(look(c, run, why));
        w->look_ns = now + LOOK_NS;
    }
    if (!tired)
        return RINGRED_PENDING;
    w->turns = c->crowded ? 3u : CLOCK_TURNS - 1; /* after a sleep: one turn, then the clock again */
    return sleep_turn(c, w, run, now, deadline_ns, why);
}
